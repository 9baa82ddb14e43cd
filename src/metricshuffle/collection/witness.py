"""Witness: another operator's shuffler that records the output of a collection before release.

A shuffler that is restored from an older copy of its database and keys does not know what it
released, and would release another output. It therefore asks its witness first, which countersigns
the first output and no other. The witness learns the digest of the collection, when it is released,
and the digest of its output; nothing about people.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from metricshuffle.collection.client.http_client import network_error_text
from metricshuffle.collection.recipes import JsonObject
from metricshuffle.collection.sealed_boxes import DIGEST_BYTES
from metricshuffle.collection.shuffler.output_files import do_nothing
from metricshuffle.collection.shuffler.upstream import (
    CONNECT_TIMEOUT_SECONDS,
    answer_of,
    certificates,
    reason_in,
)
from metricshuffle.collection.signatures import SIGNATURE_BYTES, Claim, SigningKey, is_signed
from metricshuffle.collection.store.sql_store import Store
from metricshuffle.collection.terms import HopWitness
from metricshuffle.errors import InputError, MetricShuffleError, require

if TYPE_CHECKING:
    import httpx

PATH = "/v1/witness"
LARGEST_REQUEST = 1000
"""Size limit; three digests and a signature take 420 bytes."""
READING = 30.0
"""Timeout for a witness that does not answer; it is asked again later."""
AT_ONCE = 100
EVERY = 1.0
"""Rate limit per asker: new collections at once, and seconds until one more is allowed."""
ANOTHER = 409
"""HTTP status if another output was countersigned before."""


class Denied(MetricShuffleError):
    """Answer of a witness that does not countersign."""

    def __init__(self, status: int, sentence: str, **headers: str) -> None:
        super().__init__(sentence)
        self.status = status
        self.headers = headers


class NotCountersigned(MetricShuffleError):
    """The witness does not countersign now.

    `reason` is published if the collection is aborted because of it.
    """

    def __init__(self, sentence: str, reason: str) -> None:
        super().__init__(sentence)
        self.reason = reason


# Witness


class Countersigner:
    """Countersigns for the shufflers that its operator listed; processes may share a database."""

    def __init__(
        self,
        store: Store,
        key: SigningKey,
        askers: Iterable[str],
        at: Callable[[str], None] = do_nothing,
    ) -> None:
        self._store = store
        self._key = key
        self.askers = frozenset(askers)
        self._at = at
        self._room = {asker: _Room() for asker in self.askers}

    @property
    def key(self) -> str:
        return self._key.public

    def countersignature(self, request: JsonObject) -> str:
        """Countersign the first output of a collection, after storing it; never another one."""
        claim = _claim_in(request)
        if claim.asker not in self.askers:
            raise Denied(
                403,
                "this witness does not know the shuffler that asks; its operator adds it "
                "with serve --witness-for.",
            )
        if not is_signed(claim.asker, claim.request(self.key), request["signature"]):
            raise Denied(
                403,
                "the request is not signed by the shuffler that it names, or is for another "
                "witness.",
            )
        first = self._store.first_output(claim.collection, claim.asker)
        if first is None:
            self._room[claim.asker].take()
            first = self._store.first_output(claim.collection, claim.asker, claim.output)
            self._at("witnessed")
        if first != claim.output:
            raise Denied(
                ANOTHER,
                f"another set of messages of collection {claim.collection[:16]} was "
                "countersigned before; a collection has only one.",
            )
        return self._key.signed(claim.countersigned)


class _Room:
    """Rate limit of one asker: AT_ONCE collections at once, and one more every EVERY seconds."""

    def __init__(self) -> None:
        self._left = float(AT_ONCE)
        self._updated = time.monotonic()
        self._lock = threading.Lock()

    def take(self) -> None:
        with self._lock:
            now = time.monotonic()
            self._left = min(AT_ONCE, self._left + (now - self._updated) / EVERY)
            self._updated = now
            if self._left < 1:
                raise Denied(
                    429,
                    "this shuffler asks for too many collections at once; ask again.",
                    **{"Retry-After": "5"},
                )
            self._left -= 1


def _claim_in(request: JsonObject) -> Claim:
    lengths = {
        "collection": DIGEST_BYTES,
        "asker": DIGEST_BYTES,
        "output": DIGEST_BYTES,
        "signature": SIGNATURE_BYTES,
    }
    digits = set("0123456789abcdef")
    for name, size in lengths.items():
        text = request.get(name)
        if not isinstance(text, str) or len(text) != 2 * size or set(text) - digits:
            raise Denied(
                400,
                f"a request to a witness has collection, asker, output and signature; {name} "
                f"must be {2 * size} hexadecimal digits.",
            )
    return Claim(request["collection"], request["asker"], request["output"])


def checked_key(text: str, option: str) -> str:
    """Validate the public key that a shuffler with a witness logs at its start."""
    key = text.strip().lower()
    if len(key) != 2 * DIGEST_BYTES or set(key) - set("0123456789abcdef"):
        raise InputError(
            f"{option} must be the 64 hexadecimal digits that serve --witness logs at its "
            f"start, got {text[:80]!r}."
        )
    return key


# Shuffler that asks the witness


@dataclass(frozen=True)
class WitnessLink:
    """Link between a shuffler and its witness."""

    url: str
    key: SigningKey
    """Key of the shuffler that asks."""

    def witness(self) -> HopWitness:
        """Ask the witness for its key; return the entry for the collection."""
        try:
            with self._ask("GET") as response:
                answer = answer_of(response)
                if response.status_code != 200:
                    raise InputError(
                        f"the witness {self.url} answers {response.status_code}: "
                        f"{reason_in(answer)}"
                    )
        except _Away as error:
            raise InputError(
                f"the witness {self.url} does not answer ({error}); no collection is "
                "opened without it."
            ) from None
        try:
            return HopWitness(url=self.url, key=answer.get("key"), asker=self.key.public)
        except InputError:
            raise InputError(
                f"{self.url} does not answer as a witness does; see serve --witness."
            ) from None

    def countersignature(self, witness: HopWitness, collection: str, output: str) -> str:
        """Ask for the countersignature of an output; raises `NotCountersigned` without one."""
        claim = Claim(collection, witness.asker, output)
        if self.key.public != witness.asker:
            raise NotCountersigned(
                "the signing key with which this collection's witness is asked is not in "
                "the keys folder; put signing.secret back.",
                "the key with which its witness is asked is lost",
            )
        content = {**asdict(claim), "signature": self.key.signed(claim.request(witness.key))}
        try:
            with self._ask("POST", content) as response:
                answer = answer_of(response)
                status = response.status_code
        except _Away as error:
            raise self._away(f"does not answer ({error})") from None
        if status == ANOTHER:
            raise NotCountersigned(
                f"the witness {self.url} says that it countersigned another set of messages of "
                "this collection before: this shuffler was restored from an older copy of its "
                "database and keys. Nothing is released; abort the collection.",
                "its witness says that it countersigned another set of its messages before",
            )
        if status != 200:
            raise self._away(f"answers {status}: {reason_in(answer)}")
        signature = str(answer.get("countersignature", ""))
        if not is_signed(witness.key, claim.countersigned, signature):
            raise self._away(
                "answers with a signature by another key than the one that the collection names"
            )
        return signature

    def _away(self, what: str) -> NotCountersigned:
        return NotCountersigned(
            f"the witness {self.url} {what.rstrip('.')}; nothing is released before it "
            "countersigns, and it is asked again.",
            "its witness did not countersign its output in time",
        )

    @contextmanager
    def _ask(self, method: str, content: object = None) -> Iterator[httpx.Response]:
        httpx = require("httpx", "service")
        timeout = httpx.Timeout(READING, connect=CONNECT_TIMEOUT_SECONDS)
        try:
            with (
                httpx.Client(
                    timeout=timeout, follow_redirects=False, verify=certificates()
                ) as client,
                client.stream(
                    method,
                    f"{self.url}{PATH}",
                    json=content,
                    headers={"Accept-Encoding": "identity"},
                ) as response,
            ):
                yield response
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
            raise _Away(network_error_text(error)) from None


class _Away(MetricShuffleError):
    """The witness does not answer."""
