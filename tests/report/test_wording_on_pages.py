"""Title and question on pages and cards: shown as text, whatever they contain."""

from __future__ import annotations

from functools import cache

import pytest
from tests.catalogue.planned_tasks import planned
from tests.report.parsed_page import ParsedPage
from tests.tables import check_all
from tests.tasks.wordings import HOSTILE, QUESTION, TITLE

from metricshuffle import Plan, Release
from metricshuffle.report import map_page
from metricshuffle.report.notebook import html
from metricshuffle.report.report_page import report
from metricshuffle.report.report_subject import ReportSubject

ALL = "".join(HOSTILE.values())[:100], " ".join(HOSTILE.values())[:500]
"""As much of all of them as there is room for: a page takes a second."""


def with_wording(kind: str, title: str | None, question: str | None) -> Plan:
    made = planned(kind)
    return made.model_copy(update={"task": made.task.reworded(title, question)})


@cache
def released(title: str | None, question: str | None) -> Release:
    return with_wording("labels", title, question).run(["tea", "coffee", "water", "tea"] * 100)


def spaced(words: str) -> str:
    return " ".join(words.split())


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("title", "question"),
    [(TITLE, QUESTION), (ALL[0].strip(), ALL[1].strip())],
    ids=["plain", "hostile"],
)
def test_a_report_of_a_plan_and_of_a_release(title: str, question: str) -> None:
    of_plan = ParsedPage(report(ReportSubject.of(with_wording("labels", title, question))))
    of_release = ParsedPage(report(ReportSubject.of(released(title, question))))
    for page in (of_plan, of_release):
        assert page.texts["title"][0] == f"metricshuffle: {title}"
        assert spaced(question) in page.text
        assert not {"img", "svg onload"} & set(page.tags)
        assert page.targets == [target for target in page.targets if target.startswith("#")]
    assert of_plan.texts["bdi"] == [title]
    assert title in of_release.texts["bdi"]
    without = ParsedPage(report(ReportSubject.of(planned("labels"))))
    assert of_plan.tags.count("script") == without.tags.count("script")


@check_all(("title", "question"), [(TITLE, QUESTION), (ALL[0].strip(), ALL[1].strip())])
def test_the_page_of_a_map(title: str, question: str) -> None:
    page = ParsedPage(map_page.page(released(title, question)))
    assert (page.texts["title"][0], page.texts["bdi"]) == (f"metricshuffle: {title}", [title])
    assert spaced(question) in page.text
    assert page.tags.count("script") == page.tags.count("img") == 0
    assert "How many people hold what" in ParsedPage(map_page.page(released(None, None))).text


def test_cards_of_a_notebook() -> None:
    title, question = (words.strip() for words in ALL)
    for thing in (
        with_wording("labels", title, question),
        with_wording("labels", title, question).task,
        released(title, question),
    ):
        card = html(thing)
        page = ParsedPage(card)
        assert f"Title: {spaced(title)}" in page.text
        assert f"Question: {spaced(question)}" in page.text
        assert page.tags.count("script") == page.tags.count("img") == 0
        assert card.lstrip().startswith(
            '<div class="metricshuffle tex2jax_ignore mathjax_ignore">'
        )  # no formulas in people's words
    assert "Question:" not in html(planned("labels"))
