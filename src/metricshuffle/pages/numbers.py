"""The numbers behind the charts of the report, from exact laws."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from metricshuffle.accounting.sums.additive import AdditiveNoise
from metricshuffle.errors import InputError
from metricshuffle.noise.polya import Polya
from metricshuffle.papers.enhancing_metric_privacy.formulas import geo_shuffle_epsilon
from metricshuffle.planning import Plan
from metricshuffle.planning.offers.sums import SumSetting
from metricshuffle.planning.setting import Setting
from metricshuffle.privacy.calibration import largest_rate
from metricshuffle.privacy.guarantee import Who
from metricshuffle.privacy.profile import PrivacyProfile
from metricshuffle.protocols.sums import Sums
from metricshuffle.queries.sums import SummedQuery

USERS = (10, 32, 100, 316, 1_000, 10_000, 100_000)
"""Sizes of the crowd for which the errors of all protocols are worked out."""
# Range and delta of the published experiments, which one chart looks at: users, noise rate per unit, delta, largest move.
PUBLISHED_SETTING = (100, 1.0, 1e-4, 1000)
# A chart shows three digits: its rates need not be the last ones that pass.
CHART_PRECISION = 1e-4


@dataclass(frozen=True)
class EpsilonCurves:
    """Epsilon against distance for the shuffled sum of geometric noise; all epsilons are totals at their distance."""

    rate: float
    honest: int
    delta: float
    distances: tuple[int, ...]
    exact: tuple[float, ...]
    claim: float
    """What Theorem 4.1 of Athanasiou25 says epsilon is per unit of distance."""
    false_from: int | None
    """The smallest distance found at which the exact epsilon exceeds the claim; None if there is none up to the last distance."""

    @property
    def reach(self) -> int:
        return self.distances[-1]

    def claimed(self, distance: float) -> float:
        return self.claim * distance

    def alone(self, distance: float) -> float:
        """One report without the crowd: what is left if the shuffler colludes."""
        return self.rate * distance


def epsilon_curves(rate: float, honest: int, delta: float, reach: int, points: int = 60) -> EpsilonCurves:
    """The curves up to `reach` steps, for noise of that rate from each of `honest` people."""
    profile = AdditiveNoise(Polya(Fraction(honest), rate))
    claim = geo_shuffle_epsilon(rate, honest, delta).claim
    distances = tuple(sorted({1, *(int(d) for d in np.rint(np.linspace(0, reach, points + 1))[1:])}))
    exact = tuple(profile.epsilon(delta, d) for d in distances)

    def refuted(distance: int) -> bool:
        return profile.epsilon(delta, distance) > claim * distance

    false_from = None
    if refuted(reach):
        holds, false_from = 0, reach
        while false_from - holds > 1:
            middle = (holds + false_from) // 2
            holds, false_from = (holds, middle) if refuted(middle) else (middle, false_from)
    return EpsilonCurves(rate, honest, delta, distances, exact, claim, false_from)


@dataclass(frozen=True)
class ErrorCurve:
    """Expected error of one protocol against the number of people."""

    protocol: str
    users: tuple[int, ...]
    errors: tuple[float, ...]


def error_curves(plan: Plan, users: Sequence[int] = USERS) -> list[ErrorCurve]:
    """E|estimate - truth| of every additive protocol at the plan's target, with the plan's fraction of honest people.

    Randomized response is left to the plan itself: calibrating it at other sizes takes minutes.
    """
    errors: dict[str, list[float]] = {"geometric-local": [], "geometric-shuffle": [], "polya-shuffle": [], "geometric-central": []}
    for count in users:
        honest = max(1, count * plan.honest // plan.users)
        setting = setting_of(plan, count, honest)
        pure = setting.accounts.pure_rate()
        errors["geometric-local"].append(_error(setting, Polya(Fraction(1), pure)))
        errors["geometric-shuffle"].append(_error(setting, Polya(Fraction(1), noise_rate(setting, honest))))
        errors["polya-shuffle"].append(_error(setting, Polya(Fraction(1, honest), pure)))
        errors["geometric-central"].append(_error(setting, Polya(Fraction(1), pure), "curator"))
    return [ErrorCurve(name, tuple(users), tuple(values)) for name, values in errors.items()]


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
    setting = setting_of(plan, plan.users, plan.honest)
    family = []
    for shape in sorted({round(value) for value in np.geomspace(1, plan.honest, points)}):
        noise = Polya(Fraction(shape, plan.honest), noise_rate(setting, shape))
        report = setting.accounts.report_profile(setting.randomizers(noise.shape, noise.rate, "none")[0].local_profile())
        error = _error(setting, noise)
        family.append(FrontierPoint(shape, noise.rate, error, report.pure(setting.target.distance), report.pure(1)))
    return family


def setting_of(plan: Plan, users: int, honest: int) -> SumSetting:
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


def _error(setting: SumSetting, noise: Polya, trusted: Who = "shuffler") -> float:
    """E|estimate - truth| if everybody adds that noise (or a curator does, once)."""
    randomizers, users = setting.randomizers(noise.shape, noise.rate, "none"), setting.setting.users
    protocol = Sums(name="exact-noise", trusted=trusted, step=setting.step, randomizers=randomizers)
    return protocol.expected_error(setting.query, users)
