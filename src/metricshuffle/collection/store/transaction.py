"""Transactions of both databases, and the statements in which SQLite and PostgreSQL differ."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar, NamedTuple, Protocol

from metricshuffle.collection.shuffler.admission import AdmissionRules
from metricshuffle.collection.store.guarded_clock import ClockReading, GuardedClock
from metricshuffle.collection.store.records import Entry

SqlRow = tuple[Any, ...]
PageEnd = bytes | int
"""Where a page of reports ends: a tag, or a place in the table."""


class ReportPage(NamedTuple):
    """Page of (tag, encrypted boxes); `end` has no value after the last one."""

    reports: list[tuple[bytes, bytes]]
    end: PageEnd | None


class SqlCursor(Protocol):
    """Result of a statement."""

    @property
    def rowcount(self) -> int: ...
    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[SqlRow]: ...


class Transaction(ABC):
    """One transaction. Statements mark their values by `?` for both databases."""

    row_lock: ClassVar[str] = ""
    """End of a SELECT that locks the rows it returns until the transaction ends."""
    noted_time: ClassVar[str]
    """Expression for the time that `note_time` wrote, in a SELECT from `collection`."""

    @abstractmethod
    def execute(self, sql: str, values: Sequence[object] = ()) -> SqlCursor:
        """Run one statement."""

    @abstractmethod
    def lock_store(self) -> None:
        """Wait until no other transaction adds a collection or changes anchors."""

    @abstractmethod
    def lock_collections(self) -> None:
        """Wait until no other transaction decides anything by time."""

    @abstractmethod
    def read_clock(self, clock: GuardedClock) -> ClockReading:
        """Read all clocks. Call it after locking, which may wait.

        A statement that locks and reads the time would read it before it waits.
        """

    @abstractmethod
    def note_time(self, now: float) -> dict[str, object]:
        """Store the time of a decision, so that a clock set back does not undo it.

        Returns: columns of the collection that the caller has to write in this transaction.
        """

    @abstractmethod
    def correct_time(self, wall: float) -> None:
        """Replace stored times that lie ahead of the clock, and count this correction."""

    @abstractmethod
    def round_times(self, rules: AdmissionRules, now: float) -> None:
        """Round the times of a collection that has ended down to the hour."""

    @abstractmethod
    def delete_anchors(self, boot: str, wall: float) -> None:
        """Delete the anchor of this boot, and outdated ones."""

    @abstractmethod
    def add_tables(self, number: int, hashes: Iterable[bytes]) -> None:
        """Make the tables of a new collection, with the hashes of its tickets."""

    @abstractmethod
    def find_reports(self, rules: AdmissionRules, entries: Sequence[Entry]) -> set[bytes]:
        """Return the tags of the given reports that are stored already."""

    @abstractmethod
    def find_tickets(self, rules: AdmissionRules, entries: Sequence[Entry]) -> Mapping[bytes, bool]:
        """Return the stored tickets and nonces of the reports, with whether each is spent."""

    @abstractmethod
    def store_reports(self, rules: AdmissionRules, now: float, entries: Sequence[Entry]) -> None:
        """Store reports and their number, spent tickets, the end of the collection and the time."""

    @abstractmethod
    def confirm(self, rules: AdmissionRules) -> None:
        """Write without changing anything, where only the commit of a write waits for a standby.

        Otherwise what the transaction has read may be on no standby.
        """

    @abstractmethod
    def read_page(
        self, rules: AdmissionRules, after: PageEnd | None, last: int | None = None
    ) -> ReportPage:
        """Return the reports that follow the end of a page, about as many as fill a chunk.

        `last` is a place of layout 2 behind which none are read.
        """

    @abstractmethod
    def count_places(self, rules: AdmissionRules) -> int:
        """Number of places in the table of reports of layout 2."""

    def estimate_parts(self, rules: AdmissionRules) -> AdmissionRules:
        """Return the rules with the reports of open parts, which may still grow."""
        return rules

    def close_parts(self, rules: AdmissionRules) -> tuple[AdmissionRules, int]:
        """Close all parts, and count their reports; return the rules and the number of parts.

        It waits for transactions that have counted a report, and not yet committed.
        """
        return rules, 0

    def open_parts(self, rules: AdmissionRules) -> None:  # noqa: B027 - a file has no parts
        """Open the parts of living leases again, until the end in the rules."""

    @abstractmethod
    def delete_reports(self, rules: AdmissionRules) -> None:
        """Delete the reports and tickets of a collection; safe to repeat."""


class Database(Protocol):
    """Database with the tables of a store."""

    @property
    def name(self) -> str: ...
    def reading(self) -> AbstractContextManager[Transaction]: ...
    def writing(self) -> AbstractContextManager[Transaction]:
        """Run a transaction: durable when the context is left, undone after an exception."""

    def end_hung_edges(self) -> None:
        """End transactions of edges that are too old."""

    def setting_warnings(self) -> list[str]:
        """Return sentences about settings of a server that should be changed."""

    def awaits_standby(self) -> bool:
        """Return whether a commit of this user waits until a standby has it."""

    def forget_deleted(self) -> None: ...
    def close(self) -> None: ...
