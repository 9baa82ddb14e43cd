"""Simulated errors of the estimated shares of a histogram, or of numbers, for three populations.

People are spread evenly, in clusters, or at single points. Candidates are compared by one
measure only, the error of a single release. All candidates are simulated for the same people with
the same random numbers, so that differences between their errors come from the candidates.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from metricshuffle.errors import InputError
from metricshuffle.estimation.likelihood import MAX_STEPS
from metricshuffle.estimation.likelihood_batches import fit_likelihoods
from metricshuffle.numerics.types import Floats
from metricshuffle.protocols.feature_estimates import FeatureEstimates
from metricshuffle.protocols.features import LineAnswers, space_of
from metricshuffle.protocols.features.feature_set import feature_table
from metricshuffle.protocols.frequencies import Frequencies
from metricshuffle.protocols.noisy_vectors import FINE_MAP_POINTS
from metricshuffle.protocols.protocol import Protocol
from metricshuffle.queries.histogram import Histogram
from metricshuffle.queries.line_query import LineQuery
from metricshuffle.queries.query import Query
from metricshuffle.randomizers.randomizer import Randomizer
from metricshuffle.simulation.fast_draws import report_laws
from metricshuffle.simulation.population import (
    Population,
    clustered_shares,
    near_public_weights,
    spiky_shares,
)
from metricshuffle.simulation.simulated_releases import (
    FEW_RUNS_POINTS,
    bit_noise,
    moved_mass,
    noise_rows,
)
from metricshuffle.spaces import Space, ZonePairs

KindsOfPeople = Literal["any", "smooth", "spiky"]
EVENLY_SPREAD = "spread evenly"
CLUSTERED_SPREAD = "in a few clusters"
SPIKY_SPREAD = "at one point in eight"
POPULATIONS: dict[str, Callable[[Space, np.random.Generator], Floats]] = {
    EVENLY_SPREAD: lambda space, _: np.full(space.domain.size or 1, 1.0 / (space.domain.size or 1)),
    CLUSTERED_SPREAD: clustered_shares,
    SPIKY_SPREAD: lambda space, generator: spiky_shares(space.domain.size or 1, generator),
}
"""Shares of people by spatial distribution, named by words that follow "for people".

They are drawn anew for each simulated release.
"""
COUNTED_POPULATIONS: dict[KindsOfPeople, tuple[str, ...]] = {
    "any": tuple(POPULATIONS),
    "smooth": (EVENLY_SPREAD, CLUSTERED_SPREAD),
    "spiky": (SPIKY_SPREAD,),
}
"""Kinds of people that count for each assumption on how people are spread."""
# Simulated releases of each kind of people: as many as give this number of shares in total (for
# many points, for few points), within MIN_RUNS..MAX_RUNS; FINE_RUNS for fine maps, where one
# release takes seconds.
SHARES_IN_ALL = (8192, 16384)
MIN_RUNS = 4
MAX_RUNS = 512
FINE_RUNS = 2
# Releases of a few numbers for each kind of people, fewer if the line has many points.
READOUT_RUNS = 128
VALUES_IN_ALL = 2**19
# Likelihoods of very noisy reports take thousands of steps, so the first few releases determine how
# many more are simulated. Work is counted in shares times steps, of which ten million take about
# half a second; for a fine map, the number of steps is limited, too.
FIRST_RUNS = 4
MAX_WORK = 10**7
MAX_FINE_WORK = 10**8
# Up to this many people in all simulated releases, a report is drawn from one random number per
# person, so that similar candidates have similar reports.
MAX_BY_PERSON = 2**20
MAX_FITTED = 64  # cached sets of releases
SEED_OF_PEOPLE = 1
SEED_OF_REPORTS = 2
SEED_OF_NOISE = 3
SEED_OF_BITS = 4
# Errors below this number are replaced by it where candidates are compared by ratios.
MIN_ERROR = 1e-12


@dataclass(frozen=True, eq=False)
class ShareErrors:
    """Mean absolute errors of simulated releases, by kind of people, one number per release."""

    runs: Mapping[str, Floats]

    @property
    def means(self) -> dict[str, float]:
        """Mean error of each kind of people."""
        return {kind: float(np.mean(errors)) for kind, errors in self.runs.items()}

    @property
    def deviations(self) -> dict[str, float]:
        """Standard errors of the means."""
        return {
            kind: float(np.std(errors, ddof=1) / math.sqrt(len(errors)))
            for kind, errors in self.runs.items()
        }

    def largest(self, spread: KindsOfPeople = "any") -> tuple[float, float]:
        """Largest mean over the kinds of people that count, and its standard error."""
        kind = max(COUNTED_POPULATIONS[spread], key=lambda kind: self.means[kind])
        return self.means[kind], self.deviations[kind]


_FITTED: dict[Hashable, ShareErrors] = {}
"""Cached errors of recent simulated releases of noisy vectors."""


def runs_for(cells: int) -> int:
    """Number of releases to simulate for each kind of people."""
    return (
        FINE_RUNS
        if cells > FINE_MAP_POINTS
        else min(max(SHARES_IN_ALL[cells <= FEW_RUNS_POINTS] // cells, MIN_RUNS), MAX_RUNS)
    )


def share_errors(protocol: Protocol, query: Query, users: int) -> ShareErrors:
    """Mean |share - truth| over the cells, of the valid shares that a release's estimator gives.

    For quantiles and spread it is the mean over the numbers of the answer.
    """
    if isinstance(query, LineQuery) and isinstance(protocol, FeatureEstimates):
        runs = min(max(VALUES_IN_ALL // query.cells, MIN_RUNS), READOUT_RUNS)
        return vector_errors(protocol, query, users, runs, mean_error)
    if not isinstance(query, Histogram):
        raise InputError(f"a {query.kind} is not measured by the error of its shares.")
    if isinstance(protocol, FeatureEstimates):
        return vector_errors(protocol, query, users, runs_for(query.cells), mean_error)
    if isinstance(protocol, Frequencies):
        return _report_errors(protocol.randomizer, query, users, runs_for(query.cells))
    raise InputError(
        f"the shares of {protocol.name} cannot be simulated; its expected_error must give "
        "their error."
    )


def moved_errors(protocol: FeatureEstimates, query: Query, users: int, runs: int) -> ShareErrors:
    """Approximate earth mover's distances from the truth, for queries on users' items."""
    return vector_errors(protocol, query, users, runs, moved_mass)


def mean_error(space: Space, shares: Floats, truth: Floats) -> Floats:
    """Mean |share - truth| over the cells, or over pairs of blocks if zones have blocks."""
    off = shares - truth
    if isinstance(space.domain, ZonePairs):
        off = space.domain.between_blocks(off)
    return np.asarray(np.abs(off).mean(axis=-1))


def vector_errors(
    protocol: FeatureEstimates,
    query: Query,
    users: int,
    runs: int,
    measure: Callable[[Space, Floats, Floats], Floats],
) -> ShareErrors:
    """Simulate releases of noisy vectors and measure the errors of their shares or numbers.

    All runs are fitted in one call, because preparing features and noise takes as long as a few
    fits.
    """
    space = space_of(query)
    crowds = [crowd for kind in POPULATIONS for crowd in _populations(query, users, runs, kind)]
    truth = np.stack([crowd.truth for crowd in crowds])
    counted = truth if protocol.floor is None else _counts(protocol.floor, crowds, runs)
    if protocol.floor is not None:
        counted = counted / counted.sum(axis=1, keepdims=True)
    uniforms = np.concatenate(
        [
            _generator(SEED_OF_NOISE, kind).random((runs, protocol.coordinates))
            for kind in POPULATIONS
        ]
    )
    bits = bit_noise(protocol, space, users, counted, np.random.default_rng([SEED_OF_BITS, runs]))
    means = counted @ feature_table(protocol.features, space) + noise_rows(
        protocol, space, users, uniforms, bits
    )
    errors = protocol.errors(query, users)
    # Releases are cached by content: those with noise of a trusted party and those with noise of
    # shuffled people are the same, and would be fitted again.
    drawn = hashlib.sha256(
        b"".join(np.ascontiguousarray(part).tobytes() for part in (truth, means, errors))
    ).digest()
    answered = query if isinstance(query, LineQuery) else None
    known = (protocol.features, protocol.floor, space, measure, answered, drawn)
    if known not in _FITTED:
        if isinstance(query, LineQuery) and isinstance(protocol.features, LineAnswers):
            released = protocol.features.readout(query, np.asarray(means), users)
            truth = query.exact(np.stack([crowd.sampled for crowd in crowds]))
        else:
            released = protocol.features.shares(space, np.asarray(means), errors, protocol.blur)
        if len(_FITTED) >= MAX_FITTED:
            _FITTED.clear()
        _FITTED[known] = ShareErrors(
            dict(
                zip(
                    POPULATIONS,
                    np.split(measure(space, released, truth), len(POPULATIONS)),
                    strict=True,
                )
            )
        )
    return _FITTED[known]


def _report_errors(randomizer: Randomizer, query: Histogram, users: int, runs: int) -> ShareErrors:
    """Errors with one report per person: the first few releases, then as many as time allows."""
    first = range(min(runs, FIRST_RUNS))
    steps = (
        MAX_STEPS
        if query.cells <= FINE_MAP_POINTS
        else MAX_FINE_WORK // (len(POPULATIONS) * len(first) * query.cells)
    )
    errors, made = _fitted_errors(randomizer, query, users, runs, first, steps)
    more = min(runs, MAX_WORK // (max(made, 1) * len(POPULATIONS) * query.cells))
    if more > len(first):
        others, _ = _fitted_errors(randomizer, query, users, runs, range(len(first), more), steps)
        errors = np.concatenate([errors, others], axis=1)
    return ShareErrors(dict(zip(POPULATIONS, errors, strict=True)))


def _fitted_errors(
    randomizer: Randomizer, query: Histogram, users: int, runs: int, part: range, steps: int
) -> tuple[Floats, int]:
    """Errors of the releases in `part`, one row per kind of people, and the most steps taken."""
    crowds = [
        crowd
        for kind in POPULATIONS
        for crowd in _populations(query, users, runs, kind)[part.start : part.stop]
    ]
    fitted = fit_likelihoods(randomizer, _counts(randomizer, crowds, runs, part), steps=steps)
    off = np.abs(fitted.shares - np.stack([crowd.truth for crowd in crowds])).mean(axis=1)
    return off.reshape(len(POPULATIONS), len(part)), fitted.steps


def _counts(
    randomizer: Randomizer, crowds: list[Population], runs: int, part: range | None = None
) -> Floats:
    """Count of each report, one row per population, grouped by kind of people."""
    laws = report_laws(randomizer)
    which = range(runs) if part is None else part
    seeds = [(kind, run) for kind in POPULATIONS for run in which]
    # This choice does not depend on `part`, so that all parts are drawn by the same method.
    by_person = int(crowds[0].sampled.sum()) * len(POPULATIONS) * runs <= MAX_BY_PERSON
    draw = laws.counts_by_person if by_person else laws.counts
    return np.stack(
        [
            draw(crowd.sampled, _generator(SEED_OF_REPORTS, *seed))
            for crowd, seed in zip(crowds, seeds, strict=True)
        ]
    )


def _populations(query: Query, users: int, runs: int, kind: str) -> tuple[Population, ...]:
    return _drawn(
        space_of(query), query.items if isinstance(query.items, int) else 1, users, runs, kind
    )


@lru_cache(maxsize=8)
def _drawn(space: Space, items: int, users: int, runs: int, kind: str) -> tuple[Population, ...]:
    """Populations of each release, whose items are drawn from the same shares."""
    populations = []
    for run in range(runs):
        generator = _generator(SEED_OF_PEOPLE, kind, run)
        shares = near_public_weights(space, POPULATIONS[kind](space, generator))
        populations.append(Population.drawn(shares, users, items, generator))
    return tuple(populations)


def _generator(seed: int, kind: str, run: int = 0) -> np.random.Generator:
    return np.random.default_rng([seed, list(POPULATIONS).index(kind), run])


def regrets(errors: Sequence[ShareErrors], spread: KindsOfPeople = "any") -> list[float]:
    """Largest ratio of each candidate's error to the least, over the kinds of people that count."""
    means = [
        [max(errors_of_set.means[kind], MIN_ERROR) for kind in COUNTED_POPULATIONS[spread]]
        for errors_of_set in errors
    ]
    best = np.min(means, axis=0)
    return [float(np.max(row / best)) for row in np.asarray(means)]
