"""Shuffler killed repeatedly under load: acknowledged reports and spent tickets remain."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest
from tests.collection.conftest import POSTGRES_SLOWLY
from tests.collection.running import (
    Running,
    load_task,
    new_tickets,
    post_report,
    posted_async,
    report_of,
    run_aside,
    running,
)
from tests.collection.store_contents import past_the_store, reports_in, spent_in

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
        with past_the_store(url) as connection:
            is_file = url.startswith("sqlite")
            connection.execute("BEGIN" if is_file else "BEGIN ISOLATION LEVEL REPEATABLE READ")
            [(counted,)] = connection.execute("SELECT reports FROM collection").fetchall()
            tags = frozenset(reports_in(connection))
            spent = frozenset(spent_in(connection))
            connection.execute("ROLLBACK")
        return cls(tags, spent, int(counted))


async def load_with_a_kill(
    shuffler: Running, url: str, reports: Sequence[bytes], last: int
) -> list[int]:
    """Send reports, and kill the shuffler at a certain one while others are in flight."""

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
        parse_ticket = {
            keys.tag(report): keys.ticket_hash(ticket)
            for report, ticket in zip(reports, tickets, strict=True)
        }
        interrupted = 0
        for number in range(kills):
            batch = [*unclear, *reports[number * reports_each : (number + 1) * reports_each]]
            statuses = run_aside(
                load_with_a_kill(shuffler, collection.url, batch, chance.randrange(len(batch)))
            )
            assert shuffler.ended() == -signal.SIGKILL
            assert set(statuses) <= {0, 204}
            interrupted += 0 in statuses and 204 in statuses
            acknowledged |= {
                keys.tag(report)
                for report, status in zip(batch, statuses, strict=True)
                if status == 204
            }
            unclear = [
                report for report, status in zip(batch, statuses, strict=True) if status == 0
            ]
            stored = Stored.of(store_url)
            assert acknowledged <= stored.tags, "acknowledged reports are lost"
            assert stored.spent == {parse_ticket[tag] for tag in stored.tags}, (
                "a ticket is spent without its report, or the reverse"
            )
            assert stored.counted == len(stored.tags)
            shuffler.start()
        assert interrupted > kills // 2, (
            "the kills came too early or too late to interrupt anything"
        )
        assert set(post_report(collection.url, [*unclear, *reports]).statuses) == {204}
        assert shuffler.operator.status(collection.digest)["reports"] == len(reports)
        assert Stored.of(store_url).tags == set(parse_ticket)
        assert "Traceback" not in shuffler.log


@pytest.mark.thorough
@POSTGRES_SLOWLY
def test_three_kills_under_load_lose_nothing(tmp_path: Path, store_url: str) -> None:
    killed_under_load(tmp_path, store_url, 3, 400)


@pytest.mark.slow
def test_fifty_kills_under_load_lose_nothing(tmp_path: Path, store_url: str) -> None:
    killed_under_load(tmp_path, store_url, 50, 400)
