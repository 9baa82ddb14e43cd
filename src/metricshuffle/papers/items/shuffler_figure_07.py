"""Figures 7 and 8 of Athanasiou25: how the ratio g(r, d) of two shifted laws behaves, and Theorem B.2 about it."""

from __future__ import annotations

import math
from fractions import Fraction

from metricshuffle.noise.polya import Polya
from metricshuffle.pages.charts.curves import NEEDED, Curve, curves_chart
from metricshuffle.pages.charts.marks import BLUE, VERMILLION, Spec
from metricshuffle.papers.reproduction import Chart, Item, Reproduction, Row, Settings, Verdict
from metricshuffle.papers.shuffler_mechanisms import log_ratio

NOISE = Polya(Fraction(100), -math.log(0.81))
EVEN, ODD, REACH = 10, 9, 100
CLOSE = 1e-9
"""Two logarithms of certified masses are equal to this much."""


def g(r: int, distance: int) -> float:
    return math.exp(log_ratio(NOISE, r, distance))


def run(settings: Settings) -> Reproduction:
    even, odd = ({r: log_ratio(NOISE, r, d) for r in range(-REACH, REACH + 2)} for d in (EVEN, ODD))
    about_zero = max(abs(even[r] - even[-r]) for r in range(REACH + 1))
    about_half = max(abs(odd[r] - odd[1 - r]) for r in range(1, REACH + 2))
    rises = min(min(even[r + 1] - even[r] for r in range(REACH)), min(odd[r + 1] - odd[r] for r in range(1, REACH)))
    rows = (
        Row(f"g(0, {EVEN}) (Theorem B.2, 3)", as_published=0.0, ours=g(0, EVEN), verdict=_holds(g(0, EVEN) == 0.0),
            note="a ratio of a probability with itself is 1; its logarithm is 0"),
        Row(f"largest difference of ln g at r and -r, d = {EVEN}", as_published=0.0, ours=about_zero, verdict=_holds(about_zero <= CLOSE)),
        Row(f"largest difference of ln g at r and 1-r, d = {ODD}", as_published=0.0, ours=about_half, verdict=_holds(about_half <= CLOSE)),
        Row(f"smallest step of ln g to the right, up to r = {REACH}", ours=rises, verdict=_holds(rises > -CLOSE),
            note="monotone: no step is negative"),
    )  # fmt: skip
    return Reproduction(
        words=(
            "The figures show what Theorem B.2 says, and it is right but for a slip: g(0, d) is 1 for an even d and not 0.",
            f"SGDL(100, 0.81), as in the captions, with d = {EVEN} and {ODD}; only the captions survive, so the curves are ours.",
        ),
        rows=rows,
        charts=(
            Chart("Figure 7", _drawn(REACH), "g(r, d) for an even and an odd distance."),
            Chart("Figure 8", _drawn(5), "The same near 0: symmetric about 0 for an even and about 1/2 for an odd distance."),
        ),
    )


def _holds(true: bool) -> Verdict:
    return "true" if true else "false"


def _drawn(reach: int) -> Spec:
    curves = [
        Curve(f"d = {d}", tuple((float(r), g(r, d)) for r in range(-reach, reach + 1)), colour, NEEDED)
        for d, colour in ((EVEN, BLUE), (ODD, VERMILLION))
    ]
    return curves_chart(curves, "r", "g(r, d)", log_y=False, from_zero=False)


ITEM = Item("shuffler-figure-7", "Athanasiou25", "Figures 7 and 8", "The ratio of two shifted laws", run)
