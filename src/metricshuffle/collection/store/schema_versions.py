"""Numbered migrations of the databases: `migrations/<kind>/NNNN_<name>.sql`, applied in order.

A migration adds to the schema; what an older version needs is removed one version later at the
earliest. The table `format` has the schema version of a database, and the oldest one whose programs
can still use it (`readable_from`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal

DatabaseKind = Literal["sqlite", "postgres"]


@dataclass(frozen=True)
class Migration:
    """Step of a schema from the version before to `version`."""

    version: int
    sql: str

    def statements(self) -> Iterator[str]:
        """Split into single statements; a trigger contains semicolons."""
        lines: list[str] = []
        for line in self.sql.splitlines():
            lines.append(line)
            if sqlite3.complete_statement("\n".join(lines)):
                yield "\n".join(lines)
                lines = []


@cache
def migrations(kind: DatabaseKind) -> tuple[Migration, ...]:
    """All migrations of a kind of database, oldest first; their numbers have no gap."""
    folder = files("metricshuffle.collection.store") / "migrations" / kind
    sources = {
        int(path.name.split("_", 1)[0]): path.read_text(encoding="utf-8")
        for path in folder.iterdir()
        if path.name.endswith(".sql")
    }
    return tuple(Migration(version, sources[version]) for version in range(1, len(sources) + 1))


def latest_version(kind: DatabaseKind) -> int:
    return migrations(kind)[-1].version
