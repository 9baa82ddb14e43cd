"""Exact outcome probabilities of a few people's shuffled reports, for checks by hand."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

Row = Sequence[Fraction]
Counts = tuple[int, ...]


def response_rows(ratio: Fraction, options: int) -> list[list[Fraction]]:
    """k-ary randomized response: the true option is `ratio` times as likely as each other one."""
    total = ratio + options - 1
    return [
        [(ratio if x == y else Fraction(1)) / total for y in range(options)] for x in range(options)
    ]


def count_law(people: Sequence[Row]) -> dict[Counts, Fraction]:
    """Probability of each vector of report counts when everyone draws one report from their row."""
    law: dict[Counts, Fraction] = {(0,) * len(people[0]): Fraction(1)}
    for row in people:
        after: dict[Counts, Fraction] = defaultdict(Fraction)
        for counts, chance in law.items():
            for report, more in enumerate(row):
                if more:
                    after[*counts[:report], counts[report] + 1, *counts[report + 1 :]] += (
                        chance * more
                    )
        law = dict(after)
    return law


@dataclass(frozen=True)
class Outcome:
    """Counts of the reports, their probability if user 1 holds a and if b, and the excess."""

    counts: Counts
    first: Fraction
    second: Fraction
    excess: Fraction
    """max(0, first - e^epsilon second), the contribution to delta."""


def outcomes(a: Row, b: Row, others: Sequence[Row], growth: Fraction) -> list[Outcome]:
    """List every outcome of the shuffled reports of user 1 and the others.

    The excesses at e^epsilon = growth add up to delta.
    """
    first = count_law([a, *others])
    second = count_law([b, *others])
    seen = sorted(first.keys() | second.keys(), reverse=True)
    pairs = (
        (counts, first.get(counts, Fraction(0)), second.get(counts, Fraction(0))) for counts in seen
    )
    return [
        Outcome(counts, one, two, max(Fraction(0), one - growth * two))
        for counts, one, two in pairs
    ]


def exact_delta(a: Row, b: Row, others: Sequence[Row], growth: Fraction) -> Fraction:
    """Hockey-stick divergence from "user 1 holds b" to "user 1 holds a" at e^epsilon = growth."""
    return sum((outcome.excess for outcome in outcomes(a, b, others, growth)), Fraction(0))


def merged_rows(
    p: Fraction, beta: Fraction, q0: Fraction, q1: Fraction
) -> tuple[list[Fraction], list[Fraction], list[Fraction]]:
    """Merged pair of Wang24 as three laws over "favours a", "favours b", "neither".

    User 1 with a, user 1 with b, and each other user.
    """
    alpha = beta / (p - 1)
    s = 1 - alpha - p * alpha
    r0 = alpha * p / q0
    r1 = alpha * p / q1
    return [p * alpha, alpha, s], [alpha, p * alpha, s], [r0, r1, 1 - r0 - r1]
