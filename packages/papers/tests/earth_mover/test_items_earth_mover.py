"""Items of `reproduce` for the earth mover's paper, and the truths they are compared with."""

from __future__ import annotations

import math

import numpy as np
import pytest

from metricshuffle.errors import InputError
from metricshuffle.randomizers import ClusteredResponse
from metricshuffle_papers.earth_mover.error_bounds import Clusters
from metricshuffle_papers.earth_mover.items import table_2b
from metricshuffle_papers.earth_mover.truths import clustered_errors
from metricshuffle_papers.reproduction import Settings, items


def test_table_1() -> None:
    found = items()["earth-mover-table-1"].run(Settings())
    assert [row.verdict for row in found.rows[:6]] == ["true"] * 6
    false = {row.label: row for row in found.rows if row.verdict == "false"}
    assert [label.split(":")[0] for label in false] == [
        "Table 1",
        "Table 1",
        "Fact 5.1",
        "discrete d_EM-DP by Theorem 1.3",
    ]
    assert false["discrete d_EM-DP by Theorem 1.3: delta at epsilon 0.2"].ours == pytest.approx(
        1.677e-4, abs=5e-8
    )
    assert "0.325" in found.words[1]


def test_table_2a_has_wins_losses_and_formulas() -> None:
    found = items()["earth-mover-table-2a"].run(Settings(quick=True))
    assert "125 times smaller" in found.words[0]
    assert "(1.00)" in found.words[0]
    assert "5 times worse" in found.words[1]
    assert "100 times" in found.words[1]
    assert "2.0 times better" in found.words[1]
    assert len({row.label for row in found.rows}) == len(found.rows)
    for row in found.rows:
        assert row.ours is not None
        predicted = float(row.note.split("by formula ")[1].split(";")[0])
        assert row.ours == pytest.approx(
            predicted, abs=5.0 * (row.standard_error or 1e-12) + 1e-3 * predicted
        ), row.label


@pytest.mark.slow
def test_one_setting_of_table_2b_has_every_way_and_a_winner() -> None:
    found = table_2b.compared(table_2b.SETTINGS[2], 4, 1)
    assert {one.hides for one in found.methods} == {"user", "earth mover", "published"}
    assert found.gain("central") > 10.0
    ours = next(one for one in found.methods if one.name == "item-wise")
    assert all(one.strength < ours.strength for one in found.methods if one.hides == "published")
    assert "What was relaxed" in found.sentences()[-1]


@pytest.mark.slow
def test_table_2b_has_wins_and_losses() -> None:
    found = items()["earth-mover-table-2b"].run(Settings(runs=12))
    assert len({row.label for row in found.rows}) == len(found.rows) > 40
    errors = {row.label: row.ours or 0.0 for row in found.rows}

    def best(part: str, *names: str) -> float:
        return min(
            error
            for label, error in errors.items()
            if label.endswith(part) and label.startswith(names)
        )

    relaxed = "central, n = 10,000, m = 100, 8 x 8, r = 0.05, epsilon 1, alpha 20"
    equal = relaxed.removesuffix("20") + "1"
    assert best(relaxed, "tree Laplace") < best(relaxed, "two-level Laplace") / 3.0
    assert best(equal, "tree Laplace") > 2.0 * best(equal, "two-level Laplace")


def test_theorem_6_5_by_simulation() -> None:
    found = items()["earth-mover-theorem-6-5"].run(Settings(quick=True))
    assert {row.verdict for row in found.rows} == {"loose"}
    assert all(row.ratio is not None and 0.15 < row.ratio < 0.6 for row in found.rows)
    again = items()["earth-mover-theorem-6-5"].run(Settings(quick=True))
    assert [row.ours for row in found.rows] == [row.ours for row in again.rows]
    assert found.charts


def test_the_predicted_error_against_many_multinomials() -> None:
    """From the law of the reports alone, without the library's inverse."""
    shape = (3, 2, 0.2)
    item_rate = 1.5
    reports = 3000
    rng = np.random.default_rng(7)
    shares = np.array([0.4, 0.1, 0.2, 0.1, 0.2, 0.0])
    rows = ClusteredResponse(*shape, item_rate).rows()
    parts = [
        rng.multinomial(round(reports * share), row, size=3000)
        for share, row in zip(shares, rows, strict=True)
    ]
    off = np.linalg.solve(rows.T, np.sum(parts, axis=0).T / reports).T - shares
    errors = 0.5 * (
        0.2 * np.abs(off).sum(axis=1) + 0.8 * np.abs(off.reshape(-1, 3, 2).sum(axis=2)).sum(axis=1)
    )
    mean, bound = clustered_errors(Clusters(*shape), item_rate, shares, reports)
    assert float(errors.mean()) == pytest.approx(
        mean, abs=4 * float(errors.std()) / math.sqrt(len(errors))
    )
    assert float(errors.mean()) < bound
    with pytest.raises(InputError, match="sum to 1"):
        clustered_errors(Clusters(*shape), item_rate, shares * 2, reports)


@pytest.mark.slow
def test_theorem_4_4_is_below_what_is_certified_everywhere() -> None:
    found = items()["earth-mover-theorem-4-4"].run(Settings(quick=True))
    assert len(found.rows) == 16
    assert all(row.ours is not None and row.ours >= (row.as_published or 0.0) for row in found.rows)
    assert [row.as_published for row in found.rows].count(None) == 1
    central = next(
        row for row in found.rows if row.label.startswith("Theorem 4.4 solved: central, 100,000")
    )
    assert central.as_published == pytest.approx(2.48387, abs=5e-6)
    assert central.ours is not None
    assert 4.29 < central.ours < 4.32


def test_the_worked_example() -> None:
    found = items()["earth-mover-example"].run(Settings())
    told = {row.label.partition(": ")[2]: row for row in found.rows}
    assert [name for name, row in told.items() if row.verdict != "reproduced"] == [
        "alpha_0 by Theorem 4.4"
    ]
    assert told["total noise"].ours == pytest.approx(1.42729929292e-4, rel=1e-9)
    assert told["error, miles"].ours == pytest.approx(1.85, abs=5e-3)
    assert "nevertheless safe" in found.words[0]
    assert "41.98" in found.words[1]
