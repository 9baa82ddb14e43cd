"""Ingestion of shares: open, check, encrypt and store each before acknowledging it."""

from __future__ import annotations

from dataclasses import dataclass

from metricshuffle.collection.adder.share_boxes import ShareFormat
from metricshuffle.collection.adder.sum_store import ShareEntry, SumRow, SumStore
from metricshuffle.collection.adder.sum_terms import SumCollection
from metricshuffle.collection.keys import CollectionKeys
from metricshuffle.collection.shuffler.ingest import Intake, IntakeOpener, NotOpenYet
from metricshuffle.collection.store.records import Entry, StoreError
from metricshuffle.collection.terms import origin_of

TAKING = ("open", "closed")
"""States in which reports are accepted, now or after an extension."""


@dataclass(frozen=True)
class ShareOpener:
    """Opens the shares of one sum for the adder at a place."""

    digest: str
    form: ShareFormat
    place: int
    keys: CollectionKeys
    origin: bytes = b""
    """Site of this adder."""

    @classmethod
    def of(cls, row: SumRow, keys: CollectionKeys) -> ShareOpener:
        collection = SumCollection(row.served)
        try:
            origin = origin_of(collection.terms.adders[row.place].url).encode()
        except ValueError:
            origin = b""  # a browser cannot open this address
        return cls(row.digest, collection.shares, row.place, keys, origin)

    @property
    def size(self) -> int:
        return self.form.report_size

    def entry(self, report: bytes) -> Entry:
        """Open a share and return what is stored of it; raises `NotOpened` for any defect.

        The key of the nonce is secret: otherwise two names with equal starts would share one.
        """
        part = self.form.part(report, self.place)
        ticket, share = self.form.opened(part, self.keys.private, self.place)
        name = self.form.name(part)
        return ShareEntry(
            name,
            self.keys.ticket_hash(ticket) if ticket else b"",
            self.keys.hidden(self.keys.tag(name), share),
            box=self.keys.tag(part.box),
        )

    def share(self, name: bytes, hidden: bytes) -> bytes:
        """Decrypt a stored share."""
        return self.keys.shown(self.keys.tag(name), hidden)


class ShareIntake(Intake):
    """Ingestion of an adder: one share of every report."""

    def _sum_row(self, digest: str) -> SumRow | None:
        if not isinstance(self.store, SumStore):
            raise StoreError("this is not the database of an adder.")
        return self.store.sum_row(digest)

    def _find_opener(self, digest: str) -> IntakeOpener | None:
        row = self._sum_row(digest)
        if row is None:
            return None
        if row.state not in TAKING:
            self._closed.add(digest)
            return None
        keys = None if self.keys is None else self.keys.of(row.key)
        if keys is None:
            raise StoreError("the keys of this sum are not here.")
        opener = self._openers[digest] = ShareOpener.of(row, keys)
        return opener

    def _has_ended(self, digest: str) -> bool:
        row = self._sum_row(digest)
        return row is None or row.state not in TAKING

    def _check_closed(self, opener: IntakeOpener) -> None:
        """Raise unless the sum has ended: before, it may still be extended, or is not open yet."""
        row = self._sum_row(opener.digest)
        if row is None or row.state not in TAKING:
            self._closed.add(opener.digest)
            self._openers.pop(opener.digest, None)
        elif self.store.now() < row.opens:
            raise NotOpenYet("this sum is not open yet.")
        else:
            raise StoreError("the adders compare what they have; the sum may be extended.")
