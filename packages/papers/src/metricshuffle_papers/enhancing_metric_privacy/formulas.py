"""Formulas of Athanasiou25 exactly as published, the wrong ones included.

"Enhancing Metric Privacy With a Shuffler". They exist for comparison. They return a `Published`,
which is not a `PrivacyProfile`: no guarantee, plan or release can be made of it. Each names its
verdict and what to use instead. Here epsilon is, as in the paper, per unit of distance (a rate);
log is the natural logarithm, and every distance is a whole number of steps.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import NoReturn

from metricshuffle.citations import theorem
from metricshuffle.errors import ConditionError, InputError
from metricshuffle.noise.polya import Polya
from metricshuffle_papers.published import Published, checked_number, checked_people, open_delta

_SUMS = "accounting.sums.additive_noise.AdditiveNoise(Polya(...)), which states a distance"
_COUNTS = "accounting.sums.flipped_bit_count.RandomizedResponseProfile"
_PADDING = (
    "accounting.sums.additive_noise.Clamped at a stated distance, as plan(..., "
    "encoding='unary') does"
)


def _union_share(users: int, delta: float) -> float:
    """Failure probability 1 - (1 - delta)^(1/n) of each of n independent users."""
    return -math.expm1(math.log1p(-delta) / users)


@theorem("Athanasiou25", "Theorem 4.1, as published: false beyond a distance")
def geo_shuffle_epsilon(rate: float, users: int, delta: float, distance: int = 1) -> Published:
    """Epsilon per unit of Geo-Shuffle at one distance, ln g(-alpha, d) / d.

    The paper takes distance 1 for the maximum.
    Statement: t = 2 rate/sqrt(n), alpha = (n log M(t) - log(delta/4))/t with M(t) = (1-p)^2/((1-p
    e^t)(1-p e^-t)), p = e^-rate; g = max(h, 1/h), h = f(floor(-alpha - d/2)) / f(floor(-alpha +
    d/2)), f the law SGDL(n, p).
    Conditions: t < rate, that is more than 4 users (the paper does not say so). The last exponent
    of h is printed with r - d/2 where r + d/2 is meant (as in Eq. 45), and that is what is
    evaluated.
    Numerics: log masses of the certified law.
    Reference: refuted for large d: |noise| <= alpha was meant, but the ratio is bounded for
    outcomes within alpha of the midpoint of the two sums; and d = 1 is not the maximum.
    """
    rate = checked_number("rate", rate, 0.0, 700.0)
    delta = checked_number("delta", delta, 0.0, 1.0)
    users = checked_people(users)
    if users <= 4:
        raise ConditionError(
            "Theorem 4.1 of Athanasiou25",
            "t = 2 rate/sqrt(users) < rate, that is more than 4 users",
            f"{users}",
        )
    if distance != int(distance) or distance < 1:
        raise InputError(f"distance must be a whole number >= 1, got {distance!r}.")
    t = 2.0 * rate / math.sqrt(users)
    p = math.exp(-rate)
    q = -math.expm1(-rate)
    log_moment = 2.0 * math.log(q) - math.log(-math.expm1(t - rate)) - math.log1p(-p * math.exp(-t))
    alpha = (users * log_moment - math.log(delta / 4.0)) / t
    far = abs(math.floor(-alpha - distance / 2.0))
    near = abs(math.floor(-alpha + distance / 2.0))
    law = Polya(Fraction(users), rate).law(math.log(delta) - 10.0, max(far, near))
    claim = abs(float(law.log_mass[near] - law.log_mass[far])) / distance
    return Published(claim, f"Theorem 4.1 at distance {distance}", "false beyond a distance", _SUMS)


@theorem("Athanasiou25", "Lemma C.1, as published: false")
def sgdl_padding(epsilon: float, users: int, delta: float) -> Published:
    """Padding c of SGDL-Shuffle, on which Theorem 5.1 rests.

    Statement: c = ceil(u (1 - e^-epsilon)/n), u = 1 + (sqrt(w(w-4)) - w)/2, w = 2n log((1 -
    (1-delta)^(1/n))/2); then some |N_i| > c with probability at most delta.
    Conditions: delta in (0, 1), as printed.
    Numerics: plain floats.
    Reference: refuted: c shrinks as epsilon falls while the noise grows like 1/epsilon (the tail
    bound behind it is for a number of trials with mean b/q and integer b, and was used with b q and
    b = 1/n).
    """
    epsilon = checked_number("epsilon", epsilon, 0.0)
    delta = open_delta(delta)
    users = checked_people(users)
    w = 2.0 * users * math.log(_union_share(users, delta) / 2.0)
    u = 1.0 + (math.sqrt(w * (w - 4.0)) - w) / 2.0
    return Published(
        float(math.ceil(-u * math.expm1(-epsilon) / users)),
        "Lemma C.1 and Theorem 5.1",
        "false",
        _PADDING,
    )


@theorem("Athanasiou25", "Proposition 2, as published: loose")
def geo_padding(rate: float, users: int, delta: float) -> Published:
    """Padding c of Geo-Shuffle, exceeded with probability <= delta/2.

    Statement: ceil(-log((1 + e^-rate)(1 - (1-delta/2)^(1/n))/2) / rate).
    Reference: true, but it counts |N| >= c where |N| > c is meant; and the sum, if no one exceeds
    it, has another law (truncated_delta).
    """
    share = _union_share(checked_people(users), open_delta(delta) / 2.0)
    claim = math.ceil(
        -math.log((1.0 + math.exp(-checked_number("rate", rate, 0.0))) * share / 2.0) / rate
    )
    return Published(float(claim), "Proposition 2", "loose", _PADDING)


def exceeding_probability(epsilon: float, users: int, padding: int) -> float:
    """True probability that some user's SGDL(1/n) noise leaves -padding..padding.

    Certified, rounded up.
    """
    one = Polya(Fraction(1, checked_people(users)), epsilon).law(-60.0, padding).beyond(padding)
    return min(1.0, -math.expm1(users * math.log1p(-one)) * (1.0 + 1e-15)) if one < 1.0 else 1.0


def refuse_published_padding(epsilon: float, users: int, delta: float) -> NoReturn:
    """Reject SGDL-Shuffle's published padding with the probability that some user exceeds it."""
    padding = int(sgdl_padding(epsilon, users, delta).claim)
    true = exceeding_probability(epsilon, users, padding)
    raise ConditionError(
        "SGDL-Shuffle's published padding (Athanasiou25, Lemma C.1)",
        f"noise that leaves the padding with probability at most delta = {delta:g}, and a "
        "distance up to which this is enough",
        f"a padding of {padding}, which the noise of some of {users} users exceeds with "
        f"probability {true:.6g}, and no distance; "
        "use plan(..., encoding='unary'), which finds the smallest padding that keeps a "
        "target at its distance",
    )


@theorem("Athanasiou25", "Theorem 3.1, as published: false beyond a distance")
def rr_epsilon(lam: float, delta: float) -> Published:
    """Epsilon per unit of RR-Shuffle.

    Statement: sqrt(32 log(4/delta) / (lam - sqrt(2 lam log(2/delta)))), lam = p n k random bits.
    Conditions: lam >= 14 log(4/delta), as published (and lam <= n k, the number of bits).
    Reference: the tail event is centred on the wrong point: several times too large for near data
    sets, false for far ones.
    """
    lam = checked_number("lam", lam, 0.0)
    delta = open_delta(delta)
    fewest = 14.0 * math.log(4.0 / delta)
    if lam < fewest * (1.0 - 1e-12):
        raise ConditionError(
            "Theorem 3.1 of Athanasiou25", f"lam >= 14 log(4/delta) = {fewest:.4g}", f"{lam:g}"
        )
    claim = math.sqrt(
        32.0 * math.log(4.0 / delta) / (lam - math.sqrt(2.0 * lam * math.log(2.0 / delta)))
    )
    return Published(claim, "Theorem 3.1", "false beyond a distance", _COUNTS)


@theorem("Athanasiou25", "Theorem 3.1 solved for lambda, as published: false beyond a distance")
def rr_lambda(epsilon: float, delta: float) -> Published:
    """Fewest random bits for which Theorem 3.1 claims `epsilon` (a quadratic in sqrt(lam)).

    n k must be at least this.
    """
    epsilon = checked_number("epsilon", epsilon, 0.0)
    delta = open_delta(delta)
    linear = math.sqrt(2.0 * math.log(2.0 / delta))
    constant = 32.0 * math.log(4.0 / delta) / epsilon**2
    root = 0.5 * (linear + math.sqrt(linear**2 + 4.0 * constant))
    return Published(
        max(root**2, 14.0 * math.log(4.0 / delta)),
        "Theorem 3.1 for lambda",
        "false beyond a distance",
        _COUNTS,
    )


@theorem("Athanasiou25", "Theorem 7.1, as published: false")
def rr_colluding_epsilon(random_bit: float, bits: int, delta: float) -> Published:
    """Epsilon per unit of one RR-Shuffle report of `bits` bits when the shuffler colludes.

    Statement: Theorem 3.1 at lam = random_bit * bits. `random_bit` is p, the probability that a bit
    is replaced by a uniform one.
    Conditions: bits >= lam >= 14 log(4/delta).
    Reference: false: without a shuffler positions are visible, and the unary codes of x and x+1
    differ in one known bit.
    """
    claim = rr_epsilon(checked_number("random_bit", random_bit, 0.0, 1.0) * bits, delta).claim
    instead = (
        "accounting.sums.flipped_bit_count.local_profile (the client hides positions) or "
        "unpermuted_local_delta (it does not)"
    )
    return Published(claim, "Theorem 7.1", "false", instead)


@theorem("Athanasiou25", "Theorem 7.2, as published: loose")
def sgdl_colluding_epsilon(epsilon: float, users: int, distance: int = 1) -> Published:
    """Epsilon per unit of one SGDL-Shuffle report: ln g(0, d)/d with f = SGDL(1/n, e^-epsilon).

    The paper takes distance 1.
    Reference: the value at distance 1 is right, and holds with delta = 0 (the paper spends delta);
    but the proof's "the same for all r in -d..0" is not: at distance 2 it compares f(-1) with f(1)
    and finds 0.
    """
    low = abs(math.floor(-distance / 2.0))
    high = abs(math.floor(distance / 2.0))
    law = Polya(Fraction(1, checked_people(users)), epsilon).law(-60.0, low)
    claim = abs(float(law.log_mass[low] - law.log_mass[high])) / distance
    return Published(
        claim,
        f"Theorem 7.2 at distance {distance}",
        "loose",
        "Polya(Fraction(1, users), epsilon).pure(distance), at delta 0",
    )


@theorem("Athanasiou25", "Equation 19, as published: false")
def rr_bit_variance(random_bit: float) -> Published:
    """Variance of one randomized bit: (p/2)(1 - p); the truth is (p/2)(1 - p/2)."""
    p = checked_number("random_bit", random_bit, 0.0, 1.0)
    return Published(
        0.5 * p * (1.0 - p), "Equation 19", "false", "flip * (1 - flip) with flip = random_bit / 2"
    )


@theorem("Athanasiou25", "Equation 22, as published: true")
def rr_total_variance(lam: float, bits: int) -> Published:
    """Variance of the debiased total: (m/(m - lam))^2 (lam/2)(1 - lam/(2m)), m bits."""
    lam = _fewer_than_bits(lam, bits)
    claim = (bits / (bits - lam)) ** 2 * (lam / 2.0) * (1.0 - lam / (2.0 * bits))
    return Published(
        claim, "Equation 22", "true", "randomizers.count_response.CountResponse.total_variance"
    )


@theorem("Athanasiou25", "Theorem 3.2, as published: loose")
def rr_error_bound(lam: float, bits: int, beta: float) -> Published:
    """Error that the debiased total exceeds with probability below beta.

    Statement: m/(m - lam) sqrt(2 lam log(2/beta)), for m bits.
    Conditions: m > lam >= 2 log(2/beta).
    Reference: true (Bernstein's inequality needs lam >= 8/9 log(2/beta) only).
    """
    lam = _fewer_than_bits(lam, bits)
    beta = checked_number("beta", beta, 0.0, 1.0)
    if lam < 2.0 * math.log(2.0 / beta):
        raise ConditionError(
            "Theorem 3.2 of Athanasiou25",
            f"lam >= 2 log(2/beta) = {2.0 * math.log(2.0 / beta):.4g}",
            f"{lam:g}",
        )
    claim = bits / (bits - lam) * math.sqrt(2.0 * lam * math.log(2.0 / beta))
    return Published(
        claim, "Theorem 3.2", "loose", "accounting.sums.flipped_bit_count.count_interval"
    )


@theorem("Athanasiou25", "Proposition 4, as published: false")
def sgdl_unlike_central(delta: float) -> Published:
    """Probability delta that SGDL-Shuffle's answer differs from Geo-Central's.

    Reference: false with the padding of Lemma C.1.
    """
    return Published(
        open_delta(delta), "Proposition 4", "false", "exceeding_probability of the padding in use"
    )


@theorem("Athanasiou25", "Proposition 6, as published: loose")
def geo_unlike_sum(delta: float) -> Published:
    """Probability delta/2 that Geo-Shuffle's answer differs from the sum plus SGDL(n) noise.

    Reference: true, with a much smaller probability.
    """
    return Published(
        open_delta(delta) / 2.0,
        "Proposition 6",
        "loose",
        "randomizers.additive_randomizer.AdditiveRandomizer.clamp_probability",
    )


@theorem("Athanasiou25", "Proposition 3, as published: true")
def truncated_delta(missed: float, inside: float) -> Published:
    """delta_1 + delta_2: missed = P(not H), inside = the delta of the mechanism GIVEN H.

    Reference: true, but the paper applies it with the delta of the untruncated law, which is
    smaller.
    """
    return Published(
        missed + inside, "Proposition 3", "true", "accounting.sums.additive_noise.Clamped"
    )


@theorem("Athanasiou25", "Theorem D.1, as published: loose")
def composed_delta(delta: float) -> Published:
    """2 delta for two independent (epsilon, delta) axes, which are (epsilon, 2 delta) in l1.

    Reference: true for all sets, although the proof is for product sets: with R_i = min(P_i,
    e^(e_i) Q_i) and s_i = P_i - R_i, P1 x P2 = R1 x R2 + R1 x s2 + s1 x P2, whose last two terms
    have mass at most 1 - (1-delta)^2.
    """
    return Published(
        2.0 * open_delta(delta),
        "Theorem D.1",
        "loose",
        "accounting.sums.planar_noise.PerAxisProfile, or PlanarNoise (joint, less noise)",
    )


@theorem("Athanasiou25", "Proposition 7, as published: loose")
def planar_epsilon(epsilon: float) -> Published:
    """epsilon sqrt(2) in l2, for epsilon in l1."""
    return Published(
        math.sqrt(2.0) * epsilon,
        "Proposition 7",
        "loose",
        "accounting.sums.planar_noise.PlanarNoise",
    )


def _fewer_than_bits(lam: float, bits: int) -> float:
    if not 0.0 < lam < bits:
        raise ConditionError(
            "RR-Shuffle's utility in Athanasiou25", f"0 < lam < {bits} bits", f"{lam!r}"
        )
    return lam
