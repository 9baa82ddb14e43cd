"""Which of the other groups are counted on, the law they have in common, and how often each of their reports is drawn from it.

Any choice gives a bound that holds; this one makes it small.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from metricshuffle.accounting.shuffling.blanket_law import MIN_MASS
from metricshuffle.citations import theorem
from metricshuffle.errors import InputError
from metricshuffle.numerics.rounding import round_down
from metricshuffle.numerics.types import Floats

MIN_PROBABILITY = 1e-9
CHARGED_DELAY = 5.0  # people visited until the first of the blanket, in units of their mean number, that a choice is charged for


class OtherGroup(NamedTuple):
    """`people` of one group: the pointwise minimum of their laws, and how little the worst of these hides (a guide only)."""

    least: Floats
    spread: float
    people: int

    @classmethod
    def of(cls, rows: Floats, people: int, gap: Floats) -> OtherGroup:
        """From all laws of the group; `gap` is K_a - K_b. The spread is the largest sum of gap^2/K_x, very small K_x not told apart."""
        return cls(rows.min(axis=0), float((gap**2 / np.maximum(rows, MIN_PROBABILITY)).sum(axis=1).max()), people)


class CommonComponent(NamedTuple):
    """The groups that are counted on (places in a list), their coins, and the common law."""

    kept: tuple[int, ...]
    coins: Floats
    shape: Floats

    def mean(self, counts: Sequence[int]) -> float:
        """The geometric mean of all coins, rounded down."""
        logs = [counts[h] * math.log(coin) for h, coin in zip(self.kept, self.coins, strict=True)]
        people = sum(counts[h] for h in self.kept)
        mean = math.fsum(logs) / people  # off by a few units of itself: that many of the result
        return round_down(math.exp(min(0.0, mean)), 64 + 8 * math.ceil(abs(mean)))


@theorem("metricshuffle", "coins over a common law")
def weights_over(minima: Floats, shape: Floats) -> Floats:
    """For each row of `least`, the largest c such that c * shape is nowhere above it, rounded down.

    Statement: if every law of a group is at least `least` pointwise and `shape` is a law, each of them is c * shape plus the rest, so that
    it is drawn from `shape` with probability c. Conditions: shape sums to one. Numerics: rows are right to a few units.
    """
    if not abs(math.fsum(shape) - 1.0) <= 1e-12 or shape.min() < 0.0:
        raise InputError("the common law must be one: probabilities that sum to one.")
    support = shape > 0.0
    ratios: Floats = np.min(minima[:, support] / shape[support], axis=1)
    return np.minimum(1.0, ratios * (1.0 - 64.0 * 2.0**-53))


def _law(masses: Floats) -> Floats | None:
    masses_kept = np.where(masses >= MIN_MASS, masses, 0.0)
    total = math.fsum(masses_kept)
    return masses_kept / total if total >= MIN_MASS else None


def _candidates(others: Sequence[OtherGroup], gap: Floats) -> Iterator[CommonComponent]:
    """The groups with the thickest blankets, or that hide best, from one to all; over what they have in common, or the blanket of each.

    `gap` is K_a - K_b: what they have in common may also be taken without the reports of which a and b make as many.
    """
    minima = np.array([group.least for group in others])
    orders = (np.argsort(-minima.sum(axis=1), kind="stable"), np.argsort([group.spread for group in others], kind="stable"))
    sets = dict.fromkeys(tuple(sorted(order[:many].tolist())) for order in orders for many in range(1, len(others) + 1))
    for chosen_set in sets:
        rows = minima[list(chosen_set)]
        shapes = {
            law.tobytes(): law
            for law in map(_law, (rows.min(axis=0), np.where(gap == 0.0, 0.0, rows.min(axis=0)), *rows))
            if law is not None
        }
        for shape in shapes.values():
            coins = weights_over(rows, shape)
            if not coins.min() > 0.0:
                continue
            wanted = 1.0 / np.array([max(others[h].spread, 1e-300) for h in chosen_set])  # the best weights, if nothing else mattered
            for scale in np.unique(coins / wanted):
                yield CommonComponent(chosen_set, np.minimum(coins, scale * wanted), shape)


def _expected_variance(choice: CommonComponent, others: Sequence[OtherGroup]) -> float:
    """The variance of the weighted mean of G; as many as may be visited before the first of the blanket, those with the largest weights,
    are charged for."""
    counts = np.array([others[h].people for h in choice.kept], dtype=np.float64)
    spreads = np.array([others[h].spread for h in choice.kept])
    largest = float(choice.coins.max())
    share = choice.coins / largest  # (squares of coins may be too small for a float)
    weight = float(counts @ share)
    left = 1.0 - CHARGED_DELAY * counts.sum() / weight / largest / weight
    return float(counts @ (share**2 * spreads)) / weight**2 / (left if left > 0.1 else 1e-6)


def choose_groups(others: Sequence[OtherGroup], gap: Floats) -> CommonComponent | None:
    """The choice that promises the smallest bound beyond the blanket; None if no group has a blanket."""
    return min(_candidates(others, gap), key=lambda choice: _expected_variance(choice, others), default=None)


def choose_blanket(others: Sequence[OtherGroup], gap: Floats) -> CommonComponent | None:
    """The choice that promises the smallest bound from the blanket alone."""
    counts = [group.people for group in others]

    def price(choice: CommonComponent) -> tuple[float, float]:
        """What the blanket does not cover comes first: it counts in full for any number of people."""
        support = choice.shape > 0.0
        spread, bare = float(np.sum(gap[support] ** 2 / choice.shape[support])), float(np.sum(np.abs(gap[~support])))
        return bare, spread / (1.0 + choice.mean(counts) * sum(counts[h] for h in choice.kept))

    return min(_candidates(others, gap), key=price, default=None)
