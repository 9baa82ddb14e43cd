"""Privacy target (epsilon, delta, distance), and the number of honest reports relied on."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Self

from pydantic import SerializerFunctionWrapHandler, model_serializer, model_validator

from metricshuffle.errors import InputError, NotCertified, argument
from metricshuffle.models import FrozenModel, Real, format_value
from metricshuffle.numerics.rounding import format_delta, format_distance, format_epsilon
from metricshuffle.privacy.profile import PrivacyProfile, Shape


class Target(FrozenModel):
    """Target epsilon, delta and distance.

    Any two inputs at distance d <= `distance` must be (epsilon * d / distance,
    delta)-indistinguishable. `epsilon` is the TOTAL at `distance`, in the unit of the query.
    shape="flat": (epsilon, delta) for every d <= distance, which is ordinary differential privacy
    when distance is the diameter. `label_epsilon`, for pairs of a label and a number: epsilon of a
    change of the label alone, to which that of a change of the number is added (default: epsilon).
    """

    epsilon: Real
    delta: Real
    distance: Real
    shape: Shape = "linear"
    label_epsilon: Real | None = None

    def __init__(
        self,
        epsilon: float,
        delta: float,
        distance: float,
        shape: Shape = "linear",
        label_epsilon: float | None = None,
        **fields: object,
    ) -> None:
        super().__init__(
            epsilon=epsilon,
            delta=delta,
            distance=distance,
            shape=shape,
            label_epsilon=label_epsilon,
            **fields,
        )

    @model_serializer(mode="wrap")
    def _only_what_is_said(self, handler: SerializerFunctionWrapHandler) -> dict[str, object]:
        # Plans older than `label_epsilon` contain a digest of this dictionary without it.
        written: dict[str, object] = handler(self)
        if self.label_epsilon is None:
            written.pop("label_epsilon", None)
        return written

    @model_validator(mode="after")
    def _sensible(self) -> Self:
        if not 0.0 < self.epsilon <= 1000.0:
            raise InputError(f"{argument('epsilon')} must lie in (0, 1000], got {self.epsilon!r}")
        if not 0.0 <= self.delta < 1.0:
            raise InputError(f"{argument('delta')} must lie in [0, 1), got {self.delta!r}")
        if 0.0 < self.delta < 1e-250:
            raise InputError(
                f"{argument('delta')} must be 0 or at least 1e-250, got {self.delta!r}",
                remedy="0 allows pure protocols only",
            )
        if not 0.0 < self.distance < math.inf:
            raise InputError(
                f"{argument('distance')} must be greater than 0, got {self.distance!r}"
            )
        if self.label_epsilon is not None and not 0.0 < self.label_epsilon <= 1000.0:
            raise InputError(
                f"{argument('label_epsilon')} must lie in (0, 1000], got {self.label_epsilon!r}"
            )
        return self

    @property
    def slope(self) -> float:
        """Epsilon per unit of distance; pure noise of this slope meets the target everywhere."""
        return self.epsilon / self.distance

    @property
    def label_distance(self) -> float:
        """Distance that a change of the label counts as: its epsilon is `label_epsilon`.

        Rounded down, so that the epsilon of this distance is at most `label_epsilon`.
        """
        if self.label_epsilon is None or self.label_epsilon == self.epsilon:
            return self.distance
        exact = Fraction(self.label_epsilon) * Fraction(self.distance) / Fraction(self.epsilon)
        nearest = float(exact)
        return nearest if Fraction(nearest) <= exact else math.nextafter(nearest, 0.0)

    def with_delta(self, delta: float) -> Self:
        """Return a copy with another delta, however small."""
        return self._changed(delta=delta)

    def stretched(self, distance: float) -> Self:
        """Return a copy of the same slope at another distance; epsilon is rounded up."""
        return self._changed(
            epsilon=self.epsilon * (distance / self.distance) * (1.0 + 4e-16), distance=distance
        )

    def in_steps(self, step: float) -> Self:
        """Return a copy with the distance in steps of `step` units.

        A distance that is a whole number of steps up to rounding (0.3 units of 0.1) counts as that
        whole number.
        """
        return self._changed(
            distance=self.distance if step == 1.0 else self.distance / step * (1.0 + 1e-12)
        )

    def for_each_of(self, rounds: int) -> Self:
        """Return the target of each of `rounds` rounds that together meet this one.

        Epsilon and delta are divided by `rounds` (basic composition), rounded down.
        """
        if rounds == 1:
            return self
        share = (1.0 - 2e-16) / rounds
        label = None if self.label_epsilon is None else self.label_epsilon * share
        return self._changed(
            epsilon=self.epsilon / rounds * (1.0 - 2e-16),
            delta=self.delta / rounds * (1.0 - 2e-16),
            label_epsilon=label,
        )

    def _changed(self, **fields: float | None) -> Self:
        # Not validated again: the limits on user input (a delta of at least 1e-250) need not hold
        # for intermediate targets.
        return self.model_copy(update=fields)

    def kept_by(self, profile: PrivacyProfile) -> bool:
        """Return whether the profile is certified to meet the target at every distance.

        False where nothing can be certified.
        """
        try:
            return profile.covers(self.epsilon, self.delta, self.distance, self.shape)
        except NotCertified:
            return False

    def nearly_kept_by(self, profile: PrivacyProfile) -> bool:
        """Check a cheap necessary condition for `kept_by`; it steers, but never ends a search."""
        try:
            return profile.nearly_covers(self.epsilon, self.delta, self.distance, self.shape)
        except NotCertified:
            return False

    def shortfall(self, profile: PrivacyProfile) -> float:
        """Return by how much `nearly_kept_by` fails (see `PrivacyProfile.shortfall`).

        Infinite where nothing can be certified.
        """
        try:
            return profile.shortfall(self.epsilon, self.delta, self.distance, self.shape)
        except NotCertified:
            return math.inf

    def __str__(self) -> str:
        growth = (
            "in proportion to the distance up to"
            if self.shape == "linear"
            else "for every move up to"
        )
        label = (
            ""
            if self.label_epsilon is None
            else f", epsilon {format_epsilon(self.label_epsilon)} for another label"
        )
        return (
            f"epsilon {format_epsilon(self.epsilon)} {growth} "
            f"{format_distance(self.distance)}{label}, delta {format_delta(self.delta)}"
        )


Honest = int | float | str | None
"""Honest reports: a count, a fraction in (0, 1], a percentage like "90%", or None for all."""


def honest_count(honest: Honest, users: int) -> int:
    """Return how many honest reports a plan relies on.

    An integer is a count; a float in (0, 1] or a string like "90%" is a fraction of `users`,
    rounded down.
    """
    if honest is None:
        return users
    if isinstance(honest, str):
        text = honest.strip()
        try:
            honest = (
                float(text[:-1]) / 100.0
                if text.endswith("%")
                else (float(text) if "." in text or "e" in text else int(text))
            )
        except ValueError:
            raise InputError(
                f"{argument('honest')} must be a count, a fraction in (0, 1] or a "
                f"percentage like 90%, got {text!r}."
            ) from None
    if isinstance(honest, bool) or not isinstance(honest, int | float) or honest != honest:
        raise InputError(
            f"{argument('honest')} must be a count, a fraction in (0, 1] or a percentage "
            f"like 90%, got {honest!r}."
        )
    if isinstance(honest, int):
        if honest == 1 and users > 1:
            raise InputError(
                f"{argument('honest')} = 1 can mean one person or everybody",
                remedy=f"write 100% (or leave it out) for all {users:,}; "
                "if only one can be counted on, plan with nobody trusted.",
            )
        count = honest
    elif 0.0 < honest <= 1.0:
        # Computed from the decimal as it was written: 0.29 of 100 is 29, and never one too many.
        count = math.floor(Fraction(f"{honest:.15g}") * users)
    else:
        raise InputError(
            f"{argument('honest')} as a fraction must lie in (0, 1], got {honest!r}",
            remedy="write a count without a decimal point.",
        )
    if count > users:
        raise InputError(
            f"{argument('honest')} ({count:,}) cannot exceed users ({users:,})",
            remedy="subtract colluders and drop-outs from the users.",
        )
    if count < 1:
        raise InputError(
            f"{argument('honest')} leaves {count} honest reports of {users:,} users",
            remedy="at least 1 is needed.",
        )
    return count


def checked_users(users: int, most: int = 10**13) -> int:
    """Return `users` if it is an integer from 1 to `most`; raise InputError otherwise."""
    if isinstance(users, bool) or not isinstance(users, int) or users < 1:
        raise InputError(f"{argument('users')} must be a whole number >= 1, got {users!r}.")
    if users > most:
        limit = "1e13" if most == 10**13 else f"{most:,}"
        raise InputError(f"{argument('users')} must be at most {limit}, got {format_value(users)}.")
    return users
