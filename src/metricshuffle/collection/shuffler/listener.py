"""Listener: the address of a server, its socket and its certificate."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from metricshuffle.collection.shuffler.tls import CertificateFiles
from metricshuffle.errors import InputError

UNREAD_SECONDS = 30.0
"""Time limit for a client that reads nothing of an answer, where the system supports it.

Without it, 4,096 such clients would block the server.
"""
MAX_CONNECTIONS_OPEN = 4096
"""Maximum number of open connections, if the system allows as many; further ones wait."""


@dataclass(frozen=True)
class Listener:
    """Address to listen on, and the certificate."""

    host: str
    port: int
    certificate: Path | None = None
    key: Path | None = None
    option: str = "--listen"
    """Option that names the address, for errors."""

    @classmethod
    def of(
        cls,
        listen: str,
        certificate: Path | None = None,
        key: Path | None = None,
        option: str = "--listen",
    ) -> Listener:
        """Parse an address like 127.0.0.1:8460, [::1]:8460 or localhost:0 (any free port)."""
        host, colon, port = listen.rpartition(":")
        if (
            not colon
            or not port.isdigit()
            or int(port) > 65535
            or (":" in host and not host.startswith("["))
        ):
            raise InputError(
                f"{option} must be an address and a port like 127.0.0.1:8460, got {listen!r}."
            )
        if (certificate is None) != (key is None):
            raise InputError("--certificate and --key belong together: give both, or none.")
        for path in (certificate, key):
            if path is not None and not path.is_file():
                raise InputError(f"cannot read {path}: there is no such file.")
        if certificate is not None and key is not None:
            if not hasattr(socket, "AF_UNIX"):
                raise InputError(
                    "--certificate does not work on this system; listen on 127.0.0.1 and "
                    "put a proxy with TLS in front."
                )
            CertificateFiles(certificate, key).context()
        return cls(host.strip("[]") or "127.0.0.1", int(port), certificate, key, option)

    @contextlib.contextmanager
    def bound(self) -> Iterator[socket.socket]:
        """Open the listening socket; fails if another process listens there."""
        try:
            family, _, _, _, address = socket.getaddrinfo(
                self.host, self.port, type=socket.SOCK_STREAM
            )[0]
        except (OSError, UnicodeError):
            raise InputError(
                f"{self.option} {self.host}:{self.port} is not an address of this machine."
            ) from None
        with socket.socket(family, socket.SOCK_STREAM) as listening:
            if os.name == "posix":
                # Allows an address that was in use a moment ago, not one on which a process
                # listens.
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if hasattr(socket, "TCP_USER_TIMEOUT"):  # accepted connections inherit it
                listening.setsockopt(
                    socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(1000 * UNREAD_SECONDS)
                )
            try:
                listening.bind(address)
                listening.listen(MAX_CONNECTIONS_OPEN)
            except OSError as error:
                raise InputError(
                    f"cannot listen on {self.host}:{self.port}: {error.strerror or error}. "
                    "If a shuffler runs there already, stop it, or "
                    "choose another port."
                ) from None
            listening.setblocking(False)
            yield listening

    def url(self, listening: socket.socket) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http{'s' if self.certificate else ''}://{host}:{listening.getsockname()[1]}"

    def warning(self, listening: socket.socket) -> str:
        """Warning if the network could observe who reports; empty otherwise."""
        if (
            self.certificate
            or ipaddress.ip_address(listening.getsockname()[0].partition("%")[0]).is_loopback
        ):
            return ""
        return (
            f"Warning: {self.url(listening)} can be reached from other machines without TLS: "
            "anyone who watches the network sees who takes part, and the operator's token. "
            "Give --certificate and --key, or listen on 127.0.0.1 behind a proxy that has "
            "them."
        )
