"""Calibration of histograms of users' items: one report per item, shuffled by user or all."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cache, lru_cache, partial

import numpy as np

from metricshuffle.accounting.user_items.item_reports import (
    ItemShuffle,
    ItemWiseProfile,
    calibrate_family,
    calibrate_item_rate,
)
from metricshuffle.accounting.user_items.single_move_bounds import LARGEST_TOTAL
from metricshuffle.errors import ConditionError, NotCertified, argument
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
    WITHOUT_REPLACEMENT,
    Drawn,
    OneItemProfile,
    ScaledPairs,
    drawn_profile,
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
# Item-wise estimates invert a table of one law per point, which is too large for more points.
MAX_ITEM_POINTS = 1024
TRUSTED: tuple[Who, ...] = ("nobody", "shuffler")
ItemRandomizers = Callable[[float], Randomizer]
MAX_FLAT_DRAWS = 32  # by default
SINGLE_ITEM_TOLERANCE = 1e-2  # relative; each evaluation compares all laws


@family
def item_wise(setting: Setting) -> Iterator[Offer]:
    """Offer item reports shuffled by each user alone (by sorting them), and over all users."""
    if isinstance(setting.query, UserHistogram):
        make = item_randomizers(setting.query.people)
        before = list[Candidate]()
        for trusted in TRUSTED:
            yield Offer(
                NAME, None, partial(calibrate_items, setting, setting.query, trusted, make, before)
            )


def calibrate_items(
    setting: Setting,
    query: UserHistogram,
    trusted: Who,
    make: ItemRandomizers,
    before: list[Candidate],
) -> Callable[[], Candidate]:
    """Calibrate the item randomizer of the largest rate that is certified for the target.

    The candidate is appended to `before`, the candidates already made for the same setting. Laws of
    a thousand points take most of a second to check and invert; that runs in compiled code in
    another thread while other offers are made.
    """
    people = query.people
    target = setting.target.for_each_of(setting.rounds)
    drawn = _drawn(setting, people)
    if target.delta == 0.0 and not (drawn and trusted == "nobody"):
        raise ConditionError(NAME, "a delta above 0 (shuffling hides with one only)", "delta = 0")
    if people.size > MAX_ITEM_POINTS:
        raise NotCertified(
            f"the law of the reports is a table; {people.size:,} points are more than "
            f"{MAX_ITEM_POINTS:,}."
        )
    items = setting.drawn_number or people.items
    if setting.draw == "auto":
        items = default_draws(target, reach_of(people))
    if items is None:
        raise NotCertified(
            "it needs a number of items that is the same for everybody; give "
            f"`{argument('items')}`, or let everybody draw `{argument('draw')}`."
        )
    item_rate, bound, randomizer = item_calibration(
        people, target, setting.honest, items, make, together=trusted == "shuffler", drawn=drawn
    )
    protocol = Frequencies(
        name=NAME,
        trusted=trusted,
        randomizer=randomizer,
        items=items,
        drawn=drawn,
        item_rate=item_rate,
    )
    inverted = start_in_thread(partial(Inversion.of, randomizer))
    reports = ItemWiseProfile(
        item_rate, _shuffle(people, setting.honest, items, trusted == "shuffler")
    )
    account = Account(
        drawn_profile(reports, people, without=setting.without_replacement) if drawn else reports,
        target,
        "one user's items",
        setting.target.delta,
        bound,
        setting.target.shape,
    )

    def finished() -> Candidate:
        condition = inverted().condition
        alike = next(
            (
                earlier
                for earlier in before
                if isinstance(earlier.mechanism, Frequencies)
                and earlier.mechanism.randomizer is randomizer
            ),
            None,
        )
        before.append(
            candidate(setting, protocol, account, alike, item_rate=item_rate, condition=condition)
        )
        return before[-1]

    return finished


def _drawn(setting: Setting, people: Users) -> Drawn:
    if setting.without_replacement:
        return WITHOUT_REPLACEMENT
    return setting.draw is not None


def default_draws(target: Target, diameter: float) -> int:
    """Number of items that each user draws where the planner chooses it, a power of two <= 1,024.

    With a delta, it is the smallest for which drawing costs at most 5 % of the rate (`draw_rate`);
    for flat targets at most 32, because calibration takes ten times as long for more draws. Without
    a delta, it is the number S with the largest S x^2, about what S reports are worth, where x is
    the item rate per diameter, x e^x = rate * diameter / S: more draws would only add noise.
    """
    cost = rate_of(target) * diameter
    numbers = [1 << power for power in range(11)]
    if target.delta == 0.0:
        return max(numbers, key=lambda count: count * pure_total(cost / count) ** 2)
    enough = next((count for count in numbers if cost / count <= math.log(1.05)), numbers[-1])
    return min(enough, MAX_FLAT_DRAWS) if target.shape == "flat" else enough


def pure_total(cost: float) -> float:
    """x with x e^x = cost."""
    from scipy.special import lambertw

    return float(lambertw(cost).real)


def item_calibration(
    people: Users,
    target: Target,
    honest: int,
    items: int,
    make: ItemRandomizers,
    *,
    together: bool,
    drawn: Drawn = False,
) -> tuple[float, str, Randomizer]:
    """Largest item rate certified for the target, the bound that certifies it, and the randomizer.

    `make` is the result of `item_randomizers`.
    """
    shuffle = _shuffle(people, honest, items, together)
    if drawn:
        return _sampled_calibration(
            people, target, shuffle, make, without=drawn == WITHOUT_REPLACEMENT
        )
    flat_up_to = target.distance if target.shape == "flat" else None
    if knows_distances(people):
        factor = unscaled(people.items_in.metric)[1]
        own = calibrate_family(
            lambda rate: ScaledPairs(make(rate), factor),
            shuffle,
            rate_of(target),
            target.delta,
            flat_up_to=flat_up_to,
        )
        return own.item_rate, own.bound, make(own.item_rate)
    any_randomizer = calibrate_item_rate(
        shuffle, rate_of(target), target.delta, flat_up_to=flat_up_to
    )
    randomizer = make(any_randomizer.item_rate * SAFE_SHARE)
    if together and has_few_laws(items, randomizer):
        return _single_calibration(
            target, honest, any_randomizer.item_rate, any_randomizer.bound, make
        )
    return any_randomizer.item_rate, any_randomizer.bound, randomizer


def _single_calibration(
    target: Target, honest: int, start: float, bound: str, make: ItemRandomizers
) -> tuple[float, str, Randomizer]:
    """Calibration for one item per user, by the laws of the randomizer itself.

    It starts from `start`, the rate certified for any randomizer, and increases the rate while the
    randomizer's own laws meet the target.
    """

    def quieter(item_rate: float) -> Randomizer:
        return make(item_rate * SAFE_SHARE)

    def likely(item_rate: float) -> bool:
        return target.nearly_kept_by(OneItemProfile.of(quieter(item_rate), honest))

    largest = min(4.0 * start, LARGEST_TOTAL / target.distance)
    if not largest > start or not likely(start * (1.0 + SINGLE_ITEM_TOLERANCE)):
        return start, bound, quieter(start)
    rate = last_certified(
        likely,
        *farthest_certified(likely, start * (1.0 + SINGLE_ITEM_TOLERANCE), largest, step=0.15),
        relative=SINGLE_ITEM_TOLERANCE,
    )
    while rate > start:
        profile = OneItemProfile.of(quieter(rate), honest)
        if target.kept_by(profile):
            return rate, profile.bound, quieter(rate)
        rate *= 1.0 - SINGLE_ITEM_TOLERANCE
    return start, bound, quieter(start)


def _sampled_calibration(
    people: Users, target: Target, shuffle: ItemShuffle, make: ItemRandomizers, *, without: bool
) -> tuple[float, str, Randomizer]:
    """Calibration for drawn items, from the rate that needs neither shuffling nor a delta."""
    reach = reach_of(people)

    def sampled(item_rate: float) -> PrivacyProfile:
        return drawn_profile(ItemWiseProfile(item_rate, shuffle), people, without=without)

    def certified(item_rate: float) -> bool:
        try:
            make(item_rate * SAFE_SHARE)
        except NotCertified:  # no randomizer of this rate
            return False
        return target.kept_by(sampled(item_rate))

    max_rate = LARGEST_TOTAL / reach * (1.0 - 1e-12)
    # For linear targets from the slope at distance 0, else from replacing all drawn items.
    if target.shape == "linear":
        composed = pure_total(rate_of(target) * reach / shuffle.items) / reach * (1.0 - 1e-9)
    else:
        composed = target.epsilon / (shuffle.items * reach) * (1.0 - 1e-15)
    start = min(max_rate, composed)
    rate = last_certified(
        certified, *farthest_certified(certified, start, max_rate, step=1.0), relative=1e-5
    )
    return rate, sampled(rate).bound, make(rate * SAFE_SHARE)


def _shuffle(people: Users, honest: int, items: int, together: bool) -> ItemShuffle:
    return ItemShuffle.of("central" if together else "local", honest, items, reach_of(people))


def item_randomizers(people: Users) -> ItemRandomizers:
    """Return the function from an item rate to the randomizer of one item.

    Randomizers are built on demand; the last one is cached.
    """
    metric, factor = unscaled(people.items_in.metric)

    def in_own_unit(rate: float) -> float:
        return rate if factor == 1.0 else round_down(rate * factor, 8)

    if isinstance(metric, Clustered) and metric.inner < 1.0:
        return lambda rate: ClusteredResponse(
            metric.clusters, metric.places, metric.inner, in_own_unit(rate)
        )
    if knows_distances(people):
        return lambda rate: KaryRandomizedResponse(people.size, in_own_unit(rate))

    @cache
    def distances() -> Matrix:
        """Distances, made symmetric: sums along a tree may differ in the last bit by direction."""
        table = np.minimum(people.distances, people.distances.T)
        return Matrix.known(table) if from_norm(metric) else Matrix(table)

    # The calibrations for both kinds of trust often need the same randomizer, whose law takes
    # seconds for a thousand points.
    return lru_cache(maxsize=1)(lambda rate: PaddedExponential(distances(), rate))
