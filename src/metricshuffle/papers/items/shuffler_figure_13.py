"""Figures 13 and 14 of Athanasiou25: the same ratio for one share of SGDL-Shuffle (shape below 1)."""

from __future__ import annotations

from fractions import Fraction

from metricshuffle.noise.polya import Polya
from metricshuffle.pages.charts.curves import NEEDED, Curve, curves_chart
from metricshuffle.pages.charts.marks import BLUE, VERMILLION
from metricshuffle.papers import enhancing_metric_privacy as paper
from metricshuffle.papers.reproduction import Chart, Item, Reproduction, Row, Settings, Verdict
from metricshuffle.papers.shuffler_mechanisms import log_ratio
from metricshuffle.privacy.guarantee import plain

RATE, REACH = 0.1, 30
SHARES = (("Figure 13", 100, BLUE), ("Figure 14", 1000, VERMILLION))


def falling(users: int) -> list[float]:
    """ln g(r, 1) for r = 0, -1, -2, ..."""
    return [log_ratio(Polya(Fraction(1, users), RATE), -r, 1) for r in range(REACH + 1)]


def run(settings: Settings) -> Reproduction:
    rows, curves = [], []
    for label, users, colour in SHARES:
        values, share = falling(users), Polya(Fraction(1, users), RATE)
        second = 2.0 * paper.sgdl_colluding_epsilon(RATE, users, 2).claim
        worst: Verdict = "true" if values[0] == max(values) else "false"
        rows += [
            Row(f"{label}: largest ln g(r, 1)", as_published=values[0], ours=max(values), verdict=worst,
                note="at r = 0, where the paper takes it"),
            Row(f"{label}: ln g(-1, 1), said to equal ln g(0, 1)", as_published=values[0], ours=values[1],
                verdict="false" if values[1] < values[0] else "true",
                note=f"ln f(0)/f(1) = {plain(values[0])}, but ln f(1)/f(2) = {plain(values[1])}"),
            Row(f"{label}: ln g(0, 2), taken for the largest ratio at d = 2", as_published=second, ours=share.pure(2),
                verdict="false" if share.pure(2) > second else "true",
                note="at r = 0 and d = 2 the ratio compares f(-1) with f(1), which are equal"),
        ]  # fmt: skip
        points = tuple((float(-r), value) for r, value in reversed(list(enumerate(values))))
        curves.append(Curve(f"shape 1/{users}", points, colour, NEEDED))
    return Reproduction(
        words=(
            "At distance 1 the ratio is largest at r = 0, so the value of Theorem 7.2 is right; that it is the same for every r from "
            "-d to 0 is false, and at distance 2 what the proof takes for the largest ratio is 1.",
            f"The captions give the shapes 0.01 and 0.001; epsilon = {RATE:g} is our choice, and the curves are ours.",
        ),
        rows=tuple(rows),
        charts=(
            Chart(
                "ln g(r, 1) of one share",
                curves_chart(curves, "r", "ln g(r, 1)", log_y=False),
                "It falls away from 0, as the figures show.",
            ),
        ),
    )


ITEM = Item("shuffler-figure-13", "Athanasiou25", "Figures 13 and 14", "One share of SGDL-Shuffle", run)
