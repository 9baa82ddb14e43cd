"""Temporary folders; those of a killed server are deleted when the next server starts."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

PREFIX = "metricshuffle-web-"
LOCK = "in-use"
_locks: dict[Path, IO[bytes]] = {}


def make_temp_folder() -> Path:
    """Create a folder for this process, and delete those that killed servers left behind."""
    for left in _abandoned_folders():
        shutil.rmtree(left, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    lock = (folder / LOCK).open("wb")
    _try_lock(lock)
    _locks[folder] = lock  # The system frees the lock however the process ends.
    return folder


def delete_folder(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    lock = _locks.pop(folder, None)
    if lock is not None:
        lock.close()


def _abandoned_folders() -> Iterator[Path]:
    """Folders of this user that no process has locked."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with (
            contextlib.suppress(OSError),
            (folder / LOCK).open("r+b") as lock,
        ):  # not ours, or already deleted
            if _try_lock(lock):
                yield folder


def _try_lock(lock: IO[bytes]) -> bool:
    """Lock a file until it is closed; False if another process has it, or without lock support."""
    try:
        import fcntl
    except ImportError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
