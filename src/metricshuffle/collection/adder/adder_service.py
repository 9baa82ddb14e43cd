"""Adder: opens sums, closes them by its own clock, agrees with the others, adds up and releases.

    open -> closed -> [open, extended -> closed] -> signed -> added -> released -> purged | aborted

A closed sum has a signed list of the names of its reports. When an adder has the lists of all, the
reports that all have are the set that is summed, if there are enough. It signs that set once, and
adds its shares up only when all adders have signed the same set. Every step can be repeated after
an interruption with the same outcome.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache, partial
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np

from metricshuffle.collection.adder.adder_link import AdderLink, AdderRefused, AdderUnreachable
from metricshuffle.collection.adder.share_boxes import add_residues, adder_ticket
from metricshuffle.collection.adder.share_intake import ShareOpener
from metricshuffle.collection.adder.sum_signatures import (
    InvalidList,
    NameList,
    SumStatement,
    names_hash,
)
from metricshuffle.collection.adder.sum_store import (
    FINAL_SUM_STATES,
    SHARE_STATES,
    SumRow,
    SumStore,
)
from metricshuffle.collection.adder.sum_terms import SumCollection
from metricshuffle.collection.keys import (
    CollectionKeys,
    KeyFolder,
    destroy,
    read_secret,
    write_secret,
)
from metricshuffle.collection.sealed_boxes import TICKET_BYTES
from metricshuffle.collection.shuffler.lifecycle import MAX_REASON_LENGTH
from metricshuffle.collection.shuffler.log_events import LogEvent, failure_text
from metricshuffle.collection.shuffler.output_files import do_nothing
from metricshuffle.collection.shuffler.scheduler import SWEEP_SECONDS
from metricshuffle.collection.shuffler.server import is_loopback
from metricshuffle.collection.store.records import DatabaseDamaged, StoreError
from metricshuffle.collection.terms import Party, instant, parse_time
from metricshuffle.errors import InputError, MetricShuffleError, PlanError

PAUSE_SECONDS = 0.5
"""Seconds between two rounds over all sums."""
MAX_PAUSE_SECONDS = 30.0
"""Longest delay after repeated failures of one sum."""
MAX_THREADS = 16
SENT_STATES = ("open", "closed", "signed", "added", "released")
"""States in which lists and statements are sent until the other adders have them."""
WAITING_STATES = ("closed", "signed")
"""States in which an adder waits for the others, and asks whether they have aborted."""
WAITING_SECONDS = 2.0
"""Seconds between two questions."""
DAY = 86_400
CLOCK = "clock"


@lru_cache(maxsize=64)
def read_sum(served: bytes) -> SumCollection:
    return SumCollection(served)


class AdderService:
    """Opens and drives the sums of a store with the keys of a folder."""

    def __init__(
        self,
        store: SumStore,
        keys: KeyFolder,
        *,
        at: Callable[[str], None] = do_nothing,
        log: Callable[[str], None] = do_nothing,
    ) -> None:
        """Create an adder; nothing is driven before `run` or `advance`.

        Args:
            at: called at every named point, where tests end the process.
            log: gets messages for the operator.
        """
        self.store = store
        self.keys = keys
        self.at = at
        self.log = log
        self.signing = keys.signing
        self.trouble: dict[str, str] = {}
        """Why a sum cannot continue, by digest; why none can, by "" and "clock"."""
        self._owner = keys.owner
        self._taken: set[tuple[str, str, str]] = set()
        """Sum, address and kind of what another adder has taken."""
        self._next: dict[str, tuple[float, float]] = {}
        """When each sum is driven again, and its last delay."""

    # For the operator

    def new_party(self) -> Party:
        """Create keys for a new sum; return the public part."""
        return self.keys.new().party

    def open(self, served: bytes, tickets: Sequence[bytes] = ()) -> bool:
        """Open a sum here; return False if it is open already.

        `tickets` are those of this adder (`tickets_of`), which learns no other ones.
        """
        collection = SumCollection.read(served)
        if self.store.sum_row(collection.digest) is not None:
            return False
        collection.check()
        terms = collection.terms
        places = [
            place for place, adder in enumerate(terms.adders) if self.keys.of(adder.key) is not None
        ]
        if len(places) != 1 or terms.adders[places[0]].signature != self.signing.public:
            raise PlanError(
                "the keys of one adder of this sum must be this server's; collection open asks "
                "it for new ones."
            )
        place = places[0]
        if trouble := self.store.read_clock().trouble:
            raise InputError(trouble)
        if self.store.now() >= parse_time(terms.closes):
            raise InputError(f"this sum closed at {terms.closes}; open one that closes later.")
        _check_tickets(collection, tickets)
        key = terms.adders[place].key
        keys = self._keys(key)
        self._claim(key, collection.digest)
        hashes = [keys.ticket_hash(ticket) for ticket in tickets]
        try:
            added = self.store.add_sum(collection, key, self._owner, hashes)
        except InputError:
            destroy(self._claim_file(key))
            raise
        if added:
            self._log_state(collection.digest, "was opened.", "open")
            for adder in terms.adders:
                if warning := plain_adder_warning(adder.url):
                    self.log(warning)
        return added

    def _claim_file(self, key: str) -> Path:
        """File that names the sum of these keys; a shuffler with the same folder respects it."""
        return self.keys.path / f"{key}.opened"

    def _claim(self, key: str, digest: str) -> None:
        """Record to which sum keys belong, so that they serve no other and are not swept."""
        path = self._claim_file(key)
        with suppress(FileExistsError):
            write_secret(path, digest.encode())
        if read_secret(path) != digest.encode():
            raise PlanError("these keys belong to another sum; collection open asks for new ones.")

    def sweep(self) -> None:
        """Destroy keys that no sum used for a day."""
        for key in self.keys.names():
            path = self.keys.path / f"{key}.key"
            with suppress(FileNotFoundError):
                is_old = time.time() - path.stat().st_mtime > DAY
                if is_old and not self._claim_file(key).exists():
                    self.keys.destroy(key)

    def _keys(self, key: str) -> CollectionKeys:
        keys = self.keys.of(key)
        if keys is None:
            raise StoreError("the keys of this sum are not in the folder of keys; put them back.")
        return keys

    def abort(self, digest: str, reason: str) -> SumRow:
        """Abort a sum, and destroy its shares and keys; the reason is public."""
        if not reason.strip() or not reason.isprintable() or len(reason) > MAX_REASON_LENGTH:
            raise InputError(f"a reason must be one line of up to {MAX_REASON_LENGTH} letters.")
        row = self.row(digest)
        if row.state in FINAL_SUM_STATES:
            return row
        return self._abort(row, f"by its operator: {reason.strip()}")

    def purge(self, digest: str) -> SumRow:
        """Delete the total of a released sum."""
        row = self.row(digest)
        if row.state in FINAL_SUM_STATES:
            return row
        if row.state != "released":
            raise InputError(f"this sum is {row.state}; abort it instead.")
        self.store.purge_sum(digest)
        return self.row(digest)

    def row(self, digest: str) -> SumRow:
        row = self.store.sum_row(digest)
        if row is None:
            raise InputError(f"there is no sum {digest[:16]} here.")
        return row

    def confirm_clock(self) -> str:
        return self._log_clock_note(self.store.confirm_clock())

    def correct_clock(self) -> str:
        return self._log_clock_note(self.store.correct_clock())

    def _log_clock_note(self, note: str) -> str:
        self.log(LogEvent(note, "clock"))
        return note

    def clock_trouble(self) -> str:
        """Return a public sentence if the clock has jumped, or cannot be read; empty otherwise."""
        try:
            has_jumped = self.store.read_clock().has_jumped
        except StoreError:
            return "reports cannot be stored now: the clock cannot be read."
        return "the clock has jumped; some reports cannot be stored now." if has_jumped else ""

    def check_keys(self) -> None:
        """Raise if keys of sums that have shares are missing, because nothing could be added."""
        lost = [
            row.digest[:16]
            for row in self.store.sum_rows()
            if row.owner == self._owner and row.state in SHARE_STATES and not self._has_keys(row)
        ]
        if lost:
            raise InputError(
                f"{self.keys.path} misses the keys of {len(lost):,} sums that are not finished "
                f"({', '.join(lost[:3])}); put back the copy that belongs to this database, or "
                "begin with another database: those sums are then aborted by the other adders."
            )

    def _has_keys(self, row: SumRow) -> bool:
        return self.keys.of(row.key) is not None

    # What other adders send

    def take_list(self, row: SumRow, signed: NameList) -> bool:
        """Store the list of another adder; return False if it sent another one before."""
        if signed.head.place == row.place:
            raise InvalidList("this adder lists its own names.")
        signed.check()
        if row.state not in SHARE_STATES:
            return True
        taken = self.store.add_list(row.digest, signed)
        if not taken:
            self._log_other(row, signed.head.place, "list of names")
        return taken

    def take_statement(self, row: SumRow, statement: SumStatement) -> bool:
        """Store the statement of another adder; return False if it signed another set before.

        Two sets of one adder would give a difference of two sums, so the sum is aborted.
        """
        statement.check(read_sum(row.served))
        if statement.place == row.place:
            raise InvalidList("this adder signs its own statement.")
        taken = self.store.add_statement(row.digest, statement)
        if not taken:
            self._log_other(row, statement.place, "set of reports")
            if row.state in SHARE_STATES:
                self._abort(
                    row, f"adder {statement.place + 1} signed two different sets of reports"
                )
        return taken

    def _log_other(self, row: SumRow, place: int, what: str) -> None:
        text = (
            f"adder {place + 1} sent another {what} than before: it was restored from an older "
            "copy, or cheats. The first one stands."
        )
        self.log(LogEvent(f"Sum {row.digest[:16]}: {text}", "trouble", collection=row.digest))

    # Steps

    def advance(self, digest: str) -> str:
        """Take all due steps of a sum, and send what others miss; return its state.

        Raises: AdderUnreachable or StoreError; the step is tried again later.
        """
        while True:
            before = self.row(digest)
            if before.owner != self._owner:
                return before.state
            self._step(before)
            after = self.row(digest)
            if (after.state, after.phase) == (before.state, before.phase):
                break
            if after.state != "aborted":  # logged with its reason already
                self._log_change(before, after)
        if after.state in SENT_STATES:
            self._send(after, ask=after.state in WAITING_STATES)
        return self.row(digest).state

    def _step(self, row: SumRow) -> None:
        """Take one step, if it is due."""
        if self.store.read_clock().has_jumped:
            return
        now = self.store.now()
        if row.state in FINAL_SUM_STATES:
            self._destroy_keys(row)
        elif row.state == "open":
            if now >= row.until:
                self._close(row)
        elif row.state == "closed":
            self._agree(row)
        elif row.state == "signed":
            self._add_up(row)
        elif row.state == "added":
            self._destroy_keys(row)
            self.store.release_sum(row.digest)
            self.at("released")
        elif now >= row.released_at + read_sum(row.served).terms.retention + DAY / 24:
            self.store.purge_sum(row.digest)
        if row.state in SHARE_STATES and now >= self._deadline(row):
            current = self.row(row.digest)
            if current.state in SHARE_STATES:
                self._abort(current, "the adders did not agree on a set of reports in time")

    def _deadline(self, row: SumRow) -> float:
        """Time by which all signatures must have come."""
        return row.extends + read_sum(row.served).terms.retention

    def _close(self, row: SumRow) -> None:
        def sign(phase: int, names: list[bytes]) -> NameList:
            return NameList.signed(row.digest, row.place, phase, names, self.signing)

        if self.store.close_sum(row.digest, sign):
            self.at("closed")

    def _agree(self, row: SumRow) -> None:
        """Sign the set that all adders have, or extend or abort the sum, once all lists are here.

        Nothing has been added by then, so an extension reveals nothing but that there were too few.
        """
        if len(self.store.listed(row.digest, row.phase)) < len(read_sum(row.served).terms.adders):
            return
        names = self.store.common(row.digest, row.phase)
        if len(names) >= row.minimum:
            self.at("signing")
            statement = SumStatement.signed(row.digest, row.place, names, self.signing)
            self.store.sign_sum(row.digest, statement)
            self.at("signed")
            return
        self._send(row)  # the others decide the same, from the same lists
        if self.row(row.digest).state != "closed":
            return
        if row.phase == 0 and row.closes < row.extends:
            self.store.extend_sum(row.digest)
            self.at("extended")
        else:
            self._abort(row, f"fewer reports than the {row.minimum:,} that were needed")

    def _add_up(self, row: SumRow) -> None:
        """Add the shares up once all adders have signed the same set; otherwise abort or wait."""
        statements = self.store.statements(row.digest)
        subjects = {statement.subject for statement in statements.values()}
        if len(subjects) > 1:
            self._abort(row, "the adders signed different sets of reports")
            return
        if len(statements) < len(read_sum(row.served).terms.adders):
            return
        self.store.confirm_sum(row.digest, "signed")
        self.at("adding")
        try:
            total = self._total(row)
        except (DatabaseDamaged, PlanError) as error:
            self._abort(row, f"adder {row.place + 1} cannot read what it acknowledged")
            self.log(LogEvent(str(error), "trouble", collection=row.digest))
            return
        self.store.keep_total(row.digest, total)
        self.at("added")

    def _total(self, row: SumRow) -> bytes:
        """Sum of the shares of the signed set modulo the modulus, sealed for the analyst."""
        opener = ShareOpener.of(row, self._keys(row.key))
        form = opener.form
        total = np.zeros(form.length, dtype=np.uint64)
        names = self.store.common(row.digest, row.phase)
        if self.store.statements(row.digest)[row.place].hashed != names_hash(names):
            raise DatabaseDamaged(f"the lists of sum {row.digest[:16]} are not those it signed.")
        for name, hidden in self.store.hidden_shares(row.digest, names):
            share = form.unpacked(opener.share(name, hidden))
            total = add_residues(total, share, form.modulus)
        analyst = read_sum(row.served).analyst_key
        return analyst.sealed(form.packed(total), form.total_info(row.place))

    def _destroy_keys(self, row: SumRow) -> None:
        if self.keys.has(row.key):
            self.store.confirm_sum(row.digest, row.state)
            self.at("destroying")
            self.keys.destroy(row.key)
            self.at("destroyed")
        destroy(self._claim_file(row.key))

    def _abort(self, row: SumRow, reason: str) -> SumRow:
        self.store.abort_sum(row.digest, reason)
        after = self.row(row.digest)
        self._log_change(row, after)
        self._destroy_keys(after)
        return after

    # Sending

    def _send(self, row: SumRow, *, ask: bool = False) -> None:
        """Send own lists and the own statement to the adders that have not taken them.

        `ask` also asks them whether they have aborted the sum.
        """
        failures = []
        has_signed = row.place in self.store.statements(row.digest)
        phases = [
            phase
            for phase in range(row.phase + 1)
            if row.place in self.store.listed(row.digest, phase)
        ]
        for place, adder in enumerate(read_sum(row.served).terms.adders):
            if place == row.place:
                continue
            link = AdderLink(adder.url, row.digest)
            try:
                for phase in phases:
                    self._send_once(link, f"names {phase}", partial(self._send_list, row, phase))
                if has_signed:
                    self._send_once(link, "statement", partial(self._send_statement, row))
                if ask:
                    link.check_state()
            except AdderUnreachable as error:
                failures.append(error)
            except AdderRefused as error:
                self.log(LogEvent(str(error), "trouble", collection=row.digest))
                if row.state in SHARE_STATES:
                    self._abort(row, f"adder {place + 1} {error.reason}")
                return
        if failures:
            raise failures[0]

    def _send_once(self, link: AdderLink, what: str, send: Callable[[AdderLink], None]) -> None:
        """Send a list or the statement, unless the other adder has taken it."""
        key = (link.digest, link.url, what)
        if key not in self._taken:
            self.store.check_writing()  # nothing leaves on what was only read
            send(link)
            self._taken.add(key)
            self.at("sent")

    def _send_list(self, row: SumRow, phase: int, link: AdderLink) -> None:
        link.send_names(self.store.name_lists(row.digest, phase)[row.place])

    def _send_statement(self, row: SumRow, link: AdderLink) -> None:
        link.send_statement(self.store.statements(row.digest)[row.place])

    # Driving

    def run(self, stop: threading.Event) -> None:
        """Drive all sums until `stop` is set."""
        running: dict[str, Future[None]] = {}
        with ThreadPoolExecutor(MAX_THREADS, "sum") as threads:
            swept = float("-inf")
            while not stop.is_set():
                if time.monotonic() - swept > SWEEP_SECONDS:
                    swept = time.monotonic()
                    self.sweep()
                running = {digest: job for digest, job in running.items() if not job.done()}
                for digest in self._due(running):
                    running[digest] = threads.submit(self._drive, digest)
                stop.wait(PAUSE_SECONDS)

    def _due(self, running: dict[str, Future[None]]) -> list[str]:
        """Sums to drive now."""
        try:
            rows = self.store.sum_rows()
            clock = self.store.read_clock()
        except (MetricShuffleError, OSError) as error:
            self._note("", str(error))
            return []
        self._note("", "")
        self._note(CLOCK, clock.trouble)
        return [
            row.digest
            for row in rows
            if row.digest not in running
            and row.owner == self._owner
            and (row.state not in FINAL_SUM_STATES or self.keys.has(row.key))
            and time.monotonic() >= self._next.get(row.digest, (0.0, 0.0))[0]
        ]

    def _drive(self, digest: str) -> None:
        try:
            state = self.advance(digest)
        except (AdderUnreachable, StoreError) as error:
            self._note_failure(digest, str(error))
        except Exception as error:  # a bug must not stop other sums
            self._note_failure(digest, f"a step of the sum failed: {failure_text(error)}")
        else:
            self._note(digest, "")
            pause = WAITING_SECONDS if state in WAITING_STATES else 0.0
            self._next[digest] = (time.monotonic() + pause, PAUSE_SECONDS)

    def _note_failure(self, digest: str, text: str) -> None:
        pause = min(MAX_PAUSE_SECONDS, 2 * self._next.get(digest, (0.0, PAUSE_SECONDS))[1])
        self._next[digest] = (time.monotonic() + pause, pause)
        self._note(digest, text)

    def _note(self, subject: str, text: str) -> None:
        """Log trouble when it begins or changes, and when it is over."""
        before = self.trouble.get(subject, "")
        if text == before:
            return
        if text:
            self.trouble[subject] = text
            self.log(LogEvent(text, "clock" if subject == CLOCK else "trouble"))
        else:
            del self.trouble[subject]
            of_what = f"Sum {subject[:16]}" if subject not in ("", CLOCK) else "The adder"
            self.log(LogEvent(f"{of_what} continues.", "note"))

    def _log_change(self, before: SumRow, after: SumRow) -> None:
        if after.state == before.state:
            return
        reason = f": {after.reason}" if after.reason else ""
        extended = f" until {instant(after.until)}" if after.state == "open" else ""
        text = f"is {after.state}{extended}, after it was {before.state}{reason}."
        self._log_state(after.digest, text, after.state)

    def _log_state(self, digest: str, text: str, state: str) -> None:
        self.log(LogEvent(f"Sum {digest[:16]} {text}", "state", collection=digest, state=state))


def _check_tickets(collection: SumCollection, tickets: Sequence[bytes]) -> None:
    terms = collection.terms
    if (terms.admission == "tickets") != bool(tickets):
        raise InputError("tickets belong to a sum that is opened with --admission tickets.")
    if any(len(ticket) != TICKET_BYTES for ticket in tickets) or len(set(tickets)) != len(tickets):
        raise InputError(f"tickets must have {TICKET_BYTES} bytes each, and all must be different.")
    if tickets and len(tickets) < terms.minimum:
        raise InputError(
            f"{len(tickets):,} tickets are too few for the {terms.minimum:,} reports that this "
            "sum needs."
        )


def plain_adder_warning(url: str) -> str:
    """Warning if an adder is reached without TLS over a network; empty otherwise."""
    if not url.startswith("http://") or is_loopback(urlsplit(url).hostname or ""):
        return ""
    return (
        f"Warning: the adder {url} is reached without TLS: anyone who watches the network sees who "
        "takes part, and the names of reports. Shares stay sealed. Its address should be https://."
    )


def tickets_of(tickets: Sequence[bytes], place: int) -> list[bytes]:
    """Tickets of the adder at a place, derived from those of people."""
    return [adder_ticket(ticket, place) for ticket in tickets]
