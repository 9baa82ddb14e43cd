-- An owner is a folder of keys; '' in rows of older versions.

ALTER TABLE metricshuffle.collection ADD COLUMN owner text NOT NULL DEFAULT '';
CREATE FUNCTION metricshuffle.check_owner() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN PERFORM metricshuffle.refused('an owner cannot be changed'); END $$;
CREATE TRIGGER owner_stays BEFORE UPDATE ON metricshuffle.collection FOR EACH ROW WHEN (OLD.owner <> NEW.owner)
EXECUTE FUNCTION metricshuffle.check_owner();
