"""Mixing: the boxes of all reports, sorted by their bytes, so that their order says nothing but which boxes there are.

A sorted multiset shows exactly what a random order would show. But it needs no randomness, a second run after an interruption gives the
same bytes, and equal boxes stand side by side: reports that share one are left out, all of them, and counted. (Whoever copies a box
of a friend's report thereby takes out both, and cannot spoil the collection for everybody else.)

Memory is bounded without temporary files: every pass reads all reports and keeps the boxes of one range. Where a range ends is found in a
sample of the boxes themselves, because whoever sends boxes chooses their bytes.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from metricshuffle.errors import PlanError

SORT_MEMORY_BYTES = 1_500_000_000
"""Bytes that boxes may take while they are sorted, about."""
BOX_OVERHEAD_BYTES = 32
"""Bytes that each box needs beside its own: whose it is, its place in the order, and the first bytes twice."""
BATCH_BYTES = 4 * 2**20
SAMPLE_BOXES, SAMPLE_MEMORY_DIVISOR = 2**15, 16
"""Boxes that are looked at to find where ranges end; and fewer, if they would take more than such a part of the memory."""
WORD_BYTES = 8
"""So many bytes decide about the order, unless they are equal."""

Range = tuple[bytes | None, bytes | None]
"""From the first box on, up to and without the second; None is no limit."""


@dataclass(frozen=True)
class SortResult:
    """What was written."""

    reports: int
    """That were read."""
    shared: frozenset[int]
    """Those that were left out, by their number in the order of reading: they have a box twice, or one of another report."""
    digest: str
    """SHA-256 of the bytes that were written."""

    @property
    def people(self) -> int:
        return self.reports - len(self.shared)


@dataclass(frozen=True)
class ExternalSort:
    """Reports as they are read, again for every pass and in the same order, each the bytes of its boxes one behind the other."""

    read: Callable[[], Iterable[bytes]]
    size: int
    """Bytes of a box."""
    messages: int
    """Boxes of a report."""
    reports: int
    """How many there are; more are read too, but then there is not enough memory set apart."""
    memory: int = SORT_MEMORY_BYTES

    def written(self, stream: IO[bytes]) -> SortResult:
        """Write the boxes in their order, from the start of a file. Twice, if a report turns out to be shared when a part is written."""
        ranges, shared = self._ranges(), np.empty(0, np.uint32)
        for _ in range(2):
            stream.seek(0)
            stream.truncate()
            digest, counts, late = hashlib.sha256(), set(), False
            for limits in ranges:
                boxes, owners, read = self._between(*limits)
                counts.add(read)
                order, repeated = sort_order(boxes)
                sharing = np.union1d(shared, owners[repeated])
                late |= len(sharing) > len(shared) and limits is not ranges[0]
                shared = sharing
                if len(shared):
                    order = order[~np.isin(owners[order], shared)]
                for chunk in _gather(boxes, order):
                    digest.update(chunk)
                    stream.write(chunk)
                del boxes, owners, order
            if len(counts) == 1 and not late:
                return SortResult(counts.pop(), frozenset(shared.tolist()), digest.hexdigest())
        raise PlanError("the stored reports changed while they were mixed.")

    def distinct(self) -> int:
        """How many reports share no box with another one: those that would be written. Nothing is."""
        shared, counts = np.empty(0, np.uint32), set()
        for limits in self._ranges():
            boxes, owners, read = self._between(*limits)
            counts.add(read)
            shared = np.union1d(shared, owners[sort_order(boxes)[1]])
            del boxes, owners
        if len(counts) != 1:
            raise PlanError("the stored reports changed while they were counted.")
        return counts.pop() - len(shared)

    def _ranges(self) -> list[Range]:
        """As few as fit the memory, each with about as many boxes."""
        needed = self.reports * self.messages * (self.size + BOX_OVERHEAD_BYTES)
        if needed <= self.memory:
            return [(None, None)]
        count = math.ceil(1.1 * needed / self.memory)
        wanted = max(min(SAMPLE_BOXES, self.memory // (SAMPLE_MEMORY_DIVISOR * self.size)), 64 * count)
        # (drawn, because whoever sends boxes also chooses where in a report they lie; which are drawn changes no byte of what is written)
        sample, draws, probability = [], np.random.default_rng(), wanted / (self.reports * self.messages)
        for _, boxes in self._batches():
            sample.append(_as_fixed_bytes(boxes[draws.random(len(boxes)) < probability]))
        sorted_sample = np.concatenate(sample) if sample else np.empty(0, f"S{self.size}")
        sorted_sample.sort()
        # (A text of numpy ends at its last byte that is not zero; what is cut off is put back.)
        limits = (
            sorted({bytes(sorted_sample[len(sorted_sample) * part // count]).ljust(self.size, b"\0") for part in range(1, count)})
            if len(sorted_sample)
            else []
        )
        return list(zip([None, *limits], [*limits, None], strict=True))

    def _between(self, low: bytes | None, high: bytes | None) -> tuple[NDArray[np.uint8], NDArray[np.uint32], int]:
        """The boxes of one range, which report each belongs to, and how many reports there are."""
        room = min(self.reports * self.messages, self.memory // (self.size + BOX_OVERHEAD_BYTES)) + 1
        boxes, owners = np.empty((room, self.size), np.uint8), np.empty(room, np.uint32)
        filled = reports = 0
        for number, batch in self._batches():
            whose = np.repeat(np.arange(number, number + len(batch) // self.messages, dtype=np.uint32), self.messages)
            reports = number + len(batch) // self.messages
            if low is not None or high is not None:
                text = _as_fixed_bytes(batch)
                inside = np.ones(len(batch), bool) if low is None else text >= low
                inside &= True if high is None else text < high
                batch, whose = batch[inside], whose[inside]
            while filled + len(batch) > len(boxes):  # (by the system, without a second copy)
                room = len(boxes) + max(len(batch), len(boxes) // 8)
                boxes.resize((room, self.size), refcheck=False)
                owners.resize(room, refcheck=False)
            boxes[filled : filled + len(batch)] = batch
            owners[filled : filled + len(batch)] = whose
            filled += len(batch)
        return boxes[:filled], owners[:filled], reports

    def _batches(self) -> Iterator[tuple[int, NDArray[np.uint8]]]:
        """Boxes of some reports at once, and the number of the first of these."""
        length, number, reports = self.messages * self.size, 0, iter(self.read())
        while some := list(islice(reports, max(1, BATCH_BYTES // length))):
            if any(len(report) != length for report in some):
                raise PlanError("a stored report is damaged: it has another length than its collection says.")
            yield number, np.frombuffer(b"".join(some), np.uint8).reshape(-1, self.size)
            number += len(some)


def sort_order(boxes: NDArray[np.uint8]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The order of the boxes by their bytes, and which of them (unordered) are there more than once."""
    order = np.argsort(_word(boxes, 0))
    tied = _tied(_word(boxes, 0)[order])
    if not len(tied):
        return order, tied
    if len(tied) * boxes.shape[1] > BATCH_BYTES:  # (somebody chose the first bytes of many: a copy of all these boxes would take too much)
        order = np.arange(len(boxes))
        for start in reversed(range(0, boxes.shape[1], WORD_BYTES)):
            order = order[np.argsort(_word(boxes, start)[order], kind="stable")]
        return order, order[_find_repeated(boxes, order)]
    text = _as_fixed_bytes(boxes[order[tied]])
    within = np.argsort(text, kind="stable")  # those with equal first bytes stand together and in their place already
    order[tied] = order[tied][within]
    return order, order[tied[_tied(text[within])]]


def _word(boxes: NDArray[np.uint8], start: int) -> NDArray[np.uint64]:
    """Some bytes of every box as a number that is ordered as they are."""
    word = np.zeros((len(boxes), WORD_BYTES), np.uint8)
    part = boxes[:, start : start + WORD_BYTES]
    word[:, : part.shape[1]] = part
    return word.view(">u8").ravel().astype(np.uint64)


def _tied(ordered: NDArray[Any]) -> NDArray[np.int64]:
    """The places of those that are equal to a neighbour."""
    same = ordered[1:] == ordered[:-1]
    if not same.any():
        return np.empty(0, np.int64)
    return np.flatnonzero(np.append(same, False) | np.append(False, same))


def _find_repeated(boxes: NDArray[np.uint8], order: NDArray[np.int64]) -> NDArray[np.int64]:
    """The places in an order of those boxes that are equal to a neighbour, some at a time."""
    step = max(1, BATCH_BYTES // boxes.shape[1])
    tied_places = [start + _tied(_as_fixed_bytes(boxes[order[start : start + step + 1]])) for start in range(0, len(order), step)]
    return np.unique(np.concatenate(tied_places))


def is_sorted(boxes: NDArray[np.uint8]) -> bool:
    """Whether boxes are sorted by their bytes and all different."""
    text = _as_fixed_bytes(boxes)
    return bool((text[:-1] < text[1:]).all())


def _as_fixed_bytes(boxes: NDArray[Any]) -> NDArray[Any]:
    """Boxes as numpy compares them, byte by byte. (It takes zeros at the end for padding, which is the same at equal lengths.)"""
    return np.ascontiguousarray(boxes).view(f"S{boxes.shape[1]}").ravel()


def _gather(boxes: NDArray[np.uint8], order: NDArray[np.int64]) -> Iterator[bytes]:
    step = max(1, BATCH_BYTES // boxes.shape[1])
    for start in range(0, len(order), step):
        yield boxes[order[start : start + step]].tobytes()
