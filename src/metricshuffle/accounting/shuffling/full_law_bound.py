"""Amplification beyond the blanket: the others hide a report with their whole laws.

The blanket uses only the part that the laws of all inputs have in common. This bound is close to
the divergence of the worst data set in which all others hold the same input, where the blanket
bound may be off by 40 %. It is worse where the blanket bound is already tight, and for few people.
Use the smallest of all bounds.

Notation: person 1 holds a or b, K_x is the law of the report of input x, e denotes e^epsilon, and
G_x = (K_a(Y) - e K_b(Y))/K_x(Y) with Y ~ K_x. x runs over the input classes of the others (`types`
in the code, see `input_class_laws`). M_x(z) = E exp(z G_x). U is a set of m people, G_j is the G_x
of the input that person j holds, and Psi(U) = (1/m) E[(sum of G_j over j in U)_+].
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from metricshuffle.accounting.shuffling.blanket_bound import checked_users
from metricshuffle.accounting.shuffling.input_class_laws import InputClassLaws, InputClassValues
from metricshuffle.accounting.shuffling.root_search import (
    Directions,
    bracket_root,
    certified_excess,
    confirm_upwards,
    iterate_directions,
)
from metricshuffle.citations import theorem
from metricshuffle.numerics.certified_search import last_certified
from metricshuffle.numerics.rounding import ROUNDOFF, round_up
from metricshuffle.numerics.types import Floats
from metricshuffle.privacy.profile import checked_delta, checked_epsilon

Line = tuple[float, float]
"""Line of integration: its real part s, and the period of the nodes in units of 1/s."""

EPSILON_TOLERANCE = 1e-6  # relative tolerance of epsilon
# Width of a block of T in units of the mean of T, 1/blanket: COARSE_BLOCK_WIDTH if there are more
# than MANY_USERS_RATIO times 1/blanket users. Beyond GROWTH_START times the mean, a block is at
# least as wide as the fraction BLOCK_GROWTH of its distance from there.
BLOCK_WIDTH = 0.1
COARSE_BLOCK_WIDTH = 2.0
MANY_USERS_RATIO = 2e4
GROWTH_START = 4.0
BLOCK_GROWTH = 0.15
# Larger values of T are not evaluated once their probability is this fraction of the result.
NEGLIGIBLE_FRACTION = 1e-8
MIN_CHANCE = 1e-300  # replaces probabilities that underflow
MIN_USER_FRACTION = 1.0 / 16.0  # blocks are evaluated while this fraction of the users is left


@theorem("metricshuffle", "Hoelder on the contour")
def psi_upper(
    types: InputClassValues, users: Floats, line: Line | None = None, *, roughly: bool = False
) -> Floats:
    """Upper bound on Psi(U) = (1/m) E[(sum of G_j over U)_+] for each m in `users` (descending).

    Statement: for any s > 0, h >= 0, D > 0, z_k = s + ikD, M_x(z) = E exp(z G_x), and every
    composition of U (whatever its m people hold),

        Psi(U) <= (1/m) (D/2 pi) max over input classes x of
                  sum over whole k of |M_x(z_k)|^m |exp(h^2 z_k^2/2)/z_k^2|.

    Proof: docs/proofs/beyond-blanket.md. In short: x_+ is the inverse Laplace transform of 1/z^2.
    Adding Gaussian noise of standard deviation h to the sum only increases the expectation
    (Jensen), and the trapezoid rule with step D only increases the integral (Poisson). Take moduli,
    then Hoelder's inequality with exponents m/N_x, N_x the number of people of input class x.
    Conditions: independent reports. Reports that an input class cannot make count in full
    (`InputClassValues.bare`).
    Numerics: `_full_law_kernels.hoelder`, h = 0.05/s; `line` is (s, 2 pi s/D), by default chosen to
    make the bound small; `roughly` bounds the sum by moments
    (`_full_law_kernels.hoelder_by_moments`). The result is at most `InputClassValues.local`.
    Reference: docs/proofs/beyond-blanket.md.
    """
    from metricshuffle.accounting.shuffling import _full_law_kernels as kernels

    if not _rises(types):
        return np.full(users.size, min(types.bare, types.local))
    line = _line(types, float(users[0]))[:2] if line is None else line
    evaluated = kernels.hoelder_by_moments if roughly else kernels.hoelder
    bounds = evaluated(users, types.starts, types.mass, types.value, types.doubt, *line)
    with np.errstate(invalid="ignore"):
        return np.where(
            bounds >= 0.0,
            np.minimum(types.local, (bounds + types.bare) * (1.0 + 4.0 * ROUNDOFF)),
            types.local,
        )


def _rises(types: InputClassValues) -> bool:
    """Return whether some G may be positive."""
    return bool(types.value.size) and bool(
        np.any(types.value + 16.0 * ROUNDOFF * types.doubt > 0.0)
    )


def _line(types: InputClassValues, users: float) -> tuple[float, float, float]:
    """Return a line of integration for m = `users` people, and the largest log M_x(s)^m on it."""
    from metricshuffle.accounting.shuffling import _full_law_kernels as kernels

    s, period, height = kernels.integration_line(
        users, types.starts, types.mass, types.value, types.doubt, types.square
    )
    return s, period, height


@dataclass(frozen=True)
class StoppingTime:
    """T, the number of people visited until one draws from the blanket, in blocks.

    `blanket` is the probability g with which each person draws from the blanket, so P(T > t) = (1 -
    g)^t. All probabilities are rounded up.
    """

    blanket: float
    users: int

    @property
    def _log(self) -> float:
        return math.log1p(-self.blanket) if self.blanket < 1.0 else -math.inf

    def beyond(self, visited: float) -> float:
        """Return P(T > visited), rounded up."""
        if visited == 0.0:
            return 1.0
        return max(
            math.exp(visited * self._log * (1.0 - 8.0 * ROUNDOFF)) * (1.0 + 8.0 * ROUNDOFF),
            MIN_CHANCE,
        )

    @lru_cache(maxsize=64)  # noqa: B019 - small; all pairs of a randomizer share it
    def blocks(self, first: int, last: int, smallest: float) -> tuple[Floats, Floats]:
        """Return the ends of blocks of T in first+1..last, and their probabilities.

        The blocks end where the remaining probability is below `smallest`.
        """
        wide = min(
            float(self.users),
            (COARSE_BLOCK_WIDTH if self.users * self.blanket > MANY_USERS_RATIO else BLOCK_WIDTH)
            / self.blanket,
        )
        until = (
            math.ceil(math.log(max(smallest, 1e-300)) / self._log)
            if self.blanket < 1.0
            else first + 1
        )
        last = max(min(last, until), first + 1)
        listed = [float(first)]
        end = first
        while end < last:
            # Blocks are longer in the tail, which has little probability.
            end = min(
                last,
                end
                + max(1, math.ceil(max(wide, BLOCK_GROWTH * (end - GROWTH_START / self.blanket)))),
            )
            listed.append(float(end))
        starts = np.array(listed[:-1])
        ends = np.array(listed[1:])
        with np.errstate(invalid="ignore"):
            left = np.where(
                starts == 0.0,
                1.0,
                np.exp(starts * (self._log * (1.0 - 8.0 * ROUNDOFF))) * (1.0 + 8.0 * ROUNDOFF),
            )
        chances = (
            np.maximum(left, MIN_CHANCE)
            * -np.expm1((ends - starts) * self._log)
            * (1.0 + 16.0 * ROUNDOFF)
        )
        ends.flags.writeable = chances.flags.writeable = False
        return ends, chances

    def largest_exponent(self, delta: float, s: float) -> float:
        """Return the largest L found such that Psi(U) <= e^(mL)/(e s m) certifies delta.

        m is the number of people in U, and e = 2.718... Returns -inf if no L certifies delta.
        """
        if self.users < 2 or not self.blanket > 0.0:
            return -math.inf
        ends, chances = self.blocks(0, max(1, self.users // 2), NEGLIGIBLE_FRACTION * delta)
        people = self.users - ends
        left = self.beyond(float(ends[-1]))
        weights = chances / (people * (math.e * s)) * (1.0 + 1e-12)

        def certified(exponent: float) -> bool:
            return bool(
                float(weights @ np.exp(np.minimum(people * exponent, 700.0))) * (1.0 + 1e-12) + left
                <= delta
            )

        lowest = -1e3 / self.users
        return (
            last_certified(certified, 1e3 / self.users, lowest, relative=1e-6)
            if certified(lowest)
            else -math.inf
        )


@dataclass(frozen=True)
class _Evaluation:
    """Evaluation of one direction of a pair, for a number of users."""

    law: InputClassLaws
    users: int
    line: Line | None = None
    roughly: bool = False

    def delta(self, epsilon: float, enough: float = math.inf) -> float:
        """Return `delta_upper` in this direction.

        Returns the local delta as soon as the bound is known to exceed `enough`.
        """
        types = self.law.at(epsilon)
        visits = StoppingTime(self.law.blanket, self.users)
        if self.users < 2 or not self.law.blanket > 0.0 or types.local == 0.0:
            return types.local
        # P(T > users) always remains, and it counts with the local delta.
        if visits.beyond(float(self.users)) * types.local > enough:
            return types.local
        if not _rises(types):
            return min(types.bare, types.local)
        total = 0.0
        first = 0
        share = 1.0
        guide = math.nan
        while first < self.users - 1 and share > MIN_USER_FRACTION:
            if self.line is not None and first == 0:
                (s, period), height = self.line, -self.line[1]  # a heuristic only
            else:
                s, period, height = _line(types, float(self.users - 1 - first))
            if not (0.0 < s < math.inf and abs(height) < math.inf):
                break
            if math.isnan(guide):  # order of magnitude of the result, rather too low
                guide = (
                    math.exp(min(max(height, -600.0), 0.0)) / (self.users * s) * 1e-2 + types.bare
                )
            share *= 0.5
            ends, chances = visits.blocks(
                first,
                max(self.users - math.ceil(share * self.users), first + 1),
                NEGLIGIBLE_FRACTION * guide,
            )
            total += float(
                chances @ psi_upper(types, self.users - ends, (s, period), roughly=self.roughly)
            )
            first = int(ends[-1])
            if total > enough:
                return types.local
            if visits.beyond(first) <= NEGLIGIBLE_FRACTION * guide:
                break
        bound = round_up(total + visits.beyond(first) * types.local, 4096)
        return min(types.local, bound) if bound >= 0.0 else types.local


def integration_line(law: InputClassLaws, users: int, epsilon: float) -> Line | None:
    """Return the line of integration of this pair, which suits similar pairs, or None."""
    types = law.at(epsilon)
    s, period, _ = (
        _line(types, max(1.0, users - 1.0)) if _rises(types) else (math.nan, math.nan, math.nan)
    )
    return (s, period) if 0.0 < s < math.inf else None


def delta_on_line(
    law: InputClassLaws,
    users: int,
    epsilon: float,
    line: Line,
    *,
    roughly: bool = False,
    enough: float = math.inf,
) -> float:
    """Evaluate `delta_upper` of the direction (a, b) on a line that was chosen for another pair."""
    return (
        min(1.0, _Evaluation(law, users, line, roughly).delta(epsilon, enough))
        if epsilon < law.pure
        else 0.0
    )


def is_certified(
    law: InputClassLaws,
    users: int,
    epsilon: float,
    delta: float,
    *,
    directions: Directions = "both",
) -> bool:
    """Return whether `delta_upper` is at most delta; faster than `delta_upper` where it is not."""
    ways = (
        direction for direction in iterate_directions(law, directions) if epsilon < direction.pure
    )
    return all(_Evaluation(direction, users).delta(epsilon, delta) <= delta for direction in ways)


@theorem("metricshuffle", "displaced blanket user")
def delta_upper(
    law: InputClassLaws, users: int, epsilon: float, *, directions: Directions = "both"
) -> float:
    """Upper bound on the hockey-stick divergence of the shuffled reports at e^epsilon.

    It holds for every data set of the others.

    Statement: let g be the sum of the pointwise minimum of the laws of ALL inputs, n the number of
    people, delta_local the delta of one report that is not shuffled, and Psi as in `psi_upper`.
    Then

        delta <= sum over t = 1..n-1 of g (1-g)^(t-1) max over |U| = n-t of Psi(U)
                 + (1-g)^(n-1) delta_local.

    Proof: docs/proofs/beyond-blanket.md. In short: every other person draws from the blanket with
    probability g. Visit the others in random order until the first one who draws from the blanket;
    call this person J, and let J be the T-th. Reveal to the adversary who was visited before J,
    what these people reported, and the report of J, whose law does not depend on who J is. J is
    uniform among the n - T people not visited before. Put person 1's report in the place of J, and
    reveal the reports of these n - T people with their names: the divergence of the revealed
    information is Psi(U), U being these people. The shuffled reports can be made from what was
    revealed. The maximum of Psi(U) decreases as U grows, so that T may be taken in blocks.
    Conditions: independent reports, `law` contains every input another person could have.
    Numerics: blocks end where the remaining probability of T is small; that remainder counts as if
    everything were revealed. Everything is rounded up.
    Reference: docs/proofs/beyond-blanket.md.
    """
    users = checked_users(users)
    epsilon = checked_epsilon(epsilon)
    ways = [
        direction for direction in iterate_directions(law, directions) if epsilon < direction.pure
    ]
    return min(
        1.0, max((_Evaluation(direction, users).delta(epsilon) for direction in ways), default=0.0)
    )


def _epsilon_one_direction(law: InputClassLaws, users: int, delta: float, relative: float) -> float:
    if law.pure == 0.0:
        return 0.0
    evaluation = _Evaluation(law, users)
    return bracket_root(
        lambda epsilon: certified_excess(evaluation.delta(epsilon), delta),
        delta,
        law.pure,
        relative,
    ).high


@theorem("metricshuffle", "epsilon beyond the blanket")
def epsilon_upper(
    law: InputClassLaws,
    users: int,
    delta: float,
    *,
    directions: Directions = "both",
    relative: float = EPSILON_TOLERANCE,
) -> float:
    """Smallest certified epsilon at this delta: its `delta_upper` is at most delta.

    Statement: as for `delta_upper`. The local epsilon, where delta = 0, is the ceiling, and it is
    returned where nothing smaller can be certified.
    Conditions: 0 <= delta < 1.
    Numerics: NaN counts as too large.
    Reference: `delta_upper`.
    """
    users = checked_users(users)
    delta = checked_delta(delta)
    ways = list(iterate_directions(law, directions))
    ceiling = max(direction.pure for direction in ways)
    if delta == 0.0:
        return ceiling
    upper = _epsilon_one_direction(ways[0], users, delta, relative)
    for direction in ways[1:]:
        if upper < direction.pure and not _Evaluation(direction, users).delta(upper) <= delta:
            upper = max(upper, _epsilon_one_direction(direction, users, delta, relative))
    return confirm_upwards(
        lambda epsilon: delta_upper(law, users, epsilon, directions=directions) <= delta,
        upper,
        ceiling,
        relative,
    )
