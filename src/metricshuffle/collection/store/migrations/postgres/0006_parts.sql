-- Parts: the reports of each lease. Whoever stores updates the row of its part last, and closing
-- updates all of them, so a report is counted before a part is closed, or is not stored.

ALTER TABLE metricshuffle.collection ADD COLUMN reserved bigint NOT NULL DEFAULT 0;
ALTER TABLE metricshuffle.collection ADD COLUMN leases text NOT NULL DEFAULT '';
ALTER TABLE metricshuffle.collection ADD CONSTRAINT "room up to the maximum" CHECK (reserved >= 0 AND reports + reserved <= maximum);

CREATE TABLE metricshuffle.part (
    lease uuid PRIMARY KEY,
    collection bigint NOT NULL REFERENCES metricshuffle.collection,
    opens double precision NOT NULL,
    until double precision NOT NULL,
    room bigint NOT NULL,
    reports bigint NOT NULL DEFAULT 0 CONSTRAINT "reports up to the room" CHECK (reports BETWEEN 0 AND room),
    counted bigint NOT NULL DEFAULT 0 CONSTRAINT "counted reports" CHECK (counted BETWEEN 0 AND reports),
    closed boolean NOT NULL DEFAULT false,
    ended boolean NOT NULL DEFAULT false CONSTRAINT "closed once ended" CHECK (closed OR NOT ended)
) WITH (fillfactor = 50);
CREATE INDEX part_collection ON metricshuffle.part (collection);

CREATE FUNCTION metricshuffle.check_part() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.reports < OLD.reports OR (OLD.closed AND NEW.reports <> OLD.reports) THEN
        PERFORM metricshuffle.refused('reports are added while a part is open, and never taken away');
    ELSIF OLD.ended AND NOT NEW.ended THEN
        PERFORM metricshuffle.refused('a lease that has ended stays ended');
    ELSIF (OLD.lease, OLD.collection) <> (NEW.lease, NEW.collection) THEN
        PERFORM metricshuffle.refused('a part stays with its collection');
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER step BEFORE UPDATE ON metricshuffle.part FOR EACH ROW EXECUTE FUNCTION metricshuffle.check_part();
