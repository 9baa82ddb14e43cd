"""Local metrics that meet a target after shuffling, by Algorithms 1 and 3 and certified variants.

The target is D#(x, y) = epsilon d(x, y)/distance for EVERY pair of values x, y at distance d(x, y).
The values are low, low + step, .., high on a line, or the points of any finite space. A larger
local metric D means less noise in each report, so D should be as large as possible. There is a
trade-off: the smaller the largest value m of D (its diameter), the more clones every report has,
and the larger D may be for near pairs. Hence the result is a list of solutions, one for each of
several diameters.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from metricshuffle.accounting.shuffling.clone_bound import ClonePair, checked_users, epsilon_upper
from metricshuffle.citations import theorem
from metricshuffle.errors import InputError, argument
from metricshuffle.numerics.rounding import round_down
from metricshuffle.numerics.types import Floats
from metricshuffle.privacy.profile import checked_delta
from metricshuffle.solving.epsilon_inversion import (
    MAX_ACCOUNTED_DISTANCES,
    ChernoffInversion,
    CloneInversion,
    EpsilonInversion,
    SimpleInversion,
)
from metricshuffle.solving.value_geometry import (
    MAX_CLASSES,
    ClosedMetric,
    LineGeometry,
    ValueGeometry,
)

Algorithm = Literal["1", "3", "1N"]

MAX_STEPS = MAX_CLASSES
MAX_DIAMETERS = 1000
LARGEST_TARGET = 1e6
DISTANCE_TOLERANCE = 1e-12  # relative, for distances: 3 * 0.1 is within 0.3


@dataclass(frozen=True)
class LineTarget:
    """Target after shuffling: epsilon |x-y|/distance for values among low, low + step, .., high."""

    low: float
    high: float
    epsilon: float
    distance: float
    step: float = 1.0

    def __post_init__(self) -> None:
        for name in ("low", "high", "epsilon", "distance", "step"):
            value = getattr(self, name)
            if (
                isinstance(value, bool)
                or not isinstance(value, int | float)
                or not math.isfinite(value)
            ):
                raise InputError(f"{argument(name)} must be a finite number, got {value!r}.")
            if name in ("epsilon", "distance", "step") and not value > 0.0:
                raise InputError(f"{argument(name)} must be greater than 0, got {value!r}.")
        if not self.low < self.high:
            raise InputError(
                f"{argument('low')} must be below {argument('high')}, got {self.low!r} and "
                f"{self.high!r}."
            )
        exact = (self.high - self.low) / self.step
        if not exact <= MAX_STEPS + 0.5:
            raise InputError(
                f"{argument('step')} {self.step:g} makes {exact:,.0f} steps from low to high, but "
                f"at most {MAX_STEPS:,} can be searched; "
                f"take a step of at least {(self.high - self.low) / MAX_STEPS:g}."
            )
        if not (exact > 0.5 and abs(exact - round(exact)) <= 1e-9 * exact):
            raise InputError(
                f"{argument('step')} must divide high - low = {self.high - self.low:g} into whole "
                f"steps, but {self.step:g} makes {exact:.6g} of them."
            )
        _check_totals(self.totals)

    @property
    def steps(self) -> int:
        """Number of steps from low to high."""
        return round((self.high - self.low) / self.step)

    @property
    def totals(self) -> Floats:
        """D# at 1, 2, .., `steps` steps, rounded down."""
        return np.arange(1.0, self.steps + 1.0) * round_down(
            self.epsilon * (self.step / self.distance), 8
        )

    @property
    def shape(self) -> ValueGeometry:
        return LineGeometry(self.steps, self.step)


@dataclass(frozen=True)
class SpaceTarget:
    """Target after shuffling: epsilon d(x, y)/distance for any two points of a space."""

    shape: ValueGeometry
    epsilon: float
    distance: float

    def __post_init__(self) -> None:
        for name in ("epsilon", "distance"):
            value = getattr(self, name)
            if (
                isinstance(value, bool)
                or not isinstance(value, int | float)
                or not 0.0 < value < math.inf
            ):
                raise InputError(
                    f"{argument(name)} must be a finite number greater than 0, got {value!r}."
                )
        if len(self.shape.distances) > MAX_CLASSES:
            raise InputError(
                f"at most {MAX_CLASSES:,} distances can be searched, but there are "
                f"{len(self.shape.distances):,}."
            )
        _check_totals(self.totals)

    @property
    def totals(self) -> Floats:
        """D# of each class of pairs, rounded down."""
        return self.shape.distances * round_down(self.epsilon / self.distance, 8)


def _check_totals(totals: Floats) -> None:
    if not float(totals[0]) > 0.0 or not float(totals[-1]) <= LARGEST_TARGET:
        raise InputError(
            f"epsilon |x-y|/distance must be above 0 and at most {LARGEST_TARGET:g} for all pairs, "
            f"but it goes from {float(totals[0]):g} to {float(totals[-1]):g}; change "
            f"{argument('epsilon')} or {argument('distance')}."
        )


AnyTarget = LineTarget | SpaceTarget


@dataclass(frozen=True, eq=False)
class LocalMetric:
    """Solution: a local metric that meets the target.

    Vectors have one number for each class of pairs (`ValueGeometry`); on a line, for each number of
    steps 1..k.
    """

    target: AnyTarget
    diameter: float
    """Largest distance m of two values in `semi_metric`."""
    semi_metric: Floats = field(repr=False)
    """Result of the algorithm, to which its bound applies; the triangle inequality may fail."""
    amplified: Floats = field(repr=False)
    """Epsilon of `semi_metric` after shuffling, by the bound of the algorithm."""
    closed: Floats = field(repr=False)
    """Closure of `semi_metric` by shortest paths; build randomizers on this.

    A randomizer is private for the closure exactly if it is private for `semi_metric`.
    """
    accounted: Floats = field(repr=False)
    """Epsilon of `closed` after shuffling, at the worst pair of each distance.

    It is computed by the default bound with the reaches in `closed`.
    """
    closure: ClosedMetric | None = field(default=None, repr=False)
    """`closed` with its reaches."""

    @property
    def closed_diameter(self) -> float:
        return float(self.closed.max())

    def table(self) -> Floats:
        """Closed metric for every pair of points."""
        if self.closure is not None and self.closure.table is not None:
            return self.closure.table
        return self.target.shape.table(self.closed)

    def within(self, distance: float) -> float:
        """Largest closed local epsilon of two points at most `distance` apart."""
        is_within = self.target.shape.distances <= distance * (1.0 + DISTANCE_TOLERANCE)
        return float(self.closed[is_within].max()) if is_within.any() else 0.0

    @property
    def max_excess(self) -> float:
        """max(amplified - target) over all pairs: never above 0."""
        return float(np.max(self.amplified - self.target.totals))

    @property
    def per_unit(self) -> float:
        """Closed local epsilon at one unit of distance.

        If no pair is exactly one unit apart, it is the local epsilon at the next smaller distance
        (or at one step, if that is longer), divided by this distance.
        """
        line = self._line
        steps = min(max(1, math.floor(1.0 / line.step * (1.0 + 1e-9))), line.steps)
        return float(self.closed[steps - 1]) / (
            steps * line.step if abs(steps * line.step - 1.0) > 1e-9 else 1.0
        )

    @property
    def _line(self) -> LineTarget:
        if not isinstance(self.target, LineTarget):
            raise InputError(
                "values off a line have no steps; use within(distance), the largest local "
                "epsilon up to a distance."
            )
        return self.target

    def local(self, distance: float) -> float:
        """Closed local epsilon of two values `distance` apart (a whole number of steps)."""
        line = self._line
        steps = distance / line.step
        if not (
            0.0 <= steps <= line.steps + 0.5 and abs(steps - round(steps)) <= 1e-9 * max(steps, 1.0)
        ):
            raise InputError(
                f"{argument('distance')} must be a whole number of steps of {line.step:g}, "
                f"up to high - low, got {distance!r}."
            )
        return float(self.closed[round(steps) - 1]) if round(steps) else 0.0


@dataclass(frozen=True, eq=False)
class LocalMetrics:
    """Solutions by rising diameter; low..high is the range of diameters that were tried."""

    algorithm: Algorithm
    low: float
    high: float
    solutions: tuple[LocalMetric, ...]

    @property
    def best_closed(self) -> tuple[LocalMetric, ...]:
        """Solutions whose closed metric no other dominates."""
        diameters = undominated_keys(
            {solution.diameter: solution.closed for solution in self.solutions}
        )
        return tuple(solution for solution in self.solutions if solution.diameter in diameters)

    @property
    def amplifies(self) -> bool:
        """Whether any solution exceeds the target.

        A local metric equal to the target itself needs no shuffler.
        """
        return any(
            bool((solution.semi_metric > solution.target.totals * (1.0 + 1e-9)).any())
            for solution in self.solutions
        )


@theorem("metricshuffle", "metric privacy in the shuffle model, Algorithm 1")
def algorithm_1(target: AnyTarget, users: int, delta: float, grid: int = 16) -> LocalMetrics:
    """Compute feasible local semi-metrics by Corollary 1.

    The first six lines of Algorithm 1 and its last four are RECONSTRUCTED: only the supplement of
    its paper was available, which has the proof of optimality and Algorithm 3, the same for
    Corollary 2. Lines 7-16 are as in that proof.
    Statement: let n be the number of users, L = log(4/delta), Omega_m = (n-1) e^-m - sqrt(3 (n-1)
    e^-m L), s = sqrt(Omega_m L/2) and F(v, m) = log(1 + tanh(v/2) (2s+1)/(Omega_m/2-s)). D# is the
    target (see the module), D#_min and D#_max are its smallest and largest value over pairs, and
    Solve[..] is the largest v that satisfies the inequality, which may be infinite. t =
    log((n-1)/(L (sqrt(3)+sqrt(11))^2/4)) has Omega_t = 2L. The range of diameters is from low =
    max(D#_min, min(Solve[F(v, v) <= D#_min], t)) to high = max(D#_max, min(Solve[F(v, v) <=
    D#_max], t)). For m in [low, high], D^m(a, b) = min(m, max(D#(a, b), Solve[F(v, m) <= D#(a,
    b)])), and min(m, D#(a, b)) if Omega_m < 2L. The algorithm keeps those D^m that no other
    dominates (is at least as large for every pair). Each D^m is symmetric, positive, at most m, and
    min(D^m, F(D^m, m)) <= D# for every pair; where D^m is capped at m the inequality is strict (the
    supplement prints "="). Every semi-metric that is feasible by Corollary 1 is dominated by some
    D^m. D^m is a SEMI-metric: the triangle inequality may fail by a lot. The accounting with
    (D^m(a, b), m, m) is valid without it, but mechanisms are built on the closure, which has
    smaller distances and reaches and is accounted again by the clone pair.
    Conditions: delta > 0. With t < m (few users) D^m = min(m, D#): by this bound, shuffling does
    not help.
    Numerics: `grid` diameters, both ends included; Solve[F(v, m) <= c] = 2 artanh((e^c-1)/g) with g
    = (2s+1)/(Omega_m/2-s), rounded down and checked.
    Reference: Corollary 1 (corollary_1) and this docstring.
    """
    return _find_metrics("1", target, ChernoffInversion(*_validate_setting(users, delta)), grid)


@theorem("metricshuffle", "metric privacy in the shuffle model, Algorithm 3")
def algorithm_3(target: AnyTarget, users: int, delta: float, grid: int = 16) -> LocalMetrics:
    """Compute feasible local semi-metrics by Corollary 2.

    Statement: this is Algorithm 1 with G(v, m) = log(1 + 8 tanh(v/2) (sqrt(e^m L/(n-1)) +
    e^m/(n-1))) in place of F and t = log(n/(16L)); n and L are as in `algorithm_1`. The cap at m
    (line 15) applies with and without amplification; the printed indentation leaves that open.
    Conditions: as for Algorithm 1.
    Numerics: as for Algorithm 1.
    Reference: Corollary 2 (corollary_2), Algorithm 1 (algorithm_1).
    """
    return _find_metrics("3", target, SimpleInversion(*_validate_setting(users, delta)), grid)


@theorem("metricshuffle", "Algorithm 1 with the clone pair")
def algorithm_1n(target: AnyTarget, users: int, delta: float, grid: int = 16) -> LocalMetrics:
    """Run Algorithm 1 with the certified epsilon of the clone pair, eps(v; m, m), in place of F.

    The result is never worse than that of Algorithm 1; the notation is the same.
    Statement: with p = e^v and q0 = q1 = e^m the clone pair (delta_upper) covers any two values
    with local epsilon v if no local epsilon exceeds m, whether or not the local epsilons are a
    metric; eps is non-decreasing in v and m and never above v. So D^m(a, b) = min(m, Solve[eps(v;
    m, m) <= D#(a, b)]), for m between the solutions v of eps(v; v, v) = D#_min and of eps(v; v, v)
    = D#_max. For smaller m, D^m = m everywhere; for larger m, no D with diameter m is feasible by
    this bound.
    Conditions: delta > 0.
    Numerics: certified bisection, relative bracket 1e-8, each result certified by itself. Beyond 64
    distances, up to 128 are searched and the others are read off a curve, lowered by 1e-5 and
    certified one by one.
    Reference: delta_upper, algorithm_1.
    """
    return _find_metrics("1N", target, CloneInversion(*_validate_setting(users, delta)), grid)


ALGORITHMS: dict[Algorithm, Callable[[AnyTarget, int, float, int], LocalMetrics]] = {
    "1": algorithm_1,
    "3": algorithm_3,
    "1N": algorithm_1n,
}


def local_metrics(
    target: AnyTarget, users: int, delta: float, *, algorithm: Algorithm = "1", grid: int = 16
) -> LocalMetrics:
    """Compute the local metrics that meet a target when reports of `users` people are shuffled."""
    if algorithm not in ALGORITHMS:
        raise InputError(
            f"{argument('algorithm')} must be one of {', '.join(ALGORITHMS)}, got {algorithm!r}."
        )
    return ALGORITHMS[algorithm](target, users, delta, grid)


def _validate_setting(users: int, delta: float) -> tuple[int, float]:
    users = checked_users(users)
    delta = checked_delta(delta)
    if not delta > 0.0:
        raise InputError(
            f"{argument('delta')} must be > 0 here; with delta = 0 shuffling changes "
            "nothing, and the local metric is the target itself."
        )
    return users, delta


def _find_metrics(
    algorithm: Algorithm, target: AnyTarget, bound: EpsilonInversion, grid: int
) -> LocalMetrics:
    if isinstance(grid, bool) or not isinstance(grid, int) or not 1 <= grid <= MAX_DIAMETERS:
        raise InputError(
            "grid, the number of diameters, must be a whole number from 1 to "
            f"{MAX_DIAMETERS}, got {grid!r}."
        )
    totals = target.totals
    min_total = float(totals[0])
    max_total = float(totals[-1])
    low = max(min_total, bound.diameter(min_total))
    high = max(max_total, bound.diameter(max_total))
    # Classes at the same distance have the same target.
    different, total_index = np.unique(totals, return_inverse=True)
    vectors = {
        m: bound.solved(different, m)[total_index] for m in _diameters(low, high, bound.limit, grid)
    }
    diameters = undominated_keys(vectors)
    return LocalMetrics(
        algorithm, low, high, tuple(_solution(target, bound, m, vectors[m]) for m in diameters)
    )


def _diameters(low: float, high: float, limit: float, grid: int) -> list[float]:
    """`grid` diameters from low to high.

    Beyond the limit only the last is useful: D^m = min(m, D#) is dominated by D# there.
    """
    if grid == 1 or low >= high or limit <= low:
        return [high]
    spread: list[float] = np.linspace(low, min(high, limit), grid).tolist()
    return [*spread[:-1], high]


def undominated_keys(vectors: dict[float, Floats]) -> list[float]:
    """Keys of the vectors that no other vector dominates; of equal vectors, the first."""
    keys: list[float] = []
    for m, vector in vectors.items():
        if any(bool((vector <= vectors[key]).all()) for key in keys):
            continue
        keys = [key for key in keys if not bool((vectors[key] <= vector).all())] + [m]
    return keys


def _solution(
    target: AnyTarget, bound: EpsilonInversion, diameter: float, semi_metric: Floats
) -> LocalMetric:
    totals = target.totals
    different, first, total_index = np.unique(totals, return_index=True, return_inverse=True)
    amplified = bound.amplified(semi_metric[first], different, diameter)[total_index]
    closure = target.shape.closed(semi_metric)
    # The bound of the algorithm covers the closed metric too, which is no larger.
    accounted = np.minimum(default_bound(closure, bound.users, bound.delta), amplified)
    return LocalMetric(target, diameter, semi_metric, amplified, closure.values, accounted, closure)


def default_bound(closed: ClosedMetric, users: int, delta: float) -> Floats:
    """Clone-pair epsilon for the worst pair of each class of a closed metric, rounded up.

    More than 512 classes are merged, 2 % at a time, with the largest local epsilon and reaches of
    each group.
    """
    count = len(closed.values)
    epsilons = np.empty(count)
    known: dict[ClonePair, float] = {}
    first = 0
    while first < count:
        last = first if count <= MAX_ACCOUNTED_DISTANCES else min(count - 1, first + first // 50)
        pair = ClonePair(
            *(
                float(column[first : last + 1].max())
                for column in (closed.values, closed.high, closed.low)
            )
        )
        if pair not in known:
            known[pair] = epsilon_upper(pair, users, delta)
        epsilons[first : last + 1] = known[pair]
        first = last + 1
    return np.minimum(epsilons, closed.values)
