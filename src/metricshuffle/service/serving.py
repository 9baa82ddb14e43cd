"""Running a shuffler: one process that listens, writes and drives, and that may be killed at any moment.

The socket is bound here and handed to the server below. That server would share its port with another process that listens there already
(SO_REUSEPORT), and half of all reports would go to whoever that is; a socket of our own is refused by the system instead.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import signal
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from metricshuffle.errors import InputError, MetricShuffleError, require
from metricshuffle.service.keys import KeyFolder
from metricshuffle.service.states import Shuffler
from metricshuffle.service.stores import file_of, store_of

if TYPE_CHECKING:
    from metricshuffle.service.ingest import Intake

HEADER_SECONDS = 5.0
"""In which the head of a request has arrived; an idle connection is closed after as long."""
UNREAD_SECONDS = 30.0
"""After which whoever takes nothing of an answer is cut off, where the system can; else four thousand who read nothing would be enough."""
CONNECTIONS = 4096
"""Open at once, if the system allows so many; further ones wait."""
STARTING_SECONDS, STOPPING_SECONDS = 30.0, 20.0
PAUSE = 1.0
"""Seconds before collections are driven again after a fault."""

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Listener:
    """Where to listen, and with what certificate."""

    host: str
    port: int
    certificate: Path | None = None
    key: Path | None = None

    @classmethod
    def of(cls, listen: str, certificate: Path | None = None, key: Path | None = None) -> Listener:
        """From words like 127.0.0.1:8460, [::1]:8460 or localhost:0; port 0 takes one that is free."""
        host, colon, port = listen.rpartition(":")
        if not colon or not port.isdigit() or int(port) > 65535 or (":" in host and not host.startswith("[")):
            raise InputError(f"--listen must be an address and a port like 127.0.0.1:8460, got {listen!r}.")
        if (certificate is None) != (key is None):
            raise InputError("--certificate and --key belong together: give both, or none.")
        for path in (certificate, key):
            if path is not None and not path.is_file():
                raise InputError(f"cannot read {path}: there is no such file.")
        if certificate is not None and key is not None:
            try:
                ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
            except (ssl.SSLError, OSError):
                raise InputError(f"{certificate} and {key} are not a certificate and its key, in PEM.") from None
        return cls(host.strip("[]") or "127.0.0.1", int(port), certificate, key)

    @contextlib.contextmanager
    def bound(self) -> Iterator[socket.socket]:
        """A socket that listens there, and nobody else's."""
        try:
            family, _, _, _, address = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)[0]
        except (OSError, UnicodeError):
            raise InputError(f"--listen {self.host}:{self.port} is no address of this machine.") from None
        with socket.socket(family, socket.SOCK_STREAM) as listening:
            if os.name == "posix":  # an address may be used again at once; one on which somebody listens may not
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if hasattr(socket, "TCP_USER_TIMEOUT"):  # (what is accepted has it too)
                listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(1000 * UNREAD_SECONDS))
            try:
                listening.bind(address)
                listening.listen(CONNECTIONS)
            except OSError as wrong:
                raise InputError(
                    f"cannot listen on {self.host}:{self.port}: {wrong.strerror or wrong}. If a shuffler runs there already, stop it, or "
                    "choose another port."
                ) from None
            listening.setblocking(False)
            yield listening

    def url(self, listening: socket.socket) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http{'s' if self.certificate else ''}://{host}:{listening.getsockname()[1]}"

    def warning(self, listening: socket.socket) -> str:
        """A sentence if everybody on the network could watch who reports; empty if not."""
        if self.certificate or ipaddress.ip_address(listening.getsockname()[0].partition("%")[0]).is_loopback:
            return ""
        return (
            f"Warning: {self.url(listening)} can be reached from other machines without TLS: whoever watches the network sees who takes "
            "part, and the operator's token. Give --certificate and --key, or listen on 127.0.0.1 behind a proxy that has them."
        )


@dataclass(frozen=True)
class Serving:
    """A shuffler that is about to run."""

    store: str
    """The address of its database."""
    keys: Path
    listener: Listener
    after: str | None = None
    origins: tuple[str, ...] = ()
    abandon: bool = False
    """Whether collections whose keys are not in the folder are given up."""

    def run(self, ready: Callable[[str], None], tell: Tell) -> None:
        """Serve until SIGTERM or SIGINT. `ready` is called with the address once reports are accepted."""
        for module in ("granian", "starlette", "httpx"):
            require(module, "service")
        from metricshuffle.service.ingest import Intake

        tell = _unfailing(tell)
        with self.listener.bound() as listening:
            keys = KeyFolder.at(self.keys)
            store = store_of(self.store)
            try:
                shuffler = Shuffler(store, keys, after=self.after, tell=tell, abandon=self.abandon)
                if not self.abandon:
                    shuffler.check_keys()
                intake = Intake(store, keys, folders=_folders_of(self.store), tell=tell)
                if warning := self.listener.warning(listening):
                    tell(warning)
                with _driven(shuffler, tell):
                    _run(self._served(shuffler, intake, listening, ready, tell))
            finally:
                store.close()

    async def _served(self, shuffler: Shuffler, intake: Intake, listening: socket.socket, ready: Callable[[str], None], tell: Tell) -> None:
        from metricshuffle.service.server import Application

        application = Application(shuffler, intake, origins=self.origins, tell=tell)
        server = _server(application, listening, self.listener)
        loop = asyncio.get_running_loop()

        def stop() -> None:
            server.stop()
            application.hurry()

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop)
        serving = asyncio.create_task(server.serve())
        forgetting = asyncio.create_task(intake.forget_closed())
        try:
            await _first_answer(self.listener, listening, serving)
            if not serving.done():
                ready(self.listener.url(listening))
            await serving
        finally:
            forgetting.cancel()
            await asyncio.to_thread(intake.close)
            await asyncio.sleep(0)  # the last answers
        if not server.interrupt_signal:
            raise MetricShuffleError("the server stopped by itself; start it again.")


def checked_address(url: str, option: str) -> str:
    """The address of a server without a path, written in the one way in which it is compared: https://shuffler.example."""
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(url.strip())
        known = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        known = False
    if not known or not url.isascii() or "@" in parts.netloc or parts.path.strip("/") or parts.query or parts.fragment:
        raise InputError(f"{option} must be an address like https://shuffler.example:8460, got {url!r}.")
    return f"{parts.scheme}://{parts.netloc.lower()}"


def _server(application: Any, listening: socket.socket, listener: Listener) -> Any:
    """granian inside this process: no second one is left behind when this is killed."""
    from granian._granian import SocketHolder
    from granian.constants import HTTPModes, Interfaces
    from granian.http import HTTP1Settings
    from granian.server.embed import Server

    class OnOurSocket(Server):  # type: ignore[misc]
        def _init_shared_socket(self) -> None:
            self._sfd = os.dup(listening.fileno())  # (it closes what it was given)
            self._ssp, self._shd = None, SocketHolder(self._sfd, False, CONNECTIONS)  # type: ignore[call-arg]

    return OnOurSocket(
        application,
        interface=Interfaces.ASGINL,
        http=HTTPModes.http1,
        websockets=False,
        backlog=CONNECTIONS,
        backpressure=_room_for_connections(),
        http1_settings=HTTP1Settings(header_read_timeout=int(1000 * HEADER_SECONDS), max_buffer_size=64 * 2**10),
        log_enabled=False,
        ssl_cert=listener.certificate,
        ssl_key=listener.key,
    )


def _room_for_connections() -> int:
    """As many as files may be open, less those of ours; the system is asked for more first."""
    try:
        import resource
    except ImportError:
        return CONNECTIONS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = CONNECTIONS + 256
    if soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return max(64, min(CONNECTIONS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 256))


async def _first_answer(listener: Listener, listening: socket.socket, serving: asyncio.Task[Any]) -> None:
    """Wait until a call over the network is answered."""
    context = None
    if listener.certificate:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # it is our own
    host, port = listening.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - where to ask, not where to listen
    end = asyncio.get_running_loop().time() + STARTING_SECONDS
    while not serving.done():
        with contextlib.suppress(OSError, asyncio.TimeoutError):
            async with asyncio.timeout(HEADER_SECONDS):
                reader, writer = await asyncio.open_connection(host, port, ssl=context)
                writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                answer = await reader.readline()
                writer.close()
                if b" 200 " in answer:
                    return
        if asyncio.get_running_loop().time() > end:
            raise MetricShuffleError(f"the shuffler does not answer on {listener.url(listening)}; see whether its database can be used.")
        await asyncio.sleep(0.02)


@contextlib.contextmanager
def _driven(shuffler: Shuffler, tell: Tell) -> Iterator[None]:
    """Collections are driven through their states meanwhile, by a thread of their own."""
    from metricshuffle.service.server import sentence_of

    stop = threading.Event()

    def drive() -> None:
        while not stop.is_set():
            try:
                shuffler.run(stop)
            except Exception as wrong:
                tell(f"Collections are not driven; it is tried again. Please report this bug: {sentence_of(wrong)}")
                stop.wait(PAUSE)

    driver = threading.Thread(target=drive, name="driver", daemon=True)
    driver.start()
    try:
        yield
    finally:
        stop.set()
        driver.join(STOPPING_SECONDS)  # what is cut short by the end of the process is done again by the next one


def _unfailing(tell: Tell) -> Tell:
    """The same, but where nothing can be said any more (a terminal that is gone, a log on a full disk) the shuffler goes on in silence."""

    def told(text: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            tell(text)

    return told


def _folders_of(store: str) -> tuple[Path, ...]:
    """Where the database of an address has its file, if it has one here."""
    path = file_of(store)
    return () if path is None else (path.absolute().parent,)


def _run(main: Awaitable[None]) -> None:
    try:
        from uvloop import run
    except ImportError:  # (there is none for Windows)
        from asyncio import run
    run(main)
