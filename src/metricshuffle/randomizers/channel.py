"""A randomizer given by its matrix: for user-defined laws, and the reference for closed forms."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Annotated, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import PlainSerializer, PlainValidator

from metricshuffle.accounting.shuffling.blanket_law import BlanketLaw
from metricshuffle.errors import InputError, NotCertified, argument, owner
from metricshuffle.models import FrozenModel
from metricshuffle.numerics.types import Floats, Integers32
from metricshuffle.privacy.profile import checked_epsilon
from metricshuffle.randomizers.dyadic_weights import (
    TOTAL_WEIGHT,
    Weights,
    dyadic,
    log_rounded_up,
    logs_rounded_up,
)
from metricshuffle.randomizers.randomizer import (
    LARGEST_MATRIX,
    Pair,
    Randomizer,
    code_values,
    smallest_type,
)
from metricshuffle.randomness import BUFFER_WORDS, Randomness

ROW_TOLERANCE = 1e-9
# Relative tolerance of a claim: the entries of a matrix are rounded decimals or floats.
CLAIM_TOLERANCE = 1e-12
LARGEST_CONDITION = 1e12


def _stochastic(values: object) -> Floats:
    matrix = np.array(values, dtype=np.float64)
    if matrix.ndim != 2 or matrix.size == 0:
        raise ValueError(
            "must be a matrix with a row per input and a column per report, got shape "
            f"{matrix.shape}"
        )
    if matrix.size > LARGEST_MATRIX:
        raise ValueError(
            f"must have at most 2^24 entries, got {matrix.shape[0]:,} x {matrix.shape[1]:,}"
        )
    invalid = ~(np.isfinite(matrix) & (matrix >= 0.0))
    if invalid.any():
        x, y = (int(index) for index in np.argwhere(invalid)[0])
        raise ValueError(
            f"must hold probabilities, but row {x} (counting from 0), column {y} is {matrix[x, y]}"
        )
    sums = matrix.sum(axis=1)
    # Rounding of the sum matters only near the tolerance.
    if np.abs(sums - 1.0).max() > 0.5 * ROW_TOLERANCE:
        sums = np.array([math.fsum(row) for row in matrix])
    off = np.abs(sums - 1.0)
    if off.max() > ROW_TOLERANCE:
        row = int(np.argmax(off > ROW_TOLERANCE))
        raise ValueError(
            f"must have rows that sum to 1, but row {row} (counting from 0) sums to "
            f"{sums[row]:.12g}; divide it by its sum first"
        )
    matrix.setflags(write=False)
    return matrix


def _square(values: object) -> Floats | None:
    if values is None:
        return None
    from metricshuffle.spaces.distance_matrix import Matrix

    table: Floats = values.distances if isinstance(values, Matrix) else Matrix(values).distances
    return table


def _listed(matrix: Floats | None) -> list[list[float]] | None:
    return None if matrix is None else matrix.tolist()


Stochastic = Annotated[np.ndarray, PlainValidator(_stochastic), PlainSerializer(_listed)]
Distances = Annotated[Any, PlainValidator(_square), PlainSerializer(_listed)]


class Channel(Randomizer):
    """A randomizer given by its matrix of probabilities, a row per input and a column per report.

    Probabilities are rounded to multiples of 2^-63, and the rounded table is the law. `epsilon`, or
    `distances` with a `rate`, is a claim about one report; a false claim is rejected with the true
    value and the pair that has it. `distances` (a metric, in units) also make `local_profile` a
    profile over distances.
    """

    kind: Literal["channel"] = "channel"
    matrix: Stochastic
    epsilon: float | None = None
    distances: Distances = None
    rate: float | None = None

    def __init__(
        self,
        matrix: object,
        epsilon: float | None = None,
        distances: object = None,
        rate: float | None = None,
        **fields: object,
    ) -> None:
        FrozenModel.__init__(
            self, matrix=matrix, epsilon=epsilon, distances=distances, rate=rate, **fields
        )

    def model_post_init(self, context: object) -> None:
        if self.epsilon is not None and not 0.0 <= self.epsilon < math.inf:
            raise InputError(
                f"{owner('Channel')}{argument('epsilon')} must be a finite number >= 0, "
                f"got {self.epsilon!r}."
            )
        if self.rate is not None and (self.distances is None or not 0.0 < self.rate < math.inf):
            raise InputError(
                f"{owner('Channel')}{argument('rate')} must be a finite number > 0 and "
                f"needs {argument('distances')}, got {self.rate!r}."
            )
        if self.distances is not None and len(self.distances) != self.inputs:
            raise InputError(
                f"{owner('Channel')}{argument('distances')} are between {len(self.distances)} "
                f"points, but the matrix has {self.inputs} rows."
            )
        if self.epsilon is not None:
            true, (a, b) = self.worst_pair
            if not true <= self.epsilon * (1.0 + CLAIM_TOLERANCE) + CLAIM_TOLERANCE:
                raise InputError(
                    f"{owner('Channel')}it is not {self.epsilon:g}-private: rows {a} and "
                    f"{b} (counting from 0) have epsilon {true:.12g}."
                )
        if self.rate is not None:
            allowed = self.rate * self.distances * (1.0 + CLAIM_TOLERANCE) + CLAIM_TOLERANCE
            excess = self.pairwise_epsilon() - np.where(self.distances == 0.0, 0.0, allowed)
            if not excess.max() <= 0.0:
                a, b = (
                    int(index) for index in np.unravel_index(int(np.argmax(excess)), excess.shape)
                )
                claimed = self.rate * self.distances[a, b]
                true = self.pairwise_epsilon()[a, b]
                raise InputError(
                    f"{owner('Channel')}rows {a} and {b} (counting from 0) have epsilon "
                    f"{true:.12g}, but rate * distance is {claimed:.12g}."
                )

    @cached_property
    def weights(self) -> Weights:
        """The law as integers: 2^63 times the probabilities."""
        weights = dyadic(self.matrix)
        weights.setflags(write=False)
        return weights

    @property
    def inputs(self) -> int:
        return int(self.matrix.shape[0])

    @property
    def outputs(self) -> int:
        return int(self.matrix.shape[1])

    @cached_property
    def _rows(self) -> Floats:
        rows: Floats = self.weights.astype(np.float64) / float(TOTAL_WEIGHT)
        rows.setflags(write=False)
        return rows

    def rows(self) -> Floats:
        return self._rows

    def distance(self, a: int, b: int) -> float:
        return float(a != b) if self.distances is None else float(self.distances[a, b])

    @cached_property
    def worst_pair(self) -> tuple[float, tuple[int, int]]:
        """(epsilon, (a, b)): the largest |log ratio| of all outputs and pairs, rounded up.

        (a, b) is a pair that has it.
        """
        possible = self._rows[:, self._rows.max(axis=0) > 0.0]
        with np.errstate(divide="ignore"):
            gaps = possible.max(axis=0) / possible.min(axis=0)
        y = int(np.argmax(gaps))
        a = int(np.argmax(possible[:, y]))
        b = int(np.argmin(possible[:, y]))
        return log_rounded_up(float(gaps[y])), (a, b)

    def local_epsilon(self, a: int | None = None, b: int | None = None) -> float:
        """Return max |log K_a/K_b| over the outputs, of one pair or of the worst one, rounded up.

        It is inf if some output rules an input out.
        """
        from metricshuffle.randomizers import _channel_kernels as kernels

        if a is None or b is None:
            return self.worst_pair[0]
        self._checked_pair(a, b)
        return log_rounded_up(float(kernels.largest_ratio(self.weights[a], self.weights[b])))

    def local_delta(self, a: int, b: int, epsilon: float) -> float:
        epsilon = checked_epsilon(epsilon)
        if epsilon >= self.local_epsilon(a, b):
            return 0.0
        first = self._rows[a]
        second = self._rows[b]
        factor = math.exp(min(epsilon, 700.0)) * (1.0 - 4e-16)
        leaks = (
            np.maximum(0.0, left * (1.0 + 4e-16) - factor * (right * (1.0 - 4e-16))).sum()
            for left, right in ((first, second), (second, first))
        )
        return min(1.0, float(max(leaks)) * (1.0 + 1e-13))

    def pairwise_epsilon(self) -> Floats:
        """Return `local_epsilon` of every pair, as a matrix (inputs^2 * outputs divisions)."""
        from metricshuffle.randomizers import _channel_kernels as kernels

        return logs_rounded_up(kernels.largest_ratios(self.weights))

    def blanket(self, a: int, b: int) -> BlanketLaw:
        self._checked_pair(a, b)
        common = self._rows.min(axis=0)
        triples, copies = np.unique(
            np.stack([common, self._rows[a], self._rows[b]], axis=1), axis=0, return_counts=True
        )
        # Equal triples have equal ratios: they are one atom. A count times a float is rounded once.
        mass, first, second = (triples[triples.any(axis=1)] * copies[triples.any(axis=1), None]).T
        return BlanketLaw(mass, first, second)

    @cached_property
    def _look_up(self) -> tuple[Weights, Integers32, np.uint64]:
        """(partial sums, guide, shift): guide[x, c] partial sums of row x are <= c 2^shift."""
        sums = np.cumsum(self.weights, axis=1, dtype=np.uint64)
        bits = min(12, max(1, math.ceil(math.log2(self.outputs)) + 2))
        while bits > 1 and self.inputs << bits > 2**22:
            bits -= 1
        starts = np.arange(2**bits + 1, dtype=np.uint64) << np.uint64(63 - bits)
        guide = np.stack([np.searchsorted(row, starts, side="right") for row in sums]).astype(
            np.int32
        )
        guide[:, -1] = self.outputs - 1
        return sums, np.minimum(guide, self.outputs - 1), np.uint64(63 - bits)

    def reports(self, values: object, randomness: Randomness) -> NDArray[Any]:
        """Draw one output per input, exactly by the table, from one random word each."""
        from metricshuffle.randomizers import _channel_kernels as kernels

        codes = code_values(values, self.inputs)
        out = np.empty(len(codes), dtype=smallest_type(self.outputs))
        look_up = self._look_up
        words = np.empty(BUFFER_WORDS, dtype=np.uint64)
        buffer_codes = np.empty(BUFFER_WORDS, dtype=np.int64)
        for start in range(0, len(codes), BUFFER_WORDS):
            part = codes[start : start + BUFFER_WORDS].astype(np.int64, copy=False)
            randomness.fill(words[: len(part)])
            kernels.draw_rows(words, part, *look_up, buffer_codes)
            out[start : start + len(part)] = buffer_codes[: len(part)]
        return out

    @property
    def condition_number(self) -> float:
        """Factor by which inversion amplifies noise: largest over smallest singular value."""
        singular = np.linalg.svd(self._rows, compute_uv=False)
        smallest = singular[-1] if self.outputs >= self.inputs else 0.0
        return float(singular[0] / smallest) if smallest > 0.0 else math.inf

    def targets(self) -> Floats:
        """Return the indicator of each input: the estimate is a histogram of the inputs."""
        return np.eye(self.inputs)

    @cached_property
    def _debiasing(self) -> Floats:
        inverse, bound = _invert_rows(self._rows)
        condition = bound if bound <= LARGEST_CONDITION else self.condition_number
        if not condition <= LARGEST_CONDITION:
            raise NotCertified(
                f"this channel cannot be inverted: its condition number is {condition:.3g} "
                "(inf means that some inputs, or mixtures of "
                "them, have the same law), so no useful unbiased estimator of the histogram "
                "exists; merge such inputs."
            )
        if not bound <= LARGEST_CONDITION:
            inverse = np.asarray(np.linalg.pinv(self._rows), dtype=np.float64)
        # One step of iterative refinement.
        return inverse + inverse @ (np.eye(self.inputs) - self._rows @ inverse)

    def debiasing(self) -> Floats:
        return self._debiasing

    @classmethod
    def within(cls, matrix: Floats, allowed: Floats, **fields: Any) -> Self:
        """Return the nearest channel, towards more noise, that keeps the allowed epsilons exactly.

        That is, local_epsilon(a, b) <= allowed[a, b] for its rounded law.

        Statement: mixing every row with one common law (their mean) raises no ratio, so a small
        share of it makes room for rounding.
        Conditions: the unrounded matrix satisfies `allowed`.
        Numerics: the returned channel was checked pair by pair after rounding.
        """
        common = matrix.mean(axis=0)
        beyond = list[tuple[int, int]]()
        for share in (0.0, *(2.0**-power for power in range(48, 20, -3))):
            # A pair that failed before is the likeliest to fail again, and quick to check.
            if any(
                _beyond(
                    dyadic((1.0 - share) * matrix[[*pair]] + share * common),
                    allowed[np.ix_(pair, pair)],
                )
                for pair in beyond
            ):
                continue
            mixed = (1.0 - share) * matrix + share * common
            violating_pair = _beyond(dyadic(mixed), allowed)
            if violating_pair is None:
                return cls(mixed, **fields)
            beyond.append(violating_pair)
        raise NotCertified(
            "no rounding of this matrix to multiples of 2^-63 keeps the guarantee it was "
            "made for; merge points that are nearly at "
            "distance 0."
        )


class ChannelPair(Channel):
    """A channel with one pair of inputs, `first` and `second`; other people may hold any input."""

    kind: Literal["channel-pair"] = "channel-pair"  # type: ignore[assignment]
    matrix: Stochastic
    first: int = 0
    second: int = 1

    def __init__(self, matrix: Any, first: int, second: int, **fields: Any) -> None:
        FrozenModel.__init__(self, matrix=matrix, first=first, second=second, **fields)

    def model_post_init(self, context: Any) -> None:
        self._checked_pair(self.first, self.second)

    def pairs(self) -> list[Pair]:
        return [(self.first, self.second)]


def _invert_rows(rows: Floats) -> tuple[Floats, float]:
    """Return the pseudo-inverse and an upper bound on the condition number.

    The bound is inf if the rows are not certainly independent. This is many times faster than
    singular values.

    Statement: with rows^T = QR, the pseudo-inverse of rows is Q R^-T, and the condition number is
    that of R, at most |R|_F |R^-1|_F. Here |R^-1|_F = |Q R^-T|_F, because the columns of Q are
    orthonormal.
    """
    if rows.shape[1] < rows.shape[0]:
        return rows.T, math.inf
    from scipy.linalg import solve_triangular

    q, r = np.linalg.qr(rows.T)
    if not np.all(np.diag(r) != 0.0):
        return rows.T, math.inf
    inverse = np.asarray(solve_triangular(r, q.T, check_finite=False)).T
    bound = float(np.linalg.norm(r) * np.linalg.norm(inverse))
    return inverse, bound if bound >= 1.0 else math.inf


def _beyond(weights: Weights, allowed: Floats) -> tuple[int, int] | None:
    """Return a pair of rows that exceeds its allowed epsilon, or None."""
    from metricshuffle.randomizers import _channel_kernels as kernels

    possible = np.ascontiguousarray(weights[:, weights.max(axis=0) > 0])
    if not possible.min() > 0:
        # NaN counts as too much.
        excess = ~(logs_rounded_up(kernels.largest_ratios(possible)) <= allowed)
        return divmod(int(np.argmax(excess)), len(possible)) if excess.any() else None
    # The largest ratios whose `log_rounded_up` is allowed, rounded down.
    limits = np.exp(np.clip((allowed - 7e-16) / (1.0 + 4e-16), 0.0, 700.0)) * (1.0 - 2.0**-51)
    a, b = kernels.first_beyond(possible, np.where(allowed > 1e-15, limits, 1.0))
    return None if a < 0 else (int(a), int(b))
