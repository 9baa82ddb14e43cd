"""All pairs of one channel at once: which of them are certainly no worse than asked, and the laws of the others for those that are left."""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np

from metricshuffle.accounting.shuffling.blanket_law import LARGEST_EXPONENT, MIN_MASS
from metricshuffle.accounting.shuffling.full_law_bound import StoppingTime
from metricshuffle.accounting.shuffling.input_class_laws import InputClassLaw, InputClassLaws, class_minima
from metricshuffle.citations import theorem
from metricshuffle.numerics.rounding import round_down
from metricshuffle.numerics.types import Floats, Integers64, Mask

Pairs = Integers64
"""Ordered pairs (a, b), one a row."""

MAX_ATOMS = 2**17  # of all types together: beyond, inputs are put in classes
MAX_SCREEN_CLASSES = 48  # classes for a first look, at most
MIN_TYPES_TO_MERGE = 24  # not worth putting in classes
MAX_MATCHED = 2**25  # pairs of types times reports: beyond, neighbours are put together without comparing
MAX_SYMMETRIES = 8
MATRIX_ENTRIES_AT_ONCE = 2**22  # numbers of a matrix of pairs by reports
ROUNDING_SLACK = 1e-9  # of sums of squares, for rounding


class PairScreen:
    """`rows` are the laws of what the others may hold; a pair is two of `held`, by default the same rows.

    `held` may have further rows, laws that are mixtures of `rows`: these need no type of their own.
    """

    def __init__(self, rows: Floats, pair_rows: Floats | None = None) -> None:
        self.held = np.ascontiguousarray(rows if pair_rows is None else pair_rows)
        minimum = rows.min(axis=0)
        self.blanket = round_down(math.fsum(minimum), 16)
        wide = math.ceil(rows.size / MAX_ATOMS)
        self._least = minimum
        self._set_types(class_minima(rows, None if wide == 1 else [range(i, min(i + wide, len(rows))) for i in range(0, len(rows), wide)]))

    def _set_types(self, types: Floats) -> None:
        self.types = types
        self._starts = np.arange(0, types.size + 1, types.shape[1], dtype=np.int64)
        self._mass = np.ascontiguousarray(types.ravel())

    @property
    def covered(self) -> bool:
        """Whether everybody can make every report; only then is there a first look at many pairs."""
        return bool(np.all(self._least >= MIN_MASS))

    def law(self, a: int, b: int) -> InputClassLaws:
        """The laws of the others for one pair."""
        first, second = self.held[a], self.held[b]
        columns = (first, second, first - second, first + second)
        return InputClassLaws(
            self._starts, InputClassLaw(self._mass, *(np.tile(column, len(self.types)) for column in columns)), self.blanket
        )

    def _with_types(self, types: Floats) -> PairScreen:
        copy = object.__new__(PairScreen)
        copy.held, copy.blanket, copy._least = self.held, self.blanket, self._least
        copy._set_types(types)
        return copy

    @cached_property
    def halved(self) -> PairScreen:
        """The same pairs, the types put in classes of two that are much alike: quicker, and nearly as good."""
        return self if len(self.types) <= MIN_TYPES_TO_MERGE else self._with_types(pair_up_types(self.types))

    @cached_property
    def coarser(self) -> PairScreen:
        """The same pairs, the types put in a few classes: for a first look."""
        coarse = self.halved
        while len(coarse.types) > MAX_SCREEN_CLASSES:
            coarse = coarse.halved
        return coarse

    @cached_property
    def _screens(self) -> Floats:
        """1/mass of the types, a column each."""
        return np.asarray(1.0 / self.types.T)

    def spreads(self, pairs: Pairs, growth: float) -> tuple[Floats, Floats]:
        """Of every pair: a bound on E G_x^2 for all types x, and on G_x."""
        square, largest = np.empty(len(pairs)), np.empty(len(pairs))
        chunk = max(1, MATRIX_ENTRIES_AT_ONCE // self.held.shape[1])
        for start in range(0, len(pairs), chunk):
            here = slice(start, start + chunk)
            gap = self.held[pairs[here, 0]] - growth * self.held[pairs[here, 1]]
            largest[here] = (gap / self._least).max(axis=1)
            square[here] = (gap**2 @ self.coarser._screens).max(axis=1)
        return square * (1.0 + ROUNDING_SLACK), largest + ROUNDING_SLACK * (np.abs(largest) + growth + 1.0)

    @theorem("metricshuffle", "a first look at many pairs")
    def open_pairs(self, pairs: Pairs, users: int, epsilon: float, delta: float, s: float) -> Pairs:
        """Those that are not certainly below delta at this epsilon, the widest first.

        Statement: with g = e^epsilon - 1 = -E G_x and q a bound on E G_x^2, log M_x(s) <= L = log(1 - s g + (s^2/2) f(s max G) q),
        f(v) = (e^v - 1 - v)/(v^2/2), which rises in v (Bennett). As x_+ <= e^(sx)/(e s), Psi(U) <= e^(mL)/(e s m), which goes into the
        sum over T of `bound.delta_upper`; a pair passes if its L is at most the one at which that sum is delta.
        Conditions: `covered`, s > 0. Numerics: sums of squares are raised by 1e-9, L by 1e-12; nothing else is as large.
        """
        growth = math.exp(min(epsilon, LARGEST_EXPONENT))
        square, largest = self.spreads(pairs, growth)
        lean = s * np.maximum(largest, 0.0)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            bend = np.where(lean > 1e-3, (np.expm1(lean) - lean) / (0.5 * lean**2), 1.0 + 0.34 * lean)
            inside = -s * math.expm1(min(epsilon, LARGEST_EXPONENT)) + 0.5 * s * s * bend * square * (1.0 + ROUNDING_SLACK)
            logs = np.log1p(inside) + 1e-12 * s
            passes: Mask = logs <= StoppingTime(self.blanket, users).largest_exponent(delta, s)  # what is not a number does not pass
        left = pairs[~passes]
        return np.asarray(left[np.argsort(-square[~passes], kind="stable")])


def pair_up_types(types: Floats) -> Floats:
    """Types put together two by two, the minimum of both: those that have most in common first; one may be left over."""
    many = len(types)
    if many * types.size > MAX_MATCHED:
        return np.array([types[i : i + 2].min(axis=0) for i in range(0, many, 2)])
    shared = np.array([np.minimum(types[i], types[i + 1 :]).sum(axis=1).tolist() + [0.0] * (i + 1) for i in range(many)])
    free, merged = np.ones(many, dtype=bool), []
    for place in np.argsort(-shared, axis=None, kind="stable")[: many * (many - 1) // 2].tolist():
        left, right = place // many, place // many + 1 + place % many
        if free[left] and free[right]:
            free[left] = free[right] = False
            merged.append(np.minimum(types[left], types[right]))
    return np.array([*merged, *types[free]])


def symmetries(rows: Floats) -> list[Integers64]:
    """Renamings of the inputs under which a square matrix of laws is the same, float by float, reports renamed likewise.

    Looked for are mirror images of a line, and those of a grid of any width and its transposition.
    """
    many, permutations = len(rows), [np.arange(len(rows))]
    if rows.shape != (many, many):
        return permutations
    for width in (w for w in range(1, many + 1) if many % w == 0):
        cells = np.arange(many).reshape(-1, width)
        guesses = [cells[::-1], cells[:, ::-1], *([cells.T] if width * width == many else [])]
        for guess in (cells.ravel().astype(np.int64) for cells in guesses):
            if len(permutations) < MAX_SYMMETRIES and np.array_equal(rows[np.ix_(guess, guess)], rows):
                known = {tuple(permutation.tolist()) for permutation in permutations}
                permutations += [permutation[guess] for permutation in permutations if tuple(permutation[guess].tolist()) not in known]
    return permutations
