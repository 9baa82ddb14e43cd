"""Polytope of a query: certified constants in exact arithmetic, shapes, and what is refused."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from tests.tables import check_all

from metricshuffle.accounting.user_items.query_polytope import polytope_constant, query_polytope
from metricshuffle.errors import ConditionError, InputError
from metricshuffle.noise.polytope import Polytope
from metricshuffle.numerics.types import Floats
from metricshuffle.queries.exact_features import ExactFeatures

LINE = np.arange(21.0)
APART = np.abs(np.subtract.outer(LINE, LINE))
NOISE = np.random.default_rng(3).normal(size=(21, 4))
TABLES: dict[str, Floats] = {
    "two curves": np.column_stack([LINE, LINE**2 / 20.0]),
    "ramps": np.column_stack([np.clip(LINE - 3, 0, 4), np.clip(LINE - 9, 0, 2)]),
    "nearly parallel": np.column_stack([LINE, LINE + 1e-4 * NOISE[:, 0]]),
    "very nearly parallel": np.column_stack([LINE, LINE + 3e-6 * NOISE[:, 0]]),
    "four columns": NOISE,
    "different units": np.column_stack([LINE, 1e5 * NOISE[:, 0], 1e-2 * NOISE[:, 1]]),
    "tiny": 1e-280 * np.column_stack([LINE, LINE**2]),
    "huge": 1e285 * np.column_stack([LINE, LINE**2]),
}


def exact_constant(features: ExactFeatures, distances: Floats, polytope: Polytope) -> Fraction:
    """The largest norm per distance over all pairs, in fractions."""
    rows = [[int(number) for number in row] for row in features.numbers]
    return max(
        Fraction(
            max(
                abs(sum(k * (x - y) for k, x, y in zip(facet, a, b, strict=True)))
                for facet in polytope.facets
            ),
            polytope.largest,
        )
        / Fraction(2) ** features.power
        / Fraction(float(distances[i, j]))
        for (i, a), (j, b) in itertools.combinations(enumerate(rows), 2)
    )


@check_all("name", list(TABLES))
def test_the_constant_is_not_below_the_exact_one(name: str) -> None:
    for distances in (APART, 1.0 - np.eye(21), APART * 1e-12, np.sqrt(APART)):
        features = ExactFeatures.of(TABLES[name])
        polytope = query_polytope(features.numbers, distances)
        constant = polytope_constant(features.numbers, features.power, distances, polytope)
        exact = exact_constant(features, distances, polytope)
        assert Fraction(constant) >= exact
        assert float(Fraction(constant) / exact) < 1.0 + 1e-11


@check_all("name", ["two curves", "ramps"])
def test_the_polytope_of_two_columns_is_the_hull(name: str) -> None:
    """Every corner of the polytope is, up to rounding, a move per distance of some pair."""
    features = ExactFeatures.of(TABLES[name])
    polytope = query_polytope(features.numbers, APART)
    constant = polytope_constant(features.numbers, features.power, APART, polytope)
    first, second = np.triu_indices(21, 1)
    moves = (features.table[first] - features.table[second]) / APART[first, second][:, None]
    rows = np.concatenate([polytope.matrix, -polytope.matrix]) / polytope.largest / constant
    scaled = moves @ rows.T
    assert scaled.max() <= 1.0 + 1e-9
    # Each facet is touched by two corners of the hull.
    touched = (np.abs(scaled) > 1.0 - 1e-4).sum(axis=0)
    assert (touched >= 1).all()
    corners = [
        np.linalg.solve(rows[[i, j]], np.ones(2))
        for i, j in itertools.combinations(range(len(rows)), 2)
        if abs(np.linalg.det(rows[[i, j]])) > 1e-9
    ]
    sizes = np.abs(moves).max(axis=0)
    for corner in corners:
        if (rows @ corner).max() <= 1.0 + 1e-9:
            off = np.abs((np.concatenate([moves, -moves]) - corner) / sizes).max(axis=1).min()
            assert off < 1e-2


@check_all("size", [2, 3, 8])
def test_a_box_has_as_many_facets_as_columns(size: int) -> None:
    corners = np.array(list(itertools.product((0.0, 1.0), repeat=size)))
    apart = np.abs(corners[:, None] - corners[None]).max(axis=2)
    features = ExactFeatures.of(corners)
    polytope = query_polytope(features.numbers, apart)
    assert len(polytope.facets) == size
    constant = polytope_constant(features.numbers, features.power, apart, polytope)
    np.testing.assert_allclose(polytope.squares * constant**2, 1.0 / 3.0, rtol=1e-9)


def test_what_has_no_polytope_is_refused_with_a_sentence() -> None:
    def refused(table: Floats, words: str, distances: Floats = APART) -> None:
        with pytest.raises(ConditionError, match=words):
            query_polytope(ExactFeatures.of(table).numbers, distances)

    refused(LINE[:, None], "2 to 8 columns")
    refused(np.column_stack([LINE] * 9), "2 to 8 columns")
    refused(np.column_stack([LINE, 2.0 * LINE + 7.0]), "linearly dependent")
    refused(np.column_stack([LINE, NOISE[:, 0], LINE - 3.0 * NOISE[:, 0]]), "linearly dependent")
    refused(np.column_stack([LINE, np.zeros(21)]), "not constant")
    refused(np.column_stack([LINE, 1e-9 * NOISE[:, 0]]), "comparable amounts|not constant")
    refused(NOISE, "linearly dependent", np.zeros((21, 21)))


def test_points_at_distance_0_must_have_the_same_answer() -> None:
    features = ExactFeatures.of(TABLES["two curves"])
    distances = APART.copy()
    distances[3, 4] = distances[4, 3] = 0.0
    polytope = query_polytope(features.numbers, APART)
    with pytest.raises(InputError, match="distance 0"):
        polytope_constant(features.numbers, features.power, distances, polytope)


def test_facets_whose_products_are_not_exact_are_refused() -> None:
    features = ExactFeatures.of(TABLES["two curves"])
    with pytest.raises(InputError, match="too fine"):
        polytope_constant(
            features.numbers, features.power, APART, Polytope(((2**50, 1), (1, 2**50)))
        )
    with pytest.raises(InputError, match="3 coordinates"):
        polytope_constant(
            features.numbers, features.power, APART, Polytope(((1, 0, 0), (0, 1, 0), (0, 0, 1)))
        )
