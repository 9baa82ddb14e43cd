"""Figure 13 of the supplement: bounds against the distance of the other values."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from metricshuffle.accounting.shuffling.clone_bound import ClonePair, epsilon_upper
from metricshuffle.accounting.shuffling.closed_form_bounds import corollary_2
from metricshuffle.amplification.lower_bound import DataSetLower
from metricshuffle.amplification.padded_exponential_lower import pem_laws
from metricshuffle.errors import ConditionError
from metricshuffle.report.charts.axis_charts import (
    BLUE,
    DASHED,
    DOTTED,
    GREEN,
    PURPLE,
    VERMILLION,
    Axis,
    Curve,
    Spec,
    curves,
)
from metricshuffle_papers.charts import grid
from metricshuffle_papers.metric_supplement.formulas import theorem_1_epsilon
from metricshuffle_papers.reproduction import (
    Chart,
    Item,
    Reproduction,
    Row,
    Settings,
    published_value,
)
from metricshuffle_papers.upper_verdict import upper_row

FIGURE = "Figure 13"
LOCAL = ("D(a,b), first", "D(a,b), second", "D(a,b), third", "D(a,b), fourth")
USERS = ("users, first", "users, second")


@dataclass(frozen=True)
class Place:
    """One point of the figure.

    c lies beyond b, as the caption says, so that D(a,c) = D(b,c) + D(a,b) is the largest distance.
    """

    users: int
    local: float
    ratio: float
    """e^D(a,c) + e^D(b,c)."""

    @property
    def delta(self) -> float:
        return published_value("metric_supplement", FIGURE, "delta times users") / self.users

    @property
    def beyond(self) -> float:
        """D(b,c)."""
        return max(0.0, math.log(self.ratio) - math.log1p(math.exp(self.local)))

    @property
    def theorem_1(self) -> float:
        """Epsilon of Theorem 1 as printed, or D(a,b) if that is smaller or its condition fails.

        In these cases no amplification is applied.
        """
        try:
            return min(
                self.local,
                theorem_1_epsilon(self.local, math.log(self.ratio), self.users, self.delta).claim,
            )
        except ConditionError:
            return self.local

    @property
    def corollary_2(self) -> float:
        try:
            return corollary_2(self.local, math.log(self.ratio), self.users, self.delta)
        except ConditionError:
            return self.local

    @property
    def upper(self) -> float:
        pair = ClonePair(self.local, self.beyond + self.local, max(self.beyond, self.local))
        return epsilon_upper(pair, self.users, self.delta)

    @property
    def lower(self) -> float:
        laws = pem_laws(self.local, self.beyond + self.local, self.beyond)
        return DataSetLower(lambda _: laws, self.users, relative=1e-5).epsilon(
            self.delta, self.local
        )


def _ratios(local: float, count: int) -> list[float]:
    least = math.exp(local) + 1.0
    most = published_value("metric_supplement", FIGURE, "largest e^D(a,c) + e^D(b,c)")
    return [least, *np.geomspace(least, most, count)[1:-1].tolist(), most]


def _rows(places: list[Place]) -> list[Row]:
    found = []
    for place in (places[0], places[len(places) // 2], places[-1]):
        named = (
            f"n = {place.users:,}, D(a,b) = {place.local:g}, e^D(a,c) + e^D(b,c) = "
            f"{place.ratio:.4g}"
        )
        claim = place.theorem_1
        upper = place.upper
        lower = place.lower
        why = (
            "its condition fails or it exceeds D(a,b), so no amplification"
            if claim == place.local
            else "Theorem 1 with the factor printed in Step 3"
        )
        found += [
            upper_row(
                f"{named}: upper bound", claim, (lower, upper), f"{why}; ours is the clone pair"
            ),
            Row(
                f"{named}: lower bound",
                ours=lower,
                note="padded exponential mechanism, the others all at c, all at a or all at b",
            ),
        ]
    return found


def _panel(places: list[Place]) -> Spec:
    def points(name: str) -> list[tuple[float, float]]:
        return [(place.ratio, getattr(place, name)) for place in places]

    drawn = [
        Curve("Theorem 1 as printed", points("theorem_1"), VERMILLION, DASHED),
        Curve("Corollary 2", points("corollary_2"), PURPLE, DOTTED),
        Curve("clone pair (ours, certified)", points("upper"), BLUE),
        Curve("lower bound (ours, certified)", points("lower"), GREEN, DASHED),
    ]
    first = places[0]
    return curves(
        drawn,
        Axis("e^D(a,c) + e^D(b,c)", True),
        Axis("epsilon", True),
        title=f"n = {first.users:,}, D(a,b) = {first.local:g}",
        width=185,
        height=170,
    )


def _run(settings: Settings) -> Reproduction:
    rows = []
    panels = []
    for users in (int(published_value("metric_supplement", FIGURE, name)) for name in USERS):
        for local in (published_value("metric_supplement", FIGURE, name) for name in LOCAL):
            settings.progress(f"n = {users:,}, D(a,b) = {local:g}")
            places = [
                Place(users, local, ratio) for ratio in _ratios(local, 3 if settings.quick else 9)
            ]
            rows += _rows(places)
            panels.append(_panel(places))
    words = (
        "The printed upper bound is true and loose everywhere in the figure; the certified "
        "lower bound shows how much room is left.",
        "Of Figure 13 only the caption survives in our sources: n, D(a,b), the range of "
        "e^D(a,c) + e^D(b,c), D_max = D(a,c) = "
        "D(b,c) + D(a,b) and delta = 0.01/n are the paper's, every curve is ours.",
        "Compared are Theorem 1 with the factor e^D/(e^D+1) printed in Step 3, Corollary "
        "2, the clone pair, which holds for every "
        "D-private mechanism, and the padded exponential mechanism of Table I, below which "
        "no bound for all of them can be. Algorithm 2 "
        "itself looks at n^3 outcomes; the lower bound here is exact for the same "
        "mechanism at any n.",
    )
    caption = (
        "Ours, at the settings of the caption. Theorem 1 and Corollary 2 are drawn at D(a,b) "
        "where their conditions fail."
    )
    return Reproduction(
        words,
        tuple(rows),
        (Chart("Upper and lower bounds, as in Figure 13", grid(panels, 4), caption),),
    )


ITEMS = (
    Item(
        "supplement-figure-13",
        "WitchHat",
        FIGURE,
        "Upper and lower bounds on the amplified epsilon",
        _run,
    ),
)
