"""The blanket bound for all pairs of inputs; most pairs are ruled out without an evaluation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from metricshuffle.accounting.shuffling.blanket_bound import delta_bracket, epsilon_upper
from metricshuffle.accounting.shuffling.blanket_law import BlanketLaw
from metricshuffle.amplification.dominance_scan import Pair, Pairs, PairScan
from metricshuffle.amplification.smallest_bound import WIN_RATIO, Bound, BoundResult
from metricshuffle.numerics.rounding import never_small
from metricshuffle.randomizers.randomizer import Randomizer

MAX_CHAMPIONS = 6
SEARCH_TOLERANCE = 1e-4

BlanketPairs = list[BlanketLaw] | PairScan


@dataclass(frozen=True)
class BlanketBound(Bound):
    """The blanket bound for every pair of inputs up to one distance.

    `pairs` has the law of each pair, or a scan, in which one pair can dominate others: at the
    epsilon considered, its delta is at least that of each pair it dominates, so the dominated pairs
    need no evaluation. `relative` is the relative accuracy of an evaluation.
    """

    pairs: BlanketPairs
    source: object
    users: int
    relative: float
    narrow: bool = False
    """Whether the full laws give almost the same epsilon; then `loses` returns False at once."""
    search_order: ClassVar[int] = 0

    def delta(self, epsilon: float, ceiling: float) -> BoundResult | None:
        if isinstance(self.pairs, PairScan):
            worst, evaluator = self._scanned_delta(self.pairs, epsilon, ceiling)
        else:
            worst, evaluator = self._listed_delta(self.pairs, epsilon, ceiling)
        return _labelled(worst, evaluator) if worst <= ceiling else None

    def _listed_delta(
        self, laws: list[BlanketLaw], epsilon: float, ceiling: float
    ) -> tuple[float, str]:
        worst = 0.0
        evaluator = "local"
        for law in laws:
            bracket = delta_bracket(law, self.users, epsilon, relative=self.relative)
            if not bracket.upper <= worst:
                worst = never_small(bracket.upper)
                evaluator = bracket.evaluator
            if worst > ceiling:
                break
        return worst, evaluator

    def _scanned_delta(self, scan: PairScan, epsilon: float, ceiling: float) -> tuple[float, str]:
        growth = math.exp(min(epsilon, 700.0))
        worst = 0.0
        evaluator = "local"
        left = scan.ranked(growth)
        while len(left) and worst <= ceiling:
            pair, left = _first(left)
            if self._rough_delta(scan, pair, epsilon) <= worst:
                continue
            bracket = delta_bracket(
                self._law(scan, pair),
                self.users,
                epsilon,
                directions="forward",
                relative=self.relative,
            )
            if not bracket.upper <= worst:
                worst = never_small(bracket.upper)
                evaluator = bracket.evaluator
                left = scan.survivors(left, pair, growth)
        return worst, evaluator

    def _law(self, scan: PairScan, pair: Pair) -> BlanketLaw:
        """Return the law of a pair: in closed form if both inputs are points of the randomizer.

        The closed form has a more precise K_a - K_b, where K_a and K_b are the laws of the reports
        of the two inputs. Inputs between the points are known to the scan only.
        """
        source = self.source
        assert isinstance(source, Randomizer)  # noqa: S101 - only a randomizer has a scan
        return source.blanket(*pair) if max(pair) < source.inputs else scan.law(pair)

    def _rough_delta(self, scan: PairScan, pair: Pair, epsilon: float) -> float:
        """Bound the pair's delta from above, quickly."""
        law = scan.law(pair)
        return delta_bracket(law, self.users, epsilon, directions="forward", relative=0.5).upper

    def epsilon(self, delta: float, ceiling: float) -> BoundResult:
        if isinstance(self.pairs, PairScan):
            return self._scanned_epsilon(self.pairs, delta)
        return self._listed_epsilon(self.pairs, delta)

    def _listed_epsilon(self, laws: list[BlanketLaw], delta: float) -> BoundResult:
        if not laws:
            return BoundResult(0.0, "blanket", "local")
        worst = 0.0
        slowest = laws[0]
        for law in laws:
            if (
                worst > 0.0
                and delta_bracket(law, self.users, worst, relative=self.relative).upper <= delta
            ):
                continue  # its delta is small enough at the largest epsilon so far
            value = never_small(epsilon_upper(law, self.users, delta, relative=self.relative))
            if not value <= worst:
                worst = value
                slowest = law
        just_below = worst * (1.0 - 1e-12)
        return _labelled(
            worst, delta_bracket(slowest, self.users, just_below, relative=0.5).evaluator
        )

    def _scanned_epsilon(self, scan: PairScan, delta: float) -> BoundResult:
        """Find the largest epsilon of all pairs, beginning with the pair that looks worst.

        Every other pair is ruled out if it is dominated, or if its delta at the largest epsilon so
        far is small enough; otherwise its own epsilon is the largest so far. A pair that was ruled
        out stays ruled out at a larger epsilon, because its delta is no larger there.
        """

        def pair_epsilon(law: BlanketLaw) -> float:
            return never_small(
                epsilon_upper(law, self.users, delta, directions="forward", relative=self.relative)
            )

        def evaluate(law: BlanketLaw, epsilon: float, relative: float) -> tuple[float, str]:
            bracket = delta_bracket(
                law, self.users, epsilon, directions="forward", relative=relative
            )
            return bracket.upper, bracket.evaluator

        slowest, _ = _first(scan.ranked(1.0))
        worst = pair_epsilon(self._law(scan, slowest))
        growth = math.exp(min(worst, 700.0))
        left = scan.survivors(scan.ranked(growth), slowest, growth)
        tries = MAX_CHAMPIONS
        while len(left):
            pair, left = _first(left)
            if self._rough_delta(scan, pair, worst) <= delta:
                # Rule out pairs that it dominates, too; worth checking while many are left.
                if tries > 0:
                    before = len(left)
                    left = scan.survivors(left, pair, growth)
                    tries -= len(left) > 0.98 * before
                continue
            law = self._law(scan, pair)
            if evaluate(law, worst, self.relative)[0] <= delta:
                left = scan.survivors(left, pair, growth)
                continue
            value = pair_epsilon(law)
            if not value <= worst:
                worst = value
                slowest = pair
                growth = math.exp(min(value, 700.0))
                left = scan.survivors(left, pair, growth)
        return _labelled(worst, evaluate(self._law(scan, slowest), worst * (1.0 - 1e-12), 0.5)[1])

    def loses(self, rival: BoundResult, delta: float) -> bool:
        """Return whether some pair certainly exceeds delta just below the rival's epsilon."""
        if self.narrow:
            return False
        laws = self.pairs
        if isinstance(laws, PairScan):
            laws = [laws.law(_first(laws.ranked(1.0))[0])]
        just_below = rival.value * WIN_RATIO
        return any(
            delta_bracket(law, self.users, just_below, relative=0.05).lower > delta for law in laws
        )

    def covers(self, epsilon: float, delta: float) -> bool:
        return self.delta(epsilon, delta) is not None

    def nearly_covers(self, epsilon: float, delta: float) -> bool:
        """Check only the pair that looks worst."""
        pairs = self.pairs
        users = self.users
        if isinstance(pairs, PairScan):
            law = pairs.law(_first(pairs.ranked(math.exp(min(epsilon, 700.0))))[0])
            bracket = delta_bracket(
                law, users, epsilon, directions="forward", relative=SEARCH_TOLERANCE
            )
            return bracket.upper <= delta
        return (
            not pairs
            or delta_bracket(pairs[0], users, epsilon, relative=SEARCH_TOLERANCE).upper <= delta
        )


def _labelled(value: float, evaluator: str) -> BoundResult:
    return BoundResult(value, evaluator if evaluator == "local" else "blanket", evaluator)


def _first(pairs: Pairs) -> tuple[Pair, Pairs]:
    return (int(pairs[0, 0]), int(pairs[0, 1])), pairs[1:]
