"""Whole rounds with a shuffler process: every query, a kill, a chain, late reports."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.catalogue.planned_tasks import bern, drinkers, planned, values_of
from tests.collection.running import Running, new_tickets, running
from typer.testing import CliRunner

from metricshuffle.cli.command_group import app
from metricshuffle.collection.analyst.analyst import Analyst
from metricshuffle.collection.analyst.download import NotReleased
from metricshuffle.collection.client.client import Client
from metricshuffle.collection.client.http_client import NotStored
from metricshuffle.collection.keys import AnalystKey, analyst_of
from metricshuffle.collection.operator.control_api import open_at_all_hops
from metricshuffle.collection.terms import Collection, instant
from metricshuffle.planning import Plan, plan
from metricshuffle.privacy.target import Target
from metricshuffle.queries import Histogram, UserHistogram
from metricshuffle.tasks.release import Release

pytestmark = pytest.mark.thorough
OPEN_SECONDS = 12
LONGER_SECONDS = 60
"""Seconds on a busy machine, so that nothing is sealed before the last report."""
CERTAIN = 1.0 - 1e-9


@cache
def map_in_vectors() -> Plan:
    return plan(
        Histogram(bern()), Target(2, 1e-6, 1600), 40, floor=False, protocols=["noisy-vectors"]
    )


@cache
def users_items() -> Plan:
    return plan(UserHistogram(drinkers(3)), Target(4, 1e-2, 1), 100, protocols=["item-wise"])


KINDS: dict[str, Callable[[], Plan]] = {
    "mean of real numbers": lambda: planned("mean of real numbers"),
    "sum in shares": lambda: planned("sum in shares"),
    "centroid": lambda: planned("centroid"),
    "labels": lambda: planned("labels"),
    "vectors of a line": lambda: planned("vectors of a line"),
    "map in vectors": map_in_vectors,
    "users' items": users_items,
}


def held_by(kind: str, people: int) -> list[Any]:
    if kind == "map in vectors":
        return [(person % 4, person % 3) for person in range(people)]
    if kind == "users' items":
        return [
            [("tea", "coffee", "water")[person % 3], "tea", "water"] for person in range(people)
        ]
    return values_of(kind, people)


def csv_of(kind: str, values: list[Any], path: Path) -> list[str]:
    """The values in a file, and the options that read it."""
    if kind == "centroid":
        path.write_text(
            "lat,lon\n" + "".join(f"{latitude},{longitude}\n" for latitude, longitude in values)
        )
        return ["--column", "lat", "--column", "lon"]
    if kind == "map in vectors":
        path.write_text("x,y\n" + "".join(f"{x},{y}\n" for x, y in values))
        return ["--column", "x", "--column", "y", "--coordinates", "cells"]
    if kind == "users' items":
        path.write_text(
            "who,what\n"
            + "".join(
                f"u{person},{item}\n" for person, items in enumerate(values) for item in items
            )
        )
        return ["--column", "what", "--user-column", "who"]
    path.write_text("v\n" + "".join(f"{value}\n" for value in values))
    return ["--column", "v"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("shuffler")
    with running(folder, f"sqlite:///{folder / 'shuffler.db'}") as shuffler:
        yield shuffler


def collected(
    key: AnalystKey, collection: Any, output: Path, seconds: float = 120, **more: Any
) -> Release:
    """Ask until it is released."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return Analyst(key).collect(collection, output, **more)
        except NotReleased as wrong:
            if time.monotonic() > deadline or "not released yet" not in str(wrong):
                raise
        time.sleep(0.3)


class Rounds:
    """One round of every kind, opened just before its reports, while others wait."""

    def __init__(self, server: Running, folder: Path) -> None:
        self.folder = folder
        self.key = AnalystKey.new()
        self.key.save(folder / "analyst.key")
        self.sent: dict[str, list[Any]] = {kind: [] for kind in KINDS}
        plans = {kind: KINDS[kind]() for kind in KINDS}
        self.collections: dict[str, Collection] = {}
        for kind, made in plans.items():
            extends = instant(time.time() + OPEN_SECONDS + LONGER_SECONDS)
            self.collections[kind] = server.opened(
                made.task, lasts=OPEN_SECONDS, analyst=self.key, extends=extends
            )
            self.collections[kind].save(folder / f"{kind}.json")
            self._submit(kind)

    def people(self, kind: str) -> int:
        return KINDS[kind]().task.honest

    def _submit(self, kind: str) -> None:
        """Through the command, with what clients draw written down."""
        protocol = type(KINDS[kind]().task.protocol)
        original = protocol.messages
        sent = self.sent[kind]

        def spy(self: Any, inputs: Any, randomness: Any) -> Any:
            sent.append(original(self, inputs, randomness))
            return sent[-1]

        path = self.folder / f"{kind}.csv"
        options = csv_of(kind, held_by(kind, self.people(kind)), path)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(protocol, "messages", spy)
            words = [
                "submit",
                str(self.folder / f"{kind}.json"),
                str(path),
                *options,
                "--outbox",
                str(self.folder / "out.box"),
            ]
            result = CliRunner().invoke(app, words)
        assert result.exit_code == 0, result.output

    @cache  # noqa: B019 - as long as the tests of this file
    def release(self, kind: str) -> Release:
        words = [
            "collect",
            f"{kind}.json",
            "--analyst-key",
            "analyst.key",
            "--output",
            f"{kind} release.json",
            "--ledger",
            f"{kind}.led",
        ]
        deadline = time.monotonic() + OPEN_SECONDS + LONGER_SECONDS + 60
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(self.folder)
            while True:
                result = CliRunner().invoke(app, words)
                if (
                    result.exit_code == 0
                    or time.monotonic() > deadline
                    or "not released yet" not in result.stderr
                ):
                    break
                time.sleep(0.3)
            assert result.exit_code == 0, result.output
            return Release.load(f"{kind} release.json")


@pytest.fixture(scope="module")
def rounds(server: Running, tmp_path_factory: pytest.TempPathFactory) -> Rounds:
    return Rounds(server, tmp_path_factory.mktemp("rounds"))


@pytest.mark.parametrize("kind", KINDS)
def test_what_people_sent_is_what_the_analyst_counts(rounds: Rounds, kind: str) -> None:
    """Exactly, noise and all: every message once, and nothing else."""
    release = rounds.release(kind)
    task = KINDS[kind]().task
    assert release.shuffled.sums == task.protocol.counted(np.concatenate(rounds.sent[kind]))
    assert release.reports == rounds.people(kind)
    assert release.collected is not None
    assert (release.collected.people, release.collected.left_out) == (rounds.people(kind), 0)
    assert not release.raw_values_seen


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_what_the_ordinary_roles_give(rounds: Rounds, kind: str) -> None:
    """Under the same law: as exact, and around the truth."""
    release = rounds.release(kind)
    task = KINDS[kind]().task
    people = rounds.people(kind)
    values = held_by(kind, people)
    ordinary = task.estimate(task.shuffle(task.randomize(values)))
    if release.query.shared:
        shares = np.array(release.value["share"])
        others = np.array(ordinary.value["share"])
        errors = np.hypot(release.standard_error, ordinary.standard_error)
        assert np.all(np.abs(shares - others) <= 7.0 * errors)
        assert sum(shares) == pytest.approx(1.0)
        return
    assert np.allclose(release.standard_error, ordinary.standard_error)
    truth = np.sum(values) if release.query.kind == "sum" else np.mean(values, axis=0)
    if kind == "centroid":
        assert np.all(
            np.abs(np.array(release.value) - np.asarray(truth))
            <= 12.0 * np.array(release.standard_error)
        )
        return
    low, high = release.interval(CERTAIN)
    assert low <= float(truth) <= high
    assert math.isfinite(high - low)


def test_after_the_closing_time(rounds: Rounds, tmp_path: Path) -> None:
    """410, and in words that it is not known; whoever was stored before is told so."""
    rounds.release("sum in shares")
    collection = rounds.collections["sum in shares"]
    with (
        Client(collection, tmp_path / "out.box") as client,
        pytest.raises(NotStored, match="not known whether this report was in time"),
    ):
        client.submit(7)
    with Client(collection, rounds.folder / "out.box") as client:
        done = client.submit_many(rounds.folder / "sum in shares.csv", column="v")
        assert done.already == done.people == rounds.people("sum in shares")


def test_a_report_of_another_collection_and_tickets(
    server: Running, rounds: Rounds, tmp_path: Path
) -> None:
    """Reports sealed for another collection do not open; every ticket counts once."""
    import httpx

    task = planned("two rounds").task
    tickets = new_tickets(30)
    first, second = (
        server.opened(task, round=round, tickets=tickets if round == 2 else ()) for round in (1, 2)
    )
    with Client(first, tmp_path / "a") as one, Client(second, tmp_path / "b") as two:
        report = one.report(3)
        assert httpx.post(f"{first.url}/reports", content=report).status_code == 204
        assert httpx.post(f"{second.url}/reports", content=report).status_code == 422
        two.submit(3, user="ann", ticket=tickets[0].hex())
        with pytest.raises(NotStored, match="does not know this ticket"):
            two.submit(3, user="ben", ticket="ab" * 16)
        two.submit(3, user="ben", ticket=tickets[1].hex())
    with (
        Client(second, tmp_path / "c") as other,
        pytest.raises(NotStored, match="spent on another report"),
    ):
        other.submit(3, ticket=tickets[0].hex())


def test_a_shuffler_that_is_killed_while_people_report(tmp_path: Path) -> None:
    """kill -9 and restart: clients continue with the same bytes, none lost or doubled."""
    made = planned("mean of real numbers")
    key = AnalystKey.new()
    values = held_by("mean of real numbers", 200)
    with running(tmp_path / "s", f"sqlite:///{tmp_path / 's.db'}") as server:
        extends = instant(time.time() + LONGER_SECONDS)
        collection = server.opened(made.task, lasts=OPEN_SECONDS, analyst=key, extends=extends)
        outcome: list[Any] = []

        def submit() -> None:
            with Client(collection, tmp_path / "out.box", patience=90) as client:
                outcome.append(client.submit_many(values, concurrency=8))

        thread = threading.Thread(target=submit)
        thread.start()
        for _ in range(600):
            if server.operator.status(collection.digest)["reports"] >= 30:
                break
            time.sleep(0.02)
        server.end(signal.SIGKILL)
        server.start()
        thread.join(120)
        assert outcome
        assert outcome[0].complete, str(outcome[0])
        release = collected(key, collection, tmp_path / "release.json", LONGER_SECONDS + 60)
    assert (release.reports, release.collected and release.collected.left_out) == (200, 0)
    low, high = release.interval(CERTAIN)
    assert low <= float(np.mean(values)) <= high


def test_a_split_and_a_chain(tmp_path: Path) -> None:
    """Two hops, each opening one layer; and two parts in one estimate."""
    target = Target(2, 1e-6, 5)
    query = planned("sum in shares").query
    task = plan(query, target, 80, 20, encoding="modular", protocols=["polya-shuffle"]).task
    key = AnalystKey.new()
    with (
        running(tmp_path / "one", f"sqlite:///{tmp_path / 'one.db'}") as one,
        running(tmp_path / "two", f"sqlite:///{tmp_path / 'two.db'}", "--after", one.url) as two,
    ):
        operators = [one.operator, two.operator]
        now = int(time.time())
        parts = []
        for part in (1, 2):
            hops = [operator.new_hop() for operator in operators]
            closes = instant(now + 20)
            parts.append(
                Collection.new(
                    task,
                    round=1,
                    hops=hops,
                    analyst=analyst_of(key.public),
                    colluders=1,
                    opens=instant(now),
                    closes=closes,
                    extends=closes,
                    retention=3600,
                    admission="open",
                    split=(part, 2),
                )
            )
            open_at_all_hops(operators, parts[-1], [])
        with Client(parts, tmp_path / "out.box") as client:
            assert client.submit_many([7] * 78).complete
        release = collected(key, parts, tmp_path / "release.json")
    told = release.collected
    assert told is not None
    assert (release.reports, len(told.parts), told.hops) == (78, 2, (one.url, two.url))
    assert sum(part.people for part in told.parts) == 78
    assert "through 2 shufflers" in str(release)
    low, high = release.interval(CERTAIN)
    assert low <= 78 * 7 <= high
