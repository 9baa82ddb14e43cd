"""Shares of a sum: golden values, every view of K - 1 adders by enumeration, and damage."""

from __future__ import annotations

import hashlib
import itertools
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.collection.sums import AdderKeys, new_sum, residues_of, sealed_value, sum_task
from tests.tables import check_all

from metricshuffle.collection.adder.share_boxes import (
    Residues,
    ShareFormat,
    add_residues,
    adder_ticket,
    split_residues,
)
from metricshuffle.collection.adder.sum_signatures import (
    InvalidList,
    ListHead,
    NameList,
    SumStatement,
    common_names,
)
from metricshuffle.collection.adder.sum_terms import SumCollection, read_any
from metricshuffle.collection.sealed_boxes import NotOpened, PrivateKey
from metricshuffle.collection.signatures import SigningKey
from metricshuffle.collection.terms import Collection
from metricshuffle.errors import InputError, PlanError
from metricshuffle.randomness import Randomness


@dataclass(frozen=True)
class ChosenResidues:
    """Draws that a test chooses."""

    draws: NDArray[np.uint64]

    def uniform_residues(self, count: int, modulus: int) -> Residues:
        assert self.draws.size == count
        assert int(self.draws.max()) < modulus
        return self.draws.ravel()


# Every view


def every_row(modulus: int, width: int) -> NDArray[np.uint64]:
    """All rows of `width` residues."""
    rows = list(itertools.product(range(modulus), repeat=width))
    return np.array(rows, dtype=np.uint64)


def views(values: tuple[int, ...], modulus: int, servers: int) -> NDArray[np.uint64]:
    """Shares (server, draw, person) for every equally likely draw of all people's shares."""
    people = len(values)
    draws = every_row(modulus, people * (servers - 1))
    tables = draws.reshape(len(draws), servers - 1, people).transpose(1, 0, 2)
    residues = np.broadcast_to(np.array(values, dtype=np.uint64), (len(draws), people)).copy()
    return split_residues(residues, modulus, servers, ChosenResidues(np.ascontiguousarray(tables)))


def law(columns: NDArray[np.uint64], modulus: int) -> tuple[bytes, bytes]:
    """The rows that occur, as numbers, and how often each does."""
    codes = np.zeros(len(columns), dtype=np.uint64)
    for column in columns.T:
        codes = codes * np.uint64(modulus) + column
    rows, counts = np.unique(codes, return_counts=True)
    return rows.tobytes(), counts.astype(np.uint64).tobytes()


CASES = list(itertools.product((2, 3, 4, 5), (2, 3), (2, 3)))
LARGE_CASES = [(4, 3, 3), (5, 3, 3)]


def check_views(modulus: int, servers: int, people: int) -> None:
    """Check the laws of the views of all but one adder, without and with all totals."""
    draws = modulus ** (people * (servers - 1))
    uniform = (np.arange(draws, dtype=np.uint64).tobytes(), np.ones(draws, np.uint64).tobytes())
    with_totals: dict[tuple[int, int], tuple[bytes, bytes]] = {}
    for values in itertools.product(range(modulus), repeat=people):
        shares = views(values, modulus, servers)
        assert (shares.sum(axis=0) % modulus == np.array(values)).all()
        totals = shares.sum(axis=2).T % np.uint64(modulus)
        for honest in range(servers):
            others = [place for place in range(servers) if place != honest]
            seen = np.concatenate([shares[place] for place in others], axis=1)
            assert law(seen, modulus) == uniform, "the view depends on values"
            released = law(np.concatenate([seen, totals], axis=1), modulus)
            key = (honest, sum(values) % modulus)
            assert released == with_totals.setdefault(key, released), "more than the sum is seen"
    first = [law_of for (honest, _), law_of in with_totals.items() if honest == 0]
    assert len(set(first)) == modulus, "the totals show the sum"


@check_all("modulus, servers, people", [case for case in CASES if case not in LARGE_CASES])
def test_all_but_one_adder_see_one_law_and_with_all_totals_only_the_sum(
    modulus: int, servers: int, people: int
) -> None:
    check_views(modulus, servers, people)


@pytest.mark.thorough
@check_all("modulus, servers, people", LARGE_CASES)
def test_larger_views(modulus: int, servers: int, people: int) -> None:
    check_views(modulus, servers, people)


def test_a_share_that_is_used_twice_would_be_seen() -> None:
    """The check above can fail: with one mask for two people the view depends on values."""
    modulus = 3

    def reused(values: tuple[int, int]) -> tuple[bytes, bytes]:
        masks = every_row(modulus, 1)
        first = (np.array(values, dtype=np.uint64) + np.uint64(modulus) - masks) % modulus
        return law(first, modulus)

    assert reused((0, 0)) != reused((0, 1))


# Golden values


def test_golden_shares_boxes_and_names() -> None:
    draws = np.array([[7, 40], [5, 36]], dtype=np.uint64)
    shares = split_residues(np.array([3, 41], dtype=np.uint64), 43, 3, ChosenResidues(draws))
    assert shares.tolist() == [[34, 8], [7, 40], [5, 36]]  # 3 - 12 = 34, 41 - 76 = 8 modulo 43
    form = ShareFormat(bytes(range(32)), 70_000, 2, 2, 16)
    assert (form.number_size, form.share_size) == (3, 6)
    assert (form.box_size, form.report_size) == (16 + 6 + 48, 64 + 70)
    packed = form.packed(np.array([69_999, 1], dtype=np.uint64))
    assert packed.hex() == "6f1101010000"
    assert form.unpacked(packed).tolist() == [69_999, 1]
    assert form.info(1).hex() == (
        "6d65747269637368756666" + "6c652d61646465722f3100" + "01" + bytes(range(32)).hex()
    )
    assert form.total_info(1) == b"metricshuffle-total/1\0\1" + bytes(range(32))
    boxes = bytes(70) + bytes([1]) * 70
    first, second = form.bodies(boxes)
    hashes = hashlib.sha256(bytes(70)).digest() + hashlib.sha256(bytes([1]) * 70).digest()
    assert (first, second) == (hashes + bytes(70), hashes + bytes([1]) * 70)
    name = hashlib.sha256(bytes(range(32)) + hashes).hexdigest()
    assert name == "eaf6da0ef65f94ba3a60d293c7ae2a1631fd482490f64fcfc62ceb20655e1464"
    assert form.name(form.part(first, 0)).hex() == form.name(form.part(second, 1)).hex() == name


def test_golden_tickets_of_adders() -> None:
    ticket = bytes(range(16))
    expected = hashlib.sha256(b"metricshuffle adder ticket/1\0" + b"\x01" + ticket).digest()[:16]
    assert adder_ticket(ticket, 1) == expected
    assert expected.hex() == "463cae495a0aff506644dd310a1b234e"


def test_golden_signatures() -> None:
    """Ed25519 is deterministic."""
    key = SigningKey(bytes(range(32)))
    digest = "ab" * 32
    names = [bytes([2]) * 32, bytes([1]) * 32]
    signed = NameList.signed(digest, 1, 0, names, key)
    assert signed.names == bytes([1]) * 32 + bytes([2]) * 32
    hashed = hashlib.sha256(signed.names).digest()
    assert signed.head.message(digest) == (
        b"metricshuffle adder names/1\0" + bytes.fromhex(digest) + b"\0" + b"\2" + bytes(7) + hashed
    )
    assert signed.to_bytes()[:10] == b"\1\0\2" + bytes(7)
    statement = SumStatement.signed(digest, 1, sorted(names), key)
    assert SumStatement.message(digest, hashed.hex(), 2) == (
        b"metricshuffle adder statement/1\0"
        + bytes.fromhex(digest)
        + hashed
        + (2).to_bytes(8, "little")
    )
    assert statement.subject == (hashed.hex(), 2)
    assert statement.signature == (
        "7cd41425ef3ef11913be6cb6a7d96baff4b36fea24340a52675c17c8b28ca3e4"
        "3a1a01e1af386485884aaee4dca000bb62c947b231bed1cc274205c4301f3e09"
    )


def test_a_recorded_box_opens() -> None:
    """Sealed once and written down: later versions open the same bytes."""
    key = PrivateKey(bytes(range(32)))
    form = ShareFormat(bytes(32), 70_000, 2, 2)
    box = bytes.fromhex(
        "cb899e2550064a1a08ec338cdb9f7a24b16feca7c401499caafd789977abff1f"
        "9e016d562dda2f3d042e630267a81c3a21ab1eaf52e0"
    )
    hashes = bytes(32) + hashlib.sha256(box).digest()
    ticket, share = form.opened(form.part(hashes + box, 1), key, 1)
    assert (ticket, form.unpacked(share).tolist()) == (b"", [69_999, 1])
    with pytest.raises(NotOpened):
        form.opened(form.part(hashes + box, 1), key, 0)


# Boxes


@pytest.fixture(scope="module")
def keys() -> list[AdderKeys]:
    return [AdderKeys() for _ in range(3)]


@pytest.fixture(scope="module")
def collection(keys: list[AdderKeys]) -> SumCollection:
    return new_sum([key.party(f"https://adder-{place}.example") for place, key in enumerate(keys)])


def test_all_adders_together_read_the_numbers(
    keys: list[AdderKeys], collection: SumCollection
) -> None:
    form = collection.shares
    bodies = form.bodies(sealed_value(collection, 11))
    total = residues_of(collection, 0)
    names = set()
    for place, (key, body) in enumerate(zip(keys, bodies, strict=True)):
        part = form.part(body, place)
        _, share = form.opened(part, key.collection.private, place)
        total = add_residues(total, form.unpacked(share), form.modulus)
        names.add(form.name(part))
    assert total.tolist() == residues_of(collection, 11).tolist()
    assert len(names) == 1


def test_damage_is_never_opened(keys: list[AdderKeys], collection: SumCollection) -> None:
    form = collection.shares
    first, second, _ = form.bodies(sealed_value(collection, 1))
    others = form.bodies(sealed_value(collection, 1))
    hashes = 3 * 32
    damaged = [
        b"",
        first[:-1],
        first + b"\0",
        bytes(len(first)),
        first[:-1] + bytes([first[-1] ^ 1]),
        bytes([first[0] ^ 1]) + first[1:],
        first[:hashes] + others[0][hashes:],  # another person's box
        second,  # for another adder
    ]
    for body in damaged:
        with pytest.raises(NotOpened):
            form.opened(form.part(body, 0), keys[0].collection.private, 0)
    # Right hashes, but the box of another adder, or numbers that are too large.
    moved = form.bodies(first[hashes:] * 3)[1]
    with pytest.raises(NotOpened):
        form.opened(form.part(moved, 1), keys[1].collection.private, 1)
    large = b"\xff" * form.share_size
    box = collection.keys[0].sealed(large, form.info(0))
    body = form.bodies(box + box + box)[0]
    with pytest.raises(NotOpened):
        form.opened(form.part(body, 0), keys[0].collection.private, 0)


def test_the_largest_modulus_and_random_shares_add_up() -> None:
    modulus = 2**62
    values = np.array([0, 1, modulus - 1], dtype=np.uint64)
    for servers in (2, 3, 4, 5):
        shares = split_residues(values, modulus, servers, Randomness.seeded(servers))
        total = np.zeros(3, dtype=np.uint64)
        for share in shares:
            assert int(share.max()) < modulus
            total = add_residues(total, share, modulus)
        assert total.tolist() == values.tolist()


# Signed lists


def test_lists_and_statements_of_others_are_refused(
    keys: list[AdderKeys], collection: SumCollection
) -> None:
    digest = collection.digest
    names = [bytes([number]) * 32 for number in range(3)]
    signed = NameList.signed(digest, 1, 0, names, keys[1].signing)
    head = ListHead.read(signed.head.to_bytes(), collection)
    assert head == signed.head
    NameList(head, signed.names).check()
    for body in (signed.names[:-32], signed.names[:-1] + b"\x07", signed.names[::-1]):
        with pytest.raises(InvalidList):
            NameList(head, body).check()
    twice = NameList.signed(digest, 1, 0, [names[0], names[0]], keys[1].signing)
    with pytest.raises(InvalidList):
        twice.check()
    data = signed.head.to_bytes()
    changed = [data[:-1], bytes([0]) + data[1:], data[:1] + b"\1" + data[2:], bytes(len(data))]
    changed += [b"\7" + data[1:], data[:1] + b"\5" + data[2:], data[:2] + b"\xff" * 8 + data[10:]]
    for bad in changed:
        with pytest.raises(InvalidList):
            ListHead.read(bad, collection)
    statement = SumStatement.signed(digest, 2, names, keys[2].signing)
    statement.check(collection)
    for wrong_statement in (
        SumStatement(1, *statement.subject, statement.signature),
        SumStatement(7, *statement.subject, statement.signature),
        SumStatement(2, statement.hashed, 2, statement.signature),
        SumStatement(2, statement.hashed, -1, statement.signature),
        SumStatement(2, "zz", 3, statement.signature),
        SumStatement(2, *statement.subject, "00"),
    ):
        with pytest.raises(InvalidList):
            wrong_statement.check(collection)


def test_the_common_names_are_those_that_all_have() -> None:
    first, second, third = (bytes([number]) * 32 for number in range(3))
    assert common_names([first + second, second + third, first + second]) == [second]
    assert common_names([first + second, first + second]) == [first, second]
    assert common_names([b"", first]) == []


# The document


def test_the_document_is_read_back(collection: SumCollection) -> None:
    again = read_any(collection.served, collection.digest)
    assert isinstance(again, SumCollection)
    assert again.terms == collection.terms
    assert again.terms.format == "metricshuffle-sum/1"
    again.verify()
    with pytest.raises(PlanError, match="digests differ"):
        read_any(collection.served, "0" * 64)
    with pytest.raises(PlanError, match="its format is"):
        Collection.read(collection.served)


def test_changed_documents_are_refused(keys: list[AdderKeys], collection: SumCollection) -> None:
    parties = list(collection.terms.adders)
    with pytest.raises(InputError, match="2 to 5 adders"):
        new_sum(parties[:1])
    with pytest.raises(InputError, match="different addresses and keys"):
        new_sum([parties[0], parties[0].model_copy(update={"url": "https://other.example"})])
    with pytest.raises(PlanError, match="plan counts on"):
        new_sum(parties, minimum=1)
    with pytest.raises(PlanError, match="modulus and length"):
        new_sum(parties, modulus="17")
    with pytest.raises(InputError, match="2 to 2\\^62"):
        new_sum(parties, modulus=str(2**63))
    with pytest.raises(InputError, match="ticket and admission"):
        new_sum(parties, ticket=16)
    with pytest.raises(PlanError, match="covers 3"):
        new_sum(parties, round=4)


def test_only_plans_for_an_aggregator_are_summed(keys: list[AdderKeys]) -> None:
    from tests.collection.conftest import small_task

    with pytest.raises(InputError, match="plan with --trusted aggregator"):
        new_sum(
            [key.party(f"https://a{at}.example") for at, key in enumerate(keys)], None, small_task()
        )
    assert sum_task().protocol.trusted == "aggregator"
