"""Document of a sum by several servers: a task with adders, keys, times and admission.

Its bytes are hashed as they are served, like those of a collection. There is no mixing: each adder
receives one share of every report, and the shares of fewer than all adders are uniform.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, ValidationError, model_validator

from metricshuffle.collection.adder.share_boxes import MAX_SHARE_BYTES, ShareFormat
from metricshuffle.collection.recipes import JsonObject
from metricshuffle.collection.sealed_boxes import TICKET_BYTES, PublicKey
from metricshuffle.collection.terms import (
    EXTENDED_FORMAT,
    FORMAT,
    Address,
    Collection,
    Identifier,
    Key,
    Moment,
    Name,
    Party,
    PinnedDocument,
    canonical,
    parse_time,
)
from metricshuffle.encodings.modular_shares import LARGEST_MODULUS
from metricshuffle.errors import InputError, PlanError
from metricshuffle.files import read_bytes
from metricshuffle.models import FrozenModel, Whole, validation_error
from metricshuffle.tasks.task import Task

SUM_FORMAT = "metricshuffle-sum/1"
MIN_ADDERS = 2
MAX_ADDERS = 5
MAX_SUM_REPORTS = 2**20
"""Maximum number of reports of a sum; a list of their names has 32 MiB then."""


def _validate_modulus(text: str) -> str:
    if not (text.isascii() and text.isdigit() and len(text) < 20 and str(int(text)) == text):
        raise ValueError("must be a whole number in decimal digits")
    if not 2 <= int(text) <= LARGEST_MODULUS:
        raise ValueError("must be from 2 to 2^62")
    return text


class AdderParty(FrozenModel):
    """Adder: its address, the key that its shares are sealed for, and its signature key."""

    url: Address
    key: Key
    signature: Key
    """Key (Ed25519) with which it signs names and its statement."""
    name: Name = ""


class SumTerms(FrozenModel):
    """Content of a sum. Any change gives another digest."""

    format: Literal["metricshuffle-sum/1"] = "metricshuffle-sum/1"
    id: Identifier
    task: str
    """Text of the task, as a client reads and verifies it."""
    round: Whole
    modulus: Annotated[str, AfterValidator(_validate_modulus)]
    """Decimal digits, because it may exceed 2^53."""
    length: Whole
    """Numbers of a report."""
    ticket: Literal[0, 16]
    suite: Literal["DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, AES-128-GCM"] = (
        "DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, AES-128-GCM"
    )
    adders: tuple[AdderParty, ...]
    analyst: Party
    minimum: Whole
    maximum: Whole
    colluders: Whole
    apart: bool = True
    """Whether the operators and the analyst are different people, by the opener's statement."""
    opens: Moment
    closes: Moment
    extends: Moment
    delay: Whole = 0
    """Longest delay in seconds; a client waits a random part of it before it sends."""
    admission: Literal["open", "tickets"]
    retention: Whole
    """Seconds after the last closing time until a sum without all signatures is aborted, and
    seconds after the release until the totals are destroyed."""

    @model_validator(mode="after")
    def _check_values(self) -> Self:
        if self.round < 1 or self.colluders < 0 or self.delay < 0 or self.retention < 1:
            raise ValueError("its round, colluders, delay or retention is invalid")
        if not 1 <= self.minimum <= self.maximum <= MAX_SUM_REPORTS:
            raise ValueError(
                f"it needs at least {self.minimum:,} reports and takes at most {self.maximum:,}; "
                f"adders take up to {MAX_SUM_REPORTS:,}"
            )
        if not parse_time(self.opens) < parse_time(self.closes) <= parse_time(self.extends):
            raise ValueError(
                "it must open before it closes, and close no later than it is extended to"
            )
        count = len(self.adders)
        if (
            not MIN_ADDERS <= count <= MAX_ADDERS
            or len({adder.key for adder in self.adders}) != count
            or len({adder.signature for adder in self.adders}) != count
            or len({adder.url for adder in self.adders}) != count
        ):
            raise ValueError(
                f"a sum has {MIN_ADDERS} to {MAX_ADDERS} adders with different addresses and keys"
            )
        if (self.admission == "tickets") != (self.ticket == TICKET_BYTES):
            raise ValueError("its ticket and admission do not match")
        if self.length < 1 or self.length > MAX_SHARE_BYTES:
            raise ValueError("its length is invalid")
        return self

    @property
    def hops(self) -> tuple[AdderParty, ...]:
        """The adders, under the name that the servers of every collection have."""
        return self.adders

    @property
    def issuer(self) -> None:
        """No issuer: adders take tickets, not tokens."""

    @property
    def split(self) -> tuple[int, int]:
        """The only part; a sum is not split."""
        return (1, 1)


@dataclass(frozen=True)
class SumCollection(PinnedDocument):
    """A sum: its bytes as served, and their content."""

    @classmethod
    def new(
        cls, task: Task, *, admission: str = "open", colluders: int = 0, **terms: object
    ) -> Self:
        """Create a sum of a task, from which modulus, length and minimum follow.

        The id is random.
        """
        modulus, length = summed_shape(task)
        content: JsonObject = {
            "id": secrets.token_hex(16),
            "task": task.to_json(),
            "modulus": str(modulus),
            "length": length,
            "ticket": TICKET_BYTES if admission == "tickets" else 0,
            "minimum": task.honest + colluders,
            "maximum": min(task.users, MAX_SUM_REPORTS),
            "admission": admission,
            "colluders": colluders,
            **terms,
        }
        collection = cls(canonical(SumTerms(**content).model_dump(mode="json")))
        collection.check()
        return collection

    def check_content(self) -> None:
        _ = self.terms

    @cached_property
    def terms(self) -> SumTerms:
        try:
            return SumTerms.model_validate(self.content(SUM_FORMAT))
        except ValidationError as error:
            raise PlanError(str(validation_error(error))) from None

    @cached_property
    def task(self) -> Task:
        return Task.from_json(self.terms.task)

    @cached_property
    def shares(self) -> ShareFormat:
        """Lengths and bindings of the boxes of a report."""
        terms = self.terms
        return ShareFormat(
            bytes.fromhex(self.digest),
            int(terms.modulus),
            terms.length,
            len(terms.adders),
            terms.ticket,
        )

    @cached_property
    def keys(self) -> tuple[PublicKey, ...]:
        """Keys of the adders, in their order."""
        return tuple(PublicKey(bytes.fromhex(adder.key)) for adder in self.terms.adders)

    @cached_property
    def analyst_key(self) -> PublicKey:
        """Key that totals are sealed for."""
        return PublicKey(bytes.fromhex(self.terms.analyst.key))

    @property
    def urls(self) -> tuple[str, ...]:
        """Addresses for the parts of a report, in the order of the adders."""
        return tuple(f"{adder.url}/v1/collections/{self.digest}" for adder in self.terms.adders)

    @property
    def posts_to(self) -> tuple[str, ...]:
        """Servers to which a report is posted: all adders."""
        return tuple(adder.url for adder in self.terms.adders)

    def posts(self, report: bytes) -> list[tuple[str, str, bytes]]:
        """Server, address and content of every post of a report, which is all of its boxes."""
        bodies = self.shares.bodies(report)
        return [
            (adder.url, f"{url}/reports", body)
            for adder, url, body in zip(self.terms.adders, self.urls, bodies, strict=True)
        ]

    def place_of(self, key: str) -> int | None:
        """Return the index of the adder with that key, from 0; None if there is none."""
        adders = enumerate(self.terms.adders)
        return next((place for place, adder in adders if adder.key == key), None)

    def check(self) -> None:
        """Raise unless modulus, length, round and numbers fit the task."""
        terms = self.terms
        task = self.task
        if (int(terms.modulus), terms.length) != summed_shape(task):
            raise PlanError(
                "modulus and length of this sum are not those of its task; do not take part."
            )
        if not 1 <= terms.round <= task.rounds:
            raise PlanError(
                f"this sum is for round {terms.round}, and the plan covers {task.rounds}."
            )
        if terms.minimum != task.honest + terms.colluders:
            raise PlanError(
                f"this sum may be released with {terms.minimum:,} reports, but the plan counts on "
                f"{task.honest:,} honest ones and {terms.colluders:,} may collude; do not take "
                "part."
            )
        if terms.maximum > task.users:
            raise PlanError(
                f"this sum takes {terms.maximum:,} reports, and the plan has room for "
                f"{task.users:,}."
            )
        _ = self.shares, self.analyst_key

    def verify(self) -> None:
        """Recompute the guarantee from the mechanism."""
        self.check()
        self.task.verify()
        _ = self.keys


AnyCollection = Collection | SumCollection
"""What people take part in: a collection through shufflers, or a sum by adders."""


def summed_shape(task: Task) -> tuple[int, int]:
    """Modulus and numbers of a report that adders add up.

    Raises: InputError if the plan does not trust an aggregator, or its sums have no modulus.
    """
    protocol = task.protocol
    if protocol.trusted != "aggregator" or protocol.modulus is None:
        raise InputError(
            f"this plan trusts a {protocol.trusted}, and adders sum residues for an aggregator; "
            "plan with --trusted aggregator."
        )
    return protocol.modulus, protocol.layout.numbers


def read_any(served: bytes, digest: str | None = None) -> AnyCollection:
    """Read the served bytes of a collection or of a sum, by their format."""
    named = PinnedDocument(served).content(FORMAT, EXTENDED_FORMAT, SUM_FORMAT)["format"]
    kind = SumCollection if named == SUM_FORMAT else Collection
    return kind.read(served, digest)


def load_any(path: str | Path) -> AnyCollection:
    """Load the file of a collection or of a sum."""
    data = read_bytes(path)
    try:
        return read_any(data.removesuffix(b"\n"))
    except PlanError as error:
        raise PlanError(f"cannot use {path}: {error}") from None


def only_sum(collections: Sequence[AnyCollection]) -> SumCollection | None:
    """Return the sum among collections; None if there is none.

    Raises: InputError if there is more than one collection then, because a sum has no parts.
    """
    sums = [collection for collection in collections if isinstance(collection, SumCollection)]
    if sums and len(collections) > 1:
        raise InputError("a sum by several servers has no parts; give its file alone.")
    return sums[0] if sums else None


def without_sums(collections: Sequence[AnyCollection]) -> list[Collection]:
    """Return the collections through shufflers; raises InputError if one is a sum."""
    if only_sum(collections) is not None:
        raise InputError("this is a sum by several servers; it needs a collection of a shuffler.")
    return [collection for collection in collections if isinstance(collection, Collection)]
