"""Title and question of a task: limits, digest, and unchanged tasks without them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.catalogue.planned_tasks import KINDS, load_task, planned
from tests.tables import check_all
from tests.tasks.wordings import HOSTILE, QUESTION, REFUSED, TITLE, forged

from metricshuffle import (
    InputError,
    Integers,
    Mean,
    Plan,
    PlanError,
    Release,
    Target,
    Task,
    plan,
    plan_for_error,
)
from metricshuffle.models import content_digest
from metricshuffle.tasks.wording import MAX_QUESTION_LENGTH, MAX_TITLE_LENGTH

WORDED: dict[str, Any] = {
    "protocols": ["polya-shuffle"],
    "encoding": "modular",
    "title": TITLE,
    "question": QUESTION,
}


def test_a_plan_carries_them_into_its_files_and_its_release() -> None:
    made = plan(Mean(Integers(0, 20, "min")), Target(1, 1e-6, 5), 40, **WORDED)
    assert (made.title, made.question) == (made.task.title, made.task.question) == (TITLE, QUESTION)
    assert (Plan.from_json(made.to_json()).title, Task.from_json(made.task.to_json())) == (
        TITLE,
        made.task,
    )
    release = Release.from_json(made.run([5] * 40).to_json())
    assert (release.title, release.question) == (TITLE, QUESTION)
    for shown in (str(made), str(made.task), str(release)):
        assert shown.splitlines()[:2] == [f"Title: {TITLE}", f"Question: {QUESTION}"]
    made.task.verify()


def test_the_inverse_question_carries_them_too() -> None:
    made = plan_for_error(Mean(Integers(0, 20, "min")), 1.0, 1e-6, 5, 40, **WORDED)
    assert (made.title, made.question) == (TITLE, QUESTION)


@check_all("kind", KINDS)
def test_a_task_without_them_is_what_it_was(kind: str) -> None:
    """Its text omits the fields, and its digest is unchanged."""
    task = load_task(kind)
    stored = json.loads(task.to_json())
    assert not {"title", "question"} & set(stored)
    assert set(stored) == {
        "format",
        "query",
        "protocol",
        "users",
        "honest",
        "rounds",
        "guarantee",
        "if_shuffler_colludes",
        "damage",
        "digest",
    }
    assert task.digest == content_digest(
        {name: value for name, value in stored.items() if name != "digest"}
    )
    assert "Title" not in str(planned(kind))


def test_other_words_are_another_task_and_without_them_it_is_the_same_again() -> None:
    task = load_task("sum in shares")
    digests = {
        task.digest,
        task.reworded(TITLE).digest,
        task.reworded(question=QUESTION).digest,
        task.reworded(TITLE, QUESTION).digest,
        task.reworded(TITLE, f"{QUESTION}?").digest,
        task.reworded(QUESTION, TITLE).digest,
    }
    assert len(digests) == 6
    assert task.reworded(TITLE, QUESTION).reworded() == task
    assert task.reworded(TITLE, QUESTION).guarantee == task.guarantee


def test_reports_of_one_question_do_not_count_for_another() -> None:
    task = load_task("sum in shares")
    reports = task.reworded(TITLE, QUESTION).randomize([3] * 40)
    with pytest.raises(PlanError, match=r"another (plan|task)"):
        task.reworded(TITLE, "What else?").shuffle(reports)


@check_all("words", HOSTILE.values())
def test_whatever_can_be_printed_is_kept_as_it_is(words: str) -> None:
    task = load_task("labels").reworded(words, words)
    assert (task.title, task.question) == (words, words)
    assert Task.from_json(task.to_json()) == task


@check_all(("words", "sentence"), REFUSED.values())
def test_what_could_pass_for_something_else_is_refused_when_planned_and_when_loaded(
    words: str, sentence: str
) -> None:
    task = load_task("labels")
    for field in ("title", "question"):
        written: dict[str, Any] = {field: words}
        with pytest.raises(InputError) as refused:
            task.reworded(**written)
        assert str(refused.value).startswith(f"{field} ")
        assert sentence in str(refused.value)
        with pytest.raises(InputError, match=field):
            plan(Mean(Integers(0, 20)), Target(1, 1e-6, 5), 40, **written)
        with pytest.raises(PlanError) as loaded:
            Task.from_json(forged(task, **written))
        assert str(loaded.value).startswith(f"Task: {field} ")
        assert sentence in str(loaded.value)
        for told in (str(refused.value), str(loaded.value)):
            assert told.isprintable()
            assert len(told) < 250


def test_a_forged_plan_or_release_is_refused_with_its_task() -> None:
    document = json.loads(planned("labels").to_json())
    document["task"] = json.loads(forged(planned("labels").task, title="a\x1b[2Jb"))
    content = {name: value for name, value in document.items() if name != "checksum"}
    with pytest.raises(PlanError, match=r"title has the character U\+001B"):
        Plan.from_json(json.dumps({**content, "checksum": content_digest(content)}))
    released = json.loads(planned("labels").run(["tea"] * 400).to_json())
    released["task"] = json.loads(forged(planned("labels").task, question="a\nb"))
    content = {name: value for name, value in released.items() if name != "checksum"}
    with pytest.raises(PlanError, match="question has a line end"):
        Release.from_json(json.dumps({**content, "checksum": content_digest(content)}))


@check_all("words", [5, ["a"], {"a": "b"}, True])
def test_they_are_text(words: object) -> None:
    with pytest.raises(PlanError, match=r"^Task: title is wrong"):
        Task.from_json(forged(load_task("labels"), title=words))
    with pytest.raises(InputError, match=r"^title must be text, got "):
        load_task("labels").reworded(words)  # type: ignore[arg-type]


@check_all("stored", [None, "", " a", "a "])
def test_a_file_holds_them_in_one_way_only(stored: str | None) -> None:
    """None and nothing are left out, and spaces around are cut, before a digest is taken."""
    with pytest.raises(PlanError):
        Task.from_json(forged(load_task("labels"), title=stored))


def test_an_edited_title_is_noticed() -> None:
    text = load_task("labels").reworded("Drinks").to_json()
    with pytest.raises(PlanError, match="digest does not match"):
        Task.from_json(text.replace("Drinks", "Drugs"))


def test_lengths_and_spaces() -> None:
    task = load_task("labels")
    assert (
        task.reworded("x" * MAX_TITLE_LENGTH, "y" * MAX_QUESTION_LENGTH).question
        == "y" * MAX_QUESTION_LENGTH
    )
    with pytest.raises(InputError, match="title has 101 characters, and at most 100"):
        task.reworded("x" * (MAX_TITLE_LENGTH + 1))
    spaced = task.reworded("  Wie lange\u00a0? ", "Zu\u0308rich\u202f?")
    assert (spaced.title, spaced.question) == ("Wie lange ?", "Zürich ?")
    assert spaced.digest == task.reworded("Wie lange ?", "Zürich ?").digest
