"""Options for reading people's values, and their summary in a release."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypedDict, get_args

from metricshuffle.errors import InputError, argument
from metricshuffle.models import FrozenModel
from metricshuffle.queries.by_group import ByGroup
from metricshuffle.queries.column_means import Means
from metricshuffle.queries.keyed_means import KeyValues
from metricshuffle.queries.mean_and_sum import NumberQuery
from metricshuffle.queries.query import Query
from metricshuffle.queries.sets import Sets
from metricshuffle.spaces import Domain, Grid, Places, ZonePairs, Zones

PerUser = Literal["mean", "sum", "first", "sample", "repeat"]
CoordinateKind = Literal["cells", "points", "places"]
PER_USER = get_args(PerUser)[:-1]
"""Ways to make one value of several rows."""
COORDINATES = get_args(CoordinateKind)


class ReadingArguments(TypedDict, total=False):
    """Arguments of every call that reads people's values.

    Values are a list, an array, or a frame or table (pandas, Polars, Arrow, a dictionary of
    columns). Values outside the domain are rejected unless `clamp` or `drop_outside` is set.
    """

    column: str | Sequence[str] | None
    """Column of a frame or table that has the values; two names for places."""
    user_column: str | None
    """Column that names the user of each row; without it every row is another person."""
    per_user: PerUser | None
    """How several rows of one person become one value; rejected by default.

    The "mean" or "sum" of numbers, the "first" row, or a "sample" of one.
    """
    coordinates: CoordinateKind | None
    """Meaning of two columns: "places" (latitude and longitude), "cells" or "points"."""
    drop_missing: bool
    """Leave out rows that miss a value."""
    drop_outside: bool
    """Leave out rows with a value outside the domain."""
    clamp: bool
    """Move numbers outside the domain to its nearest end."""


def check_argument_names(reading: ReadingArguments) -> None:
    """Raise a TypeError if an argument is not one of `ReadingArguments`."""
    known = ReadingArguments.__annotations__
    unknown = next((name for name in reading if name not in known), None)
    if unknown is not None:
        raise TypeError(f"unknown argument {unknown!r}; values are read with {', '.join(known)}.")


def column_list(column: str | Sequence[str] | None) -> list[str]:
    """List of the column names, of which there may be one or none."""
    if column is None:
        return []
    # In pandas, numbers may be column names.
    return list(column) if isinstance(column, list | tuple) else [column]  # type: ignore[list-item]


def value_columns(query: Query, column: str | Sequence[str] | None) -> list[str]:
    """Names of the columns that make a value; those of groups are named by the query."""
    columns = column_list(column)
    if isinstance(query, Means) and not columns:
        return list(query.columns)
    return [query.by, *columns] if isinstance(query, ByGroup) and len(columns) == 1 else columns


class Reading(FrozenModel):
    """Treatment of values outside the domain, of missing values, and of several rows of a person.

    It does not depend on the values, so it can be published. The number of values that were moved
    or left out is an exact number about people, which no noise hides: it is shown to the owner of
    the values and written to no file.
    """

    clamp: bool = False
    drop_outside: bool = False
    drop_missing: bool = False
    per_user: PerUser | None = None

    @classmethod
    def of(cls, reading: ReadingArguments) -> Reading:
        """Summary of reading arguments for a release."""
        check_argument_names(reading)
        return cls(**{name: value for name, value in reading.items() if name in cls.model_fields})

    def warning(self, query: Query) -> str:
        """Warning that the answer is about moved values; empty otherwise."""
        if not self.clamp:
            return ""
        moved = (
            f"The {self.per_user} of a person's rows"
            if self.per_user in ("mean", "sum")
            else "A value"
        )
        return (
            f"{moved} outside {query.values_in} was moved to {query.values_in.clamped_to}, "
            "wherever there was one: the answer is about the moved values. How many were moved is "
            "not stated here, because that number is not private."
        )

    def remarks(self, query: Query) -> list[str]:
        """Sentences about the other options that a reader of the answer should know."""
        remarks = []
        if self.per_user == "mean" and not self.drop_outside:
            remarks.append(
                "Everybody's value is the mean of their rows, of any outside "
                f"{query.values_in} too."
            )
        elif self.per_user in ("mean", "sum"):
            remarks.append(f"Everybody's value is the {self.per_user} of their rows.")
        elif self.per_user is not None:
            chosen = (
                "the first of their rows"
                if self.per_user == "first"
                else "one of their rows, drawn at random"
            )
            remarks.append(f"Everybody's value is {chosen}.")
        if self.drop_outside:
            remarks.append(
                f"Rows outside {query.values_in} were left out, wherever there were any."
            )
        if self.drop_missing:
            remarks.append("Rows without a value were left out, wherever there were any.")
        return remarks


def coordinate_kind(query: Query, coordinates: str | None) -> str:
    """Return the meaning of the columns of places.

    The default is places for a query on a map, else cells.
    """
    domain: Domain = query.values_in
    on_map = isinstance(domain, Places | Zones | ZonePairs) or (
        isinstance(domain, Grid) and domain.box is not None
    )
    if coordinates is None:
        return "places" if on_map else "cells"
    written = argument("coordinates", coordinates)
    if coordinates not in COORDINATES:
        raise InputError(
            f"{argument('coordinates')} must be one of {', '.join(COORDINATES)}, got "
            f"{coordinates!r}."
        )
    if isinstance(domain, Places | Zones | ZonePairs) and coordinates != "places":
        raise InputError(f"{written} is for a grid; this {query.title} takes places in degrees.")
    if not isinstance(domain, Grid | Places | Zones | ZonePairs):
        raise InputError(f"{written} is for places on a grid; leave it out for this {query.title}.")
    if coordinates == "places" and not on_map:
        raise InputError(
            f"{written} needs a plan with {argument('box')}; this plan's grid is not on a map."
        )
    return coordinates


def check_reading(query: Query, reading: ReadingArguments) -> None:
    """Raise unless the arguments fit together and fit the query."""
    check_argument_names(reading)
    columns = column_list(reading.get("column"))
    user_column = reading.get("user_column")
    if isinstance(query.values_in, Grid | Places):
        if len(columns) != 2:
            raise InputError(
                f"a {query.title} needs two columns, each named by {argument('column')}: "
                "latitude and longitude, "
                f"or x and y; got {len(columns)}."
            )
    elif isinstance(query.values_in, Zones):
        if len(columns) not in (1, 2):
            raise InputError(
                f"zones need one column, named by {argument('column')}, with their ids, or two "
                f"with the latitude and longitude of places; got {len(columns)}."
            )
    elif isinstance(query.values_in, ZonePairs):
        if len(columns) not in (2, 4):
            raise InputError(
                f"flows need two columns, each named by {argument('column')}, with the ids of the "
                "zones where trips start and end, or four with latitude and longitude of the "
                f"start, then of the end; got {len(columns)}."
            )
        if len(set(columns)) < len(columns):
            raise InputError(
                f"flows need different columns for the start and the end of a trip, got "
                f"{' and '.join(map(repr, columns))}; name each {argument('column')} once."
            )
    elif isinstance(query, ByGroup):
        if len(columns) > 2:
            raise InputError(
                f"a {query.title} needs the column of the numbers, named by {argument('column')} "
                f"(that of the labels is {query.by!r}), or both, labels first; got {len(columns)}."
            )
    elif isinstance(query, Means):
        if len(columns) not in (0, query.rows):
            raise InputError(
                f"{query.title} need {query.rows:,} columns, each named by {argument('column')} in "
                f"the order of the plan, or none for those of the plan's names; got {len(columns)}."
            )
    elif isinstance(query, KeyValues):
        if len(columns) not in (1, 2):
            raise InputError(
                f"a {query.title} needs one column, named by {argument('column')}, with texts such "
                f"as a=3;b=5, or two with keys and numbers, a row for each key of a person; got "
                f"{len(columns)}."
            )
        if len(columns) == 2 and user_column is None:
            raise InputError(
                f"rows of a key and a number belong to people who may have several: name the "
                f"column that says whose row it is, {argument('user_column')}."
            )
    elif len(columns) != 1:
        raise InputError(
            f"a {query.title} needs one column, named by {argument('column')}; got {len(columns)}."
        )
    if query.items is not None and user_column is None:
        raise InputError(
            f"a {query.title} is about users who hold several rows: name the column that says "
            f"whose row it is, {argument('user_column')}."
        )
    _check_per_user(query, user_column, reading.get("per_user"))
    if user_column is not None and user_column in columns:
        raise InputError(
            f"{argument('column', user_column)} is also the {argument('user_column')}; "
            "name the column that holds the values."
        )


def _check_per_user(query: Query, user_column: str | None, per_user: str | None) -> None:
    if per_user is None:
        return
    name = argument("per_user")
    if per_user not in get_args(PerUser):
        raise InputError(
            f"{name} must be one of {', '.join(PER_USER)}, or repeat, got {per_user!r}."
        )
    if user_column is None:
        raise InputError(
            f"{name} says what to do with several rows of one person; name whose rows they "
            f"are with {argument('user_column')}."
        )
    if per_user == "repeat":
        if not isinstance(query.items, int):
            raise InputError(
                f"{argument('per_user', per_user)} is for users' items whose number is public, "
                f"not for a {query.title}; leave it out."
            )
        return
    if query.items is not None or isinstance(query, Sets | KeyValues):
        raise InputError(f"a {query.title} takes all rows of a user; leave {name} out.")
    if per_user in ("mean", "sum") and not isinstance(query, NumberQuery):
        raise InputError(
            f"{argument('per_user', per_user)} is for numbers; take first or sample for a "
            f"{query.title}."
        )
