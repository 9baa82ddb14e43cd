"""What is wanted: how much is hidden, at which distance, and how many people can be counted on."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, Self

from pydantic import model_validator

from metricshuffle.declared import Declared, Real
from metricshuffle.errors import InputError
from metricshuffle.privacy.guarantee import plain
from metricshuffle.privacy.profile import Shape


class Target(Declared):
    """Any two inputs at distance d <= `distance` are (epsilon * d / distance, delta)-indistinguishable.

    `epsilon` is the TOTAL at `distance`, in the unit of the query. shape="flat": (epsilon, delta)
    for every d <= distance, which is ordinary differential privacy when distance is the diameter.
    """

    epsilon: Real
    delta: Real
    distance: Real
    shape: Shape = "linear"

    def __init__(self, epsilon: float, delta: float, distance: float, shape: Shape = "linear", **rest: Any) -> None:
        super().__init__(epsilon=epsilon, delta=delta, distance=distance, shape=shape, **rest)

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

    def __str__(self) -> str:
        growth = "in proportion to the distance up to" if self.shape == "linear" else "for every move up to"
        return f"epsilon {plain(self.epsilon)} {growth} {plain(self.distance)}, delta {self.delta:g}"


def honest_count(honest: int | float | str | None, users: int) -> int:
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
