"""Routes of a shuffler without a network, for tests of every response."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from tests.collection.conftest import NewCollection
from tests.collection.running import load_task

from metricshuffle.collection.keys import AnalystKey, KeyFolder, analyst_of
from metricshuffle.collection.shuffler.asgi_app import Application
from metricshuffle.collection.shuffler.ingest import Intake
from metricshuffle.collection.shuffler.lifecycle import Shuffler
from metricshuffle.collection.store.sql_store import Store
from metricshuffle.collection.terms import Collection, Hop
from metricshuffle.tasks.task import Task

Result = TypeVar("Result")
SITE = "https://survey.example"


class Answer:
    """Complete response, for comparison, and its parts."""

    def __init__(self, messages: Sequence[Any]) -> None:
        self.status: int = messages[0]["status"]
        self.headers = {
            name.decode().lower(): value.decode() for name, value in messages[0]["headers"]
        }
        self.body = b"".join(message.get("body", b"") for message in messages[1:])
        self.whole = (self.status, tuple(messages[0]["headers"]), self.body)

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def asks_again(answer: Answer) -> bool:
    """Whether it names 5 to 35 seconds after which to come again."""
    return 5 <= int(answer.headers["retry-after"]) <= 35


class Service:
    """Routes of a shuffler, its store and its clock."""

    def __init__(
        self, store: Store, folder: Path, new_collection: NewCollection, **intake: Any
    ) -> None:
        self.store = store
        self.keys = KeyFolder.at(folder)
        self.said: list[str] = []
        self.shuffler = Shuffler(store, self.keys)
        self.intake = Intake(store, self.keys, log=self.said.append, **intake)
        self.application = Application(
            self.shuffler, self.intake, origins=[SITE], log=self.said.append
        )
        self.analyst = AnalystKey.new()
        self._new = new_collection

    def opened(
        self,
        messages: int = 1,
        tickets: Sequence[bytes] = (),
        users: int = 1_000_000,
        url: str = "http://127.0.0.1:8460",
        task: Task | None = None,
        oblivious: bool = False,
        **terms: Any,
    ) -> Collection:
        party = self.shuffler.new_party()
        hops = [Hop(**party.model_dump() | {"url": url})]
        if oblivious:
            terms["gateway"] = self.shuffler.gateway_of(party)
        admission = "tickets" if tickets else "open"
        collection = self._new(
            task or load_task(messages, users),
            hops=hops,
            analyst=analyst_of(self.analyst.public),
            longer=0,
            **{"admission": admission, **terms},
        )
        assert self.shuffler.open(collection.served, tickets)
        return collection

    async def ask(
        self, method: str, path: str, body: bytes | Sequence[bytes | None] = b"", **headers: str
    ) -> Answer:
        """Make one call.

        Headers are named with _ for -; `length=""` leaves the length out. Parts of a body that are
        None never arrive.
        """
        parts = [body] if isinstance(body, bytes) else list(body)
        told = {
            "content-length": headers.pop(
                "length", str(sum(len(part) for part in parts if part is not None))
            )
        }
        told |= {name.replace("_", "-"): value for name, value in headers.items()}
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "scheme": "http",
            "http_version": "1.1",
            "root_path": "",
            "server": ("127.0.0.1", 8460),
            "client": ("192.0.2.7", 4711),
            "state": {},
            "headers": [
                (name.encode(), value.encode("latin-1")) for name, value in told.items() if value
            ],
        }
        sent: list[Any] = []
        arriving = [
            {"type": "http.request", "body": part, "more_body": number < len(parts)}
            for number, part in enumerate(parts, 1)
        ]

        async def receive() -> Any:
            if arriving and arriving[0]["body"] is not None:
                return arriving.pop(0)
            return await asyncio.Event().wait()

        async def send(message: Any) -> None:
            sent.append(message)

        await self.application(scope, receive, send)
        return Answer(sent)

    async def post(self, collection: Collection, report: bytes, **headers: str) -> Answer:
        return await self.ask(
            "POST", f"/v1/collections/{collection.digest}/reports", report, **headers
        )

    async def control(
        self, method: str, call: str, content: Any = None, token: str | None = None
    ) -> Answer:
        body = b"" if content is None else json.dumps(content).encode()
        token = self.keys.token if token is None else token
        return await self.ask(method, f"/v1/control/{call}", body, authorization=f"Bearer {token}")

    async def fetch(
        self, collection: Collection, token: str | None = None, method: str = "GET", **headers: str
    ) -> Answer:
        token = self.analyst.token if token is None else token
        told = {"authorization": f"Bearer {token}", **headers}
        return await self.ask(method, f"/v1/collections/{collection.digest}/release", b"", **told)

    def reports(self, collection: Collection) -> int:
        row = self.store.row(collection.digest)
        assert row is not None
        return row.reports


def run(work: Callable[[], Awaitable[Result]]) -> Result:
    async def main() -> Result:
        async with asyncio.timeout(60):
            return await work()

    with ThreadPoolExecutor(1) as aside:  # a browser of another test may have a loop in this thread
        return aside.submit(asyncio.run, main()).result()
