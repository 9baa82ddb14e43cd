"""Searches return only certified values and evaluate where they say."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tables import check_all

from metricshuffle.numerics.certified_search import (
    Bracket,
    every_block,
    farthest_certified,
    first_certified,
    last_certified,
    last_certified_integer,
)


class Asked:
    """A predicate that remembers what it was asked."""

    def __init__(self, passes: Callable[[float], bool]) -> None:
        self.passes = passes
        self.values: list[float] = []

    def __call__(self, value: float) -> bool:
        self.values.append(value)
        return self.passes(value)


def ragged(value: float) -> bool:
    """Passes above 0.4, fails below 0.2, and in between as its digits happen to be."""
    return value > 0.4 or (value > 0.2 and math.floor(value * 1e6) % 3 == 0)


@settings(deadline=None)
@given(st.floats(0.0, 0.2), st.floats(0.41, 1e6), st.sampled_from([1e-13, 1e-3, 0.5]))
def test_only_what_passed_is_returned(failing: float, passing: float, relative: float) -> None:
    asked = Asked(ragged)
    found = last_certified(asked, failing, passing, relative=relative)
    assert ragged(found)
    assert found == passing or found == [value for value in asked.values if ragged(value)][-1]


def test_halving_ends_where_floats_do() -> None:
    assert last_certified(lambda value: value >= 0.25, 0.0, 1.0, relative=0.0) == 0.25
    assert last_certified(lambda value: value <= 0.25, 1.0, 0.0, relative=0.0) == 0.25
    assert last_certified(lambda value: False, 0.0, 1.0) == 1.0


@given(st.integers(-(10**15), 10**15), st.integers(0, 10**15), st.integers(0, 10**15))
def test_whole_numbers_on_both_sides(edge: int, before: int, after: int) -> None:
    assert (
        last_certified_integer(lambda value: value >= edge, edge - 1 - before, edge + after) == edge
    )
    assert (
        last_certified_integer(lambda value: value <= edge, edge + 1 + after, edge - before) == edge
    )


def test_whole_numbers_that_are_neighbours_are_not_looked_at() -> None:
    assert last_certified_integer(lambda value: pytest.fail(f"{value} was looked at"), 3, 4) == 4


def test_the_first_that_passes_is_bracketed_by_the_one_before() -> None:
    asked = Asked(lambda value: value >= 5.0)
    assert first_certified(asked, 1.0, math.inf, step=1.0, failing=0.0) == Bracket(4.0, 8.0)
    assert asked.values == [1.0, 2.0, 4.0, 8.0]
    assert first_certified(
        lambda value: value <= 5.0, 32.0, 0.0, step=-0.5, failing=64.0
    ) == Bracket(8.0, 4.0)
    assert first_certified(lambda value: True, 3.0, 4.0, step=1.0, failing=0.0) == Bracket(0.0, 3.0)


def test_the_limit_of_a_first_walk_is_not_looked_at() -> None:
    asked = Asked(lambda value: False)
    assert first_certified(asked, 1.0, 5.0, step=1.0, failing=0.0) == Bracket(4.0, 5.0)
    assert asked.values == [1.0, 2.0, 4.0]
    assert first_certified(asked, 32.0, 10.0, step=-0.5, failing=64.0) == Bracket(16.0, 10.0)
    assert first_certified(asked, 7.0, 5.0, step=1.0, failing=0.0) == Bracket(
        0.0, 5.0
    )  # a start beyond it
    assert first_certified(asked, math.nan, 5.0, step=1.0, failing=0.0) == Bracket(0.0, 5.0)
    assert first_certified(asked, 0.0, 1.0, step=1.0, failing=0.0, least=0.25) == Bracket(0.75, 1.0)


def test_steps_grow_up_to_the_most() -> None:
    asked = Asked(lambda value: False)
    first_certified(asked, 1.0, 2.0, step=0.125, growth=2.0, failing=0.0)
    assert asked.values == [1.0, 1.125, 1.125 * 1.25]
    asked = Asked(lambda value: False)
    first_certified(asked, 1.0, 0.1, step=-0.125, growth=4.0, most=0.5, failing=2.0)
    assert asked.values == [1.0, 0.875, 0.4375, 0.21875, 0.109375]


def test_the_farthest_that_passes() -> None:
    asked = Asked(lambda value: value <= 5.0)
    assert farthest_certified(asked, 1.0, math.inf, step=1.0) == Bracket(8.0, 4.0)
    assert asked.values == [2.0, 4.0, 8.0]
    assert farthest_certified(lambda value: value >= 5.0, 32.0, 0.0, step=-0.75) == Bracket(
        2.0, 8.0
    )


@check_all(("passes", "expected"), [(True, Bracket(5.0, 5.0)), (False, Bracket(5.0, 4.0))])
def test_the_limit_of_a_farthest_walk_is_the_last_that_is_looked_at(
    passes: bool, expected: Bracket
) -> None:
    asked = Asked(lambda value: value < 5.0 or passes)
    assert farthest_certified(asked, 1.0, 5.0, step=1.0) == expected
    assert asked.values == [2.0, 4.0, 5.0]
    assert farthest_certified(asked, 5.0, 5.0, step=1.0) == Bracket(5.0, 5.0)


@check_all("count", [0, 1, 2, 3, 7, 40])
@check_all("widest", [1, 3, 50])
def test_every_place_is_in_a_block_that_passed(count: int, widest: int) -> None:
    """Whatever passes; and a single place that fails is never missed."""
    seen: set[int] = set()

    def short(first: int, last: int) -> bool:
        if last - first < widest:
            seen.update(range(first, last + 1))
        return last - first < widest

    assert every_block(count, short)
    assert seen == set(range(count))
    for wrong in range(count):
        assert not every_block(count, lambda first, last, wrong=wrong: not first <= wrong <= last)  # type: ignore[misc]
