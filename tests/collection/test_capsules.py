"""Capsules of Oblivious HTTP: published vectors, round trips, and bytes that are none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tables import check_all

from metricshuffle.collection.binary_http import BinaryRequest, BinaryResponse, MalformedMessage
from metricshuffle.collection.capsules import AnswerKey, GatewayKey, KeyConfiguration, padded_size
from metricshuffle.collection.hpke_context import HpkeContext
from metricshuffle.collection.sealed_boxes import NotOpened, PrivateKey
from metricshuffle.errors import PlanError

FILE = Path(__file__).parents[2] / "docs" / "spec" / "vectors" / "oblivious.json"
VECTORS: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
TEXT = st.text(st.characters(min_codepoint=32, max_codepoint=255), max_size=80)
FIELDS = st.lists(st.tuples(TEXT.filter(bool), TEXT), max_size=4).map(tuple)


def key_of(case: dict[str, Any]) -> GatewayKey:
    return GatewayKey(bytes.fromhex(case["private"]), bytes.fromhex(case["configuration"])[0])


# HPKE


def test_hpke_exports_the_values_of_rfc_9180() -> None:
    case = VECTORS["rfc9180"]
    private = bytes.fromhex(case["private"])
    info, plain, aad = (bytes.fromhex(case[name]) for name in ("info", "plain", "aad"))
    public = PrivateKey(private).public.data
    sender = HpkeContext.sender(public, info, bytes.fromhex(case["ephemeral"]))
    recipient = HpkeContext.recipient(
        sender.enc, X25519PrivateKey.from_private_bytes(private), public, info
    )
    assert (sender.enc + sender.sealed(plain, aad)).hex() == case["sealed"]
    assert recipient.opened(sender.sealed(plain, aad), aad) == plain
    assert len(case["exported"]) == 3
    for context, value in case["exported"].items():
        for side in (sender, recipient):
            assert side.exported(bytes.fromhex(context), 32).hex() == value


@settings(max_examples=20, deadline=None)
@given(st.binary(max_size=300), st.binary(max_size=40))
def test_hpke_opens_what_the_library_seals(plain: bytes, info: bytes) -> None:
    private = PrivateKey.new()
    sealed = private.public.sealed(plain, info)
    own = X25519PrivateKey.from_private_bytes(private.data)
    context = HpkeContext.recipient(sealed[:32], own, private.public.data, info)
    assert context.opened(sealed[32:]) == plain
    sender = HpkeContext.sender(private.public.data, info)
    assert private.opened(sender.enc + sender.sealed(plain), info) == plain
    with pytest.raises(InvalidTag):
        context.opened(sealed[32:], b"other")


# Binary HTTP


@check_all("case", VECTORS["messages"])
def test_messages_of_the_vectors(case: dict[str, Any]) -> None:
    encoded, content = bytes.fromhex(case["encoded"]), bytes.fromhex(case["content"])
    headers = tuple(map(tuple, case["headers"]))
    message: BinaryRequest | BinaryResponse
    if "control" in case:
        message = BinaryRequest.decoded(encoded)
        method, scheme, authority, path = case["control"]
        assert message == BinaryRequest(method, scheme, authority, path, headers, content)
    else:
        message = BinaryResponse.decoded(encoded)
        assert message == BinaryResponse(case["status"], headers, content)
    is_ours = encoded[0] < 2 and "trailer" not in case["name"] and "cut" not in case["name"]
    assert not is_ours or message.encoded(len(encoded)) == encoded


@check_all("case", VECTORS["malformed"])
def test_malformed_messages_of_the_vectors(case: dict[str, Any]) -> None:
    for kind in (BinaryRequest, BinaryResponse):
        with pytest.raises(MalformedMessage):
            kind.decoded(bytes.fromhex(case["encoded"]))


@settings(max_examples=60, deadline=None)
@given(TEXT, TEXT, TEXT, TEXT, FIELDS, st.binary(max_size=20_000), st.integers(0, 300))
def test_requests_are_read_as_they_were_written(
    method: str, scheme: str, authority: str, path: str, headers: Any, content: bytes, more: int
) -> None:
    request = BinaryRequest(method, scheme, authority, path, headers, content)
    encoded = request.encoded()
    assert BinaryRequest.decoded(encoded) == request
    assert BinaryRequest.decoded(request.encoded(len(encoded) + more)) == request
    assert len(request.encoded(len(encoded) + more)) == len(encoded) + more
    with pytest.raises(ValueError, match="do not fit"):
        request.encoded(len(encoded) - 1)


@settings(max_examples=60, deadline=None)
@given(st.integers(200, 599), FIELDS, st.binary(max_size=20_000))
def test_responses_are_read_as_they_were_written(status: int, headers: Any, content: bytes) -> None:
    response = BinaryResponse(status, headers, content)
    assert BinaryResponse.decoded(response.encoded()) == response


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.binary(max_size=60), st.binary(max_size=60).map(lambda data: b"\2" + data)))
def test_bytes_are_a_message_or_malformed(data: bytes) -> None:
    for kind in (BinaryRequest, BinaryResponse):
        try:
            message = kind.decoded(data)
        except MalformedMessage:
            continue
        assert kind.decoded(message.encoded()) == message


# Capsules


@check_all("case", VECTORS["capsules"])
def test_capsules_of_the_vectors(case: dict[str, Any]) -> None:
    key = key_of(case)
    configuration = KeyConfiguration(bytes.fromhex(case["configuration"]))
    assert configuration.public == key.configuration.public
    request, nonce = bytes.fromhex(case["request"]), bytes.fromhex(case["nonce"])
    capsule, of_client = configuration.sealed(request, bytes.fromhex(case["ephemeral"]))
    assert capsule.hex() == case["capsule"]
    opened, of_gateway = key.opened(capsule)
    assert opened == request
    assert of_client == of_gateway
    assert of_gateway.secret.hex() == case["secret"]
    answer = of_gateway.sealed(bytes.fromhex(case["response"]), nonce)
    assert answer.hex() == case["answer"]
    assert of_client.opened(answer).hex() == case["response"]


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=2_000), st.data())
def test_a_changed_capsule_or_answer_does_not_open(request: bytes, data: Any) -> None:
    key = GatewayKey(PrivateKey.new().data)
    capsule, of_client = key.configuration.sealed(request)
    opened, of_gateway = key.opened(capsule)
    assert (opened, len(capsule)) == (request, len(request) + 55)
    answer = of_gateway.sealed(b"stored")
    for whole, opening in ((capsule, key.opened), (answer, of_client.opened)):
        place = data.draw(st.integers(0, len(whole) - 1))
        changed = bytearray(whole)
        changed[place] ^= data.draw(st.integers(1, 255))
        for other in (bytes(changed), whole[:place], whole + b"\0"):
            with pytest.raises(NotOpened):
                opening(other)
    with pytest.raises(NotOpened):
        GatewayKey(PrivateKey.new().data).opened(capsule)
    with pytest.raises(NotOpened):
        AnswerKey(of_client.enc, bytes(16)).opened(answer)


def test_a_zero_shared_secret_is_refused() -> None:
    key = GatewayKey(PrivateKey.new().data)
    head = key.configuration.head
    with pytest.raises(NotOpened):
        key.opened(head + bytes(32) + bytes(40))
    with pytest.raises(PlanError, match="invalid public key"):
        KeyConfiguration.of(bytes(32)).sealed(b"")


@check_all(
    "change",
    [
        lambda data: b"",
        lambda data: data[:-1],
        lambda data: data + b"\0",
        lambda data: data[:1] + b"\0\x10" + data[3:],
        lambda data: data[:-4] + b"\0\1\0\3",
        lambda data: data[:-6] + b"\0\x08" + data[-4:],
    ],
)
def test_other_configurations_are_refused(change: Any) -> None:
    good = KeyConfiguration.of(PrivateKey.new().public.data)
    with pytest.raises(PlanError, match="newer version"):
        KeyConfiguration(change(good.encoded))


def test_requests_are_padded_to_whole_kilobytes() -> None:
    assert [padded_size(size) for size in (0, 1, 1024, 1025)] == [0, 1024, 1024, 2048]
