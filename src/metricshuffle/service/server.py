"""The shuffler as an ASGI application: reports by a short way of their own, every other call in `calls`.

A report's way is short because thousands come in a second: one match of the path, the length before anything is read, no object that is
not needed. Nothing of a request is ever written down: no address, no tag, no time.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from metricshuffle.service.boxes import NotOpened
from metricshuffle.service.calls import PUBLIC, calls
from metricshuffle.service.collection import canonical, origin_of
from metricshuffle.service.ingest import Busy, Early, Intake
from metricshuffle.service.states import Shuffler
from metricshuffle.service.store import StoreError, Verdict

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Header = tuple[bytes, bytes]

BODY_SECONDS = 10.0
"""In which a report has arrived as a whole."""
LAST_SECONDS = 1.0
RETRY_SECONDS = 5
REPORTS = re.compile(r"/v1/collections/([0-9a-f]{64})/reports")


@dataclass(frozen=True)
class Reply:
    """An answer that is the same for everybody who gets it."""

    status: int
    error: str = ""
    more: tuple[Header, ...] = ()

    def __post_init__(self) -> None:
        body = canonical({"error": self.error}) if self.error else b""
        kind = ((b"content-type", b"application/json"),) if body else ()
        headers = [*kind, (b"content-length", str(len(body)).encode()), (b"cache-control", b"no-store"), *self.more]
        object.__setattr__(self, "_start", {"type": "http.response.start", "status": self.status, "headers": headers})
        object.__setattr__(self, "_body", {"type": "http.response.body", "body": body})

    async def __call__(self, send: Send) -> None:
        await send(getattr(self, "_start").copy())  # noqa: B009 - set above, in a frozen object
        await send(getattr(self, "_body").copy())  # noqa: B009


LATER = ((b"retry-after", str(RETRY_SECONDS).encode()),)
STORED = Reply(204)
UNKNOWN = Reply(404, "there is no such collection here.")
NOT_POSTED = Reply(405, "a report is sent by POST.", ((b"allow", b"POST"),))
SLOW = Reply(408, f"the report did not arrive within {BODY_SECONDS:g} seconds; send it again.")
FOREIGN = Reply(403, "pages of that site may not send reports here; the operator allows a site with serve --origin.")
CLOSED = Reply(410, "this collection is closed.")
NO_LENGTH = Reply(411, "a report is sent with its length (Content-Length), and not in chunks.")
TOO_LONG = Reply(413, "this is longer than a report of this collection.")
UNREADABLE = Reply(422, "this report cannot be opened.")
BUSY = Reply(429, "too many reports at once; send it again.", LATER)
NOT_YET = Reply(503, "this collection is not open yet; send it again later.", LATER)
TROUBLE = Reply(503, "reports cannot be stored now; send it again.", LATER)
FAULT = Reply(500, "the shuffler failed.")
VERDICTS = {
    Verdict.STORED: STORED,
    Verdict.SAME: STORED,
    Verdict.UNKNOWN_TICKET: Reply(403, "this ticket is none of this collection's."),
    Verdict.SPENT_TICKET: Reply(409, "this ticket was used for another report."),
    Verdict.CLOSED: CLOSED,
    Verdict.FULL: Reply(429, "this collection has as many reports as it may take.", LATER),
}


class Application:
    """All calls of one shuffler.

    `origins` are other sites, whose pages may send reports: those of a site that is neither one of them nor the collection's own may not,
    or any page could let those who visit it fill a collection. Programs name no site. `tell` gets what an operator should know.
    """

    def __init__(
        self, shuffler: Shuffler, intake: Intake, *, origins: Iterable[str] = (), tell: Callable[[str], None] = lambda _: None
    ) -> None:
        self._intake, self._tell = intake, tell
        self._origins = frozenset(origin_of(site).encode("ascii") for site in origins)
        self._calls: Any = calls(shuffler, intake.trouble)
        self._arriving: set[asyncio.Timeout] = set()
        self.answered = 0
        """How many calls were answered: whoever watches over the process sees it grow."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._answer(scope, receive, send)
            self.answered += 1

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        reports = REPORTS.fullmatch(scope["path"])
        if self._origins and (reports or PUBLIC.fullmatch(scope["path"])):
            origin = next((value for name, value in scope["headers"] if name == b"origin"), None)
            if origin in self._origins:
                send = _shared_with(origin, send)
                if scope["method"] == "OPTIONS":
                    await Reply(204, more=_asked_before(b"POST" if reports else b"GET"))(send)
                    return
        if reports:
            try:
                reply = await self._reply(reports[1], scope, receive)
            except Exception as wrong:
                reply = FAULT
                self._tell(f"A report could not be taken; please report this bug: {sentence_of(wrong)}")
            await reply(send)
            return
        try:
            await self._calls(scope, receive, send)
        except Exception as wrong:  # it was answered already
            self._tell(f"A call failed: {sentence_of(wrong)}")

    def hurry(self) -> None:
        """Reports that are still arriving get a second more: the server is about to stop."""
        soon = asyncio.get_running_loop().time() + LAST_SECONDS
        for limit in self._arriving:
            limit.reschedule(soon)

    async def _reply(self, digest: str, scope: Scope, receive: Receive) -> Reply:
        """The answer to a report."""
        if scope["method"] != "POST":
            return NOT_POSTED
        intake = self._intake
        gate = intake.known(digest)
        try:
            if gate is None and not intake.is_closed(digest):
                gate = await intake.gate(digest)
            if gate is None:
                return CLOSED if intake.is_closed(digest) else UNKNOWN
            if any(name == b"origin" and site != gate.origin and site not in self._origins for name, site in scope["headers"]):
                return FOREIGN
            size, length = gate.sealing.report_size, _length(scope["headers"])
            if length is None:
                return NO_LENGTH
            if length != size:
                return TOO_LONG if length > size else UNREADABLE
            async with asyncio.timeout(BODY_SECONDS) as limit:
                self._arriving.add(limit)
                try:
                    report = await _body(receive)
                finally:
                    self._arriving.discard(limit)
            return VERDICTS[await intake.put(gate, report)]
        except TimeoutError:
            return SLOW
        except NotOpened:
            return UNREADABLE
        except Busy:
            return BUSY
        except Early:
            return NOT_YET
        except StoreError:
            return TROUBLE


def sentence_of(wrong: BaseException) -> str:
    """What failed and where, without anything of what was being done: the kind of the error, a file and a line."""
    trace = wrong.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = f" in {Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}" if trace is not None else ""
    return f"{type(wrong).__name__}{where}."


def _length(headers: Iterable[Header]) -> int | None:
    """What the one Content-Length says; None if it is missing, or the body comes in chunks."""
    told = [value for name, value in headers if name == b"content-length"]
    if len(told) != 1 or not told[0].isdigit() or any(name == b"transfer-encoding" for name, _ in headers):
        return None
    return int(told[0][:20])


async def _body(receive: Receive) -> bytes:
    """All that was sent: the server below reads no more than the length says, and what was cut short does not open."""
    parts = []
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return b""
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return parts[0] if len(parts) == 1 else b"".join(parts)


def _shared_with(origin: bytes, send: Send) -> Send:
    """The same answers, which a page of that origin may read."""
    more = [(b"access-control-allow-origin", origin), (b"vary", b"Origin"), (b"access-control-expose-headers", b"Retry-After")]

    async def shared(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], *more]}
        await send(message)

    return shared


def _asked_before(method: bytes) -> tuple[Header, ...]:
    """What a browser asks before it sends something from another site."""
    return (
        (b"access-control-allow-methods", method),
        (b"access-control-allow-headers", b"Content-Type"),
        (b"access-control-max-age", b"600"),
    )
