"""Which way a number was rounded: how much a float may be off, how to step aside by that much, and how to print what was promised."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

ROUNDOFF = 2.0**-53
"""The unit roundoff: one addition, product, quotient or root of floats is off by at most this fraction of itself."""
ULP = 2.0 * ROUNDOFF
"""How far the next float above 1 is."""
EPSILON_PRINT_TOLERANCE = Decimal("4e-15")
"""What an epsilon in print may be below its double."""


def round_up(value: float, roundings: int) -> float:
    """`value` times 1 + `roundings` * ROUNDOFF: for a value >= 0 that must not come out below the truth.

    Statement: it does not, if at most `roundings` - 2 operations made the value, none of which loses more than ROUNDOFF of the truth
    (one operation if `roundings` is 2). `roundings` must be even, and less than a million.
    Proof: with m operations and k roundings, value >= truth (1 - m u), and (1 - m u)(1 + k u)(1 - u) >= 1 + (k - m - 1) u - k^2 u^2, at
    least 1 for k >= m + 2; 1 + k u is a float for even k, and the last factor is this product's own loss. k = 2: the product is at
    least the next float above the value, and the truth is at most halfway there. QED
    """
    return value * (1.0 + roundings * ROUNDOFF)


def round_down(value: float, roundings: int) -> float:
    """`value` times 1 - `roundings` * ROUNDOFF: for a value >= 0 that must not come out above the truth; counted as in `round_up`."""
    return value * (1.0 - roundings * ROUNDOFF)


def never_small(value: float) -> float:
    """An upper bound that is not a number, or negative, is infinite."""
    return value if value >= 0.0 else math.inf


def format_number(number: float) -> str:
    """A number as a person writes it: four significant digits, thousands separated, no trailing zeros."""
    if number == int(number) and abs(number) < 1e15:
        return f"{int(number):,}"
    return f"{float(f'{number:.4g}'):,.0f}" if 9999.5 <= abs(number) < 1e15 else f"{number:,.4g}"


def format_epsilon(epsilon: float, digits: int = 4) -> str:
    """An epsilon in a table or a sentence: four digits (or as many), never less than the truth."""
    return _format_decimal(epsilon, digits, ROUND_CEILING) if math.isfinite(epsilon) else "no promise"


def format_delta(delta: float) -> str:
    """A delta in a sentence: three digits, never less than the truth."""
    return _format_decimal(delta, 3, ROUND_CEILING)


def format_lower_bound(value: float) -> str:
    """The lower end of a band, an epsilon or a delta: four digits, never more than the truth."""
    return _format_decimal(value, 4, ROUND_FLOOR) if math.isfinite(value) else "more than any number"


def format_rough(number: float) -> str:
    """A number that comes from a simulation: the two digits that it has, never less than what was found."""
    return _format_decimal(number, 2, ROUND_CEILING)


def two_digits_below(number: float) -> float:
    """The largest number of two digits that is not above: what `format_rough` prints is at most `number` if it is about no more than
    this."""
    return float(_format_decimal(number, 2, ROUND_FLOOR).replace(",", ""))


def format_distance(distance: float) -> str:
    """A distance up to which something is promised: six digits, never more than the truth."""
    return _format_decimal(distance, 6, ROUND_FLOOR)


def _format_decimal(number: float, digits: int, towards: str) -> str:
    """A number >= 0 to so many significant digits, rounded one way only, from the shortest decimal that is this float.

    Upwards a few units of the last place are forgiven: a promise of doubles is kept to within 2e-15 (PURE_TOLERANCE), and an epsilon of
    1.0000000000000002 is one of 1. Downwards nothing is: a float below 3 may be a whole step below.
    """
    if number == 0.0:
        return "0"
    exact = Decimal(repr(float(number)))
    if towards == ROUND_CEILING:
        exact *= 1 - EPSILON_PRINT_TOLERANCE
    rounded = exact.quantize(Decimal(1).scaleb(exact.adjusted() - digits + 1), rounding=towards)
    if rounded == rounded.to_integral_value() and rounded < 10**15:
        return f"{int(rounded):,}"
    if Decimal("0.0001") <= rounded < 10**15:
        return f"{rounded:,f}".rstrip("0").rstrip(".")
    return f"{float(rounded):.{digits}g}"
