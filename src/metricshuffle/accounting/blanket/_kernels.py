# mypy: disable-error-code="untyped-decorator"
"""Compiled evaluators of (1/n) E[(G_1 + .. + G_n)_+] (imported lazily: numba costs 0.3 s).

A law of G is three arrays: `mass` (its total at most 1, the rest sits at G = 0), `value` and `doubt`. Floats are allowed to
be wrong by a few units in the last place: each mass by that fraction of itself, each value by that fraction of its doubt.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

Floats = NDArray[np.float64]

U = 2.0**-53
NEGLIGIBLE = 60.0  # nodes below e^-60 of the largest are bounded, not evaluated
BEYOND = 40.0  # the smoothing has removed all but e^-40 of the transform where the nodes end
LOG_LEAST = -690.0  # what is smaller is rounded up to e^-690, or down to 0
ALIASED = 30.0  # the period makes what the trapezoid rule adds about e^-30 of the result


@njit(cache=True, error_model="numpy")
def local_delta(mass: Floats, value: Floats, doubt: Floats) -> float:
    """sum w G_+ = sum (a - e b)_+, rounded up."""
    total = 0.0
    for i in range(value.size):
        total += mass[i] * max(0.0, value[i] + 16.0 * U * doubt[i])
    return total * (1.0 + (value.size + 16) * U)


@njit(cache=True, error_model="numpy")
def blanket_values(mass: Floats, excess: Floats, rounding: Floats, b: Floats, growth: float) -> tuple[Floats, Floats, float]:
    """G = (a - e b)/w = (excess - (e-1) b)/w, the scale of its rounding errors, and `local_delta`; growth = e - 1."""
    value, doubt = np.empty(b.size), np.empty(b.size)
    for i in range(b.size):
        value[i] = (excess[i] - growth * b[i]) / mass[i]
        doubt[i] = (rounding[i] + growth * b[i]) / mass[i]
    return value, doubt, local_delta(mass, value, doubt)


@njit(cache=True, error_model="numpy")
def contour(users: float, mass: Floats, value: Floats, doubt: Floats, width: float, limit: int) -> tuple[float, float, int]:
    """(lower, upper, nodes): a bracket of (1/n) E[S_+]; (0, inf, .) where nothing can be certified.

    With W ~ N(0, eta^2), eta = width * span: E[(S+W)_+] = (1/2 pi i) int M(z)^n e^(eta^2 z^2/2) z^-2 dz on Re z = s > 0, by
    the trapezoid rule of step h = 2 pi/X.
    Above: by Jensen smoothing only adds. By Poisson the full sum is sum_k e^(-skX) E[(S+W+kX)_+], all terms >= 0, k = 0
    the wanted one. Draws that are all 0 contribute P0 eta/sqrt(2 pi) to the smoothed value and nothing to the wanted one.
    Below: smoothing adds int_0^(eta^2) f_v(0)/2 dv <= eta^2 f(0), f_v the density of S + N(0,v), because sqrt(v) f_v(0)
    rises in v; the terms k < 0 are bounded by x_+ <= e^(tx)/(t e) at t = s + D, those with k > 0 by S+W+kX <= (S+W)_+ + kX.
    Left out: nodes beyond Y (|phi| <= 1 there, the smoothing decides) and stretches where |phi|^n, phi the characteristic
    function of the tilted law, stays below e^-60: |phi|^2 = E cos(y(G-G')) has second derivative at most 2V, so from its
    value and slope at y it is at most f + f' t + V t^2 at y + t.
    Rounding: log M is off by at most (K+40)u B1 |z| Z/|M|, B1 = sum w doubt max(1, e^(sx))/Z, and n times that in the term.
    """
    k = value.size
    scale = np.max(np.abs(value))
    if not (0.0 < scale < 1e300 and users >= 1.0):
        return 0.0, math.inf, 0
    x, top, bottom, drawn = np.empty(k), 0.0, 0.0, 0.0
    for i in range(k):
        x[i] = value[i] / scale
        top, bottom = max(top, x[i]), min(bottom, x[i])
        drawn += mass[i]
    if not top > 0.0:
        return 0.0, math.inf, 0
    span, rest = top - bottom, max(0.0, 1.0 - drawn)
    eta2 = (width * span) ** 2
    low, high = math.log(1e-14 / span), math.log(600.0 / max(top, 1e-3 * span))
    while high - low > 0.02:  # the slope of the exponent rises in s, so bisection cannot fail; any s > 0 is valid
        s = math.exp(0.5 * (low + high))
        z0, z1 = 0.0, 0.0
        for i in range(k):
            rise = math.expm1(s * x[i])
            z0 += mass[i] * rise
            z1 += mass[i] * (rise + 1.0) * x[i]
        if users * z1 / (1.0 + z0) + eta2 * s - 2.0 / s > 0.0:
            high = math.log(s)
        else:
            low = math.log(s)
    s = math.exp(0.5 * (low + high))
    grown, tilted = np.empty(k), np.empty(k)
    z0, z1, wrong = 0.0, 0.0, 0.0
    for i in range(k):
        grown[i] = mass[i] * math.expm1(s * x[i])
        tilted[i] = mass[i] * math.exp(s * x[i])
        z0 += grown[i]
        z1 += tilted[i] * x[i]
        wrong += doubt[i] / scale * max(mass[i], tilted[i])
    total = 1.0 + z0
    mean, wrong = z1 / total, wrong / total
    variance = rest / total * mean * mean
    for i in range(k):
        variance += tilted[i] / total * (x[i] - mean) ** 2
    flat = users * math.log1p(z0)
    height = flat + 0.5 * eta2 * s * s
    deviation = math.sqrt(users * variance + eta2)
    if not (-1e300 < height < 690.0 and 0.0 < deviation < 1e300 and wrong < 1e300):
        return 0.0, math.inf, 0
    # the period X: far enough for the aliases of both signs
    target, period, shift, shifted = ALIASED + math.log1p(s * deviation), math.inf, 0.0, 0.0
    step = 1.0
    while step < 40.0:
        t = s + step / deviation
        if t * top < 700.0:
            z = 0.0
            for i in range(k):
                z += mass[i] * math.expm1(t * x[i])
            exponent = users * math.log1p(z) + 0.5 * eta2 * t * t - height
            if exponent * 0.0 == 0.0 and (exponent + target) / (t - s) < period:
                period, shift, shifted = (exponent + target) / (t - s), t - s, exponent
        step *= 2.0
    alias = math.inf  # (relative to e^height, as everything below)
    if period < math.inf:
        period = max(period, (ALIASED + 6.0 + max(0.0, -height) + math.log1p(s * deviation)) / s)
        alias = math.exp(shifted - shift * period + 1e-9) / ((s + shift) * math.e) / -math.expm1(-shift * period)
    else:
        period = 2.0 / s + 12.0 * deviation + 42.0 / s
    h = 2.0 * math.pi / period
    last = max(1.0, math.floor(math.sqrt(2.0 * BEYOND / eta2) / h))
    if not last < 1e15:
        return 0.0, math.inf, 0
    above, density, size, size_density, nodes = 1.0 / (s * s), 1.0, 1.0 / (s * s), 1.0, 1
    unsure = (k + 40) * users * wrong
    loss = above * (64.0 + abs(height) + unsure * s + 40.0 * eta2 * s * s)
    loss_density = loss * s * s
    j = 1.0
    while j <= last:
        y = h * j
        re, im, re_slope, im_slope = 0.0, 0.0, 0.0, 0.0
        for i in range(k):
            angle = 0.5 * y * x[i]
            sine, cosine = math.sin(angle), math.cos(angle)
            half = 2.0 * tilted[i] * sine
            re += grown[i] - half * sine
            im += half * cosine
            re_slope -= x[i] * half * cosine
            im_slope += x[i] * (tilted[i] - half * sine)
        square = re * (2.0 + re) + im * im  # |M|^2 - 1; near M = 0 that would cancel
        log_phi = users * (0.5 * math.log1p(square) if square > -0.5 else math.log(math.hypot(1.0 + re, im))) - flat
        smoothed = 0.5 * eta2 * y * y
        nodes += 1
        if nodes > limit:
            return 0.0, math.inf, nodes
        if log_phi - smoothed > -NEGLIGIBLE:
            magnitude, square = 2.0 * math.exp(log_phi - smoothed), s * s + y * y
            phase = users * math.atan2(im, 1.0 + re) + eta2 * s * y
            c, r = math.cos(phase), math.sqrt(square)
            above += magnitude * (c * (s * s - y * y) + math.sin(phase) * 2.0 * s * y) / (square * square)
            density += magnitude * c
            share = magnitude * (64.0 + abs(height) - log_phi + unsure * r * math.exp(-log_phi / users) + 40.0 * eta2 * square)
            loss += share / square
            loss_density += share
            size += magnitude / square
            size_density += magnitude
            j += 1.0
            continue
        jump = 1.0
        need = -math.expm1(-2.0 * (NEGLIGIBLE - smoothed) / users)
        room = -math.expm1(2.0 * log_phi / users) - need
        if room > 1e-3 * need:
            slope = 2.0 * ((1.0 + re) * re_slope + im * im_slope) / (total * total)
            root = math.sqrt(slope * slope + 4.0 * variance * room)
            ahead = 2.0 * room / (slope + root) if slope > 0.0 else (root - slope) / (2.0 * variance)
            jump = max(1.0, math.floor(0.999 * ahead / h))
        j += jump
    end = h * last
    tiny, outside = math.exp(-NEGLIGIBLE + 0.1), math.exp(-0.5 * eta2 * end * end)
    left_out = outside / (math.pi * end) + tiny / s
    left_out_density = outside / (math.pi * eta2 * end) + tiny * end
    rounding = U * (loss + (nodes + 24.0 + 2.0 * abs(math.log(scale / users))) * size)
    log_unit = height + math.log(scale / users)  # in logs: e^height alone may be 0 where the result is not
    unit = math.exp(max(log_unit, LOG_LEAST))
    upper = unit * ((above + rounding) * h / (2.0 * math.pi) + left_out) * (1.0 + 16.0 * U)
    bump = eta2 * ((density + U * (loss_density + (nodes + 8) * size_density)) * h / (2.0 * math.pi) + left_out_density)
    folded = math.exp(-s * period + 1e-9)
    alias += folded / (1.0 - folded) ** 2 * ((above + rounding) * h / (2.0 * math.pi) + left_out + period * math.exp(-height))
    lower = 0.0 if log_unit < LOG_LEAST else unit * ((above - rounding) * h / (2.0 * math.pi) - left_out - alias - bump) * (1.0 - 16.0 * U)
    if rest > 4.0 * (k + 16) * U:  # else it may be nothing but rounding
        nothing = users * math.log1p(-drawn)
        nothing -= U * (abs(nothing) + 2.0 * (k + 16) * users * drawn / rest)
        upper -= math.exp(nothing) * math.sqrt(eta2 / (2.0 * math.pi)) * scale / users * (1.0 - 64.0 * U)
    upper = max(upper, lower) + 1e-300
    if not 0.0 < upper < 1e300:
        return 0.0, math.inf, nodes
    return (lower if lower > 0.0 else 0.0), upper, nodes


@njit(cache=True, error_model="numpy")
def enumeration(
    users: float, mass: Floats, value: Floats, doubt: Floats,
    log_pivot: float, pivot: float, pivot_doubt: float, odds: float, loose: float, most: int,
) -> tuple[float, float]:  # fmt: skip
    """(lower, upper) of (1/n) E[S_+; N <= most] by visiting every vector of counts; N draws are not the pivot's.

    The pivot is one atom (value, doubt, log of its mass, odds = (1 - its mass)/its mass); the arrays are the others, and
    the mass of the last of them may be wrong by the fraction `loose` more than the others'.
    Every probability is e^(sum of logs); each summand is enlarged or reduced by its own rounding error, so the relative
    accuracy survives however small the result is.
    """
    d = value.size
    falling, factorial = np.zeros(most + 1), np.zeros(most + 1)  # log n!/(n-i)! by a compensated sum, log i!
    carried = 0.0
    for i in range(1, most + 1):
        term = math.log(users - (i - 1)) - carried
        falling[i] = falling[i - 1] + term
        carried = (falling[i] - falling[i - 1]) - term
        factorial[i] = math.lgamma(i + 1.0)
    logs = np.log(mass)
    counts = np.zeros(d, dtype=np.int64)
    lower, upper, states = 0.0, 0.0, 0
    done = False
    while not done:
        n0, logp, size, s0, e0 = 0, 0.0, 0.0, 0.0, 0.0
        for i in range(d - 1):
            c = counts[i]
            n0 += c
            logp += c * logs[i] - factorial[c]
            size += abs(c * logs[i]) + factorial[c]
            s0 += c * value[i]
            e0 += c * doubt[i]
        for c in range(most - n0 + 1):
            n = n0 + c
            others = users - n
            size_here = size + abs(c * logs[d - 1]) + factorial[c] + 2.0 * falling[n] + others * abs(log_pivot)
            logp_here = logp + c * logs[d - 1] - factorial[c] + falling[n] + others * log_pivot
            s = s0 + c * value[d - 1] + others * pivot
            error = 16.0 * U * (d + 4) * (e0 + c * doubt[d - 1] + others * pivot_doubt)
            if not s + error <= 0.0:  # what overflowed is not a number, and must not count as 0
                relative = 4.0 * U * (d + 4) * (size_here + n + others * odds + 16.0) + c * loose
                p = math.exp(max(logp_here, LOG_LEAST))  # an s of 1e200 must not be lost to a probability that underflows
                upper += p * (1.0 + relative * (1.0 + relative) if relative < 1.0 else math.exp(relative)) * (s + error)
                if s > error and logp_here > LOG_LEAST:
                    lower += p * (1.0 - relative) * (s - error)
            states += 1
        done = True
        for i in range(d - 1):
            if n0 < most:
                counts[i] += 1
                done = False
                break
            n0 -= counts[i]
            counts[i] = 0
    slack = U * (states + 16)
    return max(0.0, lower * (1.0 - slack)) / users, upper * (1.0 + slack) / users + 1e-300
