"""Directed rounding of floats, and formatting of certified numbers in a stated direction."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

ROUNDOFF = 2.0**-53
"""Unit roundoff: largest relative error of one addition, product, quotient or root of floats."""
ULP = 2.0 * ROUNDOFF
"""Distance from 1 to the next larger float."""
EPSILON_PRINT_TOLERANCE = Decimal("4e-15")
"""Relative tolerance when rounding a printed epsilon up."""


def round_up(value: float, roundings: int) -> float:
    """Return `value` times 1 + `roundings` * ROUNDOFF, an upper bound on the true value >= 0.

    Statement: the result is not below the true value if at most `roundings` - 2 operations made
    `value`, none of which loses more than the fraction ROUNDOFF (one operation if `roundings` is
    2). `roundings` must be even, and less than a million.
    Proof: let u = ROUNDOFF, m the number of operations and k = `roundings`. Then value >= truth (1
    - m u), and (1 - m u)(1 + k u)(1 - u) >= 1 + (k - m - 1) u - k^2 u^2, at least 1 for k >= m + 2.
    Here 1 + k u is a float for even k, and 1 - u is the loss of this product. For k = 2, the
    product is at least the next float above the value, and the truth is at most halfway there. QED
    """
    return value * (1.0 + roundings * ROUNDOFF)


def round_down(value: float, roundings: int) -> float:
    """Return `value` times 1 - `roundings` * ROUNDOFF, a lower bound on the true value >= 0.

    Operations are counted as in `round_up`.
    """
    return value * (1.0 - roundings * ROUNDOFF)


def never_small(value: float) -> float:
    """Return `value`, an upper bound, or infinity if it is NaN or negative."""
    return value if value >= 0.0 else math.inf


def format_number(number: float) -> str:
    """Format a number: integers in full, others with four digits; thousands are separated."""
    if number == int(number) and abs(number) < 1e15:
        return f"{int(number):,}"
    return f"{float(f'{number:.4g}'):,.0f}" if 9999.5 <= abs(number) < 1e15 else f"{number:,.4g}"


def shown_at_least(number: float) -> float:
    """Smallest number, at least `number` > 0, that `format_number` prints exactly."""
    if number == int(number) and number < 1e15:
        return number
    digits = max(4, Decimal(repr(number)).adjusted() + 1) if number < 1e15 else 4
    return float(_format_decimal(number, digits, ROUND_CEILING).replace(",", ""))


def format_exact(number: float) -> str:
    """Format a number with all digits that distinguish it, thousands separated."""
    return f"{int(number):,}" if number == int(number) and abs(number) < 1e15 else f"{number!r}"


def format_epsilon(epsilon: float, digits: int = 4) -> str:
    """Format an epsilon with `digits` significant digits, never less than the true value."""
    return (
        _format_decimal(epsilon, digits, ROUND_CEILING) if math.isfinite(epsilon) else "no promise"
    )


def format_delta(delta: float) -> str:
    """Format a delta with three significant digits, never less than the true value."""
    return _format_decimal(delta, 3, ROUND_CEILING)


def format_lower_bound(value: float) -> str:
    """Format a lower bound (epsilon or delta) with four digits, never more than the true value."""
    return (
        _format_decimal(value, 4, ROUND_FLOOR) if math.isfinite(value) else "more than any number"
    )


def format_rough(number: float) -> str:
    """Format a simulated number with its two reliable digits, rounded up."""
    return _format_decimal(number, 2, ROUND_CEILING)


def two_digits_below(number: float) -> float:
    """Return the largest number of two significant digits that is at most `number`.

    `format_rough` of a value up to the result prints at most `number`.
    """
    return float(_format_decimal(number, 2, ROUND_FLOOR).replace(",", ""))


def format_distance(distance: float) -> str:
    """Format a protected distance with six significant digits, never more than the true value."""
    return _format_decimal(distance, 6, ROUND_FLOOR)


def _format_decimal(number: float, digits: int, towards: str) -> str:
    """Format a number >= 0 to `digits` significant digits, from the shortest decimal of the float.

    Rounding up tolerates a few units in the last place: guarantees hold to within 2e-15
    (PURE_TOLERANCE), so an epsilon of 1.0000000000000002 prints as 1. Rounding down has no
    tolerance: a distance just below 3 may cover a whole step less than 3.
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
