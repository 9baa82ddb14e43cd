"""Pairs of real numbers up to a distance, for randomizers that round at random to a grid."""

from __future__ import annotations

import math
from typing import TypeGuard

import numpy as np

from metricshuffle.citations import theorem
from metricshuffle.numerics.types import Floats
from metricshuffle.privacy.profile import validate_distance
from metricshuffle.randomizers.bounded_geometric import LaplaceOnInterval
from metricshuffle.randomizers.randomizer import Pair, has_law_of
from metricshuffle.randomizers.witch_hat import WitchHat

RealLine = LaplaceOnInterval | WitchHat
STEP_TOLERANCE = 1e-12  # relative; a distance this close to whole steps counts as whole steps


def steps_within(line: RealLine, distance: float) -> tuple[int, float]:
    """Return the distance in steps, as whole steps and a remainder."""
    steps = validate_distance(distance) / line.step
    whole = round(steps)
    if abs(steps - whole) <= STEP_TOLERANCE * max(steps, 1.0):
        return whole, 0.0
    return math.floor(steps), steps - math.floor(steps)


@theorem("metricshuffle", "real numbers between grid points")
def real_pairs(line: RealLine, distance: float) -> tuple[Floats, list[Pair]]:
    """Return laws and ordered pairs of them that represent all pairs of real numbers.

    The laws of the grid points come first; the pairs represent all pairs up to the distance.

    Statement: let h be the step and distance = (k + f) h with k whole and 0 <= f < 1. In units of
    h, the pairs are those of grid points at most k steps apart, and those of a grid point i with
    i+k+f and with i-k-f, in both orders.
    Proof: the law of a real number is linear between neighbouring grid points, so on each square
    between grid lines the pair of laws of two numbers (x, x') is affine. The divergence of shuffled
    reports is jointly convex in the two laws. So over the part of the square where |x - x'| <=
    distance, which is a polygon, it is largest at a corner. The corners are pairs of grid points,
    or lie where the line x - x' = +-distance crosses a grid line.
    Conditions: random rounding as in `rounded_places`.
    Numerics: laws between grid points are right to a few units; a distance within 1e-12 of whole
    steps counts as whole steps.
    """
    whole, remainder = steps_within(line, distance)
    grid = line.rows()
    last = line.inputs - 1
    codes = np.arange(line.inputs)
    grid_pairs = [
        (int(a), int(b)) for a, b in np.argwhere(np.abs(codes[:, None] - codes) <= whole) if a != b
    ]
    if remainder == 0.0 or whole >= last:
        return grid, grid_pairs
    # Row last + 1 + i is the law of i + remainder, row last + 1 + last + i that of
    # i + 1 - remainder.
    between = [(1.0 - part) * grid[:-1] + part * grid[1:] for part in (remainder, 1.0 - remainder)]
    up = [(a, last + 1 + a + whole) for a in range(last - whole)]
    down = [(a, last + 1 + last + a - whole - 1) for a in range(whole + 1, last + 1)]
    return np.concatenate([grid, *between]), grid_pairs + [
        pair for first, second in up + down for pair in ((first, second), (second, first))
    ]


def takes_real_numbers(source: object) -> TypeGuard[RealLine]:
    """Return whether the source takes real numbers, by random rounding to its grid."""
    return has_law_of(source, LaplaceOnInterval) or has_law_of(source, WitchHat)
