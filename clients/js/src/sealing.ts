/** Sealed boxes, as service/boxes.py describes them: HPKE (RFC 9180) with X25519, HKDF-SHA256 and AES-128-GCM, from @hpke/core. */
import { Aes128Gcm, CipherSuite, DhkemX25519HkdfSha256, HkdfSha256 } from '@hpke/core';

export type Bytes = Uint8Array<ArrayBuffer>;

const prefix = (version: number) => new TextEncoder().encode(`metricshuffle-box/${version}\0`);
/** Bytes that a layer adds. */
export const ADDED = 48;

export function joined(parts: readonly Uint8Array[]): Bytes {
  const whole = new Uint8Array(parts.reduce((size, part) => size + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

export function bytesOf(hexadecimal: string): Bytes {
  if (!/^([0-9a-f]{2})*$/.test(hexadecimal)) throw new RangeError('these are no hexadecimal digits');
  return Uint8Array.from(hexadecimal.match(/../g) ?? [], (pair) => parseInt(pair, 16));
}

export function hexOf(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
}

export async function sha256(bytes: Bytes): Promise<Bytes> {
  return new Uint8Array(await crypto.subtle.digest('SHA-256', bytes));
}

/** The keys of a collection, the analyst's first and the first shuffler's last. */
export class Sealer {
  readonly #suite = new CipherSuite({ kem: new DhkemX25519HkdfSha256(), kdf: new HkdfSha256(), aead: new Aes128Gcm() });
  #keys: CryptoKey[] = [];

  private constructor(
    private readonly digest: Bytes,
    private readonly piles: number,
  ) {}

  /** `piles`: how many there are that are mixed apart. */
  static async of(digest: Bytes, keys: readonly Bytes[], piles = 0): Promise<Sealer> {
    const sealer = new Sealer(digest, piles);
    try {
      sealer.#keys = await Promise.all(keys.map((key) => sealer.#suite.kem.deserializePublicKey(key)));
    } catch {
      throw new Error('This browser cannot seal a report: it knows no X25519, or a key of this collection is none. A newer browser may do.');
    }
    return sealer;
  }

  /** What is inside of a report is bound to its pile, if there are piles. */
  async #sealed(plain: Uint8Array, layer: number, pile?: number): Promise<Bytes> {
    const bound = pile === undefined ? [] : [Uint8Array.of(pile, pile >> 8, pile >> 16, pile >> 24)];
    const info = joined([prefix(1 + bound.length), Uint8Array.of(layer), this.digest, ...bound]);
    // a fresh context for every box: one that is shared would link the messages again
    const { enc, ct } = await this.#suite.seal({ recipientPublicKey: this.#keys[layer]!, info }, plain as Bytes);
    return joined([new Uint8Array(enc), new Uint8Array(ct)]);
  }

  /** Every message by itself, for the analyst and then for each shuffler behind the first. */
  async boxes(payloads: readonly Uint8Array[]): Promise<Bytes> {
    return joined(
      await Promise.all(
        payloads.map(async (payload, place) => {
          let box = payload;
          const pile = this.piles ? Math.floor((place * this.piles) / payloads.length) : undefined;
          for (let layer = 0; layer < this.#keys.length - 1; layer++) box = await this.#sealed(box, layer, pile);
          return box;
        }),
      ),
    );
  }

  /** The boxes and the ticket (if there is one), all together for the first shuffler. */
  report(boxes: Uint8Array, ticket: Uint8Array): Promise<Bytes> {
    return this.#sealed(joined([ticket, boxes]), this.#keys.length - 1);
  }
}
