"""Server of a shuffler: one process that listens, stores and drives collections.

It may be killed at any moment. The socket is bound here and passed to the HTTP server, which would
otherwise share its port with another process that listens there (SO_REUSEPORT): half of all reports
would go to that one. Binding our own socket fails instead.
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
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from metricshuffle.collection.keys import KeyFolder
from metricshuffle.collection.memory import forbid_memory_dumps, locked_memory
from metricshuffle.collection.mixer.object_mixing import MixerSettings
from metricshuffle.collection.shuffler.drain import Drain
from metricshuffle.collection.shuffler.lifecycle import Shuffler
from metricshuffle.collection.shuffler.log_events import EventLog, Log, LogEvent, failure_text
from metricshuffle.collection.shuffler.metrics_page import MetricsPage, MetricsServer
from metricshuffle.collection.shuffler.readiness import SLOW, RefusalSampler
from metricshuffle.collection.shuffler.supervisor import notify_supervisor
from metricshuffle.collection.shuffler.tls import FILES_EACH, CertificateFiles, TlsFront
from metricshuffle.collection.store.factory import connect_store, database_file
from metricshuffle.collection.store.guarded_clock import MAX_CLOCK_JUMP_SECONDS
from metricshuffle.errors import InputError, MetricShuffleError, require

if TYPE_CHECKING:
    from metricshuffle.collection.shuffler.asgi_app import Application
    from metricshuffle.collection.shuffler.ingest import Intake

HEADER_SECONDS = 5.0
"""Time limit for the head of a request to arrive, and for an idle connection."""
UNREAD_SECONDS = 30.0
"""Time limit for a client that reads nothing of an answer, where the system supports it.

Without it, 4,096 such clients would block the server.
"""
MAX_CONNECTIONS_OPEN = 4096
"""Maximum number of open connections, if the system allows as many; further ones wait."""
RESERVED_FILES = 192
"""Open files reserved for the shuffler itself: database, keys, outputs, and calls to other hops."""
STARTING_SECONDS = 30.0
STOPPING_SECONDS = 5.0
EXIT_SECONDS = 8.0
"""Time limit for stopping, even with open connections: acknowledged reports are stored already."""
WATCH_SECONDS = 5.0
MAX_SILENT_CHECKS = 12
"""Interval of the watchdog, and the number of checks in a row without an answered call that end
the process."""
UNSERVING_EXIT_CODE = 75
"""Exit code of a shuffler that answered no calls (EX_TEMPFAIL, for a supervisor)."""
RESTART_PAUSE_SECONDS = 1.0
"""Pause before collections are driven again after a bug."""


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


class Driven(Protocol):
    """Service whose collections are driven in a thread."""

    def run(self, stop: threading.Event) -> None: ...


class HttpServer(Protocol):
    """Parts of granian's server that are used here."""

    interrupt_signal: bool

    async def serve(self) -> None: ...
    def stop(self) -> None: ...


@dataclass(frozen=True)
class ShufflerServer:
    """Settings of a shuffler, and how to run it."""

    store: str
    """Address of its database."""
    keys: Path
    listener: Listener
    after: str | None = None
    origins: tuple[str, ...] = ()
    abandon: tuple[str, ...] = ()
    """Digests of collections of this folder to abort because their keys are lost."""
    clock_jump: float = MAX_CLOCK_JUMP_SECONDS
    """Seconds by which the clock may be ahead of the steady one and still be accepted."""
    witness: str | None = None
    """Address of the shuffler that countersigns the outputs of this one."""
    witness_for: tuple[str, ...] = ()
    """Keys of the shufflers whose outputs this one countersigns."""
    drain: float = 0.0
    """Seconds from SIGTERM until the server stops listening."""
    metrics: Listener | None = None
    """Address of the metrics page, if any."""
    mixers: MixerSettings | None = None
    """Object store of mixers, if there is one."""

    def run(self, ready: Callable[[str], None], log: Log) -> None:
        """Serve until SIGTERM or SIGINT.

        `ready` is called with the address once reports are accepted.
        """
        for module in ("granian", "starlette", "httpx"):
            require(module, "service")
        from metricshuffle.collection.shuffler.ingest import Intake

        log = EventLog(ignore_log_errors(log))
        forbid_memory_dumps()
        with (
            locked_memory() as locked,
            self.listener.bound() as listening,
            bound_or_none(self.metrics) as metrics,
        ):
            keys = KeyFolder.at(self.keys)
            store = connect_store(self.store, jump=self.clock_jump)
            try:
                shuffler = Shuffler(
                    store,
                    keys,
                    after=self.after,
                    log=log,
                    abandon=self.abandon,
                    witness=self.witness,
                    witness_for=self.witness_for,
                    mixers=self.mixers,
                )
                shuffler.check_keys(self.abandon)
                log(locked)
                log_witnesses(shuffler, log)
                intake = Intake(store, keys, folders=folders_of(self.store), log=log)
                for warning in (self.listener.warning(listening), plain_hop_warning(self.after)):
                    if warning:
                        log(warning)
                with drive_collections(shuffler, log):
                    run_loop(self._serve(shuffler, intake, listening, metrics, ready, log))
            finally:
                store.close()

    async def _serve(
        self,
        shuffler: Shuffler | None,
        intake: Intake,
        listening: socket.socket,
        metrics: socket.socket | None,
        ready: Callable[[str], None],
        log: EventLog,
        reload: Callable[[Log], None] | None = None,
        application: Application | None = None,
    ) -> None:
        """Serve; SIGHUP reads certificates again, those of TLS and those of `reload`.

        `application` is that of another role than a shuffler's.
        """
        from metricshuffle.collection.shuffler.asgi_app import Application

        application = application or Application(shuffler, intake, origins=self.origins, log=log)
        sampler = RefusalSampler(application.readiness, intake.is_busy)
        trouble = {} if shuffler is None else shuffler.trouble
        leases = None if shuffler is None else shuffler.leases
        mixer_warnings = (
            [] if self.mixers is None else await asyncio.to_thread(self.mixers.warnings)
        )
        for warning in await asyncio.to_thread(intake.store.setting_warnings) + mixer_warnings:
            log(f"Warning: {warning}")
        page = MetricsPage(intake.store, sampler, log, trouble, leases)
        loop = asyncio.get_running_loop()
        with self._server(application, listening) as (server, front):

            def finish() -> None:
                _exit_after_deadline(log)
                if front is not None:
                    front.stop_accepting()
                server.stop()
                application.shorten_deadlines()

            drain = Drain(application.readiness, self.drain, finish, log)
            loop.add_signal_handler(signal.SIGTERM, drain.begin)
            loop.add_signal_handler(signal.SIGINT, drain.end)
            reloads = [] if reload is None else [reload]
            if front is not None:
                reloads.append(front.reload_certificate)
            if reloads:
                loop.add_signal_handler(signal.SIGHUP, _call_all, reloads, log)
            serving = asyncio.create_task(server.serve())
            aside = [asyncio.create_task(task) for task in (intake.forget_closed(), sampler.run())]
            try:
                async with MetricsServer(page).serving(metrics):
                    await _wait_until_ready(self.listener, listening, serving)
                    if not serving.done():
                        _watch(application, self.listener, listening, log)
                        ready(self.listener.url(listening))
                        notify_supervisor("READY=1")
                    await serving
            finally:
                for task in aside:
                    task.cancel()
                await asyncio.to_thread(intake.close)
                await asyncio.sleep(0)  # lets the last answers be sent
        if not server.interrupt_signal:
            raise MetricShuffleError("the server stopped by itself; start it again.")

    @contextlib.contextmanager
    def _server(
        self, application: Application, listening: socket.socket
    ) -> Iterator[tuple[HttpServer, TlsFront | None]]:
        """Run granian on our socket, or on a private Unix socket behind a TLS front."""
        if self.listener.certificate is None or self.listener.key is None:
            yield _server(application, listening, _room_for_connections(1)), None
            return
        room = _room_for_connections(FILES_EACH)
        with tempfile.TemporaryDirectory(prefix="metricshuffle-") as folder:  # mode 0700
            inside = Path(folder) / "http"
            server = _server(application, inside, room)
            front = TlsFront(
                listening,
                CertificateFiles(self.listener.certificate, self.listener.key),
                inside,
                room * FILES_EACH,
            )
            try:
                yield server, front
            finally:
                front.close()


def _call_all(reloads: Sequence[Callable[[Log], None]], log: Log) -> None:
    for reload in reloads:
        reload(log)


@contextlib.contextmanager
def bound_or_none(listener: Listener | None) -> Iterator[socket.socket | None]:
    """Open the listening socket, if there is an address."""
    if listener is None:
        yield None
        return
    with listener.bound() as listening:
        yield listening


def validate_address(url: str, option: str) -> str:
    """Return the normal form of an address without a path, like https://shuffler.example."""
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(url.strip())
        is_valid = (
            parts.scheme in ("http", "https")
            and bool(parts.hostname)
            and (parts.port is None or parts.port > 0)
        )
    except ValueError:
        is_valid = False
    if (
        not is_valid
        or not url.isascii()
        or "@" in parts.netloc
        or parts.path.strip("/")
        or parts.query
        or parts.fragment
    ):
        raise InputError(
            f"{option} must be an address like https://shuffler.example:8460, got {url!r}."
        )
    return f"{parts.scheme}://{parts.netloc.lower()}"


def log_witnesses(shuffler: Shuffler, log: Log) -> None:
    """Log the keys that the operators of a shuffler and of its witness exchange."""
    if shuffler.witness is not None:
        key = shuffler.witness.key.public
        log(
            f"The witness {shuffler.witness.url} is asked with the key {key}; its operator "
            f"allows that with serve --witness-for {key}."
        )
    if shuffler.countersigner is not None:
        count = len(shuffler.countersigner.askers)
        key = shuffler.countersigner.key
        log(
            f"This is the witness of {count:,} other shuffler{'s' * (count != 1)}; it "
            f"countersigns with the key {key}."
        )


def plain_hop_warning(after: str | None) -> str:
    """Warning if the previous shuffler is reached without TLS over a network; empty otherwise."""
    from urllib.parse import urlsplit

    host = urlsplit(after or "").hostname or ""
    if after is None or not after.startswith("http://") or is_loopback(host):
        return ""
    return (
        f"Warning: --after {after} is asked without TLS: anyone who watches the network sees "
        "the token with which this shuffler fetches, and could fetch in its place and so end "
        "the collection. Messages stay sealed. Give an https:// address."
    )


def is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _server(application: Application, where: socket.socket | Path, connections: int) -> HttpServer:
    """Granian server inside this process, so that no child survives when this one is killed."""
    from granian._granian import SocketHolder
    from granian.constants import HTTPModes, Interfaces
    from granian.http import HTTP1Settings
    from granian.server.embed import Server

    class OnOurSocket(Server):  # type: ignore[misc]
        def _init_shared_socket(self) -> None:
            if isinstance(where, Path):
                super()._init_shared_socket()
                return
            self._sfd = os.dup(where.fileno())  # the server closes it
            self._ssp = None
            self._shd = SocketHolder(self._sfd, False, MAX_CONNECTIONS_OPEN)  # type: ignore[call-arg]

    return OnOurSocket(
        application,
        uds=where if isinstance(where, Path) else None,
        interface=Interfaces.ASGINL,
        http=HTTPModes.http1,
        websockets=False,
        backlog=MAX_CONNECTIONS_OPEN,
        backpressure=connections,
        http1_settings=HTTP1Settings(
            header_read_timeout=int(1000 * HEADER_SECONDS), max_buffer_size=64 * 2**10
        ),
        log_enabled=False,
    )


def _room_for_connections(files: int) -> int:
    """Number of connections, of `files` files each, that the limit allows after raising it."""
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
    return max(
        16,
        min(
            MAX_CONNECTIONS_OPEN,
            (resource.getrlimit(resource.RLIMIT_NOFILE)[0] - RESERVED_FILES) // files,
        ),
    )


async def _wait_until_ready(
    listener: Listener, listening: socket.socket, serving: asyncio.Task[None]
) -> None:
    """Wait until this server answers a call over the network."""
    host, port, context = _own_address(listener, listening)
    end = asyncio.get_running_loop().time() + STARTING_SECONDS
    while not serving.done():
        with contextlib.suppress(OSError, asyncio.TimeoutError):
            async with asyncio.timeout(HEADER_SECONDS):
                reader, writer = await asyncio.open_connection(host, port, ssl=context)
                writer.write(
                    b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
                )
                answer = await reader.read()
                writer.close()
                status = answer.partition(b"\r\n")[0]
                is_answered = b" 200 " in status or b" 503 " in status  # the disk may be full
                if is_answered and SLOW.encode() not in answer:
                    return
        if asyncio.get_running_loop().time() > end:
            raise MetricShuffleError(
                f"the shuffler does not answer on {listener.url(listening)}; see whether "
                "its database can be used."
            )
        await asyncio.sleep(0.02)


def _own_address(
    listener: Listener, listening: socket.socket
) -> tuple[str, int, ssl.SSLContext | None]:
    """Host, port and TLS context to call this server itself."""
    context = None
    if listener.certificate:
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE  # our own certificate
    host, port = listening.getsockname()[:2]
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), port, context  # noqa: S104 - where to ask, not where to listen


def _watch(
    application: Application, listener: Listener, listening: socket.socket, log: Log
) -> None:
    """End the process if it answers no calls any more, so that its supervisor starts it again.

    Any answered call counts; without calls the watchdog makes one. It counts checks, not seconds,
    so that a machine that slept does not trigger it.
    """
    host, port, context = _own_address(listener, listening)

    def ask() -> None:
        with (
            contextlib.suppress(OSError),
            socket.create_connection((host, port), timeout=WATCH_SECONDS) as connection,
        ):
            line = connection if context is None else context.wrap_socket(connection)
            line.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            line.recv(1)

    def watch() -> None:
        silent_checks = 0
        answered = application.answered
        while silent_checks < MAX_SILENT_CHECKS:
            time.sleep(WATCH_SECONDS)
            if application.answered == answered:
                ask()
            is_silent = application.answered == answered
            silent_checks = silent_checks + 1 if is_silent else 0
            answered = application.answered
        log(
            "The shuffler has answered no call for a minute, not even its own; it exits, to "
            "be started again."
        )
        os._exit(UNSERVING_EXIT_CODE)

    threading.Thread(target=watch, name="watchdog", daemon=True).start()


def _exit_after_deadline(log: Log) -> None:
    """End the process soon, whatever blocks it.

    All that was acknowledged is stored, and the rest is repeated.
    """

    def end() -> None:
        time.sleep(EXIT_SECONDS)
        log("Stopped with unfinished work; the next start continues it.")
        sys.stderr.flush()
        os._exit(0)

    threading.Thread(target=end, name="last end", daemon=True).start()


@contextlib.contextmanager
def drive_collections(shuffler: Driven, log: Log) -> Iterator[None]:
    """Drive collections in a thread inside the context."""
    stop = threading.Event()

    def drive() -> None:
        while not stop.is_set():
            try:
                shuffler.run(stop)
            except Exception as error:
                text = (
                    "Collections are not driven; trying again. Please report this bug: "
                    f"{failure_text(error)}"
                )
                log(LogEvent(text, "bug"))
                stop.wait(RESTART_PAUSE_SECONDS)

    driver = threading.Thread(target=drive, name="driver", daemon=True)
    driver.start()
    try:
        yield
    finally:
        stop.set()
        driver.join(STOPPING_SECONDS)  # the next process repeats interrupted steps


def ignore_log_errors(log: Log) -> Log:
    """Wrap `log` so that it does not raise if it cannot write (closed terminal, full disk)."""

    def safe_log(text: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            log(text)

    return safe_log


def folders_of(store: str) -> tuple[Path, ...]:
    """Folder of the database file, if the address names a file."""
    path = database_file(store)
    return () if path is None else (path.absolute().parent,)


def run_loop(main: Awaitable[None]) -> None:
    try:
        from uvloop import run
    except ImportError:  # not available on Windows
        from asyncio import run
    run(main)
