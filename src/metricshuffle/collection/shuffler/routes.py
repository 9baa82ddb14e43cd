"""The calls of a shuffler but for reports: what is public, what was released, and what the operator asks for.

Whoever fetches, and the operator, name themselves by a token (`Authorization: Bearer ...`), which is compared in constant time before
anything of the body is read. Answers are JSON; what was wrong is `{"error": "a sentence"}`.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from metricshuffle.collection.keys import matches_token, token_hash
from metricshuffle.collection.sealed_boxes import TICKET_BYTES
from metricshuffle.collection.shuffler.admission import FINAL_STATES
from metricshuffle.collection.shuffler.scheduler import CLOCK
from metricshuffle.collection.store.guarded_clock import ClockReading, clamped_time_text
from metricshuffle.collection.store.interface import DuplicateCollection, Row, StoreError
from metricshuffle.collection.terms import Collection, instant, parse_time
from metricshuffle.collection.witness import LARGEST_REQUEST, Denied
from metricshuffle.collection.witness import PATH as WITNESS
from metricshuffle.errors import InputError, MetricShuffleError

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

    from metricshuffle.collection.shuffler.lifecycle import Shuffler
    from metricshuffle.collection.witness import Countersigner

    Call = Callable[[Request], Awaitable[Response]]

DIGEST = re.compile("[0-9a-f]{64}")
PUBLIC_PATH = re.compile(f"/v1/collections/{DIGEST.pattern}(/state)?")
"""Paths that pages of other sites may ask for, if their origin was allowed."""
MAX_BODY_BYTES = 128 * 2**20
"""Bytes that an operator may send: a collection and some million tickets."""
BODY_SECONDS_BASE, BODY_SECONDS_PER_MEGABYTE = 10.0, 1.0
"""In which that has arrived."""
MAX_CACHED_FACTS = 2**16
"""Collections whose facts are remembered."""
STATES_WITH_COUNTS = ("shuffled", "erased", "released", "purged")
"""States in which it is public how many took part."""
HEADERS = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"), (b"referrer-policy", b"no-referrer"))
PAGE_HEADERS = {"Content-Security-Policy": "frame-ancestors 'none'", "X-Frame-Options": "DENY"}
"""What a page cannot say itself: its own policy allows its script by a hash, and one address to send to."""


STATUS_MESSAGES = {404: "there is no such call.", 405: "this call is not made so; see Allow."}


class CallRejected(MetricShuffleError):
    """A call that gets no 2xx."""

    def __init__(self, status: int, error: str, **headers: str) -> None:
        super().__init__(error)
        self.status, self.headers = status, headers


@lru_cache(maxsize=64)
def read(served: bytes) -> Collection:
    return Collection(served)


@lru_cache(maxsize=16)
def _page(served: bytes, clock: str) -> bytes:
    """The page on which people take part, as this shuffler serves it, with the notes about its clock."""
    from metricshuffle.collection.client.join_page import join_page

    collection = read(served)
    return join_page(collection, collection.terms.hops[0].url, clock=clock.splitlines()).encode()


def phase(row: Row, now: float) -> str:
    """Whether reports are taken at some time, in words for people: what `AdmissionRules.takes_reports` decides when one comes."""
    terms = read(row.served).terms
    if row.state != "open":
        return {"aborted": "aborted", "purged": "gone"}.get(row.state, "closed")
    if now < parse_time(terms.opens):
        return "not open yet"
    undecided = row.until == parse_time(terms.closes) and row.reports < terms.minimum  # then its closing time extends it
    return "open" if now < (parse_time(terms.extends) if undecided else row.until) else "closed"


@dataclass(frozen=True)
class CollectionFacts:
    """What the state of a collection says of its terms, read without checking all of them: they were checked when it was opened."""

    task: str
    terms: dict[str, Any]

    @classmethod
    def of(cls, row: Row) -> CollectionFacts:
        facts = _FACTS_CACHE.get(row.digest)
        if facts is None:
            terms = json.loads(row.served)
            task = json.loads(terms["task"]).get("digest") or read(row.served).task.digest
            if len(_FACTS_CACHE) >= MAX_CACHED_FACTS:
                _FACTS_CACHE.clear()
            names = ("closes", "minimum", "maximum", "opens", "extends", "round", "split", "admission")
            facts = _FACTS_CACHE[row.digest] = cls(task, {name: terms[name] for name in names})
        return facts


_FACTS_CACHE: dict[str, CollectionFacts] = {}


def public_status(row: Row) -> dict[str, Any]:
    """What anybody may know: how many took part is said once that cannot change any more."""
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
        **({"clock": row.clock.splitlines()} if row.clock else {}),
    }


def operator_status(row: Row, trouble: str = "") -> dict[str, Any]:
    """What the operator may know beside that; `trouble` is why it does not go on now, if it does not."""
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


def clock_status(reading: ClockReading) -> dict[str, Any]:
    """What the operator may know of the clock."""
    return {
        "clock": clamped_time_text(reading.wall),
        "expected": clamped_time_text(reading.expected),
        "stored": clamped_time_text(reading.stored) if reading.stored else None,
        "believed": not reading.has_jumped,
        "trouble": reading.trouble or reading.warning,
    }


class _Routes:
    """One method for each call."""

    def __init__(self, shuffler: Shuffler, trouble: Callable[[], str]) -> None:
        self.shuffler, self.store, self.trouble = shuffler, shuffler.store, trouble
        self._operator = token_hash(shuffler.keys.token)

    async def _row(self, request: Request) -> Row:
        digest = request.path_params["digest"]
        row = await asyncio.to_thread(self.store.row, digest) if DIGEST.fullmatch(digest) else None
        if row is None:
            raise CallRejected(404, "there is no such collection here.")
        return row

    # Anybody

    async def health(self, request: Request) -> Response:
        if trouble := await asyncio.to_thread(self.trouble):
            raise StoreError(trouble)
        return _json_response({"ok": True})

    async def collection(self, request: Request) -> Response:
        return _bytes_response((await self._row(request)).served, "application/json")

    async def state(self, request: Request) -> Response:
        row = await self._row(request)
        return _json_response({**public_status(row), "phase": phase(row, await asyncio.to_thread(self.store.now))})

    async def join(self, request: Request) -> Response:
        row = await self._row(request)
        page = await asyncio.to_thread(_page, row.served, row.clock)
        return _bytes_response(page, "text/html; charset=utf-8", PAGE_HEADERS)

    async def script(self, request: Request) -> Response:
        from metricshuffle.collection.client.join_page import client_bundle

        return _bytes_response(client_bundle(), "text/javascript; charset=utf-8")

    # Shufflers of which this one is the witness

    def _countersigner(self) -> Countersigner:
        if self.shuffler.countersigner is None:
            raise CallRejected(404, "this shuffler is nobody's witness; its operator makes it one with serve --witness-for.")
        return self.shuffler.countersigner

    async def witness(self, request: Request) -> Response:
        return _json_response({"key": self._countersigner().key})

    async def countersign(self, request: Request) -> Response:
        countersigner, asked = self._countersigner(), await _read_json_body(request, LARGEST_REQUEST)
        return _json_response({"countersignature": await asyncio.to_thread(countersigner.countersignature, asked)})

    # Whoever fetches

    async def _authorize_fetch(self, request: Request) -> tuple[Row, Collection, int]:
        """The row and the place of this hop, if the token is that of who fetches what it lets go."""
        row = await self._row(request)
        collection = read(row.served)
        place = collection.hop_index_of(row.key)
        if place is None or not matches_token(_bearer(request), collection.fetcher_of(place).release):
            raise _unauthorized("this is not the token of who may fetch this.")
        return row, collection, place

    async def release(self, request: Request) -> Response:
        from starlette.responses import StreamingResponse

        row, collection, place = await self._authorize_fetch(request)
        if row.state in ("aborted", "purged"):
            raise CallRejected(410, f"this collection was {row.state}{': ' + row.reason if row.reason else ''}.")
        if row.state != "released":
            raise CallRejected(425, f"this collection is {row.state} and not released yet.")
        size = row.people * collection.terms.messages * collection.sealing.box_size(collection.layer_of(place) - 1)
        headers = {"ETag": f'"{row.output}"', "X-People": str(row.people), "X-Left-Out": str(row.left_out), "Content-Length": str(size)}
        if row.countersignature:
            headers["X-Countersignature"] = row.countersignature
        return StreamingResponse(self.shuffler.output(row.digest), media_type="application/octet-stream", headers=headers)

    async def acknowledge(self, request: Request) -> Response:
        row, _, _ = await self._authorize_fetch(request)
        if not row.output or request.headers.get("if-match", "") != f'"{row.output}"':
            raise CallRejected(412, "If-Match must be the digest of what was released, in quotes.")
        await asyncio.to_thread(self.store.acknowledge, row.digest)
        return _empty_response()

    # The operator

    def operators(self, call: Call) -> Call:
        """The same call, for the operator alone."""

        async def checked(request: Request) -> Response:
            if not matches_token(_bearer(request), self._operator):
                raise _unauthorized("this is not the operator's token.")
            return await call(request)

        return checked

    async def new_keys(self, request: Request) -> Response:
        witness = await asyncio.to_thread(self.shuffler.new_witness)
        party = await asyncio.to_thread(self.shuffler.new_party)
        told = {"key": party.key, "release": party.release}
        return _json_response(told if witness is None else {**told, "witness": witness.model_dump()}, 201)

    async def open(self, request: Request) -> Response:
        content = await _read_json_body(request)
        text, digits = content.get("collection"), content.get("tickets", "")
        if not isinstance(text, str) or not isinstance(digits, str):
            raise CallRejected(400, "a collection is opened with its text and its tickets, in hexadecimal digits.")
        served, tickets = text.encode(), _tickets(digits)
        is_new = await asyncio.to_thread(self.shuffler.open, served, tickets)
        return _json_response({"digest": Collection(served).digest}, 201 if is_new else 200)

    async def statuses(self, request: Request) -> Response:
        def list_statuses() -> Response:  # thousands of collections take a while, and reports come meanwhile
            return _json_response({"collections": [operator_status(row, self._trouble(row)) for row in self.store.rows()]})

        return await asyncio.to_thread(list_statuses)

    async def status(self, request: Request) -> Response:
        row = await self._row(request)
        return _json_response(operator_status(row, self._trouble(row)))

    def _trouble(self, row: Row) -> str:
        """Why it does not go on: something of its own, or the clock."""
        trouble = self.shuffler.trouble
        return trouble.get(row.digest, "") or (trouble.get(CLOCK, "") if row.state not in FINAL_STATES else "")

    async def clock(self, request: Request) -> Response:
        return _json_response(clock_status(await asyncio.to_thread(self.store.read_clock)))

    async def confirm_clock(self, request: Request) -> Response:
        return await self._change_clock(request, self.shuffler.confirm_clock)

    async def correct_clock(self, request: Request) -> Response:
        return await self._change_clock(request, self.shuffler.correct_clock)

    async def _change_clock(self, request: Request, change: Callable[[], str]) -> Response:
        await _read_json_body(request)
        note = await asyncio.to_thread(change)
        return _json_response({"note": note, **clock_status(await asyncio.to_thread(self.store.read_clock))})

    async def abort(self, request: Request) -> Response:
        reason = (await _read_json_body(request)).get("reason", "")
        if not isinstance(reason, str):
            raise CallRejected(400, "a reason is text, and public.")
        row = await self._row(request)
        await asyncio.to_thread(self.shuffler.abort, row.digest, reason)
        return await self.status(request)

    async def purge(self, request: Request) -> Response:
        row = await self._row(request)
        await asyncio.to_thread(self.shuffler.purge, row.digest)
        return await self.status(request)


def build_application(shuffler: Shuffler, trouble: Callable[[], str]) -> Starlette:
    """The application of every call but those that send reports; `trouble` says why those cannot be stored now, if they cannot."""
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.middleware import Middleware
    from starlette.routing import Route

    routes, collection_path, control = _Routes(shuffler, trouble), "/v1/collections/{digest}", "/v1/control/collections"
    table: list[tuple[str, str, Call]] = [
        ("GET", "/healthz", routes.health),
        ("GET", collection_path, routes.collection),
        ("GET", f"{collection_path}/state", routes.state),
        ("GET", f"{collection_path}/release", routes.release),
        ("DELETE", f"{collection_path}/release", routes.acknowledge),
        ("GET", WITNESS, routes.witness),
        ("POST", WITNESS, routes.countersign),
        ("GET", "/join/client.js", routes.script),
        ("GET", "/join/{digest}", routes.join),
        ("POST", "/v1/control/keys", routes.operators(routes.new_keys)),
        ("GET", control, routes.operators(routes.statuses)),
        ("POST", control, routes.operators(routes.open)),
        ("GET", f"{control}/{{digest}}", routes.operators(routes.status)),
        ("POST", f"{control}/{{digest}}/abort", routes.operators(routes.abort)),
        ("POST", f"{control}/{{digest}}/purge", routes.operators(routes.purge)),
        ("GET", "/v1/control/clock", routes.operators(routes.clock)),
        ("POST", "/v1/control/clock/confirm", routes.operators(routes.confirm_clock)),
        ("POST", "/v1/control/clock/correct", routes.operators(routes.correct_clock)),
    ]
    errors = (HTTPException, CallRejected, Denied, StoreError, DuplicateCollection, InputError)
    return Starlette(
        routes=[Route(path, call, methods=[method]) for method, path, call in table],
        middleware=[Middleware(_SecurityHeaders)],
        exception_handlers={Exception: _answer_failure, **dict.fromkeys(errors, _answer_error)},
    )


async def _answer_error(request: Request, error: Exception) -> Response:
    """What went wrong as an answer: a path that is none, a refusal, trouble with the store, or wrong input."""
    status = getattr(error, "status", None) or getattr(error, "status_code", None)
    if status is None:
        status = 503 if isinstance(error, StoreError) else 409 if isinstance(error, DuplicateCollection) else 400
    message = STATUS_MESSAGES.get(status, "this call cannot be made.") if hasattr(error, "detail") else str(error)
    headers = dict(getattr(error, "headers", None) or {}) | ({"Retry-After": "5"} if status == 503 else {})
    return _json_response({"error": message}, status, headers)


async def _answer_failure(request: Request, error: Exception) -> Response:
    return _json_response({"error": "the shuffler failed."}, 500, {name.decode(): value.decode() for name, value in HEADERS})


class _SecurityHeaders:
    """Nothing is kept by whoever stands in between, and no page of ours says where somebody came from."""

    def __init__(self, app: Any) -> None:
        self._inside = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *HEADERS]
            await send(message)

        await self._inside(scope, receive, with_headers)


def _unauthorized(error: str) -> CallRejected:
    return CallRejected(401, error, **{"WWW-Authenticate": "Bearer"})


def _bearer(request: Request) -> str:
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if kind.lower() == "bearer" else ""


async def _read_json_body(request: Request, largest: int = MAX_BODY_BYTES) -> dict[str, Any]:
    """The JSON object that was sent."""
    from starlette.requests import ClientDisconnect

    length = request.headers.get("content-length", "")
    if not length.isdigit():
        raise CallRejected(411, "a call is sent with its length (Content-Length).")
    if len(length) > 12 or int(length) > largest:
        raise CallRejected(413, f"this call has at most {largest:,} bytes.")
    try:
        async with asyncio.timeout(BODY_SECONDS_BASE + BODY_SECONDS_PER_MEGABYTE * int(length) / 2**20):
            body = await request.body()
        content = await asyncio.to_thread(json.loads, body)
    except TimeoutError:
        raise CallRejected(408, "the call did not arrive in time.") from None
    except (ValueError, RecursionError, ClientDisconnect):
        raise CallRejected(400, "this is not JSON, or was cut short.") from None
    if not isinstance(content, dict):
        raise CallRejected(400, "this is not a JSON object.")
    return content


def _tickets(digits: str) -> list[bytes]:
    size = 2 * TICKET_BYTES
    try:
        if len(digits) % size:
            raise ValueError
        return [bytes.fromhex(digits[start : start + size]) for start in range(0, len(digits), size)]
    except ValueError:
        raise CallRejected(400, f"a ticket is {size} hexadecimal digits.") from None


def _json_response(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    from starlette.responses import JSONResponse

    return JSONResponse(content, status, headers)


def _bytes_response(content: bytes, kind: str, headers: dict[str, str] | None = None) -> Response:
    from starlette.responses import Response

    return Response(content, media_type=kind, headers=headers)


def _empty_response() -> Response:
    from starlette.responses import Response

    return Response(status_code=204)
