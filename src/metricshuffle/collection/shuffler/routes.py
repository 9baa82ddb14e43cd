"""HTTP routes of a shuffler except for reports: public, for released outputs, for the operator.

The party that fetches an output and the operator authenticate by a token (`Authorization: Bearer
...`), which is compared in constant time before the body is read. An error is `{"error": "a
sentence"}`.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from metricshuffle.collection.keys import matches_token, token_hash
from metricshuffle.collection.recipes import JsonObject
from metricshuffle.collection.sealed_boxes import TICKET_BYTES
from metricshuffle.collection.shuffler.admission import FINAL_STATES
from metricshuffle.collection.shuffler.readiness import random_retry_after
from metricshuffle.collection.shuffler.scheduler import CLOCK, HISTORY
from metricshuffle.collection.store.guarded_clock import ClockReading, clamped_time_text
from metricshuffle.collection.store.records import CollectionRow, DuplicateCollection, StoreError
from metricshuffle.collection.terms import Collection, instant, parse_time
from metricshuffle.collection.witness import LARGEST_REQUEST, Denied
from metricshuffle.collection.witness import PATH as WITNESS
from metricshuffle.errors import InputError, MetricShuffleError, NotCertified

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from metricshuffle.collection.shuffler.lifecycle import Shuffler
    from metricshuffle.collection.store.sql_store import Store
    from metricshuffle.collection.witness import Countersigner

    Call = Callable[[Request], Awaitable[Response]]

COLLECTION_PATH = "/v1/collections/{digest}"
DIGEST = re.compile("[0-9a-f]{64}")
PUBLIC_PATH = re.compile(f"/v1/collections/{DIGEST.pattern}(/state)?")
"""Paths that pages of other sites may request, if their origin is allowed."""
MAX_BODY_BYTES = 128 * 2**20
"""Limit for a request of the operator: a collection and some million tickets."""
BODY_SECONDS_BASE = 10.0
BODY_SECONDS_PER_MEGABYTE = 1.0
"""Time limits for a request of the operator to arrive."""
MAX_CACHED_FACTS = 2**16
"""Maximum number of collections whose facts are cached."""
STATES_WITH_COUNTS = ("shuffled", "erased", "released", "purged")
"""States in which the number of people is public."""
HEADERS = (
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
)
PAGE_HEADERS = {"Content-Security-Policy": "frame-ancestors 'none'", "X-Frame-Options": "DENY"}
"""Policy that a page cannot set itself; its own policy allows its script and one address."""
STATUS_MESSAGES = {404: "there is no such call.", 405: ("this method is not allowed; see Allow.")}


class CallRejected(MetricShuffleError):
    """A call is answered by an error status."""

    def __init__(self, status: int, error: str, **headers: str) -> None:
        super().__init__(error)
        self.status = status
        self.headers = headers


@lru_cache(maxsize=64)
def read(served: bytes) -> Collection:
    return Collection(served)


@lru_cache(maxsize=16)
def _page(served: bytes, clock: str) -> bytes | str:
    """Join page as this shuffler serves it, with the notes about its clock.

    If its guarantee is not true, the text that says why instead.
    """
    from metricshuffle.collection.client.join_page import join_page

    collection = read(served)
    url = collection.terms.hops[0].url
    try:
        return join_page(collection, url, clock=clock.splitlines()).encode()
    except NotCertified as error:
        return str(error)


def phase(row: CollectionRow, now: float) -> str:
    """Text that says whether reports are accepted at a time; see `AdmissionRules.takes_reports`."""
    terms = read(row.served).terms
    if row.state != "open":
        return {"aborted": "aborted", "purged": "gone"}.get(row.state, "closed")
    if now < parse_time(terms.opens):
        return "not open yet"
    will_extend = row.until == parse_time(terms.closes) and row.reports < terms.minimum
    end = parse_time(terms.extends) if will_extend else row.until
    return "open" if now < end else "closed"


@dataclass(frozen=True)
class CollectionFacts:
    """Terms that the status of a collection repeats.

    They are read without validation, because they were checked when the collection was opened.
    """

    task: str
    terms: JsonObject

    @classmethod
    def of(cls, row: CollectionRow) -> CollectionFacts:
        facts = _FACTS_CACHE.get(row.digest)
        if facts is None:
            terms = json.loads(row.served)
            task = json.loads(terms["task"]).get("digest") or read(row.served).task.digest
            if len(_FACTS_CACHE) >= MAX_CACHED_FACTS:
                _FACTS_CACHE.clear()
            names = (
                "closes",
                "minimum",
                "maximum",
                "opens",
                "extends",
                "round",
                "split",
                "admission",
            )
            facts = cls(task, {name: terms[name] for name in names})
            _FACTS_CACHE[row.digest] = facts
        return facts


_FACTS_CACHE: dict[str, CollectionFacts] = {}


def public_status(row: CollectionRow) -> JsonObject:
    """Public status; the number of people is included once it is final."""
    counted = row.state in STATES_WITH_COUNTS
    return {
        "state": row.state,
        "reason": row.reason,
        "closes": CollectionFacts.of(row).terms["closes"],
        "until": instant(row.until),
        "people": row.people if counted else None,
        "left_out": row.left_out if counted else None,
        "output": row.output if counted else None,
        **({"countersignature": row.countersignature} if row.countersignature else {}),
        **({"leases": row.leases.strip()} if row.leases else {}),
        **({"clock": row.clock.splitlines()} if row.clock else {}),
    }


def operator_status(row: CollectionRow, trouble: str = "") -> JsonObject:
    """Status for the operator; `trouble` says why the collection cannot continue now."""
    facts = CollectionFacts.of(row)
    return {
        "digest": row.digest,
        **facts.terms,
        **public_status(row),
        "reports": row.reports,
        "task": facts.task,
        "collected": row.collected,
        "sealed_at": instant(row.sealed_at) if row.sealed_at else None,
        "released_at": instant(row.released_at) if row.released_at else None,
        "trouble": trouble,
    }


def clock_status(reading: ClockReading) -> JsonObject:
    """Status of the clock for the operator."""
    return {
        "clock": clamped_time_text(reading.wall),
        "expected": clamped_time_text(reading.expected),
        "stored": clamped_time_text(reading.stored) if reading.stored else None,
        "believed": not reading.has_jumped,
        "trouble": reading.trouble or reading.warning,
    }


class _PublicRoutes:
    """Handlers of the public routes, one method each."""

    def __init__(self, store: Store, trouble: Callable[[], Awaitable[str]]) -> None:
        self.store = store
        self.trouble = trouble

    async def _row(self, request: Request) -> CollectionRow:
        digest = request.path_params["digest"]
        row = await asyncio.to_thread(self.store.row, digest) if DIGEST.fullmatch(digest) else None
        if row is None:
            raise CallRejected(404, "there is no such collection here.")
        return row

    # Public routes

    async def alive(self, request: Request) -> Response:
        return _json_response({"ok": True})

    async def ready(self, request: Request) -> Response:
        if trouble := await self.trouble():
            raise StoreError(trouble)
        return _json_response({"ok": True})

    async def collection(self, request: Request) -> Response:
        return _bytes_response((await self._row(request)).served, "application/json")

    async def state(self, request: Request) -> Response:
        row = await self._row(request)
        return _json_response(
            {**public_status(row), "phase": phase(row, await asyncio.to_thread(self.store.now))}
        )

    async def join(self, request: Request) -> Response:
        row = await self._row(request)
        page = await asyncio.to_thread(_page, row.served, row.clock)
        if isinstance(page, str):
            raise CallRejected(404, f"this collection has no page to take part: {page}")
        return _bytes_response(page, "text/html; charset=utf-8", PAGE_HEADERS)

    async def script(self, request: Request) -> Response:
        from metricshuffle.collection.client.join_page import client_bundle

        return _bytes_response(client_bundle(), "text/javascript; charset=utf-8")


class _Routes(_PublicRoutes):
    """Handlers of all routes."""

    def __init__(self, shuffler: Shuffler, trouble: Callable[[], Awaitable[str]]) -> None:
        super().__init__(shuffler.store, trouble)
        self.shuffler = shuffler
        self._operator = token_hash(shuffler.keys.token)

    # Routes for shufflers whose witness this one is

    def _countersigner(self) -> Countersigner:
        if self.shuffler.countersigner is None:
            raise CallRejected(
                404,
                "this shuffler is not a witness; its operator makes it one with serve "
                "--witness-for.",
            )
        return self.shuffler.countersigner

    async def witness(self, request: Request) -> Response:
        return _json_response({"key": self._countersigner().key})

    async def countersign(self, request: Request) -> Response:
        countersigner = self._countersigner()
        content = await read_json_body(request, LARGEST_REQUEST)
        return _json_response(
            {"countersignature": await asyncio.to_thread(countersigner.countersignature, content)}
        )

    # Routes for the party that fetches the output

    async def _authorize_fetch(self, request: Request) -> CollectionRow:
        """Return the row, if the token allows fetching the output."""
        row = await self._row(request)
        collection = read(row.served)
        place = collection.hop_index_of(row.key)
        if place is None or not matches_token(
            bearer_token(request), collection.fetcher_of(place).release
        ):
            raise unauthorized("this token does not allow fetching this output.")
        return row

    async def release(self, request: Request) -> Response:
        from starlette.responses import StreamingResponse

        row = await self._authorize_fetch(request)
        if row.state in ("released", "aborted", "purged"):
            # A state that was only read may be on no standby, which might release another output.
            await asyncio.to_thread(self.store.confirm, row.digest, row.state)
        if row.state in ("aborted", "purged"):
            raise CallRejected(
                410, f"this collection was {row.state}{': ' + row.reason if row.reason else ''}."
            )
        if row.state != "released":
            raise CallRejected(425, f"this collection is {row.state} and not released yet.")
        size = await asyncio.to_thread(self.shuffler.output_size, row.digest)
        headers = {
            "ETag": f'"{row.output}"',
            "X-People": str(row.people),
            "X-Left-Out": str(row.left_out),
            "Content-Length": str(size),
        }
        if row.countersignature:
            headers["X-Countersignature"] = row.countersignature
        return StreamingResponse(
            self.shuffler.output(row.digest), media_type="application/octet-stream", headers=headers
        )

    async def acknowledge(self, request: Request) -> Response:
        from starlette.responses import Response

        row = await self._authorize_fetch(request)
        if not row.output or request.headers.get("if-match", "") != f'"{row.output}"':
            raise CallRejected(
                412, ("If-Match must be the digest of the released output, in quotes.")
            )
        await asyncio.to_thread(self.store.acknowledge, row.digest)
        return Response(status_code=204)

    # Routes of the operator

    def operators(self, call: Call) -> Call:
        """Restrict a call to the operator."""

        async def checked(request: Request) -> Response:
            if not matches_token(bearer_token(request), self._operator):
                raise unauthorized("this is not the operator's token.")
            return await call(request)

        return checked

    async def new_keys(self, request: Request) -> Response:
        witness = await asyncio.to_thread(self.shuffler.new_witness)
        party = await asyncio.to_thread(self.shuffler.new_party)
        content: JsonObject = {"key": party.key, "release": party.release}
        content["gateway"] = await asyncio.to_thread(self.shuffler.gateway_of, party)
        if witness is not None:
            content["witness"] = witness.model_dump()
        return _json_response(content, 201)

    async def open(self, request: Request) -> Response:
        content = await read_json_body(request)
        text = content.get("collection")
        digits = content.get("tickets", "")
        if not isinstance(text, str) or not isinstance(digits, str):
            raise CallRejected(
                400, "a collection is opened with its text and its tickets, in hexadecimal digits."
            )
        served = text.encode()
        is_new = await asyncio.to_thread(self.shuffler.open, served, parse_tickets(digits))
        return _json_response({"digest": Collection(served).digest}, 201 if is_new else 200)

    async def statuses(self, request: Request) -> Response:
        # Rows are read in a thread: thousands of collections would block the event loop.
        def list_statuses() -> Response:
            return _json_response(
                {
                    "collections": [
                        operator_status(row, self._trouble(row)) for row in self.store.rows()
                    ]
                }
            )

        return await asyncio.to_thread(list_statuses)

    async def status(self, request: Request) -> Response:
        row = await self._row(request)
        return _json_response(operator_status(row, self._trouble(row)))

    def _trouble(self, row: CollectionRow) -> str:
        """Why a collection cannot continue: its own trouble, the database, or the clock."""
        trouble = self.shuffler.trouble
        if row.digest in trouble or row.state in FINAL_STATES:
            return trouble.get(row.digest, "")
        return trouble.get(HISTORY, "") or trouble.get(CLOCK, "")

    async def clock(self, request: Request) -> Response:
        return _json_response(clock_status(await asyncio.to_thread(self.store.read_clock)))

    async def confirm_clock(self, request: Request) -> Response:
        return await self._change_clock(request, self.shuffler.confirm_clock)

    async def correct_clock(self, request: Request) -> Response:
        return await self._change_clock(request, self.shuffler.correct_clock)

    async def _change_clock(self, request: Request, change: Callable[[], str]) -> Response:
        await read_json_body(request)
        note = await asyncio.to_thread(change)
        return _json_response(
            {"note": note, **clock_status(await asyncio.to_thread(self.store.read_clock))}
        )

    async def database(self, request: Request) -> Response:
        trouble = await asyncio.to_thread(self.store.history_trouble)
        return _json_response({"accepted": not trouble, "trouble": trouble})

    async def accept_database(self, request: Request) -> Response:
        await read_json_body(request)
        note = await asyncio.to_thread(self.shuffler.accept_database)
        return _json_response({"note": note, "accepted": True, "trouble": ""})

    async def confirm_lease(self, request: Request) -> Response:
        await read_json_body(request)
        confirm = self.shuffler.confirm_lease
        if confirm is None:
            raise CallRejected(404, "this shuffler leases no keys.")
        note = await asyncio.to_thread(confirm, request.path_params["lease"])
        return _json_response({"note": note})

    async def abort(self, request: Request) -> Response:
        reason = (await read_json_body(request)).get("reason", "")
        if not isinstance(reason, str):
            raise CallRejected(400, "a reason must be text; it is public.")
        row = await self._row(request)
        await asyncio.to_thread(self.shuffler.abort, row.digest, reason)
        return await self.status(request)

    async def purge(self, request: Request) -> Response:
        row = await self._row(request)
        await asyncio.to_thread(self.shuffler.purge, row.digest)
        return await self.status(request)


def build_application(shuffler: Shuffler, trouble: Callable[[], Awaitable[str]]) -> Starlette:
    """Build the application of all routes but that of reports.

    `trouble` says why reports cannot be stored now.
    """
    routes = _Routes(shuffler, trouble)
    control = "/v1/control/collections"
    table: list[tuple[str, str, Call]] = [
        *_public_table(routes),
        ("GET", f"{COLLECTION_PATH}/release", routes.release),
        ("DELETE", f"{COLLECTION_PATH}/release", routes.acknowledge),
        ("GET", WITNESS, routes.witness),
        ("POST", WITNESS, routes.countersign),
        ("POST", "/v1/control/keys", routes.operators(routes.new_keys)),
        ("GET", control, routes.operators(routes.statuses)),
        ("POST", control, routes.operators(routes.open)),
        ("GET", f"{control}/{{digest}}", routes.operators(routes.status)),
        ("POST", f"{control}/{{digest}}/abort", routes.operators(routes.abort)),
        ("POST", f"{control}/{{digest}}/purge", routes.operators(routes.purge)),
        ("GET", "/v1/control/clock", routes.operators(routes.clock)),
        ("POST", "/v1/control/clock/confirm", routes.operators(routes.confirm_clock)),
        ("POST", "/v1/control/clock/correct", routes.operators(routes.correct_clock)),
        ("GET", "/v1/control/database", routes.operators(routes.database)),
        ("POST", "/v1/control/database/accept", routes.operators(routes.accept_database)),
        ("POST", "/v1/control/leases/{lease}/confirm", routes.operators(routes.confirm_lease)),
    ]
    return build_starlette(table)


def build_public_application(store: Store, trouble: Callable[[], Awaitable[str]]) -> Starlette:
    """Build the application of an edge: the public routes but that of reports."""
    return build_starlette(_public_table(_PublicRoutes(store, trouble)))


def _public_table(routes: _PublicRoutes) -> list[tuple[str, str, Call]]:
    return [
        ("GET", "/livez", routes.alive),
        ("GET", "/readyz", routes.ready),
        ("GET", "/healthz", routes.ready),
        ("GET", COLLECTION_PATH, routes.collection),
        ("GET", f"{COLLECTION_PATH}/state", routes.state),
        ("GET", "/join/client.js", routes.script),
        ("GET", "/join/{digest}", routes.join),
    ]


def build_starlette(table: list[tuple[str, str, Call]]) -> Starlette:
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.middleware import Middleware
    from starlette.routing import Route

    errors = (HTTPException, CallRejected, Denied, StoreError, DuplicateCollection, InputError)
    return Starlette(
        routes=[Route(path, call, methods=[method]) for method, path, call in table],
        middleware=[Middleware(_SecurityHeaders)],
        exception_handlers={Exception: _answer_failure, **dict.fromkeys(errors, _answer_error)},
    )


async def _answer_error(request: Request, error: Exception) -> Response:
    """Answer to an expected error: unknown path, rejection, failure of the store, invalid input."""
    status = _status_of(error)
    message = (
        STATUS_MESSAGES.get(status, "this call cannot be made.")
        if hasattr(error, "detail")
        else str(error)
    )
    headers = dict(getattr(error, "headers", None) or {})
    if status == 503:
        headers["Retry-After"] = random_retry_after()
    return _json_response({"error": message}, status, headers)


def _status_of(error: Exception) -> int:
    status: int | None = getattr(error, "status", None) or getattr(error, "status_code", None)
    if status is not None:
        return status
    if isinstance(error, StoreError):
        return 503
    return 409 if isinstance(error, DuplicateCollection) else 400


async def _answer_failure(request: Request, error: Exception) -> Response:
    return _json_response(
        {"error": "the shuffler failed."},
        500,
        {name.decode(): value.decode() for name, value in HEADERS},
    )


class _SecurityHeaders:
    """Adds headers that forbid caching, sniffing of types, and referrers."""

    def __init__(self, app: ASGIApp) -> None:
        self._inside = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *HEADERS]
            await send(message)

        await self._inside(scope, receive, with_headers)


def unauthorized(error: str) -> CallRejected:
    return CallRejected(401, error, **{"WWW-Authenticate": "Bearer"})


def bearer_token(request: Request) -> str:
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if kind.lower() == "bearer" else ""


async def read_json_body(request: Request, largest: int = MAX_BODY_BYTES) -> JsonObject:
    """Read the JSON object in the body of a request."""
    from starlette.requests import ClientDisconnect

    length = request.headers.get("content-length", "")
    if not length.isdigit():
        raise CallRejected(411, "a call is sent with its length (Content-Length).")
    if len(length) > 12 or int(length) > largest:
        raise CallRejected(413, f"this call has at most {largest:,} bytes.")
    try:
        async with asyncio.timeout(
            BODY_SECONDS_BASE + BODY_SECONDS_PER_MEGABYTE * int(length) / 2**20
        ):
            body = await request.body()
        content = await asyncio.to_thread(json.loads, body)
    except TimeoutError:
        raise CallRejected(408, "the call did not arrive in time.") from None
    except (ValueError, RecursionError, ClientDisconnect):
        raise CallRejected(400, "this is not JSON, or was cut short.") from None
    if not isinstance(content, dict):
        raise CallRejected(400, "this is not a JSON object.")
    return content


def parse_tickets(digits: str) -> list[bytes]:
    size = 2 * TICKET_BYTES
    try:
        if len(digits) % size:
            raise ValueError
        return [
            bytes.fromhex(digits[start : start + size]) for start in range(0, len(digits), size)
        ]
    except ValueError:
        raise CallRejected(400, f"a ticket is {size} hexadecimal digits.") from None


def _json_response(
    content: object, status: int = 200, headers: dict[str, str] | None = None
) -> Response:
    from starlette.responses import JSONResponse

    return JSONResponse(content, status, headers)


def _bytes_response(content: bytes, kind: str, headers: dict[str, str] | None = None) -> Response:
    from starlette.responses import Response

    return Response(content, media_type=kind, headers=headers)
