-- Runs once, in the empty database of a new primary; a promoted standby has the setting, too.
ALTER SYSTEM SET synchronous_standby_names = '*';
