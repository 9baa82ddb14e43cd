"""Records that a store takes and returns, and the errors that it raises."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Literal, get_args

from metricshuffle.errors import InputError, MetricShuffleError

State = Literal["open", "sealed", "shuffled", "erased", "released", "purged", "aborted"]
STATES: tuple[State, ...] = get_args(State)
CHUNK = 2**20
"""Approximate size of the chunks in which an output is stored, read and sent."""


class StoreError(MetricShuffleError):
    """The database cannot be used now; nothing was acknowledged.

    Causes are a full disk, a lost connection, or a file of another program.
    """


class DatabaseDamaged(StoreError):
    """The database does not contain the reports that it counted; a retry does not help."""


class PartsHeld(StoreError):
    """A part cannot be closed, because a transaction of an edge does not end."""


class LeasesHeld(StoreError):
    """Leases of the keys of a collection have not ended; they end within seconds or a minute."""


class ClockJumped(StoreError):
    """The clock is ahead of the expected time; nothing is decided by it."""


class DatabaseRolledBack(StoreError):
    """The database is older than the hub's record beside its keys, or is another database."""


class DuplicateCollection(InputError):
    """Another collection of the same task, round and part exists: people could report twice."""


class Verdict(Enum):
    """Result of submitting a report."""

    STORED = "stored"
    SAME = "same"
    """The same bytes were stored before; the client gets the answer of `STORED`."""
    UNKNOWN_TICKET = "unknown ticket"
    SPENT_TICKET = "spent ticket"
    KNOWN_BOX = "known box"
    """An adder has the box under another name."""
    CLOSED = "closed"
    FULL = "full"


@dataclass(frozen=True)
class Entry:
    """Opened report as stored: tag, hash of its ticket or nonce (or empty), encrypted boxes."""

    tag: bytes
    ticket: bytes
    hidden: bytes
    lease: bytes = b""
    """Lease of the keys that encrypted it; empty if they are the shuffler's own."""


@dataclass(frozen=True)
class PartRow:
    """Reports of one lease."""

    room: int
    reports: int
    closed: bool
    ended: bool


@dataclass(frozen=True)
class CollectionRow:
    """Row of a collection: its bytes as `served` and hashed, and what happened since."""

    digest: str
    served: bytes
    key: str
    """Public key of this hop, which names its secrets in the keys folder."""
    state: State
    reports: int
    """Number of stored reports; 0 at later hops, which cannot count people."""
    until: float
    """End of acceptance: the closing time, or the extended one."""
    people: int = 0
    """Number of people whose messages are in the output, once it is shuffled."""
    left_out: int = 0
    """Number of reports that shared a box with another report."""
    output: str = ""
    """SHA-256 of the output."""
    reason: str = ""
    """Why it was aborted."""
    sealed_at: float = 0.0
    released_at: float = 0.0
    collected: bool = False
    """Whether the party that fetches the output has acknowledged it."""
    clock: str = ""
    """Public notes about changes of the clock, one sentence a line."""
    owner: str = ""
    """Folder of keys (`KeyFolder.owner`); empty in rows of older versions."""
    leases: str = ""
    """Public sentences: whether the operator accepted an older database, and how the leases of its
    keys ended."""
    countersignature: str = ""
    """Hexadecimal countersignature of its witness for the output; empty without one."""
    dummies: str = ""
    """SHA-256 of the file of dummies that are mixed with the messages; empty without piles."""
