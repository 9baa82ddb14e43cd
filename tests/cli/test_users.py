"""Users with many items: calibrate, plans and runs of histograms and means, and errors."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from tests.cli.conftest import Terminal
from tests.tables import check_all

from metricshuffle import Plan, Release
from metricshuffle.accounting.user_items.item_reports import ItemShuffle, ItemWiseProfile, Model
from metricshuffle.accounting.user_items.published_rate import published_item_rate
from metricshuffle.cli.users_commands import _round_down_text

CALIBRATE = "users calibrate --rate 5 --delta 1e-6 --users 1000 --items 20"
SHAPE = "--clusters 3 --places 3 --inner 0.1"


@pytest.mark.parametrize("model", ["local", "central"])
def test_calibrate_as_json(terminal: Terminal, model: Model) -> None:
    result = terminal.typed(f"{CALIBRATE} --model {model} --json")
    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout)
    assert list(answer)[:4] == ["item_rate", "certified", "composition_rate", "published_rate"]
    assert answer["certified"] is True
    assert answer["composition_rate"] == pytest.approx(0.25, rel=1e-9)
    assert answer["item_rate"] >= answer["composition_rate"]
    assert answer["published_rate"] == published_item_rate(5.0, 1e-6, 1000, 20, model)
    profile = ItemWiseProfile(answer["item_rate"], ItemShuffle.of(model, 1000, 20))
    assert profile.certificate(5.0, 1e-6).kept
    assert answer["certificate"]["worst_delta"] <= 1e-6
    assert (
        terminal.typed(f"{CALIBRATE.replace('--rate', '--alpha')} --model {model} --json").stdout
        == result.stdout
    )


def test_calibrate_counts_the_honest_and_knows_units(terminal: Terminal) -> None:
    honest, all_of_them, in_metres = (
        json.loads(terminal.typed(line + " --model central --json").stdout)["item_rate"]
        for line in (
            f"{CALIBRATE} --honest 50%",
            CALIBRATE,
            f"{CALIBRATE.replace('--rate 5', '--rate 0.005')} --diameter 1000 --unit m",
        )
    )
    assert honest < all_of_them
    assert in_metres == pytest.approx(all_of_them / 1000, rel=1e-4)


def test_calibrate_for_one_randomizer(terminal: Terminal) -> None:
    any_one, clustered = (
        json.loads(terminal.typed(f"{CALIBRATE} --model local {shape} --json").stdout)
        for shape in ("", "--clusters 4 --places 4 --inner 0.05")
    )
    assert clustered["item_rate"] > any_one["item_rate"]
    assert clustered["certificate"]["bound"] == "blanket flow"


def test_a_rate_beyond_all_doubles_is_no_traceback(terminal: Terminal) -> None:
    result = terminal.typed(
        "users calibrate --rate 1e308 --diameter 1e10 --delta 1e-12 --users 1000 --items "
        "20 --model central"
    )
    assert (result.exit_code, "is NOT hidden" in " ".join(result.stdout.split())) == (0, True), (
        result.output
    )


def test_calibrate_in_words(terminal: Terminal) -> None:
    told = terminal.typed(f"{CALIBRATE} --model central --diameter 2 --unit km").stdout
    for words in (
        "all 1,000 users are shuffled",
        "epsilon 10,",
        "2 km of earth mover's distance",
        "Replacing all of one user's items",
        "Plain composition",
        "published theorem",
        "Certified on",
    ):
        assert words in told
    alone = terminal.typed(
        "users calibrate --rate 1 --delta 1e-30 --users 1 --items 1 --model central"
    ).stdout
    assert "Shuffling buys nothing here" in alone
    assert "with certainty" in alone
    assert "the shuffler included, colludes" in alone
    assert "does not apply" in alone
    # composition with a delta is more than rate/items, and is no certainty
    tiny = terminal.typed(
        "users calibrate --rate 1e-300 --delta 1e-30 --users 9 --items 2 --model central"
    ).stdout
    assert "with certainty" not in tiny
    assert "delta 1e-30" in tiny


def test_at_delta_0_only_composition_is_left(terminal: Terminal) -> None:
    answer = json.loads(
        terminal.typed(f"{CALIBRATE.replace('1e-6', '0')} --model central --json").stdout
    )
    assert answer["item_rate"] == answer["composition_rate"]
    assert answer["published_rate"] is None
    assert answer["certified"] is True


@check_all("rate", [4.3067, 0.025, 1.9999, 600.0, 1e-31, 0.99999])
def test_item_rates_are_rounded_down(rate: float) -> None:
    assert rate * (1.0 - 1e-3) <= float(_round_down_text(rate)) <= rate * (1.0 + 1e-12)


WAYS = {
    "words": ("user-histogram --labels tea,coffee,water --distance 1 --delta 0", "--column word"),
    "a table": (
        "user-histogram --labels tea,coffee,water --distances d.csv --distance 1 --delta "
        "1e-6 --flat --samples 4",
        "--column word",
    ),
    "numbers": (
        "user-histogram --low 0 --high 20 --unit cups --distance 2 --delta 0",
        "--column n",
    ),
    "their mean": ("user-mean --low 0 --high 20 --unit cups --distance 2 --delta 0", "--column n"),
    "cells": (
        "user-histogram --width 2 --height 2 --cell 40 --unit m --distance 40 --delta 0",
        "--column x --column y --coordinates points",
    ),
    "squares": (
        "user-histogram --levels 2 --side 80 --unit m --distance 20 --delta 0 --trusted curator",
        "--column x --column y --coordinates points",
    ),
    "beyond": (
        "user-histogram --levels 2 --side 60 --unit m --distance 20 --delta 0 --trusted nobody",
        "--column x --column y --coordinates points --clamp",
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_plan_and_run(terminal: Terminal, visits: Path, way: str) -> None:
    """Words, numbers, cells and squares, with the cost of replacing all items."""
    (terminal.folder / "d.csv").write_text("0,1,2\n1,0,1\n2,1,0\n")
    asked, columns = WAYS[way]
    made = terminal.typed(f"plan --query {asked} --epsilon 2 --users 60 --save plan.json --explain")
    assert made.exit_code == 0, made.output
    assert "Replacing all of one user's items" in made.stdout
    result = terminal.typed(
        f"run plan.json {visits.name} --user-column who {columns} --output release.json"
    )
    assert result.exit_code == 0, result.output
    for words in (
        "from 60 users",
        "Replacing all of one user's items",
        "Hidden at epsilon 2",
        "saw the raw values",
    ):
        assert words in result.stdout
    assert ("nested squares" in result.stdout) == ("--levels" in asked)
    assert "Every row counted as another person" not in result.stderr
    release = Release.load(str(terminal.folder / "release.json"))
    assert release.reports == 60
    assert release.raw_values_seen
    assert not release.unsafe_seeded
    if release.query.kind == "user-histogram":
        assert sum(release.value["share"]) == pytest.approx(1.0)


def test_every_user_counts_the_same(terminal: Terminal, tmp_path: Path) -> None:
    """One user with a thousand items at 20, and 99 with a single item at 0."""
    with gzip.open(tmp_path / "many.csv.gz", "wt") as stream:
        stream.write("user,n\n" + "one,20\n" * 1000 + "".join(f"{user},0\n" for user in range(99)))
    terminal.typed(
        "plan --query user-mean --low 0 --high 20 --epsilon 900 --distance 20 --delta 0 "
        "--users 100 --save plan.json"
    )
    release = Release.from_json(
        terminal.typed("run plan.json many.csv.gz --user-column user --column n --json").stdout
    )
    assert release.value == pytest.approx(0.2, abs=0.1)
    assert release.reports == 100


def test_places_are_in_metres_unless_told_otherwise(terminal: Terminal, visits: Path) -> None:
    """Squares on a map use m, or km on request; what looks like km is rejected."""
    pytest.importorskip("pyproj")
    line = (
        "plan --query user-histogram --levels 2 --box 41.9 -72.1 42.1 -71.9 --epsilon 1 "
        "--delta 0 --users 60 --json --distance"
    )
    left_out, kilometres = (
        Plan.from_json(terminal.typed(f"{line} {far}").stdout) for far in ("2000", "2 --unit km")
    )
    assert (left_out.query.unit, kilometres.query.unit) == ("m", "km")
    assert left_out.query.diameter == pytest.approx(1000.0 * kilometres.query.diameter)
    told = terminal.refused(*f"{line} 2".split())
    assert "--distance 2 is 2 m: with --box and --levels distances are in metres" in told
    assert "Give --distance 2000, or --unit km." in told
    left_out.save(str(terminal.folder / "plan.json"))
    rows = json.loads(
        terminal.typed(
            f"run plan.json {visits.name} --user-column who --column lat --column lon --json"
        ).stdout
    )["value"]
    assert all(41.89 < row["south"] < row["north"] < 42.11 for row in rows)


def test_what_did_not_apply_is_told(terminal: Terminal) -> None:
    """--explain says why shuffled item-wise reports are not offered without a delta."""
    line = (
        "plan --query user-histogram --low 0 --high 20 --epsilon 1 --distance 1 --users 60 "
        "--explain --delta"
    )
    for more, told in (("0", ("a delta above 0",)), ("1e-6", ("number of items", "draw"))):
        (why,) = (
            row
            for row in terminal.typed(f"{line} {more}").stdout.splitlines()
            if "Not offered: item-wise" in row
        )
        assert all(words in why for words in told), why
    for more in ("1e-6 --draw auto", "1e-6 --samples 3"):
        only = terminal.typed(f"{line} {more} --protocol item-wise").stdout
        assert "item-wise" in only
        assert "Not offered: item-wise" not in only


def test_help_of_the_group_and_its_commands(terminal: Terminal) -> None:
    alone = terminal.typed("users")
    assert alone.exit_code == 0
    for words in ("calibrate", "earth mover"):
        assert words in alone.stdout
        assert words in terminal.typed("users --help").stdout
    assert "users" in terminal.typed("--help").stdout


ASK = "plan --users 60 --epsilon 1 --delta 0 --distance 1 --query user-histogram"
WORDS = "--labels tea,coffee,water"
REFUSED = {
    "no such command": ("users release", ("No such command", "metricshuffle users --help")),
    "missing option": (f"{CALIBRATE}", ("--model", "metricshuffle users calibrate --help")),
    "unknown option": (
        f"{CALIBRATE} --model local --rat 1",
        ("--rat", "metricshuffle users calibrate --help"),
    ),
    "no model": (f"{CALIBRATE} --model shuffled", ("--model", "local, central")),
    "rate 0": (f"{CALIBRATE} --model local --rate 0", ("--rate", "greater than 0")),
    "delta 1": (f"{CALIBRATE} --model local --delta 1", ("--delta", "guarantees nothing")),
    "delta above 1": (f"{CALIBRATE} --model local --delta 1.5", ("--delta", "guarantees nothing")),
    "no items": (f"{CALIBRATE} --model local --items 0", ("--items", ">= 1")),
    "no users": (f"{CALIBRATE} --model local --users 0", ("users", ">= 1")),
    "no diameter": (f"{CALIBRATE} --model local --diameter 0", ("--diameter", "greater than 0")),
    "too honest": (f"{CALIBRATE} --model local --honest 2000", ("cannot exceed",)),
    "half a shape": (f"{CALIBRATE} --model local --clusters 3", ("--places", "all three")),
    "shape and diameter": (
        f"{CALIBRATE} --model local {SHAPE} --diameter 2",
        ("--diameter", "1 apart"),
    ),
    "bad shape": (
        f"{CALIBRATE} --model local --clusters 1 --places 3 --inner 0.1",
        ("at least 2 clusters",),
    ),
    "too many together": (
        f"{CALIBRATE} --model central --users 1e12 --items 1e6",
        ("--users times --items must be at most 2^52",),
    ),
    "nothing said": (ASK, ("--low and --high", "--labels", "--cell", "--levels")),
    "two things said": (
        f"{ASK} --low 0 --high 20 --labels a,b",
        ("give only one of --low/--high, --labels, --cell and --levels",),
    ),
    "numbers in squares": (
        f"{ASK} --high 20 --levels 2",
        ("give only one of --low/--high, --labels, --cell and --levels",),
    ),
    "empty words": (f"{ASK} --labels ,", ("--labels ','", "empty word")),
    "one word": (f"{ASK} --labels tea", ("--labels", "at least two")),
    "no high": (f"{ASK} --low 0", ("--high is missing",)),
    "low with decimals": (f"{ASK} --low 0.5 --high 2", ("--low", "whole number")),
    "same word twice": (f"{ASK} --labels tea,tea", ("labels must differ",)),
    "items 0": (f"{ASK} --low 0 --high 20 --items 0", ("--items", ">= 1")),
    "more drawn than held": (
        f"{ASK} --low 0 --high 20 --items 2 --draw 3 --without-replacement",
        ("--draw", "at most the 2"),
    ),
    "unequal numbers, each drawn once": (
        f"{ASK} --low 0 --high 20 --draw 3 --without-replacement",
        ("--without-replacement", "one public number", "--items"),
    ),
    "plan delta 1": (f"{ASK} --low 0 --high 20 --delta 1", ("delta", "[0, 1)")),
    "plan epsilon": (
        f"{ASK} --low 0 --high 20 --epsilon 5000",
        ("metricshuffle: --epsilon must lie in (0, 1000]",),
    ),
    "too far": (f"{ASK} --low 0 --high 20 --distance 21", ("21", "at most that")),
    "too many honest": (f"{ASK} --low 0 --high 20 --honest 61", ("cannot exceed users (60)",)),
    "no metric": (
        f"{ASK} {WORDS} --distances bad.csv",
        ("bad.csv", "triangle inequality", "(tea, coffee, water)", "1 + 1"),
    ),
    "one way": (
        f"{ASK} {WORDS} --distances oneway.csv",
        ("oneway.csv", "(tea, coffee) is 1", "(coffee, tea) is 2"),
    ),
    "no table": (
        f"{ASK} {WORDS} --distances nofile",
        ("cannot read nofile: there is no such file",),
    ),
    "small table": (
        f"{ASK} --labels tea,coffee --distances good.csv",
        ("good.csv", "3 rows of 3 numbers", "2 words"),
    ),
    "distances alone": (
        f"{ASK} --low 0 --high 20 --distances bad.csv",
        ("--distances", "--labels"),
    ),
    "wrong distances": (
        f"{ASK} {WORDS} --distances words.csv",
        ("--distances words.csv", "line 1"),
    ),
    "nothing fits": (
        f"{ASK} {WORDS} --distances twins.csv",
        ("no protocol keeps this target here", "item-wise"),
    ),
    "no side": (f"{ASK} --levels 2", ("--side", "--box", "public")),
    "box and side": (f"{ASK} --levels 2 --side 3 --box 1 1 2 2", ("--box", "--side")),
    "side alone": (f"{ASK} --low 0 --high 9 --side 3", ("--side belongs to --levels",)),
    "width alone": (f"{ASK} {WORDS} --width 3", ("--width belongs to --cell",)),
    "box alone": (
        f"{ASK} --low 0 --high 9 --box 1 1 2 2",
        ("--box belongs to --cell or --levels",),
    ),
    "height of squares": (f"{ASK} --levels 2 --side 3 --height 3", ("--height belongs to --cell",)),
    "side of a grid": (
        f"{ASK} --width 2 --height 2 --cell 3 --side 3",
        ("--side belongs to --levels",),
    ),
    "negative side": (f"{ASK} --levels 2 --side -3", ("side", "> 0")),
    "too deep": (f"{ASK} --levels 13 --side 80", ("levels", "1 to 12")),
    "unknown trust": (
        f"{ASK} --low 0 --high 20 --trusted me",
        ("--trusted", "nobody, shuffler, aggregator, curator"),
    ),
    "unknown query": (
        f"{ASK} --low 0 --high 20 --query median",
        ("--query", "user-histogram, user-mean"),
    ),
    "mean of words": (
        f"{ASK} {WORDS} --query user-mean",
        ("--labels does not belong to --query user-mean",),
    ),
    "nowhere to write": (
        f"{ASK} --low 0 --high 20 --save none/r.json",
        ("--save", "does not exist"),
    ),
    "granularity of items": (f"{ASK} --low 0 --high 20 --granularity 2", ("granularity",)),
}
RUN = "run plan.json visits.csv --user-column who"
REFUSED_RUNS = {
    "outside": (
        "--low 0 --high 3 --distance 1",
        f"{RUN} --column n",
        ("line 3", "whole numbers from 0 to 3", "--clamp"),
    ),
    "unknown word": (
        "--labels tea,coffee --distance 1",
        f"{RUN} --column word",
        ("'water'", "line", "not one of the labels"),
    ),
    "unequal sizes": (
        "--low 0 --high 20 --items 2 --distance 1",
        f"{RUN} --column n",
        ("'u0'", "with 1", "exactly 2 items"),
    ),
    "no column": (
        "--low 0 --high 20 --distance 1",
        f"{RUN} --column kcal",
        ("'kcal'", "(--column)", "who, word"),
    ),
    "no user column": (
        "--low 0 --high 20 --distance 1",
        f"{RUN.replace('who', 'id')} --column n",
        ("'id'", "(--user-column)"),
    ),
    "user column twice": ("--labels a,b --distance 1", f"{RUN} --column who", ("--user-column",)),
    "no file": (
        "--low 0 --high 20 --distance 1",
        "run plan.json none.csv --user-column who --column n",
        ("none.csv", "no such file"),
    ),
    "point outside": (
        "--levels 2 --side 5 --distance 1",
        f"{RUN} --column x --column y --coordinates points",
        ("line 2", "not in the plane of the grid", "--clamp"),
    ),
    "places of points": (
        "--levels 2 --side 80 --distance 20",
        f"{RUN} --column lat --column lon --coordinates places",
        ("--box",),
    ),
    "one column for squares": (
        "--levels 2 --side 80 --distance 20",
        f"{RUN} --column x --coordinates points",
        ("two columns",),
    ),
    "two columns for numbers": (
        "--low 0 --high 20 --distance 1",
        f"{RUN} --column n --column x",
        ("one column", "got 2"),
    ),
    "over the input": (
        "--low 0 --high 20 --distance 1",
        f"{RUN} --column n --output visits.csv",
        ("--output", "also the input"),
    ),
    "nowhere to write": (
        "--low 0 --high 20 --distance 1",
        f"{RUN} --column n --output none/r.json",
        ("--output", "does not exist"),
    ),
    "nameless": (
        "--low 0 --high 9 --distance 1",
        "run plan.json nameless.csv --user-column who --column n",
        ("line 3", "no user"),
    ),
}


@pytest.mark.parametrize(("asked", "line", "told"), REFUSED_RUNS.values(), ids=REFUSED_RUNS)
def test_rows_that_do_not_fit_the_plan(
    terminal: Terminal, visits: Path, asked: str, line: str, told: tuple[str, ...]
) -> None:
    """Values, columns and files that a plan for users cannot take, each told by name and line."""
    (terminal.folder / "nameless.csv").write_text("who,n\na,1\n,2\n")
    made = terminal.typed(
        f"plan --query user-histogram {asked} --users 60 --epsilon 1 --delta 0 --trusted "
        "nobody --save plan.json"
    )
    assert made.exit_code == 0, made.output
    wanted = "" if "--output" in line else " --output out.json"
    sentence = terminal.refused(*(line + wanted).split())
    for part in told:
        assert part in sentence


@pytest.mark.parametrize(("line", "told"), REFUSED.values(), ids=REFUSED)
def test_bad_input(terminal: Terminal, visits: Path, line: str, told: tuple[str, ...]) -> None:
    for name, text in (
        ("bad", "0,1,5\n1,0,1\n5,1,0\n"),
        ("good", "0,1,2\n1,0,1\n2,1,0\n"),
        ("oneway", "0,1,2\n2,0,1\n2,1,0\n"),
        ("twins", "0,0,1\n0,0,1\n1,1,0\n"),
        ("words", "a,b\n"),
    ):
        (terminal.folder / f"{name}.csv").write_text(text)
    sentence = terminal.refused(*line.split())
    for part in told:
        assert part in sentence
    assert "closure" not in sentence
