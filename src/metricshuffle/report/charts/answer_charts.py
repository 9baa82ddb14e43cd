"""Charts of a release's answer, with intervals where the answer has them.

The answer is drawn as bars, steps, a map, a place or a number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from metricshuffle.numerics.rounding import format_number
from metricshuffle.numerics.types import Floats, Mask
from metricshuffle.queries import Answer, Query, UserQuery
from metricshuffle.queries.cell_table import label_of
from metricshuffle.queries.result_table import Table
from metricshuffle.report.charts.chart import Chart
from metricshuffle.report.charts.flow_maps import MAX_FLOWS_DRAWN, flows_map, largest_flows
from metricshuffle.report.charts.interval_charts import (
    MAX_BARS,
    NARROW,
    WIDE,
    NamedInterval,
    bars_chart,
    number_chart,
    percent,
    steps_chart,
)
from metricshuffle.report.charts.map_layers import Background
from metricshuffle.report.charts.release_maps import cells_map, place_map, place_on_map
from metricshuffle.report.charts.vega import Spec
from metricshuffle.report.charts.zone_maps import zones_map
from metricshuffle.spaces import (
    Categories,
    Circle,
    Grid,
    Integers,
    Metric,
    Places,
    Scaled,
    Threshold,
    ZonePairs,
    Zones,
)
from metricshuffle.spaces.earth_mover import LINES
from metricshuffle.tasks.release import Release, measured

DESCRIBED_ROWS = 3


def answer_chart(
    release: Release,
    level: float = 0.95,
    *,
    name: str = "answer",
    background: Background | None = None,
) -> Chart:
    """Return the chart of the answer; `background` is for places on a map only."""
    answer = release.query.answer(release.estimate, level)
    level_text = f"{100.0 * level:g} %"
    domain = release.query.values_in
    if isinstance(answer.value, Table):
        if not release.query.shared:
            return _means(release, answer, level_text, name)
        if isinstance(domain, Grid | Zones):
            return _cells(release, domain, answer, level_text, name, background)
        if isinstance(domain, ZonePairs):
            return _flows(release, domain, answer, level, name, background)
        return (
            _steps(release, answer, level, name)
            if is_on_a_line(release.query)
            else _labels(release, answer, level_text, name)
        )
    if isinstance(answer.value, tuple):
        return _place(release, domain, answer, level_text, name, background)
    return _number(release, answer, level_text, name)


def is_on_a_line(query: Query) -> bool:
    """Whether the cells of a table of shares have an order along a line.

    Numbers may also name the points of a tree, which have no such order.
    """
    domain = query.values_in
    if isinstance(domain, Categories | Grid | Zones | ZonePairs):
        return False
    return _ordered(query.people.items_in.metric) if isinstance(query, UserQuery) else True


def _ordered(metric: Metric) -> bool:
    return (
        _ordered(metric.metric)
        if isinstance(metric, Scaled | Threshold)
        else isinstance(metric, (*LINES, Circle))
    )


def zero_inside(interval: Floats) -> Mask:
    """Mask of the rows of (low, high) that contain zero."""
    return np.asarray((interval[:, 0] <= 0.0) & (interval[:, 1] >= 0.0), dtype=np.bool_)


def share_label(release: Release) -> str:
    """Name of what a share is a fraction of."""
    return (
        "share of a person's items, on average"
        if release.query.items is not None
        else "share of the people"
    )


def _chart(draw: Callable[[bool], Spec], name: str, title: str, words: str) -> Chart:
    return Chart(draw(False), name, title, words, draw(True))


def _cells(
    release: Release,
    domain: Grid | Zones,
    answer: Answer,
    level: str,
    name: str,
    background: Background | None,
) -> Chart:
    shares = np.asarray(_table(answer)["share"])
    holding = None if answer.interval is None else zero_inside(_rows(answer))
    of = "share of items" if release.query.items is not None else "share of people"

    def draw(narrow: bool) -> Spec:
        if isinstance(domain, Zones):
            return zones_map(domain, shares, holding, level, of, background, narrow=narrow)
        return cells_map(domain, shares, holding, level, of, background, narrow=narrow)

    largest = int(np.argmax(shares))
    interval_text = (
        "Shares are smoothed and have no interval."
        if holding is None
        else (f"In {np.count_nonzero(~holding):,} of them the {level} interval lies above zero.")
    )
    many = (
        f"{len(shares):,} zones"
        if isinstance(domain, Zones)
        else f"{len(shares):,} cells of {format_number(domain.cell)} {domain.unit}".rstrip()
    )
    place = (
        f"in {domain.ids[largest]}"
        if isinstance(domain, Zones)
        else f"at {_middle(domain, largest)}"
    )
    words = (
        f"{many}, north is up. {interval_text} The largest share, "
        f"{_share(answer, largest)}{_between(answer, largest, level)}, is {place}."
    )
    return _chart(draw, name, f"Map: {share_label(release)}", words)


def _flows(
    release: Release,
    domain: ZonePairs,
    answer: Answer,
    level: float,
    name: str,
    background: Background | None,
) -> Chart:
    """Map of flows: those between blocks with their intervals, if there are blocks."""
    zones = domain.zones
    level_text = f"{100.0 * level:g} %"
    table = _table(answer)
    shares = np.asarray(table["share"])
    interval = None if answer.interval is None else _rows(answer)
    places = zones.degrees[:, ::-1]
    names = zones.ids
    parts = "zones"
    if zones.blocks is not None and answer.nearby is not None:
        flows = release.blocks(level)
        names = tuple(sorted(set(zones.blocks)))
        shares = np.asarray(flows["share"])
        interval = np.asarray(flows[f"interval_{100.0 * level:g}"])
        codes = zones.block_codes
        places = np.stack([places[codes == code].mean(axis=0) for code in range(len(names))])
        parts = "blocks"
    holding = None if interval is None else zero_inside(interval)

    def draw(narrow: bool) -> Spec:
        return flows_map(
            zones, places, shares, holding, level_text, "share of trips", background, narrow=narrow
        )

    start, end = divmod(int(np.argmax(shares)), len(names))
    drawn = int(np.count_nonzero(largest_flows(shares)))
    interval_text = (
        "Shares are smoothed and have no interval."
        if holding is None
        else f"For {np.count_nonzero(~holding):,} the {level_text} interval lies above zero."
    )
    limit = f"the {MAX_FLOWS_DRAWN} largest" if drawn == MAX_FLOWS_DRAWN else f"{drawn:,}"
    words = (
        f"{len(shares):,} flows between {parts}, of which {limit} are drawn; lines narrow from "
        f"start to end, discs are trips that end where they start, north is up. {interval_text} "
        f"The largest share, {100.0 * float(shares.max()):.3g} %, goes from {names[start]} to "
        f"{names[end]}."
    )
    return _chart(draw, name, "Map: share of the trips", words)


def _middle(grid: Grid, code: int) -> str:
    """The centre of a cell, in words."""
    cell = grid.all_values()[code : code + 1]
    if grid.box is None:
        east, north = grid.centres(cell)[0].tolist()
        return (
            f"{format_number(east)} {grid.unit} east and {format_number(north)} {grid.unit} "
            "north of the corner"
        ).replace("  ", " ")
    latitude, longitude = (float(part[0]) for part in grid.places(cell))
    return f"latitude {latitude:.4f} and longitude {longitude:.4f}"


def _steps(release: Release, answer: Answer, level: float, name: str) -> Chart:
    table = _table(answer)
    domain = release.query.values_in
    low, high = (np.asarray(table[side], dtype=np.float64) for side in ("low", "high"))
    half = 0.5 if isinstance(domain, Integers) else 0.0
    edges = np.append(low - half, high[-1] + half)
    unit = str(getattr(domain, "unit", ""))
    shares = np.asarray(table["share"])
    level_text = f"{100.0 * level:g} %"
    across = unit or "value"
    each = f"In each {'bin' if (low != high).any() else 'value'}"
    if answer.interval is not None:
        title = f"{each}, each with its {level_text} interval"
        interval = 100.0 * _rows(answer)
    elif answer.at_most is not None:
        title = f"{each}, smoothed; shaded: at most ({level_text})"
        interval = 100.0 * np.column_stack([np.zeros(len(shares)), answer.at_most])
    else:
        title = f"{each}, smoothed, without intervals"
        interval = 100.0 * np.column_stack([shares, shares])
    up_to = f"Up to there, all in the {level_text} band at once"

    def draw(narrow: bool) -> Spec:
        both = "cumulative" in table.columns
        width = NARROW if narrow else (WIDE - 90) // 2 if both else WIDE
        spec = steps_chart(title, edges, 100.0 * shares, interval, across, "share (%)", width)
        if not both:
            return spec
        band = 100.0 * np.array(table[f"cumulative_{100.0 * level:g}"], dtype=np.float64)
        sums = 100.0 * np.asarray(table["cumulative"])
        return {
            "vconcat" if narrow else "hconcat": [
                spec,
                steps_chart(up_to, edges, sums, band, across, "share up to there (%)", width),
            ],
            "spacing": 40,
        }

    return _chart(draw, name, f"Histogram: {share_label(release)}", _largest(answer, level_text))


def _labels(release: Release, answer: Answer, level: str, name: str) -> Chart:
    table = _table(answer)
    shares = np.asarray(table["share"])
    # Without intervals, only the bars are drawn.
    interval = np.column_stack([shares, shares]) if answer.interval is None else _rows(answer)
    order = np.argsort(-shares, kind="stable")
    shown_codes = order if len(order) <= MAX_BARS + 1 else order[:MAX_BARS]
    left = order[len(shown_codes) :]
    bars = [
        NamedInterval(
            label_of(table.columns, code),
            100.0 * float(shares[code]),
            100.0 * low,
            100.0 * high,
            _share(answer, code),
        )
        for code, (low, high) in zip(
            shown_codes.tolist(), interval[shown_codes].tolist(), strict=True
        )
    ]
    left_out = (
        f"and {len(left):,} more, together {percent(float(shares[left].sum()))}"
        if len(left)
        else ""
    )

    def draw(narrow: bool) -> Spec:
        return bars_chart(
            bars,
            f"{share_label(release)} (%)",
            left_out,
            level="" if answer.interval is None else level,
            narrow=narrow,
        )

    return _chart(draw, name, f"Histogram: {share_label(release)}", _largest(answer, level))


def _means(release: Release, answer: Answer, level: str, name: str) -> Chart:
    table = _table(answer)
    query = release.query
    times = 100.0 if query.in_percent else 1.0
    interval = times * _rows(answer)
    key = next(name for name in ("share", "value", "mean") if name in table.columns)
    values = times * np.asarray(table[key], dtype=np.float64)
    unit = "%" if query.in_percent else str(query.unit)
    rows = [
        NamedInterval(str(label), value, low, high, format_number(value))
        for label, value, (low, high) in zip(
            table["label"], values.tolist(), interval.tolist(), strict=True
        )
    ]
    left_out = (
        f"and {len(rows) - MAX_BARS:,} more, which the table holds"
        if len(rows) > MAX_BARS + 1
        else ""
    )
    shown_rows = rows[:MAX_BARS] if left_out else rows
    words = "; ".join(
        f"{row.name} {row.written} ({format_number(row.low)} to {format_number(row.high)})"
        for row in rows[:DESCRIBED_ROWS]
    )

    def draw(narrow: bool) -> Spec:
        across = f"{query.row_name} ({unit})" if unit else query.row_name
        return bars_chart(shown_rows, across, left_out, level=level, narrow=narrow)

    return _chart(
        draw,
        name,
        f"{query.row_name.capitalize()}s with their intervals",
        f"{len(rows):,} {query.row_name}s with their {level} intervals: {words}.",
    )


def _place(
    release: Release,
    domain: Grid | Places,
    answer: Answer,
    level: str,
    name: str,
    background: Background | None,
) -> Chart:
    plane = answer.plane or answer
    if isinstance(domain, Places):
        domain, plane = place_on_map(domain, answer)
    east, north = (float(part) for part in _pair(plane.value))
    sides = [
        (float(low), float(high))
        for low, high in np.asarray(plane.interval, dtype=np.float64).tolist()
    ]

    def draw(narrow: bool) -> Spec:
        return place_map(domain, (east, north), sides, level, background, narrow=narrow)

    interval = measured(answer.interval, release.decimals)
    unit = (
        "degrees (latitude, longitude)"
        if answer.plane is not None
        else f"{release.query.unit or 'units'} (east, north)"
    )
    words = (
        f"{measured(answer.value, release.decimals)} {unit}, {level} interval {interval} for "
        "both at once. North is up."
    )
    return _chart(draw, name, f"The {release.query.title} with its interval", words)


def _number(release: Release, answer: Answer, level: str, name: str) -> Chart:
    query = release.query
    low, high = _range(query)
    items = query.items if query.title == "user-total" and isinstance(query.items, int) else 1
    times = release.reports if query.kind == "sum" else items
    value, (interval_low, interval_high) = (
        float(_number_of(answer.value)),
        (float(end) for end in _pair(answer.interval)),
    )
    unit = f" {query.unit}" if query.unit else ""
    written = f"{measured(value, release.decimals)}{unit}"
    named = NamedInterval(query.title, value, interval_low, interval_high, written)
    across = f"{query.title} ({query.unit})" if query.unit else query.title

    def draw(narrow: bool) -> Spec:
        return number_chart(named, (low * times, high * times), across, level, narrow=narrow)

    ends = measured((interval_low, interval_high), release.decimals)
    words = (
        f"{written}, {level} interval {ends}, on the range from {format_number(low * times)} "
        f"to {format_number(high * times)}{unit}."
    )
    return _chart(draw, name, f"The {query.title} with its interval", words)


def _range(query: Any) -> tuple[float, float]:
    domain = query.values_in
    return float(domain.low), float(domain.high)


def _largest(answer: Answer, level: str) -> str:
    table = _table(answer)
    shares = np.asarray(table["share"])
    order = np.argsort(-shares, kind="stable")[:DESCRIBED_ROWS]
    largest_text = "; ".join(
        f"{label_of(table.columns, code)}: {_share(answer, code)}{_between(answer, code, level)}"
        for code in order.tolist()
    )
    each = (
        "smoothed shares without intervals"
        if answer.interval is None
        else f"shares with their {level} intervals"
    )
    return f"{len(shares):,} {each}. The largest: {largest_text}."


def _between(answer: Answer, row: int, level: str) -> str:
    """The interval of a share, or its upper bound, in brackets."""
    if answer.interval is None:
        return (
            ""
            if answer.at_most is None
            else f" (at most {percent(float(answer.at_most[row]))}, {level})"
        )
    (low, high), error = _rows(answer)[row].tolist(), largest_error(answer.standard_error)
    return f" ({percent(low, error)} to {percent(high, error)})"


def _share(answer: Answer, row: int) -> str:
    return percent(float(_table(answer)["share"][row]), largest_error(answer.standard_error))


def largest_error(errors: object) -> float:
    """Largest standard error, which sets the decimals of all shares of a table; 0 without any."""
    return 0.0 if errors is None else float(np.max(np.asarray(errors, dtype=np.float64)))


def _table(answer: Answer) -> Table:
    if not isinstance(answer.value, Table):
        raise TypeError("this answer is not a table")
    return answer.value


def _rows(answer: Answer) -> Floats:
    return np.asarray(answer.interval, dtype=np.float64)


def _pair(value: object) -> tuple[float, float]:
    first, second = np.asarray(value, dtype=np.float64).tolist()
    return first, second


def _number_of(value: Any) -> float:
    return float(value)
