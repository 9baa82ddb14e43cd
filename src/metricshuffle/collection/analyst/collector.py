"""Collector: from sealed messages of a collection, or of the parts of a split, to a release."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from metricshuffle.collection.adder.sum_terms import AnyCollection
from metricshuffle.collection.analyst.decryption_pool import open_boxes
from metricshuffle.collection.analyst.download import (
    RETRY_SECONDS,
    FetchedOutput,
    Fetching,
    OutputRecord,
    boxes_path,
)
from metricshuffle.collection.analyst.pile_counts import PileCounts
from metricshuffle.collection.keys import AnalystKey
from metricshuffle.collection.terms import Collection
from metricshuffle.errors import InputError, NotCertified, PlanError
from metricshuffle.protocols.tally import ID_BYTES, Shuffled, Tally
from metricshuffle.tasks.collection_summary import Collected, Part
from metricshuffle.tasks.release import Release
from metricshuffle.tasks.task import Task


class InconsistentMessagesError(PlanError):
    """The messages give no answer; the round is spent nevertheless, because they were seen.

    `shuffled` is the batch that a ledger counts for them.
    """

    def __init__(self, sentence: str, shuffled: Shuffled) -> None:
        super().__init__(sentence)
        self.shuffled = shuffled


@dataclass(frozen=True)
class CollectionTally:
    """Result of one collection."""

    part: Part
    tally: Tally


class ReleaseCollector(ABC):
    """Collector of what servers release of one collection, of the parts of a split, or of a sum."""

    def __init__(
        self,
        key: AnalystKey,
        collections: Sequence[AnyCollection],
        patience: float = RETRY_SECONDS,
        key_file: Path | None = None,
    ) -> None:
        """Verify the collections.

        Downloads are recorded next to `key_file`, or next to the output if it is None.
        """
        self._key = key
        self._patience = patience
        self._key_file = key_file
        self._digests = {collection.digest for collection in collections}
        for collection in collections:
            # The operator wrote the collection; a release repeats the claims in it.
            collection.verify()
            if collection.terms.analyst.key != key.private.public.data.hex():
                raise InputError(
                    "this key is not the one that the messages of collection "
                    f"{collection.digest[:16]} are sealed for; use the analyst's "
                    "key whose public half the collection was opened with."
                )
        self.task: Task = collections[0].task

    @abstractmethod
    async def fetched(self, output: str | Path) -> Sequence[FetchedOutput]:
        """Download what is released; another output than before is rejected."""

    @abstractmethod
    def release(self, files: Sequence[FetchedOutput]) -> Release:
        """Estimate from what was downloaded."""

    @abstractmethod
    async def acknowledge(self, files: Sequence[FetchedOutput]) -> list[str]:
        """Acknowledge what was downloaded; return problems as sentences."""

    def _first_output(self, output: str | Path, collection: AnyCollection) -> OutputRecord:
        beside = self._key_file or Path(os.path.realpath(output))
        return OutputRecord(
            beside.with_name(f"{beside.name}.{collection.digest[:16]}.fetched"), collection
        )

    def already(self, output: str | Path) -> Release | None:
        """Return the release of these collections from an earlier call; None if there is none."""
        try:
            release = Release.load(output)
        except (InputError, NotCertified):
            return None
        summary = release.collected
        digests = (
            {*(part.digest for part in summary.parts or (summary,)), *summary.spoiled}
            if summary is not None
            else set()
        )
        return release if digests == self._digests else None


class Collecting(ReleaseCollector):
    """Collector of one collection, or of the released parts of a split."""

    def __init__(
        self,
        key: AnalystKey,
        collections: Sequence[Collection],
        processes: int | None = None,
        patience: float = RETRY_SECONDS,
        key_file: Path | None = None,
    ) -> None:
        super().__init__(key, collections, patience, key_file)
        self.collections = tuple(collections)
        self._processes = processes
        check_parts(collections)

    async def fetched(self, output: str | Path) -> list[FetchedOutput]:
        """Download the outputs into files next to `output`, unless an earlier call did.

        Each is recorded before it is opened; another output of the collection is then rejected.
        """
        files = []
        for collection in self.collections:
            path = boxes_path(output, collection)
            first = self._first_output(output, collection)
            file = FetchedOutput.kept(path, collection)
            if file is None:
                file = await Fetching(collection, self._key.token, self._patience, first).fetched(
                    path
                )
            first.note(file.announced.output)
            files.append(file)
        return files

    def release(self, files: Sequence[FetchedOutput]) -> Release:
        """Estimate from all parts; each part must have been released with enough people."""
        tallies = []
        spoiled = []
        for collection, file in zip(self.collections, files, strict=True):
            try:
                tallies.append(self._tally_collection(collection, file))
            except InconsistentMessagesError as error:  # other parts of a split may be valid
                spoiled.append((collection, error))
        if not tallies:
            raise spoiled[0][1]
        total = tallies[0].tally
        for tally_part in tallies[1:]:
            total = total.merge(tally_part.tally)
        if len(tallies) > 1 and total.people > self.task.users:
            raise PlanError(
                f"{total.people:,} people in all parts are more than the "
                f"{self.task.users:,} that the plan has room for; collect the "
                "parts one by one, each into a file and with --people of its own."
            )
        shuffled = self.task.publish(
            total, batches=[batch_id(collection) for collection in self.collections]
        )
        terms = self.collections[0].terms
        collected = Collected.of(
            self.task,
            tuple(part.part for part in tallies),
            hops=tuple(hop.url for hop in terms.hops),
            colluders=terms.colluders,
            admission=terms.admission,
            apart=terms.apart,
            spoiled=tuple(collection.digest for collection, _ in spoiled),
        )
        return self.task.estimate(shuffled, collected=collected)

    async def acknowledge(self, files: Sequence[FetchedOutput]) -> list[str]:
        """Acknowledge all outputs and delete their downloads; return problems as sentences."""
        troubles = []
        for collection, file in zip(self.collections, files, strict=True):
            trouble = await Fetching(collection, self._key.token, self._patience).acknowledge(
                file.announced.output
            )
            if trouble:
                troubles.append(trouble)
            else:
                file.path.unlink(missing_ok=True)
        return troubles

    # Opening and counting

    def _tally_collection(self, collection: Collection, file: FetchedOutput) -> CollectionTally:
        """Open the messages of a collection, and tally them if all are valid."""
        if collection.sealing.piles:
            return self._tally_piles(collection, file)
        people = file.announced.people
        form = collection.form
        task = collection.task
        payloads = np.empty((people * form.messages, form.size), dtype=np.uint8)
        good = np.empty(len(payloads), dtype=bool)
        done = 0
        boxes = file.read_boxes(collection)
        for _, data, flags in open_boxes(
            collection.sealing, self._key.private, boxes, len(payloads), self._processes
        ):
            end = done + len(flags)
            payloads[done:end] = np.frombuffer(data, dtype=np.uint8).reshape(-1, form.size)
            good[done:end] = np.frombuffer(flags, dtype=np.uint8)
            done = end
        unreadable = len(payloads) - int(np.count_nonzero(good))
        tally = task.tally(round=collection.terms.round)
        if form.messages == 1:  # independent reports: invalid ones are counted and left out
            good &= payloads[:, 0] == 0  # the only group
            rows = (
                _select_readable(task, form.join_messages(payloads[good], int(good.sum())))
                if good.any()
                else payloads[:0]
            )
            if not len(rows):
                raise self._inconsistent_error(
                    collection, people, f"none of the {people:,} messages can be read"
                )
            tally.add(rows)
            unreadable = people - len(rows)
        elif unreadable:
            raise self._inconsistent_error(
                collection, people, f"{unreadable:,} of {len(payloads):,} messages cannot be opened"
            )
        else:
            try:
                tally.add(form.join_messages(payloads, people))
            except InputError as error:
                raise self._inconsistent_error(
                    collection,
                    people,
                    (f"the opened messages are not complete reports ({str(error).rstrip('.')})"),
                ) from None
        part = part_of(collection, file, unreadable=unreadable)
        # Each part must have enough people by itself.
        if part.honest_count_given(collection.terms.colluders) < task.minimum:
            raise self._too_few_error(collection, part)
        task.publish(tally)
        return CollectionTally(part, tally)

    def _tally_piles(self, collection: Collection, file: FetchedOutput) -> CollectionTally:
        """Count the messages of each pile; shufflers have added their dummies to them."""
        people = file.announced.people
        file.check_piles(collection)
        opened = open_boxes(
            collection.sealing,
            self._key.private,
            file.read_boxes(collection),
            sum(file.runs(collection).lengths),
            self._processes,
        )
        counts = PileCounts.of(collection, people, opened)
        try:
            collection.task.publish(counts.tally)
        except InputError as error:
            raise InconsistentMessagesError(
                f"the messages of collection {collection.digest[:16]} cannot be those of its task: "
                f"{str(error).rstrip('.')}. There is no estimate, and the round is spent: the "
                "messages were seen.",
                self._unanswered_batch(collection, people),
            ) from None
        return CollectionTally(part_of(collection, file, replaced=counts.replaced), counts.tally)

    def _too_few_error(self, collection: Collection, part: Part) -> InconsistentMessagesError:
        left = part.honest_count_given(collection.terms.colluders)
        counted = collection.task.minimum
        return InconsistentMessagesError(
            f"{part.unreadable:,} of {part.people:,} messages in collection "
            f"{collection.digest[:16]} cannot be read: that many people sent something other "
            f"than a report, more than the {collection.terms.colluders:,} declared colluders. "
            f"That leaves {left:,} honest reports, and the plan counts on {counted:,}. There "
            "is no estimate, and the round is spent: the messages were seen.",
            self._unanswered_batch(collection, part.people),
        )

    def _inconsistent_error(
        self, collection: Collection, people: int, why: str
    ) -> InconsistentMessagesError:
        because = (
            "the sum of all others is then a random number, because a person's messages "
            "are random unless all of them are added up"
            if collection.task.protocol.modulus is not None
            else "it is unknown whose messages these are, so no report can be left out"
        )
        others = (
            "; the other parts of the split can be collected, all in one call"
            if collection.terms.split[1] > 1
            else ""
        )
        return InconsistentMessagesError(
            f"{why} in collection {collection.digest[:16]}: someone sent something other than "
            f"a report, and {because}. There is no estimate, and the round is spent: the "
            f"messages were seen. No report may be removed to release the rest again{others}.",
            self._unanswered_batch(collection, people),
        )

    @staticmethod
    def _unanswered_batch(collection: Collection, people: int) -> Shuffled:
        """Batch that counts in a ledger for messages without an answer."""
        task = collection.task
        terms = collection.terms
        batches = (batch_id(collection),)
        return Shuffled(
            task.batch(terms.round),
            people,
            people * terms.messages,
            {},
            task.protocol.modulus,
            batches=batches,
        )


def part_of(
    collection: Collection, file: FetchedOutput, *, unreadable: int = 0, replaced: int = 0
) -> Part:
    """Summary of one collection."""
    announced = file.announced
    witness = collection.terms.hops[-1].witness
    return Part(
        digest=collection.digest,
        output=announced.output,
        people=announced.people,
        left_out=announced.left_out,
        unreadable=unreadable,
        replaced=replaced,
        witness=witness.url if witness else "",
        countersignature=announced.countersignature if witness else "",
        clock=tuple(announced.clock),
    )


def _select_readable(task: Task, rows: NDArray[np.generic]) -> NDArray[np.generic]:
    """Return the rows that are reports of the task, by bisection of rejected batches."""
    try:
        task.protocol.counted(rows)
        return rows
    except InputError:
        if len(rows) == 1:
            return rows[:0]
    middle = len(rows) // 2
    return np.concatenate(
        [_select_readable(task, rows[:middle]), _select_readable(task, rows[middle:])]
    )


def batch_id(collection: AnyCollection) -> bytes:
    """Batch id of a collection in a ledger: none of its reports may be in two releases."""
    return bytes.fromhex(collection.digest)[:ID_BYTES]


def check_parts(collections: Sequence[Collection]) -> None:
    """Raise unless these are parts of one split; some may be missing."""
    if len(collections) == 1:
        return
    kinds = {
        (
            part.task.digest,
            part.terms.round,
            part.terms.split[1],
            part.terms.admission,
            part.terms.colluders,
            part.terms.apart,
            # Each shuffler of a chain can subtract its own dummies only, from every part.
            tuple(hop.url for hop in part.terms.hops) if part.sealing.piles else (),
        )
        for part in collections
    }
    if len(kinds) != 1 or len({part.terms.split[0] for part in collections}) != len(collections):
        raise InputError(
            "these collections are not parts of one split; collect each of them by itself."
        )
