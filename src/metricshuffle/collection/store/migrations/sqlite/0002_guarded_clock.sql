-- Clock that is checked against a steady one.

ALTER TABLE clock ADD COLUMN corrections INTEGER NOT NULL DEFAULT 0;
ALTER TABLE collection ADD COLUMN clock TEXT NOT NULL DEFAULT '';
CREATE TABLE anchor (boot TEXT PRIMARY KEY, wall REAL NOT NULL, steady REAL NOT NULL) WITHOUT ROWID;
