"""Several rows of a person are rejected without an option for them, for every query."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.catalogue.planned_tasks import planned

from metricshuffle import Integers, Plan, Space, Target, UserHistogram, plan, users_of
from metricshuffle.cli.input_rows import rows_of
from metricshuffle.cli.shared_options import ReadingOptions
from metricshuffle.queries.query import Query

EVERY_ROW = "Every row counted as another person"
ROWS = "who,n,word,lat,lon\n" + "".join(
    f"p{person},{value},{word},46.95,7.44\n"
    for person in range(40)
    for value, word in (
        [(person % 5, "tea"), (4 + person % 5, "water"), (8 + person % 5, "tea")][: 1 + person % 3]
    )
)
"""Forty people with one, two or three rows each: 79 rows."""


@pytest.fixture(autouse=True)
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "rows.csv"
    path.write_text(ROWS)
    return path


def taken(query: Query, per_user: str | None, column: str = "n", clamp: bool = False) -> Any:
    """What is handed to the query."""
    return next(
        rows_of(Path("rows.csv"), query, ReadingOptions([column], "who", per_user, clamp)).parts()
    )


@pytest.mark.parametrize("command", ["randomize", "run"])
@pytest.mark.parametrize(
    ("kind", "column", "ways"),
    [
        ("unary sum", "n", "mean, sum, first or sample"),
        ("mean of real numbers", "n", "mean, sum, first or sample"),
        ("labels", "word", "first or sample"),
        ("map", "lat lon", "first or sample"),
        ("centroid", "lat lon", "first or sample"),
    ],
)
def test_several_rows_of_a_person_are_refused(
    terminal: Any, kind: str, column: str, ways: str, command: str
) -> None:
    """The error gives rows, people, the most rows of a person, and the remedy."""
    planned(kind).task.save("task.json")
    columns = [word for name in column.split() for word in ("--column", name)]
    told = terminal.refused(
        command,
        "task.json",
        "rows.csv",
        *columns,
        "--user-column",
        "who",
        "--output",
        "out",
        "--clamp",
    )
    assert "79 rows of rows.csv belong to 40 people, up to 3 to one of them" in told
    assert f"so choose --per-user {ways}, or plan a user-histogram or user-mean" in told


@pytest.mark.parametrize(
    ("way", "expected"),
    [
        ("first", [person % 5 for person in range(40)]),
        (
            "sum",
            [[x, 2 * x + 4, 3 * x + 12][person % 3] for person in range(40) for x in [person % 5]],
        ),
        ("mean", [[x, x + 2, x + 4][person % 3] for person in range(40) for x in [person % 5]]),
    ],
)
def test_what_several_rows_come_to(way: str, expected: list[int], terminal: Any) -> None:
    """First, sum and mean of a person's rows, people in the order of their first row."""
    assert taken(planned("unary sum").query, way, clamp=True).tolist() == [
        min(value, 20) for value in expected
    ]


def test_one_row_at_random(terminal: Any) -> None:
    """Each of a person's rows is taken now and then, and nobody else's."""
    drawn = np.array([taken(planned("unary sum").query, "sample") for _ in range(60)])
    for person in range(40):
        assert set(drawn[:, person]) == {person % 5 + 4 * row for row in range(1 + person % 3)}


def test_means_of_real_numbers_are_not_rounded(terminal: Any, tmp_path: Path) -> None:
    """Whole numbers are rounded to the nearest, real ones are not."""
    (tmp_path / "rows.csv").write_text("who,n\na,1\na,2\na,2\nb,3\n")
    assert taken(planned("mean of real numbers").query, "mean").tolist() == pytest.approx(
        [5 / 3, 3.0]
    )
    assert taken(planned("unary sum").query, "mean").tolist() == [2, 3]


def test_sums_that_leave_the_range(terminal: Any, sum_plan: Plan) -> None:
    """A combined value outside the domain is an error with the name; --clamp moves it."""
    sum_plan.task.save("task.json")
    words = ["task.json", "rows.csv", "--column", "n", "--user-column", "who", "--per-user", "sum"]
    told = terminal.refused("randomize", *words, "--output", "out")
    assert (
        "the sum of 5 of 40 people of rows.csv are not in whole numbers from 0 to 20 kcal" in told
    )
    assert "not in whole numbers from 0 to 20 kcal: 'p8': 21.0 lies above it" in told
    assert "Take another --per-user, or pass --clamp" in told
    assert json.loads(terminal("run", *words, "--clamp", "--json").stdout)["reports"] == 40


@pytest.mark.parametrize(
    ("kind", "words", "told"),
    [
        ("unary sum", "--column n --per-user mean", "name whose rows they are with --user-column"),
        (
            "unary sum",
            "--column n --user-column who --per-user median",
            "--per-user must be one of mean, sum, first, sample",
        ),
        (
            "labels",
            "--column word --user-column who --per-user mean",
            "--per-user mean is for numbers; take first or sample",
        ),
        (
            "users' mean",
            "--column n --user-column who --per-user mean",
            "takes all rows of a user; leave --per-user out",
        ),
        ("users' mean", "--column n", "name the column that says whose row it is, --user-column"),
        ("unary sum", "--column n --user-column n", "is also the --user-column"),
        ("unary sum", "--column n --user-column name", "no column 'name' (--user-column)"),
        (
            "users' histogram",
            "--column n --user-column who --clamp",
            "do not have exactly 3 items; the first is 'p0' with 1",
        ),
        (
            "users' histogram",
            "--column n --user-column who --clamp --per-user repeat",
            "a number of items that divides 3; the first is 'p1' with 2",
        ),
        (
            "users' mean",
            "--column n --user-column who --per-user repeat",
            "--per-user repeat is for users' items whose number is public",
        ),
        (
            "unary sum",
            "--column n --user-column who --per-user repeat",
            "--per-user repeat is for users' items whose number is public",
        ),
    ],
)
def test_options_that_do_not_fit(terminal: Any, kind: str, words: str, told: str) -> None:
    """Ways that make no sense for a query, and columns that are not there."""
    planned(kind).task.save("task.json")
    for command in ("randomize", "run"):
        assert told in terminal.refused(
            command, "task.json", "rows.csv", *words.split(), "--output", "out"
        )


def test_a_person_without_a_name(terminal: Any, sum_plan: Plan, tmp_path: Path) -> None:
    """An empty name is nobody: told with its line."""
    sum_plan.task.save("task.json")
    (tmp_path / "rows.csv").write_text("who,n\na,1\n ,2\n")
    told = terminal.refused("run", "task.json", "rows.csv", "--column", "n", "--user-column", "who")
    assert (
        "1 of 2 rows of rows.csv names no user in --user-column 'who': line 3: (empty). "
        "Correct such rows; --drop-missing" in told
    )


def test_names_of_people_stay_text(terminal: Any, tmp_path: Path) -> None:
    """7, 007 and 7.0 are three people; white space around a name does not count."""
    (tmp_path / "rows.csv").write_text("who,n\n7,1\n007,1\n 7 ,2\n7.0,3\n")
    held = taken(planned("users' mean").query, None)
    assert [items.tolist() for items in held] == [[1, 2], [1], [3]]


def test_rows_of_a_person_may_lie_anywhere(
    terminal: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A person's rows are found in every chunk of a file."""
    monkeypatch.setattr("metricshuffle.data.source.CHUNK_ROWS", 3)
    monkeypatch.setattr("metricshuffle.data.csv_reader.LINES_PER_BLOCK", 3)
    (tmp_path / "rows.csv").write_text(
        "who,n\n" + "".join(f"p{row % 5},{row % 4}\n" for row in range(20))
    )
    held = taken(planned("users' mean").query, None)
    assert [items.tolist() for items in held] == [
        [row % 4 for row in range(person, 20, 5)] for person in range(5)
    ]


def test_it_is_said_once_that_every_row_counts(terminal: Any, sum_plan: Plan) -> None:
    """Once on stderr without --user-column, never with it or in JSON; a plan says it, too."""
    sum_plan.task.save("task.json")
    Path("one.csv").write_text("who,n\n" + "".join(f"p{person},3\n" for person in range(40)))
    words = ["task.json", "one.csv", "--column", "n"]
    for command in (["run", *words], ["randomize", *words, "--output", "reports"]):
        without = terminal(*command)
        for name in (
            "releases.ledger",
            "release.json",
        ):  # every run is another round, and there is one
            Path(name).unlink(missing_ok=True)
        named = terminal(*command, "--user-column", "who")
        Path("releases.ledger").unlink(missing_ok=True)
        assert without.stderr.count(EVERY_ROW) == 1
        assert "--user-column" in without.stderr
        assert EVERY_ROW not in without.stdout
        assert named.exit_code == 0
        assert EVERY_ROW not in named.output
    assert EVERY_ROW not in terminal("run", *words, "--json").stdout


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (
            "--query sum --low 0 --high 20 --distance 5",
            "Every row of a file counts as another person; --user-column of randomize and run",
        ),
        ("--query histogram --labels a,b", "Every row of a file counts as another person"),
        (
            "--query user-mean --low 0 --high 20 --distance 5",
            "Users may hold any number of items, at least one.",
        ),
        (
            "--query user-mean --low 0 --high 20 --distance 5 --items 3",
            "Everybody holds exactly 3 items",
        ),
        (
            "--query user-mean --low 0 --high 20 --distance 5 --items 1",
            "Everybody holds exactly 1 item:",
        ),
    ],
)
def test_a_plan_says_what_a_row_is(terminal: Any, asked: str, told: str) -> None:
    """In words, below the candidates."""
    result = terminal.typed(f"plan {asked} --epsilon 1 --delta 0 --users 100 --trusted nobody")
    assert result.exit_code == 0, result.output
    assert result.stdout.count(told) == 1


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("user-histogram", "Users may hold any number of items, at least one."),
        ("user-histogram --most-items 7", "Users may hold any number of items, at least one."),
        ("user-mean", "Users may hold any number of items, at least one."),
    ],
)
def test_a_plan_says_what_the_shuffler_needs_to_help(terminal: Any, asked: str, told: str) -> None:
    """Any number of items; the limit that noisy vectors once needed has no effect."""
    result = terminal.typed(
        f"plan --query {asked} --low 0 --high 5 --epsilon 1 --distance 5 --delta 1e-6 --users 100"
    )
    assert result.exit_code == 0, result.output
    assert result.stdout.count(told) == 1


def test_items_are_repeated_where_their_number_divides_that_of_the_plan(terminal: Any) -> None:
    """One, two or three rows of a plan for six items; all count with the same weight."""
    query = UserHistogram(users_of(Space(Integers(0, 99)), 6))
    people = taken(query, "repeat")
    assert {len(items) for items in people} == {6}
    rows: dict[str, list[int]] = {}
    for line in ROWS.splitlines()[1:]:
        fields = dict(zip(ROWS.splitlines()[0].split(","), line.split(","), strict=True))
        rows.setdefault(fields["who"], []).append(int(fields["n"]))
    held = [sorted(np.repeat(items, 6 // len(items)).tolist()) for items in rows.values()]
    assert [sorted(np.asarray(items).tolist()) for items in people] == held
    task = plan(query, Target(2, 1e-6, 9), 40, protocols=["shuffler-noise"]).task
    task.save("task.json")
    words = "rows.csv --column n --user-column who --per-user repeat --output out"
    assert terminal("randomize", "task.json", *words.split()).exit_code == 0
