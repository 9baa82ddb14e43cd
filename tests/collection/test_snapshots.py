"""Shuffler restored from an older snapshot: its second output is rejected."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.collection.conftest import POSTGRES_SLOWLY
from tests.collection.rounds import HONEST, new_round, task
from tests.collection.running import Running, post_report, report_of, run_aside, running

from metricshuffle.collection.analyst.analyst import Analyst
from metricshuffle.collection.analyst.download import FetchedOutput, OutputRecord
from metricshuffle.collection.keys import AnalystKey, CollectionKeys
from metricshuffle.collection.terms import Collection
from metricshuffle.errors import InputError, PlanError


def test_the_first_output_is_noted_once_and_no_other_is_taken(tmp_path: Path) -> None:
    made = new_round([(CollectionKeys(bytes(range(64))).party, "http://127.0.0.1:1")])
    first = OutputRecord(tmp_path / "noted", made.collection)
    first.check("a" * 64)
    for _ in range(2):
        first.note("a" * 64)
        first.check("a" * 64)
    for refuse in (first.check, first.note):
        with pytest.raises(PlanError, match="would show what single people sent"):
            refuse("b" * 64)
    first.check("a" * 64)
    assert first.path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(InputError, match="cannot write"):
        OutputRecord(tmp_path / "nowhere" / "noted", made.collection).note("a" * 64)
    with pytest.raises(InputError, match="cannot read"):
        OutputRecord(tmp_path, made.collection).check("a" * 64)


def copied(url: str, copy: str) -> None:
    """A database that nobody uses now, put in the place of another one."""
    if url.startswith("sqlite"):
        shutil.copy(url.removeprefix("sqlite:///"), copy.removeprefix("sqlite:///"))
        return
    import psycopg

    name, other = (urlsplit(address).path.removeprefix("/") for address in (url, copy))
    with psycopg.connect(url.replace(f"/{name}?", "/postgres?"), autocommit=True) as server:
        for database in (name, other):
            server.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s",
                (database,),
            )
        server.execute(f"DROP DATABASE IF EXISTS {other}")
        server.execute(f"CREATE DATABASE {other} TEMPLATE {name}")


def fetched(analyst: Analyst, collection: Collection, output: Path) -> FetchedOutput:
    return run_aside(analyst.collecting(collection).fetched(output))[0]


def wait_for_release(shuffler: Running, collection: Collection) -> int:
    """How many people's messages are let go."""
    deadline = time.monotonic() + 60
    while (told := shuffler.operator.status(collection.digest))["state"] != "released":
        assert told["state"] != "aborted"
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return int(told["people"])


@pytest.mark.thorough
@POSTGRES_SLOWLY
def test_what_a_restored_snapshot_lets_go_is_refused(
    tmp_path: Path, new_store_url: Callable[[], str]
) -> None:
    url = new_store_url()
    snapshot = new_store_url()
    key = AnalystKey.new()
    key.save(tmp_path / "analyst.key")
    analyst = Analyst(tmp_path / "analyst.key")
    with running(tmp_path / "one", url) as shuffler:
        collection = shuffler.opened(task(), lasts=12, analyst=key)
        assert (
            post_report(collection.url, [report_of(collection) for _ in range(HONEST)]).statuses
            == [204] * HONEST
        )
        shuffler.end()
        copied(url, snapshot)
        shutil.copytree(shuffler.keys, tmp_path / "snapshot")
        shuffler.start()
        assert post_report(collection.url, [report_of(collection)], 1).statuses == [204]
        assert wait_for_release(shuffler, collection) == HONEST + 1
        first = fetched(analyst, collection, tmp_path / "first.json")
        shuffler.end()

        copied(snapshot, url)
        shutil.rmtree(shuffler.keys)
        shutil.copytree(tmp_path / "snapshot", shuffler.keys)
        shuffler.start()
        assert wait_for_release(shuffler, collection) == HONEST  # (it cannot know better)
        with pytest.raises(PlanError, match="another set of messages") as refused:
            fetched(analyst, collection, tmp_path / "second.json")
        assert first.announced.output[:16] in str(refused.value)
    assert not list(tmp_path.glob("second.json*"))
    assert (
        fetched(analyst, collection, tmp_path / "first.json") == first
    )  # what was fetched first goes on
