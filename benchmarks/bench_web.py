"""Benchmark of the planner page in a real browser: `python -m benchmarks web`.

From the movement of a slider to the new numbers on the page, after a few movements that are not
counted; twenty people who ask at the same moment, each for another plan; and from the start of a
fresh process to the first answer. Charts are drawn meanwhile, as for real users.
"""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from typing import Any

import httpx
import pytest
from tests.web.conftest import SLIDE, Served, launched, started

from benchmarks.measuring import measurement

WARMING = 4
PEOPLE = 20
STARTS = 3
MOVED = {"number": (20, 0.3), "place": (8, 2.0), "items": (8, 2.0)}
"""Counted movements of a slider, and the seconds within which the numbers must follow."""
NAMES = {"number": "a number", "place": "a map", "items": "users' items"}


def moved(page: Any, served: Served, card: str) -> list[float]:
    """Seconds of each movement of the slider of epsilon, each to a new place."""
    count, _ = MOVED[card]
    page.goto(served.at(f"/?card={card}"))
    page.wait_for_selector("#more .not-hidden")
    took = []
    for step in range(WARMING + count):
        took.append(
            page.evaluate(SLIDE, ["epsilon", 400 + 17 * ((7 * step) % (WARMING + count))]) / 1000.0
        )
        page.wait_for_timeout(400)  # a pause, after which the charts are drawn
    return took[WARMING:]


def usable(browser: Any) -> float:
    """Seconds from the start of the server to numbers on the page."""
    begun = time.perf_counter()
    served = started()
    try:
        page = browser.new_context().new_page()
        page.goto(f"{served.url}&card=number")
        page.wait_for_selector(".result")
        took = time.perf_counter() - begun
        page.context.close()
        return took
    finally:
        served.end()


def at_once(served: Served, first: int) -> tuple[int, list[float]]:
    """Number of twenty simultaneous users without their plan, and the seconds each waited."""

    def person(number: int) -> tuple[bool, float]:
        with httpx.Client(base_url=served.at(""), timeout=120, follow_redirects=True) as client:
            client.get("/", params={"token": served.token})
            users = first + 10 * number
            begun = time.perf_counter()
            answer = client.get(
                "/answer",
                params={"card": "number", "users": str(users)},
                headers={"x-window": str(number)},
            )
            return (
                answer.status_code == 200 and f"{users:,} people" in answer.text,
                time.perf_counter() - begun,
            )

    with ThreadPoolExecutor(PEOPLE) as people:
        asked = list(people.map(person, range(PEOPLE)))
    return sum(not good for good, _ in asked), [took for _, took in asked]


def measurements() -> list[dict[str, Any]]:
    """Rows of the table; none without a browser, with a message."""
    try:
        return _measured()
    except pytest.skip.Exception as why:
        print(f"the page was not measured: {why}")
        return []


def _measured() -> list[dict[str, Any]]:
    rows = [
        measurement("load of the machine before, processes that run", os.getloadavg()[0], "", None)
    ]
    with launched() as browser:
        usable(browser)  # compiled code and files are in memory from here on
        rows.append(
            measurement(
                "start to numbers on the page",
                min(usable(browser) for _ in range(STARTS)),
                "s",
                4.0,
                at_most=True,
            )
        )
        served = started()
        try:
            page = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
            page.set_default_timeout(60_000)
            page.goto(served.url)
            for card, (count, goal) in MOVED.items():
                took = moved(page, served, card)
                rows.append(
                    measurement(
                        f"{NAMES[card]}: slider to numbers, median of {count}",
                        median(took),
                        "s",
                        goal,
                        at_most=True,
                    )
                )
                rows.append(
                    measurement(f"{NAMES[card]}:   the slowest", max(took), "s", goal, at_most=True)
                )
            page.context.close()
            at_once(served, 20_000)
            wrong, waited = at_once(served, 30_000)
            rows.append(
                measurement(
                    f"{PEOPLE} people at once: without an answer", wrong, "people", 0, at_most=True
                )
            )
            rows.append(
                measurement(f"{PEOPLE} people at once: median wait", median(waited), "s", None)
            )
            rows.append(
                measurement(f"{PEOPLE} people at once:   the longest", max(waited), "s", None)
            )
        finally:
            served.end()
    return rows
