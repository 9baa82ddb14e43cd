"""Published closed forms for shuffled metric privacy, each with its conditions.

They come from a paper on metric differential privacy in the shuffle model of which only the
supplement was at hand: Theorem 1 (Equation 1), Corollary 1 (Equation 2) and Corollary 2 (Equation
3). The exact form of Theorem 1 is inferred from its proof; its factor is printed there as
e^D/(e^D+1), which is valid but loose, and is (e^D-1)/(e^D+1) in Corollary 2, as here.

Notation: n people send one report each, K(c) is the law of the report of value c, and `local` = D =
D(a, b) is the local epsilon of the pair (a, b) of values that person 1 may hold. R = max_c
(e^D(a,c) + e^D(b,c)) over all possible values c, `log_ratio` = log R, and L = log(4/delta). A clone
is a report of another person that is drawn from K(a) or K(b).
"""

from __future__ import annotations

import math

import numpy as np

from metricshuffle.accounting.shuffling.clone_bound import checked_users
from metricshuffle.citations import theorem
from metricshuffle.errors import ConditionError, InputError, argument
from metricshuffle.numerics.certified_search import last_certified_integer
from metricshuffle.privacy.profile import checked_delta, checked_epsilon

ROUNDING_SLACK = 1e-13
LOG_TWO = math.log(2.0)


def _checked(local: float, log_ratio: float, users: int, delta: float) -> float:
    """Validate all arguments and return L = log(4/delta)."""
    local = checked_epsilon(local)
    users = checked_users(users)
    if not checked_delta(delta) > 0.0:
        raise InputError(
            f"{argument('delta')} must be > 0 here; with delta = 0 shuffling changes "
            "nothing, and epsilon is the local one."
        )
    min_log_ratio = float(np.logaddexp(0.0, local))
    if not min_log_ratio * (1.0 - 1e-12) <= log_ratio < math.inf:
        raise InputError(
            "log_ratio must be finite and at least log(1 + e^local) = "
            f"{min_log_ratio:.12g}, got {log_ratio!r}."
        )
    return math.log(4.0 / delta)


def _epsilon_among_clones(clones: float, local: float, log_4_delta: float, statement: str) -> float:
    """Return log(1 + tanh(D/2) (2s+1)/(Omega/2-s)), at most D, with s = sqrt(Omega L/2).

    Omega is the number of `clones`, D = `local` and L = `log_4_delta`; the result is rounded up.
    """
    s = math.sqrt(0.5 * max(clones, 0.0) * log_4_delta)
    room = (0.5 * clones - s) - ROUNDING_SLACK * clones
    if not room > 0.0:
        condition = f"more than 2 log(4/delta) = {2.0 * log_4_delta:.6g} clones"
        raise ConditionError(
            statement,
            condition,
            f"{max(clones, 0.0):.6g}; shuffling buys nothing there by this bound",
        )
    return min(
        local, math.log1p(math.tanh(0.5 * local) * (2.0 * s + 1.0) / room) * (1.0 + ROUNDING_SLACK)
    )


def chernoff_clones(log_ratio: float, users: int, delta: float) -> float:
    """Return Omega = (n-1) 2/R - sqrt(3 (n-1) 2/R L), a lower bound on the number of clones.

    With probability at most delta/2 there are fewer clones. The result is negative if there may be
    no clones.
    """
    mean = (users - 1) * 2.0 * math.exp(-log_ratio)
    return mean - math.sqrt(3.0 * mean * math.log(4.0 / delta)) - ROUNDING_SLACK * mean


def quantile_clones(log_ratio: float, users: int, delta: float) -> float:
    """Return the largest k with a certified P(Bin(n-1, 2/R) < k) <= delta/2."""
    from metricshuffle.accounting.shuffling import _binomial_tail_kernels as kernels

    high = min(1.0, 2.0 * math.exp(-log_ratio) * (1.0 - ROUNDING_SLACK))
    count = float(users - 1)
    low = 1.0 - high

    def certified(clones: int) -> bool:
        return bool(kernels.upper_tail(count - clones + 1.0, count, low, high)[1] <= 0.5 * delta)

    return float(last_certified_integer(certified, math.floor(count * high) + 1, 0))


@theorem("WitchHat", "Theorem 1 (Equation 1)")
def theorem_1(local: float, log_ratio: float, users: int, delta: float) -> float:
    """Amplified epsilon of a pair, from a Chernoff bound on the number of clones.

    Statement: eps = log(1 + (e^D-1)/(e^D+1) (2s+1)/(Omega/2-s)), Omega = (n-1) 2/R - sqrt(3 (n-1)
    (2/R) L), s = sqrt(Omega L/2).
    Proof: K(c) >= (K(a)+K(b))/R, so each other report is a clone with probability 2/R, of a or b
    with equal probability. Let C be the number of clones, and A ~ Bin(C, 1/2) the number of clones
    of a. If person 1's report were drawn from K(a) or K(b) outright, the counts of reports would be
    P' = (A+1, C-A) or Q' = (A, C-A+1), with the ratio P'/Q' = (A+1)/(C-A). C >= Omega except with
    probability delta/2 (Chernoff), and |A - C/2| <= sqrt(C L/2) except with probability delta/2
    (Hoeffding), so P'/Q' <= 1 + (2s+1)/(Omega/2-s), which decreases with C for C > 2L. Person 1
    reports a mixture: P = (1-t) M + t P', Q = (1-t) M + t Q', M = (P'+Q')/2, t = tanh(D/2); by
    advanced joint convexity (Balle, Barthe, Gaboardi 2018) eps shrinks to log(1 + t (e^eps - 1)).
    Conditions: Omega > 2L (ConditionError otherwise), delta > 0.
    Numerics: rounded up.
    Reference: this docstring.
    """
    log_4_delta = _checked(local, log_ratio, users, delta)
    return _epsilon_among_clones(
        chernoff_clones(log_ratio, users, delta), local, log_4_delta, "Theorem 1"
    )


@theorem("WitchHat", "Corollary 1 (Equation 2)")
def corollary_1(local: float, diameter: float, users: int, delta: float) -> float:
    """Theorem 1 from the largest local epsilon of the domain alone.

    Statement: Theorem 1 with R = 2 e^Dmax, Dmax = `diameter` the largest local epsilon of any pair;
    this R is never too small.
    Conditions: Omega > 2L; local <= diameter.
    Numerics: rounded up.
    Reference: Theorem 1.
    """
    if not local <= diameter:
        raise InputError(
            "diameter, the largest local epsilon, must be at least that of the pair, "
            f"{local!r}, got {diameter!r}."
        )
    log_ratio = (LOG_TWO + checked_epsilon(diameter)) * (1.0 + ROUNDING_SLACK)
    log_4_delta = _checked(local, log_ratio, users, delta)
    return _epsilon_among_clones(
        chernoff_clones(log_ratio, users, delta), local, log_4_delta, "Corollary 1"
    )


@theorem("WitchHat", "Corollary 2 (Equation 3)")
def corollary_2(local: float, log_ratio: float, users: int, delta: float) -> float:
    """Simplest closed form of the amplified epsilon.

    Statement: eps = log(1 + 8 (e^D-1)/(e^D+1) (sqrt(R L/(2(n-1))) + R/(2(n-1)))).
    Proof: in Theorem 1, n > 8 L R gives Omega/2 - s >= Omega/4 >= (n-1)/(4R) ((n-1) 2/R >= 14.65 L
    suffices), and s increases with Omega <= (n-1) 2/R.
    Conditions: n > 8 L R (ConditionError otherwise).
    Numerics: rounded up.
    Reference: Theorem 1.
    """
    log_4_delta = _checked(local, log_ratio, users, delta)
    if not math.log(users) > (math.log(8.0 * log_4_delta) + log_ratio) * (1.0 + ROUNDING_SLACK):
        needed = (
            "users > 8 R log(4/delta) = "
            f"{math.exp(min(math.log(8.0 * log_4_delta) + log_ratio, 700.0)):.6g}"
        )
        raise ConditionError(
            "Corollary 2", needed, f"{users:,}; shuffling buys nothing there by this bound"
        )
    each = math.exp(log_ratio) / (2.0 * (users - 1))
    excess = 8.0 * math.tanh(0.5 * local) * (math.sqrt(each * log_4_delta) + each)
    return min(local, math.log1p(excess) * (1.0 + ROUNDING_SLACK))


@theorem("WitchHat", "exact tail")
def exact_tail(local: float, log_ratio: float, users: int, delta: float) -> float:
    """Theorem 1 with the exact quantile of the number of clones in place of the Chernoff bound.

    Statement: Omega = max{k : P(Bin(n-1, 2/R) < k) <= delta/2}; never worse than Theorem 1.
    Conditions: Omega > 2L (ConditionError otherwise).
    Numerics: the tail is enclosed; k is the last certified value.
    Reference: Theorem 1.
    """
    log_4_delta = _checked(local, log_ratio, users, delta)
    return _epsilon_among_clones(
        quantile_clones(log_ratio, users, delta),
        local,
        log_4_delta,
        "Theorem 1 with the exact tail",
    )
