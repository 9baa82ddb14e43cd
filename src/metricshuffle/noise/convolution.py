"""Law of a sum of many independent bounded integers, with a certified error for every point.

    law = sum_law([Group(copies=1_000_000, start=-60, masses=masses, symmetric=True)], low, high)

Bounded noise (noise/bounded_sum.py) and lower bounds for mixed groups use it. Small sums are
convolved directly (positive terms only), large ones by stitched tilted FFTs: each window, about
three standard deviations to either side, is computed under the exponential tilt that centres it,
where the FFT is accurate.

Notation: S is the sum, f its law, s a tilt. n K(s) is the cumulant log E e^(sS) of the sum: the
cumulant of one variable times the number of copies, added up over the groups. f_s(z) = e^(sz - n
K(s)) f(z) is the tilted law, phi_s^n its characteristic function, and u = ROUNDOFF = 2^-53.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from metricshuffle.citations import theorem
from metricshuffle.errors import InputError, NotCertified, argument
from metricshuffle.noise._exponential_tilting import (
    FoldedGroup,
    Tilt,
    log_beyond,
    steepest,
    support,
    tilt_towards,
    validate_error,
    window,
)
from metricshuffle.numerics.rounding import ROUNDOFF, round_up
from metricshuffle.numerics.types import Floats

MAX_CELLS = 20_000_000
MAX_DIRECT_CELLS = 16_384  # up to here: direct convolution (50 ms)
# a directly convolved mass below this has lost its relative accuracy and is treated as a hole
MIN_DIRECT_MASS = 1e-280
MIN_BOUND = 1e-300  # replaces the upper bound on a missing mass where that bound underflows
# masses below this multiple of their error are left to the next window where possible
MIN_SIGNAL_RATIO = 1e4
WINDOW_DEVIATIONS = 3.0  # half-width of a window, in standard deviations


@dataclass(frozen=True, eq=False)
class Group:
    """`copies` independent variables with P(Z = start + i) = masses[i].

    Every mass except the largest (the pivot) must be known to `relative_error`. The pivot's own
    mass is, by definition, one minus the others, so the masses passed need to sum to 1 only up to
    1e-9. A mass of 0 is exactly 0 and is allowed anywhere. `symmetric` asserts that the TRUE law is
    symmetric about the middle of `masses`, which makes the certificate much sharper. That the
    masses passed are symmetric is not enough: different masses may be rounded to equal ones.
    """

    copies: int
    start: int
    masses: Floats
    symmetric: bool = False
    relative_error: float = ROUNDOFF

    def __post_init__(self) -> None:
        masses = np.array(self.masses, dtype=np.float64)
        if (
            isinstance(self.copies, bool)
            or not isinstance(self.copies, int)
            or not 0 <= self.copies <= 10**15
        ):
            raise InputError(f"copies must be an integer in 0..1e15, got {self.copies!r}.")
        if (
            masses.ndim != 1
            or not len(masses)
            or not (np.isfinite(masses).all() and (masses >= 0.0).all())
        ):
            raise InputError("masses must be a list of finite numbers >= 0.")
        if abs(math.fsum(masses) - 1.0) > 1e-9:
            raise InputError(f"masses must sum to 1, but they sum to {math.fsum(masses)!r}.")
        if not 0.0 <= self.relative_error < 1e-3:
            raise InputError(f"relative_error must lie in [0, 0.001), got {self.relative_error!r}.")
        if self.symmetric and (
            len(masses) % 2 == 0
            or (masses != masses[::-1]).any()
            or masses[len(masses) // 2] < masses.max()
        ):
            raise InputError(
                "a symmetric group needs an odd number of masses, mirrored about their "
                "middle, and the largest in the middle."
            )
        masses.setflags(write=False)
        object.__setattr__(self, "masses", masses)

    def folded(self) -> FoldedGroup:
        """Return the same group relative to its heaviest point."""
        pivot = len(self.masses) // 2 if self.symmetric else int(np.argmax(self.masses))
        reach = max(pivot, len(self.masses) - 1 - pivot)
        padded = np.zeros(2 * reach + 1)
        padded[reach - pivot : reach - pivot + len(self.masses)] = self.masses
        up = padded[reach + 1 :]
        down = padded[:reach][::-1]
        nonzero = np.flatnonzero(up + down)
        steps = (nonzero + 1).astype(np.int64)
        return FoldedGroup(
            self.copies,
            self.start + pivot,
            steps,
            up[nonzero],
            down[nonzero],
            self.symmetric,
            self.relative_error,
        )


@dataclass(frozen=True, eq=False)
class CertifiedRange:
    """Log masses of a sum S with certified errors.

    |log P(S = start + i) - log_mass[i]| <= log_error[i]; P(S outside the range or at a hole) <=
    outside. log_mass = -inf with log_error = 0 marks a point that is impossible or a hole. A hole
    is a point whose mass is too small to be certified; its mass is counted in `outside`.
    """

    start: int
    log_mass: Floats
    log_error: Floats
    outside: float

    @property
    def stop(self) -> int:
        """One past the last point."""
        return self.start + len(self.log_mass)

    @theorem("metricshuffle", "hockey-stick of a shifted sum")
    def hockey_stick(self, epsilon: float, shift: int) -> float:
        """Upper bound on sum_z max(0, f(z) - e^epsilon f(z - shift)).

        Statement: let f be the law of S, f~ = e^log_mass its tabulated values and err = log_error.
        Inside the range the bound uses f <= f~ e^err and f >= f~ e^-err; outside it, f >= 0 and the
        total mass `outside`, which is added.
        Conditions: epsilon >= 0, any integer shift (negative: the other direction).
        Numerics: positive parts are summed one by one (no log-concavity is assumed), rounded up.
        Reference: this package; see sum_law.
        """
        slack = self.log_error + 4.0 * ROUNDOFF * (
            np.abs(np.where(np.isfinite(self.log_mass), self.log_mass, 0.0)) + epsilon + 4.0
        )
        below = np.full(len(self.log_mass), -math.inf)
        if abs(shift) < len(below):
            below[max(shift, 0) : len(below) + min(shift, 0)] = (self.log_mass - slack)[
                max(-shift, 0) : len(below) - max(shift, 0)
            ]
        with np.errstate(over="ignore"):
            parts = np.maximum(0.0, np.exp(self.log_mass + slack) - np.exp(epsilon + below))
        return min(1.0, round_up(float(np.sum(parts)), 64) + self.outside)


def _folded(groups: Sequence[Group]) -> tuple[list[FoldedGroup], int]:
    folded = [group.folded() for group in groups if group.copies]
    offset = sum(group.copies * group.pivot for group in folded)
    return [group for group in folded if len(group.steps)], offset


@theorem("metricshuffle", "Chernoff range of a sum")
def covering_range(groups: Sequence[Group], log_tail: float = -80.0) -> tuple[int, int]:
    """Smallest low..high with P(S < low or S > high) <= e^log_tail by Chernoff's bound.

    Statement: P(S >= z) <= exp(n K(s) - s z) for every s >= 0, where n K(s) = log E e^(sS), and
    likewise for P(S <= z) with s <= 0; each side gets half of e^log_tail.
    Conditions: log_tail < 0.
    Numerics: K(s) from log1p of sums of expm1, its error added.
    Reference: Chernoff 1952.
    """
    if not log_tail < 0.0:
        raise InputError(f"log_tail must be a number < 0, got {log_tail!r}.")
    folded, offset = _folded(groups)
    if not folded:
        return offset, offset
    ends: list[int] = []
    for side in (-1, 1):
        furthest = support(folded)[(side + 1) // 2]
        inside = 0.0
        outside = steepest(folded)
        goal = log_tail - math.log(2.0) - 1e-9
        for _ in range(60):
            middle = 0.5 * (inside + outside) if inside else outside * 0.25
            tilt = Tilt.at(folded, side * middle)
            reached = tilt.log_weight(tilt.mean) <= goal
            inside, outside = (inside, middle) if reached else (middle, outside)
            if inside and outside - inside <= 1e-4 * outside:
                break
        tilt = Tilt.at(folded, side * outside)
        # smallest distance at which this tilt certifies the tail: n K - s z + error <= goal
        z = (
            math.ceil((tilt.log_weight(0.0) - goal + tilt.log_weight_error(furthest)) / outside)
            * side
            - side
        )
        ends.append(furthest if z * side >= furthest * side else z)
    return offset + ends[0], offset + ends[1]


@theorem("metricshuffle", "stitched tilted FFT")
def sum_law(groups: Sequence[Group], low: int, high: int) -> CertifiedRange:
    """Law of the sum of all copies of all groups on low..high.

    Statement: f(z) = e^{n K(s) - s z} f_s(z), with f the law of the sum, f_s its tilted law and n
    K(s) = log E e^(sS). On a window f_s is the inverse FFT, of length L, of the characteristic
    function phi_s^n, up to an absolute error with four parts: aliasing (Chernoff under the tilted
    law for the actual length), omitted frequencies (each certified to have |phi_s|^n < e^-60; every
    one is checked), rounding of n log phi_s (relative accuracy, weighted by |phi_s|^n) and rounding
    of the inverse FFT (8 u log2(L) ||f_s||_2, u = 2^-53). Points whose error is not below half
    their value become holes.
    Conditions: low <= high; at most 2e7 cells.
    Numerics: see Group for the meaning of the masses.
    Reference: exponential tilting (Esscher 1932) and this docstring.
    """
    if not low <= high:
        raise InputError(f"{argument('low')} must not exceed high, got {low!r} and {high!r}.")
    if high - low >= MAX_CELLS:
        raise NotCertified(
            f"the sum would need {high - low + 1:.3g} cells, more than {MAX_CELLS:.0e}; "
            f"ask for a shorter range, or use fewer users or less noise."
        )
    folded, offset = _folded(groups)
    low = low - offset
    high = high - offset
    lowest, highest = support(folded)
    # A single draw needs no transform, and for a wide flat law a transform is inaccurate: its
    # characteristic function almost vanishes.
    if highest - lowest < MAX_DIRECT_CELLS or sum(group.copies for group in folded) == 1:
        return _direct(folded, offset, low, high)
    first = max(low, lowest)
    last = min(high, highest)
    if first > last:  # the range contains no point of the support
        return CertifiedRange(
            low + offset, np.full(high - low + 1, -math.inf), np.zeros(high - low + 1), 1.0
        )
    mirrored = all(group.symmetric for group in folded) and first < 0 < last
    span = (0, max(-first, last)) if mirrored else (first, last)
    mass, error, holes = _stitch_windows(folded, *span)
    points = np.arange(low, high + 1)
    index = (np.abs(points) if mirrored else points) - span[0]
    inside = (points >= first) & (points <= last)
    log_mass = np.full(len(points), -math.inf)
    log_error = np.zeros(len(points))
    log_mass[inside], log_error[inside] = mass[index[inside]], error[index[inside]]
    tails = math.exp(log_beyond(folded, low - 1, -1)) + math.exp(log_beyond(folded, high + 1, 1))
    complete = low <= lowest and highest <= high and bool(np.isfinite(log_mass[inside]).all())
    outside = (tails + (2.0 if mirrored else 1.0) * holes) * (1.0 + 1e-12) + (
        0.0 if complete else MIN_BOUND
    )
    return CertifiedRange(low + offset, log_mass, log_error, min(1.0, outside))


def _stitch_windows(
    groups: list[FoldedGroup], first: int, last: int
) -> tuple[Floats, Floats, float]:
    """Compute log f, its error and the mass of the holes on first..last."""
    log_mass = np.full(last - first + 1, -math.inf)
    log_error = np.zeros(last - first + 1)
    holes = 0.0
    filled = first
    guess = 0.0
    while filled <= last:
        tilt = tilt_towards(groups, filled, guess)
        for _ in range(2):  # the deviation depends on the tilt, so the centre is corrected once
            centre = min(filled + int(WINDOW_DEVIATIONS * tilt.deviation), last)
            tilt = tilt_towards(groups, centre, tilt.s)
        if tilt.s >= 0.999 * steepest(groups):
            # Too close to the end of the support for another tilt: the rest is bounded as a tail.
            return log_mass, log_error, holes + math.exp(tilt.log_tail(filled))
        guess, end, values, value_error = tilt.s, *_block(groups, tilt, filled, centre, last)
        # If the law is very skewed, the far side of a window is too light: move the centre closer.
        for _ in range(5):
            fine = np.flatnonzero(values > MIN_SIGNAL_RATIO * value_error)
            if centre == filled or not len(fine) or fine[0] <= (centre - filled) // 2:
                break
            centre = filled + (centre - filled) // 2
            tilt = tilt_towards(groups, centre, tilt.s)
            end, values, value_error = _block(groups, tilt, filled, centre, last)
        fine = np.flatnonzero(values > MIN_SIGNAL_RATIO * value_error)
        end = max(centre, filled + int(fine[-1])) if len(fine) else end
        points = np.arange(filled, end + 1)
        values = values[: len(points)]
        weight = tilt.log_weight(centre) - tilt.s * (points - centre)
        shift_error = tilt.log_weight_error(max(abs(filled), abs(end)))
        good = values > 2.0 * value_error
        where = slice(filled - first, end - first + 1)
        log_values = np.log(np.where(good, values, 1.0))
        log_mass[where] = np.where(good, log_values + weight, -math.inf)
        rounding = shift_error + 4.0 * ROUNDOFF * (
            np.abs(weight) + np.abs(log_values) + abs(tilt.s) * np.abs(points - centre)
        )
        log_error[where] = np.where(
            good, np.log1p(value_error / np.where(good, values - value_error, 1.0)) + rounding, 0.0
        )
        ceiling = np.minimum(
            np.where(np.isfinite(values), np.maximum(values, 0.0) + value_error, 1.0), 1.0
        )
        holes += float(
            np.sum(
                np.where(
                    good,
                    0.0,
                    np.minimum(ceiling * np.exp(np.minimum(weight + shift_error, 700.0)), 1.0),
                )
            )
        )
        filled = end + 1
    return log_mass, log_error, holes


def _block(
    groups: list[FoldedGroup], tilt: Tilt, filled: int, centre: int, last: int
) -> tuple[int, Floats, float]:
    """Return the end of one window, the tilted masses on filled..end and their absolute error."""
    end = min(centre + max(int(WINDOW_DEVIATIONS * tilt.deviation), 1), last)
    values, value_error = window(
        tilt,
        centre,
        centre - filled,
        end - centre,
        *_length(groups, tilt, centre, max(centre - filled, end - centre)),
    )
    return end, values, value_error


def _length(groups: list[FoldedGroup], tilt: Tilt, centre: int, half: int) -> tuple[int, float]:
    """FFT length with aliasing below 1e-13 of the mass at the window's edge, and log(aliasing)."""
    from scipy import fft

    lowest, highest = support(groups)
    spread = tilt.deviation
    goal = -0.5 * WINDOW_DEVIATIONS**2 - math.log(max(spread, 1.0)) - 31.0
    whole = highest - lowest + 1
    length = int(half + 9.0 * spread) + half + 16
    while True:
        length = 2 * fft.next_fast_len(min(length, whole + half) // 2 + 1, real=True)
        if length > 2 * MAX_CELLS:
            raise NotCertified(
                f"one window of the sum would need an FFT of {length:.3g} cells, more than "
                f"{2 * MAX_CELLS:.0e}; "
                f"use fewer users or less noise."
            )
        alias_distance = length - half
        sides = [log_beyond(groups, centre + side * alias_distance, side, tilt) for side in (-1, 1)]
        if max(sides) <= goal or length > whole + half:
            return length, float(np.logaddexp(sides[0], sides[1]))
        length = int(1.3 * length) + 16


def _direct(groups: list[FoldedGroup], offset: int, low: int, high: int) -> CertifiedRange:
    """Repeated squaring with positive terms only: the relative error is the number of roundings."""
    lowest, _ = support(groups)
    law = np.ones(1)
    error = 0.0
    for group in groups:
        base = np.zeros(group.highest - group.lowest + 1)
        base[group.steps[group.up > 0.0] - group.lowest] = group.up[group.up > 0.0]
        base[-group.steps[group.down > 0.0] - group.lowest] = group.down[group.down > 0.0]
        heaviest = 1.0 - math.fsum(base)
        base[-group.lowest] = heaviest
        base_error = validate_error(
            max(group.relative_error, (group.relative_error + 2.0 * ROUNDOFF) / heaviest)
        )
        left = group.copies
        while left:
            if left & 1:
                error += base_error + (min(len(law), len(base)) + 2) * ROUNDOFF
                law = np.convolve(law, base)
            left >>= 1
            if left:
                base_error = 2.0 * base_error + (len(base) + 2) * ROUNDOFF
                base = np.convolve(base, base)
    points = np.arange(low, high + 1)
    inside = (points >= lowest) & (points < lowest + len(law))
    mass = np.zeros(len(points))
    mass[inside] = law[points[inside] - lowest]
    good = mass > MIN_DIRECT_MASS
    log_mass = np.where(good, np.log(np.where(good, mass, 1.0)), -math.inf)
    log_error = np.where(
        good,
        1.01 * error + 4.0 * ROUNDOFF * np.abs(np.where(good, log_mass, 0.0)) + 4.0 * ROUNDOFF,
        0.0,
    )
    missing = math.fsum(law[: max(low - lowest, 0)]) + math.fsum(law[max(high + 1 - lowest, 0) :])
    # Impossible points are not holes: only points of the support can have underflowed.
    lost = 2.0 * MIN_DIRECT_MASS * int(np.count_nonzero(inside & ~good)) + (
        0.0 if low <= lowest and lowest + len(law) - 1 <= high else MIN_BOUND
    )
    growth = math.exp(min(1.01 * error, 700.0)) * (1.0 + 1e-12)
    return CertifiedRange(low + offset, log_mass, log_error, min(1.0, (missing + lost) * growth))
