"""Ingestion of reports at an edge: other processes open them, with keys that the hub leases.

An edge answers that a collection is closed only if the hub says so, because clients take this
answer as final. While reports are counted, or the hub cannot be reached, clients are asked to send
again later.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import replace

from metricshuffle.collection.capsules import AnswerKey
from metricshuffle.collection.edge.opener_pool import HeldLease, OpenerGone, OpenerPool
from metricshuffle.collection.hpke_context import AEAD_KEY_BYTES
from metricshuffle.collection.hub.lease_office import LeaseDenied, boot_and_wall
from metricshuffle.collection.hub.lease_server import CALL_SECONDS, HubLink, HubUnreachable
from metricshuffle.collection.keys import LEASE_BYTES, TAG_BYTES
from metricshuffle.collection.oblivious_calls import ObliviousCalls
from metricshuffle.collection.recipes import JsonObject
from metricshuffle.collection.sealed_boxes import KEY_BYTES, NotOpened
from metricshuffle.collection.shuffler.ingest import (
    Intake,
    IntakeOpener,
    OpenedCapsule,
    ReportOpener,
    largest_capsule,
)
from metricshuffle.collection.shuffler.log_events import LogEvent, failure_text
from metricshuffle.collection.shuffler.readiness import DRAINING, Check
from metricshuffle.collection.store.part_store import ROOM_BLOCK, EdgeStore
from metricshuffle.collection.store.records import Entry, StoreError, Verdict
from metricshuffle.collection.terms import Collection

RENEWAL = 1 / 3
"""Fraction of its duration after which a lease is renewed."""
CHECK_SECONDS = 0.5
DECISION_SECONDS = 1.0
"""Interval of renewals once the end of a collection has come, or if there is little room left."""
HUB_PROBE_SECONDS = 5.0
"""Interval at which an edge asks the hub which collections are open."""
HUB_SILENCE_SECONDS = HUB_PROBE_SECONDS + CALL_SECONDS
"""Time after the last answer of the hub after which an edge without leases is not ready."""
MAX_COLLECTIONS = 64
"""Maximum number of collections whose keys an edge has at once."""
ANSWER_START = LEASE_BYTES + KEY_BYTES
"""Position of the secret of the answer in an opened capsule."""
ANSWER_SECONDS = 15.0
"""Time limit for a transaction, which would wait for ever for a missing standby."""
NO_KEYS = "the keys of this collection are not here now."


class EdgeIntake(Intake):
    """Report ingestion of an edge."""

    def __init__(
        self,
        store: EdgeStore,
        link: HubLink,
        *,
        openers: int,
        log: Callable[[str], None] = lambda _: None,
    ) -> None:
        super().__init__(store, None, log=log)
        self._link = link
        self._openers_of_reports = OpenerPool(link, openers)
        self._leases: dict[str, HeldLease] = {}
        self._changing = asyncio.Lock()
        self._draining = False
        self._room: dict[bytes, int] = {}
        """Room for reports in the part of each lease, by the last answer of the hub."""
        self._answered = float("-inf")
        """Time of the last answer of the hub, if no call has failed since."""
        self._hub_asked: float | None = None
        self._refused: dict[str, float] = {}
        """Time at which a lease was last asked for and not given, by digest."""
        self._has_too_many = False
        self._hub_failed = False

    # Leases

    async def _look_up(self, digest: str) -> IntakeOpener | None:
        """Lease the keys of a collection of this database; None if it takes no reports here.

        The hub is asked about collections that exist, and once a second, so that calls of strangers
        cannot delay the renewal of leases, which waits for the same lock.
        """
        row = await asyncio.to_thread(self.store.row, digest)
        if row is None or Collection(row.served).hop_index_of(row.key) != 0:
            return None
        if time.monotonic() - self._refused.get(digest, float("-inf")) < DECISION_SECONDS:
            raise OpenerGone(NO_KEYS)
        async with self._changing:
            if digest not in self._openers and digest not in self._closed:
                await self._lease(digest)
        return self._openers.get(digest)

    async def _lease(self, digest: str) -> None:
        """Lease the keys of a collection, or note that the hub says that it is closed."""
        if self._draining:
            raise StoreError("this edge is being stopped.")
        if len(self._leases) >= MAX_COLLECTIONS:
            raise self._too_many()
        boot, wall = boot_and_wall()
        self._refused[digest] = time.monotonic()
        try:
            answer = await self._ask("/v1/leases", {"digest": digest})
        except LeaseDenied as denied:
            if denied.reason != "closed":
                raise OpenerGone(NO_KEYS) from None
            self._closed.add(digest)
            return
        lease = _held_lease(digest, answer, boot, wall)
        collection = Collection.read(str(answer["served"]).encode(), digest)
        self._leases[digest] = lease
        if not await self._openers_of_reports.add(lease):
            await self._drop(lease)
            await self._give_back(lease)
            raise OpenerGone(NO_KEYS)
        self._refused.pop(digest)
        self._openers[digest] = ReportOpener.without_keys(collection)

    def _too_many(self) -> StoreError:
        """Return the error for a collection above the maximum number; it is logged once."""
        text = (
            f"This edge has the keys of {len(self._leases):,} collections, which is its maximum; "
            "reports of further ones are refused until one has ended."
        )
        if not self._has_too_many:
            self._log(LogEvent(text, "trouble"))
        self._has_too_many = True
        return StoreError(text)

    async def _ask(self, path: str, content: JsonObject) -> JsonObject:
        """Call the hub, and note whether it answers."""
        try:
            answer = await asyncio.to_thread(self._link.call, path, content)
        except HubUnreachable as error:
            self._answered = float("-inf")
            self._note_hub(str(error))
            raise
        except LeaseDenied:
            self._note_answer()
            raise
        self._note_answer()
        return answer

    def _note_answer(self) -> None:
        self._answered = time.monotonic()
        self._note_hub("")

    def _note_hub(self, failure: str) -> None:
        """Log once that the hub does not answer, and once that it does again."""
        if failure and not self._hub_failed:
            self._log(LogEvent(f"No lease can be had or renewed: {failure}", "trouble"))
        elif not failure and self._hub_failed:
            self._log("The hub answers again.")
        self._hub_failed = bool(failure)

    async def forget_closed(self) -> None:
        """Background task: start openers, renew leases, return leases of closed collections."""
        async with self._changing:
            await self._start_again()
        while True:
            try:
                await self._look_after_all()
            except Exception as error:  # otherwise no lease would be renewed any more
                text = f"Leases could not be renewed; please report this bug: {failure_text(error)}"
                self._log(LogEvent(text, "bug"))
            await asyncio.sleep(CHECK_SECONDS)

    async def _look_after_all(self) -> None:
        async with self._changing:
            await self._drop_over()
            for lease in list(self._leases.values()):
                await self._look_after(lease)
            if not self._openers_of_reports.is_whole:
                await self._start_again()
        await self._lease_all()

    async def _lease_all(self) -> None:
        """Lease the keys of all open collections, before the first report of any comes."""
        now = time.monotonic()
        if self._hub_asked is not None and now - self._hub_asked < HUB_PROBE_SECONDS:
            return
        self._hub_asked = now
        with contextlib.suppress(StoreError, LeaseDenied):
            answer = await self._ask("/v1/open", {})
            for digest in map(str, answer["open"]):
                with contextlib.suppress(StoreError):  # the others are leased nevertheless
                    await self.opener(digest)
                if time.monotonic() - now > CALL_SECONDS:
                    return  # leases have to be renewed

    def hub_trouble(self) -> str:
        """Return why reports cannot be opened now, as a public sentence; empty if they can.

        An edge takes reports as long as it has a lease, and gets one while the hub answers.
        """
        boot, wall = boot_and_wall()
        for lease in list(self._leases.values()):
            if lease.is_usable(boot, wall) and self._openers_of_reports.has_keys(lease):
                return ""
        if time.monotonic() - self._answered <= HUB_SILENCE_SECONDS:
            return ""
        return "reports cannot be opened now: this edge has no lease, and its hub does not answer."

    @property
    def checks(self) -> dict[str, Check]:
        return {**super().checks, "hub": self.hub_trouble}

    async def _drop_over(self) -> None:
        """Drop all leases that are over, with one restart of the processes that have the keys."""
        boot, wall = boot_and_wall()
        over = [lease for lease in self._leases.values() if not lease.is_usable(boot, wall)]
        for lease in over:
            name = lease.lease.hex()[:8]
            text = f"Lease {name} is over; the hub has not renewed it."
            self._log(LogEvent(text, "lease", lease=name, phase="over"))
        if over:
            await self._drop(*over)

    async def _look_after(self, lease: HeldLease) -> None:
        """Renew a lease when that is due."""
        boot, wall = boot_and_wall()
        if not self._openers_of_reports.has_keys(lease):
            await self._openers_of_reports.add(lease)
        needs_answer = wall >= lease.until or self._room.get(lease.lease, 0) < ROOM_BLOCK // 2
        interval = DECISION_SECONDS if needs_answer else RENEWAL * lease.seconds
        if boot - lease.boot < interval and wall - lease.wall < interval:
            return
        try:
            answer = await self._ask(f"/v1/leases/{lease.lease.hex()}/renew", {})
        except HubUnreachable:
            return
        except LeaseDenied as denied:
            if denied.reason == "closed":
                self._closed.add(lease.digest)
            await self._drop(lease)
            await self._give_back(lease)
            return
        renewed = replace(lease, boot=boot, wall=wall, until=float(answer["until"]))
        self._leases[lease.digest] = renewed
        self._room[lease.lease] = int(answer["room"])
        await self._openers_of_reports.prolong(renewed)

    async def _drop(self, *dropped: HeldLease) -> None:
        """Forget leases, and end all processes that have their keys."""
        for lease in dropped:
            self._openers.pop(lease.digest, None)
            self._leases.pop(lease.digest, None)
            self._room.pop(lease.lease, None)
        self._has_too_many = False
        await self._start_again()

    async def _start_again(self) -> None:
        await self._openers_of_reports.start(list(self._leases.values()))

    async def _give_back(self, lease: HeldLease) -> None:
        """Tell the hub that no process here has the keys any more."""
        with contextlib.suppress(HubUnreachable, LeaseDenied):
            await self._ask(f"/v1/leases/{lease.lease.hex()}/return", {})

    async def drain(self) -> None:
        """End all openers, then return all leases."""
        async with self._changing:
            self._draining = True
            EdgeStore.at("draining")
            leases = list(self._leases.values())
            self._leases.clear()
            self._openers.clear()
            await self._openers_of_reports.end()
            for lease in leases:
                await self._give_back(lease)

    # Reports

    async def largest_capsule(self) -> int:
        return largest_capsule(list(self._openers.values()))

    async def open_capsule(self, capsule: bytes) -> OpenedCapsule:
        """Open a capsule; raises `StoreError` if its keys may be missing only for now."""
        try:
            content = await self._openers_of_reports.opened_capsule(capsule)
        except NotOpened:
            if self._hub_failed:
                raise OpenerGone("the keys of a collection may be missing now.") from None
            raise
        lease, enc, secret = content[:LEASE_BYTES], content[LEASE_BYTES:], content[ANSWER_START:]
        for digest, line in list(self._leases.items()):
            opener = self._openers.get(digest)
            if line.lease == lease and isinstance(opener, ReportOpener):
                answer = AnswerKey(enc[:KEY_BYTES], secret[:AEAD_KEY_BYTES])
                return OpenedCapsule(opener, secret[AEAD_KEY_BYTES:], answer)
        raise OpenerGone(NO_KEYS)

    async def _entry(self, opener: IntakeOpener, report: bytes) -> Entry:
        lease = self._leases.get(opener.digest)
        if lease is None:
            raise OpenerGone(NO_KEYS)
        content = await self._openers_of_reports.opened(lease.lease, report)
        EdgeStore.at("opened")
        tag = content[:TAG_BYTES]
        ticket = content[TAG_BYTES : TAG_BYTES + LEASE_BYTES] if lease.sealing.ticket else b""
        return Entry(tag, ticket, content[TAG_BYTES + LEASE_BYTES :], lease.lease)

    async def put(self, opener: IntakeOpener, report: bytes) -> Verdict:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                verdict = await super().put(opener, report)
        except TimeoutError:
            raise StoreError("the database has not answered in time.") from None
        EdgeStore.at("answered")
        lease = self._leases.get(opener.digest)
        if verdict is Verdict.STORED and lease is not None:
            self._room[lease.lease] = self._room.get(lease.lease, 0) - 1
        return verdict

    def trouble(self) -> str:
        return DRAINING if self._draining else super().trouble()


def _held_lease(digest: str, answer: JsonObject, boot: float, wall: float) -> HeldLease:
    collection = Collection.read(str(answer["served"]).encode(), digest)
    return HeldLease(
        bytes.fromhex(str(answer["lease"])),
        digest,
        collection.sealing,
        float(answer["seconds"]),
        boot,
        wall,
        float(answer["until"]),
        collection.token_verifier,
        ObliviousCalls(collection).capsule_size if collection.terms.gateway else 0,
    )
