"""Number of usable cores, and compiled work that runs in several threads."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise, starmap
from typing import TypeVar

MAX_PARTS = 4
"""Maximum number of threads; further threads mostly wait for code that is not compiled."""
Result = TypeVar("Result")


def usable_cores() -> int:
    """Return how many cores this process may run on, which may be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_in_parts(work: Callable[[int, int], Result], many: int) -> list[Result]:
    """Run work(start, stop) on consecutive parts of 0..many in threads, one per core.

    Worthwhile for loops that release the interpreter lock. Results are in the order of the parts.
    """
    parts = max(1, min(usable_cores(), many, MAX_PARTS))
    spans = list(pairwise(many * part // parts for part in range(parts + 1)))
    if parts == 1:
        return list(starmap(work, spans))
    with ThreadPoolExecutor(parts - 1) as others:
        futures = [others.submit(work, *span) for span in spans[1:]]
        return [work(*spans[0]), *(part.result() for part in futures)]


def start_in_thread(work: Callable[[], Result]) -> Callable[[], Result]:
    """Start `work` in a new thread; return a function that waits for its result or exception."""
    thread = ThreadPoolExecutor(1)
    begun = thread.submit(work)

    def waited() -> Result:
        with thread:  # joins the thread
            return begun.result()

    return waited
