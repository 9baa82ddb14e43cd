"""Blanket of two atoms that covers everything, whose (1/n) E[S_+] has a closed form.

The sum of G is binomial, for any n.
"""

from __future__ import annotations

import mpmath
from mpmath import mpf


def _tail_ratio(draws: int, k: int, chance: mpf) -> mpf:
    """P(Bin >= k)/P(Bin = k) by the incomplete beta function.

    It is k int_0^1 (1-v)^(k-1) (1 + v chance/(1-chance))^(draws-k) dv.
    """
    odds = chance / (1 - chance)
    rate = (k - 1) - (draws - k) * odds
    scale = 1 / mpmath.sqrt(rate**2 + k * (1 + odds))
    edges = [j * scale for j in (0, 1, 2, 4, 8, 16, 32, 64) if j * scale < 1] + [
        min(mpf(1), 128 * scale)
    ]
    return k * mpmath.quad(
        lambda v: mpmath.exp((k - 1) * mpmath.log1p(-v) + (draws - k) * mpmath.log1p(v * odds)),
        edges,
    )


def two_atom_delta(a: mpf, b: mpf, users: int, epsilon: float) -> mpf:
    """Exact divergence of the shuffled reports if all others hold a.

    w = K_a = (a, 1-a), K_b = (b, 1-b) with a > b. S = k x1 + (n-k) x2 > 0 from k0 on; (1/n) E[S_+]
    = (mean of G) P(Bin(n-1, a) >= k0) + x1 a P(Bin(n-1, a) = k0 - 1).
    """
    with mpmath.workdps(50):
        e = mpmath.exp(mpf(epsilon))
        x1 = (a - e * b) / a
        x2 = ((1 - a) - e * (1 - b)) / (1 - a)
        k0 = int(mpmath.floor(-users * x2 / (x1 - x2))) + 1
        n = users - 1
        if k0 > users:
            return mpf(0)
        log_mass = mpmath.loggamma(n + 1) - mpmath.loggamma(k0) - mpmath.loggamma(n - k0 + 2)
        mass = mpmath.exp(log_mass + (k0 - 1) * mpmath.log(a) + (n - k0 + 1) * mpmath.log1p(-a))
        tail = (
            mass * (n - k0 + 1) * a / (k0 * (1 - a)) * _tail_ratio(n, k0, a) if k0 <= n else mpf(0)
        )
        return -mpmath.expm1(mpf(epsilon)) * tail + x1 * a * mass
