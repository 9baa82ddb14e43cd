"""Routes of the planner: the cards, their forms, and parts of the page for a changed form."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import metricshuffle
from metricshuffle.errors import MetricShuffleError
from metricshuffle.report.template_engine import render_template
from metricshuffle.web.card_fields import QuestionCard
from metricshuffle.web.downloads import DOWNLOADS
from metricshuffle.web.engineer_cards import AMPLIFY, ENGINEER_CARDS
from metricshuffle.web.form_fields import FieldErrors
from metricshuffle.web.job_service import JobService, Superseded, form_state
from metricshuffle.web.question_cards import PLAN_CARDS

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

CARDS = {card.name: card for card in PLAN_CARDS}
LIVE_JOBS = ("answer", "engineered")
FIRST_ANSWER_SECONDS = 1.5
"""Seconds that a page waits for its answer; a slower answer is sent after the page."""


class Planner:
    def __init__(self, job_service: JobService) -> None:
        self.job_service = job_service

    async def page(self, request: Request) -> Response:
        """Show the cards, and the form and answer of the chosen one.

        With `wait=1`, for browsers without scripts, the page waits until it has everything.
        """
        from starlette.responses import HTMLResponse

        card = CARDS.get(request.query_params.get("card", ""))
        if card is None:
            return HTMLResponse(self._page(None, {}, {}, "", ""))
        typed = card.filled(request.query_params)
        errors: dict[str, str] = {}
        answer = more = ""
        wait = "wait" in request.query_params
        try:
            asking = asyncio.ensure_future(self.job_service.ask("answer", "", card.name, typed))
            answer = (
                await asyncio.wait_for(
                    asyncio.shield(asking), None if wait else FIRST_ANSWER_SECONDS
                )
            )["html"]
            more = (
                (await self.job_service.ask("more", "", card.name, typed))["html"] if wait else ""
            )
        except TimeoutError:
            asking.add_done_callback(
                lambda done: done.cancelled() or done.exception()
            )  # The part that follows shows the error.
        except MetricShuffleError as refused:
            errors = error_texts(refused)
        return HTMLResponse(self._page(card, typed, errors, answer, more), 200)

    def _page(
        self,
        card: QuestionCard | None,
        typed: dict[str, str],
        errors: dict[str, str],
        answer: str,
        more: str,
    ) -> str:
        return render_template(
            "web/planner.html.jinja",
            cards=PLAN_CARDS,
            engineers=list(ENGINEER_CARDS.values()),
            card=card,
            typed=typed,
            wrong=errors,
            answer=answer,
            more=more,
            files=DOWNLOADS,
            state="" if card is None else form_state(card.name, typed),
            version=metricshuffle.__version__,
        )

    async def part(self, request: Request, job: str) -> Response:
        """Render a part of the page for a changed form; errors go to their fields."""
        from starlette.responses import HTMLResponse

        card = (CARDS | ENGINEER_CARDS).get(request.query_params.get("card", ""))
        if card is None:
            return HTMLResponse("there is no such question; choose one of the cards.", 404)
        typed = card.filled(request.query_params)
        try:
            answer = await self.job_service.ask(
                job, request.headers.get("x-window", ""), card.name, typed
            )
        except Superseded:
            return HTMLResponse("", 204)
        except MetricShuffleError as error:
            return HTMLResponse(self._errors_html(card, typed, error_texts(error), job))
        html = answer["html"]
        if job in LIVE_JOBS:
            follow = {
                "follow": job == "answer",
                "state": form_state(card.name, typed),
                "files": DOWNLOADS,
            }
            html += render_template(
                "web/beside.html.jinja", card=card, wrong={}, typed=typed, **follow
            )
        return HTMLResponse(html)

    def _errors_html(
        self, card: QuestionCard, typed: dict[str, str], errors: dict[str, str], job: str
    ) -> str:
        if job not in LIVE_JOBS:
            return render_template("web/refused.html.jinja", wrong=errors)
        beside = render_template(
            "web/beside.html.jinja",
            card=card,
            wrong=errors,
            typed=typed,
            files=DOWNLOADS,
            state="",
            follow=False,
        )
        return render_template("web/refused.html.jinja", wrong=errors) + beside

    async def answer(self, request: Request) -> Response:
        return await self.part(request, "answer")

    async def more(self, request: Request) -> Response:
        return await self.part(request, "more")

    async def texts(self, request: Request) -> Response:
        return await self.part(request, "texts")

    async def engineers(self, request: Request) -> Response:
        """Show the cards for engineers."""
        from starlette.responses import HTMLResponse

        card = ENGINEER_CARDS.get(request.query_params.get("card", ""), AMPLIFY)
        typed = card.filled(request.query_params)
        answer = ""
        errors = {}
        if "wait" in request.query_params:
            try:
                answer = (await self.job_service.ask("engineered", "", card.name, typed))["html"]
            except MetricShuffleError as refused:
                errors = error_texts(refused)
        page = render_template(
            "web/engineers.html.jinja",
            cards=list(ENGINEER_CARDS.values()),
            card=card,
            typed=typed,
            wrong=errors,
            answer=answer,
            state=form_state(card.name, typed),
            version=metricshuffle.__version__,
        )
        return HTMLResponse(page)

    async def engineered(self, request: Request) -> Response:
        return await self.part(request, "engineered")

    async def take(self, request: Request) -> Response:
        """Send a file for download."""
        from starlette.responses import PlainTextResponse, Response

        card = CARDS.get(request.query_params.get("card", ""))
        name = request.path_params["name"]
        if card is None or name not in DOWNLOADS:
            return PlainTextResponse("There is no such file.\n", 404)
        try:
            taken = await self.job_service.ask(
                "take", "", card.name, card.filled(request.query_params), name=name
            )
        except MetricShuffleError as error:
            return PlainTextResponse(f"{error}\n", 422)
        headers = {"content-disposition": f'attachment; filename="{name}"'}
        return Response(taken["text"], media_type=DOWNLOADS[name].media_type, headers=headers)


def error_texts(error: MetricShuffleError) -> dict[str, str]:
    """Error sentences by field."""
    return error.sentences if isinstance(error, FieldErrors) else {"": str(error)}
