"""Privacy profiles: how indistinguishable two inputs at a given distance are.

A `PrivacyProfile` is always an upper bound. A lower bound is another type, so that it can never be
passed to a `Guarantee`; a `Band` is a lower and an upper bound on the same number.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np

from metricshuffle.display import Brief, Plottable, plot_result
from metricshuffle.errors import InputError, NotCertified, argument
from metricshuffle.numerics.certified_search import first_certified, last_certified
from metricshuffle.numerics.types import Floats
from metricshuffle.privacy.dominating_pair import (
    LOSS_INTERVAL,
    NEGLIGIBLE_DELTA,
    POINTS,
    Curve,
    DominatingPair,
    TradeOff,
    dominating_pair,
    loss_distribution,
    sample_epsilons,
    trade_off,
    validate_order,
)

Shape = Literal["linear", "flat"]

# Relative tolerance on epsilon where delta = 0: epsilon, and the rate a user derives from it, are
# decimals that were rounded to binary. It is the only place where a guarantee may be off, by 2e-15.
PURE_TOLERANCE = 2e-15
# A guarantee with a total epsilon beyond this is useless.
LARGEST_EPSILON = 1e6
# Replaces an infinite epsilon where delta is evaluated.
FARTHEST_EPSILON = 1e300


def checked_delta(delta: float) -> float:
    """Return delta as a float in [0, 1); raise InputError otherwise."""
    if not (isinstance(delta, int | float) and 0.0 <= delta < 1.0):
        raise InputError(f"{argument('delta')} must be a number in [0, 1), got {delta!r}.")
    return float(delta)


def checked_epsilon(epsilon: float) -> float:
    """Return epsilon as a finite float >= 0; raise InputError otherwise, also for NaN.

    Infinity becomes FARTHEST_EPSILON. As delta decreases with epsilon, delta at FARTHEST_EPSILON is
    at least delta at infinity, the probability of outputs that the other input rules out. An
    infinite `pure` still exceeds FARTHEST_EPSILON, so delta is evaluated.
    """
    if not (isinstance(epsilon, int | float) and epsilon >= 0.0):
        raise InputError(f"{argument('epsilon')} must be a number >= 0, got {epsilon!r}.")
    return min(float(epsilon), FARTHEST_EPSILON)


def validate_distance(distance: float) -> float:
    """Return distance as a finite float >= 0; raise InputError otherwise."""
    if not (isinstance(distance, int | float) and 0.0 <= distance < math.inf):
        raise InputError(f"{argument('distance')} must be a finite number >= 0, got {distance!r}.")
    return float(distance)


class PrivacyProfile(Plottable, Brief, ABC):
    """Upper bound: inputs at distance <= d are (epsilon, delta(epsilon, d))-indistinguishable.

    Implementations must never return a delta below the true one: a delta that cannot be computed is
    1, not 0. `bound` names the argument behind the numbers: "exact", "pure", "composed",
    "per-axis", ...
    """

    bound: str = "exact"

    @abstractmethod
    def delta(self, epsilon: float, distance: float) -> float:
        """Upper bound on delta at total epsilon >= 0 for inputs at distance <= `distance`."""

    def pure(self, distance: float) -> float:
        """Smallest known epsilon with delta = 0 at that distance; infinite if none is known."""
        return 0.0 if validate_distance(distance) == 0.0 else math.inf

    def epsilon(self, delta: float, distance: float) -> float:
        """Smallest certified total epsilon at that delta and distance; inf if none is certified."""
        delta = checked_delta(delta)
        distance = validate_distance(distance)
        ceiling = self.pure(distance)
        if delta == 0.0 or ceiling == 0.0:
            return ceiling

        def certified(epsilon: float) -> bool:
            return self.covers_at(epsilon, delta, distance)

        if certified(0.0):
            return 0.0
        limit = min(ceiling, LARGEST_EPSILON)
        bracket = first_certified(certified, 1.0, limit, step=1.0, failing=0.0)
        return (
            ceiling if bracket.passing == limit < ceiling else last_certified(certified, *bracket)
        )

    def plot(
        self,
        *,
        distance: float | Sequence[float] | None = None,
        delta: float | Sequence[float] | None = None,
    ) -> Any:
        """Plot delta against epsilon, or, if `delta` is given, epsilon against the distance.

        Distance and delta may be one number or several. The default distance is the largest that
        the profile knows of, or 1. Returns an altair chart if altair is installed, else an object
        that displays itself as SVG.
        """
        return plot_result(self, distance=distance, delta=delta)

    def covers(
        self, epsilon: float, delta: float, distance: float, shape: Shape = "linear"
    ) -> bool:
        """Return True only if the target is certified at every whole distance up to `distance`.

        Statement: linear: delta(epsilon * d / distance, d) <= delta for every integer 1 <= d <=
        distance; flat: delta(epsilon, distance) <= delta.
        Conditions: inputs are whole steps apart (integers, grid cells) if the shape is linear;
        other profiles override this.
        Numerics: delta(e, d) decreases with e, and increases with d because it covers all distances
        <= d. So one evaluation delta(e(a), b) <= delta, with e(a) = epsilon * a / distance, covers
        every d in a..b. Blocks a..b are tried from the largest distance downwards, because what a
        profile caches for b serves the whole block. The next block is twice as long as the last
        block that passed, and shorter where blocks fail, down to single distances. Where only
        single distances pass, longer blocks are tried ever more rarely. Each e(a) is rounded down;
        see PURE_TOLERANCE for delta = 0.
        """
        epsilon = checked_epsilon(epsilon)
        steps = math.floor(validate_distance(distance))
        if shape == "flat" or steps < 1:
            return self.covers_at(epsilon, delta, distance)

        def total(first: int) -> float:
            return epsilon * (first / distance) * (1.0 - 6e-16)

        if not (self.covers_at(total(steps), delta, steps) and self.covers_at(total(1), delta, 1)):
            return False
        last = steps - 1
        length = 1
        pause = 1
        singles = 0
        while last > 1:
            while length > 1 and not self.surely_covers_at(
                total(max(last - length + 1, 1)), delta, last
            ):
                length = max(length // 4, 1)
                pause = min(2 * pause, 16) if length == 1 else pause
            if length > 1:
                last = last - length
                length = 2 * length
                pause = 1
                continue
            if not self.covers_at(total(last), delta, last):
                return False
            singles += 1
            last, length, singles = (last - 1, 2, 0) if singles >= pause else (last - 1, 1, singles)
        return True

    def nearly_covers(
        self, epsilon: float, delta: float, distance: float, shape: Shape = "linear"
    ) -> bool:
        """Check a cheap necessary condition for `covers`, to steer a search for the least noise.

        Here: the target at `distance` and, if that is longer, at one step, which decide in
        practice.
        """
        return all(
            self.covers_at(total, delta, at)
            for at, total in _sampled_distances(epsilon, distance, shape).items()
        )

    def shortfall(
        self, epsilon: float, delta: float, distance: float, shape: Shape = "linear"
    ) -> float:
        """Return by how much `nearly_covers` fails; <= 0 if it does not.

        It is log(largest evaluated delta / target delta), which is smooth, so that a search needs
        fewer steps than with a yes or no.
        """
        if delta == 0.0:
            return -math.inf if self.nearly_covers(epsilon, delta, distance, shape) else math.inf
        return log_excess(
            [
                self.delta_near(delta, total, at)
                for at, total in _sampled_distances(epsilon, distance, shape).items()
            ],
            delta,
        )

    def covers_at(self, epsilon: float, delta: float, distance: float) -> bool:
        """Return True only if (epsilon, delta) is certified at every distance <= `distance`."""
        epsilon = checked_epsilon(epsilon)
        if delta == 0.0:
            return self.pure(distance) <= epsilon * (1.0 + PURE_TOLERANCE)
        return self.delta_near(delta, epsilon, distance) <= delta

    def delta_near(self, asked: float, epsilon: float, distance: float) -> float:
        """Upper bound on delta(epsilon, distance) that need be sharp only near `asked`."""
        return self.delta(epsilon, distance)

    def surely_covers_at(self, epsilon: float, delta: float, distance: float) -> bool:
        """Check a sufficient condition for `covers_at`; it is cheaper where `covers_at` is slow."""
        return self.covers_at(epsilon, delta, distance)

    def quick(self) -> PrivacyProfile:
        """Return a faster profile with larger deltas, or self if that makes no difference."""
        return self

    def curve(self, epsilons: Floats, distance: float) -> Floats:
        """Return delta(epsilon, distance) at many epsilons."""
        return np.array(
            [self.delta(float(epsilon), distance) for epsilon in epsilons], dtype=np.float64
        )

    def curves(self, epsilons: Floats, distance: float) -> Floats:
        """Return `curve` at each of the distances 0, 1, .., distance, one row per distance."""
        return np.array(
            [self.curve(epsilons, float(steps)) for steps in range(math.floor(distance) + 1)]
        )

    def dominating_pair(
        self, distance: float, *, points: int = POINTS, negligible: float = NEGLIGIBLE_DELTA
    ) -> DominatingPair:
        """Return two laws at least as distinguishable as any two inputs up to that distance.

        Made from delta at about `points` epsilons.
        """
        curve, pure = self._curve(distance)
        at = sample_epsilons(curve, pure, points, negligible)
        return dominating_pair(at, [curve(epsilon) for epsilon in at])

    def renyi(self, order: float, distance: float, *, points: int = POINTS) -> float:
        """Upper bound on the Renyi divergence of that order (1: Kullback-Leibler), both directions.

        Infinite if pure(distance) is infinite. The bound uses this curve alone
        (`DominatingPair.renyi`), so for a composition the sum of the rounds' bounds may be smaller.
        """
        order = validate_order(order)
        pure = self.pure(validate_distance(distance))
        if pure == math.inf or order == math.inf:
            return pure
        # Losses are weighted by e^((order - 1) loss): sample until the weighted delta is
        # negligible, too.
        tail = math.exp(max(-20.0 - (order - 1.0) * pure, -650.0))
        return min(
            pure,
            self.dominating_pair(
                distance, points=points, negligible=min(tail, NEGLIGIBLE_DELTA)
            ).renyi(order),
        )

    def tradeoff(self, distance: float, *, points: int = POINTS) -> TradeOff:
        """Lower bound on the type II error of tests between inputs up to that distance (f-DP).

        Made from delta at about `points` epsilons.
        """
        curve, pure = self._curve(distance)
        at = sample_epsilons(curve, pure, points)
        return trade_off(at, [curve(epsilon) for epsilon in at])

    def to_pld(
        self, distance: float, interval: float = LOSS_INTERVAL, *, points: int = 4 * POINTS
    ) -> Any:
        """Return a pessimistic `PrivacyLossDistribution` of dp-accounting (extra "compose").

        Its delta is nowhere below this profile's; `interval` is the spacing of its losses. Later
        operations are rounded by dp-accounting; composition in this package is `rounds=`.
        """
        return loss_distribution(*self._curve(distance), interval, points)

    def _curve(self, distance: float) -> tuple[Curve, float]:
        """Return delta at that distance as a memoized function, and the epsilon where it ends."""
        distance = validate_distance(distance)
        return cache(lambda epsilon: self.delta(epsilon, distance)), self.pure(distance)


def log_excess(deltas: list[float], delta: float) -> float:
    """Return log(largest delta / `delta`) for `delta` > 0; infinite if one of them is NaN."""
    if any(math.isnan(value) for value in deltas):
        return math.inf
    largest = max(deltas, default=0.0)
    return math.log(largest / delta) if largest > 0.0 else -math.inf


def _sampled_distances(epsilon: float, distance: float, shape: Shape) -> dict[float, float]:
    """Return the epsilons at the distances that decide in practice: `distance` and one step."""
    first = min(1.0, distance)
    return {
        distance: epsilon,
        first: epsilon if shape == "flat" or first == distance else epsilon / distance,
    }


class LowerProfile(Plottable, Brief, ABC):
    """Lower bound: no analysis of the same mechanism can certify less than this."""

    bound: str = "attack"

    @abstractmethod
    def delta(self, epsilon: float, distance: float) -> float:
        """Lower bound on delta at total epsilon >= 0 for some pair at that distance."""

    def plot(self, *, distance: float | Sequence[float] | None = None) -> Any:
        """Plot delta against epsilon at one distance or several.

        The default distance is the largest that the bound knows of, or 1.
        """
        return plot_result(self, distance=distance)


@dataclass(frozen=True)
class Band(Brief):
    """A lower and an upper bound on the same number."""

    lower: float
    upper: float

    def __post_init__(self) -> None:
        if not self.lower <= self.upper:
            raise NotCertified(
                f"the lower bound {self.lower!r} exceeds the upper bound {self.upper!r}; "
                "please report this as a bug."
            )

    @property
    def gap(self) -> float:
        return self.upper - self.lower


@dataclass(frozen=True)
class PureProfile(PrivacyProfile):
    """Profile with epsilon = rate * distance and delta = 0 at every distance (d-privacy proper)."""

    rate: float
    bound: str = "pure"

    def __post_init__(self) -> None:
        if not 0.0 < self.rate < math.inf:
            raise InputError(f"{argument('rate')} must be a finite number > 0, got {self.rate!r}.")

    def pure(self, distance: float) -> float:
        return (
            math.nextafter(self.rate * validate_distance(distance), math.inf) if distance else 0.0
        )

    def covers(
        self, epsilon: float, delta: float, distance: float, shape: Shape = "linear"
    ) -> bool:
        """Return whether the target is met at every real distance, not only at whole steps.

        With c = rate * d and g = epsilon / (rate * distance) < 1, (e^c - e^(gc))/(e^c + 1)
        increases with c (its derivative has the sign of e^c - g e^(gc) + (1-g) e^(c+gc) > 0), so a
        linear target is hardest to meet at `distance` itself.
        """
        return self.covers_at(epsilon, delta, distance)

    def delta(self, epsilon: float, distance: float) -> float:
        """Return 0 if epsilon >= c = rate * distance, otherwise (e^c - e^epsilon)/(e^c + 1).

        Statement: a pair with log likelihood ratio in [-c, c] has hockey-stick divergence at most
        that of randomized response with parameter c, which is the value above.
        Reference: post-processing of randomized response (Kairouz, Oh, Viswanath 2015).
        """
        epsilon = checked_epsilon(epsilon)
        cost = self.pure(distance)
        if epsilon >= cost:
            return 0.0
        return min(1.0, -math.expm1(epsilon - cost) / (1.0 + math.exp(-cost)) * (1.0 + 1e-15))


@dataclass(frozen=True)
class PureUpTo(PrivacyProfile):
    """Profile with epsilon `total` and delta 0 up to `distance`; nothing is certified beyond it."""

    total: float
    distance: float
    bound: str = "pure"

    def __post_init__(self) -> None:
        if not self.total >= 0.0:
            raise InputError(f"total must be a number >= 0, got {self.total!r}.")

    def pure(self, distance: float) -> float:
        return (
            0.0
            if validate_distance(distance) == 0.0
            else self.total
            if distance <= self.distance
            else math.inf
        )

    def delta(self, epsilon: float, distance: float) -> float:
        """Return the delta of a pair with log likelihood ratio at most `total`; see PureProfile."""
        cost = self.pure(distance)
        if checked_epsilon(epsilon) >= cost:
            return 0.0
        return 1.0 if math.isinf(cost) else PureProfile(cost).delta(epsilon, 1.0)
