"""Changes of a person's integer features, and their pure loss when only the noisy sums are seen.

The feature sets list the changes of each move; the accounts of noisy vectors compute losses from
them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from metricshuffle.citations import theorem
from metricshuffle.errors import InputError
from metricshuffle.numerics.rounding import never_small, round_up
from metricshuffle.numerics.types import Floats, Integers64


@dataclass(frozen=True, eq=False)
class FeatureChanges:
    """One move: counts[i] coordinates with noise of rate rates[i] change by sizes[i] each.

    The other coordinates do not change.
    """

    rates: Floats
    sizes: Integers64
    counts: Integers64

    def __post_init__(self) -> None:
        if not (len(self.rates) == len(self.sizes) == len(self.counts)):
            raise InputError("rates, sizes and counts of changes must have the same length.")
        if not (np.all(self.rates > 0.0) and np.all(self.sizes >= 0) and np.all(self.counts >= 0)):
            raise InputError("changes must have rates > 0, and whole sizes and counts >= 0.")


@theorem("metricshuffle", "Noisy vectors, ideal sums: pure, for people together")
def ideal_loss(changes: FeatureChanges) -> float:
    """Sum of rate * size * count, rounded up: the pure loss of a move if only noisy sums are seen.

    Statement: each person with the value x has whole numbers (features) phi_e(x), e = 1..K, and
    adds to each an independent Polya share of shape 1/h and rate a_e, where h is the number of
    honest people that the noise is planned for. For data X and X', in which person u has the values
    x_u and x'_u, of any number of people, the sums, also modulo anything, have log likelihood
    ratios of at most

        sum_e a_e |sum_u (phi_e(x_u) - phi_e(x'_u))| <= sum_u sum_e a_e |phi_e(x_u) - phi_e(x'_u)|.

    So the losses of people who move together at most add up, and if every move costs at most slope
    * distance, `PureProfile(slope)` is the profile of them all. The bound is attained (up to the
    modulus) if one coordinate changes in one direction for all who move.
    Conditions: at least h honest people add their shares to EVERY sum; participation depends
    neither on the data nor on the noise, and the number of participants is public; noise is
    independent over people and coordinates; the rates given are not below those of the noise. With
    fewer than h the sums have a shape below 1, and the loss grows by much more than in proportion
    (`Polya.pure`).
    Proof: any h shares of shape 1/h sum to a discrete Laplace variable of rate a_e, whose mass
    falls by at most the factor e^(-a_e) per step; more shares, the values of those who do not move
    and the modulus are post-processing; coordinates are independent, so losses add. Rounds are
    further coordinates: their losses add, too.
    Numerics: rounded up.
    Reference: docs/proofs/noisy-vectors.md, (a).
    """
    losses = changes.rates * changes.sizes.astype(np.float64) * changes.counts.astype(np.float64)
    return never_small(round_up(float(np.sum(losses)), 8 + 2 * len(losses)))
