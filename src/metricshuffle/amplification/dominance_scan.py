"""Selection of the pairs of a channel that no other pair dominates in convex order.

For a pair (a, b) let K_a and K_b be the laws of the reports of the two inputs, w the blanket (the
pointwise minimum of all laws of the channel) and e = e^epsilon. The blanket bound of the pair is
determined by the random variable G, which has the value (K_a(y) - e K_b(y))/w(y) with probability
w(y) for every report y, and the value 0 otherwise. (x)_+ means max(x, 0).
"""

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

    Conditions: each report is possible for every row or for no row (`covered`).
    """

    def __init__(self, rows: Floats, pairs: Sequence[Pair]) -> None:
        mirrored = np.array_equal(rows, rows[::-1, ::-1])
        support = rows.max(axis=0) > 0.0
        self.rows = np.ascontiguousarray(rows[:, support])
        self.blanket = self.rows.min(axis=0)
        last = len(rows) - 1
        known = set(pairs)
        # Mirrored pairs have the same laws with renamed reports.
        self.pairs: Pairs = np.array(
            [
                (a, b)
                for a, b in pairs
                if not mirrored
                or (a, b) <= (last - a, last - b)
                or (last - a, last - b) not in known
            ],
            dtype=np.int64,
        ).reshape(-1, 2)

    @property
    def covered(self) -> bool:
        return bool(np.all(self.blanket > MIN_MASS))

    def law(self, pair: Pair) -> BlanketLaw:
        """Return the law of the pair over the blanket of all rows."""
        return BlanketLaw(self.blanket, self.rows[pair[0]], self.rows[pair[1]])

    @cached_property
    def _gram(self) -> Floats:
        scaled = self.rows / np.sqrt(self.blanket)
        products: Floats = scaled @ scaled.T
        return products

    def ranked(self, growth: float) -> Pairs:
        """Return the pairs in descending order of the variance of G."""
        norms = np.diag(self._gram)
        spread = norms[:, None] + growth * growth * norms[None, :] - 2.0 * growth * self._gram
        return np.asarray(
            self.pairs[np.argsort(-spread[self.pairs[:, 0], self.pairs[:, 1]], kind="stable")]
        )

    @theorem("metricshuffle", "dominated pairs of a channel")
    def survivors(self, pairs: Pairs, champion: Pair, growth: float) -> Pairs:
        """Return the pairs that the champion does not certainly dominate at e = growth.

        Pairs whose G is below the champion's in convex order have a smaller delta.

        Statement: let G be the variable of a pair and G' that of the champion (see the module). E G
        = 1 - e for every pair, so G <= G' in convex order if E(G-t)_+ <= E(G'-t)_+ for all t. As a
        function of t, E(G'-t)_+ is linear between the values of G', and E(G-t)_+ is convex, so it
        is enough to compare them at the values of G'. Convex order is preserved by sums of
        independent copies, and (.)_+ is convex, so the delta of the pair is below the champion's at
        this e for any number of users.
        Numerics: E(t-G)_+ is compared for t below the mean and E(G-t)_+ for t above, where each is
        small. At and beyond the extreme values of G', the values of G must not be more extreme than
        those of G'. Every inequality must hold by more than the rounding error.
        """
        from metricshuffle.amplification import _pair_kernels as kernels

        left = kernels.undominated(
            self.rows,
            self.blanket,
            np.ascontiguousarray(pairs),
            np.array(champion, dtype=np.int64),
            growth,
        )
        return np.asarray(pairs[left])
