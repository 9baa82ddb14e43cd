"""What noisy sums of features tell of shares, and with what certainty: by the law of the noise, whatever people hold."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from metricshuffle.errors import NotCertified
from metricshuffle.estimation.inversion import IntervalMethod, Inversion
from metricshuffle.noise.polya import LARGEST_RATE, Polya
from metricshuffle.numerics.certified_search import last_certified_integer
from metricshuffle.numerics.types import Floats
from metricshuffle.protocols.features import Features, Readings
from metricshuffle.protocols.frequencies import MIN_NORMAL_PEOPLE, normal_width
from metricshuffle.randomizers.randomizer import Randomizer
from metricshuffle.spaces import Space

if TYPE_CHECKING:
    from scipy.sparse import csr_array

# Laws of noise that are tabulated for one release; where rates differ more, their tails are bounded.
MAX_LAWS = 256
# Of a share: more than rounding in floating point can move an end, which a truth may lie on.
SHARE_ROUNDING = 1e-12
FACTOR_BITS = 40
TILTS = np.concatenate([np.geomspace(1e-6, 0.5, 160), 1.0 - np.geomspace(1e-6, 0.5, 80)[::-1]])

Law = tuple[float, float, int]
"""So many of them are summed, after they are multiplied: (factor, rate, count)."""


@dataclass(frozen=True, eq=False)
class SumNoise:
    """The noise on sums over `count` items: independent Polya numbers of a shape and of rates[e]; `rounding` may move a mean besides."""

    shape: Fraction
    rates: Floats
    count: int
    rounding: float = 0.0

    @property
    def variances(self) -> Floats:
        """Of the noise on each sum."""
        rates, which = np.unique(self.rates, return_inverse=True)
        return np.array([Polya(self.shape, float(rate)).variance() for rate in rates])[which]

    def deviations(self, factors: csr_array) -> Floats:
        """The standard errors of readings with these factors."""
        return np.asarray(np.sqrt(factors.power(2) @ self.variances) / self.count)

    def radii(self, factors: csr_array, miss: float, *, one_sided: bool = False) -> Floats:
        """By how much noise moves each reading to either side (or upwards) with probability `miss` at the most, and rounding besides.

        Statement: equal factors and rates make one Polya number, whose law is known; several are united (each may miss its part) or
        bounded together by Chernoff's inequality, whichever is less. All these laws are symmetric, so that one side takes half.
        """
        allowed = min(1.0, 2.0 * miss if one_sided else miss)
        listed = list(self._laws(factors))
        exact = len({(count, rate) for laws in set(listed) for _, rate, count in laws}) <= MAX_LAWS
        known = {laws: _radius(self.shape, laws, allowed, exact) for laws in set(listed)}
        noise = np.array([known[laws] for laws in listed]) / self.count
        return np.asarray(noise + abs(factors).sum(axis=1) * self.rounding + SHARE_ROUNDING)

    def _laws(self, factors: csr_array) -> Iterator[tuple[Law, ...]]:
        """What is summed in each reading. Factors are rounded up to 40 bits, so that equal ones are found."""
        parts, powers = np.frexp(np.abs(factors.data))
        sizes = np.ldexp(np.ceil(parts * 2.0**FACTOR_BITS), powers - FACTOR_BITS)
        rates = np.minimum(self.rates, LARGEST_RATE)  # (more noise than there is)
        kinds, which = np.unique(np.column_stack([sizes, rates[factors.indices]]), axis=0, return_inverse=True)
        listed, of = [(float(size), float(rate)) for size, rate in kinds], which.ravel().tolist()
        ends = factors.indptr.tolist()
        for start, stop in pairwise(ends):
            counted = Counter(of[start:stop])
            yield tuple((*listed[kind], counted[kind]) for kind in sorted(counted) if listed[kind][0] > 0.0)


@lru_cache(maxsize=1024)
def _radius(shape: Fraction, laws: tuple[Law, ...], miss: float, exact: bool) -> float:
    united = sum(factor * noise_radius(Polya(shape * count, rate), miss / len(laws), exact=exact) for factor, rate, count in laws)
    return min(united, _chernoff_radius(shape, laws, miss)) if len(laws) > 1 else united


def noise_radius(noise: Polya, miss: float, *, exact: bool = True) -> int:
    """What the noise exceeds to either side with probability `miss` at the most; by a bound where its law is too wide to be listed."""
    noise = Polya(noise.shape, min(noise.rate, LARGEST_RATE))
    max_radius = math.ceil(noise.tail_radius(math.log(miss)))
    if not exact:
        return max_radius
    try:
        law = noise.law(math.log(miss) - 12.0)  # (what lies outside counts as missed)
    except NotCertified:
        return max_radius
    return last_certified_integer(lambda radius: law.beyond(radius) <= miss, -1, max_radius)


def _chernoff_radius(shape: Fraction, laws: tuple[Law, ...], miss: float) -> float:
    """P(|sum| > radius) <= 2 E e^(s sum) e^(-s radius) = miss; any tilt s will do, and the best of some is taken."""
    tilts = TILTS * min(rate / factor for factor, rate, _ in laws)
    cumulants = np.zeros(len(tilts))
    for factor, rate, count in laws:
        inside = np.sinh(0.5 * tilts * factor) ** 2 / math.sinh(0.5 * rate) ** 2
        with np.errstate(divide="ignore", invalid="ignore"):
            cumulants -= float(shape) * count * np.log1p(-np.minimum(inside, 1.0))
    radii = (cumulants + math.log(2.0 / miss)) / tilts
    return float(np.min(radii[np.isfinite(radii)], initial=math.inf)) * (1.0 + 1e-9)


@dataclass(frozen=True, eq=False)
class KnownShares:
    """What the means of features tell of the shares of points; `floor` is how values were randomized first."""

    features: Features
    space: Space
    noise: SumNoise
    floor: Randomizer | None = None

    @cached_property
    def _told_apart(self) -> Readings | None:
        return self.features.point_readings(self.space)

    @property
    def identified(self) -> bool:
        """Whether single points are told apart, so that every share has an interval."""
        return self._told_apart is not None

    @cached_property
    def inversion(self) -> Inversion | None:
        return None if self.floor is None else Inversion.of(self.floor)

    @cached_property
    def single(self) -> Readings | None:
        """The unbiased share of every point: where values were randomized first, with that undone."""
        return self._told_apart if self.inversion is None else self._summed(self._contributions)

    @cached_property
    def _contributions(self) -> csr_array:
        """What each point that is counted contributes to the count of every point (a row each) where values were randomized first."""
        from scipy.sparse import csr_array, kron

        assert self.inversion is not None  # noqa: S101 - asked where values were randomized only
        first, *second = (csr_array(part) for part in self.inversion.debiasing)
        return csr_array((csr_array(kron(first, second[0], format="csr")) if second else first).T)

    def _summed(self, contributions: csr_array) -> Readings | None:
        """The sums of contributions over what is counted."""
        from scipy.sparse import csr_array

        if self._told_apart is None:
            return None
        factors = csr_array(contributions @ self._told_apart.factors)
        return Readings.of_points(np.asarray(contributions @ self._told_apart.constants), factors, self._told_apart.row_of)

    @cached_property
    def around(self) -> Readings | None:
        """The share around every point; None where single points are told apart, or values were randomized first."""
        return None if self.identified or self.floor is not None else self.features.nearby(self.space)

    @cached_property
    def above(self) -> Readings | None:
        """What is no less than the share of a point; None where single points are told apart, or values were randomized first."""
        return None if self.identified or self.floor is not None else self.features.bounds(self.space)

    def half_widths(self, means: Floats, level: float, simultaneous: bool, method: IntervalMethod = "normal") -> Floats:
        """Of two-sided intervals around the unbiased shares, by the exact law of the noise, which hold whatever people hold.

        Where values were randomized first, 0.1 of what may be missed bounds the variance that this adds from above, whatever people hold.
        "normal" then takes the sum of that and of the noise to be normal or Laplace, whichever is wider. "bernstein", also taken for
        fewer than 30 items, holds for any number of them: noise and randomizing take 0.4 of what may be missed each.
        """
        assert self.single is not None  # noqa: S101 - asked where points are told apart only
        miss = (1.0 - level) / (len(self.single.constants) if simultaneous else 1)
        if self.inversion is None:
            return self.noise.radii(self.single.factors, miss)
        count, variances = self.noise.count, self._randomized(means, 0.05 * miss)
        if method == "bernstein" or count < MIN_NORMAL_PEOPLE:
            return self.noise.radii(self.single.factors, 0.4 * miss) + self.inversion.half_widths(variances, 0.4 * miss) / count
        width = max(normal_width(0.9 * miss), -math.log(0.9 * miss) / math.sqrt(2.0))
        grain = 0.5 * abs(self.single.factors).max(axis=1).toarray().ravel() / count  # (sums are whole numbers)
        return np.asarray(width * np.sqrt(self.noise.deviations(self.single.factors) ** 2 + variances / count**2) + grain)

    def _randomized(self, means: Floats, spare: float) -> Floats:
        """At most what randomizing values first adds to the variance of each count, but for twice `spare`, whatever people hold.

        Statement: item i contributes g(Y_i) to the count of a point, Y_i being what is counted for it; on average 1 if it is there and
        else 0, so that g^2 - g has the variance of g for its mean. With w = max(g^2 - g, 0), V the mean of the sum S of w(Y_i) is no
        less than the variance. S is measured, but for noise; and S <= V - t with probability e^(-t^2/(2 M V)) at most, M being the largest
        w (terms >= 0: Maurer's inequality), so V <= (sqrt(S + M L/2) + sqrt(M L/2))^2 but for e^-L.
        """
        assert self.inversion is not None  # noqa: S101 - asked where values were randomized only
        spreads, count = self._contributions.copy(), self.noise.count
        spreads.data = np.maximum(spreads.data**2 - spreads.data, 0.0)
        summed = self._summed(spreads)
        assert summed is not None  # noqa: S101 - asked where points are told apart only
        seen = np.maximum(summed.values(means) + self.noise.radii(summed.factors, spare, one_sided=True), 0.0) * count
        room = 0.5 * math.log(1.0 / spare) * spreads.max(axis=1).toarray().ravel()
        return np.asarray(np.minimum((np.sqrt(seen + room) + np.sqrt(room)) ** 2, count * self.inversion.largest_variances))

    def around_ends(self, means: Floats, level: float, simultaneous: bool) -> tuple[Floats, Floats]:
        """(low, high) of the share around every point; `simultaneous`: all hold at once."""
        assert self.around is not None  # noqa: S101 - asked where it is measured only
        miss = (1.0 - level) / (len(self.around.constants) if simultaneous else 1)
        values, radii = self.around.values(means), self.noise.radii(self.around.factors, miss)
        row_of = self.around.row_of
        return np.clip(values - radii, 0.0, 1.0)[..., row_of], np.clip(values + radii, 0.0, 1.0)[..., row_of]

    def at_most(self, means: Floats, level: float, simultaneous: bool) -> Floats:
        """What the share of every point is at most: the least of its readings, each raised by what noise may have taken from it.

        Statement: no reading is less than the share, but for noise. One point: its c readings are missed with probability (1 - level)/c
        each; all points at once: (1 - level)/R each, over all R readings.
        """
        assert self.above is not None  # noqa: S101 - asked where it is measured only
        points, values = self.above.points, self.above.values(means)
        counts = np.diff(points.indptr)
        shares = np.ones((*values.shape[:-1], len(counts)))
        for count in [len(self.above.constants)] if simultaneous else np.unique(counts[counts > 0]).tolist():
            raised = values + self.noise.radii(self.above.factors, (1.0 - level) / count, one_sided=True)
            some = np.flatnonzero(counts > 0 if simultaneous else counts == count)
            chosen = points[some]
            shares[..., some] = np.minimum.reduceat(raised[..., chosen.indices], chosen.indptr[:-1], axis=-1)
        return np.clip(shares, 0.0, 1.0)
