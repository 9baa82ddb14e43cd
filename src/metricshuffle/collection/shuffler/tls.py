"""TLS in front of the HTTP server, with a limit of connections and a deadline for handshakes.

The HTTP server counts a connection only once its handshake is over, so idle or slow clients could
use up all files that the process may open. Here a connection costs one file until its greeting
(ClientHello) is complete and its handshake is over; only then is the connection joined to the HTTP
server, through a Unix socket that no other user can open. When there is no room, connections are
dropped in this order: without a greeting, with an unfinished handshake, between two requests or
before the first.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import ssl
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from metricshuffle.collection.shuffler.log_events import Log, LogEvent
from metricshuffle.errors import InputError
from metricshuffle.files import check_private

HANDSHAKE_SECONDS = 10.0
"""Time limit from the connection to the end of the handshake."""
IDLE_SECONDS = 0.05
"""Time for which an idle connection keeps its place while others wait."""
FIRST_PATIENCE = 0.25
"""Additional time for the first request, which clients send right after the handshake."""
HANDSHAKE_PATIENCE = 5.0
"""Time for which an unfinished handshake keeps its place while others wait."""
JOIN_SECONDS = 30.0
"""Time limit for joining a connection to the HTTP server after its handshake."""
POLL_SECONDS = 0.02
"""Interval between checks for a complete greeting, or for room."""
FLUSH_SECONDS = 2.0
ACCEPT_BATCH_SIZE = 64
"""Connections accepted at once."""
FILES_EACH = 3
"""Files of a joined connection: its own, and both ends of the Unix socket."""
MAX_GREETING_BYTES = 5 + 2**14
NO_FILES_ERRORS = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
PLAIN_HTTP_ANSWER = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Length: 41\r\nConnection: close\r\n\r\n"
    b"This port takes https:// addresses only.\r\n"
)


def server_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """TLS 1.3 context; raises `InputError` if key and certificate do not match."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(certificate, key)
    except (ssl.SSLError, OSError):
        raise InputError(
            f"{certificate} and {key} are not a certificate and its key, in PEM; give "
            "the files of one pair."
        ) from None
    return context


@dataclass(frozen=True)
class CertificateFiles:
    """Files of a certificate chain and of its key, in PEM."""

    certificate: Path
    key: Path

    def context(self) -> ssl.SSLContext:
        """Read both; raises `InputError` if they do not match, or if others can read the key."""
        context = server_context(self.certificate, self.key)
        check_private(self.key, "the key of the certificate")
        return context


class RelaySide(asyncio.Protocol):
    """One side of a joined connection; data that arrive are written to the other side."""

    def __init__(self, relay: Relay, *, from_client: bool) -> None:
        self._relay = relay
        self._from_client = from_client
        self.other: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if self._from_client:  # its data are read once the other side is connected
            transport.pause_reading()  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        self._relay.note(between_requests=not self._from_client)
        if self.other is not None:
            self.other.write(data)

    def pause_writing(self) -> None:
        if self.other is not None and not self.other.is_closing():
            self.other.pause_reading()  # type: ignore[attr-defined]

    def resume_writing(self) -> None:
        if self.other is not None and not self.other.is_closing():
            self.other.resume_reading()  # type: ignore[attr-defined]

    def connection_lost(self, _: Exception | None) -> None:
        self._relay.end(self)


class Relay:
    """Connection whose handshake is over, joined to the HTTP server."""

    def __init__(self, front: TlsFront) -> None:
        self._front = front
        self.client, self.server = (
            RelaySide(self, from_client=True),
            RelaySide(self, from_client=False),
        )
        self.between_requests = True
        self.since = front.time()
        self.transports: list[asyncio.WriteTransport] = []

    def note(self, *, between_requests: bool) -> None:
        self.between_requests, self.since = between_requests, self._front.time()

    def join(self, client: asyncio.WriteTransport, server: asyncio.WriteTransport) -> None:
        self.transports = [client, server]
        self.client.other, self.server.other = server, client
        client.resume_reading()  # type: ignore[attr-defined]

    def end(self, side: RelaySide) -> None:
        """Close the other side after sending what was read from the side that ended."""
        if side.other is not None:
            side.other.close()
            if side is self.server:  # a client that reads nothing loses its place
                self._front.later(FLUSH_SECONDS, side.other.abort)
        if side is self.client:
            self._front.leave(self)

    def close(self) -> None:
        """Close the connection after pending answers were sent, within a time limit."""
        for transport in self.transports:
            transport.close()
            self._front.later(FLUSH_SECONDS, transport.abort)

    def abort(self) -> None:
        for transport in self.transports:
            transport.abort()


class TlsFront:
    """Accepts connections, performs TLS handshakes, and joins them to the HTTP server."""

    def __init__(
        self, listening: socket.socket, certificate: CertificateFiles, server: Path, files: int
    ) -> None:
        """Start accepting; all connections together use at most `files` files."""
        self._listening = listening
        self._certificate_files = certificate
        self._context = certificate.context()
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._max_joined = max(4, files // (4 * FILES_EACH))
        self._max_arriving = max(8, files - FILES_EACH * self._max_joined)
        self._silent: OrderedDict[socket.socket, float] = OrderedDict()
        self._handshakes: OrderedDict[asyncio.Task[None], float] = OrderedDict()
        self._waiting: set[asyncio.Task[None]] = set()
        self._joining = 0
        self._relays: set[Relay] = set()
        self._room = asyncio.Event()
        self._accepting = self._closed = False
        # The system does not report a connection for some seconds if it sends nothing.
        if hasattr(socket, "TCP_DEFER_ACCEPT"):
            with contextlib.suppress(OSError):
                listening.setsockopt(
                    socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, int(HANDSHAKE_SECONDS)
                )
        self._resume()

    def time(self) -> float:
        return self._loop.time()

    def later(self, seconds: float, callback: Callable[[], object]) -> None:
        self._loop.call_later(seconds, callback)

    def reload_certificate(self, log: Log) -> None:
        """Read the files again, for connections whose handshake has not begun.

        If they cannot be used, the previous certificate stays in use.
        """
        try:
            self._context = self._certificate_files.context()
        except InputError as error:
            log(LogEvent(f"The previous certificate stays in use: {error}", "trouble"))
        else:
            log(LogEvent("The certificate was reloaded.", "certificate"))

    @property
    def joined(self) -> int:
        return self._joining + len(self._relays)

    # Accepting

    def _resume(self) -> None:
        if not self._accepting and not self._closed:
            self._accepting = True
            self._loop.add_reader(self._listening.fileno(), self._accept)

    def _pause(self) -> None:
        if self._accepting:
            self._accepting = False
            self._loop.remove_reader(self._listening.fileno())
            self.later(POLL_SECONDS, self._resume)

    def _accept(self) -> None:
        for _ in range(ACCEPT_BATCH_SIZE):
            if (
                len(self._silent) + len(self._handshakes) + len(self._waiting) >= self._max_arriving
                and not self._drop_longest_waiting()
            ):
                self._pause()
                return
            try:
                connection, _ = self._listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in NO_FILES_ERRORS:
                    self._drop_longest_waiting()
                    self._pause()
                    return
                continue  # the client has disconnected
            connection.setblocking(False)
            self._silent[connection] = self.time()
            self._read_greeting(connection)
            self.later(HANDSHAKE_SECONDS, partial(self._drop_silent, connection))

    def _drop_longest_waiting(self) -> bool:
        """Drop the connection that has blocked others for longest; return whether there was one."""
        now = self.time()
        for connection, since in list(self._silent.items()):
            if now - since < IDLE_SECONDS:
                break
            # Its greeting may have arrived while this loop was busy.
            self._read_greeting(connection)
            if self._drop_silent(connection):
                return True
        task, since = next(iter(self._handshakes.items()), (None, now))
        if task is not None and now - since >= HANDSHAKE_PATIENCE:
            del self._handshakes[task]
            task.cancel()
            return True
        return False

    def _drop_silent(self, connection: socket.socket) -> bool:
        if self._silent.pop(connection, None) is None:
            return False
        self._loop.remove_reader(connection.fileno())
        connection.close()
        return True

    # From the greeting to the HTTP server

    def _read_greeting(self, connection: socket.socket) -> None:
        """Begin the handshake once the greeting is complete."""
        if connection not in self._silent:
            return
        try:
            head = connection.recv(MAX_GREETING_BYTES, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            self._loop.add_reader(connection.fileno(), self._read_greeting, connection)
            return
        except OSError:
            head = b""
        if head[:1] != b"\x16":
            if head[:1].isalpha():
                with contextlib.suppress(OSError):
                    # Unread data would reset the connection and discard the answer.
                    connection.recv(MAX_GREETING_BYTES)
                    connection.send(PLAIN_HTTP_ANSWER)
            self._drop_silent(connection)
            return
        self._loop.remove_reader(connection.fileno())
        if len(head) < 5 or len(head) < min(
            MAX_GREETING_BYTES, 5 + int.from_bytes(head[3:5], "big")
        ):
            self.later(POLL_SECONDS, lambda: self._read_greeting(connection))
            return
        since = self._silent.pop(connection)
        task = self._loop.create_task(self._serve(connection, since))
        self._handshakes[task] = since
        task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._handshakes.pop(task, None)
        self._waiting.discard(task)

    async def _serve(self, connection: socket.socket, since: float) -> None:
        relay = Relay(self)
        try:
            client, _ = await self._loop.connect_accepted_socket(
                lambda: relay.client,
                connection,
                ssl=self._context,
                ssl_shutdown_timeout=FLUSH_SECONDS,
                ssl_handshake_timeout=max(POLL_SECONDS, since + HANDSHAKE_SECONDS - self.time()),
            )
        except (OSError, asyncio.CancelledError):  # errors of ssl are OSErrors
            connection.close()
            return
        if (task := asyncio.current_task()) is not None:
            self._forget(task)
            self._waiting.add(task)
        try:
            async with asyncio.timeout(JOIN_SECONDS):
                while self.joined >= self._max_joined and not self._close_idle():
                    self._room.clear()
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self._room.wait(), POLL_SECONDS)
                self._joining += 1
                try:
                    server, _ = await self._loop.create_unix_connection(
                        lambda: relay.server, str(self._server)
                    )
                finally:
                    self._joining -= 1
        except (OSError, asyncio.CancelledError):
            client.abort()
            return
        if client.is_closing() or self._closed:
            client.abort()
            server.abort()
            return
        self._relays.add(relay)
        relay.since = self.time() + FIRST_PATIENCE
        relay.join(client, server)

    def _close_idle(self) -> bool:
        """Close the connection that has been idle for longest; return whether there was one."""
        idle = [
            relay
            for relay in self._relays
            if relay.between_requests and self.time() - relay.since >= IDLE_SECONDS
        ]
        if not idle:
            return False
        relay = min(idle, key=lambda each: each.since)
        self._relays.discard(relay)
        relay.close()
        return True

    def leave(self, relay: Relay) -> None:
        self._relays.discard(relay)
        self._room.set()

    def stop_accepting(self) -> None:
        """Stop accepting, and drop connections without a request."""
        if self._accepting:
            self._accepting = False
            self._loop.remove_reader(self._listening.fileno())
        self._closed = True
        for connection in list(self._silent):
            self._drop_silent(connection)
        for task in (*self._handshakes, *self._waiting):
            task.cancel()

    def close(self) -> None:
        self.stop_accepting()
        for relay in list(self._relays):
            relay.abort()
