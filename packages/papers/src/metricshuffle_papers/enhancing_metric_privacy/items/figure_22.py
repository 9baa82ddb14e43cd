"""Figure 22 of Athanasiou25: map of the people whose centroid is computed."""

from __future__ import annotations

import numpy as np

from metricshuffle.randomness import Randomness
from metricshuffle.report.charts.vega import BLUE, INK, MUTED, Spec, dots, note, panel, x, y
from metricshuffle.simulation.fast_draws import uniforms
from metricshuffle_papers.enhancing_metric_privacy.location import SIDE, Floats, places
from metricshuffle_papers.reproduction import Chart, Item, Reproduction, Row, Settings

DRAWN = 1500
WIDTH = 640
HEIGHT = 430


def run(settings: Settings) -> Reproduction:
    everybody = places(settings.csv)
    suburbs = everybody.dispersed()
    centre = everybody.points.mean(axis=0)
    apart = suburbs.points.mean(axis=0)
    rows = (
        Row("people on the map", ours=float(len(everybody.points))),
        Row("people of the dispersed variant", ours=float(len(suburbs.points))),
        Row(
            "distance of its centroid from everybody's (metres)",
            ours=float(np.hypot(*(centre - apart))),
        ),
    )
    rule = (
        "the half that lives nearest to the middle, where the paper leaves out a rectangle."
        if everybody.downtown is None
        else "those in the rectangle around downtown Austin of the paper's footnote 6."
    )
    chart = _map(everybody.points, suburbs.points, (float(centre[0]), float(centre[1])))
    return Reproduction(
        words=(
            f"The people are {everybody.source}; the paper's file of addresses in Austin is not "
            "available, and --csv takes another.",
            f"The map shows the part of the {SIDE / 1000:g} km square where they live. In "
            f"grey, those whom the dispersed variant (Figures 26, 28 and 29) leaves out: {rule}",
        ),
        rows=rows,
        charts=(
            Chart(
                "Where people live",
                chart,
                "Blue: the dispersed variant. Grey: the others. The cross is everybody's centroid.",
            ),
        ),
    )


def _map(everybody: Floats, suburbs: Floats, centre: tuple[float, float]) -> Spec:
    low = everybody.min(axis=0) / 1000.0
    high = everybody.max(axis=0) / 1000.0
    half = 0.53 * max(float(high[0] - low[0]), float(high[1] - low[1]) * WIDTH / HEIGHT)
    middle = 0.5 * (low + high)

    def some(points: Floats) -> list[tuple[float, float]]:
        count = min(DRAWN, len(points))
        chosen = points[np.argsort(uniforms(len(points), Randomness.seeded("map")))[:count]]
        return [
            (round(float(east) / 1000.0, 3), round(float(north) / 1000.0, 3))
            for east, north in chosen
        ]

    layers = [
        dots(some(everybody), MUTED, 7, opacity=0.45),
        dots(some(suburbs), BLUE, 7, opacity=0.7),
        dots([(centre[0] / 1000.0, centre[1] / 1000.0)], INK, 170, shape="cross"),
        note((centre[0] / 1000.0, centre[1] / 1000.0), "centroid", INK, dx=12, fontWeight="bold"),
    ]
    sides = [
        {
            "scale": {
                "domain": [float(at) - reach, float(at) + reach],
                "nice": False,
                "zero": False,
            },
            "axis": {"tickCount": 6, "grid": False},
        }
        for at, reach in zip(middle, (half, half * HEIGHT / WIDTH), strict=True)
    ]
    return panel(
        "",
        layers,
        {"x": x(title="east (km)", **sides[0]), "y": y(title="north (km)", **sides[1])},
        WIDTH,
        HEIGHT,
    )


ITEMS = (
    Item(
        "shuffler-figure-22", "Athanasiou25", "Figure 22", "The map of the people", run, places=True
    ),
)
