// Collections for tests, and a shuffler that answers what it is told to.
import { createServer } from 'node:http';
import { CipherSuite, DhkemX25519HkdfSha256, HkdfSha256, Aes128Gcm } from '@hpke/core';
import { hexOf, sha256 } from '../dist/sealing.js';

export const suite = new CipherSuite({ kem: new DhkemX25519HkdfSha256(), kdf: new HkdfSha256(), aead: new Aes128Gcm() });

/** The served bytes of a collection, its digest, and the keys that open its layers: the analyst's first, the first shuffler's last. */
export async function served(recipe, { url = 'http://127.0.0.1:9', hops = 1, ticket = 0, delay = 0, ...more } = {}) {
  const keys = await Promise.all(Array.from({ length: hops + 1 }, () => suite.kem.generateKeyPair()));
  const public_ = await Promise.all(keys.map(async (pair) => hexOf(new Uint8Array(await suite.kem.serializePublicKey(pair.publicKey)))));
  const { piles, each, pile, number, width } = recipe.payload ?? { piles: 1, each: 1, pile: 1, number: 8, width: 1 };
  const terms = {
    format: 'metricshuffle-collection/1',
    suite: 'DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, AES-128-GCM',
    task: JSON.stringify({ digest: 'a'.repeat(64) }),
    recipe,
    round: 1,
    messages: piles * each,
    payload: pile + number * width,
    ticket,
    hops: public_.slice(1).reverse().map((key) => ({ key, name: '', url })),
    analyst: { key: public_[0], name: '' },
    opens: '2020-01-01T00:00:00Z',
    closes: '2090-01-01T00:00:00Z',
    extends: '2090-01-01T00:00:00Z',
    delay,
    admission: ticket ? 'tickets' : 'open',
    ...more,
  };
  const bytes = new TextEncoder().encode(JSON.stringify(terms));
  return { bytes, digest: hexOf(await sha256(bytes)), keys, terms };
}

/** What is inside a report: the ticket, and the payloads opened layer by layer. */
export async function opened(report, { digest, keys, terms }) {
  const prefix = (version) => new TextEncoder().encode(`metricshuffle-box/${version}\0`);
  const open = async (box, layer, ...pile) => {
    const info = new Uint8Array([...prefix(pile.length ? 2 : 1), layer, ...Buffer.from(digest, 'hex'), ...pile]);
    return new Uint8Array(await suite.open({ recipientKey: keys[layer].privateKey, enc: box.slice(0, 32), info }, box.slice(32)));
  };
  const inside = await open(report, terms.hops.length);
  const size = terms.payload + 48 * terms.hops.length;
  const payloads = [];
  for (let start = terms.ticket; start < inside.length; start += size) {
    let box = inside.slice(start, start + size);
    const pile = terms.piles ? [Math.floor((payloads.length * terms.piles) / terms.messages), 0, 0, 0] : [];
    for (let layer = terms.hops.length - 1; layer >= 0; layer--) box = await open(box, layer, ...pile);
    payloads.push(hexOf(box));
  }
  return { ticket: hexOf(inside.slice(0, terms.ticket)), payloads };
}

/** Answers posts with these statuses, one after the other (the last one for ever), and keeps what was posted. */
export async function shuffler(...statuses) {
  const posts = Object.assign([], { state: { state: 'open', phase: 'open', reason: '' } });
  const server = createServer((request, response) => {
    const parts = [];
    request.on('data', (part) => parts.push(part));
    request.on('end', () => {
      if (request.method === 'GET') {
        const state = request.url.endsWith('/state') && posts.state;
        response.writeHead(state ? 200 : 404, { 'content-type': 'application/json' }).end(JSON.stringify(state || {}));
        return;
      }
      posts.push({ url: request.url, headers: request.headers, body: hexOf(Buffer.concat(parts)) });
      const status = statuses.length > 1 ? statuses.shift() : statuses[0];
      if (status === 0) request.socket.destroy();
      else response.writeHead(status, status === 429 ? { 'retry-after': '1' } : {}).end();
    });
  });
  await new Promise((done) => server.listen(0, '127.0.0.1', done));
  return { url: `http://127.0.0.1:${server.address().port}`, posts, close: () => server.close() };
}
