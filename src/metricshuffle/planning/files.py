"""Plan, report and shuffled files. A file appears whole or not at all."""

from __future__ import annotations

import json
import os
import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from metricshuffle.errors import InputError, PlanError
from metricshuffle.planning.plan import Plan
from metricshuffle.protocols.base import Reports, Shuffled

REPORTS_FORMAT = "metricshuffle-reports/1"
SHUFFLED_FORMAT = "metricshuffle-shuffled/1"
_CHUNK_BYTES = 1 << 24
# What a file of reports ends in: how many there are, and whether they are seeded. Only a whole file has it.
_END = struct.Struct("<QB")


@contextmanager
def whole_file(path: str | Path, mode: str = "w") -> Iterator[IO[Any]]:
    """Write to a temporary file beside `path` and rename it at the end; an interruption leaves nothing behind."""
    target = Path(path)
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    except OSError as wrong:
        raise InputError(f"cannot write {target}: {wrong.strerror or wrong}.") from None
    try:
        with os.fdopen(handle, mode, encoding=None if "b" in mode else "utf-8") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(name, 0o644)
        os.replace(name, target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def write_text(path: str | Path, text: str) -> None:
    with whole_file(path) as stream:
        stream.write(text)


def read_text(path: str | Path) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as wrong:
        raise InputError(f"cannot read {path}: {getattr(wrong, 'strerror', None) or 'it is not a text file'}.") from None


def record_layout(plan: Plan) -> tuple[np.dtype[Any], int]:
    """Type and count of the numbers in one record: small unsigned counts, or 64-bit residues."""
    mechanism = plan.choice.mechanism
    if mechanism.modulus is not None:
        return np.dtype("<u8"), mechanism.messages * len(mechanism.randomizers)
    longest = max(randomizer.length for randomizer in mechanism.randomizers)
    return np.dtype("<u2" if longest < 2**16 else "<u4" if longest < 2**32 else "<u8"), len(mechanism.randomizers)


def write_reports(plan: Plan, path: str | Path, batches: Iterator[Reports]) -> int:
    """Stream batches of reports to a file of fixed-length records; returns how many there are."""
    layout, width = record_layout(plan)
    count, seeded = 0, False
    with whole_file(path, "wb") as stream:
        header = {"format": REPORTS_FORMAT, "plan": plan.digest, "type": layout.str, "width": width}
        stream.write(json.dumps(header).encode() + b"\n")
        for batch in batches:
            if batch.plan != plan.digest:
                raise PlanError("these reports were made for another plan (the digests differ); use the plan the clients used.")
            stream.write(np.ascontiguousarray(batch.records, dtype=layout).tobytes())
            count += len(batch)
            seeded = seeded or batch.unsafe_seeded
        if count == 0:
            raise InputError("there are no values, so there is nothing to report.")
        stream.write(_END.pack(count, seeded))
    return count


def read_reports(plan: Plan, path: str | Path) -> Iterator[Reports]:
    """Batches of reports from a file, checked against the plan and for truncation."""
    layout, width = record_layout(plan)
    size = layout.itemsize * width
    try:
        stream = open(path, "rb")  # noqa: SIM115 - closed below; opening has its own sentence
    except OSError as wrong:
        raise InputError(f"cannot read {path}: {wrong.strerror}.") from None
    with stream:
        header = _header(stream.readline(10_000), path, REPORTS_FORMAT, plan)
        if header.get("type") != layout.str or header.get("width") != width:
            raise PlanError(f"{path} has records of another layout than this plan's.")
        start = stream.tell()
        left, rest = divmod(os.fstat(stream.fileno()).st_size - start - _END.size, size)
        if left >= 0 and rest == 0:
            stream.seek(-_END.size, os.SEEK_END)
            count, flag = _END.unpack(stream.read(_END.size))
        if left < 0 or rest or count != left or flag > 1:
            raise PlanError(f"{path} is cut short or damaged: its records do not end where they should; ask for it again.")
        seeded = flag == 1
        stream.seek(start)
        together = max(1, _CHUNK_BYTES // size)
        while left:
            rows = min(together, left)
            flat = np.frombuffer(stream.read(rows * size), dtype=layout)
            records: NDArray[Any] = flat.reshape(rows, width).astype(np.uint64 if plan.choice.encoding == "modular" else np.int64)
            left -= rows
            yield Reports(plan.digest, records, seeded)


def write_shuffled(path: str | Path, shuffled: Shuffled) -> None:
    """Counts as JSON; a multiset of residues as JSON header and 64-bit numbers."""
    residues = [axis for axis in shuffled.axes if not isinstance(axis, int)]
    header = {
        "format": SHUFFLED_FORMAT, "plan": shuffled.plan, "reports": shuffled.reports, "unsafe_seeded": shuffled.unsafe_seeded,
        "axes": [axis if isinstance(axis, int) else {"residues": len(axis)} for axis in shuffled.axes],
    }  # fmt: skip
    with whole_file(path, "wb") as stream:
        stream.write(json.dumps(header).encode() + b"\n")
        for axis in residues:
            stream.write(np.ascontiguousarray(axis, dtype="<u8").tobytes())


def read_shuffled(plan: Plan, path: str | Path) -> Shuffled:
    """What the shuffler wrote, checked against the plan and for truncation."""
    try:
        content = Path(path).read_bytes()
    except OSError as wrong:
        raise InputError(f"cannot read {path}: {wrong.strerror}.") from None
    line, _, body = content.partition(b"\n")
    header = _header(line, path, SHUFFLED_FORMAT, plan)
    axes: list[int | NDArray[np.uint64]] = []
    listed, reports, seeded = header.get("axes"), header.get("reports"), header.get("unsafe_seeded")
    strange = PlanError(f"{path} does not hold what this plan's shuffler writes; it is damaged or belongs to another plan.")
    if not (isinstance(listed, list) and _is_count(reports) and isinstance(seeded, bool)):
        raise strange
    for axis in listed:
        if _is_count(axis):
            axes.append(axis)
        elif not (isinstance(axis, dict) and _is_count(axis.get("residues"))):
            raise strange
        else:
            size = 8 * axis["residues"]
            if len(body) < size:
                raise PlanError(f"{path} is cut short; ask for it again.")
            axes.append(np.frombuffer(body[:size], dtype="<u8").astype(np.uint64))
            body = body[size:]
    if body or len(axes) != len(plan.choice.mechanism.randomizers):
        raise strange
    return Shuffled(plan.digest, reports, tuple(axes), seeded)


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**62


def _header(line: bytes, path: str | Path, wanted: str, plan: Plan) -> dict[str, Any]:
    try:
        header = json.loads(line)
    except (json.JSONDecodeError, UnicodeDecodeError):
        header = None
    if not isinstance(header, dict) or header.get("format") != wanted:
        kind = wanted.split("-")[1].split("/")[0]
        made_by = "randomize" if kind == "reports" else "shuffle"
        raise PlanError(f"{path} is not a {kind} file; give the file that `metricshuffle {made_by}` wrote.")
    if header.get("plan") != plan.digest:
        raise PlanError(f"{path} was made for another plan (the digests differ); use the plan the clients used.")
    return header


def made_folder(path: Path) -> Path:
    """The folder, made if missing; a sentence if that cannot be."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise InputError(f"cannot make the folder {path}: a file has that name.") from None
    except OSError as wrong:
        raise InputError(f"cannot make the folder {path}: {wrong.strerror or wrong}.") from None
    return path
