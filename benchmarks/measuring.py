"""Measurement of the rows of the benchmark table."""

from __future__ import annotations

import os
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import Any


def seconds(job: Callable[[], object], repeats: int = 5, warm: bool = True) -> float:
    """Best of several runs; a first call, which may compile, is not counted."""
    if warm:
        job()
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        job()
        best = min(best, time.perf_counter() - start)
    return best


def middle_seconds(job: Callable[[], object], repeats: int = 101) -> float:
    """Median processor time of a call; a first call is not counted.

    Other processes disturb it less than wall-clock time.
    """
    job()
    taken = []
    for _ in range(repeats):
        start = time.process_time()
        job()
        taken.append(time.process_time() - start)
    return statistics.median(taken)


def processor_seconds(words: Sequence[str], repeats: int = 3) -> float:
    """User and system time of a whole process with its libraries, the best of several runs.

    A busy machine disturbs it little. A first run, which may compile, is not counted.
    """
    taken = []
    for _ in range(1 + repeats):
        before = os.times()
        subprocess.run(words, check=True, capture_output=True)
        after = os.times()
        taken.append(
            after.children_user
            + after.children_system
            - before.children_user
            - before.children_system
        )
    return min(taken[1:])


def draws_per_second(draw: Callable[[], object], count: int, repeats: int = 5) -> float:
    return count / seconds(draw, repeats)


def measurement(
    name: str, value: float, unit: str, target: float | None, *, at_most: bool = False
) -> dict[str, Any]:
    """Row of the table; target None means that there is no target."""
    reached = None if target is None else (value <= target if at_most else value >= target)
    return {"name": name, "value": value, "unit": unit, "target": target, "reached": reached}
