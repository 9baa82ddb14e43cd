"""Atomic files: a file appears whole or not at all.

Links are followed. Pipes, devices and `-` (standard input and output) are used in place.
"""

from __future__ import annotations

import io
import os
import secrets
import shutil
import signal
import stat
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from metricshuffle.errors import InputError

STANDARD_INPUT = STANDARD_OUTPUT = "-"
# Files below these folders are never replaced, because their readers hold them open.
SYSTEM_FOLDERS = ("/dev/", "/proc/")


completed: list[str] = []
"""Files written since the command began, for the message shown after an interruption."""


def written_in_place(path: str | Path) -> bool:
    """Return whether a path is standard output, a pipe, a device or a socket.

    Renaming a file onto such a path cannot put content there.
    """
    if str(path) == STANDARD_OUTPUT or os.path.abspath(path).startswith(SYSTEM_FOLDERS):
        return True
    try:
        return not stat.S_ISREG(os.stat(path).st_mode)
    except OSError:
        return False


def check_leads_somewhere(path: Path) -> None:
    """Raise if the path is a dangling link: a file made there may be hidden later."""
    if path.is_symlink() and not path.exists():
        raise InputError(
            f"{path} is a link to {os.readlink(path)}, which does not exist; remove the "
            "link, or mount what it leads to."
        )


def check_private(path: Path, what: str) -> None:
    """Raise if others can read or change a secret file, or if it is a dangling link.

    A missing file is accepted, because it can be created.
    """
    check_leads_somewhere(path)
    if os.name != "posix" or not path.is_file():
        return
    file = path.stat()
    mode = stat.S_IMODE(file.st_mode)
    if mode & (
        0o027 if file.st_uid == 0 != os.geteuid() else 0o077
    ):  # (a file that root owns may be readable by a group)
        does = "change" if mode & 0o022 else "read"
        raise InputError(
            f"{path} holds {what}, and others on this machine can {does} it (its mode is "
            f"{mode:03o}). If nobody did, chmod 600 {path}; "
            "else make a new one."
        )


@contextmanager
def deferred_interrupts() -> Iterator[None]:
    """Defer Ctrl-C until the block has ended.

    The handler is replaced, because blocking the signal would not suffice: if a library has started
    threads, one of these receives the signal.
    """
    if (
        threading.current_thread() is not threading.main_thread()
    ):  # interrupts are raised in the main thread only
        yield
        return
    arrived: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: arrived.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL if before is None else before)
        if arrived:
            signal.raise_signal(signal.SIGINT)


@contextmanager
def atomic_file(path: str | Path, mode: str = "w") -> Iterator[IO[Any]]:
    """Write to a temporary file in the same folder and rename it at the end.

    An interruption leaves the old content. An existing file keeps its permissions; a new file gets
    those that the umask allows.
    """
    encoding = None if "b" in mode else "utf-8"
    if str(path) == STANDARD_OUTPUT:
        stream = sys.stdout.buffer if "b" in mode else sys.stdout
        yield stream
        stream.flush()
        return
    if written_in_place(path):
        try:
            with open(path, mode, encoding=encoding) as stream:
                yield stream
        except OSError as error:
            raise _file_error("write", path, error) from None
        return
    target = Path(os.path.realpath(path))
    beside = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        handle = os.open(beside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
    except OSError as error:
        raise _file_error("write", path, error) from None
    try:
        with os.fdopen(handle, mode, encoding=encoding) as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        if target.exists():
            os.chmod(beside, stat.S_IMODE(target.stat().st_mode))
        os.replace(beside, target)
        completed.append(str(path))
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    _fsync_folder(target.parent)


def _fsync_folder(folder: Path) -> None:
    """Make a rename in this folder durable, where the platform supports it."""
    try:
        handle = os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError:
        pass
    finally:
        os.close(handle)


def lock_path(path: str | Path) -> Path:
    """Path of the lock file of a file, in the folder of the file to which links lead."""
    target = Path(os.path.realpath(path))
    return target.with_name(f".{target.name}.lock")


@contextmanager
def locked(path: str | Path, seconds: float = 30.0) -> Iterator[None]:
    """Hold an exclusive lock on a file that other commands honour; InputError after `seconds`.

    The lock is on a separate file `.NAME.lock` in the same folder, because replacing a file would
    replace its lock too. The lock file is removed afterwards; one left behind by a killed process
    does no harm where the system has `flock`. Raises OSError if the lock file cannot be created.
    """
    lock = lock_path(path)
    deadline = time.monotonic() + seconds
    while (handle := _try_lock(lock)) is None:
        if time.monotonic() >= deadline:
            left = "" if _flock() is not None else f"; if there is none, delete {lock}"
            raise InputError(
                f"{path} is being written by another command; try again when it has ended{left}."
            )
        time.sleep(0.02)
    try:
        yield
    finally:
        if _flock() is None:  # a platform on which open files cannot be removed
            os.close(handle)
            lock.unlink(missing_ok=True)
        else:
            lock.unlink(missing_ok=True)
            os.close(handle)


def _try_lock(lock: Path) -> int | None:
    """Return the open lock file if it could be locked, None if another process holds the lock.

    Checks that the path still names the opened file. Raises OSError if it cannot be created.
    """
    flock = _flock()
    try:
        handle = os.open(
            lock, os.O_CREAT | os.O_RDWR | (0 if flock is not None else os.O_EXCL), 0o666
        )
    except FileExistsError:
        return None
    try:
        if flock is not None:
            flock(handle)
        named = os.stat(lock)
        if os.path.samestat(named, os.fstat(handle)):
            return handle
    except OSError:  # locked by another process, or removed by the previous holder
        pass
    os.close(handle)
    return None


def _flock() -> Callable[[int], None] | None:
    """Return a function that locks an open file or raises; None if the platform has none."""
    try:
        import fcntl
    except ImportError:
        return None
    return lambda handle: fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def write_text(path: str | Path, text: str) -> None:
    with atomic_file(path) as stream:
        stream.write(text)


class PrefixedStream(io.RawIOBase):
    """Stream of the bytes `head` that were already read, followed by the rest of `stream`.

    Closing it also closes `stream` and the streams in `below`, unless `kept_open`.
    """

    def __init__(
        self, head: bytes, stream: IO[bytes], *below: IO[bytes], kept_open: bool = False
    ) -> None:
        self._head = head
        self._stream = stream
        self._closing = () if kept_open else (stream, *below)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        part = self._head[: len(buffer)]
        if part:
            self._head = self._head[len(part) :]
        else:
            part = self._stream.read(len(buffer))
        buffer[: len(part)] = part
        return len(part)

    def close(self) -> None:
        if not self.closed:
            for stream in self._closing:
                stream.close()
        super().close()


def display_name(path: str | Path) -> str:
    """Name of an input in messages."""
    return "standard input" if str(path) == STANDARD_INPUT else str(path)


def is_stream(path: str | Path) -> bool:
    """Return whether an input can be read only once: standard input, a pipe or a socket."""
    if str(path) == STANDARD_INPUT:
        return True
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def is_standard_input(path: str | Path) -> bool:
    """Return whether a path names the standard input of this process."""
    return str(path) in (STANDARD_INPUT, "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")


def open_bytes(path: str | Path) -> IO[bytes]:
    """Open a file, a pipe or standard input for one read; closing it leaves standard input open."""
    if str(path) == STANDARD_INPUT:
        return io.BufferedReader(PrefixedStream(b"", sys.stdin.buffer, kept_open=True))
    try:
        return open(path, "rb")
    except FileNotFoundError:
        raise InputError(f"cannot read {path}: there is no such file.") from None
    except OSError as error:
        raise _file_error("read", path, error) from None


def open_measured(path: str | Path) -> IO[bytes]:
    """Like `open_bytes`, with a known length: a pipe is copied to a temporary file first."""
    stream = open_bytes(path)
    if not is_stream(path):
        return stream
    measured = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
    with stream:
        shutil.copyfileobj(stream, measured)
    measured.seek(0)
    return measured


def read_text(path: str | Path) -> str:
    try:
        return read_bytes(path).decode("utf-8")
    except UnicodeDecodeError:
        raise InputError(f"cannot read {display_name(path)}: it is not a text file.") from None


def read_bytes(path: str | Path) -> bytes:
    try:
        with open_bytes(path) as stream:
            return stream.read()
    except OSError as error:
        raise _file_error("read", path, error) from None


def make_folder(path: Path) -> Path:
    """Create a folder if it is missing and return it; InputError if that fails."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise InputError(f"cannot make the folder {path}: a file has that name.") from None
    except OSError as error:
        raise InputError(f"cannot make the folder {path}: {error.strerror or error}.") from None
    return path


def _file_error(do: str, path: str | Path, error: OSError) -> InputError:
    return InputError(f"cannot {do} {path}: {error.strerror or error}.")
