"""Theorem 4.3: the simplest closed form, as printed and as derived, against certified bounds."""

from __future__ import annotations

import math
from dataclasses import dataclass

from metricshuffle.accounting.shuffling.blanket_bound import (
    BlanketLaw,
    delta_lower,
    epsilon_lower,
    epsilon_upper,
)
from metricshuffle.amplification.lower_bound import merged_pair
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
from metricshuffle_papers.reproduction import Chart, Item, Reproduction, Row, Settings
from metricshuffle_papers.upper_verdict import upper_row
from metricshuffle_papers.variation_ratio.formulas import (
    Variation,
    theorem_4_3,
    theorem_4_3_printed,
)

SETTINGS = (
    (1.05, 0.05 / 2.05, 3.0, 2000, 1e-6),
    (1.5, 0.1, 1.5, 100_000, 1e-6),
    (3.0, 0.5, 3.0, 10_000, 1e-6),
    (3.0, 1.0 / 3.0, 3.0, 10_000, 1e-6),
)
"""p, beta, q, users, delta; the first and the third have beta = (p-1)/(p+1), the last is 4-RR."""


@dataclass(frozen=True)
class Case:
    pair: Variation
    users: int
    delta: float

    @property
    def law(self) -> BlanketLaw:
        p = math.log(self.pair.p)
        q = math.log(self.pair.q0)
        return merged_pair(p, self.pair.beta, q, q)

    @property
    def lower(self) -> float:
        return epsilon_lower(self.law, self.users, self.delta, relative=1e-6)

    @property
    def upper(self) -> float:
        """Sound bound that uses beta."""
        law = BlanketLaw.three_symbol(math.log(self.pair.p), self.pair.beta, self.pair.q0)
        return epsilon_upper(law, self.users, self.delta, relative=1e-6)

    def row(self, label: str, claim: float) -> Row:
        named = (
            f"p = {self.pair.p:g}, beta = {self.pair.beta:.4g}, q = {self.pair.q0:g}, n = "
            f"{self.users:,}, delta = {self.delta:g}"
        )
        leaked = delta_lower(self.law, self.users, claim) / self.delta
        return upper_row(
            f"{label}: {named}", claim, (self.lower, self.upper), leaked=lambda: leaked
        )

    def rows(self) -> list[Row]:
        given = self.pair, self.users, self.delta
        return [
            self.row("printed at the end of Appendix G", theorem_4_3_printed(*given).claim),
            self.row("as derived in Equations 11 and 12", theorem_4_3(*given).claim),
        ]


def _run(settings: Settings) -> Reproduction:
    cases = [Case(Variation(p, beta, q), users, delta) for p, beta, q, users, delta in SETTINGS]
    rows = [row for case in cases for row in case.rows()]
    steps = 6 if settings.quick else 16
    along = [
        Case(cases[0].pair, round(2000 * 10.0 ** (3.0 * step / (steps - 1))), 1e-6)
        for step in range(steps)
    ]
    drawn = [
        Curve(
            "as derived",
            [(c.users, theorem_4_3(c.pair, c.users, c.delta).claim) for c in along],
            PURPLE,
            DASHED,
        ),
        Curve("certified upper bound (ours)", [(c.users, c.upper) for c in along], BLUE),
        Curve(
            "one data set (ours, certified from below)",
            [(c.users, c.lower) for c in along],
            GREEN,
            DASHED,
        ),
        Curve(
            "as printed",
            [(c.users, theorem_4_3_printed(c.pair, c.users, c.delta).claim) for c in along],
            VERMILLION,
            DASHED,
        ),
    ]
    chart = Chart(
        "Theorem 4.3 against the number of users",
        curves(drawn, Axis("users", True), Axis("epsilon", True)),
        "p = 1.05, beta = (p-1)/(p+1), q = 3, delta = 1e-6: the printed denominator makes "
        "epsilon too small at every number of users.",
    )
    words = (
        "The formula printed for Theorem 4.3 is false, even where nothing is merged; the "
        "one its equations lead to is loose at "
        "these settings.",
        "Only its proof (Appendix G) is in our sources, without numbers; the settings are "
        "ours. The last line of the proof prints "
        "(1-beta)(1+p)/(p-1) c_r in the denominator, where Equations 11 and 12 give (1 - "
        "beta(1+p)/(p-1)) c_r.",
        "The derived form rests on Lemma 4.5, so as a theorem about shuffled reports it is "
        "unproved where some report favours "
        "neither value; "
        "at these settings it lies well above what is certified. ours is the three-symbol "
        "pair, which uses beta too and is sound.",
    )
    return Reproduction(words, tuple(rows), (chart,))


ITEMS = (
    Item(
        "variation-ratio-theorem-4-3",
        "Wang24",
        "Theorem 4.3",
        "The simplest closed form against certified bounds",
        _run,
    ),
)
