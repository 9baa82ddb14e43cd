"""Result of a published formula: a number with our verdict, never a profile."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from metricshuffle.errors import InputError

Verdict = Literal["true", "loose", "false", "false beyond a distance"]


@dataclass(frozen=True)
class Published:
    """Published number: `claim` is the stated value, `verdict` our finding, `instead` what to use.

    "loose" is true but larger than necessary; "false beyond a distance" holds for near inputs only.
    It is not a `PrivacyProfile`, so no guarantee, plan or release can be made of it, whatever the
    verdict.
    """

    claim: float
    statement: str
    verdict: Verdict
    instead: str


def checked_number(name: str, value: float, low: float, high: float = math.inf) -> float:
    """Return a number strictly above `low` and at most `high`; raise InputError otherwise."""
    if not low < value <= high or math.isinf(value):
        bound = f"> {low:g}" if math.isinf(high) else f"in ({low:g}, {high:g}]"
        raise InputError(f"{name} must be a finite number {bound}, got {value!r}.")
    return value


def checked_people(users: int) -> int:
    """Return a whole number of at least one user; raise InputError otherwise."""
    if users != int(users) or users < 1:
        raise InputError(f"users must be a whole number >= 1, got {users!r}.")
    return int(users)


def open_delta(delta: float) -> float:
    """Return a delta strictly between 0 and 1; raise InputError otherwise."""
    if not 0.0 < delta < 1.0:
        raise InputError(f"delta must lie strictly between 0 and 1, got {delta!r}.")
    return delta
