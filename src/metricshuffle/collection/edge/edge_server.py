"""Servers of the roles of a shuffler on several hosts: an edge, and the hub.

`serve --role all`, the default, is `ShufflerServer` itself: both roles in one process.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from metricshuffle.collection.edge.edge_intake import EdgeIntake
from metricshuffle.collection.hub.lease_list import LeaseList
from metricshuffle.collection.hub.lease_office import LEASE_SECONDS, LeaseOffice
from metricshuffle.collection.hub.lease_server import HubLink, LeaseIdentity, leasing
from metricshuffle.collection.keys import KeyFolder
from metricshuffle.collection.memory import forbid_memory_dumps, locked_memory
from metricshuffle.collection.shuffler.ingest import Intake, IntakeOpener
from metricshuffle.collection.shuffler.lifecycle import Shuffler
from metricshuffle.collection.shuffler.log_events import EventLog, Log
from metricshuffle.collection.shuffler.server import (
    Listener,
    ShufflerServer,
    bound_or_none,
    drive_collections,
    ignore_log_errors,
    log_witnesses,
    run_loop,
)
from metricshuffle.collection.store.part_store import EdgeStore, HubStore, connect_parts
from metricshuffle.collection.store.records import StoreError
from metricshuffle.errors import InputError

MIN_LEASE_SECONDS = 5.0
MAX_LEASE_SECONDS = 600.0


class HubIntake(Intake):
    """Ingestion of a hub, which takes no reports: they are sent to an edge."""

    async def opener(self, digest: str) -> IntakeOpener | None:
        raise StoreError("reports are sent to an edge.")

    async def largest_capsule(self) -> int:
        raise StoreError("capsules are sent to an edge.")


@dataclass(frozen=True)
class EdgeServer(ShufflerServer):
    """Edge: takes reports, and has nothing on its disk."""

    hub: str = ""
    identity: LeaseIdentity | None = None
    accept_loss: bool = False
    openers: int = 0
    """Number of processes that open reports; 0 for one per processor."""

    def run(self, ready: Callable[[str], None], log: Log) -> None:
        log = EventLog(ignore_log_errors(log))
        if self.identity is None or not self.hub:
            raise InputError("an edge needs --hub, --identity and --lease-ca.")
        link = HubLink(self.hub, self.identity)
        forbid_memory_dumps()
        with self.listener.bound() as listening, bound_or_none(self.metrics) as metrics:
            store = connect_parts(
                self.store, is_hub=False, accept_loss=self.accept_loss, jump=self.clock_jump
            )
            if not isinstance(store, EdgeStore):
                raise InputError("an edge needs a PostgreSQL database.")
            try:
                if warning := self.listener.warning(listening):
                    log(warning)

                async def serve() -> None:
                    count = self.openers or os.cpu_count() or 1
                    intake = EdgeIntake(store, link, openers=count, log=log)
                    try:
                        reload = link.check_identity
                        await self._serve(None, intake, listening, metrics, ready, log, reload)
                    finally:
                        await intake.drain()

                run_loop(serve())
            finally:
                store.close()


@dataclass(frozen=True)
class HubServer(ShufflerServer):
    """Hub: has the keys, leases them to edges, and drives collections."""

    identity: LeaseIdentity | None = None
    lease_listener: Listener | None = None
    lease_seconds: float = LEASE_SECONDS
    accept_loss: bool = False
    mixer_names: tuple[str, ...] = ()
    """Subjects of the certificates of mixers."""

    def run(self, ready: Callable[[str], None], log: Log) -> None:
        log = EventLog(ignore_log_errors(log))
        if self.identity is None or self.lease_listener is None:
            raise InputError("a hub needs --lease-listen, --identity and --lease-ca.")
        if not MIN_LEASE_SECONDS <= self.lease_seconds <= MAX_LEASE_SECONDS:
            raise InputError(
                f"--lease must be from {MIN_LEASE_SECONDS:g} to {MAX_LEASE_SECONDS:g} seconds, "
                f"got {self.lease_seconds:g}."
            )
        forbid_memory_dumps()
        with (
            locked_memory() as locked,
            self.listener.bound() as listening,
            bound_or_none(self.metrics) as metrics,
        ):
            log(locked)
            keys = KeyFolder.at(self.keys)
            store = connect_parts(
                self.store,
                is_hub=True,
                accept_loss=self.accept_loss,
                jump=self.clock_jump,
                record=LeaseList.at(keys.path, create=True),
            )
            if not isinstance(store, HubStore):
                raise InputError("a hub needs a PostgreSQL database.")
            try:
                with only_hub(keys):
                    shuffler = Shuffler(
                        store,
                        keys,
                        after=self.after,
                        log=log,
                        abandon=self.abandon,
                        witness=self.witness,
                        witness_for=self.witness_for,
                        is_hub=True,
                        mixers=self.mixers,
                    )
                    self._check_keys(shuffler, log)
                    log_witnesses(shuffler, log)
                    if warning := self.listener.warning(listening):
                        log(warning)
                    office = LeaseOffice(
                        shuffler, store, self.lease_seconds, log, shuffler.at, self.mixer_names
                    )
                    shuffler.confirm_lease = office.confirm
                    address = (self.lease_listener.host, self.lease_listener.port)
                    with (
                        leasing(office, address, self.identity, log) as leases,
                        drive_collections(shuffler, log),
                    ):
                        intake = HubIntake(store, keys, log=log)
                        reload = leases.certificate.reload
                        run_loop(
                            self._serve(shuffler, intake, listening, metrics, ready, log, reload)
                        )
            finally:
                store.close()

    def _check_keys(self, shuffler: Shuffler, log: Log) -> None:
        """Raise if keys are missing, unless the database is older than the keys.

        With an older database the hub starts, does nothing, and waits for the operator.
        """
        try:
            shuffler.check_keys(self.abandon)
        except InputError as error:
            if not shuffler.store.history_trouble():
                raise
            log(str(error))


@contextlib.contextmanager
def only_hub(keys: KeyFolder) -> Iterator[None]:
    """Hold the lock of the hub in the folder of keys; raise if another hub has it."""
    import fcntl

    path: Path = keys.path / "hub.lock"
    with open(path, "ab") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InputError(f"another hub runs with the keys in {keys.path}; stop it.") from None
        yield
