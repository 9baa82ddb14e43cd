"""Randomized response on points in clusters, which protects points of the same cluster more."""

from __future__ import annotations

from fractions import Fraction
from functools import cached_property
from typing import Literal

import numpy as np

from metricshuffle.accounting.shuffling.blanket_law import BlanketLaw
from metricshuffle.citations import theorem
from metricshuffle.errors import InputError, NotCertified, argument, owner
from metricshuffle.models import FrozenModel, Positive, Whole
from metricshuffle.numerics.types import Floats, Integers64
from metricshuffle.randomizers.dyadic_weights import (
    TOTAL_WEIGHT,
    Epsilon,
    exact_blanket,
    exp_below,
    log_rounded_up,
)
from metricshuffle.randomizers.randomizer import Pair, Randomizer, code_values
from metricshuffle.randomness import Randomness


class ClusteredResponse(Randomizer):
    """Randomized response on `clusters` clusters of `size` points; epsilon holds at distance 1.

    Two points are at distance `inner` within a cluster and 1 between clusters. The input itself has
    weight e^epsilon, the other points of its cluster e^((1 - inner) epsilon), all other points 1,
    so reports are epsilon * distance private. Point code = cluster * size + place. Reference:
    Imola, Roy Chowdhury, Chaudhuri 2024 (GKRR).
    """

    kind: Literal["clustered-response"] = "clustered-response"
    clusters: Whole
    size: Whole
    inner: Positive
    epsilon: Epsilon

    def __init__(
        self, clusters: int, size: int, inner: float, epsilon: float, **fields: object
    ) -> None:
        FrozenModel.__init__(
            self, clusters=clusters, size=size, inner=inner, epsilon=epsilon, **fields
        )

    def model_post_init(self, context: object) -> None:
        if not (self.clusters >= 2 and self.size >= 2 and self.clusters * self.size <= 2**24):
            raise InputError(
                f"{owner('ClusteredResponse')}{argument('clusters')} and {argument('size')} must "
                "be at least 2, and their product, the number of points, at most 2^24, got "
                f"{self.clusters} x {self.size}."
            )
        if not self.inner < 1.0:
            raise InputError(
                f"{owner('ClusteredResponse')}{argument('inner')} must be below 1, the "
                f"distance between clusters, got {self.inner!r}."
            )
        _ = self.weights

    @property
    def inputs(self) -> int:
        return self.clusters * self.size

    @property
    def outputs(self) -> int:
        return self.clusters * self.size

    @cached_property
    def weights(self) -> tuple[int, int, int]:
        """2^63 times the probability of the input, of a point of its cluster, of one outside.

        The ratios are checked in integers.
        """
        inner = Fraction(self.inner)
        epsilon = Fraction(self.epsilon)
        up = exp_below(inner * epsilon)
        across = exp_below((1 - inner) * epsilon)
        all_the_way = exp_below(epsilon)
        exact = TOTAL_WEIGHT / (
            all_the_way + (self.size - 1) * across + (self.clusters - 1) * self.size
        )
        # A little more weight on other clusters makes room for rounding.
        for slack in range(60, 10, -2):
            other_cluster = int(exact * (1 + Fraction(1, 2**slack))) + 1
            same_cluster = int(other_cluster * across)
            own = (
                TOTAL_WEIGHT
                - (self.size - 1) * same_cluster
                - (self.clusters - 1) * self.size * other_cluster
            )
            if (
                other_cluster < same_cluster < own
                and own <= same_cluster * up
                and own <= other_cluster * all_the_way
            ):
                return own, same_cluster, other_cluster
        raise NotCertified(
            f"{owner('ClusteredResponse')}{argument('epsilon', self.epsilon)} is too small or too "
            "large for weights that are multiples of 2^-63."
        )

    def distance(self, a: int, b: int) -> float:
        return 0.0 if a == b else self.inner if a // self.size == b // self.size else 1.0

    def rows(self) -> Floats:
        self._listable()
        codes = np.arange(self.inputs)
        own, same_cluster, other_cluster = (weight / TOTAL_WEIGHT for weight in self.weights)
        same = codes[:, None] // self.size == codes // self.size
        return np.where(codes[:, None] == codes, own, np.where(same, same_cluster, other_cluster))

    def pairs(self) -> list[Pair]:
        return [(0, 1), (0, self.size)]

    @theorem("Imola24", "GKRR")
    def blanket(self, a: int, b: int) -> BlanketLaw:
        """Blanket of (a, b) in closed form.

        Statement: w(y) = min over x of K_x(y) is the weight of another cluster for every report y:
        an input x outside the cluster of y attains it, and there are at least two clusters. The
        laws of a, b and the others are own, same cluster or other cluster, depending on the
        position of a report.
        Numerics: exact fractions, rounded once.
        Reference: Imola, Roy Chowdhury, Chaudhuri 2024 for the law.
        """
        self._checked_pair(a, b)
        own, same_cluster, other_cluster = (
            Fraction(weight, TOTAL_WEIGHT) for weight in self.weights
        )
        if a // self.size == b // self.size:
            inside = [
                (1, other_cluster, own, same_cluster),
                (1, other_cluster, same_cluster, own),
                (self.size - 2, other_cluster, same_cluster, same_cluster),
            ]
            return exact_blanket(
                [
                    *inside,
                    ((self.clusters - 1) * self.size, other_cluster, other_cluster, other_cluster),
                ]
            )
        first = [
            (1, other_cluster, own, other_cluster),
            (self.size - 1, other_cluster, same_cluster, other_cluster),
        ]
        second = [
            (1, other_cluster, other_cluster, own),
            (self.size - 1, other_cluster, other_cluster, same_cluster),
        ]
        return exact_blanket(
            [
                *first,
                *second,
                ((self.clusters - 2) * self.size, other_cluster, other_cluster, other_cluster),
            ]
        )

    def local_epsilon(self, a: int | None = None, b: int | None = None) -> float:
        """Return the local epsilon; never above epsilon * distance."""
        own, same_cluster, other_cluster = self.weights
        if a is None or b is None or a // self.size != b // self.size:
            return min(self.epsilon, log_rounded_up(own / other_cluster))
        self._checked_pair(a, b)
        return min(self.inner * self.epsilon * (1.0 + 4e-16), log_rounded_up(own / same_cluster))

    def reports(self, values: object, randomness: Randomness) -> Integers64:
        """Draw one report per value from one random word each.

        Numbers are assigned to the own point, then to the rest of its cluster in order, then to the
        other clusters in order.
        """
        codes = code_values(values, self.inputs).astype(np.int64)
        own, same_cluster, other_cluster = self.weights
        numbers = (randomness.words(len(codes)) >> np.uint64(1)).astype(np.int64) - own
        cluster, place = np.divmod(codes, self.size)
        nearby = np.maximum(numbers, 0) // same_cluster
        nearby += nearby >= place
        beyond = numbers - (self.size - 1) * same_cluster
        distant = np.maximum(beyond, 0) // other_cluster
        distant += np.where(distant >= cluster * self.size, self.size, 0)
        return np.where(
            numbers < 0, codes, np.where(beyond < 0, cluster * self.size + nearby, distant)
        )

    def targets(self) -> Floats:
        return np.eye(self.inputs)

    def debiasing(self) -> Floats:
        self._listable()
        return np.column_stack([self._unmixed(column) for column in np.eye(self.inputs)]).T

    def totals(self, reports: object) -> Floats:
        return self._unmixed(self.counts(reports).astype(np.float64))

    def _unmixed(self, counts: Floats) -> Floats:
        """Apply the inverse of (own - same) I + (same - other) J_cluster + other J_all."""
        own, same_cluster, other_cluster = (weight / TOTAL_WEIGHT for weight in self.weights)
        people = counts.sum()
        blocks = counts.reshape(self.clusters, self.size)
        in_block = (blocks.sum(axis=1) - other_cluster * self.size * people) / (
            own - same_cluster + (same_cluster - other_cluster) * self.size
        )
        flat: Floats = (
            (blocks - (same_cluster - other_cluster) * in_block[:, None] - other_cluster * people)
            / (own - same_cluster)
        ).ravel()
        return flat
