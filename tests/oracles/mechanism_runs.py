"""A protocol run many times: real reports, real shuffling, real estimates. Nothing here knows a noise law."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

from metricshuffle.protocols import Shuffled
from metricshuffle.protocols.base import Reports
from metricshuffle.protocols.sums import SumProtocol
from metricshuffle.randomness import Randomness

Floats = NDArray[np.float64]
DOUBT = 1e-7
"""Chance that a true claim is refuted; streams are seeded, so what passes once passes always."""


def estimated_totals(mechanism: SumProtocol, steps: NDArray[np.int64], runs: int, seed: str) -> Floats:
    """`runs` estimates of the totals (one row each) of one data set; `steps` has a row a person, a column an axis."""
    randomness = Randomness.seeded(seed)
    people = len(steps)
    together = mechanism.records(np.tile(steps, (runs, 1)), randomness)
    out = np.empty((runs, steps.shape[1]))
    for run in range(runs):
        batch: list[Any] = [Reports("", together[run * people : (run + 1) * people], True)]
        shuffled: Shuffled = mechanism.shuffled("", batch, randomness)
        out[run] = mechanism.totals(shuffled)
    return out


def observed_sums(mechanism: SumProtocol, steps: NDArray[np.int64], runs: int, seed: str) -> Floats:
    """What an observer can compute from each of `runs` shuffled batches: the sum of all axes' centred totals, vectorised."""
    people, width = len(steps), mechanism.messages if mechanism.modulus is not None else 1
    records = mechanism.records(np.tile(steps, (runs, 1)), Randomness.seeded(seed))
    totals = np.zeros(runs)
    for axis, randomizer in enumerate(mechanism.randomizers):
        mine = records[:, axis * width : (axis + 1) * width].reshape(runs, people * width)
        if mechanism.modulus is None:
            totals += mine.sum(axis=1)
        else:
            # shares stay below 2^62 / (people * width) in these tests, so nothing overflows
            residue = mine.astype(np.int64).sum(axis=1) % mechanism.modulus
            top = people * randomizer.top
            totals += np.where(residue > (mechanism.modulus + top) // 2, residue - mechanism.modulus, residue)
    return totals


def certain_delta(first: Floats, second: Floats, epsilon: float) -> float:
    """Lower confidence bound on the hockey-stick divergence of two samples, by the best half-line of their first halves."""
    half = len(first) // 2
    grid = np.unique(np.concatenate([first[:half], second[:half]]))
    below = [np.searchsorted(np.sort(sample[:half]), grid, side="right") / half for sample in (first, second)]
    best = 0.0
    for p, q, more, less in ((below[0], below[1], first, second), (1.0 - below[0], 1.0 - below[1], first, second)):
        at = int(np.argmax(p - math.exp(epsilon) * q))
        upwards = p is not below[0]
        hits = [int(np.count_nonzero((sample[half:] > grid[at]) if upwards else (sample[half:] <= grid[at]))) for sample in (more, less)]
        rest = len(first) - half
        low = float(betaincinv(hits[0], rest - hits[0] + 1, DOUBT)) if hits[0] else 0.0
        high = float(betaincinv(hits[1] + 1, rest - hits[1], 1.0 - DOUBT)) if hits[1] < rest else 1.0
        best = max(best, low - math.exp(epsilon) * high)
    return best
