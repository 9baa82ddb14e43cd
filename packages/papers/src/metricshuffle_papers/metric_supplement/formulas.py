"""Formulas of the metric shuffle supplement (WitchHat) that are false or very loose.

The corrected statements are in `accounting.shuffling.closed_form_bounds` and
`randomizers.witch_hat`; these exist for comparison, and no guarantee can be made of them. `local` =
D(a, b) and the like are local epsilons, totals; log is the natural logarithm.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metricshuffle.accounting.shuffling.closed_form_bounds import chernoff_clones
from metricshuffle.citations import theorem
from metricshuffle.errors import ConditionError, InputError
from metricshuffle_papers.published import Published, checked_number, checked_people, open_delta

Floats = NDArray[np.float64]

_LOWER = (
    "amplification.padded_exponential_lower, which is rounded down and takes any number of users"
)
_BISECTIONS = 40
_MOST_COUNTED = 120  # outcomes are n^3/6


@theorem("WitchHat", "variance bound of the supplement, as published: false")
def witch_hat_variance_bound(
    half_width: float, epsilon: float, spread: float, value: float
) -> Published:
    """Upper bound on the variance of WitchHat's estimate of x.

    Statement: at most N(e^-m B (8B^2 + 12 m F B + 6 m^2 F) + 6F^3 + 3N x^2)/(12 F^2 k^2), B
    half_width, m epsilon, F spread, N = F(1-e^-m) + 2Be^-m, k = 1 - e^-m - m e^-m.
    Conditions: |x| <= B.
    Reference: false: 6 m^2 F must be 6 m^2 F^2 (the units show it). B=10, m=2, F=5, x=6: printed
    290.8, exact 299.0.
    """
    b = checked_number("half_width", half_width, 0.0)
    m = checked_number("epsilon", epsilon, 0.0)
    f = checked_number("spread", spread, 0.0)
    if not abs(value) <= b:
        raise InputError(f"value must lie within +-{b:g}, got {value!r}.")
    flat = math.exp(-m)
    n = f * (1.0 - flat) + 2.0 * b * flat
    kappa = 1.0 - flat - m * flat
    inside = (
        flat * b * (8.0 * b**2 + 12.0 * m * f * b + 6.0 * m**2 * f)
        + 6.0 * f**3
        + 3.0 * n * value**2
    )
    return Published(
        n * inside / (12.0 * f**2 * kappa**2),
        "WitchHat variance",
        "false",
        "randomizers.WitchHat.variance, which is exact",
    )


@theorem("WitchHat", "Theorem 1 with the factor of Step 3, as published: loose")
def theorem_1_epsilon(local: float, log_ratio: float, users: int, delta: float) -> Published:
    """Epsilon of Theorem 1 with q = e^D/(e^D+1).

    Statement: eps = log(1 + q (2s+1)/(Omega/2 - s)), s = sqrt(Omega L/2), L = log(4/delta), Omega =
    (n-1) 2/R - sqrt(3 (n-1) (2/R) L), log_ratio = log R.
    Conditions: Omega > 2L.
    Reference: true but loose: the total variation (e^D-1)/(e^D+1) = 2q - 1, used in Corollary 2, is
    enough; the printed one does not even vanish with D.
    """
    local = checked_number("local", local, 0.0)
    log_4 = math.log(4.0 / open_delta(delta))
    omega = chernoff_clones(
        checked_number("log_ratio", log_ratio, 0.0), checked_people(users), delta
    )
    if not omega > 2.0 * log_4:
        raise ConditionError(
            "Theorem 1 of WitchHat", f"Omega > 2 log(4/delta) = {2.0 * log_4:.6g}", f"{omega:.6g}"
        )
    s = math.sqrt(0.5 * omega * log_4)
    claim = math.log1p((2.0 * s + 1.0) / (0.5 * omega - s) / (1.0 + math.exp(-local)))
    return Published(
        claim,
        "Theorem 1",
        "loose",
        "accounting.shuffling.closed_form_bounds.theorem_1, or accounting.shuffling",
    )


def padded_rows(ab: float, ac: float, bc: float) -> Floats:
    """Table I: the padded exponential mechanism on a, b, c and "none"."""
    distances = np.array([[0.0, ab, ac], [ab, 0.0, bc], [ac, bc, 0.0]])
    sums = np.exp(-distances).sum(axis=1)
    sides = ((0, 1, ab), (0, 2, ac), (1, 2, bc))
    most = max(max(sums[i], sums[j]) + abs(sums[i] - sums[j]) / math.expm1(d) for i, j, d in sides)
    kept = np.exp(-distances) / most
    return np.column_stack([kept, np.maximum(0.0, 1.0 - kept.sum(axis=1))])


def _count_laws(rows: Floats, users: int, first: int, last: int) -> tuple[Floats, Floats]:
    """Laws of the counts (A, B, C) with a and with b among n-1 others at c.

    Each count starts at `first`; the total is at most `last`.
    """
    from scipy.special import gammaln, xlogy

    grid = np.indices((users + 1,) * 3).reshape(3, -1)
    grid = grid[:, (grid.min(axis=0) >= first) & (grid.sum(axis=0) <= last)]
    counts = np.vstack([grid, users - grid.sum(axis=0)])
    held = rows[2] > 0.0
    log_ways = (
        gammaln(users + 1.0)
        - gammaln(counts + 1.0).sum(axis=0)
        + xlogy(counts, rows[2][:, None]).sum(axis=0)
    )
    each = np.exp(log_ways) / users
    with_a, with_b = (each * ((row[held] / rows[2][held]) @ counts[held]) for row in rows[:2])
    return np.asarray(with_a), np.asarray(with_b)


@theorem("WitchHat", "Algorithm 2, as published: loose")
def algorithm_2_epsilon(
    ab: float, ac: float, bc: float, users: int, delta: float, *, printed: bool = True
) -> Published:
    """Lower bound on epsilon over all D-private mechanisms on {a, b, c}.

    It is attained by the padded exponential mechanism, all others at c.
    Statement: bisection of delta = max over both directions of sum (P - e Q)_+ over the counts of
    reports a, b, c; lower end.
    Conditions: a metric on the three points; at most 120 users. Counts run over A in [n], B in
    [n-1-A], C in [n-1-A-B] as printed; with printed=False over all of them.
    Reference: true but weak: the printed loops miss A = 0 and reports without "none". The printed
    multinomial coefficients are garbled and are not used. With more values than three, N must be
    the maximum over ALL pairs.
    """
    sides = [
        checked_number(name, value, 0.0, 700.0)
        for name, value in (("ab", ab), ("ac", ac), ("bc", bc))
    ]
    if 2.0 * max(sides) > sum(sides) * (1.0 + 1e-12):
        raise ConditionError(
            "Algorithm 2 of WitchHat", "the triangle inequality", f"sides {ab:g}, {ac:g} and {bc:g}"
        )
    users = checked_people(users)
    delta = open_delta(delta)
    if users > _MOST_COUNTED:
        raise InputError(
            f"Algorithm 2 looks at every outcome: at most {_MOST_COUNTED} users, got {users}."
        )
    first, last = (1, users - 1) if printed else (0, users)
    one, other = _count_laws(padded_rows(ab, ac, bc), users, first, last)
    low = 0.0
    high = ab
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        e = math.exp(middle)
        found = max(
            float(np.maximum(one - e * other, 0.0).sum()),
            float(np.maximum(other - e * one, 0.0).sum()),
        )
        low, high = (low, middle) if found < delta else (middle, high)
    return Published(
        low,
        "Algorithm 2" if printed else "Algorithm 2 with every outcome",
        "loose" if printed else "true",
        _LOWER,
    )


@theorem("WitchHat", "Algorithm 1, lines 7 to 16, as published: true")
def algorithm_1_semi_metric(target: ArrayLike, diameter: float, users: int, delta: float) -> Floats:
    """Local distances that Corollary 1 amplifies to at most `target`, capped at `diameter` = m.

    Statement: D(a, b) = min(m, max(target, v)), v the largest with log(1 + tanh(v/2) g) <= target,
    g = (2s+1)/(Omega/2-s), Omega = (n-1)e^-m - sqrt(3(n-1)e^-m L), s = sqrt(Omega L/2), L =
    log(4/delta); without v if Omega <= 2L.
    Reference: feasible, but a SEMI-metric: it can break the triangle inequality, and a mechanism
    for it is private for its shortest-path closure. Close it, then account again, as solving does;
    the amplified table itself must not be closed.
    """
    wanted = np.asarray(target, dtype=np.float64)
    n = checked_people(users)
    log_4 = math.log(4.0 / open_delta(delta))
    m = checked_number("diameter", diameter, 0.0, 700.0)
    omega = (n - 1) * math.exp(-m) - math.sqrt(3.0 * (n - 1) * math.exp(-m) * log_4)
    if omega <= 2.0 * log_4:
        return np.minimum(wanted, m)
    s = math.sqrt(0.5 * omega * log_4)
    room = np.expm1(wanted) * (0.5 * omega - s) / (2.0 * s + 1.0)
    with np.errstate(divide="ignore"):
        solved = np.where(room < 1.0, 2.0 * np.arctanh(np.minimum(room, 1.0)), math.inf)
    return np.asarray(np.minimum(np.maximum(solved, wanted), m))
