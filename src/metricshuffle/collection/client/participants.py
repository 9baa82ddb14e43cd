"""Many people's values, each with what stands for its person in the outbox: her name, or her row in this very file."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from metricshuffle.collection.client.outbox import Outbox
from metricshuffle.data import ARGUMENTS, frame_table, is_table, open_columns
from metricshuffle.data.frames import has_arrow_interface
from metricshuffle.data.rows import Rows
from metricshuffle.data.value_parts import join_parts
from metricshuffle.display import Brief
from metricshuffle.errors import InputError, InputWarning
from metricshuffle.files import is_stream, open_bytes
from metricshuffle.queries.query import Inputs
from metricshuffle.tasks.task import Task


@dataclass(frozen=True, eq=False)
class Participants(Brief):
    """Validated values, and who holds each of them."""

    inputs: Inputs
    people: Sequence[bytes]

    def __post_init__(self) -> None:
        if len(self.people) != self.inputs.people or len(set(self.people)) != len(self.people):
            raise InputError(f"{self.inputs.people:,} values belong to {len(set(self.people)):,} people; everybody reports once.")

    def __len__(self) -> int:
        return len(self.people)

    def values(self, chosen: Sequence[int]) -> Inputs:
        """Those of some people."""
        inputs = self.inputs
        if inputs.sizes is None:
            return Inputs(inputs.query, inputs.numbers[list(chosen)])
        ends = np.concatenate([[0], np.cumsum(inputs.sizes)])
        rows = np.concatenate([np.arange(ends[person], ends[person + 1]) for person in chosen])
        return Inputs(inputs.query, inputs.numbers[rows], inputs.sizes[list(chosen)])


def read_participants(
    task: Task, outbox: Callable[[], Outbox], values: Any, column: Sequence[str], reading: Mapping[str, Any]
) -> Participants:
    """From a path, a frame or table, or a plain list; `reading` are the options of `Task.randomize`."""
    query, step, clamp = task.query, task.protocol.step, bool(reading.get("clamp"))
    if isinstance(values, str | Path):
        rows = Rows.of(partial(open_columns, Path(values)), query, column, spelling=ARGUMENTS, **reading)
        participants = participants_from_rows(task, outbox, rows, hash_file(values))
        _warn(rows)
        return participants
    if is_table(values) or (column and has_arrow_interface(values)):
        if not column:
            raise InputError("say which column of the table holds the values, column=.")
        rows = Rows.of(partial(frame_table, values), query, column, spelling=ARGUMENTS, **reading)
        participants = participants_from_rows(task, outbox, rows)
        _warn(rows)
        return participants
    named = next((name for name, value in {"column": column or None, **reading}.items() if value and name != "clamp"), None)
    if named is not None:
        raise InputError(f"{named}= is for a file, a frame or a table with named columns, and this is a {type(values).__name__}.")
    inputs = query.inputs(values, step, clamp=clamp)
    source, row_of = _content_hash(inputs), outbox().row
    return Participants(inputs, [row_of(source, row) for row in range(inputs.people)])


def participants_from_rows(
    task: Task, outbox: Callable[[], Outbox], rows: Rows, source: bytes | None = None, log: Callable[[str], None] = lambda _: None
) -> Participants:
    """Everybody in a table, read to its end: what is wrong anywhere is told before anything is sent. `source` is the hash of its file.

    (Half a file that was sent before it was corrected would be another file, whose rows are sent again.) The outbox is opened after that.
    """
    whose: list[str | int] = []
    values = join_parts(replace(rows, whose=whose).parts(log))
    inputs = task.query.inputs(values, task.protocol.step)
    open_outbox = outbox()
    if rows.user_column is not None:
        return Participants(inputs, [open_outbox.user(str(name)) for name in whose])
    source = _content_hash(inputs) if source is None else source
    return Participants(inputs, [open_outbox.row(source, int(place)) for place in whose])


def _warn(rows: Rows) -> None:
    for remark in rows.remarks:
        warnings.warn(remark, InputWarning, stacklevel=4)


def _content_hash(inputs: Inputs) -> bytes:
    """A hash of the values themselves, where there is no file."""
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
    """The file itself, or a copy of what comes through a pipe, for its owner alone and gone afterwards: it is read twice."""
    if not is_stream(path):
        yield path
        return
    with tempfile.NamedTemporaryFile(prefix="metricshuffle-") as copy, open_bytes(path) as stream:
        shutil.copyfileobj(stream, copy)
        copy.flush()
        yield Path(copy.name)
