"""Benchmark of noisy vectors of 100,000 people: `python -m benchmarks vectors`."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from functools import partial
from typing import Any

import numpy as np

import metricshuffle as ms
from benchmarks.measuring import measurement, seconds
from metricshuffle.protocols.features import Features, ShiftedBoxes
from metricshuffle.protocols.noisy_vectors import NoisyVectors

PEOPLE = 100_000
MAP = ms.Histogram(ms.Grid(32, 32, 100.0, "m"))
TARGET = ms.Target(epsilon=1.0, delta=1e-6, distance=320.0)
BOXES = ShiftedBoxes(3)
"""Features with 386 coordinates."""


def planned(people: int = PEOPLE) -> ms.Plan:
    """Planner's choice; the release below uses the features above, whatever it chose."""
    return ms.plan(MAP, TARGET, users=people, floor=False, protocols=("noisy-vectors",))


def load_task(features: Features) -> ms.Task:
    """Task of that plan with these features, and as many shares as planned."""
    task = planned().task
    protocol = task.protocol
    assert isinstance(protocol, NoisyVectors)
    coordinates = features.table(ms.Space.of(MAP.domain)).shape[1]
    return task.model_copy(
        update={
            "protocol": protocol.model_copy(
                update={"features": features, "coordinates": coordinates}
            )
        }
    )


def release() -> dict[str, float]:
    """Seconds of each role for all people, warm, and the peak memory of this process in GiB."""
    task = load_task(BOXES)
    values = np.random.default_rng(0).integers(0, 32, (PEOPLE, 2))
    task.counted([values[:100]])  # compiles
    start = time.perf_counter()
    tally = task.counted([values])
    counted = time.perf_counter()
    shuffled = task.publish(tally)
    task.estimate(shuffled, raw_values_seen=True)
    estimated = time.perf_counter()
    protocol = task.protocol
    assert isinstance(protocol, NoisyVectors)
    return {
        "coordinates": protocol.coordinates,
        "messages": protocol.messages_per_user,
        "counted": counted - start,
        "estimated": estimated - counted,
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }


def _in_a_process_of_its_own() -> dict[str, float]:
    """Run `release` in a new process, because peak memory counts from the start of a process."""
    printed = subprocess.run(
        [sys.executable, "-m", "benchmarks.bench_vectors"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    found: dict[str, float] = json.loads(printed)
    return found


def measurements() -> list[dict[str, Any]]:
    found = _in_a_process_of_its_own()
    name = f"1e5 people x {found['coordinates']:g} coordinates, {found['messages']:g} messages each"
    rows = [
        measurement(
            f"{name}: all roles", found["counted"] + found["estimated"], "s", 20.0, at_most=True
        ),
        measurement("  randomized and added up", found["counted"], "s", None),
        measurement("  estimated", found["estimated"], "s", None),
        measurement("  peak memory", found["memory"], "GiB", 2.0, at_most=True),
    ]
    for people in (2_000, PEOPLE):
        for floor, words in ((True, "with a floor"), (False, "no floor")):
            job = partial(ms.plan, MAP, TARGET, people, floor=floor, protocols=("noisy-vectors",))
            rows.append(
                measurement(
                    f"plan of a 32 x 32 map, {people:,} people, {words}",
                    seconds(job, 2),
                    "s",
                    5.0,
                    at_most=True,
                )
            )
    rows.append(
        measurement(
            "plan of a 32 x 32 map, every protocol",
            seconds(partial(ms.plan, MAP, TARGET, 2_000), 1),
            "s",
            None,
        )
    )
    return rows


if __name__ == "__main__":
    print(json.dumps(release()))
