"""Admission by tokens: Privacy Pass tokens of type 2 (RFC 9577, RFC 9578), from another party.

An issuer, which is not a shuffler, signs one token for each person without seeing it. A token is
for one collection: its challenge contains the collection's digest, and the collection contains the
issuer's key. The client makes the challenge from these, so neither depends on the other.

    challenge = type u16 (2) | length u16, name of the issuer | 32, digest of the collection | 0 u16
    token     = type u16 (2) | nonce 32 | SHA-256 of the challenge 32 | key id 32 | signature 256
    request   = type u16 (2) | last byte of the key id | blinded message 256
    response  = blind signature 256

Numbers have their high byte first. The signature is of everything before it.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from urllib.parse import urlsplit

from metricshuffle.collection.blind_signatures import (
    MODULUS_BYTES,
    SALT_BYTES,
    BlindKey,
    SignatureRejected,
    blind_message,
    random_factor,
    unblind_signature,
)
from metricshuffle.collection.sealed_boxes import ADMISSION_TOKEN_BYTES
from metricshuffle.errors import MetricShuffleError

TOKEN_TYPE = (2).to_bytes(2, "big")
TOKEN_NONCE_BYTES = 32
REQUEST_BYTES = 3 + MODULUS_BYTES
REQUEST_MEDIA_TYPE = "application/private-token-request"
RESPONSE_MEDIA_TYPE = "application/private-token-response"


class TokenRejected(MetricShuffleError):
    """A token is not valid for this collection; the reason is never revealed."""


def issuer_name(url: str) -> str:
    """Name of the issuer with that address: its host, with the port if there is one."""
    return urlsplit(url).netloc


def challenge_of(name: str, digest: bytes) -> bytes:
    """TokenChallenge of a collection, without the names of origins (RFC 9577, section 2.1)."""
    text = name.encode()
    size = len(text).to_bytes(2, "big")
    return TOKEN_TYPE + size + text + bytes([len(digest)]) + digest + bytes(2)


@dataclass(frozen=True)
class TokenVerifier:
    """Verifies tokens of one collection."""

    key: BlindKey
    challenge: bytes
    """SHA-256 of the challenge."""

    @classmethod
    def of(cls, url: str, spki: bytes, digest: bytes) -> TokenVerifier:
        """Verifier for the collection with a digest, whose issuer has that address and key."""
        challenge = challenge_of(issuer_name(url), digest)
        return cls(BlindKey(spki), hashlib.sha256(challenge).digest())

    @cached_property
    def _end(self) -> bytes:
        return self.challenge + self.key.key_id

    def token_input(self, nonce: bytes) -> bytes:
        """Return the signed part of a token."""
        return TOKEN_TYPE + nonce + self._end

    def nonce_of(self, token: bytes) -> bytes:
        """Verify a token; return its nonce, under which it can be spent once."""
        nonce = token[len(TOKEN_TYPE) : len(TOKEN_TYPE) + TOKEN_NONCE_BYTES]
        signed = self.token_input(nonce)
        if (
            len(token) != ADMISSION_TOKEN_BYTES
            or token[: len(signed)] != signed
            or not self.key.is_signed(signed, token[len(signed) :])
        ):
            raise TokenRejected("this token is not valid for this collection.")
        return nonce

    def document(self) -> dict[str, str]:
        """Content for a process that verifies tokens too."""
        return {"key": self.key.spki.hex(), "challenge": self.challenge.hex()}

    @classmethod
    def from_document(cls, document: Mapping[str, str]) -> TokenVerifier:
        return cls(BlindKey(bytes.fromhex(document["key"])), bytes.fromhex(document["challenge"]))


@dataclass(frozen=True)
class TokenRequest:
    """Request for a token, and the secret that makes a token of the answer.

    Both are stored before the request is sent, so that the same bytes can be sent again.
    """

    request: bytes
    secret: bytes
    """Nonce and blinding factor."""

    @classmethod
    def new(
        cls,
        verifier: TokenVerifier,
        *,
        nonce: bytes | None = None,
        salt: bytes | None = None,
        factor: int | None = None,
    ) -> TokenRequest:
        """Make a request; its random parts are arguments only for test vectors."""
        key = verifier.key
        nonce = secrets.token_bytes(TOKEN_NONCE_BYTES) if nonce is None else nonce
        salt = secrets.token_bytes(SALT_BYTES) if salt is None else salt
        factor = random_factor(key.modulus) if factor is None else factor
        blinded = blind_message(verifier.token_input(nonce), salt, key.modulus, factor)
        return cls(
            TOKEN_TYPE + key.key_id[-1:] + blinded, nonce + factor.to_bytes(MODULUS_BYTES, "big")
        )

    def token(self, verifier: TokenVerifier, response: bytes) -> bytes:
        """Return the token; raises SignatureRejected unless the answer is a valid signature."""
        nonce, factor = self.secret[:TOKEN_NONCE_BYTES], self.secret[TOKEN_NONCE_BYTES:]
        key = verifier.key
        signature = unblind_signature(
            response,
            blinded_message_of(self.request, key),
            key.modulus,
            int.from_bytes(factor, "big"),
        )
        token = verifier.token_input(nonce) + signature
        verifier.nonce_of(token)
        return token


def blinded_message_of(request: bytes, key: BlindKey) -> bytes:
    """Blinded message of a request; raises SignatureRejected for another type, key or length."""
    if len(request) != REQUEST_BYTES or request[:3] != TOKEN_TYPE + key.key_id[-1:]:
        raise SignatureRejected("this is not a request for a token of this issuer's key.")
    return request[3:]
