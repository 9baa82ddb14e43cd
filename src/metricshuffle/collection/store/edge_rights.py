"""Rights of the database users of edges: they add reports, and can neither read nor close them.

`migrate --edge-role` grants a user its rights once; rights to the tables of a collection are
granted when the tables are made. The hub's user owns all tables. It ends hanging transactions of
edges, so it must be a member of their roles.
"""

from __future__ import annotations

from metricshuffle.collection.store.records import StoreError
from metricshuffle.collection.store.transaction import Transaction
from metricshuffle.errors import InputError

GRANTS = (
    "USAGE ON SCHEMA metricshuffle",
    "SELECT ON format, collection, served, clock, anchor, part",
    "UPDATE (reports) ON part",
)


def grant_edge_rights(db: Transaction, role: str) -> None:
    """Give a database user what an edge needs, now and for collections to come."""
    sql = "SELECT pg_has_role(rolname, 'USAGE'), rolsuper FROM pg_roles WHERE rolname = ?"
    row = db.execute(sql, (role,)).fetchone()
    if row is None:
        raise InputError(
            f"the database has no user {role!r}; create it first: CREATE ROLE ... LOGIN."
        )
    [is_member, is_superuser] = row
    if is_superuser or role == db.execute("SELECT current_user").fetchone()[0]:
        raise InputError(
            f"{role!r} may do everything here already; name a user of edges alone, which owns "
            "nothing."
        )
    if not is_member:
        raise StoreError(
            f"this user could not end a transaction of {role!r} that hangs, and closing would "
            "wait for it; make this user a member first: GRANT (the edge's role) TO (this user)."
        )
    for rights in GRANTS:
        statement = db.execute("SELECT format(?, ?::text)", (f"GRANT {rights} TO %I", role))
        db.execute(statement.fetchone()[0])
    db.execute("INSERT INTO edge_role VALUES (?) ON CONFLICT DO NOTHING", (role,))
    sql = "SELECT grant_reports(id) FROM collection WHERE to_regclass('report_' || id) IS NOT NULL"
    db.execute(sql)
