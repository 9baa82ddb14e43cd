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
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from metricshuffle.collection.keys import KeyFolder
from metricshuffle.collection.memory import forbid_memory_dumps, locked_memory
from metricshuffle.collection.shuffler.lifecycle import Shuffler
from metricshuffle.collection.shuffler.tls import FILES_EACH, TlsFront, server_context
from metricshuffle.collection.store.factory import connect_store, database_file
from metricshuffle.collection.store.guarded_clock import MAX_CLOCK_JUMP_SECONDS
from metricshuffle.errors import InputError, MetricShuffleError, require
from metricshuffle.files import check_private

if TYPE_CHECKING:
    from metricshuffle.collection.shuffler.asgi_app import Application
    from metricshuffle.collection.shuffler.ingest import Intake

HEADER_SECONDS = 5.0
"""In which the head of a request has arrived; an idle connection is closed after as long."""
UNREAD_SECONDS = 30.0
"""After which whoever takes nothing of an answer is cut off, where the system can; else four thousand who read nothing would be enough."""
MAX_CONNECTIONS_OPEN = 4096
"""Open at once, if the system allows so many; further ones wait."""
RESERVED_FILES = 192
"""Files that the shuffler itself may have open: its database, keys, outputs, and calls to other hops."""
STARTING_SECONDS, STOPPING_SECONDS = 30.0, 5.0
EXIT_SECONDS = 8.0
"""After which a shuffler that is told to stop ends, whatever is still open: all that was acknowledged is stored."""
WATCH_SECONDS, MAX_SILENT_CHECKS = 5.0, 12
"""How often it is looked whether calls are answered, and how many looks without a single answer end the process."""
UNSERVING_EXIT_CODE = 75
"""The exit code of a shuffler that ended because it answered nobody (a temporary failure, to a supervisor)."""
RESTART_PAUSE_SECONDS = 1.0
"""Seconds before collections are driven again after a fault."""

Log = Callable[[str], None]


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
            if not hasattr(socket, "AF_UNIX"):
                raise InputError("--certificate does not work on this system; listen on 127.0.0.1 and put a proxy with TLS in front.")
            server_context(certificate, key)
            check_private(key, "the key of the certificate")
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
                listening.listen(MAX_CONNECTIONS_OPEN)
            except OSError as error:
                raise InputError(
                    f"cannot listen on {self.host}:{self.port}: {error.strerror or error}. If a shuffler runs there already, stop it, or "
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
class ShufflerServer:
    """A shuffler that is about to run."""

    store: str
    """The address of its database."""
    keys: Path
    listener: Listener
    after: str | None = None
    origins: tuple[str, ...] = ()
    abandon: tuple[str, ...] = ()
    """Digests of collections of this folder that are given up because their keys are lost."""
    clock_jump: float = MAX_CLOCK_JUMP_SECONDS
    """Seconds that the clock may be ahead of the steady one before nothing is decided by it any more."""
    witness: str | None = None
    """The address of the shuffler that countersigns what this one lets go."""
    witness_for: tuple[str, ...] = ()
    """Keys of shufflers for which this one does so."""

    def run(self, ready: Callable[[str], None], tell: Log) -> None:
        """Serve until SIGTERM or SIGINT. `ready` is called with the address once reports are accepted."""
        for module in ("granian", "starlette", "httpx"):
            require(module, "service")
        from metricshuffle.collection.shuffler.ingest import Intake

        tell = _ignore_log_errors(tell)
        forbid_memory_dumps()
        with locked_memory() as locked, self.listener.bound() as listening:
            keys = KeyFolder.at(self.keys)
            store = connect_store(self.store, jump=self.clock_jump)
            try:
                shuffler = Shuffler(
                    store, keys, after=self.after, tell=tell, abandon=self.abandon, witness=self.witness, witness_for=self.witness_for
                )
                shuffler.check_keys(self.abandon)
                tell(locked)
                _tell_of_witnesses(shuffler, tell)
                intake = Intake(store, keys, folders=_folders_of(self.store), tell=tell)
                if warning := self.listener.warning(listening):
                    tell(warning)
                if warning := plain_hop_warning(self.after):
                    tell(warning)
                with _driven(shuffler, tell):
                    _run(self._serve(shuffler, intake, listening, ready, tell))
            finally:
                store.close()

    async def _serve(self, shuffler: Shuffler, intake: Intake, listening: socket.socket, ready: Callable[[str], None], tell: Log) -> None:
        from metricshuffle.collection.shuffler.asgi_app import Application

        application = Application(shuffler, intake, origins=self.origins, tell=tell)
        loop = asyncio.get_running_loop()
        with self._server(application, listening) as (server, front):

            def stop() -> None:
                _exit_after_deadline(tell)
                if front is not None:
                    front.stop_accepting()
                server.stop()
                application.shorten_deadlines()

            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, stop)
            serving = asyncio.create_task(server.serve())
            forgetting = asyncio.create_task(intake.forget_closed())
            try:
                await _wait_until_ready(self.listener, listening, serving)
                if not serving.done():
                    _watch(application, self.listener, listening, tell)
                    ready(self.listener.url(listening))
                await serving
            finally:
                forgetting.cancel()
                await asyncio.to_thread(intake.close)
                await asyncio.sleep(0)  # the last answers
        if not server.interrupt_signal:
            raise MetricShuffleError("the server stopped by itself; start it again.")

    @contextlib.contextmanager
    def _server(self, application: Any, listening: socket.socket) -> Iterator[tuple[Any, TlsFront | None]]:
        """granian on our socket; with a certificate on a Unix socket that only this user can open, and TLS before it."""
        if self.listener.certificate is None or self.listener.key is None:
            yield _server(application, listening, _room_for_connections(1)), None
            return
        room = _room_for_connections(FILES_EACH)
        with tempfile.TemporaryDirectory(prefix="metricshuffle-") as folder:  # (mode 0700)
            inside = Path(folder) / "http"
            server = _server(application, inside, room)
            front = TlsFront(listening, server_context(self.listener.certificate, self.listener.key), inside, room * FILES_EACH)
            try:
                yield server, front
            finally:
                front.close()


def validate_address(url: str, option: str) -> str:
    """The address of a server without a path, written in the one way in which it is compared: https://shuffler.example."""
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(url.strip())
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        is_valid = False
    if not is_valid or not url.isascii() or "@" in parts.netloc or parts.path.strip("/") or parts.query or parts.fragment:
        raise InputError(f"{option} must be an address like https://shuffler.example:8460, got {url!r}.")
    return f"{parts.scheme}://{parts.netloc.lower()}"


def _tell_of_witnesses(shuffler: Shuffler, tell: Log) -> None:
    """The keys that the operators of a shuffler and of its witness tell each other."""
    if shuffler.witness is not None:
        key = shuffler.witness.key.public
        tell(f"The witness {shuffler.witness.url} is asked with the key {key}; its operator allows that with serve --witness-for {key}.")
    if shuffler.countersigner is not None:
        count, key = len(shuffler.countersigner.askers), shuffler.countersigner.key
        tell(f"This is the witness of {count:,} other shuffler{'s' * (count != 1)}; it countersigns with the key {key}.")


def plain_hop_warning(after: str | None) -> str:
    """A sentence if messages of the shuffler before this one come without TLS over a network; empty if not."""
    from urllib.parse import urlsplit

    host = urlsplit(after or "").hostname or ""
    if after is None or not after.startswith("http://") or is_loopback(host):
        return ""
    return (
        f"Warning: --after {after} is asked without TLS: whoever watches the network sees the token with which this shuffler fetches, and "
        "could fetch in its place and so end the collection. Messages stay sealed. Give an https:// address."
    )


def is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _server(application: Any, where: socket.socket | Path, connections: int) -> Any:
    """granian inside this process: no second one is left behind when this is killed."""
    from granian._granian import SocketHolder
    from granian.constants import HTTPModes, Interfaces
    from granian.http import HTTP1Settings
    from granian.server.embed import Server

    class OnOurSocket(Server):  # type: ignore[misc]
        def _init_shared_socket(self) -> None:
            if isinstance(where, Path):
                super()._init_shared_socket()
                return
            self._sfd = os.dup(where.fileno())  # (it closes what it was given)
            self._ssp, self._shd = None, SocketHolder(self._sfd, False, MAX_CONNECTIONS_OPEN)  # type: ignore[call-arg]

    return OnOurSocket(
        application,
        uds=where if isinstance(where, Path) else None,
        interface=Interfaces.ASGINL,
        http=HTTPModes.http1,
        websockets=False,
        backlog=MAX_CONNECTIONS_OPEN,
        backpressure=connections,
        http1_settings=HTTP1Settings(header_read_timeout=int(1000 * HEADER_SECONDS), max_buffer_size=64 * 2**10),
        log_enabled=False,
    )


def _room_for_connections(files: int) -> int:
    """As many connections of so many files each as may be open, less those of ours; the system is asked for more first."""
    try:
        import resource
    except ImportError:
        return MAX_CONNECTIONS_OPEN
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = files * MAX_CONNECTIONS_OPEN + RESERVED_FILES
    if soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return max(16, min(MAX_CONNECTIONS_OPEN, (resource.getrlimit(resource.RLIMIT_NOFILE)[0] - RESERVED_FILES) // files))


async def _wait_until_ready(listener: Listener, listening: socket.socket, serving: asyncio.Task[Any]) -> None:
    """Wait until a call over the network is answered."""
    host, port, context = _own_address(listener, listening)
    end = asyncio.get_running_loop().time() + STARTING_SECONDS
    while not serving.done():
        with contextlib.suppress(OSError, asyncio.TimeoutError):
            async with asyncio.timeout(HEADER_SECONDS):
                reader, writer = await asyncio.open_connection(host, port, ssl=context)
                writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                answer = await reader.readline()
                writer.close()
                if b" 200 " in answer or b" 503 " in answer:  # (a full disk is no reason not to begin)
                    return
        if asyncio.get_running_loop().time() > end:
            raise MetricShuffleError(f"the shuffler does not answer on {listener.url(listening)}; see whether its database can be used.")
        await asyncio.sleep(0.02)


def _own_address(listener: Listener, listening: socket.socket) -> tuple[str, int, ssl.SSLContext | None]:
    """Where to ask oneself, and how."""
    context = None
    if listener.certificate:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # it is our own
    host, port = listening.getsockname()[:2]
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), port, context  # noqa: S104 - where to ask, not where to listen


def _watch(application: Application, listener: Listener, listening: socket.socket, tell: Log) -> None:
    """End the process if it answers nobody any more, so that whoever watches over it starts it again.

    An answer to anybody will do; if nobody asks, this asks. Looks are counted, not seconds: a machine that slept is no fault.
    """
    host, port, context = _own_address(listener, listening)

    def ask() -> None:
        with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=WATCH_SECONDS) as connection:
            line = connection if context is None else context.wrap_socket(connection)
            line.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            line.recv(1)

    def watch() -> None:
        silent, answered = 0, application.answered
        while silent < MAX_SILENT_CHECKS:
            time.sleep(WATCH_SECONDS)
            if application.answered == answered:
                ask()
            silent, answered = (silent + 1 if application.answered == answered else 0), application.answered
        tell("The shuffler has answered nobody for a minute, not even itself; it ends, to be started again.")
        os._exit(UNSERVING_EXIT_CODE)

    threading.Thread(target=watch, name="watchdog", daemon=True).start()


def _exit_after_deadline(tell: Log) -> None:
    """End the process soon, whatever keeps it from ending: all that was acknowledged is stored, the rest is done again."""

    def end() -> None:
        time.sleep(EXIT_SECONDS)
        tell("Stopped, with something still open; the next start goes on with it.")
        sys.stderr.flush()
        os._exit(0)

    threading.Thread(target=end, name="last end", daemon=True).start()


@contextlib.contextmanager
def _driven(shuffler: Shuffler, tell: Log) -> Iterator[None]:
    """Collections are driven through their states meanwhile, by a thread of their own."""
    from metricshuffle.collection.shuffler.asgi_app import failure_text

    stop = threading.Event()

    def drive() -> None:
        while not stop.is_set():
            try:
                shuffler.run(stop)
            except Exception as error:
                tell(f"Collections are not driven; it is tried again. Please report this bug: {failure_text(error)}")
                stop.wait(RESTART_PAUSE_SECONDS)

    driver = threading.Thread(target=drive, name="driver", daemon=True)
    driver.start()
    try:
        yield
    finally:
        stop.set()
        driver.join(STOPPING_SECONDS)  # what is cut short by the end of the process is done again by the next one


def _ignore_log_errors(tell: Log) -> Log:
    """The same, but where nothing can be said any more (a terminal that is gone, a log on a full disk) the shuffler goes on in silence."""

    def safe_log(text: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            tell(text)

    return safe_log


def _folders_of(store: str) -> tuple[Path, ...]:
    """Where the database of an address has its file, if it has one here."""
    path = database_file(store)
    return () if path is None else (path.absolute().parent,)


def _run(main: Awaitable[None]) -> None:
    try:
        from uvloop import run
    except ImportError:  # (there is none for Windows)
        from asyncio import run
    run(main)
