"""Integers as residues modulo a number, of which only the sum over all users is revealed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from metricshuffle.errors import DomainError, InputError, argument
from metricshuffle.numerics.validation import validate_integer
from metricshuffle.privacy.guarantee import Who
from metricshuffle.randomness import Randomness

LARGEST_MODULUS = 2**62
"""Two residues and their sum fit in 64 bits, signed or unsigned."""

MIN_SHARES = 3
"""Minimum number of shares for security through a shuffler (see accounting.sums.split_and_mix)."""


def modulus_for(users: int, span: int, noise_radius: int) -> int:
    """Smallest modulus in which the sum of `users` values and their noise does not wrap around.

    Each value lies in a range of length `span`; the total noise is at most `noise_radius` in
    absolute value. The sum then takes one of users * span + 2 * noise_radius + 1 values. A larger
    noise wraps around, which is an error of the estimate and never of privacy, because the residue
    is a function of the exact sum.
    """
    values = validate_integer("users", users, 1) * validate_integer("span", span, 0)
    modulus = max(2, values + 2 * validate_integer("noise_radius", noise_radius, 0) + 1)
    if modulus > LARGEST_MODULUS:
        raise InputError(
            f"{users:,} values spanning {span:,} with noise up to {noise_radius:,} need a "
            "modulus above 2^62; "
            f"use a coarser unit for the values."
        )
    return modulus


@dataclass(frozen=True)
class Modular:
    """Encoding of an integer as `messages` residues that add up to it.

    Through a shuffler: `messages` - 1 exactly uniform shares and the difference (split-and-mix).
    `accounting.sums.split_and_mix.security_bits` says how well the multiset of all shares hides
    everything but the sum. To an aggregator that reveals only the sum, to a curator, or directly to
    the analyst (trusted "nobody"): one residue, which is not hidden from its recipient.
    """

    modulus: int
    messages: int
    trusted: Who

    def __post_init__(self) -> None:
        if (
            isinstance(self.modulus, bool)
            or not isinstance(self.modulus, int)
            or not 2 <= self.modulus <= LARGEST_MODULUS
        ):
            raise InputError(f"modulus must be a whole number in 2..2^62, got {self.modulus!r}.")
        if isinstance(self.messages, bool) or not isinstance(self.messages, int):
            raise InputError(f"messages must be a whole number, got {self.messages!r}.")
        if self.trusted not in get_args(Who):
            raise InputError(
                f"{argument('trusted')} must be one of {', '.join(get_args(Who))}, got "
                f"{self.trusted!r}."
            )
        if self.trusted != "shuffler" and self.messages != 1:
            raise InputError(
                f"{self.trusted} takes messages = 1 residue per user, got {self.messages}; "
                "shares are for a shuffler."
            )
        if self.trusted == "shuffler" and self.messages < MIN_SHARES:
            raise InputError(
                f"a shuffler needs messages >= {MIN_SHARES} shares per user to hide "
                f"anything, got {self.messages}."
            )

    @property
    def messages_per_user(self) -> int:
        return self.messages

    @property
    def bits_per_message(self) -> int:
        """ceil(log2 modulus): the bits of every residue, leading zeros included."""
        return (self.modulus - 1).bit_length()

    @property
    def bits_per_user(self) -> int:
        return self.messages * self.bits_per_message

    def shares(self, values: NDArray[np.int64], randomness: Randomness) -> NDArray[np.uint64]:
        """Split each value into a row of residues that add up to it modulo `modulus`."""
        integers = np.asarray(values)
        if integers.ndim != 1 or (integers.size and integers.dtype.kind not in "iu"):
            raise InputError(
                f"values must be a one-dimensional array of integers, got {integers.dtype} "
                f"of shape {integers.shape}."
            )
        if (
            integers.dtype == np.uint64
            and integers.size
            and integers.max() > np.iinfo(np.int64).max
        ):
            raise DomainError("values must fit in 64 bits, sign included.")
        modulus = np.uint64(self.modulus)
        difference = np.mod(integers.astype(np.int64), np.int64(self.modulus)).astype(np.uint64)
        out = np.empty((difference.size, self.messages), dtype=np.uint64)
        if self.messages > 1:
            out[:, :-1] = randomness.uniform_residues(
                difference.size * (self.messages - 1), self.modulus
            ).reshape(difference.size, self.messages - 1)
        for column in range(self.messages - 1):
            # Both are below modulus <= 2^62, so neither line overflows.
            difference += modulus - out[:, column]
            difference -= np.where(difference >= modulus, modulus, np.uint64(0))
        out[:, -1] = difference
        return out

    def shuffled(self, records: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Return all messages sorted, so that only their multiset is revealed."""
        residues = self._checked(records)
        if residues.ndim != 2 or residues.shape[1] != self.messages:
            raise InputError(
                f"records must have {self.messages} residues per user, got an array of shape "
                f"{residues.shape}."
            )
        return np.sort(residues, axis=None)

    def total(self, residues: NDArray[np.uint64]) -> int:
        """Return the exact sum of residues (any shape) modulo `modulus`."""
        checked = self._checked(residues)
        # In halves of 32 bits, so that no sum overflows before 2^32 messages.
        low = int((checked & np.uint64(0xFFFFFFFF)).sum())
        high = int((checked >> np.uint64(32)).sum())
        return ((high << 32) + low) % self.modulus

    def centred(self, total: int, low: int, high: int) -> int:
        """Return the integer that a residue represents if the sum is expected in low..high.

        The residue identifies one of the `modulus` integers around the middle of low..high; a sum
        slightly outside low..high is returned unclipped.
        """
        start, _ = self.window(low, high)
        residue = validate_integer("total", total)
        if not 0 <= residue < self.modulus:
            raise DomainError(
                f"a total modulo {self.modulus} lies in 0..{self.modulus - 1}, got {residue}."
            )
        return start + (residue - start) % self.modulus

    def window(self, low: int, high: int) -> tuple[int, int]:
        """First and last of the `modulus` integers around the middle of low..high."""
        first = validate_integer("low", low)
        last = validate_integer("high", high)
        spare = self.modulus - (last - first + 1)
        if last < first or spare < 0:
            raise InputError(
                f"the window {first}..{last} must contain between 1 and modulus = "
                f"{self.modulus} integers; see modulus_for."
            )
        start = first - spare // 2
        return start, start + self.modulus - 1

    def clamped(self, total: int, low: int, high: int) -> int:
        """Return an exact sum, clipped to the integers of a residue if low..high is expected."""
        start, end = self.window(low, high)
        return min(max(total, start), end)

    def _checked(self, residues: NDArray[Any]) -> NDArray[np.uint64]:
        array = np.asarray(residues)
        if array.dtype != np.uint64:
            raise InputError(f"residues must be a uint64 array, got {array.dtype}.")
        if array.size and int(array.max()) >= self.modulus:
            raise DomainError(
                f"residues must lie in 0..{self.modulus - 1}, got {int(array.max())}; a "
                "message is damaged."
            )
        return array
