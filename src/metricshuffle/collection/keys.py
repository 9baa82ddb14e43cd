"""Secret keys: of the analyst, of the operator (a token), and of each collection.

The keys of a collection are destroyed before its output is released. A secret's file is readable by
its owner only. Destroying it overwrites it first, which erases it for certain only on a plain file
system: flash memory, snapshots and backups keep copies.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import secrets
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from metricshuffle.collection.capsules import GatewayKey
from metricshuffle.collection.sealed_boxes import KEY_BYTES, PrivateKey
from metricshuffle.collection.signatures import SigningKey
from metricshuffle.collection.terms import Party
from metricshuffle.errors import InputError, PlanError
from metricshuffle.files import check_private, make_folder

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

TOKEN_BYTES = 32
TAG_BYTES = 16
OWNER_BYTES = 16
NONCE_BYTES = 12
LEASE_BYTES = 16
DAMAGED_REPORT = "a stored report is damaged, or the keys belong to another database."
ANALYST_FORMAT = "metricshuffle-analyst-key/1"
PUBLIC_FORMAT = "analyst1"
PRIVATE_FILE = 0o600
PRIVATE_FOLDER = 0o700


def derive_key(secret: bytes, purpose: str) -> bytes:
    """Derive 32 bytes for one purpose from a secret of 32 random bytes (HKDF-SHA256)."""
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF(hashes.SHA256(), TOKEN_BYTES, None, f"metricshuffle {purpose}".encode()).derive(
        secret
    )


def release_token(key: PrivateKey) -> str:
    """Token with which the owner of a key fetches the output that is released to it."""
    return derive_key(key.data, "release").hex()


def token_hash(token: str) -> str:
    """Public hash of a token."""
    return hashlib.sha256(b"metricshuffle token\0" + token.encode()).hexdigest()


def matches_token(token: str, hashed: str) -> bool:
    """Return whether a token has the given hash, in constant time."""
    return hmac.compare_digest(token_hash(token), hashed)


@dataclass(frozen=True)
class AnalystKey:
    """Private key of the analyst.

    It never leaves the analyst; others get `public`, which is the operator's --analyst.
    """

    private: PrivateKey

    @classmethod
    def new(cls) -> AnalystKey:
        return cls(PrivateKey.new())

    @property
    def token(self) -> str:
        return release_token(self.private)

    @property
    def public(self) -> str:
        """Public key that messages are sealed for and hash of the release token, as one word."""
        return f"{PUBLIC_FORMAT}-{self.private.public.data.hex()}-{token_hash(self.token)}"

    def save(self, path: str | Path) -> None:
        """Write a new file. An existing file is never replaced, because its key would be lost."""
        write_secret(Path(path), f"{ANALYST_FORMAT}\n{self.private.data.hex()}\n".encode())

    @classmethod
    def load(cls, path: str | Path) -> AnalystKey:
        lines = read_secret(Path(path)).decode("ascii", "replace").split()
        if len(lines) != 2 or lines[0] != ANALYST_FORMAT or len(lines[1]) != 2 * KEY_BYTES:
            raise InputError(
                f"{path} is not an analyst's key, as metricshuffle analyst key --output "
                "FILE makes it."
            )
        check_private(Path(path), "the analyst's key")
        try:
            return cls(PrivateKey(bytes.fromhex(lines[1])))
        except ValueError:
            raise InputError(f"{path} is damaged; use a copy of the key.") from None


def analyst_of(public: str, name: str = "") -> Party:
    """Return the analyst of a collection, given `AnalystKey.public`."""
    parts = public.strip().split("-")
    if len(parts) != 3 or parts[0] != PUBLIC_FORMAT:
        raise InputError(
            f"the public half of an analyst's key starts with {PUBLIC_FORMAT}-, got "
            f"{public[:40]!r}."
        )
    return Party(key=parts[1], release=parts[2], name=name)


def keyed_hash(key: bytes, data: bytes, size: int) -> bytes:
    return hashlib.blake2b(data, digest_size=size, key=key).digest()


@dataclass(frozen=True)
class LeaseKeys:
    """Secrets of a collection that an edge has under a lease.

    They open reports and encrypt them for storage. They do not decrypt what others stored.
    """

    digest: bytes
    lease: bytes
    outer: bytes
    """Private key of the hop's layer."""
    tag_key: bytes
    ticket_key: bytes
    report_key: bytes
    data_key: bytes
    """Key of this lease alone."""
    gateway: bytes
    """Private key of the gateway for this collection."""

    @property
    def private(self) -> PrivateKey:
        return PrivateKey(self.outer)

    def tag(self, report: bytes) -> bytes:
        return keyed_hash(self.tag_key, report, TAG_BYTES)

    def ticket_hash(self, ticket: bytes) -> bytes:
        return keyed_hash(self.ticket_key, ticket, TAG_BYTES)

    def hidden(self, name: bytes, report: bytes, bundle: bytes) -> bytes:
        """Encrypt a bundle with a key of its own, which is a function of the report.

        A person with the keys of an edge could make two reports whose tags start with the same
        bytes. With one key, and the start of the tag as the nonce, both would share a nonce.
        """
        mark = keyed_hash(self.report_key, report, TOKEN_BYTES)
        sealed = self._cipher(mark).encrypt(bytes(NONCE_BYTES), bundle, self._context(name))
        return mark + bytes(sealed)

    def shown(self, name: bytes, stored: bytes) -> bytes:
        """Decrypt the output of `hidden`."""
        from cryptography.exceptions import InvalidTag

        mark = stored[:TOKEN_BYTES]
        try:
            cipher = self._cipher(mark)
            data = cipher.decrypt(bytes(NONCE_BYTES), stored[TOKEN_BYTES:], self._context(name))
        except (InvalidTag, ValueError):
            raise PlanError(DAMAGED_REPORT) from None
        return bytes(data)

    def _cipher(self, mark: bytes) -> AESGCM:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        return AESGCM(keyed_hash(self.data_key, mark, TOKEN_BYTES))

    def _context(self, name: bytes) -> bytes:
        return self.digest + self.lease + name

    def to_json(self) -> dict[str, str]:
        return {field.name: getattr(self, field.name).hex() for field in fields(self)}

    @classmethod
    def from_json(cls, content: Mapping[str, str]) -> LeaseKeys:
        return cls(**{field.name: bytes.fromhex(content[field.name]) for field in fields(cls)})

    def __repr__(self) -> str:
        return f"LeaseKeys(of lease {self.lease.hex()[:8]}...)"


@dataclass(frozen=True)
class CollectionKeys:
    """Secrets of a hop for one collection.

    The first 32 bytes open the hop's layer, the other 32 encrypt what it stores.
    """

    secret: bytes

    @classmethod
    def of_mixer(cls, storage_secret: bytes) -> CollectionKeys:
        """Return the keys of a mixer, which decrypt what is stored, and open no report."""
        return cls(bytes(KEY_BYTES) + storage_secret)

    @property
    def storage_secret(self) -> bytes:
        """Secret from which all keys but the one of the layer are derived."""
        return self.secret[KEY_BYTES:]

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
    def _storage(self) -> AESGCM:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        return AESGCM(derive_key(self.secret[KEY_BYTES:], "storage"))

    @property
    def party(self) -> Party:
        """Public part of the keys."""
        return Party(
            key=self.private.public.data.hex(), release=token_hash(release_token(self.private))
        )

    def tag(self, report: bytes) -> bytes:
        """Keyed hash of a report, so that the order of tags reveals neither arrival nor content."""
        return keyed_hash(self._tag_key, report, TAG_BYTES)

    def ticket_hash(self, ticket: bytes) -> bytes:
        return keyed_hash(self._ticket_key, ticket, TAG_BYTES)

    def hidden(self, tag: bytes, bundle: bytes) -> bytes:
        """Encrypt a bundle for storage.

        The nonce is the start of the tag, which is unique to the bundle.
        """
        return bytes(self._storage.encrypt(tag[:NONCE_BYTES], bundle, tag))

    def shown(self, tag: bytes, stored: bytes) -> bytes:
        """Decrypt the output of `hidden`."""
        from cryptography.exceptions import InvalidTag

        try:
            return bytes(self._storage.decrypt(tag[:NONCE_BYTES], stored, tag))
        except (InvalidTag, ValueError):
            raise PlanError(DAMAGED_REPORT) from None

    @cached_property
    def gateway(self) -> GatewayKey:
        return GatewayKey(derive_key(self.secret[KEY_BYTES:], "gateway"))

    def replacement(self, box: bytes, size: int) -> bytes:
        """Content in place of a box that cannot be used: the same in every run.

        It depends on the secret, so nobody can send a box with the content that would replace
        another one.
        """
        secret = derive_key(self.secret[KEY_BYTES:], "replacement")
        return hashlib.shake_256(secret + box).digest(size)

    def dummy_cipher(self, salt: bytes) -> AESGCM:
        """Cipher for the file of dummies that has this salt."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        return AESGCM(keyed_hash(derive_key(self.secret[KEY_BYTES:], "dummies"), salt, TOKEN_BYTES))

    def mix_key(self, digest: str, attempt: str) -> bytes:
        """Key of what mixers write in one attempt to mix a collection."""
        return derive_key(self.secret[KEY_BYTES:], f"mix {digest} {attempt}")

    def report_shower(self, digest: str) -> Callable[[bytes, bytes], bytes]:
        """Return a function that decrypts stored reports, given their label, whoever took them."""
        leases: dict[bytes, LeaseKeys] = {}

        def shown(label: bytes, hidden: bytes) -> bytes:
            if len(label) == TAG_BYTES:
                return self.shown(label, hidden)
            lease = label[:LEASE_BYTES]
            if lease not in leases:
                leases[lease] = self.lease(digest, lease)
            return leases[lease].shown(label[LEASE_BYTES:], hidden)

        return shown

    def lease(self, digest: str, lease: bytes) -> LeaseKeys:
        """Derive the keys of a lease."""
        return LeaseKeys(
            bytes.fromhex(digest),
            lease,
            self.secret[:KEY_BYTES],
            self._tag_key,
            self._ticket_key,
            derive_key(self.secret[KEY_BYTES:], "report"),
            derive_key(self.secret[KEY_BYTES:], f"lease {digest} {lease.hex()}"),
            self.gateway.data,
        )

    def __repr__(self) -> str:
        return f"CollectionKeys(of {self.private.public.data.hex()[:16]}...)"


@dataclass(frozen=True)
class KeyFolder:
    """Folder of a shuffler's secrets.

    It contains the operator's token and one file for each collection until it is shuffled.
    """

    path: Path

    @classmethod
    def at(cls, path: str | Path) -> KeyFolder:
        """Open the folder; create it and its token if they are missing."""
        is_new = not Path(path).exists()
        folder = cls(make_folder(Path(path)))
        mode = stat.S_IMODE(folder.path.stat().st_mode) & 0o777
        # The mode of a new folder is what the umask leaves.
        if os.name == "posix" and mode & 0o002 and not is_new:
            raise InputError(
                f"any user of this machine can put files into {folder.path} (its mode is "
                f"{mode:03o}), which contains secrets; run chmod 700 {folder.path} if no one "
                "did, otherwise create a new folder."
            )
        folder.path.chmod(PRIVATE_FOLDER)
        token = folder.path / "operator.token"
        check_private(token, "the operator's token")
        if not token.exists():
            # A user who may not read the parent folder may still use this one.
            with contextlib.suppress(PermissionError):
                fsync_directory(folder.path.absolute().parent)
            with contextlib.suppress(FileExistsError):
                write_secret(token, f"{secrets.token_hex(TOKEN_BYTES)}\n".encode())
        return folder

    @property
    def token(self) -> str:
        """Token of the operator.

        An empty file is rejected, because an empty token would be accepted otherwise.
        """
        check_private(self.path / "operator.token", "the operator's token")
        token = read_secret(self.path / "operator.token").decode("ascii", "replace").strip()
        if len(token) < TOKEN_BYTES or not token.isalnum():
            raise InputError(
                f"{self.path / 'operator.token'} contains no operator's token; delete it, and "
                "serve creates a new one."
            )
        return token

    @property
    def owner(self) -> str:
        """Random name of this folder, stored with the collections that belong to it."""
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
        """Signing key to ask the witness and to countersign; created on first use."""
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
        """Create and store the keys of a new collection."""
        keys = CollectionKeys(secrets.token_bytes(2 * KEY_BYTES))
        write_secret(self._file(keys.party.key), keys.secret)
        return keys

    def of(self, key: str) -> CollectionKeys | None:
        """Return the secrets of a public key; None if they were destroyed or are not here."""
        try:
            secret = read_secret(self._file(key))
        except FileNotFoundError:
            return None
        keys = CollectionKeys(secret)
        if len(secret) != 2 * KEY_BYTES or keys.party.key != key:
            return None  # its destruction was interrupted
        return keys

    def has(self, key: str) -> bool:
        """Return whether there is a file for the secrets of a public key."""
        return self._file(key).exists()

    def names(self) -> list[str]:
        """Public keys whose secrets are in this folder."""
        return sorted(path.stem for path in self.path.glob("*.key"))

    def destroy(self, key: str) -> None:
        """Overwrite, fsync and unlink the secrets; safe to repeat after an interruption."""
        destroy(self._file(key))


def write_secret(path: Path, data: bytes) -> None:
    """Write a new private file durably and atomically; raises FileExistsError if it exists."""
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE)
    try:
        with open(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.link(part, path)  # unlike a rename, fails if the name exists
    finally:
        os.unlink(part)
    fsync_directory(path.parent)


def read_secret(path: Path) -> bytes:
    return path.read_bytes()


def destroy(path: Path) -> None:
    """Overwrite a file with random bytes and delete it, if it exists."""
    try:
        with open(path, "r+b", buffering=0) as stream:
            left = os.fstat(stream.fileno()).st_size
            while left > 0:
                left -= stream.write(os.urandom(min(left, 2**20)))
            os.fsync(stream.fileno())
        os.unlink(path)
    except FileNotFoundError:  # or another process has just destroyed it
        return
    fsync_directory(path.parent)


def fsync_directory(folder: Path) -> None:
    """fsync a folder, where the platform supports it."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
