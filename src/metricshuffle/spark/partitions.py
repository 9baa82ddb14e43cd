"""Functions that run on workers: from the Arrow batches of one partition to its outcome.

An outcome is a tally, reports, or an error. Every function takes batches and a `PartitionJob`,
which is all that is sent to workers. A partition may be run twice (Spark retries and speculates)
and then draws new noise; only one of its results is used.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from metricshuffle.data import source as tables
from metricshuffle.data.arrow import ArrowTable
from metricshuffle.data.row_errors import RowSummary
from metricshuffle.data.rows import Rows
from metricshuffle.data.source import ColumnRequest, ColumnSource, Values
from metricshuffle.data.value_reading import ReadingArguments, column_list
from metricshuffle.errors import InputError, PlanError, require
from metricshuffle.protocols.tally import Tally
from metricshuffle.randomness import Randomness
from metricshuffle.tasks.task import MESSAGE_BYTES_PER_PART, Task, new_batch_id

if TYPE_CHECKING:
    from pyarrow import Array, RecordBatch
    from pyarrow import Table as ArrowData

OUTCOME_SCHEMA = "partition int, partitions string, tally binary, seen string, refused string"
"""Row that a partition returns.

It has the partition's number, all partitions in it (a list, after a merge), the bytes of a tally,
the summary of its rows, and the message of an error.
"""
REPORTS_SCHEMA = "batch binary, number bigint, messages binary"
"""Rows of reports: batch id of the partition, number in it, and bytes of the messages."""


@dataclass(frozen=True)
class PartitionJob:
    """Job of every partition, as constants: the task as text, and how rows are read."""

    task: str
    reading: ReadingArguments = field(default_factory=ReadingArguments)
    round: int = 1
    seed: str | None = None
    """Seed for tests only; the tally stays marked as seeded."""
    seeded: bool = False
    """Whether some of the existing reports were made with a seed."""

    @property
    def columns(self) -> list[str]:
        return column_list(self.reading.get("column"))

    @property
    def user_column(self) -> str | None:
        return self.reading.get("user_column")

    @property
    def clamp(self) -> bool:
        return self.reading.get("clamp", False)

    @property
    def names(self) -> list[str]:
        """Column names of the batches, in order.

        Spark uses other names for them, because it does not support dots and other characters.
        """
        return [*([] if self.user_column is None else [self.user_column]), *self.columns]

    def randomness(self) -> Randomness:
        """Randomness, opened in the process that uses it."""
        return Randomness.system() if self.seed is None else Randomness.seeded(self.seed)

    def rows(self, opened: Callable[[Sequence[ColumnRequest]], ColumnSource]) -> Rows:
        """Rows of a table; raises if the options do not fit together."""
        return Rows.of(opened, load_task(self.task).query, **self.reading)


@lru_cache(maxsize=8)
def load_task(text: str) -> Task:
    """Read a task, once in a process; a large table of distances takes a while."""
    return Task.from_json(text)


@dataclass(eq=False)
class PartitionTable(ArrowTable):
    """Rows of one partition."""

    partition: int = 0

    def place(self, place: int) -> str:
        return f"partition {self.partition}, row {place}"


@dataclass
class PartitionRows:
    """Rows of a partition as values of the query, and their summary after reading."""

    job: PartitionJob
    partition: int
    seen: RowSummary = field(default_factory=RowSummary)

    def parts(self, batches: Iterator[RecordBatch]) -> Iterator[Values]:
        """Iterate over values in chunks.

        If there are users, the rows are sorted by user, and all rows of a user are in one chunk.
        """
        done = 0
        for piece in (
            gather_batches(batches)
            if self.job.user_column is None
            else split_between_users(batches)
        ):
            named = piece.rename_columns(self.job.names)
            rows = self.job.rows(partial(self._table, named, done))
            try:
                for values in rows.usable_parts():
                    # Rows after an invalid row are only counted.
                    if not self.seen.refused:
                        yield values
            finally:
                self.seen.merge(rows.seen)
            done += piece.num_rows

    def _table(
        self, piece: ArrowData, done: int, wanted: Sequence[ColumnRequest]
    ) -> PartitionTable:
        title = (
            "the DataFrame"
            if self.job.user_column is None
            else f"partition {self.partition} of the DataFrame"
        )
        return PartitionTable(
            title, tuple(wanted), iter(piece.to_batches()), done, partition=self.partition
        )


def gather_batches(batches: Iterator[RecordBatch], rows: int | None = None) -> Iterator[ArrowData]:
    """Combine small batches into tables of at least `rows` rows; none if there are no rows."""
    pyarrow = require("pyarrow", "spark")
    min_rows = tables.CHUNK_ROWS if rows is None else rows
    pending: list[RecordBatch] = []
    count = 0
    for batch in batches:
        if batch.num_rows:
            pending.append(batch)
            count += batch.num_rows
        if count >= min_rows:
            yield pyarrow.Table.from_batches(pending).combine_chunks()
            pending = []
            count = 0
    if pending:
        yield pyarrow.Table.from_batches(pending).combine_chunks()


def split_between_users(batches: Iterator[RecordBatch]) -> Iterator[ArrowData]:
    """Cut rows that are sorted by user (first column) into tables that end between two users.

    Memory is bounded by the size of a table, not of a partition.
    """
    pyarrow = require("pyarrow", "spark")
    compute = require("pyarrow.compute", "spark")
    pending: ArrowData | None = None
    for piece in gather_batches(batches):
        if pending is None:
            pending = piece
            continue
        names = pending.column(0)
        last = names[-1]
        same = (
            compute.is_null(names)
            if not last.is_valid
            else compute.fill_null(compute.equal(names, last), False)
        )
        # The last user may continue in the next piece.
        cut = pending.num_rows - (compute.sum(same).as_py() or 0)
        if cut:
            yield pending.slice(0, cut).combine_chunks()
        pending = pyarrow.concat_tables([pending.slice(cut), piece])
    if pending is not None:
        yield pending.combine_chunks()


def partition_number() -> int:
    """Number of this partition; 0 outside Spark."""
    context = require("pyspark", "spark").TaskContext.get()
    return 0 if context is None else int(context.partitionId())


def tally_partition(batches: Iterator[RecordBatch], job: PartitionJob) -> Iterator[RecordBatch]:
    """Yield one row: the tally of a partition of values, or why there is none."""
    number = partition_number()
    rows = PartitionRows(job, number)
    task = load_task(job.task)
    try:
        tally = task.counted(
            rows.parts(batches), job.randomness(), clamp=job.clamp, round=job.round
        )
    except InputError as error:
        # Reported on the driver: an exception here would only make Spark try again.
        yield _outcome(number, [number], None, rows.seen, error.template)
        return
    yield _outcome(number, [number], None if rows.seen.refused else tally, rows.seen, "")


def check_partition(batches: Iterator[RecordBatch], job: PartitionJob) -> Iterator[RecordBatch]:
    """Yield one row: the summary of a partition of values, without using them."""
    number = partition_number()
    rows = PartitionRows(job, number)
    refused = ""
    task = load_task(job.task)
    try:
        for values in rows.parts(batches):
            task.query.inputs(values, task.protocol.step, clamp=job.clamp)
    except InputError as error:
        refused = error.template
    yield _outcome(number, [number], None, rows.seen, refused)


def merge_outcomes(batches: Iterator[RecordBatch], job: PartitionJob) -> Iterator[RecordBatch]:
    """Merge many rows into one: the sum of the tallies, and the summary of all.

    Yields nothing if there are no rows.
    """
    rows = sorted(
        (row for batch in batches for row in batch.to_pylist()),
        key=lambda row: int(row["partition"]),
    )
    if not rows:
        return
    tally, seen, refused, partitions = combine_outcomes(rows, job)
    yield _outcome(int(rows[0]["partition"]), partitions, tally, seen, refused)


def combine_outcomes(
    rows: list[dict[str, Any]], job: PartitionJob
) -> tuple[Tally | None, RowSummary, str, list[int]]:
    """Return the tally of many outcomes, their summary, the first error, and the partitions.

    The tally is None unless all outcomes have one. Raises PlanError if a partition occurs twice.
    """
    task = load_task(job.task)
    tally: Tally | None = task.tally(round=job.round)
    seen = RowSummary()
    refused = ""
    partitions: list[int] = []
    for row in rows:
        partitions += json.loads(row["partitions"])
        seen.merge(RowSummary.from_plain(json.loads(row["seen"])))
        refused = refused or row["refused"]
        tally = (
            None
            if tally is None or row["tally"] is None
            else tally.merge(task.tally(bytes(row["tally"])))
        )
    if len(set(partitions)) != len(partitions):
        raise PlanError(
            "Spark returned a partition twice, and no report may count twice; run it again."
        )
    return tally, seen, refused, partitions


def randomize_partition(batches: Iterator[RecordBatch], job: PartitionJob) -> Iterator[RecordBatch]:
    """Yield rows of reports with one batch id.

    Invalid values raise and stop the task, because all values were checked before.
    """
    pyarrow = require("pyarrow", "spark")
    rows = PartitionRows(job, partition_number())
    task = load_task(job.task)
    batch_id = new_batch_id()
    number = 0
    for messages in task.messages(rows.parts(batches), job.randomness(), clamp=job.clamp):
        count = len(messages)
        size = task.protocol.layout.size
        records = np.ascontiguousarray(messages, dtype=task.protocol.layout.type)
        offsets = np.arange(count + 1, dtype=np.int32) * np.int32(size)
        column = pyarrow.Array.from_buffers(
            pyarrow.binary(), count, [None, pyarrow.py_buffer(offsets), pyarrow.py_buffer(records)]
        )
        ids = pyarrow.repeat(pyarrow.scalar(batch_id, pyarrow.binary()), count)
        yield pyarrow.RecordBatch.from_arrays(
            [ids, pyarrow.array(np.arange(number, number + count)), column], names=report_names()
        )
        number += count
    if rows.seen.refused:
        raise InputError(
            "values changed while they were randomized: some cannot be used now; save the "
            "DataFrame first."
        )


def report_names() -> list[str]:
    return [field.split()[0] for field in REPORTS_SCHEMA.split(", ")]


def tally_reports_partition(
    batches: Iterator[RecordBatch], job: PartitionJob
) -> Iterator[RecordBatch]:
    """Yield one row: the tally of a partition of reports."""
    number = partition_number()
    task = load_task(job.task)
    tally = task.tally(round=job.round)
    layout = load_task(job.task).protocol.layout
    at_once = max(1, min(tables.CHUNK_ROWS, MESSAGE_BYTES_PER_PART // layout.size))
    try:
        for piece in gather_batches(batches, at_once):
            for batch in piece.to_batches():
                tally.add(
                    read_messages(batch.column(0), layout.type, layout.numbers), seeded=job.seeded
                )
    except InputError as error:
        yield _outcome(number, [number], None, RowSummary(), error.template)
        return
    yield _outcome(number, [number], tally, RowSummary(), "")


def read_messages(column: Array, kind: np.dtype[Any], numbers: int) -> Any:
    """View a column of bytes as rows of integers, without a copy.

    Raises PlanError if a cell has another length.
    """
    pyarrow = require("pyarrow", "spark")
    column = column if column.type == pyarrow.binary() else column.cast(pyarrow.binary())
    size = kind.itemsize * numbers
    count = len(column)
    _, offsets, content = column.buffers()
    ends = np.frombuffer(offsets, dtype=np.int32)[column.offset : column.offset + count + 1]
    if column.null_count or not np.array_equal(np.diff(ends), np.full(count, size)):
        raise PlanError(
            f"a report of this task has {size:,} bytes; some of these have another length: "
            "they are damaged, or not reports."
        )
    return (
        np.frombuffer(content, dtype=np.uint8)[ends[0] : ends[-1]]
        .view(kind)
        .reshape(count, numbers)
    )


def _outcome(
    number: int, partitions: list[int], tally: Tally | None, seen: RowSummary, refused: str
) -> RecordBatch:
    pyarrow = require("pyarrow", "spark")
    content = [
        [number],
        [json.dumps(partitions)],
        [None if tally is None else tally.to_bytes()],
        [json.dumps(seen.to_plain())],
        [refused],
    ]
    kinds = [
        pyarrow.int32(),
        pyarrow.string(),
        pyarrow.binary(),
        pyarrow.string(),
        pyarrow.string(),
    ]
    arrays = [pyarrow.array(cells, kind) for cells, kind in zip(content, kinds, strict=True)]
    return pyarrow.RecordBatch.from_arrays(
        arrays, names=[field.split()[0] for field in OUTCOME_SCHEMA.split(", ")]
    )
