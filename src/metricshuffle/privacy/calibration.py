"""Calibration: the least noise that is certified to meet a target."""

from __future__ import annotations

import math
from collections.abc import Callable

from metricshuffle.errors import ConditionError
from metricshuffle.numerics.certified_search import MemoizedCheck, first_certified, last_certified
from metricshuffle.privacy.profile import PrivacyProfile
from metricshuffle.privacy.target import Target

# Rates above this add practically no noise: P(Z != 0) < e^-30.
LARGEST_RATE = 32.0
RATE_TOLERANCE = 1e-11
# Tolerance where every step of the search needs the full verification.
VERIFIED_RATE_TOLERANCE = 1e-4


def largest_rate(
    profile_at: Callable[[float], PrivacyProfile],
    target: Target,
    *,
    start: float | None = None,
    relative: float = RATE_TOLERANCE,
    guess: float | None = None,
    steepness: float | None = None,
) -> float:
    """Return the largest noise rate found whose profile meets the target (larger is less noise).

    Statement: the returned rate was itself certified by `target.kept_by`; monotonicity of the
    profile is not assumed, only used to steer the search.
    Conditions: `start` (default: just below the pure slope) or a smaller rate passes.
    Numerics: `target.shortfall`, which is cheap and necessary, steers the search. Secants enclose
    the rate at which its sign changes. They start at `guess` (any rate, best close to the answer),
    with the slope `steepness` if it is known there. A bisection, which then needs few evaluations,
    makes the result independent of `guess`. The result is verified in full at every distance; if
    that fails, the noise is increased until it passes, then bisected with full checks.
    """

    def certified(rate: float) -> bool:
        return target.kept_by(profile_at(rate))

    floor = target.slope * (1.0 - 1e-12) if start is None else start
    top = max(LARGEST_RATE, floor)
    min_rate = 1e-3 * floor
    # For nearly normal noise delta is about e^(-c/rate^2), so d log delta / d log rate is -2 log
    # delta.
    likely = -2.0 * math.log(target.delta) if target.delta > 0.0 else 1.0
    steered = MemoizedCheck(lambda rate: target.shortfall(profile_at(rate)), floor, 2.0 * top)
    begin = 2.0 * floor if guess is None else guess
    known = steepness is not None
    steered.enclose(begin, likely if steepness is None else steepness, 0.1 * relative, known=known)
    steered_rate = last_certified(
        steered,
        *first_certified(steered, top, floor, step=-0.5, failing=2.0 * top),
        relative=relative,
    )
    bracket = first_certified(
        certified,
        steered_rate,
        min_rate,
        step=-max(relative, 1e-9),
        growth=4.0,
        most=0.5,
        failing=math.inf,
    )
    if bracket.passing == min_rate:
        raise ConditionError(
            "Calibration",
            "a noise rate that keeps the promise",
            "none down to a thousandth of the pure slope",
        )
    if bracket.passing == steered_rate:
        return steered_rate
    return last_certified(certified, *bracket, relative=max(relative, VERIFIED_RATE_TOLERANCE))
