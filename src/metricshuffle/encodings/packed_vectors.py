"""Integer vectors as packed residues modulo a power of two, of which only the sums are revealed."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from metricshuffle.accounting.sums import split_and_mix
from metricshuffle.encodings.modular_shares import MIN_SHARES, Modular
from metricshuffle.errors import DomainError, InputError, argument
from metricshuffle.numerics.types import Integers64
from metricshuffle.privacy.guarantee import Who
from metricshuffle.randomness import Randomness

MAX_BITS = 62
"""Maximum bits of a residue."""
MAX_GROUP_BITS = split_and_mix.LARGEST_MODULUS.bit_length() - 1
MAX_TOGETHER = 16
SEALED_BITS = 8 * 48
"""Bits that sealing adds to a message: a fresh public key of 32 bytes and a tag of 16 bytes."""
WORDS_TOGETHER = 2**16
"""Random words in memory at a time, unless one person needs more."""


@dataclass(frozen=True)
class Packed:
    """Encoding of `coordinates` integers as residues modulo 2^bits, `together` of them per message.

    Through a shuffler: a group of `together` residues and a constant 0 form one element of
    Z_{2^bits}^(together + 1). It is sent as `shares` elements that add up to it, all but one of
    them exactly uniform (split-and-mix). Every message names its group, and each group is shuffled
    independently of the others. How well a shuffled group hides everything but its sum is
    `accounting.sums.split_and_mix.security_bits(honest, shares, 2**group_bits)`.

    The constant 0 is a check: if a message of a group is missing, the sum there is uniform, so the
    loss goes unnoticed with probability 2^-bits only. It does not protect against deliberate
    changes of messages, which can set any sum anyway.

    To an aggregator that reveals only the sums, to a curator, or directly to the analyst (trusted
    "nobody"): one element per group without the check, not hidden from its recipient. The last
    group is padded with zeros, so that all messages have the same length.
    """

    coordinates: int
    bits: int
    together: int
    shares: int
    trusted: Who

    def __post_init__(self) -> None:
        for name, maximum in (
            ("coordinates", None),
            ("bits", MAX_BITS),
            ("together", self.coordinates),
            ("shares", None),
        ):
            value = getattr(self, name)
            if (
                isinstance(value, bool)
                or not isinstance(value, int)
                or value < 1
                or (maximum is not None and value > maximum)
            ):
                raise InputError(
                    f"{argument(name)} must be a whole number "
                    f"{'>= 1' if maximum is None else f'in 1..{maximum}'}, got {value!r}."
                )
        if self.trusted not in get_args(Who):
            raise InputError(
                f"{argument('trusted')} must be one of {', '.join(get_args(Who))}, got "
                f"{self.trusted!r}."
            )
        if self.trusted != "shuffler" and self.shares != 1:
            raise InputError(
                f"{self.trusted} takes shares = 1 element per group, got {self.shares}; "
                "more are for a shuffler."
            )
        if self.trusted == "shuffler" and self.shares < MIN_SHARES:
            raise InputError(
                f"a shuffler needs shares >= {MIN_SHARES} per group to hide anything, got "
                f"{self.shares}."
            )
        if self.trusted == "shuffler" and self.group_bits > MAX_GROUP_BITS:
            raise InputError(
                f"{self.together} coordinates of {self.bits} bits and a check exceed "
                f"{MAX_GROUP_BITS} bits; put fewer together."
            )

    @property
    def groups(self) -> int:
        return -(-self.coordinates // self.together)

    @property
    def width(self) -> int:
        """Number of residues in a message."""
        return self.together + (self.trusted == "shuffler")

    @property
    def group_bits(self) -> int:
        """log2 of the size of the algebraic group whose elements are split."""
        return self.bits * self.width

    @property
    def messages_per_user(self) -> int:
        return self.groups * self.shares

    @property
    def bits_per_message(self) -> int:
        """Bits of an element and of the index of its group."""
        return self.group_bits + (self.groups - 1).bit_length()

    @property
    def bits_per_user(self) -> int:
        return self.messages_per_user * self.bits_per_message

    @property
    def numbers(self) -> int:
        """Number of residues in a report: the messages of each group, one after another."""
        return self.messages_per_user * self.width

    @property
    def type(self) -> np.dtype[Any]:
        """Smallest unsigned integer type that fits a residue."""
        return np.dtype("<u2" if self.bits <= 16 else "<u4" if self.bits <= 32 else "<u8")

    def residues(self, values: Integers64, randomness: Randomness) -> NDArray[Any]:
        """Return one report per row, whose residues add up to the values modulo 2^bits by group.

        Memory for n people: the reports, n * numbers * type.itemsize bytes, and half a megabyte of
        random words (more only if one person needs more). The same random stream gives the same
        reports, however people are divided into chunks.
        """
        from metricshuffle.encodings import _packed_kernels as kernels

        integers = np.asarray(values)
        if (
            integers.ndim != 2
            or integers.shape[1] != self.coordinates
            or integers.dtype.kind not in "iu"
            or integers.dtype == np.uint64
        ):
            raise InputError(
                f"values must be signed integers, {self.coordinates} for each person, "
                f"got {integers.dtype} of shape {integers.shape}."
            )
        integers = np.ascontiguousarray(integers, dtype=np.int64)
        people = len(integers)
        each = 64 // self.bits
        needed = -(-self.groups * (self.shares - 1) * self.width // each)
        out = np.empty((people, self.numbers), dtype=self.type)
        block = max(1, WORDS_TOGETHER // max(1, needed))
        words = np.empty((min(block, people), needed), dtype=np.uint64)
        for done in range(0, people, block):
            some = integers[done : done + block]
            randomness.fill(words[: len(some)].reshape(-1))
            kernels.split(
                some,
                self.together,
                self.width,
                self.shares,
                self.bits,
                words,
                out[done : done + block],
            )
        return out

    def total(self, rows: NDArray[Any]) -> list[int]:
        """Return the exact sum of each coordinate over all reports, modulo 2^bits.

        Raises:
            DomainError: a residue is out of range, or a check does not add up to 0.
        """
        from metricshuffle.encodings import _packed_kernels as kernels

        reports = self._shaped(rows)
        sums = np.zeros(self.numbers, dtype=np.uint64)
        if int(kernels.add_up(reports, sums)) >> self.bits:
            raise self._damaged(reports)
        groups = sums.reshape(self.groups, self.shares, self.width).sum(
            axis=1, dtype=np.uint64
        ) & np.uint64(2**self.bits - 1)
        if self.trusted == "shuffler" and groups[:, -1].any():
            pile = 1 + int(np.flatnonzero(groups[:, -1])[0])
            raise DomainError(
                f"shares are missing or damaged in group {pile} of {self.groups}; a report counts "
                "only if all of it has arrived, so leave out incomplete reports."
            )
        return [int(total) for total in groups[:, : self.together].reshape(-1)[: self.coordinates]]

    def piles(self, rows: NDArray[Any]) -> list[NDArray[Any]]:
        """Return all messages of each group, sorted so that only their multiset is revealed."""
        reports = self._shaped(rows)
        if reports.size and int(reports.max()) >> self.bits:
            raise self._damaged(reports)
        elements = reports.reshape(len(reports), self.groups, self.shares, self.width)
        flat = (
            np.ascontiguousarray(elements[:, group]).reshape(-1, self.width)
            for group in range(self.groups)
        )
        return [pile[np.lexsort(pile.T[::-1])] for pile in flat]

    def centred(self, total: int, low: int, high: int) -> int:
        """Return the integer that a coordinate's total represents, expected in low..high.

        See `Modular.centred`.
        """
        return self._residue.centred(total, low, high)

    @cached_property
    def _residue(self) -> Modular:
        """Encoding of one coordinate of a sum."""
        return Modular(2**self.bits, 1, "aggregator")

    def _shaped(self, rows: NDArray[Any]) -> NDArray[Any]:
        reports = np.asarray(rows)
        if reports.ndim != 2 or reports.shape[1] != self.numbers or reports.dtype != self.type:
            raise InputError(
                f"reports must be rows of {self.numbers} residues of type {self.type.str}, "
                f"got {reports.dtype} of shape {reports.shape}."
            )
        return reports

    def _damaged(self, reports: NDArray[Any]) -> DomainError:
        person, place = np.argwhere(reports >= 2**self.bits)[0]
        return DomainError(
            f"residues must lie in 0..{2**self.bits - 1}, got "
            f"{int(reports[person, place])} in report {person} (counting from 0); "
            "a message is damaged."
        )


def cheapest_packing(
    honest: int, coordinates: int, bits: int, epsilon: float, delta: float
) -> Packed:
    """Packing through a shuffler that sends the fewest bits, seals included.

    Candidates have 1 to 16 coordinates per message. Each takes the fewest shares with which
    shuffling all its groups adds at most `delta` at a total of `epsilon`: groups *
    view_penalty(epsilon, security_bits(honest, shares, 2^group_bits)) <= delta, compared as exact
    fractions.
    Conditions: those of `security_bits` for `honest` people; `epsilon` is over ALL who move.
    """
    if not (isinstance(delta, int | float) and 0.0 < delta < 1.0):
        raise InputError(
            f"{argument('delta')} must be a number above 0 and below 1, got {delta!r}."
        )
    split_and_mix.view_penalty(epsilon, 0.0)  # validates epsilon
    alone = Packed(coordinates, bits, 1, MIN_SHARES, "shuffler")
    candidates = []
    for together in range(1, min(MAX_TOGETHER, coordinates, MAX_GROUP_BITS // bits - 1) + 1):
        packed = replace(alone, together=together)
        candidates.append(replace(packed, shares=_fewest_shares(honest, packed, epsilon, delta)))
    return min(
        candidates,
        key=lambda packed: packed.messages_per_user * (packed.bits_per_message + SEALED_BITS),
    )


def _fewest_shares(honest: int, packed: Packed, epsilon: float, delta: float) -> int:
    def adds(shares: int) -> Fraction:
        sigma = split_and_mix.security_bits(honest, shares, 2**packed.group_bits)
        return packed.groups * Fraction(split_and_mix.view_penalty(epsilon, sigma))

    # Slightly less than needed, (1 + e^epsilon) groups / 2 <= delta 2^sigma, so that fewer shares
    # are certainly too few.
    min_sigma = (
        epsilon + math.log1p(math.exp(-epsilon)) + math.log(packed.groups / 2.0 / delta)
    ) / math.log(2.0) - 1e-6
    shares = split_and_mix.messages_needed(
        honest, 2**packed.group_bits, min(max(0.0, min_sigma), split_and_mix.MAX_BITS)
    )
    while adds(shares) > Fraction(delta):
        shares += 1
    return shares
