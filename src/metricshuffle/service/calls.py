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

from metricshuffle.errors import InputError, MetricShuffleError
from metricshuffle.service.boxes import TICKET_BYTES
from metricshuffle.service.clock import Reading, moment
from metricshuffle.service.collection import Collection, instant, seconds_of
from metricshuffle.service.driving import CLOCK
from metricshuffle.service.keys import is_token, token_hash
from metricshuffle.service.standing import OVER
from metricshuffle.service.store import Row, SecondCollection, StoreError
from metricshuffle.service.witness import LARGEST_REQUEST, Denied
from metricshuffle.service.witness import PATH as WITNESS

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

    from metricshuffle.service.states import Shuffler
    from metricshuffle.service.witness import Countersigner

    Call = Callable[[Request], Awaitable[Response]]

DIGEST = re.compile("[0-9a-f]{64}")
PUBLIC = re.compile(f"/v1/collections/{DIGEST.pattern}(/state)?")
"""Paths that pages of other sites may ask for, if their origin was allowed."""
LARGEST_CALL = 128 * 2**20
"""Bytes that an operator may send: a collection and some million tickets."""
SECONDS, SECONDS_A_MEGABYTE = 10.0, 1.0
"""In which that has arrived."""
MOST_FACTS = 2**16
"""Collections whose facts are remembered."""
COUNTED = ("shuffled", "erased", "released", "purged")
"""States in which it is public how many took part."""
HEADERS = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"), (b"referrer-policy", b"no-referrer"))
PAGE_HEADERS = {"Content-Security-Policy": "frame-ancestors 'none'", "X-Frame-Options": "DENY"}
"""What a page cannot say itself: its own policy allows its script by a hash, and one address to send to."""


NO_SUCH_CALL = {404: "there is no such call.", 405: "this call is not made so; see Allow."}


class Refused(MetricShuffleError):
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
    from metricshuffle.service.join import join_page

    collection = read(served)
    return join_page(collection, collection.terms.hops[0].url, clock=clock.splitlines()).encode()


def phase(row: Row, now: float) -> str:
    """Whether reports are taken at some time, in words for people: what `Standing.takes_reports` decides when one comes."""
    terms = read(row.served).terms
    if row.state != "open":
        return {"aborted": "aborted", "purged": "gone"}.get(row.state, "closed")
    if now < seconds_of(terms.opens):
        return "not open yet"
    undecided = row.until == seconds_of(terms.closes) and row.reports < terms.minimum  # then its closing time extends it
    return "open" if now < (seconds_of(terms.extends) if undecided else row.until) else "closed"


@dataclass(frozen=True)
class Facts:
    """What the state of a collection says of its terms, read without checking all of them: they were checked when it was opened."""

    task: str
    terms: dict[str, Any]

    @classmethod
    def of(cls, row: Row) -> Facts:
        known = _FACTS.get(row.digest)
        if known is None:
            terms = json.loads(row.served)
            task = json.loads(terms["task"]).get("digest") or read(row.served).task.digest
            if len(_FACTS) >= MOST_FACTS:
                _FACTS.clear()
            shown = ("closes", "minimum", "maximum", "opens", "extends", "round", "split", "admission")
            known = _FACTS[row.digest] = cls(task, {name: terms[name] for name in shown})
        return known


_FACTS: dict[str, Facts] = {}


def public_state(row: Row) -> dict[str, Any]:
    """What anybody may know: how many took part is said once that cannot change any more."""
    counted = row.state in COUNTED
    return {
        "state": row.state,
        "reason": row.reason,
        "closes": Facts.of(row).terms["closes"],
        "until": instant(row.until),
        "people": row.people if counted else None,
        "left_out": row.left_out if counted else None,
        "output": row.output if counted else None,
        **({"countersignature": row.countersignature} if row.countersignature else {}),
        **({"clock": row.clock.splitlines()} if row.clock else {}),
    }


def operators_state(row: Row, trouble: str = "") -> dict[str, Any]:
    """What the operator may know beside that; `trouble` is why it does not go on now, if it does not."""
    facts = Facts.of(row)
    return {
        "digest": row.digest,
        **facts.terms,
        **public_state(row),
        "reports": row.reports,
        "task": facts.task,
        "collected": row.collected,
        "sealed_at": instant(row.sealed_at) if row.sealed_at else None,
        "released_at": instant(row.released_at) if row.released_at else None,
        "trouble": trouble,
    }


def clock_state(reading: Reading) -> dict[str, Any]:
    """What the operator may know of the clock."""
    return {
        "clock": moment(reading.wall),
        "expected": moment(reading.expected),
        "stored": moment(reading.stored) if reading.stored else None,
        "believed": not reading.has_jumped,
        "trouble": reading.trouble or reading.warning,
    }


class _Calls:
    """One method for each call."""

    def __init__(self, shuffler: Shuffler, trouble: Callable[[], str]) -> None:
        self.shuffler, self.store, self.trouble = shuffler, shuffler.store, trouble
        self._operator = token_hash(shuffler.keys.token)

    async def _row(self, request: Request) -> Row:
        digest = request.path_params["digest"]
        row = await asyncio.to_thread(self.store.row, digest) if DIGEST.fullmatch(digest) else None
        if row is None:
            raise Refused(404, "there is no such collection here.")
        return row

    # Anybody

    async def health(self, request: Request) -> Response:
        if trouble := await asyncio.to_thread(self.trouble):
            raise StoreError(trouble)
        return _answer({"ok": True})

    async def collection(self, request: Request) -> Response:
        return _bytes((await self._row(request)).served, "application/json")

    async def state(self, request: Request) -> Response:
        row = await self._row(request)
        return _answer({**public_state(row), "phase": phase(row, await asyncio.to_thread(self.store.now))})

    async def join(self, request: Request) -> Response:
        row = await self._row(request)
        page = await asyncio.to_thread(_page, row.served, row.clock)
        return _bytes(page, "text/html; charset=utf-8", PAGE_HEADERS)

    async def script(self, request: Request) -> Response:
        from metricshuffle.service.join import client_bundle

        return _bytes(client_bundle(), "text/javascript; charset=utf-8")

    # Shufflers of which this one is the witness

    def _countersigner(self) -> Countersigner:
        if self.shuffler.countersigner is None:
            raise Refused(404, "this shuffler is nobody's witness; its operator makes it one with serve --witness-for.")
        return self.shuffler.countersigner

    async def witness(self, request: Request) -> Response:
        return _answer({"key": self._countersigner().key})

    async def countersign(self, request: Request) -> Response:
        countersigner, asked = self._countersigner(), await _asked(request, LARGEST_REQUEST)
        return _answer({"countersignature": await asyncio.to_thread(countersigner.countersignature, asked)})

    # Whoever fetches

    async def _fetched(self, request: Request) -> tuple[Row, Collection, int]:
        """The row and the place of this hop, if the token is that of who fetches what it lets go."""
        row = await self._row(request)
        collection = read(row.served)
        place = collection.place_of(row.key)
        if place is None or not is_token(_bearer(request), collection.fetcher_of(place).release):
            raise _unknown("this is not the token of who may fetch this.")
        return row, collection, place

    async def release(self, request: Request) -> Response:
        from starlette.responses import StreamingResponse

        row, collection, place = await self._fetched(request)
        if row.state in ("aborted", "purged"):
            raise Refused(410, f"this collection was {row.state}{': ' + row.reason if row.reason else ''}.")
        if row.state != "released":
            raise Refused(425, f"this collection is {row.state} and not released yet.")
        size = row.people * collection.terms.messages * collection.sealing.box_size(collection.layer_of(place) - 1)
        headers = {"ETag": f'"{row.output}"', "X-People": str(row.people), "X-Left-Out": str(row.left_out), "Content-Length": str(size)}
        if row.countersignature:
            headers["X-Countersignature"] = row.countersignature
        return StreamingResponse(self.shuffler.output(row.digest), media_type="application/octet-stream", headers=headers)

    async def acknowledge(self, request: Request) -> Response:
        row, _, _ = await self._fetched(request)
        if not row.output or request.headers.get("if-match", "") != f'"{row.output}"':
            raise Refused(412, "If-Match must be the digest of what was released, in quotes.")
        await asyncio.to_thread(self.store.acknowledge, row.digest)
        return _nothing()

    # The operator

    def operators(self, call: Call) -> Call:
        """The same call, for the operator alone."""

        async def checked(request: Request) -> Response:
            if not is_token(_bearer(request), self._operator):
                raise _unknown("this is not the operator's token.")
            return await call(request)

        return checked

    async def new_keys(self, request: Request) -> Response:
        witness = await asyncio.to_thread(self.shuffler.new_witness)
        party = await asyncio.to_thread(self.shuffler.new_party)
        told = {"key": party.key, "release": party.release}
        return _answer(told if witness is None else {**told, "witness": witness.model_dump()}, 201)

    async def open(self, request: Request) -> Response:
        asked = await _asked(request)
        text, digits = asked.get("collection"), asked.get("tickets", "")
        if not isinstance(text, str) or not isinstance(digits, str):
            raise Refused(400, "a collection is opened with its text and its tickets, in hexadecimal digits.")
        served, tickets = text.encode(), _tickets(digits)
        is_new = await asyncio.to_thread(self.shuffler.open, served, tickets)
        return _answer({"digest": Collection(served).digest}, 201 if is_new else 200)

    async def statuses(self, request: Request) -> Response:
        def told() -> Response:  # thousands of collections take a while, and reports come meanwhile
            return _answer({"collections": [operators_state(row, self._trouble(row)) for row in self.store.rows()]})

        return await asyncio.to_thread(told)

    async def status(self, request: Request) -> Response:
        row = await self._row(request)
        return _answer(operators_state(row, self._trouble(row)))

    def _trouble(self, row: Row) -> str:
        """Why it does not go on: something of its own, or the clock."""
        trouble = self.shuffler.trouble
        return trouble.get(row.digest, "") or (trouble.get(CLOCK, "") if row.state not in OVER else "")

    async def clock(self, request: Request) -> Response:
        return _answer(clock_state(await asyncio.to_thread(self.store.read_clock)))

    async def confirm_clock(self, request: Request) -> Response:
        return await self._changed_clock(request, self.shuffler.confirm_clock)

    async def correct_clock(self, request: Request) -> Response:
        return await self._changed_clock(request, self.shuffler.correct_clock)

    async def _changed_clock(self, request: Request, change: Callable[[], str]) -> Response:
        await _asked(request)
        note = await asyncio.to_thread(change)
        return _answer({"note": note, **clock_state(await asyncio.to_thread(self.store.read_clock))})

    async def abort(self, request: Request) -> Response:
        reason = (await _asked(request)).get("reason", "")
        if not isinstance(reason, str):
            raise Refused(400, "a reason is text, and public.")
        row = await self._row(request)
        await asyncio.to_thread(self.shuffler.abort, row.digest, reason)
        return await self.status(request)

    async def purge(self, request: Request) -> Response:
        row = await self._row(request)
        await asyncio.to_thread(self.shuffler.purge, row.digest)
        return await self.status(request)


def calls(shuffler: Shuffler, trouble: Callable[[], str]) -> Starlette:
    """The application of every call but those that send reports; `trouble` says why those cannot be stored now, if they cannot."""
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.middleware import Middleware
    from starlette.routing import Route

    own, one, control = _Calls(shuffler, trouble), "/v1/collections/{digest}", "/v1/control/collections"
    table: list[tuple[str, str, Call]] = [
        ("GET", "/healthz", own.health),
        ("GET", one, own.collection),
        ("GET", f"{one}/state", own.state),
        ("GET", f"{one}/release", own.release),
        ("DELETE", f"{one}/release", own.acknowledge),
        ("GET", WITNESS, own.witness),
        ("POST", WITNESS, own.countersign),
        ("GET", "/join/client.js", own.script),
        ("GET", "/join/{digest}", own.join),
        ("POST", "/v1/control/keys", own.operators(own.new_keys)),
        ("GET", control, own.operators(own.statuses)),
        ("POST", control, own.operators(own.open)),
        ("GET", f"{control}/{{digest}}", own.operators(own.status)),
        ("POST", f"{control}/{{digest}}/abort", own.operators(own.abort)),
        ("POST", f"{control}/{{digest}}/purge", own.operators(own.purge)),
        ("GET", "/v1/control/clock", own.operators(own.clock)),
        ("POST", "/v1/control/clock/confirm", own.operators(own.confirm_clock)),
        ("POST", "/v1/control/clock/correct", own.operators(own.correct_clock)),
    ]
    errors = (HTTPException, Refused, Denied, StoreError, SecondCollection, InputError)
    return Starlette(
        routes=[Route(path, call, methods=[method]) for method, path, call in table],
        middleware=[Middleware(_WithHeaders)],
        exception_handlers={Exception: _failed, **dict.fromkeys(errors, _refused)},
    )


async def _refused(request: Request, wrong: Exception) -> Response:
    """What went wrong as an answer: a path that is none, a refusal, trouble with the store, or wrong input."""
    status = getattr(wrong, "status", None) or getattr(wrong, "status_code", None)
    if status is None:
        status = 503 if isinstance(wrong, StoreError) else 409 if isinstance(wrong, SecondCollection) else 400
    told = NO_SUCH_CALL.get(status, "this call cannot be made.") if hasattr(wrong, "detail") else str(wrong)
    headers = dict(getattr(wrong, "headers", None) or {}) | ({"Retry-After": "5"} if status == 503 else {})
    return _answer({"error": told}, status, headers)


async def _failed(request: Request, wrong: Exception) -> Response:
    return _answer({"error": "the shuffler failed."}, 500, {name.decode(): value.decode() for name, value in HEADERS})


class _WithHeaders:
    """Nothing is kept by whoever stands in between, and no page of ours says where somebody came from."""

    def __init__(self, app: Any) -> None:
        self._inside = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *HEADERS]
            await send(message)

        await self._inside(scope, receive, with_headers)


def _unknown(error: str) -> Refused:
    return Refused(401, error, **{"WWW-Authenticate": "Bearer"})


def _bearer(request: Request) -> str:
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if kind.lower() == "bearer" else ""


async def _asked(request: Request, largest: int = LARGEST_CALL) -> dict[str, Any]:
    """The JSON object that was sent."""
    from starlette.requests import ClientDisconnect

    told = request.headers.get("content-length", "")
    if not told.isdigit():
        raise Refused(411, "a call is sent with its length (Content-Length).")
    if len(told) > 12 or int(told) > largest:
        raise Refused(413, f"this call has at most {largest:,} bytes.")
    try:
        async with asyncio.timeout(SECONDS + SECONDS_A_MEGABYTE * int(told) / 2**20):
            body = await request.body()
        asked = await asyncio.to_thread(json.loads, body)
    except TimeoutError:
        raise Refused(408, "the call did not arrive in time.") from None
    except (ValueError, RecursionError, ClientDisconnect):
        raise Refused(400, "this is not JSON, or was cut short.") from None
    if not isinstance(asked, dict):
        raise Refused(400, "this is not a JSON object.")
    return asked


def _tickets(digits: str) -> list[bytes]:
    size = 2 * TICKET_BYTES
    try:
        if len(digits) % size:
            raise ValueError
        return [bytes.fromhex(digits[start : start + size]) for start in range(0, len(digits), size)]
    except ValueError:
        raise Refused(400, f"a ticket is {size} hexadecimal digits.") from None


def _answer(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    from starlette.responses import JSONResponse

    return JSONResponse(content, status, headers)


def _bytes(content: bytes, kind: str, headers: dict[str, str] | None = None) -> Response:
    from starlette.responses import Response

    return Response(content, media_type=kind, headers=headers)


def _nothing() -> Response:
    from starlette.responses import Response

    return Response(status_code=204)
