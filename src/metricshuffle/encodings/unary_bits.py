"""Counts as one-bit messages, of which the shuffler reveals only the number of ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metricshuffle.errors import DomainError, InputError
from metricshuffle.numerics.validation import validate_integer
from metricshuffle.randomness import Randomness


@dataclass(frozen=True)
class ShuffledBits:
    """A shuffled multiset of one-bit messages, described by its number of ones."""

    ones: int
    bits: int
    reports: int

    def __post_init__(self) -> None:
        if not (0 <= self.ones <= self.bits and 0 <= self.reports <= self.bits):
            raise InputError(
                f"shuffled bits need 0 <= ones <= bits and 0 <= reports <= bits; "
                f"got ones={self.ones}, bits={self.bits}, reports={self.reports}."
            )


@dataclass(frozen=True)
class Unary:
    """Encoding of a count in 0..length as `length` one-bit messages, `count` of which are ones.

    Every user sends the same number of messages of the same size, whatever the count is.
    """

    length: int

    def __post_init__(self) -> None:
        if isinstance(self.length, bool) or not isinstance(self.length, int) or self.length < 1:
            raise InputError(
                f"length must be a whole number of messages >= 1, got {self.length!r}."
            )

    @property
    def messages_per_user(self) -> int:
        return self.length

    @property
    def bits_per_message(self) -> int:
        return 1

    @property
    def bits_per_user(self) -> int:
        return self.length

    def messages(self, count: int, randomness: Randomness) -> NDArray[np.uint8]:
        """Return one user's messages (0 or 1), in an order that only the client knows.

        Because the order is secret, one user's messages reveal no more than their count, even to
        someone who sees them before they are shuffled with those of others.
        """
        ones = validate_integer("count", count)
        self._within(ones, ones)
        bits = np.zeros(self.length, dtype=np.uint8)
        bits[:ones] = 1
        return randomness.shuffled(bits)

    def shuffled(self, messages: NDArray[np.uint8]) -> ShuffledBits:
        """Shuffle the messages of all users (an array of any shape)."""
        bits = np.asarray(messages)
        if bits.dtype != np.uint8 or bool((bits > 1).any()):
            raise InputError(
                f"one-bit messages must be a uint8 array of zeros and ones, got {bits.dtype}."
            )
        reports, remainder = divmod(bits.size, self.length)
        if remainder:
            raise InputError(
                f"{bits.size:,} messages are not a whole number of reports of "
                f"{self.length:,}; a report is incomplete."
            )
        return ShuffledBits(int(np.count_nonzero(bits)), bits.size, reports)

    def shuffled_counts(self, counts: NDArray[np.int64]) -> ShuffledBits:
        """Same as `shuffled`, from counts: a shuffled multiset of bits IS its number of ones."""
        checked = self._checked(np.asarray(counts))
        # In halves of 32 bits, so that no sum overflows.
        low = int((checked & 0xFFFFFFFF).sum())
        high = int((checked >> 32).sum())
        return ShuffledBits((high << 32) + low, checked.size * self.length, checked.size)

    def _checked(self, counts: NDArray[Any]) -> NDArray[np.int64]:
        if counts.ndim != 1 or (counts.size and counts.dtype.kind not in "iu"):
            raise InputError(
                f"counts must be a one-dimensional array of integers, got {counts.dtype} "
                f"of shape {counts.shape}."
            )
        if counts.size:
            self._within(int(counts.min()), int(counts.max()))
        return counts.astype(np.int64)

    def _within(self, smallest: int, largest: int) -> None:
        if smallest < 0 or largest > self.length:
            got = f"{smallest}" if smallest == largest else f"{smallest}..{largest}"
            raise DomainError(
                f"a count must lie in 0..{self.length}, got {got}; the number of messages "
                "must not depend on it."
            )
