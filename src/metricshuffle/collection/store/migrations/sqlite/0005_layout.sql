-- Append-only tables for the reports of each collection (see `sqlite_schema`). Collections that were
-- opened before keep their reports in the tables of layout 1 until they end.

CREATE TABLE format (version INTEGER NOT NULL, readable_from INTEGER NOT NULL);
INSERT INTO format VALUES (5, 5);

ALTER TABLE collection ADD COLUMN layout INTEGER NOT NULL DEFAULT 1;

CREATE TRIGGER layout_stays BEFORE UPDATE OF layout ON collection WHEN OLD.layout <> NEW.layout
BEGIN SELECT RAISE(ABORT, 'where reports are stored cannot be changed'); END;
