"""Randomized response on clusters: points of one cluster are close, points of different clusters far apart."""

from __future__ import annotations

from fractions import Fraction
from functools import cached_property
from typing import Any, Literal

import numpy as np

from metricshuffle.accounting.blanket.law import BlanketLaw
from metricshuffle.citations import theorem
from metricshuffle.declared import Declared, Positive, Whole
from metricshuffle.errors import InputError, NotCertified
from metricshuffle.numerics.types import Floats, Integers64
from metricshuffle.randomizers.dyadic import TOTAL, Epsilon, exact_blanket, exp_below, rounded_log
from metricshuffle.randomizers.randomizer import Pair, Randomizer, coded_values
from metricshuffle.randomness import Randomness


class ClusteredResponse(Randomizer):
    """`clusters` clusters of `size` points, at distance `inner` within a cluster and 1 between clusters; epsilon is that of distance 1.

    The own point has weight e^epsilon, the others of its cluster e^((1 - inner) epsilon), all else 1: epsilon * distance private.
    Point code = cluster * size + place. Reference: Imola, Roy Chowdhury, Chaudhuri 2024 (GKRR).
    """

    kind: Literal["clustered-response"] = "clustered-response"
    clusters: Whole
    size: Whole
    inner: Positive
    epsilon: Epsilon

    def __init__(self, clusters: int, size: int, inner: float, epsilon: float, **rest: Any) -> None:
        Declared.__init__(self, clusters=clusters, size=size, inner=inner, epsilon=epsilon, **rest)

    def model_post_init(self, context: Any) -> None:
        if not (self.clusters >= 2 and self.size >= 2 and self.clusters * self.size <= 2**24):
            raise InputError(
                f"ClusteredResponse: needs at least 2 clusters of 2 points, up to 2^24 points, got {self.clusters} x {self.size}."
            )
        if not self.inner < 1.0:
            raise InputError(f"ClusteredResponse: inner must be below 1, the distance between clusters, got {self.inner!r}.")
        _ = self.weights

    @property
    def inputs(self) -> int:
        return self.clusters * self.size

    @property
    def outputs(self) -> int:
        return self.clusters * self.size

    @cached_property
    def weights(self) -> tuple[int, int, int]:
        """(own, near, far): 2^63 times the probabilities of one report of each sort; ratios checked in integers."""
        inner, epsilon = Fraction(self.inner), Fraction(self.epsilon)
        up, across, all_the_way = exp_below(inner * epsilon), exp_below((1 - inner) * epsilon), exp_below(epsilon)
        exact = TOTAL / (all_the_way + (self.size - 1) * across + (self.clusters - 1) * self.size)
        for slack in range(60, 10, -2):  # a little more weight far away makes room for rounding
            far = int(exact * (1 + Fraction(1, 2**slack))) + 1
            near = int(far * across)
            own = TOTAL - (self.size - 1) * near - (self.clusters - 1) * self.size * far
            if far < near < own and own <= near * up and own <= far * all_the_way:
                return own, near, far
        raise NotCertified(
            f"ClusteredResponse: epsilon = {self.epsilon!r} is too small or too large for weights that are multiples of 2^-63."
        )

    def distance(self, a: int, b: int) -> float:
        return 0.0 if a == b else self.inner if a // self.size == b // self.size else 1.0

    def rows(self) -> Floats:
        self._listable()
        codes = np.arange(self.inputs)
        own, near, far = (weight / TOTAL for weight in self.weights)
        same = codes[:, None] // self.size == codes // self.size
        return np.where(codes[:, None] == codes, own, np.where(same, near, far))

    def pairs(self) -> list[Pair]:
        return [(0, 1), (0, self.size)]

    @theorem("Imola24", "GKRR")
    def blanket(self, a: int, b: int) -> BlanketLaw:
        """Statement: w = far everywhere (some user is in another cluster); laws are own, near or far by where a report lies.

        Numerics: exact fractions, rounded once. Reference: Imola, Roy Chowdhury, Chaudhuri 2024 for the law.
        """
        self._checked_pair(a, b)
        own, near, far = (Fraction(weight, TOTAL) for weight in self.weights)
        if a // self.size == b // self.size:
            inside = [(1, far, own, near), (1, far, near, own), (self.size - 2, far, near, near)]
            return exact_blanket([*inside, ((self.clusters - 1) * self.size, far, far, far)])
        first = [(1, far, own, far), (self.size - 1, far, near, far)]
        second = [(1, far, far, own), (self.size - 1, far, far, near)]
        return exact_blanket([*first, *second, ((self.clusters - 2) * self.size, far, far, far)])

    def local_epsilon(self, a: int | None = None, b: int | None = None) -> float:
        """epsilon * distance at most, by how the weights are rounded."""
        own, near, far = self.weights
        if a is None or b is None or a // self.size != b // self.size:
            return min(self.epsilon, rounded_log(own / far))
        self._checked_pair(a, b)
        return min(self.inner * self.epsilon * (1.0 + 4e-16), rounded_log(own / near))

    def reports(self, values: Any, randomness: Randomness) -> Integers64:
        """One word each: own, then the near ones in order, then the far ones in order."""
        codes = coded_values(values, self.inputs).astype(np.int64)
        own, near, far = self.weights
        numbers = (randomness.words(len(codes)) >> np.uint64(1)).astype(np.int64) - own
        cluster, place = np.divmod(codes, self.size)
        nearby = np.maximum(numbers, 0) // near
        nearby += nearby >= place
        beyond = numbers - (self.size - 1) * near
        distant = np.maximum(beyond, 0) // far
        distant += np.where(distant >= cluster * self.size, self.size, 0)
        return np.where(numbers < 0, codes, np.where(beyond < 0, cluster * self.size + nearby, distant))

    def targets(self) -> Floats:
        return np.eye(self.inputs)

    def debiasing(self) -> Floats:
        self._listable()
        return np.column_stack([self._unmixed(column) for column in np.eye(self.inputs)]).T

    def totals(self, reports: Any) -> Floats:
        """Unbiased estimates of how many people hold each point."""
        return self._unmixed(self.counts(reports).astype(np.float64))

    def _unmixed(self, counts: Floats) -> Floats:
        """The inverse of (own - near) I + (near - far) J_cluster + far J_all, block by block."""
        own, near, far = (weight / TOTAL for weight in self.weights)
        people, blocks = counts.sum(), counts.reshape(self.clusters, self.size)
        in_block = (blocks.sum(axis=1) - far * self.size * people) / (own - near + (near - far) * self.size)
        flat: Floats = ((blocks - (near - far) * in_block[:, None] - far * people) / (own - near)).ravel()
        return flat
