"""How well one person's far move is hidden in noisy sums once a delta is allowed: many small changes add up like a random walk."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from metricshuffle.accounting.composition.loss_distribution import MAX_WHOLE_LOSSES, TotalLoss, dominating_losses, grid_step
from metricshuffle.accounting.vectors.feature_changes import FeatureChanges
from metricshuffle.accounting.vectors.sum_loss import ideal_loss
from metricshuffle.citations import theorem
from metricshuffle.errors import InputError, NotCertified
from metricshuffle.numerics.rounding import ROUNDOFF
from metricshuffle.numerics.types import Floats
from metricshuffle.privacy.profile import PrivacyProfile, Shape, checked_epsilon, validate_distance

# Up to this many steps of the loss its law is convolved term by term, which keeps every mass to a relative error.
MAX_CELLS = 2**15
# Masses below this are left out of products, which would underflow, and slowly; what all of them can add up to is added to delta.
MIN_MASS, NEGLIGIBLE_MASS = 1e-150, 1e-140
# Losses on a grid for coordinates of different rates, and how many different ones are told apart.
GRID_POINTS, MAX_POINTS, MAX_PARTS = 1000, 8000, 48
_CACHED_DISTANCES = 64
# Coordinates of one kind that a move changes, over all rounds: what a float still holds exactly.
MAX_COUNTED = 2**53


class _Losses(Protocol):
    """The law of the loss of one move."""

    def delta(self, epsilon: float) -> float: ...


@dataclass(frozen=True)
class LargeMoves(PrivacyProfile):
    """What noisy sums keep of ONE person who moves within a distance, everybody else staying where they are.

    Statement: delta(epsilon, d) is the largest divergence (see `delta`) of the moves that `moves(d)` names, each repeated in every round.
    Conditions: every move within d changes no coordinate by more than one of `moves(d)` does, up to the order of coordinates of equal
    rates; none named means that there is no move. A move is one of everything she holds, all her items together. Rounds have fresh
    noise: they are further coordinates, so counts times rounds is exact.
    Not for people together (see `delta`).
    """

    moves: Callable[[float], Iterable[FeatureChanges]]
    rounds: int = 1
    bound: str = "one person's move, exact"
    _kept: dict[float, tuple[float, list[_Losses]]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if isinstance(self.rounds, bool) or not isinstance(self.rounds, int) or self.rounds < 1:
            raise InputError(f"rounds must be a whole number >= 1, got {self.rounds!r}.")

    def pure(self, distance: float) -> float:
        return self._known(distance)[0] if validate_distance(distance) else 0.0

    @theorem("metricshuffle", "Noisy vectors, one person's far move: the exact divergence")
    def delta(self, epsilon: float, distance: float) -> float:
        """The largest hockey-stick divergence at e^epsilon of the noisy sums before and after ONE person's move, rounded up.

        Statement: with total noise of shape 1 the sums are independent discrete Laplace variables Z_e of rate a_e, shifted by d_e where
        the move changes them. The loss of coordinate e is a_e (d_e - 2 min(max(Z_e, 0), d_e)), and
            delta(epsilon) = E[(1 - e^(epsilon - sum of losses))_+],
        the same in both directions. It does not fall if a size, a rate or a count grows: moves that change no coordinate by more are hidden
        at least as well.
        Conditions: those of `ideal_loss`; ONE person moves, everybody else stays. It does not hold for people together: sixty-three
        people who each cross the same threshold change one sum by 63, which at rate 10/63 needs epsilon 9.9999982 at delta = 1e-6, where
        one person who crosses 63 thresholds needs 6.1280 (both 10 at delta = 0). For people together use `ideal_loss`.
        Proof: docs/proofs/noisy-vectors.md, (b).
        Numerics: if all rates are equal the losses lie on a lattice; masses are convolved as sums of positive terms, so their relative
        errors are known and added. Otherwise the law of each coordinate is replaced by one on a grid that dominates it
        (`dominating_losses`),
        rates that are nearly equal raised to the largest of them. 0 from `ideal_loss` on.
        """
        epsilon = checked_epsilon(epsilon)
        if epsilon >= self.pure(distance):
            return 0.0
        return max(losses.delta(epsilon) for losses in self._known(distance)[1])

    def covers(self, epsilon: float, delta: float, distance: float, shape: Shape = "linear") -> bool:
        """A flat promise as its delta says. A linear one never: near moves change single coordinates, for which a delta gains nothing, so
        it is `PureProfile` of the slope that certifies it, for people together at once."""
        return shape == "flat" and self.covers_at(epsilon, delta, distance)

    def _known(self, distance: float) -> tuple[float, list[_Losses]]:
        """The largest loss within that distance, and the laws of the losses."""
        if distance not in self._kept:
            while len(self._kept) >= _CACHED_DISTANCES:
                self._kept.pop(next(iter(self._kept)))
            named = [_repeat_move(move, self.rounds) for move in self.moves(distance)]
            moves = {frozenset(_parts(move).items()): move for move in named}
            moves.pop(frozenset(), None)
            self._kept[distance] = max(map(ideal_loss, moves.values()), default=0.0), [_losses(move) for move in moves.values()]
        return self._kept[distance]


def _repeat_move(changes: FeatureChanges, rounds: int) -> FeatureChanges:
    """The same move in every round; so many coordinates that they cannot be counted are not accounted for."""
    if int(changes.counts.max(initial=0)) * rounds > MAX_COUNTED:
        raise NotCertified(f"moves over {rounds:,} rounds change too many sums to be counted; use fewer rounds.")
    return FeatureChanges(changes.rates, changes.sizes, changes.counts * rounds)


def _parts(changes: FeatureChanges) -> dict[tuple[float, int], int]:
    """How many coordinates of each (rate, size) change."""
    changed = (changes.sizes > 0) & (changes.counts > 0)
    parts: dict[tuple[float, int], int] = {}
    for rate, size, count in zip(changes.rates[changed], changes.sizes[changed], changes.counts[changed], strict=True):
        parts[float(rate), int(size)] = parts.get((float(rate), int(size)), 0) + int(count)
    return parts


def _losses(changes: FeatureChanges) -> _Losses:
    """The law of the loss of a move that changes something."""
    parts = _parts(changes)
    cells = sum(size * count for (_, size), count in parts.items())
    if len({rate for rate, _ in parts}) == 1 and cells <= MAX_CELLS:
        return _LossLattice(next(iter(parts))[0], {size: count for (_, size), count in parts.items()})
    return _on_a_grid(_merged(parts))


def _shift_law(rate: float, size: int) -> Floats:
    """Chance that the loss of a discrete Laplace variable shifted by `size` is rate * (size - 2j), j = 0..size."""
    law = np.exp(-rate * np.arange(size + 1.0)) / (1.0 + math.exp(-rate))
    law[1:-1] *= -math.expm1(-rate)
    return law


class _LossLattice:
    """Coordinates of one rate, `parts[size]` of each size: the loss is rate * (D - 2J), D the sum of the sizes, J a whole number.

    Numerics: a mass of one coordinate is off by rate * size + 16 roundings. A product of laws adds those of both factors, and one for every
    term of the shorter. K coordinates multiplied in pairs of equals: D + K + 2 for each of log2 K levels, and as much where a pair
    is taken into the result.
    """

    def __init__(self, rate: float, parts: dict[int, int]) -> None:
        coordinates, self.cells = sum(parts.values()), sum(size * count for size, count in parts.items())
        self.rate = rate
        # Only gains (J < D/2) count, so farther terms are cut off; they never come back.
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
    """The law of a sum, from its first value on: sums of positive terms."""
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
    """Fewer different rates, where there are many: each raised to a number of fewer bits, which hides no better."""
    merged, bits = parts, 16
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
    step = grid_step(max(min(reaches) / GRID_POINTS, max(reaches) / MAX_POINTS, 1.01 * cells / MAX_WHOLE_LOSSES))
    laws = []
    for ((rate, size), count), reach in zip(parts.items(), reaches, strict=True):
        points = max(1, math.ceil(reach * (1.0 + 32.0 * ROUNDOFF) / step))
        laws.append((dominating_losses(_shift_curve(rate, size, step * np.arange(points + 1.0)), step), count))
    return TotalLoss(laws)


def _shift_curve(rate: float, size: int, epsilons: Floats) -> Floats:
    """The divergence of one coordinate at many epsilons: every mass and every loss rounded up, 0 from rate * size on."""
    law = _shift_law(rate, size) * (1.0 + (rate * size + 16.0) * ROUNDOFF)
    deltas = np.zeros(len(epsilons))
    for j in range((size + 1) // 2):
        short = epsilons - rate * (size - 2 * j) * (1.0 + 8.0 * ROUNDOFF)
        deltas -= law[j] * np.expm1(np.minimum(short, 0.0))
    return np.minimum(deltas * (1.0 + (size + 16.0) * ROUNDOFF), 1.0)
