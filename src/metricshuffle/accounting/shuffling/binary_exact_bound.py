"""Shuffled reports of a randomizer with two possible reports, exactly: the worst data set of the others, and what it gives away.

Nothing is lost to a blanket or to clones here: upper and lower end are the same number, up to how closely all data sets were looked at.
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
from metricshuffle.accounting.shuffling.root_search import RootBracket, normal_guess
from metricshuffle.citations import theorem
from metricshuffle.errors import InputError
from metricshuffle.numerics.certified_search import first_certified
from metricshuffle.numerics.rounding import ROUNDOFF, round_down, round_up
from metricshuffle.numerics.types import Floats
from metricshuffle.privacy.profile import checked_delta, checked_epsilon

if TYPE_CHECKING:
    from metricshuffle.accounting.shuffling._binary_kernels import TiltedDirection

SUM_TOLERANCE = 1e-9  # for sums of probabilities that were written with few digits; what is left is scaled away
EXACT_TOLERANCE = 32.0 * ROUNDOFF  # for those that are right to a few units
LARGEST_EXPONENT = 700.0  # delta falls in epsilon: the value here bounds what is beyond
SMALLEST_EXPONENT = 1e-100  # ... and the value at 0 what is below
EPSILON_TOLERANCE = 9e-7  # how closely epsilon is bracketed
DELTA_TOLERANCE = 1e-5  # how closely delta is
START_COUNT = 33  # values of T to start from
LOG_DELTA_NOISE = 1e-9  # differences of log delta that are nothing but rounding
MAX_TURNS = 50  # data sets that turn out to be worse than the one before


@dataclass(frozen=True)
class WorstDataSet:
    """What the others hold where the most was given away: how many of them the input that reports a one most often; the rest the
    one that does so least often. `reversed`: the reports of b are told from those of a, not the other way round.
    """

    most_ones: int
    reversed: bool


@dataclass(frozen=True)
class ExactBracket:
    """lower <= the truth <= upper, and the data set that has the lower end."""

    lower: float
    upper: float
    attained: WorstDataSet | None
    """None if nothing is given away."""


def _difference(first: tuple[float, float], second: tuple[float, float]) -> tuple[float, float]:
    """P(1 | first) - P(1 | second), and the scale of its rounding error: from the rarer report, whose probabilities are known better."""
    zeros, ones = first[0] + second[0], first[1] + second[1]
    return (first[1] - second[1], ones) if ones <= zeros else (second[0] - first[0], zeros)


class _Direction(NamedTuple):
    """One direction, counted in the report that the first input makes more often: its probability under both, and the extreme laws."""

    excess: float
    rounding: float
    second: float
    zero: Floats
    one: Floats


@dataclass(frozen=True)
class BinaryReports:
    """A pair of inputs and the others' extreme laws, each as the probabilities of the reports 0 and 1, right to a few units.

    `low` has the smallest and `high` the largest probability of a 1 that another person's report may have. `excess` is
    P(1 | first) - P(1 | second); give it where it is known better than the difference of the two.
    """

    first: tuple[float, float]
    second: tuple[float, float]
    low: tuple[float, float]
    high: tuple[float, float]
    excess: float | None = None

    def __post_init__(self) -> None:
        for name in ("first", "second", "low", "high"):
            law = getattr(self, name)
            if not (len(law) == 2 and min(law) >= 0.0 and abs(math.fsum(law) - 1.0) <= EXACT_TOLERANCE):
                raise InputError(f"{name} must be two probabilities that sum to one, got {law!r}.")
        pair = (self.first, self.second)
        if not all(self.low[1] <= law[1] <= self.high[1] and self.high[0] <= law[0] <= self.low[0] for law in pair):
            raise InputError("low and high must enclose the two inputs: another person may hold these too.")
        gap, scale = _difference(self.first, self.second)
        if self.excess is not None and not abs(self.excess - gap) <= SUM_TOLERANCE * scale:
            raise InputError(f"excess must be P(1 | first) - P(1 | second) = {gap!r}, got {self.excess!r}.")

    @classmethod
    def from_rows(cls, rows: ArrayLike, a: int, b: int, excess: float | None = None) -> BinaryReports:
        """The pair (a, b) of the rows of a channel with two columns; everybody else may hold any of the rows."""
        matrix = np.asarray(rows, dtype=np.float64)
        if matrix.ndim != 2 or matrix.shape[1] != 2 or not np.all(np.isfinite(matrix)):
            raise InputError(f"rows must be a matrix of probabilities with two columns, got shape {matrix.shape}.")
        sums = np.array([math.fsum(row) for row in matrix])
        if not (np.all(np.abs(sums - 1.0) <= SUM_TOLERANCE) and matrix.min() >= 0.0):
            raise InputError(
                f"every row must be two probabilities that sum to one, got {matrix[int(np.argmax(np.abs(sums - 1.0)))].tolist()!r}."
            )
        matrix = np.where(np.abs(sums - 1.0)[:, None] <= 8.0 * ROUNDOFF, matrix, matrix / sums[:, None])
        (least_zero, least_one), (most_zero, most_one) = matrix.min(axis=0).tolist(), matrix.max(axis=0).tolist()
        first, second = (tuple(matrix[i].tolist()) for i in (a, b))
        return cls(first, second, (most_zero, least_one), (least_zero, most_one), excess)

    @cached_property
    def ways(self) -> tuple[_Direction, ...]:
        """first from second, and second from first unless that is the same; none has an excess below 0."""
        forth, back = self._both
        alike = forth[:3] == back[:3] and np.array_equal(forth.zero, back.zero) and np.array_equal(forth.one, back.one)
        return (forth,) if alike else (forth, back)

    @cached_property
    def _both(self) -> tuple[_Direction, _Direction]:
        gap, rounding = self._gap
        ones = np.array([self.low[0], self.high[0]]), np.array([self.low[1], self.high[1]])
        zeros = np.array([self.high[1], self.low[1]]), np.array([self.high[0], self.low[0]])
        if gap >= 0.0:
            return _Direction(gap, rounding, self.second[1], *ones), _Direction(gap, rounding, self.first[0], *zeros)
        return _Direction(-gap, rounding, self.second[0], *zeros), _Direction(-gap, rounding, self.first[1], *ones)

    @cached_property
    def _gap(self) -> tuple[float, float]:
        """P(1 | first) - P(1 | second) and the scale of its rounding error."""
        return _difference(self.first, self.second) if self.excess is None else (self.excess, abs(self.excess))

    def data_set(self, direction: int, place: float, others: int) -> WorstDataSet:
        """Of the direction `way`, the upper extreme law being held by `place` of the others."""
        counts_ones = (direction == 0) == (self._gap[0] >= 0.0)
        return WorstDataSet(int(place) if counts_ones else others - int(place), direction == 1)

    @cached_property
    def pure(self) -> float:
        """max |log ratio| of the two inputs, rounded up; from there on delta = 0."""
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
        return round_up(math.log1p(max_ratio), 16) if any(direction.excess > 0.0 for direction in self.ways) else 0.0


def _tilted_at(direction: _Direction, epsilon: float, *, above: bool) -> TiltedDirection | None:
    """The direction at this epsilon, its lead rounded up or down; None where there is nothing to see."""
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
    question: TiltedDirection = kernels.question(min(lead, 1.0), growth, direction.zero, direction.one)
    return question


def _places(others: int) -> list[float]:
    """Values of T to start from; both ends, where the worst one usually is, first."""
    return list(dict.fromkeys([0.0, float(others), *(float(others * i // (START_COUNT - 1)) for i in range(START_COUNT))]))


@theorem("metricshuffle", "two reports, every data set")
def delta_bracket(law: BinaryReports, users: int, epsilon: float, *, relative: float = DELTA_TOLERANCE) -> ExactBracket:
    """The hockey-stick divergence of the shuffled reports at e^epsilon, largest over all data sets of the others, both directions.

    Statement: with n - 1 others whose reports are a one with probabilities between `low` and `high`, the largest divergence is
        max over T in 0..n-1 of H(X_a + Y_T || X_b + Y_T),  Y_T = Bin(T, high) + Bin(n-1-T, low),  X ~ Bernoulli(P(1 | input)).
    Proof: the shuffled reports are their count of ones. For a set of counts C, P(C | a) - e P(C | b) is affine in each other person's
    probability of a one, so the divergence, its maximum over C, is convex in each, and largest at an end of the interval; the law of the
    count depends only on how many people are at each end. Of k inputs only the two extreme ones matter.
    All T are covered in blocks, as in "revealing the others, block by block": if the last - first people by which the data sets of a block
    differ are shown to the adversary, those left are the same for all of them. Where high = 1 - low, one look at the last T of a block also
    bounds how far the others of the block may exceed it.
    Conditions: independent reports; the extreme laws are held by inputs that exist, otherwise the lower end is not attained.
    Numerics: docs/proofs/two-reports.md. The ends differ by `relative` at most (more where a T alone cannot be told so closely).
    Reference: docs/proofs/two-reports.md.
    """
    from metricshuffle.accounting.shuffling import _binary_kernels as kernels

    users, epsilon = checked_users(users), checked_epsilon(epsilon)
    others, lower, upper, attained = users - 1, 0.0, 0.0, None
    if epsilon >= law.pure:
        return ExactBracket(0.0, 0.0, attained)
    for index, direction in enumerate(law.ways):
        tilted_above, tilted_below = _tilted_at(direction, epsilon, above=True), _tilted_at(direction, epsilon, above=False)
        if tilted_above is None:
            continue
        best, place = kernels.worst_of_samples(tilted_below, float(others), START_COUNT) if tilted_below is not None else (0.0, 0.0)
        _, high, worst_count = kernels.largest(tilted_above, float(others), max(best, lower), 0.9 * relative)
        if (
            tilted_below is not None
            and worst_count >= 0.0
            and (value := kernels.divergence(tilted_below, others - worst_count, worst_count)[0]) > best
        ):
            best, place = value, worst_count
        upper = max(upper, high if high >= 0.0 else 1.0)
        if best > lower:
            lower, attained = best, law.data_set(index, place, others)
    return ExactBracket(lower, min(1.0, upper), attained)


class _Search:
    """epsilon at one delta: of single data sets, and of all."""

    def __init__(self, law: BinaryReports, users: int, delta: float, relative: float) -> None:
        self.law, self.others, self.delta, self.relative = law, users - 1, delta, relative

    def excess(self, direction: _Direction, place: float, epsilon: float, *, above: bool) -> float:
        """log(delta at this epsilon / delta) of a data set, from above or below; at most 0 only if it is not larger, or may not be."""
        from metricshuffle.accounting.shuffling import _binary_kernels as kernels

        tilted = _tilted_at(direction, epsilon, above=above)
        if tilted is None:
            return -math.inf
        value = kernels.divergence(tilted, self.others - place, place)[1 if above else 0]
        if above and not 0.0 <= value < math.inf:
            return math.inf
        if value <= self.delta:
            return min(0.0, math.log(value / self.delta)) if value > self.delta * 1e-300 else -math.inf
        return max(math.log(value / self.delta), 1e-300)

    def epsilon(self, direction: _Direction, place: float, relative: float, *, above: bool = True, start: float | None = None) -> float:
        """The smallest that certainly passes (or, from below, the largest that certainly fails) for a data set."""
        at_zero = self.excess(direction, place, 0.0, above=above)
        if at_zero <= 0.0:
            return 0.0
        guess, slope = normal_guess(self.delta * math.exp(min(at_zero, 700.0)), self.delta)
        begin = min(guess, 0.9 * self.law.pure) if start is None else start
        bracket = RootBracket(self.law.pure, at_low=at_zero).narrowed(
            lambda x: self.excess(direction, place, x, above=above), begin, slope, 0.2 * relative
        )
        return bracket.high if above else bracket.low

    def unseen(self, epsilon: float) -> tuple[int, float] | None:
        """A direction and a T that could not be shown to pass at this epsilon; None: every data set passes."""
        from metricshuffle.accounting.shuffling import _binary_kernels as kernels

        for index, direction in enumerate(self.law.ways):
            tilted = _tilted_at(direction, epsilon, above=True)
            if tilted is not None and (place := kernels.exceeding(tilted, float(self.others), self.delta)) != -1.0:
                return index, place
        return None

    def start(self) -> tuple[int, float]:
        """The data set that looks worst at about the right epsilon."""
        ends = [(index, place) for index in range(len(self.law.ways)) for place in (0.0, float(self.others))]
        guess = max(self.epsilon(self.law.ways[index], place, 1e-3) for index, place in ends) * (1.0 - 1e-3)
        every = [(index, place) for index in range(len(self.law.ways)) for place in _places(self.others)]
        return self.climb(*max(every, key=lambda data_set: self.excess(self.law.ways[data_set[0]], data_set[1], guess, above=True)), guess)

    def climb(self, index: int, place: float, epsilon: float) -> tuple[int, float]:
        """From a data set to its neighbours, in steps of 1, 2, 4, .., as long as they look worse."""
        best, step = self.excess(self.law.ways[index], place, epsilon, above=True), 1.0
        while step <= self.others:
            moved = {value: (place + side) for side in (-step, step) if 0.0 <= place + side <= self.others
                     for value in (self.excess(self.law.ways[index], place + side, epsilon, above=True),)}  # fmt: skip
            if moved and max(moved) > best + LOG_DELTA_NOISE:
                best, step = max(moved), 1.0
                place = moved[best]
            else:
                step *= 2.0
        return index, place


@theorem("metricshuffle", "epsilon of two reports, every data set")
def epsilon_bracket(law: BinaryReports, users: int, delta: float, *, relative: float = EPSILON_TOLERANCE) -> ExactBracket:
    """The smallest epsilon at which every data set has at most this delta: lower and upper end, and the data set that needs it.

    Statement: `delta_bracket` at the upper end is at most delta; at any smaller epsilon than the lower end `attained` has more.
    Conditions: as for `delta_bracket`, 0 <= delta < 1.
    Numerics: the epsilon of the data set that looks worst is found from both sides; at 1 + 0.7 relative times it all data sets are
    certified in blocks, or one is found that looks worse, from which it goes on. The last certified value is returned. Where that would
    take too long, as it does if delta is about what epsilon = 0 has, the ends differ by a few 1e-5 of delta instead.
    Reference: docs/proofs/two-reports.md.
    """
    users, delta = checked_users(users), checked_delta(delta)
    search, ceiling = _Search(law, users, delta, relative), law.pure
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
            seen, worst = better, value
        if not gain > 0.1 * DELTA_TOLERANCE * delta:
            break
    if not upper >= 0.0:  # one data set could not be told closely enough, or there were too many: delta must do instead of epsilon
        start, min_step = worst * (1.0 + relative) + DELTA_TOLERANCE * delta, DELTA_TOLERANCE * delta
        upper = first_certified(
            lambda epsilon: search.unseen(epsilon) is None, start, ceiling, step=relative, growth=4.0, failing=0.0, least=min_step
        ).passing
    lower = search.epsilon(law.ways[seen[0]], seen[1], 0.1 * relative, above=False, start=worst)
    return ExactBracket(min(lower, upper), upper, law.data_set(seen[0], seen[1], users - 1))


def _pure_lower(law: BinaryReports, users: int) -> float:
    """With delta = 0: all others report what the pair's ratio is largest at, or cannot (then more is hidden; 0 is always right)."""
    possible = users == 1 or all(min(law.low[i], law.high[i]) > 0.0 for i in range(2))
    if not possible or law.pure == math.inf:
        return 0.0
    max_ratio = max(
        ((direction.excess - 16.0 * ROUNDOFF * direction.rounding) / direction.second for direction in law.ways if direction.second > 0.0),
        default=0.0,
    )
    return round_down(math.log1p(max(max_ratio, 0.0)), 16)


def delta_upper(law: BinaryReports, users: int, epsilon: float) -> float:
    """delta at this epsilon, never too small (see `delta_bracket`)."""
    return delta_bracket(law, users, epsilon).upper


def epsilon_upper(law: BinaryReports, users: int, delta: float, *, relative: float = EPSILON_TOLERANCE) -> float:
    """The smallest certified epsilon at this delta (see `epsilon_bracket`)."""
    return epsilon_bracket(law, users, delta, relative=relative).upper


def worst_pairs(rows: Floats, pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Of many pairs of a channel with two reports, those that no other one dominates: nobody else reaches as far to both sides.

    The divergence is convex in (P(1 | a), P(1 | b)) and 0 where they are equal, so it grows if one of them moves away from the other.
    """
    # places of the laws, by how often they report a one; the rarer report tells, since 1 - 1e-20 is 1
    order = {place: rank for rank, place in enumerate(sorted({_more_ones(row) for row in rows.tolist()}))}
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
    """Orders laws by the probability of a one, told by the rarer report."""
    return law[1] > law[0], law[1] if law[1] <= law[0] else -law[0]
