"""Demonstration issuer: signs one token for each ticket, and counts people, not requests.

For tests and demonstrations only: signing takes time that depends on the key. It keeps which ticket
was used for which request, and no time. The same request with the same ticket gets the same answer,
because a client that got no answer asks again.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import sqlite3
import threading
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from metricshuffle.collection.admission_tokens import blinded_message_of
from metricshuffle.collection.blind_signatures import BlindSigner
from metricshuffle.collection.keys import read_secret, write_secret
from metricshuffle.collection.sealed_boxes import TICKET_BYTES
from metricshuffle.collection.terms import Issuer
from metricshuffle.errors import InputError, MetricShuffleError
from metricshuffle.files import atomic_file, check_private, make_folder, read_text
from metricshuffle.models import parse_json

DEMONSTRATION_NAME = "demonstration issuer"
KEY_FILE = "issuer.pem"
PUBLIC_FILE = "issuer.json"
TICKETS_DATABASE = "issuer.db"
SCHEMA = """
CREATE TABLE ticket (hash BLOB PRIMARY KEY, request BLOB) WITHOUT ROWID
"""


class TicketUnknown(MetricShuffleError):
    """A ticket is not one of the issuer's."""


class TicketUsed(MetricShuffleError):
    """A ticket was used for another token."""


@dataclass
class TokenIssuer:
    """Key of an issuer for one collection, and its tickets."""

    folder: Path
    signer: BlindSigner
    public: Issuer
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def new(cls, folder: Path, url: str, tickets: int, name: str = DEMONSTRATION_NAME) -> list[str]:
        """Make a key and tickets; return the tickets, of which only hashes are stored."""
        from cryptography.hazmat.primitives import serialization

        if not 1 <= tickets <= 10_000_000:
            raise InputError(f"--tickets must be from 1 to 10,000,000, got {tickets:,}.")
        signer = BlindSigner.new()
        public = Issuer(url=url, key=signer.public.spki.hex(), name=name)
        make_folder(folder)
        text = signer.private.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        try:
            write_secret(folder / KEY_FILE, text)
        except FileExistsError:
            raise InputError(
                f"{folder} has an issuer's key already; every collection needs a key of its own, "
                "so name a new folder."
            ) from None
        made = [secrets.token_bytes(TICKET_BYTES) for _ in range(tickets)]
        with closing(sqlite3.connect(folder / TICKETS_DATABASE)) as database, database:
            database.execute(SCHEMA)
            # Sorted, so that the file does not keep their order.
            hashes = sorted(map(_ticket_name, made))
            database.executemany(
                "INSERT INTO ticket (hash) VALUES (?)", ((name,) for name in hashes)
            )
        with atomic_file(folder / PUBLIC_FILE, "w") as stream:
            stream.write(f"{json.dumps(public.model_dump(mode='json'), indent=1)}\n")
        return [ticket.hex() for ticket in made]

    @classmethod
    def load(cls, folder: Path) -> TokenIssuer:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

        path = folder / KEY_FILE
        if not path.is_file():
            raise InputError(f"{folder} has no issuer's key; metricshuffle issuer new makes one.")
        check_private(path, "the issuer's key")
        try:
            private = serialization.load_pem_private_key(read_secret(path), None)
        except ValueError:
            private = None
        public = read_issuer(folder / PUBLIC_FILE)
        if (
            not isinstance(private, RSAPrivateKey)
            or BlindSigner(private).public.spki.hex() != public.key
        ):
            raise InputError(f"{path} is damaged, or belongs to another {PUBLIC_FILE}.")
        return cls(folder, BlindSigner(private), public)

    def answer(self, ticket: bytes, request: bytes) -> bytes:
        """Sign a request for the person with a ticket; durable before it is answered."""
        blinded = blinded_message_of(request, self.signer.public)
        signature = self.signer.signature(blinded)
        name, asked = _ticket_name(ticket), hashlib.sha256(request).digest()
        with self._lock, closing(self._database()) as database, database:
            database.execute(
                "UPDATE ticket SET request = ? WHERE hash = ? AND request IS NULL", (asked, name)
            )
            row = database.execute("SELECT request FROM ticket WHERE hash = ?", (name,)).fetchone()
        if row is None:
            raise TicketUnknown("unknown ticket.")
        if row[0] != asked:
            raise TicketUsed("this ticket was used for another token.")
        return signature

    @property
    def people(self) -> int:
        """Number of people who have a token."""
        with closing(self._database()) as database:
            [count] = database.execute(
                "SELECT count(*) FROM ticket WHERE request IS NOT NULL"
            ).fetchone()
        return int(count)

    def _database(self) -> sqlite3.Connection:
        database = sqlite3.connect(self.folder / TICKETS_DATABASE, timeout=30)
        database.execute("PRAGMA synchronous = EXTRA")
        return database


def _ticket_name(ticket: bytes) -> bytes:
    return hashlib.sha256(b"metricshuffle issuer's ticket\0" + ticket).digest()


def read_issuer(path: Path) -> Issuer:
    """Read the public file of an issuer."""
    content = parse_json(read_text(path), "an issuer's public file")
    if not isinstance(content, dict):
        raise InputError(f"{path} is not the public file of an issuer.")
    return Issuer(**content)
