"""What is published about users' items: an answer with its errors, two guarantees, and what a full replacement costs."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from metricshuffle.accounting.items.user_level import full_replacement_sentence
from metricshuffle.declared import Stored
from metricshuffle.errors import InputError
from metricshuffle.planning.user_candidates import Model
from metricshuffle.privacy.guarantee import Guarantee, plain, released_sentences
from metricshuffle.protocols.user_queries import AnyUserQuery, UserHistogram, UserLinearQuery

Numbers = tuple[float, ...]


class UserRelease(Stored):
    """`value`: the shares of the points (possible ones: non-negative, summing to one) or the means of a linear query.

    `measured` is what the value was made from and `standard_errors` its errors: the mass below each edge of the tree, the
    unbiased share of each point, or the means themselves.
    """

    stored_as: ClassVar[str] = "a release about users' items"
    format: Literal["metricshuffle-user-release/1"] = "metricshuffle-user-release/1"
    query: AnyUserQuery
    method: str
    model: Model
    value: Numbers
    measured: Numbers
    standard_errors: Numbers
    expected_error: float
    users: int
    guarantee: Guarantee
    if_shuffler_colludes: Guarantee
    raw_values_seen: bool
    unsafe_seeded: bool
    plan: str
    warning: str = ""

    def intervals(self, level: float = 0.95) -> NDArray[np.float64]:
        """(low, high) for each number measured, by the normal approximation (Chebyshev's inequality below 30 users)."""
        if not 0.0 < level < 1.0:
            raise InputError(f"level must lie strictly between 0 and 1, got {level!r}.")
        from scipy.special import ndtri

        widths = 1.0 / math.sqrt(1.0 - level) if self.users < 30 or self.model == "central" else -float(ndtri((1.0 - level) / 2.0))
        halves = widths * np.array(self.standard_errors)
        return np.column_stack([np.array(self.measured) - halves, np.array(self.measured) + halves])

    @property
    def full_replacement(self) -> str:
        """What replacing all of one user's items costs, in a sentence."""
        return full_replacement_sentence(self.guarantee, self.query.diameter)

    def save(self, path: str) -> None:
        from metricshuffle.planning.files import write_text

        write_text(path, self.to_json() + "\n")

    def __str__(self) -> str:
        lines = [f"{self.query}, from {self.users:,} user{'s' * (self.users != 1)} ({self.method}, {self.model})"]
        if isinstance(self.query, UserHistogram):
            lines += _largest(self.query, np.array(self.value))
            unit = f" {self.query.unit}" if self.query.unit else ""
            lines.append(f"expected earth mover's distance to the truth: {plain(self.expected_error)}{unit}")
        elif isinstance(self.query, UserLinearQuery):
            intervals = self.intervals()
            for name, value, (low, high) in list(zip(self.query.names, self.value, intervals, strict=True))[:12]:
                lines.append(f"  {name}: {plain(value)} (95 % interval {plain(low)} to {plain(high)})")
            lines += [f"  ... and {len(self.value) - 12:,} more"] if len(self.value) > 12 else []
        lines += released_sentences(
            self.guarantee, self.if_shuffler_colludes, raw_values_seen=self.raw_values_seen, unsafe_seeded=self.unsafe_seeded
        )
        return "\n".join([*lines, self.full_replacement, *([f"Warning: {self.warning}"] if self.warning else [])])


def _largest(query: UserHistogram, shares: NDArray[np.float64]) -> list[str]:
    order = np.argsort(-shares, kind="stable")
    shown = order if len(order) <= 12 else order[:8]
    lines = [f"  {query.people.label(int(code))}: {shares[code]:.4f}" for code in shown]
    return lines + ([f"  ... and {len(order) - len(shown):,} more"] if len(shown) < len(order) else [])
