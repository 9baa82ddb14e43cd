"""Simulated releases of shares: noisy vectors, users' items, interval coverage, error of mass."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from metricshuffle.errors import InputError
from metricshuffle.estimation.interval_widths import error_width
from metricshuffle.estimation.inversion import Inversion
from metricshuffle.estimation.share_projection import possible_shares
from metricshuffle.numerics.threads import run_in_parts
from metricshuffle.numerics.types import Floats
from metricshuffle.protocols.feature_estimates import FeatureEstimates
from metricshuffle.protocols.features import Lattice, QueryFeatures, space_of
from metricshuffle.protocols.features.feature_set import feature_table
from metricshuffle.protocols.frequencies import Frequencies
from metricshuffle.protocols.noisy_answers import NoisyAnswers
from metricshuffle.protocols.noisy_vectors import NoisyVectors
from metricshuffle.protocols.protocol import Protocol
from metricshuffle.queries.query import Query
from metricshuffle.queries.user_queries import UserHistogram, UserQuery
from metricshuffle.simulation.fast_draws import (
    ReportLaws,
    distance_of,
    needs_solver,
    noise_quantiles,
    simulated_noise,
    simulated_shares,
)
from metricshuffle.simulation.population import Population
from metricshuffle.spaces import Grid, Space, Users

FEW_RUNS_POINTS = 256
"""Above this many points, planning simulates fewer releases."""
SOLVER_RUNS = 4
"""Simulated releases that are measured by a solver, on a grid of many points."""

Inside = Callable[[], float]
"""Fraction of a release's numbers inside their 95 % intervals; slower to compute than the draw."""
Drawing = Callable[[Population, np.random.Generator], tuple[Floats, Inside]]
"""Draws a release: valid shares of the points, and the fraction inside the intervals."""


def crowd_of(
    query: Query, shares: Floats, people: int, generator: np.random.Generator
) -> Population:
    """Draw people whose items come from the same shares.

    Each has as many items as the query says, or one if users may have any number.
    """
    return Population.drawn(
        shares, people, query.items if isinstance(query.items, int) else 1, generator
    )


def simulated_means(
    protocol: FeatureEstimates,
    space: Space,
    crowd: Population,
    runs: int,
    generator: np.random.Generator,
) -> Floats:
    """Means of the features, one row for each of `runs` releases."""
    table = feature_table(protocol.features, space)
    people = crowd.users
    if protocol.blur is None:
        reported = crowd.sampled / crowd.sampled.sum() if protocol.draws_items else crowd.truth
        counted = np.tile(reported, (runs, 1))
    else:
        laws = ReportLaws.of(protocol.blur)
        counted = (
            np.stack([laws.counts(crowd.sampled, generator) for _ in range(runs)])
            / crowd.sampled.sum()
        )
    uniforms = generator.random((runs, protocol.coordinates))
    bits = bit_noise(protocol, space, people, counted, generator)
    return np.asarray(counted @ table + noise_rows(protocol, space, people, uniforms, bits))


def bit_noise(
    protocol: FeatureEstimates,
    space: Space,
    people: int,
    shares: Floats,
    generator: np.random.Generator,
) -> Floats | None:
    """What random bits add to the sums of the features, for people with these shares (in rows).

    Drawn from the normal approximation; None if the protocol has no random bits, or knows only
    their largest variance.
    """
    variances = protocol.bit_variances(space, shares, people)
    if variances is None:
        return None
    return np.asarray(np.sqrt(variances) * generator.standard_normal(variances.shape))


def noise_rows(
    protocol: FeatureEstimates,
    space: Space,
    people: int,
    uniforms: Floats,
    bits: Floats | None = None,
) -> Floats:
    """Noise on the means of the features: its quantiles at the given numbers in (0, 1).

    `bits` is what random bits add to the sums; see `bit_noise`.
    """
    law = protocol.noise(space, people)
    noise = np.empty_like(uniforms)
    for rate in np.unique(law.rates):
        same = law.rates == rate
        noise[:, same] = noise_quantiles(law.shape, float(rate), uniforms[:, same])
    if bits is not None:
        noise += bits
    elif law.rounded and not protocol.draws_items:
        # Random rounding adds little to the noise, so it is simulated by increasing the noise.
        added = 0.25 * law.rounded
        noise *= np.sqrt(law.variances / (law.variances - added))
    return noise / law.count


def released_shares(
    protocol: FeatureEstimates,
    query: Query,
    crowd: Population,
    runs: int,
    generator: np.random.Generator,
) -> Floats:
    """Shares of `runs` releases about the same people, one row each."""
    space = space_of(query)
    means = simulated_means(protocol, space, crowd, runs, generator)
    return protocol.features.shares(
        space, means, protocol.errors(query, crowd.users), protocol.blur
    )


def covered_share(
    protocol: FeatureEstimates,
    query: Query,
    crowd: Population,
    runs: int,
    generator: np.random.Generator,
) -> float:
    """Fraction of the 95 % statements about shares that are true, over `runs` releases.

    All releases are about the same people. The statements are the intervals of shares, or for
    smoothed shares their upper bounds and the intervals of the shares nearby; nan if there are
    none.
    """
    space = space_of(query)
    known = protocol.known(space, crowd.users)
    means = simulated_means(protocol, space, crowd, runs, generator)
    if known.single is not None:
        return float(
            np.mean(
                np.abs(known.single.values(means) - crowd.truth)
                <= known.half_widths(means, 0.95, False)
            )
        )
    hits = []
    if known.above is not None:
        hits.append(np.mean(crowd.truth <= known.at_most(means, 0.95, False)))
    if known.around is not None:
        low, high = known.around_ends(means, 0.95, False)
        around = known.around.values(crowd.truth @ feature_table(protocol.features, space))[
            known.around.row_of
        ]
        hits.append(np.mean((low <= around) & (around <= high)))
    return float(np.mean(hits)) if hits else math.nan


def moved_mass(space: Space, left: Floats, right: Floats) -> Floats:
    """Approximate earth mover's distance between the rows of two tables of shares.

    In steps or cells: exact on a line, by nested squares on a grid; elsewhere half the sum of the
    absolute differences. Used to compare feature sets, never to measure a release.
    """
    difference = left - right
    domain = space.domain
    lattice = Lattice.of(space)
    if lattice is not None and len(lattice.sides) == 1:
        return np.asarray(np.abs(np.cumsum(difference, axis=-1)).sum(axis=-1))
    total = 0.5 * np.abs(difference).sum(axis=-1)
    if not isinstance(domain, Grid):
        return np.asarray(total)
    cells = difference.reshape(-1, domain.height, domain.width)
    size = 2
    while size < max(domain.width, domain.height):
        down = np.add.reduceat(cells, np.arange(0, domain.height, size), axis=1)
        total = total + 0.5 * size * np.abs(
            np.add.reduceat(down, np.arange(0, domain.width, size), axis=2)
        ).sum(axis=(1, 2))
        size *= 2
    return np.asarray(total)


def interval_width(draws: int) -> float:
    """Half-width of a 95 % interval in standard errors, as in releases (see `error_width`)."""
    return error_width(draws, 0.05)


def share_simulator(query: UserHistogram, protocol: Protocol) -> Drawing:
    """Return the function that simulates one release about a population."""
    if isinstance(protocol, Frequencies):
        return _from_items(query, protocol)
    if isinstance(protocol, FeatureEstimates):
        return _from_sums(query, protocol)
    if isinstance(protocol, NoisyAnswers):
        return _from_answers(query, protocol)
    raise InputError(f"{protocol.name} cannot be simulated for a {query.kind}.")


def _from_items(query: UserHistogram, protocol: Frequencies) -> Drawing:
    inversion = Inversion.of(protocol.randomizer)

    def draw(crowd: Population, generator: np.random.Generator) -> tuple[Floats, Inside]:
        shares = simulated_shares(inversion, crowd.sampled, generator)

        def inside() -> float:
            spread = inversion.variances(crowd.truth) + (
                crowd.truth * (1.0 - crowd.truth) if protocol.drawn else 0.0
            )
            reports = crowd.users * protocol.items
            deviations = np.sqrt(reports * spread + inversion.largest_variances) / reports
            return float(
                (np.abs(shares - crowd.truth) <= interval_width(crowd.users) * deviations).mean()
            )

        return possible_shares(query.tree, shares), inside

    return draw


def _from_sums(query: UserHistogram, protocol: FeatureEstimates) -> Drawing:
    def draw(crowd: Population, generator: np.random.Generator) -> tuple[Floats, Inside]:
        return released_shares(protocol, query, crowd, 1, generator)[0], lambda: covered_share(
            protocol, query, crowd, 1, generator
        )

    return draw


def _from_answers(query: UserHistogram, protocol: NoisyAnswers) -> Drawing:
    features = protocol.features
    table = protocol.features.coordinates(query).table

    def draw(crowd: Population, generator: np.random.Generator) -> tuple[Floats, Inside]:
        answers = crowd.truth @ table + _answer_noise(protocol, crowd, generator)
        released = features.possible(query, answers)
        if released is None:
            raise InputError(f"{protocol.name} releases no shares.")

        def inside() -> float:
            measured, errors = features.totals(query, answers, _answer_error(protocol, crowd))
            return float(
                (np.abs(measured - crowd.truth) <= _answer_width(protocol, crowd) * errors).mean()
            )

        return released, inside

    return draw


def answer_run(
    query: UserQuery, protocol: Protocol, crowd: Population, generator: np.random.Generator
) -> tuple[float, float]:
    """Simulate one release of means that are not shares.

    Returns the mean absolute error, and the fraction inside the intervals.
    """
    if isinstance(protocol, NoisyVectors):
        return _column_run(query, protocol, crowd, generator)
    if not isinstance(protocol, NoisyAnswers):
        raise InputError(f"{protocol.name} cannot be simulated for a {query.kind}.")
    off = np.abs(_answer_noise(protocol, crowd, generator))
    return float(off.mean()), float(
        (off <= _answer_width(protocol, crowd) * _answer_error(protocol, crowd)).mean()
    )


def _column_run(
    query: UserQuery, protocol: NoisyVectors, crowd: Population, generator: np.random.Generator
) -> tuple[float, float]:
    """Simulate one release of means of columns."""
    features = protocol.features
    if not isinstance(features, QueryFeatures):
        raise InputError(f"{protocol.name} estimates shares, not the answer to a {query.kind}.")
    space = space_of(query)
    people = crowd.users
    measured = simulated_means(protocol, space, crowd, 1, generator)[0]
    estimate = features.estimate(query, measured, protocol.noise(space, people), people)
    low, high = estimate.interval(0.95)
    exact = features.estimate(
        query,
        np.asarray(crowd.truth @ feature_table(features, space)),
        protocol.noise(space, people),
        people,
    )
    inside = (low <= exact.totals) & (exact.totals <= high)
    return float(np.abs(estimate.totals - exact.totals).mean()) / people, float(inside.mean())


def _answer_noise(
    protocol: NoisyAnswers, crowd: Population, generator: np.random.Generator
) -> Floats:
    return simulated_noise(protocol.noise, protocol.draws(crowd.users), generator) / crowd.users


def _answer_error(protocol: NoisyAnswers, crowd: Population) -> float:
    return math.sqrt(protocol.noise.variance * protocol.draws(crowd.users)) / crowd.users


def _answer_width(protocol: NoisyAnswers, crowd: Population) -> float:
    return interval_width(1 if protocol.trusted == "curator" else crowd.users)


def mean_distance(people: Users, releases: Sequence[tuple[Floats, Floats]]) -> float:
    """Mean earth mover's distance of released shares from the true ones.

    On a grid of many points the solver takes most of the time of planning, so that it measures only
    a few releases. The others are included by a ratio estimate: nested squares, which roughly
    follow the distance and need no solver, measure all of them. This is for choosing among
    candidates; `simulate` measures every release by the solver.
    """
    by_ratio = (
        isinstance(people.items_in.domain, Grid)
        and people.size > FEW_RUNS_POINTS
        and needs_solver(people)
    )
    solved = releases[:SOLVER_RUNS] if by_ratio else releases

    def measured(start: int, stop: int) -> list[float]:
        return [
            distance_of(people, released, true_shares)
            for released, true_shares in solved[start:stop]
        ]

    parts = run_in_parts(measured, len(solved)) if by_ratio else [measured(0, len(solved))]
    mean = float(np.mean(np.concatenate(parts)))
    if len(solved) == len(releases):
        return mean
    about = np.array(
        [
            float(moved_mass(people.items_in, released, true_shares).item())
            for released, true_shares in releases
        ]
    )
    return (
        mean * float(about.mean() / about[: len(solved)].mean())
        if about[: len(solved)].any()
        else mean
    )
