"""Cells of a table as labels and places, and what is wrong with those that are neither."""

from __future__ import annotations

from typing import Any

import numpy as np

from metricshuffle.data import Chunk, Spelling
from metricshuffle.errors import DomainError, WrongRows
from metricshuffle.models import format_value
from metricshuffle.spaces import Box, Categories, Grid, Places


def labels_of(domain: Categories, cells: list[str]) -> Any:
    known = set(domain.labels)
    unknown_rows = [row for row, cell in enumerate(cells) if cell not in known]
    if unknown_rows:
        error = DomainError(f"{format_value(cells[unknown_rows[0]])} is not a label.")
        error.where = WrongRows(unknown_rows, str(domain), lambda _: "is not one of the labels", lambda _: False)
        raise error
    return np.array(cells, dtype=object)


def cells_of(grid: Grid | Places, columns: tuple[Any, ...], coordinates: str, clamp: bool) -> Any:
    if coordinates == "places" and isinstance(grid, Grid):
        return grid.cells_at(*columns, clamp=clamp)
    kinds = {column.dtype for column in columns}
    pairs = np.stack([column if len(kinds) == 1 else column.astype(object) for column in columns], axis=1)
    if coordinates == "points" and isinstance(grid, Grid):
        return grid.cells(pairs, clamp=clamp)
    return grid.clamped(pairs) if clamp else grid.validated(pairs)


def invalid_coordinates(chunk: Chunk, start: int, row: int, box: Box | None, spelling: Spelling) -> str:
    """Which of two degrees is nowhere on Earth, where clamping would hide a mistake; empty if both are somewhere."""
    first, second = (chunk.columns[start + index][row] for index in (0, 1))
    if box is not None and box.contains(second, first):
        return "(the columns seem to be swapped: give the latitude first, then the longitude)"
    limits: tuple[tuple[float, str], ...] = ((90.0, "latitude"), (180.0, "longitude"))
    for index, (limit, name) in enumerate(limits):
        degrees: Any = chunk.columns[start + index][row]
        if isinstance(degrees, int | float | np.floating | np.integer) and abs(float(degrees)) > limit:
            first_is = f"the first {spelling('column')} is the latitude"
            return f"({degrees:g} is no {name}, which lies between -{limit:g} and {limit:g} degrees; {first_is})"
    return ""
