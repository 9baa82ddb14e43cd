"""Randomizers for a histogram, each calibrated to the least noise that certainly keeps the target."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np

from metricshuffle.accounting.blanket.geometric_pairs import ShuffledGeometric
from metricshuffle.accounting.sums.calibration import Promise
from metricshuffle.declared import Declared
from metricshuffle.errors import InputError, NotCertified
from metricshuffle.privacy.guarantee import Guarantee, Trust, plain
from metricshuffle.privacy.profile import PrivacyProfile, last_certified
from metricshuffle.privacy.target import Target
from metricshuffle.protocols.frequencies import Inversion
from metricshuffle.protocols.histogram import AnyRandomizer, Histogram, shuffled_profile
from metricshuffle.randomizers.bounded_geometric import BoundedGeometric
from metricshuffle.randomizers.hadamard import HadamardResponse
from metricshuffle.randomizers.planar_geometric import PlanarGeometric
from metricshuffle.randomizers.randomized_response import KaryRandomizedResponse
from metricshuffle.randomizers.randomizer import LARGEST_MATRIX, Randomizer
from metricshuffle.spaces import Categories, Grid, Integers

# Local epsilons are found to this much (relative).
CALIBRATION = 1e-3
# A report that gives away this much hides nothing worth shuffling for.
LARGEST_LOCAL_EPSILON = 40.0

Scaled = Callable[[float], Randomizer]
"""A randomizer by its strength: the local epsilon at the target's distance."""


class HistogramCandidate(Declared):
    """A randomizer that keeps the target, what it promises, and what is left if the shuffler colludes."""

    randomizer: AnyRandomizer
    expected_error: float
    """Mean over the values of E|unbiased share - true share|, for people spread evenly."""
    guarantee: Guarantee
    fallback: Guarantee
    gain: str = ""
    """What the shuffler buys, in words."""

    @property
    def kind(self) -> str:
        """The kind of the randomizer."""
        return str(getattr(self.randomizer, "kind", type(self.randomizer).__name__))


def chances(query: Histogram) -> dict[str, Callable[[Target], Scaled]]:
    """The randomizers that fit a domain, by their kind; each from a target to a family by strength."""
    cells, domain = query.cells, query.domain

    def whatever(make: Scaled) -> Callable[[Target], Scaled]:
        return lambda target: make

    fitting: dict[str, Callable[[Target], Scaled]] = {}
    if isinstance(domain, Integers):
        fitting["bounded-geometric"] = lambda target: lambda strength: BoundedGeometric(cells - 1, strength / target.distance)
    if isinstance(domain, Grid):
        fitting["planar-geometric"] = lambda target: (
            lambda strength: PlanarGeometric(domain.width, domain.height, strength / target.distance, domain.cell)
        )
    if cells * cells <= LARGEST_MATRIX:
        fitting["k-ary-randomized-response"] = whatever(lambda strength: KaryRandomizedResponse(cells, strength))
    if 2 * cells * cells <= LARGEST_MATRIX // 4 and not isinstance(domain, Grid | Integers):
        fitting["hadamard-response"] = whatever(lambda strength: HadamardResponse(cells, strength))
    return fitting


def calibrated(
    family: Callable[[Target], Scaled], query: Histogram, target: Target, users: int, honest: int | None, most: float
) -> HistogramCandidate:
    """The strongest certified member of a family among `honest` shuffled reports (or alone if None), up to a strength of `most`."""
    made = family(target)
    metric = isinstance(made(1.0), BoundedGeometric | PlanarGeometric)
    # What treats all values alike must keep the target at the smallest move too.
    allowed = target.epsilon if metric or target.shape == "flat" else target.epsilon * min(1.0, query.step / target.distance)
    # (rates are rounded to 30 bits)
    alone = allowed * (_strength_per_epsilon(made(1.0), target) * (1.0 - 4e-9) if metric else 1.0 - 1e-12)
    if honest is None or target.delta == 0.0 or most <= alone:
        return _candidate(query, target, users, made(min(alone, most)), None, "")
    promise = Promise(allowed, target.delta, target.distance if metric else 1.0, target.shape if metric else "flat")

    def kept(strength: float) -> bool:
        return promise.kept_by(shuffled_profile(made(strength), honest))

    def nearly(strength: float) -> bool:
        profile = shuffled_profile(made(strength), honest)
        if isinstance(profile, ShuffledGeometric):
            return profile.nearly_covers(promise.epsilon, promise.delta, promise.distance, promise.shape)
        return promise.kept_by(profile)

    strength = _strongest(nearly, kept, alone, most)
    if strength <= alone * (1.0 + 1e-3):
        held = plain(_local_epsilon(made(alone), target))
        few = f"Shuffling buys nothing here: {honest:,} honest reports are too few for one of epsilon above {held} to hide among."
        return _candidate(query, target, users, made(alone), None, few)
    chosen = made(strength)
    profile = shuffled_profile(chosen, honest)
    if not promise.kept_by(profile):
        raise NotCertified("the calibrated randomizer could not be verified; please report this as a bug.")
    more, less = (plain(_local_epsilon(made(one), target)) for one in (strength, alone))
    gain = f"Hidden among {honest:,} honest reports, one may have epsilon {more} instead of {less}."
    return _candidate(query, target, users, chosen, (profile, honest), gain)


def _strongest(nearly: Callable[[float], bool], kept: Callable[[float], bool], alone: float, most: float) -> float:
    """The largest strength found that is kept; the cheap and necessary `nearly` steers. `alone` needs no check."""
    passing, failing = alone, min(1.5 * alone, most)
    while failing < most and nearly(failing):
        passing, failing = failing, min(1.5 * failing, most)
    found = failing if nearly(failing) else last_certified(nearly, failing, passing, relative=CALIBRATION)
    less = CALIBRATION
    while found > alone and not kept(found):
        failing, found, less = found, max(alone, found * (1.0 - less)), 2.0 * less
    return last_certified(kept, failing, found, relative=5.0 * CALIBRATION) if less > 4.0 * CALIBRATION else found


def _strength_per_epsilon(randomizer: Randomizer, target: Target) -> float:
    """What strength 1 costs at the worst move within the distance, inverted: 1, or more where cells are too coarse to get there.

    linear: (i + j)/|(i, j)| is largest for a single step, straight or diagonal. flat: the farthest moves.
    """
    profile = shuffled_profile(randomizer, 1)
    if not isinstance(profile, ShuffledGeometric):
        raise InputError("only geometric noise has a metric.")
    if target.shape == "flat":
        return 1.0 / profile.pure(target.distance)
    single = [steps for steps in itertools.product((0, 1), repeat=len(profile.spans)) if any(steps)]
    slopes = [sum(steps) / profile.length(steps) for steps in single if profile.length(steps) <= target.distance * (1.0 + 1e-12)]
    return 1.0 / (profile.rate * max(slopes) * target.distance)


def _local_epsilon(randomizer: Randomizer, target: Target) -> float:
    """What one report gives away at the target's distance (on a grid, at the moves there are within it)."""
    metric = isinstance(randomizer, BoundedGeometric | PlanarGeometric)
    return shuffled_profile(randomizer, 1).pure(target.distance) if metric else randomizer.local_epsilon()


def _candidate(
    query: Histogram, target: Target, users: int, randomizer: Randomizer, shuffled: tuple[PrivacyProfile, int] | None, gain: str
) -> HistogramCandidate:
    inversion = Inversion.of(randomizer)
    variances = inversion.variances(np.full(query.cells, 1.0 / query.cells))
    fallback = Guarantee(
        epsilon=_local_epsilon(randomizer, target), delta=0.0, distance=target.distance, unit=query.unit, shape="flat",
        protects="one person", trust=Trust(trusted="nobody"), bound=randomizer.local_profile().bound, between=query.between,
    )  # fmt: skip
    guarantee = Guarantee(
        epsilon=target.epsilon, delta=0.0 if shuffled is None else target.delta, distance=target.distance, unit=query.unit,
        shape="flat" if isinstance(query.domain, Categories) else target.shape, protects="one person", between=query.between,
        bound="pure" if shuffled is None else shuffled[0].bound,
        trust=Trust(trusted="nobody") if shuffled is None else Trust(trusted="shuffler", honest_reports=shuffled[1]),
    )  # fmt: skip
    error = math.sqrt(2.0 / math.pi) * float(np.mean(np.sqrt(variances / users)))
    return HistogramCandidate(randomizer=randomizer, expected_error=error, guarantee=guarantee, fallback=fallback, gain=gain)
