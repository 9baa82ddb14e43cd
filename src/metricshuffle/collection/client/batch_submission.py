"""Submission of many reports: first into the outbox, then to the shuffler at random times."""

from __future__ import annotations

import asyncio
import math
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from metricshuffle.collection.adder.sum_terms import AnyCollection
from metricshuffle.collection.client.device_ledger import LedgerEntry
from metricshuffle.collection.client.http_client import (
    SPENT_TICKET,
    STORED,
    UNKNOWN_TICKET,
    Sender,
    SubmissionResult,
    open_connection,
    run_all,
)
from metricshuffle.collection.client.outbox import (
    Outbox,
    OutboxEntry,
    SealedReport,
    SettledReport,
    Spending,
    State,
)
from metricshuffle.collection.client.participants import Participants
from metricshuffle.collection.client.report_builder import (
    draw_collection,
    reseal_report,
    seal_reports,
)
from metricshuffle.collection.client.token_requests import TokenAsker
from metricshuffle.collection.terms import Collection, instant, parse_time
from metricshuffle.display import Brief
from metricshuffle.errors import InputError, PlanError

if TYPE_CHECKING:
    import httpx

SEAL_BATCH_SIZE = 64
SETTLE_BATCH_SIZE = 64
RESUMED_MESSAGE = "The report that was made before is stored. The value given now was not used."
LATE_RESULT = SubmissionResult(
    "late",
    "This collection is closed, and it is not known whether this report was in time.",
    410,
    before=True,
)


@dataclass(frozen=True)
class Submitted(Brief):
    """Results of a submission: how many reports are stored, and what happened to the others."""

    answers: Sequence[SubmissionResult] = field(repr=False)
    """Results of all people, in the order of the values."""
    already: int = 0
    """Number of reports that were stored before; nothing was sent for them now."""
    resumed: int = 0
    """Number of reports of earlier calls that were sent now, without using the new values."""

    def _count(self, status: str) -> int:
        return sum(answer.status == status for answer in self.answers)

    @property
    def people(self) -> int:
        return len(self.answers)

    @property
    def stored(self) -> int:
        return self._count("stored")

    @property
    def late(self) -> int:
        return self._count("late")

    @property
    def refused(self) -> int:
        return self._count("refused")

    @property
    def waiting(self) -> int:
        return self._count("waiting")

    @property
    def declined(self) -> int:
        return self._count("declined")

    @property
    def complete(self) -> bool:
        return self.stored == self.people

    def __str__(self) -> str:
        before = f", {self.already:,} of them before" if self.already else ""
        sentences = [
            f"{self.stored:,} of {self.people:,} report{'s' * (self.people != 1)} "
            f"{'are' if self.stored != 1 else 'is'} stored{before}."
        ]
        means = {
            "waiting": "not acknowledged yet, and stored in the outbox for the next call",
            "refused": "refused",
            "late": "too late, perhaps",
            "declined": "not sent",
        }
        for status, words in means.items():
            if count := self._count(status):
                first = next(answer.sentence for answer in self.answers if answer.status == status)
                sentences.append(f"{count:,} {'are' if count != 1 else 'is'} {words}: {first}")
        return " ".join(sentences)


class Submitting:
    """Submission to a collection, or to the parts of a split."""

    def __init__(
        self,
        collections: Sequence[AnyCollection],
        outbox: Outbox,
        patience: float,
        concurrency: int,
        log: Callable[[str], None],
        *,
        verified: bool = False,
        over_limit: bool = False,
        relay: str = "",
    ) -> None:
        self._relay = relay
        self._parts = {collection.digest: collection for collection in collections}
        self._outbox = outbox
        self._patience = patience
        self._concurrency = concurrency
        self._log = log
        first = collections[0]
        self._batch = (first.task.digest, first.terms.round)
        self._with_tickets = bool(first.terms.ticket)
        self._spending = Spending(
            LedgerEntry.of(first, verified=verified),
            max(collection.terms.extends[:10] for collection in collections),
            over_limit,
        )
        self._with_tokens = first.terms.issuer is not None

    async def submit_all(self, participants: Participants, tickets: Sequence[bytes]) -> Submitted:
        """Randomize values of people without a report, once; send all reports not acknowledged."""
        entries = await asyncio.to_thread(self._outbox.held, *self._batch, participants.people)
        self._check_collections(entries.values())
        new = {
            who: draw_collection(list(self._parts.values())).digest
            for who in participants.people
            if who not in entries
        }
        await asyncio.to_thread(self._outbox.check_limits, new, self._spending)
        admitted, refusals = await self._admit(new, tickets)
        if tickets:
            await self._replace_tickets(entries.values(), tickets)
        finished = {who: known_answer(entry) for who, entry in entries.items() if not entry.waits}
        finished |= refusals
        new = {who: digest for who, digest in new.items() if who not in refusals}
        waiting = [entry for entry in entries.values() if entry.waits]
        send_queue = await self._send_all(
            waiting,
            self._sealing_jobs(participants, new, admitted),
            len(participants) - len(finished),
        )
        answers = finished | send_queue.answers
        stored = {who for who, answer in answers.items() if answer.status == "stored"}
        before = {who for who in stored if answers[who].before}
        return Submitted(
            [answers[who] for who in participants.people],
            len(before),
            len(stored - before - send_queue.fresh),
        )

    async def ask_all(
        self, people: Sequence[bytes], tickets: Sequence[bytes]
    ) -> dict[bytes, SubmissionResult]:
        """Ask the issuer for the tokens of people without a report; return who got none, and why.

        Nothing is sent to a shuffler.
        """
        entries = await asyncio.to_thread(self._outbox.held, *self._batch, people)
        self._check_collections(entries.values())
        [digest] = self._parts
        _, refusals = await self._admit(dict.fromkeys(set(people) - set(entries), digest), tickets)
        return refusals

    async def _admit(
        self, people: Mapping[bytes, str], tickets: Sequence[bytes]
    ) -> tuple[dict[bytes, bytes], dict[bytes, SubmissionResult]]:
        """Return the ticket or token of each person, and the results of people who got no token."""
        if not self._with_tickets or not people:
            return {}, {}
        without = people
        if self._with_tokens:
            known = await asyncio.to_thread(self._outbox.pending_tokens, people)
            without = {
                who: digest
                for who, digest in people.items()
                if who not in known or known[who].token is None
            }
        if without and not tickets:
            raise InputError("this collection needs tickets; give yours, or a file of them.")
        assigned = await asyncio.to_thread(
            self._outbox.tickets_for, without, tickets, list(self._parts)
        )
        if not self._with_tokens:
            return assigned, {}
        parts = {
            digest: part for digest, part in self._parts.items() if isinstance(part, Collection)
        }
        asker = TokenAsker(parts, self._outbox, self._patience, self._concurrency)
        await asker.ask(people, assigned)
        return asker.tokens, asker.refusals

    async def resend_all(self) -> Submitted:
        """Send all waiting reports of the outbox."""
        waiting = await asyncio.to_thread(self._outbox.waiting, *self._batch, list(self._parts))
        return Submitted(list((await self._send_all(waiting, [], len(waiting))).answers.values()))

    def declined(self, who: bytes) -> OutboxEntry:
        """Delete the waiting report of a person, or forbid one; return their outbox entry."""
        entries = self._outbox.held(*self._batch, [who])
        self._check_collections(entries.values())
        return self._outbox.decline(*self._batch, who, next(iter(self._parts)))

    def _check_collections(self, entries: Iterable[OutboxEntry]) -> None:
        others = [report for report in entries if report.collection not in self._parts]
        if others:
            people = (
                "this person has" if len(others) == 1 else f"{len(others):,} of these people have"
            )
            raise PlanError(
                f"{self._outbox.path} says that {people} reported to another collection of the "
                f"same task and round ({others[0].collection[:16]}); each person reports once, "
                "because two reports reveal more than one. Nothing was sent."
            )

    def _sealing_jobs(
        self, participants: Participants, new: Mapping[bytes, str], tickets: Mapping[bytes, bytes]
    ) -> list[Callable[[], list[OutboxEntry]]]:
        """Jobs that each randomize, seal and store the reports of some people."""
        work: list[Callable[[], list[OutboxEntry]]] = []
        place = {who: index for index, who in enumerate(participants.people)}
        for digest, collection in self._parts.items():
            mine = [who for who, drawn_digest in new.items() if drawn_digest == digest]
            for start in range(0, len(mine), SEAL_BATCH_SIZE):
                some = mine[start : start + SEAL_BATCH_SIZE]

                def make(
                    some: list[bytes] = some, collection: AnyCollection = collection
                ) -> list[OutboxEntry]:
                    values = participants.values([place[who] for who in some])
                    reports = seal_reports(
                        collection, values, some, [tickets.get(who, b"") for who in some]
                    )
                    return self._keep(reports, "made" if collection.terms.delay else "sending")

                work.append(make)
        return work

    def _keep(self, reports: list[SealedReport], state: State) -> list[OutboxEntry]:
        """Store reports before any is sent; a report that another process stored first is used."""
        entries = list(self._outbox.keep(*self._batch, reports, state, self._spending).values())
        self._check_collections(entries)
        return entries

    async def _replace_tickets(
        self, entries: Iterable[OutboxEntry], tickets: Sequence[bytes]
    ) -> None:
        """Replace refused tickets, if there are enough others."""
        refused = [
            report
            for report in entries
            if report.waits and report.answer in (UNKNOWN_TICKET, SPENT_TICKET)
        ]
        if not refused:
            return
        try:
            others, _ = await self._admit(
                {report.who: report.collection for report in refused}, tickets
            )
        except InputError:  # the old tickets are tried again
            return
        await asyncio.to_thread(
            self._reseal, [each for each in refused if each.who in others], others
        )

    def _reseal(self, refused: Iterable[OutboxEntry], others: Mapping[bytes, bytes]) -> None:
        for report in refused:
            sealed_report = self._outbox.report(*self._batch, report.who)
            collection = self._parts[report.collection]
            if (
                sealed_report is not None
                and sealed_report.boxes is not None
                and isinstance(collection, Collection)
            ):
                again = reseal_report(collection, sealed_report.boxes, others[report.who])
                self._outbox.replace(*self._batch, report.who, report.answer, again)

    # Sending

    async def _send_all(
        self,
        waiting: Iterable[OutboxEntry],
        work: Sequence[Callable[[], list[OutboxEntry]]],
        total: int,
    ) -> _SendQueue:
        """Send waiting reports and those that `work` makes; return the queue with all answers."""
        send_queue = _SendQueue(self._outbox, self._batch, self._parts, total, self._log)
        try:
            sender = Sender(self._patience, self._relay)
            delayed = any(part.terms.delay for part in self._parts.values())
            # A worker that waits for the time of one report must not delay others that are due
            # earlier.
            if delayed:
                await send_queue.fill(waiting, work)
                await run_all(
                    [send_queue.empty(sender) for _ in range(min(self._concurrency, total))]
                )
            else:
                await run_all(
                    [
                        send_queue.fill(waiting, work),
                        *(send_queue.empty(sender) for _ in range(min(self._concurrency, total))),
                    ]
                )
        finally:
            send_queue.settle()
        return send_queue


class _SendQueue:
    """Queue of stored reports, ordered by the time at which they are sent."""

    def __init__(
        self,
        outbox: Outbox,
        batch: tuple[str, int],
        parts: Mapping[str, AnyCollection],
        total: int,
        log: Callable[[str], None],
    ) -> None:
        self._outbox = outbox
        self._batch = batch
        self._parts = parts
        self._total = total
        self._log = log
        self._queue: asyncio.PriorityQueue[tuple[float, int, OutboxEntry | None]] = (
            asyncio.PriorityQueue()
        )
        self._settled: list[SettledReport] = []
        self._refused: list[tuple[bytes, str]] = []
        self._queued = 0
        self.answers: dict[bytes, SubmissionResult] = {}
        self.fresh: set[bytes] = set()
        """People whose reports were made from the values of this call."""

    async def fill(
        self, waiting: Iterable[OutboxEntry], work: Sequence[Callable[[], list[OutboxEntry]]]
    ) -> None:
        for entry in waiting:
            self._enqueue(entry)
        for make in work:
            for entry in await asyncio.to_thread(make):
                self._enqueue(entry)
        self._queue.put_nowait((math.inf, 0, None))

    def _enqueue(self, entry: OutboxEntry) -> None:
        if not entry.waits:  # another process sent it
            self.answers[entry.who] = known_answer(entry)
            return
        if entry.fresh:
            self.fresh.add(entry.who)
        self._queued += 1
        self._queue.put_nowait(
            (time.monotonic() + random_delay(self._parts[entry.collection]), self._queued, entry)
        )

    async def empty(self, sender: Sender) -> None:
        """Send reports over one connection, each at its time."""
        servers = max(len(part.posts_to) for part in self._parts.values())
        async with open_connection(servers) as client:
            await self._send_queued(sender, client)

    async def _send_queued(self, sender: Sender, client: httpx.AsyncClient) -> None:
        while True:
            due, _, entry = await self._queue.get()
            if entry is None:  # put back for the other workers
                self._queue.put_nowait((math.inf, 0, None))
                return
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            answer = await sender.sent(
                client, self._parts[entry.collection], partial(self._begin_sending, entry.who)
            )
            if answer is None:  # another process sent it, or it was declined
                entries = await asyncio.to_thread(self._outbox.held, *self._batch, [entry.who])
                self.answers[entry.who] = known_answer(entries[entry.who])
            else:
                self.answers[entry.who] = answer
                state: State = (
                    "sent"
                    if answer.status == "stored"
                    else "late"
                    if answer.status == "late"
                    else "sending"
                )
                self._settled.append(SettledReport(entry.who, state, answer.code))
                self._refused += [(entry.who, entry.collection)] if answer.of_ticket else []
            if len(self._settled) >= SETTLE_BATCH_SIZE:
                await asyncio.to_thread(self.settle)
            self._log(f"{len(self.answers):,} of {self._total:,} reports")

    async def _begin_sending(self, who: bytes) -> bytes | None:
        """Return the report to post now; None if it must not be sent any more."""
        sealed_report = await asyncio.to_thread(self._outbox.begin, *self._batch, who)
        return None if sealed_report is None else sealed_report.report

    def settle(self) -> None:
        """Store the collected answers in the outbox."""
        settled = self._settled
        self._settled = []
        refused = self._refused
        self._refused = []
        if settled:
            self._outbox.settle(*self._batch, settled)
        if refused:
            self._outbox.refuse_tickets(refused)


def random_delay(collection: AnyCollection) -> float:
    """Random delay of a report in seconds, limited by the collection and by the time left."""
    left = parse_time(collection.terms.closes) - time.time()
    longest = min(float(collection.terms.delay), max(0.0, 0.9 * left))
    return longest * secrets.randbelow(2**32) / 2**32


def known_answer(entry: OutboxEntry) -> SubmissionResult:
    """Result for a report that is not waiting any more."""
    when = f"on {instant(entry.at)}" if entry.at else "at a time that was not noted"
    if entry.state == "sent":
        return SubmissionResult(
            "stored", f"A report was stored before, {when}.", STORED, before=True
        )
    if entry.state == "late":
        return LATE_RESULT
    may_be = (
        "it may have been sent before that, and is not sent again"
        if entry.tried
        else "nothing was sent"
    )
    return SubmissionResult(
        "declined",
        f"It was declined {when}: {may_be}. No second report is made for that round.",
        before=True,
    )


def already_reported_text(answer: SubmissionResult, outbox: Path, user: str, option: str) -> str:
    """Message for a person whose report was stored or declined before.

    `option` is the argument that distinguishes the people of an outbox.
    """
    if not answer.before:
        return answer.sentence
    who = f"the user {user!r}" if user else f"the person who uses it without {option.rstrip('=')}"
    return (
        f"Nothing was sent now. {answer.sentence} According to the outbox {outbox} that was "
        f"{who}; each person reports once. Another person must give their own name, {option}."
    )
