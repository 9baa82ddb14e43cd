"""The other way round: from an error that is wanted to the least epsilon that reaches it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from metricshuffle.errors import InputError
from metricshuffle.numerics.rounding import format_number, two_digits_below
from metricshuffle.planning.candidate import Candidate, allowed_candidates, enforce_known_order
from metricshuffle.planning.candidates import SkippedCandidate, calibrate_offers
from metricshuffle.planning.candidates.sum_calibration import NAMES, SumSetting
from metricshuffle.planning.plan import Plan, most_exact, planned
from metricshuffle.planning.plan_text import is_simulated
from metricshuffle.planning.setting import EncodingChoice, Setting, validate_setting
from metricshuffle.privacy.profile import Shape
from metricshuffle.privacy.target import Target
from metricshuffle.queries.query import Query
from metricshuffle.queries.summed_query import SummedQuery

# The epsilon that is returned exceeds the smallest one by at most this (relative); errors that are simulated have two digits.
EPSILON_TOLERANCE, SIMULATED_TOLERANCE = 1e-3, 1e-2
MAX_EPSILON, MIN_EPSILON = 1000.0, 1e-9
# How often the choice of protocol may change before the last one is kept.
MAX_CHANGES = 4


def plan_for_error(
    query: Query, error: float, delta: float, distance: float, users: int, honest: int | float | str | None = None, *,
    shape: Shape = "linear", progress: Callable[[str], None] | None = None, **choices: Any,
) -> Plan:  # fmt: skip
    """The plan with the smallest epsilon at `distance` whose expected absolute error, in query units, is at most `error`.

    The plan itself certifies the error (its chosen candidate's `expected_error`, as it is printed, is at most `error`); the epsilon is
    the smallest to a thousandth, or to a hundredth where errors are simulated, which have two digits. `choices` are those of `plan`. The
    search follows one protocol, which is cheap, and a full plan at what it finds tells whether another one does better there.
    """
    if not (isinstance(error, int | float) and 0.0 < error < math.inf):
        raise InputError(f"error must be a finite number > 0, in units of the query, got {error!r}.")
    setting = validate_setting(query, Target(1.0, delta, distance, shape), users, honest, **choices)
    if isinstance(query, SummedQuery):
        SumSetting(setting, query).check()
    goal = two_digits_below(error) if is_simulated(query) else error
    narrow, epsilon = _least_noise(setting), _guess(setting, error)
    best: Plan | None = None
    for _ in range(MAX_CHANGES):
        smallest = _smallest_epsilon(narrow, goal, epsilon, progress)
        if smallest is None and best is not None:
            return best
        full = planned(setting.at_epsilon(_guess(setting, error) if smallest is None else smallest), progress)
        met = full.choice.expected_error <= goal
        if met and (best is None or full.target.epsilon < best.target.epsilon):
            best = full
        again = _only_candidate(setting, full.choice)
        if again == narrow:
            break
        narrow, epsilon = again, full.target.epsilon
    if best is None:
        raise InputError(_out_of_reach(setting, error))
    return best


def _least_noise(setting: Setting) -> Setting:
    """What is nearly always chosen for sums: noise of total shape 1, or the local protocol if nobody is trusted."""
    if not isinstance(setting.query, SummedQuery) or (setting.protocols is not None and not set(setting.protocols) & NAMES):
        return setting
    if setting.trusted == "nobody":
        return replace(setting, protocols=("geometric-local",))
    encoding: EncodingChoice = "unary" if setting.encoding == "unary" else "modular"
    return replace(setting, protocols=("polya-shuffle",), shapes=(1,), encoding=encoding)


def _only_candidate(setting: Setting, choice: Candidate) -> Setting:
    """The setting in which nothing but that candidate is calibrated."""
    # Under a cap on local epsilon the shape itself depends on epsilon.
    shapes = (choice.shape,) if choice.shape is not None and setting.max_local_epsilon is None else None
    encoding: EncodingChoice = "unary" if choice.encoding == "unary" else "modular" if choice.encoding == "modular" else setting.encoding
    return replace(setting, protocols=(choice.protocol,), encoding=encoding, shapes=shapes)


def _guess(setting: Setting, error: float) -> float:
    """The epsilon at which noise of total shape 1 has that error: E|Z| = 1/sinh(rate) cells."""
    if not isinstance(setting.query, SummedQuery):
        return 1.0
    at = SumSetting(setting, setting.query)
    cells = error / (at.query.error_scale(setting.users, at.step) * at.grain)
    epsilon = math.asinh(1.0 / cells) * at.target.distance / at.grain * at.rounds * math.sqrt(at.axes)
    return min(max(epsilon, MIN_EPSILON), MAX_EPSILON)


def _smallest_epsilon(setting: Setting, error: float, start: float, progress: Callable[[str], None] | None) -> float | None:
    """The smallest epsilon found that reaches the error in this (narrow) setting; None if none up to MAX_EPSILON does."""

    def reached(epsilon: float) -> float:
        """The expected error of what would be chosen; infinite if nothing may be."""
        if progress is not None:
            progress(f"epsilon {format_number(epsilon)}")
        at = setting.at_epsilon(epsilon)
        usable = allowed_candidates(
            at, enforce_known_order([offer for offer in calibrate_offers(at) if not isinstance(offer, SkippedCandidate)], at.spread)
        )
        return most_exact([offer for _, offer in usable]).expected_error if usable else math.inf

    tolerance = SIMULATED_TOLERANCE if is_simulated(setting.query) else EPSILON_TOLERANCE
    epsilon, passing, failing = start, math.inf, 0.0
    for _ in range(60):
        got = reached(epsilon)
        if got <= error:
            passing = epsilon
        else:
            failing = max(failing, epsilon)
        if passing <= failing * (1.0 + tolerance):
            break
        # The error falls about like 1/epsilon: aim a little inside the goal, but never beyond the bracket's middle half.
        aim = epsilon * got / error * (1.0 + 0.3 * tolerance if got > error else 1.0 - 0.6 * tolerance)
        if math.isinf(passing):
            if failing >= MAX_EPSILON:
                return None
            epsilon = min(max(aim, failing * (1.0 + tolerance)) if math.isfinite(got) else 2.0 * failing, 4.0 * failing, MAX_EPSILON)
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
        f"no epsilon up to {MAX_EPSILON:g} at distance {format_number(setting.target.distance)}{unit} reaches "
        f"an expected error of {format_number(error)}{unit}; "
        f"allow a larger error, collect from more people, or loosen the limits on bits, local epsilon, granularity or trust."
    )
