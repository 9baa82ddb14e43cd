"""Search for the smallest epsilon whose plan reaches a requested expected error."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from metricshuffle.errors import InputError
from metricshuffle.numerics.rounding import format_number, two_digits_below
from metricshuffle.planning.candidate import (
    Candidate,
    allowed_candidates,
    enforce_known_order,
    most_exact,
)
from metricshuffle.planning.candidates import SkippedCandidate, calibrate_offers
from metricshuffle.planning.candidates.sum_calibration import NAMES
from metricshuffle.planning.candidates.sum_setting import SumSetting
from metricshuffle.planning.floor_price import decide_floor
from metricshuffle.planning.plan import Plan, planned
from metricshuffle.planning.plan_request import PlanRequest
from metricshuffle.planning.plan_text import error_text, is_simulated
from metricshuffle.planning.setting import EncodingChoice, Setting
from metricshuffle.privacy.profile import Shape
from metricshuffle.privacy.target import Target
from metricshuffle.queries.query import Query
from metricshuffle.queries.summed_query import SummedQuery

# Relative excess of the returned epsilon over the smallest; simulated errors have two digits.
EPSILON_TOLERANCE = 1e-3
SIMULATED_TOLERANCE = 1e-2
MAX_EPSILON = 1000.0
MIN_EPSILON = 1e-9
# How many times the choice of protocol may change before the search stops.
MAX_CHANGES = 4


def plan_for_error(
    query: Query,
    error: float,
    delta: float,
    distance: float,
    users: int,
    honest: int | float | str | None = None,
    *,
    shape: Shape = "linear",
    label_epsilon: float | None = None,
    progress: Callable[[str], None] | None = None,
    **choices: Any,
) -> Plan:
    """Plan with the smallest epsilon at `distance` whose expected error is at most `error`.

    `error` is an expected absolute error in query units. The chosen candidate's `expected_error`,
    as printed, is at most `error`. The epsilon is the smallest to a thousandth, or to a hundredth
    where errors are simulated, which have two digits. `choices` are those of `plan`. The search
    follows one protocol, which is cheap; a full plan at the epsilon it finds shows whether another
    protocol does better there.
    """
    target = Target(1.0, delta, distance, shape, label_epsilon)
    request = PlanRequest(query, target, users, honest, error=error, **choices)
    return plan_request(request, progress)


def plan_request(request: PlanRequest, progress: Callable[[str], None] | None = None) -> Plan:
    """Return the plan for a request."""
    setting = request.setting
    query = request.query
    error = request.error
    if error is None:
        return planned(setting, progress)
    if isinstance(query, SummedQuery):
        SumSetting(setting, query).check()
    goal = two_digits_below(error) if is_simulated(query) else error
    narrow = _least_noise(setting)
    epsilon = _guess(setting, error)
    best: Plan | None = None
    for _ in range(MAX_CHANGES):
        smallest = _smallest_epsilon(narrow, goal, epsilon, progress)
        if smallest is None and best is not None:
            return best
        full = planned(
            setting.at_epsilon(_guess(setting, error) if smallest is None else smallest), progress
        )
        met = full.choice.expected_error <= goal
        if met and (best is None or full.target.epsilon < best.target.epsilon):
            best = full
        again = _only_candidate(setting, full.choice)
        if again == narrow:
            break
        narrow = again
        epsilon = full.target.epsilon
    if best is None:
        raise InputError(_out_of_reach(setting, error))
    return best


def _least_noise(setting: Setting) -> Setting:
    """Narrow the setting to the usual choice for sums.

    That is noise of total shape 1, or the local protocol if nobody is trusted.
    """
    if not isinstance(setting.query, SummedQuery) or (
        setting.protocols is not None and not set(setting.protocols) & NAMES
    ):
        return setting
    if setting.trusted == "nobody":
        return replace(setting, protocols=("geometric-local",))
    unary = setting.encoding == "unary" or setting.max_damage is not None
    encoding: EncodingChoice = "unary" if unary else "modular"
    return replace(setting, protocols=("polya-shuffle",), shapes=(1,), encoding=encoding)


def _only_candidate(setting: Setting, choice: Candidate) -> Setting:
    """Return the setting in which only this candidate is calibrated."""
    # With a cap on local epsilon the shape depends on epsilon.
    shapes = (
        (choice.shape,) if choice.shape is not None and setting.max_local_epsilon is None else None
    )
    encoding: EncodingChoice = (
        "unary"
        if choice.encoding == "unary"
        else "modular"
        if choice.encoding == "modular"
        else setting.encoding
    )
    return replace(setting, protocols=(choice.protocol,), encoding=encoding, shapes=shapes)


def _guess(setting: Setting, error: float) -> float:
    """Epsilon at which noise of total shape 1 has this error: E|Z| = 1/sinh(rate) cells."""
    if not isinstance(setting.query, SummedQuery):
        return 1.0
    at = SumSetting(setting, setting.query)
    cells = error / (at.query.error_scale(setting.users, at.step) * at.grain)
    epsilon = (
        math.asinh(1.0 / cells) * at.target.distance / at.grain * at.rounds * math.sqrt(at.axes)
    )
    return min(max(epsilon, MIN_EPSILON), MAX_EPSILON)


def _smallest_epsilon(
    setting: Setting, error: float, start: float, progress: Callable[[str], None] | None
) -> float | None:
    """Smallest epsilon found that reaches the error in this (narrow) setting.

    None if no epsilon up to MAX_EPSILON does.
    """

    def reached(epsilon: float) -> float:
        """Expected error of the candidate that would be chosen; infinite if there is none."""
        if progress is not None:
            progress(f"epsilon {format_number(epsilon)}")
        at = setting.at_epsilon(epsilon)
        offers = [
            offer for offer in calibrate_offers(at) if not isinstance(offer, SkippedCandidate)
        ]
        candidates, _ = decide_floor(at, enforce_known_order(offers, at.spread))
        usable = allowed_candidates(at, candidates)
        return most_exact([offer for _, offer in usable]).expected_error if usable else math.inf

    tolerance = SIMULATED_TOLERANCE if is_simulated(setting.query) else EPSILON_TOLERANCE
    epsilon = start
    passing = math.inf
    failing = 0.0
    for _ in range(60):
        got = reached(epsilon)
        if got <= error:
            passing = epsilon
        else:
            failing = max(failing, epsilon)
        if passing <= failing * (1.0 + tolerance):
            break
        # The error is roughly proportional to 1/epsilon: aim slightly below the requested error.
        aim = (
            epsilon
            * got
            / error
            * (1.0 + 0.3 * tolerance if got > error else 1.0 - 0.6 * tolerance)
        )
        if math.isinf(passing):
            if failing >= MAX_EPSILON:
                return None
            epsilon = min(
                max(aim, failing * (1.0 + tolerance)) if math.isfinite(got) else 2.0 * failing,
                4.0 * failing,
                MAX_EPSILON,
            )
        elif failing == 0.0:
            if passing <= MIN_EPSILON:
                return passing
            epsilon = max(min(aim, passing * (1.0 - 0.9 * tolerance)), 0.25 * passing, MIN_EPSILON)
        else:
            inside = failing * (1.0 + 0.5 * tolerance) < aim < passing * (1.0 - 0.5 * tolerance)
            epsilon = aim if inside else math.sqrt(failing * passing)
    return passing if math.isfinite(passing) else None


def _out_of_reach(setting: Setting, error: float) -> str:
    unit = f" {setting.query.unit}" if setting.query.unit else ""
    return (
        f"no epsilon up to {MAX_EPSILON:g} at distance "
        f"{format_number(setting.target.distance)}{unit} reaches "
        f"an expected error of {error_text(setting.query, error)}; "
        "allow a larger error, collect from more people, or loosen the limits on bits, "
        "damage, local epsilon, granularity or trust."
    )
