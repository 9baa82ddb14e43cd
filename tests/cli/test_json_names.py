"""Stable names for programs: options and JSON fields; tables have a row for each cell."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from tests.catalogue.planned_tasks import planned, values_of
from tools.reference import every_command

from metricshuffle.cli.command_group import app

OPTIONS = {
    "plan": "--query --distance --delta --users --honest --epsilon --error --flat --rounds --low "
    "--high --unit --width --height --cell "
    "--box --encoding --padding --granularity --transport --trusted --max-local-epsilon "
    "--max-bits --explain --save --json",
    "randomize": "PLAN VALUES --column --output --clamp --coordinates --delimiter --json",
    "shuffle": "PLAN REPORTS... --output --json",
    "estimate": "PLAN SHUFFLED --output --json",
    "run": "PLAN [VALUES] --spark --column --output --clamp --coordinates --delimiter --json",
    "simulate": "PLAN --runs --seed --json",
    "profile": (
        "--noise --rate --users --distance --honest --shape --delta --epsilon --trust --rounds "
        "--json"
    ),
    "amplify": "--randomizer --users --delta --epsilon --local-epsilon --options --rate --distance "
    "--reach --reach-other --low --high "
    "--half-width --steps --size --buckets --matrix --pair --honest --rounds --plot --json",
    "solve": "--low --high --epsilon --distance --delta --users --step --grid --algorithm --json",
    "users calibrate": (
        "--rate --delta --users --items --model --honest --diameter --unit --clusters --places "
        "--inner --json"
    ),
    "users compare": "--epsilon --rate --delta --items --runs --seed --users --clusters --places "
    "--inner "
    "--csv --user-column --column "
    "--levels --box --side --coordinates --unit --delimiter --plot --json",
    "reproduce": "ITEM --output --quick --runs --seed --csv --json",
}
"""What every command took before there was one plan for every query."""

PLAN = {
    "format",
    "query",
    "target",
    "users",
    "honest",
    "rounds",
    "granularity",
    "trusted",
    "chosen",
    "candidates",
    "not_offered",
    "digest",
}
CANDIDATE = {
    "protocol",
    "encoding",
    "rate",
    "flip",
    "shape",
    "padding",
    "radius",
    "expected_error",
    "standard_error",
    "local_epsilon",
    "local_epsilon_per_unit",
    "bits_per_user",
    "messages_per_user",
    "guarantee",
    "fallback",
    "baseline",
}
GUARANTEE = {
    "epsilon",
    "delta",
    "distance",
    "unit",
    "shape",
    "protects",
    "trust",
    "bound",
    "rounds",
    "between",
    "sentence",
}
RELEASE = {
    "format",
    "query",
    "granularity",
    "value",
    "standard_error",
    "interval_95",
    "reports",
    "protocol",
    "guarantee",
    "if_shuffler_colludes",
    "raw_values_seen",
    "unsafe_seeded",
    "plan",
}
ROW = {"share", "count", "standard_error", "interval_95"}


def no_constants(name: str) -> None:
    raise AssertionError(f"{name} is no JSON")


def answered(terminal: Any, *words: str) -> Any:
    """Strict JSON document that a command prints with --json, alone on standard output."""
    result = terminal(*words, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout, parse_constant=no_constants)


@pytest.mark.parametrize("name", OPTIONS)
def test_options_stay(name: str) -> None:
    """Every option and argument that there was is still there."""
    command = dict(every_command(typer.main.get_command(app)))[name]
    known = {
        parameter.opts[0] if parameter.param_type_name == "option" else parameter.metavar
        for parameter in command.params
    }
    assert set(OPTIONS[name].split()) <= known


@pytest.mark.parametrize(
    "asked",
    [
        "--query sum --low 0 --high 20 --distance 5",
        "--query mean --low -2.5 --high 2.5 --granularity 0.5 --distance 1 --encoding modular",
        "--query centroid --width 8 --height 6 --cell 10 --distance 20 --encoding modular",
    ],
)
def test_plans_of_sums(terminal: Any, asked: str) -> None:
    """Names of all levels are stable; only the chosen candidate keeps its mechanism."""
    document = answered(
        terminal, "plan", *asked.split(), *["--epsilon", "1", "--delta", "1e-6", "--users", "100"]
    )
    assert set(document) >= PLAN
    assert set(document["target"]) == {"epsilon", "delta", "distance", "shape"}
    assert {candidate["protocol"] for candidate in document["candidates"]} >= {
        "polya-shuffle",
        "geometric-local",
        "geometric-central",
    }
    for index, candidate in enumerate(document["candidates"]):
        assert set(candidate) >= CANDIDATE
        assert ("mechanism" in candidate) == (index == document["chosen"])
        assert set(candidate["guarantee"]) == set(candidate["fallback"]) == GUARANTEE
        assert set(candidate["guarantee"]["trust"]) == {"trusted", "honest_reports"}
    chosen = document["candidates"][document["chosen"]]
    assert {"name", "randomizers", "modulus"} <= set(chosen["mechanism"])
    central = next(
        candidate
        for candidate in document["candidates"]
        if candidate["protocol"] == "geometric-central"
    )
    assert (
        central["local_epsilon"],
        central["local_epsilon_per_unit"],
        central["fallback"]["epsilon"],
    ) == (None, None, None)
    assert document["digest"] == document["task"]["digest"]


def test_runs_of_sums(terminal: Any, values: Path, sum_plan: Any, centroid_plan: Any) -> None:
    """Names and types of a release of a sum and of a centroid."""
    sum_plan.save("sum.json")
    document = answered(terminal, "run", "sum.json", str(values), "--column", "kcal")
    assert set(document) >= RELEASE
    assert set(document["guarantee"]) == set(document["if_shuffler_colludes"]) == GUARANTEE
    assert document["query"] == {
        "kind": "sum",
        "domain": {"kind": "integers", "low": 0, "high": 20, "unit": "kcal"},
    }
    assert document["granularity"] == 1.0
    low, high = document["interval_95"]
    assert low < document["value"] < high
    assert document["protocol"] == "polya-shuffle"
    assert document["raw_values_seen"] is True
    assert document["unsafe_seeded"] is False
    assert document["plan"] == sum_plan.digest
    centroid_plan.save("centroid.json")
    document = answered(
        terminal, "run", "centroid.json", str(values), "--column", "x", "--column", "y"
    )
    assert set(document) >= RELEASE
    assert [len(document[name]) for name in ("value", "standard_error", "interval_95")] == [2, 2, 2]


PLACES = {
    "labels": {"label"},
    "line": {"low", "high"},
    "map": {"south", "west", "north", "east"},
    "users' histogram": {"low", "high"},
    "users' samples": {"label"},
}


@pytest.mark.parametrize("kind", PLACES)
def test_tables_have_a_row_for_each_cell(terminal: Any, kind: str) -> None:
    """Label, bin or cell; share, count, standard error and interval; shares sum to one."""
    plan = planned(kind)
    plan.save("plan.json")
    rows = [
        (person, value)
        for person, held in enumerate(values_of(kind))
        for value in (held if isinstance(held, list) else [held])
    ]
    lines = [
        f"{person},{','.join(map(str, value)) if isinstance(value, tuple) else value}"
        for person, value in rows
    ]
    columns = ("x", "y") if kind == "map" else ("value",)
    Path("values.csv").write_text("\n".join([f"who,{','.join(columns)}", *lines]))
    more = ["--coordinates", "cells"] if kind == "map" else []
    words = [
        "run",
        "plan.json",
        "values.csv",
        "--user-column",
        "who",
        *(word for name in columns for word in ("--column", name)),
        *more,
    ]
    document = answered(terminal, *words)
    assert set(document) >= RELEASE - {"granularity", "standard_error", "interval_95"}
    assert "standard_error" not in document
    table = document["value"]
    assert isinstance(table, list)
    for row in table:
        assert set(row) - {"unbiased"} == PLACES[kind] | ROW
        low, high = row["interval_95"]
        assert 0.0 <= low <= row["share"] <= high <= 1.0
        assert row["count"] == pytest.approx(row["share"] * plan.users)
        assert row["standard_error"] > 0.0
    assert sum(row["share"] for row in table) == pytest.approx(1.0)
    if kind == "labels":
        assert [row["label"] for row in table] == ["tea", "coffee", "water"]
    if kind == "line":
        assert [(row["low"], row["high"]) for row in table] == [
            (number, number) for number in range(10)
        ]


def test_what_the_other_roles_print(terminal: Any, values: Path, sum_plan: Any) -> None:
    """Counts, files and digests of verify, randomize, shuffle and simulate."""
    sum_plan.task.save("task.json")
    document = answered(terminal, "verify", "task.json")
    assert {name: document[name] for name in ("verified", "plan", "minimum", "rounds")} == {
        "verified": True,
        "plan": sum_plan.digest,
        "minimum": 30,
        "rounds": 1,
    }
    assert set(document["guarantee"]) == set(document["if_shuffler_colludes"]) == GUARANTEE
    document = answered(
        terminal, "randomize", "task.json", str(values), "--column", "kcal", "--output", "reports"
    )
    assert document == {"reports": 40, "output": "reports", "plan": sum_plan.digest, "round": 1}
    document = answered(terminal, "shuffle", "task.json", "reports", "--output", "shuffled")
    assert document == {
        "reports": 40,
        "ignored": 0,
        "output": "shuffled",
        "plan": sum_plan.digest,
        "round": 1,
    }
    assert set(answered(terminal, "estimate", "task.json", "shuffled")) >= RELEASE
    document = answered(terminal, "simulate", "task.json", "--runs", "1")
    assert {
        "runs",
        "users",
        "mean_absolute_error",
        "standard_error",
        "root_mean_square_error",
        "expected_error",
        "coverage_95",
    } <= set(document)
    assert document["standard_error"] is None


OTHERS = {
    "profile --noise polya --users 100 --rate 0.5 --distance 4 --delta 1e-6": {
        "epsilon",
        "delta",
        "distance",
        "bound",
    },
    "amplify --randomizer krr --options 10 --local-epsilon 1 --users 1e5 --delta 1e-6": {
        "upper",
        "lower",
        "bound",
        "evaluator",
        "attained",
    },
    "solve --low 0 --high 1 --step 0.25 --epsilon 1 --distance 1 --delta 1e-6 --users 1e5 "
    "--grid 2": {
        "low",
        "high",
        "solutions",
        "recommended",
        "algorithm",
        "algorithms",
        "amplifies",
        "metric",
        "certified",
        "randomizer",
        "share_error",
        "report_error",
    },
    "users calibrate --rate 5 --delta 1e-6 --users 100 --items 5 --model local": {
        "item_rate",
        "certified",
        "composition_rate",
        "published_rate",
        "certificate",
    },
    "users compare --users 20 --items 2 --runs 2 --clusters 2 --places 2 --inner 0.1 --rate 1": {
        "users",
        "in",
        "comparisons",
    },
    "reproduce shuffler-figure-2 --quick": {
        "item",
        "paper",
        "label",
        "title",
        "simulated",
        "settings",
        "words",
        "rows",
        "charts",
    },
}


@pytest.mark.parametrize("line", OTHERS)
def test_commands_without_a_plan(terminal: Any, line: str) -> None:
    """Their documents have the fields that they had."""
    document = answered(terminal, *line.split())
    assert set(document) == OTHERS[line]
    if line.startswith("solve"):
        assert set(document["solutions"][0]) == {
            "diameter",
            "local_epsilon_per_unit",
            "local_epsilon_at_distance",
            "amplified_max_excess",
            "closed_diameter",
        }
    if line.startswith("users calibrate"):
        assert set(document["certificate"]) == {
            "bound",
            "intervals",
            "up_to_distance",
            "worst_delta",
            "worst_at_distance",
        }
    if line.startswith("users compare"):
        assert set(document["comparisons"][0]) >= {
            "users",
            "items",
            "epsilon",
            "rate",
            "delta",
            "diameter",
            "runs",
            "methods",
            "unit",
            "draws",
            "not_offered",
            "gain",
            "sentences",
        }
        assert set(document["comparisons"][0]["methods"][0]) == {
            "error",
            "hides",
            "model",
            "name",
            "standard_error",
            "strength",
        }


def test_numbers_of_commands_without_a_plan_stay(terminal: Any) -> None:
    """A handful of numbers as they were before there was one plan for every query."""
    known: dict[str, tuple[list[Any], float]] = {
        "profile --noise polya --users 100 --rate 0.5 --distance 4 --delta 1e-6": (
            ["epsilon"],
            1.9999983934688998,
        ),
        "amplify --randomizer krr --options 10 --local-epsilon 1 --users 1e5 --delta 1e-6": (
            ["upper", "epsilon"],
            0.006638473275576383,
        ),
        "solve --low 0 --high 1 --step 0.125 --epsilon 1 --distance 1 --delta 1e-6 --users "
        "1e5 --grid 4 --algorithm 1": (
            ["high"],
            5.987955379800324,
        ),
        "users calibrate --rate 5 --delta 1e-6 --users 1000 --items 20 --model local": (
            ["item_rate"],
            0.2499999999999991,
        ),
    }
    for line, (path, number) in known.items():
        number_now = answered(terminal, *line.split())
        for step in path:
            number_now = number_now[step]
        assert number_now == pytest.approx(number, rel=1e-12), line
