"""Releases with participants who lie: real reports, the worst attack known, and its error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from metricshuffle.errors import InputError
from metricshuffle.numerics.types import Floats
from metricshuffle.protocols.damage import Damage
from metricshuffle.protocols.tally import Tally
from metricshuffle.queries.by_group import ByGroup
from metricshuffle.queries.keyed_means import KeyValues
from metricshuffle.queries.line_query import LineQuery
from metricshuffle.queries.query import Estimate, Inputs, Query
from metricshuffle.queries.record_query import RecordQuery
from metricshuffle.queries.summed_query import SummedQuery
from metricshuffle.queries.user_queries import UserLinearQuery, UserQuery
from metricshuffle.randomness import Randomness
from metricshuffle.simulation.fast_draws import distance_of

if TYPE_CHECKING:
    from metricshuffle.protocols.protocol import Protocol
    from metricshuffle.tasks.task import Task

# Bytes of reports made by all runs together, and the most that one run may make.
BYTES_OF_ALL_RUNS = 2**28
MAX_BYTES_OF_A_RUN = 2**31
MAX_ATTACKED_RUNS = 100
PEOPLE_AT_ONCE = 2**14


@dataclass(frozen=True)
class SimulatedAttack:
    """Mean errors of the same releases without and with liars, as the query measures them.

    `damage` is what one liar can do by the formula. `excess` is the largest increase of the error,
    and `moved` the largest change of the answer, as damage measures it.
    """

    liars: int
    runs: int
    error_without: float
    error_with: float
    excess: float
    moved: float
    damage: Damage


def simulate_attack(
    task: Task, people: int, liars: int, runs: int, randomness: Randomness
) -> SimulatedAttack:
    """Make releases of real reports, with and without the worst attack known on the protocol.

    People hold the lowest number, or values spread evenly. All but the liars' reports are the same
    in both releases, and so is the noise of a curator.
    """
    size = people * task.protocol.layout.size
    if size > MAX_BYTES_OF_A_RUN:
        raise InputError(
            f"reports of {people:,} people take {size / 2**30:,.0f} GiB, too much for a "
            "simulation with liars.",
            field="users",
            remedy="Plan for fewer people; the damage is inversely proportional to their number.",
        )
    inputs = held_values(task.query, people)
    lies = task.protocol.lies(task.query, liars)
    errors, moves = [], []
    for run in range(max(1, min(runs, MAX_ATTACKED_RUNS, BYTES_OF_ALL_RUNS // size))):
        others = _tally(task, _first(inputs, people - liars), randomness)
        honest = others.merge(_tally(task, _last(inputs, liars), randomness))
        attacked = others.merge(task.tally().add(lies))
        released = [_released(task, tally, run) for tally in (honest, attacked)]
        errors.append([answer_error(task.protocol, inputs, estimate) for estimate in released])
        moves.append(answer_change(task.protocol, inputs, *released))
    without, attacked_errors = np.array(errors).T
    return SimulatedAttack(
        liars,
        len(errors),
        float(without.mean()),
        float(attacked_errors.mean()),
        float((attacked_errors - without).max()),
        max(moves),
        task.protocol.damage(task.query, people),
    )


def held_values(query: Query, people: int) -> Inputs:
    """Simulated values: the lowest number, or all points evenly, as many items as users hold."""
    if isinstance(query, SummedQuery):
        return Inputs(query, np.zeros((people, query.axes), dtype=np.int64))
    if isinstance(query, RecordQuery):
        return query.even_inputs(people, np.random.default_rng(0))
    size = query.points.domain.size if query.points is not None else None
    if size is None:
        raise InputError(f"a {query.kind} cannot be simulated with liars.")
    items = query.items if isinstance(query.items, int) else 1
    codes = np.arange(people * items, dtype=np.int64) % size
    sizes = np.full(people, items, dtype=np.int64) if isinstance(query, UserQuery) else None
    return Inputs(query, codes.reshape(-1, 1), sizes)


def _first(inputs: Inputs, people: int) -> Inputs:
    return next(inputs.parts(people)) if people else _last(inputs, 0)


def _last(inputs: Inputs, people: int) -> Inputs:
    rows = len(inputs.numbers) // max(inputs.people, 1) * people
    sizes = None if inputs.sizes is None else inputs.sizes[len(inputs.sizes) - people :]
    return Inputs(inputs.query, inputs.numbers[len(inputs.numbers) - rows :], sizes)


def _tally(task: Task, inputs: Inputs, randomness: Randomness) -> Tally:
    tally = task.tally()
    for part in inputs.parts(PEOPLE_AT_ONCE):
        tally.add(task.protocol.messages(part, randomness), seeded=True)
    return tally


def _released(task: Task, tally: Tally, run: int) -> Estimate:
    """Estimate from a tally, with the noise of this run."""
    shuffled = task.publish(tally, Randomness.seeded(f"release {run}"))
    return task.protocol.estimate(task.query, shuffled)


def answer_error(protocol: Protocol, inputs: Inputs, estimate: Estimate) -> float:
    """Difference of an estimate from the truth about the people who hold these values."""
    query = inputs.query
    answer = _answer(protocol, inputs, estimate)
    if isinstance(query, SummedQuery):
        truth = inputs.numbers.sum(axis=0) * query.error_scales(inputs.people, protocol.step)
        return float(np.linalg.norm(answer - truth))
    if isinstance(query, RecordQuery):
        truth = query.true_totals(inputs.numbers)[_measured(query)] * getattr(query, "step", 1.0)
        return _mean_size(answer - truth)
    codes = inputs.numbers[:, 0]
    if isinstance(query, ByGroup):
        groups = len(query.groups.labels)
        return _mean_size(answer - query.true_totals(codes)[groups:] * query.step)
    counts = np.bincount(codes, minlength=query.points.domain.size or 0)  # type: ignore[union-attr]
    if isinstance(query, LineQuery):
        return _mean_size(answer - query.exact(counts))
    shares = counts / counts.sum()
    if isinstance(query, UserLinearQuery):
        return _mean_size(answer - shares @ query.table)
    if isinstance(query, UserQuery):
        return distance_of(query.people, answer, shares)
    return _mean_size(answer - shares)


def answer_change(protocol: Protocol, inputs: Inputs, before: Estimate, after: Estimate) -> float:
    """How far an answer moved, as damage measures it."""
    query = inputs.query
    first, second = (_answer(protocol, inputs, estimate) for estimate in (before, after))
    if isinstance(query, SummedQuery):
        return float(np.linalg.norm(second - first))
    if isinstance(query, UserQuery) and query.shared:
        return distance_of(query.people, first, second)
    off = np.abs(second - first)
    return float(off[np.isfinite(off)].max(initial=0.0))


def _answer(protocol: Protocol, inputs: Inputs, estimate: Estimate) -> Floats:
    """The numbers of an estimate in the unit of the query's error: the answer, or its rows."""
    query = inputs.query
    if isinstance(query, SummedQuery):
        whole = np.array(estimate.origin[: query.axes], dtype=np.float64)
        return (estimate.totals + whole) * query.error_scales(inputs.people, protocol.step)
    if isinstance(query, RecordQuery):
        return estimate.totals[_measured(query)] * getattr(query, "step", 1.0)
    if isinstance(query, ByGroup):
        return estimate.totals[len(query.groups.labels) :] * query.step
    if isinstance(query, LineQuery):
        return estimate.totals
    if isinstance(query, UserLinearQuery) or estimate.possible is None:
        return estimate.totals / inputs.people
    return estimate.possible


def _measured(query: RecordQuery) -> slice:
    """The rows whose errors count: of counts and means by key, the means."""
    return slice(query.rows if isinstance(query, KeyValues) else 0, None)


def _mean_size(off: Floats) -> float:
    return float(np.abs(off[np.isfinite(off)]).mean())
