"""Attacks on all candidates of a plan: their errors with and without liars, side by side."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from metricshuffle.errors import InputError, MetricShuffleError
from metricshuffle.planning.candidate import Candidate
from metricshuffle.planning.lying_participants import SimulatedAttack, simulate_attack
from metricshuffle.planning.plan import Plan, planned
from metricshuffle.planning.plan_request import PlanRequest
from metricshuffle.protocols.damage import Liars, liar_count
from metricshuffle.randomness import Randomness
from metricshuffle.tasks.task import Task


@dataclass(frozen=True)
class AttackedCandidate:
    """A candidate of a plan with its simulated attack, or the reason why there is no attack."""

    offer: Candidate
    attack: SimulatedAttack | None
    reason: str = ""


def attack_candidates(
    plan: Plan, liars: Liars, runs: int, randomness: Randomness
) -> Iterator[AttackedCandidate]:
    """Simulate the worst attack known on every candidate of a plan, in its order.

    Protocols that a saved plan does not contain are calibrated again.
    """
    lying = liar_count(liars, plan.users)
    offers = list(plan.candidates)
    if any(offer.mechanism is None for offer in offers):
        made = {_numbers_of(offer): offer for offer in _calibrated_again(plan)}
        offers = [made.get(_numbers_of(offer), offer) for offer in offers]
    for index, offer in enumerate(offers):
        try:
            task = plan.task if index == plan.chosen else task_of(plan, offer)
            attack = simulate_attack(task, plan.users, lying, runs, randomness)
        except MetricShuffleError as reason:
            yield AttackedCandidate(plan.candidates[index], None, str(reason).rstrip("."))
        else:
            yield AttackedCandidate(plan.candidates[index], attack)


def task_of(plan: Plan, offer: Candidate) -> Task:
    """Task of a candidate of a plan."""
    if offer.mechanism is None:
        raise InputError("it could not be calibrated again from this plan.")
    return Task(
        query=plan.query,
        protocol=offer.mechanism,
        users=plan.users,
        honest=plan.honest,
        rounds=plan.rounds,
        guarantee=offer.guarantee,
        if_shuffler_colludes=offer.fallback,
        damage=offer.damage,
    )


def _calibrated_again(plan: Plan) -> tuple[Candidate, ...]:
    """Calibrate the candidates of a plan again, with their protocols; empty if that fails."""
    choices: dict[str, object] = {
        "padding": next((offer.padding for offer in plan.candidates if offer.padding), "clamp"),
        "granularity": plan.granularity,
        "draw": plan.samples,
        "floor": plan.floor,
        "spread": plan.spread,
    }
    names = {offer.protocol for offer in plan.candidates}
    request = PlanRequest(
        plan.query,
        plan.target,
        plan.users,
        plan.honest,
        rounds=plan.rounds,
        trusted=plan.trusted,
        protocols=sorted(names),
        **{name: value for name, value in choices.items() if name in plan.query.options},
    )
    try:
        return planned(request.setting).candidates
    except InputError:
        return ()


def _numbers_of(offer: Candidate) -> tuple[object, ...]:
    """Attributes by which the candidates of one plan differ."""
    return (
        offer.protocol,
        offer.encoding,
        offer.trusted,
        offer.shape,
        offer.padding,
        offer.bits_per_user,
        offer.damage,
        offer.fallback.epsilon,
    )
