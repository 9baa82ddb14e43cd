-- The steps of the hub, by which it recognises a database that is older than its keys, and the
-- users of edges, who get rights of their own to the tables of each collection.

CREATE TABLE metricshuffle.history (step bigint NOT NULL);
INSERT INTO metricshuffle.history VALUES (0);
CREATE UNIQUE INDEX history_once ON metricshuffle.history ((true));

CREATE TABLE metricshuffle.edge_role (name name PRIMARY KEY);
CREATE FUNCTION metricshuffle.grant_reports(number bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    edge name;
    rights text;
BEGIN
    SELECT CASE WHEN ticketed THEN 'SELECT, UPDATE (tag)' ELSE 'SELECT, INSERT' END INTO rights
    FROM metricshuffle.collection WHERE id = number;
    FOR edge IN SELECT edge_role.name FROM metricshuffle.edge_role JOIN pg_roles ON rolname = edge_role.name LOOP
        EXECUTE format('GRANT INSERT ON metricshuffle.report_%s TO %I', number, edge);
        EXECUTE format('GRANT %s ON metricshuffle.admitted_%s TO %I', rights, number, edge);
    END LOOP;
END $$;

CREATE FUNCTION metricshuffle.check_ticket() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN PERFORM metricshuffle.refused('a spent ticket stays with its report'); END $$;
