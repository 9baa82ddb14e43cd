"""Psi(U) = (1/m) E[(sum of G_j)_+] in fractions: full laws of the others, every composition."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations_with_replacement

Row = Sequence[Fraction]


def psi(a: Row, b: Row, held: Sequence[Row], growth: Fraction) -> Fraction:
    """Psi of the people who hold these rows; reports that one cannot make count in full."""
    total: dict[Fraction, Fraction] = {Fraction(0): Fraction(1)}
    bare = Fraction(0)
    for row in held:
        after: dict[Fraction, Fraction] = defaultdict(Fraction)
        for chance, pa, pb in zip(row, a, b, strict=True):
            gap = pa - growth * pb
            if chance:
                for value, mass in total.items():
                    after[value + gap / chance] += mass * chance
            else:
                bare += max(Fraction(0), gap)
        total = after
    return (
        sum((value * mass for value, mass in total.items() if value > 0), Fraction(0)) + bare
    ) / len(held)


def largest_psi(
    rows: Sequence[Row], a: int, b: int, people: int, growth: Fraction
) -> tuple[Fraction, tuple[int, ...]]:
    """Largest Psi over all compositions, and a composition that attains it."""
    return max(
        (psi(rows[a], rows[b], [rows[x] for x in held], growth), held)
        for held in combinations_with_replacement(range(len(rows)), people)
    )


def displaced(rows: Sequence[Row], a: int, b: int, users: int, growth: Fraction) -> Fraction:
    """Theorem A with the largest Psi: sum of g (1-g)^(t-1) Psi_(n-t) + (1-g)^(n-1) delta_local."""
    share = sum((min(column) for column in zip(*rows, strict=True)), Fraction(0))
    local = sum(
        (max(Fraction(0), pa - growth * pb) for pa, pb in zip(rows[a], rows[b], strict=True)),
        Fraction(0),
    )
    terms = (
        share * (1 - share) ** (t - 1) * largest_psi(rows, a, b, users - t, growth)[0]
        for t in range(1, users)
    )
    return sum(terms, (1 - share) ** (users - 1) * local)
