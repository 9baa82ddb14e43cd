"""Amplification by shuffling, beyond the blanket: the others hide a report with their whole laws, not only with what all have in common.

Close to the worst data set in which all others hold the same input, where the blanket may be off by 40 %; worse than the blanket where that
is tight already, and for few people. Use the smallest of all bounds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from metricshuffle.accounting.beyond_blanket.laws import OthersLaws, Types
from metricshuffle.accounting.blanket.bound import checked_users
from metricshuffle.accounting.blanket.search import Bracketed, normal_guess
from metricshuffle.citations import theorem
from metricshuffle.numerics.rounding import ROUNDOFF, raised
from metricshuffle.numerics.search import first_certified
from metricshuffle.numerics.types import Floats
from metricshuffle.privacy.profile import checked_delta, checked_epsilon

Directions = Literal["both", "forward"]

RELATIVE = 1e-6  # how closely epsilon is searched for
BLOCK = 0.1  # users visited before the first one of the blanket, in units of their mean number: so many are one block
COARSE = 2.0  # ... where the people are so many
MANY = 2e4  # ... that even this many times that number are few of them
CUT = 1e-8  # what is left of T is not looked at when it is this fraction of the result
FEWEST = 1.0 / 16.0  # the fraction of the users that must be left for a look


@theorem("metricshuffle", "Hoelder on the contour")
def psi_upper(types: Types, users: Floats, line: tuple[float, float] | None = None) -> Floats:
    """For each m in `users` (falling): a bound on Psi(U) = (1/m) E[(sum of G_j over U)_+], whatever the m people in U hold.

    Statement: for any s > 0, h >= 0, D > 0, z_k = s + ikD, M_x(z) = E exp(z G_x), and every composition of U,
        Psi(U) <= (1/m) (D/2 pi) max over types x of sum over whole k of |M_x(z_k)|^m |exp(h^2 z_k^2/2)/z_k^2|.
    Proof: docs/proofs/beyond-blanket.md. In short: x_+ is the inverse Laplace transform of 1/z^2; Gaussian noise only adds (Jensen), and
    so does the trapezoid rule (Poisson); take moduli, then Hoelder's inequality with exponents m/N_x, N_x people of type x.
    Conditions: independent reports. Reports that a type cannot make count in full (`Types.bare`).
    Numerics: `_kernels.hoelder`, h = 0.05/s; `line` is (s, 2 pi s/D), chosen to make the bound small if left out. Nothing above
    `Types.local` is returned. Reference: docs/proofs/beyond-blanket.md.
    """
    from metricshuffle.accounting.beyond_blanket import _kernels as kernels

    if not _rises(types):
        return np.full(users.size, min(types.bare, types.local))
    line = _line(types, float(users[0]))[:2] if line is None else line
    found = kernels.hoelder(users, types.starts, types.mass, types.value, types.doubt, *line)
    with np.errstate(invalid="ignore"):
        return np.where(found >= 0.0, np.minimum(types.local, (found + types.bare) * (1.0 + 4.0 * ROUNDOFF)), types.local)


def _rises(types: Types) -> bool:
    """Whether some G may be positive."""
    return bool(types.value.size) and bool(np.any(types.value + 16.0 * ROUNDOFF * types.doubt > 0.0))


def _line(types: Types, users: float) -> tuple[float, float, float]:
    """Where to integrate for so many users, and the logarithm of M(s)^m there."""
    from metricshuffle.accounting.beyond_blanket import _kernels as kernels

    s, period, height = kernels.placed(users, types.starts, types.mass, types.value, types.doubt, types.square)
    return s, period, height


@dataclass
class _Evaluation:
    """One direction of a pair, for a number of users."""

    law: OthersLaws
    users: int

    def _still(self, visited: float) -> float:
        """(1 - blanket)^visited, rounded up: nobody of the first `visited` draws from the blanket."""
        if self.law.blanket >= 1.0:
            return 0.0 if visited else 1.0
        log = visited * math.log1p(-self.law.blanket)
        return math.exp(log * (1.0 - 8.0 * ROUNDOFF)) * (1.0 + 8.0 * ROUNDOFF)

    def _ends(self, first: int, last: int, smallest: float) -> Floats:
        """Ends of blocks of T in first+1..last, until what is left has a chance below `smallest`."""
        share = self.law.blanket
        wide = max(1, math.ceil((COARSE if self.users * share > MANY else BLOCK) / share))
        until = math.ceil(math.log(smallest) / math.log1p(-share)) if share < 1.0 else first + 1
        last = max(min(last, until), first + 1)
        return np.unique(np.append(np.arange(first + wide, last, wide), last)).astype(np.float64)

    def delta(self, epsilon: float) -> float:
        """The bound of `delta_upper` in this direction."""
        types = self.law.at(epsilon)
        if self.users < 2 or not self.law.blanket > 0.0 or types.local == 0.0:
            return types.local
        if not _rises(types):
            return min(types.bare, types.local)
        total, first, share, guide = 0.0, 0, 1.0, math.nan
        while first < self.users - 1 and share > FEWEST:
            s, period, height = _line(types, float(self.users - 1 - first))
            if math.isnan(guide):  # the order of magnitude of the result, rather too small
                guide = math.exp(min(max(height, -600.0), 0.0)) / (self.users * s) * 1e-2 + types.bare
            share *= 0.5
            ends = self._ends(first, max(self.users - math.ceil(share * self.users), first + 1), CUT * guide)
            starts = np.append(float(first), ends[:-1])
            log = math.log1p(-self.law.blanket) if self.law.blanket < 1.0 else -math.inf
            chances = np.array([self._still(start) for start in starts]) * -np.expm1((ends - starts) * log) * (1.0 + 16.0 * ROUNDOFF)
            total += float(chances @ psi_upper(types, self.users - ends, (s, period)))
            first = int(ends[-1])
            if self._still(first) <= CUT * guide:
                break
        total += self._still(first) * types.local
        bound = raised(total, 4096)
        return min(types.local, bound) if bound >= 0.0 else types.local


def _directions(law: OthersLaws, directions: Directions) -> list[OthersLaws]:
    return [law] if directions == "forward" or law.symmetric else [law, law.reversed]


@theorem("metricshuffle", "displaced blanket user")
def delta_upper(law: OthersLaws, users: int, epsilon: float, *, directions: Directions = "both") -> float:
    """The hockey-stick divergence of the shuffled reports at e^epsilon, for every data set of the others; never too small.

    Statement: with g the sum of the pointwise minimum of the laws of ALL inputs and Psi as in `psi_upper`,
        delta <= sum over t = 1..n-1 of g (1-g)^(t-1) max over |U| = n-t of Psi(U) + (1-g)^(n-1) delta_local.
    Proof: docs/proofs/beyond-blanket.md. In short: every other person draws from the blanket with probability g. Visit them in random
    order until the first who does, J, the T-th. Show the adversary who was visited before and what they reported, and J's report, whose law
    does not depend on who J is. J is uniform among the n - T not visited before; put person 1's report in J's place and show all of them
    with their names: that is Psi. The shuffled reports can be made from what was shown. Psi's maximum falls in the number of people, so T may
    be taken in blocks.
    Conditions: independent reports, `law` holds every input another person could have.
    Numerics: blocks end where little is left of T, which counts as if everything were shown; all is rounded up.
    Reference: docs/proofs/beyond-blanket.md.
    """
    users, epsilon = checked_users(users), checked_epsilon(epsilon)
    ways = [way for way in _directions(law, directions) if epsilon < way.pure]
    return min(1.0, max((_Evaluation(way, users).delta(epsilon) for way in ways), default=0.0))


def _one_way(law: OthersLaws, users: int, delta: float, relative: float) -> float:
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
    found = Bracketed(law.pure, at_low=at_zero).narrowed(excess, min(guess, 0.9 * law.pure), slope, relative)
    return found.high


@theorem("metricshuffle", "epsilon beyond the blanket")
def epsilon_upper(law: OthersLaws, users: int, delta: float, *, directions: Directions = "both", relative: float = RELATIVE) -> float:
    """The smallest certified epsilon at this delta: `delta_upper` of it is at most delta.

    Statement: as for `delta_upper`; the local epsilon, where delta = 0, is the ceiling and the answer wherever nothing better can be
    certified. Conditions: 0 <= delta < 1. Numerics: what is not a number counts as too large. Reference: `delta_upper`.
    """
    users, delta = checked_users(users), checked_delta(delta)
    ways = _directions(law, directions)
    ceiling = max(way.pure for way in ways)
    if delta == 0.0:
        return ceiling
    found = _one_way(ways[0], users, delta, relative)
    for way in ways[1:]:
        if found < way.pure and not _Evaluation(way, users).delta(found) <= delta:
            found = max(found, _one_way(way, users, delta, relative))
    return first_certified(
        lambda epsilon: delta_upper(law, users, epsilon, directions=directions) <= delta,
        found, ceiling, step=0.1 * relative, growth=4.0, failing=0.0, least=1e-300,
    ).passing  # fmt: skip
