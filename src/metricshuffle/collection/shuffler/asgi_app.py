"""The shuffler as an ASGI application: reports by a short way of their own, every other call in `build_application`.

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

from metricshuffle.collection.sealed_boxes import NotOpened
from metricshuffle.collection.shuffler.ingest import Busy, Intake, NotOpenYet
from metricshuffle.collection.shuffler.lifecycle import Shuffler
from metricshuffle.collection.shuffler.routes import PUBLIC_PATH, build_application
from metricshuffle.collection.store.interface import StoreError, Verdict
from metricshuffle.collection.terms import canonical, origin_of

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Header = tuple[bytes, bytes]

BODY_SECONDS = 10.0
"""In which a report has arrived as a whole."""
STOP_GRACE_SECONDS = 1.0
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


RETRY_HEADERS = ((b"retry-after", str(RETRY_SECONDS).encode()),)
STORED = Reply(204)
UNKNOWN = Reply(404, "there is no such collection here.")
NOT_POSTED = Reply(405, "a report is sent by POST.", ((b"allow", b"POST"),))
BODY_TIMEOUT = Reply(408, f"the report did not arrive within {BODY_SECONDS:g} seconds; send it again.")
FOREIGN_ORIGIN = Reply(403, "pages of that site may not send reports here; the operator allows a site with serve --origin.")
CLOSED = Reply(410, "this collection is closed.")
NO_LENGTH = Reply(411, "a report is sent with its length (Content-Length), and not in chunks.")
TOO_LONG = Reply(413, "this is longer than a report of this collection.")
UNREADABLE = Reply(422, "this report cannot be opened.")
BUSY = Reply(429, "too many reports at once; send it again.", RETRY_HEADERS)
NOT_YET = Reply(503, "this collection is not open yet; send it again later.", RETRY_HEADERS)
TROUBLE = Reply(503, "reports cannot be stored now; send it again.", RETRY_HEADERS)
FAULT = Reply(500, "the shuffler failed.")
VERDICTS = {
    Verdict.STORED: STORED,
    Verdict.SAME: STORED,
    Verdict.UNKNOWN_TICKET: Reply(403, "this ticket is none of this collection's."),
    Verdict.SPENT_TICKET: Reply(409, "this ticket was used for another report."),
    Verdict.CLOSED: CLOSED,
    Verdict.FULL: Reply(429, "this collection has as many reports as it may take.", RETRY_HEADERS),
}


class Application:
    """All calls of one shuffler.

    `origins` are other sites, whose pages may send reports: those of a site that is neither one of them nor the collection's own may not,
    or any page could let those who visit it fill a collection. Programs name no site. `tell` gets what an operator should know.
    """

    def __init__(
        self, shuffler: Shuffler, intake: Intake, *, origins: Iterable[str] = (), tell: Callable[[str], None] = lambda _: None
    ) -> None:
        self._intake, self._log = intake, tell
        self._origins = frozenset(origin_of(site).encode("ascii") for site in origins)
        self._calls: Any = build_application(shuffler, intake.trouble)
        self._arriving: set[asyncio.Timeout] = set()
        self.answered = 0
        """How many calls were answered: whoever watches over the process sees it grow."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._answer(scope, receive, send)
            self.answered += 1

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        reports = REPORTS.fullmatch(scope["path"])
        if self._origins and (reports or PUBLIC_PATH.fullmatch(scope["path"])):
            origin = next((value for name, value in scope["headers"] if name == b"origin"), None)
            if origin in self._origins:
                send = _with_cors_headers(origin, send)
                if scope["method"] == "OPTIONS":
                    await Reply(204, more=_preflight_headers(b"POST" if reports else b"GET"))(send)
                    return
        if reports:
            try:
                reply = await self._reply(reports[1], scope, receive)
            except Exception as error:
                reply = FAULT
                self._log(f"A report could not be taken; please report this bug: {failure_text(error)}")
            await reply(send)
            return
        try:
            await self._calls(scope, receive, send)
        except Exception as error:  # it was answered already
            self._log(f"A call failed: {failure_text(error)}")

    def shorten_deadlines(self) -> None:
        """Reports that are still arriving get a second more: the server is about to stop."""
        soon = asyncio.get_running_loop().time() + STOP_GRACE_SECONDS
        for limit in self._arriving:
            limit.reschedule(soon)

    async def _reply(self, digest: str, scope: Scope, receive: Receive) -> Reply:
        """The answer to a report."""
        if scope["method"] != "POST":
            return NOT_POSTED
        intake = self._intake
        opener = intake.known(digest)
        try:
            if opener is None and not intake.is_closed(digest):
                opener = await intake.opener(digest)
            if opener is None:
                return CLOSED if intake.is_closed(digest) else UNKNOWN
            if any(name == b"origin" and site != opener.origin and site not in self._origins for name, site in scope["headers"]):
                return FOREIGN_ORIGIN
            size, length = opener.sealing.report_size, _length(scope["headers"])
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
            return VERDICTS[await intake.put(opener, report)]
        except TimeoutError:
            return BODY_TIMEOUT
        except NotOpened:
            return UNREADABLE
        except Busy:
            return BUSY
        except NotOpenYet:
            return NOT_YET
        except StoreError:
            return TROUBLE


def failure_text(error: BaseException) -> str:
    """What failed and where, without anything of what was being done: the kind of the error, a file and a line."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = f" in {Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}" if trace is not None else ""
    return f"{type(error).__name__}{where}."


def _length(headers: Iterable[Header]) -> int | None:
    """What the one Content-Length says; None if it is missing, or the body comes in chunks."""
    lengths = [value for name, value in headers if name == b"content-length"]
    if len(lengths) != 1 or not lengths[0].isdigit() or any(name == b"transfer-encoding" for name, _ in headers):
        return None
    return int(lengths[0][:20])


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


def _with_cors_headers(origin: bytes, send: Send) -> Send:
    """The same answers, which a page of that origin may read."""
    more = [(b"access-control-allow-origin", origin), (b"vary", b"Origin"), (b"access-control-expose-headers", b"Retry-After")]

    async def shared(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], *more]}
        await send(message)

    return shared


def _preflight_headers(method: bytes) -> tuple[Header, ...]:
    """What a browser asks before it sends something from another site."""
    return (
        (b"access-control-allow-methods", method),
        (b"access-control-allow-headers", b"Content-Type"),
        (b"access-control-max-age", b"600"),
    )
