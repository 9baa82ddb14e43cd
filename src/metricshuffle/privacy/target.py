"""What is wanted: how much is hidden, at which distance, and how many people can be counted on."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, Self

from pydantic import model_validator

from metricshuffle.errors import InputError, NotCertified
from metricshuffle.models import FrozenModel, Real
from metricshuffle.numerics.rounding import format_delta, format_distance, format_epsilon
from metricshuffle.privacy.profile import PrivacyProfile, Shape


class Target(FrozenModel):
    """Any two inputs at distance d <= `distance` are (epsilon * d / distance, delta)-indistinguishable.

    `epsilon` is the TOTAL at `distance`, in the unit of the query. shape="flat": (epsilon, delta)
    for every d <= distance, which is ordinary differential privacy when distance is the diameter.
    """

    epsilon: Real
    delta: Real
    distance: Real
    shape: Shape = "linear"

    def __init__(self, epsilon: float, delta: float, distance: float, shape: Shape = "linear", **fields: Any) -> None:
        super().__init__(epsilon=epsilon, delta=delta, distance=distance, shape=shape, **fields)

    @model_validator(mode="after")
    def _sensible(self) -> Self:
        if not 0.0 < self.epsilon <= 1000.0:
            raise ValueError(f"epsilon must lie in (0, 1000], got {self.epsilon!r}")
        if not 0.0 <= self.delta < 1.0:
            raise ValueError(f"delta must lie in [0, 1), got {self.delta!r}")
        if 0.0 < self.delta < 1e-250:
            raise ValueError(f"delta must be 0 or at least 1e-250, got {self.delta!r}; 0 keeps the pure protocols only")
        if not 0.0 < self.distance < math.inf:
            raise ValueError(f"distance must be greater than 0, got {self.distance!r}")
        return self

    @property
    def slope(self) -> float:
        """Epsilon per unit of distance: pure noise of this slope keeps the target at every distance."""
        return self.epsilon / self.distance

    def with_delta(self, delta: float) -> Self:
        """The same with another delta: a part of it, however small."""
        return self._changed(delta=delta)

    def in_steps(self, step: float) -> Self:
        """The same with the distance in steps of that many units.

        A distance that is a whole number of steps up to rounding (0.3 units of 0.1) counts as that many.
        """
        return self._changed(distance=self.distance if step == 1.0 else self.distance / step * (1.0 + 1e-12))

    def for_each_of(self, rounds: int) -> Self:
        """What each of so many rounds must keep so that all together keep this one: epsilons and deltas add up (basic composition)."""
        if rounds == 1:
            return self
        return self._changed(epsilon=self.epsilon / rounds * (1.0 - 2e-16), delta=self.delta / rounds * (1.0 - 2e-16))

    def _changed(self, **fields: float) -> Self:
        # Not validated again: what is asked of people (a delta of 1e-250 at least) need not hold for the parts of a calculation.
        return self.model_copy(update=fields)

    def kept_by(self, profile: PrivacyProfile) -> bool:
        """Certified for every distance up to the stated one; what cannot be certified is not kept."""
        try:
            return profile.covers(self.epsilon, self.delta, self.distance, self.shape)
        except NotCertified:
            return False

    def nearly_kept_by(self, profile: PrivacyProfile) -> bool:
        """Necessary for `kept_by`, and cheap: steers a calibration, and never ends one."""
        try:
            return profile.nearly_covers(self.epsilon, self.delta, self.distance, self.shape)
        except NotCertified:
            return False

    def shortfall(self, profile: PrivacyProfile) -> float:
        """By how much `nearly_kept_by` fails (see PrivacyProfile.shortfall); infinite where nothing can be certified."""
        try:
            return profile.shortfall(self.epsilon, self.delta, self.distance, self.shape)
        except NotCertified:
            return math.inf

    def __str__(self) -> str:
        growth = "in proportion to the distance up to" if self.shape == "linear" else "for every move up to"
        return f"epsilon {format_epsilon(self.epsilon)} {growth} {format_distance(self.distance)}, delta {format_delta(self.delta)}"


Honest = int | float | str | None
"""Honest reports that are counted on: a count, a fraction in (0, 1], a percentage like "90%", or all."""


def honest_count(honest: Honest, users: int) -> int:
    """How many honest reports a plan counts on: a whole number is a count, a float in (0, 1] or "90%" a fraction."""
    if honest is None:
        return users
    if isinstance(honest, str):
        text = honest.strip()
        try:
            honest = float(text[:-1]) / 100.0 if text.endswith("%") else (float(text) if "." in text or "e" in text else int(text))
        except ValueError:
            raise InputError(f"honest must be a count, a fraction in (0, 1] or a percentage like 90%, got {text!r}.") from None
    if isinstance(honest, bool) or not isinstance(honest, int | float) or honest != honest:
        raise InputError(f"honest must be a count, a fraction in (0, 1] or a percentage like 90%, got {honest!r}.")
    if isinstance(honest, int):
        if honest == 1 and users > 1:
            raise InputError(
                f"honest = 1 can mean one person or everybody; write 100% (or leave it out) for all {users:,}; "
                "if only one can be counted on, plan with nobody trusted."
            )
        count = honest
    elif 0.0 < honest <= 1.0:
        count = math.floor(Fraction(f"{honest:.15g}") * users)  # as it was written: 0.29 of 100 are 29, and never one too many
    else:
        raise InputError(f"honest as a fraction must lie in (0, 1], got {honest!r}; write a count without a decimal point.")
    if count > users:
        raise InputError(f"honest ({count:,}) cannot exceed users ({users:,}); colluders and drop-outs are subtracted, not added.")
    if count < 1:
        raise InputError(f"honest leaves {count} honest reports of {users:,} users; at least 1 is needed.")
    return count


def checked_users(users: int) -> int:
    """users as a whole number >= 1, or a sentence."""
    if isinstance(users, bool) or not isinstance(users, int) or users < 1:
        raise InputError(f"users must be a whole number >= 1, got {users!r}.")
    if users > 10**13:
        raise InputError(f"users must be at most 1e13, got {users:,}.")
    return users
