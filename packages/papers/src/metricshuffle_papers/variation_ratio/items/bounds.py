"""Theorems 4.7 and 5.1: upper and lower bounds of randomizers against the number of users."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from metricshuffle import randomizers as kinds
from metricshuffle.amplification.amplify import AmplifiedBand, GenericLDP, amplify
from metricshuffle.randomizers import Randomizer
from metricshuffle.report.charts.axis_charts import (
    BLUE,
    DASHED,
    GREEN,
    SOLID,
    VERMILLION,
    Axis,
    Curve,
    Spec,
    curves,
)
from metricshuffle_papers.charts import grid
from metricshuffle_papers.reproduction import Chart, Item, Reproduction, Row, Settings, Verdict
from metricshuffle_papers.upper_verdict import upper_row
from metricshuffle_papers.variation_ratio import parameters as table
from metricshuffle_papers.variation_ratio.formulas import Variation, lower_epsilon, merged_epsilon
from metricshuffle_papers.variation_ratio.parameters import Parameters

LOCAL = 1.0
DELTA = 1e-6
USERS = (100, 1000, 10_000)
DRAWN = 100_000  # Theorem 4.7 costs time in proportion to the users
CLOSELY = 1e-6
ROUGHLY = 1e-3  # for rows, for curves


@dataclass(frozen=True)
class Listed:
    """Randomizer of the paper with its published parameters.

    beta is at most (p-1)/(p+1), as the theorems need.
    """

    name: str
    row: Parameters
    randomizer: Callable[[], Randomizer | GenericLDP]

    @property
    def pair(self) -> Variation:
        p = self.row.p
        return Variation(p, min(self.row.beta, (p - 1.0) / (p + 1.0)), self.row.q)

    def band(self, users: int, relative: float) -> AmplifiedBand:
        return amplify(self.randomizer(), users, relative=relative).epsilon(DELTA)

    def claim(self, users: int) -> float:
        return merged_epsilon(self.pair, users, DELTA).claim


LISTED = (
    Listed("general mechanisms", table.general(LOCAL), lambda: GenericLDP(LOCAL)),
    Listed("Duchi, d = 3", table.general(LOCAL), lambda: kinds.Duchi(3, LOCAL)),
    Listed("Harmony, d = 3", table.general(LOCAL), lambda: kinds.Harmony(3, LOCAL)),
    Listed(
        "k-subset exponential, 2 of 8, k = 2",
        table.subset_exponential(LOCAL, 8, 2, 2),
        lambda: kinds.SubsetExponential(8, 2, LOCAL, 2),
    ),
    Listed(
        "PrivKV, 1 of 4 keys", table.priv_kv(0.5, 0.5, 4, 1), lambda: kinds.PrivKV(4, 0.5, 0.5, 1)
    ),
    Listed(
        "4-RR", table.randomized_response(LOCAL, 4), lambda: kinds.KaryRandomizedResponse(4, LOCAL)
    ),
    Listed(
        "16-RR",
        table.randomized_response(LOCAL, 16),
        lambda: kinds.KaryRandomizedResponse(16, LOCAL),
    ),
    Listed("local hash, l = 5", table.local_hash(LOCAL, 5), lambda: kinds.LocalHash(8, LOCAL, 5)),
    Listed(
        "subset selection, d = 8, k = 2",
        table.subset_selection(LOCAL, 8, 2),
        lambda: kinds.SubsetSelection(8, LOCAL, 2),
    ),
    Listed(
        "Hadamard response, K = 8",
        table.hadamard(LOCAL, 8, 4),
        lambda: kinds.HadamardResponse(7, LOCAL, 1),
    ),
    Listed("RAPPOR, d = 8", table.rappor(LOCAL), lambda: kinds.Rappor(8, LOCAL)),
    Listed(
        "Laplace on [0, 1]",
        table.laplace(LOCAL),
        lambda: kinds.LaplaceOnInterval(0.0, 1.0, LOCAL, 64),
    ),
)


def _row(one: Listed, users: int, band: AmplifiedBand, claim: float) -> Row:
    return upper_row(f"Theorem 4.7, {one.name}, n = {users:,}", claim, (band.lower, band.upper))


def _lower_row(options: int, users: int) -> Row:
    row = table.randomized_response(LOCAL, options)
    claim = lower_epsilon(Variation(row.p, row.beta, row.q), users, DELTA).claim
    ours = amplify(kinds.KaryRandomizedResponse(options, LOCAL), users).epsilon(DELTA).lower
    told: Verdict = (
        "false"
        if ours < claim * (1.0 - 1e-6)
        else "true"
        if ours <= claim * (1.0 + 1e-6)
        else "loose"
    )
    return Row(
        f"Theorem 5.1 (lower bound), {options}-RR, n = {users:,}",
        None,
        claim,
        ours,
        told,
        note="ours does not merge reports",
    )


def _panels(
    one: Listed, bands: list[tuple[int, AmplifiedBand]], claims: dict[int, float]
) -> tuple[Spec, Spec]:
    """Charts of the bounds, and of their ratios to the certified upper bound.

    The theorem is false where it is below the lower bound.
    """
    looks = {
        "certified upper bound (ours)": (BLUE, SOLID),
        "certified lower bound (ours)": (GREEN, DASHED),
        "Theorem 4.7": (VERMILLION, DASHED),
    }

    def drawn(shares: bool) -> list[Curve]:
        points: list[list[tuple[float, float]]] = [[], [], []]
        for users, band in bands:
            for place, value in enumerate((band.upper, band.lower, claims.get(users, math.nan))):
                points[place].append((users, value / band.upper if shares else value))
        return [
            Curve(name, found, *look)
            for (name, look), found in zip(looks.items(), points, strict=True)
        ]

    across = Axis("users", True)
    whole = curves(
        drawn(False), across, Axis("epsilon", True), title=one.name, width=240, height=170
    )
    return whole, curves(
        drawn(True),
        across,
        Axis("share of the upper bound", zero=False),
        title=one.name,
        width=240,
        height=170,
    )


def _run(settings: Settings) -> Reproduction:
    rows = []
    panels = []
    more = () if settings.quick else (316, 3162, 31_623, 100_000, 316_228, 1_000_000)
    for one in LISTED:
        settings.progress(one.name)
        bands = {users: one.band(users, CLOSELY) for users in USERS}
        claims = {users: one.claim(users) for users in (*USERS, *more) if users <= DRAWN}
        rows += [_row(one, users, band, claims[users]) for users, band in bands.items()]
        bands |= {users: one.band(users, ROUGHLY) for users in more}
        panels.append(_panels(one, sorted(bands.items(), key=lambda pair: pair[0]), claims))
    rows += [_lower_row(options, count) for options in (3, 4, 16) for count in USERS]
    setting = (
        f"Local epsilon {LOCAL:g}, delta = {DELTA:g}; the theorem is drawn up to {DRAWN:,} users."
    )
    charts = (
        Chart(
            "Shuffled reports of the listed randomizers",
            grid([whole for whole, _ in panels], 3),
            f"{setting} The truth lies between blue and green.",
        ),
        Chart(
            "The same, as shares of the certified upper bound",
            grid([share for _, share in panels], 3),
            f"{setting} Where the theorem lies below the green line it is false; above 1 "
            "it is loose; in between nothing is proved.",
        ),
    )
    told = [row.verdict for row in rows if row.label.startswith("Theorem 4.7")]
    words = (
        f"Of {len(told)} published upper bounds {told.count('false')} are false at these "
        f"settings, {told.count('true')} are "
        "within rounding of what is "
        f"certified, {told.count('loose')} are loose, and {told.count('ours')} lie where "
        "nothing is proved either way.",
        "The paper's figures over n are in its main text, which is not in our sources: "
        "settings and curves are ours. "
        "as_published is Theorem 4.7 with "
        "the published parameters; ours is the certified upper bound for the randomizer's "
        "own law, and the note a certified lower bound.",
        "A false claim misses little here, because with many users and a local epsilon of "
        "1 merging loses little; with few "
        "users or a larger "
        "local epsilon it misses by factors in delta (variation-ratio-theorem-4-8). "
        "Theorem 5.1 is true, and merging makes it "
        "weaker than need be.",
    )
    return Reproduction(words, tuple(rows), charts)


ITEMS = (
    Item(
        "variation-ratio-bounds",
        "Wang24",
        "Theorems 4.7 and 5.1",
        "Upper and lower bounds of the listed randomizers over n",
        _run,
    ),
)
