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

LITTLE = -700.0  # e to this is nothing beside the first node


@njit(cache=True, error_model="numpy")
def falls(
    starts: Integers64, mass: Floats, value: Floats, top: Floats, wrong: Floats, s: float, step: float, nodes: int, out: Floats
) -> None:
    """out[x, k] >= log |M_x(s + i k step)| - top[x], at most 0; `top` and `wrong` as `_kernels.tops` gives them.

    log |M| is off by at most (K+40) units of wrong |z| M(s)/|M|, K the number of atoms; where that is more than 0.1, 0 is taken.
    """
    for x in range(starts.size - 1):
        unsure = (starts[x + 1] - starts[x] + 40.0) * ROUNDOFF * wrong[x]
        for k in range(nodes):
            y, re, im = k * step, 0.0, 0.0
            for i in range(starts[x], starts[x + 1]):
                angle = 0.5 * y * value[i]
                sine, cosine = math.sin(angle), math.cos(angle)
                grown = mass[i] * math.expm1(s * value[i])
                half = 2.0 * (mass[i] + grown) * sine
                re += grown - half * sine
                im += half * cosine
            square = re * (2.0 + re) + im * im  # |M|^2 - 1
            log_modulus = 0.5 * math.log1p(square) if square > -0.5 else math.log(math.hypot(1.0 + re, im))
            off = unsure * math.hypot(s, y) * math.exp(min(max(top[x] - log_modulus, 0.0), 30.0))
            out[x, k] = min(max(log_modulus - top[x], -30.0) + off * (1.0 + 2.0 * off), 0.0) if off < 0.1 else 0.0


@njit(cache=True, error_model="numpy")
def largest_sums(people: Floats, tuples: Integers64, top: Floats, fall: Floats, weight: Floats, outside: float) -> Floats:
    """For every row of `people` (how many of each group): the largest over `tuples` (a type for each group) of the logarithm of
    the product of M(s)^people times (sum of weight times the product of |M/M(s)|^people, + outside).

    A tuple that cannot exceed the largest so far, by |M| <= M(s), is left out.
    """
    groups, nodes = people.shape[1], weight.size
    found, every, exponent = np.full(people.shape[0], -math.inf), math.log(np.sum(weight) + outside), np.empty(nodes)
    for row in range(people.shape[0]):
        for place in range(tuples.shape[0]):
            height = 0.0
            for h in range(groups):
                height += people[row, h] * top[tuples[place, h]]
            if height + every <= found[row]:
                continue
            exponent[:] = 0.0
            for h in range(groups):
                if people[row, h] > 0.0:
                    many, x = people[row, h] * (1.0 - 8.0 * ROUNDOFF), tuples[place, h]
                    for k in range(nodes):
                        exponent[k] += many * fall[x, k]
            total = outside
            for k in range(nodes):
                if exponent[k] > LITTLE:
                    total += weight[k] * math.exp(exponent[k])
                else:
                    total += weight[k] * 1e-300
            value = height + math.log(total)
            if not value <= found[row]:
                found[row] = value
    return found
