"""Client of a collection: verify it, randomize, seal, store in the outbox, and send.

A retry sends the same bytes and never randomizes again; this is the purpose of the outbox.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

from metricshuffle.collection.adder.sum_terms import AnyCollection, load_any
from metricshuffle.collection.client.batch_submission import (
    RESUMED_MESSAGE,
    Submitted,
    Submitting,
    already_reported_text,
    known_answer,
)
from metricshuffle.collection.client.device_ledger import DeviceLedger
from metricshuffle.collection.client.http_client import (
    EXTRA,
    NotStored,
    SubmissionResult,
    check_relay,
    check_relay_address,
    fetch_collection,
    fetch_through_relay,
    run_sync,
)
from metricshuffle.collection.client.outbox import Outbox
from metricshuffle.collection.client.participants import Participants, read_participants
from metricshuffle.collection.client.report_builder import (
    check_split,
    draw_collection,
    parse_ticket,
    seal_reports,
)
from metricshuffle.collection.terms import PinnedDocument
from metricshuffle.data.value_reading import ReadingArguments, check_argument_names
from metricshuffle.display import Brief
from metricshuffle.errors import InputError, PlanError, argument, require
from metricshuffle.tasks.task import Task

PATIENCE = 60.0
"""Seconds for which a report is sent again before it is left in the outbox."""
CONCURRENCY = 32
OUTBOX = "submissions.outbox"
CollectionSource = str | Path | AnyCollection


class Client(Brief):
    """Takes part in a collection for one person, or for many.

    Args:
        collection: path of collection.json; address that ends with the digest (or pass `digest`);
            or several of these that are the parts of a split, of which each person gets one at
            random.
        outbox: file that stores sealed reports until they are acknowledged; by default
            `submissions.outbox` next to the collection, if that is a file.
        believe: skip recomputing the guarantee before anything is randomized.
        digest: pinned digest of the collection.
        patience: seconds for which a report is sent again.
        relay: address of another party's relay, through which reports are sent so that the shuffler
            does not learn your address; the collection must be a file then, unless `gateway` is
            given.
        gateway: key of the collection's gateway, published with the digest, to fetch the collection
            through the relay.
    """

    def __init__(
        self,
        collection: CollectionSource | Sequence[CollectionSource],
        outbox: str | Path | None = None,
        believe: bool = False,
        *,
        digest: str | None = None,
        patience: float = PATIENCE,
        relay: str = "",
        gateway: str = "",
    ) -> None:
        several = isinstance(collection, Sequence) and not isinstance(collection, str)
        self._sources: list[CollectionSource] = list(collection) if several else [collection]  # type: ignore[arg-type, list-item]
        if not self._sources or (digest is not None and len(self._sources) > 1):
            raise InputError("a client needs a collection; a digest belongs to a single one.")
        require("cryptography.hazmat.primitives.hpke", EXTRA)
        if not patience >= 0.0:
            raise InputError(
                f"{argument('patience')} must be a number of seconds, 0 or more, got {patience!r}."
            )
        if bool(gateway) != (bool(relay) and any(map(_is_address, self._sources))):
            raise InputError(
                f"{argument('gateway')} belongs to {argument('relay')} and the address of a "
                "collection; give it, or the file of the collection from another source than its "
                "shuffler: fetching it there would show your address."
            )
        self._relay = relay
        self._gateway = gateway
        self._outbox_path = _outbox_of(self._sources, outbox)
        self._believe = believe
        self._digest = digest
        self._patience = patience
        self._collections: tuple[AnyCollection, ...] = ()
        self._verified = False
        self._outbox: Outbox | None = None

    # Collection

    @property
    def collections(self) -> tuple[AnyCollection, ...]:
        """Collection, or the parts of a split."""
        if not self._collections:
            run_sync(self._load())
        return self._collections

    @property
    def task(self) -> Task:
        """Task of the collection: the question and its guarantee."""
        return self.collections[0].task

    def verify(self) -> None:
        """Recompute the guarantee of the collection; raises if it claims more than is true."""
        for collection in self.collections:
            collection.verify()
        self._verified = True

    @property
    def outbox(self) -> Outbox:
        if self._outbox is None:
            if self._outbox_path is None:
                raise InputError(
                    "name a file that stores sealed reports until they are acknowledged, "
                    "outbox=; without one a retry would randomize again, and two reports "
                    "reveal more than one."
                )
            self._outbox = Outbox(self._outbox_path)
        return self._outbox

    async def _load(self) -> None:
        """Read or fetch the collections, and check that they belong together."""
        if self._collections:
            return
        collections: list[AnyCollection] = []
        for source in self._sources:
            if isinstance(source, PinnedDocument):
                collections.append(source)
            elif _is_address(source) and self._gateway:
                check_relay_address(self._relay, [str(source)])
                collections.append(
                    await fetch_through_relay(self._relay, str(source), self._digest, self._gateway)
                )
            elif _is_address(source):
                collections.append(await fetch_collection(str(source), self._digest))
            else:
                collections.append(load_any(source))
                if self._digest not in (None, collections[-1].digest):
                    raise PlanError(
                        f"{source} is not the requested collection: the digests differ; do not "
                        "take part."
                    )
        for collection in collections:
            collection.check()
        check_split(collections)
        if self._relay:
            check_relay(self._relay, collections)
        self._collections = tuple(collections)

    async def _prepare(self) -> None:
        """Load and verify the collections; the outbox is opened only when it is needed."""
        await self._load()
        if not self._believe and not self._verified:
            await asyncio.to_thread(self.verify)

    # Reports

    def report(self, value: Any, ticket: str | bytes | None = None) -> bytes:
        """Return a sealed report of a value, newly randomized on every call.

        To take part use `submit`: two different reports of one person reveal more than one.
        """
        collection = draw_collection(self.collections)
        if not self._believe and not self._verified:
            self.verify()
        tickets = self.checked_tickets([] if ticket is None else [ticket])
        if collection.terms.issuer is not None:
            raise InputError("tokens of this collection are asked for by `submit` alone; use that.")
        if collection.terms.ticket and not tickets:
            raise InputError("this collection asks for a ticket.")
        inputs = self.task.query.inputs([value], self.task.protocol.step)
        return seal_reports(collection, inputs, [b""], tickets or [b""])[0].report

    def submit(
        self,
        value: Any,
        user: str = "",
        ticket: str | bytes | None = None,
        *,
        over_limit: bool = False,
    ) -> SubmissionResult:
        """Take part with a value: seal it, store it in the outbox, and send it until it is stored.

        Each `user` of an outbox reports once. Raises NotStored if the report is not stored, and if
        a report of that user was stored or declined before: then nothing is sent, whatever the
        value is. A report that was made before and is waiting is sent instead of this value; the
        result says so. Raises OverLimit, and makes nothing, if the report would exceed a limit that
        the user has set in this outbox; `over_limit=True` makes it all the same.
        """
        return run_sync(self.submit_async(value, user, ticket, over_limit=over_limit))

    async def submit_async(
        self,
        value: Any,
        user: str = "",
        ticket: str | bytes | None = None,
        *,
        over_limit: bool = False,
    ) -> SubmissionResult:
        """Asynchronous `submit`."""
        await self._prepare()
        tickets = self.checked_tickets([] if ticket is None else [ticket])
        inputs = self.task.query.inputs([value], self.task.protocol.step)
        done = await self._new_submission(1, over_limit=over_limit).submit_all(
            Participants(inputs, [self.outbox.user(user)]), tickets
        )
        answer = done.answers[0]
        if answer.status != "stored" or answer.before:
            raise NotStored(
                replace(
                    answer, sentence=already_reported_text(answer, self.outbox.path, user, "user=")
                )
            )
        return replace(answer, sentence=RESUMED_MESSAGE) if done.resumed else answer

    def ask_token(self, ticket: str | bytes, user: str = "") -> None:
        """Ask the collection's issuer for a token now, for a report that is sent later.

        The longer the time between, the less the issuer and the shuffler together can tell from it.
        Raises NotStored if the issuer gives none.
        """
        run_sync(self.ask_token_async(ticket, user))

    async def ask_token_async(self, ticket: str | bytes, user: str = "") -> None:
        """Asynchronous `ask_token`."""
        await self._prepare()
        if len(self._collections) > 1 or self._collections[0].terms.issuer is None:
            raise InputError("only a single collection with an issuer gives tokens.")
        who = self.outbox.user(user)
        asking = self._new_submission(1)
        for refusal in (await asking.ask_all([who], self.checked_tickets([ticket]))).values():
            raise NotStored(refusal)

    def decline(self, user: str = "") -> bool:
        """Delete the waiting report of a user, if any, and forbid reports for this round.

        Returns True if nothing was or will be sent, and False if sending had begun: the report may
        have been sent, and is not sent again. Raises NotStored if it was stored before.
        """
        return run_sync(self.decline_async(user))

    async def decline_async(self, user: str = "") -> bool:
        """Asynchronous `decline`."""
        await self._load()
        entry = await asyncio.to_thread(self._new_submission(1).declined, self.outbox.user(user))
        if entry.state != "declined":
            raise NotStored(known_answer(entry))
        return not entry.tried

    def submit_many(
        self,
        values: Any,
        *,
        tickets: Sequence[str | bytes] = (),
        concurrency: int = CONCURRENCY,
        over_limit: bool = False,
        **reading: Unpack[ReadingArguments],
    ) -> Submitted:
        """Take part for many people.

        People are identified by `user_column`, or by their row in this file (or in these values):
        repeating the call sends what is missing. All values are checked before the first is sent.

        Args:
            values: as for `Task.randomize`, or the path of a CSV or Parquet file.
            tickets: assigned in this order.
            over_limit: whether these people agreed to go over limits that they have set.
        """
        check_argument_names(reading)
        return run_sync(self._submit_many(values, reading, tickets, concurrency, over_limit))

    async def _submit_many(
        self,
        values: Any,
        reading: ReadingArguments,
        tickets: Sequence[str | bytes],
        concurrency: int,
        over_limit: bool,
    ) -> Submitted:
        await self._prepare()
        participants = await asyncio.to_thread(
            read_participants, self.task, lambda: self.outbox, values, reading
        )
        return await self.submit_crowd(participants, tickets, concurrency, over_limit=over_limit)

    async def submit_crowd(
        self,
        participants: Participants,
        tickets: Sequence[str | bytes] = (),
        concurrency: int = CONCURRENCY,
        tell: Callable[[str], None] = lambda _: None,
        *,
        over_limit: bool = False,
    ) -> Submitted:
        """Take part for people whose values have been read already."""
        await self._prepare()
        return await self._new_submission(concurrency, tell, over_limit=over_limit).submit_all(
            participants, self.checked_tickets(tickets)
        )

    def resend(self) -> Submitted:
        """Send the reports in the outbox that were not acknowledged."""
        return run_sync(self.resend_async())

    async def resend_async(
        self, concurrency: int = CONCURRENCY, tell: Callable[[str], None] = lambda _: None
    ) -> Submitted:
        """Asynchronous `resend`."""
        await self._prepare()
        return await self._new_submission(concurrency, tell).resend_all()

    def ledger(self, user: str = "") -> DeviceLedger:
        """What the reports of a user of this outbox can reveal together, with their limits."""
        return self.outbox.ledger(self.outbox.user(user))

    def _new_submission(
        self,
        concurrency: int,
        tell: Callable[[str], None] = lambda _: None,
        *,
        over_limit: bool = False,
    ) -> Submitting:
        if not 1 <= concurrency <= 1000:
            raise InputError(
                f"concurrency must be a whole number from 1 to 1000, got {concurrency!r}."
            )
        return Submitting(
            self._collections,
            self.outbox,
            self._patience,
            concurrency,
            tell,
            verified=self._verified,
            over_limit=over_limit,
            relay=self._relay,
        )

    def checked_tickets(self, tickets: Sequence[str | bytes]) -> list[bytes]:
        """Parse tickets; raises if the collection takes reports without tickets."""
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
        names = [
            source.digest[:16] if isinstance(source, PinnedDocument) else str(source)
            for source in self._sources
        ]
        return f"Client({', '.join(names)})"


def _is_address(source: CollectionSource) -> bool:
    return isinstance(source, str) and source.startswith(("http://", "https://"))


def _outbox_of(sources: Sequence[CollectionSource], outbox: str | Path | None) -> Path | None:
    """Return the outbox: the given one, or one that all collections in a folder share.

    Sharing it means that a second collection of the same round is rejected.
    """
    if outbox is not None:
        return Path(outbox)
    first = sources[0]
    return (
        None
        if isinstance(first, PinnedDocument) or _is_address(first)
        else Path(first).with_name(OUTBOX)
    )
