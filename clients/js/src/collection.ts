/** A collection as it is served: its bytes are hashed before anything in them is read. */
import type { Recipe } from './report.js';
import { ADDED, type Bytes, bytesOf, hexOf, sha256 } from './sealing.js';

const FORMAT = 'metricshuffle-collection/';
const SUITE = 'DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, AES-128-GCM';
const LARGEST = 4 * 2 ** 20;

export interface Party {
  key: string;
  name: string;
}

/** What a collection says; see service/collection.py. */
export interface Terms {
  format: string;
  suite: string;
  task: string;
  recipe: Recipe;
  round: number;
  messages: number;
  payload: number;
  /** How many piles there are that are mixed apart, if there are. */
  piles?: number;
  /** The key of the gateway for reports through a relay, if there is one; see oblivious.ts. */
  gateway?: string;
  ticket: 0 | 16 | 354;
  hops: readonly (Party & { url: string })[];
  analyst: Party;
  opens: string;
  closes: string;
  extends: string;
  delay: number;
  admission: 'open' | 'tickets' | 'tokens';
  /** Who gives each person one token; such collections are for `metricshuffle-client/tokens`. */
  issuer?: Party & { url: string };
  minimum: number;
  maximum: number;
}

/** The collection is not what it should be; the message is for the person. */
export class CollectionError extends Error {
  override name = 'CollectionError';
}

export class Collection {
  private constructor(
    readonly digest: string,
    readonly terms: Terms,
    /** The digest of the task that it says to be of: what an outbox knows it by, together with the round. */
    readonly task: string,
  ) {}

  /** What was served, if these are the bytes whose SHA-256 was pinned. */
  static async read(served: Bytes, digest: string): Promise<Collection> {
    if (hexOf(await sha256(served)) !== digest) {
      throw new CollectionError('These are not the bytes of the requested collection: the digests differ. Do not take part.');
    }
    let terms: Terms;
    let task: unknown;
    try {
      terms = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(served)) as Terms;
      task = (JSON.parse(terms.task) as { digest: unknown }).digest;
    } catch {
      throw new CollectionError('This is not a collection: it cannot be read.');
    }
    if (terms.format !== FORMAT + (terms.piles || terms.issuer || terms.gateway ? 2 : 1) || terms.suite !== SUITE || typeof task !== 'string') {
      throw new CollectionError('This collection is of another kind than this client knows; use a newer one.');
    }
    const collection = new Collection(digest, terms, task);
    collection.#check();
    return collection;
  }

  /** Asks a shuffler for it, at an address like https://shuffler.example. */
  static async fetch(address: string, digest: string, ask: typeof fetch = fetch): Promise<Collection> {
    const answer = await ask(`${address.replace(/\/+$/, '')}/v1/collections/${digest}`, {
      credentials: 'omit',
      referrerPolicy: 'no-referrer',
      redirect: 'error',
    });
    if (!answer.ok) throw new CollectionError(`There is no such collection at ${address}: it answered ${answer.status}.`);
    const served = new Uint8Array(await answer.arrayBuffer());
    if (served.length > LARGEST) throw new CollectionError('This is not a collection: it is too long.');
    return Collection.read(served, digest);
  }

  /** The lengths of what is sealed must be those of what the recipe makes. */
  #check(): void {
    const { hops, analyst, recipe, messages, payload, piles: apart = 0, ticket, admission, issuer, opens, closes, extends: last, minimum, maximum } = this.terms;
    if (
      !Array.isArray(hops) || hops.length < 1 || hops.length > 8 || new Set([analyst, ...hops].map(({ key }) => key)).size <= hops.length ||
      ticket !== { open: 0, tickets: 16, tokens: 354 }[admission] || !issuer !== (admission !== 'tokens') || !(opens < closes && closes <= last) || minimum > maximum
    ) {
      throw new CollectionError('This collection is invalid; do not take part.');
    } // prettier-ignore
    if (recipe.browser) {
      const { piles, each, pile, number, width } = recipe.payload;
      if (messages !== piles * each || payload !== pile + number * width || apart !== (pile ? 0 : piles)) {
        throw new CollectionError('The recipe of this collection does not fit its lengths; do not take part.');
      }
    }
  }

  /** The analyst's key, the last shuffler's, and so on to the first's: the order in which a report is sealed. */
  get keys(): Bytes[] {
    const parties = [this.terms.analyst, ...[...this.terms.hops].reverse()];
    return parties.map((party) => bytesOf(party.key));
  }

  /** Where reports are sent. */
  get url(): string {
    return `${this.terms.hops[0]!.url}/v1/collections/${this.digest}/reports`;
  }

  /** Bytes of a report. */
  get reportSize(): number {
    const { messages, payload, ticket, hops } = this.terms;
    return ticket + messages * (payload + ADDED * hops.length) + ADDED;
  }
}
