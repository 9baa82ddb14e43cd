"""The page of `amplify --plot`: the band against the number of users, and against the distance."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from metricshuffle.amplification.amplify import Amplification
from metricshuffle.numerics.rounding import plain, promised
from metricshuffle.pages.charts.marks import BLUE, MUTED, WATER, Spec, drawing, line, log_scale, panel, powers, x, y
from metricshuffle.pages.elements import Figure, Key, Table
from metricshuffle.pages.rendering import rendered

SHORTEST = 1e-12
ROUGHLY = 3e-3  # a hundredth of a pixel
LEGEND = (Key("upper bound, certified", BLUE), Key("lower bound", BLUE, "6 4"), Key("one report alone", MUTED, "2 3"))


class NamedRandomizer(Protocol):
    """A randomizer as the command line names it, with the values of its options (None: left out)."""

    @property
    def name(self) -> str: ...
    @property
    def values(self) -> Mapping[str, Any]: ...
    @property
    def distance(self) -> float | None: ...
    @property
    def remark(self) -> str: ...
    def amplification(self, users: int, honest: str | None, rounds: int, relative: float | None = None) -> Amplification: ...


class Point(NamedTuple):
    """Both ends of the band at a place, and what one report has there alone."""

    at: float
    low: float
    high: float
    alone: float


@dataclass(frozen=True)
class Section:
    name: str
    title: str
    figure: Figure
    numbers: Table


@dataclass(frozen=True)
class Question:
    """Epsilon at that delta, or delta at that epsilon: the other one is None."""

    delta: float | None
    epsilon: float | None

    @property
    def asked(self) -> str:
        return "epsilon" if self.delta is not None else "delta"

    @property
    def fixed(self) -> str:
        return f"delta {self.delta:g}" if self.delta is not None else f"epsilon {self.epsilon:g}"

    def point(self, at: float, answer: Amplification, distance: float) -> Point:
        if self.delta is not None:
            band = answer.epsilon(self.delta, distance)
            return Point(at, band.lower, band.upper, answer.local.pure(distance))
        band = answer.delta(self.epsilon or 0.0, distance)
        return Point(at, band.lower, band.upper, answer.local.delta(self.epsilon or 0.0, distance))


def page(randomizer: NamedRandomizer, users: int, honest: str | None, rounds: int, delta: float | None, epsilon: float | None) -> str:
    """One HTML document without any link: both charts, and their numbers as tables."""
    question = Question(delta, epsilon)
    answer = randomizer.amplification(users, honest, rounds, ROUGHLY)
    far = answer.distance if randomizer.distance is None else randomizer.distance
    over_users = [question.point(float(count), randomizer.amplification(count, honest, rounds, ROUGHLY), far) for count in _around(users)]
    over_distance = [question.point(distance, answer, distance) for distance in _distances(randomizer, answer, far)]
    sections = [_section("users", "Against the number of users", question, over_users, f"Distance {plain(far)}", logarithmic=True)]
    if len(over_distance) > 1:
        sections.append(_section("distance", "Against the distance", question, over_distance, f"{users:,} users", logarithmic=False))
    words = f"delta of {users:,} shuffled reports at {question.fixed}." if delta is None else answer.explain(delta, randomizer.distance)
    return rendered(
        "amplify.html.jinja",
        randomizer=randomizer.name,
        words=f"{words} {randomizer.remark}".rstrip(),
        parameters=", ".join(f"{name} {value}" for name, value in randomizer.values.items() if value is not None),
        sections=sections,
    )


def _around(users: int) -> list[int]:
    """A hundredth to a hundred times as many users."""
    counts = {min(10**13, max(1, round(users * 10.0 ** (step / 3.0)))) for step in range(-6, 7)}
    return sorted(counts | {users})


def _distances(randomizer: NamedRandomizer, answer: Amplification, far: float) -> list[float]:
    """Eight distances for a randomizer that has any; for the others distance says only same or different."""
    if randomizer.name == "metric":
        reach, other = randomizer.values["reach"], randomizer.values["reach-other"]
        smallest = abs(reach - (other or reach))
        return [distance for step in range(1, 9) if (distance := far * step / 8.0) >= smallest]
    if randomizer.name in ("laplace", "witch-hat"):
        return [answer.distance * step / 8.0 for step in range(1, 9)]
    return [far]


def _section(name: str, title: str, question: Question, points: list[Point], where: str, *, logarithmic: bool) -> Section:
    asked, fixed = question.asked, f"{where}, {question.fixed}."
    drawn = drawing(
        _chart(points, name, asked, logarithmic=logarithmic),
        name,
        f"{asked} {title.lower()}",
        f"The band between the lower and the upper bound on {asked}. {fixed}",
    )
    caption = f"{fixed} The truth lies in the shaded band: nothing below it can be promised, and its upper end is certified."
    rows = [(plain(point.at), f"{point.low:.4g}", promised(point.high), promised(point.alone)) for point in points]
    head = (name, f"{asked} at least", f"{asked} at most", "one report alone")
    return Section(name, title, Figure(drawn, caption, LEGEND), Table(head, rows, numeric=range(4)))


def _chart(points: list[Point], along: str, asked: str, *, logarithmic: bool) -> Spec:
    finite = [point for point in points if math.isfinite(point.high)]
    smallest = min((value for point in finite for value in (point.low, point.high) if value > 0.0), default=SHORTEST)
    largest = max((value for point in finite for value in (point.high, point.alone) if math.isfinite(value)), default=1.0)
    floor, top = max(SHORTEST, 0.7 * smallest), 1.3 * max(largest, 2.0 * smallest)
    band = [{"x": point.at, "y": max(point.low, floor), "top": max(point.high, floor)} for point in finite]
    shaded: Spec = {
        "data": {"values": band},
        "mark": {"type": "area", "color": WATER, "opacity": 0.75, "clip": True},
        "encoding": {"x": x(), "y": y(), "y2": {"field": "top"}},
    }
    layers: list[Spec] = [
        shaded,
        line([(point.at, point.alone) for point in finite if floor <= point.alone < math.inf], MUTED, (2, 3)),
        line([(point.at, max(point.low, floor)) for point in finite], BLUE, (6, 4)),
        line([(point.at, max(point.high, floor)) for point in finite], BLUE, width=3.0),
    ]
    first, last = points[0].at, points[-1].at
    across: Spec = {"scale": {"domain": [0, last], "nice": False}, "axis": {"tickCount": 6, "grid": False}}
    if logarithmic and last > first:
        across = {"scale": log_scale(first, last), "axis": {"values": _decades(first, last), "format": ".0e", "grid": False}}
    up: Spec = {"scale": log_scale(floor, top), "axis": {"values": powers(floor, top) or [floor, top], "format": "~g"}}
    return panel("", layers, {"x": x(title=along, **across), "y": y(title=asked, **up)}, 640, 330)


def _decades(low: float, high: float) -> list[float]:
    return [10.0**power for power in range(14) if low <= 10.0**power <= high] or [low, high]
