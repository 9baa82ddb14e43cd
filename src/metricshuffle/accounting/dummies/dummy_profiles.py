"""Profiles of counts with dummies: one person at flat targets, people and items at linear ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from metricshuffle.accounting.dummies.dummy_losses import (
    DummyLaw,
    drawn_slope,
    extension_delta,
    one_person_delta,
    ramp_step_loss,
    together_delta,
)
from metricshuffle.citations import theorem
from metricshuffle.numerics.rounding import round_up
from metricshuffle.privacy.profile import (
    PURE_TOLERANCE,
    PrivacyProfile,
    Shape,
    checked_epsilon,
    validate_distance,
)

# Relative amount by which a number of changes may fall short of a whole number by rounding.
CHANGE_TOLERANCE = 1e-9


@dataclass(frozen=True)
class OnePersonDummies(PrivacyProfile):
    """Profile of one person who moves, by the exact law of their loss.

    `changed(d)` is the largest number of counts that change between two points within d: of the
    piles in which the parts of the two points differ, each pile with independent dummies counts
    twice, and each with complementary dummies once. Rounds are further piles. It covers flat
    targets only: the rate that many piles together allow is too large for a single step of a linear
    target.
    """

    law: DummyLaw
    changed: Callable[[float], int]
    rounds: int = 1
    bound: str = "dummies, one person"

    def delta(self, epsilon: float, distance: float) -> float:
        counts = self.rounds * self.changed(validate_distance(distance))
        return one_person_delta(self.law, counts, epsilon)

    def covers(
        self, epsilon: float, delta: float, distance: float, shape: Shape = "linear"
    ) -> bool:
        return shape == "flat" and self.covers_at(epsilon, delta, distance)


@dataclass(frozen=True)
class GradedDummies(PrivacyProfile):
    """Base of profiles whose largest loss is proportional to the distance, with a delta at it."""

    def loss(self, distance: float) -> float:
        """Largest loss off the ends of the law, rounded up; in proportion to the distance."""
        raise NotImplementedError

    def ends(self, distance: float) -> float:
        """Delta at the largest loss; it increases with the distance."""
        raise NotImplementedError

    def delta(self, epsilon: float, distance: float) -> float:
        """Delta of the ends, plus 1 - e^(epsilon - c) if epsilon is below the largest loss c.

        Statement: p <= e^c q off the ends, so p - e^epsilon q <= (1 - e^(epsilon - c)) p there.
        """
        allowed = checked_epsilon(epsilon)
        loss = self.loss(validate_distance(distance))
        ends = self.ends(distance)
        if not ends < 1.0 or math.isnan(loss):
            return 1.0
        if loss <= allowed * (1.0 + PURE_TOLERANCE):
            return ends
        return min(1.0, ends - math.expm1(allowed - loss) * (1.0 + 1e-15))

    def covers(
        self, epsilon: float, delta: float, distance: float, shape: Shape = "linear"
    ) -> bool:
        """Return whether the target is met at every real distance.

        Statement: the loss is in proportion to the distance, so that a linear target is met at all
        distances if it is met at the last; the delta of the ends increases with the distance.
        """
        if shape == "flat":
            return self.covers_at(epsilon, delta, distance)
        allowed = checked_epsilon(epsilon) * (1.0 + PURE_TOLERANCE)
        return self.loss(distance) <= allowed and self.ends(distance) <= delta

    def nearly_covers(
        self, epsilon: float, delta: float, distance: float, shape: Shape = "linear"
    ) -> bool:
        return self.covers(epsilon, delta, distance, shape)


@dataclass(frozen=True)
class LinearDummies(GradedDummies):
    """Profile of people who move together, or of one person's items: loss rate * slope * distance.

    `slope` is the largest total change of all counts per unit of distance of one item (two for each
    changed pile of independent dummies, `sides` = 2; one with complementary dummies, `sides` = 1).
    A person has `items`, and distances are averages over them; `alone` says that only one person
    moves, so that no count changes by more than `items`.
    """

    law: DummyLaw
    slope: float
    sides: int
    items: int = 1
    alone: bool = False
    rounds: int = 1
    bound: str = "dummies"

    @theorem("metricshuffle", "Dummies, linear promises")
    def loss(self, distance: float) -> float:
        """Largest loss off the ends of the law for moves within a distance, rounded up.

        Statement: counts change by at most slope * items * distance in all, in each round, and a
        change of one costs at most the rate of the law. A larger rate fails at the first step: with
        rate 0.03 and 30 changed piles delta at epsilon 1 is 6.8e-7, and one changed pile at epsilon
        1/30 has 0.0068.
        """
        changed = self.slope * self.items * self.rounds * validate_distance(distance)
        return round_up(self.law.rate * changed, 10)

    def changes(self, distance: float) -> int:
        """Largest number of part changes in one round, of people together or one person's items."""
        changed = self.slope * self.items * validate_distance(distance) / self.sides
        return math.floor(min(changed * (1.0 + CHANGE_TOLERANCE), 1e15))

    def ends(self, distance: float) -> float:
        """Delta of the ends of the law; rounds add up, as one infinite loss makes all infinite."""
        each = self.items if self.alone else None
        once = together_delta(self.law, self.changes(distance), self.sides, each)
        return min(1.0, round_up(self.rounds * once, 4))


@dataclass(frozen=True)
class RampDummies(GradedDummies):
    """Profile of random ramps: windows of `width` thresholds, each sent as one random bit.

    `steps` is the number of thresholds that a move crosses per unit of distance, and `piles` the
    number of windows. Each round has its own bits and dummies.
    """

    law: DummyLaw
    width: int
    steps: float
    piles: int
    items: int = 1
    rounds: int = 1
    bound: str = "dummies, random ramps"

    def loss(self, distance: float) -> float:
        crossed = self.steps * self.items * self.rounds * validate_distance(distance)
        return round_up(ramp_step_loss(self.law.rate, self.width) * crossed, 10)

    def ends(self, distance: float) -> float:
        if self.steps * self.items * distance * (1.0 + CHANGE_TOLERANCE) < 1.0:
            return 0.0  # no two points are that near
        return extension_delta(self.law, self.loss(distance), self.piles * self.rounds)


@dataclass(frozen=True)
class DrawnDummies(GradedDummies):
    """Profile of `draws` items that each person draws from theirs with replacement.

    `slope` and `sides` as in `LinearDummies`; `largest` is the largest number of counts that change
    between any two points, and `parts` the number of parts (with complementary dummies, of piles).
    """

    law: DummyLaw
    slope: float
    sides: int
    largest: int
    parts: int
    draws: int
    rounds: int = 1
    bound: str = "dummies, drawn items"

    def loss(self, distance: float) -> float:
        each = drawn_slope(self.draws, self.law.rate, self.slope, self.largest)
        return round_up(each * self.rounds * validate_distance(distance), 10)

    def ends(self, distance: float) -> float:
        if distance == 0.0:
            return 0.0
        return extension_delta(self.law, self.loss(distance), self.parts * self.rounds)
