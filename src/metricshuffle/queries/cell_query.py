"""Queries on values that lie in one of finitely many cells: labels, bins of a line, grid cells."""

from __future__ import annotations

import math
from functools import cached_property
from typing import ClassVar, Self

import numpy as np
from pydantic import model_validator

from metricshuffle.accounting.shuffling.geometric_blanket import LARGEST_SPAN
from metricshuffle.errors import DomainError, InputError, argument
from metricshuffle.models import FrozenModel, Positive
from metricshuffle.numerics.rounding import format_exact, format_number, shown_at_least
from metricshuffle.queries.cell_table import bins_of, label_of, places_of
from metricshuffle.queries.centroid import STRAIGHT_LINE_TEXT
from metricshuffle.queries.query import Inputs, Query
from metricshuffle.spaces import (
    Absolute,
    AnyDomain,
    Categories,
    Domain,
    Grid,
    Integers,
    Interval,
    Scaled,
    Space,
    ZonePairs,
    Zones,
)
from metricshuffle.spaces.zones import MAX_ZONES

MAX_CELLS = 2**16
MAX_LABELS = 2**20
"""Largest number of labels; beyond 4,096 of them, only dummies of a shuffler hide them."""
ZONE_DISTANCE_TEXT = "points that represent zones, on the ground"
TRIP_DISTANCE_TEXT = f"{ZONE_DISTANCE_TEXT}, added up over both ends of a trip"


class CellQuery(Query):
    """Base of queries in which a value counts by the label, bin or cell that it lies in.

    `step` is the width of the bins in which numbers are counted: an Interval needs one; without it,
    whole numbers are counted one by one.
    """

    domains: ClassVar[tuple[type[Domain], ...]] = (Categories, Integers, Interval, Grid, Zones)
    domain_words: ClassVar[str] = "Categories, Integers, an Interval, a Grid or Zones"
    max_bins: ClassVar[int] = LARGEST_SPAN
    noun: ClassVar[str] = "a histogram"
    """The query in sentences, with its article."""
    domain: AnyDomain
    step: Positive

    def __init__(self, domain: Domain, step: float | None = None, **fields: object) -> None:
        checked_domain = Domain.of_kind(domain)
        name = type(self).__name__
        if not isinstance(checked_domain, self.domains):
            raise InputError(
                f"{name} needs {self.domain_words}, got {type(checked_domain).__name__}.",
                field="domain",
            )
        if isinstance(checked_domain, Interval) and step is None:
            raise InputError(
                f"a {name} over {checked_domain} needs a {argument('step')}, the width of its bins."
            )
        usual = _usual_step(checked_domain)
        FrozenModel.__init__(
            self, domain=checked_domain, step=usual if step is None else step, **fields
        )

    @model_validator(mode="after")
    def _has_cells(self) -> Self:
        domain = self.domain
        if isinstance(domain, Integers) and self.step != int(self.step):
            raise InputError(
                f"{argument('step')} must be a whole number for {domain}, got {self.step:g}"
            )
        usual = _usual_step(domain)
        # The nearest distance of zones differs by rounding on other machines, and may be too small.
        zoned = isinstance(domain, Zones | ZonePairs)
        least = usual * (1.0 - 1e-6) if zoned else usual
        is_usual = least <= self.step <= usual * (1.0 + (1e-12 if zoned else 0.0))
        if isinstance(domain, Categories | Grid | Zones | ZonePairs) and not is_usual:
            raise InputError(
                f"{argument('step')} is for numbers only: labels are at distance 1, and "
                "cells and zones have their own size",
                remedy="leave it out",
            )
        max_cells = self.max_bins
        if isinstance(domain, Categories):
            max_cells = MAX_LABELS
        if isinstance(domain, Grid | ZonePairs):
            max_cells = MAX_CELLS
        if isinstance(domain, Zones):
            max_cells = MAX_ZONES
        if not 2 <= self.cells <= max_cells:
            remedy = (
                "merge values into fewer cells" if self.cells > max_cells else "choose smaller ones"
            )
            raise InputError(
                f"{self.noun} needs 2 to {max_cells:,} values, not {self.cells:,} ({domain})",
                field="cell" if isinstance(domain, Grid) else "step",
                remedy=remedy,
            )
        if isinstance(domain, Grid) and min(domain.width, domain.height) < 2:
            raise InputError(
                f"{self.noun} needs at least 2 x 2 cells, got {domain.width} x {domain.height}",
                field="width" if domain.width < 2 else "height",
                remedy="one row is a line of Integers",
            )
        return self

    @property
    def cells(self) -> int:
        """Number of cells, bins or labels."""
        if isinstance(self.domain, Integers | Interval):
            return bins_of(self.domain, self.step)
        return int(self.domain.size or 0)

    @property
    def values_in(self) -> Domain:
        return self.domain

    @cached_property
    def points(self) -> Space:
        """The cells in the order of their codes; bins are whole numbers, a step apart."""
        if isinstance(self.domain, Grid | Categories | Zones | ZonePairs):
            return Space.of(self.domain)
        return line_space(self.cells, self.step, self.unit)

    @property
    def unit(self) -> str:
        return str(getattr(self.domain, "unit", ""))

    @property
    def part(self) -> str:
        """Name of what people are counted in."""
        if isinstance(self.domain, ZonePairs):
            return "pair of zones"
        return "zone" if isinstance(self.domain, Zones) else "cell"

    def between(self, step: float) -> str:
        if isinstance(self.domain, Grid):
            return STRAIGHT_LINE_TEXT
        if isinstance(self.domain, Zones):
            return ZONE_DISTANCE_TEXT
        if isinstance(self.domain, ZonePairs):
            return TRIP_DISTANCE_TEXT
        binned = isinstance(self.domain, Interval) or (
            isinstance(self.domain, Integers) and self.step > 1
        )
        return f"bins of {format_number(self.step)}" if binned else "values"

    @property
    def diameter(self) -> float:
        if isinstance(self.domain, Integers | Interval):
            return (self.cells - 1) * self.step
        if isinstance(self.domain, Zones | ZonePairs):
            return self.domain.diameter
        return Space.of(self.domain).diameter

    def distance(self, a: int, b: int) -> float:
        """Distance between two cells, given by their codes, in units."""
        if isinstance(self.domain, Grid):
            (row, column), (other_row, other_column) = (
                divmod(a, self.domain.width),
                divmod(b, self.domain.width),
            )
            return self.domain.cell * math.hypot(row - other_row, column - other_column)
        if isinstance(self.domain, Zones):
            return Space.of(self.domain).distance(self.domain.ids[a], self.domain.ids[b])
        if isinstance(self.domain, ZonePairs):
            return Space.of(self.domain).distance(self.domain.names(a), self.domain.names(b))
        return float(a != b) if isinstance(self.domain, Categories) else abs(a - b) * self.step

    def check_distance(self, distance: float) -> None:
        if isinstance(self.domain, Categories) and distance != 1.0:
            raise InputError(
                "any two categories are at distance 1, so the target's distance must be "
                f"1, got {format_number(distance)}.",
                field="distance",
            )
        domain = self.domain
        zoned = isinstance(domain, Zones | ZonePairs)
        # The step of zones is a little less than their smallest distance, so it covers no move.
        least = float(domain.nearest.min()) if isinstance(domain, Zones | ZonePairs) else self.step
        smallest, largest = shown_at_least(least), shown_at_least(self.diameter)
        if not least * (1.0 - 1e-12) <= distance <= largest * (1.0 + 1e-12):
            unit = f" {self.unit}" if self.unit else ""
            parts = "zones" if zoned else "cells or bins"
            remedy = (
                f"use smaller {parts} to protect only smaller moves." if distance < least else ""
            )
            step_text = "the nearest two zones" if zoned else "one step"
            raise InputError(
                f"{argument('distance')} must lie between {step_text}, "
                f"{format_number(smallest)}{unit}, and the diameter of {self.domain}, "
                f"{format_number(largest)}{unit}; got "
                f"{format_exact(distance)}{unit}.",
                remedy=remedy,
            )

    def inputs(self, values: object, step: float, *, clamp: bool = False) -> Inputs:
        """Codes 0 .. cells-1 of the values (row * width + column on a grid)."""
        domain = self.domain
        if clamp and isinstance(domain, Categories):
            raise DomainError(
                "labels have no order, so there is no nearest one to clamp to",
                field="clamp",
                remedy="correct such values.",
            )
        checked = domain.clamped(values) if clamp else domain.validated(values)
        if isinstance(domain, Grid):
            codes = checked[:, 1] * domain.width + checked[:, 0]
        elif isinstance(domain, Integers | Interval):
            codes = np.clip(np.floor((checked - domain.low) / self.step), 0, self.cells - 1)
        else:
            codes = checked
        return Inputs(self, np.asarray(codes, dtype=np.int64).reshape(-1, 1))

    def label(self, code: int) -> str:
        """Describe a cell in words."""
        return label_of(places_of(self.domain, self.step), code)


def line_space(cells: int, step: float, unit: str) -> Space:
    """Space of the bins of a line: the whole numbers 0, 1, ..., cells - 1, a step apart."""
    metric = Absolute() if step == 1.0 else Scaled(Absolute(), step)
    return Space(Integers(0, cells - 1, unit), metric, unit)


def _usual_step(domain: Domain) -> float:
    """Smallest distance between two different cells, labels or zones."""
    if isinstance(domain, Zones | ZonePairs):
        return float(domain.nearest.min()) * (1.0 - 1e-9)
    return domain.cell if isinstance(domain, Grid) else 1.0
