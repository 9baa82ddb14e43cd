"""Expected errors of all protocols for sums against the number of people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from metricshuffle.noise.polya import Polya
from metricshuffle.planning import Plan
from metricshuffle.report.curve_data import expected_error, noise_rate, sum_setting_of

USERS = (10, 32, 100, 316, 1_000, 10_000, 100_000)
"""Numbers of people for which the errors of all protocols are computed."""


@dataclass(frozen=True)
class ErrorCurve:
    """Expected error of one protocol against the number of people."""

    protocol: str
    users: tuple[int, ...]
    errors: tuple[float, ...]


def error_curves(plan: Plan, users: Sequence[int] = USERS) -> list[ErrorCurve]:
    """E|estimate - truth| of every additive protocol at the plan's target, with the plan's fraction
    of honest people.

    Randomized response is left to the plan itself: calibrating it at other sizes takes minutes.
    """
    errors: dict[str, list[float]] = {
        "geometric-local": [],
        "geometric-shuffle": [],
        "polya-shuffle": [],
        "geometric-central": [],
    }
    for count in users:
        honest = max(1, count * plan.honest // plan.users)
        setting = sum_setting_of(plan, count, honest)
        pure = setting.accounts.pure_rate()
        errors["geometric-local"].append(expected_error(setting, Polya(Fraction(1), pure)))
        errors["geometric-shuffle"].append(
            expected_error(setting, Polya(Fraction(1), noise_rate(setting, honest)))
        )
        errors["polya-shuffle"].append(expected_error(setting, Polya(Fraction(1, honest), pure)))
        errors["geometric-central"].append(
            expected_error(setting, Polya(Fraction(1), pure), "curator")
        )
    return [ErrorCurve(name, tuple(users), tuple(values)) for name, values in errors.items()]
