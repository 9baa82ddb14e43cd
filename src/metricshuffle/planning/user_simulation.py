"""How far the answers about users' items come out from the truth, without making a single report."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from metricshuffle.errors import InputError
from metricshuffle.planning.user_candidates import UserCandidate, UserSetting
from metricshuffle.planning.user_crowd import Crowd
from metricshuffle.privacy.target import checked_users
from metricshuffle.protocols.frequencies import Inversion, simplex_projection
from metricshuffle.protocols.tree_projection import possible_shares, shares_from_subtrees
from metricshuffle.protocols.user_queries import UserHistogram, UserQuery
from metricshuffle.protocols.user_vectors import AnswerNoise
from metricshuffle.randomness import Randomness
from metricshuffle.spaces import TreeEmbedding, Users, earth_mover

if TYPE_CHECKING:
    from metricshuffle.planning.user_plan import UserPlan

Floats = NDArray[np.float64]
PLANNING_RUNS, MANY_POINTS = (24, 96), 256
# How many items a user holds, if any number will do.
TYPICAL_ITEMS = 100


@dataclass(frozen=True)
class UserSimulation:
    """Errors of simulated releases: earth mover's distance of the shares, or the mean absolute error of a coordinate."""

    runs: int
    users: int
    mean_error: float
    standard_error: float
    """Of the mean error over the runs."""
    root_mean_square_error: float
    expected_error: float


def distance_of(people: Users, one: Floats, other: Floats) -> float:
    """The earth mover's distance of two histograms, through the tree where there is one."""
    tree = TreeEmbedding.of(people.items_in)
    if tree is not None:
        return float(np.abs(tree.means(one - other)).sum())
    return earth_mover(people.items_in, one, other).distance


def simulated_shares(inversion: Inversion, held: NDArray[np.int64], generator: np.random.Generator) -> Floats:
    """Unbiased shares from one simulated report for each item."""
    rows = inversion.rows[0]
    counts = generator.multinomial(held, rows / rows.sum(axis=1, keepdims=True)).sum(axis=0)
    return inversion.totals(counts.astype(np.float64)) / float(held.sum())


def simulated_noise(noise: AnswerNoise, draws: int, generator: np.random.Generator) -> Floats:
    """A sum of `draws` noise vectors from numpy's generator: good enough for measuring errors, never for a release."""
    size = noise.coordinates
    if noise.noise == "gaussian":
        return generator.normal(0.0, noise.scale * math.sqrt(draws), size)
    if noise.noise == "l1":  # a Laplace number is the difference of two exponential ones
        return np.asarray(noise.scale * (generator.gamma(draws, size=size) - generator.gamma(draws, size=size)))
    if draws > 1000:
        return generator.normal(0.0, math.sqrt(noise.variance * draws), size)
    if noise.noise == "l2":
        sphere = generator.normal(size=(draws, size))
        sphere /= np.linalg.norm(sphere, axis=1, keepdims=True)
        return np.asarray((sphere * generator.gamma(size, noise.scale, size=(draws, 1))).sum(axis=0))
    cube = generator.uniform(-1.0, 1.0, size=(draws, size))
    return np.asarray((cube * generator.gamma(size + 1, noise.scale, size=(draws, 1))).sum(axis=0))


def inversion_of(candidate: UserCandidate) -> Inversion | None:
    """That of an item randomizer; it takes long for many points, so make it once."""
    return None if candidate.randomizer is None else Inversion.of(candidate.randomizer)


def one_error(
    query: UserQuery, candidate: UserCandidate, inversion: Inversion | None, crowd: Crowd, generator: np.random.Generator
) -> float:
    """The error of one simulated release; `inversion` as `inversion_of` makes it."""
    if inversion is not None:
        shares = simulated_shares(inversion, crowd.sampled, generator)
        return distance_of(query.people, possible_shares(TreeEmbedding.of(query.people.items_in), shares), crowd.truth)
    if candidate.noise is None:
        raise InputError(f"{candidate.name} has neither noise nor a randomizer, so there is nothing to simulate.")
    draws = 1 if candidate.model == "central" else crowd.users
    noise = simulated_noise(candidate.noise, draws, generator) / crowd.users
    if not isinstance(query, UserHistogram):
        return float(np.abs(noise).mean())
    noisy = crowd.truth @ query.coordinates.table + noise
    released = shares_from_subtrees(query.tree, noisy) if query.has_tree else simplex_projection(noisy)
    return distance_of(query.people, released, crowd.truth)


def expected_error(setting: UserSetting, candidate: UserCandidate) -> float:
    """Of a linear query, by formula; of a histogram, the mean of a few seeded runs for items spread evenly over the points."""
    if candidate.noise is not None and not isinstance(setting.query, UserHistogram):
        return candidate.noise.mean_size(1 if candidate.model == "central" else setting.users) / setting.users
    generator = np.random.default_rng(0)
    runs = PLANNING_RUNS[setting.query.people.size <= MANY_POINTS]
    errors = _errors(setting.query, candidate, setting.users, setting.samples, None, runs, generator)
    return float(errors.mean())


def simulate_users(
    plan: UserPlan, runs: int = 200, randomness: Randomness | None = None, *, users: int | None = None, shares: Any = None,
    people: Any = None,
) -> UserSimulation:  # fmt: skip
    """Draw `runs` errors of the plan's estimate, for items drawn from `shares` (evenly by default) or held by real `people`."""
    if isinstance(runs, bool) or not isinstance(runs, int) or runs < 1:
        raise InputError(f"runs must be a whole number >= 1, got {runs!r}.")
    generator = np.random.default_rng((Randomness.seeded(0) if randomness is None else randomness).words(4))
    count = checked_users(plan.users if users is None else users) if people is None else len(people)
    plan.check_batch(count)
    if people is None:
        errors = _errors(plan.query, plan.choice, count, plan.samples, shares, runs, generator)
    else:
        items = plan.query.people.items or plan.samples or 1
        crowds = (Crowd.of(plan.query.people, people, items, generator) for _ in range(runs))
        inversion = inversion_of(plan.choice)
        errors = np.array([one_error(plan.query, plan.choice, inversion, crowd, generator) for crowd in crowds])
    return UserSimulation(
        runs=runs, users=count, mean_error=float(errors.mean()),
        standard_error=float(errors.std(ddof=1) / math.sqrt(runs)) if runs > 1 else math.inf,
        root_mean_square_error=float(np.sqrt((errors**2).mean())), expected_error=plan.choice.expected_error,
    )  # fmt: skip


def _errors(
    query: UserQuery, candidate: UserCandidate, users: int, samples: int | None, shares: Any, runs: int, generator: np.random.Generator
) -> Floats:  # fmt: skip
    spread = np.full(query.people.size, 1.0 / query.people.size) if shares is None else np.asarray(shares, dtype=np.float64)
    if spread.shape != (query.people.size,) or not (np.all(spread >= 0.0) and 0.0 < spread.sum() < math.inf):
        raise InputError(f"shares must be {query.people.size:,} numbers >= 0, one for each point, got shape {spread.shape}.")
    items, own = query.people.items or TYPICAL_ITEMS, samples if query.people.items is None else None
    crowds, inversion = (Crowd.drawn(spread, users, items, generator, own) for _ in range(runs)), inversion_of(candidate)
    return np.array([one_error(query, candidate, inversion, crowd, generator) for crowd in crowds])
