"""Witness countersigns one set of messages: no second output after a snapshot or a kill."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.collection.rounds import HONEST, task
from tests.collection.running import Running, post_report, report_of, running
from tests.collection.store_contents import asked
from tests.collection.test_snapshots import copied, wait_for_release

from metricshuffle.collection.analyst.analyst import Analyst
from metricshuffle.collection.analyst.download import FetchedOutput
from metricshuffle.collection.keys import AnalystKey, KeyFolder
from metricshuffle.collection.signatures import Claim, SigningKey, is_countersigned, is_signed
from metricshuffle.collection.terms import Collection

pytestmark = pytest.mark.thorough


@dataclass
class Pair:
    """A shuffler and its witness, each with a database of its own."""

    shuffler: Running
    witness: Running
    key: AnalystKey
    key_file: Path

    @property
    def signing(self) -> SigningKey:
        return KeyFolder(self.shuffler.keys).signing

    def opened(self, lasts: float = 6, people: int = HONEST) -> Collection:
        """A collection with so many reports."""
        collection = self.shuffler.opened(task(), lasts=lasts, analyst=self.key)
        assert (
            post_report(collection.url, [report_of(collection) for _ in range(people)]).statuses
            == [204] * people
        )
        return collection

    def status(self, collection: Collection) -> dict[str, Any]:
        return self.shuffler.operator.status(collection.digest)

    def wait_for_trouble(self, collection: Collection, words: str) -> dict[str, Any]:
        """How it stands once its operator is told what keeps it."""
        deadline = time.monotonic() + 60
        while words not in (told := self.status(collection))["trouble"]:
            assert time.monotonic() < deadline, told
            assert told["state"] in ("open", "sealed")
            time.sleep(0.05)
        return told

    def fetched(self, collection: Collection) -> FetchedOutput:
        output = self.key_file.with_name(f"{collection.digest[:8]}.json")
        with ThreadPoolExecutor(
            1
        ) as aside:  # (a browser of another test may have a loop in this thread)
            return aside.submit(
                asyncio.run, Analyst(self.key_file).collecting(collection).fetched(output)
            ).result()[0]

    def witnessed(self) -> list[tuple[Any, ...]]:
        return asked(self.witness.store, "SELECT collection, asker, output FROM witnessed")

    def check_released(self, collection: Collection, people: int) -> None:
        """Released once, with that many people's messages and the named witness's signature."""
        assert wait_for_release(self.shuffler, collection) == people
        told = httpx.get(f"{collection.url}/state").json()
        assert is_countersigned(collection, 0, told["output"], told["countersignature"])
        assert self.witnessed() == [(collection.digest, self.signing.public, told["output"])]
        announced = self.fetched(collection).announced
        assert (announced.people, announced.output, announced.countersignature) == (
            people,
            told["output"],
            told["countersignature"],
        )


@pytest.fixture
def pair(tmp_path: Path, new_store_url: Callable[[], str]) -> Iterator[Pair]:
    key = AnalystKey.new()
    key_file = tmp_path / "analyst.key"
    key.save(key_file)
    (tmp_path / "shuffler").mkdir()
    signing = KeyFolder.at(tmp_path / "shuffler" / "keys").signing
    with running(tmp_path / "witness", new_store_url(), "--witness-for", signing.public) as witness:  # noqa: SIM117 - one needs the other
        with running(tmp_path / "shuffler", new_store_url(), "--witness", witness.url) as shuffler:
            yield Pair(shuffler, witness, key, key_file)


def test_what_a_witness_countersigned_is_let_go(pair: Pair) -> None:
    collection = pair.opened()
    [hop] = collection.terms.hops
    assert hop.witness is not None
    assert (hop.witness.url, hop.witness.asker) == (pair.witness.url, pair.signing.public)
    assert hop.witness.key == KeyFolder(pair.witness.keys).signing.public != pair.signing.public
    pair.check_released(collection, HONEST)
    for key in (hop.witness.key, pair.signing.public):  # what the operators tell each other
        assert key in pair.shuffler.log + pair.witness.log
    assert not asked(pair.shuffler.store, "SELECT * FROM witnessed")


def test_a_restored_snapshot_lets_nothing_else_go(
    pair: Pair, tmp_path: Path, new_store_url: Callable[[], str]
) -> None:
    shuffler = pair.shuffler
    snapshot = new_store_url()
    collection = pair.opened(lasts=12)
    shuffler.end()
    copied(shuffler.store, snapshot)
    shutil.copytree(shuffler.keys, tmp_path / "snapshot")
    shuffler.start()
    assert post_report(collection.url, [report_of(collection)], 1).statuses == [204]
    pair.check_released(collection, HONEST + 1)
    shuffler.end()

    copied(snapshot, shuffler.store)
    shutil.rmtree(shuffler.keys)
    shutil.copytree(tmp_path / "snapshot", shuffler.keys)
    shuffler.start()
    told = pair.wait_for_trouble(collection, "countersigned another set of messages")
    assert (told["state"], told["people"], told["output"]) == ("sealed", None, None)
    assert "restored from an older copy of its database and keys" in told["trouble"]
    assert told["trouble"] in shuffler.log
    headers = {"Authorization": f"Bearer {pair.key.token}"}
    for _ in range(3):  # it is tried again, and stays so
        time.sleep(1)
        answer = httpx.get(f"{collection.url}/release", headers=headers)
        assert (answer.status_code, pair.status(collection)["state"]) == (425, "sealed")
    assert len(pair.witnessed()) == 1
    assert shuffler.operator.abort(collection.digest, "put back")["state"] == "aborted"
    assert httpx.get(f"{collection.url}/release", headers=headers).status_code == 410


def test_a_restored_snapshot_of_the_same_reports_lets_the_same_go(
    pair: Pair, tmp_path: Path, new_store_url: Callable[[], str]
) -> None:
    shuffler = pair.shuffler
    snapshot = new_store_url()
    collection = pair.opened(lasts=8)
    shuffler.end()
    copied(shuffler.store, snapshot)
    shutil.copytree(shuffler.keys, tmp_path / "snapshot")
    shuffler.start()
    pair.check_released(collection, HONEST)
    shuffler.end()
    copied(snapshot, shuffler.store)
    shutil.rmtree(shuffler.keys)
    shutil.copytree(tmp_path / "snapshot", shuffler.keys)
    shuffler.start()
    pair.check_released(collection, HONEST)


@pytest.mark.parametrize("point", ["asking the witness", "countersigned"])
def test_killed_between_asking_and_releasing(pair: Pair, point: str) -> None:
    shuffler = pair.shuffler
    shuffler.end()
    shuffler.kill_at = point
    shuffler.start()
    collection = pair.opened()
    assert shuffler.ended() == -signal.SIGKILL
    assert len(pair.witnessed()) == (point == "countersigned")
    assert (
        shuffler.keys / "output" / f"{collection.digest}.boxes"
    ).exists()  # written down before anybody is asked
    shuffler.kill_at = ""
    shuffler.start()
    pair.check_released(collection, HONEST)


def test_the_witness_is_killed_between_writing_and_answering(pair: Pair) -> None:
    witness = pair.witness
    witness.end()
    witness.kill_at = "witnessed"
    witness.start()
    collection = pair.opened()
    assert witness.ended() == -signal.SIGKILL
    told = pair.wait_for_trouble(collection, "nothing is released before it countersigns")
    assert told["state"] == "sealed"
    assert len(pair.witnessed()) == 1
    witness.kill_at = ""
    witness.start()
    pair.check_released(collection, HONEST)


def test_a_witness_that_is_away_and_comes_back(pair: Pair) -> None:
    collection = pair.opened()
    pair.witness.end()
    told = pair.wait_for_trouble(collection, f"the witness {pair.witness.url} does not answer")
    assert told["state"] == "sealed"
    assert "it is aborted at " in told["trouble"]
    assert told["trouble"].split(" (")[0] in pair.shuffler.log
    with pytest.raises(
        Exception, match="does not answer"
    ):  # (nor is another collection opened without it)
        pair.shuffler.operator.new_hop()
    pair.witness.start()
    pair.check_released(collection, HONEST)
    assert f"Collection {collection.digest[:16]} continues." in pair.shuffler.log


def test_what_a_witness_answers(pair: Pair) -> None:
    """The same to the same question; nothing to whoever did not sign it, and never a second set."""
    [witness_key] = [httpx.get(f"{pair.witness.url}/v1/witness").json()["key"]]
    claim = Claim("c" * 64, pair.signing.public, "a" * 64)

    def answered(claim: Claim, signature: str | None = None, **more: Any) -> httpx.Response:
        content = {"collection": claim.collection, "asker": claim.asker, "output": claim.output}
        signed = pair.signing.signed(claim.request(witness_key)) if signature is None else signature
        return httpx.post(
            f"{pair.witness.url}/v1/witness", json={**content, "signature": signed, **more}
        )

    stranger = SigningKey.new()
    other = Claim(claim.collection, claim.asker, "b" * 64)
    forged = [
        answered(
            Claim("c" * 64, stranger.public, "a" * 64),
            stranger.signed(Claim("c" * 64, stranger.public, "a" * 64).request(witness_key)),
        ),
        answered(claim, stranger.signed(claim.request(witness_key))),
        answered(
            claim, pair.signing.signed(claim.request(stranger.public))
        ),  # meant for another witness
        answered(claim, pair.signing.signed(other.request(witness_key))),  # of another set
        answered(
            claim, pair.signing.signed(claim.countersigned)
        ),  # what a witness signs, not who asks it
        answered(claim, "0" * 128),
    ]
    assert [answer.status_code for answer in forged] == [403] * len(forged)
    assert [
        answered(claim, "f" * 20).status_code,
        answered(claim, more="x" * 2000).status_code,
    ] == [400, 413]
    assert pair.witnessed() == []  # none of it is remembered

    first = answered(claim)
    assert (first.status_code, list(first.json())) == (200, ["countersignature"])
    assert is_signed(witness_key, claim.countersigned, first.json()["countersignature"])
    pair.witness.end(signal.SIGKILL)
    pair.witness.start()
    assert [answered(claim).json() for _ in range(3)] == [first.json()] * 3
    refused = answered(other)
    assert (refused.status_code, "another set of messages" in refused.json()["error"]) == (
        409,
        True,
    )
    assert answered(claim).json() == first.json()
    assert pair.witnessed() == [(claim.collection, claim.asker, claim.output)]
    assert (
        httpx.get(f"{pair.shuffler.url}/v1/witness").status_code == 404
    )  # which is nobody's witness


# A witness that is told what to answer


@dataclass
class LyingWitness:
    """Signs with another key than the one that it names, as long as a test wants."""

    url: str
    key: SigningKey
    lies: bool = True
    asked: int = 0


@contextmanager
def lying_witness() -> Iterator[LyingWitness]:
    class Handler(BaseHTTPRequestHandler):
        def _answer(self, content: dict[str, str]) -> None:
            body = json.dumps(content).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            self._answer({"key": witness.key.public})

        def do_POST(self) -> None:
            told = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            claim = Claim(told["collection"], told["asker"], told["output"])
            witness.asked += 1
            key = SigningKey.new() if witness.lies else witness.key
            self._answer({"countersignature": key.signed(claim.countersigned)})

        def log_message(self, format: str, *words: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    witness = LyingWitness(f"http://127.0.0.1:{server.server_address[1]}", SigningKey.new())
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield witness
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


def test_a_wrong_signature_lets_nothing_go(tmp_path: Path, store_url: str) -> None:
    with (
        lying_witness() as witness,
        running(tmp_path / "shuffler", store_url, "--witness", witness.url) as shuffler,
    ):
        pair = Pair(shuffler, shuffler, AnalystKey.new(), tmp_path / "analyst.key")
        pair.key.save(pair.key_file)
        collection = pair.opened(lasts=4)
        told = pair.wait_for_trouble(
            collection, "by another key than the one that the collection names"
        )
        before = witness.asked
        deadline = time.monotonic() + 30
        while witness.asked < before + 2:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert pair.status(collection)["state"] == told["state"] == "sealed"
        witness.lies = False
        assert wait_for_release(shuffler, collection) == HONEST
        assert pair.fetched(collection).announced.people == HONEST
