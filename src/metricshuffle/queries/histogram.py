"""Histograms over labels, whole numbers or bins of a line, cells of a grid, and zones."""

from __future__ import annotations

from typing import ClassVar, Literal

from metricshuffle.estimation.inversion import IntervalMethod
from metricshuffle.numerics.rounding import format_distance
from metricshuffle.queries.cell_query import CellQuery
from metricshuffle.queries.cell_table import places_of, shares_answer
from metricshuffle.queries.query import Answer, Estimate
from metricshuffle.spaces import Domain, Grid, Zones
from metricshuffle.spaces.grid import METRES


class Histogram(CellQuery):
    """Number of people with each label, each whole number, or in each bin, cell or zone.

    Labels are Categories, whole numbers are Integers, cells are those of a Grid. `step` is the
    width of the bins in which numbers are counted: an Interval needs one; without it, whole numbers
    are counted one by one.
    """

    options: ClassVar[frozenset[str]] = frozenset({"floor", "spread"})
    kind: Literal["histogram"] = "histogram"

    # Repeated, because type checkers do not see that pydantic inherits it.
    def __init__(self, domain: Domain, step: float | None = None, **fields: object) -> None:
        super().__init__(domain, step, **fields)

    @property
    def shared(self) -> bool:
        return True

    @property
    def title(self) -> str:
        if isinstance(self.domain, Zones):
            return self.domain.kind
        return "map" if isinstance(self.domain, Grid) else self.kind

    @property
    def measure(self) -> str:
        return "expected error of a share"

    @property
    def error_unit(self) -> str:
        return "% of the people"

    def answer(
        self,
        estimate: Estimate,
        level: float = 0.95,
        *,
        simultaneous: bool = False,
        method: IntervalMethod = "normal",
    ) -> Answer:
        return shares_answer(
            places_of(self.domain, self.step),
            estimate,
            level,
            simultaneous=simultaneous,
            method=method,
        )

    def remarks(self) -> list[str]:
        """For zones, say what a move within a zone and a short move across a border cost."""
        return within_zones(self.domain) if isinstance(self.domain, Zones) else []

    def __str__(self) -> str:
        words = self.between(self.step)
        return f"histogram over {self.domain}{f' in {words}' if words.startswith('bins') else ''}"


def within_zones(zones: Zones, moved: str = "") -> list[str]:
    """Sentence on what a move within a zone, and a short move into another zone, cost."""
    within = "Inside a zone nothing can be seen: all its places send the same report."
    if zones.radius is None:
        return [f"{within} The distance of two zones is that of their points."]
    radius = f"{format_distance(zones.radius / METRES[zones.unit])} {zones.unit}"
    doubled = f"{format_distance(2.0 * zones.radius / METRES[zones.unit])} {zones.unit}"
    of = f" of one of {moved}" if moved else ""
    return [
        f"{within} A move{of} by d into another zone, however small d is, may cost as much as a "
        f"distance of d + {doubled}: places are up to {radius} away from the point that "
        "represents their zone."
    ]
