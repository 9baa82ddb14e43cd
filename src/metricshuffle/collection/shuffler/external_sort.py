"""Mixing: sort the boxes of all reports by their bytes, so that their order reveals nothing.

A sorted multiset reveals exactly what a random order would reveal. It needs no randomness, a second
run after an interruption gives the same bytes, and equal boxes become neighbours: all reports that
share a box are left out and counted. (A person who copies a box of another report removes these two
reports only, and cannot spoil the collection.)

Memory is bounded without temporary files: every pass reads all reports and sorts the boxes of one
range. The limits of the ranges are taken from a sample of the boxes, because senders choose the
bytes of boxes.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import IO

import numpy as np
from numpy.typing import NDArray

from metricshuffle.errors import PlanError

SORT_MEMORY_BYTES = 1_500_000_000
"""Approximate memory for sorting."""
BOX_OVERHEAD_BYTES = 32
"""Additional memory per box: index of its report, place in the order, and first bytes twice."""
BATCH_BYTES = 4 * 2**20
SAMPLE_BOXES = 2**15
SAMPLE_MEMORY_DIVISOR = 16
"""Limits of the sample from which ranges are made: boxes, and divisor of the sorting memory."""
WORD_BYTES = 8
"""Bytes of a box that are compared first."""

Range = tuple[bytes | None, bytes | None]
"""First box inside and first box after a range; None for no limit."""


@dataclass(frozen=True)
class SortResult:
    """Result of a sort."""

    reports: int
    """Number of reports read."""
    shared: frozenset[int]
    """Indices, in reading order, of left-out reports: they repeat a box or share one."""
    digest: str
    """SHA-256 of the bytes written."""

    @property
    def people(self) -> int:
        return self.reports - len(self.shared)


@dataclass(frozen=True)
class ExternalSort:
    """Sort of the boxes of all reports.

    `read` yields the reports, in the same order on every pass; each is the concatenation of its
    boxes.
    """

    read: Callable[[], Iterable[bytes]]
    size: int
    """Bytes of a box."""
    messages: int
    """Number of boxes of a report."""
    reports: int
    """Expected number of reports; if more are read, more memory is used."""
    memory: int = SORT_MEMORY_BYTES
    head: bytes = b""
    """Bytes that are written before the boxes."""
    mark: int = 0
    """Number of bytes at the start of every box that are used for sorting, but not written."""

    def written(self, stream: IO[bytes]) -> SortResult:
        """Write the sorted boxes from the start of a file.

        All are written again if a shared box is detected after a part was written.
        """
        ranges = self._ranges()
        shared = np.empty(0, np.uint32)
        for _ in range(2):
            stream.seek(0)
            stream.truncate()
            stream.write(self.head)
            digest = hashlib.sha256(self.head)
            counts = set()
            late = False
            for limits in ranges:
                boxes, owners, read = self._between(*limits)
                counts.add(read)
                order, repeated = sort_order(boxes)
                sharing = np.union1d(shared, owners[repeated])
                late |= len(sharing) > len(shared) and limits is not ranges[0]
                shared = sharing
                if len(shared):
                    order = order[~np.isin(owners[order], shared)]
                for chunk in _gather(boxes[:, self.mark :], order):
                    digest.update(chunk)
                    stream.write(chunk)
                del boxes, owners, order
            if len(counts) == 1 and not late:
                return SortResult(counts.pop(), frozenset(shared.tolist()), digest.hexdigest())
        raise PlanError("the stored reports changed while they were mixed.")

    def distinct(self) -> int:
        """Count the reports that share no box with another one; nothing is written."""
        reports, shared = self.find_shared()
        return reports - len(shared)

    def find_shared(self) -> tuple[int, frozenset[int]]:
        """Count reports, and find those that repeat or share a box; nothing is written."""
        shared = np.empty(0, np.uint32)
        counts = set()
        for limits in self._ranges():
            boxes, owners, read = self._between(*limits)
            counts.add(read)
            shared = np.union1d(shared, owners[sort_order(boxes)[1]])
            del boxes, owners
        if len(counts) != 1:
            raise PlanError("the stored reports changed while they were counted.")
        return counts.pop(), frozenset(shared.tolist())

    def _ranges(self) -> list[Range]:
        """Return as few ranges as fit the memory, of about equal size."""
        needed = self.reports * self.messages * (self.size + BOX_OVERHEAD_BYTES)
        if needed <= self.memory:
            return [(None, None)]
        count = math.ceil(1.1 * needed / self.memory)
        wanted = max(
            min(SAMPLE_BOXES, self.memory // (SAMPLE_MEMORY_DIVISOR * self.size)), 64 * count
        )
        # A random sample, because senders also choose the order of boxes in a report. The sample
        # does not change the bytes that are written.
        sample = []
        draws = np.random.default_rng()
        probability = wanted / (self.reports * self.messages)
        for _, boxes in self._batches():
            sample.append(as_fixed_bytes(boxes[draws.random(len(boxes)) < probability]))
        sorted_sample = np.concatenate(sample) if sample else np.empty(0, f"S{self.size}")
        sorted_sample.sort()
        # numpy strips trailing zero bytes, so they are restored.
        limits = (
            sorted(
                {
                    bytes(sorted_sample[len(sorted_sample) * part // count]).ljust(self.size, b"\0")
                    for part in range(1, count)
                }
            )
            if len(sorted_sample)
            else []
        )
        return list(zip([None, *limits], [*limits, None], strict=True))

    def _between(
        self, low: bytes | None, high: bytes | None
    ) -> tuple[NDArray[np.uint8], NDArray[np.uint32], int]:
        """Return the boxes of a range, the report of each, and the number of reports."""
        room = (
            min(self.reports * self.messages, self.memory // (self.size + BOX_OVERHEAD_BYTES)) + 1
        )
        boxes = np.empty((room, self.size), np.uint8)
        owners = np.empty(room, np.uint32)
        filled = reports = 0
        for number, batch in self._batches():
            whose = np.repeat(
                np.arange(number, number + len(batch) // self.messages, dtype=np.uint32),
                self.messages,
            )
            reports = number + len(batch) // self.messages
            if low is not None or high is not None:
                text = as_fixed_bytes(batch)
                inside = np.ones(len(batch), bool) if low is None else text >= low
                inside &= True if high is None else text < high
                batch = batch[inside]
                whose = whose[inside]
            while filled + len(batch) > len(boxes):  # the system resizes without a second copy
                room = len(boxes) + max(len(batch), len(boxes) // 8)
                boxes.resize((room, self.size), refcheck=False)
                owners.resize(room, refcheck=False)
            boxes[filled : filled + len(batch)] = batch
            owners[filled : filled + len(batch)] = whose
            filled += len(batch)
        return boxes[:filled], owners[:filled], reports

    def _batches(self) -> Iterator[tuple[int, NDArray[np.uint8]]]:
        """Iterate over batches: the index of the first report, and the boxes."""
        length = self.messages * self.size
        number = 0
        reports = iter(self.read())
        while some := list(islice(reports, max(1, BATCH_BYTES // length))):
            if any(len(report) != length for report in some):
                raise PlanError(
                    "a stored report is damaged: it has another length than its collection says."
                )
            yield number, np.frombuffer(b"".join(some), np.uint8).reshape(-1, self.size)
            number += len(some)


def sort_order(boxes: NDArray[np.uint8]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the sorted order of boxes, and the indices of those that occur more than once."""
    order = np.argsort(_word(boxes, 0))
    tied = _tied(_word(boxes, 0)[order])
    if not len(tied):
        return order, tied
    # The first bytes of many boxes are equal, which a sender can cause. A copy of all these boxes
    # would take too much memory.
    if len(tied) * boxes.shape[1] > BATCH_BYTES:
        order = np.arange(len(boxes))
        for start in reversed(range(0, boxes.shape[1], WORD_BYTES)):
            order = order[np.argsort(_word(boxes, start)[order], kind="stable")]
        return order, order[find_repeated(boxes, order)]
    text = as_fixed_bytes(boxes[order[tied]])
    # Boxes with equal first bytes are consecutive and at their final places already.
    within = np.argsort(text, kind="stable")
    order[tied] = order[tied][within]
    return order, order[tied[_tied(text[within])]]


def _word(boxes: NDArray[np.uint8], start: int) -> NDArray[np.uint64]:
    """Integers made of some bytes of every box, in the order of these bytes."""
    word = np.zeros((len(boxes), WORD_BYTES), np.uint8)
    part = boxes[:, start : start + WORD_BYTES]
    word[:, : part.shape[1]] = part
    return word.view(">u8").ravel().astype(np.uint64)


def _tied(ordered: NDArray[np.generic]) -> NDArray[np.int64]:
    """Indices of elements equal to a neighbour."""
    same = ordered[1:] == ordered[:-1]
    if not same.any():
        return np.empty(0, np.int64)
    return np.flatnonzero(np.append(same, False) | np.append(False, same))


def find_repeated(boxes: NDArray[np.uint8], order: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the indices in an order of boxes equal to a neighbour, computed in batches."""
    step = max(1, BATCH_BYTES // boxes.shape[1])
    tied_places = [
        start + _tied(as_fixed_bytes(boxes[order[start : start + step + 1]]))
        for start in range(0, len(order), step)
    ]
    return np.unique(np.concatenate(tied_places))


def is_sorted(boxes: NDArray[np.uint8]) -> bool:
    """Return whether boxes are sorted by their bytes and distinct."""
    text = as_fixed_bytes(boxes)
    return bool((text[:-1] < text[1:]).all())


def as_fixed_bytes(boxes: NDArray[np.uint8]) -> NDArray[np.bytes_]:
    """Return boxes as fixed-length byte strings, which numpy compares by bytes.

    numpy ignores trailing zeros, which does not matter at equal lengths.
    """
    return np.ascontiguousarray(boxes).view(f"S{boxes.shape[1]}").ravel()


def _gather(boxes: NDArray[np.uint8], order: NDArray[np.int64]) -> Iterator[bytes]:
    step = max(1, BATCH_BYTES // boxes.shape[1])
    for start in range(0, len(order), step):
        # For rows of bytes, np.take is several times faster than an index.
        yield np.take(boxes, order[start : start + step], axis=0).tobytes()
