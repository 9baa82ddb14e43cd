"""Distances between the values in a file: shown here to help choose one, never in a plan."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from metricshuffle.errors import InputError

if TYPE_CHECKING:
    from metricshuffle.cli.shared_options import ReadingOptions
    from metricshuffle.queries.query import Query

HOW_TO = "docs/how-to/choose-a-distance.md"


@dataclass(frozen=True)
class ValueFile:
    """A file of values and its reading options."""

    file: Path
    options: ReadingOptions

    def sentences(self, query: Query, distance: float | None) -> list[str]:
        """Say how far apart the values are, and how many lie outside the range."""
        from metricshuffle.cli.console import show_progress
        from metricshuffle.cli.input_rows import rows_of
        from metricshuffle.data.query_values import join_parts
        from metricshuffle.planning.pairwise_distances import DISTANCE_RULE, summarize_distances
        from metricshuffle.spaces import Categories, ZonePairs, Zones

        labels = isinstance(query.values_in, Categories | Zones | ZonePairs)
        rows = rows_of(self.file, query, replace(self.options, clamp=not labels))
        with show_progress(f"Reading {self.file}") as progress:
            values = join_parts(rows.parts(progress))
            progress("comparing pairs")
            spread = summarize_distances(query, values)
        rule = (
            f"{DISTANCE_RULE} A round number that could be named without looking at values says "
            f"nothing about the people ({HOW_TO})."
        )
        return [*spread.sentences(distance), *spread.picture(distance), *rows.remarks, rule]


def value_file(file: Path | None, options: ReadingOptions) -> ValueFile | None:
    """Return the named file; raises if its options are given without it."""
    if file is not None:
        return ValueFile(file, options)
    stray = {
        "--user-column": options.user_column,
        "--per-user": options.per_user,
        "--coordinates": options.coordinates,
        "--delimiter": options.delimiter,
        "--drop-missing": options.drop_missing or None,
        "--no-header": options.no_header or None,
    }
    for option, value in stray.items():
        if value is not None:
            raise InputError(
                f"{option} belongs to --values FILE, the values to look at before a "
                "distance is chosen; give both."
            )
    return None
