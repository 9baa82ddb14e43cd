"""What worker processes do for the page. Everything that goes in and comes out is plain: words, bytes and text."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

from metricshuffle.report.template_engine import render_template
from metricshuffle.web import downloads, results


def preload_drawing() -> None:
    """Draw something small, so that the first chart does not take a second. Never before a fork: the library has threads."""
    from metricshuffle.report.charts.chart import Chart

    Chart({"mark": "point", "data": {"values": []}}, "warm", "", "").svg()


def answer(card: str, typed: dict[str, str], state: str, known: bytes | None = None) -> dict[str, Any]:
    """The live part of the page, and the plan itself for the parts that follow."""
    result = results.load_result(card, typed, known)
    return {"html": results.answer_html(result, state), "known": known or pickle.dumps(result)}


def more(card: str, typed: dict[str, str], known: bytes | None = None) -> dict[str, Any]:
    result = results.load_result(card, typed, known)
    return {"html": results.more_html(result), "known": known or pickle.dumps(result)}


def texts(card: str, typed: dict[str, str], known: bytes | None = None) -> dict[str, Any]:
    """The command line and Python, to be copied."""
    result = results.load_result(card, typed, known)
    html = render_template("web/texts.html.jinja", command=downloads.command(result), python=downloads.python(result))
    return {"html": html, "known": known or pickle.dumps(result)}


def take(card: str, typed: dict[str, str], name: str, known: bytes | None = None) -> dict[str, Any]:
    """One of the files to take along."""
    result = results.load_result(card, typed, known)
    return {"text": downloads.DOWNLOADS[name][1](result), "known": known or pickle.dumps(result)}


def columns(path: str) -> dict[str, Any]:
    """What the columns of a file are called."""
    from metricshuffle.web.dry_run import header_of

    return {"columns": header_of(Path(path))}


def trial(card: str, typed: dict[str, str], options: dict[str, Any], known: bytes | None = None) -> dict[str, Any]:
    """A dry run on a file or on invented people."""
    from metricshuffle.web.dry_run import trial_html

    html, column_error = trial_html(results.load_result(card, typed, known), options)
    return {"html": html, "wrong": column_error}


def engineered(card: str, typed: dict[str, str], known: bytes | None = None) -> dict[str, Any]:
    """The answer of a card for engineers."""
    from metricshuffle.web.engineer_results import engineer_html

    return {"html": engineer_html(card, typed)}


def collect(served: bytes, key: str, output: str) -> dict[str, Any]:
    """The analyst's part: fetch what was let go, open it with her key, and estimate."""
    from metricshuffle.collection.analyst.analyst import Analyst
    from metricshuffle.collection.terms import Collection

    return {"release": Analyst(Path(key)).collect(Collection(served), output).to_json()}


def release(release: str) -> dict[str, Any]:
    """What a release says: its chart, its numbers and its promises."""
    from metricshuffle.report.report_subject import Collection
    from metricshuffle.report.sections.headline import headline
    from metricshuffle.report.sections.release_answer import answer as answer_chapter
    from metricshuffle.report.sections.release_answer import answer_text
    from metricshuffle.tasks.release import Release

    read = Release.from_json(release)
    collection = Collection.of(read)
    html = render_template("web/release_part.html.jinja", release=read, headline=headline(collection), chapter=answer_chapter(collection))
    return {"html": html, "title": answer_text(read)}


JOBS: dict[str, Callable[..., dict[str, Any]]] = {
    "answer": answer, "more": more, "texts": texts, "take": take, "columns": columns, "trial": trial,
    "engineered": engineered, "collect": collect, "release": release,
}  # fmt: skip
