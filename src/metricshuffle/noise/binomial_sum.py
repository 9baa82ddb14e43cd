"""Law of the number of ones after every bit was flipped with the same probability.

The profile of RR-Shuffle (accounting/sums/flipped_bit_count.py) and the sum protocols use it.
Notation: `ones` bits are 1 and `zeros` bits are 0 before they are flipped, each with probability
`flip`; Y is the number of ones afterwards, and f its law.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from metricshuffle.citations import theorem
from metricshuffle.errors import InputError, NotCertified
from metricshuffle.numerics.types import Floats

MAX_CELLS = 20_000_000
LOG_TAIL = -100.0  # the omitted part of a law has mass below 2 e^-100 = 7.5e-44
SMALLEST_FLIP = 1e-12


def validate_flip(flip: float) -> float:
    """Return flip as a float; raise InputError unless it lies in [1e-12, 1/2)."""
    if not (isinstance(flip, int | float) and SMALLEST_FLIP <= flip < 0.5):
        raise InputError(
            "flip, the probability that a bit is sent inverted, must lie in [1e-12, 0.5), "
            f"got {flip!r}."
        )
    return float(flip)


@dataclass(frozen=True, eq=False)
class BitCountLaw:
    """Law of the count on start..start+len(mass)-1, rescaled to sum to one there.

    Compared with the true law given that the count lies in this range, log mass[i] has an error of
    at most `total`, and log(mass[i] / mass[i-1]) one of at most `local`. `local` is much smaller,
    which a hockey-stick divergence between close laws needs. The count lies outside of the range
    with probability at most `outside`.
    """

    start: int
    mass: Floats
    local: float
    total: float
    outside: float


@theorem("metricshuffle", "Bernstein range of a bit count")
def bit_count_range(ones: int, zeros: int, flip: float) -> tuple[int, int]:
    """Range low..high that the count leaves with probability at most 2 e^-100.

    Statement: the count Y has P(|Y - E Y| >= t) <= 2 exp(-t^2 / (2 (V + t/3))), where V = (ones +
    zeros) flip (1 - flip) is its variance; t makes this bound 2 e^-100.
    Conditions: independent bits.
    Numerics: t is enlarged by 1e-9 and one cell.
    Reference: Bernstein's inequality.
    """
    variance = (ones + zeros) * flip * (1.0 - flip)
    radius = (-LOG_TAIL / 3.0 + math.sqrt(LOG_TAIL**2 / 9.0 - 2.0 * LOG_TAIL * variance)) * (
        1.0 + 1e-9
    ) + 1.0
    mean = ones * (1.0 - flip) + zeros * flip
    return max(0, math.floor(mean - radius)), min(ones + zeros, math.ceil(mean + radius))


@theorem("metricshuffle", "ratio recurrence of two binomials")
def bit_count_law(
    ones: int, zeros: int, flip: float, low: int | None = None, high: int | None = None
) -> BitCountLaw:
    """Law of Bin(ones, 1 - flip) + Bin(zeros, flip).

    Statement: let f be the law, N = ones + zeros and x = flip/(1-flip). The ratios f(k)/f(k-1) obey
    a two-term recurrence that contracts from both ends towards its turning point, and lie in
    (N-k+1)/k * [x, 1/x]. Reason for the interval: k f(k) = sum_i l_i g_i and (N-k+1) f(k-1) = sum_i
    (1-l_i) g_i, where l_i, equal to flip or 1 - flip, is the probability that bit i is 1 after
    flipping, and g_i = P(all bits except i sum to k-1). See _binomial_kernels.two_binomials.
    Conditions: 0 < flip < 1/2; low..high, if given, must contain the Bernstein range. At most 2e7
    cells.
    Numerics: intervals rounded outwards; normalised by the sum over the range.
    Reference: this docstring.
    """
    from metricshuffle.noise import _binomial_kernels as kernels

    inner = bit_count_range(ones, zeros, flip)
    low = inner[0] if low is None else low
    high = inner[1] if high is None else high
    if not (0 <= low <= inner[0] and inner[1] <= high <= ones + zeros):
        raise InputError(
            f"the range {low}..{high} must contain {inner[0]}..{inner[1]} and lie in "
            f"0..{ones + zeros}."
        )
    if high - low >= MAX_CELLS:
        raise NotCertified(
            f"the count of {ones + zeros:.3g} bits would need {high - low + 1:.3g} cells, "
            f"more than {MAX_CELLS:.0e}; "
            f"use fewer bits, fewer flips or a shorter distance."
        )
    # The influence of the first ratio decreases like exp(-t^2/2) over t standard deviations, so
    # starting eight of them farther out is more than enough.
    warm_up = int(8.0 * math.sqrt((ones + zeros) * flip * (1.0 - flip))) + 64
    mass, local, total = kernels.two_binomials(ones, zeros, flip, low, high, warm_up)
    if not (np.isfinite(mass).all() and total < 0.1):
        raise NotCertified(
            f"the count of {ones + zeros:.3g} bits at flip {flip!r} could not be certified "
            f"(log error {total!r}); use fewer bits."
        )
    return BitCountLaw(low, mass, local, total, 2.0 * math.exp(LOG_TAIL) * (1.0 + 1e-9) + 1e-240)
