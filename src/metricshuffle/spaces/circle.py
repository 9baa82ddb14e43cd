"""Numbers on a circle: hours of the day, days of the week, compass directions."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from metricshuffle.errors import InputError
from metricshuffle.models import FrozenModel, Positive
from metricshuffle.numerics.types import Floats
from metricshuffle.spaces.array_input import finite_points, width_of
from metricshuffle.spaces.metrics import Metric, representable


class Circle(Metric):
    """The shorter way round a circle of the given circumference: `Circle(24)` is 2 between the hours 23 and 1.

    Numbers a whole circumference apart are the same point.
    """

    kind: Literal["circle"] = "circle"
    circumference: Positive

    def __init__(self, circumference: float, **fields: Any) -> None:
        FrozenModel.__init__(self, circumference=circumference, **fields)

    @property
    def measures(self) -> frozenset[str]:
        return frozenset({"numbers"})

    def unit_of(self, unit: str) -> str:
        return unit

    def pairwise(self, points_a: Any, points_b: Any) -> Floats:
        if width_of(points_a) is not None:
            raise InputError("Circle measures numbers, got points with several coordinates.")
        first, second = finite_points(points_a, None), finite_points(points_b, None)
        with np.errstate(over="ignore"):
            apart = representable(np.abs(np.subtract.outer(first, second)))
        around = np.fmod(apart, self.circumference)  # exact
        return np.asarray(np.minimum(around, self.circumference - around), dtype=np.float64)
