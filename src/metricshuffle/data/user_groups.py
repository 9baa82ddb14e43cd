"""Rows grouped by user: the items of each user, or one value for each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from metricshuffle.data.source import Chunk, Column
from metricshuffle.data.value_reading import PER_USER
from metricshuffle.errors import InputError, argument
from metricshuffle.models import format_value
from metricshuffle.numerics.types import Floats, Integers64
from metricshuffle.queries.mean_and_sum import NumberQuery
from metricshuffle.queries.query import Query
from metricshuffle.randomness import Randomness


@dataclass(frozen=True, eq=False)
class UserGroups:
    """Rows of a table by user, users in the order of their first row."""

    title: str
    """Name of the table in a message."""
    names: list[str]
    owners: Integers64
    """Index of the user of each row."""
    values: Column
    counts: Integers64
    """Number of rows of each user."""

    @classmethod
    def of(
        cls, title: str, chunks: Iterator[tuple[Chunk, Column]], log: Callable[[str], None]
    ) -> UserGroups | None:
        """Read all chunks, whose first column names users; None if there is no row."""
        users: dict[str, int] = {}
        owners: list[Integers64] = []
        values: list[Column] = []
        rows = 0
        for chunk, part in chunks:
            cells = chunk.cells[0] if isinstance(chunk.cells[0], list) else chunk.cells[0].tolist()
            names = [str(cell).strip() for cell in cells]
            owners.append(
                np.array([users.setdefault(name, len(users)) for name in names], dtype=np.int64)
            )
            values.append(part)
            rows += len(chunk)
            log(f"{rows:,} rows")
        if not owners:
            return None
        owner = np.concatenate(owners)
        counts = np.bincount(owner, minlength=len(users))
        return cls(title, list(users), owner, np.concatenate(values), counts)

    def items(self, items_per_user: object, *, repeat: bool = False) -> list[Column]:
        """Items of each user; raises if a user does not have the required number of items.

        If they `repeat`, users with k items of m count each m/k times; k must divide m. Distances
        of users are those of their shares of items, which this does not change.
        """
        if isinstance(items_per_user, int):
            self._check_number(items_per_user, repeat=repeat)
        order = np.argsort(self.owners, kind="stable")
        values, counts = self.values[order], self.counts
        if repeat and isinstance(items_per_user, int):
            values = np.repeat(values, np.repeat(items_per_user // counts, counts))
            counts = np.full(len(counts), items_per_user)
        return np.split(values, np.cumsum(counts)[:-1])

    def _check_number(self, items: int, *, repeat: bool) -> None:
        """Raise unless all users have this number of items, or one that divides it."""
        differing = items % self.counts != 0 if repeat else self.counts != items
        if not np.any(differing):
            return
        first = int(np.flatnonzero(differing)[0])
        exactly = f"exactly {items:,} item{'s' * (items != 1)}"
        rule = f"a number of items that divides {items:,}" if repeat else exactly
        repeated = argument("per_user", "repeat")
        remedy = "" if repeat else f" ({repeated} repeats items of users whose number divides it)"
        raise InputError(
            f"{int(differing.sum()):,} of {len(self.names):,} users of {self.title} do not have "
            f"{rule}; the first is {format_value(self.names[first])} with "
            f"{int(self.counts[first]):,}; correct the rows{remedy}, or plan without "
            f"{argument('items')} to let users hold any number."
        )

    def check_single(self, query: Query) -> None:
        """Raise if a person has several rows: the guarantee is about one value a person."""
        rows = len(self.owners)
        people = len(self.counts)
        if rows > people:
            allowed = PER_USER if isinstance(query, NumberQuery) else PER_USER[2:]
            raise InputError(
                f"{rows:,} rows of {self.title} belong to {people:,} people, up to "
                f"{int(self.counts.max()):,} to "
                "one of them; the promise is about one value a person, so choose "
                f"{argument('per_user')} "
                f"{', '.join(allowed[:-1])} or {allowed[-1]}, or plan a user-histogram or "
                "user-mean."
            )

    def total(self) -> Floats:
        """Sum of the rows of each user."""
        weights = np.asarray(self.values, dtype=np.float64)
        return np.asarray(
            np.bincount(self.owners, weights=weights, minlength=len(self.counts)), dtype=np.float64
        )

    def single_rows(self, *, sample: bool) -> Column:
        """First row of each user, or one drawn at random."""
        order = np.argsort(self.owners, kind="stable")
        starts = np.cumsum(self.counts) - self.counts
        if sample:
            source = Randomness.system()
            starts = starts + np.array(
                [source.below(int(count)) for count in self.counts], dtype=np.int64
            )
        chosen: Column = self.values[order[starts]]
        return chosen

    def ambiguous_names(self, column: str) -> list[str]:
        """Remark if names differ only in leading zeros, decimals or the case of letters."""
        seen: dict[str, str] = {}
        pairs = [
            (seen[form], name)
            for name in self.names
            if seen.setdefault(form := _plain_form(name), name) != name
        ]
        if not pairs:
            return []
        first, second = pairs[0]
        others = f", and {len(pairs) - 1:,} more like them" if len(pairs) > 1 else ""
        return [
            f"Users {format_value(first)} and {format_value(second)} in {column!r} of "
            f"{self.title} counted as two "
            f"people{others}: names are compared as text. If they are one person, correct "
            "the names and do not use "
            "this outcome: the promise is about all that one person holds."
        ]


def _plain_form(name: str) -> str:
    form = name.casefold()
    if not form[-1:].isdigit():
        return form
    if "." in form and form.replace(".", "", 1).isdigit():
        form = form.rstrip("0").removesuffix(".")
    return form.lstrip("0") or "0" if form.isdigit() else form
