"""Ten shufflers under a day of reports, by simulation from measured service times: `python -m benchmarks.shufflers`.

A shuffler has one writer. It takes what is waiting, opens the boxes, commits all of it durably in one transaction, and answers; meanwhile
others wait. So a group of g reports takes `commit + g * each` seconds, and a busy shuffler makes larger groups. People choose a shuffler at
random and arrive independently. What is simulated is that queue, nothing of the network.
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

# Seconds a report of ten boxes takes, all in all: `python -m benchmarks service` had 2,933 to 3,268 a second into SQLite with one writer.
EACH = 1 / 3_000
# Of waiting reports that a transaction takes at the most.
LARGEST_GROUP = 512


@dataclass(frozen=True)
class Day:
    """What reports waited, in seconds, and the longest queue."""

    half: float
    most: float
    longest: float
    queue: int
    refused: int


def simulated(arrivals: np.ndarray[tuple[int], np.dtype[np.float64]], each: float, commit: float, room: int) -> Day:
    """One shuffler: arrivals in order, the answers of group commits; who finds a full queue is told to come again and is counted."""
    waits: list[np.ndarray[tuple[int], np.dtype[np.float64]]] = []
    free, next_one, longest, refused = 0.0, 0, 0, 0
    while next_one < len(arrivals):
        start = max(free, arrivals[next_one])
        waiting = int(np.searchsorted(arrivals, start, side="right")) - next_one
        if waiting > room:
            refused += waiting - room
            arrivals = np.delete(arrivals, np.s_[next_one + room : next_one + waiting])
            waiting = room
        longest, group = max(longest, waiting), min(waiting, LARGEST_GROUP)
        free = start + commit + group * each
        waits.append(free - arrivals[next_one : next_one + group])
        next_one += group
    together = np.concatenate(waits)
    half, most = np.quantile(together, [0.5, 0.99])
    return Day(float(half), float(most), float(together.max()), longest, refused)


def durable_commit() -> float:
    """Seconds of a small transaction of SQLite that has reached the disk: the middle one of many."""
    with tempfile.TemporaryDirectory() as folder, closing(sqlite3.connect(Path(folder) / "store", isolation_level=None)) as store:
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
    parser.add_argument("--commit", type=float, help="seconds of a durable commit (measured here if left out)")
    parser.add_argument("--room", type=int, default=20_000)
    asked = parser.parse_args()
    rng, commit = np.random.default_rng(1), durable_commit() if asked.commit is None else asked.commit
    capacity = 1 / asked.each
    print(f"one shuffler: at most {capacity:,.0f} reports/s; {asked.shufflers} of them: {asked.shufflers * capacity:,.0f}")
    print(f"a durable commit: {commit * 1e3:.1f} ms")
    print("| load | reports/s, all | half wait | 99 % wait less than | longest wait | longest queue | turned away |")
    print("|---|---|---|---|---|---|---|")
    cases = [(f"{load:.0%}", load, asked.shufflers) for load in (0.3, 0.5, 0.7, 0.85, 0.95)]
    cases += [("70%, one of them down", 0.7, asked.shufflers - 1), ("95%, one of them down", 0.95, asked.shufflers - 1)]
    for name, load, running in cases:
        rate = load * capacity * asked.shufflers
        days = []
        for _ in range(running):
            count = rng.poisson(rate / running * asked.seconds)
            days.append(simulated(np.sort(rng.uniform(0, asked.seconds, count)), asked.each, commit, asked.room))
        half, most = np.mean([day.half for day in days]), max(day.most for day in days)
        longest, queue, away = max(day.longest for day in days), max(day.queue for day in days), sum(day.refused for day in days)
        told = f"{half * 1e3:,.0f} ms | {most * 1e3:,.0f} ms | {longest * 1e3:,.0f} ms | {queue:,} | {away:,}"
        print(f"| {name} | {rate:,.0f} | {told} |")


if __name__ == "__main__":
    main()
