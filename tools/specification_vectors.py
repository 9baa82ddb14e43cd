"""Test vectors of the specification: `python -m tools.specification_vectors --write`.

Keys are hashes of their names and ephemeral keys are fixed, so that the files are the same every
time. HPKE is written out here with primitives, because libraries do not take an ephemeral key; the
vector of RFC 9180 (A.1.1) is checked first, and the package opens every box in a test.
"""

from __future__ import annotations

import argparse
import hashlib
import hmac
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

FOLDER = Path(__file__).parents[1] / "docs" / "spec" / "vectors"
KEM_SUITE = b"KEM\x00\x20"
HPKE_SUITE = b"HPKE\x00\x20\x00\x01\x00\x01"
Json = dict[str, Any]


def named_bytes(name: str, size: int = 32) -> bytes:
    """Bytes that belong to a name, for keys and boxes of vectors only."""
    return hashlib.shake_256(f"metricshuffle specification: {name}".encode()).digest(size)


def public_of(private: bytes) -> bytes:
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


# HPKE with a given ephemeral key (RFC 9180, base mode)


def _extract(salt: bytes, label: bytes, material: bytes, suite: bytes) -> bytes:
    labeled = b"HPKE-v1" + suite + label + material
    return hmac.new(salt or bytes(32), labeled, hashlib.sha256).digest()


def _expand(key: bytes, label: bytes, info: bytes, size: int, suite: bytes) -> bytes:
    labeled = size.to_bytes(2, "big") + b"HPKE-v1" + suite + label + info
    return hmac.new(key, labeled + b"\x01", hashlib.sha256).digest()[:size]


def set_up(public: bytes, ephemeral: bytes, info: bytes) -> tuple[bytes, bytes, bytes]:
    """Encapsulated key, secret and context of the key schedule."""
    private = X25519PrivateKey.from_private_bytes(ephemeral)
    enc = private.public_key().public_bytes_raw()
    shared = private.exchange(X25519PublicKey.from_public_bytes(public))
    eae = _extract(b"", b"eae_prk", shared, KEM_SUITE)
    secret = _expand(eae, b"shared_secret", enc + public, 32, KEM_SUITE)
    context = (
        b"\x00"
        + _extract(b"", b"psk_id_hash", b"", HPKE_SUITE)
        + _extract(b"", b"info_hash", info, HPKE_SUITE)
    )
    return enc, _extract(secret, b"secret", b"", HPKE_SUITE), context


def exported(schedule: bytes, context: bytes, purpose: bytes, size: int) -> bytes:
    """Secret for another purpose (RFC 9180, 5.3)."""
    exporter = _expand(schedule, b"exp", context, 32, HPKE_SUITE)
    return _expand(exporter, b"sec", purpose, size, HPKE_SUITE)


def seal(public: bytes, ephemeral: bytes, info: bytes, plain: bytes, aad: bytes = b"") -> bytes:
    """Encapsulated key, ciphertext and tag."""
    enc, schedule, context = set_up(public, ephemeral, info)
    key = _expand(schedule, b"key", context, 16, HPKE_SUITE)
    nonce = _expand(schedule, b"base_nonce", context, 12, HPKE_SUITE)
    return enc + AESGCM(key).encrypt(nonce, plain, aad or None)


RFC_9180 = {
    "ephemeral": "52c4a758a802cd8b936eceea314432798d5baf2d7e9235dc084ab1b9cfa2f736",
    "private": "4612c550263fc8ad58375df3f557aac531d26850903e55a9f23f21d8534e8ac8",
    "info": "4f6465206f6e2061204772656369616e2055726e",
    "plain": "4265617574792069732074727574682c20747275746820626561757479",
    "aad": "436f756e742d30",
    "sealed": (
        "37fda3567bdbd628e88668c3c8d7e97d1d1253b6d4ea6d44c150f741f1bf4431"
        "f938558b5d72f1a23810b4be2ab4f84331acc02fc97babc53a52ae8218a355a9"
        "6d8770ac83d07bea87e13c512a"
    ),
}


def check_published_vector() -> None:
    """Raise unless the first message of RFC 9180, A.1.1, is sealed as published."""
    case = {name: bytes.fromhex(digits) for name, digits in RFC_9180.items()}
    public = public_of(case["private"])
    sealed = seal(public, case["ephemeral"], case["info"], case["plain"], case["aad"])
    if sealed != case["sealed"]:
        raise SystemExit("HPKE differs from RFC 9180, A.1.1.")


# Boxes


@dataclass
class Sealing:
    """Seals the report of one vector; ephemeral keys are counted."""

    name: str
    hops: int
    messages: int
    payload: int
    ticket: int
    piles: int = 0
    ephemerals: Iterator[int] = field(default_factory=lambda: iter(range(10_000)))

    @property
    def digest(self) -> bytes:
        return named_bytes(f"{self.name}, digest")

    def private(self, layer: int) -> bytes:
        return named_bytes(f"{self.name}, layer {layer}")

    def info(self, layer: int, pile: int = 0) -> bytes:
        if self.piles and layer < self.hops:
            number = pile.to_bytes(4, "little")
            return b"metricshuffle-box/2\0" + bytes([layer]) + self.digest + number
        return b"metricshuffle-box/1\0" + bytes([layer]) + self.digest

    def sealed(self, plain: bytes, layer: int, pile: int = 0) -> tuple[bytes, Json]:
        """Box of a layer, and how it was made."""
        ephemeral = named_bytes(f"{self.name}, ephemeral {next(self.ephemerals)}")
        box = seal(public_of(self.private(layer)), ephemeral, self.info(layer, pile), plain)
        step = {"layer": layer, "ephemeral": ephemeral.hex(), "box": box.hex()}
        return box, step

    def vector(self) -> Json:
        each = self.messages // max(1, self.piles)
        payloads = [
            payload
            for start in range(0, self.messages, each)
            for payload in sorted(
                named_bytes(f"{self.name}, payload {number}", self.payload)
                for number in range(start, start + each)
            )
        ]
        ticket = named_bytes(f"{self.name}, ticket", self.ticket)
        steps = []
        inner = []
        for place, payload in enumerate(payloads):
            box = payload
            for layer in range(self.hops):
                box, step = self.sealed(box, layer, place // each)
                steps.append(step)
            inner.append(box)
        report, step = self.sealed(ticket + b"".join(inner), self.hops)
        return {
            "name": self.name,
            "digest": self.digest.hex(),
            "hops": self.hops,
            "messages": self.messages,
            "payload": self.payload,
            **({"piles": self.piles} if self.piles else {}),
            "ticket": ticket.hex(),
            "layers": [
                {
                    "layer": layer,
                    "private": self.private(layer).hex(),
                    "public": public_of(self.private(layer)).hex(),
                    "info": self.info(layer).hex(),
                }
                for layer in range(self.hops + 1)
            ],
            "payloads": [payload.hex() for payload in payloads],
            "sealed": [*steps, step],
            "boxes": [box.hex() for box in inner],
            "report": report.hex(),
            "report_size": len(report),
        }


def refused_reports(case: Json) -> Iterator[Json]:
    """Reports that must not open with the key and digest of a vector."""
    report = bytes.fromhex(case["report"])

    def changed(place: int) -> bytes:
        return report[:place] + bytes([report[place] ^ 1]) + report[place + 1 :]

    sealing = Sealing(case["name"], case["hops"], case["messages"], case["payload"], 0)
    plain = bytes(len(report) - 48)
    layer = case["hops"]
    other = Sealing("another collection", 1, 1, 9, 0)
    public = public_of(sealing.private(layer))
    ephemeral = named_bytes("ephemeral of refused reports")
    yield from (
        {"name": name, "report": content.hex()}
        for name, content in {
            "a bit of the encapsulated key is changed": changed(0),
            "a bit of the ciphertext is changed": changed(40),
            "a bit of the tag is changed": changed(len(report) - 1),
            "it is a byte short": report[:-1],
            "it is a byte long": report + b"\0",
            "it is empty": b"",
            "it is zeros, also as a key": bytes(len(report)),
            "it is for another layer": seal(public, ephemeral, sealing.info(layer - 1), plain),
            "it is for another collection": seal(public, ephemeral, other.info(layer), plain),
            "it is for another key": seal(
                public_of(other.private(1)), ephemeral, sealing.info(layer), plain
            ),
        }.items()
    )


def boxes() -> Json:
    cases = [
        Sealing("one hop, one message", 1, 1, 9, 0).vector(),
        Sealing("one hop, three messages, a ticket", 1, 3, 9, 16).vector(),
        Sealing("three hops, two messages, a ticket", 3, 2, 17, 16).vector(),
        Sealing("two hops, six messages in three piles", 2, 6, 2, 0, 3).vector(),
    ]
    for case in cases:
        case["refused"] = list(refused_reports(case))
    return {"format": "metricshuffle-box/1", "rfc9180": RFC_9180, "cases": cases}


# Payloads


def payloads() -> Json:
    shapes = [
        {"piles": 1, "each": 3, "pile": 1, "number": 8, "width": 1},
        {"piles": 2, "each": 2, "pile": 1, "number": 8, "width": 2},
        {"piles": 300, "each": 1, "pile": 2, "number": 1, "width": 1},
        {"piles": 1, "each": 2, "pile": 1, "number": 4, "width": 3},
        {"piles": 3, "each": 2, "pile": 0, "number": 2, "width": 1},
    ]
    cases = []
    for place, recipe in enumerate(shapes):
        size = recipe["number"]
        count = recipe["piles"] * recipe["each"] * recipe["width"]
        data = named_bytes(f"numbers {place}", count * size)
        numbers = [
            int.from_bytes(data[start : start + size], "little")
            for start in range(0, len(data), size)
        ]
        rows = []
        for message in range(recipe["piles"] * recipe["each"]):
            group = message // recipe["each"]
            row = group.to_bytes(recipe["pile"], "little") if recipe["pile"] else b""
            for number in numbers[message * recipe["width"] : (message + 1) * recipe["width"]]:
                row += number.to_bytes(size, "little")
            rows.append(row)
        together = len(rows) if recipe["pile"] else recipe["each"]
        runs = [sorted(rows[start : start + together]) for start in range(0, len(rows), together)]
        cases.append(
            {
                "recipe": recipe,
                "numbers": [str(number) for number in numbers],
                "payloads": [row.hex() for run in runs for row in run],
            }
        )
    return {"cases": cases}


# Collections


def token_of(private: bytes) -> str:
    """HKDF-SHA256 (RFC 5869) with an empty salt, in hexadecimal digits."""
    extracted = hmac.new(bytes(32), private, hashlib.sha256).digest()
    return hmac.new(extracted, b"metricshuffle release\x01", hashlib.sha256).hexdigest()


def token_hash(token: str) -> str:
    return hashlib.sha256(b"metricshuffle token\0" + token.encode()).hexdigest()


def party(name: str) -> Json:
    private = named_bytes(name)
    return {
        "key": public_of(private).hex(),
        "name": "",
        "release": token_hash(token_of(private)),
    }


# Tokens (RFC 9578, type 2), with an issuer's key that is public


def named_prime(name: str, steps: int) -> int:
    """Prime of 1,024 bits that belongs to a name, some steps of 2 after its bytes."""
    prime = (int.from_bytes(named_bytes(name, 128), "big") | 3 << 1022 | 1) + 2 * steps
    if pow(2, prime - 1, prime) != 1:
        raise SystemExit(f"{name} is not prime.")
    return prime


ISSUER_P, ISSUER_Q = named_prime("issuer p", 782), named_prime("issuer q", 767)
ISSUER_N = ISSUER_P * ISSUER_Q
ISSUER_KEY = (
    "30820152303d06092a864886f70d01010a3030a00d300b0609608648016503040202a11a301806092a864886f70d"
    "010108300b0609608648016503040202a2030201300382010f003082010a0282010100"
    f"{ISSUER_N:0512x}0203010001"
)
ISSUER = {
    "url": "https://issuer.example/token-request",
    "key": ISSUER_KEY,
    "name": "Issuer",
}


def pss_encoded(message: bytes, salt: bytes) -> int:
    """EMSA-PSS of RFC 8017 with SHA-384, for 2,048 bits."""
    digest = hashlib.sha384(bytes(8) + hashlib.sha384(message).digest() + salt).digest()
    mask = b"".join(
        hashlib.sha384(digest + place.to_bytes(4, "big")).digest() for place in range(5)
    )[:207]
    block = (b"\x01" + salt).rjust(207, b"\0")
    masked = bytes(left ^ right for left, right in zip(block, mask, strict=True))
    return int.from_bytes(bytes([masked[0] & 0x7F]) + masked[1:] + digest + b"\xbc", "big")


def token_case(name: str, url: str, host: str) -> Json:
    """Request, answer and token for a collection, with all that was random."""
    digest, nonce = named_bytes(f"{name}, digest"), named_bytes(f"{name}, nonce")
    salt = named_bytes(f"{name}, salt", 48)
    factor = int.from_bytes(named_bytes(f"{name}, factor", 256), "big") % ISSUER_N
    private = pow(65537, -1, (ISSUER_P - 1) * (ISSUER_Q - 1))
    challenge = b"\0\2" + len(host).to_bytes(2, "big") + host.encode() + b"\x20" + digest + b"\0\0"
    key_id = hashlib.sha256(bytes.fromhex(ISSUER_KEY)).digest()
    signed = b"\0\2" + nonce + hashlib.sha256(challenge).digest() + key_id
    encoded = pss_encoded(signed, salt)
    blinded = encoded * pow(factor, 65537, ISSUER_N) % ISSUER_N
    answer, signature = pow(blinded, private, ISSUER_N), pow(encoded, private, ISSUER_N)
    token = signed + signature.to_bytes(256, "big")
    other = b"\0\2" + nonce + hashlib.sha256(challenge + b"\0").digest() + key_id
    other += pow(pss_encoded(other, salt), private, ISSUER_N).to_bytes(256, "big")
    refused = {
        "another signature": token[:-1] + bytes([token[-1] ^ 1]),
        "another nonce": token[:2] + bytes([token[2] ^ 1]) + token[3:],
        "a token of another collection": other,
        "another type": b"\0\1" + token[2:],
        "a byte too few": token[:-1],
        "zeros": bytes(354),
    }
    return {
        "name": name,
        "url": url,
        "key": ISSUER_KEY,
        "digest": digest.hex(),
        "challenge": challenge.hex(),
        "nonce": nonce.hex(),
        "salt": salt.hex(),
        "factor": f"{factor:0512x}",
        "request": f"0002{key_id[-1:].hex()}{blinded:0512x}",
        "response": f"{answer:0512x}",
        "wrong_response": f"{ISSUER_N - answer:0512x}",
        "token": token.hex(),
        "refused": [{"name": why, "token": bad.hex()} for why, bad in refused.items()],
    }


def tokens() -> Json:
    return {
        "primes": [f"{ISSUER_P:x}", f"{ISSUER_Q:x}"],
        "cases": [
            token_case("an issuer", ISSUER["url"], "issuer.example"),
            token_case("an issuer with a port", "http://127.0.0.1:8081/t", "127.0.0.1:8081"),
        ],
    }


ABSENT = object()


def terms(count: int = 1, **changes: Any) -> Json:
    content: Json = {
        "format": "metricshuffle-collection/1",
        "id": named_bytes("id", 16).hex(),
        "task": json.dumps({"digest": named_bytes("task").hex()}),
        "recipe": {
            "protocol": "sums",
            "browser": True,
            "payload": {"piles": 1, "each": 3, "pile": 1, "number": 8, "width": 1},
        },
        "round": 1,
        "split": [1, 1],
        "messages": 3,
        "payload": 9,
        "ticket": 0,
        "suite": "DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, AES-128-GCM",
        "hops": [
            {**party(f"hop {place}"), "url": f"https://hop{place}.example"}
            for place in range(count)
        ],
        "analyst": {**party("analyst"), "name": "Zoë"},
        "minimum": 100,
        "maximum": 1000,
        "colluders": 10,
        "apart": True,
        "opens": "2030-01-01T00:00:00Z",
        "closes": "2030-01-02T00:00:00Z",
        "extends": "2030-01-03T00:00:00Z",
        "delay": 0,
        "admission": "open",
        "retention": 86400,
    }
    return {name: value for name, value in {**content, **changes}.items() if value is not ABSENT}


def served_text(content: Json) -> str:
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def collections() -> Json:
    valid = {
        "one hop": terms(),
        "three hops and tickets": terms(3, ticket=16, admission="tickets"),
    }
    piled: Json = {
        "format": "metricshuffle-collection/2",
        "piles": 3,
        "payload": 2,
        "recipe": {
            "protocol": "shuffler-noise",
            "browser": True,
            "payload": {"piles": 3, "each": 1, "pile": 0, "number": 2, "width": 1},
        },
    }
    valid["two hops and three piles"] = terms(2, **piled)
    by_tokens: Json = {
        "format": "metricshuffle-collection/2",
        "admission": "tokens",
        "ticket": 354,
        "issuer": ISSUER,
    }
    valid["one hop and tokens"] = terms(**by_tokens)
    gateway = "000020" + public_of(named_bytes("gateway")).hex() + "000400010001"
    valid["a gateway"] = terms(format="metricshuffle-collection/2", gateway=gateway)
    hop = terms()["hops"][0]
    refused = {
        "C7": {
            "the format of piles without piles": terms(format="metricshuffle-collection/2"),
            "piles without their format": terms(piles=3),
            "a gateway without its format": terms(gateway=gateway),
            "piles that do not divide the messages": terms(**{**piled, "piles": 2}),
        },
        "C8": {
            "tokens without an issuer": terms(
                **{**by_tokens, "format": "metricshuffle-collection/1", "issuer": ABSENT}
            ),
            "an issuer without tokens": terms(**{**by_tokens, "admission": "open", "ticket": 0}),
            "an issuer that is the first shuffler": terms(
                **{**by_tokens, "issuer": {**ISSUER, "url": "https://hop0.example/tokens"}}
            ),
            "an issuer whose key has another exponent": terms(
                **{**by_tokens, "issuer": {**ISSUER, "key": f"{ISSUER_KEY[:-1]}3"}}
            ),
        },
        "C2": {
            "another format": terms(format="metricshuffle-collection/3"),
            "another suite": terms(suite="DHKEM(P-256, HKDF-SHA256), HKDF-SHA256, AES-128-GCM"),
        },
        "C4": {
            "tickets without their length": terms(admission="tickets"),
            "tokens with the length of a ticket": terms(**{**by_tokens, "ticket": 16}),
            "closes before it opens": terms(closes="2029-12-31T00:00:00Z"),
            "extended to a time before it closes": terms(extends="2030-01-01T12:00:00Z"),
            "the minimum exceeds the maximum": terms(minimum=1001),
        },
        "C5": {
            "no hop": terms(0),
            "nine hops": terms(9),
            "two hops with one key": terms(2, hops=[hop, {**hop, "url": "https://b.example"}]),
            "analyst and hop with one key": terms(
                analyst={**terms()["analyst"], "key": hop["key"]}
            ),
        },
        "C6": {
            "a key of low order": terms(hops=[{**hop, "key": "00" * 32}]),
        },
    }
    return {
        "valid": [
            {
                "name": name,
                "served": served_text(content),
                "digest": hashlib.sha256(served_text(content).encode()).hexdigest(),
                "keys": [side["key"] for side in (content["analyst"], *reversed(content["hops"]))],
                "report_size": content["ticket"]
                + content["messages"] * (content["payload"] + 48 * len(content["hops"]))
                + 48,
            }
            for name, content in valid.items()
        ],
        "refused": [
            {
                "name": name,
                "requirement": number,
                "served": served_text(content),
                "digest": hashlib.sha256(served_text(content).encode()).hexdigest(),
            }
            for number, group in refused.items()
            for name, content in group.items()
        ],
    }


# Outputs, tokens and countersignatures


def output_case(name: str, reports: list[list[bytes]]) -> Json:
    owners: dict[bytes, set[int]] = {}
    for owner, report in enumerate(reports):
        for box in report:
            owners.setdefault(box, set()).add(owner)
    shared = {owner for group in owners.values() if len(group) > 1 for owner in group}
    output = b"".join(
        sorted(box for owner, report in enumerate(reports) if owner not in shared for box in report)
    )
    return {
        "name": name,
        "reports": [[box.hex() for box in report] for report in reports],
        "people": len(reports) - len(shared),
        "left_out": len(shared),
        "output": output.hex(),
        "sha256": hashlib.sha256(output).hexdigest(),
    }


def pile_case(name: str, reports: list[list[bytes]], dummies: list[list[bytes]]) -> Json:
    """Output of piles with as many boxes of a person in each, and dummies of this hop."""
    each = len(reports[0]) // len(dummies)
    runs = [
        sorted(
            [*(box for report in reports for box in report[each * pile : each * (pile + 1)]), *more]
        )
        for pile, more in enumerate(dummies)
    ]
    output = b"".join(len(run).to_bytes(8, "little") for run in runs)
    output += b"".join(box for run in runs for box in run)
    return {
        "name": name,
        "reports": [[box.hex() for box in report] for report in reports],
        "dummies": [[box.hex() for box in more] for more in dummies],
        "people": len(reports),
        "left_out": 0,
        "output": output.hex(),
        "sha256": hashlib.sha256(output).hexdigest(),
    }


def outputs() -> Json:
    people = [
        [named_bytes(f"box {person} {place}", 57) for place in range(3)] for person in range(5)
    ]
    sharing = [list(report) for report in people]
    sharing[3][0] = sharing[1][2]
    asker, witness = named_bytes("asker"), named_bytes("witness")
    collection, output = named_bytes("collection"), named_bytes("output")
    asker_key, witness_key = (
        Ed25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()
        for secret in (asker, witness)
    )
    message = b"metricshuffle countersignature/1\0" + collection + asker_key + output
    private = named_bytes("analyst")
    return {
        "outputs": [
            output_case("five people", people),
            output_case("two of five share a box", sharing),
            output_case("zeros at the end of a box", [[b"\x01" + bytes(56)], [bytes(57)]]),
        ],
        "piles": [
            pile_case(
                "five people, three piles",
                people,
                [
                    [named_bytes(f"dummy {pile} {place}", 57) for place in range(2)]
                    for pile in range(3)
                ],
            ),
            pile_case(
                "two messages a pile, no dummies in the first",
                [
                    [*report, named_bytes(f"fourth {place}", 57)]
                    for place, report in enumerate(people)
                ],
                [[], [named_bytes("dummy", 57)]],
            ),
        ],
        "tokens": [
            {
                "private": private.hex(),
                "public": public_of(private).hex(),
                "token": token_of(private),
                "release": token_hash(token_of(private)),
            }
        ],
        "countersignatures": [
            {
                "collection": collection.hex(),
                "asker": asker_key.hex(),
                "output": output.hex(),
                "witness": witness_key.hex(),
                "message": message.hex(),
                "countersignature": Ed25519PrivateKey.from_private_bytes(witness)
                .sign(message)
                .hex(),
            }
        ],
    }


# Oblivious HTTP

EXPORTED = {
    "": "3853fe2b4035195a573ffc53856e77058e15d9ea064de3e59f4961d0095250ee",
    "00": "2e8f0b54673c7029649d4eb9d5e33bf1872cf76d623ff164ac185da9e88c21a5",
    "54657374436f6e74657874": "e9e43065102c3836401bed8c3c3c75ae46be1639869391d62c61f1ec7af54931",
}
"""Exported values of RFC 9180, A.1.1, by their contexts."""
RFC_9458 = {
    "name": "RFC 9458, appendix A",
    "private": "3c168975674b2fa8e465970b79c8dcf09f1c741626480bd4c6162fc5b6a98e1a",
    "configuration": (
        "01002031e1f05a740102115220e9af918f738674aec95f54db6e04eb705aae8e79815500080001000100010003"
    ),
    "ephemeral": "bc51d5e930bda26589890ac7032f70ad12e4ecb37abb1b65b1256c9c48999c73",
    "request": "00034745540568747470730b6578616d706c652e636f6d012f",
    "capsule": (
        "010020000100014b28f881333e7c164ffc499ad9796f877f4e1051ee6d31bad1"
        "9dec96c208b4726374e469135906992e1268c594d2a10c695d858c40a026e796"
        "5e7d86b83dd440b2c0185204b4d63525"
    ),
    "secret": "62d87a6ba569ee81014c2641f52bea36",
    "nonce": "c789e7151fcba46158ca84b04464910d",
    "response": "0140c8",
    "answer": "c789e7151fcba46158ca84b04464910d86f9013e404feea014e7be4a441f234f857fbd",
}
HELLO = (
    "034745540568747470730 00a2f68656c6c6f2e747874{}0a757365722d6167656e74346375726c2f372e31362e"
    "33206c69626375726c2f372e31362e33204f70656e53534c2f302e392e376c207a6c69622f312e322e3304686f73"
    "740f7777772e6578616d706c652e636f6d0f6163636570742d6c616e677561676506656e2c206d69"
).replace(" ", "")
INTERIM = (
    "0340660772756e6e696e670a22736c65657020313522004067046c696e6b233c2f7374796c652e6373733e3b2072"
    "656c3d7072656c6f61643b2061733d7374796c65046c696e6b243c2f7363726970742e6a733e3b2072656c3d7072"
    "656c6f61643b2061733d7363726970740040c804646174651d4d6f6e2c203237204a756c20323030392031323a32"
    "383a353320474d5406736572766572064170616368650d6c6173742d6d6f6469666965641d5765642c203232204a"
    "756c20323030392031393a31353a353620474d5404657461671422333461613338372d642d313536386562303022"
    "0d6163636570742d72616e6765730562797465730e636f6e74656e742d6c656e6774680235310476617279"
    "0f4163636570742d456e636f64696e670c636f6e74656e742d747970650a746578742f706c61696e003348656c6c"
    "6f20576f726c6421204d7920636f6e74656e7420696e636c75646573206120747261696c696e672043524c462e0d"
    "0a0000"
)
HELLO_HEADERS = [
    ["user-agent", "curl/7.16.3 libcurl/7.16.3 OpenSSL/0.9.7l zlib/1.2.3"],
    ["host", "www.example.com"],
    ["accept-language", "en, mi"],
]
MESSAGES_9292: list[Json] = [
    {
        "name": name,
        "encoded": encoded,
        "control": ["GET", "https", "", "/hello.txt"],
        "headers": HELLO_HEADERS,
        "content": "",
    }
    for name, encoded in {
        "known length": "00" + HELLO.format("406c") + "0000",
        "known length, cut short": "00" + HELLO.format("406c"),
        "indeterminate length, padded": "02" + HELLO.format("") + "00" * 13,
        "indeterminate length, cut short": "02" + HELLO.format("") + "00",
    }.items()
] + [
    {
        "name": "interim responses",
        "encoded": INTERIM,
        "status": 200,
        "headers": [
            ["date", "Mon, 27 Jul 2009 12:28:53 GMT"],
            ["server", "Apache"],
            ["last-modified", "Wed, 22 Jul 2009 19:15:56 GMT"],
            ["etag", '"34aa387-d-1568eb00"'],
            ["accept-ranges", "bytes"],
            ["content-length", "51"],
            ["vary", "Accept-Encoding"],
            ["content-type", "text/plain"],
        ],
        "content": b"Hello World! My content includes a trailing CRLF.\r\n".hex(),
    },
    {
        "name": "a trailer",
        "encoded": (
            "0140c8001d5468697320636f6e74656e7420636f6e7461696e732043524c462e0d0a"
            "0d07747261696c65720474657874"
        ),
        "status": 200,
        "headers": [],
        "content": b"This content contains CRLF.\r\n".hex(),
    },
]
"""Examples of RFC 9292, section 5, with their truncations and padding."""


def _sized(data: bytes) -> bytes:
    """Data after its length, below 2^14, as RFC 9292 writes them."""
    size = len(data)
    return (bytes([size]) if size < 64 else (size + 0x4000).to_bytes(2, "big")) + data


def capsule_case(name: str, request: bytes, response: bytes) -> Json:
    """Capsule and answer for a key of this specification, with everything that is random fixed."""
    private = named_bytes(f"{name}, gateway")
    ephemeral = named_bytes(f"{name}, ephemeral key of a capsule")
    nonce = named_bytes(f"{name}, nonce of an answer", 16)
    head = bytes.fromhex("00002000010001")
    configuration = bytes.fromhex("000020") + public_of(private) + bytes.fromhex("000400010001")
    info = b"message/bhttp request\0" + head
    enc, schedule, context = set_up(public_of(private), ephemeral, info)
    secret = exported(schedule, context, b"message/bhttp response", 16)
    extracted = hmac.new(enc + nonce, secret, hashlib.sha256).digest()
    key, answer_nonce = (
        hmac.new(extracted, label + b"\x01", hashlib.sha256).digest()
        for label in (b"key", b"nonce")
    )
    sealed = AESGCM(key[:16]).encrypt(answer_nonce[:12], response, None)
    return {
        "name": name,
        "private": private.hex(),
        "configuration": configuration.hex(),
        "ephemeral": ephemeral.hex(),
        "request": request.hex(),
        "capsule": (head + seal(public_of(private), ephemeral, info, request)).hex(),
        "secret": secret.hex(),
        "nonce": nonce.hex(),
        "response": response.hex(),
        "answer": (nonce + sealed).hex(),
    }


def oblivious() -> Json:
    for context, value in EXPORTED.items():
        case = {name: bytes.fromhex(digits) for name, digits in RFC_9180.items()}
        _, schedule, key_context = set_up(
            public_of(case["private"]), case["ephemeral"], case["info"]
        )
        if exported(schedule, key_context, bytes.fromhex(context), 32).hex() != value:
            raise SystemExit("the exporter differs from RFC 9180, A.1.1.")
    digest = named_bytes("digest of a collection with a gateway").hex()
    path = f"/v1/collections/{digest}"
    report = named_bytes("a report behind a relay", 219)
    post, get = (
        b"\0"
        + b"".join(_sized(part.encode()) for part in (method, "https", "hop0.example", target))
        + b"\0"
        + _sized(content)
        + b"\0"
        for method, target, content in (("POST", f"{path}/reports", report), ("GET", path, b""))
    )
    stored = bytes.fromhex("0140cc000000")
    again = b"\x01" + (0x4000 + 503).to_bytes(2, "big") + _sized(_sized(b"retry-after") + b"\x0217")
    messages: list[Json] = [
        {
            "name": "a report",
            "encoded": post.ljust(1024, b"\0").hex(),
            "control": ["POST", "https", "hop0.example", f"{path}/reports"],
            "headers": [],
            "content": report.hex(),
        },
        {
            "name": "an answer to come again",
            "encoded": (again + b"\0\0").ljust(512, b"\0").hex(),
            "status": 503,
            "headers": [["retry-after", "17"]],
            "content": "",
        },
    ]
    malformed = {
        "empty": b"",
        "a framing that does not exist": b"\x04" + post[1:],
        "cut short within a length": post[:60],
        "cut short within the content": post[:-20],
        "followed by something else": post + b"\1",
        "a length beyond the end": b"\0" + b"\xff" * 8,
        "a status that does not exist": b"\x01\x07",
        "a field without a name": b"\x01\x40\xc8\x02\0\0",
    }
    capsules = [
        RFC_9458,
        capsule_case("a report", post.ljust(1024, b"\0"), stored.ljust(512, b"\0")),
        capsule_case("a collection", get.ljust(1024, b"\0"), bytes.fromhex("0141f7000000")),
    ]
    return {
        "rfc9180": {**RFC_9180, "exported": EXPORTED},
        "messages": MESSAGES_9292 + messages,
        "malformed": [{"name": name, "encoded": data.hex()} for name, data in malformed.items()],
        "capsules": capsules,
        "refused": [
            {"name": name, "configuration": configuration}
            for name, configuration in {
                "it is empty": "00",
                "another KEM": "000010" + "04" * 65 + "000400010001",
                "another AEAD only": capsules[1]["configuration"][:-1] + "3",
                "a key that is cut short": capsules[1]["configuration"][:-2],
            }.items()
        ],
        "forged": [
            {"name": "the answer to another capsule", "answer": capsules[2]["answer"]},
            {"name": "a response that is not encrypted", "answer": capsules[1]["response"]},
            {"name": "nothing", "answer": ""},
            {"name": "a changed bit", "answer": capsules[1]["answer"][:-1] + "0"},
        ],
    }


FILES = {
    "boxes.json": boxes,
    "payloads.json": payloads,
    "collections.json": collections,
    "tokens.json": tokens,
    "outputs.json": outputs,
    "oblivious.json": oblivious,
}


def texts() -> dict[str, str]:
    """Text of every file."""
    check_published_vector()
    return {
        name: json.dumps(make(), indent=1, ensure_ascii=False) + "\n"
        for name, make in FILES.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write docs/spec/vectors")
    is_writing = parser.parse_args().write
    for name, text in texts().items():
        if is_writing:
            FOLDER.mkdir(parents=True, exist_ok=True)
            (FOLDER / name).write_text(text, encoding="utf-8")
        elif (FOLDER / name).read_text(encoding="utf-8") != text:
            raise SystemExit(f"{name} is out of date; run with --write.")


if __name__ == "__main__":
    main()
