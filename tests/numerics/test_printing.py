"""Printed numbers: epsilons and deltas never below the truth, distances never above."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from decimal import Decimal

from tests.tables import check_all

from metricshuffle.numerics.rounding import (
    EPSILON_PRINT_TOLERANCE,
    format_delta,
    format_distance,
    format_epsilon,
    format_lower_bound,
)

Printed = Callable[[float], str]


def values(count: int) -> list[float]:
    """Random numbers of all sizes, and such that are a hair beside a short decimal."""
    source = random.Random(20)
    numbers = [10 ** source.uniform(-30, 14) for _ in range(count // 2)]
    return numbers + [
        source.randrange(1, 9999)
        * 10.0 ** source.randrange(-8, 5)
        * (1 + source.choice((-1, 1)) * 1e-13)
        for _ in numbers
    ]


@check_all(("printed", "digits"), [(format_epsilon, 4), (format_delta, 3)])
def test_epsilons_and_deltas_are_rounded_up(printed: Printed, digits: int) -> None:
    for number in values(10_000):
        shown = Decimal(printed(number).replace(",", ""))
        exact = Decimal(number)
        assert (
            exact * (1 - EPSILON_PRINT_TOLERANCE)
            <= shown
            <= exact * (1 + Decimal(10) ** (1 - digits))
        ), number


def test_distances_are_rounded_down() -> None:
    for number in values(10_000):
        shown = Decimal(format_distance(number).replace(",", ""))
        shortest = Decimal(repr(number))
        assert shortest * (1 - Decimal("1e-5")) <= shown <= shortest, number


@check_all(
    ("printed", "number", "text"),
    [
        (format_epsilon, 1.0004, "1.001"),
        (format_epsilon, 1.0000000000000002, "1"),
        (format_epsilon, 12345.6, "12,350"),
        (format_epsilon, float("inf"), "no promise"),
        (format_epsilon, 5e-324, "4.941e-324"),
        (format_delta, 0.0, "0"),
        (format_delta, 1e-6, "1e-06"),
        (format_delta, 1.0001e-6, "1.01e-06"),
        (format_distance, 0.3, "0.3"),
        (format_distance, 0.3 / 0.1, "2.99999"),
        (format_distance, 1.9999999, "1.99999"),
        (format_distance, 1_234_567.0, "1,234,560"),
        (format_distance, 1e20, "1e+20"),
    ],
)
def test_words(printed: Printed, number: float, text: str) -> None:
    assert printed(number) == text


def test_lower_ends_are_rounded_down() -> None:
    """What was certainly given away is at least what is printed, and nearly that much."""
    for number in values(10_000):
        shown = Decimal(format_lower_bound(number).replace(",", ""))
        exact = Decimal(repr(number))
        assert exact * (1 - Decimal("0.001")) <= shown <= exact, number
    assert format_lower_bound(0.0) == "0"
    assert format_lower_bound(0.99999) == "0.9999"
    assert format_lower_bound(math.inf) == "more than any number"
