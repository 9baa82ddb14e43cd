"""Partition families: public partitions of the points, each of which is counted by itself."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from metricshuffle.errors import InputError
from metricshuffle.numerics.types import Floats, Integers64
from metricshuffle.protocols.features import Features, Ramps
from metricshuffle.protocols.features.feature_set import feature_table
from metricshuffle.randomness import Randomness
from metricshuffle.spaces import Space


@dataclass(frozen=True, eq=False)
class PartitionFamily:
    """Piles of messages: every point is in one part of each pile, whose index is the message.

    `features` are the indicators of the parts, from which shares are estimated. A pile of several
    features has one part for each, and independent dummies. A pile of one feature has two parts
    (without and with it) and complementary dummies: Z of one part and 2t - Z of the other, with t
    their mean. Ramps wider than one threshold are random: let v be the number of thresholds of a
    window of `width` thresholds at or above the point; its bit is 1 with probability v/`width`.
    """

    features: Features
    space: Space
    table: Integers64
    """For every point, its part of each pile, or for piles of two parts the number v."""
    sizes: Integers64
    """Number of parts of each pile."""
    complementary: bool
    width: int = 1

    @property
    def piles(self) -> int:
        return len(self.sizes)

    @property
    def parts(self) -> int:
        """Number of parts of all piles."""
        return int(self.sizes.sum())

    @cached_property
    def starts(self) -> Integers64:
        """Index of the first part of each pile among all parts."""
        return np.concatenate([[0], np.cumsum(self.sizes)[:-1]]).astype(np.int64)

    @property
    def sides(self) -> int:
        """Number of counts that change if a person's part of a pile changes."""
        return 1 if self.complementary else 2

    @cached_property
    def slope(self) -> float:
        """Largest change of all counts in sum, per unit of distance of two points; rounded up.

        For random ramps it is the number of thresholds that are crossed.
        """
        ones = np.ones(len(self.features.weights(self.space)))
        return self.features.slope(self.space, ones)

    def changed(self, distance: float) -> int:
        """Largest number of counts that a move of one point within a distance changes."""
        ones = np.ones(len(self.features.weights(self.space)))
        moves = self.features.moves(self.space, ones, distance)
        return max((int((move.sizes * move.counts).sum()) for move in moves), default=0)

    def drawn_parts(self, codes: Integers64, randomness: Randomness) -> Integers64:
        """Part of each pile for points with these codes, one row each; ramps draw their bits."""
        rows = self.table[codes]
        if self.width == 1:
            return rows
        drawn = randomness.uniform_residues(rows.size, self.width).astype(np.int64)
        return np.asarray((drawn.reshape(rows.shape) < rows).astype(np.int64))

    def feature_counts(self, counts: Integers64) -> Integers64:
        """Counts of the features, from the counts of all parts."""
        return counts[self.starts + 1] if self.complementary else counts

    def bit_variances(self, shares: Floats) -> Floats:
        """Mean variance of the bits of random ramps over people with these shares of points."""
        chances = self.table / self.width
        return np.asarray(shares @ (chances * (1.0 - chances)))


@lru_cache(maxsize=32)
def family_of(features: Features, space: Space) -> PartitionFamily:
    """Partition family of a feature set; InputError unless its features are parts of piles."""
    table = feature_table(features, space)
    size, coordinates = table.shape
    if isinstance(features, Ramps):
        dense = np.asarray(table.toarray(), dtype=np.int64)
        width = features.width
        return PartitionFamily(features, space, dense, np.full(coordinates, 2), True, width)
    if np.any(table.data != 1):
        raise InputError(f"the features {features} are not parts of partitions.")
    if coordinates == 1:
        dense = np.asarray(table.toarray(), dtype=np.int64)
        return PartitionFamily(features, space, dense, np.array([2]), True)
    piles = int(table.indptr[1])
    if piles < 1 or np.any(np.diff(table.indptr) != piles):
        raise InputError(f"the features {features} are not one part a pile at every point.")
    listed = np.sort(table.indices.reshape(size, piles).astype(np.int64), axis=1)
    ends = listed.max(axis=0) + 1
    starts = np.concatenate([[0], ends[:-1]])
    if np.any(listed.min(axis=0) < starts) or ends[-1] != coordinates:
        raise InputError(f"the features {features} are not one part a pile at every point.")
    return PartitionFamily(features, space, listed - starts, ends - starts, False)
