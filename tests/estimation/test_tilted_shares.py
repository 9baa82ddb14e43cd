"""Shares near a guess: what is known is fitted, what is not keeps the guess's proportions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from tests.tables import check_all

from metricshuffle.errors import InputError
from metricshuffle.estimation.tilted_shares import tilted_shares


def test_blocks_are_fitted_and_keep_the_proportions_of_the_guess() -> None:
    """Two features that each count half of the points: within a half, the guess decides."""
    design = csr_array(np.repeat(np.eye(2), 3, axis=0))
    guess = np.array([1.0, 2.0, 3.0, 1.0, 1.0, 2.0])
    means = np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]])
    shares = tilted_shares(design, means, np.full(2, 1e-4), guess)
    assert shares.min() >= 0.0
    assert shares.sum(axis=1) == pytest.approx(1.0)
    assert shares @ design.toarray() == pytest.approx(means, abs=3e-4)
    assert shares[:, :3] / shares[:, :1] == pytest.approx(np.array([[1.0, 2.0, 3.0]] * 3))


def test_a_guess_that_explains_the_means_is_returned() -> None:
    generator = np.random.default_rng(1)
    design = csr_array(generator.random((20, 5)))
    guess = generator.random(20) + 0.1
    exact = guess / guess.sum() @ design.toarray()
    noisy = exact + generator.uniform(-1e-3, 1e-3, 5)
    assert tilted_shares(design, noisy, np.full(5, 1e-3), guess)[0] == pytest.approx(
        guess / guess.sum()
    )


def test_the_misfit_is_that_of_the_noise_and_no_shares_are_nearer_to_the_guess() -> None:
    """Against a generic solver: the least relative entropy among shares with the same fit."""
    from scipy import optimize

    minimize: Any = optimize.minimize
    generator = np.random.default_rng(2)
    design = generator.random((8, 3))
    guess = np.full(8, 1 / 8)
    truth = generator.dirichlet(np.ones(8))
    errors = np.full(3, 0.003)
    means = truth @ design
    shares = tilted_shares(csr_array(design), means, errors, guess)[0]
    misfit = float(np.sum(((shares @ design - means) / errors) ** 2))
    assert misfit <= 3.0
    reached = shares @ design
    best = minimize(
        lambda p: float(np.sum(p * np.log(np.maximum(p, 1e-12) / guess))),
        guess,
        bounds=[(0.0, 1.0)] * 8,
        constraints=[
            {"type": "eq", "fun": lambda p: p.sum() - 1.0},
            {"type": "eq", "fun": lambda p: p @ design - reached},
        ],
        options={"maxiter": 500, "ftol": 1e-12},
    )
    assert shares == pytest.approx(best.x, abs=1e-3)


def test_many_rows_are_fitted_as_one_by_one() -> None:
    generator = np.random.default_rng(3)
    design = csr_array(np.where(generator.random((40, 10)) < 0.3, generator.random((40, 10)), 0.0))
    errors = generator.uniform(0.001, 0.01, 10)
    rows = (
        generator.dirichlet(np.ones(40), 150) @ design + generator.normal(0, 1, (150, 10)) * errors
    )
    together = tilted_shares(design, rows, errors, np.ones(40))
    single = np.concatenate([tilted_shares(design, row, errors, np.ones(40)) for row in rows[::29]])
    assert together[::29] == pytest.approx(single, abs=1e-3)
    assert np.all(np.isfinite(together))


def test_impossible_means_and_wrong_shapes() -> None:
    design = csr_array(np.eye(3))
    shares = tilted_shares(design, np.array([5.0, -4.0, 0.0]), np.full(3, 0.01), np.ones(3))[0]
    assert shares == pytest.approx([1.0, 0.0, 0.0], abs=5e-2)  # near the least misfit
    for means, errors, guess in (
        (np.zeros(2), np.ones(3), np.ones(3)),
        (np.zeros(3), np.ones(2), np.ones(3)),
        (np.zeros(3), np.ones(3), np.ones(4)),
        (np.zeros(3), np.zeros(3), np.ones(3)),
        (np.array([0.0, np.nan, 0.0]), np.ones(3), np.ones(3)),
        (np.zeros(3), np.ones(3), np.zeros(3)),
    ):
        with pytest.raises(InputError):
            tilted_shares(design, means, errors, guess)


@check_all("seed", range(6))
def test_means_that_no_shares_have_are_fitted_nearly_as_well_as_possible(seed: int) -> None:
    """Against the least misfit of all shares by nonnegative least squares."""
    from scipy.optimize import nnls

    generator = np.random.default_rng(seed)
    design = generator.dirichlet(np.ones(6), 15)
    errors = generator.uniform(0.02, 0.1, 6)
    means = np.full(6, 1 / 6) + generator.normal(0.0, 1.0, 6)
    shares = tilted_shares(csr_array(design), means, errors, np.ones(15))[0]
    weighted = np.vstack([(design / errors).T, np.full(15, 1e5)])
    least = nnls(weighted, np.append(means / errors, 1e5))[1] ** 2
    assert least > 6.0  # no shares explain these means
    assert np.sum(((shares @ design - means) / errors) ** 2) <= 1.02 * least
