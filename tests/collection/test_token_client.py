"""Client of a collection with tokens: what it asks the issuer, and what it stores before."""

from __future__ import annotations

import http.client
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.catalogue.planned_tasks import load_task
from tests.collection.issuers import verifier_of
from tests.collection.postgres_pair import free_port
from tests.collection.stand_in import StandIn, standing_in

from metricshuffle.collection.admission_tokens import TokenRequest, TokenVerifier
from metricshuffle.collection.blind_signatures import BlindSigner
from metricshuffle.collection.client.client import Client
from metricshuffle.collection.client.http_client import NotStored, run_sync
from metricshuffle.collection.client.outbox import Outbox, PendingToken, SealedReport, SettledReport
from metricshuffle.collection.client.report_builder import parse_ticket
from metricshuffle.collection.client.token_requests import TokenAsker
from metricshuffle.collection.issuer.issuer_server import (
    DIRECTORY_PATH,
    IssuerHandler,
    serving_issuer,
)
from metricshuffle.collection.issuer.token_issuer import (
    TicketUnknown,
    TicketUsed,
    TokenIssuer,
    read_issuer,
)
from metricshuffle.collection.terms import Collection
from metricshuffle.errors import InputError

KIND = "sum in shares"


@dataclass
class Asked:
    """An issuer that is served, its tickets, and the requests that it got."""

    issuer: TokenIssuer
    tickets: list[str]
    requests: list[bytes]
    lose: int = 0
    """How many of the next answers are lost on their way."""
    wrong: int = 0
    """How many of the next answers are signatures by another key."""
    on_request: Callable[[], None] = lambda: None
    """Called once a request was signed, before it is answered."""


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Asked]:
    port = free_port()
    tickets = TokenIssuer.new(tmp_path / "issuer", f"http://127.0.0.1:{port}/token-request", 20)
    issuer = TokenIssuer.load(tmp_path / "issuer")
    made = Asked(issuer, tickets, [])
    answer, reply = issuer.answer, IssuerHandler._reply

    def noting(ticket: bytes, request: bytes) -> bytes:
        made.requests.append(request)
        signature = answer(ticket, request)
        made.on_request()
        return signature

    def replying(self: IssuerHandler, status: int, body: bytes, media_type: str) -> None:
        if status == 200 and made.lose:
            made.lose -= 1
            self.close_connection = True
            return
        if status == 200 and made.wrong:
            made.wrong -= 1
            body = body[::-1]
        reply(self, status, body, media_type)

    monkeypatch.setattr(issuer, "answer", noting)
    monkeypatch.setattr(IssuerHandler, "_reply", replying)
    with serving_issuer(issuer, ("127.0.0.1", port)):
        yield made


@pytest.fixture
def shuffler() -> Iterator[StandIn]:
    with standing_in() as stand_in:
        yield stand_in


def opened(shuffler: StandIn, asked: Asked, **terms: Any) -> Collection:
    by_tokens = {"admission": "tokens", "issuer": asked.issuer.public.model_dump()}
    return shuffler.opened(load_task(KIND), **{**by_tokens, **terms})


def client_of(collection: Collection, folder: Path, patience: float = 20.0) -> Client:
    return Client(collection, folder / "out.box", patience=patience, believe=True)


def tokens_of(shuffler: StandIn, collection: Collection) -> list[bytes]:
    """Valid tokens that the shuffler got."""
    tokens = [shuffler.boxes(collection, report)[0] for report in shuffler.reports(collection)]
    for token in tokens:
        verifier_of(collection).nonce_of(token)
    return tokens


def rows(folder: Path, sql: str = "SELECT request, token FROM tokens") -> list[Any]:
    connection = sqlite3.connect(folder / "out.box")
    found = connection.execute(sql).fetchall()
    connection.close()
    return found


def test_a_person_gets_a_token_and_takes_part(
    shuffler: StandIn, asked: Asked, tmp_path: Path
) -> None:
    collection = opened(shuffler, asked)
    with client_of(collection, tmp_path) as client:
        with pytest.raises(InputError, match="asked for by `submit` alone"):
            client.report(7)
        with pytest.raises(InputError, match="needs tickets"):
            client.submit(7, user="ann")
        assert client.submit(7, user="ann", ticket=asked.tickets[0]).status == "stored"
    [token] = tokens_of(shuffler, collection)
    assert asked.issuer.people == len(asked.requests) == 1
    seen = asked.requests[0]
    assert all(part not in token for part in (seen[3:], asked.tickets[0].encode()))
    assert bytes.fromhex(asked.tickets[0]) not in shuffler.received[0]
    assert rows(tmp_path) == []  # forgotten once the report is stored


def test_asking_is_repeated_with_the_same_bytes(
    shuffler: StandIn, asked: Asked, tmp_path: Path
) -> None:
    """Answers are lost: the request was stored before, and the person counts once."""
    collection = opened(shuffler, asked)
    asked.lose = 2
    with client_of(collection, tmp_path) as client:
        assert client.submit(7, ticket=asked.tickets[0]).status == "stored"
    assert len(asked.requests) == 3
    assert len(set(asked.requests)) == asked.issuer.people == 1
    assert len(tokens_of(shuffler, collection)) == 1


def test_a_client_that_ended_asks_again_with_the_same_bytes(
    shuffler: StandIn, asked: Asked, tmp_path: Path
) -> None:
    collection = opened(shuffler, asked)
    asked.lose = 100
    with (
        client_of(collection, tmp_path, patience=0) as client,
        pytest.raises(NotStored) as raised,
    ):
        client.submit(7, ticket=asked.tickets[0])
    assert raised.value.answer.status == "waiting"
    assert [request for request, _ in rows(tmp_path)] == asked.requests
    assert shuffler.received == []
    asked.lose = 0
    with client_of(collection, tmp_path) as client:
        assert client.submit(7, ticket=asked.tickets[0]).status == "stored"
    assert len(set(asked.requests)) == asked.issuer.people == 1


def test_a_token_that_was_asked_for_before_needs_no_ticket(
    shuffler: StandIn, asked: Asked, tmp_path: Path
) -> None:
    collection = opened(shuffler, asked)
    with client_of(collection, tmp_path) as client:
        client.ask_token(asked.tickets[0], user="ann")
        client.ask_token(asked.tickets[0], user="ann")
    assert len(asked.requests) == 1
    assert shuffler.received == []
    [(_, stored)] = rows(tmp_path)
    with client_of(collection, tmp_path) as client:
        assert client.submit(7, user="ann").status == "stored"
    assert tokens_of(shuffler, collection) == [stored]
    assert len(asked.requests) == 1


def test_a_refused_ticket_gives_no_token(shuffler: StandIn, asked: Asked, tmp_path: Path) -> None:
    """Unknown tickets, and those of somebody with another outbox; another ticket helps."""
    collection = opened(shuffler, asked)
    (tmp_path / "other").mkdir()
    with client_of(collection, tmp_path / "other") as other:
        other.ask_token(asked.tickets[0])
    with client_of(collection, tmp_path) as client:
        for ticket, sentence in (
            ("00" * 16, "does not know"),
            (asked.tickets[0], "another outbox"),
        ):
            with pytest.raises(NotStored, match=sentence) as raised:
                client.submit(7, ticket=ticket)
            assert raised.value.answer.status == "refused"
        assert shuffler.received == []
        assert client.submit(7, ticket=asked.tickets[1]).status == "stored"
    assert len(tokens_of(shuffler, collection)) == 1


def test_a_token_that_another_process_used_meanwhile_is_not_asked_for_again(
    shuffler: StandIn, asked: Asked, tmp_path: Path
) -> None:
    """Without a ticket nothing is asked, whatever the outbox held a moment ago."""
    collection = opened(shuffler, asked)
    with closing(Outbox(tmp_path / "out.box")) as outbox:
        who = outbox.user("ann")
        asker = TokenAsker({collection.digest: collection}, outbox, 0.0, 1)
        run_sync(asker.ask({who: collection.digest}, {}))
    assert (asker.tokens, asker.refusals[who].status, asked.requests) == ({}, "waiting", [])


def test_an_answer_that_is_no_signature_is_not_used(
    shuffler: StandIn, asked: Asked, tmp_path: Path
) -> None:
    collection = opened(shuffler, asked)
    asked.wrong = 1
    with client_of(collection, tmp_path) as client:
        with pytest.raises(NotStored, match="not a signature by the key"):
            client.submit(7, ticket=asked.tickets[0])
        assert shuffler.received == []
        assert client.submit(7, ticket=asked.tickets[0]).status == "stored"
    assert len(set(asked.requests)) == 1


def test_many_people_get_a_token_each(shuffler: StandIn, asked: Asked, tmp_path: Path) -> None:
    """One without a valid ticket is told so; the others take part, and again nothing is sent."""
    collection = opened(shuffler, asked)
    values, tickets = [3] * 12, [*asked.tickets[:11], "ab" * 16]
    with client_of(collection, tmp_path) as client:
        done = client.submit_many(values, tickets=tickets)
        assert (done.stored, done.refused, done.people) == (11, 1, 12)
        more = client.submit_many(values, tickets=[*tickets[:11], asked.tickets[11]])
        assert (more.stored, more.already) == (12, 11)
    tokens = tokens_of(shuffler, collection)
    assert len({token[2:34] for token in tokens}) == len(tokens) == asked.issuer.people == 12


def test_a_refused_token_is_replaced_with_the_same_boxes(
    shuffler: StandIn, asked: Asked, tmp_path: Path
) -> None:
    collection = opened(shuffler, asked)
    shuffler.script = [409]
    with client_of(collection, tmp_path) as client:
        with pytest.raises(NotStored, match="was spent on another report"):
            client.submit(7, ticket=asked.tickets[0])
        assert client.submit(9, ticket=asked.tickets[1]).status == "stored"
    first, second = (shuffler.boxes(collection, report) for report in shuffler.received)
    assert first[0] != second[0]
    assert first[1] == second[1]


def test_the_outbox_keeps_the_first_request(tmp_path: Path) -> None:
    """Also of two processes; declining or sending forgets it."""
    path = tmp_path / "out.box"
    (first, second) = (Outbox(path), Outbox(path))
    who, people = first.user("ann"), {first.user("ann"): "c"}
    requests = [PendingToken(who, "c", letter, letter) for letter in (b"a", b"b")]
    assert first.keep_token_requests(requests[:1]) == requests[:1]
    assert second.keep_token_requests(requests[1:]) == requests[:1]
    second.keep_token(who, "c", b"t")
    assert first.pending_tokens(people) == {who: PendingToken(who, "c", b"a", b"a", b"t")}
    first.keep("task", 1, [SealedReport(who, "c", b"report", b"boxes")])
    assert first.pending_tokens(people) != {}
    first.settle("task", 1, [SettledReport(who, "sent", 204)])
    assert first.pending_tokens(people) == {}
    first.keep_token_requests(requests[:1])
    first.decline("task", 2, who, "c")
    assert first.pending_tokens(people) == {}
    first.close()
    second.close()
    with closing(sqlite3.connect(path)) as before, before:  # as an earlier version made it
        before.execute("DROP TABLE tokens")
        for event in ("insert", "update"):
            before.execute(f"DROP TRIGGER token_forgotten_{event}")
    upgraded = Outbox(path)
    assert upgraded.keep_token_requests(requests[:1]) == requests[:1]
    upgraded.decline("task", 3, who, "c")
    assert upgraded.pending_tokens(people) == {}
    upgraded.close()


def test_the_issuer_counts_people_and_stores_no_time(asked: Asked, tmp_path: Path) -> None:
    issuer, key = asked.issuer, asked.issuer.signer.public
    ticket = bytes.fromhex(asked.tickets[0])
    request, other = (b"\0\2" + key.key_id[-1:] + bytes(255) + bytes([n]) for n in (1, 2))
    with ThreadPoolExecutor(8) as threads:
        answers = set(threads.map(lambda _: issuer.answer(ticket, request), range(16)))
    assert len(answers) == issuer.people == 1
    with pytest.raises(TicketUsed):
        issuer.answer(ticket, other)
    with pytest.raises(TicketUnknown):
        issuer.answer(bytes(16), request)
    again = TokenIssuer.load(tmp_path / "issuer")
    assert {again.answer(ticket, request)} == answers
    columns = sqlite3.connect(tmp_path / "issuer" / "issuer.db").execute(
        "SELECT name FROM pragma_table_info('ticket')"
    )
    assert [name for (name,) in columns] == ["hash", "request"]


def test_an_issuer_has_one_key_and_private_files(asked: Asked, tmp_path: Path) -> None:
    folder = tmp_path / "issuer"
    public = read_issuer(folder / "issuer.json")
    assert public == asked.issuer.public
    assert "demonstration" in public.name
    assert (folder / "issuer.pem").stat().st_mode & 0o077 == 0
    with pytest.raises(InputError, match="every collection needs a key of its own"):
        TokenIssuer.new(folder, public.url, 3)
    with pytest.raises(InputError, match="no issuer's key"):
        TokenIssuer.load(tmp_path)


def test_malformed_calls_to_the_issuer_are_refused(asked: Asked) -> None:
    url = urlsplit(asked.issuer.public.url)
    key = asked.issuer.signer.public

    def status(method: str, path: str, body: bytes = b"", **headers: str) -> int:
        connection = http.client.HTTPConnection(url.hostname or "", url.port, timeout=10)
        connection.request(method, path, body, headers)
        code = connection.getresponse().status
        connection.close()
        return code

    request = TokenRequest.new(
        TokenVerifier.of(asked.issuer.public.url, key.spki, bytes(32))
    ).request
    ticket = {"Authorization": f"Bearer {asked.tickets[0]}"}
    assert status("GET", DIRECTORY_PATH) == 200
    assert status("GET", "/") == status("POST", "/", request, **ticket) == 404
    assert status("POST", url.path, request) == 401
    assert status("POST", url.path, request, Authorization="Bearer x") == 401
    assert status("POST", url.path, request, Authorization=f"Bearer {'00' * 16}") == 403
    for bad in (b"", request[:-1], request + b"\0", b"\1" + request[1:], b"\0\2\0" + b"\xff" * 256):
        assert status("POST", url.path, bad, **ticket) == 422
    other = BlindSigner.new().public
    if other.key_id[-1] != key.key_id[-1]:
        foreign = TokenRequest.new(TokenVerifier.of(asked.issuer.public.url, other.spki, bytes(32)))
        assert status("POST", url.path, foreign.request, **ticket) == 422
    assert asked.issuer.people == 0
    assert status("POST", url.path, request, **ticket) == 200
    assert status("OPTIONS", url.path) == 204


@pytest.mark.thorough
def test_a_client_that_is_killed_while_it_asks_has_one_token(
    shuffler: StandIn, asked: Asked, tmp_path: Path
) -> None:
    """The process dies when the issuer has signed: the next one asks with the same bytes."""
    collection = opened(shuffler, asked)
    collection.save(tmp_path / "collection.json")
    (tmp_path / "ticket").write_text(asked.tickets[0])
    words = ["submit", str(tmp_path / "collection.json"), "--believe", "--value", "7"]
    words += ["--outbox", str(tmp_path / "out.box"), "--ticket-file", str(tmp_path / "ticket")]
    command = [sys.executable, "-m", "metricshuffle", *words]
    processes: list[subprocess.Popen[bytes]] = []
    asked.on_request = lambda: processes[-1].kill()
    for _ in range(3):
        processes.append(subprocess.Popen(command, stderr=subprocess.DEVNULL))
        assert processes[-1].wait(60) == -signal.SIGKILL
    assert shuffler.received == []
    asked.on_request = lambda: None
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
    assert len(asked.requests) == 4
    assert len(set(asked.requests)) == asked.issuer.people == 1
    assert len(tokens_of(shuffler, collection)) == 1


def test_tokens_are_typed_where_a_shuffler_is_checked() -> None:
    token = bytes(range(256)) + bytes(98)
    assert (
        parse_ticket(f" {token.hex()}\n", 354) == parse_ticket(token.hex().encode(), 354) == token
    )
    for wrong in ("ab" * 16, token.hex()[:-2], "x" * 708):
        with pytest.raises(InputError, match="a token is 708 hexadecimal digits"):
            parse_ticket(wrong, 354)
