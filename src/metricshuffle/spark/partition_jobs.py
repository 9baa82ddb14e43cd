"""Driver side of Spark: run a function on all partitions and merge the results.

Errors of Spark become short messages.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from metricshuffle.data.row_errors import RowSummary
from metricshuffle.errors import InputError, require
from metricshuffle.protocols.tally import Tally
from metricshuffle.spark import partitions
from metricshuffle.spark.partitions import OUTCOME_SCHEMA, PartitionJob

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql import DataFrame

Work = Callable[[Iterator["RecordBatch"], PartitionJob], Iterator["RecordBatch"]]
# Maximum number of groups whose tallies reach the driver, however many partitions there are.
MAX_TALLY_GROUPS = 64


def check_frame(frame: Any) -> DataFrame:
    """Return `frame`; raises unless it is a DataFrame that is not streaming."""
    require("pyspark.sql", "spark")
    if not all(hasattr(frame, name) for name in ("mapInArrow", "isStreaming", "sparkSession")):
        raise InputError(
            f"this needs a Spark DataFrame, got {type(frame).__name__}; plan.run takes "
            "other frames."
        )
    if frame.isStreaming:
        raise InputError(
            "a streaming DataFrame has no end, so no batch of it is complete; save what "
            "arrived, and read it as a table."
        )
    return frame


def map_partitions(frame: DataFrame, work: Work, job: PartitionJob, schema: str) -> DataFrame:
    """Apply a function to every partition, with the job as a constant."""

    def on_batches(batches: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
        return work(batches, job)

    with warnings.catch_warnings():
        # The warning is about pandas, which is not used here.
        warnings.filterwarnings(
            "ignore", "PySpark does not yet fully support pandas", FutureWarning
        )
        return frame.mapInArrow(on_batches, schema)


def collect_partitions(
    source: DataFrame, job: PartitionJob, work: Work
) -> tuple[Tally | None, RowSummary, str]:
    """Merge the outcomes of all partitions: in groups on the workers, then on the driver."""
    with spark_errors("nothing is released"):
        outcomes = map_partitions(source, work, job, OUTCOME_SCHEMA).selectExpr(
            "*", f"partition % {MAX_TALLY_GROUPS} as slot"
        )
        together = map_partitions(
            outcomes.repartition("slot").drop("slot"),
            partitions.merge_outcomes,
            job,
            OUTCOME_SCHEMA,
        )
        with warnings.catch_warnings():
            warnings.filterwarnings(
                "ignore", "PySpark does not yet fully support pandas", FutureWarning
            )
            rows = sorted(
                (row.asDict() for row in together.collect()), key=lambda row: int(row["partition"])
            )
    return partitions.combine_outcomes(rows, job)[:3]


@contextmanager
def spark_errors(and_so: str) -> Iterator[None]:
    """Convert errors of Spark into short messages, with the full error as the cause."""
    errors = require("pyspark.errors", "spark")
    java = require("py4j.protocol", "spark")
    try:
        yield
    except (errors.PySparkException, java.Py4JError) as error:
        condition = error.getCondition() if isinstance(error, errors.PySparkException) else None
        if condition == "PATH_ALREADY_EXISTS":
            raise InputError(
                "that path exists already; reports are written once, so name another one."
            ) from error
        raise InputError(
            f"Spark could not do it, and {and_so}: {first_message_line(str(error))}"
        ) from error


def first_message_line(text: str) -> str:
    """First informative line of a long message of Java."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    first = next(
        (
            line
            for line in lines
            if not line.startswith(("An error occurred while calling", "Traceback", ":"))
        ),
        "no reason given",
    )
    return f"{first[:300].rstrip('.;: ')}."
