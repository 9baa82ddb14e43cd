"""Frames that are computed when they are read: only the wanted columns, once, a batch at a time, so that memory stays bounded.

They speak Arrow's C interface too, or their results do, but would be computed as a whole for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from metricshuffle.data import source as tables
from metricshuffle.errors import InputError, require

# Batches of a dataset that are read ahead of use, and files.
BATCHES_AHEAD, FILES_AHEAD = 4, 1


def is_lazy_frame(values: Any) -> bool:
    """Whether values are a Polars LazyFrame, a DuckDB relation or an Arrow dataset."""
    return _is_lazy(values) or _is_relation(values) or _is_dataset(values)


def _is_lazy(values: Any) -> bool:
    return hasattr(values, "collect") and hasattr(values, "collect_schema")


def _is_relation(values: Any) -> bool:
    return type(values).__module__.split(".")[0] in ("duckdb", "_duckdb") and hasattr(values, "project")


def _is_dataset(values: Any) -> bool:
    return hasattr(values, "scanner") and hasattr(values, "to_batches")


def lazy_column_names(values: Any) -> list[str]:
    """Its columns; nothing is computed for them."""
    if _is_lazy(values):
        return list(values.collect_schema().names())
    return list(values.columns) if _is_relation(values) else list(values.schema.names)


def lazy_batches(values: Any, names: Sequence[str]) -> Iterator[Any]:
    """Arrow batches of the wanted columns."""
    pyarrow: Any = require("pyarrow", "tables")
    if _is_relation(values):
        wanted = ", ".join('"' + name.replace('"', '""') + '"' for name in names)
        chosen = values.project(wanted)
        # Earlier versions have it under its first name.
        opened = chosen.to_arrow_reader if hasattr(chosen, "to_arrow_reader") else chosen.fetch_record_batch
        yield from opened(tables.CHUNK_ROWS)
    elif _is_dataset(values):
        ahead = {"batch_readahead": BATCHES_AHEAD, "fragment_readahead": FILES_AHEAD}
        yield from values.scanner(columns=list(names), batch_size=tables.CHUNK_ROWS, **ahead).to_reader()
    else:
        chosen = values.select(list(names))
        if not hasattr(chosen, "collect_batches"):
            raise InputError(f"this Polars reads a {type(values).__name__} as a whole; update it (to 1.34 or newer), or collect() it.")
        for frame in chosen.collect_batches(chunk_size=tables.CHUNK_ROWS, maintain_order=True):
            yield from pyarrow.RecordBatchReader.from_stream(frame)
