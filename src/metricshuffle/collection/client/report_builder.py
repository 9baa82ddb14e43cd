"""Construction of sealed reports from validated values: randomize, split, seal each message."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import numpy as np

from metricshuffle.collection.adder.sum_terms import AnyCollection, SumCollection, only_sum
from metricshuffle.collection.client.outbox import SealedReport
from metricshuffle.collection.sealed_boxes import TICKET_BYTES
from metricshuffle.collection.terms import Collection
from metricshuffle.errors import InputError, PlanError
from metricshuffle.queries.query import Inputs
from metricshuffle.randomness import Randomness


def seal_reports(
    collection: AnyCollection, inputs: Inputs, people: Sequence[bytes], tickets: Sequence[bytes]
) -> list[SealedReport]:
    """Make a report for each person, with randomness of the operating system; there is no seed."""
    if isinstance(collection, SumCollection):
        return _seal_shares(collection, inputs, people, tickets)
    sealing = collection.sealing
    keys = collection.keys
    payloads = collection.form.split_messages(
        collection.task.protocol.messages(inputs, Randomness.system())
    )
    reports = []
    for who, ticket, messages in zip(people, tickets, payloads, strict=True):
        boxes = sealing.boxes([message.tobytes() for message in messages], keys[:-1])
        kept_boxes = b"".join(boxes) if sealing.ticket else None
        reports.append(
            SealedReport(
                who, collection.digest, sealing.closed(boxes, keys[-1], ticket), kept_boxes
            )
        )
    return reports


def _seal_shares(
    collection: SumCollection, inputs: Inputs, people: Sequence[bytes], tickets: Sequence[bytes]
) -> list[SealedReport]:
    """Make a report of shares for each person.

    Nothing is stored with which its ticket could be replaced: that would be the shares.
    """
    randomness = Randomness.system()
    rows = np.asarray(collection.task.protocol.messages(inputs, randomness)).astype(np.uint64)
    form = collection.shares
    return [
        SealedReport(who, collection.digest, form.sealed(row, collection.keys, randomness, ticket))
        for who, ticket, row in zip(people, tickets, rows, strict=True)
    ]


def reseal_report(collection: Collection, boxes: bytes, ticket: bytes) -> bytes:
    """Seal the same boxes with another ticket; nothing is randomized or sealed again."""
    sealing = collection.sealing
    size = collection.sealing.inner_size
    return sealing.closed(
        [boxes[start : start + size] for start in range(0, len(boxes), size)],
        collection.keys[-1],
        ticket,
    )


def draw_collection(collections: Sequence[AnyCollection]) -> AnyCollection:
    """Draw a part uniformly at random."""
    return collections[secrets.randbelow(len(collections))]


def check_split(collections: Sequence[AnyCollection]) -> None:
    """Raise unless several collections are all parts of one split; a single part is allowed."""
    if len(collections) == 1:
        return
    only_sum(collections)
    first = collections[0]
    kinds = {
        (part.task.digest, part.terms.round, part.terms.split[1], part.terms.admission)
        for part in collections
    }
    parts = [part.terms.split[0] for part in collections]
    if len(kinds) != 1 or len(set(parts)) != len(parts):
        raise PlanError(
            "these collections are not the parts of one split; give one collection, or all "
            "parts that were opened together."
        )
    if first.terms.ticket:
        raise PlanError(
            "a ticket is for one part of a split; give the collection that yours is for, "
            "and not all parts."
        )
    if len(parts) != first.terms.split[1]:
        raise PlanError(
            f"this split has {first.terms.split[1]} parts, and {len(parts)} are given; each "
            "person draws one of all of them."
        )


def parse_ticket(text: str | bytes, size: int = TICKET_BYTES) -> bytes:
    """Parse the hexadecimal digits of a ticket, or of a token, which has another size."""
    if isinstance(text, bytes) and len(text) == size:
        return text
    words = text.decode("ascii", "replace") if isinstance(text, bytes) else text
    try:
        ticket = bytes.fromhex(words.strip())
    except ValueError:
        ticket = b""
    if len(ticket) != size:
        raise InputError(
            f"a {'ticket' if size == TICKET_BYTES else 'token'} is {2 * size} hexadecimal digits, "
            "and this one is not; check it letter by letter."
        )
    return ticket
