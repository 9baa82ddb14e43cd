"""Schema of a PostgreSQL database: the migrations, and the tables of each collection.

Layout 2 has two tables per collection, made when it is opened and dropped when it is erased:
`report_<id>`, a heap without an index, and `admitted_<id>`, whose key is the only index. A name is
the tag of a report or, with tickets or tokens, the hash of a ticket or of a token's nonce. The row
of a ticket is made at the opening, and gets the tag of the report that spends the ticket. Layout 1,
of collections that were opened by an older version, has a table of all reports.
"""

from __future__ import annotations

SCHEMA = "metricshuffle"
LOCK = 0x4D53_6866
"""Advisory lock for creating tables and adding collections."""

_COLLECTION_TABLES = """
CREATE TABLE report_{id} (lease uuid, name uuid NOT NULL, hidden bytea NOT NULL) WITH (toast_tuple_target = 8160);
ALTER TABLE report_{id} ALTER hidden SET STORAGE EXTERNAL;
CREATE TABLE admitted_{id} (name uuid PRIMARY KEY, tag uuid) WITH (fillfactor = 70);
CREATE TRIGGER while_open AFTER INSERT ON report_{id} FOR EACH STATEMENT EXECUTE FUNCTION check_collection_open({id});
CREATE TRIGGER spent_once BEFORE UPDATE ON admitted_{id} FOR EACH ROW WHEN (OLD.tag IS NOT NULL) EXECUTE FUNCTION check_ticket();
SELECT grant_reports({id});
"""  # noqa: E501


def collection_tables(number: int) -> str:
    """Script that makes the tables of a collection."""
    return _COLLECTION_TABLES.format(id=number)
