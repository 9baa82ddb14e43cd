"""Rows of a file, a pipe or standard input, read as the options say."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

from metricshuffle.data import CsvFormat, open_columns
from metricshuffle.data.rows import Rows
from metricshuffle.data.value_reading import ReadingArguments

if TYPE_CHECKING:
    from metricshuffle.cli.shared_options import ReadingOptions
    from metricshuffle.queries.query import Query


def reading_arguments(options: ReadingOptions) -> ReadingArguments:
    """Convert the options to reading arguments; they are checked when values are read."""
    return cast(
        ReadingArguments,
        {name: getattr(options, name) for name in ReadingArguments.__annotations__},
    )


def rows_of(path: Path, query: Query, options: ReadingOptions) -> Rows:
    """Open a file for a query as the options say; only its header has been read."""
    form = CsvFormat.of(options.delimiter, options.decimal, options.no_header)
    opened = partial(open_columns, path, form=form)
    return Rows.of(opened, query, decimal=options.decimal, **reading_arguments(options))
