"""Means of columns, sets and key-values from the command line, tables and requests."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cli.conftest import Terminal

import metricshuffle as ms
from metricshuffle.cli.shared_options import ReadingOptions
from metricshuffle.cli.submit_command import rows_from_options
from metricshuffle.collection.recipes import recipe_of
from metricshuffle.errors import InputError, InputWarning
from metricshuffle.planning.pairwise_distances import summarize_distances
from metricshuffle.planning.plan_request import PlanRequest
from metricshuffle.queries.query import Query
from metricshuffle.randomness import Randomness

DRINKS = ["tea", "coffee", "milk", "water"]
PROMISE = "--epsilon 2 --delta 1e-6 --users 300"
PLANS = {
    "means": f"plan --query means --column x --column y --low -1.0 --high 1.0 {PROMISE}",
    "sets": f"plan --query sets --labels {','.join(DRINKS)} --size 2 {PROMISE}",
    "keys": f"plan --query key-values --labels {','.join(DRINKS)} --low 0 --high 9 --size 2 "
    f"{PROMISE} --flat",
}
READ = {
    "means": "rows.csv --column x --column y",
    "sets": "sets.csv --column drinks",
    "keys": "sets.csv --column cups",
    "sets of rows": "long.csv --column drink --user-column who",
    "keys of rows": "long.csv --column drink --column cups --user-column who",
}
QUERIES: dict[str, Query] = {
    "means": ms.Means(["x", "y"], ms.Interval(-1.0, 1.0)),
    "coarse means": ms.Means(["x", "y"], ms.Interval(-1.0, 1.0), 0.25),
    "sets": ms.Sets(DRINKS, size=2),
    "keys": ms.KeyValues(DRINKS, ms.Integers(0, 9, "cups"), 2),
    "real keys": ms.KeyValues(DRINKS, ms.Interval(0.0, 9.0), 2, 0.5),
}


def write(name: str, header: list[str], rows: list[list[Any]]) -> None:
    with Path(name).open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerows([header, *rows])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    held = [DRINKS[person % 3 : person % 3 + person % 2 + 1] for person in range(300)]
    held[7] = []
    write("rows.csv", ["x", "y"], [[person / 300, -0.5] for person in range(300)])
    write(
        "sets.csv",
        ["drinks", "cups"],
        [[";".join(some), "; ".join(f"{drink}=4" for drink in some)] for some in held],
    )
    write(
        "long.csv",
        ["who", "drink", "cups"],
        [[f"p{who}", drink, 4] for who, some in enumerate(held) for drink in some or [""]],
    )
    Path("long.csv").write_text(Path("long.csv").read_text().replace("p7,,4", "p7,,"))
    return tmp_path


@pytest.mark.thorough
@pytest.mark.parametrize("name", READ)
def test_from_a_file_to_a_release(name: str, terminal: Terminal, folder: Path) -> None:
    made = terminal.typed(f"{PLANS[name.split()[0]]} --save plan.json --task task.json")
    assert made.exit_code == 0, made.output
    for line in (
        f"randomize task.json {READ[name]} --output reports.bin",
        "shuffle task.json reports.bin --output batch.bin",
        "estimate task.json batch.bin --output release.json",
        "report release.json --output release.html",
        "verify task.json",
        "explain task.json",
        "simulate plan.json --runs 20",
        "report plan.json --output plan.html",
        f"run plan.json {READ[name]} --output run.json --ledger other.ledger",
    ):
        result = terminal.typed(line)
        assert result.exit_code == 0, (line, result.output)
    release = ms.Release.load("release.json")
    rows = {row["label"]: row for row in release.value}
    if name == "means":
        assert rows["x"]["value"] == pytest.approx(0.5, abs=0.1)
        assert rows["y"]["value"] == pytest.approx(-0.5, abs=0.1)
    elif name.startswith("sets"):
        assert rows["tea"]["share"] == pytest.approx(1 / 3, abs=0.1)
        assert rows["coffee"]["share"] == pytest.approx(0.5, abs=0.1)
    else:
        assert rows["coffee"]["mean"] == pytest.approx(4.0, abs=1.5)
        assert rows["coffee"]["count"] == pytest.approx(150, abs=40)
        assert rows["water"]["may_be_empty"] or rows["water"]["count"] > 1
    assert "release.html" in {path.name for path in folder.iterdir()}


def test_the_whole_record_is_the_distance_if_none_is_given(
    terminal: Terminal, folder: Path
) -> None:
    for name, distance in {"means": 4.0, "sets": 4.0, "keys": 18.0}.items():
        assert terminal.typed(f"{PLANS[name]} --save {name}.json").exit_code == 0
        stored = json.loads(Path(f"{name}.json").read_text())
        assert stored["target"]["distance"] == distance


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("sets", "drinks\ntea;beer\n", "has 'beer', which is not one of the labels"),
        ("sets", "drinks\ntea;milk;water\n", "holds 3 labels, more than 2"),
        ("keys", "cups\ntea=30\n", "has a number that lies above it"),
        ("keys", "cups\ntea\n", "which is not one of the keys"),
        ("keys", "cups\ntea=x\n", "is text and not a number"),
        ("keys", "cups\ntea=1;tea=2\n", "has 'tea' more than once"),
        ("means", "x,y\n0.5,3\n", "lies above it, in 'y'"),
        ("means", "x,y\n0.5,\n", "is missing"),
    ],
)
def test_bad_rows_are_sentences(
    name: str, text: str, sentence: str, terminal: Terminal, folder: Path
) -> None:
    assert terminal.typed(f"{PLANS[name]} --task task.json").exit_code == 0
    Path("bad.csv").write_text(text)
    columns = READ[name].partition(" ")[2]
    result = terminal.typed(f"randomize task.json bad.csv {columns} --output reports.bin")
    assert result.exit_code != 0
    assert sentence in " ".join(result.output.split())
    assert not Path("reports.bin").exists()


def test_rows_of_one_person_are_gathered_and_refused_by_name() -> None:
    plan = ms.plan(ms.Sets(DRINKS, size=1), ms.Target(2, 1e-6, 2), users=2, trusted="curator")
    table = {"who": ["ann", "bob", "ann"], "drink": ["tea", "milk", "tea"]}
    release = plan.run(table, column="drink", user_column="who", randomness=Randomness.seeded(1))
    assert release.shuffled.people == 2
    table["drink"][2] = "water"
    with pytest.raises(InputError, match="'ann', who holds 2 labels, more than 1"):
        plan.run(table, column="drink", user_column="who")
    keys = ms.KeyValues(DRINKS, ms.Integers(0, 9), 2)
    plan = ms.plan(keys, ms.Target(2, 1e-6, 18), users=2, trusted="curator")
    cups = table | {"cups": [1, 2, 3]}
    plan.run(cups, column=("drink", "cups"), user_column="who", randomness=Randomness.seeded(1))
    cups["drink"] = ["tea", "milk", "tea"]
    with pytest.raises(InputError, match="'ann', who has 'tea' more than once"):
        plan.run(cups, column=("drink", "cups"), user_column="who")
    with pytest.raises(InputError, match="name the column that says whose row it is"):
        plan.run(cups, column=("drink", "cups"))


def test_frames_may_have_lists_and_columns_of_the_plan() -> None:
    pandas = pytest.importorskip("pandas")
    plan = ms.plan(QUERIES["sets"], ms.Target(2, 1e-6, 4), users=2, trusted="curator")
    frame = pandas.DataFrame({"drinks": [["tea", "milk"], []]})
    release = plan.run(frame, column="drinks", randomness=Randomness.seeded(1))
    assert release.shuffled.people == 2
    with pytest.raises(InputError, match="is missing"):
        plan.run(pandas.DataFrame({"drinks": [["tea"], None]}), column="drinks")
    means = ms.plan(QUERIES["means"], ms.Target(2, 1e-6, 4), users=3, trusted="curator")
    rows = pandas.DataFrame({"y": [0.1, 0.2, 0.3], "x": [1.0, 0.0, -1.0]})
    assert means.run(rows, randomness=Randomness.seeded(1)).shuffled.people == 3
    moved = pandas.DataFrame({"y": [0.1, 0.2, 0.3], "x": [9.0, 0.0, -1.0]})
    with pytest.warns(InputWarning, match="moved"):
        means.run(moved, clamp=True, randomness=Randomness.seeded(1))


def test_labels_that_contain_a_separator_are_not_read_from_cells() -> None:
    plan = ms.plan(ms.Sets(["a;b", "c"], 1), ms.Target(2, 1e-6, 2), users=2, trusted="curator")
    with pytest.raises(InputError, match="separate labels in a cell"):
        plan.run({"held": ["a;b", "c"]}, column="held")
    plan.run([["a;b"], []], randomness=Randomness.seeded(1))


@pytest.mark.parametrize("name", QUERIES)
def test_a_request_writes_itself(name: str, terminal: Terminal, folder: Path) -> None:
    query = QUERIES[name]
    request = PlanRequest(query, ms.Target(1, 1e-6, query.diameter, "flat"), 300)
    again = eval(request.to_python(), {"ms": ms})  # noqa: S307 - made here
    assert again.query == query
    line = [word for option in request.to_command() for word in option]
    result = terminal("plan", *line, "--task", "again.json")
    assert result.exit_code == 0, result.output
    assert ms.Task.load("again.json").query == query


def test_one_answer_is_typed() -> None:
    options = ReadingOptions([], None, None)
    (rows,) = rows_from_options(["0.5,-1"], QUERIES["means"], options).parts()
    assert np.asarray(rows).tolist() == [[0.5, -1.0]]
    (sets,) = rows_from_options(["tea; milk"], QUERIES["sets"], options).parts()
    assert list(sets) == [("tea", "milk")]
    (none,) = rows_from_options([""], QUERIES["sets"], options).parts()
    assert list(none) == [()]
    (held,) = rows_from_options(["milk=3;tea=9"], QUERIES["keys"], options).parts()
    assert list(held) == [(("tea", 9.0), ("milk", 3.0))]
    with pytest.raises(InputError, match="an answer is 2 numbers with ','"):
        rows_from_options(["1"], QUERIES["means"], options)


@pytest.mark.parametrize("name", ["means", "sets", "keys"])
def test_a_browser_takes_part_by_noisy_vectors(name: str) -> None:
    query = QUERIES[name]
    target = ms.Target(1, 1e-6, query.diameter)
    task = ms.plan(query, target, users=300, protocols=["noisy-vectors"]).task
    recipe = recipe_of(task)
    assert recipe["browser"]
    assert recipe["input"]["kind"] == {"means": "row", "sets": "set", "keys": "keys"}[name]


@pytest.mark.parametrize("name", ["means", "sets", "keys"])
def test_a_browser_says_why_it_cannot_take_part(name: str) -> None:
    query = QUERIES[name]
    protocol = {"means": "duchi", "sets": "priv-set", "keys": "priv-kv"}[name]
    target = ms.Target(2, 1e-6, query.diameter, "flat")
    recipe = recipe_of(ms.plan(query, target, users=2_000, protocols=[protocol]).task)
    assert recipe["browser"] is False
    assert "reports of record-reports" in recipe["why"]


def test_distances_between_people_are_summarized() -> None:
    query = ms.Sets(DRINKS, size=2)
    summary = summarize_distances(query, [["tea"], ["tea", "milk"], ["water"]])
    assert summary.quartiles == (1.0, 2.0, 3.0)
    assert summary.distances.tolist() == [1.0, 2.0, 3.0]
