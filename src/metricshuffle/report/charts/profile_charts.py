"""Charts of profiles: delta against epsilon, epsilon against distance, and bands of bounds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from metricshuffle.amplification.amplify import Amplification
from metricshuffle.amplification.groups import GroupsAmplification
from metricshuffle.errors import InputError
from metricshuffle.numerics.rounding import (
    format_delta,
    format_distance,
    format_epsilon,
    format_lower_bound,
    format_number,
)
from metricshuffle.privacy.profile import (
    Band,
    LowerProfile,
    PrivacyProfile,
    checked_delta,
    validate_distance,
)
from metricshuffle.report.charts.axis_charts import (
    BLUE,
    DASHED,
    DOTTED,
    GREEN,
    INK,
    MUTED,
    PURPLE,
    VERMILLION,
    Axis,
    Curve,
    Spec,
    curves,
)
from metricshuffle.report.charts.chart import Chart
from metricshuffle.report.charts.vega import WATER, x, y

COLOURS = (BLUE, VERMILLION, GREEN, PURPLE, INK)
SMALLEST_DELTA = 1e-9
"""Delta at which curves end."""
DELTAS = tuple(float(f"1e{power}") for power in range(-12, -1))
FEWER_DELTAS = DELTAS[2::2]
"""Deltas of charts of several groups, because each group takes a while."""
CURVE_STEPS = 24
MAX_DRAWN_EPSILON = 700.0  # the largest double is about e^709
WIDTH = 560
HEIGHT = 320
EPSILON = Axis("epsilon")
DELTA = Axis("delta", logarithmic=True, format=".0e")

Delta = Callable[[float], float]


def known_distance(profile: object) -> float | None:
    """Largest distance that a profile specifies; None if it holds for any distance."""
    for name in ("widest", "diameter", "distance"):
        distance = getattr(profile, name, None)
        if isinstance(distance, int | float) and 0.0 < distance < math.inf:
            return float(distance)
    return None


def check_values(
    values: float | Sequence[float], checked: Callable[[float], float], what: str
) -> list[float]:
    """Return one or several checked values, at most as many as there are colours."""
    several = [values] if isinstance(values, int | float) else list(values)
    if not 1 <= len(several) <= len(COLOURS):
        raise InputError(
            f"plot draws one to {len(COLOURS)} curves: {what} must be a number or up to "
            f"{len(COLOURS)} of them."
        )
    return [checked(value) for value in several]


def delta_chart(profile: PrivacyProfile, distances: float | Sequence[float] | None) -> Chart:
    """Chart of delta against epsilon, with one curve per distance."""
    at = check_values(
        known_distance(profile) or 1.0 if distances is None else distances,
        validate_distance,
        "distance",
    )
    lines = []
    for distance, colour in zip(at, COLOURS, strict=False):
        end = next(
            (
                end
                for delta in (SMALLEST_DELTA, 1e-3)
                if math.isfinite(end := profile.epsilon(delta, distance))
            ),
            math.inf,
        )
        lines.append(
            _delta_curve(
                lambda epsilon, at_distance=distance: profile.delta(epsilon, at_distance),  # type: ignore[misc]
                end,
                distance,
                colour,
            )
        )
    descriptions = [
        f"at distance {format_distance(at_distance)} it is "
        f"{_epsilon_text(profile.epsilon(1e-6, at_distance))} with delta 1e-06"
        for at_distance in at
    ]
    return _deltas(
        lines,
        "What is promised",
        f"The least delta that is certified, against epsilon ({profile.bound}): "
        f"{'; '.join(descriptions)}.",
    )


def lower_delta_chart(profile: LowerProfile, distances: float | Sequence[float] | None) -> Chart:
    """Chart of a lower bound on delta against epsilon, with one curve per distance."""
    at = check_values(
        known_distance(profile) or 1.0 if distances is None else distances,
        validate_distance,
        "distance",
    )
    lines = []
    for distance, colour in zip(at, COLOURS, strict=False):
        end = 2.0**-10
        while end < MAX_DRAWN_EPSILON and profile.delta(end, distance) > SMALLEST_DELTA:
            end *= 2.0
        lines.append(
            _delta_curve(
                lambda epsilon, at_distance=distance: profile.delta(epsilon, at_distance),  # type: ignore[misc]
                end,
                distance,
                colour,
            )
        )
    descriptions = [
        f"at distance {format_distance(at_distance)}, epsilon 0, delta is at least "
        f"{format_lower_bound(profile.delta(0.0, at_distance))}"
        for at_distance in at
    ]
    return _deltas(
        lines,
        "What is given away",
        f"No analysis can promise less than this ({profile.bound}): {'; '.join(descriptions)}.",
    )


def _epsilon_text(epsilon: float) -> str:
    return f"epsilon {format_epsilon(epsilon)}" if math.isfinite(epsilon) else "no finite epsilon"


def _delta_curve(delta: Delta, end: float, distance: float, colour: str) -> Curve:
    """Curve of delta from epsilon 0 to where it is negligible."""
    if not 0.0 < end < MAX_DRAWN_EPSILON:
        return Curve(f"distance {format_distance(distance)}", [], colour)
    at = (
        [end * step / CURVE_STEPS for step in range(CURVE_STEPS)]
        + [end * (1.0 - 2.0**-power) for power in range(5, 12)]
        + [end]
    )
    return Curve(
        f"distance {format_distance(distance)}",
        [(epsilon, delta(epsilon)) for epsilon in at],
        colour,
    )


def _deltas(lines: list[Curve], title: str, description: str) -> Chart:
    visible = [
        Curve(c.name, [point for point in c.points if point[1] >= SMALLEST_DELTA / 2], c.colour)
        for c in lines
    ]
    if not any(curve.points for curve in visible):
        raise InputError(
            "there is nothing to plot: delta is negligible at every epsilon, or no epsilon "
            "is finite; ask at another distance."
        )
    return Chart(
        curves(visible, EPSILON, DELTA, width=WIDTH, height=HEIGHT), "profile", title, description
    )


def epsilon_chart(
    profile: PrivacyProfile,
    deltas: float | Sequence[float],
    distance: float | Sequence[float] | None,
) -> Chart:
    """Chart of epsilon against distance, with one curve per delta."""
    max_distance = known_distance(profile) if distance is None else distance
    if not isinstance(max_distance, int | float) or not validate_distance(max_distance) > 0.0:
        raise InputError(
            "epsilon is drawn up to one distance above 0, and this profile knows of none: "
            "say plot(delta=..., distance=...)."
        )
    at = _distances(float(max_distance))
    lines = []
    descriptions = []
    for delta, colour in zip(check_values(deltas, checked_delta, "delta"), COLOURS, strict=False):
        points_found = [(0.0, 0.0), *((step, profile.epsilon(delta, step)) for step in at)]
        lines.append(Curve(f"delta {format_delta(delta)}", points_found, colour))
        descriptions.append(
            f"{_epsilon_text(points_found[-1][1])} with delta {format_delta(delta)}"
        )
    if not any(
        math.isfinite(epsilon) for curve in lines for distance, epsilon in curve.points if distance
    ):
        raise InputError(
            "there is nothing to plot: at this delta no epsilon is finite at any of these "
            "distances; allow a larger delta."
        )
    words = (
        f"The least epsilon that is certified, against the distance ({profile.bound}): at "
        f"{format_distance(max_distance)} it "
        f"is {', '.join(descriptions)}."
    )
    return Chart(
        curves(lines, Axis("distance"), EPSILON, width=WIDTH, height=HEIGHT),
        "profile",
        "What is promised",
        words,
    )


def _distances(max_distance: float) -> list[float]:
    """Evenly spaced distances, in whole steps if the last one is whole."""
    steps = (
        min(CURVE_STEPS, int(max_distance))
        if max_distance == int(max_distance) and max_distance > 1.0
        else CURVE_STEPS
    )
    spaced = [max_distance * step / steps for step in range(1, steps + 1)]
    return (
        sorted({float(round(at)) for at in spaced})
        if max_distance == int(max_distance) and max_distance > 1.0
        else spaced
    )


def band_chart(answer: Amplification, distance: float | None) -> Chart:
    """Chart of the band of epsilon against delta, and of one unshuffled report."""
    bands = [(delta, answer.epsilon(delta, distance)) for delta in DELTAS]
    asked_distance = answer.far(distance)
    alone = [(delta, _alone(answer, delta, asked_distance)) for delta in DELTAS]
    across = Axis("delta", logarithmic=True, format=".0e")
    described = f"{answer.explain(1e-6, distance)} The truth lies in the shaded band."
    return Chart(
        _banded(bands, alone, across),
        "amplification",
        "Epsilon after shuffling, against delta",
        described,
    )


def distance_band_chart(answer: Amplification, delta: float, distance: float | None) -> Chart:
    """Chart of the band of epsilon against the distance of the inputs."""
    if answer.alike:
        raise InputError(
            f"this is about {answer.alike}, which have no distance; leave delta out to "
            "plot epsilon against delta."
        )
    at = _distances(answer.far(distance))
    delta = checked_delta(delta)
    bands = [(at_distance, answer.epsilon(delta, at_distance)) for at_distance in at]
    alone = [(at_distance, _alone(answer, delta, at_distance)) for at_distance in at]
    described = f"{answer.explain(delta, distance)} The truth lies in the shaded band."
    title = f"Epsilon after shuffling, against the distance, delta {format_delta(delta)}"
    return Chart(_banded(bands, alone, Axis("distance")), "amplification", title, described)


def _alone(answer: Amplification, delta: float, distance: float) -> float:
    """Epsilon of one unshuffled report of each round, in total."""
    pure = answer.local.pure(distance)
    return answer.rounds * (pure if math.isfinite(pure) else answer.local.epsilon(delta, distance))


def _banded(
    bands: Sequence[tuple[float, Band]], alone: Sequence[tuple[float, float]], across: Axis
) -> Spec:
    band_curves = [
        Curve("at most (certified)", [(at, band.upper) for at, band in bands], BLUE),
        Curve(
            "at least (given away)", [(at, band.lower) for at, band in bands], VERMILLION, DASHED
        ),
        Curve("one report alone", alone, MUTED, DOTTED),
    ]
    finite = [(at, band) for at, band in bands if math.isfinite(band.upper)]
    if not any(band.upper > 0.0 for _, band in finite):
        raise InputError(
            "there is nothing to plot: epsilon is 0 or infinite everywhere; ask for fewer "
            "users or another distance."
        )
    lines = curves(
        band_curves, across, Axis("epsilon", logarithmic=True), width=WIDTH, height=HEIGHT
    )
    lines["mark"]["strokeCap"] = "butt"  # shows both bounds where they coincide
    floor = lines["encoding"]["y"]["scale"]["domain"][0]
    shaded: Spec = {
        "data": {
            "values": [
                {"x": at, "y": max(band.lower, floor), "top": max(band.upper, floor)}
                for at, band in finite
            ]
        },
        "mark": {"type": "area", "color": WATER, "opacity": 0.75, "clip": True},
        "encoding": {"x": x(), "y": y(), "y2": {"field": "top"}},
    }
    size = {name: lines.pop(name) for name in ("width", "height")}
    return {**size, "layer": [shaded, lines]}


def groups_chart(answers: GroupsAmplification, distance: float | None) -> Chart:
    """Chart of both bounds on epsilon against delta, for a member of each group."""
    lines = []
    descriptions = []
    for place, (answer, colour) in enumerate(zip(answers, COLOURS, strict=False), start=1):
        asked_distance = None if distance is None or answer.alike else distance
        bands = [(delta, answer.epsilon(delta, asked_distance)) for delta in FEWER_DELTAS]
        lines.append(
            Curve(f"group {place}, at most", [(at, band.upper) for at, band in bands], colour)
        )
        lines.append(
            Curve(
                f"group {place}, at least", [(at, band.lower) for at, band in bands], colour, DASHED
            )
        )
        band = dict(bands)[1e-6]
        descriptions.append(
            f"{answer.member}: epsilon between {format_lower_bound(band.lower)} and "
            f"{format_epsilon(band.upper)} at delta 1e-06."
        )
    left = len(list(answers)) - len(descriptions)
    if left:
        descriptions.append(f"{format_number(left)} more groups are not drawn.")
    spec = curves(
        lines,
        Axis("delta", logarithmic=True, format=".0e"),
        Axis("epsilon", logarithmic=True),
        width=WIDTH,
        height=HEIGHT,
    )
    return Chart(
        spec, "groups", "Epsilon of a member of each group, against delta", " ".join(descriptions)
    )
