"""Search for the most accurate randomizer on a finite metric that meets a target per pair.

Every family consists of channels with K_t(x)[z], the probability of report z for value x, in
proportion to e^(-t M(x, z)), where M is a metric and t the strength; there are three ways to
normalise it. The clone bound holds for every randomizer with a given local metric. An account of
one particular channel is often much tighter and so allows a larger t, which means less noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from metricshuffle.accounting.shuffling.blanket_bound import epsilon_upper
from metricshuffle.accounting.shuffling.input_class_laws import InputClassLaws
from metricshuffle.amplification.full_law_pairs import ListedPairs
from metricshuffle.amplification.metric_channel import MAX_BY_LAWS
from metricshuffle.errors import InputError, NotCertified
from metricshuffle.numerics.rounding import round_down
from metricshuffle.numerics.types import Floats
from metricshuffle.privacy.profile import PrivacyProfile
from metricshuffle.protocols.frequencies import has_metric, shuffled_profile
from metricshuffle.randomizers.bounded_geometric import BoundedGeometric, clamped_rows
from metricshuffle.randomizers.channel import LARGEST_CONDITION, Channel
from metricshuffle.randomizers.exponential_mechanism import PaddedExponential
from metricshuffle.randomizers.randomized_response import KaryRandomizedResponse
from metricshuffle.randomizers.randomizer import Randomizer
from metricshuffle.solving.value_geometry import LineGeometry, ValueGeometry

MAX_TABULATED = 256
"""Largest number of points for which a randomizer is a table."""
MAX_ON_A_LINE = 1024
SOME_POINTS = 24  # up to this many points two families are calibrated
STRENGTH_TOLERANCE = 2e-3  # relative tolerance of a strength
MAX_LOOKS = 10  # max evaluations in the search for a strength
LARGEST_STRENGTH = 40.0  # max strength times the largest value of the metric
Rows = Callable[[Floats], Floats]
Error = Callable[[Floats], float]
"""Function from the rows of a channel to the error to minimise."""
Pairs = tuple[tuple[int, int], ...]


def exponential(costs: Floats) -> Floats:
    """K(x)[z] = e^-cost(x, z) over its sum; the local epsilon is at most twice the cost."""
    weights = np.exp(-costs)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def padded(costs: Floats) -> Floats:
    """Channel with one normaliser for all inputs and one extra report for the remaining mass.

    The local epsilon is at most the cost (`PaddedExponential`).
    """
    with np.errstate(over="ignore"):  # values too far apart get weight 0
        return PaddedExponential(costs, 1.0).channel.matrix


def geometric(costs: Floats) -> Floats:
    """Discrete Laplace noise, clamped, on equally spaced values."""
    return clamped_rows(len(costs) - 1, float(costs[0, 1]))


@dataclass(frozen=True, eq=False)
class ChannelFamily:
    """Channels by strength t; at t = 1 the costs are those of the metric."""

    name: str
    rows: Rows
    metric: Floats
    distances: Floats
    """Distances in units, passed to the channel."""

    def member(self, strength: float) -> Channel | None:
        """Channel of a strength; None if its metric is too strong for multiples of 2^-63."""
        try:
            return Channel(self.rows(strength * self.metric), distances=self.distances)
        except (InputError, NotCertified):
            return None


@dataclass(frozen=True)
class ResponseFamily:
    """Randomized response by its local epsilon, for a metric that is the same for all pairs.

    Its closed forms are fast.
    """

    points: int
    name: str = "k-ary randomized response"

    def member(self, strength: float) -> KaryRandomizedResponse | None:
        try:
            return KaryRandomizedResponse(self.points, strength)
        except InputError:
            return None


@dataclass(frozen=True)
class LineFamily:
    """Bounded geometric noise by its rate per unit of distance."""

    shape: LineGeometry
    name: str = "bounded-geometric"

    def member(self, strength: float) -> BoundedGeometric | None:
        """Randomizer with local epsilon `strength` per unit of distance; None if not possible."""
        try:
            return BoundedGeometric(self.shape.steps, strength * self.shape.step)
        except InputError:
            return None


AnyFamily = ChannelFamily | ResponseFamily | LineFamily


def is_uniform_metric(metric: Floats) -> bool:
    """Whether all pairs are equally far apart."""
    apart = metric[~np.eye(len(metric), dtype=bool)]
    return bool(apart.max() <= apart.min() * (1.0 + 1e-9))


@dataclass(frozen=True, eq=False)
class PairwisePromise:
    """Target epsilon * d / distance at delta for every pair of a shape, among `honest` reports."""

    shape: ValueGeometry
    epsilon: float
    distance: float
    delta: float
    honest: int

    @property
    def slope(self) -> float:
        return round_down(self.epsilon / self.distance, 8)

    @cached_property
    def farthest(self) -> float:
        return float(self.shape.distances[-1])

    def step_of(self, randomizer: Randomizer) -> float:
        """Units of one step of the randomizer's own distances."""
        return (
            self.shape.step
            if isinstance(randomizer, BoundedGeometric) and isinstance(self.shape, LineGeometry)
            else 1.0
        )

    def steps_of(self, randomizer: Randomizer, distance: float) -> float:
        """Distance in the randomizer's own steps; 1 if it treats all values alike."""
        return (
            distance / self.step_of(randomizer) * (1.0 + 1e-12) if has_metric(randomizer) else 1.0
        )

    def profile(self, randomizer: Randomizer) -> PrivacyProfile:
        return shuffled_profile(randomizer, self.honest)

    def kept_by(self, randomizer: Randomizer) -> bool:
        """Whether the target is certified for every pair, by the account that verifies tasks."""
        steps = self.steps_of(randomizer, self.farthest)
        try:
            if not has_metric(randomizer):  # all pairs are alike: the nearest decide
                return self.profile(randomizer).covers(
                    self.slope * float(self.shape.distances[0]), self.delta, 1.0, "flat"
                )
            return self.profile(randomizer).covers(
                self.slope * self.farthest, self.delta, steps, "linear"
            )
        except NotCertified:
            return False

    def spent(self, randomizer: Randomizer, pairs: Pairs) -> float:
        """Largest ratio of epsilon to the target over some pairs.

        It steers a search and never decides its result.
        """
        if isinstance(randomizer, Channel) and randomizer.inputs <= MAX_BY_LAWS:
            return max(
                self._of_pair(randomizer, a, b) / (self.slope * randomizer.distance(a, b))
                for a, b in pairs
            )
        profile = self.profile(randomizer)
        distances = (float(self.shape.distances[0]), self.farthest)
        return max(
            profile.epsilon(self.delta, self.steps_of(randomizer, d)) / (self.slope * d)
            for d in distances
        )

    def _of_pair(self, channel: Channel, a: int, b: int) -> float:
        """Approximate epsilon of one pair.

        From the full laws of the others, from their common part, or from one report alone.
        """
        if self.honest == 1:
            return channel.local_epsilon(a, b)
        beyond, _ = ListedPairs([InputClassLaws.from_rows(channel.rows(), a, b)]).epsilon(
            self.honest, self.delta, STRENGTH_TOLERANCE
        )
        blanket = epsilon_upper(
            channel.blanket(a, b), self.honest, self.delta, relative=STRENGTH_TOLERANCE
        )
        return min(
            value for value in (channel.local_epsilon(a, b), beyond, blanket) if value >= 0.0
        )


def share_error(rows: Floats, people: int) -> float:
    """Mean over the values of E|unbiased - true share|, for people spread evenly.

    By the normal approximation; inf if there is no unbiased estimate.
    """
    count = len(rows)
    singular = np.linalg.svd(rows, compute_uv=False)
    if rows.shape[1] < count or not singular[-1] * LARGEST_CONDITION >= singular[0] > 0.0:
        return math.inf
    squares = rows.mean(axis=0) @ np.linalg.pinv(rows) ** 2
    return math.sqrt(2.0 / math.pi / people) * float(
        np.mean(np.sqrt(np.maximum(squares - 1.0 / count, 0.0)))
    )


def report_error(rows: Floats, distances: Floats) -> float:
    """Mean distance between a value and what its report is read as, for people spread evenly.

    A report is read as the value that is nearest on average.
    """
    read_as = np.argmin(distances @ rows, axis=0)
    return float(np.mean(np.sum(rows * distances[:, read_as], axis=1)))


def guessed_strength(
    family: ChannelFamily, targets: Floats, honest: int, delta: float
) -> tuple[float, Pairs]:
    """Approximate strength that the target allows, and the pairs that look worst.

    Both only steer the search. Let K_x be the law of the report of value x, n the number of honest
    people and z = 0.85 sqrt(2 log(1/delta)). By the normal approximation of the other reports,
    epsilon of a pair (a, b) is about z sqrt(max_x sum (K_a - K_b)^2/K_x / n), and at most its local
    epsilon.
    """
    width = math.sqrt(2.0 * math.log(1.0 / delta)) * 0.85 / math.sqrt(honest)
    apart = targets > 0.0
    promised = np.where(apart, targets, 1.0)

    def spent(strength: float) -> Floats:
        rows = np.maximum(family.rows(strength * family.metric), 1e-300)
        worst = np.zeros_like(targets)
        for row in rows:
            products = (rows / row) @ rows.T
            own = np.diag(products)
            np.maximum(worst, own[:, None] + own[None, :] - 2.0 * products, out=worst)
        logs = np.log(rows)
        local = np.max([np.abs(column[:, None] - column[None, :]) for column in logs.T], axis=0)
        guess = np.minimum(width * np.sqrt(np.maximum(worst, 0.0)), local)
        return np.where(apart, guess / promised, -1.0)

    low = 1e-6 / float(family.metric.max())
    high = LARGEST_STRENGTH / float(family.metric.max())
    for _ in range(18):
        middle = math.sqrt(low * high)
        try:
            passes = float(spent(middle).max()) <= 1.0
        except (InputError, NotCertified):
            passes = False
        low, high = (middle, high) if passes else (low, middle)
    ratios = spent(low)
    nearest = float(targets[apart].min())
    farthest = float(targets.max())
    ratio_tables = (
        ratios,
        np.where(targets <= nearest * (1.0 + 1e-9), ratios, -1.0),
        np.where(targets >= farthest * (1.0 - 1e-9), ratios, -1.0),
    )
    pairs = (
        np.unravel_index(int(np.argmax(ratios_tried)), ratios_tried.shape)
        for ratios_tried in ratio_tables
    )
    return low, tuple(dict.fromkeys((int(a), int(b)) for a, b in pairs))


def calibrate_family_member(
    family: AnyFamily, promise: PairwisePromise, guess: float, alone: float, pairs: Pairs
) -> Randomizer | None:
    """Return the strongest member found that certainly meets the target.

    It is at least as strong as the member of strength `alone`, which meets the target without other
    reports. The search checks a few pairs; the returned member was certified for every pair.
    """
    strength = max(guess, alone)
    passing = alone
    failing = math.inf
    for _ in range(MAX_LOOKS):
        made = family.member(strength)
        spent = math.inf if made is None else promise.spent(made, pairs)
        passing, failing = (strength, failing) if spent <= 1.0 else (passing, strength)
        if failing <= passing * (1.0 + STRENGTH_TOLERANCE) or (
            spent <= 1.0 and spent >= 1.0 - STRENGTH_TOLERANCE
        ):
            break
        aim = (
            strength * min(4.0, max(0.25, (1.0 - 0.5 * STRENGTH_TOLERANCE) / spent))
            if spent > 0.0
            else 4.0 * strength
        )
        middle = math.sqrt(passing * failing) if math.isfinite(failing) else 4.0 * passing
        strength = aim if passing < aim < failing else middle
    for shrink in (0.0, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.0):
        strength = max(passing * (1.0 - shrink), alone)
        made = family.member(strength)
        if made is not None and promise.kept_by(made):
            return made
    return None


def families(shape: ValueGeometry, metrics: list[Floats]) -> Iterator[ChannelFamily]:
    """Yield tables on each of the metrics; on a line also clamped geometric noise."""
    distances = shape.table(shape.distances)
    for metric in metrics:
        if shape.points > 2 and is_uniform_metric(metric):
            continue
        yield ChannelFamily("exponential", exponential, metric, distances)
        yield ChannelFamily("padded exponential", padded, metric, distances)
    if isinstance(shape, LineGeometry):
        yield ChannelFamily("geometric", geometric, distances, distances)


def find_strongest(
    promise: PairwisePromise, metrics: list[Floats], any_two: float, error: Error
) -> tuple[str, Randomizer] | None:
    """Return the name and the randomizer of least error that meets the target.

    None if there are too many values. `any_two`: a local epsilon that is certainly allowed for all
    pairs. Families are ranked by guessed strengths; the best few are calibrated and certified.
    """
    shape = promise.shape
    ranked: list[tuple[float, float, Pairs, AnyFamily]] = []
    if shape.points <= MAX_TABULATED:
        targets = promise.slope * shape.table(shape.distances)
        for family in families(shape, metrics):
            try:
                guess, pairs = _guess(family, targets, promise)
                ranked.append((error(family.rows(guess * family.metric)), guess, pairs, family))
            except (InputError, NotCertified):  # no member has weights that are multiples of 2^-63
                continue
        # Only if all pairs are at distances above 0.
        if shape.points > 2 and np.count_nonzero(targets) == shape.points * (shape.points - 1):
            ranked.append(_alike_guess(shape, targets, promise, any_two, error))
    if isinstance(shape, LineGeometry) and shape.points <= MAX_ON_A_LINE + 1:
        ranked.append(_line_guess(shape, promise, error))
    ranked.sort(key=lambda candidate: candidate[0])
    candidates: list[tuple[float, str, Randomizer]] = []
    for _, guess, pairs, likely in ranked[: 2 if shape.points <= SOME_POINTS else 1]:
        made = calibrate_family_member(likely, promise, guess, _alone(likely, promise), pairs)
        if made is not None:
            candidates.append((error(made.rows()), likely.name, made))
    if not candidates:
        return None
    _, name, best = min(candidates, key=lambda candidate: candidate[0])
    return name, best


def _guess(family: ChannelFamily, targets: Floats, promise: PairwisePromise) -> tuple[float, Pairs]:
    """Guess of the strength; for many points, the strength that is allowed for any randomizer."""
    if len(targets) > MAX_BY_LAWS:
        return 0.5 if family.rows is exponential else 1.0, ()
    return guessed_strength(family, targets, promise.honest, promise.delta)


def _alike_guess(
    shape: ValueGeometry, targets: Floats, promise: PairwisePromise, any_two: float, error: Error
) -> tuple[float, float, Pairs, ResponseFamily]:
    every = 1.0 - np.eye(shape.points)
    guess = any_two
    if shape.points <= MAX_BY_LAWS:
        guess, _ = guessed_strength(
            ChannelFamily("", exponential, every, targets), targets, promise.honest, promise.delta
        )
    return error(exponential(guess * every)), guess, (), ResponseFamily(shape.points)


def _line_guess(
    shape: LineGeometry, promise: PairwisePromise, error: Error
) -> tuple[float, float, Pairs, LineFamily]:
    family = LineFamily(shape)
    if shape.points <= MAX_BY_LAWS:
        distances = shape.table(shape.distances)
        table = ChannelFamily("geometric", geometric, distances, distances)
        guess, _ = guessed_strength(table, promise.slope * distances, promise.honest, promise.delta)
        # The account of a task describes geometric noise by one law per displacement, which is a
        # little looser.
        return error(geometric(0.75 * guess * distances)), 0.75 * guess, (), family
    return math.inf if shape.points <= MAX_TABULATED else 0.0, 2.0 * promise.slope, (), family


def _alone(family: AnyFamily, promise: PairwisePromise) -> float:
    """Strength that meets the target without other reports (rates are rounded to 30 bits)."""
    if isinstance(family, ResponseFamily):
        return promise.slope * float(promise.shape.distances[0]) * (1.0 - 1e-9)
    if isinstance(family, LineFamily):
        return promise.slope * (1.0 - 4e-9)
    targets = promise.slope * promise.shape.table(promise.shape.distances)
    apart = family.metric > 0.0
    min_ratio = float(np.min(targets[apart] / family.metric[apart])) * (1.0 - 1e-9)
    return 0.5 * min_ratio if family.rows is exponential else min_ratio
