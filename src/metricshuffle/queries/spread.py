"""The spread of people's numbers: their mean and their standard deviation."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from metricshuffle.numerics.types import Floats, Integers64
from metricshuffle.queries.line_query import LineQuery
from metricshuffle.spaces import Domain, Integers


class Spread(LineQuery):
    """The mean of people's numbers, and their standard deviation over the people who report."""

    options: ClassVar[frozenset[str]] = frozenset({"spread"})
    noun: ClassVar[str] = "a spread"
    kind: Literal["spread"] = "spread"

    # Repeated, because type checkers do not see that pydantic inherits it.
    def __init__(self, domain: Domain, step: float | None = None, **fields: object) -> None:
        super().__init__(domain, step, **fields)

    @property
    def first_middle(self) -> float:
        """Middle of the first bin; the others follow a step apart."""
        return float(self.domain.low) + self.snapping  # type: ignore[attr-defined]

    @property
    def snapping(self) -> float:
        """Largest distance of a number from the middle of its bin."""
        return 0.5 * (self.step - 1.0 if isinstance(self.domain, Integers) else self.step)

    def exact(self, counts: Integers64) -> Floats:
        checked = self.checked_counts(counts)
        weights = checked / checked.sum(axis=-1, keepdims=True)
        codes = np.arange(self.cells, dtype=np.float64)
        means = weights @ codes
        variances = (weights * (codes - means[..., None]) ** 2).sum(axis=-1)
        return np.stack(
            [self.first_middle + self.step * means, self.step * np.sqrt(variances)], axis=-1
        )

    @property
    def row_name(self) -> str:
        return "number"

    @property
    def row_labels(self) -> tuple[str, ...]:
        return "mean", "standard deviation"

    @property
    def simulated(self) -> bool:
        return True

    @property
    def measure(self) -> str:
        return "expected absolute error of mean and standard deviation"

    @property
    def outcome(self) -> str:
        return "the mean and standard deviation"

    def remarks(self) -> list[str]:
        return [
            "The standard deviation is that of the people who reported (divided by their number). "
            "Both numbers have intervals, which hold whatever numbers people have, and no standard "
            "errors."
        ]
