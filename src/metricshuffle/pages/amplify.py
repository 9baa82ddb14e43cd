"""The band as a page of its own: against the number of users, and against the distance."""

from __future__ import annotations

import math
from html import escape

from metricshuffle.amplification.amplify import Amplification
from metricshuffle.cli.amplify_names import Given
from metricshuffle.pages.charts.marks import BLUE, MUTED, WATER, Spec, line, log_scale, panel, powers, svg, x, y
from metricshuffle.pages.html import details, figure, opening, table
from metricshuffle.pages.style import STYLE
from metricshuffle.privacy.guarantee import plain, promised

# a place, the lower and the upper end, and one report alone
Point = tuple[float, float, float, float]

SHORTEST = 1e-12
ROUGHLY = 3e-3  # a hundredth of a pixel


def page(given: Given, users: int, honest: str | None, rounds: int, delta: float | None, epsilon: float | None) -> str:
    """One HTML document without any link: both charts, and their numbers as tables."""
    answer = given.amplification(users, honest, rounds, ROUGHLY)
    far = answer.distance if given.distance is None else given.distance
    over_users = [(float(n), *_ends(given.amplification(n, honest, rounds, ROUGHLY), delta, epsilon, far)) for n in _around(users)]
    distances = _distances(given, answer, far)
    over_distance = [(d, *_ends(answer, delta, epsilon, d)) for d in distances]
    asked = "epsilon" if delta is not None else "delta"
    fixed = f"delta {delta:g}" if delta is not None else f"epsilon {epsilon:g}"
    sections = [
        _section("users", "Against the number of users", "users", over_users, asked, f"Distance {plain(far)}, {fixed}.", logarithmic=True),
    ]
    if len(over_distance) > 1:
        sections.append(
            _section("distance", "Against the distance", "distance", over_distance, asked, f"{users:,} users, {fixed}.", logarithmic=False)
        )
    words = answer.explain(delta, given.distance) if delta is not None else f"delta of {users:,} shuffled reports at {fixed}."
    parameters = ", ".join(f"{name} {value}" for name, value in given.values.items() if value is not None)
    return f"""{opening(f"shuffled {given.name} reports", STYLE)}
<header>
<p class="brand">metricshuffle amplify</p>
<h1>What shuffled reports hide: {escape(given.name)}</h1>
<p class="lede">{escape(words)}</p>
<p class="lede">{escape(parameters)}</p>
</header>
<main>
{"".join(sections)}
</main>
</body>
</html>
"""


def _around(users: int) -> list[int]:
    """A hundredth to a hundred times as many users."""
    found = {min(10**13, max(1, round(users * 10.0 ** (step / 3.0)))) for step in range(-6, 7)}
    return sorted(found | {users})


def _distances(given: Given, answer: Amplification, far: float) -> list[float]:
    """Eight distances for a randomizer that has any; for the others distance says only same or different."""
    if given.name == "metric":
        smallest = abs(given.values["reach"] - (given.values["reach-other"] or given.values["reach"]))
        return [d for step in range(1, 9) if (d := far * step / 8.0) >= smallest]
    if given.name in ("laplace", "witch-hat"):
        return [answer.distance * step / 8.0 for step in range(1, 9)]
    return [far]


def _ends(answer: Amplification, delta: float | None, epsilon: float | None, distance: float) -> tuple[float, float, float]:
    if delta is not None:
        band = answer.epsilon(delta, distance)
        return band.lower, band.upper, answer.local.pure(distance)
    band = answer.delta(epsilon or 0.0, distance)
    return band.lower, band.upper, answer.local.delta(epsilon or 0.0, distance)


def _section(name: str, title: str, along: str, points: list[Point], asked: str, fixed: str, *, logarithmic: bool) -> str:
    drawn = svg(_chart(points, along, asked, logarithmic=logarithmic), name, f"{asked} {title.lower()}",
                f"The band between the lower and the upper bound on {asked}. {fixed}")  # fmt: skip
    shown = figure(
        drawn,
        escape(f"{fixed} The truth lies in the shaded band: nothing below it can be promised, and its upper end is certified."),
        [("upper bound, certified", BLUE, ""), ("lower bound", BLUE, "6 4"), ("one report alone", MUTED, "2 3")],
    )
    rows = [[plain(at), f"{low:.4g}", promised(high), promised(alone)] for at, low, high, alone in points]
    numbers = table([along, f"{asked} at least", f"{asked} at most", "one report alone"], rows, numeric=(0, 1, 2, 3))
    return f'<section id="{name}"><h2>{escape(title)}</h2>\n{shown}{details("The numbers", numbers)}</section>\n'


def _chart(points: list[Point], along: str, asked: str, *, logarithmic: bool) -> Spec:
    finite = [point for point in points if math.isfinite(point[2])]
    smallest = min((value for _, low, high, _ in finite for value in (low, high) if value > 0.0), default=SHORTEST)
    largest = max((value for _, _, high, alone in finite for value in (high, alone) if math.isfinite(value)), default=1.0)
    floor, top = max(SHORTEST, 0.7 * smallest), 1.3 * max(largest, 2.0 * smallest)
    area = [{"x": at, "y": max(low, floor), "top": max(high, floor)} for at, low, high, _ in finite]
    layers: list[Spec] = [
        {
            "data": {"values": area}, "mark": {"type": "area", "color": WATER, "opacity": 0.75, "clip": True},
            "encoding": {"x": x(), "y": y(), "y2": {"field": "top"}},
        },
        line([(at, alone) for at, _, _, alone in finite if floor <= alone < math.inf], MUTED, (2, 3)),
        line([(at, max(low, floor)) for at, low, _, _ in finite], BLUE, (6, 4)),
        line([(at, max(high, floor)) for at, _, high, _ in finite], BLUE, width=3.0),
    ]  # fmt: skip
    first, last = points[0][0], points[-1][0]
    across: Spec = (
        {"scale": log_scale(first, last), "axis": {"values": _decades(first, last), "format": ".0e", "grid": False}}
        if logarithmic and last > first
        else {"scale": {"domain": [0, last], "nice": False}, "axis": {"tickCount": 6, "grid": False}}
    )
    up: Spec = {"scale": log_scale(floor, top), "axis": {"values": powers(floor, top) or [floor, top], "format": "~g"}}
    return panel("", layers, {"x": x(title=along, **across), "y": y(title=asked, **up)}, 640, 330)


def _decades(low: float, high: float) -> list[float]:
    return [10.0**power for power in range(14) if low <= 10.0**power <= high] or [low, high]
