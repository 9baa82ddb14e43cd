"""Values from lists, arrays, frames or tables, in the form that a query takes."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, Unpack

import numpy as np

from metricshuffle.data.frames import column_names, frame_table, has_arrow_interface, is_table
from metricshuffle.data.row_errors import RowSummary
from metricshuffle.data.row_values import cells_of
from metricshuffle.data.rows import Rows, count_outside
from metricshuffle.data.value_reading import ReadingArguments, check_argument_names, coordinate_kind
from metricshuffle.errors import InputError, InputWarning, argument
from metricshuffle.numerics.types import Floats
from metricshuffle.queries.column_means import Means
from metricshuffle.queries.query import Query
from metricshuffle.spaces import Categories, Grid

TABLE_ARGUMENTS = ("column", "user_column", "per_user", "drop_missing", "drop_outside")
"""Arguments about the rows of a table."""


def parts_of(query: Query, values: Any, **reading: Unpack[ReadingArguments]) -> Iterator[Any]:
    """Iterate over values in the form that the query takes.

    Columns of a frame or table are read in chunks; other values are yielded unchanged.
    """
    check_argument_names(reading)
    column = reading.get("column")
    title = type(values).__name__
    if not is_table(values) and not (column is not None and has_arrow_interface(values)):
        named = next(
            (name for name in TABLE_ARGUMENTS if reading.get(name) not in (None, False)), None
        )
        if named is not None:
            raise InputError(
                f"{argument(named)} is for a frame or a table with named columns, and this "
                f"is a {title}; leave it out."
            )
        taken, seen = _plain(query, values, reading.get("coordinates"), reading.get("clamp", False))
        yield taken
        remarks = seen.moved_sentences(f"the {title}", query.values_in, None)
    else:
        if column is None and not isinstance(query, Means):
            raise InputError(
                f"{argument('column')} must say which column of the {title} holds the "
                f"values; it has: {column_names(values)}."
            )
        rows = Rows.of(partial(frame_table, values), query, **reading)
        yield from rows.parts()
        remarks = rows.remarks
    for remark in remarks:
        warnings.warn(remark, InputWarning, stacklevel=4)


def join_parts(parts: Iterable[Any]) -> Any:
    """Concatenate all parts."""
    chunks = list(parts)
    return chunks[0] if len(chunks) == 1 else np.concatenate(chunks)


def _plain(
    query: Query, values: Any, coordinates: str | None, clamp: bool
) -> tuple[Any, RowSummary]:
    """Convert a list or array to the form that the query takes, and count clamped values."""
    domain = query.values_in
    seen = RowSummary()
    where = None if coordinates is None else coordinate_kind(query, coordinates)
    if not clamp and (
        not isinstance(domain, Grid) or (where is None and domain.box is None) or where == "cells"
    ):
        return values, seen
    together, sizes = _flatten_values(query, values)
    if together is None or isinstance(domain, Categories):
        return values, seen  # errors are raised where the values are used
    if isinstance(domain, Grid):
        pairs = _pairs(together)
        where = where or ("cells" if pairs is None else _where(domain, pairs))
        if where != "cells":
            if pairs is None:
                raise InputError(
                    f"{argument('coordinates', where)} is for pairs of numbers, and these "
                    "values are not."
                )
            columns = pairs[:, 0], pairs[:, 1]
            together = cells_of(domain, columns, where, clamp)
            seen.used = len(pairs)
            seen.clamped = (
                count_outside(lambda: cells_of(domain, columns, where, False)) if clamp else 0
            )
            return (together if sizes is None else np.split(together, np.cumsum(sizes)[:-1])), seen
    if clamp:
        seen.used = len(together)
        seen.clamped = count_outside(lambda: domain.validated(together))
    return values, seen


def _flatten_values(query: Query, values: Any) -> tuple[Any, list[int] | None]:
    """Flat list of values, and the number of items of each user if users have several.

    None if the values are not such a list.
    """
    if query.items is None:
        return (values, None) if hasattr(values, "__len__") else (None, None)
    try:
        users = [list(items) for items in values]
    except TypeError:
        return None, None
    return [item for items in users for item in items], [len(items) for items in users]


def _pairs(values: object) -> Floats | None:
    """Pairs of numbers as two columns; None for anything else."""
    try:
        pairs = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        return None
    return pairs if pairs.ndim == 2 and pairs.shape[1] == 2 and len(pairs) else None


def _where(grid: Grid, pairs: Floats) -> str:
    """Return whether pairs on a map are places in degrees, or cells (whole numbers on the grid).

    Raises InputError if they may be both.
    """
    box = grid.box
    if box is None:
        return "cells"
    whole = bool(np.all(pairs == np.rint(pairs)))
    cells = whole and bool(np.all((pairs >= 0) & (pairs <= (grid.width - 1, grid.height - 1))))
    places = not whole or bool(
        np.all((pairs >= (box.south, box.west)) & (pairs <= (box.north, box.east)))
    )
    if cells and places:
        raise InputError(
            "these pairs of whole numbers may be columns and rows of cells, or latitudes "
            "and longitudes of places; say which they are "
            f"with {argument('coordinates', 'cells')} or {argument('coordinates', 'places')}."
        )
    return "places" if places else "cells"
