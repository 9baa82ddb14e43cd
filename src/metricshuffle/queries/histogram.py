"""How many people hold each value: labels, whole numbers or bins of a line, cells of a grid."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal, Self

import numpy as np
from pydantic import model_validator

from metricshuffle.accounting.shuffling.geometric_blanket import LARGEST_SPAN
from metricshuffle.errors import DomainError, InputError
from metricshuffle.estimation.inversion import IntervalMethod
from metricshuffle.models import FrozenModel, Positive
from metricshuffle.numerics.rounding import format_number
from metricshuffle.queries.cell_table import bins_of, label_of, places_of, shares_answer
from metricshuffle.queries.centroid import STRAIGHT_LINE_TEXT
from metricshuffle.queries.query import Answer, Estimate, Inputs, Query
from metricshuffle.spaces import AnyDomain, Categories, Domain, Grid, Integers, Interval, Space

MAX_CELLS = 2**16


class Histogram(Query):
    """How many people hold each label of Categories, each of the Integers, or live in each cell of a Grid.

    `step`: numbers are counted in bins of that width; an Interval needs one, whole numbers are counted one by one without.
    """

    options: ClassVar[frozenset[str]] = frozenset({"floor", "spread"})
    kind: Literal["histogram"] = "histogram"
    domain: AnyDomain
    step: Positive

    def __init__(self, domain: Domain, step: float | None = None, **fields: Any) -> None:
        named = Domain.of_kind(domain)
        if not isinstance(named, Categories | Integers | Interval | Grid):
            raise InputError(f"Histogram needs Categories, Integers, an Interval or a Grid, got {type(named).__name__}.")
        if isinstance(named, Interval) and step is None:
            raise InputError(f"a Histogram over {named} needs a step, the width of its bins.")
        usual = named.cell if isinstance(named, Grid) else 1.0
        FrozenModel.__init__(self, domain=named, step=usual if step is None else step, **fields)

    @model_validator(mode="after")
    def _has_cells(self) -> Self:
        domain = self.domain
        if isinstance(domain, Integers) and self.step != int(self.step):
            raise ValueError(f"step must be a whole number for {domain}, got {self.step:g}")
        if isinstance(domain, Categories | Grid) and self.step != (domain.cell if isinstance(domain, Grid) else 1.0):
            raise ValueError("step is for numbers; labels are one apart, and cells as wide as they are")
        max_cells = MAX_CELLS if isinstance(domain, Grid) else LARGEST_SPAN
        if not 2 <= self.cells <= max_cells:
            remedy = "merge values into fewer cells" if self.cells > max_cells else "choose smaller ones"
            raise ValueError(f"needs 2 to {max_cells:,} values, but {domain} has {self.cells:,}; {remedy}")
        if isinstance(domain, Grid) and min(domain.width, domain.height) < 2:
            raise ValueError(f"needs at least 2 x 2 cells, got {domain.width} x {domain.height}; one row is a line of Integers")
        return self

    @property
    def cells(self) -> int:
        """How many cells, bins or labels there are."""
        if isinstance(self.domain, Integers | Interval):
            return bins_of(self.domain, self.step)
        return int(self.domain.size or 0)

    @property
    def values_in(self) -> Domain:
        return self.domain

    @property
    def shared(self) -> bool:
        return True

    @property
    def unit(self) -> str:
        return str(getattr(self.domain, "unit", ""))

    @property
    def title(self) -> str:
        return "map" if isinstance(self.domain, Grid) else self.kind

    @property
    def measure(self) -> str:
        return "expected error of a share"

    @property
    def error_unit(self) -> str:
        return "% of the people"

    def between(self, step: float) -> str:
        if isinstance(self.domain, Grid):
            return STRAIGHT_LINE_TEXT
        binned = isinstance(self.domain, Interval) or (isinstance(self.domain, Integers) and self.step > 1)
        return f"bins of {format_number(self.step)}" if binned else "values"

    @property
    def diameter(self) -> float:
        if isinstance(self.domain, Integers | Interval):
            return (self.cells - 1) * self.step
        return Space.of(self.domain).diameter

    def distance(self, a: int, b: int) -> float:
        """How far apart two cells are, by their codes, in units."""
        if isinstance(self.domain, Grid):
            (row, column), (other_row, other_column) = divmod(a, self.domain.width), divmod(b, self.domain.width)
            return self.domain.cell * math.hypot(row - other_row, column - other_column)
        return float(a != b) if isinstance(self.domain, Categories) else abs(a - b) * self.step

    def check_distance(self, distance: float) -> None:
        if isinstance(self.domain, Categories) and distance != 1.0:
            raise InputError(f"any two categories are at distance 1, so the target's distance must be 1, got {format_number(distance)}.")
        if not self.step * (1.0 - 1e-12) <= distance <= self.diameter * (1.0 + 1e-12):
            unit = f" {self.unit}" if self.unit else ""
            remedy = "; count in smaller cells or bins to hide smaller moves only" if distance < self.step else ""
            raise InputError(
                f"distance must lie between one step, {format_number(self.step)}{unit}, and the diameter of {self.domain}, "
                f"{format_number(self.diameter)}{unit}; got {format_number(distance)}{unit}{remedy}."
            )

    def inputs(self, values: Any, step: float, *, clamp: bool = False) -> Inputs:
        """Codes 0 .. cells-1 (row * width + column on a grid)."""
        domain = self.domain
        if clamp and isinstance(domain, Categories):
            raise DomainError("labels have no order, so there is no nearest one to clamp to; correct such values.")
        checked = domain.clamped(values) if clamp else domain.validated(values)
        if isinstance(domain, Grid):
            codes = checked[:, 1] * domain.width + checked[:, 0]
        elif isinstance(domain, Integers | Interval):
            codes = np.clip(np.floor((checked - domain.low) / self.step), 0, self.cells - 1)
        else:
            codes = checked
        return Inputs(self, np.asarray(codes, dtype=np.int64).reshape(-1, 1))

    def answer(self, estimate: Estimate, level: float = 0.95, *, simultaneous: bool = False, method: IntervalMethod = "normal") -> Answer:
        return shares_answer(places_of(self.domain, self.step), estimate, level, simultaneous=simultaneous, method=method)

    def label(self, code: int) -> str:
        """A cell in words."""
        return label_of(places_of(self.domain, self.step), code)

    def __str__(self) -> str:
        words = self.between(self.step)
        return f"histogram over {self.domain}{f' in {words}' if words.startswith('bins') else ''}"
