-- Collections, reports, tickets and outputs, with triggers that reject invalid changes.

CREATE SCHEMA metricshuffle;
CREATE TABLE metricshuffle.format (version integer NOT NULL);
INSERT INTO metricshuffle.format VALUES (1);
CREATE TABLE metricshuffle.clock (latest double precision NOT NULL);
INSERT INTO metricshuffle.clock VALUES (0);

CREATE TABLE metricshuffle.collection (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    digest text NOT NULL UNIQUE,
    key text NOT NULL,
    task text NOT NULL, round bigint NOT NULL, part bigint NOT NULL, parts bigint NOT NULL,
    first boolean NOT NULL, ticketed boolean NOT NULL,
    minimum bigint NOT NULL, maximum bigint NOT NULL,
    opens double precision NOT NULL, closes double precision NOT NULL, extends double precision NOT NULL,
    until double precision NOT NULL CONSTRAINT "one of its ends" CHECK (until IN (closes, extends)),
    seen double precision NOT NULL DEFAULT 0,
    state text NOT NULL DEFAULT 'open' CONSTRAINT "a known state" CHECK (state IN ('open', 'sealed', 'shuffled', 'erased', 'released', 'purged', 'aborted')),
    reports bigint NOT NULL DEFAULT 0 CONSTRAINT "reports up to the maximum" CHECK (reports BETWEEN 0 AND maximum),
    people bigint NOT NULL DEFAULT 0 CONSTRAINT "people" CHECK (people >= 0),
    left_out bigint NOT NULL DEFAULT 0 CONSTRAINT "left out" CHECK (left_out >= 0),
    output text NOT NULL DEFAULT '',
    reason text NOT NULL DEFAULT '' CONSTRAINT "a reason once aborted" CHECK (state = 'aborted' OR reason = ''),
    sealed_at double precision NOT NULL DEFAULT 0, released_at double precision NOT NULL DEFAULT 0,
    collected boolean NOT NULL DEFAULT false CONSTRAINT "collected once released" CHECK (NOT collected OR state IN ('released', 'purged')),
    UNIQUE (task, round, part)
) WITH (fillfactor = 50);
CREATE TABLE metricshuffle.served (collection bigint PRIMARY KEY REFERENCES metricshuffle.collection, bytes bytea NOT NULL);
CREATE TABLE metricshuffle.report (
    collection bigint NOT NULL, tag bytea NOT NULL, hidden bytea NOT NULL, PRIMARY KEY (collection, tag)
) WITH (toast_tuple_target = 8160);
ALTER TABLE metricshuffle.report ALTER hidden SET STORAGE EXTERNAL;
CREATE TABLE metricshuffle.ticket (
    collection bigint NOT NULL, hash bytea NOT NULL, spent boolean NOT NULL DEFAULT false, PRIMARY KEY (collection, hash)
) WITH (fillfactor = 50);
CREATE TABLE metricshuffle.output (
    collection bigint NOT NULL, place bigint NOT NULL, bytes bytea NOT NULL, PRIMARY KEY (collection, place)
);
ALTER TABLE metricshuffle.output ALTER bytes SET STORAGE EXTERNAL;

CREATE FUNCTION metricshuffle.refused(why text) RETURNS void LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION USING ERRCODE = 'integrity_constraint_violation', MESSAGE = why; END $$;

CREATE FUNCTION metricshuffle.check_new() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.state <> 'open' OR NEW.reports <> 0 THEN
        PERFORM metricshuffle.refused('a collection starts open and without reports');
    ELSIF EXISTS (SELECT FROM metricshuffle.collection WHERE task = NEW.task AND round = NEW.round AND parts <> NEW.parts) THEN
        PERFORM metricshuffle.refused('a round is split once');
    END IF;
    RETURN NEW;
END $$;

CREATE FUNCTION metricshuffle.check_step() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (OLD.id, OLD.digest, OLD.key, OLD.task, OLD.round, OLD.part, OLD.parts, OLD.first, OLD.ticketed, OLD.minimum, OLD.maximum, OLD.opens,
        OLD.closes, OLD.extends) <> (NEW.id, NEW.digest, NEW.key, NEW.task, NEW.round, NEW.part, NEW.parts, NEW.first, NEW.ticketed,
        NEW.minimum, NEW.maximum, NEW.opens, NEW.closes, NEW.extends) THEN
        PERFORM metricshuffle.refused('what a collection says cannot be changed');
    ELSIF OLD.state <> NEW.state AND (OLD.state, NEW.state) NOT IN (('open', 'sealed'), ('sealed', 'shuffled'), ('shuffled', 'erased'), ('erased', 'released'), ('released', 'purged'), ('open', 'aborted'), ('sealed', 'aborted'), ('shuffled', 'aborted'), ('erased', 'aborted'), ('released', 'aborted')) THEN
        PERFORM metricshuffle.refused('states move forward only, one by one');
    ELSIF OLD.state = 'open' AND NEW.state = 'sealed' AND OLD.first AND (OLD.reports < OLD.minimum OR NEW.sealed_at < OLD.until) THEN
        PERFORM metricshuffle.refused('it is sealed at its closing time and with its minimum only');
    ELSIF OLD.state = 'sealed' AND NEW.state = 'shuffled' AND (NEW.people < OLD.minimum OR length(NEW.output) <> 64
        OR (OLD.first AND NEW.people + NEW.left_out <> OLD.reports)) THEN
        PERFORM metricshuffle.refused('everybody who reported is let go or left out, and enough of them are let go');
    ELSIF OLD.state <> 'sealed' AND (OLD.people, OLD.left_out, OLD.output) <> (NEW.people, NEW.left_out, NEW.output) THEN
        PERFORM metricshuffle.refused('what was let go cannot be changed');
    ELSIF NEW.reports < OLD.reports OR (NEW.reports > OLD.reports AND OLD.state <> 'open') THEN
        PERFORM metricshuffle.refused('reports are added while it is open, and never taken away');
    ELSIF NEW.until < OLD.until OR (NEW.until > OLD.until AND OLD.state <> 'open') THEN
        PERFORM metricshuffle.refused('an end is moved while it is open, and only forward');
    END IF;
    RETURN NEW;
END $$;

CREATE FUNCTION metricshuffle.check_stays() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN PERFORM metricshuffle.refused('a collection is never deleted'); END $$;

CREATE FUNCTION metricshuffle.check_open() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM metricshuffle.collection WHERE id IN (SELECT collection FROM added) AND state <> 'open')
        OR EXISTS (SELECT FROM added WHERE NOT EXISTS (SELECT FROM metricshuffle.collection WHERE id = added.collection)) THEN
        PERFORM metricshuffle.refused('reports are stored while it is open');
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER new BEFORE INSERT ON metricshuffle.collection FOR EACH ROW EXECUTE FUNCTION metricshuffle.check_new();
CREATE TRIGGER step BEFORE UPDATE ON metricshuffle.collection FOR EACH ROW EXECUTE FUNCTION metricshuffle.check_step();
CREATE TRIGGER stays BEFORE DELETE ON metricshuffle.collection FOR EACH ROW EXECUTE FUNCTION metricshuffle.check_stays();
CREATE TRIGGER while_open AFTER INSERT ON metricshuffle.report REFERENCING NEW TABLE AS added FOR EACH STATEMENT
EXECUTE FUNCTION metricshuffle.check_open();
