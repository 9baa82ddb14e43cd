"""Users of any size: KL radius and expected profile, against actual sampling."""

from __future__ import annotations

import math
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracles.multiset_laws import divergence, multiset_law, private_distances
from tests.tables import check_all

from metricshuffle.accounting.user_items.item_reports import ItemShuffle, ItemWiseProfile
from metricshuffle.accounting.user_items.metric_gaussian import MetricGaussian
from metricshuffle.accounting.user_items.subsampled_items import (
    SubsampledProfile,
    _log_masses,
    chernoff_tail,
    expected_delta,
    report_loss,
    sampled_radius,
)
from metricshuffle.accounting.user_items.user_privacy import DiscreteUserPrivacy
from metricshuffle.errors import InputError, NotCertified
from metricshuffle.privacy.profile import PureProfile


def exact_tail(samples: int, mean: Any, level: Any) -> Any:
    r = mpmath.mpf(mean)
    q = mpmath.mpf(level)
    rest = (1 - q) * mpmath.log((1 - q) / (1 - r)) if q < 1 else 0
    return mpmath.exp(-samples * (q * mpmath.log(q / r) + rest))


def test_golden_radius() -> None:
    radius, missed = sampled_radius(1000, 0.008, 1e-12)
    assert radius == pytest.approx(0.0367034710991, rel=1e-11)
    assert missed == 1e-12
    with mpmath.workdps(50):
        assert (
            exact_tail(1000, 0.008, radius) <= 1e-12 < exact_tail(1000, 0.008, radius * (1 - 1e-9))
        )
    # the paper's Bernstein bound, its 3/8 read as 3/s, is 2.8 times as large
    bernstein = (1 + math.sqrt(2)) * 0.008 + 3 / 1000 * math.log(1e12)
    assert bernstein == pytest.approx(0.102206771847, rel=1e-11)
    assert 2.7 * radius < bernstein


@settings(deadline=None, max_examples=150)
@given(st.integers(1, 10**6), st.floats(1e-6, 0.999), st.floats(1e-6, 1.0))
def test_tails_are_never_too_small(samples: int, mean: float, part: float) -> None:
    level = mean + (1.0 - mean) * part
    with mpmath.workdps(50):
        exact = exact_tail(samples, mean, level)
        found = chernoff_tail(samples, mean, level)
        assert exact <= found
        assert found <= exact * mpmath.mpf("1.0001") + mpmath.mpf("1e-300")


def test_where_the_radius_is_the_diameter() -> None:
    assert sampled_radius(3, 0.5, 1e-12) == (1.0, 0.0)  # 0.5^3 > 1e-12
    assert sampled_radius(10, 1.0, 1e-12) == (1.0, 0.0)
    assert sampled_radius(10, 0.0, 1e-12) == (0.0, 0.0)
    assert sampled_radius(10, 0.3, 0.0) == (1.0, 0.0)


@check_all(
    ("samples", "mean", "epsilon", "delta", "by_radius", "by_expectation", "by_loss"),
    [
        (1000, 0.008, 0.2, 2e-12, 5.449, 6.666, 24.4693),
        (10_000, 0.008, 0.2, 2e-12, 12.92, 14.47, 24.9453),
        (1000, 0.05, 0.5, 2e-6, 5.55, 6.607, 9.92991),
    ],
)
def test_golden_rates(
    samples: int,
    mean: float,
    epsilon: float,
    delta: float,
    by_radius: float,
    by_expectation: float,
    by_loss: float,
) -> None:
    """Rates of pure mechanisms by bounds (a), (b) and (d); the last one needs no delta."""
    assert epsilon / sampled_radius(samples, mean, delta / 2)[0] == pytest.approx(
        by_radius, rel=4e-4
    )
    below = by_expectation * (1 - 2e-4)
    above = by_expectation * (1 + 2e-4)
    assert expected_delta(epsilon, samples, mean, below) <= delta
    assert expected_delta(epsilon, samples, mean, above) > delta
    profile = SubsampledProfile(PureProfile(by_loss * (1 - 1e-5)), samples)
    assert profile.pure(mean) <= epsilon
    assert SubsampledProfile(PureProfile(by_loss * (1 + 1e-5)), samples).pure(mean) > epsilon
    wide = SubsampledProfile(PureProfile(by_loss / 7), samples, 7.0).delta(0.9 * epsilon, mean * 7)
    assert wide == pytest.approx(
        SubsampledProfile(PureProfile(by_loss), samples).delta(0.9 * epsilon, mean), rel=1e-6
    )


@check_all(("samples", "mean"), [(1, 0.3), (2, 0.9), (40, 0.05), (1000, 0.008)])
def test_binomial_masses_are_rounded_up(samples: int, mean: float) -> None:
    found = _log_masses(samples, mean, 1)
    with mpmath.workdps(50):
        for j in {1, 2, 3, 7, 15, 16, 20, samples // 2, samples - 1, samples} & set(
            range(1, samples + 1)
        ):
            exact = (
                mpmath.log(mpmath.binomial(samples, j))
                + j * mpmath.log(mean)
                + (samples - j) * mpmath.log1p(-mpmath.mpf(mean))
            )
            assert exact <= found[j - 1] <= exact + mpmath.mpf("1e-8")


@check_all(
    ("samples", "mean", "cost", "epsilon"),
    [(10, 0.2, 2.0, 0.5), (100, 0.03, 5.0, 0.3), (7, 0.5, 30.0, 3.0), (50, 0.1, 900.0, 1.0)],
)
def test_the_expected_profile_is_the_binomial_expectation(
    samples: int, mean: float, cost: float, epsilon: float
) -> None:
    with mpmath.workdps(50):
        r = mpmath.mpf(mean)
        top = mpmath.exp(epsilon)
        exact = sum(
            mpmath.binomial(samples, j)
            * r**j
            * (1 - r) ** (samples - j)
            * max(mpmath.exp(mpmath.mpf(cost) * j / samples) - top, 0)
            for j in range(samples + 1)
        ) / (1 + top)
        found = expected_delta(epsilon, samples, mean, cost)
        assert min(exact, 1) <= found <= min(exact * (1 + mpmath.mpf("1e-8")), 1)


def laplace_mean_delta(samples: int, mean: float, rate: float, epsilon: float) -> float:
    """Exact hockey-stick for users {0} and {0 with 1 in a fraction `mean`}: a true lower bound.

    Mean query with Laplace(1/rate).
    """
    grid = np.linspace(-40.0 / rate, 1.0 + 40.0 / rate, 400_001)
    weights = np.array(
        [math.comb(samples, j) * mean**j * (1 - mean) ** (samples - j) for j in range(samples + 1)]
    )
    other = (
        sum(w * np.exp(-rate * np.abs(grid - j / samples)) for j, w in enumerate(weights))
        * rate
        / 2
    )
    excess = np.maximum(other - math.exp(epsilon) * np.exp(-rate * np.abs(grid)) * rate / 2, 0.0)
    return float(np.sum(excess) * (grid[1] - grid[0]))


@pytest.mark.parametrize(
    ("samples", "mean", "rate", "epsilon"),
    [(5, 0.1, 3.0, 0.3), (20, 0.05, 8.0, 0.4), (20, 0.3, 2.0, 0.5), (20, 0.05, 8.0, 0.45)],
)
def test_the_bound_holds_against_the_mean_query(
    samples: int, mean: float, rate: float, epsilon: float
) -> None:
    exact = laplace_mean_delta(samples, mean, rate, epsilon)
    assert 0.0 < exact <= SubsampledProfile(PureProfile(rate), samples).delta(epsilon, mean)


def test_the_informal_theorem_is_false() -> None:
    """It claims 1e-12 where the mean query has 1.677e-4.

    (alpha r, delta) at r >= 2 ln(1/delta)/s: alpha = 25, r = .008, s = 6908.
    """
    samples = 6908
    mean = 0.008
    rate = 25.0
    top = 200
    logs = [
        math.lgamma(samples + 1) - math.lgamma(j + 1) - math.lgamma(samples - j + 1)
        for j in range(top)
    ]
    weights = [
        math.exp(c + j * math.log(mean) + (samples - j) * math.log1p(-mean))
        for j, c in enumerate(logs)
    ]
    steps = np.arange(-400, 60_000) / (samples * 40.0)
    other = (
        sum(w * np.exp(-rate * np.abs(steps - j / samples)) for j, w in enumerate(weights))
        * rate
        / 2
    )
    excess = np.maximum(
        other - math.exp(rate * mean) * np.exp(-rate * np.abs(steps)) * rate / 2, 0.0
    )
    # right of every sample the ratio is constant: what is beyond the grid adds the geometric tail
    exact = float(np.sum(excess) / (samples * 40.0)) + float(excess[-1]) / rate
    assert exact == pytest.approx(1.677e-4, rel=0.01)
    assert SubsampledProfile(PureProfile(rate), samples).delta(rate * mean, mean) >= exact


def test_direct_evaluation_beats_group_privacy() -> None:
    discrete = DiscreteUserPrivacy(5.449 * sampled_radius(1000, 0.008, 1e-12)[0], 1e-12, 0.008)
    assert discrete.delta(0.2 * (1 + 1e-4), 0.008) == pytest.approx(1e-12, rel=1e-9)
    direct = SubsampledProfile(PureProfile(5.449), 1000)
    assert direct.epsilon(1e-6, 0.08) < 0.4 * discrete.epsilon(1e-6, 0.08)
    assert direct.epsilon(0.0, 1.0) == pytest.approx(5.449, rel=1e-12)
    assert direct.epsilon(1e-12, 1.0) <= 5.449 * (1 + 1e-12)


def test_any_mechanism_has_bound_a() -> None:
    mechanism = MetricGaussian(0.334336401865)
    profile = SubsampledProfile(mechanism, 1000)
    radius, missed = sampled_radius(1000, 0.008, 1e-9)
    cost = 25.0 * radius
    assert profile.delta(cost, 0.008) <= 2.1 * (mechanism.delta(cost, radius) + missed)
    deltas = [profile.delta(1.0, w) for w in (0.0, 0.001, 0.01, 0.05, 0.2, 1.0)]
    assert deltas == sorted(deltas)
    assert deltas[-1] <= mechanism.delta(1.0, 1.0)


def test_linear_promises_are_checked_on_intervals() -> None:
    """A mechanism that is not pure, and a pure one on so few draws that its slope is no help."""
    for profile, epsilon, delta in (
        (SubsampledProfile(MetricGaussian(0.334336401865), 1000), 1.0, 1e-2),
        (SubsampledProfile(PureProfile(20.0), 5), 40.0, 1e-2),
    ):
        assert profile.covers(epsilon, delta, 0.05)
        assert not profile.covers(epsilon, 0.0, 0.05)
        assert not profile.covers(epsilon / 20.0, 1e-6, 0.05)
        # flat at the far end, but not linear: a tenth of the way costs more than a tenth
        flat = profile.epsilon(1e-6, 0.05)
        assert profile.covers(flat, 1e-6, 0.05, "flat")
        assert profile.delta(flat / 10, 0.005) > 1e-6
        assert not profile.covers(flat, 1e-6, 0.05, "linear")
        for w in np.linspace(0.0005, 0.05, 40):
            assert profile.delta(epsilon * w / 0.05, float(w)) <= delta


@check_all("samples", [0, 2.5, True, 10**8])
def test_wrong_sizes_are_refused(samples: Any) -> None:
    with pytest.raises(InputError, match="samples"):
        SubsampledProfile(PureProfile(1.0), samples)


def test_wrong_input_is_refused() -> None:
    wrong: Any = 3.0
    with pytest.raises(NotCertified, match="upper bound"):
        SubsampledProfile(wrong, 10)
    with pytest.raises(InputError, match="diameter"):
        SubsampledProfile(PureProfile(1.0), 10, 0.0)
    with pytest.raises(InputError, match="cost"):
        expected_delta(1.0, 10, 0.1, math.nan)


@check_all("diameter", [0.0, -1.0, math.nan, math.inf])
def test_the_diameter_is_a_number(diameter: float) -> None:
    with pytest.raises(InputError, match="diameter must be a finite number > 0"):
        SubsampledProfile(PureProfile(1.0), 10, diameter)


def test_huge_costs_are_no_overflow() -> None:
    with np.errstate(all="raise", under="ignore"):
        assert expected_delta(0.5, 1_000_000, 0.01, 1e6) == 1.0


# --- bound (c): reports about drawn items, one by one ---


@check_all(
    ("total", "mean"), [(0.2, 0.05), (1.0, 0.5), (2.0, 0.1), (4.0, 0.01), (6.0, 0.3), (40.0, 0.2)]
)
def test_the_loss_of_a_report_is_attained_on_a_line(total: float, mean: float) -> None:
    """Most items at 0, the others at 1 - d or 1: nearly attained, never above simple forms."""
    moves = np.geomspace(mean, 1.0, 20_000)
    share = mean / moves
    gains = (1.0 - share + share * math.exp(total)) / (
        1.0 - share + share * np.exp(total * (1.0 - moves))
    )
    worst = math.log(float(gains.max()))
    bound = report_loss(total, mean)
    assert worst <= bound <= worst * (1.0 + 1e-5) + 1e-12
    assert bound <= min(total, math.log1p(total * mean * math.exp(total))) * (1.0 + 1e-8)


@settings(deadline=None, max_examples=200)
@given(st.integers(0, 10**6), st.floats(0.05, 8.0))
def test_no_mean_of_a_report_exceeds_the_loss(seed: int, total: float) -> None:
    """Users on a line, where the earth mover's distance is a sum, and any private report."""
    generator = np.random.default_rng(seed)
    places = np.sort(generator.random(5))
    places = (places - places[0]) / (places[-1] - places[0])
    slopes = total * generator.choice([-1.0, 1.0, generator.uniform(-1.0, 1.0)], 4)
    told = np.exp(np.concatenate([[0.0], np.cumsum(slopes * np.diff(places))]))
    one = generator.dirichlet(np.full(5, 0.3))
    other = one + generator.random() ** 2 * (generator.dirichlet(np.full(5, 0.3)) - one)
    mean = float(np.diff(places) @ np.abs(np.cumsum(one - other)[:-1]))
    assert (
        abs(math.log((one @ told) / (other @ told)))
        <= report_loss(total, mean * (1.0 + 1e-9)) + 1e-12
    )


@pytest.mark.parametrize("seed", range(8))
def test_drawn_items_tell_no_more_than_the_bound(seed: int) -> None:
    """Exact law of all reports on a line, against the bound for drawn items and its new part."""
    generator = np.random.default_rng(seed)
    places = np.array([0.0, generator.uniform(0.1, 0.9), 1.0])
    rows = np.exp(generator.choice([1.0, 2.0]) * np.outer(places, generator.uniform(-1.0, 1.0, 3)))
    rows /= rows.sum(axis=1, keepdims=True)
    apart = np.abs(places[:, None] - places) + np.eye(3)
    rate = float((private_distances(rows) / apart).max()) * (1.0 + 1e-12)
    samples = int(generator.integers(1, 4))
    users = int(generator.integers(1, 3))
    profile = SubsampledProfile(
        ItemWiseProfile(rate, ItemShuffle(samples, samples * users)), samples
    )
    one = generator.dirichlet(np.ones(3))
    other = one + 0.4 * (generator.dirichlet(np.ones(3)) - one)
    mean = float(np.diff(places) @ np.abs(np.cumsum(one - other)[:-1])) * (1.0 + 1e-9)
    for beside in ([0], [2], [0, 2]) if users > 1 else ([],):
        others = [rows[value] for value in (beside * samples)[: samples * (users - 1)]]
        laws = [multiset_law([held @ rows] * samples + others) for held in (one, other)]
        for share in (0.0, 0.3, 0.7):
            epsilon = share * profile.pure(mean)
            exact = divergence(laws[0], laws[1], epsilon)
            mechanism = profile.mechanism
            assert isinstance(mechanism, ItemWiseProfile)
            assert exact <= profile.delta(epsilon, mean) * (1.0 + 1e-9) + 1e-15
            assert exact <= profile._independent(mechanism, epsilon, mean) * (1.0 + 1e-9) + 1e-15


def test_few_near_samples_are_hidden_much_better_by_their_reports() -> None:
    """Five samples of near users: at least twice the item rate of the coupled samples alone."""
    shuffle = ItemShuffle(5, 5000)

    def certified(rate: float, reports: bool) -> bool:
        profile = SubsampledProfile(ItemWiseProfile(rate, shuffle), 5)
        found = (
            profile.delta(0.05, 0.05)
            if reports
            else profile._split(0.05, 0.05, profile.mechanism.delta(0.05, 1.0))
        )
        return found <= 1e-6

    assert certified(1.0, True)
    assert not certified(0.5, False)
