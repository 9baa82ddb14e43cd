"""Distances of people's values: quartiles of all pairs or of a sample."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from tests.tables import check_all

from metricshuffle.errors import InputError
from metricshuffle.planning.pairwise_distances import MAX_PAIRS, summarize_distances
from metricshuffle.queries import Centroid, Histogram, Mean, Sum, UserHistogram
from metricshuffle.spaces import Categories, Grid, Integers, Interval, Space, users_of

RNG = np.random.default_rng(7)
GRID = Grid(9, 7, 50.0, "m")


def by_hand(distances: list[float]) -> tuple[float, ...]:
    """The least distance that a quarter, half and three quarters of the pairs do not exceed."""
    ranked = sorted(distances)
    return tuple(
        next(apart for place, apart in enumerate(ranked, 1) if 4 * place >= quarter * len(ranked))
        for quarter in (1, 2, 3)
    )


NUMBERS: dict[str, tuple[Any, Any, Any]] = {
    "whole": (Mean(Integers(-5, 100)), RNG.integers(-5, 101, 60), lambda a, b: abs(a - b)),
    "real": (Sum(Interval(0.0, 8.0)), RNG.integers(0, 65, 60) / 8, lambda a, b: abs(a - b)),
    "bins": (
        Histogram(Integers(0, 119), 10),
        RNG.integers(0, 120, 60),
        lambda a, b: 10 * abs(a // 10 - b // 10),
    ),
    "map": (Histogram(GRID), RNG.integers(0, 7, (60, 2)), lambda a, b: 50 * np.hypot(*(a - b))),
    "centroid": (Centroid(GRID), RNG.integers(0, 7, (60, 2)), lambda a, b: 50 * np.hypot(*(a - b))),
}


@check_all(("query", "values", "apart"), NUMBERS.values())
def test_quartiles_of_all_pairs(query: Any, values: Any, apart: Any) -> None:
    spread = summarize_distances(query, values)
    distances = [float(apart(a, b)) for a, b in combinations(values, 2)]
    assert spread.all_pairs
    assert spread.quartiles == pytest.approx(by_hand(distances), abs=1e-4)
    middle = spread.quartiles[1]
    assert spread.within(middle) == pytest.approx(np.mean(np.array(distances) <= middle + 1e-4))


def test_many_people_are_sampled_and_the_number_of_pairs_is_told() -> None:
    values = RNG.integers(0, 1001, 20_000)
    spread = summarize_distances(Mean(Integers(0, 1000, "kcal")), values)
    assert (len(spread.distances), spread.all_pairs) == (MAX_PAIRS, False)
    # |x - x'| of uniform numbers: the share of pairs within d is 1 - (1 - d)^2
    assert spread.quartiles == pytest.approx(
        [1000 * (1 - np.sqrt(1 - part)) for part in (0.25, 0.5, 0.75)], rel=0.03
    )
    (told,) = spread.sentences()
    assert told.startswith("NOT PRIVATE")
    assert "from 100,000 pairs drawn at random" in told
    assert summarize_distances(Mean(Integers(0, 1000)), values).quartiles == spread.quartiles, (
        "the same values say the same"
    )


def test_users_are_as_far_apart_as_the_earth_mover_says() -> None:
    people = users_of(Space(Integers(0, 23, "h")))
    held = [RNG.integers(0, 24, size) for size in RNG.integers(1, 6, 12)]
    spread = summarize_distances(UserHistogram(people), held)
    assert spread.quartiles == pytest.approx(
        by_hand([people.distance(a, b) for a, b in combinations(held, 2)])
    )
    assert "earth mover's distance" in spread.sentences(2.0)[0]
    assert spread.sentences(2.0)[1].endswith(
        "% of the pairs are at most 2 h apart, the distance of this plan."
    )


def test_places_of_users_are_compared_item_by_item() -> None:
    held = [RNG.integers(0, 7, (size, 2)) for size in RNG.integers(1, 6, 30)]
    spread = summarize_distances(UserHistogram(users_of(Space(GRID))), held)
    assert spread.of_items
    assert "an item of one and an item of the other" in spread.sentences()[0]
    assert np.isin(
        np.round(spread.distances),
        np.round([50 * np.hypot(x, y) for x in range(7) for y in range(7)]),
    ).all()


def test_labels_and_single_people_have_no_distances() -> None:
    with pytest.raises(InputError, match="any two labels are 1 apart"):
        summarize_distances(Histogram(Categories(["a", "b"])), ["a", "b"])
    with pytest.raises(InputError, match="at least two people"):
        summarize_distances(Mean(Integers(0, 9)), [3])


def test_the_picture_counts_every_pair_once() -> None:
    values = [0, 1, 3, 10, 10]  # pairs at 0, 1, 2, 3, 7, 7, 9, 9, 10, 10
    spread = summarize_distances(Mean(Integers(0, 20, "min")), values)
    edges, shares = spread.histogram()
    assert edges == pytest.approx(np.arange(11.0))
    assert shares == pytest.approx([0.2, 0.1, 0.1, 0, 0, 0, 0.2, 0, 0.2, 0.2])
    lines = spread.picture(3.0)
    assert len(lines) == 10
    assert lines[0].split() == ["up", "to", "1", "min", "#" * 40, "20.0", "%"]
    assert [line for line in lines if "the distance" in line] == [lines[2]]
    assert "#" * 20 + " " in lines[2]
    same = summarize_distances(Mean(Integers(0, 20)), [4, 4, 4])
    assert same.histogram()[1].sum() == pytest.approx(1.0)
