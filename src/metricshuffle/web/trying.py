"""The calls of the trial: a file comes in, a column is picked, and the dry run is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

import metricshuffle
from metricshuffle.errors import MetricShuffleError
from metricshuffle.pages.rendering import rendered
from metricshuffle.web.asked import CARDS
from metricshuffle.web.desk import Desk, Superseded
from metricshuffle.web.uploads import Uploads

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response


class Trying:
    def __init__(self, desk: Desk, uploads: Uploads) -> None:
        self.desk, self.uploads = desk, uploads

    async def file(self, request: Request) -> Response:
        """A file was chosen: which columns has it?"""
        try:
            name = await self.uploads.keep(request)
            try:
                columns = (await self.desk.long.run("columns", path=str(self.uploads.path(name))))["columns"]
            except MetricShuffleError:
                self.uploads.forget(name)
                raise
        except MetricShuffleError as wrong:
            return self._part(
                request, rendered("web/columns.html.jinja", wrong=str(wrong), columns=[], name="", places=False, items=False, state="")
            )
        state = request.query_params.get("state", "") or str(request.url.query)
        asked = dict(parse_qsl(state, keep_blank_values=True))
        places = asked.get("card") == "place" or asked.get("item") == "square"
        html = rendered(
            "web/columns.html.jinja", wrong="", columns=columns, name=name, places=places, items=asked.get("card") == "items", state=state
        )
        return self._part(request, html)

    async def trial(self, request: Request) -> Response:
        """The dry run of a form on a file, or on invented people."""
        form = await request.form()
        state = dict(parse_qsl(str(form.get("state", "")), keep_blank_values=True))
        card = CARDS.get(state.pop("card", ""))
        if card is None:
            return self._part(request, rendered("web/trial.html.jinja", trial=None, wrong="choose one of the cards first."))
        name = str(form.get("file", ""))
        given: dict[str, Any] = {
            "columns": [str(form[key]) for key in ("column", "column2") if form.get(key)],
            "user_column": str(form.get("user_column", "")),
            "per_user": str(form.get("per_user", "")),
        }
        try:
            given["path"] = str(self.uploads.path(name)) if name else ""
            typed = card.filled(state)
            known = self.desk.known_of(card.name, typed)
            told = await self.desk.of_window(
                "trial", request.headers.get("x-window", ""), card=card.name, typed=typed, known=known, given=given
            )
            html = told["html"]
            if name and "hx-request" in request.headers:  # where a script puts it beside the column
                html += rendered("web/column_wrong.html.jinja", sentence=told["wrong"])
        except Superseded:
            html = ""
        except MetricShuffleError as wrong:
            html = rendered("web/trial.html.jinja", trial=None, wrong=str(wrong))
        if form.get("forget"):
            self.uploads.forget(name)
        return self._part(request, html)

    async def forget(self, request: Request) -> Response:
        form = await request.form()
        self.uploads.forget(str(form.get("file", "")))
        return self._part(request, rendered("web/forgotten.html.jinja"))

    def _part(self, request: Request, html: str) -> Response:
        """A part of the page; a page of its own where no script puts it into its place."""
        from starlette.responses import HTMLResponse

        if "hx-request" in request.headers:
            return HTMLResponse(html)
        return HTMLResponse(rendered("web/alone.html.jinja", title="Try", back="", inner=html, version=metricshuffle.__version__))
