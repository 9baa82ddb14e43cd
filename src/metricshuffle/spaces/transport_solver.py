"""Earth mover's distance for any table of distances, as an optimal plan with a proof of optimality.

Sinkhorn's regularised plan and sliced distances are not used: neither is the distance (one lies
above it, the other below), and a privacy guarantee stated at a distance that is too small does not
hold.
"""

from __future__ import annotations

import math
import warnings
from contextlib import ExitStack
from threading import Lock

import numpy as np

from metricshuffle.citations import theorem
from metricshuffle.errors import InputError, NotCertified, require
from metricshuffle.numerics.rounding import ULP
from metricshuffle.numerics.types import Floats
from metricshuffle.spaces.earth_mover_formulas import EarthMoversDistance, shares

# Largest gap between the plan's cost and the proved lower bound, in units of the largest distance.
LARGEST_GAP = 1e-9
MAX_STEPS = 10_000_000


class _SuppressWarnings:
    """Context manager that suppresses warnings.

    Filters are process-wide, so the first thread to enter installs them and the last to leave
    restores them.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._inside = 0
        self._before = ExitStack()

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._before.enter_context(warnings.catch_warnings(action="ignore"))
            self._inside += 1

    def __exit__(self, *failed: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._before.close()


_NO_WARNINGS = _SuppressWarnings()


@theorem("metricshuffle", "certified transport")
def transport(
    costs: object, weights_a: object, weights_b: object, *, _steps: int = MAX_STEPS
) -> EarthMoversDistance:
    """Least cost of moving `weights_a` (rows of `costs`) onto `weights_b` (columns).

    Both weights are divided by their totals.
    Statement: let C be the costs, a and b the weights divided by their totals, 1 a vector of ones,
    <G, C> the sum of G_ij C_ij and G' the transpose of G. Any plan G >= 0 bounds the distance from
    above by <G, C> + max C * (|G 1 - a|_1 + |G' 1 - b|_1), since mass that is missing or in excess
    can be moved at no more than max C. Any u, v with u_i + v_j <= C_ij bound it from below by u.a +
    v.b (weak duality). The network simplex finds G, u, v for which the two bounds agree.
    Conditions: the solver reports an optimal plan, and the bounds agree to 1e-9 max C; NotCertified
    otherwise. A solver that stops early returns a plan that leaves mass behind, whose cost is far
    too small.
    Numerics: C is divided by a power of 2 (exact) since the solver's tolerances are absolute; v_j
    is replaced by min_i (C_ij - u_i), which makes the dual feasible; points without mass are left
    out. Needs the extra `transport`.
    """
    ot = require("ot", "transport")
    table = np.asarray(costs, dtype=np.float64)
    if table.ndim != 2 or 0 in table.shape:
        raise InputError(
            "costs must be a table with a row for each point moved from and a column for "
            f"each moved to, got {table.shape}."
        )
    a = shares(weights_a, table.shape[0], "weights_a")
    b = shares(weights_b, table.shape[1], "weights_b")
    rows = a > 0
    columns = b > 0
    if not (rows.all() and columns.all()):
        a = a[rows]
        b = b[columns]
        table = table[np.ix_(rows, columns)]
    scaled, exponent = _near_one(table)
    if not scaled.any():
        return EarthMoversDistance(0.0, 0.0, "transport")
    with _NO_WARNINGS:  # the solver only warns when it stops early; here that is an error
        plan, log = ot.emd(a, b, scaled, numItermax=_steps, log=True)
    if log["warning"] is not None or log["result_code"] != 1:
        raise NotCertified(
            f"the earth mover's distance of {len(a):,} and {len(b):,} points stopped "
            "early, before the plan was optimal "
            f"({log['warning'] or 'no reason given'}): no distance is reported, since that "
            "of an unfinished plan is too small."
        )
    violation = float(np.abs(plan.sum(axis=1) - a).sum() + np.abs(plan.sum(axis=0) - b).sum())
    violation += ULP * sum(
        int((plan != 0.0).sum(axis=axis).max()) for axis in (0, 1)
    )  # rounding of these sums
    filled = np.flatnonzero(plan != 0.0)
    flows = plan.ravel()[filled]
    cost = (
        math.inf if not (flows > 0).all() else math.fsum((flows * scaled.ravel()[filled]).tolist())
    )
    return certified(scaled, exponent, a, b, cost, violation, log["u"], "transport")


@theorem("metricshuffle", "earth mover's distance of sets of one size")
def assignment(costs: object) -> EarthMoversDistance:
    """Earth mover's distance of two sets of one size m: the cheapest pairing divided by m.

    Statement: between uniform weights there is an optimal plan that moves no item in parts
    (Birkhoff).
    Numerics: the pairing of rows and columns is a plan, so its cost is an upper bound whatever
    rounding did to the search. Let C be the costs and pair(i) the column paired with row i. The
    lower bound is `certified` from prices v of the columns with v_j = min_i (v_pair(i) + C_ij -
    C_i,pair(i)), which exist for an optimal pairing and are found by iteration.
    """
    from scipy.optimize import linear_sum_assignment

    table = np.asarray(costs, dtype=np.float64)
    if table.ndim != 2 or table.shape[0] != table.shape[1] or table.size == 0:
        raise InputError(
            f"costs must be a square table, for two sets of one size, got shape {table.shape}."
        )
    scaled, exponent = _near_one(table)
    if not scaled.any():
        return EarthMoversDistance(0.0, 0.0, "assignment")
    _, pair = linear_sum_assignment(scaled)
    many = len(pair)
    paired = scaled[np.arange(many), pair]
    prices = np.zeros(many)
    reduced = scaled - paired[:, None]
    for _ in range(many):
        lower = (prices[pair][:, None] + reduced).min(axis=0)
        settled = (prices - lower).max() <= ULP * many
        prices = lower
        if settled:
            break
    even = np.full(many, 1.0 / many)
    return certified(
        scaled,
        exponent,
        even,
        even,
        math.fsum(paired.tolist()) / many,
        0.0,
        paired - prices[pair],
        "assignment",
    )


def certified(
    costs: Floats,
    exponent: int,
    a: Floats,
    b: Floats,
    cost: float,
    violation: float,
    potentials: object,
    how: str,
) -> EarthMoversDistance:
    """Combine a plan's cost with the lower bound from the potentials.

    Raises NotCertified if they differ. Costs are in units of 2^exponent.
    """
    u = np.asarray(potentials, dtype=np.float64)
    v = (costs - u[:, None]).min(axis=0)
    max_cost = float(costs.max())
    # 64 units cover the division of a and b by their totals, and every product and sum below.
    lower = (
        math.fsum((u * a).tolist())
        + math.fsum((v * b).tolist())
        - 64 * ULP * float(max_cost + np.abs(u).max() + np.abs(v).max())
    )
    upper = cost + max_cost * violation + 64 * ULP * max_cost
    if not upper - lower <= LARGEST_GAP * max_cost:
        raise NotCertified(
            f"the earth mover's distance of {len(a):,} and {len(b):,} points could not be "
            "certified: the plan costs "
            f"{upper / max_cost!r} and "
            f"at least {lower / max_cost!r} is proved to be necessary, in units of the "
            "largest distance. Merge points of tiny weight, "
            f"or use fewer points."
        )
    return (
        EarthMoversDistance(upper, max(0.0, lower), how)
        .scaled(2.0 ** (exponent // 2))
        .scaled(2.0 ** (exponent - exponent // 2))
    )


def _near_one(costs: Floats) -> tuple[Floats, int]:
    """Costs divided by a power of 2 so that the largest is below 1, and that power."""
    max_cost = float(costs.max())
    if not (math.isfinite(max_cost) and float(costs.min()) >= 0.0):
        raise InputError("costs must be finite numbers that are at least 0.")
    exponent = math.frexp(max_cost)[1]
    half = -exponent // 2  # in two steps, since 2^1074 is not a double
    return np.ascontiguousarray(
        costs * 2.0**half * 2.0 ** (-exponent - half)
        if abs(exponent) > 1000
        else costs * 2.0**-exponent
    ), exponent
