"""Secrets: the analyst's key, the operator's token, and the keys of each collection, which are destroyed before anything is released.

A file of a secret can be read by its owner alone. Destroying one overwrites it first, which is certain on a plain file system only: flash,
snapshots and backups keep copies.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import secrets
import stat
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from metricshuffle.collection.sealed_boxes import KEY_BYTES, PrivateKey
from metricshuffle.collection.signatures import SigningKey
from metricshuffle.collection.terms import Party
from metricshuffle.errors import InputError, PlanError
from metricshuffle.files import check_private, make_folder

TOKEN_BYTES = 32
TAG_BYTES = 16
OWNER_BYTES = 16
NONCE_BYTES = 12
ANALYST_FORMAT = "metricshuffle-analyst-key/1"
PUBLIC_FORMAT = "analyst1"
PRIVATE_FILE, PRIVATE_FOLDER = 0o600, 0o700


def derive_key(secret: bytes, purpose: str) -> bytes:
    """32 bytes for one purpose out of a secret of 32 random ones (HKDF-SHA256)."""
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF(hashes.SHA256(), TOKEN_BYTES, None, f"metricshuffle {purpose}".encode()).derive(secret)


def release_token(key: PrivateKey) -> str:
    """With this whoever holds the key asks for what was released to it."""
    return derive_key(key.data, "release").hex()


def token_hash(token: str) -> str:
    """What is published of a token."""
    return hashlib.sha256(b"metricshuffle token\0" + token.encode()).hexdigest()


def matches_token(token: str, hashed: str) -> bool:
    """Whether a token has that hash, told in constant time."""
    return hmac.compare_digest(token_hash(token), hashed)


@dataclass(frozen=True)
class AnalystKey:
    """What opens messages. It never leaves the analyst: others get `public`, the operator's --analyst."""

    private: PrivateKey

    @classmethod
    def new(cls) -> AnalystKey:
        return cls(PrivateKey.new())

    @property
    def token(self) -> str:
        return release_token(self.private)

    @property
    def public(self) -> str:
        """In one word: the key that messages are sealed for, and the hash of the release token."""
        return f"{PUBLIC_FORMAT}-{self.private.public.data.hex()}-{token_hash(self.token)}"

    def save(self, path: str | Path) -> None:
        """A new file; one that is there is never replaced, because a lost key loses everything that was sealed for it."""
        write_secret(Path(path), f"{ANALYST_FORMAT}\n{self.private.data.hex()}\n".encode())

    @classmethod
    def load(cls, path: str | Path) -> AnalystKey:
        lines = read_secret(Path(path)).decode("ascii", "replace").split()
        if len(lines) != 2 or lines[0] != ANALYST_FORMAT or len(lines[1]) != 2 * KEY_BYTES:
            raise InputError(f"{path} is not an analyst's key, as metricshuffle analyst key --output FILE makes it.")
        check_private(Path(path), "the analyst's key")
        try:
            return cls(PrivateKey(bytes.fromhex(lines[1])))
        except ValueError:
            raise InputError(f"{path} is damaged; use a copy of the key.") from None


def analyst_of(public: str, name: str = "") -> Party:
    """The analyst of a collection, from what her key printed."""
    parts = public.strip().split("-")
    if len(parts) != 3 or parts[0] != PUBLIC_FORMAT:
        raise InputError(f"the public half of an analyst's key starts with {PUBLIC_FORMAT}-, got {public[:40]!r}.")
    return Party(key=parts[1], release=parts[2], name=name)


@dataclass(frozen=True)
class CollectionKeys:
    """A hop's secrets for one collection: 32 bytes that open its layer, and 32 that hide what is stored until it is shuffled."""

    secret: bytes

    @cached_property
    def private(self) -> PrivateKey:
        return PrivateKey(self.secret[:KEY_BYTES])

    @cached_property
    def _tag_key(self) -> bytes:
        return derive_key(self.secret[KEY_BYTES:], "tag")

    @cached_property
    def _ticket_key(self) -> bytes:
        return derive_key(self.secret[KEY_BYTES:], "ticket")

    @cached_property
    def _storage(self) -> Any:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        return AESGCM(derive_key(self.secret[KEY_BYTES:], "storage"))

    @property
    def party(self) -> Party:
        """What others may know of it."""
        return Party(key=self.private.public.data.hex(), release=token_hash(release_token(self.private)))

    def tag(self, report: bytes) -> bytes:
        """Names a report inside its collection; keyed, so that its order says nothing of arrival or content."""
        return hashlib.blake2b(report, digest_size=TAG_BYTES, key=self._tag_key).digest()

    def ticket_hash(self, ticket: bytes) -> bytes:
        return hashlib.blake2b(ticket, digest_size=TAG_BYTES, key=self._ticket_key).digest()

    def hidden(self, tag: bytes, bundle: bytes) -> bytes:
        """A bundle as it is stored. The nonce is the start of the tag, which belongs to this bundle alone."""
        return bytes(self._storage.encrypt(tag[:NONCE_BYTES], bundle, tag))

    def shown(self, tag: bytes, stored: bytes) -> bytes:
        """Undo `hidden`."""
        from cryptography.exceptions import InvalidTag

        try:
            return bytes(self._storage.decrypt(tag[:NONCE_BYTES], stored, tag))
        except (InvalidTag, ValueError):
            raise PlanError("a stored report is damaged, or the keys belong to another database.") from None

    def __repr__(self) -> str:
        return f"CollectionKeys(of {self.private.public.data.hex()[:16]}...)"


@dataclass(frozen=True)
class KeyFolder:
    """Where a shuffler keeps its secrets: the operator's token, and a file for each collection until that is shuffled."""

    path: Path

    @classmethod
    def at(cls, path: str | Path) -> KeyFolder:
        """The folder, made if missing, with a token in it."""
        is_new, folder = not Path(path).exists(), cls(make_folder(Path(path)))
        mode = stat.S_IMODE(folder.path.stat().st_mode) & 0o777
        if os.name == "posix" and mode & 0o002 and not is_new:  # (a new one has what the umask leaves)
            raise InputError(
                f"everybody on this machine can put files into {folder.path} (its mode is {mode:03o}), where secrets are kept; "
                f"chmod 700 {folder.path} if nobody did, else make a new folder."
            )
        folder.path.chmod(PRIVATE_FOLDER)
        token = folder.path / "operator.token"
        check_private(token, "the operator's token")
        if not token.exists():
            with contextlib.suppress(PermissionError):  # (whoever may not list the folder above may still use this one)
                fsync_directory(folder.path.absolute().parent)
            with contextlib.suppress(FileExistsError):
                write_secret(token, f"{secrets.token_hex(TOKEN_BYTES)}\n".encode())
        return folder

    @property
    def token(self) -> str:
        """The operator's; a file without one is refused, because nobody's token would be as good."""
        check_private(self.path / "operator.token", "the operator's token")
        token = read_secret(self.path / "operator.token").decode("ascii", "replace").strip()
        if len(token) < TOKEN_BYTES or not token.isalnum():
            raise InputError(f"{self.path / 'operator.token'} holds no token of an operator; delete it, and serve makes a new one.")
        return token

    @property
    def owner(self) -> str:
        """A random name of this folder, made once: it stands in a database beside the collections whose secrets are kept here."""
        path = self.path / "owner.id"
        if not path.exists():
            with contextlib.suppress(FileExistsError):
                write_secret(path, f"{secrets.token_hex(OWNER_BYTES)}\n".encode())
        owner = read_secret(path).decode("ascii", "replace").strip()
        if len(owner) != 2 * OWNER_BYTES or not owner.isalnum():
            raise InputError(f"{path} is damaged; put back the copy that belongs to these keys.")
        return owner

    @property
    def signing(self) -> SigningKey:
        """With which this shuffler asks its witness and countersigns for others: one for all collections, made when it is first needed."""
        path = self.path / "signing.secret"
        check_private(path, "the signing key")
        if not path.exists():
            with contextlib.suppress(FileExistsError):
                write_secret(path, f"{SigningKey.new().secret.hex()}\n".encode())
        try:
            secret = bytes.fromhex(read_secret(path).decode("ascii", "replace"))
        except ValueError:
            secret = b""
        if len(secret) != KEY_BYTES:
            raise InputError(f"{path} is damaged; put back the copy that belongs to these keys.")
        return SigningKey(secret)

    def _file(self, key: str) -> Path:
        return self.path / f"{key}.key"

    def new(self) -> CollectionKeys:
        """Keys of a collection that is about to be opened, written down."""
        keys = CollectionKeys(secrets.token_bytes(2 * KEY_BYTES))
        write_secret(self._file(keys.party.key), keys.secret)
        return keys

    def of(self, key: str) -> CollectionKeys | None:
        """The secrets of a public key; None if they were destroyed, or are not here."""
        try:
            secret = read_secret(self._file(key))
        except FileNotFoundError:
            return None
        keys = CollectionKeys(secret)
        if len(secret) != 2 * KEY_BYTES or keys.party.key != key:
            return None  # its destruction was interrupted
        return keys

    def has(self, key: str) -> bool:
        """Whether anything is left of the secrets of a public key."""
        return self._file(key).exists()

    def names(self) -> list[str]:
        """The public keys whose secrets are here."""
        return sorted(path.stem for path in self.path.glob("*.key"))

    def destroy(self, key: str) -> None:
        """Overwrite, write through, unlink; again if it was interrupted."""
        destroy(self._file(key))


def write_secret(path: Path, data: bytes) -> None:
    """A new file, durable, for its owner alone; FileExistsError if there is one. What was cut short is not there."""
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE)
    try:
        with open(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.link(part, path)  # (unlike a rename, refused if the name is taken)
    finally:
        os.unlink(part)
    fsync_directory(path.parent)


def read_secret(path: Path) -> bytes:
    return path.read_bytes()


def destroy(path: Path) -> None:
    """A file overwritten with random bytes, and gone; nothing to do if it is gone already."""
    try:
        with open(path, "r+b", buffering=0) as stream:
            left = os.fstat(stream.fileno()).st_size
            while left > 0:
                left -= stream.write(os.urandom(min(left, 2**20)))
            os.fsync(stream.fileno())
        os.unlink(path)
    except FileNotFoundError:  # (or somebody else has just done it)
        return
    fsync_directory(path.parent)


def fsync_directory(folder: Path) -> None:
    """Names in a folder survive a failure of the power from here on, where the system can be told so."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
