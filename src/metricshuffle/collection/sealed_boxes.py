"""Sealed boxes: every message to the analyst by itself, and all of a person's in one box to the shuffler.

HPKE (RFC 9180) in base mode with X25519, HKDF-SHA256 and AES-128-GCM, from `cryptography`; nothing here is of our own making but which
bytes are sealed. There is no framing: every length follows from the task.

    info(layer) = "metricshuffle-box/1" and a zero byte | layer u8 (0 analyst, 1 last hop .. k first) | digest of the collection (32)
    box         = enc 32 | ciphertext of a payload | tag 16
    report      = enc 32 | ciphertext of (ticket 0 or 16 | box * messages) | tag 16

A box for a chain is sealed once for each hop behind the first, the analyst's layer innermost. Nothing that two boxes share is inside or
around them: one context or nonce for a whole report would link its messages again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

from metricshuffle.errors import MetricShuffleError, PlanError

INFO_PREFIX = b"metricshuffle-box/1\0"
ADDED = 48
"""Bytes that a layer adds: a fresh public key and a tag."""
KEY_BYTES, DIGEST_BYTES, TICKET_BYTES = 32, 32, 16
ANALYST_LAYER = 0


class NotOpened(MetricShuffleError):
    """A box that is not for us, of another collection, or damaged: which of these is never told."""


@dataclass(frozen=True)
class BoxFormat:
    """What is the same for every box of a collection: its digest, the keys from the analyst's outwards, and the lengths."""

    digest: bytes
    payload: int
    messages: int
    ticket: int = 0
    hops: int = 1

    def __post_init__(self) -> None:
        if (
            len(self.digest) != DIGEST_BYTES
            or self.ticket not in (0, TICKET_BYTES)
            or self.hops < 1
            or self.payload < 1
            or self.messages < 1
        ):
            raise PlanError("the lengths of this collection cannot be; do not take part.")

    def info(self, layer: int) -> bytes:
        """What a box of that layer is bound to."""
        return INFO_PREFIX + bytes([layer]) + self.digest

    def box_size(self, layer: int = ANALYST_LAYER) -> int:
        """Bytes of one message as whoever opens that layer gets it."""
        return self.payload + ADDED * (layer + 1)

    @property
    def inner_size(self) -> int:
        """Bytes of one message inside a report."""
        return self.box_size(self.hops - 1)

    @property
    def report_size(self) -> int:
        return self.ticket + self.messages * self.inner_size + ADDED

    def report(self, payloads: Sequence[bytes], keys: Sequence[PublicKey], ticket: bytes = b"") -> bytes:
        """A person's payloads sealed: each by itself for the analyst and the hops behind the first, all together for the first.

        `keys` are the analyst's, then the last hop's, and so on to the first.
        """
        return self.closed(self.boxes(payloads, keys[:-1]), keys[-1], ticket)

    def boxes(self, payloads: Sequence[bytes], keys: Sequence[PublicKey]) -> list[bytes]:
        """A person's payloads sealed one by one, for the analyst and the hops behind the first."""
        if len(keys) != self.hops:
            raise PlanError(f"this collection has {self.hops} hops; its keys do not fit.")
        if len(payloads) != self.messages or any(len(payload) != self.payload for payload in payloads):
            raise PlanError(f"a report of this collection is {self.messages} messages of {self.payload} bytes.")
        boxes = list(payloads)
        for layer, key in enumerate(keys):
            boxes = [key.sealed(box, self.info(layer)) for box in boxes]
        return boxes

    def closed(self, boxes: Sequence[bytes], key: PublicKey, ticket: bytes = b"") -> bytes:
        """Boxes sealed for the first hop, with a ticket. The same boxes may be closed again if their ticket was refused."""
        if len(ticket) != self.ticket or len(boxes) != self.messages or any(len(box) != self.inner_size for box in boxes):
            raise PlanError(f"a report of this collection is {self.messages} boxes and a ticket of {self.ticket} bytes; these do not fit.")
        return key.sealed(ticket + b"".join(boxes), self.info(self.hops))

    def open_report(self, report: bytes, key: PrivateKey) -> tuple[bytes, list[bytes]]:
        """First hop: the ticket and the boxes of a report. One error, whatever is wrong."""
        if len(report) != self.report_size:
            raise NotOpened("this report cannot be opened.")
        inside = key.opened(report, self.info(self.hops))
        size, boxes = self.inner_size, inside[self.ticket :]
        return inside[: self.ticket], [boxes[start : start + size] for start in range(0, len(boxes), size)]

    def open_box(self, box: bytes, key: PrivateKey, layer: int = ANALYST_LAYER) -> bytes:
        """A later hop, or the analyst: what is inside a box of that layer."""
        if len(box) != self.box_size(layer):
            raise NotOpened("this message cannot be opened.")
        return key.opened(box, self.info(layer))


@dataclass(frozen=True)
class PublicKey:
    """Whom something is sealed for."""

    data: bytes

    def __post_init__(self) -> None:
        _ = self._key
        try:  # some points give a secret that everybody knows; the library refuses them when it first seals
            self.sealed(b"", b"")
        except ValueError:
            raise PlanError("a public key of this collection is none that can keep a secret; do not take part.") from None

    @cached_property
    def _key(self) -> Any:
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

        if len(self.data) != KEY_BYTES:
            raise PlanError(f"a public key has {KEY_BYTES} bytes, and this one has {len(self.data)}.")
        return X25519PublicKey.from_public_bytes(self.data)

    def sealed(self, plain: bytes, info: bytes) -> bytes:
        return bytes(_suite().encrypt(plain, self._key, info))


@dataclass(frozen=True)
class PrivateKey:
    """What opens; it is never printed."""

    _data: bytes

    @classmethod
    def new(cls) -> PrivateKey:
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

        return cls(X25519PrivateKey.generate().private_bytes_raw())

    @property
    def data(self) -> bytes:
        return self._data

    @cached_property
    def _key(self) -> Any:
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

        return X25519PrivateKey.from_private_bytes(self._data)

    @cached_property
    def public(self) -> PublicKey:
        return PublicKey(self._key.public_key().public_bytes_raw())

    def opened(self, sealed: bytes, info: bytes) -> bytes:
        """What was sealed for this key and bound to `info`; one error, whatever is wrong."""
        from cryptography.exceptions import InvalidTag

        try:
            return bytes(_suite().decrypt(sealed, self._key, info))
        except (InvalidTag, ValueError):
            raise NotOpened("this cannot be opened.") from None

    def __repr__(self) -> str:
        return f"PrivateKey(of {self.public.data.hex()[:16]}...)"


@cache
def _suite() -> Any:
    from cryptography.hazmat.primitives import hpke

    return hpke.Suite(hpke.KEM.X25519, hpke.KDF.HKDF_SHA256, hpke.AEAD.AES_128_GCM)
