"""What the server keeps between two requests: workers, what was answered lately, and which window asks what."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from metricshuffle.numerics.threads import usable_cores
from metricshuffle.web.engineer_cards import ENGINEER_CARDS
from metricshuffle.web.question_cards import PLAN_CARDS
from metricshuffle.web.workers import Workers

QUICK_LIMIT_SECONDS, LONG_LIMIT_SECONDS = 180.0, 300.0
"""Seconds: of a plan, and of charts, files and trials."""
CACHE_SIZE = 128
CARDS_BY_NAME = {card.name: card for card in PLAN_CARDS} | ENGINEER_CARDS


class Superseded(Exception):
    """A newer question of the same window made this one needless."""


class JobService:
    """Questions come in here. Plans have workers of their own, so that a chart of one person does not keep another from her numbers."""

    def __init__(self, limit: float | None = None) -> None:
        self.quick = Workers(max(2, usable_cores()), limit or QUICK_LIMIT_SECONDS)
        self.long = Workers(max(2, usable_cores()), limit or LONG_LIMIT_SECONDS, prepared=True)
        self.known: OrderedDict[str, bytes] = OrderedDict()
        self.done: OrderedDict[tuple[str, str], dict[str, Any]] = OrderedDict()
        self.asking: dict[tuple[str, str], asyncio.Task[dict[str, Any]]] = {}

    def start(self) -> None:
        self.quick.start()
        self.long.start()

    def close(self) -> None:
        self.quick.close()
        self.long.close()

    async def ask(self, job: str, window: str, card: str, typed: Mapping[str, str], **options: Any) -> dict[str, Any]:
        """The result of a job about a filled form. A newer one of the same kind from the same window ends the older one."""
        state = form_state(card, typed)
        key = (f"{job}{sorted(options.items())}", state)
        if key in self.done:
            self.done.move_to_end(key)
            return self.done[key]
        workers = self.quick if job in ("answer", "engineered") else self.long
        cached_plan = self.known.get(state)
        if job == "answer":
            options["state"] = form_state(card, {name: value for name, value in typed.items() if name != "choice"})
        work = asyncio.ensure_future(workers.run(job, card=card, typed=dict(typed), known=cached_plan, **options))
        answer = await self._latest((job, window), work) if window else await work
        if "known" in answer:
            _keep(self.known, state, answer.pop("known"))
        _keep(self.done, key, answer)
        return answer

    def cached_plan_of(self, card: str, typed: Mapping[str, str]) -> bytes | None:
        """The plan of a form, if it was made lately."""
        return self.known.get(form_state(card, typed))

    async def run_for_window(self, job: str, window: str, **options: Any) -> dict[str, Any]:
        """The result of a long job, which is not kept; a newer one of the same window ends it."""
        work = asyncio.ensure_future(self.long.run(job, **options))
        return await self._latest((job, window), work) if window else await work

    async def _latest(self, whose: tuple[str, str], work: asyncio.Task[dict[str, Any]]) -> dict[str, Any]:
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


def _keep(store: OrderedDict[Any, Any], key: Any, value: Any) -> None:
    store[key] = value
    store.move_to_end(key)
    while len(store) > CACHE_SIZE:
        store.popitem(last=False)


def form_state(card: str, typed: Mapping[str, str]) -> str:
    """A form as the address of the page has it. What is left out comes back as its example, so that what was emptied is kept as such."""
    fields = CARDS_BY_NAME[card].fields
    return urlencode([("card", card), *((name, value) for name, value in typed.items() if value != "" or fields[name].example)])
