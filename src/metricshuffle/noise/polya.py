"""Polya noise: the symmetric generalised discrete Laplace law SGDL(b, p).

It is the law f of Z = A - B with A, B independent negative binomial of shape b and ratio p =
e^-rate: P(A = k) = C(b+k-1, k) (1-p)^b p^k, C the binomial coefficient. Shape 1 is geometric noise
(discrete Laplace), and the shapes of summed noise add up: Geo-Shuffle uses shape 1 per user,
SGDL-Shuffle shape 1/n for n users. This module tabulates the law, with certified errors, for the
profiles of sums and for intervals; noise/samplers.py draws from it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np

from metricshuffle.citations import theorem
from metricshuffle.errors import ConditionError, InputError, NotCertified, argument
from metricshuffle.noise.symmetric_pmf import LARGEST_RADIUS, SymmetricLaw, too_many_cells
from metricshuffle.numerics.rounding import ROUNDOFF
from metricshuffle.numerics.types import Floats

# Beyond this e^-rate is no longer a normal double (and the noise is 0 except once in 1e304 draws).
LARGEST_RATE = 700.0
# Expected errors and intervals use laws whose truncated tail is below e^-60.
UTILITY_LOG_TAIL = -60.0
# A law with more cells is replaced by one of a coarser scale (for expected errors and simulations
# only).
MAX_UTILITY_CELLS = 2_000_000
SCALED_CELLS = 100_000
# Values x = 1 - e^(-K(s)/b) of the tilts at which Chernoff's bound is evaluated.
_TILT_GRID = np.concatenate(
    [np.geomspace(1e-18, 0.5, 240), -np.expm1(-np.geomspace(0.7, 30.0, 80))]
)


def _ratio(rate: float) -> float:
    """p = e^-rate, to 2 ulp."""
    if rate > LARGEST_RATE:
        raise NotCertified(
            f"noise of rate {rate:g} is too little to be tabulated; use a rate of at most "
            f"{LARGEST_RATE:g}."
        )
    return math.exp(-rate)


def rounded_down(value: Fraction | float) -> float:
    """Largest double not above a rational.

    A smaller shape means less noise, so the resulting delta is pessimistic.
    """
    if isinstance(value, float):
        return value
    nearest = float(value)
    return nearest if Fraction(nearest) <= value else math.nextafter(nearest, 0.0)


@dataclass(frozen=True)
class Polya:
    """SGDL(shape, e^-rate) noise; `Geometric(rate)` is shape 1."""

    shape: Fraction
    rate: float

    def __post_init__(self) -> None:
        if isinstance(self.shape, float) and not math.isfinite(self.shape):
            raise InputError(
                f"{argument('shape')} must be a finite number > 0, got {self.shape!r}."
            )
        object.__setattr__(self, "shape", Fraction(self.shape))
        if not self.shape > 0:
            raise InputError(f"{argument('shape')} must be > 0, got {self.shape}.")
        if not 0.0 < self.rate < math.inf:
            raise InputError(f"{argument('rate')} must be a finite number > 0, got {self.rate!r}.")

    def summed(self, count: Fraction | int) -> Polya:
        """Law of the sum of `count` independent copies (shapes add)."""
        return Polya(self.shape * count, self.rate)

    @property
    def log_concave(self) -> bool:
        """Whether the law is log-concave: shapes >= 1 are, and convolution preserves it."""
        return self.shape >= 1

    @property
    def tabulated(self) -> bool:
        """Whether the rate is large enough for a table of the law, and so for exact losses."""
        return _warm_up(rounded_down(self.shape), self.rate, 0) <= 4 * LARGEST_RADIUS

    def variance(self) -> float:
        return 2.0 * float(self.shape) * math.exp(-self.rate) / math.expm1(-self.rate) ** 2

    def pure(self, distance: int) -> float:
        """Smallest epsilon with delta = 0 between the law and its shift by `distance`, rounded up.

        Statement: with f the law, it is rate * distance for shape >= 1, and log f(0)/f(distance)
        for shape < 1.
        Conditions: distance is a nonnegative integer.
        Numerics: certified log ratio plus its error bound; the closed bound of `log_convex_ratio`,
        which is larger, if the law is too wide for a table.
        Reference: for shape >= 1, log-concavity. For shape b < 1, C(b+k-1,k) = E[T^k] with T ~
        Beta(b, 1-b), so f(m) is a positive mixture of geometrics and log-convex on m >= 0; hence
        f(z)/f(z-d) is largest at z = 0 for every shift d.
        """
        if distance == 0:
            return 0.0
        if self.log_concave:
            return math.nextafter(self.rate * distance, math.inf)
        if distance > LARGEST_RADIUS:
            return log_convex_ratio(self.shape, self.rate, distance)
        return _log_convex_pure(self.shape, self.rate, distance)

    def _tilts(self) -> tuple[Floats, Floats]:
        """Tilts s (rounded down) and the cumulant K(s) = log E e^{sZ} (rounded up) on a grid.

        K(s) = -b log(1 - x) with x = 4 p sinh^2(s/2) / (1-p)^2, b = shape and p = e^-rate, which
        stays accurate for tiny s.
        """
        p = _ratio(self.rate)
        q = -math.expm1(-self.rate)
        s = 2.0 * np.arcsinh(q * np.sqrt(_TILT_GRID) / (2.0 * math.sqrt(p)))
        return s * (1.0 - 1e-12), -float(self.shape) * np.log1p(-_TILT_GRID) * (1.0 + 1e-12)

    def tail_radius(self, log_tail: float) -> float:
        """Radius with P(|Z| > radius) <= e^log_tail, by the best Chernoff bound of a grid."""
        return _tail_radius(self, log_tail)

    def mass_beyond(self, radius: int) -> float:
        """Chernoff upper bound on P(|Z| > radius)."""
        s, cumulant = self._tilts()
        exponent = float(np.min(cumulant - s * radius))
        return min(1.0, 2.0 * math.exp(min(exponent, 0.0)))

    def law(self, log_tail: float, reach: int = 0) -> SymmetricLaw:
        """Certified law up to where the tail falls below e^log_tail, and `reach` cells farther."""
        radius = self.tail_radius(log_tail)
        if radius + reach > LARGEST_RADIUS:
            raise too_many_cells(
                radius + reach,
                "use a larger rate (or epsilon), a smaller distance, or fewer users.",
            )
        cells = math.ceil(radius) + reach
        return (_narrow if cells < 1_000_000 else _wide)(self.shape, self.rate, cells)

    def scaled_law(self) -> tuple[SymmetricLaw, int]:
        """Return the law for expected errors, and its cells per unit (1 unless it is very wide).

        SGDL(b, e^-r) is m times SGDL(b, e^-r'), sinh(r'/2) = m sinh(r/2), to a relative 1e-6: the
        variances b / (2 sinh^2(r/2)) are equal, and the kurtoses (2 + cosh r)/b differ by less than
        1e-6 for laws that wide.
        """
        radius = self.tail_radius(UTILITY_LOG_TAIL)
        if radius <= MAX_UTILITY_CELLS:
            return self.law(UTILITY_LOG_TAIL), 1
        scale = math.ceil(radius / SCALED_CELLS)
        rate = 2.0 * math.asinh(scale * math.sinh(0.5 * self.rate))
        return Polya(self.shape, rate).law(UTILITY_LOG_TAIL), scale


@lru_cache(maxsize=64)
def mean_size(noise: Polya) -> float:
    """E|Z| of the noise, to a relative 1e-6."""
    law, scale = noise.scaled_law()
    sizes = np.arange(law.radius + 1, dtype=np.float64)
    return 2.0 * scale * float(np.sum(sizes * law.mass))


def Geometric(rate: float) -> Polya:
    """Discrete Laplace noise: P(Z = z) = (1-p)/(1+p) p^|z|, p = e^-rate."""
    return Polya(Fraction(1), rate)


def _warm_up(b: float, rate: float, radius: int) -> float:
    """Cells beyond `radius` at which to start the backward recurrence of `_log_masses`."""
    p = _ratio(rate)
    # Each backward step narrows the interval, of width 1 - p (or 1 for b < 1), by p^2 or more:
    # depth/rate steps leave a width of at most e^-32 (1 - p).
    depth = 16.0 + (0.5 * math.log1p(1.0 / rate) if b < 1.0 else 0.0)
    return (
        math.sqrt(float(radius) ** 2 + 100.0 * b * p / (1.0 + p * p)) - radius + depth / rate + 64.0
    )


@theorem("metricshuffle", "SGDL law by enclosed backward ratios")
def _log_masses(shape: Fraction, rate: float, radius: int) -> tuple[Floats, Floats]:
    """log f(m)/f(0) of SGDL(b, p) for m = 0..radius, and a bound on the error of each.

    Here b = shape and p = e^-rate.

    Statement: p(m+1-b) f(m+1) = (1+p^2) m f(m) - p(m-1+b) f(m-1), and f is the minimal solution of
    this recurrence, so its ratios f(m)/f(m-1) are found by running the recurrence backwards from
    far out.
    Conditions: b > 0, 0 < p < 1.
    Numerics: an interval that certainly contains the first ratio ([p,1] for b >= 1, [0,p] for b <
    1) is run backwards with outward rounding; its width at m is the certificate there. b is rounded
    down first: for b' > b, SGDL(b') is SGDL(b) plus independent noise, so the law with the smaller
    b is never more private.
    Reference: three-term recurrence of the generating function ((1-p)^2/(1-2p cos t + p^2))^b;
    Miller's algorithm.
    """
    from metricshuffle.noise import _kernels

    b = rounded_down(shape)
    warm_up = _warm_up(b, rate, radius)
    log_mass = np.zeros(radius + 1)
    log_error = np.zeros(radius + 1)
    for _ in range(4):
        if radius + warm_up > 4 * LARGEST_RADIUS:
            raise too_many_cells(
                radius + warm_up,
                "use a larger rate (or epsilon), a smaller distance, or fewer users.",
            )
        _kernels.polya_ratios(b, rate, radius, radius + math.ceil(warm_up), log_mass, log_error)
        if radius == 0 or log_error[radius] < 1e-9:
            break
        warm_up *= 3.0
    _kernels.cumulative_logs(log_mass, log_error)
    if not math.isfinite(log_error[radius]):
        raise NotCertified(
            f"the law of Polya noise with shape {b:g} and rate {rate:g} could not be certified."
        )
    return log_mass, log_error


def _tabulated(shape: Fraction, rate: float, radius: int) -> SymmetricLaw:
    """Normalised law on -radius..radius."""
    from metricshuffle.noise import _kernels

    log_mass, log_error = _log_masses(shape, rate, radius)
    outside = Polya(shape, rate).mass_beyond(radius)
    total, doubt = _kernels.doubled_sums(np.exp(log_mass), log_error)
    # 1 = f(0) (1 + 2 sum_{m >= 1} f(m)/f(0)) + tail. So the error of log f(0) consists of the
    # mass-weighted error of the ratios f(m)/f(0), the rounding error of `total`, and that of
    # subtracting its logarithm. (e^x - 1)/x is largest at the largest error x, which is the last.
    largest = float(log_error[radius])
    weighted = (
        doubt / total * (math.expm1(largest) / largest if largest > 0.0 else 1.0)
        if largest < 1.0
        else math.inf
    )
    scale_error = (
        1.01 * weighted + (16.0 + 4.0 * math.log(total)) * ROUNDOFF - math.log1p(-min(outside, 0.5))
    )
    if not scale_error < 0.1:
        raise NotCertified(
            f"Polya noise with shape {float(shape):g} and rate {rate:g} is known only to a "
            f"relative error of {scale_error:.1e}; "
            f"use a larger {argument('rate')} or a smaller {argument('distance')}."
        )
    log_mass -= math.log(total)  # in place: allocating takes longer than the arithmetic
    log_error += scale_error
    return SymmetricLaw(
        log_mass=log_mass,
        log_error=log_error,
        outside=outside,
        log_concave=shape >= 1,
        cumulative_errors=True,
    )


@theorem("metricshuffle", "SGDL noise of shape below 1: closed bound on the loss of a move")
def log_convex_ratio(shape: Fraction, rate: float, distance: int) -> float:
    """Upper bound on log f(0)/f(distance) of SGDL(b, p), which needs no table of the law.

    Statement: for b = shape < 1, p = e^-rate and d = distance >= 1, log f(0)/f(d) <= rate d +
    log d!/(b)_d <= rate d + (1-b) log(d+b) + log Gamma(b), where (b)_d = b (b+1) ... (b+d-1).
    Conditions: 0 < b < 1, rate > 0, d a positive integer.
    Numerics: b is rounded down, which makes the law less private; every term is positive, and the
    sum is rounded up by 1e-12 of itself and 1e-15, more than the errors of its three functions.
    Reference: f(m) = (1-p)^2b p^m (b)_m/m! F_m with F_m = 2F1(b, b+m; m+1; p^2). The coefficient
    of p^2k in F_m is that in F_{m-1} times m (b+m-1+k) / ((b+m-1)(m+k)), which is 1 at k = 0 and
    increases with k as b < 1. So F_m >= F_{m-1}, and f(m)/f(m-1) >= p (b+m-1)/m, the ratio of the
    negative binomial law. The second step is Wendel's inequality, Gamma(d+1)/Gamma(d+b) <=
    (d+b)^(1-b).
    """
    b = rounded_down(shape)
    if not 0.0 < b < 1.0 or distance < 1:
        raise ConditionError(
            "The closed bound of SGDL noise",
            "a shape between 0 and 1 and a distance of at least 1",
            f"shape {float(shape):g} and distance {distance}",
        )
    loss = rate * distance + (1.0 - b) * math.log(distance + b) + math.lgamma(b)
    return loss * (1.0 + 1e-12) + 1e-15


@lru_cache(maxsize=64)
def _log_convex_pure(shape: Fraction, rate: float, distance: int) -> float:
    """log f(0)/f(distance), rounded up; a closed bound on it if the law has too many cells."""
    if distance + _warm_up(rounded_down(shape), rate, distance) > 4 * LARGEST_RADIUS:
        return log_convex_ratio(shape, rate, distance)
    log_ratio, error = _log_masses(shape, rate, distance)
    return math.nextafter(float(error[distance]) - float(log_ratio[distance]), math.inf)


@lru_cache(maxsize=64)
def _tail_radius(noise: Polya, log_tail: float) -> float:
    s, cumulant = noise._tilts()
    with np.errstate(over="ignore"):  # callers refuse an infinite radius
        radius = (cumulant - log_tail + math.log(2.0)) / s
    return float(np.min(radius)) * (1.0 + 1e-9) + 1.0


# A law takes 32 bytes per cell, so few are cached.
_narrow = lru_cache(maxsize=16)(_tabulated)
_wide = lru_cache(maxsize=2)(_tabulated)
