"""Known faults of the published Geo-Shuffle and RR-Shuffle.

Rates and epsilons are per unit of distance, as in the paper, where nothing else is said.
SGDL-Shuffle: test_errata_padding.py.
"""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.oracles import sgdl
from tests.oracles.counterexamples import zeros_against_ones
from tests.oracles.half_line import half_line_attack
from tests.tables import check_all

from metricshuffle.accounting.sums.additive_noise import AdditiveNoise
from metricshuffle.accounting.sums.flipped_bit_count import (
    RandomizedResponseProfile,
    local_profile,
    unpermuted_local_delta,
)
from metricshuffle.accounting.sums.planar_noise import PerAxisProfile, PlanarNoise
from metricshuffle.errors import NotCertified
from metricshuffle.noise.bounded_sum import truncated_sum
from metricshuffle.noise.polya import Polya
from metricshuffle.planning.candidates.sum_calibration import shuffled_modular
from metricshuffle.planning.candidates.sum_setting import SumSetting
from metricshuffle.planning.setting import Setting
from metricshuffle.privacy import Guarantee, Trust
from metricshuffle.privacy.target import Target
from metricshuffle.protocols.sums import Sums
from metricshuffle.queries import Sum
from metricshuffle.randomizers.additive_randomizer import AdditiveRandomizer
from metricshuffle.randomizers.count_response import CountResponse
from metricshuffle.randomness import Randomness
from metricshuffle.spaces import Integers
from metricshuffle_papers.enhancing_metric_privacy import formulas as paper

Floats = NDArray[np.float64]


# Theorem 4.1 (Geo-Shuffle): unsafe


FIRST_FALSE = {
    50: (162, 66, 34, 19),
    100: (221, 90, 47, 26),
    1000: (670, 269, 138, 75),
}


@check_all("users", FIRST_FALSE)
def test_geo_shuffle_holds_up_to_a_distance_and_is_false_beyond(users: int) -> None:
    for rate, first in zip((0.2, 0.5, 1.0, 2.0), FIRST_FALSE[users], strict=True):
        claim = paper.geo_shuffle_epsilon(rate, users, 1e-4).claim
        noise = Polya(Fraction(users), rate)
        profile = AdditiveNoise(noise)
        assert profile.delta(claim * (first - 1), first - 1) <= 5e-5
        assert (
            half_line_attack(noise.law(-80.0 - claim * first, first), claim * first, first) > 5e-5
        )
        assert not profile.covers(claim * first, 5e-5, first)
        assert profile.covers(claim * (first - 1), 5e-5, first - 1)
        # One user moving across 0..1000 (or half of it, where e^epsilon overflows) breaks the claim
        # even with all of delta.
        far = 1000 if claim < 0.6 else 500
        assert half_line_attack(noise.law(-80.0 - claim * far, far), claim * far, far) > 1e-4
        assert profile.epsilon(5e-5, 1) < claim / 1.4, "and it is loose nearby"


def test_geo_shuffle_promises_1e_4_where_everything_is_lost() -> None:
    claim = paper.geo_shuffle_epsilon(1.0, 100, 1e-4).claim
    law = Polya(Fraction(100), 1.0).law(-300.0, 500)
    assert half_line_attack(law, 500 * claim, 500) > 0.99995


def test_geo_shuffle_is_false_for_the_real_mechanism_too() -> None:
    """All users in the middle of 0..1000, one moves by 53: clamping is too rare to matter."""
    claim = paper.geo_shuffle_epsilon(1.0, 100, 1e-4).claim
    move = 53
    padding = int(paper.geo_padding(1.0, 100, 1e-4).claim)
    unclamped = float(sgdl.delta(sgdl.masses(100, 1.0, 200), claim * move, move))
    reaches_the_edge = 100 * 2.0 * math.exp(-(500 - move + padding))
    assert unclamped - (1.0 + math.exp(claim * move)) * reaches_the_edge > 1e-4


def test_distance_1_is_not_the_worst() -> None:
    for rate, near, far in [(1.0, 0.45114, 0.45393), (2.0, 0.97882, 0.98953)]:
        assert paper.geo_shuffle_epsilon(rate, 50, 1e-4, 1).claim == pytest.approx(near, abs=5.1e-6)
        assert paper.geo_shuffle_epsilon(rate, 50, 1e-4, 2).claim == pytest.approx(far, abs=5.1e-6)
    profile = AdditiveNoise(Polya(Fraction(100), 0.5))
    slopes = [profile.epsilon(5e-5, d) / d for d in (1, 2, 5, 10, 50, 100, 500)]
    assert slopes == sorted(slopes)
    assert slopes == pytest.approx(
        [0.09161, 0.09902, 0.10894, 0.11728, 0.14784, 0.17287, 0.28080], abs=5.1e-6
    )


# Proposition 3 is right, its use is not


@check_all("distance", [1, 10, 50, 100])
def test_the_truncated_sum_has_more_delta_than_the_untruncated_one(distance: int) -> None:
    padding = int(paper.geo_padding(1.0, 100, 1e-4).claim)
    epsilon = AdditiveNoise(Polya(Fraction(100), 1.0)).epsilon(5e-5, distance)
    inside = AdditiveNoise(truncated_sum(Polya(Fraction(1), 1.0), padding, 100)).delta(
        epsilon, distance
    )
    assert 5e-5 < inside < 5.6e-5
    clamp = AdditiveRandomizer(
        span=1000, shape=Fraction(1), rate=1.0, padding="clamp", radius=padding
    )
    missed = clamp.clamp_probability(100)
    assert clamp.summed_profile(100).delta(epsilon, distance) == pytest.approx(
        paper.truncated_delta(missed, inside).claim, rel=1e-9
    )


# Theorem 3.1 (RR-Shuffle): unsafe


@check_all(
    ("bits", "random_bit", "first", "true_epsilon"),
    [(20_000, 0.1, 559, 0.0700), (50_000, 0.02, 296, 0.1139)],
)
def test_randomized_response_is_loose_nearby_and_false_far_away(
    bits: int, random_bit: float, first: int, true_epsilon: float
) -> None:
    claim = paper.rr_epsilon(random_bit * bits, 1e-4).claim
    flip = random_bit / 2.0
    profile = RandomizedResponseProfile(bits, flip)
    assert zeros_against_ones(bits, flip, claim * (first - 1), first - 1) <= 1e-4
    broken = zeros_against_ones(bits, flip, claim * first, first)
    assert 1e-4 < broken <= profile.delta(claim * first, first) <= 1.06 * broken
    assert not profile.covers_at(claim * first, 1e-4, first)
    assert zeros_against_ones(bits, flip, true_epsilon - 1e-4, 1) > 1e-4
    assert true_epsilon - 1e-4 < profile.epsilon(1e-4, 1) < true_epsilon * 1.003 < claim / 5.0
    # What is true at every distance, with delta = 0.
    assert profile.pure(1) == pytest.approx(math.log((2.0 - random_bit) / random_bit), rel=1e-12)


def test_the_violation_to_three_digits() -> None:
    claim = paper.rr_epsilon(2000.0, 1e-4).claim
    assert zeros_against_ones(20_000, 0.05, 559 * claim, 559) == pytest.approx(1.036e-4, abs=5.1e-8)
    assert zeros_against_ones(20_000, 0.05, 558 * claim, 558) == pytest.approx(9.73e-5, abs=5.1e-8)


def test_the_variance_of_one_bit() -> None:
    claim = paper.rr_bit_variance(0.3).claim
    flip = 0.15
    assert claim == pytest.approx(0.105)
    one = CountResponse(span=1, flip=2.0**-32 * round(flip * 2**32))
    truth = one.total_variance(1) * (1.0 - 2.0 * flip) ** 2
    assert truth == pytest.approx(flip * (1.0 - flip) ** 2 + (1.0 - flip) * flip**2, rel=1e-8)
    assert truth == pytest.approx(0.1275, rel=1e-8)
    draws = one.reports(np.zeros(200_000, dtype=np.int64), Randomness.seeded(7))
    assert abs(float(draws.var()) - truth) < 0.002 < truth - claim


# Theorem 7.1 (RR-Shuffle, shuffler colluding): unsafe


@check_all(
    ("users", "claimed", "at_claim", "true_epsilon", "pure", "permuted"),
    [
        (30, 0.579, 0.0889, 0.7061, 0.7211, 0.0),
        (50, 0.7645, 0.3821, 1.3971, 1.4097, 0.0236),
        (100, 1.128, 0.5986, 2.2069, 2.2180, 0.0744),
    ],
)
def test_visible_positions_break_randomized_response(
    users: int, claimed: float, at_claim: float, true_epsilon: float, pure: float, permuted: float
) -> None:
    """Leakage of one report at distance 1, where epsilon 0.1 is claimed for the shuffled sum.

    1000 bits, delta = 0.01.
    """
    random_bit = paper.rr_lambda(0.1, 0.01).claim / (users * 1000)
    flip = random_bit / 2.0
    claim = paper.rr_colluding_epsilon(random_bit, 1000, 0.01).claim
    assert claim == pytest.approx(claimed, abs=5.1e-4)
    # The bit where x and x+1 differ is one randomized response: 1 - flip against flip.
    assert unpermuted_local_delta(flip, claim) == pytest.approx(
        (1.0 - flip) - math.exp(claim) * flip, rel=1e-12
    )
    assert unpermuted_local_delta(flip, claim) == pytest.approx(at_claim, abs=5.1e-5)
    assert (
        unpermuted_local_delta(flip, true_epsilon + 5e-5)
        <= 0.01
        < unpermuted_local_delta(flip, true_epsilon - 5e-5)
    )
    assert math.log((2.0 - random_bit) / random_bit) == pytest.approx(pure, abs=5.1e-5)
    # The repair: the client permutes its bits, so only their number is seen.
    assert local_profile(1000, flip).epsilon(0.01, 1) == pytest.approx(permuted, abs=1e-4)


def test_reports_of_randomized_response_have_no_positions() -> None:
    """A report is a count without positions; the fallback guaranteed is that of the count."""
    response = CountResponse(span=1000, flip=0.25)
    reports = response.reports(np.array([0, 500, 1000]), Randomness.seeded(1))
    assert reports.shape == (3,)
    assert response.local_profile() == RandomizedResponseProfile(1000, 0.25)
    with pytest.raises(NotCertified):
        Guarantee.from_profile(
            unpermuted_local_delta,  # type: ignore[arg-type]
            delta=0.01,
            distance=1.0,
            unit="",
            protects="one person",
            trust=Trust(trusted="nobody"),
        )


# Theorem 7.2 (SGDL-Shuffle, shuffler colluding): the value is right, its proof is not


def test_one_polya_share_hides_nothing_useful_below_log_n() -> None:
    share = Polya(Fraction(1, 150), 0.1)
    claim = paper.sgdl_colluding_epsilon(0.1, 150).claim
    assert claim == pytest.approx(5.106, abs=5.1e-4)
    assert share.pure(1) == pytest.approx(claim, rel=1e-12)
    profile = AdditiveNoise(share)
    for epsilon, delta in [(1.0, 0.953), (3.0, 0.851), (5.0, 0.098)]:
        assert profile.delta(epsilon, 1) == pytest.approx(delta, abs=5.1e-4)
    assert profile.delta(claim + 1e-9, 1) == 0.0, "no delta has to be spent"
    slopes = [share.pure(d) / d for d in (1, 2, 3, 10, 100)]
    assert slopes == sorted(slopes, reverse=True)
    # "The same for every r": at distance 2 the published ratio is f(-1)/f(1) = 1, and the truth is
    # not.
    assert paper.sgdl_colluding_epsilon(0.1, 150, 2).claim == 0.0
    assert share.pure(2) > 5.0


# Theorem D.1 is true for all sets, Proposition 7 is wasteful


def test_composition_holds_for_sets_that_are_no_products() -> None:
    """All 65536 sets of two four-valued mechanisms: 1 - (1-delta)^2 is enough.

    The worst set is not a product.
    """
    p = np.array([0.5, 0.3, 0.15, 0.05])
    q = np.array([0.1, 0.2, 0.3, 0.4])
    epsilon = 0.7
    delta = float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum())
    gain = (np.outer(p, p) - math.exp(2.0 * epsilon) * np.outer(q, q)).ravel()
    sets = ((np.arange(2**16)[:, None] >> np.arange(16)[None, :]) & 1).astype(bool)
    gains = sets @ gain
    worst = sets[int(gains.argmax())].reshape(4, 4)
    assert not np.array_equal(worst, np.outer(worst.any(axis=1), worst.any(axis=0)))
    product_sets = [
        float(np.outer(a, b).ravel() @ gain)
        for a, b in product(product((0, 1), repeat=4), repeat=2)
    ]
    assert (
        max(product_sets)
        < gains.max()
        <= 1.0 - (1.0 - delta) ** 2
        <= paper.composed_delta(delta).claim
    )


def test_accounting_both_axes_together_needs_less_noise() -> None:
    """Rate 0.2770 one axis at a time, 0.4026 jointly and with half of delta.

    1000 users, epsilon 0.15 at 6 squares, delta 1e-4.
    """
    single, joint = (AdditiveNoise(Polya(Fraction(1000), rate)) for rate in (0.2770, 0.4026))
    assert PerAxisProfile(single).covers(0.15, 1e-4, 6.0)
    assert not PerAxisProfile(joint).covers(0.15, 1e-4, 6.0)
    assert PlanarNoise(joint).covers(0.15, 5e-5, 6.0)
    share = 0.15 / 6.0 / math.sqrt(2.0)
    assert paper.planar_epsilon(share).claim * 6.0 == pytest.approx(0.15)
    published = 0.1478
    assert paper.geo_shuffle_epsilon(published, 1000, 5e-5).claim == pytest.approx(share, rel=1e-3)


# "(M(x_1), ..., M(x_n)) keeps (epsilon, delta)": not for delta > 0


def test_several_changed_users_cost_several_deltas() -> None:
    """A report that shows its value with probability delta: a larger epsilon does not help."""
    delta = Fraction(1, 100)
    two = (
        sum((a * b for a, b in product((delta, 1 - delta), repeat=2)), Fraction(0))
        - (1 - delta) ** 2
    )
    assert two == 1 - (1 - delta) ** 2 > delta


# Beyond the planned distance


def test_beyond_the_planned_distance_the_truth_is_told_and_it_is_worse_than_proportional() -> None:
    query = Sum(domain=Integers(0, 1000))
    setting = Setting(query, Target(1.0, 1e-6, 10.0), 100, 100, transport="aggregator")
    one = shuffled_modular(SumSetting(setting, query), 100)
    assert isinstance(one.mechanism, Sums)
    profile = one.mechanism.randomizers[0].summed_profile(100)
    assert profile.covers(1.0, 1e-6, 10.0)
    for distance in (20, 100, 400):
        told = profile.epsilon(1e-6, distance)
        assert told > 1.05 * distance / 10.0
        law = Polya(Fraction(100), one.rate or math.nan).law(-100.0 - told, distance)
        assert half_line_attack(law, told * (1.0 - 1e-6), distance) > 1e-6, (
            "and it is the truth, not a loose bound"
        )
        assert not profile.covers(distance / 10.0, 1e-6, distance)
    assert "moving by up to 10 in total" in one.guarantee.sentence
