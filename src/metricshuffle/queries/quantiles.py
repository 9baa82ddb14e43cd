"""Quantiles of people's numbers: the median, or any others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from typing import ClassVar, Literal, Self

import numpy as np
from pydantic import model_validator

from metricshuffle.errors import InputError, argument
from metricshuffle.models import Real
from metricshuffle.numerics.types import Floats, Integers64
from metricshuffle.queries.line_query import LineQuery
from metricshuffle.spaces import Domain


class Quantiles(LineQuery):
    """For each q of `at`, the smallest number that is not exceeded by a share q of the people.

    `edges` are public guesses of where numbers are: the distribution function is averaged between
    one edge and the next, and quantiles are exact to about the width between edges. Without edges,
    all windows have the same width, which suits numbers spread evenly over the range.
    """

    options: ClassVar[frozenset[str]] = frozenset({"spread"})
    noun: ClassVar[str] = "a quantile"
    kind: Literal["quantiles"] = "quantiles"
    at: tuple[Real, ...] = (0.5,)
    edges: tuple[Real, ...] | None = None

    def __init__(
        self,
        domain: Domain,
        at: object = (0.5,),
        edges: object = None,
        step: float | None = None,
        **fields: object,
    ) -> None:
        listed = (at,) if isinstance(at, int | float) else at
        super().__init__(domain, step, at=listed, edges=edges, **fields)

    @model_validator(mode="after")
    def _is_possible(self) -> Self:
        if not self.at:
            raise InputError(
                f"{argument('at')} is empty",
                remedy="give at least one share, such as 0.5 for the median",
            )
        for share in self.at:
            if not 0.0 < share < 1.0:
                raise InputError(
                    f"{argument('at')} must be shares strictly between 0 and 1, such as 0.5 for "
                    f"the median, got {share:g}",
                    field="at",
                )
        if len(set(self.at)) < len(self.at):
            raise InputError(f"{argument('at')} names a share twice", remedy="leave one out")
        _ = self.window_edges
        return self

    @property
    def window_edges(self) -> tuple[int, ...] | None:
        """First threshold of each window, and the end of the last; None without given edges.

        The ends of the range are added where they are missing.
        """
        if self.edges is None:
            return None
        last = self.cells - 1
        codes = []
        for edge in self.edges:
            code = self.edge_code(edge, 0.0)
            if code is None or not 0 <= code <= last:
                raise InputError(
                    f"{argument('edges')} must be the first numbers of bins, from "
                    f"{self.bin_ends[0][0]:g} to {self.bin_ends[0][-1]:g} in steps of "
                    f"{self.step:g}, got {edge:g}",
                    field="edges",
                )
            codes.append(code)
        if any(later <= earlier for earlier, later in pairwise(codes)):
            raise InputError(f"{argument('edges')} must increase")
        return tuple(sorted({0, *codes, last}))

    def needed(self, share: float, people: Fraction) -> int:
        """Smallest whole number that is at least this share of the people.

        The share is taken as the decimal number that it is written as: a tenth of 10 people is one.
        """
        return math.ceil(Fraction(str(share)) * people)

    def exact(self, counts: Integers64) -> Floats:
        cumulative = np.cumsum(self.checked_counts(counts), axis=-1)
        people = [Fraction(int(total)) for total in cumulative[..., -1].ravel()]
        codes = []
        for share in self.at:
            needed = np.array([self.needed(share, total) for total in people])
            reached = cumulative >= needed.reshape(*cumulative.shape[:-1], 1)
            codes.append(np.argmax(reached, axis=-1))
        return np.asarray(self.middles[np.stack(codes, axis=-1)])

    @property
    def title(self) -> str:
        return "median" if self.at == (0.5,) else "table of quantiles"

    @property
    def row_name(self) -> str:
        return "quantile"

    @property
    def row_labels(self) -> tuple[str, ...]:
        return tuple("median" if share == 0.5 else f"quantile {share:g}" for share in self.at)

    @property
    def row_columns(self) -> dict[str, Sequence[object]]:
        return {**super().row_columns, "at": list(self.at)}

    @property
    def simulated(self) -> bool:
        return True

    @property
    def measure(self) -> str:
        return "expected absolute error of a quantile"

    @property
    def outcome(self) -> str:
        if len(self.at) == 1:
            return f"the {self.row_labels[0]}"
        named = f"{', '.join(f'{share:g}' for share in self.at[:-1])} and {self.at[-1]:g}"
        return f"the quantiles {named}"

    def remarks(self) -> list[str]:
        lines = [
            "A quantile has an interval, which holds whatever numbers people have, and no standard "
            "error."
        ]
        if self.between(self.step).startswith("bins"):
            lines.append("Quantiles are printed as middles of bins; intervals contain whole bins.")
        return lines
