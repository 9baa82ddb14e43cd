"""`metricshuffle migrate`: bring the tables of a PostgreSQL database to this version."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from metricshuffle.cli.shared_options import Json

Database = Annotated[
    str,
    typer.Option(
        "--store", metavar="DATABASE", help="PostgreSQL database: postgresql://user@host/name."
    ),
]


EdgeRole = Annotated[
    str | None,
    typer.Option(
        "--edge-role",
        metavar="USER",
        help="Database user of edges, which gets the rights to add reports, and no others.",
    ),
]


def migrate(store: Database, edge_role: EdgeRole = None, as_json: Json = False) -> None:
    """Operator: bring the tables of a PostgreSQL database to this version.

    Collections that are open go on. Migrate first, then restart the hub, then the edges. A SQLite
    file is migrated when `serve` opens it. Run it as the hub's database user, which owns the tables
    and must be a member of the role in --edge-role.
    """
    from metricshuffle.cli.console import say, screen
    from metricshuffle.collection.store.factory import migrate_database

    before, after = migrate_database(store, edge_role)
    if as_json:
        print(json.dumps({"before": before, "after": after}))
        return
    if edge_role:
        say(screen(), f"{edge_role} has the rights of an edge.")
    if before == after:
        say(screen(), f"The database has format {after} already.")
    else:
        say(screen(), f"The database has format {after}; it had {before}.")
