"""How many people hold each value: the query, and the estimate with what it promises."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, SerializeAsAny

from metricshuffle.accounting.blanket.bound import BlanketProfile
from metricshuffle.accounting.blanket.geometric_pairs import LARGEST_SPAN, ShuffledGeometric
from metricshuffle.declared import Declared, Stored
from metricshuffle.errors import InputError
from metricshuffle.privacy.guarantee import Guarantee, Trust, plain, released_sentences
from metricshuffle.privacy.profile import PrivacyProfile
from metricshuffle.protocols.frequencies import Floats, IntervalMethod, Inversion, likeliest, simplex_projection
from metricshuffle.randomizers.bounded_geometric import BoundedGeometric
from metricshuffle.randomizers.planar_geometric import PlanarGeometric
from metricshuffle.randomizers.randomizer import Randomizer
from metricshuffle.spaces import AnyDomain, Categories, Domain, Grid, Integers, Space

MOST_CELLS = 2**16
Shares = tuple[float, ...]


def _known(value: object) -> object:
    randomizers = import_module("metricshuffle.randomizers")
    for name in randomizers.__all__:  # a kind is known once its module is imported
        getattr(randomizers, name)
    return Randomizer.of_kind(value)


AnyRandomizer = Annotated[SerializeAsAny[Randomizer], BeforeValidator(_known)]
"""A field that holds any randomizer and reads it back from JSON by its kind."""


class Histogram(Declared):
    """How many people hold each label of Categories, each of the Integers, or live in each cell of a Grid."""

    kind: Literal["histogram"] = "histogram"
    domain: AnyDomain

    def __init__(self, domain: Domain, **rest: Any) -> None:
        found = Domain.of_kind(domain)
        if not isinstance(found, Categories | Integers | Grid):
            raise InputError(f"Histogram needs Categories, Integers or a Grid, got {type(found).__name__}.")
        size = found.size or 0
        most = MOST_CELLS if isinstance(found, Grid) else LARGEST_SPAN
        if not 2 <= size <= most:
            raise InputError(f"Histogram needs 2 to {most:,} values, but {found} has {size:,}; merge values into fewer cells.")
        if isinstance(found, Grid) and min(found.width, found.height) < 2:
            raise InputError(f"Histogram needs at least 2 x 2 cells, got {found.width} x {found.height}; one row is a line of Integers.")
        super().__init__(domain=found, **rest)

    @property
    def cells(self) -> int:
        return int(self.domain.size or 0)

    @property
    def unit(self) -> str:
        return str(getattr(self.domain, "unit", ""))

    @property
    def between(self) -> str:
        return "cells" if isinstance(self.domain, Grid) else "values"

    @property
    def diameter(self) -> float:
        return Space.of(self.domain).diameter

    @property
    def step(self) -> float:
        """The smallest distance between two different values, in units."""
        return self.domain.cell if isinstance(self.domain, Grid) else 1.0

    def codes(self, values: Any, *, clamp: bool = False) -> NDArray[np.int64]:
        """Validated values as whole numbers 0 .. cells-1 (row * width + column on a grid)."""
        checked = np.asarray(self.domain.clamped(values) if clamp else self.domain.validated(values), dtype=np.int64)
        if isinstance(self.domain, Grid):
            return np.asarray(checked[:, 1] * self.domain.width + checked[:, 0])
        return checked - self.domain.low if isinstance(self.domain, Integers) else checked

    def label(self, code: int) -> str:
        """A value in words."""
        if isinstance(self.domain, Categories):
            return self.domain.labels[code]
        if isinstance(self.domain, Grid):
            return f"({code % self.domain.width}, {code // self.domain.width})"
        return str(code + self.domain.low) if isinstance(self.domain, Integers) else str(code)


def shuffled_profile(randomizer: Randomizer, users: int) -> PrivacyProfile:
    """What the shuffled reports of `users` honest people hide: one law per displacement on lines and grids, else pair by pair."""
    if isinstance(randomizer, BoundedGeometric):
        return ShuffledGeometric((randomizer.span,), float(randomizer.exact_rate), users)
    if isinstance(randomizer, PlanarGeometric):
        spans = (randomizer.width - 1, randomizer.height - 1)
        return ShuffledGeometric(spans, float(randomizer.axes[0].exact_rate), users, randomizer.cell, randomizer.metric)
    return BlanketProfile(randomizer.blankets, users)


class FrequencyEstimate(Stored):
    """The shares of the values among the people who reported, from their shuffled reports.

    `frequencies` are unbiased and may be negative; `projected` the nearest shares that are possible; `likeliest` the
    shares of maximum likelihood, `likelihood_gap` nats per report from it at most. Intervals belong to `frequencies`: their
    standard errors count one more report, of the worst value, so that no cell is said to be known exactly.
    """

    stored_as: ClassVar[str] = "a frequency estimate"
    format: Literal["metricshuffle-frequencies/1"] = "metricshuffle-frequencies/1"
    randomizer: AnyRandomizer
    counts: tuple[int, ...]
    """How often each report occurred."""
    reports: int
    frequencies: Shares
    standard_errors: Shares
    projected: Shares
    likeliest: Shares
    likelihood_gap: float
    condition: float
    """How many people one report can count for when the law of the reports is inverted."""
    warning: str
    """What to keep in mind about the accuracy, or nothing."""
    guarantee: Guarantee
    if_shuffler_colludes: Guarantee
    raw_values_seen: bool = False
    unsafe_seeded: bool = False
    plan: str = ""
    query: Histogram | None = None

    @classmethod
    def of(
        cls, randomizer: Randomizer, counts: NDArray[np.int64], guarantee: Guarantee, fallback: Guarantee, **rest: Any
    ) -> FrequencyEstimate:  # fmt: skip
        """Everything that can be said from the counts of the reports."""
        if counts.shape != (randomizer.outputs,):
            raise InputError(f"counts must be one number for each of {randomizer.outputs:,} reports, got shape {counts.shape}.")
        reports, inversion = int(counts.sum()), Inversion.of(randomizer)
        if reports < 1 or counts.min() < 0:
            raise InputError(f"counts must be whole numbers >= 0 and at least one report, got {reports:,} in total.")
        frequencies = inversion.totals(counts.astype(np.float64)) / reports
        fit = likeliest(inversion.rows, counts)
        variances = reports * inversion.variances(fit.frequencies) + inversion.largest_variances
        errors = np.sqrt(variances) / reports
        return cls(
            randomizer=randomizer, counts=tuple(counts.tolist()), reports=reports, frequencies=tuple(frequencies.tolist()),
            standard_errors=tuple(errors.tolist()), projected=tuple(simplex_projection(frequencies).tolist()),
            likeliest=tuple(fit.frequencies.tolist()), likelihood_gap=fit.gap, condition=inversion.condition,
            warning=_warning(inversion.condition, float(np.median(errors)), frequencies.size, fit.gap * reports),
            guarantee=guarantee, if_shuffler_colludes=fallback, **rest,
        )  # fmt: skip

    def intervals(self, level: float = 0.95, *, simultaneous: bool = False, method: IntervalMethod = "normal") -> Floats:
        """(low, high) for the share of each value among those who reported; `simultaneous`: all hold at once.

        "normal" is an approximation for many reports; "bernstein" holds for any number of reports and any data, and is wider.
        Shares lie in 0..1, so intervals are cut there. Simultaneous ones divide the risk evenly (Bonferroni).
        """
        if not 0.0 < level < 1.0:
            raise InputError(f"level must lie strictly between 0 and 1, got {level!r}.")
        if method not in ("normal", "bernstein"):
            raise InputError(f"method must be 'normal' or 'bernstein', got {method!r}.")
        middle = np.array(self.frequencies)
        miss = (1.0 - level) / (middle.size if simultaneous else 1)
        variances = (np.array(self.standard_errors) * self.reports) ** 2
        halves = Inversion.of(self.randomizer).half_widths(variances, self.reports, miss, method) / self.reports
        return np.clip(np.column_stack([middle - halves, middle + halves]), 0.0, 1.0)

    def __str__(self) -> str:
        order = sorted(range(len(self.frequencies)), key=lambda code: -self.likeliest[code])
        shown = order if len(order) <= 12 else order[:8]
        intervals, name = self.intervals(), (self.query.label if self.query is not None else str)
        lines = [f"shares of {len(order):,} values from {self.reports:,} reports (unbiased, 95 % interval, and the likeliest)"]
        for code in shown:
            low, high = intervals[code]
            lines.append(f"  {name(code)}: {self.frequencies[code]:.4f} ({low:.4f} to {high:.4f}), likeliest {self.likeliest[code]:.4f}")
        if len(shown) < len(order):
            lines.append(f"  ... and {len(order) - len(shown):,} more")
        lines += [self.warning] if self.warning else []
        lines += released_sentences(
            self.guarantee, self.if_shuffler_colludes, raw_values_seen=self.raw_values_seen, unsafe_seeded=self.unsafe_seeded
        )
        return "\n".join(lines)


def frequency_estimate(
    randomizer: Randomizer, reports: Any, *, delta: float, distance: float = 1.0, honest: int | None = None, unit: str = ""
) -> FrequencyEstimate:
    """The shares of a randomizer's inputs from its shuffled reports, with the flat guarantee they have at that distance and delta.

    `honest` of the reports (all by default) come from people who followed the protocol; the others may know the rest.
    """
    counts = randomizer.counts(reports)
    total = int(counts.sum())
    counted = total if honest is None else honest
    if isinstance(counted, bool) or not isinstance(counted, int) or not 1 <= counted <= total:
        raise InputError(f"honest must be a whole number from 1 to the number of reports, {total:,}, got {honest!r}.")
    local = Guarantee.from_profile(
        randomizer.local_profile(), delta=0.0, distance=distance, unit=unit, protects="one person", trust=Trust(trusted="nobody")
    )
    kept = Guarantee.from_profile(
        shuffled_profile(randomizer, counted), delta=delta, distance=distance, unit=unit, protects="one person",
        trust=Trust(trusted="shuffler", honest_reports=counted),
    )  # fmt: skip
    return FrequencyEstimate.of(randomizer, counts, kept, local)


def _warning(condition: float, error: float, cells: int, shortfall: float) -> str:
    """In words: what inversion does to single cells, and an unfinished likelihood."""
    words = []
    if error > 1.0 / cells:
        words.append(
            f"Single values are mostly noise: the typical standard error ({plain(error)}) exceeds the average share "
            f"({plain(1.0 / cells)}), because inversion lets one report count for up to {plain(round(condition, 1))} people; "
            "add values up into larger groups, or look at the likeliest shares."
        )
    if shortfall > 1.0:
        words.append(f"The likeliest shares are not final: their total log likelihood may be {plain(shortfall)} below the largest.")
    return " ".join(words)
