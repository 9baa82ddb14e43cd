"""Histograms of users' items from a report of every item: everybody's shuffled together, or each user's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, lru_cache, partial

import numpy as np

from metricshuffle.accounting.user_items.item_reports import ItemShuffle, ItemWiseProfile, calibrate_family, calibrate_item_rate
from metricshuffle.accounting.user_items.single_move_bounds import LARGEST_TOTAL
from metricshuffle.accounting.user_items.subsampled_items import SubsampledProfile
from metricshuffle.errors import ConditionError, NotCertified
from metricshuffle.estimation.inversion import Inversion
from metricshuffle.numerics.certified_search import farthest_certified, last_certified
from metricshuffle.numerics.rounding import round_down
from metricshuffle.numerics.threads import start_in_thread
from metricshuffle.planning.candidate import Candidate, candidate
from metricshuffle.planning.candidates.registry import Offer, family
from metricshuffle.planning.setting import Setting
from metricshuffle.privacy.guarantee import Who
from metricshuffle.privacy.profile import PrivacyProfile
from metricshuffle.privacy.target import Target
from metricshuffle.protocols.frequencies import Frequencies
from metricshuffle.protocols.item_accounts import (
    SAFE_SHARE,
    OneItemProfile,
    ScaledPairs,
    has_few_laws,
    knows_distances,
    rate_of,
    reach_of,
    unscaled,
)
from metricshuffle.protocols.protocol import Account
from metricshuffle.queries.user_queries import UserHistogram
from metricshuffle.randomizers.clustered_response import ClusteredResponse
from metricshuffle.randomizers.exponential_mechanism import PaddedExponential
from metricshuffle.randomizers.randomized_response import KaryRandomizedResponse
from metricshuffle.randomizers.randomizer import Randomizer
from metricshuffle.spaces import Clustered, Matrix, Users
from metricshuffle.spaces.metrics import from_norm

NAME = "item-wise"
# Item-wise reports carry the law of every point; more points make a table too large to invert.
MAX_ITEM_POINTS = 1024
TRUSTED: tuple[Who, ...] = ("nobody", "shuffler")
ItemRandomizers = Callable[[float], Randomizer]
SINGLE_ITEM_TOLERANCE = 1e-2  # relative bracket where every look takes all laws of the randomizer


@family
def item_wise(setting: Setting) -> Iterator[Offer]:
    """With each user's own reports shuffled (she sorts them before sending), and with everybody's."""
    if isinstance(setting.query, UserHistogram):
        make, before = item_randomizers(setting.query.people), list[Candidate]()
        for trusted in TRUSTED:
            yield Offer(NAME, None, partial(calibrate_items, setting, setting.query, trusted, make, before))


def calibrate_items(
    setting: Setting, query: UserHistogram, trusted: Who, make: ItemRandomizers, before: list[Candidate]
) -> Callable[[], Candidate]:
    """The item randomizer of the largest rate that certainly keeps the target; added to those made `before` for the same setting.

    Laws of a thousand points take most of a second to check and invert, in compiled code beside which other offers are made.
    """
    people, target = query.people, setting.target.for_each_of(setting.rounds)
    items = people.items or setting.samples
    if target.delta == 0.0:
        raise ConditionError(NAME, "a delta above 0 (shuffling hides with one only)", "delta = 0")
    if people.size > MAX_ITEM_POINTS:
        raise NotCertified(f"the law of the reports is a table; {people.size:,} points are more than {MAX_ITEM_POINTS:,}.")
    if items is None:
        raise NotCertified("it needs a number of items that is the same for everybody; give `items`, or let everybody draw `samples`.")
    if people.items is None and target.shape == "linear":
        raise NotCertified("drawing samples hides all moves up to a distance alike, so it needs a target of shape 'flat'.")
    item_rate, bound, randomizer = item_calibration(people, target, setting.honest, items, make, together=trusted == "shuffler")
    protocol = Frequencies(name=NAME, trusted=trusted, randomizer=randomizer, items=items, drawn=people.items is None, item_rate=item_rate)
    inverted = start_in_thread(partial(Inversion.of, randomizer))
    account = Account(ItemWiseProfile(item_rate, _shuffle(people, setting.honest, items, trusted == "shuffler")), target,
                      "one user's items", setting.target.delta, bound, setting.target.shape)  # fmt: skip

    def finished() -> Candidate:
        condition = inverted().condition
        alike = next(
            (earlier for earlier in before if isinstance(earlier.mechanism, Frequencies) and earlier.mechanism.randomizer is randomizer),
            None,
        )
        before.append(candidate(setting, protocol, account, alike, item_rate=item_rate, condition=condition))
        return before[-1]

    return finished


def item_calibration(
    people: Users, target: Target, honest: int, items: int, make: ItemRandomizers, *, together: bool
) -> tuple[float, str, Randomizer]:
    """The largest item rate that certainly keeps the target, the bound behind it, and the randomizer; `make` is `item_randomizers`."""
    shuffle = _shuffle(people, honest, items, together)
    if people.items is None:
        return _sampled_calibration(people, target, shuffle, make)
    flat_up_to = target.distance if target.shape == "flat" else None
    if knows_distances(people):
        factor = unscaled(people.items_in.metric)[1]
        own = calibrate_family(
            lambda rate: ScaledPairs(make(rate), factor), shuffle, rate_of(target), target.delta, flat_up_to=flat_up_to
        )  # fmt: skip
        return own.item_rate, own.bound, make(own.item_rate)
    any_randomizer = calibrate_item_rate(shuffle, rate_of(target), target.delta, flat_up_to=flat_up_to)
    randomizer = make(any_randomizer.item_rate * SAFE_SHARE)
    if together and has_few_laws(items, randomizer):
        return _single_calibration(target, honest, any_randomizer.item_rate, any_randomizer.bound, make)
    return any_randomizer.item_rate, any_randomizer.bound, randomizer


def _single_calibration(target: Target, honest: int, start: float, bound: str, make: ItemRandomizers) -> tuple[float, str, Randomizer]:
    """One item each: from the rate that any randomizer may have on, as long as the randomizer's own laws keep the target."""

    def quieter(item_rate: float) -> Randomizer:
        return make(item_rate * SAFE_SHARE)

    def likely(item_rate: float) -> bool:
        return target.nearly_kept_by(OneItemProfile.of(quieter(item_rate), honest))

    largest = min(4.0 * start, LARGEST_TOTAL / target.distance)
    if not largest > start or not likely(start * (1.0 + SINGLE_ITEM_TOLERANCE)):
        return start, bound, quieter(start)
    rate = last_certified(
        likely, *farthest_certified(likely, start * (1.0 + SINGLE_ITEM_TOLERANCE), largest, step=0.15), relative=SINGLE_ITEM_TOLERANCE
    )
    while rate > start:
        profile = OneItemProfile.of(quieter(rate), honest)
        if target.kept_by(profile):
            return rate, profile.bound, quieter(rate)
        rate *= 1.0 - SINGLE_ITEM_TOLERANCE
    return start, bound, quieter(start)


def _sampled_calibration(people: Users, target: Target, shuffle: ItemShuffle, make: ItemRandomizers) -> tuple[float, str, Randomizer]:
    reach = reach_of(people)

    def sampled(item_rate: float) -> PrivacyProfile:
        return SubsampledProfile(ItemWiseProfile(item_rate, shuffle), shuffle.items, reach)

    def certified(item_rate: float) -> bool:
        try:
            make(item_rate * SAFE_SHARE)
        except NotCertified:  # there is no such randomizer
            return False
        return sampled(item_rate).covers_at(target.epsilon, target.delta, target.distance)

    max_rate = LARGEST_TOTAL / reach * (1.0 - 1e-12)
    start = min(max_rate, target.epsilon / (shuffle.items * reach) * (1.0 - 1e-15))  # a full replacement of the samples, composed
    rate = last_certified(certified, *farthest_certified(certified, start, max_rate, step=1.0), relative=1e-5)
    return rate, sampled(rate).bound, make(rate * SAFE_SHARE)


def _shuffle(people: Users, honest: int, items: int, together: bool) -> ItemShuffle:
    return ItemShuffle.of("central" if together else "local", honest, items, reach_of(people))


def item_randomizers(people: Users) -> ItemRandomizers:
    """From an item rate to the randomizer of one item; nothing is made before it is asked for, and the same rate is the same randomizer."""
    metric, factor = unscaled(people.items_in.metric)

    def in_own_unit(rate: float) -> float:
        return rate if factor == 1.0 else round_down(rate * factor, 8)

    if isinstance(metric, Clustered) and metric.inner < 1.0:
        return lambda rate: ClusteredResponse(metric.clusters, metric.places, metric.inner, in_own_unit(rate))
    if knows_distances(people):
        return lambda rate: KaryRandomizedResponse(people.size, in_own_unit(rate))

    @cache
    def distances() -> Matrix:
        """Sums along a tree may differ by their last bit in the two directions."""
        table = np.minimum(people.distances, people.distances.T)
        return Matrix.known(table) if from_norm(metric) else Matrix(table)

    # Where composition is best, whoever is trusted, it is the same randomizer, and its law takes seconds for a thousand points.
    return lru_cache(maxsize=1)(lambda rate: PaddedExponential(distances(), rate))
