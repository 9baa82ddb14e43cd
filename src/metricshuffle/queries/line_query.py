"""Base of queries on people's numbers that are counted in bins of a line."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from metricshuffle.errors import InputError
from metricshuffle.estimation.inversion import IntervalMethod
from metricshuffle.numerics.types import Floats, Integers64
from metricshuffle.queries.cell_query import CellQuery
from metricshuffle.queries.cell_table import places_of
from metricshuffle.queries.query import Answer, Estimate
from metricshuffle.queries.result_table import Table
from metricshuffle.spaces import Domain, Integers, Interval

# Relative error up to which a number counts as the edge of a bin.
EDGE_TOLERANCE = 1e-9


class LineQuery(CellQuery):
    """Base of quantiles, spread and shares above: one row of a table for each number.

    Estimates for these queries are the numbers themselves, in units, and not totals over people.
    """

    domains: ClassVar[tuple[type[Domain], ...]] = (Integers, Interval)
    domain_words: ClassVar[str] = "Integers or an Interval"
    max_bins: ClassVar[int] = 2**16

    # Repeated, because type checkers do not see that pydantic inherits it.
    def __init__(self, domain: Domain, step: float | None = None, **fields: object) -> None:
        super().__init__(domain, step, **fields)

    @property
    @abstractmethod
    def row_labels(self) -> tuple[str, ...]:
        """Name of each number of the answer."""

    @property
    def row_columns(self) -> dict[str, Sequence[object]]:
        """Columns of the answer that precede the numbers."""
        return {"label": list(self.row_labels)}

    @property
    @abstractmethod
    def outcome(self) -> str:
        """Words for the answer in a sentence to participants."""

    @abstractmethod
    def exact(self, counts: Integers64) -> Floats:
        """The true answer for the number of people in each bin, one row per row of counts."""

    @property
    def error_unit(self) -> str:
        return self.unit

    @property
    def tabular(self) -> bool:
        return True

    @property
    def bin_ends(self) -> tuple[Floats, Floats]:
        """Smallest and largest number of each bin."""
        places = places_of(self.domain, self.step)
        return (
            np.asarray(places["low"], dtype=np.float64),
            np.asarray(places["high"], dtype=np.float64),
        )

    @property
    def middles(self) -> Floats:
        """The number that a bin counts as: its middle."""
        low, high = self.bin_ends
        return np.asarray(0.5 * (low + high))

    def checked_counts(self, counts: Integers64) -> Integers64:
        """Return the counts as an array; InputError unless there are people in every row."""
        array = np.asarray(counts, dtype=np.int64)
        if array.shape[-1:] != (self.cells,) or not np.all(array.sum(axis=-1) > 0):
            raise InputError(
                f"{self.noun} needs at least one person; there is no answer about nobody.",
                field="values",
            )
        return array

    def edge_code(self, number: float, offset: float) -> int | None:
        """Number of steps from the lowest number plus `offset` to a number; None if not whole."""
        steps = (number - self.bin_ends[0][0] - offset) / self.step
        code = round(steps)
        return code if abs(steps - code) <= EDGE_TOLERANCE * max(1.0, abs(steps)) else None

    def answer(
        self,
        estimate: Estimate,
        level: float = 0.95,
        *,
        simultaneous: bool = False,
        method: IntervalMethod = "normal",
    ) -> Answer:
        """A table with one row for each number; an interval always contains the printed number."""
        low, high = estimate.interval(level, simultaneous=simultaneous, method=method)
        values = estimate.totals
        interval = np.column_stack([np.minimum(low, values), np.maximum(high, values)])
        columns = {
            **self.row_columns,
            "share" if self.in_percent else "value": values,
            **({} if estimate.errors is None else {"standard_error": estimate.errors}),
            f"interval_{level * 100:g}": [tuple(row) for row in interval.tolist()],
        }
        return Answer(Table(columns), estimate.errors, interval)

    def __str__(self) -> str:
        words = self.between(self.step)
        binned = f" in {words}" if words.startswith("bins") else ""
        return f"{self.outcome.removeprefix('the ')} over {self.domain}{binned}"
