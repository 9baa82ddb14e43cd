"""Decryption of messages in several processes; threads would not run in parallel.

Each process runs this module and gets the key through a pipe, so that the analyst's script or
notebook is not executed again. The module imports little, so that a process starts fast.
"""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

from metricshuffle.collection.sealed_boxes import (
    DIGEST_BYTES,
    KEY_BYTES,
    BoxFormat,
    NotOpened,
    PrivateKey,
)
from metricshuffle.errors import InputError
from metricshuffle.numerics.threads import usable_cores

BOXES_PER_PART = 4096
"""Number of boxes that a process gets at once."""
MAX_BOXES_HERE = 4 * BOXES_PER_PART
"""Maximum number of boxes opened by this process; starting another process takes as long."""
HEADER_STRUCT = struct.Struct("<IIIBI")
COUNT_STRUCT = struct.Struct("<II")
"""Numbers before the key: payload, messages, ticket, hops, piles; before a part: boxes, pile."""

SealedPart = tuple[int, bytes]
"""Boxes of one pile."""
OpenedPart = tuple[int, bytes, bytes]
"""Pile, payloads (zeros if a box cannot be opened), and a byte per box (1 if it can)."""


def open_boxes(
    sealing: BoxFormat,
    key: PrivateKey,
    boxes: Iterable[SealedPart],
    count: int,
    processes: int | None = None,
) -> Iterator[OpenedPart]:
    """Open boxes, given in parts of up to BOXES_PER_PART; the order of the results is arbitrary."""
    several = min(processes or usable_cores(), -(-count // BOXES_PER_PART))
    if several < 2 or count <= MAX_BOXES_HERE or not sys.executable:
        return (_opened(sealing, key, part) for part in boxes)
    return _open_with_workers(several, sealing, key, boxes)


def _opened(sealing: BoxFormat, key: PrivateKey, part: SealedPart) -> OpenedPart:
    pile, boxes = part
    size = sealing.box_size()
    payloads = []
    good = bytearray()
    for start in range(0, len(boxes), size):
        try:
            payloads.append(sealing.open_box(boxes[start : start + size], key, pile=pile))
            good.append(1)
        except NotOpened:
            payloads.append(bytes(sealing.payload))
            good.append(0)
    return pile, b"".join(payloads), bytes(good)


def _open_with_workers(
    several: int, sealing: BoxFormat, key: PrivateKey, boxes: Iterable[SealedPart]
) -> Iterator[OpenedPart]:
    """Open boxes in processes; a thread for each process passes it one part after the other."""
    parts = iter(boxes)
    turn = threading.Lock()
    done: list[OpenedPart] = []
    errors: list[BaseException] = []
    header = HEADER_STRUCT.pack(
        sealing.payload, sealing.messages, sealing.ticket, sealing.hops, sealing.piles
    )

    def next_part() -> SealedPart:
        with turn:
            return (0, b"") if errors else next(parts, (0, b""))

    def work(worker: subprocess.Popen[bytes]) -> None:
        try:
            to = worker.stdin
            back = worker.stdout
            if to is None or back is None:
                raise InputError("a process that opens messages could not be started.")
            to.write(header + sealing.digest + key.data)
            while (part := next_part())[1]:
                pile, data = part
                count = len(data) // sealing.box_size()
                to.write(COUNT_STRUCT.pack(count, pile) + data)
                to.flush()
                payloads = _read_exactly(back, count * sealing.payload)
                done.append((pile, payloads, _read_exactly(back, count)))
            to.write(COUNT_STRUCT.pack(0, 0))
            to.flush()
        except BaseException as error:
            errors.append(error)

    workers = [_start_process() for _ in range(several)]
    try:
        threads = [threading.Thread(target=work, args=(worker,), daemon=True) for worker in workers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()
    if errors:
        if isinstance(errors[0], OSError | EOFError):
            raise InputError(
                "a process that opens messages ended early, perhaps because it ran out of "
                "memory; try again."
            ) from errors[0]
        raise errors[0]
    yield from done


def _start_process() -> subprocess.Popen[bytes]:
    """Start a process with this module; the key goes through a pipe, not through arguments."""
    paths = [str(Path(__file__).parents[3]), *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.Popen(  # noqa: S603 - this Python, and a module of this package
        [
            sys.executable,
            "-m",
            __spec__.name
            if __spec__ is not None
            else "metricshuffle.collection.analyst.decryption_pool",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )


def _read_exactly(stream: IO[bytes], count: int) -> bytes:
    data = stream.read(count)
    if len(data) != count:
        raise EOFError
    return data


def main() -> None:
    """Read the key, then open parts until an empty one or the end of the input."""
    source = sys.stdin.buffer
    target = sys.stdout.buffer
    try:
        lengths = HEADER_STRUCT.unpack(_read_exactly(source, HEADER_STRUCT.size))
        sealing = BoxFormat(_read_exactly(source, DIGEST_BYTES), *lengths)
        key = PrivateKey(_read_exactly(source, KEY_BYTES))
        while True:
            count, pile = COUNT_STRUCT.unpack(_read_exactly(source, COUNT_STRUCT.size))
            if not count:
                return
            part = (pile, _read_exactly(source, count * sealing.box_size()))
            _, payloads, good = _opened(sealing, key, part)
            target.write(payloads + good)
            target.flush()
    except (EOFError, BrokenPipeError, KeyboardInterrupt):
        return


if __name__ == "__main__":
    main()
