"""Work on all partitions of a DataFrame, and what they hand back; what stops Spark, in words."""

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
    from pyspark.sql import DataFrame

Work = Callable[[Iterator[Any], PartitionJob], Iterator[Any]]
# Tallies of so many groups of partitions reach the driver at the most, however many partitions there are; Spark puts small ones together.
MAX_TALLY_GROUPS = 64


def check_frame(frame: Any) -> Any:
    """A DataFrame that has an end."""
    require("pyspark.sql", "spark")
    if not all(hasattr(frame, name) for name in ("mapInArrow", "isStreaming", "sparkSession")):
        raise InputError(f"this needs a Spark DataFrame, got {type(frame).__name__}; plan.run takes other frames.")
    if frame.isStreaming:
        raise InputError(
            "a streaming DataFrame has no end, so that no batch of it reaches a minimum; write down what came, and read it as a table."
        )
    return frame


def map_partitions(frame: DataFrame, work: Work, job: PartitionJob, schema: str) -> DataFrame:
    """Work on every partition, with the job as a constant."""

    def on_batches(batches: Iterator[Any]) -> Iterator[Any]:
        return work(batches, job)

    with warnings.catch_warnings():
        # pandas is not used here, whatever its version.
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
        return frame.mapInArrow(on_batches, schema)


def collect_partitions(source: DataFrame, job: PartitionJob, work: Work) -> tuple[Tally | None, RowSummary, str]:
    """What all partitions found and added up: in groups where they are, and what the groups have on the driver."""
    with spark_errors("nothing is released"):
        outcomes = map_partitions(source, work, job, OUTCOME_SCHEMA).selectExpr("*", f"partition % {MAX_TALLY_GROUPS} as slot")
        together = map_partitions(outcomes.repartition("slot").drop("slot"), partitions.merge_outcomes, job, OUTCOME_SCHEMA)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
            rows = sorted((row.asDict() for row in together.collect()), key=lambda row: int(row["partition"]))
    return partitions.combine_outcomes(rows, job)[:3]


@contextmanager
def spark_errors(and_so: str) -> Iterator[None]:
    """What stops Spark as a sentence; the long form is its cause."""
    errors: Any = require("pyspark.errors", "spark")
    java: Any = require("py4j.protocol", "spark")
    try:
        yield
    except (errors.PySparkException, java.Py4JError) as error:
        condition = error.getCondition() if isinstance(error, errors.PySparkException) else None
        if condition == "PATH_ALREADY_EXISTS":
            raise InputError("there is something at that path already; reports are written once, so name another one.") from error
        raise InputError(f"Spark could not do it, and {and_so}: {first_message_line(str(error))}") from error


def first_message_line(text: str) -> str:
    """The first line of a long message of Java's that says something, as the end of a sentence."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    first = next((line for line in lines if not line.startswith(("An error occurred while calling", "Traceback", ":"))), "no reason given")
    return f"{first[:300].rstrip('.;: ')}."
