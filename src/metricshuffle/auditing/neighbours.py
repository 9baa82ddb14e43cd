"""Neighbouring inputs to audit: two inputs that a guarantee covers, and all other values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from metricshuffle.amplification.lower_bound import information
from metricshuffle.errors import InputError
from metricshuffle.numerics.certified_search import last_certified
from metricshuffle.numerics.rounding import format_number
from metricshuffle.numerics.types import Floats
from metricshuffle.privacy.guarantee import Guarantee
from metricshuffle.protocols.answer_noise import KNormNoise
from metricshuffle.protocols.frequencies import Frequencies, has_metric
from metricshuffle.protocols.noisy_answers import NoisyAnswers
from metricshuffle.protocols.sums import Sums
from metricshuffle.queries.by_group import ByGroup
from metricshuffle.queries.cell_query import CellQuery
from metricshuffle.queries.query import Query
from metricshuffle.queries.record_query import RecordQuery
from metricshuffle.queries.user_queries import UserQuery
from metricshuffle.randomizers.count_response import CountResponse
from metricshuffle.spaces import (
    Categories,
    Grid,
    Integers,
    Interval,
    LabelledDistance,
    Places,
    Space,
    ZonePairs,
    Zones,
)
from metricshuffle.tasks.task import Task

# Relative difference of distances that are equal up to rounding.
DISTANCE_TOLERANCE = 1e-9
# Number of points of a large space, and of their pairs, that are tried.
SOME_POINTS = 64
# Number of items of a user, if users may hold any number and only some items move.
SEVERAL_ITEMS = 20
MAX_WORDS = 3


@dataclass(frozen=True)
class Neighbours:
    """First and second value of one person, and all other values; `others` is None if unknown."""

    first: Any
    second: Any
    others: Sequence[Any] | None
    about_others: str
    """Description of the other values."""


def distance_between(query: Query, step: float, first: object, second: object) -> float:
    """Distance of two values in units, as the guarantee measures it."""
    if isinstance(query, UserQuery):
        return query.people.distance(first, second)
    if isinstance(query.values_in, Places):
        places = query.values_in.validated([first, second])
        return float(query.values_in.ground(places[:1], places[1:])[0])
    if isinstance(query, ByGroup):
        pairs = query.values_in.validated([first, second])
        metric = LabelledDistance(query.label_distance or 0.0)
        return float(metric.pairwise(pairs[:1], pairs[1:])[0, 0])
    codes = query.inputs([first, second], step).numbers
    if isinstance(query, RecordQuery):
        return float(query.between_inputs(codes[:1], codes[1:])[0, 0])
    if isinstance(query, CellQuery):
        return query.distance(int(codes[0, 0]), int(codes[1, 0]))
    return step * math.hypot(*(int(gap) for gap in codes[0] - codes[1]))


def promised_epsilon(claimed: Guarantee, distance: float) -> float:
    """Epsilon guaranteed for two inputs at a distance; InputError if nothing is guaranteed."""
    if distance == 0.0:
        raise InputError(
            "the two inputs are the same to this task; an audit needs two that differ."
        )
    if distance > claimed.distance * (1.0 + DISTANCE_TOLERANCE):
        raise InputError(
            f"the two inputs are {format_number(distance)} {claimed.unit}".rstrip()
            + f" apart, and the promise covers {format_number(claimed.distance)} "
            "at most; give two inputs that are nearer."
        )
    return (
        claimed.epsilon
        if claimed.shape == "flat"
        else claimed.epsilon * min(1.0, distance / claimed.distance * (1.0 + DISTANCE_TOLERANCE))
    )


def neighbours_of(
    task: Task, people: int, first: object = None, second: object = None, others: Any = None
) -> list[Neighbours]:
    """Return the neighbouring inputs to try.

    Given inputs and others are used as they are; otherwise the pairs that look worst, with a few
    data sets around each.
    Rule: values at the guaranteed distance, at an end and in the middle of the domain (for a
    randomizer that treats all values alike, values as near as a linear guarantee distinguishes);
    for users' items, where the released features move most. All others hold the value that hides a
    pair least by `information`, or all hold the first value.
    """
    if (first is None) != (second is None):
        raise InputError("give both inputs, the first and the second, or neither.")
    pairs = _pairs(task) if first is None else [(first, second)]
    if others is not None:
        return [
            Neighbours(a, b, list(others), "everybody else holds what was given") for a, b in pairs
        ]
    if people == 1:
        return [Neighbours(a, b, [], "") for a, b in pairs]
    return [neighbours for a, b in pairs for neighbours in _data_sets(task, a, b, people - 1)]


# The pair


def _pairs(task: Task) -> list[tuple[Any, Any]]:
    query = task.query
    pairs = _item_pairs(task) if isinstance(query, UserQuery) else _value_pairs(task)
    reach = task.guarantee.distance * (1.0 + DISTANCE_TOLERANCE)
    pairs_in_reach = [
        pair for pair in pairs if 0.0 < distance_between(query, task.protocol.step, *pair) <= reach
    ]
    if not pairs_in_reach:
        raise InputError(
            f"no two inputs were found within {format_number(task.guarantee.distance)} "
            f"{query.unit}".rstrip()
            + "; give two inputs."
        )
    return pairs_in_reach


def _group_pairs(query: ByGroup, reach: float) -> list[tuple[tuple[str, float], tuple[str, float]]]:
    """Moves of a number within a group, and to another group if that is within reach."""
    steps = min(math.floor(reach / query.step * (1.0 + DISTANCE_TOLERANCE)), query.top)
    pairs = [(query.pair(0), query.pair(steps))] if steps else []
    if (query.label_distance or math.inf) <= reach:
        pairs.append((query.pair(0), query.pair(query.top + 1)))
    if not pairs:
        raise InputError(f"no two answers are within {format_number(reach)} of each other.")
    return pairs


def _value_pairs(task: Task) -> list[tuple[Any, Any]]:
    """Pairs of values of one person."""
    query = task.query
    protocol = task.protocol
    claimed = task.guarantee
    domain = query.values_in
    reach = claimed.distance
    alike = (
        isinstance(protocol, Frequencies)
        and not has_metric(protocol.randomizer)
        and protocol.readout == "shares"
    )
    # All pairs are equally distinguishable, and the nearest have the least guaranteed epsilon.
    if alike and claimed.shape == "linear":
        reach = min(reach, query.step if isinstance(query, CellQuery) else protocol.step)
    if isinstance(domain, Categories):
        return [(domain.labels[0], domain.labels[1])]
    if isinstance(domain, Zones):
        return _zone_pairs(domain, reach)
    if isinstance(domain, ZonePairs):  # one end moves
        stay = domain.zones.ids[0]
        zone_pairs = _zone_pairs(domain.zones, reach)
        return [
            *(((a, stay), (b, stay)) for a, b in zone_pairs),
            *(((stay, a), (stay, b)) for a, b in zone_pairs),
        ]
    if isinstance(query, ByGroup):
        return _group_pairs(query, reach)
    if isinstance(domain, Grid):
        cells = math.floor(reach / domain.cell * (1.0 + DISTANCE_TOLERANCE))
        slanted = math.floor(cells / math.sqrt(2.0) * (1.0 + DISTANCE_TOLERANCE))
        across = min(cells, domain.width - 1)
        up = min(cells, domain.height - 1)
        moves = dict.fromkeys([(across, 0), (0, up), (min(slanted, across), min(slanted, up))])
        return [((0, 0), move) for move in moves if move != (0, 0)]
    if isinstance(domain, Places):
        return _place_pairs(domain, reach)
    if not isinstance(domain, Integers | Interval):
        raise InputError(f"give the two inputs: none are known by themselves for {domain}.")
    step = query.step if isinstance(query, CellQuery) else protocol.step
    longest_move = min(
        math.floor(reach / step * (1.0 + DISTANCE_TOLERANCE)) * step, domain.high - domain.low
    )
    starts = [
        domain.low,
        domain.low + math.floor((domain.high - domain.low - longest_move) / 2.0 / step) * step,
    ]
    pairs = [(start, min(start + longest_move, domain.high)) for start in dict.fromkeys(starts)]
    if isinstance(protocol, Sums):
        pairs = pairs[:1]  # noise is the same everywhere
    return [
        (int(a), int(b)) if isinstance(domain, Integers) else (float(a), float(b)) for a, b in pairs
    ]


def _zone_pairs(zones: Zones, reach: float) -> list[tuple[str, str]]:
    """The nearest two zones, and the zone of the densest area with its farthest one in reach."""
    dense = int(np.argmin(zones.nearest))
    apart = Space.of(zones).metric.pairwise(zones.degrees[[dense]], zones.degrees)[0]
    apart[dense] = np.inf
    # `reach` may be a lower bound on the distance of the nearest two.
    reach = max(reach * (1.0 + DISTANCE_TOLERANCE), float(apart.min()))
    within = np.where(apart <= reach, apart, -np.inf)
    ends = dict.fromkeys([int(np.argmin(apart)), int(np.argmax(within))])
    return [(zones.ids[dense], zones.ids[end]) for end in ends if np.isfinite(within[end])]


def _place_pairs(places: Places, reach: float) -> list[tuple[Any, Any]]:
    """South-west corner with the farthest places within reach along each axis and along both."""
    corner = np.array([places.south, places.west])
    sides = np.array([places.north, places.east]) - corner
    per_degree = np.array(places.metres_per_degree)
    pairs = []
    for along in ((1.0, 0.0), (0.0, 1.0), (1.0, 1.0)):
        direction = np.array(along) / per_degree
        direction *= np.min(sides[direction > 0.0] / direction[direction > 0.0])

        def near(part: float, direction: Floats = direction) -> bool:
            return bool(
                places.ground(
                    corner[None], np.minimum(corner + part * direction, corner + sides)[None]
                )[0]
                <= reach
            )

        part = 1.0 if near(1.0) else last_certified(near, 1.0, 0.0, relative=1e-9)
        end = np.minimum(corner + part * direction, corner + sides)
        pairs.append(((float(corner[0]), float(corner[1])), (float(end[0]), float(end[1]))))
    return pairs


def _item_pairs(task: Task) -> list[tuple[Any, Any]]:
    """Pairs of one user's items.

    In each pair, as many items as the distance allows move from one point to another. The points
    are those for which the features change most, among all moves or among moves of all items.
    """
    query = task.query
    protocol = task.protocol
    reach = task.guarantee.distance
    assert isinstance(query, UserQuery)  # noqa: S101 - for the type checker
    size = query.people.size
    points = np.unique(np.linspace(0, size - 1, min(size, SOME_POINTS)).astype(np.int64))
    distances = query.people.between(points, points)
    if isinstance(protocol, NoisyAnswers):
        table = protocol.features.coordinates(query).table[points]
        if isinstance(protocol.noise, KNormNoise):
            table = table @ protocol.noise.polytope.matrix.T
        order = {"l1": 1, "linf": np.inf, "k-norm": np.inf}.get(protocol.noise.noise, 2)
        moved = np.linalg.norm(table[:, None, :] - table[None, :, :], ord=order, axis=2)
    else:
        moved = distances
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(
            distances > 0.0, np.minimum(1.0, reach * (1.0 + DISTANCE_TOLERANCE) / distances), 0.0
        )
    whole = np.where(share >= 1.0, moved, -1.0)  # pairs of points between which all items may move
    pairs = []
    for table in (moved * share, whole):
        a, b = np.unravel_index(int(np.argmax(table)), table.shape)
        if table[a, b] > 0.0:
            items = query.people.items or (
                1 if share[a, b] >= 1.0 else max(SEVERAL_ITEMS, math.ceil(2.0 / share[a, b]))
            )
            count = math.floor(items * share[a, b] * (1.0 + DISTANCE_TOLERANCE))
            x, y = (value_of(query, int(points[index])) for index in (a, b))
            pairs.append(([x] * items, [y] * count + [x] * (items - count)))
    return [pair for place, pair in enumerate(pairs) if pair not in pairs[:place]]


# The others


def _data_sets(task: Task, first: object, second: object, people: int) -> list[Neighbours]:
    """A few data sets in which all other people hold the same value.

    Mixtures hide more, because 1/K is convex in a law K.
    """
    query = task.query
    protocol = task.protocol
    codes = _cells(task)
    if isinstance(protocol, Frequencies):
        laws = np.stack([law_of(task, _held_items(task, code)) for code in codes])
        scores = information(law_of(task, first), law_of(task, second), laws)
        alike = [_held_items(task, codes[int(np.argmax(scores))]), first]
    elif isinstance(protocol, Sums) and isinstance(protocol.randomizers[0], CountResponse):
        alike = [_held_items(task, codes[0]), _held_items(task, codes[len(codes) // 2])]
    else:
        alike = [_held_items(task, codes[0])]  # noise is the same whatever the others hold
    values_by_words = {words_of(query, value): value for value in alike}
    return [
        Neighbours(first, second, [value] * people, f"everybody else holds {words}")
        for words, value in values_by_words.items()
    ]


def _cells(task: Task) -> list[Any]:
    """Some values, by their codes; all of them if they are few."""
    query = task.query
    if isinstance(query, UserQuery):
        size = query.people.size
    elif isinstance(query, CellQuery):
        size = query.cells
    elif isinstance(query, ByGroup):
        size = len(query.groups.labels) * (query.top + 1)
    else:
        inputs = query.inputs([query.values_in.extremes()[-1]], task.protocol.step).numbers
        size = int(inputs[0, 0]) + 1
    return [
        int(code)
        for code in np.unique(np.linspace(0, size - 1, min(size, SOME_POINTS)).astype(np.int64))
    ]


def _held_items(task: Task, code: int) -> Any:
    """Value, or the required number of equal items, of a person who holds only one code."""
    query = task.query
    value = value_of(query, code, task.protocol.step)
    return [value] * (query.people.items or 1) if isinstance(query, UserQuery) else value


def value_of(query: Query, code: int, step: float = 1.0) -> Any:
    """Value of a code.

    On a grid a cell, (column, row); for places, one place for all codes, since the noise hides all
    alike.
    """
    domain = query.values_in
    if isinstance(domain, Categories):
        return domain.labels[code]
    if isinstance(domain, Zones):
        return domain.ids[code]
    if isinstance(domain, ZonePairs):
        return domain.names(code)
    if isinstance(query, ByGroup):
        return query.pair(code)
    if isinstance(domain, Grid):
        return (code % domain.width, code // domain.width)
    if isinstance(domain, Places):
        return (domain.south, domain.west)
    if not isinstance(domain, Integers | Interval):
        raise InputError(f"give the two inputs: none are known by themselves for {domain}.")
    width = (
        query.step
        if isinstance(query, CellQuery)
        else 1.0
        if isinstance(query, UserQuery)
        else step
    )
    value = min(domain.low + code * width, domain.high)
    return int(value) if isinstance(domain, Integers) else float(value)


def law_of(task: Task, value: object) -> Floats:
    """Law of a report of a value; with several items, of one item taken at random."""
    protocol = task.protocol
    assert isinstance(protocol, Frequencies)  # noqa: S101 - for the type checker
    codes, counts = np.unique(
        task.query.inputs([value], protocol.step).numbers[:, 0], return_counts=True
    )
    return np.asarray(
        sum(
            count * protocol.randomizer.law(int(code))
            for code, count in zip(codes, counts, strict=True)
        )
        / counts.sum()
    )


def words_of(query: Query, value: Any) -> str:
    """Describe a value or a user's items."""
    if isinstance(query, UserQuery):
        kinds = dict.fromkeys(map(str, value))
        item_texts = [f"{sum(str(item) == kind for item in value)} x {kind}" for kind in kinds]
        return f"[{', '.join(item_texts[:MAX_WORDS])}{', ...' * (len(item_texts) > MAX_WORDS)}]"
    domain = query.values_in
    if isinstance(domain, Grid):
        return f"cell ({value[0]}, {value[1]})"
    if isinstance(domain, Places):
        return f"({float(value[0]):.6f}, {float(value[1]):.6f})"
    if isinstance(query, ByGroup):
        return f"({value[0]}, {format_number(float(value[1]))} {query.unit}".rstrip() + ")"
    if isinstance(domain, ZonePairs):
        return f"{value[0]} to {value[1]}"
    unit = "" if isinstance(domain, Categories | Zones) or not query.unit else f" {query.unit}"
    return f"{value if isinstance(value, str) else format_number(float(value))}{unit}"
