"""The smallest of all upper bounds on the shuffled reports of a randomizer."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, Protocol

from metricshuffle.accounting.shuffling.blanket_bound import checked_users
from metricshuffle.accounting.shuffling.blanket_law import BlanketLaw
from metricshuffle.accounting.shuffling.clone_bound import ClonePair
from metricshuffle.accounting.shuffling.clone_bound import delta_upper as clones_delta
from metricshuffle.accounting.shuffling.clone_bound import epsilon_upper as clones_epsilon
from metricshuffle.amplification.binary_pairs import BinaryPairs, TwoReportBound
from metricshuffle.amplification.dominance_scan import PairScan
from metricshuffle.amplification.full_law_pairs import BeyondPairs, FullLawBound, ListedPairs
from metricshuffle.amplification.lower_bound import relative_tolerance_for
from metricshuffle.amplification.pair_blanket_bound import BlanketBound, BlanketPairs
from metricshuffle.amplification.pair_cover import (
    DisplacementBound,
    DisplacementLaws,
    blanket_pairs,
    distances_of,
    full_law_pairs,
)
from metricshuffle.amplification.random_task import RandomTask
from metricshuffle.amplification.smallest_bound import (
    WIN_RATIO,
    Bound,
    BoundResult,
    find_smallest_delta,
    find_smallest_epsilon,
)
from metricshuffle.numerics.certified_search import every_block
from metricshuffle.numerics.rounding import never_small
from metricshuffle.privacy.profile import (
    PrivacyProfile,
    Shape,
    checked_delta,
    checked_epsilon,
    validate_distance,
)
from metricshuffle.randomizers.channel import ChannelPair
from metricshuffle.randomizers.randomizer import Randomizer

WIDER = 1.01  # a law that is wider by this factor is worse by more than the rounding errors


class LawSource(Protocol):
    """A source with a local profile and with laws that bound every pair up to a distance."""

    def blankets(self, distance: float = ...) -> list[BlanketLaw]: ...
    def local_profile(self) -> PrivacyProfile: ...


@dataclass(frozen=True)
class CloneBound(Bound):
    """The clone bound, which needs only the local epsilons."""

    pair: ClonePair
    users: int
    blanket_spread: float = math.inf
    """The largest spread of the blanket laws; inf if the clones' spread may be smaller."""
    search_order: ClassVar[int] = 3

    def delta(self, epsilon: float, ceiling: float) -> BoundResult:
        value = clones_delta(self.pair, self.users, epsilon)
        return BoundResult(never_small(value), "clones", "counts")

    def epsilon(self, delta: float, ceiling: float) -> BoundResult:
        value = clones_epsilon(self.pair, self.users, delta)
        return BoundResult(never_small(value), "clones", "counts")

    def loses(self, rival: BoundResult, delta: float) -> bool:
        """Return whether the clone bound exceeds all blanket laws, or delta at the rival's epsilon.

        See `BlanketLaw.clone_pair`.
        """
        if rival.bound == "blanket" and self.pair.spread > WIDER * self.blanket_spread:
            return True
        return clones_delta(self.pair, self.users, rival.value * WIN_RATIO) > delta

    def covers(self, epsilon: float, delta: float) -> bool:
        return clones_delta(self.pair, self.users, epsilon) <= delta


@dataclass(frozen=True)
class BestBoundProfile(PrivacyProfile):
    """The smallest of several upper bounds on one shuffled report each of `users` people.

    * "two-report": exact, if there are two possible reports; no other bound is evaluated then.
    * "beyond-blanket": by the whole laws of the other people's reports.
    * "blanket": by the part that all laws have in common, pair by pair or, where lines and grids
      have too many pairs, displacement by displacement.
    * "clones": by the local epsilons alone.
    * "local": by one report alone, where shuffling does not help.

    With bound = "blanket" or "clones", only that bound and one report alone are evaluated.
    """

    randomizer: LawSource
    users: int
    widest: float
    """The largest distance."""
    bound: str = "best"
    relative: float | None = None
    """Relative tolerance of evaluations; the default depends on the number of users."""
    _laws: dict[float, BlanketPairs | None] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    _others: dict[float, BeyondPairs | None] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
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
        """The exact answer if there are two reports, else None."""
        return (
            None
            if self.bound != "best"
            else BinaryPairs.of(self.randomizer, self.users, self.relative or 0.0)
        )

    @cached_property
    def _local(self) -> PrivacyProfile:
        return self.randomizer.local_profile()

    @property
    def _relative(self) -> float:
        return relative_tolerance_for(self.users) if self.relative is None else self.relative

    def pure(self, distance: float) -> float:
        """Return the pure epsilon of one report, which shuffling never increases."""
        if distance not in self._pures:
            self._pures[distance] = self._local.pure(distance)
        return self._pures[distance]

    @property
    def many_pairs(self) -> bool:
        """Whether an answer evaluates more than a few pairs."""
        return self.exact is None and isinstance(self._pairs_at(self.widest), PairScan)

    def _pairs_at(self, distance: float) -> BlanketPairs | None:
        if distance not in self._laws:
            source = self.randomizer
            if self.bound == "clones":
                self._laws[distance] = None
            else:
                self._laws[distance] = (
                    blanket_pairs(source, distance)
                    if isinstance(source, Randomizer)
                    else source.blankets(distance)
                )
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
        return (
            DisplacementLaws.of(self.randomizer, self.users)
            if self.bound == "best" and self._pairs_at(self.widest) is None
            else None
        )

    @cached_property
    def _shifts(self) -> DisplacementLaws | None:
        """One law per displacement, for lines and grids: faster and looser than pair by pair."""
        displacements = (
            DisplacementLaws.of(self.randomizer, self.users) if self.bound == "best" else None
        )
        # These laws do not cover real numbers between grid points.
        return None if displacements is not None and displacements.step else displacements

    def _clone_pair(self, distance: float) -> ClonePair | None:
        if self.bound == "blanket":
            return None
        local = self.pure(distance)
        max_local = self.pure(self.widest)
        if isinstance(self.randomizer, ChannelPair):  # the others may hold any input
            max_local = max(max_local, self.randomizer.local_epsilon())
        return ClonePair(local, max_local, max_local) if max_local < math.inf else None

    def _bounds_at(self, distance: float, narrow_spread: float = math.inf) -> Iterator[Bound]:
        """Yield the bounds up to a distance, cheap ones first; each is created when needed.

        `narrow_spread` is the result of `_narrow_spread`, if that result may save a search.
        """
        if self.exact is not None:
            yield TwoReportBound(self.exact, distance)
            return
        users = self.users
        relative = self._relative
        narrow = narrow_spread < math.inf
        if (pair := self._clone_pair(distance)) is not None:
            yield CloneBound(pair, users, narrow_spread)
        if (full_laws := self._full_law_pairs_at(distance)) is not None:
            yield FullLawBound(full_laws, users, relative, narrow)
        if (blankets := self._pairs_at(distance)) is not None:
            yield BlanketBound(blankets, self.randomizer, users, relative, narrow)
        elif self._displaced is not None:
            yield DisplacementBound(self._displaced, distance)

    def _narrow_spread(self, distance: float) -> float:
        """Return the spread of the widest blanket if a worst data set is as wide, else inf.

        If a data set is as wide, the bound beyond the blanket can hardly be smaller than the
        blanket bound, and one evaluation usually shows that it is not smaller.
        """
        if self.exact is not None:
            return math.inf
        blankets = self._pairs_at(distance)
        full_laws = self._full_law_pairs_at(distance)
        if not blankets or not isinstance(blankets, list) or not isinstance(full_laws, ListedPairs):
            return math.inf
        spread = max(law.spread for law in blankets)
        return spread if full_laws.spread >= spread * (1.0 - 1e-9) else math.inf

    def delta(self, epsilon: float, distance: float) -> float:
        return self.delta_winner(epsilon, distance).value

    def epsilon(self, delta: float, distance: float) -> float:
        return self.epsilon_winner(delta, distance).value

    def delta_winner(self, epsilon: float, distance: float) -> BoundResult:
        """Return the smallest certified delta with the bound and evaluator that gave it."""
        epsilon = checked_epsilon(epsilon)
        distance = min(validate_distance(distance), self.widest)
        if distance == 0.0 or epsilon >= self.pure(distance):
            return BoundResult(0.0, "local", "local")
        local = BoundResult(1.0, "local", "local")
        return find_smallest_delta(self._bounds_at(distance), epsilon, local)

    def epsilon_winner(self, delta: float, distance: float) -> BoundResult:
        """Return the smallest certified epsilon with the bound and evaluator that gave it."""
        delta = checked_delta(delta)
        distance = min(validate_distance(distance), self.widest)
        local = BoundResult(self.pure(distance), "local", "local")
        if delta == 0.0 or local.value == 0.0:
            return local
        bounds = self._bounds_at(distance, self._narrow_spread(distance))
        return find_smallest_epsilon(bounds, delta, local)

    def covers(
        self, epsilon: float, delta: float, distance: float, shape: Shape = "linear"
    ) -> bool:
        """Return True only if the guarantee is certified for every pair up to the distance.

        The certifying bound may differ between distances.

        Statement: let e(d) = epsilon d/distance. A linear guarantee holds if delta(e(d), d) <=
        delta for every d <= distance at which there are two inputs. The function delta(e, d)
        decreases as e grows and covers all pairs up to d, so one evaluation delta(e(a), b) <= delta
        is enough for every d in a..b.
        Conditions: a linear guarantee needs inputs that can be listed; real numbers between grid
        points are refused.
        Numerics: lines and grids are first covered displacement by displacement, which is fast;
        each e(a) is rounded down.
        """
        epsilon = checked_epsilon(epsilon)
        delta = checked_delta(delta)
        reach = validate_distance(distance)
        if (shifts := self._shifts) is not None:
            covered = shifts.profile.covers(epsilon, delta, reach, shape)
            # At delta 0 the profile of one report is exact on lines and grids.
            if covered or delta == 0.0:
                return covered
        if shape == "flat":
            return self.covers_at(epsilon, delta, reach)
        apart = distances_of(self.randomizer, reach)

        def passes(first: int, last: int) -> bool:
            return self.covers_at(
                epsilon * min(1.0, apart[first] / reach) * (1.0 - 6e-16), delta, apart[last]
            )

        return every_block(len(apart), passes)

    def nearly_covers(
        self, epsilon: float, delta: float, distance: float, shape: Shape = "linear"
    ) -> bool:
        """Check a condition that is necessary for `covers` up to rounding, quickly.

        It uses the pairs that look worst within the distance and, if linear, at the smallest
        distances.
        """
        epsilon = checked_epsilon(epsilon)
        delta = checked_delta(delta)
        reach = validate_distance(distance)
        if delta == 0.0:
            return self.covers(epsilon, delta, reach, shape)
        if (shifts := self._shifts) is not None and shifts.profile.nearly_covers(
            epsilon, delta, reach, shape
        ):
            return True
        # On a grid the two smallest distances are one step and one diagonal step.
        nearest = distances_of(self.randomizer, reach)[:2] if shape == "linear" else []
        looks = [
            (epsilon * min(1.0, near_distance / reach), near_distance) for near_distance in nearest
        ] + [(epsilon, reach)]
        return all(self._nearly_at(total, delta, min(at, self.widest)) for total, at in looks)

    def decisive(self, epsilon: float, distance: float, shape: Shape = "linear") -> str:
        """Name the bound that decides at the largest distance where one report alone does not."""
        reach = validate_distance(distance)
        if reach == 0.0:
            return "local"
        for apart in reversed(
            distances_of(self.randomizer, reach) if shape == "linear" else [reach]
        ):
            bound = self.delta_winner(epsilon * min(1.0, apart / reach), apart).bound
            if bound != "local":
                return bound
        return "local"

    def covers_at(self, epsilon: float, delta: float, distance: float) -> bool:
        """Return True only if a bound certifies (epsilon, delta) for all pairs up to the distance.

        Cheap bounds are evaluated first.
        """
        epsilon = checked_epsilon(epsilon)
        distance = min(validate_distance(distance), self.widest)
        if delta == 0.0 or distance == 0.0:
            return super().covers_at(epsilon, delta, distance)
        if epsilon >= self.pure(distance):
            return True
        return any(bound.covers(epsilon, delta) for bound in self._bounds_at(distance))

    def _nearly_at(self, epsilon: float, delta: float, distance: float) -> bool:
        """Check a necessary condition of `covers_at`: each bound at its worst-looking pair."""
        if epsilon >= self.pure(distance):
            return True
        listed = False
        for bound in self._bounds_at(distance):
            listed |= isinstance(bound, FullLawBound) and isinstance(bound.pairs, ListedPairs)
            # With few pairs, `covers` is as quick as this check.
            passes = bound.covers if listed else bound.nearly_covers
            if passes(epsilon, delta):
                return True
        return False
