"""Simulated releases of noisy vectors: how far the shares are off for people who are spread evenly, clustered or spiky."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from metricshuffle.numerics.types import Floats
from metricshuffle.planning.crowd import Crowd, clustered_shares, zipf_shares
from metricshuffle.planning.drawing import ReportLaws
from metricshuffle.protocols.features import Lattice, space_of
from metricshuffle.protocols.vectors import NoisyVectors, feature_table, half_widths
from metricshuffle.queries.base import Query
from metricshuffle.spaces import Grid, Space

MANY_POINTS = 256
"""From more of them on fewer releases are simulated when planning."""
SPREADS: dict[str, Callable[[Space, np.random.Generator], Floats]] = {
    "spread evenly": lambda space, _: np.full(space.domain.size or 1, 1.0 / (space.domain.size or 1)),
    "in a few clusters": clustered_shares,
    "spread by Zipf's law": lambda space, generator: zipf_shares(space.domain.size or 1, generator),
}
"""How people lie, by words that follow "for people"."""


def crowd_of(query: Query, shares: Floats, people: int, generator: np.random.Generator) -> Crowd:
    """Everybody holds what is drawn from the same shares: as many items as the query says, one where users may hold any number."""
    return Crowd.drawn(shares, people, query.items if isinstance(query.items, int) else 1, generator)


def simulated_means(protocol: NoisyVectors, space: Space, crowd: Crowd, runs: int, generator: np.random.Generator) -> Floats:
    """The means of the features, a row for each of so many releases."""
    table, people = feature_table(protocol.features, space), crowd.users
    if protocol.blur is None:
        counted = np.tile(crowd.truth, (runs, 1))
    else:
        laws = ReportLaws.of(protocol.blur)
        counted = np.stack([laws.counts(crowd.sampled, generator) for _ in range(runs)]) / crowd.sampled.sum()
    shape = 1.0 if protocol.trusted == "curator" else people / protocol.sharers
    failing = -np.expm1(-protocol.rates(space))
    size = (runs, protocol.coordinates)
    noise = generator.negative_binomial(shape, failing, size) - generator.negative_binomial(shape, failing, size)
    return np.asarray(counted @ table + noise / (people * protocol.units))


def released_shares(protocol: NoisyVectors, query: Query, crowd: Crowd, runs: int, generator: np.random.Generator) -> Floats:
    """The shares of so many releases about the same people, a row each."""
    space = space_of(query)
    means = simulated_means(protocol, space, crowd, runs, generator)
    return protocol.features.shares(space, means, protocol.errors(query, crowd.users), protocol.blur)


def covered_share(protocol: NoisyVectors, query: Query, crowd: Crowd, runs: int, generator: np.random.Generator) -> float:
    """Which part of the released numbers lies inside its 95 % interval, over so many releases about the same people."""
    space, errors = space_of(query), protocol.errors(query, crowd.users)
    means = simulated_means(protocol, space, crowd, runs, generator)
    told_apart = protocol.features.unbiased(space, means[0], errors)
    grain = 0.0 if told_apart is None else 1.0 / (crowd.users * protocol.units)
    measured = told_apart if protocol.floor is None else None
    if measured is None:
        released = protocol.features.shares(space, means, errors, protocol.blur)
        # (as a release tells them: about what was estimated, which does not know how much was smoothed away)
        deviations = protocol.deviations(query, released[0], errors, crowd.users)
    else:
        released = np.stack([found[0] for row in means if (found := protocol.features.unbiased(space, row, errors)) is not None])
        deviations = measured[1]
    return float(np.mean(np.abs(released - crowd.truth) <= half_widths(deviations, 0.05, grain)))


def moved_mass(space: Space, one: Floats, other: Floats) -> Floats:
    """About how far mass has to be moved between the rows of two tables of shares: exactly on a line, by nested squares on a grid.

    In steps or cells; half the sum of the differences elsewhere. It tells feature sets apart; a release is never measured by it.
    """
    difference, domain = one - other, space.domain
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


def share_errors(protocol: NoisyVectors, query: Query, people: int, runs: int) -> dict[str, float]:
    """The mean absolute error of a share, by how people lie."""
    return {
        words: float(np.mean(errors)) for words, errors in _errors(protocol, query, people, runs, lambda _, a, b: np.abs(a - b)).items()
    }


def moved_errors(protocol: NoisyVectors, query: Query, people: int, runs: int) -> dict[str, float]:
    """About how far mass is off, by how people lie."""
    return {words: float(np.mean(errors)) for words, errors in _errors(protocol, query, people, runs, moved_mass).items()}


def _errors(
    protocol: NoisyVectors, query: Query, people: int, runs: int, measure: Callable[[Space, Floats, Floats], Floats]
) -> dict[str, Floats]:  # fmt: skip
    space, generator, crowds, means = space_of(query), np.random.default_rng(0), [], []
    for shares in SPREADS.values():
        crowds.append(crowd_of(query, shares(space, generator), people, generator))
        means.append(simulated_means(protocol, space, crowds[-1], runs, generator))
    # fitted together: what the fit needs of features and noise takes as long as a few fits
    fitted = protocol.features.shares(space, np.concatenate(means), protocol.errors(query, people), protocol.blur)
    return {
        words: measure(space, fitted[place * runs : (place + 1) * runs], crowd.truth)
        for place, (words, crowd) in enumerate(zip(SPREADS, crowds, strict=True))
    }
