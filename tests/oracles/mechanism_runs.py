"""Repeated runs of a protocol with real reports, shuffling and estimates, without noise laws."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

from metricshuffle.protocols.sums import Sums
from metricshuffle.protocols.tally import Batch, Shuffled
from metricshuffle.queries import Inputs, Sum
from metricshuffle.randomness import Randomness
from metricshuffle.spaces import Integers

Floats = NDArray[np.float64]
DOUBT = 1e-7
"""Probability that a true claim is refuted; streams are seeded, so results are stable."""
ANY_QUERY = Sum(Integers(0, 1))
"""Placeholder query: protocols of sums take steps and ignore the query."""


def estimated_totals(protocol: Sums, steps: NDArray[np.int64], runs: int, seed: str) -> Floats:
    """`runs` estimates of the totals of one data set, one row each.

    `steps` has a row per person and a column per axis.
    """
    randomness = Randomness.seeded(seed)
    batch = Batch("")
    people = len(steps)
    together = protocol.messages(Inputs(ANY_QUERY, np.tile(steps, (runs, 1))), randomness)
    out = np.empty((runs, steps.shape[1]))
    for run in range(runs):
        tally = protocol.tally(batch).add(together[run * people : (run + 1) * people])
        shuffled = Shuffled(
            batch,
            people,
            tally.messages,
            protocol.published(ANY_QUERY, tally, randomness),
            protocol.modulus,
        )
        estimate = protocol.estimate(ANY_QUERY, shuffled)
        out[run] = estimate.totals + np.array(estimate.origin)[: steps.shape[1]]
    return out


def observed_sums(protocol: Sums, steps: NDArray[np.int64], runs: int, seed: str) -> Floats:
    """Sum of all axes' centred totals of each of `runs` shuffled batches, vectorised.

    An observer can compute it.
    """
    people = len(steps)
    width = protocol.shares if protocol.modulus is not None else 1
    messages = protocol.messages(
        Inputs(ANY_QUERY, np.tile(steps, (runs, 1))), Randomness.seeded(seed)
    )
    totals = np.zeros(runs)
    for axis, randomizer in enumerate(protocol.randomizers):
        mine = messages[:, axis * width : (axis + 1) * width].reshape(runs, people * width)
        if protocol.modulus is None:
            totals += mine.sum(axis=1)
        else:
            # shares stay below 2^62 / (people * width) in these tests, so nothing overflows
            residue = mine.astype(np.int64).sum(axis=1) % protocol.modulus
            top = people * randomizer.top
            totals += np.where(
                residue > (protocol.modulus + top) // 2, residue - protocol.modulus, residue
            )
    return totals


def certain_delta(first: Floats, second: Floats, epsilon: float) -> float:
    """Lower confidence bound on the hockey-stick divergence of two samples.

    By the best half-line of their first halves.
    """
    half = len(first) // 2
    grid = np.unique(np.concatenate([first[:half], second[:half]]))
    below = [
        np.searchsorted(np.sort(sample[:half]), grid, side="right") / half
        for sample in (first, second)
    ]
    best = 0.0
    for p, q, more, less in (
        (below[0], below[1], first, second),
        (1.0 - below[0], 1.0 - below[1], first, second),
    ):
        at = int(np.argmax(p - math.exp(epsilon) * q))
        upwards = p is not below[0]
        hits = [
            int(
                np.count_nonzero(
                    (sample[half:] > grid[at]) if upwards else (sample[half:] <= grid[at])
                )
            )
            for sample in (more, less)
        ]
        second_half = len(first) - half
        low = float(betaincinv(hits[0], second_half - hits[0] + 1, DOUBT)) if hits[0] else 0.0
        high = (
            float(betaincinv(hits[1] + 1, second_half - hits[1], 1.0 - DOUBT))
            if hits[1] < second_half
            else 1.0
        )
        best = max(best, low - math.exp(epsilon) * high)
    return best
