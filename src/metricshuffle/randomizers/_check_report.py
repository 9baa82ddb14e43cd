"""The report of `check_randomizer`: what was checked, and what it cannot detect."""

from __future__ import annotations

import math
from dataclasses import dataclass

from metricshuffle.display import Brief


def _share(share: float) -> str:
    """Format a share as "1 of n" or in per cent, rounded to the larger share."""
    return f"1 of {math.floor(1.0 / share):,}" if share <= 0.1 else f"{math.ceil(100.0 * share)} %"


@dataclass(frozen=True)
class RandomizerReport(Brief):
    """A passed check: what was drawn, the smallest detectable leaks, and what was not checked.

    `print(report)` shows all of it in sentences.
    """

    randomizer: str
    seed: int | str | None
    """Reproduces the draws; None if a stream was given."""
    inputs: int
    outputs: int
    pairs: int
    """Number of ordered pairs of inputs that were compared."""
    every_pair: bool
    whole_laws: int | None
    """Number of pairs omitted by `pairs()` that were compared by the whole laws of the others.

    None if all omitted pairs were compared.
    """
    reports: int
    """Number of reports drawn."""
    sizes: tuple[int, int]
    """All batch sizes up to the first number were drawn, and as many others as the second."""
    largest_batch: int
    leak: float
    """Smallest share of unrandomized reports that is detected with probability 99.9 %, or inf."""
    leak_of_one_input: float
    """The same among the reports of one input, if the reports of all other inputs are honest."""
    leak_at_one_size: float
    """The same if the leak happens only in batches of one of the sizes drawn."""
    shared: float
    """Smallest detected share of reports that repeat the randomness of an earlier one.

    The earlier report is a fixed number of places before; the probability of detection is the same.
    """

    @property
    def sentences(self) -> tuple[str, ...]:
        """What was checked, and how small a leak would have been detected."""
        compared = (
            "all ordered pairs of inputs"
            if self.every_pair
            else f"{self.pairs:,} ordered pairs of inputs, and not all,"
        )
        lines = [
            f"{self.randomizer} agrees with its law: {self.inputs:,} inputs, "
            f"{self.outputs:,} reports, {compared} compared.",
            f"{self.reports:,} reports were drawn, in batches of every size up to "
            f"{self.sizes[0]:,}, of {self.sizes[1]} other sizes and "
            f"of {self.largest_batch:,}.",
        ]
        if self.whole_laws is not None:
            lines.append(
                f"Of the pairs that pairs() leaves out, {self.whole_laws:,} were compared "
                "by whole laws, and not all."
            )
        if self.seed is not None:
            lines.append(f"The draws are those of seed={self.seed!r}.")
        return (*lines, *self.seen)

    @property
    def seen(self) -> tuple[str, ...]:
        """The smallest leaks that would have been detected."""
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
        """What a passed check says nothing about."""
        return (
            "leaks that are rarer than these, and randomness that is shared in another way "
            "than at a fixed distance",
            f"batches of a size that was not drawn: most sizes above {self.sizes[0]:,}, "
            f"and all above {self.largest_batch:,}",
            "reports of three or more people that depend on each other, while any two of "
            "them do not",
            "what depends on the time, the machine, the process, or how many calls came before",
            "real numbers that have no code, values of another type than values_of gives, "
            "and values that are refused",
            "instances whose attributes or methods were changed after they were made",
        )

    def __str__(self) -> str:
        listed = "\n".join(f"- {line}" for line in self.unseen)
        return "\n".join(self.sentences) + f"\nIt cannot see:\n{listed}"
