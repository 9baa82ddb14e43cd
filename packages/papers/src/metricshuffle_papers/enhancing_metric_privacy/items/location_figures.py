"""Figures 5 and 23 to 29 of Athanasiou25: errors of a centroid in a square of 100 km.

Against the number of users, one row per figure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from metricshuffle.randomness import Randomness
from metricshuffle_papers.enhancing_metric_privacy.location import DELTA, Location, cells_of, places
from metricshuffle_papers.enhancing_metric_privacy.mechanisms import (
    PROTOCOLS,
    Floats,
    Mechanism,
    fewest_users,
)
from metricshuffle_papers.enhancing_metric_privacy.simulated_figures import (
    Measure,
    Point,
    Remarks,
    reproduced,
)
from metricshuffle_papers.reproduction import (
    Item,
    Reproduction,
    Row,
    Settings,
    judged,
    published_value,
)

QUICK_USERS = (1000, 2000, 4000)
USERS = (1000, 2000, 3000, 4000)
TEXT_WHERE = Location(0.15, 1000, 600)
"""Setting of Figure 5, for which the text names a number of users."""


@dataclass(frozen=True)
class LocationFigure:
    """One figure.

    `dispersed` leaves out people who live near the middle, `remarks` compares with the text about
    it.
    """

    number: int
    where: Location
    measure: Measure
    dispersed: bool = False
    boxes: bool = False
    remarks: Callable[[], Remarks] = Remarks

    def item(self) -> Item:
        kind = ", dispersed" if self.dispersed else ""
        promise = (
            f"epsilon {self.where.epsilon:g} at {self.where.radius:g} m, {self.where.squares} "
            "squares"
        )
        title = f"{self.measure} of a centroid{kind}: {promise}"
        label = f"Figure {self.number}"
        return Item(
            f"shuffler-figure-{self.number}",
            "Athanasiou25",
            label,
            title,
            self.run,
            simulated=True,
            places=True,
        )

    def run(self, settings: Settings) -> Reproduction:
        points, source = self.points(settings)
        how = (
            f"up to {self.where.radius:g} m: epsilon {self.where.epsilon:g} at that "
            f"distance, delta {DELTA:g}, {self.where.squares} x "
            f"{self.where.squares} squares of {self.where.cell:.4g} m. Reports are made "
            f"for {source}; the paper's addresses are not "
            "available, and additive noise errs alike wherever people live."
        )
        return reproduced(
            points, self.measure, "centroid", how, self.remarks(), boxes=self.boxes, metres=True
        )

    def points(self, settings: Settings) -> tuple[list[Point], str]:
        """Return the points and a sentence about the source of the people."""
        source = Randomness.seeded(
            f"{self.measure}, {self.where}, {self.dispersed}: {settings.seed}"
        )
        runs = settings.runs_or(60, 1_000)
        town = places(settings.csv)
        town = town.dispersed() if self.dispersed else town
        points = []
        for users in QUICK_USERS if settings.quick else USERS:
            settings.progress(f"{users} users")
            cells = cells_of(town.people(users, source), self.where.squares)
            scale = self.where.cell / users
            published = self.where.as_published(users)
            needed = self.where.as_needed(users)
            for mechanism in PROTOCOLS:
                given = published[mechanism]
                used = needed[mechanism]
                expected = None if given is None else _expected(given, users, self.measure) * scale
                errors = (
                    None
                    if used is None
                    else _sizes(used.errors_on(cells, runs, source), self.measure) * scale
                )
                points.append(Point(users, mechanism, expected, errors))
        return points, town.source


def _expected(one: Mechanism, users: int, measure: Measure) -> float:
    """Expected error of both totals."""
    return (
        one.mean_error(users)
        if measure == "Euclidean error"
        else sum(Mechanism(one.name, (axis,)).mean_error(users) for axis in one.axes)
    )


def _sizes(errors: Floats, measure: Measure) -> Floats:
    return np.asarray(
        np.hypot(*errors.T) if measure == "Euclidean error" else np.abs(errors).sum(axis=1)
    )


def text_on_figure_5() -> Remarks:
    """Compare the number of users from which RR-Shuffle exists."""
    name = "fewest users of RR-Shuffle, epsilon=0.15"
    published = published_value("enhancing_metric_privacy", "Section 6.3, Figure 5", name)
    fewest = fewest_users(TEXT_WHERE.share, 0.5 * DELTA)
    row = Row(
        name,
        published,
        float(fewest),
        verdict=judged(published, fewest),
        note="Theorem 3.1 with half of delta on each axis",
    )
    return Remarks(
        (
            f"The text says that RR-Shuffle needs {published:g} users here; by its own "
            f"theorem it needs {fewest:,}.",
        ),
        (row,),
    )


FIGURES = (
    LocationFigure(5, TEXT_WHERE, "Euclidean error", boxes=True, remarks=text_on_figure_5),
    LocationFigure(23, Location(0.1, 1000, 600), "Euclidean error"),
    LocationFigure(24, Location(0.2, 500, 600), "Euclidean error"),
    LocationFigure(25, Location(0.3, 1500, 500), "Euclidean error"),
    LocationFigure(26, Location(0.2, 1000, 300), "Euclidean error", dispersed=True),
    LocationFigure(27, Location(0.1, 1000, 600), "Manhattan error"),
    LocationFigure(28, Location(0.2, 1000, 600), "Manhattan error", dispersed=True),
    LocationFigure(29, Location(0.15, 1000, 600), "Euclidean error", dispersed=True),
)
ITEMS = tuple(figure.item() for figure in FIGURES)
