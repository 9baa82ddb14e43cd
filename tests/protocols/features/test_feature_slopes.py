"""Change of features per unit of distance: the proofs against all pairs of points."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.tables import check_all

from metricshuffle.accounting.vectors.feature_changes import FeatureChanges
from metricshuffle.errors import InputError, NotCertified
from metricshuffle.protocols.features import (
    Cells,
    Edges,
    Features,
    Hats,
    Ramps,
    ShiftedBoxes,
    feature_set,
    point_pairs,
    tree_features,
)
from metricshuffle.protocols.features.lattice import Lattice
from metricshuffle.spaces import (
    Absolute,
    Categories,
    Circle,
    Clustered,
    Euclidean,
    Grid,
    Integers,
    Manhattan,
    Matrix,
    NestedSquares,
    Scaled,
    Space,
    Threshold,
    Tree,
    nested_squares,
)
from metricshuffle.spaces.earth_mover import finite_space

Floats = NDArray[np.float64]
ALPHA = 0.7
RNG = np.random.default_rng(5)
TREES: dict[str, Space] = {
    name: finite_space(space)
    for name, space in {
        "clusters": Clustered(3, 4, 0.05),
        "two clusters": Clustered(2, 3, 0.3),
        "two labels": Categories(["yes", "no"]),
        "nested squares": nested_squares(2, 8.0),
        "wide squares": Space(Grid(7, 3), NestedSquares(3)),
        "points inside": Tree(
            [-1, 0, 0, 1, 1, 2, 3, 3], [0, 0.1, 0.3, 0.7, 0.123, 0.33, 0.77, 0.01]
        ),
        "root in the middle": Tree([1, -1, 1, 2], [2.0, 0.0, 0.5, 0.25]),
        "table of a line": Matrix(
            np.abs(np.subtract.outer([0.0, 1.0, 3.0, 7.0, 20.0], [0.0, 1.0, 3.0, 7.0, 20.0]))
        ),
        "scaled": Space(
            Categories([str(code) for code in range(12)]), Scaled(Clustered(3, 4, 0.5), 0.3)
        ),
        "some at distance 0": Tree([-1, 0, 0, 1, 1], [0.0, 0.1, 0.0, 0.7, 0.123]),
    }.items()
}
OTHERS: dict[str, Space] = {
    "circle": Space(Integers(0, 11), Circle(12)),
    "labels": Space(Categories(list("abcd"))),
    "scaled labels": Space(
        Categories(list("abcd")), Scaled(Space(Categories(list("abcd"))).metric, 2.5)
    ),
    "table": finite_space(
        Matrix(
            [[0.0, 1.0, 2.0, 1.5], [1.0, 0.0, 1.0, 2.0], [2.0, 1.0, 0.0, 1.0], [1.5, 2.0, 1.0, 0.0]]
        )
    ),
}


def distances(space: Space) -> Floats:
    points = space.domain.points(space.domain.all_values())
    return np.asarray(space.metric.pairwise(points, points))


def steepest(features: Features, space: Space, rates: Floats) -> float:
    """The largest ratio over all pairs, pair by pair."""
    table = features.table(space).toarray()
    apart = distances(space)
    largest = 0.0
    for here in range(len(table)):
        losses = (np.abs(table - table[here]) * rates).sum(axis=1)
        assert not np.any((apart[here] == 0.0) & (losses > 0.0))
        largest = max(
            largest,
            float(np.max(losses[apart[here] > 0.0] / apart[here][apart[here] > 0.0], initial=0.0)),
        )
    return largest


def check_slope(features: Features, space: Space, per_rate: float | None = None) -> None:
    rates = ALPHA * features.weights(space)
    brute = steepest(features, space, rates)
    for found in (features.slope(space, rates), Features.slope(features, space, rates)):
        assert brute <= found * (1.0 + 1e-15)
        assert found == pytest.approx(brute, rel=1e-10)
    if per_rate is not None:
        assert features.slope(space, rates) == pytest.approx(ALPHA * per_rate, rel=1e-12)


@check_all("size", [2, 3, 10, 31])
@check_all("step", [1.0, 0.1, 1e7 / 3.0])
@check_all("width", [1, 2, 3, 7, 30])
def test_a_step_along_a_line_changes_one_ramp_by_one(size: int, step: float, width: int) -> None:
    if width < size:
        check_slope(
            Ramps(width), Space(Integers(-3, size - 4), Scaled(Absolute(), step)), 1.0 / step
        )


def check_grids(sides: Sequence[tuple[int, int]], widths: Sequence[int]) -> None:
    for width, height in sides:
        for wide in widths:
            if wide > max(width, height):
                continue
            for cell in (1.0, 0.3) if width == 5 else (0.3,):
                streets, straight = (
                    Space(Grid(width, height, cell), metric)
                    for metric in (Manhattan(), Euclidean())
                )
                diagonal = (
                    math.sqrt(2.0)
                    if wide > 1 and min(width, height) > 1 and max(width, height) > 2
                    else 1.0
                )
                check_slope(ShiftedBoxes(wide), streets, 2.0 / cell)
                check_slope(ShiftedBoxes(wide), straight, 2.0 * diagonal / cell)
                if min(width, height) > wide:
                    check_slope(Hats(wide), streets, 2.0 * wide / cell)
                    check_slope(
                        Hats(wide),
                        straight,
                        (math.sqrt(2.0) * (2 * wide - 1) if wide > 1 else 2.0) / cell,
                    )
        check_slope(Cells(), Space(Grid(width, height, 0.3)), 2.0 / 0.3)


def test_slopes_on_grids_are_those_proved() -> None:
    check_grids([(2, 2), (2, 3), (5, 5), (12, 12), (9, 4), (1, 6)], [1, 2, 3, 4, 6])


@pytest.mark.slow
def test_slopes_on_larger_grids_are_those_proved() -> None:
    check_grids([(20, 20), (20, 13), (15, 15)], [1, 2, 3, 4, 5, 6, 7, 8, 10])


class Detours(Euclidean):
    """Somebody's own, as a kind of a shipped one: not the distances that slopes are proved for."""

    kind: Literal["test-detours"] = "test-detours"  # type: ignore[assignment]

    def pairwise(self, points_a: Any, points_b: Any) -> Floats:
        return 0.5 * super().pairwise(points_a, points_b)


def test_a_metric_of_ones_own_is_not_taken_for_the_one_it_is_made_from() -> None:
    assert Lattice.of(Space(Grid(4, 4), Detours())) is None
    assert Lattice.of(Space(Grid(4, 4), Scaled(Detours(), 2.0))) is None
    assert ShiftedBoxes(2).slope(Space(Grid(4, 4), Detours()), np.ones(13)) == pytest.approx(
        4.0 * math.sqrt(2.0), rel=1e-9
    )
    assert Lattice.of(Space(Grid(4, 4, 2.0), Scaled(Scaled(Euclidean(), 3.0), 0.5))) == Lattice(
        (4, 4), 3.0, straight=True
    )


def test_golden_slopes_of_hats() -> None:
    assert Hats(4).slope(Space(Grid(12, 12)), np.ones(16)) == pytest.approx(
        9.899494936611665, rel=1e-12
    )  # not 8 sqrt 2
    assert Hats(4).slope(Space(Grid(12, 12), Manhattan()), np.ones(16)) == pytest.approx(
        8.0, rel=1e-12
    )


@check_all("name", TREES)
def test_moves_along_a_tree_cost_their_distance(name: str) -> None:
    """The loss of every pair is the factor times its distance; no feature is constant."""
    space = TREES[name]
    features = Edges()
    table = features.table(space).toarray()
    lengths = features.weights(space)
    losses = np.abs(table[:, None, :] - table[None, :, :]) @ lengths
    np.testing.assert_allclose(losses, distances(space), rtol=2e-5, atol=1e-15)
    assert np.all(losses <= distances(space) * (1.0 + 1e-14))
    assert np.all(table.min(axis=0) == 0)
    assert np.all(table.max(axis=0) == 1)
    assert (
        len({(*column,) for column in np.where(table[0], 1 - table, table).T}) == table.shape[1]
    ), "two features say the same"
    assert features.slope(space, ALPHA * lengths) == pytest.approx(ALPHA, rel=1e-12)
    assert features.slope(space, ALPHA * lengths) >= ALPHA
    if name != "table of a line":
        check_slope(features, space, 1.0)


@check_all("name", OTHERS)
def test_cells_are_for_every_finite_space(name: str) -> None:
    space = OTHERS[name]
    apart = distances(space)
    check_slope(Cells(), space, 2.0 / apart[apart > 0.0].min())


def test_other_metrics_on_a_grid_are_certified_over_all_pairs() -> None:
    space = Space(Grid(9, 7, 0.5), Threshold(Euclidean(), 1.2))
    assert Lattice.of(space) is None
    for features in (ShiftedBoxes(3), Hats(3), Cells()):
        check_slope(features, space)
    with pytest.raises(NotCertified, match="all pairs of at most 5,000"):
        ShiftedBoxes(20).slope(
            Space(Grid(80, 80), Threshold(Euclidean(), 9.0)),
            np.ones(len(ShiftedBoxes(20).weights(Space(Grid(80, 80))))),
        )


@check_all(
    ("features", "space"),
    [
        (Ramps(3), Space(Integers(0, 20))),
        (ShiftedBoxes(3), Space(Grid(7, 6))),
        (Cells(), Space(Grid(4, 5))),
        (Cells(), OTHERS["table"]),
        (Hats(2), Space(Grid(6, 6))),
        (Edges(), TREES["points inside"]),
    ],
)
def test_slopes_hold_for_rates_that_differ(features: Features, space: Space) -> None:
    rates = RNG.uniform(0.1, 1.0, len(features.weights(space)))
    assert steepest(features, space, rates) <= features.slope(space, rates) * (1.0 + 1e-15)
    assert Features.slope(features, space, rates) == pytest.approx(
        steepest(features, space, rates), rel=1e-10
    )


def outdoes(move: FeatureChanges, rates: Floats, sizes: Floats) -> bool:
    """Whether the changed coordinates fit one to one into the move by rate and size."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import maximum_bipartite_matching

    held = [
        (rate, size)
        for rate, size, count in zip(move.rates, move.sizes, move.counts, strict=True)
        for _ in range(count)
    ]
    changed = [(rate, size) for rate, size in zip(rates, sizes, strict=True) if size > 0]
    if not changed:
        return True
    if len({rate for rate, _ in held + changed}) == 1:  # the largest into the largest
        ours, theirs = (
            sorted((size for _, size in part), reverse=True) for part in (changed, held)
        )
        return len(ours) <= len(theirs) and all(a <= b for a, b in zip(ours, theirs, strict=False))
    fits = np.array(
        [
            [rate <= to_rate and size <= to_size for to_rate, to_size in held]
            for rate, size in changed
        ]
    )
    return bool(fits.size) and bool(
        np.all(maximum_bipartite_matching(csr_array(fits), perm_type="column") >= 0)
    )


@pytest.mark.slow
@pytest.mark.parametrize("width", range(2, 33))
def test_the_search_over_short_moves_finds_the_slope_of_hats(width: int) -> None:
    rates = np.ones(len(Hats(width).weights(Space(Grid(40, 40)))))
    assert Hats(width).slope(Space(Grid(40, 40)), rates) == pytest.approx(
        math.sqrt(2.0) * (2 * width - 1), rel=1e-12
    )
    assert Hats(width).slope(Space(Grid(40, 40), Manhattan()), rates) == pytest.approx(
        2.0 * width, rel=1e-12
    )


def check_moves(
    features: Features, space: Space, reaches: Sequence[float], rates: Floats | None = None
) -> None:
    rates = ALPHA * features.weights(space) if rates is None else rates
    table = features.table(space).toarray()
    apart = distances(space)
    for reach in reaches:
        moves = list(features.moves(space, rates, reach))
        seen: set[tuple[int, ...]] = set()
        for x, y in np.argwhere((apart <= reach) & np.triu(np.ones_like(apart, dtype=bool), 1)):
            sizes = np.abs(table[x] - table[y])
            if sizes.tobytes() in seen:
                continue
            seen.add(sizes.tobytes())
            assert any(outdoes(move, rates, sizes) for move in moves), (
                features,
                space,
                reach,
                x,
                y,
            )


CASES: list[tuple[Features, Space, Sequence[float]]] = [
    *(
        (
            Ramps(width),
            Space(Integers(0, 17), Scaled(Absolute(), 0.1)),
            [0.1, 0.3, 0.6, 0.7, 1.1, 5.0],
        )
        for width in (1, 2, 4, 5, 17)
    ),
    *((ShiftedBoxes(width), Space(Grid(5, 4, 0.3)), [0.3, 0.5, 0.9, 9.0]) for width in (1, 2, 4)),
    (ShiftedBoxes(3), Space(Grid(6, 4), Manhattan()), [1.0, 2.0, 5.0]),
    (ShiftedBoxes(3), Space(Grid(5, 4), Threshold(Euclidean(), 2.2)), [1.0, 1.5, 2.3]),
    (Hats(3), Space(Grid(5, 4)), [1.0, 1.5, 3.0]),
    (Cells(), Space(Grid(4, 4)), [1.0, 9.0]),
    *((Cells(), space, [1.0, 2.0, 2.5, 9.0]) for space in OTHERS.values()),
    *((Edges(), space, [0.1, 0.3, 0.9, 2.0, 30.0]) for space in TREES.values()),
]


@pytest.mark.parametrize(("features", "space", "reaches"), CASES, ids=str)
def test_no_pair_changes_more_than_one_of_the_moves(
    features: Features, space: Space, reaches: Sequence[float]
) -> None:
    check_moves(features, space, reaches)
    check_moves(features, space, reaches, RNG.choice([0.2, 0.5], len(features.weights(space))))


@pytest.mark.parametrize(("features", "space", "reaches"), CASES, ids=str)
def test_where_pairs_are_too_many_to_list_moves_are_no_smaller(
    features: Features, space: Space, reaches: Sequence[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(point_pairs, "MAX_PAIRS_LISTED", -1)
    check_moves(features, space, reaches)
    monkeypatch.setattr(tree_features, "MAX_KINDS", 2)
    check_moves(features, space, reaches)
    check_moves(features, space, reaches, RNG.uniform(0.2, 0.5, len(features.weights(space))))


def test_moves_on_lines_and_grids_are_no_larger_than_pairs_make_them() -> None:
    """Every move named is one that somebody can make, with as many steps as the distance has."""
    space = Space(Integers(0, 40))
    for width in (1, 2, 5, 9):
        for steps in (1, 3, 5, 12):
            own = {
                tuple(np.repeat(move.sizes, move.counts))
                for move in Ramps(width).moves(space, np.ones(-(-40 // width)), float(steps))
            }
            listed = {
                tuple(np.repeat(move.sizes, move.counts))
                for move in Features.moves(
                    Ramps(width), space, np.ones(-(-40 // width)), float(steps)
                )
            }
            assert own == listed
            assert {sum(move) for move in own} == {steps}
    (move,) = ShiftedBoxes(5).moves(
        Space(Grid(9, 9)), np.ones(len(ShiftedBoxes(5).weights(Space(Grid(9, 9))))), 2.0**1.5
    )
    assert (move.sizes.tolist(), move.counts.tolist()) == ([1], [8])
    (move,) = Edges().moves(TREES["clusters"], Edges().weights(TREES["clusters"]), 1.0)
    assert move.counts.tolist() == [2, 2]


@check_all("step", [1.0, 0.1, 1.0 / 3.0, 1e-9])
def test_distances_count_as_reached_when_in_doubt(step: float) -> None:
    line = Lattice((50,), step, straight=False)
    plane = Lattice((50, 30), step, straight=True)
    for steps in (1, 3, 7, 48):
        for lattice in (line, plane):
            at = steps * step
            reached = lattice.steps_within(at)
            for near in (
                at * (1 + 1e-10),
                np.nextafter(at, 0.0),
                np.nextafter(at, 9e9),
                at * (1.0 - 1e-13),
            ):
                assert lattice.steps_within(float(near)) == reached
        assert line.steps_within(steps * step) == steps
        assert line.steps_within(steps * step * (1.0 - 1e-9)) == steps - 1
    assert line.steps_within(math.inf) == 49
    assert plane.steps_within(math.inf) == 78
    assert plane.steps_within(math.sqrt(2.0) * step) == 2
    assert plane.steps_within(1.4 * step) == 1
    assert plane.steps_within(5.0 * step) == 7
    with pytest.raises(InputError, match="distance must be a number"):
        line.steps_within(math.nan)
    with pytest.raises(InputError, match="distance must be a number"):
        list(Edges().moves(TREES["clusters"], Edges().weights(TREES["clusters"]), math.nan))


def test_points_that_nothing_may_tell_apart_have_no_slope() -> None:
    together = finite_space(Matrix([[0.0, 0.0, 1.0], [0.0, 0.0, 1.0], [1.0, 1.0, 0.0]]))
    with pytest.raises(InputError, match="at distance 0"):
        Cells().slope(together, np.ones(3))
    with pytest.raises(InputError, match="at distance 0"):
        Features.slope(Cells(), together, np.ones(3))
    assert not list(Cells().offered(together, 100, 1.0))
    assert not list(Edges().offered(together, 100, 1.0))


def test_what_does_not_fit_is_refused_in_words() -> None:
    with pytest.raises(
        InputError, match=r"4,999 coordinates, and there may be up to 4,096; ramps of width 2 fit"
    ):
        Ramps(1).table(Space(Integers(0, 4999)))
    with pytest.raises(InputError, match="up to 9 wide"):
        Ramps(10).table(Space(Integers(0, 9)))
    with pytest.raises(InputError, match="count in wider bins"):
        Ramps(1).table(Space(Integers(0, 2**40)))
    with pytest.raises(InputError, match="whole numbers on a line"):
        Ramps(1).table(Space(Integers(0, 11), Circle(12)))
    with pytest.raises(InputError, match="boxes 3 cells wide would fit"):
        ShiftedBoxes(2).table(Space(Grid(100, 100)))
    with pytest.raises(InputError, match="hold all of"):
        ShiftedBoxes(1).table(Space(Grid(1, 1)))
    with pytest.raises(InputError, match="cells of a Grid"):
        ShiftedBoxes(2).table(Space(Integers(0, 9)))
    with pytest.raises(InputError, match="up to 1,048,576"):
        Cells().table(Space(Grid(1025, 1024)))
    with pytest.raises(InputError, match="not known to be"):
        Edges().table(Space(Grid(3, 3)))
    with pytest.raises(InputError, match="one number > 0 for each of 9 coordinates"):
        Ramps(1).slope(Space(Integers(0, 9)), np.ones(8))
    for wrong in (lambda: Ramps(0), lambda: ShiftedBoxes(0), lambda: Hats(33)):
        with pytest.raises(InputError, match="width must be"):
            wrong()


def kinds(space: Any, people: int, total: float) -> list[Features]:
    found = finite_space(space)
    rate = total / found.diameter
    return [
        one
        for kind in (Ramps, ShiftedBoxes, Hats, Cells, Edges)
        for one in kind.offered(found, people, rate)
    ]


def test_which_features_are_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Always single thresholds or cells; the rule of thumb, and its neighbours."""
    assert kinds(Integers(0, 999), 500, 10.0) == [Ramps(1), Ramps(28), Ramps(14), Ramps(56)]
    assert kinds(Integers(0, 63), 2_000, 10.0) == [Ramps(1), Ramps(2)]
    grid = kinds(Space(Grid(32, 32), Manhattan()), 2_000, 20.0 * 31 / 32)
    assert grid == [ShiftedBoxes(8), ShiftedBoxes(5), ShiftedBoxes(4), Cells()]
    assert kinds(Grid(4, 4), 2_000, 10.0) == [Cells()]
    assert kinds(Categories(list("abc")), 100, 1.0) == [Cells()]
    assert kinds(Categories(list("ab")), 100, 1.0) == [Edges()]
    for name in ("circle", "table", "scaled labels"):
        assert kinds(OTHERS[name], 100, 1.0) == [Cells()]
    for name in ("clusters", "nested squares", "points inside", "table of a line", "scaled"):
        assert kinds(TREES[name], 100, 1.0) == [Edges()]
    monkeypatch.setattr(tree_features, "MAX_COORDINATES", 16)
    assert kinds(TREES["nested squares"], 100, 1.0) == [Cells()], "20 edges do not fit, 16 cells do"
    for space in (Integers(0, 4500), Grid(90, 90), Grid(100, 12), Integers(0, 1)):
        for features in kinds(space, 1_000, 10.0):
            assert features.table(finite_space(space)).shape[1] <= feature_set.MAX_COORDINATES


def test_nothing_moves_within_less_than_the_smallest_distance(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for features, space, _ in CASES:
        apart = distances(space)
        least = 0.99 * float(apart[apart > 0.0].min())
        rates = ALPHA * features.weights(space)
        assert not list(features.moves(space, rates, least))
        assert not list(Features.moves(features, space, rates, least))
    monkeypatch.setattr(point_pairs, "MAX_PAIRS_LISTED", -1)
    assert not list(Features.moves(Ramps(2), Space(Integers(0, 9)), np.ones(5), 0.5))


def test_ranges_are_computed_once_and_labels_need_no_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both took most of the time of plans of many points."""
    space = Space.of(Categories([f"label {place}" for place in range(1500)]))

    def refused(*_: object) -> None:
        raise AssertionError("all pairs of labels were compared")

    monkeypatch.setattr(point_pairs, "distances_of", refused)
    assert point_pairs.nearest_distance(space) == 1.0
    first = Cells().ranges(space)
    assert first[0] is Cells().ranges(space)[0]
    assert not first[0].flags.writeable
    assert first[0].tolist() == [0] * 1500
    assert first[1].tolist() == [1] * 1500
