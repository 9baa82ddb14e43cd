"""Sentences of docs/errata.md about users with many items, with every number computed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr
from scipy.stats import binom
from tests.docs.written import number

from metricshuffle.accounting.composition.pure_responses import ComposedResponses
from metricshuffle.accounting.user_items.item_reports import ItemShuffle, ItemWiseProfile
from metricshuffle.accounting.user_items.metric_gaussian import gaussian_delta
from metricshuffle.accounting.user_items.user_privacy import group_delta
from metricshuffle_papers.earth_mover.privacy_bounds import Reading, theorem_4_4_item_rate

# The worked example of the paper: epsilon 0.2 for a distance of 0.008, so a rate of 25; 10^5 users
# with 10^3 items.
EPSILON = 0.2
NEAR = 0.008
RATE = 25.0
DELTA = 1e-12
USERS = 100_000
ITEMS = 1_000


def groups() -> Iterator[str]:
    """Fact 5.1 and Table 1: a chain of coins."""

    def chain(epsilon: float, steps: int) -> float:
        heads = 0.0
        for _ in range(steps):
            heads = math.exp(epsilon) * heads + 1.0
        return heads

    yield (
        f"heads with probability 0, delta and {number(chain(0.0, 2))} delta: neighbours "
        "are (0, delta)-indistinguishable, the ends "
        f"need {number(chain(0.0, 2))} delta, and Table 1 gives delta"
    )
    assert chain(2.0, 2) > math.exp(2)
    yield (
        f"With epsilon 2 the chain is 0, delta and (e^2 + 1) delta = {chain(2.0, 2):.2f} "
        "delta, and Fact 5.1 gives e^2 delta = "
        f"{math.exp(2):.2f} delta"
    )
    steps = round(1.0 / NEAR)
    true = DELTA * math.expm1(steps * EPSILON) / math.expm1(EPSILON)
    assert abs(DELTA * chain(EPSILON, steps) / true - 1.0) < 1e-9
    assert true <= group_delta(EPSILON, DELTA, steps) <= true * (1.0 + 1e-9)
    yield (
        f"epsilon {number(EPSILON)} at a distance of {number(NEAR)}, delta {number(DELTA)}: at "
        f"distance 1 delta is {true:.3f}"
    )


def sampling() -> Iterator[str]:
    """Theorem 1.3 (informal) and Lemma 5.2: how many of the sampled items moved is random."""
    samples = math.ceil(2.0 * math.log(1.0 / DELTA) / NEAR)
    moved = np.arange(400.0)
    weight = binom.pmf(moved, samples, NEAR)

    def beyond(z: float) -> float:
        """Laplace noise of rate 25 beyond z."""
        return 0.5 * math.exp(-RATE * z) if z >= 0.0 else 1.0 - 0.5 * math.exp(RATE * z)

    def gained(cut: float) -> float:
        return math.fsum(
            w * beyond(cut - j / samples) for j, w in zip(moved, weight, strict=True)
        ) - math.exp(RATE * NEAR) * beyond(cut)

    best = max(gained(cut) for cut in np.linspace(0.0, 0.05, 201))
    assert best > DELTA
    yield (
        f"rate {number(RATE)}, r = {number(NEAR)}, delta {number(DELTA)} and {samples:,} "
        "samples, as many as the theorem asks for"
    )
    yield f"the true delta at the promised epsilon is {number(best, 3)}"
    bound = (1.0 + math.sqrt(2.0)) * NEAR + 3.0 / 8.0 * math.log(1.0 / DELTA)
    yield f"3/8 ln(1/delta) makes the bound {bound:.1f} there, more than the diameter 1"


def linear() -> Iterator[str]:
    """Noise for linear queries: width, shape and the Gaussian constant."""
    yield f"a rate of {number(RATE)} becomes {number(RATE)}^2 = {number(RATE**2)}"
    # An ellipse: length of the arc over area of its sector is one over the distance of the tangent
    # from the middle.
    tangent = [
        10.0 / math.hypot(10.0 * math.sin(t), math.cos(t))
        for t in np.linspace(0.0, math.pi / 2.0, 91)
    ]
    loss = math.log(max(tangent) / min(tangent))
    yield (
        f"near the origin the density is {max(tangent) / min(tangent):.0f} times as high "
        "in one direction as in the other, a loss "
        f"of ln 10 = {loss:.2f} at a distance as small as you like"
    )

    def gaussian(rate: float, width: float) -> float:
        shift = 1.0 / width
        return float(
            ndtr(shift / 2 - rate / shift) - math.exp(rate + log_ndtr(-shift / 2 - rate / shift))
        )

    printed = gaussian(RATE, math.sqrt(1.25 * math.log(1 / DELTA)) / RATE)
    textbook = gaussian(RATE, math.sqrt(2 * math.log(1.25 / DELTA)) / RATE)
    small = gaussian(1.0, math.sqrt(1.25 * math.log(1e6)))
    assert printed <= gaussian_delta(RATE, RATE / math.sqrt(1.25 * math.log(1 / DELTA))) * (
        1.0 + 1e-9
    )
    assert printed > DELTA
    assert textbook > DELTA
    assert small > 1e-6
    yield (
        f"at rate 1 and delta {number(1e-6)} the true delta at distance 1 is "
        f"{number(small, 3)}; at rate {number(RATE)} and delta "
        f"{number(DELTA)} it is {number(printed, 3)}"
    )
    yield (
        f"the textbook's sqrt(2 ln(1.25/delta)) fails there too, with {number(textbook, 3)}: "
        "it is stated for epsilon below 1"
    )
    spread = math.sqrt(2.0) * 0.04 / math.sqrt(USERS)
    average = spread * math.sqrt(2.0 / math.pi)
    yield (
        f"The mean error of the average of {USERS:,} Laplace draws of scale 0.04 is "
        f"{number(average, 3)}, not "
        f"{number(0.04 / math.sqrt(USERS), 3)}"
    )


def published_rate(item_rate: float, pool: int, log_inner: float) -> tuple[float, float]:
    """Theorem 4.4's h at w = 1 and its limit h/w at w -> 0; `log_inner` is ln(1/delta_in)."""
    growth = math.exp(item_rate)
    inside = (
        8.0 * math.sqrt(growth * (math.log(4 * ITEMS) + log_inner) / pool) + 8.0 * growth / pool
    )
    return ITEMS * math.log1p(
        (growth - 1.0) / (growth + 1.0) * inside
    ), ITEMS * item_rate / 2.0 * inside


def item_wise() -> Iterator[str]:
    """Theorem 4.4, its worked example and its condition."""
    pool = ITEMS * USERS
    inner = math.log(1.0 / DELTA) + RATE
    yield (
        f"a rate of {number(RATE)} at delta {number(DELTA)} for {USERS:,} users with "
        f"{ITEMS:,} items each) every item may be "
        "released at a rate of about 3.0"
    )
    whole, limit = published_rate(3.0, pool, inner)
    assert whole < limit
    yield (
        f"At an item rate of 3.0 the formula is {whole:.1f} for a full replacement and "
        f"{limit:.1f} per unit for small moves, and "
        "the supremum is the latter"
    )
    solved = brentq(lambda rate: published_rate(rate, pool, inner)[1] - RATE, 1.0, 3.0)
    assert ItemWiseProfile(4.3, ItemShuffle.of("central", USERS, ITEMS)).covers(RATE, DELTA, 1.0)
    yield "certifies an item rate of 4.3 for the same target. So 3.0 is safe"

    def fixed_point(rate: float) -> float:
        """h per unit for small moves, with inner delta = delta e^-h for a full replacement."""
        whole = brentq(
            lambda h: published_rate(rate, pool, math.log(1.0 / DELTA) + h)[0] - h, 0.0, 1000.0
        )
        return published_rate(rate, pool, math.log(1.0 / DELTA) + whole)[1]

    fixed = brentq(lambda rate: fixed_point(rate) - RATE, 1.0, 3.0)
    readings: dict[Reading, float] = {"delta e^-rate": solved, "fixed point": fixed}
    for reading, rate in readings.items():
        assert (
            abs(
                theorem_4_4_item_rate(RATE, DELTA, USERS, ITEMS, "central", reading).claim / rate
                - 1.0
            )
            < 1e-6
        )
    yield (
        f"Solved properly, the theorem allows {solved:.3f} if its inner delta is read as "
        f"delta e^-rate, and {fixed:.3f} if it is read "
        "as the fixed point"
    )

    def condition(items: int) -> float:
        return math.log(items / (16.0 * (math.log(4 * items) + inner)))

    last = next(items for items in range(1, 5000) if condition(items) > 0.0) - 1
    yield (
        f"for one user alone at rate {number(RATE)} and delta {number(DELTA)} it can hold for "
        f"no positive item rate up to {last} items"
    )
    simple = RATE / (32.0 * math.sqrt(ITEMS * (math.log(4 * ITEMS) + inner)))
    yield (
        f"with {ITEMS:,} items Equation 6 allows an item rate of {simple:.4f}, and plain "
        f"composition {RATE:g}/{ITEMS:,} = "
        f"{RATE / ITEMS:g} with delta 0"
    )


def baselines() -> Iterator[str]:
    """Lemmas 6.7 and 6.4, and the steps of Theorem 6.6."""
    yield (
        "One user of n moves from a to b: two cells change by 1/n each, and with noise of "
        "scale 1/(n epsilon) each costs epsilon, "
        "2 epsilon together"
    )
    noisy = (Fraction(6, 10), Fraction(-5, 10))
    scaled = [part / sum(noisy) for part in noisy]
    yield f"(0.6, -0.5) has the sum 0.1 and becomes ({scaled[0]}, {scaled[1]})"

    def composed(items: int, epsilon: float, delta: float) -> float:
        each = epsilon / math.sqrt(items * math.log(items / delta))
        kept = np.arange(items + 1.0)
        loss = (2.0 * kept - items) * each
        return float(
            binom.pmf(kept, items, 1.0 / (1.0 + math.exp(-each)))
            @ np.maximum(-np.expm1(np.minimum(epsilon - loss, 0.0)), 0.0)
        )

    wrong, fine = composed(ITEMS, 5.0, 1e-6), composed(ITEMS, 2.0, 1e-6)
    assert wrong > 1e-6 >= fine
    each = 5.0 / math.sqrt(ITEMS * math.log(ITEMS / 1e-6))
    assert wrong <= ComposedResponses(each, ITEMS).delta(5.0, 1.0) <= 1.001 * wrong
    yield (
        f"{ITEMS:,} binary answers with epsilon 5 and delta {number(1e-6)}: the exact delta is "
        f"{number(wrong, 3)}"
    )
    clusters = 10
    inner = 0.01
    rate = 0.05
    whole = math.exp(rate)
    within = math.exp((1 - inner) * rate)
    left = (whole + clusters) / (whole - within)
    right = clusters / (inner * rate)
    assert left > right
    yield (
        f"{clusters} clusters, r = {number(inner)} and item rate {number(rate)}: {left:,.0f} "
        f"is not at most {right:,.0f}"
    )


PARTS = (groups, sampling, linear, item_wise, baselines)
