/** Taking part: randomize once, seal, write down, send until it is stored. */
import { Collection } from './collection.js';
import type { Value } from './inputs.js';
import { BrowserOutbox, type Change, type Entry, type Outbox } from './outbox.js';
import { numbersOf, payloadsOf } from './report.js';
import { type Bytes, bytesOf, Sealer } from './sealing.js';
import { type Spent, spentOf } from './spent.js';
import { Words } from './words.js';

const FIRST_PAUSE = 500;
const LONGEST_PAUSE = 30_000;
const PRIVATELY: RequestInit = { credentials: 'omit', referrerPolicy: 'no-referrer', cache: 'no-store', redirect: 'error' };

export interface Options {
  /** Where a sealed report waits; in Node give a FolderOutbox. */
  outbox?: Outbox;
  /** Whose report it is, where one outbox serves several people. */
  user?: string;
  ask?: typeof fetch;
  /** How long a report that cannot be delivered is sent again, in milliseconds; it stays in the outbox. */
  patience?: number;
  /** Why a new report would go over a limit of the person, or ''. It is asked in the transaction that stores the report. */
  over?: (spent: Spent, ledger: readonly object[]) => string;
}

/** A report was not stored. `again`: it waits in the outbox, and `send` may be called later; what it holds does not change. */
export class NotSent extends Error {
  override name = 'NotSent';
  constructor(
    message: string,
    readonly again: boolean,
    readonly status = 0,
  ) {
    super(message);
  }
}

/** What was drawn and sealed, to be shown before it is sent; it is kept nowhere. */
export interface Prepared {
  numbers: readonly bigint[];
  payloads: readonly Uint8Array[];
}

/** What became of a value that was submitted. `fresh`: a report was made of it; otherwise one that was made before was sent. */
export interface Receipt {
  fresh: boolean;
  sentence: string;
}

/** Whether a collection takes reports now, as its shuffler says. */
export type Phase = 'open' | 'not open yet' | 'closed' | 'aborted' | 'gone';

const PHASES: readonly unknown[] = ['open', 'not open yet', 'closed', 'aborted', 'gone'];
const REFUSED: Record<number, string> = {
  403: 'The shuffler does not know this ticket: check it and send again. Nothing is randomized again.',
  409: 'This ticket was used for another report before, which counts; this one was not stored.',
  422: 'The shuffler could not open this report, so it was not stored.',
};

export class Client {
  readonly #outbox: Outbox;
  readonly #ask: typeof fetch;
  readonly #patience: number;
  readonly #user: string;
  readonly #over: Options['over'];
  readonly key: string;

  constructor(
    readonly collection: Collection,
    options: Options = {},
  ) {
    this.#outbox = options.outbox ?? new BrowserOutbox();
    this.#ask = options.ask ?? ((...request) => fetch(...request));
    this.#patience = options.patience ?? 60_000;
    this.#user = options.user ?? '';
    this.#over = options.over;
    this.key = JSON.stringify([collection.task, collection.terms.round, this.#user]);
  }

  /** The client of a collection that a shuffler serves, if its bytes have the digest that was pinned. */
  static async join(address: string, digest: string, options: Options = {}): Promise<Client> {
    return new Client(await Collection.fetch(address, digest, options.ask ?? fetch), options);
  }

  /** What is in the outbox for this collection; refused if a report was made for another one of the same task and round. */
  entry(): Promise<Entry | undefined> {
    return this.#update(() => undefined);
  }

  /** Reads the entry and writes what `change` makes of it, with nobody else in between. */
  async #update(change: Change): Promise<Entry | undefined> {
    const isMine = (entry: Entry | undefined) => !entry || entry.collection === this.collection.digest;
    const entry = known(await this.#outbox.update(this.key, (found, ledger) => (isMine(found) ? change(known(found), ledger) : undefined)));
    if (!isMine(entry)) {
      throw new NotSent('A report was made here for another collection of the same question and round; both together would tell more than is promised.', false);
    }
    return entry;
  }

  /** Asks the shuffler whether the collection takes reports; with a reason, if it was aborted, and what its operator did to the clock. */
  async phase(): Promise<{ phase: Phase; reason: string; clock: readonly string[] }> {
    try {
      const answer = await this.#ask(this.collection.url.replace(/reports$/, 'state'), { ...PRIVATELY });
      if (answer.status === 404) return { phase: 'gone', reason: '', clock: [] };
      const { phase, reason, clock } = (await answer.json()) as { phase: Phase; reason: string; clock?: readonly string[] };
      if (PHASES.includes(phase)) return { phase, reason, clock: clock ?? [] };
    } catch {
      // no answer is told like one that says nothing
    }
    throw new NotSent('The shuffler cannot be asked now whether the collection is open, so nothing was drawn. Try again later.', true);
  }

  /** Raises NotSent, in words, unless the collection takes reports; what its operator did to the clock. */
  async checkOpen(): Promise<readonly string[]> {
    const { phase, reason, clock } = await this.phase();
    if (phase !== 'open') throw new NotSent(`This collection is ${phase}${reason && ` (${reason})`}. Nothing is drawn and nothing is sent.`, false);
    return clock;
  }

  /** Randomizes, seals and writes down, if the collection is open and that was not done before: then null. */
  async prepare(value: Value | readonly Value[], ticket = '', words = new Words()): Promise<Prepared | null> {
    const { recipe, delay } = this.collection.terms;
    if (!recipe.browser) throw new NotSent(`This collection cannot be joined from here. ${recipe.why}`, false);
    const admitted = this.#ticket(ticket);
    if (await this.entry()) return null;
    await this.checkOpen();
    const numbers = numbersOf(recipe, value, words);
    const payloads = payloadsOf(recipe.payload, numbers);
    const sealer = await this.#sealer();
    const boxes = await sealer.boxes(payloads);
    const report = await sealer.report(boxes, admitted);
    if (report.length !== this.collection.reportSize) throw new RangeError('the report has a length that it should not have');
    const due = Date.now() + (delay ? Number(words.below(BigInt(1000 * delay + 1))) : 0);
    const spent = spentOf(this.collection, this.#user);
    const mine: Entry = { collection: this.collection.digest, state: 'made', report, boxes: admitted.length ? boxes : null, due, at: Date.now(), spent };
    let over: string | undefined;
    // another window may have been first: then its report is the one
    const stored = await this.#update((entry, ledger) => (entry || (over = this.#over?.(spent, ledger?.() ?? [])) ? undefined : mine));
    if (over) throw new NotSent(over, false);
    return isSame(stored?.report, report) ? { numbers, payloads } : null;
  }

  /** Seals what was made for another ticket, after the shuffler refused the one before. */
  async changeTicket(ticket: string): Promise<void> {
    const sealer = await this.#sealer();
    const before = await this.entry();
    if (!before?.boxes || !mayChange(before)) throw new NotSent('No report waits for a ticket.', false);
    const { refused, ...rest } = { ...before, report: await sealer.report(before.boxes, this.#ticket(ticket)) };
    await this.#update((entry) => (entry && mayChange(entry) && isSame(entry.report, before.report!) ? rest : undefined));
  }

  #ticket(ticket: string): Bytes {
    const size = this.collection.terms.ticket;
    if (!size) return new Uint8Array();
    const digits = ticket.trim().toLowerCase();
    if (digits.length !== 2 * size || /[^0-9a-f]/.test(digits)) throw new NotSent('A ticket is 32 letters and digits, 0 to 9 and a to f.', true);
    return bytesOf(digits);
  }

  #sealer(): Promise<Sealer> {
    return Sealer.of(bytesOf(this.collection.digest), this.collection.keys, this.collection.terms.piles);
  }

  /** Takes back what was made; no second report is drawn for this round. True: nothing was sent. False: it may have been. */
  async decline(): Promise<boolean> {
    const nothing = { collection: this.collection.digest, report: null, boxes: null, due: 0, at: Date.now() };
    const entry = await this.#update((found) =>
      found && !found.report ? undefined : { ...nothing, spent: found?.spent, state: 'declined', tried: found?.state === 'sending' },
    );
    if (entry?.state === 'sent') throw new NotSent('The report was sent already.', false);
    return !entry?.tried;
  }

  /** Sends what waits in the outbox, again and again until the shuffler has stored it; throws NotSent otherwise. */
  async send(): Promise<void> {
    await pause(((await this.entry())?.due ?? 0) - Date.now());
    const end = Date.now() + this.#patience;
    for (let wait = FIRST_PAUSE; ; wait = Math.min(2 * wait, LONGEST_PAUSE)) {
      // read again before every post: another window may have sent or declined it. From here on it may have been sent.
      const entry = await this.#update((found) => (found?.state === 'made' ? { ...found, state: 'sending', at: Date.now() } : undefined));
      if (entry?.state === 'sent') return;
      if (!entry?.report) throw new NotSent(entry ? declined(entry) : 'There is no report to be sent.', false);
      const { report } = entry;
      const { status, later } = await this.#post(report);
      if (status === 204) {
        await this.#update(() => ({ ...entry, state: 'sent', report: null, boxes: null, at: Date.now() }));
        return;
      }
      if (status === 410) {
        throw new NotSent('The collection is closed. Whether your report arrived in time is not known here.', false, status);
      }
      if (status && status < 500 && ![408, 425, 429].includes(status)) {
        await this.#update((found) => (found && isSame(found.report, report) ? { ...found, refused: status } : undefined));
        throw new NotSent(REFUSED[status] ?? `The shuffler refused the report (${status}).`, status === 403, status);
      }
      // When to ask again is no secret and no noise; it is never before the time that the shuffler asks for.
      const next = Math.max(Math.min(later, LONGEST_PAUSE), wait * (0.75 + Math.random() / 2));
      if (Date.now() + next > end) {
        throw new NotSent('The shuffler cannot be reached now. Your report waits on this device; send it again later.', true, status);
      }
      await pause(next);
    }
  }

  /** The answer's status, 0 if there was none, and how long to wait if it says so. */
  async #post(report: Bytes): Promise<{ status: number; later: number }> {
    try {
      const answer = await this.#ask(this.collection.url, {
        ...PRIVATELY,
        method: 'POST',
        body: report,
        headers: { 'content-type': 'application/octet-stream' },
      });
      return { status: answer.status, later: 1000 * (Number(answer.headers.get('retry-after')) || 0) };
    } catch {
      return { status: 0, later: 0 };
    }
  }

  /** All of it, if no report was sent or declined before. One that waits is sent as it is, whatever is given now; the receipt says so. */
  async submit(value: Value | readonly Value[], ticket = ''): Promise<Receipt> {
    const fresh = !!(await this.prepare(value, ticket));
    const entry = await this.entry();
    if (!fresh && entry && !entry.report) {
      throw new NotSent(
        entry.state === 'declined' ? declined(entry)
        : `Nothing was sent now: a report for this round was stored ${when(entry)}; each person reports once. Another person must give another \`user\`.`,
        false,
      ); // prettier-ignore
    }
    await this.send();
    return { fresh, sentence: fresh ? 'The report is stored.' : 'The report that was made before is stored. The value given now was not used.' };
  }
}

/** As older clients wrote it down, with what may be true of it. */
function known(entry: Entry | undefined): Entry | undefined {
  if (!entry || entry.at) return entry;
  return { ...entry, state: entry.report ? 'sending' : entry.state, tried: true };
}

function when({ at }: Entry): string {
  return at ? `on ${new Date(at).toLocaleString()}` : 'before';
}

function declined(entry: Entry): string {
  return `It was declined ${when(entry)}, on this device: ${entry.tried ? 'it may have been sent before that, and is not sent again.' : 'nothing was sent.'}`;
}

/** Whether the shuffler cannot have stored it under the ticket that it has. */
function mayChange({ state, refused }: Entry): boolean {
  return state === 'made' || refused === 403 || refused === 409;
}

function isSame(bytes: Bytes | null | undefined, other: Bytes): boolean {
  return !!bytes && bytes.every((byte, place) => byte === other[place]);
}

function pause(milliseconds: number): Promise<void> {
  return new Promise((done) => setTimeout(done, Math.max(0, milliseconds)));
}
