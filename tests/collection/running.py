"""Shuffler processes, their collections and reports, and a client that sends many at once."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from metricshuffle.collection.keys import AnalystKey, KeyFolder, analyst_of
from metricshuffle.collection.operator.control_api import Operator
from metricshuffle.collection.sealed_boxes import ADDED
from metricshuffle.collection.terms import Collection, instant
from metricshuffle.planning import plan
from metricshuffle.privacy.target import Target
from metricshuffle.queries import Sum
from metricshuffle.spaces import Integers
from metricshuffle.tasks.task import Task

ROOT = Path(__file__).parents[2]
STARTING = 60.0
"""Seconds to start; a busy machine needs them."""

T = TypeVar("T")


def run_aside(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in a thread of its own: a browser test before leaves a loop in this one."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, coroutine).result()


@cache
def load_task(messages: int = 10, users: int = 1_000_000, honest: int = 4, rounds: int = 9) -> Task:
    """Task whose reports have `messages` messages of nine bytes.

    Its guarantee does not follow from its noise for most numbers; a shuffler does not check it.
    """
    alone = messages == 1
    planned = plan(
        Sum(Integers(0, 20)),
        Target(1, 0 if alone else 1e-6, 5),
        40,
        30,
        encoding="modular",
        trusted="nobody" if alone else "shuffler",
        protocols=None if alone else ["polya-shuffle"],
    ).task
    protocol = (
        planned.protocol if alone else planned.protocol.model_copy(update={"shares": messages})
    )
    return Task(
        query=planned.query,
        protocol=protocol,
        users=users,
        honest=honest,
        rounds=rounds,
        guarantee=planned.guarantee,
        if_shuffler_colludes=planned.if_shuffler_colludes,
    )


def report_of(collection: Collection, ticket: bytes = b"") -> bytes:
    """Report with a real outer box and random bytes inside, indistinguishable from boxes."""
    sealing = collection.sealing
    boxes = [secrets.token_bytes(sealing.inner_size) for _ in range(sealing.messages)]
    return sealing.closed(boxes, collection.keys[-1], ticket)


@dataclass
class Running:
    """Shuffler process, running or ended."""

    folder: Path
    store: str
    options: tuple[str, ...] = ()
    listen: str = "127.0.0.1:0"
    url: str = ""
    files: int | None = None
    """Limit of open files; None for that of this process."""
    kill_at: str = ""
    """Named point at which the next start is killed, if any."""
    before: tuple[str, ...] = ()
    """Words before the command, which change its permissions."""
    has_keys: bool = True
    """Whether it has a folder of keys; an edge has none."""
    process: subprocess.Popen[bytes] = field(init=False)

    @property
    def keys(self) -> Path:
        return self.folder / "keys"

    @property
    def log(self) -> str:
        """Complete log."""
        return "".join(
            (self.folder / name).read_text()
            for name in ("stdout.txt", "stderr.txt")
            if (self.folder / name).exists()
        )

    @property
    def said(self) -> list[str]:
        """Lines of the log, except that of every start about locked memory."""
        lines = (self.folder / "stderr.txt").read_text().splitlines()
        return [line for line in lines if not line.startswith("metricshuffle: Memory is ")]

    def start(self) -> float:
        """Start at the same address as before; return the seconds until it listens."""
        if self.url:
            self.listen = urlsplit(self.url).netloc
        words = [
            "serve",
            "--store",
            self.store,
            "--listen",
            self.listen,
            *(("--keys", str(self.keys)) if self.has_keys else ()),
            "--json",
            *self.options,
        ]
        begun = time.monotonic()
        limited = (
            [] if self.files is None else ["sh", "-c", f'ulimit -n {self.files} && exec "$@"', "sh"]
        )
        with open(self.folder / "stderr.txt", "ab") as errors:
            program = (
                ["tests.collection.killed_server", self.kill_at]
                if self.kill_at
                else ["metricshuffle"]
            )
            command = [*limited, *self.before, sys.executable, "-m", *program, *words]
            self.process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=errors, cwd=ROOT
            )
        output = self.process.stdout
        assert output is not None
        ready, _, _ = select.select([output], [], [], STARTING)
        line = output.readline() if ready else b""
        assert line, f"the shuffler did not start: {self.log}"
        with open(self.folder / "stdout.txt", "ab") as said:
            said.write(line)
        self.url = json.loads(line)["listening"]
        return time.monotonic() - begun

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and wait; return the exit code."""
        self.process.send_signal(number)
        return self.ended()

    def ended(self) -> int:
        """Wait until it has ended by itself; return the exit code."""
        try:
            return self.process.wait(60)
        finally:
            self.process.kill()
            output = self.process.stdout
            assert output is not None
            with open(self.folder / "stdout.txt", "ab") as said:
                said.write(output.read())
            output.close()

    @property
    def operator(self) -> Operator:
        return Operator(self.url, KeyFolder(self.keys).token)

    def opened(
        self,
        task: Task | None = None,
        *,
        lasts: float = 600,
        tickets: Sequence[bytes] = (),
        analyst: AnalystKey | None = None,
        oblivious: bool = False,
        **terms: Any,
    ) -> Collection:
        """Collection that only this shuffler has opened."""
        operator = self.operator
        hop, gateway = operator.new_gateway_hop()
        if oblivious:
            terms["gateway"] = gateway
        now = int(time.time())
        collection = Collection.new(
            task or load_task(),
            **{
                "round": 1,
                "hops": [hop],
                "analyst": analyst_of((analyst or AnalystKey.new()).public),
                "colluders": 0,
                "opens": instant(now),
                "closes": instant(now + lasts),
                "extends": instant(now + lasts),
                "retention": 86400,
                "admission": "tickets" if tickets else "open",
                **terms,
            },
        )
        operator.open(collection, tickets)
        return collection


@contextlib.contextmanager
def running(
    folder: Path,
    store: str,
    *options: str,
    listen: str = "127.0.0.1:0",
    files: int | None = None,
    before: Sequence[str] = (),
) -> Iterator[Running]:
    """Shuffler with its keys and its log in a folder; it never outlives the context."""
    folder.mkdir(parents=True, exist_ok=True)
    shuffler = Running(folder, store, options, listen, files=files, before=tuple(before))
    try:
        shuffler.start()
        yield shuffler
    finally:
        if hasattr(shuffler, "process") and shuffler.process.poll() is None:
            shuffler.end(signal.SIGKILL)
        elif hasattr(shuffler, "process") and shuffler.process.stdout is not None:
            shuffler.process.stdout.close()


def new_tickets(count: int) -> list[bytes]:
    return [secrets.token_bytes(16) for _ in range(count)]


# A client that is only quick


@dataclass
class Posted:
    """Status of the response to each report (0 if there was none), and the seconds taken."""

    statuses: list[int]
    seconds: list[float]


class _Connection(asyncio.Protocol):
    """Connection that sends a request and returns the status of the response."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[int] | None = None
        self.received = b""
        self.open = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.open = True

    def data_received(self, data: bytes) -> None:
        self.received += data
        head, end, body = self.received.partition(b"\r\n\r\n")
        if not end:
            return
        length = next(
            (
                int(line[15:])
                for line in head.lower().split(b"\r\n")
                if line.startswith(b"content-length:")
            ),
            0,
        )
        if len(body) >= length and self.answer is not None and not self.answer.done():
            self.received = b""
            self.answer.set_result(int(head[9:12]))

    def connection_lost(self, wrong: Exception | None) -> None:
        self.open = False
        if self.answer is not None and not self.answer.done():
            self.answer.set_result(0)

    async def asked(self, request: bytes) -> int:
        self.answer = asyncio.get_running_loop().create_future()
        self.transport.write(request)  # type: ignore[attr-defined]
        return await self.answer


def request_of(url: str, body: bytes) -> bytes:
    """HTTP request that posts a report."""
    parts = urlsplit(url)
    return (
        f"POST {parts.path}/reports HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Length: "
        f"{len(body)}\r\n\r\n".encode()
        + body
    )


async def posted_async(
    url: str,
    reports: Iterable[bytes],
    connections: int,
    before: Callable[[int], None] = lambda _: None,
    request: Callable[[str, bytes], bytes] = request_of,
) -> Posted:
    """Results of reports sent over `connections` at once.

    `before` is called with the index of the next report; `request` makes the HTTP request.
    """
    parts = urlsplit(url)
    loop = asyncio.get_running_loop()
    waiting = list(enumerate(reports))[::-1]
    post_report = Posted([], [])
    post_report.statuses = [0] * len(waiting)
    post_report.seconds = [0.0] * len(waiting)

    async def worker() -> None:
        connection: _Connection | None = None
        while waiting:
            number, report = waiting.pop()
            before(number)
            try:
                if connection is None or not connection.open:
                    _, connection = await loop.create_connection(
                        _Connection, parts.hostname or "", parts.port or 80
                    )
                begun = loop.time()
                async with asyncio.timeout(30):
                    post_report.statuses[number] = await connection.asked(request(url, report))
                post_report.seconds[number] = loop.time() - begun
            except (OSError, TimeoutError):
                connection = None
        if connection is not None:
            connection.transport.close()

    await asyncio.gather(*(worker() for _ in range(connections)))
    return post_report


def post_report(url: str, reports: Iterable[bytes], connections: int = 64) -> Posted:
    """Send reports to the address of a collection (`Collection.url`), `connections` at once."""
    with ThreadPoolExecutor(1) as aside:  # a browser of another test may have a loop in this thread
        return aside.submit(asyncio.run, posted_async(url, reports, connections)).result()


def environment() -> dict[str, str]:
    """Environment for other commands of a test: this Python's package, and no colours."""
    return {**os.environ, "NO_COLOR": "1"}


BOX = 9 + ADDED
"""Bytes of a message to the analyst in these tasks."""
