"""Budgets, groups and guarantees of users with many items."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from tests.tables import check_all

from metricshuffle.accounting.user_items.user_privacy import (
    DiscreteUserPrivacy,
    full_replacement,
    full_replacement_sentence,
    group_delta,
    groups,
    rate_for_changes,
)
from metricshuffle.errors import ConditionError, InputError
from metricshuffle.privacy.guarantee import Guarantee, Trust
from metricshuffle.privacy.profile import PureProfile

NOBODY = Trust(trusted="nobody")
CURATOR = Trust(trusted="curator")


def test_the_rate_is_that_of_the_strictest_change() -> None:
    assert rate_for_changes([(1.0, 0.008, 0.2), (1 / 30, 0.08, 0.2)]) == 25.0
    assert rate_for_changes([(0.1, 0.5, 1.0), (1.0, 0.05, 0.5), (0.5, 1.0, 6.0)]) == 10.0
    assert rate_for_changes([(0.3, 0.1, 1.0)]) <= 1 / 0.03


@settings(deadline=None)
@given(st.floats(1e-6, 1.0), st.floats(1e-6, 1e6), st.floats(1e-6, 1e3))
def test_the_rate_is_rounded_down(fraction: float, distance: float, epsilon: float) -> None:
    rate = rate_for_changes([(fraction, distance, epsilon)])
    spent = Fraction(rate) * Fraction(repr(fraction)) * Fraction(repr(distance))
    allowed = Fraction(repr(epsilon))
    assert allowed * (1 - Fraction(1, 2**51)) <= spent <= allowed


@check_all(
    ("changes", "wrong"),
    [
        ([], "at least one"),
        ([(0.1, 0.5)], "at least one"),
        ([(1.1, 0.5, 1.0)], "fraction of change 1"),
        ([(0.0, 0.5, 1.0)], "fraction"),
        ([(1.0, 1.0, 1.0), (0.5, -1.0, 1.0)], "distance of change 2"),
        ([(0.5, 0.5, math.inf)], "epsilon"),
        ([(0.5, 0.5, math.nan)], "epsilon"),
        ([(0.5, 0.5, True)], "epsilon"),
        ([(1.0, 1e300, 1e-300)], "strictest"),
    ],
)
def test_changes_that_make_no_sense_are_refused(changes: Any, wrong: str) -> None:
    with pytest.raises(InputError, match=wrong):
        rate_for_changes(changes)


@check_all(
    ("epsilon", "count", "factor"),
    [(2.0, 5, 3447.37398667), (0.1, 10, 16.3379939997), (0.2, 125, 325221329376.101)],
)
def test_group_factors(epsilon: float, count: int, factor: float) -> None:
    found = group_delta(epsilon, 1e-12, count) / 1e-12
    assert found == pytest.approx(factor, rel=1e-11)
    # the chain of single events that attains it
    missed = 0.0
    for _ in range(count):
        missed = math.exp(epsilon) * missed + 1e-12
    assert found * 1e-12 == pytest.approx(missed, rel=1e-10)
    # Fact 5.1 and Table 1 of the paper promise less than this attack achieves
    if count == 5:
        assert math.exp(count) * 1e-12 < missed
    if count == 10:
        assert math.exp(epsilon * count) * 1e-12 < missed


@settings(deadline=None)
@given(st.floats(1e-12, 50.0), st.integers(1, 10**6), st.floats(1e-300, 0.9))
def test_group_deltas_are_never_too_small(epsilon: float, count: int, delta: float) -> None:
    with mpmath.workdps(80):
        exact = (
            mpmath.mpf(delta)
            * mpmath.expm1(count * mpmath.mpf(epsilon))
            / mpmath.expm1(mpmath.mpf(epsilon))
        )
        found = group_delta(epsilon, delta, count)
        assert (
            min(exact * (1 - mpmath.mpf("1e-70")), 1)
            <= found
            <= min(exact * (1 + mpmath.mpf("1e-8")), 1)
        )


def test_groups_at_the_edges() -> None:
    assert group_delta(0.0, 1e-3, 7) == pytest.approx(7e-3, rel=1e-12)
    assert group_delta(1e-300, 1e-3, 7) == pytest.approx(7e-3, rel=1e-12)
    assert group_delta(1.0, 0.0, 10**9) == 0.0
    assert group_delta(1e300, 1e-300, 10**9) == 1.0
    assert group_delta(math.inf, 1e-9, 2) == 1.0
    assert groups(1.0, 0.008) == 125
    assert groups(0.3, 0.1) == 3
    assert groups(0.31, 0.1) == 4
    assert groups(0.0, 0.1) == 0
    for wrong in (0, 1.5, True):
        bad: Any = wrong
        with pytest.raises(InputError, match="groups"):
            group_delta(1.0, 1e-9, bad)
    with pytest.raises(InputError, match="radius"):
        groups(1.0, 0.0)


def test_users_of_a_fixed_size_may_need_more_steps() -> None:
    """Three items that move by 0.9 of the diameter, radius 0.5: three steps, not two.

    Two of them together are 0.6.
    """
    costs = (0.9, 0.9, 0.9)
    radius = 0.5
    distance = sum(costs) / 3
    step = 1.0 / 3
    parts = next(
        count
        for count in itertools.count(1)
        for split in itertools.product(range(count), repeat=3)
        if all(
            sum(c for c, where in zip(costs, split, strict=True) if where == part) / 3 <= radius
            for part in range(count)
        )
    )
    assert (
        math.ceil(distance / radius) == 2 < parts == 3 <= groups(distance, radius, item_step=step)
    )
    with pytest.raises(ConditionError, match="one item"):
        groups(1.0, 0.3, item_step=step)


def test_discrete_privacy_grows_by_groups() -> None:
    profile = DiscreteUserPrivacy(0.2, 1e-12, 0.008)
    assert profile.delta(0.2, 0.008) == 1e-12
    assert profile.delta(25.0 * (1 + 1e-12), 1.0) == pytest.approx(0.325221329376, rel=1e-9)
    assert profile.delta(0.0, 0.0) == 0.0
    assert profile.delta(0.1, 0.008) > profile.delta(0.15, 0.008) > 1e-12
    assert profile.epsilon(1e-12, 0.008) == pytest.approx(0.2, rel=1e-9)
    assert math.isinf(profile.epsilon(1e-12, 0.009))
    assert math.isinf(profile.pure(0.001))
    pure = DiscreteUserPrivacy(0.2, 0.0, 0.008)
    assert pure.epsilon(0.0, 1.0) == pytest.approx(25.0, rel=1e-12)
    assert pure.delta(10.0, 1.0) == pytest.approx(PureProfile(25.0).delta(10.0, 1.0), rel=1e-9)
    assert profile.covers(0.2 * (1 + 1e-9), 1e-12, 0.008, "flat")
    assert not profile.covers(
        0.2 * (1 + 1e-9), 1e-12, 0.008, "linear"
    )  # nothing better is said about shorter moves


def linear(items: Any = "any", trust: Trust = NOBODY, distance: float = 1.0) -> Guarantee:
    return Guarantee(
        epsilon=25.0 * distance,
        delta=0.0,
        distance=distance,
        unit="",
        shape="linear",
        protects="one user's items",
        trust=trust,
        bound="pure",
        items=items,
    )


def test_the_four_definitions_are_told_apart() -> None:
    assert str(linear()) == (
        "Hidden at epsilon 25, and proportionally less for a smaller move (with "
        "certainty): one user's items (any number of them) moving "
        "by up to 1 of earth mover's distance even if everyone else, the shuffler "
        "included, colludes (bound: pure)."
    )
    assert "one user's 1,000 items (their number is public) moving" in str(linear(1000, CURATOR))
    assert "as long as the curator" in str(linear(1000, CURATOR))
    assert "one user's items (their number is public) moving" in str(linear("public"))
    for items in (7, "any", "public"):
        assert Guarantee.model_validate_json(linear(items).model_dump_json()) == linear(items)


def test_other_guarantees_are_written_as_before() -> None:
    """The digest of an old plan is over this dictionary."""
    fields: dict[str, Any] = {
        "epsilon": 1.0,
        "delta": 0.0,
        "distance": 1.0,
        "unit": "",
        "shape": "flat",
        "trust": NOBODY,
        "bound": "pure",
    }
    written = Guarantee(protects="one person", **fields).model_dump(mode="json")
    assert set(written) == {*fields, "protects", "rounds", "between", "sentence"}
    for wrong in (
        {"protects": "one person", "items": 3},
        {"protects": "one user's items", "items": 0},
    ):
        with pytest.raises(ValidationError, match="items"):
            Guarantee(**fields, **wrong)


def test_what_a_full_replacement_costs() -> None:
    assert full_replacement(linear(), 1.0) == (25.0, 0.0)
    assert full_replacement(linear(), 0.5)[0] == pytest.approx(12.5, rel=1e-12)
    assert full_replacement(linear(distance=0.1), 1.0)[0] == pytest.approx(25.0, rel=1e-12)
    assert full_replacement(linear(1000, distance=0.1), 1.0)[0] == pytest.approx(
        25.0, rel=1e-12
    )  # moves that add up to the distance
    assert full_replacement(linear(distance=0.3), 1.0)[0] == pytest.approx(25.0, rel=1e-12)
    flat = linear(1000, distance=0.1).model_copy(update={"shape": "flat"})
    assert full_replacement(flat, 1.0)[0] == pytest.approx(2.5 * math.ceil(1 / 0.099), rel=1e-12)
    assert full_replacement(linear("public", distance=0.1), 1.0) == (math.inf, 1.0)
    assert full_replacement(linear(5, distance=0.1), 1.0) == (math.inf, 1.0)
    assert full_replacement_sentence(linear(), 1.0) == (
        "Replacing all of one user's items (up to 1 of earth mover's distance) is hidden "
        "only at epsilon 25 (with certainty)."
    )
    discrete = Guarantee.from_profile(
        DiscreteUserPrivacy(0.2, 1e-12, 0.008),
        delta=1e-12,
        distance=0.008,
        unit="km",
        protects="one user's items",
        trust=NOBODY,
        items="any",
    )
    assert full_replacement(discrete, 1.0)[1] == pytest.approx(0.325221329376, rel=1e-7)
    assert (
        "1 km of earth mover's distance) is hidden only at epsilon 25.01 (delta 0.326)"
        in full_replacement_sentence(discrete, 1.0)
    )
    assert full_replacement_sentence(discrete, 10.0).endswith("is NOT hidden.")
    one = Guarantee(
        epsilon=1.0,
        delta=0.0,
        distance=1.0,
        unit="",
        shape="flat",
        protects="one person",
        trust=NOBODY,
        bound="pure",
    )
    with pytest.raises(InputError, match="one user's items"):
        full_replacement(one, 1.0)


def test_more_groups_than_a_double_can_count() -> None:
    many = groups(1e300, 1e-300)
    assert many == 10**600
    assert group_delta(1.0, 1e-9, many) == group_delta(0.0, 1e-9, many) == 1.0
    assert group_delta(1.0, 0.0, many) == 0.0
    assert DiscreteUserPrivacy(1.0, 1e-9, 1e-300).delta(2.0, 1e300) == 1.0
    assert math.isinf(DiscreteUserPrivacy(1.0, 0.0, 1e-300).pure(1e300))
    assert DiscreteUserPrivacy(0.0, 0.0, 1e-300).pure(1e300) == 0.0
    assert Fraction(group_delta(0.3, 5e-324, 2)) >= Fraction(5e-324) * Fraction(2.34)
    with pytest.raises(InputError, match="an integer of 1329 bits"):
        rate_for_changes([(0.1, 10**400, 1.0)])
