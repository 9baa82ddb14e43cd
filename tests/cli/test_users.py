"""`metricshuffle users`: calibrate, compare and run, what they print, what they refuse, and the page they draw."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from tests.cli.conftest import Terminal

from metricshuffle.accounting.items.item_wise import ItemShuffle, ItemWiseProfile, Model
from metricshuffle.cli.users_calibrate import _down
from metricshuffle.cli.users_table import HIDES
from metricshuffle.papers.earth_mover.privacy_bounds import published_item_rate
from metricshuffle.planning.user_release import UserRelease

CALIBRATE = "users calibrate --rate 5 --delta 1e-6 --users 1000 --items 20"
COMPARE = "users compare --users 300 --items 10 --runs 3 --clusters 3 --places 3 --inner 0.1"
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
    assert terminal.typed(f"{CALIBRATE.replace('--rate', '--alpha')} --model {model} --json").stdout == result.stdout


def test_calibrate_counts_the_honest_and_knows_units(terminal: Terminal) -> None:
    honest, all_of_them, in_metres = (
        json.loads(terminal.typed(line + " --model central --json").stdout)["item_rate"]
        for line in (f"{CALIBRATE} --honest 50%", CALIBRATE, f"{CALIBRATE.replace('--rate 5', '--rate 0.005')} --diameter 1000 --unit m")
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


def test_calibrate_in_words(terminal: Terminal) -> None:
    told = terminal.typed(f"{CALIBRATE} --model central --diameter 2 --unit km").stdout
    for words in ("all 1,000 users are shuffled", "epsilon 10,", "2 km of earth mover's distance", "Replacing all of one user's items",
                  "Plain composition", "published theorem", "Certified on"):  # fmt: skip
        assert words in told
    alone = terminal.typed("users calibrate --rate 1 --delta 1e-30 --users 1 --items 1 --model central").stdout
    assert "Shuffling buys nothing here" in alone
    assert "with certainty" in alone
    assert "the shuffler included, colludes" in alone
    assert "does not apply" in alone
    # composition with a delta is more than rate/items, and is no certainty
    tiny = terminal.typed("users calibrate --rate 1e-300 --delta 1e-30 --users 9 --items 2 --model central").stdout
    assert "with certainty" not in tiny
    assert "delta 1e-30" in tiny


def test_at_delta_0_only_composition_is_left(terminal: Terminal) -> None:
    answer = json.loads(terminal.typed(f"{CALIBRATE.replace('1e-6', '0')} --model central --json").stdout)
    assert answer["item_rate"] == answer["composition_rate"]
    assert answer["published_rate"] is None
    assert answer["certified"] is True


@pytest.mark.parametrize("rate", [4.3067, 0.025, 1.9999, 600.0, 1e-31, 0.99999])
def test_item_rates_are_rounded_down(rate: float) -> None:
    assert rate * (1.0 - 1e-3) <= float(_down(rate)) <= rate * (1.0 + 1e-12)


def test_compare(terminal: Terminal) -> None:
    result = terminal.typed(f"{COMPARE} --epsilon 2 --json")
    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout)
    nothing, relaxed = answer["comparisons"]
    assert (nothing["rate"], relaxed["rate"]) == (2.0, 20.0)
    assert "Nothing was relaxed" in nothing["sentences"][-1]
    assert "What was relaxed" in relaxed["sentences"][-1]
    for one in answer["comparisons"]:
        kinds = {(method["model"], method["hides"]) for method in one["methods"]}
        assert {(model, hides) for model in ("central", "local") for hides in ("user", "earth mover")} <= kinds
        assert ("local", "published") in kinds
        for model in ("central", "local"):
            best = {hides: min(m["error"] for m in one["methods"] if (m["model"], m["hides"]) == (model, hides)) for hides in HIDES
                    if (model, hides) in kinds}  # fmt: skip
            assert one["gain"][model] == pytest.approx(best["user"] / best["earth mover"])
    assert relaxed["gain"]["central"] > 2.0 * nothing["gain"]["central"]


def test_compare_in_words_and_as_a_page(terminal: Terminal) -> None:
    result = terminal.typed(f"{COMPARE.replace('10', '5')} --rate 3 --alpha 7 --plot page.html")
    assert result.exit_code == 0, result.output
    assert result.stdout.count("Rate ") == 2
    for words in ("Rate 3 beside epsilon 1", "published, not certified", "any replacement", "What was relaxed: replacing all of a user's"):
        assert words in result.stdout
    page = (terminal.folder / "page.html").read_text()
    assert page.startswith("<!DOCTYPE html>")
    assert page.count('<svg class="chart"') == page.count("<section") == 2
    assert "3 clusters of 3 places" in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    for link in ("https://", "<script", "<link", " src="):
        assert link not in page


def test_one_user_is_no_users(terminal: Terminal) -> None:
    told = terminal.typed(f"{COMPARE.replace('300', '1')} --rate 3").stdout
    assert "1 user, " in told
    assert "1 users" not in told


@pytest.mark.parametrize("where", ["--column x --column y --coordinates points", "--column x --column y --coordinates points --side 100"])
def test_compare_real_users(terminal: Terminal, visits: Path, where: str) -> None:
    result = terminal.typed(f"users compare --csv {visits.name} --user-column who {where} --levels 2 --items 3 --runs 2")
    assert result.exit_code == 0, result.output
    assert "60 users" in result.stdout
    assert "each draws 3 of hers" in result.stdout
    assert "Laplace on every level" in result.stdout


def test_compare_places(terminal: Terminal, visits: Path) -> None:
    pytest.importorskip("pyproj")
    line = f"users compare --csv {visits.name} --user-column who --column lat --column lon --levels 2 --items 3 --runs 2 --json"
    one = json.loads(terminal.typed(line).stdout)["comparisons"][0]
    assert one["unit"] == "km"
    assert one["rate"] * one["diameter"] == pytest.approx(1.0)
    assert 8.0 < one["diameter"] < 13.0  # the longer side is about 80 / 1000 degrees


WAYS = {
    "words": "--column word --labels tea,coffee,water --distance 1",
    "a table": "--column word --labels tea,coffee,water --distances d.csv --distance 1 --delta 1e-6 --flat --samples 4",
    "numbers": "--column n --low 0 --high 20 --unit cups --distance 2",
    "their mean": "--column n --low 0 --high 20 --unit cups --distance 2 --query mean",
    "squares": "--column x --column y --coordinates points --levels 2 --side 80 --unit m --distance 20 --trusted curator",
    "beyond": "--column x --column y --coordinates points --levels 2 --side 60 --unit m --distance 20 --clamp --trusted nobody",
}


@pytest.mark.parametrize("way", WAYS)
def test_run(terminal: Terminal, visits: Path, way: str) -> None:
    (terminal.folder / "d.csv").write_text("0,1,2\n1,0,1\n2,1,0\n")
    result = terminal.typed(f"users run {visits.name} --user-column who --epsilon 2 {WAYS[way]} --output release.json")
    assert result.exit_code == 0, result.output
    for words in ("from 60 users", "Replacing all of one user's items", "Hidden at epsilon 2", "saw the raw values"):
        assert words in result.stdout
    assert ("nested squares" in result.stdout) == ("--levels" in WAYS[way])
    release = UserRelease.from_json((terminal.folder / "release.json").read_text())
    assert release.users == 60
    assert release.raw_values_seen
    assert not release.unsafe_seeded
    if release.query.kind == "user-histogram":
        assert sum(release.value) == pytest.approx(1.0)


def test_run_is_near_the_truth_and_users_count_the_same(terminal: Terminal, tmp_path: Path) -> None:
    """One user with a thousand items at 20, and 99 with a single item at 0."""
    with gzip.open(tmp_path / "many.csv.gz", "wt") as stream:
        stream.write("user,n\n" + "one,20\n" * 1000 + "".join(f"{user},0\n" for user in range(99)))
    line = "users run many.csv.gz --user-column user --column n --low 0 --high 20 --epsilon 900 --distance 20 --query mean --json"
    release = UserRelease.from_json(terminal.typed(line).stdout)
    assert release.value[0] == pytest.approx(0.2, abs=0.1)
    assert release.users == 100


def test_names_of_users_stay_text(terminal: Terminal, tmp_path: Path) -> None:
    (tmp_path / "ids.csv").write_text("user,n\n7,1\n007,1\n 7 ,2\n7.0,3\n")
    release = json.loads(
        terminal.typed("users run ids.csv --user-column user --column n --low 0 --high 3 --epsilon 1 --distance 1 --json").stdout
    )
    assert release["users"] == 3


def test_help_of_the_group_and_its_commands(terminal: Terminal) -> None:
    alone = terminal.typed("users")
    assert alone.exit_code == 0
    for words in ("calibrate", "compare", "run", "earth mover"):
        assert words in alone.stdout
        assert words in terminal.typed("users --help").stdout
    assert "users" in terminal.typed("--help").stdout


RUN = "users run visits.csv --user-column who --epsilon 1 --distance 1"
POINTS = "--column x --column y --coordinates points --levels 2"
WORDS = "--column word --labels tea,coffee,water"
REFUSED = {
    "no such command": ("users release", ("No such command", "metricshuffle users --help")),
    "missing option": (f"{CALIBRATE}", ("--model", "metricshuffle users calibrate --help")),
    "unknown option": (f"{CALIBRATE} --model local --rat 1", ("--rat", "metricshuffle users calibrate --help")),
    "no model": (f"{CALIBRATE} --model shuffled", ("--model", "local, central")),
    "rate 0": (f"{CALIBRATE} --model local --rate 0", ("--rate", "greater than 0")),
    "delta 1": (f"{CALIBRATE} --model local --delta 1", ("--delta", "promises nothing")),
    "delta above 1": (f"{CALIBRATE} --model local --delta 1.5", ("--delta", "promises nothing")),
    "no items": (f"{CALIBRATE} --model local --items 0", ("--items", ">= 1")),
    "no users": (f"{CALIBRATE} --model local --users 0", ("users", ">= 1")),
    "no diameter": (f"{CALIBRATE} --model local --diameter 0", ("--diameter", "greater than 0")),
    "too honest": (f"{CALIBRATE} --model local --honest 2000", ("cannot exceed",)),
    "half a shape": (f"{CALIBRATE} --model local --clusters 3", ("--places", "all three")),
    "shape and diameter": (f"{CALIBRATE} --model local {SHAPE} --diameter 2", ("--diameter", "1 apart")),
    "bad shape": (f"{CALIBRATE} --model local --clusters 1 --places 3 --inner 0.1", ("at least 2 clusters",)),
    "too many together": (f"{CALIBRATE} --model central --users 1e12 --items 1e6", ("--users times --items must be at most 2^52",)),
    "compare delta 0": (f"{COMPARE} --delta 0", ("--delta", "strictly between")),
    "compare epsilon 0": (f"{COMPARE} --epsilon 0", ("--epsilon", "(0, 1000]")),
    "compare rate": (f"{COMPARE} --rate -1", ("--rate", "greater than 0")),
    "compare huge rate": (f"{COMPARE} --rate 1e6", ("--rate", "below 1000")),
    "one run": (f"{COMPARE} --runs 1", ("--runs", ">= 2")),
    "negative seed": (f"{COMPARE} --seed -1", ("--seed", ">= 0")),
    "levels of nobody": (f"{COMPARE} --levels 3", ("--levels", "--csv")),
    "both kinds": (f"{COMPARE} --csv visits.csv", ("--users", "invented")),
    "one column": ("users compare --csv visits.csv --user-column who --column lat", ("--column twice", "once")),
    "not a number": ("users compare --csv visits.csv --user-column who --column word --column lat", ("line 2", "'word'", "finite number")),
    "no folder": (f"{COMPARE} --plot none/p.html", ("--plot", "does not exist")),
    "nothing said": (f"{RUN} --column n", ("--low and --high", "--labels", "--levels")),
    "two things said": (f"{RUN} --column n --low 0 --high 20 --labels a,b", ("give only one of --low/--high, --labels and --levels",)),
    "numbers in squares": (f"{RUN} --column n --high 20 --levels 2", ("give only one of --low/--high, --labels and --levels",)),
    "empty words": (f"{RUN} --column word --labels ,", ("--labels ','", "empty word")),
    "one word": (f"{RUN} --column word --labels tea", ("--labels", "at least two words")),
    "no high": (f"{RUN} --column n --low 0", ("--high is missing",)),
    "low with decimals": (f"{RUN} --column n --low 0.5 --high 2", ("--low", "whole number")),
    "outside": (f"{RUN} --column n --low 0 --high 3", ("line 3", "whole numbers from 0 to 3", "--clamp", "u1")),
    "unknown word": (f"{RUN} --column word --labels tea,coffee", ("'water'", "u", "line", "not one of the labels")),
    "same word twice": (f"{RUN} --column word --labels tea,tea", ("labels must differ",)),
    "unequal sizes": (f"{RUN} --column n --low 0 --high 20 --items 2", ("user 'u0'", "holds 1 item", "exactly 2")),
    "items 0": (f"{RUN} --column n --low 0 --high 20 --items 0", ("--items", ">= 1")),
    "items and samples": (f"{RUN} --column n --low 0 --high 20 --items 2 --samples 3", ("--samples", "--items")),
    "no column": (f"{RUN} --column kcal --low 0 --high 20", ("'kcal'", "(--column)", "who, word")),
    "no user column": (f"{RUN} --user-column id --column n --low 0 --high 9", ("'id'", "(--user-column)")),
    "user column twice": (f"{RUN} --column who --labels a,b", ("--user-column",)),
    "no file": ("users run none.csv --user-column a --column b --labels x,y --epsilon 1 --distance 1", ("none.csv", "no such file")),
    "run delta 1": (f"{RUN} --column n --low 0 --high 20 --delta 1", ("delta", "[0, 1)")),
    "run epsilon": (f"{RUN} --column n --low 0 --high 20 --epsilon 5000", ("metricshuffle: epsilon must lie in (0, 1000]",)),
    "too far": (f"{RUN} --column n --low 0 --high 20 --distance 21", ("21", "at most that")),
    "run too honest": (f"{RUN} --column n --low 0 --high 20 --honest 61", ("cannot exceed users (60)",)),
    "no metric": (f"{RUN} {WORDS} --distances bad.csv", ("bad.csv", "triangle inequality", "(tea, coffee, water)", "1 + 1")),
    "one way": (f"{RUN} {WORDS} --distances oneway.csv", ("oneway.csv", "(tea, coffee) is 1", "(coffee, tea) is 2")),
    "no table": (f"{RUN} {WORDS} --distances nofile", ("cannot read nofile: there is no such file",)),
    "small table": (f"{RUN} --column word --labels tea,coffee --distances good.csv", ("good.csv", "3 rows of 3 numbers", "2 words")),
    "distances alone": (f"{RUN} --column n --low 0 --high 20 --distances bad.csv", ("--distances", "--labels")),
    "wrong distances": (f"{RUN} --column word --labels tea,coffee,water --distances words.csv", ("--distances words.csv", "line 1")),
    "nothing fits": (f"{RUN} {WORDS} --distances twins.csv", ("no way keeps", "item-wise")),
    "no side": (f"{RUN} {POINTS}", ("--side",)),
    "no box": (f"{RUN} --column lat --column lon --levels 3", ("--box", "public")),
    "box for points": (f"{RUN} {POINTS} --box 1 1 2 2", ("--box", "--side")),
    "side for places": (f"{RUN} --column lat --column lon --levels 3 --side 3", ("--side", "--box")),
    "side alone": (f"{RUN} --column n --low 0 --high 9 --side 3 --coordinates points", ("--side", "--levels")),
    "negative side": (f"{RUN} {POINTS} --side -3", ("side", "> 0")),
    "too deep": (f"{RUN} {POINTS.replace('2', '13')} --side 80", ("levels", "1 to 12")),
    "point outside": (f"{RUN} {POINTS} --side 5", ("line", "not within", "--clamp")),
    "one column for squares": (f"{RUN} --column x --coordinates points --levels 2 --side 80", ("--column twice",)),
    "two columns for numbers": (f"{RUN} --column n --column x --low 0 --high 20", ("--column once", "twice")),
    "unknown trust": (f"{RUN} --column n --low 0 --high 20 --trusted me", ("--trusted", "nobody, shuffler, curator")),
    "unknown query": (f"{RUN} --column n --low 0 --high 20 --query median", ("--query", "histogram, mean")),
    "mean of words": (f"{RUN} --column word --labels tea,coffee,water --query mean", ("labels have no mean; ask for a histogram",)),
    "over the input": (f"{RUN} --column n --low 0 --high 20 --output visits.csv", ("--output", "also the input")),
    "nowhere to write": (f"{RUN} --column n --low 0 --high 20 --output none/r.json", ("--output", "does not exist")),
    "nameless": ("users run nameless.csv --user-column who --column n --low 0 --high 9 --epsilon 1 --distance 1", ("line 3", "no user")),
}  # fmt: skip


@pytest.mark.parametrize(("line", "told"), REFUSED.values(), ids=REFUSED)
def test_bad_input(terminal: Terminal, visits: Path, line: str, told: tuple[str, ...]) -> None:
    for name, text in (
        ("bad", "0,1,5\n1,0,1\n5,1,0\n"),
        ("good", "0,1,2\n1,0,1\n2,1,0\n"),
        ("oneway", "0,1,2\n2,0,1\n2,1,0\n"),
        ("twins", "0,0,1\n0,0,1\n1,1,0\n"),
        ("words", "a,b\n"),
        ("nameless", "who,n\na,1\n,2\n"),
    ):
        (terminal.folder / f"{name}.csv").write_text(text)
    wanted = "" if "--output" in line or not line.startswith("users run") else " --output out.json"
    sentence = terminal.refused(*(line + wanted).split())
    for part in told:
        assert part in sentence
    assert "closure" not in sentence
