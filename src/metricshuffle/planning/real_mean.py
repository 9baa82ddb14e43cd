"""The mean of real numbers from one shuffled WitchHat report each: target -> local metrics -> the hat of least variance."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal

import numpy as np

from metricshuffle.accounting.clones.bound import ClonesProfile
from metricshuffle.accounting.local_metric.solver import LineTarget, local_metrics
from metricshuffle.declared import Stored
from metricshuffle.errors import InputError
from metricshuffle.planning.one_report import OneReportPlan
from metricshuffle.planning.plan import Plan
from metricshuffle.privacy.guarantee import Guarantee, Trust, plain, released_sentences
from metricshuffle.privacy.target import Target, checked_users, honest_count
from metricshuffle.protocols.base import Shuffled
from metricshuffle.protocols.frequencies import IntervalMethod
from metricshuffle.protocols.queries import Mean
from metricshuffle.randomizers.randomizer import Randomizer
from metricshuffle.randomizers.witch_hat import WitchHat, WitchHatDensity
from metricshuffle.randomness import Randomness
from metricshuffle.spaces import Interval

# Values are rounded to so many steps first; the promise is verified at every whole number of them within the distance.
STEPS = 4096
# The solver looks at fewer, and at so many diameters of the local metric; a solution is made so much smaller before it is verified.
COARSE_STEPS, DIAMETERS, ROOM = 64, 12, 0.04


class MeanEstimate(Stored):
    """The mean over the people who reported, with its error and both guarantees.

    `standard_error` is at most that: the variance of a report is largest for the ends of the range, and that one is used.
    """

    stored_as: ClassVar[str] = "an estimate"
    format: Literal["metricshuffle-mean/1"] = "metricshuffle-mean/1"
    value: float
    standard_error: float
    largest_term: float
    """No report's contribution is farther than this from its value."""
    rounding: float
    """How far a value may lie from the step it is counted as."""
    reports: int
    unit: str
    guarantee: Guarantee
    if_shuffler_colludes: Guarantee
    raw_values_seen: bool = False
    unsafe_seeded: bool = False
    plan: str = ""

    def interval(self, level: float = 0.95, *, method: IntervalMethod = "normal") -> tuple[float, float]:
        """Holds the true mean with probability `level`: "normal" for many reports, "bernstein" (wider) for any number of them."""
        if not 0.0 < level < 1.0 or method not in ("normal", "bernstein"):
            raise InputError(f"level must lie between 0 and 1 and method be 'normal' or 'bernstein', got {level!r} and {method!r}.")
        if method == "normal":
            from scipy.special import ndtri

            half = -float(ndtri((1.0 - level) / 2.0)) * self.standard_error
        else:
            log_miss = math.log(2.0 / (1.0 - level))
            linear = self.largest_term * log_miss / (3.0 * self.reports)
            half = linear + math.sqrt(linear**2 + 2.0 * self.standard_error**2 * log_miss)
        return self.value - half - self.rounding, self.value + half + self.rounding

    def __str__(self) -> str:
        low, high = self.interval()
        lines = [
            f"mean = {self.value:.6g} {self.unit}".rstrip() + f", 95 % interval ({low:.6g}, {high:.6g}), from {self.reports:,} reports"
        ]
        lines += released_sentences(
            self.guarantee, self.if_shuffler_colludes, raw_values_seen=self.raw_values_seen, unsafe_seeded=self.unsafe_seeded
        )
        return "\n".join(lines)


class RealMeanPlan(OneReportPlan):
    """A calibrated WitchHat for the mean of real numbers, with everything the three roles need."""

    known_as: ClassVar[str] = "metricshuffle-real-mean-plan/1"
    format: Literal["metricshuffle-real-mean-plan/1"] = "metricshuffle-real-mean-plan/1"
    query: Mean
    randomizer: WitchHat
    expected_error: float
    """E|error| of the mean by the normal approximation, if everybody holds an end of the range: elsewhere it is smaller."""
    guarantee: Guarantee
    fallback: Guarantee

    @property
    def used(self) -> Randomizer:
        return self.randomizer

    @property
    def promise(self) -> Guarantee:
        return self.guarantee

    @property
    def _middle(self) -> float:
        low, high = _ends(self.query)
        return 0.5 * (low + high)

    def inputs(self, values: Any, *, clamp: bool = False) -> Any:
        """Distances from the middle of the range, rounded to the nearest step."""
        domain, hat = self.query.domain, self.randomizer
        checked = np.asarray(domain.clamped(values) if clamp else domain.validated(values), dtype=np.float64)
        places = np.clip(np.rint((checked - self._middle) / hat.step), -hat.steps, hat.steps)
        return np.clip(places * hat.step, -hat.half_width, hat.half_width)

    def estimate(self, shuffled: Shuffled, *, raw_values_seen: bool = False) -> MeanEstimate:
        """Analyst: the mean with its error and both guarantees."""
        counts, hat = self.counts(shuffled), self.randomizer
        total = float(counts @ hat.debiasing()[:, 0])
        return MeanEstimate(
            value=self._middle + total / shuffled.reports, standard_error=math.sqrt(hat.variance(hat.half_width) / shuffled.reports),
            largest_term=float(np.abs(hat.debiasing()).max()) + hat.half_width, rounding=0.5 * hat.step * (1.0 + 1e-9),
            reports=shuffled.reports, unit=self.query.unit, guarantee=self.guarantee, if_shuffler_colludes=self.fallback,
            raw_values_seen=raw_values_seen, unsafe_seeded=shuffled.unsafe_seeded, plan=self.digest,
        )  # fmt: skip

    def run(self, values: Any, randomness: Randomness | None = None, *, clamp: bool = False) -> MeanEstimate:
        """All three roles on one machine; the estimate says that raw values were seen there."""
        return self.estimate(self.shuffle(self.randomize(values, randomness, clamp=clamp)), raw_values_seen=True)

    def compared(self, sums: Plan) -> str:
        """One sentence: this single report against what a plan for sums does with several messages, for the same target."""
        if (sums.query, sums.target, sums.users, sums.honest) != (self.query, self.target, self.users, self.honest):
            raise InputError("these plans are for different queries, targets or people, so their errors cannot be compared.")
        unit, other = (f" {self.query.unit}" if self.query.unit else ""), sums.choice
        bits = math.ceil(math.log2(self.randomizer.outputs))
        times = self.expected_error / other.expected_error if other.expected_error > 0.0 else math.inf
        better = f"{plain(times)} times less" if times >= 1.0 else f"{plain(1.0 / times)} times more"
        return (
            f"One WitchHat report of {bits} bits has an expected error of {plain(self.expected_error)}{unit}; {other.protocol} with "
            f"{other.bits_per_user:,} bits a person has {plain(other.expected_error)}{unit}, {better}."
        )

    def __str__(self) -> str:
        unit, hat = (f" {self.query.unit}" if self.query.unit else ""), self.randomizer
        lines = [
            f"mean over {self.query.domain}, {self.users:,} users ({self.honest:,} honest), {self.target}",
            f"-> WitchHat of epsilon {plain(hat.epsilon)} in all and {plain(hat.rate)} per unit: expected error "
            f"{plain(self.expected_error)}{unit} at most",
        ]
        return "\n".join([*lines, *self.trust_sentences(self.fallback)])


def plan_real_mean(query: Mean | Interval, target: Target, users: int, honest: int | float | str | None = None) -> RealMeanPlan:
    """The WitchHat of least variance among those that the solver finds for the target, verified at every step up to its distance."""
    asked = query if isinstance(query, Mean) else Mean(query)
    low, high = _ends(asked)
    users = checked_users(users)
    counted_on = honest_count(honest, users)
    step = (high - low) / STEPS
    if target.shape != "linear":
        raise InputError("a WitchHat plan needs a linear target: its local metric grows with the distance; use plan() for a flat one.")
    if not step <= target.distance <= (high - low) * (1.0 + 1e-12):
        length = f"{plain(high - low)}, the length of {asked.domain}"
        raise InputError(f"distance must lie between {plain(step)} and {length}, got {plain(target.distance)}.")
    slope = target.epsilon / target.distance
    found = WitchHat(0.5 * (high - low), slope * (high - low), slope * (1.0 - 1e-9), STEPS // 2)
    better = _shuffled_hat(found, target, counted_on, step) if target.delta > 0.0 else None
    best = found if better is None else better
    local = best.local_profile()
    parts: dict[str, Any] = {"distance": target.distance, "unit": asked.unit, "protects": "one person", "between": asked.between}
    return RealMeanPlan(
        query=asked, target=target, users=users, honest=counted_on, randomizer=best,
        expected_error=math.sqrt(2.0 / math.pi * best.variance(best.half_width) / users),
        guarantee=Guarantee(
            epsilon=target.epsilon, delta=0.0 if better is None else target.delta, shape="linear",
            trust=Trust(trusted="nobody") if better is None else Trust(trusted="shuffler", honest_reports=counted_on),
            bound="pure" if better is None else "clones", **parts,
        ),
        fallback=Guarantee(
            epsilon=local.pure(target.distance), delta=0.0, shape="flat", trust=Trust(trusted="nobody"), bound=local.bound, **parts
        ),
    )  # fmt: skip


def _shuffled_hat(alone: WitchHat, target: Target, honest: int, step: float) -> WitchHat | None:
    """A verified hat of smaller variance than the one that needs no shuffler, or None."""
    width = alone.half_width
    line = LineTarget(0.0, float(COARSE_STEPS), target.epsilon, target.distance / (2.0 * width) * COARSE_STEPS)
    sizes = []
    for solution in local_metrics(line, honest, target.delta, algorithm="1N", grid=DIAMETERS).solutions:
        # The hat's metric is min(epsilon, rate d): the largest one below what was solved.
        steps, most = np.arange(1.0, COARSE_STEPS + 1.0), solution.closed_diameter
        below = solution.closed < most
        per_step = float(np.min(solution.closed[below] / steps[below])) if below.any() else most
        sizes.append((most, per_step * COARSE_STEPS / (2.0 * width) * (1.0 - ROOM)))
    most, rate = min(sizes, key=lambda size: WitchHatDensity(width, size[0], 2.0 / size[1]).variance(width))
    for _ in range(8):
        hat = WitchHat(width, most, rate, STEPS // 2)
        if not hat.variance(width) < alone.variance(width) * (1.0 - 1e-6):
            return None
        # In steps; raised by a hair for the rounding of rate * step.
        profile = ClonesProfile(rate * step * (1.0 + 1e-12), honest, most / (rate * step))
        if profile.covers(target.epsilon, target.delta, target.distance / step * (1.0 + 1e-12), "linear"):
            return hat
        rate *= 1.0 - ROOM
    return None


def _ends(query: Mean) -> tuple[float, float]:
    if not isinstance(query.domain, Interval):
        raise InputError(
            f"a WitchHat is for real numbers: the mean must be over an Interval, got {type(query.domain).__name__}; use plan()."
        )
    return query.domain.low, query.domain.high
