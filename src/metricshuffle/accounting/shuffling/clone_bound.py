"""Default bound for shuffled reports of any metric-private randomizer: clones.

The report of another person is, with some probability, drawn from the very law that person 1's
report has under one of two inputs a and b; such a report is a clone. The bound needs three numbers
of a pair (a, b): the local epsilon D(a, b), and reach(a) and reach(b), the largest local epsilon
between a, or b, and any other possible value.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from metricshuffle.accounting.shuffling._clone_counts import CloneCounts
from metricshuffle.citations import theorem
from metricshuffle.errors import InputError, argument, owner
from metricshuffle.numerics.rounding import round_up
from metricshuffle.privacy.profile import (
    PrivacyProfile,
    PureProfile,
    checked_delta,
    checked_epsilon,
    validate_distance,
)
from metricshuffle.privacy.target import checked_users as validate_users
from metricshuffle.spaces.space import Space

MAX_USERS = 2**52  # larger integers are not all exact as floats
checked_users = partial(validate_users, most=MAX_USERS)
EPSILON_TOLERANCE = 1e-9  # relative width of a bracket
ROUGH_TOLERANCE = 1e-6  # used where blocks lose more accuracy than this anyway
LARGEST_EXPONENT = 700.0  # delta decreases with epsilon, so delta at 700 bounds delta beyond


@dataclass(frozen=True)
class ClonePair:
    """Worst case for a pair: log_p = D(a, b), log_q0 = reach(a), log_q1 = reach(b).

    All are totals (rate times distance) and finite. A reach is at least D(a, b), so a smaller reach
    is raised to D(a, b). A reach cannot exceed the other reach by more than D(a, b), so a larger
    reach is lowered to this limit: the law K_i of another person obeys K_i >= K_b/q1 >= K_a/(p q1),
    where p = e^log_p and q1 = e^log_q1. Logarithms are used so that e^800 does not overflow.
    """

    log_p: float
    log_q0: float
    log_q1: float

    def __post_init__(self) -> None:
        for name in ("log_p", "log_q0", "log_q1"):
            value = getattr(self, name)
            if (
                isinstance(value, bool)
                or not isinstance(value, int | float)
                or not 0.0 <= value < math.inf
            ):
                raise InputError(
                    f"{owner('ClonePair')}{argument(name)} must be a finite number >= 0, "
                    f"got {value!r}."
                )
        p = float(self.log_p)
        q0 = max(float(self.log_q0), self.log_p)
        q1 = max(float(self.log_q1), self.log_p)
        object.__setattr__(self, "log_p", p)
        object.__setattr__(self, "log_q0", min(q0, math.nextafter(p + q1, math.inf)))
        object.__setattr__(self, "log_q1", min(q1, math.nextafter(p + q0, math.inf)))

    @property
    def clone_masses(self) -> tuple[float, float]:
        """Probabilities r0, r1 that another's report is a clone of the first or second kind.

        Rounded to nearest.
        """
        half = 1.0 / (1.0 + math.exp(-self.log_p))
        return math.exp(-self.log_q0) * half, math.exp(-self.log_q1) * half

    @property
    def spread(self) -> float:
        """Approximate E[G^2] at epsilon = 0, as `BlanketLaw.spread`; only used for ranking.

        G is the random variable of `blanket_law`. Infinite where the clone masses underflow.
        """
        gap = math.tanh(0.5 * self.log_p)
        return math.fsum(gap * gap / mass if mass > 0.0 else math.inf for mass in self.clone_masses)


@theorem("metricshuffle", "asymmetric clone pair")
def delta_upper(pair: ClonePair, users: int, epsilon: float) -> float:
    """Upper bound on delta(epsilon) of the shuffled reports of n users, user 1 holding a or b.

    Statement: let p = e^log_p, q0 = e^log_q0, q1 = e^log_q1, r0 = p/((p+1) q0), r1 = p/((p+1) q1),
    e = e^epsilon >= 1. K_a and K_b are the laws of user 1's report, K_i is the law of user i's
    report, and S(..) is the law of the shuffled reports. Suppose K_a <= p K_b and K_b <= p K_a
    pointwise, every other user's law obeys K_i >= max(K_a/q0, K_b/q1) pointwise (the K_i may differ
    between users), and r0 + r1 <= 1 (automatic if q0, q1 >= p). Then the hockey-stick divergence of
    S(K_a, K_2..K_n) from S(K_b, K_2..K_n) is at most that of

        P = (A + B, C-A + 1-B)  from  Q = (A + 1-B, C-A + B),
        C ~ Bin(n-1, r0+r1), A ~ Bin(C, r0/(r0+r1)), B ~ Bernoulli(p/(p+1)),

    and the same with P and Q exchanged. The result is the larger of the two. The bound is attained
    if q0/q1 is in [1/p, p].

    Proof: docs/proofs/clone-pair.md. Raising p, q0 or q1 keeps the hypotheses, so rounding them up
    is always allowed. More clones are post-processing, so delta decreases as n, r0 or r1 grows.

    Conditions: as stated; a D-private randomizer has p = e^D(a,b), q0 = e^reach(a), q1 =
    e^reach(b). 1 <= users <= 2^52.
    Numerics: delta = E h(C), h(c) = (p-e)/(p+1) P(k-1) - (e-1) S(k), P the probability mass
    function and S the upper tail of Bin(c, r0/(r0+r1)), k = floor(w1 (c+1)/(w0+w1)) + 1, w0 =
    (p-e)/r0, w1 = (pe-1)/r1. h decreases with c, because one more clone is post-processing. If C
    has up to a few thousand probable values, h is summed over all of them; beyond, C is divided
    into blocks, and h is taken at the left end of each. Mass left out is added, everything is
    rounded up; the excess is below 1e-9 of delta in full sums.
    Reference: docs/proofs/clone-pair.md.
    """
    users = checked_users(users)
    epsilon = checked_epsilon(epsilon)
    if epsilon >= pair.log_p:
        return 0.0
    return _delta(
        CloneCounts.relative(pair, users, min(epsilon, LARGEST_EXPONENT)),
        min(epsilon, LARGEST_EXPONENT),
    )


def _delta(counts: CloneCounts, epsilon: float) -> float:
    """Return the delta of the counts, or 1 where it cannot be computed."""
    delta = counts.delta(epsilon)
    return min(1.0, delta) if delta >= 0.0 else 1.0


@theorem("metricshuffle", "asymmetric clone pair, from below")
def delta_lower(pair: ClonePair, users: int, epsilon: float) -> float:
    """Lower bound on the clone pair's own divergence: how much of `delta_upper` is rounding.

    It is not a statement about any mechanism.

    Statement: the same sums with h at the right end of each block and everything rounded down.
    Conditions: as for delta_upper.
    Numerics: 0 beyond epsilon = 700.
    Reference: this docstring.
    """
    users = checked_users(users)
    epsilon = checked_epsilon(epsilon)
    if epsilon >= min(pair.log_p, LARGEST_EXPONENT):
        return 0.0
    delta = CloneCounts.relative(pair, users, epsilon, upwards=False).delta(epsilon)
    return max(0.0, delta) if math.isfinite(delta) else 0.0


@theorem("metricshuffle", "epsilon of the asymmetric clone pair")
def epsilon_upper(pair: ClonePair, users: int, delta: float) -> float:
    """Smallest certified epsilon of the pair at that delta, at most log_p = D(a, b).

    Statement: delta_upper at the returned epsilon is at most delta, or the returned epsilon is
    log_p, where delta_upper is 0.
    Conditions: as for delta_upper, 0 <= delta < 1.
    Numerics: returns the last certified value of a bracketed search; a delta_upper that is NaN or
    negative counts as too large. Within 1e-7 of the pair's own epsilon for up to 1e5 users, within
    1e-4 beyond (relative).
    Reference: this docstring.
    """
    users = checked_users(users)
    delta = checked_delta(delta)
    if delta == 0.0 or pair.log_p == 0.0:
        return pair.log_p
    counts = CloneCounts.absolute(pair, users, delta)
    top = min(pair.log_p, LARGEST_EXPONENT)
    if top < pair.log_p and not 0.0 <= counts.delta(top) <= delta:
        return pair.log_p
    return find_crossing(
        counts.delta,
        delta,
        top,
        counts.guess(delta),
        EPSILON_TOLERANCE if counts.ends is None else ROUGH_TOLERANCE,
    )[1]


@theorem("metricshuffle", "epsilon of the asymmetric clone pair, from below")
def epsilon_lower(pair: ClonePair, users: int, delta: float) -> float:
    """Lower bound on the clone pair's own epsilon: the other end of `epsilon_upper`'s bracket.

    Statement: delta_lower at the returned epsilon exceeds delta, or the returned epsilon is 0.
    Conditions: as for epsilon_upper.
    Numerics: the last failing value of the search.
    Reference: this docstring.
    """
    users = checked_users(users)
    delta = checked_delta(delta)
    top = min(pair.log_p, LARGEST_EXPONENT)
    if delta == 0.0 or top == 0.0:
        return top
    counts = CloneCounts.absolute(pair, users, delta, upwards=False)
    return find_crossing(
        counts.delta,
        delta,
        top,
        counts.guess(delta),
        EPSILON_TOLERANCE if counts.ends is None else ROUGH_TOLERANCE,
    )[0]


def find_crossing(
    delta_at: Callable[[float], float],
    delta: float,
    top: float,
    guess: float,
    relative: float = EPSILON_TOLERANCE,
) -> tuple[float, float]:
    """Return (failing, passing), the bracket of the epsilon where delta_at crosses delta.

    delta_at(passing) <= delta was evaluated, or passing is `top`; delta_at(failing) > delta, or
    failing is 0. Only a finite value in [0, delta] passes. The search takes secants in epsilon^2,
    in which log delta is nearly linear, and so needs a quarter of the evaluations of a bisection.
    """

    def excess(epsilon: float) -> float:
        delta_there = delta_at(epsilon)
        if not (math.isfinite(delta_there) and delta_there >= 0.0):
            return math.inf
        return math.log(delta_there / delta) if delta_there > 0.0 else -math.inf

    failing = 0.0
    passing = top
    aim = min(guess, 0.9 * top)
    before = (math.nan, math.nan)
    for step in range(200):
        if passing - failing <= relative * passing:
            break
        if not failing < aim < passing or step > 12:  # also when aim is NaN
            aim = 0.5 * (failing + passing)
            if aim in (failing, passing):
                break
        got = excess(aim)
        failing, passing = (failing, aim) if got <= 0.0 else (aim, passing)
        if step == 0 and (got <= 0.0 and excess(0.0) <= 0.0):
            return 0.0, 0.0
        here = before
        before = (aim, got)
        aim = _secant_step(here, before, math.log(delta), 0.3 * relative * aim)
    return failing, passing


def _secant_step(
    failing: tuple[float, float], passing: tuple[float, float], log_delta: float, nudge: float
) -> float:
    """Return where the secant of log(delta_at/delta) over epsilon^2 crosses zero, moved by `nudge`.

    The two points are (epsilon, log(delta_at/delta)); `nudge` moves the result beyond the crossing,
    away from the second point.
    """
    (x, above), (y, now) = failing, passing
    run = y * y - x * x if math.isfinite(above) else y * y
    if not math.isfinite(now) or run == 0.0:  # run is 0 if the squares underflow
        return math.nan
    # With one value only, log delta is taken as -epsilon^2 times a constant.
    slope = (now - above if math.isfinite(above) else min(log_delta, -1.0)) / run
    square = y * y - now / slope if slope < 0.0 else math.nan
    return (math.sqrt(square) if square > 0.0 else math.nan) + math.copysign(nudge, now)


@dataclass(frozen=True)
class ClonesProfile(PrivacyProfile):
    """Shuffled reports of `users` people by any randomizer with local epsilon rate * distance.

    Every value lies within `diameter` of every other. The reach of a value is its largest distance
    from any possible value. `reach`, if given, maps a distance d to two numbers: in every pair at
    distance <= d, one value has a reach of at most the first number, and the other value a reach of
    at most the second. These numbers must not decrease with d. Without `reach`, both are the
    diameter, which is always valid.
    """

    rate: float
    users: int
    diameter: float
    reach: Callable[[float], tuple[float, float]] | None = None
    bound: str = "clones"

    def __post_init__(self) -> None:
        PureProfile(self.rate)
        checked_users(self.users)
        if not validate_distance(self.diameter) > 0.0:
            raise InputError(
                f"{argument('diameter')} must be a finite number > 0, got {self.diameter!r}."
            )
        if not math.isfinite(self.rate * self.diameter):
            raise InputError(
                f"rate * diameter must be finite, got {self.rate!r} * {self.diameter!r}."
            )

    @classmethod
    def of(cls, space: Space, rate: float, users: int) -> ClonesProfile:
        """Build the profile for the values of a space, with its diameter for every reach."""
        return cls(rate, users, space.diameter)

    def pair(
        self, distance: float, reach_a: float | None = None, reach_b: float | None = None
    ) -> ClonePair:
        """Return the clone pair for two points at that distance.

        `reach_a` and `reach_b` are their own reaches (as `Space.reach` gives them), if known.
        """
        capped_distance = min(validate_distance(distance), self.diameter)
        a, b = (self.diameter, self.diameter) if self.reach is None else self.reach(capped_distance)
        a = a if reach_a is None else reach_a
        b = b if reach_b is None else reach_b
        return ClonePair(
            self._total(capped_distance),
            self._total(min(a, self.diameter)),
            self._total(min(b, self.diameter)),
        )

    def _total(self, distance: float) -> float:
        return round_up(self.rate * validate_distance(distance), 4)

    def pure(self, distance: float) -> float:
        return self._total(min(validate_distance(distance), self.diameter))

    def delta(self, epsilon: float, distance: float) -> float:
        return delta_upper(self.pair(distance), self.users, epsilon)

    def epsilon(self, delta: float, distance: float) -> float:
        return epsilon_upper(self.pair(distance), self.users, delta)
