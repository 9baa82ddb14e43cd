"""A witness: a shuffler of somebody else that remembers which set of messages of a collection was about to be let go.

A shuffler that is put back to an older copy of its database and keys does not know what it has let go, and would let go another set. It
asks its witness before, which countersigns the first set and no other. The witness learns that there is a collection, its digest, when it
is let go, and the digest of what is; nothing of people.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from metricshuffle.collection.client.http_client import network_error_text
from metricshuffle.collection.sealed_boxes import DIGEST_BYTES
from metricshuffle.collection.shuffler.output_files import do_nothing
from metricshuffle.collection.shuffler.upstream import CONNECT_TIMEOUT_SECONDS, answer_of, certificates, reason_in
from metricshuffle.collection.signatures import SIGNATURE_BYTES, Claim, SigningKey, is_signed
from metricshuffle.collection.store.interface import Store
from metricshuffle.collection.terms import Witness
from metricshuffle.errors import InputError, MetricShuffleError, require

PATH = "/v1/witness"
LARGEST_REQUEST = 1000
"""Bytes: three digests and a signature take 420."""
READING = 30.0
"""Seconds until a witness that says nothing is asked again."""
AT_ONCE, EVERY = 100, 1.0
"""New collections of one asker that are countersigned at once, and the seconds after which there is room for another one."""
ANOTHER = 409
"""The status of an answer: another set was countersigned before."""


class Denied(MetricShuffleError):
    """What a witness answers instead of a countersignature."""

    def __init__(self, status: int, sentence: str, **headers: str) -> None:
        super().__init__(sentence)
        self.status, self.headers = status, headers


class NotCountersigned(MetricShuffleError):
    """Nothing may be let go now; `reason` is what everybody may read if it never is."""

    def __init__(self, sentence: str, reason: str) -> None:
        super().__init__(sentence)
        self.reason = reason


# The witness


class Countersigner:
    """Countersigns for the shufflers whose keys its operator listed. Several processes of one database may do so at once."""

    def __init__(self, store: Store, key: SigningKey, askers: Iterable[str], at: Callable[[str], None] = do_nothing) -> None:
        self._store, self._key, self.askers, self._at = store, key, frozenset(askers), at
        self._room = {asker: _Room() for asker in self.askers}

    @property
    def key(self) -> str:
        return self._key.public

    def countersignature(self, asked: Mapping[str, Any]) -> str:
        """Of the first set that a shuffler asks for, which is stored by then; the same every time, and none of any other set."""
        claim = _claim_in(asked)
        if claim.asker not in self.askers:
            raise Denied(403, "this witness does not know the shuffler that asks; its operator adds it with serve --witness-for.")
        if not is_signed(claim.asker, claim.request(self.key), asked["signature"]):
            raise Denied(403, "this is not signed by the shuffler in whose name it is asked, or is for another witness.")
        first = self._store.first_output(claim.collection, claim.asker)
        if first is None:
            self._room[claim.asker].take()
            first = self._store.first_output(claim.collection, claim.asker, claim.output)
            self._at("witnessed")
        if first != claim.output:
            raise Denied(
                ANOTHER, f"another set of messages of collection {claim.collection[:16]} was countersigned before; there is only one."
            )
        return self._key.signed(claim.countersigned)


class _Room:
    """How many more may be asked for now: so many at once, and one more after each pause."""

    def __init__(self) -> None:
        self._left, self._looked, self._lock = float(AT_ONCE), time.monotonic(), threading.Lock()

    def take(self) -> None:
        with self._lock:
            now = time.monotonic()
            self._left, self._looked = min(AT_ONCE, self._left + (now - self._looked) / EVERY), now
            if self._left < 1:
                raise Denied(429, "this shuffler asks for too many collections at once; ask again.", **{"Retry-After": "5"})
            self._left -= 1


def _claim_in(asked: Mapping[str, Any]) -> Claim:
    lengths = {"collection": DIGEST_BYTES, "asker": DIGEST_BYTES, "output": DIGEST_BYTES, "signature": SIGNATURE_BYTES}
    digits = set("0123456789abcdef")
    for name, size in lengths.items():
        text = asked.get(name)
        if not isinstance(text, str) or len(text) != 2 * size or set(text) - digits:
            raise Denied(400, f"a witness is asked with collection, asker, output and signature; {name} is {2 * size} hexadecimal digits.")
    return Claim(asked["collection"], asked["asker"], asked["output"])


def checked_key(text: str, option: str) -> str:
    """The public key of a shuffler that asks its witness, as that said it at its start."""
    key = text.strip().lower()
    if len(key) != 2 * DIGEST_BYTES or set(key) - set("0123456789abcdef"):
        raise InputError(f"{option} must be the 64 hexadecimal digits that serve --witness says at its start, got {text[:80]!r}.")
    return key


# Whoever asks it


@dataclass(frozen=True)
class WitnessLink:
    """Between a shuffler and its witness."""

    url: str
    key: SigningKey
    """Of the shuffler that asks."""

    def witness(self) -> Witness:
        """What a collection says of the witness; InputError if that cannot be asked for its key now."""
        try:
            with self._asked("GET") as response:
                answer = answer_of(response)
                if response.status_code != 200:
                    raise InputError(f"the witness {self.url} answers {response.status_code}: {reason_in(answer)}")
        except _Away as wrong:
            raise InputError(f"the witness {self.url} does not answer ({wrong}); no collection is opened without it.") from None
        try:
            return Witness(url=self.url, key=answer.get("key"), asker=self.key.public)
        except InputError:
            raise InputError(f"{self.url} does not answer as a witness does; see serve --witness.") from None

    def countersignature(self, witness: Witness, collection: str, output: str) -> str:
        """Of that witness under a set of messages; `NotCountersigned` if it gives none now."""
        claim = Claim(collection, witness.asker, output)
        if self.key.public != witness.asker:
            raise NotCountersigned(
                "the signing key with which this collection's witness is asked is not in the keys folder; put signing.secret back.",
                "the key with which its witness is asked is lost",
            )
        content = {**asdict(claim), "signature": self.key.signed(claim.request(witness.key))}
        try:
            with self._asked("POST", content) as response:
                answer, status = answer_of(response), response.status_code
        except _Away as wrong:
            raise self._away(f"does not answer ({wrong})") from None
        if status == ANOTHER:
            raise NotCountersigned(
                f"the witness {self.url} says that it countersigned another set of messages of this collection before: this shuffler was "
                "put back to an older copy of its database and keys. Nothing is let go; abort the collection.",
                "its witness says that it countersigned another set of its messages before",
            )
        if status != 200:
            raise self._away(f"answers {status}: {reason_in(answer)}")
        signature = str(answer.get("countersignature", ""))
        if not is_signed(witness.key, claim.countersigned, signature):
            raise self._away("answers with a signature that is not that of the key that the collection names")
        return signature

    def _away(self, what: str) -> NotCountersigned:
        return NotCountersigned(
            f"the witness {self.url} {what.rstrip('.')}; nothing is let go before it countersigns, and it is asked again.",
            "its witness did not countersign what was mixed in time",
        )

    @contextmanager
    def _asked(self, method: str, content: Any = None) -> Iterator[Any]:
        httpx = require("httpx", "service")
        patience = httpx.Timeout(READING, connect=CONNECT_TIMEOUT_SECONDS)
        try:
            with (
                httpx.Client(timeout=patience, follow_redirects=False, verify=certificates()) as client,
                client.stream(method, f"{self.url}{PATH}", json=content, headers={"Accept-Encoding": "identity"}) as response,
            ):
                yield response
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as wrong:
            raise _Away(network_error_text(wrong)) from None


class _Away(MetricShuffleError):
    """It cannot be reached, or said nothing."""
