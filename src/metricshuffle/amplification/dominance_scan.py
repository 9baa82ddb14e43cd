"""Which pairs of inputs matter: of thousands of pairs of a channel, those that no other pair dominates in convex order."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from metricshuffle.accounting.shuffling.blanket_law import MIN_MASS, BlanketLaw
from metricshuffle.citations import theorem
from metricshuffle.numerics.types import Floats, Integers64

Pairs = Integers64
Pair = tuple[int, int]


class PairScan:
    """The ordered pairs of a channel, all over the blanket that every row contains.

    Conditions: no report that some rows have and others do not (`covered`).
    """

    def __init__(self, rows: Floats, pairs: Sequence[Pair]) -> None:
        mirrored = np.array_equal(rows, rows[::-1, ::-1])
        support = rows.max(axis=0) > 0.0
        self.rows = np.ascontiguousarray(rows[:, support])
        self.blanket = self.rows.min(axis=0)
        last, known = len(rows) - 1, set(pairs)
        # Mirrored pairs have the same laws, the reports renamed.
        self.pairs: Pairs = np.array(
            [(a, b) for a, b in pairs if not mirrored or (a, b) <= (last - a, last - b) or (last - a, last - b) not in known],
            dtype=np.int64,
        ).reshape(-1, 2)

    @property
    def covered(self) -> bool:
        return bool(np.all(self.blanket > MIN_MASS))

    def law(self, pair: Pair) -> BlanketLaw:
        """The pair over the blanket of all rows."""
        return BlanketLaw(self.blanket, self.rows[pair[0]], self.rows[pair[1]])

    @cached_property
    def _gram(self) -> Floats:
        scaled = self.rows / np.sqrt(self.blanket)
        products: Floats = scaled @ scaled.T
        return products

    def ranked(self, growth: float) -> Pairs:
        """The pairs, those with the largest variance of G first."""
        norms = np.diag(self._gram)
        spread = norms[:, None] + growth * growth * norms[None, :] - 2.0 * growth * self._gram
        return np.asarray(self.pairs[np.argsort(-spread[self.pairs[:, 0], self.pairs[:, 1]], kind="stable")])

    @theorem("metricshuffle", "dominated pairs of a channel")
    def survivors(self, pairs: Pairs, champion: Pair, growth: float) -> Pairs:
        """The pairs whose G is not certainly below the champion's in convex order, at e = growth; the others have a smaller delta.

        Statement: E G = 1 - e for every pair, so G <= G' in convex order if E(G-t)_+ <= E(G'-t)_+ for all t; E(G'-t)_+ is
        linear between the values of G' and the other side convex, so its values decide. Convex order passes to sums of
        independent copies, and (.)_+ is convex, so delta is below the champion's at this e for any number of users.
        Numerics: compared are E(t-G)_+ below the mean and E(G-t)_+ above, where they are small; at and beyond the extreme values
        of G' these must be extreme for both. Everything must hold by more than the rounding error.
        """
        from metricshuffle.amplification import _pair_kernels as kernels

        left = kernels.undominated(self.rows, self.blanket, np.ascontiguousarray(pairs), np.array(champion, dtype=np.int64), growth)
        return np.asarray(pairs[left])
