"""`solve` prints what the library finds, and refuses nonsense in a sentence."""

from __future__ import annotations

import json
from typing import Any

import pytest

from metricshuffle.accounting.local_metric.solver import ALGORITHMS, LineTarget

WORDS = {"--low": "0", "--high": "1", "--step": "0.125", "--epsilon": "1", "--distance": "1", "--delta": "1e-6", "--users": "1e5"}


def words(**changes: str) -> list[str]:
    return [word for name, value in {**WORDS, **{f"--{name}": value for name, value in changes.items()}}.items() for word in (name, value)]


@pytest.mark.parametrize("algorithm", list(ALGORITHMS))
def test_the_numbers_are_the_librarys(terminal: Any, algorithm: str) -> None:
    result = terminal("solve", *words(algorithm=algorithm, grid="4"), "--json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    known = ALGORITHMS[algorithm](LineTarget(0, 1, 1, 1, 0.125), 100_000, 1e-6, 4)
    assert set(document) == {"low", "high", "solutions"}
    assert (document["low"], document["high"]) == (known.low, known.high)
    assert len(document["solutions"]) == 4
    for told, solution in zip(document["solutions"], known.solutions, strict=True):
        assert told == {
            "diameter": solution.diameter,
            "local_epsilon_per_unit": solution.per_unit,
            "amplified_max_excess": solution.max_excess,
            "closed_diameter": solution.closed_diameter,
        }
        assert told["amplified_max_excess"] <= 0


def test_algorithm_1_with_steps_of_one_unless_told_otherwise(terminal: Any) -> None:
    line = "solve --low -4 --high 4 --epsilon 1 --distance 8 --delta 1e-6 --users 100000 --json"
    document = json.loads(terminal.typed(line).stdout)
    assert document["low"] == pytest.approx(2.7090, abs=5e-5)
    assert document["high"] == pytest.approx(5.9880, abs=5e-5)
    assert len(document["solutions"]) == 16
    assert document["solutions"][0]["local_epsilon_per_unit"] == document["low"]


def test_both_metrics_in_words(terminal: Any) -> None:
    result = terminal("solve", *words(grid="6"))
    assert result.exit_code == 0, result.output
    assert "from 2.70897 to 5.98796" in result.stdout
    assert "closed:" in result.stdout
    assert "(5.98796)" in result.stdout  # dominated once closed
    assert "Build the randomizer on the closed metric" in result.stdout
    assert result.stderr == ""


def test_says_when_shuffling_buys_nothing(terminal: Any) -> None:
    result = terminal("solve", *words(users="10"), "--json")
    assert result.exit_code == 0
    assert "Shuffling buys nothing here" in result.stderr
    assert json.loads(result.stdout)["solutions"][0]["amplified_max_excess"] == 0.0


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"low": "2"}, "--low must be below --high"),
        ({"low": "none"}, "finite number"),
        ({"step": "0.3"}, "whole steps"),
        ({"step": "1e-9"}, "at most 10,000"),
        ({"step": "-1"}, "--step must be greater than 0"),
        ({"epsilon": "0"}, "--epsilon must be greater than 0"),
        ({"distance": "0"}, "--distance must be greater than 0"),
        ({"delta": "0"}, "--delta must lie between 0 and 1"),
        ({"delta": "1"}, "--delta must lie between 0 and 1"),
        ({"users": "0"}, "users must be a whole number from 1"),
        ({"users": "1.5"}, "whole number"),
        ({"grid": "0"}, "--grid must be a whole number"),
        ({"algorithm": "2"}, "--algorithm must be one of 1, 3, 1N"),
    ],
)
def test_nonsense_is_refused(terminal: Any, changes: dict[str, str], told: str) -> None:
    assert told in terminal.refused("solve", *words(**changes))
