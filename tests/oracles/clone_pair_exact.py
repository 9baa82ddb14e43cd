"""Clone pair's hockey-stick divergence from its definition, with 60 digits.

It sums over every pair of counts, without a formula for the tails.
"""

from __future__ import annotations

import mpmath


def pair_delta(
    log_p: float,
    log_q0: float,
    log_q1: float,
    users: int,
    epsilon: float,
    *,
    swapped: bool | None = None,
) -> mpmath.mpf:
    """Max over both directions (or one) of sum over (a, b) of (P - e^epsilon Q)_+.

    P and Q are as in the theorem.
    """
    with mpmath.workdps(60):
        p = mpmath.exp(mpmath.mpf(log_p))
        e = mpmath.exp(mpmath.mpf(epsilon))
        r0, r1 = (p / ((p + 1) * mpmath.exp(mpmath.mpf(q))) for q in (log_q0, log_q1))
        rest = 1 - r0 - r1
        own = p / (p + 1)
        other = 1 / (p + 1)

        def others(a: int, b: int) -> mpmath.mpf:
            if a < 0 or b < 0 or a + b > users - 1:
                return mpmath.mpf(0)
            ways = mpmath.binomial(users - 1, a) * mpmath.binomial(users - 1 - a, b)
            return ways * r0**a * r1**b * rest ** (users - 1 - a - b)

        table = {(a, b): others(a, b) for a in range(users + 1) for b in range(users + 1 - a)}
        zero = mpmath.mpf(0)
        forwards = mpmath.mpf(0)
        backwards = mpmath.mpf(0)
        for a, b in table:
            first = table.get((a - 1, b), zero)
            second = table.get((a, b - 1), zero)
            x = own * first + other * second
            y = other * first + own * second
            forwards += max(x - e * y, zero)
            backwards += max(y - e * x, zero)
        return max(forwards, backwards) if swapped is None else (backwards if swapped else forwards)


def given_clones(
    log_p: float, log_q0: float, log_q1: float, clones: int, epsilon: float
) -> mpmath.mpf:
    """Divergence of P from Q given C = clones, with 60 digits for any number of clones.

    It is (p-e)/(p+1) P(k-1) - (e-1) S(k).
    """
    with mpmath.workdps(60):
        p = mpmath.exp(mpmath.mpf(log_p))
        e = mpmath.exp(mpmath.mpf(epsilon))
        r0 = mpmath.exp(-mpmath.mpf(log_q0))
        r1 = mpmath.exp(-mpmath.mpf(log_q1))
        rho = r0 / (r0 + r1)
        w0 = (p - e) / r0
        w1 = (p * e - 1) / r1
        k = min(int(mpmath.floor(w1 * (clones + 1) / (w0 + w1))) + 1, clones + 1)
        log = mpmath.loggamma(clones + 1) - mpmath.loggamma(k) - mpmath.loggamma(clones - k + 2)
        mass = mpmath.exp(log + (k - 1) * mpmath.log(rho) + (clones - k + 1) * mpmath.log(1 - rho))
        tail = mpmath.mpf(0)
        term = mass
        j = k
        if (
            clones > 10_000
        ):  # Lentz on the fraction of Numerical Recipes, another one than the code's
            tail = mass * (clones - k + 1) * rho / k / _beta_fraction(k, clones - k + 1, rho)
        else:
            while j <= clones:
                term *= (clones - j + 1) * rho / (j * (1 - rho))
                tail += term
                j += 1
        return (p - e) / (p + 1) * mass - (e - 1) * tail


def _beta_fraction(a: int, b: int, x: mpmath.mpf) -> mpmath.mpf:
    """1 + d_1/(1 + d_2/(1 + ..)) with I_x(a, b) = x^a (1-x)^b / (a B(a, b)) / it."""
    terms = 1200
    value = mpmath.mpf(1)
    for m in range(terms, 0, -1):
        even = m * (b - m) * x / mpmath.mpf((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m - 1) * (a + b + m - 1) * x / mpmath.mpf((a + 2 * m - 2) * (a + 2 * m - 1))
        value = 1 + odd / (1 + even / value)
    return value


def contour_delta(log_p: float, log_q0: float, log_q1: float, users: int, epsilon: float) -> float:
    """Divergence in one direction by Laplace inversion of (1/n) E(G_1+..+G_n)_+.

    For so many users (1e9 and more) that the grid of the sum does not matter (relative error about
    1/users).
    """
    with mpmath.workdps(28):
        p = mpmath.exp(mpmath.mpf(log_p))
        e = mpmath.exp(mpmath.mpf(epsilon))
        q0 = mpmath.exp(mpmath.mpf(log_q0))
        q1 = mpmath.exp(mpmath.mpf(log_q1))
        atoms = [(p / ((p + 1) * q0), q0 * (1 - e / p)), (p / ((p + 1) * q1), q1 * (1 / p - e))]

        def log_moment(s: mpmath.mpc) -> mpmath.mpc:
            return users * mpmath.log1p(
                sum(mass * mpmath.expm1(s * value) for mass, value in atoms)
            )

        low = mpmath.mpf("1e-30")
        high = mpmath.mpf(1)
        for _ in range(60):  # the saddle point of log_moment - 2 log s
            middle = mpmath.sqrt(low * high)
            total = 1 + sum(mass * mpmath.expm1(middle * value) for mass, value in atoms)
            slope = (
                users
                * sum(mass * value * mpmath.exp(middle * value) for mass, value in atoms)
                / total
                - 2 / middle
            )
            low, high = (low, middle) if slope > 0 else (middle, high)
        s = low
        spread = mpmath.sqrt(users * sum(mass * value**2 for mass, value in atoms))

        def integrand(y: mpmath.mpf) -> mpmath.mpf:
            point = mpmath.mpc(s, y)
            return (mpmath.exp(log_moment(point) - log_moment(s)) / point**2).real

        edges = [j / spread for j in (0, 1.5, 4, 8)]
        return float(
            mpmath.exp(log_moment(s))
            * mpmath.quad(integrand, edges, maxdegree=4)
            / (mpmath.pi * users)
        )
