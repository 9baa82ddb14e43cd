"""Local metric and randomizer whose shuffled reports meet a target for every pair (`solve`)."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from metricshuffle.amplification.metric_channel import MetricChannelProfile
from metricshuffle.display import Brief
from metricshuffle.errors import InputError, NotCertified, argument
from metricshuffle.numerics.rounding import format_delta, format_epsilon, format_number
from metricshuffle.numerics.types import Floats
from metricshuffle.privacy.profile import PrivacyProfile
from metricshuffle.privacy.target import Honest, Target, checked_users, honest_count
from metricshuffle.protocols.frequencies import shuffled_profile
from metricshuffle.randomizers.bounded_geometric import BoundedGeometric
from metricshuffle.randomizers.randomized_response import KaryRandomizedResponse
from metricshuffle.randomizers.randomizer import Randomizer, has_law_of
from metricshuffle.solving.finite_spaces import shape_of, space_of
from metricshuffle.solving.local_metric import (
    ALGORITHMS,
    AnyTarget,
    LineTarget,
    LocalMetric,
    LocalMetrics,
    SpaceTarget,
)
from metricshuffle.solving.randomizer_files import save_randomizer
from metricshuffle.solving.randomizer_search import (
    MAX_ON_A_LINE,
    MAX_TABULATED,
    SOME_POINTS,
    Error,
    PairwisePromise,
    exponential,
    find_strongest,
    padded,
    report_error,
    share_error,
)
from metricshuffle.solving.value_geometry import MAX_LISTED, LineGeometry, ValueGeometry
from metricshuffle.spaces import Domain, Metric, Space

AlgorithmChoice = Literal["all", "1", "3", "1N"]
ErrorMeasure = Literal["shares", "report"]
BOUNDS = {"1N": "clone pair", "1": "Corollary 1", "3": "Corollary 2"}
"""Bound that each algorithm solves for; of equal results, the first in this order wins."""
MAX_RANKED = 128
"""Largest number of points for which metrics are compared by the error of a randomizer."""
SHOWN_DISTANCES = 6
"""Number of distances at which epsilon is shown."""
MAX_METRICS = 5
MIN_RELATIVE_GAIN = 1e-3
"""Relative gains smaller than this come from delta, not from shuffling."""


@dataclass(frozen=True)
class AllowedMetric:
    """Best metric that one algorithm allows any randomizer.

    It comes with its local epsilon at the target's distance and its largest local epsilon.
    """

    algorithm: str
    local_epsilon: float
    largest: float
    error: float
    """Error of a randomizer built on `metric` without an account of its laws; inf if unknown."""
    amplifies: bool
    metric: LocalMetric = field(repr=False)
    found: LocalMetrics = field(repr=False)


@dataclass(frozen=True)
class DistanceEpsilons:
    """Epsilons of pairs up to a distance.

    They are the target's epsilon; the local epsilon and the epsilon after shuffling of any
    randomizer with the metric; and the epsilons of the chosen randomizer.
    """

    distance: float
    promised: float
    local: float
    certified: float
    randomizer_local: float | None = None
    randomizer_certified: float | None = None


@dataclass(frozen=True, eq=False)
class SolvedMetric(Brief):
    """Local metric for a target, the reason for the choice, and a randomizer for the target.

    `metric`: the local metric that any randomizer may have, by the bound of the winning algorithm.
    `randomizer`: a randomizer whose own laws were accounted for, for every pair; it usually has a
    larger local epsilon than `metric`, is less noisy, and still meets the target. None with too
    many values.
    """

    shape: ValueGeometry
    target: Target
    users: int
    honest: int
    allowed: tuple[AllowedMetric, ...]
    """Result of each algorithm, the winner first."""
    randomizer: Randomizer | None
    randomizer_name: str
    unit: str = ""
    least: ErrorMeasure = "shares"

    @property
    def winner(self) -> AllowedMetric:
        return self.allowed[0]

    @property
    def algorithm(self) -> str:
        return self.winner.algorithm

    @property
    def metric(self) -> LocalMetric:
        """Recommended local metric, closed by shortest paths."""
        return self.winner.metric

    @property
    def amplifies(self) -> bool:
        """Whether some algorithm allows any randomizer a local metric above the target.

        A local metric equal to the target itself needs no shuffler.
        """
        return any(allowed_metric.amplifies for allowed_metric in self.allowed)

    def local_epsilon(self, distance: float | None = None) -> float:
        """Largest local epsilon of any randomizer up to a distance (default: the target's)."""
        return self.metric.within(self.target.distance if distance is None else distance)

    def table(self) -> Floats:
        """Recommended local epsilon of every pair of values."""
        return self.metric.table()

    @property
    def _distances(self) -> list[float]:
        """Smallest and largest distance, that of the target, and some between."""
        known = np.unique(self.shape.distances)
        count = SHOWN_DISTANCES if self.shape.points <= SOME_POINTS else 3
        some = known[np.unique(np.rint(np.geomspace(1, len(known), count)).astype(np.int64) - 1)]
        own = known[known <= self.target.distance * (1.0 + 1e-12)]
        return sorted({*some.tolist(), *own[-1:].tolist()})

    @cached_property
    def certified(self) -> tuple[DistanceEpsilons, ...]:
        """Epsilons at a few distances, accounted for anew; none exceeds the target."""
        slope = self._promise.slope
        made = self.randomizer
        rows = []
        profile, alone = (
            (None, None)
            if made is None
            else (_rough_profile(made, count) for count in (self.honest, 1))
        )
        for distance in self._distances:
            is_within = self.shape.distances <= distance * (1.0 + 1e-12)
            own: tuple[float | None, float | None] = (None, None)
            if made is not None and profile is not None and alone is not None:
                steps = self._promise.steps_of(made, distance)
                own = (
                    alone.pure(steps),
                    min(profile.epsilon(self.target.delta, steps), alone.pure(steps)),
                )
            rows.append(
                DistanceEpsilons(
                    distance,
                    slope * distance,
                    self.local_epsilon(distance),
                    float(self.metric.accounted[is_within].max()),
                    *own,
                )
            )
        return tuple(rows)

    @cached_property
    def _promise(self) -> PairwisePromise:
        return PairwisePromise(
            self.shape, self.target.epsilon, self.target.distance, self.target.delta, self.honest
        )

    @cached_property
    def share_error(self) -> float:
        """Expected absolute error of one share of the histogram, for people spread evenly."""
        return (
            math.inf if self.randomizer is None else share_error(self.randomizer.rows(), self.users)
        )

    @cached_property
    def report_error(self) -> float:
        """Expected distance between a value and the value its report is read as, in units.

        For people spread evenly.
        """
        if self.randomizer is None:
            return math.inf
        return report_error(self.randomizer.rows(), self.shape.table(self.shape.distances))

    # In words

    def why(self) -> str:
        """Recommendation in two or three sentences."""
        unit = f" {self.unit}" if self.unit else ""
        distance_text = format_number(self.target.distance)
        own = self.local_epsilon()
        max_epsilon = self.metric.closed_diameter
        nearest_text = allowed_text(float(self.metric.closed[0]))
        times = allowed_text(own / self.target.epsilon)
        if self.amplifies:
            most_by = ", which allows the most" if len(self.allowed) > 1 else ""
            measure = (
                "So does any randomizer within the local metric of Algorithm "
                f"{self.algorithm}{most_by}: epsilon {nearest_text} "
                "for the nearest "
                f"values, {allowed_text(own)} at {distance_text}{unit} ({times} times the "
                f"target) and {allowed_text(max_epsilon)} "
                "for the farthest."
            )
        else:
            measure = (
                "For any randomizer whatever, shuffling buys nothing here by the bounds "
                "known: its local metric must be the target itself, "
                f"epsilon {allowed_text(own)} at {distance_text}{unit}."
            )
        if self.randomizer is None:
            recommendation = (
                f"Recommended: the local metric of Algorithm {self.algorithm}, which keeps the "
                f"promise {self._among}."
            )
            return f"{recommendation} {measure} {self._no_randomizer}"
        alone = next(
            row.randomizer_local for row in self.certified if row.distance >= self._own_distance
        )
        return (
            f"Recommended: {self.randomizer_name}, of epsilon "
            f"{format_epsilon(alone or 0.0)} alone for values up to "
            f"{distance_text}{unit} apart; accounted "
            f"for by its own laws it keeps the promise {self._among}. {measure}"
        )

    @property
    def _among(self) -> str:
        return (
            "with nobody to hide among"
            if self.honest == 1
            else f"among {self.honest:,} honest reports"
        )

    @property
    def _own_distance(self) -> float:
        known = self.shape.distances
        return float(known[known <= self.target.distance * (1.0 + 1e-12)][-1])

    @property
    def _no_randomizer(self) -> str:
        if self.shape.points <= MAX_TABULATED:
            return (
                "No randomizer was built: none that hides so little has probabilities that are "
                "multiples of 2^-63; ask for less."
            )
        return (
            f"No randomizer was built: tables are made for up to {MAX_TABULATED:,} values "
            "and geometric noise for up to "
            f"{MAX_ON_A_LINE + 1:,} on a line, and there are {self.shape.points:,}."
        )

    def error_sentence(self) -> str:
        """Sentence about the error of the randomizer."""
        if self.randomizer is None:
            return ""
        unit = f" {self.unit}" if self.unit else ""
        shares = (
            f"an unbiased share of the histogram is off by {_percent(self.share_error)} on average"
            if math.isfinite(self.share_error)
            else "the histogram cannot be told from its reports"
        )
        people = f"With {self.users:,} {'people' if self.users > 1 else 'person'}"
        report = f"one report alone by {format_number(self.report_error)}{unit}"
        clones = self.winner.error
        before = ""
        if math.isfinite(clones):
            clones_text = (
                _percent(clones) if self.least == "shares" else f"{format_number(clones)}{unit}"
            )
            before = f" (by one made for the local metric alone: {clones_text})"
        if self.least == "shares":
            return f"{people} {shares}{before}; {report}."
        return f"{people} {shares}; {report}{before}."

    def summaries(self) -> list[str]:
        """One line for each algorithm."""
        distance_text = format_number(self.target.distance)
        return [
            f"Algorithm {allowed_metric.algorithm} ({BOUNDS[allowed_metric.algorithm]}): "
            "local epsilon "
            f"{allowed_text(allowed_metric.local_epsilon)} at {distance_text}, "
            f"{allowed_text(allowed_metric.largest)} at "
            f"most{'' if allowed_metric.amplifies else '; no more than without a shuffler'}."
            for allowed_metric in self.allowed
        ]

    def explain(self) -> str:
        """Explanation of the whole result."""
        promise = (
            f"Promised: epsilon {format_epsilon(self.target.epsilon)} at distance "
            f"{format_number(self.target.distance)}, in "
            "proportion for every other "
            f"pair, delta {format_delta(self.target.delta)}."
        )
        return "\n".join(
            filter(
                None,
                (self.why(), promise, self.error_sentence(), *self.summaries(), self.trade_off),
            )
        )

    @property
    def trade_off(self) -> str:
        """Sentence about the alternatives."""
        others = [metric for metric in self.winner.found.best_closed if metric is not self.metric]
        if not others:
            return ""
        what = "a share" if self.least == "shares" else "one report"
        max_nearest = max(float(metric.closed[0]) for metric in others)
        max_diameter = max(metric.closed_diameter for metric in others)
        return (
            f"{len(others)} more local metrics are allowed that no other dominates: up to "
            f"epsilon {allowed_text(max_nearest)} for "
            "the nearest "
            f"values, or {allowed_text(max_diameter)} for the farthest; this one was "
            f"chosen for the least error of {what}."
        )

    # Files

    def to_json(self) -> str:
        """Return the result and every algorithm's answer as JSON; non-finite numbers are null."""
        return json.dumps(self.document(), indent=2)

    def document(self) -> dict[str, Any]:
        chosen = self.metric
        solutions = self.winner.found
        metric: dict[str, Any] = {
            "distances": self.shape.distances.tolist(),
            "local_epsilon": chosen.closed.tolist(),
            "diameter": chosen.closed_diameter,
        }
        if self.shape.points <= MAX_RANKED:
            metric["matrix"] = self.table().tolist()
        made = self.randomizer
        return {
            "recommended": self.why(),
            "algorithm": self.algorithm,
            "amplifies": self.amplifies,
            "metric": metric,
            "certified": [
                {name: _finite(value) for name, value in vars(row).items()}
                for row in self.certified
            ],
            "randomizer": None
            if made is None
            else {
                "name": self.randomizer_name,
                "kind": made.model_dump()["kind"],
                "inputs": made.inputs,
                "outputs": made.outputs,
            },
            "share_error": _finite(self.share_error),
            "report_error": _finite(self.report_error),
            "algorithms": {
                item.algorithm: {
                    "local_epsilon": item.local_epsilon,
                    "largest": item.largest,
                    "amplifies": item.amplifies,
                    "error": _finite(item.error),
                }
                for item in self.allowed
            },
            "low": solutions.low,
            "high": solutions.high,
            "solutions": [
                {
                    "diameter": item.diameter,
                    **(
                        {"local_epsilon_per_unit": item.per_unit}
                        if isinstance(item.target, LineTarget)
                        else {}
                    ),
                    "local_epsilon_at_distance": item.within(self.target.distance),
                    "amplified_max_excess": item.max_excess,
                    "closed_diameter": item.closed_diameter,
                }
                for item in solutions.solutions
            ],
        }

    def save(self, path: str) -> None:
        """Write the randomizer to a file.

        `amplify --randomizer file:PATH` and `plan --randomizer PATH` read it.
        """
        if self.randomizer is None:
            raise InputError(f"there is no randomizer to save. {self._no_randomizer}")
        save_randomizer(self.randomizer, path)


def _finite(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else value


def allowed_text(epsilon: float) -> str:
    """Format an allowed epsilon with four digits, rounded down (up to the rounding of decimals)."""
    if epsilon == 0.0:
        return "0"
    unit = 10.0 ** (math.floor(math.log10(epsilon)) - 3)
    return f"{math.floor(epsilon * (1.0 + 1e-12) / unit) * unit:.4g}"


def _percent(share: float) -> str:
    return f"{format_number(100.0 * share)} %"


def solve(
    space: Space | Domain | Metric,
    target: Target,
    users: int,
    honest: Honest = None,
    *,
    step: float | None = None,
    algorithm: AlgorithmChoice = "all",
    least: ErrorMeasure = "shares",
    grid: int = 16,
) -> SolvedMetric:
    """Find a local metric whose shuffled reports meet the target for EVERY pair, and a randomizer.

    `target`: epsilon at a distance, and in proportion for all other pairs, nearer or farther (shape
    "linear"). `space`: Integers, a Grid, labels with a Tree or a Matrix, numbers on a Circle; with
    `step`, numbers low, low + step, .., high. Every algorithm is tried unless one is named, each
    for `grid` values of the largest local epsilon. Of all metrics found, the one whose randomizer
    has the least error is chosen: in the "shares" of a histogram, or in the value that one "report"
    is read as.
    """
    if not isinstance(target, Target):
        raise InputError(f"solve needs a Target, got {type(target).__name__}.")
    if target.shape != "linear":
        raise InputError(
            "solve is for promises in proportion to the distance (shape 'linear'); plan "
            "calibrates those that are flat."
        )
    if not target.delta > 0.0:
        raise InputError(
            f"{argument('delta')} must be > 0 here; with delta = 0 shuffling changes "
            "nothing, and the local metric is the target itself."
        )
    if algorithm != "all" and algorithm not in ALGORITHMS:
        raise InputError(
            f"{argument('algorithm')} must be one of all, {', '.join(ALGORITHMS)}, got "
            f"{algorithm!r}."
        )
    if least not in ("shares", "report"):
        raise InputError(f"{argument('least')} must be shares or report, got {least!r}.")
    counted = honest_count(honest, checked_users(users))
    place = space_of(space)
    shape = shape_of(place, step)
    if not target.distance >= float(shape.distances[0]) * (1.0 - 1e-12):
        raise InputError(
            f"{argument('distance')} {format_number(target.distance)} is less than "
            f"{format_number(float(shape.distances[0]))}, the least "
            "between two values; "
            "state epsilon at a distance that some two values have."
        )
    wanted: AnyTarget = SpaceTarget(shape, target.epsilon, target.distance)
    if isinstance(shape, LineGeometry):
        wanted = LineTarget(
            0.0, shape.steps * shape.step, target.epsilon, target.distance, shape.step
        )
    tried = [name for name in BOUNDS if algorithm in ("all", name)]
    error = _error_of(shape, users, least)
    allowed = [_solve_algorithm(name, wanted, target, error, counted, grid) for name in tried]
    allowed.sort(
        key=lambda candidate: (candidate.error, -candidate.local_epsilon)
    )  # stable: the first of equals
    promise = PairwisePromise(shape, target.epsilon, target.distance, target.delta, counted)
    best = allowed[0]
    made = (
        find_strongest(promise, _metrics(shape, best), best.found.low, error)
        if shape.points <= MAX_ON_A_LINE + 1
        else None
    )
    name, randomizer = made if made is not None else ("", None)
    return SolvedMetric(
        shape,
        target,
        users,
        counted,
        tuple(allowed),
        randomizer,
        _randomizer_text(name, randomizer),
        place.unit,
        least,
    )


def _error_of(shape: ValueGeometry, users: int, measure: ErrorMeasure) -> Error:
    if measure == "shares" or shape.points > MAX_LISTED:
        return lambda rows: share_error(rows, users)
    distances = shape.table(shape.distances)
    return lambda rows: report_error(rows, distances)


def _rough_profile(randomizer: Randomizer, honest: int) -> PrivacyProfile:
    """Profile of its shuffled reports, to as many digits as are shown."""
    profile = shuffled_profile(randomizer, honest)
    return replace(profile, relative=1e-4) if isinstance(profile, MetricChannelProfile) else profile


def _solve_algorithm(
    algorithm: str, wanted: AnyTarget, target: Target, error: Error, honest: int, grid: int
) -> AllowedMetric:
    metrics = ALGORITHMS[algorithm](wanted, honest, target.delta, grid)  # type: ignore[index]
    listed = wanted.shape.points <= MAX_RANKED
    ranked = [
        (_any_error(metric, error) if listed else math.inf, -metric.within(target.distance), index)
        for index, metric in enumerate(metrics.best_closed)
    ]
    min_error, local, index = min(ranked)
    chosen = metrics.best_closed[index]
    amplifies = any(
        bool((metric.closed > wanted.totals * (1.0 + MIN_RELATIVE_GAIN)).any())
        for metric in metrics.solutions
    )
    return AllowedMetric(
        algorithm, -local, chosen.closed_diameter, min_error, amplifies, chosen, metrics
    )


def _any_error(metric: LocalMetric, error: Error) -> float:
    """Error of a generic randomizer with this local metric, without an account of its laws.

    It is the exponential mechanism at half the metric, or the padded one if that has less error.
    """
    table = metric.table()
    try:
        rows = [exponential(0.5 * table), padded(table)]
    except (InputError, NotCertified):  # too strong for multiples of 2^-63
        rows = [exponential(0.5 * table)]
    return min(error(law_rows) for law_rows in rows)


def _metrics(shape: ValueGeometry, best: AllowedMetric) -> list[Floats]:
    """Metrics to build on: the recommended one, other undominated ones, and the distances."""
    if shape.points > MAX_TABULATED:
        return []
    others = [metric for metric in best.found.best_closed if metric is not best.metric]
    some = (
        others[:: max(1, math.ceil(len(others) / (MAX_METRICS - 1)))]
        if shape.points <= MAX_RANKED
        else []
    )
    straight = shape.table(
        shape.distances * (best.metric.closed_diameter / float(shape.distances[-1]))
    )
    return [best.metric.table(), *(metric.table() for metric in some), straight]


def _randomizer_text(name: str, randomizer: Randomizer | None) -> str:
    if randomizer is None:
        return ""
    if has_law_of(randomizer, BoundedGeometric):
        return (
            f"geometric noise of rate {format_number(randomizer.rate)} per step (bounded-geometric)"
        )
    if has_law_of(randomizer, KaryRandomizedResponse):
        return (
            f"randomized response over all {randomizer.inputs} values (k-ary-randomized-response)"
        )
    return (
        f"a table of {randomizer.inputs} x {randomizer.outputs} probabilities ({name}, as a "
        "channel)"
    )
