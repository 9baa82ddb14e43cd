"""What a shuffler does in each state of a collection, and the step into the next one.

Everything here is done again after an interruption and gives the same. A reason to give up is a `CollectionFailed`, and the collection
is aborted with
it; a `StoreError`, a full disk or an unreachable hop is none: it is tried again later.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from metricshuffle.collection.keys import CollectionKeys, KeyFolder, destroy, read_secret, release_token, write_secret
from metricshuffle.collection.shuffler.admission import FINAL_STATES
from metricshuffle.collection.shuffler.external_sort import SORT_MEMORY_BYTES, ExternalSort, SortResult
from metricshuffle.collection.shuffler.output_files import OutputFolder, do_nothing, hash_chunks, read_chunks, write_out
from metricshuffle.collection.shuffler.upstream import UpstreamLink, UpstreamNotReady, UpstreamReceipt, UpstreamRejected
from metricshuffle.collection.store.interface import DatabaseDamaged, Row, State, Store, StoreError
from metricshuffle.collection.terms import Collection, instant, parse_time
from metricshuffle.collection.witness import NotCountersigned, WitnessLink
from metricshuffle.errors import MetricShuffleError, PlanError

MISSING_KEYS = "its keys are missing: they were destroyed, or its database is older than they are"
OUTPUT_MISMATCH = "what was let go is not what its reports give: its database is older, or was changed"
DAMAGED_OUTPUT = "its output is damaged, in the file and in the database"
NOT_FETCHED = "the shuffler before this one did not let it go in time"
NOT_COLLECTED = "not collected"
STATES_WITH_KEYS: tuple[State, ...] = ("open", "sealed", "shuffled")
"""While a collection is in one of these, its keys are there or have only just been destroyed."""


class CollectionFailed(MetricShuffleError):
    """A collection cannot go on; the message is the reason that everybody may read."""


@contextmanager
def _damage_errors() -> Iterator[None]:
    """Reports that cannot be read now or later are a reason to give up."""
    try:
        yield
    except DatabaseDamaged:
        raise CollectionFailed("its database is damaged: it does not hold the reports that it counted") from None
    except PlanError as damaged:
        raise CollectionFailed(str(damaged).rstrip(".")) from None


@dataclass(frozen=True)
class Steps:
    """Of all collections of a store. Whoever takes a step does so alone, see `OutputFolder.alone`; the database checks it all the same."""

    store: Store
    keys: KeyFolder
    outputs: OutputFolder
    at: Callable[[str], None] = do_nothing
    memory: int = SORT_MEMORY_BYTES
    abandon: Sequence[str] | None = None
    """Digests of collections that are given up if their secrets are missing; None gives up whatever is this folder's and misses them."""
    owner: str = ""
    """The name of this folder of keys."""
    _sort_lock: threading.Lock = field(default_factory=threading.Lock)
    """One collection at a time is in memory."""
    _kept: dict[str, tuple[str, int, int]] = field(default_factory=dict)
    """What was mixed and written since this process started, and waits for its witness, by digest: see `_written`."""
    _checked_outputs: set[tuple[str, State]] = field(default_factory=set)
    """Whose output was read and is right, or whose files are gone, since this process started: by digest and state."""

    def taken(self, row: Row) -> bool:
        """Do what is due in the state of a collection; whether it is worth looking what is due next."""
        if not self.belongs_here(row):
            raise StoreError(f"collection {row.digest[:16]} belongs to another shuffler of this database, which drives it.")
        if self.misses_keys(row) and not self._may_abandon(row):
            raise StoreError(
                f"the keys of collection {row.digest[:16]} are missing in {self.keys.path}; put them back, or, if they are lost for good, "
                f"abort it with serve --abandon {row.digest}."
            )
        if row.state not in FINAL_STATES:
            self.store.read_clock().check()
        collection = Collection(row.served)
        due = {"open": self._open, "sealed": self._sealed, "shuffled": self._shuffled, "erased": self._erased, "released": self._released}
        try:
            return due.get(row.state, self._ended)(row, collection)
        except CollectionFailed as lost:
            self.at("aborting")
            self.store.move(row.digest, row.state, "aborted", reason=str(lost))
            self.at("aborted")
            return True

    def is_due(self, row: Row, now: float) -> bool:
        """Whether there is anything to do, as far as can be told without doing much."""
        if not self.belongs_here(row):
            return False
        is_looked_at = (row.digest, row.state) in self._checked_outputs
        if row.state == "open":
            return now >= row.until or not self.keys.has(row.key)
        if row.state == "released":
            over = row.collected or now >= row.released_at + Collection(row.served).terms.retention
            return over or not is_looked_at or self.outputs.owed(row.digest).exists()
        return not is_looked_at

    def belongs_here(self, row: Row) -> bool:
        """Whether it belongs to this folder. A row without an owner, of an older version, belongs to whoever has its secrets: anybody else
        would take them for lost, or for destroyed, while they lie in somebody else's folder.
        """
        if row.owner:
            return row.owner == self.owner or self.keys.has(row.key)
        return not self.misses_keys(row) or self._may_abandon(row)

    def misses_keys(self, row: Row) -> bool:
        """Whether its secrets are needed, and neither here nor destroyed for what lies in the output folder."""
        return row.state in STATES_WITH_KEYS and not self.keys.has(row.key) and not self.outputs.boxes(row.digest).exists()

    def _may_abandon(self, row: Row) -> bool:
        return self.abandon is None or row.digest in self.abandon

    def claim(self, key: str) -> Path:
        """A file that says for which collection these keys are, as long as they are."""
        return self.keys.path / f"{key}.opened"

    def _secrets(self, row: Row) -> CollectionKeys:
        keys = self.keys.of(row.key)
        if keys is None:
            raise CollectionFailed(MISSING_KEYS)
        return keys

    # open -> sealed

    def _open(self, row: Row, collection: Collection) -> bool:
        keys = self._secrets(row)
        if self.outputs.boxes(row.digest).exists():
            raise CollectionFailed(OUTPUT_MISMATCH)
        if place := collection.hop_index_of(row.key):
            return self._fetch(row, UpstreamLink(collection, place), keys)
        self.at("sealing")
        distinct = None
        if self.store.awaits_count(row.digest):
            self.at("counting")
            distinct = self._distinct(row, collection, keys)
            self.at("counted")
        state = self.store.seal(row.digest, distinct)
        self.at("sealed")
        return state != "open"

    def _distinct(self, row: Row, collection: Collection, keys: CollectionKeys) -> int:
        """Reports that share no message with another one, when it can still be extended if they are too few. Nothing is written down."""
        with self._sort_lock, _damage_errors():
            return self._sort_of(row, collection, keys).distinct()

    def _sort_of(self, row: Row, collection: Collection, keys: CollectionKeys) -> ExternalSort:
        """The reports that people sent here, as they are mixed."""

        def decrypted_reports() -> Iterator[bytes]:
            return (keys.shown(tag, hidden) for tag, hidden in self.store.hidden(row.digest))

        return ExternalSort(decrypted_reports, collection.sealing.inner_size, collection.sealing.messages, row.reports, self.memory)

    def _fetch(self, row: Row, link: UpstreamLink, keys: CollectionKeys) -> bool:
        """At a later hop, where time seals nothing: from the closing time on ask the hop before."""
        terms, now = link.collection.terms, self.store.now()
        if now >= parse_time(terms.extends) + terms.retention:
            raise CollectionFailed(NOT_FETCHED)
        if now < parse_time(terms.closes):
            return False
        self.at("fetching")
        before = self._load_receipt(row)
        if before is None or hash_chunks(read_chunks(self.outputs.fetched(row.digest))) != before.output:
            try:
                owed = link.fetched(self.outputs.fetched(row.digest), release_token(keys.private), before.output if before else None)
            except UpstreamNotReady:
                return False
            except UpstreamRejected as refused:
                raise CollectionFailed(str(refused)) from None
            self.at("fetched")
            destroy(self.outputs.owed(row.digest))
            write_secret(self.outputs.owed(row.digest), owed.data())
        self.at("owed")
        self.store.move(row.digest, "open", "sealed")
        self.at("sealed")
        return True

    # sealed -> shuffled

    def _sealed(self, row: Row, collection: Collection) -> bool:
        kept = self._kept.get(row.digest)
        if kept is None or hash_chunks(read_chunks(self.outputs.boxes(row.digest))) != kept[0]:
            kept = self._kept[row.digest] = self._written(row, collection)
        output, people, left_out = kept
        signature = self._countersignature(row, collection, output)
        self.store.move(
            row.digest, "sealed", "shuffled", people=people, left_out=left_out, output=output, countersignature=signature
        )  # fmt: skip
        self._kept.pop(row.digest, None)
        self.at("shuffled")
        return True

    def _written(self, row: Row, collection: Collection) -> tuple[str, int, int]:
        """Everything mixed, in a file and in the database, and read back. Its digest, whose it is, and how many were left out."""
        keys, path = self._secrets(row), self.outputs.boxes(row.digest)
        mix = self._mix_fetched if collection.hop_index_of(row.key) else self._mix_reports
        self.at("mixing")
        with self._sort_lock:
            output, people, left_out = write_out(path, lambda stream: mix(row, collection, keys, stream), self.at)
        self.store.keep_output(row.digest, self._copy_chunks(path))
        self.at("copied")
        if not hash_chunks(read_chunks(path)) == hash_chunks(self.store.output(row.digest)) == output:
            destroy(path)
            raise StoreError("the output was read back otherwise than it was written; the disk is not to be trusted.")
        self.at("compared")
        return output, people, left_out

    def _countersignature(self, row: Row, collection: Collection, output: str) -> str:
        """The witness's, once it is sure that nothing else of this collection is ever let go; nothing if the collection names no witness.

        As long as there is none it stays sealed. After so long as anybody would wait for what it lets go it is given up.
        """
        terms = collection.terms
        witness = terms.hops[collection.hop_index_of(row.key) or 0].witness
        if witness is None:
            return ""
        self.at("asking the witness")
        try:
            signature = WitnessLink(witness.url, self.keys.signing).countersignature(witness, row.digest, output)
        except NotCountersigned as wrong:
            deadline = parse_time(terms.extends) + terms.retention
            if self.store.now() >= deadline:
                raise CollectionFailed(wrong.reason) from None
            raise NotCountersigned(f"{wrong} If nothing changes, it is aborted at {instant(deadline)}.", wrong.reason) from None
        self.at("countersigned")
        return signature

    def _mix_reports(self, row: Row, collection: Collection, keys: CollectionKeys, stream: IO[bytes]) -> tuple[str, int, int]:
        """At the first hop: reports that were opened when they came. The digest of what was written, whose it is, and how many not."""
        minimum, mixing = collection.terms.minimum, self._sort_of(row, collection, keys)
        mixed = self._check_mixed(row, lambda: mixing.written(stream))
        if mixed.reports != row.reports:
            raise CollectionFailed(f"{row.reports:,} reports were stored, and {mixed.reports:,} are left: its database is damaged")
        if mixed.people < minimum:
            raise CollectionFailed(
                f"fewer reports than the {minimum:,} that were needed, without {len(mixed.shared):,} that share a message with another one"
            )
        return mixed.digest, mixed.people, len(mixed.shared)

    def _mix_fetched(self, row: Row, collection: Collection, keys: CollectionKeys, stream: IO[bytes]) -> tuple[str, int, int]:
        """At a later hop: messages that were fetched. Whose they are is what the hop before said."""
        link, owed = UpstreamLink(collection, collection.hop_index_of(row.key) or 0), self._load_receipt(row)
        if owed is None or not self.outputs.fetched(row.digest).exists():
            raise CollectionFailed("what was fetched from the shuffler before this one is lost here")
        count, path = owed.people * collection.terms.messages, self.outputs.fetched(row.digest)
        mixed = self._check_mixed(row, lambda: link.mixed(path, keys.private, count, stream, self.memory))
        return mixed.digest, owed.people, owed.left_out

    def _check_mixed(self, row: Row, mix: Callable[[], SortResult]) -> SortResult:
        """What is mixed, unless it cannot be read, or is not what an interrupted run has let go before."""
        path = self.outputs.boxes(row.digest)
        with _damage_errors():
            mixed = mix()
        if path.exists() and hash_chunks(read_chunks(path)) != mixed.digest:
            raise CollectionFailed(OUTPUT_MISMATCH)
        return mixed

    def _copy_chunks(self, path: Path) -> Iterator[bytes]:
        for chunk in read_chunks(path):
            yield chunk
            self.at("copying")

    # shuffled -> erased -> released

    def _shuffled(self, row: Row, _: Collection) -> bool:
        self._erase(row)
        self.store.move(row.digest, "shuffled", "erased")
        self.at("erased")
        return True

    def _erase(self, row: Row) -> None:
        """No original and no key is left."""
        self.at("forgetting")
        self.store.forget_deleted()
        self.at("forgotten")
        destroy(self.outputs.fetched(row.digest))
        destroy(self.claim(row.key))
        self.keys.destroy(row.key)
        self.at("keys destroyed")

    def _erased(self, row: Row, _: Collection) -> bool:
        self._check_output(row)
        self.at("checked")
        self.store.move(row.digest, "erased", "released")
        self.at("released")
        return True

    def _check_output(self, row: Row) -> None:
        """The file is what was shuffled; if it is not, the copy in the database takes its place."""
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

    def _released(self, row: Row, collection: Collection) -> bool:
        over = self.store.now() >= row.released_at + collection.terms.retention
        if row.collected:
            self.at("purging")
            self.store.move(row.digest, "released", "purged")
            self.at("purged")
            return True
        if over:
            raise CollectionFailed(NOT_COLLECTED)
        if (row.digest, row.state) not in self._checked_outputs:
            self._check_output(row)
            self._checked_outputs.add((row.digest, row.state))
        self._acknowledge(row, collection)
        return False

    def _ended(self, row: Row, collection: Collection) -> bool:
        """Nothing is left but the row. A later hop may still have to tell the one before that it has what it fetched."""
        owed = self.outputs.owed(row.digest)
        if self.keys.has(row.key) or self.claim(row.key).exists() or set(self.outputs.left(row.digest)) - {owed}:
            self._erase(row)
            for path in self.outputs.left(row.digest):
                if path != owed:
                    destroy(path)
            self.at("cleaned")
        if row.state == "purged" and owed.exists() and self.store.now() < row.released_at + collection.terms.retention:
            self._acknowledge(row, collection)
        destroy(owed)
        self._kept.pop(row.digest, None)
        self._checked_outputs.add((row.digest, row.state))
        return False

    def _load_receipt(self, row: Row) -> UpstreamReceipt | None:
        with suppress(FileNotFoundError):
            return UpstreamReceipt.read(read_secret(self.outputs.owed(row.digest)))
        return None

    def _acknowledge(self, row: Row, collection: Collection) -> None:
        """At a later hop: what was fetched is safe here; the hop before may forget it."""
        if owed := self._load_receipt(row):
            self.at("acknowledging")
            UpstreamLink(collection, collection.hop_index_of(row.key) or 0).acknowledged(owed)
            self.at("acknowledged")
        destroy(self.outputs.owed(row.digest))
