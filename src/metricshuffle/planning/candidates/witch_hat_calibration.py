"""Calibration of WitchHat reports of real numbers for a sum or mean of least variance."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from metricshuffle.errors import ConditionError, InputError, NotCertified, argument
from metricshuffle.numerics.rounding import format_number
from metricshuffle.planning.candidate import Candidate, candidate
from metricshuffle.planning.candidates.registry import Offer, family
from metricshuffle.planning.setting import Setting
from metricshuffle.privacy.target import Target
from metricshuffle.protocols.frequencies import Frequencies
from metricshuffle.queries.mean_and_sum import NumberQuery
from metricshuffle.randomizers.witch_hat import WitchHat, WitchHatDensity
from metricshuffle.solving.local_metric import LineTarget, local_metrics
from metricshuffle.spaces import Interval

NAME = "witch-hat"
# Values are first rounded to this many steps; the guarantee is verified at every whole number of
# steps within the distance.
VERIFIED_STEPS = 4096
# The solver uses a coarser grid and this many diameters of the local metric. A solution is reduced
# by the shrink factor before it is verified.
COARSE_STEPS = 64
DIAMETERS = 12
SHRINK_FACTOR = 0.04
# Caps on the local epsilon; a cap is tried if the epsilon of the whole range is larger.
LOCAL_EPSILON_CAPS = (29.0, 25.0, 21.0, 17.0, 14.0, 12.0, 10.0, 8.0, 6.0)
# How many times a solution that fails is reduced, at most.
MAX_SHRINKS = 8


@family
def witch_hat(setting: Setting) -> Iterator[Offer]:
    """Offer a WitchHat for real numbers."""
    if isinstance(setting.query, NumberQuery) and isinstance(setting.query.domain, Interval):
        yield Offer(NAME, None, partial(calibrate_hat, setting, setting.query))


def calibrate_hat(setting: Setting, query: NumberQuery) -> Candidate:
    """Calibrate the WitchHat of least variance among the solver's solutions for the target.

    It is verified at every step up to the target's distance.
    """
    low, high = query.ends
    target = setting.target.for_each_of(setting.rounds)
    step = (high - low) / VERIFIED_STEPS
    if target.shape != "linear":
        raise ConditionError(
            "WitchHat", "a linear target (its local metric grows with the distance)", "a flat one"
        )
    if not step <= target.distance <= (high - low) * (1.0 + 1e-12):
        length = f"{format_number(high - low)}, the length of {query.domain}"
        raise InputError(
            f"{argument('distance')} must lie between {format_number(step)} and {length}, "
            f"got {format_number(target.distance)}."
        )
    alone = _alone(target, high - low)
    if setting.trusted != "nobody" and target.delta > 0.0:
        for shuffled in _shuffled(setting, query, alone):
            account = shuffled.account(query, setting.target, setting.honest, setting.rounds)
            if account.kept:
                return candidate(setting, shuffled, account)
    protocol = Frequencies(
        name=NAME, trusted="nobody", step=alone.step, randomizer=alone, readout="total"
    )
    return candidate(setting, protocol)


def _alone(target: Target, length: float) -> WitchHat:
    """WitchHat of least variance that needs no shuffler.

    At distance d its metric is min(cap, rate d). Any cap is valid, so several are tried.
    """
    slope = target.epsilon / target.distance
    caps = (slope * length, *(cap for cap in LOCAL_EPSILON_CAPS if cap < slope * length))
    hats = [
        hat for cap in caps if (hat := _hat(0.5 * length, cap, slope * (1.0 - 1e-9))) is not None
    ]
    if not hats:
        raise NotCertified(
            f"no WitchHat of rate {format_number(slope)} over a range of "
            f"{format_number(length)} has weights that are multiples of 2^-63."
        )
    return min(hats, key=lambda hat: hat.variance(hat.half_width))


def _hat(half_width: float, cap: float, rate: float) -> WitchHat | None:
    """Return the WitchHat, or None if its weights are not multiples of 2^-63."""
    try:
        return WitchHat(half_width, cap, rate, VERIFIED_STEPS // 2)
    except (InputError, NotCertified):
        return None


def _shuffled(setting: Setting, query: NumberQuery, alone: WitchHat) -> Iterator[Frequencies]:
    """WitchHats of smaller variance than the one without a shuffler, the least private first."""
    target = setting.target.for_each_of(setting.rounds)
    width = alone.half_width
    line = LineTarget(
        0.0, float(COARSE_STEPS), target.epsilon, target.distance / (2.0 * width) * COARSE_STEPS
    )
    sizes = []
    for solution in local_metrics(
        line, setting.honest, target.delta, algorithm="1N", grid=DIAMETERS
    ).solutions:
        # At distance d the hat's metric is min(epsilon, rate d): take the largest rate for which
        # the metric is below the solution.
        steps = np.arange(1.0, COARSE_STEPS + 1.0)
        max_epsilon = solution.closed_diameter
        below = solution.closed < max_epsilon
        per_step = (
            float(np.min(solution.closed[below] / steps[below])) if below.any() else max_epsilon
        )
        sizes.append((max_epsilon, per_step * COARSE_STEPS / (2.0 * width) * (1.0 - SHRINK_FACTOR)))
    max_epsilon, rate = min(
        sizes, key=lambda size: WitchHatDensity(width, size[0], 2.0 / size[1]).variance(width)
    )
    for _ in range(MAX_SHRINKS):
        # If the weights cannot represent the whole metric, a smaller cap is also valid.
        hat = next(
            (
                hat
                for cap in (max_epsilon, *LOCAL_EPSILON_CAPS)
                if cap <= max_epsilon and (hat := _hat(width, cap, rate)) is not None
            ),
            None,
        )
        if hat is None or not hat.variance(width) < alone.variance(width) * (1.0 - 1e-6):
            return
        yield Frequencies(
            name=NAME, trusted="shuffler", step=hat.step, randomizer=hat, readout="total"
        )
        rate *= 1.0 - SHRINK_FACTOR
