"""Shares from features: exact without noise, unbiased and accurate with it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import pytest
from numpy.typing import NDArray
from pydantic import TypeAdapter
from scipy.sparse import csr_array
from tests.tables import check_all

from metricshuffle.errors import InputError, NotCertified
from metricshuffle.protocols.features import (
    AnyFeatures,
    Cells,
    Edges,
    Features,
    Hats,
    Ramps,
    ShiftedBoxes,
    space_of,
)
from metricshuffle.queries import Histogram, Mean, UserHistogram
from metricshuffle.randomizers.randomized_response import KaryRandomizedResponse
from metricshuffle.spaces import (
    Absolute,
    Categories,
    Circle,
    Clustered,
    Euclidean,
    Grid,
    Integers,
    Interval,
    Manhattan,
    Matrix,
    Metric,
    Scaled,
    Space,
    Tree,
    earth_mover,
    nested_squares,
    users_of,
)
from metricshuffle.spaces.earth_mover import finite_space

Floats = NDArray[np.float64]
LINE = Space(Integers(3, 14))
PLANE = Space(Grid(8, 6, 0.5))
TREE = finite_space(Tree([-1, 0, 0, 1, 1, 2, 3, 3], [0, 0.1, 0.3, 0.7, 0.123, 0.33, 0.77, 0.01]))
IDENTIFIED: list[tuple[Features, Space]] = [
    (Ramps(1), LINE),
    (Ramps(1), Space(Integers(0, 1))),
    (Cells(), PLANE),
    (Cells(), Space(Categories(list("abc")))),
    (Cells(), Space(Integers(0, 5), Circle(6))),
    (ShiftedBoxes(1), PLANE),
    (Hats(1), PLANE),
    (Edges(), TREE),
    (Edges(), Space(Categories(list("ab")))),
    (Edges(), finite_space(Clustered(2, 3, 0.2))),
    (Edges(), nested_squares(2, 4.0)),
    (
        Edges(),
        finite_space(Matrix(np.abs(np.subtract.outer([0.0, 1.0, 3.0, 7.0], [0.0, 1.0, 3.0, 7.0])))),
    ),
]
COARSE: list[tuple[Features, Space]] = [
    (Ramps(3), LINE),
    (ShiftedBoxes(3), PLANE),
    (Hats(2), PLANE),
]


def some_shares(space: Space, seed: int) -> Floats:
    return np.random.default_rng(seed).dirichlet(np.full(space.domain.size or 0, 0.7))


def test_tables_are_what_they_say() -> None:
    """By definition, point by point."""
    for width in (1, 2, 3, 5, 11):
        table = Ramps(width).table(LINE).toarray()
        for point in range(12):
            windows = [
                [t for t in range(start, min(start + width, 11)) if t >= point]
                for start in range(0, 11, width)
            ]
            assert table[point].tolist() == [len(window) for window in windows]
    for width in (1, 2, 3, 4, 7):
        boxes = sorted(
            {
                (s, (x + s) // width, (y + s) // width)
                for s in range(width)
                for x in range(8)
                for y in range(6)
            }
        )
        boxes = [box for box in boxes if sum(other[0] == box[0] for other in boxes) > 1]
        table = ShiftedBoxes(width).table(PLANE).toarray()
        assert table.shape == (48, len(boxes)) == (48, len(ShiftedBoxes(width).weights(PLANE)))
        expected = [
            [int((x + s) // width == a and (y + s) // width == b) for s, a, b in boxes]
            for x, y in PLANE.domain.all_values()
        ]
        assert sorted(map(tuple, table.T.tolist())) == sorted(
            map(tuple, np.array(expected).T.tolist())
        )
        nodes = [(a, b) for b in range(0, 5 + width, width) for a in range(0, 7 + width, width)]
        hats = [
            [max(width - abs(x - a), 0) * max(width - abs(y - b), 0) for a, b in nodes]
            for x, y in PLANE.domain.all_values()
        ]
        assert Hats(width).table(PLANE).toarray().tolist() == hats
        assert np.all(np.sum(hats, axis=1) == width**2)
    assert Cells().table(PLANE).toarray().tolist() == np.eye(48, dtype=int).tolist()
    # Edges: of points 0 .. 7, those below each of the seven links.
    below = {1: {1, 3, 4, 6, 7}, 2: {2, 5}, 3: {3, 6, 7}, 4: {4}, 5: {5}, 6: {6}, 7: {7}}
    assert {tuple(np.flatnonzero(column)) for column in Edges().table(TREE).toarray().T} == {
        tuple(sorted(part)) for part in below.values()
    }


@pytest.mark.parametrize(("features", "space"), [*IDENTIFIED, *COARSE], ids=str)
def test_tables_hold_whole_numbers_that_change(features: Features, space: Space) -> None:
    table = features.validate_table(space)
    assert isinstance(table, csr_array)
    assert table.dtype == np.int64
    assert table.shape[0] == space.domain.size
    assert np.all(table.toarray().max(axis=0) > table.toarray().min(axis=0))
    assert table.toarray().min() >= 0
    assert len(features.weights(space)) == table.shape[1]


@check_all(("features", "space"), IDENTIFIED)
def test_without_noise_the_shares_come_back(features: Features, space: Space) -> None:
    truth = np.array([some_shares(space, seed) for seed in range(4)])
    means = truth @ features.table(space)
    errors = np.full(len(features.weights(space)), 1e-7)
    found = features.unbiased(space, means, errors)
    assert found is not None
    np.testing.assert_allclose(found[0], truth, atol=1e-12)
    np.testing.assert_allclose(features.shares(space, means, errors), truth, atol=1e-5)
    np.testing.assert_array_equal(
        features.shares(space, means[1], errors), features.shares(space, means, errors)[1]
    )


@check_all(("features", "space"), COARSE)
def test_coarse_features_bring_people_nearly_back(features: Features, space: Space) -> None:
    """And say that single points cannot be told apart."""
    smooth = np.exp(-np.abs(np.linspace(-1.0, 1.0, space.domain.size or 0)))
    truth = smooth / smooth.sum()
    means = truth @ features.table(space)
    errors = np.full(len(features.weights(space)), 1e-4)
    assert features.unbiased(space, means, errors) is None
    found = features.shares(space, means, errors)
    assert found.sum() == pytest.approx(1.0, abs=1e-12)
    assert found.min() >= 0.0
    assert earth_mover(space, truth, found).distance <= 0.03 * space.diameter


@check_all(("features", "space"), IDENTIFIED)
def test_unbiased_shares_scatter_as_their_standard_errors_say(
    features: Features, space: Space
) -> None:
    truth = some_shares(space, 1)
    runs = 4000
    generator = np.random.default_rng(9)
    errors = generator.uniform(0.01, 0.05, len(features.weights(space)))
    means = truth @ features.table(space) + generator.laplace(
        0.0, errors / math.sqrt(2.0), (runs, len(errors))
    )
    found = features.unbiased(space, means, errors)
    assert found is not None
    assert np.all(np.abs(found[0].mean(axis=0) - truth) <= 5.0 * found[1] / math.sqrt(runs))
    np.testing.assert_allclose(found[0].std(axis=0), found[1], rtol=0.12)


@check_all("width", [1, 3, 4, 11])
def test_the_distribution_function_is_measured_over_windows(width: int) -> None:
    truth = some_shares(LINE, 4)
    features = Ramps(width)
    errors = np.linspace(0.1, 0.2, len(features.weights(LINE)))
    known = features.cumulative(LINE, truth @ features.table(LINE), errors)
    reached = np.cumsum(truth)
    for first, last, share, error, given in zip(
        known.first, known.last, known.shares, known.errors, errors, strict=True
    ):
        assert share == pytest.approx(reached[first : last + 1].mean(), abs=1e-12)
        assert error == pytest.approx(given / (last - first + 1))
    assert known.first[0] == 0
    assert known.last[-1] == 10
    assert Cells().cumulative(PLANE, np.zeros(48), np.ones(48)) is None
    with pytest.raises(InputError, match="one mean and one standard error"):
        features.cumulative(LINE, np.zeros(99), errors)


@check_all(("features", "space"), [*IDENTIFIED, *COARSE])
def test_values_that_were_randomized_first_are_undone(features: Features, space: Space) -> None:
    """Where the counted law is known; without noise the result has the same features."""
    size = space.domain.size or 0
    truth = some_shares(space, 3)
    blur = 0.6 * np.eye(size) + 0.4 * np.random.default_rng(4).dirichlet(np.ones(size), size)
    errors = np.full(len(features.weights(space)), 1e-4)
    table = features.table(space)
    found = features.shares(space, truth @ blur @ table, errors, (blur,))
    assert found.sum() == pytest.approx(1.0, abs=1e-12)
    assert found.min() >= 0.0
    np.testing.assert_allclose(found @ blur @ table, truth @ blur @ table, atol=1e-3)
    if features.unbiased(space, truth @ table, errors) is not None:
        np.testing.assert_allclose(found, truth, atol=5e-3)


class AxisThresholds(Features):
    """Somebody's own: thresholds along both axes of a grid, which tell margins and no more."""

    kind: Literal["test-axis-thresholds"] = "test-axis-thresholds"

    @classmethod
    def offered(cls, space: Space, people: int, rate: float) -> Iterator[AxisThresholds]:
        # it is known to every test of the process, and would be offered to their plans
        yield from ()

    def table(self, space: Space) -> csr_array:
        columns, rows = space.domain.all_values().T
        over = [columns >= edge for edge in range(1, columns.max() + 1)] + [
            rows >= edge for edge in range(1, rows.max() + 1)
        ]
        return csr_array(np.column_stack(over).astype(np.int64))


def test_a_set_of_ones_own_needs_a_table_and_is_certified_over_all_pairs() -> None:
    own = AxisThresholds()
    streets, straight = (Space(Grid(8, 6, 0.5), metric) for metric in (Manhattan(), Euclidean()))
    rates = 0.3 * own.weights(streets)
    assert own.slope(streets, rates) == pytest.approx(0.6, rel=1e-11)
    assert own.slope(streets, rates) >= 0.6
    assert own.slope(straight, rates) == pytest.approx(0.6 * math.sqrt(2.0), rel=1e-11)
    (move,) = own.moves(straight, rates, 1.0)
    assert (move.sizes.tolist(), move.counts.tolist()) == ([1], [2])
    truth = np.outer(
        some_shares(Space(Integers(0, 5)), 1), some_shares(Space(Integers(0, 7)), 2)
    ).ravel()
    found = own.shares(straight, truth @ own.table(straight), np.full(12, 1e-6))
    np.testing.assert_allclose(found @ own.table(straight), truth @ own.table(straight), atol=1e-4)
    assert own.unbiased(straight, np.zeros(12), np.ones(12)) is None
    with pytest.raises(NotCertified, match="all pairs of at most 5,000 points"):
        own.slope(Space(Grid(80, 80)), np.ones(158))
    with pytest.raises(InputError, match="distances under OwnMetric"):
        list(own.moves(Space(Grid(3, 3), OwnMetric()), np.ones(4), 1.0))


class DatabaseDamaged(AxisThresholds):
    """Whatever table it is given."""

    kind: Literal["test-damaged"] = "test-damaged"  # type: ignore[assignment]
    given: Any

    def table(self, space: Space) -> csr_array:
        return self.given  # type: ignore[no-any-return]


@check_all(
    ("given", "told"),
    [
        (np.eye(4, dtype=np.int64), "must come as a scipy.sparse.csr_array of int64, got ndarray"),
        (csr_array(np.eye(4)), "csr_array of int64"),
        (csr_array(np.eye(3, dtype=np.int64)), "a row for each of 4 points"),
        (csr_array((4, 0), dtype=np.int64), "and a column"),
        (csr_array(-np.eye(4, dtype=np.int64)), "between 0 and"),
        (csr_array(2**31 * np.eye(4, dtype=np.int64)), "between 0 and"),
        (
            csr_array(np.column_stack([[0, 1, 0, 0], [2, 2, 2, 2]]).astype(np.int64)),
            "feature 1 of test-damaged is the same at all points",
        ),
    ],
)
def test_tables_that_are_none_are_refused(given: Any, told: str) -> None:
    with pytest.raises(InputError, match=told):
        DatabaseDamaged(given=given).validate_table(Space(Grid(2, 2)))


class OwnMetric(Metric):
    """Is none."""

    kind: Literal["test-own-metric"] = "test-own-metric"

    def pairwise(self, points_a: Any, points_b: Any) -> Floats:
        return np.full((len(points_a), len(points_b)), math.nan)


@check_all("features", [Ramps(3), ShiftedBoxes(2), Hats(2), Cells(), Edges(), AxisThresholds()])
def test_every_set_is_written_down_and_read_back(features: Features) -> None:
    adapter = TypeAdapter(AnyFeatures)
    assert adapter.validate_json(adapter.dump_json(features)) == features


def test_the_points_that_a_question_counts() -> None:
    """In the order of its codes, at its distances."""
    for query in (
        Histogram(Integers(3, 9)),
        Histogram(Integers(0, 99, "km"), 10),
        Histogram(Interval(0.0, 2.0, "h"), 0.25),
        Histogram(Grid(4, 3, 0.2, "km")),
        Histogram(Categories(list("abc"))),
    ):
        space = space_of(query)
        points = space.domain.points(space.domain.all_values())
        assert space.domain.size == query.cells
        assert space.unit == query.unit
        apart = space.metric.pairwise(points, points)
        expected = [[query.distance(a, b) for b in range(query.cells)] for a in range(query.cells)]
        np.testing.assert_allclose(apart, expected, rtol=1e-14, atol=1e-15)
    people = users_of(Space(Integers(0, 9), Scaled(Absolute(), 0.5)), 3)
    assert space_of(UserHistogram(people)) == people.items_in
    with pytest.raises(InputError, match="finite space"):
        space_of(Mean(Integers(0, 9)))


def bumps(places: Floats) -> Floats:
    """Three clusters: (middle, width, weight) in parts of the range; a middle for each axis."""
    parts = (((0.25, 0.3), 0.06, 0.5), ((0.7, 0.6), 0.1, 0.3), ((0.5, 0.85), 0.04, 0.2))
    if places.ndim == 1:
        parts = (((0.25,), 0.05, 0.5), ((0.6,), 0.08, 0.3), ((0.85,), 0.02, 0.2))  # type: ignore[assignment]
    at = places.reshape(len(places), -1)
    heights = [
        weight / wide ** at.shape[1] * np.exp(-0.5 * ((at - middle) ** 2).sum(axis=1) / wide**2)
        for middle, wide, weight in parts
    ]
    return np.asarray(sum(heights) / np.sum(heights))


def errors_of(
    features: Features,
    space: Space,
    rate: float,
    people: int,
    runs: int,
    generator: np.random.Generator,
) -> tuple[float, float]:
    """Mean earth mover's distance and mean absolute error of a share; noise of h = n.

    People hold 20 items each.
    """
    points = space.domain.all_values()
    truth = generator.multinomial(20 * people, bumps(points / points.max())) / (20 * people)
    weights = features.weights(space)
    ratio = np.exp(-weights * (rate / features.slope(space, weights)) / 20)
    size = (runs, len(weights))
    noise = generator.geometric(1.0 - ratio, size) - generator.geometric(1.0 - ratio, size)
    found = features.shares(
        space,
        truth @ features.table(space) + noise / (20 * people),
        np.sqrt(2.0 * ratio) / (1.0 - ratio) / (20 * people),
    )
    return float(np.mean([earth_mover(space, truth, one).distance for one in found])), float(
        np.abs(found - truth).mean()
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("space", "people", "expected"),
    [
        (Space(Integers(0, 63)), 500, 0.0055),
        (Space(Integers(0, 63)), 2_000, 0.0024),
        (Space(Integers(0, 63)), 100_000, 0.00006),
        (Space(Integers(0, 999)), 500, 0.0055),
        (Space(Integers(0, 999)), 2_000, 0.0023),
        (Space(Integers(0, 999)), 100_000, 0.00028),
        (Space(Grid(32, 32, 100.0), Manhattan()), 500, 117.0),
        (Space(Grid(32, 32, 100.0), Manhattan()), 2_000, 51.0),
        (Space(Grid(32, 32, 100.0), Manhattan()), 100_000, 4.9),
    ],
    ids=str,
)
def test_clustered_people_are_found_as_accurately_as_promised(
    space: Space, people: int, expected: float
) -> None:
    """Best offer for epsilon 1 at a tenth of the range.

    Errors as a part of the range on lines, in metres on grids.
    """
    generator = np.random.default_rng(20)
    reach = space.diameter if isinstance(space.domain, Integers) else 3_200.0
    unit = reach if isinstance(space.domain, Integers) else 1.0
    rate = 10.0 / reach
    found = {
        str(features): errors_of(features, space, rate, people, 16, generator)
        for kind in (Ramps, ShiftedBoxes, Cells)
        for features in kind.offered(space, people, rate)
    }
    told = {
        name: (round(moved / unit, 6), round(share, 7)) for name, (moved, share) in found.items()
    }
    print(f"{people:,} people on {space.domain}: {told}")  # with pytest -s
    assert min(moved for moved, _ in found.values()) / unit <= 1.25 * expected


def test_rows_and_columns_of_a_grid_are_blurred_like_the_table_of_both() -> None:
    space = Space.of(Grid(5, 4))
    generator = np.random.default_rng(8)
    up, across = (
        0.5 * np.eye(size) + 0.5 * generator.dirichlet(np.ones(size), size) for size in (4, 5)
    )
    features = ShiftedBoxes(2)
    truth = generator.dirichlet(np.ones(20))
    table = features.table(space).toarray()
    errors = np.full(table.shape[1], 1e-3)
    both: Floats = np.asarray(np.kron(up, across), dtype=np.float64)
    means = truth @ both @ table + 1e-3 * generator.standard_normal((3, table.shape[1]))
    apart = features.shares(space, means, errors, (up, across))
    together = features.shares(space, means, errors, (both,))
    np.testing.assert_allclose(apart, together, atol=1e-6)


def test_shares_of_many_randomized_labels_are_exact() -> None:
    """Without noise they are the truth; with it, no shares are nearer than theirs."""
    size = 600
    space = Space.of(Categories([f"label {place}" for place in range(size)]))
    law = np.asarray(KaryRandomizedResponse(size, 10.0).rows(), dtype=np.float64)
    generator = np.random.default_rng(3)
    truth = generator.dirichlet(np.full(size, 0.1))
    errors = np.full(size, 1e-4)
    shares = Cells().shares(space, truth @ law, errors, (law,))
    assert np.abs(shares - truth).max() < 1e-12
    means = truth @ law + generator.normal(size=size) * errors
    nearest = Cells().shares(space, means, errors, (law,))
    fitted = Features.shares(Cells(), space, means, errors, (law,))
    off = [float((((rows @ law) - means) ** 2).sum()) for rows in (nearest, fitted)]
    assert off[0] <= off[1] * (1.0 + 1e-9)
    gradient = law @ ((nearest @ law) - means) / errors[0] ** 2
    assert nearest @ gradient - gradient.min() < 1e-6  # no shares are nearer
