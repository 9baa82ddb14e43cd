"""Metrics derived from other metrics: scaled, capped, or the maximum of several."""

from __future__ import annotations

from typing import Literal, Self

import numpy as np
from pydantic import model_validator

from metricshuffle.models import FrozenModel, Positive
from metricshuffle.numerics.types import Floats
from metricshuffle.spaces.metrics import ANYTHING, AnyMetric, Metric, representable


class _DerivedMetric(Metric):
    """Metric that changes the distances of another and keeps its points."""

    metric: AnyMetric

    @property
    def measures(self) -> frozenset[str]:
        return self.metric.measures

    @property
    def monotone(self) -> bool:
        return self.metric.monotone

    @property
    def size(self) -> int | None:
        return self.metric.size


class Scaled(_DerivedMetric):
    """Metric times a factor > 0, for example metres to kilometres."""

    kind: Literal["scaled"] = "scaled"
    factor: Positive

    def __init__(self, metric: Metric, factor: float, **fields: object) -> None:
        FrozenModel.__init__(self, metric=metric, factor=factor, **fields)

    def pairwise(self, points_a: object, points_b: object) -> Floats:
        with np.errstate(over="ignore"):
            return representable(self.factor * self.metric.pairwise(points_a, points_b))


class Threshold(_DerivedMetric):
    """Metric capped at `cap` > 0: larger distances count as `cap`."""

    kind: Literal["threshold"] = "threshold"
    cap: Positive

    def __init__(self, metric: Metric, cap: float, **fields: object) -> None:
        FrozenModel.__init__(self, metric=metric, cap=cap, **fields)

    def unit_of(self, unit: str) -> str:
        return self.metric.unit_of(unit)

    def pairwise(self, points_a: object, points_b: object) -> Floats:
        return np.minimum(self.metric.pairwise(points_a, points_b), self.cap)


class Maximum(Metric):
    """Largest of several metrics on the same points."""

    kind: Literal["maximum"] = "maximum"
    metrics: tuple[AnyMetric, ...]

    def __init__(self, metrics: object, **fields: object) -> None:
        FrozenModel.__init__(self, metrics=metrics, **fields)

    @model_validator(mode="after")
    def _on_the_same_points(self) -> Self:
        if not self.metrics:
            raise ValueError("metrics must name at least one metric")
        sizes = {metric.size for metric in self.metrics} - {None}
        if not self.measures or len(sizes) > 1:
            raise ValueError(
                "metrics must all measure the same kind of points, and matrices must have one size"
            )
        return self

    @property
    def measures(self) -> frozenset[str]:
        return ANYTHING.intersection(*(metric.measures for metric in self.metrics))

    @property
    def monotone(self) -> bool:
        return all(metric.monotone for metric in self.metrics)

    @property
    def size(self) -> int | None:
        return next((metric.size for metric in self.metrics if metric.size is not None), None)

    def unit_of(self, unit: str) -> str:
        units = {metric.unit_of(unit) for metric in self.metrics}
        return units.pop() if len(units) == 1 else ""

    def pairwise(self, points_a: object, points_b: object) -> Floats:
        return np.asarray(
            np.max([metric.pairwise(points_a, points_b) for metric in self.metrics], axis=0),
            dtype=np.float64,
        )
