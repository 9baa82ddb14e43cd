"""Space: a domain of values with a metric, and the largest distances in it."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from pydantic import model_validator

from metricshuffle.errors import InputError, NotCertified, owner
from metricshuffle.models import FrozenModel
from metricshuffle.spaces.chord import Chord
from metricshuffle.spaces.domains import AnyDomain, Categories, Domain
from metricshuffle.spaces.grid import Grid
from metricshuffle.spaces.metrics import Absolute, AnyMetric, Discrete, Euclidean, Metric
from metricshuffle.spaces.zone_pairs import ChordSum, ZonePairs
from metricshuffle.spaces.zones import Zones

# Points over which a metric without closed forms is searched: for one row, and for all pairs.
MAX_POINTS = 1_000_000
MAX_POINTS_PAIRED = 5_000


def default_metric(domain: Domain) -> Metric:
    """Usual metric of a domain.

    Absolute on numbers, Euclidean on a grid, Chord on zones, ChordSum on pairs of zones, Discrete
    on labels.
    """
    if isinstance(domain, Grid):
        return Euclidean()
    if isinstance(domain, Zones):
        return Chord(domain.unit)
    if isinstance(domain, ZonePairs):
        return ChordSum(domain.unit)
    return Discrete() if isinstance(domain, Categories) else Absolute()


class Space(FrozenModel):
    """Domain with a metric (the usual one by default); distances are in `unit`."""

    domain: AnyDomain
    metric: AnyMetric
    unit: str

    def __init__(
        self,
        domain: Domain,
        metric: Metric | None = None,
        unit: str | None = None,
        **fields: object,
    ) -> None:
        known_domain = Domain.of_kind(domain)
        if not isinstance(known_domain, Domain):
            raise InputError(
                f"{owner('Space')}domain must be Integers, Interval, Grid or Categories, "
                f"got {type(domain).__name__}."
            )
        chosen = default_metric(known_domain) if metric is None else Metric.of_kind(metric)
        if not isinstance(chosen, Metric):
            raise InputError(
                f"{owner('Space')}metric must be a Metric, got {type(metric).__name__}; "
                "subclass Metric for one of your own."
            )
        named = chosen.unit_of(getattr(known_domain, "unit", "")) if unit is None else unit
        FrozenModel.__init__(self, domain=known_domain, metric=chosen, unit=named, **fields)

    @classmethod
    def of(cls, domain: Domain | Space) -> Space:
        """Return a space unchanged, or a domain with its usual metric."""
        return domain if isinstance(domain, Space) else cls(domain)

    @model_validator(mode="after")
    def _metric_fits(self) -> Self:
        kind = self.domain.points_are
        name = type(self.metric).__name__
        if kind not in self.metric.measures:
            hint = (
                "; a map is a Grid.from_box with the Euclidean metric"
                if "places" in self.metric.measures
                else ""
            )
            measured = " or ".join(sorted(self.metric.measures))
            raise ValueError(
                f"metric {name} measures {measured}, but the points of the domain are {kind}{hint}"
            )
        if self.metric.size is not None and self.metric.size != self.domain.size:
            raise ValueError(
                f"metric {name} is defined on {self.metric.size:,} points, but the domain "
                f"has {self.domain.size:,}"
            )
        return self

    def distance(self, x: object, y: object) -> float:
        """Distance between two values, in `unit`."""
        return float(self._between(self.domain.validated([x]), self.domain.validated([y]))[0, 0])

    def _between(self, values_a: Any, values_b: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
        return self.metric.pairwise(self.domain.points(values_a), self.domain.points(values_b))

    def _farthest(self, most: int) -> Any:
        """Values that include the one farthest from any given value."""
        if self.metric.monotone:
            return self.domain.extremes()
        size = self.domain.size
        if size is None or size > most:
            many = "infinitely many" if size is None else f"{size:,}"
            raise NotCertified(
                f"the farthest point under {type(self.metric).__name__} is found by "
                f"looking at up to {most:,} points, "
                f"but {self.domain} has {many}; let the metric say that it is `monotone`, if it is."
            )
        return self.domain.all_values()

    def reach(self, x: object) -> float:
        """Largest distance from x to any point of the space, in `unit`."""
        return float(self._between(self.domain.validated([x]), self._farthest(MAX_POINTS)).max())

    @property
    def diameter(self) -> float:
        """Largest distance between two points, in `unit`; an upper bound if they are too many."""
        if type(self.metric) is Discrete and self.domain.size is not None:
            return float(self.domain.size > 1)
        bound = self.metric.diameter_bound
        if bound is not None and (self.domain.size or 0) > MAX_POINTS_PAIRED:
            return bound
        values = self._farthest(MAX_POINTS_PAIRED)
        return max(
            float(self._between(values[start : start + 256], values).max())
            for start in range(0, len(values), 256)
        )
