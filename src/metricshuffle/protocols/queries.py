"""What is asked of the people: a sum, a mean, a centroid, and the steps their values are counted in."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, SerializeAsAny

from metricshuffle.declared import Kinded
from metricshuffle.errors import InputError
from metricshuffle.spaces import AnyDomain, Domain, Grid, Integers, Interval, Space

# A real number is first rounded to this fraction of the granularity, so that everything after is exact integers.
STEPS_PER_GRAIN = 4096

Steps = NDArray[np.int64]


class Query(Kinded, ABC):
    """Base of the queries; a query says how values become whole steps and how totals become an answer."""

    kinds: ClassVar[dict[str, type[Kinded]]] = {}
    kind: str
    domain: AnyDomain

    @property
    def axes(self) -> int:
        return 1

    @property
    def unit(self) -> str:
        return str(getattr(self.domain, "unit", ""))

    @property
    def diameter(self) -> float:
        """Largest distance between two values, in units."""
        return Space.of(self.domain).diameter

    @property
    def between(self) -> str:
        """What distances are measured between."""
        return "values"

    def step(self, granularity: float) -> float:
        """Units per step of the integers that are randomized."""
        return 1.0

    def grain(self, granularity: float) -> int:
        """How many steps are rounded to one cell of the noise."""
        if granularity != int(granularity) or granularity < 1:
            raise InputError(f"granularity must be a whole number >= 1 for {self.domain}, got {granularity!r}.")
        return int(granularity)

    def snapping(self, granularity: float) -> float:
        """How far, in steps, a value may lie from the step it is counted as."""
        return 0.0

    @abstractmethod
    def spans(self, granularity: float) -> tuple[int, ...]:
        """Largest step on each axis (steps run from 0)."""

    @abstractmethod
    def steps(self, values: Any, granularity: float, *, clamp: bool = False) -> Steps:
        """Validated values as whole steps, one row a person, one column an axis."""

    @abstractmethod
    def answer(self, totals: NDArray[np.float64], reports: int, granularity: float) -> NDArray[np.float64]:
        """The query's answer from the totals of the steps."""

    @abstractmethod
    def error_scale(self, reports: int, granularity: float) -> float:
        """How many query units one step of error in a total makes."""


class _OnNumbers(Query):
    """Sum and mean: numbers from low to high."""

    @property
    def _ends(self) -> tuple[float, float]:
        if not isinstance(self.domain, Integers | Interval):
            raise InputError(f"{type(self).__name__} needs Integers or an Interval, got {type(self.domain).__name__}.")
        return self.domain.low, self.domain.high

    def __init__(self, domain: Domain, **rest: Any) -> None:
        found = Domain.of_kind(domain)
        if not isinstance(found, Integers | Interval):
            raise InputError(f"{type(self).__name__} needs Integers or an Interval, got {type(found).__name__}.")
        super().__init__(domain=found, **rest)

    @property
    def between(self) -> str:
        return "values" if isinstance(self.domain, Integers) else "values rounded to a fine grid"

    def step(self, granularity: float) -> float:
        return 1.0 if isinstance(self.domain, Integers) else granularity / STEPS_PER_GRAIN

    def snapping(self, granularity: float) -> float:
        return 0.0 if isinstance(self.domain, Integers) else 0.5

    def grain(self, granularity: float) -> int:
        if isinstance(self.domain, Integers):
            return super().grain(granularity)
        low, high = self._ends
        if not 0.0 < granularity <= high - low:
            raise InputError(
                f"real numbers are rounded at random before noise is added: give a granularity between 0 and the length of {self.domain}, "
                f"got {granularity!r}."
            )
        return STEPS_PER_GRAIN

    def spans(self, granularity: float) -> tuple[int, ...]:
        low, high = self._ends
        return (math.ceil((high - low) / self.step(granularity) - 1e-9),)

    def steps(self, values: Any, granularity: float, *, clamp: bool = False) -> Steps:
        checked = self.domain.clamped(values) if clamp else self.domain.validated(values)
        offset = checked - self._ends[0]
        if isinstance(self.domain, Interval):
            offset = np.clip(np.rint(offset / self.step(granularity)), 0, self.spans(granularity)[0])
        return np.asarray(offset, dtype=np.int64).reshape(-1, 1)


class Sum(_OnNumbers):
    """The sum of everybody's number."""

    kind: Literal["sum"] = "sum"

    def __init__(self, domain: Domain, **rest: Any) -> None:  # again, because type checkers do not see pydantic inherit it
        super().__init__(domain, **rest)

    def answer(self, totals: NDArray[np.float64], reports: int, granularity: float) -> NDArray[np.float64]:
        return totals * self.step(granularity) + reports * self._ends[0]

    def error_scale(self, reports: int, granularity: float) -> float:
        return self.step(granularity)


class Mean(_OnNumbers):
    """The mean of everybody's number (the number of reports is public)."""

    kind: Literal["mean"] = "mean"

    def __init__(self, domain: Domain, **rest: Any) -> None:  # again, because type checkers do not see pydantic inherit it
        super().__init__(domain, **rest)

    def answer(self, totals: NDArray[np.float64], reports: int, granularity: float) -> NDArray[np.float64]:
        return totals * (self.step(granularity) / reports) + self._ends[0]

    def error_scale(self, reports: int, granularity: float) -> float:
        return self.step(granularity) / reports


class Centroid(Query):
    """The mean place of people on a grid; both coordinates get independent noise and are accounted together."""

    kind: Literal["centroid"] = "centroid"

    def __init__(self, domain: Domain, **rest: Any) -> None:
        found = Domain.of_kind(domain)
        if not isinstance(found, Grid):
            raise InputError(f"Centroid needs a Grid, got {type(found).__name__}.")
        if min(found.width, found.height) < 2:
            size = f"{found.width} x {found.height}"
            raise InputError(f"Centroid needs at least 2 x 2 cells, got {size}; on one row ask for the Mean of Integers.")
        super().__init__(domain=found, **rest)

    @property
    def _grid(self) -> Grid:
        if not isinstance(self.domain, Grid):
            raise InputError(f"Centroid needs a Grid, got {type(self.domain).__name__}.")
        return self.domain

    @property
    def axes(self) -> int:
        return 2

    @property
    def between(self) -> str:
        return "cells"

    def step(self, granularity: float) -> float:
        return self._grid.cell

    def grain(self, granularity: float) -> int:
        if granularity != 1:
            raise InputError(f"a centroid takes no granularity (got {granularity!r}); choose a larger cell instead.")
        return 1

    def spans(self, granularity: float) -> tuple[int, ...]:
        return (self._grid.width - 1, self._grid.height - 1)

    def steps(self, values: Any, granularity: float, *, clamp: bool = False) -> Steps:
        checked = self.domain.clamped(values) if clamp else self.domain.validated(values)
        return np.asarray(checked, dtype=np.int64).reshape(-1, 2)

    def answer(self, totals: NDArray[np.float64], reports: int, granularity: float) -> NDArray[np.float64]:
        return (totals / reports + 0.5) * self.step(granularity)

    def error_scale(self, reports: int, granularity: float) -> float:
        return self.step(granularity) / reports


def _of_kind(value: object) -> object:
    return Query.of_kind(value)


AnyQuery = SerializeAsAny[Annotated[Query, BeforeValidator(_of_kind)]]
"""A field that holds any query and reads it back from JSON by its kind."""
