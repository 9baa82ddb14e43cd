"""Published closed forms, their conditions, and their order."""

from __future__ import annotations

import contextlib
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from tests.tables import check_all

from metricshuffle.accounting.shuffling.clone_bound import ClonePair, epsilon_upper
from metricshuffle.accounting.shuffling.closed_form_bounds import (
    chernoff_clones,
    corollary_1,
    corollary_2,
    exact_tail,
    quantile_clones,
    theorem_1,
)
from metricshuffle.errors import ConditionError, InputError

BEYOND = math.log(math.exp(3) + math.exp(2))  # D(a,b) = 1 and c two farther than b


def test_golden_values() -> None:
    assert chernoff_clones(BEYOND, 10_000, 1e-6) == pytest.approx(545.677726516, rel=1e-11)
    for value, golden in (
        (theorem_1(1, BEYOND, 10_000, 1e-6), 0.252923291119),
        (corollary_2(1, BEYOND, 10_000, 1e-6), 0.431360640641),
    ):
        assert golden * (1 - 5e-12) <= value <= golden * (1 + 1e-9)


@check_all(
    ("local", "reach", "users", "values"),
    [
        (0.1, 1, 10**4, (0.004599, 0.010053, 0.010342, 0.010642, 0.024866)),
        (1, 1, 10**3, (0.125040, 0.251661, 0.278732, 0.368227, 0.457217)),
        (1, 3, 10**4, (0.126548, 0.238476, 0.252923, 0.330938, 0.431361)),
        (3, 3, 10**6, (0.025373, 0.037423, 0.037565, 0.052160, 0.099588)),
        (3, 5, 10**4, (0.687365, 1.416880, 1.955572, None, None)),
        (3, 5, 10**8, (0.007943, 0.011204, 0.011215, 0.015507, 0.031095)),
    ],
)
def test_the_table_of_bounds(
    local: float, reach: float, users: int, values: tuple[float | None, ...]
) -> None:
    """delta = 0.01/users; c lies beyond b, but the default takes the reach of a for both."""
    delta = 0.01 / users
    ratio = math.log(math.exp(reach) + math.exp(reach - local))
    # the first column was computed with a bracket of 1e-4
    assert epsilon_upper(ClonePair(local, reach, reach), users, delta) == pytest.approx(
        values[0], rel=1.5e-4
    )
    bounds = ((exact_tail, ratio), (theorem_1, ratio), (corollary_1, reach), (corollary_2, ratio))
    for (bound, size), value in zip(bounds, values[1:], strict=True):
        if value is None:
            with pytest.raises(ConditionError, match="shuffling buys nothing"):
                bound(local, size, users, delta)
        else:
            assert bound(local, size, users, delta) == pytest.approx(value, abs=6e-7)


def test_a_point_beyond_b_reaches_less_from_b() -> None:
    assert epsilon_upper(ClonePair(1, 3, 2), 10_000, 1e-6) == pytest.approx(0.107075, abs=1e-6)


@check_all(
    ("users", "log_ratio", "delta"),
    [(100, 1.0, 0.01), (10_000, 3.3, 1e-6), (10**6, 5.0, 1e-12), (50, 4.0, 0.3)],
)
def test_the_quantile_is_the_exact_one(users: int, log_ratio: float, delta: float) -> None:
    clones = quantile_clones(log_ratio, users, delta)
    law = stats.binom(users - 1, 2 * math.exp(-log_ratio))
    assert law.cdf(clones - 1) <= delta / 2 < law.cdf(clones)
    assert clones >= chernoff_clones(log_ratio, users, delta)


amounts = st.floats(0.01, 5.0)


@settings(max_examples=60, deadline=None)
@given(amounts, amounts, st.floats(0, 1), st.floats(0.5, 8.0), st.floats(-14, -1))
def test_the_bounds_are_ordered(
    local: float, more: float, aside: float, log_users: float, power: float
) -> None:
    """default <= exact tail <= Theorem 1 <= Corollary 2, and Theorem 1 <= Corollary 1.

    Wherever they apply.
    """
    users = int(10**log_users)
    delta = 10.0**power
    reach_a = local + more
    to_b = max(reach_a - local * aside, local)
    ratio = float(np.logaddexp(reach_a, to_b))
    ordered = [epsilon_upper(ClonePair(local, reach_a, to_b), users, delta)]
    for bound in (exact_tail, theorem_1, corollary_2):
        try:
            ordered.append(bound(local, ratio, users, delta))
        except ConditionError:
            ordered.append(math.inf)
    assert ordered == sorted(ordered)
    if math.isfinite(ordered[3]):
        assert math.isfinite(ordered[2])  # Corollary 2's condition is the stronger one
    with contextlib.suppress(ConditionError):
        assert ordered[2] <= corollary_1(local, reach_a, users, delta) * (1 + 1e-9)


def test_conditions_are_told() -> None:
    with pytest.raises(
        ConditionError,
        match=r"Theorem 1 needs more than 2 log\(4/delta\) = 30.4036 clones, but got 0",
    ):
        theorem_1(1, 20.0, 100, 1e-6)
    with pytest.raises(ConditionError, match="exact tail needs"):
        exact_tail(1, 20.0, 100, 1e-6)
    with pytest.raises(ConditionError, match="Corollary 2 needs users > 8 R"):
        corollary_2(1, 3.3, 1000, 1e-6)
    with pytest.raises(ConditionError, match="Corollary 2 needs"):
        corollary_2(1, 3.3, 1, 1e-6)
    assert corollary_2(1e-9, 0.7, 10**6, 1e-6) <= 1e-9  # never above the local epsilon
    assert theorem_1(0.0, 1.0, 10**6, 1e-6) == 0.0


@check_all(
    ("call", "words"),
    [
        (
            lambda: theorem_1(1, 0.5, 1000, 1e-6),
            r"log_ratio must be finite and at least log\(1 \+ e\^local\)",
        ),
        (lambda: theorem_1(1, math.nan, 1000, 1e-6), "log_ratio must be finite"),
        (lambda: theorem_1(math.nan, 3, 1000, 1e-6), "epsilon must be a number"),
        (lambda: exact_tail(1, 3, 1000, 0.0), "delta must be > 0 here"),
        (lambda: corollary_2(1, 3, 0, 1e-6), "users must be"),
        (lambda: corollary_1(2, 1, 1000, 1e-6), "diameter, the largest local epsilon"),
        (lambda: theorem_1(1, 3, 1000, 1.0), "delta must be a number"),
    ],
)
def test_wrong_input_is_a_sentence(call: object, words: str) -> None:
    with pytest.raises(InputError, match=words):
        call()  # type: ignore[operator]
