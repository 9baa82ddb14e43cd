"""new: a few answers make a plan and its task; unusable answers are asked for again."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.conftest import Terminal
from typer.testing import CliRunner, Result

from metricshuffle.cli.command_group import app
from metricshuffle.planning import Plan
from metricshuffle.tasks import Task

NUMBER = "How many kilocalories did you eat?\n1\n0 to 1,000 kcal\n100 kcal\n1000\n2\n"


def answered(text: str, *words: str) -> Result:
    return CliRunner().invoke(app, ["new", *words], input=text)


def test_a_number(terminal: Terminal) -> None:
    result = answered(NUMBER)
    assert result.exit_code == 0, result.output
    made = Plan.load("plan.json")
    assert (made.target.epsilon, made.target.delta, made.target.distance) == (1.0, 1e-6, 100.0)
    assert (made.users, made.query.unit, made.query.kind) == (1000, "kcal", "mean")
    Task.load("plan-task.json").verify()
    assert made.question == "How many kilocalories did you eat?"
    assert "does not say what people are asked" not in result.output
    assert "metricshuffle plan --query mean --low 0 --high 1000 --unit kcal" in result.stderr
    assert "metricshuffle explain plan-task.json" in result.stderr


def test_labels_and_another_file(terminal: Terminal) -> None:
    result = answered("\n2\ntea, coffee,water\n500\n3\n", "--output", "drinks.json")
    assert result.exit_code == 0, result.output
    made = Plan.load("drinks.json")
    assert made.query.kind == "histogram"
    assert made.target.epsilon == 2.0


@pytest.mark.thorough
def test_a_map(terminal: Terminal) -> None:
    result = answered("\n3\n46.94 7.42 46.96 7.46 800\n1600\n5000\n1\n")
    assert result.exit_code == 0, result.output
    assert Plan.load("plan.json").target.epsilon == 0.5


def test_unusable_answers_are_asked_again_with_what_is_wanted(terminal: Terminal) -> None:
    result = answered("\nnumber\n1\n1000 to 0\n0 to x\n0..1000 kcal\n-3\n100\n1\nmany\n1e3\n")
    assert result.exit_code == 2
    for words in (
        "answer 1, 2 or 3.",
        "the smaller number first",
        "give a number greater than 0.",
        "give a whole number of at least 2.",
        "question 5 has no usable answer after 3 tries",
    ):
        assert words in result.stderr
    assert not list(Path().iterdir())


def test_an_input_that_ends_and_files_that_exist(terminal: Terminal) -> None:
    ended = answered("\n1\n0 to 10\n")
    assert ended.exit_code == 2
    assert "the input ended before question 4 was answered" in ended.stderr
    Path("plan-task.json").write_text("mine")
    refused = answered(NUMBER)
    assert refused.exit_code == 2
    assert "plan-task.json exists already" in refused.stderr
    assert Path("plan-task.json").read_text() == "mine"
