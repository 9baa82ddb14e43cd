"""TLS before the HTTP server: connections are bounded before the handshake, and a handshake has a deadline.

The HTTP server below counts a connection once its handshake is over, so that idle or slow strangers could use up every file that the
process may open. Here a connection costs one file until its greeting has arrived as a whole and its handshake is over; only then is it
joined to the HTTP server, by a Unix socket that nobody else can open. When there is no room, those who keep others waiting are dropped
first: whoever has not sent a greeting, then unfinished handshakes, then connections between two requests or before the first.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import ssl
from collections import OrderedDict
from pathlib import Path
from typing import Any

from metricshuffle.errors import InputError

HANDSHAKE_SECONDS = 10.0
"""From the connection to the end of the handshake."""
IDLE_SECONDS = 0.05
"""Seconds that somebody who sends no greeting, or no next request, keeps a place that others wait for."""
FIRST_PATIENCE = 0.25
"""Seconds more that a first request has, where others wait; clients send it along with the end of the handshake."""
HANDSHAKE_PATIENCE = 5.0
"""Seconds that an unfinished handshake keeps a place that others wait for."""
JOIN_SECONDS = 30.0
"""In which whoever has shaken hands is joined to the HTTP server; a crowd waits its turn."""
POLL_SECONDS = 0.02
"""Seconds between looks at whether a greeting is complete, or whether there is room again."""
FLUSH_SECONDS = 2.0
ACCEPT_BATCH_SIZE = 64
"""Connections that are accepted before anything else is done."""
FILES_EACH = 3
"""Files of a connection that is joined: its own, and both ends of the Unix socket."""
MAX_GREETING_BYTES = 5 + 2**14
NO_FILES_ERRORS = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
PLAIN_HTTP_ANSWER = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Length: 41\r\nConnection: close\r\n\r\nThis port takes https:// addresses only.\r\n"
)


def server_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """TLS 1.3 with this certificate; `InputError` if the two files do not belong together."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(certificate, key)
    except (ssl.SSLError, OSError):
        raise InputError(f"{certificate} and {key} are not a certificate and its key, in PEM.") from None
    return context


class RelaySide(asyncio.Protocol):
    """One side of a joined connection: what arrives here is written to the other side."""

    def __init__(self, relay: Relay, *, from_client: bool) -> None:
        self._relay, self._from_client = relay, from_client
        self.other: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if self._from_client:  # nothing is read until there is somewhere to write it
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
    """A connection whose handshake is over, joined to the HTTP server."""

    def __init__(self, front: TlsFront) -> None:
        self._front = front
        self.client, self.server = RelaySide(self, from_client=True), RelaySide(self, from_client=False)
        self.between_requests, self.since = True, front.time()
        self.transports: list[asyncio.WriteTransport] = []

    def note(self, *, between_requests: bool) -> None:
        self.between_requests, self.since = between_requests, self._front.time()

    def join(self, client: asyncio.WriteTransport, server: asyncio.WriteTransport) -> None:
        self.transports = [client, server]
        self.client.other, self.server.other = server, client
        client.resume_reading()  # type: ignore[attr-defined]

    def end(self, half: RelaySide) -> None:
        """One side is gone: what was read of it still goes to the other side, which is then closed."""
        if half.other is not None:
            half.other.close()
            if half is self.server:  # a client that reads nothing does not keep its place
                self._front.later(FLUSH_SECONDS, half.other.abort)
        if half is self.client:
            self._front.leave(self)

    def close(self) -> None:
        """What was answered still goes out, for a while."""
        for transport in self.transports:
            transport.close()
            self._front.later(FLUSH_SECONDS, transport.abort)

    def abort(self) -> None:
        for transport in self.transports:
            transport.abort()


class TlsFront:
    """Accepts connections on a listening socket, shakes hands, and joins them to the HTTP server at a Unix socket."""

    def __init__(self, listening: socket.socket, context: ssl.SSLContext, server: Path, files: int) -> None:
        """`files`: how many files all connections together may use."""
        self._listening, self._context, self._server = listening, context, server
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
        if hasattr(socket, "TCP_DEFER_ACCEPT"):  # whoever sends nothing is not even handed over, for some seconds
            with contextlib.suppress(OSError):
                listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, int(HANDSHAKE_SECONDS))
        self._resume()

    def time(self) -> float:
        return self._loop.time()

    def later(self, seconds: float, what: Any) -> None:
        self._loop.call_later(seconds, what)

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
            if len(self._silent) + len(self._handshakes) + len(self._waiting) >= self._max_arriving and not self._drop_longest_waiting():
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
                continue  # whoever it was has gone again
            connection.setblocking(False)
            self._silent[connection] = self.time()
            self._read_greeting(connection)
            self.later(HANDSHAKE_SECONDS, lambda silent=connection: self._drop_silent(silent))

    def _drop_longest_waiting(self) -> bool:
        """Drop whoever has kept others waiting for longest; whether there was somebody."""
        now = self.time()
        for connection, since in list(self._silent.items()):
            if now - since < IDLE_SECONDS:
                break
            self._read_greeting(connection)  # its greeting may be here, and this loop have been too busy to see it
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
        """Begin the handshake once the greeting has arrived as a whole."""
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
                    connection.recv(MAX_GREETING_BYTES)  # (what is left unread would take the answer with it)
                    connection.send(PLAIN_HTTP_ANSWER)
            self._drop_silent(connection)
            return
        self._loop.remove_reader(connection.fileno())
        if len(head) < 5 or len(head) < min(MAX_GREETING_BYTES, 5 + int.from_bytes(head[3:5], "big")):
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
                lambda: relay.client, connection, ssl=self._context, ssl_shutdown_timeout=FLUSH_SECONDS,
                ssl_handshake_timeout=max(POLL_SECONDS, since + HANDSHAKE_SECONDS - self.time()),
            )  # fmt: skip
        except (OSError, asyncio.CancelledError):  # (what ssl raises is an OSError)
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
                    server, _ = await self._loop.create_unix_connection(lambda: relay.server, str(self._server))
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
        """Close the connection that has been between two requests for longest; whether there was one."""
        idle = [relay for relay in self._relays if relay.between_requests and self.time() - relay.since >= IDLE_SECONDS]
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
        """Take nobody new, and let those go who have asked nothing yet."""
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
