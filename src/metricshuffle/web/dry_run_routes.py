"""Routes of the dry run: upload a file, choose its columns, and show the result."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

import metricshuffle
from metricshuffle.errors import MetricShuffleError
from metricshuffle.report.template_engine import render_template
from metricshuffle.web.forms import CARDS
from metricshuffle.web.job_service import JobService, Superseded
from metricshuffle.web.uploads import Uploads

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from metricshuffle.web.dry_run import TrialOptions


class DryRunRoutes:
    def __init__(self, job_service: JobService, uploads: Uploads) -> None:
        self.job_service = job_service
        self.uploads = uploads

    async def file(self, request: Request) -> Response:
        """Receive a file and show its columns."""
        try:
            name = await self.uploads.keep(request)
            try:
                columns = (
                    await self.job_service.long.run("columns", path=str(self.uploads.path(name)))
                )["columns"]
            except MetricShuffleError:
                self.uploads.forget(name)
                raise
        except MetricShuffleError as error:
            return self._part(
                request,
                render_template(
                    "web/columns.html.jinja",
                    wrong=str(error),
                    columns=[],
                    name="",
                    places=False,
                    items=False,
                    state="",
                ),
            )
        state = request.query_params.get("state", "") or str(request.url.query)
        form = dict(parse_qsl(state, keep_blank_values=True))
        places = form.get("card") == "place" or form.get("item") == "square"
        html = render_template(
            "web/columns.html.jinja",
            wrong="",
            columns=columns,
            name=name,
            places=places,
            items=form.get("card") == "items",
            state=state,
        )
        return self._part(request, html)

    async def trial(self, request: Request) -> Response:
        """Show the dry run of a form on a file, or on invented people."""
        form = await request.form()
        state = dict(parse_qsl(str(form.get("state", "")), keep_blank_values=True))
        card = CARDS.get(state.pop("card", ""))
        if card is None:
            return self._part(
                request,
                render_template(
                    "web/trial.html.jinja", trial=None, wrong="choose one of the cards first."
                ),
            )
        name = str(form.get("file", ""))
        trial_options: TrialOptions = {
            "columns": [str(form[key]) for key in ("column", "column2") if form.get(key)],
            "user_column": str(form.get("user_column", "")),
            "per_user": str(form.get("per_user", "")),
            "path": "",
        }
        try:
            if name:
                trial_options["path"] = str(self.uploads.path(name))
            typed = card.filled(state)
            cached_plan = self.job_service.cached_plan_of(card.name, typed)
            result = await self.job_service.run_for_window(
                "trial",
                request.headers.get("x-window", ""),
                card=card.name,
                typed=typed,
                known=cached_plan,
                options=trial_options,
            )
            html = result["html"]
            if name and "hx-request" in request.headers:  # a script shows it at the column
                html += render_template(
                    "web/column_wrong.html.jinja", sentence=result["column_error"]
                )
        except Superseded:
            html = ""
        except MetricShuffleError as error:
            html = render_template("web/trial.html.jinja", trial=None, wrong=str(error))
        if form.get("forget"):
            self.uploads.forget(name)
        return self._part(request, html)

    async def forget(self, request: Request) -> Response:
        form = await request.form()
        self.uploads.forget(str(form.get("file", "")))
        return self._part(request, render_template("web/forgotten.html.jinja"))

    def _part(self, request: Request, html: str) -> Response:
        """A part of the page; a whole page if no script inserts it."""
        from starlette.responses import HTMLResponse

        if "hx-request" in request.headers:
            return HTMLResponse(html)
        return HTMLResponse(
            render_template(
                "web/alone.html.jinja",
                title="Try",
                back="",
                inner=html,
                version=metricshuffle.__version__,
            )
        )
