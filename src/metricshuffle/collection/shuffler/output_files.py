"""Files of a shuffler beside its keys: what was let go, and at a later hop what was fetched and what is owed for it.

KEYS/output/DIGEST.boxes      the mixed boxes, sealed for whoever fetches them; the database holds a second copy
KEYS/output/DIGEST.fetched    at a later hop: boxes of the hop before, sealed for this one, until they are opened and mixed
KEYS/output/DIGEST.owed       at a later hop: what the hop before is told once they are safe
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TypeVar

from metricshuffle.collection.keys import PRIVATE_FILE, PRIVATE_FOLDER, KeyFolder, destroy, fsync_directory
from metricshuffle.collection.store.interface import CHUNK
from metricshuffle.errors import InputError
from metricshuffle.files import locked

Result = TypeVar("Result")
FILE_ENDINGS = (".boxes", ".boxes.part", ".fetched", ".fetched.part", ".owed")


def do_nothing(_: str) -> None:
    """What is done at the named points of the product; a test kills the process there."""


@dataclass(frozen=True)
class OutputFolder:
    """Where those files are, by the digest of their collection."""

    path: Path

    @classmethod
    def of(cls, keys: KeyFolder) -> OutputFolder:
        path = keys.path / "output"
        path.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
        fsync_directory(keys.path)
        return cls(path)

    def boxes(self, digest: str) -> Path:
        return self.path / f"{digest}.boxes"

    def fetched(self, digest: str) -> Path:
        return self.path / f"{digest}.fetched"

    def owed(self, digest: str) -> Path:
        return self.path / f"{digest}.owed"

    def left(self, digest: str) -> list[Path]:
        """The files that a collection has here."""
        paths = (self.path / f"{digest}{ending}" for ending in FILE_ENDINGS)
        return [path for path in paths if path.exists()]

    @contextmanager
    def alone(self, digest: str) -> Iterator[bool]:
        """Whether nobody else drives this collection; nobody does then until this is left."""
        with ExitStack() as stack:
            try:
                stack.enter_context(locked(self.path / digest, seconds=0))
            except InputError:
                yield False
                return
            yield True


def write_out(path: Path, fill: Callable[[IO[bytes]], Result], at: Callable[[str], None] = do_nothing) -> Result:
    """A file that is there as a whole, and stays if the power fails, or is not there at all."""
    part = path.with_name(f"{path.name}.part")
    try:
        with open(os.open(part, os.O_RDWR | os.O_CREAT | os.O_TRUNC, PRIVATE_FILE), "w+b") as stream:
            result = fill(stream)
            stream.flush()
            at("written")
            os.fsync(stream.fileno())
        at("synced")
    except BaseException:
        with suppress(OSError):
            destroy(part)
        raise
    os.replace(part, path)
    at("renamed")
    fsync_directory(path.parent)
    at("settled")
    return result


def read_chunks(path: Path) -> Iterator[bytes]:
    """A file, piece by piece; nothing if there is none."""
    with suppress(FileNotFoundError), open(path, "rb") as stream:
        while chunk := stream.read(CHUNK):
            yield chunk


def hash_chunks(chunks: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()
