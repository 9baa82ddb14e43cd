-- Runs once, in the empty database of a new primary. This user may do nothing until
-- `metricshuffle migrate --edge-role edge` gives it the rights of edges.
\set password `cat /run/secrets/edge-password`
CREATE ROLE edge LOGIN PASSWORD :'password';
