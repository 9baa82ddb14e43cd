"""Leases in operation: new certificates, hostile calls, and hostile connections to the hub."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.collection.conftest import NewCollection
from tests.collection.many_hosts import write_identities
from tests.collection.postgres_pair import PostgresPair, free_port, new_database
from tests.collection.running import run_aside

from metricshuffle.collection.edge import edge_intake
from metricshuffle.collection.edge.edge_intake import EdgeIntake
from metricshuffle.collection.edge.opener_pool import HeldLease, OpenerPool
from metricshuffle.collection.hub import lease_office, lease_server
from metricshuffle.collection.hub.lease_office import EXPIRY, LeaseDenied, LeaseOffice
from metricshuffle.collection.hub.lease_server import (
    HubLink,
    HubUnreachable,
    LeaseIdentity,
    leasing,
)
from metricshuffle.collection.keys import KeyFolder
from metricshuffle.collection.shuffler.lifecycle import Shuffler
from metricshuffle.collection.shuffler.log_events import LogEvent
from metricshuffle.collection.shuffler.output_files import do_nothing
from metricshuffle.collection.shuffler.scheduler import CollectionScheduler
from metricshuffle.collection.store.guarded_clock import SteadyTime
from metricshuffle.collection.store.part_store import EdgeStore, HubStore, connect_parts
from metricshuffle.collection.store.records import LeasesHeld, StoreError

pytestmark = pytest.mark.thorough
SOON = 30.0


@pytest.fixture
def office(pair: PostgresPair, tmp_path: Path) -> Iterator[LeaseOffice]:
    """Leases of a hub in this process, on an empty database."""
    new_database(pair)
    store = connect_parts(pair.url, is_hub=True, accept_loss=False, jump=300)
    assert isinstance(store, HubStore)
    yield LeaseOffice(Shuffler(store, KeyFolder.at(tmp_path / "keys"), is_hub=True), store)
    store.close()


@pytest.fixture
def link(office: LeaseOffice, tmp_path: Path) -> Iterator[HubLink]:
    """An edge's end of the calls."""
    folder = tmp_path / "identities"
    authority = write_identities(folder, ["hub", "edge"])
    identity = LeaseIdentity(folder / "hub.pem", authority)
    with leasing(office, ("127.0.0.1", free_port()), identity, do_nothing) as server:
        url = f"https://127.0.0.1:{server.server_port}"
        yield HubLink(url, LeaseIdentity(folder / "edge.pem", authority))


def test_a_lease_goes_on_with_a_new_certificate_of_the_same_subject(
    link: HubLink, office: LeaseOffice, new_collection: NewCollection, tmp_path: Path
) -> None:
    """With its fingerprint as the name of an edge it would expire, and that is public."""
    digest = opened(office, new_collection)
    lines: list[str] = []
    office.log = lines.append
    lease = link.call("/v1/leases", {"digest": digest})["lease"]
    folder = tmp_path / "identities"
    before = (folder / "edge.pem").read_bytes()
    (folder / "edge.pem").write_text("half of a file")
    assert link.call(f"/v1/leases/{lease}/renew", {})["room"] > 0
    write_identities(folder, ["edge", "other"])
    assert (folder / "edge.pem").read_bytes() != before
    assert link.call(f"/v1/leases/{lease}/renew", {})["room"] > 0
    other = HubLink(link.url, LeaseIdentity(folder / "other.pem", folder / "ca.pem"))
    for call in ("keys", "renew"):
        with pytest.raises(LeaseDenied):
            other.call(f"/v1/leases/{lease}/{call}", {})
    other.call(f"/v1/leases/{lease}/return", {})
    assert link.call(f"/v1/leases/{lease}/keys", {})["digest"] == digest
    link.call(f"/v1/leases/{lease}/return", {})
    phases = [line.fields["phase"] for line in lines if isinstance(line, LogEvent)]
    assert phases == ["granted", "returned"]
    [granted, _] = lines
    assert isinstance(granted, LogEvent)
    assert granted.kind == "lease"
    assert granted.fields["edge"] == "commonName=edge"
    assert office.leases.ends_of(digest) == "Keys were leased 1 times: 1 returned."


def port_of(link: HubLink) -> int:
    return int(link.url.rpartition(":")[2])


def status_of(link: HubLink, body: bytes) -> int:
    """Status of a call with any body."""
    context = link.identity.context(is_server=False)
    with (
        socket.create_connection(("127.0.0.1", port_of(link)), timeout=10) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as line,
    ):
        head = f"POST /v1/leases HTTP/1.1\r\nContent-Length: {len(body)}\r\n\r\n"
        line.sendall(head.encode() + body)
        return int(line.recv(65536).split(b" ")[1])


def opened(office: LeaseOffice, new_collection: NewCollection, **terms: Any) -> str:
    """Digest of a collection that the hub has opened."""
    hop = {**office.shuffler.new_party().model_dump(), "url": "http://127.0.0.1:8460"}
    collection = new_collection(hops=[hop], opens=time.time() - 1, **terms)
    office.shuffler.open(collection.served)
    return collection.digest


def test_a_hub_leases_keys_to_so_many_edges(
    link: HubLink,
    office: LeaseOffice,
    new_collection: NewCollection,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lease_office, "MAX_EDGES", 1)
    digest = {"digest": opened(office, new_collection)}
    folder = tmp_path / "identities"
    write_identities(folder, ["other"])
    other = HubLink(link.url, LeaseIdentity(folder / "other.pem", folder / "ca.pem"))
    leases = [link.call("/v1/leases", digest)["lease"] for _ in range(2)]
    with pytest.raises(HubUnreachable, match="1 edges have leases of this hub already"):
        other.call("/v1/leases", digest)
    for lease in leases:
        link.call(f"/v1/leases/{lease}/return", {})
    assert other.call("/v1/leases", digest)["seconds"] == office.seconds


def test_an_edge_has_the_keys_of_so_many_collections(
    pair: PostgresPair,
    link: HubLink,
    office: LeaseOffice,
    new_collection: NewCollection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(edge_intake, "MAX_COLLECTIONS", 1)
    first, second = (opened(office, new_collection, round=number) for number in (1, 2))
    store = connect_parts(pair.url, is_hub=False, accept_loss=False, jump=300)
    assert isinstance(store, EdgeStore)
    lines: list[str] = []

    async def ask() -> None:
        intake = EdgeIntake(store, link, openers=1, log=lines.append)
        try:
            assert await intake.opener(first) is not None
            for _ in range(2):
                with pytest.raises(StoreError, match="keys of 1 collections"):
                    await intake.opener(second)
            assert intake.hub_trouble() == ""
        finally:
            await intake.drain()
            await asyncio.to_thread(intake.close)

    run_aside(ask())
    store.close()
    assert len(lines) == 1
    assert "keys of 1 collections" in lines[0]
    assert [line.ended for line in office.leases.all()] == ["returned"]


def test_leases_expire_although_the_hub_is_started_again_and_again(
    office: LeaseOffice, new_collection: NewCollection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lease counts from the first start after its last renewal; of this machine, as it runs."""
    clock = {"boot": "first", "seconds": 0.0}
    monkeypatch.setattr(lease_office, "steady_clock", lambda: SteadyTime(**clock))  # type: ignore[arg-type]
    digest = opened(office, new_collection)
    renewed, silent = (office.grant(digest, "edge").lease for _ in range(2))

    def started_at(seconds: float) -> LeaseOffice:
        clock["seconds"] = seconds
        return LeaseOffice(office.shuffler, office.store)

    def ends_at(seconds: float) -> list[str]:
        clock["seconds"] = seconds
        again.expire()
        ends = {line.id: line.ended for line in office.leases.all()}
        return [ends[renewed], ends[silent]]

    again = started_at(10)
    again.renew(renewed, "edge")
    for seconds in (20, 50, 80):
        again = started_at(seconds)
    over = EXPIRY * office.seconds
    assert ends_at(10 + over - 0.1) == ["", ""]
    assert ends_at(10 + over + 0.1) == ["", "expired"]
    assert ends_at(20 + over - 0.1) == ["", "expired"]
    clock["boot"] = "second"
    again = started_at(5)
    assert ends_at(5 + over - 0.1) == ["", "expired"]
    assert ends_at(5 + over + 0.1) == ["expired", "expired"]


def test_a_collection_whose_leases_end_soon_is_driven_every_second(office: LeaseOffice) -> None:
    """Other failures are tried again less and less often, up to half a minute."""
    pauses = {}
    for failure in (LeasesHeld("not yet."), StoreError("no.")):

        def advance(_: str, failure: StoreError = failure) -> None:
            raise failure

        scheduler = CollectionScheduler(
            office.store, advance, lambda *_: True, lambda: None, {}, do_nothing
        )
        for _ in range(8):
            scheduler._advance("a collection")
        pauses[type(failure)] = scheduler._next["a collection"][0] - time.monotonic()
    assert pauses[LeasesHeld] <= 1 < 25 < pauses[StoreError]


def test_calls_of_strangers_do_not_reach_the_hub(
    pair: PostgresPair,
    link: HubLink,
    office: LeaseOffice,
    new_collection: NewCollection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They would wait for it one after the other, and the renewal of leases with them."""
    digest = opened(office, new_collection)
    store = connect_parts(pair.url, is_hub=False, accept_loss=False, jump=300)
    assert isinstance(store, EdgeStore)
    calls: list[str] = []

    def count_calls(path: str, content: Any) -> Any:
        calls.append(path)
        raise HubUnreachable("nothing is answered.")

    monkeypatch.setattr(link, "call", count_calls)

    async def ask() -> None:
        intake = EdgeIntake(store, link, openers=1)
        try:
            strangers = (intake.opener(secrets.token_hex(32)) for _ in range(50))
            assert await asyncio.gather(*strangers) == [None] * 50
            assert calls == []
            for _ in range(2):
                many = (intake.opener(digest) for _ in range(50))
                answers = await asyncio.gather(*many, return_exceptions=True)
                assert all(isinstance(answer, StoreError) for answer in answers)
            assert calls == ["/v1/leases"]
        finally:
            await intake.drain()
            await asyncio.to_thread(intake.close)

    asyncio.run(ask())
    store.close()


def test_leases_that_are_over_together_cost_one_restart(
    pair: PostgresPair,
    link: HubLink,
    office: LeaseOffice,
    new_collection: NewCollection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    digests = [opened(office, new_collection, round=number) for number in (1, 2, 3)]
    store = connect_parts(pair.url, is_hub=False, accept_loss=False, jump=300)
    assert isinstance(store, EdgeStore)
    lines: list[str] = []
    starts: list[int] = []
    start = OpenerPool.start

    async def count_starts(pool: OpenerPool, leases: list[HeldLease]) -> None:
        starts.append(len(leases))
        await start(pool, leases)

    async def wait() -> None:
        intake = EdgeIntake(store, link, openers=1, log=lines.append)
        try:
            for digest in digests:
                assert await intake.opener(digest) is not None
            monkeypatch.setattr(OpenerPool, "start", count_starts)
            monkeypatch.setattr(edge_intake, "boot_and_wall", lambda: (float("inf"), 0.0))
            await intake._drop_over()
        finally:
            await intake.drain()
            await asyncio.to_thread(intake.close)

    asyncio.run(wait())
    store.close()
    assert starts == [0]
    assert len([line for line in lines if "is over" in line]) == 3


def test_an_edge_leases_the_keys_of_all_open_collections_before_reports_come(
    pair: PostgresPair,
    link: HubLink,
    office: LeaseOffice,
    new_collection: NewCollection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise leases, and metrics of them, would show that an edge got a report."""
    monkeypatch.setattr(edge_intake, "HUB_PROBE_SECONDS", 0.0)
    digests = {opened(office, new_collection, round=number) for number in (1, 2)}
    office.shuffler.abort(opened(office, new_collection, round=3), "enough")
    store = connect_parts(pair.url, is_hub=False, accept_loss=False, jump=300)
    assert isinstance(store, EdgeStore)

    async def wait() -> None:
        intake = EdgeIntake(store, link, openers=1)
        looking_after = asyncio.ensure_future(intake.forget_closed())
        try:
            async with asyncio.timeout(SOON):
                while not all(intake.known(digest) for digest in digests):
                    await asyncio.sleep(0.05)
            assert intake.hub_trouble() == ""
        finally:
            looking_after.cancel()
            await intake.drain()
            await asyncio.to_thread(intake.close)

    run_aside(wait())
    store.close()
    assert {line.digest for line in office.leases.all()} == digests
    assert len(office.leases.all()) == 2


def test_a_call_that_is_no_object_is_answered(link: HubLink) -> None:
    bodies = (
        b"[]",
        b"1",
        b"null",
        b'"x"',
        b"[" * 4000,
        b"{",
        b"\xff",
        b"{}",
        b'{"digest": ["\\ud800"]}',
    )
    assert {body: status_of(link, body) for body in bodies[:-1]} == dict.fromkeys(bodies[:-1], 400)
    assert status_of(link, bodies[-1]) in (400, 404)
    assert status_of(link, b'{"digest": ""}') == 404


def test_connections_without_a_certificate_keep_no_edge_out(
    link: HubLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that began no handshake are closed when others come, the oldest first."""
    monkeypatch.setattr(lease_server, "MAX_CONNECTIONS_OPEN", 8)
    before = threading.active_count()
    with contextlib.ExitStack() as stack:
        idle = [
            stack.enter_context(socket.create_connection(("127.0.0.1", port_of(link)), timeout=10))
            for _ in range(200)
        ]
        for _ in range(5):
            with pytest.raises(LeaseDenied):
                link.call("/v1/leases", {"digest": ""})
        assert idle[0].recv(1) == b""
        end = time.monotonic() + SOON
        while threading.active_count() > before + 9:
            assert time.monotonic() < end
            time.sleep(0.02)
        with (
            pytest.raises(ssl.SSLError),
            ssl.create_default_context().wrap_socket(
                socket.create_connection(("127.0.0.1", port_of(link)), timeout=10),
                server_hostname="127.0.0.1",
            ),
        ):
            pass
