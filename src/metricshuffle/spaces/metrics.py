"""Metrics: distances between points, callable on two points, with a vectorised `pairwise`.

To define a metric, derive a class with a `kind` and a `pairwise`; run
`metricshuffle.testing.check_metric` on it before you trust a guarantee stated in it.

    class HoursOfDay(Metric):
        kind: Literal["hours-of-day"] = "hours-of-day"

        def pairwise(self, points_a, points_b):
            apart = np.abs(np.subtract.outer(points_a, points_b))
            return np.minimum(apart, 24 - apart)

All distances are doubles: built-in metrics are accurate to a few units in the last place, and an
overflow is an error, never an infinite or a small distance.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import BeforeValidator, SerializeAsAny

from metricshuffle.errors import InputError
from metricshuffle.models import FrozenModel, Positive, TaggedModel
from metricshuffle.numerics.types import Floats
from metricshuffle.spaces.array_input import as_source, finite_points, raise_domain_error, width_of

# What the points of a space are: numbers on a line, pairs in a plane, codes of labels, or
# (latitude, longitude).
ANYTHING = frozenset({"numbers", "plane", "codes", "places"})

# Mean radius of the Earth (IUGG), in metres.
EARTH_RADIUS = 6_371_008.8


class Metric(TaggedModel, ABC):
    """Distance: zero between a point and itself, symmetric, with the triangle inequality."""

    kinds: ClassVar[dict[str, type[TaggedModel]]] = {}

    @abstractmethod
    def pairwise(self, points_a: Any, points_b: Any) -> Floats:
        """Distances as an array of shape (len(points_a), len(points_b))."""

    def __call__(self, x: Any, y: Any) -> float:
        return float(self.pairwise([x], [y])[0, 0])

    @property
    def measures(self) -> frozenset[str]:
        """Kinds of points it measures, out of "numbers", "plane", "codes" and "places"."""
        return ANYTHING

    @property
    def monotone(self) -> bool:
        """Whether the distance never falls when the points move apart along every axis.

        Then the farthest point of a line or a grid is an end or a corner. Other metrics are
        searched point by point.
        """
        return False

    @property
    def size(self) -> int | None:
        """Number of points it is defined on; None if that is not limited."""
        return None

    @property
    def diameter_bound(self) -> float | None:
        """Upper bound on the largest distance, for many points of known positions; else None."""
        return None

    @property
    def nearest(self) -> float | None:
        """Smallest distance above 0, or 0 if all points coincide; None if not known."""
        return None

    def unit_of(self, unit: str) -> str:
        """Unit of the distance between points that are given in `unit`."""
        return ""


AnyMetric = Annotated[SerializeAsAny[Metric], BeforeValidator(Metric.of_kind)]
"""Type of a model field that holds any metric, built-in or the user's own."""


def representable(distances: Floats) -> Floats:
    """Return the distances; raise InputError if one of them has overflowed."""
    if not np.isfinite(distances).all():
        raise InputError(
            "two points are too far apart for floating point: their distance exceeds "
            "1.8e308; rescale the points."
        )
    return distances


def _axes(points_a: object, points_b: object) -> list[Floats]:
    """Absolute difference along each axis; points are numbers or tuples of one length."""
    width = width_of(points_a)
    first = finite_points(points_a, width)
    second = finite_points(points_b, width)
    columns_a = np.atleast_2d(first.T)
    columns_b = np.atleast_2d(second.T)
    with np.errstate(over="ignore"):
        return [
            np.abs(np.subtract.outer(left, right))
            for left, right in zip(columns_a, columns_b, strict=True)
        ]


class _Norm(Metric):
    """Metric of a line or a plane that comes from a norm."""

    @property
    def measures(self) -> frozenset[str]:
        return frozenset({"numbers", "plane"})

    @property
    def monotone(self) -> bool:
        return True

    def unit_of(self, unit: str) -> str:
        return unit


class Absolute(_Norm):
    """|x - y| on numbers."""

    kind: Literal["absolute"] = "absolute"

    @property
    def measures(self) -> frozenset[str]:
        return frozenset({"numbers"})

    def pairwise(self, points_a: object, points_b: object) -> Floats:
        if width_of(points_a) is not None:
            raise InputError(
                "Absolute measures numbers, got points with several coordinates; use "
                "Euclidean or Manhattan."
            )
        return representable(_axes(points_a, points_b)[0])


class Manhattan(_Norm):
    """Sum of the absolute differences along the axes."""

    kind: Literal["manhattan"] = "manhattan"

    def pairwise(self, points_a: object, points_b: object) -> Floats:
        with np.errstate(over="ignore"):
            return representable(np.sum(_axes(points_a, points_b), axis=0))


class Euclidean(_Norm):
    """Straight-line distance, computed without intermediate overflow or underflow."""

    kind: Literal["euclidean"] = "euclidean"

    def pairwise(self, points_a: object, points_b: object) -> Floats:
        total, *others = _axes(points_a, points_b)
        with np.errstate(over="ignore"):
            for axis in others:
                total = np.hypot(total, axis)
        return representable(total)


class Circle(Metric):
    """Shorter arc of a circle of the given circumference: `Circle(24)` is 2 between hours 23 and 1.

    Numbers a whole circumference apart are the same point.
    """

    kind: Literal["circle"] = "circle"
    circumference: Positive

    def __init__(self, circumference: float, **fields: object) -> None:
        FrozenModel.__init__(self, circumference=circumference, **fields)

    @property
    def measures(self) -> frozenset[str]:
        return frozenset({"numbers"})

    def unit_of(self, unit: str) -> str:
        return unit

    def pairwise(self, points_a: object, points_b: object) -> Floats:
        if width_of(points_a) is not None:
            raise InputError("Circle measures numbers, got points with several coordinates.")
        first = finite_points(points_a, None)
        second = finite_points(points_b, None)
        with np.errstate(over="ignore"):
            apart = representable(np.abs(np.subtract.outer(first, second)))
        around = np.fmod(apart, self.circumference)  # exact
        return np.asarray(np.minimum(around, self.circumference - around), dtype=np.float64)


def from_norm(metric: Metric) -> bool:
    """Whether distances are exactly those of a norm, so that no triangle is open beyond rounding.

    False for subclasses with their own `pairwise`.
    """
    return any(type(metric).pairwise is kind.pairwise for kind in (Absolute, Manhattan, Euclidean))


class Haversine(Metric):
    """Great-circle distance between (latitude, longitude) pairs in degrees.

    The sphere has a radius of 6371.0088 km.

    Numerics: let s be the haversine of the angle between the places, c = 1 - s, a and b the
    differences of latitude and longitude, m the mean latitude, and k the product of the cosines of
    both latitudes. Both s = sin^2(a/2) + k sin^2(b/2) and c = sin^2(m) + k cos^2(b/2) are computed
    as sums of non-negative terms, and the angle is 2 atan2(sqrt s, sqrt c): no cancellation,
    neither for neighbours nor for antipodes.
    """

    kind: Literal["haversine"] = "haversine"
    unit: Literal["m", "km"] = "km"

    def __init__(self, unit: str = "km", **fields: object) -> None:
        FrozenModel.__init__(self, unit=unit, **fields)

    @property
    def measures(self) -> frozenset[str]:
        return frozenset({"places"})

    def unit_of(self, unit: str) -> str:
        return self.unit

    def pairwise(self, points_a: object, points_b: object) -> Floats:
        (lat_a, lon_a), (lat_b, lon_b) = _places(points_a), _places(points_b)
        turn = np.subtract.outer(lon_a, lon_b)
        turn = np.deg2rad(turn - 360.0 * np.round(turn / 360.0)) / 2
        # cos(90 degrees) is not 0 in floating point, but the pole is one place at every longitude.
        cos_a, cos_b = (
            np.where(np.abs(lat) == 90.0, 0.0, np.cos(np.deg2rad(lat))) for lat in (lat_a, lat_b)
        )
        narrowing = np.sqrt(np.multiply.outer(cos_a, cos_b))
        sine = np.hypot(
            np.sin(np.deg2rad(np.subtract.outer(lat_a, lat_b)) / 2), narrowing * np.sin(turn)
        )
        cosine = np.hypot(
            np.sin(np.deg2rad(np.add.outer(lat_a, lat_b)) / 2), narrowing * np.cos(turn)
        )
        angle: Floats = 2.0 * np.arctan2(sine, cosine)
        return angle * (EARTH_RADIUS if self.unit == "m" else EARTH_RADIUS / 1000)


def _places(values: object) -> Floats:
    points = finite_points(values, 2)
    raise_domain_error(
        as_source(values, 2),
        np.abs(points) > (90.0, 180.0),
        "the places of the Earth",
        lambda _: "is not a latitude within +-90 and a longitude within +-180 degrees",
        "Check the order: latitude comes first.",
    )
    return points.T


class Discrete(Metric):
    """1 between different points, 0 otherwise; points are numbers, tuples of numbers or texts."""

    kind: Literal["discrete"] = "discrete"

    @property
    def monotone(self) -> bool:
        return True

    def pairwise(self, points_a: object, points_b: object) -> Floats:
        if width_of(points_a) is None:
            a = as_source(points_a, None)
            b = as_source(points_b, None)
            if all(isinstance(value, str) for value in (*a, *b)):
                different = np.not_equal.outer(a.astype(object), b.astype(object))
                return np.asarray(different, dtype=np.float64)
        return np.asarray(np.max(_axes(points_a, points_b), axis=0) > 0, dtype=np.float64)
