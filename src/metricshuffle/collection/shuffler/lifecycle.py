"""The shuffler: it opens collections and drives each through its states, from wherever an interruption left it.

    open -> sealed -> shuffled -> erased -> released -> purged        or aborted, with the reason, from every state before purged

The step into the next state is one transaction of the database, for whoever is quicker. Nothing is let go before the originals are
deleted and the keys destroyed: whoever takes the disk afterwards finds no more than what was let go.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from metricshuffle.collection.keys import CollectionKeys, KeyFolder, destroy, read_secret, write_secret
from metricshuffle.collection.sealed_boxes import TICKET_BYTES
from metricshuffle.collection.shuffler.external_sort import SORT_MEMORY_BYTES
from metricshuffle.collection.shuffler.output_files import OutputFolder, do_nothing, read_chunks
from metricshuffle.collection.shuffler.scheduler import CollectionScheduler
from metricshuffle.collection.shuffler.transitions import STATES_WITH_KEYS, Steps
from metricshuffle.collection.store.interface import Row, State, Store, StoreError
from metricshuffle.collection.terms import Collection, Party, Witness, instant, parse_time
from metricshuffle.collection.witness import Countersigner, WitnessLink
from metricshuffle.errors import InputError, PlanError

MAX_REASON_LENGTH = 300
DAY = 86_400


@contextmanager
def _disk_errors(what: str) -> Iterator[None]:
    """What the system says of a disk, as a sentence for whoever can help."""
    try:
        yield
    except OSError as error:
        raise StoreError(f"{what}: {error.strerror or error}.") from None


@dataclass(frozen=True)
class Status:
    """How a collection stands, for its operator."""

    digest: str
    state: State
    reason: str
    reports: int
    minimum: int
    maximum: int
    round: int
    split: tuple[int, int]
    place: int
    """Which hop this is, from 0."""
    opens: str
    closes: str
    extends: str
    until: float
    """When nothing more is accepted, in seconds since 1970: `closes`, or `extends` once that was needed."""
    people: int
    left_out: int
    output: str
    collected: bool
    trouble: str
    """Why it does not go on now, if it does not."""


class Shuffler:
    """Drives the collections of a store with the secrets of a folder. Several may do so at once, in one process or in many."""

    def __init__(
        self,
        store: Store,
        keys: KeyFolder,
        *,
        after: str | None = None,
        at: Callable[[str], None] = do_nothing,
        tell: Callable[[str], None] = do_nothing,
        memory: int = SORT_MEMORY_BYTES,
        abandon: Sequence[str] | None = None,
        witness: str | None = None,
        witness_for: Sequence[str] = (),
    ) -> None:
        """`after` is the address of the shuffler before this one, if people do not report here. `witness` is that of the shuffler that
        countersigns what this one lets go, and `witness_for` has the keys of those for which this one does so. `at` is called at every
        named point, where tests end the process; `tell` with what an operator should know. Sorting takes about `memory` bytes. `abandon`
        has digests of collections that are given up if their secrets are missing; None gives up all of the folder's that miss them.
        """
        self.store, self.keys, self.after, self.at, self.tell = store, keys, after, at, tell
        self.witness = None if witness is None else WitnessLink(witness, keys.signing)
        self.countersigner = Countersigner(store, keys.signing, witness_for, at) if witness_for else None
        self.outputs = OutputFolder.of(keys)
        self.trouble: dict[str, str] = {}
        """What keeps a collection from going on, by its digest."""
        self._steps = Steps(store, keys, self.outputs, at, memory, abandon, keys.owner)

    # For the operator

    def new_party(self) -> Party:
        """Fresh keys for a collection that is about to be opened: what others may know of them."""
        with _disk_errors("keys cannot be kept"):
            return self.keys.new().party

    def new_witness(self) -> Witness | None:
        """What a collection says of the witness of this shuffler, if it has one; the witness is asked for its key."""
        return None if self.witness is None else self.witness.witness()

    def open(self, served: bytes, tickets: Sequence[bytes] = ()) -> bool:
        """Take part in a collection; False if that is so already. Tickets as they are handed out are for the first hop alone."""
        collection = Collection.read(served)
        if self.store.row(collection.digest) is not None:
            return False
        try:
            with _disk_errors(f"collection {collection.digest[:16]} cannot be opened"):
                keys = self._own_keys(collection)
                self._check_terms(collection, keys, tickets)
                self._claim(keys.party.key, collection.digest)
        except InputError:
            if self.store.row(collection.digest) is not None:  # somebody else opened it meanwhile
                return False
            raise
        self.at("opening")
        try:
            added = self.store.add(collection, keys.party.key, [keys.ticket_hash(ticket) for ticket in tickets], self._steps.owner)
        except InputError:
            destroy(self._steps.claim(keys.party.key))
            raise
        self.at("opened")
        if added:
            self.tell(f"Collection {collection.digest[:16]} was opened.")
        if not self.keys.has(keys.party.key):  # somebody else opened it, and has shuffled it since
            destroy(self._steps.claim(keys.party.key))
        return added

    def _own_keys(self, collection: Collection) -> CollectionKeys:
        """The secrets of the hop that this is."""
        own_hops = [(hop, keys) for hop in collection.terms.hops if (keys := self.keys.of(hop.key)) is not None]
        if not own_hops:
            raise PlanError("none of this collection's keys is this shuffler's; collection open asks it for new ones.")
        if len(own_hops) > 1:
            raise PlanError("two hops of this collection are this same shuffler, which would mix nothing twice; use another one.")
        [(hop, keys)] = own_hops
        if keys.party.release != hop.release:
            raise PlanError("the release token of this shuffler in the collection is not its own; nothing could be fetched with it.")
        return keys

    def _check_terms(self, collection: Collection, keys: CollectionKeys, tickets: Sequence[bytes]) -> None:
        collection.check()
        terms, place = collection.terms, collection.hop_index_of(keys.party.key) or 0
        before = terms.hops[place - 1].url if place else None
        if before != self.after:
            expected = f"after {self.after}" if self.after else "where people report"
            actual = f"after {before}" if before else "where people report"
            raise PlanError(f"this shuffler stands {expected}, and in this collection it stands {actual}; see serve --after.")
        self._check_witness(terms.hops[place].witness)
        if trouble := self.store.read_clock().trouble:
            raise InputError(trouble)
        if self.store.now() >= parse_time(terms.closes):
            raise InputError(f"this collection closed at {terms.closes}; open one that closes later.")
        if (terms.admission == "tickets" and place == 0) != bool(tickets):
            raise InputError("tickets belong to the first shuffler of a collection that is opened with --admission tickets.")
        if any(len(ticket) != TICKET_BYTES for ticket in tickets) or len(set(tickets)) != len(tickets):
            raise InputError(f"tickets have {TICKET_BYTES} bytes each, and all are different.")
        if tickets and len(tickets) < terms.minimum:
            raise InputError(f"{len(tickets):,} tickets cannot bring the {terms.minimum:,} reports that this collection needs.")

    def _check_witness(self, named: Witness | None) -> None:
        """Raise unless a collection names the witness that this shuffler was started with, and the key with which it asks."""
        own = self.witness
        if (named and named.url) == (own and own.url) and (own is None or named is None or named.asker == own.key.public):
            return
        started = f"with --witness {own.url}" if own else "without --witness"
        raise PlanError(
            f"this shuffler was started {started}, and this collection names {named.url if named else 'no witness'} for it; let collection "
            "open ask it for new keys."
        )

    def _claim(self, key: str, digest: str) -> None:
        """Keys belong to one collection. Those that do are not destroyed only because a database does not know it."""
        with suppress(FileExistsError):
            write_secret(self._steps.claim(key), digest.encode())
        if read_secret(self._steps.claim(key)) != digest.encode():
            raise PlanError("these keys belong to another collection; collection open asks for new ones.")

    def status(self, digest: str) -> Status | None:
        row = self.store.row(digest)
        return None if row is None else self.status_of(row)

    def status_of(self, row: Row) -> Status:
        collection = Collection(row.served)
        terms = collection.terms
        return Status(
            digest=row.digest, state=row.state, reason=row.reason, reports=row.reports, minimum=terms.minimum, maximum=terms.maximum,
            round=terms.round, split=terms.split, place=collection.hop_index_of(row.key) or 0, opens=terms.opens, closes=terms.closes,
            extends=terms.extends, until=row.until, people=row.people, left_out=row.left_out, output=row.output, collected=row.collected,
            trouble=self.trouble.get(row.digest, ""),
        )  # fmt: skip

    def abort(self, digest: str, reason: str) -> Status:
        """End a collection before it is released: its reports and keys are destroyed, and everybody may read why."""
        if not reason.strip() or not reason.isprintable() or len(reason) > MAX_REASON_LENGTH:
            raise InputError(f"a reason is one line of up to {MAX_REASON_LENGTH} letters.")
        return self._end(digest, ("open", "sealed", "shuffled", "erased"), "aborted", f"by its operator: {reason.strip()}")

    def purge(self, digest: str) -> Status:
        """Destroy the output of a collection that was released; one that nobody collected is aborted by that."""
        return self._end(digest, ("released",), "purged", "purged by its operator before it was collected")

    def _end(self, digest: str, allowed: Sequence[State], after: State, reason: str) -> Status:
        while True:
            row = self._row(digest)
            if row.owner and not self._steps.belongs_here(row):
                raise InputError("this collection belongs to another shuffler of this database; ask that one.")
            if row.state in ("purged", "aborted"):
                break
            if row.state not in allowed:
                raise InputError(f"this collection is {row.state}; {'purge' if row.state == 'released' else 'abort'} it instead.")
            into: State = "aborted" if after == "aborted" or not row.collected else after
            if self.store.move(digest, row.state, into, reason=reason if into == "aborted" else None):
                self._log_change(row)
                break
        with suppress(StoreError):  # what is left to destroy is destroyed by whoever drives it
            self.advance(digest)
        return self.status_of(self._row(digest))

    def confirm_clock(self) -> str:
        """Believe a clock that has jumped; everybody may read it with every collection that is going on."""
        return self._log_clock_note(self.store.confirm_clock())

    def correct_clock(self) -> str:
        """Take back a time that was stored by a wrong clock; everybody may read it likewise. Nothing that was sealed opens again."""
        return self._log_clock_note(self.store.correct_clock())

    def _log_clock_note(self, note: str) -> str:
        self.tell(note)
        return note

    def _row(self, digest: str) -> Row:
        row = self.store.row(digest)
        if row is None:
            raise InputError(f"there is no collection {digest[:16]} here.")
        return row

    def output(self, digest: str) -> Iterator[bytes]:
        """The bytes that a released collection lets go: the file that was checked for it, or the copy in the database if that is gone."""
        return read_chunks(path) if (path := self.outputs.boxes(digest)).exists() else self.store.output(digest)

    # Driving

    def check_keys(self, abandon: Sequence[str] = ()) -> None:
        """Raise if collections of this folder that take reports, or hold them, miss their secrets: driving them would destroy what people
        sent. Those in `abandon` may be given up, if they are nobody else's. Collections of others are left alone, which is said.
        """
        rows = {row.digest: row for row in self.store.rows()}
        for digest in abandon:
            self._check_abandoned(digest, rows.get(digest))
        lost = [row.digest for row in rows.values() if row.owner == self._steps.owner and self._steps.misses_keys(row)]
        if missing := sorted(set(lost) - set(abandon)):
            raise InputError(
                f"{self.keys.path} misses the keys of {len(missing):,} of its collections that hold reports; put them back, or, if they "
                f"are lost for good, abort those collections: {' '.join(f'--abandon {digest}' for digest in missing[:3])}"
                f"{' ...' if len(missing) > 3 else ''}."
            )
        others = [row.digest[:16] for row in rows.values() if row.state in STATES_WITH_KEYS and not self._steps.belongs_here(row)]
        if others:
            self.tell(
                f"This database holds {len(others):,} collection{'s' * (len(others) != 1)} of another shuffler ({', '.join(others[:3])}"
                f"{', ...' if len(others) > 3 else ''}), whose keys are not in {self.keys.path}; they are left alone. If they should be "
                "driven here, give the folder that has their keys with --keys."
            )

    def _check_abandoned(self, digest: str, row: Row | None) -> None:
        """Raise unless a collection may be given up for its lost secrets; one that is over, or was, needs nothing."""
        if row is None:
            raise InputError(f"--abandon names a collection by its whole digest, and this database has no {digest!r}.")
        if row.owner and not self._steps.belongs_here(row):
            raise InputError(f"collection {digest[:16]} belongs to another shuffler of this database; nothing of it is abandoned here.")
        if row.state in STATES_WITH_KEYS and not self._steps.misses_keys(row):
            raise InputError(
                f"the keys of collection {digest[:16]} are in {self.keys.path}; start without --abandon, and see collection abort."
            )

    def advance(self, digest: str) -> State:
        """Do what is due for a collection, as far as it goes now. Nothing, if somebody else is at it.

        StoreError if the disk or the database fails, Unreachable if the hop before does, NotCountersigned if there is a witness that does
        not countersign: then it is tried again later.
        """
        with _disk_errors(f"collection {digest[:16]} cannot go on"), self.outputs.alone(digest) as alone:
            going_on = alone
            while going_on:
                before = self._row(digest)
                going_on = self._steps.taken(before)
                self._log_change(before)
        return self._row(digest).state

    def _log_change(self, before: Row) -> None:
        """What became of a collection, in a line of the log."""
        after = self._row(before.digest)
        if after.state != before.state:
            reason = f": {after.reason}" if after.reason else ""
            self.tell(f"Collection {after.digest[:16]} is {after.state}, after it was {before.state}{reason}.")
        elif after.until != before.until:
            self.tell(f"Collection {after.digest[:16]} has too few reports and is extended until {instant(after.until)}.")

    def sweep(self) -> None:
        """Destroy keys that no collection needs: those of one that is shuffled, and those that nobody used for a day."""
        rows, now = {row.key: row for row in self.store.rows()}, min(time.time(), self.store.now())
        for key in self.keys.names():
            row = rows.get(key)
            if row is None:
                if not self._steps.claim(key).exists() and _age(self.keys.path / f"{key}.key", now) > DAY:
                    self.keys.destroy(key)
            elif row.state not in STATES_WITH_KEYS:
                self.keys.destroy(key)
        for path in self.keys.path.glob(".*.part"):  # what an interruption left of a secret that was being written
            if _age(path, now) > DAY:
                destroy(path)

    def run(self, stop: threading.Event) -> None:
        """Drive all collections until this is told to stop."""
        driver = CollectionScheduler(self.store, self.advance, self._steps.is_due, self.sweep, self.trouble, self.tell)
        while not stop.is_set():
            stop.wait(driver.round())
        driver.leave()


def _age(path: Path, now: float) -> float:
    """Seconds since a file was written."""
    try:
        return now - path.stat().st_mtime
    except FileNotFoundError:
        return 0.0
