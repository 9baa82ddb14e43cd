"""Bytes that can be told from damaged ones: a format name, a header, a body of known length, and a checksum over all of it.

The checksum (BLAKE2b, 32 bytes, unkeyed) catches accidents: a flipped bit, a cut, two files glued together. It does not stop whoever
rewrites a file on purpose; who must not rely on the sender verifies the task itself.
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
    """A running checksum; `update(bytes)`, then `digest()`."""
    return hashlib.blake2b(digest_size=CHECKSUM_BYTES)


@dataclass(frozen=True)
class Frame:
    """What a framed text of bytes says."""

    format: str
    header: dict[str, Any]
    body: bytes

    def to_bytes(self) -> bytes:
        header = json.dumps(self.header, sort_keys=True, separators=(",", ":")).encode()
        content = b"".join([self.format.encode(), b"\n", _LENGTHS.pack(len(header), len(self.body)), header, self.body])
        running = checksum()
        running.update(content)
        return content + bytes(running.digest())

    @classmethod
    def from_bytes(cls, data: bytes, formats: tuple[str, ...], what: str) -> Frame:
        """Undo `to_bytes`; `what` names the thing in the sentences: "a tally"."""
        name = bytes(data[:100]).partition(b"\n")[0]
        format_name = name.decode("ascii", errors="replace")
        if format_name not in formats:
            raise PlanError(f"this is not {what}: it begins with {format_name[:40]!r} and not with {formats[0]!r}.")
        start = len(name) + 1 + _LENGTHS.size
        if len(data) < start:
            raise PlanError(f"{what} is cut short; ask for it again.")
        header_size, body_size = _LENGTHS.unpack(data[len(name) + 1 : start])
        end = start + header_size + body_size
        if len(data) != end + CHECKSUM_BYTES:
            raise PlanError(
                f"{what} is cut short or damaged: it has {len(data):,} bytes and says {end + CHECKSUM_BYTES:,}; ask for it again."
            )
        running = checksum()
        running.update(data[:end])
        if running.digest() != data[end:]:
            raise PlanError(f"{what} is damaged: its checksum does not match its content; ask for it again.")
        return cls(format_name, read_header(data[start : start + header_size], what), bytes(data[start + header_size : end]))


def read_header(text: bytes, what: str) -> dict[str, Any]:
    """A header of JSON, or a sentence."""
    try:
        header = json.loads(text)
    except (ValueError, RecursionError):
        header = None
    if not isinstance(header, dict):
        raise PlanError(f"{what} is damaged: its header cannot be read; ask for it again.")
    return header


def header_integer(header: dict[str, Any], name: str, what: str, minimum: int = 0) -> int:
    """A whole number of a header."""
    value = header.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value < 2**63:
        raise PlanError(f"{what} is damaged: its {name} is {value!r:.40}; ask for it again.")
    return value
