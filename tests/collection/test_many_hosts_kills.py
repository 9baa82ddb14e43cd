"""Edges and hub killed or suspended at named points: nothing acknowledged is lost or doubled."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from tests.collection.many_hosts import Hosts, end_for_good, hosts_of, many_hosts
from tests.collection.postgres_pair import PostgresPair, new_database
from tests.collection.running import load_task, post_report, report_of
from tests.collection.test_many_hosts import (
    output_of_one_process,
    released,
    sent_until_acknowledged,
)

from metricshuffle.collection.keys import AnalystKey
from metricshuffle.collection.terms import Collection, parse_time

EDGE_POINTS = (
    "opened",
    "begun",
    "kept",
    "names",
    "counted",
    "committed",
    "answered",
    "draining",
)
HUB_POINTS = (
    "granting",
    "lease line",
    "part row",
    "sending",
    "renewed",
    "part ended",
    "sealing",
    "sealed",
    "mixing",
    "copied",
    "compared",
    "shuffled",
    "forgetting",
    "forgotten",
    "keys destroyed",
    "erased",
    "checked",
)
KILLS_EACH = int(os.environ.get("METRICSHUFFLE_KILLS_EACH", "10"))
LASTS = 35.0
SAMPLE = (("edge", "counted"), ("hub", "keys destroyed"))
ALL = [("edge", point) for point in EDGE_POINTS] + [("hub", point) for point in HUB_POINTS]


def cases() -> list[object]:
    return [
        pytest.param(*case, marks=pytest.mark.thorough if case in SAMPLE else pytest.mark.slow)
        for case in ALL
    ]


class KeptAlive:
    """Starts whichever process was killed again, with the point until that was `wanted` times."""

    def __init__(self, hosts: Hosts, wanted: int) -> None:
        self.kills = 0
        self._hosts = hosts
        self._wanted = wanted
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(0.05):
            for process in (self._hosts.hub, *self._hosts.edges):
                if process.process.poll() is not None:
                    assert process.process.returncode == -signal.SIGKILL, process.log
                    self.kills += 1
                    if self.kills >= self._wanted:
                        process.kill_at = ""
                    process.ended()
                    try:
                        process.start()
                    except AssertionError:  # the point may be reached before it listens
                        if process.process.wait(10) != -signal.SIGKILL:
                            raise


def kills_of_round(pair: PostgresPair, folder: Path, role: str, point: str, wanted: int) -> int:
    """Run a round in which a process is killed up to `wanted` times; return the number of kills."""
    folder.mkdir()
    new_database(pair)
    hosts = hosts_of(folder, pair.url, 2, lease=10)
    killed = hosts.hub if role == "hub" else hosts.edges[0]
    killed.kill_at = point
    keeping = KeptAlive(hosts, wanted)
    try:
        for process in (hosts.hub, *hosts.edges):
            process.start()
        analyst = AnalystKey.new()
        collection = hosts.hub.opened(load_task(3), lasts=LASTS, analyst=analyst)
        keeping.start()
        reports = [report_of(collection) for _ in range(60)]
        sent_until_acknowledged(hosts, collection, reports[:30])
        if point == "draining":
            killed.process.send_signal(signal.SIGTERM)
        sent_until_acknowledged(hosts, collection, reports)
        while keeping.kills < wanted and role == "edge" and is_long_open(collection):
            sent_until_acknowledged(hosts, collection, reports[:8])  # known ones are counted, too
        one = output_of_one_process(folder / "one", hosts.hub.keys, collection, reports)
        answer = released(hosts, collection, analyst)
        assert answer.content == one
        assert keeping.kills, "the point was not reached"
        assert not list(hosts.hub.keys.glob("*.key"))
    finally:
        keeping.end()
        for process in (hosts.hub, *hosts.edges):
            end_for_good(process)
    return keeping.kills


def is_long_open(collection: Collection) -> bool:
    return time.time() < parse_time(collection.terms.closes) - LASTS / 4


@pytest.mark.parametrize(("role", "point"), cases())
def test_a_process_that_is_killed_at_a_point_changes_nothing(
    pair: PostgresPair, tmp_path: Path, role: str, point: str
) -> None:
    """METRICSHUFFLE_KILLS_EACH sets the number of kills; the sample has those of one round."""
    rounds = 0
    kills = 0
    while kills < KILLS_EACH and not (rounds and (role, point) in SAMPLE):
        wanted = min(KILLS_EACH - kills, 10 if role == "edge" else 3)
        kills += kills_of_round(pair, tmp_path / str(rounds), role, point, wanted)
        rounds += 1
        print(f"{role}, {point}: killed {kills} times in {rounds} rounds", flush=True)


@pytest.mark.thorough
def test_an_edge_that_sleeps_past_its_lease_stores_nothing_when_it_wakes(
    pair: PostgresPair, tmp_path: Path
) -> None:
    """Also if only its opener slept; and it goes on with another lease."""
    new_database(pair)
    with many_hosts(tmp_path, pair.url, 1, lease=10) as hosts:
        analyst = AnalystKey.new()
        collection = hosts.hub.opened(load_task(3), lasts=40, analyst=analyst)
        reports = [report_of(collection) for _ in range(30)]
        sent_until_acknowledged(hosts, collection, reports[:10])
        [edge] = hosts.edges
        edge.process.send_signal(signal.SIGSTOP)
        end = time.monotonic() + 30
        while "has expired" not in hosts.hub.log:
            assert time.monotonic() < end, hosts.hub.log
            time.sleep(0.2)
        before = pair.ask("SELECT lease, reports, closed, ended FROM part")
        assert [(closed, ended) for _, _, closed, ended in before] == [(True, True)]
        edge.process.send_signal(signal.SIGCONT)
        sent_until_acknowledged(hosts, collection, reports)
        after = pair.ask("SELECT lease, reports, closed, ended FROM part")
        assert set(before) <= set(after)
        [expired, *_] = before
        note = hosts.hub.operator.confirm_lease(expired[0].hex[:8])["note"]
        assert "was confirmed" in note
        assert sum(count for _, count, _, _ in after) == 30
        one = output_of_one_process(tmp_path / "one", hosts.hub.keys, collection, reports)
        assert released(hosts, collection, analyst).content == one
        state = httpx.get(f"{hosts.hub.url}/v1/collections/{collection.digest}/state").json()
        assert "1 confirmed" in state["leases"]


def readiness(url: str) -> tuple[int, str]:
    answer = httpx.get(f"{url}/readyz", timeout=30)
    return answer.status_code, answer.json().get("error", "")


def wait_until(is_over: Callable[[], bool], hosts: Hosts) -> float:
    """Wait until something is true; return the seconds."""
    begun = time.monotonic()
    while not is_over():
        assert time.monotonic() < begun + 30, hosts.edges[0].log + hosts.hub.log
        time.sleep(0.1)
    return time.monotonic() - begun


@pytest.mark.thorough
def test_an_edge_is_ready_only_with_a_standby_and_a_lease_or_its_hub(
    pair: PostgresPair, tmp_path: Path
) -> None:
    """Without any report: a write that changes no row would wait for nobody."""
    new_database(pair)
    with many_hosts(tmp_path, pair.url, 1, lease=5) as hosts:
        [edge] = hosts.edges

        def is_ready() -> bool:
            return readiness(edge.url) == (200, "")

        wait_until(is_ready, hosts)
        pair.signal_standby(signal.SIGSTOP)
        try:
            assert wait_until(lambda: not is_ready(), hosts) < 10
            for process in (edge, hosts.hub):
                wait_until(lambda url=process.url: "for a standby" in readiness(url)[1], hosts)  # type: ignore[misc]
        finally:
            pair.signal_standby(signal.SIGCONT)
        wait_until(is_ready, hosts)
        for process in (hosts.hub, edge):
            process.process.send_signal(signal.SIGHUP)
            wait_until(lambda log=process: "identity was reloaded" in log.log, hosts)  # type: ignore[misc]
        collection = hosts.hub.opened(load_task(3), lasts=600)
        reports = [report_of(collection) for _ in range(30)]
        sent_until_acknowledged(hosts, collection, reports[:10])
        hosts.hub.end(signal.SIGKILL)
        assert is_ready()  # it has a lease
        assert wait_until(lambda: not is_ready(), hosts) < 10
        assert "its hub does not answer" in readiness(edge.url)[1]
        assert post_report(hosts.url(0, collection.digest), reports[10:11]).statuses == [503]
        hosts.hub.start()
        sent_until_acknowledged(hosts, collection, reports)
        assert is_ready()
        assert edge.end(signal.SIGTERM) == 0
        ends = [line for line in hosts.hub.said if "was returned" in line]
        assert len(ends) == 1
