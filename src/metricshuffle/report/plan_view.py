"""Plans and releases as the pages show them.

Chapters and charts know these facts only; beside this module, `numbers` and `what_if` alone look into a plan, to account again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from metricshuffle.errors import InputError
from metricshuffle.numerics.rounding import format_distance, format_number
from metricshuffle.planning import Candidate, Plan
from metricshuffle.planning.plan_text import expected_error_text, protocol_label, target_text, why_chosen
from metricshuffle.privacy.guarantee import Guarantee, Who
from metricshuffle.queries import Centroid
from metricshuffle.queries.query import Answer, Query
from metricshuffle.queries.result_table import Table
from metricshuffle.spaces import Categories, Grid
from metricshuffle.tasks.release import Release, measured
from metricshuffle.tasks.task import Task


@dataclass(frozen=True)
class Offer:
    """A candidate of a plan."""

    candidate: Candidate
    name: str
    protocol: str
    encoding: str
    """Empty where the protocol leaves no choice."""
    trusted: str
    expected_error: float
    error: str
    """The same with its unit."""
    local_epsilon: float
    """Of one report at the target's distance; infinite if a report hides nothing by itself."""
    rate: float | None
    """Of the noise, per step; None if the protocol adds none."""
    shape: int | None
    """Total shape of the honest people's noise; None if it has none."""
    bits_per_user: int
    messages_per_user: int
    delta: float
    baseline: bool
    chosen: bool


@dataclass(frozen=True)
class Refusal:
    """A protocol that does not apply, and why."""

    name: str
    """The protocol, with its encoding where it has a choice."""
    reason: str


@dataclass(frozen=True)
class TaskFacts:
    """What is asked of whom, by which protocol, and what that promises."""

    users: int
    honest: int
    minimum: int
    rounds: int
    digest: str
    kind: str
    """What is asked for, as the command line calls it."""
    query: str
    domain: str
    unit: str
    error_unit: str
    diameter: float
    on_a_plane: bool
    labels: bool
    """Values are labels, any two of which are as far apart as any others."""
    epsilon: float
    delta: float
    distance: float
    in_proportion: bool
    """The promise shrinks with the distance, instead of being the same up to it."""
    protocol: str
    protocol_kind: str
    encoding: str
    trusted: Who
    bits_per_user: int
    messages_per_user: int
    guarantee: Guarantee
    fallback: Guarantee
    warning: str
    """What the fallback's number does not say, in a sentence; empty if it says enough."""
    full_replacement: str
    """What it costs to replace all that one user holds, in a sentence; empty where people hold one value each."""

    @property
    def spaced_unit(self) -> str:
        """As it follows a number."""
        return f" {self.unit}" if self.unit else ""

    def in_units(self, value: float) -> str:
        return f"{format_number(value)}{self.spaced_unit}"

    def with_unit(self, words: str) -> str:
        """The title of an axis."""
        return f"{words} ({self.unit})" if self.unit else words

    @property
    def items_each(self) -> bool:
        """Everybody holds items, and all of them are protected together."""
        return bool(self.full_replacement)

    @property
    def reach(self) -> str:
        """The distance of the promise, never more than the truth."""
        return f"{format_distance(self.distance)}{self.spaced_unit}"

    @property
    def two(self) -> str:
        """Two things that a person may hold, as far apart as is promised, and what that is measured between."""
        if self.labels:
            return "any two labels"
        between = self.guarantee.between
        measured_so = "" if between == "values" else f" (distance between {between})"
        if self.items_each:
            return f"two sets of items {self.reach} of earth mover's distance apart{measured_so}"
        return f"two answers {self.reach} apart{measured_so}"


def task_facts(task: Task) -> TaskFacts:
    query, protocol, promise = task.query, task.protocol, task.guarantee
    return TaskFacts(
        users=task.users,
        honest=task.honest,
        minimum=task.minimum,
        rounds=task.rounds,
        digest=task.digest,
        kind=query.title,
        query=str(query),
        domain=str(query.values_in),
        unit=query.unit,
        error_unit=query.error_unit,
        diameter=query.diameter,
        on_a_plane=isinstance(query, Centroid),
        labels=isinstance(query.values_in, Categories) and query.items is None,
        epsilon=promise.epsilon,
        delta=promise.delta,
        distance=promise.distance,
        in_proportion=promise.shape == "linear",
        protocol=protocol.name,
        protocol_kind=protocol.kind,
        encoding=protocol.encoding or "",
        trusted=protocol.trusted,
        bits_per_user=protocol.bits_per_user,
        messages_per_user=protocol.messages_per_user,
        guarantee=promise,
        fallback=task.if_shuffler_colludes,
        warning=protocol.warning(query),
        full_replacement=task.full_replacement if query.items is not None else "",
    )


@dataclass(frozen=True)
class PlanFacts(TaskFacts):
    """The same with what is to be kept, and the protocols that keep it."""

    target: str
    why_chosen: str
    offers: tuple[Offer, ...]
    refusals: tuple[Refusal, ...]

    @property
    def choice(self) -> Offer:
        return next(offer for offer in self.offers if offer.chosen)

    def first_offer(self, protocol: str) -> Offer | None:
        return next((offer for offer in self.offers if offer.protocol == protocol), None)

    @property
    def geometric_shuffle(self) -> Offer | None:
        """With exact (unpadded) noise if there is one."""
        shuffled = [offer for offer in self.offers if offer.protocol == "geometric-shuffle"]
        return min(shuffled, key=lambda offer: offer.encoding != "modular", default=None)


def plan_facts(plan: Plan) -> PlanFacts:
    chosen, query = plan.choice, plan.query
    return PlanFacts(
        **{
            **vars(task_facts(plan.task)),
            "epsilon": plan.target.epsilon,
            "delta": plan.target.delta,
            "distance": plan.target.distance,
            "protocol": protocol_label(chosen),
        },
        target=target_text(plan),
        why_chosen=why_chosen(plan),
        offers=tuple(_offer(candidate, query, index == plan.chosen) for index, candidate in enumerate(plan.candidates)),
        refusals=tuple(Refusal(_named(refused.protocol, refused.encoding), refused.reason) for refused in plan.not_offered),
    )


def _named(protocol: str, encoding: str | None) -> str:
    return f"{protocol} ({encoding})" if encoding else protocol


def _offer(candidate: Candidate, query: Query, chosen: bool) -> Offer:
    return Offer(
        candidate=candidate,
        name=protocol_label(candidate),
        protocol=candidate.protocol,
        encoding=candidate.encoding or "",
        trusted=candidate.trusted,
        expected_error=candidate.expected_error,
        error=expected_error_text(query, candidate.expected_error),
        local_epsilon=candidate.local_epsilon,
        rate=candidate.rate,
        shape=candidate.shape,
        bits_per_user=candidate.bits_per_user,
        messages_per_user=candidate.messages_per_user,
        delta=candidate.guarantee.delta,
        baseline=candidate.baseline,
        chosen=chosen,
    )


@dataclass(frozen=True)
class ReleaseFacts:
    """What came out, with two promises: one if whoever is trusted is honest, one if not."""

    value: tuple[float, ...]
    """One number for each axis; none for a table."""
    interval: tuple[tuple[float, float], ...]
    """Of 95 %, for each axis, or for each row of a table; none of smoothed shares."""
    decimals: int
    reports: int
    round: int
    trusted: str
    guarantee: str
    if_shuffler_colludes: str
    spoiled: tuple[str, ...]
    """What makes the promises or the answer worth less, in sentences."""
    percent: bool
    """The intervals are those of shares, in percent."""
    smoothed: str = ""
    """Of smoothed shares, what is known of a typical one instead of an interval."""

    def written(self, value: object) -> str:
        """A number or a pair, with as many decimals as the release has."""
        return measured(value, self.decimals)

    @property
    def value_text(self) -> str:
        return self.written(self.value if len(self.value) > 1 else self.value[0])

    @property
    def interval_text(self) -> str:
        """ "x to y", for each axis."""
        return " and ".join(f"{self.written(low)} to {self.written(high)}" for low, high in self.interval)

    @property
    def half_widths(self) -> tuple[float, float]:
        """How far the interval goes to either side of the answer: of a typical row (the median) and of the widest."""
        halves = [(high - low) / 2.0 for low, high in self.interval]
        if self.value:
            halves = [max(high - value, value - low) for value, (low, high) in zip(self.value, self.interval, strict=True)]
            return max(halves), max(halves)
        return float(np.median(halves)), max(halves)

    def error(self, truth: object) -> float:
        """|estimate - truth|, Euclidean on a plane."""
        return math.dist(self.value, axis_values(truth))


def release_facts(release: Release) -> ReleaseFacts:
    # On a map the answer is in degrees; the page is about distances, so it takes the same place in their unit.
    answer = release.answer if release.plane is None else release.plane
    table = isinstance(answer.value, Table)
    percent = table and "share" in release.value.columns
    times = 100.0 if percent else 1.0
    sides = np.asarray(() if answer.interval is None else answer.interval, dtype=np.float64).reshape(-1, 2) * times
    return ReleaseFacts(
        value=() if table else axis_values(answer.value),
        interval=tuple((float(low), float(high)) for low, high in sides),
        decimals=0 if answer.standard_error is None else decimals_for(max(axis_values(answer.standard_error)) * times),
        reports=release.reports,
        round=release.round,
        trusted=release.guarantee.trust.trusted,
        guarantee=str(release.guarantee),
        if_shuffler_colludes=str(release.if_shuffler_colludes),
        spoiled=tuple(_spoiled(release)),
        percent=percent,
        smoothed=_smoothed(release, answer),
    )


def _smoothed(release: Release, answer: Answer) -> str:
    if not release.estimate.smoothed:
        return ""
    if release.estimate.nearby is None or answer.nearby is None:
        return "no intervals: shares are smoothed, and values were randomized before they were counted"
    half = format_number(float(f"{50.0 * float(np.median(answer.nearby[:, 1] - answer.nearby[:, 0])):.2g}"))
    words = release.estimate.nearby.words
    return f"no intervals for single shares, which are smoothed, but plus or minus {half} % for a typical share {words}"


def _spoiled(release: Release) -> list[str]:
    promises = 1 if release.guarantee.trust.trusted == "nobody" else 2
    return [*release.sentences[promises:], *([release.warning] if release.warning else [])]


def axis_values(value: object) -> tuple[float, ...]:
    """A number or a point as one number for each axis."""
    return tuple(float(part) for part in np.atleast_1d(np.asarray(value, dtype=np.float64)))


def decimals_for(error: float) -> int:
    """Enough decimals to see two digits of the error."""
    return max(0, 1 - math.floor(math.log10(error))) if 0.0 < error < math.inf else 0


def plan_grid(plan: Plan) -> Grid:
    """The cells of a plan about places."""
    grid = plan.query.values_in
    if not isinstance(grid, Grid):
        raise InputError(f"a map needs places on a grid, and this plan is about {grid}.")
    return grid
