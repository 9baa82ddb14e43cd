"""Simulation of ten shufflers under a day of reports: `python -m benchmarks.shufflers`.

Service times are measured. A shuffler has one writer. It takes all waiting reports, opens the
boxes, commits them durably in one transaction, and answers; meanwhile others wait. So a group of g
reports takes `commit + g * each` seconds, and a busy shuffler makes larger groups. People choose a
shuffler at random and arrive independently. Only that queue is simulated, not the network.
"""

from __future__ import annotations

import argparse
import os
import sqlite3
import statistics
import tempfile
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.measuring import seconds

# Total seconds per report of ten boxes: `python -m benchmarks service` measured 2,933 to 3,268 per
# second into SQLite with one writer.
EACH = 1 / 3_000
# Largest number of waiting reports in one transaction.
LARGEST_GROUP = 512


@dataclass(frozen=True)
class Day:
    """Waiting times of reports in seconds, and the longest queue."""

    half: float
    most: float
    longest: float
    queue: int
    refused: int


def simulated(
    arrivals: np.ndarray[tuple[int], np.dtype[np.float64]], each: float, commit: float, room: int
) -> Day:
    """Simulate one shuffler: arrivals in order, answers by group commit.

    Reports that find a full queue are asked to retry and are counted.
    """
    waits: list[np.ndarray[tuple[int], np.dtype[np.float64]]] = []
    free = 0.0
    next_one = 0
    longest = 0
    refused = 0
    while next_one < len(arrivals):
        start = max(free, arrivals[next_one])
        waiting = int(np.searchsorted(arrivals, start, side="right")) - next_one
        if waiting > room:
            refused += waiting - room
            arrivals = np.delete(arrivals, np.s_[next_one + room : next_one + waiting])
            waiting = room
        longest = max(longest, waiting)
        group = min(waiting, LARGEST_GROUP)
        free = start + commit + group * each
        waits.append(free - arrivals[next_one : next_one + group])
        next_one += group
    together = np.concatenate(waits)
    half, most = np.quantile(together, [0.5, 0.99])
    return Day(float(half), float(most), float(together.max()), longest, refused)


def durable_commit() -> float:
    """Median seconds of a small durable SQLite transaction."""
    with (
        tempfile.TemporaryDirectory() as folder,
        closing(sqlite3.connect(Path(folder) / "store", isolation_level=None)) as store,
    ):
        for line in ("journal_mode = wal", "synchronous = full"):
            store.execute(f"PRAGMA {line}")
        store.execute("CREATE TABLE reports (tag BLOB PRIMARY KEY, body BLOB) WITHOUT ROWID")

        def commit() -> None:
            store.execute("BEGIN IMMEDIATE")
            store.execute("INSERT INTO reports VALUES (?, ?)", (os.urandom(16), os.urandom(634)))
            store.execute("COMMIT")

        return statistics.median(seconds(commit, repeats=1, warm=False) for _ in range(100))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shufflers", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--each", type=float, default=EACH)
    parser.add_argument(
        "--commit", type=float, help="seconds of a durable commit (measured here if left out)"
    )
    parser.add_argument("--room", type=int, default=20_000)
    asked = parser.parse_args()
    rng = np.random.default_rng(1)
    commit = durable_commit() if asked.commit is None else asked.commit
    capacity = 1 / asked.each
    print(
        f"one shuffler: at most {capacity:,.0f} reports/s; {asked.shufflers} of them: "
        f"{asked.shufflers * capacity:,.0f}"
    )
    print(f"a durable commit: {commit * 1e3:.1f} ms")
    print(
        "| load | reports/s, all | half wait | 99 % wait less than | longest wait | "
        "longest queue | turned away |"
    )
    print("|---|---|---|---|---|---|---|")
    cases = [(f"{load:.0%}", load, asked.shufflers) for load in (0.3, 0.5, 0.7, 0.85, 0.95)]
    cases += [
        ("70%, one of them down", 0.7, asked.shufflers - 1),
        ("95%, one of them down", 0.95, asked.shufflers - 1),
    ]
    for name, load, running in cases:
        rate = load * capacity * asked.shufflers
        days = []
        for _ in range(running):
            count = rng.poisson(rate / running * asked.seconds)
            days.append(
                simulated(
                    np.sort(rng.uniform(0, asked.seconds, count)), asked.each, commit, asked.room
                )
            )
        half = np.mean([day.half for day in days])
        most = max(day.most for day in days)
        longest = max(day.longest for day in days)
        queue = max(day.queue for day in days)
        away = sum(day.refused for day in days)
        told = (
            f"{half * 1e3:,.0f} ms | {most * 1e3:,.0f} ms | {longest * 1e3:,.0f} ms | "
            f"{queue:,} | {away:,}"
        )
        print(f"| {name} | {rate:,.0f} | {told} |")


if __name__ == "__main__":
    main()
