-- How leases of keys ended. A file is used by one machine, so nothing is reserved for others.

ALTER TABLE collection ADD COLUMN reserved INTEGER NOT NULL DEFAULT 0;
ALTER TABLE collection ADD COLUMN leases TEXT NOT NULL DEFAULT '';
