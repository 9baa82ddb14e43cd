"""Screening of all pairs of inputs of a channel, so that few pairs need an exact evaluation.

A bound for a channel is the largest over all ordered pairs (a, b) of inputs of person 1.
`PairScreen` certifies most pairs by a cheap inequality; only the remaining ones are evaluated by
`full_law_bound`.

Notation: K_x is the law of the report under input x, and G_x = (K_a(Y) - e^epsilon K_b(Y))/K_x(Y)
with Y ~ K_x. Inputs of the other people are merged into input classes: the law of a class x is the
pointwise minimum of the laws of its inputs (see `input_class_laws`). Arrays of such laws are named
`types`.
"""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np

from metricshuffle.accounting.shuffling.blanket_law import LARGEST_EXPONENT, MIN_MASS
from metricshuffle.accounting.shuffling.full_law_bound import StoppingTime
from metricshuffle.accounting.shuffling.input_class_laws import (
    InputClassLaw,
    InputClassLaws,
    class_minima,
)
from metricshuffle.citations import theorem
from metricshuffle.numerics.rounding import round_down
from metricshuffle.numerics.types import Floats, Integers64, Mask

Pairs = Integers64
"""Ordered pairs (a, b), one per row."""

MAX_ATOMS = 2**17  # of all inputs together; beyond, neighbouring inputs are merged into classes
MAX_SCREEN_CLASSES = 48
MIN_TYPES_TO_MERGE = 24  # up to this many input classes are not merged
# Maximum of pairs of input classes times reports; beyond, neighbours are merged uncompared.
MAX_MATCHED = 2**25
MAX_SYMMETRIES = 8
MATRIX_ENTRIES_AT_ONCE = 2**22  # entries of a matrix of pairs by reports
ROUNDING_SLACK = 1e-9  # relative rounding error allowed for in sums of squares


class PairScreen:
    """All pairs of inputs of a channel, and the input classes of the other people.

    `rows` has the law of each input of the other people. A pair is two rows of `pair_rows`, which
    are the same as `rows` if left out. `pair_rows` may also have mixtures of rows; they need no
    input class of their own.
    """

    def __init__(self, rows: Floats, pair_rows: Floats | None = None) -> None:
        self.pair_rows = np.ascontiguousarray(rows if pair_rows is None else pair_rows)
        minimum = rows.min(axis=0)
        self.blanket = round_down(math.fsum(minimum), 16)
        wide = math.ceil(rows.size / MAX_ATOMS)
        self._least = minimum
        self._set_types(
            class_minima(
                rows,
                None
                if wide == 1
                else [range(i, min(i + wide, len(rows))) for i in range(0, len(rows), wide)],
            )
        )

    def _set_types(self, types: Floats) -> None:
        self.types = types
        self._starts = np.arange(0, types.size + 1, types.shape[1], dtype=np.int64)
        self._mass = np.ascontiguousarray(types.ravel())

    @property
    def covered(self) -> bool:
        """Whether every input can produce every report; otherwise no pair can be screened."""
        return bool(np.all(self._least >= MIN_MASS))

    def law(self, a: int, b: int) -> InputClassLaws:
        """Return the laws of the others for one pair."""
        first = self.pair_rows[a]
        second = self.pair_rows[b]
        columns = (first, second, first - second, first + second)
        return InputClassLaws(
            self._starts,
            InputClassLaw(self._mass, *(np.tile(column, len(self.types)) for column in columns)),
            self.blanket,
        )

    def _with_types(self, types: Floats) -> PairScreen:
        copy = object.__new__(PairScreen)
        copy.pair_rows = self.pair_rows
        copy.blanket = self.blanket
        copy._least = self._least
        copy._set_types(types)
        return copy

    @cached_property
    def halved(self) -> PairScreen:
        """The same pairs, with similar input classes merged two by two: faster, nearly as tight."""
        return (
            self
            if len(self.types) <= MIN_TYPES_TO_MERGE
            else self._with_types(pair_up_types(self.types))
        )

    @cached_property
    def coarser(self) -> PairScreen:
        """The same pairs with the input classes merged into a few, for screening."""
        coarse = self.halved
        while len(coarse.types) > MAX_SCREEN_CLASSES:
            coarse = coarse.halved
        return coarse

    @cached_property
    def _screens(self) -> Floats:
        """Reciprocal of the mass of every report, one column for each input class."""
        return np.asarray(1.0 / self.types.T)

    def spreads(self, pairs: Pairs, growth: float) -> tuple[Floats, Floats]:
        """Return for every pair upper bounds on E G_x^2 and on G_x over all input classes x.

        `growth` is e^epsilon here.
        """
        square = np.empty(len(pairs))
        largest = np.empty(len(pairs))
        chunk = max(1, MATRIX_ENTRIES_AT_ONCE // self.pair_rows.shape[1])
        for start in range(0, len(pairs), chunk):
            here = slice(start, start + chunk)
            gap = self.pair_rows[pairs[here, 0]] - growth * self.pair_rows[pairs[here, 1]]
            largest[here] = (gap / self._least).max(axis=1)
            square[here] = (gap**2 @ self.coarser._screens).max(axis=1)
        return square * (1.0 + ROUNDING_SLACK), largest + ROUNDING_SLACK * (
            np.abs(largest) + growth + 1.0
        )

    @theorem("metricshuffle", "screening of many pairs")
    def open_pairs(self, pairs: Pairs, users: int, epsilon: float, delta: float, s: float) -> Pairs:
        """Return the pairs that the inequality does not certify, largest E G^2 first.

        Statement: let M_x(s) = E e^(s G_x), g = e^epsilon - 1 = -E G_x, and q a bound on E G_x^2.
        Then log M_x(s) <= L = log(1 - s g + (s^2/2) f(s max G) q), f(v) = (e^v - 1 - v)/(v^2/2),
        which increases with v (Bennett). Let Psi(U) = (1/m) E[(sum of G over the m people of U)_+],
        as in `full_law_bound.psi_upper`. As x_+ <= e^(sx)/(e s) with e = 2.718.., Psi(U) <=
        e^(mL)/(e s m). This bound replaces Psi in the sum over T of `full_law_bound.delta_upper`; a
        pair passes if its L is at most the L at which that sum is delta.
        Conditions: `covered`, s > 0.
        Numerics: sums of squares are raised by 1e-9, L by 1e-12; all other errors are smaller.
        """
        growth = math.exp(min(epsilon, LARGEST_EXPONENT))
        square, largest = self.spreads(pairs, growth)
        lean = s * np.maximum(largest, 0.0)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            bend = np.where(
                lean > 1e-3, (np.expm1(lean) - lean) / (0.5 * lean**2), 1.0 + 0.34 * lean
            )
            inside = -s * math.expm1(
                min(epsilon, LARGEST_EXPONENT)
            ) + 0.5 * s * s * bend * square * (1.0 + ROUNDING_SLACK)
            logs = np.log1p(inside) + 1e-12 * s
            # NaN does not pass.
            passes: Mask = logs <= StoppingTime(self.blanket, users).largest_exponent(delta, s)
        left = pairs[~passes]
        return np.asarray(left[np.argsort(-square[~passes], kind="stable")])


def pair_up_types(types: Floats) -> Floats:
    """Merge input classes two by two, those with most in common first; one may be left over.

    The law of a merged class is the pointwise minimum of both. Where there are too many classes to
    compare, neighbours are merged.
    """
    many = len(types)
    if many * types.size > MAX_MATCHED:
        return np.array([types[i : i + 2].min(axis=0) for i in range(0, many, 2)])
    shared = np.array(
        [
            np.minimum(types[i], types[i + 1 :]).sum(axis=1).tolist() + [0.0] * (i + 1)
            for i in range(many)
        ]
    )
    free = np.ones(many, dtype=bool)
    merged = []
    for place in np.argsort(-shared, axis=None, kind="stable")[: many * (many - 1) // 2].tolist():
        left = place // many
        right = place // many + 1 + place % many
        if free[left] and free[right]:
            free[left] = free[right] = False
            merged.append(np.minimum(types[left], types[right]))
    return np.array([*merged, *types[free]])


def symmetries(rows: Floats) -> list[Integers64]:
    """Return permutations of the inputs that leave a square matrix of laws unchanged.

    Reports are permuted in the same way, and entries are compared float by float. Only some
    permutations are tried: the mirror images of a line, and the mirror images and the transposition
    of a grid of any width.
    """
    many = len(rows)
    permutations = [np.arange(len(rows))]
    if rows.shape != (many, many):
        return permutations
    for width in (w for w in range(1, many + 1) if many % w == 0):
        cells = np.arange(many).reshape(-1, width)
        guesses = [cells[::-1], cells[:, ::-1], *([cells.T] if width * width == many else [])]
        for guess in (cells.ravel().astype(np.int64) for cells in guesses):
            if len(permutations) < MAX_SYMMETRIES and np.array_equal(
                rows[np.ix_(guess, guess)], rows
            ):
                known = {tuple(permutation.tolist()) for permutation in permutations}
                permutations += [
                    permutation[guess]
                    for permutation in permutations
                    if tuple(permutation[guess].tolist()) not in known
                ]
    return permutations
