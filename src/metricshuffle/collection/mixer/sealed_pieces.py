"""Encrypted pieces in an object store: AES-256-GCM under a key of its own for every name.

    name = DIGEST/ATTEMPT/STAGE/NUMBER.<32 random hexadecimal digits>
    key  = HKDF(mix key of the attempt, whole name), nonce 0

The random part is drawn for every content, so no two contents share a key: a second try, or a mixer
that goes on although its task was given to another one, writes another name. The mix key is derived
from the storage secret of the collection, and is gone with it.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass

from metricshuffle.collection.keys import NONCE_BYTES, derive_key
from metricshuffle.collection.mixer.object_store import ObjectStore, PieceLost

NAME_BYTES = 16


@dataclass(frozen=True)
class PieceReceipt:
    """Name of a written piece, and SHA-256 of its encrypted bytes, for the table of tasks."""

    name: str
    digest: str


@dataclass(frozen=True)
class SealedPieces:
    """Pieces of one attempt to mix a collection."""

    objects: ObjectStore
    digest: str
    """Digest of the collection."""
    attempt: str
    mix_key: bytes

    @property
    def prefix(self) -> str:
        return f"{self.digest}/{self.attempt}"

    def write(self, place: str, content: bytes) -> str:
        """Encrypt and write a content under a new name; return the name."""
        name = self._new_name(place)
        self.objects.put(name, self.seal(name, content))
        return name

    def write_recorded(self, place: str, content: bytes) -> PieceReceipt:
        """Encrypt and write a content under a new name; return what the table records."""
        name = self._new_name(place)
        sealed = self.seal(name, content)
        self.objects.put(name, sealed)
        return PieceReceipt(name, hashlib.sha256(sealed).hexdigest())

    def _new_name(self, place: str) -> str:
        return f"{self.prefix}/{place}.{secrets.token_hex(NAME_BYTES)}"

    def read(self, name: str, digest: str = "") -> bytes:
        """Read and decrypt a piece, after comparing its digest if one was recorded.

        Raises: PieceLost if it is gone, or not what was written.
        """
        if not name.startswith(f"{self.prefix}/"):
            raise PieceLost("a piece belongs to another attempt; it is never read.")
        sealed = self.objects.get(name)
        if digest and hashlib.sha256(sealed).hexdigest() != digest:
            raise PieceLost("the object store returned other bytes than were written.")
        return self.open(name, sealed)

    def seal(self, name: str, content: bytes) -> bytes:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        return bytes(AESGCM(self._key(name)).encrypt(bytes(NONCE_BYTES), content, None))

    def open(self, name: str, sealed: bytes) -> bytes:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        try:
            return bytes(AESGCM(self._key(name)).decrypt(bytes(NONCE_BYTES), sealed, None))
        except InvalidTag:
            raise PieceLost(
                "a piece does not open: it was written under another name, or in another attempt."
            ) from None

    def _key(self, name: str) -> bytes:
        return derive_key(self.mix_key, f"piece {name}")

    def __repr__(self) -> str:
        return f"SealedPieces(of {self.prefix})"
