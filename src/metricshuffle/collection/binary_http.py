"""Binary HTTP messages (RFC 9292), the content of capsules.

They are written with known lengths. Both framings are read, also with padding (zeros) at the end,
and without empty parts at the end.
"""

from __future__ import annotations

from dataclasses import dataclass

from metricshuffle.errors import MetricShuffleError

Fields = tuple[tuple[str, str], ...]
KNOWN_REQUEST, KNOWN_RESPONSE, ENDLESS_REQUEST, ENDLESS_RESPONSE = range(4)
"""Framing indicators: requests and responses of known and of indeterminate length."""
INTERIM_STATUSES = range(100, 200)
FINAL_STATUSES = range(200, 600)
TEXT = "latin-1"


class MalformedMessage(MetricShuffleError):
    """Bytes that are no binary HTTP message."""


def _number(value: int) -> bytes:
    """Integer of variable length (RFC 9000, 16)."""
    for prefix, size in enumerate((1, 2, 4, 8)):
        if value < 1 << (8 * size - 2):
            return (value + (prefix << (8 * size - 2))).to_bytes(size, "big")
    raise ValueError(value)


def _sized(data: bytes) -> bytes:
    return _number(len(data)) + data


def _encoded(start: bytes, headers: Fields, content: bytes, size: int) -> bytes:
    lines = b"".join(_sized(part.encode(TEXT)) for line in headers for part in line)
    message = start + _sized(lines) + _sized(content) + _number(0)
    if len(message) > size > 0:
        raise ValueError(f"{len(message)} bytes do not fit into {size}.")
    return message.ljust(size, b"\0")


@dataclass
class MessageReader:
    """Bytes of a message, and the position from which it is read on."""

    data: bytes
    place: int = 0

    @property
    def is_at_end(self) -> bool:
        return self.place == len(self.data)

    def take(self, size: int) -> bytes:
        taken = self.data[self.place : self.place + size]
        if len(taken) < size:
            raise MalformedMessage("this message is cut short.")
        self.place += size
        return taken

    def number(self) -> int:
        first = self.take(1)[0]
        size = 1 << (first >> 6)
        value = first & 0x3F
        for byte in self.take(size - 1):
            value = 256 * value + byte
        return value

    def sized(self) -> bytes:
        return self.take(self.number())

    def text(self) -> str:
        return self.sized().decode(TEXT)

    def fields(self, is_known: bool) -> Fields:
        """Read a section of fields, which may be missing at the end of a message."""
        if self.is_at_end:
            return ()
        if is_known:
            section = MessageReader(self.sized())
            lines = []
            while not section.is_at_end:
                lines.append(section._line(section.text()))
            return tuple(lines)
        lines = []
        while name := self.text():
            lines.append(self._line(name))
        return tuple(lines)

    def _line(self, name: str) -> tuple[str, str]:
        if not name:
            raise MalformedMessage("a field of this message has no name.")
        return name, self.text()

    def content(self, is_known: bool) -> bytes:
        """Read the content, which may be missing at the end of a message."""
        if self.is_at_end:
            return b""
        if is_known:
            return self.sized()
        chunks = []
        while chunk := self.sized():
            chunks.append(chunk)
        return b"".join(chunks)

    def end(self, is_known: bool) -> None:
        """Read trailers, which are ignored, and padding."""
        self.fields(is_known)
        if any(self.data[self.place :]):
            raise MalformedMessage("this message is followed by something else.")


@dataclass(frozen=True)
class BinaryRequest:
    """HTTP request; trailers are neither written nor read."""

    method: str
    scheme: str
    authority: str
    path: str
    headers: Fields = ()
    content: bytes = b""

    def encoded(self, size: int = 0) -> bytes:
        """Return the request with known lengths, padded to `size` bytes if that is not 0."""
        control = (self.method, self.scheme, self.authority, self.path)
        start = _number(KNOWN_REQUEST) + b"".join(_sized(part.encode(TEXT)) for part in control)
        return _encoded(start, self.headers, self.content, size)

    @classmethod
    def decoded(cls, data: bytes) -> BinaryRequest:
        """Read a request; raises `MalformedMessage`."""
        reader = MessageReader(data)
        framing = reader.number()
        if framing not in (KNOWN_REQUEST, ENDLESS_REQUEST):
            raise MalformedMessage("this message is not a request.")
        is_known = framing == KNOWN_REQUEST
        method, scheme, authority, path = (reader.text() for _ in range(4))
        headers, content = reader.fields(is_known), reader.content(is_known)
        reader.end(is_known)
        return cls(method, scheme, authority, path, headers, content)


@dataclass(frozen=True)
class BinaryResponse:
    """HTTP response; trailers are neither written nor read, interim responses are skipped."""

    status: int
    headers: Fields = ()
    content: bytes = b""

    def header(self, name: str) -> str:
        """Return the first value of a field; empty if there is none."""
        return next((value for each, value in self.headers if each.lower() == name), "")

    def encoded(self, size: int = 0) -> bytes:
        """Return the response with known lengths, padded to `size` bytes if that is not 0."""
        start = _number(KNOWN_RESPONSE) + _number(self.status)
        return _encoded(start, self.headers, self.content, size)

    @classmethod
    def decoded(cls, data: bytes) -> BinaryResponse:
        """Read a response; raises `MalformedMessage`."""
        reader = MessageReader(data)
        framing = reader.number()
        if framing not in (KNOWN_RESPONSE, ENDLESS_RESPONSE):
            raise MalformedMessage("this message is not a response.")
        is_known = framing == KNOWN_RESPONSE
        while (status := reader.number()) in INTERIM_STATUSES:
            reader.fields(is_known)
        if status not in FINAL_STATUSES:
            raise MalformedMessage("this message has no status.")
        headers, content = reader.fields(is_known), reader.content(is_known)
        reader.end(is_known)
        return cls(status, headers, content)
