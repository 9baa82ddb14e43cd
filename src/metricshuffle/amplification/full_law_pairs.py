"""Every pair of a randomizer up to a distance, beyond the blanket: the largest bound of all of them, by looking closely at few."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from metricshuffle.accounting.shuffling.blanket_law import BlanketLaw
from metricshuffle.accounting.shuffling.full_law_bound import (
    Directions,
    delta_on_line,
    delta_upper,
    epsilon_upper,
    integration_line,
    is_certified,
)
from metricshuffle.accounting.shuffling.input_class_laws import InputClassLaws
from metricshuffle.accounting.shuffling.pair_screen import Pairs, PairScreen
from metricshuffle.amplification.dominance_scan import Pair
from metricshuffle.numerics.rounding import never_small
from metricshuffle.numerics.types import Integers64

MIN_EPSILON_TOLERANCE = 1e-6  # the bound is farther from the truth than that


def _below_local(law: InputClassLaws, epsilon: float, delta: float, directions: Directions = "forward") -> bool:
    """Whether delta is clearly less than one report alone shows."""
    ways = [law] if directions == "forward" else [law, law.reversed]
    return delta < max(direction.at(epsilon).local for direction in ways) * (1.0 - 1e-12)


def _hides(law: InputClassLaws, users: int, epsilon: float, directions: Directions = "forward") -> bool:
    """Whether the bound at (a hair less than) this epsilon is less than one report alone shows."""
    just_below = epsilon * (1.0 - 1e-9)
    return _below_local(law, just_below, delta_upper(law, users, just_below, directions=directions), directions)


@dataclass(frozen=True)
class ListedPairs:
    """A few pairs, given by the laws of the others."""

    laws: Sequence[InputClassLaws]

    def no_narrower(self, blankets: Sequence[BlanketLaw]) -> bool:
        """Whether with others who all hold one input the first pair is as wide as any blanket: then this bound can hardly be smaller."""
        return float(self.laws[0].at(0.0).square.max()) >= max((law.spread for law in blankets), default=0.0) * (1.0 - 1e-9)

    def loses(self, users: int, epsilon: float, delta: float) -> bool:
        """Whether delta is exceeded there for the first pair, so that `epsilon` is no smaller."""
        return not is_certified(self.laws[0], users, epsilon, delta)

    def min_delta(self, users: int, epsilon: float) -> float:
        """That of the first pair: `delta` is no smaller."""
        return delta_upper(self.laws[0], users, epsilon)

    def delta(self, users: int, epsilon: float) -> tuple[float, bool]:
        """The largest over the pairs, and whether it is less than what one report alone shows."""
        worst, slowest = 0.0, None
        for law in self.laws:
            value = never_small(delta_upper(law, users, epsilon))
            if not value <= worst:
                worst, slowest = value, law
        return worst, slowest is None or _below_local(slowest, epsilon, worst, directions="both")

    def covers(self, users: int, epsilon: float, delta: float) -> bool:
        """Whether delta of every pair is certified."""
        return all(is_certified(law, users, epsilon, delta) for law in self.laws)

    def min_epsilon(self, users: int, delta: float, relative: float) -> float:
        """That of the first pair: `epsilon` is no smaller."""
        return epsilon_upper(self.laws[0], users, delta, relative=max(relative, MIN_EPSILON_TOLERANCE))

    def epsilon(
        self, users: int, delta: float, relative: float, minimum: float | None = None, enough: float = math.inf
    ) -> tuple[float, bool]:
        """The smallest at which every pair is certified, or anything above `enough`, and whether one report alone shows more.

        `least` is what `min_epsilon` gave, if it was asked.
        """
        worst = self.min_epsilon(users, delta, relative) if minimum is None else minimum
        slowest = self.laws[0]
        for law in self.laws[1:]:
            if worst >= enough:
                break
            if not is_certified(law, users, worst, delta):
                worst = max(worst, never_small(epsilon_upper(law, users, delta, relative=max(relative, MIN_EPSILON_TOLERANCE))))
                slowest = law
        return worst, worst == 0.0 or _hides(slowest, users, worst, directions="both")


class ScannedPairs:
    """The ordered pairs of a channel; most of them are settled by a first look (`Crowd.open_pairs`).

    `alike`: renamings under which the channel is the same (`pair_screen.symmetries`), so that of pairs that these make of each other one is
    looked at.
    """

    def __init__(self, crowd: PairScreen, pairs: Sequence[Pair], alike: Sequence[Integers64] = ()) -> None:
        self.crowd = crowd
        listed: Pairs = np.array(pairs, dtype=np.int64).reshape(-1, 2)
        if len(alike) > 1:
            many = len(alike[0])
            codes = listed[:, 0] * many + listed[:, 1]
            images = np.array([symmetry[listed[:, 0]] * many + symmetry[listed[:, 1]] for symmetry in alike])
            images = np.where(np.isin(images, codes), images, codes)  # a pair is only left out for another that is listed
            listed = listed[codes == images.min(axis=0)]
        self.pairs = listed

    def _undecided_pairs(self, users: int, epsilon: float, delta: float, law: InputClassLaws) -> Iterator[InputClassLaws]:
        """Pairs that three quick looks have not shown to be at most delta at this epsilon, the widest first.

        `law` is one that is about as bad.
        """
        line = integration_line(law, users, epsilon) if self.crowd.covered else None
        pairs = self.pairs if line is None else self.crowd.open_pairs(self.pairs, users, epsilon, delta, line[0])
        for a, b in pairs.tolist():
            if line is not None and delta_on_line(self.crowd.coarser.law(a, b), users, epsilon, line, roughly=True, enough=delta) <= delta:
                continue
            halved = self.crowd.halved
            if (
                line is not None
                and halved is not self.crowd
                and delta_on_line(halved.law(a, b), users, epsilon, line, enough=delta) <= delta
            ):
                continue
            yield self.crowd.law(a, b)

    def ranked(self, growth: float) -> Pairs:
        """All pairs, those that look worst first."""
        if not self.crowd.covered:
            return self.pairs
        return np.asarray(self.pairs[np.argsort(-self.crowd.spreads(self.pairs, growth)[0], kind="stable")])

    def _first(self, growth: float) -> InputClassLaws:
        a, b = self.ranked(growth)[0].tolist()
        return self.crowd.law(a, b)

    def min_delta(self, users: int, epsilon: float) -> float:
        """That of the pair that looks worst: `delta` is no smaller."""
        return delta_upper(self._first(math.exp(min(epsilon, 700.0))), users, epsilon, directions="forward")

    def nearly_covers(self, users: int, epsilon: float, delta: float) -> bool:
        """Necessary for `covers`, and quick: the pair that looks worst."""
        return is_certified(self._first(math.exp(min(epsilon, 700.0))), users, epsilon, delta, directions="forward")

    def delta(self, users: int, epsilon: float) -> tuple[float, bool]:
        """The largest over the pairs, and whether it is less than what one report alone shows."""
        first = self._first(math.exp(min(epsilon, 700.0)))
        worst = never_small(delta_upper(first, users, epsilon, directions="forward"))
        hidden = _below_local(first, epsilon, worst)
        for law in self._undecided_pairs(users, epsilon, worst, first):
            value = never_small(delta_upper(law, users, epsilon, directions="forward"))
            if not value <= worst:
                worst, hidden = value, _below_local(law, epsilon, value)
        return worst, hidden

    def covers(self, users: int, epsilon: float, delta: float) -> bool:
        """Whether delta of every pair is certified; the pair that looks worst, which decides more often, is looked at first."""
        first = self._first(math.exp(min(epsilon, 700.0)))
        if not is_certified(first, users, epsilon, delta, directions="forward"):
            return False
        line = integration_line(first, users, epsilon)
        return all(
            (line is not None and delta_on_line(law, users, epsilon, line, enough=delta) <= delta)
            or is_certified(law, users, epsilon, delta, directions="forward")
            for law in self._undecided_pairs(users, epsilon, delta, first)
        )

    def min_epsilon(self, users: int, delta: float, relative: float) -> float:
        """That of the pair that looks worst: `epsilon` is no smaller."""
        return epsilon_upper(self._first(1.0), users, delta, directions="forward", relative=max(relative, MIN_EPSILON_TOLERANCE))

    def epsilon(
        self, users: int, delta: float, relative: float, minimum: float | None = None, enough: float = math.inf
    ) -> tuple[float, bool]:
        """That of the pair that looks worst; then every pair passes there or takes over, until one is above `enough`.

        Also whether one report alone shows more. `least` is what `min_epsilon` gave, if it was asked. delta of a pair falls in
        epsilon, so what passed at a smaller epsilon passes at a larger one.
        """
        first = slowest = self._first(1.0)
        worst = self.min_epsilon(users, delta, relative) if minimum is None else minimum
        line = integration_line(first, users, worst)
        for law in self._undecided_pairs(users, worst, delta, first) if worst < enough else ():
            passes = line is not None and delta_on_line(law, users, worst, line, enough=delta) <= delta
            if not passes and not is_certified(law, users, worst, delta, directions="forward"):
                worst = max(
                    worst,
                    never_small(epsilon_upper(law, users, delta, directions="forward", relative=max(relative, MIN_EPSILON_TOLERANCE))),
                )
                slowest = law
                if worst >= enough:
                    break
        return worst, worst == 0.0 or _hides(slowest, users, worst)
