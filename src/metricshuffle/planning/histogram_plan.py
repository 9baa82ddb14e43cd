"""Target -> HistogramPlan: one report a person, one calibrated randomizer, the shares of all values. The saved plan IS the task."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable
from typing import Any, Literal, Self

import numpy as np
from pydantic import ValidationError, model_validator

from metricshuffle.declared import Declared, sentence
from metricshuffle.errors import BatchTooSmall, InputError, PlanError
from metricshuffle.planning.histogram_candidates import LARGEST_LOCAL_EPSILON, HistogramCandidate, calibrated, chances
from metricshuffle.planning.target import Target, checked_users, honest_count
from metricshuffle.privacy.guarantee import plain, promised
from metricshuffle.protocols.base import Reports, Shuffled
from metricshuffle.protocols.histogram import FrequencyEstimate, Histogram
from metricshuffle.randomizers.randomizer import counted, smallest_type
from metricshuffle.randomness import Randomness
from metricshuffle.spaces import Categories, Domain

HISTOGRAM_FORMAT = "metricshuffle-histogram-plan/1"


class HistogramPlan(Declared):
    """A calibrated choice of randomizer, with everything the three roles need."""

    format: Literal["metricshuffle-histogram-plan/1"] = "metricshuffle-histogram-plan/1"
    query: Histogram
    target: Target
    users: int
    honest: int
    chosen: int
    candidates: tuple[HistogramCandidate, ...]
    digest: str = ""

    @model_validator(mode="after")
    def _unharmed(self) -> Self:
        content = self.model_dump(mode="json", exclude={"digest"})
        expected = hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
        if not self.digest:
            object.__setattr__(self, "digest", expected)
        elif self.digest != expected:
            raise ValueError("its digest does not match its content: the file was edited or damaged; make the plan again")
        if not 0 <= self.chosen < len(self.candidates):
            raise ValueError(f"chosen must be the index of a candidate, got {self.chosen}")
        return self

    @property
    def choice(self) -> HistogramCandidate:
        """The chosen candidate."""
        return self.candidates[self.chosen]

    @property
    def minimum(self) -> int:
        """The smallest batch the guarantee covers."""
        return self.honest if self.choice.guarantee.trust.trusted == "shuffler" else 1

    def randomize(self, values: Any, randomness: Randomness | None = None, *, clamp: bool = False) -> Reports:
        """Clients: one report per value. Values outside the domain are refused unless `clamp`."""
        source, randomizer = (Randomness.system() if randomness is None else randomness), self.choice.randomizer
        inputs = randomizer.values_of(self.query.codes(values, clamp=clamp))
        codes = np.asarray(randomizer.codes_of(randomizer.reports(inputs, source)))
        return Reports(self.digest, codes.astype(smallest_type(randomizer.outputs)).reshape(-1, 1), source.unsafe_seeded)

    def shuffle(self, reports: Reports | Iterable[Reports]) -> Shuffled:
        """Shuffler: only how often each report occurs; refuses a batch below the plan's minimum. Reports may come in parts."""
        outputs, seeded = self.choice.randomizer.outputs, False
        totals = np.zeros(outputs, dtype=np.int64)
        for batch in [reports] if isinstance(reports, Reports) else reports:
            if not isinstance(batch, Reports):
                raise InputError(f"only Reports can be shuffled, got {type(batch).__name__}.")
            if batch.plan != self.digest:
                raise PlanError("these reports were made for another plan (the digests differ); use the plan the clients used.")
            if batch.records.ndim != 2 or batch.records.shape[1] != 1 or batch.records.dtype.kind not in "iu":
                raise PlanError(f"a record of this plan is one whole number, got an array of shape {batch.records.shape}.")
            totals += counted(batch.records[:, 0], outputs)
            seeded = seeded or batch.unsafe_seeded
        self.check_batch(int(totals.sum()))
        return Shuffled(self.digest, int(totals.sum()), (totals.astype(np.uint64),), seeded)

    def check_batch(self, reports: int) -> None:
        """Raise unless the guarantee covers a batch of that size."""
        if reports < self.minimum:
            raise BatchTooSmall(
                f"the batch has {reports:,} reports, but the guarantee counts on at least {self.minimum:,} honest ones; "
                f"wait for more reports, or plan again with honest={reports}."
            )

    def estimate(self, shuffled: Shuffled, *, raw_values_seen: bool = False) -> FrequencyEstimate:
        """Analyst: the shares with their errors and both guarantees."""
        if not isinstance(shuffled, Shuffled):
            raise InputError(f"estimate needs what shuffle() returned, got {type(shuffled).__name__}; reports must be shuffled first.")
        if shuffled.plan != self.digest:
            raise PlanError("this batch was shuffled for another plan (the digests differ).")
        counts = shuffled.axes[0] if len(shuffled.axes) == 1 else 0
        if isinstance(counts, int) or counts.shape != (self.choice.randomizer.outputs,) or int(counts.sum()) != shuffled.reports:
            raise PlanError(f"a batch of this plan is {self.choice.randomizer.outputs:,} counts that sum to the reports; this one is not.")
        self.check_batch(shuffled.reports)
        return FrequencyEstimate.of(
            self.choice.randomizer, counts.astype(np.int64), self.choice.guarantee, self.choice.fallback, query=self.query,
            raw_values_seen=raw_values_seen, unsafe_seeded=shuffled.unsafe_seeded, plan=self.digest,
        )  # fmt: skip

    def run(self, values: Any, randomness: Randomness | None = None, *, clamp: bool = False) -> FrequencyEstimate:
        """All three roles on one machine; the estimate says that raw values were seen there."""
        return self.estimate(self.shuffle(self.randomize(values, randomness, clamp=clamp)), raw_values_seen=True)

    def to_json(self) -> str:
        return self.model_dump_json(indent=2)

    @classmethod
    def from_json(cls, text: str) -> HistogramPlan:
        """Read a plan back; a damaged or edited one is refused in words."""
        try:
            data = json.loads(text)
        except json.JSONDecodeError as wrong:
            raise PlanError(f"this is not a plan: it is not JSON ({wrong.msg} at line {wrong.lineno}).") from None
        if not isinstance(data, dict) or data.get("format") != HISTOGRAM_FORMAT:
            named = data.get("format") if isinstance(data, dict) else None
            raise PlanError(f"this is not a plan for a histogram: its format is {named!r}, not {HISTOGRAM_FORMAT!r}.")
        if not data.get("digest"):
            raise PlanError("this plan has no digest; make the plan again.")
        try:
            return cls.model_validate(data)
        except ValidationError as wrong:
            raise PlanError(sentence(wrong)) from None

    def save(self, path: str) -> None:
        from metricshuffle.planning.files import write_text

        write_text(path, self.to_json() + "\n")

    @classmethod
    def load(cls, path: str) -> HistogramPlan:
        from metricshuffle.planning.files import read_text

        return cls.from_json(read_text(path))

    def __str__(self) -> str:
        one = self.choice
        lines = [f"histogram over {self.query.domain}, {self.users:,} users ({self.honest:,} honest), {self.target}"]
        for index, other in enumerate(self.candidates):
            mark = "->" if index == self.chosen else "  "
            lines.append(
                f"{mark} {other.kind}: expected error {plain(100.0 * other.expected_error)} % of the people per value, "
                f"epsilon of one report {promised(other.fallback.epsilon)}"
            )
        if one.guarantee.trust.trusted == "nobody":
            lines.append(str(one.guarantee))
        else:
            lines += [f"If the shuffler is honest: {one.guarantee}", f"If it is not: {one.fallback}"]
            lines.append(
                f"The promise counts {self.honest:,} honest reports of {self.users:,}: "
                f"a batch of fewer than {self.minimum:,} reports is refused."
            )
        lines += [one.gain] if one.gain else []
        lines.append("Not hidden: that somebody took part, how many did, and anything a lying client sends to move the answer.")
        return "\n".join(lines)


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
