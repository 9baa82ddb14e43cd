"""Distances between people's values, to help choose a distance. The output is NOT private."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from metricshuffle.errors import InputError
from metricshuffle.numerics.rounding import format_distance, format_epsilon, format_lower_bound
from metricshuffle.numerics.types import Floats, Integers64
from metricshuffle.queries.by_group import ByGroup
from metricshuffle.queries.cell_query import CellQuery
from metricshuffle.queries.query import Query
from metricshuffle.queries.record_query import RecordQuery
from metricshuffle.queries.user_queries import UserQuery
from metricshuffle.spaces import Categories, Grid, Interval, Places, ZonePairs, Zones
from metricshuffle.spaces.chord import earth_centred
from metricshuffle.spaces.earth_mover import has_formula
from metricshuffle.spaces.grid import METRES
from metricshuffle.spaces.places import POINTS_PER_DEGREE

# With this many pairs, a sampled quartile very likely lies between 24.7 % and 25.3 % of all pairs.
MAX_PAIRS = 100_000
# Earth mover's distances take longer.
MAX_PAIRS_OF_USERS = 2_000
NOT_PRIVATE = "NOT PRIVATE"
DISTANCE_RULE = (
    "The distance is the largest difference between two answers that nobody should be able to "
    "tell apart."
)
DISTANCE_EXAMPLES = (
    "Minutes to work: others may know whether a trip is long, but not the suburb, and suburbs "
    "are 15 minutes apart: 15 min.",
    "Homes: others may know the city, but not the street or the clinic nearby, and clinics are "
    "2 km apart: 2 km.",
)
MAX_BARS = 16
"""Most bars of the picture of distances."""
BAR_LETTERS = 40
"""Letters of its longest bar on a terminal."""


@dataclass(frozen=True, eq=False)
class DistanceSummary:
    """Distances of pairs of people; of pairs drawn at random if there are too many."""

    query: Query
    people: int
    distances: Floats
    """In the unit of the query, in ascending order."""
    all_pairs: bool
    of_items: bool = False
    """Whether one item of each person was compared, and not all their items."""

    @property
    def quartiles(self) -> tuple[float, float, float]:
        """Quartiles of the measured distances, each one of them."""
        low, middle, high = np.quantile(self.distances, [0.25, 0.5, 0.75], method="inverted_cdf")
        return float(low), float(middle), float(high)

    def within(self, distance: float) -> float:
        """Share of the pairs that are at most `distance` apart."""
        return float(np.searchsorted(self.distances, distance * (1.0 + 1e-12), side="right")) / len(
            self.distances
        )

    def histogram(self) -> tuple[Floats, Floats]:
        """Return edges of bars, round numbers from zero on, and the share of pairs in each.

        A bar holds the pairs up to its upper edge; the first bar includes distance zero.
        """
        largest = float(self.distances[-1]) or 1.0
        power = 10.0 ** math.floor(math.log10(largest / MAX_BARS))
        width = power * next(step for step in (1, 2, 5, 10) if step * power * MAX_BARS >= largest)
        bars = math.ceil(largest / width * (1.0 - 1e-12))
        edges = np.array([width * bar for bar in range(bars + 1)])
        up_to = [0.0, *(self.within(edge) for edge in edges[1:].tolist())]
        return edges, np.array([high - low for low, high in pairwise(up_to)])

    def picture(self, distance: float | None = None) -> list[str]:
        """Draw the histogram in letters, with a mark at the bar in which `distance` ends."""
        edges, shares = self.histogram()
        unit = f" {self.query.unit}" if self.query.unit else ""
        ends = [f"{format_distance(float(f'{edge:.9g}'))}{unit}" for edge in edges[1:]]
        lines = []
        for low, high, end, share in zip(edges[:-1], edges[1:], ends, shares, strict=True):
            bar = "#" * round(BAR_LETTERS * share / float(shares.max()))
            mark = " <- the distance" if distance is not None and low < distance <= high else ""
            lines.append(
                f"  up to {end:>{max(map(len, ends))}}  {bar:<{BAR_LETTERS}}  "
                f"{100.0 * share:4.1f} %{mark}"
            )
        return lines

    def sentences(self, distance: float | None = None) -> list[str]:
        """Say what was measured, and which share of the pairs a distance covers."""
        unit = f" {self.query.unit}" if self.query.unit else ""
        of = "" if self.all_pairs else f", from {len(self.distances):,} pairs drawn at random"
        # Rounded so that the sentences stay true: distances up (except for floating-point errors),
        # shares down.
        low, middle, high = (
            f"{format_epsilon(float(f'{apart:.9g}'), 6)}{unit}" for apart in self.quartiles
        )
        what = {
            (False, False): "their values",
            (True, False): "all they hold (earth mover's distance)",
            (True, True): "an item of one and an item of the other",
        }[isinstance(self.query, UserQuery), self.of_items]
        lines = [
            f"{NOT_PRIVATE}, how far two of {self.people:,} people are apart, by "
            f"{what}{of}: a quarter of the pairs at most {low}, half at "
            f"most {middle}, three quarters at most {high}."
        ]
        if self.of_items:
            lines.append(
                "The earth mover's distance of two people is at most the mean distance of "
                "their items."
            )
        if distance is not None:
            covered = format_lower_bound(100.0 * self.within(distance))
            lines.append(
                f"{covered} % of the pairs are at most {format_distance(distance)}{unit} "
                "apart, the distance of this plan."
            )
        return lines


def summarize_distances(
    query: Query, values: object, draw: Callable[[int, int], Integers64] | None = None
) -> DistanceSummary:
    """Summarize how far apart people with these values are, as the query measures it.

    Of many people, pairs are drawn at random: `draw(below, count)` returns `count` whole numbers
    below `below`, by default from a fixed seed so that the result is reproducible.
    """
    if isinstance(query.values_in, Categories) and query.items is None:
        raise InputError(
            "any two labels are 1 apart, so there is no distance to choose; leave the values out."
        )
    generator = np.random.default_rng(0)
    draw = draw or (lambda below, count: generator.integers(0, below, count))
    if isinstance(query, UserQuery):
        return _between_users(query, values, draw)
    if isinstance(query, RecordQuery):
        records = query.inputs(values, 1.0).numbers
        first, second, every = pairs(len(records), MAX_PAIRS_OF_USERS, draw)
        apart = [
            float(query.between_inputs(records[[a]], records[[b]])[0, 0])
            for a, b in zip(first, second, strict=True)
        ]
        return DistanceSummary(query, len(records), np.sort(np.array(apart)), every)
    numbers = np.asarray(query.inputs(values, _step(query)).numbers, dtype=np.float64)
    if isinstance(query, ByGroup):  # distances are measured between numbers
        numbers = numbers % (query.top + 1)
    first, second, every = pairs(len(numbers), MAX_PAIRS, draw)
    return DistanceSummary(
        query, len(numbers), np.sort(_distances_between(query, numbers, first, second)), every
    )


def pairs(
    people: int, max_pairs: int, draw: Callable[[int, int], Integers64]
) -> tuple[Integers64, Integers64, bool]:
    """Return all pairs of different people or `max_pairs` random ones, and whether they are all."""
    if people < 2:
        raise InputError(f"distances need the values of at least two people, got {people}.")
    if people * (people - 1) // 2 <= max_pairs:
        first, second = np.triu_indices(people, 1)
        return first, second, True
    first = draw(people, max_pairs)
    return first, (first + 1 + draw(people - 1, max_pairs)) % people, False


def _step(query: Query) -> float:
    """Step in which values are counted before any noise."""
    domain = query.values_in
    return (
        (domain.high - domain.low) / 2**20
        if isinstance(domain, Interval) and not isinstance(query, CellQuery)
        else 1.0
    )


def _distances_between(
    query: Query, numbers: Floats, first: Integers64, second: Integers64
) -> Floats:
    domain = query.values_in
    if isinstance(domain, Places):
        places = (numbers + domain.corner) / float(POINTS_PER_DEGREE)
        return domain.ground(places[first], places[second])
    if isinstance(domain, Grid):
        columns = (
            np.column_stack([numbers[:, 0] % domain.width, numbers[:, 0] // domain.width])
            if numbers.shape[1] == 1
            else numbers
        )
        apart: Floats = domain.cell * np.hypot(*(columns[first] - columns[second]).T)
        return apart
    if isinstance(domain, Zones):
        return _between_zones(domain, numbers[:, 0].astype(np.int64), first, second)
    if isinstance(domain, ZonePairs):
        starts, stops = domain.ends(numbers[:, 0])
        return _between_zones(domain.zones, starts, first, second) + _between_zones(
            domain.zones, stops, first, second
        )
    step = query.step if isinstance(query, CellQuery | ByGroup) else _step(query)
    along: Floats = step * np.abs(numbers[first, 0] - numbers[second, 0])
    return along


def _between_zones(
    zones: Zones, codes: Integers64, first: Integers64, second: Integers64
) -> Floats:
    centred = earth_centred(zones.degrees)
    ends = centred[codes[first]] - centred[codes[second]]
    return np.asarray(np.linalg.norm(ends, axis=1) / METRES[zones.unit])


def _between_users(
    query: UserQuery, values: object, draw: Callable[[int, int], Integers64]
) -> DistanceSummary:
    people = query.people
    codes, sizes = people.coded(values)
    starts = np.cumsum(sizes) - sizes
    measured = has_formula(people.items_in.metric) and not isinstance(people.items_in.domain, Grid)
    first, second, every = pairs(len(sizes), MAX_PAIRS_OF_USERS if measured else MAX_PAIRS, draw)
    if measured:
        user_codes = [
            codes[start : start + size] for start, size in zip(starts, sizes, strict=True)
        ]
        values_of = people.items_in.domain.all_values()
        apart = np.array(
            [
                people.distance(values_of[user_codes[a]], values_of[user_codes[b]])
                for a, b in zip(first, second, strict=True)
            ]
        )
        return DistanceSummary(query, len(sizes), np.sort(apart), every)
    item_codes = [
        codes[starts[whose] + draw(2**31, len(whose)) % sizes[whose]] for whose in (first, second)
    ]
    return DistanceSummary(
        query,
        len(sizes),
        np.sort(people.distances[item_codes[0], item_codes[1]]),
        False,
        of_items=True,
    )
