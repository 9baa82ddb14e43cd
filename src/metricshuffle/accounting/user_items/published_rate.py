"""Item rate that Theorem 4.4 of Imola24 allows, solved correctly; for comparison only.

The command line prints it beside the certified rate. No guarantee is made from it.

Notation: item_rate = alpha_0 of one item's randomizer; rate = alpha per unit of earth mover's
distance, which is divided by the diameter; items = m, the number of items of one user; reports = N,
the number of items that are shuffled together; log_term = ln(4m/delta). h(N; x0, x1) is the
function of the theorem that `moved_epsilon` computes.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from metricshuffle.accounting.user_items.item_reports import ItemShuffle, Model
from metricshuffle.numerics.certified_search import last_certified

LARGEST = 300.0  # largest item rate: e^rate is still a float
_BEFORE_DOUBLING = 1e-12  # where a search for an item rate starts


def published_item_rate(
    rate: float, delta: float, users: int, items: int, model: Model
) -> float | None:
    """Item rate by Theorem 4.4, inverted correctly (fixed point); None where it does not apply."""
    reports = ItemShuffle.of(model, users, items).shuffled
    log_term = math.log(4.0 * items) - math.log(delta)

    def allowed(item_rate: float) -> bool:
        return allows(
            item_rate, rate, reports, items, log_term + whole(item_rate, reports, items, log_term)
        )

    return largest_item_rate(allowed)


def allows(item_rate: float, rate: float, reports: float, items: int, log_term: float) -> bool:
    """Whether the condition of Theorem 4.4 holds and its rate is at most `rate`."""
    return (
        item_rate < math.log(reports / (16.0 * log_term))
        and 0.5 * items * item_rate * spread(item_rate, reports, log_term) <= rate
    )


def spread(item_rate: float, reports: float, log_term: float) -> float:
    """8 sqrt(e^alpha_0 log_term/N) + 8 e^alpha_0/N."""
    growth = math.exp(item_rate)
    return 8.0 * math.sqrt(growth * log_term / reports) + 8.0 * growth / reports


def moved_epsilon(
    item_rate: float, reports: float, moved: float, total: float, log_term: float
) -> float:
    """h(N; x0, x1) with x0 = moved, x1 = total, ln(4 x0/delta) = log_term.

    It is x0 log(1 + tanh(alpha_0 x1/(2 x0)) spread), with the function `spread`.
    """
    return moved * math.log1p(
        math.tanh(0.5 * item_rate * total / moved) * spread(item_rate, reports, log_term)
    )


def whole(item_rate: float, reports: float, items: int, log_term: float) -> float:
    """Smallest h found that is at least h(N; m, m) computed with delta e^-h in place of delta.

    log_term = ln(4m/delta). With this h the delta' of the theorem is delta.
    """

    def enough(h: float) -> bool:
        return moved_epsilon(item_rate, reports, items, items, log_term + h) <= h

    passing = 1.0
    while not enough(passing):  # moved_epsilon grows only like the logarithm of h
        passing *= 2.0
    return last_certified(enough, 0.0, passing)


def largest_item_rate(allowed: Callable[[float], bool]) -> float | None:
    """Last item rate found at which `allowed` is true; None if it is false at the smallest.

    `allowed` must be true up to some rate and false beyond.
    """
    if not allowed(_BEFORE_DOUBLING):
        return None
    passing = _BEFORE_DOUBLING
    while passing < LARGEST / 2.0 and allowed(2.0 * passing):
        passing *= 2.0
    return last_certified(allowed, min(2.0 * passing, LARGEST), passing)
