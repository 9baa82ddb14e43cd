"""Dummies of a shuffler: drawn and sealed once for a collection, and stored until it is shuffled.

A second draw must never be mixed: boxes in the outputs of both draws would be those of people. So
the sealed dummies are written to a file before the collection is sealed. The transaction that seals
it stores the digest of that file; a run after an interruption reads the file.

    file  = salt 32 | chunks, each encrypted with a key of the collection, which is destroyed
    plain = number of dummies of each pile (u64 each, little endian) | boxes of pile 1 | ...
"""

from __future__ import annotations

import secrets
import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO

import numpy as np

from metricshuffle.collection.keys import TOKEN_BYTES, CollectionKeys
from metricshuffle.collection.output_runs import dummy_protocol, head_size, pack_lengths
from metricshuffle.collection.shuffler.admission import rechunk
from metricshuffle.collection.shuffler.external_sort import ExternalSort, SortResult
from metricshuffle.collection.shuffler.output_files import (
    OutputFolder,
    hash_chunks,
    read_chunks,
    write_out,
)
from metricshuffle.collection.store.records import CHUNK
from metricshuffle.collection.terms import Collection
from metricshuffle.errors import PlanError
from metricshuffle.randomness import Randomness

TAG_BYTES = 16
MARK_BYTES = 4
"""Bytes of the index of a pile, by which boxes are sorted first."""
DAMAGED_DUMMIES = "the dummies that this shuffler drew are damaged."

PileBox = tuple[int, bytes]
"""A box and the index of its pile."""


@dataclass(frozen=True)
class DummyBoxes:
    """Dummies of the hop that opens `layer` of a collection, and its keys."""

    collection: Collection
    layer: int
    keys: CollectionKeys

    @property
    def size(self) -> int:
        """Bytes of a box, as this hop releases it."""
        return self.collection.sealing.box_size(self.layer - 1)

    # Drawing

    def write(self, outputs: OutputFolder, at: Callable[[str], None]) -> str:
        """Draw and seal dummies, write them to a new file, and return its digest."""
        path = outputs.new_dummies(self.collection.digest)
        write_out(path, self._fill, lambda point: at(f"dummies {point}"))
        return hash_chunks(read_chunks(path))

    def _fill(self, stream: IO[bytes]) -> None:
        salt = secrets.token_bytes(TOKEN_BYTES)
        stream.write(salt)
        cipher = self.keys.dummy_cipher(salt)
        for place, chunk in enumerate(rechunk(self._sealed())):
            stream.write(cipher.encrypt(_nonce(place), chunk, self._context))

    def _sealed(self) -> Iterator[bytes]:
        """Yield the numbers of dummies, then their sealed boxes, drawn with system randomness."""
        task = self.collection.task
        protocol = dummy_protocol(self.collection)
        counts = protocol.draw_dummies(task.query, Randomness.system())
        piles = np.split(np.array(counts), np.cumsum(protocol.sizes)[:-1])
        yield pack_lengths(tuple(int(pile.sum()) for pile in piles))
        sealing = self.collection.sealing
        keys = self.collection.keys[: self.layer]
        for pile, numbers in enumerate(piles):
            parts = np.repeat(np.arange(len(numbers)), numbers)
            for payload in self.collection.form.part_payloads(parts):
                yield sealing.box(payload.tobytes(), pile, keys)

    # Reading

    @property
    def _context(self) -> bytes:
        return bytes.fromhex(self.collection.digest)

    def read(self, path: Path) -> tuple[tuple[int, ...], Callable[[], Iterator[PileBox]]]:
        """Return the number of dummies of each pile, and a function that reads their boxes."""
        head = head_size(self.collection)
        start = next(iter(_pieces(self._shown(path), head)), b"")
        if len(start) != head:
            raise PlanError(DAMAGED_DUMMIES)
        lengths = struct.unpack(f"<{self.collection.sealing.piles}Q", start)

        def read_boxes() -> Iterator[PileBox]:
            chunks = self._shown(path)
            first = next(chunks, b"")[head:]
            boxes = _pieces(chain([first], chunks), self.size)
            for pile, length in enumerate(lengths):
                for _ in range(length):
                    box = next(boxes, b"")
                    if len(box) != self.size:
                        raise PlanError(DAMAGED_DUMMIES)
                    yield pile, box

        return lengths, read_boxes

    def _shown(self, path: Path) -> Iterator[bytes]:
        """Decrypted chunks of a file."""
        from cryptography.exceptions import InvalidTag

        with open(path, "rb") as stream:
            cipher = self.keys.dummy_cipher(stream.read(TOKEN_BYTES))
            place = 0
            while chunk := stream.read(CHUNK + TAG_BYTES):
                try:
                    yield cipher.decrypt(_nonce(place), chunk, self._context)
                except InvalidTag:
                    raise PlanError(DAMAGED_DUMMIES) from None
                place += 1


@dataclass(frozen=True)
class PileMixing:
    """Messages of people in piles, and the dummies of this hop, mixed a pile at a time."""

    read_boxes: Callable[[], Iterable[PileBox]]
    """Boxes of people, which all differ, in the same order on every pass."""
    lengths: tuple[int, ...]
    """Number of boxes of people in each pile."""
    dummies: DummyBoxes
    path: Path
    memory: int

    def written(self, stream: IO[bytes]) -> SortResult:
        """Write the lengths of all runs, and then the runs, from the start of a file."""
        added, read_dummies = self.dummies.read(self.path)
        lengths = tuple(map(sum, zip(self.lengths, added, strict=True)))

        def marked() -> Iterator[bytes]:
            for boxes in (self.read_boxes(), read_dummies()):
                for pile, box in boxes:
                    yield pile.to_bytes(MARK_BYTES, "big") + box

        size = self.dummies.size + MARK_BYTES
        total = sum(lengths)
        head = pack_lengths(lengths)
        sort = ExternalSort(marked, size, 1, total, self.memory, head, MARK_BYTES)
        mixed = sort.written(stream)
        if mixed.reports != total or mixed.shared:
            raise PlanError("the messages of this collection changed while they were mixed.")
        return mixed


def _nonce(place: int) -> bytes:
    return place.to_bytes(12, "little")


def _pieces(chunks: Iterable[bytes], size: int) -> Iterator[bytes]:
    """Split bytes into pieces of one size, whatever the chunks; the last one may be shorter."""
    buffer = bytearray()
    for chunk in chunks:
        buffer += chunk
        whole = len(buffer) // size * size
        for start in range(0, whole, size):
            yield bytes(buffer[start : start + size])
        del buffer[:whole]
    if buffer:
        yield bytes(buffer)
