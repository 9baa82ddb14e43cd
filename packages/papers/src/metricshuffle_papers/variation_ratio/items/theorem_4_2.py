"""Theorem 4.2: the closed form with and without its conditions, against certified bounds."""

from __future__ import annotations

import math

from metricshuffle.accounting.shuffling.blanket_bound import delta_lower, epsilon_lower
from metricshuffle.accounting.shuffling.clone_bound import ClonePair, epsilon_upper
from metricshuffle.amplification.lower_bound import merged_pair
from metricshuffle.errors import ConditionError
from metricshuffle.report.charts.axis_charts import (
    BLUE,
    DASHED,
    GREEN,
    VERMILLION,
    Axis,
    Curve,
    curves,
)
from metricshuffle_papers.reproduction import Chart, Item, Reproduction, Row, Settings
from metricshuffle_papers.upper_verdict import upper_row
from metricshuffle_papers.variation_ratio.formulas import Variation, theorem_4_2

ALLOWED = ((7.4280, 0.1984, 8.1432, 1766, 2.76e-8), (18.32, 0.605, 25.72, 1115, 5.8e-8))
"""p, beta, q, users, delta for which every printed condition holds."""
REFUSED = (1.5, 0.02, 4.5, 3000, 1e-6)
WITHOUT_COMMON_PART = ((math.e, math.e, 3000, 1e-6), (3.0, 5.0, 5000, 1e-5), (1.2, 2.0, 4000, 1e-8))
"""p, q, users, delta with beta = (p-1)/(p+1)."""


def _certified(pair: Variation, users: int, delta: float) -> tuple[float, float]:
    """Lower bound by the data set behind the merged pair, upper bound by the clone pair."""
    p = math.log(pair.p)
    q = math.log(pair.q0)
    lower = epsilon_lower(merged_pair(p, pair.beta, q, q), users, delta, relative=1e-6)
    return lower, epsilon_upper(ClonePair(p, q, q), users, delta)


def _row(pair: Variation, users: int, delta: float, *, conditions: bool = True) -> Row:
    claim = theorem_4_2(pair, users, delta, conditions=conditions).claim
    named = (
        f"p = {pair.p:.4g}, beta = {pair.beta:.4g}, q = {pair.q0:.4g}, n = {users:,}, delta = "
        f"{delta:g}"
    )
    note = ""
    if not conditions:
        try:
            theorem_4_2(pair, users, delta)
        except ConditionError as refused:
            note = str(refused)
    law = merged_pair(math.log(pair.p), pair.beta, math.log(pair.q0), math.log(pair.q0))
    label = f"{'with' if conditions else 'without'} its conditions: {named}"
    return upper_row(
        label,
        claim,
        _certified(pair, users, delta),
        note,
        lambda: delta_lower(law, users, claim) / delta,
    )


def _run(settings: Settings) -> Reproduction:
    rows = [_row(Variation(p, beta, q), users, delta) for p, beta, q, users, delta in ALLOWED]
    rows.append(_row(Variation(*REFUSED[:3]), *REFUSED[3:], conditions=False))
    rows += [
        _row(Variation(p, (p - 1.0) / (p + 1.0), q), users, delta)
        for p, q, users, delta in WITHOUT_COMMON_PART
    ]
    p, beta, q, first, delta = ALLOWED[0]
    pair = Variation(p, beta, q)
    points = []
    for step in range(8 if settings.quick else 24):
        users = round(first * 10.0 ** (1.5 * step / (7 if settings.quick else 23)))
        try:
            points.append(
                (users, theorem_4_2(pair, users, delta).claim, *_certified(pair, users, delta))
            )
        except ConditionError:
            continue
    drawn = [
        Curve("clone pair (ours, certified)", [(n, upper) for n, _, _, upper in points], BLUE),
        Curve(
            "one data set (ours, certified from below)",
            [(n, lower) for n, _, lower, _ in points],
            GREEN,
            DASHED,
        ),
        Curve(
            "Theorem 4.2, its conditions met",
            [(n, claim) for n, claim, _, _ in points],
            VERMILLION,
            DASHED,
        ),
    ]
    chart = Chart(
        "Theorem 4.2 against the number of users",
        curves(drawn, Axis("users", True, ",d"), Axis("epsilon", True)),
        f"p = {p:g}, beta = {beta:g}, q = {q:g}, delta = {delta:g}. Left of the crossing "
        "the theorem lies below what one data set leaks.",
    )
    words = (
        "Theorem 4.2 is false even where all its printed conditions hold: Omega >= 2 "
        "log(4/delta) is missing from them, and without it the "
        "formula lies below the epsilon of an explicit data set.",
        "Only its proof (Appendix F) is in our sources, without numbers; the settings are "
        "ours. ours is the clone pair, which "
        "holds for every "
        "randomizer with this p and q; the lower bound is the data set in which all "
        "reports that favour neither value are one report.",
        "Where beta = (p-1)/(p+1), so that no report favours neither, and Omega >= 2 "
        "log(4/delta), it is true and loose. Otherwise it "
        "inherits the fault of Lemma 4.5 (variation-ratio-counterexample).",
    )
    return Reproduction(words, tuple(rows), (chart,))


ITEMS = (
    Item(
        "variation-ratio-theorem-4-2",
        "Wang24",
        "Theorem 4.2",
        "The closed form against certified bounds",
        _run,
    ),
)
