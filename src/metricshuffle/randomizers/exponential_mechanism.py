"""Exponential mechanisms on a finite metric: the usual one, and a padded one without a factor 2."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import PlainSerializer, PlainValidator

from metricshuffle.citations import theorem
from metricshuffle.errors import InputError, owner
from metricshuffle.models import FrozenModel, Positive
from metricshuffle.numerics.types import Floats
from metricshuffle.randomizers.channel import Channel
from metricshuffle.randomizers.table_randomizer import TableRandomizer
from metricshuffle.spaces.distance_matrix import Matrix

MIN_PADDING = 1e-8  # relative to the smallest cost


def _metric(values: object) -> Floats:
    distances: Floats = values.distances if isinstance(values, Matrix) else Matrix(values).distances
    if len(distances) < 2:
        raise ValueError("must have at least two points")
    return distances


FiniteMetric = Annotated[
    np.ndarray, PlainValidator(_metric), PlainSerializer(lambda table: table.tolist())
]
"""Distances between points 0 .. m-1, checked for the triangle inequality."""


class ExponentialMechanism(TableRandomizer):
    """Point x is reported as z with probability proportional to e^(-rate d(x, z)/2).

    It is rate * distance private. Reference: McSherry and Talwar 2007, with -d(x, z) as the
    quality. The factor 2 pays for the normaliser, which depends on x.
    """

    kind: Literal["exponential"] = "exponential"
    distances: FiniteMetric
    rate: Positive

    def __init__(self, distances: object, rate: float, **fields: object) -> None:
        FrozenModel.__init__(self, distances=distances, rate=rate, **fields)

    @cached_property
    def channel(self) -> Channel:
        weights = np.exp(-0.5 * self.rate * self.distances)
        return Channel.within(
            weights / weights.sum(axis=1, keepdims=True),
            self.rate * self.distances,
            distances=Matrix.known(self.distances),
        )

    def local_epsilon(self, a: int | None = None, b: int | None = None) -> float:
        return self.channel.local_epsilon(a, b)


class PaddedExponential(TableRandomizer):
    """Point x is reported as z with probability e^(-rate d(x, z))/N, or as "none".

    z is one of the points `kept`; "none" has the remaining probability. Every point has the same
    normaliser N, so ratios attain and never exceed e^(rate d), without a factor of two. The
    report coded len(kept) is "none". If `kept` omits points, a histogram cannot be estimated.
    """

    kind: Literal["padded-exponential"] = "padded-exponential"
    distances: FiniteMetric
    rate: Positive
    kept: tuple[int, ...]

    def __init__(self, distances: Any, rate: float, kept: Any = None, **fields: Any) -> None:
        if kept is None:
            kept = range(len(distances.distances if isinstance(distances, Matrix) else distances))
        FrozenModel.__init__(self, distances=distances, rate=rate, kept=tuple(kept), **fields)

    def model_post_init(self, context: object) -> None:
        points = len(self.distances)
        if (
            not self.kept
            or len(set(self.kept)) < len(self.kept)
            or not all(0 <= point < points for point in self.kept)
        ):
            raise InputError(
                f"{owner('PaddedExponential')}kept must be different points out of "
                f"0..{points - 1}, got {self.kept}."
            )

    @cached_property
    def sums(self) -> Floats:
        """S_x = sum over the kept z of e^(-rate d(x, z))."""
        totals: Floats = np.exp(-self.rate * self.distances[:, list(self.kept)]).sum(axis=1)
        return totals

    @cached_property
    @theorem("metricshuffle", "normaliser of the padded exponential mechanism")
    def normaliser(self) -> float:
        """The common normaliser N of all points.

        Statement: N = max over ALL pairs x, x' at D = rate d(x, x') > 0 of (e^D max(S, S') - min(S,
        S'))/(e^D - 1) makes it D-private.
        Proof: at z the ratio is e^(rate (d(x', z) - d(x, z))) <= e^D by the triangle inequality; at
        "none" (N - S)/(N - S') <= e^D is N >= (e^D S' - S)/(e^D - 1). Points at distance 0 have
        equal rows. N >= S, because each term is at least max(S, S').
        Conditions: d is a metric (semi-metrics are refused: the real ratio can be larger).
        """
        costs = self.rate * self.distances
        high = np.maximum.outer(self.sums, self.sums)
        low = np.minimum.outer(self.sums, self.sums)
        with np.errstate(divide="ignore", invalid="ignore"):
            needed = np.where(costs > 0.0, high + (high - low) / np.expm1(costs), high)
        return float(needed.max())

    @cached_property
    def channel(self) -> Channel:
        weights = np.exp(-self.rate * self.distances[:, list(self.kept)]) / self.normaliser
        padding = 1.0 - self.sums / self.normaliser
        padding[padding < 1e-14] = 0.0  # an equilateral space needs no padding
        costs = self.rate * self.distances
        # If all points have the same sums, the padding is only rounding. Dropping it changes ratios
        # by less than `within` makes room for.
        if padding.max() <= MIN_PADDING * float(np.min(costs, where=costs > 0.0, initial=1.0)):
            padding[:] = 0.0
        matrix = np.column_stack([weights, padding])
        return Channel.within(
            matrix / matrix.sum(axis=1, keepdims=True),
            self.rate * self.distances,
            distances=Matrix.known(self.distances),
        )
