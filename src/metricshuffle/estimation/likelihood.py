"""Maximum-likelihood shares from counts of reports, with a certified optimality gap."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from metricshuffle.citations import theorem
from metricshuffle.errors import InputError
from metricshuffle.estimation.inversion import apply_kronecker
from metricshuffle.numerics.types import Floats

# A total log likelihood at most this far (in nats) below the maximum counts as the maximum.
SHORTFALL = 0.01
MAX_STEPS = 2_000


@dataclass(frozen=True, eq=False)
class LikelihoodFit:
    """Fitted frequencies, their certified gap and their number of steps.

    The gap is an upper bound on how far the log likelihood is below its maximum, in nats per
    report.
    """

    frequencies: Floats
    gap: float
    steps: int


@theorem("metricshuffle", "certificate of maximum likelihood")
def fit_likelihood(
    rows: tuple[Floats, ...],
    counts: NDArray[np.int64],
    *,
    shortfall: float = SHORTFALL,
    steps: int = MAX_STEPS,
) -> LikelihoodFit:
    """Maximum likelihood of independent reports, by accelerated expectation maximisation.

    The algorithm is also known as iterative Bayesian update.

    Statement: let K_x(y) be the probability of report y for value x (`rows`), p the shares of the
    values, q = p K the law of a report, f_y the observed share of report y, and g_x = sum_y f_y
    K_x(y)/q_y. The log likelihood per report, L(p) = sum_y f_y log q_y, is concave with gradient g,
    and sum_x p_x g_x = 1. So max L - L(p) <= `gap`, which is (max_x g_x)-1, and p is optimal iff
    the gap is 0 (Karush, Kuhn, Tucker). Replacing p_x by p_x g_x never lowers L (Dempster, Laird,
    Rubin 1977). A squared extrapolation (Varadhan, Roland 2008) is accepted only if its L is not
    below that of two such steps.
    Conditions: every observed report is possible. Works for laws that cannot be inverted; the
    answer is then one of many.
    Numerics: stops once the gap times the number of reports is at most `shortfall`, or after
    `steps` steps: check the gap.
    """
    reports = int(counts.sum())
    if reports < 1:
        raise InputError("there are no reports, so there is nothing to fit.")
    shares = np.asarray(counts, dtype=np.float64) / reports
    seen = shares > 0.0
    cells = math.prod(part.shape[0] for part in rows)
    back = tuple(part.T for part in rows)

    def law(frequencies: Floats) -> Floats:
        report_law = apply_kronecker(rows, frequencies)
        if not np.all(report_law[seen] > 0.0):
            raise InputError(
                "a report is impossible for every value; it was not made by this randomizer."
            )
        return report_law

    def gradient(reported: Floats) -> Floats:
        return apply_kronecker(
            back, np.divide(shares, reported, out=np.zeros_like(shares), where=seen)
        )

    def likelihood(reported: Floats) -> float:
        return float(shares[seen] @ np.log(reported[seen]))

    current = np.full(cells, 1.0 / cells)
    gap = math.inf
    done = 0
    while done < steps:
        slope = gradient(law(current))
        gap = max(0.0, float(slope.max()) - 1.0)
        if gap * reports <= shortfall:
            break
        once = current * slope
        twice = once * gradient(law(once))
        first = once - current
        second = twice - 2.0 * once + current
        curve = float(np.linalg.norm(second))
        length = -float(np.linalg.norm(first)) / curve if curve > 0.0 else -1.0
        # At least a tenth of the result of two plain steps, so that no cell becomes 0.
        leap = np.maximum(current - 2.0 * length * first + length**2 * second, 0.1 * twice)
        leap /= leap.sum()
        current = leap if likelihood(law(leap)) >= likelihood(law(twice)) else twice / twice.sum()
        done += 1
    return LikelihoodFit(current, gap, done)
