"""From options to a query: what each kind needs, and sentences for what does not belong to it."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

from metricshuffle.cli.shared_options import choice, number, whole
from metricshuffle.errors import InputError

if TYPE_CHECKING:
    from metricshuffle.queries.query import Query
    from metricshuffle.spaces import Domain, Grid, Places, Space

QUERIES = ("sum", "mean", "centroid", "histogram", "map", "user-histogram", "user-mean")
NUMBERS, LABELS, CELLS, SQUARES = (
    ("low", "high"),
    ("labels", "labels_from", "column"),
    ("width", "height", "cell", "box"),
    ("levels", "side"),
)
# Which options say where the values of a query lie; all take --unit.
OPTIONS_BY_QUERY: dict[str, tuple[str, ...]] = {
    "sum": NUMBERS,
    "mean": NUMBERS,
    "centroid": CELLS,
    "histogram": (*NUMBERS, *LABELS, "step"),
    "map": CELLS,
    "user-histogram": (*NUMBERS, *LABELS, *CELLS, *SQUARES, "distances", "items"),
    "user-mean": (*NUMBERS, *CELLS, *SQUARES, "items"),
}


@dataclass(frozen=True)
class QueryOptions:
    """What the options say about where values lie."""

    low: str | None = None
    high: str | None = None
    step: float | None = None
    unit: str | None = None
    labels: str | None = None
    labels_from: Path | None = None
    column: str | None = None
    distances: Path | None = None
    width: int | None = None
    height: int | None = None
    cell: float | None = None
    box: tuple[float, float, float, float] | None = None
    levels: int | None = None
    side: float | None = None
    items: int | None = None

    def given(self, names: tuple[str, ...]) -> list[str]:
        return [name for name in names if getattr(self, name) is not None]

    def query(self, kind: str, *, granularity: float | None = None) -> Query:
        """The query; options of another kind are refused."""
        choice("query", kind, QUERIES)
        names = tuple(field.name for field in fields(self) if field.name != "unit")
        foreign = [name for name in self.given(names) if name not in OPTIONS_BY_QUERY[kind]]
        if foreign:
            raise InputError(f"--{_option(foreign[0])} does not belong to --query {kind}; leave it out or ask for another query.")
        from metricshuffle.queries import Centroid, Histogram, Mean, Sum, UserHistogram, UserLinearQuery
        from metricshuffle.spaces import users_of

        if kind in ("sum", "mean"):
            numbers = self._real_or_whole(kind, granularity)
            return Sum(numbers) if kind == "sum" else Mean(numbers)
        if kind == "centroid":
            return Centroid(self._grid(kind) if self.box is None else self._places())
        if kind == "map":
            return Histogram(self._grid(kind))
        if kind == "histogram":
            return self._histogram()
        if self.items is not None and self.items < 1:
            raise InputError(f"--items must be a whole number >= 1, got {self.items}; a user without items cannot stand in a file.")
        people = users_of(self._items_space(kind), self.items)
        return UserHistogram(people) if kind == "user-histogram" else UserLinearQuery.average(people)

    def _ends(self, kind: str) -> tuple[int | float, int | float]:
        for name in NUMBERS:
            if getattr(self, name) is None:
                raise InputError(f"--query {kind} needs --low and --high, the range that values lie in; --{name} is missing.")
        return parse_bound("low", str(self.low)), parse_bound("high", str(self.high))

    def _real_or_whole(self, kind: str, granularity: float | None) -> Domain:
        from metricshuffle.spaces import Integers, Interval

        low, high = self._ends(kind)
        rounded_finer = granularity is not None and 0.0 < granularity < 1.0  # no whole number needs that: real ones were meant
        if isinstance(low, int) and isinstance(high, int) and not rounded_finer:
            return Integers(low, high, self.unit or "")
        if granularity is None and kind != "histogram":
            raise InputError(
                f"--low {self.low} and --high {self.high} have decimals, so values are real numbers, and real numbers need "
                f"--granularity, the step they are rounded to; write bounds without decimals for whole numbers."
            )
        return Interval(low, high, self.unit or "")

    def _histogram(self) -> Query:
        from metricshuffle.queries import Histogram
        from metricshuffle.spaces import Categories

        words = self._words()
        if words is not None:
            if self.given((*NUMBERS, "step")):
                raise InputError("give either labels or --low and --high: a value is a word or a number.")
            return Histogram(Categories(words))
        if not self.given(NUMBERS):
            raise InputError("--query histogram needs --labels a,b,c, --labels-from FILE --column NAME, or --low and --high.")
        numbers = self._real_or_whole("histogram", None)
        if self.step is None and getattr(numbers, "kind", "") == "interval":
            raise InputError("a histogram of real numbers needs --step, the width of its bins.")
        return Histogram(numbers, self.step)

    def _words(self) -> list[str] | None:
        """The labels that are named, or those in a column of a file; None if neither is asked for."""
        if self.labels is not None and self.labels_from is not None:
            raise InputError("give either --labels or --labels-from, and not both.")
        if self.labels_from is not None:
            return self._words_of_file(self.labels_from)
        if self.column is not None:
            raise InputError("--column names the column of --labels-from FILE; give both.")
        if self.labels is None:
            return None
        words = [word.strip() for word in self.labels.split(",")]
        if "" in words:
            raise InputError(f"--labels {self.labels!r} has an empty word; give words with one comma between them, like tea,coffee.")
        return _check_label_count(words, "--labels")

    def _words_of_file(self, path: Path) -> list[str]:
        from metricshuffle.data import column_requests, open_columns

        if self.column is None:
            raise InputError("--labels-from needs --column, the column that holds the labels.")
        words: set[str] = set()
        for chunk in open_columns(path, column_requests([self.column])).chunks():
            words |= {"" if cell is None else str(cell).strip() for cell in chunk.cells[0]}
        return _check_label_count(sorted(words - {""}), f"--labels-from {path}")

    def _grid(self, kind: str) -> Grid:
        from metricshuffle.spaces import Grid

        if self.cell is None:
            raise InputError(f"--query {kind} needs --cell, the side of a grid cell.")
        if self.box is not None:
            if self.width is not None or self.height is not None:
                raise InputError("give either --box or --width and --height, and not both; the box decides how many cells there are.")
            return Grid.from_box(*self.box, self.cell, self.unit or "m")
        if self.width is None or self.height is None:
            raise InputError(f"--query {kind} needs --width and --height in cells, or --box with four numbers in degrees.")
        return Grid(self.width, self.height, self.cell, self.unit or "")

    def rounded_to(self, kind: str, granularity: float | None) -> float | None:
        """What values are rounded to, if that was said; --cell says it for places in a box, which have no cells."""
        if kind != "centroid" or self.box is None or self.cell is None:
            return granularity
        if granularity is not None:
            raise InputError(
                "give either --cell or --granularity: both are the largest unit that places are rounded to, and none is needed."
            )
        if not 0.0 < self.cell < math.inf:
            raise InputError(f"--cell must be a number > 0, got {self.cell!r}.")
        return self.cell

    def _places(self) -> Places:
        from metricshuffle.spaces import Places

        if self.width is not None or self.height is not None:
            raise InputError("give either --box or --width and --height, and not both; places in a box are not counted by cells.")
        assert self.box is not None  # noqa: S101 - else there is a grid
        return Places(*self.box, self.unit or "m")

    def _items_space(self, kind: str) -> Space:
        """Where one item of a user lies, and how far two of them are apart."""
        from metricshuffle.spaces import Box, Categories, Integers, Space, nested_squares, nested_squares_on_map

        words = self._words()
        kinds = [bool(self.given(NUMBERS)), words is not None, self.levels is not None, self.cell is not None]
        if sum(kinds) > 1:
            raise InputError("give only one of --low/--high, --labels, --cell and --levels: an item is a number, a word or a place.")
        if sum(kinds) == 0:
            raise InputError(
                "say what an item is: --low and --high for whole numbers, --labels for words, --cell for places on a grid, or --levels "
                "for places in nested squares."
            )
        if self.distances is not None and words is None:
            raise InputError("--distances is the table of distances of --labels; give both.")
        where = ("width", "height", "box") if self.cell is not None else ("side", "box") if self.levels is not None else ()
        stray = [name for name in self.given(("width", "height", "box", "side")) if name not in where]
        if stray:
            place = "--levels" if stray[0] == "side" else "--cell" if stray[0] != "box" else "--cell or --levels"
            raise InputError(f"--{stray[0]} belongs to {place}, places of items; leave it out, or say that items are places.")
        if words is not None:
            if self.distances is None:
                return Space(Categories(words), unit=self.unit or "")
            from metricshuffle.cli.label_distances import read_distance_table

            return Space(Categories(words), read_distance_table(self.distances, words), unit=self.unit or "")
        if self.cell is not None:
            return Space(self._grid(kind))
        if self.levels is None:
            low, high = self._ends(kind)
            if not (isinstance(low, int) and isinstance(high, int)):
                raise InputError(
                    f"--low and --high must be whole numbers for items, got {self.low} and {self.high}; round items to a step."
                )
            return Space(Integers(low, high, self.unit or ""))
        if (self.side is None) == (self.box is None):
            raise InputError(
                "--levels needs --box SOUTH WEST NORTH EAST, in degrees, or --side for points in 0..SIDE x 0..SIDE: a public area that is "
                "not taken from the data."
            )
        if self.side is not None:
            return nested_squares(self.levels, self.side, self.unit or "")
        assert self.box is not None  # noqa: S101 - one of the two is given
        return nested_squares_on_map(self.levels, Box(*self.box), self.unit or "m")


def _check_label_count(words: list[str], where: str) -> list[str]:
    if len(words) < 2:
        raise InputError(f"{where} names {len(words)} label{'s' * (len(words) != 1)}; a histogram needs at least two.")
    return words


def _option(name: str) -> str:
    return name.replace("_", "-")


def parse_bound(name: str, text: str) -> int | float:
    """A bound as it was written: without a decimal point a whole number."""
    try:
        return whole(text) if "." not in text else number(text)
    except (ValueError, OverflowError):
        try:
            return number(text)
        except ValueError:
            raise InputError(f"--{name} must be a finite number, got {text!r}.") from None
