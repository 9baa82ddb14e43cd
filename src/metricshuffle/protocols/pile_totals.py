"""Totals of piles: whether counts of parts, with sets of dummies, are possible."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate, pairwise

from metricshuffle.errors import PlanError
from metricshuffle.estimation.interval_widths import noise_radius
from metricshuffle.noise.polya import Polya

# Probability with which honest totals are refused as impossible.
REFUSED_TOTALS = 1e-15


@dataclass(frozen=True)
class PileTotals:
    """What determines the totals of a batch: piles, messages of a person, and law of dummies."""

    sizes: tuple[int, ...]
    """Number of parts of each pile."""
    items: int
    """Number of messages of a person in a pile."""
    rate: float
    radius: int
    """Mean number of dummies of a part in one set."""
    complementary: bool

    def check(self, counts: Sequence[int], people: int, sets: int) -> None:
        """Raise unless the totals of all piles are possible for this many people.

        With `sets` of independent dummies, a total may also be refused because its probability is
        below REFUSED_TOTALS, as if no dummies were added.
        """
        reports = people * self.items
        row = sum(self.sizes)
        most = 2 * self.radius * sets
        problem = ""
        if len(counts) != row or min(counts, default=0) < 0:
            problem = f"{row:,} counts of at least 0"
        elif max(counts) > reports + most:
            problem = f"counts of at most {reports + most:,}"
        if problem:
            raise self._different(people, problem)
        starts = [0, *accumulate(self.sizes)]
        totals = [sum(counts[start:end]) for start, end in pairwise(starts)]
        self.check_totals(totals, people, sets)

    def check_totals(self, totals: Sequence[int], people: int, sets: int) -> None:
        """Raise unless these are possible numbers of messages of all piles, as in `check`."""
        reports = people * self.items
        if len(totals) != len(self.sizes):
            raise self._different(people, f"{len(self.sizes):,} piles")
        for pile, (size, total) in enumerate(zip(self.sizes, totals, strict=True), start=1):
            expected = reports + size * self.radius * sets
            room = self._room(size, sets)
            if abs(total - expected) > room:
                more = f", up to {room:,} more or fewer" if room else ""
                raise self._different(people, f"{expected:,} messages in pile {pile:,}{more}")

    def shows_missing_set(self, sets: int) -> bool:
        """Whether a batch that has one set fewer than `sets` would be refused in some pile."""
        return any(self._room(size, sets) < size * self.radius for size in self.sizes)

    @staticmethod
    def _different(people: int, expected: str) -> PlanError:
        return PlanError(
            f"a batch of this task with {people:,} people has {expected}; this one is different."
        )

    def _room(self, size: int, sets: int) -> int:
        """Largest difference of an honest total from its mean: 0 for complementary dummies."""
        if sets == 0 or self.complementary:
            return 0
        return min(_total_radius(size * sets, self.rate), size * self.radius * sets)


@lru_cache(maxsize=256)
def _total_radius(draws: int, rate: float) -> int:
    return noise_radius(Polya(Fraction(draws), rate), REFUSED_TOTALS)
