"""RR-Shuffle: each bit is replaced by a uniform one with probability p; the observer counts ones.

flip = p/2 is the probability that a bit is sent inverted. There are m bits of honest people; T of
the bits that are equal in both data sets are 1. Two data sets that differ by d ones give the counts

    P = Bin(T+d, 1-flip) + Bin(m-T-d, flip)   and   P' = Bin(T, 1-flip) + Bin(m-T, flip).

The data set with T = 0 is NOT the worst one, so everything here is a maximum over all T.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np

from metricshuffle.citations import theorem
from metricshuffle.errors import InputError, argument
from metricshuffle.noise.binomial_sum import (
    BitCountLaw,
    bit_count_law,
    bit_count_range,
    validate_flip,
)
from metricshuffle.numerics.certified_search import last_certified_integer
from metricshuffle.numerics.rounding import ROUNDOFF, round_down, round_up
from metricshuffle.numerics.types import Floats
from metricshuffle.privacy.profile import (
    PrivacyProfile,
    PureProfile,
    Shape,
    checked_epsilon,
    log_excess,
    validate_distance,
)

MAX_BITS = 2**50  # larger integers are not all exact as floats
# up to this distance the moved bits are added one at a time, which keeps the likelihood ratio
# accurate
MAX_SINGLE_BITS = 64
FEW_BLOCKS = 8  # blocks of data sets, which cost 6% of the variance
MAX_EXACT_DATA_SETS = 256  # up to this many values of T each is evaluated exactly
LARGEST_EXPONENT = 500.0  # for larger epsilons delta at this one is used, which is larger
CACHE_CELLS = 4_000_000  # cells of laws cached between calls
# From this many bits on, 64 bits make no difference: they are set aside, and all distances up to 64
# share the laws of the other bits.
MANY_BITS = 10_000 * MAX_SINGLE_BITS

Values = Callable[[int, int], Floats]


@theorem("metricshuffle", "revealing the others, block by block")
def worst_over_data(
    values: Values, largest: int, blocks: int, *, first_alone: bool = False
) -> Floats:
    """Upper bound on max over T in 0..largest of values(T, T), entry by entry.

    T is the number of ones among the bits that stay the same, and m the number of all bits.

    Statement: 0..largest is cut into `blocks` (each T its own if they are few enough), and
    values(T0, T1) must bound every T in T0..T1. Here values(T0, T1) is the hockey-stick divergence
    that remains when T - T0 of the ones and T1 - T of the zeros among the unchanged bits are shown
    to the adversary: hiding them again is post-processing. Showing them costs (T1 - T0)/m of the
    variance.
    Conditions: none; with `first_alone`, the bound holds for the T of the first block only.
    Numerics: the cuts do not depend on epsilon, so the bound decreases in epsilon as the true value
    does.
    Reference: this docstring.
    """
    edges = np.linspace(
        0,
        largest + 1,
        min(max(blocks, MAX_EXACT_DATA_SETS if largest < MAX_EXACT_DATA_SETS else 1), largest + 1)
        + 1,
    ).astype(int)
    return np.asarray(
        np.max(
            [values(int(a), int(b) - 1) for a, b in pairwise(edges[:2] if first_alone else edges)],
            axis=0,
        )
    )


@dataclass(frozen=True)
class _CountPair:
    """Laws p and q of the count for two data sets, and their uncertainties.

    The log masses of p and of q have errors of at most `slack` each, besides an error of at most
    `total` that is common to both. `outside` bounds the mass that is not tabulated.
    """

    p: Floats
    q: Floats
    slack: float
    total: float
    outside: float

    def delta(self, epsilon: float) -> float:
        from metricshuffle.noise import _binomial_kernels as kernels

        factor = round_up(math.exp(self.slack), 16)
        value = kernels.hockey_sticks(self.p, self.q, factor, math.exp(epsilon) / factor)
        return round_up(float(value) * math.exp(self.total), 16) + self.outside

    def delta_below(self, epsilon: float) -> float:
        """Lower bound on the hockey-stick divergence of p over q.

        Each law has a relative error of at most `slack` + `total`, apart from the mass outside.
        """
        doubt = self.slack + self.total + 64.0 * ROUNDOFF
        growth = math.exp(epsilon)
        excess = self.p * math.exp(-doubt) - self.q * (growth * math.exp(doubt))
        total = float(np.maximum(excess, 0.0).sum()) * (1.0 - (len(self.p) + 64) * ROUNDOFF)
        return max(0.0, total - 2.0 * (1.0 + growth) * self.outside)

    def curve(self, growth: Floats) -> Floats:
        """Upper bounds as `delta` at many ascending e^epsilon, in one pass."""
        from metricshuffle.noise import _binomial_kernels as kernels

        return np.asarray(
            kernels.half_line_curve(self.p, self.q, self.slack, growth)
            * round_up(math.exp(self.total), 16)
            + self.outside
        )


@dataclass(frozen=True)
class RandomizedResponseProfile(PrivacyProfile):
    """Count of ones among `bits` honest bits, each inverted with probability `flip`.

    The distance is the change in the number of ones. Not safe for concurrent use: laws of the last
    distance evaluated are cached.
    """

    bits: int
    flip: float
    bound: str = "worst data set"
    most_blocks: int = 600
    """Blocks of data sets; more make the bound tighter and slower.

    With k blocks the bound is as if about the fraction 1/k of the bits were missing.
    """
    fewest_alone: bool = False
    """Bound only the data sets of the first block: see `fewest_ones`."""
    _laws: dict[tuple[int, int, int, int], _CountPair] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )
    _others: dict[tuple[int, int], BitCountLaw] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )

    def __post_init__(self) -> None:
        if (
            isinstance(self.bits, bool)
            or not isinstance(self.bits, int)
            or not 1 <= self.bits <= MAX_BITS
        ):
            raise InputError(f"bits must be an integer in 1..2^50, got {self.bits!r}.")
        object.__setattr__(self, "flip", validate_flip(self.flip))

    @property
    def rate(self) -> float:
        """ln((1-flip)/flip): cost of one bit at delta = 0, attained if all bits are seen equal."""
        return round_up(math.log1p((1.0 - 2.0 * self.flip) / self.flip), 8)

    def quick(self) -> PrivacyProfile:
        return self if self.most_blocks <= FEW_BLOCKS else replace(self, most_blocks=FEW_BLOCKS)

    def fewest_ones(self) -> RandomizedResponseProfile:
        """Profile of the data sets with the fewest ones only, which are nearly always the worst.

        It is NOT a guarantee, but a search for the flip probability may use it until it is nearly
        done.
        """
        return replace(self, bound="data sets with the fewest ones", fewest_alone=True)

    def _worst(self, values: Values, steps: int, passes: int) -> Floats:
        return worst_over_data(
            values,
            (self.bits - steps) // 2,
            self._blocks(steps, passes),
            first_alone=self.fewest_alone,
        )

    def _steps(self, distance: float) -> int:
        return min(math.floor(validate_distance(distance)), self.bits)

    def pure(self, distance: float) -> float:
        return round_up(self._steps(distance) * self.rate, 4)

    @theorem("metricshuffle", "RR-Shuffle, all data sets")
    def delta(self, epsilon: float, distance: float) -> float:
        """max over T and both directions of the hockey-stick between P and P' (module docstring).

        Statement: exact for up to 256 values of T, else a bound over blocks of T (some percent
        above the worst T; see worst_over_data). The counts have a monotone likelihood ratio in the
        number of ones, so delta increases with d and the largest d covers the smaller ones.
        Complementing all bits turns T into m-d-T and swaps the directions: half of the T suffice.
        Conditions: each bit independent, flip < 1/2.
        Numerics: certified laws, P enlarged and P' reduced by their errors.
        Reference: this docstring; replaces Theorem 3.1 of Athanasiou25, which is false for large d.
        """
        epsilon = checked_epsilon(epsilon)
        steps = self._steps(distance)
        if epsilon >= self.pure(distance):
            return 0.0
        limited = min(epsilon, LARGEST_EXPONENT)

        def values(first: int, last: int) -> Floats:
            return np.array([self._pair(steps, first, last).delta(limited)])

        bound = float(self._worst(values, steps, min(steps, MAX_SINGLE_BITS))[0])
        return min(1.0, bound, PureProfile(self.rate).delta(epsilon, steps))

    def delta_below(self, epsilon: float, distance: float) -> float:
        """Lower bound on `delta` from the data set in which no unchanged bit is a one; fast.

        Statement: the hockey-stick between P and P' at T = 0 (module docstring), rounded down. It
        decreases in flip: a bit with a smaller flip probability can be flipped once more, which is
        post-processing.
        Conditions: each bit independent, flip < 1/2.
        Numerics: certified laws, P reduced and P' enlarged by their errors.
        Reference: this docstring.
        """
        epsilon = checked_epsilon(epsilon)
        steps = self._steps(distance)
        return (
            self._pair(steps, 0, 0).delta_below(min(epsilon, LARGEST_EXPONENT))
            if steps >= 1 and epsilon <= LARGEST_EXPONENT
            else 0.0
        )

    def curve(self, epsilons: Floats, distance: float) -> Floats:
        """delta at many epsilons.

        The likelihood ratio of the counts is monotone, so the same sums over half-lines serve all
        epsilons.

        If there are very many bits, a = 64 of the m bits are set aside whatever the distance d, and
        those of them that do not move are shown to the adversary. Then the law of the other m - a
        bits serves every short distance, which composed rounds need one after the other. Of the a -
        d bits shown, r are ones: T up to (m - d)/2 becomes T - r, and some r <= a - d brings it
        into 0..(m - a)/2, the range that is evaluated.
        """
        steps = self._steps(distance)
        order = np.argsort(epsilons)
        growth = np.exp(np.minimum(epsilons[order], LARGEST_EXPONENT)) * (1.0 - 4.0 * ROUNDOFF)
        aside = MAX_SINGLE_BITS if steps <= MAX_SINGLE_BITS and self.bits >= MANY_BITS else steps

        def values(first: int, last: int) -> Floats:
            return self._pair(steps, first, last, aside).curve(growth)

        bound = np.empty(len(epsilons))
        bound[order] = self._worst(values, aside, min(aside, MAX_SINGLE_BITS))
        return self._at_most_pure(bound, epsilons, steps)

    def _at_most_pure(self, bound: Floats, epsilons: Floats, steps: int) -> Floats:
        # As PureProfile.delta, for many epsilons.
        cost = self.pure(steps)
        pure = np.where(
            epsilons < cost,
            -np.expm1(np.minimum(epsilons - cost, 0.0)) / (1.0 + math.exp(-cost)) * (1.0 + 1e-15),
            0.0,
        )
        return np.minimum(np.minimum(bound, pure), 1.0)

    def covers(
        self, epsilon: float, delta: float, distance: float, shape: Shape = "linear"
    ) -> bool:
        """Check all distances except the largest in one pass, and those that fail individually."""
        steps = self._steps(distance)
        if shape == "flat" or delta == 0.0 or steps < 3 or not self._in_one_pass(steps):
            return super().covers(epsilon, delta, distance, shape)
        slope = checked_epsilon(epsilon) / distance * (1.0 - 1e-15)
        if not self.covers_at(epsilon * (steps / distance) * (1.0 - 6e-16), delta, steps):
            return False
        # NaN counts as failing.
        failing = np.flatnonzero(~(self.deltas(slope, steps - 1) <= delta)) + 1
        return all(self.covers_at(slope * int(d), delta, int(d)) for d in failing[::-1])

    def shortfall(
        self, epsilon: float, delta: float, distance: float, shape: Shape = "linear"
    ) -> float:
        """Evaluate a single step precisely only if its delta might be the larger one."""
        outer_excess = (
            log_excess([self.delta(epsilon, distance)], delta) if delta > 0.0 else -math.inf
        )
        if (
            shape == "linear"
            and math.isfinite(outer_excess)
            and log_excess([self.quick().delta(epsilon / max(distance, 1.0), 1.0)], delta)
            <= outer_excess
        ):
            return outer_excess
        return super().shortfall(epsilon, delta, distance, shape)

    def surely_covers_at(self, epsilon: float, delta: float, distance: float) -> bool:
        return self.quick().covers_at(epsilon, delta, distance)

    def curves(self, epsilons: Floats, distance: float) -> Floats:
        """Row d: an upper bound on the curve at distance d, d = 0..distance.

        All distances share the law of the other bits: the smaller ones also reveal the bits that
        the largest would move. Distances above the number of bits add nothing. `epsilons` must
        ascend.
        """
        from metricshuffle.noise import _binomial_kernels as kernels

        last = self._steps(distance)
        growth = np.exp(np.minimum(epsilons, LARGEST_EXPONENT)) * (1.0 - 4.0 * ROUNDOFF)

        def values(low: int, high: int) -> Floats:
            law = bit_count_law(low, self.bits - last - high, self.flip)
            deltas = kernels.every_curve(law.mass, self.flip, growth, last, law.local)
            return np.asarray(deltas * round_up(math.exp(law.total), 16) + law.outside)

        bound = self._worst(values, last, last)
        bound[0] = np.zeros(len(epsilons))
        rows = [self._at_most_pure(row, epsilons, steps) for steps, row in enumerate(bound)]
        return np.array(rows + rows[-1:] * (math.floor(distance) - last))

    def deltas(self, rate: float, distance: float) -> Floats:
        """delta(rate * d, d) for d = 1..distance, in one pass.

        To share the law of the other bits in a chunk of distances, the smaller ones also reveal the
        bits that the largest would move; chunks are so short that this costs less than 0.5% of the
        bits.
        """
        rate = checked_epsilon(rate)
        last = self._steps(distance)
        chunk = max(self.bits // 200, 1)
        if not self._in_one_pass(last):
            return np.array([self.delta(rate * d, d) for d in range(1, last + 1)])
        pieces = [
            self._chunk(rate, first, min(first + chunk - 1, last))
            for first in range(1, last + 1, chunk)
        ]
        return np.concatenate(pieces) if pieces else np.zeros(0)

    def _in_one_pass(self, last: int) -> bool:
        """Whether there are enough bits, and few enough cells, to share the law of the others."""
        return (
            self.bits > 2 * MAX_EXACT_DATA_SETS
            and self.bits >= 1600
            and last * self._cells(last) <= 20_000_000
        )

    def _chunk(self, rate: float, first: int, last: int) -> Floats:
        from metricshuffle.noise import _binomial_kernels as kernels

        steps = np.arange(first, last + 1)
        growth = np.exp(np.minimum(rate * steps, LARGEST_EXPONENT)) * (1.0 - 16.0 * ROUNDOFF)

        def values(low: int, high: int) -> Floats:
            law = bit_count_law(low, self.bits - last - high, self.flip)
            deltas = kernels.every_distance(law.mass, self.flip, growth, first, law.local)
            return np.asarray(deltas * math.exp(law.total) * (1.0 + 16.0 * ROUNDOFF) + law.outside)

        bound = self._worst(values, last, last)
        pure = PureProfile(self.rate)
        return np.array(
            [
                min(1.0, float(b), pure.delta(rate * int(d), int(d)))
                for b, d in zip(bound, steps, strict=True)
            ]
        )

    def _cells(self, steps: int) -> int:
        low, high = bit_count_range(0, self.bits, self.flip)
        return high - low + 1 + steps

    def _blocks(self, steps: int, passes: int) -> int:
        """Number of blocks that a third of a second allows; 16 cost 3% of the variance."""
        return int(
            min(max(16.0, 2e8 / (self._cells(steps) * (30.0 + passes))), float(self.most_blocks))
        )

    def _pair(self, steps: int, first: int, last: int, aside: int | None = None) -> _CountPair:
        """The two counts when `first` ones and m - a - last zeros of the other bits stay hidden.

        m = `bits` and d = `steps`; a = `aside` >= d is the number of bits set aside, None means d.
        """
        aside = steps if aside is None else aside
        key = (steps, aside, first, last)
        if key in self._laws:
            return self._laws[key]
        if self._laws and (
            next(iter(self._laws))[0] != steps or len(self._laws) * self._cells(steps) > CACHE_CELLS
        ):
            self._laws.clear()
        pair = self._laws[key] = (
            self._near(steps, first, last, aside)
            if steps <= MAX_SINGLE_BITS
            else self._far(steps, first, last)
        )
        return pair

    def _hidden(self, ones: int, zeros: int) -> BitCountLaw:
        """Law of the hidden bits, cached: if bits are set aside, other distances also use it."""
        if (ones, zeros) not in self._others:
            if len(self._others) * self._cells(0) > CACHE_CELLS:
                self._others.clear()
            self._others[ones, zeros] = bit_count_law(ones, zeros, self.flip)
        return self._others[ones, zeros]

    def _near(self, steps: int, first: int, last: int, aside: int) -> _CountPair:
        from metricshuffle.noise import _binomial_kernels as kernels

        zeros = self.bits - aside - last
        law = (
            bit_count_law(first, zeros, self.flip) if aside == steps else self._hidden(first, zeros)
        )
        p, q = kernels.moved_pair(law.mass, self.flip, steps)
        # Both counts contain the same other bits, whose error at z and at z - d differs by at most
        # d * local.
        return _CountPair(p, q, 1.01 * steps * (law.local + 4.0 * ROUNDOFF), law.total, law.outside)

    def _far(self, steps: int, first: int, last: int) -> _CountPair:
        zeros = self.bits - steps - last
        more = bit_count_range(first + steps, zeros, self.flip)
        less = bit_count_range(first, zeros + steps, self.flip)
        low = min(more[0], less[0])
        high = max(more[1], less[1])
        p = bit_count_law(first + steps, zeros, self.flip, low, high)
        q = bit_count_law(first, zeros + steps, self.flip, low, high)
        return _CountPair(p.mass, q.mass, p.total + q.total, 0.0, max(p.outside, q.outside))


def local_profile(k: int, flip: float) -> RandomizedResponseProfile:
    """Profile of one client's k bits after the client permuted them: only their count, so m = k."""
    return RandomizedResponseProfile(k, flip, bound="worst value")


@theorem("metricshuffle", "RR without a shuffler, positions visible")
def unpermuted_local_delta(flip: float, epsilon: float) -> float:
    """delta at distance 1 when bit positions are visible: max(0, 1 - flip - e^epsilon flip).

    Statement: unary codes of x and x+1 differ in one known position, which is a single randomized
    response.
    Conditions: 0 < flip < 1/2.
    Numerics: rounded up.
    Reference: refutes Theorem 7.1 of Athanasiou25.
    """
    flip = validate_flip(flip)
    epsilon = checked_epsilon(epsilon)
    cost = round_up(math.log1p((1.0 - 2.0 * flip) / flip), 8)
    if epsilon >= cost:
        return 0.0
    return min(1.0, max(0.0, 1.0 - flip - math.exp(epsilon) * flip) + 8.0 * ROUNDOFF)


@theorem("metricshuffle", "Clopper-Pearson interval of the true count")
def count_interval(count: int, bits: int, flip: float, level: float) -> tuple[int, int]:
    """Confidence interval for T, the number of ones among `bits`, after `count` ones were seen.

    Statement: T is included unless P_T(Y <= count) or P_T(Y >= count) is at most (1 - level)/2, Y =
    Bin(T, 1-flip) + Bin(bits-T, flip). Both tails are monotone in T, so the included T form an
    interval; its coverage is at least `level`. If the count is so extreme that no T is included,
    the nearest end alone is returned.
    Conditions: 0 <= count <= bits, 0 < level < 1.
    Numerics: tails are rounded up, so the interval can only grow.
    Reference: Clopper and Pearson 1934, with this law in place of the binomial.
    """
    flip = validate_flip(flip)
    if not (
        isinstance(bits, int)
        and 1 <= bits <= MAX_BITS
        and isinstance(count, int)
        and 0 <= count <= bits
    ):
        raise InputError(
            "count must be an integer in 0..bits and bits one in 1..2^50, got "
            f"count={count!r} and bits={bits!r}."
        )
    if not 0.0 < level < 1.0:
        raise InputError(f"{argument('level')} must lie strictly between 0 and 1, got {level!r}.")
    missed = 0.5 * (1.0 - level)

    def kept(ones: int, side: int) -> bool:
        law = bit_count_law(ones, bits - ones, flip)
        inside = (
            law.mass[: max(count + 1 - law.start, 0)]
            if side > 0
            else law.mass[max(count - law.start, 0) :]
        )
        tail = round_up(float(np.sum(inside)) * math.exp(law.total), 64) + law.outside
        return tail > round_down(missed, 4)

    def outermost(inner: int, outer: int, side: int) -> int:
        """Outermost T with kept(T), which changes from true to false outwards; else `inner`."""
        return (
            outer
            if kept(outer, side)
            else last_certified_integer(lambda ones: kept(ones, side), outer, inner)
        )

    return outermost(bits, 0, -1), outermost(0, bits, 1)
