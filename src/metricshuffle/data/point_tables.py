"""Functions of users' items as CSV text: columns, regions and vectors of points."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from metricshuffle.errors import InputError, argument
from metricshuffle.models import format_value
from metricshuffle.numerics.types import Floats
from metricshuffle.queries import UserLinearQuery
from metricshuffle.spaces import GreatCircle, Grid, Integers, Metric, Users, Vectors

ItemFunction = Callable[[Users], UserLinearQuery]
"""Builds the query for users whose items are known."""
PLACES = ["latitude", "longitude"]
"""Columns of positions that are places on the globe."""


@dataclass(frozen=True)
class PointTable:
    """A header and rows of cells, all of the same length.

    `argument` is the name of the table's option or field, `name` that with its file.
    """

    argument: str
    name: str
    header: list[str]
    rows: list[list[str]]

    @classmethod
    def parse(cls, text: str, of: str, file: str = "") -> Self:
        """Read the text of `argument(of)`; a header with tabs and no comma is that of a sheet."""
        name = f"{argument(of)} {file}".rstrip()
        mark = "\t" if "\t" in text.partition("\n")[0].partition(",")[0] else ","
        try:
            lines = list(csv.reader(io.StringIO(text.removeprefix("\ufeff")), delimiter=mark))
        except csv.Error as error:
            raise InputError(f"{name} is not a table of commas: {error}.", field=of) from None
        rows = [[cell.strip() for cell in line] for line in lines if line]
        if len(rows) < 2:
            raise InputError(f"{name} needs a header and at least one row.", field=of)
        for number, row in enumerate(rows, start=1):
            if len(row) != len(rows[0]):
                raise InputError(
                    f"{name}: row {number:,} has {len(row):,} cells, but the header has "
                    f"{len(rows[0]):,}.",
                    field=of,
                )
        return cls(of, name, rows[0], rows[1:])

    def refusal(self, problem: str) -> InputError:
        return InputError(f"{self.name}{problem}", field=self.argument)

    def numbers(self, leading: int) -> Floats:
        """Numbers of all columns but the first `leading` ones."""
        numbers = np.empty((len(self.rows), len(self.header) - leading))
        for number, row in enumerate(self.rows):
            for column, cell in enumerate(row[leading:]):
                try:
                    numbers[number, column] = float(cell)
                except ValueError:
                    raise self.refusal(
                        f", row {number + 2}, column {self.header[leading + column]}: "
                        f"{format_value(cell)} is not a number; correct it."
                    ) from None
        return numbers

    def codes(self, people: Users, points: Sequence[Sequence[str]]) -> list[int]:
        """Codes of points given as text."""
        domain = people.items_in.domain
        try:
            if not isinstance(domain, Grid | Integers):
                return [int(code) for code in domain.validated([point[0] for point in points])]
            try:
                whole = [[int(part) for part in point] for point in points]
            except ValueError as error:
                raise self.refusal(f" must name points by whole numbers: {error}.") from None
            if isinstance(domain, Grid):
                cells = domain.validated(whole)
                return [int(row) * domain.width + int(column) for column, row in cells]
            return [int(code) for code in domain.validated([p[0] for p in whole]) - domain.low]
        except InputError as error:
            if error.field == self.argument:
                raise
            raise self.refusal(f": {error.problem}") from None

    @property
    def on_globe(self) -> bool:
        """Whether positions are latitudes and longitudes."""
        return [name.lower() for name in self.header[1:]] == PLACES

    def positions(self, labels: list[str] | None, unit: str | None) -> tuple[list[str], Metric]:
        """Labels and the distances between their positions.

        Without `labels`, the labels are those of the table, in its order.
        """
        if len(self.header) < 2:
            raise self.refusal(
                " needs a column for the label and one for each number of its position, got "
                f"{self.header[0]}."
            )
        place_of = {row[0]: place for place, row in enumerate(self.rows)}
        if len(place_of) < len(self.rows):
            twice = next(row[0] for place, row in enumerate(self.rows) if place_of[row[0]] != place)
            raise self.refusal(f" has more than one row for {twice!r}; leave one.")
        words = list(place_of) if labels is None else labels
        missing = next((word for word in words if word not in place_of), None)
        if missing is not None:
            raise self.refusal(f" has no row for {missing!r}; give one for each label.")
        numbers = self.numbers(1)[[place_of[word] for word in words]]
        try:
            metric = GreatCircle(numbers, unit or "km") if self.on_globe else Vectors(numbers)
        except ValueError as error:
            raise self.refusal(f": {error}") from None
        return words, metric

    def columns(self, people: Users, compared: PointTable | None = None) -> UserLinearQuery:
        """The mean of each column, or the similarity of its rows to each of the named vectors."""
        leading = leading_columns(people)
        if len(self.header) <= leading:
            raise self.refusal(
                " needs a column for the point and one for each number, got "
                f"{', '.join(self.header)}."
            )
        codes = self.codes(people, [row[:leading] for row in self.rows])
        if sorted(codes) != list(range(people.size)):
            missing = sorted(set(range(people.size)) - set(codes))
            problem = (
                f"has no row for {people.label(missing[0])}"
                if missing
                else f"has {len(codes) - people.size:,} rows more than there are points"
            )
            raise self.refusal(f" {problem}; give one row for each point.")
        numbers = self.numbers(leading)
        values = np.empty_like(numbers)
        values[codes] = numbers
        if compared is None:
            return UserLinearQuery(people, values, self.header[leading:])
        if len(compared.header) != 1 + values.shape[1]:
            raise compared.refusal(
                f" must have a name and {values.shape[1]:,} numbers in each row, as "
                f"{argument(self.argument)} has, got {len(compared.header) - 1:,}."
            )
        vectors = zip(compared.rows, compared.numbers(1), strict=True)
        return UserLinearQuery.similarity(
            people, values, {row[0]: vector for row, vector in vectors}
        )

    def regions(self, people: Users, fade: float) -> UserLinearQuery:
        """The share of items in each region of points, which fades over a distance."""
        if len(self.header) != 1 + leading_columns(people):
            raise self.refusal(
                " needs the name of a region and a point in each row, got the columns "
                f"{', '.join(self.header)}."
            )
        codes = self.codes(people, [row[1:] for row in self.rows])
        values = people.items_in.domain.all_values()
        members: dict[str, list[object]] = {}
        for row, code in zip(self.rows, codes, strict=True):
            members.setdefault(row[0], []).append(values[code])
        return UserLinearQuery.near(people, dict(members), fade)


def leading_columns(people: Users) -> int:
    """Number of columns that name a point: two on a grid (column and row), else one."""
    return 2 if isinstance(people.items_in.domain, Grid) else 1
