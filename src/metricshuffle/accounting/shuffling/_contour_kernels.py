# mypy: disable-error-code="untyped-decorator"
"""Compiled: (1/n) E[(G_1 + .. + G_n)_+] as an integral along a line in the complex plane (imported lazily).

A law of G is given as in `_kernels`. `contour` is the whole story; the functions before it are its steps, in their order.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from metricshuffle.accounting.shuffling._blanket_kernels import LOG_LEAST
from metricshuffle.numerics.rounding import ROUNDOFF
from metricshuffle.numerics.types import Floats, Mask

LOG_NEGLIGIBLE = 40.0  # nodes below e^-40 of the largest are bounded, not evaluated
LOG_TRUNCATION = 26.0  # the smoothing has removed all but e^-26 of the transform where the nodes end
LOG_ALIASING = 30.0  # the period makes what the trapezoid rule adds about e^-30 of the result
NEAR = 0.1  # atoms within this part of the span of the heaviest one turn slowly beside the others
CLEAR = 1e-6  # a difference of two squares that is no rounding


class ContourTilt(NamedTuple):
    """One draw x = G/scale under the weight e^(sx), and the integrand where the line crosses the real axis."""

    s: float
    grown: Floats
    """w (e^(sx) - 1) for every atom."""
    tilted: Floats
    """w e^(sx)."""
    total: float
    variance: float
    wrong: float
    """B1."""
    flat: float
    """log M(s)^n."""
    height: float
    """The same with the smoothing."""
    deviation: float
    """Of the sum, with the smoothing."""


class Slow(NamedTuple):
    """The part of the tilted law that lies near its heaviest atom (the rest at 0 is one), as far as it is near."""

    near: Mask
    mass: float
    """Of these, and of the rest if that is near."""
    others: float
    """The mass of all others."""
    variance: float
    """Half of what bounds the second derivative of |slow part|^2."""


class NodeSums(NamedTuple):
    """What the nodes add up to, relative to e^height."""

    above: float
    density: float
    size: float
    size_density: float
    loss: float
    loss_density: float
    nodes: int


@njit(cache=True, error_model="numpy")
def _saddle(users: float, mass: Floats, x: Floats, top: float, span: float, eta2: float) -> float:
    """Where the integrand is smallest on the positive axis, about; any s > 0 is valid."""
    low, high = math.log(1e-14 / span), math.log(600.0 / max(top, 1e-3 * span))
    while high - low > 0.02:  # the slope of the exponent rises in s, so bisection cannot fail
        s = math.exp(0.5 * (low + high))
        z0, z1 = 0.0, 0.0
        for i in range(x.size):
            rise = math.expm1(s * x[i])
            z0 += mass[i] * rise
            z1 += mass[i] * (rise + 1.0) * x[i]
        if users * z1 / (1.0 + z0) + eta2 * s - 2.0 / s > 0.0:
            high = math.log(s)
        else:
            low = math.log(s)
    return math.exp(0.5 * (low + high))


@njit(cache=True, error_model="numpy")
def _tilt(users: float, mass: Floats, x: Floats, doubt: Floats, scale: float, zero_mass: float, eta2: float, s: float) -> ContourTilt:
    k = x.size
    grown, tilted = np.empty(k), np.empty(k)
    z0, z1, rounding = 0.0, 0.0, 0.0
    for i in range(k):
        grown[i] = mass[i] * math.expm1(s * x[i])
        tilted[i] = mass[i] * math.exp(s * x[i])
        z0 += grown[i]
        z1 += tilted[i] * x[i]
        rounding += doubt[i] / scale * max(mass[i], tilted[i])
    total = 1.0 + z0
    mean, rounding = z1 / total, rounding / total
    variance = zero_mass / total * mean * mean
    for i in range(k):
        variance += tilted[i] / total * (x[i] - mean) ** 2
    flat = users * math.log1p(z0)
    height = flat + 0.5 * eta2 * s * s
    return ContourTilt(s, grown, tilted, total, variance, rounding, flat, height, math.sqrt(users * variance + eta2))


@njit(cache=True, error_model="numpy")
def _period(users: float, mass: Floats, x: Floats, top: float, eta2: float, tilt: ContourTilt) -> tuple[float, float]:
    """X, far enough for the aliases of both signs, and a bound on those with k < 0, relative to e^height."""
    s, height, deviation = tilt.s, tilt.height, tilt.deviation
    target, period, shift, shifted = LOG_ALIASING + math.log1p(s * deviation), math.inf, 0.0, 0.0
    step = 1.0
    while step < 40.0:
        t = s + step / deviation
        if t * top < 700.0:
            z = 0.0
            for i in range(x.size):
                z += mass[i] * math.expm1(t * x[i])
            exponent = users * math.log1p(z) + 0.5 * eta2 * t * t - height
            if exponent * 0.0 == 0.0 and (exponent + target) / (t - s) < period:
                period, shift, shifted = (exponent + target) / (t - s), t - s, exponent
        step *= 2.0
    if period == math.inf:
        return 2.0 / s + 12.0 * deviation + 42.0 / s, math.inf
    period = max(period, (LOG_ALIASING + 6.0 + max(0.0, -height) + math.log1p(s * deviation)) / s)
    alias = math.exp(shifted - shift * period + 1e-9) / ((s + shift) * math.e) / -math.expm1(-shift * period)
    return period, alias


@njit(cache=True, error_model="numpy")
def _slow(x: Floats, tilt: ContourTilt, rest: float, span: float) -> Slow:
    near, centre, heaviest = np.empty(x.size, dtype=np.bool_), 0.0, rest
    for i in range(x.size):
        if tilt.tilted[i] > heaviest:
            centre, heaviest = x[i], tilt.tilted[i]
    mass, others, first, second = 0.0, 0.0, 0.0, 0.0
    if abs(centre) <= NEAR * span:
        mass, first, second = rest, -rest * centre, rest * centre * centre
    else:
        others = rest
    for i in range(x.size):
        away = x[i] - centre
        near[i] = abs(away) <= NEAR * span
        if near[i]:
            mass += tilt.tilted[i]
            first += tilt.tilted[i] * away
            second += tilt.tilted[i] * away * away
        else:
            others += tilt.tilted[i]
    variance = max(0.0, mass * second - first * first) / (tilt.total * tilt.total)
    return Slow(near, mass / tilt.total, others / tilt.total, variance * (1.0 + 1e-9))


@njit(cache=True, error_model="numpy")
def _sum_nodes(users: float, x: Floats, eta2: float, tilt: ContourTilt, slow: Slow, h: float, last: float, limit: int) -> NodeSums:
    """The trapezoid rule over the nodes 0, h, .., h last, without the stretches that are negligible; stops beyond `limit` nodes."""
    s, grown, tilted, height, flat = tilt.s, tilt.grown, tilt.tilted, tilt.height, tilt.flat
    k = x.size
    above, density, size, size_density, nodes = 1.0 / (s * s), 1.0, 1.0 / (s * s), 1.0, 1
    unsure = (k + 40) * users * tilt.wrong
    loss = above * (64.0 + abs(height) + unsure * s + 40.0 * eta2 * s * s)
    loss_density = loss * s * s
    j = 1.0
    while j <= last:
        y = h * j
        re, im, re_slope, im_slope = 0.0, 0.0, 0.0, 0.0
        slow_re, slow_im, slow_re_slope, slow_im_slope = 0.0, 0.0, 0.0, 0.0
        for i in range(k):
            angle = 0.5 * y * x[i]
            sine, cosine = math.sin(angle), math.cos(angle)
            half = 2.0 * tilted[i] * sine
            re += grown[i] - half * sine
            im += half * cosine
            re_slope -= x[i] * half * cosine
            im_slope += x[i] * (tilted[i] - half * sine)
            if slow.near[i]:
                slow_re -= half * sine
                slow_im += half * cosine
                slow_re_slope -= x[i] * half * cosine
                slow_im_slope += x[i] * (tilted[i] - half * sine)
        square = re * (2.0 + re) + im * im  # |M|^2 - 1; near M = 0 that would cancel
        log_phi = users * (0.5 * math.log1p(square) if square > -0.5 else math.log(math.hypot(1.0 + re, im))) - flat
        smoothed = 0.5 * eta2 * y * y
        nodes += 1
        if nodes > limit:
            break
        if log_phi - smoothed > -LOG_NEGLIGIBLE:
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
        else:
            scale = tilt.total * tilt.total
            slope = 2.0 * ((1.0 + re) * re_slope + im * im_slope) / scale
            ahead = _negligible_ahead(users, log_phi, smoothed, slope, tilt.variance)
            if slow.variance > 0.0:
                slow_re += slow.mass * tilt.total
                square = (slow_re * slow_re + slow_im * slow_im) / scale
                slope = 2.0 * (slow_re * slow_re_slope + slow_im * slow_im_slope) / scale
                ahead = max(ahead, _slow_ahead(users, smoothed, square, slope, slow))
            j += max(1.0, math.floor(0.999 * ahead / h))
    return NodeSums(above, density, size, size_density, loss, loss_density, nodes)


@njit(cache=True, error_model="numpy")
def _negligible_ahead(users: float, log_phi: float, smoothed: float, slope: float, variance: float) -> float:
    """How far from here |phi|^n stays below e^-40, from |phi|^2 and its slope; 0 if that cannot be told."""
    need = -math.expm1(-2.0 * (LOG_NEGLIGIBLE - smoothed) / users)
    room = -math.expm1(2.0 * log_phi / users) - need
    if not room > 1e-3 * need:
        return 0.0
    return float(_reached(room, slope, variance))


@njit(cache=True, error_model="numpy")
def _reached(room: float, slope: float, variance: float) -> float:
    """The largest t with slope t + variance t^2 <= room."""
    root = math.sqrt(slope * slope + 4.0 * variance * room)
    return 2.0 * room / (slope + root) if slope > 0.0 else (root - slope) / (2.0 * variance)


@njit(cache=True, error_model="numpy")
def _slow_ahead(users: float, smoothed: float, square: float, slope: float, slow: Slow) -> float:
    """The same from the slow part alone, whatever the others do: |phi| is at most its modulus and their mass."""
    most = math.exp(-(LOG_NEGLIGIBLE - smoothed) / users) - slow.others
    if not (most > 0.0 and most * most - square > CLEAR):
        return 0.0
    return float(_reached(most * most - square, slope, slow.variance))


@njit(cache=True, error_model="numpy")
def _bracket(
    users: float, scale: float, eta2: float, tilt: ContourTilt, sums: NodeSums, h: float, last: float, period: float, alias: float
) -> tuple[float, float]:
    """(lower, upper) from the sums: what was left out, rounding, aliases and (below) the smoothing are added or taken away."""
    s, height, nodes, end = tilt.s, tilt.height, sums.nodes, h * last
    tiny, outside = math.exp(-LOG_NEGLIGIBLE + 0.1), math.exp(-0.5 * eta2 * end * end)
    left_out = outside / (math.pi * end) + tiny / s
    left_out_density = outside / (math.pi * eta2 * end) + tiny * end
    rounding = ROUNDOFF * (sums.loss + (nodes + 24.0 + 2.0 * abs(math.log(scale / users))) * sums.size)
    log_unit = height + math.log(scale / users)  # in logs: e^height alone may be 0 where the result is not
    unit = math.exp(max(log_unit, LOG_LEAST))
    upper = unit * ((sums.above + rounding) * h / (2.0 * math.pi) + left_out) * (1.0 + 16.0 * ROUNDOFF)
    doubt = ROUNDOFF * (sums.loss_density + (nodes + 8) * sums.size_density)
    bump = eta2 * ((sums.density + doubt) * h / (2.0 * math.pi) + left_out_density)
    folded = math.exp(-s * period + 1e-9)
    alias += folded / (1.0 - folded) ** 2 * ((sums.above + rounding) * h / (2.0 * math.pi) + left_out + period * math.exp(-height))
    if log_unit < LOG_LEAST:
        return 0.0, upper
    return unit * ((sums.above - rounding) * h / (2.0 * math.pi) - left_out - alias - bump) * (1.0 - 16.0 * ROUNDOFF), upper


@njit(cache=True, error_model="numpy")
def _zero_draws_term(users: float, drawn_mass: float, zero_mass: float, atoms: int, scale: float, eta2: float) -> float:
    """What the draws that are all 0 add to the smoothed value, rounded down."""
    if not zero_mass > 4.0 * (atoms + 16) * ROUNDOFF:  # it may be nothing but rounding
        return 0.0
    nothing = users * math.log1p(-drawn_mass)
    nothing -= ROUNDOFF * (abs(nothing) + 2.0 * (atoms + 16) * users * drawn_mass / zero_mass)
    return math.exp(nothing) * math.sqrt(eta2 / (2.0 * math.pi)) * scale / users * (1.0 - 64.0 * ROUNDOFF)


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
    function of the tilted law, stays below e^-40: |phi|^2 = E cos(y(G-G')) has second derivative at most 2V, so from its
    value and slope at y it is at most f + f' t + V t^2 at y + t; so is the square of its slow part, atoms near each other, with a much
    smaller V, and phi is at most that part and the mass of the others (`_slow`).
    Rounding: log M is off by at most (K+40)u B1 |z| Z/|M|, B1 = sum w doubt max(1, e^(sx))/Z, and n times that in the term.
    """
    scale = np.max(np.abs(value))
    if not (0.0 < scale < 1e300 and users >= 1.0):
        return 0.0, math.inf, 0
    x, top, bottom, drawn_mass = np.empty(value.size), 0.0, 0.0, 0.0
    for i in range(value.size):
        x[i] = value[i] / scale
        top, bottom = max(top, x[i]), min(bottom, x[i])
        drawn_mass += mass[i]
    if not top > 0.0:
        return 0.0, math.inf, 0
    span, zero_mass = top - bottom, max(0.0, 1.0 - drawn_mass)
    eta2 = (width * span) ** 2
    tilt = _tilt(users, mass, x, doubt, scale, zero_mass, eta2, _saddle(users, mass, x, top, span, eta2))
    if not (-1e300 < tilt.height < 690.0 and 0.0 < tilt.deviation < 1e300 and tilt.wrong < 1e300):
        return 0.0, math.inf, 0
    period, alias = _period(users, mass, x, top, eta2, tilt)
    h = 2.0 * math.pi / period
    last = max(1.0, math.floor(math.sqrt(2.0 * LOG_TRUNCATION / eta2) / h))
    if not last < 1e15:
        return 0.0, math.inf, 0
    sums = _sum_nodes(users, x, eta2, tilt, _slow(x, tilt, zero_mass, span), h, last, limit)
    if sums.nodes > limit:
        return 0.0, math.inf, sums.nodes
    lower, upper = _bracket(users, scale, eta2, tilt, sums, h, last, period, alias)
    upper -= _zero_draws_term(users, drawn_mass, zero_mass, value.size, scale, eta2)
    upper = max(upper, lower) + 1e-300
    if not 0.0 < upper < 1e300:
        return 0.0, math.inf, sums.nodes
    return (lower if lower > 0.0 else 0.0), upper, sums.nodes
