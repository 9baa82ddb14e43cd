"""Short representations of public objects, and interpreter help of plans and functions."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
from tests.catalogue.planned_tasks import planned, reports_of
from tests.tables import check_all

import metricshuffle as ms
from metricshuffle.display import MAX_LINE_LENGTH, one_line_repr, short_text
from metricshuffle.randomizers import Channel, KaryRandomizedResponse

MANY = ms.Categories([f"label {index}" for index in range(500)])
EVEN = Channel(np.full((40, 40), 1 / 40))


KINDS = (
    "unary sum",
    "centroid",
    "labels",
    "map",
    "vectors of labels",
    "users' vectors",
    "users' items",
    "users' mean",
    "curator's sum",
)


@check_all("kind", KINDS)
def test_plans_and_what_comes_of_them_are_one_short_line(kind: str) -> None:
    plan = planned(kind)
    account = plan.protocol.account(plan.query, plan.target, plan.honest, plan.rounds)
    told = [
        plan,
        plan.task,
        plan.choice,
        plan.guarantee,
        plan.target,
        plan.query,
        plan.protocol,
        account,
        account.profile,
    ]
    if not kind.startswith("curator"):
        reports = reports_of(kind)
        shuffled = plan.shuffle(reports)
        release = plan.estimate(shuffled)
        told += [reports, shuffled, release, release.value, release.answer, release.estimate]
    for thing in told:
        line = repr(thing)
        assert len(line) <= MAX_LINE_LENGTH, f"{type(thing).__name__}: {line}"
        assert "\n" not in line


OTHERS: dict[str, Callable[[], Any]] = {
    "many labels": lambda: MANY,
    "a histogram of them": lambda: ms.Histogram(MANY),
    "users who hold them": lambda: ms.users_of(ms.Space(MANY), 5),
    "a matrix": lambda: EVEN,
    "amplification": lambda: ms.amplify(EVEN, users=100),
    "upper bound": lambda: ms.amplify(EVEN, users=100).upper,
    "lower bound": lambda: ms.amplify(EVEN, users=100).lower,
    "local profile": lambda: ms.amplify(EVEN, users=100).local,
    "band": lambda: ms.amplify(KaryRandomizedResponse(3, 1.0), users=100).epsilon(1e-3),
    "groups": lambda: ms.Groups(
        [(EVEN, 20), (KaryRandomizedResponse(40, 1.0), 30)], dummies=[("uniform", 9)]
    ),
    "answers for groups": lambda: ms.amplify(
        ms.Groups([(ms.GenericLDP(1.0), 20), (ms.GenericLDP(2.0), 30)])
    ),
    "tally": lambda: planned("labels").task.tally(),
    "simulation": lambda: ms.simulate(planned("unary sum"), 3),
    "audit": lambda: ms.audit(planned("unary sum"), batches=40),
}


@check_all("name", OTHERS)
def test_everything_public_is_one_short_line(name: str) -> None:
    line = repr(OTHERS[name]())
    assert len(line) <= MAX_LINE_LENGTH, line
    assert "\n" not in line
    assert " at 0x" not in line


def test_long_values_are_cut_and_numbers_are_not() -> None:
    assert short_text("x" * 100) == f"{'x' * 30!r}..."
    assert short_text(list(range(1000))) == "(0, 1, 2, ... 1,000 in all)"
    assert short_text({"a": 1}) == "{'a': 1}"
    assert short_text(np.zeros((3, 4))) == "ndarray of 3 x 4"
    line = one_line_repr("Many", ((f"part{index}", 1234.5678 + index) for index in range(40)))
    assert len(line) <= MAX_LINE_LENGTH
    assert line.endswith(" ...)")
    for told in line.removeprefix("Many(").removesuffix(" ...)").rstrip(",").split(", "):
        name, number = told.split("=")
        assert float(number) == 1234.5678 + int(name.removeprefix("part"))


def test_groups_are_the_same_in_any_order() -> None:
    """Although long matrices look the same in a line."""
    near = Channel(np.array([[0.6, 0.4], [0.4, 0.6]]))
    far = Channel(np.array([[0.7, 0.3], [0.3, 0.7]]))
    one, other = (
        ms.Groups(groups).people for groups in ([(near, 3), (far, 4)], [(far, 4), (near, 3)])
    )
    assert one == other


def test_help_shows_what_a_plan_can_be_asked_for() -> None:
    options = inspect.signature(ms.plan).parameters
    assert {"rounds", "trusted", "encoding", "max_local_epsilon", "max_bits", "protocols"} <= set(
        options
    )
    assert all(option.kind is not inspect.Parameter.VAR_KEYWORD for option in options.values())
