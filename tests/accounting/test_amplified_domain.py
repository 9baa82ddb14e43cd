"""Every pair of a domain at once: never below the pair's own bound, little above it, and never closed."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import pytest
from tests.oracles.multiset_laws import Floats, divergence, multiset_law, private_distances

from metricshuffle.accounting import _clone_counts, amplified_domain
from metricshuffle.accounting.amplified_domain import AmplifiedMetric, amplified_metric
from metricshuffle.accounting.clones import ClonePair, delta_upper, epsilon_upper
from metricshuffle.errors import ConditionError, InputError, NotCertified
from metricshuffle.spaces import Categories, Discrete, Euclidean, Grid, Integers, Interval, Matrix, Metric, Space, Threshold, Tree, closure


def labels(count: int) -> Categories:
    return Categories([str(i) for i in range(count)])


def check(found: AmplifiedMetric, distances: Floats, reaches: Floats, *, loss: float) -> None:
    """Each entry of the matrix against the bound of the pair itself."""
    matrix = found.matrix()
    assert np.array_equal(matrix, matrix.T)
    assert not matrix.diagonal().any()
    rng = np.random.default_rng(4)
    for i, j in rng.integers(0, len(matrix), (25, 2)):
        exact = epsilon_upper(
            ClonePair(*(found.rate * float(v) for v in (distances[i, j], reaches[i], reaches[j]))), found.users, found.delta
        )
        assert exact * (1 - 1e-9) <= matrix[i, j] <= exact * (1 + loss)
        assert matrix[i, j] <= found.by_distance(float(distances[i, j])) * (1 + 1e-3)


def test_a_line() -> None:
    found = amplified_metric(Integers(10, 70), 0.1, 5000, 1e-6)
    values = np.arange(10, 71)
    check(found, np.abs(np.subtract.outer(values, values)), np.maximum(values - 10, 70 - values), loss=0.1)
    matrix = found.matrix()
    assert found.epsilon(12, 30) == found.epsilon(30, 12) == matrix[2, 20]
    assert found.epsilon(33, 33) == 0
    assert matrix[25, 35] < matrix[0, 10]  # the middle is nearer to everybody
    assert found.reached_by == "ends and corners of the domain"


def test_a_grid_and_a_capped_grid() -> None:
    cells = Grid(9, 6).all_values().astype(float)
    distances = np.linalg.norm(cells[:, None] - cells[None], axis=2)
    check(amplified_metric(Grid(9, 6), 0.4, 3000, 1e-6, reach_levels=16), distances, distances.max(axis=1), loss=0.2)
    capped = np.minimum(distances, 4.0)
    found = amplified_metric(Space(Grid(9, 6), Threshold(Euclidean(), 4.0)), 0.4, 3000, 1e-6, reach_levels=16)
    check(found, capped, capped.max(axis=1), loss=0.2)
    assert found.epsilon((0, 0), (8, 5)) == found.matrix()[0, -1]


def test_a_tree() -> None:
    rng = np.random.default_rng(3)
    parents = [-1, *(int(rng.integers(0, i)) for i in range(1, 40))]
    tree = Tree(parents, rng.uniform(0.1, 2.0, 40))
    distances = tree.pairwise(range(40), range(40))
    found = amplified_metric(Space(labels(40), tree), 0.3, 4000, 1e-6)
    check(found, distances, distances.max(axis=1), loss=0.2)
    assert found.epsilon("3", "17") == found.matrix()[3, 17]
    assert found.reached_by == "the ends of a longest way"


def test_an_arbitrary_table() -> None:
    points = np.random.default_rng(6).random((30, 3)) * 4
    distances = np.linalg.norm(points[:, None] - points[None], axis=2)
    distances = np.maximum(distances, distances.T)
    found = amplified_metric(Space(labels(30), Matrix(distances)), 1.0, 10**6, 1e-5)
    check(found, distances, distances.max(axis=1), loss=0.2)
    assert found.reached_by == "every pair"


class Clock(Metric):
    """The shorter way around a clock: every point reaches equally far."""

    kind: Literal["clock-of-the-tests"] = "clock-of-the-tests"
    hours: int = 24

    def pairwise(self, points_a: object, points_b: object) -> Floats:
        apart = np.abs(np.subtract.outer(np.asarray(points_a, dtype=float), np.asarray(points_b, dtype=float))) % self.hours
        return np.asarray(np.minimum(apart, self.hours - apart))


def test_where_all_points_are_alike_only_the_distance_matters() -> None:
    found = amplified_metric(Space(Integers(0, 23), Clock()), 0.25, 1000, 1e-5)
    assert found.reach_levels.shape == (1,)
    check(found, Clock().pairwise(range(24), range(24)), np.full(24, 12.0), loss=0.05)
    assert found.epsilon(23, 2) == found.by_distance(3) == found.epsilon(10, 13)
    assert found.by_distance(100) == found.by_distance(12)


def test_discrete_is_ordinary_local_privacy() -> None:
    found = amplified_metric(Space(labels(5), Discrete()), 1.0, 1000, 1e-6)
    assert found.epsilon("0", "4") == pytest.approx(0.148670616354, rel=2e-3)
    assert found.epsilon("0", "4") >= 0.148670616354


def test_a_cycle_needs_every_source() -> None:
    """Two farthest points give reaches of 3 and 4 hops for neighbours on a cycle of 12, the truth is 6: an explicit mechanism
    breaks what would follow."""
    links = np.full((12, 12), math.inf)
    for i in range(12):
        links[i, (i + 1) % 12] = links[(i + 1) % 12, i] = 0.5
    np.fill_diagonal(links, 0.0)
    distances = closure(links)
    a, b, c = 3, 4, 9
    masses = np.exp(-distances[:, [a, b, c]])
    sums = masses.sum(axis=1)
    pairs = [(i, j) for i in range(12) for j in range(i)]
    scale = max((math.exp(distances[i, j]) * max(sums[i], sums[j]) - min(sums[i], sums[j])) / math.expm1(distances[i, j]) for i, j in pairs)
    channel = np.hstack([masses / scale, (1 - sums / scale)[:, None]])
    assert (private_distances(channel) <= distances + 1e-9).all()
    rest = [channel[c]] * 19
    exact = divergence(multiset_law([channel[a], *rest]), multiset_law([channel[b], *rest]), 0.1)
    assert delta_upper(ClonePair(0.5, 1.5, 2.0), 20, 0.1) < 0.8 * exact < exact < delta_upper(ClonePair(0.5, 3.0, 3.0), 20, 0.1)

    found = amplified_metric(Space(labels(12), Matrix(distances)), 1.0, 1000, 1e-6)
    assert epsilon_upper(ClonePair(0.5, 1.5, 2.0), 1000, 1e-6) == pytest.approx(0.13054, abs=1e-5)
    assert epsilon_upper(ClonePair(0.5, 3.0, 3.0), 1000, 1e-6) == pytest.approx(0.24209, abs=1e-5)
    assert found.epsilon("3", "4") >= 0.24208


def test_the_result_is_not_closed_by_shortest_paths() -> None:
    """Steps so small that delta covers each of them: their sum is 0, but the way across is not hidden at 0."""
    matrix = amplified_metric(Integers(0, 40), 0.01, 1, 0.006).matrix()
    assert not matrix.diagonal(1).any()
    assert matrix[0, 40] > 0.3
    assert closure(matrix)[0, 40] == 0.0  # what must not be reported


def test_semi_metrics_are_refused_with_the_triple_or_closed() -> None:
    table = np.array([[0, 1, 5], [1, 0, 2], [5, 2, 0]], dtype=float)
    with pytest.raises(InputError, match=r"\(i, j, k\) = \(0, 1, 2\)"):
        Matrix(table)

    class Crooked(Metric):
        kind: Literal["crooked-of-the-tests"] = "crooked-of-the-tests"

        def pairwise(self, points_a: object, points_b: object) -> Floats:
            return np.asarray(np.subtract.outer(np.asarray(points_a, dtype=float), np.asarray(points_b, dtype=float)) ** 2)

    with pytest.raises(ConditionError, match=r"open triangle: d\(0, 2\) = 4 > 1 \+ 1 by way of 1"):
        amplified_metric(Space(Integers(0, 9), Crooked()), 0.1, 100, 1e-6)
    assert amplified_metric(Space(labels(3), Matrix(closure(table))), 0.5, 1000, 1e-6).epsilon("0", "2") <= 1.5


def test_many_points_without_closed_forms_take_the_diameter_and_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(amplified_domain, "MOST_CHECKED", 20)
    found = amplified_metric(Space(Integers(0, 23), Clock()), 0.25, 1000, 1e-5)
    assert found.by_diameter
    assert "the diameter for every point" in found.reached_by
    assert found.largest == pytest.approx(3.0)
    assert found.epsilon(0, 5) == found.by_distance(5) == found.matrix()[0, 5]


def test_a_continuum_is_asked_pair_by_pair() -> None:
    found = amplified_metric(Interval(0.0, 100.0), 0.05, 10_000, 1e-6)
    exact = epsilon_upper(ClonePair(0.5, 4.5, 4.0), 10_000, 1e-6)
    assert exact <= found.epsilon(10.0, 20.0) <= exact * 1.1
    with pytest.raises(NotCertified, match="infinitely many"):
        found.matrix()
    with pytest.raises(NotCertified, match="20,001"):
        amplified_metric(Integers(0, 20_000), 0.001, 100, 1e-6).matrix()
    assert found.epsilon(10.0, 10.0 + 1e-9) <= 0.05 * 1.000001e-9  # below the last level the local epsilon is the answer


def test_a_broken_number_leaves_the_local_epsilon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_clone_counts.CloneCounts, "delta", lambda *_: math.nan)
    found = amplified_metric(Integers(0, 10), 0.1, 10_000, 1e-6)
    assert found.epsilon(0, 7) == pytest.approx(0.7, rel=1e-12)
    assert found.matrix()[0, 7] == found.epsilon(0, 7) >= 0.7
    assert amplified_metric(Integers(0, 10), 0.1, 10_000, 0.0).epsilon(0, 7) == found.epsilon(0, 7)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: amplified_metric(Integers(0, 10), 0.0, 10, 1e-6), "rate must be"),
        (lambda: amplified_metric(Integers(0, 10), 1.0, 0, 1e-6), "users must be"),
        (lambda: amplified_metric(Integers(0, 10), 1.0, 10, 1.5), "delta must be"),
        (lambda: amplified_metric(Integers(0, 10), 1.0, 10, 1e-6, reach_levels=0), "reach_levels must be"),
        (lambda: amplified_metric(Space(labels(2), Matrix([[0, 0], [0, 0]])), 1.0, 10, 1e-6), "rate \\* diameter"),
        (lambda: amplified_metric(Integers(0, 10), 1.0, 10, 1e-6).by_distance(math.nan), "distance must be"),
        (lambda: amplified_metric(Integers(0, 10), 1.0, 10, 1e-6).epsilon(0, 11), "not in whole numbers"),
    ],
)
def test_wrong_input_is_a_sentence(call: object, words: str) -> None:
    with pytest.raises(InputError, match=words):
        call()  # type: ignore[operator]


@pytest.mark.slow
def test_ten_thousand_points() -> None:
    found = amplified_metric(Grid(100, 100), 0.07, 10**6, 1e-8)
    matrix = found.matrix()
    assert matrix.shape == (10_000, 10_000)
    assert found.epsilon((3, 4), (50, 60)) == matrix[403, 6050]
