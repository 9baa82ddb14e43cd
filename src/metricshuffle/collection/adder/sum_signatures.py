"""Signed messages between adders: the names that one of them has, and the set that all sum.

Signatures are Ed25519, by the keys that the sum names:

    names     = "metricshuffle adder names/1" and a zero byte | digest (32) | phase u8 |
                number of names u64 | SHA-256 of the names, sorted
    statement = "metricshuffle adder statement/1" and a zero byte | digest (32) |
                SHA-256 of the names of the set, sorted | number of names u64

Numbers are little endian. Phase 0 is the closing time, phase 1 the end of the extension. An adder
signs one statement of a sum for ever: two sets would give a difference of two sums.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from metricshuffle.collection.adder.share_boxes import NAME_BYTES
from metricshuffle.collection.adder.sum_terms import SumCollection
from metricshuffle.collection.sealed_boxes import DIGEST_BYTES
from metricshuffle.collection.signatures import SIGNATURE_BYTES, SigningKey, is_signed
from metricshuffle.errors import PlanError

NAMES_PREFIX = b"metricshuffle adder names/1\0"
STATEMENT_PREFIX = b"metricshuffle adder statement/1\0"
COUNT_BYTES = 8
PHASES = (0, 1)
HEAD_BYTES = 2 + COUNT_BYTES + DIGEST_BYTES + SIGNATURE_BYTES
"""Bytes before the names: adder u8, phase u8, number of names u64, SHA-256, signature."""


class InvalidList(PlanError):
    """A list of names or a statement is not what an adder signs."""


@dataclass(frozen=True)
class ListHead:
    """Signed head of a list of names; it can be checked before the names are read."""

    place: int
    """Index of the adder that signed it."""
    phase: int
    count: int
    hashed: str
    """SHA-256 of the names, in hexadecimal digits."""
    signature: str

    def message(self, digest: str) -> bytes:
        """Message that is signed."""
        return (
            NAMES_PREFIX
            + bytes.fromhex(digest)
            + bytes([self.phase])
            + self.count.to_bytes(COUNT_BYTES, "little")
            + bytes.fromhex(self.hashed)
        )

    def to_bytes(self) -> bytes:
        return (
            bytes([self.place, self.phase])
            + self.count.to_bytes(COUNT_BYTES, "little")
            + bytes.fromhex(self.hashed)
            + bytes.fromhex(self.signature)
        )

    @classmethod
    def read(cls, data: bytes, collection: SumCollection) -> ListHead:
        """Read a head; raises InvalidList unless an adder of the sum signed it."""
        if len(data) != HEAD_BYTES:
            raise InvalidList("a list of names is too short.")
        hash_start = 2 + COUNT_BYTES
        head = cls(
            data[0],
            data[1],
            int.from_bytes(data[2:hash_start], "little"),
            data[hash_start : hash_start + DIGEST_BYTES].hex(),
            data[hash_start + DIGEST_BYTES :].hex(),
        )
        adders = collection.terms.adders
        if (
            head.place >= len(adders)
            or head.phase not in PHASES
            or head.count > collection.terms.maximum
            or not is_signed(
                adders[head.place].signature, head.message(collection.digest), head.signature
            )
        ):
            raise InvalidList("a list of names is not signed by an adder of this sum.")
        return head


@dataclass(frozen=True)
class NameList:
    """Sorted names of the reports that an adder has, signed."""

    head: ListHead
    names: bytes

    @classmethod
    def signed(
        cls, digest: str, place: int, phase: int, names: Sequence[bytes], key: SigningKey
    ) -> NameList:
        data = b"".join(sorted(names))
        head = ListHead(place, phase, len(names), hashlib.sha256(data).hexdigest(), "")
        signature = key.signed(head.message(digest))
        return cls(ListHead(place, phase, head.count, head.hashed, signature), data)

    def check(self) -> None:
        """Raise InvalidList unless the names are those of the head, sorted and distinct."""
        rows = split_names(self.names)
        if (
            len(self.names) != self.head.count * NAME_BYTES
            or hashlib.sha256(self.names).hexdigest() != self.head.hashed
            or any(first >= second for first, second in pairwise(rows))
        ):
            raise InvalidList("the names of a list are not those that were signed, or not sorted.")

    def to_bytes(self) -> bytes:
        return self.head.to_bytes() + self.names


@dataclass(frozen=True)
class SumStatement:
    """The only set of reports that an adder sums; `place` is the index of the adder."""

    place: int
    hashed: str
    """SHA-256 of the sorted names, in hexadecimal digits."""
    people: int
    signature: str

    @staticmethod
    def message(digest: str, hashed: str, people: int) -> bytes:
        """Message that is signed."""
        return (
            STATEMENT_PREFIX
            + bytes.fromhex(digest)
            + bytes.fromhex(hashed)
            + people.to_bytes(COUNT_BYTES, "little")
        )

    @classmethod
    def signed(
        cls, digest: str, place: int, names: Sequence[bytes], key: SigningKey
    ) -> SumStatement:
        hashed = names_hash(names)
        signature = key.signed(cls.message(digest, hashed, len(names)))
        return cls(place, hashed, len(names), signature)

    @property
    def subject(self) -> tuple[str, int]:
        """The set that it names."""
        return self.hashed, self.people

    def check(self, collection: SumCollection) -> None:
        """Raise InvalidList unless the adder at its place signed it."""
        adders = collection.terms.adders
        digits = set("0123456789abcdef")
        if (
            not 0 <= self.place < len(adders)
            or not 0 <= self.people <= collection.terms.maximum
            or len(self.hashed) != 2 * DIGEST_BYTES
            or len(self.signature) != 2 * SIGNATURE_BYTES
            or set(self.hashed + self.signature) - digits
            or not is_signed(
                adders[self.place].signature,
                self.message(collection.digest, self.hashed, self.people),
                self.signature,
            )
        ):
            raise InvalidList("a statement is not signed by an adder of this sum.")


def names_hash(names: Sequence[bytes]) -> str:
    """SHA-256 of sorted names, in hexadecimal digits."""
    return hashlib.sha256(b"".join(names)).hexdigest()


def split_names(data: bytes) -> list[bytes]:
    return [data[start : start + NAME_BYTES] for start in range(0, len(data), NAME_BYTES)]


def common_names(lists: Iterable[bytes]) -> list[bytes]:
    """Sorted names that are in all lists."""
    common: set[bytes] | None = None
    for data in lists:
        names = set(split_names(data))
        common = names if common is None else common & names
    return sorted(common or ())
