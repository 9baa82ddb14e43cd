/** What a report can reveal, as its task claims it: it is written down with the report, and counts whatever becomes of it. */
import type { Collection } from './collection.js';

/** Epsilon and delta for moves up to a distance; what is not there or no number is no limit. */
export interface Loss {
  epsilon?: number | null | undefined;
  delta?: number | undefined;
  distance?: number | undefined;
  shape?: string | undefined;
}

/** The same members as in the outboxes of the clients for Python and Java. */
export interface Spent {
  user: string;
  task: string;
  analyst: string;
  round: number;
  unit: string;
  moves: string;
  /** How many rounds of the task the two losses cover together. */
  rounds: number;
  /** Even if every shuffler colludes with the analyst. */
  local: Loss;
  /** If the shufflers are honest. */
  shuffled: Loss;
  /** The honest reports that `shuffled` counts on. */
  honest: number | null;
  /** The day on which the report was made, in UTC, which is not before its collection opened. */
  day: string;
}

const lossOf = ({ epsilon, delta, distance, shape }: Loss): Loss => ({ epsilon, delta, distance, shape });

export function spentOf({ terms, task }: Collection, user: string): Spent {
  const { guarantee = {}, if_shuffler_colludes: local = {}, rounds } = JSON.parse(terms.task);
  return {
    user,
    task,
    analyst: terms.analyst.name,
    round: terms.round,
    unit: guarantee.unit,
    moves: guarantee.between + (guarantee.protects === "one user's items" ? " of a person's items" : ''),
    rounds,
    local: lossOf(local),
    shuffled: lossOf(guarantee),
    honest: guarantee.trust?.honest_reports,
    day: new Date(Math.max(Date.now(), Date.parse(terms.opens))).toISOString().slice(0, 10),
  };
}
