"""`solve` recommends a metric and a randomizer that other commands take; invalid input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from metricshuffle.solving.local_metric import ALGORITHMS, Algorithm, LineTarget

WORDS = {
    "--low": "0",
    "--high": "1",
    "--step": "0.125",
    "--epsilon": "1",
    "--distance": "1",
    "--delta": "1e-6",
    "--users": "1e5",
}


def words(**changes: str) -> list[str]:
    return [
        word
        for name, value in {
            **WORDS,
            **{f"--{name}": value for name, value in changes.items()},
        }.items()
        for word in (name, value)
    ]


@pytest.mark.parametrize("algorithm", list(ALGORITHMS))
def test_the_numbers_are_the_librarys(terminal: Any, algorithm: Algorithm) -> None:
    result = terminal("solve", *words(algorithm=algorithm, grid="4"), "--json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    known = ALGORITHMS[algorithm](LineTarget(0, 1, 1, 1, 0.125), 100_000, 1e-6, 4)
    assert (document["algorithm"], document["low"], document["high"]) == (
        algorithm,
        known.low,
        known.high,
    )
    assert len(document["solutions"]) == 4
    for told, solution in zip(document["solutions"], known.solutions, strict=True):
        assert told == {
            "diameter": solution.diameter,
            "local_epsilon_per_unit": solution.per_unit,
            "local_epsilon_at_distance": solution.closed_diameter,
            "amplified_max_excess": solution.max_excess,
            "closed_diameter": solution.closed_diameter,
        }
        assert told["amplified_max_excess"] <= 0
    assert document["metric"]["local_epsilon"] in [one.closed.tolist() for one in known.solutions]
    assert all(row["randomizer_certified"] <= row["promised"] for row in document["certified"])


def test_all_algorithms_unless_one_is_named(terminal: Any) -> None:
    line = (
        "solve --low -4 --high 4 --epsilon 1 --distance 8 --delta 1e-6 --users 100000 --grid 4 "
        "--json"
    )
    document = json.loads(terminal.typed(line).stdout)
    assert document["algorithm"] == "1N"
    assert list(document["algorithms"]) == ["1N", "1", "3"]
    assert document["recommended"].startswith("Recommended: randomized response over all 9 values")
    assert len(document["metric"]["matrix"]) == 9
    most = [document["algorithms"][name]["largest"] for name in ("1N", "1", "3")]
    assert most == sorted(most, reverse=True)


def test_the_recommendation_comes_first_and_fits_the_screen(terminal: Any) -> None:
    """Another algorithm certifies 2.5 times the target where the paper's gains nothing."""
    result = terminal.typed(
        "solve --low 0 --high 8 --epsilon 0.1 --distance 1 --delta 1e-6 --users 100"
    )
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0].startswith("Recommended: a table of 9 x 9 probabilities")
    assert "(2.506 times the target)" in lines[0]
    assert "buys nothing" not in result.output
    table = lines[2 : lines.index("", 2)]
    assert max(map(len, table)) <= 80
    assert [line.split("(")[0].strip() for line in lines if line.startswith("Algorithm")] == [
        f"Algorithm {name}" for name in ("1N", "1", "3")
    ]
    assert "Nothing was saved" in result.stderr


def test_says_when_shuffling_buys_nothing(terminal: Any) -> None:
    result = terminal("solve", *words(users="1", grid="2"))
    assert result.exit_code == 0
    assert "shuffling buys nothing here by the bounds known" in result.stdout
    assert "with nobody to hide among" in result.stdout


def test_saved_accounted_planned_and_run(terminal: Any, tmp_path: Path) -> None:
    """save -> amplify -> plan -> randomize -> shuffle -> estimate."""
    (tmp_path / "hours.csv").write_text(
        "hour\n" + "\n".join(str(hour % 6) for hour in range(300)) + "\n"
    )
    for line in (
        "solve --low 0 --high 5 --around --epsilon 0.6 --distance 2 --delta 1e-6 --users "
        "300 --least report --save r.json",
        "amplify --randomizer file:r.json --users 300 --delta 1e-6 --distance 2",
        "plan --query histogram --low 0 --high 5 --epsilon 0.6 --distance 2 --delta 1e-6 "
        "--users 300 --randomizer r.json --task t.json",
        "verify t.json",
        "randomize t.json hours.csv --column hour --output reports",
        "shuffle t.json reports --output shuffled",
        "estimate t.json shuffled --output answer.json",
    ):
        result = terminal.typed(line)
        assert result.exit_code == 0, f"{line}: {result.output}"
    assert json.loads((tmp_path / "r.json").read_text())["kind"] == "channel"
    band = json.loads(
        terminal.typed(
            "amplify --randomizer file:r.json --users 300 --delta 1e-6 --distance 2 --json"
        ).stdout
    )
    assert band["upper"]["epsilon"] <= 0.6
    assert json.loads((tmp_path / "answer.json").read_text())["reports"] == 300


def test_grids_trees_and_tables(terminal: Any, tmp_path: Path) -> None:
    (tmp_path / "tree.csv").write_text(
        "food,\nfruit,food,1\napple,fruit,0.5\npear,fruit,0.5\nbread,food\n"
    )
    (tmp_path / "table.csv").write_text("0,1,2\n1,0,2\n2,2,0\n")
    for where, points in (
        ("--width 3 --height 2 --cell 2", 6),
        ("--tree tree.csv", 5),
        ("--distances table.csv", 3),
    ):
        result = terminal.typed(
            f"solve {where} --epsilon 0.3 --distance 2 --delta 1e-6 --users 1000 --grid 3 --json"
        )
        assert result.exit_code == 0, result.output
        assert len(json.loads(result.stdout)["metric"]["matrix"]) == points


def test_wrong_files_and_mixed_spaces(terminal: Any, tmp_path: Path) -> None:
    rest = ["--epsilon", "1", "--distance", "1", "--delta", "1e-6", "--users", "10"]
    (tmp_path / "twice.csv").write_text("a,\na,a\n")
    (tmp_path / "lost.csv").write_text("a,\nb,c\n")
    (tmp_path / "long.csv").write_text("a,\nb,a,far\n")
    assert "row 2: give a unique label" in terminal.refused("solve", "--tree", "twice.csv", *rest)
    assert "'c' is not a label of this file" in terminal.refused(
        "solve", "--tree", "lost.csv", *rest
    )
    assert "'far' is not a finite number" in terminal.refused("solve", "--tree", "long.csv", *rest)
    assert "cannot read" in terminal.refused("solve", "--tree", "none.csv", *rest)
    assert "no such file" in terminal.refused("solve", "--distances", "none.csv", *rest)
    assert "none of them" in terminal.refused("solve", *rest)
    assert "--low and --high and --tree" in terminal.refused(
        "solve", "--low", "0", "--tree", "lost.csv", *rest
    )
    assert "--high is missing" in terminal.refused("solve", "--low", "0", *rest)
    few = ("--users", "5", "--delta", "1e-6")
    assert "cannot use lost.csv" in terminal.refused(
        "amplify", "--randomizer", "file:lost.csv", *few
    )
    assert "does not belong" in terminal.refused(
        "amplify", "--randomizer", "file:lost.csv", "--rate", "1", *few
    )
    asked = (
        "plan",
        "--query",
        "histogram",
        "--low",
        "0",
        "--high",
        "5",
        "--epsilon",
        "1",
        "--distance",
        "1",
    )
    assert "cannot use lost.csv" in terminal.refused(*asked, "--randomizer", "lost.csv", *few)
    assert "folder" in terminal.refused("solve", *words(), "--save", "nowhere/r.json")


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
        ({"users": "0"}, "users must be a whole number >= 1"),
        ({"honest": "0"}, "at least 1 is needed"),
        ({"users": "1.5"}, "whole number"),
        ({"grid": "0"}, "--grid must be a whole number"),
        ({"algorithm": "2"}, "--algorithm must be one of all, 1, 3, 1N"),
        ({"least": "noise"}, "--least must be one of shares, report"),
        ({"distance": "0.01"}, "the least between two values"),
        ({"epsilon": "1e9"}, "epsilon must lie in (0, 1000]"),
    ],
)
def test_wrong_options_are_refused(terminal: Any, changes: dict[str, str], told: str) -> None:
    assert told in terminal.refused("solve", *words(**changes))
