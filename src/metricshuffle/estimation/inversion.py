"""From counts of shuffled reports to unbiased shares of the values: the law of a report, inverted."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from metricshuffle.errors import NotCertified
from metricshuffle.numerics.types import Floats
from metricshuffle.randomizers.bounded_geometric import BoundedGeometric
from metricshuffle.randomizers.channel import LARGEST_CONDITION, Channel
from metricshuffle.randomizers.planar_geometric import PlanarGeometric
from metricshuffle.randomizers.randomizer import Randomizer, has_law_of
from metricshuffle.randomizers.table_randomizer import TableRandomizer

IntervalMethod = Literal["normal", "bernstein"]


@dataclass(frozen=True, eq=False)
class Inversion:
    """The law of a report and its inverse, as one matrix, or as one per axis (up, across) whose product they are."""

    rows: tuple[Floats, ...]
    debiasing: tuple[Floats, ...]

    @classmethod
    def of(cls, randomizer: Randomizer) -> Inversion:
        """NotCertified if the histogram of the inputs cannot be told from the reports."""
        if has_law_of(randomizer, PlanarGeometric):
            across, up = (cls.of(axis) for axis in randomizer.axes)
            return cls((*up.rows, *across.rows), (*up.debiasing, *across.debiasing))
        rows = np.asarray(randomizer.rows(), dtype=np.float64)
        if has_law_of(randomizer, BoundedGeometric):
            return cls((rows,), (randomizer.debiasing()[:, 1:],))
        if _tells_inputs(randomizer):
            return cls((rows,), (randomizer.debiasing(),))
        return cls((rows,), (_least_squares(rows),))

    def reports_of(self, frequencies: Floats) -> Floats:
        """The law of a report if people hold the values with these frequencies."""
        return apply_kronecker(self.rows, frequencies)

    def totals(self, counts: Floats) -> Floats:
        """Unbiased estimates of how many people hold each value."""
        return apply_kronecker(self.debiasing, counts)

    def variances(self, frequencies: Floats) -> Floats:
        """Variance that one report adds to the total of each value, on average over people with these frequencies."""
        squares = apply_kronecker(tuple(part**2 for part in self.debiasing), self.reports_of(frequencies))
        return np.maximum(squares - frequencies, 0.0)

    @cached_property
    def largest_variances(self) -> Floats:
        """A bound on the variance of one report, whatever its value, for the total of each value: its mean square."""
        return _product([(rows @ part**2).max(axis=0) for rows, part in zip(self.rows, self.debiasing, strict=True)])

    @cached_property
    def own_variances(self) -> Floats:
        """Variance that the report of somebody who holds a value adds to the total of that value."""
        return _product([np.einsum("xy,yx->x", rows, part**2) for rows, part in zip(self.rows, self.debiasing, strict=True)]) - 1.0

    @property
    def largest_terms(self) -> Floats:
        """A bound on |contribution of one report - what it should be|, for the total of each value."""
        lowest, highest = self.debiasing[0].min(axis=0), self.debiasing[0].max(axis=0)
        for part in self.debiasing[1:]:
            ends = [np.kron(end, part_end) for end in (lowest, highest) for part_end in (part.min(axis=0), part.max(axis=0))]
            lowest, highest = np.min(ends, axis=0), np.max(ends, axis=0)
        # (what it should be lies between 0 and 1)
        return np.asarray(np.maximum(highest, 1.0 - lowest))

    @property
    def condition(self) -> float:
        """How many people one report can count for, in absolute numbers: the condition number in the sum norm (rows sum to one)."""
        return math.prod(float(np.abs(part).sum(axis=1).max()) for part in self.debiasing)

    def half_widths(self, variances: Floats, miss: float) -> Floats:
        """Half the width of an interval for each total, whose variance is at most this, that misses with probability `miss` at the most.

        Statement: an error of independent terms of mean 0, at most M, of variances that sum to at most V, exceeds h with probability at
        most 2 exp(-h^2/(2V + 2Mh/3)), so h = ML/3 + sqrt((ML/3)^2 + 2VL) with L = log(2/miss) holds for any number of terms.
        Reference: Bernstein's inequality.
        """
        log_miss = math.log(2.0 / miss)
        linear = self.largest_terms * log_miss / 3.0
        return np.asarray(linear + np.sqrt(linear**2 + 2.0 * variances * log_miss))


def _tells_inputs(randomizer: Randomizer) -> bool:
    """Whether what it estimates is how many people hold each of its inputs."""
    if type(randomizer).targets in (Channel.targets, TableRandomizer.targets):  # (a table of a million numbers need not be looked at)
        return True
    targets = randomizer.targets()
    return targets.shape == (randomizer.inputs,) * 2 and np.array_equal(targets, np.eye(randomizer.inputs))


def _product(axes: list[Floats]) -> Floats:
    product = axes[0]
    for axis in axes[1:]:
        product = np.asarray(np.kron(product, axis), dtype=np.float64)
    return product


def apply_kronecker(matrices: tuple[Floats, ...], vector: Floats) -> Floats:
    """vector @ kron(matrices), without making the product."""
    if len(matrices) == 1:
        return np.asarray(vector @ matrices[0])
    up, across = matrices
    return np.asarray(up.T @ vector.reshape(up.shape[0], across.shape[0]) @ across).ravel()


def _least_squares(rows: Floats) -> Floats:
    """The inverse of a law that comes without one: that of least squares."""
    singular = np.linalg.svd(rows, compute_uv=False)
    condition = float(singular[0] / singular[-1]) if rows.shape[1] >= rows.shape[0] and singular[-1] > 0.0 else math.inf
    if not condition <= LARGEST_CONDITION:
        raise NotCertified(
            f"the shares of the values cannot be told from these reports: the condition number is {condition:.3g} (inf: some values, or "
            "mixtures of values, have the same law); merge such values, or ask for what the reports do tell."
        )
    return np.asarray(np.linalg.pinv(rows), dtype=np.float64)
