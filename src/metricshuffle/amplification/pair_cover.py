"""Pairs that represent all pairs of a randomizer up to a distance, in the form each bound needs.

These are a few laws, a scan of many pairs, or one law per displacement on lines and grids.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np

from metricshuffle.accounting.shuffling.geometric_blanket import LARGEST_SPAN, ShuffledGeometric
from metricshuffle.accounting.shuffling.input_class_laws import InputClassLaws
from metricshuffle.accounting.shuffling.pair_screen import PairScreen, symmetries
from metricshuffle.amplification.dominance_scan import Pair, PairScan
from metricshuffle.amplification.full_law_pairs import BeyondPairs, ListedPairs, ScannedPairs
from metricshuffle.amplification.input_classes import input_classes_of
from metricshuffle.amplification.pair_blanket_bound import BlanketPairs
from metricshuffle.amplification.random_task import RandomTask
from metricshuffle.amplification.real_valued_pairs import RealLine, real_pairs, takes_real_numbers
from metricshuffle.amplification.smallest_bound import WIN_RATIO, Bound, BoundResult
from metricshuffle.errors import NotCertified
from metricshuffle.numerics.rounding import never_small
from metricshuffle.privacy.profile import validate_distance
from metricshuffle.randomizers.bounded_geometric import BoundedGeometric, LaplaceOnInterval
from metricshuffle.randomizers.planar_geometric import PlanarGeometric
from metricshuffle.randomizers.randomizer import LARGEST_MATRIX, Randomizer, has_law_of

FEW_PAIRS = 20
MAX_LAWS = 4096
SOME_LAWS = 1024  # max number of pairs whose types are counted
MAX_WORK = 2**24  # max pairs times reports in one evaluation of all pairs
MAX_ENTRIES = 2**20  # max entries of a matrix of laws, for the bound beyond the blanket
MOST_KEPT = 512  # max inputs of lines and grids whose pairs are cached
# Up to this many entries of the laws, the types of each pair are compared, to leave out equal ones.
SOME_ENTRIES = 2**10


def _all_pairs(source: Randomizer) -> bool:
    """Return whether the source lists every ordered pair that is within the distance."""
    own = type(source)
    return own.pairs is Randomizer.pairs and (
        own.pairs_within is Randomizer.pairs_within or takes_real_numbers(source)
    )


@lru_cache(maxsize=64)
def _cells_within(spans: tuple[int, ...], cell: float, metric: str, reach: float) -> list[Pair]:
    """Return the ordered pairs of different cells at most `reach` apart, as codes."""
    across = spans[0] + 1
    up = (spans[1] if len(spans) > 1 else 0) + 1
    column = np.arange(across * up) % across
    row = np.arange(across * up) // across
    wide = np.abs(column[:, None] - column)
    high = np.abs(row[:, None] - row)
    apart = cell * (np.hypot(wide, high) if metric == "euclidean" else wide + high)
    return [(a, b) for a, b in np.argwhere(apart <= reach).tolist() if a != b]


def pairs_within(source: Randomizer, distance: float) -> list[Pair]:
    """Return `source.pairs_within`, vectorized and cached for lines and grids.

    Lines and grids have many pairs and are evaluated often.
    """
    shifts = (
        DisplacementLaws.of(source, 1)
        if type(source) in (BoundedGeometric, PlanarGeometric)
        else None
    )
    if shifts is None or source.inputs > MOST_KEPT:
        return source.pairs_within(distance)
    profile = shifts.profile
    return _cells_within(
        profile.spans, profile.cell, profile.metric, validate_distance(distance) * (1.0 + 1e-12)
    )


def blanket_pairs(source: Randomizer, distance: float) -> BlanketPairs | None:
    """Return a few laws, or a scan of many pairs; None if there are too many pairs."""
    if _all_pairs(source) and source.inputs * (source.inputs - 1) > FEW_PAIRS:
        if (
            source.inputs * source.outputs > LARGEST_MATRIX
            or source.inputs**2 * source.outputs > 2 * MAX_WORK
        ):
            return None
        rows, pairs = (
            real_pairs(source, distance)
            if takes_real_numbers(source)
            else (source.rows(), pairs_within(source, distance))
        )
        scan = PairScan(rows, pairs)
        if scan.covered and len(scan.pairs) > FEW_PAIRS:
            return scan
        if takes_real_numbers(source) and len(rows) > source.inputs:
            return [scan.law((a, b)) for a, b in pairs if a < b]
    pairs = pairs_within(source, distance)
    if len(pairs) > MAX_LAWS:
        return None
    known = set(pairs)
    return [source.blanket(a, b) for a, b in pairs if a < b or (b, a) not in known]


@dataclass(frozen=True)
class DisplacementLaws:
    """One law for all pairs at one displacement, for lines and grids with too many pairs.

    See `ShuffledGeometric`.
    """

    profile: ShuffledGeometric
    step: float
    """Step to which distances are rounded up; 0 if there are no real numbers between points."""

    @classmethod
    def of(cls, source: object, users: int) -> DisplacementLaws | None:
        line = source.grid if has_law_of(source, LaplaceOnInterval) else source
        if has_law_of(line, BoundedGeometric) and line.span <= LARGEST_SPAN:
            step = source.step if has_law_of(source, LaplaceOnInterval) else 0.0
            return cls(
                ShuffledGeometric((line.span,), float(line.exact_rate), users, step or 1.0), step
            )
        if has_law_of(line, PlanarGeometric) and max(line.width, line.height) <= LARGEST_SPAN:
            spans = (line.width - 1, line.height - 1)
            return cls(
                ShuffledGeometric(
                    spans, float(line.axes[0].exact_rate), users, line.cell, line.metric
                ),
                0.0,
            )
        return None

    def whole(self, distance: float) -> float:
        """Return the distance, rounded up to whole steps unless `step` is 0."""
        return (
            math.ceil(distance / self.step * (1.0 - 1e-12)) * self.step if self.step else distance
        )


@dataclass(frozen=True)
class DisplacementBound(Bound):
    """The blanket bound by one law for each displacement."""

    laws: DisplacementLaws
    distance: float
    search_order: ClassVar[int] = 2

    @property
    def _whole(self) -> float:
        return self.laws.whole(self.distance)

    def delta(self, epsilon: float, ceiling: float) -> BoundResult:
        value = self.laws.profile.delta(epsilon, self._whole)
        return BoundResult(never_small(value), "blanket", "contour")

    def epsilon(self, delta: float, ceiling: float) -> BoundResult:
        value = self.laws.profile.epsilon(delta, self._whole)
        return BoundResult(never_small(value), "blanket", "contour")

    def loses(self, rival: BoundResult, delta: float) -> bool:
        return self.laws.profile.delta(rival.value * WIN_RATIO, self._whole) > delta

    def covers(self, epsilon: float, delta: float) -> bool:
        return self.laws.profile.covers(epsilon, delta, self._whole, "flat")

    def nearly_covers(self, epsilon: float, delta: float) -> bool:
        """Return False: displacements are evaluated before all other bounds."""
        return False


def distances_of(source: object, within: float) -> list[float]:
    """Return the distances up to `within` at which there are two different inputs, ascending.

    Distances that differ only by rounding are returned once. `pairs_within` tolerates a relative
    1e-12, so it finds all pairs of such a distance.
    """
    # Subclasses are refused as well, whatever their law.
    if isinstance(source, RealLine):
        raise NotCertified(
            "a linear guarantee for real numbers between grid points is not supported; ask "
            "for a flat one."
        )
    reach = validate_distance(within) * (1.0 + 1e-12)
    if (shifts := DisplacementLaws.of(source, 1)) is not None:
        profile = shifts.profile
        distances = [
            profile.length(steps)
            for steps in itertools.product(*(range(span + 1) for span in profile.spans))
            if any(steps)
        ]
    elif isinstance(source, Randomizer) and type(source).distance is not Randomizer.distance:
        distances = [max(source.distance(a, b), source.distance(b, a)) for a, b in source.pairs()]
    else:
        distances = [1.0]  # there is no metric
    rising: list[float] = []
    for apart in sorted(apart for apart in distances if apart <= reach):
        if not rising or apart > rising[-1] * (1.0 + 1e-13):
            rising.append(apart)
    return rising


def full_law_pairs(source: Randomizer | RandomTask, distance: float) -> BeyondPairs | None:
    """Return the pairs for the bound beyond the blanket, or None if there are too many."""
    if isinstance(source, RandomTask):
        laws = source.others()
        return ListedPairs(laws) if laws else None
    if not _all_pairs(source):
        pairs = source.pairs_within(distance)
        class_laws = (
            [input_classes_of(source, a, b) for a, b in pairs] if len(pairs) <= SOME_LAWS else []
        )
        listed = [law for law in class_laws if law is not None]
        if listed and len(listed) == len(pairs):
            if len(listed) > 1:  # the widest first
                listed.sort(key=lambda law: -float(law.at(0.0).square.max()))
            return ListedPairs(listed)
    if source.inputs * source.outputs > MAX_ENTRIES or (
        _all_pairs(source) and source.inputs**2 * source.outputs > 4 * MAX_WORK
    ):
        return None
    if takes_real_numbers(source):
        pair_rows, pairs = real_pairs(source, distance)
        return _scan_pairs(source.rows(), pair_rows, pairs) if pairs else None
    rows = source.rows()
    pairs = pairs_within(source, distance)
    if not pairs or len(pairs) > MAX_WORK:
        return None
    known = set(pairs)
    if len(pairs) <= FEW_PAIRS and rows.size <= SOME_ENTRIES:
        return ListedPairs(
            [InputClassLaws.from_rows(rows, a, b) for a, b in pairs if a < b or (b, a) not in known]
        )
    both = (
        pairs
        if _all_pairs(source)
        else [*pairs, *((b, a) for a, b in pairs if (b, a) not in known)]
    )
    return _scan_pairs(rows, rows, both)


def _scan_pairs(rows: np.ndarray, pair_rows: np.ndarray, pairs: list[Pair]) -> ScannedPairs:
    # Symmetries are not used for laws between grid points.
    return ScannedPairs(
        PairScreen(rows, pair_rows), pairs, symmetries(rows) if len(pair_rows) == len(rows) else ()
    )
