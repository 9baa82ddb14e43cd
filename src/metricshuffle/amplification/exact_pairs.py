"""Every pair of a randomizer with two reports, exactly: upper and lower end of what shuffled reports give away, and the data set."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from metricshuffle.accounting.two_reports.bound import (
    CLOSE,
    RELATIVE,
    ExactBracket,
    TwoReports,
    delta_bracket,
    epsilon_bracket,
    worst_pairs,
)
from metricshuffle.amplification.data_sets import value_of
from metricshuffle.amplification.lower import Witness
from metricshuffle.amplification.parallel import Parallel
from metricshuffle.numerics.types import Floats
from metricshuffle.privacy.profile import LowerProfile, checked_delta, checked_distance, checked_epsilon
from metricshuffle.randomizers.randomizer import Pair, Randomizer

MOST_INPUTS = 2**12
Answer = tuple[str, float, float]


def with_two_reports(source: object) -> Randomizer | None:
    """The randomizer itself, or the only task of a parallel one, if it has two reports and not too many inputs to list."""
    if isinstance(source, Parallel) and len(source.tasks) == 1:
        source = source.tasks[0]
    return source if isinstance(source, Randomizer) and source.outputs == 2 and source.inputs <= MOST_INPUTS else None


@dataclass(frozen=True)
class ExactPairs:
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
    def of(cls, source: object, users: int, relative: float) -> ExactPairs | None:
        """None unless there are two reports."""
        found = with_two_reports(source)
        if found is None:
            return None
        within = found.pairs_within
        if isinstance(source, Parallel):  # a list of values has no metric: all pairs are at distance 1

            def within(distance: float) -> list[Pair]:
                return found.pairs_within(found.diameter) if distance > 0.0 else []

        return cls(found.rows(), within, users, relative, lambda code: value_of(found, code))

    def _laws(self, distance: float) -> list[tuple[Pair, TwoReports]]:
        return [(pair, TwoReports.from_rows(self.rows, *pair)) for pair in worst_pairs(self.rows, self.pairs_within(distance))]

    def _found(
        self, answer: Answer, look: Callable[[TwoReports], ExactBracket], passes: Callable[[TwoReports, float], bool]
    ) -> ExactBracket:
        if answer not in self._known:
            worst: ExactBracket | None = None
            for pair, law in self._laws(answer[2]):
                if worst is not None and passes(law, worst.upper):
                    continue
                found = look(law)
                if worst is None or found.lower > worst.lower:
                    self._worst[answer] = pair
                    worst = ExactBracket(found.lower, max(found.upper, 0.0 if worst is None else worst.upper), found.attained)
                else:
                    worst = ExactBracket(worst.lower, max(found.upper, worst.upper), worst.attained)
            self._known[answer] = worst or ExactBracket(0.0, 0.0, None)
        return self._known[answer]

    def witness(self, asked: str, given: float, distance: float) -> Witness | None:
        """The data set behind the lower end of that answer; None if nothing is given away, or delta is 0."""
        found = self.epsilon(given, distance) if asked == "epsilon" else self.delta(given, distance)
        if found.attained is None or not found.lower > 0.0:
            return None
        first, second = self._worst[asked, given, distance][:: -1 if found.attained.reversed else 1]
        ones, others = found.attained.most_ones, self.users - 1
        held = [(int(self.rows[:, 1].argmax()), ones), (int(self.rows[:, 1].argmin()), others - ones)]
        return Witness(self.value(first), self.value(second), tuple((self.value(code), many) for code, many in held if many))

    def delta(self, epsilon: float, distance: float) -> ExactBracket:
        """The largest over the pairs; delta moves several times as much as epsilon does."""
        close = max(CLOSE, 5.0 * self.relative)
        return self._found(
            ("delta", epsilon, distance),
            lambda law: delta_bracket(law, self.users, epsilon, relative=close),
            lambda law, worst: False,
        )

    def epsilon(self, delta: float, distance: float) -> ExactBracket:
        """The largest over the pairs."""
        close = max(RELATIVE, self.relative)
        return self._found(
            ("epsilon", delta, distance),
            lambda law: epsilon_bracket(law, self.users, delta, relative=close),
            lambda law, worst: delta_bracket(law, self.users, worst).upper <= delta,
        )


@dataclass(frozen=True)
class ExactLower(LowerProfile):
    """The lower ends: those of a data set that exists."""

    pairs: ExactPairs
    bound: str = "data set"

    def delta(self, epsilon: float, distance: float) -> float:
        epsilon = checked_epsilon(epsilon)
        return self.pairs.delta(epsilon, distance).lower if checked_distance(distance) else 0.0

    def epsilon(self, delta: float, distance: float) -> float:
        delta = checked_delta(delta)
        found = self.pairs.epsilon(delta, distance).lower if checked_distance(distance) else 0.0
        return found if found < math.inf else 0.0

    def witness(self, asked: Literal["epsilon", "delta"], given: float, distance: float) -> Witness | None:
        """The data set behind the answer to `epsilon(given, distance)` or `delta(given, distance)`; None if nothing is given away."""
        return self.pairs.witness(asked, given, distance) if checked_distance(distance) else None
