"""Reader of the specification's vectors, written from docs/spec alone.

It imports nothing of this package: what is not in the specification is not here. X25519, AES-GCM,
Ed25519 and RSASSA-PSS come from `cryptography`; HPKE, HKDF, collections and outputs are written
out. The names of functions are the numbers of requirements. Run it by itself:

    python tests/spec/standalone_reader.py docs/spec/vectors
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.padding import MGF1, PSS
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA384
from cryptography.hazmat.primitives.serialization import load_der_public_key

FORMAT = "metricshuffle-collection/"
SUITE = "DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, AES-128-GCM"
KEM = b"KEM\x00\x20"
HPKE = b"HPKE\x00\x20\x00\x01\x00\x01"
ADDED = 48


class RefusedError(Exception):
    """Something that the specification does not allow."""


# Boxes


def labeled_extract(salt: bytes, suite: bytes, label: bytes, material: bytes) -> bytes:
    return hmac.new(salt or bytes(32), b"HPKE-v1" + suite + label + material, "sha256").digest()


def labeled_expand(key: bytes, suite: bytes, label: bytes, info: bytes, size: int) -> bytes:
    text = size.to_bytes(2, "big") + b"HPKE-v1" + suite + label + info
    return hmac.new(key, text + b"\x01", "sha256").digest()[:size]


def open_box(box: bytes, private: bytes, info: bytes, aad: bytes = b"") -> bytes:
    """B1, B3."""
    if len(box) < ADDED:
        raise RefusedError
    own = X25519PrivateKey.from_private_bytes(private)
    public = own.public_key().public_bytes_raw()
    try:
        shared = own.exchange(X25519PublicKey.from_public_bytes(box[:32]))
    except ValueError:
        raise RefusedError from None
    extracted = labeled_extract(b"", KEM, b"eae_prk", shared)
    secret = labeled_expand(extracted, KEM, b"shared_secret", box[:32] + public, 32)
    context = b"\x00" + labeled_extract(b"", HPKE, b"psk_id_hash", b"")
    context += labeled_extract(b"", HPKE, b"info_hash", info)
    scheduled = labeled_extract(secret, HPKE, b"secret", b"")
    key = labeled_expand(scheduled, HPKE, b"key", context, 16)
    nonce = labeled_expand(scheduled, HPKE, b"base_nonce", context, 12)
    try:
        return AESGCM(key).decrypt(nonce, box[32:], aad)
    except InvalidTag:
        raise RefusedError from None


def info_of(layer: int, case: dict[str, Any], pile: int = 0) -> bytes:
    """B2, B9."""
    digest = bytes.fromhex(case["digest"])
    if "piles" in case and layer < case["hops"]:
        return b"metricshuffle-box/2\x00" + bytes([layer]) + digest + pile.to_bytes(4, "little")
    return b"metricshuffle-box/1\x00" + bytes([layer]) + digest


def report_size(ticket: int, messages: int, payload: int, hops: int) -> int:
    """B7."""
    return ticket + messages * (payload + ADDED * hops) + ADDED


def open_report(report: bytes, case: dict[str, Any]) -> tuple[bytes, list[bytes], list[bytes]]:
    """B4, B5, B8: ticket, inner boxes and payloads."""
    hops = case["hops"]
    each = case["messages"] // case.get("piles", 1)
    ticket = len(case["ticket"]) // 2
    private = [bytes.fromhex(layer["private"]) for layer in case["layers"]]
    if len(report) != report_size(ticket, case["messages"], case["payload"], hops):
        raise RefusedError
    inside = open_box(report, private[hops], info_of(hops, case))
    size = case["payload"] + ADDED * hops
    boxes = [inside[start : start + size] for start in range(ticket, len(inside), size)]
    opened = boxes
    for layer in range(hops - 1, -1, -1):
        opened = [
            open_box(box, private[layer], info_of(layer, case, place // each))
            for place, box in enumerate(opened)
        ]
    return inside[:ticket], boxes, opened


def check_boxes(vectors: dict[str, Any]) -> Iterator[str]:
    published = {name: bytes.fromhex(text) for name, text in vectors["rfc9180"].items()}
    plain = open_box(published["sealed"], published["private"], published["info"], published["aad"])
    yield "" if plain == published["plain"] else "RFC 9180, A.1.1"
    for case in vectors["cases"]:
        ticket, boxes, payloads = open_report(bytes.fromhex(case["report"]), case)
        same = ticket.hex() == case["ticket"] and [box.hex() for box in boxes] == case["boxes"]
        yield "" if same and [p.hex() for p in payloads] == case["payloads"] else case["name"]
        each = case["messages"] // case.get("piles", 1)
        runs = [payloads[start : start + each] for start in range(0, len(payloads), each)]
        yield "" if all(run == sorted(run) for run in runs) else f"{case['name']}: P2, P3"
        keys = [bytes.fromhex(step["box"])[:32] for step in case["sealed"]]
        yield "" if len(set(keys)) == len(keys) else f"{case['name']}: B6"
        for layer in case["layers"]:
            info = info_of(layer["layer"], case).hex()
            yield "" if info == layer["info"] else f"{case['name']}: B2"
        for refused in case["refused"]:
            try:
                open_report(bytes.fromhex(refused["report"]), case)
            except RefusedError:
                yield ""
            else:
                yield f"{case['name']}: B8, {refused['name']}"


def check_payloads(vectors: dict[str, Any]) -> Iterator[str]:
    """P1 to P3."""
    for case in vectors["cases"]:
        recipe = case["recipe"]
        numbers = iter(case["numbers"])
        rows = []
        for message in range(recipe["piles"] * recipe["each"]):
            group = message // recipe["each"]
            row = group.to_bytes(recipe["pile"], "little") if recipe["pile"] else b""
            for _ in range(recipe["width"]):
                row += int(next(numbers)).to_bytes(recipe["number"], "little")
            rows.append(row)
        each = recipe["each"] if not recipe["pile"] else len(rows)
        runs = [sorted(rows[start : start + each]) for start in range(0, len(rows), each)]
        yield "" if [row.hex() for run in runs for row in run] == case["payloads"] else str(recipe)


# Collections


def read_collection(served: bytes, digest: str) -> dict[str, Any]:
    """C1 to C8, O1."""
    if hashlib.sha256(served).hexdigest() != digest:
        raise RefusedError
    terms: dict[str, Any] = json.loads(served)
    piles, issuer, gateway = (terms.get(name) for name in ("piles", "issuer", "gateway"))
    if gateway and not re.fullmatch("[0-9a-f]{2}0020[0-9a-f]{64}000400010001", gateway):
        raise RefusedError
    version = "2" if piles or issuer or gateway else "1"
    if terms.get("format") != FORMAT + version or terms.get("suite") != SUITE:
        raise RefusedError
    if piles and terms["messages"] % piles:
        raise RefusedError
    if (terms["ticket"], terms["admission"], bool(issuer)) not in (
        *((0, "open", False), (16, "tickets", False)),
        (354, "tokens", True),
    ):
        raise RefusedError
    if issuer:
        modulus_of(issuer["key"])
        if origin(issuer["url"]) in [origin(hop["url"]) for hop in terms["hops"]]:
            raise RefusedError
    # Times are text of one length, so their order is that of the text.
    if not terms["opens"] < terms["closes"] <= terms["extends"]:
        raise RefusedError
    if terms["minimum"] > terms["maximum"]:
        raise RefusedError
    keys = keys_of(terms)
    if not 1 <= len(terms["hops"]) <= 8 or len(set(keys)) != len(keys):
        raise RefusedError
    for key in keys:
        try:
            X25519PrivateKey.generate().exchange(
                X25519PublicKey.from_public_bytes(bytes.fromhex(key))
            )
        except ValueError:
            raise RefusedError from None
    return terms


def origin(url: str) -> str:
    return "/".join(url.split("/")[:3])


def modulus_of(key: str) -> int:
    """C8: the modulus of an issuer's key."""
    loaded = load_der_public_key(bytes.fromhex(key))
    numbers = loaded.public_numbers() if isinstance(loaded, RSAPublicKey) else None
    if numbers is None or (numbers.e, numbers.n.bit_length(), len(key)) != (65537, 2048, 684):
        raise RefusedError
    return numbers.n


def is_valid_token(token: bytes, key: str, challenge: bytes) -> bool:
    """K2."""
    key_id = hashlib.sha256(bytes.fromhex(key)).digest()
    loaded = load_der_public_key(bytes.fromhex(key))
    if token[:2] + token[34:98] != b"\0\2" + hashlib.sha256(challenge).digest() + key_id:
        return False
    try:
        padding = PSS(MGF1(SHA384()), 48)
        cast(RSAPublicKey, loaded).verify(token[98:], token[:98], padding, SHA384())
    except InvalidSignature:
        return False
    return len(token) == 354


def check_tokens(vectors: dict[str, Any]) -> Iterator[str]:
    """K1 to K4: requests by undoing the encoding of the signature in the token."""
    for case in vectors["cases"]:
        name = case["url"].split("/")[2].encode()
        challenge = b"\0\2" + len(name).to_bytes(2, "big") + name + b"\x20"
        challenge += bytes.fromhex(case["digest"]) + b"\0\0"
        yield "" if challenge.hex() == case["challenge"] else "K1"
        token = bytes.fromhex(case["token"])
        yield "" if is_valid_token(token, case["key"], challenge) else "K2"
        for refused in case["refused"]:
            bad = bytes.fromhex(refused["token"])
            yield f"K2: {refused['name']}" if is_valid_token(bad, case["key"], challenge) else ""
        modulus, factor = modulus_of(case["key"]), int(case["factor"], 16)
        encoded = pow(int.from_bytes(token[98:], "big"), 65537, modulus)
        yield "" if salt_of(encoded, token[:98]) == case["salt"] else "K3: salt"
        blinded = encoded * pow(factor, 65537, modulus) % modulus
        key_id = hashlib.sha256(bytes.fromhex(case["key"])).hexdigest()
        yield "" if case["request"] == f"0002{key_id[-2:]}{blinded:0512x}" else "K3"
        right, wrong = (int(case[each], 16) for each in ("response", "wrong_response"))
        yield "" if pow(right, 65537, modulus) == blinded != pow(wrong, 65537, modulus) else "K4"
        signature = right * pow(factor, -1, modulus) % modulus
        yield "" if signature.to_bytes(256, "big") == token[98:] else "K4: token"


def salt_of(encoded: int, message: bytes) -> str:
    """The salt inside an encoded message (EMSA-PSS, RFC 8017)."""
    data = encoded.to_bytes(256, "big")
    digest = data[207:255]
    mask = b"".join(hashlib.sha384(digest + bytes([0, 0, 0, n])).digest() for n in range(5))
    salt = bytes(left ^ right for left, right in zip(data[159:207], mask[159:], strict=False))
    again = hashlib.sha384(bytes(8) + hashlib.sha384(message).digest() + salt).digest()
    return salt.hex() if again == digest else ""


def keys_of(terms: dict[str, Any]) -> list[str]:
    return [terms["analyst"]["key"], *(hop["key"] for hop in reversed(terms["hops"]))]


def check_collections(vectors: dict[str, Any]) -> Iterator[str]:
    for case in vectors["valid"]:
        served = case["served"].encode()
        terms = read_collection(served, case["digest"])
        size = report_size(terms["ticket"], terms["messages"], terms["payload"], len(terms["hops"]))
        is_same = keys_of(terms) == case["keys"] and size == case["report_size"]
        yield "" if is_same else case["name"]
        again = json.dumps(terms, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        yield "" if again.encode() == served else f"{case['name']}: C3"
    for case in vectors["refused"]:
        try:
            read_collection(case["served"].encode(), case["digest"])
        except RefusedError:
            yield ""
        else:
            yield f"{case['requirement']}: {case['name']}"


# Outputs


def check_outputs(vectors: dict[str, Any]) -> Iterator[str]:
    """R1 to R4, R7."""
    for case in vectors["outputs"]:
        reports = case["reports"]
        every = [box for report in reports for box in report]
        kept = [report for report in reports if all(every.count(box) == 1 for box in report)]
        output = b"".join(sorted(bytes.fromhex(box) for report in kept for box in report))
        observed = (output.hex(), hashlib.sha256(output).hexdigest(), len(kept))
        expected = (case["output"], case["sha256"], case["people"])
        is_same = observed == expected and len(reports) - len(kept) == case["left_out"]
        yield "" if is_same else f"R1, R2: {case['name']}"
    for case in vectors["piles"]:
        each = len(case["reports"][0]) // len(case["dummies"])
        runs = [
            sorted([box for report in case["reports"] for box in report[each * p :][:each]] + more)
            for p, more in enumerate(case["dummies"])
        ]
        head = "".join(len(run).to_bytes(8, "little").hex() for run in runs)
        body = head + "".join(box for run in runs for box in run)
        yield "" if body == case["output"] else f"R7: {case['name']}"
    for case in vectors["tokens"]:
        extracted = hmac.new(bytes(32), bytes.fromhex(case["private"]), "sha256").digest()
        token = hmac.new(extracted, b"metricshuffle release\x01", "sha256").hexdigest()
        hashed = hashlib.sha256(b"metricshuffle token\x00" + token.encode()).hexdigest()
        yield "" if (token, hashed) == (case["token"], case["release"]) else "R3"
    for case in vectors["countersignatures"]:
        message = b"metricshuffle countersignature/1\x00" + b"".join(
            bytes.fromhex(case[name]) for name in ("collection", "asker", "output")
        )
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(case["witness"]))
        try:
            key.verify(bytes.fromhex(case["countersignature"]), message)
        except InvalidSignature:
            yield "R4"
        else:
            yield ""


# Oblivious HTTP


def open_capsule(capsule: bytes, private: bytes) -> tuple[bytes, bytes]:
    """O2: the request, and the secret of the answer."""
    own = X25519PrivateKey.from_private_bytes(private)
    enc, info = capsule[7:39], b"message/bhttp request\x00" + capsule[:7]
    shared = own.exchange(X25519PublicKey.from_public_bytes(enc))
    extracted = labeled_extract(b"", KEM, b"eae_prk", shared)
    public = own.public_key().public_bytes_raw()
    secret = labeled_expand(extracted, KEM, b"shared_secret", enc + public, 32)
    context = b"\x00" + labeled_extract(b"", HPKE, b"psk_id_hash", b"")
    context += labeled_extract(b"", HPKE, b"info_hash", info)
    schedule = labeled_extract(secret, HPKE, b"secret", b"")
    exporter = labeled_expand(schedule, HPKE, b"exp", context, 32)
    return open_box(capsule[7:], private, info), labeled_expand(
        exporter, HPKE, b"sec", b"message/bhttp response", 16
    )


def open_answer(answer: bytes, enc: bytes, secret: bytes) -> bytes:
    """O2."""
    extracted = hmac.new(enc + answer[:16], secret, "sha256").digest()
    key, nonce = (hmac.new(extracted, label, "sha256").digest() for label in (b"key\1", b"nonce\1"))
    try:
        return AESGCM(key[:16]).decrypt(nonce[:12], answer[16:], None)
    except (InvalidTag, ValueError):
        raise RefusedError from None


def take(data: bytes) -> tuple[int, bytes]:
    """Integer of variable length (RFC 9000), and what follows it."""
    size = 1 << (data[0] >> 6)
    if len(data) < size:
        raise RefusedError
    return int.from_bytes(bytes([data[0] & 63]) + data[1:size], "big"), data[size:]


def take_sized(data: bytes) -> tuple[bytes, bytes]:
    size, rest = take(data or b"\0")
    if size > len(rest):
        raise RefusedError
    return rest[:size], rest[size:]


def read_message(data: bytes) -> tuple[list[str], int, list[list[str]], str]:
    """O4: control data, status, fields and content of a message of known length."""
    framing, data = take(data)
    if framing > 1:
        raise RefusedError
    control, status = [], 0
    if framing:
        status, data = take(data)
        if not 200 <= status < 600:
            raise RefusedError
    for _ in range(0 if framing else 4):
        part, data = take_sized(data)
        control.append(part.decode())
    lines, data = take_sized(data)
    fields: list[list[str]] = []
    while lines:
        name, lines = take_sized(lines)
        value, lines = take_sized(lines)
        if not name:
            raise RefusedError
        fields.append([name.decode(), value.decode()])
    content, data = take_sized(data)
    _, data = take_sized(data)
    if any(data):
        raise RefusedError
    return control, status, fields, content.hex()


def check_oblivious(vectors: dict[str, Any]) -> Iterator[str]:
    """O1, O2, O4, O5."""
    for case in vectors["capsules"]:
        private, capsule = bytes.fromhex(case["private"]), bytes.fromhex(case["capsule"])
        request, secret = open_capsule(capsule, private)
        public = X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()
        observed = (request.hex(), secret.hex(), public.hex())
        expected = (case["request"], case["secret"], case["configuration"][6:70])
        yield "" if observed == expected else f"O1, O2: {case['name']}"
        response = open_answer(bytes.fromhex(case["answer"]), capsule[7:39], secret)
        yield "" if response.hex() == case["response"] else f"O2: {case['name']}"
    first = vectors["capsules"][1]
    for case in vectors["forged"]:
        try:
            enc = bytes.fromhex(first["capsule"])[7:39]
            open_answer(bytes.fromhex(case["answer"]), enc, bytes.fromhex(first["secret"]))
        except RefusedError:
            yield ""
        else:
            yield f"O5: {case['name']}"
    for case in vectors["refused"]:
        digits = re.fullmatch("[0-9a-f]{2}0020[0-9a-f]{64}000400010001", case["configuration"])
        yield "" if digits is None else f"O1: {case['name']}"
    for case in vectors["messages"]:
        if case["encoded"][:2] in ("00", "01"):
            read = read_message(bytes.fromhex(case["encoded"]))
            expected_message = (
                case.get("control", []),
                case.get("status", 0),
                case["headers"],
                case["content"],
            )
            yield "" if read == expected_message else f"O4: {case['name']}"
    for case in vectors["malformed"]:
        try:
            read_message(bytes.fromhex(case["encoded"]))
        except (RefusedError, IndexError):
            yield ""
        else:
            yield f"O4: {case['name']}"


CHECKS = {
    "boxes": check_boxes,
    "payloads": check_payloads,
    "collections": check_collections,
    "outputs": check_outputs,
    "tokens": check_tokens,
    "oblivious": check_oblivious,
}


def differences(folder: Path) -> tuple[int, list[str]]:
    """Number of checks, and those that failed."""
    results = [
        result
        for name, check in CHECKS.items()
        for result in check(json.loads((folder / f"{name}.json").read_text(encoding="utf-8")))
    ]
    return len(results), [result for result in results if result]


if __name__ == "__main__":
    total, failed = differences(Path(sys.argv[1]))
    print(f"{total} checks; failed: {failed or 'none'}")
    sys.exit(bool(failed))
