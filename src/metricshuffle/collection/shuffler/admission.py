"""Admission rules for reports (time window, count limits, duplicates, tickets).

They are shared by all databases and read neither a clock nor a database: a store loads them inside
a transaction.
"""

from __future__ import annotations

from collections.abc import Collection as Several
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

from metricshuffle.collection.store.records import (
    CHUNK,
    DuplicateCollection,
    Entry,
    State,
    StoreError,
    Verdict,
)
from metricshuffle.collection.terms import Collection, parse_time
from metricshuffle.errors import InputError

STEPS: tuple[tuple[State, State], ...] = (
    ("open", "sealed"),
    ("sealed", "shuffled"),
    ("shuffled", "erased"),
    ("erased", "released"),
    ("released", "purged"),
    *((before, "aborted") for before in ("open", "sealed", "shuffled", "erased", "released")),
)
"""All steps between states; both databases reject any other."""
FINAL_STATES: tuple[State, ...] = ("purged", "aborted")
"""States of a collection that has ended."""
HOUR = 3600
MAX_COUNTING_SECONDS = 3600
MAX_COUNTING_PART = 0.25
"""Limits of the time for counting reports after closing: in seconds, and as a part of the
extension."""


def counting_end(closes: float, extends: float) -> float:
    """Time at which counting distinct reports ends; enough reports are sealed then."""
    return closes + min(MAX_COUNTING_SECONDS, MAX_COUNTING_PART * (extends - closes))


@dataclass(frozen=True)
class AdmissionRules:
    """State and terms of a collection that decide on reports."""

    id: int
    state: State
    reports: int
    until: float
    first: bool
    """Whether people send reports here; a later hop fetches messages, and cannot count people."""
    ticketed: bool
    """Whether it was opened with tickets, which are stored before any report."""
    minimum: int
    maximum: int
    opens: float
    closes: float
    extends: float
    layout: int = 2
    """Tables that contain its reports."""

    def name_of(self, entry: Entry) -> bytes:
        """Name under which a report is admitted: the hash of its ticket or nonce, or its tag."""
        return entry.ticket or entry.tag

    def at(self, now: float, distinct: int | None = None) -> Self:
        """Return the rules at a time: too few reports at the closing time extend the end, once.

        `distinct` is the number of distinct reports, if it is known.
        """
        count = self.reports if distinct is None else min(distinct, self.reports)
        is_extended = self._can_be_extended(now) and count < self.minimum
        return replace(self, until=self.extends) if is_extended else self

    def _can_be_extended(self, now: float) -> bool:
        return (
            self.first and self.state == "open" and now >= self.until == self.closes < self.extends
        )

    def awaits_count(self, now: float) -> bool:
        """Return whether the number of distinct reports decides on an extension.

        This is so from the closing time to `counting_end`, if there are enough reports.
        """
        return self._is_enough(now) and now < counting_end(self.closes, self.extends)

    def _is_enough(self, now: float) -> bool:
        """Return whether only too few distinct reports could still extend the collection."""
        return self._can_be_extended(now) and self.reports >= self.minimum

    def takes_reports(self, now: float) -> bool:
        return self.first and self.state == "open" and self.opens <= now < self.until

    def decides(self, now: float) -> bool:
        """Return whether the closing time has passed.

        If so, the time is stored: otherwise a clock that is set back would undo the decision.
        """
        return self.first and self.state == "open" and now >= self.closes

    def has_same_decision(self, first: float, second: float) -> bool:
        """Return whether reports at two times get the same decision."""

        def decision(now: float) -> tuple[bool, float, bool]:
            rules = self.at(now)
            return now >= self.opens, rules.until, rules.takes_reports(now)

        return not self.first or self.state != "open" or decision(first) == decision(second)

    def noted(self, now: float) -> float:
        """Time stored with a batch, rounded down to the hour to hide arrival times.

        The time is not before any deadline that has passed, so that it gives the same decisions.
        """
        return max(
            [
                now // HOUR * HOUR,
                *(end for end in (self.opens, self.closes, self.extends) if end <= now),
            ]
        )

    def due(self, now: float, distinct: int | None = None) -> State:
        """State that the collection should enter at this time, without any other event."""
        if not self.first or self.state != "open" or now < self.at(now, distinct).until:
            return self.state
        return "sealed" if self.reports >= self.minimum else "aborted"

    def check_readable(self, digest: str, written: float) -> None:
        """Raise if reports may still arrive.

        No report can arrive once the collection is sealed, or once its closing time is stored and
        only the count of distinct reports is missing.
        """
        if not self._is_enough(written):
            self.check_sealed(digest, "read the reports")

    def check_sealed(self, digest: str, purpose: str) -> None:
        """Raise unless it is sealed: before, reports may arrive; afterwards, they are deleted."""
        if self.state != "sealed":
            raise StoreError(f"cannot {purpose} of {digest[:16]}: it is {self.state}, not sealed.")

    def check_step(self, after: State) -> None:
        """Raise for a step into the same state, or a step that only a deadline causes.

        The database rejects other invalid steps.
        """
        if after == self.state:
            raise StoreError(f"it is {after} already.")
        if after == "sealed" and self.state == "open" and self.first:
            raise StoreError("a first shuffler's collection is sealed by its closing time alone.")

    @property
    def too_few(self) -> str:
        """Reason for aborting a collection that has too few reports at its end."""
        return f"fewer reports than the {self.minimum:,} that were needed"

    def verdicts(
        self, entries: Sequence[Entry], stored: Several[bytes], tickets: Mapping[bytes, bool]
    ) -> list[Verdict]:
        """Decide on reports one after the other, while the collection is open.

        Args:
            stored: tags of the reports that are stored already.
            tickets: tickets and nonces of the reports that are stored, and whether each is spent.
        """
        tags = set(stored)
        spent = {ticket for ticket, is_spent in tickets.items() if is_spent}
        room = self.maximum - self.reports
        answers = []
        for entry in entries:
            if entry.tag in tags:
                answers.append(Verdict.SAME)
            elif self.ticketed and entry.ticket not in tickets:
                answers.append(Verdict.UNKNOWN_TICKET)
            elif entry.ticket in spent:
                answers.append(Verdict.SPENT_TICKET)
            elif room == 0:
                answers.append(Verdict.FULL)
            else:
                answers.append(Verdict.STORED)
                tags.add(entry.tag)
                spent.update([entry.ticket] if entry.ticket else [])
                room -= 1
        return answers


def select_accepted(entries: Sequence[Entry], verdicts: Sequence[Verdict]) -> list[Entry]:
    """Return the entries to be stored, sorted by tag."""
    chosen = [
        entry for entry, verdict in zip(entries, verdicts, strict=True) if verdict is Verdict.STORED
    ]
    return sorted(chosen, key=lambda entry: entry.tag)


def new_row_columns(collection: Collection, key: str) -> dict[str, object]:
    """Columns of a new collection."""
    place = collection.hop_index_of(key)
    terms = collection.terms
    if place is None:
        raise InputError(
            "this collection has another shuffler's key; let collection open ask this one "
            "for a key."
        )
    closes = float(parse_time(terms.closes))
    return {
        "digest": collection.digest,
        "key": key,
        "task": collection.task.digest,
        "round": terms.round,
        "part": terms.split[0],
        "parts": terms.split[1],
        "first": place == 0,
        "ticketed": terms.admission == "tickets",
        "minimum": terms.minimum,
        "maximum": terms.maximum,
        "opens": float(parse_time(terms.opens)),
        "closes": closes,
        "extends": float(parse_time(terms.extends)),
        "until": closes,
    }


def check_round(columns: Mapping[str, object], others: Iterable[tuple[str, int, int]]) -> None:
    """Raise if the same people may have reported in another collection of the round.

    `others` are (digest, part, parts).
    """
    for digest, part, parts in others:
        if part == columns["part"] or parts != columns["parts"]:
            raise DuplicateCollection(
                f"round {columns['round']} of this plan has its collection here, "
                f"{digest[:16]} (part {part} of {parts}): "
                "nobody may report twice; open the next round, or make another plan."
            )


def validate_tickets(tickets: Iterable[bytes], columns: Mapping[str, object]) -> list[bytes]:
    """Sort the hashes of tickets; raise if two are equal or the collection takes none."""
    hashes = sorted(tickets)
    if hashes and not (columns["ticketed"] and columns["first"]):
        raise InputError(
            "tickets belong to the first shuffler of a collection that is opened with "
            "--admission tickets."
        )
    if len(set(hashes)) != len(hashes):
        raise InputError("two of the tickets are equal; make new ones.")
    return hashes


def rechunk(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Split bytes into chunks of one size, whatever the size of the pieces."""
    buffer = bytearray()
    for piece in pieces:
        buffer += piece
        while len(buffer) >= CHUNK:
            yield bytes(buffer[:CHUNK])
            del buffer[:CHUNK]
    if buffer:
        yield bytes(buffer)
