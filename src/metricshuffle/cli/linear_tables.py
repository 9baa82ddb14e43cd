"""Functions of users' items that are read from files: columns, regions and vectors."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from metricshuffle.errors import InputError
from metricshuffle.files import read_text
from metricshuffle.models import format_value
from metricshuffle.queries import UserLinearQuery
from metricshuffle.spaces import GreatCircle, Grid, Integers, Metric, Users, Vectors

ItemFunction = Callable[[Users], UserLinearQuery]
"""Builds the query for users whose items are known."""
PLACES = ["latitude", "longitude"]
"""Columns of a file of positions that are places on the globe."""


def read_positions(
    query: str,
    path: Path,
    labels: list[str] | None,
    distances: Metric | None,
    unit: str | None,
) -> tuple[list[str], Metric]:
    """Return labels and the distances between their positions.

    Without `labels`, the labels are those of the file, in its order.
    """
    if query != "user-linear":
        raise InputError(
            f"--positions does not belong to --query {query}; ask for --query user-linear."
        )
    if distances is not None:
        raise InputError("--distances and --positions both say how far apart labels are; give one.")
    header, rows = _read_rows(path, "--positions")
    if len(header) < 2:
        raise InputError(
            f"--positions {path} needs a column for the label and one for each number of its "
            f"position, got {header[0]}."
        )
    place_of = {row[0]: place for place, row in enumerate(rows)}
    if len(place_of) < len(rows):
        twice = next(row[0] for place, row in enumerate(rows) if place_of[row[0]] != place)
        raise InputError(f"--positions {path} has more than one row for {twice!r}; leave one.")
    words = list(place_of) if labels is None else labels
    missing = next((word for word in words if word not in place_of), None)
    if missing is not None:
        raise InputError(f"--positions {path} has no row for {missing!r}; give one for each label.")
    numbers = _numbers(path, "--positions", header, rows, 1)
    numbers = numbers[[place_of[word] for word in words]]
    try:
        if [name.lower() for name in header[1:]] != PLACES:
            return words, Vectors(numbers)
        return words, GreatCircle(numbers, unit or "km")
    except ValueError as error:
        raise InputError(f"--positions {path}: {error}") from None


def read_item_function(
    query: str,
    table: Path | None,
    regions: Path | None,
    fade: float | None,
    similar_to: Path | None,
    distance_to: str | None,
) -> ItemFunction | None:
    """Return the builder of a query about users' items; None for other queries without options."""
    if query != "user-linear":
        named = {
            "--table": table,
            "--regions": regions,
            "--similar-to": similar_to,
            "--distance-to": distance_to,
        }
        stray = next((name for name, value in named.items() if value is not None), None)
        if stray is None:
            return None
        raise InputError(
            f"{stray} does not belong to --query {query}; leave it out or ask for another query."
        )
    if distance_to is not None:
        if table is not None or regions is not None:
            raise InputError("give only one of --distance-to, --table and --regions.")
        points = next(csv.reader([distance_to], skipinitialspace=True))
        return lambda people: UserLinearQuery.distance_to(people, points)
    if regions is None and fade is not None:
        raise InputError("--fade is the width over which --regions FILE fade; give both.")
    if regions is not None:
        if table is not None or similar_to is not None:
            raise InputError("give either --regions or --table (with --similar-to), and not both.")
        if fade is None:
            raise InputError(
                "--regions needs --fade, the distance beyond its edge at which a region ends (a "
                "sharp edge would tell nearby points apart)."
            )
        return lambda people: _regions(people, regions, fade)
    if table is None:
        if similar_to is not None:
            raise InputError("--similar-to compares the vectors of --table FILE; give both.")
        return None
    return lambda people: _columns(people, table, similar_to)


def _columns(people: Users, path: Path, similar_to: Path | None) -> UserLinearQuery:
    header, rows = _read_rows(path, "--table")
    leading = _leading(people)
    if len(header) <= leading:
        raise InputError(
            f"--table {path} needs a column for the point and one for each number, got "
            f"{', '.join(header)}."
        )
    codes = _codes(people, path, [row[:leading] for row in rows])
    if sorted(codes) != list(range(people.size)):
        missing = sorted(set(range(people.size)) - set(codes))
        problem = (
            f"has no row for {people.label(missing[0])}"
            if missing
            else f"has {len(codes) - people.size:,} rows more than there are points"
        )
        raise InputError(f"--table {path} {problem}; give one row for each point.")
    numbers = _numbers(path, "--table", header, rows, leading)
    values = np.empty_like(numbers)
    values[codes] = numbers
    if similar_to is None:
        return UserLinearQuery(people, values, header[leading:])
    others, vectors = _read_rows(similar_to, "--similar-to")
    if len(others) != 1 + values.shape[1]:
        raise InputError(
            f"--similar-to {similar_to} must have a name and {values.shape[1]:,} numbers in each "
            f"row, as --table has, got {len(others) - 1:,}."
        )
    compared = _numbers(similar_to, "--similar-to", others, vectors, 1)
    return UserLinearQuery.similarity(
        people, values, {row[0]: vector for row, vector in zip(vectors, compared, strict=True)}
    )


def _regions(people: Users, path: Path, fade: float) -> UserLinearQuery:
    header, rows = _read_rows(path, "--regions")
    leading = _leading(people)
    if len(header) != 1 + leading:
        raise InputError(
            f"--regions {path} needs the name of a region and a point in each row, got the "
            f"columns {', '.join(header)}."
        )
    codes = _codes(people, path, [row[1:] for row in rows])
    members: dict[str, list[int]] = {}
    for row, code in zip(rows, codes, strict=True):
        members.setdefault(row[0], []).append(code)
    values = people.items_in.domain.all_values()
    by_value: dict[str, Sequence[object]] = {
        name: [values[code] for code in inside] for name, inside in members.items()
    }
    return UserLinearQuery.near(people, by_value, fade)


def _leading(people: Users) -> int:
    """Number of columns that name a point: two on a grid (column and row), else one."""
    return 2 if isinstance(people.items_in.domain, Grid) else 1


def _codes(people: Users, path: Path, points: Sequence[Sequence[str]]) -> list[int]:
    """Codes of points given as text."""
    domain = people.items_in.domain
    if not isinstance(domain, Grid | Integers):
        return [int(code) for code in people.items_in.domain.validated([p[0] for p in points])]
    try:
        whole = [[int(part) for part in point] for point in points]
    except ValueError as error:
        raise InputError(f"{path} must name points by whole numbers: {error}.") from None
    if isinstance(domain, Grid):
        cells = domain.validated(whole)
        return [int(row) * domain.width + int(column) for column, row in cells]
    return [int(code) for code in domain.validated([point[0] for point in whole]) - domain.low]


def _numbers(
    path: Path, option: str, header: Sequence[str], rows: Sequence[Sequence[str]], leading: int
) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    numbers = np.empty((len(rows), len(header) - leading))
    for number, row in enumerate(rows):
        for column, cell in enumerate(row[leading:]):
            try:
                numbers[number, column] = float(cell)
            except ValueError:
                raise InputError(
                    f"{option} {path}, row {number + 2}, column {header[leading + column]}: "
                    f"{format_value(cell)} is not a number; correct the file."
                ) from None
    return numbers


def _read_rows(path: Path, option: str) -> tuple[list[str], list[list[str]]]:
    """Header and rows of a CSV file, all of the same length."""
    text = read_text(path).removeprefix("\ufeff")
    rows = [[cell.strip() for cell in row] for row in csv.reader(io.StringIO(text)) if row]
    if len(rows) < 2:
        raise InputError(f"{option} {path} needs a header and at least one row.")
    for number, row in enumerate(rows, start=1):
        if len(row) != len(rows[0]):
            raise InputError(
                f"{option} {path}: row {number:,} has {len(row):,} cells, but the header has "
                f"{len(rows[0]):,}."
            )
    return rows[0], rows[1:]
