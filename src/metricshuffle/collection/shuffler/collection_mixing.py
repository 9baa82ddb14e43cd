"""Mixing of one collection: the reports or fetched messages of a hop, and its dummies.

One process mixes, or, with an object store, mixers mix the reports of a large collection; the bytes
that are written are the same.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, TypeVar

from metricshuffle.collection.keys import CollectionKeys, read_secret
from metricshuffle.collection.mixer.object_mixing import (
    JoinedRuns,
    MixerSettings,
    NotForMixers,
    ObjectMixing,
)
from metricshuffle.collection.shuffler.collection_failures import (
    LOST_DUMMIES,
    OUTPUT_MISMATCH,
    CollectionFailed,
    CountingOver,
    damage_errors,
)
from metricshuffle.collection.shuffler.dummy_boxes import DummyBoxes, PileBox, PileMixing
from metricshuffle.collection.shuffler.external_sort import ExternalSort, SortResult
from metricshuffle.collection.shuffler.fetched_boxes import FetchedBoxes
from metricshuffle.collection.shuffler.output_files import (
    MixedOutput,
    OutputFolder,
    do_nothing,
    hash_chunks,
    read_chunks,
)
from metricshuffle.collection.shuffler.upstream import UpstreamLink, UpstreamReceipt
from metricshuffle.collection.store.records import CollectionRow
from metricshuffle.collection.store.sql_store import Store
from metricshuffle.collection.terms import Collection

Written = TypeVar("Written", SortResult, MixedOutput)
WriteOutput = Callable[[IO[bytes]], MixedOutput]


@dataclass(frozen=True)
class CollectionMixing:
    """Mixing of a sealed collection with the keys of this hop."""

    store: Store
    outputs: OutputFolder
    memory: int
    row: CollectionRow
    collection: Collection
    keys: CollectionKeys
    mixers: MixerSettings | None = None
    """Object store of mixers, if there is one."""
    at: Callable[[str], None] = do_nothing

    @property
    def _place(self) -> int:
        """Index of this hop."""
        return self.collection.hop_index_of(self.row.key) or 0

    def writer(self) -> WriteOutput | None:
        """Return a function that writes the output from the start of a file.

        It is None while mixers work.
        """
        if self._place:
            return self._mix_fetched
        sealing = self.collection.sealing
        if self.mixers is None or not self.mixers.takes(self.row, sealing):
            return self._mix_reports
        piled = self._dummy_boxes().read(self._dummy_file()) if sealing.piles else None
        added, dummies = piled or ((), None)
        mixing = ObjectMixing(
            self.store, self.mixers, self.row, sealing, self.keys, dummies, added, self.at
        )
        try:
            joined = mixing.advance()
        except NotForMixers:
            return self._mix_reports
        return None if joined is None else partial(self._write_joined, mixing, joined)

    def _write_joined(
        self, mixing: ObjectMixing, joined: JoinedRuns, stream: IO[bytes]
    ) -> MixedOutput:
        """Write what mixers have sorted."""
        left_out = len(joined.shared)
        self._check_reports(joined.reports, left_out)
        return self._check_mixed(
            lambda: MixedOutput(mixing.write(joined, stream), joined.people, left_out)
        )

    def sorted_reports(self, end: float = math.inf) -> ExternalSort:
        """Sort of the reports that people sent here; reading ends at a time of the steady clock."""

        def decrypted_reports() -> Iterator[bytes]:
            shown = self.keys.report_shower(self.row.digest)
            for label, hidden in self.store.hidden(self.row.digest):
                if time.monotonic() >= end:
                    raise CountingOver
                yield shown(label, hidden)

        sealing = self.collection.sealing
        return ExternalSort(
            decrypted_reports,
            sealing.inner_size,
            sealing.messages,
            self.row.reports,
            self.memory,
        )

    def _mix_reports(self, stream: IO[bytes]) -> MixedOutput:
        """Shuffle the reports of a first hop, which were opened on arrival."""
        sort = self.sorted_reports()
        if self.collection.sealing.piles:
            with damage_errors():
                reports, shared = sort.find_shared()
            self._check_reports(reports, len(shared))
            mixing = self._pile_mixing(sort, shared)
            piles = self._check_mixed(lambda: mixing.written(stream))
            return MixedOutput(piles.digest, reports - len(shared), len(shared))
        mixed = self._check_mixed(lambda: sort.written(stream))
        self._check_reports(mixed.reports, len(mixed.shared))
        return MixedOutput(mixed.digest, mixed.people, len(mixed.shared))

    def _check_reports(self, reports: int, left_out: int) -> None:
        """Raise if reports are lost, or too few are left without those that share a message."""
        minimum = self.collection.terms.minimum
        if reports != self.row.reports:
            raise CollectionFailed(
                f"{self.row.reports:,} reports were stored, and {reports:,} are left: its "
                "database is damaged"
            )
        if reports - left_out < minimum:
            raise CollectionFailed(
                f"fewer reports than the {minimum:,} that were needed, without "
                f"{left_out:,} that share a message with another one"
            )

    def _pile_mixing(self, sort: ExternalSort, shared: frozenset[int]) -> PileMixing:
        """Mixing of dummies with the boxes of reports that share none, one pile at a time."""
        sealing = self.collection.sealing
        size = sealing.inner_size

        def boxes_of_people() -> Iterator[PileBox]:
            for number, report in enumerate(sort.read()):
                if number not in shared:
                    for place in range(sealing.messages):
                        yield place // sealing.each, report[place * size : (place + 1) * size]

        people = self.row.reports - len(shared)
        lengths = (people * sealing.each,) * sealing.piles
        return PileMixing(
            boxes_of_people, lengths, self._dummy_boxes(), self._dummy_file(), self.memory
        )

    def _mix_fetched(self, stream: IO[bytes]) -> MixedOutput:
        """Shuffle the messages that a later hop fetched.

        The previous hop announces the number of people.
        """
        link = UpstreamLink(self.collection, self._place)
        path = self.outputs.fetched(self.row.digest)
        receipt = load_receipt(self.outputs, self.row)
        if receipt is None or not path.exists():
            raise CollectionFailed(
                "what was fetched from the shuffler before this one is lost here"
            )

        def mix() -> SortResult:
            fetched = FetchedBoxes(link, path, receipt.people, self.memory)
            if not self.collection.sealing.piles:
                return fetched.mix(self.keys, stream)
            return fetched.mix_piles(self._dummy_boxes(), self._dummy_file(), stream)

        mixed = self._check_mixed(mix)
        return MixedOutput(mixed.digest, receipt.people, receipt.left_out)

    def _check_mixed(self, mix: Callable[[], Written]) -> Written:
        """Run `mix`; abort if its input is damaged, or an interrupted run wrote another output."""
        path = self.outputs.boxes(self.row.digest)
        with damage_errors():
            mixed = mix()
        if path.exists() and hash_chunks(read_chunks(path)) != mixed.digest:
            raise CollectionFailed(OUTPUT_MISMATCH)
        return mixed

    def _dummy_boxes(self) -> DummyBoxes:
        return DummyBoxes(self.collection, self.collection.layer_of(self._place), self.keys)

    def _dummy_file(self) -> Path:
        """File of the dummies whose digest the database has."""
        path = find_dummies(self.outputs, self.row.digest, self.row.dummies)
        if path is None:
            raise CollectionFailed(LOST_DUMMIES)
        return path


def find_dummies(outputs: OutputFolder, digest: str, dummies: str) -> Path | None:
    """Return the file of dummies of a collection that has a digest, if any."""
    for path in outputs.dummies(digest):
        if hash_chunks(read_chunks(path)) == dummies:
            return path
    return None


def load_receipt(outputs: OutputFolder, row: CollectionRow) -> UpstreamReceipt | None:
    """Return the receipt of what a later hop fetched, if it has fetched."""
    with suppress(FileNotFoundError):
        return UpstreamReceipt.read(read_secret(outputs.owed(row.digest)))
    return None
