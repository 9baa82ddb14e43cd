"""Comparison of earth mover's privacy with user-level privacy on the same simulated users."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metricshuffle.accounting.composition.pure_responses import ComposedResponses
from metricshuffle.display import Brief
from metricshuffle.errors import ConditionError, InputError, NotCertified
from metricshuffle.numerics.certified_search import last_certified
from metricshuffle.numerics.rounding import format_number
from metricshuffle.planning.candidates.item_calibration import (
    ItemRandomizers,
    item_calibration,
    item_randomizers,
)
from metricshuffle.privacy.target import Target, checked_users
from metricshuffle.protocols.item_accounts import rate_of
from metricshuffle.queries.user_queries import UserHistogram
from metricshuffle.randomizers.hadamard_response import HadamardResponse
from metricshuffle.randomizers.randomized_response import KaryRandomizedResponse
from metricshuffle.simulation.fast_draws import distance_of
from metricshuffle.simulation.population import Population, zipf_shares
from metricshuffle.spaces import Clustered, NestedSquares, Users
from metricshuffle_papers.compare.methods import (
    Hides,
    Method,
    Model,
    gaussian_histogram,
    item_wise,
    laplace_histogram,
    laplace_reports,
    level_laplace,
    one_item,
    tree_laplace,
    two_level_laplace,
)
from metricshuffle_papers.compare.shown import ShownComparison

RUNS = 40
Floats = NDArray[np.float64]
PublishedRates = Callable[[Model], dict[str, float | None]]
"""Item rates as printed, by the name of the formula; simulated for comparison, not guaranteed."""


@dataclass(frozen=True)
class ComparedMethod:
    """Method with its simulated error, in earth mover's distance."""

    name: str
    model: Model
    hides: Hides
    error: float
    standard_error: float
    strength: float


@dataclass(frozen=True)
class UserComparison(ShownComparison, Brief):
    """Comparison on the same users and the same budgets, in both models."""

    users: int
    items: int
    epsilon: float
    rate: float
    delta: float
    diameter: float
    runs: int
    methods: tuple[ComparedMethod, ...]
    unit: str = ""
    draws: bool = False
    """Whether real users hold other numbers of items than `items`.

    Then they draw `items` of them for the item-wise methods.
    """
    not_offered: tuple[tuple[str, str], ...] = ()
    """Methods that could not be calibrated here, with the reason."""

    def best(self, model: Model, hides: Hides) -> ComparedMethod:
        """Method with the least error for a model and a kind of privacy."""
        return min(
            (one for one in self.methods if (one.model, one.hides) == (model, hides)),
            key=lambda one: one.error,
        )

    def gain(self, model: Model) -> float:
        """Factor by which the error is smaller under the earth mover's distance; < 1 is a loss.

        Compared with the best user-level method.
        """
        return self.best(model, "user").error / self.best(model, "earth mover").error

    def sentences(self) -> list[str]:
        """Sentences with the winner and what was relaxed."""
        found = [f"{name} is not offered: {why}" for name, why in self.not_offered]
        unit = f" {self.unit}" if self.unit else ""
        for model in ("central", "local"):
            if not any(one.model == model for one in self.methods):
                continue
            ours = self.best(model, "earth mover")
            theirs = self.best(model, "user")
            gain = self.gain(model)
            verdict = (
                f"{format_number(round(gain, 2))} times smaller"
                if gain >= 1.0
                else f"{format_number(round(1.0 / gain, 2))} times larger"
            )
            found.append(
                f"{model}: {ours.name} is off by {format_number(ours.error)}{unit} in "
                f"earth mover's distance, {verdict} than the "
                "best user-level "
                f"method ({theirs.name}, {format_number(theirs.error)}{unit})."
            )
        if self.draws and any(one.name == "item-wise" for one in self.methods):
            found.append(
                "Users hold different numbers of items: item-wise, each draws "
                f"{self.items:,} of hers with replacement, and what is hidden "
                "at this rate are moves of what she drew; plan with draw=... for a "
                "promise about what she holds."
            )
        whole = self.rate * self.diameter
        if whole <= self.epsilon * (1.0 + 1e-9):
            return [
                *found,
                "Nothing was relaxed: replacing all of a user's items costs no more than "
                "under user-level privacy, small moves less.",
            ]
        return [
            *found,
            "What was relaxed: replacing all of a user's items costs epsilon "
            f"{format_number(whole)} instead of "
            f"{format_number(self.epsilon)}; "
            f"only moves of up to {format_number(self.epsilon / self.rate)}{unit} of earth "
            "mover's distance are hidden at "
            f"{format_number(self.epsilon)}.",
        ]


def compare_users(
    people: Users,
    users: int,
    *,
    epsilon: float,
    rate: float,
    delta: float,
    runs: int = RUNS,
    seed: int = 0,
    shares: Any = None,
    held: Any = None,
    models: Sequence[Model] = ("central", "local"),
    published: PublishedRates | None = None,
    with_items: bool = True,
    progress: Callable[[str], None] | None = None,
) -> UserComparison:
    """Simulate every method in these `models`.

    Items are drawn from `shares` (Zipf's law in random order by default) or `held` by real users.
    `epsilon` is that of ordinary user-level privacy (any replacement), `rate` that of the earth
    mover's distance, per unit. `held` needs a space of bounded users, `items` of which each of them
    draws for the item-wise methods, whose guarantee is then about the items drawn.
    `with_items=False` leaves out the item-wise methods, which take longest to calibrate (where
    there is a tree).
    """
    users, tell = checked_users(users if held is None else len(held)), progress or (lambda _: None)
    if people.items is None:
        raise InputError(
            "a comparison needs a number of items, the same for everybody: users_of(space, "
            "items=...)."
        )
    if isinstance(runs, bool) or not isinstance(runs, int) or runs < 2:
        raise InputError(
            f"runs must be a whole number >= 2 (a standard error needs two), got {runs!r}."
        )
    UserHistogram(people)  # raises InputError for too many points
    target = Target(epsilon=rate * people.diameter, delta=delta, distance=people.diameter)
    base = Target(epsilon=epsilon, delta=delta, distance=people.diameter)
    if not 0.0 < delta < 1.0:
        raise InputError(
            "delta must lie strictly between 0 and 1: the Gaussian and shuffled ways need "
            f"one, got {delta!r}."
        )
    ways: list[Method] = []
    missing: list[tuple[str, str]] = []
    make = item_randomizers(people)
    for model in models:
        tell(f"calibrating ({model})")
        ways += _user_level(people, model, users, base.epsilon, delta)
        ways += _earth_mover(target, users, people, model, make, with_items, missing)
        ways += [
            item_wise(f"item-wise, {name}", people, model, "published", make(strength), strength)
            for name, strength in (published(model) if published else {}).items()
            if strength is not None and strength > 0.0
        ]
    generator = np.random.default_rng(seed)
    errors: list[list[float]] = [[] for _ in ways]
    open_users = Users(people.items_in, None)
    draws = held is not None and bool((open_users.sizes(held) != people.items).any())
    for run in range(runs):
        tell(f"run {run + 1} of {runs}")
        if held is None:
            spread = zipf_shares(people.size, generator) if shares is None else shares
            crowd = Population.drawn(spread, users, people.items, generator)
        else:
            crowd = Population.of(open_users, held, people.items, generator, draws=draws)
        for way, found in zip(ways, errors, strict=True):
            found.append(distance_of(people, way.estimate(crowd, generator), crowd.truth))
    rows = tuple(
        ComparedMethod(
            way.name,
            way.model,
            way.hides,
            float(np.mean(found)),
            float(np.std(found, ddof=1) / math.sqrt(runs)),
            way.strength,
        )
        for way, found in zip(ways, errors, strict=True)
    )
    return UserComparison(
        users,
        people.items,
        epsilon,
        rate,
        delta,
        people.diameter,
        runs,
        rows,
        people.unit,
        draws,
        tuple(missing),
    )


def _user_level(
    people: Users, model: Model, users: int, epsilon: float, delta: float
) -> list[Method]:
    """Methods with ordinary privacy of a whole user, each with its correct constant."""
    levels = (
        [level_laplace(people, model, users, epsilon)]
        if isinstance(people.items_in.metric, NestedSquares)
        else []
    )
    if model == "central":
        found = [
            *levels,
            laplace_histogram(users, epsilon),
            gaussian_histogram(users, epsilon, delta),
        ]
        metric = people.items_in.metric
        return (
            [*found, two_level_laplace(metric, users, epsilon)]
            if isinstance(metric, Clustered) and metric.inner < 1.0
            else found
        )
    found = [
        *levels,
        one_item("Hadamard response", HadamardResponse(people.size, epsilon), epsilon),
        one_item("randomized response", KaryRandomizedResponse(people.size, epsilon), epsilon),
        laplace_reports(epsilon),
    ]
    each = composed_epsilon(int(people.items or 1), epsilon, delta)
    return [
        *found,
        item_wise(
            "randomized response, every item",
            people,
            "local",
            "user",
            KaryRandomizedResponse(people.size, each),
            each,
        ),
    ]


def composed_epsilon(items: int, epsilon: float, delta: float) -> float:
    """Largest certified epsilon of each of `items` reports that together are (epsilon, delta).

    By exact composition.
    """
    simple = epsilon / items
    return last_certified(
        lambda one: ComposedResponses(one, items).covers_at(epsilon, delta, 1.0),
        epsilon,
        simple * (1.0 - 1e-12),
        relative=1e-6,
    )


def _earth_mover(
    target: Target,
    users: int,
    people: Users,
    model: Model,
    make: ItemRandomizers,
    with_items: bool,
    missing: list[tuple[str, str]],
) -> list[Method]:
    found = [tree_laplace(people, model, users, rate_of(target))] if people.tree is not None else []
    if found and not with_items:
        return found
    try:
        strength, _, randomizer = item_calibration(
            people, target, users, int(people.items or 1), make, together=model == "central"
        )
    except (NotCertified, ConditionError) as wrong:
        if not found:
            raise
        missing.append((f"item-wise ({model})", str(wrong)))
        return found
    return [*found, item_wise("item-wise", people, model, "earth mover", randomizer, strength)]
