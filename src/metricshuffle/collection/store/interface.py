"""What a shuffler remembers of its collections, whichever database keeps it: one row a collection, hidden reports, tickets, the output.

Two implementations, `store_sqlite` and `store_postgres`, are siblings: each method is one transaction, durable before it returns, and safe
beside other processes that use the same database. A state moves forward only, and the database itself checks that.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Literal, get_args

from metricshuffle.collection.terms import Collection
from metricshuffle.errors import InputError, MetricShuffleError

if TYPE_CHECKING:
    from metricshuffle.collection.store.guarded_clock import ClockReading

State = Literal["open", "sealed", "shuffled", "erased", "released", "purged", "aborted"]
STATES: tuple[State, ...] = get_args(State)
CHUNK = 2**20
"""Bytes of the output that are stored, read and sent at once, about."""


class StoreError(MetricShuffleError):
    """The database cannot be used now: a full disk, a lost connection, a file of something else. Nothing was acknowledged."""


class DatabaseDamaged(StoreError):
    """The database does not hold the reports that it counted; trying again does not help."""


class ClockJumped(StoreError):
    """The clock is ahead of what it should say; nothing is decided by it."""


class DuplicateCollection(InputError):
    """There is another collection of that task, round and part: people could report twice."""


class Verdict(Enum):
    """What became of a report that was handed in."""

    STORED = "stored"
    SAME = "same"
    """The same bytes were stored before: the same answer."""
    UNKNOWN_TICKET = "unknown ticket"
    SPENT_TICKET = "spent ticket"
    CLOSED = "closed"
    FULL = "full"


@dataclass(frozen=True)
class Entry:
    """An opened report as it is stored: its tag, the hash of its ticket (empty if none is asked for), and its boxes, hidden."""

    tag: bytes
    ticket: bytes
    hidden: bytes


@dataclass(frozen=True)
class Row:
    """What is known of a collection. `served` is what was hashed; the rest of it is read from there, except what happened since."""

    digest: str
    served: bytes
    key: str
    """This hop's public key, by which its secrets are found in the keys folder."""
    state: State
    reports: int
    """Stored ones; 0 at later hops, which get messages and cannot count people."""
    until: float
    """Nothing is accepted from then on: the closing time, or the last one once it was extended."""
    people: int = 0
    """Whose messages were let go, once it is shuffled."""
    left_out: int = 0
    """Reports that shared a box with another one."""
    output: str = ""
    """SHA-256 of what was let go."""
    reason: str = ""
    """Why it was aborted."""
    sealed_at: float = 0.0
    released_at: float = 0.0
    collected: bool = False
    """Whether whoever fetches it said that it is safe."""
    clock: str = ""
    """What the operator did to the clock while it was going on, a public sentence a line."""
    owner: str = ""
    """Which folder of keys it belongs to, see `KeyFolder.owner`; empty if that was not written down yet when it was opened."""
    countersignature: str = ""
    """Of its witness under what is let go, in hexadecimal digits; empty if it has none."""


class Store(ABC):
    """Where a shuffler's collections are. Every time is in seconds since 1970 by the database's clock, which never goes back here."""

    start_note = ""
    """What to say of the clock once this store has looked at it, if the machine was started since the last look."""

    @abstractmethod
    def read_clock(self) -> ClockReading:
        """All clocks at once. In a new boot, and once a day, what they say is written down, unless the clock has jumped."""

    @abstractmethod
    def confirm_clock(self) -> str:
        """Believe a clock that has jumped; the sentence that is noted with every collection that is going on. InputError if it has not."""

    @abstractmethod
    def correct_clock(self) -> str:
        """Take back a stored time that lies ahead of the clock, and note that likewise. No state changes. InputError if there is none."""

    @abstractmethod
    def now(self) -> float:
        """The database's clock; never before a time at which something was decided, nor before one that was told here.

        Of the time at which a report came only so much is remembered as decides over it: see `AdmissionRules.noted`.
        """

    @abstractmethod
    def check_writing(self) -> None:
        """Write what changes nothing, durably; a StoreError if that cannot be done now."""

    @abstractmethod
    def add(self, collection: Collection, key: str, tickets: Iterable[bytes] = (), owner: str = "") -> bool:
        """A new collection, open, with this hop's public key, the hashes of its tickets, and the folder of keys that it belongs to.

        The same bytes again: False, and nothing changes. Another collection of the same task, round and part is a DuplicateCollection,
        also after the first one was aborted: people may have reported. So is one of a round that is split into another number of parts.
        """

    @abstractmethod
    def row(self, digest: str) -> Row | None: ...

    @abstractmethod
    def rows(self) -> list[Row]:
        """All of them, the newest first."""

    @abstractmethod
    def put(self, digest: str, entries: Sequence[Entry]) -> list[Verdict]:
        """Store reports, in one transaction; the answers in their order. Time is asked in that transaction:

        before `opens` and from `until` on it is closed, except that at the closing time a collection with fewer reports than its minimum
        is extended, once. A tag that is here is the same report, whatever its ticket; ticket and report are stored together or not at all.
        ClockJumped if the clock has jumped over a time that decides.
        """

    @abstractmethod
    def awaits_count(self, digest: str) -> bool:
        """Whether its closing time has come with enough reports, and it can still be extended if too few of them are distinct.

        If so, that time is written down: nothing more is accepted until `seal` is told how many are distinct.
        """

    @abstractmethod
    def seal(self, digest: str, distinct: int | None = None) -> State:
        """What time does: past `until`, sealed with the minimum, extended or else aborted without it. Returns the state it is in then.

        `distinct` is what was counted if `awaits_count` asked for it; without it all reports are taken for distinct. Aborting deletes as
        `move` does. At a later hop time does nothing; whoever fetched its messages moves it to `sealed`. Nor does it anywhere after the
        clock has jumped.
        """

    @abstractmethod
    def hidden(self, digest: str) -> Iterator[tuple[bytes, bytes]]:
        """(tag, hidden boxes) of every stored report of a collection that is sealed or awaits its count, ordered by tag, in bounded memory.

        All of them, or a StoreError: also if it is aborted while they are read; `DatabaseDamaged` if they are not those that were counted.
        """

    @abstractmethod
    def keep_output(self, digest: str, chunks: Iterable[bytes]) -> None:
        """The output of a sealed collection, replacing what an interrupted shuffling left: whole or not at all."""

    @abstractmethod
    def output(self, digest: str) -> Iterator[bytes]:
        """What was kept, in chunks; empty if nothing was. A StoreError if it is replaced by less or deleted while it is read."""

    @abstractmethod
    def move(self, digest: str, before: State, after: State, *, people: int | None = None, left_out: int | None = None,
             output: str | None = None, reason: str | None = None, countersignature: str | None = None) -> bool:  # fmt: skip
        """One step, if the collection is still in the state `before`; False if somebody else was quicker.

        To `shuffled` and `aborted`: stored reports and tickets are deleted in the same transaction; to `aborted` and `purged` the output
        too. To `released` the time is noted; in the end times are kept to the hour. The database refuses, as a StoreError, a step backward
        or over a state, a first hop's `sealed` (which is for `seal` alone), `shuffled` with fewer people than the minimum or with others
        than the reports without those left out, and `aborted` once it was collected; and with ClockJumped to note a time by such a clock.
        """

    @abstractmethod
    def acknowledge(self, digest: str) -> None:
        """Whoever fetches the output has it; what is not released is left as it is."""

    @abstractmethod
    def first_output(self, collection: str, asker: str, output: str | None = None) -> str | None:
        """As the witness of another shuffler: the first output of a collection that this asker named. If there is none yet, `output` is it
        from now on, durably; without it nothing is written down. The database refuses to change or to forget one.
        """

    @abstractmethod
    def forget_deleted(self) -> None:
        """What was deleted is not kept in a journal either, as far as the database can be told so."""

    @abstractmethod
    def close(self) -> None: ...
