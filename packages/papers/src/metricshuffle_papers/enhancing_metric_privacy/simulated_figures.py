"""Simulated figures of Athanasiou25: points, table rows, and curves or boxes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from metricshuffle.report.charts.axis_charts import Curve
from metricshuffle.report.charts.labelled_curves import curves_chart
from metricshuffle_papers.charts import MECHANISM_COLOURS, NEEDED, PUBLISHED, BoxPlot, boxes_chart
from metricshuffle_papers.enhancing_metric_privacy.mechanisms import PROTOCOLS, Floats
from metricshuffle_papers.reproduction import Chart, Reproduction, Row

Measure = Literal[
    "mean absolute error",
    "root mean square error",
    "relative error",
    "Euclidean error",
    "Manhattan error",
]
CURVES = (
    "Only the caption of this figure survives, so the curves are ours. As published: "
    "expected error with the noise that the paper's "
    "theorem asks for. Ours: simulated, with the least noise that certainly keeps the promise"
)
PERCENTILES = (5.0, 25.0, 50.0, 75.0, 95.0)


@dataclass(frozen=True)
class Point:
    """One mechanism with one number of users.

    The expected error as published, and simulated errors with the noise that is needed.
    """

    users: int
    mechanism: str
    expected: float | None
    errors: Floats | None
    squared: bool = False

    @property
    def simulated(self) -> float | None:
        if self.errors is None:
            return None
        return (
            float(np.sqrt((self.errors**2).mean())) if self.squared else float(self.errors.mean())
        )

    @property
    def standard_error(self) -> float | None:
        """Standard error of `simulated`; of a root mean square, by the derivative of the root."""
        if self.errors is None:
            return None
        sample = (
            self.errors**2 / (2.0 * math.sqrt(float((self.errors**2).mean())))
            if self.squared
            else self.errors
        )
        return float(sample.std(ddof=1) / math.sqrt(len(sample)))

    @property
    def row(self) -> Row:
        theorem = "3.1" if self.mechanism == "RR-Shuffle" else "4.1"
        missing = (
            f"Theorem {theorem} does not apply to so few users" if self.expected is None else ""
        )
        if self.errors is None:
            missing = "no flip probability keeps the promise with so few users"
        return Row(
            f"n = {self.users}, {self.mechanism}",
            as_published=self.expected,
            ours=self.simulated,
            standard_error=self.standard_error,
            note=missing,
        )


@dataclass(frozen=True)
class Remarks:
    """Comparison with the text about a figure: words and rows that come first."""

    words: tuple[str, ...] = ()
    rows: tuple[Row, ...] = ()


def reproduced(
    points: list[Point],
    measure: Measure,
    target: str,
    how: str,
    remarks: Remarks,
    *,
    boxes: bool,
    metres: bool = False,
) -> Reproduction:
    """Return the points as rows and one chart.

    The error is that of the `target`; `how` describes the guarantee and the data.
    """
    unit = " (metres)" if metres else ""
    chart = (
        _boxes(points, f"{measure}{unit}")
        if boxes
        else _curves(points, f"{measure} of the {target}{unit}")
    )
    caption = (
        "Whiskers: 5th and 95th percentile; dots: medians."
        if boxes
        else "Dashed: as published. Solid: with the noise that is needed."
    )
    return Reproduction(
        words=(
            *remarks.words,
            _finding(points, measure, " m" if metres else ""),
            f"{CURVES} {how}",
        ),
        rows=(*remarks.rows, *(point.row for point in points)),
        charts=(Chart(f"{measure.capitalize()} against users", chart, caption),),
    )


def _finding(points: list[Point], measure: Measure, unit: str) -> str:
    last = {point.mechanism: point for point in points if point.users == points[-1].users}
    told = ", ".join(
        f"{name} {value:.3g}{unit}"
        for name, point in last.items()
        if (value := point.simulated) is not None
    )
    geo = last["Geo-Shuffle"]
    ratio = (geo.simulated or math.nan) / (geo.expected or math.nan)
    compared = f"{ratio:.2g} times the error" if ratio > 1.0 else f"only {ratio:.2g} of the error"
    return (
        f"With {points[-1].users:,} users the {measure} is {told}; Geo-Shuffle needs "
        f"{compared} that the paper's theorem gives it."
    )


def _curves(points: list[Point], up: str) -> dict[str, object]:
    curves = []
    for name in PROTOCOLS:
        mine = [point for point in points if point.mechanism == name]
        ours = tuple(
            (float(point.users), value) for point in mine if (value := point.simulated) is not None
        )
        published = tuple(
            (float(point.users), point.expected) for point in mine if point.expected is not None
        )
        curves.append(Curve(name, ours, MECHANISM_COLOURS[name], NEEDED))
        if name in ("RR-Shuffle", "Geo-Shuffle"):
            curves.append(
                Curve(f"{name}, published", published, MECHANISM_COLOURS[name], PUBLISHED)
            )
    return curves_chart(curves, "users", up)


def _boxes(points: list[Point], up: str) -> dict[str, object]:
    crowds = list(dict.fromkeys(point.users for point in points))
    place = {name: 0.2 * index - 0.3 for index, name in enumerate(PROTOCOLS)}
    drawn = [
        BoxPlot(
            point.mechanism,
            crowds.index(point.users) + place[point.mechanism],
            _five(point.errors),
            MECHANISM_COLOURS[point.mechanism],
        )
        for point in points
        if point.errors is not None
    ]
    return boxes_chart(
        drawn, [(float(index), f"{users:,}") for index, users in enumerate(crowds)], up
    )


def _five(errors: Floats) -> tuple[float, float, float, float, float]:
    first, lower, middle, upper, last = (
        float(value) for value in np.percentile(errors, PERCENTILES)
    )
    return first, lower, middle, upper, last
