"""Refused requests and queries name the argument at fault, and say what to do about it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from tests.tables import check_all

import metricshuffle as ms
from metricshuffle.errors import InputError
from metricshuffle.planning.plan_request import PlanRequest
from metricshuffle.queries.cell_table import places_of

LINE = ms.Integers(0, 9)
REALS = ms.Interval(0.0, 9.0)
WORDS = ms.Categories(["tea", "milk", "water"])
NEAR = ms.Target(1.0, 1e-6, 1.0)
LABELS = ms.users_of(WORDS)
FOUR_ITEMS = ms.users_of(LINE, 4)
SUM = ms.Sum(LINE)
USERS = ms.UserHistogram(ms.users_of(LINE))
FOUR = ms.UserHistogram(FOUR_ITEMS)
GROUPED = ms.ByGroup(WORDS, ms.Mean(LINE))
KEYS = ms.KeyValues(WORDS, LINE, 2)
VECTORS = [[0.5, 3.0], [1.25, 4.0], [0.0, 1.0]]


def request(query: Any = SUM, target: Any = NEAR, users: Any = 50, **choices: Any) -> PlanRequest:
    return PlanRequest(query, target, users, **choices)


def near(width: Any = 1.0, regions: Any = None) -> ms.UserLinearQuery:
    return ms.UserLinearQuery.near(LABELS, {"a": ["tea"]} if regions is None else regions, width)


TARGETS: dict[str, tuple[str, Callable[[], object]]] = {
    "target: no epsilon": ("epsilon", lambda: ms.Target(0.0, 1e-6, 1.0)),
    "target: epsilon is text": ("epsilon", lambda: ms.Target("1", 1e-6, 1.0)),  # type: ignore[arg-type]
    "target: delta 1": ("delta", lambda: ms.Target(1.0, 1.0, 1.0)),
    "target: tiny delta": ("delta", lambda: ms.Target(1.0, 1e-260, 1.0)),
    "target: no distance": ("distance", lambda: ms.Target(1.0, 1e-6, 0.0)),
    "target: label epsilon": (
        "label_epsilon",
        lambda: ms.Target(1.0, 1e-6, 1.0, label_epsilon=-1.0),
    ),
    "target: shape": ("shape", lambda: ms.Target(1.0, 1e-6, 1.0, "round")),  # type: ignore[arg-type]
    "target of other queries: label epsilon": (
        "label_epsilon",
        lambda: request(target=ms.Target(1.0, 1e-6, 1.0, label_epsilon=1.0)),
    ),
    "target of groups: flat": (
        "flat",
        lambda: request(GROUPED, ms.Target(1.0, 1e-6, 1.0, "flat")),
    ),
}
REQUESTS: dict[str, tuple[str, Callable[[], object]]] = {
    "no query": ("query", lambda: request("mean")),
    "no target": ("target", lambda: request(target=(1.0, 1e-6, 1.0))),
    "users: none": ("users", lambda: request(users=0)),
    "users: too many": ("users", lambda: request(users=10**14)),
    "honest: too many": ("honest", lambda: request(honest=51)),
    "honest: none": ("honest", lambda: request(honest=0)),
    "honest: one": ("honest", lambda: request(honest=1)),
    "honest: words": ("honest", lambda: request(honest="many")),
    "honest: fraction": ("honest", lambda: request(honest=1.5)),
    "honest: list": ("honest", lambda: request(honest=[])),
    "rounds": ("rounds", lambda: request(rounds=0)),
    "trusted": ("trusted", lambda: request(trusted="analyst")),
    "encoding": ("encoding", lambda: request(encoding="binary")),
    "padding": ("padding", lambda: request(padding="none")),
    "granularity": ("granularity", lambda: request(granularity=-1.0)),
    "transport": ("transport", lambda: request(transport="curator")),
    "max_local_epsilon": ("max_local_epsilon", lambda: request(max_local_epsilon=math.nan)),
    "max_bits": ("max_bits", lambda: request(max_bits=2.5)),
    "max_damage": ("max_damage", lambda: request(max_damage=0.0)),
    "error": ("error", lambda: request(error="3")),
    "protocols": ("protocols", lambda: request(protocols="tree-laplace")),
    "protocols: unknown": ("protocols", lambda: ms.plan(SUM, NEAR, 50, protocols=["magic"])),
    "liars: too many": ("liars", lambda: request(liars=51, max_damage=1.0)),
    "liars alone": ("liars", lambda: request(liars=1)),
    "randomizer": ("randomizer", lambda: request(randomizer=3)),
    "spread": ("spread", lambda: request(USERS, spread="odd")),
    "spread of a sum": ("spread", lambda: request(spread="smooth")),
    "draw of a sum": ("draw", lambda: request(draw=2)),
    "draw: words": ("draw", lambda: request(USERS, draw="many")),
    "draw: too many": ("draw", lambda: request(USERS, draw=10**7)),
    "most_items": ("most_items", lambda: request(USERS, most_items=10**7)),
    "without_replacement: any number": (
        "without_replacement",
        lambda: request(USERS, draw=2, without_replacement=True),
    ),
    "without_replacement: more than there are": (
        "draw",
        lambda: request(FOUR, draw=5, without_replacement=True),
    ),
    "title": ("title", lambda: request(title="a\nb")),
    "question": ("question", lambda: request(question="x" * 10_000)),
    "distance: beyond the range": ("distance", lambda: request(target=ms.Target(1.0, 1e-6, 99.0))),
    "distance: below a step": (
        "distance",
        lambda: request(ms.Histogram(LINE), ms.Target(1.0, 1e-6, 0.5)),
    ),
    "distance: of labels": (
        "distance",
        lambda: request(ms.Histogram(WORDS), ms.Target(1.0, 1e-6, 0.5)),
    ),
    "distance: beyond all users": (
        "distance",
        lambda: request(USERS, ms.Target(1.0, 1e-6, 99.0)),
    ),
    "distance: below the smallest move": (
        "distance",
        lambda: request(FOUR, ms.Target(1.0, 1e-6, 0.1)),
    ),
    "distance: of groups": ("distance", lambda: request(GROUPED, ms.Target(1.0, 1e-6, 99.0))),
    "distance: of keys": ("distance", lambda: request(KEYS, ms.Target(1.0, 1e-6, 99.0))),
    "randomizer as a command": (
        "randomizer",
        lambda: request(
            ms.Histogram(WORDS), randomizer=ms.randomizers.KaryRandomizedResponse(3, 1.0)
        ).to_command(),
    ),
}
QUERIES: dict[str, tuple[str, Callable[[], object]]] = {
    "sum of labels": ("domain", lambda: ms.Sum(WORDS)),
    "sum: too many steps": ("granularity", lambda: ms.Sum(REALS).spans(1e-16)),
    "sum: step of whole numbers": ("step", lambda: SUM.check_step(0.5)),
    "sum: step of reals": ("step", lambda: ms.Sum(REALS).check_step(5.0)),
    "sum: granularity of whole numbers": ("granularity", lambda: SUM.grain(0.5)),
    "sum: granularity of reals": ("granularity", lambda: ms.Sum(REALS).grain(10.0)),
    "histogram of text": ("domain", lambda: ms.Histogram(ms.Places(1.0, 2.0, 3.0, 4.0))),
    "histogram of reals without bins": ("step", lambda: ms.Histogram(REALS)),
    "histogram: half a number": ("step", lambda: ms.Histogram(LINE, 0.5)),
    "histogram: step of labels": ("step", lambda: ms.Histogram(WORDS, 2.0)),
    "histogram: one bin": ("step", lambda: ms.Histogram(LINE, 20)),
    "histogram: one row": ("height", lambda: ms.Histogram(ms.Grid(8, 1, 500.0, "m"))),
    "histogram: clamped labels": (
        "clamp",
        lambda: ms.Histogram(WORDS).inputs(["tee"], 1.0, clamp=True),
    ),
    "table of places": ("domain", lambda: places_of(ms.Places(1.0, 2.0, 3.0, 4.0), 1.0)),
    "centroid of numbers": ("domain", lambda: ms.Centroid(LINE)),
    "centroid of a row": ("height", lambda: ms.Centroid(ms.Grid(8, 1, 500.0, "m"))),
    "centroid: granularity": (
        "granularity",
        lambda: ms.Centroid(ms.Grid(8, 6, 500.0, "m")).grain(2.0),
    ),
    "means: names": ("column", lambda: ms.Means("a", LINE)),
    "means: too many": ("column", lambda: ms.Means([str(index) for index in range(9999)], LINE)),
    "means: step": ("granularity", lambda: ms.Means(["a", "b"], LINE, 0.5)),
    "means: too many steps": ("granularity", lambda: ms.Means(["a", "b"], REALS, 1e-14)),
    "groups: not a mean": ("of", lambda: ms.ByGroup(WORDS, SUM)),  # type: ignore[arg-type]
    "groups: one": ("labels", lambda: ms.ByGroup(ms.Categories(["a"]), ms.Mean(LINE))),
    "groups: no name": ("by", lambda: ms.ByGroup(WORDS, ms.Mean(LINE), " ")),
    "groups: no step": ("granularity", lambda: ms.ByGroup(WORDS, ms.Mean(REALS))),
    "groups: step": ("granularity", lambda: ms.ByGroup(WORDS, ms.Mean(LINE), step=0.5)),
    "groups: too many steps": (
        "granularity",
        lambda: ms.ByGroup(WORDS, ms.Mean(REALS), step=1e-14),
    ),
    "groups: not planned": ("query", lambda: GROUPED.points),
    "keys: no step": ("granularity", lambda: ms.KeyValues(WORDS, REALS, 2)),
    "keys: step": ("granularity", lambda: ms.KeyValues(WORDS, LINE, 2, 0.5)),
    "keys: size": ("size", lambda: ms.KeyValues(WORDS, LINE, 4)),
    "sets: size": ("size", lambda: ms.Sets(WORDS, 4)),
    "quantiles: none": ("at", lambda: ms.Quantiles(LINE, ())),
    "quantiles: percent": ("at", lambda: ms.Quantiles(LINE, (50.0,))),
    "quantiles: twice": ("at", lambda: ms.Quantiles(LINE, (0.5, 0.5))),
    "quantiles: edge": ("edges", lambda: ms.Quantiles(LINE, (0.5,), (0.5,))),
    "quantiles: order of edges": ("edges", lambda: ms.Quantiles(LINE, (0.5,), (5, 3))),
    "quantiles: nobody": ("values", lambda: ms.Quantiles(LINE, (0.5,)).checked_counts([0] * 10)),  # type: ignore[arg-type]
    "share above: none": ("at", lambda: ms.ShareAbove(LINE, ())),
    "share above: threshold": ("at", lambda: ms.ShareAbove(LINE, (0.5,))),
    "share above: order": ("at", lambda: ms.ShareAbove(LINE, (5, 3))),
    "share above: too sharp": ("fade", lambda: ms.ShareAbove(LINE, (5,), 0.5)),
    "share above: between steps": ("fade", lambda: ms.ShareAbove(LINE, (5,), 1.5)),
    "share above: too close": ("fade", lambda: ms.ShareAbove(LINE, (5, 6), 3.0)),
    "share above: below the range": ("fade", lambda: ms.ShareAbove(LINE, (1,), 6.0)),
    "columns: rows": ("table", lambda: ms.UserLinearQuery(LABELS, [[1.0], [2.0]])),
    "columns: text": ("table", lambda: ms.UserLinearQuery(LABELS, "many")),
    "columns: names": ("names", lambda: ms.UserLinearQuery(LABELS, VECTORS, ("x",))),
    "columns: norm alone": ("norm", lambda: ms.UserLinearQuery(LABELS, VECTORS, norm="l1")),
    "columns: constant": (
        "table",
        lambda: request(ms.UserLinearQuery(LABELS, [[1.0], [1.0], [1.0]])),
    ),
    "average of labels": ("table", lambda: ms.UserLinearQuery.average(LABELS)),
    "near: width": ("width", lambda: near(0.0)),
    "near: no regions": ("regions", lambda: near(regions={})),
    "near: an empty region": ("regions", lambda: near(regions={"a": []})),
    "distance to nothing": ("points", lambda: ms.UserLinearQuery.distance_to(LABELS, [])),
    "similarity to nothing": ("to", lambda: ms.UserLinearQuery.similarity(LABELS, VECTORS, {})),
    "similarity: other lengths": (
        "to",
        lambda: ms.UserLinearQuery.similarity(LABELS, VECTORS, {"a": [1.0]}),
    ),
}
SAYS_WHAT_IS_ACCEPTED = re.compile(r"\b(must|needs?)\b")
"""A problem that says what must be given needs no remedy."""


def refusal(call: Callable[[], object]) -> InputError:
    with pytest.raises(InputError) as caught:
        call()
    return caught.value


def check(table: Mapping[str, tuple[str, Callable[[], object]]], name: str) -> None:
    field, call = table[name]
    error = refusal(call)
    assert error.field == field, error
    assert error.remedy or SAYS_WHAT_IS_ACCEPTED.search(error.problem), error
    assert str(error).endswith(".")


@check_all("name", TARGETS)
def test_refused_targets_name_a_field_and_a_remedy(name: str) -> None:
    check(TARGETS, name)


@check_all("name", REQUESTS)
def test_refused_requests_name_a_field_and_a_remedy(name: str) -> None:
    check(REQUESTS, name)


@check_all("name", QUERIES)
def test_refused_queries_name_a_field_and_a_remedy(name: str) -> None:
    check(QUERIES, name)


def test_a_remedy_in_lower_case_continues_the_sentence() -> None:
    error = InputError("the box is too wide.", remedy="choose a smaller one.")
    assert str(error) == "the box is too wide; choose a smaller one."
    assert error.problem == "the box is too wide."
    model = refusal(lambda: ms.Quantiles(LINE, ()))
    assert str(model) == (
        "Quantiles: at is empty; give at least one share, such as 0.5 for the median."
    )
    assert model.remedy == "give at least one share, such as 0.5 for the median."
