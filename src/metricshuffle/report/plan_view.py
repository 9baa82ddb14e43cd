"""Facts about tasks, plans and releases, as the chapters and charts of pages show them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from metricshuffle.errors import InputError
from metricshuffle.numerics.rounding import format_distance, format_number
from metricshuffle.planning import Candidate, Plan
from metricshuffle.planning.plan_text import (
    damage_text,
    expected_error_text,
    protocol_label,
    target_text,
    why_chosen,
)
from metricshuffle.privacy.guarantee import Guarantee, Who
from metricshuffle.protocols.damage import Damage
from metricshuffle.protocols.shuffler_noise import ShufflerNoise
from metricshuffle.queries import Centroid
from metricshuffle.queries.query import Answer, Query
from metricshuffle.queries.result_table import Table
from metricshuffle.spaces import Categories, Grid
from metricshuffle.tasks.release import Release, measured
from metricshuffle.tasks.task import Task


@dataclass(frozen=True)
class CandidateView:
    """A candidate of a plan."""

    candidate: Candidate
    name: str
    protocol: str
    encoding: str
    """Empty if the protocol has only one."""
    trusted: str
    expected_error: float
    error: str
    """The expected error with its unit."""
    local_epsilon: float
    """Epsilon of one report at the target's distance; inf if a report alone protects nothing."""
    rate: float | None
    """Rate of the noise per step; None if the protocol adds none."""
    shape: int | None
    """Total shape of the honest people's noise; None if it has none."""
    bits_per_user: int
    messages_per_user: int
    delta: float
    damage: str
    """How far a liar can move the answer; empty if the plan does not say it."""
    baseline: bool
    chosen: bool


@dataclass(frozen=True)
class Refusal:
    """A protocol that does not apply, and why."""

    name: str
    """The protocol, with its encoding if it has several."""
    reason: str


@dataclass(frozen=True)
class TaskFacts:
    """The question of a task, its protocol and its guarantee."""

    users: int
    honest: int
    minimum: int
    rounds: int
    digest: str
    kind: str
    """Kind of query, as the command line names it."""
    query: str
    domain: str
    unit: str
    error_unit: str
    tabular: bool
    """Whether the answer is a table, whose rows are called `row_name`."""
    row_name: str
    diameter: float
    on_a_plane: bool
    labels: bool
    """Whether values are labels, any two of which are equally far apart."""
    epsilon: float
    delta: float
    distance: float
    in_proportion: bool
    """Whether epsilon is proportional to the distance, instead of constant up to it."""
    protocol: str
    protocol_kind: str
    encoding: str
    trusted: Who
    bits_per_user: int
    messages_per_user: int
    guarantee: Guarantee
    fallback: Guarantee
    warning: str
    """Sentence on what the fallback's epsilon does not say; empty if it says enough."""
    hides_alone: bool
    """Whether one report alone hides as much as the fallback's epsilon says."""
    counts_on_honest: bool
    """Whether the guarantee depends on honest people."""
    changes_answers: bool
    """Whether answers are changed by chance before they leave a person's device."""
    damage: Damage
    damage_text: str
    full_replacement: str
    """Sentence on the cost of replacing all items of one user; empty for one value per person."""

    @property
    def spaced_unit(self) -> str:
        """The unit with a leading space, to follow a number."""
        return f" {self.unit}" if self.unit else ""

    def in_units(self, value: float) -> str:
        return f"{format_number(value)}{self.spaced_unit}"

    def with_unit(self, words: str) -> str:
        """Axis title with the unit."""
        return f"{words} ({self.unit})" if self.unit else words

    @property
    def items_each(self) -> bool:
        """Whether everybody holds several items, which are protected together."""
        return bool(self.full_replacement)

    @property
    def reach(self) -> str:
        """Distance of the guarantee, never rounded up."""
        return f"{format_distance(self.distance)}{self.spaced_unit}"

    @property
    def two(self) -> str:
        """Phrase for two inputs at the distance of the guarantee, and how it is measured."""
        if self.labels:
            return "any two labels"
        between = self.guarantee.between
        measured_so = "" if between == "values" else f" (distance between {between})"
        if self.items_each:
            return f"two sets of items {self.reach} of earth mover's distance apart{measured_so}"
        return f"two answers {self.reach} apart{measured_so}"


def task_facts(task: Task) -> TaskFacts:
    query = task.query
    protocol = task.protocol
    promise = task.guarantee
    damage = protocol.damage(query, task.users)
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
        tabular=query.tabular,
        row_name=query.row_name,
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
        hides_alone=protocol.hides_alone(query),
        counts_on_honest=protocol.counts_on_honest,
        changes_answers=not isinstance(protocol, ShufflerNoise) or protocol.changes_answers,
        damage=damage,
        damage_text=damage.text(query),
        full_replacement=task.full_replacement if query.items is not None else "",
    )


@dataclass(frozen=True)
class PlanFacts(TaskFacts):
    """Facts about a task, its target, and the protocols that meet it."""

    target: str
    why_chosen: str
    offers: tuple[CandidateView, ...]
    refusals: tuple[Refusal, ...]

    @property
    def choice(self) -> CandidateView:
        return next(offer for offer in self.offers if offer.chosen)

    def first_offer(self, protocol: str) -> CandidateView | None:
        return next((offer for offer in self.offers if offer.protocol == protocol), None)

    @property
    def geometric_shuffle(self) -> CandidateView | None:
        """The geometric-shuffle candidate, with exact (unpadded) noise if there is one."""
        shuffled = [offer for offer in self.offers if offer.protocol == "geometric-shuffle"]
        return min(shuffled, key=lambda offer: offer.encoding != "modular", default=None)


def plan_facts(plan: Plan) -> PlanFacts:
    chosen = plan.choice
    query = plan.query
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
        offers=tuple(
            _offer(candidate, query, index == plan.chosen)
            for index, candidate in enumerate(plan.candidates)
        ),
        refusals=tuple(
            Refusal(_named(refused.protocol, refused.encoding), refused.reason)
            for refused in plan.not_offered
        ),
    )


def _named(protocol: str, encoding: str | None) -> str:
    return f"{protocol} ({encoding})" if encoding else protocol


def _offer(candidate: Candidate, query: Query, chosen: bool) -> CandidateView:
    return CandidateView(
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
        damage=damage_text(query, candidate.damage),
        baseline=candidate.baseline,
        chosen=chosen,
    )


@dataclass(frozen=True)
class ReleaseFacts:
    """A result with two guarantees: for an honest and for a colluding trusted party."""

    value: tuple[float, ...]
    """One number per axis; empty for a table."""
    interval: tuple[tuple[float, float], ...]
    """The 95 % interval of each axis or table row; empty for smoothed shares."""
    decimals: int
    reports: int
    round: int
    trusted: str
    guarantee: str
    if_shuffler_colludes: str
    damage: Damage
    damage_text: str
    spoiled: tuple[str, ...]
    """Sentences on what weakens the guarantees or the answer, in order of severity."""
    percent: bool
    """Whether the intervals are of shares, in percent."""
    smoothed: str = ""
    """For smoothed shares: what is known of a typical share, instead of an interval."""

    def written(self, value: object) -> str:
        """Format a number or a pair with the decimals of the release."""
        return measured(value, self.decimals)

    @property
    def value_text(self) -> str:
        return self.written(self.value if len(self.value) > 1 else self.value[0])

    @property
    def interval_text(self) -> str:
        """The interval of each axis, as "x to y"."""
        return " and ".join(
            f"{self.written(low)} to {self.written(high)}" for low, high in self.interval
        )

    @property
    def half_widths(self) -> tuple[float, float]:
        """Half-width of the interval: of a typical row (the median) and of the widest.

        For numbers and points, both are the largest distance from the answer to an end.
        """
        halves = [(high - low) / 2.0 for low, high in self.interval]
        if self.value:
            halves = [
                max(high - value, value - low)
                for value, (low, high) in zip(self.value, self.interval, strict=True)
            ]
            return max(halves), max(halves)
        return float(np.median(halves)), max(halves)

    def error(self, truth: object) -> float:
        """|estimate - truth|, Euclidean on a plane."""
        return math.dist(self.value, axis_values(truth))


def release_facts(release: Release) -> ReleaseFacts:
    # On a map the answer is in degrees; pages show distances, so they use its place on the plane.
    answer = release.answer if release.plane is None else release.plane
    table = isinstance(answer.value, Table)
    percent = table and "share" in release.value.columns
    times = 100.0 if percent else 1.0
    sides = (
        np.asarray(() if answer.interval is None else answer.interval, dtype=np.float64).reshape(
            -1, 2
        )
        * times
    )
    return ReleaseFacts(
        value=() if table else axis_values(answer.value),
        interval=tuple((float(low), float(high)) for low, high in sides),
        decimals=0
        if answer.standard_error is None
        else decimals_for(max(axis_values(answer.standard_error)) * times),
        reports=release.reports,
        round=release.round,
        trusted=release.guarantee.trust.trusted,
        guarantee=str(release.guarantee),
        if_shuffler_colludes=str(release.if_shuffler_colludes),
        damage=release.damage,
        damage_text=release.damage.text(release.query),
        spoiled=tuple(_spoiled(release)),
        percent=percent,
        smoothed=_smoothed(release, answer),
    )


def _smoothed(release: Release, answer: Answer) -> str:
    if not release.estimate.smoothed:
        return ""
    if release.estimate.nearby is None or answer.nearby is None:
        return (
            "no intervals: shares are smoothed, and values were randomized before they were counted"
        )
    half = format_number(
        float(f"{50.0 * float(np.median(answer.nearby[:, 1] - answer.nearby[:, 0])):.2g}")
    )
    words = release.estimate.nearby.words
    return (
        f"no intervals for single shares, which are smoothed, but plus or minus {half} % for a "
        f"typical share {words}"
    )


def _spoiled(release: Release) -> list[str]:
    """Sentences on what weakens the release, in order of severity."""
    promises = 1 if release.guarantee.trust.trusted == "nobody" else 2
    collected = (
        [] if release.collected is None else release.collected.sentences_worst_first(release.task)
    )
    of_guarantees = release.sentences[promises : len(release.sentences) - len(collected)]
    return [*of_guarantees, *([release.warning] if release.warning else []), *collected]


def axis_values(value: object) -> tuple[float, ...]:
    """A number or a point as one number per axis."""
    return tuple(float(part) for part in np.atleast_1d(np.asarray(value, dtype=np.float64)))


def decimals_for(error: float) -> int:
    """Number of decimals that shows two digits of the error."""
    return max(0, 1 - math.floor(math.log10(error))) if 0.0 < error < math.inf else 0


def plan_grid(plan: Plan) -> Grid:
    """Return the grid of a plan about places."""
    grid = plan.query.values_in
    if not isinstance(grid, Grid):
        raise InputError(f"a map needs places on a grid, and this plan is about {grid}.")
    return grid
