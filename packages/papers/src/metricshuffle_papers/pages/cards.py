"""The cards of comparisons in notebooks."""

from __future__ import annotations

from metricshuffle.numerics.rounding import plain, promised, promised_delta
from metricshuffle.pages.elements import Table
from metricshuffle.pages.notebook import Summary, summary
from metricshuffle_papers.compare.linear import LinearComparison
from metricshuffle_papers.compare.users import UserComparison


@summary.register(LinearComparison)
@summary.register(UserComparison)
def _(thing: LinearComparison | UserComparison) -> Summary:
    return Summary(
        title=f"What {thing.users:,} users' items cost: hiding moves beside hiding users",
        caption=f"epsilon {promised(thing.epsilon)}, {plain(thing.rate)} epsilon per unit of distance, delta {promised_delta(thing.delta)}",
        table=Table(
            ("model", "method", "hides", "error"),
            [(method.model, method.name, method.hides, plain(method.error)) for method in thing.methods],
            numeric=(3,),
        ),
        sentences=thing.sentences(),
    )
