/** Random words of 64 bits and what is decided by them in whole numbers alone: no float touches a random choice. */

/** Overwrites bytes with random ones. */
export type Filler = (bytes: Uint8Array<ArrayBuffer>) => void;

const BUFFER_WORDS = 512; // getRandomValues takes at most 65,536 bytes at a time
export const WORD = 1n << 64n;

export class Words {
  #bytes = new Uint8Array(8 * BUFFER_WORDS);
  #view = new DataView(this.#bytes.buffer);
  #at = this.#bytes.length;

  constructor(private readonly fill: Filler = (bytes) => void crypto.getRandomValues(bytes)) {}

  /** The next word of the stream; one that was handed out is not kept. */
  next(): bigint {
    if (this.#at === this.#bytes.length) {
      this.fill(this.#bytes);
      this.#at = 0;
    }
    const word = this.#view.getBigUint64(this.#at, true);
    this.#view.setBigUint64(this.#at, 0n);
    this.#at += 8;
    return word;
  }

  /** Uniform on 0..bound-1, exactly: of the words with one high part of the product, equally many are kept for each (Lemire 2019). */
  below(bound: bigint): bigint {
    const least = WORD % bound;
    for (;;) {
      const product = this.next() * bound;
      if (product % WORD >= least) return product / WORD;
    }
  }

  /** `count` uniform residues. Words at or beyond the last whole multiple of the modulus are drawn again, after all the others. */
  residues(count: number, modulus: bigint): bigint[] {
    const end = WORD - (WORD % modulus);
    const drawn = Array.from({ length: count }, () => this.next());
    let wrong = [...drawn.keys()].filter((place) => drawn[place]! >= end);
    while (wrong.length) {
      for (const place of wrong) drawn[place] = this.next();
      wrong = wrong.filter((place) => drawn[place]! >= end);
    }
    return drawn.map((word) => word % modulus);
  }
}
