"""How small a bound can be that holds for every metric-private mechanism: one mechanism that leaks as much as it may."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from metricshuffle.accounting.shuffling.blanket_law import BlanketLaw
from metricshuffle.amplification.lower_bound import DataSetInputs, DataSetLower
from metricshuffle.citations import theorem
from metricshuffle.errors import ConditionError, InputError
from metricshuffle.numerics.types import Floats

BOUND_LABEL = "no bound valid for every D-private mechanism can be smaller"


@theorem("metricshuffle", "padded exponential mechanism (PEM) on three points")
def pem_rows(distances: ArrayLike, points: tuple[int, int, int]) -> Floats:
    """The padded exponential mechanism of a finite metric D with three reports besides the empty one.

    Statement: K(x)[z] = e^-D(x,z)/N for z in `points`, the rest on an empty report; S(x) = sum of e^-D(x,z), and N is the
    largest max(S,S') + |S - S'|/(e^D(x,x') - 1) over ALL pairs x, x' of the domain (three points alone are not enough).
    Then K is D-private. Proof: a report z changes by e^(D(x,z)-D(x',z)) <= e^D(x,x'), and N - S' <= e^D(x,x') (N - S)
    is N >= (e^D S - S')/(e^D - 1). N <= 2 max S + the largest |S - S'|/(e^D - 1), which is finite, as |S-S'| <= 3 (e^D - 1).
    Conditions: D is a metric of totals (ConditionError otherwise); pairs at distance 0 are one point. Numerics: N is rounded up,
    which keeps K D-private.
    """
    d = np.asarray(distances, dtype=np.float64)
    if d.ndim != 2 or d.shape[0] != d.shape[1] or not np.all(np.isfinite(d)) or d.min() < 0.0:
        raise InputError(f"distances must be a square matrix of finite numbers >= 0, got shape {d.shape}.")
    if not all(0 <= point < len(d) for point in points):
        raise InputError(f"points must be rows 0..{len(d) - 1}, got {points!r}.")
    slack = 1e-12 * float(d.max())
    if not np.abs(d - d.T).max() <= slack or np.any(np.diag(d)):
        raise ConditionError("The padded exponential mechanism", "a metric", "distances are not symmetric, or not 0 on the diagonal")
    for middle in range(len(d)):
        over = d - (d[:, middle, None] + d[None, middle, :])
        if not over.max() <= slack:
            a, b = (int(index) for index in np.unravel_index(int(np.argmax(over)), d.shape))
            raise ConditionError(
                "The padded exponential mechanism", "the triangle inequality", f"D({a},{b}) > D({a},{middle}) + D({middle},{b})"
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
    """PEM on the three points a, b, c, all others at c, at a or at b: exact, at any number of users.

    Statement: K is D-private on {a, b, c}, so no bound that holds for every D-private mechanism and every domain with this
    D(a, b), reach(a) = max(ab, ac), reach(b) = max(ab, bc) can be smaller than the divergence of these data sets.
    (Algorithm 2 sums the counts of all four reports, in O(n^3), for the others at c; its printed loops miss some outcomes.)
    It says nothing about what another mechanism leaks. Conditions: a metric, ab > 0.
    """
    if not all(0.0 <= value < math.inf for value in (ab, ac, bc)) or not ab > 0.0:
        raise InputError(f"the three distances must be finite and ab > 0, got {ab!r}, {ac!r}, {bc!r}.")
    rows = pem_rows([[0.0, ab, ac], [ab, 0.0, bc], [ac, bc, 0.0]], (0, 1, 2))
    return [BlanketLaw.from_rows(rows, 0, 1, [other_input]) for other_input in (2, 0, 1)]


@dataclass(frozen=True)
class PemReaches:
    """The laws at a distance of a pair that reaches `reach` and `reach_other` (units); `rate` epsilon a unit."""

    rate: float
    reach: float
    reach_other: float

    def __call__(self, distance: float) -> list[BlanketLaw]:
        return pem_laws(*self._distances(distance))

    def _distances(self, distance: float) -> tuple[float, float, float]:
        """D(a, b), D(a, c) and D(b, c), as totals."""
        d = min(distance, self.reach, self.reach_other)
        ac, bc = min(self.reach, self.reach_other + d), min(self.reach_other, self.reach + d)
        return self.rate * d, self.rate * ac, self.rate * bc

    def named(self, distance: float, place: int) -> DataSetInputs:
        """Which of the laws is which: the others at c, at a, or at b."""
        ab, ac, bc = self._distances(distance)
        mechanism = f"the padded exponential mechanism on points a, b, c with D(a,b) = {ab:.6g}, D(a,c) = {ac:.6g}, D(b,c) = {bc:.6g}"
        return DataSetInputs("a", "b", "cab"[place], mechanism)


def pem_lower(rate: float, reach: float, reach_other: float, users: int) -> DataSetLower:
    """The lower bound over distances for a pair with these reaches; see `pem_laws` for what it means."""
    reaches = PemReaches(rate, reach, reach_other)
    return DataSetLower(reaches, users, BOUND_LABEL, named=reaches.named)
