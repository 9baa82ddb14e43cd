"""Output of plan outside its table: advice, hidden candidates, and distances of values."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

SUM = "plan --query sum --low 0 --high 20 --unit kcal --epsilon 1 --delta 1e-6 --users 60"
LOCAL = (
    "plan --query sum --low 0 --high 20 --unit kcal --epsilon 1 --delta 0 --users 400 "
    "--trusted nobody"
)


def test_hidden_candidates_come_back_with_all_and_json_has_them_anyway(terminal: Any) -> None:
    line = f"{SUM.replace('60', '400')} --distance 5"
    short = terminal.typed(line)
    long = terminal.typed(f"{line} --all")
    assert short.exit_code == long.exit_code == 0
    assert "not shown: another one is as good or better in error, damage," in short.stdout
    assert "not shown" not in long.stdout
    document = json.loads(terminal.typed(f"{line} --json").stdout)
    rows = [
        sum(
            line.count(" shuffler ") + line.count(" nobody ") + line.count(" curator ")
            for line in said.stdout.splitlines()
            if line.startswith(("  ", "->"))
        )
        for said in (short, long)
    ]
    assert rows[1] == len(document["candidates"]) > rows[0]
    assert "Without --honest all 400 must report" in short.stdout


def test_a_bare_number_of_honest_people_is_told_and_how_to_look_at_the_distance(
    terminal: Any,
) -> None:
    said = terminal.typed(f"{LOCAL} --distance 5 --honest 90").stdout
    assert "--honest 90 is 90 people of 400; write 90% for 360 of them." in said
    assert (
        "Is 5 kcal far enough? --values FILE --column NAME shows how far apart people are "
        "(docs/how-to/choose-a-distance.md)." in said
    )
    labels = terminal.typed(
        "plan --query histogram --labels a,b --epsilon 1 --delta 0 --users 40 --trusted nobody"
    ).stdout
    assert "far enough" not in labels


def test_one_person_gets_a_plan(terminal: Any) -> None:
    result = terminal.typed(
        "plan --query sum --low 0 --high 20 --epsilon 1 --distance 5 --delta 1e-6 --users "
        "1 --save plan.json"
    )
    assert result.exit_code == 0
    assert "1 honest person is too few for a shuffler to help here" in result.stdout
    assert "With 10 people the expected error would be" in result.stdout
    assert "1 user (1 honest)" in result.stdout
    assert (
        json.loads(Path("plan.json").read_text())["task"]["protocol"]["name"] == "geometric-local"
    )


def test_a_missing_distance_is_told_how_to_be_chosen(terminal: Any) -> None:
    told = terminal.refused(*LOCAL.split())
    assert "--distance is missing" in told
    assert "docs/how-to/choose-a-distance.md" in told
    assert "--values FILE --column NAME" in told


def test_values_are_looked_at_without_a_plan(terminal: Any, values: Path) -> None:
    values.write_text(values.read_text() + '40,25,1,1,"late"\n')
    result = terminal.typed(LOCAL, "--values", str(values), "--column", "kcal")
    assert result.exit_code == 0
    assert "NOT PRIVATE, how far two of 41 people are apart" in result.stdout
    assert "(2.4 %) lay outside whole numbers from 0 to 20 kcal and was moved" in result.stdout
    assert "No plan was made: choose a --distance." in result.stderr
    assert "->" not in result.stdout


def test_nothing_of_the_values_goes_into_the_plan(terminal: Any, values: Path) -> None:
    """Not a byte: with and without them the files are the same."""
    assert terminal.typed(LOCAL, "--distance", "5", "--save", "without.json").exit_code == 0
    result = terminal.typed(
        LOCAL, "--distance", "5", "--save", "with.json", "--values", str(values), "--column", "kcal"
    )
    assert result.exit_code == 0
    assert "% of the pairs are at most 5 kcal apart, the distance of this plan." in result.stdout
    assert "Is 5 kcal far enough?" not in result.stdout
    assert Path("with.json").read_bytes() == Path("without.json").read_bytes()
    document = terminal.typed(
        LOCAL, "--distance", "5", "--json", "--values", str(values), "--column", "kcal"
    )
    assert json.loads(document.stdout) == json.loads(Path("without.json").read_text())
    assert "NOT PRIVATE" in document.stderr


def test_values_of_people_with_several_rows_and_of_places(terminal: Any, visits: Path) -> None:
    base = "--epsilon 1 --delta 0 --users 60 --trusted nobody"
    items = terminal.typed(
        f"plan --query user-histogram --low 0 --high 20 {base}",
        "--values",
        str(visits),
        "--column",
        "n",
        "--user-column",
        "who",
    )
    assert "by all they hold (earth mover's distance)" in items.stdout, items.output
    mean = terminal.typed(
        f"plan --query mean --low 0 --high 20 {base}",
        "--values",
        str(visits),
        "--column",
        "n",
        "--user-column",
        "who",
        "--per-user",
        "first",
    )
    assert "two of 60 people are apart, by their values" in mean.stdout, mean.output
    spots = ["--column", "x", "--column", "y", "--coordinates", "points"]
    places = terminal.typed(
        f"plan --query map --width 8 --height 8 --cell 10 --unit m {base}",
        "--values",
        str(visits),
        *spots,
    )
    assert " m, half at most " in places.stdout, places.output


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (
            ("--values", "values.csv", "--column", "kcal", "--save", "plan.json"),
            "--distance is missing",
        ),
        (("--values", "values.csv", "--column", "kcal", "--json"), "--distance is missing"),
        (("--values", "values.csv"), "one column, named by --column"),
        (("--values", "values.csv", "--column", "name"), "'name'"),
        (("--values", "nothing.csv", "--column", "kcal"), "no such file"),
        (("--user-column", "id"), "--user-column belongs to --values FILE"),
        (("--column", "kcal"), "--column"),
    ],
)
def test_options_about_values_that_make_no_sense(
    terminal: Any, values: Path, more: tuple[str, ...], told: str
) -> None:
    assert told in terminal.refused(*LOCAL.split(), *more)


def test_labels_have_no_distance_to_choose(terminal: Any, values: Path) -> None:
    words = (
        "plan --query histogram --epsilon 1 --delta 0 --users 40 --trusted nobody --column "
        "name --labels"
    )
    values.write_text("name\n" + "a\nb\n" * 20)
    assert "any two labels are 1 apart" in terminal.refused(
        *words.split(), "a,b", "--values", values
    )
