"""Compiled flow of a concave, piecewise linear speed, for move_composition.py.

Notation of move_composition.py: a >= 0 is a probability, G(a) >= 0 the speed, and phi(a) the point
that the flow da/dt = G(a) reaches from a after a given time. G is the minimum of lines (intercept,
slope), ordered by decreasing slope, the last slope 0; line i is the lowest on
breaks[i]..breaks[i+1]. Every line bounds the speed everywhere, so a rounding error of a break never
makes the flow too slow. U = ROUNDOFF = 2^-53. The module is imported only where it is used, because
numba takes 0.3 s to load.
"""

# numba's decorators carry no types.
# mypy: disable-error-code="untyped-decorator, no-any-return"
from __future__ import annotations

import math

import numpy as np
from numba import njit

from metricshuffle.numerics.rounding import ROUNDOFF
from metricshuffle.numerics.types import Floats

# Relative error of a steepness, the log of the derivative of phi: 16 U for each line passed, of
# which there are at most 4096.
STEEPNESS_MARGIN = 1e-11
MIN_VALUE = 1e-300  # smaller values are not distinguished: this is added where they might matter
SUPREMUM_TOLERANCE = 1e-10  # the supremum is bracketed to this fraction of itself
MAX_STEPS = 400


@njit(cache=True)
def envelope(intercepts: Floats, slopes: Floats) -> tuple[Floats, Floats, Floats]:
    """Lower envelope on a >= 0 of lines ordered by decreasing slope.

    Returns the intercepts and slopes of the lines on the envelope, and the points where each line
    takes over from the one before.
    """
    size = len(slopes)
    hull = np.empty(size, np.int64)
    start = np.zeros(size + 1)
    top = 0
    for i in range(size):
        while top > 0:
            j = hull[top - 1]
            if slopes[j] == slopes[i]:
                if intercepts[j] <= intercepts[i]:
                    break
                top -= 1
                continue
            take_over = (intercepts[i] - intercepts[j]) / (slopes[j] - slopes[i])
            if take_over > start[top - 1]:
                break
            top -= 1
        if top > 0 and slopes[hull[top - 1]] == slopes[i]:
            continue
        if top > 0:
            j = hull[top - 1]
            start[top] = (intercepts[i] - intercepts[j]) / (slopes[j] - slopes[i])
        else:
            start[0] = 0.0
        hull[top] = i
        top += 1
    breaks = np.empty(top + 1)
    breaks[:top] = start[:top]
    breaks[top] = math.inf
    return intercepts[hull[:top]], slopes[hull[:top]], breaks


@njit(cache=True)
def path(
    intercepts: Floats, slopes: Floats, breaks: Floats, a: float, time: float
) -> tuple[float, float, int, int]:
    """Follow the flow from a for `time`.

    Returns the end point phi(a) (rounded up), the log of the derivative phi'(a), and the first and
    the last line on the way.
    """
    last = len(slopes) - 1
    time *= 1.0 + 16.0 * ROUNDOFF * (last + 8.0)
    i = int(min(max(int(np.searchsorted(breaks, a, "right")) - 1, 0), last))
    first = i
    steepness = 0.0
    while True:
        slope = slopes[i]
        speed = intercepts[i] + slope * a
        if speed <= 0.0:  # the flow rests: it starts at 0, on a line through 0
            return a, steepness + slope * time, first, i
        if slope <= 0.0:
            return (a + speed * time) * (1.0 + 4.0 * ROUNDOFF) + MIN_VALUE, steepness, first, i
        needed = math.log1p(slope * (breaks[i + 1] - a) / speed) / slope if i < last else math.inf
        if not needed < time:
            # The quotient is computed first, because it does not underflow.
            grown = max(time, math.expm1(slope * time) / slope)
            return (
                (a + speed * grown) * (1.0 + 8.0 * ROUNDOFF) + MIN_VALUE,
                steepness + slope * time,
                first,
                i,
            )
        time -= needed
        steepness += slope * needed
        a = breaks[i + 1]
        i += 1


@njit(cache=True)
def _bound(
    a: float, end: float, steepness: float, epsilon: float, low: float, high: float
) -> float:
    """Upper bound on phi(x) - e^epsilon x over x in low..high, from the tangent of phi at a.

    phi is concave, so it lies below its tangent. `end` is phi(a) and `steepness` is log phi'(a), as
    `path` returns them.
    """
    e = math.exp(epsilon)
    slope_error = STEEPNESS_MARGIN * steepness
    left = (
        -math.expm1(min(steepness - slope_error - epsilon, 0.0)) * e * (a - low) if a > low else 0.0
    )
    right = (
        math.expm1(max(steepness + slope_error - epsilon, 0.0)) * e * (high - a)
        if a < high
        else 0.0
    )
    return end - e * a * (1.0 - (8.0 + epsilon) * ROUNDOFF) + max(left, right) * (1.0 + 1e-9)


@njit(cache=True)
def worst(
    intercepts: Floats, slopes: Floats, breaks: Floats, time: float, epsilon: float
) -> tuple[float, float, float, int, int]:
    """Upper bound on the supremum over a >= 0 of phi(a) - e^epsilon a.

    Returns the bound, the a at which it was computed, phi(a), and the first and the last line on
    the way. The supremum is found by bisection: phi is concave, so phi(a) - e^epsilon a increases
    while log phi'(a) > epsilon and decreases afterwards.
    """
    end, steepness, first, last = path(intercepts, slopes, breaks, 0.0, time)
    if steepness * (1.0 + STEEPNESS_MARGIN) <= epsilon:
        return end, 0.0, end, first, last
    low = 0.0
    high = breaks[len(slopes) - 1]
    j = 0
    k = len(slopes) - 1
    supremum = math.inf
    at = high
    to = high
    for _ in range(MAX_STEPS):
        if supremum == math.inf:
            x = high  # G has slope 0 from here on, so phi(x) - e^epsilon x decreases
        elif k - j > 1:
            x = breaks[(j + k) // 2]
        else:
            x = math.sqrt(low) * math.sqrt(high) if low > 0.0 else 1e-3 * high
            if not low < x < high or x < MIN_VALUE:
                break
        end, steepness, begins, ends = path(intercepts, slopes, breaks, x, time)
        if steepness * (1.0 + STEEPNESS_MARGIN) <= epsilon:
            high = x
            k = (j + k) // 2 if k - j > 1 and supremum < math.inf else k
            better = _bound(x, end, steepness, epsilon, low, high)
        elif steepness * (1.0 - STEEPNESS_MARGIN) >= epsilon:
            low = x
            j = (j + k) // 2 if k - j > 1 else j
            better = _bound(x, end, steepness, epsilon, low, high)
        else:  # log phi'(x) = epsilon up to rounding: x is the maximum up to rounding
            better = _bound(x, end, steepness, epsilon, low, high)
            low = high
        if math.isnan(better):
            return math.nan, x, end, begins, ends
        if better < supremum:
            supremum = better
            at = x
            to = end
            first = begins
            last = ends
        value = end - math.exp(epsilon) * x
        if low >= high or (better - value <= SUPREMUM_TOLERANCE * value and k - j <= 1):
            break
    return supremum, at, to, first, last
