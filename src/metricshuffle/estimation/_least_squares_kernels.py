"""Compiled steps of constrained least squares; imported only where used (numba costs 0.3 s)."""

# numba's decorators carry no types.
# mypy: disable-error-code="untyped-decorator, no-any-return"
from __future__ import annotations

import math

import numpy as np
from numba import njit

from metricshuffle.numerics.types import Floats, Integers32


@njit(cache=True, nogil=True)
def onto_shares(values: Floats) -> None:
    """Project in place onto the probability simplex: max(values - t, 0).

    t increases to its final value: the t for which all coordinates above the previous t sum to one
    is never too large (Michelot 1986).
    """
    count = len(values)
    level = (values.sum() - 1.0) / count
    while True:
        above = 0
        total = 0.0
        for i in range(count):
            if values[i] > level:
                above += 1
                total += values[i]
        if above == 0 or not (total - 1.0) / above > level:
            break
        level = (total - 1.0) / above
    for i in range(count):
        values[i] = max(values[i] - level, 0.0)


@njit(cache=True, nogil=True)
def onto_rising(values: Floats, sums: Floats, counts: Floats) -> None:
    """Project in place onto non-decreasing sequences within 0..1: pool decreasing neighbours, clip.

    `sums` and `counts` are work space.
    """
    blocks = 0
    for i in range(len(values)):
        sums[blocks], counts[blocks] = values[i], 1.0
        blocks += 1
        while (
            blocks > 1
            and sums[blocks - 2] * counts[blocks - 1] >= sums[blocks - 1] * counts[blocks - 2]
        ):
            sums[blocks - 2] += sums[blocks - 1]
            counts[blocks - 2] += counts[blocks - 1]
            blocks -= 1
    place = 0
    for block in range(blocks):
        level = min(max(sums[block] / counts[block], 0.0), 1.0)
        for _ in range(int(counts[block])):
            values[place] = level
            place += 1


@njit(cache=True, nogil=True, fastmath={"reassoc"})  # allows vectorized addition
def _product(left: Floats, right: Floats) -> float:
    total = 0.0
    for i in range(len(left)):
        total += left[i] * right[i]
    return total


@njit(cache=True, nogil=True)
def gradient_at(
    starts: Integers32,
    columns: Integers32,
    entries: Floats,
    up: Floats,
    across: Floats,
    target: Floats,
    at: Floats,
    residual: Floats,
    gradient: Floats,
) -> None:
    """Compute the gradient of half the sum of squares of at @ design - target, in place.

    The design is given by sparse rows, or as a full table if `starts` is empty. If `up` and
    `across` are not empty, points are first blurred along the axes of a grid.
    """
    blurred = len(up) > 0
    seen = np.dot(up.T, np.dot(at.reshape(len(up), len(across)), across)).ravel() if blurred else at
    residual[:] = -target
    if len(starts) == 0:
        design = entries.reshape(len(at), len(target))
        for i in range(len(at)):
            share = seen[i]
            row = design[i]
            if share != 0.0:
                for place in range(len(row)):
                    residual[place] += share * row[place]
        for i in range(len(at)):
            gradient[i] = _product(design[i], residual)
        return
    for i in range(len(at)):
        if seen[i] != 0.0:
            for place in range(starts[i], starts[i + 1]):
                residual[columns[place]] += seen[i] * entries[place]
    for i in range(len(at)):
        total = 0.0
        for place in range(starts[i], starts[i + 1]):
            total += entries[place] * residual[columns[place]]
        gradient[i] = total
    if blurred:
        gradient[:] = np.dot(up, np.dot(gradient.reshape(len(up), len(across)), across.T)).ravel()


@njit(cache=True, nogil=True)
def gap_at(at: Floats, gradient: Floats, rising: bool) -> float:
    """Upper bound on how far the objective is above its minimum (Frank-Wolfe gap).

    It is the largest decrease of the linearized objective over all feasible points.
    """
    here = 0.0
    best = math.inf
    tail = 0.0
    for i in range(len(at)):
        here += at[i] * gradient[i]
        best = min(best, gradient[i])
    if rising:  # the corners are 0 .. 0 1 .. 1
        best = 0.0
        for i in range(len(at) - 1, -1, -1):
            tail += gradient[i]
            best = min(best, tail)
    return here - best


@njit(cache=True, nogil=True)
def fit_rows(
    starts: Integers32,
    columns: Integers32,
    entries: Floats,
    up: Floats,
    across: Floats,
    targets: Floats,
    start: Floats,
    curvature: float,
    tolerance: float,
    max_steps: int,
    every: int,
    rising: bool,
) -> tuple[Floats, Floats, Integers32]:
    """Fit one row per row of targets by accelerated projected gradient from `start`.

    The gap is computed every `every` steps. Returns the fits, their gaps and their numbers of
    steps.
    """
    runs = len(targets)
    size = len(start)
    fitted = np.empty((runs, size))
    gaps = np.empty(runs)
    steps = np.empty(runs, dtype=np.int32)
    residual = np.empty(targets.shape[1])
    gradient = np.empty(size)
    ahead = np.empty(size)
    after = np.empty(size)
    sums = np.empty(size)
    counts = np.empty(size)
    for run in range(runs):
        here = fitted[run]
        here[:] = start
        ahead[:] = start
        momentum = 1.0
        step = 0
        while True:
            if step % every == 0 or step >= max_steps:
                gradient_at(
                    starts, columns, entries, up, across, targets[run], here, residual, gradient
                )
                gaps[run] = gap_at(here, gradient, rising)
                if gaps[run] <= tolerance or step >= max_steps:
                    break
            gradient_at(
                starts, columns, entries, up, across, targets[run], ahead, residual, gradient
            )
            for i in range(size):
                after[i] = ahead[i] - gradient[i] / curvature
            if rising:
                onto_rising(after, sums, counts)
            else:
                onto_shares(after)
            uphill = 0.0
            for i in range(size):
                uphill += (ahead[i] - after[i]) * (after[i] - here[i])
            momentum_next = 0.5 * (1.0 + math.sqrt(1.0 + 4.0 * momentum * momentum))
            carried = (momentum - 1.0) / momentum_next
            if uphill > 0.0:  # the last step went uphill: restart from here
                momentum_next = 1.0
                carried = 0.0
            for i in range(size):
                ahead[i] = after[i] + carried * (after[i] - here[i])
                here[i] = after[i]
            momentum = momentum_next
            step += 1
        steps[run] = step
    return fitted, gaps, steps
