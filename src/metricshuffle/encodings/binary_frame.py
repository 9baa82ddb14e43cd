"""Binary frame that detects damage: format name, header, body of known length, checksum of it all.

The checksum (BLAKE2b, 32 bytes, unkeyed) detects accidents: a flipped bit, a truncation, two
concatenated files. It does not stop anyone who rewrites a file on purpose; recipients who must not
rely on the sender verify the task itself.
"""

from __future__ import annotations

import hashlib
import json
import struct
from dataclasses import dataclass
from typing import Any

from metricshuffle.errors import PlanError

_LENGTHS = struct.Struct("<IQ")
CHECKSUM_BYTES = 32
MAX_HEADER_BYTES = 2**20


def checksum() -> Any:
    """Return a running checksum: call `update(bytes)`, then `digest()`."""
    return hashlib.blake2b(digest_size=CHECKSUM_BYTES)


@dataclass(frozen=True)
class Frame:
    """Content of a framed byte string."""

    format: str
    header: dict[str, Any]
    body: bytes

    def to_bytes(self) -> bytes:
        """Serialize as format name, lengths, JSON header, body and checksum."""
        header = json.dumps(self.header, sort_keys=True, separators=(",", ":")).encode()
        content = b"".join(
            [
                self.format.encode(),
                b"\n",
                _LENGTHS.pack(len(header), len(self.body)),
                header,
                self.body,
            ]
        )
        running = checksum()
        running.update(content)
        return content + bytes(running.digest())

    @classmethod
    def from_bytes(cls, data: bytes, formats: tuple[str, ...], what: str) -> Frame:
        """Parse the output of `to_bytes`; `what` names the content in error messages: "a tally".

        Raises:
            PlanError: the format is not one of `formats`, or the data are truncated or damaged.
        """
        name = bytes(data[:100]).partition(b"\n")[0]
        format_name = name.decode("ascii", errors="replace")
        if format_name not in formats:
            raise PlanError(
                f"this is not {what}: it begins with {format_name[:40]!r} and not with "
                f"{formats[0]!r}."
            )
        start = len(name) + 1 + _LENGTHS.size
        if len(data) < start:
            raise PlanError(f"{what} is cut short; ask for it again.")
        header_size, body_size = _LENGTHS.unpack(data[len(name) + 1 : start])
        end = start + header_size + body_size
        if len(data) != end + CHECKSUM_BYTES:
            raise PlanError(
                f"{what} is cut short or damaged: it has {len(data):,} bytes and says "
                f"{end + CHECKSUM_BYTES:,}; ask for it again."
            )
        running = checksum()
        running.update(data[:end])
        if running.digest() != data[end:]:
            raise PlanError(
                f"{what} is damaged: its checksum does not match its content; ask for it again."
            )
        return cls(
            format_name,
            read_header(data[start : start + header_size], what),
            bytes(data[start + header_size : end]),
        )


def read_header(text: bytes, what: str) -> dict[str, Any]:
    """Parse a JSON header; PlanError if it is not an object."""
    try:
        header = json.loads(text)
    except (ValueError, RecursionError):
        header = None
    if not isinstance(header, dict):
        raise PlanError(f"{what} is damaged: its header cannot be read; ask for it again.")
    return header


def header_integer(header: dict[str, Any], name: str, what: str, minimum: int = 0) -> int:
    """Return an integer field of a header, in minimum .. 2^63 - 1; PlanError otherwise."""
    value = header.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value < 2**63:
        raise PlanError(f"{what} is damaged: its {name} is {value!r:.40}; ask for it again.")
    return value
