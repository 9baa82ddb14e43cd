"""Sealed boxes open for their recipient only, and any flipped bit gives the same error."""

from __future__ import annotations

import secrets

import pytest
from tests.tables import check_all

from metricshuffle.collection.sealed_boxes import BoxFormat, NotOpened, PrivateKey, PublicKey
from metricshuffle.errors import PlanError

PAYLOADS = [bytes([0]) + value.to_bytes(8, "little") for value in (1, 5, 2**61)]


def sealing(**changes: object) -> BoxFormat:
    fields = {"digest": b"d" * 32, "payload": 9, "messages": 3, "ticket": 16, "hops": 1}
    return BoxFormat(**{**fields, **changes})  # type: ignore[arg-type]


def test_lengths_are_those_of_the_format() -> None:
    for messages in (1, 5, 10, 20, 200):
        assert sealing(messages=messages).report_size == 64 + 57 * messages
        assert sealing(messages=messages, ticket=0).report_size == 48 + 57 * messages
        assert sealing(messages=messages, hops=3).report_size == 64 + (57 + 2 * 48) * messages


@check_all("hops", [1, 2, 3])
def test_every_hop_opens_its_layer_and_the_analyst_the_last(hops: int) -> None:
    form = sealing(hops=hops)
    ticket = secrets.token_bytes(16)
    keys = [PrivateKey.new() for _ in range(hops + 1)]
    report = form.report(PAYLOADS, [key.public for key in keys], ticket)
    assert len(report) == form.report_size
    handed, boxes = form.open_report(report, keys[-1])
    assert handed == ticket
    for layer in range(hops - 1, 0, -1):
        assert all(len(box) == form.box_size(layer) for box in boxes)
        boxes = [form.open_box(box, keys[layer], layer) for box in boxes]
    assert [form.open_box(box, keys[0]) for box in boxes] == PAYLOADS


def test_nothing_is_shared_between_boxes() -> None:
    form = sealing()
    first = PrivateKey.new()
    analyst = PrivateKey.new()
    boxes = [
        box
        for _ in range(20)
        for box in form.open_report(
            form.report(PAYLOADS, [analyst.public, first.public], b"t" * 16), first
        )[1]
    ]
    for start in (0, 16, 32, 41):
        assert len({box[start : start + 16] for box in boxes}) == len(boxes)


def test_a_flipped_bit_anywhere_is_the_same_refusal() -> None:
    form = sealing(messages=1)
    first = PrivateKey.new()
    analyst = PrivateKey.new()
    report = form.report(PAYLOADS[:1], [analyst.public, first.public], b"t" * 16)
    words = set()
    for bit in range(8 * len(report)):
        broken = bytearray(report)
        broken[bit // 8] ^= 1 << bit % 8
        with pytest.raises(NotOpened) as refusal:
            form.open_report(bytes(broken), first)
        words.add(str(refusal.value))
    assert len(words) == 1
    for wrong in (b"", report[:-1], report + b"\0", bytes(len(report))):
        with pytest.raises(NotOpened):
            form.open_report(wrong, first)


def test_a_box_of_another_collection_layer_or_key_does_not_open() -> None:
    form = sealing()
    first = PrivateKey.new()
    analyst = PrivateKey.new()
    report = form.report(PAYLOADS, [analyst.public, first.public], b"t" * 16)
    for other, key in (
        (sealing(digest=b"e" * 32), first),
        (form, analyst),
        (sealing(hops=1, messages=2), first),
    ):
        with pytest.raises(NotOpened):
            other.open_report(report, key)
    box = form.open_report(report, first)[1][0]
    with pytest.raises(NotOpened):
        sealing(digest=b"e" * 32).open_box(box, analyst)
    with pytest.raises(NotOpened):
        form.open_box(box, first)
    with pytest.raises(NotOpened):
        analyst.opened(box, form.info(1))


def test_every_layer_inside_of_a_report_is_bound_to_its_pile() -> None:
    form = sealing(messages=6, hops=2, piles=3)
    analyst, last, first = (PrivateKey.new() for _ in range(3))
    payloads = [bytes([place]) * 9 for place in range(6)]
    report = form.report(payloads, [analyst.public, last.public, first.public], b"t" * 16)
    assert len(report) == form.report_size == sealing(messages=6, hops=2).report_size
    for place, box in enumerate(form.open_report(report, first)[1]):
        inside = form.open_box(box, last, 1, place // 2)
        assert form.open_box(inside, analyst, 0, place // 2) == payloads[place]
        for layer, key, part in ((1, last, box), (0, analyst, inside)):
            for other in {0, 1, 2, 2**32 - 1} - {place // 2}:
                with pytest.raises(NotOpened):
                    form.open_box(part, key, layer, other)
            with pytest.raises(NotOpened):
                sealing(messages=6, hops=2).open_box(part, key, layer)
    for piles in (-1, 4, 7):
        with pytest.raises(PlanError, match="invalid"):
            sealing(messages=6, piles=piles)


def test_keys_that_keep_no_secret_are_refused() -> None:
    for data in (bytes(32), bytes([1]) + bytes(31)):
        with pytest.raises(PlanError, match="invalid public key"):
            PublicKey(data)
    with pytest.raises(PlanError, match="32 bytes"):
        PublicKey(b"short")


def test_private_keys_are_not_printed() -> None:
    key = PrivateKey.new()
    assert key.data.hex() not in repr(key)
    assert repr(key.data) not in repr(key)
