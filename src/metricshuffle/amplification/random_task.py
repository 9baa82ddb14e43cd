"""Parallel composition: every user answers one task, drawn at random, and reports which one.

K_a, K_b and K_x are the laws of the reports of the inputs a, b and x, and w is the blanket.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from metricshuffle.accounting.shuffling.blanket_law import BlanketLaw
from metricshuffle.accounting.shuffling.input_class_laws import InputClassLaw, InputClassLaws
from metricshuffle.citations import theorem
from metricshuffle.errors import InputError, NotCertified
from metricshuffle.numerics.rounding import round_down
from metricshuffle.numerics.types import Floats
from metricshuffle.privacy.profile import PrivacyProfile, checked_epsilon, validate_distance
from metricshuffle.randomizers.randomizer import Randomizer

MAX_COMBINATIONS = 4096
MAX_ENTRIES = 4096  # max entries of a task's matrix of laws
MAX_TYPES = 64  # max number of types of a law of the others


@dataclass(frozen=True)
class LawsProfile(PrivacyProfile):
    """Privacy profile of one report: delta is 0 at distance 0, and equal at all other distances."""

    laws: tuple[BlanketLaw, ...]
    bound: str = "exact"

    def pure(self, distance: float) -> float:
        return (
            max(max(law.pure, law.reversed.pure) for law in self.laws)
            if validate_distance(distance)
            else 0.0
        )

    def delta(self, epsilon: float, distance: float) -> float:
        epsilon = checked_epsilon(epsilon)
        if not validate_distance(distance):
            return 0.0
        directions = (
            direction
            for law in self.laws
            for direction in (law, law.reversed)
            if epsilon < direction.pure
        )
        return min(
            1.0, max((direction.atoms(epsilon).local for direction in directions), default=0.0)
        )


@dataclass(frozen=True)
class RandomTask:
    """Each user answers task j with probability weights[j], independent of the user's values.

    The report is tagged with j. Use `random_task` to create it.
    """

    weights: tuple[float, ...]
    tasks: tuple[Randomizer, ...]

    def __post_init__(self) -> None:
        if not self.tasks or len(self.tasks) != len(self.weights):
            raise InputError("parallel tasks need at least one (weight, randomizer).")
        if not all(isinstance(task, Randomizer) for task in self.tasks):
            raise InputError(
                "parallel tasks are pairs (weight, randomizer) with randomizers of this package."
            )
        if (
            not all(0.0 < weight <= 1.0 for weight in self.weights)
            or abs(math.fsum(self.weights) - 1.0) > 1e-9
        ):
            raise InputError(
                "the weights of parallel tasks must be positive and sum to 1, got "
                f"{math.fsum(self.weights)!r}."
            )

    @property
    def diameter(self) -> float:
        """The largest distance of two inputs: a list of values, one per task, has no metric."""
        return 1.0

    @theorem("metricshuffle", "parallel composition")
    def _mixed(self, parts: tuple[BlanketLaw, ...]) -> BlanketLaw:
        """Return the law of a tagged report.

        Statement: the law of a tagged report is the mixture of the laws of the tasks, so w, K_a and
        K_b of task j are multiplied by the weight of task j.
        Conditions: the weights are the same for all users and do not depend on the data.
        """
        total = math.fsum(self.weights)  # 1 up to rounding
        scaled = [
            [
                weight / total * np.asarray(getattr(part, name))
                for weight, part in zip(self.weights, parts, strict=True)
            ]
            for name in ("mass", "a", "b", "excess", "rounding")
        ]
        mass, a, b, excess, rounding = (np.concatenate(columns) for columns in scaled)
        law = BlanketLaw(mass, a, b, excess)
        object.__setattr__(law, "rounding", rounding)
        return law

    @cached_property
    def laws(self) -> tuple[BlanketLaw, ...]:
        """Laws of every combination of one pair for each task.

        In some of the tasks, but not in all, the two inputs a and b may be the same value.
        """
        choices = []
        for task in self.tasks:
            pairs = list(itertools.islice(task.pairs(), MAX_COMBINATIONS + 1))
            different = [task.blanket(a, b) for a, b in pairs]
            same = [
                BlanketLaw(law.mass, row, row, np.zeros(row.size))
                for law in different
                for row in (law.a, law.b)
            ]
            choices.append([(law, True) for law in different] + [(law, False) for law in same])
        if math.prod(len(choice) for choice in choices) > MAX_COMBINATIONS:
            raise NotCertified(
                f"these tasks have more than {MAX_COMBINATIONS:,} combinations of pairs; "
                "take fewer tasks or inputs."
            )
        return tuple(
            self._mixed(tuple(law for law, _ in chosen))
            for chosen in itertools.product(*choices)
            if any(differ for _, differ in chosen)
        )

    def others(self) -> list[InputClassLaws] | None:
        """Return the combinations of `laws` with the laws of the others; None if they are too many.

        There is one type for every combination of the tasks' types. The law of (K_a/K_x, K_b/K_x)
        under K_x is the mixture over the tasks, where x consists of one input for each task.
        """
        choices = []
        for task in self.tasks:
            if task.inputs * task.outputs > MAX_ENTRIES:
                return None
            rows = task.rows()
            task_laws = [InputClassLaws.from_rows(rows, a, b) for a, b in task.pairs()]
            same = [
                [
                    law._replace(b=law.a, excess=0.0 * law.a, rounding=0.0 * law.a)
                    for law in ordered_laws.types
                ]
                for laws in task_laws
                for ordered_laws in (laws, laws.reversed)
            ]
            choices.append(
                [(laws.types, laws.blanket, True) for laws in task_laws]
                + [(types, task_laws[0].blanket, False) for types in same]
            )
        if math.prod(len(types) for choice in choices for types, _, _ in choice[:1]) > MAX_TYPES:
            return None
        return [
            self._combine_tasks(chosen)
            for chosen in itertools.product(*choices)
            if any(differ for _, _, differ in chosen)
        ]

    def _combine_tasks(
        self, chosen: tuple[tuple[list[InputClassLaw], float, bool], ...]
    ) -> InputClassLaws:
        total = math.fsum(self.weights)
        shares = [weight / total for weight in self.weights]

        def mixed(columns: tuple[Floats, ...]) -> Floats:
            return np.concatenate(
                [share * column for share, column in zip(shares, columns, strict=True)]
            )

        every = itertools.product(*(types for types, _, _ in chosen))
        types = [
            InputClassLaw(*(mixed(columns) for columns in zip(*parts, strict=True)))
            for parts in every
        ]
        return InputClassLaws.of(
            types,
            round_down(
                math.fsum(
                    share * task_type[1] for share, task_type in zip(shares, chosen, strict=True)
                ),
                16,
            ),
        )

    def blankets(self, distance: float = math.inf) -> list[BlanketLaw]:
        return list(self.laws) if distance > 0.0 else []

    def local_profile(self) -> PrivacyProfile:
        return LawsProfile(self.laws)


def random_task(tasks: Sequence[tuple[float, Randomizer]]) -> RandomTask:
    """Create the mechanism in which users answer one task, chosen with these probabilities.

    Pass it to `amplify`.
    """
    return RandomTask(tuple(float(weight) for weight, _ in tasks), tuple(task for _, task in tasks))
