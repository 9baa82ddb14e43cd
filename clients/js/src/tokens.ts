/**
 * Taking part with a token of another party, the issuer (Privacy Pass type 2, RFC 9578; blind RSA, RFC 9474): a module of its own.
 *
 * Arithmetic is BigInt's, whose time depends on the numbers. The secret ones, a nonce and a factor, are used once each, on this device; and what an
 * issuer or a shuffler could time is one answer over a network. Signatures are verified by WebCrypto.
 */
import { Client, NotSent, type Options, type Prepared } from './client.js';
import { Collection } from './collection.js';
import type { Value } from './inputs.js';
import { BrowserOutbox, type Entry, type Outbox } from './outbox.js';
import { type Bytes, bytesOf, hexOf, joined, sha256 } from './sealing.js';
import { Words } from './words.js';

const EXPONENT = 65537n;
const MODULUS = 256;
const SALT = 48;
const NONCE = 32;
const TYPE = Uint8Array.of(0, 2);
/** How a key begins (RFC 9578, section 6.5): RSASSA-PSS with SHA-384, and a modulus of 2,048 bits. */
const SPKI_START =
  '30820152303d06092a864886f70d01010a3030a00d300b0609608648016503040202a11a301806092a864886f70d010108300b0609608648016503040202' +
  'a2030201300382010f003082010a0282010100';
const SPKI_END = '0203010001';
const PSS = { name: 'RSA-PSS', hash: 'SHA-384' };

function numberOf(bytes: Uint8Array): bigint {
  return bytes.reduce((number, byte) => (number << 8n) | BigInt(byte), 0n);
}

function bigEndian(number: bigint, size: number): Bytes {
  return bytesOf(number.toString(16).padStart(2 * size, '0'));
}

function power(base: bigint, exponent: bigint, modulus: bigint): bigint {
  let result = 1n;
  for (let square = base % modulus; exponent; exponent >>= 1n, square = (square * square) % modulus) {
    if (exponent & 1n) result = (result * square) % modulus;
  }
  return result;
}

/** The inverse, or 0 if there is none. */
function inverse(number: bigint, modulus: bigint): bigint {
  let [left, right, one, two] = [number % modulus, modulus, 1n, 0n];
  while (left) {
    const times = right / left;
    [left, right, one, two] = [right - times * left, left, two - times * one, one];
  }
  return right === 1n ? ((two % modulus) + modulus) % modulus : 0n;
}

async function sha384(bytes: Bytes): Promise<Bytes> {
  return new Uint8Array(await crypto.subtle.digest('SHA-384', bytes));
}

/** EMSA-PSS (RFC 8017) with SHA-384, for a signature of some bits. */
export async function encodedMessage(message: Bytes, salt: Bytes, bits: number): Promise<bigint> {
  const size = Math.ceil(bits / 8);
  const digest = await sha384(joined([new Uint8Array(8), await sha384(message), salt]));
  const places = Array.from({ length: Math.ceil((size - 49) / 48) }, (_, place) => place);
  const mask = joined(await Promise.all(places.map((place) => sha384(joined([digest, bigEndian(BigInt(place), 4)])))));
  const block = numberOf(mask.subarray(0, size - 49)) ^ numberOf(joined([Uint8Array.of(1), salt]));
  const cut = BigInt.asUintN(bits - 8 * 49, block);
  return (((cut << 384n) | numberOf(digest)) << 8n) | 0xbcn;
}

/** A message times a power of the factor, which must be used for this message only. */
export async function blinded(message: Bytes, salt: Bytes, modulus: bigint, factor: bigint): Promise<Bytes> {
  const bits = modulus.toString(2).length;
  const encoded = await encodedMessage(message, salt, bits - 1);
  if (!inverse(encoded, modulus)) throw new NotSent('This message cannot be signed with the key of the issuer.', false);
  return bigEndian((encoded * power(factor, EXPONENT, modulus)) % modulus, Math.ceil(bits / 8));
}

/** The signature, if the answer is the root of what was asked: otherwise what was asked might tell which token it was. */
export function unblinded(answer: Bytes, asked: Bytes, modulus: bigint, factor: bigint): Bytes {
  const root = numberOf(answer);
  if (answer.length !== asked.length || power(root, EXPONENT, modulus) !== numberOf(asked)) {
    throw new NotSent('The answer of the issuer is not a signature by the key that the collection names. Nothing was sent to the shuffler.', true);
  }
  return bigEndian((root * inverse(factor, modulus)) % modulus, asked.length);
}

/** What a token of a collection is: its issuer's key, and the hash of the challenge. */
export class Tokens {
  private constructor(
    readonly spki: Bytes,
    readonly modulus: bigint,
    readonly keyId: Bytes,
    readonly challenge: Bytes,
  ) {}

  /** `challenge`: its SHA-256. */
  static async of(key: string, challenge: Bytes): Promise<Tokens> {
    const digits = key.slice(SPKI_START.length, -SPKI_END.length);
    const modulus = /^[89a-f][0-9a-f]{510}[13579bdf]$/.test(digits) ? BigInt(`0x${digits}`) : 0n;
    if (!modulus || key !== SPKI_START + digits + SPKI_END) {
      throw new NotSent('The key of the issuer is not one of RSASSA-PSS with 2,048 bits; do not take part.', false);
    }
    return new Tokens(bytesOf(key), modulus, await sha256(bytesOf(key)), challenge);
  }

  static async ofCollection({ digest, terms: { issuer, hops } }: Pick<Collection, 'digest' | 'terms'>): Promise<Tokens> {
    if (!issuer) throw new NotSent('This collection has no issuer of tokens.', false);
    if (hops.some(({ url }) => new URL(url).origin === new URL(issuer.url).origin)) {
      throw new NotSent('The issuer of this collection is one of its shufflers; do not take part.', false);
    }
    return Tokens.of(issuer.key, await sha256(challengeOf(issuer.url, digest)));
  }

  /** What is signed. */
  input(nonce: Uint8Array): Bytes {
    return joined([TYPE, nonce, this.challenge, this.keyId]);
  }

  /** A request, and the secret that makes a token of its answer. What is random is given by vectors only. */
  async request(nonce = random(NONCE), salt = random(SALT), factor = this.#factor()): Promise<{ request: Bytes; secret: Bytes }> {
    const message = await blinded(this.input(nonce), salt, this.modulus, factor);
    return { request: joined([TYPE, this.keyId.subarray(-1), message]), secret: joined([nonce, bigEndian(factor, MODULUS)]) };
  }

  #factor(): bigint {
    for (;;) {
      const factor = numberOf(random(MODULUS));
      if (factor && factor < this.modulus && inverse(factor, this.modulus)) return factor;
    }
  }

  async token(request: Bytes, secret: Bytes, answer: Bytes): Promise<Bytes> {
    const signature = unblinded(answer, request.slice(3), this.modulus, numberOf(secret.subarray(NONCE)));
    const token = joined([this.input(secret.subarray(0, NONCE)), signature]);
    if (!(await this.isValid(token))) throw new NotSent('The issuer made a token that is not valid. Nothing was sent to the shuffler.', true);
    return token;
  }

  async isValid(token: Bytes): Promise<boolean> {
    const signed = this.input(token.subarray(2, 2 + NONCE));
    if (token.length !== signed.length + MODULUS || signed.some((byte, place) => byte !== token[place])) return false;
    const text = (bytes: Uint8Array) => btoa(String.fromCharCode(...bytes)).replace(/\+/g, '-').replace(/\//g, '_').replace(/=/g, ''); // prettier-ignore
    const jwk = { kty: 'RSA', alg: 'PS384', n: text(bigEndian(this.modulus, MODULUS)), e: 'AQAB' };
    const key = await crypto.subtle.importKey('jwk', jwk, PSS, false, ['verify']);
    return crypto.subtle.verify({ name: PSS.name, saltLength: SALT }, key, token.slice(signed.length), signed);
  }
}

function random(size: number): Bytes {
  return crypto.getRandomValues(new Uint8Array(size));
}

/** The challenge of a collection (RFC 9577, section 2.1): the host of the issuer, and the digest; no origin. */
export function challengeOf(url: string, digest: string): Bytes {
  const name = new TextEncoder().encode(/^https?:\/\/([^/?#]*)/.exec(url)![1]!);
  return joined([TYPE, Uint8Array.of(name.length >> 8, name.length), name, Uint8Array.of(32), bytesOf(digest), new Uint8Array(2)]);
}

const REFUSED: Record<number, string> = {
  401: 'The issuer does not know this ticket; check it.',
  403: 'The issuer does not know this ticket; check it.',
  409: 'The issuer has given a token for this ticket to somebody with another outbox.',
};

export interface TokenOptions extends Options {
  /** In place of `fetch` for calls to the issuer, to which `ask` is never used: a relay leads to the shuffler. */
  askIssuer?: typeof fetch;
}

/** A client whose tickets are for the issuer: the shuffler gets a token, which by itself nobody can link with the ticket. */
export class TokenClient extends Client {
  readonly #outbox: Outbox;
  readonly #askIssuer: typeof fetch;

  constructor(collection: Collection, options: TokenOptions = {}) {
    const outbox = options.outbox ?? new BrowserOutbox();
    super(collection, { ...options, outbox });
    this.#outbox = outbox;
    this.#askIssuer = options.askIssuer ?? ((...request) => fetch(...request));
  }

  /** The client of a collection that a shuffler serves, if its bytes have the digest that was pinned. */
  static override async join(address: string, digest: string, options: TokenOptions = {}): Promise<TokenClient> {
    return new TokenClient(await Collection.fetch(address, digest, options.ask ?? fetch), options);
  }

  /** Under which the outbox keeps the request or the token. */
  get #place(): string {
    return JSON.stringify([this.key, 'token', this.collection.digest]);
  }

  /** The token in the outbox, or a new one for this ticket. A request is written down before it is sent, and is sent again as it is. */
  async token(ticket = ''): Promise<string> {
    const tokens = await Tokens.ofCollection(this.collection);
    const entry = async (change: (found: Entry | undefined) => Entry | undefined) => (await this.#outbox.update(this.#place, change))!;
    const { request, secret } = await tokens.request();
    const mine = { collection: this.collection.digest, due: 0, at: Date.now() };
    const stored = await entry((found) => (found?.report ? undefined : { ...mine, state: 'sending', report: request, boxes: secret }));
    if (!stored.boxes) return hexOf(stored.report!);
    const token = await tokens.token(stored.report!, stored.boxes, await this.#answer(stored.report!, ticket));
    return hexOf((await entry((found) => (found?.boxes ? { ...mine, state: 'made', report: token, boxes: null } : undefined))).report!);
  }

  async #answer(request: Bytes, ticket: string): Promise<Bytes> {
    const digits = ticket.trim().toLowerCase();
    if (!/^[0-9a-f]{32}$/.test(digits)) throw new NotSent('A ticket is 32 letters and digits, 0 to 9 and a to f.', true);
    let answer: Response;
    try {
      answer = await this.#askIssuer(this.collection.terms.issuer!.url, {
        method: 'POST',
        body: request,
        headers: { 'content-type': 'application/private-token-request', authorization: `Bearer ${digits}` },
        credentials: 'omit',
        referrerPolicy: 'no-referrer',
        cache: 'no-store',
        redirect: 'error',
      });
      if (answer.ok) return new Uint8Array(await answer.arrayBuffer());
    } catch {
      throw new NotSent('The issuer cannot be reached now. Try again later: the same request is sent again.', true);
    }
    throw new NotSent(REFUSED[answer.status] ?? `The issuer gives no token now (${answer.status}). Try again later.`, true, answer.status);
  }

  override async prepare(value: Value | readonly Value[], ticket = '', words = new Words()): Promise<Prepared | null> {
    if (!this.collection.terms.recipe.browser) return super.prepare(value); // which says why it cannot
    if (await this.entry()) return null;
    await this.checkOpen();
    return super.prepare(value, await this.token(ticket), words);
  }

  /** With another ticket: the token that was refused is forgotten, and the same messages are sealed with another one. */
  override async changeTicket(ticket: string): Promise<void> {
    await this.#forget();
    await super.changeTicket(await this.token(ticket));
  }

  override async decline(): Promise<boolean> {
    const nothing = await super.decline();
    await this.#forget();
    return nothing;
  }

  override async send(): Promise<void> {
    await super.send();
    await this.#forget();
  }

  async #forget(): Promise<void> {
    await this.#outbox.update(this.#place, (found) => found && { ...found, report: null, boxes: null, at: Date.now() });
  }
}

export { NotSent } from './client.js';
export type { Prepared } from './client.js';
export { TokenClient as Client };
