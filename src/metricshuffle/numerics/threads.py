"""How much of the machine this process may use, and compiled work that goes on in several threads of it."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise, starmap
from typing import TypeVar

MAX_PARTS = 4
"""Beyond, threads mostly wait for what is not compiled."""
Result = TypeVar("Result")


def usable_cores() -> int:
    """Those this process may run on, where the system tells; a container often has fewer than the machine."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_in_parts(work: Callable[[int, int], Result], many: int) -> list[Result]:
    """work(start, stop) for consecutive parts of 0..many, one a core, all at once: worth it for loops that let go of the interpreter."""
    parts = max(1, min(usable_cores(), many, MAX_PARTS))
    spans = list(pairwise(many * part // parts for part in range(parts + 1)))
    if parts == 1:
        return list(starmap(work, spans))
    with ThreadPoolExecutor(parts - 1) as others:
        futures = [others.submit(work, *span) for span in spans[1:]]
        return [work(*spans[0]), *(part.result() for part in futures)]


def start_in_thread(work: Callable[[], Result]) -> Callable[[], Result]:
    """Begin `work` in a thread of its own; what is returned waits for its result, or raises what it raised."""
    thread = ThreadPoolExecutor(1)
    begun = thread.submit(work)

    def waited() -> Result:
        with thread:  # so that no thread is left behind
            return begun.result()

    return waited
