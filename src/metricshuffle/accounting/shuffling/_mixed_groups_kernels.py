# mypy: disable-error-code="untyped-decorator"
"""Compiled: bounds on E[(sum of c_j G_j)_+] for people of several groups, so many of each (imported lazily).

Types stand one after another as in `_kernels`, values already times the coin of their group.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from metricshuffle.numerics.rounding import ROUNDOFF
from metricshuffle.numerics.types import Floats, Integers64


@njit(cache=True, error_model="numpy")
def log_moduli(
    starts: Integers64, mass: Floats, value: Floats, top: Floats, error_ratio: Floats, s: float, step: float, parts: Integers64, out: Floats
) -> None:
    """out[h, k] >= log |M_x(s + i k step)| for every type x of part h, those from parts[h] to parts[h+1]; as large as log M_x(s) at most.

    `top` and `wrong` as `_full_law_kernels.tops` gives them: log |M| is off by at most (K+40) units of wrong |z| M(s)/|M|, K the number
    of atoms;
    where that is more than 0.1, M(s) is taken.
    """
    out[:, :] = -math.inf
    for h in range(parts.size - 1):
        for x in range(parts[h], parts[h + 1]):
            size = starts[x + 1] - starts[x]
            grown, tilted, values = np.empty(size), np.empty(size), value[starts[x] : starts[x + 1]]
            for i in range(size):
                grown[i] = mass[starts[x] + i] * math.expm1(s * values[i])
                tilted[i] = mass[starts[x] + i] * math.exp(s * values[i])
            unsure = (size + 40.0) * ROUNDOFF * error_ratio[x]
            for k in range(out.shape[1]):
                y, re, im = k * step, 0.0, 0.0
                for i in range(size):
                    angle = 0.5 * y * values[i]
                    sine = math.sin(angle)
                    half = 2.0 * tilted[i] * sine
                    re += grown[i] - half * sine
                    im += half * math.cos(angle)
                square = re * (2.0 + re) + im * im  # |M|^2 - 1
                log_modulus = 0.5 * math.log1p(square) if square > -0.5 else math.log(math.hypot(1.0 + re, im))
                off = unsure * math.hypot(s, y) * math.exp(min(max(top[x] - log_modulus, 0.0), 30.0))
                believed = min(max(log_modulus, top[x] - 30.0) + off * (1.0 + 2.0 * off), top[x]) if off < 0.1 else top[x]
                out[h, k] = max(out[h, k], believed)
