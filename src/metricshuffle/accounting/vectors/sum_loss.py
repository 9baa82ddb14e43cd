"""What noisy sums of whole-number features hide from somebody who sees the sums alone."""

from __future__ import annotations

import numpy as np

from metricshuffle.accounting.vectors.feature_changes import FeatureChanges
from metricshuffle.citations import theorem
from metricshuffle.numerics.rounding import never_small, round_up


@theorem("metricshuffle", "Noisy vectors, ideal sums: pure, for people together")
def ideal_loss(changes: FeatureChanges) -> float:
    """Sum of rate * size * count, rounded up: the pure loss of a move when only the noisy sums are seen.

    Statement: everybody holds whole numbers phi_e(x), e = 1..K, and adds an independent Polya share of shape 1/h and rate a_e to each.
    For data X, X' of any number of people the sums, also modulo anything, have log likelihood ratios of at most
        sum_e a_e |sum_u (phi_e(x_u) - phi_e(x'_u))| <= sum_u sum_e a_e |phi_e(x_u) - phi_e(x'_u)|,
    so the losses of people who move together add up at most, and if every move costs at most slope * distance, `PureProfile(slope)`
    is the profile of them all. It is attained (up to the modulus) if one coordinate changes in one direction in all who move.
    Conditions: at least h honest people add their shares to EVERY sum; taking part depends neither on the data nor on the noise, and how
    many take part is public; noise is independent over people and coordinates; the rates given are not below those of the noise.
    With fewer than h the sums have a shape below 1, and the loss grows by much more than in proportion (`Polya.pure`).
    Proof: any h shares of shape 1/h sum to a discrete Laplace variable of rate a_e, whose mass falls by at most e^(-a_e) a step; more
    shares, the values of those who do not move and the modulus are post-processing; coordinates are independent, so losses add.
    Rounds are further coordinates: their losses add, too.
    Numerics: rounded up.
    Reference: docs/proofs/noisy-vectors.md, (a).
    """
    losses = changes.rates * changes.sizes.astype(np.float64) * changes.counts.astype(np.float64)
    return never_small(round_up(float(np.sum(losses)), 8 + 2 * len(losses)))
