"""Blind signatures and tokens: the vectors of RFC 9474 and RFC 9578, and what is refused."""

from __future__ import annotations

import hashlib
import json
import random
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from metricshuffle.collection.admission_tokens import (
    TokenRejected,
    TokenRequest,
    TokenVerifier,
    blinded_message_of,
    challenge_of,
    issuer_name,
)
from metricshuffle.collection.blind_signatures import (
    EXPONENT,
    MODULUS_BYTES,
    SPKI_BYTES,
    BlindKey,
    BlindSigner,
    SignatureRejected,
    blind_message,
    encode_message,
    unblind_signature,
)
from metricshuffle.errors import PlanError

pytest.importorskip("cryptography.hazmat.primitives.hpke")

VECTORS: dict[str, Any] = json.loads(
    (Path(__file__).parent / "rfc_token_vectors.json").read_text(encoding="utf-8")
)
URL = "https://issuer.example/token-request"


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@cache
def signer() -> BlindSigner:
    return BlindSigner.new()


def verifier(digest: bytes = bytes(32), url: str = URL) -> TokenVerifier:
    return TokenVerifier.of(url, signer().public.spki, digest)


def token(verifier: TokenVerifier) -> bytes:
    asked = TokenRequest.new(verifier)
    return asked.token(verifier, signer().signature(asked.request[3:]))


def test_a_blind_signature_is_that_of_rfc_9474() -> None:
    vector = {name: int(text, 16) for name, text in VECTORS["rfc9474"].items()}
    p, q = vector["p"], vector["q"]
    modulus, factor = p * q, pow(vector["inverse"], -1, p * q)
    message, salt = (bytes.fromhex(VECTORS["rfc9474"][name]) for name in ("message", "salt"))
    blinded = blind_message(message, salt, modulus, factor)
    assert sha256(blinded) == VECTORS["rfc9474"]["blinded"]
    private = pow(EXPONENT, -1, (p - 1) * (q - 1))
    signed = pow(int.from_bytes(blinded, "big"), private, modulus).to_bytes(512, "big")
    assert sha256(signed) == VECTORS["rfc9474"]["blind_signature"]
    signature = unblind_signature(signed, blinded, modulus, factor)
    assert sha256(signature) == VECTORS["rfc9474"]["signature"]
    assert pow(int.from_bytes(signature, "big"), EXPONENT, modulus) == encode_message(
        message, salt, 4095
    )


@pytest.mark.parametrize("number", [0, 1])
def test_a_token_is_that_of_rfc_9578(number: int) -> None:
    vector = VECTORS["rfc9578"]["vectors"][number]
    content = {name: bytes.fromhex(text) for name, text in vector.items()}
    key = BlindKey(bytes.fromhex(VECTORS["rfc9578"]["key"]))
    verifies = TokenVerifier(key, hashlib.sha256(content["challenge"]).digest())
    factor = int(vector["blind"], 16)
    asked = TokenRequest.new(verifies, nonce=content["nonce"], salt=content["salt"], factor=factor)
    assert sha256(asked.request) == vector["request"]
    assert verifies.nonce_of(content["token"]) == content["nonce"]
    signature = int.from_bytes(content["token"][-MODULUS_BYTES:], "big")
    response = (signature * factor % key.modulus).to_bytes(MODULUS_BYTES, "big")
    assert sha256(response) == vector["response"]
    assert asked.token(verifies, response) == content["token"]


def test_a_challenge_is_that_of_rfc_9577() -> None:
    """The last vector of RFC 9578 has a redemption context and no origin, as ours."""
    context = bytes.fromhex("8e7acc900e393381e8810b7c9e4a68b5163f1f880ab6688a6ffe780923609e88")
    assert (
        challenge_of("issuer.example", context).hex()
        == "0002000e6973737565722e6578616d706c65208e7acc900e393381e8810b7c9e4a68b5163f1f880ab6688a"
        "6ffe780923609e880000"
    )
    assert issuer_name("https://issuer.example:8443/a/b") == "issuer.example:8443"


def test_another_implementation_accepts_the_signature() -> None:
    """A key with the parameters of RSASSA-PSS, as another program parses the encoding."""
    from cryptography.hazmat.primitives.serialization import load_der_public_key

    loaded: Any = load_der_public_key(signer().public.spki)
    numbers = loaded.public_numbers()
    assert (numbers.n, numbers.e) == (signer().public.modulus, EXPONENT)
    message = b"a message that is signed without blinding"
    blinded = blind_message(message, bytes(48), numbers.n, 1)
    assert signer().public.is_signed(message, signer().signature(blinded))


def test_the_same_request_gets_the_same_token() -> None:
    verifies = verifier()
    asked = TokenRequest.new(verifies)
    answers = {signer().signature(blinded_message_of(asked.request, verifies.key)) for _ in "12"}
    [answer] = answers
    again = TokenRequest(asked.request, asked.secret)
    assert again.token(verifies, answer) == asked.token(verifies, answer)
    assert TokenRequest.new(verifies).request != asked.request


def test_tokens_of_other_collections_issuers_and_keys_are_refused() -> None:
    good = token(verifier())
    assert verifier().nonce_of(good) == good[2:34]
    another_key = TokenVerifier.of(URL, BlindSigner.new().public.spki, bytes(32))
    others = (verifier(b"\1" * 32), verifier(url="https://other.example/token-request"))
    for other in (*others, another_key):
        with pytest.raises(TokenRejected, match="not valid for this collection"):
            other.nonce_of(good)


def test_damaged_tokens_are_refused_with_one_sentence() -> None:
    verifies = verifier()
    good = token(verifies)
    chance = random.Random(7)
    damaged = [b"", good[:-1], good + b"\0", bytes(354), b"\xff" * 354]
    for place in [*range(2, 98, 7), *range(98, 354, 29)]:
        changed = bytearray(good)
        changed[place] ^= 1 << chance.randrange(8)
        damaged.append(bytes(changed))
    damaged += [(3).to_bytes(2, "big") + good[2:], chance.randbytes(354)]
    sentences = set()
    for bad in damaged:
        with pytest.raises(TokenRejected) as raised:
            verifies.nonce_of(bad)
        sentences.add(str(raised.value))
    assert len(sentences) == 1


def test_an_answer_that_is_not_the_signature_makes_no_token() -> None:
    verifies = verifier()
    asked = TokenRequest.new(verifies)
    right = signer().signature(asked.request[3:])
    other = signer().signature(TokenRequest.new(verifies).request[3:])
    for answer in (b"", right[:-1], right + b"\0", other, bytes(256), b"\xff" * 256):
        with pytest.raises(SignatureRejected):
            asked.token(verifies, answer)
    assert asked.token(verifies, right)


def test_a_key_of_another_kind_is_refused() -> None:
    spki = signer().public.spki
    assert len(spki) == SPKI_BYTES == 342
    even = bytearray(spki)
    even[-6] &= 0xFE
    short = bytearray(spki)
    short[len(spki) - 5 - MODULUS_BYTES] &= 0x7F
    plain = spki[:1] + b"\x00" + spki[2:]
    exponent = spki[:-1] + b"\x03"
    for bad in (b"", spki[:-1], bytes(even), bytes(short), plain, exponent):
        with pytest.raises(PlanError, match="RSA key of 2,048 bits"):
            BlindKey(bad)


def test_a_signer_refuses_what_is_no_blinded_message() -> None:
    modulus = signer().public.modulus
    for number in (0, modulus, 2**2048 - 1):
        with pytest.raises(SignatureRejected):
            signer().signature(number.to_bytes(256, "big"))
    key = signer().public
    asked = TokenRequest.new(verifier()).request
    other_key = asked[:2] + bytes([asked[2] ^ 1]) + asked[3:]
    for bad in (b"", asked[:-1], asked + b"\0", b"\0\1" + asked[2:], other_key):
        with pytest.raises(SignatureRejected):
            blinded_message_of(bad, key)


def test_blinding_hides_the_message() -> None:
    """With a small modulus, all factors: each message gives the same distribution of requests."""
    p, q, exponent = 11, 7, EXPONENT
    modulus = p * q
    units = [number for number in range(1, modulus) if number % p and number % q]

    def requests(message: int) -> list[int]:
        return sorted(message * pow(factor, exponent, modulus) % modulus for factor in units)

    assert all(requests(message) == sorted(units) for message in units)
    # A key for which 65537 divides p - 1: messages with a root still look alike.
    p = next(
        number
        for number in range(2 * EXPONENT + 1, 10**7, 2 * EXPONENT)
        if all(number % divisor for divisor in range(3, 4000, 2))
    )
    root = next(number for number in range(2, 50) if pow(number, (p - 1) // EXPONENT, p) != 1)
    power = pow(root, EXPONENT, p)
    some = {pow(factor, EXPONENT, p) for factor in range(1, 4000)}
    assert all(pow(number * power % p, (p - 1) // EXPONENT, p) == 1 for number in some)
    assert all(pow(number * root % p, (p - 1) // EXPONENT, p) != 1 for number in some)
