/** The outbox: a sealed report is written down before it is sent, and a retry sends the same bytes. Nothing is ever randomized twice. */
import type { Bytes } from './sealing.js';

/** Of one person in one round of a task. */
export interface Entry {
  /** The digest of the collection that it was made for. */
  collection: string;
  state: 'waiting' | 'sent' | 'declined';
  /** Sealed for the first shuffler; nothing is kept once it was sent or declined. */
  report: Bytes | null;
  /** The boxes inside, where there is a ticket: with another ticket they are sealed anew, and not randomized anew. */
  boxes: Bytes | null;
  /** Not to be sent before then, in milliseconds since 1970. */
  due: number;
}

export interface Outbox {
  get(key: string): Promise<Entry | undefined>;
  /** The entry, durably stored; or the one that was there first, which stays. */
  add(key: string, entry: Entry): Promise<Entry>;
  /** Replaces what is there, durably, unless that was sent. */
  put(key: string, entry: Entry): Promise<void>;
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

  /** What a transaction reads, once everything it wrote is on the disk. */
  async #transaction<Read>(mode: IDBTransactionMode, act: (store: IDBObjectStore, read: (value: Read) => void) => void): Promise<Read> {
    const database = await this.#open();
    try {
      return await new Promise<Read>((done, failed) => {
        const transaction = database.transaction('reports', mode, { durability: 'strict' });
        let value: Read;
        transaction.oncomplete = () => done(value);
        transaction.onabort = () => failed(new Error('The report could not be stored on this device.', { cause: transaction.error }));
        act(transaction.objectStore('reports'), (read) => (value = read));
      });
    } finally {
      database.close();
    }
  }

  get(key: string): Promise<Entry | undefined> {
    return this.#transaction<Entry | undefined>('readonly', (store, read) => {
      const request = store.get(key) as IDBRequest<Entry | undefined>;
      request.onsuccess = () => read(request.result);
    });
  }

  add(key: string, entry: Entry): Promise<Entry> {
    return this.#transaction<Entry>('readwrite', (store, read) => {
      const request = store.get(key) as IDBRequest<Entry | undefined>;
      request.onsuccess = () => {
        if (!request.result) store.add(entry, key);
        read(request.result ?? entry);
      };
    });
  }

  put(key: string, entry: Entry): Promise<void> {
    return this.#transaction<void>('readwrite', (store) => {
      const request = store.get(key) as IDBRequest<Entry | undefined>;
      request.onsuccess = () => {
        if (request.result?.state !== 'sent') store.put(entry, key);
      };
    });
  }
}
