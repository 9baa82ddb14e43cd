"""Profile of one person's large move in noisy sums with delta > 0.

A move that changes many coordinates has a loss that is a sum of many small independent losses,
which add up like a random walk. So with delta > 0 its epsilon is below the sum of the largest
losses (`ideal_loss`). The accounts of noisy vectors use the profile.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from metricshuffle.accounting.composition.loss_distribution import (
    MAX_WHOLE_LOSSES,
    TotalLoss,
    dominating_losses,
    grid_step,
)
from metricshuffle.accounting.vectors.feature_changes import FeatureChanges, ideal_loss
from metricshuffle.citations import theorem
from metricshuffle.errors import InputError, NotCertified, argument
from metricshuffle.numerics.rounding import ROUNDOFF
from metricshuffle.numerics.types import Floats
from metricshuffle.privacy.profile import PrivacyProfile, Shape, checked_epsilon, validate_distance

# Up to this many steps of the loss its law is convolved term by term, which gives every mass a
# relative error.
MAX_CELLS = 2**15
# Masses below MIN_MASS are omitted from products, where underflow would be slow; an upper bound on
# their sum, NEGLIGIBLE_MASS, is added to delta.
MIN_MASS = 1e-150
NEGLIGIBLE_MASS = 1e-140
# Grid points of the losses for coordinates of different rates, and the most different rates used.
GRID_POINTS = 1000
MAX_POINTS = 8000
MAX_PARTS = 48
_CACHED_DISTANCES = 64
# Coordinates of one kind that a move changes, over all rounds: integers that are exact as floats.
MAX_COUNTED = 2**53


class _Losses(Protocol):
    """Law of the loss of one move."""

    def delta(self, epsilon: float) -> float: ...


@dataclass(frozen=True)
class LargeMoves(PrivacyProfile):
    """Profile of noisy sums for ONE person who moves within a distance while all others stay.

    Statement: delta(epsilon, d) is the largest divergence (see `delta`) of the moves that
    `moves(d)` lists, each repeated in every round.
    Conditions: every move within d changes no coordinate by more than one of `moves(d)` does, up to
    the order of coordinates of equal rates; an empty list means that there is no move. A move
    changes everything that the person has, all their items together. Rounds have fresh noise: they
    are further coordinates, so counts times rounds is exact. Not for people together (see `delta`).
    """

    moves: Callable[[float], Iterable[FeatureChanges]]
    rounds: int = 1
    bound: str = "one person's move, exact"
    _kept: dict[float, tuple[float, list[_Losses]]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        if isinstance(self.rounds, bool) or not isinstance(self.rounds, int) or self.rounds < 1:
            raise InputError(
                f"{argument('rounds')} must be a whole number >= 1, got {self.rounds!r}."
            )

    def pure(self, distance: float) -> float:
        return self._known(distance)[0] if validate_distance(distance) else 0.0

    @theorem("metricshuffle", "Noisy vectors, one person's far move: the exact divergence")
    def delta(self, epsilon: float, distance: float) -> float:
        """Largest hockey-stick divergence at e^epsilon of the sums before and after ONE move.

        Statement: with total noise of shape 1 the noise of sum e is a discrete Laplace variable Z_e
        of rate a_e, independent over e, and the move shifts sum e by d_e >= 0. The loss of
        coordinate e is a_e (d_e - 2 min(max(Z_e, 0), d_e)), and

            delta(epsilon) = E[(1 - e^(epsilon - sum of losses))_+],

        the same in both directions. It does not decrease if a size, a rate or a count grows: moves
        that change no coordinate by more are hidden at least as well.
        Conditions: those of `ideal_loss`; ONE person moves, all others stay. It does not hold for
        people together: sixty-three people who each cross the same threshold change one sum by 63,
        which at rate 10/63 needs epsilon 9.9999982 at delta = 1e-6, where one person who crosses 63
        thresholds needs 6.1280 (both need 10 at delta = 0). For people together use `ideal_loss`.
        Proof: docs/proofs/noisy-vectors.md, (b).
        Numerics: rounded up. If all rates are equal the losses lie on a lattice; masses are
        convolved as sums of positive terms, so their relative errors are known and added. Otherwise
        the law of each coordinate is replaced by one on a grid that dominates it
        (`dominating_losses`), nearly equal rates raised to the largest of them. delta is 0 where
        epsilon is at least `ideal_loss`.
        """
        epsilon = checked_epsilon(epsilon)
        if epsilon >= self.pure(distance):
            return 0.0
        return max(losses.delta(epsilon) for losses in self._known(distance)[1])

    def covers(
        self, epsilon: float, delta: float, distance: float, shape: Shape = "linear"
    ) -> bool:
        """Certify a flat guarantee by its delta, and never a linear one.

        Short moves change single coordinates, for which a delta gains nothing. So a linear
        guarantee is certified by `PureProfile` of the slope, which also covers people together.
        """
        return shape == "flat" and self.covers_at(epsilon, delta, distance)

    def _known(self, distance: float) -> tuple[float, list[_Losses]]:
        """Largest loss within that distance, and the laws of the losses."""
        if distance not in self._kept:
            while len(self._kept) >= _CACHED_DISTANCES:
                self._kept.pop(next(iter(self._kept)))
            named = [_repeat_move(move, self.rounds) for move in self.moves(distance)]
            moves = {frozenset(_parts(move).items()): move for move in named}
            moves.pop(frozenset(), None)
            self._kept[distance] = (
                max(map(ideal_loss, moves.values()), default=0.0),
                [_losses(move) for move in moves.values()],
            )
        return self._kept[distance]


def _repeat_move(changes: FeatureChanges, rounds: int) -> FeatureChanges:
    """Repeat a move in every round; raise NotCertified if its coordinates cannot be counted."""
    if int(changes.counts.max(initial=0)) * rounds > MAX_COUNTED:
        raise NotCertified(
            f"moves over {rounds:,} rounds change too many sums to be counted; use fewer rounds."
        )
    return FeatureChanges(changes.rates, changes.sizes, changes.counts * rounds)


def _parts(changes: FeatureChanges) -> dict[tuple[float, int], int]:
    """Number of coordinates of each (rate, size) that change."""
    changed = (changes.sizes > 0) & (changes.counts > 0)
    parts: dict[tuple[float, int], int] = {}
    for rate, size, count in zip(
        changes.rates[changed], changes.sizes[changed], changes.counts[changed], strict=True
    ):
        parts[float(rate), int(size)] = parts.get((float(rate), int(size)), 0) + int(count)
    return parts


def _losses(changes: FeatureChanges) -> _Losses:
    """Law of the loss of a move that changes something."""
    parts = _parts(changes)
    cells = sum(size * count for (_, size), count in parts.items())
    if len({rate for rate, _ in parts}) == 1 and cells <= MAX_CELLS:
        return _LossLattice(
            next(iter(parts))[0], {size: count for (_, size), count in parts.items()}
        )
    return _on_a_grid(_merged(parts))


def _shift_law(rate: float, size: int) -> Floats:
    """Masses of the losses rate * (size - 2j), j = 0..size, of a shifted discrete Laplace law."""
    law = np.exp(-rate * np.arange(size + 1.0)) / (1.0 + math.exp(-rate))
    law[1:-1] *= -math.expm1(-rate)
    return law


class _LossLattice:
    """Loss of parts[size] coordinates of each size, all of one rate.

    The loss is rate * (D - 2J), D the sum of the sizes of all coordinates, J a random whole number
    in 0..D.

    Numerics: a mass of one coordinate has an error of rate * size + 16 roundings. A product of two
    laws adds the errors of both factors, and one rounding for every term of the shorter. For K
    coordinates, multiplied in pairs of equal laws, this gives D + K + 2 roundings for each of log2
    K levels, and as many where a pair is multiplied into the result.
    """

    def __init__(self, rate: float, parts: dict[int, int]) -> None:
        coordinates = sum(parts.values())
        self.cells = sum(size * count for size, count in parts.items())
        self.rate = rate
        # Only gains (J < D/2) count, so farther terms are cut off; no later product needs them.
        keep = self.cells // 2 + 1
        law = np.ones(1)
        for size, count in sorted(parts.items()):
            law = _product(law, _power(_shift_law(rate, size)[:keep], count, keep), keep)
        self.law = law
        levels = 2 * coordinates.bit_length() + len(parts) + 2
        own = sum(count * (rate * size + 16.0) for size, count in parts.items())
        self.roundings = own + (self.cells + coordinates + 2.0) * levels

    def delta(self, epsilon: float) -> float:
        losses = self.rate * (self.cells - 2.0 * np.arange(len(self.law)))
        short = epsilon - losses - 8.0 * ROUNDOFF * (epsilon + self.rate * self.cells)
        gained = np.where(short < 0.0, -np.expm1(np.minimum(short, 0.0)), 0.0)
        relative = (1.01 * self.roundings + len(losses) + 16.0) * ROUNDOFF
        return min(1.0, float(np.sum(self.law * gained)) * (1.0 + relative) + NEGLIGIBLE_MASS)


def _product(left: Floats, right: Floats, keep: int) -> Floats:
    """Law of a sum, from its first value on: sums of positive terms."""
    masses = np.convolve(left, right)[:keep]
    masses[masses < MIN_MASS] = 0.0
    return masses


def _power(law: Floats, count: int, keep: int) -> Floats:
    power = np.ones(1)
    while count:
        if count & 1:
            power = _product(power, law, keep)
        count >>= 1
        if count:
            law = _product(law, law, keep)
    return power


def _merged(parts: dict[tuple[float, int], int]) -> dict[tuple[float, int], int]:
    """Reduce many different rates by rounding each up to fewer bits, which never lowers delta."""
    merged = parts
    bits = 16
    while len(merged) > MAX_PARTS and bits > 0:
        bits -= 1
        merged = {}
        for (rate, size), count in parts.items():
            mantissa, exponent = math.frexp(rate)
            key = math.ldexp(math.ceil(math.ldexp(mantissa, bits)), exponent - bits), size
            merged[key] = merged.get(key, 0) + count
    return merged


def _on_a_grid(parts: dict[tuple[float, int], int]) -> TotalLoss:
    reaches = [rate * size for rate, size in parts]
    cells = 2.0 * sum(count * reach for count, reach in zip(parts.values(), reaches, strict=True))
    step = grid_step(
        max(min(reaches) / GRID_POINTS, max(reaches) / MAX_POINTS, 1.01 * cells / MAX_WHOLE_LOSSES)
    )
    laws = []
    for ((rate, size), count), reach in zip(parts.items(), reaches, strict=True):
        points = max(1, math.ceil(reach * (1.0 + 32.0 * ROUNDOFF) / step))
        laws.append(
            (
                dominating_losses(_shift_curve(rate, size, step * np.arange(points + 1.0)), step),
                count,
            )
        )
    return TotalLoss(laws)


def _shift_curve(rate: float, size: int, epsilons: Floats) -> Floats:
    """Divergence of one coordinate at many epsilons, rounded up; 0 from rate * size on."""
    law = _shift_law(rate, size) * (1.0 + (rate * size + 16.0) * ROUNDOFF)
    deltas = np.zeros(len(epsilons))
    for j in range((size + 1) // 2):
        short = epsilons - rate * (size - 2 * j) * (1.0 + 8.0 * ROUNDOFF)
        deltas -= law[j] * np.expm1(np.minimum(short, 0.0))
    return np.minimum(deltas * (1.0 + (size + 16.0) * ROUNDOFF), 1.0)
