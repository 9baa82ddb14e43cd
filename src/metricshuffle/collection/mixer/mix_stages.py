"""Stages of mixing over an object store: cut reports into ranges of boxes, sort each range.

The output is in the order of the bytes of boxes, so ranges that are sorted apart and joined are the
output of one sort, for any number of mixers, ranges and attempts. Every box keeps its owner, the
number of its report: a report that shares a box in one range is left out of all of them.

    cut     reports between two places -> pieces of every range
    recut   pieces of a range with too many boxes -> pieces of parts of it, between sampled boxes
    sort    pieces of a range, or of a part -> sorted runs, one for each pile, and the owners of
            repeated boxes

A stage writes pieces, and then an index of them. Rows of a piece lie in columns:

    owners (u64 each, little endian) | piles (u8 each; not in a sorted run) | boxes
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from metricshuffle.collection.mixer.object_store import PieceLost
from metricshuffle.collection.mixer.sealed_pieces import PieceReceipt, SealedPieces
from metricshuffle.collection.shuffler.external_sort import (
    WORD_BYTES,
    as_fixed_bytes,
    find_repeated,
    sort_order,
)
from metricshuffle.errors import PlanError

Item = TypeVar("Item")
OWNER_BYTES = 8
PILE_BYTES = 1
MAX_PILES = 256
OWNERS_PER_CUT = 2**32
DUMMY_OWNERS = 2**63
"""First owner of dummies: they repeat no box of a person, and belong to no report."""
PIECE_BYTES = 16 * 2**20
"""Approximate size of a piece; a mixer has room for some of them besides its range."""
CUT_MEMORY_BYTES = 128 * 2**20
"""Boxes that a cut keeps in memory before it writes a piece of every range."""
READ_BYTES = 4 * 2**20
READERS = 2
"""Pieces that are read at once while an output is joined."""
RECUT_SAMPLE_BOXES = 2**15


@dataclass(frozen=True)
class BoxRows:
    """Rows of a piece."""

    owners: NDArray[np.uint64]
    piles: NDArray[np.uint8]
    boxes: NDArray[np.uint8]

    @classmethod
    def unpack(cls, content: bytes, rows: int, size: int, *, with_piles: bool = True) -> BoxRows:
        start = rows * OWNER_BYTES
        middle = start + rows * PILE_BYTES * with_piles
        if len(content) != middle + rows * size:
            raise PieceLost("a piece has another length than its index says.")
        data = np.frombuffer(content, np.uint8)
        return cls(
            np.frombuffer(content, "<u8", rows).astype(np.uint64, copy=False),
            data[start:middle],
            data[middle:].reshape(rows, size),
        )

    def ordered(self, order: NDArray[np.intp]) -> BoxRows:
        # For rows of bytes, np.take is several times faster than an index.
        boxes = np.take(self.boxes, order, axis=0)
        return BoxRows(self.owners[order], self.piles[order], boxes)

    def between(self, start: int, end: int) -> BoxRows:
        return BoxRows(self.owners[start:end], self.piles[start:end], self.boxes[start:end])


@dataclass(frozen=True)
class PieceEntry:
    """Piece in an index, which is authenticated; its name determines its key."""

    name: str
    rows: int


@dataclass
class PartEntry:
    """Pieces of a range, of a part of it, of a run, or of owners."""

    pieces: list[PieceEntry] = field(default_factory=list)
    single: str = ""
    """The only box of a part, in hexadecimal: its pieces have owners and piles alone."""

    @property
    def rows(self) -> int:
        return sum(piece.rows for piece in self.pieces)

    @property
    def single_box(self) -> bytes:
        return bytes.fromhex(self.single)


@dataclass
class StageIndex:
    """Result of a task: the parts of a cut or recut; or the runs of a sort and what is repeated."""

    parts: list[PartEntry]
    repeated: PartEntry = field(default_factory=PartEntry)

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.parts)

    def to_json(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_json(cls, content: bytes) -> StageIndex:
        def part(entry: dict[str, object]) -> PartEntry:
            pieces = entry["pieces"]
            assert isinstance(pieces, list)  # noqa: S101 - authenticated, written by `to_json`
            return PartEntry([PieceEntry(**piece) for piece in pieces], str(entry["single"]))

        document = json.loads(content)
        return cls([part(entry) for entry in document["parts"]], part(document["repeated"]))


@dataclass(frozen=True)
class MixStages:
    """Stages of one attempt for boxes of one size."""

    pieces: SealedPieces
    size: int
    """Bytes of a box."""
    messages: int
    """Boxes of a report."""
    each: int
    """Boxes of a report in each pile; all of them without piles."""
    piles: int
    """Number of runs; 1 without piles."""
    keep: Callable[[], None] = lambda: None
    """Called often, to keep the task."""
    piece_bytes: int = PIECE_BYTES
    cut_bytes: int = CUT_MEMORY_BYTES

    def __post_init__(self) -> None:
        if self.piles > MAX_PILES:
            raise PlanError(f"mixers take up to {MAX_PILES} piles.")

    # Pieces

    def _write(self, place: str, content: bytes, rows: int) -> PieceEntry:
        self.keep()
        return PieceEntry(self.pieces.write(place, content), rows)

    def write_index(self, place: str, index: StageIndex) -> PieceReceipt:
        return self.pieces.write_recorded(place, index.to_json())

    def read_index(self, receipt: PieceReceipt) -> StageIndex:
        return StageIndex.from_json(self.pieces.read(receipt.name, receipt.digest))

    def _read(self, part: PartEntry) -> Iterator[BoxRows]:
        size = 0 if part.single else self.size
        for piece in part.pieces:
            self.keep()
            content = self.pieces.read(piece.name)
            yield BoxRows.unpack(content, piece.rows, size)

    # Cutting

    def cut(self, reports: Iterable[bytes], task: int, ranges: int, place: str) -> StageIndex:
        """Cut the boxes of reports into ranges of equal width."""
        width = self.messages * self.size
        piles = (np.arange(self.messages) // self.each).astype(np.uint8)

        def batches() -> Iterator[BoxRows]:
            number = task * OWNERS_PER_CUT
            for some in _batched(reports, max(1, READ_BYTES // width)):
                if any(len(report) != width for report in some):
                    raise PlanError(
                        "a stored report is damaged: it has another length than its collection "
                        "says."
                    )
                boxes = np.frombuffer(b"".join(some), np.uint8).reshape(-1, self.size)
                owners = np.arange(number, number + len(some), dtype=np.uint64)
                yield BoxRows(np.repeat(owners, self.messages), np.tile(piles, len(some)), boxes)
                number += len(some)

        return self._split(batches(), ranges, lambda boxes: range_of(boxes, ranges), place)

    def cut_dummies(
        self, dummies: Iterable[tuple[int, bytes]], ranges: int, place: str
    ) -> StageIndex:
        """Cut the dummies of all piles, each with an owner of its own."""

        def batches() -> Iterator[BoxRows]:
            number = DUMMY_OWNERS
            for some in _batched(dummies, max(1, READ_BYTES // self.size)):
                boxes = np.frombuffer(b"".join(box for _, box in some), np.uint8)
                owners = np.arange(number, number + len(some), dtype=np.uint64)
                piles = np.array([pile for pile, _ in some], np.uint8)
                yield BoxRows(owners, piles, boxes.reshape(-1, self.size))
                number += len(some)

        return self._split(batches(), ranges, lambda boxes: range_of(boxes, ranges), place)

    def _split(
        self,
        batches: Iterable[BoxRows],
        count: int,
        part_of: Callable[[NDArray[np.uint8]], NDArray[np.intp]],
        place: str,
        singles: Sequence[str] = (),
    ) -> StageIndex:
        """Write the rows of every part to pieces; only one piece of each is in memory."""
        parts = [PartEntry([], single) for single in singles or [""] * count]
        waiting: list[list[BoxRows]] = [[] for _ in range(count)]
        filled = 0

        def write_all() -> None:
            for number, rows in enumerate(waiting):
                parts[number].pieces += self._pieces(
                    rows, f"{place}/{number}", is_single=bool(parts[number].single)
                )
                rows.clear()

        for batch in batches:
            self.keep()
            numbers = part_of(batch.boxes).astype(np.uint16)  # which numpy sorts by counting
            order = np.argsort(numbers, kind="stable")
            ends = np.searchsorted(numbers[order], np.arange(count + 1))
            ordered = batch.ordered(order)
            for number in np.flatnonzero(np.diff(ends)).tolist():
                waiting[number].append(ordered.between(ends[number], ends[number + 1]))
            filled += batch.boxes.nbytes
            if filled >= self.cut_bytes:
                write_all()
                filled = 0
        write_all()
        return StageIndex(parts)

    def _pieces(
        self, batches: Sequence[BoxRows], place: str, *, is_single: bool = False
    ) -> Iterator[PieceEntry]:
        """Write rows to pieces of about the size of a piece, or of a batch."""
        step = max(1, self.piece_bytes // (self.size + OWNER_BYTES + PILE_BYTES))
        start = rows = 0
        for number, batch in enumerate(batches, start=1):
            rows += len(batch.owners)
            if rows >= step or number == len(batches):
                content = pack_rows(batches[start:number], with_boxes=not is_single)
                yield self._write(place, content, rows)
                start, rows = number, 0

    # Cutting again

    def recut(self, part: PartEntry, count: int, place: str) -> StageIndex:
        """Cut a range into about `count` parts of equal size, between boxes of a random sample.

        A box that limits two parts belongs to many reports: its part has their owners only. The
        limits change nothing that is released.
        """
        wanted = max(RECUT_SAMPLE_BOXES, 64 * count)
        draws = np.random.default_rng()
        probability = min(1.0, wanted / max(1, part.rows))
        sample = [
            as_fixed_bytes(rows.boxes[draws.random(len(rows.boxes)) < probability])
            for rows in self._read(part)
        ]
        starts, singles = part_limits(np.sort(np.concatenate(sample)), count, self.size)
        edges = np.array(starts, f"S{self.size}")

        def part_of(boxes: NDArray[np.uint8]) -> NDArray[np.intp]:
            return np.searchsorted(edges, as_fixed_bytes(boxes), side="right")

        return self._split(self._read(part), len(singles), part_of, place, singles)

    # Sorting

    def sort(self, part: PartEntry, place: str) -> StageIndex:
        """Sort the boxes of a range, or of a part of it."""
        if part.single:
            return self._sort_single(part, place)
        total = part.rows
        rows = BoxRows(
            np.empty(total, np.uint64),
            np.empty(total, np.uint8),
            np.empty((total, self.size), np.uint8),
        )
        filled = 0
        for some in self._read(part):
            end = filled + len(some.owners)
            rows.owners[filled:end] = some.owners
            rows.piles[filled:end] = some.piles
            rows.boxes[filled:end] = some.boxes
            filled = end
        order, repeated = sort_order(rows.boxes)
        self.keep()
        people = repeated[rows.owners[repeated] < DUMMY_OWNERS]
        people = people[find_repeated(rows.boxes, people)] if len(people) else people
        shared = np.unique(rows.owners[people])
        if len(shared):
            order = order[~np.isin(rows.owners[order], shared)]
        index = StageIndex([], self._owners([shared], place))
        for pile in range(self.piles):
            index.parts.append(PartEntry(self._run(rows, order, pile, place)))
        return index

    def _run(
        self, rows: BoxRows, order: NDArray[np.int64], pile: int, place: str
    ) -> list[PieceEntry]:
        """Write the rows of a pile in this order."""
        if self.piles > 1:
            order = order[rows.piles[order] == pile]
        step = max(1, self.piece_bytes // (self.size + OWNER_BYTES))
        entries = []
        for start in range(0, len(order), step):
            some = rows.ordered(order[start : start + step])
            content = pack_rows([some], with_piles=False)
            entries.append(self._write(f"{place}/{pile}", content, len(some.owners)))
        return entries

    def _owners(self, owners: Iterable[NDArray[np.uint64]], place: str) -> PartEntry:
        part = PartEntry()
        step = max(1, self.piece_bytes // OWNER_BYTES)
        for some in owners:
            for start in range(0, len(some), step):
                content = some[start : start + step].astype("<u8").tobytes()
                rows = len(content) // OWNER_BYTES
                part.pieces.append(self._write(f"{place}/repeated", content, rows))
        return part

    def _sort_single(self, part: PartEntry, place: str) -> StageIndex:
        """Sort a part with one box, which is repeated if people have sent it twice."""

        def owners() -> Iterator[NDArray[np.uint64]]:
            for some in self._read(part):
                yield some.owners[some.owners < DUMMY_OWNERS]

        is_repeated = sum(map(len, owners())) > 1
        index = StageIndex([], self._owners(owners() if is_repeated else (), place))
        box = np.frombuffer(part.single_box, np.uint8)
        left = []
        for some in self._read(part):
            chosen = np.flatnonzero((some.owners >= DUMMY_OWNERS) | np.bool_(not is_repeated))
            rows = some.ordered(chosen)
            left.append(BoxRows(rows.owners, rows.piles, np.tile(box, (len(rows.owners), 1))))
        whole = joined_rows(left)
        for pile in range(self.piles):
            order = np.arange(len(whole.owners))
            index.parts.append(PartEntry(self._run(whole, order, pile, place)))
        return index

    # Joining

    def read_owners(self, part: PartEntry) -> Iterator[NDArray[np.uint64]]:
        for piece in part.pieces:
            content = self.pieces.read(piece.name)
            if len(content) != piece.rows * OWNER_BYTES:
                raise PieceLost("a piece has another length than its index says.")
            yield np.frombuffer(content, "<u8").astype(np.uint64)

    def read_runs(
        self, runs: Iterable[PartEntry], shared: NDArray[np.uint64]
    ) -> Iterator[NDArray[np.uint8]]:
        """Read the boxes of sorted runs in their order, without those of shared reports.

        The next pieces are read and decrypted meanwhile.
        """

        def read(piece: PieceEntry) -> NDArray[np.uint8]:
            content = self.pieces.read(piece.name)
            rows = BoxRows.unpack(content, piece.rows, self.size, with_piles=False)
            return rows.boxes[~np.isin(rows.owners, shared)] if len(shared) else rows.boxes

        pieces = (piece for run in runs for piece in run.pieces)
        with ThreadPoolExecutor(READERS) as readers:
            waiting = deque(readers.submit(read, piece) for piece in islice(pieces, READERS))
            while waiting:
                boxes = waiting.popleft().result()
                waiting.extend(readers.submit(read, piece) for piece in islice(pieces, 1))
                yield boxes


def range_of(boxes: NDArray[np.uint8], ranges: int) -> NDArray[np.intp]:
    """Return the range of each box: its first bytes, as a fraction of all, times the ranges."""
    word = np.zeros((len(boxes), WORD_BYTES // 2), np.uint8)
    start = boxes[:, : word.shape[1]]
    word[:, : start.shape[1]] = start
    fraction = word.view(">u4").ravel().astype(np.uint64)
    return ((fraction * np.uint64(ranges)) >> np.uint64(32)).astype(np.intp)


def part_limits(sample: NDArray[np.bytes_], count: int, size: int) -> tuple[list[bytes], list[str]]:
    """Return the first boxes of all parts but the first, and the only box of each part, or ''."""
    chosen = [
        bytes(sample[len(sample) * number // count]).ljust(size, b"\0")
        for number in range(1, count)
        if len(sample)
    ]
    twice = {box for box, times in Counter(chosen).items() if times > 1}
    limits = {after: "" for box in twice if (after := box_after(box)) is not None}
    limits |= {box: box.hex() if box in twice else "" for box in chosen}
    starts = sorted(limits)
    return starts, ["", *(limits[start] for start in starts)]


def box_after(box: bytes) -> bytes | None:
    """Return the box that follows in the order of bytes; None after the last one."""
    number = int.from_bytes(box, "big") + 1
    return None if number >> (8 * len(box)) else number.to_bytes(len(box), "big")


def pack_rows(
    batches: Sequence[BoxRows], *, with_piles: bool = True, with_boxes: bool = True
) -> bytes:
    """Return rows as the columns of a piece."""
    columns = [some.owners.astype("<u8", copy=False).data for some in batches]
    if with_piles:
        columns += [some.piles.data for some in batches]
    if with_boxes:
        columns += [some.boxes.data for some in batches]
    return b"".join(columns)


def joined_rows(rows: Sequence[BoxRows]) -> BoxRows:
    return BoxRows(
        np.concatenate([some.owners for some in rows]),
        np.concatenate([some.piles for some in rows]),
        np.concatenate([some.boxes for some in rows]),
    )


def _batched(items: Iterable[Item], count: int) -> Iterator[list[Item]]:
    iterator = iter(items)
    while some := list(islice(iterator, count)):
        yield some
