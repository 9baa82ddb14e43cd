-- Runs once, in the empty database of a new primary; a promoted standby has the setting, too.
-- Names are the cluster_name of each server. Never *: a copy that is being made would count as well.
ALTER SYSTEM SET synchronous_standby_names = 'FIRST 1 (primary, standby)';
