"""The numbers behind the chart of utility against local privacy, from exact laws."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from metricshuffle.errors import InputError
from metricshuffle.noise.polya import Polya
from metricshuffle.planning import Plan
from metricshuffle.planning.candidates.sum_calibration import SumSetting
from metricshuffle.planning.setting import Setting
from metricshuffle.privacy.calibration import largest_rate
from metricshuffle.privacy.guarantee import Who
from metricshuffle.privacy.profile import PrivacyProfile
from metricshuffle.protocols.sums import Sums
from metricshuffle.queries.summed_query import SummedQuery

# A chart shows three digits: its rates need not be the last ones that pass.
CHART_PRECISION = 1e-4


@dataclass(frozen=True)
class FrontierPoint:
    """One member of the family between polya-shuffle (shape 1) and geometric-shuffle (shape honest)."""

    shape: int
    rate: float
    error: float
    local_epsilon: float
    """Of one report at the target's distance."""
    local_epsilon_per_step: float


def frontier(plan: Plan, points: int = 10) -> list[FrontierPoint]:
    """Utility if the shuffler is honest against privacy if it is not, for total shapes from 1 to the honest people."""
    setting = sum_setting_of(plan, plan.users, plan.honest)
    family = []
    for shape in sorted({round(value) for value in np.geomspace(1, plan.honest, points)}):
        noise = Polya(Fraction(shape, plan.honest), noise_rate(setting, shape))
        report = setting.accounts.report_profile(setting.randomizers(noise.shape, noise.rate, "none")[0].local_profile())
        error = expected_error(setting, noise)
        family.append(FrontierPoint(shape, noise.rate, error, report.pure(setting.target.distance), report.pure(1)))
    return family


def sum_setting_of(plan: Plan, users: int, honest: int) -> SumSetting:
    """What the plan asks, of another number of people. Only sums, means and centroids have the family of noises shown here."""
    query = plan.query
    if not isinstance(query, SummedQuery):
        raise InputError(f"these charts are about the noise of sums, and a {query.kind} is none.")
    return SumSetting(Setting(query, plan.target, users, honest, plan.rounds, granularity=plan.granularity), query)


def noise_rate(setting: SumSetting, shape: int) -> float:
    """The largest rate (to four digits) at which exact noise of that total shape keeps the setting's target."""
    pure = setting.accounts.pure_rate()
    if shape == 1 or setting.target.delta == 0.0:
        return pure

    def profile(rate: float) -> PrivacyProfile:
        return setting.accounts.noise_profile(Polya(Fraction(shape), rate))

    return largest_rate(profile, setting.target, start=pure, relative=CHART_PRECISION)


def expected_error(setting: SumSetting, noise: Polya, trusted: Who = "shuffler") -> float:
    """E|estimate - truth| if everybody adds that noise (or a curator does, once)."""
    randomizers, users = setting.randomizers(noise.shape, noise.rate, "none"), setting.setting.users
    protocol = Sums(name="exact-noise", trusted=trusted, step=setting.step, randomizers=randomizers)
    return protocol.expected_error(setting.query, users)
