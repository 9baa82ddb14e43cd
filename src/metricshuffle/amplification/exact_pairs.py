"""Every pair of a randomizer with two reports, exactly: upper and lower end of what shuffled reports give away, and the data set."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from metricshuffle.accounting.two_reports.bound import (
    CLOSE,
    RELATIVE,
    ExactBracket,
    TwoReports,
    delta_bracket,
    epsilon_bracket,
    worst_pairs,
)
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
    _known: dict[Answer, ExactBracket] = field(default_factory=dict, init=False, repr=False, compare=False)

    @classmethod
    def of(cls, source: object, users: int, relative: float) -> ExactPairs | None:
        """None unless there are two reports."""
        found = with_two_reports(source)
        if found is None:
            return None
        if isinstance(source, Parallel):  # a list of values has no metric: all pairs are at distance 1
            return cls(found.rows(), lambda distance: found.pairs_within(found.diameter) if distance > 0.0 else [], users, relative)
        return cls(found.rows(), found.pairs_within, users, relative)

    def _laws(self, distance: float) -> list[TwoReports]:
        return [TwoReports.from_rows(self.rows, *pair) for pair in worst_pairs(self.rows, self.pairs_within(distance))]

    def _found(
        self, answer: Answer, look: Callable[[TwoReports], ExactBracket], passes: Callable[[TwoReports, float], bool]
    ) -> ExactBracket:
        if answer not in self._known:
            worst: ExactBracket | None = None
            for law in self._laws(answer[2]):
                if worst is not None and passes(law, worst.upper):
                    continue
                found = look(law)
                if worst is None or found.lower > worst.lower:
                    worst = ExactBracket(found.lower, max(found.upper, 0.0 if worst is None else worst.upper), found.attained)
                else:
                    worst = ExactBracket(worst.lower, max(found.upper, worst.upper), worst.attained)
            self._known[answer] = worst or ExactBracket(0.0, 0.0, None)
        return self._known[answer]

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
