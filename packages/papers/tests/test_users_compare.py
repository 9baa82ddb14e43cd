"""`metricshuffle users compare`: text, JSON, page and errors, for invented and real users."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.conftest import Terminal

from metricshuffle_papers.cli.users_table import HIDES

COMPARE = "users compare --users 300 --items 10 --runs 3 --clusters 3 --places 3 --inner 0.1"


def test_compare(terminal: Terminal) -> None:
    result = terminal.typed(f"{COMPARE} --epsilon 2 --json")
    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout)
    nothing, relaxed = answer["comparisons"]
    assert (nothing["rate"], relaxed["rate"]) == (2.0, 20.0)
    assert "Nothing was relaxed" in nothing["sentences"][-1]
    assert "What was relaxed" in relaxed["sentences"][-1]
    for comparison in answer["comparisons"]:
        kinds = {(method["model"], method["hides"]) for method in comparison["methods"]}
        assert {
            (model, hides) for model in ("central", "local") for hides in ("user", "earth mover")
        } <= kinds
        assert ("local", "published") in kinds
        for model in ("central", "local"):
            best = {
                hides: min(
                    m["error"]
                    for m in comparison["methods"]
                    if (m["model"], m["hides"]) == (model, hides)
                )
                for hides in HIDES
                if (model, hides) in kinds
            }
            assert comparison["gain"][model] == pytest.approx(best["user"] / best["earth mover"])
    assert relaxed["gain"]["central"] > 2.0 * nothing["gain"]["central"]


def test_compare_in_words_and_as_a_page(terminal: Terminal) -> None:
    result = terminal.typed(f"{COMPARE.replace('10', '5')} --rate 3 --alpha 7 --plot page.html")
    assert result.exit_code == 0, result.output
    assert result.stdout.count("Rate ") == 2
    for words in (
        "Rate 3 beside epsilon 1",
        "published, not certified",
        "any replacement",
        "What was relaxed: replacing all of a user's",
    ):
        assert words in result.stdout
    page = (terminal.folder / "page.html").read_text()
    assert page.startswith("<!DOCTYPE html>")
    assert page.count('<svg class="chart"') == 2 * page.count("<section") == 4  # wide and narrow
    assert "3 clusters of 3 places" in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    for link in ("https://", "<script", "<link", " src="):
        assert link not in page


def test_one_user_is_no_users(terminal: Terminal) -> None:
    told = terminal.typed(f"{COMPARE.replace('300', '1')} --rate 3").stdout
    assert "1 user, " in told
    assert "1 users" not in told


@pytest.mark.parametrize(
    "where",
    [
        "--column x --column y --coordinates points",
        "--column x --column y --coordinates points --side 100",
    ],
)
def test_compare_real_users(terminal: Terminal, visits: Path, where: str) -> None:
    result = terminal.typed(
        f"users compare --csv {visits.name} --user-column who {where} --levels 2 --items 3 --runs 2"
    )
    assert result.exit_code == 0, result.output
    assert "60 users" in result.stdout
    assert "each draws 3 of hers" in result.stdout
    assert "Laplace on every level" in result.stdout


def test_compare_places(terminal: Terminal, visits: Path) -> None:
    pytest.importorskip("pyproj")
    line = (
        f"users compare --csv {visits.name} --user-column who --column lat --column lon "
        "--levels 2 --items 3 --runs 2 --json"
    )
    comparison = json.loads(terminal.typed(line).stdout)["comparisons"][0]
    assert comparison["unit"] == "m"
    assert comparison["rate"] * comparison["diameter"] == pytest.approx(1.0)
    assert 8_000.0 < comparison["diameter"] < 13_000.0  # the longer side is about 80 / 1000 degrees


def test_units_of_places(terminal: Terminal, visits: Path) -> None:
    pytest.importorskip("pyproj")
    compare = (
        f"users compare --csv {visits.name} --user-column who --column lat --column lon "
        "--levels 2 --runs 2 --rate 0.01"
    )
    assert "say --unit m or --unit km" in terminal.refused(*compare.split())
    assert "m (the default) or km for places" in " ".join(
        terminal.typed("users compare --help").stdout.replace("│", " ").split()
    )


def test_the_command_is_in_the_help_of_its_group(terminal: Terminal) -> None:
    assert "compare" in terminal.typed("users --help").stdout


REFUSED = {
    "compare delta 0": (f"{COMPARE} --delta 0", ("--delta", "strictly between")),
    "compare epsilon 0": (f"{COMPARE} --epsilon 0", ("--epsilon", "(0, 1000]")),
    "compare rate": (f"{COMPARE} --rate -1", ("--rate", "greater than 0")),
    "compare huge rate": (f"{COMPARE} --rate 1e6", ("--rate", "below 1000")),
    "one run": (f"{COMPARE} --runs 1", ("--runs", ">= 2")),
    "negative seed": (f"{COMPARE} --seed -1", ("--seed", ">= 0")),
    "levels of nobody": (f"{COMPARE} --levels 3", ("--levels", "--csv")),
    "both kinds": (f"{COMPARE} --csv visits.csv", ("--users", "invented")),
    "one column": (
        "users compare --csv visits.csv --user-column who --column lat",
        ("--column twice", "once"),
    ),
    "not a number": (
        "users compare --csv visits.csv --user-column who --column word --column lat",
        ("line 2", "'word'", "finite number"),
    ),
    "no folder": (f"{COMPARE} --plot none/p.html", ("--plot", "does not exist")),
}


@pytest.mark.parametrize("name", REFUSED)
def test_wrong_input_is_told_in_a_sentence(terminal: Terminal, visits: Path, name: str) -> None:
    line, words = REFUSED[name]
    told = terminal.refused(*line.split())
    assert all(word in told for word in words), told
