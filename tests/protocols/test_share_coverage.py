"""Coverage of statements about shares: intervals, upper limits, shares nearby."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from tests.oracles.share_coverage import KINDS, LEVEL, Setting, coverage, covered, settings

import metricshuffle as ms
from metricshuffle.estimation.interval_widths import SumNoise
from metricshuffle.numerics.types import Floats
from metricshuffle.protocols.features import Cells, Features, Hats, Ramps, ShiftedBoxes
from metricshuffle.protocols.vector_intervals import KnownShares
from metricshuffle.randomizers import BoundedGeometric, KaryRandomizedResponse
from metricshuffle.spaces import Space, Users

RUNS = 100
SETTINGS = list(settings())


@pytest.mark.thorough
@pytest.mark.parametrize(
    "setting", SETTINGS, ids=lambda setting: f"{setting.name}, {setting.features}"
)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_said_of_shares_is_true(setting: Setting, kind: str) -> None:
    """At occupied points, the worst of them, and all at once.

    Intervals of smoothed shares never covered a spike.
    """
    found = coverage(setting, kind, RUNS)
    spread = math.sqrt(LEVEL * (1.0 - LEVEL) / RUNS)
    for name in ("interval", "bernstein", "at most", "nearby"):
        if name in found:
            assert found[name] >= 0.93
            assert found[f"{name}, worst"] >= LEVEL - 6.0 * spread  # the least of up to 1,024
            assert found[f"{name}, all"] >= LEVEL - 3.0 * spread
    assert bool(found) == (setting.name != "line of 64, floor and ramps")


FEW = [
    Setting("line", ms.Histogram(ms.Integers(0, 9)), Ramps(1), 0.5),
    Setting("line", ms.Histogram(ms.Integers(0, 9)), Ramps(3), 0.5),
    Setting("two values", ms.Histogram(ms.Integers(0, 1)), Ramps(1), 0.5),
    Setting(
        "a row of cells", ms.UserHistogram(Users(Space(ms.Grid(7, 1)), 1)), ShiftedBoxes(2), 0.5
    ),
    Setting("a column of cells", ms.UserHistogram(Users(Space(ms.Grid(1, 7)), 1)), Cells(), 0.5),
    Setting("one box in a way", ms.Histogram(ms.Grid(4, 4)), ShiftedBoxes(4), 0.5),
    Setting("labels", ms.Histogram(ms.Categories(list("abc"))), Cells(), 1.0),
    Setting(
        "labels, floor",
        ms.Histogram(ms.Categories(list("abc"))),
        Cells(),
        1.0,
        floor=KaryRandomizedResponse(3, 2.0),
    ),
    Setting(
        "line, floor",
        ms.Histogram(ms.Integers(0, 9)),
        Ramps(1),
        0.5,
        floor=BoundedGeometric(9, 2.0),
    ),
    Setting(
        "1 to 5 items",
        ms.UserHistogram(Users(Space(ms.Integers(0, 5)), None)),
        Ramps(2),
        0.5,
        units=12,
        most_items=5,
    ),
    Setting("hats", ms.Histogram(ms.Grid(5, 4)), Hats(2), 0.5),
]


@pytest.mark.parametrize("setting", FEW, ids=lambda setting: f"{setting.name}, {setting.features}")
@pytest.mark.parametrize("people", [1, 2, 10, 31])
def test_few_people_and_everybody_in_the_last_cell(setting: Setting, people: int) -> None:
    few = replace(setting, people=people)
    size = few.space.domain.size or 0
    generator = np.random.default_rng(people)
    runs = 200
    least = LEVEL - 4.0 * math.sqrt(LEVEL * (1.0 - LEVEL) / runs)
    for held in (
        np.full(people, size - 1),
        np.zeros(people, dtype=np.int64),
        generator.integers(size, size=people),
    ):
        sizes = np.ones(people, dtype=np.int64)
        if few.most_items is not None:
            held = np.repeat(held, 3)
            sizes = np.full(people, 3)
        found = covered(
            few,
            few.truth(held, sizes),
            np.stack([few.means(held, sizes, generator) for _ in range(runs)]),
        )
        assert min(value for name, value in found.items() if name != "length") >= least, found


def exact_misses(
    features: Features,
    space: Space,
    truth: Floats,
    people: int,
    rate: float,
    reach: int,
    level: float,
) -> dict[str, float]:
    """Probability that a statement is false, the largest over points, and jointly.

    Over all noise up to `reach`.
    """
    table = features.table(space).toarray()
    noise = SumNoise(Fraction(1), np.full(table.shape[1], rate), people)
    known = KnownShares(features, space, noise)
    drawn = np.array(list(itertools.product(range(-reach, reach + 1), repeat=table.shape[1])))
    p = math.exp(-rate)
    chances = np.prod((1.0 - p) / (1.0 + p) * p ** np.abs(drawn), axis=1)
    assert chances.sum() > 1.0 - 1e-3
    means = truth @ table + drawn / people
    assert known.above is not None
    assert known.around is not None
    around = (known.around.weights(features.table(space)) @ truth)[known.around.row_of]
    found = {}
    for simultaneous in (False, True):
        low, high = known.around_ends(means, level, simultaneous)
        for name, missed in (
            ("at most", truth > known.at_most(means, level, simultaneous)),
            ("nearby", (around < low) | (around > high)),
        ):
            found[f"{name}{', all' if simultaneous else ''}"] = float(
                chances @ missed.any(1) if simultaneous else (chances @ missed).max()
            )
    return found


@pytest.mark.parametrize(
    ("features", "space", "rate", "reach"),
    [
        (Ramps(2), Space(ms.Integers(0, 4)), 0.4, 40),
        (Ramps(3), Space(ms.Integers(0, 4)), 0.4, 40),
        pytest.param(Ramps(2), Space(ms.Integers(0, 6)), 0.6, 18, marks=pytest.mark.thorough),
        (ShiftedBoxes(2), Space(ms.Grid(3, 1)), 1.2, 8),
        pytest.param(ShiftedBoxes(2), Space(ms.Grid(2, 2)), 1.2, 8, marks=pytest.mark.thorough),
        pytest.param(Hats(2), Space(ms.Grid(3, 2)), 1.2, 8, marks=pytest.mark.thorough),
    ],
    ids=str,
)
def test_no_data_set_is_missed_more_often_than_said(
    features: Features, space: Space, rate: float, reach: int
) -> None:
    """Every data set of two people, exact noise; a low level makes misses visible."""
    size = space.domain.size or 0
    level = 0.8
    worst = 0.0
    for held in itertools.combinations_with_replacement(range(size), 2):
        misses = exact_misses(
            features, space, np.bincount(held, minlength=size) / 2.0, 2, rate, reach, level
        )
        assert max(misses.values()) <= 1.0 - level + 1e-12, (held, misses)
        worst = max(worst, misses["nearby"], misses["at most"])
    assert worst > 0.02


def test_bounds_are_never_less_than_shares_and_need_no_smoothness() -> None:
    """Without noise, people at one or two points of lines and grids; documented weights."""
    cases: list[tuple[Features, Space]] = [
        (Ramps(width), Space(ms.Integers(0, 10))) for width in (1, 2, 3, 4, 10)
    ]
    cases += [(ShiftedBoxes(width), Space(ms.Grid(5, 4))) for width in (1, 2, 3, 5)] + [
        (Hats(3), Space(ms.Grid(5, 4)))
    ]
    for features, space in cases:
        table = features.table(space)
        readings = features.bounds(space)
        size = space.domain.size or 0
        weights = readings.weights(table)
        for point in range(size):
            own = readings.points[[point]].indices
            assert len(own)
            assert np.all(
                weights[own, point] >= 1.0 - 1e-12
            )  # she counts whole, and nobody less than nothing
            assert np.all(weights[own] >= -1e-12)
        nearby = features.nearby(space)
        assert nearby is not None
        around = nearby.weights(table)
        assert np.all((around >= -1e-12) & (around <= 1.0 + 1e-12))
        if isinstance(features, Ramps):
            assert np.all(around[nearby.row_of, np.arange(size)] >= 0.5 - 1e-12)
    ramps = (
        Ramps(4)
        .nearby(Space(ms.Integers(0, 12)))
        .weights(Ramps(4).table(Space(ms.Integers(0, 12))))
    )
    tents = np.maximum(
        1.0 - np.abs(np.subtract.outer(np.arange(0, 13, 4), np.arange(13))) / 4.0, 0.0
    )
    np.testing.assert_allclose(ramps, tents, atol=1e-12)
    np.testing.assert_allclose(ramps.sum(axis=0), 1.0)
    grid = Space(ms.Grid(6, 5))
    boxes = ShiftedBoxes(3).nearby(grid)
    column, row = grid.domain.all_values().T
    ways = [((column + shift) // 3, (row + shift) // 3) for shift in range(3)]
    shared = np.mean(
        [np.equal.outer(across, across) & np.equal.outer(up, up) for across, up in ways], axis=0
    )
    np.testing.assert_allclose(
        boxes.weights(ShiftedBoxes(3).table(grid))[boxes.row_of], shared, atol=1e-12
    )
