"""Laws of G_x = (K_a(Y) - e^epsilon K_b(Y))/K_x(Y), Y ~ K_x, for every input x of other people.

a and b are the two values that person 1 may have, and K_x is the law of a report of input x. An
input class is a set of inputs that are accounted by one law; arrays of such laws are named `types`.
`full_law_bound.py` and `mixed_groups_bound.py` bound sums of these G_x, as the blanket bound does
with the laws of `blanket_law.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from metricshuffle.accounting.shuffling.blanket_law import LARGEST_EXPONENT, MIN_MASS, SUM_TOLERANCE
from metricshuffle.citations import theorem
from metricshuffle.errors import InputError
from metricshuffle.numerics.rounding import ROUNDOFF, round_down, round_up
from metricshuffle.numerics.types import Floats, Integers64, Mask

Classes = Sequence[Sequence[int]]

MAX_COMPARED = 2**14  # up to this many atoms in total, both directions are compared


class InputClassLaw(NamedTuple):
    """Reports of one input class x, one atom each: K_x(y), K_a(y), K_b(y) and K_a(y) - K_b(y).

    All four numbers are accurate to a few units in the last place. The columns may also be a range
    of atoms of several input classes.
    """

    mass: Floats
    a: Floats
    b: Floats
    excess: Floats
    rounding: Floats
    """Scale of the rounding error of excess: |excess| or a + b."""

    def only(self, chosen: slice | Mask | Integers64) -> InputClassLaw:
        """Return some of the atoms."""
        return InputClassLaw(*(column[chosen] for column in self))

    def sorted(self) -> InputClassLaw:
        """Return the atoms in a canonical order, without those that neither a nor b can make."""
        informative = self if self.a.min() > 0.0 else self.only((self.a > 0.0) | (self.b > 0.0))
        return informative.only(np.lexsort(informative))

    @property
    def key(self) -> bytes:
        """Bytes that are equal for laws with the same atoms in the same order (see `sorted`)."""
        return b"".join(column.tobytes() for column in self)

    def positive_part(self, growth: float) -> float:
        """Return the sum of (K_a - e K_b)_+ over the atoms, rounded up; growth = e - 1."""
        gap = self.excess - growth * self.b + 16.0 * ROUNDOFF * (self.rounding + growth * self.b)
        return round_up(math.fsum(np.maximum(0.0, gap).tolist()), 16)


class InputClassValues(NamedTuple):
    """Values of G of every input class at one epsilon, in the form of `_full_law_kernels`.

    `local` is the sum of (K_a - e K_b)_+ over all reports, rounded up: no bound is larger. `bare`
    is the largest contribution to this sum of reports that some input class cannot make; these
    reports count in full, outside the kernel. `doubt` is the scale of the rounding errors of
    `value`, and `square` is about E G^2 of each input class.
    """

    starts: Integers64
    mass: Floats
    value: Floats
    doubt: Floats
    square: Floats
    local: float
    bare: float


@dataclass(frozen=True, eq=False)
class InputClassLaws:
    """One ordered pair (a, b) and the laws of the others.

    `blanket` is a lower bound on the sum of the pointwise minimum of the laws of all others. The
    atoms of input class x are starts[x] to starts[x+1] of `atoms`. Use `from_rows`, or `of` where
    similar reports have been merged (each input class then has its own atoms).
    """

    starts: Integers64
    atoms: InputClassLaw
    blanket: float

    @classmethod
    def of(cls, types: Iterable[InputClassLaw], blanket: float) -> InputClassLaws:
        """Build from the laws of given input classes, of which equal ones are merged.

        The atoms of every input class must include all reports that a or b can make.
        """
        distinct: dict[bytes, InputClassLaw] = {}
        for law in types:
            if (
                not all(
                    abs(math.fsum(column.tolist()) - 1.0) <= SUM_TOLERANCE
                    for column in (law.a, law.b)
                )
                or not law.mass.min() >= 0.0
            ):
                raise InputError(
                    "the probabilities of a and b must sum to one over the atoms of every "
                    "input class, and masses be >= 0."
                )
            in_order = law.sorted()
            distinct.setdefault(in_order.key, in_order)
        if not distinct or not 0.0 <= blanket <= 1.0 + SUM_TOLERANCE:
            raise InputError(
                f"there must be at least one input class, and the blanket must lie in [0, 1], "
                f"got {blanket!r}."
            )
        starts = np.cumsum([0, *(law.mass.size for law in distinct.values())])
        columns = (np.concatenate(column) for column in zip(*distinct.values(), strict=True))
        return cls(starts.astype(np.int64), InputClassLaw(*columns), min(float(blanket), 1.0))

    @classmethod
    @theorem("metricshuffle", "classes of inputs")
    def from_laws(
        cls,
        first: ArrayLike,
        second: ArrayLike,
        others: ArrayLike,
        *,
        excess: ArrayLike | None = None,
        classes: Classes | None = None,
    ) -> InputClassLaws:
        """Build from K_a = first, K_b = second, and the possible laws of the others as rows.

        Statement: inputs may be put in classes C, all of whose members are replaced by one law of
        G: mass w_C(y), the minimum of K_x(y) over x in C, at the value (K_a - e K_b)(y)/w_C(y), and
        the rest of the mass at 0.
        Proof: let d = (K_a - e K_b)(y). For convex f with f(0) = 0, w f(d/w) decreases with w (it
        is the perspective of f), so G_x is below the law of its class in convex order, which sums
        of independent variables preserve. Mixtures of the laws of a class are covered likewise.
        Conditions: `others` contains the law of every input another person could have, a's and b's
        included, or laws of which these are mixtures.
        Numerics: rows are right to a few units in the last place; the blanket is rounded down.
        Reference: docs/proofs/beyond-blanket.md.
        """
        a, b, rows = (np.asarray(law, dtype=np.float64) for law in (first, second, others))
        if (
            rows.ndim != 2
            or a.shape != rows.shape[1:]
            or b.shape != a.shape
            or not all(np.all(np.isfinite(law)) for law in (a, b, rows))
        ):
            raise InputError(
                "first, second and the rows of others must be finite probabilities of the "
                "same reports."
            )
        sums = [math.fsum(law) for law in (a, b, *rows)]
        if (
            max(abs(total - 1.0) for total in sums) > SUM_TOLERANCE
            or min(a.min(), b.min(), rows.min()) < 0.0
        ):
            raise InputError(
                "first, second and the rows of others must be laws: probabilities that sum to one."
            )
        # Laws that are right to their last digits are not rescaled.
        scales = np.array(
            [1.0 if abs(total - 1.0) <= 8.0 * ROUNDOFF * a.size else total for total in sums]
        )
        a = a / scales[0]
        b = b / scales[1]
        rows = rows / scales[2:, None]
        gap = a - b if excess is None else np.asarray(excess, dtype=np.float64)
        rounding = a + b if excess is None else np.abs(gap)
        if gap.shape != a.shape or np.any(np.abs(gap - (a - b)) > SUM_TOLERANCE * (a + b)):
            raise InputError("excess must be first - second, report by report.")
        blanket = round_down(math.fsum(rows.min(axis=0)), 16)
        return cls.of(
            (InputClassLaw(mass, a, b, gap, rounding) for mass in class_minima(rows, classes)),
            blanket,
        )

    @classmethod
    def from_rows(
        cls, rows: ArrayLike, a: int, b: int, *, classes: Classes | None = None
    ) -> InputClassLaws:
        """Build the pair (a, b) of the rows of a channel; the others may hold any of the rows."""
        matrix = np.asarray(rows, dtype=np.float64)
        if matrix.ndim != 2 or not all(0 <= i < len(matrix) for i in (a, b)):
            raise InputError(f"a and b must be rows 0..{len(matrix) - 1}, got {a!r} and {b!r}.")
        return cls.from_laws(matrix[a], matrix[b], matrix, classes=classes)

    @cached_property
    def types(self) -> list[InputClassLaw]:
        return [
            self.atoms.only(slice(first, last)) for first, last in pairwise(self.starts.tolist())
        ]

    @property
    def _pair(self) -> InputClassLaw:
        """Reports of person 1, taken from the first input class: its atoms include all of them."""
        return self.atoms.only(slice(0, int(self.starts[1])))

    @cached_property
    def reversed(self) -> InputClassLaws:
        """The pair (b, a)."""
        mass, a, b, excess, rounding = self.atoms
        return InputClassLaws(
            self.starts, InputClassLaw(mass, b, a, 0.0 - excess, rounding), self.blanket
        )  # 0 - x is never -0

    @cached_property
    def symmetric(self) -> bool:
        """Whether (a, b) and (b, a) have the same laws, float by float.

        False, without comparing, where there are very many atoms.
        """
        if self.atoms.mass.size > MAX_COMPARED:
            return False
        forth, back = ({law.sorted().key for law in laws.types} for laws in (self, self.reversed))
        return forth == back

    @cached_property
    def pure(self) -> float:
        """Local epsilon max log(K_a/K_b), rounded up; infinite if b misses a report of a.

        At this epsilon and beyond, delta = 0.
        """
        _, a, b, excess, rounding = self._pair
        if np.any((b == 0.0) & (a > 0.0)):
            return math.inf
        max_ratio = float(
            np.max((excess[b > 0.0] + 16.0 * ROUNDOFF * rounding[b > 0.0]) / b[b > 0.0])
        )
        return round_up(max(0.0, math.log1p(max_ratio)), 16)

    @cached_property
    def _covered(self) -> tuple[Integers64, InputClassLaw]:
        """Atoms that their input class can make, with a probability of at least MIN_MASS."""
        if self.atoms.mass.min() >= MIN_MASS:
            return self.starts, self.atoms
        covered = [law.only(law.mass >= MIN_MASS) for law in self.types]
        starts = np.cumsum([0, *(law.mass.size for law in covered)]).astype(np.int64)
        return starts, InputClassLaw(
            *(np.concatenate(column) for column in zip(*covered, strict=True))
        )

    @cached_property
    def _bare(self) -> list[InputClassLaw]:
        """Atoms that their input class cannot make, or only with a probability below MIN_MASS."""
        if self.atoms.mass.min() >= MIN_MASS:
            return []
        return [law.only(law.mass < MIN_MASS) for law in self.types]

    def at(self, epsilon: float) -> InputClassValues:
        """Return G at this epsilon; beyond epsilon = 700, G at 700, which gives a larger delta."""
        from metricshuffle.accounting.shuffling import _full_law_kernels as kernels

        growth = math.expm1(min(epsilon, LARGEST_EXPONENT))
        starts, covered = self._covered
        value, doubt, square = kernels.values(
            starts, covered.mass, covered.excess, covered.rounding, covered.b, growth
        )
        bare = max((law.positive_part(growth) for law in self._bare), default=0.0)
        return InputClassValues(
            starts, covered.mass, value, doubt, square, self._pair.positive_part(growth), bare
        )


def class_minima(rows: Floats, classes: Classes | None) -> Floats:
    """Return the pointwise minimum over each class, without repetitions."""
    if classes is not None:
        if sorted(x for group in classes for x in group) != list(range(len(rows))):
            raise InputError("classes must hold every row of others exactly once.")
        rows = np.array([rows[list(group)].min(axis=0) for group in classes])
    return np.asarray(np.unique(rows, axis=0))
