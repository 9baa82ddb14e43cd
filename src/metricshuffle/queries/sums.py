"""Queries whose answer is a sum of everybody's steps, or that sum divided by the number of people."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import numpy as np

from metricshuffle.errors import InputError
from metricshuffle.numerics.rounding import plain
from metricshuffle.numerics.types import Floats
from metricshuffle.queries.base import Query
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
                f"distance {plain(distance)} is beyond the diameter of {self.domain}, {plain(diameter)}; "
                f"no two values are that far apart, so use at most {plain(diameter)}."
            )

    def step(self, granularity: float) -> float:
        """Units per step of the whole numbers that are randomized."""
        return 1.0

    def check_step(self, step: float) -> None:
        """Raise unless values can be counted in steps of that size."""
        if step != self.step(1.0):
            raise InputError(f"values in {self.domain} are counted in steps of {plain(self.step(1.0))}, not of {step!r}.")

    def grain(self, granularity: float) -> int:
        """How many steps are rounded to one cell of the noise."""
        if granularity != int(granularity) or granularity < 1:
            raise InputError(f"granularity must be a whole number >= 1 for {self.domain}, got {granularity!r}.")
        return int(granularity)

    @property
    def snapping(self) -> float:
        """How far, in steps, a value may lie from the step it is counted as."""
        return 0.0

    @abstractmethod
    def spans(self, step: float) -> tuple[int, ...]:
        """Largest step on each axis (steps run from 0)."""

    @abstractmethod
    def in_units(self, totals: Floats, people: int, step: float) -> Floats:
        """The answer in units from the totals of the steps."""

    @abstractmethod
    def error_scale(self, people: int, step: float) -> float:
        """How many units of the answer one step of error in a total makes."""

    def spread(self, totals: Floats, people: int) -> Floats:
        """How far totals may be off because values are counted in steps: all perhaps to the same side."""
        return np.full(totals.shape, people * self.snapping)

    def __str__(self) -> str:
        return f"{self.kind} over {self.domain}"
