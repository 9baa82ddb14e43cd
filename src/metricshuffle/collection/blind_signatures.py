"""Blind RSA signatures (RFC 9474): RSABSSA-SHA384-PSS-Deterministic, as tokens of type 2 require.

A blinded message is uniform among all numbers that have a root of degree 65537 modulo the key,
whatever the message is, if it has a root itself. `unblind_signature` returns nothing unless the
signer's answer is that root. So nothing that the signer sees tells which signature resulted, also
if the key was made with bad intent.

Python's arithmetic takes time that depends on the numbers. A client uses each of its secret numbers
once, on its own machine. A signer answers strangers: `BlindSigner` is for tests and demonstrations.
"""

from __future__ import annotations

import hashlib
import math
import secrets
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from metricshuffle.errors import MetricShuffleError, PlanError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey

EXPONENT = 65537
MODULUS_BYTES = 256
SALT_BYTES = 48
"""Salt of the encoded message, as long as its hash."""
SPKI_START = bytes.fromhex(
    "30820152"  # SubjectPublicKeyInfo
    "303d06092a864886f70d01010a3030"  # id-RSASSA-PSS
    "a00d300b0609608648016503040202"  # SHA-384
    "a11a301806092a864886f70d010108300b0609608648016503040202"  # MGF1 with SHA-384
    "a203020130"  # salt of 48 bytes
    "0382010f003082010a0282010100"  # RSAPublicKey: the modulus follows
)
SPKI_END = b"\x02\x03" + EXPONENT.to_bytes(3, "big")
SPKI_BYTES = len(SPKI_START) + MODULUS_BYTES + len(SPKI_END)
"""Length of a public key: 2048 bits, exponent 65537, in the encoding of RFC 9578, section 6.5."""


class SignatureRejected(MetricShuffleError):
    """An answer of a signer is not a signature of the message."""


@dataclass(frozen=True)
class BlindKey:
    """Public key of a signer, in the encoding of RFC 9578: RSASSA-PSS, 2048 bits."""

    spki: bytes

    def __post_init__(self) -> None:
        if (
            len(self.spki) != SPKI_BYTES
            or not self.spki.startswith(SPKI_START)
            or not self.spki.endswith(SPKI_END)
            or self.modulus.bit_length() != 8 * MODULUS_BYTES
            or not self.modulus % 2
        ):
            raise PlanError(
                "the issuer's key must be an RSA key of 2,048 bits with the exponent 65537, "
                "encoded as RFC 9578 asks (RSASSA-PSS with SHA-384)."
            )

    @classmethod
    def of_modulus(cls, modulus: int) -> BlindKey:
        return cls(SPKI_START + modulus.to_bytes(MODULUS_BYTES, "big") + SPKI_END)

    @cached_property
    def modulus(self) -> int:
        return int.from_bytes(self.spki[len(SPKI_START) : -len(SPKI_END)], "big")

    @cached_property
    def key_id(self) -> bytes:
        """SHA-256 of the encoded key."""
        return hashlib.sha256(self.spki).digest()

    @cached_property
    def _public(self) -> RSAPublicKey:
        from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicNumbers

        return RSAPublicNumbers(EXPONENT, self.modulus).public_key()

    def is_signed(self, message: bytes, signature: bytes) -> bool:
        """Return whether a signature is valid."""
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric.padding import MGF1, PSS

        try:
            self._public.verify(
                signature, message, PSS(MGF1(hashes.SHA384()), SALT_BYTES), hashes.SHA384()
            )
        except (InvalidSignature, ValueError):
            return False
        return True


@dataclass(frozen=True)
class BlindSigner:
    """Private key of a signer, for tests and demonstrations: its time depends on its secrets."""

    private: RSAPrivateKey

    @classmethod
    def new(cls) -> BlindSigner:
        from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key

        return cls(generate_private_key(EXPONENT, 8 * MODULUS_BYTES))

    @cached_property
    def public(self) -> BlindKey:
        return BlindKey.of_modulus(self.private.public_key().public_numbers().n)

    @cached_property
    def _parts(self) -> tuple[int, int, int, int, int]:
        numbers = self.private.private_numbers()
        return numbers.p, numbers.q, numbers.dmp1, numbers.dmq1, numbers.iqmp

    def signature(self, blinded: bytes) -> bytes:
        """Sign a blinded message; equal messages have equal signatures."""
        number = int.from_bytes(blinded, "big")
        if len(blinded) != MODULUS_BYTES or not 0 < number < self.public.modulus:
            raise SignatureRejected("this is not a blinded message for this key.")
        p, q, dp, dq, inverse = self._parts
        of_q = pow(number, dq, q)
        root = of_q + q * (inverse * (pow(number, dp, p) - of_q) % p)
        if pow(root, EXPONENT, self.public.modulus) != number:  # a fault would reveal the key
            raise SignatureRejected("the signature could not be made.")
        return root.to_bytes(MODULUS_BYTES, "big")

    def __repr__(self) -> str:
        return f"BlindSigner({self.public.key_id.hex()[:16]}...)"


def encode_message(message: bytes, salt: bytes, bits: int) -> int:
    """Encode a message for a signature of some bits (EMSA-PSS of RFC 8017, with SHA-384)."""
    size = -(-bits // 8)
    digest = hashlib.sha384(bytes(8) + hashlib.sha384(message).digest() + salt).digest()
    data = b"\x01" + salt
    block = int.from_bytes(data, "big") ^ int.from_bytes(_mask(digest, size - 49), "big")
    block &= (1 << (bits - 8 * (len(digest) + 1))) - 1
    return int.from_bytes(block.to_bytes(size - 49, "big") + digest + b"\xbc", "big")


def _mask(seed: bytes, size: int) -> bytes:
    """Mask of some bytes (MGF1 with SHA-384)."""
    blocks = (
        hashlib.sha384(seed + place.to_bytes(4, "big")).digest() for place in range(-(-size // 48))
    )
    return b"".join(blocks)[:size]


def random_factor(modulus: int) -> int:
    """Random number from 1 that has an inverse."""
    while True:
        factor = 1 + secrets.randbelow(modulus - 1)
        if math.gcd(factor, modulus) == 1:
            return factor


def blind_message(message: bytes, salt: bytes, modulus: int, factor: int) -> bytes:
    """Blind a message with a random factor, which must be used for this message only."""
    encoded = encode_message(message, salt, modulus.bit_length() - 1)
    if math.gcd(encoded, modulus) != 1:
        raise SignatureRejected("this message cannot be signed with this key.")
    size = -(-modulus.bit_length() // 8)
    return (encoded * pow(factor, EXPONENT, modulus) % modulus).to_bytes(size, "big")


def unblind_signature(signature: bytes, blinded: bytes, modulus: int, factor: int) -> bytes:
    """Check the signature of a blinded message, and remove the factor from it."""
    root = int.from_bytes(signature, "big")
    if len(signature) != len(blinded) or pow(root, EXPONENT, modulus) != int.from_bytes(
        blinded, "big"
    ):
        raise SignatureRejected(
            "the issuer's answer is not a signature by the key that the collection names."
        )
    return (root * pow(factor, -1, modulus) % modulus).to_bytes(len(blinded), "big")
