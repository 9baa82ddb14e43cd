"""Queries whose answer is a sum of people's steps, possibly divided by the number of people."""

from __future__ import annotations

import math
from abc import abstractmethod
from fractions import Fraction
from typing import ClassVar, Literal

from metricshuffle.errors import InputError, argument
from metricshuffle.numerics.rounding import format_exact, format_number, shown_at_least
from metricshuffle.numerics.types import Floats
from metricshuffle.privacy.target import Target
from metricshuffle.queries.query import Estimate, Query
from metricshuffle.spaces import AnyDomain, Domain, Space


class SummedQuery(Query):
    """Base of queries that count values in steps along one or two axes.

    A protocol estimates the totals of the steps.
    """

    options: ClassVar[frozenset[str]] = frozenset(
        {"encoding", "padding", "granularity", "transport"}
    )
    domain: AnyDomain

    @property
    def values_in(self) -> Domain:
        return self.domain

    @property
    def unit(self) -> str:
        return str(getattr(self.domain, "unit", ""))

    @property
    def error_unit(self) -> str:
        return self.unit

    @property
    def diameter(self) -> float:
        return Space.of(self.domain).diameter

    @property
    def axes(self) -> int:
        return 1

    def check_distance(self, distance: float) -> None:
        diameter = shown_at_least(self.diameter)
        if distance > diameter * (1.0 + 1e-12):
            raise InputError(
                f"{argument('distance')} {format_exact(distance)} is beyond the diameter of "
                f"{self.domain}, {format_number(diameter)}",
                remedy="no two values are that far apart, so use at most "
                f"{format_number(diameter)}.",
            )

    def step(self, granularity: float) -> float:
        """Units per step of the whole numbers that are randomized."""
        return 1.0

    def planned_step(self, target: Target, users: int, rounds: int, granularity: float) -> float:
        """Step that a plan for this number of users and rounds uses."""
        return self.step(granularity)

    def check_new(self) -> None:
        """Raise if such a query can be read from old plans but no longer planned."""

    def check_step(self, step: float) -> None:
        """Raise unless values can be counted in steps of this size."""
        if step != self.step(1.0):
            raise InputError(
                f"values in {self.domain} are counted in steps of "
                f"{format_number(self.step(1.0))}, not of {step!r}.",
                field="step",
                remedy="Use the step that the plan states.",
            )

    def grain(self, granularity: float) -> int:
        """Number of steps that are rounded to one cell of the noise."""
        if granularity != int(granularity) or granularity < 1:
            raise InputError(
                f"{argument('granularity')} must be a whole number >= 1 for {self.domain}, "
                f"got {granularity!r}."
            )
        return int(granularity)

    def grains(self, granularity: float, step: float) -> tuple[int, ...]:
        """Number of steps per cell of the noise on each axis, for values counted in this step."""
        return (self.grain(granularity),) * self.axes

    @property
    def rounding(self) -> Literal["random"] | None:
        """ "random" if real values are rounded at random to units, else None.

        With random rounding, guarantees apply to the values and not to steps.
        """
        return None

    @property
    def snapping(self) -> float:
        """Largest distance, in steps, of a value from the step it is counted as."""
        return 0.0

    @abstractmethod
    def spans(self, step: float) -> tuple[int, ...]:
        """Largest step on each axis (steps start at 0)."""

    @abstractmethod
    def in_units(self, total: Fraction, axis: int, people: int, step: float) -> Fraction:
        """Convert the total of the steps along an axis to the answer in units."""

    def ends_of(
        self, estimate: Estimate, low: Floats, high: Floats
    ) -> list[tuple[float, float, float]]:
        """Answer and ends of its interval on each axis; ends are rounded outwards to doubles."""
        spread = estimate.people * Fraction(self.snapping)
        rows = []
        for axis, totals in enumerate(zip(estimate.totals, low, high, strict=True)):
            exact = [estimate.origin[axis] + Fraction(float(total)) for total in totals]
            exact[1] -= spread
            exact[2] += spread
            value, lower, largest = (
                self.in_units(total, axis, estimate.people, estimate.step) for total in exact
            )
            rows.append((float(value), _outside(lower, -math.inf), _outside(largest, math.inf)))
        return rows

    @abstractmethod
    def error_scale(self, people: int, step: float) -> float:
        """Units of the answer per step of error in a total."""

    def error_scales(self, people: int, step: float) -> tuple[float, ...]:
        """Same as `error_scale`, for each axis."""
        return (self.error_scale(people, step),) * self.axes

    def __str__(self) -> str:
        return f"{self.kind} over {self.domain}"


def _outside(number: Fraction, towards: float) -> float:
    """Round to a double in the direction of `towards`."""
    nearest = float(number)
    inside = Fraction(nearest) < number if towards > 0 else Fraction(nearest) > number
    return math.nextafter(nearest, towards) if inside else nearest
