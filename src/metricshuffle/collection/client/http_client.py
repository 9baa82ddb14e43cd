"""A report on the network: the same bytes again until there is an answer, and what the answer means, in words."""

from __future__ import annotations

import asyncio
import json
import math
import re
import secrets
import ssl
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from metricshuffle.collection.terms import MAX_COLLECTION_BYTES, Collection, parse_time
from metricshuffle.errors import MetricShuffleError, PlanError, require

if TYPE_CHECKING:
    import httpx

Outcome = TypeVar("Outcome")
EXTRA = "client"
DIGEST = re.compile("[0-9a-f]{64}")
ADDRESS = re.compile(f"(https?://.+?)/?(?:/(?:v1/collections|join)/({DIGEST.pattern}))?/?")
CONNECT_SECONDS, READ_SECONDS = 10.0, 30.0
FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.2, 30.0
MAX_SENTENCE_LENGTH, MAX_ANSWER_BYTES = 300, 2**16
STORED, CLOSED = 204, 410
UNKNOWN_TICKET, SPENT_TICKET = 403, 409
RETRY_STATUSES = (408, 425, 429, 500, 502, 503, 504)
"""Answers after which the same bytes are sent again, by and by."""
NO_RETRY = math.inf
"""How many seconds to wait where another attempt would end as this one did."""


class NotStored(MetricShuffleError):
    """A report that the shuffler did not acknowledge; `answer` says what it did."""

    def __init__(self, answer: SubmissionResult) -> None:
        super().__init__(answer.sentence)
        self.answer = answer


@dataclass(frozen=True)
class SubmissionResult:
    """What became of a report: "stored"; "late", after which nothing helps; "refused", with these bytes; "waiting", to be sent again;
    or "declined"."""

    status: Literal["stored", "late", "refused", "waiting", "declined"]
    sentence: str
    code: int = 0
    """The status of the shuffler's answer; 0 if there was none."""
    before: bool = False
    """Whether that was so before, and nothing was sent now."""

    @property
    def of_ticket(self) -> bool:
        """Whether another ticket helps."""
        return self.code in (UNKNOWN_TICKET, SPENT_TICKET)


class Sender:
    """Sends reports over connections that are open. One is tried for up to `patience` seconds; redirections are never followed.

    When nothing has got through for that long, the reports behind it are not tried one by one as well.
    """

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._failing_since: float | None = None
        self._failed: tuple[float, SubmissionResult] | None = None

    async def sent(
        self, client: httpx.AsyncClient, collection: Collection, report: Callable[[], Awaitable[bytes | None]]
    ) -> SubmissionResult | None:
        """Post a report until there is an answer that stays, or patience ends. It is asked for before every attempt: None if it is gone."""
        begun, pause = time.monotonic(), FIRST_PAUSE_SECONDS
        while True:
            if (failure := self._recent_failure()) is not None:
                return failure
            content = await report()
            if content is None:
                return None
            answer, retry_after = await post_report(client, collection, content)
            now = time.monotonic()
            if answer.status != "waiting" or (answer.code and answer.code not in RETRY_STATUSES):
                self._failing_since = None
                return answer
            self._failing_since, self._failed = self._failing_since or now, (now, answer)
            if retry_after == NO_RETRY:
                self._failing_since = -math.inf
                return answer
            # (not all at the same moment, and never sooner than the shuffler asks for)
            wait = max(min(retry_after, MAX_PAUSE_SECONDS), pause * (0.5 + secrets.randbelow(1000) / 1000))
            if now + wait > begun + self._patience:
                return answer
            await asyncio.sleep(wait)
            pause = min(2.0 * pause, MAX_PAUSE_SECONDS)

    def _recent_failure(self) -> SubmissionResult | None:
        """What others were told a moment ago, if that has been so for long."""
        if self._failing_since is None or self._failed is None:
            return None
        now, (last, answer) = time.monotonic(), self._failed
        return answer if now > self._failing_since + self._patience and last > now - MAX_PAUSE_SECONDS else None


async def post_report(client: httpx.AsyncClient, collection: Collection, report: bytes) -> tuple[SubmissionResult, float]:
    """One attempt: its answer, and how many seconds to wait at least before the next."""
    import httpx

    headers = {"content-type": "application/octet-stream"}
    try:
        async with client.stream("POST", f"{collection.url}/reports", content=report, headers=headers) as response:
            message = await read_error(response)
    except httpx.HTTPError as error:
        return SubmissionResult("waiting", unreachable_text(collection.terms.hops[0].url, error)), NO_RETRY if is_untrusted_certificate(
            error
        ) else 0.0
    return interpret_status(collection, response.status_code, message), retry_after_seconds(response)


def interpret_status(collection: Collection, code: int, message: str) -> SubmissionResult:
    """What a status means for a report of a collection."""
    host, more = collection.terms.hops[0].url, f" It says: {message}" if message else ""
    if code == STORED:
        return SubmissionResult("stored", "The report is stored.", code)
    if code == CLOSED:
        ended = time.time() >= parse_time(collection.terms.closes)
        return SubmissionResult(
            "late" if ended else "waiting",
            f"{host} takes no more reports of this collection, and it is not known whether this report was in time.{more}",
            code,
        )
    if code == UNKNOWN_TICKET:
        return SubmissionResult("refused", f"{host} does not know this ticket; check its digits, or ask for another one.", code)
    if code == SPENT_TICKET:
        return SubmissionResult("refused", "This ticket was spent on another report; ask for another one if that was not yours.", code)
    if code in (405, 411, 413, 422):
        return SubmissionResult(
            "refused", f"{host} cannot open this report: it does not serve the collection that the report is for.{more}", code
        )
    if code == 404:
        return SubmissionResult(
            "waiting", f"{host} does not know this collection; check who serves it, and send the report again then.", code
        )
    if code in RETRY_STATUSES:
        return SubmissionResult("waiting", f"{host} cannot take the report now.{more}", code)
    return SubmissionResult(
        "waiting", f"{host} answered with the status {code}, which no shuffler does; the report is not known to be stored.", code
    )


async def answer_of(response: httpx.Response) -> dict[str, Any]:
    """The JSON object that a server says; empty if it says something else, or too much. Read to its end, it keeps its connection."""
    data = b""
    async for part in response.aiter_bytes():
        data += part
        if len(data) > MAX_ANSWER_BYTES:
            return {}
    try:
        said = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}


async def read_error(response: httpx.Response) -> str:
    """What a server says is wrong, as far as it can be printed; empty if it says nothing."""
    answer = await answer_of(response)
    message = answer.get("error") if response.status_code >= 400 else None
    return message[:MAX_SENTENCE_LENGTH] if isinstance(message, str) and message.isprintable() else ""


def retry_after_seconds(response: httpx.Response) -> float:
    """What Retry-After asks for; 0 if it does not, or not in seconds."""
    header = response.headers.get("retry-after", "")
    return float(header) if header.isascii() and header.isdigit() and len(header) < 7 else 0.0


def network_error_text(error: Exception) -> str:
    """Why the network failed, in a few words."""
    text = " ".join(str(error).split()).rstrip(".")
    return text[:MAX_SENTENCE_LENGTH] if text.isprintable() and text else type(error).__name__


def is_untrusted_certificate(error: Exception) -> bool:
    """Whether a server's certificate is not believed, which stays so however often it is asked."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLCertVerificationError):
        cause = cause.__cause__ or cause.__context__
    return cause is not None


def unreachable_text(address: str, error: Exception) -> str:
    """Why a server cannot be asked, in a sentence."""
    if is_untrusted_certificate(error):
        return (
            f"The certificate of {address} is not believed here, and nothing was sent ({network_error_text(error)}). If you know "
            "that it is "
            "the right one, name its file in the environment variable SSL_CERT_FILE."
        )
    return f"{address} cannot be reached ({network_error_text(error)})."


@asynccontextmanager
async def open_connection() -> AsyncIterator[httpx.AsyncClient]:
    """A connection, one at a time and kept open. (Whoever needs several opens several of these: a common pool looks at all each time.)"""
    httpx = require("httpx", EXTRA)
    limits = httpx.Limits(max_connections=1, max_keepalive_connections=1)
    timeout = httpx.Timeout(READ_SECONDS, connect=CONNECT_SECONDS, pool=None)
    async with httpx.AsyncClient(limits=limits, timeout=timeout, follow_redirects=False, verify=_ssl_context()) as client:
        yield client


@cache
def _ssl_context() -> Any:
    """Whose certificates are believed, which takes a while to read."""
    return require("httpx", EXTRA).create_ssl_context()


def parse_collection_address(address: str, digest: str | None) -> tuple[str, str]:
    """Where a collection is served, and its digest: that which was given, or which the address ends with (that of a join page too)."""
    match = ADDRESS.fullmatch(address.strip())
    named = match[2] if match is not None else None
    pinned = named if digest is None else digest.strip().lower()
    if match is None or pinned is None or not DIGEST.fullmatch(pinned):
        raise PlanError(
            f"{address[:200]!r} does not end with the digest of a collection; give the digest that was published beside it (digest=), or "
            "the file collection.json."
        )
    return f"{match[1]}/v1/collections/{named or pinned}", pinned


async def fetch_collection(address: str, digest: str | None) -> Collection:
    """The collection at an address; its bytes must have the digest that was pinned, or that the address ends with."""
    httpx = require("httpx", EXTRA)
    address, pinned = parse_collection_address(address, digest)
    data = b""
    try:
        async with open_connection() as client, client.stream("GET", address) as response:
            if response.status_code != 200:
                message = await read_error(response)
                raise PlanError(
                    f"{address[:200]} serves no collection: it answers {response.status_code}.{f' {message}' if message else ''}"
                )
            async for part in response.aiter_bytes():
                data += part
                if len(data) > MAX_COLLECTION_BYTES:
                    raise PlanError(f"{address[:200]} serves more than {MAX_COLLECTION_BYTES:,} bytes, which is no collection.")
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise PlanError(unreachable_text(address[:200], error)) from None
    return Collection.read(data, pinned)


def run_sync(work: Coroutine[Any, Any, Outcome]) -> Outcome:
    """The outcome of asynchronous work, for whoever does not work so; also inside a running loop, as notebooks have one."""
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
