"""HPKE (RFC 9180) with its exporter, which Oblivious HTTP needs and `cryptography` does not have.

Base mode with X25519, HKDF-SHA256 and AES-128-GCM, written with the primitives of `cryptography`.
A context seals or opens one message. Sealed boxes do not use it.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

KEM = b"KEM\x00\x20"
SUITE = b"HPKE\x00\x20\x00\x01\x00\x01"
"""Identifiers of DHKEM(X25519, HKDF-SHA256), and of it with HKDF-SHA256 and AES-128-GCM."""
HASH_BYTES = 32
AEAD_KEY_BYTES = 16
AEAD_NONCE_BYTES = 12


def extract(salt: bytes, material: bytes) -> bytes:
    """HKDF-Extract (RFC 5869) with SHA-256."""
    return hmac.digest(salt or bytes(HASH_BYTES), material, "sha256")


def expand(key: bytes, info: bytes, size: int) -> bytes:
    """HKDF-Expand with SHA-256, for up to 32 bytes."""
    return hmac.digest(key, info + b"\x01", "sha256")[:size]


def _extract(salt: bytes, label: bytes, material: bytes, suite: bytes = SUITE) -> bytes:
    return extract(salt, b"HPKE-v1" + suite + label + material)


def _expand(key: bytes, label: bytes, info: bytes, size: int, suite: bytes = SUITE) -> bytes:
    return expand(key, size.to_bytes(2, "big") + b"HPKE-v1" + suite + label + info, size)


@lru_cache(maxsize=16)
def _schedule(info: bytes) -> bytes:
    return b"\x00" + _extract(b"", b"psk_id_hash", b"") + _extract(b"", b"info_hash", info)


@dataclass(frozen=True)
class HpkeContext:
    """Context for one message, with the same keys on both sides."""

    enc: bytes
    """Encapsulated key."""
    _secret: bytes = field(repr=False)
    _schedule: bytes = field(repr=False)

    @classmethod
    def sender(cls, public: bytes, info: bytes, ephemeral: bytes | None = None) -> HpkeContext:
        """Context of the sender to a public key; raises `ValueError` if the key is invalid.

        The ephemeral key is given in test vectors only.
        """
        from cryptography.hazmat.primitives.asymmetric.x25519 import (
            X25519PrivateKey,
            X25519PublicKey,
        )

        private = (
            X25519PrivateKey.generate()
            if ephemeral is None
            else X25519PrivateKey.from_private_bytes(ephemeral)
        )
        shared = private.exchange(X25519PublicKey.from_public_bytes(public))
        return cls._of(private.public_key().public_bytes_raw(), public, shared, info)

    @classmethod
    def recipient(
        cls, enc: bytes, private: X25519PrivateKey, public: bytes, info: bytes
    ) -> HpkeContext:
        """Context of the recipient; raises `ValueError` if the encapsulated key is invalid."""
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

        return cls._of(enc, public, private.exchange(X25519PublicKey.from_public_bytes(enc)), info)

    @classmethod
    def _of(cls, enc: bytes, public: bytes, exchanged: bytes, info: bytes) -> HpkeContext:
        key = _extract(b"", b"eae_prk", exchanged, KEM)
        shared = _expand(key, b"shared_secret", enc + public, HASH_BYTES, KEM)
        return cls(enc, _extract(shared, b"secret", b""), _schedule(info))

    def sealed(self, plain: bytes, aad: bytes = b"") -> bytes:
        """Encrypt the only message."""
        return self._crypt(plain, aad, is_opening=False)

    def opened(self, sealed: bytes, aad: bytes = b"") -> bytes:
        """Decrypt the only message; raises `InvalidTag`."""
        return self._crypt(sealed, aad, is_opening=True)

    def _crypt(self, data: bytes, aad: bytes, *, is_opening: bool) -> bytes:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        cipher = AESGCM(_expand(self._secret, b"key", self._schedule, AEAD_KEY_BYTES))
        nonce = _expand(self._secret, b"base_nonce", self._schedule, AEAD_NONCE_BYTES)
        return bytes((cipher.decrypt if is_opening else cipher.encrypt)(nonce, data, aad or None))

    def exported(self, context: bytes, size: int) -> bytes:
        """Secret that both sides derive for another purpose, of up to 32 bytes."""
        exporter = _expand(self._secret, b"exp", self._schedule, HASH_BYTES)
        return _expand(exporter, b"sec", context, size)
