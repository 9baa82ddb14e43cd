"""Vectors in [-1, 1]^d, rounded at random to a corner of the cube, which is then randomized."""

from __future__ import annotations

import itertools
import math
from abc import abstractmethod
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from metricshuffle.accounting.shuffling.blanket_law import BlanketLaw
from metricshuffle.citations import theorem
from metricshuffle.errors import DomainError, InputError, argument, owner
from metricshuffle.models import FrozenModel, Whole
from metricshuffle.numerics.types import Floats
from metricshuffle.randomizers.dyadic_weights import TOTAL_WEIGHT, Epsilon, Levels, draw_events
from metricshuffle.randomizers.randomizer import Codes, FittedFamily, Pair, Randomizer
from metricshuffle.randomness import Randomness
from metricshuffle.spaces import Domain, NumberRows

Signs = NDArray[np.int8]

MAX_DIMENSIONS = 1024


def inside_cube(values: object, dimensions: int) -> Floats:
    """Return values as rows of numbers from -1 to 1, or raise."""
    points = np.asarray(values, dtype=np.float64)
    if points.ndim != 2 or points.shape[1] != dimensions or not np.all(np.abs(points) <= 1.0):
        raise DomainError(
            f"values must be rows of {dimensions} numbers from -1 to 1, got shape "
            f"{points.shape}; rescale or correct them."
        )
    return points


def corners(values: object, dimensions: int, randomness: Randomness) -> Signs:
    """Round vectors in [-1, 1]^d to signs whose mean is the vector.

    The mean is exact to within 2^-62: probabilities are multiples of 2^-63.
    """
    points = inside_cube(values, dimensions)
    numbers = (randomness.words(points.size) >> np.uint64(1)).reshape(points.shape)
    up = numbers < np.floor((points + 1.0) * float(TOTAL_WEIGHT // 2)).astype(np.uint64)
    return np.where(up, np.int8(1), np.int8(-1))


class _CornerRandomizer(Randomizer):
    """Base class; inputs are the corners, and vectors inside the cube are mixtures of corners.

    Corners are coded as binary numbers (bit j set: coordinate j is +1).
    """

    dimensions: Whole
    epsilon: Epsilon

    def model_post_init(self, context: object) -> None:
        if not 1 <= self.dimensions <= MAX_DIMENSIONS:
            raise InputError(
                f"{owner(type(self).__name__)}{argument('dimensions')} must lie in "
                f"1..{MAX_DIMENSIONS}, got {self.dimensions}."
            )
        _ = self.levels

    @property
    @abstractmethod
    def levels(self) -> Levels:
        """The two probabilities that a report can have."""

    @property
    def inputs(self) -> int:
        return 1 << self.dimensions

    def _all_corners(self) -> Floats:
        self._listable()
        return self.values_of(np.arange(self.inputs))

    def values_of(self, codes: Codes) -> Floats:
        known = np.asarray(codes)
        # Codes from 2^63 on do not fit 64 bits; then all codes are unbounded integers.
        whole = np.int64 if known.dtype.kind == "i" else object
        places = np.array(range(self.dimensions), dtype=whole)
        bits = known.astype(whole)[:, None] >> places & 1
        signs: Floats = bits.astype(np.float64) * 2.0 - 1.0
        return signs

    def pairs(self) -> list[Pair]:
        """Return one pair for each number of differing coordinates; both directions are equal."""
        return [(0, (1 << differing) - 1) for differing in range(1, self.dimensions + 1)]

    def local_epsilon(self, a: int | None = None, b: int | None = None) -> float:
        """Return log(high/low), also for vectors that are not corners; never above epsilon."""
        if a is not None and b is not None:
            self._checked_pair(a, b)
        return self.levels.local_epsilon

    def targets(self) -> Floats:
        return self._all_corners()


class Duchi(_CornerRandomizer):
    """The report is a corner of the cube, likelier if its product with the own corner is positive.

    Corners with a positive product are e^epsilon times likelier than the rest. Reports are rows of
    signs; `scale` times a report is an unbiased estimate. Reference: Duchi, Jordan, Wainwright
    2018. In an even dimension corners can be orthogonal to the value. They are usually assigned to
    both sides, which is FALSE: such a report has e^epsilon + 1 times the probability of an unlikely
    one, so the guarantee is log(e^epsilon + 1). Here they count as unlikely.
    """

    kind: Literal["duchi"] = "duchi"

    def __init__(self, dimensions: int, epsilon: float, **fields: object) -> None:
        FrozenModel.__init__(self, dimensions=dimensions, epsilon=epsilon, **fields)

    @classmethod
    def fitted(cls, domain: Domain, cells: int) -> FittedFamily | None:
        """Rows of numbers, scaled to the cube, by local epsilon."""
        fits = isinstance(domain, NumberRows) and cells <= MAX_DIMENSIONS
        return FittedFamily(lambda epsilon: cls(cells, epsilon)) if fits else None

    @property
    def outputs(self) -> int:
        return 1 << self.dimensions

    @cached_property
    def levels(self) -> Levels:
        ties = math.comb(self.dimensions, self.dimensions // 2) if self.dimensions % 2 == 0 else 0
        agreeing = (self.outputs - ties) // 2
        return Levels(self.epsilon, agreeing, self.outputs - agreeing)

    @cached_property
    @theorem("metricshuffle", "unbiased estimator of the Duchi mechanism, every dimension")
    def scale(self) -> float:
        """Factor that makes a report an unbiased estimate of the vector.

        Statement: E[t] = v (high - low) C(d-1, floor(d/2)) for a report t of the corner v.
        Proof: the corners that agree with v in k > d/2 coordinates have t_j = v_j in C(d-1, k-1)
        cases and not in C(d-1, k); the sum of the differences telescopes to C(d-1, floor(d/2)).
        Over all corners t_j sums to 0.
        Numerics: exact fractions, rounded once.
        """
        return float(
            1
            / (
                (self.levels.high - self.levels.low)
                * math.comb(self.dimensions - 1, self.dimensions // 2)
            )
        )

    def rows(self) -> Floats:
        products = self._all_corners() @ self._all_corners().T
        return np.where(products > 0.0, float(self.levels.high), float(self.levels.low))

    @theorem("Duchi18", "mechanism for the cube")
    def blanket(self, a: int, b: int) -> BlanketLaw:
        """Blanket of (a, b) in closed form.

        Statement: w is low at every corner, as in the law of the opposite value; laws depend on the
        signs of the two products.
        Proof: with m coordinates that differ, the products are r + q and r - q, q and r sums of m
        and d - m signs. Both are positive where r > |q|; each alone is positive at as many corners
        as are likely reports of one input.
        Numerics: exact fractions, rounded once.
        """
        self._checked_pair(a, b)
        differ = (a ^ b).bit_count()
        same = self.dimensions - differ
        # above[j]: sign vectors of the coordinates that agree with at least j plus signs
        binomials = [math.comb(same, plus) for plus in range(same + 1)]
        above = [*itertools.accumulate(reversed(binomials), initial=0)][::-1]
        both = sum(
            math.comb(differ, plus) * above[min(same + 1, (same + abs(2 * plus - differ)) // 2 + 1)]
            for plus in range(differ + 1)
        )
        single = self.levels.many_high - both
        return self.levels.blanket(
            [
                (both, False, True, True),
                (single, False, True, False),
                (single, False, False, True),
                (self.outputs - both - 2 * single, False, False, False),
            ]
        )

    def reports(self, values: object, randomness: Randomness) -> Signs:
        """Draw one corner per value, by rejection.

        The number of attempts does not depend on the value.
        """
        own = corners(values, self.dimensions, randomness)
        agree = draw_events(self.levels.threshold, len(own), randomness)
        out = np.empty_like(own)
        rows = np.arange(len(own))
        while rows.size:
            bits = (
                randomness.words(rows.size * -(-self.dimensions // 64))
                .view(np.uint8)
                .reshape(rows.size, -1)
            )
            out[rows] = 2 * np.unpackbits(bits, axis=1)[:, : self.dimensions].astype(np.int8) - 1
            products = np.einsum("ij,ij->i", out[rows], own[rows], dtype=np.int64)
            rows = rows[(products > 0) != agree[rows]]
        return out

    def codes_of(self, reports: object) -> Codes:
        return np.asarray(
            (np.asarray(reports) > 0).astype(np.int64)
            @ (np.int64(1) << np.arange(self.dimensions, dtype=np.int64))
        )

    def debiasing(self) -> Floats:
        return self.scale * self._all_corners()

    def totals(self, reports: object) -> Floats:
        sums: Floats = np.asarray(reports).sum(axis=0, dtype=np.int64).astype(np.float64)
        return sums * self.scale


class Harmony(_CornerRandomizer):
    """The report is one coordinate, chosen uniformly, with its sign under randomized response.

    A report is coded 2 * coordinate + (sign is +1). Reference: Nguyen et al. 2016.
    """

    kind: Literal["harmony"] = "harmony"

    def __init__(self, dimensions: int, epsilon: float, **fields: object) -> None:
        FrozenModel.__init__(self, dimensions=dimensions, epsilon=epsilon, **fields)

    @classmethod
    def fitted(cls, domain: Domain, cells: int) -> FittedFamily | None:
        """Rows of numbers, scaled to the cube, by local epsilon."""
        fits = isinstance(domain, NumberRows) and cells <= MAX_DIMENSIONS
        return FittedFamily(lambda epsilon: cls(cells, epsilon)) if fits else None

    @property
    def outputs(self) -> int:
        return 2 * self.dimensions

    @cached_property
    def levels(self) -> Levels:
        return Levels(self.epsilon, self.dimensions, self.dimensions)

    def rows(self) -> Floats:
        up = self._all_corners() > 0.0
        likely = np.stack([~up, up], axis=2).reshape(self.inputs, self.outputs)
        return np.where(likely, float(self.levels.high), float(self.levels.low))

    @theorem("Nguyen16", "Harmony")
    def blanket(self, a: int, b: int) -> BlanketLaw:
        """Blanket of (a, b) in closed form.

        Statement: w is low at every report; a coordinate that differs has the ratios p:1 and 1:p,
        one that agrees p:p and 1:1.
        Numerics: exact fractions, rounded once.
        """
        self._checked_pair(a, b)
        differ = (a ^ b).bit_count()
        same = self.dimensions - differ
        return self.levels.blanket(
            [
                (differ, False, True, False),
                (differ, False, False, True),
                (same, False, True, True),
                (same, False, False, False),
            ]
        )

    def reports(self, values: object, randomness: Randomness) -> Codes:
        points = inside_cube(values, self.dimensions)
        chosen = randomness.uniform_residues(len(points), self.dimensions).astype(np.int64)
        sign = corners(points[np.arange(len(points)), chosen][:, None], 1, randomness)[:, 0]
        keeps_sign = draw_events(self.levels.threshold, len(points), randomness)
        return np.asarray(2 * chosen + ((sign > 0) == keeps_sign))

    @property
    def _scale(self) -> float:
        return float(1 / (self.levels.high - self.levels.low))

    def debiasing(self) -> Floats:
        out = np.zeros((self.outputs, self.dimensions))
        out[np.arange(self.outputs), np.arange(self.outputs) // 2] = np.tile(
            [-self._scale, self._scale], self.dimensions
        )
        return out

    def totals(self, reports: object) -> Floats:
        counts = self.counts(reports).reshape(self.dimensions, 2).astype(np.float64)
        return (counts[:, 1] - counts[:, 0]) * self._scale
