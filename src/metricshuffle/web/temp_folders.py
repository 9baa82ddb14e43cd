"""Folders for what a server must not leave behind, not even if it was killed: the next one deletes them."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

PREFIX, LOCK = "metricshuffle-web-", "in-use"
_locks: dict[Path, IO[bytes]] = {}


def make_temp_folder() -> Path:
    """A fresh folder of this process; those of servers that did not come to deleting theirs go now."""
    for left in _abandoned_folders():
        shutil.rmtree(left, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    lock = (folder / LOCK).open("wb")
    _try_lock(lock)
    _locks[folder] = lock  # the system frees it with the process, however that ends
    return folder


def delete_folder(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    lock = _locks.pop(folder, None)
    if lock is not None:
        lock.close()


def _abandoned_folders() -> Iterator[Path]:
    """Folders of this user whose lock nobody holds."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError), (folder / LOCK).open("r+b") as lock:  # none of ours, or gone meanwhile
            if _try_lock(lock):
                yield folder


def _try_lock(lock: IO[bytes]) -> bool:
    """Hold a lock until the file is closed; False if another process does, or if this system has no such locks."""
    try:
        import fcntl
    except ImportError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
