"""ASGI application of the page: its routes and static files."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from metricshuffle.report.template_engine import render_template, set_root
from metricshuffle.web.access_control import AccessGuard, root_path
from metricshuffle.web.collection_console import Console
from metricshuffle.web.dry_run_routes import DryRunRoutes
from metricshuffle.web.job_service import JobService
from metricshuffle.web.planner import Planner
from metricshuffle.web.uploads import Uploads

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

STATIC = Path(__file__).parent / "static"
SHARED = ("style.css", "fold.js")
HTMX_VERSION = "2.0.11"
HTMX_SHA256 = "d6fdc75f204e6bdefa99b69bf1e6d4ac69b8a364f77929f45c13476b4000f717"
"""Hash of dist/htmx.min.js, vendored from the npm package htmx.org (Zero-Clause BSD).

A test compares it.
"""
TYPES = {"js": "text/javascript; charset=utf-8", "css": "text/css; charset=utf-8"}


@cache
def static_text(name: str) -> str | None:
    """Return a script or style of the page; some are templates that all pages share."""
    if name in SHARED:
        return render_template(name)
    file = STATIC / name
    return (
        file.read_text(encoding="utf-8") if name in ("htmx.min.js", "web.js", "web.css") else None
    )


async def static(request: Request) -> Response:
    from starlette.responses import PlainTextResponse, Response

    name = request.path_params["name"]
    text = static_text(name)
    if text is None:
        return PlainTextResponse("There is no such file.\n", 404)
    return Response(
        text, media_type=TYPES[name.rpartition(".")[2]], headers={"cache-control": "max-age=3600"}
    )


async def healthy(request: Request) -> Response:
    from starlette.responses import JSONResponse

    return JSONResponse({"healthy": True})


def application(
    token: str, port: int, *, local: bool = True, limit: float | None = None, once: str = ""
) -> AccessGuard:
    """Build the application behind its access guard; workers start and end with it.

    `once` is another token, which opens the page a single time.
    """
    from starlette.applications import Starlette
    from starlette.routing import Route

    below = root_path(token)
    set_root(below)
    job_service = JobService(limit)
    planner = Planner(job_service)
    uploads = Uploads()
    trying = DryRunRoutes(job_service, uploads)
    console = Console(job_service, local)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        job_service.start()
        looking = asyncio.ensure_future(uploads.delete_expired())
        try:
            yield
        finally:
            looking.cancel()
            job_service.close()
            uploads.close()
            console.close()

    routes = [
        Route("/", planner.page),
        Route("/answer", planner.answer),
        Route("/more", planner.more),
        Route("/texts", planner.texts),
        Route("/take/{name}", planner.take),
        Route("/engineers", planner.engineers),
        Route("/engineered", planner.engineered),
        Route("/file", trying.file, methods=["POST"]),
        Route("/try", trying.trial, methods=["POST"]),
        Route("/forget", trying.forget, methods=["POST"]),
        Route("/console", console.page),
        Route("/console/collections", console.listed),
        Route("/console/add", console.add, methods=["POST"]),
        Route("/console/remove", console.remove, methods=["POST"]),
        Route("/console/open", console.open, methods=["POST"]),
        Route("/console/abort", console.abort, methods=["POST"]),
        Route("/console/collect", console.collect, methods=["POST"]),
        Route("/console/release/{digest}", console.release),
        Route("/console/join/{digest}", console.join),
        Route("/console/tickets/{digest}", console.tickets),
        Route("/console/{form}", console.again),
        Route("/static/{name}", static),
        Route("/healthz", healthy),
    ]
    return AccessGuard(Starlette(routes=routes, lifespan=lifespan), token, port, below, once)
