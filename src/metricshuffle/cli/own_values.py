"""How far apart the values in a file are, for whoever has to choose a distance: shown on this machine, and kept out of every plan."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from metricshuffle.errors import InputError

if TYPE_CHECKING:
    from metricshuffle.cli.options import ReadingOptions
    from metricshuffle.queries.base import Query

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
        from metricshuffle.queries.values import joined
        from metricshuffle.spaces import Categories

        labels = isinstance(query.values_in, Categories)
        rows = rows_of(self.file, query, replace(self.options, clamp=not labels))
        with working(f"Reading {self.file}") as tell:
            values = joined(rows.parts(tell))
            tell("comparing pairs")
            spread = spread_of(query, values)
        return [*spread.sentences(distance), *rows.remarks, HOW_TO_CHOOSE]


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
