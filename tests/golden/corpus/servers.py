"""Servers for section e: `metricshuffle serve`, `metricshuffle web`, and a recording proxy."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit


@contextmanager
def started(folder: Path, *words: str) -> Iterator[dict[str, Any]]:
    """Start a serving command and return the line of JSON that it prints when ready."""
    command = [sys.executable, "-m", "metricshuffle", *words, "--json"]
    with open(folder / f"{words[0]}.log", "wb") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=log)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line, f"{words[0]} did not start: {(folder / f'{words[0]}.log').read_text()}"
        yield json.loads(line)
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


@dataclass(frozen=True)
class Exchange:
    """Request and its response."""

    method: str
    path: str
    sent: dict[str, str]
    """Headers of the request, by lower-case name; likewise those of the response."""
    request: bytes
    status: int
    headers: dict[str, str]
    body: bytes


@dataclass
class Proxy:
    """Proxy that forwards to a local server and records every exchange."""

    url: str
    target: str
    exchanges: list[Exchange] = field(default_factory=list)

    def taken(self) -> list[Exchange]:
        """Exchanges since the last call."""
        exchanges = self.exchanges
        self.exchanges = []
        return exchanges


def ask(
    url: str,
    method: str,
    path: str,
    body: bytes | None = None,
    headers: dict[str, str] | None = None,
) -> Exchange:
    """Make one request to a local server."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=600)
    try:
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        received = {name.lower(): value for name, value in answer.getheaders()}
        sent = {name.lower(): value for name, value in (headers or {}).items()}
        return Exchange(method, path, sent, body or b"", answer.status, received, answer.read())
    finally:
        connection.close()


@contextmanager
def proxy(target: str) -> Iterator[Proxy]:
    """Proxy in front of a server, in threads of this process."""
    noting = Proxy("", target)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def forward(self) -> None:
            size = self.headers.get("content-length")
            body = self.rfile.read(int(size)) if size else None
            kept = {
                name: value
                for name, value in self.headers.items()
                if name.lower() not in ("host", "connection", "accept-encoding")
            }
            exchange = ask(
                target, self.command, self.path, body, {**kept, "Host": urlsplit(noting.url).netloc}
            )
            noting.exchanges.append(exchange)
            self.send_response_only(exchange.status)
            for name, value in exchange.headers.items():
                if name not in ("transfer-encoding", "connection", "content-length"):
                    self.send_header(name, value)
            if exchange.status != 204:
                self.send_header("content-length", str(len(exchange.body)))
            self.end_headers()
            self.wfile.write(exchange.body)

        do_GET = do_POST = do_DELETE = do_OPTIONS = forward

        def log_message(self, format: str, *args: Any) -> None:
            """Suppress logging on standard error."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    noting.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield noting
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
