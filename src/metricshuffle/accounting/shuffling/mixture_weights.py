"""Choice of the groups relied on, their common mixture component, and each group's weight.

`amplification.mixed_groups_upper` uses it where the others are several groups with different
randomizers. Every law of a chosen group is c times one common law plus a remainder; c is the weight
of the group (`coins` in the code), the probability with which a report of the group is drawn from
the common law. Any choice of groups, common law and weights gives a valid bound; this module
chooses those for which the bound is small.

Notation: K_x is the law of the report under input x; person 1 holds a or b; G is the random
variable (K_a - e^epsilon K_b)/K_x at a report with the law K_x, see `input_class_laws`.
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
# Number of people assumed to be visited before the first one who draws from the blanket, in units
# of their mean number, when choices are compared.
CHARGED_DELAY = 5.0


class OtherGroup(NamedTuple):
    """Group of `people` others: the pointwise minimum of their laws, and their spread.

    The spread measures how little the worst of these laws hides person 1's report. It is a
    heuristic: it influences the choice, not the validity of the bound.
    """

    least: Floats
    spread: float
    people: int

    @classmethod
    def of(cls, rows: Floats, people: int, gap: Floats) -> OtherGroup:
        """Build a group from all its laws K_x, the rows; `gap` is K_a - K_b.

        The spread is the largest over x of the sum of gap^2/K_x over all reports, with K_x raised
        to at least MIN_PROBABILITY.
        """
        return cls(
            rows.min(axis=0),
            float((gap**2 / np.maximum(rows, MIN_PROBABILITY)).sum(axis=1).max()),
            people,
        )


class CommonComponent(NamedTuple):
    """Groups relied on (indices in a list), their mixture weights `coins`, and the common law."""

    mixed: tuple[int, ...]
    coins: Floats
    shape: Floats

    def mean(self, counts: Sequence[int]) -> float:
        """Return the geometric mean of the weights of all people, rounded down."""
        logs = [counts[h] * math.log(coin) for h, coin in zip(self.mixed, self.coins, strict=True)]
        people = sum(counts[h] for h in self.mixed)
        mean = math.fsum(logs) / people  # its absolute error is the result's relative error
        return round_down(math.exp(min(0.0, mean)), 64 + 8 * math.ceil(abs(mean)))


@theorem("metricshuffle", "mixture weights over a common law")
def weights_over(minima: Floats, shape: Floats) -> Floats:
    """Return for each row of `minima` the largest c with c * shape <= row, rounded down.

    Statement: if every law of a group is at least the row of `minima` pointwise and `shape` is a
    law, every law of the group is c * shape plus a remainder, so that a report is drawn from
    `shape` with probability c.
    Conditions: shape sums to one.
    Numerics: rows are right to a few units in the last place.
    """
    if not abs(math.fsum(shape) - 1.0) <= 1e-12 or shape.min() < 0.0:
        raise InputError("the common law must consist of probabilities that sum to one.")
    support = shape > 0.0
    ratios: Floats = np.min(minima[:, support] / shape[support], axis=1)
    return np.minimum(1.0, ratios * (1.0 - 64.0 * 2.0**-53))


def _law(masses: Floats) -> Floats | None:
    masses_kept = np.where(masses >= MIN_MASS, masses, 0.0)
    total = math.fsum(masses_kept)
    return masses_kept / total if total >= MIN_MASS else None


def _candidates(others: Sequence[OtherGroup], gap: Floats) -> Iterator[CommonComponent]:
    """Yield choices of groups, of a common law and of weights.

    The groups are ordered by the mass of their blankets, largest first, or by their spreads,
    smallest first; each prefix of an order is one choice. The common law is, up to scale, the
    pointwise minimum of the laws of the chosen groups, or that minimum without the reports where
    `gap` = K_a - K_b is 0, or the blanket of one of the chosen groups.
    """
    minima = np.array([group.least for group in others])
    orders = (
        np.argsort(-minima.sum(axis=1), kind="stable"),
        np.argsort([group.spread for group in others], kind="stable"),
    )
    sets = dict.fromkeys(
        tuple(sorted(order[:many].tolist()))
        for order in orders
        for many in range(1, len(others) + 1)
    )
    for chosen_set in sets:
        rows = minima[list(chosen_set)]
        shapes = {
            law.tobytes(): law
            for law in map(
                _law, (rows.min(axis=0), np.where(gap == 0.0, 0.0, rows.min(axis=0)), *rows)
            )
            if law is not None
        }
        for shape in shapes.values():
            coins = weights_over(rows, shape)
            if not coins.min() > 0.0:
                continue
            # the weights with the smallest variance, up to scale
            wanted = 1.0 / np.array([max(others[h].spread, 1e-300) for h in chosen_set])
            for scale in np.unique(coins / wanted):
                yield CommonComponent(chosen_set, np.minimum(coins, scale * wanted), shape)


def _expected_variance(choice: CommonComponent, others: Sequence[OtherGroup]) -> float:
    """Estimate the variance of the mean of G over all people, each with the weight of the group.

    The people who may be visited before the first one who draws from the blanket are not counted;
    they are assumed to have the largest weights.
    """
    counts = np.array([others[h].people for h in choice.mixed], dtype=np.float64)
    spreads = np.array([others[h].spread for h in choice.mixed])
    largest = float(choice.coins.max())
    share = choice.coins / largest  # squares of the weights themselves may underflow
    weight = float(counts @ share)
    left = 1.0 - CHARGED_DELAY * counts.sum() / weight / largest / weight
    return float(counts @ (share**2 * spreads)) / weight**2 / (left if left > 0.1 else 1e-6)


def choose_groups(others: Sequence[OtherGroup], gap: Floats) -> CommonComponent | None:
    """Return the choice with the smallest expected full-law bound.

    None if no group has a blanket.
    """
    return min(
        _candidates(others, gap),
        key=lambda choice: _expected_variance(choice, others),
        default=None,
    )


def choose_blanket(others: Sequence[OtherGroup], gap: Floats) -> CommonComponent | None:
    """Return the choice with the smallest expected bound from the blanket alone."""
    counts = [group.people for group in others]

    def price(choice: CommonComponent) -> tuple[float, float]:
        """Rank first by the part of `gap` that the blanket misses.

        That part counts in full for any number of people.
        """
        support = choice.shape > 0.0
        spread = float(np.sum(gap[support] ** 2 / choice.shape[support]))
        bare = float(np.sum(np.abs(gap[~support])))
        return bare, spread / (1.0 + choice.mean(counts) * sum(counts[h] for h in choice.mixed))

    return min(_candidates(others, gap), key=price, default=None)
