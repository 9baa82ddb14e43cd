"""From columns of a file to values a task can randomize: whose row it is, where a place lies, and sentences that point at the line."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from metricshuffle.cli.options import choice
from metricshuffle.columns import Chunk, ParquetTable, Table, open_columns
from metricshuffle.declared import shown
from metricshuffle.errors import DomainError, InputError, WrongRows
from metricshuffle.numerics.types import Integers64
from metricshuffle.queries.base import Query
from metricshuffle.queries.numbers import NumberQuery
from metricshuffle.randomness import Randomness
from metricshuffle.spaces import Box, Categories, Domain, Grid, Integers, Interval

PER_USER = ("mean", "sum", "first", "sample")


@dataclass(frozen=True)
class Rows:
    """A file, which of its columns hold the values, and whose they are."""

    table: Table
    query: Query
    coordinates: str
    clamp: bool = False
    user_column: str | None = None
    per_user: str | None = None

    @classmethod
    def of(
        cls, path: Path, query: Query, columns: list[str], *, coordinates: str | None, clamp: bool, delimiter: str, user_column: str | None,
        per_user: str | None,
    ) -> Rows:  # fmt: skip
        """Options that fit together, or a sentence."""
        where = coordinates_of(query.values_in, coordinates, query.title)
        needed = 2 if isinstance(query.values_in, Grid) else 1
        if len(columns) != needed:
            got = {1: "once", 2: "twice"}.get(len(columns), f"{len(columns)} times")
            raise InputError(f"a {query.title} needs --column {'twice' if needed == 2 else 'once'}, got it {got}.")
        if query.items is not None and user_column is None:
            raise InputError(
                f"a {query.title} is about users who hold several rows: name the column that tells whose row it is, --user-column."
            )
        _check_per_user(query, user_column, per_user)
        if user_column in columns:
            raise InputError(f"--column {user_column} is also the --user-column; name the column that holds the values.")
        table = _checked(open_columns(path, columns, delimiter))
        if user_column is not None:
            try:
                table = _checked(open_columns(path, [user_column, *columns], delimiter))
            except InputError as wrong:
                raise InputError(str(wrong).replace("--column", "--user-column")) from None
        return cls(table, query, where, clamp, user_column, per_user)

    @property
    def values_at(self) -> int:
        """Where the columns of the values begin."""
        return 0 if self.user_column is None else 1

    def parts(self, tell: Callable[[str], None]) -> Iterator[Any]:
        """Values as the query takes them, a chunk at a time; users' values all at once, because their rows may lie anywhere."""
        if self.user_column is not None:
            yield self._by_user(tell)
            return
        done = 0
        for chunk, values in self._checked_chunks():
            yield values
            done += len(chunk)
            tell(f"{done:,} rows")

    def _checked_chunks(self) -> Iterator[tuple[Chunk, Any]]:
        """Chunks with their values; wrong ones are counted to the end of the file and told once."""
        chunks = self.table.chunks()
        for chunk in chunks:
            try:
                yield chunk, self._values(chunk)
            except DomainError as wrong:
                raise self._counted(chunk, chunks, wrong) from None

    def _values(self, chunk: Chunk) -> Any:
        """The values of a chunk, every one of them inside the domain."""
        domain, columns = self.query.values_in, chunk.columns[self.values_at :]
        if isinstance(domain, Categories):
            return _labels(domain, ["" if cell is None else str(cell).strip() for cell in chunk.cells[self.values_at]])
        if isinstance(domain, Grid):
            return _cells(domain, columns, self.coordinates, self.clamp)
        if self.per_user in ("mean", "sum"):  # what counts is the outcome
            return Interval(-1e300, 1e300).validated(columns[0])
        return domain.clamped(columns[0]) if self.clamp else domain.validated(columns[0])

    def _by_user(self, tell: Callable[[str], None]) -> Any:
        """Everybody's value, or everybody's items, users in the order of their first row."""
        users: dict[str, int] = {}
        owners: list[Integers64] = []
        values: list[Any] = []
        for chunk, part in self._checked_chunks():
            names = ["" if name is None else str(name).strip() for name in chunk.cells[0]]
            if "" in names:
                where = self.table.place(chunk.first + names.index(""))
                raise InputError(f"{self.table.path}, {where}: no user is named in {self.table.names[0]!r}.")
            owners.append(np.array([users.setdefault(name, len(users)) for name in names], dtype=np.int64))
            values.append(np.asarray(part))
            tell(f"{chunk.first + len(chunk):,} rows")
        owner, together = np.concatenate(owners), np.concatenate(values)
        counts = np.bincount(owner, minlength=len(users))
        if self.query.items is not None:
            return self._items(list(users), owner, together, counts)
        if self.per_user is None:
            self._check_single(counts, len(owner))
        return self._single(list(users), owner, together, counts)

    def _items(self, names: list[str], owner: Integers64, values: Any, counts: Integers64) -> list[Any]:
        many = self.query.items
        if isinstance(many, int) and np.any(counts != many):
            wrong = np.flatnonzero(counts != many)
            raise InputError(
                f"{len(wrong):,} of {len(names):,} users of {self.table.path} do not hold exactly {many:,} item{'s' * (many != 1)}; "
                f"the first is {shown(names[int(wrong[0])])} with {int(counts[wrong[0]]):,}; correct the file, or plan without "
                "--items to let users hold any number."
            )
        order = np.argsort(owner, kind="stable")
        return np.split(values[order], np.cumsum(counts)[:-1])

    def _check_single(self, counts: Integers64, rows: int) -> None:
        """Raise if somebody has several rows: the promise is about one value a person."""
        if rows > len(counts):
            ways = "mean, sum, first or sample" if isinstance(self.query, NumberQuery) else "first or sample"
            raise InputError(
                f"{rows:,} rows of {self.table.path} belong to {len(counts):,} people, up to {int(counts.max()):,} to one of them; "
                f"the promise is about one value a person, so choose --per-user {ways}, or plan a user-histogram or user-mean."
            )

    def _single(self, names: list[str], owner: Integers64, values: Any, counts: Integers64) -> Any:
        """One value for each user."""
        domain = self.query.values_in
        if self.per_user in ("mean", "sum"):
            totals = np.bincount(owner, weights=np.asarray(values, dtype=np.float64), minlength=len(counts))
            outcome = totals / counts if self.per_user == "mean" else totals
            outcome = np.rint(outcome) if isinstance(domain, Integers) else outcome
            try:
                return domain.clamped(outcome) if self.clamp else domain.validated(outcome)
            except DomainError as wrong:
                raise self._outside(names, outcome, wrong) from None
        order = np.argsort(owner, kind="stable")
        starts = np.cumsum(counts) - counts
        if self.per_user == "sample":
            source = Randomness.system()
            starts = starts + np.array([source.below(int(count)) for count in counts], dtype=np.int64)
        return values[order[starts]]

    def _outside(self, names: list[str], outcome: Any, wrong: DomainError) -> DomainError:
        """What a person's rows come to, where that is no value of the query."""
        if wrong.where is None:
            return wrong
        where, many = wrong.where, wrong.where.count
        remedy = ", or pass --clamp to move it to the nearest end" if where.can_clamp and not self.clamp else ""
        return DomainError(
            f"the {self.per_user} of {many:,} of {len(names):,} people of {self.table.path} {'is' if many == 1 else 'are'} not in "
            f"{where.inside}; the first is that of {shown(names[where.first])}: {shown(outcome[where.first])} {where.reason}. "
            f"Take another --per-user{remedy}."
        )

    def _counted(self, chunk: Chunk, later: Iterator[Chunk], wrong: DomainError) -> DomainError:
        """What is wrong in the whole file: how many values, and on which line the first one is."""
        if wrong.where is None:
            return wrong
        where, count, total = wrong.where, wrong.where.count, chunk.first + len(chunk)
        for other in later:
            total += len(other)
            try:
                self._values(other)
            except DomainError as more:
                count += more.where.count if more.where is not None else 0
        cells = [column[where.first] for column in chunk.cells[self.values_at :]]
        quoted = ", ".join(map(shown, cells))
        named = " and ".join(repr(name) for name in self.table.names[self.values_at :])
        nowhere = _nowhere(chunk, self.values_at, where, getattr(self.query.values_in, "box", None)) if self.coordinates == "places" else ""
        remedy = "Correct or leave out such rows"
        if where.can_clamp and not self.clamp and not nowhere:
            remedy += ", or pass --clamp to move numbers outside to the nearest end"
        if any(re.fullmatch(r"'-?\d+,\d+'", shown(cell)) for cell in cells):
            remedy += "; decimals take a point and not a comma"
        if self.coordinates == "cells" and isinstance(self.query.values_in, Grid):
            remedy += "; --coordinates says if they are points or places instead of cells"
        return DomainError(
            f"{count:,} of {total:,} values in --column {named} of {self.table.path} {'is' if count == 1 else 'are'} not in "
            f"{where.inside}; the first is on {self.table.place(chunk.first + where.first)}: {quoted} {nowhere or where.reason}. {remedy}."
        )


def coordinates_of(domain: Domain, coordinates: str | None, kind: str) -> str:
    """What the columns of places are: places on a map, else cells, unless something else is said."""
    on_map = isinstance(domain, Grid) and domain.box is not None
    if coordinates is None:
        return "places" if on_map else "cells"
    choice("coordinates", coordinates, ("cells", "points", "places"))
    if not isinstance(domain, Grid):
        raise InputError(f"--coordinates {coordinates} is for places on a grid; leave it out for this {kind}.")
    if coordinates == "places" and not on_map:
        raise InputError("--coordinates places needs a plan with --box; this plan's grid is not on a map.")
    return coordinates


def _check_per_user(query: Query, user_column: str | None, per_user: str | None) -> None:
    if per_user is None:
        return
    choice("per-user", per_user, PER_USER)
    if user_column is None:
        raise InputError("--per-user says what to do with several rows of one person; name whose rows they are with --user-column.")
    if query.items is not None:
        raise InputError(f"a {query.title} takes all rows of a user; leave --per-user out.")
    if per_user in ("mean", "sum") and not isinstance(query, NumberQuery):
        raise InputError(f"--per-user {per_user} is for numbers; take first or sample for a {query.title}.")


def _checked(table: Table) -> Table:
    """A .parquet file tells that a column is missing only when it is read; here it is told at once."""
    if isinstance(table, ParquetTable):
        next(table.chunks())
    return table


def _labels(domain: Categories, cells: list[str]) -> Any:
    known = set(domain.labels)
    wrong = [row for row, cell in enumerate(cells) if cell not in known]
    if wrong:
        error = DomainError(f"{shown(cells[wrong[0]])} is not a label.")
        error.where = WrongRows(len(wrong), wrong[0], str(domain), "is not one of the labels", can_clamp=False)
        raise error
    return np.array(cells, dtype=object)


def _cells(grid: Grid, columns: tuple[Any, ...], coordinates: str, clamp: bool) -> Any:
    if coordinates == "places":
        return grid.cells_at(*columns, clamp=clamp)
    kinds = {column.dtype for column in columns}
    pairs = np.stack([column if len(kinds) == 1 else column.astype(object) for column in columns], axis=1)
    if coordinates == "points":
        return grid.cells(pairs, clamp=clamp)
    return grid.clamped(pairs) if clamp else grid.validated(pairs)


def _nowhere(chunk: Chunk, start: int, where: WrongRows, box: Box | None) -> str:
    """Which of two degrees is nowhere on Earth, where clamping would hide a mistake; empty if both are somewhere."""
    if not where.can_clamp:
        return ""
    first, second = (chunk.columns[start + index][where.first] for index in (0, 1))
    if box is not None and box.contains(second, first):
        return "(the columns seem to be swapped: give the latitude first, then the longitude)"
    limits: tuple[tuple[float, str], ...] = ((90.0, "latitude"), (180.0, "longitude"))
    for index, (most, name) in enumerate(limits):
        degrees: Any = chunk.columns[start + index][where.first]
        if isinstance(degrees, int | float | np.floating | np.integer) and abs(float(degrees)) > most:
            return f"({degrees:g} is no {name}, which lies between -{most:g} and {most:g} degrees; the first --column is the latitude)"
    return ""
