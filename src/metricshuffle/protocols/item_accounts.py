"""What item-wise reports of users hide, under the earth mover's distance of their items."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from metricshuffle.accounting.items.item_wise import ItemShuffle, ItemWiseProfile
from metricshuffle.accounting.items.moves import moves_of
from metricshuffle.accounting.items.sampled_users import SampledProfile
from metricshuffle.errors import NotCertified, PlanError
from metricshuffle.numerics.rounding import lowered, raised
from metricshuffle.numerics.search import last_certified
from metricshuffle.privacy.guarantee import Guarantee, Trust
from metricshuffle.privacy.profile import PrivacyProfile, PureProfile
from metricshuffle.privacy.target import Target
from metricshuffle.protocols.base import Account
from metricshuffle.queries.user_items import UserQuery
from metricshuffle.randomizers.clustered_response import ClusteredResponse
from metricshuffle.randomizers.randomized_response import KaryRandomizedResponse
from metricshuffle.randomizers.randomizer import Randomizer
from metricshuffle.spaces import Clustered, Discrete, Users

if TYPE_CHECKING:
    from metricshuffle.protocols.frequencies import Frequencies

# Distances added up along a long way are off by far less than this; reports are made by so much quieter.
SAFE_SHARE = 1.0 - 1e-9


def reach_of(people: Users) -> float:
    """The diameter; where it is a sum of many lengths and may have been rounded down, a billionth more."""
    return people.diameter if knows_distances(people) else people.diameter / SAFE_SHARE


def knows_distances(people: Users) -> bool:
    """Whether distances are exact, and the same few for all points: then a randomizer can be accounted by its own laws."""
    return isinstance(people.items_in.metric, Clustered | Discrete)


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
            return SampledProfile(any_randomizer, self.items, reach_of(people))
        if knows_distances(people) and self._measures(people):
            moves = moves_of(self.randomizer, shuffle.diameter)
            own = max(move.rate for move in moves) / shuffle.diameter * (1.0 + 4.0 * 2.0**-53)
            any_randomizer = ItemWiseProfile(own, shuffle)
            if not target.kept_by(any_randomizer):
                return ItemWiseProfile(own, shuffle, moves, "blanket flow")
        return any_randomizer

    def _measures(self, people: Users) -> bool:
        """Whether the randomizer's own distances are those of the points: its laws are accounted for by them."""
        metric, randomizer = people.items_in.metric, self.randomizer
        if isinstance(randomizer, ClusteredResponse) and isinstance(metric, Clustered):
            return (randomizer.clusters, randomizer.size, randomizer.inner) == (metric.clusters, metric.places, metric.inner)
        alike = isinstance(metric, Discrete) or (isinstance(metric, Clustered) and metric.inner == 1.0)
        return alike and isinstance(randomizer, KaryRandomizedResponse)

    def account(self, each: Target, target: Target, honest: int) -> Account:
        profile = self.profile(each, honest)
        return Account(profile, each, "one user's items", target.delta, _argument(profile, each), target.shape)

    def alone(self, target: Target, rounds: int) -> Guarantee:
        """What is left if whoever is trusted colludes: a user's reports, shuffled by herself, at the target's delta."""
        each = target.for_each_of(rounds)
        profile: PrivacyProfile = ItemWiseProfile(self.item_rate, self.shuffle(1, together=False))
        profile = SampledProfile(profile, self.items, reach_of(self.query.people)) if self.drawn else profile
        ceiling, delta = profile.pure(target.distance), each.delta
        # three digits are enough, and every step of the search may take long; the last value that was certified
        covered = partial(_covered, profile, delta, target.distance)
        epsilon = ceiling if delta == 0.0 or math.isinf(ceiling) else last_certified(covered, 0.0, ceiling, relative=1e-3)
        return Guarantee(
            epsilon=raised(epsilon * rounds, 2) if rounds > 1 else epsilon,
            delta=target.delta,
            distance=target.distance,
            unit=self.query.unit,
            shape="flat",
            protects="one user's items",
            trust=Trust(trusted="nobody"),
            bound=profile.bound,
            rounds=rounds,
            between=self.query.between(1.0),
            items=self.query.items,
        )

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
    composed = PureProfile(raised(profile.item_rate * shuffle.items * shuffle.diameter, 8))
    return "composition" if composed.delta(lowered(rate_of(target) * shuffle.diameter, 4), 1.0) <= target.delta else profile.bound


def _covered(profile: PrivacyProfile, delta: float, distance: float, epsilon: float) -> bool:
    return profile.covers_at(epsilon, delta, distance)
