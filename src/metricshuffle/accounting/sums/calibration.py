"""From a target to the least noise that certainly meets it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from metricshuffle.accounting.sums.planar import JOINT_RADIUS, PerAxis, PlanarNoise, outermost, planar_shift_delta
from metricshuffle.errors import ConditionError, NotCertified
from metricshuffle.privacy.profile import PrivacyProfile, PureProfile, Shape, checked_distance, checked_epsilon, last_certified

# Rates above this are no noise at all: P(Z != 0) < e^-30.
LARGEST_RATE = 32.0
RELATIVE = 1e-11
# To this much where every step of the search needs the full verification.
VERIFIED_RELATIVE = 1e-4


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

    def nearly_kept_by(self, profile: PrivacyProfile) -> bool:
        """Necessary for `kept_by`, and cheap: the promise at its own distance and at a single step (two axes: the farthest cells)."""
        first = self.epsilon if self.shape == "flat" else self.slope
        if isinstance(profile, PerAxis) and self.shape == "linear":
            return Promise(self.epsilon / math.sqrt(2.0), 0.5 * self.delta, self.distance).nearly_kept_by(profile.axis)
        try:
            if isinstance(profile, PlanarNoise) and self.delta > 0.0 and self.shape == "linear" and self.distance <= JOINT_RADIUS:
                law = profile.axis.law_for(self.delta, self.distance)
                return all(planar_shift_delta(law, self.slope * math.hypot(i, j), i, j) <= self.delta for i, j in outermost(self.distance))
            return profile.covers_at(self.epsilon, self.delta, self.distance) and profile.covers_at(first, self.delta, 1.0)
        except NotCertified:
            return False

    def with_delta(self, delta: float) -> Promise:
        return Promise(self.epsilon, delta, self.distance, self.shape)

    @property
    def slope(self) -> float:
        """Pure slope per step that certainly keeps the promise at every distance."""
        return self.epsilon / self.distance


@dataclass(frozen=True)
class PureUpTo(PrivacyProfile):
    """`total` epsilon with delta 0 at every distance up to `distance`; beyond it nothing is said."""

    total: float
    distance: float
    bound: str = "pure"

    def pure(self, distance: float) -> float:
        return 0.0 if checked_distance(distance) == 0.0 else self.total if distance <= self.distance else math.inf

    def delta(self, epsilon: float, distance: float) -> float:
        """As for any pair whose log likelihood ratio is at most `total` (see PureProfile)."""
        cost = self.pure(distance)
        if checked_epsilon(epsilon) >= cost:
            return 0.0
        return 1.0 if math.isinf(cost) else PureProfile(cost).delta(epsilon, 1.0)


def largest_rate(
    profile_at: Callable[[float], PrivacyProfile],
    promise: Promise,
    *,
    start: float | None = None,
    relative: float = RELATIVE,
) -> float:
    """The largest noise rate found whose profile keeps the promise (less noise the larger the rate).

    Statement: the returned rate was itself certified by `promise.kept_by`; no monotonicity is assumed of the
    profile, only used to steer the search.
    Conditions: `start` (default: just below the pure slope) or a smaller rate passes.
    Numerics: rates are tried downwards from one that is no noise at all, because wide laws (small rates) are the
    expensive ones; then bisection. `promise.nearly_kept_by`, cheap and necessary, steers the search, and the result is
    verified in full at every distance; if that fails, more noise is tried until it passes, and full checks bisect.
    """

    def certified(rate: float) -> bool:
        return promise.kept_by(profile_at(rate))

    def steered(rate: float) -> bool:
        return promise.nearly_kept_by(profile_at(rate))

    floor = promise.slope * (1.0 - 1e-12) if start is None else start
    passing = max(LARGEST_RATE, floor)
    failing = 2.0 * passing
    while passing > floor and not steered(passing):
        failing, passing = passing, 0.5 * passing
    found = last_certified(steered, failing, max(passing, floor), relative=relative)
    if certified(found):
        return found
    less = max(relative, 1e-9)
    while not certified(found):
        failing, found, less = found, found * (1.0 - less), min(4.0 * less, 0.5)
        if found < 1e-3 * floor:
            raise ConditionError("Calibration", "a noise rate that keeps the promise", "none down to a thousandth of the pure slope")
    return last_certified(certified, failing, found, relative=max(relative, VERIFIED_RELATIVE))
