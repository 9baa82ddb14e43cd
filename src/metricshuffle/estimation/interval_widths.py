"""Widths of intervals, by the normal approximation and by the exact law of the noise on sums."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from metricshuffle.errors import NotCertified
from metricshuffle.noise.polya import LARGEST_RATE, Polya, mean_size
from metricshuffle.numerics.certified_search import last_certified_integer
from metricshuffle.numerics.rounding import format_number
from metricshuffle.numerics.types import Floats

if TYPE_CHECKING:
    from scipy.sparse import csr_array

# With fewer people, intervals use Chebyshev's inequality instead of the normal approximation.
MIN_NORMAL_PEOPLE = 30
# Maximum number of noise laws tabulated for one release; with more, tails are bounded instead.
MAX_LAWS = 256
# Exceeds the floating-point error of an interval's end: the true share may lie at the end.
SHARE_ROUNDING = 1e-12
FACTOR_BITS = 40
# Fraction of the allowed miss probability that random rounding gets, if there is any.
ROUNDING_MISS = 0.1
TILTS = np.concatenate([np.geomspace(1e-6, 0.5, 160), 1.0 - np.geomspace(1e-6, 0.5, 80)[::-1]])

Law = tuple[float, float, int]
"""(factor, rate, count): `count` independent Polya numbers of this rate, each times `factor`."""


def normal_width(miss: float) -> float:
    """Number of standard errors that a normal error exceeds up or down with probability `miss`."""
    from scipy.special import ndtri

    return -float(ndtri(miss / 2.0))


def error_width(people: int, miss: float) -> float:
    """Number of standard errors that an error exceeds, up or down, with probability `miss`.

    By Chebyshev's inequality for fewer than MIN_NORMAL_PEOPLE people, else by the normal
    approximation.
    """
    return 1.0 / math.sqrt(miss) if people < MIN_NORMAL_PEOPLE else normal_width(miss)


def noise_warning(condition: float, errors: Floats) -> str:
    """Warning that inversion makes single cells mostly noise; empty if it does not."""
    error = float(np.median(errors))
    average = 1.0 / errors.size
    if error <= average:
        return ""
    return (
        "Single values are mostly noise: the typical standard error "
        f"({format_number(error)}) exceeds the average share "
        f"({format_number(average)}), because inversion lets one report count for up to "
        f"{format_number(round(condition, 1))} people; "
        "add values up into larger groups."
    )


@dataclass(frozen=True, eq=False)
class SumNoise:
    """Noise on sums over `count` items: independent Polya numbers of one shape and of rates[e].

    In addition, each mean may have a rounding error of up to `rounding`, and each sum may have
    `rounded` terms that were rounded at random to a neighbouring integer, independently.
    """

    shape: Fraction
    rates: Floats
    count: float
    rounding: float = 0.0
    rounded: int = 0

    @cached_property
    def variances(self) -> Floats:
        """Variance of the noise on each sum, with the largest that random rounding can add."""
        return self._by_rate(lambda noise: noise.variance()) + 0.25 * self.rounded

    @cached_property
    def mean_sizes(self) -> Floats:
        """Mean absolute error of each mean.

        Statement: let Z be the noise, a symmetric unimodal integer, and S the total error of random
        rounding. S adds at most P(Z = 0) (Var S + 1/4) to E|Z|, and Var S <= rounded/4.
        Proof: E|Z + s| is linear between integers s, with a second difference of 2 P(Z = s) <= 2
        P(Z = 0) there; so at an integer s it exceeds E|Z| by at most P(Z = 0) s^2, and the line
        between two squares exceeds s^2 by at most 1/4. QED
        """
        sizes = self._by_rate(mean_size)
        if self.rounded:
            # P(Z = 0) of shape 1; a larger shape has less.
            at_zero = np.tanh(0.5 * self.rates) if self.shape >= 1 else 1.0
            sizes = sizes + at_zero * 0.25 * (self.rounded + 1)
        return np.asarray(sizes / self.count)

    def _by_rate(self, number: Callable[[Polya], float]) -> Floats:
        rates, which = np.unique(self.rates, return_inverse=True)
        return np.array([number(Polya(self.shape, float(rate))) for rate in rates])[which]

    def deviations(self, factors: csr_array) -> Floats:
        """Standard errors of readings with these factors."""
        return np.asarray(np.sqrt(factors.power(2) @ self.variances) / self.count)

    def radii(self, factors: csr_array, miss: float, *, one_sided: bool = False) -> Floats:
        """Radius of noise and rounding around each reading, exceeded with probability <= `miss`.

        The probability is that of both sides together or, if `one_sided`, that of the upper side.
        Statement: the noises with equal factors and rates in a reading add up to one Polya number,
        whose law is known. If a reading has several such numbers, their radii are combined by a
        union bound (each gets an equal part of the allowed miss probability), or the sum is bounded
        by Chernoff's inequality, whichever radius is smaller. All these laws are symmetric, so one
        side is exceeded with half the probability of both. Random rounding gets a tenth of the
        allowed miss probability and Hoeffding's inequality: a term of factor f varies by |f|.
        """
        allowed = min(1.0, 2.0 * miss if one_sided else miss)
        spare = ROUNDING_MISS * allowed if self.rounded else 0.0
        listed = list(self._laws(factors))
        exact = len({(count, rate) for laws in set(listed) for _, rate, count in laws}) <= MAX_LAWS
        known = {laws: _radius(self.shape, laws, allowed - spare, exact) for laws in set(listed)}
        noise = np.array([known[laws] for laws in listed])
        if self.rounded:
            squares = factors.power(2).sum(axis=1) * self.rounded
            noise = noise + np.sqrt(0.5 * squares * math.log(2.0 / spare))
        fixed = abs(factors).sum(axis=1) * self.rounding + SHARE_ROUNDING
        return np.asarray(noise / self.count + fixed)

    def single_radii(self, miss: float, *, one_sided: bool = False) -> Floats:
        """Radius around each mean by itself; see `radii`."""
        from scipy.sparse import eye_array

        return self.radii(eye_array(len(self.rates), format="csr"), miss, one_sided=one_sided)

    def _laws(self, factors: csr_array) -> Iterator[tuple[Law, ...]]:
        """Yield the laws that are summed in each reading.

        Factors are rounded up to 40 bits, so that factors that differ only by rounding become
        equal.
        """
        parts, powers = np.frexp(np.abs(factors.data))
        sizes = np.ldexp(np.ceil(parts * 2.0**FACTOR_BITS), powers - FACTOR_BITS)
        rates = np.minimum(self.rates, LARGEST_RATE)  # overstates the noise
        kinds, which = np.unique(
            np.column_stack([sizes, rates[factors.indices]]), axis=0, return_inverse=True
        )
        listed = [(float(size), float(rate)) for size, rate in kinds]
        of = which.ravel().tolist()
        ends = factors.indptr.tolist()
        for start, stop in pairwise(ends):
            counted = Counter(of[start:stop])
            yield tuple(
                (*listed[kind], counted[kind]) for kind in sorted(counted) if listed[kind][0] > 0.0
            )


@lru_cache(maxsize=1024)
def _radius(shape: Fraction, laws: tuple[Law, ...], miss: float, exact: bool) -> float:
    united = sum(
        factor * noise_radius(Polya(shape * count, rate), miss / len(laws), exact=exact)
        for factor, rate, count in laws
    )
    return min(united, _chernoff_radius(shape, laws, miss)) if len(laws) > 1 else united


def noise_radius(noise: Polya, miss: float, *, exact: bool = True) -> int:
    """Radius that the noise exceeds, on either side, with probability at most `miss`.

    It is a tail bound if not `exact`, or if the law is too wide to be tabulated.
    """
    noise = Polya(noise.shape, min(noise.rate, LARGEST_RATE))
    max_radius = math.ceil(noise.tail_radius(math.log(miss)))
    if not exact:
        return max_radius
    try:
        law = noise.law(math.log(miss) - 12.0)  # mass outside the table counts as missed
    except NotCertified:
        return max_radius
    return last_certified_integer(lambda radius: law.beyond(radius) <= miss, -1, max_radius)


def _chernoff_radius(shape: Fraction, laws: tuple[Law, ...], miss: float) -> float:
    """Radius with P(|sum| > radius) <= 2 E e^(s sum) e^(-s radius) = miss.

    `sum` is the sum of all noises, and s > 0 the tilt. Any tilt gives a valid radius; the smallest
    over a fixed set of tilts is returned.
    """
    tilts = TILTS * min(rate / factor for factor, rate, _ in laws)
    cumulants = np.zeros(len(tilts))
    for factor, rate, count in laws:
        inside = np.sinh(0.5 * tilts * factor) ** 2 / math.sinh(0.5 * rate) ** 2
        with np.errstate(divide="ignore", invalid="ignore"):
            cumulants -= float(shape) * count * np.log1p(-np.minimum(inside, 1.0))
    radii = (cumulants + math.log(2.0 / miss)) / tilts
    return float(np.min(radii[np.isfinite(radii)], initial=math.inf)) * (1.0 + 1e-9)
