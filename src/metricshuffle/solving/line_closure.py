"""Local metrics on a line of equally spaced values that depend on the distance only: their closure, and how far points reach.

A table D(i, j) = f(|i-j|) on 0..k is kept as the vector (f(1), .., f(k)), so that ten thousand values need no matrix.
"""

from __future__ import annotations

import numpy as np

from metricshuffle.citations import theorem
from metricshuffle.errors import InputError
from metricshuffle.numerics.types import Floats


def make_nondecreasing(values: Floats) -> Floats:
    """The largest non-decreasing vector below the given one."""
    return np.asarray(np.minimum.accumulate(values[::-1])[::-1], dtype=np.float64)


@theorem("metricshuffle", "closure of a semi-metric on a line")
def close_line(semi_metric: Floats) -> Floats:
    """The largest metric below D(i, j) = f(|i-j|) on the points 0..k of a line, as the vector of its values at 1..k steps.

    Statement: let f(0) = 0 and f be non-decreasing. The shortest-path closure of D on {0..k} is c(|i-j|), with c the min-plus
    (subadditive) closure of f: c(d) = min over all ways to write d = a_1 + .. + a_r, a_t >= 1, of f(a_1) + .. + f(a_r). It obeys
    c(d) = min(f(d), min_(1 <= a <= d/2) c(a) + c(d-a)) and is non-decreasing.
    Proof: a path x_0 = i, .., x_r = j, i < j, may turn back or leave [i, j]. Let y_t = min(j, max_(s <= t) x_s), which goes from
    i to j upwards. Where y moves, x_t exceeds all of x_0..x_(t-1), so 0 < y_t - y_(t-1) <= x_t - x_(t-1), and f is
    non-decreasing: the steps of y cost no more. Upward paths from i to j are the ways to write j - i, wherever i lies, and all
    of them stay in {0..k}. The best way is one step, or it has a first part a and best rest d-a; both are closed themselves, and
    either order will do, hence a <= d/2. A path to d+1 cut off at d costs no more, so c is non-decreasing.
    Shortcut: if f(a) >= min(a f(1), f(k)) for all a, then c(d) = min(d f(1), f(k)) capped by f(d): of the parts of d, either
    each costs at least a f(1), or one costs f(k) already.
    Conditions: f finite, > 0 and non-decreasing (InputError otherwise).
    Numerics: O(k^2/4) additions; sums are rounded to nearest, the result is never above f and is made non-decreasing downwards.
    Reference: this docstring.
    """
    values = np.asarray(semi_metric, dtype=np.float64)
    if values.ndim != 1 or not len(values) or not np.isfinite(values).all() or not values[0] > 0.0 or (np.diff(values) < 0.0).any():
        raise InputError("semi_metric must hold finite numbers > 0, one for each number of steps 1..k, that do not fall.")
    steps = np.arange(1.0, len(values) + 1.0)
    straight: Floats = np.minimum(steps * values[0], values[-1])
    if (values >= straight).all():
        return straight
    closed = np.concatenate(([0.0], values))
    for d in range(2, len(closed)):
        half = d // 2
        closed[d] = min(closed[d], float((closed[1 : half + 1] + closed[d - half : d][::-1]).min()))
    return make_nondecreasing(closed[1:])


def farthest_reaches(closed: Floats) -> tuple[float, Floats]:
    """Two bounds on the reaches of any two points d = 1..k steps apart: the diameter for one, and the vector for the other.

    Let the points be i and i+d, and i <= (k-d)/2 (else look from the other end). i reaches k-i <= k steps far, i+d reaches
    max(i+d, k-i-d) <= max((k+d)/2, k-d). For d <= k/3 the pair (0, d) attains both.
    """
    k = len(closed)
    steps = np.arange(1, k + 1)
    return float(closed[-1]), closed[np.maximum(k - steps, (k + steps) // 2) - 1]
