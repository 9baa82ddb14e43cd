-- Tasks of mixers. Only an object that a row names is read, and a task is done once.

CREATE TABLE metricshuffle.mix_attempt (
    collection bigint PRIMARY KEY REFERENCES metricshuffle.collection,
    attempt text NOT NULL,
    ranges bigint NOT NULL,
    tries bigint NOT NULL,
    started double precision NOT NULL,
    trouble text NOT NULL DEFAULT ''
);
CREATE TABLE metricshuffle.mix_task (
    collection bigint NOT NULL REFERENCES metricshuffle.collection,
    attempt text NOT NULL,
    stage text NOT NULL CONSTRAINT "a known stage" CHECK (stage IN ('cut', 'recut', 'sort')),
    no bigint NOT NULL,
    first bigint NOT NULL,
    last bigint NOT NULL,
    source text NOT NULL DEFAULT '',
    source_digest text NOT NULL DEFAULT '',
    worker text NOT NULL DEFAULT '',
    until double precision NOT NULL DEFAULT 0,
    object text NOT NULL DEFAULT '',
    digest text NOT NULL DEFAULT '',
    messages bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (collection, attempt, stage, no)
) WITH (fillfactor = 50);
CREATE FUNCTION metricshuffle.check_mix_task() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN PERFORM metricshuffle.refused('a task of mixers is done once'); END $$;
CREATE TRIGGER mixed_once BEFORE UPDATE ON metricshuffle.mix_task FOR EACH ROW
WHEN (OLD.object <> '') EXECUTE FUNCTION metricshuffle.check_mix_task();
