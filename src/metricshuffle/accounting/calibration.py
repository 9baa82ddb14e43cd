"""From a target to the least noise that certainly meets it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from metricshuffle.errors import ConditionError, NotCertified
from metricshuffle.privacy.profile import PrivacyProfile, Shape, last_certified

# Rates above this are no noise at all: P(Z != 0) < e^-30.
LARGEST_RATE = 32.0
RELATIVE = 1e-11


@dataclass(frozen=True)
class Promise:
    """What has to hold, in whole steps: `epsilon` in total at `distance` steps."""

    epsilon: float
    delta: float
    distance: float
    shape: Shape = "linear"

    def kept_by(self, profile: PrivacyProfile) -> bool:
        """Certified for every distance up to the stated one; what cannot be certified is not kept."""
        try:
            return profile.covers(self.epsilon, self.delta, self.distance, self.shape)
        except NotCertified:
            return False

    def with_delta(self, delta: float) -> Promise:
        return Promise(self.epsilon, delta, self.distance, self.shape)

    @property
    def slope(self) -> float:
        """Pure slope per step that certainly keeps the promise at every distance."""
        return self.epsilon / self.distance


def largest_rate(
    profile_at: Callable[[float], PrivacyProfile],
    promise: Promise,
    *,
    start: float | None = None,
    probe: Callable[[PrivacyProfile], bool] | None = None,
    relative: float = RELATIVE,
) -> float:
    """The largest noise rate found whose profile keeps the promise (less noise the larger the rate).

    Statement: the returned rate was itself certified by `promise.kept_by`; no monotonicity is assumed of the
    profile, only used to steer the search.
    Conditions: `start` (default: just below the pure slope) or a smaller rate passes.
    Numerics: rates are tried downwards from one that is no noise at all, because wide laws (small rates) are the
    expensive ones; then bisection. `probe`, a cheaper NECESSARY check, steers the search if given, and the result is
    verified in full; if that fails the search is repeated with full verification.
    """

    def certified(rate: float) -> bool:
        return promise.kept_by(profile_at(rate))

    def steered(rate: float) -> bool:
        return certified(rate) if probe is None else probe(profile_at(rate))

    floor = promise.slope * (1.0 - 1e-12) if start is None else start
    failing, passing = 2.0 * LARGEST_RATE, LARGEST_RATE
    while passing > floor and not steered(passing):
        failing, passing = passing, 0.5 * passing
    if passing <= floor:
        passing = floor
        while not certified(passing):
            passing *= 0.5
            if passing < 1e-3 * floor:
                raise ConditionError("Calibration", "a noise rate that keeps the promise", "none down to a thousandth of the pure slope")
    found = last_certified(steered, failing, passing, relative=relative)
    if probe is None or certified(found):
        return found
    while passing > floor and not certified(passing):
        passing = max(0.5 * passing, floor)
    if not certified(passing):
        raise ConditionError("Calibration", "a noise rate that keeps the promise", f"none that could be verified above rate {floor:g}")
    return last_certified(certified, found, passing, relative=relative)
