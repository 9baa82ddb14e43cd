"""Shares near a public guess that explain noisy means of features: maximum relative entropy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from metricshuffle.errors import InputError
from metricshuffle.numerics.types import Floats, Integers64, Mask

if TYPE_CHECKING:
    from scipy.sparse import csr_array

CAUTION = 4.0
"""Factor by which the weight of the guess falls from one attempt to the next."""
MAX_ATTEMPTS = 24
LEAST_MISFIT_ROOM = 1.01
"""A misfit up to this many times the least one of any shares is not reduced further."""
MAX_NEWTON_STEPS = 30
MAX_CONJUGATE_STEPS = 60
CONJUGATE_TOLERANCE = 0.1
GRADIENT_TOLERANCE = 0.05  # of the standard errors, in the root mean square
SMALLEST_STEP = 1e-4
ROWS_AT_ONCE = 64


def tilted_shares(design: csr_array, means: Floats, errors: Floats, guess: Floats) -> Floats:
    """Shares nearest to a guess, in relative entropy, whose features agree with noisy means.

    The shares p minimize c KL(p || guess) + sum over features e of ((p @ design)_e - means_e)^2 /
    (2 errors_e^2). The weight c of the guess falls until the sum of squares, in standard errors, is
    at most the number of features: then the difference is no more than the noise explains. Where
    no shares agree that well, it falls until the sum is near the least one of any shares. Points
    that the features do not distinguish keep the proportions of the guess. One row of shares per
    row of means.

    Numerics: with p = guess * exp(design @ t) up to a constant, t minimizes a convex function of
    one number per feature, by Newton's method with conjugate gradients. The result is an estimate,
    for which no bound is claimed; it is >= 0 and has sum 1.
    """
    rows = np.atleast_2d(np.asarray(means, dtype=np.float64))
    deviations = np.asarray(errors, dtype=np.float64)
    start = np.asarray(guess, dtype=np.float64)
    points, features = design.shape
    if rows.shape[1] != features or deviations.shape != (features,) or start.shape != (points,):
        raise InputError(
            f"shares of {points:,} points need a guess for each, and a mean and a standard error "
            f"for each of {features:,} features."
        )
    if not (np.all(start > 0.0) and np.all(deviations > 0.0) and np.all(np.isfinite(rows))):
        raise InputError("guesses and standard errors must be > 0, and means must be finite.")
    dual = _EntropyDual(
        design.tocsr(), design.T.tocsr(), np.log(start / start.sum())[:, None], deviations[:, None]
    )
    parts = [
        dual.fitted(rows[first : first + ROWS_AT_ONCE].T)
        for first in range(0, len(rows), ROWS_AT_ONCE)
    ]
    return np.ascontiguousarray(np.concatenate(parts, axis=1).T)


@dataclass(frozen=True, eq=False)
class _Tilt:
    """Tilts t (one column per row of means), their shares, and logarithms of their sums."""

    numbers: Floats
    shares: Floats
    levels: Floats

    def some(self, columns: Integers64 | Mask) -> _Tilt:
        return _Tilt(self.numbers[:, columns], self.shares[:, columns], self.levels[columns])

    def put(self, columns: Integers64, other: _Tilt) -> None:
        """Replace some columns in place."""
        self.numbers[:, columns] = other.numbers
        self.shares[:, columns] = other.shares
        self.levels[columns] = other.levels


@dataclass(frozen=True, eq=False)
class _EntropyDual:
    """The convex function log sum guess e^(design @ t) - t . means + c/2 sum (errors t)^2."""

    design: csr_array
    transposed: csr_array
    log_guess: Floats
    errors: Floats

    def fitted(self, means: Floats) -> Floats:
        """Shares for each column of means."""
        tilt = self._at(np.zeros_like(means))
        features, columns = means.shape
        misfits = (self.transposed @ tilt.shares - means) / self.errors
        # The first weights are so large that no tilt exceeds 1.
        weights = np.max(np.abs(misfits) / self.errors, axis=0)
        active = np.arange(columns)
        for _ in range(MAX_ATTEMPTS):
            least = self._least_misfit(tilt.numbers[:, active], means[:, active])
            enough = np.maximum(features, LEAST_MISFIT_ROOM * least)
            active = active[np.sum(misfits[:, active] ** 2, axis=0) > enough]
            if not len(active):
                break
            tilt.put(active, self._minimized(tilt.some(active), means[:, active], weights[active]))
            misfits[:, active] = (
                self.transposed @ tilt.shares[:, active] - means[:, active]
            ) / self.errors
            weights /= CAUTION
        return tilt.shares

    def _least_misfit(self, numbers: Floats, means: Floats) -> Floats:
        """Lower bound, from tilts t, on the sum of squares of any shares.

        t . (means - p @ design) is at least t . means - max (design @ t) for all shares p, and by
        the Cauchy-Schwarz inequality at most the norm of errors t times that of the misfits.
        """
        apart = np.sum(numbers * means, axis=0) - (self.design @ numbers).max(axis=0)
        scales = np.sum((self.errors * numbers) ** 2, axis=0)
        return np.asarray(
            np.maximum(apart, 0.0) ** 2 / np.where(scales > 0.0, scales, 1.0), dtype=np.float64
        )

    def _at(self, numbers: Floats) -> _Tilt:
        logs = self.log_guess + self.design @ numbers
        tops = logs.max(axis=0)
        raw = np.exp(logs - tops)
        totals = raw.sum(axis=0)
        return _Tilt(numbers, raw / totals, tops + np.log(totals))

    def _minimized(self, tilt: _Tilt, means: Floats, weights: Floats) -> _Tilt:
        """Newton's method with a line search, in all columns at once."""
        ridges = weights * self.errors**2
        active = np.arange(means.shape[1])
        for _ in range(MAX_NEWTON_STEPS):
            here = tilt.some(active)
            fitted = self.transposed @ here.shares
            gradient = fitted - means[:, active] + ridges[:, active] * here.numbers
            sizes = np.sqrt(np.mean((gradient / self.errors) ** 2, axis=0))
            moving = sizes > GRADIENT_TOLERANCE
            if not moving.any():
                break
            active = active[moving]
            here = here.some(moving)
            ridge = ridges[:, active]
            step = self._newton_step(here.shares, fitted[:, moving], gradient[:, moving], ridge)
            slope = np.sum(gradient[:, moving] * step, axis=0)
            moved, progress = self._moved(here, step, slope, means[:, active], ridge)
            tilt.put(active, moved)
            active = active[progress]
            if not len(active):
                break
        return tilt

    def _moved(
        self, here: _Tilt, step: Floats, slope: Floats, means: Floats, ridge: Floats
    ) -> tuple[_Tilt, Mask]:
        """Tilts after a step that is halved until it descends, and whether it does."""

        def value(tilt: _Tilt) -> Floats:
            squares = 0.5 * np.sum(ridge * tilt.numbers**2, axis=0)
            return np.asarray(tilt.levels - np.sum(tilt.numbers * means, axis=0) + squares)

        before = value(here)
        lengths = np.ones(len(slope))
        while True:
            moved = self._at(here.numbers + lengths * step)
            descends = value(moved) <= before + 1e-4 * lengths * slope
            if np.all(descends | (lengths < SMALLEST_STEP)):
                return moved, descends
            lengths = np.where(descends, lengths, 0.5 * lengths)

    def _newton_step(
        self, shares: Floats, fitted: Floats, gradient: Floats, ridge: Floats
    ) -> Floats:
        """Conjugate gradients on the curvature, preconditioned by its diagonal."""
        diagonal = 1.0 / np.maximum(
            self.transposed.power(2) @ shares - fitted**2 + ridge, np.finfo(float).tiny
        )
        step = np.zeros_like(gradient)
        residual = -gradient
        direction = diagonal * residual
        product = np.sum(residual * direction, axis=0)
        goal = CONJUGATE_TOLERANCE**2 * product
        for _ in range(MAX_CONJUGATE_STEPS):
            bent = (
                self.transposed @ (shares * (self.design @ direction))
                - fitted * np.sum(fitted * direction, axis=0)
                + ridge * direction
            )
            curvature = np.sum(direction * bent, axis=0)
            length = np.where(
                curvature > 0.0, product / np.where(curvature > 0.0, curvature, 1.0), 0.0
            )
            step += length * direction
            residual = residual - length * bent
            scaled = diagonal * residual
            following = np.sum(residual * scaled, axis=0)
            if np.all(following <= goal):
                break
            ratio = np.where(product > 0.0, following / np.where(product > 0.0, product, 1.0), 0.0)
            direction = scaled + ratio * direction
            product = following
        return step
