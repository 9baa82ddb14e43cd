"""How large residues must be for noisy sums not to wrap around. Accuracy only: privacy does not depend on it."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction

import numpy as np

from metricshuffle.citations import theorem
from metricshuffle.errors import InputError, NotCertified
from metricshuffle.noise.polya import Polya
from metricshuffle.numerics.types import Floats

WRAP_PROBABILITY = 1e-12
MAX_BITS = 60


@theorem("metricshuffle", "Noisy vectors, the chance that a sum wraps around")
def wrap_probability(rates: Floats, margin: int, shape: Fraction | float = 1) -> float:
    """Upper bound on P(|Z_e| > margin for some e), Z_e Polya noise of that shape (people over honest) and of the rate rates[e].

    Statement: for shape 1 P(|Z| > R) = 2 p^(R+1)/(1+p), p = e^-rate; otherwise Chernoff's bound. Coordinates are added up.
    Conditions: the noise has the shape given, no more: everybody present counts, honest or not.
    Numerics: rounded up. Reference: the geometric series; `Polya.mass_beyond`.
    """
    if isinstance(margin, bool) or not isinstance(margin, int) or margin < 0:
        raise InputError(f"margin must be a whole number >= 0, got {margin!r}.")
    if not np.all(rates > 0.0):
        raise InputError("rates must be > 0.")
    total = 0.0
    for rate, count in Counter(np.asarray(rates, dtype=np.float64).tolist()).items():
        each = _tail_bound(rate, margin) if shape == 1 else Polya(Fraction(shape), rate).mass_beyond(margin + 1)
        total += count * min(each, 1.0)
    # what underflows is positive all the same
    return min(1.0, math.nextafter(total * (1.0 + 1e-12), math.inf))


def residue_bits(people: int, top: int, rates: Floats, shape: Fraction | float = 1, chance: float = WRAP_PROBABILITY) -> int:
    """The least bits b such that sums of 0..top over all people, with their noise, fit 2^b residues but for that chance.

    Half of the residues that the sums themselves do not need are left on either side.
    """
    if people < 1 or top < 1:
        raise InputError(f"people and top must be whole numbers >= 1, got {people!r} and {top!r}.")
    if not 0.0 < chance < 1.0:
        raise InputError(f"chance must lie between 0 and 1, got {chance!r}.")
    for bits in range((people * top).bit_length(), MAX_BITS + 1):
        if wrap_probability(rates, ((1 << bits) - people * top - 1) // 2, shape) <= chance:
            return bits
    raise NotCertified(
        f"sums of {people:,} times {top:,} with that much noise do not fit {MAX_BITS} bits; use larger rates or fewer units."
    )


def _tail_bound(rate: float, margin: int) -> float:
    """2 p^(margin+1)/(1+p), the exponent's rounding error included."""
    exponent = -rate * (margin + 1.0)
    return 2.0 * math.exp(exponent * (1.0 - 1e-14)) / (1.0 + math.exp(-rate)) * (1.0 + 1e-14)
