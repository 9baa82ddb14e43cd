"""ASGI application of the shuffler. Reports take a fast path; other routes are in `routes`.

Thousands of reports may arrive in a second, so their path needs one match, checks the length before
it reads anything, and creates few objects. Nothing of a request is ever logged: no address, no tag,
no time.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from metricshuffle.collection.admission_tokens import TokenRejected
from metricshuffle.collection.sealed_boxes import NotOpened
from metricshuffle.collection.shuffler.ingest import Busy, Intake, NotOpenYet
from metricshuffle.collection.shuffler.lifecycle import Shuffler
from metricshuffle.collection.shuffler.log_events import LogEvent, failure_text
from metricshuffle.collection.shuffler.readiness import Readiness, random_retry_after
from metricshuffle.collection.shuffler.routes import (
    PUBLIC_PATH,
    build_application,
    build_public_application,
)
from metricshuffle.collection.store.records import StoreError, Verdict
from metricshuffle.collection.terms import canonical, origin_of

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send

Header = tuple[bytes, bytes]

BODY_SECONDS = 10.0
"""Time limit for a report to arrive."""
STOP_GRACE_SECONDS = 1.0
REPORTS = re.compile(r"/v1/collections/([0-9a-f]{64})/reports")


@dataclass(frozen=True)
class Reply:
    """Answer that is constant, except for a random time until the client may send again."""

    status: int
    error: str = ""
    more: tuple[Header, ...] = ()
    again: bool = False
    """Whether the same report may be sent again later."""

    def __post_init__(self) -> None:
        body = canonical({"error": self.error}) if self.error else b""
        kind = ((b"content-type", b"application/json"),) if body else ()
        headers = [
            *kind,
            (b"content-length", str(len(body)).encode()),
            (b"cache-control", b"no-store"),
            *self.more,
        ]
        object.__setattr__(
            self,
            "_start",
            {"type": "http.response.start", "status": self.status, "headers": headers},
        )
        object.__setattr__(self, "_body", {"type": "http.response.body", "body": body})

    async def __call__(self, send: Send) -> None:
        start = getattr(self, "_start").copy()  # noqa: B009 - set above, in a frozen object
        if self.again:
            retry = (b"retry-after", random_retry_after().encode())
            start["headers"] = [*start["headers"], retry]
        await send(start)
        await send(getattr(self, "_body").copy())  # noqa: B009


STORED = Reply(204)
UNKNOWN = Reply(404, "there is no such collection here.")
NOT_POSTED = Reply(405, "a report is sent by POST.", ((b"allow", b"POST"),))
BODY_TIMEOUT = Reply(
    408, f"the report did not arrive within {BODY_SECONDS:g} seconds; send it again."
)
FOREIGN_ORIGIN = Reply(
    403,
    "pages of that site may not send reports here; the operator allows a site with serve --origin.",
)
CLOSED = Reply(410, "this collection is closed.")
NO_LENGTH = Reply(411, "a report is sent with its length (Content-Length), and not in chunks.")
TOO_LONG = Reply(413, "this is longer than a report of this collection.")
NOT_ADMITTED = Reply(403, "this token is not valid for this collection.")
UNREADABLE = Reply(422, "this report cannot be opened.")
BUSY = Reply(429, "too many reports at once; send it again.", again=True)
NOT_YET = Reply(503, "this collection is not open yet; send it again later.", again=True)
TROUBLE = Reply(503, "reports cannot be stored now; send it again.", again=True)
FAULT = Reply(500, "the shuffler failed.")
VERDICTS = {
    Verdict.STORED: STORED,
    Verdict.SAME: STORED,
    Verdict.UNKNOWN_TICKET: Reply(403, "unknown ticket."),
    Verdict.SPENT_TICKET: Reply(409, "this ticket or token was used for another report."),
    Verdict.KNOWN_BOX: Reply(409, "a part of this report belongs to another report."),
    Verdict.CLOSED: CLOSED,
    Verdict.FULL: Reply(429, "this collection has as many reports as it may take.", again=True),
}


class Application:
    """ASGI application for all calls of one shuffler.

    Pages of the collection's own site and of `origins` may send reports; pages of other sites may
    not, or any page could make its visitors fill a collection. Programs send no origin. `log` gets
    messages for the operator.
    """

    def __init__(
        self,
        shuffler: Shuffler | None,
        intake: Intake,
        *,
        origins: Iterable[str] = (),
        log: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._intake = intake
        self._log = log
        self._origins = frozenset(origin_of(site).encode("ascii") for site in origins)
        checks = intake.checks
        if shuffler is not None:
            checks["clock"] = shuffler.clock_trouble
        self.readiness = Readiness(checks)
        self._calls = (
            build_public_application(intake.store, self.readiness.current_trouble)
            if shuffler is None
            else build_application(shuffler, self.readiness.current_trouble)
        )
        self._arriving: set[asyncio.Timeout] = set()
        self.answered = 0
        """Number of answered calls, for the watchdog."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            if self.readiness.is_draining:
                send = _with_headers([(b"connection", b"close")], send)
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
                text = f"A report could not be taken; please report this bug: {failure_text(error)}"
                self._log(LogEvent(text, "bug"))
            await reply(send)
            return
        try:
            await self._calls(scope, receive, send)
        except Exception as error:  # the client has an answer already
            self._log(LogEvent(f"A call failed: {failure_text(error)}", "bug"))

    def shorten_deadlines(self) -> None:
        """Give reports that are still arriving one more second, because the server stops."""
        soon = asyncio.get_running_loop().time() + STOP_GRACE_SECONDS
        for limit in self._arriving:
            limit.reschedule(soon)

    async def _reply(self, digest: str, scope: Scope, receive: Receive) -> Reply:
        if scope["method"] != "POST":
            return NOT_POSTED
        intake = self._intake
        opener = intake.known(digest)
        try:
            if opener is None and not intake.is_closed(digest):
                opener = await intake.opener(digest)
            if opener is None:
                return CLOSED if intake.is_closed(digest) else UNKNOWN
            if any(
                name == b"origin" and site != opener.origin and site not in self._origins
                for name, site in scope["headers"]
            ):
                return FOREIGN_ORIGIN
            size = opener.size
            length = _length(scope["headers"])
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
        except TokenRejected:
            return NOT_ADMITTED
        except Busy:
            return BUSY
        except NotOpenYet:
            return NOT_YET
        except StoreError:
            return TROUBLE


def _length(headers: Iterable[Header]) -> int | None:
    """Content-Length; None if it is missing or repeated, or if the body is chunked."""
    lengths = [value for name, value in headers if name == b"content-length"]
    if (
        len(lengths) != 1
        or not lengths[0].isdigit()
        or any(name == b"transfer-encoding" for name, _ in headers)
    ):
        return None
    return int(lengths[0][:20])


async def _body(receive: Receive) -> bytes:
    """Body of a request.

    The HTTP server reads no more than Content-Length bytes; a truncated report does not open.
    """
    parts = []
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return b""
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return parts[0] if len(parts) == 1 else b"".join(parts)


def _with_cors_headers(origin: bytes, send: Send) -> Send:
    """Add headers that let a page of the given origin read the answer."""
    more = [
        (b"access-control-allow-origin", origin),
        (b"vary", b"Origin"),
        (b"access-control-expose-headers", b"Retry-After"),
    ]
    return _with_headers(more, send)


def _with_headers(more: list[Header], send: Send) -> Send:
    """Add headers to an answer."""

    async def shared(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], *more]}
        await send(message)

    return shared


def _preflight_headers(method: bytes) -> tuple[Header, ...]:
    """Headers of the answer to a browser's preflight request."""
    return (
        (b"access-control-allow-methods", method),
        (b"access-control-allow-headers", b"Content-Type"),
        (b"access-control-max-age", b"600"),
    )
