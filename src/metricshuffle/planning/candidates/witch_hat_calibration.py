"""The sum or mean of real numbers from one shuffled WitchHat report each: target -> local metrics -> the hat of least variance."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from metricshuffle.errors import ConditionError, InputError, NotCertified
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
# Values are rounded to so many steps first; the promise is verified at every whole number of them within the distance.
VERIFIED_STEPS = 4096
# The solver looks at fewer, and at so many diameters of the local metric; a solution is made so much smaller before it is verified.
COARSE_STEPS, DIAMETERS, SHRINK_FACTOR = 64, 12, 0.04
# Largest local epsilons that are tried where the whole range would take more.
LOCAL_EPSILON_CAPS = (29.0, 25.0, 21.0, 17.0, 14.0, 12.0, 10.0, 8.0, 6.0)
# How often a solution that does not pass is made smaller.
MAX_SHRINKS = 8


@family
def witch_hat(setting: Setting) -> Iterator[Offer]:
    """For real numbers."""
    if isinstance(setting.query, NumberQuery) and isinstance(setting.query.domain, Interval):
        yield Offer(NAME, None, partial(calibrate_hat, setting, setting.query))


def calibrate_hat(setting: Setting, query: NumberQuery) -> Candidate:
    """The WitchHat of least variance among those that the solver finds for the target, verified at every step up to its distance."""
    low, high = query.ends
    target = setting.target.for_each_of(setting.rounds)
    step = (high - low) / VERIFIED_STEPS
    if target.shape != "linear":
        raise ConditionError("WitchHat", "a linear target (its local metric grows with the distance)", "a flat one")
    if not step <= target.distance <= (high - low) * (1.0 + 1e-12):
        length = f"{format_number(high - low)}, the length of {query.domain}"
        raise InputError(f"distance must lie between {format_number(step)} and {length}, got {format_number(target.distance)}.")
    alone = _alone(target, high - low)
    if setting.trusted != "nobody" and target.delta > 0.0:
        for shuffled in _shuffled(setting, query, alone):
            account = shuffled.account(query, setting.target, setting.honest, setting.rounds)
            if account.kept:
                return candidate(setting, shuffled, account)
    protocol = Frequencies(name=NAME, trusted="nobody", step=alone.step, randomizer=alone, readout="total")
    return candidate(setting, protocol)


def _alone(target: Target, length: float) -> WitchHat:
    """The hat of least variance that needs no shuffler: its metric min(cap, rate d) may be cut off anywhere, so caps are tried."""
    slope = target.epsilon / target.distance
    caps = (slope * length, *(cap for cap in LOCAL_EPSILON_CAPS if cap < slope * length))
    hats = [hat for cap in caps if (hat := _hat(0.5 * length, cap, slope * (1.0 - 1e-9))) is not None]
    if not hats:
        raise NotCertified(
            f"no WitchHat of rate {format_number(slope)} over a range of {format_number(length)} has weights that are multiples of 2^-63."
        )
    return min(hats, key=lambda hat: hat.variance(hat.half_width))


def _hat(half_width: float, cap: float, rate: float) -> WitchHat | None:
    """A hat, or None if its weights are no multiples of 2^-63."""
    try:
        return WitchHat(half_width, cap, rate, VERIFIED_STEPS // 2)
    except (InputError, NotCertified):
        return None


def _shuffled(setting: Setting, query: NumberQuery, alone: WitchHat) -> Iterator[Frequencies]:
    """Hats of smaller variance than the one that needs no shuffler, the boldest first."""
    target, width = setting.target.for_each_of(setting.rounds), alone.half_width
    line = LineTarget(0.0, float(COARSE_STEPS), target.epsilon, target.distance / (2.0 * width) * COARSE_STEPS)
    sizes = []
    for solution in local_metrics(line, setting.honest, target.delta, algorithm="1N", grid=DIAMETERS).solutions:
        # The hat's metric is min(epsilon, rate d): the largest one below what was solved.
        steps, max_epsilon = np.arange(1.0, COARSE_STEPS + 1.0), solution.closed_diameter
        below = solution.closed < max_epsilon
        per_step = float(np.min(solution.closed[below] / steps[below])) if below.any() else max_epsilon
        sizes.append((max_epsilon, per_step * COARSE_STEPS / (2.0 * width) * (1.0 - SHRINK_FACTOR)))
    max_epsilon, rate = min(sizes, key=lambda size: WitchHatDensity(width, size[0], 2.0 / size[1]).variance(width))
    for _ in range(MAX_SHRINKS):
        # Where the whole metric does not fit into weights, a smaller cap is as valid.
        hat = next(
            (hat for cap in (max_epsilon, *LOCAL_EPSILON_CAPS) if cap <= max_epsilon and (hat := _hat(width, cap, rate)) is not None), None
        )
        if hat is None or not hat.variance(width) < alone.variance(width) * (1.0 - 1e-6):
            return
        yield Frequencies(name=NAME, trusted="shuffler", step=hat.step, randomizer=hat, readout="total")
        rate *= 1.0 - SHRINK_FACTOR
