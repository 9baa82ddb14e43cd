"""How a plan behaves over many releases, without making a single report.

The error of an additive protocol is its summed noise, whatever the data; so a run for a billion
users costs the same as one for ten.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from metricshuffle.errors import InputError
from metricshuffle.planning.plan import Plan
from metricshuffle.planning.user_plan import UserPlan
from metricshuffle.planning.user_simulation import UserSimulation, simulate_users
from metricshuffle.randomizers.additive import AdditiveRandomizer
from metricshuffle.randomizers.count_response import CountResponse
from metricshuffle.randomness import Randomness


@dataclass(frozen=True)
class Simulation:
    """Errors of simulated releases, in query units (Euclidean for a centroid)."""

    runs: int
    users: int
    mean_absolute_error: float
    standard_error: float
    """Of the mean absolute error over the runs."""
    root_mean_square_error: float
    coverage_95: float
    """Share of runs whose error stayed inside the 95 % interval on every axis."""
    expected_error: float


@overload
def simulate(plan: Plan, runs: int = 1000, randomness: Randomness | None = None, *, users: int | None = None) -> Simulation: ...
@overload
def simulate(
    plan: UserPlan, runs: int = 1000, randomness: Randomness | None = None, *, users: int | None = None, shares: Any = None,
    people: Any = None,
) -> UserSimulation: ...  # fmt: skip
def simulate(
    plan: Plan | UserPlan, runs: int = 1000, randomness: Randomness | None = None, *, users: int | None = None, **crowd: Any
) -> Simulation | UserSimulation:
    """Draw `runs` errors of the plan's estimate. Seeded by default: a simulation, never a release."""
    if isinstance(plan, UserPlan):
        return simulate_users(plan, runs, randomness, users=users, **crowd)
    if crowd:
        raise TypeError(f"simulate() got an unexpected keyword argument {next(iter(crowd))!r} for a plan of single values")
    if isinstance(runs, bool) or not isinstance(runs, int) or runs < 1:
        raise InputError(f"runs must be a whole number >= 1, got {runs!r}.")
    people = plan.users if users is None else users
    plan.check_batch(people)
    source = Randomness.seeded(0) if randomness is None else randomness
    mechanism = plan.choice.mechanism
    scale = plan.query.error_scale(people, plan.granularity)
    halves = mechanism.half_widths(people, 0.95)
    errors = np.stack(
        [total_errors(randomizer, mechanism.noise_draws(people), people, runs, source) for randomizer in mechanism.randomizers], axis=1
    )
    sizes = np.sqrt((errors**2).sum(axis=1)) * scale
    return Simulation(
        runs=runs, users=people, mean_absolute_error=float(sizes.mean()),
        standard_error=float(sizes.std(ddof=1) / math.sqrt(runs)) if runs > 1 else math.inf,
        root_mean_square_error=float(np.sqrt((sizes**2).mean())),
        coverage_95=float((np.abs(errors) <= halves + 1e-9).all(axis=1).mean()),
        expected_error=mechanism.mean_error(people) * scale,
    )  # fmt: skip


def uniforms(count: int, randomness: Randomness) -> NDArray[np.float64]:
    """Numbers in (0, 1) for simulations; real noise never passes through floats."""
    return (np.asarray(randomness.words(count) >> np.uint64(11), dtype=np.float64) + 0.5) * 2.0**-53


def total_errors(
    randomizer: AdditiveRandomizer | CountResponse, draws: int, people: int, runs: int, randomness: Randomness
) -> NDArray[np.float64]:
    """`runs` simulated errors of one axis' total, in steps: `draws` shares of noise, `people` reports."""
    if isinstance(randomizer, CountResponse):
        # Half of the bits are ones (the variance is the same for every data set); the stream of the simulation seeds numpy's.
        source = np.random.default_rng(randomness.words(4))
        bits = people * randomizer.span
        ones = bits // 2
        seen = source.binomial(ones, 1.0 - randomizer.flip, runs) + source.binomial(bits - ones, randomizer.flip, runs)
        return np.asarray((seen - bits * randomizer.flip) / (1.0 - 2.0 * randomizer.flip) - ones)
    law, scale = randomizer.scaled_error_law(draws)
    # P(|Z| > m) = 2 tail[m+1]: |Z| is the first m where that falls below a uniform number.
    size = np.searchsorted(-law.tail[1:], -0.5 * (1.0 - uniforms(runs, randomness)), side="left").astype(np.float64)
    sign = np.where(randomness.words(runs) & np.uint64(1), 1.0, -1.0)
    noise = size * sign * (randomizer.granularity * scale)
    if randomizer.granularity > 1:
        from scipy.special import ndtri

        noise = noise + ndtri(uniforms(runs, randomness)) * math.sqrt(people * (randomizer.granularity**2 - 1) / 6.0)
    return np.asarray(noise)
