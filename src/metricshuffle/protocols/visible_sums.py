"""Sums of residues that are seen where they are added: each is clamped, and sums are exact."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from metricshuffle.encodings import Modular, Unary
from metricshuffle.errors import PlanError
from metricshuffle.protocols.tally import exact_sums
from metricshuffle.randomizers.additive_randomizer import AdditiveRandomizer
from metricshuffle.randomizers.count_response import CountResponse

# Noise of shape 1 exceeds this number divided by its rate with probability at most 2 e^-70; in ten
# thousand million reports, with probability below 1e-19.
LARGEST_HONEST_NOISE = 70
Encodings = Sequence[Unary | Modular]


def honest_reach(randomizer: AdditiveRandomizer | CountResponse) -> int:
    """Cells beyond 0..top up to which a report with unbounded noise is not clamped.

    Statement: an honest report is farther away with probability at most 4 ceil(shape) e^-70.
    Proof: noise N_1 of shape 1 has P(|N_1| > r) = 2 e^(-rate (r+1))/(1 + e^-rate). Noise of a whole
    shape s is the sum of s noises of shape 1; if the sum exceeds r, one of them exceeds r/s. Noise
    N of a shape below 1 plus independent symmetric noise has shape 1, so P(N > r)/2 is at most
    P(N_1 > r); for other shapes, add noise up to the next whole shape. QED
    """
    if not isinstance(randomizer, AdditiveRandomizer):
        return 0
    return math.ceil(randomizer.shape) * math.ceil(LARGEST_HONEST_NOISE / randomizer.exact_rate)


def clamped_total(residues: NDArray[np.generic], encoding: Modular, top: int, reach: int) -> int:
    """Exact sum of visible numbers, each clamped to -reach..top+reach."""
    encoding.total(residues.astype(np.uint64, copy=False))  # raises if a number is no residue
    first, last = encoding.window(0, top)
    numbers = residues.astype(np.int64)
    numbers[numbers > last] -= encoding.modulus
    np.clip(numbers, max(first, -reach), min(last, top + reach), out=numbers)
    return exact_sums(numbers)[0]


def unwrapped(residues: Sequence[int], encodings: Encodings, tops: Sequence[int]) -> list[int]:
    """Exact sums from residues, as earlier versions stored them; each is expected in 0..top."""
    rows = zip(residues, encodings, tops, strict=True)
    return [_modular(encoding).centred(number, 0, top) for number, encoding, top in rows]


def within_window(totals: Sequence[int], encodings: Encodings, tops: Sequence[int]) -> list[int]:
    """Sums limited to the numbers that residues around 0..top represent."""
    rows = zip(totals, encodings, tops, strict=True)
    return [_modular(encoding).clamped(total, 0, top) for total, encoding, top in rows]


def _modular(encoding: Unary | Modular) -> Modular:
    if not isinstance(encoding, Modular):
        raise PlanError("these sums are not residues of a modulus; the task is damaged.")
    return encoding
