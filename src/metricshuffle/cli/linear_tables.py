"""Options of `plan --query user-linear`: functions of users' items that are read from files."""

from __future__ import annotations

import csv
from pathlib import Path

from metricshuffle.data.point_tables import ItemFunction, PointTable
from metricshuffle.errors import InputError
from metricshuffle.files import read_text
from metricshuffle.queries import UserLinearQuery
from metricshuffle.spaces import Metric, Users


def read_positions(
    query: str,
    path: Path,
    labels: list[str] | None,
    distances: Metric | None,
    unit: str | None,
) -> tuple[list[str], Metric]:
    """Return labels and the distances between their positions, as `PointTable.positions`."""
    if query != "user-linear":
        raise InputError(
            f"--positions does not belong to --query {query}; ask for --query user-linear."
        )
    if distances is not None:
        raise InputError("--distances and --positions both say how far apart labels are; give one.")
    return _read_table(path, "positions").positions(labels, unit)


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
        return lambda people: _read_table(regions, "regions").regions(people, fade)
    if table is None:
        if similar_to is not None:
            raise InputError("--similar-to compares the vectors of --table FILE; give both.")
        return None

    def columns(people: Users) -> UserLinearQuery:
        compared = None if similar_to is None else _read_table(similar_to, "similar_to")
        return _read_table(table, "table").columns(people, compared)

    return columns


def _read_table(path: Path, option: str) -> PointTable:
    return PointTable.parse(read_text(path), option, str(path))
