"""A shuffler that is killed under load, again and again: what it acknowledged is there, and a ticket is spent if its report is."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest
from tests.service.running import Running, load_task, new_tickets, post_report, posted_async, report_of, running

from metricshuffle.collection.keys import KeyFolder

CONNECTIONS = 32


@dataclass(frozen=True)
class Stored:
    """What a database holds of its only collection, in one snapshot."""

    tags: frozenset[bytes]
    spent: frozenset[bytes]
    counted: int

    @classmethod
    def of(cls, url: str) -> Stored:
        questions = ("SELECT tag FROM report", "SELECT hash FROM ticket WHERE spent", "SELECT reports FROM collection")
        answers: list[list[bytes]]
        if url.startswith("sqlite"):
            with closing(sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)) as db:
                db.execute("BEGIN")
                answers = [[line[0] for line in db.execute(question)] for question in questions]
        else:
            import psycopg

            from metricshuffle.collection.store.postgres_schema import SCHEMA

            with psycopg.connect(url) as db:
                db.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                db.execute(f"SET search_path TO {SCHEMA}")
                answers = [[line[0] for line in db.execute(question)] for question in questions]
        tags, spent, [counted] = answers
        return cls(frozenset(map(bytes, tags)), frozenset(map(bytes, spent)), int(counted))


async def load_with_a_kill(shuffler: Running, url: str, reports: Sequence[bytes], last: int) -> list[int]:
    """Send reports, and kill the shuffler when it is the turn of a certain one, so that others are on their way or being written."""

    def kill(number: int) -> None:
        if number == last:
            shuffler.process.send_signal(signal.SIGKILL)

    return (await posted_async(url, reports, CONNECTIONS, kill)).statuses


def killed_under_load(tmp_path: Path, store_url: str, kills: int, reports_each: int) -> None:
    chance = Random(7)
    with running(tmp_path / "s", store_url) as shuffler:
        tickets = new_tickets(kills * reports_each)
        collection = shuffler.opened(load_task(3), tickets=tickets)
        reports = [report_of(collection, ticket) for ticket in tickets]
        keys = KeyFolder(shuffler.keys).of(collection.terms.hops[0].key)
        assert keys is not None
        acknowledged: set[bytes] = set()
        unclear: list[bytes] = []
        parse_ticket = {keys.tag(report): keys.ticket_hash(ticket) for report, ticket in zip(reports, tickets, strict=True)}
        interrupted = 0
        for number in range(kills):
            batch = [*unclear, *reports[number * reports_each : (number + 1) * reports_each]]
            statuses = asyncio.run(load_with_a_kill(shuffler, collection.url, batch, chance.randrange(len(batch))))
            assert shuffler.ended() == -signal.SIGKILL
            assert set(statuses) <= {0, 204}
            interrupted += 0 in statuses and 204 in statuses
            acknowledged |= {keys.tag(report) for report, status in zip(batch, statuses, strict=True) if status == 204}
            unclear = [report for report, status in zip(batch, statuses, strict=True) if status == 0]
            stored = Stored.of(store_url)
            assert acknowledged <= stored.tags, "acknowledged reports are lost"
            assert stored.spent == {parse_ticket[tag] for tag in stored.tags}, "a ticket is spent without its report, or the reverse"
            assert stored.counted == len(stored.tags)
            shuffler.start()
        assert interrupted > kills // 2, "the kills came too early or too late to interrupt anything"
        assert set(post_report(collection.url, [*unclear, *reports]).statuses) == {204}
        assert shuffler.operator.status(collection.digest)["reports"] == len(reports)
        assert Stored.of(store_url).tags == set(parse_ticket)
        assert "Traceback" not in shuffler.log


@pytest.mark.thorough
def test_five_kills_under_load_lose_nothing(tmp_path: Path, store_url: str) -> None:
    killed_under_load(tmp_path, store_url, 5, 400)


@pytest.mark.slow
def test_fifty_kills_under_load_lose_nothing(tmp_path: Path, store_url: str) -> None:
    killed_under_load(tmp_path, store_url, 50, 400)
