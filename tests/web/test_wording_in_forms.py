"""Title and question in planner page and console: from form to task, shown as text."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.catalogue.planned_tasks import load_task
from tests.report.parsed_page import ParsedPage
from tests.tables import check_all
from tests.tasks.wordings import HOSTILE, QUESTION, REFUSED, TITLE
from tests.web.conftest import Served
from tests.web.test_console import (
    Shuffling,
    added,
    article_of,
    map_plan_file,
    opened,
    plan_file,
    run,
    shuffler,
)

from metricshuffle import Plan
from metricshuffle.web.downloads import arguments, command, consent_text, python
from metricshuffle.web.form_fields import FieldErrors
from metricshuffle.web.forms import CARDS, asked
from metricshuffle.web.results import answer_html, load_result
from metricshuffle.web.wording_fields import with_wording

__all__ = ["map_plan_file", "plan_file", "shuffler"]
SMALL = {"users": "100", "labels": "tea, coffee", "trusted": "nobody"}


@check_all("card", CARDS)
def test_every_card_asks_for_them_and_suggests_none(card: str) -> None:
    """Forms have no default question, which a user might forget to replace."""
    fields = CARDS[card].fields
    assert list(fields)[:2] == ["title", "asking"]
    assert (fields["title"].example, fields["asking"].example) == ("", "")
    question = asked(card, {"title": f" {TITLE} ", "asking": QUESTION})
    assert (question.request.title, question.request.question) == (TITLE, QUESTION)
    assert ("--title", TITLE) in question.request.to_command()
    assert ("--question", QUESTION) in question.request.to_command()
    silent = asked(card, {"title": "  ", "asking": ""})
    assert (silent.request.title, silent.request.question) == (None, None)
    assert not {"--title", "--question"} & {option[0] for option in silent.request.to_command()}


@cache
def page_without_words() -> ParsedPage:
    return ParsedPage(answer_html(load_result("category", SMALL), ""))


@pytest.mark.parametrize("words", HOSTILE.values(), ids=HOSTILE)
def test_the_answer_shows_them_and_what_is_taken_along_plans_the_same(
    words: str, tmp_path: Path
) -> None:
    result = load_result("category", {**SMALL, "title": words, "asking": words})
    assert (result.plan.title, result.plan.question) == (words, words)
    page = ParsedPage(answer_html(result, ""))
    silent = page_without_words()
    assert page.texts["bdi"] == [words]
    assert " ".join(words.split()) in page.text
    assert sorted(page.tags) == sorted([*silent.tags, "p", "bdi"])  # those of the title
    assert "fill in “Question”" in silent.text
    assert "fill in “Question”" not in page.text
    assert words.replace("“", "‘").replace("”", "’") in consent_text(result)
    listed = arguments(result)
    assert listed[listed.index("--title") + 1] == words
    names: dict[str, Any] = {}
    source = python(result)
    exec(source.partition("print(plan)")[0], names)  # noqa: S102 - what the page gives to copy
    assert names["plan"].digest == result.plan.digest
    assert names["plan"].question == words


@pytest.mark.thorough
@pytest.mark.parametrize(
    "name", ["script", "attribute", "template", "markdown", "quotation", "like an option"]
)
def test_a_shell_reads_the_command_as_it_is_meant(name: str, tmp_path: Path) -> None:
    result = load_result("category", {**SMALL, "title": HOSTILE[name], "asking": HOSTILE[name]})
    tools = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(
        ["/bin/sh", "-c", command(result)],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        env={**os.environ, "PATH": tools},
    )
    made = Plan.load(tmp_path / "plan.json")
    assert (made.title, made.digest) == (HOSTILE[name], result.plan.digest)


@check_all(
    ("words", "sentence"),
    [case for case in REFUSED.values() if "blank" not in case[1] or "\u0301" in case[0]],
)
def test_what_is_not_taken_is_told_beside_its_field(words: str, sentence: str) -> None:
    for field, label in (("title", "Title"), ("asking", "Question")):
        with pytest.raises(FieldErrors) as wrong:
            asked("category", {**SMALL, field: words})
        assert set(wrong.value.sentences) == {field}
        assert wrong.value.sentences[field].startswith(f"{label} ")
        assert sentence in wrong.value.sentences[field]
    for name in ("title", "question"):
        with pytest.raises(FieldErrors) as wrong:
            with_wording(load_task("labels"), {"title": "", "question": "", name: words})
        assert set(wrong.value.sentences) == {name}


def test_the_console_fills_in_what_a_plan_lacks_and_changes_nothing_else() -> None:
    task = load_task("labels")
    assert with_wording(task, {"title": "", "question": ""}) is task
    filled = with_wording(task.reworded(TITLE), {"title": "", "question": QUESTION})
    assert (filled.title, filled.question) == (TITLE, QUESTION)
    assert filled == task.reworded(TITLE, QUESTION)
    same = with_wording(filled, {"title": TITLE, "question": QUESTION})
    assert same is filled
    with pytest.raises(
        FieldErrors,
        match="The plan has a title of its own, “Wege in Zürich”; leave this empty, or plan again",
    ):
        with_wording(filled, {"title": "Another", "question": ""})


@pytest.mark.thorough
def test_a_console_with_a_real_shuffler(
    window: Callable[..., Any],
    served: Served,
    shuffler: Shuffling,
    plan_file: Path,
    map_plan_file: Path,
    tmp_path: Path,
) -> None:
    public = run("analyst", "key", "--output", str(tmp_path / "analyst.key")).strip()
    folder = Path(os.environ.get("LOOKS", tmp_path))
    page = window()
    added(page, served, shuffler)
    page.evaluate("document.querySelector('#open-title-field').removeAttribute('maxlength')")
    page.fill("#open-title-field", "x" * 101)
    page.fill("#open-question", HOSTILE["script"])
    page.select_option("#open-url", shuffler.url)
    page.set_input_files("#open-plan", str(plan_file))
    page.fill("#open-analyst", public)
    page.click("section:has(#open-title) button:text-is('Open')")
    assert "Title has 101 characters" in page.inner_text("#open-title-wrong")
    assert page.input_value("#open-question") == HOSTILE["script"]
    page.fill("#open-title-field", HOSTILE["attribute"])
    digest = opened(page, shuffler, plan_file, public, "1h")
    article = article_of(page, digest)
    assert article.locator("h3 bdi").inner_text() == HOSTILE["attribute"]
    assert HOSTILE["script"] in article.inner_text()
    assert "Mean over whole numbers from 0 to 100 min" in article.inner_text()
    assert page.evaluate("globalThis.smuggled") is None
    page.goto(f"{shuffler.url}/join/{digest}")
    assert (page.inner_text("h1"), page.inner_text("#question")) == (
        HOSTILE["attribute"],
        HOSTILE["script"],
    )
    page.goto(
        served.at("/console")
    )  # the same round with other words would ask the same people twice
    page.select_option("#open-url", shuffler.url)
    page.set_input_files("#open-plan", str(plan_file))
    page.fill("#open-analyst", public)
    page.fill("#open-title-field", "Other words")
    page.click("section:has(#open-title) button:text-is('Open')")
    assert "Round 1 of this plan was opened with another title or question" in page.inner_text(
        "#open-plan-wrong"
    )
    page.fill("#open-title-field", TITLE)
    page.fill("#open-question", QUESTION)
    other = opened(page, shuffler, map_plan_file, public, "1h")
    told = run(
        "collection",
        "status",
        saved_of(shuffler, other, tmp_path),
        "--token-file",
        token_of(shuffler, tmp_path),
    )
    assert told.startswith(f"Title: {TITLE}\nQuestion: {QUESTION}\n{other[:16]} at ")
    page.emulate_media(color_scheme="dark")
    page.screenshot(path=str(folder / "console-1280-dark.png"), full_page=True)
    page.set_viewport_size({"width": 400, "height": 900})
    page.emulate_media(color_scheme="light")
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    page.screenshot(path=str(folder / "console-400-light.png"), full_page=True)


def saved_of(shuffler: Shuffling, digest: str, folder: Path) -> str:
    import httpx

    path = folder / "collection.json"
    path.write_bytes(httpx.get(f"{shuffler.url}/v1/collections/{digest}").content)
    return str(path)


def token_of(shuffler: Shuffling, folder: Path) -> str:
    path = folder / "token"
    path.write_text(shuffler.token)
    path.chmod(0o600)
    return str(path)


@pytest.mark.thorough
def test_the_planner_page_in_a_real_browser(
    window: Callable[..., Any], served: Served, tmp_path: Path
) -> None:
    folder = Path(os.environ.get("LOOKS", tmp_path))
    page = window()
    page.goto(served.at("/?card=category"))
    page.wait_for_selector(".result")
    assert "fill in “Question”" in page.inner_text(".result")
    page.fill("#field-title", HOSTILE["comment"])
    page.fill("#field-asking", HOSTILE["attribute"])
    page.locator(".question-text").filter(has_text=HOSTILE["attribute"]).wait_for()
    assert page.inner_text(".question-title") == HOSTILE["comment"]
    assert page.evaluate("globalThis.smuggled") is None
    page.reload()  # the address holds what was typed
    page.wait_for_selector(".question-text")
    assert page.input_value("#field-asking") == HOSTILE["attribute"]
    with page.expect_download() as download:
        page.click("a[download='task.json'], a:text-is('task.json')")
    task = json.loads(Path(download.value.path()).read_text())
    assert (task["title"], task["question"]) == (HOSTILE["comment"], HOSTILE["attribute"])
    page.fill("#field-title", "x" * 101)
    page.locator("#title-wrong").filter(has_text="Title has 101 characters").wait_for()
    page.goto(
        served.at(
            "/?card=number&title=Lunch&asking=How+many+kilocalories+did+your+lunch+have+today%3F"
        )
    )
    page.wait_for_selector(".question-text")
    page.wait_for_selector("#more .not-hidden")
    for scheme, width in (("light", 1400), ("dark", 400)):
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size({"width": width, "height": 900})
        page.screenshot(path=str(folder / f"planner-{width}-{scheme}.png"), full_page=True)
