"""One protocol: a randomizer and an encoding on each axis, and whom it trusts."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Discriminator

from metricshuffle.declared import Declared
from metricshuffle.encodings import Modular, Transport, Unary
from metricshuffle.errors import InputError, PlanError
from metricshuffle.noise.sampling import sample_polya
from metricshuffle.protocols.base import Reports, Shuffled
from metricshuffle.randomizers.additive import AdditiveRandomizer, rounded
from metricshuffle.randomizers.count_response import CountResponse
from metricshuffle.randomness import Randomness

ProtocolName = Literal["geometric-local", "geometric-central", "geometric-shuffle", "polya-shuffle", "randomized-response-shuffle"]
Randomizer = Annotated[AdditiveRandomizer | CountResponse, Discriminator("kind")]


class SumProtocol(Declared):
    """Everybody randomizes each axis, encodes it in messages of equal length, and the totals are estimated."""

    name: ProtocolName
    transport: Transport
    randomizers: tuple[Randomizer, ...]
    modulus: int | None = None
    messages: int = 1

    @property
    def encoding(self) -> Literal["unary", "modular"]:
        return "unary" if self.modulus is None else "modular"

    @property
    def encodings(self) -> tuple[Unary | Modular, ...]:
        if self.modulus is not None:
            return (Modular(self.modulus, self.messages, self.transport),) * len(self.randomizers)
        return tuple(Unary(randomizer.length) for randomizer in self.randomizers)

    @property
    def bits_per_user(self) -> int:
        return sum(encoding.bits_per_user for encoding in self.encodings)

    def records(self, steps: NDArray[np.int64], randomness: Randomness) -> NDArray[Any]:
        """Clients: one record a person (rows of `steps`); counts for unary, residues for modular."""
        columns: list[NDArray[Any]] = []
        for axis, (randomizer, encoding) in enumerate(zip(self.randomizers, self.encodings, strict=True)):
            values = np.ascontiguousarray(steps[:, axis])
            # The curator is the one who adds noise: what reaches him is the value itself, in cells of the noise.
            curated = self.transport == "curator"
            reports = rounded(values, randomizer.granularity, randomness) if curated else randomizer.reports(values, randomness)
            if isinstance(encoding, Unary):
                columns.append(reports.reshape(-1, 1))
            else:
                columns.append(encoding.shares(reports, randomness))
        return np.concatenate(columns, axis=1)

    def shuffled(self, plan: str, batches: Iterable[Reports], randomness: Randomness) -> Shuffled:
        """Shuffler: forget who sent what. Counts become a number of ones, residues a sorted multiset or their sum."""
        width = self.messages if self.modulus is not None else 1
        sums = [0] * len(self.randomizers)
        kept: list[list[NDArray[np.uint64]]] = [[] for _ in self.randomizers]
        reports, unsafe_seeded = 0, randomness.unsafe_seeded
        for batch in batches:
            if not isinstance(batch, Reports):
                raise InputError(f"only Reports can be shuffled, got {type(batch).__name__}.")
            records = batch.records
            if batch.plan != plan:
                raise PlanError("these reports were made for another plan (the digests differ); use the plan the clients used.")
            if records.ndim != 2 or records.shape[1] != width * len(self.randomizers):
                numbers = width * len(self.randomizers)
                raise PlanError(f"a record of this plan has {numbers} numbers, got an array of shape {records.shape}.")
            reports, unsafe_seeded = reports + len(records), unsafe_seeded or batch.unsafe_seeded
            for axis, encoding in enumerate(self.encodings):
                mine = records[:, axis * width : (axis + 1) * width]
                if isinstance(encoding, Unary):
                    sums[axis] += encoding.shuffled_counts(mine[:, 0]).ones
                elif self.transport in ("aggregator", "curator"):
                    sums[axis] += encoding.total(mine)
                else:
                    kept[axis].append(mine)
        axes: list[int | NDArray[np.uint64]] = []
        for axis, encoding in enumerate(self.encodings):
            if isinstance(encoding, Unary):
                axes.append(sums[axis])
            elif self.transport in ("aggregator", "curator"):
                axes.append(self._published_total(axis, encoding, sums[axis], randomness))
            else:
                together = np.concatenate(kept[axis]) if kept[axis] else np.empty((0, width), dtype=np.uint64)
                kept[axis].clear()
                axes.append(encoding.shuffled(together))
        return Shuffled(plan, reports, tuple(axes), unsafe_seeded)

    def _published_total(self, axis: int, encoding: Modular, total: int, randomness: Randomness) -> int:
        randomizer = self.randomizers[axis]
        if self.transport == "curator" and isinstance(randomizer, AdditiveRandomizer):
            total += int(sample_polya(randomizer.shape, randomizer.exact_rate, 1, randomness)[0])
        return total % encoding.modulus

    def totals(self, shuffled: Shuffled) -> NDArray[np.float64]:
        """Analyst: an unbiased estimate of the total of the steps, per axis."""
        estimates = []
        for randomizer, encoding, content in zip(self.randomizers, self.encodings, shuffled.axes, strict=True):
            if isinstance(encoding, Unary):
                if not isinstance(content, int) or not 0 <= content <= shuffled.reports * encoding.length:
                    raise PlanError(
                        f"{shuffled.reports:,} reports of this plan make up to {encoding.length:,} ones each; this batch does not."
                    )
                estimates.append(randomizer.total_from_count(content, shuffled.reports))
            else:
                residue = self._residue(encoding, content, shuffled.reports)
                top = shuffled.reports * randomizer.top
                estimates.append(float(encoding.centred(residue, 0, top) * randomizer.granularity))
        return np.array(estimates, dtype=np.float64)

    def _residue(self, encoding: Modular, content: int | NDArray[np.uint64], reports: int) -> int:
        """The sum modulo the modulus of what this transport lets through; what it does not is damaged or of another plan."""
        summed = self.transport in ("aggregator", "curator")
        if isinstance(content, int):
            if not summed:
                raise PlanError(f"a batch of this plan is {reports * self.messages:,} residues, got one number.")
            return content
        if summed or content.size != reports * self.messages:
            wanted = "one number" if summed else f"{reports * self.messages:,} residues"
            raise PlanError(f"a batch of {reports:,} reports of this plan is {wanted}, got {content.size:,} residues.")
        return encoding.total(content)

    def noise_draws(self, reports: int) -> int:
        """How many shares of noise are in a total of that many reports."""
        return 1 if self.transport == "curator" else reports

    def mean_error(self, reports: int) -> float:
        """E|error| of the total in steps (one axis), or E of the Euclidean error (two axes)."""
        spreads = [randomizer.error_points(self.noise_draws(reports), reports) for randomizer in self.randomizers]
        if len(spreads) == 1:
            values, weights = spreads[0]
            return float(np.dot(np.abs(values), weights))
        (first, p), (second, q) = spreads
        return float(p @ np.hypot(first[:, None], second[None, :]) @ q)

    def standard_errors(self, reports: int) -> NDArray[np.float64]:
        """Standard deviation of each total, in steps."""
        draws = self.noise_draws(reports)
        return np.array([math.sqrt(randomizer.total_variance(draws, reports)) for randomizer in self.randomizers])

    def half_widths(self, reports: int, level: float) -> NDArray[np.float64]:
        """Half the width of an interval for each total, in steps; together they hold with probability >= level."""
        each = 1.0 - (1.0 - level) / len(self.randomizers)
        draws = self.noise_draws(reports)
        return np.array([randomizer.half_width(draws, each, reports) for randomizer in self.randomizers])

    def count_intervals(self, counts: tuple[int, ...], reports: int, level: float) -> NDArray[np.float64]:
        """(low, high) of each total from the observed counts of ones (randomized response only), jointly."""
        each = 1.0 - (1.0 - level) / len(self.randomizers)
        pairs = zip(self.randomizers, counts, strict=True)
        return np.array([randomizer.interval(count, reports, each) for randomizer, count in pairs if isinstance(randomizer, CountResponse)])
