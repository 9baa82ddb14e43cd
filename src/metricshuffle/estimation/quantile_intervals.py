"""Quantiles of a distribution function that is known by noisy sums over windows of thresholds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from metricshuffle.citations import theorem
from metricshuffle.errors import InputError
from metricshuffle.numerics.types import Floats, Integers64

# Exceeds the rounding error of a cumulative number of people; counts are whole.
COUNT_TOLERANCE = 1e-6


@theorem("metricshuffle", "quantiles from windows (Q1)")
def quantile_hull(
    starts: Integers64,
    ends: Integers64,
    sums: Integers64,
    radii: Integers64,
    needed: Integers64,
    last: int,
) -> tuple[int, int]:
    """Smallest and largest point that may be a quantile, by noisy sums over windows.

    Statement: F(t) is the number of n people at points 0 .. t, and Q the smallest point of 0 ..
    `last` with F(Q) >= q n. Window k is the thresholds starts[k] .. ends[k] - 1; sums[k] is the sum
    of F over it plus noise, and needed[k] the smallest whole number >= q n (ends[k] - starts[k]).
    If each noise exceeds radii[k] with probability at most (1 - level)/2, and falls below -radii[k]
    with no larger probability, then with probability at least `level` Q lies in the set of points t
    such that the first window with start >= t has sum + radius >= needed, and the last window with
    end <= t has sum - radius < needed (a window that does not exist counts as passed). The hull of
    this set is returned.
    Proof: docs/proofs/quantiles.md. In short: windows from Q on have exact sums of at least needed,
    windows before it have less; which two windows are tested at t = Q does not depend on the noise,
    so Q is missed only if one of two given noises exceeds its radius. Some point always passes.
    Conditions: windows are disjoint, in increasing order, and chosen before the data; radii >= 0.
    Noises of different windows may depend on each other. For m quantiles at once, radii at (1 -
    level)/(2 m); for all quantiles at once, at (1 - level)/(2 windows).
    Numerics: all numbers are whole, so ties are exact.
    """
    if last < 1 or np.any(radii < 0) or np.any(ends <= starts) or np.any(starts[1:] < ends[:-1]):
        raise InputError("windows must be disjoint runs of thresholds, and radii numbers >= 0.")
    points = np.arange(last + 1)
    passed = np.ones(last + 1, dtype=bool)
    after = np.searchsorted(starts, points)
    some = after < len(starts)
    passed[some] &= (sums + radii >= needed)[after[some]]
    before = np.searchsorted(ends, points, side="right") - 1
    some = before >= 0
    passed[some] &= (sums - radii < needed)[before[some]]
    hull = np.flatnonzero(passed)
    return int(hull[0]), int(hull[-1])


def quantile_points(shares: Floats, at: Sequence[float], people: int) -> Integers64:
    """First point at which the cumulative share reaches each of `at`, for each row of shares."""
    cumulative = np.cumsum(shares, axis=-1) * people
    last = cumulative.shape[-1] - 1
    points = []
    for share in at:
        reached = cumulative >= share * people - COUNT_TOLERANCE
        points.append(np.where(reached.any(axis=-1), np.argmax(reached, axis=-1), last))
    return np.stack(points, axis=-1)
