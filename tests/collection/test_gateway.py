"""Gateway of a shuffler: capsules in, answers of one length out, whatever is inside."""

from __future__ import annotations

import asyncio
import json
import random
import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.collection.conftest import Clock, NewCollection
from tests.collection.local_service import Answer, Service, run
from tests.collection.running import load_task, new_tickets, report_of

from metricshuffle.collection.binary_http import BinaryRequest, BinaryResponse
from metricshuffle.collection.capsules import (
    ADDED_TO_ANSWER,
    ANSWER_TYPE,
    CAPSULE_TYPE,
    GATEWAY_PATH,
    KEY_PROBLEM,
    SHORT_ANSWER_BYTES,
    GatewayKey,
)
from metricshuffle.collection.oblivious_calls import ObliviousCalls
from metricshuffle.collection.sealed_boxes import PrivateKey
from metricshuffle.collection.shuffler.asgi_app import CAPSULE_STEP_SECONDS
from metricshuffle.collection.store.records import StoreError
from metricshuffle.collection.store.sql_store import Store
from metricshuffle.collection.terms import Collection
from metricshuffle.errors import InputError, PlanError

MALFORMED = 2_000
SEED = 20_260_131


@pytest.fixture
def service(store: Store, tmp_path: Path, new_collection: NewCollection) -> Iterator[Service]:
    made = Service(store, tmp_path / "keys", new_collection)
    yield made
    made.intake.close()


async def post_capsule(service: Service, capsule: bytes, kind: str = CAPSULE_TYPE) -> Answer:
    return await service.ask("POST", GATEWAY_PATH, capsule, content_type=kind)


async def exchanged(
    service: Service, calls: ObliviousCalls, request: BinaryRequest, size: int | None = None
) -> tuple[BinaryResponse, int]:
    """Send a request through the gateway; return the response, and the length of its answer."""
    plain = request.encoded(calls.request_size if size is None else size)
    capsule, key = calls.configuration.sealed(plain)
    answer = await post_capsule(service, capsule)
    assert (answer.status, answer.headers["content-type"]) == (200, ANSWER_TYPE)
    assert answer.headers["cache-control"] == "no-store"
    return BinaryResponse.decoded(key.opened(answer.body)), len(answer.body)


# What is in a capsule


def test_a_report_in_a_capsule_is_the_same_report(service: Service) -> None:
    """Any number of capsules with one report, and the report itself, count once."""
    collection = service.opened(3, oblivious=True)
    assert collection.terms.format == "metricshuffle-collection/2"
    calls = ObliviousCalls(collection)
    report = report_of(collection)

    async def sent() -> list[int]:
        codes = [
            (await exchanged(service, calls, calls.reporting(report)))[0].status for _ in range(3)
        ]
        codes.append((await service.post(collection, report)).status)
        codes.append(
            (await exchanged(service, calls, calls.reporting(report_of(collection))))[0].status
        )
        return codes

    assert run(sent) == [204] * 5
    assert service.reports(collection) == 2


def test_the_same_capsule_again_is_answered_again_with_another_answer(service: Service) -> None:
    collection = service.opened(1, oblivious=True)
    calls = ObliviousCalls(collection)
    plain = calls.reporting(report_of(collection)).encoded(calls.request_size)
    capsule, key = calls.configuration.sealed(plain)

    async def sent() -> list[Answer]:
        return [await post_capsule(service, capsule) for _ in range(2)]

    first, second = run(sent)
    assert first.body != second.body
    assert [BinaryResponse.decoded(key.opened(each.body)).status for each in (first, second)] == [
        204,
        204,
    ]
    assert service.reports(collection) == 1


def test_the_collection_is_served_and_nothing_else(service: Service) -> None:
    collection = service.opened(1, oblivious=True)
    other = service.opened(1, oblivious=True, round=2)
    calls = ObliviousCalls(collection)
    path = f"/v1/collections/{collection.digest}"
    host = calls.fetching.authority

    async def asked() -> dict[tuple[str, str], tuple[int, str]]:
        response, size = await exchanged(service, calls, calls.fetching)
        assert response == BinaryResponse(
            200, (("content-type", "application/json"),), collection.served
        )
        assert size % 1024 == ADDED_TO_ANSWER
        answers = {}
        for method, target, authority in (
            ("GET", f"{path}/state", host),
            ("GET", f"{path}/release", host),
            ("GET", "/v1/control/collections", host),
            ("POST", "/v1/control/keys", host),
            ("POST", path, host),
            ("DELETE", f"{path}/reports", host),
            ("GET", f"/v1/collections/{other.digest}", host),
            ("POST", f"/v1/collections/{other.digest}/reports", host),
            ("POST", f"{path}/reports", "other.example"),
            ("POST", f"{path}/reports?", host),
        ):
            request = BinaryRequest(method, "http", authority, target, (), report_of(collection))
            response, size = await exchanged(service, calls, request)
            assert size == SHORT_ANSWER_BYTES + ADDED_TO_ANSWER
            answers[method, target] = (response.status, json.loads(response.content)["error"])
        return answers

    assert set(run(asked).values()) == {
        (404, "only this collection is served through a relay, and takes reports.")
    }
    assert service.reports(collection) == service.reports(other) == 0


def test_every_answer_has_one_length_and_one_outer_status(
    service: Service, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    tickets = new_tickets(5)
    collection = service.opened(2, tickets, oblivious=True, users=1_000_000)
    full = service.opened(2, oblivious=True, task=load_task(2, users=1, honest=1))
    calls, full_calls = ObliviousCalls(collection), ObliviousCalls(full)
    lengths: dict[int, set[int]] = {}
    retries = []

    async def sent(content: bytes, to: ObliviousCalls = calls, size: int | None = None) -> int:
        response, length = await exchanged(service, to, to.reporting(content), size)
        lengths.setdefault(response.status, set()).add(length)
        if response.status in (429, 503):
            retries.append(int(response.header("retry-after")))
        return response.status

    async def all_of_them() -> None:
        report = report_of(collection, tickets[0])
        assert await sent(report) == 204
        assert await sent(report_of(collection, secrets.token_bytes(16))) == 403
        assert await sent(report_of(collection, tickets[0])) == 409
        assert await sent(secrets.token_bytes(len(report))) == 422
        assert await sent(report[:-1]) == 422
        assert await sent(report + b"\0") == 413
        assert await sent(report_of(full), full_calls) == 204
        assert await sent(report_of(full), full_calls) == 429

        async def fails(*_: Any) -> Any:
            raise StoreError("the disk is nearly full.")

        with monkeypatch.context() as patch:
            patch.setattr(service.intake, "put", fails)
            assert await sent(report) == 503
        bad, key = calls.configuration.sealed(b"\x07".ljust(calls.request_size, b"\0"))
        answer = await post_capsule(service, bad)
        response = BinaryResponse.decoded(key.opened(answer.body))
        lengths.setdefault(response.status, set()).add(len(answer.body))
        clock.ahead += 1000
        assert await sent(report_of(collection, tickets[1])) == 410
        assert await sent(report) == 410  # also what is stored

    run(all_of_them)
    assert set(lengths) == {204, 400, 403, 409, 410, 413, 422, 429, 503}
    assert set.union(*lengths.values()) == {SHORT_ANSWER_BYTES + ADDED_TO_ANSWER}
    assert all(5 <= seconds <= 35 for seconds in retries)


def test_answers_come_at_steps_of_time_whatever_they_are(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Storing takes milliseconds that refusing does not: without steps a relay tells which."""
    collection = service.opened(1, oblivious=True)
    calls = ObliviousCalls(collection)
    report = report_of(collection)
    waited: list[float] = []
    put = service.intake.put

    async def slow(opener: Any, report: bytes) -> Any:
        await asyncio.sleep(waited[-1])
        return await put(opener, report)

    monkeypatch.setattr(service.intake, "put", slow)

    async def seconds(content: bytes, wait: float) -> float:
        waited.append(wait)
        begun = time.monotonic()
        await exchanged(service, calls, calls.reporting(content))
        return time.monotonic() - begun

    async def timed() -> list[float]:
        refused = await seconds(report[:9], 0)
        return [refused, *[await seconds(report, wait) for wait in (0, 1.2 * CAPSULE_STEP_SECONDS)]]

    refused, stored, stored_slowly = run(timed)
    assert min(refused, stored) >= CAPSULE_STEP_SECONDS
    assert stored_slowly >= 2 * CAPSULE_STEP_SECONDS


def test_a_sealed_collection_says_so_until_its_keys_are_destroyed(
    service: Service, clock: Clock
) -> None:
    collection = service.opened(1, oblivious=True)
    calls = ObliviousCalls(collection)
    report = report_of(collection)
    plain = calls.reporting(report).encoded(calls.request_size)

    async def sent() -> int:
        return (await exchanged(service, calls, calls.reporting(report)))[0].status

    run(lambda: service.post(collection, report))
    clock.ahead += 1000
    assert run(sent) == 410
    service.shuffler.abort(collection.digest, "enough")
    service.intake._gateways_at = float("-inf")  # it is a second later
    answer = run(lambda: post_capsule(service, calls.configuration.sealed(plain)[0]))
    assert (answer.status, answer.json["type"]) == (400, KEY_PROBLEM)


# What does not open


def malformed(chance: random.Random, collections: list[Collection]) -> tuple[bytes, str]:
    """Capsule that does not open, and the type with which it is sent."""
    collection = chance.choice(collections)
    calls = ObliviousCalls(collection)
    plain = calls.reporting(chance.randbytes(calls.collection.sealing.report_size))
    encoded = plain.encoded(calls.request_size)
    good, _ = calls.configuration.sealed(encoded)
    changed = bytearray(good)

    def changed_bits() -> bytes:
        for _ in range(chance.randrange(1, 4)):
            changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
        return bytes(changed) if changed != good else b""

    kinds: list[Callable[[], bytes]] = [
        changed_bits,
        lambda: chance.randbytes(len(good)),
        lambda: good[:7] + chance.randbytes(len(good) - 7),
        lambda: good[:7] + bytes(32) + good[39:],  # a point of low order
        lambda: good[: chance.randrange(len(good))],
        lambda: good + chance.randbytes(chance.randrange(1, 2000)),
        lambda: GatewayKey(PrivateKey.new().data).configuration.sealed(encoded)[0],
        lambda: calls.configuration.sealed(encoded[:-1])[0],
        lambda: calls.configuration.sealed(bytes(calls.request_size + 1024))[0],
        lambda: calls.configuration.sealed(plain.encoded())[0],
        lambda: bytes(chance.randrange(2**16)),
        lambda: chance.randbytes(1) + good[1:] if chance.random() < 0.99 else b"",
    ]
    capsule = chance.choice(kinds)()
    is_same = capsule == good
    wrong = ("text/plain", "message/ohttp-res", "application/octet-stream", "")
    return capsule, chance.choice(wrong) if is_same or chance.random() < 0.05 else CAPSULE_TYPE


def test_two_thousand_malformed_capsules_get_one_answer(service: Service) -> None:
    collections = [
        service.opened(messages, oblivious=True, round=number + 1)
        for number, messages in enumerate((1, 3, 20))
    ]
    chance = random.Random(SEED)

    async def sent() -> set[Any]:
        return {
            (await post_capsule(service, *malformed(chance, collections))).whole
            for _ in range(MALFORMED)
        }

    [(status, headers, body)] = run(sent)
    assert (status, json.loads(body)["type"]) == (400, KEY_PROBLEM)
    assert dict(headers)[b"content-type"] == b"application/problem+json"
    assert [service.reports(collection) for collection in collections] == [0, 0, 0]
    assert service.said == []


def test_other_methods_and_bodies_of_other_lengths(service: Service) -> None:
    collection = service.opened(1, oblivious=True)
    calls = ObliviousCalls(collection)
    capsule, _ = calls.configuration.sealed(
        calls.reporting(report_of(collection)).encoded(calls.request_size)
    )

    async def sent() -> list[Any]:
        told = {"content_type": CAPSULE_TYPE}
        return [
            await service.ask("GET", GATEWAY_PATH, b"", **told),
            await service.ask("POST", GATEWAY_PATH, capsule[:-9], length=str(len(capsule)), **told),
            await service.ask("POST", GATEWAY_PATH, [capsule, bytes(9)], length="", **told),
            await service.ask("POST", GATEWAY_PATH, [b"", None], length="0", **told),
            await service.ask("POST", GATEWAY_PATH, [capsule] * 3, length="", **told),
            await service.ask("POST", GATEWAY_PATH, [*[capsule] * 2, None], length="", **told),
        ]

    async def sent_in_chunks() -> int:
        parts = [capsule[:9], b"", capsule[9:]]
        told = {"content_type": CAPSULE_TYPE, "transfer_encoding": "chunked", "length": ""}
        return (await service.ask("POST", GATEWAY_PATH, parts, **told)).status

    first, *others = run(sent)
    assert (first.status, first.headers["allow"]) == (405, "POST")
    assert {answer.whole for answer in others} == {others[0].whole}
    assert others[0].status == 400
    assert service.reports(collection) == 0
    assert run(sent_in_chunks) == 200
    assert service.reports(collection) == 1


def test_without_a_gateway_there_are_no_capsules(service: Service) -> None:
    collection = service.opened(1)
    assert collection.terms.gateway == ""
    assert "gateway" not in json.loads(collection.served)
    with pytest.raises(PlanError, match="--oblivious"):
        _ = ObliviousCalls(collection).configuration
    keys = service.keys.of(collection.terms.hops[0].key)
    assert keys is not None
    capsule, _ = keys.gateway.configuration.sealed(bytes(1024))
    assert run(lambda: post_capsule(service, capsule)).status == 400


# Keys


def test_a_collection_with_the_key_of_another_gateway_is_not_opened(service: Service) -> None:
    other = GatewayKey(PrivateKey.new().data).configuration.encoded.hex()
    with pytest.raises(PlanError, match="another key"):
        service.opened(1, gateway=other)


@pytest.mark.parametrize("gateway", ["00", "ab" * 41, "000020" + "AB" * 32 + "000400010001", 7])
def test_a_field_that_is_no_key_is_refused(new_collection: NewCollection, gateway: Any) -> None:
    with pytest.raises(InputError, match="gateway"):
        new_collection(gateway=gateway)


def test_every_collection_has_a_key_of_its_own_with_the_same_id(service: Service) -> None:
    gateways = [service.opened(1, oblivious=True, round=n).terms.gateway for n in (1, 2, 3)]
    assert len({gateway[6:70] for gateway in gateways}) == 3
    assert {gateway[:6] + gateway[70:] for gateway in gateways} == {"000020000400010001"}


def test_the_relay_of_deploy_and_its_page_name_the_path_of_the_gateway() -> None:
    root = Path(__file__).parents[2]
    for name in ("deploy/nginx-relay.conf", "docs/service/relay.md", "docs/spec/oblivious.md"):
        assert GATEWAY_PATH in (root / name).read_text(), name
