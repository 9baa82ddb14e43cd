"""Lower confidence bound on epsilon from the counts of an event on two inputs."""

from __future__ import annotations

import math
from dataclasses import dataclass

from metricshuffle.citations import theorem
from metricshuffle.errors import InputError, NotCertified
from metricshuffle.numerics.rounding import round_down
from metricshuffle.privacy.profile import checked_delta

MAX_TRIALS = 2**40
# The tail of a limit is certified to lie below `miss` by this relative margin; scipy's own error is
# thousands of times smaller.
TAIL_TOLERANCE = 1e-9


@dataclass(frozen=True)
class EventCount:
    """Number of times an event happened in independent trials."""

    hits: int
    trials: int

    def __post_init__(self) -> None:
        whole = all(
            isinstance(number, int) and not isinstance(number, bool)
            for number in (self.hits, self.trials)
        )
        if not whole or not 0 <= self.hits <= self.trials or not 1 <= self.trials <= MAX_TRIALS:
            raise InputError(
                "an event happens 0 to n times in n trials, n from 1 to 2^40; got "
                f"{self.hits!r} times in {self.trials!r}."
            )


def validate_miss(miss: float) -> float:
    """Return a probability of error in [1e-250, 1); raise InputError otherwise."""
    if isinstance(miss, bool) or not isinstance(miss, int | float) or not 1e-250 <= miss < 1.0:
        raise InputError(f"the chance of being wrong must lie in [1e-250, 1), got {miss!r}.")
    return float(miss)


@theorem("Clopper34", "lower limit of a proportion")
def probability_lower_limit(seen: EventCount, miss: float) -> float:
    """Lower confidence limit of an event's probability, wrong with probability at most `miss`.

    Statement: the limit is the L with P(Bin(n, L) >= k) = miss for k hits in n trials, or 0 if k =
    0. If the event has probability p, then L > p with probability at most miss, whatever p is.
    Conditions: the trials are independent and the event has the same probability in each. 1 <= n <=
    2^40.
    Numerics: P(Bin(n, L) >= k) is the incomplete beta function I_L(k, n-k+1), which rises in L; L
    is lowered until it is certified to stay below miss. If that fails, 0.
    Reference: Clopper and Pearson 1934.
    """
    from scipy.special import betainc, betaincinv

    miss = validate_miss(miss)
    hits = seen.hits
    missed = seen.trials - seen.hits
    if hits == 0:
        return 0.0
    limit = float(betaincinv(hits, missed + 1, miss))
    for power in range(-48, 0):
        lower = limit * (1.0 - 2.0**power)
        if 0.0 <= lower <= 1.0 and betainc(hits, missed + 1, lower) <= miss * (
            1.0 - TAIL_TOLERANCE
        ):
            return lower
    return 0.0


@theorem("Clopper34", "upper limit of a proportion")
def probability_upper_limit(seen: EventCount, miss: float) -> float:
    """Upper confidence limit of an event's probability, wrong with probability at most `miss`.

    Statement: the limit is the U with P(Bin(n, U) <= k) = miss for k hits in n trials, or 1 if k =
    n. If the event has probability p, then U < p with probability at most miss, whatever p is.
    Conditions: as for the lower limit.
    Numerics: P(Bin(n, U) <= k) is the complement of I_U(k+1, n-k), computed as such and never as a
    difference; U is raised until it is certified to stay below miss. If that fails, 1.
    Reference: Clopper and Pearson 1934.
    """
    from scipy.special import betaincc, betainccinv

    miss = validate_miss(miss)
    hits = seen.hits
    missed = seen.trials - seen.hits
    if missed == 0:
        return 1.0
    limit = float(betainccinv(hits + 1, missed, miss))
    for power in range(-48, 0):
        upper = limit * (1.0 + 2.0**power)
        if limit <= upper < 1.0 and betaincc(hits + 1, missed, upper) <= miss * (
            1.0 - TAIL_TOLERANCE
        ):
            return upper
    return 1.0


@theorem("metricshuffle", "epsilon shown by an event, from below")
def epsilon_confidence_bound(
    first: EventCount, second: EventCount, delta: float, miss: float
) -> float:
    """Lower confidence bound on the epsilon of two inputs, wrong with probability at most `miss`.

    Statement: let an event have probability p on the first input and q on the second. If the inputs
    are (eps, delta)-indistinguishable then p <= e^eps q + delta. Let L be the lower limit of p and
    U the upper limit of q, at miss/2 each. The result, log((L - delta)/U) or 0 if that is smaller,
    exceeds such an eps with probability at most miss.
    Proof: L <= p and U >= q but for two events of probability miss/2 each, together at most miss
    whether or not they are independent; then (L - delta)/U <= (p - delta)/q <= e^eps. QED
    Conditions: the event was fixed before these trials were looked at; trials are independent on
    each input (they may depend on those of the other). 0 <= delta < 1.
    Numerics: rounded down.
    Reference: this docstring; the use of held-out trials as in M. Jagielski, J. Ullman, A. Oprea,
    Auditing Differentially Private Machine Learning, NeurIPS 2020.
    """
    delta = checked_delta(delta)
    half = 0.5 * validate_miss(miss)
    low = probability_lower_limit(first, half)
    high = probability_upper_limit(second, half)
    if not (0.0 <= low <= 1.0 and 0.0 < high <= 1.0):
        raise NotCertified(
            f"the confidence limits {low!r} and {high!r} are not probabilities, so they bound "
            "no epsilon."
        )
    ratio = round_down((low - delta) / high, 8)
    return max(0.0, round_down(math.log(ratio), 8)) if ratio > 1.0 else 0.0
