"""What the shuffled reports of a randomizer promise: the best of the blanket of its own laws, the clones, and one report alone."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from metricshuffle.accounting.blanket.bound import checked_users, delta_bracket, epsilon_upper
from metricshuffle.accounting.blanket.law import BlanketLaw
from metricshuffle.accounting.clones.bound import ClonePair
from metricshuffle.accounting.clones.bound import delta_upper as clones_delta
from metricshuffle.accounting.clones.bound import epsilon_upper as clones_epsilon
from metricshuffle.amplification.channel_pair import ChannelPair
from metricshuffle.amplification.lower import relative_for
from metricshuffle.amplification.worst_pair import Pair, Pairs, PairScan
from metricshuffle.privacy.profile import PrivacyProfile, checked_delta, checked_distance, checked_epsilon
from metricshuffle.randomizers.randomizer import LARGEST_MATRIX, Randomizer

FEW_PAIRS = 20
MOST_LAWS = 4096
MOST_WORK = 2**24  # pairs times reports of one look at all pairs
CHAMPIONS = 6


class Laws(Protocol):
    """Whatever has a local profile and laws that bound every pair up to a distance."""

    def blankets(self, distance: float = ...) -> list[BlanketLaw]: ...
    def local_profile(self) -> PrivacyProfile: ...


@dataclass(frozen=True)
class Winner:
    """A number, the bound behind it, and the evaluator that gave it."""

    value: float
    bound: str
    evaluator: str


@dataclass(frozen=True)
class ShuffledProfile(PrivacyProfile):
    """One report each of `users` people, shuffled: the smallest of three upper bounds.

    "blanket": the randomizer's own laws, every pair up to the distance; where there are many pairs, those that are dominated
    (`worst_pair.PairScan.dominated`) are not evaluated. "clones": from the local epsilons alone, if the pairs are too many to look at.
    "local": one report alone, where shuffling buys nothing. Made with bound = "clones", the blanket is left out.
    """

    randomizer: Laws
    users: int
    widest: float
    """The largest distance."""
    bound: str = "blanket"
    relative: float | None = None
    """How closely things are evaluated; the default depends on the number of users."""
    _laws: dict[float, list[BlanketLaw] | PairScan | None] = field(default_factory=dict, init=False, repr=False, compare=False)
    _pures: dict[float, float] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        checked_users(self.users)
        if self._pairs_at(self.widest) is None:
            object.__setattr__(self, "bound", "clones")

    @cached_property
    def _local(self) -> PrivacyProfile:
        return self.randomizer.local_profile()

    @property
    def _relative(self) -> float:
        return relative_for(self.users) if self.relative is None else self.relative

    def pure(self, distance: float) -> float:
        """That of one report: shuffling never adds to it."""
        if distance not in self._pures:
            self._pures[distance] = self._local.pure(distance)
        return self._pures[distance]

    @property
    def many_pairs(self) -> bool:
        """Whether an answer takes a look at more than a few pairs."""
        return isinstance(self._pairs_at(self.widest), PairScan)

    def _pairs_at(self, distance: float) -> list[BlanketLaw] | PairScan | None:
        if distance not in self._laws:
            self._laws[distance] = self._found(distance)
        return self._laws[distance]

    def _found(self, distance: float) -> list[BlanketLaw] | PairScan | None:
        source = self.randomizer
        if self.bound == "clones":
            return None
        if not isinstance(source, Randomizer):
            return source.blankets(distance)
        if type(source).pairs is Randomizer.pairs and source.inputs * (source.inputs - 1) > FEW_PAIRS:
            if source.inputs * source.outputs > LARGEST_MATRIX or source.inputs**2 * source.outputs > 2 * MOST_WORK:
                return None
            scan = PairScan(source.rows(), source.pairs_within(distance))
            if scan.covered and len(scan.pairs) > FEW_PAIRS:
                return scan
        pairs = source.pairs_within(distance)
        if len(pairs) > MOST_LAWS:
            return None
        known = set(pairs)
        return [source.blanket(a, b) for a, b in pairs if a < b or (b, a) not in known]

    def _clones(self, distance: float) -> ClonePair | None:
        local, most = self.pure(distance), self.pure(self.widest)
        if isinstance(self.randomizer, ChannelPair):  # its profile is about one pair, but the others may hold any input
            most = max(most, self.randomizer.local_epsilon())
        return ClonePair(local, most, most) if most < math.inf else None

    def delta(self, epsilon: float, distance: float) -> float:
        return self.delta_winner(epsilon, distance).value

    def epsilon(self, delta: float, distance: float) -> float:
        return self.epsilon_winner(delta, distance).value

    def delta_winner(self, epsilon: float, distance: float) -> Winner:
        """delta, and which bound and evaluator gave it."""
        epsilon, distance = checked_epsilon(epsilon), min(checked_distance(distance), self.widest)
        if distance == 0.0 or epsilon >= self.pure(distance):
            return Winner(0.0, "local", "local")
        found, laws = [Winner(1.0, "local", "local")], self._pairs_at(distance)
        if laws is not None:
            found.append(self._blanket_delta(laws, epsilon))
        if found[-1].evaluator == "local" and (pair := self._clones(distance)):
            found.append(Winner(_never_small(clones_delta(pair, self.users, epsilon)), "clones", "counts"))
        return min(found, key=lambda one: one.value)

    def _blanket_delta(self, laws: list[BlanketLaw] | PairScan, epsilon: float) -> Winner:
        growth = math.exp(min(epsilon, 700.0))
        worst, evaluator = 0.0, "local"
        if isinstance(laws, PairScan):
            left = laws.ranked(growth)
            while len(left):
                pair, left = _first(left)
                if not self._rough(laws, pair, epsilon) <= worst:
                    bracket = delta_bracket(self._law(pair), self.users, epsilon, directions="forward", relative=self._relative)
                    if not bracket.upper <= worst:
                        worst, evaluator = _never_small(bracket.upper), bracket.evaluator
                        left = laws.survivors(left, pair, growth)
            return Winner(worst, evaluator if evaluator == "local" else "blanket", evaluator)
        for law in laws:
            bracket = delta_bracket(law, self.users, epsilon, relative=self._relative)
            if not bracket.upper <= worst:
                worst, evaluator = _never_small(bracket.upper), bracket.evaluator
        return Winner(worst, evaluator if evaluator == "local" else "blanket", evaluator)

    def _law(self, pair: Pair) -> BlanketLaw:
        assert isinstance(self.randomizer, Randomizer)  # noqa: S101 - only a randomizer has a scan
        return self.randomizer.blanket(*pair)

    def _rough(self, scan: PairScan, pair: Pair, epsilon: float) -> float:
        """An upper bound on the pair's delta, quickly."""
        return delta_bracket(scan.law(pair), self.users, epsilon, directions="forward", relative=0.5).upper

    def epsilon_winner(self, delta: float, distance: float) -> Winner:
        """The smallest certified epsilon, and which bound and evaluator gave it."""
        delta, distance = checked_delta(delta), min(checked_distance(distance), self.widest)
        ceiling = self.pure(distance)
        found = [Winner(ceiling, "local", "local")]
        if delta == 0.0 or ceiling == 0.0:
            return found[0]
        laws = self._pairs_at(distance)
        if laws is not None:
            found.append(self._blanket_epsilon(laws, delta))
        if not found[-1].value < ceiling * (1.0 - 1e-9) and (pair := self._clones(distance)):
            found.append(Winner(_never_small(clones_epsilon(pair, self.users, delta)), "clones", "counts"))
        return min(found, key=lambda one: one.value)

    def _blanket_epsilon(self, laws: list[BlanketLaw] | PairScan, delta: float) -> Winner:
        relative = self._relative
        if isinstance(laws, PairScan):
            return self._scanned_epsilon(laws, delta, relative)
        worst, slowest = 0.0, laws[0] if laws else None
        for law in laws:
            value = _never_small(epsilon_upper(law, self.users, delta, relative=relative))
            if not value <= worst:
                worst, slowest = value, law
        if slowest is None:
            return Winner(0.0, "blanket", "local")
        shown = delta_bracket(slowest, self.users, worst * (1.0 - 1e-12), relative=0.5).evaluator
        return Winner(worst, shown if shown == "local" else "blanket", shown)

    def _scanned_epsilon(self, scan: PairScan, delta: float, relative: float) -> Winner:
        """epsilon of the pair that looks worst; then every pair is dominated by one that passes there, passes, or takes over.

        delta of a pair falls in epsilon, so what passed or was dominated at a smaller epsilon still passes at a larger one.
        """
        slowest, _ = _first(scan.ranked(1.0))
        worst = _never_small(epsilon_upper(self._law(slowest), self.users, delta, directions="forward", relative=relative))
        growth = math.exp(min(worst, 700.0))
        left, tries = scan.survivors(scan.ranked(growth), slowest, growth), CHAMPIONS
        while len(left):
            pair, left = _first(left)
            if self._rough(scan, pair, worst) <= delta:
                if tries > 0:  # it passes, and so does what it dominates; worth a look as long as that is much
                    before, left = len(left), scan.survivors(left, pair, growth)
                    tries -= len(left) > 0.98 * before
                continue
            law = self._law(pair)
            if delta_bracket(law, self.users, worst, directions="forward", relative=relative).upper <= delta:
                left = scan.survivors(left, pair, growth)
                continue
            value = _never_small(epsilon_upper(law, self.users, delta, directions="forward", relative=relative))
            if not value <= worst:
                worst, slowest, growth = value, pair, math.exp(min(value, 700.0))
                left = scan.survivors(left, pair, growth)
        law = self._law(slowest)
        shown = delta_bracket(law, self.users, worst * (1.0 - 1e-12), directions="forward", relative=0.5).evaluator
        return Winner(worst, shown if shown == "local" else "blanket", shown)


def _never_small(value: float) -> float:
    """What is not a number is infinite."""
    return value if value >= 0.0 else math.inf


def _first(pairs: Pairs) -> tuple[Pair, Pairs]:
    return (int(pairs[0, 0]), int(pairs[0, 1])), pairs[1:]
