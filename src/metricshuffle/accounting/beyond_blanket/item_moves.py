"""One item of a user moves among shuffled items: what `accounting/items` may take in place of, or beside, the blanket's bound."""

from __future__ import annotations

from metricshuffle.accounting.beyond_blanket.bound import delta_upper
from metricshuffle.accounting.beyond_blanket.laws import OthersLaws
from metricshuffle.citations import theorem


@theorem("metricshuffle", "one move among shuffled items, beyond the blanket")
def move_delta(law: OthersLaws, shuffled: int, epsilon: float) -> float:
    """A bound on the divergence at e^epsilon, both ways, of the shuffled reports of `shuffled` items when one of them moves from a to b.

    Statement: it holds whatever the other items hold, those of the same user included, so it may stand for D_j(e^epsilon) of
    `items.moves.BlanketLines`; so may the smaller one of it and of the blanket's. Proof: `delta_upper` speaks of independent reports of
    which one changes its law; whose they are does not enter. Along a path that moves one item at a time, each step is such a change.
    Conditions: items are reported independently; `law` holds the law of every value an item can have.
    Numerics: those of `delta_upper`. Reference: docs/proofs/beyond-blanket.md.
    """
    return delta_upper(law, shuffled, epsilon)
