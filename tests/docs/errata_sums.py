"""Sentences of docs/errata.md about shuffled sums, with every number computed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from tests.docs.written import number
from tests.oracles.clamped_sum import clamped_delta
from tests.oracles.counterexamples import both_sides, zeros_against_ones
from tests.oracles.half_line import half_line_attack
from tests.oracles.law_moments import mean_absolute

from metricshuffle.accounting.sums.additive_noise import AdditiveNoise
from metricshuffle.accounting.sums.flipped_bit_count import (
    RandomizedResponseProfile,
    local_profile,
    unpermuted_local_delta,
)
from metricshuffle.noise.polya import Polya
from metricshuffle.randomizers.additive_randomizer import AdditiveRandomizer
from metricshuffle_papers.enhancing_metric_privacy import formulas as paper
from metricshuffle_papers.packing import packing_bound
from metricshuffle_papers.reproduction import published_value

Floats = NDArray[np.float64]
LARGEST_DELTA = 0.01


def geo_shuffle() -> Iterator[str]:
    """Theorem 4.1: a half line of the sum distinguishes two data sets."""
    users = 100
    rate = 1.0
    delta = 1e-4
    claim = paper.geo_shuffle_epsilon(rate, users, delta).claim
    noise = Polya(Fraction(users), rate)
    law = noise.law(-300.0, 500)
    spread = math.sqrt(2.0 * users * math.exp(-rate)) / -math.expm1(-rate)
    far = 500
    cut = 400
    alarm = math.log(law.tail[cut] + law.outside)
    missed = law.tail[far - cut]
    assert claim * far + alarm < -10.0
    yield (
        f"With {users} people and noise of rate {number(rate)} each, at delta "
        f"{number(delta)}, the theorem promises epsilon "
        f"{number(claim, 3)} per unit"
    )
    yield f"a standard deviation of {number(spread, 3)}. Let one person move by {far}"
    yield (
        f"epsilon {number(claim * far, 3)}. Raise the alarm if the sum has risen by {cut} "
        "or more. Whoever has not moved is accused "
        f"with probability below e^{math.ceil(alarm)}"
    )
    yield (
        f"whoever has moved escapes with probability below {number(math.ceil(missed * 1e9) / 1e9)}"
    )
    yield f"e^{number(claim * far, 3)} times e^{math.ceil(alarm)} is next to nothing"
    attack = half_line_attack(law, far * claim, far)
    assert attack > 0.9999
    yield f"at least 0.9999, where {number(delta)} was promised"
    first = next(
        d
        for d in range(1, 200)
        if half_line_attack(noise.law(-80.0 - claim * d, d), claim * d, d) > delta
    )
    assert not AdditiveNoise(noise).covers(claim * first, delta, first)
    assert AdditiveNoise(noise).covers(claim * (first - 1), delta, first - 1)
    yield f"The promise breaks first at a move of {first}"
    profile = AdditiveNoise(noise)
    slopes = [number(profile.epsilon(delta, d) / d, 3) for d in (1, 10, 100, 500)]
    yield (
        f"{slopes[0]} per unit at a move of 1, {slopes[1]} at 10, {slopes[2]} at 100 and "
        f"{slopes[3]} at 500"
    )
    near, next_to = (paper.geo_shuffle_epsilon(1.0, 50, delta, d).claim for d in (1, 2))
    assert next_to > near
    yield (
        f"for 50 people and rate 1 it gives {near:.5f} at a move of 1 and {next_to:.5f} at a "
        "move of 2"
    )


def randomized_response() -> Iterator[str]:
    """Theorem 3.1, Equation 19 and Theorem 7.1."""
    bits = 20_000
    random_bit = 0.1
    delta = 1e-4
    claim = paper.rr_epsilon(random_bit * bits, delta).claim
    true = RandomizedResponseProfile(bits, random_bit / 2).epsilon(delta, 1)
    yield (
        f"With {bits:,} bits of which each is replaced by a fair coin with probability "
        f"{number(random_bit)}, at delta "
        f"{number(delta)}, the theorem promises epsilon {claim:.4f}"
    )
    yield f"the truth is {number(true, 2)}"
    last, first = (zeros_against_ones(bits, random_bit / 2, claim * d, d) for d in (558, 559))
    assert last <= delta < first
    yield (
        f"at 558 flipped bits the true delta is {number(last, 3)}, at 559 it is {number(first, 4)}"
    )
    pure = math.log((2.0 - random_bit) / random_bit)
    yield f"here {number(pure, 3)}, holds at every distance with delta 0"
    users = [
        math.ceil(paper.rr_lambda(0.1, 1e-4).claim / 1000),
        math.ceil(paper.rr_lambda(0.15 / (6 * math.sqrt(2)), 5e-5).claim / 1000),
    ]
    printed = (23, 776)
    yield (
        f"printed as {printed[0]} and {printed[1]} people, are {users[0]} and {users[1]:,} by "
        "the theorem's own condition"
    )
    flip = Fraction(3, 20)
    yield (
        f"If a bit is random with probability {float(2 * flip):g}, it is flipped with "
        f"probability {float(flip):g}, and its variance "
        f"is {float(flip):g} x {float(1 - flip):g} = {float(flip * (1 - flip)):g}. The "
        "equation gives "
        f"{number(paper.rr_bit_variance(0.3).claim)}"
    )
    people = 100
    span = 1000
    delta = 0.01
    random_bit = paper.rr_lambda(0.1, delta).claim / (people * span)
    claim = paper.rr_colluding_epsilon(random_bit, span, delta).claim
    flip_chance = random_bit / 2.0
    at_claim = 1.0 - flip_chance - math.exp(claim) * flip_chance
    assert abs(unpermuted_local_delta(flip_chance, claim) - at_claim) < 1e-12
    yield (
        f"{people} people, values 0..{span}, delta {number(delta)}: a bit is flipped with "
        f"probability {flip_chance:.4f}, and the "
        f"theorem promises epsilon {claim:.3f}"
    )
    yield f"1 - {flip_chance:.4f} - e^{claim:.3f} x {flip_chance:.4f} = {number(at_claim, 2)}"
    true = math.log((1.0 - flip_chance - delta) / flip_chance)
    yield (
        f"The truth at delta {number(delta)} is epsilon {true:.3f}, and "
        f"{math.log((1 - flip_chance) / flip_chance):.3f} with certainty"
    )
    yield (
        "then one report gives away epsilon "
        f"{local_profile(span, flip_chance).epsilon(delta, 1):.3f} at delta {number(delta)}"
    )


def padding() -> Iterator[str]:
    """Lemma C.1, and why no padding holds at every distance."""
    users = 100
    epsilon = 0.1
    delta = 1e-4
    claims = [int(paper.sgdl_padding(e, users, delta).claim) for e in (1.0, 0.3, 0.1, 0.01)]
    yield (
        f"for {users} people at delta {number(delta)} it is {claims[0]}, {claims[1]}, "
        f"{claims[2]} and {claims[3]} at epsilon 1, "
        "0.3, 0.1 and 0.01"
    )
    share = Polya(Fraction(1, users), epsilon)
    inside = float(
        both_sides(share)[
            (middle := len(both_sides(share)) // 2) - claims[2] : middle + claims[2] + 1
        ].sum()
    )
    out = paper.exceeding_probability(epsilon, users, claims[2])
    assert abs(1.0 - inside**users - out) < 1e-9
    yield (
        f"At epsilon {number(epsilon)} one person's noise stays within {claims[2]} with "
        f"probability {inside:.4f}, that of all "
        f"{users} with {inside:.4f}^{users} = {1 - out:.2f}"
    )
    yield (
        f"somebody exceeds the padding with probability {out:.2f}, where {number(delta)} was "
        "promised"
    )
    real = clamped_delta(both_sides(share), users, claims[2], 1000, epsilon * 10, 10)
    yield f"a move of 10 has delta {number(real, 2)} at epsilon {number(epsilon * 10)}"
    right = next(
        c for c in range(60, 100) if paper.exceeding_probability(epsilon, users, c) <= delta
    )
    yield f"Already to be exceeded with probability {number(delta)} it would have to be {right}"
    last, first = (
        clamped_delta(both_sides(share), users, right, 1000, epsilon * d, d) for d in (20, 21)
    )
    assert last < delta < first
    yield (
        f"With {right}, delta at the promised epsilon is {number(last, 2)} for a move of 20, "
        f"and above {number(delta)} from 21 on"
    )
    radii = []
    for distance, start in ((1, 77), (10, 80), (30, 95), (50, 110), (100, 160)):
        radii.append(
            next(c for c in range(start, 200) if _kept(users, epsilon, delta, c, distance))
        )
        assert radii[-1] > start
    yield (
        f"The smallest padding that keeps {number(delta)} is {radii[0]} for moves up to 1, "
        f"{radii[1]} up to 10, {radii[2]} up to "
        f"30, {radii[3]} up to 50 and {radii[4]} up to 100"
    )


def _kept(users: int, rate: float, delta: float, radius: int, distance: int) -> bool:
    clamp = AdditiveRandomizer(
        span=1000, shape=Fraction(1, users), rate=rate, padding="clamp", radius=radius
    )
    return clamp.summed_profile(users).covers(rate * distance, delta, distance)


def accuracy() -> Iterator[str]:
    """Table 2, several people, and the privacy of one share."""
    for users, epsilon in ((50, 0.2), (50, 0.5), (100, 0.1), (100, 0.2), (100, 0.3), (200, 0.1)):
        printed = published_value(
            "enhancing_metric_privacy", "Table 2", f"n={users}, epsilon={epsilon:g}, SGDL-Shuffle"
        )
        lowest = packing_bound(epsilon, LARGEST_DELTA, users * 1000 / 2) / users
        laplace = mean_absolute(Polya(Fraction(1), epsilon).law(-60.0)) / users
        verdict = "impossible" if printed < lowest else "possible"
        yield (
            f"| {users} | {number(epsilon)} | {number(printed)} | {number(lowest, 3)} | "
            f"{number(laplace, 3)} | {verdict} |"
        )
    yield f"at delta {number(LARGEST_DELTA)}, the largest in the paper's experiments"
    delta_one = Fraction(1, 100)
    yield (
        f"with probability {float(delta_one):g} and otherwise says nothing: for one person "
        f"delta is {float(delta_one):g}, for two "
        f"it is {float(1 - (1 - delta_one) ** 2):g}"
    )
    share = Polya(Fraction(1, 150), 0.1)
    claim = paper.sgdl_colluding_epsilon(0.1, 150).claim
    yield (
        f"150 people and epsilon 0.1, one report hides a move of 1 at epsilon {claim:.3f}, "
        "with certainty"
    )
    yield (
        "below that next to nothing is hidden: delta is "
        f"{AdditiveNoise(share).delta(3.0, 1):.2f} at epsilon 3"
    )
    assert paper.sgdl_colluding_epsilon(0.1, 150, 2).claim == 0.0
    yield f"gives 0 at a move of 2; the truth is {share.pure(2):.2f}"


PARTS = (geo_shuffle, randomized_response, padding, accuracy)
