"""From a table with a row for each item to users and what they hold, with sentences that point at the line or the user."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metricshuffle.cli.columns import Chunk, ParquetTable, Table, open_columns
from metricshuffle.cli.options import choice, whole
from metricshuffle.declared import shown
from metricshuffle.errors import DomainError, InputError, WrongRows
from metricshuffle.spaces import Box, Categories, Grid, Integers, Space, nested_squares, nested_squares_on_map

Places = tuple[float, float, float, float]


@dataclass(frozen=True)
class Held:
    """`items[i]` are the items of the user `names[i]`, as values of the domain (codes, for labels and cells)."""

    names: list[str]
    items: list[NDArray[np.int64]]

    def check_each(self, many: int, source: Path) -> None:
        """Raise unless everybody holds just so many."""
        for name, mine in zip(self.names, self.items, strict=True):
            if len(mine) != many:
                raise InputError(
                    f"user {shown(name)} of {source} holds {len(mine):,} item{'s' * (len(mine) != 1)}, but --items {many} says that "
                    f"everybody holds exactly {many:,}; correct the file, or leave --items out to let users hold any number."
                )


@dataclass(frozen=True)
class ItemOptions:
    """What the options say about where items lie; just one of numbers, labels and squares."""

    low: str | None = None
    high: str | None = None
    labels: str | None = None
    distances: Path | None = None
    levels: int | None = None
    box: Places | None = None
    side: float | None = None
    unit: str = ""
    coordinates: str = "places"

    @property
    def columns(self) -> int:
        return 2 if self.levels is not None else 1

    def check(self) -> None:
        """Raise unless the options go together."""
        choice("coordinates", self.coordinates, ("places", "points"))
        numbers, names, squares = (self.low is not None or self.high is not None), self.labels is not None, self.levels is not None
        if numbers + names + squares > 1:
            raise InputError("give only one of --low/--high, --labels and --levels: an item is a number, a word or a place.")
        if numbers + names + squares == 0:
            raise InputError(
                "say what an item is: --low and --high for whole numbers, --labels for words, or --levels for places in squares."
            )
        if self.distances is not None and not names:
            raise InputError("--distances is the table of distances of --labels; give both.")
        if not squares and (self.box is not None or self.side is not None):
            raise InputError(f"--{'box' if self.box is not None else 'side'} belongs to --levels, which cuts it into squares; give both.")
        if self.coordinates == "points" and self.box is not None:
            raise InputError("--box is in degrees and belongs to --coordinates places; give --side for points.")
        if self.coordinates == "places" and self.side is not None:
            raise InputError("--side is for --coordinates points; give --box, in degrees, for places.")

    def check_columns(self, given: list[str]) -> None:
        if len(given) != self.columns:
            times = {1: "once", 2: "twice"}
            what = "--levels" if self.columns == 2 else "--low and --high, or --labels,"
            got = times.get(len(given), f"{len(given)} times")
            raise InputError(f"{what} needs --column {times[self.columns]}, got it {got}.")

    def space(self) -> Space:
        """The public space the items lie in."""
        if self.labels is not None:
            names = [name.strip() for name in self.labels.split(",")]
            if "" in names:
                raise InputError(f"--labels {self.labels!r} has an empty word; give words with one comma between them, like tea,coffee.")
            if len(names) < 2:
                raise InputError(
                    f"--labels needs at least two words, got only {names[0]!r}: if all items are the same, nothing is to be told."
                )
            domain = Categories(names)
            if self.distances is None:
                return Space(domain, unit=self.unit)
            from metricshuffle.cli.users_distances import distance_table

            return Space(domain, distance_table(self.distances, names), unit=self.unit)
        if self.levels is None:
            if self.low is None or self.high is None:
                raise InputError(f"whole numbers need --low and --high; --{'low' if self.low is None else 'high'} is missing.")
            return Space(Integers(_whole("low", self.low), _whole("high", self.high), self.unit))
        if self.coordinates == "points":
            if self.side is None:
                raise InputError("--levels with --coordinates points needs --side: squares are cut from 0..SIDE x 0..SIDE.")
            return nested_squares(self.levels, self.side, self.unit)
        if self.box is None:
            raise InputError("--levels needs --box SOUTH WEST NORTH EAST, in degrees: a box that is public and not taken from the data.")
        return nested_squares_on_map(self.levels, Box(*self.box), self.unit or "km")


def _whole(name: str, text: str) -> int:
    try:
        return whole(text)
    except (ValueError, OverflowError):
        raise InputError(f"--{name} must be a whole number, got {text!r}; round items to a step first.") from None


def open_users(path: Path, user_column: str, columns: list[str], delimiter: str) -> Table:
    """The column of users, and those of items after it."""
    if user_column in columns:
        raise InputError(f"--column {user_column} is also the --user-column; name the column that holds the items.")
    _checked(open_columns(path, columns, delimiter))
    try:
        return _checked(open_columns(path, [user_column, *columns], delimiter))
    except InputError as wrong:
        raise InputError(str(wrong).replace("--column", "--user-column")) from None


def _checked(table: Table) -> Table:
    """A .parquet file tells that a column is missing only when it is read; here it is told at once."""
    if isinstance(table, ParquetTable):
        next(table.chunks())
    return table


def held_by_users(table: Table, space: Space, coordinates: str, *, clamp: bool = False) -> Held:
    """Everybody's items, users in the order of their first row."""
    users: dict[str, int] = {}
    owners: list[NDArray[np.int64]] = []
    items: list[NDArray[np.int64]] = []
    for chunk in table.chunks():
        names = ["" if name is None else str(name).strip() for name in chunk.cells[0]]
        if "" in names:
            raise InputError(f"{table.path}, {table.place(chunk.first + names.index(''))}: no user is named in {table.names[0]!r}.")
        owners.append(np.array([users.setdefault(name, len(users)) for name in names], dtype=np.int64))
        try:
            items.append(_items(space, chunk, coordinates, clamp))
        except DomainError as wrong:
            on_map = isinstance(space.domain, Grid) and coordinates == "places"
            raise _told(table, chunk, wrong, clamp, on_map) from None
    owner, flat = np.concatenate(owners), np.concatenate(items)
    order = np.argsort(owner, kind="stable")
    ends = np.cumsum(np.bincount(owner, minlength=len(users)))[:-1]
    return Held(list(users), np.split(flat[order], ends))


def _items(space: Space, chunk: Chunk, coordinates: str, clamp: bool) -> NDArray[np.int64]:
    domain = space.domain
    if isinstance(domain, Categories):
        return _codes(domain, ["" if cell is None else str(cell).strip() for cell in chunk.cells[1]])
    if isinstance(domain, Grid):
        cells = _cells(domain, chunk.columns[1], chunk.columns[2], coordinates, clamp)
        return np.asarray(cells[:, 1] * domain.width + cells[:, 0])
    column = chunk.columns[1]
    return np.asarray(domain.clamped(column) if clamp else domain.validated(column), dtype=np.int64)


def _codes(domain: Categories, cells: list[str]) -> NDArray[np.int64]:
    known = {label: code for code, label in enumerate(domain.labels)}
    wrong = [row for row, cell in enumerate(cells) if cell not in known]
    if wrong:
        error = DomainError(f"{shown(cells[wrong[0]])} is not a label.")
        error.where = WrongRows(len(wrong), wrong[0], str(domain), "is not one of the labels", can_clamp=False)
        raise error
    return np.array([known[cell] for cell in cells], dtype=np.int64)


def _cells(grid: Grid, first: Any, second: Any, coordinates: str, clamp: bool) -> NDArray[np.int64]:
    if coordinates == "places":
        return grid.cells_at(first, second, clamp=clamp)
    kinds = {first.dtype, second.dtype}
    return grid.cells(np.stack([part if len(kinds) == 1 else part.astype(object) for part in (first, second)], axis=1), clamp=clamp)


def _told(table: Table, chunk: Chunk, wrong: DomainError, clamp: bool, on_map: bool) -> DomainError:
    if wrong.where is None:
        return wrong
    at, reason = wrong.where.first, f"it {wrong.where.reason}"
    nowhere = _nowhere(chunk.columns[1][at], chunk.columns[2][at]) if on_map and wrong.where.can_clamp else ""
    cells = ", ".join(shown(column[at]) for column in chunk.cells[1:])
    remedy = "Correct or leave out such rows"
    if wrong.where.can_clamp and not clamp and not nowhere:
        remedy += ", or pass --clamp to move items outside to the nearest end"
    return DomainError(
        f"{table.path}, {table.place(chunk.first + at)}: {cells} (user {shown(str(chunk.cells[0][at]))}) is not in {wrong.where.inside}; "
        f"{nowhere or reason}. {remedy}."
    )


def _nowhere(latitude: float, longitude: float) -> str:
    """Which of two degrees is nowhere on Earth, where clamping would hide a mistake; empty if both are somewhere."""
    for degrees, most, name in ((latitude, 90, "latitude"), (longitude, 180, "longitude")):
        if abs(degrees) > most:
            return f"{degrees:g} is no {name}, which lies between -{most} and {most} degrees (the first --column is the latitude)"
    return ""


def box_around(table: Table) -> Places:
    """SOUTH WEST NORTH EAST of all places in a table, for simulations only: a release may not be drawn around the data."""
    south, north, west, east = _ranges(table)
    if not (south < north and west < east):
        raise InputError(f"all places in {table.path} are on one line; give --box SOUTH WEST NORTH EAST.")
    return south, west, north, east


def side_around(table: Table) -> float:
    """The side of the square from (0, 0) that holds all points of a table."""
    low_x, high_x, low_y, high_y = _ranges(table)
    if min(low_x, low_y) < 0.0 or not max(high_x, high_y) > 0.0:
        raise InputError(f"points in {table.path} must lie at or above 0 on both axes, the lowest are {low_x:g} and {low_y:g}; shift them.")
    return max(high_x, high_y)


def _ranges(table: Table) -> tuple[float, float, float, float]:
    found = []
    for chunk in table.chunks():
        for name, cells, column in zip(table.names[1:], chunk.cells[1:], chunk.columns[1:], strict=True):
            try:
                numbers = np.asarray(column, dtype=np.float64)
            except (TypeError, ValueError):
                numbers = np.array([one if isinstance(one, int | float) else np.nan for one in column], dtype=np.float64)
            if not np.isfinite(numbers).all():
                row = int(np.argmin(np.isfinite(numbers)))
                raise InputError(f"{table.path}, {table.place(chunk.first + row)}: {shown(cells[row])} in {name!r} is not a finite number.")
        found.append([(float(np.min(column)), float(np.max(column))) for column in chunk.columns[1:]])
    (low_a, high_a), (low_b, high_b) = ((min(one[k][0] for one in found), max(one[k][1] for one in found)) for k in (0, 1))
    return low_a, high_a, low_b, high_b
