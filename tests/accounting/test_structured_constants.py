"""Constants by structure: never below those of all pairs, close to the theorem, and refusals."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.tables import check_all

from metricshuffle.accounting.user_items.lipschitz import lipschitz_constant
from metricshuffle.accounting.user_items.structured_constants import (
    ORDERS,
    spectral_norm,
    structured_constants,
)
from metricshuffle.errors import InputError, NotCertified
from metricshuffle.numerics.types import Floats
from metricshuffle.queries.exact_features import ExactFeatures
from metricshuffle.spaces import GreatCircle, LabelledPoints, Vectors

RANDOM = np.random.default_rng(5)
ROWS = RANDOM.normal(size=(300, 6))
CLOSE = np.concatenate([ROWS, ROWS[:40] + 1e-9 * RANDOM.normal(size=(40, 6)), ROWS[:5]])
MATRIX = RANDOM.normal(size=(6, 4))
FLAT = np.hstack([ROWS, ROWS[:, :2]])
PLACES = np.column_stack([RANDOM.uniform(-90, 90, 200), RANDOM.uniform(-180, 180, 200)])
TOWNS = np.concatenate([PLACES, PLACES[:30] + 1e-7, PLACES[:3], [(90, 5), (90, 70)]])
TOWNS[:, 0] = np.clip(TOWNS[:, 0], -90.0, 90.0)


def below_all_pairs(features: Floats, metric: LabelledPoints) -> dict[str, float]:
    """Ratio of each constant to the one over all pairs, which must be at least 1."""
    codes = np.arange(len(features))
    apart = metric.pairwise(codes, codes)
    apart = np.minimum(apart, apart.T)
    np.fill_diagonal(apart, 0.0)
    constants = structured_constants(features, metric)
    ratios: dict[str, float] = {}
    for norm in ORDERS:
        exact = lipschitz_constant(features, apart, norm).constant
        assert constants[norm] >= exact * (1.0 - 4e-12)  # both are enlarged by 1e-12
        ratios[norm] = constants[norm] / exact
    return ratios


@check_all(
    ("rows", "matrix", "scale"),
    [
        (ROWS, MATRIX, 1.0),
        (CLOSE, MATRIX, 1.0),
        (CLOSE, MATRIX * (1.0, 1e-4, 1e3, 1.0), 1e-3),
        (ROWS + 1e3, MATRIX, 1.0),
        (ROWS * 1e100, MATRIX, 1e-50),
        (ROWS * 1e-100, MATRIX, 1e60),
        (FLAT, RANDOM.normal(size=(8, 3)), 1.0),
        (ROWS, np.column_stack([MATRIX[:, 0], MATRIX[:, 0] * (1.0 + 1e-9)]), 1.0),
    ],
)
def test_linear_functions_of_vectors_are_not_below_all_pairs(
    rows: Floats, matrix: Floats, scale: float
) -> None:
    features = ExactFeatures.of(rows @ matrix * scale).table
    below_all_pairs(features, Vectors(rows))


def test_tiny_and_huge_answers_have_scaled_constants() -> None:
    """No underflow on the path to a constant, which would promise too much."""
    features = ExactFeatures.of(ROWS @ MATRIX).table
    constants = structured_constants(features, Vectors(ROWS))
    for power in (-950, 950):
        scaled = structured_constants(np.ldexp(features, power), Vectors(ROWS))
        for norm in ORDERS:
            assert math.ldexp(scaled[norm], -power) == constants[norm]
    tiniest = structured_constants(np.ldexp(features, -1040), Vectors(ROWS))
    assert min(tiniest.values()) == 1e-290


def test_the_identity_has_constant_one() -> None:
    constants = structured_constants(ExactFeatures.of(ROWS).table, Vectors(ROWS))
    assert constants["l2"] == pytest.approx(1.0, rel=2e-4)
    assert constants["linf"] == pytest.approx(1.0, rel=2e-4)
    assert constants["l1"] == pytest.approx(math.sqrt(6.0), rel=2e-4)
    assert min(constants.values()) >= 1.0


@check_all("cities", [[0], [1, 2, 3], list(range(20)), [202, 203, 204], [231, 233, 234]])
def test_distances_to_places_are_not_below_all_pairs(cities: list[int]) -> None:
    metric = GreatCircle(TOWNS)
    table = metric.pairwise(np.arange(len(TOWNS)), cities) * 1.006
    ratios = below_all_pairs(ExactFeatures.of(table).table, metric)
    assert ratios["linf"] < 1.01


def test_distances_and_vectors_of_far_points_have_the_constant_of_the_theorem() -> None:
    metric = GreatCircle(PLACES)
    table = metric.pairwise(np.arange(len(PLACES)), [4, 9, 77])
    constants = structured_constants(ExactFeatures.of(table).table, metric)
    assert constants["linf"] == pytest.approx(1.0, rel=2e-4)
    assert constants["l2"] == pytest.approx(math.sqrt(3.0), rel=2e-4)
    assert constants["l1"] == pytest.approx(3.0, rel=2e-4)


def test_distances_to_words_are_a_structure_too() -> None:
    metric = Vectors(ROWS)
    below_all_pairs(
        ExactFeatures.of(metric.pairwise(np.arange(len(ROWS)), [3, 8]) * -2.0).table, metric
    )


def test_other_functions_are_refused_with_a_sentence() -> None:
    with pytest.raises(NotCertified, match="linear in their vectors"):
        structured_constants(ROWS**2, Vectors(ROWS))
    with pytest.raises(NotCertified, match="known only for distances"):
        structured_constants(RANDOM.normal(size=(200, 2)), GreatCircle(PLACES))
    assert structured_constants(np.ones((300, 2)), Vectors(ROWS)) == dict.fromkeys(ORDERS, 0.0)


def test_points_at_one_place_that_the_query_tells_apart_are_refused() -> None:
    rows = np.concatenate([ROWS, ROWS[:1]])
    features = rows @ MATRIX
    features[0] += 1e-8
    with pytest.raises(InputError, match=r"points (0 and 300|300 and 0)"):
        structured_constants(features, Vectors(rows))


@check_all("size", [(1, 1), (3, 3), (20, 100), (100, 20), (60, 60)])
def test_the_spectral_norm_is_an_upper_bound_and_close(size: tuple[int, int]) -> None:
    for factor in (1.0, 1e-280, 1e280):
        matrix = np.random.default_rng(size[0]).normal(size=size) * factor
        largest = float(np.linalg.svd(matrix / factor, compute_uv=False)[0]) * factor
        bound = spectral_norm(matrix)
        assert largest * (1.0 - 1e-13) <= bound <= largest * (1.0 + 1e-5)
    # Equal singular values are the worst case of the Frobenius norm.
    assert 1.0 <= spectral_norm(np.eye(size[0])) <= 1.0 + 1e-5
    assert spectral_norm(np.zeros(size)) == 0.0
    rank_one = np.outer(np.arange(1.0, 5.0), np.ones(3))
    assert spectral_norm(rank_one) == pytest.approx(math.sqrt(90.0), rel=1e-9)
