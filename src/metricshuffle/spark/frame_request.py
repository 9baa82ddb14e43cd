"""Request about the rows of a DataFrame, checked on the driver before and after it runs."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Unpack

from metricshuffle.data.row_errors import RowSummary
from metricshuffle.data.source import (
    Chunk,
    ColumnRequest,
    ColumnSource,
    check_distinct_columns,
    find_positions,
    list_names,
)
from metricshuffle.data.value_reading import ReadingArguments, check_argument_names
from metricshuffle.errors import InputError, InputWarning, PlanError, argument
from metricshuffle.protocols.tally import Tally
from metricshuffle.randomness import Randomness
from metricshuffle.spark import partitions
from metricshuffle.spark.partition_jobs import check_frame, collect_partitions
from metricshuffle.spark.partitions import PartitionJob
from metricshuffle.tasks import Task

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

WHITE_SPACE = "".join(
    map(
        chr,
        [
            *range(9, 14),
            *range(28, 33),
            0x85,
            0xA0,
            0x1680,
            *range(0x2000, 0x200B),
            0x2028,
            0x2029,
            0x202F,
            0x205F,
            0x3000,
        ],
    )
)
"""White space of Python, which is stripped from user names."""


class NamedColumns(ColumnSource):
    """Requested columns of a DataFrame on the driver, without rows."""

    def chunks(self) -> Iterator[Chunk]:
        raise NotImplementedError("rows of a DataFrame are read where they are")


@dataclass(frozen=True, eq=False)
class FrameRequest:
    """Checked request about a DataFrame of values.

    `source` has only the needed columns, with all rows of a user together.
    """

    source: DataFrame
    job: PartitionJob
    warn: Callable[[str], None]

    @classmethod
    def of(
        cls,
        frame: DataFrame,
        task: Task,
        *,
        round: int = 1,
        seed: str | None = None,
        warn: Callable[[str], None] | None = None,
        **reading: Unpack[ReadingArguments],
    ) -> FrameRequest:
        """Check the arguments on the driver, before Spark runs anything."""
        check_frame(frame)
        check_argument_names(reading)
        task.batch(round)
        if reading.get("column") is None:
            raise InputError(
                f"{argument('column')} must say which column of the DataFrame holds the "
                f"values; it has: {list_names(frame.columns)}."
            )
        job = PartitionJob(task.to_json(), reading, round=round, seed=seed)
        job.rows(partial(_named_columns, frame))
        if reading.get("per_user") == "first":
            raise InputError(
                f"{argument('per_user', 'first')} needs an order, and the rows of a DataFrame "
                "have none; choose another one, or select the first rows before."
            )
        return cls(_select_columns(frame, job), job, _warn if warn is None else warn)

    def tally(self) -> Tally:
        added, seen, refused = collect_partitions(self.source, self.job, partitions.tally_partition)
        self.raise_row_errors(seen, refused)
        if added is None:
            raise PlanError("a partition returned no tally; run it again.")
        return added

    def raise_row_errors(self, seen: RowSummary, refused: str) -> None:
        """Raise if any partition has invalid rows; warn about rows left out."""
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


def _named_columns(frame: DataFrame, wanted: Sequence[ColumnRequest]) -> NamedColumns:
    check_distinct_columns(wanted)
    find_positions("the DataFrame", wanted, frame.columns)
    return NamedColumns("the DataFrame", tuple(wanted))


def _select_columns(frame: DataFrame, job: PartitionJob) -> DataFrame:
    """Select the needed columns; all rows of a user are consecutive in one partition."""
    values = [f"{_quoted(name)} as value{index}" for index, name in enumerate(job.columns)]
    if job.user_column is None:
        return frame.selectExpr(*values)
    source = frame.selectExpr(
        f"trim(BOTH '{WHITE_SPACE}' FROM cast({_quoted(job.user_column)} as string)) as user",
        *values,
    )
    return source.repartition("user").sortWithinPartitions("user")


def _quoted(name: str) -> str:
    """Quote a column name for SQL."""
    return "`" + name.replace("`", "``") + "`"


def check_randomness(randomness: Randomness | None) -> None:
    if randomness is not None and randomness.unsafe_seeded:
        raise InputError(
            "seeded randomness is rejected on Spark: every partition would draw the same "
            "noise; leave randomness out to use that of each machine."
        )
