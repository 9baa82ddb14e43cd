"""What is on the disk after a release: nothing of an original, and no key. What remains is what was let go, in the order of its bytes."""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from tests.service.driven import Forks, Job
from tests.service.rounds import Round, new_round

from metricshuffle.collection.keys import CollectionKeys, KeyFolder

START = 2_000_000_000.0
PEOPLE = 100
LENGTH = 16
"""Bytes that are looked for; random ones are nowhere by accident."""


def pieces(data: bytes) -> list[bytes]:
    """Start, middle and end."""
    middle = len(data) // 2
    return [data[:LENGTH], data[middle : middle + LENGTH], data[-LENGTH:]]


@dataclass(frozen=True)
class Traces:
    """What a collection could leave behind, by kind."""

    made: Round
    job: Job
    of: dict[str, list[bytes]]


def traces(url: str, folder: Path, round_: int) -> Traces:
    """A collection with fresh reports, about to be opened; both of them share the keys folder."""
    keys = KeyFolder.at(folder / "keys")
    secrets: CollectionKeys = keys.new()
    made = new_round([(secrets.party, "http://127.0.0.1:1")], now=START, seconds=60 * round_, rounds=2, round=round_)
    mine = folder / f"round{round_}"
    mine.mkdir()
    (mine / "keys").symlink_to(keys.path)
    reports = [made.report() for _ in range(PEOPLE)]
    (mine / "served").write_bytes(made.collection.served)
    (mine / "reports").write_text("\n".join(report.hex() for report in reports))
    entries = [made.entry(report, secrets) for report in reports]
    opened = [made.boxes([report], secrets.private) for report in reports]
    half, output = LENGTH // 2, b"".join(sorted(box for boxes in opened for box in boxes))
    neighbours = [one[-half:] + after[:half] for boxes in opened for one, after in pairwise(boxes)]
    found = {
        "reports": [piece for report in reports for piece in pieces(report)],
        "hidden": [piece for entry in entries for piece in pieces(entry.hidden)],
        "tags": [entry.tag for entry in entries],
        "neighbours": [both for both in neighbours if both not in output],  # (one or two pairs are neighbours by their bytes too)
        "keys": [secrets.secret[start : start + LENGTH] for start in range(0, 64, LENGTH)],
    }
    return Traces(made, Job(url, str(mine), START, START + 60), found)


def found(needles: dict[str, list[bytes]], folders: list[Path], without: str = "/round") -> dict[str, set[str]]:
    """Of each kind the files that hold any of them: all bytes of all files are looked at, at every offset."""
    where: dict[str, set[str]] = {kind: set() for kind in needles}
    kinds = {needle: kind for kind, those in needles.items() for needle in those}
    starts = np.unique(np.array([int.from_bytes(needle[:8], "little") for needle in kinds], np.uint64))
    for path in sorted(path for folder in folders for path in folder.rglob("*") if path.is_file() and without not in str(path)):
        try:
            data = path.read_bytes()
        except FileNotFoundError:  # a server at work takes files away
            continue
        for offset in range(8):
            words = np.frombuffer(data, "<u8", max(0, len(data) - offset) // 8, offset) if len(data) >= offset + 8 else starts[:0]
            places = np.minimum(np.searchsorted(starts, words), len(starts) - 1)
            for place in np.flatnonzero(starts[places] == words):
                start = offset + 8 * int(place)
                kind = kinds.get(data[start : start + LENGTH])
                if kind is not None:
                    where[kind].add(path.name if "pg_wal" not in path.parts else "pg_wal")
    return where


def after_release(
    url: str, tmp_path: Path, database: Path, settled: Callable[[], AbstractContextManager[None]] = nullcontext
) -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    """Where traces of a collection are that was released, and of one beside it that is still open; looked for while things are settled."""
    temporary = tmp_path / "temporary"
    temporary.mkdir(exist_ok=True)
    first, second = traces(url, tmp_path, 1), traces(url, tmp_path, 2)
    folders = list({tmp_path, database})
    with Forks({"TMPDIR": str(temporary), "SQLITE_TMPDIR": str(temporary)}) as forks:
        assert forks.ended(replace(second.job, kill_at="sealed")) == [signal.SIGKILL]
        assert forks.ended(replace(first.job, kill_at="mixing")) == [signal.SIGKILL]
        with settled():
            before = found(first.of, folders)
        assert before["hidden"]
        assert before["tags"]
        assert before["keys"]  # (so they are found where they are)
        assert forks.ended(first.job) == [0]
    output = tmp_path / "keys" / "output" / f"{first.made.digest}.boxes"
    assert len(first.made.split(output.read_bytes())) == PEOPLE * first.made.sealing.messages
    with settled():
        return found(first.of, folders), found(second.of, folders)


@pytest.mark.thorough
def test_sqlite_keeps_nothing_of_an_original(tmp_path: Path) -> None:
    released, beside = after_release(f"sqlite:///{tmp_path / 'shuffler.db'}", tmp_path, tmp_path)
    assert released == {kind: set() for kind in released}
    assert beside["hidden"]
    assert beside["keys"]


@pytest.mark.thorough
def test_postgresql_keeps_nothing_that_can_be_read(tmp_path: Path, new_postgres_url: object) -> None:
    """Its journal keeps what was deleted, and so may its tables: encrypted, under a key that is gone. Nothing else of it is anywhere."""
    import psycopg

    url = new_postgres_url()  # type: ignore[operator]
    with psycopg.connect(url) as server:
        [folder] = server.execute("SHOW data_directory").fetchone() or [""]
    released, beside = after_release(url, tmp_path, Path(folder))
    assert released["reports"] == released["neighbours"] == released["keys"] == set()
    assert beside["hidden"]
    assert beside["keys"]
