"""Link to the previous hop of a chain: download and acknowledgement.

A later hop cannot count people, only messages; the previous hop announces the number of people. A
hop rejects a number of messages that does not fit this number, boxes that are out of order or
repeated, and bytes other than those announced. It cannot detect a previous hop that drops people
and inserts its own.
"""

from __future__ import annotations

import hashlib
import json
import ssl
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cache, cached_property
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING

from metricshuffle.collection.client.http_client import network_error_text
from metricshuffle.collection.output_runs import OrderCheck, OutOfOrder, OutputRuns, head_size
from metricshuffle.collection.recipes import JsonObject
from metricshuffle.collection.shuffler.output_files import write_out
from metricshuffle.collection.signatures import is_countersigned
from metricshuffle.collection.terms import Collection
from metricshuffle.errors import MetricShuffleError, PlanError, require

if TYPE_CHECKING:
    import httpx

CONNECT_TIMEOUT_SECONDS = 10.0
READ_TIMEOUT_SECONDS = 60.0
"""Timeouts for a hop that does not answer; it is asked again later."""
MIN_BYTES_PER_SECOND = 10_000
BASE_DOWNLOAD_SECONDS = 60.0
"""A download is given up if it takes longer than its bytes at this rate plus these seconds."""
MAX_REASON_LENGTH = 300
MAX_ANSWER_BYTES = 2**16


class UpstreamNotReady(MetricShuffleError):
    """The previous hop has not released its output yet."""


class UpstreamUnreachable(MetricShuffleError):
    """The previous hop cannot be used now; it is asked again later."""


class UpstreamRejected(MetricShuffleError):
    """The output of the previous hop cannot be used, now or later."""


@dataclass(frozen=True)
class UpstreamReceipt:
    """Receipt for fetched messages: the announced counts, and the token to acknowledge with."""

    people: int
    left_out: int
    output: str
    token: str

    def data(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def read(cls, data: bytes) -> UpstreamReceipt | None:
        """Read a receipt; None if the data are damaged."""
        try:
            return cls(**json.loads(data))
        except (ValueError, TypeError):
            return None

    def __repr__(self) -> str:
        return (
            f"UpstreamReceipt(people={self.people}, left_out={self.left_out}, "
            f"output={self.output!r})"
        )


@dataclass(frozen=True)
class UpstreamLink:
    """Link between a hop of a collection, at `place` from 1, and the previous hop."""

    collection: Collection
    place: int

    @property
    def url(self) -> str:
        previous = self.collection.terms.hops[self.place - 1]
        return f"{previous.url}/v1/collections/{self.collection.digest}/release"

    @cached_property
    def layer(self) -> int:
        return self.collection.layer_of(self.place)

    @cached_property
    def size(self) -> int:
        """Bytes of a fetched box."""
        return self.collection.sealing.box_size(self.layer)

    # Fetching

    def fetch(self, path: Path, token: str, before: str | None = None) -> UpstreamReceipt:
        """Download the output of the previous hop into a file.

        `before` is the digest of an earlier download that was lost; another output is rejected.

        Raises: UpstreamNotReady, UpstreamUnreachable or UpstreamRejected; there is no file then.
        """
        httpx = require("httpx", "service")
        try:
            with _client(token) as client, client.stream("GET", self.url) as response:
                self._check_answer(response)
                if before is not None and response.headers.get("etag", "").strip('"') != before:
                    raise UpstreamRejected(
                        "the shuffler before this one hands over another set of messages than "
                        "before; the difference between the two would show what single people "
                        "sent."
                    )
                self._check_countersignature(response)
                return write_out(path, lambda stream: self._receive(response, stream, token))
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
            raise UpstreamUnreachable(
                f"the shuffler before this one, {self.url}, does not answer: "
                f"{network_error_text(error)}."
            ) from None

    def _check_answer(self, response: httpx.Response) -> None:
        if response.status_code == 200:
            return
        if response.status_code == 425:
            raise UpstreamNotReady("the shuffler before this one is not done.")
        if response.status_code == 410:
            raise UpstreamRejected(
                f"the shuffler before this one gave up: {reason_in(answer_of(response))}"
            )
        raise UpstreamUnreachable(
            f"the shuffler before this one, {self.url}, answers {response.status_code}."
        )

    def _check_countersignature(self, response: httpx.Response) -> None:
        """Raise if the witness of the previous hop, if any, did not countersign the output."""
        output = response.headers.get("etag", "").strip('"')
        signature = response.headers.get("x-countersignature", "")
        if not is_countersigned(self.collection, self.place - 1, output, signature):
            raise UpstreamRejected(
                "the shuffler before this one hands over messages that its witness did not "
                "countersign."
            )

    def _receive(self, response: httpx.Response, stream: IO[bytes], token: str) -> UpstreamReceipt:
        """Write the boxes as they arrive, and check them."""
        receipt = self._read_announcement(response.headers, token)
        digest = hashlib.sha256()
        length = 0
        deadline = time.monotonic() + BASE_DOWNLOAD_SECONDS
        # Raw chunks, because collecting chunks of one size from a slow sender would never time out.
        chunks = response.iter_raw()
        start = self._read_head(chunks, deadline)
        check = self._order_check(receipt, start)
        expected = check.runs.total
        deadline += expected / MIN_BYTES_PER_SECOND
        for chunk in chain([start], chunks):
            length += len(chunk)
            if length > expected:
                break
            if time.monotonic() > deadline:
                raise UpstreamUnreachable("the shuffler before this one is too slow.")
            digest.update(chunk)
            stream.write(chunk)
            self._check_order(check, chunk)
        is_announced = digest.hexdigest() == receipt.output
        if length < expected and not is_announced:
            raise UpstreamUnreachable("the shuffler before this one was interrupted.")
        if length != expected:
            raise UpstreamRejected(
                "the shuffler before this one hands over "
                f"{'more' if length > expected else 'fewer'} messages than the "
                f"{sum(check.runs.lengths):,} of {receipt.people:,} people."
            )
        if not is_announced:
            raise UpstreamUnreachable(
                "the shuffler before this one handed over other bytes than it announced."
            )
        return receipt

    def _read_head(self, chunks: Iterator[bytes], deadline: float) -> bytes:
        """Read at least the bytes before the boxes."""
        start = b""
        while len(start) < head_size(self.collection) and (chunk := next(chunks, b"")):
            start += chunk
            if time.monotonic() > deadline:
                raise UpstreamUnreachable("the shuffler before this one is too slow.")
        return start

    def _read_announcement(self, headers: Mapping[str, str], token: str) -> UpstreamReceipt:
        """Receipt for the announced output; raises if the numbers of people are impossible."""
        terms = self.collection.terms
        try:
            people = int(headers["x-people"])
            left_out = int(headers["x-left-out"])
        except (KeyError, ValueError):
            raise UpstreamRejected(
                "the shuffler before this one does not say how many people took part."
            ) from None
        if (
            not terms.minimum <= people <= terms.maximum
            or left_out < 0
            or people + left_out > terms.maximum
        ):
            raise UpstreamRejected(
                f"the shuffler before this one hands over {people:,} people's messages and "
                f"left out {left_out:,}; "
                f"this collection has {terms.minimum:,} to {terms.maximum:,} people."
            )
        return UpstreamReceipt(people, left_out, headers.get("etag", "").strip('"'), token)

    def runs_of(self, people: int, head: bytes) -> OutputRuns:
        """Runs of the output of the previous hop; raises PlanError if they are impossible."""
        return OutputRuns.of(
            self.collection, self.layer, people, head[: head_size(self.collection)]
        )

    def _order_check(self, receipt: UpstreamReceipt, start: bytes) -> OrderCheck:
        """Check for an output that starts with these bytes."""
        if len(start) < head_size(self.collection):
            if hashlib.sha256(start).hexdigest() != receipt.output:
                raise UpstreamUnreachable("the shuffler before this one was interrupted.")
            raise UpstreamRejected("the shuffler before this one does not say how long piles are.")
        try:
            return OrderCheck(self.runs_of(receipt.people, start))
        except PlanError as error:
            raise UpstreamRejected(
                "the shuffler before this one hands over piles that cannot be: "
                f"{str(error).rstrip('.')}. It did not add its dummies, or took messages away."
            ) from None

    @staticmethod
    def _check_order(check: OrderCheck, data: bytes) -> None:
        try:
            check.feed(data)
        except OutOfOrder:
            raise UpstreamRejected(
                "the shuffler before this one hands over messages twice, or out of order."
            ) from None

    # Acknowledging

    def acknowledge(self, receipt: UpstreamReceipt) -> bool:
        """Let the previous hop delete its output; return whether it agreed.

        Raises: UpstreamUnreachable if this has to be tried again later.
        """
        httpx = require("httpx", "service")
        try:
            headers = {"If-Match": f'"{receipt.output}"'}
            with (
                _client(receipt.token) as client,
                client.stream("DELETE", self.url, headers=headers) as response,
            ):
                pass  # the body is not read: it could be endless
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise UpstreamUnreachable(
                f"the shuffler before this one, {self.url}, does not answer: "
                f"{network_error_text(error)}."
            ) from None
        if response.status_code in (408, 429) or response.status_code >= 500:
            raise UpstreamUnreachable(
                f"the shuffler before this one, {self.url}, answers {response.status_code}."
            )
        return bool(response.status_code == 204)


def _client(token: str) -> httpx.Client:
    """Client that follows no redirect with the token, and gets bytes uncompressed."""
    headers = {"Authorization": f"Bearer {token}", "Accept-Encoding": "identity"}
    import httpx

    timeout = httpx.Timeout(READ_TIMEOUT_SECONDS, connect=CONNECT_TIMEOUT_SECONDS)
    return httpx.Client(
        headers=headers, timeout=timeout, follow_redirects=False, verify=certificates()
    )


@cache
def certificates() -> ssl.SSLContext:
    """Trusted certificates, read once."""
    context: ssl.SSLContext = require("httpx", "service").create_ssl_context()
    return context


def answer_of(response: httpx.Response) -> JsonObject:
    """JSON object of a short answer; empty if it is anything else, too long or too slow."""
    data = b""
    deadline = time.monotonic() + BASE_DOWNLOAD_SECONDS
    for part in response.iter_raw():
        data += part
        if len(data) > MAX_ANSWER_BYTES or time.monotonic() > deadline:
            break
    try:
        answer = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return answer if isinstance(answer, dict) else {}


def reason_in(answer: JsonObject) -> str:
    """Printable part of the error in an answer."""
    plain = "".join(letter for letter in str(answer.get("error", "")) if letter.isprintable())
    return plain[:MAX_REASON_LENGTH] or "it does not say why."
