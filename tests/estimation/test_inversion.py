"""Inversion, projection and likelihood, against the laws themselves."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.tables import check_all

from metricshuffle.errors import InputError, NotCertified
from metricshuffle.estimation.inversion import Inversion
from metricshuffle.estimation.likelihood import fit_likelihood
from metricshuffle.estimation.share_projection import simplex_projection
from metricshuffle.randomizers import (
    BoundedGeometric,
    Channel,
    HadamardResponse,
    KaryRandomizedResponse,
    LaplaceOnInterval,
    PlanarGeometric,
    Randomizer,
    Rappor,
    SubsetSelection,
)

KINDS = [
    KaryRandomizedResponse(5, 1.2),
    KaryRandomizedResponse(2, 0.3),
    HadamardResponse(5, 1.0),
    SubsetSelection(6, 1.0, size=2),
    Rappor(4, 2.0),
    BoundedGeometric(7, 0.6),
    PlanarGeometric(4, 3, 0.9),
    LaplaceOnInterval(0.0, 1.0, 4.0, steps=6),
    Channel([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3]]),
]


def ids(kind: Randomizer) -> str:
    return str(getattr(kind, "kind", ""))


@check_all("kind", KINDS)
def test_unbiased_exactly_and_the_variance_is_that_of_the_law(kind: Randomizer) -> None:
    inversion = Inversion.of(kind)
    rows = kind.rows()
    cells = kind.inputs
    for x in range(cells):
        at = np.eye(cells)[x]
        assert inversion.reports_of(at) == pytest.approx(rows[x], abs=1e-14)
        scale = inversion.condition
        assert inversion.totals(rows[x]) == pytest.approx(at, abs=1e-11 * scale)
        # One report of x: the mean square of its contribution minus the square of its mean.
        terms = np.array([inversion.totals(unit) for unit in np.eye(kind.outputs)])
        assert inversion.variances(at) == pytest.approx(
            rows[x] @ terms**2 - at**2, rel=1e-9, abs=1e-9 * scale
        )
        assert np.all(inversion.variances(at) <= inversion.largest_variances * (1 + 1e-12))
        assert np.all(np.abs(terms - at) <= inversion.largest_terms * (1 + 1e-12))
    assert inversion.condition == pytest.approx(np.abs(terms).sum(axis=1).max())


def test_values_that_cannot_be_told_apart_are_refused_in_words() -> None:
    for rows in ([[0.5, 0.5], [0.5, 0.5]], [[0.6, 0.4], [0.2, 0.8], [0.4, 0.6]]):
        with pytest.raises(NotCertified, match=r"inverted|told"):
            Inversion.of(Channel(rows))
    # The likeliest shares exist all the same.
    fit = fit_likelihood(
        (Channel([[0.6, 0.4], [0.2, 0.8], [0.4, 0.6]]).rows(),), np.array([40, 60])
    )
    assert fit.gap * 100 <= 0.01
    assert fit.frequencies @ [0.6, 0.2, 0.4] == pytest.approx(0.4, abs=1e-2)


def log_likelihood(
    rows: NDArray[np.float64], frequencies: NDArray[np.float64], counts: NDArray[np.int64]
) -> float:
    law = frequencies @ rows
    return float(counts[counts > 0] @ np.log(law[counts > 0]))


@check_all("kind", [KINDS[0], KINDS[5], KINDS[6], KINDS[8]])
def test_the_likelihood_rises_to_a_certified_maximum(kind: Randomizer) -> None:
    counts = np.array(
        [(37 * report * report + 11 * report) % 23 for report in range(kind.outputs)],
        dtype=np.int64,
    )
    rows = kind.rows()
    parts = Inversion.of(kind).rows
    path = [
        log_likelihood(
            rows, fit_likelihood(parts, counts, shortfall=0.0, steps=steps).frequencies, counts
        )
        for steps in range(12)
    ]
    assert all(later >= earlier - 1e-9 for earlier, later in itertools.pairwise(path))
    fit = fit_likelihood(parts, counts, shortfall=1e-6)
    assert fit.gap * counts.sum() <= 1e-6
    assert fit.frequencies.sum() == pytest.approx(1.0)
    # The conditions of Karush, Kuhn and Tucker: no slope above 1, and 1 where there is mass.
    slope = rows @ (counts / counts.sum() / (fit.frequencies @ rows))
    assert slope.max() <= 1.0 + fit.gap + 1e-12
    assert np.abs(slope[fit.frequencies > 1e-3] - 1.0).max() < 1e-4
    best = log_likelihood(rows, fit.frequencies, counts)
    for corner in np.eye(kind.inputs):
        for share in (1e-6, 1e-3, 0.3):
            assert (
                log_likelihood(rows, (1 - share) * fit.frequencies + share * corner, counts)
                <= best + fit.gap * counts.sum() + 1e-9
            )


def test_where_inversion_is_possible_the_likeliest_shares_are_the_inverted_ones() -> None:
    kind = KaryRandomizedResponse(4, 1.5)
    counts = np.array([400, 250, 200, 150])
    fit = fit_likelihood(Inversion.of(kind).rows, counts, shortfall=1e-9)
    assert fit.frequencies == pytest.approx(
        Inversion.of(kind).totals(counts.astype(float)) / 1000, abs=1e-4
    )


def test_reports_that_cannot_be_and_no_reports() -> None:
    kind = Channel([[0.5, 0.5, 0.0], [0.1, 0.9, 0.0]])
    with pytest.raises(InputError, match="impossible"):
        fit_likelihood((kind.rows(),), np.array([1, 1, 1]))
    with pytest.raises(InputError, match="no reports"):
        fit_likelihood((kind.rows(),), np.array([0, 0, 0]))


@settings(deadline=None, max_examples=60)
@given(st.lists(st.floats(-5, 5), min_size=1, max_size=30))
def test_the_projection_is_the_nearest_point_of_the_simplex(values: list[float]) -> None:
    given_values = np.array(values)
    nearest = simplex_projection(given_values)
    assert nearest.min() >= 0.0
    assert math.fsum(nearest) == pytest.approx(1.0)
    # Nearest: the angle towards every corner is obtuse.
    towards = (given_values - nearest) @ (np.eye(len(values)) - nearest).T
    assert towards.max() <= 1e-9
    assert simplex_projection(nearest) == pytest.approx(nearest, abs=1e-12)
    assert np.all(np.diff(nearest[np.argsort(given_values, kind="stable")]) >= -1e-15)


@check_all("wrong", [[], [math.nan], [[0.1]]])
def test_a_projection_of_nonsense_is_refused(wrong: list[float]) -> None:
    with pytest.raises(InputError, match="finite"):
        simplex_projection(np.array(wrong))
