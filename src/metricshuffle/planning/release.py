"""What the analyst publishes: a value, an interval and two guarantees."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from metricshuffle.declared import Real, Stored
from metricshuffle.errors import InputError
from metricshuffle.planning.candidate import Candidate
from metricshuffle.privacy.guarantee import Guarantee, released_sentences
from metricshuffle.protocols.base import Shuffled
from metricshuffle.protocols.queries import AnyQuery, Query
from metricshuffle.protocols.sums import SumProtocol


class Release(Stored):
    """An estimate that carries what it promises.

    `interval(level)` covers the true answer over the people who reported (the noise only: it says nothing about
    people who did not report). `raw_values_seen`: all roles ran on one machine, so whoever ran it saw the values.
    """

    stored_as: ClassVar[str] = "a release"
    format: Literal["metricshuffle-release/1"] = "metricshuffle-release/1"
    query: AnyQuery
    granularity: Real
    value: float | tuple[float, float]
    standard_error: float | tuple[float, float]
    interval_95: tuple[float, float] | tuple[tuple[float, float], tuple[float, float]]
    reports: int
    protocol: str
    guarantee: Guarantee
    if_shuffler_colludes: Guarantee
    raw_values_seen: bool
    unsafe_seeded: bool
    plan: str
    mechanism: SumProtocol
    counts: tuple[int, ...] | None = None
    """The counts of ones that an interval of randomized response is inverted from; None for additive noise."""

    @classmethod
    def of(cls, query: Query, granularity: float, choice: Candidate, shuffled: Shuffled, *, raw_values_seen: bool) -> Release:
        """The answer to the query from a shuffled batch."""
        totals = choice.mechanism.totals(shuffled)
        scale = query.error_scale(shuffled.reports, granularity)
        errors = choice.mechanism.standard_errors(shuffled.reports) * scale
        counts = None
        if choice.flip is not None:
            counts = tuple(int(axis) for axis in shuffled.axes if isinstance(axis, int))
        parts: dict[str, Any] = {
            "query": query, "granularity": granularity, "reports": shuffled.reports, "mechanism": choice.mechanism, "counts": counts,
            "value": _shaped(query.answer(totals, shuffled.reports, granularity)),
        }  # fmt: skip
        return cls(
            **parts, interval_95=cls.model_construct(**parts).interval(0.95), standard_error=_shaped(errors),
            protocol=choice.protocol, guarantee=choice.guarantee, if_shuffler_colludes=choice.fallback,
            raw_values_seen=raw_values_seen, unsafe_seeded=shuffled.unsafe_seeded, plan=shuffled.plan,
        )  # fmt: skip

    def interval(self, level: float = 0.95) -> tuple[float, float] | tuple[tuple[float, float], tuple[float, float]]:
        """An interval that holds the true answer with probability at least `level`; for a centroid, one for each axis, jointly."""
        if not 0.0 < level < 1.0:
            raise InputError(f"level must lie strictly between 0 and 1, got {level!r}.")
        if self.counts is not None:
            rows = self.mechanism.count_intervals(self.counts, self.reports, level)
            ends = [self.query.answer(rows[:, side], self.reports, self.granularity) for side in (0, 1)]
        else:
            # Real numbers are counted in fine steps, each off by half a step at most, all perhaps to the same side.
            steps = self.mechanism.half_widths(self.reports, level) + self.reports * self.query.snapping(self.granularity)
            halves = steps * self.query.error_scale(self.reports, self.granularity)
            middle = np.atleast_1d(np.asarray(self.value, dtype=np.float64))
            ends = [middle - halves, middle + halves]
        pairs = [(float(low), float(high)) for low, high in zip(*ends, strict=True)]
        return pairs[0] if len(pairs) == 1 else (pairs[0], pairs[1])

    @property
    def decimals(self) -> int:
        """Enough decimals to see two digits of the error."""
        error = max(np.atleast_1d(np.asarray(self.standard_error, dtype=np.float64)))
        return max(0, 1 - math.floor(math.log10(error))) if error > 0.0 else 0

    def save(self, path: str) -> None:
        from metricshuffle.planning.files import write_text

        write_text(path, self.to_json() + "\n")

    def __str__(self) -> str:
        unit = f" {self.query.unit}" if self.query.unit else ""
        value, interval = measured(self.value, self.decimals), measured(self.interval_95, self.decimals)
        lines = [f"{self.query.kind} = {value}{unit}, 95 % interval {interval}"]
        if self.query.kind == "centroid":
            lines.append("(east, north) from the south-west corner of the grid; cells count at their middles")
        lines.append(f"from {self.reports:,} reports ({self.protocol})")
        lines += released_sentences(
            self.guarantee, self.if_shuffler_colludes, raw_values_seen=self.raw_values_seen, unsafe_seeded=self.unsafe_seeded
        )
        return "\n".join(lines)


def _shaped(values: NDArray[np.float64]) -> float | tuple[float, float]:
    return float(values[0]) if len(values) == 1 else (float(values[0]), float(values[1]))


def measured(value: object, decimals: int) -> str:
    """A number, a pair or an interval with so many decimals."""
    if isinstance(value, tuple):
        return "(" + ", ".join(measured(part, decimals) for part in value) + ")"
    return f"{float(str(value)):,.{decimals}f}"
