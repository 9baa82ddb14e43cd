"""ASGI application of the shuffler. Reports take a fast path; other routes are in `routes`.

Thousands of reports may arrive in a second, so their path needs one match, checks the length before
it reads anything, and creates few objects. Nothing of a request is ever logged: no address, no tag,
no time.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from metricshuffle.collection.admission_tokens import TokenRejected
from metricshuffle.collection.binary_http import BinaryRequest, BinaryResponse, MalformedMessage
from metricshuffle.collection.capsules import (
    ADDED_TO_REQUEST,
    ANSWER_TYPE,
    CAPSULE_TYPE,
    GATEWAY_PATH,
    KEY_PROBLEM,
    PADDING_BYTES,
    SHORT_ANSWER_BYTES,
    padded_size,
)
from metricshuffle.collection.sealed_boxes import NotOpened
from metricshuffle.collection.shuffler.ingest import (
    Busy,
    Intake,
    IntakeOpener,
    NotOpenYet,
    ReportOpener,
)
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
CAPSULE_STEP_SECONDS = 0.05
"""A capsule is answered a multiple of this time after it was opened: storing a report takes longer
than refusing it, and a relay could tell by that."""
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
    body: bytes = b""
    """Body in place of the error, of type `kind`."""
    kind: str = "application/json"

    def __post_init__(self) -> None:
        body = self._content
        kind = ((b"content-type", self.kind.encode()),) if body else ()
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

    @property
    def _content(self) -> bytes:
        return self.body or (canonical({"error": self.error}) if self.error else b"")

    def inside(self) -> bytes:
        """Return the same answer for a capsule; all but a collection have one length."""
        headers = (("content-type", self.kind),) if self._content else ()
        retry = (("retry-after", random_retry_after()),) if self.again else ()
        response = BinaryResponse(self.status, headers + retry, self._content)
        size = padded_size(len(response.encoded())) if self.body else SHORT_ANSWER_BYTES
        return response.encoded(size)

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
NO_TARGET = Reply(404, "only this collection is served through a relay, and takes reports.")
NO_REQUEST = Reply(400, "this is no request in binary HTTP.")
NO_CAPSULE = Reply(
    400,
    kind="application/problem+json",
    body=canonical(
        {
            "type": KEY_PROBLEM,
            "title": "this capsule cannot be opened.",
            "error": "this capsule cannot be opened.",
        }
    ),
)
"""Answer to every capsule that does not open, whatever is wrong with it."""
NO_CAPSULE_POSTED = Reply(405, "a capsule is sent by POST.", ((b"allow", b"POST"),))
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
        if reports or scope["path"] == GATEWAY_PATH:
            try:
                reply = await (
                    self._answered(self._reply(reports[1], scope, receive))
                    if reports
                    else self._answered(self._capsule_reply(scope, receive))
                )
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
        opener = await self._find_opener(digest)
        if isinstance(opener, Reply):
            return opener
        if any(
            name == b"origin" and site != opener.origin and site not in self._origins
            for name, site in scope["headers"]
        ):
            return FOREIGN_ORIGIN
        length = _length(scope["headers"])
        if length is None:
            return NO_LENGTH
        if (refused := _refused_size(opener, length)) is not None:
            return refused
        return VERDICTS[await self._intake.put(opener, await self._read_body(receive))]

    async def _find_opener(self, digest: str) -> IntakeOpener | Reply:
        intake = self._intake
        opener = intake.known(digest)
        if opener is None and not intake.is_closed(digest):
            opener = await intake.opener(digest)
        return opener or (CLOSED if intake.is_closed(digest) else UNKNOWN)

    async def _read_body(self, receive: Receive, largest: float = math.inf) -> bytes:
        async with asyncio.timeout(BODY_SECONDS) as limit:
            self._arriving.add(limit)
            try:
                return await _body(receive, largest)
            finally:
                self._arriving.discard(limit)

    async def _capsule_reply(self, scope: Scope, receive: Receive) -> Reply:
        """Answer a capsule; what is in the answer, and its status, are for the client alone.

        Pages of other sites cannot send capsules: browsers ask before they send this type.
        """
        if scope["method"] != "POST":
            return NO_CAPSULE_POSTED
        is_capsule = (b"content-type", CAPSULE_TYPE.encode()) in scope["headers"]
        largest = await self._intake.largest_capsule()
        length = _length(scope["headers"])  # relays may also send capsules in chunks
        if not is_capsule or (length is not None and not _is_capsule_size(length, largest)):
            return NO_CAPSULE
        capsule = await self._read_body(receive, largest)
        if not _is_capsule_size(len(capsule), largest):
            return NO_CAPSULE
        try:
            opened = await self._intake.open_capsule(capsule)
        except NotOpened:
            return NO_CAPSULE
        loop = asyncio.get_running_loop()
        begun = loop.time()
        reply = await self._answered(self._inner_reply(opened.opener, opened.request))
        await asyncio.sleep(CAPSULE_STEP_SECONDS - (loop.time() - begun) % CAPSULE_STEP_SECONDS)
        return Reply(200, kind=ANSWER_TYPE, body=opened.answer.sealed(reply.inside()))

    async def _inner_reply(self, opener: ReportOpener, content: bytes) -> Reply:
        """Answer the request in a capsule, which is for the collection whose key opened it."""
        try:
            request = BinaryRequest.decoded(content)
        except MalformedMessage:
            return NO_REQUEST
        if opener.calls is not None and opener.calls.is_fetching(request):
            return Reply(200, body=opener.calls.collection.served)
        if opener.calls is None or not opener.calls.is_reporting(request):
            return NO_TARGET
        current = await self._find_opener(opener.digest)
        if isinstance(current, Reply):
            return current
        if (refused := _refused_size(opener, len(request.content))) is not None:
            return refused
        return VERDICTS[await self._intake.put(current, request.content)]

    async def _answered(self, reply: Awaitable[Reply]) -> Reply:
        """Answer, also if a report or capsule cannot be taken."""
        try:
            return await reply
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


def _refused_size(opener: IntakeOpener, length: int) -> Reply | None:
    """Answer to a body that is no report, by its length."""
    size = opener.size
    if length == size:
        return None
    return TOO_LONG if length > size else UNREADABLE


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


def _is_capsule_size(size: int, largest: int) -> bool:
    return ADDED_TO_REQUEST < size <= largest and not (size - ADDED_TO_REQUEST) % PADDING_BYTES


async def _body(receive: Receive, largest: float = math.inf) -> bytes:
    """Body of a request; empty if it is longer than `largest`.

    The HTTP server reads no more than Content-Length bytes; a truncated report does not open.
    """
    parts: list[bytes] = []
    size = 0
    while size <= largest:
        message = await receive()
        if message["type"] != "http.request":
            return b""
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if not message.get("more_body", False):
            return parts[0] if len(parts) == 1 else b"".join(parts)
    return b""


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
