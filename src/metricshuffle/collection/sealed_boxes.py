"""Sealed boxes: each message sealed for the analyst, and all of a person's for the shuffler.

HPKE (RFC 9180) in base mode with X25519, HKDF-SHA256 and AES-128-GCM, from `cryptography`; this
module only chooses which bytes are sealed. There is no framing: every length follows from the task.

    info(layer) = "metricshuffle-box/1" and a zero byte | layer u8 | digest of the collection (32)
                  (layer 0: analyst, 1: last hop, .., k: first hop)
    box         = enc 32 | ciphertext of a payload | tag 16
    report      = enc 32 | ciphertext of (ticket 0, 16 or 354 | box * messages) | tag 16

A box for a chain is sealed once for each hop after the first, the analyst's layer innermost. Boxes
share nothing: one context or nonce for a whole report would link its messages again.

If shufflers add dummies, messages belong to piles that are never mixed with each other: a report
has the boxes of the first pile first, and every layer of a box is bound to its pile.

    info(layer, pile) = "metricshuffle-box/2" and a zero byte | layer u8 | digest (32) | pile u32
                        (little endian; a report itself, of the outermost layer, belongs to no pile)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING

from metricshuffle.errors import MetricShuffleError, PlanError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
    from cryptography.hazmat.primitives.hpke import Suite

INFO_PREFIX = b"metricshuffle-box/1\0"
PILE_PREFIX = b"metricshuffle-box/2\0"
PILE_BYTES = 4
ADDED = 48
"""Bytes that a layer adds: an ephemeral public key and a tag."""
KEY_BYTES = 32
DIGEST_BYTES = 32
TICKET_BYTES = 16
ADMISSION_TOKEN_BYTES = 354
"""Length of a token (`admission_tokens`), which is sealed in the place of a ticket."""
ANALYST_LAYER = 0


class NotOpened(MetricShuffleError):
    """A box is for another key or collection, or damaged; which of these is never revealed."""


@dataclass(frozen=True)
class BoxFormat:
    """Parameters of all boxes of a collection: its digest, the lengths and the piles."""

    digest: bytes
    payload: int
    messages: int
    ticket: int = 0
    hops: int = 1
    piles: int = 0
    """Number of piles that are mixed apart, each with equally many messages of a person; or 0."""

    def __post_init__(self) -> None:
        if (
            len(self.digest) != DIGEST_BYTES
            or self.ticket not in (0, TICKET_BYTES, ADMISSION_TOKEN_BYTES)
            or self.hops < 1
            or self.payload < 1
            or self.messages < 1
            or not 0 <= self.piles <= self.messages
            or (self.piles and self.messages % self.piles)
        ):
            raise PlanError("the lengths of this collection are invalid; do not take part.")

    def info(self, layer: int, pile: int = 0) -> bytes:
        """HPKE info, which binds a box to its layer and, inside a report, to its pile."""
        if self.piles and layer < self.hops:
            number = pile.to_bytes(PILE_BYTES, "little")
            return PILE_PREFIX + bytes([layer]) + self.digest + number
        return INFO_PREFIX + bytes([layer]) + self.digest

    @property
    def each(self) -> int:
        """Messages of a person in one pile."""
        return self.messages // max(1, self.piles)

    def box_size(self, layer: int = ANALYST_LAYER) -> int:
        """Bytes of a message as received by the party that opens a layer."""
        return self.payload + ADDED * (layer + 1)

    @property
    def inner_size(self) -> int:
        """Bytes of a message inside a report."""
        return self.box_size(self.hops - 1)

    @property
    def report_size(self) -> int:
        return self.ticket + self.messages * self.inner_size + ADDED

    def report(
        self, payloads: Sequence[bytes], keys: Sequence[PublicKey], ticket: bytes = b""
    ) -> bytes:
        """Seal the payloads of a person into a report.

        Each payload is sealed for the analyst and the hops after the first, and all together for
        the first hop.

        Args:
            keys: the analyst's, then the last hop's, and so on to the first.
        """
        return self.closed(self.boxes(payloads, keys[:-1]), keys[-1], ticket)

    def boxes(self, payloads: Sequence[bytes], keys: Sequence[PublicKey]) -> list[bytes]:
        """Seal each payload of a person for the analyst and the hops after the first."""
        if len(keys) != self.hops:
            raise PlanError(f"this collection has {self.hops} hops; its keys do not fit.")
        if len(payloads) != self.messages or any(
            len(payload) != self.payload for payload in payloads
        ):
            raise PlanError(
                f"a report of this collection must have {self.messages} messages of "
                f"{self.payload} bytes."
            )
        return [
            self.box(payload, place // self.each, keys) for place, payload in enumerate(payloads)
        ]

    def box(self, payload: bytes, pile: int, keys: Sequence[PublicKey]) -> bytes:
        """Seal one message of a pile for the analyst, and for the last hops up to some hop."""
        box = payload
        for layer, key in enumerate(keys):
            box = key.sealed(box, self.info(layer, pile))
        return box

    def closed(self, boxes: Sequence[bytes], key: PublicKey, ticket: bytes = b"") -> bytes:
        """Seal boxes and a ticket for the first hop; may be repeated with another ticket."""
        if (
            len(ticket) != self.ticket
            or len(boxes) != self.messages
            or any(len(box) != self.inner_size for box in boxes)
        ):
            raise PlanError(
                f"a report of this collection must have {self.messages} boxes and a ticket of "
                f"{self.ticket} bytes."
            )
        return key.sealed(ticket + b"".join(boxes), self.info(self.hops))

    def open_report(self, report: bytes, key: PrivateKey) -> tuple[bytes, list[bytes]]:
        """Open a report at the first hop: its ticket and its boxes.

        All failures raise the same error.
        """
        if len(report) != self.report_size:
            raise NotOpened("this report cannot be opened.")
        inside = key.opened(report, self.info(self.hops))
        size = self.inner_size
        boxes = inside[self.ticket :]
        return inside[: self.ticket], [
            boxes[start : start + size] for start in range(0, len(boxes), size)
        ]

    def open_box(
        self, box: bytes, key: PrivateKey, layer: int = ANALYST_LAYER, pile: int = 0
    ) -> bytes:
        """Open a box of a pile at a later hop, or at the analyst."""
        if len(box) != self.box_size(layer):
            raise NotOpened("this message cannot be opened.")
        return key.opened(box, self.info(layer, pile))


@dataclass(frozen=True)
class PublicKey:
    """Public key to seal for."""

    data: bytes

    def __post_init__(self) -> None:
        _ = self._key
        # On first use the library rejects low-order points, whose shared secret is public.
        try:
            self.sealed(b"", b"")
        except ValueError:
            raise PlanError(
                "the collection contains an invalid public key; do not submit to it."
            ) from None

    @cached_property
    def _key(self) -> X25519PublicKey:
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

        if len(self.data) != KEY_BYTES:
            raise PlanError(f"a public key must have {KEY_BYTES} bytes, got {len(self.data)}.")
        return X25519PublicKey.from_public_bytes(self.data)

    def sealed(self, plain: bytes, info: bytes) -> bytes:
        return bytes(_suite().encrypt(plain, self._key, info))


@dataclass(frozen=True)
class PrivateKey:
    """Private key, which is never printed."""

    _data: bytes

    @classmethod
    def new(cls) -> PrivateKey:
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

        return cls(X25519PrivateKey.generate().private_bytes_raw())

    @property
    def data(self) -> bytes:
        return self._data

    @cached_property
    def _key(self) -> X25519PrivateKey:
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

        return X25519PrivateKey.from_private_bytes(self._data)

    @cached_property
    def public(self) -> PublicKey:
        return PublicKey(self._key.public_key().public_bytes_raw())

    def opened(self, sealed: bytes, info: bytes) -> bytes:
        """Decrypt bytes sealed for this key and `info`; all failures raise the same error."""
        from cryptography.exceptions import InvalidTag

        try:
            return bytes(_suite().decrypt(sealed, self._key, info))
        except (InvalidTag, ValueError):
            raise NotOpened("this cannot be opened.") from None

    def __repr__(self) -> str:
        return f"PrivateKey(of {self.public.data.hex()[:16]}...)"


@cache
def _suite() -> Suite:
    from cryptography.hazmat.primitives import hpke

    return hpke.Suite(hpke.KEM.X25519, hpke.KDF.HKDF_SHA256, hpke.AEAD.AES_128_GCM)
