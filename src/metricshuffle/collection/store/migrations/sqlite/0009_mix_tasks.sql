-- Tasks of mixers. Only an object that a row names is read, and a task is done once.

CREATE TABLE mix_attempt (
    collection INTEGER PRIMARY KEY,
    attempt TEXT NOT NULL,
    ranges INTEGER NOT NULL,
    tries INTEGER NOT NULL,
    started REAL NOT NULL,
    trouble TEXT NOT NULL DEFAULT ''
);
CREATE TABLE mix_task (
    collection INTEGER NOT NULL,
    attempt TEXT NOT NULL,
    stage TEXT NOT NULL CONSTRAINT "a known stage" CHECK (stage IN ('cut', 'recut', 'sort')),
    no INTEGER NOT NULL,
    first INTEGER NOT NULL,
    last INTEGER NOT NULL,
    source TEXT NOT NULL DEFAULT '',
    source_digest TEXT NOT NULL DEFAULT '',
    worker TEXT NOT NULL DEFAULT '',
    until REAL NOT NULL DEFAULT 0,
    object TEXT NOT NULL DEFAULT '',
    digest TEXT NOT NULL DEFAULT '',
    messages INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (collection, attempt, stage, no)
) WITHOUT ROWID;
CREATE TRIGGER mixed_once BEFORE UPDATE ON mix_task WHEN OLD.object <> ''
BEGIN SELECT RAISE(ABORT, 'a task of mixers is done once'); END;
