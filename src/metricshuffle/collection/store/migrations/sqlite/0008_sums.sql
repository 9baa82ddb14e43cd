-- Sums by several servers: shares, signed lists of names and statements of adders.

CREATE TABLE adder_sum (
    id INTEGER PRIMARY KEY,
    digest TEXT NOT NULL UNIQUE, served BLOB NOT NULL, key TEXT NOT NULL, owner TEXT NOT NULL,
    place INTEGER NOT NULL, task TEXT NOT NULL, round INTEGER NOT NULL, ticketed INTEGER NOT NULL,
    minimum INTEGER NOT NULL, maximum INTEGER NOT NULL,
    opens REAL NOT NULL, closes REAL NOT NULL, extends REAL NOT NULL,
    phase INTEGER NOT NULL DEFAULT 0 CONSTRAINT "extended once" CHECK (phase = 0 OR (phase = 1 AND closes < extends)),
    state TEXT NOT NULL DEFAULT 'open' CONSTRAINT "a known state" CHECK (state IN ('open', 'closed', 'signed', 'added', 'released', 'purged', 'aborted')),
    reports INTEGER NOT NULL DEFAULT 0 CONSTRAINT "reports up to the maximum" CHECK (reports BETWEEN 0 AND maximum),
    people INTEGER NOT NULL DEFAULT 0, total BLOB,
    reason TEXT NOT NULL DEFAULT '' CONSTRAINT "a reason once aborted" CHECK (state = 'aborted' OR reason = ''),
    released_at REAL NOT NULL DEFAULT 0, collected INTEGER NOT NULL DEFAULT 0, clock TEXT NOT NULL DEFAULT '',
    UNIQUE (task, round)
);
CREATE TABLE adder_ticket (sum INTEGER NOT NULL, hash BLOB NOT NULL, PRIMARY KEY (sum, hash)) WITHOUT ROWID;
CREATE TABLE adder_share (
    sum INTEGER NOT NULL, name BLOB NOT NULL, box BLOB NOT NULL, ticket BLOB, hidden BLOB NOT NULL,
    PRIMARY KEY (sum, name), UNIQUE (sum, box), UNIQUE (sum, ticket)
) WITHOUT ROWID;
CREATE TABLE adder_list (
    sum INTEGER NOT NULL, place INTEGER NOT NULL, phase INTEGER NOT NULL, head BLOB NOT NULL, names BLOB NOT NULL,
    PRIMARY KEY (sum, place, phase)
) WITHOUT ROWID;
CREATE TABLE adder_statement (
    sum INTEGER NOT NULL, place INTEGER NOT NULL, hashed TEXT NOT NULL, people INTEGER NOT NULL, signature TEXT NOT NULL,
    PRIMARY KEY (sum, place)
) WITHOUT ROWID;

CREATE TRIGGER adder_forward BEFORE UPDATE OF state ON adder_sum
WHEN OLD.state <> NEW.state AND (OLD.state, NEW.state) NOT IN (VALUES ('open', 'closed'), ('closed', 'signed'), ('signed', 'added'), ('added', 'released'), ('released', 'purged'), ('open', 'aborted'), ('closed', 'aborted'), ('signed', 'aborted'), ('added', 'aborted'), ('released', 'aborted'))
    AND NOT (OLD.state = 'closed' AND NEW.state = 'open' AND OLD.phase = 0 AND NEW.phase = 1)
BEGIN SELECT RAISE(ABORT, 'states of a sum move forward only, but for one extension'); END;

CREATE TRIGGER adder_stays BEFORE DELETE ON adder_sum BEGIN SELECT RAISE(ABORT, 'a sum is never deleted'); END;

CREATE TRIGGER adder_while_open BEFORE INSERT ON adder_share
WHEN (SELECT state FROM adder_sum WHERE id = NEW.sum) <> 'open'
BEGIN SELECT RAISE(ABORT, 'shares are added while the sum is open'); END;

CREATE TRIGGER adder_signs_once BEFORE UPDATE ON adder_statement BEGIN SELECT RAISE(ABORT, 'a statement is signed once'); END;

CREATE TRIGGER adder_statements_stay BEFORE DELETE ON adder_statement BEGIN SELECT RAISE(ABORT, 'a statement is never deleted'); END;
