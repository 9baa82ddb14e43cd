"""Which pairs of inputs matter: of thousands of pairs of a channel, those that no other pair dominates in convex order."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from metricshuffle.citations import theorem

Floats = NDArray[np.float64]
Pair = tuple[int, int]

U = 2.0**-53
MARGIN = 1e-12


class Spread:
    """G = (K_a - e K_b)/w of one pair, sorted, with what is needed for E(G - t)_+ and E(t - G)_+ in one look-up."""

    def __init__(self, mass: Floats, value: Floats, doubt: Floats) -> None:
        order = np.argsort(value, kind="stable")
        self.value = value[order]
        self.doubt = doubt[order]
        columns = np.stack([mass[order], mass[order] * self.value, mass[order] * self.doubt])
        self.below = np.concatenate([np.zeros((3, 1)), np.cumsum(columns, axis=1)], axis=1)
        self.above = np.concatenate([np.cumsum(columns[:, ::-1], axis=1)[:, ::-1], np.zeros((3, 1))], axis=1)

    def sides(self, at: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        """(E(G-t)_+, its rounding error, E(t-G)_+, its rounding error) at every t of `at`."""
        left, right = np.searchsorted(self.value, at, side="left"), np.searchsorted(self.value, at, side="right")
        count, first, wide = self.above[:, right]
        calls, slack = first - at * count, 64.0 * U * (wide + np.abs(at) * count + np.abs(first)) * np.sqrt(self.value.size)
        count, first, wide = self.below[:, left]
        puts, other = at * count - first, 64.0 * U * (wide + np.abs(at) * count + np.abs(first)) * np.sqrt(self.value.size)
        return calls, slack, puts, other


class PairScan:
    """The ordered pairs of a channel, all over the blanket that every row contains.

    Conditions: no report that some rows have and others do not (`covered`).
    """

    def __init__(self, rows: Floats, pairs: Sequence[Pair]) -> None:
        self.rows = rows
        self.blanket = rows.min(axis=0)
        mirrored = np.array_equal(rows, rows[::-1, ::-1])
        last = len(rows) - 1
        # Mirrored pairs have the same laws, the reports renamed.
        self.pairs = [(a, b) for a, b in pairs if not mirrored or (a, b) <= (last - a, last - b)]

    @property
    def covered(self) -> bool:
        return bool(np.all((self.blanket > 1e-200) | (self.rows.max(axis=0) == 0.0)))

    @cached_property
    def _held(self) -> NDArray[np.bool_]:
        return np.asarray(self.blanket > 0.0)

    def spread(self, pair: Pair, growth: float) -> Spread:
        w = self.blanket[self._held]
        a, b = self.rows[pair[0]][self._held], self.rows[pair[1]][self._held]
        return Spread(w, (a - growth * b) / w, (a + growth * b) / w)

    def ranked(self, growth: float) -> list[Pair]:
        """The pairs, those with the largest variance of G first."""
        scaled = self.rows[:, self._held] / np.sqrt(self.blanket[self._held])
        gram = scaled @ scaled.T
        norms = np.diag(gram)
        spread = norms[:, None] + growth * growth * norms[None, :] - 2.0 * growth * gram
        return sorted(self.pairs, key=lambda pair: -float(spread[pair]))

    @theorem("metricshuffle", "dominated pairs of a channel")
    def dominated(self, pair: Pair, by: Spread, growth: float) -> bool:
        """Whether the pair's G is certainly below `by` in convex order, at e = growth; then so is its delta, for any number of users.

        Statement: E G = 1 - e for every pair, so G <= G' in convex order if E(G-t)_+ <= E(G'-t)_+ for all t; E(G'-t)_+ is
        linear between the values of G' and the other side convex, so its values decide. Convex order passes to sums of
        independent copies, and (.)_+ is convex. Numerics: the comparison is made for E(t-G)_+ below the mean and for E(G-t)_+
        above, where they are small, and must hold by more than the rounding error.
        """
        mine, mean = self.spread(pair, growth), 1.0 - growth
        edge = 64.0 * U * max(float(mine.doubt[-1]), float(mine.doubt[0]), float(by.doubt[0]), float(by.doubt[-1]))
        if not (mine.value[0] >= by.value[0] + edge and mine.value[-1] <= by.value[-1] - edge):
            return False
        calls, slack, puts, other = mine.sides(by.value)
        more_calls, more_slack, more_puts, more_other = by.sides(by.value)
        upper = calls * (1.0 + MARGIN) + slack + more_slack <= more_calls
        lower = puts * (1.0 + MARGIN) + other + more_other <= more_puts
        ends = np.zeros(by.value.size, dtype=bool)
        ends[[0, -1]] = True  # settled by the comparison of the extreme values
        ends |= (by.value <= by.value[0]) | (by.value >= by.value[-1])
        return bool(np.all(np.where(by.value > mean, upper, lower) | ends))

    def survivors(self, pairs: Sequence[Pair], champions: Sequence[Pair], growth: float) -> list[Pair]:
        """The pairs that no champion dominates, champions left out."""
        best = [self.spread(pair, growth) for pair in champions]
        return [pair for pair in pairs if pair not in champions and not any(self.dominated(pair, one, growth) for one in best)]
