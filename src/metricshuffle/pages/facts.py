"""Plans and releases as the pages show them.

Chapters and charts know these facts only; beside this module, `numbers` and `what_if` alone look into a plan, to account again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from metricshuffle.errors import InputError
from metricshuffle.numerics.rounding import plain
from metricshuffle.planning import Candidate, Plan
from metricshuffle.planning.explain import name_of, target_text, why_chosen
from metricshuffle.queries import Centroid
from metricshuffle.spaces import Grid
from metricshuffle.wire.release import Release, measured


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
    local_epsilon: float
    """Of one report at the target's distance; infinite if a report hides nothing by itself."""
    rate: float | None
    """Of the noise, per step; None if the protocol adds none."""
    shape: int | None
    """Total shape of the honest people's noise; None if it has none."""
    bits_per_user: int
    messages_per_user: int
    guarantee: str
    delta: float
    fallback: str
    baseline: bool
    chosen: bool


@dataclass(frozen=True)
class Refusal:
    """A protocol that does not apply, and why."""

    name: str
    """The protocol, with its encoding where it has a choice."""
    reason: str


@dataclass(frozen=True)
class PlanFacts:
    """What is asked of whom, what is to be kept, and the protocols that keep it."""

    users: int
    honest: int
    minimum: int
    rounds: int
    digest: str
    kind: str
    domain: str
    unit: str
    diameter: float
    on_a_plane: bool
    epsilon: float
    delta: float
    distance: float
    in_proportion: bool
    """The promise shrinks with the distance, instead of being the same up to it."""
    target: str
    why_chosen: str
    offers: tuple[Offer, ...]
    refusals: tuple[Refusal, ...]

    @property
    def choice(self) -> Offer:
        return next(offer for offer in self.offers if offer.chosen)

    @property
    def spaced_unit(self) -> str:
        """As it follows a number."""
        return f" {self.unit}" if self.unit else ""

    def in_units(self, value: float) -> str:
        return f"{plain(value)}{self.spaced_unit}"

    def with_unit(self, words: str) -> str:
        """The title of an axis."""
        return f"{words} ({self.unit})" if self.unit else words

    def first_offer(self, protocol: str) -> Offer | None:
        return next((offer for offer in self.offers if offer.protocol == protocol), None)

    @property
    def geometric_shuffle(self) -> Offer | None:
        """With exact (unpadded) noise if there is one."""
        shuffled = [offer for offer in self.offers if offer.protocol == "geometric-shuffle"]
        return min(shuffled, key=lambda offer: offer.encoding != "modular", default=None)


def plan_facts(plan: Plan) -> PlanFacts:
    query, target = plan.query, plan.target
    return PlanFacts(
        users=plan.users,
        honest=plan.honest,
        minimum=plan.minimum,
        rounds=plan.rounds,
        digest=plan.digest,
        kind=query.kind,
        domain=str(query.values_in),
        unit=query.unit,
        diameter=query.diameter,
        on_a_plane=isinstance(query, Centroid),
        epsilon=target.epsilon,
        delta=target.delta,
        distance=target.distance,
        in_proportion=target.shape == "linear",
        target=target_text(plan),
        why_chosen=why_chosen(plan),
        offers=tuple(_offer(candidate, index == plan.chosen) for index, candidate in enumerate(plan.candidates)),
        refusals=tuple(Refusal(_named(refused.protocol, refused.encoding), refused.reason) for refused in plan.not_offered),
    )


def _named(protocol: str, encoding: str | None) -> str:
    return f"{protocol} ({encoding})" if encoding else protocol


def _offer(candidate: Candidate, chosen: bool) -> Offer:
    return Offer(
        candidate=candidate,
        name=name_of(candidate),
        protocol=candidate.protocol,
        encoding=candidate.encoding or "",
        trusted=candidate.trusted,
        expected_error=candidate.expected_error,
        local_epsilon=candidate.local_epsilon,
        rate=candidate.rate,
        shape=candidate.shape,
        bits_per_user=candidate.bits_per_user,
        messages_per_user=candidate.messages_per_user,
        guarantee=str(candidate.guarantee),
        delta=candidate.guarantee.delta,
        fallback=str(candidate.fallback),
        baseline=candidate.baseline,
        chosen=chosen,
    )


@dataclass(frozen=True)
class ReleaseFacts:
    """What came out, with two promises: one if whoever is trusted is honest, one if not."""

    value: tuple[float, ...]
    """One number for each axis."""
    interval: tuple[tuple[float, float], ...]
    """Of 95 %, for each axis."""
    decimals: int
    reports: int
    trusted: str
    guarantee: str
    if_shuffler_colludes: str

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

    def error(self, truth: object) -> float:
        """|estimate - truth|, Euclidean on a plane."""
        return math.dist(self.value, axes_of(truth))


def release_facts(release: Release) -> ReleaseFacts:
    # On a map the answer is in degrees; the page is about distances, so it takes the same place in their unit.
    answer = release.answer if release.plane is None else release.plane
    sides = np.asarray(answer.interval, dtype=np.float64).reshape(-1, 2)
    return ReleaseFacts(
        value=axes_of(answer.value),
        interval=tuple((float(low), float(high)) for low, high in sides),
        decimals=decimals_for(max(axes_of(answer.standard_error))),
        reports=release.reports,
        trusted=release.guarantee.trust.trusted,
        guarantee=str(release.guarantee),
        if_shuffler_colludes=str(release.if_shuffler_colludes),
    )


def axes_of(value: object) -> tuple[float, ...]:
    """A number or a point as one number for each axis."""
    return tuple(float(part) for part in np.atleast_1d(np.asarray(value, dtype=np.float64)))


def decimals_for(error: float) -> int:
    """Enough decimals to see two digits of the error."""
    return max(0, 1 - math.floor(math.log10(error))) if 0.0 < error < math.inf else 0


def grid_of(plan: Plan) -> Grid:
    """The cells of a plan about places."""
    grid = plan.query.values_in
    if not isinstance(grid, Grid):
        raise InputError(f"a map needs places on a grid, and this plan is about {grid}.")
    return grid
