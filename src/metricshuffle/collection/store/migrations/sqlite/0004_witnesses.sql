-- What this shuffler countersigned, and what its own witness did.

CREATE TABLE witnessed (collection TEXT NOT NULL, asker TEXT NOT NULL, output TEXT NOT NULL, PRIMARY KEY (collection, asker)) WITHOUT ROWID;
CREATE TRIGGER witnessed_once BEFORE UPDATE ON witnessed BEGIN SELECT RAISE(ABORT, 'what was countersigned stays'); END;
CREATE TRIGGER witnessed_for_good BEFORE DELETE ON witnessed BEGIN SELECT RAISE(ABORT, 'what was countersigned stays'); END;
ALTER TABLE collection ADD COLUMN countersignature TEXT NOT NULL DEFAULT '';
CREATE TRIGGER countersigned_once BEFORE UPDATE OF countersignature ON collection WHEN OLD.state <> 'sealed' AND OLD.countersignature <> NEW.countersignature BEGIN SELECT RAISE(ABORT, 'a countersignature cannot be changed'); END;
