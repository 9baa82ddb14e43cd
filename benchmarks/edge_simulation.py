"""Simulation of many edges over one database: `python -m benchmarks.edge_simulation`.

Times are measured by `python -m benchmarks.bench_hosts`. An edge opens one report after the other,
`each` seconds a report with one core. Its writer then takes all opened reports, stores them in one
transaction, waits until the standby has it, and answers; meanwhile others wait. A transaction takes
`stored` seconds a report of one of the database's cores, which all edges share, and then `commit`
seconds, in which no core is used. People choose an edge at random and arrive independently. The
network, and reports that are sent again, are not simulated.
"""

from __future__ import annotations

import argparse
import heapq
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

EACH = 1 / 4_000
STORED = 38e-6
COMMIT = 0.006
LARGEST_GROUP = 1_000
"""Largest number of reports in one transaction."""
Times = NDArray[np.float64]


@dataclass(frozen=True)
class Machines:
    """Speeds of edges and database."""

    each: float
    stored: float
    commit: float
    cores: int
    """Cores of the database."""
    room: int
    """Largest number of reports that wait at an edge."""


@dataclass(frozen=True)
class Day:
    """Waiting times of reports in seconds, and the longest queue of an edge."""

    waits: Times
    queue: int
    refused: int


def opened_times(arrivals: Times, machines: Machines) -> tuple[Times, Times, int]:
    """Return arrivals of taken reports, when each is opened, and the longest queue.

    Reports that find a full queue are refused.
    """
    each = machines.each
    order = np.arange(1, len(arrivals) + 1, dtype=np.float64)
    ends: Times = order * each + np.maximum.accumulate(arrivals - (order - 1) * each)
    waiting = order - np.searchsorted(ends, arrivals, side="right")
    if waiting.max(initial=0) <= machines.room:
        return arrivals, ends, int(waiting.max(initial=0))
    taken, end, kept = [], 0.0, []
    for arrival in arrivals:
        if end - arrival <= machines.room * each:
            end = max(end, arrival) + each
            taken.append(arrival)
            kept.append(end)
    return np.array(taken), np.array(kept), machines.room


def simulated(arrivals: list[Times], machines: Machines) -> Day:
    """Simulate edges, each with its arrivals in order."""
    edges = [opened_times(times, machines) for times in arrivals]
    position = [0] * len(edges)
    free = [0.0] * machines.cores
    # The edges whose writer begins a transaction next, by the time.
    writers = [(float(ends[0]), edge) for edge, (_, ends, _) in enumerate(edges) if len(ends)]
    heapq.heapify(writers)
    waits: list[Times] = []
    queue = max(longest for _, _, longest in edges)
    while writers:
        begun, edge = heapq.heappop(writers)
        taken, ends, _ = edges[edge]
        first = position[edge]
        ready = int(np.searchsorted(ends, begun, side="right"))
        last = min(ready, first + LARGEST_GROUP)
        queue = max(queue, ready - first)
        stored = max(begun, heapq.heappop(free)) + (last - first) * machines.stored
        heapq.heappush(free, stored)
        answered = stored + machines.commit
        waits.append(answered - taken[first:last])
        position[edge] = last
        if last < len(ends):
            heapq.heappush(writers, (max(answered, float(ends[last])), edge))
    refused = sum(map(len, arrivals)) - sum(len(taken) for taken, _, _ in edges)
    return Day(np.concatenate(waits), queue, refused)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--edges", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--each", type=float, default=EACH)
    parser.add_argument("--stored", type=float, default=STORED)
    parser.add_argument("--commit", type=float, default=COMMIT)
    parser.add_argument("--cores", type=int, default=2, help="of the database")
    parser.add_argument("--room", type=int, default=20_000)
    asked = parser.parse_args()
    rng = np.random.default_rng(1)
    machines = Machines(asked.each, asked.stored, asked.commit, asked.cores, asked.room)
    capacity = 1 / asked.each
    print(
        f"one edge: at most {capacity:,.0f} reports/s; {asked.edges}: {asked.edges * capacity:,.0f}"
    )
    print(f"the database: at most {asked.cores / asked.stored:,.0f} reports/s")
    print(
        "| load | reports/s, all | half wait | 99 % wait less than | longest wait | "
        "longest queue of an edge | turned away | load of the database |"
    )
    print("|---|---|---|---|---|---|---|---|")
    cases = [(f"{load:.0%}", load, asked.edges) for load in (0.3, 0.5, 0.7, 0.85, 0.95)]
    cases += [
        ("70 %, one edge down", 0.7, asked.edges - 1),
        ("95 %, one edge down", 0.95, asked.edges - 1),
    ]
    for name, load, running in cases:
        rate = load * capacity * asked.edges
        arrivals = [
            np.sort(rng.uniform(0, asked.seconds, rng.poisson(rate / running * asked.seconds)))
            for _ in range(running)
        ]
        day = simulated(arrivals, machines)
        half, most = np.quantile(day.waits, [0.5, 0.99])
        told = (
            f"{half * 1e3:,.0f} ms | {most * 1e3:,.0f} ms | {day.waits.max() * 1e3:,.0f} ms | "
            f"{day.queue:,} | {day.refused:,} | {rate * asked.stored / asked.cores:.0%}"
        )
        print(f"| {name.replace('%', ' %').replace('  ', ' ')} | {rate:,.0f} | {told} |")


if __name__ == "__main__":
    main()
