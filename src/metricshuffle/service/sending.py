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

from metricshuffle.errors import MetricShuffleError, PlanError, require
from metricshuffle.service.collection import LARGEST, Collection, seconds_of

if TYPE_CHECKING:
    import httpx

Outcome = TypeVar("Outcome")
EXTRA = "client"
DIGEST = re.compile("[0-9a-f]{64}")
ADDRESS = re.compile(f"(https?://.+?)/?(?:/(?:v1/collections|join)/({DIGEST.pattern}))?/?")
CONNECT_SECONDS, READ_SECONDS = 10.0, 30.0
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 30.0
LONGEST_SENTENCE, LARGEST_ANSWER = 300, 2**16
STORED, CLOSED = 204, 410
UNKNOWN_TICKET, SPENT_TICKET = 403, 409
AGAIN_LATER = (408, 425, 429, 500, 502, 503, 504)
"""Answers after which the same bytes are sent again, by and by."""
NEVER = math.inf
"""How many seconds to wait where another attempt would end as this one did."""


class NotStored(MetricShuffleError):
    """A report that the shuffler did not acknowledge; `answer` says what it did."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.sentence)
        self.answer = answer


@dataclass(frozen=True)
class Answer:
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
        self._failed: tuple[float, Answer] | None = None

    async def sent(self, client: httpx.AsyncClient, collection: Collection, report: Callable[[], Awaitable[bytes | None]]) -> Answer | None:
        """Post a report until there is an answer that stays, or patience ends. It is asked for before every attempt: None if it is gone."""
        begun, pause = time.monotonic(), FIRST_PAUSE
        while True:
            if (hopeless := self._hopeless()) is not None:
                return hopeless
            content = await report()
            if content is None:
                return None
            answer, asked = await posted(client, collection, content)
            now = time.monotonic()
            if answer.status != "waiting" or (answer.code and answer.code not in AGAIN_LATER):
                self._failing_since = None
                return answer
            self._failing_since, self._failed = self._failing_since or now, (now, answer)
            if asked == NEVER:
                self._failing_since = -math.inf
                return answer
            # (not all at the same moment, and never sooner than the shuffler asks for)
            wait = max(min(asked, LONGEST_PAUSE), pause * (0.5 + secrets.randbelow(1000) / 1000))
            if now + wait > begun + self._patience:
                return answer
            await asyncio.sleep(wait)
            pause = min(2.0 * pause, LONGEST_PAUSE)

    def _hopeless(self) -> Answer | None:
        """What others were told a moment ago, if that has been so for long."""
        if self._failing_since is None or self._failed is None:
            return None
        now, (last, answer) = time.monotonic(), self._failed
        return answer if now > self._failing_since + self._patience and last > now - LONGEST_PAUSE else None


async def posted(client: httpx.AsyncClient, collection: Collection, report: bytes) -> tuple[Answer, float]:
    """One attempt: its answer, and how many seconds to wait at least before the next."""
    import httpx

    headers = {"content-type": "application/octet-stream"}
    try:
        async with client.stream("POST", f"{collection.url}/reports", content=report, headers=headers) as response:
            said = await error_of(response)
    except httpx.HTTPError as wrong:
        return Answer("waiting", out_of_reach(collection.terms.hops[0].url, wrong)), NEVER if is_not_believed(wrong) else 0.0
    return meant(collection, response.status_code, said), seconds_after(response)


def meant(collection: Collection, code: int, said: str) -> Answer:
    """What a status means for a report of a collection."""
    host, more = collection.terms.hops[0].url, f" It says: {said}" if said else ""
    if code == STORED:
        return Answer("stored", "The report is stored.", code)
    if code == CLOSED:
        ended = time.time() >= seconds_of(collection.terms.closes)
        return Answer(
            "late" if ended else "waiting",
            f"{host} takes no more reports of this collection, and it is not known whether this report was in time.{more}",
            code,
        )
    if code == UNKNOWN_TICKET:
        return Answer("refused", f"{host} does not know this ticket; check its digits, or ask for another one.", code)
    if code == SPENT_TICKET:
        return Answer("refused", "This ticket was spent on another report; ask for another one if that was not yours.", code)
    if code in (405, 411, 413, 422):
        return Answer("refused", f"{host} cannot open this report: it does not serve the collection that the report is for.{more}", code)
    if code == 404:
        return Answer("waiting", f"{host} does not know this collection; check who serves it, and send the report again then.", code)
    if code in AGAIN_LATER:
        return Answer("waiting", f"{host} cannot take the report now.{more}", code)
    return Answer("waiting", f"{host} answered with the status {code}, which no shuffler does; the report is not known to be stored.", code)


async def answer_of(response: httpx.Response) -> dict[str, Any]:
    """The JSON object that a server says; empty if it says something else, or too much. Read to its end, it keeps its connection."""
    data = b""
    async for part in response.aiter_bytes():
        data += part
        if len(data) > LARGEST_ANSWER:
            return {}
    try:
        said = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}


async def error_of(response: httpx.Response) -> str:
    """What a server says is wrong, as far as it can be printed; empty if it says nothing."""
    answer = await answer_of(response)
    said = answer.get("error") if response.status_code >= 400 else None
    return said[:LONGEST_SENTENCE] if isinstance(said, str) and said.isprintable() else ""


def seconds_after(response: httpx.Response) -> float:
    """What Retry-After asks for; 0 if it does not, or not in seconds."""
    told = response.headers.get("retry-after", "")
    return float(told) if told.isascii() and told.isdigit() and len(told) < 7 else 0.0


def in_words(wrong: Exception) -> str:
    """Why the network failed, in a few words."""
    text = " ".join(str(wrong).split()).rstrip(".")
    return text[:LONGEST_SENTENCE] if text.isprintable() and text else type(wrong).__name__


def is_not_believed(wrong: Exception) -> bool:
    """Whether a server's certificate is not believed, which stays so however often it is asked."""
    cause: BaseException | None = wrong
    while cause is not None and not isinstance(cause, ssl.SSLCertVerificationError):
        cause = cause.__cause__ or cause.__context__
    return cause is not None


def out_of_reach(address: str, wrong: Exception) -> str:
    """Why a server cannot be asked, in a sentence."""
    if is_not_believed(wrong):
        return (
            f"The certificate of {address} is not believed here, and nothing was sent ({in_words(wrong)}). If you know that it is "
            "the right one, name its file in the environment variable SSL_CERT_FILE."
        )
    return f"{address} cannot be reached ({in_words(wrong)})."


@asynccontextmanager
async def connection() -> AsyncIterator[httpx.AsyncClient]:
    """A connection, one at a time and kept open. (Whoever needs several opens several of these: a common pool looks at all each time.)"""
    httpx = require("httpx", EXTRA)
    limits = httpx.Limits(max_connections=1, max_keepalive_connections=1)
    timeout = httpx.Timeout(READ_SECONDS, connect=CONNECT_SECONDS, pool=None)
    async with httpx.AsyncClient(limits=limits, timeout=timeout, follow_redirects=False, verify=_trusted()) as client:
        yield client


@cache
def _trusted() -> Any:
    """Whose certificates are believed, which takes a while to read."""
    return require("httpx", EXTRA).create_ssl_context()


def place_of(address: str, digest: str | None) -> tuple[str, str]:
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


async def served(address: str, digest: str | None) -> Collection:
    """The collection at an address; its bytes must have the digest that was pinned, or that the address ends with."""
    httpx = require("httpx", EXTRA)
    address, pinned = place_of(address, digest)
    data = b""
    try:
        async with connection() as client, client.stream("GET", address) as response:
            if response.status_code != 200:
                said = await error_of(response)
                raise PlanError(f"{address[:200]} serves no collection: it answers {response.status_code}.{f' {said}' if said else ''}")
            async for part in response.aiter_bytes():
                data += part
                if len(data) > LARGEST:
                    raise PlanError(f"{address[:200]} serves more than {LARGEST:,} bytes, which is no collection.")
    except (httpx.HTTPError, httpx.InvalidURL) as wrong:
        raise PlanError(out_of_reach(address[:200], wrong)) from None
    return Collection.read(data, pinned)


def waited(work: Coroutine[Any, Any, Outcome]) -> Outcome:
    """The outcome of asynchronous work, for whoever does not work so; also inside a running loop, as notebooks have one."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    outcome: list[Outcome] = []
    wrong: list[BaseException] = []

    def run() -> None:
        try:
            outcome.append(asyncio.run(work))
        except BaseException as error:
            wrong.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if wrong:
        raise wrong[0]
    return outcome[0]
