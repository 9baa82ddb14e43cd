"""Symmetric polytopes given by facets in whole numbers: norm, uniform points, and moments.

K = {z : |k_i z| <= R for every facet k_i}, with R the largest entry of all facets in absolute
value. Then no unit vector has a norm above 1, and one has norm 1: noise of scale 1 in this norm is
on average at least 1 in every coordinate. protocols/answer_noise.py draws such noise with
noise.k_norm.BallNoise. docs/proofs/k-norm.md has the proofs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cached_property

import numpy as np

from metricshuffle.citations import theorem
from metricshuffle.errors import InputError, NotCertified
from metricshuffle.models import LARGEST_WHOLE
from metricshuffle.noise.k_norm import DecimalDraws, UnitBall, Vector, high_precision
from metricshuffle.numerics.types import Floats

MAX_POLYTOPE_DIMENSIONS = 8
MAX_FACETS = 256
LARGEST_COEFFICIENT = Fraction(101, 100)
TRIES_PER_FACTORIAL = 90
"""The rejection tries this number times D! points; all fail with a probability below 2^-112."""
INTEGRATION_POINTS = 2**17
INTEGRATION_WORK = 2**29

Row = tuple[Fraction, ...]


@dataclass(frozen=True)
class Polytope:
    """Polytope {z : |facet z| <= R for all facets} with R the largest entry, symmetric around 0.

    Only one of two opposite facets is listed. The facets must span all D coordinates.
    """

    facets: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        width = len(self.facets[0]) if self.facets else 0
        if not 1 <= width <= MAX_POLYTOPE_DIMENSIONS:
            raise InputError(
                f"a polytope must have 1 to {MAX_POLYTOPE_DIMENSIONS} coordinates, got {width}."
            )
        if len(self.facets) > MAX_FACETS or any(len(row) != width for row in self.facets):
            raise InputError(
                f"a polytope must have at most {MAX_FACETS} facets of {width} whole numbers each."
            )
        if any(abs(entry) > LARGEST_WHOLE for row in self.facets for entry in row):
            raise InputError("facets of a polytope must be whole numbers up to 2^53 - 1.")
        _ = self.frame  # raises InputError if the facets do not span all coordinates

    @property
    def dimension(self) -> int:
        """Number D of coordinates."""
        return len(self.facets[0])

    @cached_property
    def largest(self) -> int:
        """Largest entry R of the facets, in absolute value."""
        return max(abs(entry) for row in self.facets for entry in row)

    @cached_property
    def matrix(self) -> Floats:
        """Facets as doubles, exactly."""
        return np.array(self.facets, dtype=np.float64)

    @cached_property
    @theorem("metricshuffle", "frame of a polytope")
    def frame(self) -> tuple[list[Row], list[Row]]:
        """Coordinates in which a polytope fills at least 0.9/D! of the cube around it.

        Returns (the columns of each z in terms of y, the coefficients of each facet in terms of y).

        Statement: take D of the facets as rows of B, y = B z/R. Then K lies in the cube |y| <= 1.
        Every facet is a combination of these D, with coefficients c = k B^-1; exchange a facet of B
        for one with a coefficient above 1.01, as long as there is one. Each exchange multiplies
        |det B| by more than 1.01, so it ends. Then |c| <= 1.01, hence K contains all y with sum |y|
        <= 1/1.01, a part of 1/(1.01^D D!) of the cube, and 1.01^8 < 1/0.92.
        Conditions: the facets span all coordinates, else refused.
        Numerics: exact rational arithmetic.
        Reference: docs/proofs/k-norm.md.
        """
        rows = [tuple(Fraction(entry) for entry in row) for row in self.facets]
        chosen = _independent(rows)
        if len(chosen) < self.dimension:
            raise InputError(
                f"the facets of a polytope must span all {self.dimension} coordinates, got "
                f"facets that span {len(chosen)}."
            )
        while True:
            inverse = _inverse([rows[index] for index in chosen])
            coefficients = [_times(row, inverse) for row in rows]
            size, facet, position = max(
                (abs(entry), facet, position)
                for facet, row in enumerate(coefficients)
                for position, entry in enumerate(row)
            )
            if size <= LARGEST_COEFFICIENT:
                break
            chosen[position] = facet
        scaled = [tuple(entry * self.largest for entry in row) for row in inverse]
        others = [row for facet, row in enumerate(coefficients) if facet not in chosen]
        return scaled, others

    @property
    def widths(self) -> tuple[Fraction, ...]:
        """Upper bound on |z_j| in the polytope, for each coordinate j."""
        return tuple(sum((abs(entry) for entry in row), Fraction(0)) for row in self.frame[0])

    @cached_property
    def ball(self) -> UnitBall:
        """The polytope as the unit ball of its norm, with an exact sampler by rejection."""
        return UnitBall(self._norm, self.widths, self._uniform_point)

    @cached_property
    def _frame_in_decimals(self) -> tuple[list[Vector], list[Vector]]:
        with localcontext(high_precision()):
            scaled, others = ([_decimals(row) for row in part] for part in self.frame)
        return scaled, others

    @cached_property
    def _facets_in_decimals(self) -> list[Vector]:
        return [[Decimal(entry) for entry in row] for row in self.facets]

    def _norm(self, z: Sequence[Decimal]) -> Decimal:
        return max(abs(_product(row, z)) for row in self._facets_in_decimals) / self.largest

    def _uniform_point(self, draws: DecimalDraws) -> Vector:
        scaled, others = self._frame_in_decimals
        for _ in range(TRIES_PER_FACTORIAL * math.factorial(self.dimension)):
            y = [draws.symmetric() for _ in range(self.dimension)]
            if all(abs(_product(row, y)) <= 1 for row in others):
                return [_product(row, y) for row in scaled]
        raise NotCertified("no uniform point of the polytope was drawn; draw again.")

    @cached_property
    def _frame_in_floats(self) -> tuple[Floats, Floats]:
        scaled, others = (
            np.array([[float(entry) for entry in row] for row in part]).reshape(-1, self.dimension)
            for part in self.frame
        )
        return scaled, others

    def inside(self, cube: Floats) -> Floats:
        """Those points of the cube [-1, 1]^D around the polytope that lie in it, in floating point.

        The coordinates of the cube are those of the frame. Uniform points stay uniform.
        """
        scaled, others = self._frame_in_floats
        return np.asarray(cube[(np.abs(cube @ others.T) <= 1.0).all(axis=1)] @ scaled.T)

    @cached_property
    def _evenly(self) -> Floats:
        """Points that fill the polytope evenly, for integrals."""
        count = self.dimension
        most = min(
            INTEGRATION_POINTS * math.factorial(count),
            INTEGRATION_WORK // (count * len(self.facets)),
        )
        accepted: list[Floats] = []
        total = 0
        for start in range(0, most, INTEGRATION_POINTS):
            y = 2.0 * evenly_spread(start, start + INTEGRATION_POINTS, count) - 1.0
            accepted.append(self.inside(y))
            total += len(accepted[-1])
            if total >= INTEGRATION_POINTS // 2:
                break
        return np.concatenate(accepted)

    @cached_property
    def mean_sizes(self) -> Floats:
        """E|u_j| of a uniform point u of the polytope, for each coordinate j (see `squares`)."""
        return np.asarray(np.abs(self._evenly).mean(axis=0))

    @cached_property
    def squares(self) -> Floats:
        """E u_j^2 of a uniform point u of the polytope, for each coordinate j.

        Exact if there are D facets (a parallelepiped: sums of D independent numbers). Otherwise an
        integral over evenly spread points, plus three standard errors of as many random points, so
        that standard errors of answers are not too small.
        """
        if len(self.facets) == self.dimension:
            scaled = self.frame[0]
            return np.array([float(sum(entry**2 for entry in row) / 3) for row in scaled])
        points = self._evenly**2
        return np.asarray(points.mean(axis=0) + 3.0 * points.std(axis=0) / math.sqrt(len(points)))


def evenly_spread(start: int, stop: int, dimensions: int) -> Floats:
    """Points start..stop-1 of an additive recurrence that fills [0, 1)^dimensions evenly.

    Its steps are the powers of the generalized golden ratio, the root of x^(D+1) = x + 1.
    """
    golden = 1.5
    for _ in range(60):
        golden = (1.0 + golden) ** (1.0 / (dimensions + 1))
    steps = golden ** -np.arange(1.0, dimensions + 1.0)
    return np.asarray(np.mod(0.5 + np.arange(start, stop)[:, None] * steps, 1.0))


def _product(row: Sequence[Decimal], z: Sequence[Decimal]) -> Decimal:
    return sum((entry * number for entry, number in zip(row, z, strict=True)), Decimal(0))


def _decimals(row: Row) -> Vector:
    return [Decimal(entry.numerator) / Decimal(entry.denominator) for entry in row]


def _times(row: Row, matrix: list[Row]) -> Row:
    return tuple(
        sum((entry * line[column] for entry, line in zip(row, matrix, strict=True)), Fraction(0))
        for column in range(len(row))
    )


def _independent(rows: list[Row]) -> list[int]:
    """Indices of linearly independent rows, as many as there are; large ones first."""
    left = list(rows)
    chosen: list[int] = []
    for column in range(len(rows[0])):
        pivot = max(range(len(rows)), key=lambda index: abs(left[index][column]))
        if left[pivot][column] == 0:
            continue
        chosen.append(pivot)
        basis = left[pivot]
        left = [
            tuple(
                entry - row[column] / basis[column] * part
                for entry, part in zip(row, basis, strict=True)
            )
            for row in left
        ]
    return chosen


def _inverse(matrix: list[Row]) -> list[Row]:
    """Inverse of an invertible matrix, by Gauss and Jordan in fractions."""
    size = len(matrix)
    table = [
        [*row, *(Fraction(int(column == index)) for column in range(size))]
        for index, row in enumerate(matrix)
    ]
    for column in range(size):
        pivot = max(range(column, size), key=lambda index: abs(table[index][column]))
        table[column], table[pivot] = table[pivot], table[column]
        divisor = table[column][column]
        table[column] = [entry / divisor for entry in table[column]]
        for index in range(size):
            factor = table[index][column]
            if index != column and factor != 0:
                table[index] = [
                    entry - factor * part
                    for entry, part in zip(table[index], table[column], strict=True)
                ]
    return [tuple(row[size:]) for row in table]
