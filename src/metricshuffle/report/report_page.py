"""Self-contained HTML report on one plan or release; reading it needs no network or library."""

from __future__ import annotations

from collections.abc import Callable

import metricshuffle
from metricshuffle.report.method_text import methods
from metricshuffle.report.report_subject import ReportSubject
from metricshuffle.report.sections.assessment import assess_collection
from metricshuffle.report.sections.candidate_comparison import compare_own_candidates
from metricshuffle.report.sections.epsilon_by_distance import reach
from metricshuffle.report.sections.failures import failures
from metricshuffle.report.sections.headline import headline
from metricshuffle.report.sections.release_answer import answer
from metricshuffle.report.template_engine import render_template

MAX_HEADING = 100
"""Maximum characters of a question that is used as the heading; a longer one is put below it."""


def report(subject: ReportSubject, progress: Callable[[str], None] | None = None) -> str:
    """Render the whole page; chapters without data are left out.

    `progress` is called with the name of each chapter before it is built.
    """
    log = progress or (lambda now: None)
    log("the answer")
    answer_chapter = answer(subject)
    # Template, heading and content of each chapter.
    planned: tuple[tuple[str, str, Callable[[], object]], ...] = (
        ("candidates", "Choosing a protocol", lambda: compare_own_candidates(subject.plan)),
        ("reach", "Epsilon against distance", lambda: reach(subject)),
        ("failures", "When an assumption fails", lambda: failures(subject)),
        ("assessment", "For an assessment", lambda: assess_collection(subject)),
        ("methods", "Methods, to cite", lambda: methods(subject)),
    )
    chapters = []
    for name, title, build in planned:
        log(title.lower())
        if (chapter := build()) is not None:
            chapters.append((name, title, chapter))
    facts = subject.facts
    query = facts.query
    task = subject.task
    about = f"A plan for the {query}" if subject.release is None else f"A release: {query}"
    short_question = task.question if len(task.question or "") <= MAX_HEADING else ""
    heading = task.title or short_question or f"{query[:1].upper()}{query[1:]}"
    return render_template(
        "report.html.jinja",
        chapters=chapters,
        headline=headline(subject),
        answer=answer_chapter,
        heading=heading,
        asked=heading in (task.title, task.question),
        about=task.title or about,
        question="" if heading == task.question else task.question,
        what=query,
        protocol=facts.protocol,
        digest=facts.digest,
        version=metricshuffle.__version__,
    )
