# ruff: noqa: S608 - names of ours
"""Database users of edges and of the hub, neither of whom is a superuser."""

from __future__ import annotations

import secrets
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

import psycopg
import pytest
from tests.collection.conftest import NewCollection
from tests.collection.postgres_pair import PostgresPair, new_database
from tests.collection.store_contents import added, entry, fresh_tickets

from metricshuffle.collection.hub.lease_list import LeaseList
from metricshuffle.collection.store.factory import migrate_database
from metricshuffle.collection.store.part_store import EdgeStore, HubStore, connect_parts
from metricshuffle.collection.store.records import Entry, StoreError, Verdict
from metricshuffle.errors import InputError

DEPLOY = Path(__file__).parents[2] / "deploy"
pytestmark = pytest.mark.thorough


class RoleStores(NamedTuple):
    """Stores of a hub and of an edge, each with a database user of its own."""

    hub: HubStore
    edge: EdgeStore


def make_users(pair: PostgresPair) -> None:
    new_database(pair)
    for user in ("hub", "edge", "stranger"):
        pair.ask(
            f"DO $$ BEGIN CREATE ROLE {user} LOGIN; EXCEPTION WHEN duplicate_object THEN END $$"
        )
    pair.ask("GRANT CREATE ON DATABASE postgres TO hub")
    pair.ask("GRANT edge TO hub")


@pytest.fixture
def stores(pair: PostgresPair, tmp_path: Path) -> Iterator[RoleStores]:
    make_users(pair)
    migrate_database(pair.url_of("hub"), "edge")
    hub = connect_parts(
        pair.url_of("hub"),
        is_hub=True,
        accept_loss=False,
        jump=300,
        record=LeaseList.at(tmp_path, create=True),
    )
    edge = connect_parts(pair.url_of("edge"), is_hub=False, accept_loss=False, jump=300)
    assert isinstance(hub, HubStore)
    assert isinstance(edge, EdgeStore)
    yield RoleStores(hub, edge)
    hub.close()
    edge.close()


def leased(hub: HubStore, digest: str) -> bytes:
    lease = secrets.token_bytes(16)
    assert hub.add_part(digest, lease) is not None
    return lease


def with_lease(lease: bytes, ticket: bytes = b"") -> Entry:
    made = entry(ticket)
    return Entry(made.tag, ticket, made.hidden, lease)


def test_an_edge_adds_reports_and_can_neither_read_nor_close_them(
    pair: PostgresPair, stores: RoleStores, new_collection: NewCollection
) -> None:
    """Until its collection is mixed by a hub that is no superuser either."""
    hub, edge = stores
    tickets = fresh_tickets(4)
    ticketed = new_collection(opens=time.time() - 1, round=2, admission="tickets")
    other = added(hub, ticketed, tickets)
    digest = added(hub, new_collection(opens=time.time() - 1, lasts=4, longer=0))
    lease, ticket_lease = leased(hub, digest), leased(hub, other)
    reports = [with_lease(lease) for _ in range(4)]
    assert edge.put(digest, reports) == [Verdict.STORED] * 4
    assert edge.put(digest, reports[:2]) == [Verdict.SAME] * 2
    spent = with_lease(ticket_lease, tickets[0])
    assert edge.put(other, [spent]) == [Verdict.STORED]
    edge.check_writing()
    edge.now()
    numbers = dict(pair.ask("SELECT digest, id FROM collection"))
    reported, admitted = f"report_{numbers[digest]}", f"admitted_{numbers[digest]}"
    ticketed_table = f"admitted_{numbers[other]}"
    forbidden = [
        f"SELECT name FROM {reported}",
        f"DELETE FROM {reported}",
        f"DELETE FROM {admitted}",
        f"UPDATE {admitted} SET tag = NULL",
        f"INSERT INTO {ticketed_table} VALUES (gen_random_uuid())",
        f"DROP TABLE {reported}",
        "UPDATE part SET closed = true",
        "UPDATE part SET room = room + 1",
        "UPDATE collection SET until = until",
        "INSERT INTO part SELECT gen_random_uuid(), collection, opens, until, room FROM part",
        "UPDATE history SET step = 0",
        "DELETE FROM anchor",
        "SELECT bytes FROM output",
        "SELECT output FROM witnessed",
    ]
    options = "-c search_path=metricshuffle"
    with psycopg.connect(pair.url_of("edge"), autocommit=True, options=options) as connection:
        for statement in forbidden:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(statement.encode())
        with pytest.raises(psycopg.errors.IntegrityConstraintViolation, match="spent ticket"):
            connection.execute(f"UPDATE {ticketed_table} SET tag = NULL".encode())
    while hub.seal(digest) != "sealed":
        time.sleep(0.1)
    assert len(list(hub.hidden(digest))) == 4
    assert hub.move(digest, "sealed", "shuffled", people=4, left_out=0, output="1" * 64)
    assert hub.history_trouble() == ""


def test_a_hub_ends_a_hung_edge_whatever_its_name(
    pair: PostgresPair, stores: RoleStores, new_collection: NewCollection
) -> None:
    hub, _ = stores
    digest = added(hub, new_collection(opens=time.time() - 1, lasts=2, longer=0))
    lease = leased(hub, digest)
    with psycopg.connect(
        pair.url_of("edge"), application_name="psql", options="-c search_path=metricshuffle"
    ) as hung:
        hung.execute("UPDATE part SET reports = reports WHERE lease = %s", (UUID(bytes=lease),))
        begun = time.monotonic()
        state = "open"
        while state == "open":
            assert time.monotonic() - begun < 15
            try:
                state = hub.seal(digest)
            except StoreError:
                time.sleep(0.1)
        assert state == "aborted"  # too few
        hung.close()


def test_users_who_do_not_fit_are_refused(pair: PostgresPair) -> None:
    make_users(pair)
    for role, reason in (
        ("nobody", "has no user"),
        ("hub", "may do everything"),
        ("postgres", "may do everything"),
    ):
        with pytest.raises(InputError, match=reason):
            migrate_database(pair.url_of("hub"), role)
    with pytest.raises(StoreError, match="member first"):
        migrate_database(pair.url_of("hub"), "stranger")
    migrate_database(pair.url_of("hub"))
    with pytest.raises(StoreError, match="migrate --edge-role"):
        connect_parts(pair.url_of("edge"), is_hub=False, accept_loss=False, jump=300)


def test_the_user_of_the_deployment_gets_its_password_and_its_rights(pair: PostgresPair) -> None:
    """The file that the image of PostgreSQL runs, by psql as there."""
    make_users(pair)
    pair.ask("DROP OWNED BY edge")
    pair.ask("DROP ROLE edge")
    with tempfile.TemporaryDirectory(dir=pair.folder.parent) as name:
        folder = Path(name)
        folder.chmod(0o755)
        secret, script = folder / "edge-password", folder / "edge-role.sql"
        secret.write_text("it's \\secret\n")
        sql = (DEPLOY / script.name).read_text()
        script.write_text(sql.replace("/run/secrets/edge-password", str(secret)))
        pair.program("psql", "-v", "ON_ERROR_STOP=1", "-X", "-f", str(script), pair.primary_url)
    [(password, may_do)] = pair.ask(
        "SELECT rolpassword, rolsuper OR rolcreaterole OR rolcreatedb OR rolreplication "
        "FROM pg_authid WHERE rolname = 'edge'"
    )
    assert password.startswith("SCRAM-SHA-256$")
    assert not may_do
    migrate_database(pair.primary_url, "edge")
    edge = connect_parts(pair.url_of("edge"), is_hub=False, accept_loss=False, jump=300)
    edge.now()
    edge.close()
