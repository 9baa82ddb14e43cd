"""Compiled steps towards the shares of least squares; imported only where used (numba costs 0.3 s)."""

# numba's decorators carry no types.
# mypy: disable-error-code="untyped-decorator, no-any-return"
from __future__ import annotations

import math

import numpy as np
from numba import njit

from metricshuffle.numerics.types import Floats, Integers32


@njit(cache=True, nogil=True)
def onto_shares(values: Floats) -> None:
    """In place, the nearest point whose coordinates are >= 0 and sum to one: max(values - t, 0).

    t rises to its place: the t for which all of those above the last t sum to one is never too large (Michelot 1986).
    """
    count = len(values)
    level = (values.sum() - 1.0) / count
    while True:
        left, total = 0, 0.0
        for i in range(count):
            if values[i] > level:
                left += 1
                total += values[i]
        if left == 0 or not (total - 1.0) / left > level:
            break
        level = (total - 1.0) / left
    for i in range(count):
        values[i] = max(values[i] - level, 0.0)


@njit(cache=True, nogil=True)
def onto_rising(values: Floats, sums: Floats, counts: Floats) -> None:
    """In place, the nearest rising sequence within 0..1: neighbours that fall are pooled, then cut off. Two columns to work in."""
    blocks = 0
    for i in range(len(values)):
        sums[blocks], counts[blocks] = values[i], 1.0
        blocks += 1
        while blocks > 1 and sums[blocks - 2] * counts[blocks - 1] >= sums[blocks - 1] * counts[blocks - 2]:
            sums[blocks - 2] += sums[blocks - 1]
            counts[blocks - 2] += counts[blocks - 1]
            blocks -= 1
    place = 0
    for block in range(blocks):
        level = min(max(sums[block] / counts[block], 0.0), 1.0)
        for _ in range(int(counts[block])):
            values[place] = level
            place += 1


@njit(cache=True, nogil=True, fastmath={"reassoc"})  # so that the compiler adds several at a time
def _product(left: Floats, right: Floats) -> float:
    total = 0.0
    for i in range(len(left)):
        total += left[i] * right[i]
    return total


@njit(cache=True, nogil=True)
def gradient_at(
    starts: Integers32, columns: Integers32, entries: Floats, up: Floats, across: Floats, target: Floats, at: Floats, residual: Floats,
    gradient: Floats,
) -> None:  # fmt: skip
    """Of half the sum of squares of at @ design - target, the design given by rows, or full if there are no `starts`; points are first
    blurred along the axes of a grid, if `up` and `across` are not empty."""
    blurred = len(up) > 0
    seen = np.dot(up.T, np.dot(at.reshape(len(up), len(across)), across)).ravel() if blurred else at
    residual[:] = -target
    if len(starts) == 0:
        design = entries.reshape(len(at), len(target))
        for i in range(len(at)):
            share, row = seen[i], design[i]
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
    """How much a straight move to any other possible point would gain at most, which is more than any move can."""
    here, best, tail = 0.0, math.inf, 0.0
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
def nearest(
    starts: Integers32, columns: Integers32, entries: Floats, up: Floats, across: Floats, targets: Floats, start: Floats, curvature: float,
    tolerance: float, max_steps: int, every: int, rising: bool,
) -> tuple[Floats, Floats, Integers32]:  # fmt: skip
    """A row for each row of targets: accelerated projected gradient from `start`; the gaps, and how many steps were made."""
    runs, size = len(targets), len(start)
    fitted, gaps, steps = np.empty((runs, size)), np.empty(runs), np.empty(runs, dtype=np.int32)
    residual, gradient = np.empty(targets.shape[1]), np.empty(size)
    ahead, after, sums, counts = np.empty(size), np.empty(size), np.empty(size), np.empty(size)
    for run in range(runs):
        here = fitted[run]
        here[:] = start
        ahead[:] = start
        momentum = 1.0
        step = 0
        while True:
            if step % every == 0 or step >= max_steps:
                gradient_at(starts, columns, entries, up, across, targets[run], here, residual, gradient)
                gaps[run] = gap_at(here, gradient, rising)
                if gaps[run] <= tolerance or step >= max_steps:
                    break
            gradient_at(starts, columns, entries, up, across, targets[run], ahead, residual, gradient)
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
            if uphill > 0.0:  # it runs the wrong way: start again from here
                momentum_next, carried = 1.0, 0.0
            for i in range(size):
                ahead[i] = after[i] + carried * (after[i] - here[i])
                here[i] = after[i]
            momentum = momentum_next
            step += 1
        steps[run] = step
    return fitted, gaps, steps
