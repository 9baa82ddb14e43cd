"""From options to the rows of a file, a pipe or standard input."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from metricshuffle.data import CsvFormat, open_columns
from metricshuffle.data.rows import Rows

if TYPE_CHECKING:
    from metricshuffle.cli.shared_options import ReadingOptions
    from metricshuffle.queries.query import Query


def rows_of(path: Path, query: Query, options: ReadingOptions) -> Rows:
    """What the options say about a file, for a query; nothing but its header has been read."""
    form = CsvFormat.of(options.delimiter, options.decimal, options.no_header)
    return Rows.of(
        partial(open_columns, path, form=form),
        query,
        options.column,
        coordinates=options.coordinates,
        clamp=options.clamp,
        user_column=options.user_column,
        per_user=options.per_user,
        drop_missing=options.drop_missing,
        drop_outside=options.drop_outside,
        decimal=options.decimal,
    )
