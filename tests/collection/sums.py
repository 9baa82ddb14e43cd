"""Sums by several servers for tests: a small task, adders' keys, and reports."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from metricshuffle.collection.adder.sum_terms import AdderParty, SumCollection
from metricshuffle.collection.keys import AnalystKey, CollectionKeys, analyst_of
from metricshuffle.collection.signatures import SigningKey
from metricshuffle.collection.terms import instant
from metricshuffle.planning import plan
from metricshuffle.privacy.target import Target
from metricshuffle.queries import Sum
from metricshuffle.randomness import Randomness
from metricshuffle.spaces import Integers
from metricshuffle.tasks.task import Task


@cache
def sum_task(honest: int = 2, users: int = 20, rounds: int = 3) -> Task:
    """Task of a sum of small numbers for an aggregator.

    Its guarantee covers three rounds; an adder does not check it.
    """
    planned = plan(
        Sum(Integers(0, 5)), Target(1, 1e-6, 5), users, honest, rounds=3, trusted="aggregator"
    ).task
    if rounds == planned.rounds:
        return planned
    return Task(
        query=planned.query,
        protocol=planned.protocol,
        users=users,
        honest=honest,
        rounds=rounds,
        guarantee=planned.guarantee,
        if_shuffler_colludes=planned.if_shuffler_colludes,
    )


@dataclass
class AdderKeys:
    """Keys of one adder outside a folder."""

    collection: CollectionKeys = field(
        default_factory=lambda: CollectionKeys(secrets.token_bytes(64))
    )
    signing: SigningKey = field(default_factory=SigningKey.new)

    def party(self, url: str) -> AdderParty:
        return AdderParty(url=url, key=self.collection.party.key, signature=self.signing.public)


def new_sum(
    parties: list[AdderParty],
    analyst: AnalystKey | None = None,
    task: Task | None = None,
    *,
    start: float | None = None,
    lasts: float = 100,
    longer: float = 0,
    **terms: Any,
) -> SumCollection:
    """Sum that opened just now."""
    opens = time.time() if start is None else start
    standard = {
        "round": 1,
        "adders": tuple(parties),
        "analyst": analyst_of((analyst or AnalystKey.new()).public),
        "opens": instant(opens),
        "closes": instant(opens + lasts),
        "extends": instant(opens + lasts + longer),
        "retention": 1000,
    }
    return SumCollection.new(task or sum_task(), **{**standard, **terms})


def residues_of(collection: SumCollection, value: int) -> Any:
    """Numbers of a report whose sum is easy to check; a client adds noise."""
    length = collection.terms.length
    return np.full(length, value % collection.shares.modulus, dtype=np.uint64)


def sealed_value(collection: SumCollection, value: int, ticket: bytes = b"") -> bytes:
    """All boxes of a report of a value without noise."""
    return collection.shares.sealed(
        residues_of(collection, value), collection.keys, Randomness.system(), ticket
    )
