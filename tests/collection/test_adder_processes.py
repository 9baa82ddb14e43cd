"""Whole rounds of sums with real servers, as people run them, and servers that are killed."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.collection.running import Running, running
from tests.collection.sums import sum_task
from typer.testing import CliRunner

from metricshuffle.cli.command_group import app
from metricshuffle.collection.adder.sum_terms import SumCollection
from metricshuffle.collection.analyst.analyst import Analyst
from metricshuffle.collection.analyst.download import NotReleased
from metricshuffle.collection.client.client import Client
from metricshuffle.collection.client.http_client import NotStored
from metricshuffle.collection.keys import AnalystKey, analyst_of
from metricshuffle.collection.operator.control_api import Opening, open_at_all_hops
from metricshuffle.errors import InputError

pytestmark = pytest.mark.thorough


@pytest.fixture
def adders(tmp_path: Path) -> Iterator[list[Running]]:
    """Three adders with databases and keys of their own."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                running(
                    tmp_path / f"adder-{place}",
                    f"sqlite:///{tmp_path / f'adder-{place}.db'}",
                    "--role",
                    "adder",
                )
            )
            for place in range(3)
        ]


def command(*words: str | Path) -> str:
    """Output of a command that must succeed."""
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 0, result.output
    return result.stdout


def opened(
    adders: list[Running], analyst: AnalystKey, lasts: int, tickets: int = 0, longer: int = 0
) -> tuple[SumCollection, list[bytes]]:
    task = sum_task()  # before the clock is read: planning takes seconds on a busy machine
    now = int(time.time())
    opening = Opening(
        task=task,
        analyst=analyst_of(analyst.public),
        colluders=0,
        opens=now,
        closes=now + lasts,
        extends=now + lasts + longer,
        retention=600,
        admission="tickets" if tickets else "open",
        tickets=tickets,
    )
    operators = [adder.operator for adder in adders]
    collection = opening.sum_collection([operator.new_adder() for operator in operators])
    made = opening.new_tickets()
    open_at_all_hops(operators, collection, made)
    return collection, made


def wait_for(adders: list[Running], digest: str, state: str, seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while True:
        states = {adder.operator.status(digest)["state"] for adder in adders}
        if states == {state}:
            return
        assert time.monotonic() < end, (states, [adder.log for adder in adders])
        time.sleep(0.1)


def test_a_round_by_commands(adders: list[Running], tmp_path: Path) -> None:
    plan, collection = tmp_path / "plan.json", tmp_path / "collection.json"
    question = ("--query", "sum", "--low", "0", "--high", "5", "--distance", "5")
    target = ("--epsilon", "1", "--delta", "1e-6", "--users", "20", "--honest", "2")
    command("plan", *question, *target, "--trusted", "aggregator", "--save", plan)
    key = tmp_path / "analyst.key"
    public = command("analyst", "key", "--output", key).strip().split()[-1]
    opened_json = command(
        *("collection", "open", plan, "--analyst", public, "--closes", "12s"),
        *("--colluders", "0", "--output", collection, "--json"),
        *(word for adder in adders for word in ("--server", adder.url, "--keys", str(adder.keys))),
    )
    digest = json.loads(opened_json)["digest"]
    values = tmp_path / "values.csv"
    values.write_text("number\n" + "".join(f"{number % 6}\n" for number in range(12)))
    words = ("submit", collection, values, "--column", "number", "--outbox", tmp_path / "outbox.db")
    submitted = json.loads(command(*words, "--json"))
    assert (submitted["people"], submitted["stored"]) == (12, 12)
    assert json.loads(command(*words, "--json"))["already"] == 12
    tokens = [word for adder in adders for word in ("--keys", str(adder.keys))]
    status = json.loads(command("collection", "status", collection, *tokens, "--json"))
    assert [hop["adder"] for hop in status["hops"]] == [1, 2, 3]
    assert {hop["reports"] for hop in status["hops"]} == {12}
    wait_for(adders, digest, "released")
    release = tmp_path / "release.json"
    said = command("collect", collection, "--analyst-key", key, "--output", release)
    assert "3 adders" in said
    assert "fewer than all 3 of them work together" in said
    text = json.loads(release.read_text())
    assert text["collected"]["people"] == 12
    command("report", plan, release, "--output", tmp_path / "report.html")
    assert "second promise" in (tmp_path / "report.html").read_text()
    again = command("collect", collection, "--analyst-key", key, "--output", release)
    assert "sum = " in again
    shown = command("collection", "status", collection, *tokens)
    assert shown.count("12 people") == 3
    command("collection", "purge", collection, *tokens)


def test_a_crowd_with_tickets_although_one_adder_is_away(
    adders: list[Running], tmp_path: Path
) -> None:
    """People are done when all adders have answered; until then the same bytes are sent again."""
    key = AnalystKey.new()
    collection, tickets = opened(adders, key, 120, tickets=4)
    adders[1].end(signal.SIGKILL)
    with Client(collection, tmp_path / "outbox.db", patience=0.5) as client:
        with pytest.raises(NotStored) as waiting:
            client.submit(3, "Ann", tickets[0])
        assert waiting.value.answer.status == "waiting"
        adders[1].start()
        assert client.submit(5, "Ann").status == "stored"  # the bytes that were made before
        for name, ticket in zip(("Ben", "Cem"), tickets[1:3], strict=True):
            assert client.submit(4, name, ticket).status == "stored"
        with pytest.raises(NotStored) as refused:
            client.submit(4, "Dan", b"\0" * 16)
        assert refused.value.answer.status == "refused"
    with (
        Client(collection, tmp_path / "another.db", patience=0.5) as other,
        pytest.raises(NotStored) as spent,
    ):
        other.submit(4, "Eve", tickets[1])
    assert spent.value.answer.status == "refused"
    statuses = [adder.operator.status(collection.digest) for adder in adders]
    assert {status["reports"] for status in statuses} == {3}
    analyst = Analyst(key, patience=1)
    with pytest.raises(NotReleased, match="not released yet"):
        analyst.collect(collection, tmp_path / "early.json")


def test_another_key_is_refused(adders: list[Running], tmp_path: Path) -> None:
    collection, _ = opened(adders, AnalystKey.new(), 60)
    with pytest.raises(InputError, match="this key is not"):
        Analyst(AnalystKey.new()).collect(collection, tmp_path / "other.json")


@pytest.mark.slow
@pytest.mark.parametrize(
    "point", ["closed", "signing", "signed", "sent", "adding", "added", "destroying", "destroyed"]
)
def test_an_adder_that_is_killed_between_signing_and_releasing(
    adders: list[Running], tmp_path: Path, point: str
) -> None:
    key = AnalystKey.new()
    killed = adders[0]
    killed.end(signal.SIGKILL)
    killed.kill_at = point
    killed.start()
    collection, _ = opened(adders, key, 6)
    with Client(collection, tmp_path / "outbox.db") as client:
        assert client.submit_many([1, 2, 3, 4]).stored == 4
    assert killed.ended() == -signal.SIGKILL
    killed.kill_at = ""
    killed.start()
    wait_for(adders, collection.digest, "released", 60)
    release = Analyst(key).collect(collection, tmp_path / "release.json")
    assert release.collected is not None
    assert release.collected.people == 4
    assert not list(killed.keys.glob("*.key"))
