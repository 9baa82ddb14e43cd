"""Object store for what mixers hand to each other: a folder (file://) or a bucket (s3://).

Nothing in it is trusted: whatever is read is checked against a digest, and decrypted with a key
that belongs to its name (`SealedPieces`).
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from metricshuffle.collection.keys import PRIVATE_FOLDER
from metricshuffle.collection.store.records import StoreError
from metricshuffle.errors import InputError, require

if TYPE_CHECKING:
    from obstore.store import ObjectStore as Backend

EXTRA = "objects"
TRIAL_NAME = "trial"
ADDRESS_FORMS = "file:///srv/spill (a folder) or s3://bucket/prefix"


class PieceLost(StoreError):
    """An object is gone, or is not what was written; it has to be made again."""


@dataclass(frozen=True)
class ObjectStore:
    """Objects by name; a name is written once."""

    url: str

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme == "file":
            is_valid = not parts.netloc and parts.path.strip("/") != ""
        else:
            is_valid = parts.scheme == "s3" and bool(parts.hostname)
        if not is_valid or "@" in parts.netloc or parts.query or parts.fragment:
            raise InputError(f"--objects must be an address like {ADDRESS_FORMS}.")
        require("obstore", EXTRA)

    @cached_property
    def folder(self) -> Path | None:
        """Folder of a file:// address."""
        parts = urlsplit(self.url)
        return Path(unquote(parts.path)) if parts.scheme == "file" else None

    @cached_property
    def _backend(self) -> Backend:
        from obstore.store import LocalStore, S3Store

        if self.folder is not None:
            self.folder.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
            return LocalStore(self.folder, automatic_cleanup=True)
        return S3Store.from_url(self.url)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn every failure into a sentence; no message of the service is repeated."""
        from obstore.exceptions import BaseError

        try:
            yield
        except (BaseError, OSError) as error:
            raise StoreError(
                f"cannot use the object store ({type(error).__name__}); see that it can be "
                "reached, that there is room, and that this user may read, write, list and delete."
            ) from None

    def put(self, name: str, data: bytes) -> None:
        import obstore

        with self._errors():
            obstore.put(self._backend, name, data)

    def setting_warnings(self) -> list[str]:
        """Return sentences about settings that should be changed; an object is tried.

        Raises: StoreError if it cannot be written, read, listed and deleted.
        """
        import obstore

        name = f"{TRIAL_NAME}/{secrets.token_hex(8)}"
        with self._errors():
            version = obstore.put(self._backend, name, b"trial").get("version")
        if self.get(name) != b"trial" or name not in self.names(TRIAL_NAME):
            raise StoreError("the object store does not return what was just written.")
        self.delete(TRIAL_NAME)
        warnings = []
        if version is not None:
            warnings.append(
                "this bucket keeps versions of objects, as object lock and replication need: what "
                "mixers delete would stay. Use a bucket without them, for the shuffler alone."
            )
        if self.folder is not None and self.folder.stat().st_mode & 0o077:
            warnings.append(
                f"others may use {self.folder}; run chmod 700 {self.folder}, and keep it off "
                "snapshots and backups."
            )
        return warnings

    def get(self, name: str) -> bytes:
        """Read an object; raises PieceLost if there is none."""
        import obstore

        with self._errors():
            try:
                return bytes(obstore.get(self._backend, name).bytes())
            except FileNotFoundError:
                raise PieceLost(
                    "an object that was written is gone from the object store."
                ) from None

    def names(self, prefix: str = "") -> list[str]:
        """Names below a prefix, which ends where a part of the name ends."""
        import obstore

        with self._errors():
            pages = obstore.list(self._backend, prefix=prefix or None)
            return sorted(entry["path"] for page in pages for entry in page)

    def collections(self) -> list[str]:
        """First parts of all names: digests of collections."""
        import obstore

        with self._errors():
            listed = obstore.list_with_delimiter(self._backend)
        return sorted(prefix.strip("/") for prefix in listed["common_prefixes"])

    def delete(self, prefix: str) -> None:
        """Delete all objects below a prefix; safe to repeat."""
        import obstore

        with self._errors():
            while names := self.names(prefix):
                # Another process may have just deleted some of them.
                with suppress(FileNotFoundError):
                    obstore.delete(self._backend, names)
