"""Proposition I.1: divergence of the merged pair, against every outcome; Algorithm 3's weights."""

from __future__ import annotations

import math
from fractions import Fraction

from metricshuffle.report.charts.axis_charts import (
    BLUE,
    DASHED,
    GREEN,
    PURPLE,
    VERMILLION,
    Axis,
    Curve,
    curves,
)
from metricshuffle_papers.outcomes import exact_delta, merged_rows
from metricshuffle_papers.reproduction import Chart, Item, Reproduction, Row, Settings, Verdict
from metricshuffle_papers.variation_ratio.formulas import (
    Direction,
    Variation,
    algorithm_3_delta,
    merged_divergence,
)

Setting = tuple[int, Fraction, int, int, int, Fraction]
SETTINGS: tuple[Setting, ...] = (
    (3, Fraction(1, 2), 3, 3, 2, Fraction(5, 4)),
    (3, Fraction(2, 5), 4, 2, 5, Fraction(11, 10)),
    (3, Fraction(1, 10), 3, 8, 6, Fraction(2)),
    (3, Fraction(1, 3), 3, 3, 2, Fraction(12, 5)),
    (5, Fraction(1, 2), 9, 9, 8, Fraction(3, 2)),
)
"""Settings: p, beta, q0, q1, users, e^epsilon."""
WEIGHTS: tuple[Setting, ...] = (
    (3, Fraction(2, 5), 4, 2, 5, Fraction(math.exp(0.4))),
    (2, Fraction(3, 10), 2, 3, 7, Fraction(math.exp(0.4))),
)
WAYS: tuple[Direction, ...] = ("P||Q", "Q||P")


def _counted(setting: Setting, way: Direction) -> float:
    """Divergence by its definition: every vector of counts."""
    p, beta, q0, q1, users, growth = setting
    one, two, other = merged_rows(Fraction(p), beta, Fraction(q0), Fraction(q1))
    if way == "Q||P":
        one, two = two, one
    return float(exact_delta(one, two, [other] * (users - 1), growth))


def _named(setting: Setting, way: Direction) -> str:
    p, beta, q0, q1, users, growth = setting
    return (
        f"{way}: p = {p}, beta = {float(beta):.4g}, q0 = {q0}, q1 = {q1}, n = {users}, "
        f"e^epsilon = {float(growth):.4g}"
    )


def _pair(setting: Setting) -> Variation:
    return Variation(float(setting[0]), float(setting[1]), float(setting[2]), float(setting[3]))


def _proposition(setting: Setting, way: Direction) -> Row:
    claim = merged_divergence(_pair(setting), setting[4], math.log(setting[5]), way).claim
    truth = _counted(setting, way)
    told: Verdict = "true" if abs(claim - truth) <= 1e-12 else "false"
    return Row(
        f"Proposition I.1, {_named(setting, way)}",
        None,
        claim,
        truth,
        told,
        note=f"every outcome; apart by {abs(claim - truth):.1e}",
    )


def _algorithm(setting: Setting, way: Direction) -> Row:
    claim = algorithm_3_delta(_pair(setting), setting[4], math.log(setting[5]), way).claim
    truth = _counted(setting, way)
    told: Verdict = "true" if abs(claim - truth) <= 1e-9 else "false"
    side = (
        "too small, the unsafe side for an upper bound"
        if claim < truth
        else "too large, the unsafe side for a lower bound"
    )
    note = f"line 4 has (2r)^c (1-2r)^(n-1-c) where (r0+r1)^c (1-r0-r1)^(n-1-c) is meant: {side}"
    return Row(f"Algorithm 3, {_named(setting, way)}", None, claim, truth, told, note=note)


def _run(settings: Settings) -> Reproduction:
    rows = [_proposition(setting, way) for setting in SETTINGS for way in WAYS]
    rows += [_algorithm(setting, "P||Q") for setting in WEIGHTS]
    p, beta, q0, q1, users, _ = WEIGHTS[1]
    pair = _pair(WEIGHTS[1])
    drawn = []
    growths = [
        1 + Fraction(step, 20 if settings.quick else 60)
        for step in range(1, 20 if settings.quick else 60)
    ]
    directions: tuple[tuple[Direction, str, str], ...] = (
        ("P||Q", BLUE, GREEN),
        ("Q||P", PURPLE, VERMILLION),
    )
    for direction, colour, other in directions:
        exact = [(float(e), _counted((p, beta, q0, q1, users, e), direction)) for e in growths]
        wrong = [
            (float(e), algorithm_3_delta(pair, users, math.log(e), direction).claim)
            for e in growths
        ]
        drawn += [
            Curve(f"{direction}: every outcome, and Proposition I.1", exact, colour),
            Curve(f"{direction}: weights of Algorithm 3", wrong, other, DASHED),
        ]
    chart = Chart(
        "Divergence of the merged pair against e^epsilon",
        curves(drawn, Axis("e^epsilon", zero=False), Axis("delta")),
        f"p = {p}, beta = {float(beta):g}, q0 = {q0}, q1 = {q1}, {users} users. "
        "Proposition I.1 lies on the counted curves and "
        "is not drawn apart.",
    )
    words = (
        "Proposition I.1 is true: it agrees with a count of every outcome to the last "
        "digits, in both directions and with q0 and q1 apart.",
        "It prints a formula, without numbers; the settings are ours. ours is exact: all "
        "vectors of counts, in fractions.",
        "What it computes is the divergence of the merged pair. That is a lower bound for "
        "shuffled reports (Theorem 5.1), and "
        "an upper one only "
        "if no report favours neither value.",
        "Line 4 of Algorithm 3 prints other weights than the proposition; unless q0 = q1 "
        "they are wrong, on either side.",
    )
    return Reproduction(words, tuple(rows), (chart,))


ITEMS = (
    Item(
        "variation-ratio-proposition-i-1",
        "Wang24",
        "Proposition I.1",
        "The merged pair against every outcome, and Algorithm 3",
        _run,
    ),
)
