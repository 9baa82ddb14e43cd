"""`metricshuffle amplify`: output, errors, and the page."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Terminal
from tests.tables import check_all

from metricshuffle import randomizers
from metricshuffle.amplification.amplify import amplify
from metricshuffle.amplification.best_bound import BestBoundProfile
from metricshuffle.amplification.mixed_groups_upper import MixedGroupsProfile
from metricshuffle.cli.randomizer_options import NAMES, RANDOMIZER_OPTIONS, RandomizerOptions
from metricshuffle.errors import MissingExtra
from metricshuffle.report import amplify_page as amplify_plot

KNOWN = {
    "generic": "--local-epsilon 1",
    "krr": "--options 10 --local-epsilon 1",
    "metric": "--distance 1 --reach 2 --reach-other 1.5",
    "laplace": "--low 0 --high 10 --rate 0.1 --steps 12",
    "witch-hat": "--half-width 1 --local-epsilon 2 --rate 3 --steps 6",
    "gaussian": "--span 3 --sigma 3",
    "hadamard": "--options 8 --local-epsilon 1",
    "subset": "--options 8 --local-epsilon 1 --size 2",
    "hash": "--options 50 --local-epsilon 1 --buckets 3",
    "rappor": "--options 8 --local-epsilon 1",
    "exponential": "--distances d.csv --rate 1",
    "pem": "--low 0 --high 4 --steps 4 --rate 0.5",
    "gkrr": "--clusters 3 --leaves 4 --inner 0.25 --rate 2",
    "duchi": "--dimensions 3 --local-epsilon 1",
    "harmony": "--dimensions 70 --local-epsilon 1",
    "privset": "--options 16 --items 2 --local-epsilon 1",
    "privkv": "--keys 4 --items 1 --key-epsilon 2 --value-epsilon 1",
    "channel": "--matrix m.csv",
}
MATRIX = "0.5,0.3,0.2\n0.3,0.4,0.3\n\n0.2,0.3,0.5\n"
DISTANCES = "0,1,2\n1,0,1\n2,1,0\n"


@pytest.fixture(autouse=True)
def matrix(tmp_path: Path) -> None:
    (tmp_path / "m.csv").write_text(MATRIX)
    (tmp_path / "d.csv").write_text(DISTANCES)


def test_every_name_is_tried() -> None:
    assert tuple(KNOWN) == NAMES


@pytest.mark.parametrize("name", KNOWN)
def test_every_randomizer_answers(terminal: Terminal, name: str) -> None:
    result = terminal.typed(
        f"amplify --randomizer {name} {KNOWN[name]} --users 1e5 --delta 1e-6 --json"
    )
    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout)
    assert set(answer) == {"upper", "lower", "bound", "evaluator", "attained"}
    assert {"first", "second", "others"} <= set(answer["attained"])
    assert sum(part["count"] for part in answer["attained"]["others"]) == 10**5 - 1
    assert 0.0 < answer["lower"]["epsilon"] <= answer["upper"]["epsilon"] < 0.2
    assert answer["upper"]["delta"] == answer["lower"]["delta"] == 1e-6
    assert answer["bound"] in {"beyond-blanket", "blanket", "clones"}


LINE = [[abs(i - j) * 0.7 for j in range(4)] for i in range(4)]
BUILT = {
    "rappor --options 5 --local-epsilon 2": randomizers.Rappor(5, 2.0),
    "exponential --low 1 --high 3.1 --steps 3 --rate 2": (
        randomizers.ExponentialMechanism(LINE, 2.0)
    ),
    "pem --low 1 --high 3.1 --steps 3 --rate 2": randomizers.PaddedExponential(LINE, 2.0),
    "gkrr --clusters 2 --leaves 3 --inner 0.5 --rate 2": (
        randomizers.ClusteredResponse(2, 3, 0.5, 2.0)
    ),
    "duchi --dimensions 4 --local-epsilon 2": randomizers.Duchi(4, 2.0),
    "harmony --dimensions 4 --local-epsilon 2": randomizers.Harmony(4, 2.0),
    "privset --options 6 --items 2 --local-epsilon 2 --size 3": (
        randomizers.SubsetExponential(6, 2, 2.0, 3)
    ),
    "privkv --keys 3 --key-epsilon 2 --value-epsilon 1": randomizers.PrivKV(3, 2.0, 1.0),
}


@check_all("line", BUILT)
def test_a_name_stands_for_its_randomizer(terminal: Terminal, line: str) -> None:
    """The command's bounds are those of Python's randomizer with the same parameters."""
    result = terminal.typed(f"amplify --randomizer {line} --users 1e4 --delta 1e-6 --json")
    answer = json.loads(result.stdout)
    band = amplify(BUILT[line], 10_000).epsilon(1e-6)
    assert answer["upper"]["epsilon"] == pytest.approx(band.upper, rel=1e-12)
    assert answer["lower"]["epsilon"] == pytest.approx(band.lower, rel=1e-12)


def test_the_audited_value_of_key_values(terminal: Terminal) -> None:
    answer = json.loads(
        terminal.typed(
            f"amplify --randomizer privkv {KNOWN['privkv']} --users 1e4 --delta 1e-6 --json"
        ).stdout
    )
    assert answer["lower"]["epsilon"] == pytest.approx(0.06563, abs=5e-6)
    assert answer["upper"]["epsilon"] == pytest.approx(0.06565, abs=5e-6)


@check_all("name, lower, upper", [("pem", 0.13636, 0.13641), ("exponential", 0.05522, 0.05523)])
def test_the_audited_values_of_three_points(
    terminal: Terminal, tmp_path: Path, name: str, lower: float, upper: float
) -> None:
    (tmp_path / "three.csv").write_text("0,1,3\n1,0,2\n3,2,0\n")
    line = f"amplify --randomizer {name} --distances three.csv --rate 1 --users 1e4 --delta 1e-6"
    answer = json.loads(terminal.typed(f"{line} --json").stdout)
    assert answer["lower"]["epsilon"] == pytest.approx(lower, abs=5e-6)
    assert answer["upper"]["epsilon"] == pytest.approx(upper, abs=5e-6)


@check_all(
    "line", ["duchi --dimensions 3 --local-epsilon 1", "privset --options 4 --items 2 --size 1"]
)
def test_reports_of_two_equal_halves_are_those_of_one_bit(terminal: Terminal, line: str) -> None:
    """Half of all reports are e^epsilon times as likely as the others, as of a randomized bit."""
    words = line if "local" in line else f"{line} --local-epsilon 1"
    answer = json.loads(
        terminal.typed(f"amplify --randomizer {words} --users 1e4 --delta 1e-6 --json").stdout
    )
    bit = amplify(randomizers.KaryRandomizedResponse(2, 1.0), 10_000).epsilon(1e-6)
    for end, known, epsilon in (("lower", 0.0356588, bit.lower), ("upper", 0.0356657, bit.upper)):
        assert answer[end]["epsilon"] == pytest.approx(known, abs=1e-7)
        assert answer[end]["epsilon"] == pytest.approx(epsilon, rel=3e-4)


def test_points_of_a_table_are_those_of_a_line(terminal: Terminal) -> None:
    told = [
        json.loads(
            terminal.typed(
                f"amplify --randomizer exponential --rate 1 {points} --users 1e4 --delta 1e-6 "
                "--distance 1 --json"
            ).stdout
        )["upper"]["epsilon"]
        for points in ("--distances d.csv", "--low -1 --high 1 --steps 2")
    ]
    assert told[0] == pytest.approx(told[1], rel=1e-9)


@pytest.mark.parametrize(
    ("words", "sought"),
    [
        ("pem --low 0 --high 4 --steps 4", "rate"),
        ("gkrr --clusters 3 --leaves 4 --inner 0.25", "rate"),
        ("duchi --dimensions 3", "local-epsilon"),
        ("privset --options 16 --items 2", "local-epsilon"),
    ],
)
def test_parameters_are_searched(terminal: Terminal, words: str, sought: str) -> None:
    answer = json.loads(
        terminal.typed(
            f"amplify --randomizer {words} --users 1e4 --delta 1e-6 --target-epsilon 0.1 --json"
        ).stdout
    )
    assert answer["find"] == sought
    assert answer["epsilon"] <= 0.1
    assert answer["lower"] < answer["upper"] < 1.001 * answer["lower"]


def test_groups_of_vectors(terminal: Terminal) -> None:
    answer = json.loads(
        terminal.typed(
            "amplify --randomizer duchi --group 100:local-epsilon=1,dimensions=3 "
            "--group 5000:local-epsilon=2,dimensions=3 --delta 1e-6 --json"
        ).stdout
    )
    first, second = (group["upper"]["epsilon"] for group in answer["groups"])
    assert 0.0 < first < second < 0.2


def test_the_page_of_points_has_every_distance(terminal: Terminal) -> None:
    result = terminal.typed(
        "amplify --randomizer pem --low 0 --high 4 --steps 4 --rate 0.5 --users 1000 "
        "--delta 1e-6 --plot pem.html"
    )
    assert result.exit_code == 0, result.output
    assert (terminal.folder / "pem.html").read_text().count("<section") == 4


def test_the_other_way_round(terminal: Terminal) -> None:
    result = terminal.typed(
        f"amplify --randomizer krr --options 4 --local-epsilon {math.log(3)!r} --users 2 "
        f"--epsilon {math.log(2.4)!r} --json"
    )
    answer = json.loads(result.stdout)
    assert answer["upper"]["delta"] == pytest.approx(0.05, rel=1e-9)
    assert answer["lower"]["delta"] == pytest.approx(0.05, rel=1e-9)
    assert answer["upper"]["delta"] >= 0.05
    assert answer["upper"]["epsilon"] == answer["lower"]["epsilon"] == math.log(2.4)


def test_rate_times_distance_is_what_counts(terminal: Terminal) -> None:
    per_unit, in_steps = (
        json.loads(
            terminal.typed(
                f"amplify --randomizer metric {words} --users 1000 --delta 1e-6 --json"
            ).stdout
        )["upper"]["epsilon"]
        for words in (
            "--distance 1 --reach 3 --reach-other 2.5",
            "--rate 0.01 --distance 100 --reach 300 --reach-other 250",
        )
    )
    assert per_unit == pytest.approx(0.421853932654, rel=1e-6)
    assert in_steps == pytest.approx(per_unit, rel=1e-9)


def test_sentences(terminal: Terminal) -> None:
    told = terminal.typed(
        "amplify --randomizer krr --options 4 --local-epsilon 1 --users 1e4 --honest 90% "
        "--delta 1e-6"
    ).stdout
    assert "9,000 shuffled reports" in told
    assert "give away at least" in told
    assert (
        "buys nothing"
        in terminal.typed(
            "amplify --randomizer krr --options 4 --local-epsilon 1 --users 1 --delta 1e-6"
        ).stdout
    )
    nothing = terminal.typed(
        "amplify --randomizer krr --options 4 --local-epsilon 1 --users 1 --epsilon 0.1"
    )
    assert "buys nothing" in nothing.stdout
    assert "distance" not in told
    assert "inputs 0 and 1 when all others hold 2" in told
    covered = terminal.typed(
        "amplify --randomizer krr --options 4 --local-epsilon 1 --users 1 --delta 0.7"
    ).stdout
    assert (
        "One report alone hides any two inputs at epsilon 0, delta 0.7: delta alone suffices."
        in covered
    )
    assert (
        "distance 2"
        in terminal.typed(
            "amplify --randomizer metric --distance 2 --reach 3 --users 1e4 --delta 1e-6"
        ).stdout
    )
    assert (
        "up to delta"
        in terminal.typed(
            "amplify --randomizer generic --local-epsilon 1 --users 1e6 --epsilon 0.001"
        ).stdout
    )
    alone = json.loads(
        terminal.typed(
            "amplify --randomizer krr --options 4 --local-epsilon 1 --users 1 --delta 1e-6 --json"
        ).stdout
    )
    assert alone["bound"] == "local"


def test_one_pair_and_a_claim(terminal: Terminal) -> None:
    whole, pair = (
        json.loads(
            terminal.typed(
                f"amplify --randomizer channel --matrix m.csv {more} --users 1e5 --delta "
                "1e-6 --json"
            ).stdout
        )
        for more in ("--local-epsilon 0.92", "--pair 0 1")
    )
    assert pair["upper"]["epsilon"] < whole["upper"]["epsilon"]


BASE = "amplify --users 100 --delta 1e-6 --randomizer"
REFUSED = {
    "unknown": (
        "amplify --users 9 --delta 0.1 --randomizer piecewise",
        ("--randomizer", "generic, krr, metric", "'piecewise'"),
    ),
    "nothing asked": (
        "amplify --users 9 --randomizer generic --local-epsilon 1",
        ("--delta", "--epsilon", "not both"),
    ),
    "both asked": (
        "amplify --users 9 --randomizer generic --local-epsilon 1 --delta 0.1 --epsilon 1",
        ("not both",),
    ),
    "no users": (
        "amplify --users 0 --delta 0.1 --randomizer generic --local-epsilon 1",
        ("--users", ">= 1"),
    ),
    "users in part": (
        "amplify --users 1.5 --delta 0.1 --randomizer generic --local-epsilon 1",
        ("--users", "whole number"),
    ),
    "delta 0": (
        "amplify --users 9 --delta 0 --randomizer generic --local-epsilon 1",
        ("--delta", "(0, 1)"),
    ),
    "delta 1": (
        "amplify --users 9 --delta 1 --randomizer generic --local-epsilon 1",
        ("--delta", "(0, 1)"),
    ),
    "epsilon 0": (
        "amplify --users 9 --epsilon 0 --randomizer generic --local-epsilon 1",
        ("--epsilon", "greater than 0"),
    ),
    "no rounds": (f"{BASE} generic --local-epsilon 1 --rounds 0", ("--rounds", ">= 1")),
    "too many honest": (f"{BASE} generic --local-epsilon 1 --honest 101", ("cannot exceed",)),
    "missing": (f"{BASE} krr --local-epsilon 1", ("needs --options", "missing")),
    "not its own": (
        f"{BASE} krr --options 3 --local-epsilon 1 --reach 2",
        ("--reach does not belong", "--options, --local-epsilon"),
    ),
    "local epsilon 0": (f"{BASE} generic --local-epsilon 0", ("--local-epsilon", "greater than 0")),
    "one option": (f"{BASE} krr --options 1 --local-epsilon 1", ("--options", ">= 2")),
    "pair identical": (f"{BASE} metric --distance 0 --reach 1", ("one and the same input",)),
    "reach too small": (f"{BASE} metric --distance 2 --reach 1", ("reach", "raise it")),
    "no metric": (
        f"{BASE} metric --distance 1 --reach 5 --reach-other 2",
        ("triangle inequality",),
    ),
    "same row twice": (f"{BASE} channel --matrix m.csv --pair 1 1", ("--pair", "different")),
    "row out of range": (f"{BASE} channel --matrix m.csv --pair 0 3", ("--pair", "0 to 2")),
    "false claim": (
        f"{BASE} channel --matrix m.csv --local-epsilon 0.5",
        ("not 0.5-private", "rows 0 and 2", "0.916290731874"),
    ),
    "sums": (f"{BASE} channel --matrix sums.csv", ("sum to 1", "row 1", "1.1")),
    "words": (f"{BASE} channel --matrix words.csv", ("line 2", "not a row of numbers")),
    "ragged": (f"{BASE} channel --matrix ragged.csv", ("line 2 has 3 numbers",)),
    "one row": (f"{BASE} channel --matrix one.csv", ("at least two inputs",)),
    "not text": (f"{BASE} channel --matrix binary.csv", ("not a text file",)),
    "no file": (f"{BASE} channel --matrix nowhere.csv", ("nowhere.csv",)),
    "far": (
        f"{BASE} laplace --low 0 --high 1 --rate 1 --steps 4 --distance 2",
        ("distance", "(0, 1]"),
    ),
    "upside down": (f"{BASE} laplace --low 1 --high 0 --rate 1", ("--low must be below --high",)),
    "no users and nothing to find": (
        "amplify --delta 0.1 --randomizer generic --local-epsilon 1",
        ("--users is missing",),
    ),
    "nothing left to find": (
        f"{BASE} generic --local-epsilon 1 --target-epsilon 0.1",
        ("nothing to find", "--local-epsilon or --users"),
    ),
    "target and epsilon": (
        "amplify --users 9 --epsilon 1 --target-epsilon 1 --randomizer generic",
        ("leave --epsilon out",),
    ),
    "target without delta": (
        "amplify --users 9 --target-epsilon 1 --randomizer generic",
        ("both --target-epsilon and --delta",),
    ),
    "find without target": (
        f"{BASE} generic --find local-epsilon",
        ("both --target-epsilon and --delta",),
    ),
    "target 0": (f"{BASE} generic --target-epsilon 0", ("--target-epsilon", "greater than 0")),
    "find something else": (
        f"{BASE} generic --target-epsilon 1 --find delta",
        ("--find", "local-epsilon, rate, users"),
    ),
    "find what it has not": (
        f"{BASE} krr --options 3 --target-epsilon 1 --find rate",
        ("does not fit", "local-epsilon"),
    ),
    "find what was given": (
        f"{BASE} generic --local-epsilon 1 --target-epsilon 1 --find local-epsilon",
        ("leave it out",),
    ),
    "users to find were given": (
        f"{BASE} generic --local-epsilon 1 --target-epsilon 1 --find users",
        ("--users", "leave it out"),
    ),
    "honest among those to find": (
        "amplify --delta 1e-6 --randomizer generic --local-epsilon 1 --target-epsilon 1 "
        "--find users --honest 90%",
        ("leave --honest out",),
    ),
    "a matrix has no parameter": (
        f"{BASE} channel --matrix m.csv --target-epsilon 1 --find rate",
        ("does not fit", "matrix"),
    ),
    "two parameters are missing": (
        f"{BASE} witch-hat --half-width 1 --target-epsilon 1",
        ("needs --rate",),
    ),
    "out of reach": (
        "amplify --delta 1e-9 --randomizer generic --local-epsilon 30 --target-epsilon 1e-6",
        ("no number of honest people", "1e+13"),
    ),
    "neither table nor line": (
        f"{BASE} exponential --rate 1 --low 0",
        ("--distances FILE, or --low and --high",),
    ),
    "table and line": (
        f"{BASE} pem --rate 1 --distances d.csv --low 0 --high 1",
        ("leave --low out",),
    ),
    "too many points": (
        f"{BASE} pem --rate 1 --low 0 --high 1 --steps 512",
        ("--steps must be at most 511", "512"),
    ),
    "a table too large": (f"{BASE} pem --rate 1 --distances large.csv", ("513 points", "512")),
    "a table that is not square": (
        f"{BASE} pem --rate 1 --distances ragged-rows.csv",
        ("2 rows of 3 numbers", "a row and a column"),
    ),
    "an open triangle": (
        f"{BASE} pem --rate 1 --distances open.csv",
        ("triangle inequality", "(0, 1, 2)"),
    ),
    "a rate beyond doubles": (
        f"{BASE} exponential --rate 1000 --distances d.csv",
        ("--rate times the largest distance, 2, is at most 700", "2000"),
    ),
    "clusters of one point": (
        f"{BASE} gkrr --clusters 2 --leaves 1 --inner 0.5 --rate 1",
        ("--leaves must be a whole number >= 2",),
    ),
    "clusters too wide": (
        f"{BASE} gkrr --clusters 2 --leaves 2 --inner 1 --rate 1",
        ("--inner must be below 1",),
    ),
    "no dimension": (f"{BASE} duchi --dimensions 0 --local-epsilon 1", ("--dimensions", ">= 1")),
    "dimensions": (
        f"{BASE} harmony --dimensions 1025 --local-epsilon 1",
        ("--dimensions must lie in 1..1024",),
    ),
    "labels of everybody": (
        f"{BASE} privset --options 4 --items 4 --local-epsilon 1",
        ("--size + --items at most --options",),
    ),
    "more items than keys": (
        f"{BASE} privkv --keys 2 --items 3 --key-epsilon 1 --value-epsilon 1",
        ("1 <= --items <= --keys",),
    ),
    "too many keys": (
        f"{BASE} privkv --keys 600 --items 1 --key-epsilon 1 --value-epsilon 1",
        ("1,201 inputs are too many", "reduce --items or --keys"),
    ),
    "a key without a value": (f"{BASE} privkv --keys 2 --key-epsilon 1", ("--value-epsilon",)),
    "two parameters to find": (
        f"{BASE} privkv --keys 2 --key-epsilon 1 --value-epsilon 1 --target-epsilon 1 --find rate",
        ("does not fit --randomizer privkv", "only users."),
    ),
    "no folder": (
        f"{BASE} generic --local-epsilon 1 --plot none/p.html",
        ("--plot", "does not exist"),
    ),
}


@pytest.mark.parametrize(("line", "told"), REFUSED.values(), ids=REFUSED)
def test_bad_input(terminal: Terminal, tmp_path: Path, line: str, told: tuple[str, ...]) -> None:
    for name, text in (
        ("sums", "0.5,0.5\n0.6,0.5\n"),
        ("words", "0.5,0.5\na,b\n"),
        ("ragged", "0.5,0.5\n0.2,0.3,0.5\n"),
        ("one", "0.5,0.5\n"),
        ("ragged-rows", "0,1,1\n1,0,1\n"),
        ("open", "0,1,9\n1,0,1\n9,1,0\n"),
        ("large", "\n".join([",".join(["0"] * 513)] * 513)),
    ):
        (tmp_path / f"{name}.csv").write_text(text)
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00\x9c")
    sentence = terminal.refused(*line.split())
    for part in told:
        assert part in sentence


@pytest.mark.parametrize(
    ("words", "sections"),
    [
        ("metric --distance 1 --reach 2 --delta 1e-6", 4),
        ("krr --options 10 --local-epsilon 1 --epsilon 0.0001", 3),
    ],
)
def test_the_page_stands_alone(terminal: Terminal, words: str, sections: int) -> None:
    result = terminal.typed(f"amplify --users 1e9 --plot band.html --json --randomizer {words}")
    assert result.exit_code == 0, result.output
    page = (terminal.folder / "band.html").read_text()
    assert page.startswith("<!DOCTYPE html>")
    assert page.rstrip().endswith("</html>")
    assert page.count("<figure") == page.count("<section") == sections
    assert page.count('<svg class="chart"') == 2 * sections  # wide and narrow
    assert "http://" not in page.replace("http://www.w3.org", "")
    for link in ("https://", "<script", "<link", " src="):
        assert link not in page
    assert "1,000,000,000" in page


def test_the_page_has_the_digits_of_the_terminal(terminal: Terminal) -> None:
    words = (
        "amplify --randomizer krr --options 10 --local-epsilon 1 --users 1e4 --honest 9000 "
        "--delta 1e-6"
    )
    told = terminal.typed(f"{words} --plot band.html").stdout.strip()
    page = (terminal.folder / "band.html").read_text()
    assert told in page
    epsilon = told.split("at epsilon ")[1].split(",")[0]
    assert (
        page.count(f">{epsilon}<") >= 2
    )  # in the table over users, and where delta is shown against epsilon
    assert "Distance 1" not in page
    assert "Any two inputs, delta 1e-06." in page


def test_without_the_extra_nothing_is_computed(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(module: str, extra: str) -> None:
        raise MissingExtra(f"This needs {module}; install {extra}.")

    monkeypatch.setattr("metricshuffle.report.template_engine.require", missing)
    monkeypatch.setattr(
        RandomizerOptions, "amplification", lambda *_: pytest.fail("computed before it was refused")
    )
    for more in ("--local-epsilon 1 --users 100", "--target-epsilon 0.1 --users 100"):
        told = terminal.refused(
            *f"amplify --randomizer generic {more} --delta 1e-6 --plot p.html".split()
        )
        assert "install report" in told


@pytest.mark.parametrize(
    "words",
    [
        "krr --options 4 --local-epsilon 1 --users 1 --delta 0.7",
        "channel --matrix eye.csv --users 9 --delta 1e-6",
    ],
)
def test_a_page_without_a_curve(terminal: Terminal, tmp_path: Path, words: str) -> None:
    """epsilon 0, and none that is finite."""
    (tmp_path / "eye.csv").write_text("1,0\n0,1\n")
    result = terminal.typed(f"amplify --randomizer {words} --plot band.html")
    assert result.exit_code == 0, result.output
    assert (terminal.folder / "band.html").read_text().count("<section") == 1


def test_inverse_questions(terminal: Terminal) -> None:
    told = terminal.typed(
        "amplify --randomizer krr --options 10 --users 1e5 --honest 90% --delta 1e-6 "
        "--target-epsilon 0.01"
    ).stdout
    assert "the 90,000 shuffled reports" in told
    assert "any two inputs at epsilon 0.01, delta 1e-06" in told
    found = json.loads(
        terminal.typed(
            "amplify --randomizer krr --options 10 --users 1e5 --delta 1e-6 "
            "--target-epsilon 0.01 --json"
        ).stdout
    )
    assert found["find"] == "local-epsilon"
    assert found["certified"] == found["lower"] < found["upper"] < 1.001 * found["lower"]
    assert found["epsilon"] <= 0.01
    back = json.loads(
        terminal.typed(
            f"amplify --randomizer krr --options 10 --local-epsilon {found['lower']!r} "
            "--users 1e5 --delta 1e-6 --json"
        ).stdout
    )
    assert back["upper"]["epsilon"] == found["epsilon"]
    users = json.loads(
        terminal.typed(
            "amplify --randomizer laplace --low 0 --high 1 --rate 1 --steps 4 --delta 1e-6 "
            "--target-epsilon 0.1 --json"
        ).stdout
    )
    assert users["find"] == "users"
    assert users["certified"] == users["upper"] >= users["lower"] > 1
    assert users["refuted_by"]["others"][0]["count"] == users["lower"] - 2
    result = terminal.typed(
        "amplify --randomizer generic --users 1e4 --delta 1e-6 --target-epsilon 0.1 --plot i.html"
    )
    assert "At local epsilon" in result.stdout
    assert "10,000" in (terminal.folder / "i.html").read_text()


def test_distances_and_users_of_the_charts() -> None:
    assert amplify_plot._around(1)[0] == 1
    assert 10**6 in amplify_plot._around(10**6)
    assert max(amplify_plot._around(10**13)) == 10**13


def test_every_option_has_an_owner() -> None:
    owned = {
        option for needed, allowed in RANDOMIZER_OPTIONS.values() for option in (*needed, *allowed)
    }
    assert {"local-epsilon", "reach-other", "pair", "steps", "size", "buckets"} <= owned


@pytest.mark.parametrize("wanted", ["--delta 1e-6", "--epsilon 0.2"])
@pytest.mark.parametrize("json_too", ["", "--json"])
@pytest.mark.parametrize(
    "who",
    ["--users 200 --local-epsilon 1", "--group 100:local-epsilon=1 --group 100:local-epsilon=2"],
)
def test_no_bound_is_computed_twice(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, wanted: str, json_too: str, who: str
) -> None:
    """The sentence and the numbers come from one search for each end (of each group)."""
    asked: list[tuple[str, int, float]] = []
    for kind in (BestBoundProfile, MixedGroupsProfile):
        for name in ("epsilon_winner", "delta_winner"):
            search = getattr(kind, name)

            def counted(
                self: object, value: float, distance: float, search: Any = search, name: str = name
            ) -> object:
                asked.append((name, id(self), value))
                return search(self, value, distance)

            monkeypatch.setattr(kind, name, counted)
    assert (
        terminal.typed(f"amplify --randomizer krr --options 10 {wanted} {who} {json_too}").exit_code
        == 0
    )
    assert len(asked) == (1 if "--users" in who else 2)
    assert len(asked) == len(set(asked))
