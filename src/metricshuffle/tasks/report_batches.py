"""Files of report batches: format name, header, fixed-length records, count and checksum.

Each record has a random id.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from metricshuffle.encodings.binary_frame import (
    CHECKSUM_BYTES,
    MAX_HEADER_BYTES,
    checksum,
    header_integer,
    read_header,
)
from metricshuffle.errors import InputError, PlanError
from metricshuffle.files import atomic_file, display_name, open_measured
from metricshuffle.protocols.protocol import Layout, Reports
from metricshuffle.protocols.tally import ID_BYTES, Batch
from metricshuffle.tasks.task import Task

# The format name marks seeded reports, so that clearing a flag cannot hide them.
FORMATS = ("metricshuffle-reports/2", "metricshuffle-reports-seeded/2")
CHUNK_BYTES = 1 << 24
_LENGTH = struct.Struct("<I")
_COUNT = struct.Struct("<Q")


def record_type(layout: Layout) -> np.dtype[Any]:
    """Record of a file: the id of a report and its messages."""
    return np.dtype([("id", np.uint8, (ID_BYTES,)), ("messages", layout.type, (layout.numbers,))])


def write_reports(task: Task, path: str | Path, parts: Iterable[Reports]) -> int:
    """Stream the parts of one batch to a file; return the number of reports."""
    layout = task.protocol.layout
    batch_id = None
    count = 0
    running = checksum()
    with atomic_file(path, "wb") as stream:

        def write(data: bytes) -> None:
            running.update(data)
            stream.write(data)

        first_batch: Batch | None = None
        for reports in parts:
            if first_batch is None:
                first_batch = reports.batch
                batch_id = reports.batch_id
                task.batch(first_batch.round).check_same(first_batch, "these reports were made")
                header = {
                    "task": task.digest,
                    "round": first_batch.round,
                    "batch": batch_id.hex(),
                    "type": layout.type.str,
                    "numbers": layout.numbers,
                }
                text = json.dumps(header, separators=(",", ":")).encode()
                write(FORMATS[first_batch.seeded].encode() + b"\n" + _LENGTH.pack(len(text)) + text)
            first_batch.check_same(reports.batch, "these reports were made")
            if reports.batch_id != batch_id or reports.first != count:
                raise PlanError(
                    "a file must contain the parts of one batch, in their order; write every "
                    "batch to its own file."
                )
            if reports.batch.seeded and not first_batch.seeded:
                raise PlanError("seeded reports and others must not be written to one file.")
            records = np.empty(len(reports), dtype=record_type(layout))
            records["id"], records["messages"] = reports.ids, reports.messages
            write(records.tobytes())
            count += len(reports)
        if count == 0:
            raise InputError("there are no values, so there is nothing to report.")
        write(_COUNT.pack(count))
        stream.write(running.digest())
    return count


def read_reports(task: Task, path: str | Path) -> Iterator[Reports]:
    """Iterate over the parts of the batch in a file.

    They are checked against the task, for truncation and, at the end, by the checksum.
    """
    with open_measured(path) as stream:
        path = display_name(path)
        running = checksum()
        batch, batch_id = _header(task, path, stream, running)
        type_ = record_type(task.protocol.layout)
        start = stream.tell()
        record_count, remainder = divmod(
            os.fstat(stream.fileno()).st_size - start - _COUNT.size - CHECKSUM_BYTES, type_.itemsize
        )
        if record_count < 1 or remainder:
            raise PlanError(
                f"{path} is cut short or damaged: its records do not end where they "
                "should; ask for it again."
            )
        count = record_count
        done = 0
        while done < count:
            rows = min(max(1, CHUNK_BYTES // type_.itemsize), count - done)
            data = stream.read(rows * type_.itemsize)
            running.update(data)
            records = np.frombuffer(data, dtype=type_)
            yield Reports(batch, records["messages"], batch_id, done, records["id"])
            done += rows
        end = stream.read(_COUNT.size)
        running.update(end)
        if _COUNT.unpack(end)[0] != count or stream.read() != running.digest():
            raise PlanError(
                f"{path} is damaged: its checksum does not match its content; ask for it again."
            )


def _header(task: Task, path: str | Path, stream: IO[bytes], running: Any) -> tuple[Batch, bytes]:
    line = stream.readline(100)
    name = line.rstrip(b"\n").decode("ascii", errors="replace")
    if name not in FORMATS:
        raise PlanError(
            f"{path} is not a reports file; give the file that `metricshuffle randomize` wrote."
        )
    size = stream.read(_LENGTH.size)
    length = _LENGTH.unpack(size)[0] if len(size) == _LENGTH.size else MAX_HEADER_BYTES + 1
    if length > MAX_HEADER_BYTES:
        raise PlanError(f"{path} is cut short or damaged; ask for it again.")
    text = stream.read(length)
    running.update(line + size + text)
    header = read_header(text, str(path))
    layout = task.protocol.layout
    if header.get("task") != task.digest:
        raise PlanError(
            f"{path} was made for another task (the digests differ); use the task the clients used."
        )
    if header.get("type") != layout.type.str or header.get("numbers") != layout.numbers:
        raise PlanError(f"{path} has records of another layout than this task's.")
    try:
        batch_id = bytes.fromhex(str(header.get("batch")))
    except ValueError:
        batch_id = b""
    if len(batch_id) != ID_BYTES:
        raise PlanError(f"{path} is damaged: its batch has no id; ask for it again.")
    batch = task.batch(header_integer(header, "round", str(path), 1), seeded=name == FORMATS[1])
    return batch, batch_id
