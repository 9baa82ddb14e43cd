"""How far apart the values in a file are, for whoever has to choose a distance: shown on this machine, and kept out of every plan."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from metricshuffle.errors import InputError

if TYPE_CHECKING:
    from metricshuffle.cli.options import ReadingOptions
    from metricshuffle.columns import Chunk, Table
    from metricshuffle.queries.base import Query
    from metricshuffle.spaces import Domain

HOW_TO = "docs/how-to/choose-a-distance.md"
HOW_TO_CHOOSE = (
    "Choose a distance within which nobody would mind being taken for somebody else; a round number that could be named without looking "
    f"tells nothing about the people ({HOW_TO})."
)


@dataclass(frozen=True)
class OwnValues:
    """Which columns of which file are looked at."""

    file: Path
    options: ReadingOptions

    def sentences(self, query: Query, distance: float | None) -> list[str]:
        """How far apart they are, and how many lie outside the range."""
        from metricshuffle.cli.screen import working
        from metricshuffle.cli.values import rows_of
        from metricshuffle.planning.spread import spread_of
        from metricshuffle.queries.rows import joined
        from metricshuffle.spaces import Categories

        labels = isinstance(query.values_in, Categories)
        rows = rows_of(self.file, query, replace(self.options, clamp=not labels))
        # (what counts of a mean or a sum is the outcome)
        watched = Watched(
            rows.table, [] if labels or self.options.per_user in ("mean", "sum") else _ends(query.values_in, rows.coordinates)
        )
        rows = replace(rows, table=watched)
        with working(f"Reading {self.file}") as tell:
            values = joined(rows.parts(tell))
            tell("comparing pairs")
            spread = spread_of(query, values)
        lines, outside = spread.sentences(distance), sum(watched.outside)
        if outside:
            lie, they = ("1 value lies", "it") if outside == 1 else (f"{outside:,} values lie", "they")
            lines.append(f"{lie} outside {query.values_in}; here {they} counted as its nearest end.")
        return [*lines, *rows.remarks, HOW_TO_CHOOSE]


@dataclass(frozen=True)
class Watched:
    """A table whose numbers outside the ends of their columns are counted while it is read, which may be possible only once."""

    table: Table
    ends: list[tuple[float, float]]
    """Of the last columns."""
    outside: list[int] = field(default_factory=list)

    def chunks(self) -> Iterator[Chunk]:
        import numpy as np

        for chunk in self.table.chunks():
            beyond = np.zeros(len(chunk), dtype=bool)
            for column, (low, high) in zip(reversed(chunk.columns), reversed(self.ends), strict=False):
                if column.dtype.kind in "iuf":
                    beyond |= (column < low) | (column > high)
            self.outside.append(int(np.count_nonzero(beyond)))
            yield chunk

    @property
    def title(self) -> str:
        return self.table.title

    @property
    def names(self) -> tuple[str, ...]:
        return self.table.names

    @property
    def remarks(self) -> list[str]:
        return self.table.remarks

    def place(self, place: int) -> str:
        return self.table.place(place)


def _ends(domain: Domain, coordinates: str) -> list[tuple[float, float]]:
    """The least and the largest number of each column."""
    from metricshuffle.spaces import Grid, Integers, Interval

    if isinstance(domain, Integers | Interval):
        return [(domain.low, domain.high)]
    if not isinstance(domain, Grid):
        return []
    if coordinates == "places" and domain.box is not None:
        return [(domain.box.south, domain.box.north), (domain.box.west, domain.box.east)]
    width, height = (
        (domain.width * domain.cell, domain.height * domain.cell) if coordinates == "points" else (domain.width - 1, domain.height - 1)
    )
    return [(0.0, width), (0.0, height)]


def own_values(file: Path | None, options: ReadingOptions) -> OwnValues | None:
    """What the options name, or a sentence where they belong to a file that is not named."""
    if file is not None:
        return OwnValues(file, options)
    stray = {
        "--user-column": options.user_column, "--per-user": options.per_user, "--coordinates": options.coordinates,
        "--delimiter": options.delimiter, "--drop-missing": options.drop_missing or None, "--no-header": options.no_header or None,
    }  # fmt: skip
    for option, value in stray.items():
        if value is not None:
            raise InputError(f"{option} belongs to --values FILE, the values to look at before a distance is chosen; give both.")
    return None
