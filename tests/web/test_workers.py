"""Worker processes: time limit, cancellation, death, and twenty users at once."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from tests.web.conftest import Served

from metricshuffle.errors import MetricShuffleError
from metricshuffle.web.workers import ABANDON_GRACE_SECONDS, TimeLimitExceeded, WorkerDied, Workers

pytestmark = pytest.mark.thorough
SLOW = {"card": "place", "typed": {"width": "40", "height": "40", "first": "accuracy"}, "state": ""}


def in_a_loop(work: Coroutine[Any, Any, None]) -> None:
    """Run it in a thread of its own: the browser of other tests has a loop in this one."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, work).result()


def test_a_computation_that_takes_too_long_is_ended_and_another_worker_comes() -> None:
    async def play() -> None:
        workers = Workers(1, limit=30.0)
        workers.start()
        try:
            await workers.run("answer", card="number", typed={}, state="")
            workers.limit = 0.5
            with pytest.raises(TimeLimitExceeded):
                await workers.run("answer", **SLOW)
            workers.limit = 60.0
            assert "html" in await workers.run("answer", card="number", typed={}, state="")
            assert workers.started == 2
        finally:
            workers.close()

    in_a_loop(play())


def test_a_question_that_is_given_up_frees_its_worker() -> None:
    async def play() -> None:
        workers = Workers(1, limit=120.0)
        workers.start()
        try:
            await workers.run("answer", card="number", typed={}, state="")
            asking = asyncio.ensure_future(workers.run("answer", **SLOW))
            await asyncio.sleep(ABANDON_GRACE_SECONDS / 2)
            asking.cancel()
            began = time.monotonic()
            await workers.run("answer", card="number", typed={"users": "900"}, state="")
            assert time.monotonic() - began < 40
            assert workers.started == 2
        finally:
            workers.close()

    in_a_loop(play())


def test_a_worker_that_dies_is_told_and_replaced() -> None:
    async def play() -> None:
        workers = Workers(1, limit=120.0)
        workers.start()
        try:
            await workers.run("answer", card="number", typed={}, state="")
            asking = asyncio.ensure_future(workers.run("answer", **SLOW))
            await asyncio.sleep(0.3)
            (worker,) = workers._all
            os.kill(worker.process.pid or 0, signal.SIGKILL)
            with pytest.raises(WorkerDied):
                await asking
            assert "html" in await workers.run("answer", card="number", typed={}, state="")
            with pytest.raises(MetricShuffleError, match="must be a number"):
                await workers.run("answer", card="number", typed={"low": "x"}, state="")
        finally:
            workers.close()

    in_a_loop(play())


def test_twenty_people_at_once(served: Served) -> None:
    def person(number: int) -> int:
        with httpx.Client(base_url=served.at(""), timeout=120, follow_redirects=True) as client:
            client.get("/", params={"token": served.token})
            answer = client.get(
                "/answer",
                params={"card": "number", "users": str(1000 + 10 * number)},
                headers={"x-window": str(number)},
            )
            assert f"{1000 + 10 * number:,} people" in answer.text
            return answer.status_code

    with ThreadPoolExecutor(20) as people:
        assert set(people.map(person, range(20))) == {200}
