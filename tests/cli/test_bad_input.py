"""Invalid input gives one sentence with field and remedy, exit code 2, and no file."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from metricshuffle import Plan

SUM: dict[str, str | None] = {
    "--query": "sum",
    "--low": "0",
    "--high": "20",
    "--epsilon": "1",
    "--distance": "5",
    "--delta": "1e-6",
    "--users": "40",
    "--save": "new.json",
}
CENTROID: dict[str, str | None] = {
    **SUM,
    "--query": "centroid",
    "--low": None,
    "--high": None,
    "--width": "8",
    "--height": "6",
    "--cell": "1",
}
COUNTED: dict[str, str | None] = {
    "--query": "histogram",
    "--epsilon": "1",
    "--delta": "1e-6",
    "--users": "400",
    "--save": "new.json",
}
PROFILE: dict[str, str | None] = {
    "--noise": "polya",
    "--rate": "0.5",
    "--users": "100",
    "--distance": "3",
    "--delta": "1e-6",
}


def words(base: dict[str, str | None], changes: dict[str, str | None]) -> list[str]:
    return [
        word
        for name, value in {**base, **changes}.items()
        if value is not None
        for word in (name, *value.split(" "))
        if word
    ]


PLANS: dict[str, tuple[dict[str, str | None], tuple[str, ...]]] = {
    "users below 1": ({"--users": "0"}, ("users", ">= 1")),
    "users not whole": ({"--users": "2.5"}, ("--users", "whole number")),
    "honest above users": ({"--honest": "41"}, ("honest", "cannot exceed")),
    "honest above 100 %": ({"--honest": "120%"}, ("honest", "(0, 1]")),
    "honest in words": ({"--honest": "most"}, ("honest", "percentage")),
    "delta of 1": ({"--delta": "1"}, ("delta", "[0, 1)")),
    "negative delta": ({"--delta": "-0.1"}, ("delta", "[0, 1)")),
    "delta not a number": ({"--delta": "nan"}, ("--delta", "finite number")),
    "epsilon 0": ({"--epsilon": "0"}, ("epsilon", "(0, 1000]")),
    "negative epsilon": ({"--epsilon": "-1"}, ("epsilon", "(0, 1000]")),
    "distance 0": ({"--distance": "0"}, ("distance", "greater than 0")),
    "distance beyond the diameter": ({"--distance": "21"}, ("distance", "diameter", "at most 20")),
    "distance below a step": ({"--distance": "0.5"}, ("distance", "less than one step")),
    "low above high": ({"--low": "30"}, ("--low must be below --high",)),
    "low is high": ({"--low": "20"}, ("--low must be below --high",)),
    "low in words": ({"--low": "none"}, ("--low", "finite number")),
    "no low": ({"--low": None}, ("--low", "missing")),
    "unknown query": ({"--query": "median"}, ("--query", "sum, mean, centroid", "'median'")),
    "real numbers without granularity": ({"--high": "20.5"}, ("--granularity", "--high 20.5")),
    "granularity not whole": ({"--granularity": "1.5"}, ("granularity", "whole number")),
    "epsilon and error": ({"--error": "3"}, ("--epsilon", "--error", "not both")),
    "neither epsilon nor error": ({"--epsilon": None}, ("--epsilon", "--error")),
    "error 0": ({"--epsilon": None, "--error": "0"}, ("error", "> 0")),
    "rounds 0": ({"--rounds": "0"}, ("rounds", ">= 1")),
    "unknown encoding": ({"--encoding": "binary"}, ("--encoding", "unary, modular, auto")),
    "unknown padding": ({"--padding": "none"}, ("--padding", "clamp, bounded")),
    "unknown transport": ({"--transport": "post"}, ("--transport", "aggregator")),
    "unknown trusted": (
        {"--trusted": "me"},
        ("--trusted", "nobody, shuffler, aggregator, curator"),
    ),
    "no bits": ({"--max-bits": "0"}, ("--max-bits", ">= 1")),
    "local epsilon 0": ({"--max-local-epsilon": "0"}, ("--max-local-epsilon", "> 0")),
    "width of a sum": ({"--width": "8"}, ("--width", "--query sum")),
    "labels of a sum": ({"--labels": "a,b"}, ("--labels does not belong to --query sum",)),
    "items of a sum": ({"--items": "3"}, ("--items does not belong to --query sum",)),
    "draws for a sum": ({"--draw": "3"}, ("--draw", "sum")),
    "no distance": ({"--distance": None}, ("--distance is missing",)),
    "delta too small for a double": ({"--delta": "1e-300"}, ("delta",)),
    "more rounds than people live": ({"--rounds": "1.5"}, ("--rounds", "whole number")),
    "unknown protocol": ({"--protocol": "magic"}, ("magic",)),
    "the task in a folder": ({"--task": "."}, ("--task", "is a folder")),
    "the task nowhere": ({"--task": "nowhere/task.json"}, ("--task", "does not exist")),
    "plan and task in one file": (
        {"--task": "new.json"},
        ("--save and --task both name new.json",),
    ),
    "folder that does not exist": ({"--save": "nowhere/plan.json"}, ("nowhere", "does not exist")),
    "unknown option": ({"--epsilom": "1"}, ("--epsilom", "metricshuffle plan --help")),
}


@pytest.mark.parametrize(("changes", "told"), PLANS.values(), ids=PLANS.keys())
def test_plan(terminal: Any, changes: dict[str, str | None], told: tuple[str, ...]) -> None:
    sentence = terminal.refused("plan", *words(SUM, changes), "--json")
    assert all(word in sentence for word in told), sentence


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"--cell": None}, "--cell"),
        ({"--cell": "0"}, "cell must be > 0"),
        ({"--width": None}, "--width and --height"),
        ({"--width": "0"}, "width"),
        ({"--width": "1"}, "at least 2 x 2"),
        ({"--low": "0"}, "--low does not belong"),
        ({"--granularity": "2"}, "granularity"),
        ({"--distance": "100"}, "diameter"),
        (
            {"--box": "47 8 46 9", "--width": None, "--height": None, "--cell": "100"},
            "--box: SOUTH must be below NORTH",
        ),
        ({"--box": "47 8 48 9"}, "either --box or --width"),
    ],
)
def test_centroid_plan(terminal: Any, changes: dict[str, str | None], told: str) -> None:
    assert told in terminal.refused("plan", *words(CENTROID, changes))


HISTOGRAMS: dict[str, tuple[dict[str, str | None], str]] = {
    "of nothing": ({}, "--labels a,b,c, --labels-from FILE --column NAME, or --low and --high"),
    "one label": ({"--labels": "tea"}, "--labels names 1 label; name at least two"),
    "an empty label": ({"--labels": "tea,,water"}, "has an empty word"),
    "a label twice": ({"--labels": "tea,tea"}, "labels must differ"),
    "labels at a distance": (
        {"--labels": "tea,water", "--distance": "2"},
        "any two categories are at distance 1",
    ),
    "labels and numbers": (
        {"--labels": "tea,water", "--low": "0", "--high": "3"},
        "a value is a word or a number",
    ),
    "labels in bins": ({"--labels": "tea,water", "--step": "2"}, "a value is a word or a number"),
    "labels twice": (
        {"--labels": "tea,water", "--labels-from": "words.csv", "--column": "word"},
        "either --labels or --labels-from",
    ),
    "no such file": ({"--labels-from": "none.csv", "--column": "word"}, "none.csv"),
    "no such column": ({"--labels-from": "words.csv", "--column": "name"}, "no column 'name'"),
    "no column": ({"--labels-from": "words.csv"}, "--labels-from needs --column"),
    "a column alone": ({"--column": "word"}, "--column names the column of --labels-from FILE"),
    "one word in the file": ({"--labels-from": "one.csv", "--column": "word"}, "names 1 label"),
    "real numbers without bins": (
        {"--low": "0.5", "--high": "3", "--distance": "1"},
        "needs --step, the width of its bins",
    ),
    "no high": ({"--low": "0", "--distance": "1"}, "--high is missing"),
    "numbers without a distance": ({"--low": "0", "--high": "9"}, "--distance is missing"),
    "a distance below a bin": (
        {"--low": "0", "--high": "9", "--step": "2", "--distance": "1"},
        "between one step, 2",
    ),
    "half a bin": (
        {"--low": "0", "--high": "9", "--step": "1.5", "--distance": "3"},
        "step must be a whole number",
    ),
    "one bin": ({"--low": "0", "--high": "9", "--step": "20", "--distance": "20"}, "2 to"),
    "too many numbers": (
        {"--low": "0", "--high": "1e9", "--distance": "1"},
        "merge values into fewer cells",
    ),
    "granularity": ({"--labels": "tea,water", "--granularity": "2"}, "granularity"),
    "a box": (
        {"--labels": "tea,water", "--box": "46 7 47 8"},
        "--box does not belong to --query histogram",
    ),
    "a map without cells": (
        {"--query": "map", "--width": "3", "--height": "3", "--distance": "1"},
        "--query map needs --cell",
    ),
    "a map of one row": (
        {"--query": "map", "--width": "3", "--height": "1", "--cell": "1", "--distance": "1"},
        "at least 2 x 2 cells",
    ),
    "a map of nowhere": (
        {"--query": "map", "--cell": "100", "--distance": "100"},
        "--width and --height in cells, or --box",
    ),
    "a map of labels": (
        {"--query": "map", "--labels": "a,b", "--distance": "1"},
        "--labels does not belong to --query map",
    ),
    "a map of a continent": (
        {"--query": "map", "--box": "40 0 50 20", "--cell": "1e5", "--distance": "1e5"},
        "split it",
    ),
}


@pytest.mark.parametrize(("changes", "told"), HISTOGRAMS.values(), ids=HISTOGRAMS.keys())
def test_histogram_and_map_plans(terminal: Any, changes: dict[str, str | None], told: str) -> None:
    """Options that do not fit a histogram or a map, each told by its name."""
    Path("words.csv").write_text("word\ntea\nwater\n")
    Path("one.csv").write_text("word\ntea\n\n tea\n")
    assert told in terminal.refused("plan", *words(COUNTED, changes))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"--rate": "0"}, "--rate must be greater than 0"),
        ({"--rate": "-1"}, "--rate must be greater than 0"),
        ({"--rate": "inf"}, "finite number"),
        ({"--users": "0"}, "users must be"),
        ({"--honest": "101"}, "honest (101) cannot exceed users (100)"),
        ({"--delta": "1"}, "--delta must lie in [0, 1)"),
        ({"--delta": "1e-300"}, "below"),
        ({"--delta": None, "--epsilon": "0"}, "--epsilon must be greater than 0"),
        ({"--delta": None, "--epsilon": "-2"}, "--epsilon must be greater than 0"),
        ({"--epsilon": "1"}, "and not both"),
        ({"--delta": None}, "--delta"),
        ({"--distance": "0"}, "--distance must be"),
        ({"--distance": "1.5"}, "whole number"),
        ({"--noise": "gaussian"}, "geometric, polya"),
        ({"--noise": "geometric", "--shape": "2"}, "leave --shape out"),
        ({"--shape": "0"}, "--shape must be"),
        ({"--shape": "1/0"}, "--shape must be"),
        ({"--shape": "1e999999999"}, "--shape must be"),
        ({"--trust": "nobody"}, "honest, colluding"),
        ({"--rounds": "0"}, "rounds must be"),
    ],
)
def test_profile(terminal: Any, changes: dict[str, str | None], told: str) -> None:
    assert told in terminal.refused("profile", *words(PROFILE, changes))


VALUES: dict[str, tuple[bytes, tuple[str, ...]]] = {
    "no file content": (b"", ("is empty", "header")),
    "header alone": (b"id,kcal\n", ("header but no rows",)),
    "missing column": (b"id,steps\n1,2\n", ("no column 'kcal'", "id, steps")),
    "column twice": (b"kcal,kcal\n1,2\n", ("more than one column 'kcal'",)),
    "outside": (
        b"kcal\n3\n21\n4\n-1\n",
        ("2 of 4 values", "line 3", "'21' lies above it", "--clamp"),
    ),
    "outside after blank and long lines": (
        b'kcal,n\n3,"a\nb"\n\n\n99,c\n',
        ("1 of 2 values", "line 6", "'99'", "--clamp"),
    ),
    "NaN": (b"kcal\n3\nnan\n", ("1 of 2 values", "is missing: line 3: 'nan'", "--drop-missing")),
    "infinite": (b"kcal\n3\ninf\n", ("line 3", "is infinite")),
    "not whole": (b"kcal\n3\n4.5\n", ("line 3", "'4.5' is not a whole number")),
    "text": (b"kcal\n3\nmany\n", ("line 3", "'many' is text")),
    "underscore": (b"kcal\n3\n1_0\n", ("line 3", "'1_0' is text")),
    "empty cell": (
        b"id,kcal\n1,3\n2,\n",
        ("1 of 2 values", "is missing: line 3: (empty)", "--drop-missing"),
    ),
    "short line": (
        b"id,kcal\n1,3\n2\n",
        (
            "1 line of values.csv has more or fewer fields",
            "2 that its header names: line 3 has 1",
        ),
    ),
    "long line": (b"id,kcal\n1,3\n2,3,4\n", ("line 3 has 3", "--decimal ,")),
    "not text": (b"kcal\n3\n\xe9\n", ("not in UTF-8, see line 3", "Latin-1")),
}


@pytest.mark.parametrize("command", ["randomize", "run"])
@pytest.mark.parametrize(("content", "told"), VALUES.values(), ids=VALUES.keys())
def test_values(
    terminal: Any, sum_plan: Plan, content: bytes, told: tuple[str, ...], command: str
) -> None:
    sum_plan.save("plan.json")
    Path("values.csv").write_bytes(content)
    sentence = terminal.refused(
        command, "plan.json", "values.csv", "--column", "kcal", "--output", "out"
    )
    assert all(word in sentence for word in told), sentence


def test_wrong_values_are_counted_to_the_end_of_the_file(
    terminal: Any, sum_plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("metricshuffle.data.source.CHUNK_ROWS", 10)
    monkeypatch.setattr("metricshuffle.data.csv_reader.LINES_PER_BLOCK", 5)
    sum_plan.save("plan.json")
    Path("values.csv").write_text(
        "kcal\n" + "".join(f"{40 if i in (17, 18, 55) else 3}\n" for i in range(60))
    )
    sentence = terminal.refused(
        "randomize", "plan.json", "values.csv", "--column", "kcal", "--output", "out"
    )
    assert "3 of 60 values" in sentence
    assert "line 19:" in sentence


def test_damaged_gzip_and_missing_files(terminal: Any, sum_plan: Plan) -> None:
    sum_plan.save("plan.json")
    Path("cut.csv.gz").write_bytes(gzip.compress(b"kcal\n" + b"3\n" * 1000)[:-12])
    assert "damaged or cut short" in terminal.refused(
        "run", "plan.json", "cut.csv.gz", "--column", "kcal"
    )
    assert "no such file" in terminal.refused("run", "plan.json", "nothing.csv", "--column", "kcal")
    assert "nothing.json" in terminal.refused(
        "run", "nothing.json", "cut.csv.gz", "--column", "kcal"
    )


def test_columns_that_do_not_fit_the_query(
    terminal: Any, sum_plan: Plan, centroid_plan: Plan, values: Path
) -> None:
    sum_plan.save("sum.json")
    centroid_plan.save("place.json")
    assert "one column, named by --column; got 2" in terminal.refused(
        "run", "sum.json", values, "--column", "x", "--column", "y"
    )
    assert "two columns, each named by --column" in terminal.refused(
        "run", "place.json", values, "--column", "x"
    )
    assert "given twice" in terminal.refused(
        "run", "place.json", values, "--column", "x", "--column", "x"
    )
    assert (
        "--coordinates points is for places on a grid; leave it out for this sum"
        in terminal.refused("run", "sum.json", values, "--column", "x", "--coordinates", "points")
    )
    assert "plan with --box" in terminal.refused(
        "run", "place.json", values, "--column", "x", "--column", "y", "--coordinates", "places"
    )
    told = terminal.refused("run", "place.json", values, "--column", "kcal", "--column", "y")
    assert "line 10: '8', '2'" in told
    assert "cells, points, places" in terminal.refused(
        "run", "place.json", values, "--column", "x", "--column", "y", "--coordinates", "xy"
    )


def test_a_plan_edited_by_hand(terminal: Any, sum_plan: Plan, values: Path) -> None:
    edited = json.loads(sum_plan.to_json())
    edited["honest"] = 2
    Path("plan.json").write_text(json.dumps(edited))
    for words in (
        ["simulate", "plan.json"],
        ["run", "plan.json", values, "--column", "kcal"],
        ["shuffle", "plan.json", values, "--output", "s"],
    ):
        assert (
            "checksum does not match its content: the file was edited or damaged"
            in terminal.refused(*words)
        )
    Path("plan.json").write_text("{")
    assert "not JSON" in terminal.refused("simulate", "plan.json")
    Path("plan.json").write_text('{"format": "something else"}')
    assert "its format is 'something else'" in terminal.refused("simulate", "plan.json")
    for deep in ("[" * 100_000, '{"format": ' + "9" * 5000 + "}"):
        Path("plan.json").write_text(deep)
        assert "cannot use plan.json" in terminal.refused("simulate", "plan.json")


def test_a_batch_below_the_minimum(terminal: Any, sum_plan: Plan) -> None:
    sum_plan.save("plan.json")
    Path("few.csv").write_text("kcal\n" + "3\n" * 29)
    assert (
        terminal(
            "randomize", "plan.json", "few.csv", "--column", "kcal", "--output", "reports"
        ).exit_code
        == 0
    )
    assert "29 reports" in terminal.refused(
        "shuffle", "plan.json", "reports", "--output", "shuffled"
    )
    assert "at least 30 honest" in terminal.refused(
        "run", "plan.json", "few.csv", "--column", "kcal", "--output", "release.json"
    )


def test_files_in_the_wrong_place(
    terminal: Any, sum_plan: Plan, shares_plan: Plan, values: Path
) -> None:
    sum_plan.save("plan.json")
    shares_plan.save("other.json")
    assert (
        terminal(
            "randomize", "plan.json", values, "--column", "kcal", "--output", "reports"
        ).exit_code
        == 0
    )
    assert "made for another task" in terminal.refused(
        "shuffle", "other.json", "reports", "--output", "shuffled"
    )
    assert (
        "this is not a shuffled batch: it begins with 'metricshuffle-reports/2'"
        in terminal.refused("estimate", "plan.json", "reports")
    )
    assert "not a reports file" in terminal.refused(
        "shuffle", "plan.json", values, "--output", "shuffled"
    )
    assert "twice" in terminal.refused(
        "shuffle", "plan.json", "reports", "./reports", "--output", "shuffled"
    )
    assert "also the input" in terminal.refused(
        "randomize", "plan.json", values, "--column", "kcal", "--output", values
    )
    assert "is a folder" in terminal.refused("shuffle", "plan.json", "reports", "--output", ".")
    Path("cut").write_bytes(Path("reports").read_bytes()[:-3])
    assert "cut short" in terminal.refused("shuffle", "plan.json", "cut", "--output", "shuffled")


def test_usage_errors_are_one_line_too(terminal: Any, sum_plan: Plan) -> None:
    sum_plan.save("plan.json")
    assert "--column" in terminal.refused("run", "plan.json", "values.csv")
    assert "runs must be" in terminal.refused("simulate", "plan.json", "--runs", "0")
    assert "No such command" in terminal.refused("guess")


@pytest.mark.parametrize(("stopped", "code"), [(KeyboardInterrupt(), 130), (SystemExit(143), 143)])
def test_an_interruption_inside_a_compiled_loop_is_no_bug(
    terminal: Any, monkeypatch: pytest.MonkeyPatch, stopped: BaseException, code: int
) -> None:
    """numba reports a signal during a loop as a SystemError caused by the interruption."""

    def loop(*_: object, **__: object) -> None:
        raise SystemError("CPUDispatcher returned a result with an exception set") from stopped

    monkeypatch.setattr("metricshuffle.privacy.target.checked_users", loop)
    result = terminal("profile", *words(PROFILE, {}))
    assert result.exit_code == code
    assert "Traceback" not in result.stderr


def test_what_is_nobodys_fault_asks_for_a_report(
    terminal: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("the moon")

    monkeypatch.setattr("metricshuffle.privacy.target.checked_users", broken)
    result = terminal("profile", *words(PROFILE, {}))
    assert result.exit_code == 1
    assert "RuntimeError: the moon" in result.stderr
    assert "please report it" in result.stderr
