"""Shares of a report, each sealed for one adder, and the name that binds them.

HPKE as in `sealed_boxes`. The report of a person for K adders is K boxes of equal length:

    info(k) = "metricshuffle-adder/1" and a zero byte | k u8 | digest of the sum (32)   (k from 0)
    share   = the numbers of a report, each in the fewest bytes that hold the modulus less 1,
              little endian
    box(k)  = enc 32 | ciphertext of (ticket 0 or 16 | share k) | tag 16
    h(k)    = SHA-256(box(k))
    name    = SHA-256(digest | h(0) | .. | h(K - 1))

The total of adder k is sealed for the analyst: the analyst's token is sent to all adders, and any
of them could fetch the totals of the others with it.

    info(total k) = "metricshuffle-total/1" and a zero byte | k u8 | digest (32)

Adder k gets h(0) | .. | h(K - 1) | box(k). The name binds all boxes: two adders cannot have parts
of different reports under one name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from metricshuffle.collection.sealed_boxes import (
    ADDED,
    DIGEST_BYTES,
    TICKET_BYTES,
    NotOpened,
    PrivateKey,
    PublicKey,
)
from metricshuffle.errors import PlanError

ADDER_PREFIX = b"metricshuffle-adder/1\0"
TOTAL_PREFIX = b"metricshuffle-total/1\0"
TICKET_PREFIX = b"metricshuffle adder ticket/1\0"
HASH_BYTES = 32
NAME_BYTES = 32
WORD_BYTES = 8
MAX_SHARE_BYTES = 2**20
"""Limit of the bytes of a share."""
Residues = NDArray[np.uint64]


class UniformResidues(Protocol):
    """Source of uniform residues (`Randomness`)."""

    def uniform_residues(self, count: int, modulus: int) -> Residues: ...


def split_residues(
    residues: Residues, modulus: int, servers: int, randomness: UniformResidues
) -> Residues:
    """Split residues into shares, one array of the same shape for each server.

    All shares but the first are uniform and independent; the first is the difference. Any shares
    but one are therefore uniform, whatever the residues are.
    """
    shares = np.empty((servers, *residues.shape), dtype=np.uint64)
    shares[1:] = randomness.uniform_residues((servers - 1) * residues.size, modulus).reshape(
        servers - 1, *residues.shape
    )
    shares[0] = residues % np.uint64(modulus)
    for share in shares[1:]:
        # Both are below modulus <= 2^62, so that nothing overflows.
        shares[0] += np.uint64(modulus) - share
        shares[0] %= np.uint64(modulus)
    return shares


def add_residues(first: Residues, second: Residues, modulus: int) -> Residues:
    """Add residues below a modulus of at most 2^62."""
    total: Residues = (first + second) % np.uint64(modulus)
    return total


def adder_ticket(ticket: bytes, place: int) -> bytes:
    """Derive the ticket for one adder from a person's ticket.

    No adder can compute the ticket for another one.
    """
    return hashlib.sha256(TICKET_PREFIX + bytes([place]) + ticket).digest()[:TICKET_BYTES]


@dataclass(frozen=True)
class SharePart:
    """What an adder receives of a report: the hashes of all boxes, and its own box."""

    hashes: bytes
    box: bytes


@dataclass(frozen=True)
class ShareFormat:
    """Parameters of the boxes of a sum."""

    digest: bytes
    modulus: int
    length: int
    servers: int
    ticket: int = 0

    def __post_init__(self) -> None:
        if (
            len(self.digest) != DIGEST_BYTES
            or self.ticket not in (0, TICKET_BYTES)
            or self.share_size > MAX_SHARE_BYTES
        ):
            raise PlanError(
                f"a share of this sum has {self.share_size:,} bytes, more than "
                f"{MAX_SHARE_BYTES:,}, or its lengths are invalid; ask for less at once."
            )

    @property
    def number_size(self) -> int:
        """Bytes of a number."""
        return ((self.modulus - 1).bit_length() + 7) // 8

    @property
    def share_size(self) -> int:
        return self.length * self.number_size

    @property
    def box_size(self) -> int:
        return self.ticket + self.share_size + ADDED

    @property
    def report_size(self) -> int:
        """Bytes that an adder receives."""
        return self.servers * HASH_BYTES + self.box_size

    def info(self, place: int) -> bytes:
        """HPKE info, which binds a box to its adder and its sum."""
        return ADDER_PREFIX + bytes([place]) + self.digest

    def total_info(self, place: int) -> bytes:
        """HPKE info of the total of an adder, which is sealed for the analyst."""
        return TOTAL_PREFIX + bytes([place]) + self.digest

    # Numbers

    def packed(self, residues: Residues) -> bytes:
        """Bytes of one row of residues."""
        rows = np.ascontiguousarray(residues, dtype="<u8").view(np.uint8)
        return rows.reshape(-1, WORD_BYTES)[:, : self.number_size].tobytes()

    def unpacked(self, data: bytes) -> Residues:
        """Residues of a share or a total; raises NotOpened for another length or range."""
        if len(data) != self.share_size:
            raise NotOpened("this share cannot be read.")
        rows = np.zeros((self.length, WORD_BYTES), dtype=np.uint8)
        rows[:, : self.number_size] = np.frombuffer(data, np.uint8).reshape(self.length, -1)
        residues: Residues = rows.view("<u8").ravel().astype(np.uint64)
        if int(residues.max()) >= self.modulus:
            raise NotOpened("this share cannot be read.")
        return residues

    # Boxes

    def sealed(
        self,
        residues: Residues,
        keys: Sequence[PublicKey],
        randomness: UniformResidues,
        ticket: bytes = b"",
    ) -> bytes:
        """Split the numbers of a report and seal a share for each adder; return all boxes."""
        if residues.shape != (self.length,) or len(keys) != self.servers:
            raise PlanError(
                f"a report of this sum must have {self.length:,} numbers, for {self.servers} "
                "adders."
            )
        if len(ticket) != self.ticket:
            raise PlanError(f"a ticket of this sum must have {self.ticket} bytes.")
        shares = split_residues(residues, self.modulus, self.servers, randomness)
        boxes = []
        for place, (share, key) in enumerate(zip(shares, keys, strict=True)):
            own_ticket = adder_ticket(ticket, place) if ticket else b""
            boxes.append(key.sealed(own_ticket + self.packed(share), self.info(place)))
        return b"".join(boxes)

    def bodies(self, boxes: bytes) -> list[bytes]:
        """Content that each adder receives of a report."""
        size = self.box_size
        if len(boxes) != self.servers * size:
            raise PlanError("this is not a report of this sum; its length is another one.")
        pieces = [boxes[start : start + size] for start in range(0, len(boxes), size)]
        hashes = b"".join(hashlib.sha256(box).digest() for box in pieces)
        return [hashes + box for box in pieces]

    def part(self, body: bytes, place: int) -> SharePart:
        """Read what the adder at a place received; raises NotOpened unless its hash fits."""
        end = self.servers * HASH_BYTES
        part = SharePart(body[:end], body[end:])
        start = place * HASH_BYTES
        if (
            len(body) != self.report_size
            or hashlib.sha256(part.box).digest() != part.hashes[start : start + HASH_BYTES]
        ):
            raise NotOpened("this report cannot be opened.")
        return part

    def name(self, part: SharePart) -> bytes:
        """Name of a report, the same at all adders."""
        return hashlib.sha256(self.digest + part.hashes).digest()

    def opened(self, part: SharePart, key: PrivateKey, place: int) -> tuple[bytes, bytes]:
        """Open a box: its ticket and its share, which is checked."""
        inside = key.opened(part.box, self.info(place))
        ticket, share = inside[: self.ticket], inside[self.ticket :]
        self.unpacked(share)
        return ticket, share
