"""Taking part in a collection: verify it, randomize, seal, write down, and send until the shuffler has it.

A retry sends the same bytes and never randomizes again; that is what the outbox is for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from metricshuffle.collection.client.batch_submission import RESUMED_MESSAGE, Submitted, Submitting, already_reported_text, known_answer
from metricshuffle.collection.client.http_client import EXTRA, NotStored, SubmissionResult, fetch_collection, run_sync
from metricshuffle.collection.client.outbox import Outbox
from metricshuffle.collection.client.participants import Participants, read_participants
from metricshuffle.collection.client.report_builder import check_split, draw_collection, parse_ticket, seal_reports
from metricshuffle.collection.terms import Collection
from metricshuffle.data.rows import CoordinateKind, PerUser
from metricshuffle.display import Brief
from metricshuffle.errors import InputError, PlanError, require
from metricshuffle.tasks.task import Task

PATIENCE = 60.0
"""Seconds for which a report is sent again before it is left in the outbox."""
CONCURRENCY = 32
OUTBOX = "submissions.outbox"
CollectionSource = str | Path | Collection


class Client(Brief):
    """Takes part in a collection for one person, or for many.

    `collection`: a path of collection.json, the address of one (which ends with its digest, or with `digest=` beside it), or several that
    are the parts of a split, of which every person takes one at random. `outbox`: the file in which sealed reports wait until they are
    stored; beside the collection, `submissions.outbox`, if that is a file. Promises are recomputed before anything is randomized, unless
    `believe`. `patience`: seconds for which a report is sent again.
    """

    def __init__(
        self,
        collection: CollectionSource | Sequence[CollectionSource],
        outbox: str | Path | None = None,
        believe: bool = False,
        *,
        digest: str | None = None,
        patience: float = PATIENCE,
    ) -> None:
        several = isinstance(collection, Sequence) and not isinstance(collection, str)
        self._sources: list[CollectionSource] = list(collection) if several else [collection]  # type: ignore[arg-type, list-item]
        if not self._sources or (digest is not None and len(self._sources) > 1):
            raise InputError("a client needs a collection; a digest belongs to a single one.")
        require("cryptography.hazmat.primitives.hpke", EXTRA)
        if not patience >= 0.0:
            raise InputError(f"patience must be a number of seconds from 0 on, got {patience!r}.")
        self._outbox_path = _outbox_of(self._sources, outbox)
        self._believe, self._digest, self._patience = believe, digest, patience
        self._collections: tuple[Collection, ...] = ()
        self._verified = False
        self._outbox: Outbox | None = None

    # What it takes part in

    @property
    def collections(self) -> tuple[Collection, ...]:
        """The collection, or the parts of a split."""
        if not self._collections:
            run_sync(self._load())
        return self._collections

    @property
    def task(self) -> Task:
        """What is asked, and what is promised for it."""
        return self.collections[0].task

    def verify(self) -> None:
        """Recompute what the collection promises; raises if it claims more than is true."""
        for collection in self.collections:
            collection.verify()
        self._verified = True

    @property
    def outbox(self) -> Outbox:
        if self._outbox is None:
            if self._outbox_path is None:
                raise InputError(
                    "name a file in which sealed reports are kept until they are stored, outbox=; without one a retry would randomize "
                    "again, and two reports give away more than one."
                )
            self._outbox = Outbox(self._outbox_path)
        return self._outbox

    async def _load(self) -> None:
        """Read, or fetch, what was given, and check that it belongs together."""
        if self._collections:
            return
        collections = []
        for source in self._sources:
            if isinstance(source, Collection):
                collections.append(source)
            elif _is_address(source):
                collections.append(await fetch_collection(str(source), self._digest))
            else:
                collections.append(Collection.load(source))
                if self._digest not in (None, collections[-1].digest):
                    raise PlanError(f"{source} is not the collection that was asked for: its digest is another; do not take part.")
        for collection in collections:
            collection.check()
        check_split(collections)
        self._collections = tuple(collections)

    async def _prepare(self) -> None:
        """Loaded and verified; the outbox is opened when there is something to put into it."""
        await self._load()
        if not self._believe and not self._verified:
            await asyncio.to_thread(self.verify)

    # Reports

    def report(self, value: Any, ticket: str | bytes | None = None) -> bytes:
        """A sealed report of a value, new every time. To take part use `submit`: two different reports of one person are one too many."""
        collection = draw_collection(self.collections)
        if not self._believe and not self._verified:
            self.verify()
        tickets = self.checked_tickets([] if ticket is None else [ticket])
        if collection.terms.ticket and not tickets:
            raise InputError("this collection asks for a ticket.")
        inputs = self.task.query.inputs([value], self.task.protocol.step)
        return seal_reports(collection, inputs, [b""], tickets or [b""])[0].report

    def submit(self, value: Any, user: str = "", ticket: str | bytes | None = None) -> SubmissionResult:
        """Take part with a value: sealed, written down, and sent until it is stored; once for each `user` of an outbox.

        Raises NotStored if it is not stored, and if a report of that user was stored or declined before: then nothing is sent, whatever
        the value is. One that was made before and waits is sent instead of this value, by this call or by `resend`; the answer says so.
        """
        return run_sync(self.submit_async(value, user, ticket))

    async def submit_async(self, value: Any, user: str = "", ticket: str | bytes | None = None) -> SubmissionResult:
        """The same without blocking."""
        await self._prepare()
        tickets = self.checked_tickets([] if ticket is None else [ticket])
        inputs = self.task.query.inputs([value], self.task.protocol.step)
        done = await self._new_submission(1).submit_all(Participants(inputs, [self.outbox.user(user)]), tickets)
        answer = done.answers[0]
        if answer.status != "stored" or answer.before:
            raise NotStored(replace(answer, sentence=already_reported_text(answer, self.outbox.path, user, "user=")))
        return replace(answer, sentence=RESUMED_MESSAGE) if done.resumed else answer

    def decline(self, user: str = "") -> bool:
        """Throw away the report that waits for a user, if there is one; none is made for that round any more, by whatever process.

        True: nothing was sent, and nothing will be.
        False: sending had begun, so it may have been sent; it is not sent again. Raises NotStored if it was stored before.
        """
        return run_sync(self.decline_async(user))

    async def decline_async(self, user: str = "") -> bool:
        """The same without blocking."""
        await self._load()
        entry = await asyncio.to_thread(self._new_submission(1).declined, self.outbox.user(user))
        if entry.state != "declined":
            raise NotStored(known_answer(entry))
        return not entry.tried

    def submit_many(
        self,
        values: Any,
        *,
        column: str | Sequence[str] | None = None,
        user_column: str | None = None,
        per_user: PerUser | None = None,
        coordinates: CoordinateKind | None = None,
        drop_missing: bool = False,
        drop_outside: bool = False,
        clamp: bool = False,
        tickets: Sequence[str | bytes] = (),
        concurrency: int = CONCURRENCY,
    ) -> Submitted:
        """Take part for many people: `values` as `Task.randomize` takes them, or the path of a CSV or Parquet file.

        People are known by the `user_column`, or by their row in this file (these values): the same call again sends what is missing.
        All values are checked before the first is sent. `tickets` are handed out in their order.
        """
        names: list[str] = [] if column is None else [column] if isinstance(column, str) else list(column)
        reading = {"user_column": user_column, "per_user": per_user, "coordinates": coordinates, "drop_missing": drop_missing,
                   "drop_outside": drop_outside, "clamp": clamp}  # fmt: skip
        return run_sync(self._submit_many(values, names, reading, tickets, concurrency))

    async def _submit_many(
        self, values: Any, column: list[str], reading: dict[str, Any], tickets: Sequence[str | bytes], concurrency: int
    ) -> Submitted:
        await self._prepare()
        participants = await asyncio.to_thread(read_participants, self.task, lambda: self.outbox, values, column, reading)
        return await self.submit_crowd(participants, tickets, concurrency)

    async def submit_crowd(
        self,
        participants: Participants,
        tickets: Sequence[str | bytes] = (),
        concurrency: int = CONCURRENCY,
        tell: Callable[[str], None] = lambda _: None,
    ) -> Submitted:
        """Take part for people whose values are read already."""
        await self._prepare()
        return await self._new_submission(concurrency, tell).submit_all(participants, self.checked_tickets(tickets))

    def resend(self) -> Submitted:
        """Send what is written down and was not acknowledged."""
        return run_sync(self.resend_async())

    async def resend_async(self, concurrency: int = CONCURRENCY, tell: Callable[[str], None] = lambda _: None) -> Submitted:
        """The same without blocking."""
        await self._prepare()
        return await self._new_submission(concurrency, tell).resend_all()

    def _new_submission(self, concurrency: int, tell: Callable[[str], None] = lambda _: None) -> Submitting:
        if not 1 <= concurrency <= 1000:
            raise InputError(f"concurrency must be a whole number from 1 to 1000, got {concurrency!r}.")
        return Submitting(self._collections, self.outbox, self._patience, concurrency, tell)

    def checked_tickets(self, tickets: Sequence[str | bytes]) -> list[bytes]:
        """As bytes, if the collection asks for tickets; refused where they do not fit."""
        if tickets and not self.collections[0].terms.ticket:
            raise InputError("this collection takes reports without tickets; leave the ticket out.")
        return [parse_ticket(ticket) for ticket in tickets]

    def close(self) -> None:
        """Close the outbox."""
        if self._outbox is not None:
            self._outbox.close()
            self._outbox = None

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Client({', '.join(str(source) if not isinstance(source, Collection) else source.digest[:16] for source in self._sources)})"


def _is_address(source: CollectionSource) -> bool:
    return isinstance(source, str) and source.startswith(("http://", "https://"))


def _outbox_of(sources: Sequence[CollectionSource], outbox: str | Path | None) -> Path | None:
    """The file that is named, or one for all collections that lie in the same folder: so a second one of the same round is refused."""
    if outbox is not None:
        return Path(outbox)
    first = sources[0]
    return None if isinstance(first, Collection) or _is_address(first) else Path(first).with_name(OUTBOX)
