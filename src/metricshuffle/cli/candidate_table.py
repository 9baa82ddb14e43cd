"""The candidates of a plan as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from metricshuffle.numerics.rounding import format_epsilon, format_number, format_rough
from metricshuffle.planning.plan_text import is_simulated, protocol_label
from metricshuffle.queries.histogram import Histogram

if TYPE_CHECKING:
    from metricshuffle.cli.table_layout import TableLayout
    from metricshuffle.planning import Plan


def candidate_table(plan: Plan) -> TableLayout:
    """One row a candidate; the chosen one is marked, baselines are in brackets."""
    from metricshuffle.cli.table_layout import Column, Line, TableLayout

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
            f"({protocol_label(offer)})" if offer.baseline else protocol_label(offer),
            *([offer.encoding or ""] if encoded else []),
            offer.trusted,
            (format_rough if is_simulated(plan.query) else format_number)(
                100.0 * offer.expected_error if percent else offer.expected_error
            ),
            "raw" if offer.trusted == "curator" else format_epsilon(offer.local_epsilon),
            f"{offer.bits_per_user:,}",
        )
        lines.append(Line(cells, "bold" if chosen else "dim" if offer.baseline else ""))
    return TableLayout(columns, tuple(lines))
