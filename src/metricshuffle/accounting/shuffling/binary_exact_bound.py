"""Exact amplification for randomizers with two possible reports, over all data sets.

Nothing is lost to a blanket or to clones: the lower and the upper end bracket the same number, the
largest divergence, and differ only by how closely all data sets of the others were searched.

Notation: the reports are 0 and 1, and P(1 | x) is the probability that input x reports a one.
Person 1 holds one of two inputs a and b. The others hold the two extreme laws, with the smallest
and the largest probability of a one; T is how many of them hold the upper one, so that a data set
is a value of T (`place` in the code). The sums are in `_binary_kernels`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from metricshuffle.accounting.shuffling.blanket_bound import checked_users
from metricshuffle.accounting.shuffling.root_search import bracket_root, certified_excess
from metricshuffle.citations import theorem
from metricshuffle.errors import InputError, argument
from metricshuffle.numerics.certified_search import first_certified
from metricshuffle.numerics.rounding import ROUNDOFF, round_down, round_up
from metricshuffle.numerics.types import Floats
from metricshuffle.privacy.profile import checked_delta, checked_epsilon

if TYPE_CHECKING:
    from metricshuffle.accounting.shuffling._binary_kernels import TiltedDirection

SUM_TOLERANCE = 1e-9  # for sums of probabilities with few digits, which are then normalized
EXACT_TOLERANCE = 32.0 * ROUNDOFF  # for sums of probabilities that are right to a few units
# delta decreases with epsilon: delta at LARGEST_EXPONENT bounds delta beyond, and delta at 0 bounds
# delta below SMALLEST_EXPONENT.
LARGEST_EXPONENT = 700.0
SMALLEST_EXPONENT = 1e-100
EPSILON_TOLERANCE = 9e-7  # relative width of a bracket of epsilon
DELTA_TOLERANCE = 1e-5  # relative width of a bracket of delta
START_COUNT = 33  # values of T to start from
LOG_DELTA_NOISE = 1e-9  # smaller differences of log delta are rounding
MAX_TURNS = 50  # number of times that a worse data set may be found


@dataclass(frozen=True)
class WorstDataSet:
    """Data set of the others with the largest divergence.

    `most_ones` of the others hold the input that reports a one most often; the rest hold the input
    that reports a one least often. `reversed`: the divergence is that of b from a, not of a from b.
    """

    most_ones: int
    reversed: bool


@dataclass(frozen=True)
class ExactBracket:
    """Bracket lower <= true value <= upper, and the data set that attains the lower end."""

    lower: float
    upper: float
    attained: WorstDataSet | None
    """None if the divergence is 0."""


def _difference(first: tuple[float, float], second: tuple[float, float]) -> tuple[float, float]:
    """Return P(1 | first) - P(1 | second), and the scale of its rounding error.

    Computed from the rarer report, whose probabilities are more precise.
    """
    zeros = first[0] + second[0]
    ones = first[1] + second[1]
    return (first[1] - second[1], ones) if ones <= zeros else (second[0] - first[0], zeros)


class _Direction(NamedTuple):
    """One direction, counted in the report that the first input makes more often.

    Call that report the counted one. `second` is its probability under the second input, and
    `second` + `excess` its probability under the first; `rounding` is the scale of the rounding
    error of `excess`. `zero` and `one` are the probabilities of the other report and of the counted
    report under the two extreme laws.
    """

    excess: float
    rounding: float
    second: float
    zero: Floats
    one: Floats


@dataclass(frozen=True)
class BinaryReports:
    """Pair of inputs and the others' extreme laws, as probabilities of the reports 0 and 1.

    All probabilities are accurate to a few units in the last place. `low` has the smallest and
    `high` the largest probability of a 1 that another person's report may have. `excess` is P(1 |
    first) - P(1 | second); pass it where it is known better than the difference of the two.
    """

    first: tuple[float, float]
    second: tuple[float, float]
    low: tuple[float, float]
    high: tuple[float, float]
    excess: float | None = None

    def __post_init__(self) -> None:
        for name in ("first", "second", "low", "high"):
            law = getattr(self, name)
            if not (
                len(law) == 2 and min(law) >= 0.0 and abs(math.fsum(law) - 1.0) <= EXACT_TOLERANCE
            ):
                raise InputError(
                    f"{argument(name)} must be two probabilities that sum to one, got {law!r}."
                )
        pair = (self.first, self.second)
        if not all(
            self.low[1] <= law[1] <= self.high[1] and self.high[0] <= law[0] <= self.low[0]
            for law in pair
        ):
            raise InputError(
                f"{argument('low')} and {argument('high')} must enclose the two inputs: "
                "another person may hold these too."
            )
        gap, scale = _difference(self.first, self.second)
        if self.excess is not None and not abs(self.excess - gap) <= SUM_TOLERANCE * scale:
            raise InputError(
                f"excess must be P(1 | first) - P(1 | second) = {gap!r}, got {self.excess!r}."
            )

    @classmethod
    def from_rows(
        cls, rows: ArrayLike, a: int, b: int, excess: float | None = None
    ) -> BinaryReports:
        """Build the pair (a, b) of rows of a channel with two columns.

        The others may hold any of the rows.
        """
        matrix = np.asarray(rows, dtype=np.float64)
        if matrix.ndim != 2 or matrix.shape[1] != 2 or not np.all(np.isfinite(matrix)):
            raise InputError(
                "rows must be a matrix of probabilities with two columns, got shape "
                f"{matrix.shape}."
            )
        sums = np.array([math.fsum(row) for row in matrix])
        if not (np.all(np.abs(sums - 1.0) <= SUM_TOLERANCE) and matrix.min() >= 0.0):
            raise InputError(
                "every row must be two probabilities that sum to one, got "
                f"{matrix[int(np.argmax(np.abs(sums - 1.0)))].tolist()!r}."
            )
        matrix = np.where(
            np.abs(sums - 1.0)[:, None] <= 8.0 * ROUNDOFF, matrix, matrix / sums[:, None]
        )
        (least_zero, least_one), (most_zero, most_one) = (
            matrix.min(axis=0).tolist(),
            matrix.max(axis=0).tolist(),
        )
        first, second = (tuple(matrix[i].tolist()) for i in (a, b))
        return cls(first, second, (most_zero, least_one), (least_zero, most_one), excess)

    @cached_property
    def ways(self) -> tuple[_Direction, ...]:
        """Directions: first from second, and second from first unless both directions are the same.

        No excess is below 0.
        """
        forth, back = self._both
        alike = (
            forth[:3] == back[:3]
            and np.array_equal(forth.zero, back.zero)
            and np.array_equal(forth.one, back.one)
        )
        return (forth,) if alike else (forth, back)

    @cached_property
    def _both(self) -> tuple[_Direction, _Direction]:
        gap, rounding = self._gap
        ones = np.array([self.low[0], self.high[0]]), np.array([self.low[1], self.high[1]])
        zeros = np.array([self.high[1], self.low[1]]), np.array([self.high[0], self.low[0]])
        if gap >= 0.0:
            return _Direction(gap, rounding, self.second[1], *ones), _Direction(
                gap, rounding, self.first[0], *zeros
            )
        return _Direction(-gap, rounding, self.second[0], *zeros), _Direction(
            -gap, rounding, self.first[1], *ones
        )

    @cached_property
    def _gap(self) -> tuple[float, float]:
        """P(1 | first) - P(1 | second) and the scale of its rounding error."""
        return (
            _difference(self.first, self.second)
            if self.excess is None
            else (self.excess, abs(self.excess))
        )

    def data_set(self, direction: int, place: float, others: int) -> WorstDataSet:
        """Return the data set in which `place` of the others hold the upper law of `direction`."""
        counts_ones = (direction == 0) == (self._gap[0] >= 0.0)
        return WorstDataSet(int(place) if counts_ones else others - int(place), direction == 1)

    @cached_property
    def pure(self) -> float:
        """Largest |log ratio| of the two inputs, rounded up; delta = 0 from there on."""
        if any(direction.excess > 0.0 and direction.second == 0.0 for direction in self.ways):
            return math.inf
        max_ratio = max(
            (
                (direction.excess + 16.0 * ROUNDOFF * direction.rounding) / direction.second
                for direction in self.ways
                if direction.second > 0.0
            ),
            default=0.0,
        )
        return (
            round_up(math.log1p(max_ratio), 16)
            if any(direction.excess > 0.0 for direction in self.ways)
            else 0.0
        )


def _tilted_at(direction: _Direction, epsilon: float, *, above: bool) -> TiltedDirection | None:
    """Return the direction at this epsilon, its lead rounded up or down; None if lead <= 0.

    The lead is P(counted report | first) - e^epsilon P(counted report | second).
    """
    from metricshuffle.accounting.shuffling import _binary_kernels as kernels

    if epsilon < SMALLEST_EXPONENT:
        epsilon = 0.0 if above or epsilon == 0.0 else SMALLEST_EXPONENT
    exponent = min(epsilon, LARGEST_EXPONENT)
    growth = math.expm1(exponent)
    growth = round_down(growth, 4) if above else round_up(growth, 4)
    doubt = 16.0 * ROUNDOFF * (direction.rounding + growth * direction.second)
    lead = direction.excess - growth * direction.second + (doubt if above else -doubt)
    if not lead > 0.0 or (not above and epsilon > LARGEST_EXPONENT):
        return None
    question: TiltedDirection = kernels.question(
        min(lead, 1.0), growth, direction.zero, direction.one
    )
    return question


def _places(others: int) -> list[float]:
    """Return values of T to start from; both ends, where the worst T usually is, come first."""
    return list(
        dict.fromkeys(
            [
                0.0,
                float(others),
                *(float(others * i // (START_COUNT - 1)) for i in range(START_COUNT)),
            ]
        )
    )


@theorem("metricshuffle", "two reports, every data set")
def delta_bracket(
    law: BinaryReports, users: int, epsilon: float, *, relative: float = DELTA_TOLERANCE
) -> ExactBracket:
    """Bracket of the largest hockey-stick divergence at e^epsilon over all data sets of the others.

    Both directions are covered.

    Statement: with n - 1 others whose reports are a one with probabilities between `low` and
    `high`, the largest divergence is

        max over T in 0..n-1 of H(X_a + Y_T || X_b + Y_T),
        Y_T = Bin(T, high) + Bin(n-1-T, low),  X_x ~ Bernoulli(P(1 | x)) for the input x = a or b,

    where H is the hockey-stick divergence at e = e^epsilon.

    Proof: the shuffled reports are equivalent to their number of ones. For a set C of such numbers,
    P(C | a) - e P(C | b) is affine in each other person's probability of a one. The divergence is
    the maximum of this over C, so it is convex in each of these probabilities, and largest at an
    end of the interval from `low` to `high`. The law of the number of ones depends only on how many
    people are at each end. Of k inputs only the two extreme ones matter. All T are covered in
    blocks first..last, as in `sums.flipped_bit_count.worst_over_data`: the data sets of a block
    differ in last - first people; if these people are revealed to the adversary, the people left
    are the same for all data sets of the block. Where high = 1 - low, evaluating the last T of a
    block also bounds by how much the other T of the block may exceed it.
    Conditions: independent reports; the extreme laws belong to inputs that exist, otherwise the
    lower end is not attained.
    Numerics: docs/proofs/two-reports.md. The ends differ by at most `relative` (more where a single
    T cannot be evaluated so closely).
    Reference: docs/proofs/two-reports.md.
    """
    from metricshuffle.accounting.shuffling import _binary_kernels as kernels

    users = checked_users(users)
    epsilon = checked_epsilon(epsilon)
    others = users - 1
    lower = 0.0
    upper = 0.0
    attained = None
    if epsilon >= law.pure:
        return ExactBracket(0.0, 0.0, attained)
    for index, direction in enumerate(law.ways):
        tilted_above = _tilted_at(direction, epsilon, above=True)
        tilted_below = _tilted_at(direction, epsilon, above=False)
        if tilted_above is None:
            continue
        best, place = (
            kernels.worst_of_samples(tilted_below, float(others), START_COUNT)
            if tilted_below is not None
            else (0.0, 0.0)
        )
        _, high, worst_count = kernels.largest(
            tilted_above, float(others), max(best, lower), 0.9 * relative
        )
        if (
            tilted_below is not None
            and worst_count >= 0.0
            and (value := kernels.divergence(tilted_below, others - worst_count, worst_count)[0])
            > best
        ):
            best = value
            place = worst_count
        upper = max(upper, high if high >= 0.0 else 1.0)
        if best > lower:
            lower = best
            attained = law.data_set(index, place, others)
    return ExactBracket(lower, min(1.0, upper), attained)


class _ExactSearch:
    """Search for the epsilon at one delta, of single data sets and of all data sets."""

    def __init__(self, law: BinaryReports, users: int, delta: float, relative: float) -> None:
        self.law = law
        self.others = users - 1
        self.delta = delta
        self.relative = relative

    def excess(self, direction: _Direction, place: float, epsilon: float, *, above: bool) -> float:
        """Return log(divergence of a data set at this epsilon / delta), rounded up or down.

        With `above` it is at most 0 only if the divergence is certified to be at most delta;
        otherwise it is above 0 only if the divergence is certified to exceed delta.
        """
        from metricshuffle.accounting.shuffling import _binary_kernels as kernels

        tilted = _tilted_at(direction, epsilon, above=above)
        if tilted is None:
            return -math.inf
        value = kernels.divergence(tilted, self.others - place, place)[1 if above else 0]
        return certified_excess(value if above else max(0.0, value), self.delta)

    def epsilon(
        self,
        direction: _Direction,
        place: float,
        relative: float,
        *,
        above: bool = True,
        start: float | None = None,
    ) -> float:
        """Smallest epsilon certified to pass for a data set; without `above`, largest to fail.

        An epsilon passes if the divergence of the data set is at most delta there.
        """
        bracket = bracket_root(
            lambda x: self.excess(direction, place, x, above=above),
            self.delta,
            self.law.pure,
            0.2 * relative,
            start,
        )
        return bracket.high if above else bracket.low

    def unseen(self, epsilon: float) -> tuple[int, float] | None:
        """Return a direction and a T not certified at this epsilon; None if all data sets pass."""
        from metricshuffle.accounting.shuffling import _binary_kernels as kernels

        for index, direction in enumerate(self.law.ways):
            tilted = _tilted_at(direction, epsilon, above=True)
            if (
                tilted is not None
                and (place := kernels.exceeding(tilted, float(self.others), self.delta)) != -1.0
            ):
                return index, place
        return None

    def start(self) -> tuple[int, float]:
        """Return the data set with the largest divergence found at about the right epsilon."""
        ends = [
            (index, place)
            for index in range(len(self.law.ways))
            for place in (0.0, float(self.others))
        ]
        guess = max(self.epsilon(self.law.ways[index], place, 1e-3) for index, place in ends) * (
            1.0 - 1e-3
        )
        every = [
            (index, place) for index in range(len(self.law.ways)) for place in _places(self.others)
        ]
        return self.climb(
            *max(
                every,
                key=lambda data_set: self.excess(
                    self.law.ways[data_set[0]], data_set[1], guess, above=True
                ),
            ),
            guess,
        )

    def climb(self, index: int, place: float, epsilon: float) -> tuple[int, float]:
        """Move to worse data sets, changing T by 1, 2, 4, .., while there is a worse one."""
        best = self.excess(self.law.ways[index], place, epsilon, above=True)
        step = 1.0
        while step <= self.others:
            moved = {
                value: (place + side)
                for side in (-step, step)
                if 0.0 <= place + side <= self.others
                for value in (self.excess(self.law.ways[index], place + side, epsilon, above=True),)
            }
            if moved and max(moved) > best + LOG_DELTA_NOISE:
                best = max(moved)
                step = 1.0
                place = moved[best]
            else:
                step *= 2.0
        return index, place


@theorem("metricshuffle", "epsilon of two reports, every data set")
def epsilon_bracket(
    law: BinaryReports, users: int, delta: float, *, relative: float = EPSILON_TOLERANCE
) -> ExactBracket:
    """Bracket of the smallest epsilon at which every data set has at most this delta.

    Statement: `delta_bracket` at the upper end is at most delta; at any epsilon below the lower
    end, the divergence of the data set `attained` exceeds delta.
    Conditions: as for `delta_bracket`, 0 <= delta < 1.
    Numerics: the epsilon of the data set that appears worst is bracketed. At 1 + 0.7 relative times
    that epsilon, either all data sets are certified in blocks, or a data set is found that appears
    worse, from which the search continues. The last certified value is returned. Where that would
    take too long, as it does if delta is close to the delta at epsilon = 0, the ends differ by a
    few 1e-5 of delta instead.
    Reference: docs/proofs/two-reports.md.
    """
    users = checked_users(users)
    delta = checked_delta(delta)
    search = _ExactSearch(law, users, delta, relative)
    ceiling = law.pure
    if delta == 0.0 or ceiling == 0.0:
        return ExactBracket(_pure_lower(law, users), ceiling, None)
    seen = search.start()
    worst = search.epsilon(law.ways[seen[0]], seen[1], 0.1 * relative)
    upper = math.nan
    for _ in range(MAX_TURNS):
        failing = search.unseen(worst * (1.0 + 0.7 * relative))
        if failing is None:
            upper = min(ceiling, worst * (1.0 + 0.7 * relative))
            break
        better = search.climb(*failing, worst)
        value = search.epsilon(law.ways[better[0]], better[1], 0.1 * relative)
        gain = value - worst
        if gain > 0.0:
            seen = better
            worst = value
        if not gain > 0.1 * DELTA_TOLERANCE * delta:
            break
    if not upper >= 0.0:
        # One data set could not be evaluated closely enough, or there were too many: the tolerance
        # now applies to delta instead of epsilon.
        start = worst * (1.0 + relative) + DELTA_TOLERANCE * delta
        min_step = DELTA_TOLERANCE * delta
        upper = first_certified(
            lambda epsilon: search.unseen(epsilon) is None,
            start,
            ceiling,
            step=relative,
            growth=4.0,
            failing=0.0,
            least=min_step,
        ).passing
    lower = search.epsilon(law.ways[seen[0]], seen[1], 0.1 * relative, above=False, start=worst)
    return ExactBracket(min(lower, upper), upper, law.data_set(seen[0], seen[1], users - 1))


def _pure_lower(law: BinaryReports, users: int) -> float:
    """Lower bound on epsilon with delta = 0.

    It is attained if all others make the report at which the ratio of the pair is largest. Returns
    0, which is always valid, if the others cannot make that report.
    """
    possible = users == 1 or all(min(law.low[i], law.high[i]) > 0.0 for i in range(2))
    if not possible or law.pure == math.inf:
        return 0.0
    max_ratio = max(
        (
            (direction.excess - 16.0 * ROUNDOFF * direction.rounding) / direction.second
            for direction in law.ways
            if direction.second > 0.0
        ),
        default=0.0,
    )
    return round_down(math.log1p(max(max_ratio, 0.0)), 16)


def delta_upper(law: BinaryReports, users: int, epsilon: float) -> float:
    """Certified upper bound on delta: the upper end of `delta_bracket`."""
    return delta_bracket(law, users, epsilon).upper


def epsilon_upper(
    law: BinaryReports, users: int, delta: float, *, relative: float = EPSILON_TOLERANCE
) -> float:
    """Smallest certified epsilon: the upper end of `epsilon_bracket`."""
    return epsilon_bracket(law, users, delta, relative=relative).upper


def worst_pairs(rows: Floats, pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the pairs of a channel with two reports that no other pair dominates.

    The divergence is convex in (P(1 | a), P(1 | b)) and 0 where these two are equal, so it grows if
    one of them moves away from the other. A pair dominates another one if the interval between its
    two probabilities contains that of the other pair.
    """
    # Ranks of the laws by the probability of a one, compared by the rarer report, since 1 - 1e-20
    # is 1 in floating point.
    order = {
        place: rank for rank, place in enumerate(sorted({_more_ones(row) for row in rows.tolist()}))
    }
    places = [order[_more_ones(row)] for row in rows.tolist()]
    spans: dict[tuple[int, int], tuple[int, int]] = {}
    for a, b in pairs:
        spans.setdefault((min(places[a], places[b]), max(places[a], places[b])), (a, b))
    undominated: list[tuple[int, int]] = []
    reach = -1
    for (_, high), pair in sorted(spans.items(), key=lambda item: (item[0][0], -item[0][1])):
        if high > reach:
            reach = high
            undominated.append(pair)
    return undominated


def _more_ones(law: Sequence[float]) -> tuple[bool, float]:
    """Return a sort key by the probability of a one, computed from the rarer report."""
    return law[1] > law[0], law[1] if law[1] <= law[0] else -law[0]
