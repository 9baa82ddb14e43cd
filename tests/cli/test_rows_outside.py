"""--drop-outside leaves out values outside the domain, never values in another format."""

from pathlib import Path

import pytest
from tests.cli.conftest import Terminal

import metricshuffle as ms
from metricshuffle.errors import InputWarning
from metricshuffle.queries import Query


def planned(query: Query, distance: float = 1.0) -> ms.Plan:
    return ms.plan(
        query,
        ms.Target(epsilon=1.0, delta=1e-6, distance=distance),
        users=10,
        honest=2,
        trusted="curator",
    )


def test_words_that_are_no_labels_are_left_out_and_counted(terminal: Terminal) -> None:
    planned(ms.Histogram(ms.Categories(("tea", "coffee")))).save("plan.json")
    Path("values.csv").write_text("drink\ntea\n?\ncoffee\ntea\n?\n")
    told = terminal.refused("run", "plan.json", "values.csv", "--column", "drink")
    assert "--drop-outside leaves them out" in told
    result = terminal.typed("run plan.json values.csv --column drink --drop-outside")
    assert result.exit_code == 0, result.stderr
    assert "from 3 reports" in result.stdout
    assert (
        "Of 5 rows of values.csv, 2 rows are not in the 2 categories (tea, coffee) and "
        "were left out: line 3: '?'" in result.stderr
    )
    assert "Wrote release.json." in result.stderr


def test_missing_values_and_other_notations_are_still_refused(terminal: Terminal) -> None:
    planned(ms.Mean(ms.Integers(0, 100)), 10).save("plan.json")
    Path("values.csv").write_text('kcal\n5\n500\n"4,5"\n7\n')
    assert "1 of 4 values" in terminal.refused(
        "run", "plan.json", "values.csv", "--column", "kcal", "--drop-outside"
    )
    Path("values.csv").write_text("id,kcal\n1,5\n2,500\n3,\n4,7\n")
    assert "is missing" in terminal.refused(
        "run", "plan.json", "values.csv", "--column", "kcal", "--drop-outside"
    )
    result = terminal.typed("run plan.json values.csv --column kcal --drop-outside --drop-missing")
    assert result.exit_code == 0, result.stderr
    assert "Of 4 rows of values.csv, 1 row misses a value and was left out." in result.stderr
    assert (
        "1 row is not in whole numbers from 0 to 100 and was left out: line 3: '500'"
        in result.stderr
    )


def test_nothing_inside_is_told(terminal: Terminal) -> None:
    planned(ms.Mean(ms.Integers(0, 100)), 10).save("plan.json")
    Path("values.csv").write_text("kcal\n500\n600\n")
    assert "so there are none to report" in terminal.refused(
        "run", "plan.json", "values.csv", "--column", "kcal", "--drop-outside"
    )


def test_frames_too() -> None:
    plan = planned(ms.Histogram(ms.Categories(("tea", "coffee"))))
    with pytest.warns(InputWarning, match="2 rows are not in"):
        release = plan.run(
            {"drink": ["tea", "?", "coffee", "?"]}, column="drink", drop_outside=True
        )
    assert release.reports == 2


def test_a_fractional_granularity_means_real_numbers(terminal: Terminal) -> None:
    line = (
        "plan --query mean --low 42 --high 43 --granularity 0.5 --epsilon 1 --distance 1 "
        "--delta 0 --users 5 --trusted nobody"
    )
    result = terminal.typed(line)
    assert result.exit_code == 0, result.stderr
    assert "numbers from 42" in result.stdout
    assert "whole numbers" not in result.stdout
