"""Renyi divergences, trade-off curves and loss distributions: conservative and close."""

from __future__ import annotations

import math
from dataclasses import dataclass

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray
from tests.tables import check_all

import metricshuffle as ms
from metricshuffle.accounting.composition.composed_profile import compose_profiles, compose_rounds
from metricshuffle.errors import InputError, NotCertified
from metricshuffle.privacy.dominating_pair import (
    POINTS,
    TradeOff,
    dominating_pair,
    fall_rates,
    lower_hull,
    sample_epsilons,
)
from metricshuffle.privacy.profile import PrivacyProfile, PureProfile
from metricshuffle.randomizers import KaryRandomizedResponse

Floats = NDArray[np.float64]
ORDERS = (1.0, 1.0001, 1.5, 2.0, 8.0, 64.0, 1000.0, math.inf)


def exact_renyi(p: Floats, q: Floats, order: float) -> float:
    """Of two laws, the larger of both directions, in fifty digits."""
    with mpmath.workdps(50):
        ways = []
        for one, two in ((p, q), (q, p)):
            sums = [sum(mpmath.mpf(float(a)) for a in law) for law in (one, two)]
            pairs = [
                (mpmath.mpf(float(a)) / sums[0], mpmath.mpf(float(b)) / sums[1])
                for a, b in zip(one, two, strict=True)
            ]
            if order == math.inf:
                ways.append(max(mpmath.log(a / b) for a, b in pairs))
            elif order == 1.0:
                ways.append(sum(a * mpmath.log(a / b) for a, b in pairs))
            else:
                ways.append(
                    mpmath.log(sum(a**order * b ** (1 - mpmath.mpf(order)) for a, b in pairs))
                    / (mpmath.mpf(order) - 1)
                )
        return float(max(ways))


def exact_trade_off(p: Floats, q: Floats, alpha: float) -> float:
    """Least type II error by Neyman and Pearson: reject in the order of q/p up to alpha."""
    beta = 1.0
    left = alpha
    for a, b in sorted(
        zip(p.tolist(), q.tolist(), strict=True), key=lambda pair: -pair[1] / pair[0]
    ):
        share = min(1.0, left / a)
        beta = beta - share * b
        left = left - share * a
    return max(beta, 0.0)


def coins(epsilon: float) -> tuple[Floats, Floats]:
    high = 1.0 / (1.0 + math.exp(-epsilon))
    low = math.exp(-epsilon) / (1.0 + math.exp(-epsilon))
    return np.array([high, low]), np.array([low, high])


@check_all("epsilon", [1e-4, 0.1, 1.0, 5.0, 30.0])
@check_all("order", ORDERS)
def test_renyi_of_randomized_response(epsilon: float, order: float) -> None:
    exact = exact_renyi(*coins(epsilon), order)
    found = PureProfile(1.0).renyi(order, epsilon)
    assert exact * (1.0 - 1e-11) <= found <= exact * (1.0 + 1e-7)


@dataclass(frozen=True)
class TwoLaws(PrivacyProfile):
    """One pair, both directions, by the definition."""

    rows: tuple[tuple[float, ...], ...]

    def pure(self, distance: float) -> float:
        p, q = np.array(self.rows)
        return float(np.abs(np.log(p / q)).max()) * (1.0 + 1e-15) if distance else 0.0

    def delta(self, epsilon: float, distance: float) -> float:
        p, q = np.array(self.rows)
        growth = math.exp(epsilon)
        return max(
            math.fsum(np.maximum(p - growth * q, 0.0)), math.fsum(np.maximum(q - growth * p, 0.0))
        )

    @classmethod
    def of(cls, rows: Floats) -> TwoLaws:
        return cls(tuple(tuple(row) for row in rows.tolist()))


def geometric(rate: float, shift: int, reach: int = 60) -> Floats:
    """Discrete Laplace noise around 0 and `shift`, with the mass beyond the reach at its ends."""
    inside = np.arange(-reach + 1, reach + shift)
    scale = math.tanh(0.5 * rate)
    rows = []
    for centre in (0, shift):
        tails = [
            math.exp(-rate * (side + 1.0)) / (1.0 + math.exp(-rate))
            for side in (reach + centre - 1, reach + shift - centre - 1)
        ]
        rows.append(
            np.concatenate([tails[:1], scale * np.exp(-rate * np.abs(inside - centre)), tails[1:]])
        )
    return np.array(rows)


@check_all("order", ORDERS)
@check_all("shift", [1, 4])
def test_renyi_of_discrete_laplace_noise(order: float, shift: int) -> None:
    rows = geometric(0.4, shift)
    assert rows.sum(axis=1) == pytest.approx([1.0, 1.0], rel=1e-12)
    exact = exact_renyi(rows[0], rows[1], order)
    found = TwoLaws.of(rows).renyi(order, 1.0)
    assert exact * (1.0 - 1e-11) <= found <= exact * (1.0 + 1e-3)


@check_all("order", ORDERS)
def test_renyi_of_one_pair_is_close(order: float) -> None:
    rows = np.array([[0.5, 0.2, 0.2, 0.1], [0.1, 0.2, 0.2, 0.5]])  # alike in both directions
    exact = exact_renyi(rows[0], rows[1], order)
    found = TwoLaws.of(rows).renyi(order, 1.0)
    assert exact * (1.0 - 1e-12) <= found <= exact * (1.0 + 1e-3)


def test_what_is_not_certified_is_infinite() -> None:
    class Tailed(PrivacyProfile):
        def delta(self, epsilon: float, distance: float) -> float:
            return min(1.0, math.exp(-epsilon - 1.0))

    assert Tailed().renyi(2.0, 1.0) == math.inf
    assert Tailed().dominating_pair(1.0).renyi(2.0) == math.inf
    assert Tailed().renyi(2.0, 0.0) == 0.0

    class Wrong(PrivacyProfile):
        def pure(self, distance: float) -> float:
            return 1.0

        def delta(self, epsilon: float, distance: float) -> float:
            return math.nan

    for ask in (
        lambda: Wrong().renyi(2.0, 1.0),
        lambda: Wrong().tradeoff(1.0),
        lambda: Wrong().to_pld(1.0),
    ):
        with pytest.raises(NotCertified):
            ask()


def test_a_curve_that_is_wrong_by_a_little_stays_above() -> None:
    """Discontinuous, non-convex samples: the pair lies above their running minima."""
    epsilons = np.linspace(0.0, 2.0, 40)
    truth = [PureProfile(1.0).delta(epsilon, 2.0) for epsilon in epsilons]
    jumpy = [min(1.0, value * (1.0 + 0.1 * (place % 3))) for place, value in enumerate(truth)]
    pair = dominating_pair(epsilons.tolist(), jumpy)
    for epsilon in np.linspace(0.0, 2.0, 333):
        assert pair.delta(float(epsilon)) >= PureProfile(1.0).delta(float(epsilon), 2.0)
    assert pair.renyi(2.0) >= exact_renyi(*coins(2.0), 2.0)


@check_all(
    "rows",
    [
        np.array([[0.5, 0.2, 0.2, 0.1], [0.1, 0.2, 0.2, 0.5]]),
        np.array([[0.6, 0.3, 0.1], [0.2, 0.3, 0.5]]),
        np.stack(coins(3.0)),
    ],
)
def test_the_trade_off_is_below_the_exact_one(rows: Floats) -> None:
    curve = TwoLaws.of(rows).tradeoff(1.0)
    alphas = np.linspace(0.0, 1.0, 201)
    found = curve(alphas)
    exact = np.array(
        [min(exact_trade_off(p, q, alpha) for p, q in (rows, rows[::-1])) for alpha in alphas]
    )
    assert np.all(found <= exact + 1e-12)
    if rows.shape[1] != 3:
        assert np.all(found >= exact - 1e-3)
    assert np.all(np.diff(found) <= 1e-15)
    assert np.all(found[:-2] + found[2:] - 2.0 * found[1:-1] >= -1e-13)  # convex
    assert curve(0.3) == found[60]
    for wrong in (-0.1, 1.1, math.nan):
        with pytest.raises(InputError, match="alpha"):
            curve(wrong)


def test_the_trade_off_is_its_own_inverse_and_made_of_lines() -> None:
    curve = TwoLaws.of(geometric(0.4, 4)).tradeoff(1.0)
    assert isinstance(curve, TradeOff)
    alphas, betas = curve.points
    assert alphas[0] == 0.0
    assert alphas[-1] == 1.0
    assert betas[0] == pytest.approx(1.0)
    assert betas[-1] == 0.0
    between = np.linspace(0.0, 1.0, 1001)
    np.testing.assert_allclose(np.interp(between, alphas, betas), curve(between), atol=1e-12)
    inside = alphas[(betas > 0.0) & (alphas > 0.0)]
    np.testing.assert_allclose(curve(curve(inside)), inside, rtol=1e-9, atol=1e-12)


@check_all(
    ("profile", "distance"),
    [(PureProfile(1.0), 1.0), (PureProfile(0.37), 3.0), (TwoLaws.of(geometric(0.4, 4)), 1.0)],
)
def test_loss_distributions_dominate_and_are_close(
    profile: PrivacyProfile, distance: float
) -> None:
    pld = profile.to_pld(distance)
    for epsilon in np.linspace(0.0, profile.pure(distance), 60):
        delta = profile.delta(float(epsilon), distance)
        assert delta <= pld.get_delta_for_epsilon(float(epsilon)) <= delta + 2e-4
    assert pld.get_epsilon_for_delta(0.0) >= profile.pure(distance) * (1.0 - 1e-12)  # rounded there


def test_composition_there_and_here() -> None:
    profile = PureProfile(0.5)
    there = profile.to_pld(1.0).self_compose(10)
    here = compose_rounds(profile, 10)
    for epsilon in (0.2, 1.0, 2.0, 3.0):
        assert there.get_delta_for_epsilon(epsilon) == pytest.approx(
            here.delta(epsilon, 1.0), rel=2e-3
        )
    both = profile.to_pld(1.0).compose(PureProfile(1.0).to_pld(1.0))
    assert both.get_delta_for_epsilon(1.2) == pytest.approx(
        compose_profiles([profile, PureProfile(1.0)]).delta(1.2, 1.0), rel=2e-3
    )


def test_curves_of_shuffled_reports() -> None:
    answer = ms.amplify(KaryRandomizedResponse(10, 1.0), 10**6, relative=1e-3)
    pair = answer.upper.dominating_pair(1.0, points=32)
    assert (
        0.0 < pair.renyi(1.0) <= pair.renyi(2.0) <= pair.renyi(20.0) <= answer.epsilon(1e-15).upper
    )
    assert answer.delta(0.0).lower <= math.sqrt(0.5 * pair.renyi(1.0))  # Pinsker
    curve = answer.upper.tradeoff(1.0, points=32)
    assert curve(0.5) == pytest.approx(0.5 - answer.delta(0.0).upper, abs=1e-5)


def test_where_it_is_looked() -> None:
    profile = PureProfile(1.0)
    at = sample_epsilons(lambda epsilon: profile.delta(epsilon, 1.0), 1.0)
    assert at[0] == 0.0
    assert at[-1] == 1.0
    assert len(at) == POINTS
    assert sample_epsilons(lambda epsilon: 0.0, 0.0) == [0.0]
    assert sample_epsilons(lambda epsilon: 0.0, 1.0) == [0.0, 1.0]
    far = sample_epsilons(lambda epsilon: math.exp(-1000.0 * epsilon), 1.0)
    assert far[-1] == 1.0
    assert far[POINTS // 2] < 0.05
    for wrong in (1, 2.5, True):
        with pytest.raises(InputError, match="points"):
            sample_epsilons(lambda epsilon: 0.0, 1.0, wrong)  # type: ignore[arg-type]


def test_bad_input() -> None:
    profile = PureProfile(1.0)
    for order in (0.5, math.nan, True, "2"):
        with pytest.raises(InputError, match="order"):
            profile.renyi(order, 1.0)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="distance"):
        profile.renyi(2.0, -1.0)
    for interval in (0.0, math.nan, 2.0):
        with pytest.raises(InputError, match="interval"):
            profile.to_pld(1.0, interval)
    with pytest.raises(InputError, match="rise from 0"):
        dominating_pair([0.0, 0.0], [0.1, 0.1])


@check_all("seed", range(6))
def test_the_lower_hull_is_that_of_points_taken_one_by_one(seed: int) -> None:
    rng = np.random.default_rng(seed)
    at = np.cumsum(np.append(0.0, rng.uniform(0.01, 0.2, 80)))
    fall = fall_rates(
        at,
        np.minimum.accumulate(
            np.exp(-at) * (1.0 + rng.random(81) * [0.0, 1e-12, 1e-3, 0.3, 3.0, 0.01][seed]) / 4.0
        ),
    )

    def one(a: int, b: int) -> float:
        return float(fall(np.array([a]), np.array([b]))[0])

    vertices = [-1]
    falls = [math.inf]
    for b in range(81):
        slope = one(vertices[-1], b)
        while len(vertices) > 1 and slope >= falls[-1]:
            vertices.pop()
            falls.pop()
            slope = one(vertices[-1], b)
        vertices.append(b)
        falls.append(slope)
    found = lower_hull(81, fall)
    assert found[0].tolist() == vertices
    assert found[1].tolist() == falls
    assert seed not in (3, 4) or len(vertices) < 60
