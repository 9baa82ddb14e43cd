"""Lower bound on the error of a private sum by any mechanism with the same guarantee."""

from __future__ import annotations

import math

import numpy as np

from metricshuffle.citations import theorem
from metricshuffle.errors import InputError
from metricshuffle.privacy.profile import checked_delta

# Radii tried; every one of them gives a true bound, so a coarse grid can only lose a little.
RADII = 4000


@theorem("metricshuffle", "packing bound")
def packing_bound(rate: float, delta: float, distance: float = math.inf) -> float:
    """Lower bound on the worst expected absolute error of a private sum, in the unit of the sum.

    Statement: M answers a sum so that any two data sets whose sums lie d <= distance apart are
    (rate * d, delta)- indistinguishable. Then for every integer t >= 1, with q = e^(-2 t rate) and
    J = floor(distance / 2t), some data set has
        E|M - sum| >= t (1 - delta - 1/S),   S = sum of q^|j| over -J <= j <= J;
    1/S = tanh(t rate) for distance = inf, and the best t gives about 0.278 / rate.
    Conditions: data sets with the sums s + 2tj exist for all |j| <= J. With n people's values in
    0..k that is so up to distance = n k / 2 (s in the middle); distance = inf therefore needs n k
    much larger than 1/rate, as J -> inf is assumed. The bound is about the worst of those data
    sets; for additive noise every data set has the same error.
    Proof: let b be the largest expected error and A_j = {|M - (s + 2tj)| < t}, which are disjoint.
    By Markov's inequality P_j(A_j) >= 1 - b/t, and privacy gives P_0(A_j) >= q^|j| (P_j(A_j) -
    delta). Summing over j, 1 >= sum_j P_0(A_j) >= S (1 - b/t - delta), which is the claim.
    Numerics: a maximum over radii t up to 2/rate (all of them, or 4000 spread geometrically),
    rounded down; 0 if none helps.
    Reference: this docstring.
    """
    if not 0.0 < rate < math.inf:
        raise InputError(f"rate must be a finite number > 0, got {rate!r}.")
    if not distance >= 0.0:
        raise InputError(f"distance must be a number >= 0, got {distance!r}.")
    last = max(1.0, math.ceil(2.0 / rate))
    radii = (
        np.arange(1.0, last + 1.0)
        if last <= RADII
        else np.unique(np.floor(np.geomspace(1.0, last, RADII)))
    )
    exponent = -2.0 * rate * radii
    steps = np.floor(distance / (2.0 * radii))
    # S - 1 = 2 q (1 - q^J) / (1 - q) without cancellation, and 1 - 1/S = (S - 1)/S.
    others = 2.0 * np.exp(exponent) * np.expm1(exponent * steps) / np.expm1(exponent)
    return max(
        0.0, float(np.max(radii * (others / (1.0 + others) * (1.0 - 1e-12) - checked_delta(delta))))
    )
