"""Published bounds that benchmarks compare with, against each other and against ours."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from benchmarks.bench_peers import (
    ABOUT,
    APPLE,
    BALLE,
    DELTA,
    FOLDER,
    LOCAL,
    bounds,
    optimal_decomposition,
    stronger_clones,
)

import metricshuffle as ms
from metricshuffle.randomizers import BinaryRandomizedResponse, KaryRandomizedResponse


def test_the_table_of_the_page_has_the_rows_of_the_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In its order, with those of the two peers, whose code is not here."""
    monkeypatch.delenv(FOLDER, raising=False)
    page = Path(__file__).parents[2] / "docs" / "performance.md"
    section = page.read_text().partition("## Comparison with other tools")[2]
    rows = re.findall(r"^\| ([^|]+) \| \**([^|*]+)\** \|.*\|$", section, re.M)
    shown = [row for row in rows if row[0] in ABOUT.values()]
    printed = [(ABOUT[bound.about], bound.name) for bound in bounds()]
    peers = [(ABOUT["any"], APPLE), *((ABOUT[about], BALLE) for about in ABOUT)]
    assert sorted(shown) == sorted([*printed, *peers])
    assert [row for row in shown if row not in peers] == printed


def test_bounds_are_named_once_and_ours_comes_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """For each kind of randomizer: published bounds, and then ours to compare with."""
    monkeypatch.delenv(FOLDER, raising=False)
    rows = [(bound.about, bound.name) for bound in bounds()]
    assert len(set(rows)) == len(rows)
    for about in ABOUT:
        names = [name for kind, name in rows if kind == about]
        assert names[:2] == ["Balle et al. 2019, Hoeffding", "Balle et al. 2019, Bennett"]
        assert names[-1] == "ours"
        assert len(names) == 4
    assert [about for about, _ in rows] == sorted(
        (about for about, _ in rows), key=list(ABOUT).index
    )


@pytest.mark.thorough
def test_the_optimal_decomposition_of_a_bit_is_the_stronger_clones() -> None:
    """By a Fourier transform and by sums of binomial tails; the exact account is smaller."""
    decomposed = optimal_decomposition(1000)
    assert decomposed == pytest.approx(stronger_clones(1000), rel=1e-5)
    exact = ms.amplify(BinaryRandomizedResponse(LOCAL), 1000).epsilon(DELTA)
    assert exact.upper < 0.9 * decomposed
    assert exact.lower > 0.99 * exact.upper


@pytest.mark.thorough
def test_the_grid_of_the_decomposition_is_fine_enough_for_many_people() -> None:
    """At 1e8 people the grid alone may not add more than 1e-4 of epsilon."""
    assert optimal_decomposition(10**8) == pytest.approx(stronger_clones(10**8), rel=1e-4)


@pytest.mark.thorough
def test_the_optimal_decomposition_of_eight_answers_is_ours() -> None:
    """Ours decomposes k-ary responses in the same best way, and is rounded up."""
    ours = ms.amplify(KaryRandomizedResponse(8, LOCAL), 1000).epsilon(DELTA)
    assert optimal_decomposition(1000, options=8) == pytest.approx(ours.upper, rel=1e-5)
