/** The outbox for Node: a folder with one file for each report. */
import { createHash, randomBytes } from 'node:crypto';
import { link, mkdir, open, readFile, rename, unlink } from 'node:fs/promises';
import { join } from 'node:path';
import type { Entry, Outbox } from './outbox.js';

export class FolderOutbox implements Outbox {
  constructor(private readonly folder: string) {}

  #file(key: string): string {
    return join(this.folder, `${createHash('sha256').update(key).digest('hex')}.json`);
  }

  async get(key: string): Promise<Entry | undefined> {
    let text: string;
    try {
      text = await readFile(this.#file(key), 'utf8');
    } catch (wrong) {
      if ((wrong as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
      throw wrong;
    }
    const read = JSON.parse(text) as Omit<Entry, 'report' | 'boxes'> & Record<'report' | 'boxes', string | null>;
    const bytes = (part: string | null) => (part === null ? null : new Uint8Array(Buffer.from(part, 'base64')));
    return { ...read, report: bytes(read.report), boxes: bytes(read.boxes) };
  }

  async add(key: string, entry: Entry): Promise<Entry> {
    const beside = await this.#written(key, entry);
    try {
      await link(beside, this.#file(key)); // fails if there is one: whoever was first stays
      await this.#settled();
      return entry;
    } catch (wrong) {
      if ((wrong as NodeJS.ErrnoException).code !== 'EEXIST') throw wrong;
      return (await this.get(key))!;
    } finally {
      await unlink(beside);
    }
  }

  async put(key: string, entry: Entry): Promise<void> {
    if ((await this.get(key))?.state === 'sent') return;
    await rename(await this.#written(key, entry), this.#file(key));
    await this.#settled();
  }

  /** A file beside, whole and on the disk. */
  async #written(key: string, entry: Entry): Promise<string> {
    await mkdir(this.folder, { recursive: true, mode: 0o700 });
    const beside = `${this.#file(key)}.${randomBytes(4).toString('hex')}`;
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

  /** What was renamed stays so if the power fails now. */
  async #settled(): Promise<void> {
    const folder = await open(this.folder, 'r');
    try {
      await folder.sync();
    } finally {
      await folder.close();
    }
  }
}
