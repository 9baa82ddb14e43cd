"""Recipes of partition families: how the part of each pile follows from the code of a point."""

from __future__ import annotations

import numpy as np

from metricshuffle.protocols.features import Ramps, ShiftedBoxes
from metricshuffle.protocols.partition_family import PartitionFamily
from metricshuffle.spaces import Grid


def family_recipe(family: PartitionFamily, max_entries: int) -> dict[str, object] | None:
    """Return a formula, or else a table; None if the table has too many entries.

    boxes   the box of the cell in tilings of a grid `across` cells wide by boxes of `width` x
            `width` cells, shifted; if every point is a part, points are cells of a grid 1 wide
    ramps   thresholds 0 .. `last`-1 in windows of `width`; v of a window are at or above the point:
            v is the part if `width` is 1, otherwise the part is 1 with probability v/`width`, or 0
    levels  a row of parts for every point
    """
    features = family.features
    grid = family.space.domain
    size = len(family.table)
    if isinstance(features, Ramps):
        return {"kind": "ramps", "width": features.width, "last": size - 1}
    if isinstance(features, ShiftedBoxes) and isinstance(grid, Grid):
        width = features.width
        longest = max(grid.width, grid.height)
        shifts = [shift for shift in range(width) if longest - 1 + shift >= width]
        return {"kind": "boxes", "width": width, "across": grid.width, "shifts": shifts}
    if family.piles == 1 and np.array_equal(family.table[:, 0], np.arange(size)):
        return {"kind": "boxes", "width": 1, "across": 1, "shifts": [0]}
    if family.table.size > max_entries:
        return None
    return {"kind": "levels", "rows": family.table.tolist()}
