"""Tables in PostgreSQL, in a schema of their own, and what it refuses by itself whatever a program asks."""

from __future__ import annotations

from metricshuffle.collection.shuffler.admission import STEPS
from metricshuffle.collection.store.interface import STATES

SCHEMA = "metricshuffle"
FIRST_VERSION = 1
LOCK = 0x4D53_6866
"""The number of the lock under which tables are made and collections are added, one at a time."""

TABLES = f"""
CREATE SCHEMA {SCHEMA};
CREATE TABLE {SCHEMA}.format (version integer NOT NULL);
INSERT INTO {SCHEMA}.format VALUES ({FIRST_VERSION});
CREATE TABLE {SCHEMA}.clock (latest double precision NOT NULL);
INSERT INTO {SCHEMA}.clock VALUES (0);

CREATE TABLE {SCHEMA}.collection (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    digest text NOT NULL UNIQUE,
    key text NOT NULL,
    task text NOT NULL, round bigint NOT NULL, part bigint NOT NULL, parts bigint NOT NULL,
    first boolean NOT NULL, ticketed boolean NOT NULL,
    minimum bigint NOT NULL, maximum bigint NOT NULL,
    opens double precision NOT NULL, closes double precision NOT NULL, extends double precision NOT NULL,
    until double precision NOT NULL CONSTRAINT "one of its ends" CHECK (until IN (closes, extends)),
    seen double precision NOT NULL DEFAULT 0,
    state text NOT NULL DEFAULT 'open' CONSTRAINT "a known state" CHECK (state IN {STATES}),
    reports bigint NOT NULL DEFAULT 0 CONSTRAINT "reports up to the maximum" CHECK (reports BETWEEN 0 AND maximum),
    people bigint NOT NULL DEFAULT 0 CONSTRAINT "people" CHECK (people >= 0),
    left_out bigint NOT NULL DEFAULT 0 CONSTRAINT "left out" CHECK (left_out >= 0),
    output text NOT NULL DEFAULT '',
    reason text NOT NULL DEFAULT '' CONSTRAINT "a reason once aborted" CHECK (state = 'aborted' OR reason = ''),
    sealed_at double precision NOT NULL DEFAULT 0, released_at double precision NOT NULL DEFAULT 0,
    collected boolean NOT NULL DEFAULT false CONSTRAINT "collected once released" CHECK (NOT collected OR state IN ('released', 'purged')),
    UNIQUE (task, round, part)
) WITH (fillfactor = 50);
CREATE TABLE {SCHEMA}.served (collection bigint PRIMARY KEY REFERENCES {SCHEMA}.collection, bytes bytea NOT NULL);
CREATE TABLE {SCHEMA}.report (
    collection bigint NOT NULL, tag bytea NOT NULL, hidden bytea NOT NULL, PRIMARY KEY (collection, tag)
) WITH (toast_tuple_target = 8160);
ALTER TABLE {SCHEMA}.report ALTER hidden SET STORAGE EXTERNAL;
CREATE TABLE {SCHEMA}.ticket (
    collection bigint NOT NULL, hash bytea NOT NULL, spent boolean NOT NULL DEFAULT false, PRIMARY KEY (collection, hash)
) WITH (fillfactor = 50);
CREATE TABLE {SCHEMA}.output (
    collection bigint NOT NULL, place bigint NOT NULL, bytes bytea NOT NULL, PRIMARY KEY (collection, place)
);
ALTER TABLE {SCHEMA}.output ALTER bytes SET STORAGE EXTERNAL;

CREATE FUNCTION {SCHEMA}.refused(why text) RETURNS void LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION USING ERRCODE = 'integrity_constraint_violation', MESSAGE = why; END $$;

CREATE FUNCTION {SCHEMA}.check_new() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.state <> 'open' OR NEW.reports <> 0 THEN
        PERFORM {SCHEMA}.refused('a collection starts open and without reports');
    ELSIF EXISTS (SELECT FROM {SCHEMA}.collection WHERE task = NEW.task AND round = NEW.round AND parts <> NEW.parts) THEN
        PERFORM {SCHEMA}.refused('a round is split once');
    END IF;
    RETURN NEW;
END $$;

CREATE FUNCTION {SCHEMA}.check_step() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (OLD.id, OLD.digest, OLD.key, OLD.task, OLD.round, OLD.part, OLD.parts, OLD.first, OLD.ticketed, OLD.minimum, OLD.maximum, OLD.opens,
        OLD.closes, OLD.extends) <> (NEW.id, NEW.digest, NEW.key, NEW.task, NEW.round, NEW.part, NEW.parts, NEW.first, NEW.ticketed,
        NEW.minimum, NEW.maximum, NEW.opens, NEW.closes, NEW.extends) THEN
        PERFORM {SCHEMA}.refused('what a collection says cannot be changed');
    ELSIF OLD.state <> NEW.state AND (OLD.state, NEW.state) NOT IN ({", ".join(map(str, STEPS))}) THEN
        PERFORM {SCHEMA}.refused('states move forward only, one by one');
    ELSIF OLD.state = 'open' AND NEW.state = 'sealed' AND OLD.first AND (OLD.reports < OLD.minimum OR NEW.sealed_at < OLD.until) THEN
        PERFORM {SCHEMA}.refused('it is sealed at its closing time and with its minimum only');
    ELSIF OLD.state = 'sealed' AND NEW.state = 'shuffled' AND (NEW.people < OLD.minimum OR length(NEW.output) <> 64
        OR (OLD.first AND NEW.people + NEW.left_out <> OLD.reports)) THEN
        PERFORM {SCHEMA}.refused('everybody who reported is let go or left out, and enough of them are let go');
    ELSIF OLD.state <> 'sealed' AND (OLD.people, OLD.left_out, OLD.output) <> (NEW.people, NEW.left_out, NEW.output) THEN
        PERFORM {SCHEMA}.refused('what was let go cannot be changed');
    ELSIF NEW.reports < OLD.reports OR (NEW.reports > OLD.reports AND OLD.state <> 'open') THEN
        PERFORM {SCHEMA}.refused('reports are added while it is open, and never taken away');
    ELSIF NEW.until < OLD.until OR (NEW.until > OLD.until AND OLD.state <> 'open') THEN
        PERFORM {SCHEMA}.refused('an end is moved while it is open, and only forward');
    END IF;
    RETURN NEW;
END $$;

CREATE FUNCTION {SCHEMA}.check_stays() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN PERFORM {SCHEMA}.refused('a collection is never deleted'); END $$;

CREATE FUNCTION {SCHEMA}.check_open() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM {SCHEMA}.collection WHERE id IN (SELECT collection FROM added) AND state <> 'open')
        OR EXISTS (SELECT FROM added WHERE NOT EXISTS (SELECT FROM {SCHEMA}.collection WHERE id = added.collection)) THEN
        PERFORM {SCHEMA}.refused('reports are stored while it is open');
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER new BEFORE INSERT ON {SCHEMA}.collection FOR EACH ROW EXECUTE FUNCTION {SCHEMA}.check_new();
CREATE TRIGGER step BEFORE UPDATE ON {SCHEMA}.collection FOR EACH ROW EXECUTE FUNCTION {SCHEMA}.check_step();
CREATE TRIGGER stays BEFORE DELETE ON {SCHEMA}.collection FOR EACH ROW EXECUTE FUNCTION {SCHEMA}.check_stays();
CREATE TRIGGER while_open AFTER INSERT ON {SCHEMA}.report REFERENCING NEW TABLE AS added FOR EACH STATEMENT
EXECUTE FUNCTION {SCHEMA}.check_open();
"""  # noqa: S608 - the states are ours

CHANGES = (
    f"""
ALTER TABLE {SCHEMA}.clock ADD COLUMN corrections bigint NOT NULL DEFAULT 0;
ALTER TABLE {SCHEMA}.collection ADD COLUMN clock text NOT NULL DEFAULT '';
CREATE TABLE {SCHEMA}.anchor (boot text PRIMARY KEY, wall double precision NOT NULL, steady double precision NOT NULL);
""",
    f"""
ALTER TABLE {SCHEMA}.collection ADD COLUMN owner text NOT NULL DEFAULT '';
CREATE FUNCTION {SCHEMA}.check_owner() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN PERFORM {SCHEMA}.refused('an owner cannot be changed'); END $$;
CREATE TRIGGER owner_stays BEFORE UPDATE ON {SCHEMA}.collection FOR EACH ROW WHEN (OLD.owner <> NEW.owner)
EXECUTE FUNCTION {SCHEMA}.check_owner();
""",
    f"""
CREATE TABLE {SCHEMA}.witnessed (
    collection text NOT NULL, asker text NOT NULL, output text NOT NULL, PRIMARY KEY (collection, asker)
);
CREATE FUNCTION {SCHEMA}.check_witnessed() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN PERFORM {SCHEMA}.refused('what was countersigned stays'); END $$;
CREATE TRIGGER witnessed_stays BEFORE UPDATE OR DELETE ON {SCHEMA}.witnessed FOR EACH ROW EXECUTE FUNCTION {SCHEMA}.check_witnessed();
ALTER TABLE {SCHEMA}.collection ADD COLUMN countersignature text NOT NULL DEFAULT '';
CREATE FUNCTION {SCHEMA}.check_countersignature() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN PERFORM {SCHEMA}.refused('a countersignature cannot be changed'); END $$;
CREATE TRIGGER countersigned_once BEFORE UPDATE ON {SCHEMA}.collection FOR EACH ROW
WHEN (OLD.state <> 'sealed' AND OLD.countersignature <> NEW.countersignature) EXECUTE FUNCTION {SCHEMA}.check_countersignature();
""",
)
"""What each later format adds to the tables above, the oldest change first: a database of an older format gets them when it is opened."""
VERSION = FIRST_VERSION + len(CHANGES)
