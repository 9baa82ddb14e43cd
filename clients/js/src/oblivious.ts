/** Oblivious HTTP (RFC 9458): calls of a client through a relay of another party, which cannot read them. */
import { Aes128Gcm, CipherSuite, DhkemX25519HkdfSha256, HkdfSha256 } from '@hpke/core';
import { type Bytes, bytesOf, hexOf, joined } from './sealing.js';

const PADDING = 1024;
const NONCE = 16;
const CONFIGURATION = /^[0-9a-f]{2}0020[0-9a-f]{64}[0-9a-f]{4}([0-9a-f]{8})*?00010001([0-9a-f]{8})*$/;
const WITHOUT_BODY = [204, 205, 304];
const encoded = (text: string) => new TextEncoder().encode(text);
const suite = new CipherSuite({ kem: new DhkemX25519HkdfSha256(), kdf: new HkdfSha256(), aead: new Aes128Gcm() });

/** A relay, or the gateway behind it, gave no answer that can be read. Nothing that it says otherwise is believed. */
export class RelayError extends Error {
  override name = 'RelayError';
}

// Binary HTTP (RFC 9292)

function sized(data: Uint8Array): Uint8Array {
  const { length } = data;
  if (length < 1 << 6) return joined([Uint8Array.of(length), data]);
  if (length < 1 << 14) return joined([Uint8Array.of(0x40 | (length >> 8), length), data]);
  return joined([Uint8Array.of(0x80 | (length >> 24), length >> 16, length >> 8, length), data]);
}

/** A request of known length without fields, padded to a multiple of 1,024 bytes. */
export function encodeRequest(method: string, url: string, content: Uint8Array = new Uint8Array()): Bytes {
  // A browser normalizes an address in the same way for every call, and the gateway compares it with that of the collection.
  const [, scheme, authority, path] = /^(https?):\/\/([^/]+)(\/.*)$/.exec(url) ?? [];
  if (!path) throw new RelayError(`${url} is no address that can be called through a relay.`);
  const control = [method, scheme!, authority!, path].map((part) => sized(encoded(part)));
  const message = joined([Uint8Array.of(0), ...control, Uint8Array.of(0), sized(content), Uint8Array.of(0)]);
  const padded = new Uint8Array(Math.ceil(message.length / PADDING) * PADDING);
  padded.set(message);
  return padded;
}

export interface InnerResponse {
  status: number;
  headers: [string, string][];
  content: Bytes;
}

/** Reads a response of known or indeterminate length; interim responses, trailers and padding are left out. */
export function decodeResponse(data: Uint8Array): InnerResponse {
  let at = 0;
  const take = (size: number) => {
    if (at + size > data.length) throw new RelayError('The answer is cut short.');
    return data.subarray(at, (at += size)) as Bytes;
  };
  const number = () => {
    const [first] = take(1) as unknown as [number];
    return take((1 << (first >> 6)) - 1).reduce((value, byte) => 256 * value + byte, first & 63);
  };
  const text = () => new TextDecoder('latin1').decode(take(number()));
  const framing = number();
  if (framing !== 1 && framing !== 3) throw new RelayError('The answer is no response.');
  const isKnown = framing === 1;
  const fields = (): [string, string][] => {
    const lines: [string, string][] = [];
    if (at === data.length) return lines;
    const end = isKnown ? number() + at : data.length;
    while (!isKnown || at < end) {
      const name = text();
      if (!name && !isKnown) break;
      if (!name) throw new RelayError('A field of the answer has no name.');
      lines.push([name, text()]);
    }
    if (isKnown && at !== end) throw new RelayError('The fields of the answer have another length.');
    return lines;
  };
  const body = (): Bytes => {
    if (at === data.length) return new Uint8Array();
    if (isKnown) return take(number()).slice();
    const chunks: Bytes[] = [];
    for (let size = number(); size; size = number()) chunks.push(take(size));
    return joined(chunks);
  };
  let status = number();
  for (; status >= 100 && status < 200; status = number()) fields();
  if (status < 200 || status > 599) throw new RelayError('The answer has no status.');
  const headers = fields();
  const content = body();
  fields();
  if (data.subarray(at).some((byte) => byte)) throw new RelayError('The answer is followed by something else.');
  return { status, headers, content };
}

// Capsules

async function signed(key: Bytes, data: Bytes): Promise<Bytes> {
  const held = await crypto.subtle.importKey('raw', key, { name: 'HMAC', hash: 'SHA-256' }, false, ['sign']);
  return new Uint8Array(await crypto.subtle.sign('HMAC', held, data));
}

/** What opens the answer to one capsule. */
export class AnswerKey {
  constructor(
    private readonly enc: Bytes,
    readonly secret: Bytes,
  ) {}

  async opened(answer: Bytes): Promise<Bytes> {
    const key = await signed(joined([this.enc, answer.subarray(0, NONCE)]), this.secret);
    const expanded = async (label: string, size: number) => (await signed(key, joined([encoded(label), Uint8Array.of(1)]))).slice(0, size);
    try {
      const cipher = await crypto.subtle.importKey('raw', await expanded('key', 16), 'AES-GCM', false, ['decrypt']);
      const iv = await expanded('nonce', 12);
      return new Uint8Array(await crypto.subtle.decrypt({ name: 'AES-GCM', iv }, cipher, answer.slice(NONCE)));
    } catch {
      throw new RelayError('The answer cannot be opened: it is not from the gateway of this collection.');
    }
  }
}

/** A capsule for the gateway with this key configuration, and what opens its answer. The ephemeral key is given in tests only. */
export async function sealCapsule(configuration: Bytes, request: Bytes, ephemeral?: CryptoKeyPair): Promise<{ capsule: Bytes; key: AnswerKey }> {
  if (!CONFIGURATION.test(hexOf(configuration))) throw new RelayError('This gateway has no key of a kind that is known here.');
  const head = joined([configuration.subarray(0, 3), Uint8Array.of(0, 1, 0, 1)]);
  const recipientPublicKey = await suite.kem.deserializePublicKey(configuration.slice(3, 35));
  const info = joined([encoded('message/bhttp request\0'), head]);
  const context = await suite.createSenderContext({ recipientPublicKey, info, ...(ephemeral && { ekm: ephemeral }) });
  const enc = new Uint8Array(context.enc);
  const capsule = joined([head, enc, new Uint8Array(await context.seal(request))]);
  const secret = new Uint8Array(await context.export(encoded('message/bhttp response'), NONCE));
  return { capsule, key: new AnswerKey(enc, secret) };
}

/**
 * In place of `fetch` in the options of a client: its calls go to the relay, encrypted for the gateway of one collection. `gateway` is the
 * field of that name in the collection; publish it together with the digest. The state of a collection is not asked for: it follows
 * from its times. Whatever a relay answers by itself is an error, after which a client sends again, and no answer of the shuffler.
 */
export function relayed(relay: string, gateway: string, ask: typeof fetch = (...request) => fetch(...request)): typeof fetch {
  const configuration = bytesOf(gateway);

  async function call(method: string, url: string, content?: Uint8Array): Promise<InnerResponse> {
    const { capsule, key } = await sealCapsule(configuration, encodeRequest(method, url, content));
    const answer = await ask(relay, {
      method: 'POST',
      body: capsule,
      headers: { 'content-type': 'message/ohttp-req' },
      credentials: 'omit',
      referrerPolicy: 'no-referrer',
      cache: 'no-store',
      redirect: 'error',
    });
    if (answer.status !== 200) throw new RelayError(`The relay answered ${answer.status}, without an answer of the shuffler.`);
    return decodeResponse(await key.opened(new Uint8Array(await answer.arrayBuffer())));
  }

  async function collection(url: string): Promise<InnerResponse> {
    const response = await call('GET', url);
    if (response.status === 200 && termsOf(response).gateway !== gateway) {
      throw new RelayError('The collection names another gateway than the one that was published with it.');
    }
    return response;
  }

  return async (input, init = {}) => {
    const url = String(input);
    if (url.endsWith('/state')) {
      const response = await collection(url.slice(0, -'/state'.length));
      return response.status === 200 ? Response.json({ phase: phaseOf(termsOf(response)), reason: '' }) : asResponse(response);
    }
    if (init.method !== 'POST') return asResponse(await collection(url));
    return asResponse(await call('POST', url, init.body as Uint8Array));
  };
}

interface Times {
  gateway: string;
  opens: string;
  extends: string;
}

function termsOf({ content }: InnerResponse): Times {
  return JSON.parse(new TextDecoder().decode(content)) as Times;
}

function phaseOf(times: Times): string {
  const now = Date.now();
  if (now < Date.parse(times.opens)) return 'not open yet';
  return now < Date.parse(times.extends) ? 'open' : 'closed';
}

function asResponse({ status, headers, content }: InnerResponse): Response {
  return new Response(WITHOUT_BODY.includes(status) ? null : content, { status, headers });
}
