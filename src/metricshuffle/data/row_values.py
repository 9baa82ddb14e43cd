"""Conversion of table cells to labels and places, and errors for invalid ones."""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from metricshuffle.data.cell_parsing import is_missing, object_array, parse_numbers
from metricshuffle.data.source import Cells, Chunk, Column
from metricshuffle.errors import DomainError, InputError, WrongRows, argument
from metricshuffle.models import format_value
from metricshuffle.spaces import (
    Box,
    Categories,
    Grid,
    KeyedNumbers,
    LabelledNumbers,
    LabelSets,
    Places,
    ZonePairs,
    Zones,
)
from metricshuffle.spaces.array_input import joined_errors

SEPARATORS = re.compile("[;|]")
"""Separators of the labels of a set, or of keys with numbers, in one cell."""


def labels_of(domain: Categories | Zones, cells: list[str]) -> Column:
    known = set(domain.labels if isinstance(domain, Categories) else domain.ids)
    name = "a label" if isinstance(domain, Categories) else "the id of a zone"
    names = "labels" if isinstance(domain, Categories) else "zones"
    unknown_rows = [row for row, cell in enumerate(cells) if cell not in known]
    if unknown_rows:
        error = DomainError(f"{format_value(cells[unknown_rows[0]])} is not {name}.")
        error.where = WrongRows(
            unknown_rows, str(domain), lambda _: f"is not one of the {names}", lambda _: False
        )
        raise error
    return np.array(cells, dtype=object)


def pairs_of(domain: LabelledNumbers, labels: Cells, numbers: Column, clamp: bool) -> Column:
    """Pairs of a label and a number, inside the domain."""
    words = ["" if cell is None else str(cell).strip() for cell in labels]
    pairs = np.empty((len(words), 2), dtype=object)
    pairs[:, 0] = words
    pairs[:, 1] = numbers.tolist()
    checked = domain.clamped(pairs) if clamp else domain.validated(pairs)
    pairs[:, 1] = checked[:, 1].tolist()
    return pairs


def sets_of(domain: LabelSets, cells: Cells) -> Column:
    """Sets of labels, each a tuple, inside the domain; an empty text is the empty set."""
    _check_separable(domain.labels)
    sets = [_parts(cell) for cell in cells]
    _raise_missing(sets, str(domain))
    checked = domain.validated(sets)
    names = domain.labels.labels
    return object_array(
        (tuple(names[code] for code in row if code >= 0) for row in checked), len(sets)
    )


def holdings_of(
    domain: KeyedNumbers, keys: Cells, numbers: Column | None, clamp: bool, decimal: str
) -> Column:
    """Keys with numbers, each a tuple of pairs, inside the domain.

    A row has one key and its number, or a text such as a=3;b=5.
    """
    _check_separable(domain.keys)
    people: list[list[object] | None] = (
        [_pairs(cell, decimal) for cell in keys]
        if numbers is None
        else [
            [] if is_missing(key) and is_missing(number) else [(str(key).strip(), number)]
            for key, number in zip(keys, numbers.tolist(), strict=True)
        ]
    )
    _raise_missing(people, str(domain))
    checked = domain.clamped(people) if clamp else domain.validated(people)
    names = domain.keys.labels
    return object_array(
        (
            tuple((names[int(code)], number) for code, number in row if code >= 0)
            for row in checked.tolist()
        ),
        len(people),
    )


def _check_separable(labels: Categories) -> None:
    split = next((label for label in labels.labels if SEPARATORS.search(label)), None)
    if split is not None:
        raise InputError(
            f"the label {format_value(split)} contains ; or |, which separate labels in a cell; "
            f"rename it, or pass lists of labels in Python ({argument('column')} is for tables)."
        )


def _parts(cell: object) -> list[object] | None:
    """Parts of a cell, without spaces around them; None if it is missing in a frame."""
    if isinstance(cell, str):
        return [part.strip() for part in SEPARATORS.split(cell) if part.strip()]
    return list(cell) if isinstance(cell, Iterable) else None


def _pairs(cell: object, decimal: str) -> list[object] | None:
    if isinstance(cell, dict):
        return list(cell.items())
    parts = _parts(cell)
    if not isinstance(cell, str) or parts is None:
        return parts
    halves = [str(part).rpartition("=") for part in parts]
    numbers = parse_numbers([number for _, _, number in halves], decimal).tolist()
    return [(key.strip(), number) for (key, _, _), number in zip(halves, numbers, strict=True)]


def _raise_missing(people: list[list[object] | None], inside: str) -> None:
    missing = [row for row, parts in enumerate(people) if parts is None]
    if missing:
        error = DomainError(f"row {missing[0]} (counting from 0) is missing.")
        error.where = WrongRows(missing, inside, lambda _: "is missing", lambda _: False)
        raise error


def trips_of(
    domain: ZonePairs, cells: tuple[Cells, ...], columns: tuple[Column, ...], clamp: bool
) -> Column:
    """Pairs of ids of zones, from two columns of ids or four of degrees."""
    zones = domain.zones
    ends = []
    errors = []
    for start in (0, len(columns) // 2):
        try:
            if len(columns) == 2:
                words = ["" if cell is None else str(cell).strip() for cell in cells[start]]
                ends.append(labels_of(zones, words))
            else:
                codes = cells_of(zones, columns[start : start + 2], "places", clamp)
                ends.append(np.array(zones.ids, dtype=object)[codes])
        except DomainError as error:
            errors.append(error)
    if errors:
        raise joined_errors(errors, str(zones))
    return np.column_stack(ends)


def cells_of(
    grid: Grid | Places | Zones, columns: tuple[Column, ...], coordinates: str, clamp: bool
) -> Column:
    if coordinates == "places" and isinstance(grid, Grid):
        return grid.cells_at(*columns, clamp=clamp)
    kinds = {column.dtype for column in columns}
    pairs = np.stack(
        [column if len(kinds) == 1 else column.astype(object) for column in columns], axis=1
    )
    if coordinates == "points" and isinstance(grid, Grid):
        return grid.cells(pairs, clamp=clamp)
    return grid.clamped(pairs) if clamp else grid.validated(pairs)


def invalid_coordinates(chunk: Chunk, start: int, row: int, box: Box | None) -> str:
    """Return which of two degrees is impossible; empty if both are possible.

    Clamping an impossible coordinate would hide a mistake.
    """
    first, second = (chunk.columns[start + index][row] for index in (0, 1))
    if box is not None and box.contains(second, first):
        return "(the columns seem to be swapped: give the latitude first, then the longitude)"
    limits: tuple[tuple[float, str], ...] = ((90.0, "latitude"), (180.0, "longitude"))
    for index, (limit, name) in enumerate(limits):
        degrees: object = chunk.columns[start + index][row]
        if (
            isinstance(degrees, int | float | np.floating | np.integer)
            and abs(float(degrees)) > limit
        ):
            limits_text = f"between -{limit:g} and {limit:g} degrees"
            return (
                f"({float(degrees):g} is not a {name}, which lies {limits_text}; the first "
                "column is the latitude)"
            )
    return ""
