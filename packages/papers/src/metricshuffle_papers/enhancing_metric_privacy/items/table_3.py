"""Table 3 of Athanasiou25: error of a centroid in metres."""

from __future__ import annotations

from metricshuffle.numerics.rounding import format_number
from metricshuffle.report.charts.vega import GREEN, INK, VERMILLION
from metricshuffle_papers.charts import dots_chart
from metricshuffle_papers.enhancing_metric_privacy.location import DELTA, SIDE, Location
from metricshuffle_papers.enhancing_metric_privacy.mechanisms import PROTOCOLS, fewest_users
from metricshuffle_papers.packing import packing_bound
from metricshuffle_papers.reproduction import (
    Chart,
    Item,
    Reproduction,
    Row,
    Settings,
    judged,
    printed_rounding,
    published_value,
)

# users, epsilon, squares along a side, radius in metres: the last two are not in the table but in
# the figures with the same epsilon.
SETTINGS = (
    (1000, Location(0.15, 1000, 600)),
    (1000, Location(0.2, 1000, 600)),
    (1000, Location(0.3, 1500, 500)),
    (2000, Location(0.1, 1000, 600)),
    (3000, Location(0.2, 1000, 600)),
    (4000, Location(0.3, 1500, 500)),
)
TENS = 5.0
"""Rounding to tens, which the paper does not mention.

From 10 metres on every entry of the table is a multiple of ten.
"""
SHORTEST_RADIUS = 300.0
"""Shortest radius of all location experiments, in metres; gives the lowest packing bound."""


def least_error(users: int, where: Location) -> float:
    """Lower bound in metres on the error of any mechanism with the guarantee.

    It holds even if only the east-west error counts and the radius is the shortest.
    """
    rate = where.epsilon * where.cell / SHORTEST_RADIUS
    return packing_bound(rate, DELTA, 0.5 * users * where.squares) * where.cell / users


def run(settings: Settings) -> Reproduction:
    rows = []
    for users, where in SETTINGS:
        settings.progress(f"{users} users, epsilon {where.epsilon:g}")
        formula, ours = (
            {
                name: None if one is None else one.mean_error(users) * where.cell / users
                for name, one in found.items()
            }
            for found in (where.as_published(users), where.as_needed(users))
        )
        for mechanism in PROTOCOLS:
            label = f"n={users}, epsilon={where.epsilon:g}, {mechanism}"
            published = published_value("enhancing_metric_privacy", "Table 3", label)
            given = formula[mechanism]
            rounding = (
                TENS
                if published >= 10.0
                else printed_rounding("enhancing_metric_privacy", "Table 3", label)
            )
            verdict = (
                "not reproduced" if given is None else judged(published, given, rounding=rounding)
            )
            note = ""
            if mechanism == "SGDL-Shuffle":
                bound = least_error(users, where)
                note = (
                    f"packing bound {format_number(bound)} m, with the shortest radius of the "
                    f"paper's experiments ({SHORTEST_RADIUS:g} m)"
                )
                if published < bound:
                    verdict = "impossible"
                    note = f"{note}; the published number is below it"
            elif given is None:
                fewest = fewest_users(where.share, 0.5 * DELTA, where.squares)
                note = (
                    "Theorem 3.1 asks for more random bits than there are: it needs "
                    f"{fewest:,} users"
                )
            elif mechanism == "Geo-Shuffle":
                note = "ours accounts both axes together, up to the radius"
            rows.append(Row(label, published, given, ours[mechanism], verdict, note=note))
    column = [one for one in rows if one.label.endswith("SGDL-Shuffle")]
    below, good = (
        sum(one.verdict == verdict for one in some)
        for verdict, some in (("impossible", column), ("reproduced", rows))
    )
    exact = sum(
        judged(one.published or 0.0, one.as_published) == "reproduced"
        for one in rows
        if one.as_published is not None
    )
    chart = dots_chart(
        [f"n = {users}, ε = {where.epsilon:g}" for users, where in SETTINGS],
        [
            ("packing bound", INK, [least_error(users, where) for users, where in SETTINGS]),
            ("published", VERMILLION, [one.published for one in column]),
            ("SGDL-Shuffle needs", GREEN, [one.ours for one in column]),
        ],
        "Euclidean error (metres)",
    )
    return Reproduction(
        words=(
            f"{below} of the {len(column)} errors printed for SGDL-Shuffle are impossible, down to "
            f"{min(one.published or 1.0 for one in column):g} "
            f"metres for {SETTINGS[-1][0]:,} people, and the other {len(column) - below} "
            "are several times below what it needs; of all "
            f"{len(rows)} numbers the paper's formulas give {good}, if entries from 10 "
            "metres on, all multiples of ten, are read as "
            f"rounded to tens, which the paper does not say; read as exact, {exact}.",
            "Errors do not depend on where people live, so the missing file of addresses "
            "does not matter here. The table prints neither "
            "grid nor radius: for epsilon 0.3 they are those of Figure 25 (1500 squares, "
            "500 m), for the others 1000 squares and 600 m; "
            f"delta is {DELTA:g}, and the square is {SIDE / 1000:g} km wide. Each axis "
            "gets epsilon/(radius sqrt 2) and half of delta in "
            "the paper; ours accounts for both axes together where that is possible, for "
            "moves up to the radius.",
        ),
        rows=tuple(rows),
        charts=(
            Chart(
                "SGDL-Shuffle: what is printed, and what is possible",
                chart,
                "Left of the bar no mechanism with the promised privacy can be, whatever it does.",
            ),
        ),
    )


ITEMS = (Item("shuffler-table-3", "Athanasiou25", "Table 3", "Error of a centroid in metres", run),)
