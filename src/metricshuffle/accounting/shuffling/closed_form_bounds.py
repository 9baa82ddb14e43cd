"""The published closed forms for shuffled metric privacy, each with its conditions.

They come from a paper on metric differential privacy in the shuffle model of which only the supplement was at hand: Theorem 1
(Equation 1), Corollary 1 (Equation 2) and Corollary 2 (Equation 3). The exact form of Theorem 1 is inferred from its proof;
its factor is printed there as e^D/(e^D+1), which is valid but loose, and is (e^D-1)/(e^D+1) in Corollary 2, as here.

Everywhere `local` = D(a, b) is the local epsilon of the pair, R = max_c (e^D(a,c) + e^D(b,c)) over the values c anybody may
hold and `log_ratio` = log R; L = log(4/delta).
"""

from __future__ import annotations

import math

import numpy as np

from metricshuffle.accounting.shuffling.clone_bound import checked_users
from metricshuffle.citations import theorem
from metricshuffle.errors import ConditionError, InputError
from metricshuffle.numerics.certified_search import last_certified_integer
from metricshuffle.privacy.profile import checked_delta, checked_epsilon

ROUNDING_SLACK = 1e-13
LOG_TWO = math.log(2.0)


def _checked(local: float, log_ratio: float, users: int, delta: float) -> float:
    """L = log(4/delta), after everything was looked at."""
    local, users = checked_epsilon(local), checked_users(users)
    if not checked_delta(delta) > 0.0:
        raise InputError("delta must be > 0 here; with delta = 0 shuffling changes nothing, and epsilon is the local one.")
    min_log_ratio = float(np.logaddexp(0.0, local))
    if not min_log_ratio * (1.0 - 1e-12) <= log_ratio < math.inf:
        raise InputError(f"log_ratio must be finite and at least log(1 + e^local) = {min_log_ratio:.12g}, got {log_ratio!r}.")
    return math.log(4.0 / delta)


def _epsilon_among_clones(clones: float, local: float, log_4_delta: float, statement: str) -> float:
    """log(1 + tanh(D/2) (2s+1)/(Omega/2-s)), s = sqrt(Omega L/2), for Omega clones; at most D."""
    s = math.sqrt(0.5 * max(clones, 0.0) * log_4_delta)
    room = (0.5 * clones - s) - ROUNDING_SLACK * clones
    if not room > 0.0:
        condition = f"more than 2 log(4/delta) = {2.0 * log_4_delta:.6g} clones"
        raise ConditionError(statement, condition, f"{max(clones, 0.0):.6g}; shuffling buys nothing there by this bound")
    return min(local, math.log1p(math.tanh(0.5 * local) * (2.0 * s + 1.0) / room) * (1.0 + ROUNDING_SLACK))


def chernoff_clones(log_ratio: float, users: int, delta: float) -> float:
    """Omega = (n-1) 2/R - sqrt(3 (n-1) 2/R L): there are fewer clones with probability at most delta/2; negative if there may be none."""
    mean = (users - 1) * 2.0 * math.exp(-log_ratio)
    return mean - math.sqrt(3.0 * mean * math.log(4.0 / delta)) - ROUNDING_SLACK * mean


def quantile_clones(log_ratio: float, users: int, delta: float) -> float:
    """The largest k with a certified P(Bin(n-1, 2/R) < k) <= delta/2."""
    from metricshuffle.accounting.shuffling import _binomial_tail_kernels as kernels

    high = min(1.0, 2.0 * math.exp(-log_ratio) * (1.0 - ROUNDING_SLACK))
    count, low = float(users - 1), 1.0 - high

    def certified(clones: int) -> bool:
        return bool(kernels.upper_tail(count - clones + 1.0, count, low, high)[1] <= 0.5 * delta)

    return float(last_certified_integer(certified, math.floor(count * high) + 1, 0))


@theorem("WitchHat", "Theorem 1 (Equation 1)")
def theorem_1(local: float, log_ratio: float, users: int, delta: float) -> float:
    """Amplified epsilon of a pair, from a Chernoff bound on the number of clones.

    Statement: eps = log(1 + (e^D-1)/(e^D+1) (2s+1)/(Omega/2-s)), Omega = (n-1) 2/R - sqrt(3 (n-1) (2/R) L), s = sqrt(Omega L/2).
    Proof: K(c) >= (K(a)+K(b))/R, so each other report is a clone with probability 2/R, of a or b with equal chances: with
    P' = (A+1, C-A) and Q' = (A, C-A+1), A ~ Bin(C, 1/2), P'/Q' = (A+1)/(C-A). C >= Omega but for delta/2 (Chernoff), and
    |A - C/2| <= sqrt(C L/2) but for delta/2 (Hoeffding), so P'/Q' <= 1 + (2s+1)/(Omega/2-s), which falls in C for C > 2L.
    User 1 reports a mixture: P = (1-t) M + t P', Q = (1-t) M + t Q', M = (P'+Q')/2, t = tanh(D/2); by advanced joint
    convexity (Balle, Barthe, Gaboardi 2018) eps shrinks to log(1 + t (e^eps - 1)).
    Conditions: Omega > 2L (ConditionError otherwise), delta > 0. Numerics: rounded up. Reference: this docstring.
    """
    log_4_delta = _checked(local, log_ratio, users, delta)
    return _epsilon_among_clones(chernoff_clones(log_ratio, users, delta), local, log_4_delta, "Theorem 1")


@theorem("WitchHat", "Corollary 1 (Equation 2)")
def corollary_1(local: float, diameter: float, users: int, delta: float) -> float:
    """Theorem 1 from the largest local epsilon of the domain alone.

    Statement: Theorem 1 with R = 2 e^Dmax, which is never too small. Conditions: Omega > 2L; local <= diameter.
    Numerics: rounded up. Reference: Theorem 1.
    """
    if not local <= diameter:
        raise InputError(f"diameter, the largest local epsilon, must be at least that of the pair, {local!r}, got {diameter!r}.")
    log_ratio = (LOG_TWO + checked_epsilon(diameter)) * (1.0 + ROUNDING_SLACK)
    log_4_delta = _checked(local, log_ratio, users, delta)
    return _epsilon_among_clones(chernoff_clones(log_ratio, users, delta), local, log_4_delta, "Corollary 1")


@theorem("WitchHat", "Corollary 2 (Equation 3)")
def corollary_2(local: float, log_ratio: float, users: int, delta: float) -> float:
    """The simplest closed form.

    Statement: eps = log(1 + 8 (e^D-1)/(e^D+1) (sqrt(R L/(2(n-1))) + R/(2(n-1)))).
    Proof: n > 8 L R gives Omega/2 - s >= Omega/4 >= (n-1)/(4R) in Theorem 1 ((n-1) 2/R >= 14.65 L suffices), and s grows in
    Omega <= (n-1) 2/R.
    Conditions: n > 8 L R (ConditionError otherwise). Numerics: rounded up. Reference: Theorem 1.
    """
    log_4_delta = _checked(local, log_ratio, users, delta)
    if not math.log(users) > (math.log(8.0 * log_4_delta) + log_ratio) * (1.0 + ROUNDING_SLACK):
        needed = f"users > 8 R log(4/delta) = {math.exp(min(math.log(8.0 * log_4_delta) + log_ratio, 700.0)):.6g}"
        raise ConditionError("Corollary 2", needed, f"{users:,}; shuffling buys nothing there by this bound")
    each = math.exp(log_ratio) / (2.0 * (users - 1))
    excess = 8.0 * math.tanh(0.5 * local) * (math.sqrt(each * log_4_delta) + each)
    return min(local, math.log1p(excess) * (1.0 + ROUNDING_SLACK))


@theorem("WitchHat", "exact tail")
def exact_tail(local: float, log_ratio: float, users: int, delta: float) -> float:
    """Theorem 1 with the exact quantile of the number of clones in place of the Chernoff bound.

    Statement: Omega = max{k : P(Bin(n-1, 2/R) < k) <= delta/2}; never worse than Theorem 1.
    Conditions: Omega > 2L (ConditionError otherwise). Numerics: the tail is enclosed; k is the last certified. Reference: Theorem 1.
    """
    log_4_delta = _checked(local, log_ratio, users, delta)
    return _epsilon_among_clones(quantile_clones(log_ratio, users, delta), local, log_4_delta, "Theorem 1 with the exact tail")
