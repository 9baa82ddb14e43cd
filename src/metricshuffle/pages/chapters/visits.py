"""A month of visits each: two releases, what they promise, and what it was worth."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from metricshuffle.numerics.rounding import plain
from metricshuffle.pages.charts.marks import BLUE, GRID, INK, MUTED, Spec, drawing, panel, x, y
from metricshuffle.pages.elements import Card, Figure, Key, Promise, Table
from metricshuffle.pages.user_study import PlannedRelease, UserStudy, merged
from metricshuffle.pages.users_compare import errors_chart, sentence_case
from metricshuffle.planning.compare.users import UserComparison
from metricshuffle.spaces import Grid

LEGEND = (Key("hides any replacement at epsilon 1", MUTED), Key("hides moves in proportion to their distance", BLUE))
WIDTH = 240


@dataclass(frozen=True)
class Visits:
    users: int
    visits: int
    places: str
    cards: tuple[Card, ...]
    maps: Figure
    worth: tuple[str, ...]
    errors: Figure
    error_numbers: Table


def visits(study: UserStudy) -> Visits:
    both, unit = merged(study), study.unit
    return Visits(
        users=study.users,
        visits=study.visits,
        places=str(study.grid).removeprefix("the "),
        cards=tuple(_card(study, released) for released in study.releases),
        maps=_maps_figure(study),
        worth=tuple(map(sentence_case, study.comparisons[1].sentences())),
        errors=_errors_figure(both, unit),
        error_numbers=_error_table(both, unit),
    )


def _card(study: UserStudy, released: PlannedRelease) -> Card:
    unit, chosen, release = study.unit, released.plan.choice, released.release
    trusting = chosen.trusted != "nobody"
    promises = [Promise(f"If the {chosen.trusted} is honest" if trusting else "Whoever colludes", str(release.guarantee))]
    if trusting:
        promises.append(Promise("If it is not", str(release.if_shuffler_colludes), broken=True))
    promises.append(Promise("What that is not", released.full_replacement, broken=True))
    return Card(
        title=released.title,
        answer=plain(round(study.error(released), 1)),
        unit=f" {unit}",
        caption="earth mover's distance to the truth",
        facts=(
            ("expected", f"{plain(round(chosen.expected_error, 1))} {unit}, for time spent evenly"),
            ("way", f"{chosen.protocol}, {chosen.bits_per_user:,} bits a person"),
        ),
        promises=promises,
    )


def _maps_figure(study: UserStudy) -> Figure:
    shown = [("The truth", study.truth), *((released.title, released.shares) for released in study.releases)]
    darkest = max(float(shares.max()) for _, shares in shown)
    drawn = drawing(
        {"hconcat": [_map(title, shares, study.grid, darkest) for title, shares in shown], "spacing": 22},
        "fig-visits",
        "Where people spend their time: the truth and two private releases",
        " ".join(
            f"{released.title}: {plain(round(study.error(released), 1))} {study.unit} of earth mover's distance from the truth."
            for released in study.releases
        ),
    )
    caption = "The stronger the colour, the more time is spent there. Left: the truth, known because these people are invented."
    return Figure(drawn, caption)


def _map(title: str, shares: NDArray[np.float64], grid: Grid, darkest: float) -> Spec:
    cells = [
        {"x": int(column), "x2": int(column) + 1, "y": int(row), "y2": int(row) + 1, "o": round(float(share) / darkest, 3)}
        for (column, row), share in zip(grid.all_values(), shares, strict=True)
    ]
    border = [{"x": 0, "x2": grid.width, "y": 0, "y2": grid.height}]
    ends: Spec = {"x2": {"field": "x2"}, "y2": {"field": "y2"}}
    layers: list[Spec] = [
        {
            "data": {"values": cells},
            "mark": {"type": "rect", "filled": False, "stroke": GRID, "strokeWidth": 1},
            "encoding": ends,
        },
        {
            "data": {"values": cells},
            "mark": {"type": "rect", "color": BLUE},
            "encoding": {**ends, "opacity": {"field": "o", "type": "quantitative", "scale": None}},
        },
        {
            "data": {"values": border},
            "mark": {"type": "rect", "filled": False, "stroke": INK, "strokeWidth": 0.75},
            "encoding": ends,
        },
    ]
    bare: Spec = {"title": None, "axis": None}
    base = {
        "x": x(**bare, scale={"domain": [0, grid.width], "nice": False}),
        "y": y(**bare, scale={"domain": [0, grid.height], "nice": False}),
    }
    return panel(title, layers, base, WIDTH, round(WIDTH * grid.height / grid.width))


def _errors_figure(comparison: UserComparison, unit: str) -> Figure:
    drawn = drawing(
        errors_chart(comparison, unit),
        "fig-worth",
        "Errors of user-level privacy and of the tree release",
        " ".join(comparison.sentences()),
    )
    return Figure(
        drawn, f"Mean error over {comparison.runs} simulated releases, with two standard errors; the axis is logarithmic.", LEGEND
    )


def _error_table(comparison: UserComparison, unit: str) -> Table:
    rows = [
        (method.model, method.name, f"{plain(round(method.error, 1))} {unit}", f"{method.standard_error:.2g}")
        for method in comparison.methods
    ]
    return Table(("model", "way", "error", "standard error"), rows, numeric=(2, 3))
