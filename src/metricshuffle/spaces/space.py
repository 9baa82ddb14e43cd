"""A domain with a metric."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from pydantic import model_validator

from metricshuffle.errors import InputError, NotCertified
from metricshuffle.models import FrozenModel
from metricshuffle.spaces.domains import AnyDomain, Categories, Domain
from metricshuffle.spaces.grid import Grid
from metricshuffle.spaces.metrics import Absolute, AnyMetric, Discrete, Euclidean, Metric

# How many points a metric without closed forms is searched over: one row, and all pairs.
MAX_POINTS = 1_000_000
MAX_POINTS_PAIRED = 5_000


def default_metric(domain: Domain) -> Metric:
    """Absolute on numbers, Euclidean on a grid, discrete on labels."""
    if isinstance(domain, Grid):
        return Euclidean()
    return Discrete() if isinstance(domain, Categories) else Absolute()


class Space(FrozenModel):
    """Values with distances in `unit`; without a metric, the usual one of the domain."""

    domain: AnyDomain
    metric: AnyMetric
    unit: str

    def __init__(self, domain: Domain, metric: Metric | None = None, unit: str | None = None, **fields: Any) -> None:
        known_domain = Domain.of_kind(domain)
        if not isinstance(known_domain, Domain):
            raise InputError(f"Space: domain must be Integers, Interval, Grid or Categories, got {type(domain).__name__}.")
        chosen = default_metric(known_domain) if metric is None else Metric.of_kind(metric)
        if not isinstance(chosen, Metric):
            raise InputError(f"Space: metric must be a Metric, got {type(metric).__name__}; subclass Metric for one of your own.")
        named = chosen.unit_of(getattr(known_domain, "unit", "")) if unit is None else unit
        FrozenModel.__init__(self, domain=known_domain, metric=chosen, unit=named, **fields)

    @classmethod
    def of(cls, domain: Domain | Space) -> Space:
        """A space as it is, or a domain with its usual metric."""
        return domain if isinstance(domain, Space) else cls(domain)

    @model_validator(mode="after")
    def _metric_fits(self) -> Self:
        kind, name = self.domain.points_are, type(self.metric).__name__
        if kind not in self.metric.measures:
            hint = "; a map is a Grid.from_box with the Euclidean metric" if "places" in self.metric.measures else ""
            measured = " or ".join(sorted(self.metric.measures))
            raise ValueError(f"metric {name} measures {measured}, but the points of the domain are {kind}{hint}")
        if self.metric.size is not None and self.metric.size != self.domain.size:
            raise ValueError(f"metric {name} is defined on {self.metric.size:,} points, but the domain has {self.domain.size:,}")
        return self

    def distance(self, x: Any, y: Any) -> float:
        """The distance between two values, in `unit`."""
        return float(self._between(self.domain.validated([x]), self.domain.validated([y]))[0, 0])

    def _between(self, values_a: Any, values_b: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
        return self.metric.pairwise(self.domain.points(values_a), self.domain.points(values_b))

    def _farthest(self, most: int) -> Any:
        """Values among which the farthest from any value is found."""
        if self.metric.monotone:
            return self.domain.extremes()
        size = self.domain.size
        if size is None or size > most:
            many = "infinitely many" if size is None else f"{size:,}"
            raise NotCertified(
                f"the farthest point under {type(self.metric).__name__} is found by looking at up to {most:,} points, "
                f"but {self.domain} has {many}; let the metric say that it is `monotone`, if it is."
            )
        return self.domain.all_values()

    def reach(self, x: Any) -> float:
        """The largest distance from x to any point of the space, in `unit`."""
        return float(self._between(self.domain.validated([x]), self._farthest(MAX_POINTS)).max())

    @property
    def diameter(self) -> float:
        """The largest distance between any two points, in `unit`."""
        values = self._farthest(MAX_POINTS_PAIRED)
        return max(float(self._between(values[start : start + 256], values).max()) for start in range(0, len(values), 256))
