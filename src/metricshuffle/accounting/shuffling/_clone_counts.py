"""Law of the number of clones, split into a window that is summed and tails that are bounded.

`clone_bound` uses it for delta and epsilon; the sums themselves are in `_clone_kernels`. The
notation is that of `clone_bound.delta_upper`: p, q0 and q1 describe the pair, r0 and r1 are the
probabilities that another report is a clone of the first or second kind, C is the number of clones,
and h(c) is the hockey-stick divergence of the pair given C = c. e denotes e^epsilon.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from metricshuffle.numerics.rounding import ROUNDOFF, round_up
from metricshuffle.numerics.types import Floats

if TYPE_CHECKING:
    from metricshuffle.accounting.shuffling.clone_bound import ClonePair


MAX_SINGLE_COUNTS = 4096  # up to this many clone counts, each is summed
MAX_SUMMED_COUNTS = 32768  # up to this many, the masses of blocks are summed
# One block costs as much as this many single counts, so up to 1e5 users every count is summed.
BLOCK_COST = 32.0
# Width of a block as a fraction of the clone count; epsilon grows by at most half this fraction.
BLOCK_FRACTION = 1.5e-4
# Bound on log P(C > last). h decreases with c, so these counts contribute at most 1e-11 of delta.
LOG_RIGHT = math.log(1e-11)
LOG_LEFT = math.log(1e-10)  # bound on log(P(C < first)/delta)
LOG_LEAST = -690.0


@dataclass(frozen=True)
class CloneCounts:
    """C ~ Bin(n-1, r0+r1) in the window first..last, the mass outside, and blocks for wide windows.

    `count` is n - 1, `high` is r0 + r1 and `low` its complement. `left` and `right` are upper
    bounds on P(C < first) and P(C > last). `masses` are bounds on the masses of the blocks that
    start at `ends`: upper bounds if `upwards`, lower bounds otherwise. There are no blocks (`ends`
    = `masses` = None) if every count is summed.
    """

    pair: ClonePair
    count: float
    high: float
    low: float
    upwards: bool
    first: float
    last: float
    left: float
    right: float
    ends: Floats | None
    masses: Floats | None

    @classmethod
    def absolute(
        cls,
        pair: ClonePair,
        users: int,
        delta: float,
        *,
        upwards: bool = True,
        share: float = BLOCK_FRACTION,
        most: int = MAX_SINGLE_COUNTS,
    ) -> CloneCounts:
        """Choose the window for deltas of about the given size.

        The mass left out on the left is at most 1e-10 of delta, or e^-690 if that is larger.
        """
        return cls._cut(
            pair, users, max(math.log(delta) + LOG_LEFT, LOG_LEAST), upwards, share, most
        )

    @classmethod
    def relative(
        cls, pair: ClonePair, users: int, epsilon: float, *, upwards: bool = True
    ) -> CloneCounts:
        """Choose the window for the delta at one epsilon.

        That delta is at least h(c)/2 for c = ceil(E C), because this c is at least the median of C
        and h decreases with c.
        """
        count, high, _ = _clone_law(pair, users, upwards)
        middle = _conditional_divergence(pair, math.ceil(count * high), epsilon)
        return cls._cut(
            pair,
            users,
            max(math.log(middle) + LOG_LEFT, LOG_LEAST) if middle > 0.0 else LOG_LEAST,
            upwards,
            BLOCK_FRACTION,
            MAX_SINGLE_COUNTS,
        )

    @classmethod
    def _cut(
        cls,
        pair: ClonePair,
        users: int,
        log_left: float,
        upwards: bool,
        share: float,
        max_blocks: int,
    ) -> CloneCounts:
        from metricshuffle.accounting.shuffling import _clone_kernels as kernels
        from metricshuffle.accounting.shuffling._binomial_tail_kernels import window

        count, high, low = _clone_law(pair, users, upwards)
        first, last, left, right = window(count, high, low, log_left, LOG_RIGHT)
        ends = masses = None
        width = math.floor(share * count * high)
        if last - first >= MAX_SUMMED_COUNTS:
            ends, lower_masses, largest = kernels.wide_blocks(count, high, low, first, last, share)
            masses = largest if upwards else lower_masses
        elif last - first >= max_blocks and width >= BLOCK_COST:
            ends, lower_masses, largest = kernels.summed_blocks(
                count, high, low, first, last, width
            )
            masses = largest if upwards else lower_masses
        return cls(pair, count, high, low, upwards, first, last, left, right, ends, masses)

    def delta(self, epsilon: float) -> float:
        """Return the bound in the worse direction; the caller must reject NaN and infinity."""
        if epsilon >= self.pair.log_p:
            return 0.0
        deltas = [self._one_way(*numbers) for numbers in _directions(self.pair, epsilon)]
        # max alone would drop a NaN that comes second.
        return math.nan if any(math.isnan(value) for value in deltas) else max(deltas)

    def _one_way(
        self, gain: float, growth: float, odds: float, rho: float, sigma: float, doubt: float
    ) -> float:
        from metricshuffle.accounting.shuffling import _clone_kernels as kernels

        direction = (gain, growth, odds, rho, sigma, doubt)
        if not all(map(math.isfinite, direction)):
            return math.nan
        if self.ends is None or self.masses is None:
            lower, upper = kernels.every_count(
                self.count, self.high, self.low, self.first, self.last, *direction
            )
            inside = upper if self.upwards else lower
        else:
            inside = kernels.every_block(self.ends, self.masses, self.upwards, *direction)
        if not self.upwards:
            return float(inside)
        right = (
            self.right * kernels.one_count(self.last, *direction)[1] if self.right > 0.0 else 0.0
        )
        return float(round_up(inside + self.left * gain + right, 16))

    def guess(self, delta: float) -> float:
        """Estimate epsilon by a normal approximation, only to start the search."""
        pair = self.pair
        tanh = math.tanh(0.5 * pair.log_p)
        mean = self.count * self.high
        rho = 1.0 / (1.0 + math.exp(min(abs(pair.log_q0 - pair.log_q1), 600.0)))
        spread = math.sqrt(max(mean * rho * (1.0 - rho), 0.05))
        square = 1.0
        for _ in range(3):
            square = max(2.0 * (math.log(tanh / delta) - math.log(2.5 * spread * square)), 0.1)
        return 0.98 * math.sqrt(square) * tanh / spread


def _clone_law(pair: ClonePair, users: int, upwards: bool) -> tuple[float, float, float]:
    """Return n-1, r0+r1 and its complement.

    r0+r1 is rounded so that both clone masses err to the safe side.
    """
    total = (math.exp(-pair.log_q0) + math.exp(-pair.log_q1)) / (1.0 + math.exp(-pair.log_p))
    slack = 8.0 * ROUNDOFF * (4.0 + abs(pair.log_q0 - pair.log_q1))
    high = min(1.0, total * (1.0 - slack) if upwards else total * (1.0 + slack))
    if high < 1e-290:  # fewer than 1e-274 clones on average count as 0
        return 0.0, 0.5, 0.5
    return float(users - 1), high, 1.0 - high


def _directions(
    pair: ClonePair, epsilon: float
) -> list[tuple[float, float, float, float, float, float]]:
    """Return (gain, growth, odds, rho, sigma, doubt) of P against Q and of Q against P.

    P and Q are the two laws of `clone_bound.delta_upper`. The second direction is left out if it is
    the same as the first. gain = (p-e)/(p+1), growth = e-1, odds = w0/w1 with w0 = (p-e)/r0 and w1
    = (p e - 1)/r1, rho = r0/(r0+r1), sigma = 1-rho. doubt covers the rounding of gain and of odds:
    a threshold k that is missed by rounding costs the relative error of odds times gain times the
    probability that Bin(c, rho) = k-1.
    """
    short = -math.expm1(epsilon - pair.log_p)
    gain = short / (1.0 + math.exp(-pair.log_p))
    odds = math.exp(-epsilon) * short / -math.expm1(-pair.log_p - epsilon)
    apart = pair.log_q0 - pair.log_q1
    doubt = 16.0 * ROUNDOFF * (4.0 + abs(apart))
    directions = []
    for turn in (apart,) if apart == 0.0 else (apart, -apart):
        # r1/r0 = q0/q1 = e^turn
        rho = 1.0 / (1.0 + math.exp(min(turn, 700.0)))
        sigma = 1.0 / (1.0 + math.exp(min(-turn, 700.0)))
        directions.append(
            (gain, math.expm1(epsilon), odds * math.exp(min(turn, 700.0)), rho, sigma, doubt)
        )
    return directions


def _conditional_divergence(pair: ClonePair, clones: int, epsilon: float) -> float:
    """Return h(clones) in the worse direction, only to choose a window."""
    from metricshuffle.accounting.shuffling import _clone_kernels as kernels

    ways = [numbers for numbers in _directions(pair, epsilon) if all(map(math.isfinite, numbers))]
    return max(
        [float(kernels.one_count(float(clones), *numbers)[1]) for numbers in ways], default=0.0
    )
