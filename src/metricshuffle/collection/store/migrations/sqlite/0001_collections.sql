-- Collections, reports, tickets and outputs, with triggers that reject invalid changes.

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
    state TEXT NOT NULL DEFAULT 'open' CONSTRAINT "a known state" CHECK (state IN ('open', 'sealed', 'shuffled', 'erased', 'released', 'purged', 'aborted')),
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
WHEN OLD.state <> NEW.state AND (OLD.state, NEW.state) NOT IN (VALUES ('open', 'sealed'), ('sealed', 'shuffled'), ('shuffled', 'erased'), ('erased', 'released'), ('released', 'purged'), ('open', 'aborted'), ('sealed', 'aborted'), ('shuffled', 'aborted'), ('erased', 'aborted'), ('released', 'aborted'))
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
