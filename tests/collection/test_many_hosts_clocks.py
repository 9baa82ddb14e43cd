"""Edges and hub whose clocks are set while they run, and an edge that is cut off from its hub."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from tests.collection.many_hosts import Hosts, end_for_good, hosts_of
from tests.collection.postgres_pair import PostgresPair, new_database
from tests.collection.running import Running, load_task, post_report, report_of
from tests.collection.test_clock_process import SET
from tests.collection.test_many_hosts import (
    output_of_one_process,
    released,
    sent_until_acknowledged,
)

from metricshuffle.collection.keys import AnalystKey
from metricshuffle.collection.terms import parse_time

pytestmark = pytest.mark.slow
HOURS = 4 * 3600
LEASE_SECONDS = 10.0


@contextmanager
def started(hosts: Hosts) -> Iterator[Hosts]:
    processes = (hosts.hub, *hosts.edges)
    try:
        for process in processes:
            process.start()
        yield hosts
    finally:
        for process in processes:
            end_for_good(process)


def give_clock(process: Running, folder: Path) -> None:
    """Let a process have a clock of its own, which `set_clock` sets."""
    (folder / "set").mkdir(exist_ok=True)
    (folder / "set" / "sitecustomize.py").write_text(SET)
    set_clock(process, 0)
    paths = os.pathsep.join([str(folder / "set"), os.environ.get("PYTHONPATH", "")])
    process.before = ("env", f"PYTHONPATH={paths}", f"AHEAD={process.folder / 'ahead'}")


def set_clock(process: Running, ahead: float) -> None:
    part = process.folder / "ahead.part"
    part.write_text(str(ahead))
    part.replace(process.folder / "ahead")


def wait_for_log(process: Running, words: str) -> None:
    end = time.monotonic() + 60
    while words not in process.log:
        assert time.monotonic() < end, process.log
        time.sleep(0.1)


def test_clocks_of_edges_and_hub_that_are_hours_wrong_lose_nothing_and_close_nothing_early(
    pair: PostgresPair, tmp_path: Path
) -> None:
    """A lease ends at the edge by whichever clock is first; the database's clock closes."""
    new_database(pair)
    hosts = hosts_of(tmp_path, pair.url, 2, lease=LEASE_SECONDS)
    for process in (hosts.hub, *hosts.edges):
        give_clock(process, tmp_path)
    with started(hosts):
        analyst = AnalystKey.new()
        collection = hosts.hub.opened(load_task(3), lasts=50, analyst=analyst)
        reports = [report_of(collection) for _ in range(60)]
        sent_until_acknowledged(hosts, collection, reports[:20])
        first, second = hosts.edges
        set_clock(first, HOURS)
        set_clock(second, -HOURS)
        wait_for_log(first, "is over; the hub has not renewed it")
        sent_until_acknowledged(hosts, collection, reports[:40])
        set_clock(hosts.hub, HOURS)
        time.sleep(3)
        assert hosts.hub.operator.status(collection.digest)["state"] == "open"
        set_clock(hosts.hub, -HOURS)
        sent_until_acknowledged(hosts, collection, reports)
        assert "is over" not in second.log  # its steady clock goes on
        assert "bug" not in hosts.hub.log + first.log + second.log
        one = output_of_one_process(tmp_path / "one", hosts.hub.keys, collection, reports)
        answer = released(hosts, collection, analyst)
        assert time.time() >= parse_time(collection.terms.closes)
        assert answer.content == one
        assert not list(hosts.hub.keys.glob("*.key"))


class StallingProxy:
    """TCP proxy that can stop to forward anything, without closing connections."""

    def __init__(self, port: int) -> None:
        self.flows = threading.Event()
        self.flows.set()
        self._port = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                outside, _ = self._listening.accept()
                inside = socket.create_connection(("127.0.0.1", self._port))
                for pair in ((outside, inside), (inside, outside)):
                    threading.Thread(target=self._forward, args=pair, daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError), source, target:
            while data := source.recv(65536):
                self.flows.wait()
                target.sendall(data)

    def close(self) -> None:
        self.flows.set()
        self._listening.close()


def test_an_edge_that_is_cut_off_from_its_hub_stores_nothing_and_comes_back(
    pair: PostgresPair, tmp_path: Path
) -> None:
    new_database(pair)
    hosts = hosts_of(tmp_path, pair.url, 2, lease=LEASE_SECONDS)
    first, second = hosts.edges
    words = list(first.options)
    hub = words.index("--hub") + 1
    proxy = StallingProxy(urlsplit(words[hub]).port or 0)
    words[hub] = f"https://127.0.0.1:{proxy.port}"
    first.options = tuple(words)
    try:
        with started(hosts):
            analyst = AnalystKey.new()
            collection = hosts.hub.opened(load_task(3), lasts=60, analyst=analyst)
            reports = [report_of(collection) for _ in range(40)]
            sent_until_acknowledged(hosts, collection, reports[:20])
            proxy.flows.clear()
            wait_for_log(hosts.hub, "has expired")
            [expired] = pair.ask("SELECT lease, reports FROM part WHERE ended")
            statuses = post_report(hosts.url(0, collection.digest), reports[20:22]).statuses
            assert set(statuses) <= {0, 503}
            assert (
                post_report(hosts.url(1, collection.digest), reports[20:22]).statuses == [204] * 2
            )
            proxy.flows.set()
            sent_until_acknowledged(hosts, collection, reports)
            wait_for_log(first, "The hub answers again")
            assert expired in pair.ask("SELECT lease, reports FROM part WHERE ended")
            one = output_of_one_process(tmp_path / "one", hosts.hub.keys, collection, reports)
            assert released(hosts, collection, analyst).content == one
            state = httpx.get(f"{hosts.hub.url}/v1/collections/{collection.digest}/state").json()
            assert "1 expired" in state["leases"]
            assert "is over" not in second.log
    finally:
        proxy.close()
