"""Admission by tokens: at one shuffler and at two edges at once; tokens that are not valid."""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from tests.collection.conftest import Clock, NewCollection
from tests.collection.issuers import ISSUER_URL, issuer_terms, new_token, signer, verifier_of
from tests.collection.local_service import Service, run
from tests.collection.many_hosts import many_hosts
from tests.collection.postgres_pair import PostgresPair, new_database
from tests.collection.running import load_task, post_report, report_of, running
from tests.collection.store_contents import added
from tests.collection.test_many_hosts import released
from tests.collection.test_parts import leased, of

from metricshuffle.collection.keys import AnalystKey
from metricshuffle.collection.sealed_boxes import ADMISSION_TOKEN_BYTES
from metricshuffle.collection.store.part_store import connect_parts
from metricshuffle.collection.store.records import Verdict
from metricshuffle.collection.store.sql_store import Store
from metricshuffle.collection.terms import Collection, Terms
from metricshuffle.errors import InputError

ANSWER_TO_INVALID = b'{"error":"this token is not valid for this collection."}'


@pytest.fixture
def service(store: Store, tmp_path: Path, new_collection: NewCollection) -> Iterator[Service]:
    made = Service(store, tmp_path / "keys", new_collection)
    yield made
    made.intake.close()


def opened(service: Service, number: int = 0, **terms: Any) -> Collection:
    """Collection of this shuffler that admits people by tokens."""
    return service.opened(10, **{**issuer_terms(number), **terms})


def statuses(service: Service, collection: Collection, reports: Sequence[bytes]) -> list[int]:
    async def answers() -> list[int]:
        posts = (service.post(collection, report) for report in reports)
        return [answer.status for answer in await asyncio.gather(*posts)]

    return run(answers)


def test_a_token_is_for_one_report(service: Service) -> None:
    """Eight reports for each of ten tokens: ten are stored; the same bytes count as stored."""
    collection = opened(service)
    tokens = [new_token(collection) for _ in range(10)]
    reports = [report_of(collection, token) for _ in range(8) for token in tokens]
    assert len(reports[0]) == 48 + 57 * 10 + ADMISSION_TOKEN_BYTES
    first = statuses(service, collection, reports)
    assert (first.count(204), first.count(409)) == (10, 70)
    assert statuses(service, collection, reports) == first
    assert service.reports(collection) == 10
    assert statuses(service, collection, [report_of(collection, new_token(collection))]) == [204]


def test_reports_with_tokens_are_released(service: Service, clock: Clock) -> None:
    """What was stored under a nonce is decrypted, mixed and released."""
    collection = opened(service)
    reports = [report_of(collection, new_token(collection)) for _ in range(6)]
    assert statuses(service, collection, reports) == [204] * 6
    clock.ahead = 101
    while service.shuffler.advance(collection.digest) != "released":
        pass
    row = service.store.row(collection.digest)
    assert row is not None
    assert (row.people, row.left_out) == (6, 0)
    size = collection.sealing.box_size()
    assert service.shuffler.output_size(collection.digest) == 6 * 10 * size


def test_one_nonce_is_spent_once_whatever_its_signature(service: Service) -> None:
    """An issuer can sign a nonce twice, with two salts: the row is that of the nonce."""
    collection = opened(service)
    verifier = verifier_of(collection)
    signed = verifier.token_input(secrets.token_bytes(32))
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric.padding import MGF1, PSS

    def token() -> bytes:
        padding = PSS(MGF1(hashes.SHA384()), 48)
        return signed + signer(0).private.sign(signed, padding, hashes.SHA384())

    first, second = token(), token()
    assert first != second
    reports = [report_of(collection, each) for each in (first, second)]
    assert [statuses(service, collection, [report]) for report in reports] == [[204], [409]]


def test_tokens_of_other_collections_and_issuers_are_not_valid(
    service: Service, new_collection: NewCollection
) -> None:
    """All have one answer, whatever is wrong, and store nothing."""
    collection = opened(service)
    other = opened(service, 1, round=2)
    good = new_token(collection)
    chance = random.Random(3)
    bad = [new_token(other, 1), bytes(354), chance.randbytes(354), good[:-1] + b"\0"]
    changed = bytearray(good)
    for place in (0, 1, 2, 33, 34, 65, 66, 97, 98, 200, 353):
        changed = bytearray(good)
        changed[place] ^= 1
        bad.append(bytes(changed))

    async def answers() -> set[Any]:
        return {(await service.post(collection, report_of(collection, each))).whole for each in bad}

    [(status, _, body)] = run(answers)
    assert (status, body) == (403, ANSWER_TO_INVALID)
    assert service.reports(collection) == 0
    assert service.said == []
    assert statuses(service, collection, [report_of(collection, good)]) == [204]


def test_a_key_of_an_issuer_is_for_one_round(service: Service) -> None:
    collection = opened(service)
    with pytest.raises(InputError, match="a key for this collection alone"):
        opened(service, round=2)
    assert not service.shuffler.open(collection.served)  # the same again
    opened(service, 1, round=2, split=(1, 2))
    opened(service, 1, round=2, split=(2, 2))  # a person has one token, for one part


@pytest.mark.parametrize(
    "changes",
    [
        {"issuer": None},
        {"admission": "open", "ticket": 0},
        {"admission": "tickets", "ticket": 16},
        {"ticket": 16},
        {"format": "metricshuffle-collection/1"},
        {"issuer": {"url": "http://127.0.0.1:8460/tokens", "key": signer(0).public.spki.hex()}},
        {"issuer": {"url": ISSUER_URL, "key": "00" * 342}},
    ],
)
def test_terms_that_contradict_each_other_are_refused(
    new_collection: NewCollection, changes: dict[str, Any]
) -> None:
    content = new_collection(**issuer_terms()).terms.model_dump(mode="json")
    assert content["format"] == "metricshuffle-collection/2"
    with pytest.raises(ValidationError):
        Terms.model_validate({**content, **changes})


@pytest.fixture
def stores(pair: PostgresPair) -> Iterator[Callable[[bool], Any]]:
    new_database(pair)
    made = []

    def new(is_hub: bool) -> Any:
        made.append(connect_parts(pair.url, is_hub=is_hub, accept_loss=False, jump=300))
        return made[-1]

    yield new
    for store in made:
        store.close()


@pytest.mark.thorough
def test_a_token_is_spent_once_at_all_edges(
    stores: Callable[[bool], Any], new_collection: NewCollection
) -> None:
    """Three edges at once, in two orders; also twice in one batch."""
    hub, edges = stores(True), [stores(False) for _ in range(3)]
    digest = added(hub, new_collection(opens=time.time() - 1, **issuer_terms()))
    leases = [leased(hub, digest) for _ in edges]
    nonces = [secrets.token_bytes(16) for _ in range(40)]

    def send(number: int) -> list[Verdict]:
        batch = [of(leases[number], nonce) for nonce in nonces for _ in range(2)]
        if number == 1:
            batch.reverse()
        return list(edges[number].put(digest, batch))

    with ThreadPoolExecutor(3) as threads:
        answers = [verdict for verdicts in threads.map(send, range(3)) for verdict in verdicts]
    assert answers.count(Verdict.STORED) == 40
    assert answers.count(Verdict.SPENT_TICKET) == 200


@pytest.mark.thorough
def test_malformed_tokens_get_one_answer(tmp_path: Path) -> None:
    """Two thousand: 403 each, nothing stored, nothing logged; a good one is stored then."""
    with running(tmp_path / "s", f"sqlite:///{tmp_path}/x.db") as shuffler:
        collection = shuffler.opened(load_task(3), **issuer_terms())
        chance = random.Random(1)
        good = new_token(collection)
        size = len(good)

        def malformed() -> bytes:
            kind = chance.randrange(4)
            if kind == 0:
                return chance.randbytes(size)
            changed = bytearray(good)
            start = chance.randrange(size) if kind == 1 else chance.choice([0, 2, 34, 66, 98])
            end = start + 1 if kind == 1 else chance.choice([start + 2, start + 32, size])
            old = bytes(changed)
            while bytes(changed) == old:
                changed[start : min(end, size)] = chance.randbytes(min(end, size) - start)
            return bytes(changed)

        reports = [report_of(collection, malformed()) for _ in range(2_000)]
        assert Counter(post_report(collection.url, reports, 8).statuses) == {403: 2_000}
        assert post_report(collection.url, [report_of(collection, good)]).statuses == [204]
        assert shuffler.operator.status(collection.digest)["reports"] == 1
        assert shuffler.end() == 0
        assert shuffler.said == [f"metricshuffle: Collection {collection.digest[:16]} was opened."]


@pytest.mark.thorough
def test_two_edges_admit_by_tokens(pair: PostgresPair, tmp_path: Path) -> None:
    """The same tokens at both edges at once: each is spent once, on the report that was first."""
    new_database(pair)
    with many_hosts(tmp_path, pair.url, 2) as hosts:
        analyst = AnalystKey.new()
        collection = hosts.hub.opened(load_task(3), lasts=15, analyst=analyst, **issuer_terms())
        tokens = [new_token(collection) for _ in range(40)]
        of_edge = [[report_of(collection, token) for token in tokens] for _ in hosts.edges]

        def send(number: int, reports: Sequence[bytes]) -> list[int]:
            end = time.monotonic() + 60
            while True:
                answers = post_report(hosts.url(number, collection.digest), reports, 8).statuses
                if 503 not in answers and 0 not in answers:
                    return answers
                assert time.monotonic() < end, hosts.hub.log + hosts.edges[number].log
                time.sleep(0.2)

        with ThreadPoolExecutor(2) as threads:
            first, second = threads.map(send, range(2), of_edge)
        pairs = set(zip(first, second, strict=True))
        assert pairs <= {(204, 409), (409, 204)}, pairs
        assert send(1, of_edge[0]) == first  # the same bytes at the other edge: the same answer
        bad = [report_of(collection, secrets.token_bytes(354)) for _ in range(20)]
        assert set(send(0, bad)) == {403}
        output = released(hosts, collection, analyst)
        assert (output.headers["x-people"], output.headers["x-left-out"]) == ("40", "0")
        assert len(output.content) == 40 * 3 * collection.sealing.box_size()
