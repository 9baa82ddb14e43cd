"""Files that a command reads to ask for a linear query of users' items, written from the query."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

import numpy as np

from metricshuffle.errors import InputError
from metricshuffle.queries import UserLinearQuery
from metricshuffle.queries.query import Query
from metricshuffle.queries.share_above import ShareAbove
from metricshuffle.spaces import Categories, GreatCircle, Grid, Integers, Space, Vectors

TABLE_FILE = "table.csv"
POSITIONS_FILE = "positions.csv"
FILE_OPTIONS = {"table": TABLE_FILE, "positions": POSITIONS_FILE}
"""Options and the files that they name."""


def item_files(query: Query) -> dict[str, str]:
    """Texts of the files that the options of a query name; empty for other queries."""
    if not isinstance(query, UserLinearQuery) or not query.tabular or above_of(query) is not None:
        return {}
    if query.norm is not None:
        raise InputError("a linear query with a norm and a constant has no options.")
    space = query.people.items_in
    points = [[str(number) for number in point] for point in _points(space)]
    named = ("column", "row") if len(points[0]) == 2 else ("point",)
    table = np.asarray(query.table)
    files = {TABLE_FILE: _csv_text((*named, *query.names), points, table)}
    metric = space.metric
    if isinstance(metric, GreatCircle):
        places = np.asarray(metric.places)
        files[POSITIONS_FILE] = _csv_text(("label", "latitude", "longitude"), points, places)
    elif isinstance(metric, Vectors):
        vectors = np.asarray(metric.vectors)
        axes = [f"x{axis}" for axis in range(vectors.shape[1])]
        files[POSITIONS_FILE] = _csv_text(("label", *axes), points, vectors)
    return files


def above_of(query: UserLinearQuery) -> ShareAbove | None:
    """The shares above thresholds that the columns are; None for other columns."""
    domain = query.values_in
    if not isinstance(domain, Integers):
        return None
    ends = np.sum(query.table < 1.0, axis=0)
    widths = ends - np.sum(query.table <= 0.0, axis=0) + 1
    try:
        at = tuple(int(end) + domain.low - 1 for end in ends)
        above = ShareAbove(domain, at, float(widths[0]))
        same = query == UserLinearQuery.share_above(query.people, at, above.fade)
    except InputError:
        return None
    return above if same else None


def _points(space: Space) -> Iterable[Sequence[object]]:
    """Words for each point, in the order of the rows."""
    domain = space.domain
    if isinstance(domain, Grid):
        return [(column, row) for row in range(domain.height) for column in range(domain.width)]
    if isinstance(domain, Categories):
        return [(label,) for label in domain.labels]
    if isinstance(domain, Integers):
        return [(number,) for number in range(domain.low, domain.high + 1)]
    raise InputError(f"columns of {domain} cannot be described by options.")


def _csv_text(header: Sequence[str], points: list[list[str]], numbers: np.ndarray) -> str:
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(header)
    rows.writerows(
        [*point, *map(repr, row)] for point, row in zip(points, numbers.tolist(), strict=True)
    )
    return text.getvalue()
