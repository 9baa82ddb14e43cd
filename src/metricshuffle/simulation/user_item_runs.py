"""Simulated releases about users' items, and how far they are off in earth mover's distance, which takes a solver on a grid."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from metricshuffle.errors import InputError
from metricshuffle.estimation.inversion import Inversion
from metricshuffle.estimation.tree_projection import possible_shares
from metricshuffle.numerics.threads import run_in_parts
from metricshuffle.numerics.types import Floats
from metricshuffle.protocols.frequencies import MIN_NORMAL_PEOPLE, Frequencies, normal_width
from metricshuffle.protocols.noisy_answers import NoisyAnswers
from metricshuffle.protocols.noisy_vectors import NoisyVectors
from metricshuffle.protocols.protocol import Protocol
from metricshuffle.queries.user_queries import UserHistogram, UserQuery
from metricshuffle.simulation.fast_draws import distance_of, needs_solver, simulated_noise, simulated_shares
from metricshuffle.simulation.population import Population
from metricshuffle.simulation.vector_runs import FEW_RUNS_POINTS, covered_share, moved_mass, released_shares
from metricshuffle.spaces import Grid, Users

SOLVER_RUNS = 4
"""Simulated releases that a solver measures, on a grid of many points."""

Inside = Callable[[], float]
"""Which share of a release's numbers lies inside their 95 % intervals; looking takes longer than drawing."""
Drawing = Callable[[Population, np.random.Generator], tuple[Floats, Inside]]
"""The released shares of the points, which can be true."""


def interval_width(draws: int) -> float:
    """Half of a 95 % interval in standard errors, as releases have it: by Chebyshev's inequality if few numbers were drawn."""
    return normal_width(0.05) if draws >= MIN_NORMAL_PEOPLE else 1.0 / math.sqrt(0.05)


def share_simulator(query: UserHistogram, protocol: Protocol) -> Drawing:
    """How one release about a crowd is simulated."""
    if isinstance(protocol, Frequencies):
        return _from_items(query, protocol)
    if isinstance(protocol, NoisyVectors):
        return _from_sums(query, protocol)
    if isinstance(protocol, NoisyAnswers):
        return _from_answers(query, protocol)
    raise InputError(f"{protocol.name} cannot be simulated for a {query.kind}.")


def _from_items(query: UserHistogram, protocol: Frequencies) -> Drawing:
    inversion = Inversion.of(protocol.randomizer)

    def draw(crowd: Population, generator: np.random.Generator) -> tuple[Floats, Inside]:
        shares = simulated_shares(inversion, crowd.sampled, generator)

        def inside() -> float:
            spread = inversion.variances(crowd.truth) + (crowd.truth * (1.0 - crowd.truth) if protocol.drawn else 0.0)
            reports = crowd.users * protocol.items
            deviations = np.sqrt(reports * spread + inversion.largest_variances) / reports
            return float((np.abs(shares - crowd.truth) <= interval_width(crowd.users) * deviations).mean())

        return possible_shares(query.tree, shares), inside

    return draw


def _from_sums(query: UserHistogram, protocol: NoisyVectors) -> Drawing:
    def draw(crowd: Population, generator: np.random.Generator) -> tuple[Floats, Inside]:
        return released_shares(protocol, query, crowd, 1, generator)[0], lambda: covered_share(protocol, query, crowd, 1, generator)

    return draw


def _from_answers(query: UserHistogram, protocol: NoisyAnswers) -> Drawing:
    features, table = protocol.features, protocol.features.coordinates(query).table

    def draw(crowd: Population, generator: np.random.Generator) -> tuple[Floats, Inside]:
        answers = crowd.truth @ table + _answer_noise(protocol, crowd, generator)
        released = features.possible(query, answers)
        if released is None:
            raise InputError(f"{protocol.name} releases no shares.")

        def inside() -> float:
            measured, errors = features.totals(query, answers, _answer_error(protocol, crowd))
            return float((np.abs(measured - crowd.truth) <= _answer_width(protocol, crowd) * errors).mean())

        return released, inside

    return draw


def answer_run(query: UserQuery, protocol: Protocol, crowd: Population, generator: np.random.Generator) -> tuple[float, float]:
    """One simulated release of means that are no shares: its mean absolute error, and which share lay inside the intervals."""
    if not isinstance(protocol, NoisyAnswers):
        raise InputError(f"{protocol.name} cannot be simulated for a {query.kind}.")
    off = np.abs(_answer_noise(protocol, crowd, generator))
    return float(off.mean()), float((off <= _answer_width(protocol, crowd) * _answer_error(protocol, crowd)).mean())


def _answer_noise(protocol: NoisyAnswers, crowd: Population, generator: np.random.Generator) -> Floats:
    return simulated_noise(protocol.noise, protocol.draws(crowd.users), generator) / crowd.users


def _answer_error(protocol: NoisyAnswers, crowd: Population) -> float:
    return math.sqrt(protocol.noise.variance * protocol.draws(crowd.users)) / crowd.users


def _answer_width(protocol: NoisyAnswers, crowd: Population) -> float:
    return interval_width(1 if protocol.trusted == "curator" else crowd.users)


def mean_distance(people: Users, releases: Sequence[tuple[Floats, Floats]]) -> float:
    """The mean earth mover's distance of released shares from the true ones.

    On a grid of many points the solver takes most of the time that a plan takes, so that it measures a few releases only; how much more
    or less the others are off is told by nested squares, which roughly follow it and need no solver: an estimate by ratio, for
    choosing among candidates. `simulate` measures every release by the solver.
    """
    by_ratio = isinstance(people.items_in.domain, Grid) and people.size > FEW_RUNS_POINTS and needs_solver(people)
    solved = releases[:SOLVER_RUNS] if by_ratio else releases

    def measured(start: int, stop: int) -> list[float]:
        return [distance_of(people, released, true_shares) for released, true_shares in solved[start:stop]]

    parts = run_in_parts(measured, len(solved)) if by_ratio else [measured(0, len(solved))]
    mean = float(np.mean(np.concatenate(parts)))
    if len(solved) == len(releases):
        return mean
    about = np.array([float(moved_mass(people.items_in, released, true_shares).item()) for released, true_shares in releases])
    return mean * float(about.mean() / about[: len(solved)].mean()) if about[: len(solved)].any() else mean
