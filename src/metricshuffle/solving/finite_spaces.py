"""Conversion of spaces to the finite geometries that the solver of local metrics takes."""

from __future__ import annotations

import numpy as np

from metricshuffle.errors import InputError, argument
from metricshuffle.numerics.types import Floats
from metricshuffle.solving.local_metric import LineTarget
from metricshuffle.solving.value_geometry import (
    MAX_CLASSES,
    MAX_LISTED,
    CircleGeometry,
    GridGeometry,
    LineGeometry,
    TableGeometry,
    ValueGeometry,
)
from metricshuffle.spaces import (
    Absolute,
    Categories,
    Circle,
    Domain,
    Euclidean,
    Grid,
    Integers,
    Interval,
    Manhattan,
    Metric,
    Space,
)


def space_of(space: Space | Domain | Metric) -> Space:
    if isinstance(space, Metric):
        if space.size is None:
            raise InputError(
                f"{type(space).__name__} measures any values; say which there are, as "
                f"Space(Integers(..), {type(space).__name__}(..))."
            )
        return Space(Categories([str(code) for code in range(space.size)]), space)
    if not isinstance(space, Space | Domain):
        raise InputError(
            "solve needs a Space, a domain such as Integers or Grid, or a metric of its "
            f"own points, got {type(space).__name__}."
        )
    return Space.of(space)


def shape_of(space: Space, step: float | None = None) -> ValueGeometry:
    """Return the finite geometry of a space, with a closed form where there is one."""
    domain = space.domain
    metric = space.metric
    if isinstance(domain, Integers | Interval):
        return _numbers(domain, metric, step)
    if step is not None:
        raise InputError(
            f"{argument('step')} is for numbers; labels and cells have their own "
            "distances, so leave it out."
        )
    if (
        isinstance(domain, Grid)
        and isinstance(metric, Euclidean | Manhattan)
        and domain.width * domain.height > 1
    ):
        if domain.width * domain.height > MAX_CLASSES:
            raise InputError(
                f"at most {MAX_CLASSES:,} cells can be looked at, but {domain} has "
                f"{domain.width * domain.height:,}; take larger ones."
            )
        return GridGeometry(domain.width, domain.height, domain.cell, isinstance(metric, Manhattan))
    return TableGeometry(_listed(space))


def _numbers(domain: Integers | Interval, metric: Metric, step: float | None) -> ValueGeometry:
    if step is None and isinstance(domain, Interval):
        raise InputError(
            f"{domain} are infinitely many; give a {argument('step')}, and values are low, "
            "low + step, .., high."
        )
    line = LineTarget(
        domain.low, domain.high, 1.0, 1.0, 1.0 if step is None else step
    )  # raises InputError if the step is invalid
    if isinstance(metric, Absolute):
        return LineGeometry(line.steps, line.step)
    if (
        isinstance(metric, Circle)
        and abs(line.step * (line.steps + 1) - metric.circumference) <= 1e-12 * metric.circumference
    ):
        return CircleGeometry(line.steps + 1, line.step)
    if line.steps + 1 > MAX_LISTED:
        raise InputError(
            f"with this metric at most {MAX_LISTED:,} values can be looked at, but there "
            f"are {line.steps + 1:,}."
        )
    points = domain.low + line.step * np.arange(line.steps + 1.0)
    return TableGeometry(_symmetric(metric.pairwise(points, points)))


def _listed(space: Space) -> Floats:
    size = space.domain.size or 0
    if not 2 <= size <= MAX_LISTED:
        raise InputError(
            f"spaces without a closed form need 2 to {MAX_LISTED:,} values, but "
            f"{space.domain} has {size:,}; merge some."
        )
    points = space.domain.points(space.domain.all_values())
    return _symmetric(space.metric.pairwise(points, points))


def _symmetric(table: Floats) -> Floats:
    """Smaller of both directions, which may differ by rounding."""
    return np.minimum(table, table.T)
