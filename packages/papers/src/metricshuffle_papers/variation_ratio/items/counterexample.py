"""Counterexample to Lemma 4.5 of the variation-ratio paper: two people, four options.

Every outcome can be counted by hand.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from metricshuffle.accounting.shuffling.blanket_bound import BlanketLaw, delta_upper
from metricshuffle.report.charts.axis_charts import (
    BLUE,
    DASHED,
    DOTTED,
    GREEN,
    MUTED,
    PURPLE,
    VERMILLION,
    Axis,
    Curve,
    Spec,
    curves,
)
from metricshuffle_papers.charts import bars, grid
from metricshuffle_papers.outcomes import Outcome, exact_delta, merged_rows, outcomes, response_rows
from metricshuffle_papers.reproduction import Chart, Item, Reproduction, Row, Settings, Verdict
from metricshuffle_papers.variation_ratio.formulas import Variation, merged_delta

RATIO = Fraction(3)
OPTIONS = 4
GROWTH = Fraction(12, 5)
BETA = (RATIO - 1) / (RATIO + OPTIONS - 1)
A = 0
B = 1
C = 2
NAMES = "abcd"
KINDS = ("favours a", "favours b", "neither")
ROWS = response_rows(RATIO, OPTIONS)
UNIT = 36
"""Unit of every probability, 1/36."""


def _named(outcome: Outcome) -> str:
    return (
        "{"
        + ", ".join(
            name for name, count in zip(NAMES, outcome.counts, strict=True) for _ in range(count)
        )
        + "}"
    )


def _merged(outcome: Outcome) -> str:
    return (
        "{"
        + ", ".join(
            kind for kind, count in zip(KINDS, outcome.counts, strict=True) for _ in range(count)
        )
        + "}"
    )


def _counted(outcome: Outcome) -> str:
    first = outcome.first * UNIT
    second = outcome.second * UNIT
    left = first - GROWTH * second
    kept = f"adds {float(left):g}/{UNIT}" if left > 0 else "adds nothing"
    return (
        f"holding a: {first}/{UNIT}; holding b: {second}/{UNIT}; {first} - 2.4 x {second} = "
        f"{float(left):g}, {kept}"
    )


def _listed(found: list[Outcome], where: str) -> list[Row]:
    return [
        Row(f"{where}: reports {_named(one)}", ours=float(one.excess), note=_counted(one))
        for one in found
    ]


def _claimed(pair: Variation, growth: float) -> float:
    return merged_delta(pair, 2, math.log(growth)).claim


def _verdict(claim: float, truth: Fraction) -> Verdict:
    return "false" if claim < float(truth) * (1.0 - 1e-9) else "true"


def _bars(found: list[Outcome], names: list[str], title: str) -> Spec:
    groups = [
        (name, (float(one.first * UNIT), float(GROWTH * one.second * UNIT)))
        for name, one in zip(names, found, strict=True)
    ]
    return bars(
        groups,
        ("if she holds a", "2.4 times: if she holds b"),
        (BLUE, MUTED),
        "36ths",
        title=title,
        width=700,
        height=220,
    )


def _curves(pair: Variation, quick: bool) -> Spec:
    law = BlanketLaw.from_rows([[float(weight) for weight in row] for row in ROWS], A, B)
    growths = np.linspace(1.8, 3.0, 25 if quick else 97).tolist()
    third, own = (
        [(e, float(exact_delta(ROWS[A], ROWS[B], [ROWS[held]], Fraction(e)))) for e in growths]
        for held in (C, A)
    )
    drawn = [
        Curve("Theorem 4.8", [(e, _claimed(pair, e)) for e in growths], VERMILLION, DASHED),
        Curve("truth, the other person holds c", third, GREEN, DOTTED),
        Curve("truth, the other person holds a", own, PURPLE),
        Curve(
            "the library's bound",
            [(e, delta_upper(law, 2, math.log(e))) for e in growths],
            BLUE,
            DASHED,
        ),
    ]
    return curves(drawn, Axis("e^epsilon", zero=False), Axis("delta"))


def _run(settings: Settings) -> Reproduction:
    pair = Variation(float(RATIO), float(BETA), float(RATIO))
    claim = _claimed(pair, float(GROWTH))
    third, own = (outcomes(ROWS[A], ROWS[B], [ROWS[held]], GROWTH) for held in (C, A))
    one, two, other = merged_rows(RATIO, BETA, RATIO, RATIO)
    merged = outcomes(one, two, [other], GROWTH)
    truth = {
        "a third value c": sum((x.excess for x in third), Fraction(0)),
        "a as well": sum((x.excess for x in own), Fraction(0)),
    }
    law = BlanketLaw.from_rows([[float(weight) for weight in row] for row in ROWS], A, B)
    rows = [
        Row(
            f"delta, the other person holds {held}",
            None,
            claim,
            float(exact),
            _verdict(claim, exact),
            note=(
                f"exactly {exact}, against {Fraction(claim).limit_denominator(1000)} claimed; "
                "the outcomes are listed below"
            ),
        )
        for held, exact in truth.items()
    ]
    rows.append(
        Row("the library's bound", ours=delta_upper(law, 2, math.log(GROWTH)), note="at least both")
    )
    rows += _listed(third, "other at c") + _listed(own, "other at a")
    rows += [
        Row(
            f"merged reports {_merged(x)}",
            as_published=float(x.excess),
            ours=None,
            note=_counted(x),
        )
        for x in merged
    ]
    charts = (
        Chart(
            "Two people, four options: what is seen, and what the theorem looks at",
            grid(
                [
                    _bars(
                        third,
                        [_named(x) for x in third],
                        "All ten outcomes, the other person holding c",
                    ),
                    _bars(
                        merged, [_short(x) for x in merged], "The same, merged as in the theorem"
                    ),
                ],
                1,
            ),
            "Where blue exceeds grey, the difference counts. Of {a, c} and {a, d} only the "
            "first does; merged into one outcome, none does.",
        ),
        Chart(
            "delta against e^epsilon",
            _curves(pair, settings.quick),
            "4-RR with e^eps0 = 3, two people. Where the dashed red curve lies below a "
            "true one, the theorem promises what does "
            "not hold.",
        ),
    )
    words = (
        "Lemma 4.5, and with it Theorems 4.7 and 4.8 as upper bounds, is false: it "
        "promises delta = "
        f"{Fraction(claim).limit_denominator(1000)} "
        f"where the truth is {truth['a third value c']}, or {truth['a as well']} if the "
        "other person holds a as well.",
        "The setting: two people, four options a, b, c, d. Each reports the own option "
        "with probability 3/6 and each other one with "
        "probability 1/6; a shuffler mixes the two reports. User 1 holds a or b, and "
        "e^epsilon = 2.4.",
        "Step 1. The other person holds c. The reports {a, c} come about in two ways: user "
        "1 says a and the other c (3 x 3), or user 1 "
        "says c and the other a (1 x 1): 10/36 if she holds a. If she holds b: 1 x 3 + 1 x "
        "1 = 4/36. The other nine outcomes are "
        "counted in the same way below.",
        "Step 2. delta adds up, over the outcomes, how much the first exceeds 2.4 times "
        "the second: {a, a} gives 3 - 2.4 = 0.6 and {a, c} "
        "gives 10 - 9.6 = 0.4; nothing else is positive. Together 1/36.",
        'Step 3. The theorem puts c and d together as "neither". Then {a, c} and {a, d} '
        "are one outcome, with 14/36 and 6/36: 14 - 14.4 "
        "is negative, and only {a, a} is left: 0.6/36 = 1/60. Merging reports hides "
        "something, so it gives a lower bound; it was "
        "published as an upper one. The proof puts the merged reports back with one "
        "probability where two different ones are due.",
        "Step 4. If the other person holds a too, {a, a} has 9/36 and 3/36: 9 - 7.2 = 1.8, "
        "and 1.8/36 = 1/20.",
        "The same happens with 3-RR, local hash, subset selection and Hadamard response, "
        "and with a hundred people; see "
        "variation-ratio-theorem-4-8. Without reports that favour neither (2-RR) the "
        "theorem is true.",
    )
    return Reproduction(words, tuple(rows), charts)


def _short(outcome: Outcome) -> str:
    return (
        "{"
        + ", ".join(
            name
            for name, count in zip(("a", "b", "?"), outcome.counts, strict=True)
            for _ in range(count)
        )
        + "}"
    )


ITEMS = (
    Item(
        "variation-ratio-counterexample",
        "Wang24",
        "Lemma 4.5",
        "A counterexample to follow by hand",
        _run,
    ),
)
