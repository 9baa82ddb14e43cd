"""How a plan behaves over many releases, without making a single report.

The error of an additive protocol is its summed noise, whatever the data; so a run for a billion
users costs the same as one for ten. Shares depend on who holds what: evenly spread people, unless others are given.
How far a histogram of users' items is off depends on them a lot, so that plans tell it for three kinds of people.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from metricshuffle.display import HtmlRepr
from metricshuffle.errors import InputError
from metricshuffle.estimation.inversion import Inversion
from metricshuffle.estimation.likelihood_batches import fit_likelihoods
from metricshuffle.models import format_value
from metricshuffle.numerics.types import Floats
from metricshuffle.planning.share_errors import share_errors
from metricshuffle.privacy.target import checked_users
from metricshuffle.protocols.frequencies import Frequencies
from metricshuffle.protocols.noisy_vectors import NoisyVectors
from metricshuffle.protocols.protocol import Protocol
from metricshuffle.protocols.sums import Sums
from metricshuffle.queries.histogram import Histogram
from metricshuffle.queries.query import Query
from metricshuffle.queries.summed_query import SummedQuery
from metricshuffle.queries.user_queries import UserHistogram, UserQuery
from metricshuffle.randomness import Randomness
from metricshuffle.simulation.fast_draws import distance_of, report_laws, total_errors
from metricshuffle.simulation.population import Population, validate_shares, zipf_shares
from metricshuffle.simulation.user_item_runs import answer_run, interval_width, mean_distance, share_simulator
from metricshuffle.simulation.vector_runs import FEW_RUNS_POINTS, covered_share, crowd_of, released_shares
from metricshuffle.tasks.task import Task

if TYPE_CHECKING:
    from metricshuffle.planning.plan import Plan

PLANNING_RUNS, OTHER_RUNS = (12, 96), (8, 12)
"""Simulated releases of users' items that are spread evenly, and otherwise; of many points, and of few."""
POPULATION_DRAWS = 4
"""So many draws of who holds what are simulated where items do not lie evenly: which point all of them are on matters."""
ItemSpread = Literal["evenly", "spread by Zipf's law", "all on one point"]
"""How everybody's items lie: all points alike; 1, 1/2, 1/3, ... of them in random order; all at one point, drawn at random."""
OTHER_SPREADS: tuple[ItemSpread, ...] = ("spread by Zipf's law", "all on one point")
# How many items a user holds, if any number will do.
TYPICAL_ITEMS = 100
MAX_RUNS = 10**7  # they are kept
# Values of a range at which the variance of a WitchHat report is looked at, for people spread evenly.
EVEN_VALUES = 65
# Releases that are simulated at once: about the same people, from noisy vectors.
RUNS_TOGETHER = 16

Run = tuple[float, float]
"""The error of one simulated release, and which share of its numbers lay inside their 95 % intervals."""


@dataclass(frozen=True)
class Simulation(HtmlRepr):
    """Errors of simulated releases as the query measures them: absolute, Euclidean for a centroid, the mean over the shares of a
    histogram, the earth mover's distance for users' items."""

    runs: int
    users: int
    mean_absolute_error: float
    standard_error: float
    """Of the mean absolute error over the runs."""
    root_mean_square_error: float
    coverage_95: float | None
    """Share of the released numbers inside their 95 % interval (axes of a place jointly). Of smoothed shares, which have none: how much of
    what is said of them is true, what each is at most and the shares nearby; None where nothing is said."""
    expected_error: float
    smoothed: bool = False
    """The shares are smoothed, and have no intervals."""

    def __repr__(self) -> str:
        return (
            f"Simulation({self.runs:,} runs of {self.users:,} users: mean absolute error {self.mean_absolute_error:.4g}, "
            f"expected {self.expected_error:.4g}, {self.covered})"
        )

    @property
    def covered(self) -> str:
        """How often intervals hold, in words."""
        if self.coverage_95 is None:
            return "smoothed shares without intervals"
        percent = f"{100 * self.coverage_95:.4g} %"
        return f"{percent} of what is said of smoothed shares at 95 % holds" if self.smoothed else f"{percent} inside their 95 % interval"


def simulate(
    plan: Plan | Task,
    runs: int = 1000,
    randomness: Randomness | None = None,
    *,
    users: int | None = None,
    shares: Any = None,
    people: Any = None,
) -> Simulation:
    """Draw `runs` errors of the plan's estimate. Seeded by default: a simulation, never a release.

    Tables: values drawn from `shares` (evenly by default); users' items also as they are held by real `people`.
    """
    task = plan if isinstance(plan, Task) else plan.task
    query, protocol = task.query, task.protocol
    if isinstance(runs, bool) or not isinstance(runs, int) or not 1 <= runs <= MAX_RUNS:
        raise InputError(f"runs must be a whole number from 1 to 1e7, got {format_value(runs)}.")
    if (shares is not None and not query.shared) or (people is not None and not isinstance(query, UserQuery)):
        raise InputError(f"the error of a {query.kind} does not depend on what people hold; leave shares and people out.")
    count = checked_users(task.users if users is None else users) if people is None else len(people)
    task.check_batch(count)
    source = Randomness.seeded(0) if randomness is None else randomness
    if isinstance(protocol, Sums):
        results = _sums(query, protocol, count, runs, source)
    else:
        generator = np.random.default_rng(source.words(4))
        draw = _simulate_runs(query, protocol, count, shares, people, generator)
        results = np.array([next(draw) for _ in range(runs)])
    errors, covered = results[:, 0], results[:, 1]
    expected = protocol.expected_error(query, count)
    if expected is None:
        users_items = isinstance(query, UserQuery)
        expected = simulated_error(query, protocol, count) if users_items else share_errors(protocol, query, count).largest()[0]
    return Simulation(
        runs=runs,
        users=count,
        mean_absolute_error=float(errors.mean()),
        standard_error=float(errors.std(ddof=1) / math.sqrt(runs)) if runs > 1 else math.inf,
        root_mean_square_error=float(np.sqrt((errors**2).mean())),
        coverage_95=None if np.isnan(covered).any() else float(covered.mean()),
        expected_error=expected,
        smoothed=isinstance(protocol, NoisyVectors) and not protocol.tells_apart(query),
    )


def simulated_error(query: Query, protocol: Protocol, users: int, samples: int | None = None, spread: ItemSpread = "evenly") -> float:
    """The expected error where no formula tells it: the mean of a few seeded runs for items that lie so."""
    if not isinstance(query, UserHistogram):
        raise InputError(f"the expected error of a {query.kind} has a formula.")
    generator, size = np.random.default_rng(0), query.people.size
    runs = (PLANNING_RUNS if spread == "evenly" else OTHER_RUNS)[size <= FEW_RUNS_POINTS]

    def shares() -> Floats | None:
        if spread == "spread by Zipf's law":
            return zipf_shares(size, generator)
        return None if spread == "evenly" else np.eye(1, size, int(generator.integers(size)))[0]

    releases: list[tuple[Floats, Floats]] = []
    if isinstance(protocol, NoisyVectors):  # several about the same people, which takes a fraction of the time
        crowds = 1 if spread == "evenly" else POPULATION_DRAWS
        for _ in range(crowds):
            crowd = _draw_population(query, protocol, users, shares(), generator, samples)
            releases += [(row, crowd.truth) for row in released_shares(protocol, query, crowd, runs // crowds, generator)]
        return mean_distance(query.people, releases)
    draw = share_simulator(query, protocol)
    for _ in range(runs):
        crowd = _draw_population(query, protocol, users, shares(), generator, samples)
        releases.append((draw(crowd, generator)[0], crowd.truth))
    return mean_distance(query.people, releases)


def other_errors(query: Query, protocol: Protocol, users: int, samples: int | None = None) -> dict[str, float]:
    """`simulated_error` for users whose items do not lie evenly, by how they lie; empty where it does not matter."""
    if not isinstance(query, UserHistogram) or protocol.expected_error(query, users) is not None:
        return {}
    return {spread: simulated_error(query, protocol, users, samples, spread) for spread in OTHER_SPREADS}


def _reported_items(query: UserQuery, protocol: Protocol, samples: int | None) -> int | None:
    """How many items of a user are reported one by one."""
    return query.people.items or (protocol.items if isinstance(protocol, Frequencies) else samples)


def _draw_population(
    query: UserQuery, protocol: Protocol, users: int, shares: Any, generator: np.random.Generator, samples: int | None = None
) -> Population:  # fmt: skip
    """Users who hold what is drawn from the same shares, as many items as the query says."""
    own = _reported_items(query, protocol, samples) if query.people.items is None else None
    return Population.drawn(validate_shares(shares, query.people.size), users, query.people.items or TYPICAL_ITEMS, generator, own)


def _sums(query: Query, protocol: Sums, people: int, runs: int, source: Randomness) -> Floats:
    if not isinstance(query, SummedQuery):
        raise InputError(f"sums do not answer a {query.kind}.")
    halves = protocol.half_widths(people, 0.95)
    draws = protocol.noise_draws(people)
    errors = np.stack([total_errors(randomizer, draws, people, runs, source) for randomizer in protocol.randomizers], axis=1)
    sizes = np.linalg.norm(errors * query.error_scales(people, protocol.step), axis=1)
    return np.column_stack([sizes, (np.abs(errors) <= halves + 1e-9).all(axis=1)])


def _simulate_runs(
    query: Query, protocol: Protocol, users: int, shares: Any, people: Any, generator: np.random.Generator, samples: int | None = None
) -> Iterator[Run]:
    """Simulated releases, one after the other."""
    if isinstance(query, UserQuery):
        draw = share_simulator(query, protocol) if isinstance(query, UserHistogram) else None
        while True:
            if people is None:
                crowd = _draw_population(query, protocol, users, shares, generator, samples)
            else:
                items = _reported_items(query, protocol, samples) or 1
                crowd = Population.of(query.people, people, items, generator, draws=query.people.items is None)
            if draw is None:
                yield answer_run(query, protocol, crowd, generator)
            else:
                released, inside = draw(crowd, generator)
                yield distance_of(query.people, released, crowd.truth), inside()
    elif isinstance(protocol, NoisyVectors) and isinstance(query, Histogram):
        yield from _vector_runs(query, protocol, users, validate_shares(shares, query.cells), generator)
    elif isinstance(protocol, Frequencies) and isinstance(query, Histogram):
        yield from _histogram_runs(query, protocol, users, validate_shares(shares, query.cells), generator)
    elif isinstance(protocol, Frequencies):
        yield from _hat_runs(query, protocol, users, generator)
    else:
        raise InputError(f"{protocol.name} cannot be simulated for a {query.kind}.")


def _histogram_runs(query: Histogram, protocol: Frequencies, users: int, shares: Floats, generator: np.random.Generator) -> Iterator[Run]:
    """How far the likeliest shares are off, and how often unbiased ones lie inside their intervals."""
    inversion = Inversion.of(protocol.randomizer)
    laws = report_laws(protocol.randomizer)
    while True:
        holders = generator.multinomial(users, shares / shares.sum(), RUNS_TOGETHER)
        counts = np.stack([laws.counts(row, generator) for row in holders])
        off = np.abs(fit_likelihoods(protocol.randomizer, counts).shares - holders / users).mean(axis=1)
        for truth, reported, error in zip(holders / users, counts, off, strict=True):
            halves = interval_width(users) * np.sqrt(users * inversion.variances(truth) + inversion.largest_variances) / users
            yield float(error), float((np.abs(inversion.totals(reported) / users - truth) <= halves).mean())


def _vector_runs(query: Histogram, protocol: NoisyVectors, users: int, shares: Floats, generator: np.random.Generator) -> Iterator[Run]:
    while True:
        crowd = crowd_of(query, shares, users, generator)
        errors = np.abs(released_shares(protocol, query, crowd, RUNS_TOGETHER, generator) - crowd.truth).mean(axis=1)
        inside = covered_share(protocol, query, crowd, RUNS_TOGETHER, generator)
        yield from ((float(error), inside) for error in errors)


def _hat_runs(query: Query, protocol: Frequencies, users: int, generator: np.random.Generator) -> Iterator[Run]:
    """Totals of many reports, by the normal approximation, for values spread evenly."""
    hat = protocol.witch_hat
    variance = float(np.mean([hat.variance(float(value)) for value in np.linspace(-hat.half_width, hat.half_width, EVEN_VALUES)]))
    scale = 1.0 if query.kind == "mean" else float(users)
    half = interval_width(users) * math.sqrt(hat.variance(hat.half_width) / users) * scale
    while True:
        error = abs(float(generator.normal(0.0, math.sqrt(variance / users)))) * scale
        yield error, float(error <= half)
