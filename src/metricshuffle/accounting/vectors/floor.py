"""A floor under the fallback: the value itself is randomized first, so that even a vector seen alone keeps something."""

from __future__ import annotations

import math

from metricshuffle.citations import theorem
from metricshuffle.errors import InputError
from metricshuffle.privacy.profile import validate_distance


@theorem("metricshuffle", "Noisy vectors, values randomized first: what is left if the shuffler colludes")
def floor_loss(rate: float, steps: float) -> float:
    """rate * steps, rounded up: the pure loss of everything that one person sends, if her value was randomized first.

    Statement: every axis of a point of a line or a grid gets two-sided geometric noise of `rate` a step and is clamped to its range, and
    what is sent depends on the result alone. Then whoever sees all of it loses at most rate * |x - y|_1; and `ideal_loss`, its slope,
    `LargeMoves.delta` and the mixing term stay true of the values before they were randomized.
    Conditions: a line, or a grid axis by axis, and features whose losses are bounded by a function that does not fall in the steps of
    either axis: thresholds, ramps, cells, shifted boxes, or any set by its slope. ONE public number of items for everybody; every item has
    noise of its own, and `steps` adds up over matched items. Neither for people with different numbers of items (`rounding_factor`)
    nor on trees and other metrics: there the promise about sums becomes false. Rounds add up, unless the value is randomized once.
    For Euclidean distances take steps = sqrt(2) * distance / cell.
    Proof: docs/proofs/noisy-vectors.md, (g); counterexamples in (h).
    Numerics: rounded up.
    """
    if not (isinstance(rate, int | float) and 0.0 < rate < math.inf):
        raise InputError(f"rate must be a finite number > 0, got {rate!r}.")
    steps = validate_distance(steps)
    return math.nextafter(rate * steps, math.inf) if steps else 0.0
