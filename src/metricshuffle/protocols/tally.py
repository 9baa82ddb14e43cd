"""What is left of many reports: sums or counts, and how many people they come from. No order, and no ids but those of whole batches.

A `Tally` adds and merges; `Shuffled` is what a shuffler, an aggregator or a curator lets go of it. An analyst estimates from the second.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from metricshuffle.display import Brief
from metricshuffle.encodings.binary_frame import Frame, header_integer
from metricshuffle.errors import InputError, PlanError
from metricshuffle.models import content_digest

# A sum of numbers is written with this many bytes: 1e13 people of 64-bit numbers need 14.
NUMBER_BYTES = 16
# Of the random id of a batch, and of a report.
ID_BYTES = 16
# What a tally may hold at the most (64 MB), the key of a row included; a curator's fractions take one row of sums for every number of
# items that somebody holds.
MAX_NUMBERS = 2**22

Sums = dict[int, list[int]]
"""One row of sums under 0; a curator's fractions have a row for each number of items, under that number."""


@dataclass(frozen=True, eq=False)
class Batch:
    """Which task and round reports or tallies belong to, and whether seeded randomness made any of them."""

    task: str
    """Digest of the task."""
    round: int = 1
    seeded: bool = False

    def check_same(self, other: Batch, what: str) -> None:
        if other.task != self.task:
            raise PlanError(f"{what} for another task (the digests differ); use the task the clients used.")
        if other.round != self.round:
            raise PlanError(f"{what} in round {other.round}, and not in round {self.round}; rounds are not mixed.")


@dataclass(eq=False)
class _TallyBase(Brief):
    """The common part of a tally and of what is published of it."""

    formats: ClassVar[tuple[str, str]]
    """Of honest and of seeded ones."""
    earlier_formats: ClassVar[tuple[str, ...]] = ()
    """Of honest and of seeded ones, as earlier versions wrote them; they can be read."""
    what: ClassVar[str]

    batch: Batch
    people: int
    messages: int
    sums: Mapping[int, list[int]]
    modulus: int | None = None
    """Sums are residues of this, if it is given."""

    @property
    def numbers(self) -> list[int]:
        """The single row of sums."""
        if set(self.sums) != {0}:
            raise PlanError(f"{self.what} of this kind has one row of sums, got {len(self.sums)}; it belongs to another protocol.")
        return self.sums[0]

    def to_bytes(self) -> bytes:
        """Versioned, with lengths and a checksum; the same sums give the same bytes, however they came about."""
        rows = sorted(self.sums.items())
        header = {
            "task": self.batch.task,
            "round": self.batch.round,
            "people": self.people,
            "messages": self.messages,
            "modulus": self.modulus,
            "rows": [[key, len(row)] for key, row in rows],
        }
        try:
            body = b"".join(number.to_bytes(NUMBER_BYTES, "little", signed=True) for _, row in rows for number in row)
        except OverflowError:
            raise PlanError(f"{self.what} has sums that are too large to be written; something else than reports was added up.") from None
        more, after = self._more()
        return Frame(self.formats[self.batch.seeded], {**header, **more}, body + after).to_bytes()

    def _more(self) -> tuple[dict[str, Any], bytes]:
        """What else stands in the header, and what follows the sums."""
        return {}, b""

    @classmethod
    def _read_more(cls, frame: Frame, after: bytes) -> dict[str, Any]:
        """The fields that `_more` wrote."""
        if after:
            raise _strange(cls.what)
        return {}

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Undo `to_bytes`; what is damaged or something else is refused in words."""
        frame = Frame.from_bytes(data, (*cls.formats, *cls.earlier_formats), cls.what)
        header, what = frame.header, cls.what
        rows, task = header.get("rows"), header.get("task")
        strange = _strange(what)
        if not isinstance(task, str) or not isinstance(rows, list):
            raise strange
        sums: Sums = {}
        start = 0
        for row in rows:
            if not (isinstance(row, list) and len(row) == 2 and all(type(part) is int and part >= 0 for part in row)) or row[0] in sums:
                raise strange
            end = start + row[1] * NUMBER_BYTES
            if end > len(frame.body):
                raise strange
            pieces = range(start, end, NUMBER_BYTES)
            sums[row[0]] = [int.from_bytes(frame.body[at : at + NUMBER_BYTES], "little", signed=True) for at in pieces]
            start = end
        more = cls._read_more(frame, frame.body[start:])
        batch = Batch(task, header_integer(header, "round", what, 1), frame.format in (cls.formats[1], *cls.earlier_formats[1:2]))
        modulus = None if header.get("modulus") is None else header_integer(header, "modulus", what, 2)
        return cls(batch, header_integer(header, "people", what), header_integer(header, "messages", what), sums, modulus, **more)


def _strange(what: str) -> PlanError:
    return PlanError(f"{what} is damaged: its rows are not what its length says; ask for it again.")


class Counting(Protocol):
    """What a tally needs to know of a protocol."""

    @property
    def modulus(self) -> int | None: ...
    def counted(self, messages: NDArray[Any]) -> Mapping[int, list[int]]: ...


@dataclass(eq=False)
class Tally(_TallyBase):
    """Sums that are still being added up. Adding and merging are associative and commutative: any split gives the same bytes."""

    formats: ClassVar[tuple[str, str]] = ("metricshuffle-tally/1", "metricshuffle-tally-seeded/1")
    what: ClassVar[str] = "a tally"

    protocol: Counting | None = field(default=None, kw_only=True)

    def add(self, messages: NDArray[Any], *, seeded: bool = False) -> Tally:
        """Add the messages of more people, a row each. Returns itself."""
        if self.protocol is None:
            raise InputError("this tally was read from bytes and does not know its task; read it with task.tally(data) to add to it.")
        return self._added(len(messages), messages.size, self.protocol.counted(messages), seeded)

    def merge(self, other: Tally) -> Tally:
        """A new tally of both together; they must be of one task and one round."""
        if not isinstance(other, Tally):
            raise InputError(f"only tallies can be merged, got {type(other).__name__}.")
        if other is self:
            raise InputError("a tally cannot be merged with itself: everybody in it would count twice.")
        self.batch.check_same(other.batch, "this tally was made")
        if other.modulus != self.modulus:
            raise PlanError("these tallies have different moduli; one of them was made by something else.")
        mine = replace(self, sums={key: list(row) for key, row in self.sums.items()})
        return mine._added(other.people, other.messages, other.sums, other.batch.seeded)

    def _added(self, people: int, messages: int, sums: Mapping[int, list[int]], seeded: bool) -> Tally:
        together = dict(self.sums)
        for key, more in sums.items():
            mine = together.get(key, [0] * len(more))
            if len(mine) != len(more):
                raise PlanError(f"a row of {len(more):,} sums cannot be added to one of {len(mine):,}; it belongs to another protocol.")
            added = [left + right for left, right in zip(mine, more, strict=True)]
            together[key] = added if self.modulus is None else [number % self.modulus for number in added]
        if sum(len(row) + 1 for row in together.values()) > MAX_NUMBERS:
            raise InputError(
                f"users hold so many different numbers of items that an exact sum takes more than {MAX_NUMBERS:,} numbers; "
                "let everybody draw the same number of items, or ask about fewer points."
            )
        self.batch = replace(self.batch, seeded=self.batch.seeded or seeded)
        self.people, self.messages, self.sums = self.people + people, self.messages + messages, together
        return self


@dataclass(eq=False)
class Shuffled(_TallyBase):
    """What the shuffler (aggregator, curator) lets the analyst see; a raw tally or unshuffled reports are other types.

    `batches` are the ids of the batches of reports that are in it, 16 random bytes each, sorted, so that they say nothing of the order
    in which they came. An analyst, who keeps count with them (`planning.costs.release_ledger`), learns from an id that its batch is in
    it and nothing
    else: that somebody took part is public. There are none in files of earlier versions, and in what is published of a tally alone.
    """

    formats: ClassVar[tuple[str, str]] = ("metricshuffle-shuffled/3", "metricshuffle-shuffled-seeded/3")
    earlier_formats: ClassVar[tuple[str, ...]] = ("metricshuffle-shuffled/2", "metricshuffle-shuffled-seeded/2")
    what: ClassVar[str] = "a shuffled batch"

    batches: tuple[bytes, ...] = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        self.batches = tuple(sorted(set(self.batches)))
        if any(len(batch_id) != ID_BYTES for batch_id in self.batches):
            raise InputError(f"the id of a batch of reports is {ID_BYTES} bytes long.")

    @property
    def reports(self) -> int:
        return self.people

    @property
    def fingerprint(self) -> str:
        """SHA-256 of task, round, people and sums: the same in whatever file they lie, and another as soon as a number differs."""
        rows = [[key, [str(number) for number in row]] for key, row in sorted(self.sums.items())]
        return content_digest([self.batch.task, self.batch.round, self.people, self.messages, rows])

    def _more(self) -> tuple[dict[str, Any], bytes]:
        return {"batches": len(self.batches)}, b"".join(self.batches)

    @classmethod
    def _read_more(cls, frame: Frame, after: bytes) -> dict[str, Any]:
        if frame.format in cls.earlier_formats:
            return super()._read_more(frame, after)
        if len(after) != ID_BYTES * header_integer(frame.header, "batches", cls.what):
            raise _strange(cls.what)
        return {"batches": tuple(after[at : at + ID_BYTES] for at in range(0, len(after), ID_BYTES))}


def exact_sums(records: NDArray[Any]) -> list[int]:
    """The sum of every column of whole numbers of up to 64 bits, exactly: in halves of 32 bits, so that nothing overflows."""
    if records.dtype.kind == "u":
        wide = records.astype(np.uint64, copy=False)
        low, high = (wide & np.uint64(0xFFFFFFFF)).sum(axis=0), (wide >> np.uint64(32)).sum(axis=0)
    else:
        signed = records.astype(np.int64, copy=False)
        low, high = (signed & 0xFFFFFFFF).sum(axis=0), (signed >> 32).sum(axis=0)
    return [(int(up) << 32) + int(down) for up, down in zip(high, low, strict=True)]
