"""Exponentially tilted laws of a sum, and a certified FFT window of them, for noise/convolution.py.

The sum S consists of groups of independent variables with one law each. Notation, for one group: n
is its number of copies, Z one variable minus the group's heaviest point (the pivot), K(s) = log E
e^(sZ) its cumulant. The tilted law of Z has the masses q_s(k) = P(Z = k) e^(sk - K(s)), and phi is
its characteristic function at the frequency theta. f is the law of S minus the sum of the pivots,
and f_s(z) = f(z) e^(sz - sum of n K(s)) its tilted law. u = ROUNDOFF = 2^-53.

Every group is folded around its pivot: the step k >= 1 up has mass up[k], the step k down has mass
down[k], and the pivot has the remaining mass. So nearly equal numbers are never subtracted, and a
relative error u of the masses costs n u E|Z| theta, not n u.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from metricshuffle.errors import NotCertified
from metricshuffle.numerics.rounding import ROUNDOFF
from metricshuffle.numerics.types import Floats, Integers64

LARGEST_EXPONENT = 600.0  # |tilt * step|: e^600 is still far from overflow
LOG_NEGLIGIBLE = -60.0  # log|phi|^n below which a frequency is omitted (and its error added)
FFT_CONSTANT = 8.0  # ||error||_2 <= 8 u log2(L) ||exact||_2 for the FFTs used here
# frequency-by-step products evaluated directly; above that, an FFT of the off-pivot masses
MAX_DIRECT_PRODUCTS = 3_000_000


@dataclass(frozen=True, eq=False)
class FoldedGroup:
    """`copies` i.i.d. variables, relative to their pivot."""

    copies: int
    pivot: int
    steps: Integers64  # the k >= 1 with up[k] + down[k] > 0
    up: Floats
    down: Floats
    symmetric: bool
    relative_error: float

    @property
    def depth(self) -> float:
        """Largest number of roundings of a term in numpy's pairwise sum of len(steps) terms."""
        return 24.0 + math.log2(len(self.steps) + 1)

    @property
    def highest(self) -> int:
        return int(self.steps[np.flatnonzero(self.up)[-1]]) if self.up.any() else 0

    @property
    def lowest(self) -> int:
        return -int(self.steps[np.flatnonzero(self.down)[-1]]) if self.down.any() else 0


@dataclass(frozen=True, eq=False)
class TiltedGroup:
    """One group under the tilt s.

    even[k] = q_s(k) + q_s(-k) has an error of at most `error` * even[k], and odd[k] = q_s(k) -
    q_s(-k) one of at most `error` * odd_scale[k].
    """

    group: FoldedGroup
    log_mgf: float
    log_mgf_error: float
    even: Floats
    odd: Floats
    odd_scale: Floats
    error: float
    mean: float
    variance: float


def validate_error(error: float) -> float:
    """Return `error`; raise NotCertified unless 1.01 times it covers the terms of higher order."""
    if not error < 0.01:
        raise NotCertified(
            f"the masses of a sum are not accurate enough: the error of one copy is {error:.1e}; "
            "give them to more digits."
        )
    return error


def tilt_group(group: FoldedGroup, s: float) -> TiltedGroup:
    """Compute the cumulant K(s), with a certified error, and the tilted masses of one group."""
    k = group.steps.astype(np.float64)
    x = s * k
    if group.symmetric:
        terms = 4.0 * group.up * np.sinh(0.5 * x) ** 2
        scale = float(np.sum(terms * (1.0 + np.abs(x))))
    else:
        rise = np.expm1(x)
        fall = np.expm1(-x)
        terms = group.up * rise + group.down * fall
        scale = float(
            np.sum(
                group.up * (np.abs(rise) + np.abs(x) * (1.0 + rise))
                + group.down * (np.abs(fall) + np.abs(x) * (1.0 + fall))
            )
        )
    total = float(np.sum(terms))
    log_mgf = math.log1p(total)
    error = validate_error(
        1.01 * (group.relative_error + (group.depth + 8.0) * ROUNDOFF) * scale / (1.0 + total)
        + 4.0 * ROUNDOFF * abs(log_mgf)
    )
    up = group.up * np.exp(x - log_mgf)
    down = group.down * np.exp(-x - log_mgf)
    even = up + down
    odd = 2.0 * group.up * np.sinh(x) * math.exp(-log_mgf) if group.symmetric else up - down
    reach = float(np.max(np.abs(x), initial=0.0))
    relative = 1.01 * (
        group.relative_error
        + (2.0 * reach + 2.0 * abs(log_mgf) + group.depth + 16.0) * ROUNDOFF
        + error
    )
    mean = float(k @ odd)
    variance = (
        float(up @ (k - mean) ** 2 + down @ (k + mean) ** 2)
        + max(0.0, 1.0 - float(np.sum(even))) * mean * mean
    )
    return TiltedGroup(
        group,
        log_mgf,
        error,
        even,
        odd,
        np.abs(odd) if group.symmetric else even,
        relative,
        mean,
        variance,
    )


@dataclass(frozen=True, eq=False)
class Tilt:
    """The whole sum under the tilt s. All positions are relative to the sum of the pivots."""

    s: float
    parts: tuple[TiltedGroup, ...]

    @classmethod
    def at(cls, groups: Sequence[FoldedGroup], s: float) -> Tilt:
        return cls(s, tuple(tilt_group(group, s) for group in groups))

    @property
    def mean(self) -> float:
        return math.fsum(part.group.copies * part.mean for part in self.parts)

    @property
    def deviation(self) -> float:
        return math.sqrt(math.fsum(part.group.copies * part.variance for part in self.parts))

    def log_weight(self, z: float) -> float:
        """Sum of n K(s) over the groups, minus s z, which is log f(z) - log f_s(z)."""
        return math.fsum([part.group.copies * part.log_mgf for part in self.parts] + [-self.s * z])

    def log_weight_error(self, z: float) -> float:
        """Certified error of `log_weight` at any point no farther out than z."""
        own = math.fsum(
            part.group.copies * (part.log_mgf_error + 2.0 * ROUNDOFF * abs(part.log_mgf))
            for part in self.parts
        )
        return 1.01 * own + 4.0 * ROUNDOFF * abs(self.s * z)

    def log_tail(self, z: float) -> float:
        """Upper bound on log P(S >= z) if s > 0, on log P(S <= z) if s < 0 (Chernoff)."""
        return min(0.0, self.log_weight(z) + self.log_weight_error(z)) if self.s else 0.0


def steepest(groups: Sequence[FoldedGroup]) -> float:
    """Largest |tilt| that does not overflow."""
    reach = max((int(group.steps[-1]) for group in groups if len(group.steps)), default=1)
    return LARGEST_EXPONENT / reach


def tilt_towards(groups: Sequence[FoldedGroup], target: float, guess: float = 0.0) -> Tilt:
    """Tilt whose mean is close to `target`; any tilt is valid, a close one gives sharper bounds."""
    cap = steepest(groups)
    low = -cap
    high = cap
    s = min(max(guess, -cap), cap)
    tilt = Tilt.at(groups, s)
    for _ in range(100):
        gap = target - tilt.mean
        spread = tilt.deviation
        if abs(gap) <= 1e-3 * spread or high - low <= 1e-12 * (abs(low) + abs(high)):
            break
        low, high = (s, high) if gap > 0 else (low, s)
        step = s + gap / spread**2 if spread > 0 else math.inf
        s = step if low < step < high else 0.5 * (low + high)
        tilt = Tilt.at(groups, s)
    return tilt


def support(groups: Sequence[FoldedGroup]) -> tuple[int, int]:
    """Smallest and largest possible sum, relative to the pivots."""
    return sum(group.copies * group.lowest for group in groups), sum(
        group.copies * group.highest for group in groups
    )


def log_beyond(groups: Sequence[FoldedGroup], z: int, side: int, base: Tilt | None = None) -> float:
    """Upper bound on log P(S >= z) (side 1) or log P(S <= z) (side -1).

    With a `base`, P is the tilted law that it describes.
    """
    lowest, highest = support(groups)
    if (z > highest) if side > 0 else (z < lowest):
        return -math.inf
    start = 0.0 if base is None else base.s
    tilt = tilt_towards(groups, z, start)
    if (tilt.s - start) * side <= 0.0:
        return 0.0
    bound = tilt.log_weight(z) + tilt.log_weight_error(z)
    if base is not None:
        bound += base.log_weight_error(z) - base.log_weight(z)
    return min(0.0, bound)


def _off_pivot(part: TiltedGroup, length: int) -> Floats:
    """Tilted masses away from the pivot, folded modulo `length`."""
    law = np.zeros(length)
    np.add.at(law, part.group.steps % length, 0.5 * (part.even + part.odd))
    np.add.at(law, -part.group.steps % length, 0.5 * (part.even - part.odd))
    return law


def _survivors(tilt: Tilt, length: int) -> Integers64:
    """Frequencies j <= length/2 whose |phi|^n is not certified to be below e^LOG_NEGLIGIBLE.

    |phi|^n is the product over all groups.
    """
    from scipy import fft

    log_modulus = np.zeros(length // 2 + 1)
    for part in tilt.parts:
        law = _off_pivot(part, length)
        law[0] += max(0.0, 1.0 - float(np.sum(part.even)))
        # ||law||_2 <= 1: the masses sum to one
        slack = (
            2.0 * part.error
            + 1.01 * FFT_CONSTANT * ROUNDOFF * math.log2(length) * math.sqrt(length)
            + 8.0 * ROUNDOFF
        )
        log_modulus += part.group.copies * np.log(np.minimum(np.abs(fft.rfft(law)) + slack, 1.0))
    return np.flatnonzero(log_modulus > LOG_NEGLIGIBLE)


def _log_phi(part: TiltedGroup, j: Integers64, length: int) -> tuple[Floats, Floats, Floats]:
    """log|phi|, arg phi and a certified error of log phi at the frequencies 2 pi j / length.

    Each frequency is summed directly, to relative accuracy.
    """
    a = np.zeros(len(j))
    b = np.zeros(len(j))
    spread = np.zeros(len(j))
    rows = max(1, MAX_DIRECT_PRODUCTS // max(1, len(part.even)))
    for first in range(0, len(j), rows):
        chunk = slice(first, first + rows)
        # theta k reduced modulo 2 pi in integers, so that sin keeps its relative accuracy next to
        # every multiple of pi
        turn = (j[chunk, None] * (part.group.steps % length)) % length
        turn = np.where(turn > length // 2, turn - length, turn)
        half = np.sin(math.pi / length * turn)
        cosine = np.sin(math.pi / (2 * length) * (length - 2 * np.abs(turn)))
        whole = 2.0 * half * cosine
        a[chunk] = -2.0 * np.sum(half * half * part.even, axis=1)
        b[chunk] = np.sum(whole * part.odd, axis=1)
        spread[chunk] = np.sum(np.abs(whole) * part.odd_scale, axis=1)
    return _logarithm(a, b, (part.error + 16.0 * ROUNDOFF) * (np.abs(a) + spread))


def _log_phi_by_fft(
    part: TiltedGroup, j: Integers64, length: int
) -> tuple[Floats, Floats, Floats, float]:
    """As `_log_phi`, from one FFT of the off-pivot masses, to absolute accuracy.

    Absolute accuracy is enough when these masses are small. The last number returned bounds the
    2-norm, over all frequencies, of the error that the FFT adds to log phi.
    """
    from scipy import fft

    law = _off_pivot(part, length)
    spectrum = fft.rfft(law)[j]
    weight = float(np.sum(part.even))
    a = spectrum.real - weight
    b = -spectrum.imag
    error = (
        FFT_CONSTANT * ROUNDOFF * math.log2(length) * math.sqrt(length * float(np.sum(law * law)))
    )
    smallest = float(np.min(np.hypot(1.0 + a, b), initial=1.0)) - error
    total = 2.02 * error / smallest if smallest > 100.0 * error else math.inf
    return *_logarithm(a, b, np.full(len(j), (2.0 * part.error + 8.0 * ROUNDOFF) * weight)), total


def _logarithm(a: Floats, b: Floats, error: Floats) -> tuple[Floats, Floats, Floats]:
    """log(1 + a + ib) as modulus and argument, and its error given the error of a + ib."""
    square = 2.0 * a + a * a + b * b
    modulus2 = np.maximum(1.0 + square, 1e-300)
    log_modulus = 0.5 * np.log1p(np.maximum(square, -1.0 + 1e-16))
    argument = np.arctan2(b, 1.0 + a)
    lost = (8.0 * np.abs(a) + 4.0 * a * a + 4.0 * b * b + 12.0 * np.abs(b)) / modulus2
    rounding = ROUNDOFF * (lost + 4.0 * (np.abs(log_modulus) + np.abs(argument)))
    total = 2.0 * error / np.sqrt(modulus2) + rounding
    # The bound is of first order: it is valid only where it is small, and infinite elsewhere.
    return log_modulus, argument, np.where(total < 1e-3, 1.01 * total, math.inf)


def window(
    tilt: Tilt, centre: int, left: int, right: int, length: int, log_alias: float
) -> tuple[Floats, float]:
    """f_s on centre-left..centre+right by an inverse FFT, and one absolute error for all points.

    `log_alias` is the log of an upper bound on the mass that an FFT of `length` points adds to a
    point of the window from points outside of it.
    """
    from scipy import fft

    j = _survivors(tilt, length)
    log_modulus = np.zeros(len(j))
    phase = np.zeros(len(j))
    error = np.zeros(len(j))
    extra = 0.0
    for part in tilt.parts:
        copies = part.group.copies
        if len(j) * len(part.even) <= MAX_DIRECT_PRODUCTS:
            modulus, argument, uncertain = _log_phi(part, j, length)
        else:
            modulus, argument, uncertain, spread = _log_phi_by_fft(part, j, length)
            extra += copies * spread
        log_modulus += copies * modulus
        phase += copies * argument
        error += copies * (uncertain + 2.0 * ROUNDOFF * (np.abs(modulus) + np.abs(argument)))
    reduced = (j * (centre % length)) % length
    phase -= 2.0 * math.pi / length * np.where(reduced > length // 2, reduced - length, reduced)
    error += 8.0 * ROUNDOFF * (np.abs(phase) + math.pi)
    size = np.exp(np.minimum(log_modulus, 0.0))
    spectrum = np.zeros(length // 2 + 1, dtype=np.complex128)
    spectrum[j] = size * np.exp(-1j * phase)
    density = fft.irfft(spectrum, n=length)[np.arange(-left, right + 1) % length]
    norm = math.sqrt(2.0 * float(np.sum(size * size)) / length)
    small = error < 0.1
    phi_error = np.where(small, size * np.expm1(np.where(small, error, 0.0)), 1.0 + size)
    # With e_j the error of log phi^n at frequency j, Cauchy-Schwarz gives sum_j |e_j| |phi_j|^n <=
    # ||e||_2 |||phi|^n||_2.
    certain = (
        1.2 * 2.0 * float(np.sum(phi_error)) / length + 1.2 * extra * norm / math.sqrt(length)
        if extra < 0.1
        else math.inf
    )
    return density, 1.01 * (
        certain
        + math.exp(LOG_NEGLIGIBLE)
        + FFT_CONSTANT * ROUNDOFF * math.log2(length) * norm
        + math.exp(log_alias)
    )
