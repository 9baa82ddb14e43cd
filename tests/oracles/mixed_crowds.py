"""Shuffled reports of a few people of several groups in exact rationals: every data set."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import combinations_with_replacement, product

from tests.oracles.shuffled_brute_force import Weights, shuffled_delta

Group = tuple[Sequence[Weights], int]
"""Laws of one group as whole numbers of one total for all groups, and its number of others."""


def everybody_else(others: Sequence[Group]) -> Iterator[list[Weights]]:
    """All data sets of the others."""
    for chosen in product(
        *(combinations_with_replacement(range(len(rows)), many) for rows, many in others)
    ):
        yield [rows[x] for (rows, _), held in zip(others, chosen, strict=True) for x in held]


def worst(
    a: Weights, b: Weights, others: Sequence[Group], growth: Fraction
) -> tuple[Fraction, int]:
    """Largest hockey-stick divergence over all data sets of the others, and their number."""
    found = [shuffled_delta(a, b, held, growth) for held in everybody_else(others)]
    return max(found), len(found)
