"""Real users for simulations: a file with one row per item, in nested squares."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from metricshuffle.cli.input_rows import rows_of
from metricshuffle.cli.shared_options import ReadingOptions, choice
from metricshuffle.data import ColumnSource, CsvFormat, column_requests, open_columns
from metricshuffle.errors import InputError
from metricshuffle.files import display_name, is_stream
from metricshuffle.models import format_value
from metricshuffle.planning.query_words import QueryWords
from metricshuffle.queries.user_queries import UserHistogram
from metricshuffle.spaces import Users, users_of

Places = tuple[float, float, float, float]


def real_users(
    path: Path,
    user_column: str,
    columns: list[str],
    asked: QueryWords,
    coordinates: str,
    delimiter: str | None,
) -> tuple[Users, list[Any]]:
    """Read users into squares.

    Without --box or --side the squares are drawn around the data, which is fine for a simulation.
    """
    choice("coordinates", coordinates, ("places", "points"))
    if len(columns) != 2:
        got = {1: "once", 2: "twice"}.get(len(columns), f"{len(columns)} times")
        raise InputError(f"--levels needs --column twice, got it {got}.")
    if coordinates == "points" and asked.box is not None:
        raise InputError(
            "--box is in degrees and belongs to --coordinates places; give --side for points."
        )
    if coordinates == "places" and asked.side is not None:
        raise InputError("--side is for --coordinates points; give --box, in degrees, for places.")
    if asked.box is None and asked.side is None:
        if is_stream(path):
            raise InputError(
                f"{display_name(path)} is read once, and the squares are drawn around the "
                "data first; give --box or --side, or a file."
            )
        table = open_columns(
            path, column_requests(columns), CsvFormat.of(delimiter, ".", no_header=False)
        )
        asked = (
            replace(asked, box=box_around(table))
            if coordinates == "places"
            else replace(asked, side=side_around(table))
        )
    query = replace(asked, items=None).query("user-histogram")
    if not isinstance(query, UserHistogram):
        raise InputError("users' places are compared by their histograms.")
    rows = rows_of(
        path,
        query,
        ReadingOptions(columns, user_column, coordinates=coordinates, delimiter=delimiter),
    )
    items_of_users = list(next(rows.parts()))
    return users_of(query.people.items_in, asked.items), items_of_users


def box_around(table: ColumnSource) -> Places:
    """SOUTH WEST NORTH EAST of all places in a table.

    For simulations only: a release must not be drawn around the data.
    """
    south, north, west, east = _ranges(table)
    if not (south < north and west < east):
        raise InputError(
            f"all places in {table.title} are on one line; give --box SOUTH WEST NORTH EAST."
        )
    return south, west, north, east


def side_around(table: ColumnSource) -> float:
    """Side of the square from (0, 0) that contains all points of a table."""
    low_x, high_x, low_y, high_y = _ranges(table)
    if min(low_x, low_y) < 0.0 or not max(high_x, high_y) > 0.0:
        raise InputError(
            f"points in {table.title} must lie at or above 0 on both axes, the lowest are "
            f"{low_x:g} and {low_y:g}; shift them."
        )
    return max(high_x, high_y)


def _ranges(table: ColumnSource) -> tuple[float, float, float, float]:
    found = []
    for chunk in table.chunks():
        for name, cells, column in zip(table.names, chunk.cells, chunk.columns, strict=True):
            try:
                numbers = np.asarray(column, dtype=np.float64)
            except (TypeError, ValueError):
                numbers = np.array(
                    [cell if isinstance(cell, int | float) else np.nan for cell in column],
                    dtype=np.float64,
                )
            if not np.isfinite(numbers).all():
                row = int(np.argmin(np.isfinite(numbers)))
                raise InputError(
                    f"{table.title}, {table.place(int(chunk.places[row]))}: "
                    f"{format_value(cells[row])} in {name!r} is not a finite number."
                )
        found.append([(float(np.min(column)), float(np.max(column))) for column in chunk.columns])
    (low_a, high_a), (low_b, high_b) = (
        (min(ends[k][0] for ends in found), max(ends[k][1] for ends in found)) for k in (0, 1)
    )
    return low_a, high_a, low_b, high_b
