"""Mixer on another host than the keys: a process for each collection, with a leased secret.

The hub leases the storage secret of a sealed collection to mixers that it knows. The process that
works asks for the secret by itself; its parent renews the lease, and has no key. The process exits
when the lease is over by either clock, or the collection is mixed; only then is the lease returned.
`python -m metricshuffle.collection.mixer.leased_mixer` reads lines of JSON on standard input: first
the task, then new ends of the lease.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from metricshuffle.collection.edge.opener_pool import USABLE
from metricshuffle.collection.hub.lease_office import LeaseDenied, boot_and_wall
from metricshuffle.collection.hub.lease_server import HubLink, HubUnreachable, LeaseIdentity
from metricshuffle.collection.keys import CollectionKeys
from metricshuffle.collection.memory import forbid_memory_dumps, locked_memory
from metricshuffle.collection.mixer.mixer_process import Mixer
from metricshuffle.collection.mixer.object_store import ObjectStore
from metricshuffle.collection.recipes import JsonObject
from metricshuffle.collection.shuffler.log_events import LogEvent
from metricshuffle.collection.shuffler.output_files import do_nothing
from metricshuffle.collection.store.factory import connect_store
from metricshuffle.collection.store.records import StoreError
from metricshuffle.collection.store.sql_store import Store

RENEWALS_EACH = 3
"""Number of renewals in the duration of a lease."""
CHECK_SECONDS = 0.2
STATE_SECONDS = 1.0
WAIT_SECONDS = 2.0
END_SECONDS = 10.0
OVER_EXIT_CODE = 3


@dataclass(frozen=True)
class LeasedKeys:
    """Leased keys of one collection, in place of a folder of keys."""

    key: str
    """Public key of the hop."""
    keys: CollectionKeys

    def names(self) -> list[str]:
        return [self.key]

    def of(self, key: str) -> CollectionKeys | None:
        return self.keys if key == self.key else None


@dataclass
class LeasedMixer:
    """Parent of the processes that mix one collection after the other."""

    store_url: str
    objects_url: str
    link: HubLink
    log: Callable[[str], None] = do_nothing
    _denied: set[str] = field(default_factory=set)

    def run(self, stop: threading.Event) -> None:
        """Mix collections until `stop` is set."""
        store = connect_store(self.store_url)
        trouble = ""
        try:
            while not stop.is_set():
                try:
                    digest = self._next(store)
                    if digest is not None:
                        self._mix(digest)
                    trouble = ""
                except StoreError as error:
                    if str(error) != trouble:
                        self.log(LogEvent(str(error), "trouble"))
                    trouble = str(error)
                    digest = None
                if digest is None:
                    stop.wait(WAIT_SECONDS)
        finally:
            store.close()

    def _next(self, store: Store) -> str | None:
        """Return a collection that mixers mix now, if any."""
        for row in store.rows():
            if row.state != "sealed" or row.digest in self._denied:
                continue
            attempt = store.mix_tasks.attempt(row.digest)
            if attempt is not None and not attempt.trouble:
                return row.digest
        return None

    def _mix(self, digest: str) -> None:
        """Mix a collection in a process of its own, under a lease."""
        asked = boot_and_wall()
        try:
            grant = self.link.call("/v1/mixing", {"digest": digest})
        except LeaseDenied as denied:
            if denied.reason == "unknown":
                self._denied.add(digest)
                text = f"The hub leases no keys of collection {digest[:16]} to this mixer."
                self.log(LogEvent(text, "trouble", collection=digest))
            return
        lease, seconds = str(grant["lease"]), float(str(grant["seconds"]))
        try:
            words = [sys.executable, "-m", __name__]
            with subprocess.Popen(words, stdin=subprocess.PIPE) as process:  # noqa: S603 - ours
                try:
                    self._tell(process, self._task(digest, lease) | deadline(asked, seconds))
                    self._watch(process, lease, seconds)
                finally:
                    self._end(process)
        finally:  # the process has exited
            with contextlib.suppress(LeaseDenied, HubUnreachable):
                self.link.call(f"/v1/leases/{lease}/return", {})

    def _task(self, digest: str, lease: str) -> JsonObject:
        identity = self.link.identity
        return {
            "store": self.store_url,
            "objects": self.objects_url,
            "hub": self.link.url,
            "identity": str(identity.identity),
            "authority": str(identity.authority),
            "lease": lease,
            "digest": digest,
        }

    def _watch(self, process: subprocess.Popen[bytes], lease: str, seconds: float) -> None:
        """Renew the lease until the process has exited, or the hub refuses."""
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(seconds / RENEWALS_EACH)
                return
            asked = boot_and_wall()
            try:
                self.link.call(f"/v1/leases/{lease}/renew-mixing", {})
            except LeaseDenied:
                return
            except HubUnreachable:
                continue  # the process exits by itself when the lease is over
            self._tell(process, deadline(asked, seconds))

    @staticmethod
    def _tell(process: subprocess.Popen[bytes], content: JsonObject) -> None:
        if process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.write(json.dumps(content).encode() + b"\n")
                process.stdin.flush()

    @staticmethod
    def _end(process: subprocess.Popen[bytes]) -> None:
        """End the process, and wait until it has exited."""
        if process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def deadline(asked: tuple[float, float], seconds: float) -> JsonObject:
    """Return the end of a lease by both clocks, given their times before it was requested."""
    boot, wall = (time + USABLE * seconds for time in asked)
    return {"boot": boot, "wall": wall}


@dataclass
class LeaseClock:
    """End of the lease of this process, by both clocks."""

    boot: float
    wall: float

    def read_ends(self) -> None:
        """Read new ends of the lease from the parent; end this process when it is gone."""
        for line in sys.stdin.buffer:
            content = json.loads(line)
            self.boot, self.wall = float(content["boot"]), float(content["wall"])
        os.kill(os.getpid(), signal.SIGTERM)

    def watch(self) -> None:
        """Exit at once when the lease is over by either clock."""
        while True:
            boot, wall = boot_and_wall()
            if not (boot < self.boot and wall < self.wall):
                os._exit(OVER_EXIT_CODE)
            threading.Event().wait(CHECK_SECONDS)


def print_log(text: str) -> None:
    print(f"metricshuffle: {text}", file=sys.stderr, flush=True)


def main() -> None:
    """Mix one collection, as the parent says on standard input."""
    forbid_memory_dumps()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    task = json.loads(sys.stdin.buffer.readline())
    with locked_memory():
        clock = LeaseClock(float(task["boot"]), float(task["wall"]))
        for target in (clock.watch, clock.read_ends):
            threading.Thread(target=target, daemon=True).start()
        identity = LeaseIdentity(Path(task["identity"]), Path(task["authority"]))
        try:
            answer = HubLink(task["hub"], identity).call(
                f"/v1/leases/{task['lease']}/mixing-secret", {}
            )
        except (LeaseDenied, HubUnreachable):
            return
        keys = CollectionKeys.of_mixer(bytes.fromhex(str(answer["secret"])))
        store = connect_store(task["store"])
        stop = threading.Event()

        def watch_state() -> None:
            while True:
                with contextlib.suppress(StoreError):
                    row = store.row(task["digest"])
                    if row is None or row.state != "sealed":
                        stop.set()
                stop.wait(STATE_SECONDS)

        threading.Thread(target=watch_state, daemon=True).start()
        leased = LeasedKeys(str(answer["key"]), keys)
        Mixer(store, leased, ObjectStore(task["objects"]), log=print_log).run(stop)


if __name__ == "__main__":
    main()
