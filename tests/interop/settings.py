"""Random randomizers, plans, numbers of people and deltas for tests of adapters."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

import metricshuffle as ms
from metricshuffle.privacy.profile import PrivacyProfile
from metricshuffle.randomizers import (
    BinaryRandomizedResponse,
    BoundedGeometric,
    KaryRandomizedResponse,
    LaplaceOnInterval,
    LocalHash,
    Rappor,
    SubsetSelection,
)
from metricshuffle.randomizers.randomizer import Randomizer


@dataclass(frozen=True)
class Drawn:
    """A setting for an adapter."""

    randomizer: Randomizer
    users: int
    delta: float
    distance: float | None
    """How far apart the two inputs are; None for any two."""

    @property
    def reach(self) -> float:
        """The distance as a number."""
        return self.randomizer.diameter if self.distance is None else self.distance


def settings(count: int, seed: int) -> Iterator[Drawn]:
    """Draw settings: 2 to 10^9 people, deltas from 1e-12 to 1e-2, weak and strong randomizers.

    Where inputs have distances, the largest one or a smaller one.
    """
    draws = random.Random(seed)
    for _ in range(count):
        local = 10.0 ** draws.uniform(-1.0, 0.7)
        cells = draws.randint(2, 12)
        randomizer = draws.choice(
            [
                BinaryRandomizedResponse(local),
                KaryRandomizedResponse(cells, local),
                BoundedGeometric(cells, local / cells),
                SubsetSelection(cells + 2, local),
                Rappor(cells, local),
                LocalHash(cells + 2, local, 3),
                LaplaceOnInterval(0.0, 10.0, local / 10.0, steps=cells),
            ]
        )
        metric = isinstance(randomizer, BoundedGeometric | LaplaceOnInterval)
        distance = randomizer.diameter * draws.uniform(0.0, 1.0) if metric else None
        users = round(10.0 ** draws.uniform(0.31, 9.0))
        delta = 10.0 ** draws.uniform(-12.0, -2.0)
        yield Drawn(randomizer, users, delta, draws.choice([None, distance]))


def plans(count: int, seed: int) -> Iterator[ms.Plan]:
    """Draw plans of a mean or a sum: 10 to 2,000 people, with a shuffler, and without trust."""
    draws = random.Random(seed)
    for _ in range(count):
        low = draws.randint(-50, 50)
        high = low + draws.randint(1, 40)
        yield ms.plan(
            draws.choice([ms.Mean, ms.Sum])(ms.Integers(low, high)),
            ms.Target(
                epsilon=draws.uniform(0.2, 5.0),
                delta=10.0 ** draws.uniform(-9.0, -3.0),
                distance=draws.randint(1, high - low),
            ),
            users=draws.randint(10, 2000),
            trusted=draws.choice(["nobody", "shuffler"]),
        )


def account_profile(plan: ms.Plan) -> PrivacyProfile:
    """Return the profile that the guarantee of a plan is a point of, computed again."""
    account = plan.protocol.account(plan.query, plan.target, plan.honest, plan.rounds)
    return account.profile
