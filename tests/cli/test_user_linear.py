"""`plan --query user-linear`: columns, regions and similarities of users' items, from files."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import metricshuffle as ms

PROMISE = "--epsilon 2 --distance 3 --delta 1e-6 --users 400"
VECTORS = f"{PROMISE} --protocol noisy-vectors"
FILES = {
    "columns.csv": "number,root,square\n" + "".join(f"{n},{n**0.5},{n * n}\n" for n in range(7)),
    "regions.csv": "region,number\nlow,0\nlow,1\nhigh,5\nhigh,6\n",
    "vectors.csv": "word,x,y\ntea,1,0\ncoffee,0.8,0.6\nmilk,0,1\n",
    "compared.csv": "name,x,y\nhot,1,0.5\ncold,-1,2\n",
    "short.csv": "number,root\n0,0\n1,1\n",
    "words.csv": "number,root\nzero,0\n",
    "text.csv": "number,root\n" + "".join(f"{n},{'x' if n == 3 else n}\n" for n in range(7)),
    "constant.csv": "number,root,same\n" + "".join(f"{n},{n**0.5},5\n" for n in range(7)),
    "positions.csv": "word,x,y\nmilk,0,1\ntea,1,0\ncoffee,0.8,0.6\n",
    "towns.csv": "town,latitude,longitude\nBern,46.95,7.45\nThun,46.75,7.63\nRome,41.9,12.5\n",
    "twice.csv": "word,x\ntea,0\ntea,1\n",
    "poles.csv": "town,latitude,longitude\nA,91,0\nB,0,0\n",
    "far.csv": "region,number\neverywhere," + "\neverywhere,".join("0123456") + "\nlow,0\n",
}


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("asked", "names"),
    [
        ("--low 0 --high 6 --table columns.csv", ["root", "square"]),
        ("--low 0 --high 6 --regions regions.csv --fade 2", ["low", "high"]),
        (
            "--labels tea,coffee,milk --table vectors.csv --similar-to compared.csv",
            ["hot", "cold"],
        ),
    ],
)
def test_what_is_asked_comes_from_files(
    terminal: Any, files: Path, asked: str, names: list[str]
) -> None:
    promise = VECTORS if "labels" not in asked else VECTORS.replace("distance 3", "distance 1")
    result = terminal.typed(f"plan --query user-linear {asked} {promise} --task task.json")
    assert result.exit_code == 0, result.output
    task = json.loads((files / "task.json").read_text())
    assert task["query"]["names"] == names
    assert task["protocol"]["features"]["kind"] == "table-columns"


@pytest.mark.parametrize(
    ("asked", "problem"),
    [
        ("--low 0 --high 6", "needs --table FILE"),
        ("--low 0 --high 6 --table missing.csv", "cannot read missing.csv: there is no such file"),
        ("--low 0 --high 6 --table text.csv", "row 5, column root: 'x' is not a number"),
        ("--low 0 --high 6 --table constant.csv", "same is the same at every point"),
        (
            "--low 0 --high 6 --regions far.csv --fade 2",
            "everywhere is the same at every point, so its mean is known without asking anybody; "
            "leave it out",
        ),
        ("--low 0 --high 6 --table short.csv", "has no row for 2"),
        ("--low 0 --high 6 --table words.csv", "by whole numbers"),
        ("--low 0 --high 6 --regions regions.csv", "needs --fade"),
        ("--low 0 --high 6 --regions regions.csv --fade 0", "width must be a number > 0"),
        ("--low 0 --high 6 --fade 2", "--fade is the width"),
        ("--low 0 --high 6 --similar-to compared.csv", "--similar-to compares"),
        ("--low 0 --high 6 --table columns.csv --regions regions.csv --fade 1", "not both"),
        ("--positions positions.csv", "or --distance-to LABELS"),
        ("--positions positions.csv --labels tea,salt --table vectors.csv", "no row for 'salt'"),
        ("--positions twice.csv --distance-to tea", "more than one row for 'tea'"),
        ("--positions poles.csv --distance-to A", "--positions poles.csv: "),
        ("--positions towns.csv --unit mile --distance-to Bern", "--positions towns.csv: "),
        ("--positions towns.csv --distance-to Oslo", "Oslo"),
        ("--positions towns.csv --distance-to Bern --table vectors.csv", "give only one of"),
    ],
)
def test_bad_files_are_refused_with_a_sentence(
    terminal: Any, files: Path, asked: str, problem: str
) -> None:
    result = terminal.typed(f"plan --query user-linear {asked} {PROMISE} --task task.json")
    assert result.exit_code != 0
    assert problem in " ".join(result.stderr.split())
    assert not (files / "task.json").exists()


def plan_of(terminal: Any, files: Path, asked: str, trusted: str) -> ms.Task:
    result = terminal.typed(
        f"plan --query user-linear {asked} --epsilon 2 --delta 1e-6 --users 400 "
        f"--trusted {trusted} --task task.json"
    )
    assert result.exit_code == 0, result.output
    return ms.Task.load(str(files / "task.json"))


def test_distances_between_labels_are_those_of_their_positions(terminal: Any, files: Path) -> None:
    asked = "--positions positions.csv --table vectors.csv --similar-to compared.csv --distance 1"
    query = plan_of(terminal, files, asked, "nobody").query
    assert isinstance(query, ms.UserLinearQuery)
    assert query.people.items_in.domain == ms.Categories(["milk", "tea", "coffee"])
    assert query.people.items_in.metric == ms.Vectors([[0, 1], [1, 0], [0.8, 0.6]])
    assert query.table.tolist() == [[0.5, 2.0], [1.0, -1.0], [1.1, pytest.approx(0.4)]]
    asked = "--positions towns.csv --distance-to Bern,Rome --labels Rome,Bern,Thun --distance 20"
    query = plan_of(terminal, files, asked, "nobody").query
    assert isinstance(query, ms.UserLinearQuery)
    metric = query.people.items_in.metric
    assert isinstance(metric, ms.GreatCircle)
    assert metric.unit == query.unit == "km"
    assert query.names == ("Bern", "Rome")
    assert query.table[0].tolist() == [pytest.approx(690.0, abs=5.0), 0.0]


@pytest.mark.thorough
def test_ten_thousand_words_are_planned_by_their_vectors(terminal: Any, files: Path) -> None:
    """The constant is the spectral norm of the compared vectors; no pairs are looked at."""
    generator = np.random.default_rng(26)
    words, compared = generator.normal(size=(10_000, 100)), generator.normal(size=(20, 100))
    for name, vectors in (("w", words), ("sim", compared)):
        rows = "".join(
            f"{name}{index},{','.join(map(repr, row))}\n"
            for index, row in enumerate(vectors.tolist())
        )
        header = ",".join(["word", *(f"x{column}" for column in range(100))])
        (files / f"{name}.csv").write_text(f"{header}\n{rows}")
    asked = "--positions w.csv --table w.csv --similar-to sim.csv --distance 5"
    began = time.process_time()
    query = plan_of(terminal, files, asked, "curator").query
    assert time.process_time() - began < 30.0
    assert isinstance(query, ms.UserLinearQuery)
    exact = float(np.linalg.norm(compared, 2))
    assert exact <= query.constant_in("l2") <= exact * (1.0 + 2e-4)  # rounding of f is included
    refused = terminal.typed(
        "plan --query user-linear --labels-from w.csv --column word --table w.csv "
        "--similar-to sim.csv --epsilon 2 --distance 1 --delta 1e-6 --users 400"
    )
    assert refused.exit_code == 2
    assert (
        "all pairs of at most 5,000 points, got 10,000; use fewer, or give labels --positions"
        in (" ".join(refused.output.split()))
    )


def test_the_files_belong_to_this_query_only(terminal: Any, files: Path) -> None:
    result = terminal.typed(
        f"plan --query user-histogram --labels tea,milk --positions positions.csv {PROMISE}"
    )
    assert "--positions does not belong to --query user-histogram" in (
        " ".join(result.stderr.split())
    )
    result = terminal.typed(
        f"plan --query user-mean --low 0 --high 6 --table columns.csv {PROMISE}"
    )
    assert result.exit_code != 0
    assert "--table does not belong to --query user-mean" in " ".join(result.stderr.split())
