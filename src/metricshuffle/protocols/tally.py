"""Tallies: sums or counts of many reports, with the number of people and the ids of batches.

A tally contains no order and no ids of single reports. A `Tally` adds and merges; `Shuffled` is
what a shuffler, an aggregator or a curator releases of it, and what an analyst estimates from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol, Self, TypedDict

import numpy as np
from numpy.typing import NDArray

from metricshuffle.display import Brief
from metricshuffle.encodings.binary_frame import Frame, header_integer
from metricshuffle.errors import InputError, PlanError
from metricshuffle.models import content_digest

# Bytes per sum: sums over 1e13 people of 64-bit numbers need 14.
NUMBER_BYTES = 16
# Bytes of the random id of a batch or a report.
ID_BYTES = 16
# Maximum numbers in a tally (64 MB), including one key per row; a curator's fractions take one row
# of sums for every number of items that a person has.
MAX_NUMBERS = 2**22
# Maximum sets of dummies in counts: those of a chain of shufflers, and the publisher's.
MAX_NOISE_SETS = 16

Sums = dict[int, list[int]]
"""One row of sums under key 0; a curator's fractions have one row per number of items."""


@dataclass(frozen=True, eq=False)
class Batch:
    """Task and round of reports or tallies, and whether seeded randomness made any of them."""

    task: str
    """Digest of the task."""
    round: int = 1
    seeded: bool = False

    def check_same(self, other: Batch, what: str) -> None:
        """Raise unless the other batch has the same task and round."""
        if other.task != self.task:
            raise PlanError(
                f"{what} for another task (the digests differ); use the task the clients used."
            )
        if other.round != self.round:
            raise PlanError(
                f"{what} in round {other.round}, and not in round {self.round}; rounds are "
                "not mixed."
            )


@dataclass(eq=False)
class _TallyBase(Brief):
    """Common part of a tally and of what is published of it."""

    formats: ClassVar[tuple[str, str]]
    """Formats of unseeded and of seeded files."""
    earlier_formats: ClassVar[tuple[str, ...]] = ()
    """Formats of unseeded and of seeded files of earlier versions, which can still be read."""
    what: ClassVar[str]

    batch: Batch
    people: int
    messages: int
    sums: Mapping[int, list[int]]
    modulus: int | None = None
    """If not None, sums are residues modulo this number."""
    noise_sets: int = field(default=0, kw_only=True)
    """Sets of dummies in counts: one of each shuffler that added its own, and the publisher's."""

    @property
    def numbers(self) -> list[int]:
        """The only row of sums."""
        if set(self.sums) != {0}:
            raise PlanError(
                f"{self.what} of this kind has one row of sums, got {len(self.sums)}; it "
                "belongs to another protocol."
            )
        return self.sums[0]

    def to_bytes(self) -> bytes:
        """Serialize with a version, lengths and a checksum; equal sums give equal bytes."""
        rows = sorted(self.sums.items())
        header = {
            "task": self.batch.task,
            "round": self.batch.round,
            "people": self.people,
            "messages": self.messages,
            "modulus": self.modulus,
            "rows": [[key, len(row)] for key, row in rows],
        }
        if self.noise_sets != type(self).noise_sets:
            header["noise_sets"] = self.noise_sets
        try:
            body = b"".join(
                number.to_bytes(NUMBER_BYTES, "little", signed=True)
                for _, row in rows
                for number in row
            )
        except OverflowError:
            raise PlanError(
                f"{self.what} has sums that are too large to be written; something else "
                "than reports was added up."
            ) from None
        more, after = self._more()
        return Frame(self.formats[self.batch.seeded], {**header, **more}, body + after).to_bytes()

    def _more(self) -> tuple[dict[str, Any], bytes]:
        """Additional header fields, and bytes after the sums."""
        return {}, b""

    @classmethod
    def _read_more(cls, frame: Frame, after: bytes) -> dict[str, Any]:
        """Parse the fields written by `_more`."""
        if after:
            raise _strange(cls.what)
        return {}

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Parse the output of `to_bytes`; PlanError if it is damaged or of another format."""
        frame = Frame.from_bytes(data, (*cls.formats, *cls.earlier_formats), cls.what)
        header = frame.header
        what = cls.what
        rows = header.get("rows")
        task = header.get("task")
        strange = _strange(what)
        if not isinstance(task, str) or not isinstance(rows, list):
            raise strange
        sums: Sums = {}
        start = 0
        for row in rows:
            if (
                not (
                    isinstance(row, list)
                    and len(row) == 2
                    and all(type(part) is int and part >= 0 for part in row)
                )
                or row[0] in sums
            ):
                raise strange
            end = start + row[1] * NUMBER_BYTES
            if end > len(frame.body):
                raise strange
            pieces = range(start, end, NUMBER_BYTES)
            sums[row[0]] = [
                int.from_bytes(frame.body[at : at + NUMBER_BYTES], "little", signed=True)
                for at in pieces
            ]
            start = end
        more = cls._read_more(frame, frame.body[start:])
        batch = Batch(
            task,
            header_integer(header, "round", what, 1),
            frame.format in (cls.formats[1], *cls.earlier_formats[1:2]),
        )
        modulus = (
            None if header.get("modulus") is None else header_integer(header, "modulus", what, 2)
        )
        return cls(
            batch,
            header_integer(header, "people", what),
            header_integer(header, "messages", what),
            sums,
            modulus,
            noise_sets=cls._read_noise_sets(frame),
            **more,
        )

    @classmethod
    def _read_noise_sets(cls, frame: Frame) -> int:
        """Number of sets of dummies that a header states, or the usual number."""
        if "noise_sets" not in frame.header:
            return cls.noise_sets
        sets = header_integer(frame.header, "noise_sets", cls.what, cls.noise_sets)
        if sets > MAX_NOISE_SETS:
            raise _strange(cls.what)
        return sets

    def check_noise_sets(self, max_sets: int) -> None:
        """Raise unless a protocol that allows up to `max_sets` sets of dummies can have made it."""
        usual = type(self).noise_sets
        if not max(usual, self._least_sets) <= self.noise_sets <= max(usual, max_sets):
            raise PlanError(
                f"{self.what} has {self.noise_sets:,} sets of dummies, but this task's protocol "
                f"allows {max(usual, max_sets):,}; it was not made for it."
            )

    @property
    def _least_sets(self) -> int:
        """Least number of sets that its other fields allow."""
        return 0


def _strange(what: str) -> PlanError:
    return PlanError(f"{what} is damaged: its rows are not what its length says; ask for it again.")


class Counting(Protocol):
    """The part of a protocol that a tally needs."""

    @property
    def modulus(self) -> int | None: ...
    def counted(self, messages: NDArray[Any]) -> Mapping[int, list[int]]: ...


@dataclass(eq=False)
class Tally(_TallyBase):
    """Sums that are still being added up.

    Adding and merging are associative and commutative: any split gives the same bytes. If shufflers
    of a collection added dummies, `noise_sets` counts their sets, and `publish` adds no dummies.
    """

    formats: ClassVar[tuple[str, str]] = ("metricshuffle-tally/1", "metricshuffle-tally-seeded/1")
    what: ClassVar[str] = "a tally"

    protocol: Counting | None = field(default=None, kw_only=True)

    def add(self, messages: NDArray[Any], *, seeded: bool = False) -> Tally:
        """Add the messages of more people, one row each, in place; return self."""
        if self.protocol is None:
            raise InputError(
                "this tally was read from bytes and does not know its task; read it with "
                "task.tally(data) to add to it."
            )
        return self._added(len(messages), messages.size, self.protocol.counted(messages), seeded)

    def merge(self, other: Tally) -> Tally:
        """Return a new tally of both, which must be of the same task and round."""
        if not isinstance(other, Tally):
            raise InputError(f"only tallies can be merged, got {type(other).__name__}.")
        if other is self:
            raise InputError(
                "a tally cannot be merged with itself: everybody in it would count twice."
            )
        self.batch.check_same(other.batch, "this tally was made")
        if other.modulus != self.modulus:
            raise PlanError(
                "these tallies have different moduli; they belong to different protocols."
            )
        mine = replace(
            self,
            sums={key: list(row) for key, row in self.sums.items()},
            noise_sets=self.noise_sets + other.noise_sets,
        )
        return mine._added(other.people, other.messages, other.sums, other.batch.seeded)

    def _added(
        self, people: int, messages: int, sums: Mapping[int, list[int]], seeded: bool
    ) -> Tally:
        together = dict(self.sums)
        for key, more in sums.items():
            mine = together.get(key, [0] * len(more))
            if len(mine) != len(more):
                raise PlanError(
                    f"a row of {len(more):,} sums cannot be added to one of {len(mine):,}; "
                    "it belongs to another protocol."
                )
            added = [left + right for left, right in zip(mine, more, strict=True)]
            together[key] = (
                added if self.modulus is None else [number % self.modulus for number in added]
            )
        if sum(len(row) + 1 for row in together.values()) > MAX_NUMBERS:
            raise InputError(
                "users hold so many different numbers of items that an exact sum takes "
                f"more than {MAX_NUMBERS:,} numbers; "
                "let everybody draw the same number of items, or ask about fewer points."
            )
        self.batch = replace(self.batch, seeded=self.batch.seeded or seeded)
        self.people, self.messages, self.sums = (
            self.people + people,
            self.messages + messages,
            together,
        )
        return self


class NoiseFields(TypedDict, total=False):
    """Fields of files of shuffled batches that say what noise the counts have."""

    noise_sets: int
    publisher_noise: bool


@dataclass(eq=False)
class Shuffled(_TallyBase):
    """What the shuffler (aggregator, curator) releases to the analyst.

    Raw tallies and unshuffled reports have other types. `batches` are the ids of the contained
    batches of reports, 16 random bytes each, sorted so that they do not reveal the order of
    arrival. An analyst, who counts releases with them (`planning.costs.release_ledger`), learns
    from an id only that its batch is included; that a person took part is public. Files of earlier
    versions, and what is published of a tally alone, have no ids.
    """

    formats: ClassVar[tuple[str, str]] = (
        "metricshuffle-shuffled/3",
        "metricshuffle-shuffled-seeded/3",
    )
    earlier_formats: ClassVar[tuple[str, ...]] = (
        "metricshuffle-shuffled/2",
        "metricshuffle-shuffled-seeded/2",
    )
    what: ClassVar[str] = "a shuffled batch"

    batches: tuple[bytes, ...] = field(default=(), kw_only=True)
    noise_sets: int = field(default=1, kw_only=True)
    publisher_noise: bool = field(default=False, kw_only=True)
    """Whether the publisher added the last set of dummies, unknown to all shufflers."""

    def __post_init__(self) -> None:
        self.batches = tuple(sorted(set(self.batches)))
        if any(len(batch_id) != ID_BYTES for batch_id in self.batches):
            raise InputError(f"the id of a batch of reports is {ID_BYTES} bytes long.")

    @property
    def reports(self) -> int:
        return self.people

    @property
    def fingerprint(self) -> str:
        """SHA-256 of task, round, people and sums, independent of the file that contains them."""
        rows = [[key, [str(number) for number in row]] for key, row in sorted(self.sums.items())]
        content = [self.batch.task, self.batch.round, self.people, self.messages, rows]
        return content_digest([*content, *([self.noise_fields] if self.noise_fields else [])])

    @property
    def noise_fields(self) -> NoiseFields:
        """Fields of a file that describe noise other than one set of dummies of a shuffler."""
        fields: NoiseFields = {}
        if self.noise_sets != type(self).noise_sets:
            fields["noise_sets"] = self.noise_sets
        if self.publisher_noise:
            fields["publisher_noise"] = True
        return fields

    @classmethod
    def read_noise(cls, stored: Mapping[str, object]) -> NoiseFields:
        """Read `noise_fields` from a file; a task checks them."""
        sets = stored.get("noise_sets", cls.noise_sets)
        if not isinstance(sets, int) or isinstance(sets, bool):
            raise _strange(cls.what)
        return {"noise_sets": sets, "publisher_noise": stored.get("publisher_noise") is True}

    @property
    def _least_sets(self) -> int:
        return 2 if self.publisher_noise else 1

    def _more(self) -> tuple[dict[str, Any], bytes]:
        header: dict[str, object] = {"batches": len(self.batches)}
        if self.publisher_noise:
            header["publisher_noise"] = True
        return header, b"".join(self.batches)

    @classmethod
    def _read_more(cls, frame: Frame, after: bytes) -> dict[str, Any]:
        if frame.format in cls.earlier_formats:
            return super()._read_more(frame, after)
        if len(after) != ID_BYTES * header_integer(frame.header, "batches", cls.what):
            raise _strange(cls.what)
        return {
            "publisher_noise": cls.read_noise(frame.header)["publisher_noise"],
            "batches": tuple(after[at : at + ID_BYTES] for at in range(0, len(after), ID_BYTES)),
        }


def exact_sums(records: NDArray[Any]) -> list[int]:
    """Exact sum of every column of whole numbers of up to 64 bits, in halves to avoid overflow."""
    if records.dtype.kind == "u":
        wide = records.astype(np.uint64, copy=False)
        low = (wide & np.uint64(0xFFFFFFFF)).sum(axis=0)
        high = (wide >> np.uint64(32)).sum(axis=0)
    else:
        signed = records.astype(np.int64, copy=False)
        low = (signed & 0xFFFFFFFF).sum(axis=0)
        high = (signed >> 32).sum(axis=0)
    return [(int(up) << 32) + int(down) for up, down in zip(high, low, strict=True)]
