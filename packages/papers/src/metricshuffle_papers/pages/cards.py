"""Notebook cards of comparisons."""

from __future__ import annotations

from metricshuffle.numerics.rounding import format_delta, format_epsilon, format_number
from metricshuffle.report.components import TextTable
from metricshuffle.report.notebook import Summary, summary
from metricshuffle_papers.compare.linear import LinearComparison
from metricshuffle_papers.compare.users import UserComparison


@summary.register(LinearComparison)
@summary.register(UserComparison)
def _(thing: LinearComparison | UserComparison) -> Summary:
    return Summary(
        title=f"What {thing.users:,} users' items cost: hiding moves beside hiding users",
        caption=(
            f"epsilon {format_epsilon(thing.epsilon)}, {format_number(thing.rate)} epsilon "
            "per unit of distance, delta "
            f"{format_delta(thing.delta)}"
        ),
        table=TextTable(
            ("model", "method", "hides", "error"),
            [
                (method.model, method.name, method.hides, format_number(method.error))
                for method in thing.methods
            ],
            numeric=(3,),
        ),
        sentences=thing.sentences(),
    )
