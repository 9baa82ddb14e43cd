"""Hockey-stick divergence of a few users' shuffled reports in exact rationals.

For every data set, and for the blanket expression itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import combinations_with_replacement

Weights = Sequence[int]
"""Law as whole-number weights; all rows of a channel have the same total."""


def multiset_weights(rows: Iterable[Weights]) -> dict[tuple[int, ...], int]:
    """Weight of every vector of counts when each user draws one report from their row."""
    current: dict[tuple[int, ...], int] = {}
    for row in rows:
        if not current:
            current = {(0,) * len(row): 1}
        after: dict[tuple[int, ...], int] = defaultdict(int)
        for counts, weight in current.items():
            for report, chance in enumerate(row):
                if chance:
                    after[*counts[:report], counts[report] + 1, *counts[report + 1 :]] += (
                        weight * chance
                    )
        current = after
    return current


def shuffled_delta(a: Weights, b: Weights, others: Sequence[Weights], growth: Fraction) -> Fraction:
    """Hockey-stick divergence at e = growth of shuffled reports, user 1 at a rather than b."""
    first = multiset_weights([a, *others])
    second = multiset_weights([b, *others])
    gain = sum(
        max(0, growth.denominator * weight - growth.numerator * second.get(counts, 0))
        for counts, weight in first.items()
    )
    return Fraction(gain, growth.denominator * sum(a) ** (len(others) + 1))


def every_data_set(
    channel: Sequence[Weights], a: int, b: int, users: int, growth: Fraction
) -> dict[tuple[int, ...], Fraction]:
    """Values of the others (a and b included) -> divergence."""
    held = combinations_with_replacement(range(len(channel)), users - 1)
    return {
        others: shuffled_delta(channel[a], channel[b], [channel[i] for i in others], growth)
        for others in held
    }


def blanket_expression(
    atoms: Sequence[tuple[Fraction, Fraction, Fraction]], users: int, growth: Fraction
) -> Fraction:
    """(1/n) E[(G_1 + .. + G_n)_+] from (w, K_a, K_b) per atom, by convolution.

    G = (K_a - growth K_b)/w; w = 0 counts in full.
    """
    law: dict[Fraction, Fraction] = defaultdict(Fraction)
    exposed = Fraction(0)
    for w, a, b in atoms:
        if w:
            law[(a - growth * b) / w] += w
        else:
            exposed += max(Fraction(0), a - growth * b)
    law[Fraction(0)] += 1 - sum(law.values())
    total: dict[Fraction, Fraction] = {Fraction(0): Fraction(1)}
    for _ in range(users):
        after: dict[Fraction, Fraction] = defaultdict(Fraction)
        for value, mass in total.items():
            for step, chance in law.items():
                if chance:
                    after[value + step] += mass * chance
        total = after
    return (
        exposed
        + sum((value * mass for value, mass in total.items() if value > 0), Fraction(0)) / users
    )
