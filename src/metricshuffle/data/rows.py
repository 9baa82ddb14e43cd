"""From columns of a file, a frame or a table to the values that a query takes: whose row it is, where a place lies, what is missing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, get_args

import numpy as np

from metricshuffle.data import OPTIONS, Chunk, ColumnRequest, Spelling, Table
from metricshuffle.data.cell_parsing import cell_problem, is_missing
from metricshuffle.data.row_errors import MAX_SHOWN, MISSING, InvalidValues, RowSummary
from metricshuffle.data.row_values import cells_of, invalid_coordinates, labels_of
from metricshuffle.data.user_ids import ambiguous_user_ids
from metricshuffle.errors import DomainError, InputError, WrongRows
from metricshuffle.models import format_value
from metricshuffle.numerics.types import Integers64, Mask
from metricshuffle.queries.mean_and_sum import NumberQuery
from metricshuffle.queries.query import Query
from metricshuffle.randomness import Randomness
from metricshuffle.spaces import Categories, Domain, Grid, Integers, Interval, Places

PerUser = Literal["mean", "sum", "first", "sample"]
CoordinateKind = Literal["cells", "points", "places"]
PER_USER, COORDINATES = get_args(PerUser), get_args(CoordinateKind)


@dataclass(frozen=True, eq=False)
class Rows:
    """A table, which of its columns hold the values, and whose they are."""

    table: Table
    query: Query
    coordinates: str
    clamp: bool = False
    user_column: str | None = None
    per_user: str | None = None
    drop_missing: bool = False
    drop_outside: bool = False
    spelling: Spelling = OPTIONS
    decimal: str = "."
    remarks: list[str] = field(default_factory=list)
    """What a reader should know about what was read, in sentences; complete after the last row."""
    seen: RowSummary = field(default_factory=RowSummary)
    """What was found so far."""
    whose: list[str | int] | None = None
    """If a list is given: whom each value belongs to, the name of a user or the place of a row; complete after the last row."""

    @classmethod
    def of(
        cls,
        opened: Callable[[Sequence[ColumnRequest]], Table],
        query: Query,
        columns: Sequence[str],
        *,
        coordinates: str | None = None,
        clamp: bool = False,
        user_column: str | None = None,
        per_user: str | None = None,
        drop_missing: bool = False,
        drop_outside: bool = False,
        spelling: Spelling = OPTIONS,
        decimal: str = ".",
    ) -> Rows:
        """Options that fit together, or a sentence; the table is opened last."""
        where = coordinates_of(query.values_in, coordinates, query.title, spelling)
        needed = 2 if isinstance(query.values_in, Grid | Places) else 1
        if len(columns) != needed:
            raise InputError(_other_number(query, needed, len(columns), spelling))
        if query.items is not None and user_column is None:
            raise InputError(
                f"a {query.title} is about users who hold several rows: name the column that tells whose row it is, "
                f"{spelling('user_column')}."
            )
        _check_per_user(query, user_column, per_user, spelling)
        if user_column in columns:
            raise InputError(
                f"{spelling('column', user_column)} is also the {spelling('user_column')}; name the column that holds the values."
            )
        names = [ColumnRequest(name) for name in columns]
        if user_column is not None:
            names.insert(0, ColumnRequest(user_column, "user_column"))
        table = opened(names)
        return cls(table, query, where, clamp, user_column, per_user, drop_missing, drop_outside, spelling, decimal, list(table.remarks))

    @property
    def values_at(self) -> int:
        """Where the columns of the values begin."""
        return 0 if self.user_column is None else 1

    def parts(self, log: Callable[[str], None] = lambda _: None) -> Iterator[Any]:
        """Values as the query takes them, a chunk at a time; users' values all at once, because their rows may lie anywhere."""
        yield from self._parts(self._validate_chunks(), log)
        self.add_clamping_remark()

    def usable_parts(self) -> Iterator[Any]:
        """The same without a judgement at the end: these are some of the rows, and whoever has what was seen in all of them judges."""
        return self._parts(self._usable_chunks(), lambda _: None)

    def _parts(self, chunks: Iterator[tuple[Chunk, Any]], log: Callable[[str], None]) -> Iterator[Any]:
        if self.user_column is not None:
            yield from self._by_user(chunks, log)
            return
        done = 0
        for chunk, values in chunks:
            if self.whose is not None:
                self.whose.extend(chunk.places.tolist())
            yield values
            done += len(chunk)
            log(f"{done:,} rows")

    def _validate_chunks(self) -> Iterator[tuple[Chunk, Any]]:
        """Chunks with their values; wrong ones are told once, at the end."""
        yield from self._usable_chunks()
        self.raise_row_errors()

    def _usable_chunks(self) -> Iterator[tuple[Chunk, Any]]:
        """Chunks with their values, without rows that miss one if these are to be left out; none after something was wrong."""
        seen = self.seen
        for chunk in self.table.chunks():
            seen.total += len(chunk)
            usable = self._with_user(chunk, seen.nameless)
            values = self._kept_values(usable, seen.wrong, seen.outside)
            if values is not None and not seen.refused:
                seen.used += len(values[0])
                yield values

    def raise_row_errors(self) -> None:
        """Raise if some of the rows that were seen cannot be used; else a remark on those that were left out."""
        invalid, nameless, outside, total = self.seen.wrong, self.seen.nameless, self.seen.outside, self.seen.total
        if self.seen.refused:
            raise DomainError(" ".join([*self._refused(invalid, total), *self._refused_users(nameless, total)]))
        if not self.seen.used:
            fault = f"misses a value or is not in {outside.inside}" if outside else "misses a value"
            raise InputError(f"every row of {self.table.title} {fault}, so there are none to report.")
        if missing := total - self.seen.used - outside.count:
            rows = "1 row misses a value and was" if missing == 1 else f"{missing:,} rows miss a value and were"
            self.remarks.append(f"Of {total:,} rows of {self.table.title}, {rows} left out.")
        if outside:
            rows = "1 row is" if outside.count == 1 else f"{outside.count:,} rows are"
            was = "was" if outside.count == 1 else "were"
            left = f"Of {total:,} rows of {self.table.title}, {rows} not in {outside.inside} and {was} left out"
            self.remarks.append(f"{left}: {outside.listed()}.")

    def add_clamping_remark(self) -> None:
        """A remark on values from outside that were moved to the ends or averaged; complete when everybody's value was made."""
        self.remarks.extend(self.seen.moved_sentences(self.table.title, str(self.query.values_in), self.per_user))

    def _with_user(self, chunk: Chunk, nameless: InvalidValues) -> Chunk:
        """The rows that name a user; the others are left out or taken down."""
        if self.user_column is None or not (missing := _missing_cells(chunk.cells[0])).any():
            return chunk
        for row in () if self.drop_missing else np.flatnonzero(missing):
            nameless.add("", (), partial(self._example, chunk, int(row), 0, 1))
        return chunk.kept(~missing)

    def _kept_values(self, chunk: Chunk, invalid: InvalidValues, outside: InvalidValues) -> tuple[Chunk, Any] | None:
        """A chunk with its values, without rows that are to be left out; None if something is wrong or nothing left."""
        try:
            return (chunk, self._values(chunk)) if len(chunk) else None
        except DomainError as error:
            if error.where is None:
                raise
            missing = self._missing(chunk, error.where)
            if self.drop_missing and missing.any():
                return self._kept_values(chunk.kept(~missing), invalid, outside)
            if self.drop_outside and (beyond := self._beyond(chunk, error.where, missing)).any():
                self._add(outside, chunk, replace(error.where, rows=np.flatnonzero(beyond).tolist()))
                return self._kept_values(chunk.kept(~beyond), invalid, outside)
            self._add(invalid, chunk, error.where)
            return None

    def _values(self, chunk: Chunk) -> Any:
        """The values of a chunk, every one of them inside the domain; those that had to be moved there are counted."""
        values = self._taken(chunk, clamp=self.clamp)
        if self.per_user == "mean":
            self.seen.averaged += count_outside(lambda: self.query.values_in.validated(chunk.columns[self.values_at]))
        elif self.clamp and self.per_user != "sum":
            self.seen.clamped += count_outside(lambda: self._taken(chunk, clamp=False))
        return values

    def _taken(self, chunk: Chunk, *, clamp: bool) -> Any:
        domain, columns = self.query.values_in, chunk.columns[self.values_at :]
        if isinstance(domain, Categories):
            return labels_of(domain, ["" if cell is None else str(cell).strip() for cell in chunk.cells[self.values_at]])
        if isinstance(domain, Grid | Places):
            return cells_of(domain, columns, self.coordinates, clamp)
        if self.per_user in ("mean", "sum"):  # what counts is the outcome
            if self.per_user == "mean" and self.drop_outside and isinstance(domain, Integers | Interval):
                return Interval(domain.low, domain.high, domain.unit).validated(columns[0])
            return Interval(-1e300, 1e300).validated(columns[0])
        return domain.clamped(columns[0]) if clamp else domain.validated(columns[0])

    # What is missing, and what is wrong

    def _missing(self, chunk: Chunk, where: WrongRows) -> Mask:
        """Wrong rows that miss a value, as a mask over the chunk."""
        missing: Mask = np.zeros(len(chunk), dtype=bool)
        for cells in chunk.cells[self.values_at :]:
            missing[[row for row in where.rows if is_missing(cells[row])]] = True
        return missing

    def _beyond(self, chunk: Chunk, where: WrongRows, missing: Mask) -> Mask:
        """Wrong rows that can be read and hold something else than was asked for: never a number that was merely written in another way."""
        beyond: Mask = np.zeros(len(chunk), dtype=bool)
        words = isinstance(self.query.values_in, Categories)
        beyond[[row for row in where.rows if words or where.can_clamp(row)]] = True
        return beyond & ~missing

    def _example(self, chunk: Chunk, row: int, start: int, stop: int | None = None) -> tuple[str, str]:
        """Where a row stands, and what stands there."""
        return self.table.place(int(chunk.places[row])), ", ".join(_quoted(column[row]) for column in chunk.cells[start:stop])

    def _add(self, invalid: InvalidValues, chunk: Chunk, where: WrongRows) -> None:
        """Take down the wrong rows of a chunk."""
        invalid.inside = invalid.inside or where.inside
        box, of_numbers = getattr(self.query.values_in, "box", None), not isinstance(self.query.values_in, Categories)
        remedies: tuple[str, ...]
        for row in where.rows:
            cells = [column[row] for column in chunk.cells[self.values_at :]]
            problems = [cell_problem(cell, self.spelling, self.decimal) for cell in cells if of_numbers or is_missing(cell)]
            known = next((problem for problem in problems if problem is not None), None)
            if known is not None:
                reason, remedies = known.reason, ((known.remedy,) if known.remedy else ())
            else:
                can_clamp = where.can_clamp(row)
                nowhere_on_earth = (
                    invalid_coordinates(chunk, self.values_at, row, box, self.spelling)
                    if can_clamp and self.coordinates == "places"
                    else ""
                )
                reason = nowhere_on_earth or where.reason(row)
                clamped = f"pass {self.spelling.flag('clamp')} to move numbers outside to the nearest end"
                remedies = (clamped,) if can_clamp and not nowhere_on_earth and not self.clamp else ()
                if (can_clamp or not of_numbers) and not nowhere_on_earth:
                    remedies += (f"{self.spelling.flag('drop_outside')} leaves them out",)
            invalid.add(reason, remedies, partial(self._example, chunk, row, self.values_at))

    def _refused(self, invalid: InvalidValues, total: int) -> list[str]:
        """What is wrong in the whole table, if something is: how many values, where the first ones are, and what to do."""
        if not invalid:
            return []
        named = " and ".join(repr(name) for name in self.table.names[self.values_at :])
        remedy = "; ".join(["Correct or leave out such rows", *invalid.remedies])
        if self.coordinates == "cells" and isinstance(self.query.values_in, Grid):
            remedy += f"; {self.spelling('coordinates')} says if they are points or places instead of cells"
        counted = "" if self.spelling.as_options else " (rows count from 0)"
        fault = MISSING if set(invalid.reasons) == {MISSING} else f"is not in {invalid.inside}"
        are = fault if invalid.count == 1 else f"are{fault.removeprefix('is')}"
        where = f"{self.spelling('column')} {named} of {self.table.title}{counted}"
        return [
            f"{invalid.count:,} of {total:,} values in {where} {are}{invalid.kinds()}: "
            f"{invalid.listed(told=MISSING if fault == MISSING else '')}. {remedy}."
        ]

    def _refused_users(self, nameless: InvalidValues, total: int) -> list[str]:
        """Which rows name no user, if some do not."""
        if not nameless:
            return []
        return [
            f"{nameless.count:,} of {total:,} rows of {self.table.title} name{'s' * (nameless.count == 1)} no user in "
            f"{self.spelling('user_column')} {self.user_column!r}: {nameless.listed()}. Correct such rows; "
            f"{self.spelling.flag('drop_missing')} leaves them out."
        ]

    # Whose rows they are

    def _by_user(self, chunks: Iterator[tuple[Chunk, Any]], log: Callable[[str], None]) -> Iterator[Any]:
        """Everybody's value, or everybody's items, users in the order of their first row; nothing if no row can be used."""
        users: dict[str, int] = {}
        owners: list[Integers64] = []
        values: list[Any] = []
        rows = 0
        for chunk, part in chunks:
            cells = chunk.cells[0] if isinstance(chunk.cells[0], list) else chunk.cells[0].tolist()
            names = [str(cell).strip() for cell in cells]
            owners.append(np.array([users.setdefault(name, len(users)) for name in names], dtype=np.int64))
            values.append(np.asarray(part))
            rows += len(chunk)
            log(f"{rows:,} rows")
        if not owners:
            return
        self.remarks.extend(ambiguous_user_ids(users, self.table.title, str(self.user_column)))
        if self.whose is not None:
            self.whose.extend(users)
        owner, together = np.concatenate(owners), np.concatenate(values)
        counts = np.bincount(owner, minlength=len(users))
        if self.query.items is not None:
            yield self._items(list(users), owner, together, counts)
            return
        if self.per_user is None:
            self._check_single(counts, len(owner))
        yield self._single(list(users), owner, together, counts)

    def _items(self, names: list[str], owner: Integers64, values: Any, counts: Integers64) -> list[Any]:
        many = self.query.items
        if isinstance(many, int) and np.any(counts != many):
            wrong_users = np.flatnonzero(counts != many)
            raise InputError(
                f"{len(wrong_users):,} of {len(names):,} users of {self.table.title} do not hold exactly {many:,} item{'s' * (many != 1)}; "
                f"the first is {format_value(names[int(wrong_users[0])])} with {int(counts[wrong_users[0]]):,}; correct the rows, "
                "or plan without "
                f"{self.spelling('items')} to let users hold any number."
            )
        order = np.argsort(owner, kind="stable")
        return np.split(values[order], np.cumsum(counts)[:-1])

    def _check_single(self, counts: Integers64, rows: int) -> None:
        """Raise if somebody has several rows: the promise is about one value a person."""
        if rows > len(counts):
            allowed = PER_USER if isinstance(self.query, NumberQuery) else PER_USER[2:]
            words = allowed if self.spelling.as_options else [repr(choice) for choice in allowed]
            ways = f"{', '.join(words[:-1])} or {words[-1]}"
            raise InputError(
                f"{rows:,} rows of {self.table.title} belong to {len(counts):,} people, up to {int(counts.max()):,} to one of them; "
                f"the promise is about one value a person, so choose {self.spelling('per_user')} {ways}, or plan a user-histogram or "
                "user-mean."
            )

    def _single(self, names: list[str], owner: Integers64, values: Any, counts: Integers64) -> Any:
        """One value for each user."""
        domain = self.query.values_in
        if self.per_user in ("mean", "sum"):
            totals = np.bincount(owner, weights=np.asarray(values, dtype=np.float64), minlength=len(counts))
            outcome = totals / counts if self.per_user == "mean" else totals
            outcome = np.rint(outcome) if isinstance(domain, Integers) else outcome
            self.seen.people += len(counts)
            self.seen.clamped_people += count_outside(lambda: domain.validated(outcome)) if self.clamp else 0
            try:
                return domain.clamped(outcome) if self.clamp else domain.validated(outcome)
            except DomainError as error:
                raise self._outside(names, outcome, error) from None
        order = np.argsort(owner, kind="stable")
        starts = np.cumsum(counts) - counts
        if self.per_user == "sample":
            source = Randomness.system()
            starts = starts + np.array([source.below(int(count)) for count in counts], dtype=np.int64)
        return values[order[starts]]

    def _outside(self, names: list[str], outcome: Any, error: DomainError) -> DomainError:
        """What a person's rows come to, where that is no value of the query."""
        if error.where is None:
            return error
        where, many = error.where, len(error.where.rows)
        can_clamp = not self.clamp and any(map(where.can_clamp, where.rows))
        remedy = f", or pass {self.spelling.flag('clamp')} to move it to the nearest end" if can_clamp else ""
        first = [f"{format_value(names[row])}: {format_value(outcome[row])} {where.reason(row)}" for row in where.rows[:MAX_SHOWN]]
        more = f"; and {many - MAX_SHOWN:,} more" if many > MAX_SHOWN else ""
        return DomainError(
            f"the {self.per_user} of {many:,} of {len(names):,} people of {self.table.title} {'is' if many == 1 else 'are'} not in "
            f"{where.inside}: {'; '.join(first)}{more}. Take another {self.spelling('per_user')}{remedy}."
        )


def count_outside(check: Callable[[], Any]) -> int:
    """How many values a check refuses because they lie outside: those that clamping would move."""
    try:
        check()
    except DomainError as error:
        return 0 if error.where is None else sum(map(error.where.can_clamp, error.where.rows))
    return 0


def _missing_cells(cells: Any) -> Mask:
    """Where nothing stands."""
    if not isinstance(cells, list) and cells.dtype.kind in "iu":
        return np.zeros(len(cells), dtype=bool)
    if isinstance(cells, list) and not any(map(is_missing, set(cells))):  # many rows of a file have the same few names
        return np.zeros(len(cells), dtype=bool)
    return np.fromiter(map(is_missing, cells), dtype=bool, count=len(cells))


def _quoted(cell: Any) -> str:
    return "(empty)" if cell is None or (isinstance(cell, str) and not cell.strip()) else format_value(cell)


def _other_number(query: Query, needed: int, count: int, spelling: Spelling) -> str:
    if spelling.as_options:
        got = {1: "once", 2: "twice"}.get(count, f"{count} times")
        example = ", like --column lat --column lon" if needed == 2 else ""
        return f"a {query.title} needs --column {'twice' if needed == 2 else 'once'}{example}; got it {got}."
    names = "two names, column=['lat', 'lon']" if needed == 2 else "one name"
    return f"a {query.title} needs {names}, got column= with {count}."


def coordinates_of(domain: Domain, coordinates: str | None, kind: str, spelling: Spelling = OPTIONS) -> str:
    """What the columns of places are: places on a map, else cells, unless something else is said."""
    on_map = isinstance(domain, Places) or (isinstance(domain, Grid) and domain.box is not None)
    if coordinates is None:
        return "places" if on_map else "cells"
    if coordinates not in COORDINATES:
        raise InputError(f"{spelling('coordinates')} must be one of {', '.join(COORDINATES)}, got {coordinates!r}.")
    if isinstance(domain, Places) and coordinates != "places":
        raise InputError(f"{spelling('coordinates', coordinates)} is for a grid; this {kind} takes places in degrees.")
    if not isinstance(domain, Grid | Places):
        raise InputError(f"{spelling('coordinates', coordinates)} is for places on a grid; leave it out for this {kind}.")
    if coordinates == "places" and not on_map:
        box = "a plan with --box" if spelling.as_options else "a Grid.from_box"
        raise InputError(f"{spelling('coordinates', 'places')} needs {box}; this plan's grid is not on a map.")
    return coordinates


def _check_per_user(query: Query, user_column: str | None, per_user: str | None, spelling: Spelling) -> None:
    if per_user is None:
        return
    if per_user not in PER_USER:
        raise InputError(f"{spelling('per_user')} must be one of {', '.join(PER_USER)}, got {per_user!r}.")
    if user_column is None:
        raise InputError(
            f"{spelling('per_user')} says what to do with several rows of one person; name whose rows they are with "
            f"{spelling('user_column')}."
        )
    if query.items is not None:
        raise InputError(f"a {query.title} takes all rows of a user; leave {spelling('per_user')} out.")
    if per_user in ("mean", "sum") and not isinstance(query, NumberQuery):
        raise InputError(f"{spelling('per_user', per_user)} is for numbers; take first or sample for a {query.title}.")
