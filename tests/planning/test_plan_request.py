"""A plan request writes the command and the code for the same plan."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import metricshuffle as ms
from metricshuffle.cli.command_group import app
from metricshuffle.errors import InputError
from metricshuffle.planning.item_tables import item_files
from metricshuffle.planning.plan_request import PlanRequest
from metricshuffle.spaces import Box, Matrix, nested_squares_on_map

HOURS = ms.Space(ms.Integers(0, 23, unit="hours"))
SQUARES = ms.nested_squares(3, 4000.0, "m")
NEAR = ms.Target(1.0, 1e-6, 1.0)
REQUESTS = {
    "mean": PlanRequest(
        ms.Mean(ms.Integers(0, 1000, "kcal")),
        ms.Target(0.3, 1e-6, 100.0),
        1000,
        "90%",
        encoding="modular",
    ),
    "sum of reals": PlanRequest(
        ms.Sum(ms.Interval(-1.5, 20.0)), ms.Target(1.0, 0.0, 2.0, "flat"), 50, granularity=0.1
    ),
    "histogram": PlanRequest(
        ms.Histogram(ms.Interval(0.0, 9.0), 1.5), ms.Target(1.0, 1e-6, 3.0), 50, 0.9, rounds=3
    ),
    "labels": PlanRequest(
        ms.Histogram(ms.Categories(["a b", "c'd"])),
        NEAR,
        50,
        protocols=["krr", "tree"],
        floor=False,
    ),
    "map": PlanRequest(
        ms.Histogram(ms.Grid(8, 6, 500.0, "m")),
        ms.Target(1, 1e-6, 1000.0),
        50,
        max_local_epsilon=1 / 3,
    ),
    "map of a box": PlanRequest(
        ms.Histogram(ms.Grid.from_box(48.1, 11.5, 48.2, 11.65, 500.0)), ms.Target(1, 0.1, 1e3), 9
    ),
    "centroid": PlanRequest(
        ms.Centroid(ms.Places(-1.5, 11.5, 2.0, 11.65, "km")),
        ms.Target(1, 1e-6, 3.0),
        50,
        max_bits=99,
    ),
    "error": PlanRequest(
        ms.Mean(ms.Integers(-3, 9)),
        ms.Target(1.0, 1e-6, 2.0, "flat"),
        50,
        error=0.25,
        trusted="nobody",
    ),
    "items": PlanRequest(
        ms.UserHistogram(ms.users_of(HOURS, 10)), NEAR, 50, title="A 'title'", question="How?"
    ),
    "words": PlanRequest(
        ms.UserHistogram(ms.users_of(ms.Space(ms.Categories(["a", "b"]), unit="x"))),
        NEAR,
        50,
        draw=2,
        spread="smooth",
    ),
    "squares": PlanRequest(
        ms.UserHistogram(ms.users_of(SQUARES)), ms.Target(1.0, 1e-6, 1e3), 50, most_items=4
    ),
    "mean of items": PlanRequest(
        ms.UserLinearQuery.average(ms.users_of(SQUARES)), ms.Target(1.0, 1e-6, 1e3), 50
    ),
    "quantiles": PlanRequest(
        ms.Quantiles(ms.Integers(0, 90), (0.1, 0.5), (0, 5, 20)), ms.Target(1.0, 1e-6, 9.0), 50
    ),
    "spread": PlanRequest(ms.Spread(ms.Interval(0.0, 9.0), 0.5), ms.Target(1.0, 1e-6, 3.0), 50),
    "share above": PlanRequest(
        ms.ShareAbove(ms.Integers(0, 90), (30, 60), 20), ms.Target(1.0, 1e-6, 9.0), 50
    ),
    "means by group": PlanRequest(
        ms.ByGroup(ms.Categories(["a", "b"]), ms.Mean(ms.Integers(0, 9, "EUR")), "room"),
        ms.Target(1.0, 1e-6, 3.0, label_epsilon=2.0),
        50,
    ),
}
WORDS = ms.Categories(["tea, green", "milk"])
TOWNS = ms.Space(ms.Categories(["Bern", "Rome"]), ms.GreatCircle([[46.95, 7.45], [41.9, 12.5]]))
WITH_FILES = {
    "columns of labels": ms.UserLinearQuery(
        ms.users_of(ms.Categories(["tea", "milk"])), [[0.1, 3.0], [1 / 3, 4e-9]], ("price", "a,b")
    ),
    "regions of numbers": ms.UserLinearQuery.near(
        ms.users_of(ms.Integers(-2, 9, "km"), 3), {"low": [-2, 0], "high": [9]}, 4
    ),
    "columns of cells": ms.UserLinearQuery(
        ms.users_of(ms.Grid(2, 3, 500.0, "m")), [[index**0.5] for index in range(6)], ("root",)
    ),
    "vectors": ms.UserLinearQuery(
        ms.users_of(ms.Space(WORDS, ms.Vectors([[0.1, 2.0], [1.0, 1 / 3]]))), [[1.0], [2.5]]
    ),
    "towns": ms.UserLinearQuery.distance_to(ms.users_of(TOWNS), ["Rome"]),
}
REQUESTS |= {
    name: PlanRequest(query, ms.Target(1.0, 1e-6, query.diameter / 2), 50)
    for name, query in WITH_FILES.items()
}
PYTHON_ONLY = {
    "zones": PlanRequest(
        ms.Histogram(ms.Zones.of_points(["a", "b", "c"], [48.0, 48.1, 48.3], [11.0] * 3)),
        ms.Target(1.0, 1e-6, 1.2e4),
        50,
    ),
}
"""Requests with zones of a file, which nothing writes."""


def same(one: PlanRequest, other: PlanRequest) -> bool:
    """Whether two requests are equal; honest counts and shares may be written differently."""
    if isinstance(one.query, ms.UserLinearQuery) and isinstance(other.query, ms.UserLinearQuery):
        return (
            one.query.model_dump_json() == other.query.model_dump_json()
            and one.target == other.target
        )
    return one.setting == other.setting and one.error == other.error


@pytest.mark.parametrize("name", REQUESTS)
def test_the_command_asks_for_the_same(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    caught: list[PlanRequest] = []

    def catch(request: PlanRequest, progress: Any) -> None:
        caught.append(request)
        raise InputError("caught.")

    monkeypatch.setattr(
        importlib.import_module("metricshuffle.planning.plan_for_error"), "plan_request", catch
    )
    monkeypatch.chdir(tmp_path)
    files = item_files(REQUESTS[name].query)
    assert bool(files) == (name in WITH_FILES)
    for file, text in files.items():
        (tmp_path / file).write_text(text)
    words = [word for option in REQUESTS[name].to_command() for word in option]
    told = CliRunner().invoke(app, ["plan", *words])
    assert caught, (words, told.stderr)
    assert same(caught[0], REQUESTS[name])


def test_cells_of_a_box_are_a_command() -> None:
    pytest.importorskip("h3")
    for box in ((48.1, 11.5, 48.2, 11.65), (-33.95, -70.7, -33.8, -70.5)):
        zones = ms.Zones.h3_box(7, box)
        request = PlanRequest(ms.Histogram(zones), ms.Target(1.0, 1e-6, 4000.0), 500)
        options = {option[0]: option[1:] for option in request.to_command()}
        assert (options["--query"], options["--h3"]) == (("zones",), ("7",))
        assert ms.Zones.h3_box(7, [float(side) for side in options["--box"]]) == zones
    middle = zones.tree.query(zones.tree.data.mean(axis=0))[1]
    some = ms.Zones.h3(name for name in zones.ids if name != zones.ids[middle])
    with pytest.raises(InputError, match="cannot be described by options"):
        PlanRequest(ms.Histogram(some), ms.Target(1.0, 1e-6, 4000.0), 500).to_command()


@pytest.mark.parametrize("name", [*REQUESTS, *PYTHON_ONLY])
def test_the_code_asks_for_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    names: dict[str, Any] = {"ms": ms}
    request = (REQUESTS | PYTHON_ONLY)[name]
    code = request.to_python()

    def plan(
        query: Any, target: Any, users: Any, honest: Any = None, **choices: Any
    ) -> PlanRequest:
        return PlanRequest(query, target, users, honest, **choices)

    def plan_for_error(
        query: Any,
        error: Any,
        delta: Any,
        distance: Any,
        users: Any,
        honest: Any = None,
        **choices: Any,
    ) -> PlanRequest:
        target = ms.Target(1.0, delta, distance, choices.pop("shape", "linear"))
        return PlanRequest(query, target, users, honest, error=error, **choices)

    monkeypatch.setattr(ms, "plan", plan)
    monkeypatch.setattr(ms, "plan_for_error", plan_for_error)
    assert same(eval(code, names), request)  # noqa: S307 - what people copy


def test_a_changed_request_is_checked_again() -> None:
    assert REQUESTS["mean"].changed(users=10).honest == "90%"
    with pytest.raises(
        InputError, match=r"^users must be a whole number >= 1, got 0\.$"
    ) as refused:
        REQUESTS["mean"].changed(users=0)
    assert refused.value.field == "users"


def test_what_has_no_options_is_refused() -> None:
    table = ms.Space(ms.Categories(["a", "b"]), Matrix([[0, 2], [2, 0]]))
    with pytest.raises(InputError, match="with a custom metric"):
        PlanRequest(ms.UserHistogram(ms.users_of(table, 1)), ms.Target(1, 0, 2), 50).to_command()
    loose = ms.UserLinearQuery(ms.users_of(WORDS), [[0.0], [1.0]], norm="l1", constant=2.0)
    with pytest.raises(InputError, match="with a norm and a constant has no options"):
        PlanRequest(loose, NEAR, 50).to_command()
    squares = nested_squares_on_map(2, Box(48.1, 11.5, 48.2, 11.65))
    assert ("--levels", "2") in PlanRequest(
        ms.UserHistogram(ms.users_of(squares)), ms.Target(1, 0, 5e3), 9
    ).to_command()
