"""Files that appear whole or not at all. Links are followed; pipes, devices and `-` (standard output) are written in place."""

from __future__ import annotations

import os
import secrets
import signal
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from metricshuffle.errors import InputError

STANDARD_OUTPUT = "-"
# What lies below these is never replaced: whoever reads from there holds it open.
SYSTEM_FOLDERS = ("/dev/", "/proc/")


def written_in_place(path: str | Path) -> bool:
    """Whether a path is standard output, a pipe, a device or a socket: then nothing can be put there by renaming a file."""
    if str(path) == STANDARD_OUTPUT or os.path.abspath(path).startswith(SYSTEM_FOLDERS):
        return True
    try:
        return not stat.S_ISREG(os.stat(path).st_mode)
    except OSError:
        return False


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Ctrl-C waits until this is over, where the system can do that."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def whole_file(path: str | Path, mode: str = "w") -> Iterator[IO[Any]]:
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
        except OSError as wrong:
            raise _cannot("write", path, wrong) from None
        return
    target = Path(os.path.realpath(path))
    beside = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        handle = os.open(beside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
    except OSError as wrong:
        raise _cannot("write", path, wrong) from None
    try:
        with os.fdopen(handle, mode, encoding=encoding) as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        if target.exists():
            os.chmod(beside, stat.S_IMODE(target.stat().st_mode))
        os.replace(beside, target)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def write_text(path: str | Path, text: str) -> None:
    with whole_file(path) as stream:
        stream.write(text)


def read_text(path: str | Path) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise InputError(f"cannot read {path}: it is not a text file.") from None
    except OSError as wrong:
        raise _cannot("read", path, wrong) from None


def read_bytes(path: str | Path) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as wrong:
        raise _cannot("read", path, wrong) from None


def made_folder(path: Path) -> Path:
    """The folder, made if missing; a sentence if that cannot be."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise InputError(f"cannot make the folder {path}: a file has that name.") from None
    except OSError as wrong:
        raise InputError(f"cannot make the folder {path}: {wrong.strerror or wrong}.") from None
    return path


def _cannot(do: str, path: str | Path, wrong: OSError) -> InputError:
    return InputError(f"cannot {do} {path}: {wrong.strerror or wrong}.")
