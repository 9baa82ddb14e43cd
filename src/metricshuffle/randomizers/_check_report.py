"""What `metricshuffle.testing.check_randomizer` looked at, and what it cannot see."""

from __future__ import annotations

import math
from dataclasses import dataclass

from metricshuffle.display import Brief


def _share(share: float) -> str:
    """1 of so many, or per cent, rounded to the larger share."""
    return f"1 of {math.floor(1.0 / share):,}" if share <= 0.1 else f"{math.ceil(100.0 * share)} %"


@dataclass(frozen=True)
class RandomizerReport(Brief):
    """A randomizer that passed: what was drawn, the smallest leaks that would have been seen, and what nobody looked at.

    `print(report)` tells all of it in sentences.
    """

    randomizer: str
    seed: int | str | None
    """Gives the same draws again; None if a stream was given."""
    inputs: int
    outputs: int
    pairs: int
    """How many ordered pairs of inputs were compared."""
    every_pair: bool
    whole_laws: int | None
    """How many of the pairs that `pairs()` leaves out were compared by the whole laws of the others; None if all were."""
    reports: int
    """How many reports were drawn."""
    sizes: tuple[int, int]
    """Batches of every size up to the first were drawn, and of so many others."""
    largest_batch: int
    leak: float
    """The smallest share of reports in the clear that would have been seen with probability 99.9 %; inf if none would."""
    leak_of_one_input: float
    """The same, of the reports of one input, while those of all others are honest."""
    leak_at_one_size: float
    """The same, if it happens in batches of one of the sizes drawn only."""
    shared: float
    """The smallest share of reports that repeat the randomness of the one a fixed number of places before, seen as surely."""

    @property
    def sentences(self) -> tuple[str, ...]:
        """What was looked at, and how small a leak would have been seen."""
        compared = "all ordered pairs of inputs" if self.every_pair else f"{self.pairs:,} ordered pairs of inputs, and not all,"
        lines = [
            f"{self.randomizer} agrees with its law: {self.inputs:,} inputs, {self.outputs:,} reports, {compared} compared.",
            f"{self.reports:,} reports were drawn, in batches of every size up to {self.sizes[0]:,}, of {self.sizes[1]} other sizes and "
            f"of {self.largest_batch:,}.",
        ]
        if self.whole_laws is not None:
            lines.append(f"Of the pairs that pairs() leaves out, {self.whole_laws:,} were compared by whole laws, and not all.")
        if self.seed is not None:
            lines.append(f"The draws are those of seed={self.seed!r}.")
        return (*lines, *self.seen)

    @property
    def seen(self) -> tuple[str, ...]:
        """The smallest leaks that would have been seen."""
        leaks = {
            "A report in the clear": self.leak,
            "A report in the clear of people with one input alone": self.leak_of_one_input,
            "A report in the clear in batches of one of these sizes alone": self.leak_at_one_size,
            "A report with the randomness of the one a fixed number of places before": self.shared,
        }
        return tuple(
            f"{what}, in more than {_share(share)}, would have been seen with probability 99.9 %."
            if share < 1.0
            else f"{what} would not have been seen for sure, however often: draw more reports."
            for what, share in leaks.items()
        )

    @property
    def unseen(self) -> tuple[str, ...]:
        """What a pass says nothing about."""
        return (
            "leaks that are rarer than these, and randomness that is shared in another way than at a fixed distance",
            f"batches of a size that was not drawn: most sizes above {self.sizes[0]:,}, and all above {self.largest_batch:,}",
            "reports of three or more people that depend on each other, while any two of them do not",
            "what depends on the time, the machine, the process, or how many calls came before",
            "real numbers that have no code, values of another type than values_of gives, and values that are refused",
            "instances whose attributes or methods were changed after they were made",
        )

    def __str__(self) -> str:
        listed = "\n".join(f"- {line}" for line in self.unseen)
        return "\n".join(self.sentences) + f"\nIt cannot see:\n{listed}"
