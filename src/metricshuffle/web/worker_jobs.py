"""Jobs that worker processes run for the page; arguments and results are plain data."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from metricshuffle.report.template_engine import render_template
from metricshuffle.web import downloads, results

if TYPE_CHECKING:
    from metricshuffle.web.dry_run import TrialOptions


class JobResult(TypedDict, total=False):
    """Result of a job; each job sets the fields that it has."""

    html: str
    title: str
    text: str
    """Content of a file to download."""
    column_error: str
    columns: list[str]
    release: str
    budget: list[str]
    known: bytes
    """A pickled plan, for later jobs."""


def preload_drawing() -> None:
    """Draw something small, so that the first chart does not take a second.

    Never call it before a fork: the library has threads.
    """
    from metricshuffle.report.charts.chart import Chart

    Chart({"mark": "point", "data": {"values": []}}, "warm", "", "").svg()


def answer(card: str, typed: dict[str, str], state: str, known: bytes | None = None) -> JobResult:
    """Render the live part of the page; the result also has the plan for later jobs."""
    result = results.load_result(card, typed, known)
    return {"html": results.answer_html(result, state), "known": known or pickle.dumps(result)}


def more(card: str, typed: dict[str, str], known: bytes | None = None) -> JobResult:
    result = results.load_result(card, typed, known)
    return {"html": results.more_html(result), "known": known or pickle.dumps(result)}


def texts(card: str, typed: dict[str, str], known: bytes | None = None) -> JobResult:
    """The command line and Python code, to be copied."""
    result = results.load_result(card, typed, known)
    html = render_template(
        "web/texts.html.jinja", command=downloads.command(result), python=downloads.python(result)
    )
    return {"html": html, "known": known or pickle.dumps(result)}


def take(card: str, typed: dict[str, str], name: str, known: bytes | None = None) -> JobResult:
    """One of the files for download."""
    result = results.load_result(card, typed, known)
    return {"text": downloads.DOWNLOADS[name].write(result), "known": known or pickle.dumps(result)}


def columns(path: str) -> JobResult:
    """The column names of a file."""
    from metricshuffle.web.dry_run import header_of

    return {"columns": header_of(Path(path))}


def trial(
    card: str, typed: dict[str, str], options: TrialOptions, known: bytes | None = None
) -> JobResult:
    """A dry run on a file or on invented people."""
    from metricshuffle.web.dry_run import trial_html

    html, column_error = trial_html(results.load_result(card, typed, known), options)
    return {"html": html, "column_error": column_error}


def engineered(card: str, typed: dict[str, str], known: bytes | None = None) -> JobResult:
    """The answer of a card for engineers."""
    from metricshuffle.web.engineer_results import engineer_html

    return {"html": engineer_html(card, typed)}


def collect(served: bytes, key: str, output: str, people: str) -> JobResult:
    """The analyst's part: fetch the released messages, decrypt them, estimate, and record it.

    The ledger is in the folder of the analyst's key, which stays when this server ends.
    """
    from metricshuffle.collection.analyst.analyst import Analyst
    from metricshuffle.collection.terms import Collection
    from metricshuffle.planning.costs.joint_cost import joint_cost
    from metricshuffle.planning.costs.release_ledger import Budget, spendings, validate_group_name

    group = validate_group_name(people)
    collection = Collection(served)
    budget = Budget.beside(key, collection.task)
    release = Analyst(Path(key)).collect(collection, output, budget=budget, people=group)
    spent = joint_cost(spendings([budget.notes], group))
    return {
        "release": release.to_json(),
        "budget": [f"Recorded in {budget.path}.", *spent.lines()],
    }


def release(release: str) -> JobResult:
    """The chart, numbers and guarantees of a release."""
    from metricshuffle.report.report_subject import ReportSubject
    from metricshuffle.report.sections.headline import headline
    from metricshuffle.report.sections.release_answer import answer as answer_chapter
    from metricshuffle.report.sections.release_answer import answer_text
    from metricshuffle.tasks.release import Release

    read = Release.from_json(release)
    collection = ReportSubject.of(read)
    html = render_template(
        "web/release_part.html.jinja",
        release=read,
        headline=headline(collection),
        chapter=answer_chapter(collection),
    )
    return {"html": html, "title": answer_text(read)}


JOBS: dict[str, Callable[..., JobResult]] = {
    "answer": answer,
    "more": more,
    "texts": texts,
    "take": take,
    "columns": columns,
    "trial": trial,
    "engineered": engineered,
    "collect": collect,
    "release": release,
}
