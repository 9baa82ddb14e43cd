"""What runs where the rows are: from the Arrow batches of one partition to its tally, its reports, or what is wrong with it.

Everything here is a function of batches and of a `PartitionJob`, which is all that travels. A partition may be run twice (Spark retries and
speculates) and then draws new noise; what it hands back is used once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any

import numpy as np

from metricshuffle.data import ARGUMENTS, OPTIONS, ColumnRequest, Table
from metricshuffle.data import source as tables
from metricshuffle.data.arrow import ArrowTable
from metricshuffle.data.row_errors import RowSummary
from metricshuffle.data.rows import Rows
from metricshuffle.errors import InputError, PlanError, require
from metricshuffle.protocols.tally import Tally
from metricshuffle.randomness import Randomness
from metricshuffle.tasks.task import MESSAGE_BYTES_PER_PART, Task, new_batch_id

OUTCOME_SCHEMA = "partition int, partitions string, tally binary, seen string, refused string"
"""The row that a partition hands back: its number, all that are in it (a list, after a merge), bytes of a tally, what was found in its
rows, and the sentence of what it refused."""
REPORTS_SCHEMA = "batch binary, number bigint, messages binary"
"""The rows of reports: the random id of the partition's batch, the number of the report in it, and the bytes of its messages."""


@dataclass(frozen=True)
class PartitionJob:
    """What every partition does, as constants: the task as text, the columns, and how rows are read."""

    task: str
    columns: tuple[str, ...] = ()
    user_column: str | None = None
    per_user: str | None = None
    coordinates: str | None = None
    drop_missing: bool = False
    drop_outside: bool = False
    clamp: bool = False
    round: int = 1
    as_options: bool = False
    """Sentences name options of the command line."""
    seed: str | None = None
    """Only tests seed a partition; its tally says so for ever."""
    seeded: bool = False
    """Of reports that were made before: whether a seed made some of them."""

    @property
    def names(self) -> list[str]:
        """The columns of the batches, in their order; Spark knows them by other names, because it stumbles over dots and the like."""
        return [*([] if self.user_column is None else [self.user_column]), *self.columns]

    def randomness(self) -> Randomness:
        """Opened in the process that uses it."""
        return Randomness.system() if self.seed is None else Randomness.seeded(self.seed)

    def rows(self, opened: Callable[[Sequence[ColumnRequest]], Table]) -> Rows:
        """The rows of a table; options that do not fit together are told here."""
        return Rows.of(opened, load_task(self.task).query, self.columns, coordinates=self.coordinates, clamp=self.clamp,
                       user_column=self.user_column, per_user=self.per_user, drop_missing=self.drop_missing,
                       drop_outside=self.drop_outside, spelling=OPTIONS if self.as_options else ARGUMENTS)  # fmt: skip


@lru_cache(maxsize=8)
def load_task(text: str) -> Task:
    """A task, read once in a process; a large table of distances takes a while."""
    return Task.from_json(text)


@dataclass(eq=False)
class PartitionTable(ArrowTable):
    """Some rows of one partition."""

    partition: int = 0

    def place(self, place: int) -> str:
        return f"partition {self.partition}, row {place}"


@dataclass
class PartitionRows:
    """The rows of a partition as values of the query, and what was found in them once they were read."""

    job: PartitionJob
    partition: int
    seen: RowSummary = field(default_factory=RowSummary)

    def parts(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Values, so many rows at once; where rows have users, which come sorted by these, never a part of somebody's rows."""
        done = 0
        for piece in gather_batches(batches) if self.job.user_column is None else split_between_users(batches):
            named = piece.rename_columns(self.job.names)
            rows = self.job.rows(partial(self._table, named, done))
            try:
                for values in rows.usable_parts():
                    if not self.seen.refused:  # nothing is made of what comes after a wrong row, which is only counted
                        yield values
            finally:
                self.seen.merge(rows.seen)
            done += piece.num_rows

    def _table(self, piece: Any, done: int, wanted: Sequence[ColumnRequest]) -> PartitionTable:
        title = "the DataFrame" if self.job.user_column is None else f"partition {self.partition} of the DataFrame"
        return PartitionTable(title, tuple(wanted), iter(piece.to_batches()), True, partition=self.partition, before=done)


def gather_batches(batches: Iterator[Any], rows: int | None = None) -> Iterator[Any]:
    """Small batches put together to tables of at least so many rows; an empty partition has none."""
    pyarrow: Any = require("pyarrow", "spark")
    min_rows = tables.CHUNK_ROWS if rows is None else rows
    pending: list[Any] = []
    count = 0
    for batch in batches:
        if batch.num_rows:
            pending.append(batch)
            count += batch.num_rows
        if count >= min_rows:
            yield pyarrow.Table.from_batches(pending).combine_chunks()
            pending, count = [], 0
    if pending:
        yield pyarrow.Table.from_batches(pending).combine_chunks()


def split_between_users(batches: Iterator[Any]) -> Iterator[Any]:
    """Tables of rows that are sorted by their first column, the user, cut between users only: memory holds a piece, not a partition."""
    pyarrow: Any = require("pyarrow", "spark")
    compute: Any = require("pyarrow.compute", "spark")
    pending: Any = None
    for piece in gather_batches(batches):
        if pending is None:
            pending = piece
            continue
        names = pending.column(0)
        last = names[-1]
        same = compute.is_null(names) if not last.is_valid else compute.fill_null(compute.equal(names, last), False)
        cut = pending.num_rows - (compute.sum(same).as_py() or 0)  # the last user may go on in the next piece
        if cut:
            yield pending.slice(0, cut).combine_chunks()
        pending = pyarrow.concat_tables([pending.slice(cut), piece])
    if pending is not None:
        yield pending.combine_chunks()


def partition_number() -> int:
    """Which partition this is; the first where nobody says."""
    context = require("pyspark", "spark").TaskContext.get()
    return 0 if context is None else int(context.partitionId())


def tally_partition(batches: Iterator[Any], job: PartitionJob) -> Iterator[Any]:
    """One row: the tally of a partition of values, or why there is none."""
    number = partition_number()
    rows, task = PartitionRows(job, number), load_task(job.task)
    try:
        tally = task.counted(rows.parts(batches), job.randomness(), clamp=job.clamp, round=job.round)
    except InputError as error:  # told on the driver: an exception here would only make Spark try again
        yield _outcome(number, [number], None, rows.seen, str(error))
        return
    yield _outcome(number, [number], None if rows.seen.refused else tally, rows.seen, "")


def check_partition(batches: Iterator[Any], job: PartitionJob) -> Iterator[Any]:
    """One row: what was found in a partition of values, of which nothing is made."""
    number = partition_number()
    rows, refused = PartitionRows(job, number), ""
    task = load_task(job.task)
    try:
        for values in rows.parts(batches):
            task.query.inputs(values, task.protocol.step, clamp=job.clamp)
    except InputError as error:
        refused = str(error)
    yield _outcome(number, [number], None, rows.seen, refused)


def merge_outcomes(batches: Iterator[Any], job: PartitionJob) -> Iterator[Any]:
    """One row of many: their tallies added up, and what was found in all of them. Nothing if there is none."""
    rows = sorted((row for batch in batches for row in batch.to_pylist()), key=lambda row: int(row["partition"]))
    if not rows:
        return
    tally, seen, refused, partitions = combine_outcomes(rows, job)
    yield _outcome(int(rows[0]["partition"]), partitions, tally, seen, refused)


def combine_outcomes(rows: list[Any], job: PartitionJob) -> tuple[Tally | None, RowSummary, str, list[int]]:
    """The tally of many outcomes if all have one, what was found, the first refusal, and which partitions they come from, each once."""
    task = load_task(job.task)
    tally: Tally | None = task.tally(round=job.round)
    seen, refused = RowSummary(), ""
    partitions: list[int] = []
    for row in rows:
        partitions += json.loads(row["partitions"])
        seen.merge(RowSummary.from_plain(json.loads(row["seen"])))
        refused = refused or row["refused"]
        tally = None if tally is None or row["tally"] is None else tally.merge(task.tally(bytes(row["tally"])))
    if len(set(partitions)) != len(partitions):
        raise PlanError("Spark handed back a partition twice, and nobody may count twice; run it again.")
    return tally, seen, refused, partitions


def randomize_partition(batches: Iterator[Any], job: PartitionJob) -> Iterator[Any]:
    """Rows of reports, under one batch id. What cannot be used stops the task: the values were looked at before."""
    pyarrow: Any = require("pyarrow", "spark")
    rows, task = PartitionRows(job, partition_number()), load_task(job.task)
    batch_id, number = new_batch_id(), 0
    for messages in task.messages(rows.parts(batches), job.randomness(), clamp=job.clamp):
        count, size = len(messages), task.protocol.layout.size
        records = np.ascontiguousarray(messages, dtype=task.protocol.layout.type)
        offsets = np.arange(count + 1, dtype=np.int32) * np.int32(size)
        column = pyarrow.Array.from_buffers(pyarrow.binary(), count, [None, pyarrow.py_buffer(offsets), pyarrow.py_buffer(records)])
        ids = pyarrow.repeat(pyarrow.scalar(batch_id, pyarrow.binary()), count)
        yield pyarrow.RecordBatch.from_arrays([ids, pyarrow.array(np.arange(number, number + count)), column], names=report_names())
        number += count
    if rows.seen.refused:
        raise InputError("values changed while they were randomized: some cannot be used now; write down the DataFrame first.")


def report_names() -> list[str]:
    return [field.split()[0] for field in REPORTS_SCHEMA.split(", ")]


def tally_reports_partition(batches: Iterator[Any], job: PartitionJob) -> Iterator[Any]:
    """One row: the tally of a partition of reports."""
    number, task = partition_number(), load_task(job.task)
    tally, layout = task.tally(round=job.round), load_task(job.task).protocol.layout
    at_once = max(1, min(tables.CHUNK_ROWS, MESSAGE_BYTES_PER_PART // layout.size))
    try:
        for piece in gather_batches(batches, at_once):
            for batch in piece.to_batches():
                tally.add(read_messages(batch.column(0), layout.type, layout.numbers), seeded=job.seeded)
    except InputError as error:
        yield _outcome(number, [number], None, RowSummary(), str(error))
        return
    yield _outcome(number, [number], tally, RowSummary(), "")


def read_messages(column: Any, kind: np.dtype[Any], numbers: int) -> Any:
    """A column of bytes as rows of whole numbers, without a copy; a sentence if one has another length."""
    pyarrow: Any = require("pyarrow", "spark")
    column = column if column.type == pyarrow.binary() else column.cast(pyarrow.binary())
    size, count = kind.itemsize * numbers, len(column)
    _, offsets, content = column.buffers()
    ends = np.frombuffer(offsets, dtype=np.int32)[column.offset : column.offset + count + 1]
    if column.null_count or not np.array_equal(np.diff(ends), np.full(count, size)):
        raise PlanError(f"a report of this task is {size:,} bytes; some of these have another length: they are damaged, or not reports.")
    return np.frombuffer(content, dtype=np.uint8)[ends[0] : ends[-1]].view(kind).reshape(count, numbers)


def _outcome(number: int, partitions: list[int], tally: Tally | None, seen: RowSummary, refused: str) -> Any:
    pyarrow: Any = require("pyarrow", "spark")
    content = [[number], [json.dumps(partitions)], [None if tally is None else tally.to_bytes()], [json.dumps(seen.to_plain())], [refused]]
    kinds = [pyarrow.int32(), pyarrow.string(), pyarrow.binary(), pyarrow.string(), pyarrow.string()]
    arrays = [pyarrow.array(cells, kind) for cells, kind in zip(content, kinds, strict=True)]
    return pyarrow.RecordBatch.from_arrays(arrays, names=[field.split()[0] for field in OUTCOME_SCHEMA.split(", ")])
