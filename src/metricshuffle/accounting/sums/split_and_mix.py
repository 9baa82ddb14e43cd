"""How many messages hide an integer sent in additive shares through a shuffler (split-and-mix).

Letters: n honest users, M messages each, q the modulus, g = M - 1.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from functools import lru_cache

from metricshuffle.citations import theorem
from metricshuffle.errors import ConditionError, InputError
from metricshuffle.privacy.profile import PrivacyProfile, Shape, validate_distance

MIN_USERS = 19
MIN_MESSAGES = 3
MAX_MESSAGES = 2_000
MAX_BITS = 4096
LARGEST_MODULUS = 2**1000

# Subtracted from every sigma: sums of under 100 positive terms, each with a relative error of
# at most 1e-14, and two logarithms of at most 1e5 in size, each off by an ulp (1.5e-11).
ROUNDING_SLACK = 1e-9
# For a sum over sets of at most this many users each term is taken by itself; then a geometric tail.
SINGLE_TERMS = 64
# Up to here the binomials of the middle term are exact integers; beyond, an entropy bound.
EXACT_USERS = 1000


@theorem("metricshuffle", "Split-and-mix, worst case")
def security_bits(users: int, messages: int, modulus: int) -> float:
    """Certified sigma >= 0: two inputs with the same sum look the same up to 2^-sigma.

    Statement: each of n users splits y_i in Z_q into M messages: M - 1 uniform residues and the
    difference to y_i. For any y, y' with equal sum TV(view(y), view(y')) <= 2^-sigma, where the
    view is the multiset of all nM messages; and there is a law that depends on the sum alone (the
    centre law) at distance <= 2^-(sigma + 1) from every view with that sum.
    Conditions: `users` counts HONEST users whose messages ALL reach the shuffler (the shares of
    colluders are known: subtract those users), at least 19; M >= 3; shares exactly uniform on Z_q;
    the shuffler hides who sent a message and when, hence also which messages belong together; every
    query uses fresh shares. q need not be prime. (The proof holds for every n; fewer than 19 users
    are refused by choice: so small a crowd should not rest on a shuffler.)
    Proof: docs/proofs/split-and-mix.md, whose steps the functions below name. In short: show one
    share of each user in the clear; the other g = M - 1 then have uniform sums, and two independent
    ways to deal all ng shares to the users lead to the same sums with probability E[q^(C-n)], C the
    number of components of the graph that joins the two users a share goes to. So sigma =
    -log2(E[q^(C-1)] - 1) / 2 is true (a, b). More than one component means that some set of users
    gets the same shares both times; these sets are counted, small ones one by one (c to f).
    Numerics: exact integers up to a last division or logarithm; positive sums; `ROUNDING_SLACK` is
    subtracted. Where nothing can be said the answer is 0 (a total variation is at most 1).
    Reference: the closed form of Balle, Bell, Gascon, Nissim (CCS 2020), sigma =
    ((M-2)(log2 n - log2 e) - log2 q) / 2, was never above this value where it is positive (measured;
    11 bits below at n = 10^4, M = 10, q = 2^32).
    """
    n, q = _validate_users(users), _validate_modulus(modulus)
    g = _validate_messages(messages) - 1
    return max(0.0, -0.5 * _log2_excess(n, g, q) - ROUNDING_SLACK)


def messages_needed(users: int, modulus: int, bits: float) -> int:
    """Smallest number of messages a user (at least 3) with `security_bits` >= `bits`; its conditions apply."""
    if not (isinstance(bits, int | float) and 0.0 <= bits <= MAX_BITS):
        raise InputError(f"bits must be a number from 0 to {MAX_BITS} (40 to 80 is usual), got {bits!r}.")
    n, q = _validate_users(users), _validate_modulus(modulus)
    messages = MIN_MESSAGES
    # the first term alone already limits sigma; it is cheap, and falls geometrically, so the loops end
    while bits > 0.0 and -0.5 * _log2_first(n, messages - 1, q) < bits:
        messages += 1
    while security_bits(n, messages, q) < bits:
        messages += 1
    return messages


@theorem("metricshuffle", "Split-and-mix, what a view adds to delta")
def view_penalty(epsilon: float, sigma: float) -> float:
    """What to add to the delta of the ideal sum at total epsilon when it is sent in shares.

    Statement: if the sum modulo q is (epsilon, delta)-indistinguishable for two inputs, the view of
    split-and-mix is (epsilon, delta + (1 + e^epsilon) 2^-(sigma + 1))-indistinguishable for them.
    Proof: with tau = 2^-(sigma + 1) and sim the centre law of the (random) sum,
    P(S) <= sim(S) + tau <= e^epsilon sim'(S) + delta + tau <= e^epsilon P'(S) + delta + (1 + e^epsilon) tau.
    Conditions: those of `security_bits`. The penalty grows with epsilon, so a guarantee that is
    linear in the distance becomes one up to a largest distance: take epsilon there.
    Numerics: rounded up; at most 1.
    """
    if not (isinstance(epsilon, int | float) and epsilon >= 0.0):
        raise InputError(f"epsilon must be a number >= 0, got {epsilon!r}.")
    if not (isinstance(sigma, int | float) and 0.0 <= sigma < math.inf):
        raise InputError(f"sigma must be a finite number of bits >= 0, got {sigma!r}.")
    exponent = epsilon + math.log1p(math.exp(-epsilon)) - (sigma + 1.0) * math.log(2.0)
    if not exponent < 0.0:
        return 1.0
    # the exponent is off by a few ulps of its largest part
    slack = 1e-15 * (2.0 + epsilon + sigma)
    return min(1.0, math.nextafter(math.exp(exponent) * (1.0 + slack), math.inf))


@lru_cache(maxsize=4096)  # candidates of one plan ask for the same crowds and groups
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
    """r(n, k+1) / r(n, k) + (q-1) r(n-k, 1) / (least+1): rho_k if least = k."""
    below = _rising(n - k - 1, g)
    above = (lowest + 1) * _rising(k, g) + (q - 1) * (math.factorial(g) // g)
    below *= lowest + 1
    # a quotient of 2^1000 is useless and does not fit a float
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
    small, large = _log2_growth(n // 2, g, q), _log2_growth(n - third, g, q)
    slack = 1e-12 * (abs(closed) + small + large)  # these can be large, so their rounding errors are too
    return math.log2(n // 2 - third + 1) + closed + slack + math.log2(q) + small + _log2_sum(0.0, large)


def _log2_growth(i: int, g: int, q: int) -> float:
    """Upper bound on log2 P_i; long runs of factors are replaced by their first, which is the largest."""
    total, m = 0.0, 2
    while m <= i:
        factor = (q - 1) / math.comb(m * g, g)
        # once all the remaining factors together are nearly 1 they make one last run
        length = i + 1 - m if factor * i < 1e-9 else min(1 + m // 32, i + 1 - m)
        total += length * math.log1p(factor)
        m += length
    return total / math.log(2.0)


def _log2_sum(a: float, b: float) -> float:
    """log2(2^a + 2^b)."""
    high, low = max(a, b), min(a, b)
    return high if high == math.inf else high + math.log1p(2.0 ** (low - high)) / math.log(2.0)


def _whole(name: str, value: int, minimum: int, condition: str) -> int:
    try:
        whole = operator.index(value)
    except TypeError:
        raise InputError(f"{name} must be a whole number, got {value!r}.") from None
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
    """The profile of an ideal sum, plus what the multiset of shares may add to it.

    Statement: if the ideal sums keep (e, delta) and each of `sharings` (one an axis and a round) has a centre law at
    distance 2^-(sigma+1) from every view, the views keep (e, delta + sharings (1+e^e) 2^-(sigma+1)).
    Conditions: those of `security_bits`. The added term grows with epsilon, so it is part of every verification.
    """

    ideal: PrivacyProfile
    sigma: float
    sharings: int = 1

    def __post_init__(self) -> None:
        view_penalty(0.0, self.sigma)
        if isinstance(self.sharings, bool) or not isinstance(self.sharings, int) or self.sharings < 1:
            raise InputError(f"sharings must be a whole number >= 1, got {self.sharings!r}.")

    @property
    def bound(self) -> str:  # type: ignore[override]
        return f"{self.ideal.bound}, shares mixed to 2^-{math.floor(self.sigma)}"

    def delta(self, epsilon: float, distance: float) -> float:
        if validate_distance(distance) == 0.0:
            return 0.0
        added = self.sharings * view_penalty(epsilon, self.sigma)
        return min(1.0, math.nextafter(self.ideal.delta(epsilon, distance) + added, math.inf))

    def covers(self, epsilon: float, delta: float, distance: float, shape: Shape = "linear") -> bool:
        # The penalty is largest at the largest epsilon, which is the one promised at the full distance.
        remaining_delta = delta - self.sharings * view_penalty(epsilon, self.sigma)
        return remaining_delta >= 0.0 and self.ideal.covers(epsilon, math.nextafter(remaining_delta, 0.0), distance, shape)
