"""Tables 2 and 3 of Athanasiou25, recomputed by the published formulas and by ours.

Mean absolute error per user, values in 0..1000.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from tests.oracles import law_moments
from tests.tables import check_all

from metricshuffle.accounting.sums.additive_noise import AdditiveNoise
from metricshuffle.noise.polya import Geometric, Polya
from metricshuffle.randomizers.count_response import FLIP_DENOMINATOR, CountResponse
from metricshuffle_papers.enhancing_metric_privacy import formulas as paper


def mean_absolute(users: int, rate: float) -> float:
    return law_moments.mean_absolute(Polya(Fraction(users), rate).law(-60.0))


@check_all(
    ("users", "epsilon", "delta", "local", "response", "formula", "rate", "central"),
    [
        (50, 0.2, 1e-3, 0.7945, 1.0549, 0.3068, 0.5130, 0.0993),
        (50, 0.5, 1e-2, 0.3150, 0.3357, 0.1064, 1.3801, 0.0384),
        (50, 0.5, 1e-4, 0.3150, 0.4519, 0.1384, 1.0933, 0.0384),
        (100, 0.1, 1e-4, 1.1265, 1.4647, 0.3740, 0.3002, 0.0998),
        (100, 0.3, 1e-4, 0.3742, 0.3704, 0.1252, 0.8715, 0.0328),
        (200, 0.1, 1e-4, 0.7971, 0.6080, 0.1959, 0.4043, 0.0499),
    ],
)
def test_table_2_by_the_published_formulas(
    users: int,
    epsilon: float,
    delta: float,
    local: float,
    response: float,
    formula: float,
    rate: float,
    central: float,
) -> None:
    assert mean_absolute(users, epsilon) / users == pytest.approx(local, abs=5.1e-5)
    assert mean_absolute(1, epsilon) / users == pytest.approx(central, abs=5.1e-5)
    random_bit = paper.rr_lambda(epsilon, delta).claim / (users * 1000)
    flip = round(0.5 * random_bit * FLIP_DENOMINATOR) / FLIP_DENOMINATOR
    sizes, weights = CountResponse(span=1000, flip=flip).error_points(users)
    assert float(np.abs(sizes) @ weights) / users == pytest.approx(response, abs=6e-5)
    # The floors of Theorem 4.1 make its epsilon jump, so that several rates claim the same; this is
    # one of them.
    below, above = (
        paper.geo_shuffle_epsilon(rate + side * 5.1e-5, users, delta).claim for side in (-1, 1)
    )
    assert below <= epsilon <= above
    assert mean_absolute(users, rate) / users == pytest.approx(formula, abs=8e-5)


@check_all(
    ("users", "epsilon", "delta", "errors"),
    [
        (50, 0.2, 1e-3, (0.1692, 0.2297, 0.3459, 0.5616)),
        (50, 0.5, 1e-2, (0.0548, 0.0886, 0.1585, 0.2525)),
        (100, 0.1, 1e-4, (0.2062, 0.2576, 0.3477, 0.5814)),
        (100, 0.3, 1e-4, (0.0759, 0.0959, 0.1440, 0.2462)),
        (200, 0.1, 1e-4, (0.1043, 0.1312, 0.1799, 0.3203)),
    ],
)
def test_table_2_corrected(
    users: int, epsilon: float, delta: float, errors: tuple[float, ...]
) -> None:
    """Geo-Shuffle at the rate with the requested true epsilon per unit.

    At distances 1 and D with delta/2.
    """
    for distance, error in zip((1, 10, 100, 1000), errors, strict=True):
        low = 0.5 * epsilon
        high = 20.0
        while high - low > 1e-6 * low:
            rate = 0.5 * (low + high)
            profile = AdditiveNoise(Polya(Fraction(users), rate))
            kept = all(profile.covers_at(epsilon * d, 0.5 * delta, d) for d in (1, distance))
            low, high = (rate, high) if kept else (low, rate)
        assert mean_absolute(users, low) / users == pytest.approx(error, abs=5.1e-5)


@check_all(
    ("users", "epsilon", "cells", "radius", "local", "formula", "corrected", "central"),
    [
        (1000, 0.15, 1000, 6.0, 317.0, 37.9, 20.2, 9.18),
        (1000, 0.3, 1500, 7.5, 132.0, 15.8, 8.9, 3.83),
        (4000, 0.3, 1500, 7.5, 66.0, 4.0, 2.2, 0.96),
    ],
)
def test_table_3_computed_again(
    users: int,
    epsilon: float,
    cells: int,
    radius: float,
    local: float,
    formula: float,
    corrected: float,
    central: float,
) -> None:
    """Metres on a square of 100 km, with half of delta = 1e-4 per axis.

    Each axis gets epsilon/(radius sqrt 2) per cell.
    """
    share = epsilon / (radius * math.sqrt(2.0))
    metres = 100_000.0 / cells / users

    def euclidean(noise: Polya) -> float:
        law = noise.law(-40.0)
        sizes = np.arange(law.radius + 1.0)
        weights = np.where(np.arange(law.radius + 1) == 0, 1.0, 2.0) * law.mass
        if law.radius > 4000:
            # Wide sums are normal to five digits: E of a Rayleigh variable.
            return math.sqrt(0.5 * math.pi * noise.variance()) * metres
        return float(weights @ np.hypot(sizes[:, None], sizes[None, :]) @ weights) * metres

    def rate(kept: Callable[[float], bool]) -> float:
        low = share
        high = 20.0
        while high - low > 1e-5 * low:
            middle = 0.5 * (low + high)
            low, high = (middle, high) if kept(middle) else (low, middle)
        return low

    total = Fraction(users)
    published = rate(lambda r: paper.geo_shuffle_epsilon(r, users, 5e-5).claim <= share)
    true = rate(
        lambda r: all(
            AdditiveNoise(Polya(total, r)).covers_at(share * d, 2.5e-5, d)
            for d in (1, math.floor(radius))
        )
    )
    assert euclidean(Geometric(share)) == pytest.approx(central, abs=5.1e-3)
    assert euclidean(Polya(total, share)) == pytest.approx(local, abs=0.51)
    assert euclidean(Polya(total, published)) == pytest.approx(formula, abs=0.051)
    assert euclidean(Polya(total, true)) == pytest.approx(corrected, abs=0.051)
