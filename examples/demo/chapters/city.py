"""The city: where people live, with the true and the private centroid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from metricshuffle.numerics.rounding import format_number
from metricshuffle.report.assessment_text import Study
from metricshuffle.report.charts.vega import (
    BLUE,
    INK,
    VERMILLION,
    WATER,
    Spec,
    dots,
    drawing,
    line,
    note,
    panel,
    x,
    y,
)
from metricshuffle.report.components import Figure, TextTable
from metricshuffle.report.plan_view import axis_values, plan_facts, plan_grid, release_facts
from metricshuffle.spaces import Grid
from metricshuffle_papers.synthetic import NEIGHBOURHOODS, jittered, river

Point = tuple[float, float]
Sides = tuple[Point, Point]


@dataclass(frozen=True)
class City:
    users: int
    columns: int
    rows: int
    cell: str
    error: str
    map: Figure
    centroids: TextTable


@dataclass(frozen=True)
class Centroids:
    """The true and the private one, and the interval around the latter: (west, east) and (south,
    north).
    """

    true: Point
    private: Point
    interval: Sides


def city(study: Study, cells: NDArray[np.int64]) -> City:
    """`cells` are those of the simulated people."""
    plan = plan_facts(study.plan)
    release = release_facts(study.release)
    grid = plan_grid(study.plan)
    error = plan.in_units(study.error)
    (true_east, true_north), (east, north) = axis_values(study.truth), release.value
    across, along = release.interval
    centroids = Centroids((true_east, true_north), (east, north), (across, along))
    drawn = drawing(
        map_chart(cells, grid, centroids),
        "fig-city",
        "Where people live, with the true and the private centroid",
        f"The true centroid is {release.written(centroids.true)}, the private one "
        f"{release.value_text}{plan.spaced_unit}: {error} apart.",
    )
    caption = (
        "Left or above: the people, jittered within their cells, on both banks of the "
        "river. Right or below: the same two "
        "centroids, close up, with the 95 % interval."
    )
    rows = [
        ("true", *map(release.written, centroids.true), ""),
        ("private", *map(release.written, centroids.private), release.interval_text),
    ]
    return City(
        users=plan.users,
        columns=grid.width,
        rows=grid.height,
        cell=f"{format_number(grid.cell)}{plan.spaced_unit}",
        error=error,
        map=Figure(drawn, caption),
        centroids=TextTable(
            ("centroid", plan.with_unit("east"), "north", "95 % interval, east and north"),
            rows,
            numeric=(1, 2),
        ),
    )


def map_chart(cells: NDArray[np.int64], grid: Grid, centroids: Centroids) -> Spec:
    """The people with both centroids, and next to it the few metres around them."""
    both = [
        dots([centroids.true], INK, 150, shape="cross"),
        dots([centroids.private], VERMILLION, 170, filled=False, strokeWidth=2.25),
    ]
    return {"hconcat": [_whole(cells, grid, centroids, both), _close_up(grid, centroids, both)]}


def _whole(
    cells: NDArray[np.int64], grid: Grid, centroids: Centroids, both: Sequence[Spec]
) -> Spec:
    across = grid.width * grid.cell
    up = grid.height * grid.cell
    along = np.linspace(0.0, across, 80)
    water = line(
        [(float(east), float(north)) for east, north in zip(along, river(along), strict=True)],
        WATER,
        width=15.0,
    )
    names = [
        note(place.label, place.name, INK, align="center", fontSize=12, fontStyle="italic")
        for place in NEIGHBOURHOODS
    ]
    label = note(centroids.private, "both centroids", INK, dx=14, fontWeight="bold")
    base = _axis("x", 0.0, across, "east", grid) | _axis("y", 0.0, up, "north", grid)
    return panel(
        "The city",
        [water, _people(cells), *names, *both, label],
        base,
        480,
        round(480 * up / across),
    )


def _people(cells: NDArray[np.int64]) -> Spec:
    """One path of dots instead of thousands of marks: a line of single points with round caps."""
    places: list[Spec] = []
    for east, north in jittered(cells):
        places.append({"x": round(float(east), 1), "y": round(float(north), 1)})
        places.append({"x": None, "y": None})
    return {
        "data": {"values": [{**place, "i": index} for index, place in enumerate(places)]},
        "mark": {
            "type": "line",
            "color": BLUE,
            "opacity": 0.5,
            "strokeWidth": 2.8,
            "invalid": "break-paths-show-path-domains",
        },
        "encoding": {"x": x(), "y": y(), "order": {"field": "i"}},
    }


def _close_up(grid: Grid, centroids: Centroids, both: Sequence[Spec]) -> Spec:
    (true_east, true_north), (east, north) = centroids.true, centroids.private
    (left, right), (bottom, top) = centroids.interval
    half = (
        1.35
        * max(
            right - left, top - bottom, 2.0 * abs(true_east - east), 2.0 * abs(true_north - north)
        )
        / 2.0
    )
    interval: Spec = {
        "data": {"values": [{"x": left, "x2": right, "y": bottom, "y2": top}]},
        "mark": {"type": "rect", "color": VERMILLION, "opacity": 0.14},
        "encoding": {"x": x(), "x2": {"field": "x2"}, "y": y(), "y2": {"field": "y2"}},
    }
    down = 10 if north < true_north else -10  # both names stay clear of each other
    layers = [
        interval,
        *both,
        note(centroids.true, "true", INK, dx=12, dy=-down),
        note(centroids.private, "private", VERMILLION, dx=12, dy=down),
        note((left, top), "95 % interval", VERMILLION, dx=6, dy=10, fontSize=11),
    ]
    base = _axis("x", east - half, east + half, "east", grid) | _axis(
        "y", north - half, north + half, "", grid
    )
    return panel(
        f"{format_number(round(2.0 * half, 1))} {grid.unit} around them", layers, base, 250, 250
    )


def _axis(axis: str, low: float, high: float, named: str, grid: Grid) -> Spec:
    title = f"{named} ({grid.unit})" if named and grid.unit else named or None
    narrow = high - low < 20.0
    return {
        axis: {
            "field": axis,
            "type": "quantitative",
            "title": title,
            "scale": {"domain": [low, high], "nice": False, "zero": False},
            "axis": {
                "tickCount": 4 if narrow else 6,
                "format": ",.1f" if narrow else ",d",
                "grid": narrow,
            },
        }
    }
