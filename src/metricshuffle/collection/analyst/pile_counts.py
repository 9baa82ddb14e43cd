"""Counts of the parts of piles, from the messages of people and the dummies of shufflers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from metricshuffle.collection.analyst.decryption_pool import OpenedPart
from metricshuffle.collection.output_runs import dummy_protocol
from metricshuffle.collection.terms import Collection
from metricshuffle.protocols.tally import Tally


@dataclass(frozen=True)
class PileCounts:
    """Tally of a collection with piles.

    A message that cannot be read, or names a part that its pile does not have, counts as the first
    part: its sender is unknown, and could have sent that part. Otherwise one person could prevent
    the answer for all others.
    """

    tally: Tally
    replaced: int
    """Number of messages that count as the first part of their pile."""

    @classmethod
    def of(cls, collection: Collection, people: int, opened: Iterable[OpenedPart]) -> PileCounts:
        """Count opened messages. Every hop has added one set of dummies."""
        form = collection.form
        sizes = dummy_protocol(collection).sizes
        counts = [np.zeros(size, dtype=np.int64) for size in sizes]
        replaced = 0
        for pile, payloads, flags in opened:
            parts = form.parts_of(np.frombuffer(payloads, dtype=np.uint8))
            spoiled = (np.frombuffer(flags, dtype=np.uint8) == 0) | (parts >= sizes[pile])
            parts = np.where(spoiled, 0, parts)
            replaced += int(np.count_nonzero(spoiled))
            counts[pile] += np.bincount(parts, minlength=sizes[pile])
        empty = collection.task.tally(round=collection.terms.round)
        tally = replace(
            empty,
            people=people,
            messages=people * form.messages,
            sums={0: np.concatenate(counts).tolist()},
            noise_sets=len(collection.terms.hops),
        )
        return cls(tally, replaced)
