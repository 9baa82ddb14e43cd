"""Benchmark of sums by several servers: `python -m benchmarks adders`.

Processor microseconds of a report of one number for three adders: what a client, and each adder,
spend on it.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import metricshuffle as ms
from benchmarks.measuring import measurement
from metricshuffle.collection.adder.adder_service import AdderService
from metricshuffle.collection.adder.share_intake import ShareOpener
from metricshuffle.collection.adder.sum_store import SumStore
from metricshuffle.collection.adder.sum_terms import AdderParty, SumCollection
from metricshuffle.collection.client.report_builder import seal_reports
from metricshuffle.collection.keys import AnalystKey, KeyFolder, analyst_of
from metricshuffle.collection.signatures import SigningKey
from metricshuffle.collection.store.factory import open_database
from metricshuffle.collection.terms import instant

REPORTS = 5_000
AT_ONCE = 64
ADDERS = 3


def measurements() -> list[dict[str, Any]]:
    query = ms.Mean(ms.Interval(0, 1000, "kcal"))
    plan = ms.plan(query, ms.Target(1, 1e-6, 100), 100_000, trusted="aggregator")
    rows = []

    def measure(name: str, work: Callable[[], object], target: float) -> None:
        start = time.process_time()
        work()
        taken = 1e6 * (time.process_time() - start) / REPORTS
        rows.append(measurement(f"{name}, us a report", taken, "us", target, at_most=True))

    with tempfile.TemporaryDirectory(prefix="ms-bench-") as folder:
        now = time.time()
        store = SumStore(open_database(f"sqlite:///{Path(folder) / 'adder.db'}"), lambda: now)
        adder = AdderService(store, KeyFolder.at(Path(folder) / "keys"))
        services = [(adder.new_party().key, adder.signing.public)]
        for place in range(1, ADDERS):
            other = KeyFolder.at(Path(folder) / f"keys-{place}")
            services.append((other.new().party.key, SigningKey.new().public))
        collection = SumCollection.new(
            plan.task,
            round=1,
            adders=tuple(
                AdderParty(url=f"http://127.0.0.1:{place + 1}", key=key, signature=signature)
                for place, (key, signature) in enumerate(services)
            ),
            analyst=analyst_of(AnalystKey.new().public),
            opens=instant(now - 1),
            closes=instant(now + 9000),
            extends=instant(now + 9000),
            retention=60,
        )
        adder.open(collection.served)
        inputs = plan.task.query.inputs([437] * REPORTS, plan.task.protocol.step)
        people, tickets = [b""] * REPORTS, [b""] * REPORTS
        reports: list[bytes] = []

        def seal() -> None:
            sealed = seal_reports(collection, inputs, people, tickets)
            reports.extend(report.report for report in sealed)

        measure(f"client: noise and shares sealed for {ADDERS} adders", seal, 500)
        bodies = [collection.shares.bodies(report)[0] for report in reports]
        row = adder.row(collection.digest)
        opener = ShareOpener.of(row, adder._keys(row.key))
        entries = [opener.entry(body) for body in bodies]
        measure("adder: open", lambda: [opener.entry(body) for body in bodies], 150)

        def put() -> None:
            for start in range(0, REPORTS, AT_ONCE):
                store.put(collection.digest, entries[start : start + AT_ONCE])

        measure(f"adder: store, {AT_ONCE} a transaction", put, 100)
        names = sorted(entry.tag for entry in entries)

        def add_up() -> None:
            for name, hidden in store.hidden_shares(collection.digest, names):
                collection.shares.unpacked(opener.share(name, hidden))

        measure("adder: read the shares to add up", add_up, 50)
        store.close()
    return rows
