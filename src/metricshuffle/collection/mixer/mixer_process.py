"""Mixer: takes tasks of the collections whose keys it has, one after the other."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from metricshuffle.collection.keys import CollectionKeys
from metricshuffle.collection.mixer.mix_stages import PIECE_BYTES, MixStages, PartEntry, StageIndex
from metricshuffle.collection.mixer.object_mixing import REPORTS_TROUBLE, stages_of
from metricshuffle.collection.mixer.object_store import ObjectStore, PieceLost
from metricshuffle.collection.mixer.sealed_pieces import PieceReceipt, SealedPieces
from metricshuffle.collection.shuffler.log_events import LogEvent
from metricshuffle.collection.shuffler.output_files import do_nothing
from metricshuffle.collection.store.mix_tasks import TASK_SECONDS, ClaimedTask, MixTasks
from metricshuffle.collection.store.records import DatabaseDamaged, StoreError
from metricshuffle.collection.store.sql_store import Store
from metricshuffle.collection.terms import Collection
from metricshuffle.errors import PlanError

IDLE_SECONDS = 0.2
MAX_IDLE_SECONDS = 30.0
RENEWALS = 3
"""Part of its time after which a task is renewed."""


class TaskTaken(StoreError):
    """A task was given to another mixer, or is no longer needed."""


class MixerKeys(Protocol):
    """Keys of collections: a folder of keys, or those of a lease."""

    def names(self) -> list[str]: ...
    def of(self, key: str) -> CollectionKeys | None: ...


@dataclass(frozen=True)
class Mixer:
    """One mixer of a database and an object store."""

    store: Store
    keys: MixerKeys
    objects: ObjectStore
    seconds: float = TASK_SECONDS
    """Time for which a task is claimed."""
    piece_bytes: int = PIECE_BYTES
    at: Callable[[str], None] = do_nothing
    """Called at every named point, where tests end the process."""
    log: Callable[[str], None] = do_nothing

    @property
    def tasks(self) -> MixTasks:
        return self.store.mix_tasks

    def run(self, stop: threading.Event) -> None:
        """Take tasks until `stop` is set."""
        pause = IDLE_SECONDS
        trouble = ""
        while not stop.is_set():
            try:
                worked = self.take()
                if trouble:
                    self.log(LogEvent("Mixing goes on.", "note"))
                pause, trouble = IDLE_SECONDS, ""
            except StoreError as error:
                worked = False
                if str(error) != trouble:
                    self.log(LogEvent(str(error), "trouble"))
                pause, trouble = min(MAX_IDLE_SECONDS, 2 * pause), str(error)
            if not worked:
                stop.wait(pause)

    def take(self) -> bool:
        """Take a task and do it; return False if there is none.

        Raises: StoreError if database or object store cannot be used; the task is free again after
        its time.
        """
        claimed = self.tasks.claim(self.keys.names(), self.seconds)
        if claimed is None:
            return False
        self.at("claimed")
        try:
            self._do(claimed)
        except TaskTaken:
            pass
        except PieceLost as error:
            self.tasks.report(claimed.digest, claimed.attempt.name, str(error))
        except (PlanError, DatabaseDamaged):
            self.tasks.report(claimed.digest, claimed.attempt.name, REPORTS_TROUBLE)
        except (StoreError, SystemExit, KeyboardInterrupt):
            with suppress(StoreError):
                self.tasks.release(claimed)
            raise
        return True

    def _do(self, claimed: ClaimedTask) -> None:
        row = self.store.row(claimed.digest)
        keys = None if row is None else self.keys.of(row.key)
        if row is None or keys is None:
            raise TaskTaken("the keys of this collection are gone.")
        sealing = Collection(row.served).sealing
        mix_key = keys.mix_key(claimed.digest, claimed.attempt.name)
        pieces = SealedPieces(self.objects, claimed.digest, claimed.attempt.name, mix_key)
        keep = self._keeping(claimed)
        stages = stages_of(pieces, sealing, keep, self.piece_bytes)
        task = claimed.task
        place = f"{task.stage}/{task.number}"
        work = {"cut": self._cut, "recut": self._recut, "sort": self._sort}[task.stage]
        index = work(claimed, stages, keys, place)
        self.at(f"{task.stage} written")
        receipt = stages.write_index(place, index)
        self.at(f"{task.stage} index written")
        self.tasks.finish(claimed, receipt.name, receipt.digest, index.rows)
        self.at(f"{task.stage} finished")

    def _keeping(self, claimed: ClaimedTask) -> Callable[[], None]:
        """Return a function that renews the task when a part of its time is over."""
        renewed = [time.monotonic()]

        def keep() -> None:
            self.at(claimed.task.stage)
            if time.monotonic() - renewed[0] < self.seconds / RENEWALS:
                return
            renewed[0] = time.monotonic()
            if not self.tasks.renew(claimed, self.seconds):
                raise TaskTaken("this task was given to another mixer.")

        return keep

    def _cut(
        self, claimed: ClaimedTask, stages: MixStages, keys: CollectionKeys, place: str
    ) -> StageIndex:
        task = claimed.task
        shown = keys.report_shower(claimed.digest)

        def reports() -> Iterator[bytes]:
            for page in self.store.hidden_between(claimed.digest, task.first, task.last):
                for label, hidden in page:
                    yield shown(label, hidden)

        return stages.cut(reports(), task.number, claimed.attempt.ranges, place)

    @staticmethod
    def _recut(
        claimed: ClaimedTask, stages: MixStages, _: CollectionKeys, place: str
    ) -> StageIndex:
        return stages.recut(source_of(claimed, stages), claimed.task.last, place)

    @staticmethod
    def _sort(claimed: ClaimedTask, stages: MixStages, _: CollectionKeys, place: str) -> StageIndex:
        return stages.sort(source_of(claimed, stages), place)


def source_of(claimed: ClaimedTask, stages: MixStages) -> PartEntry:
    """Read the list of the pieces that a task reads."""
    task = claimed.task
    return stages.read_index(PieceReceipt(task.source, task.source_digest)).parts[0]
