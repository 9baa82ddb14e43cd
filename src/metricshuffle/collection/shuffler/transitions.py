"""Transitions between the states of a collection.

After an interruption each step is done again, with the same result. `CollectionFailed` is final:
the collection is aborted with it as the reason. A `StoreError`, a full disk or an unreachable hop
is not: the step is tried again later.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from metricshuffle.collection.hub.lease_list import LeaseList
from metricshuffle.collection.keys import (
    CollectionKeys,
    KeyFolder,
    destroy,
    release_token,
    write_secret,
)
from metricshuffle.collection.mixer.object_mixing import MixerSettings
from metricshuffle.collection.shuffler.admission import FINAL_STATES, counting_end
from metricshuffle.collection.shuffler.collection_failures import (
    DAMAGED_OUTPUT,
    MISSING_KEYS,
    NOT_COLLECTED,
    NOT_FETCHED,
    OUTPUT_MISMATCH,
    CollectionFailed,
    CountingOver,
    damage_errors,
)
from metricshuffle.collection.shuffler.collection_mixing import (
    CollectionMixing,
    WriteOutput,
    find_dummies,
    load_receipt,
)
from metricshuffle.collection.shuffler.dummy_boxes import DummyBoxes
from metricshuffle.collection.shuffler.external_sort import SORT_MEMORY_BYTES
from metricshuffle.collection.shuffler.log_events import LogEvent
from metricshuffle.collection.shuffler.output_files import (
    MixedOutput,
    OutputFolder,
    do_nothing,
    hash_chunks,
    read_chunks,
    write_out,
)
from metricshuffle.collection.shuffler.upstream import (
    UpstreamLink,
    UpstreamNotReady,
    UpstreamRejected,
)
from metricshuffle.collection.store.records import CollectionRow, LeasesHeld, State, StoreError
from metricshuffle.collection.store.sql_store import Store
from metricshuffle.collection.terms import Collection, instant, parse_time
from metricshuffle.collection.witness import NotCountersigned, WitnessLink

NOT_COUNTED = (
    "The distinct reports of collection {} were not counted in time. It is sealed, and aborted if "
    "too few are distinct."
)
STATES_WITH_KEYS: tuple[State, ...] = ("open", "sealed", "shuffled")
"""States in which the keys of a collection exist, or were destroyed a moment ago."""


@dataclass(frozen=True)
class Steps:
    """Transitions of all collections of a store.

    One process at a time takes a step of a collection, see `OutputFolder.alone`; the database
    checks every step nevertheless.
    """

    store: Store
    keys: KeyFolder
    outputs: OutputFolder
    at: Callable[[str], None] = do_nothing
    memory: int = SORT_MEMORY_BYTES
    abandon: Sequence[str] | None = None
    """Digests of collections to abort if their keys are missing; None for all."""
    owner: str = ""
    """Name of this folder of keys."""
    leases: LeaseList | None = None
    """Leases of keys to edges; None if there never was one."""
    log: Callable[[str], None] = do_nothing
    mixers: MixerSettings | None = None
    """Object store of mixers, if there is one."""
    _sort_lock: threading.Lock = field(default_factory=threading.Lock)
    """Only one collection at a time is sorted in memory."""
    _mixed: dict[str, MixedOutput] = field(default_factory=dict)
    """Outputs that this process wrote and that wait for their witness, by digest."""
    _drawn: dict[str, str] = field(default_factory=dict)
    """Digests of dummies that this process drew for collections that are not sealed yet."""
    _checked_outputs: set[tuple[str, State]] = field(default_factory=set)
    """Digest and state of collections whose output was checked, or whose files are gone."""

    def take(self, row: CollectionRow) -> bool:
        """Do what is due in the state of a collection; return whether another step may be due."""
        if not self.belongs_here(row):
            raise StoreError(
                f"collection {row.digest[:16]} belongs to another shuffler of this "
                "database, which drives it."
            )
        if self.misses_keys(row) and not self._may_abandon(row):
            raise StoreError(
                f"the keys of collection {row.digest[:16]} are missing in {self.keys.path}; "
                "restore them, or, if they are lost for good, abort it with serve --abandon "
                f"{row.digest}."
            )
        if row.state not in FINAL_STATES:
            self.store.read_clock().check()
        collection = Collection(row.served)
        steps = {
            "open": self._open,
            "sealed": self._sealed,
            "shuffled": self._shuffled,
            "erased": self._erased,
            "released": self._released,
        }
        try:
            return steps.get(row.state, self._ended)(row, collection)
        except CollectionFailed as error:
            self.at("aborting")
            self.store.move(row.digest, row.state, "aborted", reason=str(error))
            self.at("aborted")
            return True

    def is_due(self, row: CollectionRow, now: float) -> bool:
        """Return whether a step may be due, by a cheap check."""
        if not self.belongs_here(row):
            return False
        is_checked = (row.digest, row.state) in self._checked_outputs
        if row.state == "open":
            return now >= row.until or not self.keys.has(row.key)
        if row.state == "released":
            is_over = (
                row.collected or now >= row.released_at + Collection(row.served).terms.retention
            )
            return is_over or not is_checked or self.outputs.owed(row.digest).exists()
        return not is_checked

    def belongs_here(self, row: CollectionRow) -> bool:
        """Return whether the collection belongs to this folder of keys.

        A row without an owner, of an older version, belongs to the folder that has its keys:
        another folder would treat them as lost or destroyed.
        """
        if row.owner:
            return row.owner == self.owner or self.keys.has(row.key)
        return not self.misses_keys(row) or self._may_abandon(row)

    def misses_keys(self, row: CollectionRow) -> bool:
        """Return whether needed keys are missing, and no output explains why."""
        return (
            row.state in STATES_WITH_KEYS
            and not self.keys.has(row.key)
            and not self.outputs.boxes(row.digest).exists()
        )

    def _may_abandon(self, row: CollectionRow) -> bool:
        return self.abandon is None or row.digest in self.abandon

    def claim(self, key: str) -> Path:
        """File that names the collection of these keys."""
        return self.keys.path / f"{key}.opened"

    def _secrets(self, row: CollectionRow) -> CollectionKeys:
        keys = self.keys.of(row.key)
        if keys is None:
            raise CollectionFailed(MISSING_KEYS)
        return keys

    # open -> sealed

    def _open(self, row: CollectionRow, collection: Collection) -> bool:
        keys = self._secrets(row)
        if self.outputs.boxes(row.digest).exists():
            raise CollectionFailed(OUTPUT_MISMATCH)
        if place := collection.hop_index_of(row.key):
            return self._fetch(row, UpstreamLink(collection, place), keys)
        self.at("sealing")
        distinct = None
        if self.store.awaits_count(row.digest):
            self.at("counting")
            try:
                distinct = self._distinct(row, collection, keys)
            except CountingOver:
                self.log(LogEvent(NOT_COUNTED.format(row.digest[:16]), "trouble"))
            self.at("counted")
        dummies = ""
        if collection.sealing.piles:
            if self.store.now() < row.until:
                return False  # sealing is not due; the row was examined for another reason
            dummies = self._draw_dummies(row, collection, keys)
        state = self.store.seal(row.digest, distinct, dummies)
        self.at("sealed")
        self._destroy_other_dummies(row.digest)
        return state != "open"

    def _draw_dummies(
        self, row: CollectionRow, collection: Collection, keys: CollectionKeys
    ) -> str:
        """Draw and seal the dummies of this hop for a collection with piles; return their digest.

        Only dummies whose digest is stored by the transaction that seals the collection are mixed.
        If that transaction failed before, the same dummies are used again.
        """
        drawn = self._drawn.get(row.digest, "")
        if drawn and find_dummies(self.outputs, row.digest, drawn) is not None:
            return drawn
        self.at("drawing")
        drawn = self._dummy_boxes(row, collection, keys).write(self.outputs, self.at)
        self._drawn[row.digest] = drawn
        self.at("drawn")
        return drawn

    def _dummy_boxes(
        self, row: CollectionRow, collection: Collection, keys: CollectionKeys
    ) -> DummyBoxes:
        place = collection.hop_index_of(row.key) or 0
        return DummyBoxes(collection, collection.layer_of(place), keys)

    def _destroy_other_dummies(self, digest: str) -> None:
        """Destroy dummies that are never mixed, because another process sealed with its own."""
        self._drawn.pop(digest, None)
        row = self.store.row(digest)
        for path in self.outputs.dummies(digest):
            if row is None or hash_chunks(read_chunks(path)) != row.dummies:
                destroy(path)

    def _distinct(self, row: CollectionRow, collection: Collection, keys: CollectionKeys) -> int:
        """Count reports that share no message with another one; nothing is written.

        Raises: CountingOver after `counting_end`.
        """
        terms = collection.terms
        last = counting_end(parse_time(terms.closes), parse_time(terms.extends))
        end = time.monotonic() + last - self.store.now()
        if not self._sort_lock.acquire(timeout=max(0.0, end - time.monotonic())):
            raise CountingOver
        try:
            with damage_errors():
                return self._mixing(row, collection, keys).sorted_reports(end).distinct()
        finally:
            self._sort_lock.release()

    def _fetch(self, row: CollectionRow, link: UpstreamLink, keys: CollectionKeys) -> bool:
        """Fetch the messages of a later hop from the previous hop, after the closing time."""
        terms = link.collection.terms
        now = self.store.now()
        if now >= parse_time(terms.extends) + terms.retention:
            raise CollectionFailed(NOT_FETCHED)
        if now < parse_time(terms.closes):
            return False
        self.at("fetching")
        path = self.outputs.fetched(row.digest)
        before = load_receipt(self.outputs, row)
        if before is None or hash_chunks(read_chunks(path)) != before.output:
            try:
                receipt = link.fetch(
                    path, release_token(keys.private), before.output if before else None
                )
            except UpstreamNotReady:
                return False
            except UpstreamRejected as error:
                raise CollectionFailed(str(error)) from None
            self.at("fetched")
            destroy(self.outputs.owed(row.digest))
            write_secret(self.outputs.owed(row.digest), receipt.data())
        self.at("owed")
        piled = bool(link.collection.sealing.piles)
        dummies = self._draw_dummies(row, link.collection, keys) if piled else None
        self.store.move(row.digest, "open", "sealed", dummies=dummies)
        self.at("sealed")
        self._destroy_other_dummies(row.digest)
        return True

    # sealed -> shuffled

    def _sealed(self, row: CollectionRow, collection: Collection) -> bool:
        mixed = self._mixed.get(row.digest)
        if (
            mixed is None
            or hash_chunks(read_chunks(self.outputs.boxes(row.digest))) != mixed.digest
        ):
            write = self._mixing(row, collection, self._secrets(row)).writer()
            if write is None:
                return False  # mixers work
            mixed = self._write_mixed(row, write)
            self._mixed[row.digest] = mixed
        signature = self._countersignature(row, collection, mixed.digest)
        self.store.move(
            row.digest,
            "sealed",
            "shuffled",
            people=mixed.people,
            left_out=mixed.left_out,
            output=mixed.digest,
            countersignature=signature,
        )
        self._mixed.pop(row.digest, None)
        self.at("shuffled")
        return True

    def _mixing(
        self, row: CollectionRow, collection: Collection, keys: CollectionKeys
    ) -> CollectionMixing:
        return CollectionMixing(
            self.store, self.outputs, self.memory, row, collection, keys, self.mixers, self.at
        )

    def _write_mixed(self, row: CollectionRow, write: WriteOutput) -> MixedOutput:
        """Shuffle all messages into a file and into the database, and read both back."""
        path = self.outputs.boxes(row.digest)
        self.at("mixing")
        with self._sort_lock:
            mixed = write_out(path, write, self.at)
        self.store.keep_output(row.digest, self._copy_chunks(path))
        self.at("copied")
        if (
            not hash_chunks(read_chunks(path))
            == hash_chunks(self.store.output(row.digest))
            == mixed.digest
        ):
            destroy(path)
            raise StoreError(
                "the output that was read back differs from what was written; do not trust "
                "the disk."
            )
        self.at("compared")
        return mixed

    def _countersignature(self, row: CollectionRow, collection: Collection, output: str) -> str:
        """Countersignature of the witness for an output; empty if the collection names none.

        Without it the collection stays sealed, and is aborted when its retention would end.
        """
        terms = collection.terms
        witness = terms.hops[collection.hop_index_of(row.key) or 0].witness
        if witness is None:
            return ""
        self.store.confirm(row.digest, row.state)
        self.at("asking the witness")
        try:
            signature = WitnessLink(witness.url, self.keys.signing).countersignature(
                witness, row.digest, output
            )
        except NotCountersigned as error:
            deadline = parse_time(terms.extends) + terms.retention
            if self.store.now() >= deadline:
                raise CollectionFailed(error.reason) from None
            raise NotCountersigned(
                f"{error} If nothing changes, it is aborted at {instant(deadline)}.", error.reason
            ) from None
        self.at("countersigned")
        return signature

    def _copy_chunks(self, path: Path) -> Iterator[bytes]:
        for chunk in read_chunks(path):
            yield chunk
            self.at("copying")

    # shuffled -> erased -> released

    def _shuffled(self, row: CollectionRow, _: Collection) -> bool:
        self._erase(row)
        leases = row.leases + (self.leases.ends_of(row.digest) if self.leases is not None else "")
        self.store.move(row.digest, "shuffled", "erased", leases=leases)
        self.at("erased")
        return True

    def _erase(self, row: CollectionRow) -> None:
        """Delete all originals and keys, once every lease of the keys has ended."""
        if self.leases is not None and (count := len(self.leases.living(row.digest))):
            raise LeasesHeld(
                f"{count:,} lease{'s' * (count != 1)} of the keys of collection "
                f"{row.digest[:16]} {'have' if count != 1 else 'has'} not ended; they are "
                "destroyed after that."
            )
        self.store.confirm(row.digest, row.state)
        self.at("forgetting")
        self.store.forget_deleted()
        self.at("forgotten")
        destroy(self.outputs.fetched(row.digest))
        for path in self.outputs.dummies(row.digest):
            destroy(path)
        if self.mixers is not None:
            self.mixers.objects.delete(row.digest)
            self.at("pieces deleted")
        destroy(self.claim(row.key))
        self.keys.destroy(row.key)
        self.at("keys destroyed")

    def _erased(self, row: CollectionRow, _: Collection) -> bool:
        self._check_output(row)
        self.at("checked")
        self.store.move(row.digest, "erased", "released")
        self.at("released")
        return True

    def _check_output(self, row: CollectionRow) -> None:
        """Check the output file; if it is damaged, replace it by the copy in the database."""
        path = self.outputs.boxes(row.digest)
        if hash_chunks(read_chunks(path)) != row.output:

            def fill(stream: IO[bytes]) -> None:
                for chunk in self.store.output(row.digest):
                    stream.write(chunk)
                stream.seek(0)
                if hash_chunks(iter(lambda: stream.read(2**20), b"")) != row.output:
                    raise CollectionFailed(DAMAGED_OUTPUT)

            write_out(path, fill)

    # released -> purged

    def _released(self, row: CollectionRow, collection: Collection) -> bool:
        is_over = self.store.now() >= row.released_at + collection.terms.retention
        if row.collected:
            self.at("purging")
            self.store.move(row.digest, "released", "purged")
            self.at("purged")
            return True
        if is_over:
            raise CollectionFailed(NOT_COLLECTED)
        if (row.digest, row.state) not in self._checked_outputs:
            self._check_output(row)
            self._checked_outputs.add((row.digest, row.state))
        self._acknowledge(row, collection)
        return False

    def _ended(self, row: CollectionRow, collection: Collection) -> bool:
        """Delete everything but the row; a later hop may still have to acknowledge its download."""
        owed = self.outputs.owed(row.digest)
        if (
            self.keys.has(row.key)
            or self.claim(row.key).exists()
            or set(self.outputs.left(row.digest)) - {owed}
        ):
            self._erase(row)
            for path in self.outputs.left(row.digest):
                if path != owed:
                    destroy(path)
            self.at("cleaned")
        if (
            row.state == "purged"
            and owed.exists()
            and self.store.now() < row.released_at + collection.terms.retention
        ):
            self._acknowledge(row, collection)
        destroy(owed)
        self._mixed.pop(row.digest, None)
        self._checked_outputs.add((row.digest, row.state))
        return False

    def _acknowledge(self, row: CollectionRow, collection: Collection) -> None:
        """Acknowledge the download at the previous hop, so that it may delete it."""
        if receipt := load_receipt(self.outputs, row):
            self.store.confirm(row.digest, row.state)
            self.at("acknowledging")
            UpstreamLink(collection, collection.hop_index_of(row.key) or 0).acknowledge(receipt)
            self.at("acknowledged")
        destroy(self.outputs.owed(row.digest))
