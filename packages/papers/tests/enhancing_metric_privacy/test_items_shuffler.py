"""Items about Athanasiou25: the basis of their verdicts, checked by other means."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from tests.oracles import sgdl
from tests.oracles.half_line import half_line_attack
from tests.oracles.law_moments import mean_absolute
from tests.tables import check_all

from metricshuffle.errors import InputError
from metricshuffle.noise.polya import Polya
from metricshuffle.randomness import Randomness
from metricshuffle_papers.enhancing_metric_privacy import formulas as paper
from metricshuffle_papers.enhancing_metric_privacy.items import (
    figure_3,
    figure_6,
    number_figures,
    shifted_law_figures,
    table_2,
    table_3,
)
from metricshuffle_papers.enhancing_metric_privacy.location import SIDE, Location, cells_of, places
from metricshuffle_papers.enhancing_metric_privacy.mechanisms import (
    as_published,
    geometric,
    needed_planar_rate,
    needed_rate,
)
from metricshuffle_papers.reproduction import (
    Reproduction,
    Row,
    Settings,
    Verdict,
    items,
    judged,
    printed_rounding,
    published_rows,
)

NOT_SIMULATED = [
    name for name, item in items().items() if name.startswith("shuffler-") and not item.simulated
]


@cache
def found(name: str) -> Reproduction:
    """Result of an item without RR-Shuffle's slow exact calibration, on which no verdict rests."""
    with pytest.MonkeyPatch.context() as patch:
        for module in ("mechanisms", "location"):
            patch.setattr(
                f"metricshuffle_papers.enhancing_metric_privacy.{module}.needed_response",
                lambda *asked: None,
            )
        return items()[name].run(Settings(quick=True, runs=200))


def rows(name: str, *verdicts: Verdict) -> list[Row]:
    return [row for row in found(name).rows if row.verdict in verdicts]


def parts(row: Row) -> tuple[int, float, str]:
    users, epsilon, mechanism = re.fullmatch(r"n=(\d+), epsilon=([\d.]+), (.+)", row.label).groups()  # type: ignore[union-attr]
    return int(users), float(epsilon), mechanism


def packing(epsilon: float, delta: float) -> float:
    """max over whole t of t (1 - delta - tanh(t epsilon)), which no private sum beats."""
    return max(
        t * (1.0 - delta - math.tanh(t * epsilon)) for t in range(1, math.ceil(2.0 / epsilon) + 1)
    )


# What is called impossible or false, and by what


REFUTED = {
    "shuffler-figure-3": 3,
    "shuffler-figure-6": 3,
    "shuffler-figure-7": 1,
    "shuffler-figure-9": 2,
    "shuffler-figure-13": 4,
    "shuffler-table-2": 5,
    "shuffler-table-3": 3,
}


@pytest.mark.slow
def test_every_refutation_is_one_of_those_below() -> None:
    told = {name: len(rows(name, "impossible", "false")) for name in NOT_SIMULATED}
    assert {name: count for name, count in told.items() if count} == REFUTED
    assert all(row.note for name in REFUTED for row in rows(name, "impossible", "false"))


def test_table_2_prints_errors_below_the_packing_bound() -> None:
    column = [row for row in found("shuffler-table-2").rows if row.label.endswith("SGDL-Shuffle")]
    assert len(column) == 6
    for row in column:
        users, epsilon, _ = parts(row)
        bound = packing(epsilon, 1e-2) / users
        assert row.published is not None
        assert (row.published < bound) == (row.verdict == "impossible")
        assert table_2.least_error(epsilon, users) == pytest.approx(bound, rel=1e-6)
        assert table_2.least_error(epsilon, users) <= bound
        assert row.ours == pytest.approx(
            2.0 * math.exp(-epsilon) / -math.expm1(-2.0 * epsilon) / users, rel=1e-6
        )
    assert sum(row.verdict == "impossible" for row in column) == 4


def test_table_2_prints_a_geo_shuffle_that_cannot_keep_its_promise() -> None:
    """Slightly less noise than the row's bound breaks the guarantee at a move of 1.

    Less noise never helps.
    """
    (row,) = [
        row for row in rows("shuffler-table-2", "impossible") if row.label.endswith("Geo-Shuffle")
    ]
    users, epsilon, _ = parts(row)
    delta = table_2.DELTAS[epsilon]
    rate = 1.0001 * needed_rate(epsilon, users, delta, 1)
    noise = Polya(Fraction(users), rate)
    assert half_line_attack(noise.law(-80.0, 1), epsilon, 1) > delta
    assert row.published is not None
    assert row.published < 0.6 * mean_absolute(noise.law(-60.0)) / users


def test_table_3_prints_errors_below_the_packing_bound() -> None:
    column = [row for row in found("shuffler-table-3").rows if row.label.endswith("SGDL-Shuffle")]
    for row, (users, where) in zip(column, table_3.SETTINGS, strict=True):
        assert parts(row)[:2] == (users, where.epsilon)
        # Of the radii in the captions the shortest, in steps of a metre; the worst error along one
        # axis.
        bound = packing(where.epsilon / 300.0, 1e-4) / users
        assert row.published is not None
        assert (row.published < bound) == (row.verdict == "impossible")
        assert table_3.least_error(users, where) <= 1.001 * bound
    assert sum(row.verdict == "impossible" for row in column) == 3


@check_all("users", figure_3.JUDGED)
def test_theorem_4_1_is_false_where_figure_3_says_so(users: int) -> None:
    (row,) = [row for row in rows("shuffler-figure-3", "false") if f"n = {users}," in row.label]
    first = int(re.search(r"from (\d+) on", row.note).group(1))  # type: ignore[union-attr]
    noise = Polya(Fraction(users), figure_3.RATE)
    claim = row.as_published
    assert claim is not None
    for distance in (first, 500):
        law = noise.law(-80.0 - claim * distance, distance)
        assert half_line_attack(law, claim * distance, distance) > figure_3.DELTA
    before = noise.law(-80.0 - claim * first, first)
    assert half_line_attack(before, claim * (first - 1), first - 1) <= figure_3.DELTA


def test_theorem_7_1_is_false_where_figure_6_says_so() -> None:
    for row, users in zip(rows("shuffler-figure-6", "false"), figure_6.RESPONSE_USERS, strict=True):
        flip = 0.5 * figure_6.random_bit(users)
        claim = row.as_published
        assert claim is not None
        # The bit where x and x+1 differ: sent right with 1 - flip under one, with flip under the
        # other.
        assert (1.0 - flip) - math.exp(claim) * flip > 10.0 * figure_6.DELTA
        assert row.ours == pytest.approx(math.log((1.0 - flip - figure_6.DELTA) / flip), rel=1e-6)


def test_the_ratio_of_a_probability_with_itself() -> None:
    (row,) = rows("shuffler-figure-7", "false")
    assert row.as_published == 0.0
    assert row.ours == pytest.approx(1.0, abs=1e-12)


def test_distance_1_is_not_the_worst_where_figure_9_says_so() -> None:
    formula, true = rows("shuffler-figure-9", "false")
    users, rate, delta = shifted_law_figures.COUNTEREXAMPLE
    assert (
        formula.ours
        == paper.geo_shuffle_epsilon(rate, users, delta, 2).claim
        > paper.geo_shuffle_epsilon(rate, users, delta, 1).claim
    )
    far = shifted_law_figures.DISTANCES[-1]
    assert true.as_published is not None
    law = Polya(Fraction(users), rate).law(-80.0 - true.as_published * far, far)
    assert half_line_attack(law, true.as_published * far, far) > delta


def test_one_share_s_ratios_are_not_all_the_same() -> None:
    for share, unequal, second in zip(
        shifted_law_figures.SHARES, *[iter(rows("shuffler-figure-13", "false"))] * 2, strict=True
    ):
        f = [
            float(sgdl.mass(Fraction(1, share[1]), shifted_law_figures.SHARE_RATE, z))
            for z in range(3)
        ]
        assert unequal.as_published == pytest.approx(math.log(f[0] / f[1]), rel=1e-9)
        assert unequal.ours == pytest.approx(math.log(f[1] / f[2]), rel=1e-9)
        assert second.as_published == 0.0
        assert second.ours == pytest.approx(math.log(f[0] / f[2]), rel=1e-9)


def test_randomized_response_crosses_the_local_mechanism_where_figure_4_says_so() -> None:
    needed, crossing = number_figures.text_on_figure_4().rows
    assert needed.as_published == 35
    assert crossing.as_published is not None
    assert number_figures.worse_than_local(int(crossing.as_published))
    assert not number_figures.worse_than_local(int(crossing.as_published) + 1)
    assert needed.verdict == crossing.verdict == "not reproduced"


# What the numbers are


def test_every_printed_number_of_the_tables_is_compared() -> None:
    for table, name in (("Table 2", "shuffler-table-2"), ("Table 3", "shuffler-table-3")):
        assert [row.label for row in found(name).rows] == list(
            published_rows("enhancing_metric_privacy", table)
        )


def test_the_rule_of_reproduced() -> None:
    assert judged(1.0, 1.0199) == "reproduced"
    assert judged(1.0, 1.021) == "not reproduced"
    assert judged(1.0, 1.0599, standard_error=0.02) == "reproduced"
    assert judged(1.0, 1.061, standard_error=0.02) == "not reproduced"
    assert judged(5.0, 5.4, rounding=0.5) == "reproduced"
    assert judged(1.0, math.nan) == "not reproduced"
    assert printed_rounding(
        "enhancing_metric_privacy", "Appendix B, about Figure 2", "P[SGDL(10, 0.5) = 0]"
    ) == pytest.approx(5e-4)


def test_the_noise_that_is_needed_is_the_least() -> None:
    rate = needed_rate(0.1, 100, 1e-4, 50)
    worse = Polya(Fraction(100), 1.0001 * rate)
    assert half_line_attack(worse.law(-80.0, 50), 0.1 * 50, 50) > 1e-4
    # On a plane the joint accounting allows less noise than half of everything on each axis.
    assert needed_planar_rate(0.15, 1000, 1e-4, 6.0) > needed_rate(
        0.15 / 6.0 / math.sqrt(2.0), 1000, 5e-5, 6
    )


@pytest.mark.parametrize(
    "name",
    [
        "shuffler-figure-18",
        "shuffler-figure-20",
        pytest.param("shuffler-figure-27", marks=pytest.mark.slow),
    ],
)
def test_simulated_errors_are_those_of_the_law(name: str) -> None:
    simulated = [
        row for row in found(name).rows if row.label.endswith(("Geo-Local", "SGDL-Shuffle"))
    ]
    assert len(simulated) >= 6
    for row in simulated:
        assert row.as_published is not None
        assert row.ours is not None
        assert row.standard_error is not None
        assert abs(row.ours - row.as_published) < 5.0 * row.standard_error < 0.9 * row.as_published


@pytest.mark.slow
def test_every_item_runs_in_full_and_compares_randomized_response_too() -> None:
    for name, item in items().items():
        if name.startswith("shuffler-"):
            made = item.run(Settings(quick=True))
            assert made.words
            assert made.rows
            assert all(
                row.ours is not None or row.note for row in made.rows if "RR-Shuffle" in row.label
            )


def test_reports_for_data_err_like_their_noise() -> None:
    one = as_published(0.5, 60, 1e-3)["Geo-Shuffle"]
    assert one is not None
    values = np.arange(120).reshape(60, 2) * 8
    errors = one.twice().errors_on(values, 400, Randomness.seeded(4))
    assert np.hypot(*errors.T).mean() == pytest.approx(one.twice().mean_error(60), rel=0.15)
    rate = one.axes[0].rate  # type: ignore[union-attr]
    expected = math.sqrt(Polya(Fraction(60), rate).variance())
    assert one.root_mean_square(60) == pytest.approx(expected, rel=1e-9)


def test_what_each_axis_gets() -> None:
    where = Location(0.15, 1000, 600)
    assert where.share == pytest.approx(0.15 / (6.0 * math.sqrt(2.0)))
    assert where.cell == 100.0
    local = geometric("Geo-Local", Fraction(1), where.share, 1000).twice()
    assert local.mean_error(1000) * where.cell / 1000 == pytest.approx(317.0, abs=0.51)


# Where people live


def test_a_file_of_places_replaces_the_city(tmp_path: Path) -> None:
    file = tmp_path / "homes.csv"
    file.write_text(
        "id,east,north\n" + "".join(f"{i},{1000 + 10 * i},{5 * i}\n" for i in range(101))
    )
    town = places(file)
    assert "101 places in homes.csv" in town.source
    assert town.points.mean(axis=0) == pytest.approx([0.5 * SIDE, 0.5 * SIDE])
    assert np.ptp(town.points, axis=0) == pytest.approx([1000.0, 500.0])
    away = np.abs(town.dispersed().points[:, 0] - 0.5 * SIDE)
    assert len(away) == 52, "the half, and both at the median"
    assert away.min() == pytest.approx(250.0)
    people = town.people(500, Randomness.seeded(1))
    assert people.shape == (500, 2)
    assert cells_of(people, 500).max() < 500


def test_degrees_become_metres(tmp_path: Path) -> None:
    pytest.importorskip("pyproj")
    file = tmp_path / "homes.csv"
    file.write_text("lat,lon\n30.0,-97.0\n30.1,-97.0\n30.0,-97.1\n")
    points = places(file).points
    assert np.hypot(*(points[1] - points[0])) == pytest.approx(11_086, rel=1e-3)


AUSTIN_HOMES = """lat,lon
30.16737,-97.877248
30.45908,-97.627248
30.30,-97.75
30.16736,-97.75
30.45909,-97.75
30.30,-97.877249
30.30,-97.627247
30.091,-98.27048
30.95534,-97.3819
"""


def test_the_footnotes_rectangles_in_austin(tmp_path: Path) -> None:
    """Both ends of the rectangle are left out; the paper's box is the middle of the square."""
    pytest.importorskip("pyproj")
    file = tmp_path / "homes.csv"
    file.write_text(AUSTIN_HOMES)
    town = places(file)
    assert len(town.points) == 9
    assert town.points[-2:].mean(axis=0) == pytest.approx([0.5 * SIDE, 0.5 * SIDE])
    width, height = town.points[-1] - town.points[-2]
    assert (width, height) == pytest.approx((85_300, 95_800), rel=5e-3)
    suburbs = town.dispersed()
    assert suburbs.points.tolist() == town.points[3:].tolist()
    assert "9 places in homes.csv, of which 6 lie outside the paper's rectangle" in suburbs.source
    assert cells_of(suburbs.points, 1000).min() >= 0


def test_places_outside_the_papers_box(tmp_path: Path) -> None:
    pytest.importorskip("pyproj")
    file = tmp_path / "homes.csv"
    file.write_text(AUSTIN_HOMES + "29.0,-97.75\n")
    town = places(file)
    assert len(town.points) == 9
    assert "(1 outside the paper's box around Austin left out)" in town.source
    file.write_text("lat,lon\n30.3,-97.75\n30.31,-97.75\n")
    with pytest.raises(InputError, match=r"all of 2 places in homes\.csv lie in the rectangle"):
        places(file).dispersed()
    file.write_text("lat,lon\n30.30,-97.75\n40.00,-97.75\n40.01,-97.75\n40.00,-97.76\n")
    with pytest.raises(InputError, match="1,077 km long"):
        places(file)


@pytest.mark.thorough
def test_figures_of_dispersed_places(tmp_path: Path) -> None:
    """Figures 26, 28 and 29 draw their people from outside the rectangle, Figure 22 counts them."""
    pytest.importorskip("pyproj")
    file = tmp_path / "homes.csv"
    file.write_text(AUSTIN_HOMES)
    known = items()
    for number in (26, 28, 29):
        result = known[f"shuffler-figure-{number}"].run(Settings(quick=True, runs=2, csv=file))
        assert any("of which 6 lie outside" in words for words in result.words)
    counted = known["shuffler-figure-22"].run(Settings(csv=file))
    assert [row.ours for row in counted.rows[:2]] == [9.0, 6.0]
    assert any("footnote 6" in words for words in counted.words)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("x,y\n1,2\n", "columns named east and north"),
        ("east,north\n1,a\n", "a number in every row"),
        ("east,north\n0,0\n0,200000\n", "200 km"),
    ],
)
def test_files_that_are_no_places(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "homes.csv"
    file.write_text(text)
    with pytest.raises(InputError, match=told):
        places(file)
