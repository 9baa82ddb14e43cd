"""Signatures (Ed25519) around the one set of messages of a collection that may leave a shuffler.

The shuffler signs what it asks its witness for, so that nobody else can ask in its place. The witness countersigns the first set that it is
asked about, and no other; everybody can check that with the key that the collection names.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from metricshuffle.collection.sealed_boxes import KEY_BYTES
from metricshuffle.collection.terms import Collection

REQUEST, COUNTERSIGNED = b"metricshuffle witness request/1\0", b"metricshuffle countersignature/1\0"
"""What a signature is about: neither can be taken for the other."""
SIGNATURE_BYTES = 64


@dataclass(frozen=True)
class SigningKey:
    """A shuffler's: for what it asks its witness, and for what it countersigns as the witness of others."""

    secret: bytes

    @classmethod
    def new(cls) -> SigningKey:
        return cls(secrets.token_bytes(KEY_BYTES))

    @cached_property
    def _private(self) -> Any:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        return Ed25519PrivateKey.from_private_bytes(self.secret)

    @cached_property
    def public(self) -> str:
        """In hexadecimal digits."""
        return bytes(self._private.public_key().public_bytes_raw()).hex()

    def signed(self, message: bytes) -> str:
        """The signature, in hexadecimal digits: the same every time."""
        return bytes(self._private.sign(message)).hex()

    def __repr__(self) -> str:
        return f"SigningKey(of {self.public[:16]}...)"


def is_signed(public: str, message: bytes, signature: str) -> bool:
    """Whether this is the signature of a message with the private half of that key; both are hexadecimal digits."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(public)).verify(bytes.fromhex(signature), message)
    except (InvalidSignature, ValueError):
        return False
    return True


@dataclass(frozen=True)
class Claim:
    """That a collection lets go a set of messages at one of its shufflers. All three are 64 hexadecimal digits."""

    collection: str
    asker: str
    """The key with which that shuffler signs."""
    output: str
    """SHA-256 of the messages."""

    @property
    def _said(self) -> bytes:
        return bytes.fromhex(self.collection + self.asker + self.output)

    def request(self, witness: str) -> bytes:
        """What the shuffler signs to ask the witness with that key."""
        return REQUEST + bytes.fromhex(witness) + self._said

    @property
    def countersigned(self) -> bytes:
        """What the witness signs."""
        return COUNTERSIGNED + self._said


def is_countersigned(collection: Collection, place: int, output: str, signature: str) -> bool:
    """Whether the shuffler of some place may let go these messages: its witness says so, or the collection names none for it."""
    witness = collection.terms.hops[place].witness
    return witness is None or is_signed(witness.key, Claim(collection.digest, witness.asker, output).countersigned, signature)
