"""Calibration of histograms from one report per person, for every suitable randomizer."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial

from metricshuffle.accounting.shuffling.geometric_blanket import ShuffledGeometric
from metricshuffle.errors import NotCertified
from metricshuffle.numerics.certified_search import (
    farthest_certified,
    first_certified,
    last_certified,
)
from metricshuffle.numerics.rounding import format_epsilon, round_down
from metricshuffle.planning.candidate import Candidate, candidate
from metricshuffle.planning.candidates.registry import Offer, family
from metricshuffle.planning.setting import Setting
from metricshuffle.privacy.target import Target
from metricshuffle.protocols.frequencies import (
    Frequencies,
    known_randomizers,
    shuffled_profile,
    single_report_profile,
)
from metricshuffle.queries.flows import Flows
from metricshuffle.queries.histogram import Histogram
from metricshuffle.randomizers.randomizer import FittedFamily, Randomizer

# Relative tolerance of the search for a local epsilon.
EPSILON_TOLERANCE = 1e-3
# A report with a larger epsilon hides nothing worth shuffling for.
LARGEST_LOCAL_EPSILON = 40.0


@family
def histograms(setting: Setting) -> Iterator[Offer]:
    """Offer the randomizers that define `fitted` themselves and fit the domain.

    An inherited `fitted` does not count: it may fit where the subclass's own law does not.
    """
    query = setting.query
    if not isinstance(query, Histogram) or (isinstance(query, Flows) and query.by_blocks):
        return  # flows between blocks are read from noisy vectors only
    for kind, randomizer in known_randomizers().items():
        fitted = (
            randomizer.fitted(query.domain, query.cells) if "fitted" in vars(randomizer) else None
        )
        if fitted is not None:
            yield Offer(kind, None, partial(calibrate_randomizer, setting, query, kind, fitted))


def calibrate_randomizer(
    setting: Setting, query: Histogram, kind: str, fitted: FittedFamily
) -> Candidate:
    """Calibrate the strongest member of a family that is certified among the honest reports.

    If nobody is trusted or shuffling gains nothing, it is certified without a shuffler. Strength is
    the local epsilon at the target's distance.
    """
    target = setting.target.for_each_of(setting.rounds)
    honest = None if setting.trusted == "nobody" or target.delta == 0.0 else setting.honest
    max_strength = largest_strength(setting)
    metric = (
        known_randomizers()[kind].distance is not Randomizer.distance
    )  # a property of the class: which members fit is not known yet
    step = 1.0 if metric and not fitted.in_steps else query.step
    # A metric randomizer has the rate strength / distance, in its own steps.
    distance = target.in_steps(step).distance if metric else 1.0

    def protocol(strength: float, trusted: bool) -> Frequencies:
        randomizer = fitted(strength / distance)
        return Frequencies(
            name=kind, trusted="shuffler" if trusted else "nobody", step=step, randomizer=randomizer
        )

    allowed = protocol(1.0, True).promise(query, target).epsilon
    # The factor leaves room for rounding: rates are rounded to 30 bits.
    alone = allowed * (
        _strength_per_epsilon(fitted(1.0 / distance), target.in_steps(step)) * (1.0 - 4e-9)
        if metric
        else 1.0 - 1e-12
    )
    if honest is None or max_strength <= alone:
        return candidate(setting, protocol(min(alone, max_strength), False))
    promise = protocol(1.0, True).promise(query, target)

    def kept(strength: float) -> bool:
        return promise.kept_by(shuffled_profile(fitted(strength / distance), honest))

    def nearly(strength: float) -> bool:
        return promise.nearly_kept_by(shuffled_profile(fitted(strength / distance), honest))

    strength = strongest_member(nearly, kept, alone, max_strength)
    if strength <= alone * (1.0 + 1e-3):
        epsilon_text = format_epsilon(protocol(alone, False).local_epsilon(target))
        few = (
            f"Shuffling buys nothing here: {honest:,} honest reports are too few for one of "
            f"epsilon above {epsilon_text} to hide among."
        )
        return candidate(setting, protocol(alone, False), gain=few)
    chosen = protocol(strength, True)
    account = chosen.account(query, setting.target, honest, setting.rounds)
    if not account.kept:
        raise NotCertified(
            "the calibrated randomizer could not be verified; please report this as a bug."
        )
    more, less = (
        format_epsilon(protocol(member, True).local_epsilon(target)) for member in (strength, alone)
    )
    gain = f"Hidden among {honest:,} honest reports, one may have epsilon {more} instead of {less}."
    return candidate(setting, chosen, account, gain=gain)


def largest_strength(setting: Setting) -> float:
    """Largest local epsilon of a report in each round that the setting allows."""
    cap = setting.max_local_epsilon
    if cap is None:
        return LARGEST_LOCAL_EPSILON
    each = cap if setting.rounds == 1 else round_down(cap / setting.rounds, 8)
    return min(LARGEST_LOCAL_EPSILON, each)


def strongest_member(
    nearly: Callable[[float], bool],
    is_kept: Callable[[float], bool],
    alone: float,
    max_strength: float,
) -> float:
    """Return the largest strength found that is certified; `alone` needs no check.

    The search is guided by `nearly`, a necessary condition that is cheap to check.
    """
    bracket = farthest_certified(nearly, alone, max_strength, step=0.5)
    guess = (
        bracket.passing
        if bracket.passing == max_strength
        else last_certified(nearly, *bracket, relative=EPSILON_TOLERANCE)
    )
    bracket_down = first_certified(
        is_kept, guess, alone, step=-EPSILON_TOLERANCE, growth=2.0, failing=bracket.failing
    )
    if bracket_down.passing == guess:
        return guess
    is_far = (
        guess * (1.0 - 3.0 * EPSILON_TOLERANCE) > bracket_down.passing
    )  # the search went down more than once
    return (
        last_certified(is_kept, *bracket_down, relative=5.0 * EPSILON_TOLERANCE)
        if is_far
        else bracket_down.passing
    )


def _strength_per_epsilon(randomizer: Randomizer, target: Target) -> float:
    """Strength per unit of epsilon at the worst move within the distance: at least 1.

    It exceeds 1 where cells are too coarse for a move of exactly this distance. For linear targets
    the worst of the moves by i and j cells, with the largest (i + j)/|(i, j)|, is a single step,
    straight or diagonal. For flat targets the farthest moves are the worst.
    """
    profile = single_report_profile(randomizer)
    if target.shape == "flat" or not isinstance(profile, ShuffledGeometric):
        return 1.0 / profile.pure(target.distance)
    single = [steps for steps in itertools.product((0, 1), repeat=len(profile.spans)) if any(steps)]
    slopes = [
        sum(steps) / profile.length(steps)
        for steps in single
        if profile.length(steps) <= target.distance * (1.0 + 1e-12)
    ]
    return 1.0 / (profile.rate * max(slopes) * target.distance)
