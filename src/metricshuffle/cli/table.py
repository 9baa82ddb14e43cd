"""The candidates of a plan as a table that fits 80 columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from metricshuffle.numerics.rounding import plain, promised
from metricshuffle.planning.explain import name_of

if TYPE_CHECKING:
    from rich.table import Table

    from metricshuffle.planning import Plan


def candidates_table(plan: Plan) -> Table:
    """One row a candidate; the chosen one is marked, baselines are in brackets."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    unit = f"\n({plan.query.unit})" if plan.query.unit else ""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    table.add_column("", no_wrap=True)
    # The longest name of a protocol; only a shape after it may go to the next line.
    table.add_column("protocol", min_width=max(len(name_of(one).split()[0]) + 2 * one.baseline for one in plan.candidates))
    table.add_column("encoding", no_wrap=True)
    table.add_column("trusts", no_wrap=True)
    table.add_column(Text(f"expected\nerror{unit}"), justify="right", min_width=9)
    table.add_column("epsilon\nof one\nreport", justify="right", min_width=7)
    table.add_column("bits\na user", justify="right", min_width=6)
    for index, one in enumerate(plan.candidates):
        chosen = index == plan.chosen
        cells = (
            "->" if chosen else "", f"({name_of(one)})" if one.baseline else name_of(one), one.encoding, one.trusted,
            plain(one.expected_error), "raw" if one.trusted == "curator" else promised(one.local_epsilon), f"{one.bits_per_user:,}",
        )  # fmt: skip
        table.add_row(*map(Text, cells), style="bold" if chosen else ("dim" if one.baseline else None))
    return table
