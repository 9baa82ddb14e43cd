"""What plans in which everybody sends one report of one randomizer have in common: roles, minimum batch, digest, files."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metricshuffle.errors import BatchTooSmall, InputError, PlanError
from metricshuffle.planning.saved import SavedPlan
from metricshuffle.privacy.guarantee import Guarantee
from metricshuffle.privacy.target import Target
from metricshuffle.protocols.base import Reports, Shuffled
from metricshuffle.randomizers.randomizer import Randomizer, counted, smallest_type
from metricshuffle.randomness import Randomness


class OneReportPlan(SavedPlan):
    """A calibrated randomizer for one report a person; what the shuffler lets through is how often each report occurs."""

    target: Target
    users: int
    honest: int

    @property
    @abstractmethod
    def used(self) -> Randomizer:
        """The randomizer of the reports."""

    @property
    @abstractmethod
    def promise(self) -> Guarantee:
        """What is promised of a batch."""

    @abstractmethod
    def inputs(self, values: Any, *, clamp: bool = False) -> Any:
        """Validated values as the randomizer takes them."""

    @property
    def minimum(self) -> int:
        """The smallest batch the guarantee covers."""
        return self.honest if self.promise.trust.trusted == "shuffler" else 1

    def randomize(self, values: Any, randomness: Randomness | None = None, *, clamp: bool = False) -> Reports:
        """Clients: one report per value. Values outside the domain are refused unless `clamp`."""
        source, randomizer = (Randomness.system() if randomness is None else randomness), self.used
        codes = np.asarray(randomizer.codes_of(randomizer.reports(self.inputs(values, clamp=clamp), source)))
        return Reports(self.digest, codes.astype(smallest_type(randomizer.outputs)).reshape(-1, 1), source.unsafe_seeded)

    def shuffle(self, reports: Reports | Iterable[Reports]) -> Shuffled:
        """Shuffler: only how often each report occurs; refuses a batch below the plan's minimum. Reports may come in parts."""
        outputs, seeded = self.used.outputs, False
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
        if reports < self.minimum or reports < 1:
            raise BatchTooSmall(
                f"the batch has {reports:,} reports, but the guarantee counts on at least {self.minimum:,} honest ones; "
                f"wait for more reports, or plan again counting on {max(reports, 1):,} honest ones and let people randomize again."
            )

    def counts(self, shuffled: Shuffled) -> NDArray[np.int64]:
        """How often each report occurs in a shuffled batch that belongs to this plan."""
        if not isinstance(shuffled, Shuffled):
            raise InputError(f"estimate needs what shuffle() returned, got {type(shuffled).__name__}; reports must be shuffled first.")
        if shuffled.plan != self.digest:
            raise PlanError("this batch was shuffled for another plan (the digests differ).")
        counts = shuffled.axes[0] if len(shuffled.axes) == 1 else 0
        if isinstance(counts, int) or counts.shape != (self.used.outputs,) or int(counts.sum()) != shuffled.reports:
            raise PlanError(f"a batch of this plan is {self.used.outputs:,} counts that sum to the reports; this one is not.")
        self.check_batch(shuffled.reports)
        return counts.astype(np.int64)

    def trust_sentences(self, fallback: Guarantee) -> list[str]:
        """Both guarantees, what they count on, and what nobody promises."""
        hidden_from_nobody = "Not hidden: that somebody took part, how many did, and anything a lying client sends to move the answer."
        if self.promise.trust.trusted == "nobody":
            return [str(self.promise), hidden_from_nobody]
        return [
            f"If the shuffler is honest: {self.promise}", f"If it is not: {fallback}",
            f"The promise counts {self.honest:,} honest reports of {self.users:,}: "
            f"a batch of fewer than {self.minimum:,} reports is refused.",
            hidden_from_nobody,
        ]  # fmt: skip
