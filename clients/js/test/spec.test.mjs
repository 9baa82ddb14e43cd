// The vectors of the specification, docs/spec/vectors (or the folder that SPEC_VECTORS names).
import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import test from 'node:test';
import { pathToFileURL } from 'node:url';
import { Collection, CollectionError } from '../dist/collection.js';
import { payloadsOf } from '../dist/report.js';
import { bytesOf, hexOf, Sealer } from '../dist/sealing.js';
import { opened, suite } from './served.mjs';

const folder = process.env.SPEC_VECTORS ? pathToFileURL(`${process.env.SPEC_VECTORS}/`) : new URL('../../../docs/spec/vectors/', import.meta.url);
const skip = !existsSync(folder) && 'the vectors of the repository are not here';
const vectors = async (name) => JSON.parse(await readFile(new URL(`${name}.json`, folder), 'utf8'));
const keyPair = async ({ private: secret }) => ({ privateKey: await suite.kem.importKey('raw', bytesOf(secret).buffer, false) });

test('B1 to B5, B7, B9: reports of the vectors open, and ours open in the same way', { skip }, async () => {
  for (const { digest, layers, hops, messages, payload, piles, ticket, payloads, report, report_size } of (await vectors('boxes')).cases) {
    const keys = await Promise.all(layers.map(keyPair));
    const terms = { hops: Array(hops).fill({}), messages, payload, piles, ticket: ticket.length / 2 };
    assert.deepEqual(await opened(bytesOf(report), { digest, keys, terms }), { ticket, payloads });
    const sealer = await Sealer.of(bytesOf(digest), layers.map((layer) => bytesOf(layer.public)), piles);
    const own = await sealer.report(await sealer.boxes(payloads.map(bytesOf)), bytesOf(ticket));
    assert.equal(own.length, report_size);
    assert.deepEqual(await opened(own, { digest, keys, terms }), { ticket, payloads });
  }
});

test('P1 to P3: payloads', { skip }, async () => {
  for (const { recipe, numbers, payloads } of (await vectors('payloads')).cases) {
    assert.deepEqual(payloadsOf(recipe, numbers.map(BigInt)).map(hexOf), payloads);
  }
});

test('C1 to C5, C7, C8: collections', { skip }, async () => {
  const { valid, refused } = await vectors('collections');
  const encode = (text) => new TextEncoder().encode(text);
  for (const { served, digest, keys, report_size } of valid) {
    const collection = await Collection.read(encode(served), digest);
    assert.deepEqual(collection.keys.map(hexOf), keys);
    assert.equal(collection.reportSize, report_size);
    await assert.rejects(Collection.read(encode(`${served} `), digest), CollectionError);
  }
  for (const { name, requirement, served, digest } of refused) {
    if (requirement === 'C6') continue; // refused when it is sealed for, by WebCrypto
    if (/^an issuer (that|whose)/.test(name)) continue; // refused when it is asked, in tokens.test.mjs
    await assert.rejects(Collection.read(encode(served), digest), CollectionError, name);
  }
});
