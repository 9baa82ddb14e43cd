"""Shares of least squares: as good as other solvers', and within the stated distance."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import minimize, nnls
from scipy.sparse import csr_array
from tests.tables import check_all

from metricshuffle.errors import InputError
from metricshuffle.estimation import _least_squares_kernels as kernels
from metricshuffle.estimation.least_squares import nearest_shares
from metricshuffle.estimation.share_projection import shares_from_windows, simplex_projection

Floats = NDArray[np.float64]


def some_problem(seed: int, points: int, features: int) -> tuple[Floats, Floats, Floats]:
    generator = np.random.default_rng(seed)
    design = generator.integers(0, 4, (points, features)).astype(np.float64)
    errors = generator.uniform(0.01, 0.3, features)
    means = generator.dirichlet(np.full(points, 0.5), 3) @ design + generator.normal(
        0.0, errors, (3, features)
    )
    return design, means, errors


def half_squares(shares: Floats, design: Floats, means: Floats, errors: Floats) -> Floats:
    return np.asarray(0.5 * (((shares @ design - means) / errors) ** 2).sum(axis=-1))


def by_nnls(design: Floats, means: Floats, errors: Floats) -> Floats:
    """Active sets, with the sum held at one by a heavy weight."""
    heavy = 1e4 / errors.min()
    found, _ = nnls(
        np.vstack([(design / errors).T, np.full(len(design), heavy)]),
        np.append(means / errors, heavy),
    )
    return np.asarray(found / found.sum())


@check_all(("points", "features"), [(2, 1), (5, 8), (12, 5), (30, 30)])
@check_all("on_line", [False, True])
def test_no_other_solver_finds_better_ones(points: int, features: int, on_line: bool) -> None:
    for seed in range(6):
        design, means, errors = some_problem(seed, points, features)
        fit = nearest_shares(design, means, errors, on_line=on_line, nearness=1e-8, steps=100_000)
        reached = half_squares(fit.shares, design, means, errors)
        assert np.all(fit.gaps <= 1e-8 * 0.5 * features * (1.0 + 1e-9))
        np.testing.assert_allclose(fit.shares.sum(axis=1), 1.0, atol=1e-12)
        assert fit.shares.min() >= 0.0
        for run in range(len(means)):
            other = half_squares(by_nnls(design, means[run], errors), design, means[run], errors)
            assert reached[run] <= other + 1e-6 * (1.0 + other)
            assert other >= reached[run] - fit.gaps[run] - 1e-6 * (1.0 + other), (
                "the gap is no bound"
            )


def test_a_general_solver_agrees() -> None:
    design, means, errors = some_problem(11, 6, 9)
    found = nearest_shares(design, means[0], errors, nearness=1e-10, steps=100_000)
    other = minimize(  # type: ignore[call-overload]
        lambda shares: float(half_squares(shares, design, means[0], errors)),
        np.full(6, 1 / 6),
        method="SLSQP",
        bounds=[(0, 1)] * 6,
        constraints={"type": "eq", "fun": lambda shares: shares.sum() - 1.0},
        options={"ftol": 1e-14, "maxiter": 500},
    )
    np.testing.assert_allclose(found.shares[0], other.x, atol=1e-4)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(2, 25),
    st.integers(1, 25),
    st.booleans(),
    st.integers(0, 60),
)
def test_the_gap_bounds_how_far_the_best_is(
    seed: int, points: int, features: int, on_line: bool, steps: int
) -> None:
    """Wherever it stops: in squares, and in the features that are fitted."""
    design, means, errors = some_problem(seed, points, features)
    early = nearest_shares(design, means, errors, on_line=on_line, nearness=0.0, steps=steps)
    best = nearest_shares(design, means, errors, nearness=1e-9, steps=20_000)
    assert np.all(early.steps <= steps)
    more = half_squares(early.shares, design, means, errors) - half_squares(
        best.shares, design, means, errors
    )
    assert np.all(more <= early.gaps * (1.0 + 1e-9) + 1e-9)
    apart = np.sqrt(((((early.shares - best.shares) @ design) / errors) ** 2).sum(axis=1))
    assert np.all(apart <= np.sqrt(2.0 * early.gaps) + np.sqrt(2.0 * best.gaps) + 1e-6)


def test_several_runs_are_what_each_is_alone_and_sparse_is_dense() -> None:
    design, means, errors = some_problem(3, 20, 12)
    full = nearest_shares(design, means, errors)
    for form in (design, csr_array(design)):
        together = nearest_shares(form, means, errors)
        for run, row in enumerate(means):
            np.testing.assert_array_equal(
                nearest_shares(form, row, errors).shares[0], together.shares[run]
            )
        # (a full table is added up in another order)
        np.testing.assert_allclose(together.shares, full.shares, rtol=0.0, atol=1e-12)
        np.testing.assert_array_equal(together.steps, full.steps)


def test_runs_that_are_fitted_in_several_threads_are_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    design, means, errors = some_problem(3, 20, 12)
    alone = nearest_shares(design, means, errors)
    monkeypatch.setattr("metricshuffle.estimation.least_squares.MIN_THREAD_WORK", 0)
    monkeypatch.setattr("metricshuffle.numerics.threads.usable_cores", lambda: 3)
    threads = nearest_shares(design, means, errors)
    for one, other in (
        (alone.shares, threads.shares),
        (alone.gaps, threads.gaps),
        (alone.steps, threads.steps),
    ):
        np.testing.assert_array_equal(one, other)


def test_wrong_problems_are_refused() -> None:
    design, means, errors = some_problem(3, 4, 5)
    with pytest.raises(InputError, match="one finite mean for each of 5 features"):
        nearest_shares(design, means[:, :4], errors)
    with pytest.raises(InputError, match="one finite mean"):
        nearest_shares(design, np.full(5, math.nan), errors)
    for wrong in (np.zeros(5), errors[:4], np.full(5, math.nan), np.full(5, math.inf)):
        with pytest.raises(InputError, match="one standard error > 0"):
            nearest_shares(design, means, wrong)
    with pytest.raises(InputError, match="one finite mean for each of 2 windows"):
        shares_from_windows(np.array([0, 1]), np.array([1, 2]), np.ones(3), np.ones(2))
    with pytest.raises(InputError, match="one standard error > 0 for each of 2 windows"):
        shares_from_windows(np.array([0, 1]), np.array([1, 2]), np.ones(2), np.zeros(2))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(-50.0, 50.0), min_size=1, max_size=30))
def test_projections_are_the_nearest_points(values: list[float]) -> None:
    from scipy.optimize import isotonic_regression

    onto = np.array(values)
    rising = np.array(values)
    kernels.onto_shares(onto)
    np.testing.assert_allclose(onto, simplex_projection(np.array(values)), atol=1e-12)
    kernels.onto_rising(rising, np.empty(len(values)), np.empty(len(values)))
    np.testing.assert_allclose(rising, np.clip(isotonic_regression(values).x, 0.0, 1.0), atol=1e-12)


def test_windows_of_one_point_give_the_shares_back_and_wider_ones_their_means() -> None:
    truth = np.random.default_rng(2).dirichlet(np.full(10, 0.4))
    reached = np.cumsum(truth)
    places = np.arange(9)
    np.testing.assert_allclose(
        shares_from_windows(places, places + 1, reached[:-1], np.ones(9)), truth, atol=1e-12
    )
    # An even spread is straight, so that windows lose nothing.
    even = np.arange(1, 13) / 12.0
    starts = np.array([0, 3, 6, 9])
    ends = np.array([3, 6, 9, 11])
    levels = np.array([even[a:b].mean() for a, b in zip(starts, ends, strict=True)])
    np.testing.assert_allclose(
        shares_from_windows(starts, ends, levels, np.ones(4)), np.full(12, 1 / 12), atol=1e-12
    )
    # A window that is known better counts for more: 0.8 and 0.2 become what the sure one says.
    found = shares_from_windows(
        np.array([0, 1]),
        np.array([1, 2]),
        np.array([[0.8, 0.2], [0.8, 0.2]]),
        np.array([1e-3, 1.0]),
    )
    np.testing.assert_allclose(np.cumsum(found, axis=1)[:, :2], 0.8, atol=1e-5)
