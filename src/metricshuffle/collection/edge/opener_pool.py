"""Opener processes of an edge, for use by its main process, which never has a key itself."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from dataclasses import dataclass, field

from metricshuffle.collection.admission_tokens import TokenRejected, TokenVerifier
from metricshuffle.collection.edge.opener_process import (
    DONE,
    HEAD,
    NOT_ADMITTED,
    NOT_OPENED,
    OPEN_CAPSULE,
    OPEN_REPORT,
    PROLONG,
    TAKE_LEASE,
)
from metricshuffle.collection.hub.lease_server import HubLink
from metricshuffle.collection.sealed_boxes import BoxFormat, NotOpened
from metricshuffle.collection.store.records import StoreError

MAX_FRAME_BYTES = 16 * 2**20
END_SECONDS = 5.0


class OpenerGone(StoreError):
    """No process opens reports now; clients have to send them again."""


@dataclass(frozen=True)
class HeldLease:
    """Lease as the main process knows it."""

    lease: bytes
    digest: str
    sealing: BoxFormat
    seconds: float
    boot: float
    wall: float
    """Times of both clocks when the lease was requested or renewed."""
    until: float
    verifier: TokenVerifier | None = None
    capsule_size: int = 0
    """Length of the longest capsule of the collection; 0 if it has no gateway."""

    @property
    def deadline(self) -> tuple[float, float]:
        """End of its use by both clocks; the clock that reaches its end first decides."""
        return self.boot + USABLE * self.seconds, self.wall + USABLE * self.seconds

    def is_usable(self, boot: float, wall: float) -> bool:
        boot_end, wall_end = self.deadline
        return boot < boot_end and wall < wall_end

    def document(self) -> bytes:
        boot, wall = self.deadline
        sealing = self.sealing
        return json.dumps(
            {
                "lease": self.lease.hex(),
                "boot": boot,
                "wall": wall,
                "capsule_size": self.capsule_size,
                "sizes": [sealing.payload, sealing.messages, sealing.ticket, sealing.hops],
                "tokens": self.verifier and self.verifier.document(),
            }
        ).encode()


USABLE = 0.8
"""Fraction of its duration for which an edge uses a lease, counted from before the request."""


@dataclass
class OpenerHandle:
    """One opener process."""

    process: asyncio.subprocess.Process
    _waiting: dict[int, asyncio.Future[tuple[int, bytes]]] = field(default_factory=dict)
    _number: int = 0
    _reading: asyncio.Task[None] | None = None

    @classmethod
    async def start(cls, link: HubLink) -> OpenerHandle:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "metricshuffle.collection.edge.opener_process",
            link.url,
            str(link.identity.identity),
            str(link.identity.authority),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=MAX_FRAME_BYTES,
        )
        handle = cls(process)
        handle._reading = asyncio.create_task(handle._read())
        return handle

    @property
    def is_alive(self) -> bool:
        return (
            self.process.returncode is None
            and self._reading is not None
            and (not self._reading.done())
        )

    async def _read(self) -> None:
        stream = self.process.stdout
        try:
            while stream is not None:
                size, number, status = HEAD.unpack(await stream.readexactly(HEAD.size))
                content = await stream.readexactly(size)
                answer = self._waiting.pop(number, None)
                if answer is not None and not answer.done():
                    answer.set_result((status, content))
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            for answer in self._waiting.values():
                if not answer.done():
                    answer.set_exception(OpenerGone("a process that opens reports has ended."))
            self._waiting.clear()

    async def ask(self, kind: int, content: bytes) -> tuple[int, bytes]:
        stream = self.process.stdin
        if not self.is_alive or stream is None:
            raise OpenerGone("a process that opens reports has ended.")
        self._number += 1
        answer: asyncio.Future[tuple[int, bytes]] = asyncio.get_running_loop().create_future()
        self._waiting[self._number] = answer
        stream.write(HEAD.pack(len(content), self._number, kind) + content)
        return await answer

    async def end(self) -> None:
        """End the process, and wait until it has exited."""
        stream = self.process.stdin
        if stream is not None:
            with contextlib.suppress(OSError, RuntimeError):
                stream.close()
        try:
            await asyncio.wait_for(self.process.wait(), END_SECONDS)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()
            await self.process.wait()


@dataclass
class OpenerPool:
    """Opener processes, which all have the keys of all leases of this edge."""

    link: HubLink
    count: int
    _openers: list[OpenerHandle] = field(default_factory=list)
    _next: int = 0
    _complete: set[bytes] = field(default_factory=set)
    """Leases whose keys all processes have."""

    async def start(self, leases: list[HeldLease]) -> None:
        """Replace all processes by new ones that have the keys of these leases only."""
        fresh = await self._fresh(self.count)
        complete = {lease.lease for lease in leases if await _take_lease(fresh, lease)}
        before = self._openers
        self._openers = fresh
        self._complete = complete
        await _end_all(before)

    async def _fresh(self, count: int) -> list[OpenerHandle]:
        """Start processes without keys."""
        return list(await asyncio.gather(*(OpenerHandle.start(self.link) for _ in range(count))))

    async def add(self, lease: HeldLease) -> bool:
        """Let all processes fetch the keys of a lease; return whether all have the keys."""
        self._openers += await self._fresh(self.count - len(self._openers))
        if await _take_lease(self._openers, lease):
            self._complete.add(lease.lease)
        return self.has_keys(lease)

    def has_keys(self, lease: HeldLease) -> bool:
        """Return whether all processes have the keys of a lease."""
        return lease.lease in self._complete

    async def end(self) -> None:
        """End all processes, and wait until they have exited."""
        before = self._openers
        self._openers = []
        self._complete = set()
        await _end_all(before)

    async def prolong(self, lease: HeldLease) -> None:
        for opener in self._openers:
            with contextlib.suppress(OpenerGone):
                await opener.ask(PROLONG, lease.document())

    @property
    def is_whole(self) -> bool:
        return all(opener.is_alive for opener in self._openers)

    async def opened(self, lease: bytes, report: bytes) -> bytes:
        """Open a report.

        Raises: NotOpened; TokenRejected; OpenerGone if no process has the keys now.
        """
        return await self._ask_next(OPEN_REPORT, lease + report)

    async def opened_capsule(self, capsule: bytes) -> bytes:
        """Open a capsule: its lease, encapsulated key, secret of the answer, and request.

        Raises: NotOpened; OpenerGone.
        """
        return await self._ask_next(OPEN_CAPSULE, capsule)

    async def _ask_next(self, kind: int, content: bytes) -> bytes:
        if not self._openers:
            raise OpenerGone("no process opens reports.")
        self._next += 1
        opener = self._openers[self._next % len(self._openers)]
        status, answer = await opener.ask(kind, content)
        if status == NOT_OPENED:
            raise NotOpened("this cannot be opened.")
        if status == NOT_ADMITTED:
            raise TokenRejected("this token is not valid for this collection.")
        if status != DONE:
            raise OpenerGone("the keys of this collection are not here now.")
        return answer


async def _take_lease(openers: list[OpenerHandle], lease: HeldLease) -> bool:
    """Let processes fetch the keys of a lease; return whether all have the keys."""
    asked = (opener.ask(TAKE_LEASE, lease.document()) for opener in openers)
    answers = await asyncio.gather(*asked, return_exceptions=True)
    return all(isinstance(answer, tuple) and answer[0] == DONE for answer in answers)


async def _end_all(openers: list[OpenerHandle]) -> None:
    await asyncio.gather(*(opener.end() for opener in openers))
