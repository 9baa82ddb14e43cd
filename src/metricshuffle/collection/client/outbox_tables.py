"""Tables of the outbox, in SQL."""

from __future__ import annotations

VERSION = 2
REPORTS = """
CREATE TABLE IF NOT EXISTS reports (
    task TEXT NOT NULL, round INTEGER NOT NULL, who BLOB NOT NULL, collection TEXT NOT NULL, report BLOB, boxes BLOB,
    state TEXT NOT NULL CHECK (state IN ('made', 'sending', 'sent', 'late', 'declined')),
    answer INTEGER NOT NULL DEFAULT 0,
    at INTEGER NOT NULL DEFAULT 0,
    tried INTEGER NOT NULL DEFAULT 0,
    CHECK ((report IS NULL) = (state NOT IN ('made', 'sending'))),
    PRIMARY KEY (task, round, who)
) WITHOUT ROWID;
"""  # noqa: E501
SCHEMA = f"""
CREATE TABLE IF NOT EXISTS about (salt BLOB NOT NULL);
{REPORTS.strip()}
CREATE TABLE IF NOT EXISTS tickets (
    collection TEXT NOT NULL, ticket BLOB NOT NULL, who BLOB NOT NULL, refused INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (collection, ticket)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS claims (id INTEGER PRIMARY KEY, claim TEXT NOT NULL UNIQUE);
CREATE TABLE IF NOT EXISTS ledger (
    who BLOB NOT NULL, task TEXT NOT NULL, round INTEGER NOT NULL, day TEXT NOT NULL,
    claim INTEGER NOT NULL REFERENCES claims, PRIMARY KEY (who, task, round)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS ledger_starts (who BLOB PRIMARY KEY, day TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS limits (
    who BLOB NOT NULL, unit TEXT NOT NULL, distance TEXT NOT NULL, days INTEGER NOT NULL, honest INTEGER NOT NULL,
    epsilon TEXT NOT NULL, PRIMARY KEY (who, unit, distance, days, honest)
) WITHOUT ROWID;
"""  # noqa: E501
TOKENS = (
    """
CREATE TABLE IF NOT EXISTS tokens (
    collection TEXT NOT NULL, who BLOB NOT NULL, request BLOB NOT NULL, secret BLOB NOT NULL, token BLOB,
    PRIMARY KEY (collection, who)
) WITHOUT ROWID
""",  # noqa: E501
    *(
        f"""
CREATE TRIGGER IF NOT EXISTS token_forgotten_{event.lower()} AFTER {event} ON reports
WHEN NEW.state NOT IN ('made', 'sending')
BEGIN DELETE FROM tokens WHERE collection = NEW.collection AND who = NEW.who; END
"""  # noqa: S608
        for event in ("INSERT", "UPDATE")
    ),
)
"""Requests for tokens, and tokens, until the report is acknowledged or declined.

The table is made whenever it is missing: only versions that know it read such collections.
"""

FROM_VERSION_0 = f"""
ALTER TABLE reports RENAME TO reports_before;
{REPORTS.strip()}
INSERT INTO reports (task, round, who, collection, report, boxes, answer, state)
    SELECT task, round, who, collection, report, boxes, answer,
    CASE standing WHEN 'waiting' THEN 'sending' WHEN 'stored' THEN 'sent' ELSE standing END FROM reports_before;
DROP TABLE reports_before;
"""  # noqa: E501, S608
"""Version 0 did not store whether sending had begun: a waiting report may have been sent."""
