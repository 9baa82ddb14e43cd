-- An owner is a folder of keys; '' in rows of older versions.

ALTER TABLE collection ADD COLUMN owner TEXT NOT NULL DEFAULT '';
CREATE TRIGGER owner_stays BEFORE UPDATE OF owner ON collection BEGIN SELECT RAISE(ABORT, 'an owner cannot be changed'); END;
