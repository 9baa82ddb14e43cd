"""Quantiles, spread and shares above from the command line: planned, released, refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import metricshuffle as ms

LINE = "--low 0 --high 100 --unit min --epsilon 2 --distance 20 --delta 1e-4 --users 80"
QUESTIONS = {
    "--query quantiles": ms.Quantiles(ms.Integers(0, 100, "min")),
    "--query quantiles --at 0.5,0.9 --edges 0,10,50": ms.Quantiles(
        ms.Integers(0, 100, "min"), (0.5, 0.9), (0, 10, 50)
    ),
    "--query spread --step 5": ms.Spread(ms.Integers(0, 100, "min"), 5),
    "--query share-above --at 30,60 --fade 20": ms.ShareAbove(
        ms.Integers(0, 100, "min"), (30, 60), 20
    ),
}
REFUSED = {
    "--query quantiles --at 1": "--at must be shares strictly between 0 and 1",
    "--query quantiles --at 0": "--at must be shares strictly between 0 and 1",
    "--query quantiles --at half": "--at must be numbers with commas between them",
    "--query quantiles --fade 3": "--fade does not belong to --query quantiles",
    "--query spread --at 0.5": "--at does not belong to --query spread",
    "--query share-above": "--query share-above needs --at, the thresholds",
    "--query share-above --at 30 --fade 0.5": "--fade must be at least a step, 1, got 0.5",
    "--query share-above --at 30,40 --fade 20": "at least --fade 20 apart",
    "--query share-above --at 100": "--at must be thresholds from 0 to 99",
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_is_planned_and_released(terminal: Any, question: str) -> None:
    query = QUESTIONS[question]
    result = terminal.typed(f"plan {question} {LINE}", "--save", "plan.json")
    assert result.exit_code == 0, result.output
    plan = ms.Plan.load("plan.json")
    assert plan.query == query
    values = np.arange(80) % 90
    Path("values.csv").write_text("x\n" + "\n".join(map(str, values)) + "\n")
    result = terminal.typed("run plan.json values.csv --column x --output release.json")
    assert result.exit_code == 0, result.output
    for label in query.row_labels:
        assert f"  {label}: " in result.output
    release = ms.Release.load("release.json")
    assert len(release.value) == len(query.row_labels)
    written = json.loads(Path("release.json").read_text())["value"]
    assert [row["label"] for row in written] == list(query.row_labels)
    assert list(release.to_frame("pandas")["label"]) == list(query.row_labels)


@pytest.mark.parametrize("question", REFUSED)
def test_a_question_is_refused_and_nothing_is_written(terminal: Any, question: str) -> None:
    result = terminal.typed(f"plan {question} {LINE}", "--save", "plan.json")
    assert result.exit_code != 0
    assert REFUSED[question] in " ".join(result.output.split())
    assert not Path("plan.json").exists()


def test_there_is_no_release_about_nobody(terminal: Any) -> None:
    assert terminal.typed(f"plan --query quantiles {LINE}", "--save", "plan.json").exit_code == 0
    Path("none.csv").write_text("x\n")
    result = terminal.typed("run plan.json none.csv --column x --output release.json")
    assert result.exit_code != 0
    assert not Path("release.json").exists()
    assert len(result.output.split()) > 5


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_command_of_a_request_makes_it_again(terminal: Any, question: str) -> None:
    from metricshuffle.planning.plan_request import PlanRequest

    request = PlanRequest(QUESTIONS[question], ms.Target(2, 1e-4, 20), 80)
    words = [word for option in request.to_command() for word in option]
    result = terminal.typed("plan", *words, "--save", "plan.json")
    assert result.exit_code == 0, result.output
    assert ms.Plan.load("plan.json").query == QUESTIONS[question]
    code = request.to_python().partition("\n")[2].partition(",\n")[0].strip()
    assert eval(code, {"ms": ms}) == QUESTIONS[question]  # noqa: S307 - our own code
