"""Test vectors of boxes, opened and made again by an implementation of HPKE that is not ours."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyhpke import AEADId, CipherSuite, KDFId, KEMId, KEMKey, KEMKeyPair, OpenError
from tests.tables import check_all

VECTORS = Path(__file__).parents[2] / "docs" / "spec" / "vectors"
CASES: list[dict[str, Any]] = json.loads((VECTORS / "boxes.json").read_text())["cases"]
SUITE = CipherSuite.new(KEMId.DHKEM_X25519_HKDF_SHA256, KDFId.HKDF_SHA256, AEADId.AES128_GCM)
ENCAPSULATED_BYTES = 32
PILE_BYTES = 4


def pair(private: str) -> KEMKeyPair:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    key = X25519PrivateKey.from_private_bytes(bytes.fromhex(private))
    return KEMKeyPair(
        KEMKey.from_pyca_cryptography_key(key), KEMKey.from_pyca_cryptography_key(key.public_key())
    )


def info_of(case: dict[str, Any], layer: dict[str, Any], message: int) -> bytes:
    """Info of a layer: that of the first pile, with the pile of the message instead."""
    info = bytes.fromhex(layer["info"])
    if not case.get("piles") or layer["layer"] == case["hops"]:
        return info
    each = int(case["messages"]) // int(case["piles"])
    return info[:-PILE_BYTES] + (message // each).to_bytes(PILE_BYTES, "little")


def opened(layer: dict[str, Any], box: bytes, info: bytes) -> bytes:
    """Open a box of a layer."""
    key = pair(layer["private"]).private_key
    context = SUITE.create_recipient_context(box[:ENCAPSULATED_BYTES], key, info=info)
    return context.open(box[ENCAPSULATED_BYTES:])


@check_all("name", [case["name"] for case in CASES])
def test_another_implementation_opens_and_makes_the_same_boxes(name: str) -> None:
    [case] = [case for case in CASES if case["name"] == name]
    layers = {layer["layer"]: layer for layer in case["layers"]}
    ticket = bytes.fromhex(case["ticket"])
    outer = layers[case["hops"]]
    inside = opened(outer, bytes.fromhex(case["report"]), info_of(case, outer, 0))
    assert inside[: len(ticket)] == ticket
    size = (len(inside) - len(ticket)) // case["messages"]
    boxes = [inside[start : start + size] for start in range(len(ticket), len(inside), size)]
    assert [box.hex() for box in boxes] == case["boxes"]
    for number in reversed(range(case["hops"])):
        boxes = [
            opened(layers[number], box, info_of(case, layers[number], message))
            for message, box in enumerate(boxes)
        ]
    assert [box.hex() for box in boxes] == case["payloads"]
    for count, sealing in enumerate(case["sealed"]):
        layer = layers[sealing["layer"]]
        info = info_of(case, layer, count // case["hops"])
        box = bytes.fromhex(sealing["box"])
        encapsulated, context = SUITE.create_sender_context(
            pair(layer["private"]).public_key,
            info=info,
            eks=pair(sealing["ephemeral"]),
        )
        assert encapsulated + context.seal(opened(layer, box, info)) == box


@check_all("name", [case["name"] for case in CASES])
def test_another_implementation_refuses_the_same_reports(name: str) -> None:
    [case] = [case for case in CASES if case["name"] == name]
    [layer] = [layer for layer in case["layers"] if layer["layer"] == case["hops"]]
    for refused in case["refused"]:
        report = bytes.fromhex(refused["report"])
        with pytest.raises((OpenError, ValueError)):
            opened(layer, report, info_of(case, layer, 0))
