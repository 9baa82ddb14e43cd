"""Mixers on other hosts: a hub leases them the storage secret of a sealed collection alone."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.collection.conftest import NewCollection
from tests.collection.many_hosts import end_for_good, hosts_of, write_identities
from tests.collection.mixers import need_objects
from tests.collection.postgres_pair import PostgresPair, free_port, new_database
from tests.collection.running import ROOT, load_task, report_of
from tests.collection.test_many_hosts import (
    output_of_one_process,
    released,
    sent_until_acknowledged,
)

from metricshuffle.collection.hub.lease_office import LeaseDenied, LeaseOffice
from metricshuffle.collection.hub.lease_server import HubLink, LeaseIdentity, leasing
from metricshuffle.collection.keys import AnalystKey, CollectionKeys, KeyFolder
from metricshuffle.collection.mixer.object_store import ObjectStore
from metricshuffle.collection.sealed_boxes import NotOpened
from metricshuffle.collection.shuffler.lifecycle import Shuffler
from metricshuffle.collection.shuffler.output_files import do_nothing
from metricshuffle.collection.store.guarded_clock import steady_clock
from metricshuffle.collection.store.part_store import HubStore, connect_parts
from metricshuffle.collection.store.records import Entry

pytestmark = pytest.mark.thorough
MIXER = "commonName=mixer"


@pytest.fixture
def office(pair: PostgresPair, tmp_path: Path) -> Iterator[LeaseOffice]:
    """Leases of a hub in this process that knows one mixer, on an empty database."""
    new_database(pair)
    store = connect_parts(pair.url, is_hub=True, accept_loss=False, jump=300)
    assert isinstance(store, HubStore)
    shuffler = Shuffler(store, KeyFolder.at(tmp_path / "keys"), is_hub=True)
    yield LeaseOffice(shuffler, store, mixers=[MIXER])
    store.close()


@pytest.fixture
def links(office: LeaseOffice, tmp_path: Path) -> Iterator[dict[str, HubLink]]:
    folder = tmp_path / "identities"
    authority = write_identities(folder, ["hub", "mixer", "edge"])
    hub = LeaseIdentity(folder / "hub.pem", authority)
    with leasing(office, ("127.0.0.1", free_port()), hub, do_nothing) as server:
        url = f"https://127.0.0.1:{server.server_port}"
        yield {
            name: HubLink(url, LeaseIdentity(folder / f"{name}.pem", authority))
            for name in ("mixer", "edge")
        }


def opened(office: LeaseOffice, new_collection: NewCollection, *, lasts: float = 600) -> str:
    """Digest of a collection that takes reports for `lasts` seconds."""
    hop = {**office.shuffler.new_party().model_dump(), "url": "http://127.0.0.1:1"}
    collection = new_collection(hops=[hop], lasts=lasts, longer=0)
    assert office.shuffler.open(collection.served)
    return collection.digest


def sealed(office: LeaseOffice, new_collection: NewCollection) -> str:
    digest = opened(office, new_collection, lasts=3)
    entries = [Entry(bytes([number]) * 16, b"", b"hidden") for number in range(10)]
    office.store.put(digest, entries)
    while office.store.seal(digest) != "sealed":
        time.sleep(0.2)
    return digest


def test_an_open_or_unknown_collection_has_no_lease_for_mixers(
    links: dict[str, HubLink], office: LeaseOffice, new_collection: NewCollection
) -> None:
    for digest in (opened(office, new_collection), "ab" * 32):
        with pytest.raises(LeaseDenied):
            links["mixer"].call("/v1/mixing", {"digest": digest})
    assert office.leases.all() == []


def test_a_lease_of_a_mixer_is_renewed_and_returned_or_expires(
    links: dict[str, HubLink],
    office: LeaseOffice,
    new_collection: NewCollection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mixer, edge = links["mixer"], links["edge"]
    digest = sealed(office, new_collection)
    row = office.store.row(digest)
    assert row is not None
    own = office.shuffler.keys.of(row.key)
    assert own is not None
    with pytest.raises(LeaseDenied):  # it is an edge, and reads nothing that others stored
        edge.call("/v1/mixing", {"digest": digest})
    assert office.leases.all() == []
    lease = str(mixer.call("/v1/mixing", {"digest": digest})["lease"])
    assert [line.edge for line in office.leases.living(digest)] == [MIXER]
    for call in ("mixing-secret", "renew-mixing", "keys", "renew"):
        with pytest.raises(LeaseDenied):
            edge.call(f"/v1/leases/{lease}/{call}", {})
    with pytest.raises(LeaseDenied):  # the keys of an edge are not for mixers
        mixer.call(f"/v1/leases/{lease}/keys", {})
    answer = mixer.call(f"/v1/leases/{lease}/mixing-secret", {})
    assert set(answer) == {"key", "secret"}
    keys = CollectionKeys.of_mixer(bytes.fromhex(str(answer["secret"])))
    tag = bytes(16)
    assert keys.shown(tag, own.hidden(tag, b"boxes")) == b"boxes"
    assert keys.mix_key(digest, "a") == own.mix_key(digest, "a")
    with pytest.raises(NotOpened):  # a recorded report stays closed
        keys.private.opened(own.private.public.sealed(b"a report", b"info"), b"info")
    mixer.call(f"/v1/leases/{lease}/renew-mixing", {})
    mixer.call(f"/v1/leases/{lease}/return", {})
    for call in ("mixing-secret", "renew-mixing"):
        with pytest.raises(LeaseDenied):
            mixer.call(f"/v1/leases/{lease}/{call}", {})
    second = str(mixer.call("/v1/mixing", {"digest": digest})["lease"])
    long_ago = steady_clock().seconds - 1.2 * office.seconds - 1
    monkeypatch.setattr(office, "_renewed", {bytes.fromhex(second): long_ago})
    office.expire()
    assert {line.ended for line in office.leases.of(digest)} == {"returned", "expired"}
    with pytest.raises(LeaseDenied):
        mixer.call(f"/v1/leases/{second}/mixing-secret", {})


def test_a_hub_an_edge_and_two_mixers_give_the_bytes_of_one_process(
    pair: PostgresPair, tmp_path: Path
) -> None:
    need_objects()
    new_database(pair)
    objects = f"file://{tmp_path}/objects"
    hosts = hosts_of(tmp_path, pair.url, 1, lease=10)
    write_identities(tmp_path / "identities", ["mixer0", "mixer1"])
    names = [word for number in range(2) for word in ("--mixer", f"commonName=mixer{number}")]
    hosts.hub.options += ("--objects", objects, "--mixers-from", "1", *names)
    hosts.hub.kill_at = "never"  # its tasks are small
    lease_address = hosts.hub.options[hosts.hub.options.index("--lease-listen") + 1]
    mixers = []
    try:
        for process in (hosts.hub, *hosts.edges):
            process.start()
        for number in range(2):
            words = ["mix", "--store", pair.url, "--objects", objects, "--json"]
            words += ["--hub", f"https://{lease_address}", "--lease-ca"]
            words += [str(tmp_path / "identities" / "ca.pem"), "--identity"]
            words += [str(tmp_path / "identities" / f"mixer{number}.pem")]
            with open(tmp_path / f"mixer{number}.txt", "wb") as errors:
                program = [sys.executable, "-m", "metricshuffle", *words]
                mixers.append(
                    subprocess.Popen(program, cwd=ROOT, stdout=subprocess.PIPE, stderr=errors)
                )
        for mixer in mixers:
            assert mixer.stdout is not None
            assert json.loads(mixer.stdout.readline())["pid"] == mixer.pid
        analyst = AnalystKey.new()
        collection = hosts.hub.opened(load_task(10), lasts=15, analyst=analyst)
        reports = [report_of(collection) for _ in range(400)]
        sent_until_acknowledged(hosts, collection, reports)
        expected = output_of_one_process(tmp_path / "one", hosts.hub.keys, collection, reports)
        answer = released(hosts, collection, analyst)
        assert answer.content == expected
        state = httpx.get(f"{hosts.hub.url}/v1/collections/{collection.digest}/state").json()
        assert "returned" in state["leases"]
        assert "expired" not in state["leases"]
        lines = (hosts.hub.folder / "stderr.txt").read_text()
        assert "was granted to a mixer" in lines
        assert ObjectStore(objects).names() == []
        assert not list(hosts.hub.keys.glob("*.key"))
        for mixer in mixers:
            mixer.send_signal(signal.SIGTERM)
            assert mixer.wait(30) == 128 + signal.SIGTERM
    finally:
        for mixer in mixers:
            mixer.kill()
            mixer.wait()
            if mixer.stdout is not None:
                mixer.stdout.close()
        for process in (hosts.hub, *hosts.edges):
            end_for_good(process)
