"""A later hop of a chain: it fetches what the hop before lets go, opens its layer of every box, and tells that hop when all is safe.

It cannot count people, only messages: how many people there were is passed on. What it can see it refuses: another number of messages
than that of so many people, boxes out of order or twice, bytes that are not those that were announced. What it cannot see is a hop before
that drops people and takes in its own instead.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import IO, Any

import numpy as np

from metricshuffle.collection.client.http_client import network_error_text
from metricshuffle.collection.sealed_boxes import NotOpened, PrivateKey
from metricshuffle.collection.shuffler.external_sort import ExternalSort, SortResult, is_sorted
from metricshuffle.collection.shuffler.output_files import write_out
from metricshuffle.collection.signatures import is_countersigned
from metricshuffle.collection.terms import Collection
from metricshuffle.errors import MetricShuffleError, PlanError, require

CONNECT_TIMEOUT_SECONDS, READ_TIMEOUT_SECONDS = 10.0, 60.0
"""Seconds until a hop that says nothing is asked again."""
MIN_BYTES_PER_SECOND, BASE_DOWNLOAD_SECONDS = 10_000, 60.0
"""Bytes a second, on the whole, below which a hop is not listened to any longer, and seconds that it has in any case."""
REPLACEMENT_PREFIX = b"metricshuffle stand-in\0"
MAX_REASON_LENGTH, MAX_ANSWER_BYTES = 300, 2**16


class UpstreamNotReady(MetricShuffleError):
    """The hop before has not let it go."""


class UpstreamUnreachable(MetricShuffleError):
    """The hop before cannot be used now; it is asked again later."""


class UpstreamRejected(MetricShuffleError):
    """What the hop before says or hands over cannot be used, now or later."""


@dataclass(frozen=True)
class UpstreamReceipt:
    """What was fetched: whose messages these are, as the hop before says, and with what that hop is told that they are safe."""

    people: int
    left_out: int
    output: str
    token: str

    def data(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def read(cls, data: bytes) -> UpstreamReceipt | None:
        """None if this was cut short or overwritten."""
        try:
            return cls(**json.loads(data))
        except (ValueError, TypeError):
            return None

    def __repr__(self) -> str:
        return f"Owed(people={self.people}, left_out={self.left_out}, output={self.output!r})"


@dataclass(frozen=True)
class UpstreamLink:
    """Between the hop of some place in a collection, not the first, and the one before it."""

    collection: Collection
    place: int

    @property
    def url(self) -> str:
        return f"{self.collection.terms.hops[self.place - 1].url}/v1/collections/{self.collection.digest}/release"

    @cached_property
    def layer(self) -> int:
        return self.collection.layer_of(self.place)

    @cached_property
    def size(self) -> int:
        """Bytes of a box as it is fetched."""
        return self.collection.sealing.box_size(self.layer)

    # Fetching

    def fetched(self, path: Path, token: str, before: str | None = None) -> UpstreamReceipt:
        """What the hop before lets go, in a file. `UpstreamNotReady`, `UpstreamUnreachable` or `UpstreamRejected` if not, and then there
        is no file.

        `before` is the digest of what was fetched already and is gone here: then nothing else is taken.
        """
        httpx = require("httpx", "service")
        try:
            with _client(httpx, token) as client, client.stream("GET", self.url) as response:
                self._check_answer(response)
                if before is not None and response.headers.get("etag", "").strip('"') != before:
                    raise UpstreamRejected(
                        "the shuffler before this one hands over another set of messages than before; what differs between the two would "
                        "show what single people sent."
                    )
                self._check_countersignature(response)
                return write_out(path, lambda stream: self._receive(response, stream, token))
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
            raise UpstreamUnreachable(f"the shuffler before this one, {self.url}, does not answer: {network_error_text(error)}.") from None

    def _check_answer(self, response: Any) -> None:
        if response.status_code == 200:
            return
        if response.status_code == 425:
            raise UpstreamNotReady("the shuffler before this one is not done.")
        if response.status_code == 410:
            raise UpstreamRejected(f"the shuffler before this one gave up: {reason_in(answer_of(response))}")
        raise UpstreamUnreachable(f"the shuffler before this one, {self.url}, answers {response.status_code}.")

    def _check_countersignature(self, response: Any) -> None:
        """Nothing is taken that the witness of the hop before did not countersign, if that has one."""
        output, signature = response.headers.get("etag", "").strip('"'), response.headers.get("x-countersignature", "")
        if not is_countersigned(self.collection, self.place - 1, output, signature):
            raise UpstreamRejected("the shuffler before this one hands over messages that its witness did not countersign.")

    def _receive(self, response: Any, stream: IO[bytes], token: str) -> UpstreamReceipt:
        """Write the boxes down while they come, and check them."""
        terms, headers = self.collection.terms, response.headers
        announced = headers.get("etag", "").strip('"')
        try:
            people, left_out = int(headers["x-people"]), int(headers["x-left-out"])
        except (KeyError, ValueError):
            raise UpstreamRejected("the shuffler before this one does not say how many people took part.") from None
        if not terms.minimum <= people <= terms.maximum or left_out < 0 or people + left_out > terms.maximum:
            raise UpstreamRejected(
                f"the shuffler before this one hands over {people:,} people's messages and left out {left_out:,}; "
                f"this collection has {terms.minimum:,} to {terms.maximum:,} people."
            )
        digest, length, expected, last = hashlib.sha256(), 0, people * terms.messages * self.size, b""
        deadline = time.monotonic() + BASE_DOWNLOAD_SECONDS + expected / MIN_BYTES_PER_SECOND
        for chunk in response.iter_raw():  # (as it arrives: to wait for a full chunk would be to listen to a trickle for ever)
            length += len(chunk)
            if length > expected:
                break
            if time.monotonic() > deadline:
                raise UpstreamUnreachable("the shuffler before this one is too slow.")
            digest.update(chunk)
            stream.write(chunk)
            last = self._check_order(last + chunk)
        if length < expected and digest.hexdigest() != announced:
            raise UpstreamUnreachable("the shuffler before this one was interrupted.")
        if length != expected:
            raise UpstreamRejected(
                f"the shuffler before this one hands over {'more' if length > expected else 'fewer'} messages than the "
                f"{people * terms.messages:,} of {people:,} people."
            )
        if digest.hexdigest() != announced:
            raise UpstreamUnreachable("what the shuffler before this one handed over are not the bytes that it announced.")
        return UpstreamReceipt(people, left_out, announced, token)

    def _check_order(self, data: bytes) -> bytes:
        """From the last complete box on, if those before it are in order and all different."""
        whole = len(data) // self.size * self.size
        if not whole:
            return data
        if not is_sorted(np.frombuffer(data[:whole], np.uint8).reshape(-1, self.size)):
            raise UpstreamRejected("the shuffler before this one hands over messages twice, or out of order.")
        return data[whole - self.size :]

    # Opening and mixing

    def mixed(self, path: Path, key: PrivateKey, count: int, stream: IO[bytes], memory: int) -> SortResult:
        """What was fetched, opened and in order. For a box that does not open, or holds what another one holds, stands one that nobody
        can open: the analyst sees that there is a message less, and nobody can spoil a collection for everybody by sending such a box.
        """
        inside = self.collection.sealing.box_size(self.layer - 1)

        def opened(spoiled: frozenset[int]) -> Iterator[bytes]:
            sealing = self.collection.sealing
            for number, box in enumerate(self._boxes(path)):
                try:
                    yield self._replacement(box) if number in spoiled else sealing.open_box(box, key, self.layer)
                except NotOpened:
                    yield self._replacement(box)

        mixed = ExternalSort(lambda: opened(frozenset()), inside, 1, count, memory).written(stream)
        if mixed.shared:
            spoiled = mixed.shared
            mixed = ExternalSort(lambda: opened(spoiled), inside, 1, count, memory).written(stream)
        if mixed.reports != count or mixed.shared:
            raise PlanError("what was fetched from the shuffler before this one is damaged here.")
        return mixed

    def _boxes(self, path: Path) -> Iterator[bytes]:
        with open(path, "rb") as stream:
            while box := stream.read(self.size):
                if len(box) != self.size:
                    raise PlanError("what was fetched from the shuffler before this one is damaged here.")
                yield box

    def _replacement(self, box: bytes) -> bytes:
        """The same every time for the same box."""
        return hashlib.shake_256(REPLACEMENT_PREFIX + box).digest(self.collection.sealing.box_size(self.layer - 1))

    # Afterwards

    def acknowledged(self, owed: UpstreamReceipt) -> bool:
        """Tell the hop before that it may forget. False if it does not want to hear it; `UpstreamUnreachable` if it is asked again
        later."""
        httpx = require("httpx", "service")
        try:
            headers = {"If-Match": f'"{owed.output}"'}
            with _client(httpx, owed.token) as client, client.stream("DELETE", self.url, headers=headers) as response:
                pass  # (its status says all; a body could be without end)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise UpstreamUnreachable(f"the shuffler before this one, {self.url}, does not answer: {network_error_text(error)}.") from None
        if response.status_code in (408, 429) or response.status_code >= 500:
            raise UpstreamUnreachable(f"the shuffler before this one, {self.url}, answers {response.status_code}.")
        return bool(response.status_code == 204)


def _client(httpx: Any, token: str) -> Any:
    """It follows nobody elsewhere with the token, and wants the bytes as they are."""
    headers = {"Authorization": f"Bearer {token}", "Accept-Encoding": "identity"}
    patience = httpx.Timeout(READ_TIMEOUT_SECONDS, connect=CONNECT_TIMEOUT_SECONDS)
    return httpx.Client(headers=headers, timeout=patience, follow_redirects=False, verify=certificates())


@cache
def certificates() -> Any:
    """Whose signatures count, read once."""
    return require("httpx", "service").create_ssl_context()


def answer_of(response: Any) -> dict[str, Any]:
    """What it says in JSON, as far as it says it soon and in a few words; nothing if that is something else."""
    data, deadline = b"", time.monotonic() + BASE_DOWNLOAD_SECONDS
    for part in response.iter_raw():
        data += part
        if len(data) > MAX_ANSWER_BYTES or time.monotonic() > deadline:
            break
    try:
        said = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}


def reason_in(answer: dict[str, Any]) -> str:
    """Why something was refused, in letters that can be shown."""
    plain = "".join(letter for letter in str(answer.get("error", "")) if letter.isprintable())
    return plain[:MAX_REASON_LENGTH] or "it does not say why."
