"""One self-contained page about one's own plan and release: no network, no library, nothing to install to read it."""

from __future__ import annotations

from collections.abc import Callable

import metricshuffle
from metricshuffle.pages.chapters.answer import answer, answer_text
from metricshuffle.pages.chapters.assessment import own_assessment
from metricshuffle.pages.chapters.candidates import own_candidates
from metricshuffle.pages.chapters.failures import failures
from metricshuffle.pages.chapters.headline import headline
from metricshuffle.pages.chapters.methods import methods
from metricshuffle.pages.chapters.reach import reach
from metricshuffle.pages.collection import Collection
from metricshuffle.pages.rendering import rendered


def report(collection: Collection, progress: Callable[[str], None] | None = None) -> str:
    """The whole page; chapters for which the files say nothing are left out. `progress` is called with what is being done."""
    tell = progress or (lambda now: None)
    # the template of each chapter, its heading, and what it shows
    planned: tuple[tuple[str, str, Callable[[], object]], ...] = (
        ("answer", "The answer", lambda: answer(collection)),
        ("candidates", "Choosing a protocol", lambda: own_candidates(collection.plan)),
        ("reach", "Epsilon against distance", lambda: reach(collection)),
        ("failures", "When an assumption fails", lambda: failures(collection)),
        ("assessment", "For an assessment", lambda: own_assessment(collection)),
        ("methods", "Methods, to cite", lambda: methods(collection)),
    )
    chapters = []
    for name, title, made in planned:
        tell(title.lower())
        if (chapter := made()) is not None:
            chapters.append((name, title, chapter))
    facts = collection.facts
    query, task = facts.query, collection.task
    about = f"A plan for the {query}" if collection.release is None else f"A release: {query}"
    heading = task.title or f"{query[:1].upper()}{query[1:]}"
    return rendered(
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
