"""`amplify --randomizer channel` accounts for the rounded matrix and says so if it differs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.conftest import Terminal

ONE_USER = "amplify --randomizer channel --matrix m.csv --users 1 --delta 1e-40"
SMALLEST = 2.0**-63


def write(folder: Path, text: str) -> None:
    (folder / "m.csv").write_text(text)


def test_the_text_says_which_entry_changed_and_what_the_numbers_are_about(
    terminal: Terminal, tmp_path: Path
) -> None:
    write(tmp_path, "1,1e-25\n1,1e-30\n")
    for more in ("", " --pair 1 0", " --plot page.html"):
        told = terminal.typed(ONE_USER + more).stdout
        assert (
            "row 1, column 1 (counting from 0) is 1e-30 as typed and 1.0842e-19 after that" in told
        )
        assert "The rounded matrix is sampled here, and the numbers hold for it" in told
    assert "rounded to multiples of 2^-63" in (tmp_path / "page.html").read_text()
    assert (
        "rounded to multiples"
        in terminal.typed(ONE_USER.replace("--delta 1e-40", "--epsilon 0.1")).stdout
    )


def test_json_has_two_more_fields(terminal: Terminal, tmp_path: Path) -> None:
    write(tmp_path, "1,1e-25\n1,1e-30\n")
    answer = json.loads(terminal.typed(ONE_USER + " --json").stdout)
    assert answer["rounded"] is True
    assert answer["largest_relative_change"] == pytest.approx(SMALLEST / 1e-30)
    assert set(answer) == {
        "upper",
        "lower",
        "bound",
        "evaluator",
        "attained",
        "rounded",
        "largest_relative_change",
    }


@pytest.mark.parametrize(
    ("text", "change"),
    [
        ("0.5,0.3,0.2\n0,0.7,0.3\n", None),
        ("0.3333333333,0.3333333333,0.3333333334\n0.2,0.3,0.5\n", None),
        ("0.999999999,1e-9\n0.99999999,1e-8\n", None),  # multiples of 2^-63 are that fine
        ("0.999999999999,1e-12\n0.5,0.5\n", 4.0e-9),
        (f"1,{1.5 * SMALLEST!r}\n0.5,0.5\n", 1 / 3),
    ],
)
def test_a_change_that_matters_is_one_of_more_than_a_billionth(
    terminal: Terminal, tmp_path: Path, text: str, change: float | None
) -> None:
    write(tmp_path, text)
    result = terminal.typed(ONE_USER.replace("--users 1 ", "--users 10 ") + " --json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout).get("largest_relative_change") == (
        None if change is None else pytest.approx(change, rel=0.01)
    )
    assert ("rounded to multiples" in terminal.typed(ONE_USER).stdout) == (change is not None)


def test_a_number_that_no_float_holds_is_refused_and_not_taken_for_0(
    terminal: Terminal, tmp_path: Path
) -> None:
    write(tmp_path, "1,0\n1,1e-400\n")
    assert "line 2: 1e-400 is too small" in terminal.refused(*ONE_USER.split())
