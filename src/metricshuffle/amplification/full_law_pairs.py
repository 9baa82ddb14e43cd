"""The bound beyond the blanket over all pairs, of which only a few are evaluated closely.

This bound uses the whole laws of the other people's reports, not only their common part.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from metricshuffle.accounting.shuffling.full_law_bound import (
    delta_on_line,
    delta_upper,
    epsilon_upper,
    integration_line,
    is_certified,
)
from metricshuffle.accounting.shuffling.input_class_laws import InputClassLaws
from metricshuffle.accounting.shuffling.pair_screen import Pairs, PairScreen
from metricshuffle.accounting.shuffling.root_search import Directions
from metricshuffle.amplification.dominance_scan import Pair
from metricshuffle.amplification.smallest_bound import WIN_RATIO, Bound, BoundResult
from metricshuffle.numerics.rounding import never_small
from metricshuffle.numerics.types import Integers64

MIN_EPSILON_TOLERANCE = 1e-6  # the error of the bound itself is larger


def _below_local(
    law: InputClassLaws, epsilon: float, delta: float, directions: Directions = "forward"
) -> bool:
    """Return whether delta is clearly less than that of one report alone."""
    ways = [law] if directions == "forward" else [law, law.reversed]
    return delta < max(direction.at(epsilon).local for direction in ways) * (1.0 - 1e-12)


def _hides(
    law: InputClassLaws, users: int, epsilon: float, directions: Directions = "forward"
) -> bool:
    """Return whether the bound just below this epsilon is less than delta of one report alone."""
    just_below = epsilon * (1.0 - 1e-9)
    return _below_local(
        law, just_below, delta_upper(law, users, just_below, directions=directions), directions
    )


@dataclass(frozen=True)
class ListedPairs:
    """A few pairs, each given with the laws of the other people's reports."""

    laws: Sequence[InputClassLaws]

    @property
    def spread(self) -> float:
        """About E[G^2] of the first pair if all others hold one input, as `BlanketLaw.spread`.

        G is (K_a - K_b)/K_c under K_c, with K_x the law of the report of input x and c the input of
        all others for which E[G^2] is largest.
        """
        return float(self.laws[0].at(0.0).square.max())

    def loses(self, users: int, epsilon: float, delta: float) -> bool:
        """Return whether the first pair exceeds delta at this epsilon.

        If it does, the result of the method `epsilon` is no smaller than this epsilon.
        """
        return not is_certified(self.laws[0], users, epsilon, delta)

    def min_delta(self, users: int, epsilon: float) -> float:
        """Return delta of the first pair; `delta` is no smaller."""
        return delta_upper(self.laws[0], users, epsilon)

    def delta(self, users: int, epsilon: float) -> tuple[float, bool]:
        """Return the largest delta of the pairs, and whether one report alone shows more."""
        worst = 0.0
        slowest = None
        for law in self.laws:
            value = never_small(delta_upper(law, users, epsilon))
            if not value <= worst:
                worst = value
                slowest = law
        return worst, slowest is None or _below_local(slowest, epsilon, worst, directions="both")

    def covers(self, users: int, epsilon: float, delta: float) -> bool:
        """Return whether delta of every pair is certified."""
        return all(is_certified(law, users, epsilon, delta) for law in self.laws)

    def nearly_covers(self, users: int, epsilon: float, delta: float) -> bool:
        """Return `covers`, which is as quick."""
        return self.covers(users, epsilon, delta)

    def min_epsilon(self, users: int, delta: float, relative: float) -> float:
        """Return epsilon of the first pair; `epsilon` is no smaller."""
        return epsilon_upper(
            self.laws[0], users, delta, relative=max(relative, MIN_EPSILON_TOLERANCE)
        )

    def epsilon(
        self,
        users: int,
        delta: float,
        relative: float,
        minimum: float | None = None,
        enough: float = math.inf,
    ) -> tuple[float, bool]:
        """Return the smallest epsilon certified for all pairs, or a value >= `enough`.

        Also returns whether one report alone shows more. `minimum` is the known result of
        `min_epsilon`.
        """
        worst = self.min_epsilon(users, delta, relative) if minimum is None else minimum
        slowest = self.laws[0]
        for law in self.laws[1:]:
            if worst >= enough:
                break
            if not is_certified(law, users, worst, delta):
                worst = max(
                    worst,
                    never_small(
                        epsilon_upper(
                            law, users, delta, relative=max(relative, MIN_EPSILON_TOLERANCE)
                        )
                    ),
                )
                slowest = law
        return worst, worst == 0.0 or _hides(slowest, users, worst, directions="both")


class ScannedPairs:
    """The ordered pairs of a channel, most of which `PairScreen.open_pairs` decides.

    `alike` are the renamings that leave the channel unchanged (`pair_screen.symmetries`); of the
    pairs that a renaming maps to each other, only one is evaluated.
    """

    def __init__(
        self, crowd: PairScreen, pairs: Sequence[Pair], alike: Sequence[Integers64] = ()
    ) -> None:
        self.crowd = crowd
        listed: Pairs = np.array(pairs, dtype=np.int64).reshape(-1, 2)
        if len(alike) > 1:
            many = len(alike[0])
            codes = listed[:, 0] * many + listed[:, 1]
            images = np.array(
                [symmetry[listed[:, 0]] * many + symmetry[listed[:, 1]] for symmetry in alike]
            )
            # A pair is left out only if another listed pair represents it.
            images = np.where(np.isin(images, codes), images, codes)
            listed = listed[codes == images.min(axis=0)]
        self.pairs = listed

    def _undecided_pairs(
        self, users: int, epsilon: float, delta: float, law: InputClassLaws
    ) -> Iterator[InputClassLaws]:
        """Yield, widest first, the pairs that three quick checks do not show to be at most delta.

        `law` is a law that is about as bad as the worst pair; it sets the integration line of the
        checks.
        """
        line = integration_line(law, users, epsilon) if self.crowd.covered else None
        pairs = (
            self.pairs
            if line is None
            else self.crowd.open_pairs(self.pairs, users, epsilon, delta, line[0])
        )
        for a, b in pairs.tolist():
            if (
                line is not None
                and delta_on_line(
                    self.crowd.coarser.law(a, b), users, epsilon, line, roughly=True, enough=delta
                )
                <= delta
            ):
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
        """Return all pairs, those that look worst first."""
        if not self.crowd.covered:
            return self.pairs
        return np.asarray(
            self.pairs[np.argsort(-self.crowd.spreads(self.pairs, growth)[0], kind="stable")]
        )

    def _first(self, growth: float) -> InputClassLaws:
        a, b = self.ranked(growth)[0].tolist()
        return self.crowd.law(a, b)

    def min_delta(self, users: int, epsilon: float) -> float:
        """Return delta of the pair that looks worst; `delta` is no smaller."""
        return delta_upper(
            self._first(math.exp(min(epsilon, 700.0))), users, epsilon, directions="forward"
        )

    def nearly_covers(self, users: int, epsilon: float, delta: float) -> bool:
        """Check the pair that looks worst, a quick necessary condition of `covers`."""
        return is_certified(
            self._first(math.exp(min(epsilon, 700.0))), users, epsilon, delta, directions="forward"
        )

    def delta(self, users: int, epsilon: float) -> tuple[float, bool]:
        """Return the largest delta of the pairs, and whether one report alone shows more."""
        first = self._first(math.exp(min(epsilon, 700.0)))
        worst = never_small(delta_upper(first, users, epsilon, directions="forward"))
        hidden = _below_local(first, epsilon, worst)
        for law in self._undecided_pairs(users, epsilon, worst, first):
            value = never_small(delta_upper(law, users, epsilon, directions="forward"))
            if not value <= worst:
                worst = value
                hidden = _below_local(law, epsilon, value)
        return worst, hidden

    def covers(self, users: int, epsilon: float, delta: float) -> bool:
        """Return whether delta of every pair is certified.

        The pair that looks worst is evaluated first, because it usually decides.
        """
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
        """Return epsilon of the pair that looks worst; `epsilon` is no smaller."""
        return epsilon_upper(
            self._first(1.0),
            users,
            delta,
            directions="forward",
            relative=max(relative, MIN_EPSILON_TOLERANCE),
        )

    def epsilon(
        self,
        users: int,
        delta: float,
        relative: float,
        minimum: float | None = None,
        enough: float = math.inf,
    ) -> tuple[float, bool]:
        """Return an epsilon certified for all pairs, or a value >= `enough`; see `ListedPairs`.

        The search starts at the epsilon of the pair that looks worst. Every other pair either
        passes at the largest epsilon so far or has a larger one, which replaces it. The delta of a
        pair decreases as epsilon grows, so a pair that passed once passes at larger epsilons.
        """
        first = slowest = self._first(1.0)
        worst = self.min_epsilon(users, delta, relative) if minimum is None else minimum
        line = integration_line(first, users, worst)
        for law in self._undecided_pairs(users, worst, delta, first) if worst < enough else ():
            passes = (
                line is not None and delta_on_line(law, users, worst, line, enough=delta) <= delta
            )
            if not passes and not is_certified(law, users, worst, delta, directions="forward"):
                worst = max(
                    worst,
                    never_small(
                        epsilon_upper(
                            law,
                            users,
                            delta,
                            directions="forward",
                            relative=max(relative, MIN_EPSILON_TOLERANCE),
                        )
                    ),
                )
                slowest = law
                if worst >= enough:
                    break
        return worst, worst == 0.0 or _hides(slowest, users, worst)


BeyondPairs = ListedPairs | ScannedPairs


@dataclass(frozen=True)
class FullLawBound(Bound):
    """The bound by the whole laws of the other people's reports, not only by their common part."""

    pairs: BeyondPairs
    users: int
    relative: float
    narrow: bool = False
    """Whether the blanket is as narrow as the laws; if so, one evaluation usually shows a loss."""
    search_order: ClassVar[int] = 1
    _floors: dict[tuple[str, float], float] = field(default_factory=dict, init=False)

    def delta_goal(self, epsilon: float) -> float:
        """Return delta of the pair that looks worst."""
        if ("delta", epsilon) not in self._floors:
            floor = never_small(self.pairs.min_delta(self.users, epsilon))
            self._floors["delta", epsilon] = floor
        return self._floors["delta", epsilon]

    def _min_epsilon(self, delta: float) -> float:
        if ("epsilon", delta) not in self._floors:
            floor = never_small(self.pairs.min_epsilon(self.users, delta, self.relative))
            self._floors["epsilon", delta] = floor
        return self._floors["epsilon", delta]

    def epsilon_goal(self, delta: float) -> float:
        """Return epsilon of the pair that looks worst; inf if `loses` may save that search."""
        return math.inf if self.narrow else self._min_epsilon(delta)

    def delta(self, epsilon: float, ceiling: float) -> BoundResult | None:
        if not self.delta_goal(epsilon) < ceiling:
            return None
        return _labelled(*self.pairs.delta(self.users, epsilon))

    def epsilon(self, delta: float, ceiling: float) -> BoundResult | None:
        floor = self._min_epsilon(delta)
        if not floor < ceiling:
            return None
        result = _labelled(*self.pairs.epsilon(self.users, delta, self.relative, floor, ceiling))
        # From `ceiling` on, the search may have ended before all pairs were certified.
        return result if result.value < ceiling else None

    def loses(self, rival: BoundResult, delta: float) -> bool:
        """If narrow, return whether the first pair exceeds delta just below the rival's epsilon."""
        pairs = self.pairs
        if not self.narrow or not isinstance(pairs, ListedPairs):
            return False
        return pairs.loses(self.users, rival.value * WIN_RATIO, delta)

    def covers(self, epsilon: float, delta: float) -> bool:
        return self.pairs.covers(self.users, epsilon, delta)

    def nearly_covers(self, epsilon: float, delta: float) -> bool:
        return self.pairs.nearly_covers(self.users, epsilon, delta)


def _labelled(value: float, hidden: bool) -> BoundResult:
    """Label the value as this bound if one report alone shows more, else as one report alone."""
    if hidden:
        return BoundResult(never_small(value), "beyond-blanket", "contour")
    return BoundResult(never_small(value), "local", "local")
