"""OpenDP measurements with privacy maps certified here: of shuffled randomizers, and of plans.

OpenDP composes and post-processes them; the noise is drawn here, from the operating system.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from metricshuffle.accounting.user_items.user_privacy import group_delta
from metricshuffle.amplification.amplify import Amplification, amplify
from metricshuffle.errors import InputError, argument, require
from metricshuffle.interop.peer_packages import require_peer_of
from metricshuffle.interop.shuffled_rounds import check_all_pairs
from metricshuffle.numerics.rounding import format_distance
from metricshuffle.planning.plan import Plan
from metricshuffle.privacy.guarantee import Guarantee
from metricshuffle.privacy.profile import checked_delta
from metricshuffle.randomizers.randomizer import Randomizer
from metricshuffle.randomness import Randomness

if TYPE_CHECKING:
    from opendp.mod import Measurement

    from metricshuffle.tasks.release import Release

Loss = tuple[float, float]
"""Epsilon and delta."""
ROUNDED_UP = 1.0 + 1e-12
# With more kinds of reports, the list of their counts is too long to be published.
MAX_OUTPUTS = 2**20
LARGEST_CODE = 2**63 - 1


def measurement(
    source: Randomizer | Plan,
    *,
    users: int | None = None,
    delta: float | None = None,
    honest: int | float | str | None = None,
) -> Measurement:
    """Return a measurement of OpenDP with the certified (epsilon, delta) of a randomizer or plan.

    For a randomizer, it maps a vector of `users` inputs (codes from 0) to the number of reports of
    each kind, at `delta`. Its metric counts changed people; if inputs have distances, it is the
    distance by which one person's input moves. For a plan, it maps the values to a release, and its
    metric is the distance of the plan's guarantee. In both cases the number of people is public.

    Args:
        source: A randomizer or a plan of one round.
        users: How many people report; for a randomizer only.
        delta: The delta of the certified pair; for a randomizer only.
        honest: How many of them are assumed honest, as in `amplify`; for a randomizer only.

    Raises:
        InputError: if the types of OpenDP cannot express the guarantee.
    """
    require_peer_of(__name__)
    if isinstance(source, Plan):
        if users is not None or delta is not None or honest is not None:
            raise InputError(
                "a plan has its own number of people and delta.",
                field="users",
                remedy=f"Leave {argument('users')}, {argument('honest')} and {argument('delta')} "
                "out.",
            )
        return plan_measurement(source)
    if not isinstance(source, Randomizer):
        raise InputError(
            f"a measurement needs a randomizer or a plan, got {type(source).__name__}."
        )
    if users is None or delta is None:
        raise InputError(
            "the measurement of a randomizer needs how many people report and a delta.",
            field="users",
            remedy=f"Give {argument('users')} and {argument('delta')}.",
        )
    check_all_pairs(source)
    return randomizer_measurement(source, amplify(source, users, honest), users, delta)


def randomizer_measurement(
    randomizer: Randomizer, amplified: Amplification, users: int, delta: float
) -> Measurement:
    """Return the measurement from inputs to the counts of their shuffled reports."""
    delta = checked_delta(delta)
    if randomizer.inputs - 1 > LARGEST_CODE or randomizer.outputs > MAX_OUTPUTS:
        raise InputError(
            f"{type(randomizer).__name__} has {randomizer.inputs:,} inputs and "
            f"{randomizer.outputs:,} different reports, which OpenDP has no vector for; use a "
            f"randomizer with at most {MAX_OUTPUTS:,} different reports."
        )
    losses: Callable[[float], Loss]
    dp = require("opendp.prelude", "opendp")
    if amplified.alike:
        epsilon = amplified.epsilon(delta).upper
        checked_loss(epsilon)
        metric = dp.change_one_distance()

        def losses(distance: float) -> Loss:
            return group_loss(epsilon, delta, int(distance))
    else:
        metric = dp.user_distance("distance by which the input of one person moves")

        def losses(distance: float) -> Loss:
            moved = checked_move(distance)
            if moved == 0.0:
                return 0.0, 0.0
            # No two inputs are farther apart than the diameter.
            within = min(moved, amplified.distance)
            return checked_loss(amplified.epsilon(delta, within).upper), delta

    def count_reports(codes: Sequence[int]) -> list[int]:
        inputs = np.asarray(codes, dtype=np.int64)
        if inputs.shape != (users,):
            raise InputError(
                f"the measurement counts on {users:,} people, got {inputs.size:,} inputs."
            )
        reports = randomizer.reports(randomizer.values_of(inputs), Randomness.system())
        return [int(count) for count in randomizer.counts(reports)]

    domain = dp.vector_domain(
        dp.atom_domain(bounds=(0, randomizer.inputs - 1), T="i64"), size=users
    )
    return _assembled(domain, metric, count_reports, losses)


def plan_measurement(plan: Plan) -> Measurement:
    """Return the measurement from the values of a plan to its release."""
    if plan.rounds > 1:
        raise InputError(
            f"the guarantee of this plan is about {plan.rounds} rounds together, but a "
            "measurement of OpenDP is one release.",
            field="rounds",
            remedy="Plan one round, and compose its measurements by OpenDP.",
        )
    if plan.target.label_epsilon is not None:
        raise InputError(
            "this plan has another epsilon for another label, but a privacy map of OpenDP has one "
            "distance.",
            field="label_epsilon",
            remedy="Plan with one epsilon for values and labels.",
        )
    guarantee = plan.guarantee
    checked_loss(guarantee.epsilon)
    dp = require("opendp.prelude", "opendp")

    def losses(distance: float) -> Loss:
        return guaranteed_loss(guarantee, distance)

    def covered(values: Sequence[object]) -> bool:
        plan.check_batch(len(values))
        return True

    def released(values: Sequence[object]) -> Release:
        return plan.run(values)

    domain = dp.user_domain(f"values of {plan.minimum:,} people or more", member=covered)
    metric = dp.user_distance(moved_distance(guarantee))
    return _assembled(domain, metric, released, losses)


def moved_distance(guarantee: Guarantee) -> str:
    """Say what the distance of a guarantee is measured between."""
    movers = {
        "one person": "the value of one person moves",
        "people together": "the values of any number of people move in total",
        "one user's items": "the items of one user move (earth mover's distance)",
    }[guarantee.protects]
    unit = f", in {guarantee.unit}" if guarantee.unit else ""
    return f"distance between {guarantee.between} by which {movers}{unit}"


def guaranteed_loss(guarantee: Guarantee, distance: float) -> Loss:
    """Return what a guarantee says about a move by `distance`; raise beyond its own distance."""
    moved = checked_move(distance)
    if moved > guarantee.distance:
        raise InputError(
            f"the guarantee ends at a distance of {format_distance(guarantee.distance)}, and "
            f"{moved!r} was asked for; beyond it nothing is promised."
        )
    if moved == 0.0:
        return 0.0, 0.0
    if guarantee.shape == "flat" or moved == guarantee.distance:
        return guarantee.epsilon, guarantee.delta
    return guarantee.epsilon * (moved / guarantee.distance) * ROUNDED_UP, guarantee.delta


def group_loss(epsilon: float, delta: float, people: int) -> Loss:
    """Return the (epsilon, delta) of several people who change together, rounded up."""
    if people < 1:
        return 0.0, 0.0
    total = epsilon if people == 1 else people * epsilon * ROUNDED_UP
    return total, group_delta(epsilon, delta, people)


def checked_loss(epsilon: float) -> float:
    """Return a finite epsilon; raise InputError otherwise."""
    if not epsilon < math.inf:
        raise InputError(
            "nothing is certified here: epsilon is infinite, which is no privacy map of OpenDP."
        )
    return epsilon


def checked_move(distance: float) -> float:
    """Return a distance as a finite float >= 0; raise InputError otherwise."""
    if isinstance(distance, bool) or not isinstance(distance, int | float):
        raise InputError(f"{argument('distance')} must be a number, got {distance!r}.")
    if not 0.0 <= distance < math.inf:
        raise InputError(f"{argument('distance')} must be a finite number >= 0, got {distance!r}.")
    return float(distance)


def _assembled(
    domain: object, metric: object, function: object, losses: Callable[[float], Loss]
) -> Measurement:
    """Return a user-defined measurement of OpenDP."""
    dp = require("opendp.prelude", "opendp")
    return dp.m.make_user_measurement(
        domain,
        metric,
        dp.approximate(dp.max_divergence()),
        function,
        losses,
        TO="ExtrinsicObject",
    )
