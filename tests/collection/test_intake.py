"""Ingestion under failures: opening collections, a failing log, operator rights."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.collection.conftest import Clock, NewCollection
from tests.collection.local_service import Service, run
from tests.collection.running import report_of, running

from metricshuffle.collection.keys import KeyFolder
from metricshuffle.collection.shuffler import ingest
from metricshuffle.collection.shuffler.ingest import Intake
from metricshuffle.collection.shuffler.server import folders_of, ignore_log_errors
from metricshuffle.collection.store.records import StoreError, Verdict
from metricshuffle.collection.store.sql_store import Store
from metricshuffle.collection.terms import parse_time
from metricshuffle.errors import InputError


@pytest.fixture
def service(store: Store, tmp_path: Path, new_collection: NewCollection) -> Iterator[Service]:
    made = Service(store, tmp_path / "keys", new_collection)
    yield made
    made.intake.close()


def test_a_report_in_the_last_moment_before_it_opens_closes_nothing(
    service: Service, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer is given before the opening time, and the time is asked again after it."""
    now = clock.stop(1_800_000_000)
    collection = service.opened(1, opens=now + 10)
    opens = parse_time(collection.terms.opens)
    put = service.store.put

    def put_and_wait(*given: Any) -> list[Verdict]:
        verdicts = put(*given)
        clock.stop(opens + 0.001)
        return verdicts

    async def answers() -> list[int]:
        clock.stop(opens - 0.001)
        monkeypatch.setattr(service.store, "put", put_and_wait)
        early = await service.post(collection, report_of(collection))
        monkeypatch.setattr(service.store, "put", put)
        return [early.status, (await service.post(collection, report_of(collection))).status]

    assert run(answers) == [503, 204]


def test_after_its_end_a_collection_is_closed_whether_it_is_sealed_yet_or_not(
    service: Service, clock: Clock
) -> None:
    clock.stop(1_800_000_000)
    collection = service.opened(1)

    async def answers() -> list[int]:
        told = [(await service.post(collection, report_of(collection))).status for _ in range(4)]
        clock.stop(parse_time(collection.terms.closes))
        told += [(await service.post(collection, report_of(collection))).status for _ in range(2)]
        service.shuffler.advance(collection.digest)
        return [*told, (await service.post(collection, report_of(collection))).status]

    assert run(answers) == [204] * 4 + [410] * 3


def test_where_nothing_can_be_said_reports_are_stored_all_the_same(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log on a full disk: what the intake says about it fails, and it must not end with that."""
    collection = service.opened(1)
    put = service.store.put

    def says(text: str) -> None:
        with open("/dev/full", "wb", buffering=0) as full:
            full.write(text.encode())

    intake = Intake(service.store, service.keys, log=ignore_log_errors(says))

    def fails(*_: Any) -> list[Verdict]:
        raise StoreError("the disk is full.")

    async def stored() -> Verdict:
        opener = await intake.opener(collection.digest)
        assert opener is not None
        monkeypatch.setattr(service.store, "put", fails)
        with pytest.raises(StoreError):
            await asyncio.wait_for(intake.put(opener, report_of(collection)), 20)
        monkeypatch.setattr(service.store, "put", put)
        return await asyncio.wait_for(intake.put(opener, report_of(collection)), 20)

    try:
        assert run(stored) is Verdict.STORED
    finally:
        intake.close()


def test_large_reports_do_not_wait_without_end_nor_all_in_one_transaction(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten reports of ten kilobytes where thirty may wait, and twenty go into a transaction."""
    monkeypatch.setattr(ingest, "QUEUE_LIMIT_BYTES", 29_000)
    monkeypatch.setattr(ingest, "TRANSACTION_LIMIT_BYTES", 19_000)
    collection = service.opened(175)
    put = service.store.put
    held = threading.Event()
    together = list[int]()
    assert 10_000 < collection.sealing.report_size < 10_200

    def slow(digest: str, entries: Any) -> list[Verdict]:
        held.wait(20)
        together.append(len(entries))
        return put(digest, entries)

    monkeypatch.setattr(service.store, "put", slow)

    async def answers() -> tuple[list[int], int]:
        posts = [
            asyncio.ensure_future(service.post(collection, report_of(collection)))
            for _ in range(10)
        ]
        while sum(post.done() for post in posts) < 7:
            await asyncio.sleep(0.01)
        held.set()
        first = [(await post).status for post in posts]
        return first, (await service.post(collection, report_of(collection))).status

    told, afterwards = run(answers)
    assert sorted(told) == [204] * 3 + [429] * 7
    assert afterwards == 204
    assert max(together) <= 2


@pytest.mark.parametrize("token", ["", "\n", "0" * 12, "x y" * 20])
def test_a_folder_without_a_token_has_no_operator(tmp_path: Path, token: str) -> None:
    """Whoever names no token would have that of an empty file."""
    folder = KeyFolder.at(tmp_path / "keys")
    (folder.path / "operator.token").write_text(token)
    with pytest.raises(InputError, match="no operator's token"):
        _ = folder.token


@pytest.mark.thorough
def test_a_shuffler_does_not_start_with_an_empty_token(tmp_path: Path) -> None:
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / "operator.token").touch(mode=0o600)
    with (
        pytest.raises(AssertionError, match="contains no operator's token"),
        running(tmp_path, f"sqlite:///{tmp_path / 'shuffler.db'}"),
    ):
        pass


def test_free_space_is_looked_at_where_the_database_is(tmp_path: Path) -> None:
    assert folders_of(f"sqlite:///{tmp_path / 'data' / 'shuffler.db'}") == (tmp_path / "data",)
    assert folders_of("postgresql://nobody@127.0.0.1/none") == ()
