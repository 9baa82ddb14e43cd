"""Catalogues: complete, with the same values as the English sentences, and refused in sentences."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest
from tests.catalogue.planned_tasks import KINDS, load_task
from tests.tables import check_all

from metricshuffle.errors import InputError
from metricshuffle.planning import consent as consent_module
from metricshuffle.planning import task_words
from metricshuffle.planning.consent import consent
from metricshuffle.planning.task_words import MEASURES
from metricshuffle.planning.translation import (
    Language,
    language_codes,
    load_language,
    parse_catalogue,
)
from metricshuffle.tasks.wording import NO_QUESTION

CATALOGUE = 'msgid ""\nmsgstr "Language: xx\\n"\n\nmsgid "{right} times in {total}"\nmsgstr '


def english_sentences() -> set[str]:
    """All sentences that the text may contain: constant first arguments of calls of `say`."""
    calls = [
        node
        for module in (consent_module, task_words)
        for node in ast.walk(ast.parse(inspect.getsource(module)))
        if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant)
    ]
    named = [node for node in calls if ast.unparse(node.func).split(".")[-1] in ("say", "rounded")]
    return {str(node.args[0].value) for node in named if isinstance(node.args[0], ast.Constant)}


@pytest.mark.parametrize("code", [code for code in language_codes() if code != "en"])
def test_every_sentence_is_translated_and_none_is_left_over(code: str) -> None:
    sentences = load_language(code).sentences
    assert set(sentences) == english_sentences() | {*MEASURES, NO_QUESTION}
    assert all(sentences.values())


@check_all("kind", KINDS)
def test_every_task_can_be_explained_in_german(kind: str) -> None:
    task = load_task(kind)
    german = consent(task, language="de")
    assert [part.kind for part in german.sections] == [part.kind for part in consent(task).sections]
    assert german.language == "de"
    assert "{" not in german.text


def test_numbers_take_the_separators_of_the_language() -> None:
    german = load_language("de")
    assert german.number("1,234.5 km, then 7") == "1.234,5 km, then 7"
    assert Language().number("1,234.5") == "1,234.5"


def test_a_catalogue_of_the_users_own(tmp_path: Path) -> None:
    path = tmp_path / "nl.po"
    path.write_text(CATALOGUE + '"{right} keer van "\n"{total}"\n', encoding="utf-8")
    dutch = load_language(str(path))
    assert dutch.code == "xx"
    assert dutch.say("{right} times in {total}", right="7", total="10") == "7 keer van 10"
    with pytest.raises(InputError, match="no translation of 'How often'"):
        dutch.say("How often")


@check_all(
    ("text", "problem"),
    [
        (CATALOGUE + '"{right} von {all}"', "must have the values right, total"),
        (CATALOGUE + "unquoted", "line 5: expected a text in double quotes"),
        ("msgctxt nothing", "line 1: expected msgid, msgstr"),
        ('msgid ""\nmsgstr "Language: en\\n"\n', "other than en"),
    ],
)
def test_bad_catalogues_are_refused_with_the_line(text: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        parse_catalogue(text, "x.po")


def test_unknown_languages_and_files_that_are_not_text(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="use one of de, en"):
        load_language("klingon")
    (tmp_path / "x.po").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="UTF-8"):
        load_language(str(tmp_path / "x.po"))
