-- Sums by several servers: shares, signed lists of names and statements of adders.

CREATE TABLE metricshuffle.adder_sum (
    id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    digest text NOT NULL UNIQUE, served bytea NOT NULL, key text NOT NULL, owner text NOT NULL,
    place bigint NOT NULL, task text NOT NULL, round bigint NOT NULL, ticketed bigint NOT NULL,
    minimum bigint NOT NULL, maximum bigint NOT NULL,
    opens double precision NOT NULL, closes double precision NOT NULL, extends double precision NOT NULL,
    phase bigint NOT NULL DEFAULT 0 CONSTRAINT "extended once" CHECK (phase = 0 OR (phase = 1 AND closes < extends)),
    state text NOT NULL DEFAULT 'open' CONSTRAINT "a known state" CHECK (state IN ('open', 'closed', 'signed', 'added', 'released', 'purged', 'aborted')),
    reports bigint NOT NULL DEFAULT 0 CONSTRAINT "reports up to the maximum" CHECK (reports BETWEEN 0 AND maximum),
    people bigint NOT NULL DEFAULT 0, total bytea,
    reason text NOT NULL DEFAULT '' CONSTRAINT "a reason once aborted" CHECK (state = 'aborted' OR reason = ''),
    released_at double precision NOT NULL DEFAULT 0, collected bigint NOT NULL DEFAULT 0, clock text NOT NULL DEFAULT '',
    UNIQUE (task, round)
);
CREATE TABLE metricshuffle.adder_ticket (sum bigint NOT NULL, hash bytea NOT NULL, PRIMARY KEY (sum, hash));
CREATE TABLE metricshuffle.adder_share (
    sum bigint NOT NULL, name bytea NOT NULL, box bytea NOT NULL, ticket bytea, hidden bytea NOT NULL,
    PRIMARY KEY (sum, name), UNIQUE (sum, box), UNIQUE (sum, ticket)
);
CREATE TABLE metricshuffle.adder_list (
    sum bigint NOT NULL, place bigint NOT NULL, phase bigint NOT NULL, head bytea NOT NULL, names bytea NOT NULL,
    PRIMARY KEY (sum, place, phase)
);
CREATE TABLE metricshuffle.adder_statement (
    sum bigint NOT NULL, place bigint NOT NULL, hashed text NOT NULL, people bigint NOT NULL, signature text NOT NULL,
    PRIMARY KEY (sum, place)
);

CREATE FUNCTION metricshuffle.check_adder_step() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (OLD.state, NEW.state) NOT IN (VALUES ('open', 'closed'), ('closed', 'signed'), ('signed', 'added'), ('added', 'released'), ('released', 'purged'), ('open', 'aborted'), ('closed', 'aborted'), ('signed', 'aborted'), ('added', 'aborted'), ('released', 'aborted'))
        AND NOT (OLD.state = 'closed' AND NEW.state = 'open' AND OLD.phase = 0 AND NEW.phase = 1) THEN
        PERFORM metricshuffle.refused('states of a sum move forward only, but for one extension');
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER forward BEFORE UPDATE ON metricshuffle.adder_sum FOR EACH ROW WHEN (OLD.state <> NEW.state) EXECUTE FUNCTION metricshuffle.check_adder_step();

CREATE FUNCTION metricshuffle.check_adder_share() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (SELECT state FROM metricshuffle.adder_sum WHERE id = NEW.sum) <> 'open' THEN
        PERFORM metricshuffle.refused('shares are added while the sum is open');
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER while_open BEFORE INSERT ON metricshuffle.adder_share FOR EACH ROW EXECUTE FUNCTION metricshuffle.check_adder_share();

CREATE FUNCTION metricshuffle.check_adder_statement() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN PERFORM metricshuffle.refused('a statement is signed once, and never deleted'); END $$;
CREATE TRIGGER once BEFORE UPDATE OR DELETE ON metricshuffle.adder_statement FOR EACH ROW EXECUTE FUNCTION metricshuffle.check_adder_statement();
