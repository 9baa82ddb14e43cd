"""Output files of a shuffler next to its keys, and downloads of a later hop.

KEYS/output/DIGEST.boxes      mixed boxes, sealed for the party that fetches them; the
                              database has a second copy
KEYS/output/DIGEST.fetched    later hop: boxes of the previous hop, until they are mixed
KEYS/output/DIGEST.owed       later hop: receipt to acknowledge them at the previous hop
KEYS/output/DIGEST.*.dummies  encrypted dummies of a collection with piles, until they are mixed;
                              the database has the digest of the file that is mixed
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TypeVar

from metricshuffle.collection.keys import (
    PRIVATE_FILE,
    PRIVATE_FOLDER,
    KeyFolder,
    destroy,
    fsync_directory,
)
from metricshuffle.collection.store.records import CHUNK
from metricshuffle.errors import InputError
from metricshuffle.files import locked

Result = TypeVar("Result")
FILE_ENDINGS = (".boxes", ".boxes.part", ".fetched", ".fetched.part", ".owed")


def do_nothing(_: str) -> None:
    """Default of a callback; tests kill the process at its named points."""


@dataclass(frozen=True)
class MixedOutput:
    """Output that was written: its digest, and the numbers of people in it and left out."""

    digest: str
    people: int
    left_out: int


@dataclass(frozen=True)
class OutputFolder:
    """Paths of the output files, by digest of the collection."""

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

    def new_dummies(self, digest: str) -> Path:
        """Path of a new file of dummies; two processes get different paths."""
        return self.path / f"{digest}.{secrets.token_hex(8)}.dummies"

    def dummies(self, digest: str) -> list[Path]:
        """Files of dummies, complete or not."""
        return sorted(self.path.glob(f"{digest}.*.dummies*"))

    def left(self, digest: str) -> list[Path]:
        """Existing files of a collection."""
        paths = (self.path / f"{digest}{ending}" for ending in FILE_ENDINGS)
        return [path for path in paths if path.exists()] + self.dummies(digest)

    @contextmanager
    def alone(self, digest: str) -> Iterator[bool]:
        """Lock a collection against other processes that drive it; yield whether it worked."""
        with ExitStack() as stack:
            try:
                stack.enter_context(locked(self.path / digest, seconds=0))
            except InputError:
                yield False
                return
            yield True


def write_out(
    path: Path, fill: Callable[[IO[bytes]], Result], at: Callable[[str], None] = do_nothing
) -> Result:
    """Write a file durably and atomically."""
    part = path.with_name(f"{path.name}.part")
    try:
        with open(
            os.open(part, os.O_RDWR | os.O_CREAT | os.O_TRUNC, PRIVATE_FILE), "w+b"
        ) as stream:
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
    """Read a file in chunks; none if it does not exist."""
    with suppress(FileNotFoundError), open(path, "rb") as stream:
        while chunk := stream.read(CHUNK):
            yield chunk


def hash_chunks(chunks: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()
