"""Leases of the keys of open collections to edges: granted, renewed, ended.

Before a key leaves, its lease is durable in the list beside the keys, and has its part in the
database. An edge uses a lease for 0.8 of its duration after asking for it; at the hub it expires
after 1.2 of its duration. An ended lease guarantees only that its part is closed: no report is ever
stored in it again.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from metricshuffle.collection.hub.lease_list import Lease, LeaseEnd, LeaseList
from metricshuffle.collection.keys import LEASE_BYTES, LeaseKeys
from metricshuffle.collection.shuffler.lifecycle import Shuffler
from metricshuffle.collection.shuffler.log_events import LogEvent, failure_text
from metricshuffle.collection.shuffler.output_files import do_nothing
from metricshuffle.collection.store.guarded_clock import steady_clock
from metricshuffle.collection.store.part_store import HubStore
from metricshuffle.collection.store.records import (
    CollectionRow,
    DatabaseRolledBack,
    StoreError,
)
from metricshuffle.collection.terms import Collection
from metricshuffle.errors import InputError, MetricShuffleError

LEASE_SECONDS = 60.0
EXPIRY = 1.2
"""Multiple of its duration after which the hub regards a lease as expired."""
CHECK_SECONDS = 1.0
MAX_EDGES = 200
"""Maximum number of edges that have leases at once."""


class LeaseDenied(MetricShuffleError):
    """There is no lease; `reason` is `unknown`, or `closed` if the collection has ended."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"no lease: {reason}.")
        self.reason = reason


class TooManyEdges(MetricShuffleError):
    """The hub leases keys to no further edge."""


@dataclass(frozen=True)
class LeaseGrant:
    """Answer to an edge that asks for a lease."""

    lease: bytes
    seconds: float
    until: float
    served: bytes


@dataclass
class LeaseOffice:
    """Leases of one hub."""

    shuffler: Shuffler
    store: HubStore
    seconds: float = LEASE_SECONDS
    log: Callable[[str], None] = do_nothing
    at: Callable[[str], None] = do_nothing
    """Called at every named point, where tests end the process."""
    mixers: Sequence[str] = ()
    """Subjects of the certificates of mixers, which decrypt what edges have stored."""
    _renewed: dict[bytes, float] = field(default_factory=dict)
    """Time of the steady clock when each lease was granted or renewed."""
    _silent: dict[bytes, float] = field(init=False)
    """Time since when a lease was not renewed, of leases that another process granted."""
    _first: dict[str, bool] = field(default_factory=dict)
    """Whether people send reports of a collection to this shuffler, by digest."""

    def __post_init__(self) -> None:
        leases = self.shuffler.leases
        self._silent = {} if leases is None else leases.start_silence(steady_clock())

    @property
    def leases(self) -> LeaseList:
        if self.shuffler.leases is None:
            raise StoreError("this shuffler leases no keys; start it with --role hub.")
        return self.shuffler.leases

    def grant(self, digest: str, edge: str) -> LeaseGrant:
        """Lease the keys of a collection; they are fetched by `keys`.

        Raises: LeaseDenied; TooManyEdges.
        """
        self._check_database()
        row = self.store.row(digest)
        if row is None or Collection(row.served).hop_index_of(row.key) != 0:
            raise LeaseDenied("unknown")
        self._check_open(digest)
        if not self.shuffler.keys.has(row.key):
            raise StoreError("the keys of this collection are not here.")
        edges = {line.edge for line in self.leases.living()}
        if len(edges) >= MAX_EDGES and edge not in edges:
            raise TooManyEdges(
                f"{len(edges):,} edges have leases of this hub already, which is its maximum; stop "
                "one of them, or wait until the leases of one that is gone have expired."
            )
        lease = secrets.token_bytes(LEASE_BYTES)
        self._renewed[lease] = steady_clock().seconds
        self.at("granting")
        self.leases.add(Lease(lease, digest, edge))
        self.at("lease line")
        until = self.store.add_part(digest, lease)
        self.at("part row")
        if until is None:
            self.leases.end(lease, "returned")  # no key has left
            self._check_open(digest)
            raise StoreError("reports are being counted.")
        self._log_lease(Lease(lease, digest, edge), "was granted", "granted")
        return LeaseGrant(lease, self.seconds, until, row.served)

    def _check_database(self) -> None:
        if trouble := self.store.history_trouble():
            raise DatabaseRolledBack(trouble)

    def open_collections(self) -> list[str]:
        """Digests of the collections whose keys are leased now.

        Edges lease all of them, whether or not reports come: otherwise leases, which are public,
        would show which edge got a first report.
        """
        now = self.store.now()
        rows = (row for row in self.store.rows() if row.state == "open" and now < row.until)
        return [row.digest for row in rows if self._is_leased(row)]

    def _is_leased(self, row: CollectionRow) -> bool:
        """Return whether people send reports of a collection here, and its keys are here."""
        if row.digest not in self._first:
            self._first[row.digest] = Collection(row.served).hop_index_of(row.key) == 0
        return self._first[row.digest] and self.shuffler.keys.has(row.key)

    def _check_open(self, digest: str) -> None:
        """Raise if the collection has ended; a write first confirms that it has."""
        row = self.store.row(digest)
        if row is None:
            raise LeaseDenied("unknown")
        if row.state != "open":
            self.store.confirm(digest, row.state)
            raise LeaseDenied("closed")

    def keys(self, lease: bytes, edge: str) -> LeaseKeys:
        """Return the keys of a living lease to the edge that has it."""
        self._check_database()
        line = self._living(lease, edge)
        row = self.store.row(line.digest)
        keys = None if row is None or row.state != "open" else self.shuffler.keys.of(row.key)
        part = self.store.part(lease)
        if keys is None or part is None or part.ended:
            raise LeaseDenied("closed")
        self.at("sending")
        return keys.lease(line.digest, lease)

    def renew(self, lease: bytes, edge: str) -> tuple[float, int]:
        """Renew a lease; return the end of the collection, and the room for reports.

        Raises: LeaseDenied if the lease or the collection has ended.
        """
        self._check_database()
        line = self._living(lease, edge)
        self._check_open(line.digest)
        if self._is_over(lease):
            raise LeaseDenied("unknown")
        asked = steady_clock().seconds
        part = self.store.add_room(line.digest, lease)
        if part is None or part.ended:
            raise LeaseDenied("unknown")
        if lease in self._silent:
            self.leases.end_silence(lease)
            self._silent.pop(lease, None)
        self._renewed[lease] = asked
        self.at("renewed")
        row = self.store.row(line.digest)
        return row.until if row is not None else 0.0, part.room - part.reports

    def grant_mixing(self, digest: str, mixer: str) -> LeaseGrant:
        """Lease the storage secret of a sealed collection to a mixer.

        Raises: LeaseDenied.
        """
        self._check_database()
        row = self.store.row(digest)
        if mixer not in self.mixers or row is None:
            raise LeaseDenied("unknown")
        if row.state != "sealed" or not self.shuffler.keys.has(row.key):
            raise LeaseDenied("closed")
        lease = secrets.token_bytes(LEASE_BYTES)
        self._renewed[lease] = steady_clock().seconds
        self.leases.add(Lease(lease, digest, mixer))
        self.at("mixing lease line")
        try:
            # Keys are destroyed only after a later state, when every lease in the list has ended.
            self.store.confirm(digest, "sealed")
        except StoreError:
            self.leases.end(lease, "returned")  # no key has left
            raise LeaseDenied("closed") from None
        self._log_lease(Lease(lease, digest, mixer), "was granted to a mixer", "granted")
        return LeaseGrant(lease, self.seconds, 0.0, row.served)

    def mixing_secret(self, lease: bytes, mixer: str) -> tuple[str, bytes]:
        """Return the public key and the storage secret of a collection to a mixer with a lease."""
        _, row = self._mixing(lease, mixer)
        keys = self.shuffler.keys.of(row.key)
        if keys is None:
            raise LeaseDenied("closed")
        self.at("sending")
        return row.key, keys.storage_secret

    def renew_mixing(self, lease: bytes, mixer: str) -> None:
        """Renew the lease of a mixer.

        Raises: LeaseDenied if the lease has ended, or the collection is mixed.
        """
        asked = steady_clock().seconds
        line, _ = self._mixing(lease, mixer)
        self._renewed[line.id] = asked

    def _mixing(self, lease: bytes, mixer: str) -> tuple[Lease, CollectionRow]:
        """Return a living lease of a mixer, and its sealed collection."""
        self._check_database()
        line = self._living(lease, mixer)
        row = self.store.row(line.digest)
        if mixer not in self.mixers or row is None or self._is_over(lease):
            raise LeaseDenied("unknown")
        if row.state != "sealed":
            raise LeaseDenied("closed")
        return line, row

    def give_back(self, lease: bytes, edge: str) -> None:
        """End a lease whose edge says that all openers have exited."""
        line = self.leases.find(lease)
        if line is not None and line.edge == edge:
            self._end(line, "returned")

    def confirm(self, prefix: str) -> str:
        """End a lease on the operator's word that its machine is destroyed; return a sentence."""
        lines = [line for line in self._all() if line.id.hex().startswith(prefix.lower())]
        if len(prefix) < 8 or len(lines) != 1:
            raise InputError("a lease is named by at least 8 hexadecimal digits of its id.")
        self._end(lines[0], "confirmed")
        return f"Lease {lines[0].id.hex()[:8]} was confirmed to have ended."

    def _all(self) -> list[Lease]:
        return [line for row in self.store.rows() for line in self.leases.of(row.digest)]

    def _living(self, lease: bytes, edge: str) -> Lease:
        line = self.leases.find(lease)
        if line is None or line.ended or line.edge != edge:
            raise LeaseDenied("unknown")
        return line

    def _is_over(self, lease: bytes) -> bool:
        now = steady_clock().seconds
        since = self._renewed.get(lease)
        if since is None:
            since = self._silent.setdefault(lease, now)
        return not now - since <= EXPIRY * self.seconds

    def expire(self) -> None:
        """End all leases whose time has passed."""
        for line in self.leases.living():
            if self._is_over(line.id):
                self._end(line, "expired")

    def _end(self, line: Lease, end: LeaseEnd) -> None:
        """Close the part for good, then end the lease in the list."""
        if self.store.row(line.digest) is not None:
            self.store.end_part(line.digest, line.id)
        self.at("part ended")
        self.leases.end(line.id, end)
        self._renewed.pop(line.id, None)
        self._log_lease(line, "has expired" if end == "expired" else f"was {end}", end)

    def _log_lease(self, line: Lease, text: str, phase: str) -> None:
        name = line.id.hex()[:8]
        fields = {"lease": name, "collection": line.digest, "edge": line.edge, "phase": phase}
        text = f"Lease {name} of collection {line.digest[:16]} {text}."
        self.log(LogEvent(text, "lease", **fields))

    def run(self, stop: threading.Event) -> None:
        """Expire leases until `stop` is set."""
        trouble = ""
        while not stop.wait(CHECK_SECONDS):
            try:
                self.expire()
                trouble = ""
            except MetricShuffleError as error:
                if str(error) != trouble:
                    self.log(f"Leases cannot be ended: {error}")
                trouble = str(error)
            except Exception as error:  # otherwise no lease would end, and no key be destroyed
                text = f"Leases cannot be ended; please report this bug: {failure_text(error)}"
                self.log(LogEvent(text, "bug"))


def boot_and_wall() -> tuple[float, float]:
    """Times of both clocks of an edge; a lease is over there once it is over by either clock."""
    return steady_clock().seconds, time.time()
