"""Points of the chart of utility against local privacy, from exact laws."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from metricshuffle.errors import InputError
from metricshuffle.noise.polya import Polya
from metricshuffle.planning import Plan
from metricshuffle.planning.candidates.sum_setting import SumSetting
from metricshuffle.planning.setting import Setting
from metricshuffle.privacy.calibration import largest_rate
from metricshuffle.privacy.guarantee import Who
from metricshuffle.privacy.profile import PrivacyProfile
from metricshuffle.protocols.sums import Sums
from metricshuffle.queries.summed_query import SummedQuery

# A chart shows three digits, so its rates need not be the largest possible.
CHART_PRECISION = 1e-4


@dataclass(frozen=True)
class FrontierPoint:
    """A noise between polya-shuffle (shape 1) and geometric-shuffle (shape `honest`)."""

    shape: int
    rate: float
    error: float
    local_epsilon: float
    """Epsilon of one report at the target's distance."""
    local_epsilon_per_step: float


def frontier(plan: Plan, points: int = 10) -> list[FrontierPoint]:
    """Compute the error with an honest shuffler, and the local epsilon, for several total shapes.

    Total shapes range from 1 to the number of honest people.
    """
    setting = sum_setting_of(plan, plan.users, plan.honest)
    family = []
    for shape in sorted({round(value) for value in np.geomspace(1, plan.honest, points)}):
        noise = Polya(Fraction(shape, plan.honest), noise_rate(setting, shape))
        report = setting.accounts.report_profile(
            setting.randomizers(noise.shape, noise.rate, "none")[0].local_profile()
        )
        error = expected_error(setting, noise)
        family.append(
            FrontierPoint(
                shape, noise.rate, error, report.pure(setting.target.distance), report.pure(1)
            )
        )
    return family


def sum_setting_of(plan: Plan, users: int, honest: int) -> SumSetting:
    """Setting of the plan for another number of people.

    Only sums, means and centroids have the family of noises shown here.
    """
    query = plan.query
    if not isinstance(query, SummedQuery):
        raise InputError(f"these charts exist for sum queries only, got {query.kind}.")
    return SumSetting(
        Setting(query, plan.target, users, honest, plan.rounds, granularity=plan.granularity), query
    )


def noise_rate(setting: SumSetting, shape: int) -> float:
    """Largest rate (to four digits) at which exact noise of this total shape meets the target."""
    pure = setting.accounts.pure_rate()
    if shape == 1 or setting.target.delta == 0.0:
        return pure

    def profile(rate: float) -> PrivacyProfile:
        return setting.accounts.noise_profile(Polya(Fraction(shape), rate))

    return largest_rate(profile, setting.target, start=pure, relative=CHART_PRECISION)


def expected_error(setting: SumSetting, noise: Polya, trusted: Who = "shuffler") -> float:
    """E|estimate - truth| if every user adds this noise (or a curator does, once)."""
    randomizers = setting.randomizers(noise.shape, noise.rate, "none")
    users = setting.setting.users
    protocol = Sums(name="exact-noise", trusted=trusted, step=setting.step, randomizers=randomizers)
    return protocol.expected_error(setting.query, users)
