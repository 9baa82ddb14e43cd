/** The outbox: a sealed report is written down before it is sent, and a retry sends the same bytes. Nothing is ever randomized twice. */
import type { Bytes } from './sealing.js';
import type { Spent } from './spent.js';

/** Of one person in one round of a task. */
export interface Entry {
  /** The digest of the collection that it was made for. */
  collection: string;
  /** `made`: nothing of it has left this device; `sending`: it may have; `sent`: the shuffler said that it is stored. */
  state: 'made' | 'sending' | 'sent' | 'declined';
  /** Sealed for the first shuffler; nothing is kept once it was sent or declined. */
  report: Bytes | null;
  /** The boxes inside, where there is a ticket: with another ticket they are sealed anew, and not randomized anew. */
  boxes: Bytes | null;
  /** Not to be sent before then, in milliseconds since 1970. */
  due: number;
  /** Since when it is in this state, in milliseconds since 1970; older clients did not note it. */
  at?: number;
  /** The status by which the shuffler refused this very report. */
  refused?: number;
  /** Declined when it may have been sent. */
  tried?: boolean;
  /** What it can reveal; browsers keep it beside, in the ledger. */
  spent?: Spent | undefined;
}

/** What is stored of an entry, and, if the outbox has them together, everything in the ledger. */
export type Change = (entry: Entry | undefined, ledger?: () => readonly object[]) => Entry | undefined;

export interface Outbox {
  /**
   * Reads an entry and stores what `change` makes of it, durably, with nobody else in between; nothing is written if that is undefined.
   * Returns what is there afterwards. `change` may be called again if somebody else was quicker.
   */
  update(key: string, change: Change): Promise<Entry | undefined>;
}

export const STORES = ['reports', 'ledger'];

export function openDatabase(name: string): Promise<IDBDatabase> {
  return new Promise((done, failed) => {
    const request = indexedDB.open(name, 2);
    request.onupgradeneeded = ({ oldVersion }) => STORES.slice(oldVersion).forEach((store) => request.result.createObjectStore(store));
    request.onsuccess = () => done(request.result);
    request.onerror = () => failed(new Error('This browser keeps nothing for this page (a private window?), so nothing was sent.', { cause: request.error }));
  });
}

/** In the browser's own database, which all tabs of an origin share: reports, and since version 2 what they can reveal. */
export class BrowserOutbox implements Outbox {
  constructor(private readonly name = 'metricshuffle') {}

  /** A transaction that may write runs alone, whichever window began it: this is the lock, and every browser that has a database has it. */
  async update(key: string, change: Change): Promise<Entry | undefined> {
    const database = await openDatabase(this.name);
    try {
      return await new Promise((done, failed) => {
        const transaction = database.transaction(STORES, 'readwrite', { durability: 'strict' });
        const [store, ledger] = STORES.map((name) => transaction.objectStore(name)) as [IDBObjectStore, IDBObjectStore];
        const spent = ledger.getAll();
        const request = store.get(key) as IDBRequest<Entry | undefined>;
        let changed: Entry | undefined;
        request.onsuccess = () => {
          changed = change(request.result, () => spent.result);
          if (!changed) return;
          const { spent: made, ...rest } = changed;
          store.put(rest, key);
          if (made) ledger.put(made, key);
        };
        transaction.oncomplete = () => done(changed ?? request.result); // everything is on the disk
        transaction.onabort = () => failed(new Error('The report could not be stored on this device.', { cause: transaction.error }));
      });
    } finally {
      database.close();
    }
  }
}
