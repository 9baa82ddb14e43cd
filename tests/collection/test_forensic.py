"""Disk after a release: no original and no key, only the output in the order of its bytes."""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from tests.collection.conftest import Clock
from tests.collection.forked_shufflers import Forks, Job
from tests.collection.rounds import HONEST, Round, new_round, opened_round, put, secrets_of

from metricshuffle.collection.keys import CollectionKeys, KeyFolder
from metricshuffle.collection.shuffler.lifecycle import Shuffler
from metricshuffle.collection.store.factory import connect_store

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
    made = new_round(
        [(secrets.party, "http://127.0.0.1:1")],
        now=START,
        seconds=60 * round_,
        rounds=2,
        round=round_,
    )
    mine = folder / f"round{round_}"
    mine.mkdir()
    (mine / "keys").symlink_to(keys.path)
    reports = [made.report() for _ in range(PEOPLE)]
    (mine / "served").write_bytes(made.collection.served)
    (mine / "reports").write_text("\n".join(report.hex() for report in reports))
    entries = [made.entry(report, secrets) for report in reports]
    opened = [made.boxes([report], secrets.private) for report in reports]
    half = LENGTH // 2
    output = b"".join(sorted(box for boxes in opened for box in boxes))
    neighbours = [one[-half:] + after[:half] for boxes in opened for one, after in pairwise(boxes)]
    found = {
        "reports": [piece for report in reports for piece in pieces(report)],
        "hidden": [piece for entry in entries for piece in pieces(entry.hidden)],
        "tags": [entry.tag for entry in entries],
        "neighbours": [
            both for both in neighbours if both not in output
        ],  # (one or two pairs are neighbours by their bytes too)
        "keys": [secrets.secret[start : start + LENGTH] for start in range(0, 64, LENGTH)],
    }
    return Traces(made, Job(url, str(mine), START, START + 60), found)


def found(
    needles: dict[str, list[bytes]], folders: list[Path], without: str = "/round"
) -> dict[str, set[str]]:
    """Files that contain any of each kind: all bytes of all files, at every offset."""
    where: dict[str, set[str]] = {kind: set() for kind in needles}
    kinds = {needle: kind for kind, those in needles.items() for needle in those}
    starts = np.unique(
        np.array([int.from_bytes(needle[:8], "little") for needle in kinds], np.uint64)
    )
    for path in sorted(
        path
        for folder in folders
        for path in folder.rglob("*")
        if path.is_file() and without not in str(path)
    ):
        try:
            data = path.read_bytes()
        except FileNotFoundError:  # a server at work takes files away
            continue
        for offset in range(8):
            words = (
                np.frombuffer(data, "<u8", max(0, len(data) - offset) // 8, offset)
                if len(data) >= offset + 8
                else starts[:0]
            )
            places = np.minimum(np.searchsorted(starts, words), len(starts) - 1)
            for place in np.flatnonzero(starts[places] == words):
                start = offset + 8 * int(place)
                kind = kinds.get(data[start : start + LENGTH])
                if kind is not None:
                    where[kind].add(path.name if "pg_wal" not in path.parts else "pg_wal")
    return where


def after_release(
    url: str,
    tmp_path: Path,
    database: Path,
    settled: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    """Traces of a released collection and of one still open next to it.

    Searched while nothing changes.
    """
    temporary = tmp_path / "temporary"
    temporary.mkdir(exist_ok=True)
    first = traces(url, tmp_path, 1)
    second = traces(url, tmp_path, 2)
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
def test_postgresql_keeps_nothing_that_can_be_read(
    tmp_path: Path, new_postgres_url: object
) -> None:
    """Journal and tables may keep deleted reports only encrypted, under a destroyed key."""
    import psycopg

    url = new_postgres_url()  # type: ignore[operator]
    with psycopg.connect(url) as server:
        [folder] = server.execute("SHOW data_directory").fetchone() or [""]
    released, beside = after_release(url, tmp_path, Path(folder))
    assert released["reports"] == released["neighbours"] == released["keys"] == set()
    assert beside["hidden"]
    assert beside["keys"]


# --- files of a shuffler that goes on running ---


@pytest.mark.parametrize("end", ["released", "purged", "aborted"])
def test_nothing_is_left_of_reports_tickets_and_keys_while_it_runs(
    tmp_path: Path, clock: Clock, end: str
) -> None:
    clock.stop(START)
    store = connect_store(f"sqlite:///{tmp_path / 'shuffler.db'}", clock)
    shuffler = Shuffler(store, KeyFolder.at(tmp_path / "keys"))
    made = opened_round(shuffler, now=START, tickets=2 * HONEST)
    reports = [made.report(ticket) for ticket in made.tickets[:HONEST]]
    keys = secrets_of(shuffler, made)
    entries = [made.entry(report, keys) for report in reports]
    put(shuffler, made, reports)
    needles = {
        "reports": [piece for report in reports for piece in pieces(report)],
        "hidden": [piece for entry in entries for piece in pieces(entry.hidden)],
        "tags": [entry.tag for entry in entries],
        "tickets": [*made.tickets, *(keys.ticket_hash(ticket) for ticket in made.tickets)],
        "keys": [keys.secret[start : start + 16] for start in range(0, 64, 16)],
    }
    before = found(needles, [tmp_path], without="/nowhere")
    assert [kind for kind in needles if before[kind]] == ["hidden", "tags", "tickets", "keys"]
    if end == "aborted":
        shuffler.abort(made.digest, "enough")
    else:
        clock.ahead = 60
        assert shuffler.advance(made.digest) == "released"
        if end == "purged":
            store.acknowledge(made.digest)
            assert shuffler.advance(made.digest) == "purged"
    assert found(needles, [tmp_path], without="/nowhere") == {kind: set() for kind in needles}
    assert {path.suffix for path in tmp_path.rglob("*") if path.is_file()} <= {
        ".db",
        ".db-wal",
        ".db-shm",
        ".token",
        ".id",
        ".boxes",
    }
    store.close()


def test_a_secret_that_is_destroyed_is_overwritten_first(tmp_path: Path) -> None:
    """Another name of the same file shows what lies where it lay."""
    keys = KeyFolder.at(tmp_path / "keys")
    made = keys.new()
    (path,) = keys.path.glob("*.key")
    (tmp_path / "another name").hardlink_to(path)
    keys.destroy(made.party.key)
    left = (tmp_path / "another name").read_bytes()
    assert not path.exists()
    assert len(left) == len(made.secret)
    assert not any(made.secret[start : start + 4] in left for start in range(0, 64, 4))
