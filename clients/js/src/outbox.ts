/** The outbox: a sealed report is written down before it is sent, and a retry sends the same bytes. Nothing is ever randomized twice. */
import type { Bytes } from './sealing.js';

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
}

export interface Outbox {
  /**
   * Reads an entry and stores what `change` makes of it, durably, with nobody else in between; nothing is written if that is undefined.
   * Returns what is there afterwards. `change` may be called again if somebody else was quicker.
   */
  update(key: string, change: (entry: Entry | undefined) => Entry | undefined): Promise<Entry | undefined>;
}

/** In the browser's own database, which all tabs of an origin share. */
export class BrowserOutbox implements Outbox {
  constructor(private readonly name = 'metricshuffle') {}

  #open(): Promise<IDBDatabase> {
    return new Promise((done, failed) => {
      const request = indexedDB.open(this.name, 1);
      request.onupgradeneeded = () => request.result.createObjectStore('reports');
      request.onsuccess = () => done(request.result);
      request.onerror = () => failed(new Error('This browser keeps nothing for this page (a private window?), so nothing was sent.', { cause: request.error }));
    });
  }

  /** A transaction that may write runs alone, whichever window began it: this is the lock, and every browser that has a database has it. */
  async update(key: string, change: (entry: Entry | undefined) => Entry | undefined): Promise<Entry | undefined> {
    const database = await this.#open();
    try {
      return await new Promise((done, failed) => {
        const transaction = database.transaction('reports', 'readwrite', { durability: 'strict' });
        const store = transaction.objectStore('reports');
        const request = store.get(key) as IDBRequest<Entry | undefined>;
        let changed: Entry | undefined;
        request.onsuccess = () => {
          changed = change(request.result);
          if (changed) store.put(changed, key);
        };
        transaction.oncomplete = () => done(changed ?? request.result); // everything is on the disk
        transaction.onabort = () => failed(new Error('The report could not be stored on this device.', { cause: transaction.error }));
      });
    } finally {
      database.close();
    }
  }
}
