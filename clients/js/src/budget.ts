/** What the reports of a person on this device can reveal together, as the tasks claim it, and limits of their own. Units are never added up. */
import { type Entry, openDatabase, STORES } from './outbox.js';
import type { Loss, Spent } from './spent.js';

/** A limit on the sum of the reports of some days, at a distance. The two numbers are decimals as they were typed. */
export interface Limit {
  epsilon: string;
  distance: string;
  unit: string;
  days: number;
  /** Whether it limits the sum that holds if the shufflers are honest, and not the one that holds even if they collude. */
  honest: boolean;
}

/** An entry of the ledger, and the state of its report. */
export interface LedgerRow {
  spent: Spent;
  state: string;
}

export interface Ledger {
  rows: readonly LedgerRow[];
  limits: readonly Limit[];
  /** Reports without an entry: made before there was a ledger, or forgotten. */
  unknown: number;
  /** The day on which it began. */
  since: string;
}

/** A sum; epsilon is null if nothing limits it. */
export interface Sum {
  epsilon: Ratio | null;
  delta: Ratio;
  /** Why nothing limits epsilon. */
  reasons: readonly string[];
}

/** Numerator and denominator. */
type Ratio = readonly [bigint, bigint];

const DAY = 86_400_000;
const COLLUDING = 'even if every shuffler colludes with those who ask';
const HONEST = 'if the shufflers are honest';
const LIMITS = 'limits';
const SINCE = 'since';
const ZERO: Ratio = [0n, 1n];
const ONE: Ratio = [1n, 1n];
const LARGEST_DELTA: Ratio = [1n, 1000n]; // above it a limit counts as exceeded

/** A number as it is written in the task: its shortest decimal. */
function exact(number: number | string): Ratio {
  const [digits, power = '0'] = String(number).toLowerCase().split('e') as [string, string?];
  const [whole, part = ''] = digits.split('.') as [string, string?];
  const places = Number(power) - part.length;
  const scale = 10n ** BigInt(Math.abs(places));
  return places < 0 ? [BigInt(whole + part), scale] : [BigInt(whole + part) * scale, 1n];
}

const isMore = (one: Ratio, other: Ratio) => one[0] * other[1] > other[0] * one[1];
const add = (one: Ratio, other: Ratio): Ratio => [one[0] * other[1] + other[0] * one[1], one[1] * other[1]];
const times = (one: Ratio, other: Ratio): Ratio => [one[0] * other[0], one[1] * other[1]];
const larger = (one: Ratio, other: Ratio) => (isMore(one, other) ? one : other);

/** Four digits, rounded up. */
function shown([above, below]: Ratio): string {
  let places = 0;
  while (above && places < 400 && above * 10n ** BigInt(places) < 1000n * below) places++;
  const digits = String((above * 10n ** BigInt(places) + below - 1n) / below).padStart(places + 1, '0');
  const end = digits.length - places;
  const part = digits.slice(end).replace(/0+$/, '');
  return digits.slice(0, end) + (part && `.${part}`);
}

/** A number of somebody else: what is not one, or is below 0, is the pessimistic one. */
function positive(number: unknown, otherwise: number): number {
  return typeof number === 'number' && number >= 0 && Number.isFinite(number) ? number : otherwise;
}

const textOf = (text: unknown) => (typeof text === 'string' ? text : '');

/** Text of others without characters that would command or reorder a line. */
const printable = (text: unknown) => textOf(text).replace(/[\p{Cc}\p{Cf}]/gu, ' ');

/** Epsilon of a move of that length; null if nothing limits it. */
function epsilonAt(loss: Loss | undefined, distance: Ratio): Ratio | null {
  const epsilon = positive(loss?.epsilon, Infinity);
  const own = exact(positive(loss?.distance, 0));
  if (epsilon === Infinity || isMore(distance, own)) return null;
  return loss!.shape === 'linear' && own[0] ? times(exact(epsilon), times(distance, [own[1], own[0]])) : exact(epsilon);
}

/** Entries of one measure are added up; those without a unit within a task only. */
export function measureOf(spent: Spent): string {
  return JSON.stringify([textOf(spent.unit), textOf(spent.moves), textOf(spent.unit) ? '' : spent.task]);
}

/** Basic composition. The rounds of a task have one loss together; nobody checked here that two entries of a task claim the same. */
export function summed(all: readonly Spent[], distance: Ratio, honest: boolean): Sum {
  let epsilon: Ratio | null = ZERO;
  let delta = ZERO;
  const reasons = new Set<string>();
  for (const task of new Set(all.map((spent) => spent.task))) {
    const entries = all.filter((spent) => spent.task === task);
    const reports = new Set(entries.map(({ round }) => round)).size;
    const rounds = Math.max(1, Math.floor(Math.min(...entries.map((spent) => positive(spent.rounds, 1)))));
    const count: Ratio = [BigInt(Math.ceil(reports / rounds)), 1n];
    let most: Ratio | null = ZERO;
    let mostDelta = ZERO;
    for (const entry of entries) {
      const loss = honest ? entry.shuffled : entry.local;
      const own = epsilonAt(loss, distance);
      most = own && most && larger(most, own);
      if (!own) reasons.add(reasonOf(loss, honest));
      mostDelta = larger(mostDelta, exact(positive(loss?.delta, 1)));
    }
    epsilon = most && epsilon && add(epsilon, times(count, most));
    delta = add(delta, times(count, mostDelta));
  }
  return { epsilon, delta: isMore(delta, ONE) ? ONE : delta, reasons: [...reasons].sort() };
}

/** Why nothing limits the epsilon of an entry at a distance. */
function reasonOf(loss: Loss | undefined, honest: boolean): string {
  if (positive(loss?.epsilon, Infinity) < Infinity) return `nothing is promised for moves of more than ${positive(loss!.distance, 0)}`;
  return honest ? 'nothing is promised' : 'the shuffler and those who ask together may read what you send';
}

export function sumText({ epsilon, delta, reasons }: Sum): string {
  if (!epsilon) return `no limit (${reasons.join('; ')})`;
  return `epsilon ${shown(epsilon)}${delta[0] ? `, delta ${shown(delta)}` : ''}`;
}

export function limitText({ epsilon, distance, unit, days, honest }: Limit): string {
  return `${epsilon} at ${distance}${unit && ` ${printable(unit)}`} in ${days}d${honest ? ' if honest' : ''}`;
}

/** Raises an error in words unless it is one. */
export function checkLimit(limit: Limit): void {
  for (const number of [limit.epsilon, limit.distance]) {
    if (!/^[0-9]{1,12}(\.[0-9]{1,12})?$/.test(number)) throw new RangeError('Fill in all numbers of the limit, like 3 or 0.5.');
  }
  if (!exact(limit.distance)[0]) throw new RangeError('A limit is for moves of more than 0.');
  if (!Number.isInteger(limit.days) || limit.days < 1 || limit.days > 99_999) throw new RangeError('A limit is for a whole number of days, at least 1.');
}

/** The sum of those of the entries that are of the limit's days. Those of the future, by a clock that was set back, count too. */
function within(limit: Limit, entries: readonly Spent[], now: number, honest: boolean): Sum {
  const isRecent = ({ day }: Spent) => !(Math.floor(now / DAY) - Date.parse(day) / DAY > limit.days);
  return summed(entries.filter(isRecent), exact(limit.distance), honest);
}

/** Why a new report would go over the limits; empty if it would not. `latest`: when its collection ends, as a clock ahead of it is wrong. */
export function exceeded(limits: readonly Limit[], entries: readonly Spent[], made: Spent, latest: number): string[] {
  if (!limits.length) return [];
  const unit = textOf(made.unit);
  const mine = limits.filter((limit) => limit.unit === unit);
  const place = printable(unit) || 'in tasks without a unit';
  if (!mine.length) return [`You have limits (${limits.map(limitText).join('; ')}), and none for moves ${unit && 'in '}${place}.`];
  const others = entries.filter(({ task, round, user }) => user === made.user && (task !== made.task || round !== made.round));
  const same = [...others, made].filter((spent) => measureOf(spent) === measureOf(made));
  const now = Number.isNaN(latest) ? Date.now() : Math.min(Date.now(), latest);
  return mine.flatMap((limit) => {
    const sum = within(limit, same, now, limit.honest);
    if (sum.epsilon && !isMore(sum.epsilon, exact(limit.epsilon)) && !isMore(sum.delta, LARGEST_DELTA)) return [];
    const beside = within(limit, same, now, !limit.honest);
    const [who, other] = limit.honest ? [HONEST, COLLUDING] : [COLLUDING, HONEST];
    return [
      `With this report, those of ${limit.days} days sum up to ${sumText(sum)}, ${who} (and to ${sumText(beside)}, ${other}), ` +
        `for moves of ${limit.distance} ${place}; your limit is ${limitText(limit)}.`,
    ];
  });
}

/** The same for everything that is stored in the ledger of a browser, limits and entries; see `Options.over`. */
export function exceededIn(ledger: readonly object[], made: Spent, latest: number): string[] {
  const limits = ledger.flatMap((record) => (record as { limits?: Limit[] }).limits ?? []);
  return exceeded(limits, ledger.filter((record): record is Spent => 'task' in record), made, latest);
}

/** One measure: what is moved how far, both sums, and a line for each report. */
export interface Section {
  moves: string;
  sums: readonly string[];
  reports: readonly string[];
}

export function sections(rows: readonly LedgerRow[]): Section[] {
  return [...new Set(rows.map(({ spent }) => measureOf(spent)))].sort().map((measure) => {
    const mine = rows.filter(({ spent }) => measureOf(spent) === measure);
    const all = mine.map(({ spent }) => spent);
    const reaches = all.flatMap(({ local, shuffled }) => [local, shuffled])
      .flatMap((loss) => (positive(loss?.epsilon, Infinity) < Infinity ? [positive(loss.distance, 0)] : [])); // prettier-ignore
    const reach = reaches.length ? Math.min(...reaches) : null;
    const unit = printable(all[0]!.unit) || `(task ${printable(all[0]!.task).slice(0, 8)})`;
    const at = exact(reach ?? 0);
    return {
      moves: `Moves between ${printable(all[0]!.moves) || 'values'}${reach === null ? ` in ${unit}` : ` up to ${reach} ${unit}`}`,
      sums: [`${sumText(summed(all, at, false))}, ${COLLUDING};`, `${sumText(summed(all, at, true))}, ${HONEST}.`],
      reports: mine.map(({ spent, state }) => {
        const [local, shuffled] = [spent.local, spent.shuffled].map((loss) => {
          const epsilon = positive(loss?.epsilon, Infinity);
          return epsilon === Infinity ? 'no limit' : shown(exact(epsilon));
        });
        const honest = positive(spent.honest, 0);
        const counted = honest ? ` with ${honest} honest reports` : '';
        return `${printable(spent.day)}, ${state}: asked by ${printable(spent.analyst) || 'somebody'}; epsilon ${local}, or ${shuffled}${counted}.`;
      }),
    };
  });
}

/** What the ledger cannot know. */
export function remarks({ rows, unknown, since }: Ledger): string[] {
  const today = dayOf(Date.now());
  const newest = rows.map(({ spent }) => textOf(spent.day)).sort().at(-1) ?? ''; // prettier-ignore
  return [
    ...(unknown ? [`Reports that are not counted here: ${unknown}. They were made before this list began, or forgotten.`] : []),
    ...(newest > today ? [`The clock of this device is behind the newest entry (${newest}); entries of the future count as today's.`] : []),
    `This list began on ${since}. It does not know what was answered before, in other browsers, or on other devices.`,
  ];
}

export const dayOf = (moment: number) => new Date(moment).toISOString().slice(0, 10);

/** The ledger that a `BrowserOutbox` writes. */
export class BrowserLedger {
  constructor(private readonly name = 'metricshuffle') {}

  async #run<Result>(mode: IDBTransactionMode, act: (reports: IDBObjectStore, ledger: IDBObjectStore) => () => Result): Promise<Result> {
    const database = await openDatabase(this.name);
    try {
      return await new Promise((done, failed) => {
        const transaction = database.transaction(STORES, mode, { durability: 'strict' });
        const [reports, ledger] = STORES.map((name) => transaction.objectStore(name)) as [IDBObjectStore, IDBObjectStore];
        const result = act(reports, ledger);
        transaction.oncomplete = () => done(result());
        transaction.onabort = () => failed(new Error('The list could not be read or changed on this device.', { cause: transaction.error }));
      });
    } finally {
      database.close();
    }
  }

  read(user = ''): Promise<Ledger> {
    return this.#run('readwrite', (reports, ledger) => {
      const [keys, entries] = [reports.getAllKeys(), reports.getAll() as IDBRequest<Entry[]>];
      const [known, records] = [ledger.getAllKeys(), ledger.getAll() as IDBRequest<object[]>];
      let since = dayOf(Date.now());
      records.onsuccess = () => {
        const before = records.result[known.result.indexOf(SINCE)] as { since: string } | undefined;
        if (before) since = before.since;
        else ledger.put({ since }, SINCE);
      };
      return () => {
        const states = new Map(keys.result.map((key, place) => [String(key), entries.result[place]!]));
        const isMine = (key: IDBValidKey) => (JSON.parse(String(key)) as unknown[])[2] === user;
        const rows = known.result.flatMap((key, place) => {
          const spent = records.result[place] as Spent;
          if (!('task' in spent) || spent.user !== user) return [];
          const entry = states.get(String(key));
          return [{ spent, state: !entry ? 'made' : entry.tried ? 'declined, may have been sent' : entry.state }];
        });
        const unknown = keys.result.filter((key, place) => {
          const { state, tried } = entries.result[place]!;
          return isMine(key) && !known.result.includes(key) && (state !== 'declined' || tried);
        });
        rows.sort((one, other) => (one.spent.day < other.spent.day ? -1 : 1));
        const limits = records.result.flatMap((record) => (record as { limits?: Limit[] }).limits ?? []);
        return { rows, limits, unknown: unknown.length, since };
      };
    });
  }

  /** Replaces all limits. */
  setLimits(limits: readonly Limit[]): Promise<void> {
    limits.forEach(checkLimit);
    return this.#run('readwrite', (_, ledger) => {
      ledger.put({ limits }, LIMITS);
      return () => undefined;
    });
  }

  /** Deletes the entries; limits, and that somebody has reported, stay. */
  forget(): Promise<void> {
    return this.#run('readwrite', (_, ledger) => {
      const kept = ledger.get(LIMITS);
      kept.onsuccess = () => {
        ledger.clear();
        ledger.put({ since: dayOf(Date.now()) }, SINCE);
        if (kept.result) ledger.put(kept.result, LIMITS);
      };
      return () => undefined;
    });
  }
}
