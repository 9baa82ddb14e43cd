"""Stub shuffler for clients and analysts, with real keys and boxes and scripted answers.

A real shuffler process is tested elsewhere; here answers can be wrong, late or missing on purpose.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from metricshuffle.collection.admission_tokens import TokenRejected
from metricshuffle.collection.keys import AnalystKey, CollectionKeys, analyst_of
from metricshuffle.collection.sealed_boxes import NotOpened
from metricshuffle.collection.terms import Collection, Hop, instant
from metricshuffle.tasks.task import Task

HANG_UP = 0
"""Marker: close the connection instead of answering."""


@dataclass
class Output:
    """Output and its announcement; a test changes what should be wrong."""

    body: bytes
    people: int
    left_out: int = 0
    etag: str = ""
    countersignature: str = ""

    def __post_init__(self) -> None:
        self.etag = self.etag or hashlib.sha256(self.body).hexdigest()


@dataclass
class StandIn:
    """Stub shuffler.

    `script`: responses to the next posts, in order; afterwards it answers as a shuffler that never
    closes.
    """

    url: str = ""
    script: list[int] = field(default_factory=list)
    received: list[bytes] = field(default_factory=list)
    served: dict[str, bytes] = field(default_factory=dict)
    state: bytes = b'{"state":"released"}'
    """State reported for every collection."""
    hops: dict[str, tuple[Collection, CollectionKeys]] = field(default_factory=dict)
    tickets: set[bytes] = field(default_factory=set)
    outputs: dict[str, Output] = field(default_factory=dict)
    release_status: int = 200
    asked: list[str] = field(default_factory=list)
    on_post: Callable[[bytes], None] = lambda _: None
    on_release: Callable[[], None] = lambda: None
    on_delete: Callable[[], None] = lambda: None

    def opened(
        self,
        task: Task,
        analyst: AnalystKey | None = None,
        *,
        lasts: float = 600,
        tickets: Sequence[bytes] = (),
        **terms: Any,
    ) -> Collection:
        """Collection whose only hop is this stub."""
        keys = CollectionKeys(secrets.token_bytes(64))
        now = time.time()
        held = {
            "round": 1,
            "hops": [Hop(**keys.party.model_dump() | {"url": self.url})],
            "analyst": analyst_of((analyst or AnalystKey.new()).public),
            "colluders": 0,
            "opens": instant(now - 5),
            "closes": instant(now + lasts),
            "extends": instant(now + lasts),
            "retention": 86400,
            "admission": "tickets" if tickets else "open",
            **terms,
        }
        collection = Collection.new(task, **held)
        self.hops[collection.digest] = collection, keys
        self.served[collection.digest] = collection.served
        self.tickets |= set(tickets)
        return collection

    def boxes(self, collection: Collection, report: bytes) -> tuple[bytes, list[bytes]]:
        """The ticket and the boxes in a report."""
        return collection.sealing.open_report(report, self.hops[collection.digest][1].private)

    def reports(self, collection: Collection) -> list[bytes]:
        """Distinct reports that arrived for a collection, in order."""
        mine = []
        for report in dict.fromkeys(self.received):
            try:
                self.boxes(collection, report)
            except NotOpened:
                continue
            mine.append(report)
        return mine

    def let_go(self, collection: Collection) -> Output:
        """All boxes that arrived, in the order of their bytes."""
        reports = self.reports(collection)
        boxes = sorted(box for report in reports for box in self.boxes(collection, report)[1])
        self.outputs[collection.digest] = Output(b"".join(boxes), len(reports))
        return self.outputs[collection.digest]

    def answer(self, digest: str, report: bytes) -> int:
        if self.script:
            return self.script.pop(0)
        if digest not in self.hops:
            return 404
        collection = self.hops[digest][0]
        try:
            ticket, _ = self.boxes(collection, report)
            if collection.token_verifier is not None:
                collection.token_verifier.nonce_of(ticket)
                return 204
        except NotOpened:
            return 422
        except TokenRejected:
            return 403
        return 204 if not ticket or ticket in self.tickets else 403


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    @property
    def shuffler(self) -> StandIn:
        stand_in: StandIn = self.server.stand_in  # type: ignore[attr-defined]
        return stand_in

    def _reply(self, status: int, body: bytes = b"", **headers: str) -> None:
        if status == HANG_UP:
            self.close_connection = True
            return
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        report = self.rfile.read(int(self.headers["Content-Length"]))
        if len(report) != int(
            self.headers["Content-Length"]
        ):  # the client was killed in the middle of it
            self.close_connection = True
            return
        self.shuffler.on_post(report)
        self.shuffler.received.append(report)
        status = self.shuffler.answer(self.path.split("/")[3], report)
        extra = (
            {"Retry_After": "0"}
            if status in (429, 503)
            else {"Location": self.shuffler.url}
            if status in (301, 307)
            else {}
        )
        self._reply(status, b'{"error":"as a test wants it."}' if status >= 400 else b"", **extra)

    def _token(self, collection: Collection) -> bool:
        from metricshuffle.collection.keys import matches_token

        return matches_token(
            self.headers.get("Authorization", "").removeprefix("Bearer "),
            collection.terms.analyst.release,
        )

    def do_GET(self) -> None:
        self.shuffler.asked.append(self.path)
        digest = self.path.split("/")[3]
        shuffler = self.shuffler
        if self.path.endswith("/state"):
            self._reply(200, shuffler.state)
            return
        if not self.path.endswith("/release"):
            served = shuffler.served.get(digest)
            self._reply(404 if served is None else 200, served or b"")
            return
        shuffler.on_release()
        output = shuffler.outputs.get(digest)
        if not self._token(shuffler.hops[digest][0]):
            self._reply(401)
        elif shuffler.release_status != 200 or output is None:
            status = shuffler.release_status if shuffler.release_status != 200 else 425
            self._reply(
                status,
                b'{"error":"this collection was aborted: too few."}' if status == 410 else b"",
            )
        else:
            signed = (
                {"X_Countersignature": output.countersignature} if output.countersignature else {}
            )
            counts = {"X_People": str(output.people), "X_Left_Out": str(output.left_out)}
            self._reply(200, output.body, ETag=f'"{output.etag}"', **counts, **signed)

    def do_DELETE(self) -> None:
        self.shuffler.asked.append(f"DELETE {self.path}")
        self.shuffler.on_delete()
        output = self.shuffler.outputs[self.path.split("/")[3]]
        self._reply(204 if self.headers.get("If-Match") == f'"{output.etag}"' else 412)

    def log_message(self, format: str, *words: Any) -> None:
        pass

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except (BrokenPipeError, ConnectionResetError):  # a client that was killed
            self.close_connection = True


@contextmanager
def standing_in() -> Iterator[StandIn]:
    """Stub that listens for the duration of the context."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    stand_in = StandIn(f"http://127.0.0.1:{server.server_address[1]}")
    server.stand_in = stand_in  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield stand_in
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
