"""Python client through a relay: what is stored, what a relay sees, and what it can forge."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.collection.conftest import Clock, NewCollection, small_task
from tests.collection.issuers import ISSUER_URL, issuer_terms, verifier_of
from tests.collection.local_service import Service, run
from tests.collection.postgres_pair import free_port
from tests.collection.relay import Forwarded, RunningRelay, relaying
from tests.collection.running import new_tickets
from typer.testing import CliRunner

from metricshuffle.cli.command_group import app
from metricshuffle.collection.capsules import (
    ADDED_TO_ANSWER,
    CAPSULE_TYPE,
    GATEWAY_PATH,
    SHORT_ANSWER_BYTES,
)
from metricshuffle.collection.client.client import Client
from metricshuffle.collection.client.http_client import NotStored
from metricshuffle.collection.issuer.issuer_server import serving_issuer
from metricshuffle.collection.issuer.token_issuer import TokenIssuer
from metricshuffle.collection.oblivious_calls import ObliviousCalls
from metricshuffle.collection.store.sql_store import Store
from metricshuffle.collection.terms import Collection, canonical
from metricshuffle.errors import InputError, PlanError

ANSWER = SHORT_ANSWER_BYTES + ADDED_TO_ANSWER


@pytest.fixture
def service(store: Store, tmp_path: Path, new_collection: NewCollection) -> Iterator[Service]:
    made = Service(store, tmp_path / "keys", new_collection)
    yield made
    made.intake.close()


@pytest.fixture
def relay(service: Service) -> Iterator[RunningRelay]:
    """Relay in front of a shuffler without a network."""

    def forward(capsule: bytes) -> Forwarded:
        answer = run(lambda: service.ask("POST", GATEWAY_PATH, capsule, content_type=CAPSULE_TYPE))
        return answer.status, answer.headers, answer.body

    with relaying(forward) as started:
        yield started


def saved(collection: Collection, folder: Path) -> Path:
    path = folder / "collection.json"
    collection.save(path)
    return path


def client_of(path: Path, relay: RunningRelay, **options: Any) -> Client:
    return Client(path, **{"relay": relay.url, "patience": 5, **options})


def test_people_report_through_a_relay_that_sees_lengths_only(
    service: Service, relay: RunningRelay, tmp_path: Path
) -> None:
    collection = service.opened(task=small_task(), oblivious=True)
    path = saved(collection, tmp_path)
    with client_of(path, relay) as client:
        assert client.submit_many([1, 2, 3, 4], concurrency=2).complete
        assert client.submit_many([1, 2, 3, 4]).already == 4
        assert client.submit(5, user="fifth").status == "stored"
        with pytest.raises(NotStored, match="Nothing was sent"):
            client.submit(5, user="fifth")
    assert service.reports(collection) == 5
    size = ObliviousCalls(collection).capsule_size
    assert size % 1024 == 55
    assert set(relay.seen) == {(size, 200, ANSWER)}
    assert len({capsule[7:39] for capsule in relay.bytes_seen}) == 5
    assert not [part for part in relay.bytes_seen if bytes.fromhex(collection.digest)[:4] in part]


def test_a_report_waits_while_a_relay_fails_and_is_sent_in_new_capsules(
    service: Service, relay: RunningRelay, tmp_path: Path
) -> None:
    collection = service.opened(task=small_task(), oblivious=True)
    path = saved(collection, tmp_path)
    relay.answers = [502, 0, 204]  # the last looks like an answer of the shuffler
    with client_of(path, relay, patience=60) as client:
        assert client.submit(3).status == "stored"
    assert len({capsule[7:39] for capsule in relay.bytes_seen}) == 4
    assert service.reports(collection) == 1


def test_a_relay_cannot_forge_an_answer(
    service: Service, relay: RunningRelay, tmp_path: Path
) -> None:
    """Whatever it answers, the report waits in the outbox and is stored later."""
    collection = service.opened(task=small_task(), oblivious=True)
    path = saved(collection, tmp_path)
    for status in (204, 400, 403, 409, 410, 413, 422):
        relay.answers = [status]
        with client_of(path, relay, patience=0) as client:
            with pytest.raises(NotStored) as caught:
                client.submit(3)
            assert caught.value.answer.status == "waiting", status
            assert not caught.value.answer.of_ticket
    assert service.reports(collection) == 0
    with client_of(path, relay) as client:
        assert client.resend().stored == 1
    assert service.reports(collection) == 1


def test_inner_answers_are_those_of_the_shuffler(
    service: Service, relay: RunningRelay, tmp_path: Path, clock: Clock
) -> None:
    tickets = new_tickets(4)
    collection = service.opened(task=small_task(), tickets=tickets, oblivious=True)
    path = saved(collection, tmp_path)
    with client_of(path, relay) as client:
        with pytest.raises(NotStored, match="does not know this ticket") as caught:
            client.submit(3, ticket="00" * 16)
        assert caught.value.answer.code == 403
        assert client.submit(3, ticket=tickets[0]).status == "stored"
        with (
            client_of(path, relay, outbox=tmp_path / "other") as second,
            pytest.raises(NotStored, match="spent"),
        ):
            second.submit(3, ticket=tickets[0])
        clock.ahead += 1000
        with pytest.raises(NotStored, match="takes no more reports"):
            client.submit(3, user="third", ticket=tickets[1])
    assert {length for _, _, length in relay.seen} == {ANSWER}


def test_after_the_end_a_report_that_cannot_be_opened_is_late(
    service: Service, relay: RunningRelay, tmp_path: Path
) -> None:
    """The keys are destroyed with the collection: only the clock says then that it is over."""
    collection = service.opened(task=small_task(), oblivious=True)
    ended = json.loads(collection.served) | {
        "opens": "2020-01-01T00:00:00Z",
        "closes": "2020-01-02T00:00:00Z",
        "extends": "2020-01-02T00:00:00Z",
    }
    path = tmp_path / "collection.json"
    path.write_bytes(canonical(ended))
    relay.answers = [400]
    with client_of(path, relay) as client, pytest.raises(NotStored) as caught:
        client.submit(3)
    assert caught.value.answer.status == "late"


def test_what_would_show_the_address_is_refused(service: Service, tmp_path: Path) -> None:
    collection = service.opened(task=small_task(), oblivious=True, url="https://hop.example")
    path = saved(collection, tmp_path)
    relay = "https://relay.example/a"
    with pytest.raises(InputError, match="would show your address"):
        Client(collection.url, tmp_path / "outbox", relay=relay)
    with pytest.raises(InputError, match="belongs to"):
        Client(path, relay=relay, gateway=collection.terms.gateway)
    with pytest.raises(InputError, match="belongs to"):
        Client(collection.url, tmp_path / "outbox", gateway=collection.terms.gateway)
    for own in ("https://hop.example/x", "https://HOP.example:443/x"):
        with pytest.raises(InputError, match="shuffler itself"):
            Client(path, relay=own).submit(3)
    for odd in (
        "relay.example",
        "https://",
        "https://a b/",
        "ftp://x",
        "https://x/#y",
        "https://é",
    ):
        with pytest.raises(InputError, match="a relay must have"):
            Client(path, relay=odd).submit(3)
    plain = saved(service.opened(task=small_task(), round=2), tmp_path)
    with pytest.raises(PlanError, match="--oblivious"):
        Client(plain, relay=relay).submit(3)
    tokens = saved(
        service.opened(task=small_task(), round=3, oblivious=True, **issuer_terms()), tmp_path
    )
    for own in (ISSUER_URL, "http://127.0.0.1:8461/relay"):
        with pytest.raises(InputError, match="gives the tokens of this collection"):
            Client(tokens, relay=own).submit(3, ticket="00" * 16)
    weak = json.loads(collection.served) | {"gateway": "000020" + "00" * 32 + "000400010001"}
    path.write_bytes(canonical(weak))
    with pytest.raises(PlanError, match="invalid public key"):
        Client(path, relay=relay).submit(3)
    assert not (tmp_path / "submissions.outbox").exists()


def test_a_collection_is_fetched_through_the_relay_too(
    service: Service, relay: RunningRelay, tmp_path: Path
) -> None:
    collection = service.opened(task=small_task(), oblivious=True)
    key = collection.terms.gateway
    told: dict[str, Any] = {"outbox": tmp_path / "outbox", "relay": relay.url, "patience": 5}
    with Client(collection.url, gateway=key, **told) as client:
        assert client.submit(3).status == "stored"
    assert [status for _, status, _ in relay.seen] == [200, 200]
    other = service.opened(task=small_task(), round=2, oblivious=True)
    with pytest.raises(PlanError, match="serves no collection"):
        Client(other.url, gateway=key, **told).submit(3, user="x")
    with pytest.raises(PlanError, match="without an answer of the shuffler"):
        Client(other.url, gateway=key[:8] + "77" + key[10:], **told).submit(3, user="x")
    longer = key.replace("000400010001", "00080001000100010003")  # the same key
    with pytest.raises(PlanError, match="names another gateway"):
        Client(collection.url, gateway=longer, **told).submit(3, user="x")
    with pytest.raises(InputError, match="hexadecimal digits"):
        Client(other.url, gateway="key", **told).submit(3, user="x")
    with pytest.raises(PlanError, match="digests differ"):
        Client(collection.url, gateway=key, digest=other.digest, **told).submit(3, user="x")
    own = told | {"relay": collection.terms.hops[0].url}
    with pytest.raises(InputError, match="shuffler itself"):
        Client(collection.url, gateway=key, **own).submit(3, user="x")
    assert service.reports(collection) == 1


def test_the_command_sends_through_a_relay(
    service: Service, relay: RunningRelay, tmp_path: Path
) -> None:
    path = saved(service.opened(task=small_task(), oblivious=True), tmp_path)
    words = ["submit", str(path), "--value", "3", "--relay", relay.url, "--json"]
    shown = CliRunner().invoke(app, words)
    assert (shown.exit_code, json.loads(shown.stdout)["stored"]) == (0, 1)
    assert len(relay.seen) == 1


def test_tokens_are_asked_for_directly_and_spent_through_the_relay(
    service: Service, relay: RunningRelay, tmp_path: Path
) -> None:
    """By command and in Python; a token that was spent is refused inside the capsule."""
    port = free_port()
    tickets = TokenIssuer.new(tmp_path / "issuer", f"http://127.0.0.1:{port}/token-request", 9)
    issuer = TokenIssuer.load(tmp_path / "issuer")
    collection = service.opened(
        task=small_task(), admission="tokens", issuer=issuer.public.model_dump(), oblivious=True
    )
    path = saved(collection, tmp_path)
    posted: list[bytes] = []
    put = service.intake.put

    async def noting(opener: Any, report: bytes) -> Any:
        posted.append(report)
        return await put(opener, report)

    service.intake.put = noting  # type: ignore[method-assign]
    file = tmp_path / "tickets.txt"
    file.write_text(f"{tickets[0]}\n")
    with serving_issuer(issuer, ("127.0.0.1", port)):
        words = ["submit", str(path), "--ticket-file", str(file), "--relay", relay.url]
        asked = CliRunner().invoke(app, [*words, "--ask-token"])
        assert (asked.exit_code, relay.seen, issuer.people) == (0, [], 1), asked.output
        sent = CliRunner().invoke(app, [*words, "--value", "3"])
        assert sent.exit_code == 0, sent.output
        with client_of(path, relay, outbox=tmp_path / "outbox") as client:
            relay.answers = [502, 0]
            assert client.submit_many([1, 2, 3], tickets=tickets[1:4], concurrency=1).complete
        keys = service.keys.of(collection.terms.hops[0].key)
        assert keys is not None
        tokens = [collection.sealing.open_report(each, keys.private)[0] for each in posted]
        nonces = {verifier_of(collection).nonce_of(token) for token in tokens}
        assert (len(nonces), service.reports(collection), issuer.people) == (4, 4, 4)
        with client_of(path, relay, outbox=tmp_path / "third") as client:
            client.ask_token(tickets[4])
            client.outbox.keep_token(client.outbox.user(""), collection.digest, tokens[0])
            with pytest.raises(NotStored, match="spent on another report") as caught:
                client.submit(1)
            assert caught.value.answer.code == 409
            assert client.submit(1, ticket=tickets[5]).status == "stored"
    size = ObliviousCalls(collection).capsule_size
    assert {(length, body) for length, status, body in relay.seen if status == 200} == {
        (size, ANSWER)
    }
    parts = [
        bytes.fromhex(tickets[0]),
        *nonces,
        *(token[98:] for token in tokens),
        bytes.fromhex(collection.digest),
    ]
    assert not [part for part in parts for capsule in relay.bytes_seen if part in capsule]
