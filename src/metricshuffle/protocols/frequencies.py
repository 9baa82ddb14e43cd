"""From counts of shuffled reports to the shares of the values: inversion, projection and maximum likelihood."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from metricshuffle.citations import theorem
from metricshuffle.errors import InputError, NotCertified
from metricshuffle.randomizers.bounded_geometric import BoundedGeometric
from metricshuffle.randomizers.channel import LARGEST_CONDITION
from metricshuffle.randomizers.planar_geometric import PlanarGeometric
from metricshuffle.randomizers.randomizer import Randomizer

Floats = NDArray[np.float64]
IntervalMethod = Literal["normal", "bernstein"]

# A total log likelihood this far (in nats) below the largest is as good as the largest.
SHORTFALL = 0.01
MOST_STEPS = 2_000


def simplex_projection(values: Floats) -> Floats:
    """The nearest point (Euclidean) whose coordinates are >= 0 and sum to one.

    Statement: it is max(values - t, 0) with the t that makes it sum to one. Numerics: t from the sorted values, O(k log k).
    Reference: Held, Wolfe, Crowder 1974.
    """
    given = np.asarray(values, dtype=np.float64)
    if given.ndim != 1 or not given.size or not np.all(np.isfinite(given)):
        raise InputError(f"a projection onto the simplex needs a list of finite numbers, got shape {given.shape}.")
    falling = np.sort(given)[::-1]
    thresholds = (np.cumsum(falling) - 1.0) / np.arange(1, given.size + 1)
    last = int(np.flatnonzero(falling > thresholds)[-1])
    found: Floats = np.maximum(given - thresholds[last], 0.0)
    return found / math.fsum(found)


@dataclass(frozen=True, eq=False)
class Inversion:
    """The law of a report and its inverse, as one matrix, or as one per axis (up, across) whose product they are."""

    rows: tuple[Floats, ...]
    debiasing: tuple[Floats, ...]

    @classmethod
    def of(cls, randomizer: Randomizer) -> Inversion:
        """NotCertified if the histogram of the inputs cannot be told from the reports."""
        if isinstance(randomizer, PlanarGeometric):
            across, up = (cls.of(axis) for axis in randomizer.axes)
            return cls((*up.rows, *across.rows), (*up.debiasing, *across.debiasing))
        rows = np.asarray(randomizer.rows(), dtype=np.float64)
        if isinstance(randomizer, BoundedGeometric):
            return cls((rows,), (randomizer.debiasing()[:, 1:],))
        targets = randomizer.targets()
        if targets.shape == (randomizer.inputs,) * 2 and np.array_equal(targets, np.eye(randomizer.inputs)):
            return cls((rows,), (randomizer.debiasing(),))
        return cls((rows,), (_least_squares(rows),))

    def reports_of(self, frequencies: Floats) -> Floats:
        """The law of a report if people hold the values with these frequencies."""
        return _applied(self.rows, frequencies)

    def totals(self, counts: Floats) -> Floats:
        """Unbiased estimates of how many people hold each value."""
        return _applied(self.debiasing, counts)

    def variances(self, frequencies: Floats) -> Floats:
        """Variance that one report adds to the total of each value, on average over people with these frequencies."""
        squares = _applied(tuple(part**2 for part in self.debiasing), self.reports_of(frequencies))
        return np.maximum(squares - frequencies, 0.0)

    @property
    def largest_variances(self) -> Floats:
        """A bound on the variance of one report, whatever its value, for the total of each value: its mean square."""
        return _product([(rows @ part**2).max(axis=0) for rows, part in zip(self.rows, self.debiasing, strict=True)])

    @property
    def largest_terms(self) -> Floats:
        """A bound on |contribution of one report - what it should be|, for the total of each value."""
        return 1.0 + _product([np.abs(part).max(axis=0) for part in self.debiasing])

    @property
    def condition(self) -> float:
        """How many people one report can count for, in absolute numbers: the condition number in the sum norm (rows sum to one)."""
        return math.prod(float(np.abs(part).sum(axis=1).max()) for part in self.debiasing)

    def half_widths(self, variances: Floats, reports: int, miss: float, method: IntervalMethod) -> Floats:
        """Half the width of an interval for each total that misses with probability `miss`.

        normal: by the given variances of the totals, as if the error were normal. bernstein: Statement: an error of independent
        terms of mean 0, at most M, of variances that sum to at most V, exceeds h with probability at most
        2 exp(-h^2/(2V + 2Mh/3)), so h = ML/3 + sqrt((ML/3)^2 + 2VL) with L = log(2/miss) holds whatever people hold and
        however few they are. Reference: Bernstein's inequality.
        """
        if method == "normal":
            from scipy.special import ndtri

            return -float(ndtri(miss / 2.0)) * np.sqrt(variances)
        log_miss = math.log(2.0 / miss)
        linear = self.largest_terms * log_miss / 3.0
        return linear + np.sqrt(linear**2 + 2.0 * reports * self.largest_variances * log_miss)


def _product(axes: list[Floats]) -> Floats:
    found = axes[0]
    for axis in axes[1:]:
        found = np.asarray(np.kron(found, axis), dtype=np.float64)
    return found


def _applied(matrices: tuple[Floats, ...], vector: Floats) -> Floats:
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


@dataclass(frozen=True, eq=False)
class LikelihoodFit:
    """Frequencies, and how far (per report, in nats) their log likelihood certainly is from the largest."""

    frequencies: Floats
    gap: float
    steps: int


@theorem("metricshuffle", "certificate of maximum likelihood")
def likeliest(
    rows: tuple[Floats, ...], counts: NDArray[np.int64], *, shortfall: float = SHORTFALL, steps: int = MOST_STEPS
) -> LikelihoodFit:
    """Maximum likelihood of reports of independent people, by expectation maximisation (iterative Bayesian update), accelerated.

    Statement: with q = p K and g_x = sum_y f_y K_x(y)/q_y, f the shares of the reports, L(p) = sum_y f_y log q_y is concave with
    gradient g and sum_x p_x g_x = 1, so max L - L(p) <= max_x g_x - 1 = `gap`; p is optimal iff the gap is 0 (Karush, Kuhn,
    Tucker). A step p_x g_x never lowers L (Dempster, Laird, Rubin 1977); squared extrapolation (Varadhan, Roland 2008) is kept
    only if it does not lower it below two such steps.
    Conditions: every report seen is possible. Works for laws that cannot be inverted; the answer is then one of many.
    Numerics: stops once the gap times the number of reports is at most `shortfall`, or after so many `steps`: read the gap.
    """
    reports = int(counts.sum())
    if reports < 1:
        raise InputError("there are no reports, so no frequencies are likelier than others.")
    shares = np.asarray(counts, dtype=np.float64) / reports
    seen = shares > 0.0
    cells = math.prod(part.shape[0] for part in rows)
    back = tuple(part.T for part in rows)

    def law(frequencies: Floats) -> Floats:
        found = _applied(rows, frequencies)
        if not np.all(found[seen] > 0.0):
            raise InputError("a report was seen that is impossible for every value; it was not made by this randomizer.")
        return found

    def gradient(reported: Floats) -> Floats:
        return _applied(back, np.divide(shares, reported, out=np.zeros_like(shares), where=seen))

    def likelihood(reported: Floats) -> float:
        return float(shares[seen] @ np.log(reported[seen]))

    current, gap, done = np.full(cells, 1.0 / cells), math.inf, 0
    while done < steps:
        slope = gradient(law(current))
        gap = max(0.0, float(slope.max()) - 1.0)
        if gap * reports <= shortfall:
            break
        once = current * slope
        twice = once * gradient(law(once))
        first, second = once - current, twice - 2.0 * once + current
        curve = float(np.linalg.norm(second))
        length = -float(np.linalg.norm(first)) / curve if curve > 0.0 else -1.0
        # A tenth of what two plain steps leave keeps every cell alive.
        leap = np.maximum(current - 2.0 * length * first + length**2 * second, 0.1 * twice)
        leap /= leap.sum()
        current = leap if likelihood(law(leap)) >= likelihood(law(twice)) else twice / twice.sum()
        done += 1
    return LikelihoodFit(current, gap, done)
