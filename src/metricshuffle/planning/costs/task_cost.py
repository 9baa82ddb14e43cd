"""Privacy cost of the rounds of one task, and composition with other tasks of the same people."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from metricshuffle.accounting.composition.composed_profile import ComposedProfile
from metricshuffle.citations import theorem
from metricshuffle.numerics.certified_search import first_certified, last_certified
from metricshuffle.numerics.rounding import round_up
from metricshuffle.numerics.types import Floats
from metricshuffle.privacy.dominating_pair import DominatingPair, dominating_pair
from metricshuffle.privacy.guarantee import protects_no_less
from metricshuffle.privacy.profile import PrivacyProfile, checked_epsilon, validate_distance
from metricshuffle.protocols.protocol import Account
from metricshuffle.tasks.collection_summary import NOT_CERTIFIED_ERRORS, is_promise_kept
from metricshuffle.tasks.task import Task

# Relative tolerance of the search for the smallest epsilon; the result is certified.
EPSILON_TOLERANCE = 1e-3
# The same for more rounds than were planned, where one verification may take a second.
EXTRA_ROUNDS_TOLERANCE = 3e-3
# Guarantees with a larger epsilon are not searched for.
MAX_EPSILON = 1000.0
# Epsilons at which the curve of one round is sampled: evenly spaced ones and powers of sqrt(2).
CURVE_POINTS = 48
CURVE_LADDER = 2.0 ** (0.5 * np.arange(-6.0, 11.0))
# The curve of a round is sampled until it falls to this fraction of the task's delta per round.
NEGLIGIBLE_DELTA_SHARE = 1e-3


@dataclass(frozen=True)
class Price:
    """A certified (epsilon, delta)."""

    epsilon: float
    delta: float


FREE = Price(0.0, 0.0)
UNBOUNDED = Price(math.inf, 0.0)


@dataclass(frozen=True)
class TaskCost:
    """Cost of a number of released rounds of a task, at the distance of its guarantee."""

    task: Task
    rounds: int
    seeded: int = 0
    """Number of rounds made with seeded randomness, for which the guarantee does not hold."""
    _pairs: dict[float, DominatingPairProfile | None] = field(
        default_factory=dict, repr=False, compare=False
    )
    """Dominating pair of one round by distance.

    It may take seconds to compute and is the same for any number of rounds.
    """

    def of(self, rounds: int) -> TaskCost:
        """Return the cost of the same task after this number of rounds."""
        return TaskCost(self.task, rounds, self.seeded, self._pairs)

    @property
    def left(self) -> int:
        return max(0, self.task.rounds - self.rounds)

    @cached_property
    def price(self) -> Price:
        """Smallest certified epsilon of these rounds at the guarantee's distance, delta and shape.

        Statement: all planned rounds cost what the task guarantees. Fewer rounds cost no more,
        because they show a part of what all rounds show; their cost is computed by the protocol's
        own account of that number of rounds. The cost of more rounds is computed in the same way;
        if nothing can be certified at the same delta, the guarantee is composed with itself as many
        times as needed to cover the rounds (epsilons and deltas add up).
        Conditions: the task was verified (`Task.verify`).
        """
        claimed = self.task.guarantee
        planned = self.task.rounds
        if self.rounds == 0:
            return FREE
        if self.rounds == planned:
            return Price(claimed.epsilon, claimed.delta)
        if self.rounds < planned:
            return Price(
                last_certified(self._kept, 0.0, claimed.epsilon, relative=EPSILON_TOLERANCE),
                claimed.delta,
            )
        in_proportion = round_up(claimed.epsilon * (self.rounds / planned), 4)
        bracket = first_certified(
            self._kept,
            min(in_proportion, MAX_EPSILON),
            MAX_EPSILON,
            step=0.1,
            failing=claimed.epsilon,
            growth=2.0,
        )
        if bracket.passing < MAX_EPSILON:
            return Price(
                last_certified(self._kept, *bracket, relative=EXTRA_ROUNDS_TOLERANCE), claimed.delta
            )
        times = math.ceil(self.rounds / planned)
        return Price(
            round_up(times * claimed.epsilon, 2), min(1.0, round_up(times * claimed.delta, 2))
        )

    def _kept(self, epsilon: float) -> bool:
        """Whether these rounds are certified for `epsilon` at every distance of the guarantee."""
        return is_promise_kept(self.task, epsilon, self.task.honest, self.rounds)

    def _protects_as_many(self, account: Account) -> bool:
        """Whether an account protects as many people as the guarantee.

        The exact law of one person's noise says nothing about several people who move as far in
        total: noise of a small shape that hides one move of 2 steps does not hide two people's
        moves of 1 step as well. (Pure epsilons add up.)
        """
        return protects_no_less(account.protects, self.task.guarantee.protects)

    @cached_property
    def alone(self) -> Price:
        """Cost of a person's own reports alone: the fallback if the trusted party colludes."""
        task = self.task
        if self.rounds == 0:
            return FREE
        if task.protocol.trusted == "nobody":
            return self.price
        if self.rounds == task.rounds:
            return Price(task.if_shuffler_colludes.epsilon, task.if_shuffler_colludes.delta)
        target = task.target.with_delta(max(task.target.delta, task.if_shuffler_colludes.delta))
        try:
            with np.errstate(all="ignore"):
                seen = task.protocol.alone(task.query, target, self.rounds)
        except NOT_CERTIFIED_ERRORS:
            return UNBOUNDED
        if (
            self.rounds < task.rounds and seen.epsilon > task.if_shuffler_colludes.epsilon
        ):  # all rounds together show no less
            seen = task.if_shuffler_colludes
        return Price(seen.epsilon, seen.delta)

    def at(self, distance: float) -> Price:
        """Price at a smaller distance: proportional if the guarantee is linear, else the same."""
        claimed = self.task.guarantee
        if claimed.shape == "flat" or distance >= claimed.distance:
            return self.price
        return Price(
            round_up(self.price.epsilon * (distance / claimed.distance), 4), self.price.delta
        )

    def promised_part(self, distance: float) -> tuple[PrivacyProfile, int]:
        """All rounds as one mechanism of which only its (epsilon, delta) is known."""
        price = self.at(distance)
        return DominatingPairProfile(dominating_pair([0.0, price.epsilon], [1.0, price.delta])), 1

    def mechanism_part(self, distance: float) -> tuple[PrivacyProfile, int]:
        """Profile of one round and number of rounds; `promised_part` if a round has no profile."""
        if distance not in self._pairs:
            self._pairs[distance] = self._dominating_round(distance)
        pair = self._pairs[distance]
        return self.promised_part(distance) if pair is None else (pair, self.rounds)

    def _dominating_round(self, distance: float) -> DominatingPairProfile | None:
        """Dominating pair of one round, from its curve at a few epsilons; None if unavailable."""
        task = self.task
        once = self.of(1).at(distance)
        negligible = NEGLIGIBLE_DELTA_SHARE * once.delta / max(self.rounds, task.rounds)
        try:
            with np.errstate(all="ignore"):
                target = task.target.model_copy(
                    update={"distance": distance, "epsilon": once.epsilon}
                )
                account = task.protocol.account(task.query, target, task.honest, 1)
                if not self._protects_as_many(account):
                    return None
                at = curve_epsilons(
                    account.profile, account.target.distance, once.epsilon, negligible
                )
                deltas = [account.profile.delta(epsilon, account.target.distance) for epsilon in at]
            return DominatingPairProfile(dominating_pair(at, deltas))
        except NOT_CERTIFIED_ERRORS:
            return None


@dataclass(frozen=True, eq=False)
class DominatingPairProfile(PrivacyProfile):
    """Profile of a dominating pair of laws.

    The moves for which the pair dominates have distance 1; nothing is claimed beyond that.
    """

    pair: DominatingPair
    bound: str = "sampled"

    def pure(self, distance: float) -> float:
        if validate_distance(distance) == 0.0:
            return 0.0
        return (
            math.inf
            if distance > 1.0 or self.pair.infinite > 0.0
            else float(self.pair.losses.max(initial=0.0))
        )

    def delta(self, epsilon: float, distance: float) -> float:
        if validate_distance(distance) == 0.0:
            return 0.0
        return 1.0 if distance > 1.0 else self.pair.delta(checked_epsilon(epsilon))

    def curve(self, epsilons: Floats, distance: float) -> Floats:
        if validate_distance(distance) == 0.0 or distance > 1.0:
            return np.full(len(epsilons), float(distance > 1.0))
        return self.pair.deltas(epsilons)


def curve_epsilons(
    profile: PrivacyProfile, distance: float, epsilon: float, negligible: float
) -> list[float]:
    """Choose the epsilons at which a curve is sampled; `epsilon` is one of them.

    They range from 0 to where delta becomes negligible or smallest.
    """
    pure = profile.pure(distance)
    steps = [
        step for step in (epsilon * CURVE_LADDER).tolist() if step < min(pure, MAX_EPSILON / 2.0)
    ]
    steps += [pure] if pure < MAX_EPSILON / 2.0 else []
    top = epsilon
    min_delta = math.inf
    for step in steps:
        delta = profile.delta(step, distance)
        if delta < min_delta:
            top = step
            min_delta = delta
        if delta <= negligible:
            break
    return sorted(
        {
            *np.linspace(0.0, top, CURVE_POINTS).tolist(),
            *(step for step in (*steps, epsilon) if step <= top),
        }
    )


@theorem("metricshuffle", "composition of different tasks")
def composed_epsilon(parts: Sequence[TaskCost], distances: Sequence[float], delta: float) -> float:
    """Smallest certified epsilon of all rounds together at `delta`, for moves up to `distances`.

    `distances` has one distance per task.

    Statement: let the input of task i move by at most distances[i] (as its guarantee measures it).
    Each round of task i is then dominated by a pair of laws, and all rounds of all tasks, whose
    randomness is independent given the inputs, by the product of the pairs. Three upper bounds
    hold, and the smallest is returned: (1) the sum of the guaranteed epsilons, if the sum of the
    guaranteed deltas is no larger than delta; (2) each task as any mechanism with its (epsilon,
    delta), convolved; (3) each round by its own curve, convolved. A later round or task may depend
    on earlier answers, but not which tasks there are, nor their guarantees, nor how many rounds.
    Proof: (1) Dwork, Roth 2014, Theorem B.1. (2), (3) `dominating_pair` of sampled points lies
    above every curve through or below them, for any choice of points; `ComposedProfile` composes
    dominating pairs.
    Conditions: every distance is at most that of the task's guarantee; every task was verified.
    Numerics: the bisection returns only what was certified. Reference: Zhu, Dong, Wang 2022,
    Theorem 10; Kairouz, Oh, Viswanath 2015.
    """
    prices = [part.at(distance) for part, distance in zip(parts, distances, strict=True)]
    added = (
        round_up(math.fsum(price.epsilon for price in prices), 2)
        if len(prices) > 1
        else math.fsum(price.epsilon for price in prices)
    )
    basic = added if math.fsum(price.delta for price in prices) <= delta else math.inf
    if delta == 0.0 or not 0.0 < added < MAX_EPSILON / 2.0:
        return basic
    best = basic
    for laws in (
        [part.promised_part(distance) for part, distance in zip(parts, distances, strict=True)],
        [part.mechanism_part(distance) for part, distance in zip(parts, distances, strict=True)],
    ):
        total = ComposedProfile(tuple(laws))
        best = last_certified(
            lambda epsilon, total=total: total.delta(epsilon, 1.0) <= delta,  # type: ignore[misc]
            0.0,
            best,
            relative=EPSILON_TOLERANCE,
        )
    return best
