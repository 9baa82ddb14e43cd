"""Charts of what is hidden: delta against epsilon, epsilon against the distance, and the band between what is promised and given away."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from metricshuffle.amplification.amplify import Amplification
from metricshuffle.amplification.groups import GroupsAmplification
from metricshuffle.errors import InputError
from metricshuffle.numerics.rounding import at_least, plain, promised, promised_delta, reached
from metricshuffle.pages.charts.amplification import BLUE, DASHED, DOTTED, GREEN, INK, MUTED, PURPLE, VERMILLION, Axis, Curve, Spec, curves
from metricshuffle.pages.charts.chart import Chart
from metricshuffle.pages.charts.marks import WATER, x, y
from metricshuffle.privacy.profile import Band, LowerProfile, PrivacyProfile, checked_delta, checked_distance

COLOURS = (BLUE, VERMILLION, GREEN, PURPLE, INK)
SMALLEST_DELTA = 1e-9
"""Where curves of delta end."""
DELTAS = tuple(float(f"1e{power}") for power in range(-12, -1))
FEWER_DELTAS = DELTAS[2::2]
"""For several groups, each of which takes its time."""
STEPS = 24
FARTHEST = 700.0  # e^709 is the largest a double holds
WIDTH, HEIGHT = 560, 320
EPSILON, DELTA = Axis("epsilon"), Axis("delta", logarithmic=True, format=".0e")

Delta = Callable[[float], float]


def known_distance(profile: object) -> float | None:
    """The largest distance that a profile knows of; None if it is about any."""
    for name in ("widest", "diameter", "distance"):
        far = getattr(profile, name, None)
        if isinstance(far, int | float) and 0.0 < far < math.inf:
            return float(far)
    return None


def listed(values: float | Sequence[float], checked: Callable[[float], float], what: str) -> list[float]:
    """One value or several, at most as many as there are colours."""
    several = [values] if isinstance(values, int | float) else list(values)
    if not 1 <= len(several) <= len(COLOURS):
        raise InputError(f"plot draws one to {len(COLOURS)} curves: {what} must be a number or up to {len(COLOURS)} of them.")
    return [checked(value) for value in several]


def delta_chart(profile: PrivacyProfile, distances: float | Sequence[float] | None) -> Chart:
    """delta against epsilon, a curve for each distance."""
    at = listed(known_distance(profile) or 1.0 if distances is None else distances, checked_distance, "distance")
    drawn = []
    for distance, colour in zip(at, COLOURS, strict=False):
        end = next((end for delta in (SMALLEST_DELTA, 1e-3) if math.isfinite(end := profile.epsilon(delta, distance))), math.inf)
        drawn.append(_delta_curve(lambda epsilon, far=distance: profile.delta(epsilon, far), end, distance, colour))  # type: ignore[misc]
    told = [f"at distance {reached(far)} it is {_told(profile.epsilon(1e-6, far))} with delta 1e-06" for far in at]
    return _deltas(drawn, "What is promised", f"The least delta that is certified, against epsilon ({profile.bound}): {'; '.join(told)}.")


def lower_delta_chart(profile: LowerProfile, distances: float | Sequence[float] | None) -> Chart:
    """The same from below: what is certainly given away."""
    at = listed(known_distance(profile) or 1.0 if distances is None else distances, checked_distance, "distance")
    drawn = []
    for distance, colour in zip(at, COLOURS, strict=False):
        end = 2.0**-10
        while end < FARTHEST and profile.delta(end, distance) > SMALLEST_DELTA:
            end *= 2.0
        drawn.append(_delta_curve(lambda epsilon, far=distance: profile.delta(epsilon, far), end, distance, colour))  # type: ignore[misc]
    told = [f"at distance {reached(far)}, epsilon 0, delta is at least {at_least(profile.delta(0.0, far))}" for far in at]
    return _deltas(drawn, "What is given away", f"No analysis can promise less than this ({profile.bound}): {'; '.join(told)}.")


def _told(epsilon: float) -> str:
    return f"epsilon {promised(epsilon)}" if math.isfinite(epsilon) else "no finite epsilon"


def _delta_curve(delta: Delta, end: float, distance: float, colour: str) -> Curve:
    """delta at epsilons from 0 to where it is negligible."""
    if not 0.0 < end < FARTHEST:
        return Curve(f"distance {reached(distance)}", [], colour)
    at = [end * step / STEPS for step in range(STEPS)] + [end * (1.0 - 2.0**-power) for power in range(5, 12)] + [end]
    return Curve(f"distance {reached(distance)}", [(epsilon, delta(epsilon)) for epsilon in at], colour)


def _deltas(drawn: list[Curve], title: str, description: str) -> Chart:
    kept = [Curve(c.name, [point for point in c.points if point[1] >= SMALLEST_DELTA / 2], c.colour) for c in drawn]
    if not any(curve.points for curve in kept):
        raise InputError(
            "there is nothing to plot: delta is negligible at every epsilon, or no epsilon is finite; ask at another distance."
        )
    return Chart(curves(kept, EPSILON, DELTA, width=WIDTH, height=HEIGHT), "profile", title, description)


def epsilon_chart(profile: PrivacyProfile, deltas: float | Sequence[float], distance: float | Sequence[float] | None) -> Chart:
    """epsilon against the distance, a curve for each delta."""
    far = known_distance(profile) if distance is None else distance
    if not isinstance(far, int | float) or not checked_distance(far) > 0.0:
        raise InputError("epsilon is drawn up to one distance above 0, and this profile knows of none: say plot(delta=..., distance=...).")
    at = _distances(float(far))
    drawn, told = [], []
    for delta, colour in zip(listed(deltas, checked_delta, "delta"), COLOURS, strict=False):
        found = [(0.0, 0.0), *((step, profile.epsilon(delta, step)) for step in at)]
        drawn.append(Curve(f"delta {promised_delta(delta)}", found, colour))
        told.append(f"{_told(found[-1][1])} with delta {promised_delta(delta)}")
    if not any(math.isfinite(epsilon) for curve in drawn for distance, epsilon in curve.points if distance):
        raise InputError("there is nothing to plot: at this delta no epsilon is finite at any of these distances; allow a larger delta.")
    words = f"The least epsilon that is certified, against the distance ({profile.bound}): at {reached(far)} it is {', '.join(told)}."
    return Chart(curves(drawn, Axis("distance"), EPSILON, width=WIDTH, height=HEIGHT), "profile", "What is promised", words)


def _distances(far: float) -> list[float]:
    """Evenly spaced, and in whole steps where the last one is whole."""
    steps = min(STEPS, int(far)) if far == int(far) and far > 1.0 else STEPS
    spaced = [far * step / steps for step in range(1, steps + 1)]
    return sorted({float(round(at)) for at in spaced}) if far == int(far) and far > 1.0 else spaced


def band_chart(answer: Amplification, distance: float | None) -> Chart:
    """The band of epsilon against delta, and what one report alone has."""
    bands = [(delta, answer.epsilon(delta, distance)) for delta in DELTAS]
    far = answer.far(distance)
    alone = [(delta, _alone(answer, delta, far)) for delta in DELTAS]
    across = Axis("delta", logarithmic=True, format=".0e")
    described = f"{answer.explain(1e-6, distance)} The truth lies in the shaded band."
    return Chart(_banded(bands, alone, across), "amplification", "Epsilon after shuffling, against delta", described)


def distance_band_chart(answer: Amplification, delta: float, distance: float | None) -> Chart:
    """The band of epsilon against the distance of the inputs."""
    if answer.alike:
        raise InputError(f"this is about {answer.alike}, which have no distance; leave delta out to plot epsilon against delta.")
    at, delta = _distances(answer.far(distance)), checked_delta(delta)
    bands = [(far, answer.epsilon(delta, far)) for far in at]
    alone = [(far, _alone(answer, delta, far)) for far in at]
    described = f"{answer.explain(delta, distance)} The truth lies in the shaded band."
    title = f"Epsilon after shuffling, against the distance, delta {promised_delta(delta)}"
    return Chart(_banded(bands, alone, Axis("distance")), "amplification", title, described)


def _alone(answer: Amplification, delta: float, distance: float) -> float:
    """What one report (of each round) has."""
    pure = answer.local.pure(distance)
    return answer.rounds * (pure if math.isfinite(pure) else answer.local.epsilon(delta, distance))


def _banded(bands: Sequence[tuple[float, Band]], alone: Sequence[tuple[float, float]], across: Axis) -> Spec:
    drawn = [
        Curve("at most (certified)", [(at, band.upper) for at, band in bands], BLUE),
        Curve("at least (given away)", [(at, band.lower) for at, band in bands], VERMILLION, DASHED),
        Curve("one report alone", alone, MUTED, DOTTED),
    ]
    finite = [(at, band) for at, band in bands if math.isfinite(band.upper)]
    if not any(band.upper > 0.0 for _, band in finite):
        raise InputError("there is nothing to plot: epsilon is 0 or infinite everywhere; ask for fewer users or another distance.")
    lines = curves(drawn, across, Axis("epsilon", logarithmic=True), width=WIDTH, height=HEIGHT)
    lines["mark"]["strokeCap"] = "butt"  # so that both ends are seen where they are the same
    floor = lines["encoding"]["y"]["scale"]["domain"][0]
    shaded: dict[str, Any] = {
        "data": {"values": [{"x": at, "y": max(band.lower, floor), "top": max(band.upper, floor)} for at, band in finite]},
        "mark": {"type": "area", "color": WATER, "opacity": 0.75, "clip": True},
        "encoding": {"x": x(), "y": y(), "y2": {"field": "top"}},
    }
    size = {name: lines.pop(name) for name in ("width", "height")}
    return {**size, "layer": [shaded, lines]}


def groups_chart(answers: GroupsAmplification, distance: float | None) -> Chart:
    """epsilon of a member of each group against delta: certified, and given away."""
    drawn, told = [], []
    for place, (answer, colour) in enumerate(zip(answers, COLOURS, strict=False), start=1):
        far = None if distance is None or answer.alike else distance
        bands = [(delta, answer.epsilon(delta, far)) for delta in FEWER_DELTAS]
        drawn.append(Curve(f"group {place}, at most", [(at, band.upper) for at, band in bands], colour))
        drawn.append(Curve(f"group {place}, at least", [(at, band.lower) for at, band in bands], colour, DASHED))
        band = dict(bands)[1e-6]
        told.append(f"{answer.member}: epsilon between {at_least(band.lower)} and {promised(band.upper)} at delta 1e-06.")
    left = len(list(answers)) - len(told)
    if left:
        told.append(f"{plain(left)} more groups are not drawn.")
    spec = curves(drawn, Axis("delta", logarithmic=True, format=".0e"), Axis("epsilon", logarithmic=True), width=WIDTH, height=HEIGHT)
    return Chart(spec, "groups", "Epsilon of a member of each group, against delta", " ".join(told))
