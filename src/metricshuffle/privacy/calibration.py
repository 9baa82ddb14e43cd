"""From a target to the least noise that certainly keeps it."""

from __future__ import annotations

import math
from collections.abc import Callable

from metricshuffle.errors import ConditionError
from metricshuffle.numerics.certified_search import MemoizedCheck, first_certified, last_certified
from metricshuffle.privacy.profile import PrivacyProfile
from metricshuffle.privacy.target import Target

# Rates above this are no noise at all: P(Z != 0) < e^-30.
LARGEST_RATE = 32.0
RATE_TOLERANCE = 1e-11
# To this much where every step of the search needs the full verification.
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
    """The largest noise rate found whose profile keeps the target (less noise the larger the rate).

    Statement: the returned rate was itself certified by `target.kept_by`; no monotonicity is assumed of the
    profile, only used to steer the search.
    Conditions: `start` (default: just below the pure slope) or a smaller rate passes.
    Numerics: `target.shortfall`, cheap and necessary, steers the search: secants from `guess` (any rate, best one close to
    the answer, and with the `steepness` that is known there) enclose where it changes sign, and bisection, which then hardly ever has to
    ask, makes the result independent of the guess. It is verified in full at every distance; if that fails, more noise is tried until
    it passes, and full checks bisect.
    """

    def certified(rate: float) -> bool:
        return target.kept_by(profile_at(rate))

    floor = target.slope * (1.0 - 1e-12) if start is None else start
    top, min_rate = max(LARGEST_RATE, floor), 1e-3 * floor
    # Where delta falls like e^(-c/rate^2), as for nearly normal noise, its logarithm grows by twice itself with that of the rate.
    likely = -2.0 * math.log(target.delta) if target.delta > 0.0 else 1.0
    steered = MemoizedCheck(lambda rate: target.shortfall(profile_at(rate)), floor, 2.0 * top)
    begin, known = 2.0 * floor if guess is None else guess, steepness is not None
    steered.enclose(begin, likely if steepness is None else steepness, 0.1 * relative, known=known)
    steered_rate = last_certified(steered, *first_certified(steered, top, floor, step=-0.5, failing=2.0 * top), relative=relative)
    bracket = first_certified(certified, steered_rate, min_rate, step=-max(relative, 1e-9), growth=4.0, most=0.5, failing=math.inf)
    if bracket.passing == min_rate:
        raise ConditionError("Calibration", "a noise rate that keeps the promise", "none down to a thousandth of the pure slope")
    if bracket.passing == steered_rate:
        return steered_rate
    return last_certified(certified, *bracket, relative=max(relative, VERIFIED_RATE_TOLERANCE))
