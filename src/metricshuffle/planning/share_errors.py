"""How far the shares of a histogram are off that a release prints first, for three kinds of people: the one measure of all candidates.

Candidates are simulated for the same people from the same random numbers, so that what they differ by is what the candidates differ by.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from metricshuffle.errors import InputError
from metricshuffle.estimation.likelihood import MAX_STEPS
from metricshuffle.estimation.likelihood_batches import fit_likelihoods
from metricshuffle.numerics.types import Floats
from metricshuffle.planning.setting import KindsOfPeople
from metricshuffle.protocols.features import space_of
from metricshuffle.protocols.frequencies import Frequencies
from metricshuffle.protocols.noisy_vectors import FINE_MAP_POINTS, NoisyVectors, feature_table
from metricshuffle.protocols.protocol import Protocol
from metricshuffle.queries.histogram import Histogram
from metricshuffle.queries.query import Query
from metricshuffle.randomizers.randomizer import Randomizer
from metricshuffle.simulation.fast_draws import report_laws
from metricshuffle.simulation.population import Population, clustered_shares, spiky_shares
from metricshuffle.simulation.vector_runs import FEW_RUNS_POINTS, moved_mass, noise_rows
from metricshuffle.spaces import Space

EVENLY_SPREAD, CLUSTERED_SPREAD, SPIKY_SPREAD = "spread evenly", "in a few clusters", "at one point in eight"
POPULATIONS: dict[str, Callable[[Space, np.random.Generator], Floats]] = {
    EVENLY_SPREAD: lambda space, _: np.full(space.domain.size or 1, 1.0 / (space.domain.size or 1)),
    CLUSTERED_SPREAD: clustered_shares,
    SPIKY_SPREAD: lambda space, generator: spiky_shares(space.domain.size or 1, generator),
}
"""The shares of people, by how they lie, in words that follow "for people"; drawn anew for each simulated release."""
COUNTED_POPULATIONS: dict[KindsOfPeople, tuple[str, ...]] = {
    "any": tuple(POPULATIONS),
    "smooth": (EVENLY_SPREAD, CLUSTERED_SPREAD),
    "spiky": (SPIKY_SPREAD,),
}
"""Which kinds count, for what is said of how people are spread."""
# Simulated releases of each kind of people: so many shares in all, of few points and of many, but neither too few releases nor too many;
# of a fine map, of which one takes seconds, two.
SHARES_IN_ALL, MIN_RUNS, MAX_RUNS, FINE_RUNS = (8192, 16384), 4, 512, 2
# Likelihoods of reports that hardly tell anything take thousands of steps: of how many releases, is seen from those of the first few.
# Counted in shares times steps, of which ten million take about half a second; of a fine map steps are left out, too.
FIRST_RUNS, MAX_WORK, MAX_FINE_WORK = 4, 10**7, 10**8
# People of all simulated releases who draw a number each, so that candidates that hardly differ have reports that hardly differ.
MAX_BY_PERSON = 2**20
MAX_FITTED = 64  # sets of releases whose errors are kept
SEED_OF_PEOPLE, SEED_OF_REPORTS, SEED_OF_NOISE = 1, 2, 3
# Errors below this are none, where sets are compared by ratios.
MIN_ERROR = 1e-12


@dataclass(frozen=True, eq=False)
class ShareErrors:
    """The mean absolute errors of simulated releases, by kind of people: a number for each release."""

    runs: Mapping[str, Floats]

    @property
    def means(self) -> dict[str, float]:
        return {kind: float(np.mean(errors)) for kind, errors in self.runs.items()}

    @property
    def deviations(self) -> dict[str, float]:
        """The standard errors of the means."""
        return {kind: float(np.std(errors, ddof=1) / math.sqrt(len(errors))) for kind, errors in self.runs.items()}

    def largest(self, spread: KindsOfPeople = "any") -> tuple[float, float]:
        """The largest mean of the kinds of people that count, and its standard error."""
        kind = max(COUNTED_POPULATIONS[spread], key=lambda kind: self.means[kind])
        return self.means[kind], self.deviations[kind]


_FITTED: dict[Hashable, ShareErrors] = {}
"""What was found for simulated releases of noisy vectors, the last few."""


def runs_for(cells: int) -> int:
    """How many releases are simulated of each kind of people."""
    return FINE_RUNS if cells > FINE_MAP_POINTS else min(max(SHARES_IN_ALL[cells <= FEW_RUNS_POINTS] // cells, MIN_RUNS), MAX_RUNS)


def share_errors(protocol: Protocol, query: Query, users: int) -> ShareErrors:
    """Of the shares that can be true, by the estimator of a release: mean |share - truth| over the cells."""
    if not isinstance(query, Histogram):
        raise InputError(f"a {query.kind} is not measured by the error of its shares.")
    if isinstance(protocol, NoisyVectors):
        return vector_errors(protocol, query, users, runs_for(query.cells), _off_by)
    if isinstance(protocol, Frequencies):
        return _report_errors(protocol.randomizer, query, users, runs_for(query.cells))
    raise InputError(f"the shares of {protocol.name} cannot be simulated; its expected_error must tell how far they are off.")


def moved_errors(protocol: NoisyVectors, query: Query, users: int, runs: int) -> ShareErrors:
    """About how far mass is off, of users' items, whose errors are earth mover's distances."""
    return vector_errors(protocol, query, users, runs, moved_mass)


def _off_by(_: Space, shares: Floats, truth: Floats) -> Floats:
    return np.asarray(np.abs(shares - truth).mean(axis=-1))


def vector_errors(
    protocol: NoisyVectors, query: Query, users: int, runs: int, measure: Callable[[Space, Floats, Floats], Floats]
) -> ShareErrors:  # fmt: skip
    """Fitted together, as what a fit needs of features and noise takes as long as a few fits."""
    space = space_of(query)
    crowds = [crowd for kind in POPULATIONS for crowd in _populations(query, users, runs, kind)]
    truth = np.stack([crowd.truth for crowd in crowds])
    counted = truth if protocol.floor is None else _counts(protocol.floor, crowds, runs)
    if protocol.floor is not None:
        counted = counted / counted.sum(axis=1, keepdims=True)
    uniforms = np.concatenate([_generator(SEED_OF_NOISE, kind).random((runs, protocol.coordinates)) for kind in POPULATIONS])
    means = counted @ feature_table(protocol.features, space) + noise_rows(protocol, space, users, uniforms)
    errors = protocol.errors(query, users)
    # Somebody who is trusted adds the noise that shuffled people add together: then the same releases would be fitted again.
    drawn = hashlib.sha256(b"".join(np.ascontiguousarray(part).tobytes() for part in (truth, means, errors))).digest()
    known = (protocol.features, protocol.floor, space, measure, drawn)
    if known not in _FITTED:
        shares = protocol.features.shares(space, np.asarray(means), errors, protocol.blur)
        if len(_FITTED) >= MAX_FITTED:
            _FITTED.clear()
        _FITTED[known] = ShareErrors(dict(zip(POPULATIONS, np.split(measure(space, shares, truth), len(POPULATIONS)), strict=True)))
    return _FITTED[known]


def _report_errors(randomizer: Randomizer, query: Histogram, users: int, runs: int) -> ShareErrors:
    """Of one report each: the first few releases, and as many more as the steps that these took leave time for."""
    first = range(min(runs, FIRST_RUNS))
    steps = MAX_STEPS if query.cells <= FINE_MAP_POINTS else MAX_FINE_WORK // (len(POPULATIONS) * len(first) * query.cells)
    errors, made = _fitted_errors(randomizer, query, users, runs, first, steps)
    more = min(runs, MAX_WORK // (max(made, 1) * len(POPULATIONS) * query.cells))
    if more > len(first):
        others, _ = _fitted_errors(randomizer, query, users, runs, range(len(first), more), steps)
        errors = np.concatenate([errors, others], axis=1)
    return ShareErrors(dict(zip(POPULATIONS, errors, strict=True)))


def _fitted_errors(randomizer: Randomizer, query: Histogram, users: int, runs: int, part: range, steps: int) -> tuple[Floats, int]:
    """The errors of some of the releases, a row for each kind of people, and the most steps that one of them took."""
    crowds = [crowd for kind in POPULATIONS for crowd in _populations(query, users, runs, kind)[part.start : part.stop]]
    fitted = fit_likelihoods(randomizer, _counts(randomizer, crowds, runs, part), steps=steps)
    off = np.abs(fitted.shares - np.stack([crowd.truth for crowd in crowds])).mean(axis=1)
    return off.reshape(len(POPULATIONS), len(part)), fitted.steps


def _counts(randomizer: Randomizer, crowds: list[Population], runs: int, part: range | None = None) -> Floats:
    """How often each report occurs, a row for each crowd: those of the first kind of people, then those of the next."""
    laws, which = report_laws(randomizer), range(runs) if part is None else part
    seeds = [(kind, run) for kind in POPULATIONS for run in which]
    by_person = int(crowds[0].sampled.sum()) * len(POPULATIONS) * runs <= MAX_BY_PERSON  # (whichever part of the releases is drawn)
    draw = laws.counts_by_person if by_person else laws.counts
    return np.stack([draw(crowd.sampled, _generator(SEED_OF_REPORTS, *seed)) for crowd, seed in zip(crowds, seeds, strict=True)])


def _populations(query: Query, users: int, runs: int, kind: str) -> tuple[Population, ...]:
    return _drawn(space_of(query), query.items if isinstance(query.items, int) else 1, users, runs, kind)


@lru_cache(maxsize=8)
def _drawn(space: Space, items: int, users: int, runs: int, kind: str) -> tuple[Population, ...]:
    """The people of each release, who hold what is drawn from the same shares."""
    populations = []
    for run in range(runs):
        generator = _generator(SEED_OF_PEOPLE, kind, run)
        populations.append(Population.drawn(POPULATIONS[kind](space, generator), users, items, generator))
    return tuple(populations)


def _generator(seed: int, kind: str, run: int = 0) -> np.random.Generator:
    return np.random.default_rng([seed, list(POPULATIONS).index(kind), run])


def regrets(errors: Sequence[ShareErrors], spread: KindsOfPeople = "any") -> list[float]:
    """For each of several ways, how many times the error of the best of them its own is, at most over the kinds of people that count."""
    means = [[max(errors_of_set.means[kind], MIN_ERROR) for kind in COUNTED_POPULATIONS[spread]] for errors_of_set in errors]
    best = np.min(means, axis=0)
    return [float(np.max(row / best)) for row in np.asarray(means)]
