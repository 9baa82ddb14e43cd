"""Schema of a SQLite file: the migrations, and the tables of each collection.

Layout 2 has two tables per collection that are only appended to: `report_<id>` with the encrypted
bundles, and the narrow `admitted_<id>` with tags and spent tickets or nonces, which a process reads
when it starts. Row numbers are never used again, so `place > last` finds all rows that others
added.
Layout 1, of collections that were opened by an older version, has a table of all reports with the
tag as its key.
"""

from __future__ import annotations

APPLICATION = 0x4D53_6866
"""Application id in the file ("MShf")."""
PAGE_BYTES = 4096
"""Page size of new files. Every commit writes five pages in addition to those of its reports, and
the next one writes the last of these again. Older files keep their pages of 16384 bytes."""
PIECE_BYTES = 4000
WHOLE_REPORT_BYTES = 65536
"""Layout 1 splits reports between these sizes: a row over a quarter of 16384 bytes takes a second
page."""

_COLLECTION_TABLES = (
    "CREATE TABLE report_{id} (place INTEGER PRIMARY KEY AUTOINCREMENT, tag BLOB NOT NULL, "
    "hidden BLOB NOT NULL)",
    "CREATE TABLE admitted_{id} (place INTEGER PRIMARY KEY AUTOINCREMENT, tag BLOB NOT NULL, "
    "ticket BLOB NOT NULL)",
    "CREATE TRIGGER report_{id}_while_open BEFORE INSERT ON report_{id} "
    "WHEN (SELECT state FROM collection WHERE id = {id}) IS NOT 'open' "
    "BEGIN SELECT RAISE(ABORT, 'reports are stored while it is open'); END",
)


def collection_tables(number: int) -> list[str]:
    """Statements that make the tables of a collection."""
    return [statement.format(id=number) for statement in _COLLECTION_TABLES]


def split_into_pieces(hidden: bytes) -> list[bytes]:
    """Split an encrypted report of layout 1 into the pieces that are stored as rows."""
    count = -(-len(hidden) // PIECE_BYTES) if PIECE_BYTES < len(hidden) < WHOLE_REPORT_BYTES else 1
    size = -(-len(hidden) // count)
    return [hidden[start : start + size] for start in range(0, max(1, len(hidden)), max(1, size))]
