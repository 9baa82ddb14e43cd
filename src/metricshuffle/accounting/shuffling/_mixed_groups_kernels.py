# mypy: disable-error-code="untyped-decorator"
"""Compiled bounds on E[(sum of c_j G_j)_+] for people of several groups of known sizes.

Used by `mixed_groups_bound`; imported lazily. The other people are divided into parts. Person j of
part h has the weight c_j = c_h, and G_j is the random variable G_x of `input_class_laws` for the
class x of their input. The laws of all input classes are stored one after another as in
`_full_law_kernels`, but with values that are already multiplied by the weight of their part. M_x(z)
= E e^(z G) is the moment generating function of the stored law of class x.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from metricshuffle.numerics.rounding import ROUNDOFF
from metricshuffle.numerics.types import Floats, Integers64


@njit(cache=True, error_model="numpy")
def log_moduli(
    starts: Integers64,
    mass: Floats,
    value: Floats,
    top: Floats,
    error_ratio: Floats,
    s: float,
    step: float,
    parts: Integers64,
    out: Floats,
) -> None:
    """Compute out[h, k] >= log |M_x(s + i k step)| for every input class x of part h.

    The input classes of part h are those from parts[h] to parts[h+1]. The bound for an input class
    x is never above log M_x(s). `top` and `error_ratio` are those of
    `_full_law_kernels.log_moments_above`: with K the number of atoms and z = s + i k step, the
    computed log |M_x(z)| is wrong by at most (K+40) units of ROUNDOFF times error_ratio |z|
    M_x(s)/|M_x(z)|. Where that is more than 0.1, M_x(s) is taken instead.
    """
    out[:, :] = -math.inf
    for h in range(parts.size - 1):
        for x in range(parts[h], parts[h + 1]):
            size = starts[x + 1] - starts[x]
            grown = np.empty(size)
            tilted = np.empty(size)
            values = value[starts[x] : starts[x + 1]]
            for i in range(size):
                grown[i] = mass[starts[x] + i] * math.expm1(s * values[i])
                tilted[i] = mass[starts[x] + i] * math.exp(s * values[i])
            unsure = (size + 40.0) * ROUNDOFF * error_ratio[x]
            for k in range(out.shape[1]):
                y = k * step
                re = 0.0
                im = 0.0
                for i in range(size):
                    angle = 0.5 * y * values[i]
                    sine = math.sin(angle)
                    half = 2.0 * tilted[i] * sine
                    re += grown[i] - half * sine
                    im += half * math.cos(angle)
                square = re * (2.0 + re) + im * im  # |M|^2 - 1
                log_modulus = (
                    0.5 * math.log1p(square)
                    if square > -0.5
                    else math.log(math.hypot(1.0 + re, im))
                )
                off = (
                    unsure * math.hypot(s, y) * math.exp(min(max(top[x] - log_modulus, 0.0), 30.0))
                )
                believed = (
                    min(max(log_modulus, top[x] - 30.0) + off * (1.0 + 2.0 * off), top[x])
                    if off < 0.1
                    else top[x]
                )
                out[h, k] = max(out[h, k], believed)
