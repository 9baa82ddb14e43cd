"""What decides over a report, the same for every database: the hour, the minimum and the maximum, tags and tickets.

Nothing here asks a clock or a database: a store reads how a collection stands, inside its transaction, and asks what follows.
"""

from __future__ import annotations

from collections.abc import Collection as Several
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

from metricshuffle.collection.store.interface import CHUNK, DuplicateCollection, Entry, State, StoreError, Verdict
from metricshuffle.collection.terms import Collection, parse_time
from metricshuffle.errors import InputError

STEPS: tuple[tuple[State, State], ...] = (
    ("open", "sealed"),
    ("sealed", "shuffled"),
    ("shuffled", "erased"),
    ("erased", "released"),
    ("released", "purged"),
    *((before, "aborted") for before in ("open", "sealed", "shuffled", "erased", "released")),
)  # fmt: skip
"""Every step there is; both databases refuse any other."""
FINAL_STATES: tuple[State, ...] = ("purged", "aborted")
"""Where nothing happens any more."""
HOUR = 3600


@dataclass(frozen=True)
class AdmissionRules:
    """How a collection stands, as far as it decides over reports."""

    id: int
    state: State
    reports: int
    until: float
    first: bool
    """Whether people send reports here; a later hop fetches messages, and neither counts people nor knows when it has all of them."""
    ticketed: bool
    minimum: int
    maximum: int
    opens: float
    closes: float
    extends: float

    def at(self, now: float, distinct: int | None = None) -> Self:
        """The same at some time: a closing time with too few reports extends it, once. `distinct` is how many of them count, if known."""
        count = self.reports if distinct is None else min(distinct, self.reports)
        return replace(self, until=self.extends) if self._can_be_extended(now) and count < self.minimum else self

    def _can_be_extended(self, now: float) -> bool:
        return self.first and self.state == "open" and now >= self.until == self.closes < self.extends

    def awaits_count(self, now: float) -> bool:
        """Whether its closing time has come with enough reports, and only how many of them are distinct decides if it is extended."""
        return self._can_be_extended(now) and self.reports >= self.minimum

    def takes_reports(self, now: float) -> bool:
        return self.first and self.state == "open" and self.opens <= now < self.until

    def decides(self, now: float) -> bool:
        """Whether its closing time decides over what comes now: such a time is written down, or a clock set back would undo it."""
        return self.first and self.state == "open" and now >= self.closes

    def has_same_decision(self, first: float, second: float) -> bool:
        """Whether two times decide the same over whatever comes."""

        def decision(now: float) -> tuple[bool, float, bool]:
            standing = self.at(now)
            return now >= self.opens, standing.until, standing.takes_reports(now)

        return not self.first or self.state != "open" or decision(first) == decision(second)

    def noted(self, now: float) -> float:
        """What is written down when reports come: a time at which all is decided as it is now, and which does not say when they came.

        Whatever is decided depends on which of its times have passed; so to the hour is enough, or the last of those.
        """
        return max([now // HOUR * HOUR, *(end for end in (self.opens, self.closes, self.extends) if end <= now)])

    def due(self, now: float, distinct: int | None = None) -> State:
        """The state it is in at some time, if nobody does anything but look."""
        if not self.first or self.state != "open" or now < self.at(now, distinct).until:
            return self.state
        return "sealed" if self.reports >= self.minimum else "aborted"

    def check_readable(self, digest: str, written: float) -> None:
        """Raise unless its reports can be read and no more can come: it is sealed, or awaits its count by the time that is written down."""
        if not self.awaits_count(written):
            self.check_sealed(digest, "read the reports")

    def check_sealed(self, digest: str, purpose: str) -> None:
        """Raise unless it is sealed: before that reports may come, and afterwards they are gone."""
        if self.state != "sealed":
            raise StoreError(f"cannot {purpose} of {digest[:16]}: it is {self.state}, not sealed.")

    def check_step(self, after: State) -> None:
        """Raise at a step that is none, or that only time takes. (A database refuses others, but does not know who asks.)"""
        if after == self.state:
            raise StoreError(f"it is {after} already.")
        if after == "sealed" and self.state == "open" and self.first:
            raise StoreError("a first shuffler's collection is sealed by its closing time alone.")

    @property
    def too_few(self) -> str:
        """Why it is aborted at its end."""
        return f"fewer reports than the {self.minimum:,} that were needed"

    def verdicts(self, entries: Sequence[Entry], stored: Several[bytes], tickets: Mapping[bytes, bool]) -> list[Verdict]:
        """What becomes of reports, one after the other, while it is open.

        `stored` has those of their tags that are stored already, `tickets` those of their tickets that exist, and whether each was spent.
        """
        tags, spent, room = set(stored), {ticket for ticket, is_spent in tickets.items() if is_spent}, self.maximum - self.reports
        answers = []
        for entry in entries:
            if entry.tag in tags:
                answers.append(Verdict.SAME)
            elif self.ticketed and entry.ticket not in tickets:
                answers.append(Verdict.UNKNOWN_TICKET)
            elif self.ticketed and entry.ticket in spent:
                answers.append(Verdict.SPENT_TICKET)
            elif room == 0:
                answers.append(Verdict.FULL)
            else:
                answers.append(Verdict.STORED)
                tags.add(entry.tag)
                spent.add(entry.ticket)
                room -= 1
        return answers


def select_accepted(entries: Sequence[Entry], verdicts: Sequence[Verdict]) -> list[Entry]:
    """Those that are to be stored, in the order of their tags."""
    chosen = [entry for entry, verdict in zip(entries, verdicts, strict=True) if verdict is Verdict.STORED]
    return sorted(chosen, key=lambda entry: entry.tag)


def new_row_columns(collection: Collection, key: str) -> dict[str, object]:
    """What a database writes down of a new collection, by column."""
    place, terms = collection.hop_index_of(key), collection.terms
    if place is None:
        raise InputError("this collection has another shuffler's key; let collection open ask this one for a key.")
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
    """Raise if one of the other collections of a round (digest, part, parts) is one in which the same people may have reported."""
    for digest, part, parts in others:
        if part == columns["part"] or parts != columns["parts"]:
            raise DuplicateCollection(
                f"round {columns['round']} of this plan has its collection here, {digest[:16]} (part {part} of {parts}): "
                "nobody may report twice; open the next round, or make another plan."
            )


def validate_tickets(tickets: Iterable[bytes], columns: Mapping[str, object]) -> list[bytes]:
    """The hashes in order, if a collection can have them: no two of them equal, and none where nobody asks for one."""
    hashes = sorted(tickets)
    if hashes and not (columns["ticketed"] and columns["first"]):
        raise InputError("tickets belong to the first shuffler of a collection that is opened with --admission tickets.")
    if len(set(hashes)) != len(hashes):
        raise InputError("two of the tickets are equal; make new ones.")
    return hashes


def rechunk(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes in chunks of one size, so that what is kept does not depend on how it came."""
    buffer = bytearray()
    for piece in pieces:
        buffer += piece
        while len(buffer) >= CHUNK:
            yield bytes(buffer[:CHUNK])
            del buffer[:CHUNK]
    if buffer:
        yield bytes(buffer)
