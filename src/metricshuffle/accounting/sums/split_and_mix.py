"""Number of messages that hide an integer sent in additive shares through a shuffler.

Sums and noisy vectors that are sent in modular shares use it. Notation of split-and-mix: n honest
users, M messages each, q the modulus, g = M - 1. TV is the total variation distance, and a view is
all that the analyst sees: the multiset of all messages.

The helpers use the notation of docs/proofs/split-and-mix.md. Two independent uniform assignments of
ng shares to n users, g to each, define a graph on the users, in which each share joins the two
users that it is assigned to; C is its number of components. r(n, k) = C(n, k) / C(ng, kg), in
binomial coefficients, is the expected number of sets of k users who get the same shares both times;
E_k = E[q^C] for k users; t_k = r(n, k) E_k, and rho_k bounds t_{k+1} / t_k. Further h = ceil(n/3),
w = floor(n/2) - h + 1, and P_i = prod_{2<=m<=i} (1 + (q-1) / C(mg, g)).
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from functools import lru_cache

from metricshuffle.citations import theorem
from metricshuffle.errors import ConditionError, InputError, argument
from metricshuffle.privacy.profile import PrivacyProfile, Shape, validate_distance

MIN_USERS = 19
MIN_MESSAGES = 3
MAX_MESSAGES = 2_000
MAX_BITS = 4096
LARGEST_MODULUS = 2**1000

# Subtracted from every sigma: sums of under 100 positive terms, each with a relative error of
# at most 1e-14, and two logarithms of at most 1e5 in size, each with an error of an ulp (1.5e-11).
ROUNDING_SLACK = 1e-9
# Sets of at most this many users are summed term by term; larger ones by a geometric tail.
SINGLE_TERMS = 64
# Up to here the binomials of the middle term are exact integers; beyond, an entropy bound.
EXACT_USERS = 1000


@theorem("metricshuffle", "Split-and-mix, worst case")
def security_bits(users: int, messages: int, modulus: int) -> float:
    """Certified sigma >= 0: two inputs with the same sum are indistinguishable up to 2^-sigma.

    Statement: each of n users splits y_i in Z_q into M messages: M - 1 uniform residues and the
    difference to y_i. For any y, y' with equal sum TV(view(y), view(y')) <= 2^-sigma, where TV is
    the total variation distance and the view is the multiset of all nM messages; and there is a law
    that depends on the sum alone (the centre law) at distance <= 2^-(sigma + 1) from every view
    with that sum.
    Conditions: `users` counts HONEST users whose messages ALL reach the shuffler (the shares of
    colluders are known: subtract those users), at least 19; M >= 3; shares exactly uniform on Z_q;
    the shuffler hides who sent a message, when, and with which others; every query uses fresh
    shares. q need not be prime. (The proof holds for every n; fewer than 19 users are refused by
    choice.)
    Proof: docs/proofs/split-and-mix.md, whose steps the functions below name. In short: show one
    share of each user in the clear; the other g = M - 1 shares then have uniform sums. Two
    independent assignments of all ng shares to the users lead to the same sums with probability
    E[q^(C-n)], where C is the number of components of the graph in which each share joins the two
    users that it is assigned to. So sigma = -log2(E[q^(C-1)] - 1) / 2 is valid (a, b). More than
    one component means that some set of users gets the same shares both times; these sets are
    counted, small ones individually (c to f).
    Numerics: exact integers up to a last division or logarithm; positive sums; `ROUNDING_SLACK` is
    subtracted. Where nothing can be certified the result is 0 (a total variation is at most 1).
    Reference: the closed form of Balle, Bell, Gascon, Nissim (CCS 2020), sigma = ((M-2)(log2 n -
    log2 e) - log2 q) / 2, was never above this value where it is positive (measured; 11 bits below
    at n = 10^4, M = 10, q = 2^32).
    """
    n = _validate_users(users)
    q = _validate_modulus(modulus)
    g = _validate_messages(messages) - 1
    return max(0.0, -0.5 * _log2_excess(n, g, q) - ROUNDING_SLACK)


def messages_needed(users: int, modulus: int, bits: float) -> int:
    """Smallest number of messages per user (at least 3) with `security_bits` >= `bits`.

    The conditions of `security_bits` apply.
    """
    if not (isinstance(bits, int | float) and 0.0 <= bits <= MAX_BITS):
        raise InputError(
            f"bits must be a number from 0 to {MAX_BITS} (40 to 80 is usual), got {bits!r}."
        )
    n = _validate_users(users)
    q = _validate_modulus(modulus)
    messages = MIN_MESSAGES
    # The first term alone already limits sigma; it is cheap, and decreases geometrically with the
    # messages, so the loops end.
    while bits > 0.0 and -0.5 * _log2_first(n, messages - 1, q) < bits:
        messages += 1
    while security_bits(n, messages, q) < bits:
        messages += 1
    return messages


@theorem("metricshuffle", "Split-and-mix, what a view adds to delta")
def view_penalty(epsilon: float, sigma: float) -> float:
    """Amount to add to the delta of the ideal sum at total epsilon when it is sent in shares.

    Statement: if the sum modulo q is (epsilon, delta)-indistinguishable for two inputs, the view of
    split-and-mix is (epsilon, delta + (1 + e^epsilon) 2^-(sigma + 1))-indistinguishable for them.
    Proof: let P, P' be the laws of the views for the two inputs, sim, sim' the centre laws of their
    (random) sums, S any event and tau = 2^-(sigma + 1). P(S) <= sim(S) + tau <= e^epsilon sim'(S) +
    delta + tau <= e^epsilon P'(S) + delta + (1 + e^epsilon) tau.
    Conditions: those of `security_bits`. The penalty increases with epsilon, so a guarantee that is
    linear in the distance holds only up to some distance: take epsilon at that distance.
    Numerics: rounded up; at most 1.
    """
    if not (isinstance(epsilon, int | float) and epsilon >= 0.0):
        raise InputError(f"{argument('epsilon')} must be a number >= 0, got {epsilon!r}.")
    if not (isinstance(sigma, int | float) and 0.0 <= sigma < math.inf):
        raise InputError(
            f"{argument('sigma')} must be a finite number of bits >= 0, got {sigma!r}."
        )
    exponent = epsilon + math.log1p(math.exp(-epsilon)) - (sigma + 1.0) * math.log(2.0)
    if not exponent < 0.0:
        return 1.0
    # The error of the exponent is a few ulps of its largest part.
    slack = 1e-15 * (2.0 + epsilon + sigma)
    return min(1.0, math.nextafter(math.exp(exponent) * (1.0 + slack), math.inf))


@lru_cache(maxsize=4096)  # candidates of one plan share numbers of users and messages
def _log2_excess(n: int, g: int, q: int) -> float:
    """Upper bound on log2(E[q^(C-1)] - 1) by step (d); inf where the first term alone exceeds 1."""
    first = _log2_first(n, g, q)
    if first >= 0.0:
        return math.inf
    return _log2_sum(first + math.log2(_small_sets(n, g, q)), _log2_middle(n, g, q))


def _log2_first(n: int, g: int, q: int) -> float:
    """log2 of t_1 = q r(n, 1)."""
    return math.log2(q * math.factorial(g) // g) - math.log2(_rising(n - 1, g))


def _rising(k: int, g: int) -> int:
    """(kg + 1)(kg + 2)...(kg + g - 1)."""
    return math.prod(range(k * g + 1, k * g + g))


def _ratio(n: int, g: int, q: int, k: int, lowest: int) -> float:
    """r(n, k+1) / r(n, k) + (q-1) r(n-k, 1) / (lowest+1), which is rho_k if lowest = k."""
    below = _rising(n - k - 1, g)
    above = (lowest + 1) * _rising(k, g) + (q - 1) * (math.factorial(g) // g)
    below *= lowest + 1
    # A quotient of 2^1000 is useless and does not fit a float.
    return above / below if above.bit_length() - below.bit_length() < 1000 else math.inf


def _small_sets(n: int, g: int, q: int) -> float:
    """sum_{j<h} t_j / t_1, step (e)."""
    third = -(-n // 3)
    last = min(SINGLE_TERMS, third - 1)
    tail = 1.0
    if last < third - 1:
        largest = _ratio(n, g, q, third - 1, SINGLE_TERMS)
        if largest >= 1.0 - 1e-3:
            return math.inf
        tail = 1.0 / (1.0 - largest)
    for j in range(last - 1, 0, -1):
        tail = 1.0 + _ratio(n, g, q, j, j) * tail
    return tail


def _log2_middle(n: int, g: int, q: int) -> float:
    """log2 of w r(n, h) q P_{floor(n/2)} (1 + P_{n-h}), steps (d) and (f)."""
    third = -(-n // 3)
    if n <= EXACT_USERS:
        closed = math.log2(math.comb(n, third)) - math.log2(math.comb(n * g, third * g))
    else:
        share = third / n
        entropy = -share * math.log2(share) - (1.0 - share) * math.log1p(-share) / math.log(2.0)
        closed = -(g - 1) * (n * entropy - math.log2(n + 1))
    small = _log2_growth(n // 2, g, q)
    large = _log2_growth(n - third, g, q)
    # These can be large, and so can their rounding errors.
    slack = 1e-12 * (abs(closed) + small + large)
    return (
        math.log2(n // 2 - third + 1)
        + closed
        + slack
        + math.log2(q)
        + small
        + _log2_sum(0.0, large)
    )


def _log2_growth(i: int, g: int, q: int) -> float:
    """Upper bound on log2 P_i; a long run of factors is replaced by its first, the largest."""
    total = 0.0
    m = 2
    while m <= i:
        factor = (q - 1) / math.comb(m * g, g)
        # Once the product of all the remaining factors is nearly 1 they form one last run.
        length = i + 1 - m if factor * i < 1e-9 else min(1 + m // 32, i + 1 - m)
        total += length * math.log1p(factor)
        m += length
    return total / math.log(2.0)


def _log2_sum(a: float, b: float) -> float:
    """log2(2^a + 2^b)."""
    high = max(a, b)
    low = min(a, b)
    return high if high == math.inf else high + math.log1p(2.0 ** (low - high)) / math.log(2.0)


def _whole(name: str, value: int, minimum: int, condition: str) -> int:
    try:
        whole = operator.index(value)
    except TypeError:
        raise InputError(f"{argument(name)} must be a whole number, got {value!r}.") from None
    if whole < minimum:
        raise ConditionError("Split-and-mix", condition, f"{name} = {whole}")
    return whole


def _validate_users(users: int) -> int:
    return _whole("users", users, MIN_USERS, f"at least {MIN_USERS} honest users")


def _validate_messages(messages: int) -> int:
    whole = _whole("messages", messages, MIN_MESSAGES, f"at least {MIN_MESSAGES} messages a user")
    if whole > MAX_MESSAGES:
        raise InputError(f"messages must be at most {MAX_MESSAGES:,} a user, got {whole:,}.")
    return whole


def _validate_modulus(modulus: int) -> int:
    whole = _whole("modulus", modulus, 2, "a modulus of at least 2")
    if whole > LARGEST_MODULUS:
        raise InputError("modulus must be at most 2^1000; choose a coarser unit for the values.")
    return whole


@dataclass(frozen=True)
class SplitAndMix(PrivacyProfile):
    """Profile of an ideal sum, plus the delta that the multiset of shares may add.

    Statement: if the ideal sums keep (epsilon, delta) and each of `sharings` (one per axis and
    round) has a centre law at distance 2^-(sigma+1) from every view, the views keep (epsilon, delta
    + sharings (1 + e^epsilon) 2^-(sigma+1)).
    Conditions: those of `security_bits`. The added term increases with epsilon, so it is part of
    every verification.
    """

    ideal: PrivacyProfile
    sigma: float
    sharings: int = 1

    def __post_init__(self) -> None:
        view_penalty(0.0, self.sigma)
        if (
            isinstance(self.sharings, bool)
            or not isinstance(self.sharings, int)
            or self.sharings < 1
        ):
            raise InputError(f"sharings must be a whole number >= 1, got {self.sharings!r}.")

    @property
    def bound(self) -> str:  # type: ignore[override]
        return f"{self.ideal.bound}, shares mixed to 2^-{math.floor(self.sigma)}"

    def delta(self, epsilon: float, distance: float) -> float:
        if validate_distance(distance) == 0.0:
            return 0.0
        added = self.sharings * view_penalty(epsilon, self.sigma)
        return min(1.0, math.nextafter(self.ideal.delta(epsilon, distance) + added, math.inf))

    def covers(
        self, epsilon: float, delta: float, distance: float, shape: Shape = "linear"
    ) -> bool:
        # The penalty is largest at the largest epsilon, which is the one at the full distance.
        remaining_delta = delta - self.sharings * view_penalty(epsilon, self.sigma)
        return remaining_delta >= 0.0 and self.ideal.covers(
            epsilon, math.nextafter(remaining_delta, 0.0), distance, shape
        )
