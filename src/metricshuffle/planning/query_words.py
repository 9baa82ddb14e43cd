"""Conversion between queries, the options that describe them, and the code that makes them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np

from metricshuffle.display import nearest_word
from metricshuffle.errors import InputError, argument, require
from metricshuffle.models import FrozenModel
from metricshuffle.planning.item_tables import (
    FILE_OPTIONS,
    POSITIONS_FILE,
    above_of,
    item_files,
)
from metricshuffle.queries import (
    ByGroup,
    Centroid,
    Flows,
    Histogram,
    KeyValues,
    Mean,
    Means,
    Quantiles,
    Sets,
    ShareAbove,
    Spread,
    Sum,
    UserHistogram,
    UserLinearQuery,
)
from metricshuffle.queries.cell_query import CellQuery
from metricshuffle.queries.line_query import LineQuery
from metricshuffle.queries.record_query import RecordQuery
from metricshuffle.queries.user_queries import UserQuery
from metricshuffle.spaces import (
    Box,
    Categories,
    Domain,
    GreatCircle,
    Grid,
    Integers,
    Interval,
    Metric,
    NestedSquares,
    Places,
    Space,
    Users,
    ZonePairs,
    Zones,
    nested_squares,
    nested_squares_on_map,
    users_of,
)
from metricshuffle.spaces.cell_systems import s2_cells_in
from metricshuffle.spaces.space import default_metric
from metricshuffle.spaces.zones import MAX_ZONES

if TYPE_CHECKING:
    from metricshuffle.queries.query import Query

CENTRES_IN_DEGREE = 10**5
"""Corners of a box around centres of cells are multiples of 1/100,000 degree, about a metre."""
NUMBERS = ("low", "high")
CELLS = ("width", "height", "cell", "box")
SQUARES = ("levels", "side")
# Options that describe the possible values of each query; all take a unit as well.
OPTIONS_BY_QUERY: dict[str, tuple[str, ...]] = {
    "sum": NUMBERS,
    "mean": (*NUMBERS, "labels", "by"),
    "centroid": CELLS,
    "histogram": (*NUMBERS, "labels", "step"),
    "quantiles": (*NUMBERS, "step", "at", "edges"),
    "spread": (*NUMBERS, "step"),
    "share-above": (*NUMBERS, "step", "at", "fade"),
    "map": CELLS,
    "zones": ("zones", "h3", "s2_level", "box"),
    "flows": ("zones", "h3", "s2_level", "box"),
    "user-histogram": (*NUMBERS, "labels", *CELLS, *SQUARES, "distances", "items"),
    "user-mean": (*NUMBERS, *CELLS, *SQUARES, "items"),
    "user-total": (*NUMBERS, "items"),
    "user-share-above": (*NUMBERS, "items", "at", "fade"),
    "means": (*NUMBERS, "column"),
    "sets": ("labels", "size"),
    "key-values": (*NUMBERS, "labels", "size"),
    "user-linear": (*NUMBERS, "labels", *CELLS, *SQUARES, "distances", "items", "table"),
}
QUERIES = tuple(OPTIONS_BY_QUERY)
RECORDS = ("means", "sets", "key-values")
"""Queries on people who each have a row of numbers, a set, or keys with numbers."""
ON_BINS = ("histogram", "quantiles", "spread", "share-above")
"""Queries that count numbers in bins of a step."""


@dataclass(frozen=True)
class QueryWords:
    """Description of the possible values, from options or form fields.

    Bounds without decimals mean whole numbers.
    """

    low: float | None = None
    high: float | None = None
    step: float | None = None
    unit: str | None = None
    labels: list[str] | None = None
    distances: Metric | None = None
    width: int | None = None
    height: int | None = None
    cell: float | None = None
    box: tuple[float, float, float, float] | None = None
    levels: int | None = None
    side: float | None = None
    items: int | None = None
    table: Callable[[Users], UserLinearQuery] | None = None
    """Makes the query from the users, if it asks for a function of their items."""
    zones: Zones | None = None
    h3: int | None = None
    s2_level: int | None = None
    at: tuple[float, ...] | None = None
    edges: tuple[float, ...] | None = None
    fade: float | None = None
    by: str | None = None
    column: tuple[str, ...] | None = None
    size: int | None = None

    def query(self, kind: str, *, granularity: float | None = None) -> Query:
        """Build the query of this kind; raises for options that belong to another kind."""
        if kind not in QUERIES:
            raise InputError(
                f"{argument('query')} must be one of {', '.join(QUERIES)}, got {kind!r}."
                f"{nearest_word(kind, QUERIES)}"
            )
        names = [field.name for field in fields(self) if field.name != "unit"]
        foreign = [name for name in self._named(*names) if name not in OPTIONS_BY_QUERY[kind]]
        if foreign:
            raise InputError(
                f"{argument(foreign[0])} does not belong to {argument('query', kind)}; "
                "leave it out or ask for another query."
            )
        if self.by is not None or (kind == "mean" and self.labels is not None):
            return self._by_group(kind, granularity)
        if kind in ("sum", "mean"):
            numbers = self._numbers(kind, granularity)
            return Sum(numbers) if kind == "sum" else Mean(numbers)
        if kind == "centroid":
            return Centroid(self._grid(kind) if self.box is None else self._places(self.box))
        if kind == "map":
            return Histogram(self._grid(kind))
        if kind == "histogram":
            return self._histogram()
        if kind == "zones":
            return Histogram(self._zones(kind))
        if kind == "flows":
            return Flows(self._zones(kind))
        if kind in ON_BINS:
            return self._line_query(kind)
        if kind in RECORDS:
            return self._record_query(kind, granularity)
        if self.items is not None and self.items < 1:
            raise InputError(
                f"{argument('items')} must be a whole number >= 1, got {self.items}; a "
                "file cannot contain a user without items."
            )
        people = users_of(self._items_space(kind), self.items)
        if kind == "user-histogram":
            return UserHistogram(people)
        if kind == "user-mean":
            return UserLinearQuery.average(people)
        if kind == "user-total":
            return UserLinearQuery.total(people)
        if kind == "user-share-above":
            if self.at is None:
                raise InputError(
                    f"{argument('query', kind)} needs {argument('at')}, the thresholds.", field="at"
                )
            return UserLinearQuery.share_above(people, self.at, self.fade)
        if self.table is None:
            raise InputError(
                f"{argument('query', kind)} needs {argument('table')} FILE, with numbers for each "
                f"point, or {argument('regions')} FILE and {argument('fade')}, or "
                f"{argument('distance_to')} LABELS."
            )
        return self.table(people)

    def _named(self, *names: str) -> list[str]:
        return [name for name in names if getattr(self, name) is not None]

    def _ends(self, kind: str) -> tuple[float, float]:
        if self.low is None or self.high is None:
            name = "low" if self.low is None else "high"
            raise InputError(
                f"{argument('query', kind)} needs {argument('low')} and {argument('high')}, "
                f"the range that values lie in; {argument(name)} is missing.",
                field=name,
            )
        return self.low, self.high

    def _numbers(self, kind: str, granularity: float | None) -> Integers | Interval:
        low, high = self._ends(kind)
        # Whole numbers need no granularity below 1, so real numbers were meant.
        is_finer = granularity is not None and 0.0 < granularity < 1.0
        if isinstance(low, int) and isinstance(high, int) and not is_finer:
            return Integers(low, high, self.unit or "")
        if granularity is None and kind not in (*ON_BINS, "means"):
            raise InputError(
                f"{argument('low')} {low!r} and {argument('high')} {high!r} have decimals, "
                "so values are "
                f"real numbers, and real numbers need {argument('granularity')}, the step "
                "they are rounded "
                "to; write bounds without decimals for whole numbers.",
                field="granularity",
            )
        return Interval(low, high, self.unit or "")

    def _by_group(self, kind: str, granularity: float | None) -> Query:
        if self.labels is None or self.by is None:
            missing = "labels" if self.labels is None else "by"
            raise InputError(
                f"means by group need {argument('by')} NAME, what the groups are, and "
                f"{argument('labels')} a,b,c, which there are; {argument(missing)} is missing.",
                field=missing,
            )
        numbers = self._numbers(kind, granularity)
        step = granularity if isinstance(numbers, Interval) or granularity != 1.0 else None
        return ByGroup(Categories(self.labels), Mean(numbers), self.by, step)

    def _histogram(self) -> Query:
        if self.labels is not None:
            if self._named(*NUMBERS, "step"):
                raise InputError(
                    f"give either labels or {argument('low')} and {argument('high')}: a "
                    "value is a word or a number."
                )
            return Histogram(Categories(self.labels))
        if not self._named(*NUMBERS):
            raise InputError(
                f"{argument('query', 'histogram')} needs {argument('labels')} a,b,c, "
                f"{argument('labels_from')} FILE {argument('column')} NAME, "
                f"or {argument('low')} and {argument('high')}."
            )
        return Histogram(self._binned_numbers("histogram"), self.step)

    def _binned_numbers(self, kind: str) -> Integers | Interval:
        numbers = self._numbers(kind, None)
        if self.step is None and isinstance(numbers, Interval):
            raise InputError(
                f"{argument('query', kind)} of real numbers needs {argument('step')}, the width of "
                "its bins."
            )
        return numbers

    def _line_query(self, kind: str) -> LineQuery:
        numbers = self._binned_numbers(kind)
        if kind == "spread":
            return Spread(numbers, self.step)
        if kind == "quantiles":
            at = (0.5,) if self.at is None else self.at
            return Quantiles(numbers, at, self.edges, self.step)
        if self.at is None:
            raise InputError(
                f"{argument('query', kind)} needs {argument('at')}, the thresholds.", field="at"
            )
        return ShareAbove(numbers, self.at, self.fade, self.step)

    def _record_query(self, kind: str, granularity: float | None) -> RecordQuery:
        needed = ("column",) if kind == "means" else ("labels", "size")
        missing = next((name for name in needed if getattr(self, name) is None), None)
        if missing is not None:
            what = {
                "column": "NAME for each of the columns",
                "labels": "a,b,c, which there are",
                "size": "K, the most that one person holds",
            }
            raise InputError(
                f"{argument('query', kind)} needs {argument(missing)} {what[missing]}.",
                field=missing,
            )
        labels, size = Categories(self.labels or ()) if self.labels else None, self.size or 0
        if kind == "sets" and labels is not None:
            return Sets(labels, size)
        numbers = self._numbers(kind, granularity)
        step = granularity if isinstance(numbers, Interval) or granularity != 1.0 else None
        if labels is not None:
            return KeyValues(labels, numbers, size, step)
        return Means(self.column, numbers, step)

    def _zones(self, kind: str) -> Zones:
        named = self._named("zones", "h3", "s2_level")
        if len(named) != 1 or (self.zones is None) != (self.box is not None):
            raise InputError(
                f"{argument('query', kind)} needs {argument('zones')} FILE and "
                f"{argument('zone_column')} NAME, or {argument('h3')} with a resolution "
                f"or {argument('s2_level')} with a level, and {argument('box')} with four "
                "numbers in degrees."
            )
        if self.zones is not None:
            return self.zones
        assert self.box is not None  # noqa: S101 - checked above
        if self.s2_level is not None:
            return _s2_zones(self.s2_level, self.box, self.unit or "m")
        assert self.h3 is not None  # noqa: S101 - checked above
        return Zones.h3_box(self.h3, self.box, unit=self.unit or "m")

    def _grid(self, kind: str) -> Grid:
        if self.cell is None:
            raise InputError(
                f"{argument('query', kind)} needs {argument('cell')}, the side of a grid cell."
            )
        if self.box is not None:
            self._check_no_sides("the box decides how many cells there are")
            return Grid.from_box(*self.box, self.cell, self.unit or "m")
        if self.width is None or self.height is None:
            raise InputError(
                f"{argument('query', kind)} needs {argument('width')} and "
                f"{argument('height')} in cells, "
                f"or {argument('box')} with four numbers in degrees."
            )
        return Grid(self.width, self.height, self.cell, self.unit or "")

    def _check_no_sides(self, why: str) -> None:
        if self.width is not None or self.height is not None:
            raise InputError(
                f"give either {argument('box')} or {argument('width')} and "
                f"{argument('height')}, and not both; {why}."
            )

    def rounded_to(self, kind: str, granularity: float | None) -> float | None:
        """Unit that values are rounded to, if given; for places in a box it is the cell.

        Means by group and queries on records have it as part of the query.
        """
        if self.by is not None or kind in RECORDS:
            return None
        if kind != "centroid" or self.box is None or self.cell is None:
            return granularity
        if granularity is not None:
            raise InputError(
                f"give either {argument('cell')} or {argument('granularity')}: both are "
                "the largest unit "
                "that places are rounded to, and none is needed."
            )
        if not 0.0 < self.cell < math.inf:
            raise InputError(f"{argument('cell')} must be a number > 0, got {self.cell!r}.")
        return self.cell

    def _places(self, box: tuple[float, float, float, float]) -> Places:
        self._check_no_sides("places in a box are not counted by cells")
        return Places(*box, self.unit or "m")

    def _items_space(self, kind: str) -> Space:
        """Space of one item of a user, with its metric."""
        self._check_one_kind_of_item()
        unit = self.unit or ""
        if self.labels is not None:
            if isinstance(self.distances, GreatCircle):
                unit = self.distances.unit
            return Space(Categories(self.labels), self.distances, unit=unit)
        if self.cell is not None:
            return Space(self._grid(kind))
        if self.levels is None:
            low, high = self._ends(kind)
            if not (isinstance(low, int) and isinstance(high, int)):
                raise InputError(
                    f"{argument('low')} and {argument('high')} must be whole numbers for items, "
                    f"got {low!r} and {high!r}; round items to a step."
                )
            return Space(Integers(low, high, unit))
        if self.side is not None:
            return nested_squares(self.levels, self.side, unit)
        assert self.box is not None  # noqa: S101 - one of the two is given
        return nested_squares_on_map(self.levels, Box(*self.box), self.unit or "m")

    def _check_one_kind_of_item(self) -> None:
        kinds = [
            bool(self._named(*NUMBERS)),
            *(bool(self._named(name)) for name in ("labels", "levels", "cell")),
        ]
        if sum(kinds) > 1:
            raise InputError(
                f"give only one of {argument('low')}/{argument('high')}, {argument('labels')}, "
                f"{argument('cell')} and {argument('levels')}: an item is a number, a word "
                "or a place."
            )
        if sum(kinds) == 0:
            raise InputError(
                f"say what an item is: {argument('low')} and {argument('high')} for whole numbers, "
                f"{argument('labels')} for words, {argument('cell')} for places on a grid, "
                f"or {argument('levels')} for places in nested squares."
            )
        if self.distances is not None and self.labels is None:
            raise InputError(
                f"{argument('distances')} is the table of distances of "
                f"{argument('labels')}; give both."
            )
        allowed: tuple[str, ...] = ("width", "height", "box") if self.cell is not None else ()
        allowed = ("side", "box") if self.levels is not None else allowed
        for name in self._named("width", "height", "box", "side"):
            if name not in allowed:
                both = f"{argument('cell')} or {argument('levels')}"
                place = {"side": argument("levels"), "box": both}.get(name, argument("cell"))
                raise InputError(
                    f"{argument(name)} belongs to {place}, places of items; leave it out, "
                    "or say that items are places."
                )
        if self.levels is not None and (self.side is None) == (self.box is None):
            raise InputError(
                f"{argument('levels')} needs {argument('box')} SOUTH WEST NORTH EAST, in "
                "degrees, or "
                f"{argument('side')} for points in 0..SIDE x 0..SIDE: a public area that "
                "is not taken "
                "from the data."
            )


Options = dict[str, object]


def number_text(value: object) -> str:
    """Format a number in as few digits as identify it."""
    is_short = isinstance(value, float) and float(f"{value:g}") == value
    return f"{value:g}" if is_short else repr(value)


def query_options(query: Query) -> Options:
    """Return the options of `metricshuffle plan` that describe a query."""
    if isinstance(query, UserQuery):
        kind = query.title
        space = query.people.items_in
        files = item_files(query)
        options = {} if POSITIONS_FILE in files else _domain_options(space.domain, space.metric)
        if files:
            options |= {name: file for name, file in FILE_OPTIONS.items() if file in files}
        elif isinstance(query, UserLinearQuery) and (above := above_of(query)) is not None:
            kind = "user-share-above"
            options |= {"at": ",".join(map(number_text, above.at)), "fade": above.fade}
        return {"query": kind, **options, "unit": space.unit or None, "items": query.people.items}
    if isinstance(query, ByGroup):
        options = _domain_options(query.groups) | _domain_options(query.numbers)
        granularity = None if isinstance(query.numbers, Integers) else query.step
        return {"query": "mean", "by": query.by, **options, "granularity": granularity}
    if isinstance(query, RecordQuery):
        return {"query": query.kind, **_record_options(query)}
    domain = query.values_in
    kind = query.title if isinstance(query, Histogram) else query.kind
    step = (
        query.step
        if isinstance(query, CellQuery) and isinstance(domain, Integers | Interval)
        else None
    )
    listed = {
        name: ",".join(number_text(number) for number in getattr(query, name))
        for name in ("at", "edges")
        if getattr(query, name, None) is not None
    }
    fade = {"fade": query.fade} if isinstance(query, ShareAbove) else {}
    return {"query": kind, **_domain_options(domain), "step": step, **listed, **fade}


def _record_options(query: RecordQuery) -> Options:
    """Options that describe people's records."""
    if isinstance(query, Sets):
        return {**_domain_options(query.labels), "size": query.size}
    if isinstance(query, Means):
        plain = query == Means(query.columns, query.domain)
        step = None if plain else query.step
        return {"column": query.columns, **_domain_options(query.domain), "granularity": step}
    if not isinstance(query, KeyValues):
        raise InputError(f"a {query.kind} cannot be described by options.")
    step = None if isinstance(query.domain, Integers) else query.step
    options = {**_domain_options(query.keys), **_domain_options(query.domain)}
    return {**options, "size": query.size, "granularity": step}


def _domain_options(domain: object, metric: object = None) -> Options:
    """Options that describe the domain and its metric."""
    is_usual = metric is None or (isinstance(domain, Domain) and metric == default_metric(domain))
    if not is_usual and not isinstance(metric, NestedSquares):
        raise InputError(f"{domain} with a custom metric cannot be described by options.")
    if isinstance(domain, Integers | Interval):
        return {"low": repr(domain.low), "high": repr(domain.high), "unit": domain.unit or None}
    if isinstance(domain, Categories) and not any("," in label for label in domain.labels):
        return {"labels": ",".join(domain.labels)}
    if isinstance(domain, Places):
        return {"box": (domain.south, domain.west, domain.north, domain.east), "unit": domain.unit}
    zones = domain.zones if isinstance(domain, ZonePairs) else domain
    if isinstance(zones, Zones) and zones.cells:
        return _cell_options(zones)
    if not isinstance(domain, Grid):
        raise InputError(f"{domain} cannot be described by options.")
    box = domain.box
    options: Options = {"unit": domain.unit or None}
    if box is not None:
        options["box"] = (box.south, box.west, box.north, box.east)
    if isinstance(metric, NestedSquares):
        options["levels"] = metric.levels
        return options if box is not None else {**options, "side": metric.cell * 2.0**metric.levels}
    sides = {"width": domain.width, "height": domain.height} if box is None else {}
    return {**options, **sides, "cell": domain.cell}


def _s2_zones(level: int, box: tuple[float, float, float, float], unit: str) -> Zones:
    """Cells of S2 whose centres lie in a box."""
    return Zones.s2(s2_cells_in(level, Box(*box), MAX_ZONES), unit=unit)


def _cell_options(zones: Zones) -> Options:
    """Options for all cells of H3 or S2 in the box around their centres; raises for others."""
    south, west = np.floor(zones.degrees.min(axis=0) * CENTRES_IN_DEGREE) / CENTRES_IN_DEGREE
    north, east = np.ceil(zones.degrees.max(axis=0) * CENTRES_IN_DEGREE) / CENTRES_IN_DEGREE
    box = (float(south), float(west), float(north), float(east))
    if zones.cells == "h3":
        name, size = "h3", require("h3", "h3").get_resolution(zones.ids[0])
        same = Zones.h3_box(size, box, unit=zones.unit)
    else:
        name = "s2_level"
        size = require("s2sphere", "s2").CellId.from_token(zones.ids[0]).level()
        same = _s2_zones(size, box, zones.unit)
    if same != zones:
        raise InputError(f"{zones} cannot be described by options.")
    return {name: size, "box": box, "unit": zones.unit}


def python_code(value: object) -> str:
    """Return the expression for a query, target or part of one, with `metricshuffle` as `ms`."""
    if isinstance(value, UserLinearQuery) and value.averages_points:
        return f"ms.UserLinearQuery.average({python_code(value.people)})"
    if isinstance(value, UserLinearQuery) and value.totals_points:
        return f"ms.UserLinearQuery.total({python_code(value.people)})"
    if isinstance(value, UserLinearQuery) and (above := above_of(value)) is not None:
        people = python_code(value.people)
        return f"ms.UserLinearQuery.share_above({people}, {list(above.at)!r}, {above.fade!r})"
    if isinstance(value, Grid) and value.box is not None:
        box = value.box
        corners = f"{box.south!r}, {box.west!r}, {box.north!r}, {box.east!r}"
        return f"ms.Grid.from_box({corners}, {value.cell!r}, {value.unit!r})"
    if isinstance(value, np.ndarray):
        return repr(value.tolist())
    if isinstance(value, Flows):
        return f"ms.Flows({python_code(value.pairs.zones)})"
    if not isinstance(value, FrozenModel):
        return repr(list(value)) if isinstance(value, tuple) else repr(value)
    fields = {name: getattr(value, name) for name in type(value).model_fields if name != "kind"}
    if isinstance(value, ByGroup):
        del fields["label_distance"]  # follows from the target
    if isinstance(value, Space) and value.metric == default_metric(value.domain):
        del fields["metric"]
    explicit = {
        name: part
        for name, part in fields.items()
        if not (part is None or (isinstance(part, str) and part == ""))
    }
    arguments = ", ".join(f"{name}={python_code(part)}" for name, part in explicit.items())
    return f"ms.{type(value).__name__}({arguments})"
