"""Values changed by --clamp and --per-user mean are counted and reported with the answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Terminal

import metricshuffle as ms
from metricshuffle.data.row_errors import RowSummary
from metricshuffle.errors import InputWarning

MOVED = (
    "A value outside whole numbers from 0 to 100 usd was moved to the nearest end, wherever "
    "there was one: the answer is about the moved"
)


def prices(trusted: Any = "curator") -> ms.Plan:
    target = ms.Target(epsilon=1.0, delta=1e-6, distance=10)
    return ms.plan(
        ms.Mean(ms.Integers(0, 100, "usd")), target, users=400, honest=40, trusted=trusted
    )


def unwrapped(text: str) -> str:
    return " ".join(text.split())


@pytest.fixture
def dear(terminal: Terminal) -> Path:
    """Two hundred prices, twelve too high: their mean is 67, and 13 when clamped."""
    prices().save("plan.json")
    path = Path("prices.csv")
    path.write_text(
        "who,price\n"
        + "".join(
            f"p{row // 2},{900 if row % 16 == 0 and row < 192 else 7}\n" for row in range(200)
        )
    )
    return path


def test_what_is_clamped_is_counted_where_the_values_are(terminal: Terminal, dear: Path) -> None:
    """Counts on the terminal; fixed sentences in the release, the report and the map."""
    result = terminal("run", "plan.json", dear, "--column", "price", "--clamp")
    counted = (
        "Warning: 12 of 200 values of prices.csv (6 %) lay outside whole numbers from 0 to 100 "
        "usd and were moved to the nearest end"
    )
    assert counted in unwrapped(result.stderr)
    assert "This count is exact and not private: keep it to yourself." in unwrapped(result.stderr)
    assert f"Warning: {MOVED}" in unwrapped(result.stdout)
    release = json.loads(Path("release.json").read_text())
    assert release["reading"] == {"clamp": True}
    assert release["warning"].startswith(MOVED)
    assert ms.Release.load("release.json").reading.clamp
    assert terminal("report", "plan.json", "release.json").exit_code == 0
    assert MOVED in unwrapped(Path("report.html").read_text())
    map_partitions = terminal("map", "release.json", "--output", "map.csv")
    assert f"Warning: {MOVED}" in unwrapped(map_partitions.stdout)


def test_no_file_tells_how_many_were_moved(terminal: Terminal, dear: Path) -> None:
    """A release of clamped values is the same document if no value was moved."""
    terminal("run", "plan.json", dear, "--column", "price", "--clamp")
    cheap = Path("cheap.csv")
    cheap.write_text(dear.read_text().replace(",900", ",7"))
    quiet = terminal(
        "run",
        "plan.json",
        cheap,
        "--column",
        "price",
        "--clamp",
        "--ledger",
        "other.ledger",
        "--output",
        "cheap.json",
    )
    assert "lay outside" not in quiet.stderr
    documents = [json.loads(Path(name).read_text()) for name in ("release.json", "cheap.json")]
    for name in ("reading", "warning", "reports", "raw_values_seen"):
        assert documents[0][name] == documents[1][name]
    assert set(documents[0]) == set(documents[1])
    assert "reading" not in json.loads(prices().run([7] * 200).to_json())


def test_a_few_are_told_without_a_warning(terminal: Terminal, dear: Path) -> None:
    Path("few.csv").write_text("price\n" + "7\n" * 199 + "101\n")
    result = terminal("run", "plan.json", "few.csv", "--column", "price", "--clamp")
    assert "\n1 of 200 values of few.csv (0.5 %) lay outside" in result.stderr
    assert "Warning" not in result.stderr


def test_randomize_counts_too(terminal: Terminal, dear: Path) -> None:
    """At the clients; what leaves is reports, as ever."""
    prices("shuffler").save("plan.json")
    words = ("randomize", "plan.json", dear, "--column", "price", "--clamp", "--output", "reports")
    assert "Warning: 12 of 200 values of prices.csv (6 %) lay outside" in unwrapped(
        terminal(*words).stderr
    )
    assert json.loads(terminal(*words, "--json").stdout)["clamped"] == 12


def test_means_of_rows_from_outside(terminal: Terminal, dear: Path) -> None:
    """--drop-outside leaves rows out; a mean outside the range is clamped and counted."""
    rows = "".join(
        f"p{person},{value}\n"
        for person in range(100)
        for value in ((900, 4) if person < 3 else (6, 8))
    )
    Path("rows.csv").write_text(f"who,price\np99,300\n{rows}")
    words = (
        "run",
        "plan.json",
        "rows.csv",
        "--column",
        "price",
        "--user-column",
        "who",
        "--per-user",
        "mean",
    )
    assert "the mean of 4 of 100 people" in terminal.refused(*words)
    result = terminal(*words, "--clamp", "--ledger", "a.ledger", "--output", "a.json")
    assert (
        "Warning: the mean of 4 of 100 people of rows.csv (4 %) lay outside whole numbers "
        "from 0 to 100 usd" in unwrapped(result.stderr)
    )
    assert (
        "4 of 201 values of rows.csv (2 %) lie outside whole numbers from 0 to 100 usd, "
        "and went into a person's mean" in unwrapped(result.stderr)
    )
    assert (
        "The mean of a person's rows outside whole numbers from 0 to 100 usd was moved"
        in unwrapped(result.stdout)
    )
    assert (
        "Everybody's value is the mean of their rows, of any outside whole numbers from 0 "
        "to 100 usd too." in unwrapped(result.stdout)
    )
    result = terminal(*words, "--drop-outside", "--ledger", "b.ledger", "--output", "b.json")
    assert "4 rows are not in numbers from 0.0 to 100.0 usd and were left out" in unwrapped(
        result.stderr
    )
    assert "a person's mean" not in result.stderr
    assert (
        "Rows outside whole numbers from 0 to 100 usd were left out, wherever there were any."
        in unwrapped(result.stdout)
    )
    assert json.loads(Path("b.json").read_text())["reading"] == {
        "drop_outside": True,
        "per_user": "mean",
    }


def test_lists_and_users_in_python() -> None:
    """What a list holds is counted like a column, in a warning of Python."""
    with pytest.warns(
        InputWarning, match=r"Warning: 2 of 50 values of the list \(4 %\) lay outside"
    ):
        release = prices().run([7] * 48 + [900, -1], clamp=True)
    assert release.warning.startswith(MOVED)
    assert release.remarks == []
    users = ms.plan(
        ms.UserHistogram(ms.users_of(ms.Space(ms.Integers(0, 5)))),
        ms.Target(2, 1e-6, 2),
        users=40,
        trusted="curator",
        protocols=["tree-laplace"],
    )
    with pytest.warns(InputWarning, match=r"1 of 80 values of the list \(1.2 %\) lay outside"):
        users.run([[1, 2]] * 39 + [[3, 9]], clamp=True)


def test_counts_of_partitions_add_up() -> None:
    """As they travel from a cluster to its driver."""
    one = RowSummary(used=10, clamped=1, people=5, clamped_people=1)
    other = RowSummary(used=90, clamped=4, averaged=2)
    one.merge(RowSummary.from_plain(json.loads(json.dumps(other.to_plain()))))
    assert (one.used, one.clamped, one.averaged, one.people, one.clamped_people) == (
        100,
        5,
        2,
        5,
        1,
    )
    assert len(one.moved_sentences("the DataFrame", ms.Integers(0, 5), "mean")) == 3
