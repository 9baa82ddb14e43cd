"""The simulated figures of Athanasiou25 as items: errors on numbers (4, 15 to 21) and of a centroid (5, 22 to 29)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from metricshuffle.pages.charts.curves import MECHANISM_COLOURS, NEEDED, PUBLISHED, Box, Curve, boxes_chart, curves_chart
from metricshuffle.papers.reproduction import Chart, Item, Reproduction, Row, Settings
from metricshuffle.papers.shuffler_location import DELTA, Location, cells_of, places
from metricshuffle.papers.shuffler_mechanisms import PROTOCOLS, SPAN, Floats, Mechanism, as_needed, as_published
from metricshuffle.planning.simulate import uniforms
from metricshuffle.randomness import Randomness

Measure = Literal["mean absolute error", "root mean square error", "relative error", "Euclidean error", "Manhattan error"]
NUMBERS_OF_USERS = ((25, 50, 100, 200), (10, 25, 50, 75, 100, 150, 200))
CROWDS = ((1000, 2000, 4000), (1000, 2000, 3000, 4000))
CURVES = (
    "Only the caption of this figure survives, so the curves are ours. As published: expected error with the noise that the paper's "
    "theorem asks for. Ours: simulated, with the least noise that certainly keeps the promise"
)
PERCENTILES = (5.0, 25.0, 50.0, 75.0, 95.0)


@dataclass(frozen=True)
class Point:
    """One mechanism with one crowd: the expected error as published, and the simulated errors with the noise that is needed."""

    users: int
    mechanism: str
    expected: float | None
    errors: Floats | None
    squared: bool = False

    @property
    def simulated(self) -> float | None:
        if self.errors is None:
            return None
        return float(np.sqrt((self.errors**2).mean())) if self.squared else float(self.errors.mean())

    @property
    def standard_error(self) -> float | None:
        """Of `simulated`; of a root mean square, by the derivative of the root."""
        if self.errors is None:
            return None
        sample = self.errors**2 / (2.0 * math.sqrt(float((self.errors**2).mean()))) if self.squared else self.errors
        return float(sample.std(ddof=1) / math.sqrt(len(sample)))

    @property
    def row(self) -> Row:
        theorem = "3.1" if self.mechanism == "RR-Shuffle" else "4.1"
        missing = f"Theorem {theorem} does not apply to so few users" if self.expected is None else ""
        if self.errors is None:
            missing = "no flip probability keeps the promise with so few users"
        return Row(
            f"n = {self.users}, {self.mechanism}",
            as_published=self.expected,
            ours=self.simulated,
            standard_error=self.standard_error,
            note=missing,
        )


def numbers_item(
    name: str, label: str, epsilon: float, delta: float, measure: Measure, *, boxes: bool = False,
    more: Callable[[Settings], tuple[tuple[str, ...], tuple[Row, ...]]] | None = None,
) -> Item:  # fmt: skip
    """A figure about the mean of numbers in 0..1000; `more` adds words and rows that compare with the text."""

    def run(settings: Settings) -> Reproduction:
        points = _number_points(epsilon, delta, measure, settings)
        words, rows = more(settings) if more is not None else ((), ())
        chart = _boxes(points, measure) if boxes else _curves(points, f"{measure} of the mean")
        words += (
            _finding(points, measure),
            (f"{CURVES} for one person's moves up to {SPAN}: epsilon {epsilon:g} per unit, delta {delta:g}, uniform values in 0..{SPAN}."),
        )
        caption = (
            "Whiskers: 5th and 95th percentile; dots: medians." if boxes else "Dashed: as published. Solid: with the noise that is needed."
        )
        return Reproduction(
            words, (*rows, *(point.row for point in points)), (Chart(f"{measure.capitalize()} against users", chart, caption),)
        )

    return Item(
        name, "Athanasiou25", label, f"{measure.capitalize()} on numbers, epsilon {epsilon:g}, delta {delta:g}", run, simulated=True
    )


def location_item(
    name: str, label: str, where: Location, measure: Measure, *, dispersed: bool = False, boxes: bool = False,
    more: Callable[[Settings], tuple[tuple[str, ...], tuple[Row, ...]]] | None = None,
) -> Item:  # fmt: skip
    """A figure about the centroid of people in a square of 100 km."""

    def run(settings: Settings) -> Reproduction:
        points, source = _location_points(where, measure, settings, dispersed=dispersed)
        words, rows = more(settings) if more is not None else ((), ())
        chart = _boxes(points, f"{measure} (metres)") if boxes else _curves(points, f"{measure} of the centroid (metres)")
        words += (
            _finding(points, measure, " m"),
            (
                f"{CURVES} up to {where.radius:g} m: epsilon {where.epsilon:g} at that distance, delta {DELTA:g}, {where.squares} x "
                f"{where.squares} squares of {where.cell:.4g} m. Reports are made for {source}; the paper's addresses are not "
                "available, and additive noise errs alike wherever people live."
            ),
        )
        caption = (
            "Whiskers: 5th and 95th percentile; dots: medians." if boxes else "Dashed: as published. Solid: with the noise that is needed."
        )
        return Reproduction(words, (*rows, *(point.row for point in points)), (Chart(f"{measure} against users", chart, caption),))

    kind = ", dispersed" if dispersed else ""
    title = f"{measure} of a centroid{kind}: epsilon {where.epsilon:g} at {where.radius:g} m, {where.squares} squares"
    return Item(name, "Athanasiou25", label, title, run, simulated=True, places=True)


def _number_points(epsilon: float, delta: float, measure: Measure, settings: Settings) -> list[Point]:
    source = Randomness.seeded(f"{measure}, {epsilon}, {delta}: {settings.seed}")
    runs, squared = settings.runs_or(2_000, 40_000), measure == "root mean square error"
    points = []
    for users in NUMBERS_OF_USERS[0 if settings.quick else 1]:
        settings.progress(f"{users} users")
        truth = float(np.floor(uniforms(users, source) * (SPAN + 1)).mean()) if measure == "relative error" else 1.0
        published, needed = as_published(epsilon, users, delta), as_needed(epsilon, users, delta, SPAN)
        for mechanism in PROTOCOLS:
            given, used = published[mechanism], needed[mechanism]
            size = None if given is None else given.root_mean_square(users) if squared else given.mean_error(users)
            errors = None if used is None else np.abs(used.errors(users, runs, source)[:, 0]) / (users * truth)
            points.append(Point(users, mechanism, None if size is None else size / (users * truth), errors, squared))
    return points


def _location_points(where: Location, measure: Measure, settings: Settings, *, dispersed: bool) -> tuple[list[Point], str]:
    source, runs = Randomness.seeded(f"{measure}, {where}, {dispersed}: {settings.seed}"), settings.runs_or(60, 1_000)
    town = places(settings.csv)
    town = town.dispersed() if dispersed else town
    points = []
    for users in CROWDS[0 if settings.quick else 1]:
        settings.progress(f"{users} users")
        cells = cells_of(town.people(users, source), where.squares)
        published, needed = where.as_published(users), where.as_needed(users)
        for mechanism in PROTOCOLS:
            given, used, scale = published[mechanism], needed[mechanism], where.cell / users
            expected = None if given is None else _size(given, users, measure) * scale
            points.append(
                Point(users, mechanism, expected, None if used is None else _measured(used.errors_on(cells, runs, source), measure) * scale)
            )
    return points, town.source


def _size(one: Mechanism, users: int, measure: Measure) -> float:
    """Expected error of both totals."""
    return (
        one.mean_error(users) if measure == "Euclidean error" else sum(Mechanism(one.name, (axis,)).mean_error(users) for axis in one.axes)
    )


def _measured(errors: Floats, measure: Measure) -> Floats:
    return np.asarray(np.hypot(*errors.T) if measure == "Euclidean error" else np.abs(errors).sum(axis=1))


def _finding(points: list[Point], measure: str, unit: str = "") -> str:
    last = {point.mechanism: point for point in points if point.users == points[-1].users}
    told = ", ".join(f"{name} {value:.3g}{unit}" for name, point in last.items() if (value := point.simulated) is not None)
    geo = last["Geo-Shuffle"]
    ratio = (geo.simulated or math.nan) / (geo.expected or math.nan)
    compared = f"{ratio:.2g} times the error" if ratio > 1.0 else f"only {ratio:.2g} of the error"
    return f"With {points[-1].users:,} users the {measure} is {told}; Geo-Shuffle needs {compared} that the paper's theorem gives it."


def _curves(points: list[Point], up: str) -> dict[str, object]:
    curves = []
    for name in PROTOCOLS:
        mine = [point for point in points if point.mechanism == name]
        ours = tuple((float(point.users), value) for point in mine if (value := point.simulated) is not None)
        published = tuple((float(point.users), point.expected) for point in mine if point.expected is not None)
        curves.append(Curve(name, ours, MECHANISM_COLOURS[name], NEEDED))
        if name in ("RR-Shuffle", "Geo-Shuffle"):
            curves.append(Curve(f"{name}, published", published, MECHANISM_COLOURS[name], PUBLISHED))
    return curves_chart(curves, "users", up)


def _boxes(points: list[Point], up: str) -> dict[str, object]:
    crowds = list(dict.fromkeys(point.users for point in points))
    place = {name: 0.2 * index - 0.3 for index, name in enumerate(PROTOCOLS)}
    drawn = [
        Box(point.mechanism, crowds.index(point.users) + place[point.mechanism], _five(point.errors), MECHANISM_COLOURS[point.mechanism])
        for point in points
        if point.errors is not None
    ]
    return boxes_chart(drawn, [(float(index), f"{users:,}") for index, users in enumerate(crowds)], up)


def _five(errors: Floats) -> tuple[float, float, float, float, float]:
    first, lower, middle, upper, last = (float(value) for value in np.percentile(errors, PERCENTILES))
    return first, lower, middle, upper, last
