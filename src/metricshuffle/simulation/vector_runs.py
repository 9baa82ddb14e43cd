"""Simulated releases of noisy vectors: their shares, how many of these lie inside their intervals, and how far mass is off."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from metricshuffle.numerics.types import Floats
from metricshuffle.protocols.features import Lattice, space_of
from metricshuffle.protocols.noisy_vectors import NoisyVectors, feature_table
from metricshuffle.queries.query import Query
from metricshuffle.simulation.fast_draws import ReportLaws, noise_quantiles
from metricshuffle.simulation.population import Population
from metricshuffle.spaces import Grid, Space

FEW_RUNS_POINTS = 256
"""From more of them on fewer releases are simulated when planning."""


def crowd_of(query: Query, shares: Floats, people: int, generator: np.random.Generator) -> Population:
    """Everybody holds what is drawn from the same shares: as many items as the query says, one where users may hold any number."""
    return Population.drawn(shares, people, query.items if isinstance(query.items, int) else 1, generator)


def simulated_means(protocol: NoisyVectors, space: Space, crowd: Population, runs: int, generator: np.random.Generator) -> Floats:
    """The means of the features, a row for each of so many releases."""
    table, people = feature_table(protocol.features, space), crowd.users
    if protocol.blur is None:
        counted = np.tile(crowd.truth, (runs, 1))
    else:
        laws = ReportLaws.of(protocol.blur)
        counted = np.stack([laws.counts(crowd.sampled, generator) for _ in range(runs)]) / crowd.sampled.sum()
    return np.asarray(counted @ table + noise_rows(protocol, space, people, generator.random((runs, protocol.coordinates))))


def noise_rows(protocol: NoisyVectors, space: Space, people: int, uniforms: Floats) -> Floats:
    """The noise on the means of the features, from a number in (0, 1) for each, which tells where in its law it lies."""
    shape = Fraction(1) if protocol.trusted == "curator" else Fraction(people, protocol.sharers)
    noise, rates = np.empty_like(uniforms), protocol.rates(space)
    for rate in np.unique(rates):
        noise[:, rates == rate] = noise_quantiles(shape, float(rate), uniforms[:, rates == rate])
    return noise / (people * protocol.units)


def released_shares(protocol: NoisyVectors, query: Query, crowd: Population, runs: int, generator: np.random.Generator) -> Floats:
    """The shares of so many releases about the same people, a row each."""
    space = space_of(query)
    means = simulated_means(protocol, space, crowd, runs, generator)
    return protocol.features.shares(space, means, protocol.errors(query, crowd.users), protocol.blur)


def covered_share(protocol: NoisyVectors, query: Query, crowd: Population, runs: int, generator: np.random.Generator) -> float:
    """Which part of what is said of the shares at 95 % is true, over so many releases about the same people; nan where nothing is said.

    Intervals of shares; of smoothed ones what they are at most, and the intervals of the shares nearby.
    """
    space = space_of(query)
    known, means = protocol.known(space, crowd.users), simulated_means(protocol, space, crowd, runs, generator)
    if known.single is not None:
        return float(np.mean(np.abs(known.single.values(means) - crowd.truth) <= known.half_widths(means, 0.95, False)))
    hits = []
    if known.above is not None:
        hits.append(np.mean(crowd.truth <= known.at_most(means, 0.95, False)))
    if known.around is not None:
        low, high = known.around_ends(means, 0.95, False)
        around = known.around.values(crowd.truth @ feature_table(protocol.features, space))[known.around.row_of]
        hits.append(np.mean((low <= around) & (around <= high)))
    return float(np.mean(hits)) if hits else math.nan


def moved_mass(space: Space, left: Floats, right: Floats) -> Floats:
    """About how far mass has to be moved between the rows of two tables of shares: exactly on a line, by nested squares on a grid.

    In steps or cells; half the sum of the differences elsewhere. It tells feature sets apart; a release is never measured by it.
    """
    difference, domain = left - right, space.domain
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
        total = total + 0.5 * size * np.abs(np.add.reduceat(down, np.arange(0, domain.width, size), axis=2)).sum(axis=(1, 2))
        size *= 2
    return np.asarray(total)
