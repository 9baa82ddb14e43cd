"""Benchmark of reports through a gateway: `python -m benchmarks oblivious`.

Processor time of a shuffler in one process, and of an edge with its opener, for reports that come
directly and in capsules. The sender's own time is not counted.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.collection.many_hosts import many_hosts
from tests.collection.postgres_pair import new_database, postgres_pair
from tests.collection.running import (
    Running,
    load_task,
    posted_async,
    report_of,
    request_of,
    run_aside,
    running,
)

from benchmarks.measuring import measurement, middle_seconds
from metricshuffle.collection.capsules import (
    CAPSULE_TYPE,
    GATEWAY_PATH,
    SHORT_ANSWER_BYTES,
    GatewayKey,
)
from metricshuffle.collection.oblivious_calls import ObliviousCalls
from metricshuffle.collection.sealed_boxes import PrivateKey
from metricshuffle.collection.terms import Collection

MESSAGES = 10
REPORTS = 1_500
"""Reports of each kind in each of ROUNDS, in turn."""
ROUNDS = 3
CONNECTIONS = 64
GOAL = 1.7
"""Largest ratio of an edge's processor time with and without capsules."""


def processor_time(process: int) -> float:
    """Processor seconds of a process and of its children that still run."""
    total = 0.0
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    for each in (process, *map(int, children)):
        fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def capsule_request(url: str, capsule: bytes) -> bytes:
    host = urlsplit(url).netloc
    head = f"POST {GATEWAY_PATH} HTTP/1.1\r\nHost: {host}\r\nContent-Type: {CAPSULE_TYPE}\r\n"
    return f"{head}Content-Length: {len(capsule)}\r\n\r\n".encode() + capsule


def compared(
    name: str, shuffler: Running, collection: Collection, url: str, goal: float | None = None
) -> dict[str, Any]:
    """Ratio of the processor times; both kinds come in turn, over as many connections."""
    calls = ObliviousCalls(collection)
    spent = {True: 0.0, False: 0.0}
    for _ in range(ROUNDS):
        for in_capsules in spent:
            bodies = [report_of(collection) for _ in range(REPORTS)]
            if in_capsules:
                plain = (calls.reporting(body).encoded(calls.request_size) for body in bodies)
                bodies = [calls.configuration.sealed(request)[0] for request in plain]
            request = capsule_request if in_capsules else request_of
            begun = processor_time(shuffler.process.pid)
            sent = run_aside(posted_async(url, bodies, CONNECTIONS, request=request))
            spent[in_capsules] += processor_time(shuffler.process.pid) - begun
            assert set(sent.statuses) == {200 if in_capsules else 204}, set(sent.statuses)
    each = {kind: 1e6 * seconds / (ROUNDS * REPORTS) for kind, seconds in spent.items()}
    print(f"  {name}: {each[False]:.0f} us a report, {each[True]:.0f} us in a capsule")
    ratio = spent[True] / spent[False]
    return measurement(f"{name}: processor time in capsules", ratio, "x", goal, at_most=True)


def parts() -> Iterator[dict[str, Any]]:
    """Processor time of the gateway's own work."""
    key = GatewayKey(PrivateKey.new().data)
    capsule, _ = key.configuration.sealed(bytes(1024))
    _, answer = key.opened(capsule)
    for name, job in {
        "open a capsule": lambda: key.opened(capsule),
        "encrypt an answer": lambda: answer.sealed(bytes(SHORT_ANSWER_BYTES)),
    }.items():
        yield measurement(name, 1e6 * middle_seconds(job, 501), "us", None)


def measurements() -> Iterator[dict[str, Any]]:
    """Rows of the table."""
    yield from parts()
    with tempfile.TemporaryDirectory(prefix="ms-bench-") as name:
        folder = Path(name)
        with running(folder / "all", f"sqlite:///{folder}/shuffler.db") as shuffler:
            collection = shuffler.opened(load_task(MESSAGES), oblivious=True)
            yield compared("one process, SQLite", shuffler, collection, collection.url)
        with suppress(ImportError), postgres_pair() as pair:
            new_database(pair)
            with many_hosts(folder / "hosts", pair.url, 1) as hosts:
                collection = hosts.hub.opened(load_task(MESSAGES), oblivious=True)
                url = hosts.url(0, collection.digest)
                deadline = time.monotonic() + 60
                report = report_of(collection)
                while run_aside(posted_async(url, [report], 1)).statuses != [204]:
                    assert time.monotonic() < deadline
                    time.sleep(0.2)
                yield compared("an edge with its opener", hosts.edges[0], collection, url, GOAL)
