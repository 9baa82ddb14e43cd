"""Runs of an output: all boxes sorted by their bytes, or the boxes of each pile sorted apart.

    output = boxes                                        if all messages are mixed together
           = number of boxes of each pile (u64 each, little endian) | boxes of pile 1 | ...

The numbers are part of the body, so that the digest of an output and a countersignature cover them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import IO

import numpy as np

from metricshuffle.collection.shuffler.external_sort import is_sorted
from metricshuffle.collection.terms import Collection
from metricshuffle.errors import PlanError
from metricshuffle.protocols.shuffler_noise import ShufflerNoise

LENGTH_BYTES = 8


class OutOfOrder(PlanError):
    """Boxes of a run are not sorted by their bytes, or one occurs twice."""


def head_size(collection: Collection) -> int:
    """Bytes of an output before its boxes."""
    return LENGTH_BYTES * collection.sealing.piles


def pack_lengths(lengths: tuple[int, ...]) -> bytes:
    return struct.pack(f"<{len(lengths)}Q", *lengths)


@dataclass(frozen=True)
class OutputRuns:
    """Number of boxes of every run of an output, and the size of a box."""

    lengths: tuple[int, ...]
    size: int
    head: bytes = b""

    @classmethod
    def of(cls, collection: Collection, layer: int, people: int, head: bytes) -> OutputRuns:
        """Runs of the output for the party that opens `layer`; `head` precedes the boxes in it.

        Raises PlanError if this number of people, with the dummies of all previous hops, cannot
        have made runs of these lengths.
        """
        sealing = collection.sealing
        size = sealing.box_size(layer)
        if not sealing.piles:
            return cls((people * sealing.messages,), size)
        if len(head) != head_size(collection):
            raise PlanError("an output does not say how long its piles are.")
        lengths = struct.unpack(f"<{sealing.piles}Q", head)
        sets = sealing.hops - layer
        dummy_protocol(collection).totals.check_totals(lengths, people, sets)
        return cls(lengths, size, head)

    @property
    def total(self) -> int:
        """Bytes of the whole output."""
        return len(self.head) + self.size * sum(self.lengths)

    def read_parts(self, stream: IO[bytes], boxes: int) -> Iterator[tuple[int, bytes]]:
        """Read a file from its first box, at most `boxes` boxes of one pile at a time."""
        for pile, length in enumerate(self.lengths):
            for start in range(0, length, boxes):
                yield pile, stream.read(self.size * min(boxes, length - start))


@dataclass
class OrderCheck:
    """Check of the boxes of an output as they arrive, in pieces of any size."""

    runs: OutputRuns
    _before: int = 0
    """Bytes before the boxes that have arrived."""
    _run: int = 0
    _seen: int = 0
    """Bytes of the current run that have arrived."""
    _last: bytes = field(default=b"", repr=False)

    def feed(self, data: bytes) -> None:
        """Check more bytes; raises OutOfOrder unless each run is sorted and distinct."""
        size = self.runs.size
        skipped = min(len(data), len(self.runs.head) - self._before)
        self._before += skipped
        data = data[skipped:]
        while data and self._run < len(self.runs.lengths):
            room = size * self.runs.lengths[self._run] - self._seen
            part = data[:room]
            data = data[room:]
            self._seen += len(part)
            joined = self._last + part
            whole = len(joined) // size * size
            if not is_sorted(np.frombuffer(joined[:whole], np.uint8).reshape(-1, size)):
                raise OutOfOrder("messages are out of order, or there twice.")
            self._last = joined[max(0, whole - size) :]
            if len(part) == room:
                self._run += 1
                self._seen = 0
                self._last = b""


def dummy_protocol(collection: Collection) -> ShufflerNoise:
    """Protocol of a collection with piles, the only one for which shufflers draw dummies."""
    protocol = collection.task.protocol
    if not isinstance(protocol, ShufflerNoise):
        raise PlanError("this collection has piles, and its task has no dummies for them.")
    return protocol
