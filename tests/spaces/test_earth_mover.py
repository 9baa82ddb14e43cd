"""Earth mover's distance: formulas, pairings and certified plans agree; errors."""

from __future__ import annotations

import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tables import check_all

from metricshuffle.errors import InputError, NotCertified
from metricshuffle.spaces import (
    Absolute,
    Categories,
    Circle,
    Clustered,
    Discrete,
    EarthMoversDistance,
    Euclidean,
    Grid,
    Integers,
    Interval,
    Manhattan,
    Matrix,
    Scaled,
    Space,
    Threshold,
    Tree,
    assignment,
    closure,
    earth_mover,
    embedding,
    line_distance,
    transport,
)
from metricshuffle.spaces.earth_mover import finite_space
from metricshuffle.spaces.earth_mover_formulas import sweep_line
from metricshuffle.spaces.transport_solver import _NO_WARNINGS, certified

P = [0.1, 0.2, 0.3, 0.4]
Q = [0.4, 0.1, 0.1, 0.4]


def some_tree(rng: np.random.Generator, size: int) -> Tree:
    names = rng.permutation(size)
    parents = np.full(size, -1)
    for i in range(1, size):
        parents[names[i]] = names[rng.integers(0, i)]
    return Tree(parents, rng.uniform(0.1, 2.0, size))


def some_matrix(rng: np.random.Generator, size: int) -> Matrix:
    table = np.triu(rng.uniform(0.2, 1.0, (size, size)), 1)
    return Matrix(closure(table + table.T))


def labels(count: int) -> Categories:
    return Categories([str(code) for code in range(count)])


MAKERS: dict[str, Any] = {
    "line": lambda rng: Space(Integers(-3, int(rng.integers(-2, 12)))),
    "line scaled": lambda rng: Space(Integers(0, 9), Scaled(Euclidean(), 0.37)),
    "circle": lambda rng: Space(Integers(0, 11), Circle(float(rng.choice([12.0, 7.3, 5.0])))),
    "tree": lambda rng: some_tree(rng, int(rng.integers(2, 14))),
    "clustered": lambda rng: Clustered(
        int(rng.integers(2, 5)), int(rng.integers(2, 5)), float(rng.uniform(0.01, 1))
    ),
    "discrete": lambda rng: Space(labels(int(rng.integers(2, 9)))),
}


def some_weights(rng: np.random.Generator, size: int) -> np.ndarray[Any, Any]:
    weights = rng.exponential(size=size) * (rng.random(size) < 0.7)
    weights[rng.integers(size)] += 0.1
    return weights


def table_of(space: Space) -> np.ndarray[Any, Any]:
    points = space.domain.points(space.domain.all_values())
    return space.metric.pairwise(points, points)


@check_all("name", MAKERS)
def test_formulas_are_the_certified_plan(name: str) -> None:
    rng = np.random.default_rng(sum(map(ord, name)))
    for _ in range(34):
        space = finite_space(MAKERS[name](rng))
        a = some_weights(rng, space.domain.size or 0)
        b = some_weights(rng, space.domain.size or 0)
        table = table_of(space)
        found = earth_mover(space, a, b)
        plan = transport(table, a, b)
        assert found.how == name.split()[0]
        assert plan.how == "transport"
        for one in (found, plan):
            assert 0 <= one.lower <= one.distance
            assert one.distance - one.lower <= 2e-12 * table.max()
        assert found.lower <= plan.distance
        assert plan.lower <= found.distance
        assert found.distance == pytest.approx(plan.distance, abs=1e-12 * table.max())


def test_golden_values() -> None:
    is_on_a_line = line_distance([0, 0.2, 0.5, 1], [0, 0.2, 0.5, 1], P, Q)
    assert is_on_a_line.distance == pytest.approx(0.12, rel=1e-12)
    assert is_on_a_line.lower <= 0.12 <= is_on_a_line.distance
    clustered = earth_mover(Clustered(2, 2, 0.1), P, Q)
    assert clustered.distance == pytest.approx(0.21, rel=1e-12)
    assert clustered.lower <= 0.21 <= clustered.distance
    table = np.abs(np.subtract.outer([0, 0.2, 0.5, 1], [0, 0.2, 0.5, 1]))
    assert earth_mover(Matrix(table), P, Q).distance == pytest.approx(0.12, rel=1e-12)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(["matrix", "grid", *MAKERS]))
def test_it_is_a_metric(seed: int, name: str) -> None:
    rng = np.random.default_rng(seed)
    make = {"matrix": lambda rng: some_matrix(rng, 6), "grid": lambda rng: Grid(3, 3), **MAKERS}[
        name
    ]
    space = finite_space(make(rng))
    a, b, c = (some_weights(rng, space.domain.size or 0) for _ in range(3))
    ab, bc, ac, ba = (
        earth_mover(space, one, other).distance for one, other in ((a, b), (b, c), (a, c), (b, a))
    )
    slack = 1e-12 * space.diameter
    assert ab == pytest.approx(ba, abs=slack)
    assert ac <= ab + bc + slack
    assert earth_mover(space, a, 3 * a).distance <= slack
    assert ab <= space.diameter + slack


def test_point_masses_are_as_far_apart_as_the_points() -> None:
    space = Space(Grid(4, 3, cell=0.5))
    table = table_of(space)
    eye = np.eye(12)
    for i, j in ((0, 11), (3, 8), (5, 5)):
        assert earth_mover(space, eye[i], eye[j]).distance == pytest.approx(table[i, j], rel=1e-12)


@check_all("scale", [1e-300, 1e-12, 1e-6, 1e9, 1e300])
def test_units_do_not_matter(scale: float) -> None:
    rng = np.random.default_rng(3)
    metric = some_matrix(rng, 12)
    a = rng.random(12)
    b = rng.random(12)
    usual = earth_mover(metric, a, b)
    other = earth_mover(Matrix(metric.distances * scale), a, b)
    assert other.how == "transport"
    assert other.distance / scale == pytest.approx(usual.distance, rel=1e-11)
    assert other.lower / scale == pytest.approx(usual.lower, rel=1e-11)
    assert assignment(metric.distances[:6, 6:] * scale).distance / scale == pytest.approx(
        assignment(metric.distances[:6, 6:]).distance
    )
    scaled = earth_mover(Space(labels(12), Scaled(metric, scale)), a, b)
    assert scaled.distance / scale == pytest.approx(usual.distance, rel=1e-11)


def test_pairings_are_the_certified_plan() -> None:
    rng = np.random.default_rng(5)
    for many in (1, 2, 7, 40):
        costs = rng.random((many, many))
        paired = assignment(costs)
        plan = transport(costs, np.ones(many), np.ones(many))
        assert paired.how == "assignment"
        assert paired.lower <= paired.distance <= paired.lower + 1e-12
        assert paired.distance == pytest.approx(plan.distance, rel=1e-12)
    assert assignment(np.zeros((3, 3))) == EarthMoversDistance(0.0, 0.0, "assignment")


def test_counts_of_one_total_are_paired() -> None:
    rng = np.random.default_rng(6)
    metric = some_matrix(rng, 30)
    a, b = (np.bincount(rng.integers(0, 30, 40), minlength=30) for _ in range(2))
    paired = earth_mover(metric, a, b)
    plan = transport(metric.distances, a, b)
    assert paired.how == "assignment"
    assert paired.distance == pytest.approx(plan.distance, rel=1e-12)
    assert earth_mover(metric, 1000 * a, 1000 * b).how == "transport"
    assert earth_mover(metric, 1000 * a, 1000 * b).distance == pytest.approx(
        plan.distance, rel=1e-12
    )


@check_all("steps", [1, 50, 200])
def test_an_unfinished_plan_is_refused(steps: int) -> None:
    rng = np.random.default_rng(7)
    points = rng.random((2, 200, 2))
    costs = Euclidean().pairwise(points[0], points[1])
    a = rng.random(200)
    b = rng.random(200)
    with pytest.raises(NotCertified, match="stopped early"):
        transport(costs, a, b, _steps=steps)
    assert transport(costs, a, b).lower > 0


def test_threads_that_move_earth_leave_warnings_as_they_were() -> None:
    before = list(warnings.filters)
    inside = threading.Barrier(2, timeout=20.0)

    def first_in_first_out(leave: threading.Event, then: threading.Event) -> None:
        with _NO_WARNINGS:
            inside.wait()
            warnings.warn(
                "a premature stop", UserWarning, stacklevel=1
            )  # (an error in these tests if it were heard)
            leave.wait(20.0)
        then.set()

    events = [threading.Event() for _ in range(3)]
    with ThreadPoolExecutor(2) as pool:
        both = [
            pool.submit(first_in_first_out, events[place], events[place + 1]) for place in range(2)
        ]
        events[0].set()
        for one in both:
            one.result()
    assert list(warnings.filters) == before
    with pytest.warns(UserWarning, match="heard again"):
        warnings.warn("heard again", UserWarning, stacklevel=1)


def test_a_plan_that_is_not_optimal_or_leaves_mass_behind_is_refused() -> None:
    costs = np.array([[0.0, 0.9], [0.9, 0.0]])
    even = np.array([0.5, 0.5])
    prices = np.zeros(2)
    assert certified(costs, 0, even, even, 0.0, 0.0, prices, "by hand").distance < 1e-13
    for cost, violation, potentials in (
        (0.9, 0.0, prices),
        (0.0, 1e-8, prices),
        (0.0, 0.0, prices + np.nan),
        (np.nan, 0.0, prices),
    ):
        with pytest.raises(NotCertified, match="could not be certified"):
            certified(costs, 0, even, even, cost, violation, potentials, "by hand")
    # Mass that the plan leaves behind may have to move as far as anything does.
    assert certified(costs, 0, even, even, 0.0, 1e-10, prices, "by hand").distance >= 0.9e-10


def test_masses_of_very_different_size() -> None:
    metric = some_matrix(np.random.default_rng(8), 5)
    found = earth_mover(metric, [1, 1e-14, 0, 0, 1e-9], [1, 0, 1e-13, 1e-7, 0])
    exact = transport(metric.distances, [1, 1e-14, 0, 0, 1e-9], [1, 0, 1e-13, 1e-7, 0])
    assert found.lower <= exact.distance
    assert exact.lower <= found.distance
    assert 0 < found.distance < 1.1e-7


def test_numbers_on_a_line_in_every_form() -> None:
    rng = np.random.default_rng(9)
    a = rng.normal(size=300)
    b = rng.normal(size=300)
    v = rng.random(300)
    w = rng.random(300)
    plan = transport(np.abs(np.subtract.outer(a, b)), v, w)
    assert line_distance(a, b, v, w).distance == pytest.approx(plan.distance, rel=1e-12)
    same = line_distance(a, b)
    assert same.distance == pytest.approx(np.abs(np.sort(a) - np.sort(b)).mean(), rel=1e-12)
    assert line_distance(a, b, np.ones(300), 2 * np.ones(300)).distance == pytest.approx(
        same.distance, rel=1e-12
    )
    assert line_distance(np.repeat(a, 2), b).distance == pytest.approx(same.distance, rel=1e-12)
    assert line_distance(a + 5, b, v, w).distance == pytest.approx(
        5 + a @ v / v.sum() - b @ w / w.sum(), rel=1e-12
    )
    assert line_distance([3, 3], [3]).distance == 0.0
    whole = line_distance(rng.integers(0, 5, 1000), rng.integers(0, 5, 700))
    assert 0 < whole.lower <= whole.distance < 1
    assert line_distance([0, 1.5e308], [0, 0]).distance == pytest.approx(0.75e308)


def test_points_within_a_hair_and_one_far_away() -> None:
    rng = np.random.default_rng(10)
    a = rng.random(2048)
    b = rng.random(1024)
    near = line_distance(a, b).distance
    points = np.concatenate([a, b, [1e20]])
    masses = np.repeat([1 / 2048, -1 / 1024, 0], [2048, 1024, 1])  # sums of these are exact
    assert sweep_line(np.column_stack([points, masses]), 0.0, 1e20) == pytest.approx(
        near, rel=1e-12
    )


def test_a_million_numbers() -> None:
    rng = np.random.default_rng(11)
    a = rng.normal(size=500_000)
    w = rng.random(500_000)
    moved = line_distance(a, a + 0.25, w, w)
    assert moved.distance == pytest.approx(0.25, rel=1e-12)
    assert moved.lower <= 0.25 <= moved.distance
    grid = np.zeros(10**6)
    grid[::2] = 1.0
    assert earth_mover(Integers(0, 10**6 - 1), grid, np.roll(grid, 1)).distance == pytest.approx(
        1.0, rel=1e-9
    )


@check_all("name", [name for name in MAKERS if name != "circle"])
def test_embeddings_are_isometric(name: str) -> None:
    rng = np.random.default_rng(12)
    for _ in range(5):
        space = finite_space(MAKERS[name](rng))
        found = embedding(space)
        size = space.domain.size or 0
        f = found.coordinates
        assert f.shape == (size, len(found.lengths))
        assert (f >= 0).all()
        assert np.abs(f[:, None] - f[None]).sum(axis=2) == pytest.approx(
            table_of(space), rel=1e-12, abs=1e-15
        )
        assert set(np.unique(f / found.lengths)) <= {0.0, 1.0}
        a, b = (
            weights / weights.sum()
            for weights in (some_weights(rng, size), some_weights(rng, size))
        )
        means = found.means([a, b])
        assert means == pytest.approx(np.array([a, b]) @ f, rel=1e-12, abs=1e-15)
        assert np.abs(means[0] - means[1]).sum() == pytest.approx(
            earth_mover(space, a, b).distance, abs=1e-12
        )


def test_embeddings_know_their_tree() -> None:
    line = embedding(Integers(5, 9))
    clusters = embedding(Clustered(3, 4, 0.2))
    star = embedding(labels(6))
    assert [len(one.lengths) for one in (line, clusters, star)] == [4, 15, 6]
    assert len(embedding(Clustered(3, 4, 1.0)).lengths) == 12  # then clusters mean nothing
    assert line.is_path
    assert not clusters.is_path
    assert line.coordinates[2].tolist() == [1, 1, 0, 0]
    assert clusters.is_leaf_edge.tolist() == [True] * 12 + [False] * 3
    assert star.lengths.tolist() == [0.5] * 6
    for one in (line, clusters, star):
        placed = np.argsort(one.order)
        for node, below in enumerate(one.children):
            assert all(one.tree.parents[child] == node for child in below)
            assert all(placed[child] > placed[node] for child in below)
            assert node == one.order[0] or one.links[one.edge_of[node]] == node
        assert sum(len(below) for below in one.children) == len(one.links)
        assert one.edge_of[one.order[0]] == -1


@check_all(
    "space",
    [Grid(3, 3), Space(Integers(0, 5), Circle(6)), Space(Integers(0, 5), Threshold(Absolute(), 2))],
)
def test_no_embedding_is_invented(space: Any) -> None:
    with pytest.raises(InputError, match="use a Lipschitz query"):
        embedding(space)


@check_all(
    ("space", "a", "b", "words"),
    [
        (
            Integers(0, 2),
            [1, 2],
            [1, 2, 3],
            "a must hold one weight for each of the 3 points, got 2",
        ),
        (Integers(0, 2), [1, 2, 3], [1, -2, 3], "b must be at least 0, but weight 1"),
        (Integers(0, 2), [0, 0, 0], [1, 2, 3], "a must have a positive, finite total"),
        (Integers(0, 2), [1, np.nan, 0], [1, 2, 3], "row 1"),
        (Integers(0, 2), [1, None, 0], [1, 2, 3], "is missing"),
        (Interval(0, 1), [1], [1], "infinitely many"),
        (Integers(0, 2**30), [1], [1], r"at most 2\^24 points"),
        (Manhattan(), [1], [1], "does not say which points"),
        ("line", [1], [1], "must be a Space, a Domain or a Metric"),
        (Space(Integers(0, 1), Discrete()), [1, 2, 3], [1, 2], "one weight"),
    ],
)
def test_wrong_histograms_and_spaces_are_refused(space: Any, a: Any, b: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        earth_mover(space, a, b)


@check_all(
    ("make", "words"),
    [
        (lambda: line_distance([], [1]), "points_a must hold at least one number"),
        (
            lambda: line_distance([1], [1, 2], [1], [1]),
            "weights_b must hold one weight for each of the 2 points",
        ),
        (lambda: line_distance([1.7e308], [-1.7e308]), "too far apart"),
        (lambda: transport([1, 2], [1], [1, 1]), "must be a table"),
        (lambda: transport([[np.inf]], [1], [1]), "finite numbers"),
        (lambda: transport([[-1.0, 0.0]], [1], [1, 1]), "at least 0"),
        (lambda: assignment([[1, 2]]), "square table"),
        (lambda: embedding(Integers(0, 3)).means([[1, 2]]), "one column for each of the 4 points"),
    ],
)
def test_what_cannot_be_measured(make: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        make()


def test_tables_that_are_too_large_are_not_begun() -> None:
    grid = Grid(200, 200)
    halves = np.arange(40_000) < 20_000
    with pytest.raises(NotCertified, match="use a coarser space"):
        earth_mover(grid, halves.astype(int), (~halves).astype(int))
