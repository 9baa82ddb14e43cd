-- Digest of the dummies that a shuffler drew, stored when the collection is sealed: they are drawn once.

ALTER TABLE collection ADD COLUMN dummies TEXT NOT NULL DEFAULT '';
CREATE TRIGGER dummies_once BEFORE UPDATE OF dummies ON collection WHEN OLD.state <> 'open' AND OLD.dummies <> NEW.dummies
BEGIN SELECT RAISE(ABORT, 'dummies are drawn once'); END;
