"""Values of many people, each with the person's id in the outbox: by name, or by row."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from metricshuffle.collection.client.outbox import Outbox
from metricshuffle.data import frame_table, is_table, open_columns
from metricshuffle.data.frames import has_arrow_interface
from metricshuffle.data.query_values import join_parts
from metricshuffle.data.rows import Rows
from metricshuffle.data.value_reading import ReadingArguments
from metricshuffle.display import Brief
from metricshuffle.errors import InputError, InputWarning, argument
from metricshuffle.files import is_stream, open_bytes
from metricshuffle.queries.query import Inputs
from metricshuffle.tasks.task import Task


@dataclass(frozen=True, eq=False)
class Participants(Brief):
    """Validated values, and the person of each."""

    inputs: Inputs
    people: Sequence[bytes]

    def __post_init__(self) -> None:
        if len(self.people) != self.inputs.people or len(set(self.people)) != len(self.people):
            raise InputError(
                f"{self.inputs.people:,} values belong to {len(set(self.people)):,} people; "
                "each person reports once."
            )

    def __len__(self) -> int:
        return len(self.people)

    def values(self, chosen: Sequence[int]) -> Inputs:
        """Values of some people."""
        inputs = self.inputs
        if inputs.sizes is None:
            return Inputs(inputs.query, inputs.numbers[list(chosen)])
        ends = np.concatenate([[0], np.cumsum(inputs.sizes)])
        rows = np.concatenate([np.arange(ends[person], ends[person + 1]) for person in chosen])
        return Inputs(inputs.query, inputs.numbers[rows], inputs.sizes[list(chosen)])


def read_participants(
    task: Task, outbox: Callable[[], Outbox], values: Any, reading: ReadingArguments
) -> Participants:
    """Read the values of all people from a path, a frame or table, or a plain list."""
    query = task.query
    column = reading.get("column")
    is_file = isinstance(values, str | Path)
    if is_file or is_table(values) or (column and has_arrow_interface(values)):
        if not is_file and not column:
            raise InputError(
                f"{argument('column')} must say which column of the table holds the values."
            )
        opened = partial(open_columns, Path(values)) if is_file else partial(frame_table, values)
        rows = Rows.of(opened, query, **reading)
        participants = participants_from_rows(
            task, outbox, rows, hash_file(values) if is_file else None
        )
        for remark in rows.remarks:
            warnings.warn(remark, InputWarning, stacklevel=3)
        return participants
    named = next((name for name, value in reading.items() if value and name != "clamp"), None)
    if named is not None:
        raise InputError(
            f"{argument(named)} is for a file, a frame or a table with named columns, and "
            f"this is a {type(values).__name__}."
        )
    inputs = query.inputs(values, task.protocol.step, clamp=reading.get("clamp", False))
    source = _content_hash(inputs)
    row_of = outbox().row
    return Participants(inputs, [row_of(source, row) for row in range(inputs.people)])


def participants_from_rows(
    task: Task,
    outbox: Callable[[], Outbox],
    rows: Rows,
    source: bytes | None = None,
    log: Callable[[str], None] = lambda _: None,
) -> Participants:
    """Read a table to its end, so that errors are raised before anything is sent.

    `source` is the hash of the file. If half of a file was sent and the file is then corrected, it
    counts as another file, whose rows are all sent. The outbox is opened after reading.
    """
    whose: list[str | int] = []
    values = join_parts(replace(rows, whose=whose).parts(log))
    inputs = task.query.inputs(values, task.protocol.step)
    open_outbox = outbox()
    if rows.user_column is not None:
        return Participants(inputs, [open_outbox.user(str(name)) for name in whose])
    source = _content_hash(inputs) if source is None else source
    return Participants(inputs, [open_outbox.row(source, int(place)) for place in whose])


def _content_hash(inputs: Inputs) -> bytes:
    """Hash of the values, for input without a file."""
    digest = hashlib.sha256(inputs.numbers.astype("<i8").tobytes())
    digest.update(b"" if inputs.sizes is None else inputs.sizes.astype("<i8").tobytes())
    return digest.digest()


def hash_file(path: str | Path) -> bytes:
    """SHA-256 of a file."""
    digest = hashlib.sha256()
    with open_bytes(path) as stream:
        while part := stream.read(2**20):
            digest.update(part)
    return digest.digest()


@contextmanager
def as_rereadable_file(path: Path) -> Iterator[Path]:
    """Yield the file, or a temporary private copy of a pipe, because it is read twice."""
    if not is_stream(path):
        yield path
        return
    with tempfile.NamedTemporaryFile(prefix="metricshuffle-") as copy, open_bytes(path) as stream:
        shutil.copyfileobj(stream, copy)
        copy.flush()
        yield Path(copy.name)
