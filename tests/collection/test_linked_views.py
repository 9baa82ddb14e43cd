"""Whom parties could link by what they see: a thousand people with tokens, through a relay.

Views are compared by brute force, without times: any eight bytes in common, lengths, and orders.
"""

from __future__ import annotations

import random
import secrets
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from tests.collection.conftest import Clock, NewCollection, roomy_memory, small_task
from tests.collection.local_service import Service, run
from tests.collection.sums import AdderKeys, new_sum, sealed_value

from metricshuffle.collection.admission_tokens import TokenRequest
from metricshuffle.collection.capsules import CAPSULE_TYPE, GATEWAY_PATH
from metricshuffle.collection.client.report_builder import reseal_report, seal_reports
from metricshuffle.collection.issuer.token_issuer import TokenIssuer
from metricshuffle.collection.keys import CollectionKeys, analyst_of
from metricshuffle.collection.oblivious_calls import ObliviousCalls
from metricshuffle.collection.shuffler import asgi_app
from metricshuffle.collection.store.factory import connect_store
from metricshuffle.collection.terms import Collection, Hop

pytestmark = pytest.mark.thorough

PEOPLE = 1_000
AGAIN = 100
"""People whose first answer is lost, so that they send a second capsule."""
REFUSED = 50
"""People whose token is refused by a shuffler that lies, so that they need another one."""
WINDOW = 8
MOST_HITS = 9
"""With 1,000 people a guess hits one on average, and more than nine with a chance of 1e-7."""

View = dict[int, list[bytes]]
"""What a party sees of each person; who that is, it does not see."""


@dataclass
class Views:
    """Everything that each party sees, in the order in which it comes."""

    issuer: View = field(default_factory=dict)
    relay: View = field(default_factory=dict)
    first: View = field(default_factory=dict)
    second: View = field(default_factory=dict)
    analyst: View = field(default_factory=dict)


def windows(view: View) -> tuple[np.ndarray, np.ndarray]:
    """All windows of eight bytes that one person's records alone have, and whose they are."""
    numbers, owners = [], []
    for person, records in view.items():
        for record in records:
            data = np.frombuffer(record, np.uint8)
            if len(data) >= WINDOW:
                slid = np.lib.stride_tricks.sliding_window_view(data, WINDOW)
                numbers.append(np.ascontiguousarray(slid).view(np.uint64).ravel())
                owners.append(np.full(len(numbers[-1]), person))
    number, owner = np.concatenate(numbers), np.concatenate(owners)
    pairs = np.unique(np.stack([number, owner.astype(np.uint64)], axis=1), axis=0)
    _, place, count = np.unique(pairs[:, 0], return_index=True, return_counts=True)
    alone = pairs[place[count == 1]]
    return alone[:, 0], alone[:, 1]


def linked_by_bytes(one: View, other: View) -> int:
    """People whose records in both views have eight bytes in common, as no others have."""
    (left, left_owner), (right, right_owner) = windows(one), windows(other)
    _, mine, theirs = np.intersect1d(left, right, assume_unique=True, return_indices=True)
    return len(set(left_owner[mine][left_owner[mine] == right_owner[theirs]].tolist()))


def linked_by_order(one: View, other: View, arrived: bool) -> int:
    """Most people at the same place in two orders that the records have by themselves.

    `arrived`: whether the other party sees the order of arrival; later ones get sorted boxes.
    """

    def orders(view: View, arrived: bool = True) -> Iterable[list[int]]:
        if arrived:
            yield list(view)
        kinds = min(map(len, view.values()))
        for kind in range(kinds):
            for start in (0, 3, 40, -9):
                yield sorted(view, key=lambda person: view[person][kind][start:])

    return max(
        sum(left == right for left, right in zip(first, second, strict=True))
        for first in orders(one)
        for second in orders(other, arrived)
    )


@pytest.fixture
def service(tmp_path: Path, clock: Clock, new_collection: NewCollection) -> Iterator[Service]:
    with (
        tempfile.TemporaryDirectory(dir=roomy_memory() or tmp_path) as folder,
        closing(connect_store(f"sqlite:///{folder}/x.db", clock)) as store,
    ):
        made = Service(store, Path(folder) / "keys", new_collection)
        yield made
        made.intake.close()


def opened(
    service: Service, new_collection: NewCollection, second: CollectionKeys, issuer: TokenIssuer
) -> Collection:
    """Collection of two hops, of which the service is the first one."""
    party = service.shuffler.new_party()
    hops = [
        Hop(**each.model_dump() | {"url": f"http://127.0.0.1:{port}"})
        for port, each in ((8460, party), (8470, second.party))
    ]
    collection = new_collection(
        small_task(),
        hops=hops,
        analyst=analyst_of(service.analyst.public),
        longer=0,
        admission="tokens",
        issuer=issuer.public.model_dump(),
        gateway=service.shuffler.gateway_of(party),
    )
    assert service.shuffler.open(collection.served, ())
    return collection


def test_a_thousand_people_with_tokens_through_a_relay(
    service: Service,
    new_collection: NewCollection,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(asgi_app, "CAPSULE_STEP_SECONDS", 0.001)
    second = CollectionKeys(secrets.token_bytes(64))
    url = "http://127.0.0.1:8461/token-request"
    tickets = list(map(bytes.fromhex, TokenIssuer.new(tmp_path / "issuer", url, PEOPLE + REFUSED)))
    issuer = TokenIssuer.load(tmp_path / "issuer")
    collection = opened(service, new_collection, second, issuer)
    verifier, calls = collection.token_verifier, ObliviousCalls(collection)
    assert verifier is not None
    keys = service.keys.of(collection.terms.hops[0].key)
    assert keys is not None
    views = Views()

    def token_of(person: int, ticket: bytes) -> bytes:
        asked = TokenRequest.new(verifier)
        answer = issuer.answer(ticket, asked.request)
        views.issuer.setdefault(person, []).extend([ticket, asked.request, answer])
        return asked.token(verifier, answer)

    order = random.sample(range(PEOPLE), PEOPLE)
    tokens = {person: token_of(person, tickets[person]) for person in order}
    inputs = collection.task.query.inputs(
        [person % 6 for person in range(PEOPLE)], collection.task.protocol.step
    )
    names = [person.to_bytes(16, "big") for person in range(PEOPLE)]
    sealed = seal_reports(collection, inputs, names, [tokens[person] for person in range(PEOPLE)])

    async def send(person: int, report: bytes, expected: int) -> None:
        capsule, key = calls.configuration.sealed(
            calls.reporting(report).encoded(calls.request_size)
        )
        answer = await service.ask("POST", GATEWAY_PATH, capsule, content_type=CAPSULE_TYPE)
        views.relay.setdefault(person, []).extend([capsule, answer.body])
        ticket, boxes = collection.sealing.open_report(report, keys.private)
        views.first.setdefault(person, []).extend([ticket, report, *boxes, capsule])
        assert key.opened(answer.body)[1:3] == (0x4000 | expected).to_bytes(2, "big")
        for box in boxes if expected == 204 else ():
            inner = collection.sealing.open_box(box, second.private, 1)
            views.second.setdefault(person, []).append(box)
            views.analyst.setdefault(person, []).append(inner)

    def send_all(people: Sequence[int]) -> None:
        async def send_some(some: Sequence[int]) -> None:
            for person in some:
                await send(person, sealed[person].report, 204)

        for start in range(0, len(people), 100):
            some = people[start : start + 100]
            run(lambda some=some: send_some(some))  # type: ignore[misc]

    send_all(random.sample(range(PEOPLE), PEOPLE))
    assert service.reports(collection) == PEOPLE
    found = {}
    for one, other, is_arriving in (
        ("issuer", "relay", True),
        ("issuer", "first", True),
        ("issuer", "second", False),
        ("issuer", "analyst", False),
        ("relay", "second", False),
        ("relay", "analyst", False),
        ("first", "analyst", False),
    ):
        pair = getattr(views, one), getattr(views, other)
        found[one, other] = linked_by_bytes(*pair), linked_by_order(*pair, is_arriving)
    print(found)
    assert {in_bytes for in_bytes, _ in found.values()} == {0}
    assert max(hits for _, hits in found.values()) <= MOST_HITS
    # The comparison finds the links that there are.
    for one, other in (("relay", "first"), ("first", "second")):
        assert linked_by_bytes(getattr(views, one), getattr(views, other)) == PEOPLE
    assert linked_by_order(views.relay, views.first, arrived=True) == PEOPLE
    lengths = {
        name: {tuple(map(len, records)) for records in getattr(views, name).values()}
        for name in ("issuer", "relay", "first", "second", "analyst")
    }
    assert all(len(each) == 1 for each in lengths.values()), lengths
    assert next(iter(lengths["relay"])) == (calls.capsule_size, 544)
    assert service.said == []

    # A second capsule with the same report, and a second token for the same boxes.
    before = {person: list(records) for person, records in views.relay.items()}
    again = random.sample(range(PEOPLE), AGAIN)
    views.relay.clear()
    send_all(again)
    assert linked_by_bytes({person: before[person] for person in again}, views.relay) == 0
    asked, reports = dict(views.issuer), {}
    views.issuer.clear()
    for person, ticket in zip(again[:REFUSED], tickets[PEOPLE:], strict=True):
        boxes = sealed[person].boxes
        assert boxes is not None
        new = reseal_report(collection, boxes, token_of(person, ticket))
        token, inner = collection.sealing.open_report(new, keys.private)
        reports[person] = [token, new, *inner]
    assert linked_by_bytes(asked, views.issuer) == 0
    first = {person: views.first[person] for person in reports}
    assert linked_by_bytes(first, reports) == REFUSED  # by the boxes, which are the same


def test_adders_see_one_report_under_one_name_and_nothing_of_its_value() -> None:
    """Three adders, a thousand people with tickets and values of 0 to 5, without noise.

    Two adders know that two shares are of one report: its name binds them. What they have has
    nothing to do with the value; all three have it.
    """
    adders = [AdderKeys() for _ in range(3)]
    parties = [each.party(f"https://adder-{place}.example") for place, each in enumerate(adders)]
    collection = new_sum(parties, admission="tickets")
    form, modulus = collection.shares, collection.shares.modulus
    values = np.array([secrets.randbelow(6) for _ in range(PEOPLE)])
    views: list[View] = [{}, {}, {}]
    shares: list[list[int]] = [[], [], []]
    for person, value in enumerate(values.tolist()):
        boxes = sealed_value(collection, value, secrets.token_bytes(16))
        for place, body in enumerate(form.bodies(boxes)):
            part = form.part(body, place)
            ticket, share = form.opened(part, adders[place].collection.private, place)
            views[place][person] = [ticket, share, part.box]
            shares[place].append(int(form.unpacked(share)[0]))
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert linked_by_bytes(views[one], views[other]) == 0  # without the hashes that name it
    table = np.array(shares, dtype=object)
    for places in ((0,), (1,), (2,), (0, 1), (0, 2), (1, 2)):
        left = np.array([int(total) % modulus for total in table[list(places)].sum(axis=0)])
        assert abs(np.corrcoef(left.astype(float), values)[0, 1]) < 0.17  # a chance of 1e-7
        assert (left == values).sum() <= MOST_HITS or modulus < PEOPLE
    assert ((table.sum(axis=0) % modulus) == values).all()
