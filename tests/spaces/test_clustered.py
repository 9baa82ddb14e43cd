"""Clusters and circles as metrics."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tables import check_all

from metricshuffle.errors import DomainError, InputError
from metricshuffle.randomizers.clustered_response import ClusteredResponse
from metricshuffle.spaces import Categories, Circle, Clustered, Integers, Metric, Space
from metricshuffle.testing import check_metric


@check_all(("clusters", "places", "inner"), [(2, 2, 0.1), (3, 4, 0.25), (5, 2, 1.0)])
def test_clusters_obey_the_axioms_and_are_distances_along_their_tree(
    clusters: int, places: int, inner: float
) -> None:
    metric = Clustered(clusters, places, inner)
    points = np.arange(clusters * places)
    check_metric(metric, points.tolist())
    assert metric.tree.pairwise(points, points) == pytest.approx(
        metric.pairwise(points, points), rel=1e-15
    )
    assert metric.size == len(points)


def test_clusters_are_those_of_the_randomizer() -> None:
    metric = Clustered(3, 4, 0.25)
    response = ClusteredResponse(3, 4, 0.25, 2.0)
    for a in range(12):
        for b in range(12):
            assert metric(a, b) == response.distance(a, b)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.floats(-100, 100).map(lambda number: round(number, 3)), min_size=1, max_size=8),
    st.sampled_from([1.0, 7.5, 24.0]),
)
def test_a_circle_obeys_the_axioms(points: list[float], circumference: float) -> None:
    check_metric(Circle(circumference), points, pseudo=True)


def test_the_shorter_way_round() -> None:
    hours = Circle(24)
    assert hours(23, 1) == 2
    assert hours(1, 23) == 2
    assert hours(0, 12) == 12
    assert hours(-1, 23) == 0
    assert hours(30, 5) == 1
    day = Space(Integers(0, 23, unit="hours"), hours)
    assert day.unit == "hours"
    assert day.diameter == 12


@check_all("metric", [Clustered(3, 4, 0.25), Circle(7)])
def test_both_travel_through_json(metric: Metric) -> None:
    again = Metric.of_kind(metric.model_dump(mode="json"))
    assert again == metric
    assert hash(again) == hash(metric)


@check_all(
    ("make", "words"),
    [
        (lambda: Clustered(1, 4, 0.5), "at least 2 clusters"),
        (lambda: Clustered(2, 1, 0.5), "at least 2 clusters"),
        (lambda: Clustered(2, 2, 1.5), "inner must be at most 1"),
        (lambda: Clustered(2, 2, 0.0), "inner must be > 0"),
        (lambda: Clustered(2**13, 2**12, 0.5), r"up to 2\^24"),
        (lambda: Circle(0), "circumference must be > 0"),
        (lambda: Circle(1).pairwise([(1, 2)], [(1, 2)]), "measures numbers"),
        (lambda: Space(Categories(["a", "b"]), Clustered(2, 2, 0.5)), "defined on 4 points"),
    ],
)
def test_what_is_refused(make: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        make()


def test_points_that_are_none() -> None:
    with pytest.raises(DomainError, match="the 4 points of 2 clusters"):
        Clustered(2, 2, 0.5)(0, 4)
