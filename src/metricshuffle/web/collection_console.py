"""The console: collections of one or more shufflers, through the operator's calls; and collecting, with a key of this machine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import metricshuffle
from metricshuffle.errors import InputError, MetricShuffleError
from metricshuffle.report.template_engine import render_template, root
from metricshuffle.web.access_control import is_within_size
from metricshuffle.web.form_fields import FieldErrors
from metricshuffle.web.job_service import JobService
from metricshuffle.web.temp_folders import delete_folder, make_temp_folder
from metricshuffle.web.uploads import PIECE
from metricshuffle.web.wording_fields import TaskWording, with_wording

if TYPE_CHECKING:
    from starlette.datastructures import FormData
    from starlette.requests import Request
    from starlette.responses import Response

    from metricshuffle.collection.operator.control_api import Opening, Operator

MAX_PLAN_BYTES = 8 * 2**20
ANSWER_SECONDS = 8.0
"""Seconds for which the page waits for a shuffler before it shows the others without it."""
MAX_COUNT = 10**13
FINAL_STATES = ("aborted", "purged")
RELEASED_STATES = ("released", "purged")


@dataclass(frozen=True)
class WatchedCollection:
    """A collection as the console shows it."""

    url: str
    digest: str
    asked: str
    """What people are asked for, in words; "" if that is not known."""
    title: str
    question: str
    """As the planner wrote them; "" if they are missing."""
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
    history: tuple[str, ...] = ()
    """When its state changed, and what the operator did to the clock."""


@dataclass
class Console:
    """What one server knows of shufflers: tokens stay in its memory, and go nowhere but to their shuffler."""

    job_service: JobService
    local: bool
    folder: Path = field(default_factory=make_temp_folder)
    services: dict[str, str] = field(default_factory=dict)
    releases: dict[str, str] = field(default_factory=dict)
    """Digest of a collection -> its release, as JSON."""
    rounds: dict[str, int] = field(default_factory=dict)
    apart: dict[str, bool] = field(default_factory=dict)
    asked: dict[str, str] = field(default_factory=dict)
    tasks: dict[str, TaskWording] = field(default_factory=dict)

    async def page(self, request: Request) -> Response:
        return self._html(await self._page({}, {}))

    async def again(self, request: Request) -> Response:
        """Somebody typed the address of a form, or came back to it: there is nothing to see, but the console."""
        from starlette.responses import RedirectResponse

        return RedirectResponse(f"{root()}/console", 303)

    async def _page(self, errors: Mapping[str, str], where: Mapping[str, str]) -> str:
        """`wrong`: what is wrong beside which field; "" is the form itself, which `where` names with what was typed into it."""
        if errors and where.get("where") == "open" and not self.services:  # that form is shown only if there is a shuffler to open it at
            errors, where = {"": " ".join(errors.values())}, {"where": "add"}
        return render_template(
            "web/console.html.jinja",
            version=metricshuffle.__version__,
            services=sorted(self.services),
            wrong=errors,
            place=where,
            collections=await self._collections_html(errors if where.get("where") == "collections" else {}, where.get("digest", "")),
            local=self.local,
        )

    async def listed(self, request: Request) -> Response:
        """Only the collections: the page asks for them again and again."""
        return self._html(await self._collections_html())

    async def _collections_html(self, errors: Mapping[str, str] | None = None, about: str = "") -> str:
        """`about` is the collection whose form has something wrong in it."""
        watched: list[WatchedCollection] = []
        silent: list[str] = []
        urls = list(self.services)
        answers = await asyncio.gather(
            *(asyncio.wait_for(asyncio.to_thread(self._statuses, url), ANSWER_SECONDS) for url in urls), return_exceptions=True
        )
        for url, answer in zip(urls, answers, strict=True):
            if isinstance(answer, TimeoutError):
                silent.append(f"{url} has not answered for {ANSWER_SECONDS:g} seconds; it is asked again.")
            elif isinstance(answer, MetricShuffleError):
                silent.append(str(answer))
            elif isinstance(answer, BaseException):
                raise answer
            else:
                watched += answer
        field_errors = errors or {}
        if "key" in field_errors and not (self.local and any(it.digest == about and it.can_collect and not it.released for it in watched)):
            silent.append(field_errors["key"])  # the field that it is about is not there any more
        return render_template(
            "web/collections.html.jinja", watched=watched, silent=silent, services=bool(self.services), local=self.local,
            wrong=field_errors, about=about,
        )  # fmt: skip

    def _operator(self, url: str) -> Operator:
        from metricshuffle.collection.operator.control_api import Operator

        if url not in self.services:
            raise InputError("this shuffler is not known here; add it first.")
        return Operator(url, self.services[url])

    def _statuses(self, url: str) -> list[WatchedCollection]:
        operator = self._operator(url)
        return [self._watched_collection(url, status) for status in operator.statuses()]

    def _watched_collection(self, url: str, status: dict[str, Any]) -> WatchedCollection:
        import time

        from metricshuffle.collection.terms import parse_time

        digest, state, minimum = str(status["digest"]), str(status["state"]), int(status["minimum"])
        reports = status.get("people") if status.get("people") is not None else status.get("reports")
        self._load_terms(url, digest)
        left = parse_time(str(status["until"])) - time.time()
        rounds = self.rounds.get(digest)
        left_after = 0 if rounds is None else max(0, rounds - int(status["round"]))
        rounds_text = "the only round" if rounds == 1 else f"round {status['round']} of {rounds}; {left_after} left after it"
        return WatchedCollection(
            url, digest, self.asked.get(digest, ""), self.tasks[digest].title, self.tasks[digest].question, state,
            STATE_TEXTS.get(state, state) + (f": {status['reason']}" if status.get("reason") else ""), reports, minimum,
            min(1.0, (reports or 0) / max(minimum, 1)), _duration(left) if state == "open" else "", rounds_text if rounds else "",
            not self.apart.get(digest, True), state not in (*FINAL_STATES, *RELEASED_STATES), state == "released", digest in self.releases,
            str(status.get("trouble", "")), _history(status),
        )  # fmt: skip

    def _load_terms(self, url: str, digest: str) -> None:
        """Read a collection once, for what its status does not say."""
        if digest in self.rounds:
            return
        collection = self._collection(url, digest)
        self.rounds[digest], self.apart[digest] = collection.task.rounds, collection.terms.apart
        query_text = str(collection.task.query)
        self.asked[digest] = f"{query_text[:1].upper()}{query_text[1:]}"
        self.tasks[digest] = TaskWording.of(collection.task)

    def _collection(self, url: str, digest: str) -> Any:
        import httpx

        from metricshuffle.collection.terms import Collection

        if url not in self.services:
            raise InputError("this shuffler is not known here; add it first.")
        try:
            answer = httpx.get(f"{url}/v1/collections/{validate_digest(digest)}", timeout=20)
        except httpx.HTTPError as error:
            raise InputError(f"cannot reach {url} ({type(error).__name__}).") from None
        if answer.status_code != 200:
            raise InputError(f"{url} does not show the collection {digest[:16]}.")
        return Collection(answer.content)

    async def add(self, request: Request) -> Response:
        """A shuffler and its operator's token, which is tried at once."""
        form = await request.form()

        def added() -> None:
            from metricshuffle.collection.operator.control_api import Operator
            from metricshuffle.collection.shuffler.server import validate_address

            with errors_at_field("url"):
                url = validate_address(_text(form, "url").rstrip("/"), "the address")
            token = _text(form, "token")
            if not token:
                raise FieldErrors({"token": "The operator's token is missing; it is in the file operator.token of the shuffler's keys."})
            try:
                Operator(url, token).statuses()
            except MetricShuffleError as error:
                message = str(error).partition(" Give its keys folder")[0]
                raise FieldErrors({"token" if message != str(error) else "url": message}) from None
            self.services[url] = token

        return await self._run_action(added, "add", {"url": _text(form, "url")})

    async def remove(self, request: Request) -> Response:
        form = await request.form()
        return await self._run_action(lambda: self.services.pop(_text(form, "url"), None), "add", {})

    async def open(self, request: Request) -> Response:
        """Open a collection of a plan or task at a shuffler."""
        if not is_within_size(request, MAX_PLAN_BYTES + PIECE):
            async for _ in request.stream():  # a browser listens only when it has said everything
                pass
            errors = {"plan": f"This file is too large to be a plan or a task, which have at most {MAX_PLAN_BYTES // 2**20} MB."}
            return self._html(await self._page(errors, {"where": "open"}))
        async with request.form(max_files=1, max_fields=20) as form:
            upload: Any = form.get("plan")
            text = "" if upload is None or isinstance(upload, str) else (await upload.read()).decode("utf-8", "replace")
            words = {name: _text(form, name) for name in ("url", "title", "question", "analyst", "closes", "colluders", "round", "same")}
        return await self._run_action(lambda: self._open(text, words), "open", words)

    def _open(self, text: str, words: dict[str, str]) -> None:
        import time

        from metricshuffle.collection.keys import analyst_of
        from metricshuffle.collection.operator.control_api import Opening, check_round_is_free, open_at_all_hops, parse_time_option

        if not text:
            raise FieldErrors({"plan": "Choose the plan or the task, as the planner page or `metricshuffle plan --save` wrote it."})
        with errors_at_field("plan"):
            task = with_wording(_task(text), words)
        with errors_at_field("analyst"):
            analyst = analyst_of(words["analyst"])
        now = time.time()
        with errors_at_field("closes"):
            closes = parse_time_option(words["closes"] or "1h", now, "“Closes in”")
            if closes <= now:
                raise InputError("“Closes in” must lie in the future.")
        colluders, number = _count("colluders", words["colluders"], 0), _count("round", words["round"], 1)
        with errors_at_field("round" if number > task.rounds else "colluders"):
            opening = Opening(
                task=task, analyst=analyst, colluders=colluders, opens=int(now), closes=closes, extends=closes, retention=30 * 86400,
                round=number, apart=not words["same"],
            )  # fmt: skip
        operator = self._operator(words["url"])
        check_round_is_free([operator], opening)
        self._check_other_words(operator, opening)
        open_at_all_hops([operator], opening.collection(1, [operator.new_hop()]), [])

    def _check_other_words(self, operator: Operator, opening: Opening) -> None:
        """Raise if that round of the plan was opened with another title or question: the same people would report twice."""
        wordless = opening.task.reworded().digest
        for status in operator.statuses():
            digest = str(status["digest"])
            self._load_terms(operator.url, digest)
            if self.tasks[digest].wordless == wordless and status["round"] == opening.round:
                raise FieldErrors(
                    {
                        "plan": f"Round {opening.round} of this plan was opened with other words, {digest[:16]} ({status['state']}): "
                        "nobody may report twice; open the next round, or make another plan."
                    }
                )

    async def abort(self, request: Request) -> Response:
        form = await request.form()
        reason = _text(form, "reason") or "the operator aborted it"
        url, digest = _text(form, "url"), _text(form, "digest")
        return await self._run_action(lambda: self._operator(url).abort(validate_digest(digest), reason), "collections", {"digest": digest})

    async def collect(self, request: Request) -> Response:
        """Fetch, open and estimate, with the analyst's key in a file of this machine."""
        form = await request.form()
        url, digest, key = _text(form, "url"), _text(form, "digest"), _text(form, "key")
        try:
            if not self.local:
                raise InputError("the analyst's key stays on her machine; run metricshuffle web there to collect.")
            if not key:
                raise InputError("Where is the analyst's key? Give the path of the file that `metricshuffle analyst key` wrote.")
            served = (await asyncio.to_thread(self._collection, url, digest)).served
            output = str(self.folder / f"release-{digest[:16]}.json")
            result = await self.job_service.run_for_window("collect", "", served=served, key=key, output=output)
            self.releases[digest] = result["release"]
        except MetricShuffleError as error:
            return self._html(await self._page({"key": str(error)}, {"where": "collections", "digest": digest, "key": key}))
        return await self.again(request)

    async def release(self, request: Request) -> Response:
        """The release of a collection: its chart and promises, or the file."""
        from starlette.responses import PlainTextResponse, Response

        digest = request.path_params["digest"]
        if digest not in self.releases:
            return PlainTextResponse("There is no release of it here.\n", 404)
        if "download" in request.query_params:
            headers = {"content-disposition": f'attachment; filename="release-{digest[:16]}.json"'}
            return Response(self.releases[digest], media_type="application/json", headers=headers)
        result = await self.job_service.run_for_window("release", "", release=self.releases[digest])
        page = render_template(
            "web/alone.html.jinja",
            title=result["title"],
            back="/console",
            inner=render_template("web/released.html.jinja", inner=result["html"], digest=digest),
            version=metricshuffle.__version__,
        )
        return self._html(page)

    async def join(self, request: Request) -> Response:
        """The link for people who take part, and the same as a QR code."""
        import io

        import segno

        url, digest = request.query_params.get("url", ""), request.path_params["digest"]
        if url not in self.services:
            return self._html(await self._page({"": "This shuffler is not known here; add it first."}, {"where": "add"}))
        link, qr_image = f"{url}/join/{validate_digest(digest)}", io.BytesIO()
        segno.make(link, error="m").save(qr_image, kind="svg", xmldecl=False, svgns=True, scale=4, border=2)
        inner = render_template("web/join_link.html.jinja", link=link, qr=qr_image.getvalue().decode(), digest=digest)
        return self._html(
            render_template("web/alone.html.jinja", title="Take part", back="/console", inner=inner, version=metricshuffle.__version__)
        )

    async def _run_action(self, work: Callable[[], Any], where: str, typed: dict[str, str]) -> Response:
        """Do it, and show the console again; a sentence where it was asked if it cannot be."""
        from starlette.responses import RedirectResponse

        try:
            await asyncio.to_thread(work)
        except MetricShuffleError as error:
            errors = error.sentences if isinstance(error, FieldErrors) else {"": _with_labels(str(error))}
            return self._html(await self._page(errors, {"where": where, **typed}))
        return RedirectResponse(f"{root()}/console", 303)

    def _html(self, text: str) -> Response:
        from starlette.responses import HTMLResponse

        return HTMLResponse(text)

    def close(self) -> None:
        """Releases that were not downloaded go with the server, like everything else here."""
        delete_folder(self.folder)


STATE_TEXTS = {
    "open": "open: reports come in",
    "sealed": "sealed: no more reports",
    "shuffled": "shuffled: mixed, originals deleted",
    "erased": "shuffled, and its keys are destroyed",
    "released": "released: the analyst may collect",
    "aborted": "aborted",
    "purged": "purged: collected and gone",
}


@contextmanager
def errors_at_field(name: str) -> Iterator[None]:
    """What is wrong here stands beside that field."""
    try:
        yield
    except FieldErrors:
        raise
    except MetricShuffleError as error:
        text = _with_labels(str(error))
        raise FieldErrors({name: f"{text[:1].upper()}{text[1:]}"}) from None


def _count(name: str, text: str, minimum: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(MAX_COUNT)) and minimum <= int(text) <= MAX_COUNT):
        raise FieldErrors({name: f"{name.capitalize()} must be a whole number of at least {minimum}, got {text[:40]!r}."})
    return int(text)


def validate_digest(text: str) -> str:
    if len(text) != 64 or set(text) - set("0123456789abcdef"):
        raise InputError("a collection is named by 64 hexadecimal digits.")
    return text


def _task(text: str) -> Any:
    """The task in a plan or a task file."""
    import json

    from metricshuffle.planning import Plan
    from metricshuffle.tasks.task import TASK_FORMAT, Task

    try:
        named = json.loads(text).get("format")
    except (ValueError, AttributeError):
        raise InputError("this file is neither a plan nor a task.") from None
    task = Task.from_json(text) if named == TASK_FORMAT else Plan.from_json(text).task
    task.verify_once()  # nobody is to be asked for what is not kept
    return task


def _text(form: FormData, name: str) -> str:
    value = form.get(name, "")
    return value.strip() if isinstance(value, str) else ""


def _with_labels(text: str) -> str:
    return (
        text.replace("--closes", "“Closes in”")
        .replace("--colluders", "“Colluders”")
        .replace("--round", "“Round”")
        .replace("--honest", "“Honest people”")
    )


def _history(status: dict[str, Any]) -> tuple[str, ...]:
    """What happened to a collection and when, as far as its shuffler says so."""
    changes = [f"{name} at {status[key]}" for name, key in (("sealed", "sealed_at"), ("released", "released_at")) if status.get(key)]
    sentence = ", ".join(changes)
    return (*([f"{sentence[:1].upper()}{sentence[1:]}."] if changes else []), *map(str, status.get("clock") or ()))


def _duration(seconds: float) -> str:
    if seconds <= 0:
        return "closing"
    for size, name in ((86400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= 2 * size:
            return f"{int(seconds // size)} {name}s left"
    return f"{int(seconds)} seconds left"
