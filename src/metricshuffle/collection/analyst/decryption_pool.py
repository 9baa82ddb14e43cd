"""The analyst opens messages, in several processes: opening one takes far longer than handing it over, and threads would not help.

A process is this very module, started anew and given the key through a pipe, so that whatever script or notebook an analyst works in is
not run again. What it imports is little, and so it starts fast.
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

from metricshuffle.collection.sealed_boxes import ANALYST_LAYER, KEY_BYTES, BoxFormat, NotOpened, PrivateKey
from metricshuffle.errors import InputError
from metricshuffle.numerics.threads import usable_cores

BOXES_PER_PART = 4096
"""Boxes that are handed over together."""
MAX_BOXES_HERE = 4 * BOXES_PER_PART
"""So many are opened here: to start a process takes as long."""
HEADER_STRUCT = struct.Struct("<IIB")
COUNT_STRUCT = struct.Struct("<I")

Opened = tuple[bytes, bytes]
"""Payloads one behind the other, zeros for a box that could not be opened; and a byte for each box, 1 if it could."""


def open_boxes(sealing: BoxFormat, key: PrivateKey, boxes: Iterable[bytes], count: int, processes: int | None = None) -> Iterator[Opened]:
    """Everything in some boxes, which come in parts of up to BOXES_PER_PART; in no particular order, which says nothing anyway."""
    several = min(processes or usable_cores(), -(-count // BOXES_PER_PART))
    size, payload, info = sealing.box_size(), sealing.payload, sealing.info(ANALYST_LAYER)
    if several < 2 or count <= MAX_BOXES_HERE or not sys.executable:
        return (_opened(key, info, size, payload, part) for part in boxes)
    return _open_with_workers(several, HEADER_STRUCT.pack(size, payload, len(info)) + info + key.data, size, payload, boxes)


def _opened(key: PrivateKey, info: bytes, size: int, payload: int, boxes: bytes) -> Opened:
    payloads, good = [], bytearray()
    for start in range(0, len(boxes), size):
        try:
            inside = key.opened(boxes[start : start + size], info)
        except NotOpened:
            inside = b""
        good.append(len(inside) == payload)
        payloads.append(inside if good[-1] else bytes(payload))
    return b"".join(payloads), bytes(good)


def _open_with_workers(several: int, header: bytes, size: int, payload: int, boxes: Iterable[bytes]) -> Iterator[Opened]:
    """Each process has a thread here that hands it the next part when it is done with one."""
    parts, turn = iter(boxes), threading.Lock()
    done: list[Opened] = []
    errors: list[BaseException] = []

    def next_part() -> bytes:
        with turn:
            return b"" if errors else next(parts, b"")

    def work(worker: subprocess.Popen[bytes]) -> None:
        try:
            to, back = worker.stdin, worker.stdout
            if to is None or back is None:
                raise InputError("a process that opens messages could not be started.")
            to.write(header)
            while part := next_part():
                to.write(COUNT_STRUCT.pack(len(part) // size) + part)
                to.flush()
                done.append((_read_exactly(back, len(part) // size * payload), _read_exactly(back, len(part) // size)))
            to.write(COUNT_STRUCT.pack(0))
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
            raise InputError("a process that opens messages ended too soon, perhaps for want of memory; try again.") from errors[0]
        raise errors[0]
    yield from done


def _start_process() -> subprocess.Popen[bytes]:
    """Another Python with this module, wherever that was found; the key goes through a pipe and stands in no list of processes."""
    paths = [str(Path(__file__).parents[3]), *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.Popen(  # noqa: S603 - this Python, and a module of this package
        [sys.executable, "-m", __spec__.name if __spec__ is not None else "metricshuffle.collection.analyst.decryption_pool"],
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
    """One of the processes: the key, and then parts until an empty one comes, or whoever asked has gone."""
    source, target = sys.stdin.buffer, sys.stdout.buffer
    try:
        size, payload, length = HEADER_STRUCT.unpack(_read_exactly(source, HEADER_STRUCT.size))
        info, key = _read_exactly(source, length), PrivateKey(_read_exactly(source, KEY_BYTES))
        while (count := COUNT_STRUCT.unpack(_read_exactly(source, COUNT_STRUCT.size))[0]) > 0:
            payloads, good = _opened(key, info, size, payload, _read_exactly(source, count * size))
            target.write(payloads + good)
            target.flush()
    except (EOFError, BrokenPipeError, KeyboardInterrupt):
        return


if __name__ == "__main__":
    main()
