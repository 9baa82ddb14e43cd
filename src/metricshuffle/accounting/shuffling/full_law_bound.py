"""Amplification by shuffling, beyond the blanket: the others hide a report with their whole laws, not only with what all have in common.

Close to the worst data set in which all others hold the same input, where the blanket may be off by 40 %; worse than the blanket where that
is tight already, and for few people. Use the smallest of all bounds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from metricshuffle.accounting.shuffling.blanket_bound import checked_users
from metricshuffle.accounting.shuffling.input_class_laws import InputClassLaws, InputClassValues
from metricshuffle.accounting.shuffling.root_search import RootBracket, normal_guess
from metricshuffle.citations import theorem
from metricshuffle.numerics.certified_search import first_certified, last_certified
from metricshuffle.numerics.rounding import ROUNDOFF, round_up
from metricshuffle.numerics.types import Floats
from metricshuffle.privacy.profile import checked_delta, checked_epsilon

Directions = Literal["both", "forward"]
Line = tuple[float, float]
"""s, and the period of the nodes in units of 1/s."""

EPSILON_TOLERANCE = 1e-6  # how closely epsilon is searched for
BLOCK_WIDTH = 0.1  # users visited before the first one of the blanket, in units of their mean number: so many are one block
COARSE_BLOCK_WIDTH = 2.0  # ... where the people are so many
MANY_USERS_RATIO = 2e4  # ... that even this many times that number are few of them
GROWTH_START, BLOCK_GROWTH = 4.0, 0.15  # from 4 times the mean number on, blocks grow by this much of what lies beyond
NEGLIGIBLE_FRACTION = 1e-8  # what is left of T is not looked at when it is this fraction of the result
MIN_CHANCE = 1e-300  # a chance that is too small for a float counts as this much
MIN_USER_FRACTION = 1.0 / 16.0  # the fraction of the users that must be left for a look


@theorem("metricshuffle", "Hoelder on the contour")
def psi_upper(types: InputClassValues, users: Floats, line: Line | None = None, *, roughly: bool = False) -> Floats:
    """For each m in `users` (falling): a bound on Psi(U) = (1/m) E[(sum of G_j over U)_+], whatever the m people in U hold.

    Statement: for any s > 0, h >= 0, D > 0, z_k = s + ikD, M_x(z) = E exp(z G_x), and every composition of U,
        Psi(U) <= (1/m) (D/2 pi) max over types x of sum over whole k of |M_x(z_k)|^m |exp(h^2 z_k^2/2)/z_k^2|.
    Proof: docs/proofs/beyond-blanket.md. In short: x_+ is the inverse Laplace transform of 1/z^2; Gaussian noise only adds (Jensen), and
    so does the trapezoid rule (Poisson); take moduli, then Hoelder's inequality with exponents m/N_x, N_x people of type x.
    Conditions: independent reports. Reports that a type cannot make count in full (`InputClassValues.bare`).
    Numerics: `_full_law_kernels.hoelder`, h = 0.05/s; `line` is (s, 2 pi s/D), chosen to make the bound small if left out; `roughly`
    bounds the
    sum by moments (`_full_law_kernels.rough`). Nothing above `InputClassValues.local` is returned. Reference:
    docs/proofs/beyond-blanket.md.
    """
    from metricshuffle.accounting.shuffling import _full_law_kernels as kernels

    if not _rises(types):
        return np.full(users.size, min(types.bare, types.local))
    line = _line(types, float(users[0]))[:2] if line is None else line
    evaluated = kernels.rough if roughly else kernels.hoelder
    bounds = evaluated(users, types.starts, types.mass, types.value, types.doubt, *line)
    with np.errstate(invalid="ignore"):
        return np.where(bounds >= 0.0, np.minimum(types.local, (bounds + types.bare) * (1.0 + 4.0 * ROUNDOFF)), types.local)


def _rises(types: InputClassValues) -> bool:
    """Whether some G may be positive."""
    return bool(types.value.size) and bool(np.any(types.value + 16.0 * ROUNDOFF * types.doubt > 0.0))


def _line(types: InputClassValues, users: float) -> tuple[float, float, float]:
    """Where to integrate for so many users, and the logarithm of M(s)^m there."""
    from metricshuffle.accounting.shuffling import _full_law_kernels as kernels

    s, period, height = kernels.placed(users, types.starts, types.mass, types.value, types.doubt, types.square)
    return s, period, height


@dataclass(frozen=True)
class StoppingTime:
    """T, the number of people visited until one draws from the blanket: P(T > t) = (1 - blanket)^t, in blocks; rounded up."""

    blanket: float
    users: int

    @property
    def _log(self) -> float:
        return math.log1p(-self.blanket) if self.blanket < 1.0 else -math.inf

    def beyond(self, visited: float) -> float:
        """P(T > visited)."""
        if visited == 0.0:
            return 1.0
        return max(math.exp(visited * self._log * (1.0 - 8.0 * ROUNDOFF)) * (1.0 + 8.0 * ROUNDOFF), MIN_CHANCE)

    @lru_cache(maxsize=64)  # noqa: B019 - two numbers; all pairs of a randomizer are looked at with the same blocks
    def blocks(self, first: int, last: int, smallest: float) -> tuple[Floats, Floats]:
        """Ends of blocks of T in first+1..last and their chances, until what is left has a chance below `smallest`."""
        wide = min(float(self.users), (COARSE_BLOCK_WIDTH if self.users * self.blanket > MANY_USERS_RATIO else BLOCK_WIDTH) / self.blanket)
        until = math.ceil(math.log(max(smallest, 1e-300)) / self._log) if self.blanket < 1.0 else first + 1
        last = max(min(last, until), first + 1)
        listed, end = [float(first)], first
        while end < last:
            # far out, where little is left of T, blocks are longer
            end = min(last, end + max(1, math.ceil(max(wide, BLOCK_GROWTH * (end - GROWTH_START / self.blanket)))))
            listed.append(float(end))
        starts, ends = np.array(listed[:-1]), np.array(listed[1:])
        with np.errstate(invalid="ignore"):
            left = np.where(starts == 0.0, 1.0, np.exp(starts * (self._log * (1.0 - 8.0 * ROUNDOFF))) * (1.0 + 8.0 * ROUNDOFF))
        chances = np.maximum(left, MIN_CHANCE) * -np.expm1((ends - starts) * self._log) * (1.0 + 16.0 * ROUNDOFF)
        ends.flags.writeable = chances.flags.writeable = False
        return ends, chances

    def largest_exponent(self, delta: float, s: float) -> float:
        """The largest L found such that Psi <= e^(mL)/(e s m) for m people shows at most delta; -inf if there is none."""
        if self.users < 2 or not self.blanket > 0.0:
            return -math.inf
        ends, chances = self.blocks(0, max(1, self.users // 2), NEGLIGIBLE_FRACTION * delta)
        people, left = self.users - ends, self.beyond(float(ends[-1]))
        weights = chances / (people * (math.e * s)) * (1.0 + 1e-12)

        def certified(exponent: float) -> bool:
            return bool(float(weights @ np.exp(np.minimum(people * exponent, 700.0))) * (1.0 + 1e-12) + left <= delta)

        lowest = -1e3 / self.users
        return last_certified(certified, 1e3 / self.users, lowest, relative=1e-6) if certified(lowest) else -math.inf


@dataclass(frozen=True)
class _Evaluation:
    """One direction of a pair, for a number of users."""

    law: InputClassLaws
    users: int
    line: Line | None = None
    roughly: bool = False

    def delta(self, epsilon: float, enough: float = math.inf) -> float:
        """The bound of `delta_upper` in this direction, or what one report alone shows once it is clear that it exceeds `enough`."""
        types, visits = self.law.at(epsilon), StoppingTime(self.law.blanket, self.users)
        if self.users < 2 or not self.law.blanket > 0.0 or types.local == 0.0:
            return types.local
        if visits.beyond(float(self.users)) * types.local > enough:  # so much is left of T at the end in any case
            return types.local
        if not _rises(types):
            return min(types.bare, types.local)
        total, first, share, guide = 0.0, 0, 1.0, math.nan
        while first < self.users - 1 and share > MIN_USER_FRACTION:
            if self.line is not None and first == 0:
                (s, period), height = self.line, -self.line[1]  # (a guide only)
            else:
                s, period, height = _line(types, float(self.users - 1 - first))
            if not (0.0 < s < math.inf and abs(height) < math.inf):
                break
            if math.isnan(guide):  # the order of magnitude of the result, rather too small
                guide = math.exp(min(max(height, -600.0), 0.0)) / (self.users * s) * 1e-2 + types.bare
            share *= 0.5
            ends, chances = visits.blocks(first, max(self.users - math.ceil(share * self.users), first + 1), NEGLIGIBLE_FRACTION * guide)
            total += float(chances @ psi_upper(types, self.users - ends, (s, period), roughly=self.roughly))
            first = int(ends[-1])
            if total > enough:
                return types.local
            if visits.beyond(first) <= NEGLIGIBLE_FRACTION * guide:
                break
        bound = round_up(total + visits.beyond(first) * types.local, 4096)
        return min(types.local, bound) if bound >= 0.0 else types.local


def integration_line(law: InputClassLaws, users: int, epsilon: float) -> Line | None:
    """Where this pair is integrated, which is good for pairs that are about as bad; None if there is no such place."""
    types = law.at(epsilon)
    s, period, _ = _line(types, max(1.0, users - 1.0)) if _rises(types) else (math.nan, math.nan, math.nan)
    return (s, period) if 0.0 < s < math.inf else None


def delta_on_line(law: InputClassLaws, users: int, epsilon: float, line: Line, *, roughly: bool = False, enough: float = math.inf) -> float:
    """`delta_upper` of the direction (a, b) with a line of integration that was found for another pair."""
    return min(1.0, _Evaluation(law, users, line, roughly).delta(epsilon, enough)) if epsilon < law.pure else 0.0


def is_certified(law: InputClassLaws, users: int, epsilon: float, delta: float, *, directions: Directions = "both") -> bool:
    """Whether `delta_upper` is at most delta; quicker where it is not."""
    ways = (direction for direction in _directions(law, directions) if epsilon < direction.pure)
    return all(_Evaluation(direction, users).delta(epsilon, delta) <= delta for direction in ways)


def _directions(law: InputClassLaws, directions: Directions) -> Iterator[InputClassLaws]:
    """One after the other: where the first decides, it is not looked whether there is a second."""
    yield law
    if directions == "both" and not law.symmetric:
        yield law.reversed


@theorem("metricshuffle", "displaced blanket user")
def delta_upper(law: InputClassLaws, users: int, epsilon: float, *, directions: Directions = "both") -> float:
    """The hockey-stick divergence of the shuffled reports at e^epsilon, for every data set of the others; never too small.

    Statement: with g the sum of the pointwise minimum of the laws of ALL inputs and Psi as in `psi_upper`,
        delta <= sum over t = 1..n-1 of g (1-g)^(t-1) max over |U| = n-t of Psi(U) + (1-g)^(n-1) delta_local.
    Proof: docs/proofs/beyond-blanket.md. In short: every other person draws from the blanket with probability g. Visit them in random
    order until the first who does, J, the T-th. Show the adversary who was visited before and what they reported, and J's report, whose law
    does not depend on who J is. J is uniform among the n - T not visited before; put person 1's report in J's place and show all of them
    with their names: that is Psi. The shuffled reports can be made from what was shown. Psi's maximum falls in the number of people, so
    that T may be taken in blocks.
    Conditions: independent reports, `law` holds every input another person could have.
    Numerics: blocks end where little is left of T, which counts as if everything were shown; all is rounded up.
    Reference: docs/proofs/beyond-blanket.md.
    """
    users, epsilon = checked_users(users), checked_epsilon(epsilon)
    ways = [direction for direction in _directions(law, directions) if epsilon < direction.pure]
    return min(1.0, max((_Evaluation(direction, users).delta(epsilon) for direction in ways), default=0.0))


def _epsilon_one_direction(law: InputClassLaws, users: int, delta: float, relative: float) -> float:
    if law.pure == 0.0:
        return 0.0
    evaluation = _Evaluation(law, users)

    def excess(epsilon: float) -> float:
        """log(bound/delta), at most 0 only where 0 <= bound <= delta."""
        value = evaluation.delta(epsilon)
        if not 0.0 <= value < math.inf:
            return math.inf
        if value <= delta:
            return min(0.0, math.log(value / delta)) if value > delta * 1e-300 else -math.inf
        return max(math.log(value / delta), 1e-300)

    at_zero = excess(0.0)
    if at_zero <= 0.0:
        return 0.0
    guess, slope = normal_guess(delta * math.exp(min(at_zero, 700.0)), delta)
    bracket = RootBracket(law.pure, at_low=at_zero).narrowed(excess, min(guess, 0.9 * law.pure), slope, relative)
    return bracket.high


@theorem("metricshuffle", "epsilon beyond the blanket")
def epsilon_upper(
    law: InputClassLaws, users: int, delta: float, *, directions: Directions = "both", relative: float = EPSILON_TOLERANCE
) -> float:
    """The smallest certified epsilon at this delta: `delta_upper` of it is at most delta.

    Statement: as for `delta_upper`; the local epsilon, where delta = 0, is the ceiling and the answer wherever nothing better can be
    certified. Conditions: 0 <= delta < 1. Numerics: what is not a number counts as too large. Reference: `delta_upper`.
    """
    users, delta = checked_users(users), checked_delta(delta)
    ways = list(_directions(law, directions))
    ceiling = max(direction.pure for direction in ways)
    if delta == 0.0:
        return ceiling
    upper = _epsilon_one_direction(ways[0], users, delta, relative)
    for direction in ways[1:]:
        if upper < direction.pure and not _Evaluation(direction, users).delta(upper) <= delta:
            upper = max(upper, _epsilon_one_direction(direction, users, delta, relative))
    return first_certified(
        lambda epsilon: delta_upper(law, users, epsilon, directions=directions) <= delta,
        upper, ceiling, step=0.1 * relative, growth=4.0, failing=0.0, least=1e-300,
    ).passing  # fmt: skip
