"""HTTP client for reports: sends the same bytes until it has an answer, and explains the answer."""

from __future__ import annotations

import asyncio
import json
import math
import re
import secrets
import ssl
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Literal, TypeVar
from urllib.parse import urlsplit

from metricshuffle.collection.adder.sum_terms import AnyCollection, read_any
from metricshuffle.collection.binary_http import BinaryRequest, BinaryResponse, MalformedMessage
from metricshuffle.collection.capsules import CAPSULE_TYPE, KeyConfiguration, padded_size
from metricshuffle.collection.oblivious_calls import ObliviousCalls
from metricshuffle.collection.recipes import JsonObject
from metricshuffle.collection.sealed_boxes import NotOpened
from metricshuffle.collection.terms import (
    MAX_COLLECTION_BYTES,
    Collection,
    origin_of,
    parse_time,
)
from metricshuffle.errors import InputError, MetricShuffleError, PlanError, require

if TYPE_CHECKING:
    import httpx

Outcome = TypeVar("Outcome")
EXTRA = "client"
DIGEST = re.compile("[0-9a-f]{64}")
ADDRESS = re.compile(f"(https?://.+?)/?(?:/(?:v1/collections|join)/({DIGEST.pattern}))?/?")
RELAY = re.compile(r"https?://[^\s/?#@]+(/[^\s#]*)?")
CONNECT_SECONDS = 10.0
READ_SECONDS = 30.0
FIRST_PAUSE_SECONDS = 0.2
MAX_PAUSE_SECONDS = 30.0
MAX_SENTENCE_LENGTH = 300
MAX_ANSWER_BYTES = 2**16
STORED = 204
CLOSED = 410
UNKNOWN_TICKET = 403
SPENT_TICKET = 409
RETRY_STATUSES = (408, 425, 429, 500, 502, 503, 504)
"""Statuses after which the same bytes are sent again later."""
NO_RETRY = math.inf
"""Delay in seconds if another attempt would fail for the same reason."""


class NotStored(MetricShuffleError):
    """The shuffler did not acknowledge a report; `answer` says why."""

    def __init__(self, answer: SubmissionResult) -> None:
        super().__init__(answer.sentence)
        self.answer = answer


@dataclass(frozen=True)
class SubmissionResult:
    """Result of submitting a report.

    `status` is "stored"; "late" (final); "refused" (these bytes will never be accepted); "waiting"
    (to be sent again); or "declined".
    """

    status: Literal["stored", "late", "refused", "waiting", "declined"]
    sentence: str
    code: int = 0
    """Status of the shuffler's answer; 0 without one."""
    before: bool = False
    """Whether this is the result of an earlier call, and nothing was sent now."""

    @property
    def of_ticket(self) -> bool:
        """Whether another ticket may help."""
        return self.code in (UNKNOWN_TICKET, SPENT_TICKET)


LATE_AT_GATEWAY = SubmissionResult(
    "late",
    "This collection is over, and its shuffler cannot open reports any more that come through a "
    "relay; it is not known whether this report was in time.",
)


class Sender:
    """Sends reports over open connections, each for up to `patience` seconds; follows no redirects.

    Once nothing has succeeded for `patience` seconds, further reports are not tried one by one.
    """

    def __init__(self, patience: float, relay: str = "") -> None:
        self._patience = patience
        self._relay = relay
        self._failing_since: float | None = None
        self._failed: tuple[float, SubmissionResult] | None = None

    async def sent(
        self,
        client: httpx.AsyncClient,
        collection: AnyCollection,
        report: Callable[[], Awaitable[bytes | None]],
    ) -> SubmissionResult | None:
        """Post a report until there is a final answer or patience ends.

        The report is loaded before every attempt; returns None if it is gone.
        """
        begun = time.monotonic()
        pause = FIRST_PAUSE_SECONDS
        while True:
            if (failure := self._recent_failure()) is not None:
                return failure
            content = await report()
            if content is None:
                return None
            answer, retry_after = (
                await relay_report(client, collection, content, self._relay)
                if self._relay and isinstance(collection, Collection)
                else await post_report(client, collection, content)
            )
            now = time.monotonic()
            if answer.status != "waiting" or (answer.code and answer.code not in RETRY_STATUSES):
                self._failing_since = None
                return answer
            self._failing_since = self._failing_since or now
            self._failed = (now, answer)
            if retry_after == NO_RETRY:
                self._failing_since = -math.inf
                return answer
            # Random, so that clients do not retry at once, and never before the time that the
            # shuffler asks for.
            wait = max(
                min(retry_after, MAX_PAUSE_SECONDS), pause * (0.5 + secrets.randbelow(1000) / 1000)
            )
            if now + wait > begun + self._patience:
                return answer
            await asyncio.sleep(wait)
            pause = min(2.0 * pause, MAX_PAUSE_SECONDS)

    def _recent_failure(self) -> SubmissionResult | None:
        """Return the latest failure of other reports, if nothing has succeeded for `patience`."""
        if self._failing_since is None or self._failed is None:
            return None
        now, (last, answer) = time.monotonic(), self._failed
        return (
            answer
            if now > self._failing_since + self._patience and last > now - MAX_PAUSE_SECONDS
            else None
        )


async def post_report(
    client: httpx.AsyncClient, collection: AnyCollection, report: bytes
) -> tuple[SubmissionResult, float]:
    """Make one attempt; return its result, and the least delay before the next one in seconds.

    A report with parts for several servers is stored when all of them have stored theirs.
    """
    closes = parse_time(collection.terms.closes)
    with_tokens = collection.terms.issuer is not None
    results = await asyncio.gather(
        *(
            post_part(client, *post, closes, with_tokens=with_tokens)
            for post in collection.posts(report)
        )
    )
    return combined_result([result for result, _ in results]), max(pause for _, pause in results)


def combined_result(results: Sequence[SubmissionResult]) -> SubmissionResult:
    """Result for a report with parts for several servers.

    What no retry can change comes first.
    """
    for status in ("refused", "late", "waiting"):
        some = [result for result in results if result.status == status]
        if some:
            return max(some, key=lambda result: result.code not in (0, *RETRY_STATUSES))
    return results[0]


async def post_part(
    client: httpx.AsyncClient,
    host: str,
    address: str,
    body: bytes,
    closes: int,
    *,
    with_tokens: bool,
) -> tuple[SubmissionResult, float]:
    """Make one attempt at one server."""
    import httpx

    headers = {"content-type": "application/octet-stream"}
    try:
        async with client.stream("POST", address, content=body, headers=headers) as response:
            message = await read_error(response)
    except httpx.HTTPError as error:
        return SubmissionResult(
            "waiting", unreachable_text(host, error)
        ), NO_RETRY if is_untrusted_certificate(error) else 0.0
    result = interpret_status(host, closes, response.status_code, message, with_tokens=with_tokens)
    return result, retry_after_seconds(response.headers.get("retry-after", ""))


async def relay_report(
    client: httpx.AsyncClient, collection: Collection, report: bytes, relay: str
) -> tuple[SubmissionResult, float]:
    """Make one attempt through a relay, in a new capsule; see `post_report`.

    Only what the gateway encrypted is the shuffler's answer; a relay can forge everything else.
    """
    import httpx

    calls = ObliviousCalls(collection)
    capsule, key = calls.configuration.sealed(calls.reporting(report).encoded(calls.request_size))
    headers = {"content-type": CAPSULE_TYPE}
    try:
        async with client.stream("POST", relay, content=capsule, headers=headers) as response:
            data = await read_answer(response)
    except httpx.HTTPError as error:
        is_final = is_untrusted_certificate(error)
        result = SubmissionResult("waiting", unreachable_text(relay, error))
        return result, NO_RETRY if is_final else 0.0
    if response.status_code == 400 and time.time() >= parse_time(collection.terms.extends):
        return LATE_AT_GATEWAY, 0.0
    try:
        inner = BinaryResponse.decoded(key.opened(data if response.status_code == 200 else b""))
    except (NotOpened, MalformedMessage):
        text = (
            f"{relay} did not pass the report on, or its shuffler could not open it: it answers "
            f"{response.status_code}, without an answer of the shuffler."
        )
        return SubmissionResult("waiting", text), retry_after_seconds(
            response.headers.get("retry-after", "")
        )
    message = _error_text(inner.status, _json_object(inner.content))
    return interpret_status(
        collection.terms.hops[0].url,
        parse_time(collection.terms.closes),
        inner.status,
        message,
        with_tokens=collection.terms.issuer is not None,
    ), retry_after_seconds(inner.header("retry-after"))


def interpret_status(
    host: str, closes: int, code: int, message: str, *, with_tokens: bool = False
) -> SubmissionResult:
    """Result for a report, given the HTTP status."""
    more = f" It says: {message}" if message else ""
    if code == STORED:
        return SubmissionResult("stored", "The report is stored.", code)
    if code == CLOSED:
        ended = time.time() >= closes
        return SubmissionResult(
            "late" if ended else "waiting",
            f"{host} takes no more reports of this collection, and it is not known whether "
            f"this report was in time.{more}",
            code,
        )
    if code == UNKNOWN_TICKET and with_tokens:
        return SubmissionResult(
            "refused",
            f"{host} says that this token is not valid, although the issuer's key says that it is; "
            "ask who runs the shuffler.",
            code,
        )
    if code == UNKNOWN_TICKET:
        return SubmissionResult(
            "refused",
            f"{host} does not know this ticket; check its digits, or ask for another one.",
            code,
        )
    if code == SPENT_TICKET:
        return SubmissionResult(
            "refused",
            "This ticket, or its token, was spent on another report; ask for another one if that "
            "was not yours.",
            code,
        )
    if code in (405, 411, 413, 422):
        return SubmissionResult(
            "refused",
            f"{host} cannot open this report: it does not serve the collection that the "
            f"report is for.{more}",
            code,
        )
    if code == 404:
        return SubmissionResult(
            "waiting",
            f"{host} does not know this collection; check who serves it, and send the "
            "report again then.",
            code,
        )
    if code in RETRY_STATUSES:
        return SubmissionResult("waiting", f"{host} cannot take the report now.{more}", code)
    return SubmissionResult(
        "waiting",
        f"{host} answered with the unexpected status {code}; it is unknown whether the report "
        "is stored.",
        code,
    )


async def read_answer(response: httpx.Response, largest: int = MAX_ANSWER_BYTES) -> bytes:
    """Body of an answer; empty if it is too long.

    Reading to the end keeps the connection open.
    """
    data = b""
    async for part in response.aiter_bytes():
        data += part
        if len(data) > largest:
            return b""
    return data


async def answer_of(response: httpx.Response) -> JsonObject:
    """JSON object of an answer; empty if it is anything else or too long."""
    return _json_object(await read_answer(response))


def _json_object(data: bytes) -> JsonObject:
    try:
        answer = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return answer if isinstance(answer, dict) else {}


async def read_error(response: httpx.Response) -> str:
    """Printable error message of an answer; empty if there is none."""
    return _error_text(response.status_code, await answer_of(response))


def _error_text(status: int, answer: JsonObject) -> str:
    message = answer.get("error") if status >= 400 else None
    return (
        message[:MAX_SENTENCE_LENGTH] if isinstance(message, str) and message.isprintable() else ""
    )


def retry_after_seconds(header: str) -> float:
    """Seconds of a Retry-After header; 0 if it is empty or not in seconds."""
    return float(header) if header.isascii() and header.isdigit() and len(header) < 7 else 0.0


def network_error_text(error: Exception) -> str:
    """Short text of a network error."""
    text = " ".join(str(error).split()).rstrip(".")
    return text[:MAX_SENTENCE_LENGTH] if text.isprintable() and text else type(error).__name__


def is_untrusted_certificate(error: Exception) -> bool:
    """Return whether the cause is an untrusted certificate; a retry does not help then."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLCertVerificationError):
        cause = cause.__cause__ or cause.__context__
    return cause is not None


def unreachable_text(address: str, error: Exception) -> str:
    """Sentence that says why a server cannot be reached."""
    if is_untrusted_certificate(error):
        return (
            f"The certificate of {address} is not trusted here, and nothing was sent "
            f"({network_error_text(error)}). If you know that it is right, name its file in "
            "the environment variable SSL_CERT_FILE."
        )
    return f"{address} cannot be reached ({network_error_text(error)})."


@asynccontextmanager
async def open_connection(servers: int = 1) -> AsyncIterator[httpx.AsyncClient]:
    """Open a client with one persistent connection a server; a shared pool would be slower."""
    httpx = require("httpx", EXTRA)
    limits = httpx.Limits(max_connections=servers, max_keepalive_connections=servers)
    timeout = httpx.Timeout(READ_SECONDS, connect=CONNECT_SECONDS, pool=None)
    async with httpx.AsyncClient(
        limits=limits, timeout=timeout, follow_redirects=False, verify=_ssl_context()
    ) as client:
        yield client


@cache
def _ssl_context() -> ssl.SSLContext:
    """Trusted certificates, read once."""
    context: ssl.SSLContext = require("httpx", EXTRA).create_ssl_context()
    return context


def check_relay(relay: str, collections: Iterable[AnyCollection]) -> None:
    """Raise unless reports of all collections can be sent through a relay."""
    shufflers, issuers = [], list[str]()
    for collection in collections:
        if not isinstance(collection, Collection):
            raise InputError(
                "adders have no gateway for reports through a relay; send without one."
            )
        ObliviousCalls(collection).configuration.sealed(b"")  # raises if its key is invalid
        shufflers.append(collection.terms.hops[0].url)
        if collection.terms.issuer is not None:
            issuers.append(collection.terms.issuer.url)
    check_relay_address(relay, shufflers, issuers)
    if len(set(map(origin_of, shufflers))) > 1:
        raise InputError(
            "these collections are at different shufflers, and a relay sends to one of them; send "
            "without a relay, or take part in one collection."
        )


def check_relay_address(relay: str, shufflers: Iterable[str], issuers: Iterable[str] = ()) -> None:
    """Raise for an address that is none, or that of a shuffler or issuer itself."""
    try:
        origin = origin_of(relay)
    except ValueError:
        origin = ""
    if not relay.isascii() or not relay.isprintable() or not RELAY.fullmatch(relay):
        raise InputError(
            f"a relay must have an address like https://relay.example/path, got {relay[:80]!r}."
        )
    if origin in set(map(origin_of, shufflers)):
        raise InputError(
            f"{origin} is the shuffler itself, which would learn your address; a relay is run "
            "by another party."
        )
    if origin in set(map(origin_of, issuers)):
        raise InputError(
            f"{origin} gives the tokens of this collection, and knows who you are; a relay is run "
            "by another party."
        )


def parse_collection_address(address: str, digest: str | None) -> tuple[str, str]:
    """Address and digest of a collection.

    The digest is the argument, or the end of the address (also of a join page).
    """
    match = ADDRESS.fullmatch(address.strip())
    named = match[2] if match is not None else None
    pinned = named if digest is None else digest.strip().lower()
    if match is None or pinned is None or not DIGEST.fullmatch(pinned):
        raise PlanError(
            f"{address[:200]!r} does not end with the digest of a collection; give the digest "
            "that was published with it (digest=), or the file collection.json."
        )
    return f"{match[1]}/v1/collections/{named or pinned}", pinned


async def fetch_collection(address: str, digest: str | None) -> AnyCollection:
    """Fetch a collection; raises PlanError unless its bytes have the pinned digest."""
    httpx = require("httpx", EXTRA)
    address, pinned = parse_collection_address(address, digest)
    data = b""
    try:
        async with open_connection() as client, client.stream("GET", address) as response:
            if response.status_code != 200:
                message = await read_error(response)
                raise PlanError(
                    f"{address[:200]} serves no collection: it answers "
                    f"{response.status_code}.{f' {message}' if message else ''}"
                )
            async for part in response.aiter_bytes():
                data += part
                if len(data) > MAX_COLLECTION_BYTES:
                    raise PlanError(
                        f"{address[:200]} serves more than {MAX_COLLECTION_BYTES:,} bytes, "
                        "which is no collection."
                    )
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise PlanError(unreachable_text(address[:200], error)) from None
    return read_any(data, pinned)


async def run_all(work: Sequence[Coroutine[object, None, None]]) -> None:
    """Run all tasks; if one fails, cancel the others and raise its error."""
    tasks = [asyncio.create_task(part) for part in work]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def fetch_through_relay(
    relay: str, address: str, digest: str | None, gateway: str
) -> Collection:
    """Fetch a collection through a relay; `gateway` is its key, published with the digest.

    Raises PlanError unless the bytes have the pinned digest, and name this gateway.
    """
    httpx = require("httpx", EXTRA)
    address, pinned = parse_collection_address(address, digest)
    try:
        configuration = KeyConfiguration(bytes.fromhex(gateway.strip()))
    except ValueError:
        raise InputError(
            "the key of a gateway consists of hexadecimal digits, and this one does not; check it "
            "letter by letter."
        ) from None
    parts = urlsplit(address)
    request = BinaryRequest("GET", parts.scheme, parts.netloc, parts.path)
    capsule, key = configuration.sealed(request.encoded(padded_size(len(request.encoded()))))
    headers = {"content-type": CAPSULE_TYPE}
    try:
        async with (
            open_connection() as client,
            client.stream("POST", relay, content=capsule, headers=headers) as response,
        ):
            data = await read_answer(response, 2 * MAX_COLLECTION_BYTES)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise PlanError(unreachable_text(relay, error)) from None
    try:
        inner = BinaryResponse.decoded(key.opened(data if response.status_code == 200 else b""))
    except (NotOpened, MalformedMessage):
        raise PlanError(
            f"{relay} answers {response.status_code}, without an answer of the shuffler; check "
            "the relay, and the key of the gateway."
        ) from None
    if inner.status != 200:
        raise PlanError(f"{address[:200]} serves no collection: it answers {inner.status}.")
    collection = Collection.read(inner.content, pinned)
    if collection.terms.gateway != gateway.strip():
        raise PlanError(
            "the collection names another gateway than the one that was published with it; do not "
            "take part."
        )
    return collection


def run_sync(work: Coroutine[object, None, Outcome]) -> Outcome:
    """Run a coroutine from synchronous code, also inside a running loop, as in notebooks."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    outcome: list[Outcome] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            outcome.append(asyncio.run(work))
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return outcome[0]
