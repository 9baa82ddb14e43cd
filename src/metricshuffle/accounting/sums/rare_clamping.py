"""Clamped reports accounted as if they were not clamped, with the clamping probability added.

Protocols of sums and of noisy answers use it where clamping (or another deviation from an ideal
mechanism) is very improbable.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from metricshuffle.citations import theorem
from metricshuffle.errors import InputError
from metricshuffle.privacy.profile import PrivacyProfile, Shape, checked_epsilon, validate_distance


@theorem("metricshuffle", "What rare clamping adds to delta")
def clamping_penalty(epsilon: float, probability: float) -> float:
    """(1 + e^epsilon) * probability, rounded up; at most 1.

    Statement: if a mechanism and an ideal one can be run together so that, for either input, they
    differ with probability at most t = `probability`, and the ideal one is (epsilon,
    delta)-indistinguishable, the mechanism is (epsilon, delta + (1 + e^epsilon)
    t)-indistinguishable.
    Proof: let P, P' be the laws of the mechanism for the two inputs, I, I' those of the ideal one,
    and S any event. P(S) <= I(S) + t <= e^epsilon I'(S) + delta + t <= e^epsilon P'(S) + delta + (1
    + e^epsilon) t.
    Conditions: `probability` counts every honest report of every axis and round.
    Numerics: rounded up.
    Reference: this docstring. (Conditioning on no report being clamped, an event of probability h,
    instead gives 1 - h + h delta_truncated, which is smaller but needs the law of the truncated
    sum: see additive_noise.Clamped.)
    """
    epsilon = checked_epsilon(epsilon)
    if not 0.0 <= probability <= 1.0:
        raise InputError(f"probability must lie in [0, 1], got {probability!r}.")
    if epsilon > 700.0:
        return 1.0 if probability > 0.0 else 0.0
    if probability == 0.0:
        return 0.0
    return min(
        1.0, math.nextafter((1.0 + math.exp(epsilon)) * probability * (1.0 + 1e-15), math.inf)
    )


@dataclass(frozen=True)
class RarelyClampedProfile(PrivacyProfile):
    """Profile of the ideal sum plus `clamping_penalty`; fast for many people and for two axes."""

    ideal: PrivacyProfile
    clamp_probability: float

    @property
    def bound(self) -> str:  # type: ignore[override]
        return f"{self.ideal.bound}, rarely clamped"

    def delta(self, epsilon: float, distance: float) -> float:
        if validate_distance(distance) == 0.0:
            return 0.0
        return min(
            1.0,
            (
                self.ideal.delta(epsilon, distance)
                + clamping_penalty(epsilon, self.clamp_probability)
            )
            * (1.0 + 1e-15),
        )

    def covers(
        self, epsilon: float, delta: float, distance: float, shape: Shape = "linear"
    ) -> bool:
        # The penalty is largest at the largest epsilon, which is the one at the full distance.
        remaining_delta = delta - clamping_penalty(epsilon, self.clamp_probability)
        return remaining_delta >= 0.0 and self.ideal.covers(
            epsilon, math.nextafter(remaining_delta, 0.0), distance, shape
        )
