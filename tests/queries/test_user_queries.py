"""Queries about users' items: exact answers, embeddings, Lipschitz constants, and errors."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tables import check_all

import metricshuffle as ms
from metricshuffle.accounting.user_items.lipschitz import NormName
from metricshuffle.errors import DomainError, InputError, PlanError
from metricshuffle.planning import plan
from metricshuffle.privacy.target import Target
from metricshuffle.protocols.answer_features import AnswerFeatures, Columns, TreeEdges
from metricshuffle.queries.exact_features import ExactAnswers, ExactFeatures
from metricshuffle.queries.user_queries import MAX_ITEMS, UserHistogram, UserLinearQuery, UserQuery
from metricshuffle.randomness import Randomness
from metricshuffle.spaces import (
    Absolute,
    Categories,
    Clustered,
    Discrete,
    GreatCircle,
    Grid,
    Haversine,
    Integers,
    Matrix,
    Scaled,
    Space,
    Tree,
    Vectors,
    users_of,
)

LINE = Space(Integers(0, 100), Scaled(Absolute(), 0.01))
# A small table of word vectors: animals, tools, and one word between them.
WORDS = Categories(["cat", "dog", "hammer", "saw", "robot"])
VECTORS = np.array(
    [[0.9, 0.1, 0.0], [0.8, 0.2, 0.1], [0.0, 0.9, 0.1], [0.1, 0.8, 0.2], [0.5, 0.5, 0.5]]
)
BETWEEN = np.linalg.norm(VECTORS[:, None] - VECTORS[None], axis=2)


def answers_of(query: UserQuery, held: Any) -> ExactAnswers:
    """The exact answers of people who hold these items."""
    features: AnswerFeatures = TreeEdges() if isinstance(query, UserHistogram) else Columns()
    inputs = query.inputs(held, 1.0)
    assert inputs.sizes is not None
    return ExactAnswers.of(features.coordinates(query), inputs.numbers[:, 0], inputs.sizes)


def words(items: int | None = None) -> Any:
    return users_of(Space(WORDS, Matrix(BETWEEN)), items)


def lengths_of(space: Any) -> list[list[Fraction]]:
    """All distances in exact arithmetic: those of the tree as it was declared."""
    metric = space.metric if isinstance(space, Space) else space
    if isinstance(metric, Clustered):
        places = metric.places
        inner = Fraction(metric.inner)
        size = metric.clusters * places
        return [
            [
                Fraction(0) if a == b else inner if a // places == b // places else Fraction(1)
                for b in range(size)
            ]
            for a in range(size)
        ]
    if isinstance(metric, Tree):
        return [
            [_along(metric, a, b) for b in range(len(metric.parents))]
            for a in range(len(metric.parents))
        ]
    raise AssertionError(metric)


def _along(tree: Tree, a: int, b: int) -> Fraction:
    def up(node: int) -> dict[int, Fraction]:
        rounded = {node: Fraction(0)}
        length = Fraction(0)
        while tree.parents[node] >= 0:
            length += Fraction(float(tree.lengths[node]))
            node = int(tree.parents[node])
            rounded[node] = length
        return rounded

    first, other = up(a), up(b)
    return min(first[node] + other[node] for node in first.keys() & other.keys())


trees = st.integers(2, 12).flatmap(
    lambda size: st.tuples(
        st.tuples(*(st.integers(0, node - 1) for node in range(1, size))),
        st.tuples(*(st.floats(1e-9, 1e9) for _ in range(1, size))),
    )
)


@settings(max_examples=30, deadline=None)
@given(trees)
def test_rounded_coordinates_of_a_tree_are_never_farther_apart_than_the_points(
    made: tuple[tuple[int, ...], tuple[float, ...]],
) -> None:
    tree = Tree([-1, *made[0]], [0.0, *made[1]])
    _check_contraction(UserHistogram(users_of(tree)), lengths_of(tree))


@check_all("inner", [0.05, 0.1, 1 / 3, 0.7, 0.999999, 1e-12])
def test_rounded_coordinates_of_clusters_are_never_farther_apart_than_the_points(
    inner: float,
) -> None:
    metric = Clustered(3, 4, inner)
    _check_contraction(UserHistogram(users_of(metric)), lengths_of(metric))


@check_all("factor", [0.1, 1e-7, 3.3333e8])
def test_rounded_coordinates_of_a_scaled_line_are_never_farther_apart_than_the_points(
    factor: float,
) -> None:
    query = UserHistogram(users_of(Space(Integers(-7, 30), Scaled(Absolute(), factor))))
    _check_contraction(
        query, [[abs(a - b) * Fraction(factor) for b in range(38)] for a in range(38)]
    )


def _check_contraction(query: UserHistogram, exact: list[list[Fraction]]) -> None:
    coordinates = TreeEdges().coordinates(query)
    numbers = coordinates.numbers
    below = Fraction(2) ** coordinates.power
    assert np.array_equal(numbers, np.rint(numbers))
    assert np.abs(numbers).max() <= 2**32
    lost = 1e-8 * float(max(itertools.chain(*exact))) * len(exact)
    for a, b in itertools.combinations(range(query.people.size), 2):
        moved = (
            sum(abs(int(x) - int(y)) for x, y in zip(numbers[a], numbers[b], strict=True)) / below
        )
        assert moved <= exact[a][b]
        assert float(moved) >= float(exact[a][b]) - lost  # and hardly nearer


held_lists = st.lists(st.lists(st.integers(0, 11), min_size=1, max_size=9), min_size=1, max_size=8)


@settings(max_examples=40, deadline=None)
@given(held_lists)
def test_answers_are_exact_for_users_of_any_size(held: list[list[int]]) -> None:
    query = UserHistogram(users_of(Clustered(3, 4, 0.05)))
    answers = answers_of(query, held)
    coordinates = TreeEdges().coordinates(query)
    numbers = coordinates.numbers
    below = Fraction(2) ** coordinates.power
    naive = [
        [
            sum(int(numbers[item][j]) for item in items) / below / len(items)
            for j in range(numbers.shape[1])
        ]
        for items in held
    ]
    assert [answers.exact(user) for user in range(len(held))] == naive
    assert answers.total() == [sum(column, Fraction(0)) for column in zip(*naive, strict=True)]
    np.testing.assert_allclose(answers.floats(), np.array(naive, dtype=float), rtol=1e-15)


def test_sums_of_large_negative_numerators_are_exact() -> None:
    numerators = np.array([[-(2.0**52) + 1.0], [2.0**52 - 3.0], [-5.0]])
    assert ExactAnswers(numerators, np.array([1, 1, 3]), 0).total() == [
        Fraction(-2) - Fraction(5, 3)
    ]


def test_everybody_counts_the_same_however_many_items_she_holds() -> None:
    query = UserLinearQuery.average(users_of(Integers(0, 10)))
    total = answers_of(query, [[0] * 99, [10]]).total()[0]
    assert (
        float(total) / 2 + query.coordinates.middle[0] == 5.0
    )  # and not the mean of all items, 0.1


def test_only_averages_of_points_have_errors_in_their_unit() -> None:
    people = users_of(Integers(0, 10, unit="km"))
    assert UserLinearQuery.average(people).error_unit == "km"
    assert UserLinearQuery.near(people, {"centre": [4, 5]}, 2.0).error_unit == ""
    assert UserLinearQuery(people, np.arange(11.0), ["price"]).error_unit == ""


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.floats(-1e12, 1e12), min_size=6, max_size=6).filter(
        lambda column: max(column) > min(column)
    )
)
def test_coordinates_keep_32_bits_of_the_range_wherever_it_lies(column: list[float]) -> None:
    table = np.array(column)[:, None]
    rounded = ExactFeatures.of(table)
    width = float(np.ptp(table))
    assert (
        np.abs(rounded.table + rounded.middle - table).max()
        <= width * 2.0**-30 + 1e-15 * np.abs(table).max()
    )


def test_a_large_common_part_does_not_hide_the_function() -> None:
    times = 1.7e12 + np.arange(16.0)  # milliseconds
    query = UserLinearQuery(users_of(Clustered(4, 4, 0.5)), times)
    plain = UserLinearQuery(users_of(Clustered(4, 4, 0.5)), np.arange(16.0))
    assert query.constant_in("l1") == pytest.approx(plain.constant_in("l1"), rel=1e-8)


def test_the_constant_is_that_of_what_is_released() -> None:
    query = UserLinearQuery(words(), VECTORS)
    for norm, order in (("l1", 1), ("l2", 2), ("linf", np.inf)):
        apart = np.linalg.norm(
            query.coordinates.table[:, None] - query.coordinates.table[None], ord=order, axis=2
        )
        ratio = (apart[BETWEEN > 0] / BETWEEN[BETWEEN > 0]).max()
        assert ratio <= query.constant_in(norm) <= ratio * (1.0 + 1e-9)  # type: ignore[arg-type]
    assert query.constant_in("l2") == pytest.approx(
        1.0, rel=1e-8
    )  # distances are those of the vectors


def test_a_constant_that_is_too_small_is_refused_with_a_pair() -> None:
    steps = np.minimum(np.arange(101) / 100, 0.5)
    assert UserLinearQuery(users_of(LINE), steps, norm="l1", constant=1.0001).constant == 1.0001
    with pytest.raises(
        InputError,
        match=(
            r"constant 0.5 is too small: between points \(\d+, \d+\) the query moves by 1 per "
            r"unit"
        ),
    ):
        UserLinearQuery(users_of(LINE), steps, norm="l1", constant=0.5)


def test_word_vectors_and_similarities() -> None:
    mean = UserLinearQuery.embedded(words(), VECTORS, ("x", "y", "z"))
    held = [["cat", "dog"], ["saw"], ["robot"] * 3]
    total = [float(part) for part in answers_of(mean, held).total()]
    expected = (VECTORS[[0, 1]].mean(axis=0) + VECTORS[3] + VECTORS[4]) / 3
    np.testing.assert_allclose(np.array(total) / 3 + mean.coordinates.middle, expected, atol=1e-8)
    alike = UserLinearQuery.similarity(words(), VECTORS, {"animal": [1, 0, 0], "tool": [0, 1, 0]})
    assert alike.names == ("animal", "tool")
    np.testing.assert_array_equal(alike.table, VECTORS[:, :2])
    # Cauchy and Schwarz: the similarity to a unit vector moves by no more than the vectors do
    assert all(
        UserLinearQuery(words(), alike.table[:, i]).constant_in("l1") <= 1.0 + 1e-8
        for i in range(2)
    )


def test_regions_fade_over_their_width() -> None:
    query = UserLinearQuery.near(
        users_of(LINE), {"low": list(range(21)), "all": list(range(101))}, 0.1
    )
    np.testing.assert_allclose(query.table[[0, 20, 25, 30, 60], 0], [1, 1, 0.5, 0, 0], atol=1e-9)
    assert np.all(query.table[:, 1] == 1.0)
    assert query.constant_in("l1") == pytest.approx(10.0, rel=1e-7)  # 1/width


def test_queries_survive_json() -> None:
    for query in (
        UserHistogram(users_of(Clustered(2, 3, 0.2), 7)),
        UserLinearQuery(words(), VECTORS, norm="l2", constant=1.01),
    ):
        again = UserQuery.of_kind(query.model_dump(mode="json"))
        assert type(again) is type(query)
        assert again.model_dump(mode="json") == query.model_dump(mode="json")


@check_all(
    ("make", "words_"),
    [
        (lambda: UserLinearQuery(words(), [["a"]]), "table must be a table of numbers"),
        (lambda: UserLinearQuery(words(), [[1.0, 2.0], [3.0]]), "table must be a table of numbers"),
        (
            lambda: UserLinearQuery(words(), [0.0, 1.0, np.nan, 2.0, 3.0]),
            r"row 2 \(counting from 0\), column 0 is nan",
        ),
        (lambda: UserLinearQuery(words(), [1.0, 2.0]), "one row for each of 5 points, got 2"),
        (lambda: UserLinearQuery(words(), VECTORS, ("x",)), "names must be as many as the columns"),
        (lambda: UserLinearQuery(words(), VECTORS, norm="l1"), "norm and constant belong together"),
        (lambda: UserLinearQuery.average(words()), "labels have no average"),
        (lambda: UserLinearQuery.near(words(), {"a": ["cat"]}, 0.0), "width must be a number > 0"),
        (
            lambda: UserLinearQuery.near(words(), {"a": ["cat"]}, float("inf")),
            "width must be a number > 0",
        ),
        (lambda: UserLinearQuery.near(words(), {"a": []}, 1.0), "region 'a' must list the points"),
        (
            lambda: UserLinearQuery.near(words(), {"a": "cat"}, 1.0),
            "region 'a' must list the points",
        ),
        (lambda: UserLinearQuery.near(words(), {}, 1.0), "at least one region"),
        (lambda: UserLinearQuery.near(words(), {"a": ["cow"]}, 1.0), "cow"),
        (
            lambda: UserLinearQuery.similarity(words(), VECTORS, {"a": [1, 2], "b": [1]}),
            "table of numbers",
        ),
        (
            lambda: UserLinearQuery.similarity(words(), VECTORS, {"a": [1, 2]}),
            "vectors of 3 numbers",
        ),
        (lambda: UserLinearQuery.similarity(words(), VECTORS, {}), "at least one vector"),
        (lambda: UserHistogram(3), "Space, a Domain or a Metric"),  # type: ignore[arg-type]
        (lambda: UserHistogram(users_of(Integers(0, 10**6))), "at most"),
        (lambda: users_of(Matrix([[0, 1, 5], [1, 0, 1], [5, 1, 0]])), r"\(i, j, k\) = \(0, 1, 2\)"),
    ],
)
def test_wrong_queries_are_refused_in_words(make: Any, words_: str) -> None:
    with pytest.raises(InputError, match=words_):
        make()


@check_all(
    ("held", "words_"),
    [
        (
            [[0, 1], [0, 1, 2]],
            r"user 1 \(counting from 0\) holds 3 items, but everybody must hold exactly 2",
        ),
        ([[0, 1], []], r"user 1 \(counting from 0\) holds no items"),
        ([[0, 1], [0, 4]], r"user 1 \(counting from 0\).*4"),
        ([], "at least one user"),
        ([[0, 1], 3], "user 1 .*must hold a list"),
    ],
)
def test_wrong_holdings_are_refused_in_words(held: Any, words_: str) -> None:
    with pytest.raises(InputError, match=words_):
        UserHistogram(users_of(Clustered(2, 2, 0.1), 2)).inputs(held, 1.0)


def test_a_user_without_items_and_one_with_too_many_are_refused() -> None:
    query = UserHistogram(users_of(Space(Categories(["a", "b"]), Discrete())))
    with pytest.raises(DomainError, match="holds no items"):
        query.inputs([["a"], []], 1.0)
    with pytest.raises(InputError, match="up to 1,048,576 items"):
        query.inputs([np.zeros(MAX_ITEMS + 1, dtype=np.int64)], 1.0)


def test_queries_with_tables_can_be_compared() -> None:
    people = users_of(Integers(0, 3))
    first, same, other = (
        UserLinearQuery(people, table)
        for table in ([0.0, 1.0, 2.0, 3.0], [0.0, 1.0, 2.0, 3.0], [0.0, 1.0, 2.0, 4.0])
    )
    assert first == same
    assert first != other
    assert first != people
    assert hash(first) == hash(same)


def test_distances_of_no_tree_have_no_tree_features() -> None:
    """Cells of a grid: there is no tree, and whoever asks for masses below its edges is told so."""
    query = UserHistogram(users_of(Grid(3, 3, 1.0)))
    assert query.tree is None
    with pytest.raises(PlanError, match="not those along a line or a tree"):
        TreeEdges().coordinates(query)


def test_cells_of_a_grid_count_at_their_middles() -> None:
    """The mean place of users averages the middles of cells."""
    query = UserLinearQuery.average(users_of(Grid(3, 2, 10.0, "m")))
    assert query.names == ("east", "north")
    assert query.table[0].tolist() == [5.0, 5.0]
    assert query.table[-1].tolist() == [25.0, 15.0]
    assert query.averages_points
    assert not UserLinearQuery(
        users_of(Grid(3, 2, 10.0, "m")), query.table, ("x", "y")
    ).averages_points


def test_values_of_users_are_clamped_if_asked() -> None:
    """Items outside the domain are refused, or moved to its nearest point."""
    query = UserHistogram(users_of(Integers(0, 3)))
    with pytest.raises(DomainError, match="9"):
        query.inputs([[0, 9], [1]], 1.0)
    inputs = query.inputs([[0, 9], [1]], 1.0, clamp=True)
    assert inputs.numbers[:, 0].tolist() == [0, 3, 1]
    assert inputs.sizes is not None
    assert inputs.sizes.tolist() == [2, 1]
    assert inputs.people == 2


def test_many_words_and_places_are_planned_without_pairs() -> None:
    """6,000 words: 20 similarities by the spectral norm; 6,000 places: distances to three."""
    rows = np.random.default_rng(1).normal(size=(6_000, 30))
    labels = Categories([f"w{row}" for row in range(6_000)])
    people = users_of(Space(labels, Vectors(rows)))
    wanted = {f"t{row}": rows[row] / np.linalg.norm(rows[row]) for row in range(20)}
    query = UserLinearQuery.similarity(people, rows, wanted)
    largest = float(np.linalg.svd(np.array(list(wanted.values())), compute_uv=False)[0])
    assert largest <= query.constant_in("l2") <= largest * 1.0002
    assert 1.0 <= query.constant_in("linf") <= 1.0002
    assert UserLinearQuery.embedded(people, rows).constant_in("l2") == pytest.approx(1.0, rel=2e-4)
    assert "distances" not in people.__dict__  # no table of all pairs was made
    made = plan(query, Target(1.0, 1e-6, 1.0), 500, trusted="curator")
    assert {row.protocol for row in made.not_offered} == {"k-norm"}
    release = made.run([[user, user + 1] for user in range(500)], Randomness.seeded(1))
    truth = np.mean([query.table[[user, user + 1]].mean(axis=0) for user in range(500)], axis=0)
    errors = (np.array(release.value["value"]) - truth) / release.standard_error
    assert np.abs(errors).max() < 6.0
    with pytest.raises(InputError, match="at most 5,000"):
        UserHistogram(people)


def test_distances_to_cities_have_the_constant_of_the_triangle_inequality() -> None:
    """300 cities, rate 25, 100,000 users without trust: 1.4273e-4, as for any 1-Lipschitz query."""
    generator = np.random.default_rng(4)
    places = np.column_stack(
        [generator.uniform(-60, 70, 6_000), generator.uniform(-180, 180, 6_000)]
    )
    metric = GreatCircle(places)
    people = users_of(Space(Categories([f"city {row}" for row in range(6_000)]), metric))
    query = UserLinearQuery.distance_to(people, ["city 5", "city 70", "city 5999"])
    assert query.names == ("city 5", "city 70", "city 5999")
    assert query.table[70, 1] == 0.0
    sphere = Haversine().pairwise(places[:3], places[[5]])
    np.testing.assert_allclose(query.table[:3, :1], sphere, rtol=1e-12)
    constants: dict[NormName, float] = {"l1": 3.0, "l2": 3.0**0.5, "linf": 1.0}
    for norm, constant in constants.items():
        assert 1.006 * constant <= query.constant_in(norm) <= 1.0062 * constant
    few = users_of(Space(Categories([str(row) for row in range(300)]), GreatCircle(places[:300])))
    column = GreatCircle(places[:300]).pairwise(np.arange(300), [17])
    small = UserLinearQuery(few, column)
    made = plan(small, Target(25.0, 0.0, 1.0), 100_000, trusted="nobody", protocols=["laplace"])
    assert made.choice.expected_error == pytest.approx(1.4273e-4, rel=1e-4)
    with pytest.raises(InputError, match="at least one point"):
        UserLinearQuery.distance_to(people, [])
    with pytest.raises(DomainError, match="Atlantis"):
        UserLinearQuery.distance_to(people, ["Atlantis"])


def test_totals_are_those_of_everybodys_items() -> None:
    """Twice the mean of two items; from the exact vectors of a curator, up to its noise."""
    people = ms.users_of(ms.Integers(-3, 40, "h"), 2)
    query = ms.UserLinearQuery.total(people)
    assert query.title == "user-total"
    assert query.error_unit == "h"
    assert str(query).startswith("total over ")
    held = [[-3, 5], [40, 40], [0, 1]] * 200
    planned = ms.plan(query, ms.Target(50, 1e-6, 10), 600)
    planned.task.verify()
    release = planned.run(held, Randomness.seeded(1))
    low, high = release.interval(0.9999)
    truth = np.mean([sum(items) for items in held])
    assert low <= truth <= high
    assert high - low < 3.0
    mean = ms.plan(ms.UserLinearQuery.average(people), ms.Target(50, 1e-6, 10), 600)
    assert planned.choice.expected_error == pytest.approx(
        2.0 * mean.choice.expected_error, rel=0.02
    )
    again = UserLinearQuery.model_validate_json(query.model_dump_json())
    assert again == query
    assert again.title == "user-total"


def test_totals_of_any_number_of_items_are_refused() -> None:
    with pytest.raises(InputError, match="the same number of items for everybody"):
        ms.UserLinearQuery.total(ms.users_of(ms.Integers(0, 9)))
    with pytest.raises(InputError, match="totals are those of Integers"):
        ms.UserLinearQuery.total(ms.users_of(ms.Grid(3, 3, 1.0), 2))


def test_the_share_of_items_above_thresholds_is_that_of_single_values() -> None:
    """One item a user: the columns are what `ShareAbove` counts a person with that number as."""
    domain = ms.Integers(10, 60)
    for at, fade in (((30,), None), ((30, 45), 7)):
        query = ms.UserLinearQuery.share_above(ms.users_of(domain), at, fade)
        single = ms.ShareAbove(domain, at, fade)
        assert np.allclose(query.table, single.exact(np.eye(51, dtype=np.int64)), atol=1e-12)
        assert query.names == single.row_labels
        # windows are disjoint: several thresholds cost no more than one
        width = 1.0 if fade is None else fade
        assert query.constant_in("l1") == pytest.approx(1.0 / width, rel=1e-6)
    with pytest.raises(InputError, match="must increase"):
        ms.UserLinearQuery.share_above(ms.users_of(domain), (45, 30))


def test_intervals_of_totals_and_shares_above_cover_on_a_spike() -> None:
    """Everybody holds the same; 60 releases each, of which a 95 % interval misses 9 at most."""
    people = ms.users_of(ms.Integers(0, 20))
    query = ms.UserLinearQuery.share_above(people, (10,), 4)
    planned = ms.plan(query, ms.Target(3, 1e-6, 5), 30)
    held = [[9, 10, 20], [12], [8, 8]] * 10
    truth = float(np.mean([np.mean([np.clip((x - 7) / 4, 0, 1) for x in items]) for items in held]))
    misses = 0
    for seed in range(60):
        release = planned.run(held, Randomness.seeded(seed))
        low, high = np.asarray(release.interval(0.95)).ravel()
        misses += not low <= truth <= high
    assert misses <= 9
