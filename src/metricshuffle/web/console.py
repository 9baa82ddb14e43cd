"""The console: collections of one or more shufflers, through the operator's calls; and collecting, with a key of this machine."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import metricshuffle
from metricshuffle.errors import InputError, MetricShuffleError
from metricshuffle.pages.rendering import rendered
from metricshuffle.web.desk import Desk

if TYPE_CHECKING:
    from starlette.datastructures import FormData
    from starlette.requests import Request
    from starlette.responses import Response

    from metricshuffle.service.control import Operator

LARGEST_PLAN = 8 * 2**20
OVER = ("aborted", "purged")
DONE = ("released", "purged")


@dataclass(frozen=True)
class Watched:
    """A collection as the console shows it."""

    url: str
    digest: str
    state: str
    words: str
    reports: int | None
    minimum: int
    share: float
    left: str
    rounds: str
    both: bool
    """The same person is operator and analyst, as the operator said."""
    can_abort: bool
    can_collect: bool
    released: bool
    trouble: str


@dataclass
class Console:
    """What one server knows of shufflers: tokens stay in its memory, and go nowhere but to their shuffler."""

    desk: Desk
    local: bool
    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="metricshuffle-releases-")))
    services: dict[str, str] = field(default_factory=dict)
    releases: dict[str, str] = field(default_factory=dict)
    """Digest of a collection -> its release, as JSON."""
    rounds: dict[str, int] = field(default_factory=dict)
    apart: dict[str, bool] = field(default_factory=dict)

    async def page(self, request: Request) -> Response:
        return self._html(await self._page("", {}))

    async def _page(self, wrong: str, where: dict[str, str]) -> str:
        return rendered(
            "web/console.html.jinja", version=metricshuffle.__version__, services=sorted(self.services), wrong=wrong, place=where,
            collections=await self._listed(), local=self.local,
        )  # fmt: skip

    async def listed(self, request: Request) -> Response:
        """Only the collections: the page asks for them again and again."""
        return self._html(await self._listed())

    async def _listed(self) -> str:
        watched: list[Watched] = []
        silent: list[str] = []
        answers = await asyncio.gather(*(asyncio.to_thread(self._statuses, url) for url in self.services), return_exceptions=True)
        for answer in answers:
            if isinstance(answer, MetricShuffleError):
                silent.append(str(answer))
            elif isinstance(answer, BaseException):
                raise answer
            else:
                watched += answer
        return rendered("web/collections.html.jinja", watched=watched, silent=silent, services=bool(self.services), local=self.local)

    def _operator(self, url: str) -> Operator:
        from metricshuffle.service.control import Operator

        if url not in self.services:
            raise InputError("this shuffler is not known here; add it first.")
        return Operator(url, self.services[url])

    def _statuses(self, url: str) -> list[Watched]:
        operator = self._operator(url)
        return [self._watched(url, status) for status in operator.statuses()]

    def _watched(self, url: str, status: dict[str, Any]) -> Watched:
        import time

        from metricshuffle.service.collection import seconds_of

        digest, state, minimum = str(status["digest"]), str(status["state"]), int(status["minimum"])
        reports = status.get("people") if status.get("people") is not None else status.get("reports")
        self._look(url, digest)
        left = seconds_of(str(status["until"])) - time.time()
        rounds = self.rounds.get(digest)
        told = "" if rounds is None else f"round {status['round']} of {rounds}; {max(0, rounds - int(status['round']))} left after it"
        return Watched(
            url, digest, state, WORDS.get(state, state) + (f": {status['reason']}" if status.get("reason") else ""), reports, minimum,
            min(1.0, (reports or 0) / max(minimum, 1)), _duration(left) if state == "open" else "", told,
            not self.apart.get(digest, True), state not in (*OVER, *DONE), state == "released", digest in self.releases,
            str(status.get("trouble", "")),
        )  # fmt: skip

    def _look(self, url: str, digest: str) -> None:
        """Read a collection once, for what its status does not say."""
        if digest in self.rounds:
            return
        collection = self._collection(url, digest)
        self.rounds[digest], self.apart[digest] = collection.task.rounds, collection.terms.apart

    def _collection(self, url: str, digest: str) -> Any:
        import httpx

        from metricshuffle.service.collection import Collection

        if len(digest) != 64 or set(digest) - set("0123456789abcdef"):
            raise InputError("a collection is named by 64 hexadecimal digits.")
        try:
            answer = httpx.get(f"{url}/v1/collections/{digest}", timeout=20)
        except httpx.HTTPError as wrong:
            raise InputError(f"cannot reach {url} ({type(wrong).__name__}).") from None
        if answer.status_code != 200:
            raise InputError(f"{url} does not show the collection {digest[:16]}.")
        return Collection(answer.content)

    async def add(self, request: Request) -> Response:
        """A shuffler and its operator's token, which is tried at once."""
        form = await request.form()

        def added() -> None:
            from metricshuffle.service.control import Operator
            from metricshuffle.service.serving import checked_address

            url = checked_address(_text(form, "url").rstrip("/"), "the address")
            token = _text(form, "token")
            if not token:
                raise InputError("the operator's token is missing; it is in the file operator.token of the shuffler's keys.")
            Operator(url, token).statuses()
            self.services[url] = token

        return await self._done(added, "add", {"url": _text(form, "url")})

    async def remove(self, request: Request) -> Response:
        form = await request.form()
        return await self._done(lambda: self.services.pop(_text(form, "url"), None), "add", {})

    async def open(self, request: Request) -> Response:
        """Open a collection of a plan or task at a shuffler."""
        async with request.form(max_files=1, max_fields=20) as form:
            upload: Any = form.get("plan")
            text = (
                (await upload.read(LARGEST_PLAN)).decode("utf-8", "replace") if upload is not None and not isinstance(upload, str) else ""
            )
            words = {name: _text(form, name) for name in ("url", "analyst", "closes", "colluders", "round", "same")}
        return await self._done(lambda: self._open(text, words), "open", words)

    def _open(self, text: str, words: dict[str, str]) -> None:
        import time

        from metricshuffle.service.collection import Hop
        from metricshuffle.service.control import Opening, check_free, moment, open_everywhere
        from metricshuffle.service.keys import analyst_of

        if not text:
            raise InputError("choose the plan or the task, as the planner page or `metricshuffle plan --save` wrote it.")
        for name in ("colluders", "round"):
            if not words[name].isdigit():
                raise InputError(f"{name} must be a whole number, got {words[name]!r}.")
        now = time.time()
        closes = moment(words["closes"] or "1h", now, "closes")
        opening = Opening(
            task=_task(text), analyst=analyst_of(words["analyst"]), colluders=int(words["colluders"]), opens=int(now), closes=closes,
            extends=closes, retention=30 * 86400, round=int(words["round"]), apart=not words["same"],
        )  # fmt: skip
        operator = self._operator(words["url"])
        check_free([operator], opening)
        hop = Hop(**operator.new_party().model_dump() | {"url": operator.url})
        open_everywhere([operator], opening.collection(1, [hop]), [])

    async def abort(self, request: Request) -> Response:
        form = await request.form()
        reason = _text(form, "reason") or "the operator aborted it"
        return await self._done(lambda: self._operator(_text(form, "url")).abort(_text(form, "digest"), reason), "collections", {})

    async def collect(self, request: Request) -> Response:
        """Fetch, open and estimate, with the analyst's key in a file of this machine."""
        form = await request.form()
        url, digest, key = _text(form, "url"), _text(form, "digest"), _text(form, "key")
        try:
            if not self.local:
                raise InputError("the analyst's key stays on her machine; run metricshuffle web there to collect.")
            if not key:
                raise InputError("where is the analyst's key? Give the path of the file that `metricshuffle analyst key` wrote.")
            served = (await asyncio.to_thread(self._collection, url, digest)).served
            output = str(self.folder / f"release-{digest[:16]}.json")
            told = await self.desk.of_window("collect", "", served=served, key=key, output=output)
            self.releases[digest] = told["release"]
        except MetricShuffleError as wrong:
            return self._html(await self._page(str(wrong), {"where": "collections"}))
        return self._html(await self._page("", {}))

    async def release(self, request: Request) -> Response:
        """The release of a collection: its chart and promises, or the file."""
        from starlette.responses import PlainTextResponse, Response

        digest = request.path_params["digest"]
        if digest not in self.releases:
            return PlainTextResponse("There is no release of it here.\n", 404)
        if "download" in request.query_params:
            headers = {"content-disposition": f'attachment; filename="release-{digest[:16]}.json"'}
            return Response(self.releases[digest], media_type="application/json", headers=headers)
        made = await self.desk.of_window("release", "", release=self.releases[digest])
        page = rendered(
            "web/alone.html.jinja",
            title="Release",
            inner=rendered("web/released.html.jinja", inner=made["html"], digest=digest),
            version=metricshuffle.__version__,
        )
        return self._html(page)

    async def join(self, request: Request) -> Response:
        """The link for people who take part, and the same as a QR code."""
        import io

        import segno

        url, digest = request.query_params.get("url", ""), request.path_params["digest"]
        if url not in self.services:
            return self._html(await self._page("this shuffler is not known here; add it first.", {"where": "add"}))
        link, drawn = f"{url}/join/{digest}", io.BytesIO()
        segno.make(link, error="m").save(drawn, kind="svg", xmldecl=False, svgns=True, scale=4, border=2)
        inner = rendered("web/join_link.html.jinja", link=link, qr=drawn.getvalue().decode(), digest=digest)
        return self._html(rendered("web/alone.html.jinja", title="Take part", inner=inner, version=metricshuffle.__version__))

    async def _done(self, work: Callable[[], Any], where: str, typed: dict[str, str]) -> Response:
        """Do it, and show the console again; a sentence where it was asked if it cannot be."""
        from starlette.responses import RedirectResponse

        try:
            await asyncio.to_thread(work)
        except MetricShuffleError as wrong:
            return self._html(await self._page(_without_options(str(wrong)), {"where": where, **typed}))
        return RedirectResponse("/console", 303)

    def _html(self, text: str) -> Response:
        from starlette.responses import HTMLResponse

        return HTMLResponse(text)

    def close(self) -> None:
        """Releases that were not downloaded go with the server, like everything else here."""
        import shutil

        shutil.rmtree(self.folder, ignore_errors=True)


WORDS = {
    "open": "open: reports come in",
    "sealed": "sealed: no more reports",
    "shuffled": "shuffled: mixed, originals deleted",
    "erased": "shuffled, and its keys are destroyed",
    "released": "released: the analyst may collect",
    "aborted": "aborted",
    "purged": "purged: collected and gone",
}


def _task(text: str) -> Any:
    """The task in a plan or a task file."""
    import json

    from metricshuffle.planning import Plan
    from metricshuffle.wire.task import TASK_FORMAT, Task

    try:
        named = json.loads(text).get("format")
    except (ValueError, AttributeError):
        raise InputError("this file is neither a plan nor a task.") from None
    return Task.from_json(text) if named == TASK_FORMAT else Plan.from_json(text).task


def _text(form: FormData, name: str) -> str:
    value = form.get(name, "")
    return value.strip() if isinstance(value, str) else ""


def _without_options(text: str) -> str:
    return (
        text.replace("--closes", "“Closes in”")
        .replace("--colluders", "“Colluders”")
        .replace("--round", "“Round”")
        .replace("--honest", "“Honest people”")
    )


def _duration(seconds: float) -> str:
    if seconds <= 0:
        return "closing"
    for size, name in ((86400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= 2 * size:
            return f"{int(seconds // size)} {name}s left"
    return f"{int(seconds)} seconds left"
