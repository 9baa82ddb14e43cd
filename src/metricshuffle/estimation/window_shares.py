"""From noisy means of the distribution function over windows of a line to shares of its points."""

from __future__ import annotations

import math

import numpy as np

from metricshuffle.errors import InputError
from metricshuffle.numerics.types import Floats, Integers64


def shares_from_windows(starts: Integers64, ends: Integers64, levels: Floats, errors: Floats) -> Floats:
    """Shares of the points 0 .. ends[-1], >= 0 and of sum one, for each row of `levels`.

    levels[k] is the mean, with standard error errors[k], of the shares at or below the points starts[k] .. ends[k] - 1, which follow
    each other without gaps. They become the nearest rising sequence in least squares weighted by 1/errors^2 (isotonic regression), cut
    to 0..1, which is reached in the middle of each window and joined by straight lines, from 0 before the first point to 1 at the last.
    Windows of one point: without noise the shares come back. Wider ones: nothing is known about where in a window people are.
    """
    from metricshuffle.estimation import _isotonic_kernels as kernels

    window_means, deviations = np.atleast_2d(np.asarray(levels, dtype=np.float64)), np.asarray(errors, dtype=np.float64)
    if window_means.ndim != 2 or window_means.shape[1] != len(starts) or not np.all(np.isfinite(window_means)):
        raise InputError(f"there must be one finite mean for each of {len(starts):,} windows, got shape {np.shape(levels)}.")
    if deviations.shape != (len(starts),) or not np.all((deviations > 0.0) & (deviations < math.inf)):
        raise InputError(f"there must be one standard error > 0 for each of {len(starts):,} windows, got shape {deviations.shape}.")
    weights = (deviations.min() / deviations) ** 2
    weights = np.maximum(weights, 1e-200)
    last = int(ends[-1])
    corners = np.concatenate([[-1.0], 0.5 * (starts + ends - 1), [float(last)]])
    cumulative = np.empty((len(window_means), last + 1))
    for run, row in enumerate(window_means):
        rising = np.clip(kernels.rising(row, weights), 0.0, 1.0)
        reached = np.interp(np.arange(last + 1), corners, np.concatenate([[0.0], rising, [1.0]]))
        cumulative[run] = np.maximum(np.diff(reached, prepend=0.0), 0.0)
    return cumulative if np.ndim(levels) > 1 else cumulative[0]
