"""Every pair of a randomizer with two reports, exactly: upper and lower end of what shuffled reports give away, and the data set."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from metricshuffle.accounting.shuffling.binary_exact_bound import (
    DELTA_TOLERANCE,
    EPSILON_TOLERANCE,
    BinaryReports,
    ExactBracket,
    delta_bracket,
    epsilon_bracket,
    worst_pairs,
)
from metricshuffle.amplification.lower_bound import Witness
from metricshuffle.amplification.random_task import RandomTask
from metricshuffle.amplification.worst_case_data_sets import value_of
from metricshuffle.numerics.types import Floats
from metricshuffle.privacy.profile import LowerProfile, checked_delta, checked_epsilon, validate_distance
from metricshuffle.randomizers.randomizer import Pair, Randomizer

MAX_INPUTS = 2**12
Answer = tuple[str, float, float]


def binary_randomizer(source: object) -> Randomizer | None:
    """The randomizer itself, or the only task of a parallel one, if it has two reports and not too many inputs to list."""
    if isinstance(source, RandomTask) and len(source.tasks) == 1:
        source = source.tasks[0]
    return source if isinstance(source, Randomizer) and source.outputs == 2 and source.inputs <= MAX_INPUTS else None


@dataclass(frozen=True)
class BinaryPairs:
    """The pairs up to a distance; `pairs_within` gives them, `rows` the laws of all inputs."""

    rows: Floats
    pairs_within: Callable[[float], list[Pair]]
    users: int
    relative: float
    """How closely; at least 9e-7 for epsilon, 1e-5 for delta."""
    value: Callable[[int], Any] = int
    """An input as the sampler takes it."""
    _known: dict[Answer, ExactBracket] = field(default_factory=dict, init=False, repr=False, compare=False)
    _worst: dict[Answer, Pair] = field(default_factory=dict, init=False, repr=False, compare=False)

    @classmethod
    def of(cls, source: object, users: int, relative: float) -> BinaryPairs | None:
        """None unless there are two reports."""
        binary = binary_randomizer(source)
        if binary is None:
            return None
        within = binary.pairs_within
        if isinstance(source, RandomTask):  # a list of values has no metric: all pairs are at distance 1

            def within(distance: float) -> list[Pair]:
                return binary.pairs_within(binary.diameter) if distance > 0.0 else []

        return cls(binary.rows(), within, users, relative, lambda code: value_of(binary, code))

    def _laws(self, distance: float) -> list[tuple[Pair, BinaryReports]]:
        return [(pair, BinaryReports.from_rows(self.rows, *pair)) for pair in worst_pairs(self.rows, self.pairs_within(distance))]

    def _find_result(
        self, answer: Answer, look: Callable[[BinaryReports], ExactBracket], passes: Callable[[BinaryReports, float], bool]
    ) -> ExactBracket:
        if answer not in self._known:
            worst: ExactBracket | None = None
            for pair, law in self._laws(answer[2]):
                if worst is not None and passes(law, worst.upper):
                    continue
                bracket = look(law)
                if worst is None or bracket.lower > worst.lower:
                    self._worst[answer] = pair
                    worst = ExactBracket(bracket.lower, max(bracket.upper, 0.0 if worst is None else worst.upper), bracket.attained)
                else:
                    worst = ExactBracket(worst.lower, max(bracket.upper, worst.upper), worst.attained)
            self._known[answer] = worst or ExactBracket(0.0, 0.0, None)
        return self._known[answer]

    def witness(self, quantity: str, value: float, distance: float) -> Witness | None:
        """The data set behind the lower end of that answer; None if nothing is given away, or delta is 0."""
        bracket = self.epsilon(value, distance) if quantity == "epsilon" else self.delta(value, distance)
        if bracket.attained is None or not bracket.lower > 0.0:
            return None
        first, second = self._worst[quantity, value, distance][:: -1 if bracket.attained.reversed else 1]
        ones, others = bracket.attained.most_ones, self.users - 1
        holdings = [(int(self.rows[:, 1].argmax()), ones), (int(self.rows[:, 1].argmin()), others - ones)]
        return Witness(self.value(first), self.value(second), tuple((self.value(code), many) for code, many in holdings if many))

    def delta(self, epsilon: float, distance: float) -> ExactBracket:
        """The largest over the pairs; delta moves several times as much as epsilon does."""
        close = max(DELTA_TOLERANCE, 5.0 * self.relative)
        return self._find_result(
            ("delta", epsilon, distance),
            lambda law: delta_bracket(law, self.users, epsilon, relative=close),
            lambda law, worst: False,
        )

    def epsilon(self, delta: float, distance: float) -> ExactBracket:
        """The largest over the pairs."""
        close = max(EPSILON_TOLERANCE, self.relative)
        return self._find_result(
            ("epsilon", delta, distance),
            lambda law: epsilon_bracket(law, self.users, delta, relative=close),
            lambda law, worst: delta_bracket(law, self.users, worst).upper <= delta,
        )


@dataclass(frozen=True)
class BinaryLower(LowerProfile):
    """The lower ends: those of a data set that exists."""

    pairs: BinaryPairs
    bound: str = "data set"

    def delta(self, epsilon: float, distance: float) -> float:
        epsilon = checked_epsilon(epsilon)
        return self.pairs.delta(epsilon, distance).lower if validate_distance(distance) else 0.0

    def epsilon(self, delta: float, distance: float) -> float:
        delta = checked_delta(delta)
        lower = self.pairs.epsilon(delta, distance).lower if validate_distance(distance) else 0.0
        return lower if lower < math.inf else 0.0

    def witness(self, asked: Literal["epsilon", "delta"], given: float, distance: float) -> Witness | None:
        """The data set behind the answer to `epsilon(given, distance)` or `delta(given, distance)`; None if nothing is given away."""
        return self.pairs.witness(asked, given, distance) if validate_distance(distance) else None
