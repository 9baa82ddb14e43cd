"""Exact bounds for randomizers with two reports: both ends of the band, and the worst data set."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from metricshuffle.accounting.shuffling.binary_exact_bound import (
    DELTA_TOLERANCE,
    EPSILON_TOLERANCE,
    BinaryReports,
    ExactBracket,
    delta_bracket,
    epsilon_bracket,
    worst_pairs,
)
from metricshuffle.amplification.lower_bound import DataSetWitness
from metricshuffle.amplification.random_task import RandomTask
from metricshuffle.amplification.smallest_bound import Bound, BoundResult
from metricshuffle.amplification.worst_case_data_sets import value_of
from metricshuffle.numerics.rounding import never_small
from metricshuffle.numerics.types import Floats
from metricshuffle.privacy.profile import (
    LowerProfile,
    checked_delta,
    checked_epsilon,
    validate_distance,
)
from metricshuffle.randomizers.randomizer import Pair, Randomizer

MAX_INPUTS = 2**12
Answer = tuple[str, float, float]


def binary_randomizer(source: object) -> Randomizer | None:
    """Return the randomizer, or the only task of a random task, if it has two reports.

    None if it has more, or too many inputs to list.
    """
    if isinstance(source, RandomTask) and len(source.tasks) == 1:
        source = source.tasks[0]
    return (
        source
        if isinstance(source, Randomizer) and source.outputs == 2 and source.inputs <= MAX_INPUTS
        else None
    )


@dataclass(frozen=True)
class BinaryPairs:
    """Pairs up to a distance of a randomizer with two reports; `rows` are all its laws."""

    rows: Floats
    pairs_within: Callable[[float], list[Pair]]
    users: int
    relative: float
    """Relative tolerance; at least 9e-7 is used for epsilon, 1e-5 for delta."""
    value: Callable[[int], Any] = int
    """Converts an input code to the value that the sampler takes."""
    _known: dict[Answer, ExactBracket] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    _worst: dict[Answer, Pair] = field(default_factory=dict, init=False, repr=False, compare=False)

    @classmethod
    def of(cls, source: object, users: int, relative: float) -> BinaryPairs | None:
        """Return the pairs of a source, or None unless it has two reports."""
        binary = binary_randomizer(source)
        if binary is None:
            return None
        within = binary.pairs_within
        if isinstance(source, RandomTask):
            # A list of values has no metric: all pairs are at distance 1.
            def within(distance: float) -> list[Pair]:
                return binary.pairs_within(binary.diameter) if distance > 0.0 else []

        return cls(binary.rows(), within, users, relative, lambda code: value_of(binary, code))

    def _laws(self, distance: float) -> list[tuple[Pair, BinaryReports]]:
        return [
            (pair, BinaryReports.from_rows(self.rows, *pair))
            for pair in worst_pairs(self.rows, self.pairs_within(distance))
        ]

    def _find_result(
        self,
        answer: Answer,
        look: Callable[[BinaryReports], ExactBracket],
        passes: Callable[[BinaryReports, float], bool],
    ) -> ExactBracket:
        if answer not in self._known:
            worst: ExactBracket | None = None
            for pair, law in self._laws(answer[2]):
                if worst is not None and passes(law, worst.upper):
                    continue
                bracket = look(law)
                if worst is None or bracket.lower > worst.lower:
                    self._worst[answer] = pair
                    worst = ExactBracket(
                        bracket.lower,
                        max(bracket.upper, 0.0 if worst is None else worst.upper),
                        bracket.attained,
                    )
                else:
                    worst = ExactBracket(
                        worst.lower, max(bracket.upper, worst.upper), worst.attained
                    )
            self._known[answer] = worst or ExactBracket(0.0, 0.0, None)
        return self._known[answer]

    def witness(self, quantity: str, value: float, distance: float) -> DataSetWitness | None:
        """Return the data set that attains the lower end of the bracket of `quantity` at `value`.

        None if nothing is revealed, or delta is 0.
        """
        bracket = (
            self.epsilon(value, distance) if quantity == "epsilon" else self.delta(value, distance)
        )
        if bracket.attained is None or not bracket.lower > 0.0:
            return None
        first, second = self._worst[quantity, value, distance][
            :: -1 if bracket.attained.reversed else 1
        ]
        ones = bracket.attained.most_ones
        others = self.users - 1
        holdings = [
            (int(self.rows[:, 1].argmax()), ones),
            (int(self.rows[:, 1].argmin()), others - ones),
        ]
        return DataSetWitness(
            self.value(first),
            self.value(second),
            tuple((self.value(code), many) for code, many in holdings if many),
        )

    def delta(self, epsilon: float, distance: float) -> ExactBracket:
        """Return the largest delta over the pairs.

        Delta varies several times as much as epsilon, so its tolerance is wider.
        """
        close = max(DELTA_TOLERANCE, 5.0 * self.relative)
        return self._find_result(
            ("delta", epsilon, distance),
            lambda law: delta_bracket(law, self.users, epsilon, relative=close),
            lambda law, worst: False,
        )

    def epsilon(self, delta: float, distance: float) -> ExactBracket:
        """Return the largest epsilon over the pairs."""
        close = max(EPSILON_TOLERANCE, self.relative)
        return self._find_result(
            ("epsilon", delta, distance),
            lambda law: epsilon_bracket(law, self.users, delta, relative=close),
            lambda law, worst: delta_bracket(law, self.users, worst).upper <= delta,
        )


@dataclass(frozen=True)
class TwoReportBound(Bound):
    """The upper ends of `BinaryPairs`; with two reports no other bound is needed."""

    pairs: BinaryPairs
    distance: float
    search_order: ClassVar[int] = 0

    def delta(self, epsilon: float, ceiling: float) -> BoundResult:
        upper = self.pairs.delta(epsilon, self.distance).upper
        return BoundResult(never_small(upper), "two-report", "contour")

    def epsilon(self, delta: float, ceiling: float) -> BoundResult:
        upper = self.pairs.epsilon(delta, self.distance).upper
        return BoundResult(never_small(upper), "two-report", "contour")

    def covers(self, epsilon: float, delta: float) -> bool:
        return self.delta(epsilon, delta).value <= delta


@dataclass(frozen=True)
class BinaryLower(LowerProfile):
    """The lower ends of `BinaryPairs`, each attained by a data set."""

    pairs: BinaryPairs
    bound: str = "data set"

    def delta(self, epsilon: float, distance: float) -> float:
        epsilon = checked_epsilon(epsilon)
        return self.pairs.delta(epsilon, distance).lower if validate_distance(distance) else 0.0

    def epsilon(self, delta: float, distance: float) -> float:
        delta = checked_delta(delta)
        lower = self.pairs.epsilon(delta, distance).lower if validate_distance(distance) else 0.0
        return lower if lower < math.inf else 0.0

    def witness(
        self, asked: Literal["epsilon", "delta"], given: float, distance: float
    ) -> DataSetWitness | None:
        """Return the data set behind `epsilon(given, distance)` or `delta(given, distance)`.

        None if that bound is 0.
        """
        return self.pairs.witness(asked, given, distance) if validate_distance(distance) else None
