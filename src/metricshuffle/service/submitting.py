"""Reports of many people on their way: into the outbox first, then to the shuffler, some at a time, each at a moment of its own."""

from __future__ import annotations

import asyncio
import math
import secrets
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from metricshuffle.errors import InputError, PlanError
from metricshuffle.service.collection import Collection, instant, seconds_of
from metricshuffle.service.crowd import Crowd
from metricshuffle.service.making import closed_again, drawn, sealed
from metricshuffle.service.outbox import Held, Outbox, Sealed, Settled, State
from metricshuffle.service.sending import SPENT_TICKET, STORED, UNKNOWN_TICKET, Answer, Sender, connection
from metricshuffle.shown import Brief

if TYPE_CHECKING:
    import httpx

SEALED_AT_ONCE, SETTLED_AT_ONCE = 64, 64
RESUMED = "The report that was made before is stored. Nothing was made of the value that was given now."
CLOSED = Answer("late", "This collection is closed, and it is not known whether this report was in time.", 410, before=True)


@dataclass(frozen=True)
class Submitted(Brief):
    """How many reports are stored, now or before, and what became of the others."""

    answers: Sequence[Answer] = field(repr=False)
    """Of everybody, in the order of the values."""
    already: int = 0
    """Stored ones that were stored before: nothing was sent for them now."""
    resumed: int = 0
    """Stored ones that were made before and sent now: nothing was made of the values that were given now."""

    def _counted(self, status: str) -> int:
        return sum(answer.status == status for answer in self.answers)

    @property
    def people(self) -> int:
        return len(self.answers)

    @property
    def stored(self) -> int:
        return self._counted("stored")

    @property
    def late(self) -> int:
        return self._counted("late")

    @property
    def refused(self) -> int:
        return self._counted("refused")

    @property
    def waiting(self) -> int:
        return self._counted("waiting")

    @property
    def declined(self) -> int:
        return self._counted("declined")

    @property
    def complete(self) -> bool:
        return self.stored == self.people

    def __str__(self) -> str:
        before = f", {self.already:,} of them before" if self.already else ""
        told = [
            f"{self.stored:,} of {self.people:,} report{'s' * (self.people != 1)} {'are' if self.stored != 1 else 'is'} stored{before}."
        ]
        means = {
            "waiting": "not acknowledged yet, and kept in the outbox for the next time",
            "refused": "refused",
            "late": "too late, perhaps",
            "declined": "not sent",
        }
        for status, words in means.items():
            if count := self._counted(status):
                first = next(answer.sentence for answer in self.answers if answer.status == status)
                told.append(f"{count:,} {'are' if count != 1 else 'is'} {words}: {first}")
        return " ".join(told)


class Submitting:
    """People's way into the parts of a split, or into a single collection."""

    def __init__(
        self, collections: Sequence[Collection], outbox: Outbox, patience: float, concurrency: int, tell: Callable[[str], None]
    ) -> None:
        self._parts = {collection.digest: collection for collection in collections}
        self._outbox, self._patience, self._concurrency, self._tell = outbox, patience, concurrency, tell
        first = collections[0]
        self._batch = (first.task.digest, first.terms.round)
        self._with_tickets = bool(first.terms.ticket)

    async def submitted(self, crowd: Crowd, tickets: Sequence[bytes]) -> Submitted:
        """Everybody in a crowd who has not reported is randomized, once; all whose report is not acknowledged are sent."""
        known = await asyncio.to_thread(self._outbox.held, *self._batch, crowd.people)
        self._check_collections(known.values())
        new = {who: drawn(list(self._parts.values())).digest for who in crowd.people if who not in known}
        with_ticket: dict[bytes, bytes] = {}
        if self._with_tickets and new:
            if not tickets:
                raise InputError("this collection asks for tickets; give the one that you were handed, or a file of them.")
            with_ticket = await asyncio.to_thread(self._outbox.tickets_for, new, tickets, list(self._parts))
        if tickets:
            await asyncio.to_thread(self._give_other_tickets, known.values(), tickets)
        over = {who: known_answer(held) for who, held in known.items() if not held.waits}
        waiting = [held for held in known.values() if held.waits]
        way = await self._sent(waiting, self._sealed_parts(crowd, new, with_ticket), len(crowd) - len(over))
        answers = over | way.answers
        stored = {who for who, answer in answers.items() if answer.status == "stored"}
        before = {who for who in stored if answers[who].before}
        return Submitted([answers[who] for who in crowd.people], len(before), len(stored - before - way.fresh))

    async def resent(self) -> Submitted:
        """All who wait in the outbox."""
        waiting = await asyncio.to_thread(self._outbox.waiting, *self._batch, list(self._parts))
        return Submitted(list((await self._sent(waiting, [], len(waiting))).answers.values()))

    def declined(self, who: bytes) -> Held:
        """Throw away what waits for somebody, or let nothing be made; what the outbox knows of them then."""
        held = self._outbox.held(*self._batch, [who])
        self._check_collections(held.values())
        return self._outbox.decline(*self._batch, who, next(iter(self._parts)))

    def _check_collections(self, held: Iterable[Held]) -> None:
        others = [report for report in held if report.collection not in self._parts]
        if others:
            people = "this person has" if len(others) == 1 else f"{len(others):,} of these people have"
            raise PlanError(
                f"{self._outbox.path} says that {people} reported to another collection of the same task and round "
                f"({others[0].collection[:16]}); everybody reports once, because two reports give away more than one. Nothing was sent."
            )

    def _sealed_parts(self, crowd: Crowd, new: dict[bytes, str], tickets: dict[bytes, bytes]) -> list[Callable[[], list[Held]]]:
        """Work that randomizes, seals and writes down some people's reports each time."""
        work: list[Callable[[], list[Held]]] = []
        place = {who: index for index, who in enumerate(crowd.people)}
        for digest, collection in self._parts.items():
            mine = [who for who, drawn_digest in new.items() if drawn_digest == digest]
            for start in range(0, len(mine), SEALED_AT_ONCE):
                some = mine[start : start + SEALED_AT_ONCE]

                def make(some: list[bytes] = some, collection: Collection = collection) -> list[Held]:
                    values = crowd.values([place[who] for who in some])
                    made = sealed(collection, values, some, [tickets.get(who, b"") for who in some])
                    return self._kept(made, "made" if collection.terms.delay else "sending")

                work.append(make)
        return work

    def _kept(self, made: list[Sealed], state: State) -> list[Held]:
        """Written down before anything of it is sent; where another process was quicker, its report is the one."""
        kept = list(self._outbox.keep(*self._batch, made, state).values())
        self._check_collections(kept)
        return kept

    def _give_other_tickets(self, held: Iterable[Held], tickets: Sequence[bytes]) -> None:
        """Reports whose ticket was refused get another one, if there are enough."""
        refused = [report for report in held if report.waits and report.answer in (UNKNOWN_TICKET, SPENT_TICKET)]
        if not refused:
            return
        try:
            others = self._outbox.tickets_for({report.who: report.collection for report in refused}, tickets, list(self._parts))
        except InputError:  # then the old ones are tried again
            return
        for report in refused:
            kept = self._outbox.report(*self._batch, report.who)
            if kept is not None and kept.boxes is not None:
                again = closed_again(self._parts[report.collection], kept.boxes, others[report.who])
                self._outbox.replace(*self._batch, report.who, report.answer, again)

    # On the way

    async def _sent(self, waiting: Iterable[Held], work: Sequence[Callable[[], list[Held]]], total: int) -> _Way:
        """With what was answered to everybody: those who wait, and those whose reports are still to be made by `work`."""
        way = _Way(self._outbox, self._batch, self._parts, total, self._tell)
        try:
            sender, delayed = Sender(self._patience), any(part.terms.delay for part in self._parts.values())
            if delayed:  # (a worker that waits for one report's moment must not hold up others whose moment comes sooner)
                await way.fill(waiting, work)
                await _all_of([way.empty(sender) for _ in range(min(self._concurrency, total))])
            else:
                await _all_of([way.fill(waiting, work), *(way.empty(sender) for _ in range(min(self._concurrency, total)))])
        finally:
            way.settle()
        return way


class _Way:
    """A queue of people whose reports are written down, ordered by when they are to be sent."""

    def __init__(
        self, outbox: Outbox, batch: tuple[str, int], parts: Mapping[str, Collection], total: int, tell: Callable[[str], None]
    ) -> None:
        self._outbox, self._batch, self._parts, self._total, self._tell = outbox, batch, parts, total, tell
        self._queue: asyncio.PriorityQueue[tuple[float, int, Held | None]] = asyncio.PriorityQueue()
        self._settled: list[Settled] = []
        self._refused: list[tuple[bytes, str]] = []
        self._queued = 0
        self.answers: dict[bytes, Answer] = {}
        self.fresh: set[bytes] = set()
        """Whose reports were made of the values that were given now."""

    async def fill(self, waiting: Iterable[Held], work: Sequence[Callable[[], list[Held]]]) -> None:
        for held in waiting:
            self._put(held)
        for make in work:
            for held in await asyncio.to_thread(make):
                self._put(held)
        self._queue.put_nowait((math.inf, 0, None))

    def _put(self, held: Held) -> None:
        if not held.waits:  # another process was quicker
            self.answers[held.who] = known_answer(held)
            return
        if held.fresh:
            self.fresh.add(held.who)
        self._queued += 1
        self._queue.put_nowait((time.monotonic() + moment_within(self._parts[held.collection]), self._queued, held))

    async def empty(self, sender: Sender) -> None:
        """One after the other over one connection, each when its moment has come."""
        async with connection() as client:
            await self._empty(sender, client)

    async def _empty(self, sender: Sender, client: httpx.AsyncClient) -> None:
        while True:
            due, _, held = await self._queue.get()
            if held is None:  # for the others too
                self._queue.put_nowait((math.inf, 0, None))
                return
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            answer = await sender.sent(client, self._parts[held.collection], partial(self._begun, held.who))
            if answer is None:  # another process was quicker, or it was declined
                known = await asyncio.to_thread(self._outbox.held, *self._batch, [held.who])
                self.answers[held.who] = known_answer(known[held.who])
            else:
                self.answers[held.who] = answer
                state: State = "sent" if answer.status == "stored" else "late" if answer.status == "late" else "sending"
                self._settled.append(Settled(held.who, state, answer.code))
                self._refused += [(held.who, held.collection)] if answer.of_ticket else []
            if len(self._settled) >= SETTLED_AT_ONCE:
                await asyncio.to_thread(self.settle)
            self._tell(f"{len(self.answers):,} of {self._total:,} reports")

    async def _begun(self, who: bytes) -> bytes | None:
        """What is to be posted now, if it still is."""
        sealed = await asyncio.to_thread(self._outbox.begin, *self._batch, who)
        return None if sealed is None else sealed.report

    def settle(self) -> None:
        """Note what was answered so far."""
        settled, self._settled = self._settled, []
        refused, self._refused = self._refused, []
        if settled:
            self._outbox.settle(*self._batch, settled)
        if refused:
            self._outbox.refuse_tickets(refused)


async def _all_of(work: Sequence[Coroutine[Any, Any, None]]) -> None:
    """All of it, or what went wrong first, and then nothing of it runs on."""
    tasks = [asyncio.create_task(part) for part in work]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def moment_within(collection: Collection) -> float:
    """In how many seconds to send a report: a random part of the delay that the collection asks for, as long as there is time for it."""
    left = seconds_of(collection.terms.closes) - time.time()
    longest = min(float(collection.terms.delay), max(0.0, 0.9 * left))
    return longest * secrets.randbelow(2**32) / 2**32


def known_answer(held: Held) -> Answer:
    """What became of a report that does not wait any more."""
    when = f"on {instant(held.at)}" if held.at else "at a time that was not noted"
    if held.state == "sent":
        return Answer("stored", f"A report was stored before, {when}.", STORED, before=True)
    if held.state == "late":
        return CLOSED
    may_be = "it may have been sent before that, and is not sent again" if held.tried else "nothing was sent"
    return Answer("declined", f"It was declined {when}: {may_be}. No second report is made for that round.", before=True)


def who_has_reported(answer: Answer, outbox: Path, user: str, option: str) -> str:
    """What is said to somebody who gives a value after their report was stored or declined; `option` tells people of an outbox apart."""
    if not answer.before:
        return answer.sentence
    who = f"the user {user!r}" if user else f"whoever uses it without {option.rstrip('=')}"
    return (
        f"Nothing was sent now. {answer.sentence} By the outbox {outbox} that was {who}, and everybody reports once; somebody else gives a "
        f"name of their own, {option}."
    )
