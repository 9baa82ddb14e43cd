"""Benchmark of a shuffler from closing time to release: `python -m benchmarks shuffle`.

Time and memory. Ten messages per report, in boxes of 105 bytes (two hops, so that the first hop's
are as large as they usually get), stored as they arrive. `python -m benchmarks.bench_shuffle
1000000` runs it with a million reports and prints how long each part took.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.collection.running import load_task

from benchmarks.measuring import measurement
from metricshuffle.collection.keys import AnalystKey, CollectionKeys, KeyFolder, analyst_of
from metricshuffle.collection.shuffler.lifecycle import Shuffler
from metricshuffle.collection.store.factory import connect_store
from metricshuffle.collection.store.records import Entry
from metricshuffle.collection.terms import Collection, Hop, instant

MESSAGES = 10
REPORTS = 1_000_000
START = 2_000_000_000.0
AT_ONCE = 5_000


def filled(folder: Path, reports: int) -> str:
    """Create a collection with stored reports.

    Their boxes are random bytes, which a shuffler cannot distinguish from boxes.
    """
    store = connect_store(f"sqlite:///{folder}/shuffler.db", lambda: START)
    shuffler = Shuffler(store, KeyFolder.at(folder / "keys"))
    other = CollectionKeys(secrets.token_bytes(64)).party
    now = START
    hops = [
        Hop(**party.model_dump() | {"url": f"http://127.0.0.1:{port}"})
        for port, party in ((1, shuffler.new_party()), (2, other))
    ]
    collection = Collection.new(
        load_task(MESSAGES),
        round=1,
        hops=hops,
        analyst=analyst_of(AnalystKey.new().public),
        colluders=0,
        opens=instant(now - 1),
        closes=instant(now + 60),
        extends=instant(now + 60),
        retention=86400,
    )
    shuffler.open(collection.served)
    keys = shuffler.keys.of(hops[0].key)
    assert keys is not None
    length = collection.sealing.inner_size * MESSAGES
    for start in range(0, reports, AT_ONCE):
        bundles = [os.urandom(length) for _ in range(min(AT_ONCE, reports - start))]
        tags = [keys.tag(bundle) for bundle in bundles]
        store.put(
            collection.digest,
            [
                Entry(tag, b"", keys.hidden(tag, bundle))
                for tag, bundle in zip(tags, bundles, strict=True)
            ],
        )
    store.close()
    return collection.digest


def driven(folder: Path) -> dict[str, float]:
    """Run in a separate process: seconds at which each point was passed, and peak gigabytes."""
    store = connect_store(f"sqlite:///{folder}/shuffler.db", lambda: START + 60)
    passed = dict[str, float]()
    begun = time.perf_counter()
    shuffler = Shuffler(
        store,
        KeyFolder.at(folder / "keys"),
        at=lambda point: passed.update({point: time.perf_counter() - begun}),
    )
    [row] = store.rows()
    assert shuffler.advance(row.digest) == "released"
    peak = next(
        line
        for line in Path("/proc/self/status").read_text().splitlines()
        if line.startswith("VmHWM")
    )
    return {**passed, "gigabytes": int(peak.split()[1]) / 1e6}


def measured(reports: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="ms-bench-") as folder:
        filled(Path(folder), reports)
        words = [sys.executable, "-m", "benchmarks.bench_shuffle", "--driven", folder]
        passed: dict[str, float] = json.loads(
            subprocess.run(words, check=True, capture_output=True).stdout
        )
        return passed


def measurements() -> list[dict[str, Any]]:
    passed = measured(REPORTS)
    name = f"{REPORTS:,} reports of {MESSAGES} messages"
    return [
        measurement(
            f"{name}: read, sorted and written",
            passed["settled"] - passed["mixing"],
            "s",
            60.0,
            at_most=True,
        ),
        measurement("  from the closing time to the release", passed["released"], "s", None),
        measurement("  memory at most", passed["gigabytes"], "GB", 2.0, at_most=True),
    ]


if __name__ == "__main__":
    if sys.argv[1] == "--driven":
        print(json.dumps(driven(Path(sys.argv[2]))))
    else:
        for point, seconds in measured(int(sys.argv[1])).items():
            print(f"{point:>16} {seconds:8.2f}")
