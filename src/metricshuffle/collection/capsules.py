"""Capsules of Oblivious HTTP (RFC 9458): requests for a gateway, and its answers.

    capsule = key id u8 | KEM u16 | KDF u16 | AEAD u16 | enc 32 | ciphertext of a request | tag 16
    answer  = nonce 16 | ciphertext of a response | tag 16

A gateway has a key of its own for each collection, whose configuration is a field of the
collection; see `binary_http` for requests and responses.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from metricshuffle.collection.hpke_context import (
    AEAD_KEY_BYTES,
    AEAD_NONCE_BYTES,
    HpkeContext,
    expand,
    extract,
)
from metricshuffle.collection.sealed_boxes import KEY_BYTES, NotOpened
from metricshuffle.errors import PlanError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

GATEWAY_PATH = "/.well-known/ohttp-gateway"
"""Path of every gateway (RFC 9540), the same for all collections of a shuffler."""
CAPSULE_TYPE = "message/ohttp-req"
ANSWER_TYPE = "message/ohttp-res"
KEY_PROBLEM = "https://iana.org/assignments/http-problem-types#ohttp-key"
"""Problem type of the answer to a capsule that does not open (RFC 9458, 5.3)."""
KEY_ID = 0
"""Id of all keys of a shuffler: it is not encrypted, and would name the collection."""
KEM_ID = b"\x00\x20"
ALGORITHMS = b"\x00\x01\x00\x01"
"""HKDF-SHA256 and AES-128-GCM."""
REQUEST_LABEL = b"message/bhttp request"
RESPONSE_LABEL = b"message/bhttp response"
HEAD_BYTES = 7
TAG_BYTES = 16
ADDED_TO_REQUEST = HEAD_BYTES + KEY_BYTES + TAG_BYTES
ADDED_TO_ANSWER = AEAD_KEY_BYTES + TAG_BYTES
PADDING_BYTES = 1024
"""A request is padded to a multiple of this."""
SHORT_ANSWER_BYTES = 512
"""Length of every response but a collection."""


def padded_size(size: int) -> int:
    """Length to which a request or a collection of `size` bytes is padded."""
    return -(-size // PADDING_BYTES) * PADDING_BYTES


@dataclass(frozen=True)
class KeyConfiguration:
    """Public key of a gateway, with its id and algorithms."""

    encoded: bytes

    @classmethod
    def of(cls, public: bytes, key_id: int = KEY_ID) -> KeyConfiguration:
        size = len(ALGORITHMS).to_bytes(2, "big")
        return cls(bytes([key_id]) + KEM_ID + public + size + ALGORITHMS)

    def __post_init__(self) -> None:
        """Raise unless it has our algorithms; others may follow them."""
        data = self.encoded
        start = 1 + len(KEM_ID) + KEY_BYTES
        offered = data[start + 2 :]
        choices = [offered[place : place + 4] for place in range(0, len(offered), 4)]
        if (
            len(data) < start + 2 + len(ALGORITHMS)
            or data[1:3] != KEM_ID
            or int.from_bytes(data[start : start + 2], "big") != len(offered)
            or len(offered) % len(ALGORITHMS)
            or ALGORITHMS not in choices
        ):
            raise PlanError(
                "the gateway of this collection has no key of a kind that is known here; "
                "use a newer version, or send without a relay."
            )

    @property
    def id(self) -> int:
        return self.encoded[0]

    @property
    def public(self) -> bytes:
        return self.encoded[1 + len(KEM_ID) :][:KEY_BYTES]

    @property
    def head(self) -> bytes:
        """Start of a capsule for this key."""
        return self.encoded[:1] + KEM_ID + ALGORITHMS

    @property
    def info(self) -> bytes:
        return REQUEST_LABEL + b"\0" + self.head

    def sealed(self, request: bytes, ephemeral: bytes | None = None) -> tuple[bytes, AnswerKey]:
        """Return a capsule for the gateway, and the key that opens its answer."""
        try:
            context = HpkeContext.sender(self.public, self.info, ephemeral)
        except ValueError:
            raise PlanError(
                "the gateway of this collection has an invalid public key; do not submit to it."
            ) from None
        capsule = self.head + context.enc + context.sealed(request)
        return capsule, AnswerKey.of(context)


@dataclass(frozen=True)
class AnswerKey:
    """Key of one answer, which client and gateway derive from a capsule."""

    enc: bytes
    secret: bytes

    @classmethod
    def of(cls, context: HpkeContext) -> AnswerKey:
        return cls(context.enc, context.exported(RESPONSE_LABEL, AEAD_KEY_BYTES))

    def sealed(self, response: bytes, nonce: bytes | None = None) -> bytes:
        """Encrypt a response; the nonce is given in test vectors only."""
        nonce = secrets.token_bytes(AEAD_KEY_BYTES) if nonce is None else nonce
        return nonce + self._crypt(nonce, response, is_opening=False)

    def opened(self, answer: bytes) -> bytes:
        """Decrypt an answer; raises `NotOpened`."""
        from cryptography.exceptions import InvalidTag

        try:
            nonce, sealed = answer[:AEAD_KEY_BYTES], answer[AEAD_KEY_BYTES:]
            return self._crypt(nonce, sealed, is_opening=True)
        except (InvalidTag, ValueError):
            raise NotOpened("this answer cannot be opened.") from None

    def _crypt(self, nonce: bytes, data: bytes, *, is_opening: bool) -> bytes:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        key = extract(self.enc + nonce, self.secret)
        cipher = AESGCM(expand(key, b"key", AEAD_KEY_BYTES))
        of_key = expand(key, b"nonce", AEAD_NONCE_BYTES)
        return bytes((cipher.decrypt if is_opening else cipher.encrypt)(of_key, data, None))

    def __repr__(self) -> str:
        return f"AnswerKey(of {self.enc.hex()[:16]}...)"


@dataclass(frozen=True)
class GatewayKey:
    """Private key of a gateway for one collection."""

    data: bytes
    key_id: int = KEY_ID

    @cached_property
    def _private(self) -> X25519PrivateKey:
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

        return X25519PrivateKey.from_private_bytes(self.data)

    @cached_property
    def configuration(self) -> KeyConfiguration:
        return KeyConfiguration.of(self._private.public_key().public_bytes_raw(), self.key_id)

    def opened(self, capsule: bytes) -> tuple[bytes, AnswerKey]:
        """Return the request of a capsule, and the key for its answer.

        Raises: NotOpened, the same for all failures.
        """
        from cryptography.exceptions import InvalidTag

        configuration = self.configuration
        enc, sealed = capsule[HEAD_BYTES:][:KEY_BYTES], capsule[HEAD_BYTES + KEY_BYTES :]
        try:
            if not capsule.startswith(configuration.head):
                raise ValueError
            context = HpkeContext.recipient(
                enc, self._private, configuration.public, configuration.info
            )
            return context.opened(sealed), AnswerKey.of(context)
        except (InvalidTag, ValueError):
            raise NotOpened("this capsule cannot be opened.") from None

    def __repr__(self) -> str:
        return f"GatewayKey(of {self.configuration.public.hex()[:16]}...)"
