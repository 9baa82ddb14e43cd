"""The one concept: how indistinguishable two inputs at a given distance are.

A `PrivacyProfile` is always an upper bound. A lower bound is another type, so that
it can never be handed to a `Guarantee`; a `Band` is a pair of numbers, one of each.
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
from metricshuffle.errors import InputError, NotCertified
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

# With delta = 0 a promise is compared to within this much of epsilon (relative): the rate a user derives from it, and
# epsilon itself, are decimals that were rounded to binary. It is the only place where a promise may be off, by 2e-15.
PURE_TOLERANCE = 2e-15
# Beyond this total epsilon a guarantee says nothing anybody could use.
LARGEST_EPSILON = 1e6
# Stands for infinity where delta is asked for.
FARTHEST_EPSILON = 1e300


def checked_delta(delta: float) -> float:
    """delta as a float in [0, 1), or a sentence."""
    if not (isinstance(delta, int | float) and 0.0 <= delta < 1.0):
        raise InputError(f"delta must be a number in [0, 1), got {delta!r}.")
    return float(delta)


def checked_epsilon(epsilon: float) -> float:
    """epsilon as a finite float >= 0, or a sentence (NaN is never a small epsilon).

    An infinite one becomes the largest that is computed with: delta falls in epsilon, so delta there is no smaller than what is left at
    infinity, the probability of what the other input rules out. It is not compared with `pure`, which is infinite then, too.
    """
    if not (isinstance(epsilon, int | float) and epsilon >= 0.0):
        raise InputError(f"epsilon must be a number >= 0, got {epsilon!r}.")
    return min(float(epsilon), FARTHEST_EPSILON)


def validate_distance(distance: float) -> float:
    """distance as a finite float >= 0, or a sentence."""
    if not (isinstance(distance, int | float) and 0.0 <= distance < math.inf):
        raise InputError(f"distance must be a finite number >= 0, got {distance!r}.")
    return float(distance)


class PrivacyProfile(Plottable, Brief, ABC):
    """Any two inputs at distance <= d are (epsilon, delta(epsilon, d))-indistinguishable.

    Implementations must never return a delta below the truth: what cannot be computed is
    1, not 0. `bound` names the argument behind the numbers: "exact", "pure", "composed",
    "per-axis", ...
    """

    bound: str = "exact"

    @abstractmethod
    def delta(self, epsilon: float, distance: float) -> float:
        """Upper bound on delta at total epsilon >= 0 for inputs at distance <= `distance`."""

    def pure(self, distance: float) -> float:
        """Smallest known epsilon with delta = 0 at that distance (inf if there is none)."""
        return 0.0 if validate_distance(distance) == 0.0 else math.inf

    def epsilon(self, delta: float, distance: float) -> float:
        """Smallest certified total epsilon at that delta and distance (inf if there is none)."""
        delta, distance = checked_delta(delta), validate_distance(distance)
        ceiling = self.pure(distance)
        if delta == 0.0 or ceiling == 0.0:
            return ceiling

        def certified(epsilon: float) -> bool:
            return self.covers_at(epsilon, delta, distance)

        if certified(0.0):
            return 0.0
        limit = min(ceiling, LARGEST_EPSILON)
        bracket = first_certified(certified, 1.0, limit, step=1.0, failing=0.0)
        return ceiling if bracket.passing == limit < ceiling else last_certified(certified, *bracket)

    def plot(self, *, distance: float | Sequence[float] | None = None, delta: float | Sequence[float] | None = None) -> Any:
        """delta against epsilon at a distance (or several); or, where `delta` is given (or several), epsilon against the distance.

        Left out, the distance is the largest that the profile knows of, or 1. An altair chart if altair is installed, else one that
        shows itself as SVG.
        """
        return plot_result(self, distance=distance, delta=delta)

    def covers(self, epsilon: float, delta: float, distance: float, shape: Shape = "linear") -> bool:
        """True only if the promise is certified for every distance of whole steps up to `distance`.

        Statement: linear: delta(epsilon * d / distance, d) <= delta for every integer 1 <= d <= distance;
        flat: delta(epsilon, distance) <= delta.
        Conditions: inputs are whole steps apart (integers, grid cells) if the shape is linear; other profiles override this.
        Numerics: delta(e, d) falls in e and, being about all distances <= d, rises in d; so one evaluation
        delta(e(a), b) <= delta covers every d in a..b. Blocks a..b are tried from the far end on, the next one twice as long as
        the last that passed, shorter ones where they fail, down to single distances: what a profile knows about b serves them all.
        Where only single distances pass, longer blocks are tried ever more rarely.
        Each e(a) is rounded down; see PURE_TOLERANCE for delta = 0.
        """
        epsilon, steps = checked_epsilon(epsilon), math.floor(validate_distance(distance))
        if shape == "flat" or steps < 1:
            return self.covers_at(epsilon, delta, distance)

        def total(first: int) -> float:
            return epsilon * (first / distance) * (1.0 - 6e-16)

        if not (self.covers_at(total(steps), delta, steps) and self.covers_at(total(1), delta, 1)):
            return False
        last, length, pause, singles = steps - 1, 1, 1, 0
        while last > 1:
            while length > 1 and not self.surely_covers_at(total(max(last - length + 1, 1)), delta, last):
                length = max(length // 4, 1)
                pause = min(2 * pause, 16) if length == 1 else pause
            if length > 1:
                last, length, pause = last - length, 2 * length, 1
                continue
            if not self.covers_at(total(last), delta, last):
                return False
            singles += 1
            last, length, singles = (last - 1, 2, 0) if singles >= pause else (last - 1, 1, singles)
        return True

    def nearly_covers(self, epsilon: float, delta: float, distance: float, shape: Shape = "linear") -> bool:
        """Necessary for `covers`, and cheap: what a search for the least noise looks at until it is nearly done.

        Here: the promise at its own distance and at a single step (if that is nearer), which decide in practice.
        """
        return all(self.covers_at(total, delta, at) for at, total in _sampled_distances(epsilon, distance, shape).items())

    def shortfall(self, epsilon: float, delta: float, distance: float, shape: Shape = "linear") -> float:
        """By how much `nearly_covers` fails, as the logarithm of the largest delta it looks at over the one promised; <= 0 if it does not.

        A smooth number, which a search follows in a few steps where yes and no would have to be halved.
        """
        if delta == 0.0:
            return -math.inf if self.nearly_covers(epsilon, delta, distance, shape) else math.inf
        return log_excess([self.delta_near(delta, total, at) for at, total in _sampled_distances(epsilon, distance, shape).items()], delta)

    def covers_at(self, epsilon: float, delta: float, distance: float) -> bool:
        """True only if (epsilon, delta) is certified at every distance <= `distance`."""
        epsilon = checked_epsilon(epsilon)
        if delta == 0.0:
            return self.pure(distance) <= epsilon * (1.0 + PURE_TOLERANCE)
        return self.delta_near(delta, epsilon, distance) <= delta

    def delta_near(self, asked: float, epsilon: float, distance: float) -> float:
        """delta(epsilon, distance), an upper bound that need be sharp only where it is about as large as `asked`."""
        return self.delta(epsilon, distance)

    def surely_covers_at(self, epsilon: float, delta: float, distance: float) -> bool:
        """Sufficient for `covers_at`, and cheaper where that takes long."""
        return self.covers_at(epsilon, delta, distance)

    def quick(self) -> PrivacyProfile:
        """The same with larger deltas that take less time, for where there is room; the profile itself if that makes no difference."""
        return self

    def curve(self, epsilons: Floats, distance: float) -> Floats:
        """delta(epsilon, distance) at many epsilons."""
        return np.array([self.delta(float(epsilon), distance) for epsilon in epsilons], dtype=np.float64)

    def curves(self, epsilons: Floats, distance: float) -> Floats:
        """Row d: `curve` at the distance d, for whole distances 0..distance."""
        return np.array([self.curve(epsilons, float(steps)) for steps in range(math.floor(distance) + 1)])

    def dominating_pair(self, distance: float, *, points: int = POINTS, negligible: float = NEGLIGIBLE_DELTA) -> DominatingPair:
        """Two laws at least as easy to tell apart as any two inputs up to that distance, from delta at about `points` epsilons."""
        curve, pure = self._curve(distance)
        at = sample_epsilons(curve, pure, points, negligible)
        return dominating_pair(at, [curve(epsilon) for epsilon in at])

    def renyi(self, order: float, distance: float, *, points: int = POINTS) -> float:
        """Upper bound on the Renyi divergence of that order (1: Kullback-Leibler), both directions; inf where pure(distance) is.

        From this curve alone (`DominatingPair.renyi`), so the rounds of a composition may add up to less.
        """
        order, pure = validate_order(order), self.pure(validate_distance(distance))
        if pure == math.inf or order == math.inf:
            return pure
        # What is far out counts e^((order - 1) loss) times: look closely until that is little, too.
        tail = math.exp(max(-20.0 - (order - 1.0) * pure, -650.0))
        return min(pure, self.dominating_pair(distance, points=points, negligible=min(tail, NEGLIGIBLE_DELTA)).renyi(order))

    def tradeoff(self, distance: float, *, points: int = POINTS) -> TradeOff:
        """Lower bound on the type II error of every test between two inputs up to that distance (f-DP), from about `points` epsilons."""
        curve, pure = self._curve(distance)
        at = sample_epsilons(curve, pure, points)
        return trade_off(at, [curve(epsilon) for epsilon in at])

    def to_pld(self, distance: float, interval: float = LOSS_INTERVAL, *, points: int = 4 * POINTS) -> Any:
        """The same as a pessimistic `PrivacyLossDistribution` of dp-accounting (extra "compose"), to compose it there.

        Its delta is nowhere below this profile's; `interval` is how far apart its losses are. What dp-accounting does with it later
        is rounded as that library rounds; composition here is `rounds=`.
        """
        return loss_distribution(*self._curve(distance), interval, points)

    def _curve(self, distance: float) -> tuple[Curve, float]:
        """delta at that distance, looked up if it was asked for before, and where it ends."""
        distance = validate_distance(distance)
        return cache(lambda epsilon: self.delta(epsilon, distance)), self.pure(distance)


def log_excess(deltas: list[float], delta: float) -> float:
    """log of the largest of some deltas over the one that is promised (> 0); infinite if one is not a number."""
    if any(math.isnan(value) for value in deltas):
        return math.inf
    largest = max(deltas, default=0.0)
    return math.log(largest / delta) if largest > 0.0 else -math.inf


def _sampled_distances(epsilon: float, distance: float, shape: Shape) -> dict[float, float]:
    """Distances, and the epsilon that is promised there, that decide in practice: the whole one and a single step."""
    first = min(1.0, distance)
    return {distance: epsilon, first: epsilon if shape == "flat" or first == distance else epsilon / distance}


class LowerProfile(Plottable, Brief, ABC):
    """A lower bound: no analysis of the same mechanism can promise less than this."""

    bound: str = "attack"

    @abstractmethod
    def delta(self, epsilon: float, distance: float) -> float:
        """Lower bound on delta at total epsilon >= 0 for some pair at that distance."""

    def plot(self, *, distance: float | Sequence[float] | None = None) -> Any:
        """delta against epsilon at a distance (or several); left out, the largest that the bound knows of, or 1."""
        return plot_result(self, distance=distance)


@dataclass(frozen=True)
class Band(Brief):
    """A lower and an upper bound on the same number."""

    lower: float
    upper: float

    def __post_init__(self) -> None:
        if not self.lower <= self.upper:
            raise NotCertified(f"the lower bound {self.lower!r} exceeds the upper bound {self.upper!r}; please report this as a bug.")

    @property
    def gap(self) -> float:
        return self.upper - self.lower


@dataclass(frozen=True)
class PureProfile(PrivacyProfile):
    """epsilon = rate * distance with delta = 0 at every distance (d-privacy proper)."""

    rate: float
    bound: str = "pure"

    def __post_init__(self) -> None:
        if not 0.0 < self.rate < math.inf:
            raise InputError(f"rate must be a finite number > 0, got {self.rate!r}.")

    def pure(self, distance: float) -> float:
        return math.nextafter(self.rate * validate_distance(distance), math.inf) if distance else 0.0

    def covers(self, epsilon: float, delta: float, distance: float, shape: Shape = "linear") -> bool:
        """At every real distance, not only at whole steps.

        With c = rate * d and g = epsilon / (rate * distance) < 1, (e^c - e^(gc))/(e^c + 1) rises in c (its derivative has
        the sign of e^c - g e^(gc) + (1-g) e^(c+gc) > 0), so a linear promise is hardest to keep at `distance` itself.
        """
        return self.covers_at(epsilon, delta, distance)

    def delta(self, epsilon: float, distance: float) -> float:
        """0 where epsilon covers rate * distance; below it (e^c - e^epsilon)/(e^c + 1), c = rate * distance.

        Statement: a pair with log likelihood ratio in [-c, c] has hockey-stick divergence at
        most that of randomized response with parameter c, which is the value above.
        Reference: post-processing of randomized response (Kairouz, Oh, Viswanath 2015).
        """
        epsilon, cost = checked_epsilon(epsilon), self.pure(distance)
        if epsilon >= cost:
            return 0.0
        return min(1.0, -math.expm1(epsilon - cost) / (1.0 + math.exp(-cost)) * (1.0 + 1e-15))


@dataclass(frozen=True)
class PureUpTo(PrivacyProfile):
    """`total` epsilon with delta 0 at every distance up to `distance`; beyond it nothing is said."""

    total: float
    distance: float
    bound: str = "pure"

    def pure(self, distance: float) -> float:
        return 0.0 if validate_distance(distance) == 0.0 else self.total if distance <= self.distance else math.inf

    def delta(self, epsilon: float, distance: float) -> float:
        """As for any pair whose log likelihood ratio is at most `total` (see PureProfile)."""
        cost = self.pure(distance)
        if checked_epsilon(epsilon) >= cost:
            return 0.0
        return 1.0 if math.isinf(cost) else PureProfile(cost).delta(epsilon, 1.0)
