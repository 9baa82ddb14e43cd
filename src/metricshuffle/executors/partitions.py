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

from metricshuffle.columns import ARGUMENTS, OPTIONS, Table, Wanted
from metricshuffle.columns import table as tables
from metricshuffle.columns.arrow import ArrowTable
from metricshuffle.errors import InputError, PlanError, require
from metricshuffle.protocols.tally import Tally
from metricshuffle.queries.rows import Rows
from metricshuffle.queries.wrong_rows import SeenRows
from metricshuffle.randomness import Randomness
from metricshuffle.wire.task import BYTES_AT_ONCE, Task, new_batch_id

OUTCOME = "partition int, partitions string, tally binary, seen string, refused string"
"""The row that a partition hands back: its number, all that are in it (a list, after a merge), bytes of a tally, what was found in its
rows, and the sentence of what it refused."""
REPORTS = "batch binary, number bigint, messages binary"
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

    def rows(self, opened: Callable[[Sequence[Wanted]], Table]) -> Rows:
        """The rows of a table; options that do not fit together are told here."""
        return Rows.of(opened, task_of(self.task).query, self.columns, coordinates=self.coordinates, clamp=self.clamp,
                       user_column=self.user_column, per_user=self.per_user, drop_missing=self.drop_missing,
                       drop_outside=self.drop_outside, spelling=OPTIONS if self.as_options else ARGUMENTS)  # fmt: skip


@lru_cache(maxsize=8)
def task_of(text: str) -> Task:
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
    seen: SeenRows = field(default_factory=SeenRows)

    def parts(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Values, so many rows at once; where rows have users, which come sorted by these, never a part of somebody's rows."""
        done = 0
        for piece in gathered(batches) if self.job.user_column is None else whole_users(batches):
            named = piece.rename_columns(self.job.names)
            rows = self.job.rows(partial(self._table, named, done))
            try:
                for values in rows.usable_parts():
                    if not self.seen.refused:  # nothing is made of what comes after a wrong row, which is only counted
                        yield values
            finally:
                self.seen.merge(rows.seen)
            done += piece.num_rows

    def _table(self, piece: Any, done: int, wanted: Sequence[Wanted]) -> PartitionTable:
        title = "the DataFrame" if self.job.user_column is None else f"partition {self.partition} of the DataFrame"
        return PartitionTable(title, tuple(wanted), iter(piece.to_batches()), True, partition=self.partition, before=done)


def gathered(batches: Iterator[Any], rows: int | None = None) -> Iterator[Any]:
    """Small batches put together to tables of at least so many rows; an empty partition has none."""
    pyarrow: Any = require("pyarrow", "spark")
    least = tables.ROWS_AT_ONCE if rows is None else rows
    held: list[Any] = []
    count = 0
    for batch in batches:
        if batch.num_rows:
            held.append(batch)
            count += batch.num_rows
        if count >= least:
            yield pyarrow.Table.from_batches(held).combine_chunks()
            held, count = [], 0
    if held:
        yield pyarrow.Table.from_batches(held).combine_chunks()


def whole_users(batches: Iterator[Any]) -> Iterator[Any]:
    """Tables of rows that are sorted by their first column, the user, cut between users only: memory holds a piece, not a partition."""
    pyarrow: Any = require("pyarrow", "spark")
    compute: Any = require("pyarrow.compute", "spark")
    held: Any = None
    for piece in gathered(batches):
        if held is None:
            held = piece
            continue
        names = held.column(0)
        last = names[-1]
        same = compute.is_null(names) if not last.is_valid else compute.fill_null(compute.equal(names, last), False)
        cut = held.num_rows - (compute.sum(same).as_py() or 0)  # the last user may go on in the next piece
        if cut:
            yield held.slice(0, cut).combine_chunks()
        held = pyarrow.concat_tables([held.slice(cut), piece])
    if held is not None:
        yield held.combine_chunks()


def partition_number() -> int:
    """Which partition this is; the first where nobody says."""
    context = require("pyspark", "spark").TaskContext.get()
    return 0 if context is None else int(context.partitionId())


def tallied(batches: Iterator[Any], job: PartitionJob) -> Iterator[Any]:
    """One row: the tally of a partition of values, or why there is none."""
    number = partition_number()
    rows, task = PartitionRows(job, number), task_of(job.task)
    try:
        tally = task.counted(rows.parts(batches), job.randomness(), clamp=job.clamp, round=job.round)
    except InputError as wrong:  # told on the driver: an exception here would only make Spark try again
        yield _outcome(number, [number], None, rows.seen, str(wrong))
        return
    yield _outcome(number, [number], None if rows.seen.refused else tally, rows.seen, "")


def looked_at(batches: Iterator[Any], job: PartitionJob) -> Iterator[Any]:
    """One row: what was found in a partition of values, of which nothing is made."""
    number = partition_number()
    rows, refused = PartitionRows(job, number), ""
    task = task_of(job.task)
    try:
        for values in rows.parts(batches):
            task.query.inputs(values, task.protocol.step, clamp=job.clamp)
    except InputError as wrong:
        refused = str(wrong)
    yield _outcome(number, [number], None, rows.seen, refused)


def merged(batches: Iterator[Any], job: PartitionJob) -> Iterator[Any]:
    """One row of many: their tallies added up, and what was found in all of them. Nothing if there is none."""
    rows = sorted((row for batch in batches for row in batch.to_pylist()), key=lambda row: int(row["partition"]))
    if not rows:
        return
    tally, seen, refused, partitions = combined(rows, job)
    yield _outcome(int(rows[0]["partition"]), partitions, tally, seen, refused)


def combined(rows: list[Any], job: PartitionJob) -> tuple[Tally | None, SeenRows, str, list[int]]:
    """The tally of many outcomes if all have one, what was found, the first refusal, and which partitions they come from, each once."""
    task = task_of(job.task)
    tally: Tally | None = task.tally(round=job.round)
    seen, refused = SeenRows(), ""
    partitions: list[int] = []
    for row in rows:
        partitions += json.loads(row["partitions"])
        seen.merge(SeenRows.from_plain(json.loads(row["seen"])))
        refused = refused or row["refused"]
        tally = None if tally is None or row["tally"] is None else tally.merge(task.tally(bytes(row["tally"])))
    if len(set(partitions)) != len(partitions):
        raise PlanError("Spark handed back a partition twice, and nobody may count twice; run it again.")
    return tally, seen, refused, partitions


def randomized(batches: Iterator[Any], job: PartitionJob) -> Iterator[Any]:
    """Rows of reports, under one batch id. What cannot be used stops the task: the values were looked at before."""
    pyarrow: Any = require("pyarrow", "spark")
    rows, task = PartitionRows(job, partition_number()), task_of(job.task)
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
    return [field.split()[0] for field in REPORTS.split(", ")]


def added_up(batches: Iterator[Any], job: PartitionJob) -> Iterator[Any]:
    """One row: the tally of a partition of reports."""
    number, task = partition_number(), task_of(job.task)
    tally, layout = task.tally(round=job.round), task_of(job.task).protocol.layout
    at_once = max(1, min(tables.ROWS_AT_ONCE, BYTES_AT_ONCE // layout.size))
    try:
        for piece in gathered(batches, at_once):
            for batch in piece.to_batches():
                tally.add(messages_in(batch.column(0), layout.type, layout.numbers), seeded=job.seeded)
    except InputError as wrong:
        yield _outcome(number, [number], None, SeenRows(), str(wrong))
        return
    yield _outcome(number, [number], tally, SeenRows(), "")


def messages_in(column: Any, kind: np.dtype[Any], numbers: int) -> Any:
    """A column of bytes as rows of whole numbers, without a copy; a sentence if one has another length."""
    pyarrow: Any = require("pyarrow", "spark")
    column = column if column.type == pyarrow.binary() else column.cast(pyarrow.binary())
    size, count = kind.itemsize * numbers, len(column)
    _, offsets, content = column.buffers()
    ends = np.frombuffer(offsets, dtype=np.int32)[column.offset : column.offset + count + 1]
    if column.null_count or not np.array_equal(np.diff(ends), np.full(count, size)):
        raise PlanError(f"a report of this task is {size:,} bytes; some of these have another length: they are damaged, or not reports.")
    return np.frombuffer(content, dtype=np.uint8)[ends[0] : ends[-1]].view(kind).reshape(count, numbers)


def _outcome(number: int, partitions: list[int], tally: Tally | None, seen: SeenRows, refused: str) -> Any:
    pyarrow: Any = require("pyarrow", "spark")
    content = [[number], [json.dumps(partitions)], [None if tally is None else tally.to_bytes()], [json.dumps(seen.to_plain())], [refused]]
    kinds = [pyarrow.int32(), pyarrow.string(), pyarrow.binary(), pyarrow.string(), pyarrow.string()]
    arrays = [pyarrow.array(cells, kind) for cells, kind in zip(content, kinds, strict=True)]
    return pyarrow.RecordBatch.from_arrays(arrays, names=[field.split()[0] for field in OUTCOME.split(", ")])
