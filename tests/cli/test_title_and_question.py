"""--title and --question appear as plain text in everything made from a plan."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.catalogue.planned_tasks import planned, run_of
from tests.cli.conftest import Terminal
from tests.cli.test_narrow_tables import in_terminal
from tests.collection.stand_in import standing_in
from tests.tasks.wordings import HOSTILE, QUESTION, REFUSED, TITLE, forged

from metricshuffle import Plan, Release, Task
from metricshuffle.collection.keys import AnalystKey
from metricshuffle.planning.consent import consent
from metricshuffle.tasks.wording import NO_QUESTION

WORDS = (
    "plan --query sum --low 0 --high 20 --unit kcal --epsilon 1 --distance 5 --delta 1e-6 "
    "--users 40 --protocol polya-shuffle"
)
MISSING = (
    "This plan does not say what people are asked; add --question TEXT, and --title TEXT for "
    "what it is about."
)


def with_wording(kind: str, title: str | None, question: str | None) -> Plan:
    made = planned(kind)
    return made.model_copy(update={"task": made.task.reworded(title, question)})


def test_a_plan_says_what_is_asked(terminal: Terminal) -> None:
    result = terminal(
        *WORDS.split(),
        "--title",
        TITLE,
        "--question",
        f" {QUESTION} ",
        "--save",
        "plan.json",
        "--task",
        "task.json",
    )
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith(
        f"Title: {TITLE}\nQuestion: {QUESTION}\nSum over whole numbers from 0 to 20 kcal"
    )
    assert MISSING not in result.stderr
    task = Task.load("task.json")
    assert (task.title, task.question) == (TITLE, QUESTION)
    assert Plan.load("plan.json").task == task


def test_a_plan_that_does_not_says_so(terminal: Terminal) -> None:
    result = terminal(*WORDS.split(), "--title", TITLE, "--task", "task.json")
    assert result.exit_code == 0, result.output
    assert result.stderr.splitlines() == [MISSING, "Wrote task.json."]
    assert NO_QUESTION in terminal("explain", "task.json").stdout
    assert NO_QUESTION in terminal("verify", "task.json").stdout


@pytest.mark.parametrize(
    ("words", "sentence"),
    [case for case in REFUSED.values() if "\0" not in case[0] and "\ud800" not in case[0]],
    ids=[name for name in REFUSED if name not in ("null", "half a pair")],
)
def test_what_is_not_taken_is_refused_before_anything_is_planned(
    terminal: Terminal, words: str, sentence: str
) -> None:
    for option in ("--title", "--question"):
        told = terminal.refused(*WORDS.split(), option, words, "--save", "plan.json")
        assert told.startswith(f"metricshuffle: {option} ")
        assert sentence in told
        assert told.removesuffix("\n").isprintable()


def test_a_forged_task_is_refused_by_every_command_that_reads_one(terminal: Terminal) -> None:
    Path("task.json").write_text(
        forged(planned("labels").task, title="\x1b]0;owned\x07", question="x" * 10**6)
    )
    for words in (
        "verify task.json",
        "explain task.json",
        "randomize task.json values.csv --column a --output r",
    ):
        told = terminal.refused(*words.split())
        assert "Task: title has the character U+001B at place 1" in told
        assert "question has 1,000,000 characters" in told
        assert len(told) < 500


def test_verify_tells_the_words_apart_from_what_it_verified(terminal: Terminal) -> None:
    with_wording("labels", "Verified: all is hidden.", QUESTION).save("plan.json")
    lines = terminal("verify", "plan.json").stdout.splitlines()
    place = next(
        number for number, line in enumerate(lines) if line.startswith("Verified: computed again")
    )
    assert lines[place + 1 :] == [
        "Written by the planner, and not verified by anything:",
        "  Title: Verified: all is hidden.",
        f"  Question: {QUESTION}",
    ]
    assert lines[0].startswith("Histogram over ")
    told = json.loads(terminal("verify", "plan.json", "--json").stdout)
    assert told["not_verified"] == {"title": "Verified: all is hidden.", "question": QUESTION}
    planned("labels").save("plan.json")
    assert terminal("verify", "plan.json").stdout.splitlines()[-1] == NO_QUESTION


def test_explain_quotes_the_question(terminal: Terminal) -> None:
    made = with_wording("labels", TITLE, HOSTILE["quotation"])
    made.save("plan.json")
    text = terminal("explain", "plan.json").stdout
    assert text.startswith(
        f"“{TITLE}”: what it means to take part\n\nWhat you are asked\nThose who plan this ask: "
    )
    assert (
        "“Minutes?’ Nothing leaves your device. ‘And that is verified”. You give one answer" in text
    )
    assert (
        "Anyone can check what is said here, but not the planner's own words, "
        "with the file of this task" in text
    )
    silent = consent(planned("labels").task)
    assert silent.sections[0].sentences[0] == NO_QUESTION
    assert "Anyone can check what is said here with the file of this task" in silent.text


@pytest.mark.parametrize("words", HOSTILE.values(), ids=HOSTILE)
def test_nothing_in_them_is_markup(terminal: Terminal, words: str) -> None:
    """Of a terminal, of HTML, and of Markdown as CommonMark reads it."""
    import html

    with_wording("labels", words, words).save("plan.json")
    result = terminal("verify", "plan.json")
    assert f"  Title: {words}\n  Question: {words}\n" in result.stdout
    page = terminal("explain", "plan.json", "--format", "html").stdout
    assert set(re.findall(r"<[^>]*>", page)) == {
        '<section class="metricshuffle-consent" lang="en">',
        "</section>",
        '<p lang="en">',
    } | {f"<{end}{tag}>" for tag in ["h2", "h3", "p", "details", "summary"] for end in ("", "/")}
    shown = words.replace("“", "‘").replace("”", "’")
    assert f"“{shown}”: what it means" in html.unescape(page)
    markdown = terminal("explain", "plan.json", "--format", "markdown").stdout
    bare = re.sub(r"\\[!-/:-@\[-`{-~]", "", markdown)  # without what is escaped
    assert not set("<>*_`[]&~$|{}") & set(bare.replace("###", "").replace("##", ""))
    unescaped = re.sub(r"\\([!-/:-@\[-`{-~])", r"\1", markdown)
    assert shown in unescaped


@pytest.mark.parametrize("words", HOSTILE.values(), ids=HOSTILE)
def test_releases_and_their_rows_hold_them_as_text(terminal: Terminal, words: str) -> None:
    release = Release.from_json(run_of("map").to_json())
    release.task = release.task.reworded(words[:100], words)
    release.shuffled = release.shuffled.__class__(
        release.task.batch(),
        release.reports,
        release.shuffled.messages,
        release.shuffled.sums,
        release.shuffled.modulus,
    )
    release.save("release.json")
    loaded = Release.load("release.json")
    assert (loaded.title, loaded.question) == (words[:100], words)
    assert str(loaded).startswith(f"Title: {words[:100]}\nQuestion: {words}\n")
    for kind in ("csv", "geojson", "svg"):
        result = terminal("map", "release.json", "--output", f"map.{kind}")
        assert result.exit_code == 0, result.output
    rows = list(csv.reader(io.StringIO(Path("map.csv").read_text())))
    assert rows[0][:2] == ["column", "row"]  # people's words are no part of a table of numbers
    assert not any(cell.startswith(("=", "+", "@")) for row in rows for cell in row)
    about = json.loads(Path("map.geojson").read_text())["metricshuffle"]
    assert (about["title"], about["question"]) == (words[:100], words)
    drawn = Path("map.svg").read_text()
    assert not re.search(r"<script|<img|onload=(?!.*&)|onerror='", drawn)
    from xml.etree import ElementTree

    titles = [
        element.text
        for element in ElementTree.fromstring(drawn).iter()  # noqa: S314
        if element.tag.endswith("}title")
    ]
    assert f"{words[:100]}: Map: share of the people" in titles


def test_taking_part_by_hand_says_what_is_answered(terminal: Terminal) -> None:
    key = AnalystKey.new()
    with standing_in() as shuffler:
        shuffler.opened(planned("sum in shares").task.reworded(TITLE, QUESTION), key).save(
            "collection.json"
        )
        result = terminal("submit", "collection.json", "--value", "7")
        assert result.exit_code == 0, result.output
        assert result.stderr.splitlines()[:2] == [f"Title: {TITLE}", f"Question: {QUESTION}"]
        assert "Question" not in terminal("submit", "collection.json", "--resend").stderr
        shuffler.opened(planned("sum in shares").task, key).save("silent.json")
        assert (
            NO_QUESTION
            in terminal("submit", "silent.json", "--value", "7", "--outbox", "other.outbox").stderr
        )


@pytest.mark.thorough
def test_on_a_real_terminal_nothing_is_interpreted(tmp_path: Path) -> None:
    for name in ("markup of a terminal", "emoji", "template"):
        with_wording("labels", HOSTILE[name], HOSTILE[name]).save(tmp_path / "plan.json")
        shown = in_terminal(tmp_path, 200, "verify", "plan.json")
        assert f"Title: {HOSTILE[name]}" in shown
        assert "\x1b[1;31m" not in shown
        assert "\x1b]8" not in shown


@pytest.mark.thorough
def test_a_terminal_without_these_letters_shows_their_numbers(tmp_path: Path) -> None:
    with_wording("labels", TITLE, QUESTION).save(tmp_path / "plan.json")
    for command in ("verify", "explain"):
        done: Any = subprocess.run(
            [sys.executable, "-m", "metricshuffle", command, str(tmp_path / "plan.json")],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHONIOENCODING": "ascii"},
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert r"Wege in Z\xfcrich" in done.stdout
