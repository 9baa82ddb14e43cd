"""A collection: a task with keys, times, admission, round and address. Its bytes, as served, are hashed, pinned and bound into every box.

The bytes are canonical JSON (RFC 8785 for what stands in it: no fractions, and whole numbers beyond 2^53 as text). Whoever takes part
hashes the bytes that were served, before reading them, and never writes them anew.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, SerializerFunctionWrapHandler, ValidationError, model_serializer, model_validator

from metricshuffle.collection.recipes import recipe_of
from metricshuffle.collection.sealed_boxes import DIGEST_BYTES, KEY_BYTES, TICKET_BYTES, BoxFormat, PublicKey
from metricshuffle.errors import InputError, NotCertified, PlanError
from metricshuffle.files import atomic_file, read_bytes
from metricshuffle.models import LARGEST_WHOLE, FrozenModel, Whole, parse_json, validation_message
from metricshuffle.protocols.noisy_vectors import NoisyVectors
from metricshuffle.tasks.message_format import MessageFormat
from metricshuffle.tasks.task import Task

FORMAT = "metricshuffle-collection/1"
SUITE = "DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, AES-128-GCM"
MAX_MESSAGES, MAX_VECTOR_MESSAGES = 256, 4096
"""Of one person; noisy vectors send more, and cost accordingly."""
MAX_HOPS = 8
MAX_COLLECTION_BYTES = 4 * 2**20
"""Bytes of a collection that is still read."""
MAX_NAME_LENGTH = 100

Admission = Literal["open", "tickets"]


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
    if not text.isascii() or not text.isprintable() or not text.startswith(("http://", "https://")) or text.endswith("/") or " " in text:
        raise ValueError(f"must be an address like https://shuffler.example without a slash at its end, got {text[:80]!r}")
    return text


Moment = Annotated[str, AfterValidator(_validate_time)]
Name = Annotated[str, AfterValidator(_validate_name)]
Address = Annotated[str, AfterValidator(_validate_url)]
Key = Annotated[str, _hexadecimal(KEY_BYTES)]
Digest = Annotated[str, _hexadecimal(DIGEST_BYTES)]


def instant(seconds: float) -> str:
    """Seconds since 1970 as a time in UTC, to the second."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_time(text: str) -> int:
    """The seconds since 1970 of such a time."""
    return int(datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC).timestamp())


class Party(FrozenModel):
    """Whoever opens a layer: the key it is sealed for, and the hash of the token with which the party fetches what is released to it."""

    key: Key
    release: Digest
    name: Name = ""


class Witness(FrozenModel):
    """Another shuffler, of somebody else, that countersigns the one set of messages that a hop lets go; see `signatures`."""

    url: Address
    key: Key
    """With which it countersigns (Ed25519)."""
    asker: Key
    """With which the hop signs what it asks for (Ed25519)."""


class Hop(Party):
    """A shuffler of the chain, where it listens, and its witness, if it has one."""

    url: Address
    witness: Witness | None = None

    @model_validator(mode="after")
    def _has_another_witness(self) -> Self:
        if self.witness is not None and (self.witness.url == self.url or self.witness.key == self.witness.asker):
            raise ValueError("the witness of a shuffler must be another one")
        return self

    @model_serializer(mode="wrap")
    def _without_no_witness(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """A hop without a witness is written as it was before there were any."""
        written: dict[str, Any] = handler(self)
        return written if self.witness is not None else {name: value for name, value in written.items() if name != "witness"}


class Terms(FrozenModel):
    """What a collection says. Nothing of it can be changed afterwards: another word is another digest."""

    format: Literal["metricshuffle-collection/1"] = "metricshuffle-collection/1"
    id: Annotated[str, _hexadecimal(16)]
    task: str
    """The text of the task, as a client reads it and verifies it."""
    recipe: dict[str, Any]
    """How a report is made, for clients that do not read tasks."""
    round: Whole
    split: tuple[Whole, Whole] = (1, 1)
    """This is part j of k; everybody takes part in one of them, drawn at random."""
    messages: Whole
    payload: Whole
    ticket: Literal[0, 16]
    suite: Literal["DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, AES-128-GCM"] = "DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, AES-128-GCM"
    hops: tuple[Hop, ...]
    """The first is where reports are sent, the last where the analyst fetches."""
    analyst: Party
    minimum: Whole
    maximum: Whole
    colluders: Whole
    apart: bool = True
    """Whether operator and analyst are different people, as far as the operator says."""
    opens: Moment
    closes: Moment
    extends: Moment
    delay: Whole = 0
    """Seconds; a client waits a random part of it before it sends."""
    admission: Admission
    retention: Whole
    """Seconds from release until the output is destroyed if nobody collects it."""

    @model_validator(mode="after")
    def _check_values(self) -> Self:
        part, parts = self.split
        if not 1 <= part <= parts or self.round < 1 or self.colluders < 0 or self.delay < 0 or self.retention < 1:
            raise ValueError("its round, split, colluders, delay or retention cannot be")
        if not 1 <= self.minimum <= self.maximum:
            raise ValueError(f"it needs at least {self.minimum:,} reports and takes at most {self.maximum:,}")
        if not parse_time(self.opens) < parse_time(self.closes) <= parse_time(self.extends):
            raise ValueError("it must open before it closes, and close before it is extended to")
        if not 1 <= len(self.hops) <= MAX_HOPS or len({party.key for party in (*self.hops, self.analyst)}) != len(self.hops) + 1:
            raise ValueError(f"a chain has 1 to {MAX_HOPS} shufflers, and they and the analyst have different keys")
        if (self.admission == "tickets") != (self.ticket == TICKET_BYTES):
            raise ValueError("tickets and admission do not fit")
        return self


def origin_of(url: str) -> str:
    """The site of an address, as a browser names it: without a path, and without the port that goes without saying."""
    parts = urlsplit(url)
    port = "" if parts.port in (None, {"http": 80, "https": 443}.get(parts.scheme)) else f":{parts.port}"
    host = parts.hostname or ""
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}{port}"


def canonical(content: Any) -> bytes:
    """Canonical JSON; what would be written differently elsewhere (fractions, huge whole numbers) is refused."""
    _check_json_value(content)
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def _check_json_value(content: Any) -> None:
    if isinstance(content, dict):
        if not all(isinstance(key, str) and key.isascii() for key in content):
            raise InputError("names in a collection are ASCII text.")
        for part in content.values():
            _check_json_value(part)
    elif isinstance(content, list | tuple):
        for part in content:
            _check_json_value(part)
    elif not (content is None or isinstance(content, str | bool) or (isinstance(content, int) and abs(content) <= LARGEST_WHOLE)):
        raise InputError(f"a collection holds text and whole numbers below 2^53, got {content!r:.60}.")


@dataclass(frozen=True)
class Collection:
    """The bytes that are served, and what they say."""

    served: bytes

    @classmethod
    def new(cls, task: Task, **terms: Any) -> Self:
        """A fresh one of a task: lengths, minimum and recipe follow from it, the id is random. Refused if it cannot be carried."""
        form = MessageFormat.of(task.protocol)
        max_messages = MAX_VECTOR_MESSAGES if isinstance(task.protocol, NoisyVectors) else MAX_MESSAGES
        if form.messages > max_messages:
            raise InputError(
                f"this plan sends {form.messages:,} messages a person; a sealed report holds at most {max_messages:,}; plan again."
            )
        admission, colluders = terms.get("admission", "open"), terms.get("colluders", 0)
        content = {
            "id": secrets.token_hex(16),
            "task": task.to_json(),
            "recipe": recipe_of(task),
            "messages": form.messages,
            "payload": form.size,
            "ticket": TICKET_BYTES if admission == "tickets" else 0,
            "minimum": task.honest + colluders,
            "maximum": task.users,
            "admission": admission,
            **terms,
        }
        collection = cls(canonical(Terms(**content).model_dump(mode="json")))
        collection.check()
        return collection

    @classmethod
    def read(cls, served: bytes, digest: str | None = None) -> Self:
        """What was served; with the digest that was pinned, refused if these are other bytes."""
        collection = cls(served)
        if digest is not None and collection.digest != digest:
            raise PlanError("these are not the bytes of the collection that was asked for: its digest is another; do not take part.")
        _ = collection.terms
        return collection

    @classmethod
    def load(cls, path: str | Path) -> Self:
        data = read_bytes(path)
        try:
            return cls.read(data.removesuffix(b"\n"))
        except PlanError as error:
            raise PlanError(f"cannot use {path}: {error}") from None

    def save(self, path: str | Path) -> None:
        """The bytes as they are served, and a line end behind them."""
        with atomic_file(path, "wb") as stream:
            stream.write(self.served + b"\n")

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the bytes: what people compare, pin and publish."""
        return hashlib.sha256(self.served).hexdigest()

    @cached_property
    def terms(self) -> Terms:
        if len(self.served) > MAX_COLLECTION_BYTES:
            raise PlanError(f"this is not a collection: it has more than {MAX_COLLECTION_BYTES:,} bytes.")
        try:
            text = self.served.decode()
        except UnicodeDecodeError:
            raise PlanError("this is not a collection: it is not text.") from None
        data = parse_json(text, "a collection")
        named = data.get("format") if isinstance(data, dict) else None
        if named != FORMAT:
            raise PlanError(f"this is not a collection: its format is {named!r:.60}, not {FORMAT!r}.")
        try:
            return Terms.model_validate(data)
        except ValidationError as error:
            raise PlanError(validation_message(error)) from None

    @cached_property
    def task(self) -> Task:
        return Task.from_json(self.terms.task)

    @cached_property
    def form(self) -> MessageFormat:
        return MessageFormat.of(self.task.protocol)

    @cached_property
    def sealing(self) -> BoxFormat:
        terms = self.terms
        return BoxFormat(bytes.fromhex(self.digest), terms.payload, terms.messages, terms.ticket, len(terms.hops))

    @cached_property
    def keys(self) -> tuple[PublicKey, ...]:
        """The analyst's, the last hop's, and so on to the first: the order in which a report is sealed."""
        parties = (self.terms.analyst, *reversed(self.terms.hops))
        return tuple(PublicKey(bytes.fromhex(party.key)) for party in parties)

    @property
    def url(self) -> str:
        """Where reports are sent."""
        return f"{self.terms.hops[0].url}/v1/collections/{self.digest}"

    def hop_index_of(self, key: str) -> int | None:
        """Which hop, from 0, has that key; None if none does."""
        return next((place for place, hop in enumerate(self.terms.hops) if hop.key == key), None)

    def layer_of(self, place: int) -> int:
        """Which layer the hop of that place opens."""
        return len(self.terms.hops) - place

    def fetcher_of(self, place: int) -> Party:
        """Who fetches what the hop of that place lets go: the next hop, or the analyst."""
        hops = self.terms.hops
        return hops[place + 1] if place + 1 < len(hops) else self.terms.analyst

    def check(self) -> None:
        """Raise unless lengths, round and numbers are those of the task. The task's own promise is not recomputed here; see `verify`."""
        terms, task = self.terms, self.task
        if (terms.messages, terms.payload) != (self.form.messages, self.form.size):
            raise PlanError("the lengths of this collection are not those of its task; do not take part.")
        if not 1 <= terms.round <= task.rounds:
            raise PlanError(f"this collection is for round {terms.round}, and the plan covers {task.rounds}.")
        if terms.minimum != task.honest + terms.colluders:
            raise PlanError(
                f"this collection may be released with {terms.minimum:,} reports, but the plan counts on {task.honest:,} honest ones and "
                f"{terms.colluders:,} may collude; do not take part."
            )
        if terms.maximum > task.users:
            raise PlanError(f"this collection takes {terms.maximum:,} reports, and the plan has room for {task.users:,}.")

    def verify(self) -> None:
        """Recompute what is promised from the mechanism, and that every client makes her report in the same way."""
        self.check()
        self.task.verify()
        if canonical(recipe_of(self.task)) != canonical(self.terms.recipe):
            raise NotCertified("the recipe of this collection is not that of its task; do not take part.")
        _ = self.keys
