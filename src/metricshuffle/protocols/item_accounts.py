"""What item-wise reports of users hide, under the earth mover's distance of their items."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from metricshuffle.accounting.shuffling.blanket_law import BlanketLaw
from metricshuffle.accounting.user_items.item_reports import ItemShuffle, ItemWiseProfile
from metricshuffle.accounting.user_items.single_move_bounds import moves_of
from metricshuffle.accounting.user_items.subsampled_items import SubsampledProfile
from metricshuffle.amplification.best_bound import BestBoundProfile
from metricshuffle.errors import NotCertified, PlanError
from metricshuffle.numerics.certified_search import last_certified
from metricshuffle.numerics.rounding import round_down, round_up
from metricshuffle.privacy.guarantee import Guarantee
from metricshuffle.privacy.profile import PrivacyProfile, PureProfile, Shape, validate_distance
from metricshuffle.privacy.target import Target
from metricshuffle.protocols.protocol import Account, single_person_guarantee
from metricshuffle.queries.user_queries import UserQuery
from metricshuffle.randomizers.clustered_response import ClusteredResponse
from metricshuffle.randomizers.randomized_response import KaryRandomizedResponse
from metricshuffle.randomizers.randomizer import Randomizer, has_law_of
from metricshuffle.spaces import Clustered, Discrete, Metric, Scaled, Users

if TYPE_CHECKING:
    from metricshuffle.protocols.frequencies import Frequencies

# Distances added up along a long way are off by far less than this; reports are made by so much quieter.
SAFE_SHARE = 1.0 - 1e-9
# Up to so many points the shuffled reports of single items are accounted for by all laws of the randomizer; beyond, it takes too long.
MAX_LAWS_COMPARED = 16


def unscaled(metric: Metric) -> tuple[Metric, float]:
    """The metric that was scaled, and by how much in all; scaling changes the unit and nothing else."""
    if type(metric) is not Scaled:
        return metric, 1.0
    inner, factor = unscaled(metric.metric)
    return inner, factor * metric.factor


def reach_of(people: Users) -> float:
    """The diameter; where it is a sum of many lengths and may have been rounded down, a billionth more."""
    return people.diameter if knows_distances(people) else people.diameter / SAFE_SHARE


def knows_distances(people: Users) -> bool:
    """Whether distances are exact, and the same few for all points: then a randomizer can be accounted by its own laws."""
    return isinstance(unscaled(people.items_in.metric)[0], Clustered | Discrete)


@dataclass(frozen=True)
class ScaledPairs:
    """The pairs of a randomizer whose distances are those of the points but for a factor."""

    randomizer: Randomizer
    factor: float

    def pairs(self) -> Iterable[tuple[int, int]]:
        return self.randomizer.pairs()

    def distance(self, a: int, b: int) -> float:
        """Rounded down: at a smaller distance less may be given away."""
        own = self.randomizer.distance(a, b)
        return own if self.factor == 1.0 else round_down(own * self.factor, 8)

    def blanket(self, a: int, b: int) -> BlanketLaw:
        return self.randomizer.blanket(a, b)


@dataclass(frozen=True)
class OneItemProfile(PrivacyProfile):
    """Users with one item each are as far apart as these: the ordinary account of shuffled reports, at the distances the points have."""

    shuffled: BestBoundProfile
    apart: tuple[float, ...]
    """The distances of different points, ascending."""
    bound: str = "shuffled single items"

    @classmethod
    def of(cls, randomizer: Randomizer, users: int) -> OneItemProfile:
        """Of a randomizer that lists all pairs, with the distances of the points."""
        apart = sorted({distance for pair in randomizer.pairs() if (distance := randomizer.distance(*pair)) > 0.0})
        return cls(BestBoundProfile(randomizer, users, apart[-1]), tuple(apart))

    def _far(self, distance: float) -> float:
        """Points that may be that near: their distances may have been rounded up."""
        return validate_distance(distance) / SAFE_SHARE

    def pure(self, distance: float) -> float:
        return self.shuffled.pure(self._far(distance))

    def delta(self, epsilon: float, distance: float) -> float:
        return self.shuffled.delta(epsilon, self._far(distance))

    def covers(self, epsilon: float, delta: float, distance: float, shape: Shape = "linear") -> bool:
        """Linear: at every distance of two points, the nearest first; none is told apart closer than they are."""
        if shape == "flat":
            return self.covers_at(epsilon, delta, distance)
        rate = round_down(epsilon / distance * SAFE_SHARE, 8)
        distances = [apart for apart in self.apart if apart <= self._far(distance)]
        return all(self.covers_at(round_down(rate * apart, 4), delta, apart) for apart in distances)

    def nearly_covers(self, epsilon: float, delta: float, distance: float, shape: Shape = "linear") -> bool:
        """At the nearest points and at the distance itself, which decide in practice."""
        if shape == "flat":
            return self.covers_at(epsilon, delta, distance)
        nearest = self.apart[0]
        ends = ((nearest, round_down(epsilon * nearest / distance, 8)), (distance, epsilon))
        return all(self.covers_at(at, delta, apart) for apart, at in ends if apart <= self._far(distance))


def rate_of(target: Target) -> float:
    """Epsilon per unit of earth mover's distance, rounded down."""
    return math.nextafter(target.epsilon / target.distance, 0.0)


@dataclass(frozen=True)
class ItemAccounts:
    """Reports of `items` items of each user, everybody's shuffled together or only her own; drawn with replacement if `drawn`."""

    query: UserQuery
    randomizer: Randomizer
    item_rate: float
    items: int
    drawn: bool
    together: bool

    @classmethod
    def of(cls, protocol: Frequencies, query: UserQuery) -> ItemAccounts:
        if protocol.item_rate is None:
            raise PlanError("a task about users' items says how private a report of one item is; this one does not, so it is damaged.")
        return cls(query, protocol.randomizer, protocol.item_rate, protocol.items, protocol.drawn, protocol.trusted != "nobody")

    def shuffle(self, users: int, *, together: bool) -> ItemShuffle:
        return ItemShuffle.of("central" if together else "local", users, self.items, reach_of(self.query.people))

    def profile(self, target: Target, users: int) -> PrivacyProfile:
        """By composition or the bound for any randomizer of that item rate; by the randomizer's own laws where that is not enough."""
        people, shuffle = self.query.people, self.shuffle(users, together=self.together)
        any_randomizer = ItemWiseProfile(self.item_rate, shuffle)
        if self.drawn:
            return SubsampledProfile(any_randomizer, self.items, reach_of(people))
        if knows_distances(people) and self._measures(people):
            moves = moves_of(ScaledPairs(self.randomizer, unscaled(people.items_in.metric)[1]), shuffle.diameter)
            own = max(move.rate for move in moves) / shuffle.diameter * (1.0 + 4.0 * 2.0**-53)
            any_randomizer = ItemWiseProfile(own, shuffle)
            if not target.kept_by(any_randomizer):
                return ItemWiseProfile(own, shuffle, moves, "blanket flow")
        elif has_few_laws(self.items, self.randomizer) and self._same_distances(people) and not target.kept_by(any_randomizer):
            return OneItemProfile.of(self.randomizer, users if self.together else 1)
        return any_randomizer

    def _same_distances(self, people: Users) -> bool:
        """Whether no two points are farther apart for the randomizer than they are."""
        points = range(self.randomizer.inputs)
        own = np.array([[self.randomizer.distance(a, b) for b in points] for a in points])
        return own.shape == people.distances.shape and bool((own <= people.distances).all())

    def _measures(self, people: Users) -> bool:
        """Whether the randomizer's own distances are those of the points, but for a factor: its laws are accounted for by them."""
        metric, randomizer = unscaled(people.items_in.metric)[0], self.randomizer
        if has_law_of(randomizer, ClusteredResponse) and isinstance(metric, Clustered):
            return (randomizer.clusters, randomizer.size, randomizer.inner) == (metric.clusters, metric.places, metric.inner)
        alike = isinstance(metric, Discrete) or (isinstance(metric, Clustered) and metric.inner == 1.0)
        return alike and has_law_of(randomizer, KaryRandomizedResponse)

    def account(self, each: Target, target: Target, honest: int) -> Account:
        profile = self.profile(each, honest)
        return Account(profile, each, "one user's items", target.delta, _argument(profile, each), target.shape)

    def alone(self, target: Target, rounds: int) -> Guarantee:
        """What is left if whoever is trusted colludes: a user's reports, shuffled by herself, at the target's delta."""
        each = target.for_each_of(rounds)
        own = ItemWiseProfile(self.item_rate, self.shuffle(1, together=False))
        profile = SubsampledProfile(own, self.items, reach_of(self.query.people)) if self.drawn else own
        if not self.drawn:
            own.prepare(each.delta, target.distance)
        ceiling, delta = profile.pure(target.distance), each.delta
        # three digits are enough, and every step of the search may take long; the last value that was certified
        covered = partial(_covered, profile, delta, target.distance)
        epsilon = ceiling if delta == 0.0 or math.isinf(ceiling) else last_certified(covered, 0.0, ceiling, relative=1e-3)
        over_all = round_up(epsilon * rounds, 2) if rounds > 1 else epsilon
        return single_person_guarantee(self.query, target, rounds, over_all, profile.bound, delta=target.delta)

    def check_rate(self) -> None:
        """Raise unless every report is item_rate * d private, pair by pair from the laws themselves."""
        rows = np.asarray(self.randomizer.rows(), dtype=np.float64)
        distances = self.query.people.distances
        if rows.shape[0] != len(distances):
            raise PlanError(f"the randomizer has {rows.shape[0]:,} inputs for {len(distances):,} points; the task is damaged.")
        if not self.item_rate * self.query.people.nearest > 1e-6:
            raise NotCertified(f"an item rate of {self.item_rate:.3g} is too small to be told from the laws of the reports.")
        with np.errstate(divide="ignore"):
            logs = np.log(rows)
        for point, row in enumerate(logs):
            gaps = np.abs(logs - row)
            losses = np.max(np.where(np.isnan(gaps), 0.0, gaps), axis=1)
            if not np.all(losses <= self.item_rate * distances[point] * (1.0 + 1e-9) + 1e-12):
                raise NotCertified(f"a report about point {point} gives away more than {self.item_rate:.6g} per unit of distance.")


def _argument(profile: PrivacyProfile, target: Target) -> str:
    """What certifies a promise at every distance: composition where that is enough, as a calibration calls it."""
    if not isinstance(profile, ItemWiseProfile):
        return profile.bound
    shuffle = profile.shuffle
    composed = PureProfile(round_up(profile.item_rate * shuffle.items * shuffle.diameter, 8))
    scaled_distance = 1.0 if target.shape == "linear" else min(1.0, round_up(target.distance / shuffle.diameter, 2))
    return (
        "composition"
        if composed.delta(round_down(rate_of(target) * shuffle.diameter * scaled_distance, 4), scaled_distance) <= target.delta
        else profile.bound
    )


def has_few_laws(items: int, randomizer: Randomizer) -> bool:
    """Whether single items are few enough points to look at all laws at once."""
    return items == 1 and randomizer.inputs <= MAX_LAWS_COMPARED


def _covered(profile: PrivacyProfile, delta: float, distance: float, epsilon: float) -> bool:
    return profile.covers(epsilon, delta, distance, "flat")
