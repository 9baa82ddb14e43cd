"""Reports, in process: every response, and what is stored after it."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.collection.conftest import Clock, NewCollection
from tests.collection.local_service import Answer, Service, asks_again, run
from tests.collection.running import load_task, new_tickets, report_of

from metricshuffle.collection.keys import CollectionKeys
from metricshuffle.collection.sealed_boxes import NotOpened
from metricshuffle.collection.shuffler import asgi_app as server_module
from metricshuffle.collection.shuffler.asgi_app import Application
from metricshuffle.collection.shuffler.ingest import Intake, ReportOpener
from metricshuffle.collection.store.sql_store import Store
from metricshuffle.collection.terms import instant


@pytest.fixture
def service(store: Store, tmp_path: Path, new_collection: NewCollection) -> Iterator[Service]:
    made = Service(store, tmp_path / "keys", new_collection)
    yield made
    made.intake.close()


# Reports


@pytest.mark.parametrize("messages", [1, 5, 10, 20, 200])
@pytest.mark.parametrize("ticketed", [False, True])
def test_a_report_has_one_length(service: Service, messages: int, ticketed: bool) -> None:
    """Exactly that of its task, checked before reading."""
    tickets = new_tickets(5) if ticketed else []
    collection = service.opened(messages, tickets)
    report = report_of(collection, tickets[0] if tickets else b"")
    assert len(report) == 48 + 57 * messages + 16 * ticketed

    async def answers() -> list[int]:
        return [
            (await service.post(collection, report)).status,
            (await service.post(collection, report[:-1])).status,
            (await service.post(collection, report + b"\0")).status,
            (
                await service.ask(
                    "POST", f"/v1/collections/{collection.digest}/reports", [None], length="9" * 30
                )
            ).status,
            (await service.post(collection, report, length="")).status,
            (await service.post(collection, report, length="-5")).status,
            (await service.post(collection, report, transfer_encoding="chunked")).status,
            (
                await service.ask(
                    "POST",
                    f"/v1/collections/{collection.digest}/reports",
                    [report[:7], report[7:20], report[20:]],
                )
            ).status,
        ]

    assert run(answers) == [204, 422, 413, 413, 411, 411, 411, 204]
    assert service.reports(collection) == 1


def test_whatever_does_not_open_gets_one_answer(service: Service) -> None:
    """Flipped bits, random bytes, other collections or layers, duplicates: the same answer."""
    collection = service.opened(2 + 1)
    other = service.opened(3, round=2)
    report = report_of(collection)
    sealing = collection.sealing
    box = secrets.token_bytes(sealing.inner_size)
    inside = b"".join(secrets.token_bytes(sealing.inner_size) for _ in range(3))
    wrong = [
        secrets.token_bytes(len(report)),
        bytes(len(report)),
        b"\xff" * len(report),
        report_of(other),
    ]
    wrong.append(sealing.closed([box, secrets.token_bytes(len(box)), box], collection.keys[-1]))
    wrong += [collection.keys[-1].sealed(inside, sealing.info(layer)) for layer in (0, 2, 255)]
    wrong.append(collection.keys[0].sealed(inside, sealing.info(1)))
    for bit in range(8 * len(report)):
        broken = bytearray(report)
        broken[bit // 8] ^= 1 << bit % 8
        wrong.append(bytes(broken))

    async def answers() -> set[Any]:
        return {(await service.post(collection, broken)).whole for broken in wrong}

    [(status, _, body)] = run(answers)
    assert status == 422
    assert json.loads(body) == {"error": "this report cannot be opened."}
    assert service.reports(collection) == service.reports(other) == 0
    assert run(lambda: service.post(collection, report)).status == 204


def test_a_report_belongs_to_one_collection_even_under_the_same_keys(
    new_collection: NewCollection,
) -> None:
    """The digest is bound into every box, so another id does not open it."""
    keys = CollectionKeys(secrets.token_bytes(64))
    hops = [{**keys.party.model_dump(), "url": "http://127.0.0.1:8460"}]
    collections = [new_collection(load_task(3), hops=hops) for _ in range(2)]
    gates = [
        ReportOpener(collection.digest, collection.sealing, keys) for collection in collections
    ]
    report = report_of(collections[0])
    assert gates[0].entry(report).hidden
    with pytest.raises(NotOpened):
        gates[1].entry(report)


def test_the_same_report_is_one_report_however_often_it_comes(service: Service) -> None:
    """Sixty-four at once, ten times: ten rows, and every answer is the same."""
    collection = service.opened(10)
    reports = [report_of(collection) for _ in range(10)]

    async def answers() -> set[Any]:
        return {
            answer.whole
            for answer in await asyncio.gather(
                *(service.post(collection, report) for report in reports for _ in range(64))
            )
        }

    [(status, _, body)] = run(answers)
    assert (status, body) == (204, b"")
    assert service.reports(collection) == 10


def test_a_ticket_is_for_one_report(service: Service) -> None:
    """Sixteen reports for each of ten tickets: ten are stored; unknown tickets are not.

    The same bytes again count as stored.
    """
    tickets = new_tickets(10)
    collection = service.opened(10, tickets)
    reports = [report_of(collection, ticket) for _ in range(16) for ticket in tickets]

    async def answers(sent: Sequence[bytes]) -> list[int]:
        return [
            answer.status
            for answer in await asyncio.gather(
                *(service.post(collection, report) for report in sent)
            )
        ]

    first = run(lambda: answers(reports))
    assert (first.count(204), first.count(409)) == (10, 150)
    assert run(lambda: answers(reports)) == first
    assert run(lambda: answers([report_of(collection, secrets.token_bytes(16))])) == [403]
    assert service.reports(collection) == 10


def test_nothing_is_taken_before_it_opens_and_after_it_closes(
    service: Service, clock: Clock
) -> None:
    """Early reports retry; late ones get 410, also stored ones."""
    now = clock.stop()
    collection = service.opened(1, opens=now + 50)
    reports = [report_of(collection) for _ in range(8)]

    async def answers() -> list[Answer]:
        return list(await asyncio.gather(*(service.post(collection, report) for report in reports)))

    assert {(answer.status, asks_again(answer)) for answer in run(answers)} == {(503, True)}
    clock.ahead = 60
    assert {answer.status for answer in run(answers)} == {204}
    clock.ahead = 150
    late = report_of(collection)
    for _ in range(2):
        assert {answer.status for answer in run(answers)} == {410}
        assert run(lambda: service.post(collection, late)).status == 410
        service.shuffler.advance(collection.digest)
    clock.ahead = 60  # the clock is set back: that opens nothing
    fresh = Intake(service.store, service.keys)
    service.application = Application(service.shuffler, fresh)
    assert {answer.status for answer in run(answers)} == {410}
    fresh.close()
    assert service.reports(collection) == 8


def test_late_reports_come_again_until_it_is_counted_whether_it_is_extended(
    service: Service, clock: Clock
) -> None:
    now = clock.stop()
    collection = service.opened(1, extends=instant(now + 300))
    posts = [report_of(collection) for _ in range(9)]

    async def answers() -> list[Answer]:
        return list(await asyncio.gather(*(service.post(collection, post) for post in posts[:8])))

    assert {answer.status for answer in run(answers)} == {204}
    clock.ahead = 150
    answer = run(lambda: service.post(collection, posts[8]))
    assert (answer.status, asks_again(answer)) == (503, True)
    service.shuffler.advance(collection.digest)
    assert run(lambda: service.post(collection, posts[8])).status == 410


def test_a_collection_takes_no_more_than_its_maximum(service: Service) -> None:
    collection = service.opened(1, users=6)
    reports = [report_of(collection) for _ in range(7)]

    async def answers() -> list[Answer]:
        return [await service.post(collection, report) for report in reports]

    for _ in range(2):
        told = run(answers)
        assert [answer.status for answer in told] == [204] * 6 + [429]
        assert asks_again(told[-1])


def test_other_methods_and_paths(service: Service) -> None:
    collection = service.opened()

    async def answers() -> dict[str, int]:
        path = f"/v1/collections/{collection.digest}"
        asked = {
            f"GET {path}/reports": 405,
            f"DELETE {path}/reports": 405,
            f"POST {path}": 405,
            f"POST {path}/state": 405,
            f"PUT {path}/release": 405,
            f"POST /v1/collections/{'0' * 64}/reports": 404,
            f"POST {path.upper()}/reports": 404,
            f"POST {path}0/reports": 404,
            f"POST {path}/reports/": 404,
            f"GET /v1/collections/{'0' * 64}": 404,
            f"GET {path}\0": 404,
            "GET /v1/collections/..": 404,
            "GET /": 404,
            "GET /healthz": 200,
            f"GET {path}": 200,
        }
        told = {}
        for call in asked:
            method, where = call.split(" ")
            answer = await service.ask(method, where)
            told[call] = answer.status
            assert answer.headers["cache-control"] == "no-store"
            assert answer.status == 200 or answer.json["error"].endswith(".")
        assert told == asked
        return told

    run(answers)
    assert (
        run(lambda: service.ask("GET", f"/v1/collections/{collection.digest}")).body
        == collection.served
    )


def test_a_slow_body_is_cut(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "BODY_SECONDS", 0.2)
    collection = service.opened()
    report = report_of(collection)
    slow = [report[:10], None]
    path = f"/v1/collections/{collection.digest}/reports"
    assert run(lambda: service.ask("POST", path, slow, length=str(len(report)))).status == 408
    assert service.reports(collection) == 0


def test_a_fault_of_ours_is_told_without_what_was_being_done(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    collection = service.opened()

    def fails(*_: Any) -> Any:
        raise ValueError("of 192.0.2.7")

    monkeypatch.setattr(ReportOpener, "entry", fails)
    monkeypatch.setattr(service.store, "rows", fails)
    for answer in (
        run(lambda: service.post(collection, report_of(collection))),
        run(lambda: service.control("GET", "collections")),
    ):
        assert (answer.status, answer.json) == (500, {"error": "the shuffler failed."})
    assert len(service.said) == 2
    assert all(
        "ValueError in test_server.py:" in said and "192" not in said for said in service.said
    )


# Trouble


@pytest.fixture
def file_service(
    tmp_path: Path, new_collection: NewCollection, clock: Clock
) -> Iterator[tuple[Service, Path]]:
    """On an SQLite file, which a test can take away."""
    from metricshuffle.collection.store.factory import connect_store

    path = tmp_path / "shuffler.db"
    store = connect_store(f"sqlite:///{path}", clock)
    made = Service(store, tmp_path / "keys", new_collection, waiting=8)
    yield made, path
    made.intake.close()
    store.close()


def test_more_than_can_wait_come_again_later(file_service: tuple[Service, Path]) -> None:
    """With a locked database eight reports wait; others are told to retry at once."""
    service, path = file_service
    collection = service.opened()
    assert run(lambda: service.post(collection, report_of(collection))).status == 204
    other = sqlite3.connect(
        path, isolation_level=None, check_same_thread=False
    )  # let go of in another thread
    other.execute("BEGIN IMMEDIATE")

    async def answers() -> list[Answer]:
        async def later() -> None:
            await asyncio.sleep(0.5)
            other.execute("ROLLBACK")

        first = asyncio.ensure_future(service.post(collection, report_of(collection)))
        await asyncio.sleep(0.1)  # it is being written now
        crowd = asyncio.gather(
            *(service.post(collection, report_of(collection)) for _ in range(30))
        )
        await later()
        return [await first, *await crowd]

    told = run(answers)
    other.close()
    statuses = [answer.status for answer in told]
    assert (statuses.count(204), statuses.count(429)) == (9, 22)
    assert all(asks_again(answer) for answer in told if answer.status == 429)
    assert len({answer.headers["retry-after"] for answer in told if answer.status == 429}) > 3
    assert service.reports(collection) == 10


def test_a_store_in_trouble_acknowledges_nothing(file_service: tuple[Service, Path]) -> None:
    """Replaced file: 503 to clients, logged once, and recovery when it is back."""
    service, path = file_service
    collection = service.opened()
    reports = [report_of(collection) for _ in range(3)]

    async def answers() -> list[Answer]:
        return [await service.post(collection, report) for report in reports]

    assert [answer.status for answer in run(answers)] == [204] * 3
    aside = path.with_suffix(".aside")
    os.rename(path, aside)
    shutil.copy(aside, path)
    assert {(answer.status, asks_again(answer)) for answer in run(answers)} == {(503, True)}
    assert len(service.said) == 1
    assert run(lambda: service.ask("GET", "/healthz")).status == 503
    os.replace(aside, path)
    assert (
        run(lambda: service.ask("GET", "/healthz")).status == 200
    )  # although nobody has sent anything since
    assert [answer.status for answer in run(answers)] == [204] * 3
    assert len(service.said) == 2


def test_health_is_asked_of_the_database_and_the_writer(
    file_service: tuple[Service, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reports failure before any report was sent, without showing a path."""
    service, path = file_service
    assert run(lambda: service.ask("GET", "/healthz")).json == {"ok": True}
    monkeypatch.setattr("metricshuffle.collection.shuffler.ingest.CHECK_INTERVAL_SECONDS", 0.0)
    aside = path.with_suffix(".aside")
    os.rename(path, aside)
    told = run(lambda: service.ask("GET", "/healthz"))
    assert (told.status, told.json["error"]) == (
        503,
        "reports cannot be stored now: the database does not accept them.",
    )
    assert str(path) in service.said[0]
    os.rename(aside, path)
    assert run(lambda: service.ask("GET", "/healthz")).status == 200
    service.intake.close()
    told = run(lambda: service.ask("GET", "/healthz"))
    assert told.status == 503
    assert "the thread that writes has ended" in told.json["error"]


def test_a_disk_that_is_nearly_full_takes_nothing(
    store: Store, tmp_path: Path, new_collection: NewCollection
) -> None:
    service = Service(store, tmp_path / "keys", new_collection, least_free=2**60)
    try:
        collection = service.opened()
        assert run(lambda: service.post(collection, report_of(collection))).status == 503
        assert service.reports(collection) == 0
        assert "nearly full" in service.said[0]
        told = run(lambda: service.ask("GET", "/healthz"))
        assert (told.status, asks_again(told)) == (503, True)
        assert told.json == {"error": "reports cannot be stored now: the disk is nearly full."}
    finally:
        service.intake.close()


def test_secrets_are_let_go_when_a_collection_is_not_open_any_more(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in memory, and when nobody sends anything after the end."""
    from metricshuffle.collection.shuffler import ingest

    monkeypatch.setattr(ingest, "CHECK_INTERVAL_SECONDS", 0.05)
    collection = service.opened()

    async def known() -> list[bool]:
        forgetting = asyncio.ensure_future(service.intake.forget_closed())
        await service.post(collection, report_of(collection))
        told = [service.intake.known(collection.digest) is not None]
        service.shuffler.abort(collection.digest, "enough")
        await asyncio.sleep(0.5)
        told.append(service.intake.known(collection.digest) is not None)
        forgetting.cancel()
        return told

    assert run(known) == [True, False]
    assert run(lambda: service.post(collection, report_of(collection))).status == 410
