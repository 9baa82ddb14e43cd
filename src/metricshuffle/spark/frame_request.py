"""What is asked about the rows of a DataFrame: checked on the driver before anything runs, and judged there when all was seen."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from metricshuffle.data import ARGUMENTS, OPTIONS, Chunk, ColumnRequest
from metricshuffle.data.row_errors import RowSummary
from metricshuffle.data.source import check_distinct_columns, find_positions, list_names
from metricshuffle.errors import InputError, InputWarning, PlanError
from metricshuffle.protocols.tally import Tally
from metricshuffle.randomness import Randomness
from metricshuffle.spark import partitions
from metricshuffle.spark.partition_jobs import check_frame, collect_partitions
from metricshuffle.spark.partitions import PartitionJob
from metricshuffle.tasks import Task

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

WHITE_SPACE = "".join(
    map(chr, [*range(9, 14), *range(28, 33), 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000])
)
"""What Python takes for white space: names of users are the same with and without it at their ends."""


@dataclass(eq=False)
class NamedColumns:
    """The wanted columns of a DataFrame, as far as a driver knows them: no rows."""

    title: str
    columns: tuple[ColumnRequest, ...]
    remarks: list[str] = field(default_factory=list)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    def chunks(self) -> Iterator[Chunk]:
        raise NotImplementedError("rows of a DataFrame are read where they are")

    def place(self, place: int) -> str:
        return f"row {place}"


@dataclass(frozen=True, eq=False)
class FrameRequest:
    """A DataFrame of values with what was asked about it, checked: the columns it needs and no others, users together."""

    source: DataFrame
    job: PartitionJob
    warn: Callable[[str], None]

    @classmethod
    def of(
        cls,
        frame: DataFrame,
        task: Task,
        *,
        column: str | Sequence[str] | None,
        round: int = 1,
        as_options: bool = False,
        seed: str | None = None,
        warn: Callable[[str], None] | None = None,
        **options: Any,
    ) -> FrameRequest:
        check_frame(frame)
        task.batch(round)
        if column is None:
            raise InputError(f"say which column of the DataFrame holds the values, column=; it has: {list_names(frame.columns)}.")
        names = tuple(column) if isinstance(column, list | tuple) else (str(column),)
        job = PartitionJob(task.to_json(), names, round=round, as_options=as_options, seed=seed, **options)
        job.rows(partial(_named_columns, frame, job))
        if job.per_user == "first":
            argument = (OPTIONS if as_options else ARGUMENTS)("per_user", "first")
            raise InputError(
                f"{argument} needs an order, and the rows of a DataFrame have none; choose another way, or keep the first rows before."
            )
        return cls(_select_columns(frame, job), job, _warn if warn is None else warn)

    def tally(self) -> Tally:
        added, seen, refused = collect_partitions(self.source, self.job, partitions.tally_partition)
        self.raise_row_errors(seen, refused)
        if added is None:
            raise PlanError("a partition handed back no tally; run it again.")
        return added

    def raise_row_errors(self, seen: RowSummary, refused: str) -> None:
        """Raise if something was wrong in any partition; warn of what was left out."""
        rows = self.job.rows(lambda wanted: NamedColumns("the DataFrame", tuple(wanted)))
        rows.seen.merge(seen)
        if refused and not seen.refused:
            raise InputError(refused)
        if not seen.total:
            raise InputError("the DataFrame has no rows; there are no values to report.")
        rows.raise_row_errors()
        rows.add_clamping_remark()
        for remark in rows.remarks:
            self.warn(remark)


def _warn(remark: str) -> None:
    warnings.warn(remark, InputWarning, stacklevel=5)


def _named_columns(frame: DataFrame, job: PartitionJob, wanted: Sequence[ColumnRequest]) -> NamedColumns:
    spelling = OPTIONS if job.as_options else ARGUMENTS
    check_distinct_columns(wanted, spelling)
    find_positions("the DataFrame", wanted, frame.columns, spelling)
    return NamedColumns("the DataFrame", tuple(wanted))


def _select_columns(frame: DataFrame, job: PartitionJob) -> DataFrame:
    """The columns that are needed; all rows of a user in one partition, one after the other."""
    values = [f"{_quoted(name)} as value{index}" for index, name in enumerate(job.columns)]
    if job.user_column is None:
        return frame.selectExpr(*values)
    source = frame.selectExpr(f"trim(BOTH '{WHITE_SPACE}' FROM cast({_quoted(job.user_column)} as string)) as user", *values)
    return source.repartition("user").sortWithinPartitions("user")


def _quoted(name: str) -> str:
    """A column as SQL names it, whatever is in its name."""
    return "`" + name.replace("`", "``") + "`"


def check_randomness(randomness: Randomness | None) -> None:
    if randomness is not None and randomness.unsafe_seeded:
        raise InputError(
            "seeded randomness is refused on Spark: every partition would draw the same noise; leave randomness= out, and each opens "
            "that of its own machine."
        )
