"""Mixing of a collection by several processes: its attempts, their stages, and the joined output.

The driver of the collection starts an attempt, adds the tasks of the next stage when those of the
one before are done, and joins the sorted runs. It waits for mixers without holding anything, so
that it goes on after an interruption. Whatever is wrong with the reports themselves is decided by
the mixing of one process, which gives the same bytes.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import IO

import numpy as np
from numpy.typing import NDArray

from metricshuffle.collection.keys import CollectionKeys
from metricshuffle.collection.mixer.mix_stages import (
    MAX_PILES,
    OWNER_BYTES,
    PIECE_BYTES,
    PILE_BYTES,
    MixStages,
    PartEntry,
    StageIndex,
)
from metricshuffle.collection.mixer.object_store import ObjectStore, PieceLost
from metricshuffle.collection.mixer.sealed_pieces import PieceReceipt, SealedPieces
from metricshuffle.collection.output_runs import pack_lengths
from metricshuffle.collection.sealed_boxes import BoxFormat
from metricshuffle.collection.shuffler.external_sort import is_sorted
from metricshuffle.collection.shuffler.output_files import do_nothing
from metricshuffle.collection.store.mix_tasks import (
    HUB_ONLY,
    ClaimedTask,
    MixAttempt,
    MixStage,
    MixTask,
    MixTasks,
    NewMixTask,
)
from metricshuffle.collection.store.records import CollectionRow, StoreError
from metricshuffle.collection.store.sql_store import Store
from metricshuffle.errors import MetricShuffleError, PlanError

MIN_MESSAGES = 10_000_000
"""Messages of a collection from which on it is mixed by mixers, if there is an object store."""
CUT_BYTES = 64 * 2**20
RANGE_BYTES = 96 * 2**20
"""Approximate bytes of the boxes that a task cuts, and of those that a task sorts."""
MAX_CUTS = 1024
MAX_RANGES = 1024
"""Maximum numbers of tasks of a stage; beyond them, tasks are larger."""
SKEW = 2.0
"""Multiple of the mean above which a range is cut again."""
PATIENCE_SECONDS = 60.0
"""Time after which the operator is told that no mixer takes a task."""
REPORTS_TROUBLE = "reports"
"""Trouble of an attempt with the reports themselves, which one process has to decide."""

CHANGED = "the messages of this collection changed while they were mixed."

PileDummies = Callable[[], Iterator[tuple[int, bytes]]]
"""Function that reads the dummies, each with its pile."""


class NotForMixers(MetricShuffleError):
    """Mixers cannot mix a collection, or found its reports damaged: one process has to do it."""


@dataclass(frozen=True)
class MixerSettings:
    """Object store of the mixers, and which collections they mix."""

    objects: ObjectStore
    least: int = MIN_MESSAGES
    """Messages of a collection that is mixed by mixers."""
    cut_bytes: int = CUT_BYTES
    range_bytes: int = RANGE_BYTES
    piece_bytes: int = PIECE_BYTES
    patience: float = PATIENCE_SECONDS

    def warnings(self) -> list[str]:
        """Return sentences about the object store for the start of a shuffler."""
        try:
            return self.objects.setting_warnings()
        except StoreError as error:  # nothing needs it before a large collection is mixed
            return [str(error)]

    def takes(self, row: CollectionRow, sealing: BoxFormat) -> bool:
        """Return whether mixers mix the reports of a collection."""
        return row.reports * sealing.messages >= self.least and sealing.piles <= MAX_PILES


def stages_of(
    pieces: SealedPieces,
    sealing: BoxFormat,
    keep: Callable[[], None] = lambda: None,
    piece_bytes: int = PIECE_BYTES,
) -> MixStages:
    """Stages of an attempt for the boxes of a collection."""
    each = sealing.each if sealing.piles else sealing.messages
    piles = max(1, sealing.piles)
    return MixStages(pieces, sealing.inner_size, sealing.messages, each, piles, keep, piece_bytes)


@dataclass(frozen=True)
class JoinedRuns:
    """Sorted runs of all ranges, in their order, and the owners of repeated boxes."""

    attempt: str
    stages: MixStages
    indexes: list[StageIndex]
    reports: int
    shared: NDArray[np.uint64]
    added: tuple[int, ...]
    """Number of dummies of each pile; empty without piles."""

    @property
    def people(self) -> int:
        return self.reports - len(self.shared)

    def written(self, stream: IO[bytes]) -> str:
        """Write the output from the start of a file; return its digest.

        Raises: PlanError if the runs are not sorted, distinct and of the right lengths.
        """
        lengths = tuple(self.people * self.stages.each + added for added in self.added or (0,))
        head = pack_lengths(lengths) if self.added else b""
        digest = hashlib.sha256(head)
        stream.seek(0)
        stream.truncate()
        stream.write(head)
        for pile, length in enumerate(lengths):
            written = 0
            last = np.empty((0, self.stages.size), np.uint8)
            runs = (index.parts[pile] for index in self.indexes)
            for boxes in self.stages.read_runs(runs, self.shared):
                if not (is_sorted(boxes) and is_sorted(np.concatenate([last, boxes[:1]]))):
                    raise PlanError(CHANGED)
                digest.update(boxes.data)
                stream.write(boxes.data)
                written += len(boxes)
                last = boxes[-1:] if len(boxes) else last
            if written != length:
                raise PlanError(CHANGED)
        return digest.hexdigest()


@dataclass(frozen=True)
class ObjectMixing:
    """One collection, mixed over an object store."""

    store: Store
    settings: MixerSettings
    row: CollectionRow
    sealing: BoxFormat
    keys: CollectionKeys
    dummies: PileDummies | None = None
    added: tuple[int, ...] = ()
    at: Callable[[str], None] = do_nothing

    @property
    def tasks(self) -> MixTasks:
        return self.store.mix_tasks

    def advance(self) -> JoinedRuns | None:
        """Go on with the mixing; return the runs once all are sorted, None while mixers work.

        Raises: NotForMixers; StoreError if no mixer works, or objects were lost again.
        """
        attempt = self.tasks.attempt(self.row.digest)
        if attempt is None:
            attempt = self._start("")
        if attempt.trouble == REPORTS_TROUBLE:
            raise NotForMixers("a mixer could not read the stored reports.")
        if attempt.trouble:
            self._try_again(attempt)
            return None
        try:
            return self._stage(attempt)
        except PieceLost as error:
            self._try_again(attempt, str(error))
            return None

    def write(self, joined: JoinedRuns, stream: IO[bytes]) -> str:
        """Write the output; after a failure the attempt is over.

        Raises: StoreError.
        """
        try:
            return joined.written(stream)
        except PieceLost as error:
            self.tasks.report(self.row.digest, joined.attempt, str(error))
            raise
        except PlanError as error:
            self.tasks.report(self.row.digest, joined.attempt, REPORTS_TROUBLE)
            raise StoreError(f"what the mixers sorted is mixed by one process: {error}") from None

    def _try_again(self, attempt: MixAttempt, trouble: str = "") -> None:
        """Start another attempt; the operator is told from the second failure on."""
        self._start(attempt.name)
        if attempt.tries > 1:
            raise StoreError(
                f"collection {self.row.digest[:16]} is mixed again, for the {attempt.tries}. time: "
                f"{trouble or attempt.trouble}"
            )

    def _start(self, after: str) -> MixAttempt:
        places = self.store.count_places(self.row.digest)
        if places == 0:
            raise NotForMixers("its reports are stored as an older version did.")
        total = self.row.reports * self.sealing.messages
        size = self.sealing.inner_size + OWNER_BYTES + PILE_BYTES
        ranges = min(MAX_RANGES, max(1, math.ceil(total * size / self.settings.range_bytes)))
        cuts = min(places, MAX_CUTS, max(1, math.ceil(total * size / self.settings.cut_bytes)))
        tasks = [
            NewMixTask("cut", number, places * number // cuts, places * (number + 1) // cuts)
            for number in range(cuts)
        ]
        if self.dummies is not None:
            tasks.append(NewMixTask("cut", cuts, HUB_ONLY, HUB_ONLY))
        self.at("starting an attempt")
        attempt = self.tasks.start(self.row.digest, ranges, tasks, after)
        self.at("attempt started")
        return attempt

    def _stage(self, attempt: MixAttempt) -> JoinedRuns | None:
        tasks = self.tasks.of(self.row.digest, attempt.name)
        stages = stages_of(
            self._pieces(attempt), self.sealing, piece_bytes=self.settings.piece_bytes
        )
        self._cut_dummies(attempt, tasks, stages)
        cuts = [task for task in tasks if task.stage == "cut"]
        sorts = [task for task in tasks if task.stage == "sort"]
        recuts = [task for task in tasks if task.stage == "recut"]
        if not all(task.is_done for task in cuts):
            self._check_progress(attempt, tasks)
            return None
        if not sorts and not recuts:
            self._plan_sorts(attempt, self._cut_indexes(stages, cuts), stages)
            return None
        ranges = {task.first for task in sorts}
        for task in recuts:
            if task.is_done and task.first not in ranges:
                self._plan_parts(attempt, task, stages)
        if not all(task.is_done for task in (*sorts, *recuts)) or any(
            task.first not in ranges for task in recuts
        ):
            self._check_progress(attempt, tasks)
            return None
        return self._joined(attempt, stages, sorts)

    def _pieces(self, attempt: MixAttempt) -> SealedPieces:
        mix_key = self.keys.mix_key(self.row.digest, attempt.name)
        return SealedPieces(self.settings.objects, self.row.digest, attempt.name, mix_key)

    def _check_progress(self, attempt: MixAttempt, tasks: list[MixTask]) -> None:
        """Raise if no mixer has taken a task for a while."""
        now = self.store.now()
        last = max(attempt.started, *(task.until for task in tasks))
        if now > last + self.settings.patience:
            raise StoreError(
                f"no mixer takes the tasks of collection {self.row.digest[:16]}; start "
                "metricshuffle mix with this --store and --objects."
            )

    def _cut_dummies(self, attempt: MixAttempt, tasks: list[MixTask], stages: MixStages) -> None:
        """Cut the dummies, which only this shuffler has."""
        for place, task in enumerate(tasks):
            if self.dummies is not None and task.first == HUB_ONLY and not task.is_done:
                name = f"cut/{task.number}"
                index = stages.cut_dummies(self.dummies(), attempt.ranges, name)
                receipt = stages.write_index(name, index)
                claimed = ClaimedTask(self.row.digest, attempt, task)
                self.tasks.finish(claimed, receipt.name, receipt.digest, index.rows)
                tasks[place] = self._task(attempt, task.stage, task.number)

    def _task(self, attempt: MixAttempt, stage: MixStage, number: int) -> MixTask:
        [task] = [
            task
            for task in self.tasks.of(self.row.digest, attempt.name)
            if (task.stage, task.number) == (stage, number)
        ]
        return task

    def _cut_indexes(self, stages: MixStages, cuts: list[MixTask]) -> list[StageIndex]:
        """Read what all cuts wrote; it must be the boxes of all reports, and the dummies."""
        total = sum(task.messages for task in cuts)
        if total != self.row.reports * self.sealing.messages + sum(self.added):
            raise NotForMixers("the mixers did not find all reports that were counted.")
        return [stages.read_index(receipt_of(task)) for task in cuts]

    @staticmethod
    def _with_source(task: NewMixTask, stages: MixStages, part: PartEntry) -> NewMixTask:
        """Write the list of the pieces that a task reads."""
        place = f"{task.stage}-source/{task.number}"
        source = stages.write_index(place, StageIndex([part]))
        return replace(task, source=source.name, source_digest=source.digest)

    def _plan_sorts(self, attempt: MixAttempt, cuts: list[StageIndex], stages: MixStages) -> None:
        """Add the tasks that sort ranges, and those that cut skewed ranges again."""
        rows = [sum(cut.parts[number].rows for cut in cuts) for number in range(attempt.ranges)]
        mean = sum(rows) / attempt.ranges
        size = self.sealing.inner_size + OWNER_BYTES + PILE_BYTES
        tasks: list[NewMixTask] = []
        for number, count in enumerate(rows):
            pieces = [piece for cut in cuts for piece in cut.parts[number].pieces]
            if count > SKEW * mean:
                parts = min(MAX_RANGES, math.ceil(2 * count * size / self.settings.range_bytes))
                tasks.append(NewMixTask("recut", number, number, max(2, parts)))
            else:
                tasks.append(NewMixTask("sort", number, number, -1))
            tasks[-1] = self._with_source(tasks[-1], stages, PartEntry(pieces))
        self.tasks.add(self.row.digest, attempt.name, tasks)
        self.at("sorts planned")

    def _plan_parts(self, attempt: MixAttempt, recut: MixTask, stages: MixStages) -> None:
        """Add the tasks that sort the parts of a range that was cut again."""
        index = stages.read_index(receipt_of(recut))
        start = attempt.ranges + 2 * MAX_RANGES * recut.first
        tasks = [
            self._with_source(NewMixTask("sort", start + number, recut.first, number), stages, part)
            for number, part in enumerate(index.parts)
        ]
        self.tasks.add(self.row.digest, attempt.name, tasks)
        self.at("parts planned")

    def _joined(self, attempt: MixAttempt, stages: MixStages, sorts: list[MixTask]) -> JoinedRuns:
        ordered = sorted(sorts, key=lambda task: (task.first, task.last))
        indexes = [stages.read_index(receipt_of(task)) for task in ordered]
        shared = np.empty(0, np.uint64)
        for index in indexes:
            for owners in stages.read_owners(index.repeated):
                shared = np.union1d(shared, owners)
        return JoinedRuns(attempt.name, stages, indexes, self.row.reports, shared, self.added)


def receipt_of(task: MixTask) -> PieceReceipt:
    """Receipt of what a task wrote."""
    return PieceReceipt(task.object, task.object_digest)
