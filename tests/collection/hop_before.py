"""Stub of the previous hop of a chain over HTTP, with answers set by the test."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.collection.rounds import HONEST, Round, new_round

from metricshuffle.collection.keys import KeyFolder, release_token
from metricshuffle.collection.shuffler.lifecycle import Shuffler

PEOPLE = HONEST + 4


@dataclass
class Answer:
    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    sent: int | None = None
    """Bytes of the body after which the connection is cut; None for all of them."""
    pieces: Callable[[], Iterable[bytes]] | None = None
    """Chunks sent instead of a body, without a length, until the client disconnects."""


def handed_over(
    boxes: Sequence[bytes],
    people: int = PEOPLE,
    left_out: int = 0,
    announced: str | None = None,
    sent: int | None = None,
) -> Answer:
    """Response of an honest hop, unless overridden."""
    body = b"".join(boxes)
    digest = hashlib.sha256(body).hexdigest() if announced is None else announced
    return Answer(
        200,
        body,
        {"ETag": f'"{digest}"', "X-People": str(people), "X-Left-Out": str(left_out)},
        sent,
    )


@dataclass
class HopBefore:
    url: str
    get: Callable[[], Answer] = field(default=lambda: Answer(425, b'{"error": "not yet"}'))
    delete: Callable[[], Answer] = field(default=lambda: Answer(204))
    asked: list[tuple[str, str, str, str]] = field(default_factory=list)
    """Method, path, token and If-Match of every call."""


@contextmanager
def hop_before() -> Iterator[HopBefore]:
    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            told = self.headers.get("If-Match", "")
            hop.asked.append((self.command, self.path, self.headers.get("Authorization", ""), told))
            answer = hop.get() if self.command == "GET" else hop.delete()
            self.send_response(answer.status)
            for name, value in {"Content-Length": str(len(answer.body)), **answer.headers}.items():
                if (answer.status != 204 and answer.pieces is None) or name != "Content-Length":
                    self.send_header(name, value)
            self.end_headers()
            if answer.pieces is not None:
                self.close_connection = True
                with suppress(OSError):
                    for piece in answer.pieces():
                        self.wfile.write(piece)
                return
            self.wfile.write(answer.body[: answer.sent])
            if answer.sent is not None:
                self.close_connection = True

        do_GET = do_DELETE = _answer

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    hop = HopBefore(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield hop
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


@dataclass(frozen=True)
class Chained:
    """Collection of two hops with the reports and the boxes of the first hop's output, in order."""

    made: Round
    payloads: list[bytes]
    boxes: list[bytes]
    token: str
    """Token of the second hop."""


def chained(
    second: Shuffler,
    hop: HopBefore,
    folder: Any,
    start: float,
    people: int = PEOPLE,
    is_open: bool = True,
    **terms: Any,
) -> Chained:

    first = KeyFolder.at(folder).new()
    own = second.keys.new()
    made = new_round(
        [(first.party, hop.url), (own.party, "http://127.0.0.1:1")], now=start, **terms
    )
    if is_open:
        assert second.open(made.collection.served)
    payloads = [made.payloads() for _ in range(PEOPLE)]
    boxes = made.boxes([made.report(payloads=mine) for mine in payloads], first.private)
    return Chained(
        made,
        sorted(payload for mine in payloads for payload in mine),
        sorted(boxes),
        release_token(own.private),
    )
