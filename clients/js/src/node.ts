/** The outbox for Node: a folder with some small files for each report. */
import { createHash, randomBytes } from 'node:crypto';
import { link, mkdir, open, readFile, stat, truncate, unlink } from 'node:fs/promises';
import { join } from 'node:path';
import type { Change, Entry, Outbox } from './outbox.js';

/** Undefined instead of an error of this kind. */
async function unless<Value>(code: string, act: Promise<Value>): Promise<Value | undefined> {
  try {
    return await act;
  } catch (wrong) {
    if ((wrong as NodeJS.ErrnoException).code === code) return undefined;
    throw wrong;
  }
}

/**
 * An entry is a row of files, KEY.json, KEY.json.1, KEY.json.2 and so on, of which the last one counts. A file is linked under the next number
 * when it is whole, which fails if there is one: so of several processes one is first, and nobody is ever locked out by one that was killed.
 * No number is used twice. The files before the last one are emptied, and stay.
 */
export class FolderOutbox implements Outbox {
  constructor(private readonly folder: string) {}

  #file(key: string, number: number): string {
    return join(this.folder, `${createHash('sha256').update(key).digest('hex')}.json${number ? `.${number}` : ''}`);
  }

  async #exists(key: string, number: number): Promise<boolean> {
    return (await unless('ENOENT', stat(this.#file(key, number)))) !== undefined;
  }

  /** The number of the last file, -1 if there is none, and the entry in it. */
  async #last(key: string): Promise<{ number: number; entry: Entry | undefined }> {
    for (let number = -1; ; ) {
      while (await this.#exists(key, number + 1)) number++;
      if (number < 0) return { number, entry: undefined };
      const text = await readFile(this.#file(key, number), 'utf8');
      if (await this.#exists(key, number + 1)) continue; // then it may have been emptied while it was read
      await this.#settled(); // (whoever wrote it may have been killed before that, or before the one before it was emptied)
      if (number) await truncate(this.#file(key, number - 1));
      const read = JSON.parse(text) as Omit<Entry, 'report' | 'boxes'> & Record<'report' | 'boxes', string | null>;
      const bytes = (part: string | null) => (part === null ? null : new Uint8Array(Buffer.from(part, 'base64')));
      return { number, entry: { ...read, report: bytes(read.report), boxes: bytes(read.boxes) } };
    }
  }

  async update(key: string, change: Change): Promise<Entry | undefined> {
    for (;;) {
      const { number, entry } = await this.#last(key);
      const changed = change(entry);
      if (!changed) return entry;
      const beside = await this.#written(key, changed);
      try {
        await link(beside, this.#file(key, number + 1));
      } catch (wrong) {
        if ((wrong as NodeJS.ErrnoException).code === 'EEXIST') continue; // somebody else was quicker: again, with what they wrote
        throw wrong;
      } finally {
        await unlink(beside);
      }
      await this.#settled();
      if (number >= 0) await truncate(this.#file(key, number));
      return changed;
    }
  }

  /** A file beside, whole and on the disk. */
  async #written(key: string, entry: Entry): Promise<string> {
    await mkdir(this.folder, { recursive: true, mode: 0o700 });
    const beside = `${this.#file(key, 0)}.new.${randomBytes(4).toString('hex')}`;
    const text = (part: Uint8Array | null) => (part === null ? null : Buffer.from(part).toString('base64'));
    const stream = await open(beside, 'wx', 0o600);
    try {
      await stream.writeFile(JSON.stringify({ ...entry, report: text(entry.report), boxes: text(entry.boxes) }));
      await stream.sync();
    } finally {
      await stream.close();
    }
    return beside;
  }

  /** What was linked stays so if the power fails now. */
  async #settled(): Promise<void> {
    const folder = await open(this.folder, 'r');
    try {
      await folder.sync();
    } finally {
      await folder.close();
    }
  }
}
