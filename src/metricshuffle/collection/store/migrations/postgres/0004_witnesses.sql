-- What this shuffler countersigned, and what its own witness did.

CREATE TABLE metricshuffle.witnessed (
    collection text NOT NULL, asker text NOT NULL, output text NOT NULL, PRIMARY KEY (collection, asker)
);
CREATE FUNCTION metricshuffle.check_witnessed() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN PERFORM metricshuffle.refused('what was countersigned stays'); END $$;
CREATE TRIGGER witnessed_stays BEFORE UPDATE OR DELETE ON metricshuffle.witnessed FOR EACH ROW EXECUTE FUNCTION metricshuffle.check_witnessed();
ALTER TABLE metricshuffle.collection ADD COLUMN countersignature text NOT NULL DEFAULT '';
CREATE FUNCTION metricshuffle.check_countersignature() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN PERFORM metricshuffle.refused('a countersignature cannot be changed'); END $$;
CREATE TRIGGER countersigned_once BEFORE UPDATE ON metricshuffle.collection FOR EACH ROW
WHEN (OLD.state <> 'sealed' AND OLD.countersignature <> NEW.countersignature) EXECUTE FUNCTION metricshuffle.check_countersignature();
