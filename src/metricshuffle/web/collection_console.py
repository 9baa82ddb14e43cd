"""Web console: operators watch, open and abort collections; analysts collect on this machine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import metricshuffle
from metricshuffle.errors import InputError, MetricShuffleError
from metricshuffle.planning.costs.release_ledger import EVERYBODY
from metricshuffle.report.template_engine import render_template, root
from metricshuffle.web.access_control import discard_if_larger
from metricshuffle.web.collection_opening import (
    OPENING_FIELDS,
    errors_at_field,
    read_opening,
    with_labels,
)
from metricshuffle.web.form_fields import FieldErrors
from metricshuffle.web.job_service import JobService
from metricshuffle.web.temp_folders import delete_folder, make_temp_folder
from metricshuffle.web.uploads import PIECE
from metricshuffle.web.wording_fields import TaskWording

if TYPE_CHECKING:
    from starlette.datastructures import FormData
    from starlette.requests import Request
    from starlette.responses import Response

    from metricshuffle.collection.operator.control_api import Opening, Operator
    from metricshuffle.collection.terms import Collection

MAX_PLAN_BYTES = 8 * 2**20
ANSWER_SECONDS = 8.0
"""Seconds to wait for a shuffler before the page shows the others without it."""
FINAL_STATES = ("aborted", "purged")
RELEASED_STATES = ("released", "purged")


@dataclass(frozen=True)
class WatchedCollection:
    """A collection as the console shows it."""

    url: str
    digest: str
    asked: str
    """The query in words; "" if it is not known."""
    title: str
    question: str
    """Title and question as the planner wrote them; "" if they are missing."""
    state: str
    words: str
    reports: int | None
    minimum: int
    share: float
    left: str
    rounds: str
    both: bool
    """Whether operator and analyst are the same person, as the operator declared."""
    can_abort: bool
    can_collect: bool
    released: bool
    tickets: bool
    """Whether its tickets can be downloaded here."""
    trouble: str
    history: tuple[str, ...] = ()
    """Times of its changes of state, and what the operator did to the clock."""


@dataclass
class Console:
    """Shufflers and collections that one server knows.

    Tokens stay in its memory and are sent only to their shuffler.
    """

    job_service: JobService
    local: bool
    folder: Path = field(default_factory=make_temp_folder)
    services: dict[str, str] = field(default_factory=dict)
    releases: dict[str, str] = field(default_factory=dict)
    """Release of each collection as JSON, by the digest of the collection."""
    budgets: dict[str, list[str]] = field(default_factory=dict)
    """What was spent of the people's budget when each of these was released."""
    rounds: dict[str, int] = field(default_factory=dict)
    apart: dict[str, bool] = field(default_factory=dict)
    asked: dict[str, str] = field(default_factory=dict)
    tasks: dict[str, TaskWording] = field(default_factory=dict)

    async def page(self, request: Request) -> Response:
        return self._html(await self._page({}, {}))

    async def again(self, request: Request) -> Response:
        """Redirect to the console if the address of a form is opened directly."""
        from starlette.responses import RedirectResponse

        return RedirectResponse(f"{root()}/console", 303)

    async def _page(self, errors: Mapping[str, str], where: Mapping[str, str]) -> str:
        """Render the console.

        `errors` has a sentence for each field, or for the form itself (""). `where` names the form
        and has what was typed into it.
        """
        # The form "open" is shown only if a shuffler is known.
        if errors and where.get("where") == "open" and not self.services:
            errors = {"": " ".join(errors.values())}
            where = {"where": "add"}
        return render_template(
            "web/console.html.jinja",
            version=metricshuffle.__version__,
            services=sorted(self.services),
            wrong=errors,
            place=where,
            collections=await self._collections_html(
                errors if where.get("where") == "collections" else {}, where.get("digest", "")
            ),
            local=self.local,
        )

    async def listed(self, request: Request) -> Response:
        """Render only the collections, which the page polls."""
        return self._html(await self._collections_html())

    async def _collections_html(
        self, errors: Mapping[str, str] | None = None, about: str = ""
    ) -> str:
        """Render the collections; `about` is the digest of the one whose form has an error."""
        watched: list[WatchedCollection] = []
        silent: list[str] = []
        urls = list(self.services)
        answers = await asyncio.gather(
            *(
                asyncio.wait_for(asyncio.to_thread(self._statuses, url), ANSWER_SECONDS)
                for url in urls
            ),
            return_exceptions=True,
        )
        for url, answer in zip(urls, answers, strict=True):
            if isinstance(answer, TimeoutError):
                silent.append(
                    f"{url} has not answered for {ANSWER_SECONDS:g} seconds; the page tries again."
                )
            elif isinstance(answer, MetricShuffleError):
                silent.append(str(answer))
            elif isinstance(answer, BaseException):
                raise answer
            else:
                watched += answer
        field_errors = errors or {}
        if "key" in field_errors and not (
            self.local
            and any(it.digest == about and it.can_collect and not it.released for it in watched)
        ):
            silent.append(field_errors["key"])  # its field is not shown any more
        return render_template(
            "web/collections.html.jinja",
            watched=watched,
            silent=silent,
            services=bool(self.services),
            local=self.local,
            wrong=field_errors,
            about=about,
        )

    def _operator(self, url: str) -> Operator:
        from metricshuffle.collection.operator.control_api import Operator

        if url not in self.services:
            raise InputError("this shuffler is not known here; add it first.")
        return Operator(url, self.services[url])

    def _statuses(self, url: str) -> list[WatchedCollection]:
        operator = self._operator(url)
        return [self._watched_collection(url, status) for status in operator.statuses()]

    def _watched_collection(self, url: str, status: Mapping[str, Any]) -> WatchedCollection:
        from metricshuffle.collection.terms import parse_time

        digest = str(status["digest"])
        state = str(status["state"])
        minimum = int(status["minimum"])
        reports = (
            status.get("people") if status.get("people") is not None else status.get("reports")
        )
        self._load_terms(url, digest)
        left = parse_time(str(status["until"])) - time.time()
        rounds = self.rounds.get(digest)
        left_after = 0 if rounds is None else max(0, rounds - int(status["round"]))
        rounds_text = (
            "the only round"
            if rounds == 1
            else f"round {status['round']} of {rounds}; {left_after} left after it"
        )
        return WatchedCollection(
            url,
            digest,
            self.asked.get(digest, ""),
            self.tasks[digest].title,
            self.tasks[digest].question,
            state,
            STATE_TEXTS.get(state, state)
            + (f": {status['reason']}" if status.get("reason") else ""),
            reports,
            minimum,
            min(1.0, (reports or 0) / max(minimum, 1)),
            _duration(left) if state == "open" else "",
            rounds_text if rounds else "",
            not self.apart.get(digest, True),
            state not in (*FINAL_STATES, *RELEASED_STATES),
            state == "released",
            digest in self.releases,
            self._tickets_file(digest).is_file(),
            str(status.get("trouble", "")),
            _history(status),
        )

    def _load_terms(self, url: str, digest: str) -> None:
        """Read a collection, once, to learn what its status does not contain."""
        if digest in self.rounds:
            return
        collection = self._collection(url, digest)
        self.rounds[digest], self.apart[digest] = collection.task.rounds, collection.terms.apart
        query_text = str(collection.task.query)
        self.asked[digest] = f"{query_text[:1].upper()}{query_text[1:]}"
        self.tasks[digest] = TaskWording.of(collection.task)

    def _collection(self, url: str, digest: str) -> Collection:
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
        """Add a shuffler and its operator's token, which is tried at once."""
        form = await request.form()

        def added() -> None:
            from metricshuffle.collection.operator.control_api import Operator
            from metricshuffle.collection.shuffler.server import validate_address

            with errors_at_field("url"):
                url = validate_address(_text(form, "url").rstrip("/"), "the address")
            token = _text(form, "token")
            if not token:
                raise FieldErrors(
                    {
                        "token": (
                            "The operator's token is missing; it is in the file operator.token "
                            "of the shuffler's keys."
                        )
                    }
                )
            try:
                Operator(url, token).statuses()
            except MetricShuffleError as error:
                message = str(error).partition(" Give its keys folder")[0]
                raise FieldErrors({"token" if message != str(error) else "url": message}) from None
            self.services[url] = token

        return await self._run_action(added, "add", {"url": _text(form, "url")})

    async def remove(self, request: Request) -> Response:
        form = await request.form()
        return await self._run_action(
            lambda: self.services.pop(_text(form, "url"), None), "add", {}
        )

    async def open(self, request: Request) -> Response:
        """Open a collection of a plan or task at a shuffler."""
        if await discard_if_larger(request, MAX_PLAN_BYTES + PIECE):
            errors = {
                "plan": (
                    "This file is too large to be a plan or a task, which have at most "
                    f"{MAX_PLAN_BYTES // 2**20} MB."
                )
            }
            return self._html(await self._page(errors, {"where": "open"}))
        async with request.form(max_files=1, max_fields=30) as form:
            upload = form.get("plan")
            text = (
                ""
                if upload is None or isinstance(upload, str)
                else (await upload.read()).decode("utf-8", "replace")
            )
            words = {name: _text(form, name) for name in OPENING_FIELDS}
        return await self._run_action(lambda: self._open(text, words), "open", words)

    def _open(self, text: str, words: dict[str, str]) -> None:
        from metricshuffle.collection.keys import write_secret
        from metricshuffle.collection.operator.control_api import (
            check_round_is_free,
            open_at_all_hops,
        )

        opening = read_opening(text, words, time.time())
        opening.check_servers(1)
        operator = self._operator(words["url"])
        check_round_is_free([operator], opening)
        self._check_other_words(operator, opening)
        collection = opening.collection(1, [operator.new_hop(words["run_by"])])
        tickets = opening.new_tickets()
        if tickets:  # on disk before the shuffler has them, as in the command line
            lines = "".join(f"{ticket.hex()}\n" for ticket in tickets)
            write_secret(self._tickets_file(collection.digest), lines.encode())
        open_at_all_hops([operator], collection, tickets)

    def _tickets_file(self, digest: str) -> Path:
        return self.folder / f"tickets-{digest[:16]}.txt"

    async def tickets(self, request: Request) -> Response:
        """Send the tickets of a collection that was opened here."""
        from starlette.responses import PlainTextResponse

        file = self._tickets_file(validate_digest(request.path_params["digest"]))
        if not file.is_file():
            return PlainTextResponse("There are no tickets of this collection here.\n", 404)
        headers = {"content-disposition": f'attachment; filename="{file.name}"'}
        return PlainTextResponse(file.read_text(encoding="ascii"), headers=headers)

    def _check_other_words(self, operator: Operator, opening: Opening) -> None:
        """Raise if this round of the plan was opened with another title or question.

        Otherwise the same people would report twice.
        """
        wordless = opening.task.reworded().digest
        for status in operator.statuses():
            digest = str(status["digest"])
            self._load_terms(operator.url, digest)
            if self.tasks[digest].wordless_digest == wordless and status["round"] == opening.round:
                raise FieldErrors(
                    {
                        "plan": f"Round {opening.round} of this plan was opened with another title "
                        f"or question, {digest[:16]} ({status['state']}): "
                        "nobody may report twice; open the next round, or make another plan."
                    }
                )

    async def abort(self, request: Request) -> Response:
        form = await request.form()
        reason = _text(form, "reason") or "the operator aborted it"
        url = _text(form, "url")
        digest = _text(form, "digest")
        return await self._run_action(
            lambda: self._operator(url).abort(validate_digest(digest), reason),
            "collections",
            {"digest": digest},
        )

    async def collect(self, request: Request) -> Response:
        """Fetch, decrypt and estimate, with the analyst's key in a file on this machine."""
        form = await request.form()
        url = _text(form, "url")
        digest = _text(form, "digest")
        key = _text(form, "key")
        people = _text(form, "people") or EVERYBODY
        try:
            if not self.local:
                raise InputError(
                    "the analyst's key stays on the analyst's machine; run metricshuffle web "
                    "there to collect."
                )
            if not key:
                raise InputError(
                    "Where is the analyst's key? Give the path of the file that "
                    "`metricshuffle analyst key` wrote."
                )
            served = (await asyncio.to_thread(self._collection, url, digest)).served
            output = str(self.folder / f"release-{digest[:16]}.json")
            result = await self.job_service.run_for_window(
                "collect", "", served=served, key=key, output=output, people=people
            )
            self.releases[digest] = result["release"]
            self.budgets[digest] = result["budget"]
        except MetricShuffleError as error:
            return self._html(
                await self._page(
                    {"key": str(error)},
                    {"where": "collections", "digest": digest, "key": key, "people": people},
                )
            )
        return await self.again(request)

    async def release(self, request: Request) -> Response:
        """Show the chart and the guarantees of a release, or send its file."""
        from starlette.responses import PlainTextResponse, Response

        digest = request.path_params["digest"]
        if digest not in self.releases:
            return PlainTextResponse("There is no release of this collection here.\n", 404)
        if "download" in request.query_params:
            headers = {"content-disposition": f'attachment; filename="release-{digest[:16]}.json"'}
            return Response(self.releases[digest], media_type="application/json", headers=headers)
        result = await self.job_service.run_for_window("release", "", release=self.releases[digest])
        page = render_template(
            "web/alone.html.jinja",
            title=result["title"],
            back="/console",
            inner=render_template(
                "web/released.html.jinja",
                inner=result["html"],
                digest=digest,
                budget=self.budgets[digest],
            ),
            version=metricshuffle.__version__,
        )
        return self._html(page)

    async def join(self, request: Request) -> Response:
        """Show the link for participants, also as a QR code."""
        import base64
        import io

        import segno

        url = request.query_params.get("url", "")
        digest = request.path_params["digest"]
        if url not in self.services:
            return self._html(
                await self._page(
                    {"": "This shuffler is not known here; add it first."}, {"where": "add"}
                )
            )
        link = f"{url}/join/{validate_digest(digest)}"
        qr_image = io.BytesIO()
        segno.make(link, error="m").save(
            qr_image, kind="svg", xmldecl=False, svgns=True, border=4, omitsize=True
        )
        inner = render_template(
            "web/join_link.html.jinja",
            link=link,
            qr=qr_image.getvalue().decode(),
            qr_data=base64.b64encode(qr_image.getvalue()).decode(),
            digest=digest,
        )
        return self._html(
            render_template(
                "web/alone.html.jinja",
                title="Take part",
                back="/console",
                inner=inner,
                version=metricshuffle.__version__,
            )
        )

    async def _run_action(
        self, work: Callable[[], object], where: str, typed: dict[str, str]
    ) -> Response:
        """Run an action and show the console again; if it fails, with a sentence in its form."""
        from starlette.responses import RedirectResponse

        try:
            await asyncio.to_thread(work)
        except MetricShuffleError as error:
            errors = (
                error.sentences if isinstance(error, FieldErrors) else {"": with_labels(str(error))}
            )
            return self._html(await self._page(errors, {"where": where, **typed}))
        return RedirectResponse(f"{root()}/console", 303)

    def _html(self, text: str) -> Response:
        from starlette.responses import HTMLResponse

        return HTMLResponse(text)

    def close(self) -> None:
        """Delete the releases, also those that were not downloaded."""
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


def validate_digest(text: str) -> str:
    if len(text) != 64 or set(text) - set("0123456789abcdef"):
        raise InputError("a collection is named by 64 hexadecimal digits.")
    return text


def _text(form: FormData, name: str) -> str:
    value = form.get(name, "")
    return value.strip() if isinstance(value, str) else ""


def _history(status: Mapping[str, Any]) -> tuple[str, ...]:
    """What happened to a collection and when, as far as its shuffler says."""
    changes = [
        f"{name} at {status[key]}"
        for name, key in (("sealed", "sealed_at"), ("released", "released_at"))
        if status.get(key)
    ]
    sentence = ", ".join(changes)
    return (
        *([f"{sentence[:1].upper()}{sentence[1:]}."] if changes else []),
        *map(str, status.get("clock") or ()),
    )


def _duration(seconds: float) -> str:
    if seconds <= 0:
        return "closing"
    for size, name in ((86400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= 2 * size:
            return f"{int(seconds // size)} {name}s left"
    return f"{int(seconds)} seconds left"
