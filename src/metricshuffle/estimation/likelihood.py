"""Shares of maximum likelihood from counts of reports, with a certificate of how far they are from the best."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from metricshuffle.citations import theorem
from metricshuffle.errors import InputError
from metricshuffle.estimation.inversion import apply_kronecker
from metricshuffle.numerics.types import Floats

# A total log likelihood this far (in nats) below the largest is as good as the largest.
SHORTFALL = 0.01
MAX_STEPS = 2_000


@dataclass(frozen=True, eq=False)
class LikelihoodFit:
    """Frequencies, and how far (per report, in nats) their log likelihood certainly is from the largest."""

    frequencies: Floats
    gap: float
    steps: int


@theorem("metricshuffle", "certificate of maximum likelihood")
def fit_likelihood(
    rows: tuple[Floats, ...], counts: NDArray[np.int64], *, shortfall: float = SHORTFALL, steps: int = MAX_STEPS
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
        report_law = apply_kronecker(rows, frequencies)
        if not np.all(report_law[seen] > 0.0):
            raise InputError("a report was seen that is impossible for every value; it was not made by this randomizer.")
        return report_law

    def gradient(reported: Floats) -> Floats:
        return apply_kronecker(back, np.divide(shares, reported, out=np.zeros_like(shares), where=seen))

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
