-- Digest of the dummies that a shuffler drew, stored when the collection is sealed: they are drawn once.

ALTER TABLE metricshuffle.collection ADD COLUMN dummies text NOT NULL DEFAULT '';
CREATE FUNCTION metricshuffle.check_dummies() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN PERFORM metricshuffle.refused('dummies are drawn once'); END $$;
CREATE TRIGGER dummies_once BEFORE UPDATE ON metricshuffle.collection FOR EACH ROW
WHEN (OLD.state <> 'open' AND OLD.dummies <> NEW.dummies) EXECUTE FUNCTION metricshuffle.check_dummies();
