"""Queries whose answer is a sum of everybody's steps, or that sum divided by the number of people."""

from __future__ import annotations

import math
from abc import abstractmethod
from fractions import Fraction
from typing import ClassVar, Literal

from metricshuffle.errors import InputError
from metricshuffle.numerics.rounding import format_number
from metricshuffle.numerics.types import Floats
from metricshuffle.privacy.target import Target
from metricshuffle.queries.query import Estimate, Query
from metricshuffle.spaces import AnyDomain, Domain, Space


class SummedQuery(Query):
    """Values are counted in steps along one or two axes; the totals of the steps are what a protocol estimates."""

    options: ClassVar[frozenset[str]] = frozenset({"encoding", "padding", "granularity", "transport"})
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
        diameter = self.diameter
        if distance > diameter * (1.0 + 1e-12):
            raise InputError(
                f"distance {format_number(distance)} is beyond the diameter of {self.domain}, {format_number(diameter)}; "
                f"no two values are that far apart, so use at most {format_number(diameter)}."
            )

    def step(self, granularity: float) -> float:
        """Units per step of the whole numbers that are randomized."""
        return 1.0

    def planned_step(self, target: Target, users: int, rounds: int, granularity: float) -> float:
        """The step that a plan for so many people takes."""
        return self.step(granularity)

    def check_new(self) -> None:
        """Raise if no new plan is made of such a query, although old ones can be read."""

    def check_step(self, step: float) -> None:
        """Raise unless values can be counted in steps of that size."""
        if step != self.step(1.0):
            raise InputError(f"values in {self.domain} are counted in steps of {format_number(self.step(1.0))}, not of {step!r}.")

    def grain(self, granularity: float) -> int:
        """How many steps are rounded to one cell of the noise."""
        if granularity != int(granularity) or granularity < 1:
            raise InputError(f"granularity must be a whole number >= 1 for {self.domain}, got {granularity!r}.")
        return int(granularity)

    def grains(self, granularity: float, step: float) -> tuple[int, ...]:
        """The same along each axis, of values that are counted in that step."""
        return (self.grain(granularity),) * self.axes

    @property
    def rounding(self) -> Literal["random"] | None:
        """Whether real values are rounded at random to units, so that promises are about them and not about steps."""
        return None

    @property
    def snapping(self) -> float:
        """How far, in steps, a value may lie from the step it is counted as."""
        return 0.0

    @abstractmethod
    def spans(self, step: float) -> tuple[int, ...]:
        """Largest step on each axis (steps run from 0)."""

    @abstractmethod
    def in_units(self, total: Fraction, axis: int, people: int, step: float) -> Fraction:
        """The answer in units, along an axis, from the total of the steps."""

    def ends_of(self, estimate: Estimate, low: Floats, high: Floats) -> list[tuple[float, float, float]]:
        """Along each axis the answer and both ends of its interval, which lie outside of where they were cut off to doubles."""
        spread = estimate.people * Fraction(self.snapping)
        rows = []
        for axis, totals in enumerate(zip(estimate.totals, low, high, strict=True)):
            exact = [estimate.origin[axis] + Fraction(float(total)) for total in totals]
            exact[1] -= spread
            exact[2] += spread
            value, lower, largest = (self.in_units(total, axis, estimate.people, estimate.step) for total in exact)
            rows.append((float(value), _outside(lower, -math.inf), _outside(largest, math.inf)))
        return rows

    @abstractmethod
    def error_scale(self, people: int, step: float) -> float:
        """How many units of the answer one step of error in a total makes."""

    def error_scales(self, people: int, step: float) -> tuple[float, ...]:
        """The same along each axis."""
        return (self.error_scale(people, step),) * self.axes

    def __str__(self) -> str:
        return f"{self.kind} over {self.domain}"


def _outside(number: Fraction, towards: float) -> float:
    """The nearest double on that side."""
    nearest = float(number)
    inside = Fraction(nearest) < number if towards > 0 else Fraction(nearest) > number
    return math.nextafter(nearest, towards) if inside else nearest
