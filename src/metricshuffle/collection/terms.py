"""Collection: a task with keys, times, admission, round and address.

Its bytes are hashed as they are served; the digest is pinned and bound into every box. They are
canonical JSON (RFC 8785 for its content: no fractions, and whole numbers beyond 2^53 as text). A
participant hashes the served bytes before reading them and never serializes them again.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)

from metricshuffle.collection.admission_tokens import TokenVerifier
from metricshuffle.collection.blind_signatures import SPKI_BYTES, BlindKey
from metricshuffle.collection.recipes import JsonObject, recipe_of
from metricshuffle.collection.sealed_boxes import (
    ADMISSION_TOKEN_BYTES,
    DIGEST_BYTES,
    KEY_BYTES,
    TICKET_BYTES,
    BoxFormat,
    PublicKey,
)
from metricshuffle.errors import InputError, NotCertified, PlanError
from metricshuffle.files import atomic_file, read_bytes
from metricshuffle.models import LARGEST_WHOLE, FrozenModel, Whole, parse_json, validation_error
from metricshuffle.protocols.noisy_vectors import NoisyVectors
from metricshuffle.tasks.message_format import MessageFormat
from metricshuffle.tasks.task import Task

FORMAT = "metricshuffle-collection/1"
EXTENDED_FORMAT = "metricshuffle-collection/2"
"""Format of a collection that has any of EXTENSIONS; earlier clients refuse it."""
EXTENSIONS = ("piles", "issuer", "gateway")
"""Fields that are left out of a collection without them."""
SUITE = "DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, AES-128-GCM"
MAX_MESSAGES = 256
MAX_VECTOR_MESSAGES = 4096
"""Limits for the messages of one person; the second is for noisy vectors, which cost more."""
MAX_HOPS = 8
MAX_COLLECTION_BYTES = 4 * 2**20
"""Size limit of a collection that is read."""
MAX_NAME_LENGTH = 100

GATEWAY = re.compile("[0-9a-f]{2}0020[0-9a-f]{64}000400010001")
Admission = Literal["open", "tickets", "tokens"]
ADMISSION_BYTES: dict[Admission, int] = {
    "open": 0,
    "tickets": TICKET_BYTES,
    "tokens": ADMISSION_TOKEN_BYTES,
}
"""Bytes of a ticket or token in a report, by admission."""


def _hexadecimal(count: int) -> AfterValidator:
    def check(text: str) -> str:
        if len(text) != 2 * count or set(text) - set("0123456789abcdef"):
            raise ValueError(f"must be {2 * count} hexadecimal digits in small letters")
        return text

    return AfterValidator(check)


def _validate_time(text: str) -> str:
    try:
        if instant(parse_time(text)) == text:
            return text
    except ValueError:
        pass
    raise ValueError(f"must be a time like 2030-01-31T12:00:00Z, got {text[:40]!r}")


def _validate_name(text: str) -> str:
    if not text.isprintable() or len(text) > MAX_NAME_LENGTH:
        raise ValueError(f"must be up to {MAX_NAME_LENGTH} printable letters")
    return text


def _validate_url(text: str) -> str:
    if (
        not text.isascii()
        or not text.isprintable()
        or not text.startswith(("http://", "https://"))
        or text.endswith("/")
        or " " in text
    ):
        raise ValueError(
            "must be an address like https://shuffler.example without a slash at its end, "
            f"got {text[:80]!r}"
        )
    return text


def _validate_gateway(text: str) -> str:
    if text and not GATEWAY.fullmatch(text):
        raise ValueError(
            "must be the key configuration of a gateway (RFC 9458), in hexadecimal digits, for "
            "X25519, HKDF-SHA256 and AES-128-GCM"
        )
    return text


Moment = Annotated[str, AfterValidator(_validate_time)]
Name = Annotated[str, AfterValidator(_validate_name)]
Address = Annotated[str, AfterValidator(_validate_url)]
Key = Annotated[str, _hexadecimal(KEY_BYTES)]
Digest = Annotated[str, _hexadecimal(DIGEST_BYTES)]
Identifier = Annotated[str, _hexadecimal(16)]


def instant(seconds: float) -> str:
    """Text of a time in UTC, to the second, from seconds since 1970."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_time(text: str) -> int:
    """Parse the text that `instant` writes into seconds since 1970."""
    return int(datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC).timestamp())


class Party(FrozenModel):
    """Party that opens a layer: its key, and the hash of the token with which it fetches."""

    key: Key
    release: Digest
    name: Name = ""


class HopWitness(FrozenModel):
    """Witness of a hop: another shuffler that countersigns its output; see `signatures`."""

    url: Address
    key: Key
    """Key with which it countersigns (Ed25519)."""
    asker: Key
    """Key with which the hop signs its requests (Ed25519)."""


class Hop(Party):
    """Shuffler of the chain, with its address and optional witness."""

    url: Address
    witness: HopWitness | None = None

    @model_validator(mode="after")
    def _has_another_witness(self) -> Self:
        if self.witness is not None and (
            self.witness.url == self.url or self.witness.key == self.witness.asker
        ):
            raise ValueError("the witness of a shuffler must be another shuffler")
        return self

    @model_serializer(mode="wrap")
    def _without_no_witness(self, handler: SerializerFunctionWrapHandler) -> JsonObject:
        """Leave out an absent witness, as in files of versions without witnesses."""
        written: JsonObject = handler(self)
        return (
            written
            if self.witness is not None
            else {name: value for name, value in written.items() if name != "witness"}
        )


class Issuer(FrozenModel):
    """Party that gives each person one token, and its key for this collection alone."""

    url: Address
    """Address for requests, whose host is the issuer's name (RFC 9577)."""
    key: Annotated[str, _hexadecimal(SPKI_BYTES)]
    """Public key, RSASSA-PSS as RFC 9578 asks, in hexadecimal digits."""
    name: Name = ""

    @model_validator(mode="after")
    def _has_usable_key(self) -> Self:
        if set(self.url) & set("?#@"):
            raise ValueError("the address of an issuer has no query, fragment or user")
        try:
            BlindKey(bytes.fromhex(self.key))
        except PlanError as error:
            raise ValueError(str(error)) from None
        return self


class Terms(FrozenModel):
    """Content of a collection. Any change gives another digest."""

    format: Literal["metricshuffle-collection/1", "metricshuffle-collection/2"] = (
        "metricshuffle-collection/1"
    )
    id: Identifier
    task: str
    """Text of the task, as a client reads and verifies it."""
    recipe: JsonObject
    """How a report is made, for clients that do not read tasks."""
    round: Whole
    split: tuple[Whole, Whole] = (1, 1)
    """Part j of k; each person takes part in one part, drawn at random."""
    messages: Whole
    payload: Whole
    piles: Whole = 0
    """Number of piles, which are mixed apart with dummies of every shuffler; 0 without piles."""
    gateway: Annotated[str, AfterValidator(_validate_gateway)] = ""
    """Key of the gateway for this collection alone, for reports through a relay; see `capsules`."""
    ticket: Literal[0, 16, 354]
    suite: Literal["DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, AES-128-GCM"] = (
        "DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, AES-128-GCM"
    )
    hops: tuple[Hop, ...]
    """The chain: reports are sent to the first, the analyst fetches from the last."""
    analyst: Party
    minimum: Whole
    maximum: Whole
    colluders: Whole
    apart: bool = True
    """Whether operator and analyst are different people, by the operator's statement."""
    opens: Moment
    closes: Moment
    extends: Moment
    delay: Whole = 0
    """Longest delay in seconds; a client waits a random part of it before it sends."""
    admission: Admission
    issuer: Issuer | None = None
    """Issuer of the tokens with which people are admitted, a party apart from all shufflers."""
    retention: Whole
    """Seconds from release until the output is destroyed if nobody collects it."""

    @model_validator(mode="after")
    def _check_values(self) -> Self:
        part, parts = self.split
        if (
            not 1 <= part <= parts
            or self.round < 1
            or self.colluders < 0
            or self.delay < 0
            or self.retention < 1
        ):
            raise ValueError("its round, split, colluders, delay or retention is invalid")
        if not 1 <= self.minimum <= self.maximum:
            raise ValueError(
                f"it needs at least {self.minimum:,} reports and takes at most {self.maximum:,}"
            )
        if not parse_time(self.opens) < parse_time(self.closes) <= parse_time(self.extends):
            raise ValueError(
                "it must open before it closes, and close no later than it is extended to"
            )
        if (
            not 1 <= len(self.hops) <= MAX_HOPS
            or len({party.key for party in (*self.hops, self.analyst)}) != len(self.hops) + 1
        ):
            raise ValueError(
                f"a chain has 1 to {MAX_HOPS} shufflers, and they and the analyst have "
                "different keys"
            )
        if self.ticket != ADMISSION_BYTES[self.admission]:
            raise ValueError("its ticket and admission do not match")
        if (self.admission == "tokens") != (self.issuer is not None):
            raise ValueError("its issuer and admission do not match")
        if self.issuer is not None and origin_of(self.issuer.url) in {
            origin_of(hop.url) for hop in self.hops
        }:
            raise ValueError("the issuer of tokens must be another party than the shufflers")
        if self.piles < 0 or self.messages % max(1, self.piles):
            raise ValueError("its piles and messages do not match")
        extended = [name for name in EXTENSIONS if getattr(self, name)]
        if (self.format == EXTENDED_FORMAT) != bool(extended):
            raise ValueError(f"its format and its {', '.join(extended or EXTENSIONS)} do not match")
        return self

    @model_serializer(mode="wrap")
    def _without_absent(self, handler: SerializerFunctionWrapHandler) -> JsonObject:
        """Leave out extensions that are absent, as in files of versions without them."""
        written: JsonObject = handler(self)
        for name in EXTENSIONS:
            if not written[name]:
                del written[name]
        return written


def fewest_honest(task: Task) -> int:
    """Fewest honest reports with which a collection of a task is released.

    Dummies of shufflers protect any number of people.
    """
    if task.protocol.trusted == "aggregator":
        return task.honest
    return task.minimum if MessageFormat.of(task.protocol).by_pile else task.honest


def origin_of(url: str) -> str:
    """Origin of an address as a browser writes it: without a path and without a default port."""
    parts = urlsplit(url)
    port = (
        ""
        if parts.port in (None, {"http": 80, "https": 443}.get(parts.scheme))
        else f":{parts.port}"
    )
    host = parts.hostname or ""
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}{port}"


def canonical(content: object) -> bytes:
    """Canonical JSON.

    Raises InputError for values that other programs may write differently (fractions, huge
    integers).
    """
    _check_json_value(content)
    return json.dumps(
        content, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    ).encode()


def _check_json_value(content: object) -> None:
    if isinstance(content, dict):
        if not all(isinstance(key, str) and key.isascii() for key in content):
            raise InputError("names in a collection must be ASCII text.")
        for part in content.values():
            _check_json_value(part)
    elif isinstance(content, list | tuple):
        for part in content:
            _check_json_value(part)
    elif not (
        content is None
        or isinstance(content, str | bool)
        or (isinstance(content, int) and abs(content) <= LARGEST_WHOLE)
    ):
        raise InputError(
            f"a collection may contain only text and whole numbers below 2^53, got {content!r:.60}."
        )


@dataclass(frozen=True)
class PinnedDocument:
    """JSON document whose bytes, as served, are hashed; the digest is pinned."""

    served: bytes

    def check_content(self) -> None:
        """Raise unless the bytes are a document of this kind."""
        raise NotImplementedError

    @classmethod
    def read(cls, served: bytes, digest: str | None = None) -> Self:
        """Read served bytes; raise if they do not have the pinned digest."""
        document = cls(served)
        if digest is not None and document.digest != digest:
            raise PlanError(
                "these are not the bytes of the requested collection: the digests differ; do "
                "not take part."
            )
        document.check_content()
        return document

    @classmethod
    def load(cls, path: str | Path) -> Self:
        data = read_bytes(path)
        try:
            return cls.read(data.removesuffix(b"\n"))
        except PlanError as error:
            raise PlanError(f"cannot use {path}: {error}") from None

    def save(self, path: str | Path) -> None:
        """Write the bytes as served, with a line end."""
        with atomic_file(path, "wb") as stream:
            stream.write(self.served + b"\n")

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the bytes: what people compare, pin and publish."""
        return hashlib.sha256(self.served).hexdigest()

    def content(self, *formats: str) -> JsonObject:
        """JSON object in the bytes; raises PlanError unless it has one of these formats."""
        if len(self.served) > MAX_COLLECTION_BYTES:
            raise PlanError(
                f"a collection has at most {MAX_COLLECTION_BYTES:,} bytes, most of them its "
                "labels, and this one has more; use fewer or shorter labels."
            )
        try:
            text = self.served.decode()
        except UnicodeDecodeError:
            raise PlanError("this is not a collection: it is not text.") from None
        data = parse_json(text, "a collection")
        named = data.get("format") if isinstance(data, dict) else None
        if not isinstance(data, dict) or named not in formats:
            raise PlanError(
                f"this is not a collection: its format is {named!r:.60}, not {formats[0]!r}."
            )
        return data


@dataclass(frozen=True)
class Collection(PinnedDocument):
    """A collection: its bytes as served, and their content."""

    @classmethod
    def new(
        cls, task: Task, *, admission: Admission = "open", colluders: int = 0, **terms: object
    ) -> Self:
        """Create a collection of a task, from which lengths, minimum and recipe follow.

        The id is random.
        """
        form = MessageFormat.of(task.protocol)
        max_messages = (
            MAX_VECTOR_MESSAGES if isinstance(task.protocol, NoisyVectors) else MAX_MESSAGES
        )
        if form.messages > max_messages:
            raise InputError(
                f"this plan sends {form.messages:,} messages a person; a sealed report "
                f"holds at most {max_messages:,}; plan again."
            )
        content: JsonObject = {
            "id": secrets.token_hex(16),
            "task": task.to_json(),
            "recipe": recipe_of(task),
            "messages": form.messages,
            "payload": form.size,
            "piles": form.piles,
            "ticket": ADMISSION_BYTES[admission],
            "minimum": fewest_honest(task) + colluders,
            "maximum": task.users,
            "admission": admission,
            "colluders": colluders,
            **terms,
        }
        if any(content.get(name) for name in EXTENSIONS):
            content["format"] = EXTENDED_FORMAT
        collection = cls(canonical(Terms(**content).model_dump(mode="json")))
        collection.check()
        return collection

    def check_content(self) -> None:
        _ = self.terms

    @cached_property
    def terms(self) -> Terms:
        try:
            return Terms.model_validate(self.content(FORMAT, EXTENDED_FORMAT))
        except ValidationError as error:
            raise PlanError(str(validation_error(error))) from None

    @cached_property
    def task(self) -> Task:
        return Task.from_json(self.terms.task)

    @cached_property
    def form(self) -> MessageFormat:
        return MessageFormat.of(self.task.protocol)

    @cached_property
    def sealing(self) -> BoxFormat:
        terms = self.terms
        return BoxFormat(
            bytes.fromhex(self.digest),
            terms.payload,
            terms.messages,
            terms.ticket,
            len(terms.hops),
            terms.piles,
        )

    @cached_property
    def token_verifier(self) -> TokenVerifier | None:
        """Verifier of tokens; None if people are not admitted by tokens."""
        issuer = self.terms.issuer
        if issuer is None:
            return None
        key, digest = bytes.fromhex(issuer.key), bytes.fromhex(self.digest)
        return TokenVerifier.of(issuer.url, key, digest)

    @cached_property
    def keys(self) -> tuple[PublicKey, ...]:
        """Keys in sealing order: the analyst's, the last hop's, and so on to the first's."""
        parties = (self.terms.analyst, *reversed(self.terms.hops))
        return tuple(PublicKey(bytes.fromhex(party.key)) for party in parties)

    @property
    def url(self) -> str:
        """Address for reports."""
        return f"{self.terms.hops[0].url}/v1/collections/{self.digest}"

    @property
    def posts_to(self) -> tuple[str, ...]:
        """Servers to which a report is posted: the first hop."""
        return (self.terms.hops[0].url,)

    def posts(self, report: bytes) -> list[tuple[str, str, bytes]]:
        """Server, address and content of every post of a report: one, to the first hop."""
        return [(self.terms.hops[0].url, f"{self.url}/reports", report)]

    def hop_index_of(self, key: str) -> int | None:
        """Return the index of the hop with that key, from 0; None if there is none."""
        return next((place for place, hop in enumerate(self.terms.hops) if hop.key == key), None)

    def layer_of(self, place: int) -> int:
        """Layer that the hop at a place opens."""
        return len(self.terms.hops) - place

    def fetcher_of(self, place: int) -> Party:
        """Party that fetches the output of the hop at a place: the next hop, or the analyst."""
        hops = self.terms.hops
        return hops[place + 1] if place + 1 < len(hops) else self.terms.analyst

    def check(self) -> None:
        """Raise unless lengths, round and numbers fit the task; `verify` checks the guarantee."""
        terms = self.terms
        task = self.task
        form = self.form
        lengths = (terms.messages, terms.payload, terms.piles)
        if lengths != (form.messages, form.size, form.piles):
            raise PlanError(
                "the lengths of this collection are not those of its task; do not take part."
            )
        sets = task.protocol.max_noise_sets
        if terms.piles and terms.split[1] * len(terms.hops) > sets:
            raise PlanError(
                f"every shuffler adds dummies to each part, and counts may have {sets} sets of "
                f"them; split this collection in {sets // len(terms.hops)} parts at most."
            )
        if not 1 <= terms.round <= task.rounds:
            raise PlanError(
                f"this collection is for round {terms.round}, and the plan covers {task.rounds}."
            )
        if terms.minimum != fewest_honest(task) + terms.colluders:
            raise PlanError(
                f"this collection may be released with {terms.minimum:,} reports, but the "
                f"plan counts on {fewest_honest(task):,} honest ones and "
                f"{terms.colluders:,} may collude; do not take part."
            )
        if terms.maximum > task.users:
            raise PlanError(
                f"this collection takes {terms.maximum:,} reports, and the plan has room "
                f"for {task.users:,}."
            )

    def verify(self) -> None:
        """Recompute the guarantee from the mechanism, and the recipe from the task."""
        self.check()
        self.task.verify()
        if canonical(recipe_of(self.task)) != canonical(self.terms.recipe):
            raise NotCertified(
                "the recipe of this collection is not that of its task; do not take part."
            )
        _ = self.keys
