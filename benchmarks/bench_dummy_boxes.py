"""Benchmark of sealed dummies: `python -m benchmarks dummy_boxes`.

Processor seconds in which one shuffler draws, seals and writes the dummies of a map of 1,024 cells.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import metricshuffle as ms
from benchmarks.measuring import measurement
from metricshuffle.collection.keys import AnalystKey, KeyFolder, analyst_of
from metricshuffle.collection.output_runs import dummy_protocol
from metricshuffle.collection.shuffler.dummy_boxes import DummyBoxes
from metricshuffle.collection.shuffler.output_files import OutputFolder, do_nothing
from metricshuffle.collection.terms import Collection, Hop, instant

SIDE = 32
TARGET_SECONDS = 10.0


def measurements() -> list[dict[str, Any]]:
    query = ms.Histogram(ms.Grid(SIDE, SIDE, 100.0, "m"))
    plan = ms.plan(
        query, ms.Target(1, 1e-6, 200), 100_000, protocols=["shuffler-noise"], floor="never"
    )
    with tempfile.TemporaryDirectory(prefix="ms-bench-") as folder:
        keys = KeyFolder.at(Path(folder) / "keys")
        own = keys.new()
        now = time.time()
        collection = Collection.new(
            plan.task,
            round=1,
            hops=(Hop(**own.party.model_dump(exclude={"name"}), url="http://127.0.0.1:1"),),
            analyst=analyst_of(AnalystKey.new().public),
            opens=instant(now),
            closes=instant(now + 60),
            extends=instant(now + 60),
            retention=60,
        )
        outputs = OutputFolder.of(keys)
        start = time.process_time()
        DummyBoxes(collection, 1, own).write(outputs, do_nothing)
        seconds = time.process_time() - start
    count = dummy_protocol(collection).dummies
    name = f"{count:,} dummies drawn and sealed, one core"
    return [measurement(name, seconds, "s", TARGET_SECONDS, at_most=True)]
