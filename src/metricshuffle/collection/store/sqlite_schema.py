"""Tables of the embedded database, and what it refuses by itself whatever a program asks."""

from __future__ import annotations

from metricshuffle.collection.shuffler.admission import STEPS
from metricshuffle.collection.store.interface import STATES

APPLICATION = 0x4D53_6866
"""Says in the file whose database it is ("MShf")."""
FIRST_VERSION = 1
PAGE_BYTES = 16384
"""Bytes. A larger page makes every small report cost a larger write, a smaller one holds too few."""
PIECE_BYTES, WHOLE_REPORT_BYTES = 4000, 65536
"""Bytes. A line over a quarter of a page takes a whole page more, so a report is stored in pieces below that, unless it fills pages."""

_TABLES = f"""
CREATE TABLE clock (latest REAL NOT NULL);
INSERT INTO clock VALUES (0);

CREATE TABLE collection (
    id INTEGER PRIMARY KEY,
    digest TEXT NOT NULL UNIQUE,
    key TEXT NOT NULL,
    task TEXT NOT NULL, round INTEGER NOT NULL, part INTEGER NOT NULL, parts INTEGER NOT NULL,
    first INTEGER NOT NULL, ticketed INTEGER NOT NULL,
    minimum INTEGER NOT NULL, maximum INTEGER NOT NULL,
    opens REAL NOT NULL, closes REAL NOT NULL, extends REAL NOT NULL,
    until REAL NOT NULL CONSTRAINT "one of its ends" CHECK (until IN (closes, extends)),
    state TEXT NOT NULL DEFAULT 'open' CONSTRAINT "a known state" CHECK (state IN {STATES}),
    reports INTEGER NOT NULL DEFAULT 0 CONSTRAINT "reports up to the maximum" CHECK (reports BETWEEN 0 AND maximum),
    people INTEGER NOT NULL DEFAULT 0 CONSTRAINT "people" CHECK (people >= 0),
    left_out INTEGER NOT NULL DEFAULT 0 CONSTRAINT "left out" CHECK (left_out >= 0),
    output TEXT NOT NULL DEFAULT '',
    reason TEXT NOT NULL DEFAULT '' CONSTRAINT "a reason once aborted" CHECK (state = 'aborted' OR reason = ''),
    sealed_at REAL NOT NULL DEFAULT 0, released_at REAL NOT NULL DEFAULT 0,
    collected INTEGER NOT NULL DEFAULT 0 CONSTRAINT "collected once released" CHECK (NOT collected OR state IN ('released', 'purged')),
    UNIQUE (task, round, part)
);
CREATE TABLE served (collection INTEGER PRIMARY KEY REFERENCES collection, bytes BLOB NOT NULL);
CREATE TABLE report (
    collection INTEGER NOT NULL, tag BLOB NOT NULL, piece INTEGER NOT NULL, hidden BLOB NOT NULL, PRIMARY KEY (collection, tag, piece)
) WITHOUT ROWID;
CREATE TABLE ticket (
    collection INTEGER NOT NULL, hash BLOB NOT NULL, spent INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (collection, hash)
) WITHOUT ROWID;
CREATE TABLE output (
    collection INTEGER NOT NULL, place INTEGER NOT NULL, bytes BLOB NOT NULL, PRIMARY KEY (collection, place)
) WITHOUT ROWID;

CREATE TRIGGER starts_open BEFORE INSERT ON collection WHEN NEW.state <> 'open' OR NEW.reports <> 0
BEGIN SELECT RAISE(ABORT, 'a collection starts open and without reports'); END;

CREATE TRIGGER parts_of_a_round BEFORE INSERT ON collection
WHEN EXISTS (SELECT 1 FROM collection WHERE task = NEW.task AND round = NEW.round AND parts <> NEW.parts)
BEGIN SELECT RAISE(ABORT, 'a round is split once'); END;

CREATE TRIGGER terms_stay
BEFORE UPDATE OF id, digest, key, task, round, part, parts, first, ticketed, minimum, maximum, opens, closes, extends ON collection
BEGIN SELECT RAISE(ABORT, 'what a collection says cannot be changed'); END;

CREATE TRIGGER collections_stay BEFORE DELETE ON collection BEGIN SELECT RAISE(ABORT, 'a collection is never deleted'); END;

CREATE TRIGGER forward BEFORE UPDATE OF state ON collection
WHEN OLD.state <> NEW.state AND (OLD.state, NEW.state) NOT IN (VALUES {", ".join(map(str, STEPS))})
BEGIN SELECT RAISE(ABORT, 'states move forward only, one by one'); END;

CREATE TRIGGER sealed_in_time BEFORE UPDATE OF state ON collection
WHEN OLD.state = 'open' AND NEW.state = 'sealed' AND OLD.first AND (OLD.reports < OLD.minimum OR NEW.sealed_at < OLD.until)
BEGIN SELECT RAISE(ABORT, 'it is sealed at its closing time and with its minimum only'); END;

CREATE TRIGGER shuffled_whole BEFORE UPDATE OF state ON collection
WHEN OLD.state = 'sealed' AND NEW.state = 'shuffled'
    AND (NEW.people < OLD.minimum OR length(NEW.output) <> 64 OR (OLD.first AND NEW.people + NEW.left_out <> OLD.reports))
BEGIN SELECT RAISE(ABORT, 'everybody who reported is let go or left out, and enough of them are let go'); END;

CREATE TRIGGER shuffled_once BEFORE UPDATE OF people, left_out, output ON collection
WHEN OLD.state <> 'sealed' AND (OLD.people, OLD.left_out, OLD.output) <> (NEW.people, NEW.left_out, NEW.output)
BEGIN SELECT RAISE(ABORT, 'what was let go cannot be changed'); END;

CREATE TRIGGER counted BEFORE UPDATE OF reports ON collection
WHEN NEW.reports < OLD.reports OR (NEW.reports > OLD.reports AND OLD.state <> 'open')
BEGIN SELECT RAISE(ABORT, 'reports are added while it is open, and never taken away'); END;

CREATE TRIGGER extended_once BEFORE UPDATE OF until ON collection
WHEN NEW.until < OLD.until OR (NEW.until > OLD.until AND OLD.state <> 'open')
BEGIN SELECT RAISE(ABORT, 'an end is moved while it is open, and only forward'); END;

CREATE TRIGGER reports_while_open BEFORE INSERT ON report WHEN (SELECT state FROM collection WHERE id = NEW.collection) IS NOT 'open'
BEGIN SELECT RAISE(ABORT, 'reports are stored while it is open'); END;
"""  # noqa: S608 - the states are ours

TABLES = tuple(part for block in _TABLES.split(";\n\n") for part in ([block] if "TRIGGER" in block else block.split(";\n")))
"""One statement each; that of a trigger has others inside."""

CHANGES = (
    (
        "ALTER TABLE clock ADD COLUMN corrections INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE collection ADD COLUMN clock TEXT NOT NULL DEFAULT ''",
        "CREATE TABLE anchor (boot TEXT PRIMARY KEY, wall REAL NOT NULL, steady REAL NOT NULL) WITHOUT ROWID",
    ),
    (  # (an owner is a folder of keys; '' in rows that were made before that was written down)
        "ALTER TABLE collection ADD COLUMN owner TEXT NOT NULL DEFAULT ''",
        "CREATE TRIGGER owner_stays BEFORE UPDATE OF owner ON collection BEGIN SELECT RAISE(ABORT, 'an owner cannot be changed'); END",
    ),
    (  # (what this shuffler countersigned as the witness of others, and what its own witness did)
        "CREATE TABLE witnessed (collection TEXT NOT NULL, asker TEXT NOT NULL, output TEXT NOT NULL, PRIMARY KEY (collection, asker)) "
        "WITHOUT ROWID",
        "CREATE TRIGGER witnessed_once BEFORE UPDATE ON witnessed BEGIN SELECT RAISE(ABORT, 'what was countersigned stays'); END",
        "CREATE TRIGGER witnessed_for_good BEFORE DELETE ON witnessed BEGIN SELECT RAISE(ABORT, 'what was countersigned stays'); END",
        "ALTER TABLE collection ADD COLUMN countersignature TEXT NOT NULL DEFAULT ''",
        "CREATE TRIGGER countersigned_once BEFORE UPDATE OF countersignature ON collection "
        "WHEN OLD.state <> 'sealed' AND OLD.countersignature <> NEW.countersignature "
        "BEGIN SELECT RAISE(ABORT, 'a countersignature cannot be changed'); END",
    ),
)
"""What each later format adds to the tables above, the oldest change first: a file of an older format gets them when it is opened."""
VERSION = FIRST_VERSION + len(CHANGES)


def split_into_pieces(hidden: bytes) -> list[bytes]:
    """What is stored in a line each."""
    count = -(-len(hidden) // PIECE_BYTES) if PIECE_BYTES < len(hidden) < WHOLE_REPORT_BYTES else 1
    size = -(-len(hidden) // count)
    return [hidden[start : start + size] for start in range(0, max(1, len(hidden)), max(1, size))]
