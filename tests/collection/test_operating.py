"""Health, metrics, logs and drain of a shuffler, without a network."""

from __future__ import annotations

import asyncio
import io
import json
import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.collection.conftest import Clocks, NewCollection
from tests.collection.local_service import Answer, Service, asks_again, run
from tests.collection.running import report_of
from typer.testing import CliRunner

from metricshuffle.cli.command_group import app
from metricshuffle.collection.hub.lease_list import ENDS, Lease, LeaseList
from metricshuffle.collection.shuffler import readiness as readiness_module
from metricshuffle.collection.shuffler.drain import Drain
from metricshuffle.collection.shuffler.log_events import EventLog, JsonLog, LogEvent, kind_of
from metricshuffle.collection.shuffler.metrics_page import MetricsPage
from metricshuffle.collection.shuffler.readiness import (
    RECENT_SECONDS,
    Readiness,
    RefusalSampler,
)
from metricshuffle.collection.shuffler.supervisor import notify_supervisor
from metricshuffle.collection.store.factory import connect_store
from metricshuffle.collection.terms import Collection, instant

ATTACKER_REPORTS = 300
NOW = 2_000_000_000.0


class World:
    """Service with its metrics page, logs and clocks."""

    def __init__(self, folder: Path, new_collection: NewCollection, **intake: Any) -> None:
        folder.mkdir()
        self.clocks = Clocks()
        self.store = connect_store(f"sqlite:///{folder / 'x.db'}", self.clocks, self.clocks.steady)
        self.store.now()
        self.service = Service(self.store, folder / "keys", new_collection, **intake)
        self.service.shuffler.log = self.service.said.append
        self.sampler = RefusalSampler(
            self.service.application.readiness, self.service.intake.is_busy, lambda: 0.0
        )
        self.page = MetricsPage(self.store, self.sampler, EventLog(self.service.said.append))

    def sampled(self) -> None:
        self.sampler.sample_queue()
        self.sampler.sample_checks()

    async def visible(self) -> list[object]:
        """Everything that an operator's dashboard could see."""
        self.sampled()
        self.page._made_at = float("-inf")
        calls = [await self.service.ask("GET", path) for path in ("/livez", "/readyz", "/healthz")]
        lines = io.StringIO()
        log = JsonLog(lines, lambda: NOW)
        for text in self.service.said:
            log(text)
        answers = [(answer.status, answer.body) for answer in calls]
        return [self.page.text(), answers, lines.getvalue()]

    def close(self) -> None:
        self.service.intake.close()
        self.store.close()


def metric(page: str, name: str) -> int:
    [value] = [
        line.rpartition(" ")[2]
        for line in page.splitlines()
        if line.startswith(f"metricshuffle_{name} ")
    ]
    return int(value)


SITUATIONS = ["open", "early", "late", "full", "disk", "clock", "unknown ticket", "garbage"]


@pytest.mark.parametrize(
    "attempts", [10, pytest.param(ATTACKER_REPORTS, marks=pytest.mark.thorough)]
)
@pytest.mark.parametrize("situation", SITUATIONS)
def test_no_metric_health_or_log_line_depends_on_one_report(
    situation: str, attempts: int, tmp_path: Path, new_collection: NewCollection
) -> None:
    """Equal bytes with and without it, whatever number of reports an attacker adds."""
    intake = {"least_free": 2**60} if situation == "disk" else {}
    worlds = [World(tmp_path / name, new_collection, **intake) for name in ("with", "without")]
    try:
        collections = [_opened(world, situation) for world in worlds]
        for world in worlds:
            world.service.said.clear()  # the line of the opening has the digest
            world.sampled()

        async def compare() -> set[int]:
            statuses = {await _post(worlds[0], collections[0], situation)}
            for _ in range(attempts + 1):
                first, second = [await world.visible() for world in worlds]
                assert first == second
                for world, collection in zip(worlds, collections, strict=True):
                    statuses.add(await _post(world, collection, situation))
            return statuses

        expected = {
            "open": {204},
            "early": {503},
            "late": {410},
            "full": {204, 429},
            "disk": {503},
            "clock": {503},
            "unknown ticket": {403},
            "garbage": {422},
        }
        assert run(compare) == expected[situation]
        if situation == "open":  # the page would have had something to show
            counts = [
                world.service.reports(collection)
                for world, collection in zip(worlds, collections, strict=True)
            ]
            assert counts[0] == counts[1] + 1
    finally:
        for world in worlds:
            world.close()


def _opened(world: World, situation: str) -> Collection:
    start = world.clocks.wall
    tickets = [bytes([number]) * 16 for number in range(8)] if situation == "unknown ticket" else ()
    collection = world.service.opened(
        users=8 if situation == "full" else 1_000_000,
        tickets=tickets,
        opens=start + 50 if situation == "early" else start,
        lasts=3600,
    )
    if situation == "late":
        world.clocks.wait(4000)
    if situation == "clock":
        world.clocks.jump(40_000)
    return collection


async def _post(world: World, collection: Collection, situation: str) -> int:
    ticket = b"x" * 16 if situation == "unknown ticket" else b""
    report = report_of(collection, ticket)
    if situation == "garbage":
        report = bytes(len(report))
    return (await world.service.post(collection, report)).status


@pytest.fixture
def world(tmp_path: Path, new_collection: NewCollection) -> Iterator[World]:
    world = World(tmp_path / "world", new_collection)
    yield world
    world.close()


def test_the_page_counts_states_and_names_what_does_not_work(world: World) -> None:
    first = world.service.opened(opens=world.clocks.wall, lasts=3600)
    world.service.opened(opens=world.clocks.wall, lasts=3600, round=2)
    world.service.shuffler.abort(first.digest, "enough")
    world.sampled()
    page = world.page.text()
    assert 'metricshuffle_collections{state="open"} 1\n' in page
    assert 'metricshuffle_collections{state="aborted"} 1\n' in page
    assert metric(page, "ready") == metric(page, "clock_accepted") == 1
    world.clocks.jump(40_000)
    world.page._made_at = float("-inf")
    world.sampled()
    page = world.page.text()
    assert metric(page, "ready") == metric(page, "clock_accepted") == 0
    assert 'metricshuffle_check{name="clock"} 0\n' in page
    assert 'metricshuffle_check{name="store"} 1\n' in page
    assert 'metricshuffle_refusing_recently{status="503"} 1\n' in page
    assert first.digest[:8] not in page


def test_every_line_of_the_page_has_the_format_of_prometheus(world: World) -> None:
    world.sampled()
    sample = re.compile(r'metricshuffle_[a-z_]+(\{[a-z]+="[a-z0-9]+"\})? [0-9]+')
    lines = world.page.text().splitlines()
    names = {line.split()[2] for line in lines if line.startswith("# TYPE ")}
    for line in lines:
        assert sample.fullmatch(line) or re.fullmatch(r"# (HELP .+|TYPE \S+ gauge)", line), line
    assert names == {re.split("[ {]", line)[0] for line in lines if not line.startswith("#")}


def test_a_collection_that_is_not_closed_in_time_is_overdue(world: World) -> None:
    world.service.opened(opens=world.clocks.wall, lasts=60)
    world.clocks.wait(200)
    assert metric(world.page.text(), "collections_overdue") == 0
    world.clocks.wait(200)
    world.page._made_at = float("-inf")
    assert metric(world.page.text(), "collections_overdue") == 1


def test_leases_and_collections_that_are_counted_are_shown(world: World, tmp_path: Path) -> None:
    leases = LeaseList.at(tmp_path, create=True)
    assert leases is not None
    world.page.leases = leases
    for number, end in enumerate(["expired", "returned", "returned", ""]):
        lease = Lease(bytes([number]) * 16, "ab" * 32, "commonName=edge")
        leases.add(lease)
        if end in ENDS:
            leases.end(lease.id, end)
    start = world.clocks.wall
    world.service.opened(opens=start, lasts=60, extends=instant(start + 1060))
    world.service.opened(opens=start, lasts=60, round=2)
    assert metric(world.page.text(), "collections_counting") == 0
    world.clocks.wait(60)
    world.page._made_at = float("-inf")
    page = world.page.text()
    assert metric(page, "collections_counting") == 1
    for end, count in (("living", 1), ("returned", 2), ("confirmed", 0), ("expired", 1)):
        assert f'metricshuffle_leases{{end="{end}"}} {count}\n' in page


def test_every_alert_of_the_runbook_is_about_something_on_the_page(
    world: World, tmp_path: Path
) -> None:
    """An alert about another name would never fire."""
    world.page.leases = LeaseList.at(tmp_path, create=True)
    world.service.application.readiness.checks["hub"] = lambda: ""  # that of an edge
    world.sampled()
    page = world.page.text()
    runbook = (Path(__file__).parents[2] / "docs" / "service" / "runbook.md").read_text()
    named = set(re.findall(r"metricshuffle_[a-z_]+(?:\{[a-z]+=\"[a-z0-9]+\"\})?", runbook))
    assert len(named) > 12
    for name in named:
        assert f"\n{name} " in page or f"# TYPE {name} gauge" in page, name


def test_a_refusal_is_recent_for_five_minutes() -> None:
    times = [0.0]
    busy = [False]
    sampler = RefusalSampler(Readiness({}), lambda: busy[0], lambda: times[0])
    sampler.sample_queue()
    sampler.sample_checks()
    assert not sampler.was_refusing(429)
    assert not sampler.was_refusing(503)
    busy[0] = True
    sampler.sample_queue()
    busy[0] = False
    times[0] = RECENT_SECONDS
    sampler.sample_queue()
    assert sampler.was_refusing(429)
    times[0] = RECENT_SECONDS + 1
    assert not sampler.was_refusing(429)


def test_checks_can_be_added_and_are_public_sentences(world: World) -> None:
    """As those of a lease and of a standby are."""
    readiness = world.service.application.readiness
    assert run(lambda: world.service.ask("GET", "/readyz")).json == {"ok": True}
    readiness.checks["lease"] = lambda: "this shuffler has no lease."
    answer = run(lambda: world.service.ask("GET", "/readyz"))
    assert (answer.status, answer.json) == (503, {"error": "this shuffler has no lease."})
    assert asks_again(answer)
    assert run(lambda: world.service.ask("GET", "/livez")).status == 200
    world.sampled()
    assert 'metricshuffle_check{name="lease"} 0\n' in world.page.text()


def test_checks_that_do_not_end_are_answered_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """By one thread for all calls, and also for metrics."""
    monkeypatch.setattr(readiness_module, "ANSWER_SECONDS", 0.2)
    monkeypatch.setattr(readiness_module, "QUEUE_SAMPLE_SECONDS", 0.1)
    go = threading.Event()
    calls: list[int] = []

    def hanging() -> str:
        calls.append(1)
        go.wait(30)
        return ""

    readiness = Readiness({"store": hanging})
    sampler = RefusalSampler(readiness, lambda: False)

    async def answers() -> list[str]:
        sampling = asyncio.ensure_future(sampler.run())
        slow = await asyncio.gather(*(readiness.current_trouble() for _ in range(50)))
        await asyncio.sleep(0.3)
        assert sampler.failures["answer"] == readiness_module.SLOW
        assert sampler.was_refusing(503)
        go.set()
        await asyncio.sleep(0.3)
        assert not any(sampler.failures.values())
        sampling.cancel()
        return [*slow, await readiness.current_trouble()]

    assert run(answers) == [readiness_module.SLOW] * 50 + [""]
    assert len(calls) == 3  # the sampler, all of the first calls together, and the last one


def test_a_check_that_fails_itself_has_not_passed() -> None:
    def broken() -> str:
        raise KeyError("lease")

    readiness = Readiness({"lease": broken, "store": lambda: ""})
    assert readiness.trouble() == "a check of this shuffler failed (KeyError)."
    failures = readiness.failures()
    assert [name for name, failure in failures.items() if failure] == ["lease"]


@pytest.mark.parametrize("option", ["--drain=2h", "--drain=999999999d", "--drain=x", "--drain=-1s"])
def test_a_drain_is_a_duration_of_up_to_an_hour(option: str, tmp_path: Path) -> None:
    words = ["serve", "--store", f"sqlite:///{tmp_path}/x.db", "--keys", str(tmp_path / "k")]
    shown = CliRunner().invoke(app, [*words, option])
    assert shown.exit_code == 2
    assert "--drain must be" in shown.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_draining_shuffler_takes_reports_and_is_not_ready(world: World) -> None:
    collection = world.service.opened(opens=world.clocks.wall, lasts=3600)

    async def answers() -> list[Answer]:
        ended: list[str] = []
        said: list[str] = []
        drain = Drain(
            world.service.application.readiness, 0.2, lambda: ended.append("end"), said.append
        )
        drain.begin()
        told = [
            await world.service.ask("GET", "/readyz"),
            await world.service.ask("GET", "/livez"),
            await world.service.post(collection, report_of(collection)),
        ]
        assert ended == []
        await asyncio.sleep(0.4)
        assert ended == ["end"]
        drain.begin()
        drain.end()
        assert ended == ["end"]
        assert [kind_of(line) for line in said] == ["drain", "drain"]
        return told

    told = run(answers)
    assert [answer.status for answer in told] == [503, 200, 204]
    assert {answer.headers["connection"] for answer in told} == {"close"}


def test_a_second_signal_ends_the_drain() -> None:
    async def ended() -> list[str]:
        ends: list[str] = []
        drain = Drain(Readiness({}), 60.0, lambda: ends.append("end"), lambda _: None)
        drain.begin()
        drain.begin()
        return ends

    assert run(ended) == ["end"]


def test_lines_of_json_have_times_to_the_minute_and_states_have_fields(world: World) -> None:
    lines = io.StringIO()
    world.service.shuffler.log = JsonLog(lines, lambda: NOW + 39.9)
    collection = world.service.opened(opens=world.clocks.wall, lasts=3600)
    world.service.shuffler.abort(collection.digest, "enough")
    opened, aborted = map(json.loads, lines.getvalue().splitlines())
    assert opened == {
        "time": "2033-05-18T03:33Z",
        "event": "state",
        "message": f"Collection {collection.digest[:16]} was opened.",
        "collection": collection.digest,
        "state": "open",
    }
    assert (aborted["event"], aborted["state"]) == ("state", "aborted")


def test_a_bug_that_many_reports_meet_is_logged_once() -> None:
    lines: list[str] = []
    log = EventLog(lines.append)
    for _ in range(3):
        log(LogEvent("A report could not be taken: KeyError in x.py:1.", "bug"))
        log("Memory is locked.")
    assert len(lines) == 4
    assert log.kinds == {"bug", "note"}


def test_the_supervisor_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notify_supervisor("READY=1")  # without one, nothing happens
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        notify_supervisor("READY=1")
        assert listening.recv(100) == b"READY=1"
    notify_supervisor("STOPPING=1")  # it is gone; that is no error
