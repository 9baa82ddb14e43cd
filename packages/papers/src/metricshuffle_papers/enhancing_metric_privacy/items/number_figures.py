"""Figures 4 and 15 to 21 of Athanasiou25: errors of a mean of numbers in 0..1000.

Against the number of users, one row per figure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from metricshuffle.randomness import Randomness
from metricshuffle.simulation.fast_draws import uniforms
from metricshuffle_papers.enhancing_metric_privacy.mechanisms import (
    PROTOCOLS,
    SPAN,
    as_needed,
    as_published,
    fewest_users,
    geometric,
    published_response,
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

QUICK_USERS = (25, 50, 100, 200)
USERS = (10, 25, 50, 75, 100, 150, 200)
TEXT_EPSILON = 0.1
TEXT_DELTA = 1e-4
"""delta of Figure 4, at which the text compares mechanisms."""


@dataclass(frozen=True)
class NumbersFigure:
    """One figure: epsilon per unit, delta, and the error measure.

    `remarks` compares with the text about it.
    """

    number: int
    epsilon: float
    delta: float
    measure: Measure
    boxes: bool = False
    label: str = ""
    remarks: Callable[[], Remarks] = Remarks

    def item(self) -> Item:
        title = (
            f"{self.measure.capitalize()} on numbers, epsilon {self.epsilon:g}, delta "
            f"{self.delta:g}"
        )
        label = self.label or f"Figure {self.number}"
        return Item(
            f"shuffler-figure-{self.number}", "Athanasiou25", label, title, self.run, simulated=True
        )

    def run(self, settings: Settings) -> Reproduction:
        how = (
            f"for one person's moves up to {SPAN}: epsilon {self.epsilon:g} per unit, delta "
            f"{self.delta:g}, uniform values in 0..{SPAN}."
        )
        return reproduced(
            self.points(settings), self.measure, "mean", how, self.remarks(), boxes=self.boxes
        )

    def points(self, settings: Settings) -> list[Point]:
        source = Randomness.seeded(f"{self.measure}, {self.epsilon}, {self.delta}: {settings.seed}")
        runs = settings.runs_or(2_000, 40_000)
        squared = self.measure == "root mean square error"
        points = []
        for users in QUICK_USERS if settings.quick else USERS:
            settings.progress(f"{users} users")
            truth = (
                float(np.floor(uniforms(users, source) * (SPAN + 1)).mean())
                if self.measure == "relative error"
                else 1.0
            )
            published = as_published(self.epsilon, users, self.delta)
            needed = as_needed(self.epsilon, users, self.delta, SPAN)
            for mechanism in PROTOCOLS:
                given = published[mechanism]
                used = needed[mechanism]
                size = (
                    None
                    if given is None
                    else given.root_mean_square(users)
                    if squared
                    else given.mean_error(users)
                )
                errors = (
                    None
                    if used is None
                    else np.abs(used.errors(users, runs, source)[:, 0]) / (users * truth)
                )
                points.append(
                    Point(
                        users,
                        mechanism,
                        None if size is None else size / (users * truth),
                        errors,
                        squared,
                    )
                )
        return points


def worse_than_local(users: int) -> bool:
    """Whether RR-Shuffle, by the paper's formula, has a larger error than Geo-Local."""
    response = published_response(TEXT_EPSILON, users, TEXT_DELTA)
    return response is not None and response.mean_error(users) > geometric(
        "Geo-Local", Fraction(1), TEXT_EPSILON
    ).mean_error(users)


def text_on_figure_4() -> Remarks:
    """Compare the range of users in which RR-Shuffle exists and is worse than Geo-Local."""
    fewest = fewest_users(TEXT_EPSILON, TEXT_DELTA)
    crossing = fewest
    while worse_than_local(crossing + 1):
        crossing += 1
    names = (
        "fewest users of RR-Shuffle, epsilon=0.1",
        "RR-Shuffle is worse than Geo-Local up to n",
    )
    notes = (
        "Theorem 3.1: as many random bits as it asks for must fit into 1000 n bits",
        "by the expected errors of the paper's own formulas",
    )
    rows = []
    for name, found, note in zip(names, (fewest, crossing), notes, strict=True):
        published = published_value("enhancing_metric_privacy", "Section 6.2, Figure 4", name)
        rows.append(Row(name, published, float(found), verdict=judged(published, found), note=note))
    words = (
        f"The text says that RR-Shuffle needs {rows[0].published:g} users and is worse "
        f"than Geo-Local up to {rows[1].published:g}; by its "
        f"own theorem it needs {fewest} and is worse up to {crossing}."
    )
    return Remarks((words,), tuple(rows))


FIGURES = (
    NumbersFigure(
        4,
        TEXT_EPSILON,
        TEXT_DELTA,
        "mean absolute error",
        label="Figures 4 and 15",
        remarks=text_on_figure_4,
    ),
    NumbersFigure(16, 0.2, 1e-3, "mean absolute error"),
    NumbersFigure(17, 0.3, 1e-4, "mean absolute error"),
    NumbersFigure(18, 0.2, 1e-4, "root mean square error"),
    NumbersFigure(19, 0.1, 1e-4, "relative error"),
    NumbersFigure(20, 0.5, 1e-2, "mean absolute error"),
    NumbersFigure(21, 0.2, 1e-4, "mean absolute error", boxes=True),
)
ITEMS = tuple(figure.item() for figure in FIGURES)
