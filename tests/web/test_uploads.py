"""Uploaded files are deleted: after half an hour, with the server, and after a kill."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic

import pytest

from metricshuffle.errors import InputError
from metricshuffle.web import uploads
from metricshuffle.web.temp_folders import LOCK, PREFIX, delete_folder, make_temp_folder
from metricshuffle.web.uploads import CLEAN_INTERVAL_SECONDS, KEPT_SECONDS, Uploads

HALF_AN_HOUR = 1800.0


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where folders are made in a test."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def kept(store: Uploads, name: str, age: float) -> Path:
    path = store.folder / name
    path.write_text("kcal\n437\n")
    store.kept[name] = (path, monotonic() - age)
    return path


def test_an_old_file_is_deleted_though_nobody_asks(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert KEPT_SECONDS + CLEAN_INTERVAL_SECONDS < HALF_AN_HOUR  # which the page tells
    monkeypatch.setattr(uploads, "CLEAN_INTERVAL_SECONDS", 0.01)
    store = Uploads()
    old = kept(store, "old", KEPT_SECONDS + 1.0)
    young = kept(store, "young", KEPT_SECONDS - 60.0)

    async def looked() -> None:
        looking = asyncio.ensure_future(store.delete_expired())
        await asyncio.sleep(0.1)
        looking.cancel()

    with ThreadPoolExecutor(1) as thread:  # the browser of other tests has a loop in this one
        thread.submit(asyncio.run, looked()).result()
    assert not old.exists()
    assert young.exists()
    with pytest.raises(InputError, match="no longer stored"):
        store.path("old")
    store.close()
    assert list(temporary.iterdir()) == []


def test_a_folder_of_a_killed_server_is_deleted_by_the_next_one(temporary: Path) -> None:
    """One that is in use stays, and so does what only has a similar name."""
    code = (
        "import sys, tempfile, time; tempfile.tempdir = sys.argv[1]\n"
        "from metricshuffle.web.temp_folders import make_temp_folder as "
        "own_folder\nprint(own_folder(), flush=True); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(temporary)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        theirs = Path(process.stdout.readline().strip())
        (theirs / "values.csv").write_text("kcal\n437\n")
        foreign = temporary / f"{PREFIX}foreign"
        foreign.mkdir()
        mine = make_temp_folder()
        assert (theirs / "values.csv").exists()  # its server runs
        process.kill()
    again = make_temp_folder()
    assert not theirs.exists()
    assert (mine / LOCK).exists()
    assert foreign.exists()
    delete_folder(mine)
    delete_folder(again)
    assert not mine.exists()
