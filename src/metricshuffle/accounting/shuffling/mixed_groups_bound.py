"""Amplification by shuffling among several groups of known sizes, each with its own laws.

Used for people with different local epsilons, and for dummies, which are a group with one law. See
docs/proofs/groups.md.

Notation: person 1 holds a or b. The others are divided into parts. G_j is the random variable G_x
of `input_class_laws` for the input class x of person j (input classes are `types` in the code), and
c_j is the weight (`coin` in the code) of the part of person j: the laws of all people of a part are
at least the weight of the part times one law that is common to all parts. M_x(z) = E exp(z c G_x)
for an input class x of a part with weight c. In the proof the other
people are examined in random order; T is the position of the first whose report is drawn from the
common law.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from metricshuffle.accounting.shuffling.full_law_bound import (
    EPSILON_TOLERANCE,
    MIN_USER_FRACTION,
    NEGLIGIBLE_FRACTION,
    StoppingTime,
)
from metricshuffle.accounting.shuffling.input_class_laws import InputClassLaws, InputClassValues
from metricshuffle.accounting.shuffling.root_search import (
    Directions,
    bracket_root,
    certified_excess,
    confirm_upwards,
    iterate_directions,
)
from metricshuffle.citations import theorem
from metricshuffle.errors import InputError
from metricshuffle.numerics.rounding import ROUNDOFF, round_down, round_up
from metricshuffle.numerics.types import Floats, Integers64
from metricshuffle.privacy.profile import checked_delta, checked_epsilon

MAX_PARTS = 8
MAX_NODES = 30_000
# Width of a block of T, the number of people visited until one draws from the common law, in units
# of the mean of T.
BLOCK_WIDTH = 0.3
BLOCK_GROWTH = 10.0
GOLDEN_RATIO = 0.6180339887498949

Counts = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class GroupPart:
    """Part of the others: `count` people, the laws of the pair and of their reports, and a weight.

    `coin` is the weight: a c such that the law of every person of the part is at least c times one
    law that is common to all parts.
    """

    laws: InputClassLaws
    count: int
    coin: float

    def __post_init__(self) -> None:
        if (
            isinstance(self.count, bool)
            or not isinstance(self.count, int)
            or not 1 <= self.count <= 2**52
        ):
            raise InputError(
                f"the count of a part must be a whole number from 1 to 2^52, got {self.count!r}."
            )
        if not 0.0 < self.coin <= 1.0:
            raise InputError(f"the weight (coin) of a part must lie in (0, 1], got {self.coin!r}.")


@dataclass(frozen=True, eq=False)
class MixedGroupLaws:
    """One ordered pair (a, b) and all others, in at most eight parts.

    All parts must have been made for the same pair.
    """

    parts: tuple[GroupPart, ...]

    def __post_init__(self) -> None:
        if not 1 <= len(self.parts) <= MAX_PARTS:
            raise InputError(
                f"the others must be in 1 to {MAX_PARTS} parts, got {len(self.parts)}."
            )

    @property
    def counts(self) -> Counts:
        return tuple(part.count for part in self.parts)

    @property
    def others(self) -> int:
        return sum(self.counts)

    @property
    def coins(self) -> Floats:
        return np.array([part.coin for part in self.parts])

    @cached_property
    def mean_coin(self) -> float:
        """Mean weight of the others, rounded down."""
        return round_down(
            math.fsum(part.coin * part.count for part in self.parts) / self.others, 16
        )

    @cached_property
    def firsts(self) -> Integers64:
        """Index of the first input class of each part among all of them, and their number."""
        return np.cumsum([0, *(len(part.laws.starts) - 1 for part in self.parts)]).astype(np.int64)

    @cached_property
    def reversed(self) -> MixedGroupLaws:
        """The pair (b, a)."""
        return MixedGroupLaws(
            tuple(GroupPart(part.laws.reversed, part.count, part.coin) for part in self.parts)
        )

    @cached_property
    def symmetric(self) -> bool:
        return all(part.laws.symmetric for part in self.parts)

    @property
    def pure(self) -> float:
        return min(part.laws.pure for part in self.parts)


def corners(counts: Counts, removed: int) -> list[Counts]:
    """Return the extreme points of who may be left when `removed` people are taken away.

    Each extreme point is given as the number of people left in each part.
    """
    corner_counts = set()
    for whole in range(len(counts)):
        for gone in itertools.combinations(range(len(counts)), whole):
            remaining = removed - sum(counts[h] for h in gone)
            for h in range(len(counts)):
                if h not in gone and 0 <= remaining <= counts[h]:
                    corner_counts.add(
                        tuple(
                            0 if i in gone else counts[i] - (remaining if i == h else 0)
                            for i in range(len(counts))
                        )
                    )
    return sorted(corner_counts)


@dataclass(frozen=True, eq=False)
class _JoinedClasses:
    """Input classes of all parts at one epsilon, with values multiplied by the weights."""

    law: MixedGroupLaws
    starts: Integers64
    mass: Floats
    value: Floats
    doubt: Floats
    bare: Floats
    local: float

    @classmethod
    def at(cls, law: MixedGroupLaws, epsilon: float) -> _JoinedClasses:
        values_of_parts: list[InputClassValues] = [part.laws.at(epsilon) for part in law.parts]
        shifts = np.cumsum([0, *(types.mass.size for types in values_of_parts)])
        starts = [
            types.starts[:-1] + shift for types, shift in zip(values_of_parts, shifts, strict=False)
        ]
        coins = law.coins
        return cls(
            law,
            np.append(np.concatenate(starts), shifts[-1]).astype(np.int64),
            np.concatenate([types.mass for types in values_of_parts]),
            np.concatenate(
                [coin * types.value for coin, types in zip(coins, values_of_parts, strict=True)]
            ),
            np.concatenate(
                [coin * types.doubt for coin, types in zip(coins, values_of_parts, strict=True)]
            ),
            np.array([types.bare for types in values_of_parts]),
            min(types.local for types in values_of_parts),
        )

    @property
    def rises(self) -> bool:
        # -inf + inf: growth b/mass overflows, so it exceeds excess/mass and G is below zero.
        with np.errstate(invalid="ignore"):
            return bool(self.value.size) and bool(
                np.any(self.value + 16.0 * ROUNDOFF * self.doubt > 0.0)
            )

    def _tops(self, s: float) -> Floats:
        """Return for each part the largest log M_x(s) over its input classes x, rounded up."""
        from metricshuffle.accounting.shuffling import _full_law_kernels as kernels

        top = kernels.log_moments_above(self.starts, self.mass, self.value, self.doubt, s)[0]
        return np.array(
            [top[low:high].max() for low, high in itertools.pairwise(self.law.firsts.tolist())]
        )

    def _height(self, people: Floats, s: float) -> float:
        """Return the sum over the parts of the number of people times the largest log M_x(s)."""
        return float(
            sum(
                many * log_moment
                for many, log_moment in zip(people, self._tops(s), strict=True)
                if many > 0.0
            )
        )

    def rough_bound(self, people: Floats, s: float) -> Floats:
        """Bound as in `psi_upper`, by x_+ <= e^(sx)/(e s) alone: ten times as large, but quick."""
        log_moments = self._tops(s)
        logs = (
            people @ log_moments
            + 16.0 * ROUNDOFF * (people @ np.abs(log_moments))
            - 1.0
            - math.log(s)
            - np.log(people @ self.law.coins)
        )
        with np.errstate(over="ignore", invalid="ignore"):
            return np.exp(logs + 1e-12 * (1.0 + np.abs(logs)))

    def place(self, people: Floats) -> tuple[float, float]:
        """Return an s that nearly minimizes e^height/s^2, and the height; any s > 0 is valid.

        The height is that of `_height`.
        """
        largest = float(np.max(np.abs(self.value)))
        if not 0.0 < largest < math.inf:
            return math.nan, math.nan
        low = math.log(1e-14 / largest)
        high = math.log(600.0 / largest)
        left = high - GOLDEN_RATIO * (high - low)
        right = low + GOLDEN_RATIO * (high - low)

        def aim(place: float) -> float:
            height = self._height(people, math.exp(place)) - 2.0 * place
            return height if height < math.inf else 1e300 * (1.0 + place - low)

        at_left, at_right = aim(left), aim(right)
        while high - low > 0.02:
            if at_left < at_right:
                high = right
                right = left
                at_right = at_left
                left = high - GOLDEN_RATIO * (high - low)
                at_left = aim(left)
            else:
                low = left
                left = right
                at_left = at_right
                right = low + GOLDEN_RATIO * (high - low)
                at_right = aim(right)
        s = math.exp(0.5 * (low + high))
        return s, self._height(people, s)

    def exposed(self, people: Floats) -> float:
        """Largest contribution of reports that some input class cannot make, over all rows.

        The rows are those of `people`. Rounded up.
        """
        if not self.bare.any():
            return 0.0
        weight = people * self.law.coins
        return min(self.local, round_up(float(np.max(weight @ self.bare / weight.sum(axis=1))), 64))


@theorem("metricshuffle", "Hoelder on the contour, for groups of known sizes")
def psi_upper(joined: _JoinedClasses, people: Floats, s: float, min_log: float) -> Floats:
    """Upper bound on E[(sum of c_j G_j)_+]/(sum of c_j) for each row of `people`.

    A row is the number of people of each part; the bound holds whatever these people hold.

    Statement: with w_k = |exp(h^2 z_k^2/2)/z_k^2|, z_k = s + ikD for any s > 0, h >= 0, D > 0,
    M_x(z) = E exp(z c G_x) for an input class x of a part with weight c, and u_p the number of
    people of part p,

        Psi <= (1/sum of c_j) (D/2 pi) sum over whole k of
               w_k prod over parts p of max over x in p of |M_x(z_k)|^(u_p).

    Proof: docs/proofs/groups.md. In short: as for one group (`full_law_bound.psi_upper`), but each
    factor is bounded separately. This loses little: the input classes whose modulus is largest away
    from the real axis matter only where the product is already small.
    Conditions: independent reports. Reports that an input class cannot make are not included
    (`_JoinedClasses.exposed`).
    Numerics: as in `_full_law_kernels.hoelder`, all terms positive, each raised by its own error.
    The step D is chosen such that the trapezoid rule adds little to a result of about e^min_log or
    more. Infinite where nothing is certified.
    Reference: docs/proofs/groups.md.
    """
    from metricshuffle.accounting.shuffling import _full_law_kernels as one_group
    from metricshuffle.accounting.shuffling import _mixed_groups_kernels as kernels
    from metricshuffle.accounting.shuffling._blanket_kernels import LOG_LEAST

    nothing = np.full(len(people), math.inf)
    if not (0.0 < s < math.inf and abs(min_log) < 1e300):
        return nothing
    # Everything is in units of s: for laws with zeros the search for epsilon reaches s < 1e-154,
    # whose square underflows.
    period = one_group.LOG_ALIASING + min(max(4.0, -min_log), -LOG_LEAST)
    step = 2.0 * math.pi / period
    smooth2 = one_group.SMOOTHING_DEVIATION**2
    last = math.ceil(math.sqrt(2.0 * one_group.LOG_TRUNCATION / smooth2) / step)
    top, error_ratio, _ = one_group.log_moments_above(
        joined.starts, joined.mass, joined.value, joined.doubt, s
    )
    if last > MAX_NODES or not np.all(np.isfinite(top)):
        return nothing
    moduli = np.empty((people.shape[1], last + 1))
    kernels.log_moduli(
        joined.starts,
        joined.mass,
        joined.value,
        top,
        error_ratio,
        s,
        step * s,
        joined.law.firsts,
        moduli,
    )
    y = step * np.arange(last + 1)
    weight = np.log(2.0 / (1.0 + y * y)) - 0.5 * smooth2 * y * y
    weight[0] -= math.log(2.0)
    exponent = people @ moduli + 16.0 * ROUNDOFF * (people @ np.abs(moduli)) + weight
    largest = exponent.max(axis=1, keepdims=True)
    sums = largest[:, 0] + np.log(np.exp(exponent - largest).sum(axis=1))
    # The nodes beyond the last one are bounded by |M| <= M(s).
    outside = math.log(2.0 / (step * step * last)) - 0.5 * smooth2 * (step * last) ** 2
    sums = np.logaddexp(sums, people @ moduli[:, 0] + outside)
    scale = np.log(people @ joined.law.coins) + math.log(s)
    logs = sums + 0.5 * smooth2 - math.log(period) - scale
    doubts = np.abs(logs) + np.abs(scale) + np.abs(largest[:, 0]) + people @ np.abs(moduli[:, 0])
    logs += ROUNDOFF * (last + 1024.0 + 16.0 * doubts)
    with np.errstate(over="ignore", invalid="ignore"):
        bounds = np.exp(np.maximum(logs, LOG_LEAST)) * (1.0 + 16.0 * ROUNDOFF)
    return np.where(logs < 690.0, bounds, math.inf)


def _merged(ends: Floats, chances: Floats, wide: float) -> tuple[Floats, Floats]:
    """Merge neighbouring blocks until each is `wide`, or a tenth of its end, wide.

    A merged block has the last end and the sum of all probabilities.
    """
    narrow = BLOCK_GROWTH * max(wide, 1.0)
    block = np.floor(
        np.where(
            ends <= narrow,
            BLOCK_GROWTH * ends / narrow,
            BLOCK_GROWTH * (1.0 + np.log(np.maximum(ends / narrow, 1.0))),
        )
    )
    last = np.append(np.flatnonzero(np.diff(block)), ends.size - 1)
    firsts = np.append(0, last[:-1] + 1)
    return ends[last], np.add.reduceat(chances, firsts) * (1.0 + 1e-13)


def _sum_blocks(
    joined: _JoinedClasses, chances: Floats, left: list[Floats], bounds: Floats
) -> float:
    """Sum the blocks of T, each with the largest bound over its corners.

    A bound that is NaN counts as the local delta.
    """
    total = 0.0
    place = 0
    for chance, corner in zip(chances, left, strict=True):
        worst = float(np.max(bounds[place : place + len(corner)]))
        total += chance * (
            min(joined.local, worst + joined.exposed(corner)) if worst >= 0.0 else joined.local
        )
        place += len(corner)
    return float(total)


def _one_direction(law: MixedGroupLaws, epsilon: float, enough: float) -> float:
    joined = _JoinedClasses.at(law, epsilon)
    users = law.others + 1
    visits = StoppingTime(law.mean_coin, users)
    if joined.local == 0.0:
        return 0.0
    if not joined.rises:
        return min(joined.local, float(joined.bare.max()))
    total = 0.0
    first = 0
    share = 1.0
    guide = math.nan
    while first < users - 1 and share > MIN_USER_FRACTION:
        here = np.array(max(corners(law.counts, first), key=min), dtype=np.float64)
        s, height = joined.place(here)
        if not (0.0 < s < math.inf and abs(height) < math.inf):
            break
        if math.isnan(guide):  # order of magnitude of the result, rather too low
            size = min(max(height, -600.0), 0.0) - math.log(float(here @ law.coins)) - math.log(s)
            guide = math.exp(min(size, 0.0)) * 1e-2 + float(joined.bare.max())
            guide = max(guide, enough)
        share *= 0.5
        ends, chances = visits.blocks(
            first, max(users - math.ceil(share * users), first + 1), NEGLIGIBLE_FRACTION * guide
        )
        ends, chances = _merged(ends, chances, BLOCK_WIDTH / law.mean_coin)
        left = [np.array(corners(law.counts, int(end) - 1), dtype=np.float64) for end in ends]
        if enough > 0.0:
            tail_term = visits.beyond(int(ends[-1])) * joined.local
            quick = round_up(
                total
                + _sum_blocks(joined, chances, left, joined.rough_bound(np.concatenate(left), s))
                + tail_term,
                4096,
            )
            if quick <= enough:
                return quick
        min_log = max(height, math.log(enough)) if enough > 0.0 else height
        total += _sum_blocks(
            joined, chances, left, psi_upper(joined, np.concatenate(left), s, min_log)
        )
        first = int(ends[-1])
        if visits.beyond(first) <= NEGLIGIBLE_FRACTION * guide:
            break
    bound = round_up(total + visits.beyond(first) * joined.local, 4096)
    return min(joined.local, bound) if bound >= 0.0 else joined.local


@theorem("metricshuffle", "displaced blanket user, for groups of known sizes")
def delta_upper(
    law: MixedGroupLaws, epsilon: float, *, directions: Directions = "both", enough: float = 0.0
) -> float:
    """Upper bound on the hockey-stick divergence of the shuffled reports at e^epsilon.

    It holds whatever the others hold.

    Statement: let the law of every other person i be at least c_i times one common law, c the mean
    of the c_i over the N others, delta_local the delta of one report that is not shuffled, and
    Psi(U) = E[(sum over U of c_i G_i)_+]/(sum over U of c_i) for a set U of people. Then

        delta <= sum over t = 1..N of c (1-c)^(t-1) max over |U| = N+1-t of Psi(U)
                 + (1-c)^N delta_local.

    Proof: docs/proofs/groups.md. In short: as in `full_law_bound.delta_upper`, but person i draws
    from the common law with probability c_i. The first person who does so is not uniform among
    those not visited before, but is person i with probability c_i/(sum of c_i), which are the
    weights in Psi. P(T > t) <= (1-c)^t by Maclaurin's inequality. The bound on Psi is log-convex in
    the numbers of people that are left of each part, so it is largest at a corner of the set of
    possible numbers.
    Conditions: independent reports; each part contains every law its people could have; its weight
    is valid.
    Numerics: as for one group; a bound below `enough` is not refined.
    Reference: docs/proofs/groups.md.
    """
    epsilon = checked_epsilon(epsilon)
    ways = [
        direction for direction in iterate_directions(law, directions) if epsilon < direction.pure
    ]
    return min(
        1.0, max((_one_direction(direction, epsilon, enough) for direction in ways), default=0.0)
    )


@theorem("metricshuffle", "epsilon for groups of known sizes")
def epsilon_upper(
    law: MixedGroupLaws,
    delta: float,
    *,
    directions: Directions = "both",
    relative: float = EPSILON_TOLERANCE,
) -> float:
    """Smallest certified epsilon at this delta: its `delta_upper` is at most delta.

    Statement: as for `delta_upper`. The local epsilon is the ceiling, and it is returned where
    nothing smaller can be certified.
    Conditions: 0 <= delta < 1.
    Numerics: NaN counts as too large.
    Reference: `delta_upper`.
    """
    delta = checked_delta(delta)
    ceiling = max(direction.pure for direction in iterate_directions(law, directions))
    if delta == 0.0 or ceiling == 0.0:
        return ceiling

    def excess(epsilon: float) -> float:
        return certified_excess(delta_upper(law, epsilon, directions=directions), delta)

    upper = bracket_root(excess, delta, ceiling, relative).high
    return confirm_upwards(lambda epsilon: excess(epsilon) <= 0.0, upper, ceiling, relative)
