"""What the shuffled reports of a randomizer promise: the best of all bounds, whichever it is at that distance and delta."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from metricshuffle.accounting.shuffling.blanket_bound import checked_users, delta_bracket, epsilon_upper
from metricshuffle.accounting.shuffling.blanket_law import BlanketLaw
from metricshuffle.accounting.shuffling.clone_bound import ClonePair
from metricshuffle.accounting.shuffling.clone_bound import delta_upper as clones_delta
from metricshuffle.accounting.shuffling.clone_bound import epsilon_upper as clones_epsilon
from metricshuffle.amplification.binary_pairs import BinaryPairs
from metricshuffle.amplification.channel_pair import ChannelPair
from metricshuffle.amplification.dominance_scan import Pair, Pairs, PairScan
from metricshuffle.amplification.full_law_pairs import ListedPairs
from metricshuffle.amplification.lower_bound import relative_tolerance_for
from metricshuffle.amplification.pair_cover import BeyondPairs, BlanketPairs, DisplacementLaws, blanket_pairs, distances_of, full_law_pairs
from metricshuffle.amplification.random_task import RandomTask
from metricshuffle.numerics.certified_search import every_block
from metricshuffle.numerics.rounding import never_small
from metricshuffle.privacy.profile import PrivacyProfile, Shape, checked_delta, checked_epsilon, validate_distance
from metricshuffle.randomizers.randomizer import Randomizer

MAX_CHAMPIONS = 6
SEARCH_TOLERANCE = 1e-4  # how closely a search looks
FULL_LAW_LABEL, LOCAL_LABEL = ("beyond-blanket", "contour"), ("local", "local")
WIN_RATIO = 1.0 - 1e-9  # what is not this much below another bound is no better
WIDER = 1.01  # a law that is wider by this much is worse by more than either is rounded


class LawSource(Protocol):
    """Whatever has a local profile and laws that bound every pair up to a distance."""

    def blankets(self, distance: float = ...) -> list[BlanketLaw]: ...
    def local_profile(self) -> PrivacyProfile: ...


@dataclass(frozen=True)
class BoundResult:
    """A number, the bound behind it, and the evaluator that gave it."""

    value: float
    bound: str
    evaluator: str

    def smaller_of(self, candidate: BoundResult) -> BoundResult:
        """The other one, if its value is smaller."""
        return candidate if candidate.value < self.value else self


@dataclass(frozen=True)
class BestBoundProfile(PrivacyProfile):
    """One report each of `users` people, shuffled: the smallest of several upper bounds, for every pair up to the distance.

    "two-report": exact, if there are two possible reports; nothing else is looked at then. "beyond-blanket": the whole laws of the
    others. "blanket": what all laws have in common; where there are many pairs, those that are dominated (`dominance_scan.PairScan`) are
    not
    evaluated, and where there are too many, lines and grids take one law for each displacement. "clones": from the local epsilons alone,
    at the distance itself. "local": one report alone, where shuffling buys nothing. A bound that cannot beat the best one so far, by one
    look at the pair that looks worst, is not searched. Made with bound = "blanket" or "clones", only that one and one report alone are
    tried.
    """

    randomizer: LawSource
    users: int
    widest: float
    """The largest distance."""
    bound: str = "best"
    relative: float | None = None
    """How closely things are evaluated; the default depends on the number of users."""
    _laws: dict[float, BlanketPairs | None] = field(default_factory=dict, init=False, repr=False, compare=False)
    _others: dict[float, BeyondPairs | None] = field(default_factory=dict, init=False, repr=False, compare=False)
    _pures: dict[float, float] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        checked_users(self.users)
        if self.exact is not None:
            object.__setattr__(self, "bound", "two-report")
        elif (
            self._shifts is None
            and self._pairs_at(self.widest) is None
            and self._full_law_pairs_at(self.widest) is None
            and not self._displaced
        ):
            object.__setattr__(self, "bound", "clones")

    @cached_property
    def exact(self) -> BinaryPairs | None:
        """The exact answer, if there are two reports."""
        return None if self.bound != "best" else BinaryPairs.of(self.randomizer, self.users, self.relative or 0.0)

    @cached_property
    def _local(self) -> PrivacyProfile:
        return self.randomizer.local_profile()

    @property
    def _relative(self) -> float:
        return relative_tolerance_for(self.users) if self.relative is None else self.relative

    def pure(self, distance: float) -> float:
        """That of one report: shuffling never adds to it."""
        if distance not in self._pures:
            self._pures[distance] = self._local.pure(distance)
        return self._pures[distance]

    @property
    def many_pairs(self) -> bool:
        """Whether an answer takes a look at more than a few pairs."""
        return self.exact is None and isinstance(self._pairs_at(self.widest), PairScan)

    def _pairs_at(self, distance: float) -> BlanketPairs | None:
        if distance not in self._laws:
            source = self.randomizer
            if self.bound == "clones":
                self._laws[distance] = None
            else:
                self._laws[distance] = blanket_pairs(source, distance) if isinstance(source, Randomizer) else source.blankets(distance)
        return self._laws[distance]

    def _full_law_pairs_at(self, distance: float) -> BeyondPairs | None:
        if distance not in self._others:
            source = self.randomizer
            if self.bound != "best" or not isinstance(source, Randomizer | RandomTask):
                self._others[distance] = None
            else:
                self._others[distance] = full_law_pairs(source, distance)
        return self._others[distance]

    @cached_property
    def _displaced(self) -> DisplacementLaws | None:
        return DisplacementLaws.of(self.randomizer, self.users) if self.bound == "best" and self._pairs_at(self.widest) is None else None

    @cached_property
    def _shifts(self) -> DisplacementLaws | None:
        """One law for each displacement, for lines and grids: quick, and not as close as pair by pair."""
        displacements = DisplacementLaws.of(self.randomizer, self.users) if self.bound == "best" else None
        return None if displacements is not None and displacements.step else displacements  # (real numbers between grid points)

    def _clones(self, distance: float) -> ClonePair | None:
        if self.bound == "blanket":
            return None
        local, max_local = self.pure(distance), self.pure(self.widest)
        if isinstance(self.randomizer, ChannelPair):  # its profile is about one pair, but the others may hold any input
            max_local = max(max_local, self.randomizer.local_epsilon())
        return ClonePair(local, max_local, max_local) if max_local < math.inf else None

    def delta(self, epsilon: float, distance: float) -> float:
        return self.delta_winner(epsilon, distance).value

    def epsilon(self, delta: float, distance: float) -> float:
        return self.epsilon_winner(delta, distance).value

    def delta_winner(self, epsilon: float, distance: float) -> BoundResult:
        """delta, and which bound and evaluator gave it."""
        epsilon, distance = checked_epsilon(epsilon), min(validate_distance(distance), self.widest)
        if distance == 0.0 or epsilon >= self.pure(distance):
            return BoundResult(0.0, "local", "local")
        best = BoundResult(1.0, "local", "local")
        if self.exact is not None:
            return best.smaller_of(BoundResult(never_small(self.exact.delta(epsilon, distance).upper), "two-report", "contour"))
        laws, others = self._pairs_at(distance), self._full_law_pairs_at(distance)
        full_law_minimum = math.inf if others is None else never_small(others.min_delta(self.users, epsilon))
        if laws is not None:  # where it is as small as the other can be, that needs no look at all pairs
            best = best.smaller_of(self._blanket_delta(laws, epsilon, full_law_minimum))
        if others is not None and full_law_minimum < best.value:
            value, hidden = others.delta(self.users, epsilon)
            best = best.smaller_of(BoundResult(never_small(value), *(FULL_LAW_LABEL if hidden else LOCAL_LABEL)))
            if laws is not None and best.value > full_law_minimum:
                best = best.smaller_of(self._blanket_delta(laws, epsilon, best.value))
        if laws is None and (shifts := self._displaced) is not None:
            best = best.smaller_of(BoundResult(never_small(shifts.profile.delta(epsilon, shifts.whole(distance))), "blanket", "contour"))
        if (pair := self._clones(distance)) is not None:
            best = best.smaller_of(BoundResult(never_small(clones_delta(pair, self.users, epsilon)), "clones", "counts"))
        return best

    def _blanket_delta(self, laws: BlanketPairs, epsilon: float, enough: float) -> BoundResult:
        """The largest over the pairs; infinite if it exceeds `enough`, as then not all of them were looked at."""
        growth = math.exp(min(epsilon, 700.0))
        worst, evaluator = 0.0, "local"
        if isinstance(laws, PairScan):
            left = laws.ranked(growth)
            while len(left) and worst <= enough:
                pair, left = _first(left)
                if not self._rough(laws, pair, epsilon) <= worst:
                    bracket = delta_bracket(self._law(laws, pair), self.users, epsilon, directions="forward", relative=self._relative)
                    if not bracket.upper <= worst:
                        worst, evaluator = never_small(bracket.upper), bracket.evaluator
                        left = laws.survivors(left, pair, growth)
        else:
            for law in laws:
                bracket = delta_bracket(law, self.users, epsilon, relative=self._relative)
                if not bracket.upper <= worst:
                    worst, evaluator = never_small(bracket.upper), bracket.evaluator
                if worst > enough:
                    break
        return BoundResult(worst if worst <= enough else math.inf, evaluator if evaluator == "local" else "blanket", evaluator)

    def _law(self, scan: PairScan, pair: Pair) -> BlanketLaw:
        """From the randomizer's closed form, which knows K_a - K_b better; laws between grid points have none."""
        assert isinstance(self.randomizer, Randomizer)  # noqa: S101 - only a randomizer has a scan
        return self.randomizer.blanket(*pair) if max(pair) < self.randomizer.inputs else scan.law(pair)

    def _rough(self, scan: PairScan, pair: Pair, epsilon: float) -> float:
        """An upper bound on the pair's delta, quickly."""
        return delta_bracket(scan.law(pair), self.users, epsilon, directions="forward", relative=0.5).upper

    def epsilon_winner(self, delta: float, distance: float) -> BoundResult:
        """The smallest certified epsilon, and which bound and evaluator gave it."""
        delta, distance = checked_delta(delta), min(validate_distance(distance), self.widest)
        best = BoundResult(self.pure(distance), "local", "local")
        if delta == 0.0 or best.value == 0.0:
            return best
        if self.exact is not None:
            return best.smaller_of(BoundResult(never_small(self.exact.epsilon(delta, distance).upper), "two-report", "contour"))
        laws, others = self._pairs_at(distance), self._full_law_pairs_at(distance)
        narrow = laws if isinstance(laws, list) and isinstance(others, ListedPairs) and others.no_narrower(laws) else []
        if narrow:  # then one look usually tells that the other does not win
            best = best.smaller_of(self._blanket_epsilon(narrow, delta))
            if isinstance(others, ListedPairs) and others.loses(self.users, best.value * WIN_RATIO, delta):
                others = None
        full_law_minimum = (
            best.value if others is None else min(never_small(others.min_epsilon(self.users, delta, self._relative)), best.value)
        )
        blanket_can_win = bool(narrow) or (laws is not None and not self._blanket_loses(laws, delta, full_law_minimum))
        if laws is not None and blanket_can_win and not narrow:  # where it is as small as the other can be, that needs no look at all pairs
            best = best.smaller_of(self._blanket_epsilon(laws, delta))
        if others is not None and full_law_minimum < best.value:
            value, hidden = others.epsilon(self.users, delta, self._relative, full_law_minimum, best.value)
            best = best.smaller_of(BoundResult(never_small(value), *(FULL_LAW_LABEL if hidden else LOCAL_LABEL)))
        if laws is not None and not blanket_can_win and best.value > full_law_minimum and not self._blanket_loses(laws, delta, best.value):
            best = best.smaller_of(self._blanket_epsilon(laws, delta))
        if laws is None and (shifts := self._displaced) is not None:
            best = best.smaller_of(self._displaced_epsilon(shifts, delta, distance, best.value))
        pair = self._clones(distance)
        if narrow and best.bound == "blanket" and pair is not None and pair.spread > WIDER * max(law.spread for law in narrow):
            pair = None  # its expression is at least that of each blanket (`BlanketLaw.clone_pair`)
        if pair is not None and not clones_delta(pair, self.users, best.value * WIN_RATIO) > delta:
            best = best.smaller_of(BoundResult(never_small(clones_epsilon(pair, self.users, delta)), "clones", "counts"))
        return best

    def covers(self, epsilon: float, delta: float, distance: float, shape: Shape = "linear") -> bool:
        """True only if the promise is certified for every pair of inputs up to the distance, by whichever bound at each distance.

        Statement: linear: delta(epsilon d/distance, d) <= delta for every d <= distance at which there are two inputs. As delta falls in
        epsilon and is about all pairs up to d, one look delta(e(a), b) <= delta is enough for every d in a..b.
        Conditions: a linear promise needs inputs that can be listed; real numbers between grid points are refused.
        Numerics: lines and grids are first covered displacement by displacement, which is quick; each e(a) is rounded down.
        """
        epsilon, delta, reach = checked_epsilon(epsilon), checked_delta(delta), validate_distance(distance)
        if (shifts := self._shifts) is not None:
            covered = shifts.profile.covers(epsilon, delta, reach, shape)
            if covered or delta == 0.0:  # (one report alone is told exactly there)
                return covered
        if shape == "flat":
            return self.covers_at(epsilon, delta, reach)
        apart = distances_of(self.randomizer, reach)

        def passes(first: int, last: int) -> bool:
            return self.covers_at(epsilon * min(1.0, apart[first] / reach) * (1.0 - 6e-16), delta, apart[last])

        return every_block(len(apart), passes)

    def nearly_covers(self, epsilon: float, delta: float, distance: float, shape: Shape = "linear") -> bool:
        """Necessary for `covers` (but for a hair), and quick: the pairs that look worst within the distance and, if linear, close by."""
        epsilon, delta, reach = checked_epsilon(epsilon), checked_delta(delta), validate_distance(distance)
        if delta == 0.0:
            return self.covers(epsilon, delta, reach, shape)
        if (shifts := self._shifts) is not None and shifts.profile.nearly_covers(epsilon, delta, reach, shape):
            return True
        nearest = distances_of(self.randomizer, reach)[:2] if shape == "linear" else []  # (a step, and a diagonal one)
        looks = [(epsilon * min(1.0, near_distance / reach), near_distance) for near_distance in nearest] + [(epsilon, reach)]
        return all(self._nearly_at(total, delta, min(at, self.widest)) for total, at in looks)

    def decisive(self, epsilon: float, distance: float, shape: Shape = "linear") -> str:
        """The bound that wins at the largest distance at which one report alone would not keep the promise."""
        reach = validate_distance(distance)
        for apart in reversed(distances_of(self.randomizer, reach) if shape == "linear" else [reach]):
            bound = self.delta_winner(epsilon * min(1.0, apart / reach), apart).bound
            if bound != "local":
                return bound
        return "local"

    def covers_at(self, epsilon: float, delta: float, distance: float) -> bool:
        """True only if one of the bounds certifies (epsilon, delta) for every pair up to the distance; cheap ones are tried first."""
        epsilon, distance = checked_epsilon(epsilon), min(validate_distance(distance), self.widest)
        if delta == 0.0 or self.exact is not None or distance == 0.0:
            return super().covers_at(epsilon, delta, distance)
        if epsilon >= self.pure(distance):
            return True
        if (pair := self._clones(distance)) is not None and clones_delta(pair, self.users, epsilon) <= delta:
            return True
        if (others := self._full_law_pairs_at(distance)) is not None and others.covers(self.users, epsilon, delta):
            return True
        laws = self._pairs_at(distance)
        if laws is not None:
            return self._blanket_delta(laws, epsilon, delta).value <= delta
        return (shifts := self._displaced) is not None and shifts.profile.covers(epsilon, delta, shifts.whole(distance), "flat")

    def _nearly_at(self, epsilon: float, delta: float, distance: float) -> bool:
        """Necessary for `covers_at`: each bound at the pair that looks worst to it."""
        if self.exact is not None or epsilon >= self.pure(distance):
            return self.covers_at(epsilon, delta, distance)
        if (pair := self._clones(distance)) is not None and clones_delta(pair, self.users, epsilon) <= delta:
            return True
        others = self._full_law_pairs_at(distance)
        if isinstance(others, ListedPairs):  # a look at all of them is as quick
            return self.covers_at(epsilon, delta, distance)
        if others is not None and others.nearly_covers(self.users, epsilon, delta):
            return True
        laws = self._pairs_at(distance)
        if laws is None:
            return False  # (displacements were looked at before)
        if isinstance(laws, PairScan):
            law = laws.law(_first(laws.ranked(math.exp(min(epsilon, 700.0))))[0])
            return delta_bracket(law, self.users, epsilon, directions="forward", relative=SEARCH_TOLERANCE).upper <= delta
        return not laws or delta_bracket(laws[0], self.users, epsilon, relative=SEARCH_TOLERANCE).upper <= delta

    def _displaced_epsilon(self, shifts: DisplacementLaws, delta: float, distance: float, enough: float) -> BoundResult:
        """By one law for each displacement, or inf if that cannot beat `enough`."""
        whole_distance = shifts.whole(distance)
        loses = shifts.profile.delta(enough * WIN_RATIO, whole_distance) > delta
        return BoundResult(math.inf if loses else never_small(shifts.profile.epsilon(delta, whole_distance)), "blanket", "contour")

    def _blanket_loses(self, laws: BlanketPairs, delta: float, epsilon: float) -> bool:
        """Whether the blanket expression of some pair certainly exceeds delta at (a hair less than) this epsilon."""
        tried_laws = [laws.law(_first(laws.ranked(1.0))[0])] if isinstance(laws, PairScan) else laws
        return any(delta_bracket(law, self.users, epsilon * WIN_RATIO, relative=0.05).lower > delta for law in tried_laws)

    def _blanket_epsilon(self, laws: BlanketPairs, delta: float) -> BoundResult:
        relative = self._relative
        if isinstance(laws, PairScan):
            return self._scanned_epsilon(laws, delta, relative)
        worst, slowest = 0.0, laws[0] if laws else None
        for law in laws:
            if worst > 0.0 and delta_bracket(law, self.users, worst, relative=relative).upper <= delta:
                continue  # it passes where another one just does
            value = never_small(epsilon_upper(law, self.users, delta, relative=relative))
            if not value <= worst:
                worst, slowest = value, law
        if slowest is None:
            return BoundResult(0.0, "blanket", "local")
        shown = delta_bracket(slowest, self.users, worst * (1.0 - 1e-12), relative=0.5).evaluator
        return BoundResult(worst, shown if shown == "local" else "blanket", shown)

    def _scanned_epsilon(self, scan: PairScan, delta: float, relative: float) -> BoundResult:
        """epsilon of the pair that looks worst; then every pair is dominated by one that passes there, passes, or takes over.

        delta of a pair falls in epsilon, so what passed or was dominated at a smaller epsilon still passes at a larger one.
        """
        slowest, _ = _first(scan.ranked(1.0))
        worst = never_small(epsilon_upper(self._law(scan, slowest), self.users, delta, directions="forward", relative=relative))
        growth = math.exp(min(worst, 700.0))
        left, tries = scan.survivors(scan.ranked(growth), slowest, growth), MAX_CHAMPIONS
        while len(left):
            pair, left = _first(left)
            if self._rough(scan, pair, worst) <= delta:
                if tries > 0:  # it passes, and so does what it dominates; worth a look as long as that is much
                    before, left = len(left), scan.survivors(left, pair, growth)
                    tries -= len(left) > 0.98 * before
                continue
            law = self._law(scan, pair)
            if delta_bracket(law, self.users, worst, directions="forward", relative=relative).upper <= delta:
                left = scan.survivors(left, pair, growth)
                continue
            value = never_small(epsilon_upper(law, self.users, delta, directions="forward", relative=relative))
            if not value <= worst:
                worst, slowest, growth = value, pair, math.exp(min(value, 700.0))
                left = scan.survivors(left, pair, growth)
        law = self._law(scan, slowest)
        shown = delta_bracket(law, self.users, worst * (1.0 - 1e-12), directions="forward", relative=0.5).evaluator
        return BoundResult(worst, shown if shown == "local" else "blanket", shown)


def _first(pairs: Pairs) -> tuple[Pair, Pairs]:
    return (int(pairs[0, 0]), int(pairs[0, 1])), pairs[1:]
