"""Items of `reproduce` for the supplement: rows, verdicts, and the numbers behind "false"."""

from __future__ import annotations

import math

import pytest
from packages.papers.tests.quick_items import check_charts, found, items_of, one_row, rows_of
from tests.oracles.same_others import count_laws, divergence

from metricshuffle.accounting.shuffling.closed_form_bounds import corollary_1
from metricshuffle.citations import PAPERS
from metricshuffle.randomizers import PaddedExponential
from metricshuffle_papers.metric_supplement.items.figure_13 import Place
from metricshuffle_papers.reproduction import Item, published_rows, published_value

ITEMS = items_of("WitchHat")


SLOW = ("supplement-figure-13",)  # seconds


@pytest.mark.parametrize(
    "item",
    [
        pytest.param(item, marks=[pytest.mark.slow] * (name in SLOW), id=item.name)
        for name, item in ITEMS.items()
    ],
)
def test_every_item_is_complete(item: Item) -> None:
    result = found(item.name)
    assert item.paper == "WitchHat"
    assert item.paper in PAPERS
    assert not item.simulated
    assert len({row.label for row in result.rows}) == len(result.rows) > 0
    for row in result.rows:
        assert all(
            math.isfinite(value)
            for value in (row.published, row.as_published, row.ours)
            if value is not None
        )
        assert row.verdict == "ours" or row.ours is not None
        assert row.verdict == "ours" or not (row.as_published is None and row.published is None)
        assert row.note or row.verdict not in ("false", "impossible")
    assert all(words.endswith(".") for words in result.words)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW))
        for name in ITEMS
        if name != "supplement-not-available"
    ],
)
def test_every_chart_can_be_drawn(name: str) -> None:
    check_charts(name)


def test_what_is_missing_is_said() -> None:
    assert "main text" in found("supplement-not-available").words[0]
    assert "not in our sources" in found("supplement-not-available").words[0]
    assert "only the caption" in found("supplement-figure-13").words[1]
    names = {
        word.rstrip(",;.")
        for row in found("supplement-not-available").rows
        for word in row.note.split()
        if word.startswith("supplement-")
    }
    assert names <= set(ITEMS)


# Figure 13


def test_the_figure_is_drawn_at_the_settings_of_its_caption() -> None:
    values = {
        row: published_value("metric_supplement", "Figure 13", row)
        for row in published_rows("metric_supplement", "Figure 13")
    }
    assert sorted(values.values()) == sorted([1e3, 1e5, 0.1, 1, 3, 5, 1000, 0.01])
    uppers = rows_of("supplement-figure-13", "upper bound")
    assert len(uppers) == 2 * 4 * 3
    place = Place(1000, 1.0, 50.0)
    assert math.exp(place.beyond + place.local) + math.exp(place.beyond) == pytest.approx(
        50.0, rel=1e-12
    )
    assert Place(100_000, 3.0, math.exp(3.0) + 1.0).beyond == pytest.approx(0.0, abs=1e-15)
    assert place.delta == 1e-5


def test_bounds_of_the_figure_are_in_order() -> None:
    uppers, lowers = (
        rows_of("supplement-figure-13", part) for part in ("upper bound", "lower bound")
    )
    for upper, lower in zip(uppers, lowers, strict=True):
        assert upper.label.split(":")[0] == lower.label.split(":")[0]
        assert upper.as_published is not None
        assert upper.ours is not None
        assert lower.ours is not None
        assert 0.0 < lower.ours <= upper.ours <= upper.as_published * (1 + 1e-12)
        assert upper.verdict == "loose"


def test_the_lower_bound_of_the_figure_is_that_of_its_three_points() -> None:
    """Few users, so that every vector of counts can be looked at."""
    place = Place(30, 1.0, 30.0)
    ac = place.beyond + 1.0
    bc = place.beyond
    rows = PaddedExponential([[0, 1.0, ac], [1.0, 0, bc], [ac, bc, 0]], 1.0).rows()
    truth = max(
        divergence(*count_laws(rows[0], rows[1], held, 30), place.lower * (1 - 1e-4))
        for held in rows
    )
    assert truth > place.delta
    assert (
        max(
            divergence(*count_laws(rows[0], rows[1], held, 30), place.lower * (1 + 1e-3))
            for held in rows
        )
        <= place.delta
    )
    assert (
        max(divergence(*count_laws(rows[0], rows[1], held, 30), place.upper) for held in rows)
        <= place.delta
    )


# Table I


def test_table_1_by_hand() -> None:
    """Sigma_a = Sigma_c = 1 + e^-1 + e^-2, Sigma_b = 1 + 2 e^-1."""
    ends = 1 + math.exp(-1) + math.exp(-2)
    middle = 1 + 2 * math.exp(-1)
    most = (math.e * middle - ends) / (math.e - 1)
    assert most == pytest.approx(1.87109416558, rel=1e-11)
    assert one_row("supplement-table-1", "x = a, z = c").as_published == pytest.approx(
        math.exp(-2) / most, rel=1e-12
    )
    assert one_row("supplement-table-1", "x = b, z = none").as_published == pytest.approx(
        (most - middle) / most, rel=1e-12
    )
    told = {
        row.verdict
        for row in found("supplement-table-1").rows
        if row.label.startswith(("x =", "largest"))
    }
    assert told == {"true"}


def test_algorithm_2_shows_less_than_there_is() -> None:
    for row in rows_of("supplement-table-1", "Algorithm 2"):
        assert row.verdict == "loose"
        assert row.ratio is not None
        assert row.ratio > 1.0, "a lower bound that can be raised"
    assert one_row("supplement-table-1", "Algorithm 2, D = (2.0, 2.5, 1.0)").ratio == pytest.approx(
        1.6572 / 0.9603, rel=1e-4
    )


# Theorem 1


def test_the_closed_forms_are_true_and_loose() -> None:
    rows = found("supplement-theorem-1").rows
    assert {row.verdict for row in rows} == {"loose"}
    for row in rows:
        assert row.ratio is not None
        assert row.ratio < 1.0
    line = rows_of("supplement-theorem-1", "Corollary 2: D(a,b) = 1, D_max = 3, n = 1e+04")[-1]
    assert line.as_published == pytest.approx(0.431360640641, rel=1e-10)
    assert line.ours == pytest.approx(0.107075, abs=6e-7)
    printed, sharper = (
        one_row("supplement-theorem-1", f"{name}: D(a,b) = 0.1, D_max = 1, n = 1e+06").as_published
        for name in ("Theorem 1 as printed", "Theorem 1, factor of Corollary 2")
    )
    assert (printed, sharper) == pytest.approx((0.010755, 0.001028), abs=5.1e-7)


# Algorithms 1 and 3


def test_the_threshold_of_algorithm_3_is_reproduced() -> None:
    row = one_row("supplement-algorithms-1-3", "where amplification begins")
    assert row.published == 16
    assert row.ours == pytest.approx(16.0, rel=1e-6)
    assert row.verdict == "reproduced"


def test_the_printed_equality_fails_at_a_capped_pair() -> None:
    """A pair at the cap m is amplified to F(m, Omega_m), below the farthest pair's target."""
    row = one_row("supplement-algorithms-1-3", "min(D, F(D)) = D#")
    cap = one_row("supplement-algorithms-1-3", "D at distance 1").ours
    assert cap is not None
    assert row.ours == pytest.approx(min(cap, corollary_1(cap, cap, 100_000, 1e-6)), rel=1e-9)
    assert row.ours is not None
    assert row.as_published == pytest.approx(1.0)
    assert row.ours < 0.5 < 1.0
    assert row.verdict == "false"


def test_algorithms_in_their_order() -> None:
    allowed = [
        one_row("supplement-algorithms-1-3", f"Algorithm {name}: largest closed local epsilon").ours
        or 0.0
        for name in ("3", "1", "1N")
    ]
    assert allowed == sorted(allowed)
    assert all(
        (row.ours or 0.0) > 1.0
        for row in rows_of("supplement-algorithms-1-3", "failure of the triangle inequality")
    )
    assert one_row(
        "supplement-algorithms-1-3", "Algorithm 1: smallest diameter"
    ).ours == pytest.approx(2.7090, abs=5e-5)
    assert one_row(
        "supplement-algorithms-1-3", "Algorithm 1: largest diameter"
    ).ours == pytest.approx(5.9880, abs=5e-5)


# WitchHat


def test_the_density_is_right() -> None:
    assert {row.verdict for row in found("supplement-witch-hat").rows} == {"true"}
    assert one_row("supplement-witch-hat", "N = F").as_published == pytest.approx(
        7.03002924855, rel=1e-11
    )
    for row in rows_of("supplement-witch-hat", "min(m, 2|a-b|/F)"):
        assert row.ours is not None
        assert row.as_published is not None
        assert row.ours <= row.as_published, "what is sampled is never less private"


def test_the_printed_variance_bound_is_false() -> None:
    row = one_row(
        "supplement-witch-hat-variance", "exact variance: B, m, F = (10.0, 2.0, 5.0), x = 6"
    )
    assert (row.as_published, row.ours) == pytest.approx((290.8, 299.0), abs=0.05)
    assert "290.8" in found("supplement-witch-hat-variance").words[0]
    assert "299.0" in found("supplement-witch-hat-variance").words[0]
    for printed in rows_of("supplement-witch-hat-variance", "printed bound"):
        assert printed.ours is not None
        assert printed.as_published is not None
        assert (printed.verdict == "false") == (printed.ours > printed.as_published)
    exact = {
        row.label.split(": ")[1]: row.ours or math.inf
        for row in rows_of("supplement-witch-hat-variance", "exact variance")
    }
    for corrected in rows_of("supplement-witch-hat-variance", "corrected bound"):
        assert (corrected.ours or 0.0) >= exact[corrected.label.split(": ")[1]]
    assert max(
        row.ratio or 0.0 for row in rows_of("supplement-witch-hat-variance", "exact variance")
    ) == pytest.approx(1.21, abs=0.01)
