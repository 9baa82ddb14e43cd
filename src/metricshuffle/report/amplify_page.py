"""Page of `amplify --plot`: bounds by users and distance, privacy profile, trade-off curve."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from metricshuffle.amplification.amplify import Amplification
from metricshuffle.numerics.rounding import (
    format_delta,
    format_epsilon,
    format_lower_bound,
    format_number,
)
from metricshuffle.privacy.dominating_pair import MAX_LOSS, TradeOff, trade_off
from metricshuffle.report.charts.vega import (
    BLUE,
    INK,
    MUTED,
    NUMBERS,
    WATER,
    Spec,
    drawing,
    line,
    log_scale,
    number_format,
    panel,
    x,
    y,
)
from metricshuffle.report.components import Figure, Key, TextTable
from metricshuffle.report.template_engine import render_template

MIN_AXIS_VALUE = 1e-12
CHART_RELATIVE_TOLERANCE = 3e-3  # a hundredth of a pixel
CURVE_STEPS = 16  # from 0 to twice the epsilon of the answer
TYPE_I_ERRORS = (0.001, 0.01, 0.05, 0.1, 0.2, 0.3, 0.5)
TRADE_OFF = (
    Key("shuffled reports, at least", BLUE),
    Key("one report alone", MUTED, "2 3"),
    Key("indistinguishable inputs", MUTED),
)
LEGEND = (
    Key("upper bound, certified", BLUE),
    Key("lower bound", INK, "6 4"),
    Key("one report alone", MUTED, "2 3"),
)
# A band of at most this relative width is hidden by the lines of its bounds.
MERGED_BAND_RELATIVE_WIDTH = 0.03
UNSEEN_RELATIVE_WIDTH = 1e-4


class NamedRandomizer(Protocol):
    """A randomizer as the command line names it, with the values of its options (None: omitted)."""

    @property
    def name(self) -> str: ...
    @property
    def values(self) -> Mapping[str, Any]: ...
    @property
    def distance(self) -> float | None: ...
    @property
    def remark(self) -> str: ...
    def amplification(
        self, users: int, honest: str | None, rounds: int, relative: float | None = None
    ) -> Amplification: ...


class Point(NamedTuple):
    """Lower and upper bound at one position, and the value of one unshuffled report there."""

    at: float
    low: float
    high: float
    alone: float


@dataclass(frozen=True)
class ChartSection:
    name: str
    title: str
    figure: Figure
    numbers: TextTable


@dataclass(frozen=True)
class Question:
    """Epsilon at a given delta, or delta at a given epsilon; the requested one is None."""

    delta: float | None
    epsilon: float | None

    @property
    def asked(self) -> str:
        return "epsilon" if self.delta is not None else "delta"

    @property
    def fixed(self) -> str:
        return (
            f"delta {format_delta(self.delta)}"
            if self.delta is not None
            else f"epsilon {format_epsilon(self.epsilon or 0.0)}"
        )

    def point(self, at: float, answer: Amplification, distance: float) -> Point:
        if self.delta is not None:
            band = answer.epsilon(self.delta, distance)
            return Point(at, band.lower, band.upper, answer.local.pure(distance))
        band = answer.delta(self.epsilon or 0.0, distance)
        return Point(at, band.lower, band.upper, answer.local.delta(self.epsilon or 0.0, distance))


def page(
    randomizer: NamedRandomizer,
    users: int,
    honest: str | None,
    rounds: int,
    delta: float | None,
    epsilon: float | None,
    answer: Amplification,
) -> str:
    """Return one self-contained HTML document with the charts, and their numbers as tables.

    `answer` is the result that the terminal prints, and the page shows the same digits. The points
    around it are computed with a coarser tolerance, and are certified as well.
    """
    question = Question(delta, epsilon)
    rough = randomizer.amplification(users, honest, rounds, CHART_RELATIVE_TOLERANCE)
    asked_distance = answer.distance if randomizer.distance is None else randomizer.distance
    count = answer.users
    exact = question.point(float(count), answer, asked_distance)
    over_users = [
        exact
        if people == count
        else question.point(
            float(people),
            randomizer.amplification(people, None, rounds, CHART_RELATIVE_TOLERANCE),
            asked_distance,
        )
        for people in _around(count)
    ]
    over_distance = [
        question.point(distance, answer if distance == asked_distance else rough, distance)
        for distance in _distances(randomizer, answer, asked_distance)
    ]
    pairs = answer.pairs_at(asked_distance)
    crowd = "1 honest user" if count == 1 else f"{count:,} honest users"
    hidden = f"{pairs[0].upper()}{pairs[1:]}"
    sections = [
        _section(
            "users",
            "Against the number of honest users",
            question,
            over_users,
            hidden,
            logarithmic=True,
        )
    ]
    if len(over_distance) > 1:
        sections.append(
            _section(
                "distance",
                "Against the distance",
                question,
                over_distance,
                crowd,
                logarithmic=False,
            )
        )
    curve = _profile(answer, rough, asked_distance, exact.high if epsilon is None else epsilon)
    if len(curve) > 1:
        where = f"{hidden}, {crowd}"
        sections += [
            _profile_section(curve, where),
            _trade_off_section(answer, curve, asked_distance, where),
        ]
    explanation = answer.explain(delta, randomizer.distance, epsilon=epsilon)
    return render_template(
        "amplify.html.jinja",
        randomizer=randomizer.name,
        words=" ".join(filter(None, [explanation, randomizer.remark])),
        parameters=", ".join(
            f"{name} {_as_typed(value)}"
            for name, value in randomizer.values.items()
            if value is not None
        ),
        sections=sections,
    )


def _as_typed(value: object) -> str:
    """Format a number with all its digits and thousands separators, without a trailing ".0"."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        value = int(value)
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _profile(
    answer: Amplification, rough: Amplification, distance: float, middle: float
) -> list[Point]:
    """Return delta at epsilons from 0 to twice `middle`; empty if that is 0 or too large."""
    end = min(2.0 * middle, answer.local.pure(distance) * answer.rounds)
    if not 0.0 < end < MAX_LOSS:
        return []
    points = []
    for at in sorted(
        {*(end * step / CURVE_STEPS for step in range(CURVE_STEPS + 1)), min(middle, end)}
    ):
        band = (answer if at == middle else rough).delta(at, distance)
        points.append(Point(at, band.lower, band.upper, answer.local.delta(at, distance)))
    return points


def _around(users: int) -> list[int]:
    """User counts from a hundredth of `users` to a hundred times as many."""
    counts = {min(10**13, max(1, round(users * 10.0 ** (step / 3.0)))) for step in range(-6, 7)}
    return sorted(counts | {users})


def _distances(
    randomizer: NamedRandomizer, answer: Amplification, distance_asked: float
) -> list[float]:
    """Eight distances for a randomizer with a metric; only the requested one for the others."""
    if randomizer.name == "metric":
        reach = randomizer.values["reach"]
        reach_other = randomizer.values["reach-other"]
        smallest = abs(reach - (reach_other or reach))
        return [
            distance
            for step in range(1, 9)
            if (distance := distance_asked * step / 8.0) >= smallest
        ]
    if randomizer.name in ("laplace", "witch-hat", "exponential", "pem"):
        return sorted({*(answer.distance * step / 8.0 for step in range(1, 9)), distance_asked})
    return [distance_asked]


def _section(
    name: str, title: str, question: Question, points: list[Point], where: str, *, logarithmic: bool
) -> ChartSection:
    asked = question.asked
    fixed = f"{where}, {question.fixed}."
    return _band_section(name, title, asked, points, fixed, along=name, logarithmic=logarithmic)


def _profile_section(points: list[Point], where: str) -> ChartSection:
    return _band_section(
        "profile",
        "Delta against epsilon",
        "delta",
        points,
        f"{where}.",
        along="epsilon",
        logarithmic=False,
    )


def _band_section(
    name: str,
    title: str,
    asked: str,
    points: list[Point],
    fixed: str,
    *,
    along: str,
    logarithmic: bool,
) -> ChartSection:
    chart_drawing = drawing(
        _chart(points, along, asked, logarithmic=logarithmic),
        name,
        f"{asked} {title.lower()}" if name != "profile" else title,
        f"The band between the lower and the upper bound on {asked}. {fixed}",
    )
    caption = f"{fixed} {_band_in_words(points)}"
    written = format_epsilon if asked == "epsilon" else format_delta
    rows = [
        (
            format_number(point.at),
            format_lower_bound(point.low),
            written(point.high),
            written(point.alone),
        )
        for point in points
    ]
    head = (along, f"{asked} at least", f"{asked} at most", "one report alone")
    return ChartSection(
        name, title, Figure(chart_drawing, caption, LEGEND), TextTable(head, rows, numeric=range(4))
    )


def _band_in_words(points: list[Point]) -> str:
    """Describe the band; where both bounds coincide in the drawing, say so."""
    certified = "nothing below it can be promised, and its upper end is certified"
    gaps = [
        point.high / point.low - 1.0 if point.low > 0.0 else math.inf
        for point in points
        if 0.0 < point.high < math.inf
    ]
    if not gaps or min(gaps) > MERGED_BAND_RELATIVE_WIDTH:
        return f"The truth lies in the shaded band: {certified}."
    if max(gaps) <= MERGED_BAND_RELATIVE_WIDTH:
        close = (
            f"less than {format_number(100.0 * UNSEEN_RELATIVE_WIDTH)}"
            if max(gaps) < UNSEEN_RELATIVE_WIDTH
            else f"at most {format_delta(100.0 * max(gaps))}"
        )
        return (
            f"Both bounds are {close} % apart, so that the dashes of the lower one lie on the "
            "line of the upper one. The truth is there."
        )
    return (
        f"The truth lies in the shaded band: {certified}. Where the dashes lie on the line, "
        "both bounds are nearly the same."
    )


def _trade_off_section(
    answer: Amplification, points: list[Point], distance: float, where: str
) -> ChartSection:
    """Least type II error of a test between two inputs, by its type I error.

    Computed from the deltas in `points`.
    """
    shuffled = trade_off([point.at for point in points], [point.high for point in points])
    alone = _alone(answer, distance)
    curves = [
        line(list(zip(*(axis.tolist() for axis in curve.points), strict=True)), colour, dash, width)
        for curve, colour, dash, width in (
            (alone, MUTED, (2, 3), 2.25),
            (shuffled, BLUE, None, 3.0),
        )
    ]
    encoding = {
        "x": x(
            title="false alarms (type I error)",
            scale={"domain": [0, 1], "nice": False},
            axis={"tickCount": 6, "grid": False},
        ),
        "y": y(
            title="misses (type II error)",
            scale={"domain": [0, 1], "nice": False},
            axis={"tickCount": 6},
        ),
    }
    described = (
        "A test between the two inputs with this rate of false alarms has at least this rate "
        f"of misses. {where}."
    )
    chart_drawing = drawing(
        panel("", [*curves, line([(0.0, 1.0), (1.0, 0.0)], MUTED, width=1.0)], encoding, 640, 330),
        "tradeoff",
        "trade-off curve",
        described,
    )
    rows = [
        (
            format_number(error),
            format_lower_bound(shuffled(error)),
            format_lower_bound(alone(error)),
            format_number(1.0 - error),
        )
        for error in TYPE_I_ERRORS
    ]
    head = ("false alarms", "misses, at least", "one report alone", "indistinguishable")
    caption = (
        f"{described} Certified from below; it is the trade-off function of f-differential privacy."
    )
    return ChartSection(
        "tradeoff",
        "Trade-off between two errors",
        Figure(chart_drawing, caption, TRADE_OFF),
        TextTable(head, rows, numeric=range(4)),
    )


def _alone(answer: Amplification, distance: float) -> TradeOff:
    """Trade-off function of one unshuffled report of one round."""
    end = min(answer.local.pure(distance), 30.0)
    at = [end * step / CURVE_STEPS for step in range(CURVE_STEPS + 1)] if end > 0.0 else [0.0]
    return trade_off(at, [min(1.0, answer.local.delta(epsilon, distance)) for epsilon in at])


def _chart(points: list[Point], along: str, asked: str, *, logarithmic: bool) -> Spec:
    finite = [point for point in points if math.isfinite(point.high)]
    smallest = min(
        (value for point in finite for value in (point.low, point.high) if value > 0.0),
        default=MIN_AXIS_VALUE,
    )
    largest = max(
        (value for point in finite for value in (point.high, point.alone) if math.isfinite(value)),
        default=1.0,
    )
    floor = max(MIN_AXIS_VALUE, 0.7 * smallest)
    top = 1.3 * max(largest, 2.0 * smallest)
    below = 1e-3 * floor  # lower values are clipped by the chart
    band = [
        {"x": point.at, "y": max(point.low, below), "top": max(point.high, below)}
        for point in finite
    ]
    shaded: Spec = {
        "data": {"values": band},
        "mark": {"type": "area", "color": WATER, "opacity": 0.75, "clip": True},
        "encoding": {"x": x(), "y": y(), "y2": {"field": "top"}},
    }
    layers: list[Spec] = [
        shaded,
        line(
            [(point.at, point.alone) for point in finite if floor <= point.alone < math.inf],
            MUTED,
            (2, 3),
        ),
        line([(point.at, max(point.high, below)) for point in finite], BLUE, width=4.0),
        line([(point.at, max(point.low, below)) for point in finite], INK, (6, 4), width=1.5),
    ]
    first = points[0].at
    last = points[-1].at
    across: Spec = {
        "scale": {"domain": [0, last], "nice": False},
        "axis": {"tickCount": 6, "grid": False},
    }
    if logarithmic and last > first:
        across = {
            "scale": log_scale(first, last),
            "axis": {"values": _decades(first, last), "format": NUMBERS, "grid": False},
        }
    up: Spec = {
        "scale": log_scale(floor, top),
        "axis": {"values": _powers(floor, top), "format": number_format(floor)},
    }
    return panel("", layers, {"x": x(title=along, **across), "y": y(title=asked, **up)}, 640, 330)


def _decades(low: float, high: float) -> list[float]:
    return [10.0**power for power in range(14) if low <= 10.0**power <= high] or [low, high]


def _powers(low: float, high: float) -> list[float]:
    """Powers of ten within a range, at most about eight; the ends if no power lies within."""
    powers_of_ten = [
        float(f"1e{power}")
        for power in range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)
    ]
    return powers_of_ten[:: 1 + len(powers_of_ten) // 8] or [low, high]
