"""Supplement E: printed and corrected bound on WitchHat's variance, and the variance itself."""

from __future__ import annotations

import numpy as np

from metricshuffle.randomizers import WitchHat
from metricshuffle.randomizers.witch_hat import WitchHatDensity
from metricshuffle.report.charts.axis_charts import (
    BLUE,
    DASHED,
    GREEN,
    VERMILLION,
    Axis,
    Curve,
    curves,
)
from metricshuffle_papers.metric_supplement.formulas import witch_hat_variance_bound
from metricshuffle_papers.reproduction import Chart, Item, Reproduction, Row, Settings, Verdict

SMALL = (10.0, 2.0, 5.0)
"""Parameters B, m, F."""
WIDE = (164.6, 4.49, 50.0)
UNITS = "6 m^2 F must read 6 m^2 F^2: in the print B^2 and F B are areas, and m^2 F is a length"


def _judged(printed: float, exact: float) -> Verdict:
    return "false" if exact > printed else "loose"


def _rows(setting: tuple[float, float, float], value: float) -> list[Row]:
    density = WitchHatDensity(*setting)
    printed = witch_hat_variance_bound(*setting, value).claim
    exact = density.variance(value)
    bound = density.variance_bound(value)
    named = f"B, m, F = {setting}, x = {value:.4g}"
    told = _judged(printed, exact)
    why = (
        f"the exact variance {exact:.6g} is above the printed bound; {UNITS}"
        if told == "false"
        else "the printed bound holds here"
    )
    return [
        Row(
            f"printed bound against the exact variance: {named}",
            None,
            printed,
            exact,
            told,
            note=why,
        ),
        Row(
            f"corrected bound: {named}",
            ours=bound,
            note=f"with F^2; at least the exact variance {exact:.6g}",
        ),
    ]


def _run(settings: Settings) -> Reproduction:
    rows = [row for value in (0.0, 3.0, 6.0, 10.0) for row in _rows(SMALL, value)]
    printed = witch_hat_variance_bound(*SMALL, 6.0).claim
    hat = WitchHat(SMALL[0], SMALL[1], 2.0 / SMALL[2], steps=1000)
    sampled = hat.variance(6.0)
    rows.append(
        Row(
            "printed bound against what is sampled, x = 6",
            None,
            printed,
            sampled,
            _judged(printed, sampled),
            note="exact for the grid",
        )
    )
    wide = WitchHatDensity(*WIDE)
    places = np.linspace(0.0, WIDE[0], 20).tolist()
    worst = max(places, key=lambda x: wide.variance(x) / witch_hat_variance_bound(*WIDE, x).claim)
    rows += _rows(WIDE, worst)
    across = np.linspace(-SMALL[0], SMALL[0], 41).tolist()
    density = WitchHatDensity(*SMALL)
    lines = [
        Curve(
            "corrected bound (ours)",
            [(x, density.variance_bound(x)) for x in across],
            GREEN,
            DASHED,
        ),
        Curve("exact variance (ours)", [(x, density.variance(x)) for x in across], BLUE),
        Curve(
            "printed bound",
            [(x, witch_hat_variance_bound(*SMALL, x).claim) for x in across],
            VERMILLION,
            DASHED,
        ),
    ]
    chart = Chart(
        "Variance of one report's estimate against the value",
        curves(lines, Axis("value x"), Axis("variance")),
        "B = 10, m = 2, F = 5. Where the printed bound lies below the exact variance it is "
        "no bound.",
    )
    exact = density.variance(6.0)
    words = (
        "The printed bound on the variance is false: at B = 10, m = 2, F = 5, x = 6 it "
        f"says {printed:.1f}, and the variance is "
        f"{exact:.1f}.",
        "By hand: one line of the proof has F_m times 2 B m^2 F_m e^-m over 4, which over "
        "the denominator 6 is 3 m^2 F_m^2 "
        "times e^-m B; the "
        "next line has 3 m^2 F_m there. B and F_m are lengths, so the units show it too.",
        "With F^2 the bound holds. The library uses neither: it computes the variance "
        "exactly, for the law that is sampled.",
    )
    return Reproduction(words, tuple(rows), (chart,))


ITEMS = (
    Item(
        "supplement-witch-hat-variance",
        "WitchHat",
        "Supplement E",
        "WitchHat's variance, printed and exact",
        _run,
    ),
)
