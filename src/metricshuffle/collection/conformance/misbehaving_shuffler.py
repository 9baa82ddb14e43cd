"""Shuffler that answers as a scenario says, and records what was posted to it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

HANG_UP = 0
"""Instead of a status: the connection is closed without an answer."""
ELSEWHERE = "/elsewhere"
"""Path that redirects lead to."""
MAX_BODY_BYTES = 2**22


@dataclass(frozen=True)
class PostAnswer:
    """Answer to a report: after `delay` seconds, with Retry-After if it has one."""

    status: int
    retry_after: int | None = None
    delay: float = 0.0


@dataclass(frozen=True)
class PostedReport:
    """Report that arrived, and when."""

    path: str
    body: bytes
    at: float
    answered_at: float


@dataclass
class MisbehavingShuffler:
    """Serves one collection, and answers reports in turn; the last answer is repeated."""

    url: str
    served: bytes = b""
    answers: tuple[PostAnswer, ...] = (PostAnswer(204),)
    posts: list[PostedReport] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    """Paths of all requests."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def next_answer(self) -> PostAnswer:
        return self.answers[min(len(self.posts), len(self.answers) - 1)]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    @property
    def shuffler(self) -> MisbehavingShuffler:
        shuffler: MisbehavingShuffler = self.server.shuffler  # type: ignore[attr-defined]
        return shuffler

    def _send(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Access-Control-Allow-Origin", "*")
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        self.shuffler.paths.append(self.path)
        if self.path.endswith("/state"):
            state = (
                b'{"state":"open","phase":"open","reason":"","closes":"2090-01-01T00:00:00Z",'
                b'"until":"2090-01-01T00:00:00Z","people":null,"left_out":null,"output":null}'
            )
            self._send(200, state, Content_Type="application/json")
        elif self.path.startswith("/v1/collections/"):
            self._send(200, self.shuffler.served, Content_Type="application/json")
        else:
            self._send(404, b'{"error":"there is no such call."}')

    def do_POST(self) -> None:
        self.shuffler.paths.append(self.path)
        length = self.headers.get("Content-Length", "")
        if not length.isdigit() or int(length) > MAX_BODY_BYTES:
            self.close_connection = True
            self._send(411, b'{"error":"a report is sent with its length."}')
            return
        at = time.monotonic()
        body = self.rfile.read(int(length))
        with self.shuffler.lock:
            answer = self.shuffler.next_answer()
            place = len(self.shuffler.posts)
            self.shuffler.posts.append(PostedReport(self.path, body, at, at))
        time.sleep(answer.delay)
        self.shuffler.posts[place] = PostedReport(self.path, body, at, time.monotonic())
        if answer.status == HANG_UP:
            self.close_connection = True
            return
        headers = {} if answer.retry_after is None else {"Retry_After": str(answer.retry_after)}
        if 300 <= answer.status < 400:
            headers["Location"] = f"{self.shuffler.url}{ELSEWHERE}"
        error = b'{"error":"as this check wants it."}' if answer.status >= 400 else b""
        self._send(answer.status, error, **headers)

    def log_message(self, format: str, *words: object) -> None:
        pass

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except (BrokenPipeError, ConnectionResetError):  # a client that gave up
            self.close_connection = True


@contextmanager
def misbehaving_shuffler() -> Iterator[MisbehavingShuffler]:
    """Listen on a free port of this machine for the duration of the context."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    shuffler = MisbehavingShuffler(f"http://127.0.0.1:{server.server_address[1]}")
    server.shuffler = shuffler  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield shuffler
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
