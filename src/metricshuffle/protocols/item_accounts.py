"""Privacy profiles of item-wise reports of users, by the earth mover's distance of their items."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

import numpy as np

from metricshuffle.accounting.shuffling.blanket_law import BlanketLaw
from metricshuffle.accounting.user_items.item_reports import ItemShuffle, ItemWiseProfile
from metricshuffle.accounting.user_items.single_move_bounds import moves_of
from metricshuffle.accounting.user_items.subsampled_items import SubsampledProfile
from metricshuffle.amplification.best_bound import BestBoundProfile
from metricshuffle.errors import NotCertified, PlanError
from metricshuffle.numerics.certified_search import last_certified
from metricshuffle.numerics.rounding import round_down, round_up
from metricshuffle.numerics.types import Integers64
from metricshuffle.privacy.guarantee import Guarantee
from metricshuffle.privacy.profile import PrivacyProfile, PureProfile, Shape, validate_distance
from metricshuffle.privacy.target import Target
from metricshuffle.protocols.protocol import Account, single_person_guarantee
from metricshuffle.queries.user_queries import UserQuery
from metricshuffle.randomizers.clustered_response import ClusteredResponse
from metricshuffle.randomizers.randomized_response import KaryRandomizedResponse
from metricshuffle.randomizers.randomizer import Randomizer, has_law_of
from metricshuffle.randomness import Randomness
from metricshuffle.spaces import Clustered, Discrete, Metric, Scaled, Users

if TYPE_CHECKING:
    from metricshuffle.protocols.frequencies import Frequencies

Drawn = bool | Literal["without replacement"]
"""Whether items are drawn at random: no, with replacement, or without replacement."""
WITHOUT_REPLACEMENT: Literal["without replacement"] = "without replacement"
# Rates of reports are reduced by this factor, to allow for rounding errors of distances that are
# sums of many lengths; these errors are far smaller.
SAFE_SHARE = 1.0 - 1e-9
# Up to this many points, shuffled reports of single items are accounted by all laws of the
# randomizer; more points take too long.
MAX_LAWS_COMPARED = 16


def unscaled(metric: Metric) -> tuple[Metric, float]:
    """Return the metric without scaling, and the total factor; scaling changes only the unit."""
    if type(metric) is not Scaled:
        return metric, 1.0
    inner, factor = unscaled(metric.metric)
    return inner, factor * metric.factor


def reach_of(people: Users) -> float:
    """The diameter, increased by a billionth if it is a sum of lengths that may be rounded down."""
    return people.diameter if knows_distances(people) else people.diameter / SAFE_SHARE


def knows_distances(people: Users) -> bool:
    """Whether distances are exact and take few values, the same for all points.

    A randomizer can then be accounted by its own laws.
    """
    return isinstance(unscaled(people.items_in.metric)[0], Clustered | Discrete)


@dataclass(frozen=True)
class ScaledPairs:
    """Pairs of a randomizer whose distances are a multiple of those of the points."""

    randomizer: Randomizer
    factor: float

    def pairs(self) -> Iterable[tuple[int, int]]:
        return self.randomizer.pairs()

    def distance(self, a: int, b: int) -> float:
        """Distance rounded down, because less loss is allowed at a smaller distance."""
        own = self.randomizer.distance(a, b)
        return own if self.factor == 1.0 else round_down(own * self.factor, 8)

    def blanket(self, a: int, b: int) -> BlanketLaw:
        return self.randomizer.blanket(a, b)


@dataclass(frozen=True)
class OneItemProfile(PrivacyProfile):
    """Profile of shuffled reports of users with one item each, at the distances of the points.

    The distance of two such users is that of their items.
    """

    shuffled: BestBoundProfile
    apart: tuple[float, ...]
    """Distances of different points, ascending."""
    bound: str = "shuffled single items"

    @classmethod
    def of(cls, randomizer: Randomizer, users: int) -> OneItemProfile:
        """Profile of a randomizer that lists all pairs, with the distances of the points."""
        apart = sorted(
            {
                distance
                for pair in randomizer.pairs()
                if (distance := randomizer.distance(*pair)) > 0.0
            }
        )
        return cls(BestBoundProfile(randomizer, users, apart[-1]), tuple(apart))

    def _far(self, distance: float) -> float:
        """Distance with an allowance for distances of points that were rounded up."""
        return validate_distance(distance) / SAFE_SHARE

    def pure(self, distance: float) -> float:
        return self.shuffled.pure(self._far(distance))

    def delta(self, epsilon: float, distance: float) -> float:
        return self.shuffled.delta(epsilon, self._far(distance))

    def covers(
        self, epsilon: float, delta: float, distance: float, shape: Shape = "linear"
    ) -> bool:
        """Linear: check every distance of two points, nearest first; no other distances occur."""
        if shape == "flat":
            return self.covers_at(epsilon, delta, distance)
        rate = round_down(epsilon / distance * SAFE_SHARE, 8)
        distances = [apart for apart in self.apart if apart <= self._far(distance)]
        return all(self.covers_at(round_down(rate * apart, 4), delta, apart) for apart in distances)

    def nearly_covers(
        self, epsilon: float, delta: float, distance: float, shape: Shape = "linear"
    ) -> bool:
        """Check only the nearest points and the distance itself, which decide in practice."""
        if shape == "flat":
            return self.covers_at(epsilon, delta, distance)
        nearest = self.apart[0]
        ends = ((nearest, round_down(epsilon * nearest / distance, 8)), (distance, epsilon))
        return all(
            self.covers_at(at, delta, apart) for apart, at in ends if apart <= self._far(distance)
        )


def rate_of(target: Target) -> float:
    """Epsilon per unit of earth mover's distance, rounded down."""
    return math.nextafter(target.epsilon / target.distance, 0.0)


@dataclass(frozen=True)
class ItemAccounts:
    """Accounts of reports of `items` items of each user, drawn at random if `drawn`.

    Reports are shuffled with those of all users if `together`, else only with the user's own.
    """

    query: UserQuery
    randomizer: Randomizer
    item_rate: float
    items: int
    drawn: Drawn
    together: bool

    @classmethod
    def of(cls, protocol: Frequencies, query: UserQuery) -> ItemAccounts:
        if protocol.item_rate is None:
            raise PlanError(
                "a task about users' items needs an item_rate, and this one has none; the task "
                "is damaged."
            )
        return cls(
            query,
            protocol.randomizer,
            protocol.item_rate,
            protocol.items,
            protocol.drawn,
            protocol.trusted != "nobody",
        )

    def shuffle(self, users: int, *, together: bool) -> ItemShuffle:
        return ItemShuffle.of(
            "central" if together else "local", users, self.items, reach_of(self.query.people)
        )

    def profile(self, target: Target, users: int) -> PrivacyProfile:
        """Profile by composition or the bound for any randomizer of this item rate.

        Uses the randomizer's own laws if that does not suffice for the target.
        """
        people = self.query.people
        shuffle = self.shuffle(users, together=self.together)
        any_randomizer = ItemWiseProfile(self.item_rate, shuffle)
        if self.drawn:
            return self._subsampled(any_randomizer)
        if knows_distances(people) and self._measures(people):
            moves = moves_of(
                ScaledPairs(self.randomizer, unscaled(people.items_in.metric)[1]), shuffle.diameter
            )
            own = max(move.rate for move in moves) / shuffle.diameter * (1.0 + 4.0 * 2.0**-53)
            any_randomizer = ItemWiseProfile(own, shuffle)
            if not target.kept_by(any_randomizer):
                return ItemWiseProfile(own, shuffle, moves, "blanket flow")
        elif (
            has_few_laws(self.items, self.randomizer)
            and self._same_distances(people)
            and not target.kept_by(any_randomizer)
        ):
            return OneItemProfile.of(self.randomizer, users if self.together else 1)
        return any_randomizer

    def _subsampled(self, item_profile: ItemWiseProfile) -> SubsampledProfile:
        people = self.query.people
        return drawn_profile(item_profile, people, without=self.drawn == WITHOUT_REPLACEMENT)

    def _same_distances(self, people: Users) -> bool:
        """Whether no two points are farther apart for the randomizer than in the space."""
        points = range(self.randomizer.inputs)
        own = np.array([[self.randomizer.distance(a, b) for b in points] for a in points])
        return own.shape == people.distances.shape and bool((own <= people.distances).all())

    def _measures(self, people: Users) -> bool:
        """Whether the randomizer's distances are those of the points up to a factor.

        Its laws can then be accounted by these distances.
        """
        metric = unscaled(people.items_in.metric)[0]
        randomizer = self.randomizer
        if has_law_of(randomizer, ClusteredResponse) and isinstance(metric, Clustered):
            return (randomizer.clusters, randomizer.size, randomizer.inner) == (
                metric.clusters,
                metric.places,
                metric.inner,
            )
        alike = isinstance(metric, Discrete) or (
            isinstance(metric, Clustered) and metric.inner == 1.0
        )
        return alike and has_law_of(randomizer, KaryRandomizedResponse)

    def account(self, each: Target, target: Target, honest: int) -> Account:
        profile = self.profile(each, honest)
        return Account(
            profile, each, "one user's items", target.delta, _argument(profile, each), target.shape
        )

    def alone(self, target: Target, rounds: int) -> Guarantee:
        """Fallback if the trusted party colludes, at the target's delta.

        A user's reports are then shuffled only with each other, by the user.
        """
        each = target.for_each_of(rounds)
        own = ItemWiseProfile(self.item_rate, self.shuffle(1, together=False))
        profile = self._subsampled(own) if self.drawn else own
        if not self.drawn:
            own.prepare(each.delta, target.distance)
        ceiling = profile.pure(target.distance)
        delta = each.delta
        # The last certified value; three digits suffice, and each step of the search may be slow.
        covered = partial(_covered, profile, delta, target.distance)
        epsilon = (
            ceiling
            if delta == 0.0 or math.isinf(ceiling)
            else last_certified(covered, 0.0, ceiling, relative=1e-3)
        )
        over_all = round_up(epsilon * rounds, 2) if rounds > 1 else epsilon
        return single_person_guarantee(
            self.query, target, rounds, over_all, profile.bound, delta=target.delta
        )

    def check_rate(self) -> None:
        """Raise unless every report is item_rate * d private, checked for all pairs of laws."""
        rows = np.asarray(self.randomizer.rows(), dtype=np.float64)
        distances = self.query.people.distances
        if rows.shape[0] != len(distances):
            raise PlanError(
                f"the randomizer has {rows.shape[0]:,} inputs for {len(distances):,} "
                "points; the task is damaged."
            )
        if not self.item_rate * self.query.people.nearest > 1e-6:
            raise NotCertified(
                f"an item rate of {self.item_rate:.3g} is too small to be verified from the "
                "laws of the reports."
            )
        with np.errstate(divide="ignore"):
            logs = np.log(rows)
        for point, row in enumerate(logs):
            gaps = np.abs(logs - row)
            losses = np.max(np.where(np.isnan(gaps), 0.0, gaps), axis=1)
            if not np.all(losses <= self.item_rate * distances[point] * (1.0 + 1e-9) + 1e-12):
                raise NotCertified(
                    f"a report about point {point} gives away more than "
                    f"{self.item_rate:.6g} per unit of distance."
                )


def drawn_profile(
    item_profile: ItemWiseProfile, people: Users, *, without: bool
) -> SubsampledProfile:
    """Profile of reports of drawn items; `without` replacement needs a public number of items."""
    if without and people.items is None:
        raise NotCertified(
            "items are drawn without replacement only where everybody holds the same public "
            "number of items; draw with replacement."
        )
    return SubsampledProfile(
        item_profile,
        item_profile.shuffle.items,
        reach_of(people),
        public_items=people.items if without else None,
    )


def _argument(profile: PrivacyProfile, target: Target) -> str:
    """Name the argument that certifies a guarantee at every distance.

    It is composition if that suffices, as in calibration.
    """
    if not isinstance(profile, ItemWiseProfile):
        return profile.bound
    shuffle = profile.shuffle
    composed = PureProfile(round_up(profile.item_rate * shuffle.items * shuffle.diameter, 8))
    scaled_distance = (
        1.0
        if target.shape == "linear"
        else min(1.0, round_up(target.distance / shuffle.diameter, 2))
    )
    return (
        "composition"
        if composed.delta(
            round_down(rate_of(target) * shuffle.diameter * scaled_distance, 4), scaled_distance
        )
        <= target.delta
        else profile.bound
    )


def has_few_laws(items: int, randomizer: Randomizer) -> bool:
    """Whether items are single and points few enough to compare all laws at once."""
    return items == 1 and randomizer.inputs <= MAX_LAWS_COMPARED


def _covered(profile: PrivacyProfile, delta: float, distance: float, epsilon: float) -> bool:
    return profile.covers(epsilon, delta, distance, "flat")


def drawn_codes(
    codes: Integers64, sizes: Integers64, draws: int, randomness: Randomness
) -> Integers64:
    """Draw `draws` items of each user with replacement; `sizes` are the numbers of their items."""
    starts = np.repeat(np.cumsum(sizes) - sizes, draws)
    picks = np.concatenate([randomness.uniform_residues(draws, int(size)) for size in sizes])
    return np.asarray(codes[starts + picks.astype(np.int64)])
