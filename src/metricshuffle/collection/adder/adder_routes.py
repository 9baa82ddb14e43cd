"""HTTP routes of an adder: public ones, for the other adders, for the analyst, for the operator.

Shares are sent like reports of a collection and take the fast path of `asgi_app`. Other adders sign
what they send, which is checked before more than its head is read.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import TYPE_CHECKING

from metricshuffle.collection.adder.adder_service import AdderService, read_sum
from metricshuffle.collection.adder.share_boxes import NAME_BYTES
from metricshuffle.collection.adder.share_intake import ShareIntake
from metricshuffle.collection.adder.sum_signatures import (
    HEAD_BYTES,
    InvalidList,
    ListHead,
    NameList,
    SumStatement,
)
from metricshuffle.collection.adder.sum_store import FINAL_SUM_STATES, SumRow
from metricshuffle.collection.adder.sum_terms import SumCollection
from metricshuffle.collection.keys import matches_token, token_hash
from metricshuffle.collection.recipes import JsonObject
from metricshuffle.collection.shuffler.asgi_app import Application
from metricshuffle.collection.shuffler.routes import (
    BODY_SECONDS_BASE,
    BODY_SECONDS_PER_MEGABYTE,
    COLLECTION_PATH,
    DIGEST,
    CallRejected,
    bearer_token,
    build_starlette,
    clock_status,
    parse_tickets,
    read_json_body,
    unauthorized,
)
from metricshuffle.collection.store.records import StoreError
from metricshuffle.collection.terms import instant

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

    Call = Callable[[Request], Awaitable[Response]]

MAX_STATEMENT_BYTES = 2_000
COUNTED_STATES = ("added", "released", "purged")
"""States in which the number of people is public."""


def sum_phase(row: SumRow, now: float) -> str:
    """Text that says whether reports are accepted at a time."""
    if row.state == "open" and now < row.opens:
        return "not open yet"
    if row.takes_reports(now):
        return "open"
    return {"aborted": "aborted", "purged": "gone"}.get(row.state, "closed")


def public_sum_status(row: SumRow) -> JsonObject:
    """Public status; the number of people is included once it is final."""
    return {
        "state": row.state,
        "reason": row.reason,
        "closes": instant(row.closes),
        "until": instant(row.until),
        "people": row.people if row.state in COUNTED_STATES else None,
        **({"clock": row.clock.splitlines()} if row.clock else {}),
    }


def operator_sum_status(row: SumRow, trouble: str = "") -> JsonObject:
    """Status for the operator; `trouble` says why the sum cannot continue now."""
    collection = read_sum(row.served)
    terms = collection.terms
    names = ("minimum", "maximum", "opens", "extends", "round", "admission")
    return {
        "digest": row.digest,
        **{name: getattr(terms, name) for name in names},
        "split": list(terms.split),
        **public_sum_status(row),
        "adder": row.place + 1,
        "reports": row.reports,
        "task": collection.task.digest,
        "collected": bool(row.collected),
        "released_at": instant(row.released_at) if row.released_at else None,
        "trouble": trouble,
    }


class _AdderRoutes:
    """Handlers of all routes of an adder but that of shares."""

    def __init__(self, adder: AdderService, trouble: Callable[[], Awaitable[str]]) -> None:
        self.adder = adder
        self.trouble = trouble
        self._operator = token_hash(adder.keys.token)

    async def _row(self, request: Request) -> SumRow:
        digest = request.path_params["digest"]
        row = None
        if DIGEST.fullmatch(digest):
            row = await asyncio.to_thread(self.adder.store.sum_row, digest)
        if row is None:
            raise CallRejected(404, "there is no such sum here.")
        return row

    # Public routes

    async def alive(self, request: Request) -> Response:
        return _answer({"ok": True})

    async def ready(self, request: Request) -> Response:
        if trouble := await self.trouble():
            raise StoreError(trouble)
        return _answer({"ok": True})

    async def served(self, request: Request) -> Response:
        from starlette.responses import Response

        return Response((await self._row(request)).served, media_type="application/json")

    async def state(self, request: Request) -> Response:
        row = await self._row(request)
        now = await asyncio.to_thread(self.adder.store.now)
        return _answer({**public_sum_status(row), "phase": sum_phase(row, now)})

    # Routes for the other adders

    async def names(self, request: Request) -> Response:
        row = await self._row(request)
        collection = read_sum(row.served)
        length = _content_length(request, HEAD_BYTES + collection.terms.maximum * NAME_BYTES)
        try:
            async with asyncio.timeout(
                BODY_SECONDS_BASE + BODY_SECONDS_PER_MEGABYTE * length / 2**20
            ):
                signed = await _read_list(request.stream(), collection, length)
        except TimeoutError:
            raise CallRejected(408, "the list did not arrive in time.") from None
        return await self._taken(row, lambda: self.adder.take_list(row, signed))

    async def statements(self, request: Request) -> Response:
        row = await self._row(request)
        content = await read_json_body(request, MAX_STATEMENT_BYTES)
        names = {"place": int, "hashed": str, "people": int, "signature": str}
        if set(content) != set(names) or any(
            type(content[name]) is not kind for name, kind in names.items()
        ):
            raise CallRejected(400, f"a statement has {', '.join(names)}.")
        statement = SumStatement(**content)
        return await self._taken(row, lambda: self.adder.take_statement(row, statement))

    async def _taken(self, row: SumRow, take: Callable[[], bool]) -> Response:
        """Answer to what another adder sent."""
        from starlette.responses import Response

        if row.state == "aborted":
            raise CallRejected(410, f"this sum was aborted: {row.reason}.")
        try:
            taken = await asyncio.to_thread(take)
        except InvalidList as error:
            raise CallRejected(403, str(error)) from None
        if not taken:
            raise CallRejected(409, "this adder sent another list or set of reports before.")
        return Response(status_code=204)

    # Routes for the analyst

    async def _authorize_fetch(self, request: Request) -> SumRow:
        row = await self._row(request)
        if not matches_token(bearer_token(request), read_sum(row.served).terms.analyst.release):
            raise unauthorized("this token does not allow fetching this total.")
        return row

    async def release(self, request: Request) -> Response:
        row = await self._authorize_fetch(request)
        if row.state in FINAL_SUM_STATES:
            await asyncio.to_thread(self.adder.store.confirm_sum, row.digest, row.state)
            reason = f": {row.reason}" if row.reason else ""
            raise CallRejected(410, f"this sum was {row.state}{reason}.")
        if row.state != "released" or row.total is None:
            raise CallRejected(425, f"this sum is {row.state} and not released yet.")
        await asyncio.to_thread(self.adder.store.confirm_sum, row.digest, "released")
        statements = await asyncio.to_thread(self.adder.store.statements, row.digest)
        own = statements[row.place]
        content = {
            "adder": row.place,
            "people": own.people,
            "names": own.hashed,
            "signatures": [statements[place].signature for place in sorted(statements)],
            "total": bytes(row.total).hex(),
        }
        return _answer(content, headers={"ETag": f'"{own.hashed}"'})

    async def acknowledge(self, request: Request) -> Response:
        from starlette.responses import Response

        row = await self._authorize_fetch(request)
        statements = await asyncio.to_thread(self.adder.store.statements, row.digest)
        own = statements.get(row.place)
        is_released = row.state in ("released", "purged") and own is not None
        if not is_released or request.headers.get("if-match", "") != f'"{own and own.hashed}"':
            raise CallRejected(412, "If-Match must be the digest of the summed names, in quotes.")
        await asyncio.to_thread(self.adder.store.acknowledge_sum, row.digest)
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
        party = await asyncio.to_thread(self.adder.new_party)
        return _answer({"key": party.key, "signature": self.adder.signing.public}, 201)

    async def open(self, request: Request) -> Response:
        content = await read_json_body(request)
        text = content.get("collection")
        digits = content.get("tickets", "")
        if not isinstance(text, str) or not isinstance(digits, str):
            raise CallRejected(
                400, "a sum is opened with its text and its tickets, in hexadecimal digits."
            )
        served = text.encode(errors="replace")
        is_new = await asyncio.to_thread(self.adder.open, served, parse_tickets(digits))
        return _answer({"digest": SumCollection(served).digest}, 201 if is_new else 200)

    async def list_sums(self, request: Request) -> Response:
        rows = await asyncio.to_thread(self.adder.store.sum_rows)
        return _answer({"collections": [self._status(row) for row in rows]})

    async def show(self, request: Request) -> Response:
        return _answer(self._status(await self._row(request)))

    def _status(self, row: SumRow) -> JsonObject:
        trouble = self.adder.trouble
        return operator_sum_status(row, trouble.get(row.digest, "") or trouble.get("clock", ""))

    async def abort(self, request: Request) -> Response:
        reason = (await read_json_body(request)).get("reason", "")
        if not isinstance(reason, str):
            raise CallRejected(400, "a reason must be text; it is public.")
        row = await self._row(request)
        return _answer(self._status(await asyncio.to_thread(self.adder.abort, row.digest, reason)))

    async def purge(self, request: Request) -> Response:
        row = await self._row(request)
        return _answer(self._status(await asyncio.to_thread(self.adder.purge, row.digest)))

    async def clock(self, request: Request) -> Response:
        return _answer(clock_status(await asyncio.to_thread(self.adder.store.read_clock)))

    async def confirm_clock(self, request: Request) -> Response:
        return await self._change_clock(request, self.adder.confirm_clock)

    async def correct_clock(self, request: Request) -> Response:
        return await self._change_clock(request, self.adder.correct_clock)

    async def _change_clock(self, request: Request, change: Callable[[], str]) -> Response:
        await read_json_body(request)
        note = await asyncio.to_thread(change)
        reading = await asyncio.to_thread(self.adder.store.read_clock)
        return _answer({"note": note, **clock_status(reading)})


def _content_length(request: Request, largest: int) -> int:
    length = request.headers.get("content-length", "")
    if not length.isdigit():
        raise CallRejected(411, "a list is sent with its length (Content-Length).")
    if len(length) > 12 or int(length) > largest:
        raise CallRejected(413, "this is longer than a list of this sum.")
    return int(length)


async def _read_list(
    chunks: AsyncIterator[bytes], collection: SumCollection, length: int
) -> NameList:
    """Read a list of names; its signature is checked before more than its head is read."""
    from starlette.requests import ClientDisconnect

    data = bytearray()
    head: ListHead | None = None
    try:
        async for chunk in chunks:
            data += chunk
            if head is None and len(data) >= HEAD_BYTES:
                head = await asyncio.to_thread(ListHead.read, bytes(data[:HEAD_BYTES]), collection)
                if length != HEAD_BYTES + head.count * NAME_BYTES:
                    raise InvalidList("a list of names has another length than was signed.")
    except ClientDisconnect:
        raise CallRejected(400, "the list was cut short.") from None
    except InvalidList as error:
        raise CallRejected(403, str(error)) from None
    if head is None:
        raise CallRejected(400, "a list of names is too short.")
    return NameList(head, bytes(data[HEAD_BYTES:]))


def _answer(content: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    from starlette.responses import JSONResponse

    return JSONResponse(content, status, headers)


def build_adder_routes(adder: AdderService, trouble: Callable[[], Awaitable[str]]) -> Starlette:
    """Build the application of all routes but that of shares."""
    routes = _AdderRoutes(adder, trouble)
    control = "/v1/control/collections"
    table: list[tuple[str, str, Call]] = [
        ("GET", "/livez", routes.alive),
        ("GET", "/readyz", routes.ready),
        ("GET", "/healthz", routes.ready),
        ("GET", COLLECTION_PATH, routes.served),
        ("GET", f"{COLLECTION_PATH}/state", routes.state),
        ("POST", f"{COLLECTION_PATH}/names", routes.names),
        ("POST", f"{COLLECTION_PATH}/statements", routes.statements),
        ("GET", f"{COLLECTION_PATH}/release", routes.release),
        ("DELETE", f"{COLLECTION_PATH}/release", routes.acknowledge),
        ("POST", "/v1/control/keys", routes.operators(routes.new_keys)),
        ("GET", control, routes.operators(routes.list_sums)),
        ("POST", control, routes.operators(routes.open)),
        ("GET", f"{control}/{{digest}}", routes.operators(routes.show)),
        ("POST", f"{control}/{{digest}}/abort", routes.operators(routes.abort)),
        ("POST", f"{control}/{{digest}}/purge", routes.operators(routes.purge)),
        ("GET", "/v1/control/clock", routes.operators(routes.clock)),
        ("POST", "/v1/control/clock/confirm", routes.operators(routes.confirm_clock)),
        ("POST", "/v1/control/clock/correct", routes.operators(routes.correct_clock)),
    ]
    return build_starlette(table)


class AdderApplication(Application):
    """ASGI application for all calls of one adder."""

    def __init__(
        self,
        adder: AdderService,
        intake: ShareIntake,
        *,
        origins: Iterable[str] = (),
        log: Callable[[str], None] = lambda _: None,
    ) -> None:
        super().__init__(None, intake, origins=origins, log=log)
        self.readiness.checks["clock"] = adder.clock_trouble
        self._calls = build_adder_routes(adder, self.readiness.current_trouble)
