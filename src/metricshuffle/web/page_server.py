"""HTTP server of the planner page and the console: one process, on loopback by default."""

from __future__ import annotations

import asyncio
import ipaddress
import secrets
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass, field

from metricshuffle.errors import InputError, argument, require

EXTRA = "web"
PACKAGES = ("starlette", "granian", "jinja2", "vl_convert", "python_multipart", "segno")
READY_POLL_SECONDS = 0.05


@dataclass(frozen=True)
class Address:
    """Address of the page, and the tokens that open it."""

    host: str
    port: int
    token: str
    once: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)
    """Token that opens the page a single time.

    It is for a browser that is started with the link, which other users see in the process list.
    """

    @property
    def url(self) -> str:
        return self._url_with(self.token)

    @property
    def one_time_url(self) -> str:
        return self._url_with(self.once)

    def _url_with(self, token: str) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/?token={token}"


def require_web_extra() -> None:
    for package in PACKAGES:
        require(package, EXTRA)


def address(host: str, port: int, token: str | None) -> Address:
    """Return the address: loopback with a random token by default.

    For any other host the caller must choose the token, because the link with the token is sent
    to other machines.
    """
    if not is_loopback_host(host) and not token:
        raise InputError(
            f"{argument('host', host)} can be reached from other machines; give a "
            f"{argument('token')} of your own, or leave the host out."
        )
    if token is not None and (
        len(token) < 8
        or not token.isascii()
        or not token.replace("-", "").replace("_", "").isalnum()
    ):
        raise InputError(f"{argument('token')} must have at least 8 letters, digits, - or _.")
    if not 0 <= port < 65536:
        raise InputError(f"{argument('port')} must be a whole number from 0 to 65535, got {port}.")
    return Address(host, port or free_port(host), token or secrets.token_urlsafe(24))


def is_loopback_host(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def free_port(host: str) -> int:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def serve(where: Address, ready: Callable[[Address], None], *, limit: float | None = None) -> None:
    """Serve the page until interrupted; `ready` is called once the server answers."""
    require_web_extra()
    try:
        with socket.socket(socket.AF_INET6 if ":" in where.host else socket.AF_INET) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((where.host, where.port))
    except OSError as error:
        raise InputError(
            f"cannot listen on {where.host} port {where.port}: {error.strerror or error}; "
            "give another --port."
        ) from None
    asyncio.run(_serve(where, ready, limit))


async def _serve(where: Address, ready: Callable[[Address], None], limit: float | None) -> None:
    from granian.constants import Interfaces
    from granian.server.embed import Server

    from metricshuffle.web.application import application

    guard = application(
        where.token, where.port, local=is_loopback_host(where.host), limit=limit, once=where.once
    )
    server = Server(
        guard,
        address=where.host,
        port=where.port,
        interface=Interfaces.ASGI,
        log_enabled=False,
        websockets=False,
    )
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    running = asyncio.ensure_future(server.serve())
    announcement = asyncio.ensure_future(_announce_when_ready(where, ready))
    stopped = asyncio.ensure_future(stop.wait())
    await asyncio.wait({running, stopped}, return_when=asyncio.FIRST_COMPLETED)
    announcement.cancel()
    if not running.done():
        server.stop()
        await asyncio.wait({running}, timeout=10)


async def _announce_when_ready(where: Address, ready: Callable[[Address], None]) -> None:
    """Call `ready` as soon as the server accepts connections."""
    while True:
        try:
            _, writer = await asyncio.open_connection(where.host, where.port)
        except OSError:
            await asyncio.sleep(READY_POLL_SECONDS)
            continue
        writer.close()
        ready(where)
        return
