"""Relay of Oblivious HTTP for tests and demonstrations: passes capsules on, and keeps no address.

`python -m tests.collection.relay SHUFFLER PORT` runs one on 127.0.0.1.
"""

from __future__ import annotations

import http.client
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from metricshuffle.collection.capsules import CAPSULE_TYPE, GATEWAY_PATH

Forwarded = tuple[int, Mapping[str, str], bytes]
KEPT_HEADERS = ("content-type", "retry-after")
PREFLIGHT = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Allow-Methods": "POST",
    "Access-Control-Allow-Headers": "Content-Type",
}


@dataclass
class RunningRelay:
    """Relay, and what it saw: lengths of capsules and answers, and outer statuses."""

    forward: Callable[[bytes], Forwarded]
    answers: list[int] = field(default_factory=list)
    """Outer statuses to answer in place of the gateway, in turn; 0 ends the connection."""
    seen: list[tuple[int, int, int]] = field(default_factory=list)
    bytes_seen: list[bytes] = field(default_factory=list)
    server: ThreadingHTTPServer = field(init=False)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/to-the-gateway"


def forward_to(shuffler: str) -> Callable[[bytes], Forwarded]:
    """Pass capsules on to the gateway of a shuffler, with nothing of the client."""
    address = urlsplit(shuffler)

    def forward(capsule: bytes) -> Forwarded:
        connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=30)
        try:
            connection.request("POST", GATEWAY_PATH, capsule, {"content-type": CAPSULE_TYPE})
            answer = connection.getresponse()
            headers = {name.lower(): value for name, value in answer.getheaders()}
            return answer.status, headers, answer.read()
        finally:
            connection.close()

    return forward


@contextmanager
def relaying(forward: Callable[[bytes], Forwarded], port: int = 0) -> Iterator[RunningRelay]:
    relay = RunningRelay(forward)
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *words: object) -> None:
            pass

        def do_OPTIONS(self) -> None:
            self._answer(204, {}, b"")

        def do_POST(self) -> None:
            capsule = self.rfile.read(int(self.headers["Content-Length"]))
            with lock:
                relay.bytes_seen.append(capsule)
                if relay.answers:
                    status, headers, body = relay.answers.pop(0), dict[str, str](), b""
                else:
                    status, told, body = relay.forward(capsule)
                    headers = {name: told[name] for name in KEPT_HEADERS if name in told}
                relay.seen.append((len(capsule), status, len(body)))
            self._answer(status, headers, body)

        def _answer(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
            if not status:
                self.close_connection = True
                return
            self.send_response(status)
            for name, value in {**PREFLIGHT, **headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    relay.server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    relay.server.daemon_threads = True
    thread = threading.Thread(target=relay.server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield relay
    finally:
        relay.server.shutdown()
        relay.server.server_close()
        thread.join()


if __name__ == "__main__":
    with relaying(forward_to(sys.argv[1]), int(sys.argv[2])) as started:
        print(started.url, flush=True)
        threading.Event().wait()
