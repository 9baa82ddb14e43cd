"""Lower bound for accountants of shuffled items: an attack on binary randomized response.

Two values are a diameter apart.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from metricshuffle.accounting.user_items.item_reports import ItemShuffle, ItemWiseProfile
from metricshuffle.accounting.user_items.move_composition import LARGEST_EXPONENT
from metricshuffle.noise.binomial_sum import bit_count_law
from metricshuffle.privacy.profile import LowerProfile, checked_epsilon, validate_distance

U = 2.0**-53


@dataclass(frozen=True)
class BinaryItemsLower(LowerProfile):
    """Item reports that are as little private as item_rate * diameter allows.

    All items but the user's hold the first value.
    """

    item_rate: float
    shuffle: ItemShuffle
    bound: str = "binary randomized response"

    def __post_init__(self) -> None:
        ItemWiseProfile(self.item_rate, self.shuffle)

    def delta(self, epsilon: float, distance: float) -> float:
        """Lower bound on delta.

        Statement: j = floor(items * distance/diameter) items of the user move from the first value
        to the second. The number of reports of the second value goes from Q = Bin(N, b) to P =
        Bin(j, 1-b) + Bin(N-j, b), b = 1/(1 + e^(item_rate diameter)), so P(>= k) - e^epsilon Q(>=
        k), for any k, is a lower bound on delta. The likelihood ratio grows in the count, so the
        best k is the optimal test of this data set.
        Conditions: none; 1e-12 <= b.
        Numerics: P rounded down, Q's tail up; 0 where neither is informative.
        Reference: Neyman and Pearson; bit_count.py.
        """
        from metricshuffle.accounting.shuffling._binomial_tail_kernels import log_pmf, upper_tail

        epsilon = checked_epsilon(epsilon)
        share = min(1.0, validate_distance(distance) / self.shuffle.diameter)
        moved = math.floor(self.shuffle.items * share * (1.0 - 4.0 * U))
        count = float(self.shuffle.shuffled)
        moved = self.shuffle.items if share == 1.0 else moved
        total = self.item_rate * self.shuffle.diameter * (1.0 - 4.0 * U)
        flip = 1.0 / (1.0 + math.exp(total)) * (1.0 + 4.0 * U)
        if moved == 0 or epsilon > LARGEST_EXPONENT or not flip < 0.5:
            return 0.0
        law = bit_count_law(moved, self.shuffle.shuffled - moved, flip)
        above = (
            np.cumsum(law.mass[::-1])[::-1]
            * math.exp(-law.total)
            * (1.0 - law.outside)
            * (1.0 - U * law.mass.size)
        )
        with np.errstate(divide="ignore"):
            log_mass = np.log(law.mass)
        first = 0
        last = law.mass.size - 1
        while first < last:  # the first count that speaks for P
            middle = (first + last) // 2
            speaks = (
                log_mass[middle] - log_pmf(float(law.start + middle), count, flip, 1.0 - flip)[0]
                > epsilon
            )
            first, last = (first, middle) if speaks else (middle + 1, last)
        best = 0.0
        for k in (first - 1, first, first + 1):
            if 0 <= k < law.mass.size and law.start + k > count * flip + 1.0:
                tail = upper_tail(float(law.start + k), count, flip, 1.0 - flip)[1]
                best = max(best, float(above[k]) - math.exp(epsilon) * tail * (1.0 + 1e-12))
        return best
