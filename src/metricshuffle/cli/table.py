"""The candidates of a plan as a table that fits 80 columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from metricshuffle.numerics.rounding import plain, promised
from metricshuffle.planning.explain import name_of
from metricshuffle.queries.histogram import Histogram

if TYPE_CHECKING:
    from rich.table import Table

    from metricshuffle.planning import Plan


def candidates_table(plan: Plan) -> Table:
    """One row a candidate; the chosen one is marked, baselines are in brackets."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    percent = isinstance(plan.query, Histogram)
    unit = "%" if percent else plan.query.error_unit
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    table.add_column("", no_wrap=True)
    # The longest name of a protocol; only a shape after it may go to the next line.
    table.add_column("protocol", min_width=max(len(name_of(offer).split()[0]) + 2 * offer.baseline for offer in plan.candidates))
    encoded = any(offer.encoding for offer in plan.candidates)
    if encoded:
        table.add_column("encoding", no_wrap=True)
    table.add_column("trusts", no_wrap=True)
    table.add_column(Text(f"expected\nerror\n({unit})" if unit else "expected\nerror"), justify="right", min_width=9)
    table.add_column("epsilon\nof one\nreport", justify="right", min_width=7)
    table.add_column("bits\na user", justify="right", min_width=6)
    for index, offer in enumerate(plan.candidates):
        chosen = index == plan.chosen
        cells = [
            "->" if chosen else "",
            f"({name_of(offer)})" if offer.baseline else name_of(offer),
            *([offer.encoding or ""] if encoded else []),
            offer.trusted,
            plain(100.0 * offer.expected_error if percent else offer.expected_error),
            "raw" if offer.trusted == "curator" else promised(offer.local_epsilon),
            f"{offer.bits_per_user:,}",
        ]
        table.add_row(*map(Text, cells), style="bold" if chosen else ("dim" if offer.baseline else None))
    return table
