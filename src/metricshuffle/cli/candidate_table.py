"""The candidates of a plan as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from metricshuffle.numerics.rounding import format_epsilon, format_number, format_rough
from metricshuffle.planning.plan_text import is_simulated, protocol_label

if TYPE_CHECKING:
    from metricshuffle.cli.table_layout import TableLayout
    from metricshuffle.planning import Plan
    from metricshuffle.protocols.damage import Damage
    from metricshuffle.queries.query import Query


def candidate_table(plan: Plan) -> TableLayout:
    """Build one row per candidate; the chosen one is marked, baselines are in brackets."""
    from metricshuffle.cli.table_layout import Column, Line, TableLayout

    percent = plan.query.in_percent
    unit = "%" if percent else plan.query.error_unit
    encoded = any(offer.encoding for offer in plan.candidates)
    damaged = any(offer.damage is not None for offer in plan.candidates)
    columns = (
        Column(),
        Column("protocol", wraps=True),
        *([Column("encoding")] if encoded else []),
        Column("trusts"),
        Column(f"expected\nerror\n({unit})" if unit else "expected\nerror", number=True),
        *([Column("moved\nby one\nliar", number=True)] if damaged else []),
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
            *([damage_number(plan.query, offer.damage)] if damaged else []),
            "raw" if offer.trusted == "curator" else format_epsilon(offer.local_epsilon),
            f"{offer.bits_per_user:,}",
        )
        lines.append(Line(cells, "bold" if chosen else "dim" if offer.baseline else ""))
    return TableLayout(columns, tuple(lines))


def damage_number(query: Query, damage: Damage | None) -> str:
    """Format the damage of one liar as in the text, without the unit, which the errors show."""
    if damage is None:
        return ""
    unit = "%" if query.in_percent else query.error_unit
    return damage.text(query).removesuffix(f" {unit}") if unit else damage.text(query)
