"""Bounds of Wang24 (variation ratio) as published, the wrong ones included.

"Privacy Amplification via Shuffling: Unified, Simplified, and Tightened". They exist for
comparison. Nothing here is a `PrivacyProfile`, so no guarantee, plan or release can be made of it.
log is the natural logarithm, e = e^epsilon, and every epsilon is a total. The paper merges all
reports on which K_a = K_b with those of the others that are not clones; that discards their
information about user 1, and the bound comes out too small (Lemma 4.5).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from metricshuffle.citations import theorem
from metricshuffle.errors import ConditionError, InputError
from metricshuffle.privacy.profile import checked_epsilon
from metricshuffle_papers.published import (
    Published,
    Verdict,
    checked_number,
    checked_people,
    open_delta,
)

Floats = NDArray[np.float64]
Direction = Literal["P||Q", "Q||P"]

_CLONES = (
    "accounting.shuffling.clone_bound.delta_upper, or accounting.shuffling with "
    "BlanketLaw.three_symbol or BlanketLaw.from_rows"
)
_LOWER = "amplification.lower_bound, which is rounded down"
_BISECTIONS = 48
_NEGLIGIBLE = 1e-25  # probabilities of a number of clones below this are left out


@dataclass(frozen=True)
class Variation:
    """Parameters of a pair: K_a and K_b are within a factor p and beta apart in total variation.

    max(K_a/q0, K_b/q1) <= K_i. alpha = beta/(p-1), r0 = alpha p/q0, r1 = alpha p/q1, s = 1 - alpha
    - p alpha. q1 defaults to q0.
    """

    p: float
    beta: float
    q0: float
    q1: float | None = None

    def __post_init__(self) -> None:
        most = (checked_number("p", self.p, 1.0) - 1.0) / (self.p + 1.0)
        if not 0.0 < self.beta <= most * (1.0 + 1e-12):
            raise ConditionError(
                "Wang24", f"0 < beta <= (p-1)/(p+1) = {most:.6g}", f"{self.beta!r}"
            )
        one = self.q0
        other = self.q0 if self.q1 is None else self.q1
        if not (1.0 <= one < math.inf and 1.0 <= other < math.inf):
            raise InputError(f"q0 and q1 must be finite numbers >= 1, got {one!r} and {other!r}.")
        if not 1.0 / self.p <= one / other * (1.0 + 1e-12) <= self.p * (1.0 + 2e-12):
            raise ConditionError(
                "Wang24", f"q0/q1 in [1/p, p] with p = {self.p:.6g}", f"{one / other:.6g}"
            )
        object.__setattr__(self, "q1", other)
        if self.r0 + self.r1 > 1.0 + 1e-12:
            raise ConditionError(
                "Wang24", "r0 + r1 <= 1", f"{self.r0 + self.r1:.6g}; q0 and q1 are too small"
            )

    @property
    def alpha(self) -> float:
        return self.beta / (self.p - 1.0)

    @property
    def r0(self) -> float:
        return self.alpha * self.p / self.q0

    @property
    def r1(self) -> float:
        return self.alpha * self.p / (self.q0 if self.q1 is None else self.q1)

    @property
    def s(self) -> float:
        """Mass on which K_a = K_b; 0 up to rounding is 0."""
        left = 1.0 - self.alpha * (self.p + 1.0)
        return left if left > 1e-12 else 0.0

    @property
    def verdict(self) -> Verdict:
        """Verdict on the merged pair as an upper bound: true only if nothing is merged."""
        return "true" if self.s == 0.0 else "false"

    def common(self, statement: str) -> float:
        """Return r = r0 = r1; raise ConditionError if they differ."""
        if self.q0 != self.q1:
            raise ConditionError(
                f"{statement} of Wang24", "q0 = q1", f"{self.q0!r} and {self.q1!r}"
            )
        return self.r0


def _growth(epsilon: float) -> float:
    """e^epsilon; no p here exceeds e^700, beyond which every divergence is 0."""
    return math.exp(min(checked_epsilon(epsilon), 700.0))


def _at_least(clones: Floats, rho: float, k: Floats) -> Floats:
    """CDF_{c,rho}[k, c]: P(Bin(c, rho) >= k)."""
    from scipy.special import betainc

    inside = (k >= 1.0) & (k <= clones)
    tail = betainc(np.where(inside, k, 1.0), np.where(inside, clones - k + 1.0, 1.0), rho)
    return np.asarray(np.where(inside, tail, np.where(k < 1.0, 1.0, 0.0)))


def _at_most(clones: Floats, rho: float, k: Floats) -> Floats:
    """CDF_{c,rho}[0, k]: P(Bin(c, rho) <= k)."""
    return _at_least(clones, 1.0 - rho, clones - k)


def _weights(clones: Floats, users: int, chance: float) -> Floats:
    """binom(n-1, c) chance^c (1-chance)^(n-1-c)."""
    from scipy.special import gammaln, xlog1py, xlogy

    rest = users - 1.0 - clones
    ways = gammaln(users) - gammaln(clones + 1.0) - gammaln(rest + 1.0)
    return np.asarray(np.exp(ways + xlogy(clones, chance) + xlog1py(rest, -chance)))


def _cut(pair: Variation, users: int, clones: Floats, e: float) -> Floats:
    """low_c of Proposition I.1; with 1/e for e it is high_c."""
    rest = 1.0 - pair.r0 - pair.r1
    g = pair.s * (users - clones) / rest if pair.s > 0.0 else np.zeros_like(clones)
    below = pair.alpha * (pair.p / pair.r0 - 1.0 / pair.r1 + e * (pair.p / pair.r1 - 1.0 / pair.r0))
    return np.asarray(((e * pair.p - 1.0) * pair.alpha * clones / pair.r1 + (e - 1.0) * g) / below)


def _printed_cut(pair: Variation, users: int, clones: Floats, e: float) -> Floats:
    """low_c as printed in Appendix E: e - 1 where e p - 1 is meant."""
    r = pair.common("Appendix E")
    f = pair.s * (users - clones) * r / (1.0 - 2.0 * r) if pair.s > 0.0 else np.zeros_like(clones)
    return np.asarray(
        ((e - 1.0) * pair.alpha * clones + (e - 1.0) * f)
        / (pair.alpha * (e + 1.0) * (pair.p - 1.0))
    )


def _expectation(
    pair: Variation,
    users: int,
    e: float,
    direction: Direction,
    chance: float,
    printed: bool = False,
) -> float:
    """Sum over c of Proposition I.1, with weights of Bin(n-1, chance)."""
    clones = np.arange(float(users))
    cut = _printed_cut if printed else _cut
    weights = _weights(clones, users, chance)
    clones = clones[weights > _NEGLIGIBLE]
    weights = weights[weights > _NEGLIGIBLE]
    p = pair.p
    alpha = pair.alpha
    s = pair.s
    rho = pair.r0 / (pair.r0 + pair.r1)
    if direction == "P||Q":
        one_more = np.ceil(cut(pair, users, clones + 1.0, e))
        same = np.ceil(cut(pair, users, clones, e))
        mine, other, neither = (_at_least(clones, rho, k) for k in (one_more - 1.0, one_more, same))
    else:
        one_more = np.floor(cut(pair, users, clones + 1.0, 1.0 / e))
        same = np.floor(cut(pair, users, clones, 1.0 / e))
        other, mine, neither = (_at_most(clones, rho, k) for k in (one_more - 1.0, one_more, same))
    inside = (p - e) * alpha * mine + (1.0 - p * e) * alpha * other + (1.0 - e) * s * neither
    return float(weights @ inside)


def _worse(pair: Variation, users: int, epsilon: float, chance: float) -> float:
    """Larger of both directions, which are equal if q0 = q1."""
    e = _growth(epsilon)
    ways: tuple[Direction, ...] = ("P||Q",) if pair.q0 == pair.q1 else ("P||Q", "Q||P")
    return max(_expectation(pair, users, e, way, chance) for way in ways)


@theorem("Wang24", "Proposition I.1, as published: true")
def merged_divergence(
    pair: Variation, users: int, epsilon: float, direction: Direction = "P||Q"
) -> Published:
    """Hockey-stick divergence of the merged pair P = (A+D1, C-A+D2), Q = (A+D2, C-A+D1).

    Statement: C ~ Bin(n-1, r0+r1), A ~ Bin(C, r0/(r0+r1)), D1 ~ Bern(p alpha), D2 ~ Bern(alpha/(1-p
    alpha)) unless D1 = 1. With low_c = ((ep-1) alpha c/r1 + (e-1) s (n-c)/(1-r0-r1))/(alpha (p/r0 -
    1/r1 + e (p/r1 - 1/r0))), P||Q is the mean over C of (p-e) alpha CDF[ceil low_(C+1) - 1, C] +
    (1-pe) alpha CDF[ceil low_(C+1), C] + (1-e) s CDF[ceil low_C, C].
    Conditions: beta <= (p-1)/(p+1), q0/q1 in [1/p, p].
    Numerics: floats, not rounded outward.
    Reference: true of the pair; it is a LOWER bound for shuffled reports (Theorem 5.1) and not an
    upper bound unless s = 0.
    """
    e = _growth(epsilon)
    claim = _expectation(pair, checked_people(users), e, direction, pair.r0 + pair.r1)
    return Published(claim, f"Proposition I.1, {direction}", "true", _LOWER)


@theorem("Wang24", "Lemma 4.6, as published: true")
def lemma_4_6(pair: Variation, beta: float) -> Variation:
    """Pair with a smaller total variation, whose divergences are at most those of `pair`.

    Statement: for 0 < beta' <= beta, D(P' || Q') <= D(P || Q) for the merged pairs with the same p,
    q0, q1 and number of users, and every D that satisfies the data processing inequality.
    Proof: replace each of the two counts by a binomial number with chance t = beta'/beta. Every
    person's count vector is one of (1, 0), (0, 1), (0, 0); thinning multiplies the first two
    probabilities by t: p alpha, alpha, r0 and r1 become p alpha', alpha', r0' and r1'. So P and Q
    become P' and Q' by the same post-processing.
    Conditions: 0 < beta' <= beta.
    Reference: Appendix D prints alpha' = beta'/(beta - 1); it is beta'/(p - 1). The merged pair
    itself bounds shuffled reports from below only, unless s = 0 (see `merged_delta`).
    """
    checked_number("beta", beta, 0.0, pair.beta)
    return replace(pair, beta=beta)


@theorem("Wang24", "Lemma 4.5 and Theorems 4.7 and 4.8, as published: false")
def merged_delta(pair: Variation, users: int, epsilon: float) -> Published:
    """Delta of the merged pair (worse direction) as an upper bound for shuffled reports.

    Conditions: q0 = q1, as published.
    Reference: false if s > 0 (k-RR with k >= 3, local hash, subsets, Laplace, WitchHat): with 4-RR,
    p = 3, two users, e = 2.4, it gives 1/60; the truth is 1/36 with the other user at a third value
    and 1/20 with the other user at a. The proof re-inserts "user 1 drew the common part" with one
    probability for both hypotheses; the odds differ unless a = b.
    """
    claim = _worse(pair, checked_people(users), epsilon, 2.0 * pair.common("Theorem 4.8"))
    return Published(claim, "Theorems 4.7 and 4.8", pair.verdict, _CLONES)


def _crossing(pair: Variation, users: int, delta: float, chance: float) -> tuple[float, float]:
    """eps_L and eps_H of Algorithm 3."""
    low = 0.0
    high = math.log(pair.p)
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if _worse(pair, users, middle, chance) > delta else (low, middle)
    return low, high


@theorem("Wang24", "Theorems 4.7 and 4.8 solved for epsilon, as published: false")
def merged_epsilon(pair: Variation, users: int, delta: float) -> Published:
    """Epsilon that Theorem 4.7 claims at this delta.

    It is the upper end of the bisection of the merged pair's delta.
    Conditions: q0 = q1.
    Reference: as for `merged_delta`; true only if s = 0.
    """
    claim = _crossing(
        pair, checked_people(users), open_delta(delta), 2.0 * pair.common("Theorem 4.7")
    )[1]
    return Published(claim, "Theorem 4.7 for epsilon", pair.verdict, _CLONES)


@theorem("Wang24", "Theorem 5.1, as published: true")
def lower_epsilon(pair: Variation, users: int, delta: float) -> Published:
    """Lower bound on epsilon if all others hold one x*.

    It is the lower end of the bisection, with the weights of Proposition I.1.
    Statement: reports put into {K_a > K_b}, {K_a < K_b} and the rest are the merged pair with q0,
    q1 of x*, by post-processing.
    Conditions: K_a = p K_b on the first set, K_b = p K_a on the second, K_a = q0 K_x* and K_b = q1
    K_x* there, beta their total variation.
    """
    claim = _crossing(pair, checked_people(users), open_delta(delta), pair.r0 + pair.r1)[0]
    return Published(claim, "Theorem 5.1", "true", _LOWER)


@theorem("Wang24", "low_c and high_c of Appendix E, as published: false")
def appendix_e_delta(
    pair: Variation, users: int, epsilon: float, direction: Direction = "P||Q"
) -> Published:
    """Theorem 4.8 with the thresholds printed in Appendix E.

    Statement: low_c = ((e-1) alpha c + (e-1) f)/(alpha (e+1)(p-1)), f = s (n-c) r/(1-2r); high_c
    the same with 1/e.
    Conditions: q0 = q1.
    Reference: false: e p - 1 is meant for the first e - 1. high_c is never positive, so that Q||P
    is 0 ("private"), and low_c sums outcomes where P < e Q, so that P||Q is too small and can be
    negative.
    """
    e = _growth(epsilon)
    claim = _expectation(
        pair, checked_people(users), e, direction, 2.0 * pair.common("Appendix E"), printed=True
    )
    return Published(claim, f"Theorem 4.8 by Appendix E, {direction}", "false", _CLONES)


@theorem("Wang24", "Algorithm 3, line 4, as published: false")
def algorithm_3_delta(
    pair: Variation, users: int, epsilon: float, direction: Direction = "P||Q"
) -> Published:
    """Proposition I.1 with the weights printed in Algorithm 3.

    Statement: the weights are binom(n-1, c) (2r)^c (1-2r)^(n-1-c), r read as r0.
    Conditions: 2 r0 <= 1.
    Reference: false unless q0 = q1: the weights are those of Bin(n-1, r0+r1).
    """
    if 2.0 * pair.r0 > 1.0:
        raise ConditionError("Algorithm 3 of Wang24", "2 r <= 1", f"{2.0 * pair.r0:.6g}")
    e = _growth(epsilon)
    claim = _expectation(pair, checked_people(users), e, direction, 2.0 * pair.r0)
    return Published(
        claim, f"Algorithm 3, {direction}", "true" if pair.q0 == pair.q1 else "false", _LOWER
    )


@theorem("Wang24", "Theorem 4.2, as published: false")
def theorem_4_2(pair: Variation, users: int, delta: float, *, conditions: bool = True) -> Published:
    """Closed form from a Chernoff and a Hoeffding bound.

    `conditions=False` evaluates it where the paper does not allow it.
    Statement: eps = log(1 + beta (2t+1)/(alpha Om + beta (Om/2 - t) + s (n-1-Om) r/(1-2r))), L =
    log(4/delta), t = sqrt(Om L/2), Om = 2r(n-1) - sqrt(min(6r, 1/2)(n-1) L).
    Conditions: alpha + beta/2 >= s r/(1-2r) and Om >= (2p(beta+1+(beta-1)p)(n-1) + beta)/(q +
    p(beta-1+(beta+1)p) - pq).
    Reference: false: with these conditions it can be below the merged pair's own epsilon; Om >= 2
    log(4/delta) is missing. And as an upper bound it inherits Lemma 4.5.
    """
    r = pair.common("Theorem 4.2")
    delta = open_delta(delta)
    n = checked_people(users)
    p = pair.p
    beta = pair.beta
    q = pair.q0
    log_4 = math.log(4.0 / delta)
    omega = 2.0 * r * (n - 1) - math.sqrt(min(6.0 * r, 0.5) * (n - 1) * log_4)
    spread = pair.s * r / (1.0 - 2.0 * r) if pair.s > 0.0 else 0.0
    above = 2.0 * p * (beta + 1.0 + (beta - 1.0) * p) * (n - 1) + beta
    under = q + p * (beta - 1.0 + (beta + 1.0) * p) - p * q
    fewest = above / under if under != 0.0 else math.copysign(math.inf, above)
    if conditions and pair.alpha + 0.5 * beta < spread:
        raise ConditionError(
            "Theorem 4.2 of Wang24",
            "alpha + beta/2 >= s r/(1-2r)",
            f"{pair.alpha + 0.5 * beta:.6g} and {spread:.6g}",
        )
    if omega <= 0.0 or (conditions and omega < fewest):
        raise ConditionError(
            "Theorem 4.2 of Wang24", f"Omega > 0 and Omega >= {fewest:.6g}", f"{omega:.6g}"
        )
    t = math.sqrt(0.5 * omega * log_4)
    below = pair.alpha * omega + beta * (0.5 * omega - t) + spread * (n - 1 - omega)
    if below <= 0.0:
        raise ConditionError("Theorem 4.2 of Wang24", "a positive denominator", f"{below:.6g}")
    verdict: Verdict = "loose" if conditions and pair.s == 0.0 and omega >= 2.0 * log_4 else "false"
    return Published(math.log1p(beta * (2.0 * t + 1.0) / below), "Theorem 4.2", verdict, _CLONES)


def _theorem_4_3(pair: Variation, users: int, delta: float, printed: bool) -> float:
    r = pair.common("Theorem 4.3")
    delta = open_delta(delta)
    n = checked_people(users)
    fewest = 8.0 * math.log(2.0 / delta) / r
    if n < fewest:
        raise ConditionError(
            "Theorem 4.3 of Wang24", f"users >= 8 log(2/delta)/r = {fewest:.6g}", f"{n}"
        )
    ratio = (1.0 + pair.p) / (pair.p - 1.0)
    apart = max(0.0, 4.0 * (1.0 - 3.0 * r) / (9.0 * (1.0 - 2.0 * r))) if r < 1.0 / 3.0 else 0.0
    rest = pair.s
    below = pair.beta * ratio + ((1.0 - pair.beta) * ratio if printed else rest) * apart
    return math.log1p(
        pair.beta
        / below
        * (math.sqrt(32.0 * math.log(4.0 / delta) / (r * (n - 1))) + 4.0 / (r * n))
    )


@theorem("Wang24", "Theorem 4.3 as derived in Equations 11 and 12: false")
def theorem_4_3(pair: Variation, users: int, delta: float) -> Published:
    """Simplest closed form.

    Statement: eps = log(1 + beta/(k + (1-k) c_r) (sqrt(32 log(4/delta)/(r(n-1))) + 4/(rn))), k =
    beta (1+p)/(p-1), c_r = max(0, 4(1-3r)/(9(1-2r))).
    Conditions: n >= 8 log(2/delta)/r.
    Reference: follows from the merged pair, so it is not an upper bound if s > 0, though 2 to 6
    times larger than the merged pair's own epsilon.
    """
    return Published(
        _theorem_4_3(pair, users, delta, False),
        "Theorem 4.3",
        "loose" if pair.s == 0.0 else "false",
        _CLONES,
    )


@theorem("Wang24", "Theorem 4.3 as printed at the end of Appendix G: false")
def theorem_4_3_printed(pair: Variation, users: int, delta: float) -> Published:
    """Theorem 4.3 with the denominator beta (1+p)/(p-1) + (1-beta) (1+p)/(p-1) c_r.

    Conditions: n >= 8 log(2/delta)/r.
    Reference: false even where s = 0: 1 - beta (1+p)/(p-1) is meant, and p close to 1 makes the
    printed epsilon smaller than the truth.
    """
    return Published(
        _theorem_4_3(pair, users, delta, True), "Theorem 4.3 as printed", "false", _CLONES
    )
