"""Scales of maps: shades of shares with their legend, and the scale bar."""

from __future__ import annotations

import math

import numpy as np

from metricshuffle.numerics.rounding import format_number
from metricshuffle.numerics.types import Floats, Integers64
from metricshuffle.spaces import Grid
from metricshuffle.spaces.grid import METRES

SHADE_COUNT = 16
"""Number of shades. Roots of shares are rounded to them, so that small shares are visible."""
MAX_BORDERED_CELLS = 100  # with more cells, borders are not drawn


def shade_indices(shares: Floats, strongest: float) -> Integers64:
    """Shade of each share: from 0, below a 1,024th of the strongest share, to SHADE_COUNT."""
    if not strongest > 0.0:
        raise ValueError(f"the strongest share must be above 0, got {strongest!r}")
    return np.asarray(
        np.minimum(
            np.rint(SHADE_COUNT * np.sqrt(np.maximum(shares, 0.0) / strongest)), SHADE_COUNT
        ),
        dtype=np.int64,
    )


def legend_shares(strongest: float) -> list[tuple[int, str, str]]:
    """The shades labelled in the legend, each with its share as text and the alignment."""
    sides = {0: "left", SHADE_COUNT: "right"}
    return [
        (
            shade,
            f"{format_number(float(f'{100.0 * strongest * (shade / SHADE_COUNT) ** 2:.2g}'))} %",
            sides.get(shade, "center"),
        )
        for shade in (0, SHADE_COUNT // 2, SHADE_COUNT)
    ]


def scale_bar(across: float, grid: Grid) -> tuple[float, str]:
    """Length of the scale bar in units, and its text.

    It is at most a third of `across`, and 1, 2 or 5 times a power of ten.
    """
    unit = grid.unit
    factor = 1.0
    if unit in METRES:  # kilometres on large maps
        unit = "km" if across * METRES[grid.unit] >= 3000.0 else "m"
        factor = METRES[grid.unit] / METRES[unit]
    max_length = across * factor / 3.0
    power = 10.0 ** math.floor(math.log10(max_length))
    length = max(
        digit * power for digit in (1.0, 2.0, 5.0) if digit * power <= max_length * (1.0 + 1e-9)
    )
    return length / factor, f"{format_number(length)} {unit}".rstrip()
