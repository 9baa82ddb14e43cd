"""A lower limit of all bounds that hold for every metric-private mechanism, from one mechanism.

The mechanism is the padded exponential mechanism (PEM). A mechanism K is D-private if the laws K(x)
and K(x') of two inputs differ by a factor of at most e^D(x,x') at every report.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from metricshuffle.accounting.shuffling.blanket_law import BlanketLaw
from metricshuffle.amplification.lower_bound import DataSetInputs, DataSetLower
from metricshuffle.citations import theorem
from metricshuffle.errors import ConditionError, InputError, argument
from metricshuffle.numerics.types import Floats

BOUND_LABEL = "no bound valid for every D-private mechanism can be smaller"


@theorem("metricshuffle", "padded exponential mechanism (PEM) on three points")
def pem_rows(distances: ArrayLike, points: tuple[int, int, int]) -> Floats:
    """Return the padded exponential mechanism of a finite metric D with three non-empty reports.

    Statement: K(x)[z] = e^-D(x,z)/N is the probability of report z for input x, for z in `points`;
    the remaining probability is that of an empty report. Let S(x) be the sum of e^-D(x,z) over
    `points`; below, D = D(x,x'), S = S(x) and S' = S(x'). N is the largest value of max(S,S') +
    |S-S'|/(e^D - 1) over ALL pairs x, x' of the domain (the three points alone are not enough).
    Then K is D-private.
    Proof: from x to x' the probability of a report z changes by the factor e^(D(x,z)-D(x',z)) <=
    e^D. For the empty report, N - S' <= e^D (N - S) is equivalent to N >= (e^D S - S')/(e^D - 1). N
    is finite: N <= 2 max S + the largest |S-S'|/(e^D - 1), and |S-S'| <= 3 (e^D - 1).
    Conditions: D is a metric of totals (ConditionError otherwise); points at distance 0 are one.
    Numerics: N is rounded up, which keeps K D-private.
    """
    d = np.asarray(distances, dtype=np.float64)
    if d.ndim != 2 or d.shape[0] != d.shape[1] or not np.all(np.isfinite(d)) or d.min() < 0.0:
        raise InputError(
            f"{argument('distances')} must be a square matrix of finite numbers >= 0, got "
            f"shape {d.shape}."
        )
    if not all(0 <= point < len(d) for point in points):
        raise InputError(f"points must be rows 0..{len(d) - 1}, got {points!r}.")
    slack = 1e-12 * float(d.max())
    if not np.abs(d - d.T).max() <= slack or np.any(np.diag(d)):
        raise ConditionError(
            "The padded exponential mechanism",
            "a metric",
            "distances are not symmetric, or not 0 on the diagonal",
        )
    for middle in range(len(d)):
        over = d - (d[:, middle, None] + d[None, middle, :])
        if not over.max() <= slack:
            a, b = (int(index) for index in np.unravel_index(int(np.argmax(over)), d.shape))
            raise ConditionError(
                "The padded exponential mechanism",
                "the triangle inequality",
                f"D({a},{b}) > D({a},{middle}) + D({middle},{b})",
            )
    weights = np.exp(-d[:, list(points)])
    total = weights.sum(axis=1)
    gap = np.abs(total[:, None] - total[None, :]) + 1e-15
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        needed = np.maximum(total[:, None], total[None, :]) + gap / np.expm1(d)
    apart = d > 0.0
    largest = float(max(np.max(needed[apart], initial=0.0), total.max())) * (1.0 + 1e-15)
    return np.column_stack([weights / largest, np.maximum(0.0, 1.0 - total / largest)])


@theorem("metricshuffle", "PEM lower bound (Algorithm 2)")
def pem_laws(ab: float, ac: float, bc: float) -> list[BlanketLaw]:
    """Return laws of PEM on three points a, b, c, with all others at c, at a or at b.

    They are exact, at any number of users.

    Statement: let K be PEM (`pem_rows`) for the distances D(a, b) = ab, D(a, c) = ac, D(b, c) = bc.
    K is D-private on {a, b, c}, so no bound that holds for every D-private mechanism and every
    domain with this D(a, b), reach(a) = max(ab, ac), reach(b) = max(ab, bc) can be smaller than the
    divergence of these data sets. (Algorithm 2 sums the counts of all four reports, in O(n^3) for n
    users, for the others at c; its printed loops miss some outcomes.) This says nothing about what
    another mechanism leaks.
    Conditions: a metric, ab > 0.
    """
    if not all(0.0 <= value < math.inf for value in (ab, ac, bc)) or not ab > 0.0:
        raise InputError(
            f"the three distances must be finite and ab > 0, got {ab!r}, {ac!r}, {bc!r}."
        )
    rows = pem_rows([[0.0, ab, ac], [ab, 0.0, bc], [ac, bc, 0.0]], (0, 1, 2))
    return [BlanketLaw.from_rows(rows, 0, 1, [other_input]) for other_input in (2, 0, 1)]


@dataclass(frozen=True)
class PemReaches:
    """Maps a distance to the laws of a pair with reaches `reach` and `reach_other` (in units).

    `rate` is epsilon per unit.
    """

    rate: float
    reach: float
    reach_other: float

    def __call__(self, distance: float) -> list[BlanketLaw]:
        return pem_laws(*self._distances(distance))

    def _distances(self, distance: float) -> tuple[float, float, float]:
        """Return D(a, b), D(a, c) and D(b, c), as total epsilons."""
        d = min(distance, self.reach, self.reach_other)
        ac = min(self.reach, self.reach_other + d)
        bc = min(self.reach_other, self.reach + d)
        return self.rate * d, self.rate * ac, self.rate * bc

    def named(self, distance: float, place: int) -> DataSetInputs:
        """Return the inputs of one of the laws: the others at c, at a, or at b."""
        ab, ac, bc = self._distances(distance)
        mechanism = (
            f"the padded exponential mechanism on points a, b, c with D(a,b) = {ab:.6g}, "
            f"D(a,c) = {ac:.6g}, D(b,c) = {bc:.6g}"
        )
        return DataSetInputs("a", "b", "cab"[place], mechanism)


def pem_lower(rate: float, reach: float, reach_other: float, users: int) -> DataSetLower:
    """Return the lower bound over distances for a pair with these reaches; see `pem_laws`."""
    reaches = PemReaches(rate, reach, reach_other)
    return DataSetLower(reaches, users, BOUND_LABEL, named=reaches.named)
