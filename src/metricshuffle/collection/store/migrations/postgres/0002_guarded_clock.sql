-- Clock that is checked against a steady one.

ALTER TABLE metricshuffle.clock ADD COLUMN corrections bigint NOT NULL DEFAULT 0;
ALTER TABLE metricshuffle.collection ADD COLUMN clock text NOT NULL DEFAULT '';
CREATE TABLE metricshuffle.anchor (boot text PRIMARY KEY, wall double precision NOT NULL, steady double precision NOT NULL);
