"""Exact counterexamples to statements of Imola24, and the error of GKRR without slack."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metricshuffle.errors import InputError
from metricshuffle.estimation.inversion import Inversion
from metricshuffle.randomizers import ClusteredResponse
from metricshuffle_papers.earth_mover.error_bounds import Clusters
from metricshuffle_papers.published import checked_number, checked_people

Floats = NDArray[np.float64]
_NEGLIGIBLE = 1e-30


def sampled_mean_delta(rate: float, share: float, samples: int, epsilon: float) -> float:
    """delta at `epsilon` of two users: a `share` of the items at 1, or all at 0.

    Their earth mover's distance is `share`.
    Statement: `samples` items are drawn, J ~ Bin(samples, share) of them at 1, and J/samples +
    Laplace(1/rate) is published. The likelihood ratio E e^(rate (|z| - |z - J/s|)) rises in z, so
    that the best event is an answer above a threshold, where it crosses e^epsilon.
    Numerics: the threshold by bisection; whatever it is, the value is that of an event, a lower
    bound.
    Reference: this docstring.
    """
    s = checked_people(samples)
    e = checked_number("epsilon", epsilon, -1.0)
    checked_number("share", share, 0.0, 1.0), checked_number("rate", rate, 0.0)
    from scipy.special import gammaln, xlog1py, xlogy

    ones = np.arange(s + 1.0)
    log_weights = (
        gammaln(s + 1.0)
        - gammaln(ones + 1.0)
        - gammaln(s - ones + 1.0)
        + xlogy(ones, share)
        + xlog1py(s - ones, -share)
    )
    kept = log_weights > math.log(_NEGLIGIBLE)
    weights = np.exp(log_weights[kept])
    at = ones[kept] / s

    def ratio(z: float) -> float:
        return float(weights @ np.exp(rate * (abs(z) - np.abs(z - at))))

    low = -1.0
    high = 2.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if ratio(middle) >= math.exp(e) else (middle, high)

    def above(centre: Floats) -> Floats:
        gap = rate * (high - centre)
        return np.where(gap >= 0.0, 0.5 * np.exp(-np.abs(gap)), 1.0 - 0.5 * np.exp(-np.abs(gap)))

    return max(0.0, float(weights @ above(at)) - math.exp(e) * float(above(np.zeros(1))[0]))


def clustered_errors(
    metric: Clusters, item_rate: float, shares: ArrayLike, reports: int
) -> tuple[float, float]:
    """(mean, bound) of the earth mover's distance of GKRR's unbiased estimate to the true shares.

    N items have the `shares`.
    Statement: the distance is half of r |H - K|_1 + (1-r) |cluster sums of H - K|_1 (its dual norm,
    if H is negative somewhere), and E |X| <= sd X for each term: that is the bound, exact but for
    this inequality. For many reports every term is normal, and the mean is sqrt(2/pi) of it. The
    variances are exact: (1/N)(sum_y v(y) B(y, j)^2 - K(j)), with v the law of a report.
    """
    law = np.asarray(shares, dtype=np.float64)
    if (
        law.shape != (metric.values,)
        or not math.isclose(float(law.sum()), 1.0, rel_tol=1e-9)
        or float(law.min()) < 0.0
    ):
        raise InputError(f"shares must be {metric.values} numbers >= 0 that sum to 1.")
    response = ClusteredResponse(metric.clusters, metric.size, metric.inner, item_rate)
    inversion = Inversion.of(response)
    shape = (metric.clusters, metric.size)
    sums = inversion.debiasing[0].reshape(metric.values, *shape).sum(axis=2)
    across = np.maximum(inversion.reports_of(law) @ sums**2 - law.reshape(shape).sum(axis=1), 0.0)
    inside = inversion.variances(law)
    bound = 0.5 * (
        metric.inner * float(np.sqrt(inside).sum())
        + (1.0 - metric.inner) * float(np.sqrt(across).sum())
    )
    bound /= math.sqrt(checked_people(reports))
    return math.sqrt(2.0 / math.pi) * bound, bound
