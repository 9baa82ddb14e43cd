/** Taking part: randomize once, seal, write down, send until it is stored. */
import { Collection } from './collection.js';
import type { Value } from './inputs.js';
import { BrowserOutbox, type Entry, type Outbox } from './outbox.js';
import { numbersOf, payloadsOf } from './report.js';
import { type Bytes, bytesOf, Sealer } from './sealing.js';
import { Words } from './words.js';

const FIRST_PAUSE = 500;
const LONGEST_PAUSE = 30_000;
const TICKET = /^[0-9a-f]{32}$/;

export interface Options {
  /** Where a sealed report waits; in Node give a FolderOutbox. */
  outbox?: Outbox;
  /** Whose report it is, where one outbox serves several people. */
  user?: string;
  ask?: typeof fetch;
  /** How long a report that cannot be delivered is sent again, in milliseconds; it stays in the outbox. */
  patience?: number;
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

const REFUSED: Record<number, string> = {
  403: 'The shuffler does not know this ticket: check it and send again. Nothing is randomized again.',
  409: 'This ticket was used for another report before, which counts; this one was not stored.',
  422: 'The shuffler could not open this report, so it was not stored.',
};

export class Client {
  readonly #outbox: Outbox;
  readonly #ask: typeof fetch;
  readonly #patience: number;
  readonly key: string;

  constructor(
    readonly collection: Collection,
    options: Options = {},
  ) {
    this.#outbox = options.outbox ?? new BrowserOutbox();
    this.#ask = options.ask ?? ((...request) => fetch(...request));
    this.#patience = options.patience ?? 60_000;
    this.key = JSON.stringify([collection.task, collection.terms.round, options.user ?? '']);
  }

  /** The client of a collection that a shuffler serves, if its bytes have the digest that was pinned. */
  static async join(address: string, digest: string, options: Options = {}): Promise<Client> {
    return new Client(await Collection.fetch(address, digest, options.ask ?? fetch), options);
  }

  /** What is in the outbox for this collection; refused if a report was made for another one of the same task and round. */
  async entry(): Promise<Entry | undefined> {
    return this.#mine(await this.#outbox.get(this.key));
  }

  #mine<Found extends Entry | undefined>(entry: Found): Found {
    if (entry && entry.collection !== this.collection.digest) {
      throw new NotSent('A report was made here for another collection of the same question and round; both together would tell more than is promised.', false);
    }
    return entry;
  }

  /** Randomizes, seals and writes down, unless that was done before: then null. */
  async prepare(value: Value | readonly Value[], ticket = '', words = new Words()): Promise<Prepared | null> {
    const { recipe, delay } = this.collection.terms;
    if (!recipe.browser) throw new NotSent(`This collection cannot be joined from here. ${recipe.why}`, false);
    const admitted = this.#ticket(ticket);
    if (await this.entry()) return null;
    const numbers = numbersOf(recipe, value, words);
    const payloads = payloadsOf(recipe.payload, numbers);
    const sealer = await this.#sealer();
    const boxes = await sealer.boxes(payloads);
    const report = await sealer.report(boxes, admitted);
    if (report.length !== this.collection.reportSize) throw new RangeError('the report has a length that it should not have');
    const due = Date.now() + (delay ? Number(words.below(BigInt(1000 * delay + 1))) : 0);
    const mine: Entry = { collection: this.collection.digest, state: 'waiting', report, boxes: admitted.length ? boxes : null, due };
    const stored = this.#mine(await this.#outbox.add(this.key, mine));
    // another tab may have been first: then its report is the one
    return stored.report !== null && stored.report.every((byte, place) => byte === report[place]) ? { numbers, payloads } : null;
  }

  /** Seals what waits for another ticket, after the shuffler refused the one before. */
  async changeTicket(ticket: string): Promise<void> {
    const entry = await this.entry();
    if (entry?.state !== 'waiting' || !entry.boxes) throw new NotSent('No report waits for a ticket.', false);
    const report = await (await this.#sealer()).report(entry.boxes, this.#ticket(ticket));
    await this.#outbox.put(this.key, { ...entry, report });
  }

  #ticket(ticket: string): Bytes {
    if (!this.collection.terms.ticket) return new Uint8Array();
    const digits = ticket.trim().toLowerCase();
    if (!TICKET.test(digits)) throw new NotSent('A ticket is 32 letters and digits, 0 to 9 and a to f.', true);
    return bytesOf(digits);
  }

  #sealer(): Promise<Sealer> {
    return Sealer.of(bytesOf(this.collection.digest), this.collection.keys);
  }

  /** Takes back what was not sent yet. No second report is drawn for this round. */
  async decline(): Promise<void> {
    await this.entry();
    await this.#outbox.put(this.key, { collection: this.collection.digest, state: 'declined', report: null, boxes: null, due: 0 });
    if ((await this.entry())?.state === 'sent') throw new NotSent('The report was sent already.', false);
  }

  /** Sends what waits in the outbox, again and again until the shuffler has stored it; throws NotSent otherwise. */
  async send(): Promise<void> {
    const entry = await this.entry();
    if (entry?.state === 'sent') return;
    if (entry?.state !== 'waiting' || !entry.report) throw new NotSent('There is no report to be sent.', false);
    await pause(entry.due - Date.now());
    const end = Date.now() + this.#patience;
    for (let wait = FIRST_PAUSE; ; wait = Math.min(2 * wait, LONGEST_PAUSE)) {
      const { status, later } = await this.#post(entry.report);
      if (status === 204) {
        await this.#outbox.put(this.key, { ...entry, state: 'sent', report: null, boxes: null });
        return;
      }
      if (status === 410) {
        throw new NotSent('The collection is closed. Whether your report arrived in time is not known here.', false, status);
      }
      if (status && status < 500 && ![408, 425, 429].includes(status)) {
        throw new NotSent(REFUSED[status] ?? `The shuffler refused the report (${status}).`, status === 403, status);
      }
      const next = Math.max(later, wait) * (0.75 + Math.random() / 2); // when to ask again is no secret and no noise
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
        method: 'POST',
        body: report,
        headers: { 'content-type': 'application/octet-stream' },
        credentials: 'omit',
        referrerPolicy: 'no-referrer',
        cache: 'no-store',
        redirect: 'error',
      });
      return { status: answer.status, later: 1000 * (Number(answer.headers.get('retry-after')) || 0) };
    } catch {
      return { status: 0, later: 0 };
    }
  }

  /** All of it: what was made before is sent as it is, whatever is given now. */
  async submit(value: Value | readonly Value[], ticket = ''): Promise<void> {
    await this.prepare(value, ticket);
    await this.send();
  }
}

function pause(milliseconds: number): Promise<void> {
  return new Promise((done) => setTimeout(done, Math.max(0, milliseconds)));
}
