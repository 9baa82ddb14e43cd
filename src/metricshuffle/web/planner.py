"""The planner's pages: the cards, the form of one, and the parts that follow when somebody changes it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import metricshuffle
from metricshuffle.errors import MetricShuffleError
from metricshuffle.pages.rendering import rendered
from metricshuffle.web.cards import PLANNED
from metricshuffle.web.desk import Desk, Superseded, state_of
from metricshuffle.web.engineering import AMPLIFY, ENGINEERS
from metricshuffle.web.fields import WrongFields

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

CARDS = {card.name: card for card in PLANNED}
LIVE = ("answer", "engineered")
AT_ONCE = 1.5
"""Seconds that a page waits for its answer before it is sent without; the answer follows."""
FILES = {
    "plan.json": "The plan: every candidate, and the task",
    "task.json": "The task that travels to clients, shuffler and analyst",
    "assessment.txt": "Paragraphs for a data-protection assessment",
    "consent.txt": "What taking part means, for the people who are asked",
    "plan.sh": "The same as a command line",
    "plan.py": "The same in Python",
    "report.html": "One page about the plan, to hand on",
}
TYPES = {"json": "application/json", "txt": "text/plain; charset=utf-8", "sh": "text/plain; charset=utf-8",
         "py": "text/plain; charset=utf-8", "html": "text/html; charset=utf-8"}  # fmt: skip


class Planner:
    def __init__(self, desk: Desk) -> None:
        self.desk = desk

    async def page(self, request: Request) -> Response:
        """The cards; and the form and the answer of one, if one is chosen. `wait=1` is for browsers without scripts: everything at once."""
        from starlette.responses import HTMLResponse

        card = CARDS.get(request.query_params.get("card", ""))
        if card is None:
            return HTMLResponse(self._page(None, {}, {}, "", ""))
        typed = card.filled(request.query_params)
        wrong: dict[str, str] = {}
        answer = more = ""
        wait = "wait" in request.query_params
        try:
            asking = asyncio.ensure_future(self.desk.ask("answer", "", card.name, typed))
            answer = (await asyncio.wait_for(asyncio.shield(asking), None if wait else AT_ONCE))["html"]
            more = (await self.desk.ask("more", "", card.name, typed))["html"] if wait else ""
        except TimeoutError:
            asking.add_done_callback(lambda done: done.cancelled() or done.exception())  # told by the part that follows
        except MetricShuffleError as refused:
            wrong = sentences_of(refused)
        return HTMLResponse(self._page(card, typed, wrong, answer, more), 200)

    def _page(self, card: Any, typed: dict[str, str], wrong: dict[str, str], answer: str, more: str) -> str:
        return rendered(
            "web/planner.html.jinja", cards=PLANNED, engineers=list(ENGINEERS.values()), card=card, typed=typed, wrong=wrong,
            answer=answer, more=more,
            files=FILES, state="" if card is None else state_of(card.name, typed), version=metricshuffle.__version__,
        )  # fmt: skip

    async def part(self, request: Request, job: str) -> Response:
        """A part of the page for a form that changed; what is wrong with it goes to its fields."""
        from starlette.responses import HTMLResponse

        card = (CARDS | ENGINEERS).get(request.query_params.get("card", ""))
        if card is None:
            return HTMLResponse("there is no such question; choose one of the cards.", 404)
        typed = card.filled(request.query_params)
        try:
            answer = await self.desk.ask(job, request.headers.get("x-window", ""), card.name, typed)
        except Superseded:
            return HTMLResponse("", 204)
        except MetricShuffleError as wrong:
            return HTMLResponse(self._wrong(card, typed, sentences_of(wrong), job))
        html = answer["html"]
        if job in LIVE:
            follow = {"follow": job == "answer", "state": state_of(card.name, typed), "files": FILES}
            html += rendered("web/beside.html.jinja", card=card, wrong={}, typed=typed, **follow)
        return HTMLResponse(html)

    def _wrong(self, card: Any, typed: dict[str, str], wrong: dict[str, str], job: str) -> str:
        if job not in LIVE:
            return rendered("web/refused.html.jinja", wrong=wrong)
        beside = rendered("web/beside.html.jinja", card=card, wrong=wrong, typed=typed, files=FILES, state="", follow=False)
        return rendered("web/refused.html.jinja", wrong=wrong) + beside

    async def answer(self, request: Request) -> Response:
        return await self.part(request, "answer")

    async def more(self, request: Request) -> Response:
        return await self.part(request, "more")

    async def texts(self, request: Request) -> Response:
        return await self.part(request, "texts")

    async def engineers(self, request: Request) -> Response:
        """The cards for engineers."""
        from starlette.responses import HTMLResponse

        card = ENGINEERS.get(request.query_params.get("card", ""), AMPLIFY)
        typed = card.filled(request.query_params)
        answer, wrong = "", {}
        if "wait" in request.query_params:
            try:
                answer = (await self.desk.ask("engineered", "", card.name, typed))["html"]
            except MetricShuffleError as refused:
                wrong = sentences_of(refused)
        page = rendered(
            "web/engineers.html.jinja", cards=list(ENGINEERS.values()), card=card, typed=typed, wrong=wrong, answer=answer,
            state=state_of(card.name, typed), version=metricshuffle.__version__,
        )  # fmt: skip
        return HTMLResponse(page)

    async def engineered(self, request: Request) -> Response:
        return await self.part(request, "engineered")

    async def take(self, request: Request) -> Response:
        """A file to take along."""
        from starlette.responses import PlainTextResponse, Response

        card, name = CARDS.get(request.query_params.get("card", "")), request.path_params["name"]
        if card is None or name not in FILES:
            return PlainTextResponse("There is no such file.\n", 404)
        try:
            taken = await self.desk.ask("take", "", card.name, card.filled(request.query_params), name=name)
        except MetricShuffleError as wrong:
            return PlainTextResponse(f"{wrong}\n", 422)
        return Response(
            taken["text"], media_type=TYPES[name.partition(".")[2]], headers={"content-disposition": f'attachment; filename="{name}"'}
        )


def sentences_of(wrong: MetricShuffleError) -> dict[str, str]:
    """What stands beside which field."""
    return wrong.sentences if isinstance(wrong, WrongFields) else {"": str(wrong)}
