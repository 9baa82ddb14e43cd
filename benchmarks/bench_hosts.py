"""Benchmark of edges over PostgreSQL and its standby: `python -m benchmarks.bench_hosts`.

The stores of edges without HTTP and opening, in one process; then one whole edge, and how long it
takes from the closing time until the keys are destroyed. Times of a busy machine are noisy: compare
numbers of one run, and take processor time rather than rates. `--rows 1000000` fills a table first,
which takes minutes.
"""

from __future__ import annotations

import argparse
import os
import secrets
import signal
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.collection.many_hosts import many_hosts
from tests.collection.postgres_pair import PostgresPair, new_database, postgres_pair
from tests.collection.running import load_task, post_report, report_of

from metricshuffle.collection.keys import AnalystKey, CollectionKeys, analyst_of
from metricshuffle.collection.store.part_store import EdgeStore, HubStore
from metricshuffle.collection.store.postgres_server import EDGE_NAME, PostgresServer
from metricshuffle.collection.store.records import Entry, StoreError
from metricshuffle.collection.terms import Collection, instant, parse_time

GROUP = 64
REPORT_BYTES = 602
EDGES = (1, 2, 4, 8)
CLOSINGS = 30
LEASE_SECONDS = 10.0
"""Duration of a lease while its end is timed."""


class SetClock:
    """Clock of the hub, which is set to the end of a collection to close it."""

    ahead = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead


class Cluster:
    """A hub and eight edges over a pair of servers."""

    def __init__(self, pair: PostgresPair, stack: ExitStack) -> None:
        self.pair = pair
        self.clock = SetClock()
        self.hub = HubStore(PostgresServer(pair.url, role="hub"), self.clock)
        self.edges = [EdgeStore(PostgresServer(pair.url, role="edge")) for _ in range(max(EDGES))]
        self._round = 0
        for store in (self.hub, *self.edges):
            stack.callback(store.close)

    def opened(self) -> str:
        """Open a collection of a day; return its digest."""
        self._round += 1
        now = time.time()
        party = CollectionKeys(secrets.token_bytes(64)).party
        collection = Collection.new(
            load_task(10, users=10**8, rounds=10**6),
            round=self._round,
            hops=[{**party.model_dump(), "url": "http://127.0.0.1:1"}],
            analyst=analyst_of(AnalystKey.new().public),
            colluders=0,
            opens=instant(now - 2),
            closes=instant(now + 86_400),
            extends=instant(now + 86_400),
            retention=86_400,
        )
        self.hub.add(collection, party.key)
        return collection.digest

    def write(self, digest: str, edges: int, groups: int) -> float:
        """Let edges write groups of reports at once; return the seconds."""
        leases = [self._leased(digest) for _ in range(edges)]
        begun = time.perf_counter()
        with ThreadPoolExecutor(edges) as threads:
            share = groups // edges
            list(threads.map(lambda at: self._write(digest, at, leases[at], share), range(edges)))
        return time.perf_counter() - begun

    def _leased(self, digest: str) -> bytes:
        lease = secrets.token_bytes(16)
        if self.hub.add_part(digest, lease) is None:
            raise StoreError("the collection is closed.")
        return lease

    def _write(self, digest: str, edge: int, lease: bytes, groups: int) -> None:
        for number in range(groups):
            if number % 50 == 0:
                self.hub.add_room(digest, lease)
            self.edges[edge].put(digest, group_of(lease))

    def close_under_load(self) -> float:
        """Close a collection into which all edges write; return the seconds until it is closed."""
        digest = self.opened()
        leases = [self._leased(digest) for _ in self.edges]
        stop = threading.Event()

        def write(edge: int) -> None:
            with suppress(StoreError):
                while not stop.is_set():
                    self.edges[edge].put(digest, group_of(leases[edge]))

        with ThreadPoolExecutor(len(self.edges)) as threads:
            for edge in range(len(self.edges)):
                threads.submit(write, edge)
            time.sleep(0.3)
            self.clock.ahead = 86_401
            begun = time.perf_counter()
            while self.hub.seal(digest) == "open":
                pass
            taken = time.perf_counter() - begun
            stop.set()
        self.clock.ahead = 0
        with self.hub._database.writing() as db:  # the hub's time goes back, as no real one does
            db.execute("UPDATE collection SET seen = 0")
            db.execute("UPDATE clock SET latest = 0")
        self.hub._latest_now = 0.0
        return taken

    def backend_seconds(self) -> float:
        """Processor time of the backends of all edges so far."""
        psutil: Any = import_module("psutil")
        sql = "SELECT pid FROM pg_stat_activity WHERE application_name = %s"
        total = 0.0
        for (pid,) in self.pair.ask(sql, None, EDGE_NAME):
            times = psutil.Process(pid).cpu_times()
            total += times.user + times.system
        return total

    def journal_bytes(self) -> int:
        [(position,)] = self.pair.ask("SELECT (pg_current_wal_lsn() - '0/0'::pg_lsn)::bigint")
        return int(position)


def group_of(lease: bytes) -> list[Entry]:
    return [
        Entry(secrets.token_bytes(16), b"", secrets.token_bytes(REPORT_BYTES), lease)
        for _ in range(GROUP)
    ]


def bare_append(folder: Path, groups: int) -> float:
    """Seconds to append groups of the same length to a file, each durably."""
    lease = secrets.token_bytes(16)
    begun = time.perf_counter()
    with open(folder / "bare", "ab", buffering=0) as stream:
        for _ in range(groups):
            stream.write(b"".join(entry.hidden for entry in group_of(lease)))
            os.fdatasync(stream.fileno())
    return time.perf_counter() - begun


def print_edges(cluster: Cluster, groups: int, repeats: int) -> None:
    """Print processor time and journal of a report for each number of edges."""
    print("| edges | backend processor time a report | reports/s | journal a report |")
    print("|---|---|---|---|")
    for edges in EDGES:
        spent, fastest, journal = [], [], []
        for _ in range(repeats):
            digest = cluster.opened()
            cluster.write(digest, edges, edges)  # connections and plans
            before, written = cluster.backend_seconds(), cluster.journal_bytes()
            seconds = cluster.write(digest, edges, groups)
            reports = groups // edges * edges * GROUP
            spent.append((cluster.backend_seconds() - before) / reports)
            journal.append((cluster.journal_bytes() - written) / reports)
            fastest.append(reports / seconds)
        row = f"{min(spent) * 1e6:.1f} us | {max(fastest):,.0f} | {min(journal):,.0f} B"
        print(f"| {edges} | {row} |", flush=True)


def processor_seconds(processes: list[Any]) -> float:
    """Return the processor time of processes so far."""
    times = [process.cpu_times() for process in processes]
    return float(sum(time.user + time.system for time in times))


def print_whole_edge(pair: PostgresPair, folder: Path, count: int) -> None:
    """Print the processor time that a report takes in each process, over HTTP and opened."""
    psutil: Any = import_module("psutil")
    new_database(pair)
    with many_hosts(folder, pair.url, 1) as hosts:
        collection = hosts.hub.opened(load_task(10))
        url = hosts.url(0, collection.digest)
        while post_report(url, [report_of(collection)]).statuses != [204]:
            time.sleep(0.2)
        reports = [report_of(collection) for _ in range(count)]
        edge = psutil.Process(hosts.edges[0].process.pid)
        servers = [psutil.Process(server.pid) for server in pair.processes]
        parts = {
            "edge: HTTP, queue and database": [edge],
            "edge: its opener": edge.children(),
            "hub": [psutil.Process(hosts.hub.process.pid)],
            "PostgreSQL, primary": servers[:1] + servers[0].children(),
            "PostgreSQL, standby": servers[1:] + servers[1].children(),
        }
        before = {name: processor_seconds(group) for name, group in parts.items()}
        begun = time.perf_counter()
        statuses = post_report(url, reports).statuses
        taken = time.perf_counter() - begun
        stored = statuses.count(204)
        print(f"{stored:,} of {count:,} reports stored, {stored / taken:,.0f} a second")
        for name, group in parts.items():
            spent = (processor_seconds(group) - before[name]) / stored
            print(f"{name}: {spent * 1e6:.0f} us of processor time a report")


def seconds_to_erased(pair: PostgresPair, folder: Path, *, is_edge_killed: bool) -> float:
    """Seconds from the closing time until the keys are destroyed, with two edges."""
    new_database(pair)
    with many_hosts(folder, pair.url, 2, lease=LEASE_SECONDS) as hosts:
        collection = hosts.hub.opened(load_task(3), lasts=25)
        closes = parse_time(collection.terms.closes)
        for number in range(2):
            reports = [report_of(collection) for _ in range(5)]
            while post_report(hosts.url(number, collection.digest), reports).statuses != [204] * 5:
                time.sleep(0.2)
        time.sleep(max(0.0, closes - 0.5 - time.time()))
        if is_edge_killed:
            hosts.edges[0].end(signal.SIGKILL)
        while list(hosts.hub.keys.glob("*.key")):
            time.sleep(0.02)
        return time.time() - closes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--groups", type=int, default=400)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--rows", type=int, default=0, help="stored before the flatness is measured"
    )
    parser.add_argument(
        "--reports", type=int, default=5000, help="sent to a whole edge; 0: no processes are timed"
    )
    options = parser.parse_args()
    with postgres_pair() as pair, ExitStack() as stack, tempfile.TemporaryDirectory() as folder:
        cluster = Cluster(pair, stack)
        print_edges(cluster, options.groups, options.repeats)
        place = pair.folder if os.access(pair.folder, os.W_OK) else Path(folder)
        bare = min(bare_append(place, options.groups) for _ in range(options.repeats))
        stored = min(
            cluster.write(cluster.opened(), 1, options.groups) for _ in range(options.repeats)
        )
        print(f"one edge against appending the same groups durably to a file: {bare / stored:.2f}")
        closings = sorted(cluster.close_under_load() for _ in range(CLOSINGS))
        print(
            f"closing with {max(EDGES)} edges writing, {CLOSINGS} times: median "
            f"{closings[CLOSINGS // 2] * 1e3:.0f} ms, longest {closings[-1] * 1e3:.0f} ms"
        )
        if options.rows:
            digest = cluster.opened()
            spent = []
            for groups in (options.groups, options.rows // GROUP, options.groups):
                before = cluster.backend_seconds()
                cluster.write(digest, 1, groups)
                spent.append((cluster.backend_seconds() - before) / (groups * GROUP))
            print(
                f"processor time a report after {options.rows:,} rows, of that at 0 rows: "
                f"{spent[2] / spent[0]:.2f}"
            )
        if options.reports:
            print_whole_edge(pair, Path(folder) / "whole", options.reports)
            for is_edge_killed in (False, True):
                name = "killed" if is_edge_killed else "alive"
                place = Path(folder) / name
                taken = seconds_to_erased(pair, place, is_edge_killed=is_edge_killed)
                print(
                    f"from the closing time to the destroyed keys, one of two edges {name}: "
                    f"{taken:.1f} s = {taken / LEASE_SECONDS:.2f} leases"
                )


if __name__ == "__main__":
    main()
