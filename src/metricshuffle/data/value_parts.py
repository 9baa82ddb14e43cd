"""Values as somebody has them, a list, an array, a frame or a table, in the form that a query takes."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from metricshuffle.data import ARGUMENTS, frame_table, is_table
from metricshuffle.data.frames import column_names, has_arrow_interface
from metricshuffle.data.row_errors import RowSummary
from metricshuffle.data.row_values import cells_of
from metricshuffle.data.rows import Rows, coordinates_of, count_outside
from metricshuffle.errors import InputError, InputWarning
from metricshuffle.numerics.types import Floats
from metricshuffle.queries.query import Query
from metricshuffle.spaces import Categories, Grid


def parts_of(
    query: Query,
    values: Any,
    *,
    column: str | Sequence[str] | None = None,
    user_column: str | None = None,
    per_user: str | None = None,
    coordinates: str | None = None,
    drop_missing: bool = False,
    drop_outside: bool = False,
    clamp: bool = False,
) -> Iterator[Any]:
    """Values as the query takes them: columns of a frame or table a chunk at a time, or what was given as it is."""
    options: dict[str, Any] = {"column": column, "user_column": user_column, "per_user": per_user}
    options |= {"drop_missing": drop_missing or None, "drop_outside": drop_outside or None}
    named = next((name for name, value in options.items() if value is not None), None)
    if not is_table(values) and not (column is not None and has_arrow_interface(values)):
        if named is not None:
            raise InputError(f"{named}= is for a frame or a table with named columns, and this is a {type(values).__name__}; leave it out.")
        taken, seen = _plain(query, values, coordinates, clamp)
        yield taken
        remarks = seen.moved_sentences(f"the {type(values).__name__}", str(query.values_in), None)
    else:
        if column is None:
            raise InputError(f"say which column of the {type(values).__name__} holds the values, column=; it has: {column_names(values)}.")
        names: list[Any] = list(column) if isinstance(column, list | tuple) else [column]  # pandas also has columns named by numbers
        rows = Rows.of(
            partial(frame_table, values),
            query,
            names,
            coordinates=coordinates,
            clamp=clamp,
            user_column=user_column,
            per_user=per_user,
            drop_missing=drop_missing,
            drop_outside=drop_outside,
            spelling=ARGUMENTS,
        )
        yield from rows.parts()
        remarks = rows.remarks
    for remark in remarks:
        warnings.warn(remark, InputWarning, stacklevel=4)


def join_parts(parts: Iterable[Any]) -> Any:
    """All parts as one."""
    chunks = list(parts)
    return chunks[0] if len(chunks) == 1 else np.concatenate(chunks)


def _plain(query: Query, values: Any, coordinates: str | None, clamp: bool) -> tuple[Any, RowSummary]:
    """A list or an array as the query takes it, and how many of its values clamping moves."""
    domain, seen = query.values_in, RowSummary()
    where = None if coordinates is None else coordinates_of(domain, coordinates, query.title, ARGUMENTS)
    if not clamp and (not isinstance(domain, Grid) or (where is None and domain.box is None) or where == "cells"):
        return values, seen
    together, sizes = _flatten_values(query, values)
    if together is None or isinstance(domain, Categories):
        return values, seen  # what is wrong with it is told where it is used
    if isinstance(domain, Grid):
        pairs = _pairs(together)
        where = where or ("cells" if pairs is None else _where(domain, pairs))
        if where != "cells":
            if pairs is None:
                raise InputError(f"coordinates={where!r} is for pairs of numbers, and these values are not.")
            columns = pairs[:, 0], pairs[:, 1]
            together = cells_of(domain, columns, where, clamp)
            seen.used, seen.clamped = len(pairs), count_outside(lambda: cells_of(domain, columns, where, False)) if clamp else 0
            return (together if sizes is None else np.split(together, np.cumsum(sizes)[:-1])), seen
    if clamp:
        seen.used, seen.clamped = len(together), count_outside(lambda: domain.validated(together))
    return values, seen


def _flatten_values(query: Query, values: Any) -> tuple[Any, list[int] | None]:
    """All values in a row, and how many each user holds where users hold several; None for what is no list of that kind."""
    if query.items is None:
        return (values, None) if hasattr(values, "__len__") else (None, None)
    try:
        users = [list(items) for items in values]
    except TypeError:
        return None, None
    return [item for items in users for item in items], [len(items) for items in users]


def _pairs(values: Any) -> Floats | None:
    """Pairs of numbers as two columns; None for anything else."""
    try:
        pairs = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        return None
    return pairs if pairs.ndim == 2 and pairs.shape[1] == 2 and len(pairs) else None


def _where(grid: Grid, pairs: Floats) -> str:
    """What pairs on a map are: places in degrees, or cells if they are whole numbers on the grid; a sentence if they may be both."""
    box = grid.box
    if box is None:
        return "cells"
    whole = bool(np.all(pairs == np.rint(pairs)))
    cells = whole and bool(np.all((pairs >= 0) & (pairs <= (grid.width - 1, grid.height - 1))))
    places = not whole or bool(np.all((pairs >= (box.south, box.west)) & (pairs <= (box.north, box.east))))
    if cells and places:
        raise InputError(
            "these pairs of whole numbers may be columns and rows of cells, or latitudes and longitudes of places; say which they are with "
            "coordinates='cells' or coordinates='places'."
        )
    return "places" if places else "cells"
