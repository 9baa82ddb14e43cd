"""Polya noise: the symmetric generalised discrete Laplace law SGDL(b, p).

Z = A - B with A, B independent negative binomial of shape b and ratio p = e^-rate:
P(A = k) = C(b+k-1, k) (1-p)^b p^k. Shape 1 is geometric noise (discrete Laplace), and
sums add shapes: that is all of Geo-Shuffle (shape 1 each) and SGDL-Shuffle (shape 1/n each).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np

from metricshuffle.citations import theorem
from metricshuffle.errors import InputError, NotCertified
from metricshuffle.noise.symmetric_pmf import LARGEST_RADIUS, SymmetricLaw, too_many_cells
from metricshuffle.numerics.rounding import ROUNDOFF
from metricshuffle.numerics.types import Floats

# Beyond this e^-rate is no longer a normal double (and the noise is 0 except once in 1e304 draws).
LARGEST_RATE = 700.0
# Values x = 1 - e^(-K(s)/b) of the tilts that Chernoff's bound is tried at.
_TILT_GRID = np.concatenate([np.geomspace(1e-18, 0.5, 240), -np.expm1(-np.geomspace(0.7, 30.0, 80))])


def _ratio(rate: float) -> float:
    """p = e^-rate, to 2 ulp."""
    if rate > LARGEST_RATE:
        raise NotCertified(f"noise of rate {rate:g} is too little to be tabulated; use a rate of at most {LARGEST_RATE:g}.")
    return math.exp(-rate)


def rounded_down(value: Fraction | float) -> float:
    """The largest double not above an exact rational: a smaller shape means less noise, so a pessimistic delta."""
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
            raise InputError(f"shape must be a finite number > 0, got {self.shape!r}.")
        object.__setattr__(self, "shape", Fraction(self.shape))
        if not self.shape > 0:
            raise InputError(f"shape must be > 0, got {self.shape}.")
        if not 0.0 < self.rate < math.inf:
            raise InputError(f"rate must be a finite number > 0, got {self.rate!r}.")

    def summed(self, count: Fraction | int) -> Polya:
        """The law of the sum of `count` independent copies (shapes add)."""
        return Polya(self.shape * count, self.rate)

    @property
    def log_concave(self) -> bool:
        """Negative binomials of shape >= 1 are log-concave and convolution keeps it."""
        return self.shape >= 1

    def variance(self) -> float:
        return 2.0 * float(self.shape) * math.exp(-self.rate) / math.expm1(-self.rate) ** 2

    def pure(self, distance: int) -> float:
        """Smallest epsilon with delta = 0 between the law and its shift by `distance`, rounded up.

        Statement: shape >= 1: rate * distance. shape < 1: log f(0)/f(distance).
        Conditions: distance is a nonnegative integer.
        Numerics: certified log ratio plus its error bound.
        Reference: log-concavity (shape >= 1); for shape < 1, C(b+k-1,k) = E[T^k] with T ~ Beta(b, 1-b), so
        f(m) is a positive mixture of geometrics, log-convex on m >= 0, and f(z)/f(z-d) is largest at z = 0.
        """
        if distance == 0:
            return 0.0
        if self.log_concave:
            return math.nextafter(self.rate * distance, math.inf)
        if distance > LARGEST_RADIUS:
            raise too_many_cells(distance, "ask at a smaller distance.")
        return _log_convex_pure(self.shape, self.rate, distance)

    def _tilts(self) -> tuple[Floats, Floats]:
        """Tilts s (rounded down) and the cumulant K(s) = log E e^{sZ} (rounded up) on a grid.

        K(s) = -b log(1 - x) with x = 4 p sinh^2(s/2) / (1-p)^2, which stays accurate for tiny s.
        """
        p, q = _ratio(self.rate), -math.expm1(-self.rate)
        s = 2.0 * np.arcsinh(q * np.sqrt(_TILT_GRID) / (2.0 * math.sqrt(p)))
        return s * (1.0 - 1e-12), -float(self.shape) * np.log1p(-_TILT_GRID) * (1.0 + 1e-12)

    def tail_radius(self, log_tail: float) -> float:
        """A radius with P(|Z| > radius) <= e^log_tail (Chernoff; any tilt is valid, the best of a grid is taken)."""
        return _tail_radius(self, log_tail)

    def mass_beyond(self, radius: int) -> float:
        """Chernoff upper bound on P(|Z| > radius)."""
        s, cumulant = self._tilts()
        exponent = float(np.min(cumulant - s * radius))
        return min(1.0, 2.0 * math.exp(min(exponent, 0.0)))

    def law(self, log_tail: float, reach: int = 0) -> SymmetricLaw:
        """The certified law, tabulated to where the tail falls below e^log_tail and `reach` cells farther."""
        radius = self.tail_radius(log_tail)
        if radius + reach > LARGEST_RADIUS:
            raise too_many_cells(radius + reach, "use a larger rate (or epsilon), a smaller distance, or fewer users.")
        cells = math.ceil(radius) + reach
        return (_narrow if cells < 1_000_000 else _wide)(self.shape, self.rate, cells)


def Geometric(rate: float) -> Polya:
    """Discrete Laplace noise: P(Z = z) = (1-p)/(1+p) p^|z|, p = e^-rate."""
    return Polya(Fraction(1), rate)


@theorem("metricshuffle", "SGDL law by enclosed backward ratios")
def _log_masses(shape: Fraction, rate: float, radius: int) -> tuple[Floats, Floats]:
    """log f(m)/f(0) of SGDL(b, p) for m = 0..radius, and a bound on the error of each.

    Statement: p(m+1-b) f(m+1) = (1+p^2) m f(m) - p(m-1+b) f(m-1), and f is the minimal solution, so its
    ratios are found by running the recurrence backwards from far out.
    Conditions: b > 0, 0 < p < 1.
    Numerics: an interval that certainly holds the first ratio ([p,1] for b >= 1, [0,p] for b < 1) is run backwards
    with outward rounding; its width at m is the certificate there. b is rounded down first: SGDL(b') is SGDL(b)
    plus independent noise for b' > b, so the law with the smaller b is never more private.
    Reference: three-term recurrence of the generating function ((1-p)^2/(1-2p cos t + p^2))^b; Miller's algorithm.
    """
    from metricshuffle.noise import _kernels

    b = rounded_down(shape)
    p = _ratio(rate)
    # A step backwards narrows the interval by p^2 or more: e^-32 of its first width (1 - p, or 1) is left, over 1/(2 rate) steps.
    depth = 16.0 + (0.5 * math.log1p(1.0 / rate) if b < 1.0 else 0.0)
    warm_up = math.sqrt(float(radius) ** 2 + 100.0 * b * p / (1.0 + p * p)) - radius + depth / rate + 64.0
    log_mass, log_error = np.zeros(radius + 1), np.zeros(radius + 1)
    for _ in range(4):
        if radius + warm_up > 4 * LARGEST_RADIUS:
            raise too_many_cells(radius + warm_up, "use a larger rate (or epsilon), a smaller distance, or fewer users.")
        _kernels.polya_ratios(b, rate, radius, radius + math.ceil(warm_up), log_mass, log_error)
        if radius == 0 or log_error[radius] < 1e-9:
            break
        warm_up *= 3.0
    _kernels.cumulative_logs(log_mass, log_error)
    if not math.isfinite(log_error[radius]):
        raise NotCertified(f"the law of Polya noise with shape {b:g} and rate {rate:g} could not be certified.")
    return log_mass, log_error


def _tabulated(shape: Fraction, rate: float, radius: int) -> SymmetricLaw:
    """The normalised law on -radius..radius."""
    from metricshuffle.noise import _kernels

    log_mass, log_error = _log_masses(shape, rate, radius)
    outside = Polya(shape, rate).mass_beyond(radius)
    total, doubt = _kernels.doubled_sums(np.exp(log_mass), log_error)
    # 1 = f(0) (1 + 2 sum f(m)/f(0)) + tail, so the error of log f(0) is the mass-weighted error of the ratios,
    # and that of `total` and of subtracting its logarithm. (e^x - 1)/x is largest at the largest error, which is the last.
    largest = float(log_error[radius])
    weighted = doubt / total * (math.expm1(largest) / largest if largest > 0.0 else 1.0) if largest < 1.0 else math.inf
    scale_error = 1.01 * weighted + (16.0 + 4.0 * math.log(total)) * ROUNDOFF - math.log1p(-min(outside, 0.5))
    if not scale_error < 0.1:
        raise NotCertified(
            f"Polya noise with shape {float(shape):g} and rate {rate:g} is known only to a relative error of {scale_error:.1e}; "
            "use a larger rate or a smaller distance."
        )
    log_mass -= math.log(total)  # in place: fresh memory takes longer than what is done with it
    log_error += scale_error
    return SymmetricLaw(log_mass=log_mass, log_error=log_error, outside=outside, log_concave=shape >= 1, cumulative_errors=True)


@lru_cache(maxsize=64)
def _log_convex_pure(shape: Fraction, rate: float, distance: int) -> float:
    """log f(0)/f(distance), rounded up."""
    log_ratio, error = _log_masses(shape, rate, distance)
    return math.nextafter(float(error[distance]) - float(log_ratio[distance]), math.inf)


@lru_cache(maxsize=64)
def _tail_radius(noise: Polya, log_tail: float) -> float:
    s, cumulant = noise._tilts()
    with np.errstate(over="ignore"):  # an infinite radius is refused by whoever would have to fill it
        radius = (cumulant - log_tail + math.log(2.0)) / s
    return float(np.min(radius)) * (1.0 + 1e-9) + 1.0


# A law holds 32 bytes a cell.
_narrow = lru_cache(maxsize=16)(_tabulated)
_wide = lru_cache(maxsize=2)(_tabulated)
