"""Which way a number was rounded: how much a float may be off, how to step aside by that much, and how to print what was promised."""

from __future__ import annotations

import math

ROUNDOFF = 2.0**-53
"""The unit roundoff: one addition, product, quotient or root of floats is off by at most this fraction of itself."""
ULP = 2.0 * ROUNDOFF
"""How far the next float above 1 is."""


def raised(value: float, roundings: int) -> float:
    """`value` times 1 + `roundings` * ROUNDOFF: for a value >= 0 that must not come out below the truth.

    Statement: it does not, if at most `roundings` - 2 operations made the value, none of which loses more than ROUNDOFF of the truth
    (one operation if `roundings` is 2). `roundings` must be even, and less than a million.
    Proof: with m operations and k roundings, value >= truth (1 - m u), and (1 - m u)(1 + k u)(1 - u) >= 1 + (k - m - 1) u - k^2 u^2, at
    least 1 for k >= m + 2; 1 + k u is a float for even k, and the last factor is this product's own loss. k = 2: the product is at
    least the next float above the value, and the truth is at most halfway there. QED
    """
    return value * (1.0 + roundings * ROUNDOFF)


def lowered(value: float, roundings: int) -> float:
    """`value` times 1 - `roundings` * ROUNDOFF: for a value >= 0 that must not come out above the truth; counted as in `raised`."""
    return value * (1.0 - roundings * ROUNDOFF)


def plain(number: float) -> str:
    """A number as a person writes it: four significant digits, no trailing zeros."""
    if number == int(number) and abs(number) < 1e15:
        return f"{int(number):,}"
    return f"{float(f'{number:.4g}'):,.0f}" if 9999.5 <= abs(number) < 1e15 else f"{number:.4g}"


def rounded_up(number: float, digits: int) -> float:
    """The number to so many significant digits, never less than it was (to one part in a billion): for what is promised."""
    if number == 0.0 or not math.isfinite(number):
        return number
    unit = 10.0 ** (math.floor(math.log10(number)) - digits + 1)
    return float(f"{math.ceil(number / unit * (1.0 - 1e-9)) * unit:.{digits}g}") if unit > 0.0 else number


def promised(epsilon: float) -> str:
    """An epsilon in a table or a sentence: four digits, never less than the truth."""
    return plain(rounded_up(epsilon, 4)) if math.isfinite(epsilon) else "no promise"
