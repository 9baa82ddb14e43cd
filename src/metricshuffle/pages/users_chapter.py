"""The chapter of the report about people who hold many items each: two releases, what they promise, and what it was worth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape

import numpy as np
from numpy.typing import NDArray

from metricshuffle.pages.charts.marks import BLUE, GRID, INK, MUTED, Spec, panel, svg, x, y
from metricshuffle.pages.html import details, figure, table
from metricshuffle.pages.synthetic import CITY
from metricshuffle.pages.users import chart
from metricshuffle.planning.user_compare import UserComparison
from metricshuffle.planning.user_plan import UserPlan
from metricshuffle.planning.user_release import UserRelease
from metricshuffle.planning.user_simulation import distance_of
from metricshuffle.privacy.guarantee import plain
from metricshuffle.protocols.user_queries import UserHistogram
from metricshuffle.spaces import Grid, NestedSquares, Space, users_of

Floats = NDArray[np.float64]
Cells = list[NDArray[np.int64]]
LEVELS = 3
NEAR = 425.0
"""Metres, a twentieth of the diameter: how far a month may move and stay hidden at the epsilon of the plans."""


@dataclass(frozen=True)
class UserStudy:
    """The same people's visits released twice, trusting nobody and trusting a curator, and a comparison at two rates."""

    local: tuple[UserPlan, UserRelease]
    central: tuple[UserPlan, UserRelease]
    truth: Floats
    visits: int
    comparisons: tuple[UserComparison, UserComparison]
    """Where a full replacement costs epsilon, and at the rate of the plans."""

    @property
    def releases(self) -> tuple[tuple[str, UserPlan, UserRelease], ...]:
        return ("Nobody is trusted", *self.local), ("A curator is trusted", *self.central)

    def error(self, release: UserRelease) -> float:
        """The earth mover's distance of a release to the truth."""
        return distance_of(release.query.people, np.array(release.value), self.truth)


def city_squares() -> Space:
    """The city in nested squares: 8 x 6 cells of 750 m."""
    cell = CITY.width * CITY.cell / 2**LEVELS
    return Space(Grid(2**LEVELS, math.ceil(CITY.height * CITY.cell / cell), cell, CITY.unit), NestedSquares(LEVELS, cell))


def study_of(points: Sequence[Floats], epsilon: float = 1.0, runs: int = 12) -> UserStudy:
    """Plan, run and compare, with real noise for the two releases."""
    from metricshuffle.planning.user_compare import compare_users
    from metricshuffle.planning.user_plan import plan_users
    from metricshuffle.privacy.target import Target

    space = city_squares()
    grid, people = space.domain, users_of(space)
    assert isinstance(grid, Grid)  # noqa: S101 - made just above
    held: Cells = [cells[:, 1] * grid.width + cells[:, 0] for cells in map(grid.cells, points)]
    target = Target(epsilon, 0.0, NEAR)
    local, central = (plan_users(UserHistogram(people), target, len(held), trusted=trusted) for trusted in ("nobody", "curator"))
    one, other = (
        compare_users(
            users_of(space, 1), len(held), epsilon=epsilon, rate=rate, delta=1e-6, runs=runs, held=held, with_items=False
        )
        for rate in (epsilon / people.diameter, target.epsilon / target.distance)
    )  # fmt: skip
    truth = people.histograms(held).mean(axis=0)
    return UserStudy((local, local.run(held)), (central, central.run(held)), truth, sum(map(len, held)), (one, other))


def merged(study: UserStudy) -> UserComparison:
    """Both comparisons in one: user-level privacy, and the tree release at either rate."""
    one, other = study.comparisons
    reach = f"epsilon {plain(one.epsilon)} up to {plain(round(other.epsilon / other.rate))} m"
    trees = [
        replace(method, name=f"tree Laplace, {words}")
        for found, words in ((one, f"epsilon {plain(one.epsilon)} for all"), (other, reach))
        for method in found.methods
        if method.hides == "earth mover"
    ]
    # People hold different numbers of items, so that randomizing each of them is left out.
    whole = [method for method in one.methods if method.hides == "user" and not method.name.endswith("every item")]
    return replace(other, methods=(*whole, *trees))


def chapter(study: UserStudy) -> str:
    """The section without its heading."""
    plan, query = study.local[0], study.local[0].query
    grid = query.people.items_in.domain
    both = merged(study)
    maps = svg(
        _maps(study), "fig-visits", "Where people spend their time: the truth and two private releases",
        " ".join(f"{name}: {plain(round(study.error(release), 1))} m of earth mover's distance from the truth." for name, _, release
                 in study.releases),
    )  # fmt: skip
    bars = svg(chart(both, query.unit), "fig-worth", "Errors of user-level privacy and of the tree release", " ".join(both.sentences()))
    rows = [
        (method.model, method.name, f"{plain(round(method.error, 1))} {query.unit}", f"{method.standard_error:.2g}")
        for method in both.methods
    ]
    numbers = table(("model", "way", "error", "standard error"), rows, numeric=(2, 3))
    legend = (("hides any replacement at epsilon 1", MUTED, "28"), ("hides moves in proportion to their distance", BLUE, "28"))
    worth = "".join(f"<p>{escape(sentence[:1].upper() + sentence[1:])}</p>" for sentence in study.comparisons[1].sentences())
    return (
        f"<p>{plan.users:,} invented people hold a month of visits each, {study.visits:,} in all, some many more than others. Not "
        f"each visit is protected but the whole month: moving the share t of it by q on average is a move of t times q (earth mover's "
        f"distance). Places are the {escape(str(grid).removeprefix('the '))}; two cells are as far apart as the diagonal of the smallest "
        f"nested square that holds both. What is wanted: how the months are spread over the city, everybody counting the same.</p>"
        f'<div class="cards">{"".join(_card(study, *one) for one in study.releases)}</div>'
        + figure(maps, "The stronger the colour, the more time is spent there. Left: the truth, known because these people are invented.")
        + worth
        + figure(bars, f"Mean error over {both.runs} simulated releases, with two standard errors; the axis is logarithmic.", legend)
        + details("The numbers", numbers)
    )


def _card(study: UserStudy, title: str, plan: UserPlan, release: UserRelease) -> str:
    unit, error = release.query.unit, study.error(release)
    facts = (
        ("expected", f"{plain(round(plan.choice.expected_error, 1))} {unit}, for time spent evenly"),
        ("way", f"{plan.choice.name}, {plan.choice.bits_per_user:,} bits a person"),
    )
    promises = [("If the curator is honest" if plan.choice.model == "central" else "Whoever colludes", str(release.guarantee), "")]
    if plan.choice.model == "central":
        promises.append(("If it is not", str(release.if_shuffler_colludes), " broken"))
    promises.append(("What that is not", release.full_replacement, " broken"))
    return (
        f"<div><h3>{escape(title)}</h3><p class=answer>{plain(round(error, 1))}<small> {escape(unit)}</small></p>"
        "<p class=caption>earth mover's distance to the truth</p>"
        "<dl>" + "".join(f"<dt>{name}</dt><dd>{escape(words)}</dd>" for name, words in facts) + "</dl>"
        + "".join(f'<div class="promise{kind}"><b>{name}</b>{escape(words)}</div>' for name, words, kind in promises)
        + "</div>"
    )  # fmt: skip


def _maps(study: UserStudy) -> Spec:
    """Three maps of the same cells."""
    grid = study.local[1].query.people.items_in.domain
    assert isinstance(grid, Grid)  # noqa: S101 - as in study_of
    top = float(max(study.truth.max(), *(max(release.value) for _, _, release in study.releases)))
    shown = [("The truth", study.truth), *((name, np.array(release.value)) for name, _, release in study.releases)]
    return {"hconcat": [_map(name, shares, grid, top) for name, shares in shown], "spacing": 22}


def _map(title: str, shares: Floats, grid: Grid, top: float) -> Spec:
    cells = [
        {"x": int(column), "x2": int(column) + 1, "y": int(row), "y2": int(row) + 1, "o": round(float(share) / top, 3)}
        for (column, row), share in zip(grid.all_values(), shares, strict=True)
    ]
    ends: Spec = {"x2": {"field": "x2"}, "y2": {"field": "y2"}}
    bare: Spec = {"title": None, "axis": None}
    layers: list[Spec] = [
        {"data": {"values": cells}, "mark": {"type": "rect", "filled": False, "stroke": GRID, "strokeWidth": 1}, "encoding": ends},
        {
            "data": {"values": cells}, "mark": {"type": "rect", "color": BLUE},
            "encoding": {**ends, "opacity": {"field": "o", "type": "quantitative", "scale": None}},
        },
        {"data": {"values": [{"x": 0, "x2": grid.width, "y": 0, "y2": grid.height}]},
         "mark": {"type": "rect", "filled": False, "stroke": INK, "strokeWidth": 0.75}, "encoding": ends},
    ]  # fmt: skip
    base = {
        "x": x(**bare, scale={"domain": [0, grid.width], "nice": False}),
        "y": y(**bare, scale={"domain": [0, grid.height], "nice": False}),
    }
    return panel(title, layers, base, 240, round(240 * grid.height / grid.width))
