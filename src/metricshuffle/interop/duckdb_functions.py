"""Plans in SQL: table functions of DuckDB that run a plan on a column.

    SELECT * FROM metricshuffle_run('plan.json', (SELECT list(kcal) FROM people))

DuckDB's Python interface registers scalar functions only. So each table function is a macro that
calls a scalar function, and it takes the column as a list, which a subquery makes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, TypedDict

from metricshuffle.errors import InputError, require
from metricshuffle.interop.peer_packages import require_peer_of
from metricshuffle.planning.costs.release_ledger import Budget
from metricshuffle.planning.plan import Plan
from metricshuffle.queries.histogram import Histogram
from metricshuffle.queries.result_table import Table
from metricshuffle.spaces import Categories
from metricshuffle.tasks.release import Release

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection
    from pyarrow import ChunkedArray, ListArray

VALUE_TYPES = {"metricshuffle_run": "DOUBLE", "metricshuffle_run_labels": "VARCHAR"}
"""SQL type of the values of each table function."""
ROW_KINDS = ("mean", "sum", "quantiles", "spread", "share-above")
"""Queries of one column whose answers are rows in SQL, besides histograms of labels."""


class ReleasedRow(TypedDict):
    """A row of a release in SQL."""

    label: str
    value: float
    standard_error: float | None
    low_95: float | None
    high_95: float | None
    epsilon: float
    delta: float
    distance: float
    guarantee: str


ROW_TYPES = {
    name: "VARCHAR" if name in ("label", "guarantee") else "DOUBLE"
    for name in ReleasedRow.__annotations__
}


class ReleaseFunction:
    """Function of DuckDB that runs a plan file on a list of values.

    An engine may evaluate an expression twice, and two releases would reveal more than one. So
    the same plan and values, in any order, give the same release again, for as long as the
    connection lives.
    """

    def __init__(self) -> None:
        self._turn = Lock()
        self._rows: dict[tuple[str, bytes], list[ReleasedRow]] = {}

    def __call__(self, plans: ChunkedArray, columns: ChunkedArray) -> ListArray:
        """Return the rows of the release for the only plan and column of a chunk."""
        pyarrow = require("pyarrow", "tables")
        if len(plans) != 1:
            raise InputError(
                f"a plan runs once in a query, not on {len(plans):,} rows.",
                remedy="Give it one list of all people; means and counts by group are a question "
                "of their own (metricshuffle.ByGroup).",
            )
        number = pyarrow.float64()
        text = pyarrow.string()
        fields = [(name, text if kind == "VARCHAR" else number) for name, kind in ROW_TYPES.items()]
        with self._turn:
            rows = self.released(plans[0].as_py(), columns[0].as_py())
        return pyarrow.array([rows], type=pyarrow.list_(pyarrow.struct(fields)))

    def released(self, plan_file: str | None, values: Sequence[object] | None) -> list[ReleasedRow]:
        """Run the plan, record the release in the ledger beside it, and return its SQL rows."""
        if plan_file is None or values is None:
            raise InputError(
                "the plan or the list of values is NULL; give a plan file and "
                "(SELECT list(column) FROM table)."
            )
        plan = Plan.load(plan_file)
        column_hash = order_free_hash(values)
        known = self._rows.get((plan.digest, column_hash))
        if known is not None:
            return known
        check_rows(plan)
        release = plan.run(values, budget=Budget.beside(Path(plan_file), plan.task))
        rows = released_rows(release)
        self._rows[plan.digest, column_hash] = rows
        return rows


def order_free_hash(values: Sequence[object]) -> bytes:
    """Return a hash that is the same for the same values in another order.

    `list(column)` has the order of the scan, which is not fixed if several threads scan.
    """
    # repr distinguishes 1, 1.0, '1' and neighbouring doubles, and has no line break.
    return hashlib.sha256("\n".join(sorted(map(repr, values))).encode()).digest()


def check_rows(plan: Plan) -> None:
    """Raise unless the answer has a label and a number a row, before anything is released."""
    query = plan.query
    counted = isinstance(query, Histogram) and isinstance(query.values_in, Categories)
    if not counted and query.kind not in ROW_KINDS:
        raise InputError(
            f"the answer to {query.title} has no label and number a row, as it would need in SQL; "
            "use plan.run(relation, ...) in Python."
        )


def released_rows(release: Release) -> list[ReleasedRow]:
    """Return the rows of a release: a number, or each label of a table."""
    table = release.value
    rows = list(table) if isinstance(table, Table) else release.to_frame("pyarrow").to_pylist()
    promise = release.guarantee
    text = " ".join(release.sentences)
    result: list[ReleasedRow] = []
    for row in rows:
        low, high = row.get("interval_95") or (row.get("low_95"), row.get("high_95"))
        result.append(
            ReleasedRow(
                label=str(row["label"]),
                value=float(row["value"] if "value" in row else row["share"]),
                standard_error=row.get("standard_error"),
                low_95=low,
                high_95=high,
                epsilon=promise.epsilon,
                delta=promise.delta,
                distance=promise.distance,
                guarantee=text,
            )
        )
    return result


def without_annotations(function: ReleaseFunction) -> Callable[..., object]:
    """Return the function without its types, which DuckDB would evaluate."""
    return lambda plans, columns: function(plans, columns)


def register_duckdb(connection: DuckDBPyConnection) -> None:
    """Register `metricshuffle_run` and `metricshuffle_run_labels` with a connection of DuckDB.

    Both take the path of a plan file and a list: of numbers or of labels. Their table has a row
    for each number or label of the answer, with the guarantee. Each release is recorded in the
    ledger beside the plan, as `metricshuffle run` does it.
    """
    require_peer_of(__name__)
    require("pyarrow", "tables")
    row = ", ".join(f'"{name}" {kind}' for name, kind in ROW_TYPES.items())
    for name, value_type in VALUE_TYPES.items():
        connection.create_function(
            f"{name}_rows",
            without_annotations(ReleaseFunction()),
            ["VARCHAR", f"{value_type}[]"],
            f"STRUCT({row})[]",
            type="arrow",
            null_handling="special",
            side_effects=True,
        )
        connection.execute(table_macro(name, value_type))


def table_macro(name: str, value_type: str) -> str:
    """Return the statement that defines a table function, which refuses what is not a list.

    A subquery of several rows cannot be an argument of a macro: its type refuses it, unread.
    """
    return (
        f"CREATE OR REPLACE TEMP MACRO {name}"  # noqa: S608 - two fixed names
        f"(plan_file VARCHAR, column_values {value_type}[]) AS TABLE "
        f"(SELECT unnest({name}_rows(plan_file, column_values), recursive := true)), "
        f"(plan_file VARCHAR, column_values {value_type}) AS TABLE "
        f"(SELECT error('{name} takes one list of all values, not a column or a single value; "
        "write (SELECT list(column) FROM table) with the names of yours.'))"
    )
