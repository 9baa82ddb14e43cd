"""Server state of the page: worker pools, result cache, and the current job of each window."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlencode

from metricshuffle.numerics.threads import usable_cores
from metricshuffle.web.engineer_cards import ENGINEER_CARDS
from metricshuffle.web.question_cards import PLAN_CARDS
from metricshuffle.web.workers import Workers

if TYPE_CHECKING:
    from metricshuffle.web.worker_jobs import JobResult

QUICK_LIMIT_SECONDS = 180.0
"""Time limit of a plan."""
LONG_LIMIT_SECONDS = 300.0
"""Time limit of charts, files and dry runs."""
CACHE_SIZE = 128
Key = TypeVar("Key")
Cached = TypeVar("Cached")
CARDS_BY_NAME = {card.name: card for card in PLAN_CARDS} | ENGINEER_CARDS


class Superseded(Exception):
    """A newer request of the same window replaced this one."""


class JobService:
    """Runs jobs in worker pools and caches their results.

    Plans have workers of their own, so that one person's charts do not delay another's plan.
    """

    def __init__(self, limit: float | None = None) -> None:
        self.quick = Workers(max(2, usable_cores()), limit or QUICK_LIMIT_SECONDS)
        self.long = Workers(max(2, usable_cores()), limit or LONG_LIMIT_SECONDS, prepared=True)
        self.known: OrderedDict[str, bytes] = OrderedDict()
        self.done: OrderedDict[tuple[str, str], JobResult] = OrderedDict()
        self.asking: dict[tuple[str, str], asyncio.Task[JobResult]] = {}

    def start(self) -> None:
        self.quick.start()
        self.long.start()

    def close(self) -> None:
        self.quick.close()
        self.long.close()

    async def ask(
        self, job: str, window: str, card: str, typed: Mapping[str, str], **options: object
    ) -> JobResult:
        """Return the result of a job about a filled form.

        A newer job of the same kind from the same window cancels the older one.
        """
        state = form_state(card, typed)
        key = (f"{job}{sorted(options.items())}", state)
        if key in self.done:
            self.done.move_to_end(key)
            return self.done[key]
        workers = self.quick if job in ("answer", "engineered") else self.long
        cached_plan = self.known.get(state)
        if job == "answer":
            options["state"] = form_state(
                card, {name: value for name, value in typed.items() if name != "choice"}
            )
        work = asyncio.ensure_future(
            workers.run(job, card=card, typed=dict(typed), known=cached_plan, **options)
        )
        answer = await self._latest((job, window), work) if window else await work
        if "known" in answer:
            _keep(self.known, state, answer.pop("known"))
        _keep(self.done, key, answer)
        return answer

    def cached_plan_of(self, card: str, typed: Mapping[str, str]) -> bytes | None:
        """The pickled plan of a form, if it is in the cache."""
        return self.known.get(form_state(card, typed))

    async def run_for_window(self, job: str, window: str, **options: object) -> JobResult:
        """Return the result of a long job, uncached; a newer one of the same window cancels it."""
        work = asyncio.ensure_future(self.long.run(job, **options))
        return await self._latest((job, window), work) if window else await work

    async def _latest(self, whose: tuple[str, str], work: asyncio.Task[JobResult]) -> JobResult:
        older = self.asking.get(whose)
        if older is not None:
            older.cancel()
        self.asking[whose] = work
        try:
            return await work
        except asyncio.CancelledError:
            if self.asking.get(whose) is not work:
                raise Superseded from None
            work.cancel()
            raise
        finally:
            if self.asking.get(whose) is work:
                del self.asking[whose]


def _keep(store: OrderedDict[Key, Cached], key: Key, value: Cached) -> None:
    store[key] = value
    store.move_to_end(key)
    while len(store) > CACHE_SIZE:
        store.popitem(last=False)


def form_state(card: str, typed: Mapping[str, str]) -> str:
    """The form as the query string of the page's address.

    Omitted fields are read as their examples, so a field with an example is written even if it is
    empty.
    """
    fields = CARDS_BY_NAME[card].fields
    return urlencode(
        [
            ("card", card),
            *(
                (name, value)
                for name, value in typed.items()
                if value != "" or fields[name].example
            ),
        ]
    )
