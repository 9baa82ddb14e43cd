"""What the others contribute: finite laws of G = (K_a(Y) - e K_b(Y))/w(Y), the input of every amplification bound.

a and b are the two values one user may hold, K_a and K_b the laws of the report, e = e^epsilon, and the blanket w is a
sub-density of the law of EVERY other user's report, whatever that user holds. See `accounting/shuffling/blanket_bound.py` for the identity.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from metricshuffle.citations import theorem
from metricshuffle.errors import ConditionError, InputError
from metricshuffle.numerics.rounding import ROUNDOFF, round_up
from metricshuffle.numerics.types import Floats

MIN_MASS = 1e-200  # a blanket may be lowered: masses below this are set to zero, so that G stays a float
SUM_TOLERANCE = 1e-9  # for sums of probabilities; what is left is scaled away
LARGEST_EXPONENT = 700.0  # e^epsilon is a float up to here; delta falls in epsilon, so the value here bounds what is beyond


def _column(values: ArrayLike, name: str) -> Floats:
    column = np.array(values, dtype=np.float64)
    if column.ndim != 1 or not np.isfinite(column).all():
        raise InputError(f"{name} must be a list of finite numbers, one per atom, got {values!r}.")
    column.flags.writeable = False
    return column


def _total(column: Floats) -> float:
    """The sum, rounded once; a list is added up several times as fast as an array."""
    return math.fsum(column.tolist())


def _validate_laws(mass: Floats, a: Floats, b: Floats) -> tuple[Floats, ...]:
    """mass, a and b, scaled by at most a billionth so that a and b sum to one and mass to no more."""
    if not mass.size == a.size == b.size >= 1:
        raise InputError(f"mass, a and b must have one entry per atom, got {mass.size}, {a.size} and {b.size}.")
    if min(mass.min(), a.min(), b.min()) < 0.0:
        raise InputError("mass, a and b are probabilities: none of them may be negative.")
    sums = (_total(a), _total(b))
    for name, found in zip("ab", sums, strict=True):
        if not abs(found - 1.0) <= SUM_TOLERANCE:
            raise InputError(f"the probabilities {name} must sum to one, got {found!r}.")
    total = _total(mass)
    if not total <= 1.0 + SUM_TOLERANCE:
        raise InputError(f"the blanket is part of a law, so its masses sum to at most one, got {total!r}.")
    enough = 8.0 * ROUNDOFF * mass.size  # (a law that is right to its last digits stays as it is)
    scaled = [column if abs(found - 1.0) <= enough else column / found for column, found in zip((a, b), sums, strict=True)]
    return mass if total <= 1.0 + enough else mass / total, *scaled


class Atoms(NamedTuple):
    """G at one epsilon: masses (the rest is at 0), values, and the scale of their rounding errors.

    `local` is sum (a - e b)_+ over all reports, rounded up: what (1/n) E[(sum of G)_+] cannot exceed, as (x+y)_+ <= x_+ + y_+.
    `exposed` is that sum over the reports the blanket does not cover, rounded down and up; they count in full.
    """

    mass: Floats
    value: Floats
    doubt: Floats
    local: float
    exposed: tuple[float, float] = (0.0, 0.0)


@dataclass(frozen=True, eq=False)
class BlanketLaw:
    """One ordered pair (a, b) as atoms: w_y = mass, K_a(y) = a, K_b(y) = b, so that G_y = (a - e b)/mass.

    Every number is taken as right to a few units in its last place only. `excess` is a - b; give it where it is known that
    well too (by a formula; matters for close inputs and many users), otherwise it is right to a few units of a + b.
    Where mass = 0 a report gives itself away and counts in full.
    """

    mass: Floats
    a: Floats
    b: Floats
    excess: Floats = field(default_factory=lambda: np.empty(0))
    rounding: Floats = field(init=False, repr=False)
    """|excess| or a + b: the scale of the rounding error of excess."""
    resolution: ClassVar[float] = 0.0
    """To what fraction of delta the atoms stand for the law: 0, they are the law."""

    def __post_init__(self) -> None:
        mass = _column(np.where(np.abs(self.mass) < MIN_MASS, 0.0, self.mass), "mass")
        mass, a, b = _validate_laws(mass, _column(self.a, "a"), _column(self.b, "b"))
        gap, known = a - b, np.size(self.excess) > 0
        excess = _column(self.excess, "excess") if known else gap
        if excess.size != a.size or (np.abs(excess - gap) > SUM_TOLERANCE * (a + b)).any() or abs(_total(excess)) > 1e-12:
            raise InputError("excess must be a - b, atom by atom, and sum to zero.")
        rounding = np.abs(excess) if known else a + b
        excess.flags.writeable = rounding.flags.writeable = False
        for name, column in (("mass", mass), ("a", a), ("b", b), ("excess", excess), ("rounding", rounding)):
            object.__setattr__(self, name, column)

    @classmethod
    @theorem("metricshuffle", "blanket of a finite channel")
    def from_rows(cls, rows: ArrayLike, a: int, b: int, others: Sequence[int] | None = None) -> BlanketLaw:
        """The pair of rows (a, b) of a channel, every other user holding any of the rows `others` (default: all).

        Statement: w(y) = min over `others` of K_i(y) is the largest common sub-density. With a single row in `others` it is
        that user's whole law, and the blanket expression EQUALS the hockey-stick of the data set where all others hold it.
        Conditions: rows are laws of one report; `others` holds every value another user could have, a and b included.
        Numerics: atoms with exactly equal K_a/w and K_b/w (rational comparison) are merged, which changes nothing.
        """
        matrix = np.asarray(rows, dtype=np.float64)
        if matrix.ndim != 2 or not np.all(np.isfinite(matrix)):
            raise InputError("rows must be a matrix of finite probabilities, one row per input.")
        inputs = list(range(len(matrix))) if others is None else list(others)
        if not inputs or not all(0 <= i < len(matrix) for i in (a, b, *inputs)):
            raise InputError(f"a, b and others must be rows 0..{len(matrix) - 1}, got {a!r}, {b!r} and {others!r}.")
        sums = [math.fsum(matrix[i]) for i in inputs]
        if max(abs(total - 1.0) for total in sums) > SUM_TOLERANCE:
            raise InputError(f"every row must sum to one, got {max(sums, key=lambda total: abs(total - 1.0))!r}.")
        blanket = matrix[inputs].min(axis=0)
        groups: dict[tuple[Fraction, Fraction], list[int]] = {}
        for y, (w, pa, pb) in enumerate(zip(blanket.tolist(), matrix[a].tolist(), matrix[b].tolist(), strict=True)):
            if pa or pb or w:
                key = (Fraction(pa) / Fraction(w), Fraction(pb) / Fraction(w)) if w >= MIN_MASS else (Fraction(-1), Fraction(y))
                groups.setdefault(key, []).append(y)
        merged = [[math.fsum(column[group]) for group in groups.values()] for column in (blanket, matrix[a], matrix[b])]
        return cls(*(np.array(column) for column in merged))

    @classmethod
    @theorem("metricshuffle", "asymmetric clone pair")
    def clone_pair(cls, log_ratio: float, r0: float, r1: float) -> BlanketLaw:
        """The extremal pair of all K_a, K_b within a factor p = e^log_ratio: atoms (p, 1)/(p+1) and (1, p)/(p+1) of masses r0, r1.

        Statement: if K_a <= p K_b, K_b <= p K_a and every other law is >= max(K_a/q0, K_b/q1) pointwise, then with
        r_i = p/((p+1) q_i) the blanket expression of this law bounds that of (K_a, K_b) for every epsilon.
        Proof: (K_a, K_b) = l0 (p,1) + l1 (1,p) pointwise; moving the mass to those two directions keeps the mean, and
        G lies between the two extreme values, so the pair's G dominates in convex order (Jensen where w exceeds the sum).
        Conditions: r0, r1 > 0, r0 + r1 <= 1 (automatic if q0, q1 >= p). log_ratio may be inf.
        """
        if not (log_ratio >= 0.0 and 0.0 < r0 <= 1.0 and 0.0 < r1 <= 1.0):
            raise InputError(f"a clone pair needs log_ratio >= 0 and r0, r1 in (0, 1], got {log_ratio!r}, {r0!r}, {r1!r}.")
        if not r0 + r1 <= 1.0 + 4.0 * ROUNDOFF:
            raise ConditionError("The clone pair", "r0 + r1 <= 1", f"{r0 + r1!r}")
        inverse = math.exp(-log_ratio) if log_ratio <= LARGEST_EXPONENT else 0.0  # beyond, p is raised to inf: always allowed
        high, low, gap = 1.0 / (1.0 + inverse), inverse / (1.0 + inverse), math.tanh(0.5 * log_ratio)
        return cls(np.array([r0, r1]), np.array([high, low]), np.array([low, high]), np.array([gap, -gap]))

    @classmethod
    @theorem("metricshuffle", "three-symbol pair")
    def three_symbol(cls, log_ratio: float, beta: float, q: float, neutral: Sequence[tuple[float, float]] | None = None) -> BlanketLaw:
        """Pairs within p = e^log_ratio whose total variation is at most beta, every other law >= max(K_a, K_b)/q pointwise.

        Statement: atoms (p alpha, alpha) and (alpha, p alpha) of mass p alpha/q each, alpha = beta/(p-1), and (s, s) of mass
        s/q, s = 1 - (p+1) alpha, bound the pair as in `clone_pair` (w is sublinear and the extreme rays are these three).
        `neutral` replaces the last atom by parts (probability, ratio) that sum to s: K_a = K_b = probability, every other
        law >= K_a/ratio there.
        Conditions: log_ratio > 0, beta <= (p-1)/(p+1), q >= 1 + beta. `neutral` only if K_a/K_b takes no values but p, 1 and
        1/p; k-RR has ratio 1; subset, hash, Hadamard, RAPPOR: ratio p where both are high, 1 where both are low.
        """
        if not (0.0 < log_ratio < math.inf and beta > 0.0):
            raise InputError(f"the three-symbol pair needs a finite log_ratio > 0 and beta > 0, got {log_ratio!r} and {beta!r}.")
        if not beta <= round_up(math.tanh(0.5 * log_ratio), 8):
            raise ConditionError("The three-symbol pair", "beta <= (p-1)/(p+1)", f"beta = {beta!r} with log p = {log_ratio!r}")
        if not q >= 1.0 + beta - 8.0 * ROUNDOFF:
            raise ConditionError("The three-symbol pair", "q >= 1 + beta", f"q = {q!r} with beta = {beta!r}")
        # p beyond e^700 is raised to inf, which is always allowed
        high, low = beta / -math.expm1(-log_ratio), beta / math.expm1(log_ratio) if log_ratio <= LARGEST_EXPONENT else 0.0
        equal = max(0.0, 1.0 - high - low)
        parts = [(equal, q)] if neutral is None else [(float(share), float(ratio)) for share, ratio in neutral]
        if not all(share >= 0.0 and ratio >= 1.0 for share, ratio in parts) or abs(math.fsum(share for share, _ in parts) - equal) > 1e-9:
            raise InputError(f"neutral must be parts (probability, ratio >= 1) that sum to {equal!r}, got {neutral!r}.")
        parts = [(share, ratio) for share, ratio in parts if share > 0.0]
        shares = [share for share, _ in parts]
        return cls(
            np.array([high / q, high / q, *(share / ratio for share, ratio in parts)]),
            np.array([high, low, *shares]),
            np.array([low, high, *shares]),
            np.array([beta, -beta, *(0.0 for _ in parts)]),
        )

    @cached_property
    def reversed(self) -> BlanketLaw:
        """The pair (b, a)."""
        law = object.__new__(BlanketLaw)  # (all of it was looked at before)
        excess = -self.excess
        excess.flags.writeable = False
        for name, column in zip(("mass", "a", "b", "excess", "rounding"), (self.mass, self.b, self.a, excess, self.rounding), strict=True):
            object.__setattr__(law, name, column)
        return law

    @cached_property
    def symmetric(self) -> bool:
        """Whether (a, b) and (b, a) have the same law of G, float by float."""
        forth = sorted(zip(self.mass, self.a, self.b, self.excess, strict=True))
        return forth == sorted(zip(self.mass, self.b, self.a, -self.excess, strict=True))

    @cached_property
    def pure(self) -> float:
        """max log(K_a/K_b), rounded up: from there on delta = 0 (inf if b misses an atom of a)."""
        if np.any((self.b == 0.0) & (self.a > 0.0)):
            return math.inf
        support = self.b > 0.0
        max_ratio = float(np.max((self.excess[support] + 16.0 * ROUNDOFF * self.rounding[support]) / self.b[support]))
        return round_up(max(0.0, math.log1p(max_ratio)), 16)

    @property
    def spread(self) -> float:
        """About E[G^2] at epsilon = 0, which decides for many users; inf where a report gives itself away. It only ranks."""
        if not self.mass.min() > 0.0:
            return math.inf
        return float((self.excess * self.excess / self.mass).sum())

    @cached_property
    def _covered(self) -> tuple[Floats, Floats, Floats, Floats]:
        covered = self.mass > 0.0
        return self.mass[covered], self.excess[covered], self.rounding[covered], self.b[covered]

    def atoms(self, epsilon: float, *, above: bool = True) -> Atoms:
        """G at this epsilon; `above` makes no difference for a law that is exact."""
        from metricshuffle.accounting.shuffling import _blanket_kernels as kernels

        growth = math.expm1(min(epsilon, LARGEST_EXPONENT))
        mass, excess, rounding, b = self._covered
        value, doubt, local = kernels.blanket_values(mass, excess, rounding, b, growth)
        if mass.size == self.mass.size:
            return Atoms(mass, value, doubt, local)
        bare = self.mass == 0.0
        gap, slack = self.excess[bare] - growth * self.b[bare], 8.0 * ROUNDOFF * (self.rounding[bare] + growth * self.b[bare])
        low, high = (math.fsum(np.maximum(0.0, gap + sign * slack)) for sign in (-1.0, 1.0))
        return Atoms(mass, value, doubt, round_up(local + high, 2), (low, high))


@dataclass(frozen=True, eq=False)
class BinnedLaw:
    """A continuous pair cut into bins: exact integrals of w, K_a, K_b over each bin, and K_a/w, K_b/w at its two ends.

    Statement: with each bin's mass split between its two end values of G so that the mean stays, G only grows in convex
    order, so delta is bounded above; with the mass at the mean it is bounded below (Jensen).
    Conditions: G is monotone inside each bin for every epsilon (cut at a, b, their middle and every kink of w), so that it
    lies between its end values; the integrals are exact to rounding. An atom is a bin with equal ends.
    """

    mass: Floats
    a: Floats
    b: Floats
    left: Floats
    right: Floats
    resolution: ClassVar[float] = 1e-5
    """To what fraction of delta it makes sense to evaluate the rounded atoms."""

    def __post_init__(self) -> None:
        mass, a, b = _validate_laws(_column(self.mass, "mass"), _column(self.a, "a"), _column(self.b, "b"))
        if not mass.min() >= MIN_MASS:
            raise InputError("every bin needs a positive blanket mass; leave out the bins that have none.")
        for name, column in (("mass", mass), ("a", a), ("b", b)):
            object.__setattr__(self, name, column)
        for name in ("left", "right"):
            ends = np.array(getattr(self, name), dtype=np.float64)
            if ends.shape != (mass.size, 2) or not np.all(np.isfinite(ends)) or ends.min() < 0.0:
                raise InputError(f"{name} must hold the pairs (K_a/w, K_b/w) at that end of each bin, got shape {ends.shape}.")
            object.__setattr__(self, name, ends)

    @cached_property
    def reversed(self) -> BinnedLaw:
        """The pair (b, a)."""
        return BinnedLaw(self.mass, self.b, self.a, self.left[:, ::-1], self.right[:, ::-1])

    @property
    def symmetric(self) -> bool:
        """Not looked for: two directions are always evaluated."""
        return False

    @cached_property
    def pure(self) -> float:
        """max log(K_a/K_b) over the ends, rounded up: G is monotone inside the bins, so nothing exceeds it."""
        ends = np.concatenate([self.left, self.right])
        if np.any((ends[:, 1] == 0.0) & (ends[:, 0] > 0.0)):
            return math.inf
        ends = ends[ends[:, 1] > 0.0]
        return round_up(max(0.0, math.log(float(np.max(ends[:, 0] / ends[:, 1]))) + 16.0 * ROUNDOFF), 16)

    def atoms(self, epsilon: float, *, above: bool = True) -> Atoms:
        """G at this epsilon, rounded outward (above) or inward in convex order."""
        from metricshuffle.accounting.shuffling import _blanket_kernels as kernels

        e = math.exp(min(epsilon, LARGEST_EXPONENT))
        mean, doubt = (self.a - e * self.b) / self.mass, (self.a + e * self.b) / self.mass
        if not above:
            return Atoms(self.mass, mean, doubt, kernels.local_delta(self.mass, mean, doubt))
        first, second = self.left[:, 0] - e * self.left[:, 1], self.right[:, 0] - e * self.right[:, 1]
        ends = np.maximum(self.left[:, 0] + e * self.left[:, 1], self.right[:, 0] + e * self.right[:, 1])
        slack = 64.0 * ROUNDOFF * np.maximum(ends, doubt)
        outside = np.maximum(np.minimum(first, second) - mean, mean - np.maximum(first, second)) - slack
        if not np.all(outside <= 0.0):
            raise InputError(
                f"bin {int(np.argmax(outside))}: the mean of G lies outside its two ends, so G is not monotone there; "
                "cut the bin where it turns."
            )
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(first == second, 0.0, np.clip((mean - first) / (second - first), 0.0, 1.0))
        # neighbours share an end: one atom for both
        value, place = np.unique(np.concatenate([first, second]), return_inverse=True)
        mass = np.zeros(value.size)
        np.add.at(mass, place, np.concatenate([self.mass * (1.0 - share), self.mass * share]))
        wide = np.zeros(value.size)
        np.maximum.at(wide, place, np.concatenate([ends, ends]) + 2.0 * np.concatenate([doubt, doubt]))
        support = mass > 0.0
        return Atoms(mass[support], value[support], wide[support], kernels.local_delta(mass, value, wide))


Law = BlanketLaw | BinnedLaw
