"""Issuer and shuffler together, without times: they link requests and tokens no better than 1/n."""

from __future__ import annotations

import random
import secrets
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.collection.conftest import Clock, NewCollection, roomy_memory
from tests.collection.local_service import Service
from tests.collection.running import report_of

from metricshuffle.collection.admission_tokens import TokenRequest
from metricshuffle.collection.blind_signatures import EXPONENT
from metricshuffle.collection.issuer.token_issuer import TokenIssuer, _ticket_name
from metricshuffle.collection.shuffler.ingest import ReportOpener
from metricshuffle.collection.store.factory import connect_store

pytestmark = pytest.mark.thorough

PEOPLE = 1_000
MOST_HITS = 9
"""With 1,000 people a guess hits one on average, and more than nine with a chance of 1e-7."""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Folder in memory, if there is room: every answer and every report is written durably."""
    with tempfile.TemporaryDirectory(dir=roomy_memory() or tmp_path) as made:
        yield Path(made)


def test_a_thousand_people_are_not_linked(
    folder: Path, clock: Clock, new_collection: NewCollection
) -> None:
    """Databases as both keep them, and all numbers that both saw, with the issuer's private key.

    Requests and tokens are compared in every order that they have by themselves: the rows of each
    database, the bytes, the numbers modulo small ones. And each request fits every token: there is
    a factor with which it would have been made, so no other comparison can tell either.
    """
    url = "http://127.0.0.1:8461/token-request"
    tickets = list(map(bytes.fromhex, TokenIssuer.new(folder / "issuer", url, PEOPLE)))
    issuer = TokenIssuer.load(folder / "issuer")
    store = connect_store(f"sqlite:///{folder}/x.db", clock)
    service = Service(store, folder / "keys", new_collection)
    collection = service.opened(1, admission="tokens", issuer=issuer.public.model_dump())
    verifier = collection.token_verifier
    assert verifier is not None
    order = list(range(PEOPLE))
    asked, answers, tokens = {}, {}, {}
    random.shuffle(order)
    for person in order:
        request = TokenRequest.new(verifier)
        answers[person] = issuer.answer(tickets[person], request.request)
        asked[person] = request.request
        tokens[person] = request.token(verifier, answers[person])
    random.shuffle(order)  # the order in which people send
    row = store.row(collection.digest)
    assert row is not None
    keys = service.keys.of(row.key)
    assert keys is not None
    opener = ReportOpener.of(row, keys)
    for person in order:
        store.put(collection.digest, [opener.entry(report_of(collection, tokens[person]))])
    service.intake.close()
    store.close()

    def people_by(database: Path, sql: str, names: dict[bytes, int]) -> list[int]:
        with closing(sqlite3.connect(database)) as opened:
            return [names[bytes(name)] for (name,) in opened.execute(sql)]

    hashed = {_ticket_name(ticket): person for person, ticket in enumerate(tickets)}
    of_issuer = people_by(folder / "issuer" / "issuer.db", "SELECT hash FROM ticket", hashed)
    named = {keys.ticket_hash(token[2:34]): person for person, token in tokens.items()}
    sql = "SELECT ticket FROM admitted_1 ORDER BY place"
    of_shuffler = people_by(folder / "x.db", sql, named)
    assert sorted(of_issuer) == sorted(of_shuffler) == list(range(PEOPLE))
    seen_by_issuer = [
        of_issuer,
        *(sorted(order, key=lambda person: asked[person][place:]) for place in (3, 130, 258)),
        *(sorted(order, key=lambda person: answers[person][place:]) for place in (0, 128, 255)),
    ]
    seen_by_shuffler = [
        of_shuffler,
        *(sorted(order, key=lambda person: tokens[person][place:]) for place in (2, 98, 225, 353)),
    ]

    def hits(first: list[int], second: list[int]) -> int:
        return sum(left == right for left, right in zip(first, second, strict=True))

    assert hits(of_shuffler, order) == PEOPLE  # the comparison finds a link where there is one
    for first in seen_by_issuer:
        for second in seen_by_shuffler:
            assert hits(first, second) <= MOST_HITS
    # Every request fits every token.
    modulus = issuer.signer.public.modulus
    for person in range(PEOPLE):
        for stranger in [person, *(secrets.randbelow(PEOPLE) for _ in range(5))]:
            signature = int.from_bytes(tokens[stranger][98:], "big")
            answer = int.from_bytes(answers[person], "big")
            factor = answer * pow(signature, -1, modulus) % modulus
            encoded = pow(signature, EXPONENT, modulus)
            blinded = encoded * pow(factor, EXPONENT, modulus) % modulus
            assert blinded == int.from_bytes(asked[person][3:], "big")
