"""The candidates of a plan as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from metricshuffle.numerics.rounding import about, plain, promised
from metricshuffle.planning.explain import is_simulated, name_of
from metricshuffle.queries.histogram import Histogram

if TYPE_CHECKING:
    from metricshuffle.cli.layout import Layout
    from metricshuffle.planning import Plan


def candidates_table(plan: Plan) -> Layout:
    """One row a candidate; the chosen one is marked, baselines are in brackets."""
    from metricshuffle.cli.layout import Column, Layout, Line

    percent = isinstance(plan.query, Histogram)
    unit = "%" if percent else plan.query.error_unit
    encoded = any(offer.encoding for offer in plan.candidates)
    columns = (
        Column(),
        Column("protocol", wraps=True),
        *([Column("encoding")] if encoded else []),
        Column("trusts"),
        Column(f"expected\nerror\n({unit})" if unit else "expected\nerror", number=True),
        Column("epsilon\nof one\nreport", number=True),
        Column("bits\na user", number=True),
    )
    lines = []
    for index, offer in enumerate(plan.candidates):
        chosen = index == plan.chosen
        cells = (
            "->" if chosen else "",
            f"({name_of(offer)})" if offer.baseline else name_of(offer),
            *([offer.encoding or ""] if encoded else []),
            offer.trusted,
            (about if is_simulated(plan.query) else plain)(100.0 * offer.expected_error if percent else offer.expected_error),
            "raw" if offer.trusted == "curator" else promised(offer.local_epsilon),
            f"{offer.bits_per_user:,}",
        )
        lines.append(Line(cells, "bold" if chosen else "dim" if offer.baseline else ""))
    return Layout(columns, tuple(lines))
