"""Files that appear whole or not at all. Links are followed; pipes, devices and `-` (standard input and output) are used in place."""

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
# What lies below these is never replaced: whoever reads from there holds it open.
SYSTEM_FOLDERS = ("/dev/", "/proc/")


completed: list[str] = []
"""Files that were written since a command began, for what is told when it is interrupted."""


def written_in_place(path: str | Path) -> bool:
    """Whether a path is standard output, a pipe, a device or a socket: then nothing can be put there by renaming a file."""
    if str(path) == STANDARD_OUTPUT or os.path.abspath(path).startswith(SYSTEM_FOLDERS):
        return True
    try:
        return not stat.S_ISREG(os.stat(path).st_mode)
    except OSError:
        return False


def check_leads_somewhere(path: Path) -> None:
    """Raise if this is a link to something that does not exist: what is made there may be lost when it does."""
    if path.is_symlink() and not path.exists():
        raise InputError(f"{path} is a link to {os.readlink(path)}, which does not exist; remove the link, or mount what it leads to.")


def check_private(path: Path, what: str) -> None:
    """Raise if others than its owner could read or change the file of a secret, or if a link leads nowhere; a missing file may be made."""
    check_leads_somewhere(path)
    if os.name != "posix" or not path.is_file():
        return
    file = path.stat()
    mode = stat.S_IMODE(file.st_mode)
    if mode & (0o027 if file.st_uid == 0 != os.geteuid() else 0o077):  # (the system may give a file of its own to a group)
        does = "change" if mode & 0o022 else "read"
        raise InputError(
            f"{path} holds {what}, and others on this machine can {does} it (its mode is {mode:03o}). If nobody did, chmod 600 {path}; "
            "else make a new one."
        )


@contextmanager
def deferred_interrupts() -> Iterator[None]:
    """Ctrl-C waits until this is over; afterwards it does what it does.

    What the signal calls is exchanged. To block it would not be enough: where libraries have threads of their own, one of them takes it.
    """
    if threading.current_thread() is not threading.main_thread():  # an interruption is raised in the main thread only
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
    """Write beside the file and rename at the end, so that an interruption leaves what was there before.

    The file keeps the permissions it had; a new one gets those that the umask allows.
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
    """What was renamed there stays so if the power fails now; where the system can tell a folder so."""
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
    """The file that is locked where another one is written: beside it, links followed."""
    target = Path(os.path.realpath(path))
    return target.with_name(f".{target.name}.lock")


@contextmanager
def locked(path: str | Path, seconds: float = 30.0) -> Iterator[None]:
    """Nobody else writes this file meanwhile who asks in the same way; a sentence if somebody does for longer than so many seconds.

    What is locked is a file beside it, `.NAME.lock`, because a file that is replaced as a whole takes its lock with it; it is gone
    afterwards. One that a killed process left behind does not matter where the system has `flock`. Raises OSError if it cannot be made.
    """
    lock, deadline = lock_path(path), time.monotonic() + seconds
    while (handle := _try_lock(lock)) is None:
        if time.monotonic() >= deadline:
            left = "" if _flock() is not None else f"; if there is none, delete {lock}"
            raise InputError(f"{path} is being written by another command, which takes long; try again when that has ended{left}.")
        time.sleep(0.02)
    try:
        yield
    finally:
        if _flock() is None:  # a system that may not take away what is open
            os.close(handle)
            lock.unlink(missing_ok=True)
        else:
            lock.unlink(missing_ok=True)
            os.close(handle)


def _try_lock(lock: Path) -> int | None:
    """The open file if it is locked now, and still the one of that name; None if somebody else has it. OSError if it cannot be made."""
    flock = _flock()
    try:
        handle = os.open(lock, os.O_CREAT | os.O_RDWR | (0 if flock is not None else os.O_EXCL), 0o666)
    except FileExistsError:
        return None
    try:
        if flock is not None:
            flock(handle)
        named = os.stat(lock)
        if os.path.samestat(named, os.fstat(handle)):
            return handle
    except OSError:  # locked by somebody else, or taken away by whoever held it before
        pass
    os.close(handle)
    return None


def _flock() -> Callable[[int], None] | None:
    """Locks an open file or raises at once; None where the system cannot."""
    try:
        import fcntl
    except ImportError:
        return None
    return lambda handle: fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def write_text(path: str | Path, text: str) -> None:
    with atomic_file(path) as stream:
        stream.write(text)


class PrefixedStream(io.RawIOBase):
    """What was read of a stream already, and then the rest of it; closing it closes the stream and what lies below."""

    def __init__(self, head: bytes, stream: IO[bytes], *below: IO[bytes], kept_open: bool = False) -> None:
        self._head, self._stream, self._closing = head, stream, () if kept_open else (stream, *below)

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
    """What an input is called in a sentence."""
    return "standard input" if str(path) == STANDARD_INPUT else str(path)


def is_stream(path: str | Path) -> bool:
    """Whether an input can be read only once, from front to end: standard input, a pipe or a socket."""
    if str(path) == STANDARD_INPUT:
        return True
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def is_standard_input(path: str | Path) -> bool:
    """Whether a path names what was given to this process as its input."""
    return str(path) in (STANDARD_INPUT, "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")


def open_bytes(path: str | Path) -> IO[bytes]:
    """A file, a pipe or standard input, to be read once; standard input stays open when this is closed."""
    if str(path) == STANDARD_INPUT:
        return io.BufferedReader(PrefixedStream(b"", sys.stdin.buffer, kept_open=True))
    try:
        return open(path, "rb")
    except FileNotFoundError:
        raise InputError(f"cannot read {path}: there is no such file.") from None
    except OSError as error:
        raise _file_error("read", path, error) from None


def open_measured(path: str | Path) -> IO[bytes]:
    """The same as a file whose length is known: what comes through a pipe is put into a temporary one, which has no name."""
    stream = open_bytes(path)
    if not is_stream(path):
        return stream
    measured = tempfile.TemporaryFile()  # noqa: SIM115 - whoever asked closes it
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
    """The folder, made if missing; a sentence if that cannot be."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise InputError(f"cannot make the folder {path}: a file has that name.") from None
    except OSError as error:
        raise InputError(f"cannot make the folder {path}: {error.strerror or error}.") from None
    return path


def _file_error(do: str, path: str | Path, error: OSError) -> InputError:
    return InputError(f"cannot {do} {path}: {error.strerror or error}.")
