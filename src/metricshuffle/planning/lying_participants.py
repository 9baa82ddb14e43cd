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
from metricshuffle.queries.line_query import LineQuery
from metricshuffle.queries.query import Estimate, Inputs, Query
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

    `damage` is what one liar can do by the formula. `excess` is the largest increase of the error.
    """

    liars: int
    runs: int
    error_without: float
    error_with: float
    excess: float
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
    errors = []
    for run in range(max(1, min(runs, MAX_ATTACKED_RUNS, BYTES_OF_ALL_RUNS // size))):
        others = _tally(task, _first(inputs, people - liars), randomness)
        honest = others.merge(_tally(task, _last(inputs, liars), randomness))
        attacked = others.merge(task.tally().add(lies))
        errors.append([_released_error(task, inputs, tally, run) for tally in (honest, attacked)])
    without, attacked_errors = np.array(errors).T
    return SimulatedAttack(
        liars,
        len(errors),
        float(without.mean()),
        float(attacked_errors.mean()),
        float((attacked_errors - without).max()),
        task.protocol.damage(task.query, people),
    )


def held_values(query: Query, people: int) -> Inputs:
    """Simulated values: the lowest number, or all points evenly, as many items as users hold."""
    if isinstance(query, SummedQuery):
        return Inputs(query, np.zeros((people, query.axes), dtype=np.int64))
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


def _released_error(task: Task, inputs: Inputs, tally: Tally, run: int) -> float:
    """Error of the release of a tally, as the query measures it."""
    shuffled = task.publish(tally, Randomness.seeded(f"release {run}"))
    estimate = task.protocol.estimate(task.query, shuffled)
    return answer_error(task.protocol, inputs, estimate)


def answer_error(protocol: Protocol, inputs: Inputs, estimate: Estimate) -> float:
    """Difference of an estimate from the truth about the people who hold these values."""
    query = inputs.query
    if isinstance(query, SummedQuery):
        whole = np.array(estimate.origin[: query.axes], dtype=np.float64)
        off = estimate.totals + (whole - inputs.numbers.sum(axis=0))
        return float(np.linalg.norm(off * query.error_scales(inputs.people, protocol.step)))
    codes = inputs.numbers[:, 0]
    if isinstance(query, ByGroup):
        groups = len(query.groups.labels)
        off = estimate.totals[groups:] - query.true_totals(codes)[groups:]
        return float(np.abs(off[np.isfinite(off)]).mean()) * query.step
    counts = np.bincount(codes, minlength=query.points.domain.size or 0)  # type: ignore[union-attr]
    if isinstance(query, LineQuery):
        return float(np.abs(estimate.totals - query.exact(counts)).mean())
    shares = counts / counts.sum()
    if isinstance(query, UserLinearQuery):
        return float(np.abs(estimate.totals / inputs.people - shares @ query.table).mean())
    released: Floats = (
        estimate.totals / inputs.people if estimate.possible is None else estimate.possible
    )
    if isinstance(query, UserQuery):
        return distance_of(query.people, released, shares)
    return float(np.abs(released - shares).mean())
