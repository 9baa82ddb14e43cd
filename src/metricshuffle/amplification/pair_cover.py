"""Which pairs of a randomizer stand for all pairs up to a distance, and in what form the two bounds from its own laws take them."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from metricshuffle.accounting.shuffling.blanket_law import BlanketLaw
from metricshuffle.accounting.shuffling.geometric_blanket import LARGEST_SPAN, ShuffledGeometric
from metricshuffle.accounting.shuffling.input_class_laws import InputClassLaws
from metricshuffle.accounting.shuffling.pair_screen import PairScreen, symmetries
from metricshuffle.amplification.dominance_scan import Pair, PairScan
from metricshuffle.amplification.full_law_pairs import ListedPairs, ScannedPairs
from metricshuffle.amplification.input_classes import input_classes_of
from metricshuffle.amplification.random_task import RandomTask
from metricshuffle.amplification.real_valued_pairs import RealLine, real_pairs, takes_real_numbers
from metricshuffle.errors import NotCertified
from metricshuffle.privacy.profile import validate_distance
from metricshuffle.randomizers.bounded_geometric import BoundedGeometric, LaplaceOnInterval
from metricshuffle.randomizers.planar_geometric import PlanarGeometric
from metricshuffle.randomizers.randomizer import LARGEST_MATRIX, Randomizer, has_law_of

FEW_PAIRS = 20
MAX_LAWS = 4096
SOME_LAWS = 1024  # whose types are counted
MAX_WORK = 2**24  # pairs times reports of one look at all pairs
MAX_ENTRIES = 2**20  # of a matrix of laws, for the bound beyond the blanket
MOST_KEPT = 512  # inputs of lines and grids whose pairs are kept
SOME_ENTRIES = 2**10  # up to here the types of each pair are compared, to leave out those that are alike

BlanketPairs = list[BlanketLaw] | PairScan
BeyondPairs = ListedPairs | ScannedPairs


def _all_pairs(source: Randomizer) -> bool:
    """Whether every ordered pair is listed, both directions, and left out by its distance only."""
    own = type(source)
    return own.pairs is Randomizer.pairs and (own.pairs_within is Randomizer.pairs_within or takes_real_numbers(source))


@lru_cache(maxsize=64)
def _cells_within(spans: tuple[int, ...], cell: float, metric: str, reach: float) -> list[Pair]:
    """The ordered pairs of different cells at most that far apart, coded as lines and grids code them."""
    across, up = spans[0] + 1, (spans[1] if len(spans) > 1 else 0) + 1
    column, row = np.arange(across * up) % across, np.arange(across * up) // across
    wide, high = np.abs(column[:, None] - column), np.abs(row[:, None] - row)
    apart = cell * (np.hypot(wide, high) if metric == "euclidean" else wide + high)
    return [(a, b) for a, b in np.argwhere(apart <= reach).tolist() if a != b]


def pairs_within(source: Randomizer, distance: float) -> list[Pair]:
    """`source.pairs_within`; on lines and grids, which have many pairs and are asked often, all at once and kept."""
    shifts = DisplacementLaws.of(source, 1) if type(source) in (BoundedGeometric, PlanarGeometric) else None
    if shifts is None or source.inputs > MOST_KEPT:
        return source.pairs_within(distance)
    profile = shifts.profile
    return _cells_within(profile.spans, profile.cell, profile.metric, validate_distance(distance) * (1.0 + 1e-12))


def blanket_pairs(source: Randomizer, distance: float) -> BlanketPairs | None:
    """Few laws, or a scan of many pairs; None if the pairs are too many to look at."""
    if _all_pairs(source) and source.inputs * (source.inputs - 1) > FEW_PAIRS:
        if source.inputs * source.outputs > LARGEST_MATRIX or source.inputs**2 * source.outputs > 2 * MAX_WORK:
            return None
        rows, pairs = real_pairs(source, distance) if takes_real_numbers(source) else (source.rows(), pairs_within(source, distance))
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
    """Lines and grids with too many pairs to look at: one law for all pairs at one displacement (`ShuffledGeometric`)."""

    profile: ShuffledGeometric
    step: float
    """Real numbers between grid points: a distance is rounded up to whole steps; 0 if there are none between."""

    @classmethod
    def of(cls, source: object, users: int) -> DisplacementLaws | None:
        line = source.grid if has_law_of(source, LaplaceOnInterval) else source
        if has_law_of(line, BoundedGeometric) and line.span <= LARGEST_SPAN:
            step = source.step if has_law_of(source, LaplaceOnInterval) else 0.0
            return cls(ShuffledGeometric((line.span,), float(line.exact_rate), users, step or 1.0), step)
        if has_law_of(line, PlanarGeometric) and max(line.width, line.height) <= LARGEST_SPAN:
            spans = (line.width - 1, line.height - 1)
            return cls(ShuffledGeometric(spans, float(line.axes[0].exact_rate), users, line.cell, line.metric), 0.0)
        return None

    def whole(self, distance: float) -> float:
        return math.ceil(distance / self.step * (1.0 - 1e-12)) * self.step if self.step else distance


def distances_of(source: object, within: float) -> list[float]:
    """The distances up to `within` at which there are two different inputs, rising; those that only rounding tells apart are one.

    `pairs_within` forgives a relative 1e-12, so the pairs of each are found at it.
    """
    if isinstance(source, RealLine):  # (whatever law a class that extends it has)
        raise NotCertified("a linear promise about real numbers between grid points is not looked at; ask for a flat one.")
    reach = validate_distance(within) * (1.0 + 1e-12)
    if (shifts := DisplacementLaws.of(source, 1)) is not None:
        profile = shifts.profile
        distances = [profile.length(steps) for steps in itertools.product(*(range(span + 1) for span in profile.spans)) if any(steps)]
    elif isinstance(source, Randomizer) and type(source).distance is not Randomizer.distance:
        distances = [max(source.distance(a, b), source.distance(b, a)) for a, b in source.pairs()]
    else:
        distances = [1.0]  # all inputs are alike
    rising: list[float] = []
    for apart in sorted(apart for apart in distances if apart <= reach):
        if not rising or apart > rising[-1] * (1.0 + 1e-13):
            rising.append(apart)
    return rising


def full_law_pairs(source: Randomizer | RandomTask, distance: float) -> BeyondPairs | None:
    """The same for the bound beyond the blanket, from closed forms where the reports are many."""
    if isinstance(source, RandomTask):
        laws = source.others()
        return ListedPairs(laws) if laws else None
    if not _all_pairs(source):
        pairs = source.pairs_within(distance)
        class_laws = [input_classes_of(source, a, b) for a, b in pairs] if len(pairs) <= SOME_LAWS else []
        listed = [law for law in class_laws if law is not None]
        if listed and len(listed) == len(pairs):
            if len(listed) > 1:  # the widest first
                listed.sort(key=lambda law: -float(law.at(0.0).square.max()))
            return ListedPairs(listed)
    if source.inputs * source.outputs > MAX_ENTRIES or (_all_pairs(source) and source.inputs**2 * source.outputs > 4 * MAX_WORK):
        return None
    if takes_real_numbers(source):
        pair_rows, pairs = real_pairs(source, distance)
        return _scan_pairs(source.rows(), pair_rows, pairs) if pairs else None
    rows, pairs = source.rows(), pairs_within(source, distance)
    if not pairs or len(pairs) > MAX_WORK:
        return None
    known = set(pairs)
    if len(pairs) <= FEW_PAIRS and rows.size <= SOME_ENTRIES:
        return ListedPairs([InputClassLaws.from_rows(rows, a, b) for a, b in pairs if a < b or (b, a) not in known])
    both = pairs if _all_pairs(source) else [*pairs, *((b, a) for a, b in pairs if (b, a) not in known)]
    return _scan_pairs(rows, rows, both)


def _scan_pairs(rows: np.ndarray, pair_rows: np.ndarray, pairs: list[Pair]) -> ScannedPairs:
    # (laws between grid points are kept as they are)
    return ScannedPairs(PairScreen(rows, pair_rows), pairs, symmetries(rows) if len(pair_rows) == len(rows) else ())
