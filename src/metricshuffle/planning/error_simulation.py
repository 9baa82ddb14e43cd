"""Simulate the errors of many releases of a plan without making reports.

The error of an additive protocol is its summed noise, whatever the data, so a run for a billion
users costs the same as one for ten. Errors of shares depend on the data: people are spread evenly
unless shares or people are given. Histograms of users' items depend on it strongly, so plans give
their errors for three kinds of people.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from metricshuffle.display import HtmlRepr
from metricshuffle.errors import InputError, argument
from metricshuffle.estimation.inversion import Inversion
from metricshuffle.estimation.likelihood_batches import fit_likelihoods
from metricshuffle.models import format_value
from metricshuffle.numerics.types import Floats
from metricshuffle.planning.lying_participants import SimulatedAttack, simulate_attack
from metricshuffle.privacy.target import checked_users
from metricshuffle.protocols.damage import Liars, liar_count
from metricshuffle.protocols.feature_estimates import FeatureEstimates
from metricshuffle.protocols.features import LineAnswers, RecordFeatures, space_of
from metricshuffle.protocols.features.group_features import MEAN_PLACES, GroupFeatures
from metricshuffle.protocols.frequencies import Frequencies
from metricshuffle.protocols.noisy_vectors import NoisyVectors
from metricshuffle.protocols.protocol import Protocol
from metricshuffle.protocols.record_reports import RecordReports
from metricshuffle.protocols.sums import Sums
from metricshuffle.protocols.tally import Batch, Shuffled
from metricshuffle.queries.by_group import ByGroup
from metricshuffle.queries.cell_query import CellQuery
from metricshuffle.queries.histogram import Histogram
from metricshuffle.queries.keyed_means import KeyValues
from metricshuffle.queries.line_query import LineQuery
from metricshuffle.queries.query import Query
from metricshuffle.queries.record_query import RecordQuery
from metricshuffle.queries.summed_query import SummedQuery
from metricshuffle.queries.user_queries import UserHistogram, UserQuery
from metricshuffle.randomness import Randomness
from metricshuffle.simulation.fast_draws import distance_of, report_laws, total_errors
from metricshuffle.simulation.population import (
    Population,
    near_public_weights,
    validate_shares,
    zipf_shares,
)
from metricshuffle.simulation.share_errors import mean_error, share_errors
from metricshuffle.simulation.simulated_releases import (
    FEW_RUNS_POINTS,
    answer_run,
    covered_share,
    crowd_of,
    interval_width,
    mean_distance,
    released_shares,
    share_simulator,
    simulated_means,
)
from metricshuffle.tasks.task import Task

if TYPE_CHECKING:
    from metricshuffle.planning.plan import Plan

PLANNING_RUNS = (12, 96)
OTHER_RUNS = (8, 12)
"""Runs for many and for few points: PLANNING_RUNS for items spread evenly, OTHER_RUNS if not."""
POPULATION_DRAWS = 4
"""Number of populations drawn if items are not spread evenly, because their points matter then."""
ItemSpread = Literal["evenly", "spread by Zipf's law", "all on one point"]
"""How items are distributed: evenly; 1, 1/2, 1/3, ... in random order; at one random point."""
OTHER_SPREADS: tuple[ItemSpread, ...] = ("spread by Zipf's law", "all on one point")
# Simulated items per user, if users may hold any number.
TYPICAL_ITEMS = 100
MAX_RUNS = 10**7  # all errors are held in memory
# Evenly spaced values over which the variance of a WitchHat report is averaged.
EVEN_VALUES = 65
# Releases simulated at once for one population.
RUNS_TOGETHER = 16

Run = tuple[float, float]
"""Error of one simulated release, and the share of its numbers inside their 95 % intervals."""


@dataclass(frozen=True)
class Simulation(HtmlRepr):
    """Errors of simulated releases, as the query measures them.

    Absolute for sums and means, Euclidean for a centroid, the mean over the shares of a histogram
    or over the numbers of a table, the earth mover's distance for users' items.
    """

    runs: int
    users: int
    mean_absolute_error: float
    standard_error: float
    """Standard error of the mean absolute error over the runs."""
    root_mean_square_error: float
    coverage_95: float | None
    """Share of the released numbers inside their 95 % interval (axes of a place jointly).

    For smoothed shares, which have no intervals: the share of true statements about them (the upper
    bound of each, and the shares nearby). None if no statement is made.
    """
    expected_error: float
    smoothed: bool = False
    """Whether the shares are smoothed and have no intervals."""
    attack: SimulatedAttack | None = None
    """Errors with and without participants who lie, if some were to."""

    def __repr__(self) -> str:
        return (
            f"Simulation({self.runs:,} runs of {self.users:,} users: mean absolute error "
            f"{self.mean_absolute_error:.4g}, "
            f"expected {self.expected_error:.4g}, {self.covered})"
        )

    @property
    def covered(self) -> str:
        """Text on how often intervals hold."""
        if self.coverage_95 is None:
            return "smoothed shares without intervals"
        percent = f"{100 * self.coverage_95:.4g} %"
        return (
            f"{percent} of what is said of smoothed shares at 95 % holds"
            if self.smoothed
            else f"{percent} inside their 95 % interval"
        )


def simulate(
    plan: Plan | Task,
    runs: int = 1000,
    randomness: Randomness | None = None,
    *,
    users: int | None = None,
    shares: object = None,
    people: Any = None,
    liars: Liars | None = None,
) -> Simulation:
    """Draw `runs` errors of the plan's estimate. Seeded by default: a simulation, never a release.

    For histograms, quantiles, spread and users' items, values are drawn from `shares` (evenly by
    default); for users' items, `people` may give real items instead. With `liars`, a count or a
    percentage, fewer releases are also made of real reports, with and without the worst attack
    known.
    """
    task = plan if isinstance(plan, Task) else plan.task
    query = task.query
    protocol = task.protocol
    if isinstance(runs, bool) or not isinstance(runs, int) or not 1 <= runs <= MAX_RUNS:
        raise InputError(
            f"{argument('runs')} must be a whole number from 1 to 1e7, got {format_value(runs)}."
        )
    if (shares is not None and not (query.shared or isinstance(query, CellQuery))) or (
        people is not None and not isinstance(query, UserQuery)
    ):
        raise InputError(
            f"the error of a {query.kind} does not depend on what people hold; leave "
            "shares and people out."
        )
    count = checked_users(task.users if users is None else users) if people is None else len(people)
    task.check_batch(count)
    lying = None if liars is None else liar_count(liars, count)
    source = Randomness.seeded(0) if randomness is None else randomness
    if isinstance(protocol, Sums):
        results = _sums(query, protocol, count, runs, source)
    else:
        generator = np.random.default_rng(source.words(4))
        draw = _simulate_runs(query, protocol, count, shares, people, generator)
        results = np.array([next(draw) for _ in range(runs)])
    errors = results[:, 0]
    covered = results[:, 1]
    expected = protocol.expected_error(query, count)
    if expected is None:
        users_items = isinstance(query, UserQuery)
        expected = (
            simulated_error(query, protocol, count)
            if users_items
            else share_errors(protocol, query, count).largest()[0]
        )
    return Simulation(
        runs=runs,
        users=count,
        mean_absolute_error=float(errors.mean()),
        standard_error=float(errors.std(ddof=1) / math.sqrt(runs)) if runs > 1 else math.inf,
        root_mean_square_error=float(np.sqrt((errors**2).mean())),
        coverage_95=None if np.isnan(covered).any() else float(covered.mean()),
        expected_error=expected,
        smoothed=isinstance(protocol, FeatureEstimates) and not protocol.tells_apart(query),
        attack=None if lying is None else simulate_attack(task, count, lying, runs, source),
    )


def simulated_error(
    query: Query,
    protocol: Protocol,
    users: int,
    samples: int | None = None,
    spread: ItemSpread = "evenly",
) -> float:
    """Expected error of a user histogram: the mean of a few seeded runs for this item spread."""
    if not isinstance(query, UserHistogram):
        raise InputError(f"the expected error of a {query.kind} has a formula.")
    generator = np.random.default_rng(0)
    size = query.people.size
    runs = (PLANNING_RUNS if spread == "evenly" else OTHER_RUNS)[size <= FEW_RUNS_POINTS]

    def shares() -> Floats | None:
        if spread == "spread by Zipf's law":
            return zipf_shares(size, generator)
        return None if spread == "evenly" else np.eye(1, size, int(generator.integers(size)))[0]

    releases: list[tuple[Floats, Floats]] = []
    if isinstance(
        protocol, FeatureEstimates
    ):  # several releases per population, which is much faster
        crowds = 1 if spread == "evenly" else POPULATION_DRAWS
        for _ in range(crowds):
            crowd = _draw_population(query, protocol, users, shares(), generator, samples)
            releases += [
                (row, crowd.truth)
                for row in released_shares(protocol, query, crowd, runs // crowds, generator)
            ]
        return mean_distance(query.people, releases)
    draw = share_simulator(query, protocol)
    for _ in range(runs):
        crowd = _draw_population(query, protocol, users, shares(), generator, samples)
        releases.append((draw(crowd, generator)[0], crowd.truth))
    return mean_distance(query.people, releases)


def other_errors(
    query: Query, protocol: Protocol, users: int, samples: int | None = None
) -> dict[str, float]:
    """Return `simulated_error` for each uneven spread of items; empty if no spread matters."""
    if not isinstance(query, UserHistogram) or protocol.expected_error(query, users) is not None:
        return {}
    return {
        spread: simulated_error(query, protocol, users, samples, spread) for spread in OTHER_SPREADS
    }


def _reported_items(query: UserQuery, protocol: Protocol, samples: int | None) -> int | None:
    """Number of items of one user that are reported one by one."""
    if isinstance(protocol, Frequencies) or _draws_items(protocol):
        return int(getattr(protocol, "items", 1))
    return query.people.items or samples


def _draws_items(protocol: Protocol) -> bool:
    return bool(getattr(protocol, "drawn", False))


def _draw_population(
    query: UserQuery,
    protocol: Protocol,
    users: int,
    shares: object,
    generator: np.random.Generator,
    samples: int | None = None,
) -> Population:
    """Draw users whose items all follow the same shares."""
    draws = query.people.items is None or _draws_items(protocol)
    return Population.drawn(
        validate_shares(shares, query.people.size),
        users,
        query.people.items or TYPICAL_ITEMS,
        generator,
        _reported_items(query, protocol, samples) if draws else None,
    )


def _sums(query: Query, protocol: Sums, people: int, runs: int, source: Randomness) -> Floats:
    if not isinstance(query, SummedQuery):
        raise InputError(f"sums do not answer a {query.kind}.")
    halves = protocol.half_widths(people, 0.95)
    draws = protocol.noise_draws(people)
    errors = np.stack(
        [
            total_errors(randomizer, draws, people, runs, source)
            for randomizer in protocol.randomizers
        ],
        axis=1,
    )
    sizes = np.linalg.norm(errors * query.error_scales(people, protocol.step), axis=1)
    return np.column_stack([sizes, (np.abs(errors) <= halves + 1e-9).all(axis=1)])


def _simulate_runs(
    query: Query,
    protocol: Protocol,
    users: int,
    shares: object,
    people: object,
    generator: np.random.Generator,
    samples: int | None = None,
) -> Iterator[Run]:
    """Yield simulated releases without end."""
    if isinstance(query, UserQuery):
        draw = share_simulator(query, protocol) if isinstance(query, UserHistogram) else None
        while True:
            if people is None:
                crowd = _draw_population(query, protocol, users, shares, generator, samples)
            else:
                items = _reported_items(query, protocol, samples) or 1
                crowd = Population.of(
                    query.people,
                    people,
                    items,
                    generator,
                    draws=query.people.items is None or _draws_items(protocol),
                )
            if draw is None:
                yield answer_run(query, protocol, crowd, generator)
            else:
                released, inside = draw(crowd, generator)
                yield distance_of(query.people, released, crowd.truth), inside()
    elif isinstance(protocol, RecordReports) and isinstance(query, RecordQuery):
        yield from _report_runs(query, protocol, users, generator)
    elif isinstance(protocol, NoisyVectors) and isinstance(query, ByGroup | KeyValues):
        yield from _group_runs(query, protocol, users, generator)
    elif isinstance(protocol, NoisyVectors) and isinstance(query, RecordQuery):
        yield from _record_runs(query, protocol, users, generator)
    elif isinstance(protocol, FeatureEstimates) and isinstance(query, Histogram):
        yield from _vector_runs(query, protocol, users, _people_shares(query, shares), generator)
    elif isinstance(protocol, NoisyVectors) and isinstance(query, LineQuery):
        yield from _readout_runs(
            query, protocol, users, validate_shares(shares, query.cells), generator
        )
    elif isinstance(protocol, Frequencies) and isinstance(query, Histogram):
        yield from _histogram_runs(query, protocol, users, _people_shares(query, shares), generator)
    elif isinstance(protocol, Frequencies):
        yield from _hat_runs(query, protocol, users, generator)
    else:
        raise InputError(f"{protocol.name} cannot be simulated for a {query.kind}.")


def _people_shares(query: Histogram, shares: object) -> Floats:
    """Shares of simulated people: as given, else equal, or in proportion to public weights."""
    spread = validate_shares(shares, query.cells)
    return near_public_weights(query.points, spread) if shares is None else spread


def _histogram_runs(
    query: Histogram,
    protocol: Frequencies,
    users: int,
    shares: Floats,
    generator: np.random.Generator,
) -> Iterator[Run]:
    """Errors of maximum-likelihood shares, and coverage of the intervals of the unbiased ones."""
    inversion = Inversion.of(protocol.randomizer)
    laws = report_laws(protocol.randomizer)
    while True:
        holders = generator.multinomial(users, shares / shares.sum(), RUNS_TOGETHER)
        counts = np.stack([laws.counts(row, generator) for row in holders])
        off = np.abs(fit_likelihoods(protocol.randomizer, counts).shares - holders / users).mean(
            axis=1
        )
        for truth, reported, error in zip(holders / users, counts, off, strict=True):
            halves = (
                interval_width(users)
                * np.sqrt(users * inversion.variances(truth) + inversion.largest_variances)
                / users
            )
            yield (
                float(error),
                float((np.abs(inversion.totals(reported) / users - truth) <= halves).mean()),
            )


def _vector_runs(
    query: Histogram,
    protocol: FeatureEstimates,
    users: int,
    shares: Floats,
    generator: np.random.Generator,
) -> Iterator[Run]:
    while True:
        crowd = crowd_of(query, shares, users, generator)
        released = released_shares(protocol, query, crowd, RUNS_TOGETHER, generator)
        errors = mean_error(query.points, released, crowd.truth)
        inside = covered_share(protocol, query, crowd, RUNS_TOGETHER, generator)
        yield from ((float(error), inside) for error in errors)


def _readout_runs(
    query: LineQuery,
    protocol: NoisyVectors,
    users: int,
    shares: Floats,
    generator: np.random.Generator,
) -> Iterator[Run]:
    """Mean errors of the numbers of an answer, and how many of them are inside their intervals."""
    features = protocol.features
    if not isinstance(features, LineAnswers):
        raise InputError(f"{features} cannot be simulated for a {query.kind}.")
    space = space_of(query)
    noise = protocol.noise(space, users)
    while True:
        crowd = crowd_of(query, shares, users, generator)
        truth = query.exact(crowd.sampled)
        for means in simulated_means(protocol, space, crowd, RUNS_TOGETHER, generator):
            estimate = features.estimate(query, means, noise, users)
            low, high = estimate.interval(0.95)
            inside = (np.minimum(low, estimate.totals) <= truth) & (
                truth <= np.maximum(high, estimate.totals)
            )
            yield float(np.abs(estimate.totals - truth).mean()), float(inside.mean())


def _group_runs(
    query: ByGroup | KeyValues,
    protocol: NoisyVectors,
    users: int,
    generator: np.random.Generator,
) -> Iterator[Run]:
    """Errors of means by group or key, for the sizes and means that expected errors assume."""
    features = protocol.features
    assert isinstance(features, GroupFeatures)  # noqa: S101 - checked by the protocol
    noise = protocol.noise(space_of(query), users)
    missed = -np.expm1(-noise.rates)
    groups = features.groups
    size = query.typical_size(users)
    while True:
        for place in MEAN_PLACES:
            sums = size * features.mean_features(place * query.top)
            drawn = [generator.negative_binomial(float(noise.shape), missed) for _ in range(2)]
            estimate = features.estimate(query, (sums + drawn[0] - drawn[1]) / users, noise, users)
            truth = np.repeat([size, place * query.top], groups)
            low, high = estimate.interval(0.95)
            errors = np.abs(estimate.totals[groups:] - truth[groups:]) * query.step
            yield float(errors.mean()), float(((low <= truth) & (truth <= high)).mean())


def _record_runs(
    query: RecordQuery, protocol: NoisyVectors, users: int, generator: np.random.Generator
) -> Iterator[Run]:
    """Errors of means and shares in the middle of their range."""
    features = protocol.features
    assert isinstance(features, RecordFeatures)  # noqa: S101 - checked by the protocol
    noise = protocol.noise(space_of(query), users)
    missed = -np.expm1(-noise.rates)
    sums, truth = features.simulated_sums(query, users)
    step = getattr(query, "step", 1.0)
    while True:
        drawn = [generator.negative_binomial(float(noise.shape), missed) for _ in range(2)]
        rounded = (
            generator.binomial(noise.rounded, 0.5, len(sums)) - 0.5 * noise.rounded
            if noise.rounded
            else 0.0
        )
        means = sums / users + (drawn[0] - drawn[1] + rounded) / noise.count
        estimate = features.estimate(query, means, noise, users)
        low, high = estimate.interval(0.95)
        inside = (low <= truth) & (truth <= high)
        yield float(np.abs(estimate.totals - truth).mean()) * step, float(inside.mean())


def _report_runs(
    query: RecordQuery, protocol: RecordReports, users: int, generator: np.random.Generator
) -> Iterator[Run]:
    """Errors of reports about people whose numbers and labels are spread evenly."""
    inputs = query.even_inputs(users, generator)
    truth = query.true_totals(inputs.numbers)
    step = getattr(query, "step", 1.0)
    measured = slice(query.rows if isinstance(query, KeyValues) else 0, None)
    batch = Batch("simulated", 1, True)
    while True:
        source = Randomness.seeded(int(generator.integers(2**62)))
        counts = protocol.counted(protocol.messages(inputs, source))
        estimate = protocol.estimate(query, Shuffled(batch, users, users, counts, None))
        low, high = estimate.interval(0.95)
        inside = (low <= truth) & (truth <= high)
        errors = np.abs(estimate.totals - truth)[measured] * step
        yield float(errors.mean()), float(inside.mean())


def _hat_runs(
    query: Query, protocol: Frequencies, users: int, generator: np.random.Generator
) -> Iterator[Run]:
    """Totals of WitchHat reports by the normal approximation, for values spread evenly."""
    hat = protocol.witch_hat
    variance = float(
        np.mean(
            [
                hat.variance(float(value))
                for value in np.linspace(-hat.half_width, hat.half_width, EVEN_VALUES)
            ]
        )
    )
    scale = 1.0 if query.kind == "mean" else float(users)
    half = interval_width(users) * math.sqrt(hat.variance(hat.half_width) / users) * scale
    while True:
        error = abs(float(generator.normal(0.0, math.sqrt(variance / users)))) * scale
        yield error, float(error <= half)
