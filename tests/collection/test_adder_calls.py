"""Every call of an adder: statuses, malformed input, other adders, the analyst and the operator."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.collection.local_adders import START, Adders, LocalAdder
from tests.collection.local_service import Answer, Service, asks_again
from tests.collection.sums import sealed_value
from tests.tables import check_all

from metricshuffle.collection.adder.adder_routes import AdderApplication
from metricshuffle.collection.adder.share_intake import ShareIntake
from metricshuffle.collection.adder.sum_signatures import HEAD_BYTES, NameList, SumStatement
from metricshuffle.collection.adder.sum_terms import SumCollection
from metricshuffle.collection.client.http_client import SubmissionResult, combined_result
from metricshuffle.collection.keys import AnalystKey
from metricshuffle.collection.shuffler.asgi_app import BODY_SECONDS


class AdderCalls:
    """Calls of one adder without a network."""

    def __init__(self, adder: LocalAdder) -> None:
        self.adder = adder
        self.intake = ShareIntake(adder.store, adder.keys)
        self.application = AdderApplication(adder.service, self.intake, log=adder.said.append)

    async def ask(self, method: str, path: str, body: bytes = b"", **headers: str) -> Answer:
        return await Service.ask(self, method, path, body, **headers)  # type: ignore[arg-type]

    def call(self, method: str, path: str, body: bytes = b"", /, **headers: str) -> Answer:
        with ThreadPoolExecutor(1) as thread:  # a browser of another test may have a loop here
            return thread.submit(asyncio.run, self.ask(method, path, body, **headers)).result()

    def close(self) -> None:
        self.intake.close()


@pytest.fixture
def adders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Adders]:
    group = Adders(tmp_path, 2, monkeypatch)
    yield group
    group.close()


@pytest.fixture
def calls(adders: Adders) -> Iterator[list[AdderCalls]]:
    made = [AdderCalls(adder) for adder in adders.all]
    yield made
    for calls_of in made:
        calls_of.close()


def path_of(collection: SumCollection, call: str) -> str:
    return f"/v1/collections/{collection.digest}/{call}"


def post(calls: list[AdderCalls], collection: SumCollection, boxes: bytes) -> list[int]:
    return [
        calls_of.call("POST", path_of(collection, "reports"), body).status
        for calls_of, body in zip(calls, collection.shares.bodies(boxes), strict=True)
    ]


def test_statuses_of_shares_are_those_of_a_shuffler(
    adders: Adders, calls: list[AdderCalls]
) -> None:
    tickets = [bytes([number]) * 16 for number in range(4)]
    collection = adders.opened(tickets=tickets, maximum=2)
    boxes = sealed_value(collection, 1, ticket=tickets[0])
    assert post(calls, collection, boxes) == [204, 204]
    assert post(calls, collection, boxes) == [204, 204]
    assert post(calls, collection, sealed_value(collection, 2, ticket=tickets[0])) == [409, 409]
    assert post(calls, collection, sealed_value(collection, 2, ticket=b"?" * 16)) == [403, 403]
    assert post(calls, collection, sealed_value(collection, 2, ticket=tickets[1])) == [204, 204]
    full = sealed_value(collection, 3, ticket=tickets[2])
    assert post(calls, collection, full) == [429, 429]
    reports = path_of(collection, "reports")
    body = collection.shares.bodies(full)[0]
    first = calls[0]
    assert first.call("POST", reports, body + b"\0").status == 413
    assert first.call("POST", reports, body[:-1]).status == 422
    assert first.call("POST", reports, body[::-1]).status == 422
    assert first.call("POST", reports, body, length="").status == 411
    assert first.call("GET", reports).status == 405
    assert first.call("POST", f"/v1/collections/{'0' * 64}/reports", body).status == 404
    foreign = first.call("POST", reports, body, origin="https://evil.example")
    assert foreign.status == 403
    adders.wait(200)
    counting = first.call("POST", reports, body)
    assert counting.status == 503
    assert asks_again(counting)
    adders.advance(collection.digest)
    assert first.call("POST", reports, body).status == 410
    assert BODY_SECONDS >= 5


def test_reports_are_accepted_again_in_an_extension(
    adders: Adders, calls: list[AdderCalls]
) -> None:
    collection = adders.opened(longer=100)
    first, second = (sealed_value(collection, value) for value in (1, 2))
    assert post(calls, collection, first) == [204, 204]
    adders.wait(100)
    assert post(calls, collection, second) == [503, 503]
    assert adders.advance(collection.digest) == ["open", "open"]
    assert post(calls, collection, second) == [204, 204]
    adders.wait(100)
    adders.advance(collection.digest)
    assert post(calls, collection, second) == [410, 410]
    assert adders.sum(collection) == [3] * collection.terms.length


def test_a_sum_that_is_not_open_yet(adders: Adders, calls: list[AdderCalls]) -> None:
    collection = adders.opened(start=START + 1000)
    assert post(calls, collection, sealed_value(collection, 1)) == [503, 503]
    state = calls[0].call("GET", path_of(collection, "state")).json
    assert state["phase"] == "not open yet"


def test_public_answers_reveal_no_number_before_the_release(
    adders: Adders, calls: list[AdderCalls]
) -> None:
    collection = adders.opened()
    served = calls[0].call("GET", f"/v1/collections/{collection.digest}")
    assert served.body == collection.served
    before = calls[0].call("GET", path_of(collection, "state")).whole
    for value in (1, 2):
        adders.report(collection, value)
    assert calls[0].call("GET", path_of(collection, "state")).whole == before
    adders.wait(200)
    adders.advance(collection.digest)
    state = calls[0].call("GET", path_of(collection, "state")).json
    assert (state["state"], state["people"]) == ("released", 2)
    assert calls[0].call("GET", "/livez").status == 200
    assert calls[0].call("GET", "/readyz").status == 200


def test_the_total_is_for_the_analyst_alone(adders: Adders, calls: list[AdderCalls]) -> None:
    collection = adders.opened()
    adders.report(collection, 4)
    adders.report(collection, 5)
    release = path_of(collection, "release")
    token = {"authorization": f"Bearer {adders.analyst.token}"}
    assert calls[0].call("GET", release, **token).status == 425
    adders.wait(200)
    adders.advance(collection.digest)
    for wrong in ({}, {"authorization": f"Bearer {AnalystKey.new().token}"}):
        assert calls[0].call("GET", release, **wrong).status == 401
        assert calls[0].call("DELETE", release, **wrong).status == 401
    answers = [calls_of.call("GET", release, **token) for calls_of in calls]
    assert answers[0].json["names"] == answers[1].json["names"]
    assert answers[0].json["signatures"] == answers[1].json["signatures"]
    assert [answer.json["adder"] for answer in answers] == [0, 1]
    tag = answers[0].headers["etag"]
    assert calls[0].call("DELETE", release, **token, if_match='"0"').status == 412
    assert calls[0].call("DELETE", release, **token, if_match=tag).status == 204
    control = f"/v1/control/collections/{collection.digest}"
    operator = {"authorization": f"Bearer {adders.all[0].keys.token}"}
    assert calls[0].call("GET", control, **operator).json["collected"]
    assert calls[0].call("POST", f"{control}/purge", b"{}", **operator).json["state"] == "purged"
    assert calls[0].call("GET", release, **token).status == 410


def test_lists_and_statements_of_others_over_http(adders: Adders, calls: list[AdderCalls]) -> None:
    collection = adders.opened()
    boxes = [adders.report(collection, value) for value in (1, 2)]
    assert boxes
    digest = collection.digest
    signing = adders.all[1].service.signing
    names = [bytes([number]) * 32 for number in (1, 2, 3)]
    signed = NameList.signed(digest, 1, 0, names, signing)
    path = path_of(collection, "names")
    first = calls[0]
    body = signed.to_bytes()
    assert first.call("POST", path, body).status == 204
    assert first.call("POST", path, body).status == 204
    other = NameList.signed(digest, 1, 0, names[:2], signing)
    assert first.call("POST", path, other.to_bytes()).status == 409
    assert first.call("POST", path, body, length="").status == 411
    too_long = HEAD_BYTES + 32 * (collection.terms.maximum + 1)
    assert first.call("POST", path, b"", length=str(too_long)).status == 413
    bad = [b"", body[:9], body[:-1], body + bytes(32), bytes(len(body)), body[:HEAD_BYTES]]
    bad += [body[:HEAD_BYTES] + bytes(96), signed.head.to_bytes() + signed.names[::-1]]
    for changed in bad:
        assert first.call("POST", path, changed).status in (400, 403), changed
    assert first.call("POST", f"/v1/collections/{'1' * 64}/names", body).status == 404
    statement = SumStatement.signed(digest, 1, names, signing)
    content = statement.__dict__
    path = path_of(collection, "statements")
    assert first.call("POST", path, json.dumps(content).encode()).status == 204
    changes: list[dict[str, Any]] = [
        {"place": 0},
        {"place": 9},
        {"people": -1},
        {"people": 10**30},
        {"people": True},
        {"hashed": "é"},
        {"signature": ""},
        {"more": 1},
    ]
    for change in changes:
        answer = first.call("POST", path, json.dumps({**content, **change}).encode())
        assert answer.status in (400, 403), change
    for text in (b"", b"[]", b"{}", b"\xff", b"[" * 1500):
        assert first.call("POST", path, text).status == 400
    another = SumStatement.signed(digest, 1, names[:2], signing)
    assert first.call("POST", path, json.dumps(another.__dict__).encode()).status == 409
    assert first.call("POST", path_of(collection, "names"), body).status == 410


@check_all(
    "statuses, expected",
    [
        (("stored", "stored"), "stored"),
        (("stored", "waiting"), "waiting"),
        (("waiting", "late", "stored"), "late"),
        (("late", "refused"), "refused"),
    ],
)
def test_a_report_is_stored_when_all_adders_have_it(statuses: Sequence[Any], expected: str) -> None:
    assert combined_result([SubmissionResult(each, "") for each in statuses]).status == expected


def test_what_no_retry_changes_comes_first() -> None:
    busy = SubmissionResult("waiting", "busy", 503)
    unknown = SubmissionResult("waiting", "unknown", 404)
    assert combined_result([busy, unknown]) == unknown


def test_random_bytes_get_no_server_error(adders: Adders, calls: list[AdderCalls]) -> None:
    collection = adders.opened()
    draw = random.Random(7)
    operator = {"authorization": f"Bearer {adders.all[0].keys.token}"}
    for _ in range(150):
        body = draw.randbytes(draw.choice((0, 1, 40, HEAD_BYTES, collection.shares.report_size)))
        call = draw.choice(("reports", "names", "statements", "release", "state", "%00", ""))
        method = draw.choice(("GET", "POST", "DELETE", "PUT"))
        digest = draw.choice((collection.digest, "0" * 64, "x", collection.digest.upper()))
        assert calls[0].call(method, f"/v1/collections/{digest}/{call}", body).status < 500
        path = draw.choice(("keys", "collections", "clock/confirm", f"collections/{digest}/abort"))
        if path != "keys":
            assert calls[0].call("POST", f"/v1/control/{path}", body, **operator).status < 500
    assert not [line for line in adders.all[0].said if "bug" in line]


def test_what_the_operator_opens_is_checked(adders: Adders, calls: list[AdderCalls]) -> None:
    collection = adders.opened()
    operator = {"authorization": f"Bearer {adders.all[0].keys.token}"}

    def opened(text: str, **more: Any) -> Answer:
        body = json.dumps({"collection": text, **more}).encode()
        return calls[0].call("POST", "/v1/control/collections", body, **operator)

    served = collection.served.decode()
    assert opened(served).status == 200
    for bad in (
        "",
        "{}",
        served[:-1],
        served.replace('"length":1', '"length":2'),
        served.replace('"round":1', '"round":2', 1).replace('"key":"', '"key":"0', 1),
        served.replace(collection.terms.adders[0].signature, "0" * 64),
        served.replace('"format":"metricshuffle-sum/1"', '"format":"metricshuffle-sum/2"'),
        "\ud800",
    ):
        assert opened(bad).status == 400, bad
    assert opened(served.replace('"round":1', '"round":2', 1), tickets="00" * 16).status == 400
    assert opened(served.replace('"round":1', '"round":2', 1), tickets="0").status == 400
    assert calls[0].call("POST", "/v1/control/collections", b"{}").status == 401
    answer = calls[0].call("POST", "/v1/control/keys", b"{}", **operator)
    assert answer.status == 201
    assert set(answer.json) == {"key", "signature"}
    control = f"/v1/control/collections/{collection.digest}"
    body = json.dumps({"reason": "a test"}).encode()
    aborted = calls[0].call("POST", f"{control}/abort", body, **operator)
    assert aborted.json["state"] == "aborted"
    assert "a test" in aborted.json["reason"]
    assert adders.all[0].keys.of(collection.terms.adders[0].key) is None
    clock = calls[0].call("GET", "/v1/control/clock", **operator)
    assert clock.status == 200
