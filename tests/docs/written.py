"""Numbers as the documents write them."""

from __future__ import annotations


def number(value: float, digits: int = 6) -> str:
    """Significant digits, without trailing zeros; below a thousandth as 1.5e-4."""
    if value != 0.0 and not 1e-3 <= abs(value) < 1e6:
        mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
        return f"{float(mantissa):g}e{int(exponent)}"
    return f"{value:.{digits}g}"
