"""From a target to the least noise that certainly keeps it."""

from __future__ import annotations

import math
from collections.abc import Callable

from metricshuffle.errors import ConditionError
from metricshuffle.numerics.search import first_certified, last_certified
from metricshuffle.privacy.profile import PrivacyProfile
from metricshuffle.privacy.target import Target

# Rates above this are no noise at all: P(Z != 0) < e^-30.
LARGEST_RATE = 32.0
RELATIVE = 1e-11
# To this much where every step of the search needs the full verification.
VERIFIED_RELATIVE = 1e-4


def largest_rate(
    profile_at: Callable[[float], PrivacyProfile],
    target: Target,
    *,
    start: float | None = None,
    relative: float = RELATIVE,
) -> float:
    """The largest noise rate found whose profile keeps the target (less noise the larger the rate).

    Statement: the returned rate was itself certified by `target.kept_by`; no monotonicity is assumed of the
    profile, only used to steer the search.
    Conditions: `start` (default: just below the pure slope) or a smaller rate passes.
    Numerics: rates are tried downwards from one that is no noise at all, because wide laws (small rates) are the
    expensive ones; then bisection. `target.nearly_kept_by`, cheap and necessary, steers the search, and the result is
    verified in full at every distance; if that fails, more noise is tried until it passes, and full checks bisect.
    """

    def certified(rate: float) -> bool:
        return target.kept_by(profile_at(rate))

    def steered(rate: float) -> bool:
        return target.nearly_kept_by(profile_at(rate))

    floor = target.slope * (1.0 - 1e-12) if start is None else start
    top, least = max(LARGEST_RATE, floor), 1e-3 * floor
    near = last_certified(steered, *first_certified(steered, top, floor, step=-0.5, failing=2.0 * top), relative=relative)
    found = first_certified(certified, near, least, step=-max(relative, 1e-9), growth=4.0, most=0.5, failing=math.inf)
    if found.passing == least:
        raise ConditionError("Calibration", "a noise rate that keeps the promise", "none down to a thousandth of the pure slope")
    if found.passing == near:
        return near
    return last_certified(certified, *found, relative=max(relative, VERIFIED_RELATIVE))
