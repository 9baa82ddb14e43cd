// Tokens: the vectors of RFC 9474, RFC 9578 and docs/spec, and a client that asks a scripted issuer.
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'node:test';
import { pathToFileURL } from 'node:url';
import { NotSent } from '../dist/client.js';
import { Collection } from '../dist/collection.js';
import { FolderOutbox } from '../dist/node.js';
import { bytesOf, hexOf, sha256 } from '../dist/sealing.js';
import { opened, served, shuffler } from './served.mjs';
import { blinded, challengeOf, encodedMessage, TokenClient, Tokens, unblinded } from '../dist/tokens.js';

const specification = process.env.SPEC_VECTORS ? pathToFileURL(`${process.env.SPEC_VECTORS}/`) : new URL('../../../docs/spec/vectors/', import.meta.url);
const published = process.env.TOKEN_VECTORS ? pathToFileURL(process.env.TOKEN_VECTORS) : new URL('../../../tests/collection/rfc_token_vectors.json', import.meta.url);
const skip = !(existsSync(specification) && existsSync(published)) && 'the vectors of the repository are not here';
const hash = (bytes) => createHash('sha256').update(bytes).digest('hex');
const number = (digits) => BigInt(`0x${digits}`);
const digits = (value, size) => value.toString(16).padStart(2 * size, '0');

function power(base, exponent, modulus) {
  let result = 1n;
  for (; exponent; exponent >>= 1n, base = (base * base) % modulus) if (exponent & 1n) result = (result * base) % modulus;
  return result;
}

/** The root of a number, as an issuer takes it. */
function rootOf(value, p, q) {
  const order = (p - 1n) * (q - 1n);
  let [left, right, one, two] = [65537n, order, 1n, 0n];
  while (left) [left, right, one, two] = [right % left, left, two - (right / left) * one, one];
  return power(value, ((two % order) + order) % order, p * q);
}

test('RFC 9474: a blind signature', { skip }, async () => {
  const { rfc9474: vector } = JSON.parse(await readFile(published, 'utf8'));
  const [p, q, inverse] = [vector.p, vector.q, vector.inverse].map(number);
  const modulus = p * q;
  const order = modulus; // the factor is the inverse of the published one
  let [left, right, one, two] = [inverse, order, 1n, 0n];
  while (left) [left, right, one, two] = [right % left, left, two - (right / left) * one, one];
  const factor = ((two % order) + order) % order;
  const [message, salt] = [bytesOf(vector.message), bytesOf(vector.salt)];
  const asked = await blinded(message, salt, modulus, factor);
  assert.equal(hash(asked), vector.blinded);
  const answer = bytesOf(digits(rootOf(number(hexOf(asked)), p, q), 512));
  assert.equal(hash(answer), vector.blind_signature);
  const signature = unblinded(answer, asked, modulus, factor);
  assert.equal(hash(signature), vector.signature);
  assert.equal(power(number(hexOf(signature)), 65537n, modulus), await encodedMessage(message, salt, 4095));
});

test('RFC 9578: tokens of type 2', { skip }, async () => {
  const { rfc9578 } = JSON.parse(await readFile(published, 'utf8'));
  for (const vector of rfc9578.vectors) {
    const tokens = await Tokens.of(rfc9578.key, await sha256(bytesOf(vector.challenge)));
    const factor = number(vector.blind);
    const { request, secret } = await tokens.request(bytesOf(vector.nonce), bytesOf(vector.salt), factor);
    assert.equal(hash(request), vector.request);
    const signature = number(vector.token.slice(-512));
    const answer = bytesOf(digits((signature * factor) % tokens.modulus, 256));
    assert.equal(hash(answer), vector.response);
    assert.equal(hexOf(await tokens.token(request, secret, answer)), vector.token);
  }
});

test('K1 to K5: tokens of the specification', { skip }, async () => {
  const { cases } = JSON.parse(await readFile(new URL('tokens.json', specification), 'utf8'));
  for (const vector of cases) {
    assert.equal(hexOf(challengeOf(vector.url, vector.digest)), vector.challenge);
    const tokens = await Tokens.ofCollection({ digest: vector.digest, terms: { hops: [], issuer: { url: vector.url, key: vector.key, name: '' } } });
    const { request, secret } = await tokens.request(bytesOf(vector.nonce), bytesOf(vector.salt), number(vector.factor));
    assert.equal(hexOf(request), vector.request);
    assert.equal(hexOf(await tokens.token(request, secret, bytesOf(vector.response))), vector.token);
    await assert.rejects(tokens.token(request, secret, bytesOf(vector.wrong_response)), NotSent);
    for (const { name, token } of vector.refused) assert.equal(await tokens.isValid(bytesOf(token)), false, name);
  }
  for (const key of ['', cases[0].key.slice(0, -1) + '3', cases[0].key.toUpperCase(), cases[0].key.replace('0100cb', '01004b')]) {
    if (key !== cases[0].key) await assert.rejects(Tokens.of(key, new Uint8Array(32)), NotSent);
  }
});

const TICKET = 'ab'.repeat(16);

const numbers = JSON.parse(await readFile(new URL('vectors.json', import.meta.url), 'utf8')).reports['whole numbers'].recipe;

/** A collection with the issuer's key of the vectors, which is public; a scripted issuer; and a shuffler that answers with these statuses. */
async function scripted(context, script = [], statuses = [204]) {
  const { primes, cases } = JSON.parse(await readFile(new URL('tokens.json', specification), 'utf8'));
  const [p, q] = primes.map(number);
  const server = await shuffler(...statuses);
  const folder = await mkdtemp(join(tmpdir(), 'tokens-'));
  context.after(async () => {
    server.close();
    await rm(folder, { recursive: true });
  });
  const issuer = { url: 'https://issuer.example/token-request', key: cases[0].key, name: '' };
  const more = { format: 'metricshuffle-collection/2', admission: 'tokens', ticket: 354, issuer };
  const made = await served(numbers, { url: server.url, ...more });
  const requests = [];
  const askIssuer = async (url, options) => {
    assert.equal(url, issuer.url);
    assert.equal(options.headers.authorization, `Bearer ${TICKET}`);
    requests.push(hexOf(options.body));
    const what = script.shift() ?? 200;
    if (what === 'lost') throw new TypeError('lost');
    const answer = bytesOf(digits(rootOf(number(hexOf(options.body.subarray(3))), p, q), 256));
    return typeof what === 'number' && what !== 200 ? new Response('', { status: what }) : new Response(what === 'wrong' ? answer.reverse() : answer);
  };
  const collection = await Collection.read(made.bytes, made.digest);
  const outbox = new FolderOutbox(folder);
  return { client: () => new TokenClient(collection, { outbox, askIssuer, patience: 20_000 }), collection, made, requests, posts: server.posts };
}

/** The tokens in the reports that arrived, all of which must be valid. */
async function tokensIn({ posts, made, collection }) {
  const inside = await Promise.all(posts.map(({ body }) => opened(bytesOf(body), made)));
  const tokens = await Tokens.ofCollection(collection);
  for (const { ticket } of inside) assert.equal(await tokens.isValid(bytesOf(ticket)), true);
  return inside;
}

test('C8: issuers that are shufflers, or have other keys, are not asked', { skip }, async () => {
  const { refused } = JSON.parse(await readFile(new URL('collections.json', specification), 'utf8'));
  const chosen = refused.filter(({ name }) => /^an issuer (that|whose)/.test(name));
  assert.equal(chosen.length, 2);
  for (const { served: text, digest } of chosen) {
    const collection = await Collection.read(new TextEncoder().encode(text), digest);
    await assert.rejects(Tokens.ofCollection(collection), NotSent);
  }
});

test('a person takes part with a token, and nothing of the ticket is sent to the shuffler', { skip }, async (context) => {
  const round = await scripted(context);
  assert.equal((await round.client().submit(480, TICKET)).sentence, 'The report is stored.');
  const [{ ticket }] = await tokensIn(round);
  assert.equal(round.requests.length, 1);
  assert.equal(ticket.includes(TICKET) || ticket.includes(round.requests[0].slice(6)), false);
  await assert.rejects(round.client().submit(480, TICKET), /was stored/);
  assert.equal(round.requests.length, 1);
});

test('a refused token is replaced, and the same messages are sent', { skip }, async (context) => {
  const round = await scripted(context, [], [409, 204]);
  await assert.rejects(round.client().submit(480, TICKET), { status: 409 });
  await round.client().changeTicket(TICKET);
  await round.client().send();
  const [first, second] = await tokensIn(round);
  assert.notEqual(first.ticket, second.ticket);
  assert.deepEqual(first.payloads, second.payloads);
});

test('a request is written down before it is sent, and sent again as it is', { skip }, async (context) => {
  const { client, collection, requests } = await scripted(context, ['lost', 403, 'wrong', 503]);
  for (let attempt = 0; attempt < 4; attempt++) await assert.rejects(client().token(TICKET), NotSent);
  await assert.rejects(client().token('no ticket'), NotSent);
  const token = await client().token(TICKET);
  assert.equal(await client().token(), token); // needs no ticket any more
  assert.equal(requests.length, 5);
  assert.equal(new Set(requests).size, 1);
  assert.equal(await (await Tokens.ofCollection(collection)).isValid(bytesOf(token)), true);
  assert.equal(requests[0].includes(token.slice(4, 68)), false);
});

test('a declined report leaves no token behind', { skip }, async (context) => {
  const { client, requests } = await scripted(context);
  const first = await client().token(TICKET);
  assert.equal(await client().decline(), true);
  assert.notEqual(await client().token(TICKET), first);
  assert.equal(requests.length, 2);
});
