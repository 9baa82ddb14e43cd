"""Rows of a table as values of a query, and errors for invalid rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Unpack

import numpy as np

from metricshuffle.data.cell_parsing import cell_problem, is_missing, object_array
from metricshuffle.data.row_errors import MAX_SHOWN, MISSING, InvalidValues, RowSummary
from metricshuffle.data.row_values import (
    cells_of,
    holdings_of,
    invalid_coordinates,
    labels_of,
    pairs_of,
    sets_of,
    trips_of,
)
from metricshuffle.data.source import Cells, Chunk, Column, ColumnRequest, ColumnSource, Values
from metricshuffle.data.user_groups import UserGroups
from metricshuffle.data.value_reading import (
    ReadingArguments,
    check_reading,
    coordinate_kind,
    value_columns,
)
from metricshuffle.errors import DomainError, InputError, WrongRows, argument
from metricshuffle.models import format_value
from metricshuffle.numerics.types import Mask
from metricshuffle.queries.query import Query
from metricshuffle.spaces import (
    Categories,
    Grid,
    Integers,
    Interval,
    KeyedNumbers,
    LabelledNumbers,
    LabelSets,
    NumberRows,
    Places,
    ZonePairs,
    Zones,
)


@dataclass(frozen=True, eq=False)
class Rows:
    """A table, and which of its columns have the values and the users."""

    table: ColumnSource
    query: Query
    coordinates: str
    clamp: bool = False
    user_column: str | None = None
    per_user: str | None = None
    drop_missing: bool = False
    drop_outside: bool = False
    decimal: str = "."
    remarks: list[str] = field(default_factory=list)
    """Sentences about what was read; complete after the last row."""
    seen: RowSummary = field(default_factory=RowSummary)
    """Summary of the rows so far."""
    whose: list[str | int] | None = None
    """If a list is given, it gets the user name or row number of each value.

    Complete after the last row.
    """

    @classmethod
    def of(
        cls,
        opened: Callable[[Sequence[ColumnRequest]], ColumnSource],
        query: Query,
        *,
        decimal: str = ".",
        **reading: Unpack[ReadingArguments],
    ) -> Rows:
        """Open a table with `opened`, after checking that the arguments fit together."""
        coordinates = coordinate_kind(query, reading.get("coordinates"))
        check_reading(query, reading)
        user_column = reading.get("user_column")
        requests = [ColumnRequest(name) for name in value_columns(query, reading.get("column"))]
        if user_column is not None:
            requests.insert(0, ColumnRequest(user_column, "user_column"))
        table = opened(requests)
        return cls(
            table,
            query,
            coordinates,
            clamp=reading.get("clamp", False),
            user_column=user_column,
            per_user=reading.get("per_user"),
            drop_missing=reading.get("drop_missing", False),
            drop_outside=reading.get("drop_outside", False),
            decimal=decimal,
            remarks=list(table.remarks),
        )

    @property
    def values_at(self) -> int:
        """Index of the first column of values."""
        return 0 if self.user_column is None else 1

    def parts(self, log: Callable[[str], None] = lambda _: None) -> Iterator[Values]:
        """Iterate over values in the form that the query takes, in chunks.

        Values of users come all at once, because their rows may be anywhere.
        """
        yield from self._parts(self._validate_chunks(), log)
        self.add_clamping_remark()

    def usable_parts(self) -> Iterator[Values]:
        """Iterate over values like `parts`, without raising row errors at the end.

        The table is a part of all rows; the caller, who has the summary of all rows, raises them.
        """
        return self._parts(self._usable_chunks(), lambda _: None)

    def _parts(
        self, chunks: Iterator[tuple[Chunk, Column]], log: Callable[[str], None]
    ) -> Iterator[Values]:
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

    def _validate_chunks(self) -> Iterator[tuple[Chunk, Column]]:
        """Iterate over chunks with their values; row errors are raised once, at the end."""
        yield from self._usable_chunks()
        self.raise_row_errors()

    def _usable_chunks(self) -> Iterator[tuple[Chunk, Column]]:
        """Iterate over the rows of chunks that are not left out, with their values.

        After an invalid row, no more chunks are yielded.
        """
        seen = self.seen
        for chunk in self.table.chunks():
            seen.total += len(chunk)
            usable = self._with_user(chunk, seen.nameless)
            values = self._kept_values(usable, seen.wrong, seen.outside)
            if values is not None and not seen.refused:
                seen.used += len(values[0])
                yield values

    def raise_row_errors(self) -> None:
        """Raise if some of the rows cannot be used; otherwise add remarks on those left out."""
        invalid = self.seen.wrong
        nameless = self.seen.nameless
        outside = self.seen.outside
        total = self.seen.total
        if self.seen.refused:
            raise DomainError(
                " ".join([*self._refused(invalid, total), *self._refused_users(nameless, total)])
            )
        if not self.seen.used:
            fault = f"misses a value or is not in {outside.inside}" if outside else "misses a value"
            raise InputError(
                f"every row of {self.table.title} {fault}, so there are none to report."
            )
        if missing := total - self.seen.used - outside.count:
            rows = (
                "1 row misses a value and was"
                if missing == 1
                else f"{missing:,} rows miss a value and were"
            )
            self.remarks.append(f"Of {total:,} rows of {self.table.title}, {rows} left out.")
        if outside:
            rows = "1 row is" if outside.count == 1 else f"{outside.count:,} rows are"
            was = "was" if outside.count == 1 else "were"
            left = (
                f"Of {total:,} rows of {self.table.title}, {rows} not in {outside.inside} and "
                f"{was} left out"
            )
            self.remarks.append(f"{left}: {outside.listed()}.")

    def add_clamping_remark(self) -> None:
        """Add remarks on values outside the domain that were moved or averaged.

        Call it once the values of all people have been computed.
        """
        self.remarks.extend(
            self.seen.moved_sentences(self.table.title, self.query.values_in, self.per_user)
        )

    def _with_user(self, chunk: Chunk, nameless: InvalidValues) -> Chunk:
        """Return the rows that name a user; the others are left out or recorded."""
        if self.user_column is None or not (missing := _missing_cells(chunk.cells[0])).any():
            return chunk
        for row in () if self.drop_missing else np.flatnonzero(missing):
            nameless.add("", (), partial(self._example, chunk, int(row), 0, 1))
        return chunk.kept(~missing)

    def _kept_values(
        self, chunk: Chunk, invalid: InvalidValues, outside: InvalidValues
    ) -> tuple[Chunk, Column] | None:
        """Return the rows of a chunk that are not left out, with their values.

        None if a row is invalid or no row remains.
        """
        try:
            return (chunk, self._values(chunk)) if len(chunk) else None
        except DomainError as error:
            if error.where is None:
                raise
            missing = self._missing(chunk, error.where)
            if self.drop_missing and missing.any():
                return self._kept_values(chunk.kept(~missing), invalid, outside)
            if self.drop_outside and (beyond := self._beyond(chunk, error.where, missing)).any():
                self._add(
                    outside, chunk, replace(error.where, rows=np.flatnonzero(beyond).tolist())
                )
                return self._kept_values(chunk.kept(~beyond), invalid, outside)
            self._add(invalid, chunk, error.where)
            return None

    def _values(self, chunk: Chunk) -> Column:
        """Values of a chunk, all inside the domain; those that had to be moved are counted."""
        values = self._taken(chunk, clamp=self.clamp)
        if self.per_user == "mean":
            self.seen.averaged += count_outside(
                lambda: self.query.values_in.validated(chunk.columns[self.values_at])
            )
        elif self.clamp and self.per_user != "sum":
            self.seen.clamped += count_outside(lambda: self._taken(chunk, clamp=False))
        return values

    @property
    def _are_words(self) -> bool:
        """Whether values are labels or ids of zones."""
        domain = self.query.values_in
        columns = len(self.table.columns) - self.values_at
        if isinstance(domain, Zones | ZonePairs):
            return columns == (1 if isinstance(domain, Zones) else 2)
        return isinstance(domain, Categories | LabelSets | KeyedNumbers)

    def _taken(self, chunk: Chunk, *, clamp: bool) -> Column:
        domain = self.query.values_in
        columns = chunk.columns[self.values_at :]
        if isinstance(domain, Categories | Zones) and self._are_words:
            return labels_of(
                domain,
                ["" if cell is None else str(cell).strip() for cell in chunk.cells[self.values_at]],
            )
        if isinstance(domain, Zones):
            codes = cells_of(domain, columns, self.coordinates, clamp)
            return np.array(domain.ids, dtype=object)[codes]
        if isinstance(domain, Grid | Places):
            return cells_of(domain, columns, self.coordinates, clamp)
        if isinstance(domain, ZonePairs):
            return trips_of(domain, chunk.cells[self.values_at :], columns, clamp)
        if isinstance(domain, LabelledNumbers):
            return pairs_of(domain, chunk.cells[self.values_at], columns[1], clamp)
        if isinstance(domain, NumberRows):
            rows = np.stack([column.astype(object) for column in columns], axis=1)
            return domain.clamped(rows) if clamp else domain.validated(rows)
        if isinstance(domain, LabelSets):
            return sets_of(domain, chunk.cells[self.values_at])
        if isinstance(domain, KeyedNumbers):
            numbers = columns[1] if len(columns) > 1 else None
            return holdings_of(domain, chunk.cells[self.values_at], numbers, clamp, self.decimal)
        if self.per_user in ("mean", "sum"):  # only the mean or sum must lie inside
            if (
                self.per_user == "mean"
                and self.drop_outside
                and isinstance(domain, Integers | Interval)
            ):
                return Interval(domain.low, domain.high, domain.unit).validated(columns[0])
            return Interval(-1e300, 1e300).validated(columns[0])
        return domain.clamped(columns[0]) if clamp else domain.validated(columns[0])

    # Missing and invalid rows

    def _missing(self, chunk: Chunk, where: WrongRows) -> Mask:
        """Mask of the invalid rows that miss a value."""
        missing: Mask = np.zeros(len(chunk), dtype=bool)
        for cells in chunk.cells[self.values_at :]:
            missing[[row for row in where.rows if is_missing(cells[row])]] = True
        return missing

    def _beyond(self, chunk: Chunk, where: WrongRows, missing: Mask) -> Mask:
        """Mask of the invalid rows that can be read but have a value outside the domain.

        Rows with a number that is merely written in another format are not among them.
        """
        beyond: Mask = np.zeros(len(chunk), dtype=bool)
        domain = self.query.values_in
        words = self._are_words
        known = set(domain.labels.labels) if isinstance(domain, LabelledNumbers) else None
        labels = chunk.cells[self.values_at]
        beyond[
            [
                row
                for row in where.rows
                if words
                or where.can_clamp(row)
                or (known is not None and str(labels[row]).strip() not in known)
            ]
        ] = True
        return beyond & ~missing

    def _example(
        self, chunk: Chunk, row: int, start: int, stop: int | None = None
    ) -> tuple[str, str]:
        """Place and content of a row."""
        return self.table.place(int(chunk.places[row])), ", ".join(
            _quoted(column[row]) for column in chunk.cells[start:stop]
        )

    def _add(self, invalid: InvalidValues, chunk: Chunk, where: WrongRows) -> None:
        """Record the invalid rows of a chunk."""
        invalid.inside = invalid.inside or where.inside
        box = getattr(self.query.values_in, "box", None)
        of_numbers = not self._are_words
        first_number = 1 if isinstance(self.query.values_in, LabelledNumbers) else 0
        remedies: tuple[str, ...]
        for row in where.rows:
            cells = [column[row] for column in chunk.columns[self.values_at :]]
            problems = [
                cell_problem(cell, self.decimal)
                for index, cell in enumerate(cells)
                if (of_numbers and index >= first_number) or is_missing(cell)
            ]
            known = next((problem for problem in problems if problem is not None), None)
            if known is not None:
                reason = known.reason
                remedies = (known.remedy,) if known.remedy else ()
            else:
                can_clamp = where.can_clamp(row)
                nowhere_on_earth = (
                    invalid_coordinates(chunk, self.values_at, row, box)
                    if can_clamp and self.coordinates == "places"
                    else ""
                )
                reason = nowhere_on_earth or where.reason(row)
                domain = self.query.values_in
                numbers = "places" if "places" in domain.points_are else "numbers"
                clamped = (
                    f"pass {argument('clamp', True)} to move {numbers} outside to "
                    f"{domain.clamped_to}"
                )
                remedies = (
                    (clamped,) if can_clamp and not nowhere_on_earth and not self.clamp else ()
                )
                if (can_clamp or not of_numbers) and not nowhere_on_earth:
                    remedies += (f"{argument('drop_outside', True)} leaves them out",)
            invalid.add(reason, remedies, partial(self._example, chunk, row, self.values_at))

    def _refused(self, invalid: InvalidValues, total: int) -> list[str]:
        """Sentences about invalid values: how many, where the first ones are, and what to do."""
        if not invalid:
            return []
        named = " and ".join(repr(name) for name in self.table.names[self.values_at :])
        remedy = "; ".join(["Correct or leave out such rows", *invalid.remedies])
        if self.coordinates == "cells" and isinstance(self.query.values_in, Grid):
            remedy += (
                f"; {argument('coordinates')} says if they are points or places instead of cells"
            )
        counted = " (rows count from 0)" if self.table.from_zero else ""
        fault = MISSING if set(invalid.reasons) == {MISSING} else f"is not in {invalid.inside}"
        are = fault if invalid.count == 1 else f"are{fault.removeprefix('is')}"
        where = f"{argument('column')} {named} of {self.table.title}{counted}"
        return [
            f"{invalid.count:,} of {total:,} values in {where} {are}{invalid.kinds()}: "
            f"{invalid.listed(stated=MISSING if fault == MISSING else '')}. {remedy}."
        ]

    def _refused_users(self, nameless: InvalidValues, total: int) -> list[str]:
        """Sentences about rows that name no user."""
        if not nameless:
            return []
        return [
            f"{nameless.count:,} of {total:,} rows of {self.table.title} "
            f"name{'s' * (nameless.count == 1)} no user in "
            f"{argument('user_column')} {self.user_column!r}: {nameless.listed()}. Correct "
            "such rows; "
            f"{argument('drop_missing', True)} leaves them out."
        ]

    # Users

    def _by_user(
        self, chunks: Iterator[tuple[Chunk, Column]], log: Callable[[str], None]
    ) -> Iterator[Values]:
        """Yield the values or items of all users; nothing if no row can be used."""
        groups = UserGroups.of(self.table.title, chunks, log)
        if groups is None:
            return
        self.remarks.extend(groups.ambiguous_names(str(self.user_column)))
        if self.whose is not None:
            self.whose.extend(groups.names)
        if self.query.items is not None:
            yield groups.items(self.query.items, repeat=self.per_user == "repeat")
        elif isinstance(self.query.values_in, LabelSets | KeyedNumbers):
            yield self._gathered(groups, self.query.values_in)
        elif self.per_user in ("mean", "sum"):
            yield self._combined(groups)
        else:
            if self.per_user is None:
                groups.check_single(self.query)
            yield groups.single_rows(sample=self.per_user == "sample")

    def _gathered(self, groups: UserGroups, domain: LabelSets | KeyedNumbers) -> Column:
        """All labels, or keys with numbers, of each person."""
        people = [tuple(part for row in rows for part in row) for rows in groups.items("any")]
        try:
            domain.validated(people)
        except DomainError as error:
            if error.where is None:
                raise
            first = error.where.rows[0]
            raise DomainError(
                f"{len(error.where.rows):,} of {len(people):,} people of {self.table.title} are "
                f"not in {error.where.inside}; the first is {format_value(groups.names[first])}, "
                f"who {error.where.reason(first)}. Correct their rows."
            ) from None
        return object_array(people, len(people))

    def _combined(self, groups: UserGroups) -> Column:
        """Mean or sum of the rows of each person, inside the domain."""
        domain = self.query.values_in
        outcome = groups.total()
        if self.per_user == "mean":
            outcome = outcome / groups.counts
        if isinstance(domain, Integers):
            outcome = np.rint(outcome)
        self.seen.people += len(groups.names)
        self.seen.clamped_people += (
            count_outside(lambda: domain.validated(outcome)) if self.clamp else 0
        )
        try:
            return domain.clamped(outcome) if self.clamp else domain.validated(outcome)
        except DomainError as error:
            raise self._outside(groups.names, outcome, error) from None

    def _outside(self, names: list[str], outcome: Column, error: DomainError) -> DomainError:
        """Error about people whose mean or sum is not a value of the query."""
        if error.where is None:
            return error
        where = error.where
        many = len(error.where.rows)
        can_clamp = not self.clamp and any(map(where.can_clamp, where.rows))
        remedy = (
            f", or pass {argument('clamp', True)} to move it to the nearest end"
            if can_clamp
            else ""
        )
        first = [
            f"{format_value(names[row])}: {format_value(outcome[row])} {where.reason(row)}"
            for row in where.rows[:MAX_SHOWN]
        ]
        more = f"; and {many - MAX_SHOWN:,} more" if many > MAX_SHOWN else ""
        return DomainError(
            f"the {self.per_user} of {many:,} of {len(names):,} people of "
            f"{self.table.title} {'is' if many == 1 else 'are'} not in "
            f"{where.inside}: {'; '.join(first)}{more}. Take another "
            f"{argument('per_user')}{remedy}."
        )


def count_outside(check: Callable[[], object]) -> int:
    """Count the values that a check rejects and that clamping would move."""
    try:
        check()
    except DomainError as error:
        return 0 if error.where is None else sum(map(error.where.can_clamp, error.where.rows))
    return 0


def _missing_cells(cells: Cells) -> Mask:
    """Mask of missing cells."""
    if not isinstance(cells, list) and cells.dtype.kind in "iu":
        return np.zeros(len(cells), dtype=bool)
    # A set, because many rows of a file have the same few names.
    if isinstance(cells, list) and not any(map(is_missing, set(cells))):
        return np.zeros(len(cells), dtype=bool)
    return np.fromiter(map(is_missing, cells), dtype=bool, count=len(cells))


def _quoted(cell: object) -> str:
    return (
        "(empty)"
        if cell is None or (isinstance(cell, str) and not cell.strip())
        else format_value(cell)
    )
