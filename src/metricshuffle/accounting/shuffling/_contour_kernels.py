# mypy: disable-error-code="untyped-decorator"
"""Compiled contour integral for (1/n) E[(G_1 + .. + G_n)_+], imported lazily.

This is the evaluator M2 of `blanket_evaluation`. A law of G is given by `mass`, `value` and `doubt`
as in `_blanket_kernels`. `contour` is the entry point; the functions before it are its steps, in
their order.

Notation: n is `users`; x = G/scale, with scale the largest |G|; S is the sum of n independent draws
of x, and span the range of x and 0. M(z) = E e^(zx). On the line z = s + iy, the tilted law has the
mass w e^(sx)/M(s) at an atom of mass w, and its characteristic function is phi(y) = M(s+iy)/M(s).
Gaussian noise of variance eta^2 (`eta2`) is added to S to smooth it. K is the number of atoms, and
u denotes ROUNDOFF.
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
LOG_TRUNCATION = 26.0  # nodes end where the smoothing leaves e^-26 of the transform
LOG_ALIASING = 30.0  # the trapezoid rule adds about e^-30 of the result
NEAR = 0.1  # part of the span within which atoms are near the heaviest one and turn slowly
CLEAR = 1e-6  # a difference of two squares above this is not rounding


class ContourTilt(NamedTuple):
    """One draw x = G/scale under the weight e^(sx), and the integrand on the real axis.

    `total` is M(s), and `variance` that of the tilted law.
    """

    s: float
    grown: Floats
    """w (e^(sx) - 1) for every atom."""
    tilted: Floats
    """w e^(sx) for every atom."""
    total: float
    variance: float
    wrong: float
    """B1, from which the rounding error of log M(z) follows (see `contour`)."""
    flat: float
    """log M(s)^n."""
    height: float
    """log of M(s)^n times the smoothing factor."""
    deviation: float
    """Standard deviation of the sum, with the smoothing."""


class Slow(NamedTuple):
    """Part of the tilted law near its heaviest atom, whose phase turns slowly.

    The missing mass at 0 counts as an atom, too.
    """

    near: Mask
    mass: float
    """Mass of the near atoms, including the missing mass if 0 is near."""
    others: float
    """Mass of all other atoms."""
    variance: float
    """Half of a bound on the second derivative of |slow part|^2."""


class NodeSums(NamedTuple):
    """Sums over the nodes, relative to e^height.

    `above` is the sum for E[(S+W)_+] and `density` that for the density of S+W at 0, W the Gaussian
    noise; `size` and `size_density` are the same sums of moduli, and `loss` and `loss_density`
    those of the rounding errors in units of ROUNDOFF.
    """

    above: float
    density: float
    size: float
    size_density: float
    loss: float
    loss_density: float
    nodes: int


@njit(cache=True, error_model="numpy")
def _saddle(users: float, mass: Floats, x: Floats, top: float, span: float, eta2: float) -> float:
    """Approximate the minimum of the integrand on the positive axis; any s > 0 is valid."""
    low = math.log(1e-14 / span)
    high = math.log(600.0 / max(top, 1e-3 * span))
    while high - low > 0.02:  # the exponent's slope increases with s, so bisection cannot fail
        s = math.exp(0.5 * (low + high))
        z0 = 0.0
        z1 = 0.0
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
def _tilt(
    users: float,
    mass: Floats,
    x: Floats,
    doubt: Floats,
    scale: float,
    zero_mass: float,
    eta2: float,
    s: float,
) -> ContourTilt:
    k = x.size
    grown = np.empty(k)
    tilted = np.empty(k)
    z0 = 0.0
    z1 = 0.0
    rounding = 0.0
    for i in range(k):
        grown[i] = mass[i] * math.expm1(s * x[i])
        tilted[i] = mass[i] * math.exp(s * x[i])
        z0 += grown[i]
        z1 += tilted[i] * x[i]
        rounding += doubt[i] / scale * max(mass[i], tilted[i])
    total = 1.0 + z0
    mean = z1 / total
    rounding = rounding / total
    variance = zero_mass / total * mean * mean
    for i in range(k):
        variance += tilted[i] / total * (x[i] - mean) ** 2
    flat = users * math.log1p(z0)
    height = flat + 0.5 * eta2 * s * s
    return ContourTilt(
        s,
        grown,
        tilted,
        total,
        variance,
        rounding,
        flat,
        height,
        math.sqrt(users * variance + eta2),
    )


@njit(cache=True, error_model="numpy")
def _period(
    users: float, mass: Floats, x: Floats, top: float, eta2: float, tilt: ContourTilt
) -> tuple[float, float]:
    """Return a period X, long enough for aliases of both signs, and a bound on those with k < 0.

    Aliases are the terms k != 0 of the sum that the trapezoid rule gives (see `contour`). The bound
    is relative to e^height.
    """
    s = tilt.s
    height = tilt.height
    deviation = tilt.deviation
    target = LOG_ALIASING + math.log1p(s * deviation)
    period = math.inf
    shift = 0.0
    shifted = 0.0
    step = 1.0
    while step < 40.0:
        t = s + step / deviation
        if t * top < 700.0:
            z = 0.0
            for i in range(x.size):
                z += mass[i] * math.expm1(t * x[i])
            exponent = users * math.log1p(z) + 0.5 * eta2 * t * t - height
            if exponent * 0.0 == 0.0 and (exponent + target) / (t - s) < period:
                period = (exponent + target) / (t - s)
                shift = t - s
                shifted = exponent
        step *= 2.0
    if period == math.inf:
        return 2.0 / s + 12.0 * deviation + 42.0 / s, math.inf
    period = max(period, (LOG_ALIASING + 6.0 + max(0.0, -height) + math.log1p(s * deviation)) / s)
    alias = (
        math.exp(shifted - shift * period + 1e-9)
        / ((s + shift) * math.e)
        / -math.expm1(-shift * period)
    )
    return period, alias


@njit(cache=True, error_model="numpy")
def _slow(x: Floats, tilt: ContourTilt, rest: float, span: float) -> Slow:
    near = np.empty(x.size, dtype=np.bool_)
    centre = 0.0
    heaviest = rest
    for i in range(x.size):
        if tilt.tilted[i] > heaviest:
            centre = x[i]
            heaviest = tilt.tilted[i]
    mass = 0.0
    others = 0.0
    first = 0.0
    second = 0.0
    if abs(centre) <= NEAR * span:
        mass = rest
        first = -rest * centre
        second = rest * centre * centre
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
def _sum_nodes(
    users: float,
    x: Floats,
    eta2: float,
    tilt: ContourTilt,
    slow: Slow,
    h: float,
    last: float,
    limit: int,
) -> NodeSums:
    """Sum the trapezoid rule over the nodes y = 0, h, .., h last, without negligible stretches.

    Stops beyond `limit` nodes.
    """
    s = tilt.s
    grown = tilt.grown
    tilted = tilt.tilted
    height = tilt.height
    flat = tilt.flat
    k = x.size
    above = 1.0 / (s * s)
    density = 1.0
    size = 1.0 / (s * s)
    size_density = 1.0
    nodes = 1
    unsure = (k + 40) * users * tilt.wrong
    loss = above * (64.0 + abs(height) + unsure * s + 40.0 * eta2 * s * s)
    loss_density = loss * s * s
    j = 1.0
    while j <= last:
        y = h * j
        re = 0.0
        im = 0.0
        re_slope = 0.0
        im_slope = 0.0
        slow_re = 0.0
        slow_im = 0.0
        slow_re_slope = 0.0
        slow_im_slope = 0.0
        for i in range(k):
            angle = 0.5 * y * x[i]
            sine = math.sin(angle)
            cosine = math.cos(angle)
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
        square = re * (2.0 + re) + im * im  # |M|^2 - 1, which cancels near M = 0
        log_phi = (
            users
            * (0.5 * math.log1p(square) if square > -0.5 else math.log(math.hypot(1.0 + re, im)))
            - flat
        )
        smoothed = 0.5 * eta2 * y * y
        nodes += 1
        if nodes > limit:
            break
        if log_phi - smoothed > -LOG_NEGLIGIBLE:
            magnitude = 2.0 * math.exp(log_phi - smoothed)
            square = s * s + y * y
            phase = users * math.atan2(im, 1.0 + re) + eta2 * s * y
            c = math.cos(phase)
            r = math.sqrt(square)
            above += (
                magnitude
                * (c * (s * s - y * y) + math.sin(phase) * 2.0 * s * y)
                / (square * square)
            )
            density += magnitude * c
            share = magnitude * (
                64.0
                + abs(height)
                - log_phi
                + unsure * r * math.exp(-log_phi / users)
                + 40.0 * eta2 * square
            )
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
def _negligible_ahead(
    users: float, log_phi: float, smoothed: float, slope: float, variance: float
) -> float:
    """Return how far from here |phi|^n stays below e^-40, from |phi|^2 and its slope.

    `log_phi` is log |phi|^n, and `smoothed` the exponent that the smoothing takes off in addition.
    Returns 0 if nothing is certain.
    """
    need = -math.expm1(-2.0 * (LOG_NEGLIGIBLE - smoothed) / users)
    room = -math.expm1(2.0 * log_phi / users) - need
    if not room > 1e-3 * need:
        return 0.0
    return float(_reached(room, slope, variance))


@njit(cache=True, error_model="numpy")
def _reached(room: float, slope: float, variance: float) -> float:
    """Return the largest t with slope t + variance t^2 <= room."""
    root = math.sqrt(slope * slope + 4.0 * variance * room)
    return 2.0 * room / (slope + root) if slope > 0.0 else (root - slope) / (2.0 * variance)


@njit(cache=True, error_model="numpy")
def _slow_ahead(users: float, smoothed: float, square: float, slope: float, slow: Slow) -> float:
    """Return how far |phi|^n stays below e^-40 from the slow part alone, for any other atoms.

    |phi| is at most the modulus of the slow part plus the mass of the other atoms. `square` is the
    squared modulus of the slow part, and `slope` its derivative.
    """
    most = math.exp(-(LOG_NEGLIGIBLE - smoothed) / users) - slow.others
    if not (most > 0.0 and most * most - square > CLEAR):
        return 0.0
    return float(_reached(most * most - square, slope, slow.variance))


@njit(cache=True, error_model="numpy")
def _bracket(
    users: float,
    scale: float,
    eta2: float,
    tilt: ContourTilt,
    sums: NodeSums,
    h: float,
    last: float,
    period: float,
    alias: float,
) -> tuple[float, float]:
    """Return (lower, upper) from the sums.

    Both ends allow for rounding and for the nodes that were left out, the lower end also for
    aliases and smoothing.
    """
    s = tilt.s
    height = tilt.height
    nodes = sums.nodes
    end = h * last
    tiny = math.exp(-LOG_NEGLIGIBLE + 0.1)
    outside = math.exp(-0.5 * eta2 * end * end)
    left_out = outside / (math.pi * end) + tiny / s
    left_out_density = outside / (math.pi * eta2 * end) + tiny * end
    rounding = ROUNDOFF * (
        sums.loss + (nodes + 24.0 + 2.0 * abs(math.log(scale / users))) * sums.size
    )
    # Logarithms are used because e^height alone may underflow where the result does not.
    log_unit = height + math.log(scale / users)
    unit = math.exp(max(log_unit, LOG_LEAST))
    upper = (
        unit * ((sums.above + rounding) * h / (2.0 * math.pi) + left_out) * (1.0 + 16.0 * ROUNDOFF)
    )
    doubt = ROUNDOFF * (sums.loss_density + (nodes + 8) * sums.size_density)
    bump = eta2 * ((sums.density + doubt) * h / (2.0 * math.pi) + left_out_density)
    folded = math.exp(-s * period + 1e-9)
    alias += (
        folded
        / (1.0 - folded) ** 2
        * ((sums.above + rounding) * h / (2.0 * math.pi) + left_out + period * math.exp(-height))
    )
    if log_unit < LOG_LEAST:
        return 0.0, upper
    return unit * ((sums.above - rounding) * h / (2.0 * math.pi) - left_out - alias - bump) * (
        1.0 - 16.0 * ROUNDOFF
    ), upper


@njit(cache=True, error_model="numpy")
def _zero_draws_term(
    users: float, drawn_mass: float, zero_mass: float, atoms: int, scale: float, eta2: float
) -> float:
    """Return what the outcome in which all draws are 0 adds to the smoothed value, rounded down."""
    if not zero_mass > 4.0 * (atoms + 16) * ROUNDOFF:  # the mass may be mere rounding
        return 0.0
    nothing = users * math.log1p(-drawn_mass)
    nothing -= ROUNDOFF * (abs(nothing) + 2.0 * (atoms + 16) * users * drawn_mass / zero_mass)
    return (
        math.exp(nothing)
        * math.sqrt(eta2 / (2.0 * math.pi))
        * scale
        / users
        * (1.0 - 64.0 * ROUNDOFF)
    )


@njit(cache=True, error_model="numpy")
def contour(
    users: float, mass: Floats, value: Floats, doubt: Floats, width: float, limit: int
) -> tuple[float, float, int]:
    """Return (lower, upper, nodes); the ends are a bracket of (1/n) E[(G_1 + .. + G_n)_+].

    Returns (0, inf, nodes) if nothing is certified. With W ~ N(0, eta^2), eta = width * span:
    E[(S+W)_+] = (1/2 pi i) int M(z)^n e^(eta^2 z^2/2) z^-2 dz on Re z = s > 0, by the trapezoid
    rule of step h = 2 pi/X, X the period.
    Above: by Jensen, smoothing only adds. By Poisson, the full trapezoid sum is the sum over whole
    k of e^(-skX) E[(S+W+kX)_+]. All terms are >= 0; the wanted one is k = 0. That all draws are 0
    has probability P0; it adds P0 eta/sqrt(2 pi) to the smoothed value, nothing to the wanted one.
    Below: smoothing adds int_0^(eta^2) f_v(0)/2 dv <= eta^2 f(0), f_v the density of S + N(0,v) and
    f = f_(eta^2), because sqrt(v) f_v(0) increases with v. The terms with k < 0 are bounded by x_+
    <= e^(tx)/(t e) at a t > s chosen in `_period`, those with k > 0 by S+W+kX <= (S+W)_+ + kX.
    Truncation: two kinds of nodes are left out. Beyond the last node y = Y, |phi| <= 1, and the
    smoothing makes the terms small. Inside, stretches where |phi|^n stays below e^-40 are skipped:
    |phi|^2 = E cos(y(x-x')), x' an independent copy of x under the tilted law, has a second
    derivative of at most 2V, V the variance of the tilted law. So from its value f and slope f' at
    y it is at most f + f' t + V t^2 at y + t. The same holds for the squared modulus of the slow
    part of phi (the atoms near the heaviest one), with a much smaller V; |phi| is at most this
    modulus plus the mass of the other atoms (`_slow`).
    Rounding: with Z = M(s) and B1 = sum w doubt max(1, e^(sx))/Z over the atoms (doubt in units of
    scale), the computed log M(z) is wrong by at most (K+40)u B1 |z| Z/|M(z)|, and the logarithm of
    a term by n times that.
    """
    scale = np.max(np.abs(value))
    if not (0.0 < scale < 1e300 and users >= 1.0):
        return 0.0, math.inf, 0
    x = np.empty(value.size)
    top = 0.0
    bottom = 0.0
    drawn_mass = 0.0
    for i in range(value.size):
        x[i] = value[i] / scale
        top = max(top, x[i])
        bottom = min(bottom, x[i])
        drawn_mass += mass[i]
    if not top > 0.0:
        return 0.0, math.inf, 0
    span = top - bottom
    zero_mass = max(0.0, 1.0 - drawn_mass)
    eta2 = (width * span) ** 2
    tilt = _tilt(
        users, mass, x, doubt, scale, zero_mass, eta2, _saddle(users, mass, x, top, span, eta2)
    )
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
