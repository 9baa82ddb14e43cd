"""Target -> HistogramPlan: one report a person, one calibrated randomizer, the shares of all values. The saved plan IS the task."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, ClassVar, Literal

from metricshuffle.errors import InputError
from metricshuffle.planning.histogram_candidates import LARGEST_LOCAL_EPSILON, HistogramCandidate, calibrated, chances
from metricshuffle.planning.one_report import OneReportPlan
from metricshuffle.planning.saved import ChosenPlan
from metricshuffle.privacy.guarantee import Guarantee, plain, promised
from metricshuffle.privacy.target import Target, checked_users, honest_count
from metricshuffle.protocols.base import Shuffled
from metricshuffle.protocols.histogram import FrequencyEstimate, Histogram
from metricshuffle.randomizers.randomizer import Randomizer
from metricshuffle.randomness import Randomness
from metricshuffle.spaces import Categories, Domain


class HistogramPlan(OneReportPlan, ChosenPlan[HistogramCandidate]):
    """A calibrated choice of randomizer, with everything the three roles need."""

    known_as: ClassVar[str] = "metricshuffle-histogram-plan/1"
    format: Literal["metricshuffle-histogram-plan/1"] = "metricshuffle-histogram-plan/1"
    query: Histogram

    @property
    def used(self) -> Randomizer:
        return self.choice.randomizer

    @property
    def promise(self) -> Guarantee:
        return self.choice.guarantee

    def inputs(self, values: Any, *, clamp: bool = False) -> Any:
        return self.used.values_of(self.query.codes(values, clamp=clamp))

    def estimate(self, shuffled: Shuffled, *, raw_values_seen: bool = False) -> FrequencyEstimate:
        """Analyst: the shares with their errors and both guarantees."""
        return FrequencyEstimate.of(
            self.used, self.counts(shuffled), self.choice.guarantee, self.choice.fallback, query=self.query,
            raw_values_seen=raw_values_seen, unsafe_seeded=shuffled.unsafe_seeded, plan=self.digest,
        )  # fmt: skip

    def run(self, values: Any, randomness: Randomness | None = None, *, clamp: bool = False) -> FrequencyEstimate:
        """All three roles on one machine; the estimate says that raw values were seen there."""
        return self.estimate(self.shuffle(self.randomize(values, randomness, clamp=clamp)), raw_values_seen=True)

    def __str__(self) -> str:
        lines = [f"histogram over {self.query.domain}, {self.users:,} users ({self.honest:,} honest), {self.target}"]
        for index, other in enumerate(self.candidates):
            mark = "->" if index == self.chosen else "  "
            lines.append(
                f"{mark} {other.kind}: expected error {plain(100.0 * other.expected_error)} % of the people per value, "
                f"epsilon of one report {promised(other.fallback.epsilon)}"
            )
        lines += [self.choice.gain] if self.choice.gain else []
        return "\n".join([*lines, *self.trust_sentences(self.choice.fallback)])


def plan_histogram(
    query: Histogram | Domain, target: Target, users: int, honest: int | float | str | None = None, *,
    trusted: Literal["nobody", "shuffler"] = "shuffler", randomizers: Iterable[str] | None = None,
    max_local_epsilon: float | None = None,
) -> HistogramPlan:  # fmt: skip
    """Calibrate every randomizer that fits (or only the `randomizers` of these kinds); choose the least expected error.

    The expected error is the mean over the values of E|unbiased share - true share|, by the normal approximation, for people
    spread evenly. `max_local_epsilon` caps what one report gives away at the target's distance. Categories take distance 1
    (any two labels are that far apart); lines and grids a distance in their unit.
    """
    asked = query if isinstance(query, Histogram) else Histogram(query)
    users = checked_users(users)
    counted_on = honest_count(honest, users)
    if trusted not in ("nobody", "shuffler"):
        raise InputError(f"trusted must be 'nobody' or 'shuffler', got {trusted!r}: a histogram has no curator.")
    if isinstance(asked.domain, Categories) and target.distance != 1.0:
        raise InputError(f"any two categories are at distance 1, so the target's distance must be 1, got {plain(target.distance)}.")
    if not asked.step * (1.0 - 1e-12) <= target.distance <= asked.diameter * (1.0 + 1e-12):
        raise InputError(
            f"distance must lie between one step, {plain(asked.step)}, and the diameter of {asked.domain}, {plain(asked.diameter)}; "
            f"got {plain(target.distance)}."
        )
    if max_local_epsilon is not None and not 0.0 < max_local_epsilon < math.inf:
        raise InputError(f"max_local_epsilon must be a finite number > 0, got {max_local_epsilon!r}.")
    most = LARGEST_LOCAL_EPSILON if max_local_epsilon is None else min(LARGEST_LOCAL_EPSILON, max_local_epsilon)
    kinds = chances(asked)
    wanted = list(kinds) if randomizers is None else list(randomizers)
    unknown = [kind for kind in wanted if kind not in kinds]
    if unknown or not wanted:
        raise InputError(f"there is no randomizer {unknown[:1]!r} for {asked.domain}; choose among {', '.join(kinds)}.")
    found = [calibrated(kinds[kind], asked, target, users, None if trusted == "nobody" else counted_on, most) for kind in wanted]
    found.sort(key=lambda one: one.expected_error)
    return HistogramPlan(query=asked, target=target, users=users, honest=counted_on, chosen=0, candidates=tuple(found))
