"""From sealed messages to a release: opened, counted, and put together, of one collection or of the parts of a split."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from metricshuffle.collection.analyst.decryption_pool import open_boxes
from metricshuffle.collection.analyst.download import RETRY_SECONDS, FetchedOutput, Fetching, OutputRecord, boxes_path
from metricshuffle.collection.keys import AnalystKey
from metricshuffle.collection.terms import Collection
from metricshuffle.errors import InputError, NotCertified, PlanError
from metricshuffle.protocols.tally import ID_BYTES, Shuffled, Tally
from metricshuffle.tasks.collection_summary import Collected, Part
from metricshuffle.tasks.release import Release
from metricshuffle.tasks.task import Task


class InconsistentMessagesError(PlanError):
    """Messages that give no answer. They were seen all the same, so that the round is spent: `shuffled` stands for it in a ledger."""

    def __init__(self, sentence: str, shuffled: Shuffled) -> None:
        super().__init__(sentence)
        self.shuffled = shuffled


@dataclass(frozen=True)
class CollectionTally:
    """What one collection brought."""

    part: Part
    tally: Tally


class Collecting:
    """One collection, or all parts of a split that were released, and the key that opens their messages."""

    def __init__(
        self,
        key: AnalystKey,
        collections: Sequence[Collection],
        processes: int | None = None,
        patience: float = RETRY_SECONDS,
        key_file: Path | None = None,
    ) -> None:
        """What was fetched is noted beside `key_file`, or beside the output if the key is in no file."""
        self._key, self.collections, self._processes, self._patience = key, tuple(collections), processes, patience
        self._key_file = key_file
        for collection in collections:
            collection.verify()  # the operator wrote it, and a release would print what it claims
            if collection.terms.analyst.key != key.private.public.data.hex():
                raise InputError(
                    f"this key is not the one that the messages of collection {collection.digest[:16]} are sealed for; use the analyst's "
                    "key whose public half the collection was opened with."
                )
        check_parts(collections)
        self.task: Task = collections[0].task

    async def fetched(self, output: str | Path) -> list[FetchedOutput]:
        """Everything that was let go, in files beside the output; what an earlier call has fetched is not asked for again.

        Which set it was is noted before it is opened, and another one of the same collection is refused from then on.
        """
        files = []
        for collection in self.collections:
            path, first = boxes_path(output, collection), self._first_output(output, collection)
            file = FetchedOutput.kept(path, collection)
            if file is None:
                file = await Fetching(collection, self._key.token, self._patience, first).fetched(path)
            first.note(file.announced.output)
            files.append(file)
        return files

    def _first_output(self, output: str | Path, collection: Collection) -> OutputRecord:
        beside = self._key_file or Path(os.path.realpath(output))
        return OutputRecord(beside.with_name(f"{beside.name}.{collection.digest[:16]}.fetched"), collection)

    def already(self, output: str | Path) -> Release | None:
        """The release of these collections that lies there since an earlier call; None if it is none, or another one."""
        try:
            release = Release.load(output)
        except (InputError, NotCertified):
            return None
        summary = release.collected
        digests = {*(part.digest for part in summary.parts or (summary,)), *summary.spoiled} if summary is not None else set()
        return release if digests == {collection.digest for collection in self.collections} else None

    def release(self, files: Sequence[FetchedOutput]) -> Release:
        """The answer. A split is one estimate of all its parts: each was released by itself with enough people, so no more is seen."""
        tallies, spoiled = [], []
        for collection, file in zip(self.collections, files, strict=True):
            try:
                tallies.append(self._tally_collection(collection, file))
            except InconsistentMessagesError as error:  # of a split it is this part only
                spoiled.append((collection, error))
        if not tallies:
            raise spoiled[0][1]
        total = tallies[0].tally
        for tally_part in tallies[1:]:
            total = total.merge(tally_part.tally)
        if len(tallies) > 1 and total.people > self.task.users:
            raise PlanError(
                f"{total.people:,} people in all parts are more than the {self.task.users:,} that the plan has room for; collect the "
                "parts one by one, each into a file and with --people of its own."
            )
        shuffled = self.task.publish(total, batches=[batch_id(collection) for collection in self.collections])
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
        """Tell the shufflers that the release is safe, and delete what was fetched where they know; sentences where they do not."""
        troubles = []
        for collection, file in zip(self.collections, files, strict=True):
            trouble = await Fetching(collection, self._key.token, self._patience).acknowledge(file.announced.output)
            if trouble:
                troubles.append(trouble)
            else:
                file.path.unlink(missing_ok=True)
        return troubles

    # Opening and counting

    def _tally_collection(self, collection: Collection, file: FetchedOutput) -> CollectionTally:
        """The messages of one collection: opened, and added up if nothing is wrong with any of them."""
        people, form, task = file.announced.people, collection.form, collection.task
        payloads = np.empty((people * form.messages, form.size), dtype=np.uint8)
        good, done = np.empty(len(payloads), dtype=bool), 0
        boxes = file.read_boxes(collection)
        for data, flags in open_boxes(collection.sealing, self._key.private, boxes, len(payloads), self._processes):
            end = done + len(flags)
            payloads[done:end] = np.frombuffer(data, dtype=np.uint8).reshape(-1, form.size)
            good[done:end] = np.frombuffer(flags, dtype=np.uint8)
            done = end
        unreadable = len(payloads) - int(np.count_nonzero(good))
        tally = task.tally(round=collection.terms.round)
        if form.messages == 1:  # a report by itself: what cannot be read is told and left out of the answer, as nobody's sum needs it
            good &= payloads[:, 0] == 0  # (the only pile there is)
            rows = _select_readable(task, form.join_messages(payloads[good], int(good.sum()))) if good.any() else payloads[:0]
            if not len(rows):
                raise self._inconsistent_error(collection, people, f"none of the {people:,} messages can be read")
            tally.add(rows)
            unreadable = people - len(rows)
        elif unreadable:
            raise self._inconsistent_error(collection, people, f"{unreadable:,} of {len(payloads):,} messages cannot be opened")
        else:
            try:
                tally.add(form.join_messages(payloads, people))
            except InputError as error:
                raise self._inconsistent_error(
                    collection, people, f"what was opened are not complete reports ({str(error).rstrip('.')})"
                ) from None
        announced = file.announced
        witness = collection.terms.hops[-1].witness
        part = Part(
            digest=collection.digest,
            output=announced.output,
            people=people,
            left_out=announced.left_out,
            unreadable=unreadable,
            witness=witness.url if witness else "",
            countersignature=announced.countersignature if witness else "",
            clock=tuple(announced.clock),
        )
        if part.honest_count_given(collection.terms.colluders) < task.minimum:  # (each part has enough people by itself, or is refused)
            raise self._too_few_error(collection, part)
        task.publish(tally)
        return CollectionTally(part, tally)

    def _too_few_error(self, collection: Collection, part: Part) -> InconsistentMessagesError:
        left, counted = part.honest_count_given(collection.terms.colluders), collection.task.minimum
        return InconsistentMessagesError(
            f"{part.unreadable:,} of {part.people:,} messages in collection {collection.digest[:16]} cannot be read: so many people sent "
            f"something else than a report, more than the {collection.terms.colluders:,} colluders that were declared. That leaves "
            f"{left:,} honest reports, and the plan counts on {counted:,}. There is no estimate, and the round is spent: the messages were "
            "seen.",
            self._unanswered_batch(collection, part.people),
        )

    def _inconsistent_error(self, collection: Collection, people: int, why: str) -> InconsistentMessagesError:
        because = (
            "the sum of all others is then a random number, because a person's messages are random unless all of them are added up"
            if collection.task.protocol.modulus is not None
            else "whose messages these are cannot be told, so that no report can be left out"
        )
        others = "; the other parts of the split can be collected, all in one call" if collection.terms.split[1] > 1 else ""
        return InconsistentMessagesError(
            f"{why} in collection {collection.digest[:16]}: somebody sent something else than a report, and {because}. There is no "
            "estimate, and the round is spent: the messages were seen. Nobody's report may be taken out and the rest released "
            f"again{others}.",
            self._unanswered_batch(collection, people),
        )

    @staticmethod
    def _unanswered_batch(collection: Collection, people: int) -> Shuffled:
        """Stands in a ledger for messages that were seen and gave no answer."""
        task, terms = collection.task, collection.terms
        batches = (batch_id(collection),)
        return Shuffled(task.batch(terms.round), people, people * terms.messages, {}, task.protocol.modulus, batches=batches)


def _select_readable(task: Task, rows: NDArray[np.generic]) -> NDArray[np.generic]:
    """The rows that are reports of the task: halves of what is refused are looked at again."""
    try:
        task.protocol.counted(rows)
        return rows
    except InputError:
        if len(rows) == 1:
            return rows[:0]
    middle = len(rows) // 2
    return np.concatenate([_select_readable(task, rows[:middle]), _select_readable(task, rows[middle:])])


def batch_id(collection: Collection) -> bytes:
    """Stands for all reports of a collection where releases are counted: none of them may be in two."""
    return bytes.fromhex(collection.digest)[:ID_BYTES]


def check_parts(collections: Sequence[Collection]) -> None:
    """Raise unless these are parts of one split; some of them may be missing, if their own release is refused or aborted."""
    if len(collections) == 1:
        return
    kinds = {
        (part.task.digest, part.terms.round, part.terms.split[1], part.terms.admission, part.terms.colluders, part.terms.apart)
        for part in collections
    }
    if len(kinds) != 1 or len({part.terms.split[0] for part in collections}) != len(collections):
        raise InputError("these collections are not parts of one split; collect each of them by itself.")
