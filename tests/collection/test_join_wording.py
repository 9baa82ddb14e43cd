"""Title and question on the join page: shown first, as text; the task is unchanged."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.collection.client_tasks import collection_of, tasks
from tests.collection.javascript import chromium
from tests.collection.running import running
from tests.collection.test_join_in_browser import SECONDS, entry_of, reports_of, visited
from tests.collection.test_join_page import DATA, SHUFFLER
from tests.report.parsed_page import ParsedPage
from tests.tables import check_all
from tests.tasks.wordings import HOSTILE, QUESTION, TITLE, forged

from metricshuffle.collection.client.join_page import join_page
from metricshuffle.collection.terms import Collection, canonical
from metricshuffle.errors import PlanError
from metricshuffle.tasks.wording import NO_QUESTION

__all__ = ["chromium"]

ASKED = ("whole numbers", "k-ary", "places", "labels as vectors")


def page_of(name: str, title: str | None, question: str | None) -> ParsedPage:
    return ParsedPage(join_page(collection_of(tasks()[name].reworded(title, question)), SHUFFLER))


@check_all("name", ASKED)
def test_the_question_stands_first_and_beside_the_field(name: str) -> None:
    page = page_of(name, TITLE, QUESTION)
    assert (page.texts["title"][0], page.texts["bdi"]) == (f"metricshuffle: {TITLE}", [TITLE])
    assert page.text.count(QUESTION) == 3  # once in German
    german = page.html.partition('<details lang="de"><summary>Was es bedeutet mitzumachen')[2]
    assert "Was Sie gefragt werden" in german.partition("</details>")[0]
    assert "Können Sie es zurücknehmen?" in german.partition("</details>")[0]
    question = f"Those who plan this ask: “{QUESTION}” You give"
    assert page.text.index(question) < page.text.index("Who asks")
    assert (
        page.text.index("Your answer")
        < page.text.rindex(QUESTION)
        < page.text.index("Make my report")
    )
    assert "question field-words" in page.values
    assert len(page.ids) == len(set(page.ids))
    assert NO_QUESTION not in page.text


def test_without_one_that_is_said() -> None:
    page = page_of("whole numbers", None, None)
    assert page.texts["h1"] == ["Take part with one number"]
    assert page.text.index(NO_QUESTION) < page.text.index("Who asks")
    assert "question" not in page.ids
    assert "question field-words" not in page.values


@check_all("words", HOSTILE.values())
def test_hostile_words_stay_words(words: str) -> None:
    page = page_of("k-ary", words, words)
    plain = page_of("k-ary", None, None)
    assert page.texts["bdi"] == [words]
    assert sorted(page.tags) == sorted(
        [*plain.tags, "bdi", "p"]
    )  # those of the title and of the question
    (data,) = DATA.findall(page.html)
    assert "<" not in data
    assert json.loads(json.loads(json.loads(data))["task"])["title"] == words
    assert " ".join(words.split()) in page.text


def test_a_collection_of_a_forged_task_has_no_page() -> None:
    terms = json.loads(collection_of(tasks()["k-ary"]).served)
    terms["task"] = forged(tasks()["k-ary"], question="a\u202eb")
    with pytest.raises(PlanError, match=r"question has the character U\+202E"):
        join_page(Collection(canonical(terms)), SHUFFLER)


@pytest.mark.thorough
def test_taking_part_in_a_real_browser(chromium: Any, tmp_path: Path) -> None:
    """Hostile texts on a running shuffler's page are shown, not run; then one report."""
    folder = Path(os.environ.get("LOOKS", tmp_path))
    with running(tmp_path, f"sqlite:///{tmp_path / 'shuffler.db'}") as shuffler:
        for number, words in enumerate(HOSTILE.values()):
            collection = shuffler.opened(tasks()["labels as vectors"].reworded(words, words))
            with visited(chromium, f"{shuffler.url}/join/{collection.digest}") as page:
                page.wait_for_selector("#make:enabled")
                assert page.inner_text("h1") == page.inner_text("#question") == words, number
                assert page.title() == f"metricshuffle: {words}"
                assert page.evaluate("globalThis.smuggled") is None
                assert page.locator("main img, main svg[onload]").count() == 0
                assert [
                    line for line in page.complaints if "favicon" not in line and "404" not in line
                ] == []
        collection = shuffler.opened(tasks()["whole numbers"].reworded(TITLE, QUESTION))
        with visited(chromium, f"{shuffler.url}/join/{collection.digest}") as page:
            page.wait_for_selector("#make:enabled")
            described = page.evaluate(
                "document.querySelector('#value').getAttribute('aria-describedby').split(' ')"
            )
            assert QUESTION in " ".join(page.inner_text(f"#{name}") for name in described)
            for scheme, width in (("light", 1400), ("dark", 400)):
                page.emulate_media(color_scheme=scheme)
                page.set_viewport_size({"width": width, "height": 900})
                assert page.evaluate("document.documentElement.scrollWidth") <= width
                page.screenshot(path=str(folder / f"join-{width}-{scheme}.png"), full_page=True)
            page.fill("#value", "480")
            page.click("#make")
            page.wait_for_selector("#ready:visible", timeout=SECONDS)
            page.click("#send")
            page.wait_for_selector("#done:visible", timeout=SECONDS)
            assert entry_of(page)[0]["state"] == "sent"
        assert reports_of(shuffler, collection) == 1


@pytest.mark.thorough
def test_long_words_do_not_make_the_page_wider(chromium: Any, tmp_path: Path) -> None:
    page_file = tmp_path / "page.html"
    page_file.write_text(
        join_page(collection_of(tasks()["places"].reworded("W" * 100, "W" * 500)), SHUFFLER),
        encoding="utf-8",
    )
    with visited(chromium, page_file.as_uri(), viewport={"width": 320, "height": 700}) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= 320
