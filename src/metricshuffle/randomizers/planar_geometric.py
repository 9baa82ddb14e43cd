"""Geo-indistinguishability on a grid: geometric noise on both axes, clamped to the grid."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any, Literal

import numpy as np

from metricshuffle.accounting.shuffling.blanket_law import BlanketLaw
from metricshuffle.errors import DomainError, InputError, owner
from metricshuffle.models import FrozenModel, Positive, Whole
from metricshuffle.numerics.rounding import round_up
from metricshuffle.numerics.types import Floats
from metricshuffle.privacy.profile import PrivacyProfile, PureProfile
from metricshuffle.randomizers.bounded_geometric import (
    BoundedGeometric,
    clamped_blanket,
    clamped_rows,
)
from metricshuffle.randomizers.randomizer import Codes, FittedFamily, Randomizer
from metricshuffle.randomness import Randomness
from metricshuffle.spaces import Domain, Grid


class PlanarGeometric(Randomizer):
    """Cells of a grid; each coordinate gets discrete Laplace noise, clamped to the grid.

    Cells are (column, row) of a width x height grid, coded row * width + column. It is rate *
    distance private for the Manhattan distance (noise rate = rate * cell on each axis: log ratios
    add up), or for the Euclidean one (rate * cell / sqrt 2, since |dx| + |dy| <= sqrt 2 |d|).
    Clamping is post-processing. This is geo-indistinguishability (Andres et al. 2013) with a
    product law, whose guarantee is exact; the planar Laplace law has none once it is put on a
    finite grid.
    """

    kind: Literal["planar-geometric"] = "planar-geometric"
    width: Whole
    height: Whole
    rate: Positive
    cell: Positive = 1.0
    metric: Literal["euclidean", "manhattan"] = "euclidean"

    def __init__(
        self,
        width: int,
        height: int,
        rate: float,
        cell: float = 1.0,
        metric: str = "euclidean",
        **fields: object,
    ) -> None:
        FrozenModel.__init__(
            self, width=width, height=height, rate=rate, cell=cell, metric=metric, **fields
        )

    def model_post_init(self, context: object) -> None:
        if self.width < 2 or self.height < 2:
            raise InputError(
                f"{owner('PlanarGeometric')}at least 2 x 2 cells are needed, got "
                f"{self.width} x {self.height}; a line is BoundedGeometric."
            )
        _ = self.axes

    @cached_property
    def axes(self) -> tuple[BoundedGeometric, BoundedGeometric]:
        """The noise of a column and of a row, in cells."""
        along = (
            self.rate
            * self.cell
            / (math.sqrt(2.0) * (1.0 + 4e-16) if self.metric == "euclidean" else 1.0)
        )
        return BoundedGeometric(self.width - 1, along), BoundedGeometric(self.height - 1, along)

    @classmethod
    def fitted(cls, domain: Domain, cells: int) -> FittedFamily | None:
        """Return the family for a grid, by the rate per unit."""
        if not isinstance(domain, Grid):
            return None
        return FittedFamily(
            lambda rate: cls(domain.width, domain.height, rate, domain.cell), in_steps=False
        )

    @property
    def inputs(self) -> int:
        return self.width * self.height

    @property
    def outputs(self) -> int:
        return self.width * self.height

    def rows(self) -> Floats:
        self._listable()
        across, up = self.axes
        return np.asarray(np.kron(up.rows(), across.rows()), dtype=np.float64)

    def law(self, value: int) -> Floats:
        row, column = divmod(self._checked_input(value), self.width)
        across, up = self.axes
        return np.asarray(np.kron(up.law(row), across.law(column)), dtype=np.float64)

    def distance(self, a: int, b: int) -> float:
        (row_a, column_a), (row_b, column_b) = divmod(a, self.width), divmod(b, self.width)
        apart = math.hypot if self.metric == "euclidean" else lambda x, y: abs(x) + abs(y)
        return self.cell * apart(row_a - row_b, column_a - column_b)

    @property
    def diameter(self) -> float:
        return self.distance(0, self.inputs - 1)  # opposite corners

    def blanket(self, a: int, b: int) -> BlanketLaw:
        """Return the product of the axes' blankets: the far corner is far on both axes at once."""
        self._checked_pair(a, b)
        parts = []
        for axis, first, second in zip(
            self.axes,
            (a % self.width, a // self.width),
            (b % self.width, b // self.width),
            strict=True,
        ):
            rows = clamped_rows(axis.span, float(axis.exact_rate))
            parts.append(
                (clamped_blanket(axis.span, float(axis.exact_rate)), rows[first], rows[second])
            )
        (w, k_a, k_b), (w_up, up_a, up_b) = parts
        products = (np.kron(w_up, w), np.kron(up_a, k_a), np.kron(up_b, k_b))
        return BlanketLaw(*(np.asarray(product, dtype=np.float64) for product in products))

    def local_epsilon(self, a: int | None = None, b: int | None = None) -> float:
        """Return the sum of the local epsilons of the axes, rounded up."""
        across, up = self.axes
        if a is None or b is None:
            return round_up(across.local_epsilon() + up.local_epsilon(), 2)
        columns = (a % self.width, b % self.width)
        rows = (a // self.width, b // self.width)
        return round_up(across.local_epsilon(*columns) + up.local_epsilon(*rows), 2)

    def local_profile(self) -> PrivacyProfile:
        """Return the profile rate * distance with delta = 0."""
        return PureProfile(self.rate)

    def values_of(self, codes: Codes) -> Any:
        return np.column_stack([np.asarray(codes) % self.width, np.asarray(codes) // self.width])

    def reports(self, values: object, randomness: Randomness) -> Codes:
        """Draw one report per value; both are rows (column, row)."""
        cells = np.asarray(values)
        if cells.ndim != 2 or cells.shape[1] != 2:
            raise DomainError(f"values must be rows (column, row), got shape {cells.shape}.")
        return np.column_stack(
            [axis.reports(cells[:, place], randomness) for place, axis in enumerate(self.axes)]
        )

    def codes_of(self, reports: object) -> Codes:
        cells = np.asarray(reports, dtype=np.int64)
        return np.asarray(cells[:, 1] * self.width + cells[:, 0])

    def targets(self) -> Floats:
        return np.eye(self.inputs)

    def debiasing(self) -> Floats:
        self._listable()
        across, up = self.axes
        return np.asarray(
            np.kron(up.debiasing()[:, 1:], across.debiasing()[:, 1:]), dtype=np.float64
        )

    def totals(self, reports: object) -> Floats:
        """Return unbiased estimates of the number of people in each cell.

        The inverse is applied along one axis, then along the other.
        """
        across, up = self.axes
        counts = self.counts(reports)
        heat: Floats = (
            up.debiasing()[:, 1:].T
            @ counts.reshape(self.height, self.width)
            @ across.debiasing()[:, 1:]
        ).ravel()
        return heat
