"""Signatures (Ed25519) of the only output of a collection that a shuffler may release.

The shuffler signs its requests to the witness, so that no other party can ask in its place. The
witness countersigns the first output that it is asked about, and no other; anyone can check the
countersignature with the key that the collection names.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from metricshuffle.collection.sealed_boxes import KEY_BYTES
from metricshuffle.collection.terms import Collection

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

REQUEST = b"metricshuffle witness request/1\0"
COUNTERSIGNED = b"metricshuffle countersignature/1\0"
"""Prefixes of signed messages, so that neither can be used as the other."""
SIGNATURE_BYTES = 64


@dataclass(frozen=True)
class SigningKey:
    """Signing key of a shuffler, to ask its witness and to countersign as the witness of others."""

    secret: bytes

    @classmethod
    def new(cls) -> SigningKey:
        return cls(secrets.token_bytes(KEY_BYTES))

    @cached_property
    def _private(self) -> Ed25519PrivateKey:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        return Ed25519PrivateKey.from_private_bytes(self.secret)

    @cached_property
    def public(self) -> str:
        """Public key in hexadecimal digits."""
        return bytes(self._private.public_key().public_bytes_raw()).hex()

    def signed(self, message: bytes) -> str:
        """Deterministic signature in hexadecimal digits."""
        return bytes(self._private.sign(message)).hex()

    def __repr__(self) -> str:
        return f"SigningKey(of {self.public[:16]}...)"


def is_signed(public: str, message: bytes, signature: str) -> bool:
    """Return whether a signature is valid; key and signature are hexadecimal digits."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(public)).verify(
            bytes.fromhex(signature), message
        )
    except (InvalidSignature, ValueError):
        return False
    return True


@dataclass(frozen=True)
class Claim:
    """Claim that a shuffler releases an output of a collection; fields of 64 hexadecimal digits."""

    collection: str
    asker: str
    """Key of the shuffler that signs the claim."""
    output: str
    """SHA-256 of the messages."""

    @property
    def _said(self) -> bytes:
        return bytes.fromhex(self.collection + self.asker + self.output)

    def request(self, witness: str) -> bytes:
        """Message that the shuffler signs to ask the witness with the given key."""
        return REQUEST + bytes.fromhex(witness) + self._said

    @property
    def countersigned(self) -> bytes:
        """Message that the witness signs."""
        return COUNTERSIGNED + self._said


def is_countersigned(collection: Collection, place: int, output: str, signature: str) -> bool:
    """Return whether the witness of a hop countersigned its output; True if the hop has none."""
    witness = collection.terms.hops[place].witness
    return witness is None or is_signed(
        witness.key, Claim(collection.digest, witness.asker, output).countersigned, signature
    )
