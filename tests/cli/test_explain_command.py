"""explain: consent texts in three formats, of a verified plan or task."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.catalogue.planned_tasks import planned, signed, stored

from metricshuffle.planning.consent import consent


@pytest.fixture
def saved(terminal: Any) -> Path:
    planned("labels").save("plan.json", "task.json")
    return Path("plan.json")


def test_a_plan_and_its_task_say_the_same_but_for_the_error(terminal: Any, saved: Path) -> None:
    of_plan = terminal("explain", saved)
    of_task = terminal("explain", "task.json")
    made = planned("labels")
    assert of_plan.exit_code == of_task.exit_code == 0
    assert of_plan.stdout == consent(made.task, expected_error=made.choice.expected_error).text
    assert of_task.stdout == consent(made.task).text
    assert of_plan.stderr == ""


def test_markdown_html_and_files(terminal: Any, saved: Path) -> None:
    assert terminal.typed("explain plan.json --format markdown").stdout.startswith(
        "## What it means to take part\n\n### What you are asked"
    )
    assert (
        terminal.typed("explain plan.json --output -").stdout
        == terminal.typed("explain plan.json").stdout
    )
    result = terminal.typed("explain plan.json --format html --output consent.html")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "Wrote consent.html.\n")
    page = Path("consent.html").read_text()
    assert page.startswith('<section class="metricshuffle-consent" lang="en">')
    assert page.count("<h3>") == page.count("<p>") == 9
    assert "<html" not in page


def test_labels_cannot_become_markup(terminal: Any) -> None:
    terminal.typed(
        "plan --query histogram --labels <b>x</b>,y&z --epsilon 1 --delta 0 --users 50 "
        "--trusted nobody --task task.json"
    )
    page = terminal.typed("explain task.json --format html").stdout
    assert "&lt;b&gt;x&lt;/b&gt;, y&amp;z" in page
    assert "<b>" not in page


def test_json_and_contact(terminal: Any, saved: Path) -> None:
    document = json.loads(terminal("explain", saved, "--json", "--contact", "Write to us").stdout)
    assert set(document) == {"task", "language", "title", "sections"}
    assert document["task"] == planned("labels").digest
    assert document["sections"][-1]["sentences"][0] == "Write to us."


def test_a_task_that_claims_too_much_is_not_put_into_words(terminal: Any) -> None:
    content = stored("labels")
    content["guarantee"]["epsilon"] = 0.1
    Path("task.json").write_text(signed(content))
    assert "claims more than is true" in terminal.refused("explain", "task.json")


def test_wrong_words_are_refused(terminal: Any, saved: Path) -> None:
    assert "--format must be one of text, markdown, html" in terminal.refused(
        "explain", saved, "--format", "pdf"
    )
    assert "is also the input" in terminal.refused("explain", saved, "--output", saved)
    assert "only one thing" in terminal.refused("explain", saved, "--json", "--output", "-")


def test_languages_and_exact_words(terminal: Any, saved: Path) -> None:
    german = terminal("explain", saved, "--language", "de").stdout
    assert german.startswith("Was es bedeutet mitzumachen\n\nWas Sie gefragt werden\n")
    exact = terminal("explain", saved, "--exact").stdout
    plain = terminal("explain", saved).stdout
    assert exact.startswith(plain)
    assert str(planned("labels").task.guarantee) in exact
    assert "--language" in terminal.refused("explain", saved, "--language", "xx")
