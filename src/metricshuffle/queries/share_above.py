"""The share of people whose numbers lie above a threshold."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import ClassVar, Literal, Self

import numpy as np
from pydantic import model_validator

from metricshuffle.errors import InputError, argument
from metricshuffle.models import Positive, Real
from metricshuffle.numerics.rounding import format_number
from metricshuffle.numerics.types import Floats, Integers64
from metricshuffle.queries.line_query import LineQuery
from metricshuffle.spaces import Domain, Integers


class ShareAbove(LineQuery):
    """The share of people above each threshold of `at`, fading over a width.

    People above the threshold count fully; below it, the weight decreases linearly and is 0 at a
    distance of `fade` from the first number above the threshold. A fade of one step is a sharp
    edge; a fade of w steps has a w-th of the noise. Real numbers that equal a threshold are above.
    """

    noun: ClassVar[str] = "a share above"
    kind: Literal["share-above"] = "share-above"
    at: tuple[Real, ...]
    fade: Positive

    def __init__(
        self,
        domain: Domain,
        at: object,
        fade: float | None = None,
        step: float | None = None,
        **fields: object,
    ) -> None:
        listed = (at,) if isinstance(at, int | float) else at
        sharp = 1.0 if step is None else step
        super().__init__(domain, step, at=listed, fade=sharp if fade is None else fade, **fields)

    @model_validator(mode="after")
    def _is_possible(self) -> Self:
        if not self.at:
            raise InputError(f"{argument('at')} is empty", remedy="give at least one threshold")
        if self.fade < self.step * (1.0 - 1e-9):
            raise InputError(
                f"{argument('fade')} must be at least a step, {format_number(self.step)}, got "
                f"{format_number(self.fade)}",
                remedy="a fade of one step is a sharp edge",
            )
        if abs(self.fade / self.step - self.width) > 1e-9 * self.width:
            raise InputError(
                f"{argument('fade')} must be a multiple of a step, {format_number(self.step)}, got "
                f"{format_number(self.fade)}",
                field="fade",
            )
        _ = self.window_ends
        return self

    @property
    def width(self) -> int:
        """Number of thresholds that each share is averaged over."""
        return max(1, round(self.fade / self.step))

    @property
    def _last_of_first_bin(self) -> float:
        """The lowest threshold: above the first bin."""
        return self.step - 1.0 if isinstance(self.domain, Integers) else self.step

    @property
    def window_ends(self) -> tuple[int, ...]:
        """End of the window of each threshold, in thresholds between bins."""
        ends = [self._window_end(threshold) for threshold in self.at]
        for before, after in pairwise(ends):
            if after <= before:
                raise InputError(f"{argument('at')} must increase", field="at")
            if after - before < self.width:
                raise InputError(
                    f"thresholds must be at least {argument('fade')} "
                    f"{format_number(self.fade)} apart, so that nobody counts in part for two of "
                    "them",
                    remedy="use a smaller fade, or fewer thresholds",
                )
        return tuple(ends)

    def _window_end(self, threshold: float) -> int:
        code = self.edge_code(threshold, self._last_of_first_bin)
        lowest = float(self.bin_ends[0][0]) + self._last_of_first_bin
        highest = lowest + (self.cells - 2) * self.step
        if code is None or not 0 <= code <= self.cells - 2:
            raise InputError(
                f"{argument('at')} must be thresholds from {format_number(lowest)} to "
                f"{format_number(highest)} in steps of {format_number(self.step)}, the edges of "
                f"bins, got {format_number(threshold)}",
                field="at",
            )
        if code + 1 < self.width:
            raise InputError(
                f"{argument('fade')} {format_number(self.fade)} reaches below the range from "
                f"{argument('at')} {format_number(threshold)}",
                remedy=f"use at most {format_number((code + 1) * self.step)}",
            )
        return code + 1

    def exact(self, counts: Integers64) -> Floats:
        checked = self.checked_counts(counts)
        reached = np.cumsum(checked, axis=-1) / checked.sum(axis=-1, keepdims=True)
        sums = np.concatenate(
            [np.zeros((*reached.shape[:-1], 1)), np.cumsum(reached, axis=-1)], axis=-1
        )
        ends = np.array(self.window_ends)
        return np.asarray(1.0 - (sums[..., ends] - sums[..., ends - self.width]) / self.width)

    @property
    def title(self) -> str:
        return "share above"

    @property
    def row_name(self) -> str:
        return "share"

    @property
    def error_unit(self) -> str:
        return "% of the people"

    @property
    def row_labels(self) -> tuple[str, ...]:
        faded = "" if self.width == 1 else f", fading over {format_number(self.fade)}"
        return tuple(f"{self._above} {format_number(threshold)}{faded}" for threshold in self.at)

    @property
    def _above(self) -> str:
        return "above" if isinstance(self.domain, Integers) else "at or above"

    @property
    def row_columns(self) -> dict[str, Sequence[object]]:
        return {**super().row_columns, "at": list(self.at)}

    @property
    def measure(self) -> str:
        return "expected error of a share"

    @property
    def outcome(self) -> str:
        named = ", ".join(format_number(threshold) for threshold in self.at)
        faded = "" if self.width == 1 else f", fading over {format_number(self.fade)}"
        return f"the share {self._above} {named}{faded}"

    def remarks(self) -> list[str]:
        if self.width == 1:
            return []
        lower = self.fade - self.step
        return [
            f"Shares fade: a share {self._above} {format_number(threshold)}, fading over "
            f"{format_number(self.fade)}, is at least the share {self._above} "
            f"{format_number(threshold)} and at most the share {self._above} "
            f"{format_number(threshold - lower)}."
            for threshold in self.at
        ]
