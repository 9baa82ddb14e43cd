"""Lifecycle of collections: open them and move each through its states.

    open -> sealed -> shuffled -> erased -> released -> purged
    or aborted, with the reason, from every state before purged

Each step is one transaction of the database and can be repeated after an interruption. Nothing is
released before the originals are deleted and the keys destroyed: a disk taken afterwards contains
no more than what was released.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from metricshuffle.collection.hub.lease_list import LeaseList
from metricshuffle.collection.keys import (
    CollectionKeys,
    KeyFolder,
    destroy,
    read_secret,
    write_secret,
)
from metricshuffle.collection.mixer.object_mixing import MixerSettings
from metricshuffle.collection.sealed_boxes import TICKET_BYTES
from metricshuffle.collection.shuffler.external_sort import SORT_MEMORY_BYTES
from metricshuffle.collection.shuffler.log_events import LogEvent
from metricshuffle.collection.shuffler.output_files import OutputFolder, do_nothing, read_chunks
from metricshuffle.collection.shuffler.scheduler import CollectionScheduler
from metricshuffle.collection.shuffler.transitions import STATES_WITH_KEYS, Steps
from metricshuffle.collection.store.records import CollectionRow, State, StoreError
from metricshuffle.collection.store.sql_store import Store
from metricshuffle.collection.terms import Collection, HopWitness, Party, Terms, instant, parse_time
from metricshuffle.collection.witness import Countersigner, WitnessLink
from metricshuffle.errors import InputError, PlanError

MAX_REASON_LENGTH = 300
DAY = 86_400


@contextmanager
def _disk_errors(what: str) -> Iterator[None]:
    """Turn a disk error into a sentence for the operator."""
    try:
        yield
    except OSError as error:
        raise StoreError(f"{what}: {error.strerror or error}.") from None


@dataclass(frozen=True)
class Status:
    """State of a collection, for its operator."""

    digest: str
    state: State
    reason: str
    reports: int
    minimum: int
    maximum: int
    round: int
    split: tuple[int, int]
    place: int
    """Index of this hop, from 0."""
    opens: str
    closes: str
    extends: str
    until: float
    """End of acceptance in seconds since 1970: `closes`, or `extends` once it was extended."""
    people: int
    left_out: int
    output: str
    collected: bool
    trouble: str
    """Why it cannot continue now; empty if it can."""


class Shuffler:
    """Opens and drives the collections of a store with the keys of a folder.

    Several shufflers may run at once.
    """

    def __init__(
        self,
        store: Store,
        keys: KeyFolder,
        *,
        after: str | None = None,
        at: Callable[[str], None] = do_nothing,
        log: Callable[[str], None] = do_nothing,
        memory: int = SORT_MEMORY_BYTES,
        abandon: Sequence[str] | None = None,
        witness: str | None = None,
        witness_for: Sequence[str] = (),
        is_hub: bool = False,
        mixers: MixerSettings | None = None,
    ) -> None:
        """Create a shuffler; nothing is driven before `run` or `advance`.

        Args:
            after: address of the shuffler before this one; None if people report here.
            at: called at every named point, where tests end the process.
            log: gets messages for the operator.
            memory: approximate bytes for sorting.
            abandon: digests of collections to abort if their keys are missing; None for all.
            witness: address of the shuffler that countersigns the outputs of this one.
            witness_for: keys of the shufflers whose outputs this one countersigns.
            is_hub: whether it leases keys to edges.
            mixers: object store of mixers, which mix large collections.
        """
        self.store = store
        self.keys = keys
        self.after = after
        self.at = at
        self.log = log
        self.witness = None if witness is None else WitnessLink(witness, keys.signing)
        self.countersigner = (
            Countersigner(store, keys.signing, witness_for, at) if witness_for else None
        )
        self.outputs = OutputFolder.of(keys)
        self.trouble: dict[str, str] = {}
        """Why a collection cannot continue, by digest."""
        self.confirm_lease: Callable[[str], str] | None = None
        """Ends a lease that the operator confirms; None except at a hub."""
        self.leases = LeaseList.at(keys.path, create=is_hub)
        """Leases of keys to edges; None if there never was one."""
        self._steps = Steps(
            store, keys, self.outputs, at, memory, abandon, keys.owner, self.leases, log, mixers
        )
        self._mixers = mixers

    # For the operator

    def new_party(self) -> Party:
        """Create keys for a new collection; return the public part."""
        with _disk_errors("keys cannot be stored"):
            return self.keys.new().party

    def gateway_of(self, party: Party) -> str:
        """Key configuration of the gateway for a new collection, in hexadecimal digits."""
        keys = self.keys.of(party.key)
        if keys is None:
            raise StoreError("the keys of this collection are not here.")
        return keys.gateway.configuration.encoded.hex()

    def new_witness(self) -> HopWitness | None:
        """Ask the witness of this shuffler, if any, for its entry in a collection."""
        return None if self.witness is None else self.witness.witness()

    def open(self, served: bytes, tickets: Sequence[bytes] = ()) -> bool:
        """Open a collection here; return False if it is open already.

        Only a first hop has tickets.
        """
        collection = Collection.read(served)
        if self.store.row(collection.digest) is not None:
            return False
        try:
            with _disk_errors(f"collection {collection.digest[:16]} cannot be opened"):
                keys = self._own_keys(collection)
                self._check_terms(collection, keys, tickets)
                self._claim(keys.party.key, collection.digest)
        except InputError:
            # Another process may have opened it meanwhile.
            if self.store.row(collection.digest) is not None:
                return False
            raise
        self.at("opening")
        try:
            added = self.store.add(
                collection,
                keys.party.key,
                [keys.ticket_hash(ticket) for ticket in tickets],
                self._steps.owner,
            )
        except InputError:
            destroy(self._steps.claim(keys.party.key))
            raise
        self.at("opened")
        if added:
            self._log_state(collection.digest, "was opened.", "open")
        # Another process may have opened and shuffled it meanwhile.
        if not self.keys.has(keys.party.key):
            destroy(self._steps.claim(keys.party.key))
        return added

    def _own_keys(self, collection: Collection) -> CollectionKeys:
        """Keys of the hop that is this shuffler."""
        own_hops = [
            (hop, keys)
            for hop in collection.terms.hops
            if (keys := self.keys.of(hop.key)) is not None
        ]
        if not own_hops:
            raise PlanError(
                "none of this collection's keys is this shuffler's; collection open asks "
                "it for new ones."
            )
        if len(own_hops) > 1:
            raise PlanError(
                "two hops of this collection are this same shuffler, which gives no more "
                "protection than one; use another one."
            )
        [(hop, keys)] = own_hops
        if keys.party.release != hop.release:
            raise PlanError(
                "the release token of this shuffler in the collection is not its own; "
                "nothing could be fetched with it."
            )
        return keys

    def _check_terms(
        self, collection: Collection, keys: CollectionKeys, tickets: Sequence[bytes]
    ) -> None:
        collection.check()
        terms = collection.terms
        place = collection.hop_index_of(keys.party.key) or 0
        self._check_place(collection, place)
        self._check_witness(terms.hops[place].witness)
        if terms.gateway and place == 0 and terms.gateway != self.gateway_of(keys.party):
            raise PlanError(
                "the gateway of this collection has another key than this shuffler's, which could "
                "not open what is sent through a relay."
            )
        if trouble := self.store.read_clock().trouble:
            raise InputError(trouble)
        if self.store.now() >= parse_time(terms.closes):
            raise InputError(
                f"this collection closed at {terms.closes}; open one that closes later."
            )
        _check_tickets(terms, place, tickets)
        self._check_issuer(collection)

    def _check_issuer(self, collection: Collection) -> None:
        """Raise if the issuer's key is that of another round, for which people have tokens too.

        The parts of a split share a key: a person gets one token, for one part.
        """
        terms = collection.terms
        if terms.issuer is None:
            return
        for row in self.store.rows():
            if terms.issuer.key.encode() not in row.served:
                continue
            earlier = Collection(row.served).terms
            if (earlier.task, earlier.round) != (terms.task, terms.round):
                raise InputError(
                    "the issuer's key is also that of another collection, where people may have "
                    "tokens too; let the issuer make a key for this collection alone."
                )

    def _check_place(self, collection: Collection, place: int) -> None:
        """Raise unless the previous hop is the one with which this shuffler was started."""
        before = collection.terms.hops[place - 1].url if place else None
        if before != self.after:
            expected = f"after {self.after}" if self.after else "where people report"
            actual = f"after {before}" if before else "where people report"
            raise PlanError(
                f"this shuffler is placed {expected}, but in this collection {actual}; see "
                "serve --after."
            )

    def _check_witness(self, named: HopWitness | None) -> None:
        """Raise unless the collection names this shuffler's witness, and this shuffler's key."""
        own = self.witness
        if own is None and named is None:
            return
        if (
            own is not None
            and named is not None
            and (named.url, named.asker) == (own.url, own.key.public)
        ):
            return
        started = f"with --witness {own.url}" if own else "without --witness"
        raise PlanError(
            f"this shuffler was started {started}, and this collection names "
            f"{named.url if named else 'no witness'} for it; let collection "
            "open ask it for new keys."
        )

    def _claim(self, key: str, digest: str) -> None:
        """Record to which collection keys belong, so that they are not destroyed as unused."""
        with suppress(FileExistsError):
            write_secret(self._steps.claim(key), digest.encode())
        if read_secret(self._steps.claim(key)) != digest.encode():
            raise PlanError(
                "these keys belong to another collection; collection open asks for new ones."
            )

    def status(self, digest: str) -> Status | None:
        row = self.store.row(digest)
        return None if row is None else self.status_of(row)

    def status_of(self, row: CollectionRow) -> Status:
        collection = Collection(row.served)
        terms = collection.terms
        return Status(
            digest=row.digest,
            state=row.state,
            reason=row.reason,
            reports=row.reports,
            minimum=terms.minimum,
            maximum=terms.maximum,
            round=terms.round,
            split=terms.split,
            place=collection.hop_index_of(row.key) or 0,
            opens=terms.opens,
            closes=terms.closes,
            extends=terms.extends,
            until=row.until,
            people=row.people,
            left_out=row.left_out,
            output=row.output,
            collected=row.collected,
            trouble=self.trouble.get(row.digest, ""),
        )

    def abort(self, digest: str, reason: str) -> Status:
        """Abort a collection before it is released, and destroy its reports and keys.

        The reason is public.
        """
        if not reason.strip() or not reason.isprintable() or len(reason) > MAX_REASON_LENGTH:
            raise InputError(f"a reason must be one line of up to {MAX_REASON_LENGTH} letters.")
        return self._end(
            digest,
            ("open", "sealed", "shuffled", "erased"),
            "aborted",
            f"by its operator: {reason.strip()}",
        )

    def purge(self, digest: str) -> Status:
        """Delete the output of a released collection; it is aborted if it was not collected."""
        return self._end(
            digest, ("released",), "purged", "purged by its operator before it was collected"
        )

    def _end(self, digest: str, allowed: Sequence[State], after: State, reason: str) -> Status:
        while True:
            row = self._row(digest)
            if row.owner and not self._steps.belongs_here(row):
                raise InputError(
                    "this collection belongs to another shuffler of this database; ask that one."
                )
            if row.state in ("purged", "aborted"):
                break
            if row.state not in allowed:
                raise InputError(
                    f"this collection is {row.state}; "
                    f"{'purge' if row.state == 'released' else 'abort'} it instead."
                )
            into: State = "aborted" if after == "aborted" or not row.collected else after
            if self.store.move(
                digest, row.state, into, reason=reason if into == "aborted" else None
            ):
                self._log_change(row)
                break
        with suppress(StoreError):  # the scheduler destroys the rest
            self.advance(digest)
        return self.status_of(self._row(digest))

    def confirm_clock(self) -> str:
        """Accept a clock that has jumped, with a public note in all unfinished collections."""
        return self._log_clock_note(self.store.confirm_clock())

    def correct_clock(self) -> str:
        """Replace stored times of a wrong clock, with a public note.

        No sealed collection opens again.
        """
        return self._log_clock_note(self.store.correct_clock())

    def accept_database(self) -> str:
        """Accept a database that is older than the keys, with a public note."""
        note = self.store.accept_database()
        self.log(LogEvent(note, "note"))
        return note

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

    def _row(self, digest: str) -> CollectionRow:
        row = self.store.row(digest)
        if row is None:
            raise InputError(f"there is no collection {digest[:16]} here.")
        return row

    def output_size(self, digest: str) -> int:
        """Bytes of `output`."""
        path = self.outputs.boxes(digest)
        return path.stat().st_size if path.exists() else self.store.output_size(digest)

    def output(self, digest: str) -> Iterator[bytes]:
        """Output of a released collection, from the checked file or else from the database."""
        path = self.outputs.boxes(digest)
        return read_chunks(path) if path.exists() else self.store.output(digest)

    # Driving

    def check_keys(self, abandon: Sequence[str] = ()) -> None:
        """Raise if keys of collections with reports are missing.

        Driving such a collection would destroy its reports. Collections in `abandon` may be
        aborted, unless they belong to another shuffler. Collections of other shufflers are logged
        and not changed.
        """
        rows = {row.digest: row for row in self.store.rows()}
        for digest in abandon:
            self._check_abandoned(digest, rows.get(digest))
        lost = [
            row.digest
            for row in rows.values()
            if row.owner == self._steps.owner and self._steps.misses_keys(row)
        ]
        if missing := sorted(set(lost) - set(abandon)):
            raise InputError(
                f"{self.keys.path} misses the keys of {len(missing):,} of its collections that "
                "have reports; restore them, or, if they are lost for good, abort those "
                f"collections: {' '.join(f'--abandon {digest}' for digest in missing)}."
            )
        others = [
            row.digest[:16]
            for row in rows.values()
            if row.state in STATES_WITH_KEYS and not self._steps.belongs_here(row)
        ]
        if others:
            self.log(
                f"This database holds {len(others):,} collection{'s' * (len(others) != 1)} of "
                "another shuffler "
                f"({', '.join(others[:3])}{', ...' if len(others) > 3 else ''}), whose keys "
                f"are not in {self.keys.path}; they are not changed. To drive them here, give "
                "the folder that has their keys with --keys."
            )

    def _check_abandoned(self, digest: str, row: CollectionRow | None) -> None:
        """Raise unless a collection has ended, or may be aborted because its keys are lost."""
        if row is None:
            raise InputError(
                "--abandon names a collection by its whole digest, and this database has "
                f"no {digest!r}."
            )
        if row.owner and not self._steps.belongs_here(row):
            raise InputError(
                f"collection {digest[:16]} belongs to another shuffler of this database; "
                "nothing of it is abandoned here."
            )
        if row.state in STATES_WITH_KEYS and not self._steps.misses_keys(row):
            raise InputError(
                f"the keys of collection {digest[:16]} are in {self.keys.path}; start "
                "without --abandon, and see collection abort."
            )

    def advance(self, digest: str) -> State:
        """Take all due steps of a collection, unless another process does; return its state.

        Raises: StoreError, UpstreamUnreachable or NotCountersigned if disk or database, the
        previous hop or the witness fails; the step is tried again later.
        """
        with (
            _disk_errors(f"collection {digest[:16]} cannot go on"),
            self.outputs.alone(digest) as alone,
        ):
            going_on = alone
            while going_on:
                before = self._row(digest)
                going_on = self._steps.take(before)
                self._log_change(before)
        return self._row(digest).state

    def _log_change(self, before: CollectionRow) -> None:
        """Log the new state or end of a collection."""
        after = self._row(before.digest)
        if after.state != before.state:
            reason = f": {after.reason}" if after.reason else ""
            text = f"is {after.state}, after it was {before.state}{reason}."
            self._log_state(after.digest, text, after.state)
        elif after.until != before.until:
            text = f"has too few reports and is extended until {instant(after.until)}."
            self._log_state(after.digest, text, after.state)

    def _log_state(self, digest: str, text: str, state: State) -> None:
        event = LogEvent(
            f"Collection {digest[:16]} {text}", "state", collection=digest, state=state
        )
        self.log(event)

    def sweep(self) -> None:
        """Destroy keys of shuffled collections, and keys that no collection used for a day."""
        rows = {row.key: row for row in self.store.rows()}
        now = min(time.time(), self.store.now())
        for key in self.keys.names():
            row = rows.get(key)
            if row is None:
                if (
                    not self._steps.claim(key).exists()
                    and _age(self.keys.path / f"{key}.key", now) > DAY
                ):
                    self.keys.destroy(key)
            elif row.state not in STATES_WITH_KEYS:
                self.store.confirm(row.digest, row.state)
                self.keys.destroy(key)
        if self._mixers is not None:  # a mixer that was late leaves pieces behind
            owned = {row.digest for row in rows.values() if self._steps.belongs_here(row)}
            for digest in owned.intersection(self._mixers.objects.collections()):
                if self._row(digest).state not in ("sealed", "shuffled"):
                    self._mixers.objects.delete(digest)
        # An interruption while a secret was written leaves such files.
        for path in self.keys.path.glob(".*.part"):
            if _age(path, now) > DAY:
                destroy(path)

    def run(self, stop: threading.Event) -> None:
        """Drive all collections until `stop` is set."""
        scheduler = CollectionScheduler(
            self.store, self.advance, self._steps.is_due, self.sweep, self.trouble, self.log
        )
        while not stop.is_set():
            stop.wait(scheduler.round())
        scheduler.leave()


def _check_tickets(terms: Terms, place: int, tickets: Sequence[bytes]) -> None:
    if (terms.admission == "tickets" and place == 0) != bool(tickets):
        raise InputError(
            "tickets belong to the first shuffler of a collection that is opened with "
            "--admission tickets."
        )
    if any(len(ticket) != TICKET_BYTES for ticket in tickets) or len(set(tickets)) != len(tickets):
        raise InputError(f"tickets must have {TICKET_BYTES} bytes each, and all must be different.")
    if tickets and len(tickets) < terms.minimum:
        raise InputError(
            f"{len(tickets):,} tickets are too few for the {terms.minimum:,} reports that this "
            "collection needs."
        )


def _age(path: Path, now: float) -> float:
    """Seconds since a file was written."""
    try:
        return now - path.stat().st_mtime
    except FileNotFoundError:
        return 0.0
