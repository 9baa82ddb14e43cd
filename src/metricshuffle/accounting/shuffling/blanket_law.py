"""Finite laws of G = (K_a(Y) - e K_b(Y))/w(Y), the input of the blanket bounds.

a and b are the two values that user 1 may hold, K_a and K_b the laws of that user's report, and e
denotes e^epsilon. The blanket w is a sub-density of the law of EVERY other user's report, whatever
that user holds. Y is a report drawn with density w; the missing mass, 1 minus the total mass of w,
is at G = 0. See `accounting/shuffling/blanket_bound.py` for the identity that turns the law of G
into delta.

In arrays, `mass` is w, `excess` is a - b, and `doubt` is the scale of the rounding error of a value
of G: the error is a few units in the last place of 1 times the doubt.
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
from metricshuffle.errors import ConditionError, InputError, argument
from metricshuffle.numerics.rounding import ROUNDOFF, round_up
from metricshuffle.numerics.types import Floats

# Smaller masses are set to zero, so that G stays a float; a blanket may always be lowered.
MIN_MASS = 1e-200
SUM_TOLERANCE = 1e-9  # for sums of probabilities, which are then normalized
# e^epsilon is a float up to here; delta decreases with epsilon: its value here bounds larger
# epsilons.
LARGEST_EXPONENT = 700.0


def _column(values: ArrayLike, name: str) -> Floats:
    column = np.array(values, dtype=np.float64)
    if column.ndim != 1 or not np.isfinite(column).all():
        raise InputError(
            f"{argument(name)} must be a list of finite numbers, one per atom, got {values!r}."
        )
    column.flags.writeable = False
    return column


def _total(column: Floats) -> float:
    """Return the sum, rounded once; fsum is several times as fast on a list as on an array."""
    return math.fsum(column.tolist())


def _validate_laws(mass: Floats, a: Floats, b: Floats) -> tuple[Floats, ...]:
    """Return mass, a and b, scaled so that a and b sum to one and mass to at most one.

    The scale differs from 1 by at most a billionth.
    """
    if not mass.size == a.size == b.size >= 1:
        raise InputError(
            f"mass, a and b must have one entry per atom, got {mass.size}, {a.size} and {b.size}."
        )
    if min(mass.min(), a.min(), b.min()) < 0.0:
        raise InputError("mass, a and b are probabilities: none of them may be negative.")
    sums = (_total(a), _total(b))
    for name, law_sum in zip("ab", sums, strict=True):
        if not abs(law_sum - 1.0) <= SUM_TOLERANCE:
            raise InputError(f"the probabilities {name} must sum to one, got {law_sum!r}.")
    total = _total(mass)
    if not total <= 1.0 + SUM_TOLERANCE:
        raise InputError(
            f"the blanket is part of a law, so its masses sum to at most one, got {total!r}."
        )
    enough = 8.0 * ROUNDOFF * mass.size  # a law that is right to its last digits is not rescaled
    scaled = [
        column if abs(law_sum - 1.0) <= enough else column / law_sum
        for column, law_sum in zip((a, b), sums, strict=True)
    ]
    return mass if total <= 1.0 + enough else mass / total, *scaled


class Atoms(NamedTuple):
    """Values of G at one epsilon: masses (the rest is at 0), values, and rounding scales.

    `local` is the sum of (a - e b)_+ over all reports, rounded up. (1/n) E[(G_1 + .. + G_n)_+]
    cannot exceed it, as (x+y)_+ <= x_+ + y_+. `exposed` is the same sum over the reports that the
    blanket does not cover, rounded down and up; these reports count in full.
    """

    mass: Floats
    value: Floats
    doubt: Floats
    local: float
    exposed: tuple[float, float] = (0.0, 0.0)


@dataclass(frozen=True, eq=False)
class BlanketLaw:
    """One ordered pair (a, b) as atoms: w_y = mass, K_a(y) = a, K_b(y) = b, G_y = (a - e b)/mass.

    Every number is taken as right to a few units in its last place only. `excess` is a - b. Pass it
    where it is known to a few units of itself (by a formula; this matters for close inputs and many
    users); otherwise it is computed, and right to a few units of a + b. A report with mass = 0 is
    not covered by the blanket and counts in full.
    """

    mass: Floats
    a: Floats
    b: Floats
    excess: Floats = field(default_factory=lambda: np.empty(0))
    rounding: Floats = field(init=False, repr=False)
    """Scale of the rounding error of excess: |excess| or a + b."""
    resolution: ClassVar[float] = 0.0
    """Fraction of delta to which the atoms represent the law: 0, because they are the law."""

    def __post_init__(self) -> None:
        mass = _column(np.where(np.abs(self.mass) < MIN_MASS, 0.0, self.mass), "mass")
        mass, a, b = _validate_laws(mass, _column(self.a, "a"), _column(self.b, "b"))
        gap = a - b
        known = np.size(self.excess) > 0
        excess = _column(self.excess, "excess") if known else gap
        if (
            excess.size != a.size
            or (np.abs(excess - gap) > SUM_TOLERANCE * (a + b)).any()
            or abs(_total(excess)) > 1e-12
        ):
            raise InputError("excess must be a - b, atom by atom, and sum to zero.")
        rounding = np.abs(excess) if known else a + b
        excess.flags.writeable = rounding.flags.writeable = False
        for name, column in (
            ("mass", mass),
            ("a", a),
            ("b", b),
            ("excess", excess),
            ("rounding", rounding),
        ):
            object.__setattr__(self, name, column)

    @classmethod
    @theorem("metricshuffle", "blanket of a finite channel")
    def from_rows(
        cls, rows: ArrayLike, a: int, b: int, others: Sequence[int] | None = None
    ) -> BlanketLaw:
        """Build the pair of rows (a, b) of a channel.

        Every other user holds any of the rows `others` (default: all).

        Statement: w(y) = min over i in `others` of K_i(y), K_i being row i, is the largest common
        sub-density. If `others` is a single row, w is the whole law of every other user's report,
        and the blanket expression EQUALS the hockey-stick divergence of the data set in which all
        other users hold that row.
        Conditions: rows are laws of one report; `others` contains every value another user could
        have, a and b included.
        Numerics: atoms with exactly equal K_a/w and K_b/w (rational comparison) are merged, which
        changes nothing.
        """
        matrix = np.asarray(rows, dtype=np.float64)
        if matrix.ndim != 2 or not np.all(np.isfinite(matrix)):
            raise InputError("rows must be a matrix of finite probabilities, one row per input.")
        inputs = list(range(len(matrix))) if others is None else list(others)
        if not inputs or not all(0 <= i < len(matrix) for i in (a, b, *inputs)):
            raise InputError(
                f"a, b and others must be rows 0..{len(matrix) - 1}, got {a!r}, {b!r} and "
                f"{others!r}."
            )
        sums = [math.fsum(matrix[i]) for i in inputs]
        if max(abs(total - 1.0) for total in sums) > SUM_TOLERANCE:
            raise InputError(
                f"every row must sum to one, got {max(sums, key=lambda total: abs(total - 1.0))!r}."
            )
        blanket = matrix[inputs].min(axis=0)
        groups: dict[tuple[Fraction, Fraction], list[int]] = {}
        for y, (w, pa, pb) in enumerate(
            zip(blanket.tolist(), matrix[a].tolist(), matrix[b].tolist(), strict=True)
        ):
            if pa or pb or w:
                key = (
                    (Fraction(pa) / Fraction(w), Fraction(pb) / Fraction(w))
                    if w >= MIN_MASS
                    else (Fraction(-1), Fraction(y))
                )
                groups.setdefault(key, []).append(y)
        merged = [
            [math.fsum(column[group]) for group in groups.values()]
            for column in (blanket, matrix[a], matrix[b])
        ]
        return cls(*(np.array(column) for column in merged))

    @classmethod
    @theorem("metricshuffle", "asymmetric clone pair")
    def clone_pair(cls, log_ratio: float, r0: float, r1: float) -> BlanketLaw:
        """Build the extremal pair of all K_a, K_b within a factor p = e^log_ratio of each other.

        Its two atoms have (K_a, K_b) = (p, 1)/(p+1) and (1, p)/(p+1), and the blanket masses r0 and
        r1.

        Statement: if K_a <= p K_b, K_b <= p K_a and every other law is >= max(K_a/q0, K_b/q1)
        pointwise, then with r_i = p/((p+1) q_i) the blanket expression of this law bounds that of
        (K_a, K_b) for every epsilon.
        Proof: (K_a, K_b) = l0 (p,1) + l1 (1,p) pointwise, with densities l0, l1 >= 0. Moving the
        mass to the two directions (p,1) and (1,p) keeps the mean of G, and G lies between its
        values in these two directions. So the G of this pair is larger in convex order (Jensen
        where w exceeds the sum).
        Conditions: r0, r1 > 0, r0 + r1 <= 1 (automatic if q0, q1 >= p). log_ratio may be inf.
        """
        if not (log_ratio >= 0.0 and 0.0 < r0 <= 1.0 and 0.0 < r1 <= 1.0):
            raise InputError(
                "a clone pair needs log_ratio >= 0 and r0, r1 in (0, 1], got "
                f"{log_ratio!r}, {r0!r}, {r1!r}."
            )
        if not r0 + r1 <= 1.0 + 4.0 * ROUNDOFF:
            raise ConditionError("The clone pair", "r0 + r1 <= 1", f"{r0 + r1!r}")
        # Beyond LARGEST_EXPONENT p is raised to inf, which is always allowed.
        inverse = math.exp(-log_ratio) if log_ratio <= LARGEST_EXPONENT else 0.0
        high = 1.0 / (1.0 + inverse)
        low = inverse / (1.0 + inverse)
        gap = math.tanh(0.5 * log_ratio)
        return cls(
            np.array([r0, r1]), np.array([high, low]), np.array([low, high]), np.array([gap, -gap])
        )

    @classmethod
    @theorem("metricshuffle", "three-symbol pair")
    def three_symbol(
        cls,
        log_ratio: float,
        beta: float,
        q: float,
        neutral: Sequence[tuple[float, float]] | None = None,
    ) -> BlanketLaw:
        """Build the extremal pair within p = e^log_ratio of total variation at most beta.

        Every other law is >= max(K_a, K_b)/q pointwise.

        Statement: let alpha = beta/(p-1) and s = 1 - (p+1) alpha. The atoms with (K_a, K_b) = (p
        alpha, alpha) and (alpha, p alpha), of blanket mass p alpha/q each, and (s, s), of mass s/q,
        bound the pair as in `clone_pair` (w is sublinear in (K_a, K_b), and the extreme rays are
        these three). `neutral` replaces the last atom by parts (probability, ratio) whose
        probabilities sum to s: in such a part K_a = K_b = probability, and every other law is >=
        K_a/ratio.
        Conditions: log_ratio > 0, beta <= (p-1)/(p+1), q >= 1 + beta. `neutral` only if K_a/K_b
        takes no values but p, 1 and 1/p. k-ary randomized response (k-RR) has ratio 1; subset
        selection, hashing, Hadamard response and RAPPOR have ratio p where both K_a and K_b are
        high, and 1 where both are low.
        """
        if not (0.0 < log_ratio < math.inf and beta > 0.0):
            raise InputError(
                "the three-symbol pair needs a finite log_ratio > 0 and beta > 0, got "
                f"{log_ratio!r} and {beta!r}."
            )
        if not beta <= round_up(math.tanh(0.5 * log_ratio), 8):
            raise ConditionError(
                "The three-symbol pair",
                "beta <= (p-1)/(p+1)",
                f"beta = {beta!r} with log p = {log_ratio!r}",
            )
        if not q >= 1.0 + beta - 8.0 * ROUNDOFF:
            raise ConditionError(
                "The three-symbol pair", "q >= 1 + beta", f"q = {q!r} with beta = {beta!r}"
            )
        # Beyond e^700 p is raised to inf, which is always allowed.
        high = beta / -math.expm1(-log_ratio)
        low = beta / math.expm1(log_ratio) if log_ratio <= LARGEST_EXPONENT else 0.0
        equal = max(0.0, 1.0 - high - low)
        parts = (
            [(equal, q)]
            if neutral is None
            else [(float(share), float(ratio)) for share, ratio in neutral]
        )
        if (
            not all(share >= 0.0 and ratio >= 1.0 for share, ratio in parts)
            or abs(math.fsum(share for share, _ in parts) - equal) > 1e-9
        ):
            raise InputError(
                f"neutral must be parts (probability, ratio >= 1) that sum to {equal!r}, "
                f"got {neutral!r}."
            )
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
        law = object.__new__(BlanketLaw)  # its columns were validated before
        excess = -self.excess
        excess.flags.writeable = False
        for name, column in zip(
            ("mass", "a", "b", "excess", "rounding"),
            (self.mass, self.b, self.a, excess, self.rounding),
            strict=True,
        ):
            object.__setattr__(law, name, column)
        return law

    @cached_property
    def symmetric(self) -> bool:
        """Whether (a, b) and (b, a) have the same law of G, float by float."""
        forth = sorted(zip(self.mass, self.a, self.b, self.excess, strict=True))
        return forth == sorted(zip(self.mass, self.b, self.a, -self.excess, strict=True))

    @cached_property
    def pure(self) -> float:
        """Local epsilon max log(K_a/K_b), rounded up; infinite if b misses an atom of a.

        At this epsilon and beyond, delta = 0.
        """
        if np.any((self.b == 0.0) & (self.a > 0.0)):
            return math.inf
        support = self.b > 0.0
        max_ratio = float(
            np.max(
                (self.excess[support] + 16.0 * ROUNDOFF * self.rounding[support]) / self.b[support]
            )
        )
        return round_up(max(0.0, math.log1p(max_ratio)), 16)

    @property
    def spread(self) -> float:
        """Approximate E[G^2] at epsilon = 0, which decides for many users; only used for ranking.

        Infinite if the blanket does not cover a report.
        """
        if not self.mass.min() > 0.0:
            return math.inf
        return float((self.excess * self.excess / self.mass).sum())

    @cached_property
    def _covered(self) -> tuple[Floats, Floats, Floats, Floats]:
        covered = self.mass > 0.0
        return self.mass[covered], self.excess[covered], self.rounding[covered], self.b[covered]

    def atoms(self, epsilon: float, *, above: bool = True) -> Atoms:
        """Return G at this epsilon; `above` makes no difference for an exact law."""
        from metricshuffle.accounting.shuffling import _blanket_kernels as kernels

        growth = math.expm1(min(epsilon, LARGEST_EXPONENT))
        mass, excess, rounding, b = self._covered
        value, doubt, local = kernels.blanket_values(mass, excess, rounding, b, growth)
        if mass.size == self.mass.size:
            return Atoms(mass, value, doubt, local)
        bare = self.mass == 0.0
        gap = self.excess[bare] - growth * self.b[bare]
        slack = 8.0 * ROUNDOFF * (self.rounding[bare] + growth * self.b[bare])
        low, high = (math.fsum(np.maximum(0.0, gap + sign * slack)) for sign in (-1.0, 1.0))
        return Atoms(mass, value, doubt, round_up(local + high, 2), (low, high))


@dataclass(frozen=True, eq=False)
class BinnedLaw:
    """Pair of continuous laws cut into bins.

    Each bin has the exact integrals of w, K_a and K_b over it, and K_a/w, K_b/w at its two ends.

    Statement: if the mass of each bin is split between the two end values of G so that the mean is
    preserved, G only grows in convex order, so delta is bounded above; if the mass is put at the
    mean, delta is bounded below (Jensen).
    Conditions: G is monotone inside each bin for every epsilon (cut at a, b, their middle and every
    kink of w), so that it lies between its end values; the integrals are exact to rounding. An atom
    is a bin with equal ends.
    """

    mass: Floats
    a: Floats
    b: Floats
    left: Floats
    right: Floats
    resolution: ClassVar[float] = 1e-5
    """Relative accuracy to which evaluating these atoms makes sense, as they are rounded."""

    def __post_init__(self) -> None:
        mass, a, b = _validate_laws(
            _column(self.mass, "mass"), _column(self.a, "a"), _column(self.b, "b")
        )
        if not mass.min() >= MIN_MASS:
            raise InputError(
                "every bin needs a positive blanket mass; leave out the bins that have none."
            )
        for name, column in (("mass", mass), ("a", a), ("b", b)):
            object.__setattr__(self, name, column)
        for name in ("left", "right"):
            ends = np.array(getattr(self, name), dtype=np.float64)
            if ends.shape != (mass.size, 2) or not np.all(np.isfinite(ends)) or ends.min() < 0.0:
                raise InputError(
                    f"{argument(name)} must hold the pairs (K_a/w, K_b/w) at that end of "
                    f"each bin, got shape {ends.shape}."
                )
            object.__setattr__(self, name, ends)

    @cached_property
    def reversed(self) -> BinnedLaw:
        """The pair (b, a)."""
        return BinnedLaw(self.mass, self.b, self.a, self.left[:, ::-1], self.right[:, ::-1])

    @property
    def symmetric(self) -> bool:
        """Always False: both directions are evaluated without comparing them."""
        return False

    @cached_property
    def pure(self) -> float:
        """Local epsilon max log(K_a/K_b) over the ends of the bins, rounded up.

        G is monotone inside the bins, so no log ratio inside a bin exceeds it.
        """
        ends = np.concatenate([self.left, self.right])
        if np.any((ends[:, 1] == 0.0) & (ends[:, 0] > 0.0)):
            return math.inf
        ends = ends[ends[:, 1] > 0.0]
        return round_up(
            max(0.0, math.log(float(np.max(ends[:, 0] / ends[:, 1]))) + 16.0 * ROUNDOFF), 16
        )

    def atoms(self, epsilon: float, *, above: bool = True) -> Atoms:
        """Return G at this epsilon, rounded outward (above) or inward in convex order."""
        from metricshuffle.accounting.shuffling import _blanket_kernels as kernels

        e = math.exp(min(epsilon, LARGEST_EXPONENT))
        mean = (self.a - e * self.b) / self.mass
        doubt = (self.a + e * self.b) / self.mass
        if not above:
            return Atoms(self.mass, mean, doubt, kernels.local_delta(self.mass, mean, doubt))
        first = self.left[:, 0] - e * self.left[:, 1]
        second = self.right[:, 0] - e * self.right[:, 1]
        ends = np.maximum(
            self.left[:, 0] + e * self.left[:, 1], self.right[:, 0] + e * self.right[:, 1]
        )
        slack = 64.0 * ROUNDOFF * np.maximum(ends, doubt)
        outside = (
            np.maximum(np.minimum(first, second) - mean, mean - np.maximum(first, second)) - slack
        )
        if not np.all(outside <= 0.0):
            raise InputError(
                f"bin {int(np.argmax(outside))}: the mean of G lies outside its two ends, "
                "so G is not monotone there; "
                "split the bin at its extremum."
            )
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(
                first == second, 0.0, np.clip((mean - first) / (second - first), 0.0, 1.0)
            )
        # Neighbouring bins share an end: one atom for both.
        value, place = np.unique(np.concatenate([first, second]), return_inverse=True)
        mass = np.zeros(value.size)
        np.add.at(mass, place, np.concatenate([self.mass * (1.0 - share), self.mass * share]))
        wide = np.zeros(value.size)
        np.maximum.at(
            wide, place, np.concatenate([ends, ends]) + 2.0 * np.concatenate([doubt, doubt])
        )
        support = mass > 0.0
        return Atoms(
            mass[support], value[support], wide[support], kernels.local_delta(mass, value, wide)
        )


Law = BlanketLaw | BinnedLaw
