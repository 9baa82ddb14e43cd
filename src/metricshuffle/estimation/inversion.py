"""Unbiased shares of the values from counts of shuffled reports, by inverting a report's law."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from metricshuffle.errors import NotCertified
from metricshuffle.numerics.types import Floats, Integers64
from metricshuffle.randomizers.bounded_geometric import BoundedGeometric
from metricshuffle.randomizers.channel import LARGEST_CONDITION, Channel
from metricshuffle.randomizers.planar_geometric import PlanarGeometric
from metricshuffle.randomizers.randomizer import Randomizer, has_law_of
from metricshuffle.randomizers.table_randomizer import TableRandomizer

IntervalMethod = Literal["normal", "bernstein"]


@dataclass(frozen=True, eq=False)
class Inversion:
    """The law of a report and its inverse.

    Each is one matrix, or the Kronecker product of one per axis (up, across).
    """

    rows: tuple[Floats, ...]
    debiasing: tuple[Floats, ...]

    @classmethod
    def of(cls, randomizer: Randomizer) -> Inversion:
        """Build the inversion of a randomizer.

        Raises:
            NotCertified: the reports do not determine the histogram of the inputs.
        """
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
        """Law of a report if people have the values with these frequencies."""
        return apply_kronecker(self.rows, frequencies)

    def totals(self, counts: Floats) -> Floats:
        """Unbiased estimates of how many people have each value."""
        return apply_kronecker(self.debiasing, counts)

    def variances(self, frequencies: Floats) -> Floats:
        """Variance that one report adds to each value's total, averaged over these frequencies."""
        squares = apply_kronecker(
            tuple(part**2 for part in self.debiasing), self.reports_of(frequencies)
        )
        return np.maximum(squares - frequencies, 0.0)

    @cached_property
    def largest_variances(self) -> Floats:
        """Upper bound on the variance any report adds to each value's total: the mean square."""
        return _product(
            [
                (rows @ part**2).max(axis=0)
                for rows, part in zip(self.rows, self.debiasing, strict=True)
            ]
        )

    @cached_property
    def own_variances(self) -> Floats:
        """Variance that the report of a person with a value adds to the total of that value."""
        return (
            _product(
                [
                    np.einsum("xy,yx->x", rows, part**2)
                    for rows, part in zip(self.rows, self.debiasing, strict=True)
                ]
            )
            - 1.0
        )

    @property
    def largest_terms(self) -> Floats:
        """Upper bound on |contribution of one report - its mean| to each value's total."""
        lowest, highest = self.contributions
        # The mean contribution lies between 0 and 1.
        return np.asarray(np.maximum(highest, 1.0 - lowest))

    def readouts(self, reports: Integers64) -> Floats:
        """What each of the given reports adds to each value's total, one row per report."""
        places = np.unravel_index(reports, [part.shape[0] for part in self.debiasing])
        parts = [part[rows] for part, rows in zip(self.debiasing, places, strict=True)]
        if len(parts) == 1:
            return np.asarray(parts[0])
        return np.asarray(np.einsum("ru,ra->rua", *parts).reshape(len(reports), -1))

    def readout(self, value: int) -> Floats:
        """What each report adds to the total of one value."""
        places = np.unravel_index(value, [part.shape[1] for part in self.debiasing])
        return _product(
            [part[:, place] for part, place in zip(self.debiasing, places, strict=True)]
        )

    @property
    def contributions(self) -> tuple[Floats, Floats]:
        """Smallest and largest contribution of one report to each value's total."""
        lowest = self.debiasing[0].min(axis=0)
        highest = self.debiasing[0].max(axis=0)
        for part in self.debiasing[1:]:
            ends = [
                np.kron(end, part_end)
                for end in (lowest, highest)
                for part_end in (part.min(axis=0), part.max(axis=0))
            ]
            lowest = np.min(ends, axis=0)
            highest = np.max(ends, axis=0)
        return np.asarray(lowest), np.asarray(highest)

    @property
    def condition(self) -> float:
        """Maximum number of people one report can count for, in absolute value.

        This is the condition number in the sum norm (rows sum to one).
        """
        return math.prod(float(np.abs(part).sum(axis=1).max()) for part in self.debiasing)

    def half_widths(self, variances: Floats, miss: float) -> Floats:
        """Half-widths of intervals for the totals that miss with probability at most `miss` each.

        `variances` are upper bounds on the variances of the totals.
        Statement: the error of a total is a sum of independent terms of mean 0. Let M be an upper
        bound on their absolute values and V an upper bound on the sum of their variances. The error
        exceeds h with probability at most 2 exp(-h^2/(2V + 2Mh/3)), so h = ML/3 + sqrt((ML/3)^2 +
        2VL) with L = log(2/miss) is valid for any number of terms.
        Reference: Bernstein's inequality.
        """
        log_miss = math.log(2.0 / miss)
        linear = self.largest_terms * log_miss / 3.0
        return np.asarray(linear + np.sqrt(linear**2 + 2.0 * variances * log_miss))


def _tells_inputs(randomizer: Randomizer) -> bool:
    """Whether the randomizer estimates how many people have each of its inputs."""
    if type(randomizer).targets in (
        Channel.targets,
        TableRandomizer.targets,
    ):  # avoids building a large table
        return True
    targets = randomizer.targets()
    return targets.shape == (randomizer.inputs,) * 2 and np.array_equal(
        targets, np.eye(randomizer.inputs)
    )


def _product(axes: list[Floats]) -> Floats:
    product = axes[0]
    for axis in axes[1:]:
        product = np.asarray(np.kron(product, axis), dtype=np.float64)
    return product


def apply_kronecker(matrices: tuple[Floats, ...], vector: Floats) -> Floats:
    """Compute vector @ kron(matrices) without forming the product."""
    if len(matrices) == 1:
        return np.asarray(vector @ matrices[0])
    up, across = matrices
    return np.asarray(up.T @ vector.reshape(up.shape[0], across.shape[0]) @ across).ravel()


def _least_squares(rows: Floats) -> Floats:
    """Least-squares inverse of a law that has no debiasing matrix of its own."""
    singular = np.linalg.svd(rows, compute_uv=False)
    condition = (
        float(singular[0] / singular[-1])
        if rows.shape[1] >= rows.shape[0] and singular[-1] > 0.0
        else math.inf
    )
    if not condition <= LARGEST_CONDITION:
        raise NotCertified(
            "these reports do not determine the shares of the values: the condition "
            f"number is {condition:.3g} (inf: some values, or "
            "mixtures of values, have the same law); merge such values, or ask for what "
            "the reports do determine."
        )
    return np.asarray(np.linalg.pinv(rows), dtype=np.float64)
