"""Sums of noise bounded by c: dyadic tables, and Polya shares conditioned on |z| <= c.

`AdditiveRandomizer` uses these sums when every person's noise is bounded: the sum of `count` such
draws is the noise of the released sum, whose law the profile needs.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache

import numpy as np

from metricshuffle.errors import ConditionError, InputError
from metricshuffle.noise.convolution import Group, covering_range, sum_law
from metricshuffle.noise.dyadic_table import DyadicTable
from metricshuffle.noise.polya import Polya
from metricshuffle.noise.symmetric_pmf import LARGEST_RADIUS, SymmetricLaw, too_many_cells
from metricshuffle.numerics.rounding import ROUNDOFF
from metricshuffle.numerics.types import Floats

_CACHED_LAWS = 8
# Log of the mass that may be cut off the tail of a law before its shares are tabulated.
_SHARE_LOG_TAIL = -60.0


@dataclass(frozen=True, eq=False)
class BoundedSum:
    """Sum of `count` independent draws of a symmetric unimodal law on -c..c.

    masses[z] is the probability of z and of -z in one draw, for z = 0..c, to within
    `relative_error`. A change of the sum moves its support, so no finite epsilon has delta 0.
    """

    masses: Floats
    relative_error: float
    count: int
    log_concave: bool
    _laws: OrderedDict[tuple[int, int], SymmetricLaw] = field(
        default_factory=OrderedDict, init=False, repr=False
    )

    def __post_init__(self) -> None:
        if self.count < 1:
            raise InputError(f"a sum needs at least one draw, got {self.count}.")
        if np.any(np.diff(self.masses) > 0.0):
            # Monotonicity of delta in the distance, which verification relies on, is proved for
            # unimodal laws only.
            raise ConditionError(
                "The law of a bounded sum",
                "masses that never grow away from 0",
                "a table that does",
            )

    @classmethod
    def of_table(cls, table: DyadicTable, count: int) -> BoundedSum:
        masses = np.array([weight / 2**64 for weight in table.weights])
        return cls(masses, ROUNDOFF, count, log_concave=False)

    @property
    def support(self) -> int:
        """Largest value of the sum."""
        return self.count * (len(self.masses) - 1)

    def pure(self, distance: int) -> float:
        return 0.0 if distance == 0 else math.inf

    def law(self, log_tail: float, reach: int = 0) -> SymmetricLaw:
        """Certified law up to where the tail falls below e^log_tail, and `reach` cells farther."""
        key = (math.ceil(log_tail), reach)
        if key not in self._laws:
            self._laws[key] = self._law(log_tail, reach)
            if len(self._laws) > _CACHED_LAWS:
                self._laws.popitem(last=False)
        return self._laws[key]

    def _law(self, log_tail: float, reach: int) -> SymmetricLaw:
        masses = np.concatenate([self.masses[:0:-1], self.masses])
        group = Group(
            self.count,
            1 - len(self.masses),
            masses,
            symmetric=True,
            relative_error=self.relative_error,
        )
        radius = min(covering_range([group], log_tail)[1] + reach, self.support)
        if radius > LARGEST_RADIUS:
            raise too_many_cells(
                radius, "use a larger rate (or epsilon), a smaller distance, or fewer users."
            )
        certified = sum_law([group], -radius, radius)
        log_mass = certified.log_mass[radius:]
        # A hole (a mass too small to be certified) is left out of the law; its mass is counted in
        # `outside`.
        complete = bool(np.isfinite(log_mass).all())
        return SymmetricLaw(
            log_mass=log_mass,
            log_error=np.maximum.accumulate(certified.log_error[radius:]),
            outside=certified.outside,
            log_concave=self.log_concave and complete,
            cumulative_errors=False,
        )


@lru_cache(maxsize=32)
def shared_table(noise: Polya, radius: int) -> DyadicTable:
    """Dyadic table of a share conditioned on |z| <= radius; the account uses the table's law."""
    if noise.shape == 1:
        return DyadicTable.bounded_geometric(Fraction(noise.rate), radius)
    masses, _ = _conditional_masses(noise, radius)
    return DyadicTable.from_masses([float(mass) for mass in masses])


@lru_cache(maxsize=32)
def tabulated_sum(noise: Polya, radius: int, count: int) -> BoundedSum:
    """Sum of `count` draws of the share's table."""
    return BoundedSum.of_table(shared_table(noise, radius), count)


@lru_cache(maxsize=32)
def truncated_sum(noise: Polya, radius: int, count: int) -> BoundedSum:
    """Sum of `count` shares, each conditioned on |z| <= radius; log-concave if the share is."""
    masses, error = _conditional_masses(noise, radius)
    return BoundedSum(masses, error, count, log_concave=noise.log_concave)


def _conditional_masses(noise: Polya, radius: int) -> tuple[Floats, float]:
    """P(Z = z | |Z| <= radius) for z = 0..radius, and the relative error of each."""
    if noise.shape == 1:
        # In closed form, to keep the error small, as it counts once for every user.
        inside = np.exp(-noise.rate * np.arange(radius + 1))
        error = (2.0 * noise.rate * radius + 16.0) * ROUNDOFF
    else:
        law = noise.law(_SHARE_LOG_TAIL, radius)
        inside = law.mass[: radius + 1]
        error = 2.0 * float(law.log_error[radius]) + 16.0 * ROUNDOFF
    masses: Floats = np.minimum.accumulate(inside / (2.0 * math.fsum(inside) - inside[0]))
    return masses, error
