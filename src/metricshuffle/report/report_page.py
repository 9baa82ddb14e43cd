"""One self-contained page about one's own plan and release: no network, no library, nothing to install to read it."""

from __future__ import annotations

from collections.abc import Callable

import metricshuffle
from metricshuffle.report.report_subject import Collection
from metricshuffle.report.sections.assessment import assess_collection
from metricshuffle.report.sections.candidate_comparison import compare_own_candidates
from metricshuffle.report.sections.failures import failures
from metricshuffle.report.sections.headline import headline
from metricshuffle.report.sections.methods_section import methods
from metricshuffle.report.sections.reach_curve import reach
from metricshuffle.report.sections.release_answer import answer, answer_text
from metricshuffle.report.template_engine import render_template


def report(collection: Collection, progress: Callable[[str], None] | None = None) -> str:
    """The whole page; chapters for which the files say nothing are left out. `progress` is called with what is being done."""
    log = progress or (lambda now: None)
    # the template of each chapter, its heading, and what it shows
    planned: tuple[tuple[str, str, Callable[[], object]], ...] = (
        ("answer", "The answer", lambda: answer(collection)),
        ("candidates", "Choosing a protocol", lambda: compare_own_candidates(collection.plan)),
        ("reach", "Epsilon against distance", lambda: reach(collection)),
        ("failures", "When an assumption fails", lambda: failures(collection)),
        ("assessment", "For an assessment", lambda: assess_collection(collection)),
        ("methods", "Methods, to cite", lambda: methods(collection)),
    )
    chapters = []
    for name, title, build in planned:
        log(title.lower())
        if (chapter := build()) is not None:
            chapters.append((name, title, chapter))
    facts = collection.facts
    query, task = facts.query, collection.task
    about = f"A plan for the {query}" if collection.release is None else f"A release: {query}"
    heading = task.title or f"{query[:1].upper()}{query[1:]}"
    return render_template(
        "report.html.jinja",
        chapters=chapters,
        headline=headline(collection),
        heading=heading if collection.release is None else answer_text(collection.release),
        about=task.title or about,
        title=task.title,
        question=task.question,
        what=query,
        released=collection.release is not None,
        protocol=facts.protocol,
        digest=facts.digest,
        version=metricshuffle.__version__,
    )
