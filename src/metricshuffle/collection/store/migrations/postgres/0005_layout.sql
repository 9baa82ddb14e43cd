-- Tables for the reports of each collection (see `postgres_schema`). Collections that were opened
-- before keep their reports in the tables of layout 1 until they end.

ALTER TABLE metricshuffle.format ADD COLUMN readable_from integer NOT NULL DEFAULT 1;
UPDATE metricshuffle.format SET readable_from = 5;

ALTER TABLE metricshuffle.collection ADD COLUMN layout integer NOT NULL DEFAULT 1;
CREATE FUNCTION metricshuffle.check_layout() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN PERFORM metricshuffle.refused('where reports are stored cannot be changed'); END $$;
CREATE TRIGGER layout_stays BEFORE UPDATE ON metricshuffle.collection FOR EACH ROW WHEN (OLD.layout <> NEW.layout)
EXECUTE FUNCTION metricshuffle.check_layout();

CREATE FUNCTION metricshuffle.check_collection_open() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM metricshuffle.collection WHERE id = TG_ARGV[0]::bigint AND state = 'open') THEN
        PERFORM metricshuffle.refused('reports are stored while it is open');
    END IF;
    RETURN NULL;
END $$;
