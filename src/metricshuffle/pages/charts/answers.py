"""The picture of a release, whatever was asked: bars, steps, a map, a place, or a number, always with the interval."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from metricshuffle.numerics.rounding import plain
from metricshuffle.numerics.types import Floats, Mask
from metricshuffle.pages.charts.chart import Chart
from metricshuffle.pages.charts.intervals import MOST_BARS, NARROW, WIDE, Named, bars_chart, number_chart, percent, steps_chart
from metricshuffle.pages.charts.marks import Spec
from metricshuffle.pages.charts.place_maps import Background, cells_map, on_map, place_map
from metricshuffle.queries import Answer, UserQuery
from metricshuffle.queries.cells import label_of
from metricshuffle.queries.table import Table
from metricshuffle.spaces import Categories, Circle, Grid, Integers, Metric, Places, Scaled, Threshold
from metricshuffle.spaces.earth_mover import LINES
from metricshuffle.wire.release import Release, measured

LARGEST_TOLD = 3


def answer_chart(release: Release, level: float = 0.95, *, name: str = "answer", background: Background | None = None) -> Chart:
    """The answer with its intervals of that level; `background` is for places on a map only."""
    answer, told = release.query.answer(release.estimate, level), f"{100.0 * level:g} %"
    domain = release.query.values_in
    if isinstance(answer.value, Table):
        if not release.query.shared:
            return _means(release, answer, told, name)
        if isinstance(domain, Grid):
            return _cells(release, domain, answer, told, name, background)
        return _steps(release, answer, level, name) if on_a_line(release.query) else _labels(release, answer, told, name)
    if isinstance(answer.value, tuple):
        return _place(release, domain, answer, told, name, background)
    return _number(release, answer, told, name)


def on_a_line(query: Any) -> bool:
    """Whether the cells of a table of shares lie along a line, so that they have an order; numbers may also name points of a tree."""
    domain = query.values_in
    if isinstance(domain, Categories | Grid):
        return False
    return _ordered(query.people.items_in.metric) if isinstance(query, UserQuery) else True


def _ordered(metric: Metric) -> bool:
    return _ordered(metric.metric) if isinstance(metric, Scaled | Threshold) else isinstance(metric, (*LINES, Circle))


def zero_inside(interval: Floats) -> Mask:
    """Which rows of (low, high) hold zero."""
    return np.asarray((interval[:, 0] <= 0.0) & (interval[:, 1] >= 0.0), dtype=np.bool_)


def shared_of(release: Release) -> str:
    """What a share is a share of."""
    return "share of a person's items, on average" if release.query.items is not None else "share of the people"


def _chart(drawn: Callable[[bool], Spec], name: str, title: str, words: str) -> Chart:
    """For a page and for a telephone."""
    return Chart(drawn(False), name, title, words, drawn(True))


def _cells(release: Release, grid: Grid, answer: Answer, level: str, name: str, background: Background | None) -> Chart:
    shares, holding = np.asarray(_table(answer)["share"]), None if answer.interval is None else zero_inside(_rows(answer))
    of = "share of items" if release.query.items is not None else "share of people"

    def drawn(narrow: bool) -> Spec:
        return cells_map(grid, shares, holding, level, of, background, narrow=narrow)

    largest = int(np.argmax(shares))
    told = "Shares are smoothed and have no interval." if holding is None else (
        f"In {np.count_nonzero(~holding):,} of them the {level} interval lies above zero."
    )  # fmt: skip
    words = (
        f"{len(shares):,} cells of {plain(grid.cell)} {grid.unit}".rstrip()
        + f", north is up. {told} The largest share, {_share(answer, largest)}{_between(answer, largest, level)}, is at "
        f"{_middle(grid, largest)}."
    )
    return _chart(drawn, name, f"Map: {shared_of(release)}", words)


def _middle(grid: Grid, code: int) -> str:
    """Of a cell, in words."""
    cell = grid.all_values()[code : code + 1]
    if grid.box is None:
        east, north = grid.centres(cell)[0].tolist()
        return f"{plain(east)} {grid.unit} east and {plain(north)} {grid.unit} north of the corner".replace("  ", " ")
    latitude, longitude = (float(part[0]) for part in grid.places(cell))
    return f"latitude {latitude:.4f} and longitude {longitude:.4f}"


def _steps(release: Release, answer: Answer, level: float, name: str) -> Chart:
    table, domain = _table(answer), release.query.values_in
    low, high = (np.asarray(table[side], dtype=np.float64) for side in ("low", "high"))
    half = 0.5 if isinstance(domain, Integers) else 0.0
    edges = np.append(low - half, high[-1] + half)
    unit = str(getattr(domain, "unit", ""))
    shares, told = np.asarray(table["share"]), f"{100.0 * level:g} %"
    across, each = unit or "value", f"In each {'bin' if (low != high).any() else 'value'}"
    if answer.interval is not None:
        title, interval = f"{each}, each with its {told} interval", 100.0 * _rows(answer)
    elif answer.at_most is not None:
        title, interval = f"{each}, smoothed; shaded: at most ({told})", 100.0 * np.column_stack([np.zeros(len(shares)), answer.at_most])
    else:
        title, interval = f"{each}, smoothed, without intervals", 100.0 * np.column_stack([shares, shares])
    up_to = f"Up to there, all in the {told} band at once"

    def drawn(narrow: bool) -> Spec:
        both = "cumulative" in table.columns
        width = NARROW if narrow else (WIDE - 90) // 2 if both else WIDE
        spec = steps_chart(title, edges, 100.0 * shares, interval, across, "share (%)", width)
        if not both:
            return spec
        band = 100.0 * np.array(table[f"cumulative_{100.0 * level:g}"], dtype=np.float64)
        sums = 100.0 * np.asarray(table["cumulative"])
        return {
            "vconcat" if narrow else "hconcat": [spec, steps_chart(up_to, edges, sums, band, across, "share up to there (%)", width)],
            "spacing": 40,
        }

    return _chart(drawn, name, f"Histogram: {shared_of(release)}", _largest(answer, told))


def _labels(release: Release, answer: Answer, level: str, name: str) -> Chart:
    table = _table(answer)
    shares = np.asarray(table["share"])
    # (without intervals, the bars alone)
    interval = np.column_stack([shares, shares]) if answer.interval is None else _rows(answer)
    order = np.argsort(-shares, kind="stable")
    shown = order if len(order) <= MOST_BARS + 1 else order[:MOST_BARS]
    left = order[len(shown) :]
    bars = [
        Named(label_of(table.columns, code), 100.0 * float(shares[code]), 100.0 * low, 100.0 * high, _share(answer, code))
        for code, (low, high) in zip(shown.tolist(), interval[shown].tolist(), strict=True)
    ]
    left_out = f"and {len(left):,} more, together {percent(float(shares[left].sum()))}" if len(left) else ""

    def drawn(narrow: bool) -> Spec:
        return bars_chart(bars, f"{shared_of(release)} (%)", left_out, level="" if answer.interval is None else level, narrow=narrow)

    return _chart(drawn, name, f"Histogram: {shared_of(release)}", _largest(answer, level))


def _means(release: Release, answer: Answer, level: str, name: str) -> Chart:
    table, interval = _table(answer), _rows(answer)
    values = np.asarray(table["value"], dtype=np.float64)
    rows = [
        Named(str(label), value, low, high, plain(value))
        for label, value, (low, high) in zip(table["label"], values.tolist(), interval.tolist(), strict=True)
    ]
    left_out = f"and {len(rows) - MOST_BARS:,} more, which the table holds" if len(rows) > MOST_BARS + 1 else ""
    shown = rows[:MOST_BARS] if left_out else rows
    words = "; ".join(f"{row.name} {row.written} ({plain(row.low)} to {plain(row.high)})" for row in rows[:LARGEST_TOLD])

    def drawn(narrow: bool) -> Spec:
        return bars_chart(shown, "mean", left_out, level=level, narrow=narrow)

    return _chart(drawn, name, "Means with their intervals", f"{len(rows):,} means with their {level} intervals: {words}.")


def _place(release: Release, domain: Any, answer: Answer, level: str, name: str, background: Background | None) -> Chart:
    plane = answer.plane or answer
    if isinstance(domain, Places):
        domain, plane = on_map(domain, answer)
    east, north = (float(part) for part in _pair(plane.value))
    sides = [(float(low), float(high)) for low, high in np.asarray(plane.interval, dtype=np.float64).tolist()]

    def drawn(narrow: bool) -> Spec:
        return place_map(domain, (east, north), sides, level, background, narrow=narrow)

    interval = measured(answer.interval, release.decimals)
    unit = "degrees (latitude, longitude)" if answer.plane is not None else f"{release.query.unit or 'units'} (east, north)"
    words = f"{measured(answer.value, release.decimals)} {unit}, {level} interval {interval} for both at once. North is up."
    return _chart(drawn, name, f"The {release.query.title} with its interval", words)


def _number(release: Release, answer: Answer, level: str, name: str) -> Chart:
    query = release.query
    low, high = _range(query)
    times = release.reports if query.kind == "sum" else 1
    value, (least, most) = float(_number_of(answer.value)), (float(end) for end in _pair(answer.interval))
    unit = f" {query.unit}" if query.unit else ""
    written = f"{measured(value, release.decimals)}{unit}"
    named = Named(query.title, value, least, most, written)
    across = f"{query.title} ({query.unit})" if query.unit else query.title

    def drawn(narrow: bool) -> Spec:
        return number_chart(named, (low * times, high * times), across, level, narrow=narrow)

    ends = measured((least, most), release.decimals)
    words = f"{written}, {level} interval {ends}, on the range from {plain(low * times)} to {plain(high * times)}{unit}."
    return _chart(drawn, name, f"The {query.title} with its interval", words)


def _range(query: Any) -> tuple[float, float]:
    """Where one value lies."""
    domain = query.values_in
    return float(domain.low), float(domain.high)


def _largest(answer: Answer, level: str) -> str:
    table = _table(answer)
    shares = np.asarray(table["share"])
    order = np.argsort(-shares, kind="stable")[:LARGEST_TOLD]
    told = "; ".join(f"{label_of(table.columns, code)}: {_share(answer, code)}{_between(answer, code, level)}" for code in order.tolist())
    each = "smoothed shares without intervals" if answer.interval is None else f"shares with their {level} intervals"
    return f"{len(shares):,} {each}. The largest: {told}."


def _between(answer: Answer, row: int, level: str) -> str:
    """The interval of a share, or what it is at most, in brackets."""
    if answer.interval is None:
        return "" if answer.at_most is None else f" (at most {percent(float(answer.at_most[row]))}, {level})"
    (low, high), error = _rows(answer)[row].tolist(), largest_error(answer.standard_error)
    return f" ({percent(low, error)} to {percent(high, error)})"


def _share(answer: Answer, row: int) -> str:
    return percent(float(_table(answer)["share"][row]), largest_error(answer.standard_error))


def largest_error(errors: Any) -> float:
    """Which says how many decimals all shares of a table are written with; 0 where there are none."""
    return 0.0 if errors is None else float(np.max(np.asarray(errors, dtype=np.float64)))


def _table(answer: Answer) -> Table:
    if not isinstance(answer.value, Table):
        raise TypeError("this answer is no table")
    return answer.value


def _rows(answer: Answer) -> Floats:
    """The intervals of a table, a row each."""
    return np.asarray(answer.interval, dtype=np.float64)


def _pair(value: Any) -> tuple[float, float]:
    first, second = value
    return float(first), float(second)


def _number_of(value: Any) -> float:
    return float(value)
